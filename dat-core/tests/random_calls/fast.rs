//! Memory of kDAPL: pages, registrations as queued requests, all memory of a zone; and their
//! visibility to each side.

use dat_core::provider::Region;
use dat_core::*;

use crate::data::holds;
use crate::model::*;
use crate::verdict::Verdict;
use crate::world::{Done, World};

const PAGE: u64 = 4096;

/// Pages as they are given.
struct List {
    pages: Vec<u64>,
    log_page: u8,
    len: u64,
}

impl List {
    fn memory(&self) -> PhysicalPages<'_> {
        PhysicalPages { pages: &self.pages, log_page: self.log_page, len: self.len }
    }

    /// From the first on, as if all followed it.
    fn region(&self) -> Region {
        Region { addr: self.pages.first().copied().unwrap_or(0), len: self.len }
    }

    /// They are whole, and as many as the bytes need.
    fn is_whole(&self) -> bool {
        let size = 1 << self.log_page;
        let count = self.pages.len() as u64;
        self.log_page >= 12
            && self.len.div_ceil(size) == count
            && self.pages.iter().all(|page| page % size == 0)
    }
}

impl SideM {
    /// Requests about the key of an LMR that have not come back; those of one Endpoint may be left
    /// out.
    pub(crate) fn edits(&self, lmr: Lmr, but: Option<Ep>) -> usize {
        let edits = [Op::Register(lmr), Op::Invalidate(lmr)];
        let eps = self.eps.iter().filter(|m| Some(m.ep) != but);
        let requests = eps.flat_map(|m| &m.queue[REQUEST]);
        requests.filter(|dto| edits.contains(&dto.op)).count()
    }

    /// Some of the memory may not be open to the device when it gets there.
    pub(crate) fn is_shaky(&self, segments: &[LmrTriplet], own: Region) -> bool {
        segments.iter().filter(|s| s.len != 0).any(|s| {
            self.lmr_of(s.context).is_some_and(|m| match m.kind {
                LmrKind::Host | LmrKind::Pages => false,
                LmrKind::All => {
                    let offset = s.addr.wrapping_sub(own.addr);
                    offset > own.len || offset + u64::from(s.len) > own.len
                }
                LmrKind::Fast(..) => !m.applied,
            })
        })
    }

    /// The request of that kind on an LMR has come back, with any status.
    pub(crate) fn edited(&mut self, op: Op, late: bool, success: bool) {
        let (Op::Register(lmr) | Op::Invalidate(lmr)) = op else {
            return;
        };
        let Some(m) = self.lmrs.iter_mut().find(|m| m.lmr == lmr) else {
            return;
        };
        let LmrKind::Fast(_, gate) = &mut m.kind else {
            return;
        };
        match op {
            // Another Endpoint may have carried out a request to close it before.
            Op::Register(_) if success => m.applied = *gate == Gate::Open,
            Op::Register(_) if !late && *gate == Gate::Open => *gate = Gate::Shut,
            Op::Invalidate(_) if success => (*gate, m.applied) = (Gate::Closed, true),
            _ => {}
        }
    }
}

impl World {
    /// One of the calls of this module.
    pub(crate) fn fast(&mut self, side: usize) -> Done {
        match self.rng.below(20) {
            0 | 1 => self.lmr_kcreate(side),
            2..5 => self.lmr_allocate(side),
            5..12 => self.lmr_fmr(side),
            12..17 => self.lmr_invalidate(side),
            17 => self.ia_reserved_lmr(side),
            _ => self.lmr_sync(side),
        }
    }

    /// Pages of the own memory, mostly as they should be.
    fn pick_pages(&mut self, side: usize) -> List {
        let own = self.fabric.region(side);
        let count = self.rng.below(4) + 1;
        let mut pages: Vec<u64> =
            (0..count).map(|_| own.addr + PAGE * (self.rng.next() % (own.len / PAGE))).collect();
        let mut len = PAGE * count as u64 - self.rng.next() % PAGE;
        let mut log_page = 12;
        match self.rng.below(40) {
            0 => len = 0,
            1 => len += PAGE,
            2 => pages[0] += 8,
            3 => log_page = 11,
            4 => pages.clear(),
            5 => pages[0] = self.fabric.region(1 - side).addr,
            _ => {}
        }
        List { pages, log_page, len }
    }

