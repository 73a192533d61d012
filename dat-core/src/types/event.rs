//! Events, with the numbers of `dat.h`, and their form in a ring.
//!
//! Length: each kind of event with its number, and both ways between it and three words; apart they
//! would not be checked by one look.

use core::fmt;

use crate::types::completion::{Arrived, Completion, Direction, Extra, NetworkHeader, Status};
use crate::types::handle::{AnyHandle, Cr, Csp, Ep, Evd, Handle, Psp, Rmr, Rsp, Srq};

/// `DAT_DTOS`: which operation completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum DtoOperation {
    /// A send.
    Send = 0,
    /// An RDMA write.
    RdmaWrite = 1,
    /// An RDMA read.
    RdmaRead = 2,
    /// A receive.
    Receive = 3,
    /// A receive of a message that closed a window; [`Ia::evd_extension`](crate::Ia::evd_extension)
    /// has its key.
    ReceiveWithInvalidate = 4,
    /// A bind; here it completes with [`Event::RmrBind`].
    BindMw = 5,
    /// kDAPL: a fast registration.
    LmrFmr = 6,
    /// kDAPL: the end of one.
    LmrInvalidate = 7,
}

/// `DAT_DTO_COMPLETION_STATUS`: how an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum DtoStatus {
    /// It succeeded; the length is valid.
    Success = 0,
    /// The connection ended before it ran.
    ErrFlushed = 1,
    /// The message did not fit the local segments.
    ErrLocalLength = 2,
    /// The queue pair refused the request.
    ErrLocalEp = 3,
    /// A local key, range, right or zone was wrong.
    ErrLocalProtection = 4,
    /// The peer's response made no sense.
    ErrBadResponse = 5,
    /// The peer's context, range, right or zone was wrong.
    ErrRemoteAccess = 6,
    /// The peer could not carry it out.
    ErrRemoteResponder = 7,
    /// No acknowledgement after all retries, or the device failed.
    ErrTransport = 8,
    /// The peer had no receive posted after all retries.
    ErrReceiverNotReady = 9,
    /// iWARP only.
    ErrPartialPacket = 10,
    /// A bind was refused.
    RmrOperationFailed = 11,
    /// kDAPL only.
    ErrLocalMmError = 12,
}

impl fmt::Display for DtoStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Success => "it succeeded",
            Self::ErrFlushed => "the connection ended before the request ran",
            Self::ErrLocalLength => "the message does not fit the local segments",
            Self::ErrLocalEp => "the queue pair refused the request",
            Self::ErrLocalProtection => "a local key, range, right or zone is wrong",
            Self::ErrBadResponse => "the peer's response made no sense",
            Self::ErrRemoteAccess => "the peer's context, range, right or zone is wrong",
            Self::ErrRemoteResponder => "the peer could not carry the request out",
            Self::ErrTransport => "no acknowledgement after all retries, or the device failed",
            Self::ErrReceiverNotReady => "the peer had no receive posted after all retries",
            Self::ErrPartialPacket => "a packet came in part",
            Self::RmrOperationFailed => "the bind was refused",
            Self::ErrLocalMmError => "the local memory management failed",
        })
    }
}

/// So that a program returns a failed completion as its error.
impl core::error::Error for DtoStatus {}

impl DtoStatus {
    /// Its number.
    #[must_use]
    pub const fn number(self) -> u32 {
        self as u32
    }

    /// What the fabric's status means to a DAT consumer.
    #[must_use]
    pub const fn from_status(status: Status) -> Self {
        match status {
            Status::Success => Self::Success,
            Status::Flushed => Self::ErrFlushed,
            Status::LocalLength => Self::ErrLocalLength,
            Status::LocalQpOperation => Self::ErrLocalEp,
            Status::LocalProtection | Status::LocalAccess => Self::ErrLocalProtection,
            Status::WindowBind => Self::RmrOperationFailed,
            Status::BadResponse => Self::ErrBadResponse,
            Status::RemoteAccess => Self::ErrRemoteAccess,
            Status::RemoteInvalidRequest | Status::RemoteOperation | Status::RemoteAborted => {
                Self::ErrRemoteResponder
            }
            Status::TransportRetry | Status::Other => Self::ErrTransport,
            Status::RnrRetry => Self::ErrReceiverNotReady,
        }
    }
}

