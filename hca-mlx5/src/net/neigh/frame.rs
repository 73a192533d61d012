//! Ethernet frames with at most one VLAN tag: the header both ways, and the bytes of a frame to be
//! sent.
//!
//! smoltcp reads Ethernet without tags, so the tag is read and written here by hand.

use heapless::Vec;
use smoltcp::wire::{EthernetAddress, EthernetFrame};

/// A 48-bit Ethernet address.
pub type Mac = [u8; 6];

/// Largest frame made here: Ethernet, tag, IPv6, neighbour advertisement with its option.
pub const FRAME: usize = 14 + 4 + 40 + 24 + 8;
/// Frames shorter than this are padded, as the wire would; with a tag four bytes more, since a
/// switch may take it off.
const SHORTEST: usize = 60;

/// A frame to be sent, without frame check sequence.
pub type Frame = Vec<u8, FRAME>;

/// EtherType of ARP.
pub(super) const ARP: u16 = 0x0806;
/// EtherType of IPv6.
pub(super) const IPV6: u16 = 0x86dd;
/// EtherType of an 802.1Q tag.
const VLAN: u16 = 0x8100;

/// The VLAN this port is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tag(Option<u16>);

impl Tag {
    /// `None` for an identifier outside 1..=4094.
    pub(super) fn new(vlan: Option<u16>) -> Option<Self> {
        vlan.is_none_or(|vlan| (1..=4094).contains(&vlan)).then_some(Self(vlan))
    }

    /// The identifier.
    pub(super) fn vlan(self) -> Option<u16> {
        self.0
    }
}

/// The address of one station: unicast and not zero.
pub(super) fn is_station(mac: Mac) -> bool {
    EthernetAddress(mac).is_unicast() && mac != [0; 6]
}

/// A received frame taken apart.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header<'a> {
    pub(super) destination: Mac,
    pub(super) source: Mac,
    /// `None` for untagged and priority-tagged frames.
    pub(super) vlan: Option<u16>,
    pub(super) ethertype: u16,
    pub(super) payload: &'a [u8],
}

/// Takes a frame apart; `None` if it is too short for its headers or comes from no station.
pub(super) fn parse(bytes: &[u8]) -> Option<Header<'_>> {
    let frame = EthernetFrame::new_checked(bytes).ok()?;
    let EthernetAddress(destination) = frame.dst_addr();
    let EthernetAddress(source) = frame.src_addr();
    if !is_station(source) {
        return None;
    }
    let (outer, rest) = bytes.get(12..)?.split_first_chunk()?;
    let (vlan, ethertype, payload) = if u16::from_be_bytes(*outer) == VLAN {
        let (tci, rest) = rest.split_first_chunk()?;
        let (inner, rest) = rest.split_first_chunk()?;
        let id = u16::from_be_bytes(*tci) & 0xfff;
        ((id != 0).then_some(id), u16::from_be_bytes(*inner), rest)
    } else {
        (None, u16::from_be_bytes(*outer), rest)
    };
    Some(Header { destination, source, vlan, ethertype, payload })
}

/// Makes a frame: header, tag, payload, padding.
pub(super) fn build(
    tag: Tag,
    destination: Mac,
    source: Mac,
    ethertype: u16,
    payload: &[u8],
) -> Option<Frame> {
    let mut frame = Frame::new();
    let mut shortest = SHORTEST;
    let [a, b] = ethertype.to_be_bytes();
    let [v, w] = VLAN.to_be_bytes();
    let [c, d] = tag.0.unwrap_or(0).to_be_bytes();
    let (tagged, plain) = ([v, w, c, d, a, b], [a, b]);
    let kind: &[u8] = if tag.0.is_some() {
        shortest += 4;
        &tagged
    } else {
        &plain
    };
    for part in [&destination, &source, kind, payload] {
        frame.extend_from_slice(part).ok()?;
    }
    frame.resize_default(frame.len().max(shortest)).ok()?;
    Some(frame)
}
