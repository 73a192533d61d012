//! The shared receive queue: scatter lists that name their successors, a counter in the doorbell
//! record.
//!
//! PRM "Receive memory pool", linked list. Free slots and posted ones are one chain: posting takes
//! the slot at its front, a slot that comes back is hung on its end. The device follows the same
//! links, so the last slot of the chain is never posted: its successor is not known yet. Hence
//! there is one slot more than there may be receives.
//!
//! A slot's number is the token of its receive, and what the CQE names. There is no doorbell
//! register: the device fetches the counter when it needs a receive.

use core::fmt;

use dat_core::provider::{Segment, SharedRecvQueue};

use super::recv::END;
use super::ring::{self, FIRST, RECORD, Record, Ring};
use crate::platform::dma::Entries;
use crate::platform::{Fence, Platform};
use crate::prm::wqe;

/// Posting end of a shared receive queue.
pub struct Shared<'p, P: Platform> {
    platform: &'p P,
    /// The ring as units, whatever the size of its slots: the link, then data pointers.
    units: Entries<'p, { wqe::UNIT }, P::Probe>,
    record: Entries<'p, RECORD, P::Probe>,
    /// log2 of the units of a slot.
    log_units: u32,
    /// Highest slot number.
    mask: u16,
    /// The slot that is posted next.
    front: u16,
    /// The last slot of the chain.
    back: u16,
    posted: u16,
}

impl<P: Platform> fmt::Debug for Shared<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("mask", &self.mask)
            .field("front", &self.front)
            .field("back", &self.back)
            .finish_non_exhaustive()
    }
}

impl<'p, P: Platform> Shared<'p, P> {
    /// The queue over `ring`, with slots of `2^log_stride` bytes (at least two units), all free.
    /// None if it is not in the arena.
    #[expect(clippy::cast_possible_truncation, reason = "a ring has 32,768 slots at most")]
    pub(crate) fn new(platform: &'p P, ring: Ring, log_stride: u8, record: Record) -> Option<Self> {
        let mask = ring.slots().wrapping_sub(1) as u16;
        let queue = Self {
            platform,
            units: platform.memory().entries(ring.span(log_stride.into()))?,
            record: platform.memory().entries(record.span())?,
            log_units: u32::from(log_stride).checked_sub(wqe::UNIT.ilog2())?,
            mask,
            front: 0,
            back: mask,
            posted: 0,
        };
        for slot in 0..=mask {
            queue.link(slot, slot.wrapping_add(1) & mask);
        }
        Some(queue)
    }

    const fn first_unit(&self, slot: u16) -> u32 {
        (slot as u32) << self.log_units
    }

    /// Makes `next` follow `slot`.
    fn link(&self, slot: u16, next: u16) {
        let link = [wqe::next(next).to_be(), 0];
        self.units.store_words::<2, 0>(self.first_unit(slot), &link);
    }

    /// The slot that follows.
    fn after(&self, slot: u16) -> u16 {
        let [word] = self.units.load_words::<1, 0>(self.first_unit(slot));
        wqe::next_of(u64::from_be(word)) & self.mask
    }
}

impl<P: Platform> SharedRecvQueue for Shared<'_, P> {
    fn next_token(&self) -> u16 {
        self.front
    }

    fn recv(&mut self, segments: &[Segment]) -> u16 {
        let token = self.front;
        let room = (1_usize << self.log_units).saturating_sub(1);
        let mut at = self.first_unit(token);
        for segment in segments.iter().take(room) {
            at = at.wrapping_add(1);
            let pointer = wqe::data(segment.addr, segment.len, segment.lkey);
            self.units.store_words::<2, 0>(at, &pointer.map(u64::to_be));
        }
        if segments.len() < room {
            self.units.store_words::<2, 0>(at.wrapping_add(1), &END);
        }
        self.front = self.after(token);
        self.posted = self.posted.wrapping_add(1);
        // ORDER: the scatter list and all links up to it precede the counter by which the device
        // finds it.
        self.platform.fence(Fence::BeforeRecord);
        ring::write::<FIRST, _>(&self.record, u32::from(self.posted));
        token
    }

    fn release(&mut self, token: u16) {
        let token = token & self.mask;
        self.link(self.back, token);
        self.back = token;
    }
}
