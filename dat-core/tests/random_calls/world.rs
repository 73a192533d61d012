//! Two adapters on one fabric, their two models, and time.
//!
//! Length: what is looked at after every call stands beside what time and the other side do.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::Duration;

use dat_core::provider::Net;
use dat_core::testing::{Fabric, LoopHca};
use dat_core::*;

use crate::lookups::AskM;
use crate::model::*;
use crate::rng::Rng;

/// Kinds of connection events, as bits from `ESTABLISHED` up.
pub(crate) mod kind {
    pub(crate) const ESTABLISHED: u16 = 1 << 1;
    pub(crate) const PEER_REJECTED: u16 = 1 << 2;
    pub(crate) const NON_PEER_REJECTED: u16 = 1 << 3;
    pub(crate) const ACCEPT_ERROR: u16 = 1 << 4;
    pub(crate) const DISCONNECTED: u16 = 1 << 5;
    pub(crate) const BROKEN: u16 = 1 << 6;
    pub(crate) const TIMED_OUT: u16 = 1 << 7;
    pub(crate) const UNREACHABLE: u16 = 1 << 8;
}

pub(crate) type Done = Result<(), String>;

pub(crate) struct World {
    pub(crate) fabric: &'static Fabric,
    pub(crate) sides: [SideM; 2],
    pub(crate) links: Vec<Link>,
    pub(crate) asks: Vec<AskM>,
    pub(crate) now: Instant,
    pub(crate) rng: Rng,
    pub(crate) cookie: u64,
    /// How many times rarer than usual wrong arguments are.
    pub(crate) calm: usize,
    /// The calls, newest last; kept only when a failure is being reported.
    pub(crate) log: Option<VecDeque<String>>,
    /// Connection calls since both sides were last idle, and attempts since the last long pause.
    pub(crate) restless: usize,
    pub(crate) attempts: usize,
    pub(crate) seen: Seen,
}

/// Counts of a run, to see that it is not empty.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) calls: u64,
    pub(crate) carried_out: u64,
    pub(crate) refused: u64,
    pub(crate) established: u64,
    pub(crate) terminal: u64,
    pub(crate) completed: u64,
    pub(crate) flushed: u64,
    pub(crate) failed: u64,
    pub(crate) binds: u64,
    pub(crate) closes: u64,
    pub(crate) hints: u64,
    pub(crate) waits: u64,
    pub(crate) handoffs: u64,
    pub(crate) shared: u64,
    pub(crate) ended: u64,
    pub(crate) atomics: u64,
    pub(crate) immediates: u64,
    pub(crate) closed: u64,
    pub(crate) reads_to_rmr: u64,
    pub(crate) warned: u64,
    pub(crate) overrun: u64,
    pub(crate) held: u64,
    pub(crate) counted: u64,
    pub(crate) registered: u64,
    pub(crate) invalidated: u64,
    pub(crate) datagrams: u64,
    pub(crate) found: u64,
    pub(crate) dup: u64,
    pub(crate) common: u64,
    pub(crate) kinds: [u64; 9],
}

pub(crate) fn addr(side: usize) -> IpAddr {
    IpAddr::from([10, 0, 0, 1 + side as u8])
}

pub(crate) fn open(fabric: &'static Fabric, side: usize, seed: u64) -> LoopIa {
    let storage: &'static mut Storage<_, EPS, EVDS, LMRS, DTOS, EVENTS> =
        Box::leak(Box::new(Storage::new()));
    let net = Net::new(addr(side), 24);
    let mut entropy = [0x5a; 32];
    entropy[..8].copy_from_slice(&seed.to_le_bytes());
    Ia::open(LoopHca::new(fabric, side), storage.parts(), net, Instant::ZERO, entropy)
        .expect("an open adapter")
}

impl World {
    pub(crate) fn new(seed: u64, log: bool) -> Self {
        let fabric: &'static Fabric = Box::leak(Box::new(Fabric::new()));
        let mut rng = Rng::new(seed);
        let sides = [0, 1].map(|side| SideM::new(open(fabric, side, rng.next())));
        Self {
            fabric,
            sides,
            links: Vec::new(),
            asks: Vec::new(),
            now: Instant::from_nanos(1_000_000_000),
            rng,
            cookie: 0,
            calm: if seed % 2 == 0 { 1 } else { 20 },
            log: log.then(VecDeque::new),
            restless: 0,
            attempts: 0,
            seen: Seen::default(),
        }
    }