/// Completion of a DTO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DtoEvent {
    /// Where it was posted.
    pub ep: Ep,
    /// What the consumer gave with it.
    pub cookie: u64,
    /// How it ended.
    pub status: DtoStatus,
    /// Bytes moved, if it succeeded.
    pub len: u32,
    /// What it was.
    pub operation: DtoOperation,
}

/// `DAT_IB_DTOS`: which operation of the InfiniBand extensions completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum IbOperation {
    /// An RDMA write with immediate, at its initiator.
    RdmaWriteImmed = 8,
    /// A receive took the immediate of an RDMA write; the length is that of the write.
    RecvRdmaWriteImmed = 9,
    /// A fetch and add.
    FetchAdd = 10,
    /// A compare and swap.
    CmpSwap = 11,
    /// A receive took a message with an immediate.
    RecvMsgImmed = 12,
    /// A datagram was sent.
    SendUd = 13,
    /// A receive took a datagram; the length includes the [`GRH_LEN`](crate::GRH_LEN) bytes in
    /// front of it.
    RecvMsgUd = 14,
    /// A receive took a datagram with an immediate.
    RecvMsgUdImmed = 15,
}

/// Completion of a DTO of the InfiniBand extensions. What a receive tells besides is at
/// [`Ia::evd_extension`](crate::Ia::evd_extension).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IbDtoEvent {
    /// Where it was posted.
    pub ep: Ep,
    /// What the consumer gave with it.
    pub cookie: u64,
    /// Bytes moved, if it succeeded.
    pub len: u32,
    /// What it was.
    pub operation: IbOperation,
    /// [`DtoStatus`] by its number: so small, the event of the extension fits where all others do.
    status: u8,
}

impl IbDtoEvent {
    pub(crate) const fn new(
        ep: Ep,
        cookie: u64,
        status: DtoStatus,
        len: u32,
        operation: IbOperation,
    ) -> Self {
        let status = status.number().to_le_bytes()[0];
        Self { ep, cookie, len, operation, status }
    }

    /// How it ended.
    #[must_use]
    pub const fn status(&self) -> DtoStatus {
        match self.status {
            0 => DtoStatus::Success,
            1 => DtoStatus::ErrFlushed,
            2 => DtoStatus::ErrLocalLength,
            3 => DtoStatus::ErrLocalEp,
            4 => DtoStatus::ErrLocalProtection,
            5 => DtoStatus::ErrBadResponse,
            6 => DtoStatus::ErrRemoteAccess,
            7 => DtoStatus::ErrRemoteResponder,
            9 => DtoStatus::ErrReceiverNotReady,
            _ => DtoStatus::ErrTransport,
        }
    }
}

/// What an asynchronous event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AsyncEvent {
    /// An event was lost because its Event Dispatcher was full, or its completion queue failed.
    EvdOverflow(Evd),
    /// The device is lost.
    IaCatastrophic,
    /// An Endpoint without a connection broke; or one with a Shared Receive Queue became
    /// DISCONNECTED, however, and takes nothing more from there: IBTA's Last WQE Reached, which
    /// DAT has no other event for.
    EpBroken(Ep),
    /// An Endpoint holds more receives than its soft watermark.
    EpSoftHighWatermark(Ep),
    /// A Shared Receive Queue holds fewer receives than its low watermark.
    SrqLowWatermark(Srq),
    /// A Shared Receive Queue failed.
    SrqBroken(Srq),
    /// The device did not answer in time.
    TimedOut,
    /// The provider found itself in a state it should not be in.
    ProviderInternalError,
}

