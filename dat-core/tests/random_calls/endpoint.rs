//! Endpoints: create, modify, connect, disconnect, reset, free, and posters.
//!
//! Length: each call with its model right before it.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use dat_core::*;

use crate::model::*;
use crate::verdict::Verdict;
use crate::world::{Done, World, addr, kind};

const STALE: DatSubtype = DatSubtype::InvalidHandleEp;
pub(crate) const PORTS: usize = 6;

/// How a peer is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// By address and qualifier.
    Qualifier,
    /// By a socket address.
    Address,
    /// As that of another Endpoint.
    As(Ep),
}

impl SideM {
    pub(crate) fn known_ep(&self, ep: Ep) -> Verdict {
        Verdict::new().no_as(self.ep(ep).is_none(), DatType::InvalidHandle, STALE)
    }

    pub(crate) fn streams(
        &self,
        verdict: Verdict,
        pz: Option<Pz>,
        recv: Option<Evd>,
        request: Option<Evd>,
        connect: Option<Evd>,
    ) -> Verdict {
        let bad = |evd: Option<Evd>, stream| evd.is_some_and(|evd| !self.takes(evd, stream));
        let ty = DatType::InvalidHandle;
        verdict
            .no_as(pz.is_some_and(|pz| !self.pzs.contains(&pz)), ty, DatSubtype::InvalidHandlePz)
            .no_as(bad(recv, EvdFlags::DTO), ty, DatSubtype::InvalidHandleEvdRecv)
            .no_as(bad(request, EvdFlags::DTO), ty, DatSubtype::InvalidHandleEvdRequest)
            .no_as(bad(connect, EvdFlags::CONNECTION), ty, DatSubtype::InvalidHandleEvdConn)
    }

    pub(crate) fn attributes(
        &self,
        verdict: Verdict,
        attr: &EpAttr,
        recv: bool,
        request: bool,
    ) -> Verdict {
        let (ia, _) = self.ia.query();
        let iov = ia.max_iov_segments_per_dto;
        let over = [
            (u32::from(attr.max_recv_dtos), ia.max_dto_per_ep),
            (u32::from(attr.max_request_dtos), ia.max_dto_per_ep),
            (u32::from(attr.max_recv_iov), iov),
            (u32::from(attr.max_request_iov), iov),
            (u32::from(attr.max_rdma_read_iov), iov),
            (u32::from(attr.max_rdma_write_iov), iov),
            (u32::from(attr.max_rdma_read_in), ia.max_rdma_read_per_ep_in),
            (u32::from(attr.max_rdma_read_out), ia.max_rdma_read_per_ep_out),
        ]
        .iter()
        .any(|(asked, most)| asked > most)
            || u64::from(attr.max_message_size) > ia.max_message_size
            || u64::from(attr.max_rdma_size) > ia.max_rdma_size;
        let known = CompletionFlags::SOLICITED_WAIT
            | CompletionFlags::UNSIGNALLED
            | CompletionFlags::EVD_THRESHOLD;
        let flags = !known.contains(attr.recv_completion_flags)
            || !(known | CompletionFlags::SUPPRESS).contains(attr.request_completion_flags);
        let torn = recv != (attr.max_recv_dtos != 0) || request != (attr.max_request_dtos != 0);
        let iovless = recv && attr.max_recv_iov == 0 || request && attr.max_request_iov == 0;
        verdict
            .no(over || flags || torn || iovless, DatType::InvalidParameter)
            .no(attr.qos != Qos::BestEffort, DatType::ModelNotSupported)
    }
}

