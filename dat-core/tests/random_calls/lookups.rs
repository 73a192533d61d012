//! Endpoints for datagrams that ask for a service point, and those that answer.

use std::net::IpAddr;
use std::time::Duration;

use dat_core::*;

use crate::model::*;
use crate::verdict::Verdict;
use crate::world::{Done, World, addr};

/// One question, and what became of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AskM {
    side: usize,
    ep: Ep,
    /// The Event Dispatcher that gets its end.
    evd: Evd,
    pub(crate) target: Option<usize>,
    pub(crate) port: u16,
    born: Instant,
    deadline: Instant,
    /// The request has been dequeued where it came to.
    pub(crate) arrived: bool,
    /// The request went down with an Event Dispatcher.
    pub(crate) lost: bool,
    /// The Endpoint that answered: its side, its QPN and its Q_Key; or the word that there is
    /// none.
    answer: Option<Option<(usize, u32, u32)>>,
    /// There may have been no listener or no room.
    pub(crate) refusable: bool,
    /// No more events come of it: it has ended, or the asking Endpoint has left.
    done: bool,
    left: bool,
    kept: Option<LookUp>,
    /// How it is thought to have ended: what ended so did not say its name.
    guess: Option<End>,
}

/// How a question ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Found,
    Refused,
    Silent,
}

/// After this long an unanswered question may be repeated, or given up.
const PATIENCE: Duration = Duration::from_millis(50);

impl AskM {
    fn is_old(&self, now: Instant) -> bool {
        now.since(self.born) >= PATIENCE
    }

    fn could_end(&self, end: End, now: Instant) -> bool {
        match end {
            End::Found => matches!(self.answer, Some(Some(_))),
            End::Refused => self.answer == Some(None) || self.refusable,
            End::Silent => self.target.is_none() || now >= self.deadline || self.is_old(now),
        }
    }

    /// Its end must have come.
    fn is_due(&self, now: Instant) -> bool {
        self.answer.is_some() || self.target.is_none() || now >= self.deadline
    }

    /// Its request may come to that side.
    pub(crate) fn may_come(&self, side: usize) -> bool {
        self.target == Some(side) && !self.arrived
    }

    /// An event of it may come to that Event Dispatcher.
    fn may_tell(&self, side: usize, evd: Evd) -> bool {
        self.side == side && self.evd == evd && !self.done
    }
}

impl CrM {
    /// Private data by which the asking side recognises the answer.
    pub(crate) fn name(&self) -> [u8; 8] {
        (self.link as u64 + 1).to_le_bytes()
    }
}

impl World {
    /// Most events of look-ups that may wait in an Event Dispatcher.
    pub(crate) fn look_up_backlog(&self, side: usize, evd: Evd) -> usize {
        let s = &self.sides[side];
        let points = || s.points.iter().chain(&s.old_points);
        let listens = |port| points().any(|m| m.port == port && m.evd == evd);
        let answers = self.asks.iter().filter(|a| a.may_tell(side, evd)).count();
        let asked = self.asks.iter().filter(|a| a.may_come(side) && listens(a.port)).count();
        answers + asked + s.answered.iter().filter(|(_, at)| *at == evd).count()
    }

    /// The end of a look-up may find no room there.
    pub(crate) fn may_lose(&self, side: usize, evd: Evd) -> bool {
        self.asks.iter().any(|a| a.may_tell(side, evd))
    }

    /// Look-ups that may lie unseen at that side.
    pub(crate) fn unseen_asks(&self, side: usize) -> usize {
        self.asks.iter().filter(|a| a.may_come(side)).count()
    }

    /// An event more comes to an Event Dispatcher: is there room?
    fn reckon(&mut self, side: usize, evd: Evd) {
        let full = self.backlog(side, evd);
        if let Some(m) = self.sides[side].evd_mut(evd) {
            m.overflow |= full >= m.qlen as usize;
        }
    }

