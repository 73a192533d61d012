//! Zones, memory and Event Dispatchers: create, query, free, and reapers.

use dat_core::provider::Region;
use dat_core::*;

use crate::model::*;
use crate::verdict::Verdict;
use crate::world::{Done, World};

fn stale(alive: bool, subtype: DatSubtype) -> Verdict {
    Verdict::new().no_as(!alive, DatType::InvalidHandle, subtype)
}

impl World {
    pub(crate) fn pz_create(&mut self, side: usize) -> Done {
        let verdict =
            Verdict::new().no(self.sides[side].pzs.len() >= EPS, DatType::InsufficientResources);
        let answer = self.sides[side].ia.pz_create();
        self.note(|| format!("{side}: pz_create -> {answer:?}"));
        if self.judge(&verdict, answer.as_ref().err().map(|e| e.ret()).as_ref())? {
            self.sides[side].pzs.extend(answer);
        }
        Ok(())
    }

    pub(crate) fn pz_free(&mut self, side: usize, pz: Pz) -> Done {
        let s = &mut self.sides[side];
        let alive = s.pzs.contains(&pz);
        let verdict = stale(alive, DatSubtype::InvalidHandlePz).no_as(
            alive && s.pz_in_use(pz),
            DatType::InvalidState,
            DatSubtype::InvalidStatePzInUse,
        );
        let answer = s.ia.pz_free(pz);
        self.note(|| format!("{side}: pz_free {pz:?} -> {answer:?}"));
        if self.judge(&verdict, answer.as_ref().err().map(|e| e.ret()).as_ref())? {
            let s = &mut self.sides[side];
            let goes = |m: &LmrM| m.pz == pz && m.kind == LmrKind::All;
            let gone = s.lmrs.iter().filter(|m| goes(m)).map(|m| m.lmr);
            s.dead.lmr.extend(gone);
            s.lmrs.retain(|m| !goes(m));
            s.pzs.retain(|&m| m != pz);
            s.dead.pz.push(pz);
        }
        Ok(())
    }

