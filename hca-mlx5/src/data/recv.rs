//! The receive queue of a queue pair: scatter lists in a ring, a counter in the doorbell record.
//!
//! PRM "Receive work queue". A receive is a list of data pointers that fills its slot or ends with
//! the terminating key. There is no doorbell register: the device fetches the counter when it needs
//! a receive.

use core::fmt;

use dat_core::provider::{RecvQueue, Segment};

use super::ring::{self, FIRST, RECORD, Record, Ring};
use crate::platform::dma::Entries;
use crate::platform::{Fence, Platform};
use crate::prm::wqe;

/// A pointer that ends a list, in the order of the device's bytes.
pub(super) const END: [u64; 2] = {
    let [first, second] = wqe::data(0, 0, wqe::TERMINATE);
    [first.to_be(), second.to_be()]
};

/// Posting end of a receive queue.
pub struct Rq<'p, P: Platform> {
    platform: &'p P,
    /// The ring as data pointers, whatever the size of its slots.
    pointers: Entries<'p, { wqe::UNIT }, P::Probe>,
    record: Entries<'p, RECORD, P::Probe>,
    /// log2 of the data pointers of a slot.
    log_pointers: u32,
    head: u32,
}

impl<P: Platform> fmt::Debug for Rq<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rq")
            .field("log_pointers", &self.log_pointers)
            .field("head", &self.head)
            .finish_non_exhaustive()
    }
}

impl<'p, P: Platform> Rq<'p, P> {
    /// The queue over `ring`, with slots of `2^log_stride` bytes (at least one data pointer). None
    /// if it is not in the arena.
    pub(crate) fn new(platform: &'p P, ring: Ring, log_stride: u8, record: Record) -> Option<Self> {
        Some(Self {
            platform,
            pointers: platform.memory().entries(ring.span(log_stride.into()))?,
            record: platform.memory().entries(record.span())?,
            log_pointers: u32::from(log_stride).checked_sub(wqe::UNIT.ilog2())?,
            head: 0,
        })
    }

    /// Starts over, as the device does when the queue pair is reset.
    pub(crate) fn restart(&mut self) {
        self.head = 0;
        ring::write::<FIRST, _>(&self.record, 0);
    }

    /// A list that does not fill its slot with one pointer.
    #[inline(never)]
    fn list(&self, slot: u32, segments: &[Segment]) {
        let room = 1_usize << self.log_pointers;
        let mut at = slot;
        for segment in segments.iter().take(room) {
            let pointer = wqe::data(segment.addr, segment.len, segment.lkey);
            self.pointers.store_words::<2, 0>(at, &pointer.map(u64::to_be));
            at = at.wrapping_add(1);
        }
        if segments.len() < room {
            self.pointers.store_words::<2, 0>(at, &END);
        }
    }
}

impl<P: Platform> RecvQueue for Rq<'_, P> {
    #[inline(always)]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "tokens and counters are the index modulo 2^16"
    )]
    fn recv(&mut self, segments: &[Segment]) -> u16 {
        let slot = self.head << self.log_pointers;
        match segments {
            [one] => {
                let pointer = wqe::data(one.addr, one.len, one.lkey);
                self.pointers.store_words::<2, 0>(slot, &pointer.map(u64::to_be));
                if self.log_pointers != 0 {
                    self.pointers.store_words::<2, 0>(slot.wrapping_add(1), &END);
                }
            }
            _ => self.list(slot, segments),
        }
        let token = self.head as u16;
        self.head = self.head.wrapping_add(1);
        // ORDER: the scatter list's stores precede the counter by which the device finds it.
        self.platform.fence(Fence::BeforeRecord);
        ring::write::<FIRST, _>(&self.record, u32::from(self.head as u16));
        token
    }

    fn posted(&self, token: u16, mut take: impl FnMut(Segment)) {
        let first = u32::from(token) << self.log_pointers;
        for at in 0..1 << self.log_pointers {
            let [first, addr] =
                self.pointers.load_words::<2, 0>(first.wrapping_add(at)).map(u64::from_be);
            let (len, lkey) = wqe::data_of(first);
            // No memory has that key.
            if lkey == wqe::TERMINATE {
                return;
            }
            take(Segment { addr, len, lkey });
        }
    }
}
