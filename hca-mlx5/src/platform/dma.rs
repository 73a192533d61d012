//! Memory the device may reach: the only file that touches it.
//!
//! [`RawArena`] is the arena half of a [`crate::platform::Platform`] over ordinary memory: VFIO and
//! bare metal embed one and forward to it ([`crate::forward_arena`]). [`Buffer`] is a consumer's
//! piece of an arena, of whatever platform.
//!
//! All loads and stores are volatile and go by offset; no Rust reference into the arena is ever
//! made, because the device may write any of it at any time.
#![expect(
    unsafe_code,
    reason = "device-visible memory is reached through raw pointers, here and nowhere else"
)]

use core::marker::PhantomData;
use core::ptr::NonNull;

use dat_core::provider::Region;
use heapless::Vec;
use spin::Mutex;

use crate::platform::entries::{self, Entries};
use crate::platform::{Platform, Span};

/// Spans are handed out in multiples of this: no two share a cache line.
const GRAIN: usize = 64;

/// An arena over raw memory, with a first-fit allocator that keeps at most `HOLES` holes.
#[derive(Debug)]
pub struct RawArena<const HOLES: usize = 128> {
    base: NonNull<u8>,
    len: usize,
    /// Everything of up to 64 bytes that starts below this offset ends inside the memory.
    inner: usize,
    holes: Mutex<Vec<Span, HOLES>>,
}

// SAFETY: the memory outlives the value (see `new`); all accesses are volatile, and which span
// belongs to whom is settled by the allocator behind its lock.
unsafe impl<const HOLES: usize> Send for RawArena<HOLES> {}
// SAFETY: as above.
unsafe impl<const HOLES: usize> Sync for RawArena<HOLES> {}

impl<const HOLES: usize> RawArena<HOLES> {
    /// Wraps memory.
    ///
    /// # Safety
    /// `base` is page aligned and valid for reads and writes of `len` bytes for as long as the
    /// value lives, and nothing in the program makes a Rust reference into it.
    #[must_use]
    pub unsafe fn new(base: NonNull<u8>, len: usize) -> Self {
        let mut holes = Vec::new();
        let len = len - len % GRAIN;
        // One hole, unless there is no memory, or no room for holes: then nothing can be had.
        if len != 0 {
            let _ = holes.push(Span { offset: 0, len });
        }
        Self { base, len, inner: len.saturating_sub(GRAIN - 1), holes: Mutex::new(holes) }
    }

    /// [`Platform::arena_len`].
    #[inline]
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// There is no memory.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// [`Platform::arena_addr`].
    #[inline]
    #[must_use]
    pub fn addr(&self) -> u64 {
        self.base.as_ptr().expose_provenance() as u64
    }

