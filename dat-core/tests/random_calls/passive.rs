//! Service points, connection requests, and the end of an adapter.

use std::net::{IpAddr, SocketAddr};

use dat_core::*;

use crate::endpoint::PORTS;
use crate::model::*;
use crate::verdict::Verdict;
use crate::world::{Done, World, addr, kind};

impl World {
    /// A qualifier, and whether somebody listens on it.
    fn pick_qualifier(&mut self, side: usize) -> (u64, bool) {
        let qual = match self.rng.below(30) {
            0 => 0,
            1 => 65536,
            2 => self.rng.next(),
            _ => 7000 + self.rng.below(PORTS) as u64,
        };
        let points = &self.sides[side].points;
        (qual, points.iter().any(|m| u64::from(m.port) == qual))
    }

    /// Verdict of what every service point needs.
    fn listening(&self, side: usize, evd: Evd, kind: Point) -> Verdict {
        let s = &self.sides[side];
        let alike = s.points.iter().filter(|m| m.is_like(kind)).count();
        Verdict::new()
            .no_as(
                !s.takes(evd, EvdFlags::CR),
                DatType::InvalidHandle,
                DatSubtype::InvalidHandleEvdCr,
            )
            .no(alike >= EPS, DatType::InsufficientResources)
    }

    pub(crate) fn psp_create(&mut self, side: usize) -> Done {
        let evd = self.pick_evd_for(side, EvdFlags::CR);
        let (qual, in_use) = self.pick_qualifier(side);
        let any = self.rng.percent(20);
        let flag = if self.rng.percent(25) { PspFlag::Provider } else { PspFlag::Consumer };
        let verdict = self
            .listening(side, evd, Point::Psp(Psp::from_raw(1)))
            .no(!any && (qual == 0 || qual > 65535), DatType::InvalidParameter)
            .no(!any && in_use, DatType::ConnQualInUse);
        let s = &mut self.sides[side];
        let answer = if any {
            s.ia.psp_create_any(evd, flag)
        } else {
            s.ia.psp_create(qual, evd, flag).map(|psp| (psp, qual))
        };
        self.note(|| format!("{side}: psp_create {qual} any {any} {evd:?} {flag:?} -> {answer:?}"));
        if !self.judge(&verdict, answer.as_ref().err().map(|e| e.ret()).as_ref())? {
            return Ok(());
        }
        let Ok((psp, qual)) = answer else {
            return Ok(());
        };
        let port = u16::try_from(qual).map_err(|_| format!("a port of {qual}"))?;
        if self.sides[side].points.iter().any(|m| m.port == port) {
            return Err(format!("port {port} was given out twice"));
        }
        self.sides[side].points.push(PointM {
            makes: flag == PspFlag::Provider,
            ..PointM::new(Point::Psp(psp), port, evd)
        });
        Ok(())
    }

    pub(crate) fn csp_create(&mut self, side: usize) -> Done {
        let evd = self.pick_evd_for(side, EvdFlags::CR);
        let port = match self.rng.below(30) {
            0 => 0,
            _ => 7000 + self.rng.below(PORTS) as u16,
        };
        let in_use = self.sides[side].points.iter().any(|m| m.port == port);
        let comm = Comm::tcp(self.rng.percent(5));
        let host = match self.rng.below(20) {
            0 => addr(1 - side),
            1..8 => IpAddr::from([0, 0, 0, 0]),
            _ => addr(side),
        };
        let verdict = self
            .listening(side, evd, Point::Csp(Csp::from_raw(1)))
            .no(comm != Comm::tcp(false), DatType::CommNotSupported)
            .no(port == 0 || host == addr(1 - side), DatType::InvalidAddress)
            .no(in_use, DatType::PortInUse);
        let address = SocketAddr::new(host, port);
        let answer = self.sides[side].ia.csp_create(comm, address, evd);
        self.note(|| format!("{side}: csp_create {comm:?} {address} {evd:?} -> {answer:?}"));
        if self.judge(&verdict, answer.as_ref().err().map(|e| e.ret()).as_ref())? {
            if let Ok(csp) = answer {
                let point = PointM::new(Point::Csp(csp), port, evd);
                self.sides[side].points.push(point);
            }
        }
        Ok(())
    }

