//! Connections in threads of their own, each by its posting half and its reaping half. No thread waits
//! for another: neither a post nor a dequeue takes a lock. They poll; the thread of the adapter does
//! what is left, and looks for Ctrl-C.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use vfio_host::{Host, Nic};

use super::super::super::failure::Failure;
use super::super::super::signals;
use super::super::adapter;
use super::super::call::{Callee, Stop};
use super::super::ends::Halves;
use super::course::Course;
use super::run::{Phase, Run};

/// Between two looks of the adapter's thread.
const PAUSE: Duration = Duration::from_millis(1);

/// A connection, and by what it is driven.
type Pair<'s, 'p, H> = (Run<'p, H>, Halves<'s, 'p, H>);

/// What all threads see. Each value stands for itself, so no order is wanted of them.
struct Shared {
    phase: AtomicU8,
    /// One of them has failed, or Ctrl-C was pressed.
    over: AtomicBool,
    completed: AtomicU64,
}

impl Shared {
    fn enter(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Relaxed);
    }

    fn phase(&self) -> Phase {
        let phase = self.phase.load(Ordering::Relaxed);
        let all = [Phase::Warming, Phase::Measuring];
        all.into_iter().find(|one| *one as u8 == phase).unwrap_or(Phase::Stopping)
    }

    fn completed(&self) -> u64 {
        self.completed.load(Ordering::Relaxed)
    }
}

/// Drives them to their end.
pub(super) fn drive<'s, 'p, H: Host>(
    nic: &mut Nic<'s, 'p, H>,
    runs: Vec<Run<'p, H>>,
    threads: u8,
    callee: Callee,
    course: &mut Course,
) -> Result<Vec<Run<'p, H>>, Failure> {
    let shared = Shared {
        phase: AtomicU8::new(course.look(0)? as u8),
        over: AtomicBool::new(false),
        completed: AtomicU64::new(0),
    };
    let mut groups: Vec<Vec<Pair<'_, '_, H>>> = (0..threads).map(|_| Vec::new()).collect();
    for (n, run) in runs.into_iter().enumerate() {
        let halves = Halves::take(nic, &run.call.conn)?;
        if let Some(group) = groups.get_mut(n % usize::from(threads)) {
            group.push((run, halves));
        }
    }
    let (watched, done) = thread::scope(|scope| {
        let start = |mut group: Vec<Pair<'s, 'p, H>>| {
            let shared = &shared;
            scope.spawn(move || {
                let end = work(&mut group, shared, callee.timeout);
                if end.is_err() {
                    shared.over.store(true, Ordering::Relaxed);
                }
                (group, end)
            })
        };
        let workers: Vec<_> = groups.into_iter().map(start).collect();
        let mut watched = Ok(());
        while watched.is_ok() && !workers.iter().all(thread::ScopedJoinHandle::is_finished) {
            thread::sleep(PAUSE);
            watched = watch(nic, &shared, course);
        }
        if watched.is_err() {
            shared.over.store(true, Ordering::Relaxed);
        }
        let join = |worker: thread::ScopedJoinHandle<'_, _>| {
            worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        (watched, workers.into_iter().map(join).collect::<Vec<_>>())
    });
    let (mut runs, mut failed) = (Vec::new(), None);
    for (group, end) in done {
        let first = runs.len();
        for (run, halves) in group {
            halves.give_back(nic);
            runs.push(run);
        }
        if let Err((index, stop)) = end {
            failed.get_or_insert((first + index, stop));
        }
    }
    if let Some((index, stop)) = failed {
        return Err(match (stop, runs.get(index)) {
            (Stop::Event(event), Some(run)) => run.call.failure(nic, event),
            (Stop::Event(event), None) => Failure::new(format!("{event:?}")),
            (Stop::Failure(failure), _) => failure,
        });
    }
    watched.map(|()| runs)
}

/// What the thread of the adapter does.
fn watch<H: Host>(
    nic: &mut Nic<'_, '_, H>,
    shared: &Shared,
    course: &mut Course,
) -> Result<(), Failure> {
    nic.advance();
    if let Some(trouble) = adapter::trouble(nic) {
        return Err(trouble);
    }
    if signals::asked() {
        return Err(course.interrupted(shared.completed()));
    }
    shared.enter(course.look(shared.completed())?);
    Ok(())
}

/// Drives the connections of one thread. The error says which has failed.
fn work<H: Host>(
    group: &mut [Pair<'_, '_, H>],
    shared: &Shared,
    timeout: Duration,
) -> Result<(), (usize, Stop)> {
    let (mut phase, mut last, mut looks) = (None, Instant::now(), 0_u32);
    while !shared.over.load(Ordering::Relaxed) && !group.iter().all(|(run, _)| run.is_over()) {
        let now = shared.phase();
        if phase.replace(now) != Some(now) {
            group.iter_mut().for_each(|(run, _)| run.enter(now));
        }
        let mut taken = false;
        for (index, (run, halves)) in group.iter_mut().enumerate() {
            let before = run.completed;
            run.post_all(halves).map_err(|failure| (index, failure.into()))?;
            taken |= run.take_all(halves).map_err(|stop| (index, stop))?;
            shared.completed.fetch_add(run.completed - before, Ordering::Relaxed);
        }
        looks = looks.wrapping_add(1);
        if taken {
            last = Instant::now();
        } else if looks % adapter::LOOKS != 0 {
            std::hint::spin_loop();
        } else {
            let silent = group.iter().position(|(run, _)| run.waits_for_peer());
            if let Some((index, (run, _))) =
                silent.and_then(|index| Some((index, group.get(index)?)))
            {
                if last.elapsed() >= timeout {
                    return Err((index, run.call.silence().into()));
                }
            }
            thread::yield_now();
        }
    }
    Ok(())
}
