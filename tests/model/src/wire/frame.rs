//! RoCE frames: Ethernet, VLAN, IP and UDP (v2) or a GRH (v1) before the transport headers, parsed
//! and built.
//!
//! [`demux`] is the first thing a device does with a frame: it says whether it is RoCE traffic
//! for one of its addresses, ordinary Ethernet, or garbage that claims to be RoCE. Parsing is
//! strict: what IBTA calls malformed is dropped here and never reaches an engine.
//! Not here: fragments, IP options, multicast group membership.
//! Reference: IBTA volume 1, 9.2 to 9.6 and annex A17.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::bytes::Reader;
pub use super::headers::{Aeth, AtomicEth, BTH_LEN, Bth, Deth, Extended, Reth};
use super::headers::{BadBth, pad_count};
use super::icrc::{ICRC_LEN, icrc};
use crate::ifc::packet as layout;
use crate::transport::host::{Layer3, Mac};

/// The UDP port of RoCE v2.
pub const ROCE_PORT: u16 = 4791;
/// The only P_Key of a RoCE port, full member.
pub const DEFAULT_PKEY: u16 = 0xffff;
const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_VLAN: u16 = 0x8100;
const ETHERTYPE_ROCE: u16 = 0x8915;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const IP_UDP: u8 = 17;
/// Next header of a GRH: a BTH.
const GRH_IBA: u8 = 0x1b;
/// Bytes of a UDP header.
const UDP_LEN: usize = 8;

/// The layers below the transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// Destination MAC.
    pub dmac: Mac,
    /// Source MAC.
    pub smac: Mac,
    /// VLAN tag control information, if tagged.
    pub vlan: Option<u16>,
    /// Source address.
    pub src: IpAddr,
    /// Destination address; of the same family as `src`.
    pub dst: IpAddr,
    /// TOS or traffic class.
    pub tclass: u8,
    /// TTL or hop limit.
    pub hop_limit: u8,
    /// IPv6 flow label.
    pub flow_label: u32,
    /// IPv4 identification.
    pub ident: u16,
    /// UDP source port.
    pub udp_sport: u16,
    /// RoCE v1: the addresses are GIDs in a GRH, and there is no UDP.
    pub v1: bool,
}

/// A whole RoCE packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Layers 2 to 4.
    pub net: Network,
    /// BTH.
    pub bth: Bth,
    /// Extended headers.
    pub ext: Extended,
    /// Payload without padding.
    pub payload: Vec<u8>,
    /// Bytes that a datagram QP writes before the payload: 20 zero bytes and the IPv4 header, or
    /// the IPv6 header. Filled by parsing, ignored by building.
    pub grh: [u8; 40],
}

/// Why a frame on the RoCE port was thrown away. Never answered on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Shorter than its headers say.
    #[error("RoCE frame cut short")]
    Truncated,
    /// IP or UDP header inconsistent.
    #[error("RoCE frame with an inconsistent IP or UDP header")]
    Ip,
    /// Invariant CRC wrong.
    #[error("RoCE frame with a wrong ICRC")]
    Icrc,
    /// Transport version other than 0.
    #[error("RoCE frame of another transport version")]
    Version,
    /// Opcode reserved or of a service not implemented.
    #[error("RoCE opcode {0:#04x} not known")]
    Opcode(u8),
    /// P_Key not in the table.
    #[error("RoCE frame for partition {0:#06x}")]
    Pkey(u16),
    /// Destination QP 0.
    #[error("RoCE frame for QP 0")]
    QpZero,
}

impl From<BadBth> for Malformed {
    fn from(why: BadBth) -> Self {
        match why {
            BadBth::Short => Self::Truncated,
            BadBth::Opcode(byte) => Self::Opcode(byte),
        }
    }
}

/// Where a frame belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Demux {
    /// RoCE, intact, for an address of this device: to the QP `bth.dest_qp`.
    Roce(Box<Packet>),
    /// Not RoCE, or for an address the device does not own: to the flow tables.
    Ethernet,
    /// RoCE for this device, but to be thrown away (and counted).
    Drop(Malformed),
}

