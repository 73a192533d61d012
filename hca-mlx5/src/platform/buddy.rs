//! Which units of an arena are free: the buddy scheme over bits, without links in the memory that
//! the device may write.
//!
//! A free block of 2^k units that begins at a multiple of 2^k is a bit of order k; two that are
//! buddies are one of order k + 1. Above the bits of an order stand levels of bits that say which
//! words below them are not 0, so that the first bit behind any place is found by one word of each
//! level. An allocation gives back at once what it does not need of its block, so no more than a
//! unit is lost to rounding, and blocks of any length come out of the same bits.
//!
//! Where no block is long enough, the search for several that follow each other goes over all of
//! them. What it did not find is remembered, until something that is given back makes room for it:
//! an arena that is full, or full of holes, is not searched anew by each allocation.

/// Orders at most: 2^40 units.
const ORDERS: u32 = 41;
/// log2 of the bits of a word.
const SHIFT: u32 = u64::BITS.trailing_zeros();

/// Words of the levels over so many bits.
const fn level_words(mut bits: usize) -> usize {
    let mut words = 0;
    loop {
        bits = bits.div_ceil(64);
        words += bits;
        if bits <= 1 {
            return words;
        }
    }
}

/// Words that [`Buddy`] needs for so many units.
pub(super) const fn words(units: usize) -> usize {
    let mut words = 0;
    let mut order = 0;
    while order < ORDERS && units >> order != 0 {
        words += level_words(units >> order);
        order += 1;
    }
    words
}

/// The most units for which so many words are enough.
pub(super) const fn units(words_given: usize) -> usize {
    let (mut low, mut high) = (0, words_given.saturating_mul(64));
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if words(middle) <= words_given {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    low
}

/// Where the words of each order begin.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    units: usize,
    bases: [usize; ORDERS as usize],
}

impl Shape {
    /// Of so many units.
    pub(super) fn new(units: usize) -> Self {
        let mut bases = [0; ORDERS as usize];
        let mut base = 0;
        for (order, own) in (0..ORDERS).zip(&mut bases) {
            *own = base;
            base += level_words(units >> order);
        }
        Self { units, bases }
    }

    pub(super) const fn units(&self) -> usize {
        self.units
    }
}

/// So many units, from a multiple of 2^align units on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    len: usize,
    align: u32,
}

impl Wanted {
    /// Where that begins in free units from `start` to `end`, if they are enough.
    fn within(self, start: usize, end: usize) -> Option<usize> {
        let first = start.checked_next_multiple_of(1_usize.checked_shl(self.align)?)?;
        (first.checked_add(self.len)? <= end).then_some(first)
    }
}

/// The free blocks of an arena.
pub(super) struct Buddy<'a> {
    words: &'a mut [u64],
    shape: &'a Shape,
    /// What does not fit anywhere: neither does more of it, or more aligned.
    missing: &'a mut Option<Wanted>,
}

impl<'a> Buddy<'a> {
    /// Over bits that are all 0 (nothing is free), or as another value left them.
    pub(super) fn new(
        words: &'a mut [u64],
        shape: &'a Shape,
        missing: &'a mut Option<Wanted>,
    ) -> Self {
        Self { words, shape, missing }
    }

    /// Nothing is free.
    pub(super) fn clear(&mut self) {
        self.words.fill(0);
    }

    /// Blocks of that order that there can be.
    fn blocks(&self, order: u32) -> usize {
        self.shape.units.checked_shr(order).unwrap_or(0)
    }

    fn orders(&self) -> u32 {
        self.shape.units.checked_ilog2().map_or(0, |most| most + 1).min(ORDERS)
    }

    /// The first word of an order.
    fn base(&self, order: u32) -> usize {
        self.shape.bases.get(order as usize).copied().unwrap_or(usize::MAX)
    }

    fn word(&mut self, at: usize) -> Option<&mut u64> {
        self.words.get_mut(at)
    }

    fn is_free(&self, order: u32, block: usize) -> bool {
        let word = self.words.get(self.base(order) + (block >> SHIFT)).copied().unwrap_or(0);
        block < self.blocks(order) && word >> (block % 64) & 1 != 0
    }

    fn mark(&mut self, order: u32, block: usize) {
        let (mut base, mut bits, mut at) = (self.base(order), self.blocks(order), block);
        loop {
            let Some(word) = self.word(base + (at >> SHIFT)) else { return };
            let was = core::mem::replace(word, *word | 1 << (at % 64));
            let words = bits.div_ceil(64);
            if was != 0 || words <= 1 {
                return;
            }
            (base, bits, at) = (base + words, words, at >> SHIFT);
        }
    }

    fn unmark(&mut self, order: u32, block: usize) {
        let (mut base, mut bits, mut at) = (self.base(order), self.blocks(order), block);
        loop {
            let Some(word) = self.word(base + (at >> SHIFT)) else { return };
            *word &= !(1 << (at % 64));
            let words = bits.div_ceil(64);
            if *word != 0 || words <= 1 {
                return;
            }
            (base, bits, at) = (base + words, words, at >> SHIFT);
        }
    }

