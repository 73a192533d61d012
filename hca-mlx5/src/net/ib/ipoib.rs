//! IP over InfiniBand, as far as addresses are looked up by it: the encapsulation header, hardware
//! addresses, ARP, Neighbor Discovery, and multicast GIDs.
//!
//! RFC 4391 (header, hardware addresses, multicast GIDs, ARP, Neighbor Discovery), RFC 826, RFC 4861.
//! Bytes in, bytes out.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Bytes of a hardware address.
pub(super) const HARDWARE_LEN: usize = 20;
/// Longest frame that is sent.
pub(super) const FRAME: usize = 128;
/// Link type of InfiniBand in ARP.
const HTYPE: u16 = 32;
const ARP: u16 = 0x0806;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const REQUEST: u16 = 1;
const REPLY: u16 = 2;
const ICMPV6: u8 = 58;
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
/// Options of Neighbor Discovery: link-layer address of the sender, of the target.
const SOURCE_OPTION: u8 = 1;
const TARGET_OPTION: u8 = 2;
/// Length of such an option in units of 8 bytes: two bytes of padding before the address (RFC 4391,
/// 9.3).
const OPTION_UNITS: u8 = 3;
const OPTION: usize = 24;
/// Bytes before the ICMPv6 message: encapsulation and IPv6 header.
const ICMP_AT: usize = 44;
/// Bytes of a solicitation or advertisement without options.
const ICMP: usize = 24;

/// A hardware address: queue pair and port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hardware {
    pub(super) qpn: u32,
    pub(super) gid: u128,
}

impl Hardware {
    fn bytes(self) -> [u8; HARDWARE_LEN] {
        let mut bytes = [0; HARDWARE_LEN];
        let (first, gid) = bytes.split_at_mut(4);
        // The first byte has flags: no connected mode.
        first.copy_from_slice(&(self.qpn & 0xff_ffff).to_be_bytes());
        gid.copy_from_slice(&self.gid.to_be_bytes());
        bytes
    }

    /// The address of a port's queue pair; none if it is of a group or of a queue pair that is not
    /// for datagrams.
    fn parse(bytes: &[u8; HARDWARE_LEN]) -> Option<Self> {
        let (first, gid) = bytes.split_first_chunk::<4>()?;
        let gid = u128::from_be_bytes(*gid.first_chunk()?);
        let qpn = u32::from_be_bytes(*first) & 0xff_ffff;
        let unicast = gid != 0 && gid >> 120 != 0xff;
        (unicast && qpn > 1 && qpn != 0xff_ffff).then_some(Self { qpn, gid })
    }
}

/// A question for the owner of an address, or an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) asks: bool,
    /// IP address of the sender; unspecified if it has none yet.
    pub(super) sender: IpAddr,
    pub(super) hardware: Hardware,
    /// Of a question whose owner is asked for; of an answer who asked.
    pub(super) target: IpAddr,
}

/// A frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    bytes: [u8; FRAME],
    len: usize,
}

impl Frame {
    pub(super) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    fn of(parts: &[&[u8]]) -> Self {
        let mut frame = Self { bytes: [0; FRAME], len: 0 };
        for part in parts {
            let end = frame.len + part.len();
            if let Some(place) = frame.bytes.get_mut(frame.len..end) {
                place.copy_from_slice(part);
                frame.len = end;
            }
        }
        frame
    }
}

/// The GID of the broadcast group of a partition (RFC 4391, 4), link-local scope.
pub(super) fn broadcast_gid(pkey: u16) -> u128 {
    group_gid(0x401b, pkey, 0xffff_ffff)
}

/// The GID of the group of an IPv6 multicast address.
pub(super) fn multicast_gid(pkey: u16, address: Ipv6Addr) -> u128 {
    group_gid(0x601b, pkey, address.to_bits() & (u128::MAX >> 48))
}

/// The GID of the group that datagrams to an IP multicast address go to, apart from the one of its
/// IP packets (Linux `cma_set_mgid`, port space UDP). One that a subnet's manager has chosen stands
/// for itself.
pub(super) fn datagram_gid(pkey: u16, address: IpAddr) -> u128 {
    const CHOSEN: u128 = 0xff10_a01b << 96;
    const CHOSEN_MASK: u128 = 0xfff0_ffff << 96;
    match address {
        IpAddr::V4(v4) => group_gid(0x4001, pkey, u128::from(v4.to_bits() & 0xfff_ffff)),
        IpAddr::V6(v6) if v6.to_bits() & CHOSEN_MASK == CHOSEN => v6.to_bits(),
        IpAddr::V6(v6) => group_gid(0x6001, pkey, v6.to_bits() & (u128::MAX >> 48)),
    }
}

