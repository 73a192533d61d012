//! The receive queue of a queue pair: scatter lists in a ring, a counter in the doorbell record.
//!
//! PRM "Receive work queue". A receive is a list of data pointers that fills its slot or ends with
//! the terminating key. There is no doorbell register: the device fetches the counter when it needs
//! a receive.

use core::fmt;

use dat_core::provider::{RecvQueue, Segment};

use super::ring::{self, FIRST, RECORD, Record, Ring};
use crate::platform::dma::{Cursor, Entries, First, Probe};
use crate::platform::{Fence, Platform};
use crate::prm::wqe;

/// A pointer that ends a list, in the order of the device's bytes.
pub(super) const END: [u64; 2] = {
    let [first, second] = wqe::data(0, 0, wqe::TERMINATE);
    [first.to_be(), second.to_be()]
};

/// The shape of its slots.
#[derive(Clone, Copy)]
struct Slots {
    /// log2 of the data pointers of a slot.
    log_pointers: u8,
    /// Some slot has more than one pointer, or had. In all others [`END`] stands behind the first.
    wide: bool,
}

/// The ring, as data pointers, whatever the size of its slots.
type Pointers<'m, T> = Entries<'m, { wqe::UNIT }, T>;

impl Slots {
    /// Stores the list of the receive at `head`, of one pointer; of a slot that is `wide`, with an
    /// end.
    #[inline(always)]
    fn store<T: Probe>(&self, ring: &Pointers<'_, T>, head: u32, one: &Segment, wide: bool) {
        let first = head << self.log_pointers;
        let pointer = wqe::data(one.addr, one.len, one.lkey);
        ring.store_words::<2, 0>(first, &pointer.map(u64::to_be));
        if wide {
            end(ring, first.wrapping_add(1));
        }
    }

    /// A list that does not fill its slot with one pointer.
    #[inline(never)]
    fn store_list<T: Probe>(&mut self, ring: &Pointers<'_, T>, head: u32, segments: &[Segment]) {
        let room = 1_usize << self.log_pointers;
        let mut at = head << self.log_pointers;
        for segment in segments.iter().take(room) {
            let pointer = wqe::data(segment.addr, segment.len, segment.lkey);
            ring.store_words::<2, 0>(at, &pointer.map(u64::to_be));
            at = at.wrapping_add(1);
        }
        if segments.len() < room {
            end(ring, at);
        }
        self.wide |= segments.len().min(room) > 1;
    }
}

/// Ends a list before that pointer.
#[inline(always)]
fn end<T: Probe>(ring: &Pointers<'_, T>, at: u32) {
    ring.store_words::<2, 0>(at, &END);
}

/// log2 of a data pointer.
const LOG_UNIT: u8 = 4;

const _: () = assert!(1 << LOG_UNIT == wqe::UNIT);

/// Posting end of a receive queue.
pub struct Rq<'p, P: Platform> {
    /// The ring as data pointers, and the index of the next receive.
    pointers: Cursor<'p, { wqe::UNIT }, P::Probe>,
    platform: &'p P,
    record: First<'p, RECORD, P::Probe>,
    slots: Slots,
}

impl<P: Platform> fmt::Debug for Rq<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rq")
            .field("log_pointers", &self.slots.log_pointers)
            .field("head", &self.pointers.head)
            .finish_non_exhaustive()
    }
}

impl<'p, P: Platform> Rq<'p, P> {
    /// The queue over `ring`, with slots of `2^log_stride` bytes (at least one data pointer). None
    /// if it is not in the arena.
    pub(crate) fn new(platform: &'p P, ring: Ring, log_stride: u8, record: Record) -> Option<Self> {
        let memory = platform.memory();
        let pointers = memory.entries(ring.span(log_stride.into()))?;
        let log_pointers = log_stride.checked_sub(LOG_UNIT)?;
        if log_pointers != 0 {
            let seconds = (0..ring.slots()).map(|slot| (slot << log_pointers) + 1);
            seconds.for_each(|second| end(&pointers, second));
        }
        Some(Self {
            pointers: pointers.cursor(),
            platform,
            record: memory.entries(record.span())?.first(),
            slots: Slots { log_pointers, wide: false },
        })
    }

    /// Starts over, as the device does when the queue pair is reset.
    pub(crate) fn restart(&mut self) {
        self.pointers.head = 0;
        ring::write::<FIRST, _>(&self.record.of(self.platform.memory()), 0);
    }

    /// Shows the device all receives so far.
    #[inline(always)]
    fn publish(&self) {
        // ORDER: the scatter lists' stores precede the counter by which the device finds them.
        self.platform.fence(Fence::BeforeRecord);
        ring::write::<FIRST, _>(
            &self.record.of(self.platform.memory()),
            self.pointers.head & 0xffff,
        );
    }
}

impl<P: Platform> RecvQueue for Rq<'_, P> {
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "tokens are the index modulo 2^16")]
    fn recv(&mut self, segments: &[Segment]) -> u16 {
        let token = self.pointers.head as u16;
        let ring = self.pointers.of(self.platform.memory());
        match segments {
            [one] => self.slots.store(&ring, self.pointers.head, one, self.slots.wide),
            _ => self.slots.store_list(&ring, self.pointers.head, segments),
        }
        self.pointers.head = self.pointers.head.wrapping_add(1);
        self.publish();
        token
    }

    #[inline(always)]
    fn recv_each(&mut self, receives: impl Iterator<Item = Segment>) {
        // All in registers, which the stores in between would not leave it in otherwise.
        let (slots, mut head) = (self.slots, self.pointers.head);
        let ring = self.pointers.of(self.platform.memory());
        let each = |wide| {
            for one in receives {
                slots.store(&ring, head, &one, wide);
                head = head.wrapping_add(1);
            }
        };
        // Of a constant the loop asks nothing.
        if slots.wide {
            each(true)
        } else {
            each(false)
        }
        self.pointers.head = head;
        self.publish();
    }

    fn posted(&self, token: u16, mut take: impl FnMut(Segment)) {
        let log_pointers = self.slots.log_pointers;
        let pointers = self.pointers.of(self.platform.memory());
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
