//! Memory the device may reach: the only file that touches it.
//!
//! [`Memory`] loads and stores by offset, each checked. A queue touches the same power of two of
//! equal entries as long as it exists, so it takes them as [`Entries`], which are checked once and
//! then only cut an index to the ring. Doorbell records are rings of one entry; short payload is
//! read through the whole arena as words. [`Buffer`] is a consumer's piece of an arena, of whatever
//! platform.
//!
//! All loads and stores are volatile; no Rust reference into the arena is ever made, because the
//! device may write any of it at any time: but for words that threads of the host share, as atomics
//! ([`Entries::shared`]).
#![expect(
    unsafe_code,
    reason = "device-visible memory is reached through raw pointers, here and nowhere else"
)]

use core::marker::PhantomData;
use core::ptr::NonNull;
use core::sync::atomic::AtomicU32;

use dat_core::provider::Region;

use crate::platform::{Platform, Reach, Span};

/// Accesses of up to so many bytes are checked by one compare.
const SHORT: usize = 64;

/// Sees what the driver loads from a [`Memory`] and stores to it, by offset. Hosts of tests keep a
/// log, or hold back what has not passed a fence. `()` sees nothing and costs nothing.
pub trait Probe {
    /// A 32-bit load found `value`. Returns what the driver is to see.
    fn load32(&self, _offset: usize, value: u32) -> u32 {
        value
    }
    /// Wider loads, or loads of bytes, are about to begin.
    fn load(&self, _offset: usize, _len: usize) {}
    /// `bytes` have been stored.
    fn store(&self, _offset: usize, _bytes: &[u8]) {}
}

impl Probe for () {}

/// Memory that the device may reach.
#[derive(Debug)]
pub struct Memory<T = ()> {
    base: NonNull<u8>,
    len: usize,
    /// Everything of up to 64 bytes that starts below this offset ends inside the memory.
    inner: usize,
    addr: u64,
    /// Aligned words that [`Memory::word_at`] reads.
    words: usize,
    probe: T,
}

// SAFETY: the memory outlives the value (see `probed`), and all accesses are volatile.
unsafe impl<T: Send> Send for Memory<T> {}
// SAFETY: as above; whose a piece of it is, the allocator decides.
unsafe impl<T: Sync> Sync for Memory<T> {}

impl Memory {
    /// Wraps memory, which consumers see where the CPU does.
    ///
    /// # Safety
    /// `base` is page aligned and valid for reads and writes of `len` bytes for as long as the
    /// value exists, and nothing in the program makes a Rust reference into it.
    #[must_use]
    pub unsafe fn new(base: NonNull<u8>, len: usize) -> Self {
        let addr = base.as_ptr().expose_provenance() as u64;
        // SAFETY: the caller promises it.
        unsafe { Self::probed(base, len, addr, ()) }
    }
}

impl<T: Probe> Memory<T> {
    /// Wraps memory whose consumers' segments count from `addr`, and tells `probe` of every access.
    ///
    /// # Safety
    /// As of [`Memory::new`].
    #[must_use]
    pub unsafe fn probed(base: NonNull<u8>, len: usize, addr: u64, probe: T) -> Self {
        Self { base, len, inner: len.saturating_sub(SHORT - 1), addr, words: len / 8, probe }
    }

    /// Length in bytes.
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

    /// Address of the first byte, page aligned: what consumer segments carry.
    #[inline]
    #[must_use]
    pub const fn addr(&self) -> u64 {
        self.addr
    }

    /// [`Dma::iova`](crate::platform::Dma::iova) where the device sees the memory in one piece from
    /// `start` on: from [`Memory::addr`] on if nothing is between the device and the memory.
    #[must_use]
    pub fn iova(&self, start: u64, offset: usize) -> Option<(u64, usize)> {
        let left = self.len.checked_sub(offset).filter(|left| *left > 0)?;
        Some((start.checked_add(offset as u64)?, left))
    }