    pub(crate) fn note(&mut self, text: impl FnOnce() -> String) {
        if let Some(log) = &mut self.log {
            if log.len() == 80 {
                log.pop_front();
            }
            log.push_back(text());
        }
    }

    /// The Endpoint at the other end, if it exists.
    pub(crate) fn peer(&self, link: usize, end: usize) -> Option<(usize, &EpM)> {
        let (side, ep) = self.links[link].ends[1 - end]?;
        let m = self.sides[side].ep(ep)?;
        (m.link == Some((link, 1 - end))).then_some((side, m))
    }

    /// Most events that may wait in an Event Dispatcher.
    pub(crate) fn backlog(&self, side: usize, evd: Evd) -> usize {
        let s = &self.sides[side];
        let Some(m) = s.evd(evd) else { return 0 };
        let mine = |list: &VecDeque<Expect>| list.iter().filter(|e| e.evd == evd).count();
        let events: usize = s.eps.iter().map(|ep| mine(&ep.expected)).sum();
        let ghosts: usize = s.ghosts.iter().map(|(_, list)| mine(list)).sum();
        let listens =
            |port| s.points.iter().chain(&s.old_points).any(|m| m.port == port && m.evd == evd);
        let requests =
            self.links.iter().filter(|l| l.may_be_unseen(side) && listens(l.port)).count();
        let ended = s.ended.iter().filter(|(_, at)| *at == evd).count();
        let asynchronous = evd == s.ia.async_evd();
        let warned = s.warned.iter();
        let warned = warned.filter(|(_, at)| at.map_or(asynchronous, |at| at == evd));
        let ended = ended + warned.count() + self.look_up_backlog(side, evd);
        m.software.len() + m.load + events + ghosts + requests + ended
    }

    /// An Endpoint goes to DISCONNECTED or ceases to be.
    pub(crate) fn leave(&mut self, side: usize, ep: Ep) {
        self.stop_asking(side, ep, false);
        let Some(m) = self.sides[side].ep_mut(ep) else {
            return;
        };
        if let Some((link, end)) = m.link {
            self.links[link].left[end] = true;
        }
    }

    /// Notes that an event is to come.
    pub(crate) fn expect(&mut self, side: usize, ep: Ep, kinds: u16, optional: bool) {
        let Some(evd) = self.sides[side].ep(ep).and_then(|m| m.connect) else {
            return;
        };
        let full = match self.sides[side].evd(evd) {
            Some(m) => self.backlog(side, evd) >= m.qlen as usize,
            None => true,
        };
        if full {
            // Which one is lost depends on the order in which one advance found them.
            let s = &mut self.sides[side];
            let lists = s.eps.iter_mut().map(|m| &mut m.expected);
            let lists = lists.chain(s.ghosts.iter_mut().map(|(_, list)| list));
            lists.flatten().filter(|e| e.evd == evd).for_each(|e| e.optional = true);
            if let Some(m) = s.evd_mut(evd) {
                m.overflow = true;
            }
        }
        if let Some(m) = self.sides[side].ep_mut(ep) {
            let epoch = m.epoch;
            m.expected.push_back(Expect { kinds, evd, optional: optional || full, epoch });
        }
    }

    /// The Endpoint is DISCONNECTED, and the model says which events may report that.
    pub(crate) fn end(&mut self, side: usize, ep: Ep, kinds: u16, perhaps_established: bool) {
        if perhaps_established {
            self.expect(side, ep, kind::ESTABLISHED, true);
        }
        self.expect(side, ep, kinds, false);
        self.expect_end(side, ep);
        self.leave(side, ep);
        if let Some(m) = self.sides[side].ep_mut(ep) {
            m.state = EpState::Disconnected;
            m.epoch += 1;
        }
    }

    /// The asynchronous Event Dispatcher is to tell that an Endpoint takes nothing more from its
    /// common queue.
    fn expect_end(&mut self, side: usize, ep: Ep) {
        let s = &self.sides[side];
        let evd = s.ia.async_evd();
        if s.ep(ep).is_none_or(|m| m.srq.is_none()) {
            return;
        }
        let full = self.backlog(side, evd);
        let s = &mut self.sides[side];
        if let Some(m) = s.evd_mut(evd) {
            m.overflow |= full >= m.qlen as usize;
        }
        s.ended.push((ep, evd));
    }

