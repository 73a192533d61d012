//! The reference model: what the manual pages say an adapter holds. It knows no queue pair, no key
//! table and no wire.
//!
//! References are not counted but looked up, and nothing is optimized: it is to be read.
//!
//! Length: one adapter's objects, each in a few lines.

use std::collections::{HashMap, VecDeque};

use dat_core::provider::Region;
use dat_core::testing::LoopHca;
use dat_core::*;

use crate::datagrams::UdM;

pub(crate) type LoopIa = Ia<'static, LoopHca<'static>>;
pub(crate) type Poster = EpPoster<'static, LoopHca<'static>>;
pub(crate) type Reaper = EvdReaper<'static, LoopHca<'static>>;

pub(crate) const EPS: usize = 8;
pub(crate) const EVDS: usize = 8;
pub(crate) const LMRS: usize = 8;
pub(crate) const DTOS: usize = 8;
pub(crate) const EVENTS: usize = 128;

/// Requests and receives.
pub(crate) const REQUEST: usize = 0;
pub(crate) const RECV: usize = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Send,
    Write,
    WriteImmed,
    Read,
    FetchAdd,
    CmpSwap,
    Recv,
    Bind(Rmr),
    Register(Lmr),
    Invalidate(Lmr),
    SendUd,
}

impl Op {
    /// It needs a receive of the peer.
    pub(crate) fn takes_receive(self) -> bool {
        matches!(self, Self::Send | Self::WriteImmed)
    }

    /// Right that the peer's memory has to grant, if the operation concerns the peer's memory.
    pub(crate) fn far_right(self) -> Option<MemPriv> {
        match self {
            Self::Write | Self::WriteImmed => Some(MemPriv::REMOTE_WRITE),
            Self::Read => Some(MemPriv::REMOTE_READ),
            Self::FetchAdd | Self::CmpSwap => Some(MemPriv::REMOTE_ATOMIC),
            Self::Send
            | Self::Recv
            | Self::Bind(_)
            | Self::Register(_)
            | Self::Invalidate(_)
            | Self::SendUd => None,
        }
    }
}

/// A message that takes a receive at the other end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub(crate) len: u32,
    pub(crate) how: How,
}

/// And what the receive tells of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    Message,
    /// Closes the peer's RMR of this context.
    Closing(u32),
    /// Comes with a write, whose bytes lie elsewhere.
    Immediate(u32),
    /// Is a datagram, with an immediate or without.
    Datagram(Option<u32>),
}

impl How {
    /// The immediate or context that the receive reports.
    pub(crate) fn word(self) -> u32 {
        match self {
            Self::Message => 0,
            Self::Closing(word) | Self::Immediate(word) => word,
            Self::Datagram(word) => word.unwrap_or(0),
        }
    }
}

impl Sent {
    /// Bytes that have to find room in the receive.
    pub(crate) fn room(&self) -> u32 {
        match self.how {
            How::Message | How::Closing(_) | How::Datagram(_) => self.len,
            How::Immediate(_) => 0,
        }
    }
}

/// Something posted whose completion has not been dequeued.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dto {
    pub(crate) cookie: u64,
    pub(crate) op: Op,
    pub(crate) len: u32,
    pub(crate) suppressed: bool,
    pub(crate) deferred: bool,
    /// Posted in DISCONNECTED: it can only be flushed.
    pub(crate) late: bool,
    /// Its remote range is certainly not open: it cannot succeed.
    pub(crate) bad: bool,
    /// Ends its Endpoint had seen when it was posted.
    pub(crate) epoch: u32,
}

impl Dto {
    /// It may end without an event.
    pub(crate) fn is_silent(&self) -> bool {
        self.suppressed && !self.late
    }
}

/// A connection event that has been caused and not been dequeued: one of the kinds in the mask.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expect {
    pub(crate) kinds: u16,
    pub(crate) evd: Evd,
    /// It may be lost, for want of room or because the model does not know what happened.
    pub(crate) optional: bool,
    pub(crate) epoch: u32,
}

