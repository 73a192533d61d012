//! Two threads, each with an Endpoint and an Event Dispatcher of its own.

use std::process::{Command, Stdio};
use std::sync::Barrier;

use super::limit::Limit;
use super::loops;
use super::measure::{BLOCK, time};
use super::puppet::Said;
use super::stage::{Lane, Rig};

/// Medians in nanoseconds per operation.
#[derive(Clone, Copy, Debug)]
pub struct Threads {
    /// The limit loop alone, and beside another.
    pub limit: [f64; 2],
    /// `wr8_rt1` alone, and beside another.
    pub wr8: [f64; 2],
}

/// Keeps the calling thread on one CPU, if the machine lets us.
pub fn pin(cpu: usize) {
    let thread = std::fs::read_link("/proc/thread-self").ok();
    let Some(id) = thread.as_deref().and_then(|path| path.file_name()) else {
        return;
    };
    // Without it the figures are noisier, not wrong.
    let _ = Command::new("taskset")
        .args(["-p", "-c", &cpu.to_string()])
        .arg(id)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
}

/// Runs `body` on each state by itself, then on all at once, each on a CPU of its own: alone and
/// together of the state that company slows down most. The same state both times, because where its
/// memory happens to lie weighs more than company.
fn company<S: Send>(states: &mut [S], body: impl Fn(&mut S) -> f64 + Sync) -> [f64; 2] {
    let run = |cpu: usize, state: &mut S, start: &Barrier| {
        pin(cpu);
        start.wait();
        body(state)
    };
    let alone: Vec<f64> = states
        .iter_mut()
        .enumerate()
        .map(|(cpu, state)| run(cpu, state, &Barrier::new(1)))
        .collect();
    let start = Barrier::new(states.len());
    let together: Vec<f64> = std::thread::scope(|scope| {
        let threads: Vec<_> = states
            .iter_mut()
            .enumerate()
            .map(|(cpu, state)| {
                let (run, start) = (&run, &start);
                scope.spawn(move || run(cpu, state, start))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    alone
        .into_iter()
        .zip(together)
        .map(|(alone, together)| [alone, together])
        .max_by(|a, b| (a[1] / a[0]).total_cmp(&(b[1] / b[0])))
        .unwrap()
}

/// Rounds of [`company`]: the machine's other guests only ever add to what company costs, so the
/// best round counts. What two threads truly share, they share in every round.
const ROUNDS: usize = 12;

/// The round of least slowdown.
fn best<S: Send>(states: &mut [S], body: impl Fn(&mut S) -> f64 + Sync) -> [f64; 2] {
    (0..ROUNDS)
        .map(|_| company(states, &body))
        .min_by(|a, b| (a[1] / a[0]).total_cmp(&(b[1] / b[0])))
        .unwrap()
}

/// Measures both, each of two threads alone and the two at once.
#[must_use]
pub fn measure(blocks: usize) -> Threads {
    let blocks = blocks.div_ceil(ROUNDS);
    let mut limits = [Limit::default(), Limit::default()];
    let limit = best(&mut limits, |limit| {
        let block = |limit: &mut Limit| assert_eq!(loops::limit(limit, BLOCK as u64), 0);
        let ahead = |limit: &mut Limit| limit.complete_ahead(BLOCK);
        time(limit, blocks, BLOCK, ahead, block, |_| ())
    });
    let mut rig = Rig::default();
    let mut lanes = [rig.lane(), rig.lane()];
    rig.detach();
    let wr8 = best(&mut lanes, |lane| {
        let say = |lane: &mut Lane| lane.sent.say(Said::Request(0x08, 1), BLOCK);
        let block = |lane: &mut Lane| loops::wr8_rt1(lane, BLOCK as u64);
        let time = time(lane, blocks, BLOCK, say, block, |_| ());
        assert_eq!(lane.wrong, 0);
        time
    });
    Threads { limit, wr8 }
}
