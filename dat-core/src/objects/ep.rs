//! What the control half knows of one Endpoint.

use core::net::IpAddr;

use crate::cm::event::Request;
use crate::cm::params::{ConnId, QpTerms};
use crate::cm::wire::reason::Reason;
use crate::data::shared::stack::END;
use crate::objects::streams::{EpStreams, ep_streams};
use crate::objects::table::Kind;
use crate::provider::{Destination, Qp, Service};
use crate::types::completion::Direction;
use crate::types::dat_return::{DatReturn, DatSubtype, DatType};
use crate::types::ep_attr::EpAttr;
use crate::types::fault::Fault;
use crate::types::handle::{Ep, Evd, Pz, Srq};
use crate::types::time::Instant;

/// `DAT_WATERMARK_INFINITE`: more than any Endpoint holds.
pub(crate) const INFINITE: u32 = u32::MAX;

/// How far a graceful disconnect has come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Drain {
    /// Requests that had not completed when it was looked at last.
    pub(crate) left: u32,
    /// When it ends if no more of them complete.
    pub(crate) until: Instant,
}

impl Drain {
    /// None is under way.
    pub(crate) const NONE: Self = Self { left: 0, until: Instant::NEVER };
}

/// How far an establishment has got. The Endpoint's state says which side it is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Phase {
    /// Nothing is waited for here.
    None,
    /// Active: the way to the peer is being found; then the REQ goes out.
    Resolving,
    /// Without a connection manager: the way to the peer is being found.
    Direct(QpTerms),
    /// Active: the peer replied; the way is looked up once more for the queue pair.
    Replied(crate::cm::event::Reply),
    /// Passive: accepted; the way to the peer is being found; then the REP goes out.
    Accepting {
        /// For the queue pair, as the peer asked.
        terms: QpTerms,
        /// Flow label to use.
        flow_label: u32,
    },
    /// Passive: the REP is out. The step to ready-to-send waits for the RTU or for the peer's first
    /// packet: only in ready-to-receive does the device tell of that packet, and nothing can be
    /// posted before anyway.
    Accepted(QpTerms),
    /// Datagrams: what was found last.
    Found(Destination),
}

impl Phase {
    /// The way to the peer is being found.
    pub(crate) const fn wants_path(&self) -> bool {
        match self {
            Self::Resolving | Self::Direct(_) | Self::Replied(_) | Self::Accepting { .. } => true,
            Self::None | Self::Accepted(_) | Self::Found(_) => false,
        }
    }
}

/// What the control half knows of one Endpoint.
#[derive(Debug)]
pub(crate) struct EpControl {
    pub(crate) pz: Option<Pz>,
    pub(crate) recv_evd: Option<Evd>,
    pub(crate) request_evd: Option<Evd>,
    pub(crate) connect_evd: Option<Evd>,
    pub(crate) srq: Option<Srq>,
    /// The slots of its neighbours among those that take from that queue, counted from 1; 0 if
    /// there is none.
    pub(crate) users: [u32; 2],
    pub(crate) attr: EpAttr,
    pub(crate) service: Service,
    /// Its requests may change keys: their Event Dispatcher takes completions of RMR binds.
    pub(crate) binds: bool,
    pub(crate) qp: Option<Qp>,
    /// Number of the queue pair among those of this slot; part of the completion index.
    pub(crate) generation: u32,
    /// The batch of notices before which the queue pair was made or reset: notices of that batch
    /// are about an earlier one.
    pub(crate) born: u32,
    pub(crate) conn: Option<ConnId>,
    pub(crate) phase: Phase,
    pub(crate) remote: Option<IpAddr>,
    pub(crate) remote_port: u16,
    pub(crate) local_port: u16,
    /// This side asked for the connection, so `remote_port` is a service point's.
    pub(crate) active: bool,
    /// The connection of the connection manager that keeps the private data of the peer's answer.
    pub(crate) answered: Option<ConnId>,
    /// Why the connection broke, if it did.
    pub(crate) cause: Option<Fault>,
    /// Why the peer or the network rejected the attempt, if that is how it ended.
    pub(crate) refusal: Option<Reason>,
    /// The sequence behind the newest request, and the newest receive of its own queue, that the
    /// control half saw complete, whether dequeued or not. The consumer may have dequeued more
    /// since.
    pub(crate) requests_done: u32,
    pub(crate) receives_done: u32,
    /// The graceful disconnect that is under way.
    pub(crate) drain: Drain,
    /// Receives from a Shared Receive Queue that the control half saw complete, see
    /// [`crate::objects::srq`].
    pub(crate) arrived: u32,
    /// High watermarks of the receives it holds; [`INFINITE`] if there is none, or the soft one
    /// has raised its event.
    pub(crate) soft: u32,
    pub(crate) hard: u32,
    /// Slots for the events of its connection that have not been used, and those that have: a
    /// connection has two at the most.
    pub(crate) reserved: TwoSlots,
    pub(crate) sent: TwoSlots,
}

