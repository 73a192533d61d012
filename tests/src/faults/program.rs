//! What the consumers do in each phase. A step that fails is left out; a consumer whose adapter is
//! lost does nothing more.

use std::time::Duration;

use dat_core::{CloseFlag, CompletionFlags, DtoOperation, LmrTriplet, MemPriv, Qos, RmrTriplet};

use super::consumer::{BULK, End, MESSAGE, Scene, place};
use super::what::{Loss, Phase, S};
use crate::session::QUALIFIER;

/// Everything ends within this, or it hangs.
pub const LIMIT: u64 = 150 * S;
/// The consumer's own time limit of a connection.
const CONNECT: Duration = Duration::from_secs(20);
/// How long it waits for completions.
const PATIENCE: u64 = 10 * S;
/// Messages of a batch.
const BATCH: usize = 4;
const NONE: CompletionFlags = CompletionFlags::empty();

/// The connection that lasts; others take the numbers behind.
const MAIN: usize = 0;

impl Scene<'_, '_> {
    /// Does what belongs to a phase.
    pub fn phase(&mut self, phase: Phase) {
        match phase {
            Phase::BringUp => {
                if self.open(0) {
                    self.cycle(1);
                }
            }
            Phase::Connecting => {
                self.connect(MAIN, 0);
                self.cycle(2);
            }
            Phase::Traffic => {
                self.post(MAIN);
                self.register();
                self.drain(MAIN);
                self.cycle(3);
                self.post(MAIN);
                self.drain(MAIN);
            }
            Phase::Closing => {
                // A request comes that nobody wants any more.
                self.ask_in_vain();
                // Requests are outstanding: a graceful disconnect waits for its own.
                self.post(MAIN);
                self.end(MAIN, 0, CloseFlag::Graceful);
                self.close(0);
            }
        }
    }

    /// A connection of the peer's with traffic, from begin to end.
    pub fn cycle(&mut self, link: usize) {
        self.connect(link, 1);
        self.post(link);
        self.drain(link);
        self.end(link, 1, CloseFlag::Graceful);
    }

    fn find(&self, side: usize, link: usize) -> Option<&End> {
        self.sides[side].as_ref()?.ends.iter().find(|end| end.link == link)
    }

    fn is(&self, side: usize, link: usize, what: fn(&End) -> bool) -> bool {
        self.find(side, link).is_some_and(what)
    }

    /// A new Endpoint.
    fn endpoint(&mut self, side: usize, link: usize) -> bool {
        let Some(open) = self.touch(side).filter(|open| open.ia.lost().is_none()) else {
            return false;
        };
        let evd = Some(open.evd);
        let made = open.ia.ep_create(Some(open.pz), evd, evd, evd, None);
        let Some(ep) = self.call(side, "ep_create", made) else { return false };
        let end = End {
            ep,
            link,
            requests: Default::default(),
            receives: Default::default(),
            coming: Default::default(),
            up: false,
            over: false,
            leaving: false,
        };
        if let Some(open) = &mut self.sides[side] {
            open.ends.push(end);
        }
        true
    }

    /// Connects two new Endpoints; `active` asks.
    pub fn connect(&mut self, link: usize, active: usize) -> bool {
        let passive = 1 - active;
        if !self.endpoint(passive, link) || !self.endpoint(active, link) {
            self.release(link);
            return false;
        }
        let now = self.instant();
        let accepts = self.find(passive, link).map(|end| end.ep);
        if let Some(open) = self.touch(passive) {
            open.accepts = accepts;
        }
        let (ep, to) = (self.find(active, link).map(|end| end.ep), Self::net(passive).addr);
        let (Some(ep), Some(open)) = (ep, self.touch(active)) else { return false };
        let asked = open.ia.ep_connect(now, ep, to, QUALIFIER, CONNECT, b"hello", Qos::BestEffort);
        let asked = self.call(active, "ep_connect", asked).is_some();
        let done = |scene: &Self| {
            let ends = [active, passive].map(|side| {
                let gone = scene.sides[side].is_none();
                (scene.is(side, link, |end| end.up), gone || scene.is(side, link, |end| end.over))
            });
            match ends {
                [(true, false), (true, false)] => true,
                // The passive side may never have seen a request.
                [(_, true), (up, over)] => over || up || !scene.accepting(passive, link),
                [(up, false), (_, true)] => up,
                [(false, false), _] | [(true, false), (false, false)] => false,
            }
        };
        if asked && !self.until(LIMIT, done) {
            self.wrong.push(format!("connection {link}: hangs"));
        }
        if let Some(open) = self.touch(passive) {
            open.accepts = None;
        }
        let up = |side| self.is(side, link, |end| end.up && !end.over);
        if asked && up(active) && up(passive) {
            return true;
        }
        self.end(link, active, CloseFlag::Abrupt);
        false
    }