fn group_gid(signature: u16, pkey: u16, group: u128) -> u128 {
    const LINK_LOCAL: u128 = 0xff12;
    let full = pkey | 0x8000;
    LINK_LOCAL << 112 | u128::from(signature) << 96 | u128::from(full) << 80 | group
}

/// The solicited-node multicast address of an address.
pub(super) fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    const PREFIX: u128 = 0xff02_0000_0000_0000_0000_0001_ff00_0000;
    Ipv6Addr::from_bits(PREFIX | address.to_bits() & 0xff_ffff)
}

/// Writes a message. None if the addresses are of two families.
pub(super) fn emit(message: &Message, to: Option<Hardware>) -> Option<Frame> {
    let Message { asks, sender, hardware, target } = *message;
    match (sender, target) {
        (IpAddr::V4(sender), IpAddr::V4(target)) => {
            let op = if asks { REQUEST } else { REPLY };
            let to = to.map_or([0; HARDWARE_LEN], Hardware::bytes);
            let [ha, hb] = HTYPE.to_be_bytes();
            let [pa, pb] = IPV4.to_be_bytes();
            let [oa, ob] = op.to_be_bytes();
            let [ta, tb] = ARP.to_be_bytes();
            Some(Frame::of(&[
                &[ta, tb, 0, 0, ha, hb, pa, pb, 20, 4, oa, ob],
                &hardware.bytes(),
                &sender.octets(),
                &to,
                &target.octets(),
            ]))
        }
        (IpAddr::V6(sender), IpAddr::V6(target)) => {
            // A question goes to the group of the target, an answer to who asked.
            let (kind, about, destination, option) = if asks {
                (SOLICITATION, target, solicited_node(target), SOURCE_OPTION)
            } else {
                (ADVERTISEMENT, sender, target, TARGET_OPTION)
            };
            // Solicited, and it replaces what was known before.
            let flags = if asks { 0 } else { 0x60 };
            let [ta, tb] = IPV6.to_be_bytes();
            let len = u8::try_from(ICMP + OPTION).unwrap_or(0);
            let mut frame = Frame::of(&[
                &[ta, tb, 0, 0],
                &[0x60, 0, 0, 0, 0, len, ICMPV6, 255],
                &sender.octets(),
                &destination.octets(),
                &[kind, 0, 0, 0, flags, 0, 0, 0],
                &about.octets(),
                &[option, OPTION_UNITS, 0, 0],
                &hardware.bytes(),
            ]);
            let sum = checksum(frame.bytes().get(4..)?)?;
            if let Some(place) = frame.bytes.get_mut(ICMP_AT + 2..ICMP_AT + 4) {
                place.copy_from_slice(&(!sum).to_be_bytes());
            }
            Some(frame)
        }
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => None,
    }
}

/// Reads a frame; none if it is neither ARP nor Neighbor Discovery, or not right.
pub(super) fn parse(frame: &[u8]) -> Option<Message> {
    let (head, body) = frame.split_first_chunk::<4>()?;
    let [a, b, ..] = *head;
    match u16::from_be_bytes([a, b]) {
        ARP => parse_arp(body),
        IPV6 => parse_nd(body),
        _ => None,
    }
}

fn parse_arp(body: &[u8]) -> Option<Message> {
    let (head, rest) = body.split_first_chunk::<8>()?;
    let [0, 32, 8, 0, 20, 4, 0, op] = *head else { return None };
    let (hardware, rest) = rest.split_first_chunk::<HARDWARE_LEN>()?;
    let (sender, rest) = rest.split_first_chunk::<4>()?;
    let (_, rest) = rest.split_first_chunk::<HARDWARE_LEN>()?;
    let (target, _) = rest.split_first_chunk::<4>()?;
    let asks = match u16::from(op) {
        REQUEST => true,
        REPLY => false,
        _ => return None,
    };
    let sender = Ipv4Addr::from(*sender);
    if sender.is_multicast() || sender.is_broadcast() || (!asks && sender.is_unspecified()) {
        return None;
    }
    Some(Message {
        asks,
        sender: sender.into(),
        hardware: Hardware::parse(hardware)?,
        target: Ipv4Addr::from(*target).into(),
    })
}

