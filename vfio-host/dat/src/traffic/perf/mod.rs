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

use dat_core::Evd;
use vfio_host::{Host, Nic};

use super::super::args::Perf;
use super::super::failure::Failure;
use super::super::out::{Out, progress};
use super::super::{End, signals};
use super::adapter::{self, SLICE, Task};
use super::call::{Call, Callee};
use super::hello::{Hello, Kind};
use super::histogram::Histogram;
use super::listen;
use super::view::{View, Watch};
use report::{Measured, Report};
use run::Run;

pub(crate) fn run(perf: &Perf, out: &Out) -> Result<End, Failure> {
    let callee =
        Callee { peer: perf.peer.address(&perf.adapter)?, timeout: perf.timeout, spin: perf.poll };
    let sizes = perf.sizes.as_ref().map_or_else(|| vec![perf.size], |sizes| sizes.0.clone());
    let mut kinds = vec![perf.kind];
    if perf.bidirectional {
        kinds.push(match perf.kind {
            Kind::Ping | Kind::Send | Kind::Write => Kind::Read,
            Kind::Read => Kind::Write,
            Kind::Bind => return Err(Failure::usage("a bind moves no data in either direction")),
        });
    }
    let connections = kinds.len() * usize::from(perf.connections);
    if connections > listen::SESSIONS {
        return Err(Failure::usage(format!(
            "that makes {connections} connections, and dat listen serves {} at a time",
            listen::SESSIONS
        )));
    }
    // A test without a count is one that this side ends.
    let count = if perf.duration.is_some() { 0 } else { perf.count };
    let hello = |kind, size| Hello { kind, depth: perf.depth, size, count, seed: 0, mtu: 0 };
    let mut tests = Vec::new();
    for size in sizes {
        let of_one = kinds.iter().map(|kind| hello(*kind, size));
        let all = of_one.flat_map(|hello| vec![hello; perf.connections.into()]);
        tests.push(all.collect::<Vec<_>>());
    }
    for hello in tests.iter().flatten() {
        hello.check().map_err(Failure::usage)?;
    }
    let runs = adapter::with(&perf.adapter, Measuring { perf, callee, tests, out })?;
    let report = Report {
        peer: callee.peer.to_string(),
        test: perf.kind,
        depth: perf.depth,
        connections: perf.connections,
        bidirectional: perf.bidirectional,
        runs,
    };
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
    /// For each size the hellos of its connections.
    tests: Vec<Vec<Hello>>,
    out: &'a Out,
}

impl Task for Measuring<'_> {
    type Report = Vec<Measured>;

    fn run<'p, H: Host>(self, nic: &mut Nic<'_, 'p, H>) -> Result<Vec<Measured>, Failure> {
        self.tests.iter().map(|hellos| self.measure(nic, hellos)).collect()
    }
}

impl Measuring<'_> {
    /// One size, over connections of its own.
    fn measure<'p, H: Host>(
        &self,
        nic: &mut Nic<'_, 'p, H>,
        hellos: &[Hello],
    ) -> Result<Measured, Failure> {
        let Self { perf, callee, out, .. } = self;
        let rate = perf
            .rate
            .map(|rate| f64::from(rate) / f64::from(u32::try_from(hellos.len()).unwrap_or(1)));
        let mut calls = Vec::new();
        for hello in hellos {
            calls.push(Call::new(nic, *callee, *hello)?);
        }
        let runs = calls.into_iter().map(|call| Run::new(nic, call, rate));
        let mut runs = runs.collect::<Result<Vec<_>, _>>()?;
        let size = hellos.first().map_or(0, |hello| hello.size);
        let all = hellos.iter().map(|hello| hello.count).sum();
        let bar = progress(**out, all, perf.kind.name());
        let mut lines = Lines::new(perf.interval, size);
        let (watch, start) = (Watch::start(), Instant::now());
        let mut begin = View::default();
        let mut warm = perf.warmup.map(|warmup| start + warmup);
        runs.iter_mut().for_each(|run| run.measures = warm.is_none());
        let mut stop = perf.duration.map(|duration| warm.unwrap_or(start) + duration);
        let mut end = None;
        while !runs.iter().all(Run::is_over) {
            if due(&mut warm) {
                begin = watch.now(completed(&runs));
                runs.iter_mut().for_each(Run::measure);
            }
            if due(&mut stop) {
                end = Some(watch.now(completed(&runs)));
                runs.iter_mut().for_each(Run::stop);
            }
            for run in &mut runs {
                run.post_all(nic)?;
            }
            if !turn(nic, &mut runs, *callee)? {
                let done: u64 = runs.iter().map(|run| run.verified).sum();
                return Err(Failure::new(format!(
                    "interrupted after {done} operations of {size} bytes"
                )));
            }
            let completed = completed(&runs);
            bar.set_position(completed);
            if !perf.csv {
                lines.show(completed, **out)?;
            }
        }
        bar.finish_and_clear();
        let end = end.unwrap_or_else(|| watch.now(completed(&runs)));
        let mut times = Histogram::new();
        let mut views = Vec::new();
        for run in runs {
            times.join(&run.times);
            views.push(run.peer_view());
            run.part(nic)?;
        }
        let moves = perf.kind != Kind::Bind;
        Ok(Measured::new(size, moves, end.since(begin), &views, &times))
    }
}

fn completed<H: Host>(runs: &[Run<'_, H>]) -> u64 {
    runs.iter().map(|run| run.completed).sum()
}

/// Whether a time has come, once.
fn due(time: &mut Option<Instant>) -> bool {
    time.take_if(|time| *time <= Instant::now()).is_some()
}

/// Waits for events, or until an operation is due, and takes all there are. `false` after Ctrl-C.
fn turn<'p, H: Host>(
    nic: &mut Nic<'_, 'p, H>,
    runs: &mut [Run<'p, H>],
    callee: Callee,
) -> Result<bool, Failure> {
    let start = Instant::now();
    let mut looks = 0_u32;
    loop {
        let mut taken = false;
        for run in &mut *runs {
            // All that came since, so that what it makes room for is posted under one doorbell.
            while let Some(event) = run.call.pending(nic)? {
                run.event(nic, &event)?;
                taken = true;
            }
        }
        let next = runs.iter().filter_map(Run::due).min();
        let can_post = runs.iter().any(Run::may_post);
        if taken || can_post {
            return Ok(true);
        }
        looks += 1;
        if callee.spin && looks % adapter::LOOKS != 0 {
            std::hint::spin_loop();
            continue;
        }
        if signals::asked() {
            return Ok(false);
        }
        if start.elapsed() >= callee.timeout {
            if let Some(run) = runs.iter().find(|run| run.waits_for_peer()) {
                return Err(run.call.silence());
            }
        }
        let limit = next.map_or(SLICE, |next| next.saturating_duration_since(Instant::now()));
        if callee.spin {
            nic.advance();
            if let Some(trouble) = adapter::trouble(nic) {
                return Err(trouble);
            }
            std::thread::yield_now();
        } else {
            let evds: Vec<Evd> = runs.iter().map(|run| run.call.conn.evd).collect();
            adapter::wait(nic, &evds, limit.min(SLICE))?;
        }
    }
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