    /// Whether an accepted connection is neither up nor over yet.
    fn accepting(&self, side: usize, link: usize) -> bool {
        let Some(open) = &self.sides[side] else { return false };
        let Some(end) = self.find(side, link) else { return false };
        let waits = open.ia.ep_query(end.ep).map(|param| param.state);
        waits == Ok(dat_core::EpState::CompletionPending)
    }

    /// A request that nobody at side 0 wants.
    fn ask_in_vain(&mut self) {
        let link = 4;
        if self.sides[0].is_none() || !self.endpoint(1, link) {
            return;
        }
        let (now, to) = (self.instant(), Self::net(0).addr);
        let ep = self.find(1, link).map(|end| end.ep);
        if let (Some(ep), Some(open)) = (ep, self.touch(1)) {
            let _ = open.ia.ep_connect(now, ep, to, QUALIFIER, CONNECT, b"", Qos::BestEffort);
            if let Some(end) = open.ends.iter_mut().find(|end| end.link == link) {
                end.leaving = true;
            }
        }
        let before = self.notes.len();
        self.until(2 * S, |scene| scene.is(1, link, |end| end.over));
        // That it is rejected is what it is for.
        if let Some(at) = (before..self.notes.len()).find(|at| {
            let note = &self.notes[*at];
            note.side == 1 && note.text == "DAT_CONNECTION_EVENT_PEER_REJECTED"
        }) {
            self.notes.remove(at);
        }
        self.end(link, 1, CloseFlag::Abrupt);
    }

    /// Posts a batch both ways on a connection: receives, then messages, a write and a read.
    pub fn post(&mut self, link: usize) {
        for side in 0..2 {
            if !self.is(side, link, |end| end.up) {
                return;
            }
        }
        for side in 0..2 {
            for _ in 0..BATCH {
                self.one(side, link, DtoOperation::Receive, MESSAGE);
            }
        }
        // The receives are there before the peer sends.
        self.turn();
        for side in 0..2 {
            for _ in 0..BATCH {
                self.one(side, link, DtoOperation::Send, MESSAGE);
            }
            self.one(side, link, DtoOperation::RdmaWrite, BULK);
            self.one(side, link, DtoOperation::RdmaRead, BULK);
        }
    }

    fn one(&mut self, side: usize, link: usize, operation: DtoOperation, len: usize) {
        let Some(ep) = self.find(side, link).map(|end| end.ep) else { return };
        let cookie = self.cookie;
        self.cookie += 1;
        let at = place(link, operation, cookie);
        let n = match operation {
            DtoOperation::Receive => 0,
            DtoOperation::RdmaRead => self.fill(1 - side, at, len),
            _ => self.fill(side, at, len),
        };
        let far = self.sides[1 - side].as_ref().map(|open| {
            let at = at + if operation == DtoOperation::RdmaWrite { 0x800 } else { 0 };
            let addr = open.lmr.region.addr + at as u64;
            RmrTriplet { addr, len: len as u32, context: open.lmr.rmr_context }
        });
        let (Some(open), Some(far)) = (self.touch(side), far) else { return };
        let at = at + if operation == DtoOperation::RdmaRead { 0x800 } else { 0 };
        let own = [LmrTriplet {
            addr: open.lmr.region.addr + at as u64,
            len: len as u32,
            context: open.lmr.lmr_context,
        }];
        let posted = match operation {
            DtoOperation::Receive => open.ia.ep_post_recv(ep, &own, cookie, NONE),
            DtoOperation::Send => open.ia.ep_post_send(ep, &own, cookie, NONE),
            DtoOperation::RdmaWrite => open.ia.ep_post_rdma_write(ep, &own, cookie, &far, NONE),
            _ => open.ia.ep_post_rdma_read(ep, &own, cookie, &far, NONE),
        };
        if let Err(refused) = posted {
            self.note(side, Loss::Connection, format!("post: {refused}"));
            return;
        }
        let sends = operation == DtoOperation::Send;
        for of in [side, 1 - side] {
            let Some(open) = &mut self.sides[of] else { continue };
            let Some(end) = open.ends.iter_mut().find(|end| end.link == link) else { continue };
            match (of == side, operation) {
                (true, DtoOperation::Receive) => end.receives.push_back(cookie),
                (true, _) => end.requests.push_back((cookie, n)),
                (false, _) if sends => end.coming.push_back(n),
                (false, _) => {}
            }
        }
    }