pub(crate) struct EpM {
    pub(crate) ep: Ep,
    pub(crate) state: EpState,
    pub(crate) pz: Option<Pz>,
    pub(crate) recv: Option<Evd>,
    pub(crate) request: Option<Evd>,
    pub(crate) connect: Option<Evd>,
    pub(crate) attr: EpAttr,
    pub(crate) poster: Option<Poster>,
    pub(crate) queue: [VecDeque<Dto>; 2],
    /// Something came back unsuccessful since the last reset.
    pub(crate) failed: [bool; 2],
    /// Sizes of the receives posted since the last reset, and how many have come back.
    pub(crate) room: Vec<u32>,
    pub(crate) received: usize,
    pub(crate) expected: VecDeque<Expect>,
    /// The connection, or the attempt at one, and which end of it this is.
    pub(crate) link: Option<(usize, usize)>,
    pub(crate) epoch: u32,
    /// Memory changed under what is posted: it may fail once there is a connection.
    pub(crate) tainted: bool,
    /// A graceful disconnect may hold a request slot of its own.
    pub(crate) drained: bool,
    /// Where its receives come from, if they are not its own.
    pub(crate) srq: Option<Srq>,
    /// It is for datagrams.
    pub(crate) ud: Option<UdM>,
    /// High watermarks of the receives it holds, the soft one until it has raised its event.
    pub(crate) soft: Option<u32>,
    pub(crate) hard: Option<u32>,
    /// Its counters.
    pub(crate) tally: [u64; EpCounter::COUNT],
}

impl EpM {
    pub(crate) fn new(ep: Ep, state: EpState, attr: EpAttr) -> Self {
        Self {
            ep,
            state,
            pz: None,
            recv: None,
            request: None,
            connect: None,
            attr,
            poster: None,
            queue: [VecDeque::new(), VecDeque::new()],
            failed: [false; 2],
            room: Vec::new(),
            received: 0,
            expected: VecDeque::new(),
            link: None,
            epoch: 0,
            drained: false,
            tainted: false,
            srq: None,
            ud: None,
            soft: None,
            hard: None,
            tally: [0; EpCounter::COUNT],
        }
    }

    /// One more DTO of that kind, and its bytes behind it.
    pub(crate) fn count(&mut self, dtos: EpCounter, len: u32) {
        self.tally[dtos as usize] += 1;
        self.tally[dtos as usize + 1] += u64::from(len);
    }

    /// One more of what has no bytes.
    pub(crate) fn count_one(&mut self, counter: EpCounter) {
        self.tally[counter as usize] += 1;
    }

    /// It has a zone and somewhere to complete to.
    pub(crate) fn is_configured(&self) -> bool {
        let one = self.srq.is_none() && self.request.is_some();
        self.pz.is_some() && (self.recv.is_some() || one)
    }

    /// A request that has not been answered has it.
    pub(crate) fn is_asked_for(&self) -> bool {
        use EpState::{
            PassiveConnectionPending as P, TentativeConnectionPending as T,
            UnconfiguredPassive as UP, UnconfiguredTentative as UT,
        };
        matches!(self.state, P | UP | T | UT)
    }

    /// It is the provider's: a service point or a request has it.
    pub(crate) fn is_held(&self) -> bool {
        let reserved = [EpState::Reserved, EpState::UnconfiguredReserved];
        self.is_asked_for() || reserved.contains(&self.state)
    }

    /// The request that it was reserved for has come, or gone again.
    pub(crate) fn asked(&mut self, asked: bool) {
        use EpState::{
            PassiveConnectionPending as P, Reserved as R, UnconfiguredPassive as UP,
            UnconfiguredReserved as UR, UnconfiguredUnconnected as UU, Unconnected as U,
        };
        self.state = match (self.state, asked) {
            (R, true) => P,
            (UR, true) => UP,
            (R | P, false) => U,
            (UR | UP, false) => UU,
            (other, _) => other,
        };
    }

    /// Its state once it is configured, if that is what it lacks.
    pub(crate) fn configure(&mut self) {
        use EpState::{
            PassiveConnectionPending as P, Reserved as R, TentativeConnectionPending as T,
            UnconfiguredPassive as UP, UnconfiguredReserved as UR, UnconfiguredTentative as UT,
            UnconfiguredUnconnected as UU, Unconnected as U,
        };
        self.state = match self.state {
            UU if self.is_configured() => U,
            UR if self.is_configured() => R,
            UP if self.is_configured() => P,
            UT if self.is_configured() => T,
            other => other,
        };
    }

    pub(crate) fn evd(&self, direction: usize) -> Option<Evd> {
        if direction == RECV { self.recv } else { self.request }
    }

    pub(crate) fn uses(&self, evd: Evd) -> bool {
        [self.recv, self.request, self.connect].contains(&Some(evd))
    }