    /// 32-bit load in memory order. 0 outside the memory, as with all loads here.
    // Not inline: entries have their own.
    #[inline(never)]
    #[must_use]
    pub fn load32(&self, offset: usize) -> u32 {
        let Some(place) = self.place::<u32>(offset) else {
            return 0;
        };
        // SAFETY: `place` is aligned and inside the memory.
        self.probe.load32(offset, unsafe { place.read_volatile() })
    }

    /// `N` 64-bit loads from consecutive words, in ascending order; `offset` is a multiple of 8.
    #[inline]
    #[must_use]
    pub fn load_words<const N: usize>(&self, offset: usize) -> [u64; N] {
        match self.place::<[u64; N]>(offset) {
            Some(place) => {
                self.probe.load(offset, 8 * N);
                // SAFETY: `place` is aligned and inside the memory.
                unsafe { load(place) }
            }
            None => [0; N],
        }
    }

    /// 32-bit store in memory order. Dropped outside the memory, as with all stores here.
    #[inline(never)]
    pub fn store32(&self, offset: usize, value: u32) {
        let Some(place) = self.place::<u32>(offset) else {
            return;
        };
        // SAFETY: `place` is aligned and inside the memory.
        unsafe { place.write_volatile(value) }
        self.probe.store(offset, &value.to_ne_bytes());
    }

    /// `N` 64-bit stores to consecutive words, in ascending order; `offset` is a multiple of 8.
    #[inline]
    pub fn store_words<const N: usize>(&self, offset: usize, words: &[u64; N]) {
        let Some(place) = self.place::<[u64; N]>(offset) else {
            return;
        };
        // SAFETY: `place` is aligned and inside the memory.
        unsafe { store(place, words) }
        self.probe.store(offset, words.map(u64::to_ne_bytes).as_flattened());
    }

    /// Copies out of the memory, in aligned words as far as there are; zeros outside.
    pub fn read_bytes(&self, offset: usize, to: &mut [u8]) {
        let (inside, outside) = to.split_at_mut(self.left(offset).min(to.len()));
        outside.fill(0);
        if inside.is_empty() {
            return;
        }
        self.probe.load(offset, inside.len());
        let single = |(at, byte): (usize, &mut u8)| {
            // SAFETY: `place` is inside the memory.
            *byte = self.place::<u8>(at).map_or(0, |place| unsafe { place.read_volatile() });
        };
        let (before, rest) = inside.split_at_mut(unaligned(offset).min(inside.len()));
        let (words, after) = rest.split_at_mut(rest.len() / 8 * 8);
        let [first, end] = [before.len(), before.len() + words.len()].map(|at| offset + at);
        let words = words.chunks_exact_mut(8).filter_map(<[_]>::first_chunk_mut::<8>);
        (offset..).zip(before).for_each(single);
        for (at, word) in (first..).step_by(8).zip(words) {
            // SAFETY: all of `inside` lies in the memory from `offset` on.
            let place = unsafe { self.base.byte_add(at) }.cast();
            // SAFETY: inside, as above, and aligned: `first` is.
            let [value] = unsafe { load::<1>(place) };
            *word = value.to_ne_bytes();
        }
        (end..).zip(after).for_each(single);
    }

    /// Copies into the memory, in aligned words as far as there are; dropped outside.
    pub fn write_bytes(&self, offset: usize, from: &[u8]) {
        let inside = from.get(..self.left(offset)).unwrap_or(from);
        if inside.is_empty() {
            return;
        }
        let single = |(at, byte): (usize, &u8)| {
            if let Some(place) = self.place::<u8>(at) {
                // SAFETY: `place` is inside the memory.
                unsafe { place.write_volatile(*byte) }
            }
        };
        let (before, rest) = inside.split_at(unaligned(offset).min(inside.len()));
        let (words, after) = rest.split_at(rest.len() / 8 * 8);
        let [first, end] = [before.len(), before.len() + words.len()].map(|at| offset + at);
        let words = words.chunks_exact(8).filter_map(<[_]>::first_chunk::<8>);
        (offset..).zip(before).for_each(single);
        for (at, word) in (first..).step_by(8).zip(words) {
            // SAFETY: all of `inside` lies in the memory from `offset` on.
            let place = unsafe { self.base.byte_add(at) }.cast();
            // SAFETY: inside, as above, and aligned: `first` is.
            unsafe { store(place, &[u64::from_ne_bytes(*word)]) }
        }
        (end..).zip(after).for_each(single);
        self.probe.store(offset, inside);
    }

