//! The Endpoint's states and the one table of what happens in them.
//!
//! [`outcome`] answers every pair of state and stimulus, without a wildcard;
//! `tests/data/ep-transitions.txt` holds the same answers transcribed from the manual pages, and a
//! test compares them row by row. Effects (queue pair, flush, events) are carried out elsewhere and
//! never decide on a state of their own.

#[cfg(test)]
mod tests;

/// `DAT_EP_STATE`, with the numbers of `dat.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum EpState {
    /// Quiescent.
    Unconnected = 0,
    /// Quiescent, and not configured (2.0).
    UnconfiguredUnconnected = 1,
    /// Tied to an RSP.
    Reserved = 2,
    /// Tied to an RSP, and not configured (2.0).
    UnconfiguredReserved = 3,
    /// The RSP got a request.
    PassiveConnectionPending = 4,
    /// The RSP got a request, and it is not configured (2.0).
    UnconfiguredPassive = 5,
    /// Connecting.
    ActiveConnectionPending = 6,
    /// Made by the provider for a request.
    TentativeConnectionPending = 7,
    /// Made by the provider for a request, and not configured (2.0).
    UnconfiguredTentative = 8,
    /// Connected.
    Connected = 9,
    /// A graceful disconnect lets the posted requests finish.
    DisconnectPending = 10,
    /// Disconnected; posts are flushed.
    Disconnected = 11,
    /// Accepted, waiting for the peer.
    CompletionPending = 12,
    /// Connected over one path of two (2.0).
    ConnectedSinglePath = 13,
    /// Connected over two paths (2.0).
    ConnectedMultiPath = 14,
}

use EpState::ActiveConnectionPending as A;
use EpState::CompletionPending as CP;
use EpState::Connected as C;
use EpState::ConnectedMultiPath as CM;
use EpState::ConnectedSinglePath as CS;
use EpState::DisconnectPending as DP;
use EpState::Disconnected as D;
use EpState::PassiveConnectionPending as P;
use EpState::Reserved as R;
use EpState::TentativeConnectionPending as T;
use EpState::UnconfiguredPassive as UP;
use EpState::UnconfiguredReserved as UR;
use EpState::UnconfiguredTentative as UT;
use EpState::UnconfiguredUnconnected as UU;
use EpState::Unconnected as U;

use crate::types::dat_return::DatReturn;
use crate::types::dat_return::DatSubtype;
use crate::types::dat_return::DatType;
use crate::types::event::Event;
use crate::types::handle::Ep;

/// Bit of the state word: requests go to the queue pair.
pub(crate) const REQUEST_OPEN: u32 = 0x100;

/// Bit of the state word: receives go to the queue pair.
pub(crate) const RECV_OPEN: u32 = 0x200;

/// Bit of the state word, with [`REQUEST_OPEN`]: so do window binds.
pub(crate) const BIND_OPEN: u32 = 0x800;

impl EpState {
    /// Every state, in numeric order.
    pub const ALL: [Self; 15] = [U, UU, R, UR, P, UP, A, T, UT, C, DP, D, CP, CS, CM];

    /// Its number.
    #[must_use]
    pub const fn number(self) -> u32 {
        self as u32
    }

    pub(crate) fn from_word(word: u32) -> Self {
        Self::ALL.get((word & 0xff) as usize).copied().unwrap_or(D)
    }

    /// Whether that is the state of a word.
    #[inline(always)]
    pub(crate) const fn is_of(self, word: u32) -> bool {
        word & 0xff == self as u32
    }

    /// The refusal that names it.
    pub(crate) const fn refusal(self) -> DatReturn {
        DatReturn::new(DatType::InvalidState, self.subtype())
    }

    /// Whether nothing is going on: the zone may be changed.
    pub(crate) const fn is_quiescent(self) -> bool {
        matches!(self, U | UU | T | UT)
    }

    pub(crate) const fn is_disconnected(self) -> bool {
        matches!(self, D)
    }

    /// The state word: the number, and what goes to the queue pair.
    pub(crate) const fn word(self) -> u32 {
        let open = match self {
            C | CS | CM => REQUEST_OPEN | RECV_OPEN,
            U | R | P | T | A | CP | DP => RECV_OPEN,
            UU | UR | UP | UT | D => 0,
        };
        self as u32 | open
    }

    /// The same of an Endpoint for datagrams, which is connected from the start and posts its
    /// requests by another call.
    pub(crate) const fn datagram_word(self) -> u32 {
        let state = if matches!(self, U) { C } else { self };
        state.word() & !REQUEST_OPEN
    }

