//! Neighbor Discovery (RFC 4861): solicitations and advertisements, for IPv6.

use core::net::{IpAddr, Ipv6Addr};

use dat_core::Instant;
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    EthernetAddress, Icmpv6Packet, Icmpv6Repr, IpProtocol, Ipv6Packet, Ipv6Repr,
    NdiscNeighborFlags, NdiscRepr, RawHardwareAddress,
};

use super::frame::{self, Frame, Header, IPV6, Mac, Tag, is_station};
use super::{Neighbours, Reply, Verdict};

/// Every message travels with this hop limit and is refused with another: it cannot have crossed a router.
const HOP_LIMIT: u8 = 255;
const IPV6_HEADER: usize = 40;
/// ICMPv6 types.
const SOLICIT: u8 = 135;
const ADVERT: u8 = 136;
/// Bytes of either message before its options.
const FIXED: usize = 24;

/// ff02::1.
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
/// The group MAC of [`ALL_NODES`].
pub(super) const ALL_NODES_MAC: Mac = [0x33, 0x33, 0, 0, 0, 1];

/// The link-local address made of a MAC (modified EUI-64): the universal/local bit is turned, ff:fe goes in the middle.
pub(super) fn link_local(mac: Mac) -> Ipv6Addr {
    let [a, b, c, d, e, f] = mac;
    Ipv6Addr::from_octets([
        0xfe,
        0x80,
        0,
        0,
        0,
        0,
        0,
        0,
        a ^ 2,
        b,
        c,
        0xff,
        0xfe,
        d,
        e,
        f,
    ])
}

/// The group in which an address is asked for.
pub(super) fn solicited_node(addr: Ipv6Addr) -> Ipv6Addr {
    let group = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00, 0);
    Ipv6Addr::from_bits(group.to_bits() | (addr.to_bits() & 0xff_ffff))
}

/// The group MAC of a multicast address.
pub(super) fn multicast_mac(group: Ipv6Addr) -> Mac {
    let [.., a, b, c, d] = group.octets();
    [0x33, 0x33, a, b, c, d]
}

/// Asks the group of `target` for it.
pub(super) fn solicit(tag: Tag, mac: Mac, own: Ipv6Addr, target: Ipv6Addr) -> Option<Frame> {
    let group = solicited_node(target);
    let message = NdiscRepr::NeighborSolicit {
        target_addr: target,
        lladdr: Some(RawHardwareAddress::from(EthernetAddress(mac))),
    };
    build(tag, (mac, own), (multicast_mac(group), group), message)
}

/// Tells our MAC for `own`: to one asker in answer, else to all nodes unasked.
pub(super) fn advert(
    tag: Tag,
    mac: Mac,
    own: Ipv6Addr,
    asker: Option<(Mac, Ipv6Addr)>,
) -> Option<Frame> {
    let mut flags = NdiscNeighborFlags::OVERRIDE;
    flags.set(NdiscNeighborFlags::SOLICITED, asker.is_some());
    let message = NdiscRepr::NeighborAdvert {
        flags,
        target_addr: own,
        lladdr: Some(RawHardwareAddress::from(EthernetAddress(mac))),
    };
    build(
        tag,
        (mac, own),
        asker.unwrap_or((ALL_NODES_MAC, ALL_NODES)),
        message,
    )
}

fn build(
    tag: Tag,
    (mac, own): (Mac, Ipv6Addr),
    (to, addr): (Mac, Ipv6Addr),
    message: NdiscRepr<'_>,
) -> Option<Frame> {
    let message = Icmpv6Repr::Ndisc(message);
    let header = Ipv6Repr {
        src_addr: own,
        dst_addr: addr,
        next_header: IpProtocol::Icmpv6,
        payload_len: message.buffer_len(),
        hop_limit: HOP_LIMIT,
    };
    let len = IPV6_HEADER.checked_add(message.buffer_len())?;
    frame::build(tag, to, mac, IPV6, len, |bytes| {
        let mut packet = Ipv6Packet::new_unchecked(bytes);
        header.emit(&mut packet);
        let mut icmp = Icmpv6Packet::new_unchecked(packet.payload_mut());
        message.emit(&own, &addr, &mut icmp, &ChecksumCapabilities::default());
    })
}

