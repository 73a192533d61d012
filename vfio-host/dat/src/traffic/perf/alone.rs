//! All connections in one thread, that of the adapter, which sleeps between events unless it polls.

use std::time::Instant;

use dat_core::Evd;
use vfio_host::{Host, Nic};

use super::super::super::failure::Failure;
use super::super::super::signals;
use super::super::adapter::{self, SLICE};
use super::super::call::{Callee, Stop};
use super::course::Course;
use super::run::Run;

/// Drives them to their end.
pub(super) fn drive<'p, H: Host>(
    nic: &mut Nic<'_, 'p, H>,
    runs: &mut [Run<'p, H>],
    callee: Callee,
    course: &mut Course,
) -> Result<(), Failure> {
    let mut phase = None;
    while !runs.iter().all(Run::is_over) {
        let now = course.look(runs.iter().map(|run| run.completed).sum())?;
        if phase.replace(now) != Some(now) {
            runs.iter_mut().for_each(|run| run.enter(now));
        }
        for run in &mut *runs {
            run.post_all(nic)?;
        }
        if !turn(nic, runs, callee)? {
            return Err(course.interrupted(runs.iter().map(|run| run.verified).sum()));
        }
    }
    Ok(())
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
            match run.take_all(nic) {
                Ok(any) => taken |= any,
                Err(Stop::Failure(failure)) => return Err(failure),
                Err(Stop::Event(event)) => return Err(run.call.failure(nic, event)),
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
