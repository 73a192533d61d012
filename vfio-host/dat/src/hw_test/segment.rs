//! Step 2: the initialization segment before and after a reset.

use std::time::{Duration, Instant};

use hca_mlx5::prm::init_seg::{
    CMD_EXEC_TO, CMDQ_ADDR_H, CMDQ_ADDR_L_SZ, HEALTH_COUNTER, HEALTH_SEVERITY, HEALTH_WORD,
    HealthCounter, HealthSeverity, HealthWord, INITIALIZING, Initializing,
};
use serde_json::json;
use vfio_host::Host;

use super::super::failure::Failure;
use super::report::{Report, Stop, fail, micros};

/// Bytes of the segment that are kept.
const LEN: usize = CMD_EXEC_TO + 8;
/// Longest wait for the firmware's start.
const START_LIMIT: Duration = Duration::from_secs(120);
/// A slow one.
const SLOW: Duration = Duration::from_secs(3);
/// How long the counter is watched.
const WATCHED: Duration = Duration::from_millis(1500);

fn word<H: Host>(host: &H, offset: usize) -> u32 {
    u32::from_be(host.read32(offset))
}

/// Writes the whole segment, without the address of the command queue.
pub(super) fn keep<H: Host>(report: &Report, when: &str, host: &H, us: f64) {
    let mut bytes = Vec::with_capacity(LEN);
    for offset in (0..LEN.min(host.bar_len())).step_by(4) {
        bytes.extend(host.read32(offset).to_ne_bytes());
    }
    let low = (word(host, CMDQ_ADDR_L_SZ) & 0xfff).to_be_bytes();
    if let Some(address) = bytes.get_mut(CMDQ_ADDR_H..CMDQ_ADDR_L_SZ + 4) {
        address.copy_from_slice(&[0, 0, 0, 0, low[0], low[1], low[2], low[3]]);
    }
    report.bytes("iseg", bytes, json!({ "when": when, "us": us }));
}

/// The setting of the fact that the health buffer shows.
fn health<H: Host>(host: &H) -> &'static str {
    if HealthWord(word(host, HEALTH_WORD)).synd() == 0 {
        return "clean";
    }
    let severity = HealthSeverity(word(host, HEALTH_SEVERITY));
    let counter = HealthCounter(word(host, HEALTH_COUNTER));
    match (severity.severity_valid(), severity.severity(), counter.syndrome()) {
        (false, ..) => "stale-no-severity",
        (true, .., 1..) => "stale-counter-byte",
        (true, 0, _) => "stale-emergency",
        (true, 4.., _) => "stale-warning",
        (true, ..) => "stale",
    }
}

/// Whether the command queue's address can be read back, while a driver has set one.
pub(super) fn command_address<H: Host>(report: &Report, host: &H) {
    let kept = word(host, CMDQ_ADDR_H) != 0 || word(host, CMDQ_ADDR_L_SZ) & !0xfff != 0;
    report.fact("command-address", if kept { "kept" } else { "zero" });
}

/// Waits until the firmware has started; returns the time since `start` in microseconds. After a
/// reset the device may read as all ones for a while, which looks like busy.
fn ready<H: Host>(host: &H, start: Instant) -> Result<f64, Stop> {
    while Initializing(word(host, INITIALIZING)).busy() {
        if start.elapsed() > START_LIMIT {
            return fail(format!("`initializing` is set after {} s", START_LIMIT.as_secs()));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(micros(start))
}

/// Keeps the segment, resets the function, times its start, keeps it again.
pub(super) fn run<H: Host>(report: &Report, host: &mut H) -> Result<(), Failure> {
    report.check(2, "segment-before", || {
        // Opening it was a reset.
        let us = ready(host, Instant::now())?;
        keep(report, "before", host, us);
        let word = word(host, INITIALIZING);
        let dpu = Initializing(word).embedded_cpu();
        report.fact("embedded-cpu", if dpu { "dpu" } else { "host" });
        Ok(format!("initializing {word:#010x}"))
    })?;
    report.check(2, "reset", || {
        let start = Instant::now();
        host.renew()?;
        let back = start.elapsed();
        let us = ready(host, start)?;
        keep(report, "after", host, us);
        report.number("reset until ready", us, "us");
        report.fact("flr", if start.elapsed() > SLOW { "5s" } else { "fast" });
        Ok(format!("{:.3} s, of which the bus {:.3} s", us / 1e6, back.as_secs_f64()))
    })?;
    report.check(2, "health", || {
        let counter = || HealthCounter(word(host, HEALTH_COUNTER)).counter();
        let (first, start) = (counter(), Instant::now());
        while start.elapsed() < WATCHED {
            std::thread::sleep(Duration::from_millis(10));
        }
        let steps = counter().wrapping_sub(first);
        let rate = f64::from(steps) / start.elapsed().as_secs_f64();
        report.number("health counter", (rate * 10.0).round() / 10.0, "1/s");
        let found = health(host);
        report.fact("health", found);
        let rfr = HealthSeverity(word(host, HEALTH_SEVERITY)).rfr();
        if rfr && found != "clean" {
            return fail("the health buffer asks for a reset");
        }
        Ok(format!("health buffer {found}, counter {rate:.1}/s"))
    })?;
    Ok(())
}