    /// The subtype that names it in `INVALID_STATE`.
    #[must_use]
    pub const fn subtype(self) -> DatSubtype {
        match self {
            U => DatSubtype::InvalidStateEpUnconnected,
            UU => DatSubtype::InvalidStateEpUnconfigured,
            R => DatSubtype::InvalidStateEpReserved,
            UR => DatSubtype::InvalidStateEpUnconfReserved,
            P => DatSubtype::InvalidStateEpPassConnPending,
            UP => DatSubtype::InvalidStateEpUnconfPassive,
            A => DatSubtype::InvalidStateEpActConnPending,
            T => DatSubtype::InvalidStateEpTentConnPending,
            UT => DatSubtype::InvalidStateEpUnconfTentative,
            C | CS | CM => DatSubtype::InvalidStateEpConnected,
            DP => DatSubtype::InvalidStateEpDiscPending,
            D => DatSubtype::InvalidStateEpDisconnected,
            CP => DatSubtype::InvalidStateEpComplPending,
        }
    }
}

/// What may happen to an Endpoint: a call of its consumer, or an event of its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EpOp {
    /// `dat_ep_connect` and its kin.
    Connect,
    /// `dat_rsp_create` with it.
    RspCreate,
    /// `dat_rsp_free` of its RSP.
    RspFree,
    /// `dat_cr_accept` that names it.
    AcceptNamed,
    /// `dat_cr_accept` without an Endpoint, for a request that has it already.
    AcceptOwn,
    /// `dat_cr_reject` of a request that has it already.
    Reject,
    /// `dat_ep_modify` that leaves it configured.
    Modify,
    /// `dat_ep_post_recv`.
    PostRecv,
    /// Any other post.
    PostRequest,
    /// `dat_ep_disconnect`, abrupt.
    DisconnectAbrupt,
    /// `dat_ep_disconnect`, graceful.
    DisconnectGraceful,
    /// `dat_ep_reset`.
    Reset,
    /// `dat_ep_free`.
    Free,
    /// A request came to its RSP.
    RequestArrived,
    /// The peer accepted, or is ready.
    Established,
    /// The peer's consumer refused.
    PeerRejected,
    /// Somebody else refused, or the attempt failed here.
    NonPeerRejected,
    /// Nobody answered.
    Unreachable,
    /// The consumer's timeout passed.
    TimedOut,
    /// The peer ended the connection.
    PeerDisconnected,
    /// A completion or the queue pair failed.
    Broken,
    /// The last posted request of a graceful disconnect completed.
    Drained,
}

impl EpOp {
    /// Every stimulus.
    pub(crate) const ALL: [Self; 22] = [
        Self::Connect,
        Self::RspCreate,
        Self::RspFree,
        Self::AcceptNamed,
        Self::AcceptOwn,
        Self::Reject,
        Self::Modify,
        Self::PostRecv,
        Self::PostRequest,
        Self::DisconnectAbrupt,
        Self::DisconnectGraceful,
        Self::Reset,
        Self::Free,
        Self::RequestArrived,
        Self::Established,
        Self::PeerRejected,
        Self::NonPeerRejected,
        Self::Unreachable,
        Self::TimedOut,
        Self::PeerDisconnected,
        Self::Broken,
        Self::Drained,
    ];
}

/// The connection event of a transition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Signal {
    /// `ESTABLISHED`
    Established,
    /// `PEER_REJECTED`
    PeerRejected,
    /// `NON_PEER_REJECTED`
    NonPeerRejected,
    /// `ACCEPT_COMPLETION_ERROR`
    AcceptCompletionError,
    /// `DISCONNECTED`
    Disconnected,
    /// `BROKEN`
    Broken,
    /// `TIMED_OUT`
    TimedOut,
    /// `UNREACHABLE`
    Unreachable,
}

impl Signal {
    const ALL: [Self; 8] = [
        Self::Established,
        Self::PeerRejected,
        Self::NonPeerRejected,
        Self::AcceptCompletionError,
        Self::Disconnected,
        Self::Broken,
        Self::TimedOut,
        Self::Unreachable,
    ];

    /// Whether it ends a connection or an attempt at one.
    pub(crate) const fn is_end(self) -> bool {
        !matches!(self, Self::Established)
    }

    /// The one of that number.
    pub(crate) fn from_number(number: u32) -> Option<Self> {
        Self::ALL.get(number as usize).copied()
    }