impl World {
    fn pick_attr(&mut self, side: usize, recv: bool, request: bool) -> EpAttr {
        let mut attr = self.sides[side].default;
        attr.max_recv_dtos = if recv { self.rng.below(DTOS) as u16 + 1 } else { 0 };
        attr.max_request_dtos = if request { self.rng.below(DTOS) as u16 + 1 } else { 0 };
        if self.rng.percent(20) {
            attr.request_completion_flags |= CompletionFlags::UNSIGNALLED;
            attr.recv_completion_flags |= CompletionFlags::UNSIGNALLED;
        }
        match self.rng.below(40) {
            0 => attr.max_recv_dtos = self.rng.next() as u16,
            1 => attr.max_request_dtos = DTOS as u16 + 1,
            2 => attr.max_recv_iov = 0,
            3 => attr.max_request_iov = self.rng.next() as u8,
            4 => attr.max_message_size = u32::MAX,
            5 => attr.qos = Qos::Premium,
            6 => attr.recv_completion_flags = CompletionFlags::SUPPRESS,
            7 => attr.max_rdma_read_in = u8::MAX,
            8 => attr.max_message_size = 100,
            9 => attr.max_rdma_size = 100,
            10 => attr.max_rdma_read_iov = 1,
            11 => attr.request_completion_flags = CompletionFlags::from_bits_retain(0x8000),
            12 => attr.max_rdma_write_iov = 99,
            13 => attr.max_recv_dtos = 0,
            _ => {}
        }
        attr
    }

    pub(crate) fn ep_create(&mut self, side: usize) -> Done {
        let some = |world: &mut Self, stream| {
            let given = world.rng.percent(98);
            given.then(|| world.pick_evd_for(side, stream))
        };
        let pz = if self.rng.percent(98) { Some(self.pick_pz(side)) } else { None };
        let recv = some(self, EvdFlags::DTO);
        let request =
            if self.rng.percent(50) && recv.is_some() { recv } else { some(self, EvdFlags::DTO) };
        let connect = match recv {
            Some(evd)
                if self.rng.percent(40) && self.sides[side].takes(evd, EvdFlags::CONNECTION) =>
            {
                recv
            }
            _ => some(self, EvdFlags::CONNECTION),
        };
        let (r, q) = (recv.is_some(), request.is_some());
        let given = if self.rng.percent(60) { Some(self.pick_attr(side, r, q)) } else { None };
        let s = &mut self.sides[side];
        let mut attr = s.default;
        if !r {
            attr.max_recv_dtos = 0;
        }
        if !q {
            attr.max_request_dtos = 0;
        }
        let mut attr = given.unwrap_or(attr);
        let shared = self.rng.percent(25);
        let shared = shared.then(|| self.pick_srq(side));
        let shared = shared.filter(|&srq| self.has_shared_room(side, Some(srq), recv));
        let s = &mut self.sides[side];
        if shared.is_some() {
            let most = s.ia.query().0.max_iov_segments_per_dto as u8;
            attr.max_recv_iov = attr.max_recv_iov.clamp(1, most);
        }
        let unseen = self.links.iter().filter(|l| l.may_be_unseen(side)).count();
        let mut verdict = s.streams(Verdict::new(), pz, recv, request, connect);
        verdict = s.attributes(verdict, &attr, r, q);
        verdict = verdict
            .no(s.eps.len() >= EPS, DatType::InsufficientResources)
            .may(s.eps.len() + unseen >= EPS, DatType::InsufficientResources);
        if let Some(srq) = shared {
            verdict = verdict.no_as(
                s.srq(srq).is_none(),
                DatType::InvalidHandle,
                DatSubtype::InvalidHandleSrq,
            );
        }
        let answer = match shared {
            Some(srq) => s.ia.ep_create_with_srq(pz, recv, request, connect, srq, &attr),
            None => s.ia.ep_create(pz, recv, request, connect, given.as_ref()),
        };
        self.note(|| {
            format!(
                "{side}: ep_create {shared:?} {pz:?} {recv:?} {request:?} {connect:?} {given:?} -> {answer:?}"
            )
        });
        if !self.judge(&verdict, answer.as_ref().err().map(|e| e.ret()).as_ref())? {
            return Ok(());
        }
        let Ok(ep) = answer else { return Ok(()) };
        let mut m = EpM::new(ep, EpState::UnconfiguredUnconnected, attr);
        (m.pz, m.recv, m.request, m.connect) = (pz, recv, request, connect);
        m.srq = shared;
        self.shared_load(side, shared, recv);
        let s = &mut self.sides[side];
        m.configure();
        s.eps.push(m);
        Ok(())
    }

