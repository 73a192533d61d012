//! The receive queue of a queue pair: scatter lists in a ring, a counter in the doorbell record.
//!
//! PRM "Receive work queue". A receive is a list of data pointers that fills its slot or ends with
//! the terminating key. There is no doorbell register: the device fetches the counter when it needs
//! a receive.

use core::fmt;

use dat_core::provider::{RecvQueue, Segment};

use super::ring::{self, FIRST, RECORD, Record, Ring};
use crate::platform::dma::{Entries, Probe};
use crate::platform::{Fence, Platform};
use crate::prm::wqe;

/// A pointer that ends a list, in the order of the device's bytes.
pub(super) const END: [u64; 2] = {
    let [first, second] = wqe::data(0, 0, wqe::TERMINATE);
    [first.to_be(), second.to_be()]
};

/// The ring.
#[derive(Clone, Copy)]
struct Slots<E> {
    /// As data pointers, whatever the size of its slots.
    pointers: E,
    /// log2 of the data pointers of a slot.
    log_pointers: u32,
    /// Some slot has more than one pointer, or had. In all others [`END`] stands behind the first.
    wide: bool,
}

impl<T: Probe> Slots<Entries<'_, { wqe::UNIT }, T>> {
    /// Stores the list of the receive at `head`, of one pointer; of a slot that is `wide`, with an
    /// end.
    #[inline(always)]
    fn store(&self, head: u32, one: &Segment, wide: bool) {
        let first = head << self.log_pointers;
        let pointer = wqe::data(one.addr, one.len, one.lkey);
        self.pointers.store_words::<2, 0>(first, &pointer.map(u64::to_be));
        if wide {
            self.end(first.wrapping_add(1));
        }
    }

    /// A list that does not fill its slot with one pointer.
    #[inline(never)]
    fn store_list(&mut self, head: u32, segments: &[Segment]) {
        let room = 1_usize << self.log_pointers;
        let mut at = head << self.log_pointers;
        for segment in segments.iter().take(room) {
            let pointer = wqe::data(segment.addr, segment.len, segment.lkey);
            self.pointers.store_words::<2, 0>(at, &pointer.map(u64::to_be));
            at = at.wrapping_add(1);
        }
        if segments.len() < room {
            self.end(at);
        }
        self.wide |= segments.len().min(room) > 1;
    }

    /// Ends a list before that pointer.
    #[inline(always)]
    fn end(&self, at: u32) {
        self.pointers.store_words::<2, 0>(at, &END);
    }
}

/// Posting end of a receive queue.
pub struct Rq<'p, P: Platform> {
    platform: &'p P,
    slots: Slots<Entries<'p, { wqe::UNIT }, P::Probe>>,
    record: Entries<'p, RECORD, P::Probe>,
    head: u32,
}

impl<P: Platform> fmt::Debug for Rq<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rq")
            .field("log_pointers", &self.slots.log_pointers)
            .field("head", &self.head)
            .finish_non_exhaustive()
    }
}

impl<'p, P: Platform> Rq<'p, P> {
    /// The queue over `ring`, with slots of `2^log_stride` bytes (at least one data pointer). None
    /// if it is not in the arena.
    pub(crate) fn new(platform: &'p P, ring: Ring, log_stride: u8, record: Record) -> Option<Self> {
        let slots = Slots {
            pointers: platform.memory().entries(ring.span(log_stride.into()))?,
            log_pointers: u32::from(log_stride).checked_sub(wqe::UNIT.ilog2())?,
            wide: false,
        };
        if slots.log_pointers != 0 {
            let seconds = (0..ring.slots()).map(|slot| (slot << slots.log_pointers) + 1);
            seconds.for_each(|second| slots.end(second));
        }
        Some(Self { platform, slots, record: platform.memory().entries(record.span())?, head: 0 })
    }

    /// Starts over, as the device does when the queue pair is reset.
    pub(crate) fn restart(&mut self) {
        self.head = 0;
        ring::write::<FIRST, _>(&self.record, 0);
    }

    /// Shows the device all receives so far.
    #[inline(always)]
    fn publish(&self) {
        // ORDER: the scatter lists' stores precede the counter by which the device finds them.
        self.platform.fence(Fence::BeforeRecord);
        ring::write::<FIRST, _>(&self.record, self.head & 0xffff);
    }
}

impl<P: Platform> RecvQueue for Rq<'_, P> {
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "tokens are the index modulo 2^16")]
    fn recv(&mut self, segments: &[Segment]) -> u16 {
        let token = self.head as u16;
        match segments {
            [one] => self.slots.store(self.head, one, self.slots.wide),
            _ => self.slots.store_list(self.head, segments),
        }
        self.head = self.head.wrapping_add(1);
        self.publish();
        token
    }

    #[inline(always)]
    fn recv_each(&mut self, receives: impl Iterator<Item = Segment>) {
        // All in registers, which the stores in between would not leave it in otherwise.
        let (slots, mut head) = (self.slots, self.head);
        let each = |wide| {
            for one in receives {
                slots.store(head, &one, wide);
                head = head.wrapping_add(1);
            }
        };
        // Of a constant the loop asks nothing.
        if slots.wide {
            each(true)
        } else {
            each(false)
        }
        self.head = head;
        self.publish();
    }

    fn posted(&self, token: u16, mut take: impl FnMut(Segment)) {
        let Slots { pointers, log_pointers, .. } = self.slots;
        let first = u32::from(token) << log_pointers;
        for at in 0..1 << log_pointers {
            let [first, addr] =
                pointers.load_words::<2, 0>(first.wrapping_add(at)).map(u64::from_be);
            let (len, lkey) = wqe::data_of(first);
            // No memory has that key.
            if lkey == wqe::TERMINATE {
                return;
            }
            take(Segment { addr, len, lkey });
        }
    }
}
