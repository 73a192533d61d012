//! Tests with loom that no interleaving of a wait with a device loses a wake-up.
//!
//! The device here has the weakest guarantees that waits may rely on: arming it does not report
//! pending events, and it interrupts once for each arming. A wake-up is lost if the device is done,
//! an event is pending, and the program sleeps. The tests also check themselves: with either of the
//! two orders of `vfio_host::wait` reversed, they find such an interleaving.
#![expect(
    clippy::unwrap_used,
    reason = "test code: a panic here is a failed test with a line number"
)]

use std::sync::atomic::AtomicU32;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use vfio_host::wait::{Waiting, turn};

/// Events that the device raises.
const EVENTS: usize = 2;

struct Device {
    /// Number of events so far.
    raised: AtomicUsize,
    armed: AtomicBool,
    /// The eventfd: set until it is cleared.
    woken: AtomicBool,
}

impl Device {
    fn raise(&self) {
        // The event is written before the device checks whether it is armed.
        self.raised.fetch_add(1, Ordering::SeqCst);
        if self.armed.swap(false, Ordering::SeqCst) {
            self.woken.swap(true, Ordering::SeqCst);
        }
    }
}

/// A program that waits for one event at a time.
struct Program {
    device: Arc<Device>,
    taken: usize,
}

impl Waiting for Program {
    type Found = ();

    fn clear(&mut self) {
        self.device.woken.swap(false, Ordering::SeqCst);
    }
    fn look(&mut self) -> Option<()> {
        if self.device.raised.load(Ordering::SeqCst) == self.taken {
            return None;
        }
        self.taken += 1;
        Some(())
    }
    fn arm(&mut self) {
        self.device.armed.swap(true, Ordering::SeqCst);
    }
}

/// Waits for every event with `turn`, while a device raises them. Returns the number of
/// interleavings that end in a sleep which nothing ends.
fn lost(turn: fn(&mut Program) -> Option<()>) -> u32 {
    let lost = std::sync::Arc::new(AtomicU32::new(0));
    let count = std::sync::Arc::clone(&lost);
    loom::model(move || {
        let device = Arc::new(Device {
            raised: AtomicUsize::new(0),
            armed: AtomicBool::new(false),
            woken: AtomicBool::new(false),
        });
        let other = Arc::clone(&device);
        let mut raiser = Some(loom::thread::spawn(move || {
            (0..EVENTS).for_each(|_| other.raise());
        }));
        let mut program = Program { device, taken: 0 };
        while program.taken < EVENTS {
            if turn(&mut program).is_some() {
                continue;
            }
            // The sleep. It ends at the latest when the device is done, or never.
            if !program.device.woken.load(Ordering::SeqCst) {
                if let Some(raiser) = raiser.take() {
                    raiser.join().unwrap();
                }
                if !program.device.woken.load(Ordering::SeqCst) {
                    count.fetch_add(1, Ordering::Relaxed);
                    break;
                }
            }
        }
        if let Some(raiser) = raiser {
            raiser.join().unwrap();
        }
    });
    lost.load(Ordering::Relaxed)
}

#[test]
fn no_interleaving_sleeps_for_ever() {
    assert_eq!(lost(turn), 0);
}

#[test]
fn without_the_second_look_a_wake_up_is_lost() {
    let lost = lost(|program| {
        program.clear();
        if let Some(found) = program.look() {
            return Some(found);
        }
        program.arm();
        None
    });
    assert_ne!(lost, 0);
}

#[test]
fn with_the_clearing_after_the_looks_a_wake_up_is_lost() {
    let lost = lost(|program| {
        if let Some(found) = program.look() {
            return Some(found);
        }
        program.arm();
        let found = program.look();
        program.clear();
        found
    });
    assert_ne!(lost, 0);
}
