//! Service points, connection requests, and the end of an adapter.

use dat_core::*;

use crate::endpoint::PORTS;
use crate::model::*;
use crate::verdict::Verdict;
use crate::world::{Done, World, kind};

impl World {
    pub(crate) fn psp_create(&mut self, side: usize) -> Done {
        let evd = self.pick_evd_for(side, EvdFlags::CR);
        let qual = match self.rng.below(30) {
            0 => 0,
            1 => 65536,
            2 => self.rng.next(),
            _ => 7000 + self.rng.below(PORTS) as u64,
        };
        let any = self.rng.percent(20);
        let flag = if self.rng.percent(25) {
            PspFlag::Provider
        } else {
            PspFlag::Consumer
        };
        let s = &mut self.sides[side];
        let in_use = s.psps.iter().any(|m| u64::from(m.port) == qual);
        let verdict = Verdict::new()
            .no_as(
                !s.takes(evd, EvdFlags::CR),
                DatType::InvalidHandle,
                DatSubtype::InvalidHandleEvdCr,
            )
            .no(
                !any && (qual == 0 || qual > 65535),
                DatType::InvalidParameter,
            )
            .no(!any && in_use, DatType::ConnQualInUse)
            .no(s.psps.len() >= EPS, DatType::InsufficientResources);
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
        if self.sides[side].psps.iter().any(|m| m.port == port) {
            return Err(format!("port {port} was given out twice"));
        }
        self.sides[side].psps.push(PspM {
            psp,
            port,
            evd,
            flag,
        });
        Ok(())
    }

    pub(crate) fn psp_free(&mut self, side: usize, psp: Psp) -> Done {
        let s = &mut self.sides[side];
        let at = s.psps.iter().position(|m| m.psp == psp);
        let verdict = Verdict::new().no_as(
            at.is_none(),
            DatType::InvalidHandle,
            DatSubtype::InvalidHandlePsp,
        );
        let answer = s.ia.psp_free(psp);
        self.note(|| format!("{side}: psp_free {psp:?} -> {answer:?}"));
        if self.judge(&verdict, answer.as_ref().err().map(|e| e.ret()).as_ref())?
            && let Some(at) = at
        {
            let s = &mut self.sides[side];
            let m = s.psps.remove(at);
            s.old_psps.push(m);
            s.dead.psp.push(psp);
            // What is on its way may come too late now.
            for link in &mut self.links {
                if link.target == Some(side) && link.port == m.port && !link.arrived {
                    link.refusable = true;
                }
            }
        }
        Ok(())
    }