    /// The first free block of that order at or behind a block.
    fn next(&self, order: u32, from: usize) -> Option<usize> {
        // Up until a level has a bit at or behind, then down along the first bits.
        let (mut base, mut bits, mut at) = (self.base(order), self.blocks(order), from);
        let mut bases = [0_usize; 8];
        let mut level = 0;
        loop {
            *bases.get_mut(level)? = base;
            let words = bits.div_ceil(64);
            let word = self.words.get(base + (at >> SHIFT)).copied().unwrap_or(0);
            let behind = if at >> SHIFT < words { word & u64::MAX << (at % 64) } else { 0 };
            if behind != 0 {
                at = at & !63 | behind.trailing_zeros() as usize;
                break;
            }
            if words <= 1 {
                return None;
            }
            (base, bits, at) = (base + words, words, (at >> SHIFT) + 1);
            level += 1;
        }
        while let Some(lower) = level.checked_sub(1) {
            level = lower;
            let word = self.words.get(bases.get(level)? + at).copied().filter(|word| *word != 0)?;
            at = at << SHIFT | word.trailing_zeros() as usize;
        }
        Some(at)
    }

    /// Takes `len` units that begin at a multiple of 2^`align` units: of the blocks that are long
    /// enough the first. So what is handed out stays together at the beginning.
    pub(super) fn take(&mut self, len: usize, align: u32) -> Option<usize> {
        let least = len.max(1).checked_next_power_of_two()?.ilog2().max(align);
        let first = |order: u32| Some((self.next(order, 0)? << order, order));
        let Some((start, order)) = (least..self.orders()).filter_map(first).min() else {
            let known = |missing: &Wanted| missing.len <= len && missing.align <= align;
            if self.missing.as_ref().is_some_and(known) {
                return None;
            }
            let wanted = Wanted { len, align };
            let found = self.take_run(wanted);
            if found.is_none() {
                *self.missing = Some(wanted);
            }
            return found;
        };
        self.unmark(order, start >> order);
        self.put(start + len, start + (1 << order));
        Some(start)
    }

    /// The same where no single block is long enough, or aligned: several that follow each other.
    #[cold]
    fn take_run(&mut self, wanted: Wanted) -> Option<usize> {
        let (mut start, mut end) = (0, 0);
        loop {
            let (from, to) = self.next_block(end)?;
            if from != end || end == 0 {
                start = from;
            }
            end = to;
            if let Some(first) = wanted.within(start, end) {
                // Out with all of the run, then back with what is left of it.
                let mut at = start;
                while at < end {
                    let (from, to) = self.next_block(at)?;
                    self.unmark((to - from).trailing_zeros(), from >> (to - from).trailing_zeros());
                    at = to;
                }
                self.put(start, first);
                self.put(first + wanted.len, end);
                return Some(first);
            }
        }
    }

    /// The first free block that begins at a unit or behind it: its beginning and its end.
    fn next_block(&self, from: usize) -> Option<(usize, usize)> {
        let of = |order: u32| {
            let block = self.next(order, from.div_ceil(1 << order))?;
            Some((block << order, (block + 1) << order))
        };
        (0..self.orders()).filter_map(of).min()
    }

    /// Whether any of the units from `from` to `to` is free.
    pub(super) fn overlaps(&self, from: usize, to: usize) -> bool {
        (0..self.orders()).any(|order| self.is_free(order, from >> order))
            || self.next_block(from).is_some_and(|(first, _)| first < to)
    }

    /// The units from `from` to `to` are free, which they were not.
    pub(super) fn give(&mut self, from: usize, to: usize) {
        self.put(from, to);
        if let Some(missing) = *self.missing {
            let (start, end) = self.around(from, missing);
            if missing.within(start, end).is_some() {
                *self.missing = None;
            }
        }
    }

    /// The free units around a free one, as many as `wanted` needs to both sides.
    fn around(&self, unit: usize, wanted: Wanted) -> (usize, usize) {
        let (mut start, mut end) = (unit, unit);
        let whole = |order: u32| self.is_free(order, unit >> order).then_some(order);
        if let Some(order) = (0..self.orders()).find_map(whole) {
            start = unit >> order << order;
            end = start + (1 << order);
        }
        let most = wanted.len.saturating_add(1_usize.checked_shl(wanted.align).unwrap_or(0));
        let ends_at = |order: u32, at: usize| {
            at % (1 << order) == 0
                && (at >> order).checked_sub(1).is_some_and(|block| self.is_free(order, block))
        };
        while unit - start < most {
            let Some(order) = (0..self.orders()).find(|order| ends_at(*order, start)) else {
                break;
            };
            start -= 1 << order;
        }
        while end - unit < most {
            let next = self.next_block(end).filter(|(from, _)| *from == end);
            let Some((_, to)) = next else { break };
            end = to;
        }
        (start, end)
    }

    fn put(&mut self, mut from: usize, to: usize) {
        while from < to {
            let fits = (to - from).ilog2();
            let order = if from == 0 { fits } else { fits.min(from.trailing_zeros()) };
            self.give_block(order, from >> order);
            from += 1 << order;
        }
    }

    fn give_block(&mut self, mut order: u32, mut block: usize) {
        while (block ^ 1) < self.blocks(order) && self.is_free(order, block ^ 1) {
            self.unmark(order, block ^ 1);
            block >>= 1;
            order += 1;
        }
        self.mark(order, block);
    }
}