    /// Requests to this side that find no listener or no room.
    fn mark_refusable(&mut self, side: usize) {
        let asked = self.unseen_asks(side);
        for at in 0..self.links.len() {
            let link = &self.links[at];
            if link.target != Some(side) || !link.is_open() || link.refusable {
                continue;
            }
            let s = &self.sides[side];
            let unseen = self.links.iter().filter(|l| l.may_be_unseen(side)).count();
            let point = s.points.iter().find(|m| m.port == link.port);
            // A request on its way takes the place though its Endpoint has given it up.
            let asks = |l: &Link| l.is_open() || l.may_be_unseen(side) && !l.is_old(self.now);
            let rivals = |l: &&Link| l.target == Some(side) && l.port == link.port && asks(l);
            let contested = self.links.iter().filter(rivals).count() > 1;
            let refused = point.is_none_or(|point| {
                let qlen = s.evd(point.evd).map_or(0, |m| m.qlen as usize);
                // Connection events of the same turn may take the last places.
                let busy = |m: &&EpM| {
                    let idle = [EpState::Unconnected, EpState::Disconnected];
                    m.connect == Some(point.evd) && !idle.contains(&m.state)
                };
                let ends = |m: &&EpM| m.srq.is_some() && s.ia.async_evd() == point.evd;
                let coming =
                    2 * s.eps.iter().filter(busy).count() + s.eps.iter().filter(ends).count();
                self.backlog(side, point.evd) + coming >= qlen
                    || s.crs.len() + unseen + asked > EPS
                    || point.makes && s.eps.len() + unseen > EPS
                    || point.used
                    || point.ep.is_some() && contested
            });
            self.links[at].refusable |= refused || self.attempts >= 2 * EPS;
        }
    }

    /// Calls `advance` and checks what it did to the Endpoints of that side; says whether there was
    /// work.
    pub(crate) fn advance(&mut self, side: usize) -> Result<bool, String> {
        self.mark_refusable(side);
        self.mark_asks(side);
        let now = self.now;
        let next = self.sides[side].ia.advance(now);
        self.note(|| format!("{side}: advance -> {next:?}"));
        self.passed(side, None);
        self.apply_state_changes(side, None)?;
        Ok(next.work)
    }

    /// Applies the state changes that the adapter's events made to the model, except of one
    /// Endpoint.
    pub(crate) fn apply_state_changes(&mut self, side: usize, apart: Option<Ep>) -> Done {
        for at in 0..self.sides[side].eps.len() {
            let (ep, old) = (self.sides[side].eps[at].ep, self.sides[side].eps[at].state);
            if Some(ep) == apart {
                continue;
            }
            let new =
                self.sides[side].ia.ep_get_status(ep).map_err(|e| format!("{ep:?}: {e}"))?.state;
            if new != old {
                self.moved(side, ep, old, new)
                    .map_err(|e| format!("{ep:?} {old:?} -> {new:?}: {e}"))?;
            }
        }
        Ok(())
    }

