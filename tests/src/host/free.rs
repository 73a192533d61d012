//! Free memory of an arena: the first piece that fits is taken.

use std::collections::{BTreeMap, BTreeSet};

/// All free pieces; no two of them touch.
#[derive(Debug)]
pub(super) struct Free {
    /// Lengths by offset.
    pieces: BTreeMap<usize, usize>,
    /// Offsets by the logarithm of the length: pieces that are too short are many, and not looked
    /// at.
    classes: [BTreeSet<usize>; usize::BITS as usize],
    bytes: usize,
}

impl Free {
    /// One piece.
    pub(super) fn new(len: usize) -> Self {
        let mut free = Self {
            pieces: BTreeMap::new(),
            classes: std::array::from_fn(|_| BTreeSet::new()),
            bytes: 0,
        };
        free.insert(0, len);
        free
    }

    /// Bytes in all pieces.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    fn insert(&mut self, at: usize, len: usize) {
        if len != 0 {
            self.pieces.insert(at, len);
            self.classes[len.ilog2() as usize].insert(at);
            self.bytes += len;
        }
    }

    fn remove(&mut self, at: usize) -> Option<usize> {
        let len = self.pieces.remove(&at)?;
        self.classes[len.ilog2() as usize].remove(&at);
        self.bytes -= len;
        Some(len)
    }

    /// Takes so many bytes out of the first piece that has them at a multiple of `align`.
    pub(super) fn take(&mut self, len: usize, align: usize) -> Option<usize> {
        let fits = |at: usize| {
            let start = at.checked_next_multiple_of(align)?;
            (start + len <= at + self.pieces.get(&at)?).then_some((at, start))
        };
        let classes = &self.classes[len.ilog2() as usize..];
        // Of each class the first piece that fits, if it begins before the best so far. Only in the
        // lowest classes there may be some that do not fit.
        let mut best: Option<(usize, usize)> = None;
        for class in classes.iter().rev() {
            let end = best.map_or(usize::MAX, |(at, _)| at);
            best = class.range(..end).find_map(|at| fits(*at)).or(best);
        }
        let (at, start) = best?;
        let size = self.remove(at)?;
        self.insert(at, start - at);
        self.insert(start + len, at + size - start - len);
        Some(start)
    }

    /// Takes a piece back.
    ///
    /// # Panics
    /// If some of it is free.
    pub(super) fn give(&mut self, mut at: usize, mut len: usize) {
        if let Some((&before, &size)) = self.pieces.range(..at).next_back() {
            assert!(before + size <= at, "the driver gave back memory that was free: {at:#x}");
            if before + size == at {
                self.remove(before);
                at = before;
                len += size;
            }
        }
        if let Some(size) = self.remove(at + len) {
            len += size;
        }
        self.insert(at, len);
    }
}

#[cfg(test)]
mod tests {
    use super::Free;

    #[test]
    fn the_first_piece_that_fits_is_taken_and_neighbours_join() {
        let mut free = Free::new(0x4000);
        let taken = [0, 0x1000, 0x2000, 0x3000].map(|at| {
            assert_eq!(free.take(0x1000, 0x1000), Some(at));
            at
        });
        assert_eq!(free.take(64, 64), None);
        free.give(taken[2], 0x1000);
        free.give(taken[0], 0x1000);
        assert_eq!(free.take(0x40, 64), Some(0));
        assert_eq!(free.take(0x1000, 0x1000), Some(0x2000), "the first has no whole page left");
        assert_eq!(free.bytes(), 0xfc0);
        free.give(0x2000, 0x1000);
        free.give(0, 0x40);
        free.give(0x1000, 0x1000);
        assert_eq!(free.take(0x3000, 0x1000), Some(0));
    }
}
