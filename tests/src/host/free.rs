//! Free memory of an arena: the first piece that fits is taken.
//!
//! Pieces that are too short, or that do not fit because of the alignment, may be many: they are
//! not looked at. For every alignment in use a tree over the pages says where the first that fits
//! begins.

use std::collections::BTreeMap;

use super::views::PAGE;

/// All free pieces; no two of them touch.
#[derive(Debug)]
pub struct Free {
    /// Lengths by offset.
    pieces: BTreeMap<usize, usize>,
    /// By alignment, a binary tree whose leaves are pages: the most bytes that a piece which begins
    /// in a page has at a multiple of the alignment. The root is 1, the children of `n` are `2n` and
    /// `2n + 1`.
    trees: BTreeMap<usize, Vec<usize>>,
    /// Leaves of a tree.
    pages: usize,
    bytes: usize,
}

/// Bytes of a piece from its first multiple of `align` on.
fn aligned(at: usize, len: usize, align: usize) -> usize {
    at.checked_next_multiple_of(align).map_or(0, |start| (at + len).saturating_sub(start))
}

impl Free {
    /// One piece.
    #[must_use]
    pub fn new(len: usize) -> Self {
        let pages = len.div_ceil(PAGE).next_power_of_two();
        let mut free = Self { pieces: BTreeMap::new(), trees: BTreeMap::new(), pages, bytes: 0 };
        free.insert(0, len);
        free
    }

    /// Bytes in all pieces.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    fn insert(&mut self, at: usize, len: usize) {
        if len != 0 {
            self.pieces.insert(at, len);
            self.bytes += len;
            self.update(at / PAGE);
        }
    }

    fn remove(&mut self, at: usize) -> Option<usize> {
        let len = self.pieces.remove(&at)?;
        self.bytes -= len;
        self.update(at / PAGE);
        Some(len)
    }

    /// Updates all trees for the pieces that begin in a page.
    fn update(&mut self, page: usize) {
        for (align, tree) in &mut self.trees {
            let pieces = self.pieces.range(page * PAGE..(page + 1) * PAGE);
            let most = pieces.map(|(at, len)| aligned(*at, *len, *align)).max();
            let mut node = self.pages + page;
            tree[node] = most.unwrap_or(0);
            while node > 1 {
                node /= 2;
                tree[node] = tree[2 * node].max(tree[2 * node + 1]);
            }
        }
    }

    /// Takes so many bytes out of the first piece that has them at a multiple of `align`.
    pub fn take(&mut self, len: usize, align: usize) -> Option<usize> {
        if !self.trees.contains_key(&align) {
            self.trees.insert(align, vec![0; 2 * self.pages]);
            let pages: Vec<usize> = self.pieces.keys().map(|at| at / PAGE).collect();
            pages.into_iter().for_each(|page| self.update(page));
        }
        let tree = self.trees.get(&align).filter(|tree| tree[1] >= len)?;
        let mut node = 1;
        while node < self.pages {
            node = 2 * node + usize::from(tree[2 * node] < len);
        }
        let first = (node - self.pages) * PAGE;
        let mut pieces = self.pieces.range(first..first + PAGE);
        let (at, size) = pieces.find(|(at, size)| aligned(**at, **size, align) >= len)?;
        let (at, size) = (*at, *size);
        let start = at.next_multiple_of(align);
        self.remove(at);
        self.insert(at, start - at);
        self.insert(start + len, at + size - start - len);
        Some(start)
    }

    /// Takes a piece back.
    ///
    /// # Panics
    /// If some of it is free.
    pub fn give(&mut self, mut at: usize, mut len: usize) {
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
