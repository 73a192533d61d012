//! Receives that Endpoints hold, watermarks of Endpoints and Shared Receive Queues, and counters.

use dat_core::*;

use crate::model::*;
use crate::verdict::Verdict;
use crate::world::{Done, World};

impl SideM {
    /// Most receives that an Endpoint may hold, and whether it is just as many: not where some may
    /// have completed that have not been dequeued. Receives taken from a common queue cannot be
    /// distinguished from those still in it.
    fn held(&self, m: &EpM) -> (u32, bool) {
        match self.srq_of(m) {
            None if m.state == EpState::Disconnected => (0, true),
            None => {
                use EpState as E;
                // An attempt may end, and flush them, in the call that holds them against it.
                let attempts = [E::ActiveConnectionPending, E::PassiveConnectionPending];
                let receives = [E::CompletionPending, E::Connected, E::DisconnectPending];
                let here =
                    m.evd(RECV).and_then(|evd| self.evd(evd)).is_none_or(|m| m.reaper.is_none());
                let moves = receives.contains(&m.state) || attempts.contains(&m.state);
                (m.queue[RECV].len() as u32, here && !moves)
            }
            Some(srq) => (srq.outstanding as u32, false),
        }
    }

    /// It may hold more receives than its hard watermark, and whether it does.
    pub(crate) fn overrun(&self, m: &EpM) -> (bool, bool) {
        let (held, exact) = self.held(m);
        let over = m.hard.is_some_and(|most| held > most);
        (over, over && exact)
    }
}

impl World {
    /// One of the calls of this module.
    pub(crate) fn watch(&mut self, side: usize) -> Done {
        match self.rng.below(8) {
            0..3 => self.ep_set_watermark(side),
            3 | 4 => self.ep_recv_query(side),
            5 | 6 => self.ep_counters(side),
            _ if self.rng.percent(60) => self.evd_counters(side),
            _ => self.ia_counters(side),
        }
    }

    /// An asynchronous event is to come; or may come, on whichever dispatcher takes them then.
    pub(crate) fn warn(&mut self, side: usize, mark: AsyncEvent, certain: bool) {
        let evd = self.sides[side].ia.async_evd();
        let full = self.backlog(side, evd);
        let s = &mut self.sides[side];
        if let Some(m) = s.evd_mut(evd) {
            m.overflow |= full >= m.qlen as usize;
        }
        s.warned.push((mark, certain.then_some(evd)));
    }

    /// One came.
    pub(crate) fn warning(&mut self, side: usize, evd: Evd, mark: AsyncEvent) -> Done {
        let s = &mut self.sides[side];
        let find = |at: Option<Evd>| s.warned.iter().position(|&entry| entry == (mark, at));
        let vague = || find(None).filter(|_| s.takes(evd, EvdFlags::ASYNC));
        let at = find(Some(evd)).or_else(vague);
        s.warned.remove(at.ok_or("no watermark was passed")?);
        if let AsyncEvent::EpSoftHighWatermark(ep) = mark {
            if let Some(m) = s.ep_mut(ep) {
                m.soft = None;
            }
        }
        self.seen.warned += 1;
        Ok(())
    }

    /// The adapter has held receives against watermarks, of all Endpoints or of one.
    pub(crate) fn passed(&mut self, side: usize, only: Option<Ep>) {
        for at in 0..self.sides[side].eps.len() {
            let s = &mut self.sides[side];
            let m = &s.eps[at];
            let (ep, (held, exact)) = (m.ep, s.held(m));
            let passed = m.soft.is_some_and(|most| held > most);
            if only.is_none_or(|only| only == ep) && passed && exact {
                s.eps[at].soft = None;
                self.warn(side, AsyncEvent::EpSoftHighWatermark(ep), true);
            }
        }
    }

    fn ep_set_watermark(&mut self, side: usize) -> Done {
        let ep = self.pick_ep(side);
        let mut mark = |chance| {
            let given = self.rng.percent(chance);
            given.then(|| self.rng.below(DTOS + 2) as u32)
        };
        let (soft, hard) = (mark(70), mark(20));
        let now = self.now;
        let s = &mut self.sides[side];
        let verdict = s.known_ep(ep);
        let answer = s.ia.ep_set_watermark(now, ep, soft, hard);
        self.note(|| format!("{side}: ep_set_watermark {ep:?} {soft:?} {hard:?} -> {answer:?}"));
        if !self.judge(&verdict, answer.as_ref().err().map(|e| e.ret()).as_ref())? {
            return Ok(());
        }
        let Some(m) = self.sides[side].ep_mut(ep) else {
            return Ok(());
        };
        (m.soft, m.hard) = (soft, hard);
        // Receives may complete that nobody has dequeued: whether it is passed later is not always
        // known.
        if soft.is_some() {
            self.warn(side, AsyncEvent::EpSoftHighWatermark(ep), false);
        }
        self.passed(side, Some(ep));
        self.apply_state_changes(side, None)
    }

