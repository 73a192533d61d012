//! Ethernet frames with at most one VLAN tag: the header both ways, and the bytes of a frame to be sent.
//!
//! smoltcp reads Ethernet without tags, so the tag is read and written here by hand.

use heapless::Vec;
use smoltcp::wire::{EthernetAddress, EthernetFrame, EthernetProtocol};

/// A 48-bit Ethernet address.
pub type Mac = [u8; 6];

/// Largest frame made here: Ethernet, tag, IPv6, neighbour advertisement with its option.
pub const FRAME: usize = 14 + 4 + 40 + 24 + 8;
/// Frames shorter than this are padded, as the wire would; with a tag four bytes more, since a switch may take it off.
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
        vlan.is_none_or(|vlan| (1..=4094).contains(&vlan))
            .then_some(Self(vlan))
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
    Some(Header {
        destination,
        source,
        vlan,
        ethertype,
        payload,
    })
}

/// Makes a frame: header, tag, `len` bytes that `fill` writes, padding.
pub(super) fn build(
    tag: Tag,
    destination: Mac,
    source: Mac,
    ethertype: u16,
    len: usize,
    fill: impl FnOnce(&mut [u8]),
) -> Option<Frame> {
    let mut frame = Frame::new();
    frame.resize_default(14).ok()?;
    let mut header = EthernetFrame::new_unchecked(frame.as_mut_slice());
    header.set_dst_addr(EthernetAddress(destination));
    header.set_src_addr(EthernetAddress(source));
    header.set_ethertype(EthernetProtocol::from(if tag.0.is_some() {
        VLAN
    } else {
        ethertype
    }));
    let mut shortest = SHORTEST;
    if let Some(vlan) = tag.0 {
        frame.extend_from_slice(&vlan.to_be_bytes()).ok()?;
        frame.extend_from_slice(&ethertype.to_be_bytes()).ok()?;
        shortest += 4;
    }
    let start = frame.len();
    frame.resize_default(start.checked_add(len)?).ok()?;
    fill(frame.get_mut(start..)?);
    if frame.len() < shortest {
        frame.resize_default(shortest).ok()?;
    }
    Some(frame)
}
