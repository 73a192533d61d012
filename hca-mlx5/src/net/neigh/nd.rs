//! Neighbor Discovery (RFC 4861): solicitations and advertisements, for IPv6.
//!
//! Two messages of one layout are all that is spoken here, so they are written as the bytes they
//! are; smoltcp has the IPv6 header. Its reader of all ICMPv6 would bring router
//! advertisements, redirects and listener reports along, several times the code of this module.

use core::net::Ipv6Addr;

use dat_core::Instant;
use smoltcp::wire::{IpProtocol, Ipv6Packet};

use super::frame::{self, Frame, Header, IPV6, Mac, Tag, is_station};
use super::{Claim, Neighbours, Reply, Rule, Verdict};
use crate::prm::gid::Gid;
use crate::prm::{put, take};

/// Every message travels with this hop limit and is refused with another: it cannot have crossed a
/// router.
const HOP_LIMIT: u8 = 255;
const IPV6_HEADER: usize = 40;
/// The next header.
const ICMPV6: u8 = 58;
/// ICMPv6 types.
const SOLICIT: u8 = 135;
const ADVERT: u8 = 136;
/// Bytes of either message before its options: type, code, checksum, flags, the target's address.
const FIXED: usize = 24;
const TARGET_AT: usize = 8;
/// Bytes of either message with the one option that goes with it.
const MESSAGE: usize = FIXED + 8;
/// The same as the length field of the IPv6 header has it.
const PAYLOAD: [u8; 2] = [0, 32];
const _: () = assert!(MESSAGE == 32);
/// Option types: the sender's MAC in a solicitation, the target's in an advertisement.
const SOURCE: u8 = 1;
const TARGET: u8 = 2;
/// Flags of an advertisement.
const SOLICITED: u8 = 0x40;
const OVERRIDE: u8 = 0x20;

/// ff02::1.
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
/// The group MAC of [`ALL_NODES`].
pub(super) const ALL_NODES_MAC: Mac = [0x33, 0x33, 0, 0, 0, 1];

