//! The reference model: what the manual pages say an adapter holds. It knows no queue pair, no key table and no wire.
//!
//! References are not counted but looked up, and nothing is optimized: it is to be read.

use std::collections::VecDeque;

use dat_core::provider::Region;
use dat_core::testing::LoopHca;
use dat_core::*;

pub type LoopIa = Ia<'static, LoopHca<'static>>;
pub type Poster = EpPoster<'static, LoopHca<'static>>;
pub type Reaper = EvdReaper<'static, LoopHca<'static>>;

pub const EPS: usize = 8;
pub const EVDS: usize = 8;
pub const LMRS: usize = 8;
pub const DTOS: usize = 8;
pub const EVENTS: usize = 128;

/// Requests and receives.
pub const REQUEST: usize = 0;
pub const RECV: usize = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Send,
    Write,
    Read,
    Recv,
    Bind(Rmr),
}

/// Something posted whose completion has not been dequeued.
#[derive(Clone, Copy, Debug)]
pub struct Dto {
    pub cookie: u64,
    pub op: Op,
    pub len: u32,
    pub suppressed: bool,
    pub deferred: bool,
    /// Posted in DISCONNECTED: it can only be flushed.
    pub late: bool,
    /// Its remote range is certainly not open: it cannot succeed.
    pub bad: bool,
    /// A bind whose RMR has been freed since: it completes in silence.
    pub orphan: bool,
    /// Ends its Endpoint had seen when it was posted.
    pub epoch: u32,
}

impl Dto {
    /// It may end without an event.
    pub fn is_silent(&self) -> bool {
        self.suppressed && !self.late || self.orphan
    }
}

/// A connection event that has been caused and not been dequeued: one of the kinds in the mask.
#[derive(Clone, Copy, Debug)]
pub struct Expect {
    pub kinds: u16,
    pub evd: Evd,
    /// It may be lost, for want of room or because the model does not know which way things went.
    pub optional: bool,
    pub epoch: u32,
}

pub struct EpM {
    pub ep: Ep,
    pub state: EpState,
    pub pz: Option<Pz>,
    pub recv: Option<Evd>,
    pub request: Option<Evd>,
    pub connect: Option<Evd>,
    pub attr: EpAttr,
    pub poster: Option<Poster>,
    pub queue: [VecDeque<Dto>; 2],
    /// Something came back unsuccessful since the last reset.
    pub failed: [bool; 2],
    /// Sizes of the receives posted since the last reset, and how many have come back.
    pub room: Vec<u32>,
    pub received: usize,
    pub expected: VecDeque<Expect>,
    /// The connection, or the attempt at one, and which end of it this is.
    pub link: Option<(usize, usize)>,
    pub epoch: u32,
    /// A graceful disconnect may hold a request slot of its own.
    pub drained: bool,
}

impl EpM {
    pub fn new(ep: Ep, state: EpState, attr: EpAttr) -> Self {
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
        }
    }

    /// It has a zone and somewhere to complete to.
    pub fn is_configured(&self) -> bool {
        self.pz.is_some() && (self.recv.is_some() || self.request.is_some())
    }

    pub fn evd(&self, direction: usize) -> Option<Evd> {
        if direction == RECV {
            self.recv
        } else {
            self.request
        }
    }

    pub fn uses(&self, evd: Evd) -> bool {
        [self.recv, self.request, self.connect].contains(&Some(evd))
    }

    /// Forgets everything of the life that ends with a reset.
    pub fn rewind(&mut self) {
        self.queue = [VecDeque::new(), VecDeque::new()];
        self.failed = [false; 2];
        self.room.clear();
        self.received = 0;
        self.link = None;
        self.drained = false;
        self.state = EpState::Unconnected;
    }

    /// Fewest and most request or receive slots that may be taken: suppressed requests at the head may be done with.
    pub fn outstanding(&self, direction: usize) -> (usize, usize) {
        let queue = &self.queue[direction];
        let silent = queue.iter().take_while(|dto| dto.is_silent());
        let drain = usize::from(direction == REQUEST && self.drained);
        (queue.len() - silent.count(), queue.len() + drain)
    }
}

pub struct EvdM {
    pub evd: Evd,
    pub qlen: u32,
    pub flags: EvdFlags,
    pub reaper: Option<Reaper>,
    pub software: VecDeque<u64>,
    /// Completions that may lie in the device's queue, those of earlier lives included.
    pub load: usize,
    /// An event may have been lost.
    pub overflow: bool,
}

#[derive(Clone, Copy, Debug)]
pub struct LmrM {
    pub lmr: Lmr,
    pub pz: Pz,
    pub region: Region,
    pub privileges: MemPriv,
    pub lmr_context: u32,
    pub rmr_context: u32,
}

