//! CNOs, and what of Event Dispatchers has to do with them: waits, notification, length.

use std::task::Poll;
use std::time::Duration;

use dat_core::*;

use crate::model::*;
use crate::verdict::Verdict;
use crate::world::{Done, World};

fn stale(alive: bool, subtype: DatSubtype) -> Verdict {
    Verdict::new().no_as(!alive, DatType::InvalidHandle, subtype)
}

/// A function that an agent may be.
fn nothing(_: u64, _: Option<Evd>) {}

impl SideM {
    fn attached(&self, cno: Cno) -> usize {
        self.evds.iter().filter(|m| m.cno == Some(cno)).count()
    }
}

impl World {
    /// One of the calls of this module.
    pub(crate) fn notify(&mut self, side: usize) -> Done {
        match self.rng.below(16) {
            0 | 1 => self.cno_create(side),
            2 => {
                let cno = self.pick_cno(side);
                self.cno_free(side, cno)
            }
            3 | 4 => self.cno_take(side),
            5 => self.cno_modify_agent(side),
            6..9 => self.evd_modify_cno(side),
            9..11 => self.evd_switch(side),
            11 => self.evd_resize(side),
            _ => self.evd_wait(side),
        }
    }

    fn cno_create(&mut self, side: usize) -> Done {
        let fd = self.rng.percent(30);
        let agent =
            self.rng.percent(30).then_some(Agent::Function { instance: 1, function: nothing });
        let s = &mut self.sides[side];
        let verdict = Verdict::new().no(s.cnos.len() >= EVDS, DatType::InsufficientResources);
        let answer = if fd { s.ia.cno_fd_create() } else { s.ia.cno_create(agent) };
        self.note(|| format!("{side}: cno_create -> {answer:?}"));
        if self.judge(&verdict, answer.as_ref().err().map(|e| e.ret()).as_ref())? {
            self.sides[side].cnos.extend(answer);
        }
        Ok(())
    }

    pub(crate) fn cno_free(&mut self, side: usize, cno: Cno) -> Done {
        let s = &mut self.sides[side];
        let used = s.attached(cno) != 0;
        let verdict = stale(s.cnos.contains(&cno), DatSubtype::InvalidHandleCno).no_as(
            used,
            DatType::InvalidState,
            DatSubtype::InvalidStateCnoInUse,
        );
        let answer = s.ia.cno_free(cno);
        self.note(|| format!("{side}: cno_free {cno:?} -> {answer:?}"));
        if self.judge(&verdict, answer.as_ref().err().map(|e| e.ret()).as_ref())? {
            let s = &mut self.sides[side];
            s.cnos.retain(|&m| m != cno);
            s.dead.cno.push(cno);
        }
        Ok(())
    }

    /// Takes the hint of a CNO, by a wait without time or by trigger: it is one of its own, there
    /// if the query said so, and gone then.
    fn cno_take(&mut self, side: usize) -> Done {
        let cno = self.pick_cno(side);
        let by_wait = self.rng.percent(50);
        let now = self.now;
        let s = &mut self.sides[side];
        let alive = s.cnos.contains(&cno);
        let before = s.ia.cno_query(cno).map(|param| param.triggered);
        let answer = if by_wait {
            let begun = s.ia.cno_wait(now, cno, Duration::ZERO);
            match begun.map_err(|error| error.ret()) {
                Ok(mut wait) => match s.ia.cno_waited(now, &mut wait) {
                    Poll::Ready(Ok(Some(evd))) => Ok(evd),
                    Poll::Ready(Err(ret)) => Err(ret),
                    other => return Err(format!("a wait without time is {other:?}")),
                },
                Err(ret) => Err(ret),
            }
        } else {
            s.ia.cno_trigger(cno)
        };
        self.note(|| format!("{side}: cno_take {cno:?} {by_wait} -> {answer:?}"));
        let verdict =
            stale(alive, DatSubtype::InvalidHandleCno).no(before == Ok(false), DatType::QueueEmpty);
        if !self.judge(&verdict, answer.as_ref().err())? {
            return Ok(());
        }
        let s = &self.sides[side];
        let left = s.ia.cno_query(cno).map(|param| param.triggered);
        let known = answer.is_ok_and(|evd| s.evd(evd).is_some());
        if before != Ok(true) || left != Ok(false) || !known {
            return Err(format!("{answer:?}, triggered {before:?} before, {left:?} after"));
        }
        self.seen.hints += 1;
        Ok(())
    }

