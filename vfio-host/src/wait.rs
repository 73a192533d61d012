//! Waiting without a lost wake-up: clear, look, arm, look again.
//!
//! Every wait of this crate - blocking, by file descriptor, as a future - is a loop of [`turn`] and
//! a sleep. A look before the turn, which finds what is pending without a system call, changes
//! nothing: no sleep follows but after a turn. Its correctness depends on two orders;
//! `tests/wakeup.rs` tests every interleaving:
//! * wake-ups are cleared *before* the look, so that one which comes during the look still ends the
//!   sleep;
//! * a second look follows the arming, because an event between the first look and the arming
//!   causes no wake-up.

/// A condition that can be waited for.
pub trait Waiting {
    /// The result of the wait.
    type Found;

    /// Clears the wake-ups that have come so far.
    fn clear(&mut self);
    /// Polls for the result and takes it.
    fn look(&mut self) -> Option<Self::Found>;
    /// Requests a wake-up for the next event.
    fn arm(&mut self);
}

/// Runs one turn. After `None` a sleep is safe: an event after the last look ends it.
pub fn turn<W: Waiting>(waiting: &mut W) -> Option<W::Found> {
    // ORDER: the clearing precedes the look.
    waiting.clear();
    if let Some(found) = waiting.look() {
        return Some(found);
    }
    // ORDER: the arming precedes the second look.
    waiting.arm();
    waiting.look()
}
