//! Relaxed ordering: payload writes that later writes of payload may overtake on the way to memory.
//!
//! A strictly ordered write (a completion, an event, an interrupt) and every read push them first,
//! as does the answer to a read of the BAR; without any of these they arrive after a while. PCIe
//! base specification, transaction ordering; ibv_reg_mr(3), `IBV_ACCESS_RELAXED_ORDERING`.

use crate::facts::{Facts, OpenFact};
use crate::host::Nanos;
use std::ops::Range;

/// Line of memory within which bytes keep together.
const LINE: usize = 64;
/// Pieces of a long write, and one more if it begins inside a line.
const PIECES: usize = 4;
/// Longest time that a write is on its way.
const DELAY: Nanos = 500;

/// What relaxed ordering makes of the order of writes: the open fact `relaxed-writes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Some pieces come later than those behind them.
    Scattered,
    /// All pieces but the last come later than it.
    LastFirst,
    /// As without.
    Kept,
}

impl Order {
    pub(crate) fn of(facts: &Facts) -> Self {
        match facts.value(OpenFact::RelaxedWrites) {
            None => Self::Scattered,
            Some(1) => Self::LastFirst,
            Some(_) => Self::Kept,
        }
    }
}

/// Writes on their way.
#[derive(Debug)]
pub(crate) struct Relaxed {
    /// Enable Relaxed Ordering of the device control register, set at power-on.
    pub(crate) enabled: bool,
    pub(crate) order: Order,
    held: Vec<(u64, Vec<u8>)>,
    until: Nanos,
}

impl Relaxed {
    pub(crate) fn new(order: Order) -> Self {
        Self { enabled: true, order, held: Vec::new(), until: 0 }
    }

    /// Keeps a write back.
    pub(crate) fn hold(&mut self, now: Nanos, iova: u64, bytes: &[u8]) {
        if self.held.is_empty() {
            self.until = now + DELAY;
        }
        self.held.push((iova, bytes.to_vec()));
    }

    /// Takes all of them.
    pub(crate) fn take(&mut self) -> Vec<(u64, Vec<u8>)> {
        core::mem::take(&mut self.held)
    }

    /// When they arrive if nothing pushes them.
    pub(crate) fn due(&self) -> Option<Nanos> {
        (!self.held.is_empty()).then_some(self.until)
    }
}

/// Cuts a write at lines of memory.
pub(crate) fn pieces(iova: u64, len: usize) -> Vec<Range<usize>> {
    let size = len.div_ceil(PIECES).next_multiple_of(LINE).max(LINE);
    let mut cuts = Vec::new();
    let mut at = 0;
    while at < len {
        let into = ((iova + at as u64) % LINE as u64) as usize;
        let end = len.min(at + size - into);
        cuts.push(at..end);
        at = end;
    }
    cuts
}

#[cfg(test)]
mod tests {
    use super::{Range, pieces};

    #[test]
    fn a_write_is_cut_at_lines_and_whole_within_one() {
        assert_eq!(pieces(0x1000, 0), []);
        assert_eq!(pieces(0x1004, 60), [Range { start: 0, end: 60 }]);
        assert_eq!(pieces(0x1030, 32), [0..16, 16..32]);
        assert_eq!(pieces(0x1000, 1024), [0..256, 256..512, 512..768, 768..1024]);
    }
}