    /// Bytes of the memory from `offset` on.
    const fn left(&self, offset: usize) -> usize {
        self.len.saturating_sub(offset)
    }

    /// The entries of `LEN` bytes in `span`, checked once. None unless it is inside the memory,
    /// starts on a multiple of `LEN` and holds a power of two of them.
    #[must_use]
    pub fn entries<const LEN: usize>(&self, span: Span) -> Option<Entries<'_, LEN, T>> {
        let mask = mask::<LEN>(span, self.len)?;
        Some(Entries {
            // SAFETY: `mask` has seen that the span is inside the memory.
            base: unsafe { self.base.byte_add(span.offset) },
            mask: mask as usize,
            memory: self,
        })
    }

    /// The offset of that address of a consumer's segment, if 64 bytes from there lie in the memory.
    #[inline(always)]
    pub(crate) fn block_at(&self, addr: u64) -> Option<usize> {
        let offset = usize::try_from(addr.wrapping_sub(self.addr)).ok()?;
        (offset < self.inner).then_some(offset)
    }

    /// The aligned word at that address of a consumer's segment: none if there is no such word.
    #[inline(always)]
    pub(crate) fn word_at(&self, addr: u64) -> Option<u64> {
        // Turned by three bits, an offset that is no multiple of 8 is beyond any end: one compare
        // for both.
        let index = usize::try_from(addr.wrapping_sub(self.addr).rotate_right(3)).ok()?;
        if index >= self.words {
            return None;
        }
        let offset = index * 8;
        self.probe.load(offset, 8);
        // SAFETY: there is such a word.
        let place = unsafe { self.base.byte_add(offset) }.cast();
        // SAFETY: inside, as above, and aligned as the memory is.
        let [word] = unsafe { load(place) };
        Some(word)
    }

    /// The place of a `T` at `offset`, if it is inside and aligned.
    #[inline]
    fn place<U>(&self, offset: usize) -> Option<NonNull<U>> {
        if offset % align_of::<U>() != 0 {
            return None;
        }
        // One compare for all but the last bytes of the memory.
        let short = size_of::<U>() <= SHORT && offset < self.inner;
        if !short && !ends_by(offset, size_of::<U>(), self.len) {
            return None;
        }
        // SAFETY: `offset` is inside the memory.
        Some(unsafe { self.base.byte_add(offset) }.cast())
    }
}

/// Loads words, in ascending order.
///
/// # Safety
/// `place` is aligned and inside a [`Memory`].
#[inline(always)]
unsafe fn load<const N: usize>(place: NonNull<[u64; N]>) -> [u64; N] {
    let place = place.cast::<u64>();
    core::array::from_fn(|n| {
        // SAFETY: `n` is inside the N words of the place.
        let place = unsafe { place.add(n) };
        // SAFETY: aligned and inside, as above.
        unsafe { place.read_volatile() }
    })
}

/// Stores words, in ascending order.
///
/// # Safety
/// As of [`load`].
#[inline(always)]
unsafe fn store<const N: usize>(place: NonNull<[u64; N]>, words: &[u64; N]) {
    let place = place.cast::<u64>();
    for (n, word) in words.iter().enumerate() {
        // SAFETY: `n` is inside the N words of the place.
        let place = unsafe { place.add(n) };
        // SAFETY: aligned and inside, as above.
        unsafe { place.write_volatile(*word) }
    }
}

/// The mask of the indices into `span` as entries of `LEN` bytes, if it is in memory of `memory`
/// bytes and is a power of two of them.
fn mask<const LEN: usize>(span: Span, memory: usize) -> Option<u32> {
    const { assert!(LEN.is_power_of_two() && LEN >= 8) }
    let count = span.len / LEN;
    let inside = span.offset.checked_add(span.len)? <= memory;
    let fits = span.len % LEN == 0 && span.offset % LEN == 0;
    (inside && fits && count.is_power_of_two()).then(|| u32::try_from(count - 1).ok()).flatten()
}

