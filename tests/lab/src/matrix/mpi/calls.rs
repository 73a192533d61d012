//! Every collective and one-sided call of MPI-3 (`tests/mpi/calls.c`), and how fast large messages
//! are by RDMA and by copies.

use anyhow::{Context, Result, ensure};

use super::job::{Job, Program, Rig};
use super::{Environment, MIXED, UD, cell, intel, wanted};
use crate::guest::stage::Stage;
use crate::images::mpi::{Intel, PACKAGE};

const RANKS: [usize; 2] = [2, 4];
/// Settings, and the largest size.
const SETTINGS: [(&str, Environment, &str); 3] =
    [("RC", &[], "1048576"), ("UD", &[UD], "65536"), ("UD with RDMA", &[UD, MIXED], "262144")];
/// Calls that the program makes: 20 and the nonblocking form of 19, eight one-sided ones with four
/// kinds of access where that is allowed, in two kinds of windows, and two atomic ones.
const CALLS: usize = 20 + 19 + 2 * (4 * 4 + 4 * 2) + 2;
/// How 1 MiB messages go: by sends into buffers of the library, which both sides copy; by RDMA with
/// registrations that are kept; by RDMA with one for each message.
const SEND: Environment = &[("I_MPI_DAPL_DIRECT_COPY_THRESHOLD", "4194304")];
const KEPT: Environment = &[("I_MPI_DAPL_TRANSLATION_CACHE", "1")];
const ANEW: Environment = &[("I_MPI_DAPL_TRANSLATION_CACHE", "0")];
/// RDMA may be that much slower.
const SLOWER: f64 = 2.0;
/// The best of so many runs counts.
const TIMES: usize = 3;

/// Calls.
pub(super) fn run(stage: &mut Stage<'_>) -> Result<String> {
    let found = match Intel::fetch() {
        Ok(found) => found,
        Err(error) => return Ok(format!("SKIPPED: {PACKAGE} cannot be had: {error:#}")),
    };
    let rig = intel(stage, &found, &Program::own("calls"))?;
    let mut cells = 0;
    for (name, environment, most) in SETTINGS {
        for ranks in RANKS {
            let cell = cell(name, ranks);
            if !wanted(stage, &cell) {
                continue;
            }
            let job = Job { ranks, environment, words: &[most], parts: &[] };
            let said = rig.verified(stage, &job).with_context(|| cell.clone())?;
            let made = said.iter().filter(|line| line.starts_with("ok ")).count();
            ensure!(made == CALLS, "{cell}: {made} calls were made, of {CALLS}");
            ensure!(said.iter().any(|line| line == "done"), "{cell}: it did not end");
            println!("  {cell}: {made} calls");
            cells += 1;
        }
    }
    if !wanted(stage, "bandwidth") {
        return Ok(format!("{CALLS} calls in {cells} cells"));
    }
    let sends = bandwidth(stage, &rig, SEND)?;
    let [kept, anew] = [bandwidth(stage, &rig, KEPT)?, bandwidth(stage, &rig, ANEW)?];
    let rates = format!(
        "1 MiB messages: {sends:.0} MB/s by sends, {kept:.0} by RDMA, {anew:.0} with a registration each"
    );
    ensure!(kept.min(anew) * SLOWER >= sends, "{rates}: more than {SLOWER} times slower");
    Ok(format!("{CALLS} calls in {cells} cells; {rates}"))
}

fn bandwidth(stage: &mut Stage<'_>, rig: &Rig, environment: Environment) -> Result<f64> {
    let mut best = 0.0;
    for _ in 0..TIMES {
        let job = Job { ranks: 2, environment, words: &["4", "bandwidth"], parts: &[] };
        let said = rig.verified(stage, &job)?;
        let rate = said.iter().find_map(|line| line.strip_prefix("bandwidth "));
        best = rate.context("no rate")?.trim().parse::<f64>()?.max(best);
    }
    Ok(best)
}