    pub(crate) fn rsp_create(&mut self, side: usize) -> Done {
        use EpState::{UnconfiguredUnconnected as UU, Unconnected as U};
        let evd = self.pick_evd_for(side, EvdFlags::CR);
        let (qual, in_use) = self.pick_qualifier(side);
        let own = self.rng.percent(70);
        let ep = own.then(|| self.pick_ep_in(side, &[U]));
        let unseen = self.links.iter().filter(|l| l.may_be_unseen(side)).count();
        let s = &self.sides[side];
        let found = ep.and_then(|ep| s.ep(ep));
        let unknown = ep.is_some() && found.is_none();
        let unfit = found.filter(|m| !matches!(m.state, U | UU));
        let mut verdict = self
            .listening(side, evd, Point::Rsp(Rsp::from_raw(1)))
            .no_as(unknown, DatType::InvalidHandle, DatSubtype::InvalidHandleEp)
            .no(qual == 0 || qual > 65535, DatType::InvalidParameter)
            .no(in_use, DatType::ConnQualInUse)
            .no(ep.is_none() && s.eps.len() >= EPS, DatType::InsufficientResources)
            .may(ep.is_none() && s.eps.len() + unseen >= EPS, DatType::InsufficientResources);
        if let Some(m) = unfit {
            verdict = verdict.no_as(true, DatType::InvalidState, m.state.subtype());
        }
        let answer = self.sides[side].ia.rsp_create(qual, ep, evd);
        self.note(|| format!("{side}: rsp_create {qual} {ep:?} {evd:?} -> {answer:?}"));
        if !self.judge(&verdict, answer.as_ref().err().map(|e| e.ret()).as_ref())? {
            return Ok(());
        }
        let Ok(rsp) = answer else { return Ok(()) };
        let port = u16::try_from(qual).map_err(|_| format!("a port of {qual}"))?;
        let s = &mut self.sides[side];
        let reserved = s.ia.rsp_query(rsp).map_err(|e| e.to_string())?.ep;
        match ep {
            Some(ep) if ep != reserved => return Err("it reserves another Endpoint".into()),
            Some(ep) => {
                if let Some(m) = s.ep_mut(ep) {
                    m.state = match m.state {
                        U => EpState::Reserved,
                        _ => EpState::UnconfiguredReserved,
                    };
                }
            }
            None => {
                let attr = s.ia.ep_query(reserved).map_err(|e| e.to_string())?.attr;
                let state = EpState::UnconfiguredReserved;
                s.eps.push(EpM::new(reserved, state, attr));
            }
        }
        s.points.push(PointM {
            ep: Some(reserved),
            provided: ep.is_none(),
            ..PointM::new(Point::Rsp(rsp), port, evd)
        });
        Ok(())
    }

    /// A service point of any kind, or something that is none.
    pub(crate) fn pick_point(&mut self, side: usize) -> Point {
        match self.rng.below(4) {
            0 | 1 => Point::Psp(self.pick_psp(side)),
            2 => Point::Rsp(self.pick_rsp(side)),
            _ => Point::Csp(self.pick_csp(side)),
        }
    }

    pub(crate) fn point_free(&mut self, side: usize, point: Point) -> Done {
        let now = self.now;
        let s = &mut self.sides[side];
        let at = s.points.iter().position(|m| m.point == point);
        let (answer, subtype) = match point {
            Point::Psp(psp) => (s.ia.psp_free(psp), DatSubtype::InvalidHandlePsp),
            Point::Rsp(rsp) => (s.ia.rsp_free(now, rsp), DatSubtype::InvalidHandleRsp),
            Point::Csp(csp) => (s.ia.csp_free(csp), DatSubtype::InvalidHandleCsp),
        };
        let goes = at.and_then(|at| s.points.get(at));
        let goes = goes.filter(|m| m.provided && !m.used).and_then(|m| m.ep);
        let goes = goes.and_then(|ep| s.ep(ep));
        let verdict = Verdict::new()
            .no_as(at.is_none(), DatType::InvalidHandle, subtype)
            .no(goes.is_some_and(|m| m.poster.is_some()), DatType::InvalidState)
            .may(goes.is_some_and(|m| s.reaper_is_out(m)), DatType::InvalidState);
        self.note(|| format!("{side}: point_free {point:?} -> {answer:?}"));
        if self.judge(&verdict, answer.as_ref().err().map(|e| e.ret()).as_ref())? {
            if let Some(at) = at {
                let s = &mut self.sides[side];
                let m = s.points.remove(at);
                s.old_points.push(m);
                match point {
                    Point::Psp(psp) => s.dead.psp.push(psp),
                    Point::Rsp(rsp) => s.dead.rsp.push(rsp),
                    Point::Csp(csp) => s.dead.csp.push(csp),
                }
                if let Some(ep) = m.ep.filter(|_| !m.used) {
                    if m.provided {
                        self.gone(side, ep);
                    } else if let Some(m) = s.ep_mut(ep) {
                        m.asked(false);
                    }
                }
                // Requests on the way may come too late now.
                for link in &mut self.links {
                    if link.target == Some(side) && link.port == m.port && !link.arrived {
                        link.refusable = true;
                    }
                }
                self.lost_point(side, m.port, false);
            }
        }
        Ok(())
    }