    /// As an Endpoint's event.
    pub(crate) const fn event(self, ep: Ep) -> Event {
        match self {
            Self::Established => Event::Established(ep),
            Self::PeerRejected => Event::PeerRejected(ep),
            Self::NonPeerRejected => Event::NonPeerRejected(ep),
            Self::AcceptCompletionError => Event::AcceptCompletionError(ep),
            Self::Disconnected => Event::Disconnected(ep),
            Self::Broken => Event::Broken(ep),
            Self::TimedOut => Event::TimedOut(ep),
            Self::Unreachable => Event::Unreachable(ep),
        }
    }
}

/// What comes of a stimulus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Another state, perhaps with an event. Entering DISCONNECTED flushes what is posted.
    Go {
        /// The new state.
        next: EpState,
        /// The event to the connect Event Dispatcher.
        event: Option<Signal>,
    },
    /// Allowed; the state stays.
    Stay,
    /// The Endpoint ceases to be.
    Gone,
    /// Refused; nothing changes.
    Refuse(DatReturn),
    /// An event that means nothing in this state.
    Ignore,
}

const fn go(next: EpState) -> Outcome {
    Outcome::Go { next, event: None }
}

const fn end(event: Signal) -> Outcome {
    Outcome::Go { next: D, event: Some(event) }
}

const fn refuse(state: EpState) -> Outcome {
    Outcome::Refuse(state.refusal())
}

/// The request has an Endpoint of its own: none may be named.
const NOT_THIS_EP: DatReturn = DatReturn::new(DatType::InvalidHandle, DatSubtype::InvalidHandleEp);

/// What comes of a stimulus in a state.
#[must_use]
pub(crate) fn outcome(state: EpState, op: EpOp) -> Outcome {
    let row = PACKED.get(state as usize);
    let code = row.and_then(|row| row.get(op as usize)).copied();
    unpack(state, code.unwrap_or(IGNORE))
}

/// The table as the program carries it, a byte for each pair: below [`REFUSE`] a new state and,
/// above it, an event.
#[expect(clippy::indexing_slicing, reason = "the compiler evaluates it")]
const PACKED: [[u8; EpOp::ALL.len()]; EpState::ALL.len()] = {
    let mut packed = [[IGNORE; EpOp::ALL.len()]; EpState::ALL.len()];
    let mut row = 0;
    while row < EpState::ALL.len() {
        let mut column = 0;
        while column < EpOp::ALL.len() {
            assert!(EpState::ALL[row] as usize == row && EpOp::ALL[column] as usize == column);
            packed[row][column] = pack(table(EpState::ALL[row], EpOp::ALL[column]));
            column += 1;
        }
        row += 1;
    }
    packed
};

const REFUSE: u8 = 0xf0;
const REFUSE_EP: u8 = 0xf1;
const STAY: u8 = 0xf2;
const GONE: u8 = 0xf3;
const IGNORE: u8 = 0xf4;

const fn pack(outcome: Outcome) -> u8 {
    match outcome {
        Outcome::Go { next, event: None } => next as u8,
        Outcome::Go { next, event: Some(event) } => next as u8 | (event as u8 + 1) << 4,
        Outcome::Refuse(ret) if ret.raw() == NOT_THIS_EP.raw() => REFUSE_EP,
        Outcome::Refuse(_) => REFUSE,
        Outcome::Stay => STAY,
        Outcome::Gone => GONE,
        Outcome::Ignore => IGNORE,
    }
}

fn unpack(state: EpState, code: u8) -> Outcome {
    match code {
        REFUSE => Outcome::Refuse(state.refusal()),
        REFUSE_EP => Outcome::Refuse(NOT_THIS_EP),
        STAY => Outcome::Stay,
        GONE => Outcome::Gone,
        IGNORE => Outcome::Ignore,
        _ => Outcome::Go {
            next: EpState::from_word(u32::from(code & 0xf)),
            event: Signal::ALL.get(usize::from(code >> 4).wrapping_sub(1)).copied(),
        },
    }
}