    pub(crate) fn lmr_create(&mut self, side: usize) -> Done {
        let pz = self.pick_pz(side);
        let own = self.fabric.region(side);
        let region = match self.rng.below(16) {
            0 => Region { addr: own.addr, len: 0 },
            1 => Region { addr: u64::MAX - 7, len: 16 },
            2 => Region { addr: own.addr, len: u64::MAX },
            3 => Region { addr: own.addr, len: own.len + 1 },
            4 => self.fabric.region(1 - side),
            5 => Region { addr: self.rng.next(), len: self.rng.next() },
            6 => Region { addr: own.addr + own.len - 1, len: 1 },
            7..10 => own,
            _ => {
                let len = self.rng.next() % 4096 + 1;
                Region { addr: own.addr + self.rng.next() % (own.len - len + 1), len }
            }
        };
        // Another registration of the memory of one that there is.
        let below = self.rng.percent(20).then(|| self.pick_lmr(side));
        let under = below.and_then(|lmr| {
            let m = self.sides[side].lmrs.iter().find(|m| m.lmr == lmr);
            m.map(|m| (m.mapped, m.kind))
        });
        let of_host = under.is_none_or(|(_, kind)| kind == LmrKind::Host);
        let region = under.map_or(region, |(region, _)| region);
        let va = if self.rng.percent(10) { VaType::Zb } else { VaType::Va };
        let privileges = match self.rng.below(30) {
            0 => MemPriv::empty(),
            1 => MemPriv::from_bits_retain(1 << self.rng.below(32)),
            2 => MemPriv::LOCAL_READ,
            3 => MemPriv::REMOTE_WRITE,
            4 => MemPriv::LOCAL_READ | MemPriv::LOCAL_WRITE,
            5 => MemPriv::from_bits_retain(self.rng.next() as u32),
            6..12 => MemPriv::ALL,
            _ => MemPriv::ALL | MemPriv::REMOTE_ATOMIC,
        };
        let s = &mut self.sides[side];
        let end = region.addr.checked_add(region.len);
        let foreign = region.addr < own.addr || end.is_none_or(|end| end > own.addr + own.len);
        let changed = MemPriv::REMOTE_WRITE | MemPriv::REMOTE_ATOMIC;
        let one_way = privileges.intersects(changed) && !privileges.contains(MemPriv::LOCAL_WRITE);
        let over = below.is_some();
        let verdict = stale(s.pzs.contains(&pz), DatSubtype::InvalidHandlePz)
            .no_as(over && under.is_none(), DatType::InvalidHandle, DatSubtype::InvalidHandleLmr)
            .no(!of_host, DatType::ModelNotSupported)
            .no(!over && region.len == 0, DatType::LengthError)
            .no(!over && foreign, DatType::InvalidParameter)
            .no(!MemPriv::all().contains(privileges), DatType::InvalidParameter)
            .no(one_way, DatType::PrivilegesViolation)
            .no(s.lmrs.len() >= LMRS, DatType::InsufficientResources);
        let answer = match below {
            Some(lmr) => s.ia.lmr_create_from(pz, Memory::Lmr(lmr), privileges, va),
            None if va == VaType::Zb => {
                s.ia.lmr_create_from(pz, Memory::Virtual(region), privileges, va)
            }
            None => s.ia.lmr_create(pz, region, privileges),
        };
        self.note(|| {
            format!("{side}: lmr_create {below:?} {pz:?} {region:x?} {privileges:?} -> {answer:x?}")
        });
        if !self.judge(&verdict, answer.as_ref().err().map(|e| e.ret()).as_ref())? {
            return Ok(());
        }
        let Ok(p) = answer else { return Ok(()) };
        let remote = privileges.intersects(MemPriv::REMOTE | MemPriv::REMOTE_ATOMIC);
        if (p.pz, p.region, p.privileges, p.rmr_context != 0) != (pz, region, privileges, remote) {
            return Err(format!("another LMR: {p:x?}"));
        }
        self.sides[side].lmrs.push(LmrM::new(&p, LmrKind::Host));
        Ok(())
    }

    pub(crate) fn lmr_free(&mut self, side: usize, lmr: Lmr) -> Done {
        let s = &mut self.sides[side];
        let m = s.lmrs.iter().find(|m| m.lmr == lmr).copied();
        let (bound, perhaps) = m.map_or((false, false), |m| s.is_bound(m.lmr_context));
        let verdict = stale(m.is_some(), DatSubtype::InvalidHandleLmr)
            .no(m.is_some_and(|m| m.kind == LmrKind::All), DatType::ReservedLmr)
            .no(s.edits(lmr, None) != 0, DatType::InvalidState)
            .no_as(bound, DatType::InvalidState, DatSubtype::InvalidStateLmrInUse)
            .may(perhaps, DatType::InvalidState);
        let answer = s.ia.lmr_free(lmr);
        self.note(|| format!("{side}: lmr_free {lmr:?} -> {answer:?}"));
        if self.judge(&verdict, answer.as_ref().err().map(|e| e.ret()).as_ref())? {
            let s = &mut self.sides[side];
            s.lmrs.retain(|m| m.lmr != lmr);
            s.dead.lmr.push(lmr);
            self.taint();
        }
        Ok(())
    }