    /// A request has left its service point: its Endpoint is free again, or gone.
    fn left(&mut self, side: usize, m: &CrM) {
        let s = &mut self.sides[side];
        s.crs.retain(|other| other.cr != m.cr);
        s.dead.cr.push(m.cr);
        match m.local_ep {
            Some(ep) if m.provided => self.gone(side, ep),
            Some(ep) => {
                if let Some(m) = s.ep_mut(ep) {
                    m.asked(false);
                }
            }
            None => {}
        }
    }

    pub(crate) fn cr_handoff(&mut self, side: usize) -> Done {
        let cr = self.pick_cr(side);
        let ports: Vec<u16> = self.sides[side].points.iter().map(|m| m.port).collect();
        let known = self.rng.of(&ports).filter(|_| self.rng.percent(90));
        let qual = known.map_or(self.rng.next() >> self.rng.below(64), u64::from);
        let unseen = self.links.iter().filter(|l| l.may_be_unseen(side)).count();
        let unseen = unseen + self.unseen_asks(side);
        let s = &self.sides[side];
        let m = s.crs.iter().find(|m| m.cr == cr).copied();
        let mut verdict =
            Verdict::new().no_as(m.is_none(), DatType::InvalidHandle, DatSubtype::InvalidHandleCr);
        let point = s.points.iter().find(|m| u64::from(m.port) == qual);
        let point = point.filter(|point| m.is_some_and(|m| m.point != point.point) && !point.used);
        // Look-ups come to public ones of the consumer's.
        let public = |point: &&PointM| matches!(point.point, Point::Psp(_)) && !point.makes;
        let point = point.filter(|point| !m.is_some_and(|m| m.looks_up) || public(point));
        let point = point.copied();
        if m.is_some() {
            verdict = verdict.no(point.is_none(), DatType::InvalidParameter);
        }
        if let (Some(m), Some(point)) = (m, point) {
            let own = m.local_ep.filter(|_| m.provided).and_then(|ep| s.ep(ep));
            let full = s.evd(point.evd).map_or(0, |m| m.qlen as usize);
            let eps = s.eps.len() + unseen;
            let tight = self.backlog(side, point.evd) >= full
                || s.crs.len() + unseen >= EPS
                || point.makes && eps >= EPS;
            verdict = verdict
                .no(own.is_some_and(|m| m.poster.is_some()), DatType::InvalidState)
                .may(own.is_some_and(|m| s.reaper_is_out(m)), DatType::InvalidState)
                .no(s.crs.len() >= EPS, DatType::InsufficientResources)
                .may(tight, DatType::InsufficientResources);
        }
        let answer = self.sides[side].ia.cr_handoff(self.now, cr, qual);
        self.note(|| format!("{side}: cr_handoff {cr:?} {qual} -> {answer:?}"));
        if !self.judge(&verdict, answer.as_ref().err().map(|e| e.ret()).as_ref())? {
            return Ok(());
        }
        let (Some(m), Some(point)) = (m, point) else {
            return Ok(());
        };
        self.left(side, &m);
        if m.looks_up {
            let ask = &mut self.asks[m.link];
            (ask.arrived, ask.port) = (false, point.port);
            self.seen.handoffs += 1;
            return Ok(());
        }
        let link = &mut self.links[m.link];
        (link.arrived, link.port) = (false, point.port);
        let s = &mut self.sides[side];
        for other in s.points.iter_mut().filter(|m| m.point == point.point) {
            other.used = other.ep.is_some();
        }
        if let Some(m) = point.ep.and_then(|ep| s.ep_mut(ep)) {
            m.asked(true);
        }
        self.seen.handoffs += 1;
        Ok(())
    }