    fn cno_modify_agent(&mut self, side: usize) -> Done {
        let cno = self.pick_cno(side);
        let agent =
            self.rng.percent(50).then_some(Agent::Function { instance: 2, function: nothing });
        let s = &mut self.sides[side];
        let verdict = stale(s.cnos.contains(&cno), DatSubtype::InvalidHandleCno);
        let answer = s.ia.cno_modify_agent(cno, agent);
        self.note(|| format!("{side}: cno_modify_agent {cno:?} -> {answer:?}"));
        self.judge(&verdict, answer.as_ref().err().map(|e| e.ret()).as_ref())?;
        Ok(())
    }

    fn evd_modify_cno(&mut self, side: usize) -> Done {
        let evd = self.pick_evd(side);
        let cno = self.rng.percent(75).then(|| self.pick_cno(side));
        let s = &mut self.sides[side];
        let dead = cno.is_some_and(|cno| !s.cnos.contains(&cno));
        let verdict = stale(s.evd(evd).is_some(), DatSubtype::InvalidHandle1).no_as(
            dead,
            DatType::InvalidHandle,
            DatSubtype::InvalidHandleCno,
        );
        let answer = s.ia.evd_modify_cno(evd, cno);
        self.note(|| format!("{side}: evd_modify_cno {evd:?} {cno:?} -> {answer:?}"));
        if self.judge(&verdict, answer.as_ref().err().map(|e| e.ret()).as_ref())? {
            if let Some(m) = self.sides[side].evd_mut(evd) {
                m.cno = cno;
            }
        }
        Ok(())
    }

    /// Enables or disables, makes waitable or not.
    fn evd_switch(&mut self, side: usize) -> Done {
        let evd = self.pick_evd(side);
        let choice = self.rng.below(4);
        let s = &mut self.sides[side];
        let verdict = stale(s.evd(evd).is_some(), DatSubtype::InvalidHandle1);
        let answer = match choice {
            0 => s.ia.evd_enable(evd),
            1 => s.ia.evd_disable(evd),
            2 => s.ia.evd_set_unwaitable(evd),
            _ => s.ia.evd_clear_unwaitable(evd),
        };
        self.note(|| format!("{side}: evd_switch {choice} {evd:?} -> {answer:?}"));
        if self.judge(&verdict, answer.as_ref().err().map(|e| e.ret()).as_ref())? {
            if let Some(m) = self.sides[side].evd_mut(evd) {
                match choice {
                    0 => m.enabled = true,
                    1 => m.enabled = false,
                    2 => m.unwaitable = true,
                    _ => m.unwaitable = false,
                }
            }
        }
        Ok(())
    }