    pub(crate) fn rmr_create(&mut self, side: usize) -> Done {
        let pz = self.pick_pz(side);
        let own = self.rng.percent(40);
        let s = &mut self.sides[side];
        let verdict = stale(s.pzs.contains(&pz), DatSubtype::InvalidHandlePz)
            .no(s.rmrs.len() >= LMRS, DatType::InsufficientResources)
            .may(s.rmrs.len() + s.retiring.len() >= LMRS, DatType::InsufficientResources);
        let answer = if own { s.ia.rmr_create_for_ep(pz) } else { s.ia.rmr_create(pz) };
        self.note(|| format!("{side}: rmr_create {pz:?} own {own} -> {answer:?}"));
        if !self.judge(&verdict, answer.as_ref().err().map(|e| e.ret()).as_ref())? {
            return Ok(());
        }
        let Ok(rmr) = answer else { return Ok(()) };
        let s = &mut self.sides[side];
        let key = s.ia.rmr_query(rmr).map_err(|e| e.to_string())?;
        if key.bound.is_some() {
            return Err(format!("a new RMR is bound: {key:?}"));
        }
        let keys = vec![key.rmr_context];
        s.rmrs.push(RmrM {
            rmr,
            pz,
            keys,
            bound: None,
            maybe: vec![0],
            own,
            holder: None,
            opens: (LmrTriplet::default(), MemPriv::empty()),
        });
        Ok(())
    }

    pub(crate) fn rmr_free(&mut self, side: usize, rmr: Rmr) -> Done {
        let s = &mut self.sides[side];
        let at = s.rmrs.iter().position(|m| m.rmr == rmr);
        let verdict = stale(at.is_some(), DatSubtype::InvalidHandleRmr);
        let answer = s.ia.rmr_free(rmr);
        self.note(|| format!("{side}: rmr_free {rmr:?} -> {answer:?}"));
        if self.judge(&verdict, answer.as_ref().err().map(|e| e.ret()).as_ref())? {
            if let Some(at) = at {
                let s = &mut self.sides[side];
                let m = s.rmrs.remove(at);
                s.dead.rmr.push(rmr);
                // A bind that cannot be carried out takes its connection with it.
                let binds = |m: &&EpM| m.queue[REQUEST].iter().any(|dto| dto.op == Op::Bind(rmr));
                let links: Vec<_> = s.eps.iter().filter(binds).map(|m| m.link).collect();
                if !links.is_empty() {
                    s.retiring.push(m);
                }
                for (link, _) in links.into_iter().flatten() {
                    self.links[link].broke = true;
                }
                self.apply_state_changes(side, None)?;
            }
        }
        Ok(())
    }

    pub(crate) fn evd_create(&mut self, side: usize) -> Done {
        let flags = match self.rng.below(14) {
            0 => EvdFlags::empty(),
            1 => EvdFlags::from_bits_retain(1 << self.rng.below(32)),
            2 => EvdFlags::SOFTWARE,
            3 => EvdFlags::CR,
            4 if self.rng.percent(50) => EvdFlags::ASYNC,
            4 => EvdFlags::CONNECTION,
            5 => EvdFlags::CR | EvdFlags::CONNECTION | EvdFlags::SOFTWARE,
            6 | 7 => EvdFlags::DTO | EvdFlags::RMR_BIND,
            8 => EvdFlags::from_bits_retain(self.rng.next() as u32),
            _ => EvdFlags::DEFAULT & !EvdFlags::ASYNC | EvdFlags::SOFTWARE,
        };
        let qlen = match self.rng.below(12) {
            0 => 0,
            1 => 129,
            2 => u32::MAX,
            3 => 1,
            4 => 2,
            5 => 32,
            6 => 64,
            _ => 128,
        };
        let s = &mut self.sides[side];
        let known = EvdFlags::DEFAULT | EvdFlags::SOFTWARE;
        let verdict = Verdict::new()
            .no(qlen == 0, DatType::InvalidParameter)
            .no(flags.is_empty() || !known.contains(flags), DatType::InvalidParameter)
            .no(qlen > 128, DatType::InsufficientResources)
            .no(s.evds.len() >= EVDS, DatType::InsufficientResources);
        let answer = s.ia.evd_create(qlen, flags);
        self.note(|| format!("{side}: evd_create {qlen} {flags:?} -> {answer:?}"));
        if self.judge(&verdict, answer.as_ref().err().map(|e| e.ret()).as_ref())? {
            if let Ok(evd) = answer {
                self.sides[side].evds.push(EvdM::new(evd, qlen, flags));
            }
        }
        Ok(())
    }

