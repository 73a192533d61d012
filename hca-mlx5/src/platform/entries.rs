//! Entries of a ring, checked once: what queues are stored through.
//!
//! A by-offset accessor of [`Platform`](super::Platform) checks every offset it gets. A queue end
//! touches the same power of two of equal entries as long as it exists, so it asks once, through
//! [`Platform::entries`](super::Platform::entries), and then only cuts its index to the ring.
//! Doorbell records are rings of one entry; short payload is read through the whole arena as words.
//! Control paths keep to offsets.

use super::span::Span;

/// A power of two of equal entries in the arena. Indices run freely and are cut to the ring; `AT`
/// is a place inside the entry, which the compiler checks together with the width.
pub trait Entries: Copy {
    /// 32-bit load in memory order.
    fn load32<const AT: usize>(&self, index: u32) -> u32;
    /// `N` 64-bit loads from consecutive words, in ascending order.
    fn load_words<const N: usize, const AT: usize>(&self, index: u32) -> [u64; N];
    /// 32-bit store in memory order.
    fn store32<const AT: usize>(&self, index: u32, value: u32);
    /// `N` 64-bit stores to consecutive words, in ascending order.
    fn store_words<const N: usize, const AT: usize>(&self, index: u32, words: &[u64; N]);
    /// The first word of an entry whose index is not cut: none if there is no such entry.
    fn word(&self, index: u64) -> Option<u64>;
}

/// The mask of the indices into `span` as entries of `LEN` bytes, if it is in an arena of `arena`
/// bytes and is a power of two of them.
pub(crate) fn mask<const LEN: usize>(span: Span, arena: usize) -> Option<u32> {
    const { assert!(LEN.is_power_of_two() && LEN >= 8) }
    let count = span.len / LEN;
    let inside = span.offset.checked_add(span.len)? <= arena;
    let fits = span.len.is_multiple_of(LEN) && span.offset.is_multiple_of(LEN);
    (inside && fits && count.is_power_of_two()).then(|| u32::try_from(count - 1).ok()).flatten()
}

/// A doorbell register in the BAR, whose two halves are written by turns.
pub trait Register {
    /// One 64-bit store to the current half.
    fn write64(&self, value: u64);
    /// One block to the current half, as [`Platform::write_block`](super::Platform::write_block).
    fn write_block(&self, block: &[u64; 8]);
    /// On to the other half.
    fn turn(&mut self);
}

/// Whether both halves of a register lie inside a BAR of `len` bytes, on the boundaries that
/// turning needs.
pub(crate) fn halves(offset: usize, half: usize, len: usize) -> bool {
    let end = offset.checked_add(half).and_then(|second| second.checked_add(64));
    let aligned = offset.is_multiple_of(64) && half.is_multiple_of(64);
    // Both halves differ in the bits of `half` only.
    aligned && offset & half == 0 && end.is_some_and(|end| end <= len)
}

/// Whether `size` bytes at `at` lie inside an entry of `len` bytes, on a multiple of `align`.
pub(crate) const fn inside(at: usize, size: usize, align: usize, len: usize) -> bool {
    at <= len && size <= len - at && at.is_multiple_of(align)
}

#[cfg(test)]
pub(crate) mod tests;
