//! Gates: access to the posters and reapers in handles without a lock.
//!
//! An open gate holds the poster or reaper of an Endpoint, Event Dispatcher or Shared Receive
//! Queue. A call on the data path enters the gate, uses the value and leaves. A call that holds the
//! adapter's lock and needs the value *recalls* it: it shuts the gate, waits until no thread is
//! inside, and takes the value out. A later call opens the gate again.
//!
//! Entering costs two stores and a load without a barrier. `recall` makes their order visible: it
//! has the kernel execute a barrier in every thread of the process (membarrier). If the kernel
//! lacks that call, gates never open and every call takes the adapter's lock. If the consumer asked
//! for thread safety, several threads may enter at once; then `busy` is a spin lock.
//!
//! A thread is inside for one post or dequeue, or for a list of them, and never waits there. A
//! thread that stays has died or is stopped by a debugger: `recall` times out, and the value stays
//! in the gate.
#![expect(
    unsafe_code,
    reason = "the thread that is inside changes the value through a shared reference"
)]

use std::sync::OnceLock;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::thread::{MembarrierCommand, membarrier};

use crate::sync::{AtomicBool, Shared, barrier, barrier_of_others, spin_loop};

/// Polls of a busy gate before the thread yields.
const SPINS: u32 = 64;

/// Longest wait for a thread inside, long enough for one that is not scheduled for a while.
const LONGEST: Duration = if cfg!(loom) {
    Duration::ZERO
} else if cfg!(test) {
    Duration::from_millis(200)
} else {
    Duration::from_secs(5)
};

/// A thread is inside and does not leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Occupied;

/// Holds a value for one thread at a time.
#[derive(Debug)]
pub(crate) struct Gate<T> {
    /// A thread is inside.
    busy: AtomicBool,
    /// No thread may enter: the gate is empty, or the value is being recalled.
    shut: AtomicBool,
    value: Shared<Option<T>>,
}

// SAFETY: one thread at a time accesses the value: inside the gate, or with the gate shut and no
// thread inside.
unsafe impl<T: Send> Sync for Gate<T> {}

impl<T> Gate<T> {
    pub(crate) fn new() -> Self {
        Self { busy: AtomicBool::new(false), shut: AtomicBool::new(true), value: Shared::new(None) }
    }

    /// Calls `with` on the value; returns `None` if the gate is shut or stays busy. If `locked`,
    /// several threads may call this at once; otherwise the consumer must serialize the calls, as
    /// for any provider that is not thread safe.
    #[inline(always)]
    pub(crate) fn enter<R>(&self, locked: bool, with: impl FnOnce(&mut T) -> R) -> Option<R> {
        if locked {
            if self.busy.swap(true, Ordering::Acquire) && !self.wait_until_free() {
                return None;
            }
        } else {
            self.busy.store(true, Ordering::Relaxed);
            // ORDER: `busy` is stored before `shut` is loaded. This fence orders the compiler; the
            // barrier of `recall` orders the processor.
            barrier_of_others();
        }
        let result = if self.shut.load(Ordering::Acquire) {
            None
        } else {
            self.value.with_mut(|value| {
                // SAFETY: the gate is open and this thread set `busy`, so no other thread is
                // inside, and `recall` waits for this one.
                let value = unsafe { &mut *value };
                // SAFETY: the value is stored before the gate opens and taken out after it is shut.
                Some(with(unsafe { value.as_mut().unwrap_unchecked() }))
            })
        };
        // ORDER: the changes of the value precede the store that lets the next thread in.
        self.busy.store(false, Ordering::Release);
        result
    }

    /// Waits until this thread is the only one inside. Returns false after the time limit.
    #[cold]
    fn wait_until_free(&self) -> bool {
        left(|| !self.busy.swap(true, Ordering::Acquire)).is_ok()
    }