/// A power of two of equal entries: what queues are stored through. Indices run freely and are cut
/// to the ring; `AT` is an offset inside the entry, which the compiler checks together with the
/// width. So every access stays inside what was checked when the value was made.
#[derive(Debug)]
pub struct Entries<'m, const LEN: usize, T = ()> {
    /// The first entry, aligned to `LEN` or to the page that the memory starts on.
    base: NonNull<u8>,
    /// Valid indices are 0 to this.
    mask: usize,
    memory: &'m Memory<T>,
}

/// Entries and the free-running index of the next one: what the posting end of a queue needs of its
/// ring, in 16 bytes. It is used as [`Entries`] of the memory, which its owner knows.
#[derive(Debug)]
pub(crate) struct Cursor<'m, const LEN: usize, T = ()> {
    base: NonNull<u8>,
    mask: u32,
    /// The next index.
    pub(crate) head: u32,
    memory: PhantomData<&'m Memory<T>>,
}

// SAFETY: as for the memory, which outlives the value.
unsafe impl<const LEN: usize, T: Sync> Send for Cursor<'_, LEN, T> {}
// SAFETY: as above.
unsafe impl<const LEN: usize, T: Sync> Sync for Cursor<'_, LEN, T> {}

impl<'m, const LEN: usize, T: Probe> Cursor<'m, LEN, T> {
    /// The entries. `memory` is the one that they are in; another one's probe would see the accesses.
    #[inline(always)]
    pub(crate) const fn of(&self, memory: &'m Memory<T>) -> Entries<'m, LEN, T> {
        Entries { base: self.base, mask: self.mask as usize, memory }
    }
}

/// The first of some entries, in 8 bytes: a doorbell record. It is used as [`Cursor`] is.
#[derive(Debug)]
pub(crate) struct First<'m, const LEN: usize, T = ()> {
    base: NonNull<u8>,
    memory: PhantomData<&'m Memory<T>>,
}

// SAFETY: as for the memory, which outlives the value.
unsafe impl<const LEN: usize, T: Sync> Send for First<'_, LEN, T> {}
// SAFETY: as above.
unsafe impl<const LEN: usize, T: Sync> Sync for First<'_, LEN, T> {}

impl<'m, const LEN: usize, T: Probe> First<'m, LEN, T> {
    /// The entry, as a ring of one.
    #[inline(always)]
    pub(crate) const fn of(&self, memory: &'m Memory<T>) -> Entries<'m, LEN, T> {
        Entries { base: self.base, mask: 0, memory }
    }
}

impl<const LEN: usize, T> Clone for Entries<'_, LEN, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<const LEN: usize, T> Copy for Entries<'_, LEN, T> {}

// SAFETY: as for the memory, which outlives the value.
unsafe impl<const LEN: usize, T: Sync> Send for Entries<'_, LEN, T> {}
// SAFETY: as above.
unsafe impl<const LEN: usize, T: Sync> Sync for Entries<'_, LEN, T> {}

impl<'m, const LEN: usize, T: Probe> Entries<'m, LEN, T> {
    /// The same without the memory, from index 0 on.
    #[expect(clippy::cast_possible_truncation, reason = "`mask` made it of 32 bits")]
    pub(crate) const fn cursor(self) -> Cursor<'m, LEN, T> {
        Cursor { base: self.base, mask: self.mask as u32, head: 0, memory: PhantomData }
    }