    pub(crate) fn evd_free(&mut self, side: usize, evd: Evd) -> Done {
        // Requests that wait in it have nobody to answer them: mostly look first.
        if self.rng.percent(90)
            && self.sides[side].evd(evd).is_some()
            && !self.is_attached(side, evd)
        {
            while self.dequeue(side, evd)? {}
        }
        let s = &mut self.sides[side];
        let m = s.evd(evd);
        let alive = m.is_some();
        let used = alive && (s.evd_in_use(evd) || evd == s.ia.async_evd());
        let verdict = stale(alive, DatSubtype::InvalidHandle1)
            .no_as(used, DatType::InvalidState, DatSubtype::InvalidStateEvdInUse)
            .no(m.is_some_and(|m| m.reaper.is_some()), DatType::InvalidState);
        let answer = s.ia.evd_free(evd);
        self.note(|| format!("{side}: evd_free {evd:?} -> {answer:?}"));
        if self.judge(&verdict, answer.as_ref().err().map(|e| e.ret()).as_ref())? {
            let s = &mut self.sides[side];
            s.evds.retain(|m| m.evd != evd);
            s.dead.evd.push(evd);
            for m in &mut s.eps {
                m.expected.retain(|e| e.evd != evd);
            }
            for (_, list) in &mut s.ghosts {
                list.retain(|e| e.evd != evd);
            }
            let ports: Vec<u16> =
                s.old_points.iter().filter(|m| m.evd == evd).map(|m| m.port).collect();
            for link in &mut self.links {
                if link.may_be_unseen(side) && ports.contains(&link.port) {
                    link.lost = true;
                }
            }
            for port in ports {
                self.lost_point(side, port, true);
            }
        }
        Ok(())
    }

    /// Sends asynchronous errors elsewhere. The one that was made with the adapter goes then.
    pub(crate) fn set_async_evd(&mut self, side: usize) -> Done {
        let evd = self.pick_evd_for(side, EvdFlags::ASYNC);
        let s = &mut self.sides[side];
        // In a short one an overflow finds no room, which is the end of it.
        let short = s.takes(evd, EvdFlags::ASYNC) && s.evd(evd).is_some_and(|m| m.qlen < 16);
        if short {
            return Ok(());
        }
        let old = s.ia.async_evd();
        let out = old != evd && s.own_async && s.evd(old).is_some_and(|m| m.reaper.is_some());
        let verdict = stale(s.takes(evd, EvdFlags::ASYNC), DatSubtype::InvalidHandleEvdAsync)
            .no(out, DatType::InvalidState);
        let answer = s.ia.set_async_evd(evd);
        self.note(|| format!("{side}: set_async_evd {evd:?} -> {answer:?}"));
        if self.judge(&verdict, answer.as_ref().err().map(|e| e.ret()).as_ref())? && evd != old {
            let s = &mut self.sides[side];
            if std::mem::take(&mut s.own_async) {
                s.evds.retain(|m| m.evd != old);
                s.dead.evd.push(old);
            }
        }
        Ok(())
    }

    fn is_attached(&self, side: usize, evd: Evd) -> bool {
        self.sides[side].evd_in_use(evd)
    }

