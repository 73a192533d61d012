//! Parameters of the caller: once for the connection manager, once per connection.

use core::net::IpAddr;
use core::num::NonZeroU32;
use core::time::Duration;

use crate::cm::wire::service::ServiceId;
use crate::provider::{Class, LinkType, Mtu, QpStep};

/// Names one connection while it exists, and is its local communication ID on the wire.
///
/// An ID of an earlier connection in the same slot is recognised as stale, and an unknown host
/// cannot guess one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnId {
    pub(crate) id: u32,
    /// The slot, counted from 1: an Endpoint keeps four of these that may be absent, and they need
    /// no bytes to say so.
    slot: NonZeroU32,
}

impl ConnId {
    pub(crate) const fn new(id: u32, index: u32) -> Self {
        Self { id, slot: NonZeroU32::MIN.saturating_add(index) }
    }

    /// Index of the slot of the connection; below the number of slots given to
    /// [`Cm::new`](crate::cm::Cm::new), and different for connections that exist at the same time.
    #[must_use]
    pub const fn index(self) -> usize {
        self.slot.get() as usize - 1
    }

    /// The local communication ID on the wire.
    #[must_use]
    pub const fn comm_id(self) -> u32 {
        self.id
    }
}

/// Settings of all connections of this node. Times are CM codes: `4.096 us * 2^n`.
///
/// [`Config::new`] gives the values that Linux uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// GUID of this node's channel adapter.
    pub node_guid: u64,
    /// How soon this node promises to answer a CM message, and how soon it expects the peer to.
    pub response_timeout: u8,
    /// Longest lifetime of a packet on the way, one direction.
    pub packet_lifetime: u8,
    /// Retransmissions before the peer counts as unreachable; 4 bits, also sent to the peer.
    pub max_retries: u8,
    /// Time an MRA of ours asks for, and the most that an MRA of the peer is granted.
    pub service_timeout: u8,
    /// The longest response time a peer may claim in its REQ, and the longest timewait it may
    /// cause.
    pub longest_response: u8,
    /// The longest time that a peer may leave an accepted connection unanswered: all repeats of
    /// the REP fit in it, and so does what an MRA about it asks for. Who asks and goes away holds
    /// an Endpoint for two of these.
    pub longest_half_open: u8,
    /// Link layer of the port: on InfiniBand GIDs and addresses differ.
    pub link: LinkType,
}

impl Config {
    /// The defaults for a node with this GUID.
    #[must_use]
    pub const fn new(node_guid: u64) -> Self {
        Self {
            node_guid,
            response_timeout: 20,
            packet_lifetime: 16,
            max_retries: 15,
            service_timeout: 24,
            longest_response: 21,
            longest_half_open: 22,
            link: LinkType::Ethernet,
        }
    }

    /// Time between two transmissions of a REQ: there, an answer, and back.
    #[must_use]
    pub const fn request_interval(&self) -> Duration {
        Duration::from_nanos(self.request_nanos())
    }

    pub(super) const fn request_nanos(&self) -> u64 {
        2 * code_nanos(self.packet_lifetime) + code_nanos(self.response_timeout)
    }
}

/// The time that a CM code stands for, `4.096 us * 2^code`; only five bits of the code count.
#[must_use]
pub const fn code_time(code: u8) -> Duration {
    Duration::from_nanos(code_nanos(code))
}

pub(super) const fn code_nanos(code: u8) -> u64 {
    4096 << (code & 31)
}

/// The local ACK timeout code for a queue pair: covers the packet lifetime there and the peer's
/// delay in acknowledging.
#[must_use]
pub const fn ack_timeout(target_ack_delay: u8, packet_lifetime: u8) -> u8 {
    let delay = target_ack_delay & 31;
    let lifetime = (packet_lifetime & 31) + 1;
    // The sum of two powers of two, rounded up to a power of two when the smaller is at least half
    // of the larger.
    let (larger, smaller) = if lifetime >= delay { (lifetime, delay) } else { (delay, lifetime) };
    let code = larger + (smaller + 1 >= larger) as u8;
    if code > 31 { 31 } else { code }
}

/// Everything a REQ says.
#[derive(Clone, Copy, Debug)]
pub struct ConnectParams<'a> {
    /// Address of the peer; only MADs from there belong to the connection.
    pub remote: IpAddr,
    /// Own address; same family as `remote`.
    pub local: IpAddr,
    /// The service asked for: [`ServiceId::tcp`] for a port of the RDMA IP CM service.
    pub service: ServiceId,
    /// Own port, sent to the peer in the IP CM header.
    pub source_port: u16,
    /// Own queue pair.
    pub qpn: u32,
    /// Reads the peer may have outstanding here.
    pub responder_resources: u8,
    /// Reads this side wants to have outstanding at the peer.
    pub initiator_depth: u8,
    /// Transport retries of both queue pairs, 0..7.
    pub retry_count: u8,
    /// RNR retries the peer's queue pair shall make, 7 = without end.
    pub rnr_retry: u8,
    /// Path MTU.
    pub mtu: Mtu,
    /// Local ACK timeout of the peer's queue pair, see [`ack_timeout`].
    pub ack_timeout: u8,
    /// 20-bit flow label, the same for both directions.
    pub flow_label: u32,
    /// Traffic class and service level for both directions.
    pub class: Class,
    /// Hop limit for both directions.
    pub hop_limit: u8,
    /// For the peer's consumer: at most 56 bytes to an IP CM service, 92 to any other. Reaches it
    /// padded with zeros.
    pub private_data: &'a [u8],
}

/// The fields of a REP that the REQ does not determine.
#[derive(Clone, Copy, Debug)]
pub struct AcceptParams {
    /// Own queue pair, already in ready-to-receive.
    pub qpn: u32,
    /// Reads the peer may have outstanding here.
    pub responder_resources: u8,
    /// Reads this side will have outstanding; at most what the request offered
    /// ([`QpTerms::initiator_depth`]).
    pub initiator_depth: u8,
    /// How long the local HCA may take to acknowledge, as a code.
    pub target_ack_delay: u8,
    /// RNR retries the peer's queue pair shall make, 7 = without end.
    pub rnr_retry: u8,
}

/// Result of the exchange for a queue pair, from the view of this side: nothing is left to be
/// swapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpTerms {
    /// The peer's queue pair.
    pub remote_qpn: u32,
    /// First PSN to expect (chosen by this side).
    pub rq_psn: u32,
    /// First PSN to send (chosen by the peer).
    pub sq_psn: u32,
    /// Path MTU.
    pub mtu: Mtu,
    /// Reads the peer may have outstanding here: what it asked for; on the active side never above
    /// what was offered.
    pub responder_resources: u8,
    /// Reads this side may have outstanding at the peer: what it offers; on the active side never
    /// above what was asked.
    pub initiator_depth: u8,
    /// Transport retries.
    pub retry_count: u8,
    /// RNR retries, 7 = without end.
    pub rnr_retry: u8,
    /// Local ACK timeout code.
    pub ack_timeout: u8,
    /// Traffic class and priority of what this side sends: those of the REQ.
    pub class: Class,
}

impl QpTerms {
    /// The queue pair's step to ready-to-send.
    #[must_use]
    pub const fn ready_to_send(&self) -> QpStep {
        QpStep::Rts {
            sq_psn: self.sq_psn,
            initiator_depth: self.initiator_depth,
            ack_timeout: self.ack_timeout,
            retry_count: self.retry_count,
            rnr_retry: self.rnr_retry,
        }
    }
}