    pub(crate) fn ep_modify(&mut self, side: usize) -> Done {
        use EpState::{
            PassiveConnectionPending as P, Reserved as R, TentativeConnectionPending as T,
            UnconfiguredPassive as UP, UnconfiguredReserved as UR, UnconfiguredTentative as UT,
            UnconfiguredUnconnected as UU, Unconnected as U,
        };
        let states: &[EpState] =
            if self.rng.percent(60) { &[UT, UR, UP] } else { &[T, UT, U, UU, R, UR, P, UP] };
        let bare: Vec<Ep> = self.sides[side]
            .eps
            .iter()
            .filter(|m| states.contains(&m.state) && !m.is_configured())
            .map(|m| m.ep)
            .collect();
        let bare = self.rng.of(&bare).filter(|_| self.rng.percent(70));
        let ep = bare.unwrap_or_else(|| self.pick_ep_in(side, states));
        let all = self.rng.percent(70);
        let given = |world: &mut Self| all || world.rng.percent(30);
        let mut change = EpModify::default();
        if given(self) {
            change.pz = Some(self.pick_pz(side));
        }
        if given(self) {
            change.recv_evd = Some(self.pick_evd_for(side, EvdFlags::DTO));
        }
        if self.sides[side].ep(ep).is_some_and(|m| !m.queue[RECV].is_empty()) {
            // They would come along, and their completions need room that was made elsewhere.
            change.recv_evd = None;
        }
        let srq = self.sides[side].ep(ep).and_then(|m| m.srq);
        if !self.has_shared_room(side, srq, change.recv_evd) {
            change.recv_evd = None;
        }
        if given(self) {
            change.request_evd = Some(self.pick_evd_for(side, EvdFlags::DTO));
        }
        if given(self) {
            change.connect_evd = Some(self.pick_evd_for(side, EvdFlags::CONNECTION));
        }
        let s = &self.sides[side];
        let old = s.ep(ep);
        let recv = change.recv_evd.or(old.and_then(|m| m.recv));
        let request = change.request_evd.or(old.and_then(|m| m.request));
        let connect = change.connect_evd.or(old.and_then(|m| m.connect));
        let pz = change.pz.or(old.and_then(|m| m.pz));
        if self.rng.percent(40) {
            change.attr = Some(self.pick_attr(side, recv.is_some(), request.is_some()));
        }
        let s = &self.sides[side];
        let mut verdict = s.known_ep(ep);
        let mut attr = change.attr.unwrap_or(s.default);
        if let Some(m) = s.ep(ep) {
            let allowed = matches!(m.state, U | UU | T | UT | R | UR | P | UP);
            verdict = s
                .streams(verdict, pz, recv, request, connect)
                .no_as(!allowed, DatType::InvalidState, m.state.subtype())
                .may(m.poster.is_some(), DatType::InvalidState);
            if change.attr.is_none() {
                attr = m.attr;
                // A direction that comes or goes takes its default depth with it.
                if m.recv.is_none() != recv.is_none() || m.request.is_none() != request.is_none() {
                    attr = s.default;
                    if recv.is_none() {
                        attr.max_recv_dtos = 0;
                    }
                    if request.is_none() {
                        attr.max_request_dtos = 0;
                    }
                }
            }
            verdict = s.attributes(verdict, &attr, recv.is_some(), request.is_some());
            // Memory changes its zone only in quiescence.
            let quiescent = matches!(m.state, U | UU | T | UT);
            verdict = verdict.no_as(
                m.pz.is_some() && pz != m.pz && !quiescent,
                DatType::InvalidState,
                m.state.subtype(),
            );
            let remade = (pz, recv, request, attr) != (m.pz, m.recv, m.request, m.attr);
            let posted = m.queue[RECV].len();
            let otherwise = attr.recv_completion_flags != m.attr.recv_completion_flags;
            verdict = verdict
                .no(posted != 0 && otherwise, DatType::InvalidState)
                .no(usize::from(attr.max_recv_dtos) < posted, DatType::InvalidParameter)
                .no(remade && m.poster.is_some(), DatType::InvalidState);
        }
        let answer = self.sides[side].ia.ep_modify(ep, &change);
        self.note(|| format!("{side}: ep_modify {ep:?} {change:?} -> {answer:?}"));
        if self.judge(&verdict, answer.as_ref().err().map(|e| e.ret()).as_ref())? {
            if let Some(m) = self.sides[side].ep_mut(ep) {
                // Receives of the old zone will fail.
                m.tainted |= pz != m.pz && !m.queue[RECV].is_empty();
                (m.pz, m.recv, m.request, m.connect, m.attr) = (pz, recv, request, connect, attr);
                m.configure();
                self.shared_load(side, srq, change.recv_evd);
            }
        }
        Ok(())
    }

