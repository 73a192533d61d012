//! Step 4: event queues and the latency of commands.

use std::time::{Duration, Instant};

use vfio_host::{Host, Nic};

use super::super::failure::Failure;
use super::Run;
use super::report::{Report, fail, skip};
use super::watch::Mode;

/// Commands of a measurement.
const COMMANDS: usize = 1000;
/// Longest measurement.
const LIMIT: Duration = Duration::from_secs(20);
/// Names of the event queues, in the order of their making.
const QUEUES: [&str; 3] = ["asynchronous", "pages", "completions"];

/// Writes percentiles of times in microseconds.
pub(super) fn percentiles(report: &Report, name: &str, times: &mut [f64]) -> String {
    times.sort_by(f64::total_cmp);
    let at = |share: usize| times.get(times.len().saturating_sub(1) * share / 100).copied();
    let [half, most, last] = [50, 99, 100].map(|share| at(share).unwrap_or(0.0));
    for (what, value) in [("median", half), ("99 %", most), ("longest", last)] {
        report.number(&format!("{name}, {what}"), value, "us");
    }
    format!("median {half} us, 99 % {most} us, longest {last} us")
}

pub(super) fn run<H: Host>(nic: &mut Nic<'_, '_, H>, run: &Run<'_>) -> Result<(), Failure> {
    let report = run.report;
    report.check(4, "made-armed", || match nic.provider_mut().device_mut().made_armed()? {
        Some(armed) => {
            report.fact("eq-created", if armed { "armed" } else { "idle" });
            Ok(if armed { "armed" } else { "not armed" }.into())
        }
        None => skip("the device does not say"),
    })?;
    for (nth, name) in QUEUES.iter().enumerate() {
        for arm in [true, false] {
            let state = if arm { "armed" } else { "unarmed" };
            report.check(4, &format!("event.{name}.{state}"), || {
                let device = nic.provider_mut().device_mut();
                if !arm {
                    // An event takes the arming with it.
                    device.test_event(nth, true)?;
                }
                let Some(count) = device.test_event(nth, arm)? else {
                    return skip("the device does not generate events");
                };
                if !arm && nth == 0 {
                    report.fact("gen-eqe-unarmed", if count == 0 { "lost" } else { "kept" });
                }
                match count {
                    1 => Ok(String::new()),
                    0 if !arm => Ok("lost".into()),
                    0 => fail("the event was lost"),
                    more => fail(format!("{more} entries came for one event")),
                }
            })?;
        }
    }
    for (name, spin) in [("polled", true), ("by-events", false)] {
        report.check(4, &format!("commands.{name}"), || {
            run.watch.set(Mode::Off);
            let mut times = Vec::with_capacity(COMMANDS);
            let first = Instant::now();
            while times.len() < COMMANDS && first.elapsed() < LIMIT {
                let start = Instant::now();
                nic.provider_mut().device_mut().nop(spin)?;
                times.push(super::report::micros(start));
            }
            run.watch.set(Mode::Brief);
            Ok(percentiles(report, &format!("NOP {name}"), &mut times))
        })?;
        run.watch.set(Mode::Brief);
    }
    Ok(())
}
