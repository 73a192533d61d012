//! An allocator over memory that the device may reach: VFIO and bare metal embed one.

use heapless::Vec;
use spin::Mutex;

use super::dma::Memory;
use super::span::Span;

/// Spans are handed out in multiples of this: no two share a cache line.
const GRAIN: usize = 64;

/// An arena over raw memory, with a first-fit allocator that keeps at most `HOLES` holes.
#[derive(Debug)]
pub struct RawArena<const HOLES: usize = 128> {
    memory: Memory,
    holes: Mutex<Vec<Span, HOLES>>,
}

impl<const HOLES: usize> RawArena<HOLES> {
    /// An arena of all that memory.
    #[must_use]
    pub fn new(memory: Memory) -> Self {
        let arena = Self { memory, holes: Mutex::new(Vec::new()) };
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
        let size = rounded(len)?;
        let align = align.max(GRAIN);
        if !align.is_power_of_two() {
            return None;
        }
        let mut holes = self.holes.lock();
        // The lowest place that is long enough.
        let mut found = None;
        for (index, hole) in holes.iter().enumerate() {
            let Some(offset) = hole.offset.checked_add(align - 1) else {
                continue;
            };
            let offset = offset & !(align - 1);
            let fits = offset.saturating_add(size) <= hole.offset + hole.len;
            if fits && found.is_none_or(|(lowest, _)| offset < lowest) {
                found = Some((offset, index));
            }
        }
        let (offset, index) = found?;
        let hole = holes.get_mut(index)?;
        let before = offset - hole.offset;
        let after = Span { offset: offset + size, len: hole.len - before - size };
        if before == 0 {
            *hole = after;
        } else {
            let whole = core::mem::replace(&mut hole.len, before);
            // Another hole is needed; without room for it nothing can be handed out here.
            if after.len != 0 && holes.push(after).is_err() {
                holes.get_mut(index)?.len = whole;
                return None;
            }
        }
        if before == 0 && after.len == 0 {
            fill(&mut holes, index);
        }
        drop(holes);
        let mut at = offset;
        while at < offset + size {
            self.memory.store_words(at, &[0]);
            at += 8;
        }
        Some(Span { offset, len })
    }

    /// [`Dma::free`](crate::platform::Dma::free). A span that would need one hole more than there
    /// is room for is lost; so is one that was never handed out or overlaps what is free already.
    pub fn free(&self, span: Span) {
        let Some(size) = rounded(span.len) else {
            return;
        };
        let Some(end) = span.offset.checked_add(size) else {
            return;
        };
        if end > self.memory.len() || !span.offset.is_multiple_of(GRAIN) {
            return;
        }
        let mut holes = self.holes.lock();
        if holes.iter().any(|hole| hole.offset < end && span.offset < hole.offset + hole.len) {
            return;
        }
        let (mut start, mut end) = (span.offset, end);
        // The holes before and behind it, if they touch it, become one with it.
        let mut index = 0;
        while let Some(hole) = holes.get(index).copied() {
            let (first, last) = (hole.offset, hole.offset + hole.len);
            if last == start || first == end {
                (start, end) = (start.min(first), end.max(last));
                fill(&mut holes, index);
            } else {
                index += 1;
            }
        }
        let _ = holes.push(Span { offset: start, len: end - start });
    }

    /// Takes every span back. For after a reset of the function, when the driver over this arena is
    /// gone: the driver keeps memory that a device which stopped answering may still write to,
    /// and a reset is the end of that.
    pub fn reclaim(&self) {
        let mut holes = self.holes.lock();
        holes.clear();
        let len = self.memory.len() & !(GRAIN - 1);
        // One hole, unless there is no memory, or no room for holes: then nothing can be had.
        if len != 0 {
            let _ = holes.push(Span { offset: 0, len });
        }
    }

    /// Bytes that are free.
    #[must_use]
    pub fn available(&self) -> usize {
        self.holes.lock().iter().map(|hole| hole.len).sum()
    }
}

/// Takes a hole out. The last one moves to its place: as `swap_remove`, without the panic that it
/// has.
fn fill<const HOLES: usize>(holes: &mut Vec<Span, HOLES>, index: usize) {
    if let Some(last) = holes.pop()
        && let Some(hole) = holes.get_mut(index)
    {
        *hole = last;
    }
}

/// `len` rounded up to whole grains; an empty span takes one too, so that every span has a place of
/// its own.
fn rounded(len: usize) -> Option<usize> {
    Some(len.max(1).checked_add(GRAIN - 1)? & !(GRAIN - 1))
}
