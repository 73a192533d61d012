//! A packet as an engine receives it, whatever network brought it.

use crate::wire::frame::{self, Bth, Extended, Network};
use crate::wire::ib::{self, Grh, Lrh};

/// The layers below the transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layers {
    /// Ethernet and IP, or Ethernet and a GRH.
    Roce(Network),
    /// InfiniBand.
    Ib {
        /// Local route header.
        lrh: Lrh,
        /// Global route header, if there is one.
        grh: Option<Grh>,
    },
}

/// A packet without its checksums and padding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Layers 2 to 4.
    pub layers: Layers,
    /// BTH.
    pub bth: Bth,
    /// Extended headers.
    pub ext: Extended,
    /// Payload without padding.
    pub payload: Vec<u8>,
    /// Bytes that a datagram QP writes before the payload; `None` leaves the memory as it is.
    pub grh: Option<[u8; 40]>,
}

impl Packet {
    /// Whether the packet bore a congestion mark: ECN "congestion experienced", or FECN.
    #[must_use]
    pub fn congested(&self) -> bool {
        match &self.layers {
            Layers::Roce(net) => net.tclass & 3 == 3,
            Layers::Ib { .. } => self.bth.fecn,
        }
    }
}

impl From<frame::Packet> for Packet {
    fn from(packet: frame::Packet) -> Self {
        let frame::Packet { net, bth, ext, payload, grh } = packet;
        Self { layers: Layers::Roce(net), bth, ext, payload, grh: Some(grh) }
    }
}

impl From<ib::Packet> for Packet {
    fn from(packet: ib::Packet) -> Self {
        let grh = packet.grh_bytes();
        let ib::Packet { lrh, grh: global, bth, ext, payload } = packet;
        Self { layers: Layers::Ib { lrh, grh: global }, bth, ext, payload, grh }
    }
}