    fn ep_recv_query(&mut self, side: usize) -> Done {
        let ep = self.pick_ep(side);
        let s = &mut self.sides[side];
        let verdict = s.known_ep(ep);
        let answer = s.ia.ep_recv_query(ep);
        let outstanding = s.ia.ep_outstanding(ep);
        let is_listed = s.ia.eps().any(|listed| listed == ep);
        self.note(|| format!("{side}: ep_recv_query {ep:?} -> {answer:?}, {outstanding:?}"));
        let same = outstanding.as_ref().map(|outstanding| outstanding.receives)
            == answer.as_ref().map(|found| found.nbufs_allocated);
        if !same || is_listed != answer.is_ok() {
            return Err(format!("{answer:?} and {outstanding:?}, listed: {is_listed}"));
        }
        if !self.judge(&verdict, answer.as_ref().err().map(|e| e.ret()).as_ref())? {
            return Ok(());
        }
        let s = &self.sides[side];
        let (Ok(found), Some(m)) = (answer, s.ep(ep)) else {
            return Ok(());
        };
        let (most, exact) = s.held(m);
        let right = match found.nbufs_allocated {
            Some(held) if exact => held == most,
            Some(held) => held <= most,
            // The reaper is out.
            None => true,
        };
        if !right || found.bufs_alloc_span != found.nbufs_allocated {
            return Err(format!("{found:?}, expected {most}, exact {exact}"));
        }
        self.seen.held += u64::from(found.nbufs_allocated.is_some_and(|held| held != 0));
        Ok(())
    }

    fn ep_counters(&mut self, side: usize) -> Done {
        let ep = self.pick_ep(side);
        let reset = self.rng.percent(20);
        let one = self.rng.percent(30);
        let at = self.rng.below(EpCounter::COUNT);
        let s = &mut self.sides[side];
        let m = s.ep(ep);
        let out = m.is_some_and(|m| {
            let reaped = m.recv.and_then(|evd| s.evd(evd));
            m.poster.is_some() || reaped.is_some_and(|evd| evd.reaper.is_some())
        });
        let verdict = s.known_ep(ep).no(reset && out, DatType::InvalidState);
        let counter = EpCounter::ALL[at];
        let range = if one { at..at + 1 } else { 0..EpCounter::COUNT };
        let answer = if one {
            s.ia.ep_query_counter(ep, counter, reset).map(|count| vec![count])
        } else {
            s.ia.ep_query_counters(ep, reset).map(|all| all.to_vec())
        };
        self.note(|| format!("{side}: ep_counters {ep:?} {range:?} {reset} -> {answer:?}"));
        if !self.judge(&verdict, answer.as_ref().err().map(|e| e.ret()).as_ref())? {
            return Ok(());
        }
        if let (Ok(counters), Some(m)) = (answer, self.sides[side].ep_mut(ep)) {
            let tally = &mut m.tally[range];
            if counters != tally {
                return Err(format!("{ep:?} counted {counters:?}, expected {tally:?}"));
            }
            if reset {
                tally.fill(0);
            }
        }
        self.seen.counted += 1;
        Ok(())
    }

    fn evd_counters(&mut self, side: usize) -> Done {
        let evd = self.pick_evd(side);
        let reset = self.rng.percent(20);
        let s = &mut self.sides[side];
        let m = s.evd(evd);
        let verdict = Verdict::new()
            .no_as(m.is_none(), DatType::InvalidHandle, DatSubtype::InvalidHandle1)
            .no(m.is_some_and(|m| m.reaper.is_some()), DatType::InvalidState);
        let answer = s.ia.evd_query_counters(evd, reset);
        self.note(|| format!("{side}: evd_counters {evd:?} {reset} -> {answer:?}"));
        if !self.judge(&verdict, answer.as_ref().err().map(|e| e.ret()).as_ref())? {
            return Ok(());
        }
        if let (Ok(counters), Some(m)) = (answer, self.sides[side].evd_mut(evd)) {
            let of = |counter: EvdCounter| counters[counter as usize];
            let (found, empty) = (of(EvdCounter::DequeueFound), of(EvdCounter::DequeueNotFound));
            if found != m.found || of(EvdCounter::Dequeue) != found + empty {
                return Err(format!("{evd:?} counted {counters:?}, expected {}", m.found));
            }
            if reset {
                m.found = 0;
            }
        }
        self.seen.counted += 1;
        Ok(())
    }

    fn ia_counters(&mut self, side: usize) -> Done {
        let s = &mut self.sides[side];
        let values = s.ia.ia_query_counters(false).map_err(|e| e.to_string())?;
        use IaCounter as C;
        let (dead, late) = (&s.dead, s.retiring.len());
        for (what, counters, [alive, gone, late]) in [
            ("PZ", [C::PzCreate, C::PzFree], [s.pzs.len(), dead.pz.len(), 0]),
            ("LMR", [C::LmrCreate, C::LmrFree], [s.lmrs.len(), dead.lmr.len(), 0]),
            ("RMR", [C::RmrCreate, C::RmrFree], [s.rmrs.len(), dead.rmr.len(), late]),
            ("SRQ", [C::SrqCreate, C::SrqFree], [s.srqs.len(), dead.srq.len(), 0]),
            ("EVD", [C::EvdCreate, C::EvdFree], [s.evds.len(), dead.evd.len(), 0]),
        ] {
            let [made, freed] = counters.map(|counter| values[counter as usize] as usize);
            if made != alive + gone || !(gone - late..=gone).contains(&freed) {
                return Err(format!("{what}: {made} made, {freed} freed"));
            }
        }
        self.seen.counted += 1;
        Ok(())
    }
}