    /// An event took an Endpoint from one state to another: was there a reason, and what must
    /// follow?
    fn moved(&mut self, side: usize, ep: Ep, old: EpState, new: EpState) -> Done {
        use EpState::{
            ActiveConnectionPending as A, CompletionPending as CP, Connected as C,
            DisconnectPending as DP, Disconnected as D, PassiveConnectionPending as P,
            Reserved as R, UnconfiguredPassive as UP, UnconfiguredReserved as UR,
        };
        if matches!((old, new), (R, P) | (UR, UP)) {
            let s = &mut self.sides[side];
            let reserved = s.points.iter_mut().find(|m| m.ep == Some(ep) && !m.used);
            let point = reserved.ok_or("no service point reserves it")?;
            let port = point.port;
            let asks = |l: &Link| l.may_be_unseen(side) && l.port == port;
            if !self.links.iter().any(asks) {
                return Err("nobody asked for it".into());
            }
            point.used = true;
            if let Some(m) = s.ep_mut(ep) {
                m.asked(true);
            }
            return Ok(());
        }
        if self.is_for_datagrams(side, ep) {
            return self.moved_ud(side, ep, old, new);
        }
        let at = self.sides[side].ep(ep).and_then(|m| m.link).ok_or("it has no connection")?;
        let (at, end) = at;
        let s = &self.sides[side];
        let over = s.ep(ep).is_some_and(|m| s.overrun(m).0);
        let link = &self.links[at];
        let gone = link.left[1 - end];
        let old_age = link.is_old(self.now);
        match (old, new) {
            (A, C) if link.accepted => {
                self.links[at].up[0] = true;
                self.come_up(side, ep);
            }
            (CP, C) if link.up[0] => {
                self.links[at].up[1] = true;
                self.come_up(side, ep);
            }
            (A, D) => {
                let mut kinds = 0;
                let mut also = false;
                if link.rejected {
                    kinds |= kind::PEER_REJECTED;
                }
                if link.refusable || gone || link.broke || old_age {
                    kinds |= kind::NON_PEER_REJECTED;
                }
                if link.target.is_none() || old_age {
                    kinds |= kind::UNREACHABLE;
                }
                if self.now >= link.deadline {
                    kinds |= kind::TIMED_OUT;
                }
                if link.accepted && (gone || link.broke || over) {
                    kinds |= kind::DISCONNECTED | kind::BROKEN;
                    also = true;
                    self.links[at].up[0] = true;
                }
                if kinds == 0 {
                    return Err(format!("without a reason: {:?}", self.links[at]));
                }
                self.end(side, ep, kinds, also);
            }
            (CP, D) => {
                let mut kinds = 0;
                if gone || link.broke || old_age {
                    kinds |= kind::ACCEPT_ERROR;
                }
                let also = link.up[0];
                if also && (gone || link.broke || over) {
                    kinds |= kind::DISCONNECTED | kind::BROKEN;
                }
                if kinds == 0 {
                    return Err(format!("without a reason: {link:?}"));
                }
                self.end(side, ep, kinds, also);
            }
            (C, D) => {
                let mut kinds = 0;
                if gone {
                    kinds |= kind::DISCONNECTED | kind::BROKEN;
                }
                if link.broke || over {
                    // The side that notices tells the other.
                    kinds |= kind::BROKEN;
                }
                self.seen.overrun += u64::from(over && !gone && !link.broke);
                if kinds == 0 {
                    return Err(format!("without a reason: {link:?}"));
                }
                self.end(side, ep, kinds, false);
            }
            (DP, D) => {
                self.end(side, ep, kind::DISCONNECTED, false);
            }
            _ => return Err(format!("not in the table: {link:?}")),
        }
        Ok(())
    }

    fn come_up(&mut self, side: usize, ep: Ep) {
        self.expect(side, ep, kind::ESTABLISHED, false);
        if let Some(m) = self.sides[side].ep_mut(ep) {
            m.state = EpState::Connected;
        }
    }

    /// Lets both sides do what is due, without letting time pass, and looks that nothing is left
    /// half done.
    pub(crate) fn run_until_idle(&mut self) -> Done {
        let mut idle = false;
        for _ in 0..200 {
            let a = self.advance(0)?;
            let b = self.advance(1)?;
            if !a && !b {
                idle = true;
                break;
            }
        }
        if !idle {
            return Err("never idle".into());
        }
        self.restless = 0;
        let strict = self.attempts < 2 * EPS - 2;
        for side in 0..2 {
            for m in &self.sides[side].eps {
                let Some((at, end)) = m.link else { continue };
                let link = &self.links[at];
                let stuck = match m.state {
                    EpState::ActiveConnectionPending => {
                        link.accepted || link.rejected || link.target.is_none() && strict
                    }
                    EpState::CompletionPending => true,
                    EpState::Connected | EpState::DisconnectPending => {
                        link.left[1 - end] || self.sides[side].overrun(m).1
                    }
                    _ => false,
                };
                if stuck && strict && !link.is_old(self.now) {
                    return Err(format!(
                        "{:?} stays in {:?} when all is idle: {link:?}",
                        m.ep, m.state
                    ));
                }
            }
        }
        Ok(())
    }

    /// Lets a long time pass, so that connections leave timewait.
    pub(crate) fn pause(&mut self) -> Done {
        for _ in 0..60 {
            self.now = self.now + Duration::from_secs(2);
            self.run_until_idle()?;
        }
        let open = self.links.iter().filter(|l| l.up[0] && !(l.left[0] && l.left[1]));
        self.attempts =
            open.map(|l| 1 + usize::from(l.ends[0].map(|(side, _)| side) == l.target)).sum();
        Ok(())
    }

    /// Compares what an adapter says of its Endpoints with the model.
    pub(crate) fn audit(&mut self, side: usize) -> Done {
        let s = &mut self.sides[side];
        for m in &s.eps {
            let status = s.ia.ep_get_status(m.ep).map_err(|e| format!("{:?}: {e}", m.ep))?;
            if status.state != m.state {
                return Err(format!(
                    "{:?} is in {:?}, the model in {:?}",
                    m.ep, status.state, m.state
                ));
            }
            for (direction, idle) in [(REQUEST, status.request_idle), (RECV, status.recv_idle)] {
                let (_, most) = m.outstanding(direction);
                // Completed requests are not outstanding, dequeued or not; after the end of a
                // connection none is.
                let ended = m.state == EpState::Disconnected;
                if !idle && (most == 0 || ended) {
                    return Err(format!("{:?} idle {idle}: {:?}", m.ep, m.queue[direction]));
                }
            }
        }
        Ok(())
    }

