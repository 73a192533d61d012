//! All interleavings of threads that enter a gate and of one that recalls what is in it, tried by
//! loom. Only `cargo xtask loom` compiles this; elsewhere it is empty.
#![cfg(loom)]
#![expect(dead_code, reason = "the rest of the library uses it")]
#![expect(clippy::unwrap_used, reason = "test code: a panic here is a failed test")]

#[path = "../src/gate.rs"]
mod gate;
#[path = "../src/sync.rs"]
mod sync;

use loom::sync::Arc;
use loom::thread;

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