    pub(crate) fn post_se(&mut self, side: usize) -> Done {
        let evd = self.pick_evd_for(side, EvdFlags::SOFTWARE);
        self.cookie += 1;
        let pointer = self.cookie;
        let full = self.backlog(side, evd);
        let s = &mut self.sides[side];
        let m = s.evd(evd);
        let taken = m.is_some_and(|m| m.flags.contains(EvdFlags::SOFTWARE));
        let verdict = stale(m.is_some(), DatSubtype::InvalidHandle1)
            .no(m.is_some() && !taken, DatType::InvalidParameter)
            .no(m.is_some_and(|m| m.software.len() >= EVENTS), DatType::QueueFull)
            .may(m.is_some_and(|m| full >= m.qlen as usize), DatType::QueueFull);
        let answer = s.ia.evd_post_se(evd, pointer);
        self.note(|| format!("{side}: post_se {evd:?} {pointer} -> {answer:?}"));
        if self.judge(&verdict, answer.as_ref().err().map(|e| e.ret()).as_ref())? {
            if let Some(m) = self.sides[side].evd_mut(evd) {
                m.software.push_back(pointer);
            }
        }
        Ok(())
    }

    /// Dequeues some, arms, or looks; also by the wrong handle.
    pub(crate) fn reap(&mut self, side: usize) -> Done {
        let evd = self.pick_evd(side);
        let Some(m) = self.sides[side].evd(evd) else {
            let verdict = stale(false, DatSubtype::InvalidHandle1);
            let ia = &mut self.sides[side].ia;
            let answers = [
                ia.evd_dequeue(evd).err(),
                ia.evd_arm(evd, false).err(),
                ia.evd_dropped(evd).err(),
            ];
            if ia.evd_take_notice(evd) || ia.evd_query(evd).is_ok() {
                return Err("a stale EVD".into());
            }
            for answer in answers {
                self.judge(&verdict, answer.as_ref())?;
            }
            return Ok(());
        };
        if m.reaper.is_some() {
            let verdict = Verdict::new().no(true, DatType::InvalidState);
            let answer = self.sides[side].ia.evd_dequeue(evd);
            self.judge(&verdict, answer.as_ref().err())?;
        } else if self.rng.percent(10) {
            let solicited = self.rng.percent(50);
            let ia = &mut self.sides[side].ia;
            ia.evd_arm(evd, solicited).map_err(|e| format!("arm: {e}"))?;
            let (_, nonsense) = ia.evd_dropped(evd).map_err(|e| format!("dropped: {e}"))?;
            if nonsense != 0 {
                return Err(format!("{nonsense} completions made no sense"));
            }
        }
        let most = self.rng.below(24) + 1;
        for _ in 0..most {
            if !self.dequeue(side, evd)? {
                break;
            }
        }
        Ok(())
    }

    /// Takes a reaper out, or puts one back, perhaps to the wrong adapter.
    pub(crate) fn move_reaper(&mut self, side: usize) -> Done {
        let out = self.sides[side].evds.iter_mut().find_map(|m| m.reaper.take());
        if let Some(reaper) = out {
            let evd = reaper.evd();
            let to = if self.rng.percent(20) { 1 - side } else { side };
            let answer = self.sides[to].ia.evd_return_reaper(reaper);
            self.note(|| format!("{side}: return_reaper {evd:?} to {to}: {}", answer.is_ok()));
            match answer {
                Ok(()) if to == side => {}
                Ok(()) => return Err("an adapter took a foreign reaper".into()),
                Err(_) if to == side => return Err("an adapter did not take its own reaper".into()),
                Err(reaper) => {
                    if let Some(m) = self.sides[side].evd_mut(evd) {
                        m.reaper = Some(reaper);
                    }
                }
            }
            return Ok(());
        }
        let evd = self.pick_evd(side);
        let s = &mut self.sides[side];
        let verdict = stale(s.evd(evd).is_some(), DatSubtype::InvalidHandle1);
        let answer = s.ia.evd_take_reaper(evd);
        self.note(|| format!("{side}: take_reaper {evd:?}: {}", answer.is_ok()));
        let refusal = answer.as_ref().err().map(|e| e.ret());
        if self.judge(&verdict, refusal.as_ref())? {
            if let Some(m) = self.sides[side].evd_mut(evd) {
                m.reaper = answer.ok();
            }
        }
        Ok(())
    }
}
