//! From a draft of a packet to a frame on the wire: addresses, BTH, sending.

use super::host::{Host, IbPath, Path, QpAttr, QpKind, RocePath};
use super::psn;
use crate::wire::frame::{Bth, Extended, Network, Packet};
use crate::wire::ib::lid::PERMISSIVE;
use crate::wire::ib::{self, Grh, Lrh, Next, VL_MANAGEMENT};
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
        let frame = match path {
            Path::Roce(path) => self.roce_frame(attr, path, dest_qp, host),
            Path::Ib(path) => self.ib_frame(attr, path, dest_qp, host),
        };
        if let Some(frame) = frame {
            host.transmit(frame);
        }
    }

    fn bth(&self, attr: &QpAttr, dest_qp: u32, host: &dyn Host) -> Bth {
        Bth {
            service: service_of(attr.kind),
            opcode: self.opcode,
            solicited: self.solicited,
            // No alternate path is loaded, so the migration state is "migrated".
            migrated: true,
            pkey: host.p_key(attr.pkey_index),
            fecn: false,
            becn: false,
            dest_qp: dest_qp & psn::MASK,
            ack_req: self.ack_req,
            psn: self.psn & psn::MASK,
        }
    }

    fn ib_frame(
        self,
        attr: &QpAttr,
        path: &IbPath,
        dest_qp: u32,
        host: &mut dyn Host,
    ) -> Option<Vec<u8>> {
        let own = host.ib_source(path)?;
        let grh = path.global.map(|global| Grh {
            tclass: global.tclass,
            flow_label: global.flow_label,
            hop_limit: global.hop_limit,
            sgid: own.sgid,
            dgid: global.dgid,
        });
        // Before a manager gives it a LID, a port sends subnet management under the permissive one.
        let (vl, slid) = match (attr.kind, own.slid) {
            (QpKind::Smi, 0) => (VL_MANAGEMENT, PERMISSIVE),
            (QpKind::Smi, slid) => (VL_MANAGEMENT, slid),
            (_, slid) => (own.vl, slid),
        };
        let next = if grh.is_some() { Next::Grh } else { Next::Bth };
        let lrh = Lrh { vl, sl: path.sl, next, dlid: path.dlid, slid };
        let bth = self.bth(attr, dest_qp, host);
        let packet = ib::Packet { lrh, grh, bth, ext: self.ext, payload: self.payload };
        Some(packet.build())
    }

    fn roce_frame(
        self,
        attr: &QpAttr,
        path: &RocePath,
        dest_qp: u32,
        host: &mut dyn Host,
    ) -> Option<Vec<u8>> {
        let own = host.roce_address(path.source_index)?;
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
            bth: self.bth(attr, dest_qp, host),
            ext: self.ext,
            payload: self.payload,
            grh: [0; 40],
        };
        Some(packet.build())
    }
}

/// The service of a kind of QP; a UMR queue never gets as far as the wire.
fn service_of(kind: QpKind) -> Service {
    match kind {
        QpKind::Rc | QpKind::RegUmr => Service::Rc,
        QpKind::Uc => Service::Uc,
        QpKind::XrcInitiator | QpKind::XrcTarget => Service::Xrc,
        QpKind::Ud | QpKind::Gsi | QpKind::Smi => Service::Ud,
    }
}
