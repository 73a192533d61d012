//! The earliest of many deadlines, without a search: a tree over a slice, whose leaves are the
//! deadlines of its entries and whose inner nodes stand in the same entries.
//!
//! Node 1 is the root, the children of n are 2n and 2n + 1, and the last nodes are the entries
//! themselves.

use crate::types::time::Instant;

/// An entry: a leaf of the tree, and an inner node that has nothing to do with it.
pub(crate) trait Timed {
    /// When something is due here; [`Instant::NEVER`] if nothing is.
    fn deadline(&self) -> Instant;
    /// The earliest deadline below the inner node. It may be earlier than the entries say, and is
    /// not later.
    fn soonest(&self) -> Instant;
    /// Sets it.
    fn set_soonest(&mut self, soonest: Instant);
}

/// The earliest deadline at or below a node.
fn below(entries: &[impl Timed], node: usize) -> Instant {
    match node.checked_sub(entries.len()) {
        Some(index) => entries.get(index).map_or(Instant::NEVER, Timed::deadline),
        None => entries.get(node).map_or(Instant::NEVER, Timed::soonest),
    }
}

/// The earliest deadline of all.
pub(crate) fn earliest(entries: &[impl Timed]) -> Instant {
    below(entries, 1)
}

/// An entry to which the earliest deadline leads.
pub(crate) fn due(entries: &[impl Timed]) -> usize {
    let mut node = 1;
    while node < entries.len() {
        let [left, right] = [2 * node, 2 * node + 1].map(|child| below(entries, child));
        node = 2 * node + usize::from(right < left);
    }
    node.saturating_sub(entries.len())
}

/// Corrects the tree for the deadline of an entry.
pub(crate) fn note(entries: &mut [impl Timed], index: usize) {
    let mut node = index.saturating_add(entries.len());
    while node > 1 {
        node /= 2;
        let soonest = below(entries, 2 * node).min(below(entries, 2 * node + 1));
        match entries.get_mut(node) {
            Some(entry) if entry.soonest() != soonest => entry.set_soonest(soonest),
            Some(_) | None => return,
        }
    }
}

/// An entry that is nothing else.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timer {
    pub(crate) deadline: Instant,
    soonest: Instant,
}

impl Timer {
    pub(crate) const NEVER: Self = Self { deadline: Instant::NEVER, soonest: Instant::NEVER };
}

impl Timed for Timer {
    fn deadline(&self) -> Instant {
        self.deadline
    }

    fn soonest(&self) -> Instant {
        self.soonest
    }

    fn set_soonest(&mut self, soonest: Instant) {
        self.soonest = soonest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_is_found_whatever_came_and_went() {
        for len in 1..=9 {
            let mut timers = [Timer::NEVER; 9];
            let timers = &mut timers[..len];
            let mut word = 7_u64;
            for _ in 0..500 {
                word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(len as u64);
                let (index, nanos) = ((word >> 33) as usize % len, word >> 56);
                timers[index].deadline =
                    if nanos < 64 { Instant::NEVER } else { Instant::from_nanos(nanos) };
                note(timers, index);
                let least = timers.iter().map(|timer| timer.deadline).min().unwrap();
                assert_eq!(earliest(timers), least);
                assert_eq!(timers[due(timers)].deadline, least);
            }
        }
    }
}
