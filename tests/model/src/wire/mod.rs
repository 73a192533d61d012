//! The wire: whole Ethernet frames without FCS, or whole frames of InfiniBand, in and out.
//!
//! [`Wire`] is one end of a link. [`switch`] joins such ends in one process; [`impair`] and
//! [`pcap`] wrap any end. [`frame`] and [`icrc`] know what stands in a RoCE v2 frame,
//! [`ib`] what stands in one of InfiniBand; [`headers`] is what both share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::host::Nanos;

pub(crate) mod bytes;
pub mod frame;
pub mod headers;
pub mod ib;
pub mod icrc;
pub mod impair;
pub mod opcode;
pub mod pcap;
pub mod switch;

/// One end of a link.
pub trait Wire {
    /// Puts one frame on the wire. Never blocks; a full or cut wire loses it.
    fn send(&mut self, frame: &[u8]);
    /// Puts one frame on the wire that the caller needs no more, which spares a copy.
    fn send_owned(&mut self, frame: Vec<u8>) {
        self.send(&frame);
    }
    /// The next frame that arrived.
    fn recv(&mut self) -> Option<Vec<u8>>;
    /// Tells the other end whether this one has a link. Only ends that keep a state of the port ask:
    /// those of InfiniBand.
    fn set_carrier(&mut self, _is_up: bool) {}
}

impl<W: Wire + ?Sized> Wire for Box<W> {
    fn send(&mut self, frame: &[u8]) {
        (**self).send(frame);
    }
    fn send_owned(&mut self, frame: Vec<u8>) {
        (**self).send_owned(frame);
    }
    fn recv(&mut self) -> Option<Vec<u8>> {
        (**self).recv()
    }
    fn set_carrier(&mut self, is_up: bool) {
        (**self).set_carrier(is_up);
    }
}

/// Model time, shared: the runner of the model sets it, wires and taps read it.
#[derive(Clone, Debug, Default)]
pub struct ModelClock(Arc<AtomicU64>);

impl ModelClock {
    /// The time now.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.0.load(Ordering::Relaxed)
    }

    /// Sets the time.
    pub fn set(&self, now: Nanos) {
        self.0.store(now, Ordering::Relaxed);
    }

    /// Moves the time on and returns it.
    pub fn advance(&self, by: Nanos) -> Nanos {
        self.0.fetch_add(by, Ordering::Relaxed).wrapping_add(by)
    }
}