    pub(crate) fn cr_accept(&mut self, side: usize) -> Done {
        let cr = self.pick_cr(side);
        let m = self.sides[side].crs.iter().find(|m| m.cr == cr).copied();
        let mostly = self.rng.percent(85);
        let ep = match m.and_then(|m| m.local_ep) {
            Some(_) if mostly => None,
            None if !mostly && self.rng.percent(30) => None,
            _ => Some(self.pick_ep_in(side, &[EpState::Unconnected])),
        };
        let size = if self.rng.percent(3) {
            197
        } else {
            self.rng.below(197)
        };
        let used = ep.or_else(|| m.and_then(|m| m.local_ep));
        let s = &mut self.sides[side];
        let named = m.is_some_and(|m| m.local_ep.is_some() == ep.is_some());
        let mut verdict = Verdict::new()
            .no_as(
                m.is_none(),
                DatType::InvalidHandle,
                DatSubtype::InvalidHandleCr,
            )
            .no_as(named, DatType::InvalidHandle, DatSubtype::InvalidHandleEp)
            .no(size > 196, DatType::InvalidParameter);
        if m.is_some() && !named {
            let found = used.and_then(|ep| s.ep(ep));
            verdict = verdict.no_as(
                found.is_none(),
                DatType::InvalidHandle,
                DatSubtype::InvalidHandleEp,
            );
            if let Some(found) = found {
                let fit = match ep {
                    Some(_) => found.state == EpState::Unconnected,
                    None => found.state == EpState::TentativeConnectionPending,
                };
                let tentative = ep.is_some() && found.is_tentative();
                let ready = found.is_configured() && found.connect.is_some();
                verdict = verdict
                    .no(!fit && !tentative, DatType::InvalidState)
                    .no_as(
                        tentative,
                        DatType::InvalidHandle,
                        DatSubtype::InvalidHandleEp,
                    )
                    .no(fit && !ready, DatType::InvalidState);
            }
        }
        let private = vec![0x55; size];
        let answer = s.ia.cr_accept(self.now, cr, ep, &private);
        self.note(|| {
            format!(
                "{side}: cr_accept {cr:?} {ep:?} link {:?} -> {answer:?}",
                m.map(|m| m.link)
            )
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
        link.broke |= self.sides[side].ep(ep).is_some_and(|m| m.tainted);
        // The peer's patience starts anew with the reply.
        let excused = link.left[0] || link.is_old(self.now);
        if let Some(m_ep) = self.sides[side].ep_mut(ep) {
            m_ep.state = EpState::CompletionPending;
            m_ep.link = Some((m.link, 1));
        }
        let state = self.sides[side]
            .ia
            .ep_get_status(ep)
            .map(|status| status.state);
        if state == Ok(EpState::Disconnected) && excused {
            self.end(side, ep, kind::ACCEPT_ERROR, false);
        }
        Ok(())
    }

    pub(crate) fn cr_reject(&mut self, side: usize, cr: Cr) -> Done {
        let size = if self.rng.percent(3) {
            149
        } else {
            self.rng.below(149)
        };
        let s = &mut self.sides[side];
        let m = s.crs.iter().find(|m| m.cr == cr).copied();
        let verdict = Verdict::new()
            .no_as(
                m.is_none(),
                DatType::InvalidHandle,
                DatSubtype::InvalidHandleCr,
            )
            .no(size > 148, DatType::InvalidParameter);
        let own = m.and_then(|m| m.local_ep).and_then(|ep| s.ep(ep));
        let verdict = verdict
            .no(
                own.is_some_and(|m| m.poster.is_some()),
                DatType::InvalidState,
            )
            .may(
                own.is_some_and(|m| s.reaper_is_out(m)),
                DatType::InvalidState,
            );
        let answer = s.ia.cr_reject(self.now, cr, &vec![0x33; size]);
        self.note(|| format!("{side}: cr_reject {cr:?} -> {answer:?}"));
        if self.judge(&verdict, answer.as_ref().err().map(|e| e.ret()).as_ref())?
            && let Some(m) = m
        {
            self.restless += 1;
            let s = &mut self.sides[side];
            s.crs.retain(|m| m.cr != cr);
            s.dead.cr.push(cr);
            self.links[m.link].rejected = true;
            if let Some(ep) = m.local_ep {
                self.gone(side, ep);
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
            + s.psps.len()
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

    /// The end of a run: everything freed by hand and a graceful close, or an abrupt one of all that is left.
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
            let lost = self
                .links
                .iter()
                .any(|link| link.lost && link.target == Some(side));
            let flag = if by_hand && !lost {
                CloseFlag::Graceful
            } else {
                CloseFlag::Abrupt
            };
            if flag == CloseFlag::Graceful {
                let alive = self.fabric.alive(side);
                if alive != (0, 0, 0, 0) {
                    return Err(format!(
                        "everything is freed, and the device still has {alive:?}"
                    ));
                }
            }
            self.sides[side]
                .ia
                .close(self.now, flag)
                .map_err(|e| format!("{flag:?} close: {e}"))?;
            let (left, alive) = (self.fabric.left_at_close(side), self.fabric.alive(side));
            if left != (0, 0, 0, 0) || alive != (0, 0, 0, 0) {
                return Err(format!(
                    "{flag:?} close left {left:?} to the device, {alive:?} after"
                ));
            }
            self.seen.closes += 1;
        }
        Ok(())
    }

    fn free_all(&mut self, side: usize) -> Done {
        let s = &self.sides[side];
        let psps: Vec<Psp> = s.psps.iter().map(|m| m.psp).collect();
        for psp in psps {
            self.psp_free(side, psp)?;
        }
        self.drain()?;
        while let Some(cr) = self.sides[side].crs.first().map(|m| m.cr) {
            self.cr_reject(side, cr)?;
        }
        while let Some(ep) = self.sides[side]
            .eps
            .iter()
            .find(|m| !m.is_tentative())
            .map(|m| m.ep)
        {
            self.ep_free(side, ep)?;
        }
        while let Some(rmr) = self.sides[side].rmrs.first().map(|m| m.rmr) {
            self.rmr_free(side, rmr)?;
        }
        self.drain()?;
        while let Some(lmr) = self.sides[side].lmrs.first().map(|m| m.lmr) {
            self.lmr_free(side, lmr)?;
        }
        while let Some(pz) = self.sides[side].pzs.first().copied() {
            self.pz_free(side, pz)?;
        }
        while let Some(evd) = self.sides[side].evds.get(1).map(|m| m.evd) {
            self.evd_free(side, evd)?;
        }
        let async_evd = self.sides[side].ia.async_evd();
        self.sides[side]
            .ia
            .evd_modify_cno(async_evd, None)
            .map_err(|e| e.to_string())?;
        self.sides[side].evds[0].cno = None;
        while let Some(cno) = self.sides[side].cnos.first().copied() {
            self.cno_free(side, cno)?;
        }
        Ok(())
    }
}