    fn pick_rights(&mut self) -> MemPriv {
        match self.rng.below(16) {
            0 => MemPriv::empty(),
            1 => MemPriv::REMOTE_WRITE,
            2 => MemPriv::LOCAL_READ,
            3 => MemPriv::from_bits_retain(self.rng.next() as u32),
            4..8 => MemPriv::ALL | MemPriv::REMOTE_ATOMIC,
            _ => MemPriv::ALL,
        }
    }

    /// Adds the refusals of pages and rights to a verdict.
    fn registered(&self, verdict: Verdict, side: usize, list: &List, rights: MemPriv) -> Verdict {
        let own = self.fabric.region(side);
        let foreign = |page: &u64| *page < own.addr || *page >= own.addr + own.len;
        let changed = MemPriv::REMOTE_WRITE | MemPriv::REMOTE_ATOMIC;
        let one_way = rights.intersects(changed) && !rights.contains(MemPriv::LOCAL_WRITE);
        verdict
            .no(list.len == 0, DatType::LengthError)
            .no(!list.is_whole(), DatType::InvalidParameter)
            .no(list.pages.iter().any(foreign), DatType::InvalidParameter)
            .no(!MemPriv::all().contains(rights), DatType::InvalidParameter)
            .no(one_way, DatType::PrivilegesViolation)
    }

    fn pick_va(&mut self) -> VaType {
        if self.rng.percent(30) { VaType::Zb } else { VaType::Va }
    }

    fn zone_verdict(&self, side: usize, pz: Pz) -> Verdict {
        let s = &self.sides[side];
        Verdict::new()
            .no_as(!s.pzs.contains(&pz), DatType::InvalidHandle, DatSubtype::InvalidHandlePz)
            .no(s.lmrs.len() >= LMRS, DatType::InsufficientResources)
    }

    fn lmr_kcreate(&mut self, side: usize) -> Done {
        let pz = self.pick_pz(side);
        let (list, rights, va) = (self.pick_pages(side), self.pick_rights(), self.pick_va());
        let verdict = self.zone_verdict(side, pz);
        let verdict = self.registered(verdict, side, &list, rights);
        let s = &mut self.sides[side];
        let answer = s.ia.lmr_kcreate(pz, list.memory(), rights, va);
        self.note(|| {
            format!("{side}: lmr_kcreate {pz:?} {:x?} {rights:?} {va:?} -> {answer:x?}", list.pages)
        });
        if self.judge(&verdict, answer.as_ref().err().map(|e| e.ret()).as_ref())? {
            if let Ok(p) = answer {
                let m = LmrM::new(&p, LmrKind::Pages);
                if (p.region, p.privileges, p.va_type) != (list.region(), rights, va) {
                    return Err(format!("another LMR: {p:x?}"));
                }
                self.sides[side].lmrs.push(m);
            }
        }
        Ok(())
    }

    fn lmr_allocate(&mut self, side: usize) -> Done {
        let pz = self.pick_pz(side);
        let pages = if self.rng.percent(10) { 0 } else { self.rng.below(4) as u32 + 1 };
        let verdict = self.zone_verdict(side, pz).no(pages == 0, DatType::InvalidParameter);
        let s = &mut self.sides[side];
        let answer = s.ia.lmr_allocate(pz, pages);
        self.note(|| format!("{side}: lmr_allocate {pz:?} {pages} -> {answer:?}"));
        if self.judge(&verdict, answer.as_ref().err().map(|e| e.ret()).as_ref())? {
            if let Ok(lmr) = answer {
                let s = &mut self.sides[side];
                let p = s.ia.lmr_query(lmr).map_err(|e| e.to_string())?;
                s.lmrs.push(LmrM::new(&p, LmrKind::Fast(pages, Gate::Closed)));
            }
        }
        Ok(())
    }

    /// An LMR for registrations in one of those states, mostly.
    fn pick_fast(&mut self, side: usize, gates: &[Gate]) -> Lmr {
        let fit = |m: &&LmrM| matches!(m.kind, LmrKind::Fast(_, gate) if gates.contains(&gate));
        let fit: Vec<Lmr> = self.sides[side].lmrs.iter().filter(fit).map(|m| m.lmr).collect();
        let wanted = self.rng.of(&fit).filter(|_| self.rng.percent(85));
        wanted.unwrap_or_else(|| self.pick_lmr(side))
    }