    /// Gives an Event Dispatcher more room, or what it cannot have. Less would need to know what
    /// completes when.
    fn evd_resize(&mut self, side: usize) -> Done {
        let evd = self.pick_evd(side);
        let qlen = self.sides[side].evd(evd).map_or(1, |m| m.qlen);
        let most = if self.sides[side].takes(evd, EvdFlags::ASYNC) { EVENTS as u32 } else { 128 };
        let wanted = match self.rng.below(6) {
            0 => 0,
            1 => most + 1,
            2 => u32::MAX,
            3 => qlen,
            _ => qlen + self.rng.below((most - qlen + 1) as usize) as u32,
        };
        let s = &mut self.sides[side];
        let m = s.evd(evd);
        let verdict = stale(m.is_some(), DatSubtype::InvalidHandle1)
            .no(wanted == 0, DatType::InvalidParameter)
            .no(wanted > most, DatType::InsufficientResources)
            .no_as(
                m.is_some_and(|m| m.reaper.is_some()),
                DatType::InvalidState,
                DatSubtype::InvalidStateEvdWaiter,
            );
        let answer = s.ia.evd_resize(evd, wanted);
        self.note(|| format!("{side}: evd_resize {evd:?} {wanted} -> {answer:?}"));
        if self.judge(&verdict, answer.as_ref().err().map(|e| e.ret()).as_ref())? {
            if let Some(m) = self.sides[side].evd_mut(evd) {
                m.qlen = wanted;
            }
        }
        Ok(())
    }

    /// Waits without time: the first event if there are enough, else none is taken.
    fn evd_wait(&mut self, side: usize) -> Done {
        let evd = self.pick_evd(side);
        let threshold = match self.rng.below(10) {
            0 => 0,
            1 => 129,
            2 => 2,
            _ => 1,
        };
        let now = self.now;
        let s = &mut self.sides[side];
        let m = s.evd(evd);
        let (out, unwaitable) = m.map_or((false, false), |m| (m.reaper.is_some(), m.unwaitable));
        let qlen = m.map_or(u32::MAX, |m| m.qlen);
        let verdict = stale(m.is_some(), DatSubtype::InvalidHandle1)
            .no(threshold == 0 || threshold > qlen, DatType::InvalidParameter)
            .no_as(unwaitable, DatType::InvalidState, DatSubtype::InvalidStateEvdUnwaitable)
            .no_as(out, DatType::InvalidState, DatSubtype::InvalidStateEvdWaiter)
            // The consumer may decide for each completion whether it notifies.
            .may(threshold > 1, DatType::InvalidState);
        let begun = s.ia.evd_wait(now, evd, Duration::ZERO, threshold);
        self.note(|| format!("{side}: evd_wait {evd:?} {threshold} -> {begun:?}"));
        if !self.judge(&verdict, begun.as_ref().err().map(|e| e.ret()).as_ref())? {
            return Ok(());
        }
        let Ok(mut wait) = begun else { return Ok(()) };
        let answer = self.sides[side].ia.evd_waited(now, &mut wait);
        self.note(|| format!("{side}: evd_waited {evd:?} -> {answer:?}"));
        match answer {
            Poll::Ready(Ok(event)) => {
                self.found(side, evd);
                self.seen.waits += 1;
                self.arrived(side, evd, event).map_err(|e| format!("{event:?} on {evd:?}: {e}"))
            }
            Poll::Ready(Err(ret)) if ret.ty() == DatType::TimeoutExpired => {
                if threshold == 1 {
                    self.emptied(side, evd);
                }
                Ok(())
            }
            other => Err(format!("a wait without time is {other:?}")),
        }
    }

    /// Compares what CNOs say of themselves with the model.
    pub(crate) fn audit_cnos(&self, side: usize) -> Done {
        let s = &self.sides[side];
        for &cno in &s.cnos {
            let param = s.ia.cno_query(cno).map_err(|e| e.to_string())?;
            if (param.evds as usize, param.waiters) != (s.attached(cno), 0) {
                return Err(format!("query of {cno:?}: {param:?}"));
            }
        }
        for m in &s.evds {
            let param = s.ia.evd_query(m.evd).map_err(|e| e.to_string())?;
            let waitable = !param.state.contains(EvdState::UNWAITABLE);
            let enabled = !param.state.contains(EvdState::DISABLED);
            let found = (param.cno, enabled, waitable, param.waiter);
            if found != (m.cno, m.enabled, !m.unwaitable, false) {
                return Err(format!("query of {:?}: {param:?}", m.evd));
            }
        }
        Ok(())
    }
}
