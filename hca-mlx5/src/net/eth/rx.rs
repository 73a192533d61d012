//! The receiving end: a ring of buffers that are posted again as soon as they have been read.
//!
//! Anybody on the segment can send a frame of the port's full length to our MAC, and a frame that
//! does not fit its receive ends the queue. So each receive is a buffer of [`FRAME_MAX`] bytes
//! followed by one page, three times over, that all receives share and nobody reads. PRM "Receive
//! WQE".

use dat_core::provider::{RecvQueue as _, Segment};

use super::config::{FRAME_MAX, PAGE};
use crate::data::Rq;
use crate::data::ring::{Record, Ring};
use crate::platform::Platform;

/// Frames that may wait to be read.
pub(super) const SLOTS: u16 = 64;
/// log2 of [`SLOTS`].
pub(super) const LOG_SLOTS: u8 = 6;
/// log2 of the bytes of a receive: four pointers.
pub(super) const LOG_STRIDE: u8 = 6;
/// Pages of all buffers.
pub(super) const PAGES: usize = SLOTS as usize * FRAME_MAX / PAGE;

/// Where the queue lies.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) ring: usize,
    pub(super) record: usize,
    pub(super) buffers: usize,
    /// Device addresses of the pages of the buffers.
    pub(super) pages: [u64; PAGES],
    /// Device address of the page that takes what is too long.
    pub(super) overflow: u64,
    pub(super) lkey: u32,
}

pub(super) struct Rx<'p, P: Platform> {
    platform: &'p P,
    rq: Rq<'p, P>,
    buffers: usize,
    pages: [u64; PAGES],
    overflow: Segment,
    /// The receive that comes next, free running.
    tail: u16,
}

impl<'p, P: Platform> Rx<'p, P> {
    /// Posts every buffer. The queue must be ready.
    pub(super) fn new(platform: &'p P, place: &Place) -> Option<Self> {
        let ring = Ring::new(place.ring, LOG_SLOTS);
        let page = u32::try_from(PAGE).unwrap_or(0);
        let mut this = Self {
            platform,
            rq: Rq::new(platform, ring, LOG_STRIDE, Record(place.record))?,
            buffers: place.buffers,
            pages: place.pages,
            overflow: Segment { addr: place.overflow, len: page, lkey: place.lkey },
            tail: 0,
        };
        for slot in 0..SLOTS {
            this.post(slot);
        }
        Some(this)
    }

    /// `token` names the receive that is next in turn.
    pub(super) fn expects(&self, token: u16) -> bool {
        token == self.tail
    }

    /// Reads the next frame in turn, `len` bytes by the device's word, and posts its buffer again.
    /// `None` if it is too long for the buffer or for `to`.
    pub(super) fn take(&mut self, len: u32, to: &mut [u8]) -> Option<usize> {
        let slot = self.tail % SLOTS;
        let at = self.buffers.wrapping_add(usize::from(slot).wrapping_mul(FRAME_MAX));
        let len = usize::try_from(len).ok().filter(|len| *len <= FRAME_MAX);
        let frame = len.and_then(|len| to.get_mut(..len));
        let taken = frame.map(|frame| {
            self.platform.memory().read_bytes(at, frame);
            frame.len()
        });
        self.tail = self.tail.wrapping_add(1);
        self.post(slot);
        taken
    }

    fn post(&mut self, slot: u16) {
        let at = usize::from(slot).wrapping_mul(FRAME_MAX);
        let page = self.pages.get(at / PAGE).copied().unwrap_or(self.overflow.addr);
        let buffer = Segment {
            addr: page.wrapping_add((at % PAGE) as u64),
            len: u32::try_from(FRAME_MAX).unwrap_or(0),
            lkey: self.overflow.lkey,
        };
        self.rq.recv(&[buffer, self.overflow, self.overflow, self.overflow]);
    }
}

const _: () = {
    assert!(1 << LOG_SLOTS == SLOTS, "the token and the ring turn over together");
    assert!(4 * 16 == 1 << LOG_STRIDE, "four pointers fill a receive");
    assert!(PAGE % FRAME_MAX == 0, "no buffer crosses a page");
    // The longest frame that does no harm.
    assert!(FRAME_MAX + 3 * PAGE > 10_240, "longer than any frame of a jumbo port");
};