    /// An Endpoint for a request on an LMR: one of its zone, mostly.
    fn pick_editor(&mut self, side: usize, lmr: Lmr) -> Ep {
        let s = &self.sides[side];
        let pz = s.lmrs.iter().find(|m| m.lmr == lmr).map(|m| m.pz);
        let fit: Vec<Ep> = s
            .eps
            .iter()
            .filter(|m| m.state == EpState::Connected && m.pz == pz && m.poster.is_none())
            .map(|m| m.ep)
            .collect();
        let wanted = self.rng.of(&fit).filter(|_| self.rng.percent(85));
        wanted.unwrap_or_else(|| self.pick_ep_in(side, &[EpState::Disconnected]))
    }

    /// Flags of a request whose success is reported: without a completion the model cannot know the
    /// state of the LMR.
    fn pick_signalled_flags(&mut self) -> CompletionFlags {
        self.pick_flags() & !CompletionFlags::SUPPRESS
    }

    fn lmr_fmr(&mut self, side: usize) -> Done {
        let lmr = self.pick_fast(side, &[Gate::Closed]);
        let ep = self.pick_editor(side, lmr);
        if !self.has_completion_room(side, ep, REQUEST)? {
            return Ok(());
        }
        let (list, rights, va) = (self.pick_pages(side), self.pick_rights(), self.pick_va());
        let flags = self.pick_signalled_flags();
        let s = &self.sides[side];
        let m = s.lmrs.iter().find(|m| m.lmr == lmr).copied();
        let mut verdict = s.post_verdict(ep, Op::Register(lmr), flags, false);
        let most = match m.map(|m| m.kind) {
            Some(LmrKind::Fast(most, gate)) => {
                let busy = gate != Gate::Closed || s.edits(lmr, None) != 0;
                verdict = verdict.no(busy, DatType::InvalidState);
                most
            }
            Some(_) => {
                verdict = verdict.no(true, DatType::InvalidParameter);
                0
            }
            None => {
                let subtype = DatSubtype::InvalidHandleLmr;
                verdict = verdict.no_as(true, DatType::InvalidHandle, subtype);
                0
            }
        };
        let zone = s.ep(ep).and_then(|m| m.pz);
        verdict = verdict
            .no(list.pages.len() > most as usize, DatType::InvalidParameter)
            .no(m.map(|m| m.pz) != zone, DatType::ProtectionViolation);
        verdict = self.registered(verdict, side, &list, rights);
        self.cookie += 1;
        let cookie = self.cookie;
        let s = &mut self.sides[side];
        let answer = s.ia.lmr_fmr(lmr, list.memory(), rights, va, ep, cookie, flags);
        self.note(|| {
            format!(
                "{side}: lmr_fmr #{cookie} {lmr:?} {:x?} {rights:?} {va:?} {ep:?} {flags:?} -> {answer:x?}",
                list.pages
            )
        });
        if !self.judge(&verdict, answer.as_ref().err().map(|e| e.ret()).as_ref())? {
            return Ok(());
        }
        let late = self.is_late(side, ep);
        let s = &mut self.sides[side];
        if let (Ok(made), Some(m)) = (answer, s.lmrs.iter_mut().find(|m| m.lmr == lmr)) {
            if !late {
                let remote = rights.intersects(MemPriv::REMOTE | MemPriv::REMOTE_ATOMIC);
                let fresh = made.lmr_context != m.lmr_context;
                if !fresh || (made.rmr_context != 0) != remote {
                    return Err(format!("the contexts {made:x?} after {m:x?}"));
                }
                let query = s.ia.lmr_query(lmr).map_err(|e| e.to_string())?;
                *m = LmrM::new(&query, LmrKind::Fast(most, Gate::Open));
                m.applied = false;
                let found = (query.lmr_context, query.rmr_context, query.region, query.va_type);
                if found != (made.lmr_context, made.rmr_context, list.region(), va) {
                    return Err(format!("another registration: {query:x?}"));
                }
            }
        }
        self.seen.registered += 1;
        self.edit_posted(side, ep, Op::Register(lmr), flags, cookie);
        Ok(())
    }

