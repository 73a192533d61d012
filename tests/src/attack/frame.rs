//! Whole Ethernet frames: ARP, Neighbor Discovery, RoCE datagrams and packets of connections.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use mlx5_model::wire::frame::{Bth, DEFAULT_PKEY, Deth, Extended, Network, Packet};
use mlx5_model::wire::opcode::{Opcode, Service};

type Mac = [u8; 6];

/// The Q_Key of every QP1.
pub(super) const QP1_KEY: u32 = 0x8001_0000;

/// A packet of a connection as its peer would send it: service RC, no extended headers yet.
#[must_use]
pub fn roce(
    [smac, dmac]: [Mac; 2],
    [src, dst]: [IpAddr; 2],
    opcode: Opcode,
    qp: u32,
    psn: u32,
) -> Packet {
    let net = Network {
        dmac,
        smac,
        vlan: None,
        src,
        dst,
        tclass: 0,
        hop_limit: 64,
        flow_label: 0,
        ident: 1,
        udp_sport: 0xc001,
        v1: false,
    };
    let bth = Bth {
        service: Service::Rc,
        opcode,
        solicited: false,
        migrated: true,
        pkey: DEFAULT_PKEY,
        fecn: false,
        becn: false,
        dest_qp: qp & 0xff_ffff,
        ack_req: true,
        psn: psn & 0xff_ffff,
    };
    Packet { net, bth, ext: Extended::default(), payload: Vec::new(), grh: [0; 40] }
}

/// A datagram from QP1 of `src` to QP1 of `dst`; a MAD if the payload is one.
#[must_use]
pub fn datagram(macs: [Mac; 2], addrs: [IpAddr; 2], payload: &[u8]) -> Vec<u8> {
    let mut packet = roce(macs, addrs, Opcode::UdSendOnly, 1, 0);
    packet.bth.service = Service::Ud;
    packet.bth.ack_req = false;
    packet.ext.deth = Some(Deth { qkey: QP1_KEY, src_qp: 1 });
    packet.payload = payload.to_vec();
    packet.build()
}

fn ethernet(dmac: Mac, smac: Mac, ethertype: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(60);
    frame.extend(dmac);
    frame.extend(smac);
    frame.extend(ethertype.to_be_bytes());
    frame.extend(payload);
    frame.resize(frame.len().max(60), 0);
    frame
}

/// An ARP message of that operation: request 1, reply 2. Sender and target as MAC and address.
#[must_use]
pub fn arp(
    [smac, dmac]: [Mac; 2],
    operation: u16,
    sender: (Mac, Ipv4Addr),
    target: (Mac, Ipv4Addr),
) -> Vec<u8> {
    let mut body = vec![0, 1, 8, 0, 6, 4];
    body.extend(operation.to_be_bytes());
    for (mac, addr) in [sender, target] {
        body.extend(mac);
        body.extend(addr.octets());
    }
    ethernet(dmac, smac, 0x0806, &body)
}

/// A message of Neighbor Discovery.
#[derive(Clone, Debug)]
pub struct Nd {
    /// Solicitation 135, advertisement 136.
    pub kind: u8,
    /// ICMPv6 code.
    pub code: u8,
    /// Router, solicited, override: the upper three bits.
    pub flags: u8,
    /// IPv6 hop limit.
    pub hop_limit: u8,
    /// Source address.
    pub from: Ipv6Addr,
    /// Destination address.
    pub to: Ipv6Addr,
    /// Address that the message is about.
    pub target: Ipv6Addr,
    /// Options as bytes.
    pub options: Vec<u8>,
    /// Added to the checksum.
    pub spoil: u16,
}

impl Nd {
    /// A well-formed message about `target`, whose option gives `mac`: the link-layer address of
    /// the sender for a solicitation, of the target for an advertisement.
    #[must_use]
    pub fn new(kind: u8, flags: u8, from: Ipv6Addr, to: Ipv6Addr, target: Ipv6Addr) -> Self {
        Self {
            kind,
            code: 0,
            flags,
            hop_limit: 255,
            from,
            to,
            target,
            options: Vec::new(),
            spoil: 0,
        }
    }

    /// Adds the option that goes with the kind.
    #[must_use]
    pub fn with_mac(mut self, mac: Mac) -> Self {
        self.options.extend([if self.kind == 135 { 1 } else { 2 }, 1]);
        self.options.extend(mac);
        self
    }
}

/// The frame of a message of Neighbor Discovery.
#[must_use]
pub fn nd([smac, dmac]: [Mac; 2], message: &Nd) -> Vec<u8> {
    let mut body = vec![message.kind, message.code, 0, 0, message.flags, 0, 0, 0];
    body.extend(message.target.octets());
    body.extend(&message.options);
    let mut sum = 58 + body.len() as u32;
    let parts = [&message.from.octets()[..], &message.to.octets()[..], &body[..]];
    for pair in parts.iter().flat_map(|part| part.chunks(2)) {
        sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let sum = (!(sum as u16)).wrapping_add(message.spoil);
    body[2..4].copy_from_slice(&sum.to_be_bytes());
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend((body.len() as u16).to_be_bytes());
    packet.extend([58, message.hop_limit]);
    packet.extend(message.from.octets());
    packet.extend(message.to.octets());
    packet.extend(body);
    ethernet(dmac, smac, 0x86dd, &packet)
}