/// The link-local address made of a MAC (modified EUI-64): the universal/local bit is turned, ff:fe
/// goes in the middle.
pub(super) fn link_local(mac: Mac) -> Ipv6Addr {
    let [a, b, c, d, e, f] = mac;
    Ipv6Addr::from([0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f])
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

/// Asks the group of `target` for it, or `target` itself at the station `known`.
pub(super) fn solicit(
    tag: Tag,
    mac: Mac,
    own: Ipv6Addr,
    target: Ipv6Addr,
    known: Option<Mac>,
) -> Option<Frame> {
    let group = solicited_node(target);
    let to = known.map_or((multicast_mac(group), group), |known| (known, target));
    build(tag, (mac, own), to, [SOLICIT, 0, SOURCE], target)
}

/// Tells our MAC for `own` to one asker in answer, or, if that is `own` itself, to all nodes
/// unasked.
pub(super) fn advert(tag: Tag, mac: Mac, own: Ipv6Addr, to: Mac, asker: Ipv6Addr) -> Option<Frame> {
    let (to, solicited) =
        if asker == own { ((ALL_NODES_MAC, ALL_NODES), 0) } else { ((to, asker), SOLICITED) };
    build(tag, (mac, own), to, [ADVERT, OVERRIDE | solicited, TARGET], own)
}

fn build(
    tag: Tag,
    (mac, own): (Mac, Ipv6Addr),
    (to, addr): (Mac, Ipv6Addr),
    [kind, flags, option]: [u8; 3],
    target: Ipv6Addr,
) -> Option<Frame> {
    let mut message = [0; MESSAGE];
    put(&mut message, 0, &[kind, 0, 0, 0, flags]);
    put(&mut message, TARGET_AT, &target.octets());
    put(&mut message, FIXED, &[option, 1]);
    put(&mut message, FIXED + 2, &mac);
    let sum = !sum(&own, &addr, &message);
    put(&mut message, 2, &sum.to_be_bytes());

    let mut packet = [0; IPV6_HEADER + MESSAGE];
    let [high, low] = PAYLOAD;
    let header = [0x60, 0, 0, 0, high, low, ICMPV6, HOP_LIMIT];
    put(&mut packet, 0, &header);
    put(&mut packet, 8, &own.octets());
    put(&mut packet, 24, &addr.octets());
    put(&mut packet, IPV6_HEADER, &message);
    frame::build(tag, to, mac, IPV6, &packet)
}

/// The Internet checksum of a message and its pseudo-header: all ones if it is right.
fn sum(from: &Ipv6Addr, to: &Ipv6Addr, message: &[u8]) -> u16 {
    let [from, to] = [from, to].map(Ipv6Addr::octets);
    let len = u32::try_from(message.len()).unwrap_or(0).to_be_bytes();
    let next = u32::from(ICMPV6).to_be_bytes();
    let parts = [&from[..], &to, &len, &next, message];
    // Each part but the message has an even length. No datagram is so long that this overflows.
    let words = parts.iter().flat_map(|part| part.chunks(2));
    let sum: u32 = words.map(|word| u32::from(u16::from_be_bytes(take(word, 0)))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    u16::try_from((folded & 0xffff) + (folded >> 16)).unwrap_or(0)
}

/// The MAC of the option of this type; `None` if there is none. An error if the options are not
/// well-formed, or the MAC is not one station's, in one option of one unit (RFC 2464 6).
fn option(mut options: &[u8], wanted: u8) -> Result<Option<Mac>, Verdict> {
    const BAD: Verdict = Verdict::Broken(Rule::Options);
    let mut found = None;
    while let [kind, units, ..] = *options {
        let len = 8 * usize::from(units);
        let (option, rest) = options.split_at_checked(len).filter(|_| len != 0).ok_or(BAD)?;
        if kind == wanted {
            let mac: Option<Mac> = option.get(2..).and_then(|mac| mac.try_into().ok());
            let mac = mac.filter(|mac| found.is_none() && is_station(*mac)).ok_or(BAD)?;
            found = Some(mac);
        }
        options = rest;
    }
    if options.is_empty() { Ok(found) } else { Err(BAD) }
}

impl<const N: usize> Neighbours<N> {
    pub(super) fn receive_nd(&mut self, header: &Header<'_>, now: Instant) -> Verdict {
        if self.first().is_v4()
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
        // What `payload` of the packet is, without the panic that the compiler sees in it.
        let end = IPV6_HEADER.saturating_add(packet.payload_len().into());
        let payload = header.payload.get(IPV6_HEADER..end).unwrap_or_default();
        if packet.next_header() != IpProtocol::Icmpv6
            || !matches!(payload.first(), Some(&(SOLICIT | ADVERT)))
        {
            return Verdict::Ignored;
        }
        if packet.hop_limit() != HOP_LIMIT {
            return Verdict::Broken(Rule::HopLimit);
        }
        if payload.len() < FIXED {
            return Verdict::Malformed;
        }
        if sum(&from, &to, payload) != u16::MAX {
            return Verdict::Broken(Rule::Checksum);
        }
        let [kind, 0, _, _, flags, ..] = *payload else {
            return Verdict::Malformed;
        };
        // A frame to us whose packet is to somebody else.
        let is_own = |own: &Gid| own.v6().is_some_and(|own| to == own || to == solicited_node(own));
        if to != ALL_NODES && !self.gids().iter().any(is_own) {
            return Verdict::Ignored;
        }
        let target = Ipv6Addr::from(take::<16>(payload, TARGET_AT));
        if !self.is_host(target.into()) || target.to_ipv4_mapped().is_some() {
            return Verdict::Broken(Rule::Target);
        }
        if from.is_multicast() || from.is_loopback() {
            return Verdict::Broken(Rule::Source);
        }
        let wanted = if kind == SOLICIT { SOURCE } else { TARGET };
        let mac = match option(payload.get(FIXED..).unwrap_or_default(), wanted) {
            Ok(mac) => mac,
            Err(verdict) => return verdict,
        };
        if kind == SOLICIT {
            return self.receive_solicit(header, (from, to), target, mac, now);
        }
        let solicited = flags & SOLICITED != 0;
        if to.is_multicast() && solicited {
            return Verdict::Malformed;
        }
        if self.is_own(target.into()) {
            return Verdict::Conflict;
        }
        if from.is_unspecified() || self.is_own(from.into()) {
            return Verdict::Broken(Rule::Source);
        }
        let how = if solicited { Claim::Answer } else { Claim::Announcement };
        let mac = match mac {
            Some(mac) if mac != self.mac => mac,
            // The answer to a unicast question may leave it out (RFC 4861 4.4).
            None if solicited && self.cache.is_probed(target.into()) => header.source,
            Some(_) | None => return Verdict::Broken(Rule::Options),
        };
        self.claimed(target.into(), mac, how, now)
    }

    fn receive_solicit(
        &mut self,
        header: &Header<'_>,
        (from, to): (Ipv6Addr, Ipv6Addr),
        target: Ipv6Addr,
        lladdr: Option<Mac>,
        now: Instant,
    ) -> Verdict {
        if !self.is_own(target.into()) {
            return Verdict::Ignored;
        }
        if self.is_own(from.into()) {
            return Verdict::Conflict;
        }
        if from.is_unspecified() {
            // Duplicate address detection of another host that wants our address: announce to all
            // that it is ours.
            if lladdr.is_some() || to != solicited_node(target) {
                return Verdict::Broken(Rule::Source);
            }
            self.queue(Reply { mac: header.source, asker: target.into(), target: target.into() });
            return Verdict::Accepted;
        }
        // Without the option only a question to our own MAC may be answered, to where it came from.
        let mac = match lladdr {
            Some(mac) if mac == self.mac => return Verdict::Broken(Rule::Options),
            Some(mac) => {
                self.claimed(from.into(), mac, Claim::Question, now);
                mac
            }
            None if !to.is_multicast() => header.source,
            None => return Verdict::Broken(Rule::Options),
        };
        self.queue(Reply { mac, asker: from.into(), target: target.into() });
        Verdict::Accepted
    }
}