/// Up to two slots of connection events, [`END`] where there is none: the newer behind the older.
#[derive(Debug)]
pub(crate) struct TwoSlots([u32; 2]);

impl TwoSlots {
    const EMPTY: Self = Self([END; 2]);

    pub(crate) fn is_full(&self) -> bool {
        self.0[1] != END
    }

    /// Adds one, if there is room.
    pub(crate) fn push(&mut self, id: u32) {
        if let Some(place) = self.0.iter_mut().find(|place| **place == END) {
            *place = id;
        }
    }

    /// Takes the newer one.
    pub(crate) fn pop(&mut self) -> Option<u32> {
        let place = self.0.iter_mut().rfind(|place| **place != END)?;
        Some(core::mem::replace(place, END))
    }
}

impl EpControl {
    /// It is for datagrams (UD).
    pub(crate) fn is_for_datagrams(&self) -> bool {
        self.service != Service::Connected
    }

    /// What it feeds.
    pub(crate) fn streams(&self) -> EpStreams {
        ep_streams([self.recv_evd, self.request_evd, self.connect_evd], &self.attr)
    }

    pub(crate) const fn new(attr: EpAttr) -> Self {
        Self {
            pz: None,
            recv_evd: None,
            request_evd: None,
            connect_evd: None,
            srq: None,
            users: [0; 2],
            attr,
            service: Service::Connected,
            binds: false,
            qp: None,
            generation: 0,
            born: 0,
            conn: None,
            phase: Phase::None,
            remote: None,
            remote_port: 0,
            local_port: 0,
            active: false,
            answered: None,
            cause: None,
            refusal: None,
            requests_done: 0,
            receives_done: 0,
            drain: Drain::NONE,
            arrived: 0,
            soft: INFINITE,
            hard: INFINITE,
            reserved: TwoSlots::EMPTY,
            sent: TwoSlots::EMPTY,
        }
    }
}

impl EpControl {
    /// The sequence behind the newest that is known to have completed.
    pub(crate) const fn done(&self, direction: Direction) -> u32 {
        match direction {
            Direction::Send => self.requests_done,
            Direction::Recv => self.receives_done,
        }
    }

    /// The queue pair starts over, or is another one.
    pub(crate) fn forget_done(&mut self) {
        self.requests_done = 0;
        self.receives_done = 0;
        self.drain = Drain::NONE;
    }

    /// Notes whom a request comes from.
    pub(crate) fn note(&mut self, request: &Request) {
        self.remote = Some(request.remote);
        self.remote_port = request.remote_port;
        self.local_port = request.service.port().unwrap_or(0);
    }
}

pub(crate) const NOT_READY: DatReturn =
    DatReturn::new(DatType::InvalidState, DatSubtype::InvalidStateEpNotReady);
/// The posting or reaping half is with another thread.
pub(crate) const PROVIDER_CONTROL: DatReturn =
    DatReturn::new(DatType::InvalidState, DatSubtype::InvalidStateEpProviderControl);

impl Kind for EpControl {
    type Handle = Ep;
    const STALE: DatReturn = DatReturn::new(DatType::InvalidHandle, DatSubtype::InvalidHandleEp);
}
