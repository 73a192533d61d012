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
    /// The limit loop in one thread, and in two at once.
    pub limit: [f64; 2],
    /// `wr8_rt1` in one thread, and in two at once.
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

/// Runs `body` in `count` threads at once; the slowest median.
fn at_once<S: Send>(states: Vec<S>, body: impl Fn(&mut S) -> f64 + Sync) -> f64 {
    let barrier = Barrier::new(states.len());
    std::thread::scope(|scope| {
        let threads: Vec<_> = states
            .into_iter()
            .enumerate()
            .map(|(cpu, mut state)| {
                let (barrier, body) = (&barrier, &body);
                scope.spawn(move || {
                    pin(cpu);
                    barrier.wait();
                    body(&mut state)
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .fold(0.0, f64::max)
    })
}

fn limits(count: usize, blocks: usize) -> f64 {
    at_once((0..count).map(|_| Limit::default()).collect(), |limit| {
        let block = |limit: &mut Limit| assert_eq!(loops::limit(limit, BLOCK as u64), 0);
        time(
            limit,
            blocks,
            BLOCK,
            |limit| limit.complete_ahead(BLOCK),
            block,
            |_| (),
        )
        .median
    })
}

fn writes(count: usize, blocks: usize) -> f64 {
    let mut rig = Rig::default();
    let lanes: Vec<Lane> = (0..count).map(|_| rig.lane()).collect();
    rig.detach();
    at_once(lanes, |lane| {
        let say = |lane: &mut Lane| lane.sent.say(Said::Request(0x08, 1), BLOCK);
        let time = time(
            lane,
            blocks,
            BLOCK,
            say,
            |lane| loops::wr8_rt1(lane, BLOCK as u64),
            |_| (),
        );
        assert_eq!(lane.wrong, 0);
        time.median
    })
}

/// Measures both, one thread and two.
#[must_use]
pub fn measure(blocks: usize) -> Threads {
    Threads {
        limit: [limits(1, blocks), limits(2, blocks)],
        wr8: [writes(1, blocks), writes(2, blocks)],
    }
}