    pub(crate) fn ep_connect(&mut self, side: usize) -> Done {
        if self.attempts >= 2 * EPS - 4 {
            self.drain()?;
            self.pause()?;
        }
        let ep = self.pick_ep_in(side, &[EpState::Unconnected]);
        if self.is_for_datagrams(side, ep) {
            return self.look_up(side, ep);
        }
        let (remote, target): (IpAddr, _) = match self.rng.below(40) {
            0 => (IpAddr::from([10, 0, 0, 77]), None),
            1 => (IpAddr::from([0, 0, 0, 0]), None),
            2 => (IpAddr::from([224, 0, 0, 1]), None),
            3 => (IpAddr::from([0_u16; 8]), None),
            4 => (IpAddr::from([0xfe80, 0, 0, 0, 0, 0, 0, 1]), None),
            5..8 => (addr(side), Some(side)),
            _ => (addr(1 - side), Some(1 - side)),
        };
        let ports: Vec<u16> =
            self.sides[target.unwrap_or(side)].points.iter().map(|m| m.port).collect();
        let listening = self.rng.of(&ports).filter(|_| self.rng.percent(90));
        let port = listening.unwrap_or(7000 + self.rng.below(PORTS) as u16);
        let qual = match self.rng.below(40) {
            0 => 0,
            1 => 65536,
            2 => u64::MAX,
            _ => u64::from(port),
        };
        let timeout = match self.rng.below(20) {
            0 => Duration::ZERO,
            1 => Duration::from_micros(20),
            2 => Duration::MAX,
            _ => Duration::from_secs(100),
        };
        let size = match self.rng.below(30) {
            0 => 57,
            1 => 500,
            _ => 8 + self.rng.below(49),
        };
        let mut private = vec![0xaa; size];
        private[..8].copy_from_slice(&(self.links.len() as u64).to_le_bytes());
        let qos = if self.rng.percent(2) { Qos::LowLatency } else { Qos::BestEffort };
        let way = match self.rng.below(10) {
            0 | 1 => Way::Address,
            2 => {
                let dup = self.pick_ep_in(side, &[EpState::Connected]);
                if self.is_for_datagrams(side, dup) {
                    return Ok(());
                }
                Way::As(dup)
            }
            _ => Way::Qualifier,
        };
        let qos = if way == Way::Address { Qos::BestEffort } else { qos };
        let (mut verdict, (remote, target), (qual, port)) =
            self.way_verdict(side, way, (remote, target), (qual, port));
        let s = &mut self.sides[side];
        verdict = verdict.no_as(s.ep(ep).is_none(), DatType::InvalidHandle, STALE);
        if let Some(m) = s.ep(ep) {
            let fit = m.state == EpState::Unconnected;
            let ready = m.is_configured() && m.connect.is_some();
            verdict = verdict
                .no_as(!fit, DatType::InvalidState, m.state.subtype())
                .no(fit && !ready, DatType::InvalidState);
        }
        let useless = remote.is_unspecified() || remote.is_multicast() || remote.is_ipv6();
        verdict = verdict
            .no(useless, DatType::InvalidAddress)
            .no(way == Way::Qualifier && (qual == 0 || qual > 65535), DatType::InvalidParameter)
            .no(timeout.is_zero(), DatType::InvalidParameter)
            .no(size > 56, DatType::InvalidParameter)
            .no(qos != Qos::BestEffort, DatType::ModelNotSupported);
        let now = self.now;
        let answer = match way {
            Way::Qualifier => s.ia.ep_connect(now, ep, remote, qual, timeout, &private, qos),
            Way::Address => {
                let remote = SocketAddr::new(remote, port);
                s.ia.ep_common_connect(now, ep, remote, timeout, &private)
            }
            Way::As(dup) => s.ia.ep_dup_connect(now, ep, dup, timeout, &private, qos),
        };
        let at = self.links.len();
        self.note(|| {
            format!("{side}: ep_connect {way:?} {ep:?} {remote} {qual} {timeout:?} link {at} -> {answer:?}")
        });
        if !self.judge(&verdict, answer.as_ref().err().map(|e| e.ret()).as_ref())? {
            return Ok(());
        }
        self.links.push(Link {
            ends: [Some((side, ep)), None],
            target,
            port,
            asked: port,
            born: self.now,
            deadline: self.now + timeout,
            arrived: false,
            lost: false,
            accepted: false,
            rejected: false,
            refusable: false,
            up: [false; 2],
            left: [false; 2],
            broke: self.sides[side].is_tainted(ep),
            sent: [Vec::new(), Vec::new()],
        });
        match way {
            Way::Qualifier => {}
            Way::Address => self.seen.common += 1,
            Way::As(_) => self.seen.dup += 1,
        }
        // One to itself takes two places in one connection manager.
        self.attempts += 1 + usize::from(target == Some(side));
        self.restless += 1;
        if let Some(m) = self.sides[side].ep_mut(ep) {
            m.state = EpState::ActiveConnectionPending;
            m.link = Some((at, 0));
            m.count_one(EpCounter::Connect);
        }
        // An address that nobody has may be known for that at once.
        let state = self.sides[side].ia.ep_get_status(ep).map(|status| status.state);
        if target.is_none() && state == Ok(EpState::Disconnected) {
            self.end(side, ep, kind::UNREACHABLE, false);
        }
        Ok(())
    }