#[derive(Clone, Debug)]
pub struct RmrM {
    pub rmr: Rmr,
    pub pz: Pz,
    /// Every context it had; the last is the newest.
    pub keys: Vec<u32>,
    /// The LMR of the newest bind, once that has succeeded.
    pub bound: Option<u32>,
    /// LMRs that it may be bound to, 0 for none; the last by the newest bind.
    pub maybe: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
pub struct PspM {
    pub psp: Psp,
    pub port: u16,
    pub evd: Evd,
    pub flag: PspFlag,
}

#[derive(Clone, Copy, Debug)]
pub struct CrM {
    pub cr: Cr,
    pub link: usize,
    pub local_ep: Option<Ep>,
}

/// Handles that were valid once.
#[derive(Default)]
pub struct Dead {
    pub pz: Vec<Pz>,
    pub lmr: Vec<Lmr>,
    pub rmr: Vec<Rmr>,
    pub evd: Vec<Evd>,
    pub ep: Vec<Ep>,
    pub psp: Vec<Psp>,
    pub cr: Vec<Cr>,
}

/// One adapter.
pub struct SideM {
    pub ia: LoopIa,
    pub default: EpAttr,
    pub pzs: Vec<Pz>,
    pub lmrs: Vec<LmrM>,
    pub rmrs: Vec<RmrM>,
    /// Freed while a bind was under way.
    pub retiring: Vec<RmrM>,
    pub evds: Vec<EvdM>,
    pub eps: Vec<EpM>,
    pub psps: Vec<PspM>,
    pub crs: Vec<CrM>,
    pub dead: Dead,
    /// Service points that were freed: requests that came to them may still wait in an Event Dispatcher.
    pub old_psps: Vec<PspM>,
    /// Connection events of Endpoints that are gone.
    pub ghosts: Vec<(Ep, VecDeque<Expect>)>,
}

impl SideM {
    pub fn new(ia: LoopIa) -> Self {
        let async_evd = EvdM {
            evd: ia.async_evd(),
            qlen: 16,
            flags: EvdFlags::ASYNC,
            reaper: None,
            software: VecDeque::new(),
            load: 0,
            overflow: false,
        };
        Self {
            default: ia.ep_attr_default(),
            ia,
            pzs: Vec::new(),
            lmrs: Vec::new(),
            rmrs: Vec::new(),
            retiring: Vec::new(),
            evds: vec![async_evd],
            eps: Vec::new(),
            psps: Vec::new(),
            crs: Vec::new(),
            dead: Dead::default(),
            old_psps: Vec::new(),
            ghosts: Vec::new(),
        }
    }

    pub fn ep(&self, ep: Ep) -> Option<&EpM> {
        self.eps.iter().find(|m| m.ep == ep)
    }

    pub fn ep_mut(&mut self, ep: Ep) -> Option<&mut EpM> {
        self.eps.iter_mut().find(|m| m.ep == ep)
    }

    pub fn evd(&self, evd: Evd) -> Option<&EvdM> {
        self.evds.iter().find(|m| m.evd == evd)
    }

    pub fn evd_mut(&mut self, evd: Evd) -> Option<&mut EvdM> {
        self.evds.iter_mut().find(|m| m.evd == evd)
    }

    pub fn takes(&self, evd: Evd, stream: EvdFlags) -> bool {
        self.evd(evd).is_some_and(|m| m.flags.contains(stream))
    }

    pub fn lmr_of(&self, context: u32) -> Option<&LmrM> {
        self.lmrs.iter().find(|m| m.lmr_context == context)
    }

    pub fn pz_in_use(&self, pz: Pz) -> bool {
        self.eps.iter().any(|m| m.pz == Some(pz))
            || self.lmrs.iter().any(|m| m.pz == pz)
            || self.rmrs.iter().any(|m| m.pz == pz)
    }

    pub fn evd_in_use(&self, evd: Evd) -> bool {
        self.eps.iter().any(|m| m.uses(evd)) || self.psps.iter().any(|m| m.evd == evd)
    }

    /// A reaper is out that may hold completions of the Endpoint.
    pub fn reaper_is_out(&self, m: &EpM) -> bool {
        self.evds
            .iter()
            .any(|evd| evd.reaper.is_some() && m.uses(evd.evd))
    }
}

/// One attempt at a connection, and what became of it. End 0 is the active one.
#[derive(Debug)]
pub struct Link {
    pub ends: [Option<(usize, Ep)>; 2],
    /// Which side the address belongs to.
    pub target: Option<usize>,
    pub port: u16,
    pub born: Instant,
    pub deadline: Instant,
    /// Its request has been dequeued.
    pub arrived: bool,
    /// Its request went down with an Event Dispatcher.
    pub lost: bool,
    pub accepted: bool,
    pub rejected: bool,
    /// The target may have had no listener or no room.
    pub refusable: bool,
    pub up: [bool; 2],
    pub left: [bool; 2],
    /// An operation may fail, or has.
    pub broke: bool,
    /// Sizes of the sends of each end.
    pub sent: [Vec<u32>; 2],
}

/// After this long the connection manager may have given up on a silent peer.
const PATIENCE_MS: u64 = 50;

impl Link {
    /// Nobody has said what is to become of the request.
    pub fn is_open(&self) -> bool {
        !self.accepted && !self.rejected && !self.arrived && !self.left[0]
    }

    /// Its request may lie at the target without having been seen.
    pub fn may_be_unseen(&self, side: usize) -> bool {
        self.target == Some(side) && !self.arrived
    }

    pub fn is_old(&self, now: Instant) -> bool {
        now.since(self.born).as_millis() as u64 >= PATIENCE_MS
    }
}