    /// The first of them, without the memory.
    pub(crate) const fn first(self) -> First<'m, LEN, T> {
        First { base: self.base, memory: PhantomData }
    }

    /// 32-bit load in memory order.
    #[inline(always)]
    #[must_use]
    pub fn load32<const AT: usize>(&self, index: u32) -> u32 {
        let place = self.place::<u32, AT>(index);
        // SAFETY: the place is inside the memory, and aligned as entries are.
        self.memory.probe.load32(self.offset(place), unsafe { place.read_volatile() })
    }

    /// `N` 64-bit loads from consecutive words, in ascending order.
    #[inline(always)]
    #[must_use]
    pub fn load_words<const N: usize, const AT: usize>(&self, index: u32) -> [u64; N] {
        let place = self.place::<[u64; N], AT>(index);
        self.memory.probe.load(self.offset(place), 8 * N);
        // SAFETY: the place is inside the memory, and aligned as entries are.
        unsafe { load(place) }
    }

    /// A word that threads of the host share. The device has no part in it, so nothing is ordered by
    /// fences for it, and no probe sees it; it is read and written by this alone.
    #[inline]
    #[must_use]
    pub fn shared<const AT: usize>(&self, index: u32) -> &AtomicU32 {
        let place = self.place::<u32, AT>(index);
        // SAFETY: the place is inside the memory, which outlives the value, aligned as entries are,
        // and every access to it is one through this.
        unsafe { AtomicU32::from_ptr(place.as_ptr()) }
    }

    /// 32-bit store in memory order.
    #[inline(always)]
    pub fn store32<const AT: usize>(&self, index: u32, value: u32) {
        let place = self.place::<u32, AT>(index);
        // SAFETY: the place is inside the memory, and aligned as entries are.
        unsafe { place.write_volatile(value) }
        self.memory.probe.store(self.offset(place), &value.to_ne_bytes());
    }

    /// `N` 64-bit stores to consecutive words, in ascending order.
    #[inline(always)]
    pub fn store_words<const N: usize, const AT: usize>(&self, index: u32, words: &[u64; N]) {
        let place = self.place::<[u64; N], AT>(index);
        // SAFETY: the place is inside the memory, and aligned as entries are.
        unsafe { store(place, words) }
        self.memory.probe.store(self.offset(place), words.map(u64::to_ne_bytes).as_flattened());
    }

    /// The place of a `U` at `AT` in the entry that `index` falls on.
    #[inline(always)]
    const fn place<U, const AT: usize>(&self, index: u32) -> NonNull<U> {
        const {
            assert!(AT <= LEN && size_of::<U>() <= LEN - AT && AT % align_of::<U>() == 0);
        }
        let offset = (index as usize & self.mask) * LEN + AT;
        // SAFETY: the index is cut to the entries there are, and `AT` and `U` lie inside an entry.
        unsafe { self.base.byte_add(offset) }.cast()
    }

    /// Where the probe is to report that a place is.
    #[inline(always)]
    fn offset<U>(&self, place: NonNull<U>) -> usize {
        place.addr().get().wrapping_sub(self.memory.base.addr().get())
    }
}

/// Whether `size` bytes from `offset` on end inside `len`.
#[cold]
fn ends_by(offset: usize, size: usize, len: usize) -> bool {
    offset.checked_add(size).is_some_and(|end| end <= len)
}

/// Bytes from `offset` to the next aligned word.
const fn unaligned(offset: usize) -> usize {
    offset.wrapping_neg() % 8
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
        let span = platform.alloc(len, 4096, Reach::ReadWrite)?;
        Some(Self { platform, span })
    }

    /// As [`Buffer::zeroed`], of memory that the device only reads, where the platform can keep it
    /// from writing: for what is sent from here and for nothing else.
    #[must_use]
    pub fn read_only(platform: &'p P, len: usize) -> Option<Self> {
        let span = platform.alloc(len, 4096, Reach::Read)?;
        Some(Self { platform, span })
    }

    /// Address of the first byte, as segments and registrations carry it.
    #[must_use]
    pub fn addr(&self) -> u64 {
        self.platform.memory().addr() + self.span.offset as u64
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
            self.platform.memory().write_bytes(self.span.offset.saturating_add(at), from);
        }
        count
    }

    /// Copies bytes out from `at`. Returns how many there were.
    pub fn copy_out(&self, at: usize, to: &mut [u8]) -> usize {
        let count = self.span.len.saturating_sub(at).min(to.len());
        if let Some(to) = to.get_mut(..count) {
            self.platform.memory().read_bytes(self.span.offset.saturating_add(at), to);
        }
        count
    }

    /// Gives it back. Only when no registration covers it any more.
    pub fn release(self) {
        self.platform.free(self.span);
    }
}

#[cfg(test)]
pub(crate) mod tests;