    /// Waits until all that was posted on a connection has come back, as far as it can.
    pub fn drain(&mut self, link: usize) {
        let done = |scene: &Self| {
            let over = [0, 1].map(|side| scene.is(side, link, |end| end.over));
            let gone = [0, 1].map(|side| scene.find(side, link).is_none());
            (0..2).all(|side| {
                let peer = over[1 - side] || gone[1 - side];
                gone[side]
                    || scene.is(side, link, |end| end.requests.is_empty())
                        && (over[side]
                            || peer
                            || scene.is(side, link, |end| end.receives.is_empty()))
            })
        };
        // A device that loses a completion does not say so: the consumer's own patience ends.
        if !self.until(PATIENCE, done) {
            let text = "no completion within 10 s: disconnects".to_owned();
            self.note(0, Loss::Connection, text);
            self.end(link, 0, CloseFlag::Abrupt);
        }
    }

    /// Ends a connection, which `by` wants, and frees both Endpoints.
    pub fn end(&mut self, link: usize, by: usize, flag: CloseFlag) {
        for side in [by, 1 - by] {
            // The other sees that its peer has left; it ends what is left behind.
            let flag = if side == by { flag } else { CloseFlag::Abrupt };
            let now = self.instant();
            let mut asked = false;
            for of in 0..2 {
                if let Some(open) = &mut self.sides[of] {
                    if let Some(end) = open.ends.iter_mut().find(|end| end.link == link) {
                        end.leaving = true;
                        asked |= of == side && !end.over;
                    }
                }
            }
            let ep = self.find(side, link).map(|end| end.ep);
            if let (true, Some(ep), Some(open)) = (asked, ep, self.touch(side)) {
                asked = open.ia.ep_disconnect(now, ep, flag).is_ok();
            }
            if asked && !self.until(LIMIT, |scene| scene.is(side, link, |end| end.over)) {
                self.wrong.push(format!("connection {link}: side {side}: no end"));
            }
            // Its own end comes by itself, if it can.
            if side == by {
                self.until(S, |scene| {
                    let other = scene.find(1 - by, link);
                    other.is_none_or(|end| end.over || !end.up)
                });
            }
        }
        self.release(link);
    }

    /// Frees the Endpoints of a connection.
    fn release(&mut self, link: usize) {
        for side in 0..2 {
            let Some(ep) = self.find(side, link).map(|end| end.ep) else { continue };
            let now = self.instant();
            let Some(open) = self.touch(side) else { continue };
            open.ends.retain(|end| end.ep != ep);
            let freed = open.ia.ep_free(now, ep);
            if open.ia.lost().is_none() {
                self.call(side, "ep_free", freed);
            }
        }
    }

    /// Reads counters in the midst of traffic, registers memory and frees it.
    fn register(&mut self) {
        let Some(open) = self.touch(0).filter(|open| open.ia.lost().is_none()) else { return };
        let counted = open.ia.ia_query_counters(false);
        self.call(0, "ia_query_counters", counted);
        let Some(open) = self.touch(0).filter(|open| open.ia.lost().is_none()) else { return };
        let made = open.ia.lmr_create(open.pz, open.mem.region(), MemPriv::ALL);
        let Some(lmr) = self.call(0, "lmr_create", made) else { return };
        let Some(open) = self.touch(0) else { return };
        let freed = open.ia.lmr_free(lmr.lmr);
        if open.ia.lost().is_none() {
            self.call(0, "lmr_free", freed);
        }
    }
}