/// Sorts a frame. `is_own` tells whether an address is in the RoCE address table
/// (or a multicast group some QP has joined).
pub fn demux(frame: &[u8], is_own: impl FnOnce(&Network) -> bool) -> Demux {
    match locate(frame) {
        Ok(Some(at)) if is_own(&at.net) => match parse_transport(frame, &at) {
            Ok(packet) => Demux::Roce(Box::new(packet)),
            Err(why) => Demux::Drop(why),
        },
        Ok(_) => Demux::Ethernet,
        Err(why) => Demux::Drop(why),
    }
}

impl Packet {
    /// Parses a frame that is known to be RoCE v2, whatever its destination.
    pub fn parse(frame: &[u8]) -> Result<Self, Malformed> {
        locate(frame)?.map_or(Err(Malformed::Ip), |at| parse_transport(frame, &at))
    }

    /// The frame: headers, payload, zero padding and ICRC.
    #[must_use]
    pub fn build(&self) -> Vec<u8> {
        let pad = pad_count(self.payload.len());
        let mut bth = Vec::with_capacity(40);
        self.bth.push(&mut bth, pad);
        self.ext.push(&mut bth);
        let mut f = Vec::with_capacity(14 + 4 + 40 + 8 + bth.len() + self.payload.len() + 8);
        f.extend_from_slice(&self.net.dmac);
        f.extend_from_slice(&self.net.smac);
        if let Some(tci) = self.net.vlan {
            f.extend_from_slice(&ETHERTYPE_VLAN.to_be_bytes());
            f.extend_from_slice(&tci.to_be_bytes());
        }
        let udp = if self.net.v1 { 0 } else { UDP_LEN };
        let l4_len = clamp16(udp + bth.len() + self.payload.len() + usize::from(pad) + ICRC_LEN);
        let l3_at = f.len() + 2;
        let l3_len = self.net.push_l3(&mut f, l4_len);
        if !self.net.v1 {
            f.extend_from_slice(&self.net.udp_sport.to_be_bytes());
            f.extend_from_slice(&ROCE_PORT.to_be_bytes());
            f.extend_from_slice(&l4_len.to_be_bytes());
            f.extend_from_slice(&[0, 0]);
        }
        f.extend_from_slice(&bth);
        f.extend_from_slice(&self.payload);
        f.extend(std::iter::repeat_n(0, usize::from(pad)));
        let crc = icrc(f.get(l3_at..).unwrap_or_default(), l3_len, udp);
        f.extend_from_slice(&crc);
        f
    }

    /// Whether the packet bore ECN "congestion experienced".
    #[must_use]
    pub fn congested(&self) -> bool {
        self.net.tclass & 3 == 3
    }
}

impl Network {
    /// Appends the EtherType and the IP header; returns the length of the latter.
    fn push_l3(&self, f: &mut Vec<u8>, udp_len: u16) -> usize {
        match (self.src, self.dst) {
            (src, dst) if self.v1 => {
                f.extend_from_slice(&ETHERTYPE_ROCE.to_be_bytes());
                self.push_v6(f, udp_len, GRH_IBA, src, dst);
                40
            }
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                f.extend_from_slice(&ETHERTYPE_IPV4.to_be_bytes());
                let mut h = Vec::with_capacity(20);
                h.extend_from_slice(&[0x45, self.tclass]);
                h.extend_from_slice(&udp_len.saturating_add(20).to_be_bytes());
                h.extend_from_slice(&self.ident.to_be_bytes());
                // Don't fragment: an RDMA packet has no use for pieces.
                h.extend_from_slice(&[0x40, 0, self.hop_limit, IP_UDP, 0, 0]);
                h.extend_from_slice(&src.octets());
                h.extend_from_slice(&dst.octets());
                let sum = ones_complement(&h);
                if let Some(place) = h.get_mut(10..12) {
                    place.copy_from_slice(&(!sum).to_be_bytes());
                }
                f.extend_from_slice(&h);
                20
            }
            (src, dst) => {
                f.extend_from_slice(&ETHERTYPE_IPV6.to_be_bytes());
                self.push_v6(f, udp_len, IP_UDP, src, dst);
                40
            }
        }
    }

    /// An IPv6 header, or the GRH, which has the same form.
    fn push_v6(&self, f: &mut Vec<u8>, len: u16, next: u8, src: IpAddr, dst: IpAddr) {
        let word = 6 << 28 | u32::from(self.tclass) << 20 | self.flow_label & 0xf_ffff;
        f.extend_from_slice(&word.to_be_bytes());
        f.extend_from_slice(&len.to_be_bytes());
        f.extend_from_slice(&[next, self.hop_limit]);
        f.extend_from_slice(&as_v6(src).octets());
        f.extend_from_slice(&as_v6(dst).octets());
    }

    /// The network layer by name.
    #[must_use]
    pub fn layer3(&self) -> Layer3 {
        match (self.v1, self.src) {
            (true, _) => Layer3::Grh,
            (false, IpAddr::V6(_)) => Layer3::Ipv6,
            (false, IpAddr::V4(_)) => Layer3::Ipv4,
        }
    }
}

