//! From a draft of a packet to a frame on the wire: addresses, BTH, sending.

use super::host::{Host, Path, QpAttr, QpKind};
use super::psn;
use crate::wire::frame::{Bth, DEFAULT_PKEY, Extended, Network, Packet};
use crate::wire::opcode::{Opcode, Service};

/// The part of a packet an engine decides.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) opcode: Opcode,
    pub(super) psn: u32,
    pub(super) solicited: bool,
    pub(super) ack_req: bool,
    pub(super) ext: Extended,
    pub(super) payload: Vec<u8>,
}

impl Draft {
    /// A packet with nothing but opcode and PSN.
    pub(super) fn new(opcode: Opcode, psn: u32) -> Self {
        Self {
            opcode,
            psn,
            solicited: false,
            ack_req: false,
            ext: Extended::default(),
            payload: Vec::new(),
        }
    }

    /// Sends it to the peer of a connection.
    pub(super) fn send(self, attr: &QpAttr, host: &mut dyn Host) {
        self.send_to(attr, &attr.path, attr.remote_qpn, host);
    }

    /// Sends it along `path`. A path whose source address is gone from the table loses the
    /// packet: the peer, and in the end the retry counter, will notice.
    pub(super) fn send_to(self, attr: &QpAttr, path: &Path, dest_qp: u32, host: &mut dyn Host) {
        let Some(own) = host.roce_address(path.source_index) else {
            return;
        };
        let udp_sport = match path.udp_sport {
            0 => 0xc000 | u16::try_from(attr.qpn & 0x3fff).unwrap_or(0),
            port => port,
        };
        let packet = Packet {
            net: Network {
                dmac: path.dmac,
                smac: own.mac,
                vlan: own.vlan.map(|id| u16::from(path.priority & 7) << 13 | id & 0xfff),
                src: own.ip,
                dst: path.dst,
                tclass: path.tclass,
                hop_limit: path.hop_limit,
                flow_label: path.flow_label,
                // Free running, and free of state: the PSN is both.
                ident: u16::try_from(self.psn & 0xffff).unwrap_or(0),
                udp_sport,
                v1: own.v1,
            },
            bth: Bth {
                service: service_of(attr.kind),
                opcode: self.opcode,
                solicited: self.solicited,
                // No alternate path is loaded, so the migration state is "migrated".
                migrated: true,
                pkey: DEFAULT_PKEY,
                fecn: false,
                becn: false,
                dest_qp: dest_qp & psn::MASK,
                ack_req: self.ack_req,
                psn: self.psn & psn::MASK,
            },
            ext: self.ext,
            payload: self.payload,
            grh: [0; 40],
        };
        host.transmit(packet.build());
    }
}

/// The service of a kind of QP; a UMR queue never gets as far as the wire.
fn service_of(kind: QpKind) -> Service {
    match kind {
        QpKind::Rc | QpKind::RegUmr => Service::Rc,
        QpKind::Uc => Service::Uc,
        QpKind::XrcInitiator | QpKind::XrcTarget => Service::Xrc,
        QpKind::Ud | QpKind::Gsi => Service::Ud,
    }
}