/// The MAC of a link-layer address option, if it is a station's.
fn station(option: Option<RawHardwareAddress>) -> Option<Mac> {
    let mac: Mac = option?.as_bytes().try_into().ok()?;
    is_station(mac).then_some(mac)
}

impl<const N: usize> Neighbours<N> {
    pub(super) fn receive_nd(&mut self, header: &Header<'_>, now: Instant) -> Verdict {
        if !matches!(self.own.first(), Some(IpAddr::V6(_)))
            || (header.destination != self.mac && !self.groups().contains(&header.destination))
        {
            return Verdict::Ignored;
        }
        let Ok(packet) = Ipv6Packet::new_checked(header.payload) else {
            return Verdict::Malformed;
        };
        if packet.version() != 6 {
            return Verdict::Malformed;
        }
        let (from, to) = (packet.src_addr(), packet.dst_addr());
        let payload = packet.payload();
        if packet.next_header() != IpProtocol::Icmpv6
            || !matches!(payload.first(), Some(&(SOLICIT | ADVERT)))
        {
            return Verdict::Ignored;
        }
        if packet.hop_limit() != HOP_LIMIT || payload.len() < FIXED {
            return Verdict::Malformed;
        }
        let message = Icmpv6Packet::new_checked(payload).and_then(|icmp| {
            Icmpv6Repr::parse(&from, &to, &icmp, &ChecksumCapabilities::default())
        });
        let Ok(Icmpv6Repr::Ndisc(message)) = message else {
            return Verdict::Malformed;
        };
        match message {
            NdiscRepr::NeighborSolicit {
                target_addr,
                lladdr,
            } => self.receive_solicit(header, (from, to), target_addr, lladdr, now),
            NdiscRepr::NeighborAdvert {
                flags,
                target_addr,
                lladdr,
            } => {
                if target_addr.is_multicast()
                    || (to.is_multicast() && flags.contains(NdiscNeighborFlags::SOLICITED))
                {
                    return Verdict::Malformed;
                }
                if self.is_own(IpAddr::V6(target_addr)) {
                    return Verdict::Conflict;
                }
                match station(lladdr) {
                    Some(mac) => self.answer_came(IpAddr::V6(target_addr), mac, now),
                    None => Verdict::Malformed,
                }
            }
            NdiscRepr::RouterSolicit { .. }
            | NdiscRepr::RouterAdvert { .. }
            | NdiscRepr::Redirect { .. } => Verdict::Ignored,
        }
    }

    fn receive_solicit(
        &mut self,
        header: &Header<'_>,
        (from, to): (Ipv6Addr, Ipv6Addr),
        target: Ipv6Addr,
        lladdr: Option<RawHardwareAddress>,
        now: Instant,
    ) -> Verdict {
        if target.is_multicast() || from.is_multicast() {
            return Verdict::Malformed;
        }
        if !self.is_own(IpAddr::V6(target)) {
            return Verdict::Ignored;
        }
        if self.is_own(IpAddr::V6(from)) {
            return Verdict::Conflict;
        }
        if from.is_unspecified() {
            // Duplicate address detection of somebody who wants our address: tell everybody whose it is.
            if lladdr.is_some() || to != solicited_node(target) {
                return Verdict::Malformed;
            }
            self.queue(Reply::Advert {
                mac: header.source,
                asker: None,
                target,
            });
            return Verdict::Accepted;
        }
        // Without the option only a question to our own MAC may be answered, to where it came from.
        let mac = match (station(lladdr), lladdr) {
            (Some(mac), _) if mac == self.mac => return Verdict::Malformed,
            (Some(mac), _) => {
                self.question_came(IpAddr::V6(from), mac, now);
                mac
            }
            (None, None) if !to.is_multicast() => header.source,
            (None, _) => return Verdict::Malformed,
        };
        self.queue(Reply::Advert {
            mac,
            asker: Some(from),
            target,
        });
        Verdict::Accepted
    }
}