impl AsyncEvent {
    /// `DAT_ASYNCH_ERROR_EVENT_DATA.dat_handle`: what it is about.
    #[must_use]
    pub const fn handle(&self) -> AnyHandle {
        match self {
            Self::EvdOverflow(evd) => AnyHandle::Evd(*evd),
            Self::EpBroken(ep) | Self::EpSoftHighWatermark(ep) => AnyHandle::Ep(*ep),
            Self::SrqLowWatermark(srq) | Self::SrqBroken(srq) => AnyHandle::Srq(*srq),
            Self::IaCatastrophic | Self::TimedOut | Self::ProviderInternalError => AnyHandle::Ia,
        }
    }

    /// `DAT_ASYNCH_ERROR_EVENT_DATA.reason`, by the numbers that the header has for that kind of
    /// object: 0 an overflow, a transfer to the error state, a catastrophe; 2 a watermark; 1
    /// anything else.
    #[must_use]
    pub const fn reason(&self) -> u32 {
        match self {
            Self::EvdOverflow(_)
            | Self::IaCatastrophic
            | Self::EpBroken(_)
            | Self::SrqBroken(_) => 0,
            Self::TimedOut | Self::ProviderInternalError => 1,
            Self::EpSoftHighWatermark(_) | Self::SrqLowWatermark(_) => 2,
        }
    }
}

/// `DAT_EVENT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A send, receive, read or write completed.
    Dto(DtoEvent),
    /// A DTO of the InfiniBand extensions completed.
    IbDto(IbDtoEvent),
    /// A bind or unbind completed.
    RmrBind {
        /// The RMR.
        rmr: Rmr,
        /// What the consumer gave with it.
        cookie: u64,
        /// How it ended.
        status: DtoStatus,
    },
    /// A peer asks for a connection.
    ConnectionRequest {
        /// The service point it came to.
        psp: Psp,
        /// The request.
        cr: Cr,
        /// The service point's qualifier.
        conn_qual: u64,
    },
    /// A peer asks for a connection at a Reserved Service Point.
    ReservedRequest {
        /// The service point it came to.
        rsp: Rsp,
        /// The request.
        cr: Cr,
        /// The service point's qualifier.
        conn_qual: u64,
    },
    /// A peer asks for a connection at a Common Service Point.
    CommonRequest {
        /// The service point it came to.
        csp: Csp,
        /// The request.
        cr: Cr,
        /// The service point's port.
        conn_qual: u64,
    },
    /// The connection is there.
    Established(Ep),
    /// The peer's consumer said no.
    PeerRejected(Ep),
    /// The peer, or something on the way, said no without its consumer.
    NonPeerRejected(Ep),
    /// An accepted connection did not come about.
    AcceptCompletionError(Ep),
    /// The connection ended as one side wished.
    Disconnected(Ep),
    /// The connection ended by an error.
    Broken(Ep),
    /// The consumer's own timeout passed.
    TimedOut(Ep),
    /// Nobody answered.
    Unreachable(Ep),
    /// A peer asks which queue pair takes datagrams for a service point (extension): accepted with
    /// an Endpoint for datagrams.
    UdConnectionRequest {
        /// The service point it came to.
        psp: Psp,
        /// The request.
        cr: Cr,
        /// The service point's qualifier.
        conn_qual: u64,
    },
    /// An Endpoint for datagrams has found a service point it asked for (extension): see
    /// [`Ia::ep_ud_answer`](crate::Ia::ep_ud_answer).
    UdEstablished(Ep, LookUp),
    /// A peer was given an Endpoint for datagrams, by accepting its request (extension): what
    /// the peer sends from the request has said, see [`CrParam`](crate::CrParam).
    UdAccepted(Ep),
    /// The service point that an Endpoint for datagrams asked for is not there, or refused
    /// (extension).
    UdReject(Ep, LookUp),
    /// Nobody answered an Endpoint for datagrams in time (extension).
    UdError(Ep),
    /// Something besides the streams.
    Async(AsyncEvent),
    /// What the consumer posted itself.
    Software(u64),
}

