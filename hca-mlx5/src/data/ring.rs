//! The shape of a ring in the arena, and a queue's doorbell record.
//!
//! PRM "Work queue structure" and "Doorbell records". A ring has a power of two of equal slots;
//! indices run freely and are cut to the ring only to find a slot. A doorbell record is 8 bytes of
//! host memory: two 32-bit counters that the device reads when it likes. This page knows nothing of
//! what the slots hold.

use crate::platform::Span;
use crate::platform::dma::{Entries, Probe};

/// Where a ring lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ring {
    /// Offset of its first byte in units of [`LINE`], so that the compiler sees that computed
    /// offsets are aligned.
    line: usize,
    mask: u32,
}

/// Bytes that every ring starts on a multiple of.
const LINE: usize = 64;

impl Ring {
    /// The ring of `2^log_slots` slots whose first byte is at `offset` of the arena, a multiple of
    /// 64.
    #[must_use]
    pub const fn new(offset: usize, log_slots: u8) -> Self {
        Self { line: offset / LINE, mask: (1_u32 << (log_slots & 31)) - 1 }
    }

    /// Offset in the arena of the slot that `index` falls on, with slots of `2^log_stride` bytes.
    #[inline]
    #[must_use]
    pub const fn slot(&self, index: u32, log_stride: u32) -> usize {
        self.line.wrapping_mul(LINE).wrapping_add(((index & self.mask) as usize) << log_stride)
    }

    /// The memory of its slots of `2^log_stride` bytes.
    #[must_use]
    pub const fn span(&self, log_stride: u32) -> Span {
        Span { offset: self.line.wrapping_mul(LINE), len: (self.slots() as usize) << log_stride }
    }

    /// How many slots it has.
    #[inline]
    #[must_use]
    pub const fn slots(&self) -> u32 {
        self.mask.wrapping_add(1)
    }

    /// The lowest bit of the number of laps that `index` has made.
    #[inline]
    #[must_use]
    pub const fn lap(&self, index: u32) -> bool {
        index & self.slots() != 0
    }
}

/// Bytes of a doorbell record.
pub const RECORD: usize = 8;
/// Place in it of the dword of a queue pair's receive counter, or a completion queue's consumer
/// index.
pub const FIRST: usize = 0;
/// Place in it of the dword of a queue pair's send counter, or a completion queue's arm word.
pub const SECOND: usize = 4;

/// Stores a counter in a doorbell record, at [`FIRST`] or [`SECOND`].
#[inline(always)]
pub(super) fn write<const AT: usize, T: Probe>(record: &Entries<'_, RECORD, T>, count: u32) {
    record.store32::<AT>(0, count.to_be());
}

/// A doorbell record: the arena offset of its 8 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record(pub usize);

impl Record {
    /// Its memory: a ring of one entry.
    #[must_use]
    pub const fn span(self) -> Span {
        Span { offset: self.first(), len: RECORD }
    }

    /// The same of a completion queue, with 8 bytes behind it that are the driver's own.
    #[must_use]
    pub const fn completion_span(self) -> Span {
        Span { offset: self.first(), len: 2 * RECORD }
    }

    /// The dword of a queue pair's receive counter, or a completion queue's consumer index.
    #[inline]
    #[must_use]
    pub const fn first(self) -> usize {
        // It is a multiple of 8; said here, so that nobody has to test it.
        self.0 & !7
    }

    /// The dword of a queue pair's send counter, or a completion queue's arm word.
    #[inline]
    #[must_use]
    pub const fn second(self) -> usize {
        self.0 & !7 | 4
    }
}