    pub(crate) fn look_up(&mut self, side: usize, ep: Ep) -> Done {
        if self.attempts >= 2 * EPS - 4 {
            self.drain()?;
            self.pause()?;
        }
        let (remote, target): (IpAddr, _) = match self.rng.below(30) {
            0 => (IpAddr::from([10, 0, 0, 77]), None),
            1 => (IpAddr::from([0, 0, 0, 0]), None),
            2 => (IpAddr::from([224, 0, 0, 1]), None),
            3..6 => (addr(side), Some(side)),
            _ => (addr(1 - side), Some(1 - side)),
        };
        let ports: Vec<u16> = self.sides[target.unwrap_or(side)]
            .points
            .iter()
            .filter(|m| !m.makes && m.ep.is_none())
            .map(|m| m.port)
            .collect();
        let listening = self.rng.of(&ports).filter(|_| self.rng.percent(90));
        let port = listening.unwrap_or(7000 + self.rng.below(crate::endpoint::PORTS) as u16);
        let qual = match self.rng.below(40) {
            0 => 0,
            1 => 65536,
            _ => u64::from(port),
        };
        let timeout = match self.rng.below(20) {
            0 => Duration::ZERO,
            1 => Duration::from_micros(20),
            _ => Duration::from_secs(100),
        };
        let size = match self.rng.below(30) {
            0 => MAX_CONNECT_UD_PRIVATE + 1,
            _ => 8 + self.rng.below(MAX_CONNECT_UD_PRIVATE - 7),
        };
        let mut private = vec![0xbb; size];
        private[..8].copy_from_slice(&(self.asks.len() as u64).to_le_bytes());
        let asking = self.asks.iter().filter(|a| a.side == side && !a.done);
        let many = asking.count() >= EPS || self.attempts >= 2 * EPS - 4;
        let s = &mut self.sides[side];
        let mut verdict = s.known_ep(ep);
        if let Some(m) = s.ep(ep) {
            let fit = m.state == EpState::Connected;
            verdict = verdict
                .no_as(!fit, DatType::InvalidState, m.state.subtype())
                .no(fit && m.connect.is_none(), DatType::InvalidState);
        }
        let useless = remote.is_unspecified() || remote.is_multicast();
        verdict = verdict
            .no(useless, DatType::InvalidAddress)
            .no(qual == 0 || qual > 65535, DatType::InvalidParameter)
            .no(timeout.is_zero(), DatType::InvalidParameter)
            .no(size > MAX_CONNECT_UD_PRIVATE, DatType::InvalidParameter)
            .may(many, DatType::InsufficientResources);
        let now = self.now;
        let answer = s.ia.ep_connect(now, ep, remote, qual, timeout, &private, Qos::BestEffort);
        let at = self.asks.len();
        self.note(|| {
            format!("{side}: look_up {ep:?} {remote} {qual} {timeout:?} {at} -> {answer:?}")
        });
        if !self.judge(&verdict, answer.as_ref().err().map(|e| e.ret()).as_ref())? {
            return Ok(());
        }
        let evd = self.sides[side].ep(ep).and_then(|m| m.connect);
        let evd = evd.ok_or("no Event Dispatcher for its end")?;
        self.reckon(side, evd);
        self.asks.push(AskM {
            side,
            ep,
            evd,
            target,
            port,
            born: now,
            deadline: now + timeout,
            arrived: target.is_none(),
            lost: false,
            answer: None,
            refusable: false,
            done: false,
            left: false,
            kept: None,
            guess: None,
        });
        self.attempts += 1 + usize::from(target == Some(side));
        self.restless += 1;
        Ok(())
    }

    /// Look-ups to this side that find no listener or no room.
    pub(crate) fn mark_asks(&mut self, side: usize) {
        let unseen =
            self.unseen_asks(side) + self.links.iter().filter(|l| l.may_be_unseen(side)).count();
        for at in 0..self.asks.len() {
            if !self.asks[at].may_come(side) || self.asks[at].refusable {
                continue;
            }
            let s = &self.sides[side];
            let port = self.asks[at].port;
            let point = s.points.iter().find(|m| m.port == port);
            let fit = point.filter(|m| matches!(m.point, Point::Psp(_)) && !m.makes);
            let refused = fit.is_none_or(|point| {
                let qlen = s.evd(point.evd).map_or(0, |m| m.qlen as usize);
                self.backlog(side, point.evd) + 2 * s.eps.len() >= qlen
                    || s.crs.len() + unseen > EPS
            });
            self.asks[at].refusable |= refused || self.attempts >= 2 * EPS;
        }
    }

