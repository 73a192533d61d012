//! A rank is killed in mid-traffic, again and again: its launcher ends the others, their functions
//! are free at once, and nothing is left.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::job::{Functions, Job, PARTS, Program, Rig, kill, report, running};
use super::{UD, intel};
use crate::guest::stage::Stage;
use crate::images::mpi::{Intel, PACKAGE};

/// How often.
const TIMES: u64 = 50;
const RANKS: usize = 4;
/// How long the launcher may take to end after a rank has.
const ENDS: Duration = Duration::from_secs(10);
/// What the model says of a client that was killed.
const LOST: &str = "note: client connection lost";
/// How long a run may take until there is traffic.
const STARTS: Duration = Duration::from_secs(30);

/// Kills.
pub(super) fn run(stage: &mut Stage<'_>) -> Result<String> {
    let found = match Intel::fetch() {
        Ok(found) => found,
        Err(error) => return Ok(format!("SKIPPED: {PACKAGE} cannot be had: {error:#}")),
    };
    let rig = intel(stage, &found, &Program::own("verify"))?;
    let functions = rig.functions(stage, RANKS)?;
    let (mut first, mut slowest) = (None, Duration::ZERO);
    for nth in 0..TIMES {
        let took = once(stage, &rig, &functions, nth).with_context(|| format!("kill {nth}"))?;
        slowest = slowest.max(took);
        let files = files(stage, &functions)?;
        let most = *first.get_or_insert(files);
        ensure!(files <= most, "the model has {files} open files after kill {nth}, {most} before");
    }
    // Everything still works.
    rig.once(
        stage,
        &functions,
        &Job { ranks: RANKS, environment: &[], words: &["0"], parts: &PARTS },
    )?;
    report(stage, functions.server, Some(LOST))?;
    Ok(format!(
        "{TIMES} kills at {RANKS} ranks, RC and UD: the others end within {:.1} s, nothing is left",
        slowest.as_secs_f64()
    ))
}

/// One run, in which one rank is killed; returns the time until all have ended.
fn once(stage: &mut Stage<'_>, rig: &Rig, functions: &Functions, nth: u64) -> Result<Duration> {
    let environment: &[_] = if nth % 2 == 0 { &[] } else { &[UD] };
    let job = Job { ranks: RANKS, environment, words: &["0", "endless"], parts: &[] };
    let id = stage.start("mpiexec", rig.command(stage, functions, &job))?;
    stage.expect(id, "endless traffic", STARTS)?;
    // Another moment of the traffic each time.
    thread::sleep(Duration::from_millis(17 * nth % 400));
    let ranks = running(&rig.program)?;
    ensure!(ranks.len() == RANKS, "{} ranks run", ranks.len());
    let victim = usize::try_from(nth)? % RANKS;
    kill(*ranks.get(victim).context("no rank")?)?;
    let start = Instant::now();
    let end = stage.outcome(id, ENDS);
    let took = start.elapsed();
    let end = end.with_context(|| format!("the launcher does not end{}", stage.tail(id)))?;
    ensure!(!end.success(), "the launcher ended with {end} though a rank was killed");
    stage.kill(id);
    let left = running(&rig.program)?;
    ensure!(left.is_empty(), "{} ranks are left", left.len());
    Ok(took)
}

/// Open files of the model.
fn files(stage: &Stage<'_>, functions: &Functions) -> Result<usize> {
    let pid = stage.pid(functions.server);
    // It notices the end of a client soon, not at once.
    let count = || Ok::<_, std::io::Error>(fs::read_dir(format!("/proc/{pid}/fd"))?.count());
    let mut least = count()?;
    for _ in 0..20 {
        thread::sleep(Duration::from_millis(10));
        least = least.min(count()?);
    }
    Ok(least)
}
