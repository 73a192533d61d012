//! The receive queue of a queue pair: scatter lists in a ring, a counter in the doorbell record.
//!
//! PRM "Receive work queue". A receive is a list of data pointers that fills its slot or ends with the terminating key.
//! There is no doorbell register: the device fetches the counter when it needs a receive.

use core::fmt;

use dat_core::provider::{RecvQueue, Segment};

use super::ring::{Record, Ring};
use crate::platform::Platform;
use crate::prm::wqe;

/// Posting end of a receive queue.
pub struct Rq<'p, P> {
    platform: &'p P,
    ring: Ring,
    record: Record,
    log_stride: u32,
    head: u32,
}

impl<P> fmt::Debug for Rq<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rq")
            .field("ring", &self.ring)
            .field("head", &self.head)
            .finish_non_exhaustive()
    }
}

impl<'p, P: Platform> Rq<'p, P> {
    /// The queue over `ring`, with slots of `2^log_stride` bytes (at least one data pointer).
    pub(crate) const fn new(platform: &'p P, ring: Ring, log_stride: u8, record: Record) -> Self {
        Self {
            platform,
            ring,
            record,
            log_stride: log_stride as u32,
            head: 0,
        }
    }

    /// Starts over, as the device does when the queue pair is reset.
    pub(crate) fn restart(&mut self) {
        self.head = 0;
        self.platform.store32(self.record.first(), 0);
    }

    /// A list that does not fill its slot with one pointer.
    #[inline(never)]
    fn list(&self, slot: usize, segments: &[Segment]) {
        let room = 1_usize << self.log_stride.saturating_sub(4);
        let mut at = slot;
        for segment in segments.iter().take(room) {
            self.platform.store_words(
                at,
                &wqe::data(segment.addr, segment.len, segment.lkey).map(u64::to_be),
            );
            at = at.wrapping_add(wqe::UNIT);
        }
        if segments.len() < room {
            self.platform
                .store_words(at, &wqe::data(0, 0, wqe::TERMINATE).map(u64::to_be));
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
        let slot = self.ring.slot(self.head, self.log_stride);
        match segments {
            [one] => {
                let [a, b] = wqe::data(one.addr, one.len, one.lkey).map(u64::to_be);
                if self.log_stride == 4 {
                    self.platform.store_words(slot, &[a, b]);
                } else {
                    let [c, d] = wqe::data(0, 0, wqe::TERMINATE).map(u64::to_be);
                    self.platform.store_words(slot, &[a, b, c, d]);
                }
            }
            _ => self.list(slot, segments),
        }
        let token = self.head as u16;
        self.head = self.head.wrapping_add(1);
        // ORDER: the scatter list's stores precede the counter by which the device finds it.
        self.platform.before_record();
        self.platform
            .store32(self.record.first(), u32::from(self.head as u16).to_be());
        token
    }
}