    /// Returns the refusals of a kind of connect, and the peer that it names.
    fn way_verdict(
        &self,
        side: usize,
        way: Way,
        given: (IpAddr, Option<usize>),
        (qual, port): (u64, u16),
    ) -> (Verdict, (IpAddr, Option<usize>), (u64, u16)) {
        let verdict = Verdict::new();
        match way {
            Way::Qualifier => (verdict, given, (qual, port)),
            Way::Address => {
                let port = if qual == 0 { 0 } else { port };
                let verdict = verdict.no(port == 0, DatType::InvalidAddress);
                (verdict, given, (port.into(), port))
            }
            Way::As(dup) => {
                let Some(m) = self.sides[side].ep(dup) else {
                    let verdict = verdict.no_as(true, DatType::InvalidHandle, STALE);
                    return (verdict, given, (qual, port));
                };
                let asked = m.link.filter(|&(_, end)| end == 0);
                let asked = asked.map(|(at, _)| &self.links[at]);
                let verdict = verdict
                    .no_as(m.state != EpState::Connected, DatType::InvalidState, m.state.subtype())
                    .no(asked.is_none(), DatType::InvalidParameter);
                let target = asked.and_then(|link| link.target);
                let port = asked.map_or(port, |link| link.asked);
                let remote = target.map_or(given.0, addr);
                (verdict, (remote, target), (port.into(), port))
            }
        }
    }

    pub(crate) fn ep_disconnect(&mut self, side: usize) -> Done {
        use EpState::{
            ActiveConnectionPending as A, CompletionPending as CP, Connected as C,
            DisconnectPending as DP, Disconnected as D,
        };
        let ep = self.pick_ep_in(side, &[C, DP, A, CP]);
        let graceful = self.rng.percent(50);
        if graceful && !self.has_completion_room(side, ep, REQUEST)? {
            return Ok(());
        }
        let flag = if graceful { CloseFlag::Graceful } else { CloseFlag::Abrupt };
        let s = &mut self.sides[side];
        let mut verdict = s.known_ep(ep);
        let old = s.ep(ep).map(|m| m.state);
        if let Some(state) = old {
            let allowed = matches!(state, A | CP | C | DP | D);
            verdict = verdict.no_as(!allowed, DatType::InvalidState, state.subtype());
        }
        let answer = s.ia.ep_disconnect(self.now, ep, flag);
        self.note(|| format!("{side}: ep_disconnect {ep:?} {flag:?} -> {answer:?}"));
        if !self.judge(&verdict, answer.as_ref().err().map(|e| e.ret()).as_ref())? {
            return Ok(());
        }
        self.restless += 1;
        let new = self.sides[side].ia.ep_get_status(ep).map_err(|e| e.to_string())?.state;
        let idle = old == Some(D) || graceful && old == Some(DP);
        if let Some(m) = self.sides[side].ep_mut(ep).filter(|_| !idle) {
            m.count_one(EpCounter::Disconnect);
        }
        match (old, graceful, new) {
            (Some(D), _, D) | (Some(DP), true, DP) => {}
            (Some(C), true, DP) => {
                self.stop_asking(side, ep, false);
                let s = &mut self.sides[side];
                if let Some(m) = s.ep_mut(ep) {
                    m.state = DP;
                    m.drained = true;
                    let request = m.request;
                    m.queue[REQUEST].iter_mut().for_each(|dto| dto.deferred = false);
                    if let Some(evd) = request.and_then(|evd| s.evd_mut(evd)) {
                        evd.load += 1;
                    }
                }
            }
            (Some(A | CP | C | DP), _, D) => {
                if old == Some(C) && graceful {
                    // Requests of the drain may still be in the queue.
                    if let Some(m) = self.sides[side].ep_mut(ep) {
                        m.drained = true;
                    }
                }
                self.end(side, ep, kind::DISCONNECTED, false);
            }
            _ => return Err(format!("{old:?} -> {new:?}")),
        }
        Ok(())
    }

