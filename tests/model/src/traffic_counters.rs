//! Traffic of the port and the vport, by kind of destination, size and priority.
//!
//! The port counts every frame on the wire, with its frame check sequence; the vport counts what
//! its own queues sent and took, Ethernet and RDMA apart, without it. A frame that turns round
//! inside the device passes the vport and never the port. Nothing here is lost by a reset of the
//! function.

use crate::wire::ib::lid::{self, Kind};

/// Bytes of the frame check sequence, which the model's frames do not carry.
const FCS: u64 = 4;

/// Frames and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) packets: u64,
    pub(crate) octets: u64,
}

impl Tally {
    fn add(&mut self, octets: u64) {
        self.packets += 1;
        self.octets += octets;
    }
}

/// Frames by kind of destination.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Casts {
    pub(crate) unicast: Tally,
    pub(crate) multicast: Tally,
    pub(crate) broadcast: Tally,
}

impl Casts {
    fn add(&mut self, frame: &[u8], octets: u64) {
        let to = frame.get(..6).unwrap_or(&[]);
        let tally = match to.first() {
            Some(first) if first & 1 == 0 => &mut self.unicast,
            _ if to == [0xff; 6] => &mut self.broadcast,
            _ => &mut self.multicast,
        };
        tally.add(octets);
    }

    /// Adds a frame of InfiniBand.
    fn add_ib(&mut self, frame: &[u8]) {
        let dlid = frame.get(2..4).map_or(0, |b| u16::from_be_bytes([b[0], b[1]]));
        let is_group = lid::kind(dlid) == Kind::Multicast;
        let tally = if is_group { &mut self.multicast } else { &mut self.unicast };
        tally.add(frame.len() as u64);
    }

    /// Every frame.
    pub(crate) fn all(&self) -> Tally {
        [self.multicast, self.broadcast].iter().fold(self.unicast, |acc, one| Tally {
            packets: acc.packets + one.packets,
            octets: acc.octets + one.octets,
        })
    }
}

/// Upper ends of the size classes of RFC 2819 and its continuation, FCS included.
const SIZES: [u64; 9] = [64, 127, 255, 511, 1023, 1518, 2047, 4095, 8191];

/// One direction of the port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PortSide {
    pub(crate) casts: Casts,
    /// By size class.
    pub(crate) sizes: [u64; SIZES.len() + 1],
    /// By priority of the VLAN tag; untagged frames are priority 0.
    pub(crate) priorities: [Tally; 8],
    /// Frames larger than the port's MTU.
    pub(crate) too_long: u64,
}

impl PortSide {
    /// Counts a frame on the wire.
    pub(crate) fn add(&mut self, frame: &[u8]) {
        let octets = frame.len() as u64 + FCS;
        self.casts.add(frame, octets);
        let class = SIZES.iter().position(|end| octets <= *end);
        self.sizes[class.unwrap_or(SIZES.len())] += 1;
        let priority = match frame.get(12..15) {
            Some([0x81, 0x00, tci]) => usize::from(tci >> 5),
            _ => 0,
        };
        self.priorities[priority].add(octets);
    }
}

/// One direction of the vport.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct VportSide {
    pub(crate) ethernet: Casts,
    pub(crate) rdma: Casts,
}

impl VportSide {
    /// Counts a frame of the function.
    pub(crate) fn add(&mut self, frame: &[u8], rdma: bool) {
        let casts = if rdma { &mut self.rdma } else { &mut self.ethernet };
        casts.add(frame, frame.len() as u64);
    }

    /// Counts a frame of the function on an InfiniBand port.
    pub(crate) fn add_ib(&mut self, frame: &[u8]) {
        self.rdma.add_ib(frame);
    }
}

/// All of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TrafficCounters {
    pub(crate) port_in: PortSide,
    pub(crate) port_out: PortSide,
    pub(crate) vport_in: VportSide,
    pub(crate) vport_out: VportSide,
    /// Frames for the port, but not for the function.
    pub(crate) filtered: u64,
    /// Frames that no flow entry wanted, or that a queue had no place for.
    pub(crate) discarded: u64,
    /// How often the link went down.
    pub(crate) link_down: u32,
}
