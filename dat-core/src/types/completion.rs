//! What a provider reads from a completion queue.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Bytes in front of every datagram that was received: the IPv6 header of its packet, or at their
/// end the IPv4 header.
pub const GRH_LEN: usize = 40;

/// IP protocol number of UDP, which RoCEv2 is.
const UDP: u8 = 17;

/// Which queue a completion belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// A request of the send queue.
    Send,
    /// A receive.
    Recv,
}

/// How a request ended, in the terms of the InfiniBand work completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Status {
    /// It succeeded.
    Success,
    /// Flushed: the queue pair had left Rts before it ran.
    Flushed,
    /// The message did not fit the local segments.
    LocalLength,
    /// The request was malformed for this queue pair.
    LocalQpOperation,
    /// A local key, range, right or PD was wrong.
    LocalProtection,
    /// A window bind was refused.
    WindowBind,
    /// The peer's response made no sense.
    BadResponse,
    /// A local access error at the responder.
    LocalAccess,
    /// The peer found the request invalid.
    RemoteInvalidRequest,
    /// The peer's key, range, right or PD was wrong.
    RemoteAccess,
    /// The peer could not carry it out.
    RemoteOperation,
    /// No acknowledgement after all retries.
    TransportRetry,
    /// The peer had no receive posted after all RNR retries.
    RnrRetry,
    /// The peer gave up.
    RemoteAborted,
    /// A syndrome this version does not know.
    Other,
}

/// One completion, as the provider read it from the device. Nothing in it is trusted: dat-core
/// checks the index, the token and the length against what it has outstanding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// [`QpInit::index`](crate::provider::QpInit::index) of the queue pair.
    pub index: u32,
    /// Bytes received; of requests nothing, dat-core knows what it asked for.
    pub len: u32,
    /// Which request.
    pub token: u16,
    /// Which of the two queues.
    pub direction: Direction,
    /// How it ended.
    pub status: Status,
    /// The device's own syndrome byte, 0 on success.
    pub syndrome: u8,
    /// The device's vendor syndrome byte, 0 on success.
    pub vendor: u8,
    /// Of a receive that succeeded: what it tells besides.
    pub extra: Extra,
}

/// What has arrived in a receive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Arrived {
    /// A message.
    #[default]
    Message,
    /// A message with an immediate.
    Immediate,
    /// The immediate of an RDMA write.
    WriteImmediate,
    /// A message that closed a window: its key is where others have the immediate.
    Invalidation,
}

/// What a receive tells besides its length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extra {
    /// What it was.
    pub arrived: Arrived,
    /// The immediate, or the key that is closed; 0 if there is neither.
    pub immediate: u32,
    /// The sender's QPN, of a datagram.
    pub source_qpn: u32,
    /// The sender marked it to be announced.
    pub solicited: bool,
    /// What stands before a datagram, as the device says.
    pub network: NetworkHeader,
}

/// The network header of a datagram that arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NetworkHeader {
    /// The device does not say.
    #[default]
    Unsaid,
    /// IPv4, in the last 20 of the 40 bytes.
    V4,
    /// IPv6.
    V6,
    /// It came on InfiniBand from this LID.
    Lid(u16),
}

/// Prefix of addresses that stand for a LID: discard-only addresses (RFC 6666), which nobody has.
const LID_PREFIX: u128 = 0x0100 << 112;
/// The first LID of a multicast group.
const FIRST_MULTICAST_LID: u16 = 0xc000;

/// The address that stands for a LID of an InfiniBand subnet, where a sender has no other.
#[must_use]
pub const fn lid_address(lid: u16) -> IpAddr {
    IpAddr::V6(Ipv6Addr::from_bits(LID_PREFIX | lid as u128))
}

/// The LID that an address stands for.
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "the low bits")]
pub const fn lid_of(address: IpAddr) -> Option<u16> {
    match address {
        IpAddr::V6(v6) if v6.to_bits() & !0xffff == LID_PREFIX => Some(v6.to_bits() as u16),
        IpAddr::V4(_) | IpAddr::V6(_) => None,
    }
}

impl NetworkHeader {
    /// Who sent the datagram before which the device left these bytes: a host's address, or `None`
    /// if they are no header of a packet.
    ///
    /// Where the device does not say of which kind the header is, one of IPv4 shows by its
    /// checksum.
    #[must_use]
    pub fn sender(self, area: &[u8; GRH_LEN]) -> Option<IpAddr> {
        if let Self::Lid(lid) = self {
            return (1..FIRST_MULTICAST_LID).contains(&lid).then(|| lid_address(lid));
        }
        let (_, v4) = area.split_last_chunk::<20>()?;
        // Without options, or the header would not fit.
        let shows =
            matches!(*v4, [0x45, _, _, _, _, _, _, _, _, UDP, ..]) && checksum(v4) == 0xffff;
        if self == Self::V4 || self == Self::Unsaid && shows {
            let from = Ipv4Addr::from(*v4.get(12..)?.first_chunk::<4>()?);
            let host = !(from.is_unspecified() || from.is_multicast() || from.is_broadcast());
            return host.then_some(IpAddr::V4(from));
        }
        let [first, _, _, _, _, _, next, _, rest @ ..] = area;
        if self == Self::V6 || first >> 4 == 6 && *next == UDP {
            let from = Ipv6Addr::from(*rest.first_chunk::<16>()?);
            return (!from.is_unspecified() && !from.is_multicast()).then_some(IpAddr::V6(from));
        }
        None
    }
}

/// The ones' complement sum of a header: of a sound one the first fold is all ones already.
fn checksum(header: &[u8; 20]) -> u32 {
    let words = header.chunks_exact(2).filter_map(<[_]>::first_chunk::<2>);
    let sum: u32 = words.map(|word| u32::from(u16::from_be_bytes(*word))).sum();
    (sum & 0xffff) + (sum >> 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sender_is_in_the_header() {
        let (said, unsaid) = (NetworkHeader::V4, NetworkHeader::Unsaid);
        let mut header = [0; GRH_LEN];
        assert_eq!(unsaid.sender(&header), None);
        #[rustfmt::skip]
        header[20..].copy_from_slice(&[
            0x45, 0, 0, 0x54, 0, 0, 0x40, 0, 64, 17, 0xab, 0x45, 192, 168, 7, 1, 192, 168, 7, 2,
        ]);
        assert_eq!(unsaid.sender(&header), Some("192.168.7.1".parse().unwrap()));
        header[32] = 193;
        assert_eq!(unsaid.sender(&header), None, "the checksum is wrong");
        assert_eq!(said.sender(&header), Some("193.168.7.1".parse().unwrap()));
        let mut header = [0; GRH_LEN];
        (header[0], header[6]) = (0x60, 17);
        header[8..24].copy_from_slice(&"fd00::7:1".parse::<Ipv6Addr>().unwrap().octets());
        assert_eq!(unsaid.sender(&header), Some("fd00::7:1".parse().unwrap()));
        header[0] = 0x40;
        assert_eq!(unsaid.sender(&header), None);
    }
}