impl Event {
    /// `event_number`.
    #[must_use]
    pub const fn number(&self) -> u32 {
        match self {
            Self::Dto(_) => 0x0_0001,
            Self::RmrBind { .. } => 0x0_1001,
            Self::ConnectionRequest { .. }
            | Self::ReservedRequest { .. }
            | Self::CommonRequest { .. } => 0x0_2001,
            Self::Established(_) => 0x0_4001,
            Self::PeerRejected(_) => 0x0_4002,
            Self::NonPeerRejected(_) => 0x0_4003,
            Self::AcceptCompletionError(_) => 0x0_4004,
            Self::Disconnected(_) => 0x0_4005,
            Self::Broken(_) => 0x0_4006,
            Self::TimedOut(_) => 0x0_4007,
            Self::Unreachable(_) => 0x0_4008,
            Self::Async(AsyncEvent::EvdOverflow(_)) => 0x0_8001,
            Self::Async(AsyncEvent::IaCatastrophic) => 0x0_8002,
            Self::Async(AsyncEvent::EpBroken(_) | AsyncEvent::EpSoftHighWatermark(_)) => 0x0_8003,
            Self::Async(AsyncEvent::TimedOut) => 0x0_8004,
            // DAT has no number for those of SRQs: handle and reason tell them apart.
            Self::Async(
                AsyncEvent::ProviderInternalError
                | AsyncEvent::SrqLowWatermark(_)
                | AsyncEvent::SrqBroken(_),
            ) => 0x0_8005,
            Self::Software(_) => 0x1_0001,
            Self::IbDto(_) => 0x4_0000,
            Self::UdConnectionRequest { .. } => 0x4_0001,
            Self::UdEstablished(..) | Self::UdAccepted(_) => 0x4_0002,
            Self::UdReject(..) => 0x4_0003,
            Self::UdError(_) => 0x4_0004,
        }
    }

    /// Whether it is a completion of which [`DtoEvent`] says everything.
    #[inline(always)]
    #[must_use]
    pub const fn is_plain(&self) -> bool {
        matches!(self, Self::Dto(dto) if !matches!(dto.operation, DtoOperation::ReceiveWithInvalidate))
    }

    /// Whether it ends a connection, or an attempt at one: all completions of the Endpoint come
    /// before it.
    #[must_use]
    pub const fn is_terminal(&self) -> bool {
        terminal(self.number())
    }

    /// The request that it tells of, if it does.
    #[must_use]
    pub const fn request(&self) -> Option<Cr> {
        if let Self::ConnectionRequest { cr, .. }
        | Self::UdConnectionRequest { cr, .. }
        | Self::ReservedRequest { cr, .. }
        | Self::CommonRequest { cr, .. } = self
        {
            Some(*cr)
        } else {
            None
        }
    }

    /// Whether it is one of `DAT_CONNECTION_EVENT`.
    pub(crate) const fn is_connection(&self) -> bool {
        self.number() >> 8 == 0x40
    }

    /// The event as words of a ring. DTO and bind completions never pass through a ring.
    pub(crate) const fn encode(&self) -> [u64; 3] {
        let number = self.number() as u64;
        match self {
            Self::Dto(_) | Self::IbDto(_) | Self::RmrBind { .. } => [0, 0, 0],
            Self::ConnectionRequest { psp, cr, conn_qual }
            | Self::UdConnectionRequest { psp, cr, conn_qual } => {
                [number | *conn_qual << 32, psp.raw(), cr.raw()]
            }
            Self::ReservedRequest { rsp, cr, conn_qual } => {
                [number | *conn_qual << 32 | RESERVED, rsp.raw(), cr.raw()]
            }
            Self::CommonRequest { csp, cr, conn_qual } => {
                [number | *conn_qual << 32 | COMMON, csp.raw(), cr.raw()]
            }
            Self::UdAccepted(ep) => [number | ACCEPTED, ep.raw(), 0],
            Self::UdEstablished(ep, of) | Self::UdReject(ep, of) => [number, ep.raw(), of.raw()],
            Self::Async(AsyncEvent::EpSoftHighWatermark(ep)) => [number | WATERMARK, ep.raw(), 0],
            Self::Async(AsyncEvent::SrqLowWatermark(srq)) => [number | WATERMARK, srq.raw(), 0],
            Self::Async(AsyncEvent::SrqBroken(srq)) => [number | BROKEN, srq.raw(), 0],
            Self::Established(ep)
            | Self::PeerRejected(ep)
            | Self::NonPeerRejected(ep)
            | Self::AcceptCompletionError(ep)
            | Self::Disconnected(ep)
            | Self::Broken(ep)
            | Self::TimedOut(ep)
            | Self::Unreachable(ep)
            | Self::UdError(ep)
            | Self::Async(AsyncEvent::EpBroken(ep)) => [number, ep.raw(), 0],
            Self::Async(AsyncEvent::EvdOverflow(evd)) => [number, evd.raw(), 0],
            Self::Async(
                AsyncEvent::IaCatastrophic
                | AsyncEvent::TimedOut
                | AsyncEvent::ProviderInternalError,
            ) => [number, 0, 0],
            Self::Software(pointer) => [number, *pointer, 0],
        }
    }