    pub(crate) fn ep_reset(&mut self, side: usize) -> Done {
        use EpState::{Disconnected as D, UnconfiguredUnconnected as UU, Unconnected as U};
        let ep = self.pick_ep_in(side, &[D]);
        let s = &mut self.sides[side];
        let mut verdict = s.known_ep(ep);
        let mut ended = false;
        if let Some(m) = s.ep(ep) {
            ended = m.state == D;
            verdict = verdict
                .no_as(!matches!(m.state, U | UU | D), DatType::InvalidState, m.state.subtype())
                .no(ended && m.poster.is_some(), DatType::InvalidState)
                .may(ended && s.reaper_is_out(m), DatType::InvalidState);
        }
        let answer = s.ia.ep_reset(ep);
        self.note(|| format!("{side}: ep_reset {ep:?} -> {answer:?}"));
        if self.judge(&verdict, answer.as_ref().err().map(|e| e.ret()).as_ref())? && ended {
            if let Some(m) = self.sides[side].ep_mut(ep) {
                let dropped = std::mem::take(&mut m.queue[REQUEST]);
                m.rewind();
                let srq = m.srq;
                self.stop_asking(side, ep, true);
                self.dropped(side, dropped);
                self.windows_end(side, ep)?;
                self.sweep(side, srq)?;
            }
        }
        Ok(())
    }

    pub(crate) fn ep_free(&mut self, side: usize, ep: Ep) -> Done {
        let s = &mut self.sides[side];
        let mut verdict = s.known_ep(ep);
        if let Some(m) = s.ep(ep) {
            let held = m.is_held();
            verdict = verdict
                .no_as(held, DatType::InvalidState, m.state.subtype())
                .no(m.poster.is_some(), DatType::InvalidState)
                .may(s.reaper_is_out(m), DatType::InvalidState);
        }
        let answer = s.ia.ep_free(self.now, ep);
        self.note(|| format!("{side}: ep_free {ep:?} -> {answer:?}"));
        if self.judge(&verdict, answer.as_ref().err().map(|e| e.ret()).as_ref())? {
            let srq = self.sides[side].ep(ep).and_then(|m| m.srq);
            self.gone(side, ep);
            self.windows_end(side, ep)?;
            self.sweep(side, srq)?;
        }
        Ok(())
    }

    /// Requests whose completions are never reported.
    fn dropped(&mut self, side: usize, requests: std::collections::VecDeque<Dto>) {
        for dto in requests {
            self.sides[side].edited(dto.op, dto.late, false);
        }
    }

    /// Windows that were the Endpoint's are nobody's, and have another context.
    fn windows_end(&mut self, side: usize, ep: Ep) -> Done {
        let s = &mut self.sides[side];
        for m in s.rmrs.iter_mut().filter(|m| m.holder == Some(ep)) {
            let param = s.ia.rmr_query(m.rmr).map_err(|e| e.to_string())?;
            if param.bound.is_some() || m.keys.last() == Some(&param.rmr_context) {
                return Err(format!("it outlives its Endpoint: {param:?}"));
            }
            m.keys.push(param.rmr_context);
            m.holder = None;
            m.close();
        }
        Ok(())
    }