    /// [`Platform::alloc`].
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
            self.store_words(at, &[0]);
            at += 8;
        }
        Some(Span { offset, len })
    }

    /// [`Platform::free`]. A span that would need one hole more than there is room for is lost; so
    /// is one that was never handed out or overlaps what is free already.
    pub fn free(&self, span: Span) {
        let Some(size) = rounded(span.len) else {
            return;
        };
        let Some(end) = span.offset.checked_add(size) else {
            return;
        };
        if end > self.len || !span.offset.is_multiple_of(GRAIN) {
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
        if self.len > 0 {
            // There is room: it has just been emptied. With no room for any hole nothing can be
            // had, as in `new`.
            let _ = holes.push(Span { offset: 0, len: self.len });
        }
    }

    /// Bytes that are free.
    #[must_use]
    pub fn available(&self) -> usize {
        self.holes.lock().iter().map(|hole| hole.len).sum()
    }

    /// [`Platform::iova`] where the device sees the arena in one piece from `start` on: from
    /// [`RawArena::addr`] on if nothing is between the device and the memory.
    #[must_use]
    pub fn iova(&self, start: u64, offset: usize) -> Option<(u64, usize)> {
        let left = self.len.checked_sub(offset).filter(|left| *left > 0)?;
        Some((start.checked_add(offset as u64)?, left))
    }

    /// [`Platform::load32`].
    // Not inline: entries have their own.
    #[inline(never)]
    #[must_use]
    pub fn load32(&self, offset: usize) -> u32 {
        let Some(place) = self.place::<u32>(offset) else {
            return 0;
        };
        // SAFETY: `place` is aligned and inside the memory.
        unsafe { place.read_volatile() }
    }

    /// [`Platform::load_words`].
    #[inline]
    #[must_use]
    pub fn load_words<const N: usize>(&self, offset: usize) -> [u64; N] {
        let mut words = [0; N];
        let Some(place) = self.place::<[u64; N]>(offset) else {
            return words;
        };
        let place = place.cast::<u64>();
        for (index, word) in words.iter_mut().enumerate() {
            // SAFETY: `index` is inside the N words that `place` was checked for.
            let place = unsafe { place.add(index) };
            // SAFETY: aligned and inside, as above.
            *word = unsafe { place.read_volatile() };
        }
        words
    }

    /// [`Platform::store32`].
    #[inline(never)]
    pub fn store32(&self, offset: usize, value: u32) {
        let Some(place) = self.place::<u32>(offset) else {
            return;
        };
        // SAFETY: `place` is aligned and inside the memory.
        unsafe { place.write_volatile(value) }
    }

    /// [`Platform::store_words`].
    #[inline]
    pub fn store_words<const N: usize>(&self, offset: usize, words: &[u64; N]) {
        let Some(place) = self.place::<[u64; N]>(offset) else {
            return;
        };
        let place = place.cast::<u64>();
        for (index, word) in words.iter().enumerate() {
            // SAFETY: `index` is inside the N words that `place` was checked for.
            let place = unsafe { place.add(index) };
            // SAFETY: aligned and inside, as above.
            unsafe { place.write_volatile(*word) }
        }
    }

    /// [`Platform::read_bytes`]; zeros outside the arena.
    pub fn read_bytes(&self, offset: usize, to: &mut [u8]) {
        if offset >= self.len {
            to.fill(0);
            return;
        }
        for (at, piece) in pieces(offset, to.len()) {
            let Some(piece) = to.get_mut(piece) else {
                return;
            };
            if let Some(word) = piece.first_chunk_mut::<8>() {
                let [loaded] = self.load_words(at);
                *word = loaded.to_ne_bytes();
            } else {
                for (at, byte) in (at..).zip(piece) {
                    // SAFETY: `place` is inside the memory.
                    *byte =
                        self.place::<u8>(at).map_or(0, |place| unsafe { place.read_volatile() });
                }
            }
        }
    }

    /// [`Platform::write_bytes`]; dropped outside the arena.
    pub fn write_bytes(&self, offset: usize, from: &[u8]) {
        if offset >= self.len {
            return;
        }
        for (at, piece) in pieces(offset, from.len()) {
            let Some(piece) = from.get(piece) else { return };
            if let Some(word) = piece.first_chunk::<8>() {
                self.store_words(at, &[u64::from_ne_bytes(*word)]);
            } else {
                for (at, byte) in (at..).zip(piece) {
                    if let Some(place) = self.place::<u8>(at) {
                        // SAFETY: `place` is inside the memory.
                        unsafe { place.write_volatile(*byte) }
                    }
                }
            }
        }
    }

    /// [`Platform::entries`].
    #[must_use]
    pub fn entries<const LEN: usize>(&self, span: Span) -> Option<RawEntries<'_, LEN>> {
        let mask = entries::mask::<LEN>(span, self.len)?;
        Some(RawEntries {
            // SAFETY: `mask` has seen that the span is inside the memory.
            base: unsafe { self.base.byte_add(span.offset) },
            mask: mask as usize,
            arena: PhantomData,
        })
    }

    /// The place of a `T` at `offset`, if it is inside and aligned.
    #[inline]
    fn place<T>(&self, offset: usize) -> Option<NonNull<T>> {
        if !offset.is_multiple_of(align_of::<T>()) {
            return None;
        }
        // One compare for all but the last bytes of the memory.
        let short = size_of::<T>() <= GRAIN && offset < self.inner;
        if !short && !ends_by(offset, size_of::<T>(), self.len) {
            return None;
        }
        // SAFETY: `offset` is inside the memory.
        Some(unsafe { self.base.byte_add(offset) }.cast())
    }
}

