//! `dat perf`: measures the rate, bandwidth and latency of operations in flight.
//!
//! The peer reports how many operations it has verified, which limits the number in flight. So the
//! result counts operations that arrived with correct contents, not posted ones.
//!
//! `run` is one measurement, `report` what comes of it, `plot` the same as a picture.

mod plot;
mod report;
mod run;

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use vfio_host::{Host, Nic};

use super::super::End;
use super::super::args::Perf;
use super::super::failure::Failure;
use super::super::out::{Out, progress};
use super::adapter::{self, Task};
use super::call::{Call, Callee};
use super::hello::{Hello, Kind};
use report::{Measured, Report};
use run::Run;

pub(crate) fn run(perf: &Perf, out: &Out) -> Result<End, Failure> {
    let callee =
        Callee { peer: perf.peer.address(&perf.adapter)?, timeout: perf.timeout, spin: perf.poll };
    let sizes = perf.sizes.as_ref().map_or_else(|| vec![perf.size], |sizes| sizes.0.clone());
    // A test without a count is one that this side ends.
    let count = if perf.duration.is_some() { 0 } else { perf.count };
    let hello = |size| Hello { kind: perf.kind, depth: perf.depth, size, count, seed: 0, mtu: 0 };
    for size in &sizes {
        hello(*size).check().map_err(Failure::usage)?;
    }
    let hellos = sizes.into_iter().map(hello).collect();
    let runs = adapter::with(&perf.adapter, Measuring { perf, callee, hellos, out })?;
    let report = Report { peer: callee.peer.to_string(), test: perf.kind, depth: perf.depth, runs };
    if let Some(file) = &perf.plot {
        plot::write(file, &report)?;
    }
    if perf.csv {
        out.result(&report, &report.csv())?;
    } else {
        out.result(&report, &report.to_string())?;
    }
    Ok(End::Ok)
}

struct Measuring<'a> {
    perf: &'a Perf,
    callee: Callee,
    hellos: Vec<Hello>,
    out: &'a Out,
}

impl Task for Measuring<'_> {
    type Report = Vec<Measured>;

    fn run<'p, H: Host>(self, nic: &mut Nic<'_, 'p, H>) -> Result<Vec<Measured>, Failure> {
        self.hellos.iter().map(|hello| self.measure(nic, *hello)).collect()
    }
}

impl Measuring<'_> {
    /// One size, over a connection of its own.
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    fn measure<'p, H: Host>(
        &self,
        nic: &mut Nic<'_, 'p, H>,
        hello: Hello,
    ) -> Result<Measured, Failure> {
        let Self { perf, callee, out, .. } = self;
        let call = Call::new(nic, *callee, hello)?;
        let mut run = Run::new(nic, call)?;
        let bar = progress(**out, hello.count, perf.kind.name());
        let mut lines = Lines::new(perf.interval, hello.size);
        let (start, cpu) = (Instant::now(), cpu_time());
        let end = perf.duration.map(|duration| start + duration);
        while run.verified < run.target {
            if end.is_some_and(|end| Instant::now() >= end) {
                run.stop();
            }
            run.post_all(nic)?;
            let Some(event) = run.call.next(nic)? else {
                return Err(Failure::new(format!(
                    "interrupted after {} operations of {} bytes",
                    run.verified, hello.size
                )));
            };
            run.event(nic, &event)?;
            // All that came since, so that what it makes room for is posted under one doorbell.
            while let Some(event) = run.call.pending(nic)? {
                run.event(nic, &event)?;
            }
            bar.set_position(run.verified.max(run.completed));
            if !perf.csv {
                lines.show(run.completed, **out)?;
            }
        }
        let (seconds, cpu) = (start.elapsed().as_secs_f64(), cpu_time().saturating_sub(cpu));
        bar.finish_and_clear();
        let (count, latency_us) = (run.target, run.times.latency());
        run.part(nic)?;
        let rate = count as f64 / seconds.max(1e-9);
        Ok(Measured {
            size: hello.size,
            count,
            seconds,
            operations_per_second: rate,
            megabytes_per_second: (perf.kind != Kind::Bind)
                .then(|| rate * f64::from(hello.size) / 1e6),
            latency_us,
            cpu_us_per_operation: cpu.as_secs_f64() * 1e6 / count as f64,
        })
    }
}

/// CPU time of this process: that of a driver in user space is its own.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap_or(0), time.tv_nsec.try_into().unwrap_or(0))
}

/// Prints a line for each interval.
struct Lines {
    interval: Option<Duration>,
    size: u32,
    start: Instant,
    /// Since when, and since which operation.
    last: (Instant, u64),
}

impl Lines {
    fn new(interval: Option<Duration>, size: u32) -> Self {
        let start = Instant::now();
        Self { interval, size, start, last: (start, 0) }
    }

    #[expect(clippy::cast_precision_loss, reason = "for people")]
    fn show(&mut self, completed: u64, out: Out) -> Result<(), Failure> {
        let (now, (since, before)) = (Instant::now(), self.last);
        if self.interval.is_none_or(|interval| now - since < interval) {
            return Ok(());
        }
        self.last = (now, completed);
        let rate = (completed - before) as f64 / (now - since).as_secs_f64();
        let [from, to] = [since, now].map(|time| (time - self.start).as_secs_f64());
        let megabytes = rate * f64::from(self.size) / 1e6;
        out.say(&format!("{from:7.2}-{to:<7.2} s  {rate:12.0} operations/s  {megabytes:10.1} MB/s"))
    }
}