    /// The event of those words.
    pub(crate) const fn decode([first, second, third]: [u64; 3]) -> Option<Self> {
        let ep = Ep(Handle::from_raw(second));
        let srq = Srq(Handle::from_raw(second));
        let cr = Cr(Handle::from_raw(third));
        let conn_qual = first >> 32 & 0xffff;
        let kind = first & 0xf << 48;
        Some(match first & 0xffff_ffff {
            0x0_2001 => match kind {
                RESERVED => {
                    Self::ReservedRequest { rsp: Rsp(Handle::from_raw(second)), cr, conn_qual }
                }
                COMMON => Self::CommonRequest { csp: Csp(Handle::from_raw(second)), cr, conn_qual },
                _ => Self::ConnectionRequest { psp: Psp(Handle::from_raw(second)), cr, conn_qual },
            },
            0x0_8003 if kind == WATERMARK => Self::Async(AsyncEvent::EpSoftHighWatermark(ep)),
            0x0_8005 if kind == WATERMARK => Self::Async(AsyncEvent::SrqLowWatermark(srq)),
            0x0_8005 if kind == BROKEN => Self::Async(AsyncEvent::SrqBroken(srq)),
            0x0_4001 => Self::Established(ep),
            0x0_4002 => Self::PeerRejected(ep),
            0x0_4003 => Self::NonPeerRejected(ep),
            0x0_4004 => Self::AcceptCompletionError(ep),
            0x0_4005 => Self::Disconnected(ep),
            0x0_4006 => Self::Broken(ep),
            0x0_4007 => Self::TimedOut(ep),
            0x0_4008 => Self::Unreachable(ep),
            0x0_8001 => Self::Async(AsyncEvent::EvdOverflow(Evd(Handle::from_raw(second)))),
            0x0_8002 => Self::Async(AsyncEvent::IaCatastrophic),
            0x0_8003 => Self::Async(AsyncEvent::EpBroken(ep)),
            0x0_8004 => Self::Async(AsyncEvent::TimedOut),
            0x0_8005 => Self::Async(AsyncEvent::ProviderInternalError),
            0x1_0001 => Self::Software(second),
            0x4_0001 => Self::UdConnectionRequest {
                psp: Psp(Handle::from_raw(second)),
                cr: Cr(Handle::from_raw(third)),
                conn_qual: first >> 32,
            },
            0x4_0002 if kind == ACCEPTED => Self::UdAccepted(ep),
            0x4_0002 => Self::UdEstablished(ep, LookUp::from_raw(third)),
            0x4_0003 => Self::UdReject(ep, LookUp::from_raw(third)),
            0x4_0004 => Self::UdError(ep),
            _ => return None,
        })
    }
}

/// What tells events of one number apart in a ring.
const RESERVED: u64 = 1 << 48;
const COMMON: u64 = 2 << 48;
const WATERMARK: u64 = 3 << 48;
const BROKEN: u64 = 4 << 48;
const ACCEPTED: u64 = 5 << 48;