fn parse_nd(packet: &[u8]) -> Option<Message> {
    let (head, rest) = packet.split_first_chunk::<8>()?;
    let [version, _, _, _, high, low, ICMPV6, 255] = *head else { return None };
    let len = usize::from(u16::from_be_bytes([high, low]));
    if version >> 4 != 6 || len < ICMP || checksum(packet.get(..40 + len)?)? != 0xffff {
        return None;
    }
    let (source, rest) = rest.split_first_chunk::<16>()?;
    let (destination, rest) = rest.split_first_chunk::<16>()?;
    let (icmp, rest) = rest.split_first_chunk::<8>()?;
    let (target, mut options) = rest.get(..len - 8)?.split_first_chunk::<16>()?;
    let target = Ipv6Addr::from(*target);
    let [kind, 0, ..] = *icmp else { return None };
    let asks = match kind {
        SOLICITATION => true,
        ADVERTISEMENT => false,
        _ => return None,
    };
    if target.is_multicast() {
        return None;
    }
    let wanted = if asks { SOURCE_OPTION } else { TARGET_OPTION };
    let mut hardware = None;
    while let [option, units, ..] = *options {
        let len = usize::from(units) * 8;
        if len == 0 {
            return None;
        }
        let this = options.get(..len)?;
        if option == wanted && len == OPTION {
            hardware = this.last_chunk().and_then(Hardware::parse);
        }
        options = options.get(len..)?;
    }
    let (sender, target) = if asks {
        (Ipv6Addr::from(*source), target)
    } else {
        (target, Ipv6Addr::from(*destination))
    };
    Some(Message { asks, sender: sender.into(), hardware: hardware?, target: target.into() })
}

/// The ones' complement sum of an ICMPv6 packet with its pseudo header: all ones if the checksum in
/// it is right.
fn checksum(packet: &[u8]) -> Option<u16> {
    let (head, rest) = packet.split_first_chunk::<8>()?;
    let [_, _, _, _, high, low, next, _] = *head;
    let mut sum = u32::from(u16::from_be_bytes([high, low])) + u32::from(next);
    // Addresses and message follow one another.
    for pair in rest.chunks(2) {
        let [high, low] = [pair.first(), pair.get(1)].map(|byte| byte.copied().unwrap_or(0));
        sum += u32::from(u16::from_be_bytes([high, low]));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u16::try_from(sum).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OWN: Hardware = Hardware { qpn: 0x48, gid: 0xfe80_0000_0000_0000_0200_00ff_fe00_0001 };
    const PEER: Hardware = Hardware { qpn: 0x4b, gid: 0xfe80_0000_0000_0000_0200_00ff_fe00_0002 };

    #[test]
    fn an_arp_request_is_that_of_rfc_4391() {
        let message = Message {
            asks: true,
            sender: [10, 0, 0, 1].into(),
            hardware: OWN,
            target: [10, 0, 0, 2].into(),
        };
        let frame = emit(&message, None).unwrap();
        #[rustfmt::skip]
        let golden = [
            8, 6, 0, 0, 0, 0x20, 8, 0, 0x14, 4, 0, 1,
            0, 0, 0, 0x48, 0xfe, 0x80, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0xff, 0xfe, 0, 0, 1, 10, 0, 0, 1,
            0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2,
        ];
        assert_eq!(frame.bytes(), golden);
        assert_eq!(parse(frame.bytes()), Some(message));
    }

    #[test]
    fn messages_of_both_families_come_back() {
        for (sender, target) in [("10.0.0.2", "10.0.0.1"), ("fd00::2", "fd00::1:1")] {
            for asks in [false, true] {
                let (sender, target) = (sender.parse().unwrap(), target.parse().unwrap());
                let message = Message { asks, sender, hardware: PEER, target };
                let frame = emit(&message, Some(OWN)).unwrap();
                assert_eq!(parse(frame.bytes()), Some(message));
                let mut bent = frame.bytes().to_vec();
                let last = bent.len() - 1;
                bent[last] ^= 1;
                assert_ne!(parse(&bent), Some(message));
            }
        }
    }

    #[test]
    fn groups_are_those_of_rfc_4391() {
        assert_eq!(broadcast_gid(0x7fff), 0xff12_401b_ffff_0000_0000_0000_ffff_ffff);
        let node = solicited_node("fd00::12:3456".parse().unwrap());
        assert_eq!(node, "ff02::1:ff12:3456".parse::<Ipv6Addr>().unwrap());
        assert_eq!(multicast_gid(0x8001, node), 0xff12_601b_8001_0000_0000_0001_ff12_3456);
        for (address, gid) in [
            ("239.1.2.3", 0xff12_4001_ffff_0000_0000_0000_0f01_0203),
            ("ff05:1::2:3", 0xff12_6001_ffff_0000_0000_0000_0002_0003),
            ("ff12:a01b::7", 0xff12_a01b_0000_0000_0000_0000_0000_0007),
        ] {
            assert_eq!(datagram_gid(0xffff, address.parse().unwrap()), gid, "{address}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_do_harm(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes);
            let mut arp = std::vec![8, 6, 0, 0];
            arp.extend(&bytes);
            let _ = parse(&arp);
            let mut nd = std::vec![0x86, 0xdd, 0, 0];
            nd.extend(&bytes);
            let _ = parse(&nd);
        }
    }
}
