//! Where perftest's operations lie in memory, and what has been seen there.
//!
//! In a bandwidth test an operation of no more than half of a stretch of memory wanders through it,
//! from one slot to the next and round and round; a larger one, and any of a latency test, stays at
//! the beginning. Near and far place are the same, and nobody changes what is sent: so whatever
//! comes from one slot has to be the same every time.

use super::Agreed;

/// The slots of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slots {
    /// Bytes from one to the next.
    step: usize,
    /// How many.
    count: u64,
}

impl Slots {
    /// Those of operations of `size` bytes.
    pub(super) fn new(size: usize, agreed: &Agreed, bandwidth: bool) -> Self {
        let step = size.next_multiple_of(agreed.line).max(agreed.line);
        let count = if bandwidth && size <= agreed.cycle / 2 {
            agreed.cycle.checked_div(step).unwrap_or(1).max(1)
        } else {
            1
        };
        Self { step, count: count as u64 }
    }

    /// How many there are.
    pub(super) fn count(self) -> u64 {
        self.count
    }

    /// The slot of operation `number`.
    pub(super) fn of(self, number: u64) -> usize {
        usize::try_from(number % self.count).unwrap_or(0)
    }

    /// Where the slot of operation `number` begins.
    pub(super) fn at(self, number: u64) -> usize {
        self.of(number) * self.step
    }

    /// Which bytes of `len` the first `operations` of `size` bytes touch.
    pub(super) fn touched(self, size: usize, operations: u64, len: usize) -> Vec<bool> {
        let mut touched = vec![false; len];
        for number in 0..operations.min(self.count) {
            let at = self.at(number);
            if let Some(piece) = touched.get_mut(at..at + size) {
                piece.fill(true);
            }
        }
        touched
    }
}

/// What came from each slot of one connection the first time.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    slots: Vec<Option<Vec<u8>>>,
}

impl Seen {
    /// Compares with what came from there before, or keeps it. The place of the first byte that
    /// differs, if one does.
    pub(super) fn differs(&mut self, slot: usize, bytes: &[u8]) -> Option<usize> {
        if slot >= self.slots.len() {
            self.slots.resize(slot + 1, None);
        }
        match self.slots.get_mut(slot)? {
            Some(known) => known.iter().zip(bytes).position(|(a, b)| a != b),
            unknown => {
                *unknown = Some(bytes.to_vec());
                None
            }
        }
    }
}

/// Compares memory with what was there before: outside of what was touched no byte may differ, and
/// inside every eight that belong together must. The place of the first byte that is wrong, if one
/// is.
pub(super) fn wrong(before: &[u8], now: &[u8], touched: &[bool]) -> Option<usize> {
    let words = before.chunks(8).zip(now.chunks(8)).zip(touched.chunks(8));
    for (index, ((before, now), touched)) in words.enumerate() {
        let whole = touched.len() == 8 && touched.iter().all(|byte| *byte);
        if whole && before == now {
            return Some(index * 8);
        }
        let mut bytes = before.iter().zip(now).zip(touched);
        if let Some(at) = bytes.position(|((a, b), touched)| !touched && a != b) {
            return Some(index * 8 + at);
        }
    }
    None
}

/// How much the word at the beginning of each slot has grown, in all.
pub(super) fn growth(before: &[u8], now: &[u8], slots: Slots) -> u64 {
    let word = |bytes: &[u8], at: usize| {
        let word = bytes.get(at..at + 8).and_then(|word| word.try_into().ok());
        word.map_or(0, u64::from_ne_bytes)
    };
    (0..slots.count())
        .map(|slot| slots.at(slot))
        .map(|at| word(now, at).wrapping_sub(word(before, at)))
        .fold(0, u64::wrapping_add)
}

#[cfg(test)]
mod tests {
    use super::*;
    use dat_core::provider::Mtu;

    const AGREED: Agreed = Agreed { cycle: 4096, line: 64, mtu: Mtu::B1024 };

    #[test]
    fn small_ones_wander_and_large_ones_do_not() {
        let small = Slots::new(8, &AGREED, true);
        assert_eq!((small.count(), small.at(0), small.at(63)), (64, 0, 4032));
        assert_eq!((small.at(64), small.of(130)), (0, 2));
        let odd = Slots::new(1000, &AGREED, true);
        assert_eq!((odd.count(), odd.at(3), odd.at(4)), (4, 3072, 0));
        let uneven = Slots::new(1100, &AGREED, true);
        assert_eq!((uneven.count(), uneven.at(2), uneven.at(3)), (3, 2304, 0));
        assert_eq!(Slots::new(2048, &AGREED, true).count(), 2);
        for (size, bandwidth) in [(2049, true), (1 << 20, true), (8, false)] {
            assert_eq!(Slots::new(size, &AGREED, bandwidth).count(), 1);
        }
    }

    #[test]
    fn what_comes_from_a_slot_is_the_same_every_time() {
        let mut seen = Seen::default();
        assert_eq!(seen.differs(2, b"abc"), None);
        assert_eq!(seen.differs(0, b"xyz"), None);
        assert_eq!(seen.differs(2, b"abc"), None);
        assert_eq!(seen.differs(2, b"abd"), Some(2));
        assert_eq!(seen.differs(0, b"abc"), Some(0));
    }

    #[test]
    fn memory_is_written_where_it_should_be() {
        let slots = Slots::new(20, &AGREED, true);
        let touched = slots.touched(20, 2, 4096);
        assert_eq!(touched.iter().filter(|byte| **byte).count(), 40);
        let before = vec![7; 4096];
        let mut now = before.clone();
        assert_eq!(wrong(&before, &now, &touched), Some(0));
        now[..20].fill(1);
        assert_eq!(wrong(&before, &now, &touched), Some(64));
        now[64..84].fill(1);
        assert_eq!(wrong(&before, &now, &touched), None);
        // Less than a word may be as it was, by chance.
        now[19] = 7;
        assert_eq!(wrong(&before, &now, &touched), None);
        now[20] = 1;
        assert_eq!(wrong(&before, &now, &touched), Some(20));
    }

    #[test]
    fn growth_is_that_of_all_slots() {
        let slots = Slots::new(8, &AGREED, true);
        let mut before = vec![0; 4096];
        before[..8].copy_from_slice(&u64::MAX.to_ne_bytes());
        let mut now = before.clone();
        now[..8].copy_from_slice(&2_u64.to_ne_bytes());
        now[64..72].copy_from_slice(&5_u64.to_ne_bytes());
        assert_eq!(growth(&before, &now, slots), 8);
    }
}