    /// Compares what the device holds with what the objects need.
    pub(crate) fn audit_device(&mut self, side: usize) -> Done {
        let s = &self.sides[side];
        let (pds, keys, cqs, qps) = self.fabric.alive(side);
        let queues = EvdFlags::DTO | EvdFlags::RMR_BIND;
        let right = pds == s.pzs.len()
            && keys == s.lmrs.len() + s.rmrs.len()
            && cqs == s.evds.iter().filter(|m| m.flags.intersects(queues)).count()
            && qps == s.eps.iter().filter(|m| m.is_configured()).count();
        if right { Ok(()) } else { Err(format!("the device holds {:?}", (pds, keys, cqs, qps))) }
    }

    /// Compares every query of an adapter with the model.
    pub(crate) fn audit_all(&mut self, side: usize) -> Done {
        self.audit(side)?;
        let s = &self.sides[side];
        let differs = |what: &str, a: &dyn std::fmt::Debug, b: &dyn std::fmt::Debug| -> Done {
            Err(format!("query of {what}: {a:?}, expected {b:?}"))
        };
        for m in &s.eps {
            let p = s.ia.ep_query(m.ep).map_err(|e| e.to_string())?;
            let found = (p.state, p.pz, p.recv_evd, p.request_evd, p.connect_evd, p.attr);
            let model = (m.state, m.pz, m.recv, m.request, m.connect, m.attr);
            if found != model {
                return differs("EP", &found, &model);
            }
        }
        for m in &s.evds {
            let p = s.ia.evd_query(m.evd).map_err(|e| e.to_string())?;
            let found = (p.flags, p.reaper_out, p.qlen >= m.qlen);
            let model = (m.flags, m.reaper.is_some(), true);
            if found != model {
                return differs("EVD", &p, &model);
            }
        }
        for m in &s.lmrs {
            let p = s.ia.lmr_query(m.lmr).map_err(|e| e.to_string())?;
            let found = (p.pz, p.region, p.privileges, p.lmr_context);
            let model = (m.pz, m.mapped, m.privileges, m.lmr_context);
            // A request to close a key gives it another.
            let state = match m.kind {
                LmrKind::Fast(_, gate) => {
                    p.state.fmr_support && p.state.bound == (gate != Gate::Closed)
                }
                _ => p.state == LmrState::default(),
            };
            let key = !m.is_usable() || p.rmr_context == m.rmr_context;
            if found != model || !state || !key {
                return differs("LMR", &p, m);
            }
        }
        for m in &s.rmrs {
            let p = s.ia.rmr_query(m.rmr).map_err(|e| e.to_string())?;
            let known = m.bound.is_none_or(|context| p.bound.map(|t| t.context) == Some(context));
            if p.pz != m.pz || Some(&p.rmr_context) != m.keys.last() || !known {
                return differs("RMR", &p, m);
            }
        }
        for m in &s.points {
            let found = match m.point {
                Point::Psp(psp) => {
                    let p = s.ia.psp_query(psp).map_err(|e| e.to_string())?;
                    (p.conn_qual, p.evd, p.flag == PspFlag::Provider, None)
                }
                Point::Rsp(rsp) => {
                    let p = s.ia.rsp_query(rsp).map_err(|e| e.to_string())?;
                    (p.conn_qual, p.evd, false, Some(p.ep))
                }
                Point::Csp(csp) => {
                    let p = s.ia.csp_query(csp).map_err(|e| e.to_string())?;
                    (p.address.port().into(), p.evd, false, None)
                }
            };
            let model = (u64::from(m.port), m.evd, m.makes, m.ep);
            if found != model {
                return differs("service point", &found, &model);
            }
        }
        for m in &s.crs {
            let local_ep = s.ia.cr_query(m.cr).map_err(|e| e.to_string())?.local_ep;
            if local_ep != m.local_ep {
                return differs("CR", &local_ep, &m.local_ep);
            }
        }
        self.audit_cnos(side)?;
        if s.pzs.iter().any(|&pz| s.ia.pz_query(pz).is_err()) {
            return Err("query of a PZ".into());
        }
        Ok(())
    }
}