    /// A service point, or a dispatcher of one, is gone: what is on its way there may come too
    /// late.
    pub(crate) fn lost_point(&mut self, side: usize, port: u16, lost: bool) {
        for ask in self.asks.iter_mut().filter(|a| a.may_come(side) && a.port == port) {
            ask.refusable = true;
            ask.lost |= lost;
        }
    }

    /// The asking Endpoint has left: no answer is reported any more, and with its end none is kept.
    pub(crate) fn stop_asking(&mut self, side: usize, ep: Ep, answers: bool) {
        for ask in self.asks.iter_mut().filter(|a| a.side == side && a.ep == ep) {
            ask.left = true;
            if answers {
                ask.kept = None;
            }
        }
    }

    /// A look-up has come to a service point.
    pub(crate) fn asked(&mut self, side: usize, evd: Evd, psp: Psp, cr: Cr, qual: u64) -> Done {
        let s = &self.sides[side];
        let point = Point::Psp(psp);
        let mut points = s.points.iter().chain(&s.old_points);
        let listener = *points.find(|m| m.point == point).ok_or("no such service point")?;
        if listener.evd != evd || u64::from(listener.port) != qual || listener.makes {
            return Err(format!("it belongs to {listener:?}"));
        }
        let param = s.ia.cr_query(cr).map_err(|e| format!("cr_query: {e}"))?;
        let bytes = param.private_data.first_chunk::<8>();
        let at = u64::from_le_bytes(*bytes.ok_or("no private data")?) as usize;
        let now = self.now;
        let ask = self.asks.get_mut(at).ok_or("nobody asked for it")?;
        let again = ask.arrived && !ask.is_old(now);
        if ask.target != Some(side) || ask.port != listener.port || again {
            return Err(format!("not the look-up {ask:?}"));
        }
        ask.arrived = true;
        self.sides[side].crs.push(CrM {
            cr,
            link: at,
            point,
            local_ep: None,
            provided: false,
            looks_up: true,
        });
        Ok(())
    }

    /// Answers a look-up, or tries to.
    pub(crate) fn answer(&mut self, side: usize, m: &CrM) -> Done {
        let fit: Vec<Ep> =
            self.sides[side].eps.iter().filter(|m| m.ud.is_some()).map(|m| m.ep).collect();
        let wanted = self.rng.of(&fit).filter(|_| self.rng.percent(90));
        let ep = wanted.unwrap_or_else(|| self.pick_ep(side));
        let ep = (!self.rng.percent(3)).then_some(ep);
        let size = match self.rng.below(30) {
            0 => MAX_UD_REPLY_PRIVATE + 1,
            _ => 8 + self.rng.below(MAX_UD_REPLY_PRIVATE - 7),
        };
        let mut private = vec![0x44; size];
        private[..8].copy_from_slice(&m.name());
        let number = ep.map_or(0, |ep| self.number(side, ep));
        let s = &mut self.sides[side];
        let found = ep.and_then(|ep| s.ep(ep));
        let key = found.and_then(|m| Some(m.ud.as_ref()?.qkey));
        let mut verdict = Verdict::new()
            .no_as(key.is_none(), DatType::InvalidHandle, DatSubtype::InvalidHandleEp)
            .no(size > MAX_UD_REPLY_PRIVATE, DatType::InvalidParameter);
        if let Some(found) = found {
            let open = found.state == EpState::Connected;
            verdict = verdict.no_as(!open, DatType::InvalidState, found.state.subtype());
        }
        let connect = found.and_then(|m| m.connect);
        let answer = s.ia.cr_accept(self.now, m.cr, ep, &private);
        let (cr, at) = (m.cr, m.link);
        self.note(|| format!("{side}: answer {cr:?} {ep:?} look-up {at} -> {answer:?}"));
        if !self.judge(&verdict, answer.as_ref().err().map(|e| e.ret()).as_ref())? {
            return Ok(());
        }
        if let (Some(ep), Some(evd)) = (ep, connect) {
            self.reckon(side, evd);
            self.sides[side].answered.push((ep, evd));
        }
        self.replied(side, cr, at, key.map(|key| (side, number, key)));
        Ok(())
    }

