//! All interleavings of threads that enter a gate and of one that recalls what is in it, and of
//! threads whose calls are carried out together, tried by loom. Only `cargo xtask loom` compiles this; elsewhere it is empty.
#![cfg(loom)]
#![expect(dead_code, reason = "the rest of the library uses it")]
#![expect(clippy::unwrap_used, reason = "test code: a panic here is a failed test")]

#[path = "../src/combine.rs"]
mod combine;
#[path = "../src/gate.rs"]
mod gate;
#[path = "../src/sync.rs"]
mod sync;

use loom::sync::{Arc, Mutex};
use loom::thread;

use crate::combine::{Combiner, Turn};
use crate::gate::Gate;

/// So many threads enter once each, one recalls and opens again: no change is lost, and loom sees
/// that no two have the value at a time.
fn counts(locked: bool, threads: usize) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.max_branches = 10_000;
    builder.check(move || {
        let gate = Arc::new(Gate::new());
        gate.open(0_u64);
        let enter = |_| {
            let gate = Arc::clone(&gate);
            thread::spawn(move || gate.enter(locked, |n| *n += 1).is_some())
        };
        let entered: Vec<_> = (0..threads).map(enter).collect();
        let mut changes = 0;
        if let Ok(Some(n)) = gate.recall(locked) {
            gate.open(n + 1);
            changes += 1;
        }
        for thread in entered {
            changes += u64::from(thread.join().unwrap());
        }
        assert_eq!(gate.recall(locked), Ok(Some(changes)));
    });
}

#[test]
fn a_recall_waits_for_the_thread_inside() {
    counts(false, 1);
}

#[test]
fn a_locked_gate_holds_one_thread_at_a_time() {
    counts(true, 2);
}

/// One call: adds a number to the sum under its lock, and returns ten times the number.
fn add(combiner: &Combiner<u64, u64>, sum: &Mutex<u64>, number: u64) -> u64 {
    match combiner.enter(number) {
        Turn::Done(result) => result,
        Turn::Lead(own) => {
            let mut sum = sum.lock().unwrap();
            let mut batch = combiner.take();
            for (_, number, result) in &mut batch {
                *sum += *number;
                *result = Some(*number * 10);
            }
            drop(sum);
            combiner.finish(own, batch, || 0)
        }
        Turn::Alone(_) => unreachable!("there are more slots than threads"),
    }
}

/// The calls of one thread.
fn add_all((combiner, sum): &(Combiner<u64, u64>, Mutex<u64>), own: u64, each: u64) {
    for nth in 0..each {
        let number = 1 << (own * each + nth);
        assert_eq!(add(combiner, sum, number), number * 10);
    }
}

/// Each call is carried out once and gets its own result, and no thread sleeps for ever.
fn calls(threads: u64, each: u64) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.max_branches = 10_000;
    builder.check(move || {
        let shared = Arc::new((Combiner::new(), Mutex::new(0)));
        let others: Vec<_> = (1..threads)
            .map(|own| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || add_all(&shared, own, each))
            })
            .collect();
        add_all(&shared, 0, each);
        for other in others {
            other.join().unwrap();
        }
        assert_eq!(*shared.1.lock().unwrap(), (1 << (threads * each)) - 1);
    });
}

#[test]
fn two_threads_call_twice_each() {
    calls(2, 2);
}

#[test]
fn three_threads_call_once_each() {
    calls(3, 1);
}