    pub(crate) fn cr_accept(&mut self, side: usize) -> Done {
        let cr = self.pick_cr(side);
        let m = self.sides[side].crs.iter().find(|m| m.cr == cr).copied();
        if let Some(m) = m.filter(|m| m.looks_up) {
            return self.answer(side, &m);
        }
        let mostly = self.rng.percent(85);
        let ep = match m.and_then(|m| m.local_ep) {
            Some(_) if mostly => None,
            None if !mostly && self.rng.percent(30) => None,
            _ => Some(self.pick_ep_in(side, &[EpState::Unconnected])),
        };
        let size = if self.rng.percent(3) { 197 } else { self.rng.below(197) };
        let used = ep.or_else(|| m.and_then(|m| m.local_ep));
        let s = &mut self.sides[side];
        let named = m.is_some_and(|m| m.local_ep.is_some() == ep.is_some());
        let mut verdict = Verdict::new()
            .no_as(m.is_none(), DatType::InvalidHandle, DatSubtype::InvalidHandleCr)
            .no_as(named, DatType::InvalidHandle, DatSubtype::InvalidHandleEp)
            .no(size > 196, DatType::InvalidParameter);
        if m.is_some() && !named {
            let found = used.and_then(|ep| s.ep(ep));
            verdict =
                verdict.no_as(found.is_none(), DatType::InvalidHandle, DatSubtype::InvalidHandleEp);
            if let Some(found) = found {
                let own = [EpState::TentativeConnectionPending, EpState::PassiveConnectionPending];
                let fit = match ep {
                    Some(_) => found.state == EpState::Unconnected,
                    None => own.contains(&found.state),
                };
                let tentative = ep.is_some() && found.is_asked_for();
                let ready = found.is_configured() && found.connect.is_some();
                verdict = verdict
                    .no(!fit && !tentative, DatType::InvalidState)
                    .no_as(tentative, DatType::InvalidHandle, DatSubtype::InvalidHandleEp)
                    .no(fit && !ready, DatType::InvalidState);
            }
        }
        let private = vec![0x55; size];
        let answer = s.ia.cr_accept(self.now, cr, ep, &private);
        self.note(|| {
            format!("{side}: cr_accept {cr:?} {ep:?} link {:?} -> {answer:?}", m.map(|m| m.link))
        });
        if !self.judge(&verdict, answer.as_ref().err().map(|e| e.ret()).as_ref())? {
            return Ok(());
        }
        let (Some(m), Some(ep)) = (m, used) else {
            return Ok(());
        };
        let s = &mut self.sides[side];
        s.crs.retain(|m| m.cr != cr);
        s.dead.cr.push(cr);
        self.restless += 1;
        let link = &mut self.links[m.link];
        link.accepted = true;
        link.ends[1] = Some((side, ep));
        link.broke |= self.sides[side].is_tainted(ep);
        // The peer's patience starts anew with the reply.
        let excused = link.left[0] || link.is_old(self.now);
        if let Some(m_ep) = self.sides[side].ep_mut(ep) {
            m_ep.state = EpState::CompletionPending;
            m_ep.link = Some((m.link, 1));
        }
        let state = self.sides[side].ia.ep_get_status(ep).map(|status| status.state);
        if state == Ok(EpState::Disconnected) && excused {
            self.end(side, ep, kind::ACCEPT_ERROR, false);
        }
        // An accept first processes the device's events, which may concern other Endpoints.
        self.apply_state_changes(side, Some(ep))
    }

    pub(crate) fn cr_reject(&mut self, side: usize, cr: Cr) -> Done {
        let mut size = if self.rng.percent(3) { 149 } else { self.rng.below(149) };
        let s = &mut self.sides[side];
        let m = s.crs.iter().find(|m| m.cr == cr).copied();
        if m.is_some_and(|m| m.looks_up) {
            // Room for the name of the question.
            size = size.max(8);
        }
        let looks_up = m.is_some_and(|m| m.looks_up);
        let most = if looks_up { MAX_UD_REPLY_PRIVATE } else { 148 };
        let verdict = Verdict::new()
            .no_as(m.is_none(), DatType::InvalidHandle, DatSubtype::InvalidHandleCr)
            .no(size > most && (m.is_some() || size > 148), DatType::InvalidParameter);
        let own = m.filter(|m| m.provided).and_then(|m| m.local_ep);
        let own = own.and_then(|ep| s.ep(ep));
        let verdict = verdict
            .no(own.is_some_and(|m| m.poster.is_some()), DatType::InvalidState)
            .may(own.is_some_and(|m| s.reaper_is_out(m)), DatType::InvalidState);
        let mut private = vec![0x33; size];
        if let (Some(m), Some(name)) = (m, private.first_chunk_mut()) {
            *name = m.name();
        }
        let answer = s.ia.cr_reject(self.now, cr, &private);
        self.note(|| format!("{side}: cr_reject {cr:?} -> {answer:?}"));
        if self.judge(&verdict, answer.as_ref().err().map(|e| e.ret()).as_ref())? {
            if let Some(m) = m {
                if looks_up {
                    self.replied(side, cr, m.link, None);
                    return Ok(());
                }
                self.restless += 1;
                self.links[m.link].rejected = true;
                self.left(side, &m);
            }
        }
        Ok(())
    }