const fn terminal(number: u32) -> bool {
    number >= 0x0_4002 && number <= 0x0_4008
}

/// First word of a ring entry that carries a completion taken from the completion queue early. No
/// event has that number.
const ABSORBED: u64 = 0xffff_ffff;

/// One entry of a ring.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Entry {
    Event(Event),
    Absorbed(Completion),
}

impl Entry {
    pub(crate) const fn decode(words: [u64; 3]) -> Option<Self> {
        match Event::decode(words) {
            Some(event) => Some(Self::Event(event)),
            None if words[0] & 0xffff_ffff == ABSORBED => match unpack(words) {
                Some(completion) => Some(Self::Absorbed(completion)),
                None => None,
            },
            None => None,
        }
    }
}

/// A completion as words of a ring.
pub(crate) fn pack(completion: &Completion) -> [u64; 3] {
    let extra = completion.extra;
    let detail = if completion.status == Status::Success {
        u64::from(extra.source_qpn)
    } else {
        u64::from(completion.syndrome) | u64::from(completion.vendor) << 8
    };
    // Only a datagram's LID is of use, and a datagram is short.
    let (network, lid) = match extra.network {
        NetworkHeader::V4 => (1, 0),
        NetworkHeader::V6 => (2, 0),
        NetworkHeader::Lid(lid) if completion.len <= 0xffff => (3, lid),
        NetworkHeader::Unsaid | NetworkHeader::Lid(_) => (0_u64, 0),
    };
    [
        ABSORBED | u64::from(extra.immediate) << 32,
        u64::from(completion.index) << 32 | u64::from(completion.len) | u64::from(lid) << 16,
        u64::from(completion.token)
            | u64::from(completion.direction == Direction::Recv) << 16
            | u64::from(extra.arrived as u8) << 17
            | u64::from(extra.solicited) << 19
            | network << 20
            | u64::from(completion.status as u8) << 24
            | detail << 32,
    ]
}

#[expect(clippy::cast_possible_truncation, reason = "fields of a word")]
const fn unpack([zeroth, first, second]: [u64; 3]) -> Option<Completion> {
    const ALL: [Status; 15] = [
        Status::Success,
        Status::Flushed,
        Status::LocalLength,
        Status::LocalQpOperation,
        Status::LocalProtection,
        Status::WindowBind,
        Status::BadResponse,
        Status::LocalAccess,
        Status::RemoteInvalidRequest,
        Status::RemoteAccess,
        Status::RemoteOperation,
        Status::TransportRetry,
        Status::RnrRetry,
        Status::RemoteAborted,
        Status::Other,
    ];
    let code = (second >> 24) as u8 as usize;
    if code >= ALL.len() {
        return None;
    }
    let arrived = match second >> 17 & 3 {
        0 => Arrived::Message,
        1 => Arrived::Immediate,
        2 => Arrived::WriteImmediate,
        _ => Arrived::Invalidation,
    };
    let (len, network) = match second >> 20 & 3 {
        0 => (first as u32, NetworkHeader::Unsaid),
        1 => (first as u32, NetworkHeader::V4),
        2 => (first as u32, NetworkHeader::V6),
        _ => (first as u16 as u32, NetworkHeader::Lid((first >> 16) as u16)),
    };
    // A failure has syndromes where a success has its sender.
    let (detail, success) = ((second >> 32) as u32, code == 0);
    Some(Completion {
        index: (first >> 32) as u32,
        len,
        token: second as u16,
        direction: if second & 1 << 16 == 0 { Direction::Send } else { Direction::Recv },
        #[expect(clippy::indexing_slicing, reason = "the index was compared with the length")]
        status: ALL[code],
        syndrome: if success { 0 } else { detail as u8 },
        vendor: if success { 0 } else { (detail >> 8) as u8 },
        extra: Extra {
            arrived,
            immediate: (zeroth >> 32) as u32,
            source_qpn: if success { detail } else { 0 },
            solicited: second & 1 << 19 != 0,
            network,
        },
    })
}