    /// Forgets everything of the connection that ends with a reset.
    pub(crate) fn rewind(&mut self) {
        self.queue = [VecDeque::new(), VecDeque::new()];
        self.failed = [false; 2];
        self.room.clear();
        self.received = 0;
        self.link = None;
        self.drained = false;
        self.tainted = false;
        self.state = EpState::Unconnected;
        if let Some(ud) = &mut self.ud {
            ud.inbox.clear();
            ud.hazy = false;
            self.state = EpState::Connected;
        }
    }

    /// Fewest and most request or receive slots that may be taken: suppressed requests at the head
    /// may be done with.
    pub(crate) fn outstanding(&self, direction: usize) -> (usize, usize) {
        let queue = &self.queue[direction];
        let silent = queue.iter().take_while(|dto| dto.is_silent());
        let drain = usize::from(direction == REQUEST && self.drained);
        (queue.len() - silent.count(), queue.len() + drain)
    }
}

pub(crate) struct EvdM {
    pub(crate) evd: Evd,
    pub(crate) qlen: u32,
    pub(crate) flags: EvdFlags,
    pub(crate) reaper: Option<Reaper>,
    pub(crate) software: VecDeque<u64>,
    /// Completions that may lie in the device's queue, those of earlier connections included.
    pub(crate) load: usize,
    /// An event may have been lost.
    pub(crate) overflow: bool,
    pub(crate) cno: Option<Cno>,
    pub(crate) enabled: bool,
    pub(crate) unwaitable: bool,
    /// Events dequeued since its counters were reset.
    pub(crate) found: u64,
}