    /// A graceful close while something is left.
    pub(crate) fn early_close(&mut self, side: usize) -> Done {
        let s = &mut self.sides[side];
        let left = s.pzs.len()
            + s.lmrs.len()
            + s.rmrs.len()
            + s.eps.len()
            + s.points.len()
            + s.srqs.len()
            + s.crs.len()
            + s.cnos.len();
        if left + s.evds.len() <= 1 {
            return Ok(());
        }
        let verdict =
            Verdict::new().no_as(true, DatType::InvalidState, DatSubtype::InvalidStateIaInUse);
        let answer = s.ia.close(self.now, CloseFlag::Graceful);
        self.judge(&verdict, answer.as_ref().err().map(|e| e.ret()).as_ref())?;
        Ok(())
    }

    /// The end of a run: everything freed by hand and a graceful close, or an abrupt one of all
    /// that is left.
    pub(crate) fn finish(&mut self, by_hand: bool) -> Done {
        for side in 0..2 {
            while self.sides[side].evds.iter().any(|m| m.reaper.is_some()) {
                self.move_reaper(side)?;
            }
            while self.sides[side].eps.iter().any(|m| m.poster.is_some()) {
                self.move_poster(side)?;
            }
        }
        self.drain()?;
        if by_hand {
            for side in 0..2 {
                self.free_all(side)?;
            }
        }
        for side in 0..2 {
            let lost = self.links.iter().any(|link| link.lost && link.target == Some(side));
            let lost = lost || self.asks.iter().any(|a| a.lost && a.target == Some(side));
            let flag = if by_hand && !lost { CloseFlag::Graceful } else { CloseFlag::Abrupt };
            if flag == CloseFlag::Graceful {
                let alive = self.fabric.alive(side);
                if alive != (0, 0, 0, 0) {
                    return Err(format!("everything is freed, and the device still has {alive:?}"));
                }
            }
            self.sides[side]
                .ia
                .close(self.now, flag)
                .map_err(|e| format!("{flag:?} close: {e}"))?;
            let (left, alive) = (self.fabric.left_at_close(side), self.fabric.alive(side));
            if left != (0, 0, 0, 0) || alive != (0, 0, 0, 0) {
                return Err(format!("{flag:?} close left {left:?} to the device, {alive:?} after"));
            }
            self.seen.closes += 1;
        }
        Ok(())
    }

    fn free_all(&mut self, side: usize) -> Done {
        let s = &self.sides[side];
        let points: Vec<Point> = s.points.iter().map(|m| m.point).collect();
        for point in points {
            self.point_free(side, point)?;
        }
        self.drain()?;
        while let Some(cr) = self.sides[side].crs.first().map(|m| m.cr) {
            self.cr_reject(side, cr)?;
        }
        while let Some(ep) = self.sides[side].eps.iter().find(|m| !m.is_held()).map(|m| m.ep) {
            self.ep_free(side, ep)?;
        }
        while let Some(srq) = self.sides[side].srqs.first().map(|m| m.srq) {
            self.srq_free(side, srq)?;
        }
        while let Some(rmr) = self.sides[side].rmrs.first().map(|m| m.rmr) {
            self.rmr_free(side, rmr)?;
        }
        self.drain()?;
        let freed = |m: &&LmrM| m.kind != LmrKind::All;
        while let Some(lmr) = self.sides[side].lmrs.iter().find(freed).map(|m| m.lmr) {
            self.lmr_free(side, lmr)?;
        }
        while let Some(pz) = self.sides[side].pzs.first().copied() {
            self.pz_free(side, pz)?;
        }
        let async_evd = self.sides[side].ia.async_evd();
        let other = |s: &SideM| s.evds.iter().find(|m| m.evd != async_evd).map(|m| m.evd);
        while let Some(evd) = other(&self.sides[side]) {
            self.evd_free(side, evd)?;
        }
        self.sides[side].ia.evd_modify_cno(async_evd, None).map_err(|e| e.to_string())?;
        for m in &mut self.sides[side].evds {
            m.cno = None;
        }
        while let Some(cno) = self.sides[side].cnos.first().copied() {
            self.cno_free(side, cno)?;
        }
        Ok(())
    }
}