    /// The Endpoint is no more; events that were queued for it may still be dequeued.
    pub(crate) fn gone(&mut self, side: usize, ep: Ep) {
        self.restless += 1;
        self.leave(side, ep);
        let s = &mut self.sides[side];
        if let Some(at) = s.eps.iter().position(|m| m.ep == ep) {
            let m = s.eps.remove(at);
            s.ghosts.push((ep, m.expected));
            s.dead.ep.push(ep);
            self.stop_asking(side, ep, true);
            let [requests, _] = m.queue;
            self.dropped(side, requests);
        }
    }

    /// Takes a poster out, or puts one back, perhaps to the wrong adapter.
    pub(crate) fn move_poster(&mut self, side: usize) -> Done {
        let out = self.sides[side].eps.iter_mut().find_map(|m| m.poster.take());
        if let Some(poster) = out {
            let ep = poster.ep();
            let to = if self.rng.percent(20) { 1 - side } else { side };
            let answer = self.sides[to].ia.ep_return_poster(poster);
            self.note(|| format!("{side}: return_poster {ep:?} to {to}: {}", answer.is_ok()));
            match answer {
                Ok(()) if to == side => {}
                Ok(()) => return Err("an adapter took a foreign poster".into()),
                Err(_) if to == side => return Err("an adapter did not take its own poster".into()),
                Err(poster) => {
                    if let Some(m) = self.sides[side].ep_mut(ep) {
                        m.poster = Some(poster);
                    }
                }
            }
            return Ok(());
        }
        let ep = self.pick_ep(side);
        let s = &mut self.sides[side];
        let ready = s.ep(ep).is_none_or(|m| m.is_configured());
        let verdict = s.known_ep(ep).no(!ready, DatType::InvalidState);
        let answer = s.ia.ep_take_poster(ep);
        self.note(|| format!("{side}: take_poster {ep:?}: {}", answer.is_ok()));
        let refusal = answer.as_ref().err().map(|e| e.ret());
        if self.judge(&verdict, refusal.as_ref())? {
            if let Some(m) = self.sides[side].ep_mut(ep) {
                m.poster = answer.ok();
            }
        }
        Ok(())
    }

    /// Queries by handles of all sorts.
    pub(crate) fn queries(&mut self, side: usize) -> Done {
        let (ep, pz, lmr) = (self.pick_ep(side), self.pick_pz(side), self.pick_lmr(side));
        let (rmr, psp, cr) = (self.pick_rmr(side), self.pick_psp(side), self.pick_cr(side));
        let evd = self.pick_evd(side);
        let s = &mut self.sides[side];
        let word = |answer: Option<Error>| answer.map(|e| e.ret());
        let answers = [
            (s.ep(ep).is_some(), word(s.ia.ep_query(ep).err()), STALE),
            (s.ep(ep).is_some(), word(s.ia.ep_get_status(ep).err()), STALE),
            (s.ep(ep).is_some(), word(s.ia.ep_cause(ep).err()), STALE),
            (s.ep(ep).is_some(), word(s.ia.ep_private_data(ep).err()), STALE),
            (s.pzs.contains(&pz), word(s.ia.pz_query(pz).err()), DatSubtype::InvalidHandlePz),
            (
                s.lmrs.iter().any(|m| m.lmr == lmr),
                word(s.ia.lmr_query(lmr).err()),
                DatSubtype::InvalidHandleLmr,
            ),
            (
                s.rmrs.iter().any(|m| m.rmr == rmr),
                word(s.ia.rmr_query(rmr).err()),
                DatSubtype::InvalidHandleRmr,
            ),
            (
                s.points.iter().any(|m| m.point == Point::Psp(psp)),
                word(s.ia.psp_query(psp).err()),
                DatSubtype::InvalidHandlePsp,
            ),
            (
                s.crs.iter().any(|m| m.cr == cr),
                word(s.ia.cr_query(cr).err()),
                DatSubtype::InvalidHandleCr,
            ),
            (s.evd(evd).is_some(), word(s.ia.evd_query(evd).err()), DatSubtype::InvalidHandle1),
        ];
        for (alive, answer, subtype) in answers {
            let verdict = Verdict::new().no_as(!alive, DatType::InvalidHandle, subtype);
            self.judge(&verdict, answer.as_ref()).map_err(|e| format!("{subtype:?}: {e}"))?;
        }
        Ok(())
    }
}