    /// The request is used up, by an answer or by a refusal.
    pub(crate) fn replied(
        &mut self,
        side: usize,
        cr: Cr,
        at: usize,
        answer: Option<(usize, u32, u32)>,
    ) {
        let s = &mut self.sides[side];
        s.crs.retain(|m| m.cr != cr);
        s.dead.cr.push(cr);
        self.restless += 1;
        self.asks[at].answer.get_or_insert(answer);
    }

    /// Checks the event of an Endpoint whose answer was sent.
    pub(crate) fn answer_accepted(&mut self, side: usize, evd: Evd, ep: Ep) -> Done {
        let answered = &mut self.sides[side].answered;
        let at = answered.iter().position(|&entry| entry == (ep, evd));
        answered.remove(at.ok_or("it has answered nobody")?);
        Ok(())
    }

    /// The end of a question, by an answer or without one.
    pub(crate) fn look_up_ended(
        &mut self,
        side: usize,
        evd: Evd,
        ep: Ep,
        of: Option<(LookUp, bool)>,
    ) -> Done {
        let now = self.now;
        let found = of.and_then(|(of, _)| self.sides[side].ia.ep_ud_answer(ep, of).ok());
        let said = found.map(|found| {
            let bytes = found.private_data.first_chunk::<8>();
            // No name is 0, which fills what nobody wrote.
            let name = bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes) as usize);
            (found.address, name.wrapping_sub(1))
        });
        let mine = |a: &AskM| a.side == side && a.ep == ep && a.evd == evd;
        let end = match of {
            Some((_, true)) => End::Found,
            Some((_, false)) => End::Refused,
            None => End::Silent,
        };
        // A refusal that is not the consumer's names nothing, no more than silence does.
        let named = said
            .filter(|&(address, at)| {
                let refused = |a: &AskM| mine(a) && a.answer == Some(None);
                address.is_ok() || self.asks.get(at).is_some_and(refused)
            })
            .map(|(_, at)| at);
        let could = |a: &AskM, end| mine(a) && !a.done && a.could_end(end, now);
        let (at, guess) = match named {
            Some(at) => {
                let ask = self.asks.get(at).filter(|a| mine(a) && a.could_end(end, now));
                let ask = ask.ok_or_else(|| format!("nobody asked: {said:?}"))?;
                if ask.done {
                    // The event taken for its end was that of another.
                    let guess = ask.guess.ok_or("it had ended")?;
                    let other = self.asks.iter().position(|a| could(a, guess));
                    let other = &mut self.asks[other.ok_or("nothing else had ended")?];
                    (other.done, other.guess) = (true, Some(guess));
                }
                (at, None)
            }
            None => {
                // Of an earlier connection of the Endpoint only what has waited since.
                let asked = self.asks.iter().position(|a| !a.left && could(a, end));
                let asked = asked.or_else(|| self.asks.iter().position(|a| could(a, end)));
                // Or one whose end was thought to have come: that was the end of another then.
                let swap = || {
                    self.asks.iter().enumerate().find_map(|(at, a)| {
                        let guess = a.guess.filter(|_| mine(a) && a.could_end(end, now))?;
                        let other = self.asks.iter().position(|a| could(a, guess))?;
                        Some((at, other, guess))
                    })
                };
                match asked {
                    Some(at) => (at, Some(end)),
                    None => {
                        let (at, other, guess) = swap().ok_or("nobody asked, or all had ended")?;
                        self.asks[at].guess = Some(end);
                        (other, Some(guess))
                    }
                }
            }
        };
        if let (Some(at), Some((Ok(to), _))) = (named, said) {
            let ask = &self.asks[at];
            let right = Some(Some((to.qpn, to.qkey)));
            if ask.answer.map(|a| a.map(|(_, qpn, key)| (qpn, key))) != right
                || ask.target.map(addr) != Some(to.path.remote)
            {
                return Err(format!("{to:?} for {ask:?}"));
            }
            self.seen.found += 1;
        }
        let ask = &mut self.asks[at];
        ask.done = true;
        ask.guess = guess;
        ask.kept = of.map(|(of, _)| of).filter(|_| !ask.left);
        Ok(())
    }

    /// Asks for an answer that was found, or gives one back.
    pub(crate) fn answers(&mut self, side: usize) -> Done {
        let kept: Vec<(Ep, LookUp)> = self
            .asks
            .iter()
            .filter(|a| a.side == side)
            .filter_map(|a| Some((a.ep, a.kept?)))
            .collect();
        let some = self.rng.of(&kept).filter(|_| self.rng.percent(85));
        let word = self.rng.next();
        let other = self.pick_ep(side);
        let (ep, of) = some.unwrap_or((other, LookUp::from_raw(word)));
        let free = self.rng.percent(40);
        let s = &mut self.sides[side];
        let mut verdict = s.known_ep(ep);
        let connected = s.ep(ep).is_some_and(|m| m.ud.is_none());
        if free {
            verdict = verdict.no(connected, DatType::ModelNotSupported);
            let answer = s.ia.ud_cm_free(ep, of);
            self.note(|| format!("{side}: ud_cm_free {ep:?} {of:?} -> {answer:?}"));
            let done = self.judge(&verdict, answer.as_ref().err().map(|e| e.ret()).as_ref())?;
            if done {
                let given = |a: &&mut AskM| a.side == side && a.kept == Some(of);
                self.asks.iter_mut().filter(given).for_each(|a| a.kept = None);
            }
            return Ok(());
        }
        // Answers give up their slots to connections.
        verdict =
            verdict.no(some.is_none(), DatType::InvalidState).may(true, DatType::InvalidState);
        let answer = s.ia.ep_ud_answer(ep, of).map(|_| ());
        let last = s.ia.ep_ud_address(ep).map(|_| ());
        self.note(|| format!("{side}: ep_ud_answer {ep:?} {of:?} -> {answer:?}, {last:?}"));
        self.judge(&verdict, answer.as_ref().err().map(|e| e.ret()).as_ref())?;
        let found = |a: &&AskM| a.side == side && a.ep == ep && matches!(a.answer, Some(Some(_)));
        if last.is_ok() && !self.asks.iter().any(|a| found(&a)) {
            return Err("it has found nothing".into());
        }
        Ok(())
    }

    /// An end that is missing may have been taken for that of another, which waits in truth.
    fn guess_again(&mut self, at: usize) {
        let (now, ask) = (self.now, self.asks[at]);
        if ask.done || ask.left || !ask.is_due(now) {
            return;
        }
        let mine = |a: &&mut AskM| a.side == ask.side && a.ep == ask.ep && !a.is_due(now);
        let mut others = self.asks.iter_mut().filter(mine);
        let other = others.find(|a| a.guess.is_some_and(|guess| ask.could_end(guess, now)));
        if let Some(other) = other {
            let guess = other.guess.take();
            other.done = false;
            (self.asks[at].done, self.asks[at].guess) = (true, guess);
        }
    }

    /// Checks, when all is idle and dequeued, that every look-up has ended.
    pub(crate) fn check_look_ups(&mut self, strict: bool) -> Done {
        let now = self.now;
        for at in 0..self.asks.len() {
            self.guess_again(at);
            let ask = self.asks[at];
            let lossy = self.sides[ask.side].evd(ask.evd).is_none_or(|m| m.overflow);
            let due = ask.is_due(now);
            let lies = ask.arrived || ask.lost || ask.refusable;
            if !ask.done && !ask.left && !lossy && strict && !ask.is_old(now) {
                if due {
                    return Err(format!("the end of {ask:?} never came"));
                }
                if !lies {
                    return Err(format!("a look-up went astray: {ask:?}"));
                }
            }
            let ask = &mut self.asks[at];
            let over = due && (strict || now >= ask.deadline) || ask.left;
            ask.done |= over;
            // An event that has not come by now never will.
            ask.arrived |= over && !ask.lost;
        }
        for side in 0..2 {
            let s = &mut self.sides[side];
            let missed = |&(_, evd): &(Ep, Evd)| s.evd(evd).is_some_and(|m| !m.overflow);
            if let Some((ep, _)) = s.answered.iter().copied().find(missed) {
                return Err(format!("{ep:?} never got the event of its answer"));
            }
            s.answered.clear();
        }
        Ok(())
    }
}
