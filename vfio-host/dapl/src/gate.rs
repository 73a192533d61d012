//! The halves that handles hold, and who may use them when.
//!
//! A posting or reaping half lives in the handle of its Endpoint or Event Dispatcher while it is
//! *out*: a call on the data path enters the gate, uses the half and leaves, without a lock.
//! Whoever holds the control half and needs a data half there *recalls* it: he shuts the gate,
//! waits until nobody is inside, and takes it home. It goes out again with a later call.
//!
//! Entering costs two stores and a load. That they are seen in the right order is the business of
//! who recalls, who has the kernel put a barrier into every thread of the process. Where the kernel
//! has no such thing, halves never go out, and every call takes the way of the control half. A
//! consumer that asked for thread safety may enter from several threads at once: then a gate is
//! a lock.
//!
//! Inside are a few hundred instructions, and nothing that waits. Who stays there has died or is
//! stopped by a debugger: whoever waits for him gives up after a while, and the half stays where it
//! is.
#![expect(
    unsafe_code,
    reason = "a half is changed through a shared reference by the one who is inside"
)]

use std::cell::UnsafeCell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering, compiler_fence};
use std::time::{Duration, Instant};

use rustix::thread::{MembarrierCommand, membarrier};

/// Looks at a busy gate before the processor is left to others.
const SPINS: u32 = 64;

/// Longest wait for who is inside, however little of a processor he gets.
const LONGEST: Duration =
    if cfg!(test) { Duration::from_millis(200) } else { Duration::from_secs(5) };

/// Somebody is inside and does not leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Occupied;

/// The place of a half.
#[derive(Debug)]
pub(crate) struct Gate<T> {
    /// Somebody is inside.
    busy: AtomicBool,
    /// Nobody may enter: there is no half, or it is being recalled.
    shut: AtomicBool,
    half: UnsafeCell<Option<T>>,
}

// SAFETY: the half is reached by one thread at a time: inside the gate, or with the gate shut and
// nobody inside.
unsafe impl<T: Send> Sync for Gate<T> {}

impl<T> Gate<T> {
    pub(crate) const fn new() -> Self {
        Self {
            busy: AtomicBool::new(false),
            shut: AtomicBool::new(true),
            half: UnsafeCell::new(None),
        }
    }

    /// Uses the half, if it is out and can be had. `locked`: several threads may call this at once;
    /// else the consumer sees to it that they do not, as it is the rule for a provider that is
    /// not thread safe.
    #[inline(always)]
    pub(crate) fn enter<R>(&self, locked: bool, with: impl FnOnce(&mut T) -> R) -> Option<R> {
        if locked {
            if self.busy.swap(true, Ordering::Acquire) && !self.queue() {
                return None;
            }
        } else {
            self.busy.store(true, Ordering::Relaxed);
            // ORDER: `busy` is stored before `shut` is loaded. For the compiler; the processor's
            // part is the barrier of `recall`.
            compiler_fence(Ordering::SeqCst);
        }
        let result = if self.shut.load(Ordering::Acquire) {
            None
        } else {
            // SAFETY: the gate is open and `busy` is ours, so nobody else is here, and who recalls
            // waits for us.
            let half = unsafe { &mut *self.half.get() };
            // SAFETY: it was put there before the gate was opened, and is taken after it was shut.
            Some(with(unsafe { half.as_mut().unwrap_unchecked() }))
        };
        // ORDER: what was done with the half precedes the word that the next one waits for.
        self.busy.store(false, Ordering::Release);
        result
    }

    /// Waits until one is the only one inside, if that can be had.
    #[cold]
    fn queue(&self) -> bool {
        left(|| !self.busy.swap(true, Ordering::Acquire)).is_ok()
    }

    /// Takes the half home, if it is out. For who holds the control half.
    pub(crate) fn recall(&self, locked: bool) -> Result<Option<T>, Occupied> {
        if self.shut.load(Ordering::Relaxed) {
            return Ok(None);
        }
        self.shut.store(true, Ordering::SeqCst);
        let left = if locked {
            left(|| !self.busy.swap(true, Ordering::Acquire))
        } else {
            // ORDER: after it, a thread either has seen `shut`, or its `busy` is seen here.
            barrier();
            left(|| !self.busy.load(Ordering::Acquire))
        };
        if let Err(occupied) = left {
            // ORDER: the half is where it was, so nothing has to precede this.
            self.shut.store(false, Ordering::Release);
            return Err(occupied);
        }
        // SAFETY: the gate is shut and nobody is inside; others that recall are kept away by the
        // lock of the control half.
        let half = unsafe { &mut *self.half.get() }.take();
        if locked {
            self.busy.store(false, Ordering::Release);
        }
        Ok(half)
    }

    /// Sends a half out. For who holds the control half, into a gate that is shut.
    pub(crate) fn send_out(&self, half: T) {
        // SAFETY: the gate is shut, so nobody enters; others that send out are kept away by the
        // lock of the control half. Who came in before it was shut has left: `recall`
        // waited for that.
        unsafe { *self.half.get() = Some(half) };
        // ORDER: the half is there before the gate is seen open.
        self.shut.store(false, Ordering::Release);
    }

    /// Whether the half is out.
    pub(crate) fn is_out(&self) -> bool {
        !self.shut.load(Ordering::Relaxed)
    }
}

/// Looks until whoever is inside has left.
fn left(mut has: impl FnMut() -> bool) -> Result<(), Occupied> {
    for _ in 0..SPINS {
        if has() {
            return Ok(());
        }
        std::hint::spin_loop();
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

/// Whether halves may go out: the kernel makes barriers in other threads.
pub(crate) fn halves_go_out(locked: bool) -> bool {
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    locked
        || *REGISTERED
            .get_or_init(|| membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok())
}

/// A full barrier in every running thread of the process.
fn barrier() {
    // It was registered before any half went out, and cannot fail since.
    let _ = membarrier(MembarrierCommand::PrivateExpedited);
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn what_is_out_is_used_there_and_what_is_home_is_not() {
        let gate = Gate::new();
        assert_eq!(gate.enter(false, |n: &mut u32| *n), None);
        gate.send_out(5);
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
        if !halves_go_out(locked) {
            return;
        }
        let gate = Gate::new();
        gate.send_out(0_u64);
        let stop = AtomicBool::new(false);
        let done = std::thread::scope(|threads| {
            let enters = threads.spawn(|| {
                let mut done = 0;
                while !stop.load(Ordering::Relaxed) {
                    done += u64::from(gate.enter(locked, |n| *n += 1).is_some());
                }
                done
            });
            let mut home = 0;
            for _ in 0..2_000 {
                if let Ok(Some(n)) = gate.recall(locked) {
                    home += 1;
                    gate.send_out(n + 1);
                }
                std::thread::yield_now();
            }
            stop.store(true, Ordering::Relaxed);
            enters.join().unwrap_or(0) + home
        });
        assert_eq!(gate.recall(locked), Ok(Some(done)));
    }

    #[test]
    fn nothing_that_is_done_inside_is_lost_by_a_recall() {
        counts(false);
        counts(true);
    }

    #[test]
    fn nobody_waits_for_ever_for_who_stays_inside() {
        for locked in [false, true] {
            if !halves_go_out(locked) {
                continue;
            }
            let gate = Gate::new();
            gate.send_out(1_u64);
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
                assert!(gate.is_out());
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