/// Names one question of an Endpoint for datagrams, in the event of its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LookUp(pub(crate) u32);

impl LookUp {
    /// As an event carries it, and whoever keeps it as a word.
    #[must_use]
    pub const fn raw(self) -> u64 {
        self.0 as u64
    }

    /// Of that word. One that no event carried names nothing.
    #[must_use]
    pub const fn from_raw(raw: u64) -> Self {
        Self((raw & 0xffff_ffff) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ring_words_read_back() {
        let ep = Ep(Handle::new(3, 0xffff_0001));
        let evd = Evd(Handle::new(4, 9));
        let psp = Psp(Handle::new(1, 2));
        let cr = Cr(Handle::new(5, u32::MAX));
        let (rsp, csp) = (Rsp(Handle::new(6, 3)), Csp(Handle::new(7, 4)));
        let srq = Srq(Handle::new(8, 5));
        let all = [
            Event::ReservedRequest { rsp, cr, conn_qual: 1 },
            Event::CommonRequest { csp, cr, conn_qual: 65535 },
            Event::Async(AsyncEvent::EpSoftHighWatermark(ep)),
            Event::Async(AsyncEvent::SrqLowWatermark(srq)),
            Event::Async(AsyncEvent::SrqBroken(srq)),
            Event::ConnectionRequest { psp, cr, conn_qual: 65535 },
            Event::Established(ep),
            Event::PeerRejected(ep),
            Event::NonPeerRejected(ep),
            Event::AcceptCompletionError(ep),
            Event::Disconnected(ep),
            Event::Broken(ep),
            Event::TimedOut(ep),
            Event::Unreachable(ep),
            Event::UdConnectionRequest { psp, cr, conn_qual: 1 },
            Event::UdEstablished(ep, LookUp::from_raw(0xffff_fffe)),
            Event::UdAccepted(ep),
            Event::UdReject(ep, LookUp::from_raw(7)),
            Event::UdError(ep),
            Event::Async(AsyncEvent::EvdOverflow(evd)),
            Event::Async(AsyncEvent::IaCatastrophic),
            Event::Async(AsyncEvent::EpBroken(ep)),
            Event::Async(AsyncEvent::TimedOut),
            Event::Async(AsyncEvent::ProviderInternalError),
            Event::Software(u64::MAX),
        ];
        for event in all {
            assert_eq!(Event::decode(event.encode()), Some(event));
        }
        let terminal = all.iter().filter(|event| event.is_terminal()).count();
        assert_eq!(terminal, 7);
        assert_eq!(Event::decode([7, 0, 0]), None);
    }

    #[test]
    fn an_absorbed_completion_reads_back() {
        let completion = Completion {
            index: 0xab_cdef,
            len: u32::MAX,
            token: 0xfffe,
            direction: Direction::Recv,
            status: Status::Other,
            syndrome: 0x13,
            vendor: 0x88,
            extra: Extra::default(),
        };
        let Some(Entry::Absorbed(back)) = Entry::decode(pack(&completion)) else { panic!() };
        assert_eq!(back, completion);
        let datagram = Completion {
            status: Status::Success,
            syndrome: 0,
            vendor: 0,
            extra: Extra {
                arrived: Arrived::WriteImmediate,
                immediate: 0xdead_beef,
                source_qpn: 0xab_cdef,
                solicited: true,
                network: NetworkHeader::V6,
            },
            ..completion
        };
        for network in [NetworkHeader::V4, NetworkHeader::V6, NetworkHeader::Lid(0xbfff)] {
            let extra = Extra { network, ..datagram.extra };
            let datagram = Completion { len: 4096, extra, ..datagram };
            let Some(Entry::Absorbed(back)) = Entry::decode(pack(&datagram)) else { panic!() };
            assert_eq!(back, datagram);
        }
        let mut words = pack(&completion);
        words[2] |= 0xff << 24;
        assert!(Entry::decode(words).is_none());
    }
}
