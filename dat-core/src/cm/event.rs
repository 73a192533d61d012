//! Events of the connection manager for its caller.

use core::fmt;
use core::net::IpAddr;

use crate::cm::params::{ConnId, QpTerms};
use crate::cm::wire::reason::Reason;
use crate::cm::wire::service::ServiceId;
use crate::cm::wire::sidr::SidrStatus;

/// One thing that happened to one connection.
///
/// A connection has one of two sequences of events. Active: [`Reply`](Self::Reply), then after
/// [`Cm::ready`](crate::cm::Cm::ready) the end. Passive: [`Request`](Self::Request), after
/// [`Cm::accept`](crate::cm::Cm::accept) [`Established`](Self::Established), then the end. The end
/// is exactly one of [`Rejected`](Self::Rejected), [`Unreachable`](Self::Unreachable) and
/// [`Disconnected`](Self::Disconnected), and may come at any point; after it the [`ConnId`] is
/// void. A connection that the caller itself ended by [`Cm::reject`](crate::cm::Cm::reject) or
/// [`Cm::abort`](crate::cm::Cm::abort) says nothing more.
///
/// A look-up has one event: [`SidrRequest`](Self::SidrRequest) where it is answered;
/// [`SidrReply`](Self::SidrReply) or [`Unreachable`](Self::Unreachable) where it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CmEvent {
    /// A peer asks for a connection: answer with `accept` or `reject`. Its private data is
    /// readable.
    Request(Request),
    /// The peer accepted: bring the queue pair to ready-to-send, then call `ready`. Its private
    /// data is readable.
    Reply(Reply),
    /// Passive side only: the peer is ready. (The active side is established when `ready` returns
    /// `Ok`.)
    Established {
        /// Which connection.
        conn: ConnId,
    },
    /// The connection was refused before it was established. The rejecter's private data is
    /// readable.
    Rejected {
        /// Which connection.
        conn: ConnId,
        /// Why. [`Reason::CONSUMER`] is the peer's consumer, all others are the network's doing.
        reason: Reason,
    },
    /// The peer did not answer a REQ, a REP or a SIDR_REQ after all retries.
    Unreachable {
        /// Which connection.
        conn: ConnId,
    },
    /// The connection was established and is no more; on the active side also between `Reply` and
    /// `ready`, when the peer took the first packet for the RTU and has disconnected already.
    Disconnected {
        /// Which connection.
        conn: ConnId,
        /// How it ended.
        cause: Cause,
    },
    /// A peer looks a service for datagrams up: answer with `sidr_accept` or `reject`. Its private
    /// data is readable. Such a request has addresses, a service and a port; datagrams agree on
    /// nothing else. Nothing follows.
    SidrRequest(Request),
    /// The answer to a look-up, which ends it. The peer's private data is readable.
    SidrReply(SidrReply),
}

impl CmEvent {
    /// The connection it is about.
    #[must_use]
    pub const fn conn(&self) -> ConnId {
        match self {
            Self::Request(request) | Self::SidrRequest(request) => request.conn,
            Self::SidrReply(reply) => reply.conn,
            Self::Reply(reply) => reply.conn,
            Self::Established { conn }
            | Self::Rejected { conn, .. }
            | Self::Unreachable { conn }
            | Self::Disconnected { conn, .. } => *conn,
        }
    }
}

/// How an established connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// This side asked, and the peer agreed.
    Local,
    /// The peer asked; it has been answered. Also when both asked at once.
    Remote,
    /// This side asked, and the peer never answered.
    Unanswered,
    /// The peer refused the connection after it was established here.
    Rejected(Reason),
    /// The peer asked for a new connection of the same queue pair, and did not know this one when it
    /// was asked.
    Stale,
}

/// A REQ, with everything a queue pair needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The new connection.
    pub conn: ConnId,
    /// The peer.
    pub remote: IpAddr,
    /// Own address as the peer knows it.
    pub local: IpAddr,
    /// The service asked for; [`ServiceId::port`] is the port of the listener.
    pub service: ServiceId,
    /// The peer's port; 0 if the service is not of the IP CM.
    pub remote_port: u16,
    /// Flow label to use.
    pub flow_label: u32,
    /// Hop limit to use.
    pub hop_limit: u8,
    /// For the queue pair. `responder_resources` and `initiator_depth` are what the peer asked for
    /// and offers: the caller takes less if it must.
    pub terms: QpTerms,
}

