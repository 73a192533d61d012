//! An allocator over memory that the device may reach: VFIO and bare metal embed one.

use spin::Mutex;

use super::buddy::{self, Buddy, Shape, Wanted};
use super::dma::Memory;
use super::span::Span;

/// Spans are handed out in multiples of this: no two share a cache line.
const GRAIN: usize = 64;

/// Words of 64 bits that an arena of `len` bytes needs to know what is free: one for 248 bytes
/// about.
#[must_use]
pub const fn arena_words(len: usize) -> usize {
    buddy::words(len / GRAIN)
}

/// An arena over raw memory. What is free it keeps in words that the caller lends, which the
/// device does not reach: an array, a box, a slice.
///
/// To take and to give back cost the same however much is out, except where only several blocks
/// of memory that follow each other are long enough: to find them takes a search, and to find
/// none takes one until something is given back that makes room. As long as `len` bytes with the
/// alignment follow each other anywhere, they are found.
#[derive(Debug)]
pub struct RawArena<W> {
    memory: Memory,
    free: Mutex<Free<W>>,
}

#[derive(Debug)]
struct Free<W> {
    words: W,
    shape: Shape,
    /// What does not fit anywhere.
    missing: Option<Wanted>,
    /// Grains that are free.
    available: usize,
}

impl<W: AsMut<[u64]>> Free<W> {
    fn buddy(&mut self) -> Buddy<'_> {
        Buddy::new(self.words.as_mut(), &self.shape, &mut self.missing)
    }
}

impl<W: AsMut<[u64]>> RawArena<W> {
    /// An arena of that memory, or of as much of it as `words` suffice for: [`arena_words`].
    #[must_use]
    pub fn new(memory: Memory, mut words: W) -> Self {
        let grains = buddy::units(words.as_mut().len()).min(memory.len() / GRAIN);
        let free = Free { words, shape: Shape::new(grains), missing: None, available: 0 };
        let arena = Self { memory, free: Mutex::new(free) };
        arena.reclaim();
        arena
    }

    /// For loads and stores.
    #[inline(always)]
    #[must_use]
    pub const fn memory(&self) -> &Memory {
        &self.memory
    }

    /// [`Dma::alloc`](crate::platform::Dma::alloc).
    pub fn alloc(&self, len: usize, align: usize) -> Option<Span> {
        let grains = grains(len)?;
        if !align.is_power_of_two() {
            return None;
        }
        let mut free = self.free.lock();
        let align = align.max(GRAIN).ilog2() - GRAIN.ilog2();
        let offset = free.buddy().take(grains, align)?.checked_mul(GRAIN)?;
        free.available -= grains;
        drop(free);
        let mut at = offset;
        while at < offset + grains * GRAIN {
            self.memory.store_words(at, &[0; GRAIN / 8]);
            at += GRAIN;
        }
        Some(Span { offset, len })
    }

    /// [`Dma::free`](crate::platform::Dma::free). A span that was never handed out or overlaps what
    /// is free already is not taken back.
    pub fn free(&self, span: Span) {
        let Some(grains) = grains(span.len).filter(|_| span.offset % GRAIN == 0) else {
            return;
        };
        let from = span.offset / GRAIN;
        let Some(to) = from.checked_add(grains) else { return };
        let mut free = self.free.lock();
        if to > free.shape.units() || free.buddy().overlaps(from, to) {
            return;
        }
        free.buddy().give(from, to);
        free.available += grains;
    }

    /// Takes every span back. For after a reset of the function, when the driver over this arena is
    /// gone: the driver keeps memory that a device which stopped answering may still write to,
    /// and a reset is the end of that.
    pub fn reclaim(&self) {
        let mut free = self.free.lock();
        let grains = free.shape.units();
        free.buddy().clear();
        free.buddy().give(0, grains);
        free.available = grains;
    }

    /// Bytes that are free.
    #[must_use]
    pub fn available(&self) -> usize {
        self.free.lock().available * GRAIN
    }
}

/// Whole grains of `len` bytes; an empty span takes one too, so that every span has a place of its
/// own.
fn grains(len: usize) -> Option<usize> {
    Some(len.max(1).checked_add(GRAIN - 1)? / GRAIN)
}
