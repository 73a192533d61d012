//! Waiting without a lost wake-up: clear, look, arm, look again.
//!
//! Every wait of this crate - blocking, by file descriptor, as a future - is a loop of [`turn`] and
//! a sleep. Two orders are all that matters, and `tests/wakeup.rs` has every interleaving of them
//! tried:
//! * wake-ups are forgotten *before* looking, so that one which comes during the look is still
//!   there to end the sleep;
//! * a second look follows the arming, because what came between the first look and the arming
//!   wakes nobody.

/// Something that can be waited for.
pub trait Waiting {
    /// What the wait is for.
    type Found;

    /// Forgets the wake-ups that have come so far.
    fn clear(&mut self);
    /// Takes what is there.
    fn look(&mut self) -> Option<Self::Found>;
    /// Asks to be woken by what comes from now on.
    fn arm(&mut self);
}

/// One turn. `None` says that a sleep is safe: whatever comes after the last look ends it.
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
