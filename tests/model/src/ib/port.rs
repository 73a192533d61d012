//! Counters of the port, as the performance agent and the registers show them.

use crate::wire::ib::lid::{self, Kind};
use crate::wire::ib::{crc::VCRC_LEN, link};

/// One direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Side {
    /// Bytes from the LRH up to and with the ICRC, by fours.
    pub(crate) words: u64,
    pub(crate) packets: u64,
    pub(crate) unicast: u64,
    pub(crate) multicast: u64,
}

impl Side {
    /// Counts a frame.
    pub(crate) fn add(&mut self, frame: &[u8]) {
        self.words += (frame.len().saturating_sub(VCRC_LEN) / 4) as u64;
        self.packets += 1;
        match link::check(frame).map(|lrh| lid::kind(lrh.dlid)) {
            Ok(Kind::Multicast) => self.multicast += 1,
            _ => self.unicast += 1,
        }
    }
}

/// Frames on the cable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) received: Side,
    pub(crate) sent: Side,
}