impl EvdM {
    pub(crate) fn new(evd: Evd, qlen: u32, flags: EvdFlags) -> Self {
        Self {
            evd,
            qlen,
            flags,
            reaper: None,
            software: VecDeque::new(),
            load: 0,
            overflow: false,
            cno: None,
            enabled: true,
            unwaitable: false,
            found: 0,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct LmrM {
    pub(crate) lmr: Lmr,
    pub(crate) pz: Pz,
    /// The registered memory, and its triplets.
    pub(crate) mapped: Region,
    pub(crate) region: Region,
    pub(crate) privileges: MemPriv,
    pub(crate) lmr_context: u32,
    pub(crate) rmr_context: u32,
    pub(crate) kind: LmrKind,
    /// The last request about its key has been applied.
    pub(crate) applied: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LmrKind {
    /// Memory of the host.
    Host,
    Pages,
    /// The reserved one of its zone.
    All,
    /// For registrations of so many pages.
    Fast(u32, Gate),
}

/// How the key of an LMR for registrations stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gate {
    Closed,
    Open,
    /// To local posts; peers may still find it open.
    Shut,
}

impl LmrM {
    pub(crate) fn new(p: &LmrParam, kind: LmrKind) -> Self {
        Self {
            lmr: p.lmr,
            pz: p.pz,
            mapped: p.region,
            region: Region { addr: p.base(), len: p.region.len },
            privileges: p.privileges,
            lmr_context: p.lmr_context,
            rmr_context: p.rmr_context,
            kind,
            applied: true,
        }
    }

    /// Local posts may name it.
    pub(crate) fn is_usable(&self) -> bool {
        !matches!(self.kind, LmrKind::Fast(_, Gate::Closed | Gate::Shut))
    }
}

#[derive(Clone, Debug)]
pub(crate) struct RmrM {
    pub(crate) rmr: Rmr,
    pub(crate) pz: Pz,
    /// Every context it had; the last is the newest.
    pub(crate) keys: Vec<u32>,
    /// The LMR of the newest bind, once that has succeeded.
    pub(crate) bound: Option<u32>,
    /// LMRs that it may be bound to, 0 for none; the last by the newest bind.
    pub(crate) maybe: Vec<u32>,
    /// It serves one Endpoint at a time: the one that it was bound on last.
    pub(crate) own: bool,
    pub(crate) holder: Option<Ep>,
    /// The newest bind: its range, and what it grants.
    pub(crate) opens: (LmrTriplet, MemPriv),
}

impl RmrM {
    /// A peer has closed it, or its Endpoint is at its end.
    pub(crate) fn close(&mut self) {
        self.bound = None;
        self.maybe = vec![0];
        self.opens.0.len = 0;
    }
}

/// A service point of any kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Point {
    Psp(Psp),
    Rsp(Rsp),
    Csp(Csp),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct PointM {
    pub(crate) point: Point,
    pub(crate) port: u16,
    pub(crate) evd: Evd,
    /// It makes an Endpoint for each request.
    pub(crate) makes: bool,
    /// The one Endpoint that it reserves, and whether it has made it.
    pub(crate) ep: Option<Ep>,
    pub(crate) provided: bool,
    /// Its one request has come.
    pub(crate) used: bool,
}

impl PointM {
    pub(crate) fn new(point: Point, port: u16, evd: Evd) -> Self {
        Self { point, port, evd, makes: false, ep: None, provided: false, used: false }
    }

    /// Whether it is of the same kind.
    pub(crate) fn is_like(&self, other: Point) -> bool {
        std::mem::discriminant(&self.point) == std::mem::discriminant(&other)
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct CrM {
    pub(crate) cr: Cr,
    pub(crate) link: usize,
    /// Where it came to.
    pub(crate) point: Point,
    pub(crate) local_ep: Option<Ep>,
    /// That Endpoint was made for it, or with its service point.
    pub(crate) provided: bool,
    /// It is a look-up, and its link the place of the question.
    pub(crate) looks_up: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct SrqM {
    pub(crate) srq: Srq,
    pub(crate) pz: Pz,
    pub(crate) attr: SrqAttr,
    /// Cookies of receives that may come back: all of them, but for those that went with an
    /// Endpoint's queue pair.
    pub(crate) posted: Vec<u64>,
    /// How many are outstanding.
    pub(crate) outstanding: usize,
    /// Bytes of the shortest that there was.
    pub(crate) least: u32,
    /// Memory changed under what is posted.
    pub(crate) tainted: bool,
}

/// Handles that were valid once.
#[derive(Default)]
pub(crate) struct Dead {
    pub(crate) pz: Vec<Pz>,
    pub(crate) lmr: Vec<Lmr>,
    pub(crate) rmr: Vec<Rmr>,
    pub(crate) evd: Vec<Evd>,
    pub(crate) ep: Vec<Ep>,
    pub(crate) psp: Vec<Psp>,
    pub(crate) rsp: Vec<Rsp>,
    pub(crate) csp: Vec<Csp>,
    pub(crate) srq: Vec<Srq>,
    pub(crate) cr: Vec<Cr>,
    pub(crate) cno: Vec<Cno>,
}

/// One adapter.
pub(crate) struct SideM {
    pub(crate) ia: LoopIa,
    pub(crate) default: EpAttr,
    pub(crate) pzs: Vec<Pz>,
    pub(crate) lmrs: Vec<LmrM>,
    pub(crate) rmrs: Vec<RmrM>,
    /// Freed while a bind was under way.
    pub(crate) retiring: Vec<RmrM>,
    pub(crate) evds: Vec<EvdM>,
    pub(crate) eps: Vec<EpM>,
    pub(crate) points: Vec<PointM>,
    pub(crate) srqs: Vec<SrqM>,
    pub(crate) crs: Vec<CrM>,
    /// Endpoints on common queues whose end the asynchronous Event Dispatcher is to tell.
    pub(crate) ended: Vec<(Ep, Evd)>,
    /// Endpoints for datagrams that have answered, and the Event Dispatcher that reports it.
    pub(crate) answered: Vec<(Ep, Evd)>,
    /// Watermarks that have been passed, and those that may have been: there the dispatcher is not
    /// known.
    pub(crate) warned: Vec<(AsyncEvent, Option<Evd>)>,
    pub(crate) cnos: Vec<Cno>,
    /// The Event Dispatcher of asynchronous errors is the one that was made with the adapter.
    pub(crate) own_async: bool,
    pub(crate) dead: Dead,
    /// Service points that were freed: requests that came to them may still wait in an Event
    /// Dispatcher.
    pub(crate) old_points: Vec<PointM>,
    /// Connection events of Endpoints that are gone.
    pub(crate) ghosts: Vec<(Ep, VecDeque<Expect>)>,
    /// The consumer's words. No handle comes twice, so those of freed objects may stay.
    pub(crate) contexts: HashMap<AnyHandle, u64>,
}

impl SideM {
    pub(crate) fn new(ia: LoopIa) -> Self {
        let async_evd = EvdM::new(ia.async_evd(), 16, EvdFlags::ASYNC);
        Self {
            default: ia.ep_attr_default(),
            ia,
            pzs: Vec::new(),
            lmrs: Vec::new(),
            rmrs: Vec::new(),
            retiring: Vec::new(),
            evds: vec![async_evd],
            eps: Vec::new(),
            points: Vec::new(),
            srqs: Vec::new(),
            crs: Vec::new(),
            ended: Vec::new(),
            answered: Vec::new(),
            warned: Vec::new(),
            cnos: Vec::new(),
            own_async: true,
            dead: Dead::default(),
            old_points: Vec::new(),
            ghosts: Vec::new(),
            contexts: HashMap::new(),
        }
    }

    pub(crate) fn ep(&self, ep: Ep) -> Option<&EpM> {
        self.eps.iter().find(|m| m.ep == ep)
    }

    pub(crate) fn ep_mut(&mut self, ep: Ep) -> Option<&mut EpM> {
        self.eps.iter_mut().find(|m| m.ep == ep)
    }

    pub(crate) fn evd(&self, evd: Evd) -> Option<&EvdM> {
        self.evds.iter().find(|m| m.evd == evd)
    }

    pub(crate) fn evd_mut(&mut self, evd: Evd) -> Option<&mut EvdM> {
        self.evds.iter_mut().find(|m| m.evd == evd)
    }

    pub(crate) fn srq(&self, srq: Srq) -> Option<&SrqM> {
        self.srqs.iter().find(|m| m.srq == srq)
    }

    pub(crate) fn srq_mut(&mut self, srq: Srq) -> Option<&mut SrqM> {
        self.srqs.iter_mut().find(|m| m.srq == srq)
    }

    /// The Shared Receive Queue of an Endpoint, if it has one.
    pub(crate) fn srq_of(&self, m: &EpM) -> Option<&SrqM> {
        self.srq(m.srq?)
    }

    pub(crate) fn takes(&self, evd: Evd, stream: EvdFlags) -> bool {
        self.evd(evd).is_some_and(|m| m.flags.contains(stream))
    }

    pub(crate) fn lmr_of(&self, context: u32) -> Option<&LmrM> {
        let of = |m: &&LmrM| m.lmr_context == context && m.is_usable();
        self.lmrs.iter().find(of)
    }

    /// An RMR is bound to the LMR of that context, or may be.
    pub(crate) fn is_bound(&self, context: u32) -> (bool, bool) {
        let bound = self.rmrs.iter().any(|m| m.bound == Some(context));
        (bound, self.rmrs.iter().any(|m| m.maybe.contains(&context)))
    }

    pub(crate) fn pz_in_use(&self, pz: Pz) -> bool {
        self.eps.iter().any(|m| m.pz == Some(pz))
            || self.lmrs.iter().any(|m| m.pz == pz && m.kind != LmrKind::All)
            || self.rmrs.iter().any(|m| m.pz == pz)
            || self.srqs.iter().any(|m| m.pz == pz)
    }

    pub(crate) fn evd_in_use(&self, evd: Evd) -> bool {
        self.eps.iter().any(|m| m.uses(evd)) || self.points.iter().any(|m| m.evd == evd)
    }

    /// A reaper is out that may hold completions of the Endpoint.
    pub(crate) fn reaper_is_out(&self, m: &EpM) -> bool {
        self.evds.iter().any(|evd| evd.reaper.is_some() && m.uses(evd.evd))
    }
}

/// One attempt at a connection, and what became of it. End 0 is the active one.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) ends: [Option<(usize, Ep)>; 2],
    /// Which side the address belongs to.
    pub(crate) target: Option<usize>,
    pub(crate) port: u16,
    /// The port that was asked for, also after the request was handed to another.
    pub(crate) asked: u16,
    pub(crate) born: Instant,
    pub(crate) deadline: Instant,
    /// Its request has been dequeued.
    pub(crate) arrived: bool,
    /// Its request went down with an Event Dispatcher.
    pub(crate) lost: bool,
    pub(crate) accepted: bool,
    pub(crate) rejected: bool,
    /// The target may have had no listener or no room.
    pub(crate) refusable: bool,
    pub(crate) up: [bool; 2],
    pub(crate) left: [bool; 2],
    /// An operation may fail, or has.
    pub(crate) broke: bool,
    /// Messages of each end that take a receive.
    pub(crate) sent: [Vec<Sent>; 2],
}

/// After this long the connection manager may have given up on a silent peer.
const PATIENCE_MS: u64 = 50;

impl Link {
    /// Nobody has said what is to become of the request.
    pub(crate) fn is_open(&self) -> bool {
        !self.accepted && !self.rejected && !self.arrived && !self.left[0]
    }

    /// Its request may lie at the target without having been seen.
    pub(crate) fn may_be_unseen(&self, side: usize) -> bool {
        self.target == Some(side) && !self.arrived
    }

    pub(crate) fn is_old(&self, now: Instant) -> bool {
        now.since(self.born).as_millis() as u64 >= PATIENCE_MS
    }
}
