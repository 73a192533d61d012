//! `dat perf`: measures the rate, bandwidth and latency of operations in flight.
//!
//! The peer reports how many operations it has verified, which limits the number in flight. So the
//! result counts operations that arrived with correct contents, not posted ones.
//!
//! `run` is one connection's part. `alone` drives all in this thread, `threads` in several; `course`
//! says when the measurement begins and ends. `report` is what comes of it, `plot` the same as a
//! picture.

mod alone;
mod course;
mod plot;
mod report;
mod run;
mod threads;

use vfio_host::{Host, Nic};

use super::super::End;
use super::super::args::Perf;
use super::super::failure::Failure;
use super::super::out::Out;
use super::adapter::{self, Task};
use super::call::{Call, Callee};
use super::hello::{Hello, Kind};
use super::histogram::Histogram;
use super::listen;
use course::Course;
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
    if usize::from(perf.threads) > connections {
        return Err(Failure::usage(format!(
            "{} threads have {connections} connections: a thread has one at least",
            perf.threads
        ))
        .remedy("more --connections, or fewer --threads"));
    }
    let rates = match &perf.rate {
        None => vec![None],
        Some(rates) => rates.0.iter().copied().map(Some).collect(),
    };
    if sizes.len() > 1 && rates.len() > 1 {
        return Err(Failure::usage("there are several sizes or several rates, not both"));
    }
    // A test without a count is one that this side ends.
    let count = if perf.duration.is_some() { 0 } else { perf.count };
    let hello = |kind, size| Hello { kind, depth: perf.depth, size, count, seed: 0, mtu: 0 };
    let mut tests = Vec::new();
    for size in sizes {
        let of_one = kinds.iter().map(|kind| hello(*kind, size));
        let all = of_one.flat_map(|hello| vec![hello; perf.connections.into()]);
        let hellos: Vec<_> = all.collect();
        for hello in &hellos {
            hello.check().map_err(Failure::usage)?;
        }
        tests.extend(rates.iter().map(|rate| (*rate, hellos.clone())));
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
    /// For each size or rate the hellos of its connections.
    tests: Vec<(Option<u32>, Vec<Hello>)>,
    out: &'a Out,
}

impl Task for Measuring<'_> {
    type Report = Vec<Measured>;

    fn run<'p, H: Host>(self, nic: &mut Nic<'_, 'p, H>) -> Result<Vec<Measured>, Failure> {
        self.tests.iter().map(|(rate, hellos)| self.measure(nic, *rate, hellos)).collect()
    }
}

impl Measuring<'_> {
    /// One size and rate, over connections of its own.
    fn measure<'s, 'p, H: Host>(
        &self,
        nic: &mut Nic<'s, 'p, H>,
        rate: Option<u32>,
        hellos: &[Hello],
    ) -> Result<Measured, Failure> {
        let Self { perf, callee, out, .. } = self;
        let share =
            rate.map(|rate| f64::from(rate) / f64::from(u32::try_from(hellos.len()).unwrap_or(1)));
        let mut calls = Vec::new();
        for hello in hellos {
            calls.push(Call::new(nic, *callee, *hello)?);
        }
        let runs = calls.into_iter().map(|call| Run::new(nic, call, share));
        let mut runs = runs.collect::<Result<Vec<_>, _>>()?;
        let size = hellos.first().map_or(0, |hello| hello.size);
        let all = hellos.iter().map(|hello| hello.count).sum();
        let mut course = Course::new(perf, **out, size, all);
        if perf.threads > 1 {
            runs = threads::drive(nic, runs, perf.threads, *callee, &mut course)?;
        } else {
            alone::drive(nic, &mut runs, *callee, &mut course)?;
        }
        let own = course.finish(runs.iter().map(|run| run.completed).sum());
        let mut times = Histogram::new();
        let mut views = Vec::new();
        for run in runs {
            times.join(&run.times);
            views.push(run.peer_view());
            run.part(nic)?;
        }
        let moves = perf.kind != Kind::Bind;
        Ok(Measured { rate, ..Measured::new(size, moves, own, &views, &times) })
    }
}