    fn lmr_invalidate(&mut self, side: usize) -> Done {
        let lmr = self.pick_fast(side, &[Gate::Open, Gate::Shut]);
        let ep = self.pick_editor(side, lmr);
        if !self.has_completion_room(side, ep, REQUEST)? {
            return Ok(());
        }
        let flags = self.pick_signalled_flags();
        let s = &self.sides[side];
        let m = s.lmrs.iter().find(|m| m.lmr == lmr).copied();
        let mut verdict = s.post_verdict(ep, Op::Register(lmr), flags, false);
        match m.map(|m| (m.kind, m.lmr_context)) {
            Some((LmrKind::Fast(_, gate), context)) => {
                let (bound, perhaps) = s.is_bound(context);
                verdict = verdict
                    .no_as(
                        gate == Gate::Closed,
                        DatType::InvalidState,
                        DatSubtype::InvalidStateLmrFree,
                    )
                    .no(bound, DatType::InvalidState)
                    .no(s.edits(lmr, Some(ep)) != 0, DatType::InvalidState)
                    .may(perhaps, DatType::InvalidState);
            }
            Some(_) => verdict = verdict.no(true, DatType::InvalidParameter),
            None => {
                let subtype = DatSubtype::InvalidHandleLmr;
                verdict = verdict.no_as(true, DatType::InvalidHandle, subtype);
            }
        }
        let zone = s.ep(ep).and_then(|m| m.pz);
        verdict = verdict.no(m.map(|m| m.pz) != zone, DatType::ProtectionViolation);
        self.cookie += 1;
        let cookie = self.cookie;
        let s = &mut self.sides[side];
        let answer = s.ia.lmr_invalidate(lmr, ep, cookie, flags);
        self.note(|| {
            format!("{side}: lmr_invalidate #{cookie} {lmr:?} {ep:?} {flags:?} -> {answer:?}")
        });
        if !self.judge(&verdict, answer.as_ref().err().map(|e| e.ret()).as_ref())? {
            return Ok(());
        }
        if !self.is_late(side, ep) {
            let s = &mut self.sides[side];
            if let Some(m) = s.lmrs.iter_mut().find(|m| m.lmr == lmr) {
                if let LmrKind::Fast(_, gate) = &mut m.kind {
                    *gate = Gate::Shut;
                    m.applied = false;
                }
            }
            // Requests that named it may find it closed.
            self.taint();
        }
        self.edit_posted(side, ep, Op::Invalidate(lmr), flags, cookie);
        Ok(())
    }

    fn is_late(&self, side: usize, ep: Ep) -> bool {
        let m = self.sides[side].ep(ep);
        m.is_some_and(|m| m.state == EpState::Disconnected)
    }

    fn edit_posted(&mut self, side: usize, ep: Ep, op: Op, flags: CompletionFlags, cookie: u64) {
        let nowhere = RmrTriplet::default();
        self.posted(side, ep, (op, How::Message), 0, flags, cookie, &nowhere);
    }

    fn ia_reserved_lmr(&mut self, side: usize) -> Done {
        let pz = self.pick_pz(side);
        let s = &mut self.sides[side];
        let there = |m: &&LmrM| m.kind == LmrKind::All && m.pz == pz;
        let there = s.lmrs.iter().find(there).map(|m| m.lmr);
        let verdict = Verdict::new()
            .no_as(!s.pzs.contains(&pz), DatType::InvalidHandle, DatSubtype::InvalidHandlePz)
            .no(there.is_none() && s.lmrs.len() >= LMRS, DatType::InsufficientResources);
        let answer = s.ia.ia_reserved_lmr(pz);
        self.note(|| format!("{side}: ia_reserved_lmr {pz:?} -> {answer:x?}"));
        if self.judge(&verdict, answer.as_ref().err().map(|e| e.ret()).as_ref())? {
            if let Ok(p) = answer {
                let local = MemPriv::LOCAL_READ | MemPriv::LOCAL_WRITE;
                let right = (p.pz, p.privileges, p.rmr_context, p.mem_type);
                if right != (pz, local, 0, MemType::Ia) || there.is_some_and(|lmr| lmr != p.lmr) {
                    return Err(format!("not the reserved LMR: {p:x?}"));
                }
                if there.is_none() {
                    self.sides[side].lmrs.push(LmrM::new(&p, LmrKind::All));
                }
            }
        }
        Ok(())
    }

    fn lmr_sync(&mut self, side: usize) -> Done {
        let ep = self.pick_ep(side);
        let segments = self.pick_segments(side, ep, false);
        let read = self.rng.percent(50);
        let s = &self.sides[side];
        let known = |segment: &LmrTriplet| {
            let m = s.lmr_of(segment.context);
            segment.len == 0 || m.is_some_and(|m| holds(m, segment.addr, segment.len))
        };
        let verdict = Verdict::new().no(!segments.iter().all(known), DatType::InvalidParameter);
        let answer = if read {
            s.ia.lmr_sync_rdma_read(&segments)
        } else {
            s.ia.lmr_sync_rdma_write(&segments)
        };
        self.note(|| format!("{side}: lmr_sync {read} {segments:x?} -> {answer:?}"));
        self.judge(&verdict, answer.as_ref().err())?;
        Ok(())
    }
}