/// Whether `size` bytes from `offset` on end inside `len`.
#[cold]
fn ends_by(offset: usize, size: usize, len: usize) -> bool {
    offset.checked_add(size).is_some_and(|end| end <= len)
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

/// Entries of an arena over raw memory. Whatever the index and wherever in the entry, they stay
/// inside what was checked when they were made.
#[derive(Clone, Copy, Debug)]
pub struct RawEntries<'a, const LEN: usize> {
    /// The first entry, aligned to `LEN` or to the page that the arena starts on.
    base: NonNull<u8>,
    /// Valid indices are 0 to this.
    mask: usize,
    arena: PhantomData<&'a ()>,
}

// SAFETY: as for the arena, which outlives the value: all accesses are volatile, and whose the span
// is was settled by the allocator.
unsafe impl<const LEN: usize> Send for RawEntries<'_, LEN> {}
// SAFETY: as above.
unsafe impl<const LEN: usize> Sync for RawEntries<'_, LEN> {}

impl<const LEN: usize> RawEntries<'_, LEN> {
    /// The place of a `T` at `AT` in the entry that `index` falls on.
    #[inline(always)]
    const fn place<T, const AT: usize>(&self, index: u32) -> NonNull<T> {
        const { assert!(entries::inside(AT, size_of::<T>(), align_of::<T>(), LEN)) }
        let offset = (index as usize & self.mask) * LEN + AT;
        // SAFETY: the index is cut to the entries there are, and `AT` and `T` lie inside an entry.
        unsafe { self.base.byte_add(offset) }.cast()
    }
}

impl<const LEN: usize> Entries for RawEntries<'_, LEN> {
    #[inline(always)]
    fn load32<const AT: usize>(&self, index: u32) -> u32 {
        // SAFETY: the place is inside the memory, and aligned as entries are.
        unsafe { self.place::<u32, AT>(index).read_volatile() }
    }

    #[inline(always)]
    fn load_words<const N: usize, const AT: usize>(&self, index: u32) -> [u64; N] {
        let place = self.place::<[u64; N], AT>(index).cast::<u64>();
        core::array::from_fn(|n| {
            // SAFETY: `n` is inside the N words of the place.
            let place = unsafe { place.add(n) };
            // SAFETY: aligned and inside, as above.
            unsafe { place.read_volatile() }
        })
    }

    #[inline(always)]
    fn store32<const AT: usize>(&self, index: u32, value: u32) {
        // SAFETY: the place is inside the memory, and aligned as entries are.
        unsafe { self.place::<u32, AT>(index).write_volatile(value) }
    }

    #[inline(always)]
    fn store_words<const N: usize, const AT: usize>(&self, index: u32, words: &[u64; N]) {
        let place = self.place::<[u64; N], AT>(index).cast::<u64>();
        for (n, word) in words.iter().enumerate() {
            // SAFETY: `n` is inside the N words of the place.
            let place = unsafe { place.add(n) };
            // SAFETY: aligned and inside, as above.
            unsafe { place.write_volatile(*word) }
        }
    }

    #[inline(always)]
    fn word(&self, index: u64) -> Option<u64> {
        let index = usize::try_from(index).ok()?;
        if index > self.mask {
            return None;
        }
        let offset = index * LEN;
        // SAFETY: there is such an entry, and it has 8 bytes or more.
        let place = unsafe { self.base.byte_add(offset) }.cast::<u64>();
        // SAFETY: aligned and inside, as above.
        Some(unsafe { place.read_volatile() })
    }
}

/// Cuts the bytes `offset..offset + len` into aligned 8-byte words and what is left before and
/// after them: where each piece starts in memory, and which bytes of the caller's slice it is.
fn pieces(offset: usize, len: usize) -> impl Iterator<Item = (usize, core::ops::Range<usize>)> {
    let mut done = 0;
    core::iter::from_fn(move || {
        let at = offset.checked_add(done)?;
        let left = len - done;
        let piece = left.min(8 - at % 8);
        let start = done;
        done += piece;
        (piece != 0).then_some((at, start..done))
    })
}

/// A consumer's piece of an arena: what a program registers, fills and reads.
///
/// It goes back to the arena only by [`Buffer::release`], never by itself: as long as it is
/// registered a peer may write it, and the arena must not give it to somebody else meanwhile.
#[derive(Debug)]
pub struct Buffer<'p, P: Platform> {
    platform: &'p P,
    span: Span,
}