/// The IPv6 form of an address: IPv4 addresses are mapped.
fn as_v6(ip: IpAddr) -> Ipv6Addr {
    match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}

fn clamp16(n: usize) -> u16 {
    u16::try_from(n).unwrap_or(u16::MAX)
}

/// The Internet checksum's sum, not inverted.
fn ones_complement(bytes: &[u8]) -> u16 {
    let mut sum = 0u32;
    for pair in bytes.chunks(2) {
        let word = match *pair {
            [hi, lo] => u16::from_be_bytes([hi, lo]),
            [hi] => u16::from_be_bytes([hi, 0]),
            _ => 0,
        };
        sum += u32::from(word);
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u16::try_from(sum).unwrap_or(u16::MAX)
}

/// Where the layers of a RoCE candidate stand in its frame.
struct Located {
    net: Network,
    l3_at: usize,
    l3_len: usize,
    /// Bytes between the network header and the BTH.
    l4_len: usize,
    /// End of the UDP datagram: trailing bytes of the frame are none of it.
    end: usize,
}

/// Finds layers 2 to 4. `Ok(None)`: not UDP to the RoCE port, nothing for us to judge.
fn locate(frame: &[u8]) -> Result<Option<Located>, Malformed> {
    let mut r = Reader::new(frame);
    let Some((dmac, smac, mut ethertype)) = (|| Some((r.array()?, r.array()?, r.u16()?)))() else {
        return Ok(None);
    };
    let mut vlan = None;
    if ethertype == ETHERTYPE_VLAN {
        let Some((tci, inner)) = (|| Some((r.u16()?, r.u16()?)))() else {
            return Ok(None);
        };
        vlan = Some(tci);
        ethertype = inner;
    }
    let l3_at = r.position();
    let mut net = Network {
        dmac,
        smac,
        vlan,
        src: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        dst: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        tclass: 0,
        hop_limit: 0,
        flow_label: 0,
        ident: 0,
        udp_sport: 0,
        v1: ethertype == ETHERTYPE_ROCE,
    };
    let l3 = match ethertype {
        ETHERTYPE_IPV4 => ipv4(&mut r, &mut net),
        ETHERTYPE_IPV6 => ipv6(&mut r, &mut net, IP_UDP),
        ETHERTYPE_ROCE => ipv6(&mut r, &mut net, GRH_IBA),
        _ => None,
    };
    let Some(L3 { header, total, whole }) = l3 else {
        return Ok(None);
    };
    let end = l3_at + total;
    if net.v1 {
        if end > frame.len() {
            return Err(Malformed::Truncated);
        }
        // A GID that holds an IPv4 address is known by that address, as everywhere.
        for ip in [&mut net.src, &mut net.dst] {
            *ip = ip.to_canonical();
        }
        return Ok(Some(Located { net, l3_at, l3_len: header, l4_len: 0, end }));
    }
    let Some((sport, dport, udp_len)) = (|| Some((r.u16()?, r.u16()?, r.u16()?)))() else {
        return Ok(None);
    };
    if dport != ROCE_PORT {
        return Ok(None);
    }
    net.udp_sport = sport;
    if !whole || usize::from(udp_len) + header != total {
        return Err(Malformed::Ip);
    }
    if end > frame.len() {
        return Err(Malformed::Truncated);
    }
    Ok(Some(Located { net, l3_at, l3_len: header, l4_len: UDP_LEN, end }))
}

/// Whether a frame is one of RoCE, well formed or not.
pub(crate) fn is_roce(frame: &[u8]) -> bool {
    !matches!(locate(frame), Ok(None))
}

/// A frame of RoCE for another partition, with the ICRC that belongs to it; `None` of any other
/// frame.
pub(crate) fn with_pkey(frame: &[u8], pkey: u16) -> Option<Vec<u8>> {
    let at = locate(frame).ok()??;
    let mut other = frame.to_vec();
    let packet = other.get_mut(at.l3_at..at.end)?;
    let body_len = packet.len().checked_sub(ICRC_LEN)?;
    let (body, crc) = packet.split_at_mut_checked(body_len)?;
    let bth = body.get_mut(at.l3_len + at.l4_len..)?;
    layout::bth::p_key.set(bth.get_mut(..BTH_LEN)?, pkey.into());
    crc.copy_from_slice(&icrc(body, at.l3_len, at.l4_len));
    Some(other)
}

/// Fields of an IP header.
struct L3 {
    header: usize,
    total: usize,
    /// Header checksum right, no options, no fragment.
    whole: bool,
}

fn ipv4(r: &mut Reader<'_>, net: &mut Network) -> Option<L3> {
    let header: [u8; 20] = r.array()?;
    let mut h = Reader::new(&header);
    let first = h.u8()?;
    net.tclass = h.u8()?;
    let total = h.u16()?;
    net.ident = h.u16()?;
    let fragment = h.u16()?;
    net.hop_limit = h.u8()?;
    let protocol = h.u8()?;
    let _checksum = h.u16()?;
    net.src = IpAddr::from(h.array::<4>()?);
    net.dst = IpAddr::from(h.array::<4>()?);
    if first >> 4 != 4 || protocol != IP_UDP {
        return None;
    }
    if first != 0x45 || fragment & 0x3fff != 0 {
        // With options or in pieces the ports are elsewhere: plain Ethernet traffic.
        return None;
    }
    Some(L3 { header: 20, total: total.into(), whole: ones_complement(&header) == 0xffff })
}

fn ipv6(r: &mut Reader<'_>, net: &mut Network, protocol: u8) -> Option<L3> {
    let word = r.u32()?;
    let payload = r.u16()?;
    let next = r.u8()?;
    net.hop_limit = r.u8()?;
    net.src = IpAddr::from(r.array::<16>()?);
    net.dst = IpAddr::from(r.array::<16>()?);
    net.tclass = u8::try_from(word >> 20 & 0xff).ok()?;
    net.flow_label = word & 0xf_ffff;
    (word >> 28 == 6 && next == protocol).then_some(L3 {
        header: 40,
        total: usize::from(payload) + 40,
        whole: true,
    })
}

/// Parses from the BTH on and checks the ICRC.
fn parse_transport(frame: &[u8], at: &Located) -> Result<Packet, Malformed> {
    let packet = frame.get(at.l3_at..at.end).ok_or(Malformed::Truncated)?;
    let body_len = packet.len().checked_sub(ICRC_LEN).ok_or(Malformed::Truncated)?;
    let (body, crc) = packet.split_at_checked(body_len).ok_or(Malformed::Truncated)?;
    let transport = body.get(at.l3_len + at.l4_len..).ok_or(Malformed::Truncated)?;
    let mut r = Reader::new(transport);
    let (bth, pad, version) = Bth::parse(&mut r)?;
    if icrc(body, at.l3_len, at.l4_len) != *crc {
        return Err(Malformed::Icrc);
    }
    if version != 0 {
        return Err(Malformed::Version);
    }
    if bth.dest_qp == 0 {
        return Err(Malformed::QpZero);
    }
    if bth.pkey & 0x7fff != DEFAULT_PKEY & 0x7fff {
        return Err(Malformed::Pkey(bth.pkey));
    }
    let ext = Extended::parse(&mut r, bth.service, bth.opcode).ok_or(Malformed::Truncated)?;
    let rest = r.rest();
    let len = rest.len().checked_sub(pad).ok_or(Malformed::Truncated)?;
    let payload = rest.get(..len).ok_or(Malformed::Truncated)?.to_vec();
    let mut grh = [0; 40];
    let header = packet.get(..at.l3_len).ok_or(Malformed::Truncated)?;
    if let Some(place) = 40usize.checked_sub(at.l3_len).and_then(|n| grh.get_mut(n..)) {
        place.copy_from_slice(header);
    }
    Ok(Packet { net: at.net, bth, ext, payload, grh })
}

#[cfg(test)]
mod tests;