    /// Shuts the gate and takes the value out; `None` if the gate is shut already. The caller holds
    /// the adapter's lock.
    pub(crate) fn recall(&self, locked: bool) -> Result<Option<T>, Occupied> {
        if self.shut.load(Ordering::Relaxed) {
            return Ok(None);
        }
        self.shut.store(true, Ordering::SeqCst);
        let left = if locked {
            left(|| !self.busy.swap(true, Ordering::Acquire))
        } else {
            // ORDER: after the barrier, each thread has seen `shut`, or its `busy` is visible here.
            barrier();
            left(|| !self.busy.load(Ordering::Acquire))
        };
        if let Err(occupied) = left {
            // ORDER: the value was not touched, so nothing has to precede this.
            self.shut.store(false, Ordering::Release);
            return Err(occupied);
        }
        // SAFETY: the gate is shut and no thread is inside; the adapter's lock excludes other
        // recalls.
        let value = self.value.with_mut(|value| unsafe { &mut *value }.take());
        if locked {
            self.busy.store(false, Ordering::Release);
        }
        Ok(value)
    }

    /// Stores a value and opens the gate, which must be shut. The caller holds the adapter's lock.
    pub(crate) fn open(&self, value: T) {
        // SAFETY: the gate is shut, so no thread enters; the adapter's lock excludes other calls of
        // this; `recall` waited until threads that entered before had left.
        self.value.with_mut(|place| unsafe { *place = Some(value) });
        // ORDER: the value is stored before the gate is seen open.
        self.shut.store(false, Ordering::Release);
    }

    /// Returns whether the gate is open.
    pub(crate) fn is_open(&self) -> bool {
        !self.shut.load(Ordering::Relaxed)
    }
}

/// Polls until the thread inside has left.
fn left(mut has: impl FnMut() -> bool) -> Result<(), Occupied> {
    for _ in 0..SPINS {
        if has() {
            return Ok(());
        }
        spin_loop();
    }
    let start = Instant::now();
    while !has() {
        if start.elapsed() > LONGEST {
            return Err(Occupied);
        }
        std::thread::yield_now();
    }
    Ok(())
}

/// Returns whether gates may open: a locked gate always, another if the kernel has the barrier.
pub(crate) fn gates_may_open(locked: bool) -> bool {
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    locked
        || *REGISTERED
            .get_or_init(|| membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn only_an_open_gate_can_be_entered() {
        let gate = Gate::new();
        assert_eq!(gate.enter(false, |n: &mut u32| *n), None);
        gate.open(5);
        assert_eq!(
            gate.enter(false, |n| {
                *n += 1;
                *n
            }),
            Some(6)
        );
        assert_eq!(gate.recall(false), Ok(Some(6)));
        assert_eq!(gate.recall(false), Ok(None));
        assert_eq!(gate.enter(true, |n| *n), None);
    }

    fn counts(locked: bool) {
        if !gates_may_open(locked) {
            return;
        }
        let gate = Gate::new();
        gate.open(0_u64);
        let stop = AtomicBool::new(false);
        let done = std::thread::scope(|threads| {
            let enters = threads.spawn(|| {
                let mut done = 0;
                while !stop.load(Ordering::Relaxed) {
                    done += u64::from(gate.enter(locked, |n| *n += 1).is_some());
                }
                done
            });
            let mut recalled = 0;
            for _ in 0..2_000 {
                if let Ok(Some(n)) = gate.recall(locked) {
                    recalled += 1;
                    gate.open(n + 1);
                }
                std::thread::yield_now();
            }
            stop.store(true, Ordering::Relaxed);
            enters.join().unwrap_or(0) + recalled
        });
        assert_eq!(gate.recall(locked), Ok(Some(done)));
    }

    #[test]
    fn a_recall_loses_no_change_made_inside() {
        counts(false);
        counts(true);
    }

    #[test]
    fn a_wait_for_a_thread_that_stays_inside_times_out() {
        for locked in [false, true] {
            if !gates_may_open(locked) {
                continue;
            }
            let gate = Gate::new();
            gate.open(1_u64);
            let (inside, is_inside) = channel();
            let (leave, may_leave) = channel();
            std::thread::scope(|threads| {
                let gate = &gate;
                threads.spawn(move || {
                    gate.enter(locked, |n| {
                        assert!(inside.send(()).is_ok() && may_leave.recv().is_ok());
                        *n += 1;
                    })
                });
                assert!(is_inside.recv().is_ok());
                assert_eq!(gate.recall(locked), Err(Occupied));
                assert!(gate.is_open());
                if locked {
                    assert_eq!(gate.enter(locked, |n| *n), None);
                }
                assert!(leave.send(()).is_ok());
            });
            assert_eq!(gate.enter(locked, |n| *n), Some(2));
            assert_eq!(gate.recall(locked), Ok(Some(2)));
        }
    }
}