/// The table as it is written and read.
const fn table(state: EpState, op: EpOp) -> Outcome {
    match op {
        EpOp::Connect => match state {
            U => go(A),
            UU | R | UR | P | UP | A | T | UT | C | DP | D | CP | CS | CM => refuse(state),
        },
        EpOp::RspCreate => match state {
            U => go(R),
            UU => go(UR),
            R | UR | P | UP | A | T | UT | C | DP | D | CP | CS | CM => refuse(state),
        },
        EpOp::RspFree => match state {
            R => go(U),
            UR => go(UU),
            U | UU | P | UP | A | T | UT | C | DP | D | CP | CS | CM => Outcome::Stay,
        },
        EpOp::AcceptNamed => match state {
            U => go(CP),
            P | UP | T | UT => Outcome::Refuse(NOT_THIS_EP),
            UU | R | UR | A | C | DP | D | CP | CS | CM => refuse(state),
        },
        EpOp::AcceptOwn => match state {
            P | T => go(CP),
            U | UU | R | UR | UP | A | UT | C | DP | D | CP | CS | CM => refuse(state),
        },
        EpOp::Reject => match state {
            P => go(U),
            UP => go(UU),
            T | UT => Outcome::Gone,
            U | UU | R | UR | A | C | DP | D | CP | CS | CM => Outcome::Ignore,
        },
        EpOp::Modify => match state {
            U | R | P | T => Outcome::Stay,
            UU => go(U),
            UR => go(R),
            UP => go(P),
            UT => go(T),
            A | C | DP | D | CP | CS | CM => refuse(state),
        },
        EpOp::PostRecv => match state {
            U | R | P | A | T | C | DP | D | CP | CS | CM => Outcome::Stay,
            UU | UR | UP | UT => refuse(state),
        },
        EpOp::PostRequest => match state {
            C | D | CS | CM => Outcome::Stay,
            U | UU | R | UR | P | UP | A | T | UT | DP | CP => refuse(state),
        },
        EpOp::DisconnectAbrupt => match state {
            A | C | DP | CP | CS | CM => end(Signal::Disconnected),
            D => Outcome::Stay,
            U | UU | R | UR | P | UP | T | UT => refuse(state),
        },
        EpOp::DisconnectGraceful => match state {
            A | CP => end(Signal::Disconnected),
            C | CS | CM => go(DP),
            DP | D => Outcome::Stay,
            U | UU | R | UR | P | UP | T | UT => refuse(state),
        },
        EpOp::Reset => match state {
            U | UU => Outcome::Stay,
            D => go(U),
            R | UR | P | UP | A | T | UT | C | DP | CP | CS | CM => refuse(state),
        },
        EpOp::Free => match state {
            U | UU | A | C | DP | D | CP | CS | CM => Outcome::Gone,
            R | UR | P | UP | T | UT => refuse(state),
        },
        EpOp::RequestArrived => match state {
            R => go(P),
            UR => go(UP),
            U | UU | P | UP | A | T | UT | C | DP | D | CP | CS | CM => Outcome::Ignore,
        },
        EpOp::Established => match state {
            A | CP => Outcome::Go { next: C, event: Some(Signal::Established) },
            U | UU | R | UR | P | UP | T | UT | C | DP | D | CS | CM => Outcome::Ignore,
        },
        EpOp::PeerRejected => match state {
            A => end(Signal::PeerRejected),
            CP => end(Signal::AcceptCompletionError),
            U | UU | R | UR | P | UP | T | UT | C | DP | D | CS | CM => Outcome::Ignore,
        },
        EpOp::NonPeerRejected => match state {
            A => end(Signal::NonPeerRejected),
            CP => end(Signal::AcceptCompletionError),
            U | UU | R | UR | P | UP | T | UT | C | DP | D | CS | CM => Outcome::Ignore,
        },
        EpOp::Unreachable => match state {
            A => end(Signal::Unreachable),
            CP => end(Signal::AcceptCompletionError),
            U | UU | R | UR | P | UP | T | UT | C | DP | D | CS | CM => Outcome::Ignore,
        },
        EpOp::TimedOut => match state {
            A => end(Signal::TimedOut),
            U | UU | R | UR | P | UP | T | UT | C | DP | D | CP | CS | CM => Outcome::Ignore,
        },
        EpOp::PeerDisconnected => match state {
            A => end(Signal::NonPeerRejected),
            CP => end(Signal::AcceptCompletionError),
            C | DP | CS | CM => end(Signal::Disconnected),
            U | UU | R | UR | P | UP | T | UT | D => Outcome::Ignore,
        },
        EpOp::Broken => match state {
            A => end(Signal::NonPeerRejected),
            CP => end(Signal::AcceptCompletionError),
            C | CS | CM => end(Signal::Broken),
            DP => end(Signal::Disconnected),
            U | UU | R | UR | P | UP | T | UT | D => Outcome::Ignore,
        },
        EpOp::Drained => match state {
            DP => end(Signal::Disconnected),
            U | UU | R | UR | P | UP | A | T | UT | C | D | CP | CS | CM => Outcome::Ignore,
        },
    }
}