/// A REP, with everything a queue pair needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The connection.
    pub conn: ConnId,
    /// For the queue pair.
    pub terms: QpTerms,
}

/// A SIDR_REP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SidrReply {
    /// The look-up.
    pub conn: ConnId,
    /// Whether the service is there.
    pub status: SidrStatus,
    /// If it is: its queue pair.
    pub qpn: u32,
    /// If it is: what that queue pair takes.
    pub q_key: u32,
}

/// A datagram to send from QP1 to QP1 of `to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// The peer.
    pub to: IpAddr,
    /// The whole MAD.
    pub mad: [u8; 256],
    /// The connection it belongs to; `None` for an answer to a message that belongs to none.
    pub conn: Option<ConnId>,
}

/// Why a call was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CmError {
    /// The connection has ended, or never was.
    Unknown(ConnId),
    /// The connection is in a state that does not allow the call.
    State(ConnId, &'static str),
    /// All slots are in use.
    NoSlot,
    /// More private data (or ARI) than the message carries.
    TooLong {
        /// Bytes given.
        given: usize,
        /// Bytes possible.
        most: usize,
    },
    /// A parameter is out of range; says which, and what to do.
    Parameter(&'static str),
}

impl fmt::Display for CmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(conn) => write!(f, "connection {:#010x} has ended: drop its ID", conn.id),
            Self::State(conn, state) => {
                write!(f, "connection {:#010x} is {state}: the call does not apply", conn.id)
            }
            Self::NoSlot => {
                f.write_str("all connection slots are in use: give Cm::new a longer slice")
            }
            Self::TooLong { given, most } => {
                write!(f, "{given} bytes of private data: the message carries {most} at most")
            }
            Self::Parameter(what) => f.write_str(what),
        }
    }
}

impl core::error::Error for CmError {}

/// Counts of messages since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// MADs given to [`Cm::input`](crate::cm::Cm::input).
    pub received: u64,
    /// MADs taken from [`Cm::poll_transmit`](crate::cm::Cm::poll_transmit).
    pub sent: u64,
    /// Of these, retransmissions.
    pub retransmitted: u64,
    /// Received again after they had been acted upon.
    pub duplicates: u64,
    /// Dropped: malformed, or not a message of this class.
    pub malformed: u64,
    /// Dropped: for a known connection, but from another address or with a wrong ID, transaction
    /// or queue pair. It is the sum of the four that follow.
    pub foreign: u64,
    /// Dropped: from another address than the peer's, or a request that names another.
    pub wrong_address: u64,
    /// Dropped: with another comm ID than the peer's.
    pub wrong_id: u64,
    /// Dropped: an answer to another transaction than this side's.
    pub wrong_transaction: u64,
    /// Dropped: a DREQ of another queue pair.
    pub wrong_qpn: u64,
    /// Dropped: made no sense in the state of the connection.
    pub unexpected: u64,
    /// For a connection that is not in the table.
    pub unknown: u64,
    /// Requests turned away for want of a slot.
    pub no_slot: u64,
    /// Connections that looked stale.
    pub stale: u64,
    /// Answers lost because too many peers had to be answered at once.
    pub answers_dropped: u64,
    /// Requests and answers dropped because no way leads to the peer: nobody is at its address.
    pub unreachable: u64,
    /// Requests and answers dropped before it was known whether their peer is there, because others
    /// came.
    pub gave_way: u64,
}

impl fmt::Display for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "received {}, sent {} (again {}), duplicates {}, malformed {}, foreign {} (address {}, \
             ID {}, transaction {}, queue pair {}), unexpected {}, unknown {}, no slot {}, stale {}, \
             not answered {}, nobody there {}, gave way {}",
            self.received,
            self.sent,
            self.retransmitted,
            self.duplicates,
            self.malformed,
            self.foreign,
            self.wrong_address,
            self.wrong_id,
            self.wrong_transaction,
            self.wrong_qpn,
            self.unexpected,
            self.unknown,
            self.no_slot,
            self.stale,
            self.answers_dropped,
            self.unreachable,
            self.gave_way,
        )
    }
}