impl<'p, P: Platform> Buffer<'p, P> {
    /// Takes `len` zeroed bytes, page aligned so that a registration of it covers nothing else.
    #[must_use]
    pub fn zeroed(platform: &'p P, len: usize) -> Option<Self> {
        let span = platform.alloc(len, 4096)?;
        Some(Self { platform, span })
    }

    /// As [`Buffer::zeroed`], of memory that the device only reads, where the platform can keep it
    /// from writing: for what is sent from here and for nothing else.
    #[must_use]
    pub fn read_only(platform: &'p P, len: usize) -> Option<Self> {
        let span = platform.alloc_read_only(len, 4096)?;
        Some(Self { platform, span })
    }

    /// Address of the first byte, as segments and registrations carry it.
    #[must_use]
    pub fn addr(&self) -> u64 {
        self.platform.arena_addr() + self.span.offset as u64
    }

    /// Length in bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.span.len
    }

    /// It holds nothing.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.span.len == 0
    }

    /// All of it, as a registration wants it.
    #[must_use]
    pub fn region(&self) -> Region {
        Region { addr: self.addr(), len: self.span.len as u64 }
    }

    /// Copies bytes in at `at`. What does not fit is left out; returns how many were copied.
    pub fn copy_in(&self, at: usize, from: &[u8]) -> usize {
        let count = self.span.len.saturating_sub(at).min(from.len());
        if let Some(from) = from.get(..count) {
            self.platform.write_bytes(self.span.offset.saturating_add(at), from);
        }
        count
    }

    /// Copies bytes out from `at`. Returns how many there were.
    pub fn copy_out(&self, at: usize, to: &mut [u8]) -> usize {
        let count = self.span.len.saturating_sub(at).min(to.len());
        if let Some(to) = to.get_mut(..count) {
            self.platform.read_bytes(self.span.offset.saturating_add(at), to);
        }
        count
    }

    /// Gives it back. Only when no registration covers it any more.
    pub fn release(self) {
        self.platform.free(self.span);
    }
}

/// In an `impl Platform`: the arena is the [`RawArena`] in this field.
///
/// `forward_arena!(arena)` writes `arena_len`, `arena_addr`, `alloc`, `free`, the loads and stores,
/// `Entries` and `entries`, each of one line, over `self.arena`; `forward_arena!(except alloc,
/// free: arena)` leaves those two to the platform. What remains in either case is `iova`, for which
/// there is [`RawArena::iova`].
#[macro_export]
macro_rules! forward_arena {
    (except alloc, free: $($arena:tt)+) => {
        fn arena_len(&self) -> usize {
            self.$($arena)+.len()
        }
        fn arena_addr(&self) -> u64 {
            self.$($arena)+.addr()
        }
        fn load32(&self, offset: usize) -> u32 {
            self.$($arena)+.load32(offset)
        }
        fn load_words<const N: usize>(&self, offset: usize) -> [u64; N] {
            self.$($arena)+.load_words(offset)
        }
        fn store32(&self, offset: usize, value: u32) {
            self.$($arena)+.store32(offset, value);
        }
        fn store_words<const N: usize>(&self, offset: usize, words: &[u64; N]) {
            self.$($arena)+.store_words(offset, words);
        }
        fn read_bytes(&self, offset: usize, to: &mut [u8]) {
            self.$($arena)+.read_bytes(offset, to);
        }
        fn write_bytes(&self, offset: usize, from: &[u8]) {
            self.$($arena)+.write_bytes(offset, from);
        }
        type Entries<'p, const LEN: usize>
            = $crate::platform::dma::RawEntries<'p, LEN>
        where
            Self: 'p;
        fn entries<const LEN: usize>(
            &self,
            span: $crate::platform::Span,
        ) -> Option<$crate::platform::dma::RawEntries<'_, LEN>> {
            self.$($arena)+.entries(span)
        }
    };
    ($($arena:tt)+) => {
        fn alloc(&self, len: usize, align: usize) -> Option<$crate::platform::Span> {
            self.$($arena)+.alloc(len, align)
        }
        fn free(&self, span: $crate::platform::Span) {
            self.$($arena)+.free(span);
        }
        $crate::forward_arena!(except alloc, free: $($arena)+);
    };
}

#[cfg(test)]
mod tests;
