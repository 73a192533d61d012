//! Requests of side A, completions of both sides, and connections made anew.

use std::time::Duration;

use dat_core::{CloseFlag, DatReturn, DtoStatus, EpState, Event, LmrTriplet, Qos, RmrTriplet};

use super::memory::{UNIT, UNITS};
use super::program::Program;
use crate::conformance::{A, B, NONE, Side};
use crate::laws::{Check, violation};

impl<S: Side> Program<'_, '_, S> {
    /// Side A fires a few writes and reads.
    pub(super) fn fire(&mut self) -> Check {
        self.reap(A, usize::MAX)?;
        let shots = 1 + self.rng.below(3);
        for _ in 0..shots {
            if self.targets.is_empty() {
                return Ok(());
            }
            let pair = self.rng.below(self.pairs.len());
            let mut target = self.rng.of(&self.targets);
            if self.rng.percent(8) {
                // A guess: another low byte.
                target.context ^= 1 + self.rng.below(255) as u32;
            }
            if self.rng.percent(15) {
                target.addr = self.memory + (self.rng.below(UNITS) * UNIT) as u64;
            }
            let far = RmrTriplet { addr: target.addr, len: UNIT as u32, context: target.context };
            let ep = self.pairs[pair].eps[A];
            self.cookie += 1;
            let cookie = self.cookie << 8 | pair as u64;
            self.steps += 1;
            let read = self.rng.percent(40);
            let done = if read {
                let into = LmrTriplet {
                    addr: self.sink + (self.rng.below(2) * UNIT) as u64,
                    len: UNIT as u32,
                    context: self.sink_lmr.lmr_context,
                };
                self.ias.a.ep_post_rdma_read(ep, &[into], cookie, &far, NONE)
            } else {
                let from = self.source;
                self.ias.a.ep_post_rdma_write(ep, &[from], cookie, &far, NONE)
            };
            self.note(|| format!("A fires at {far:x?}, read {read}, pair {pair}: {done:?}"));
        }
        Ok(())
    }

    /// Dequeues completions and connection events of a side.
    pub(super) fn reap(&mut self, side: usize, most: usize) -> Check {
        for evd in [self.evds[side], self.conns[side]] {
            for _ in 0..most {
                let event = match self.ias[side].evd_dequeue(evd) {
                    Ok(event) => event,
                    Err(DatReturn::QUEUE_EMPTY) => {
                        if side == B && evd == self.evds[B] {
                            self.charged = 0;
                        }
                        break;
                    }
                    Err(error) => return violation("dequeue", format!("side {side}: {error}")),
                };
                self.steps += 1;
                if side == B {
                    self.note(|| format!("B: {event:?}"));
                    self.completed(event)?;
                }
            }
        }
        Ok(())
    }

    /// A completion of side B.
    fn completed(&mut self, event: Event) -> Check {
        let (cookie, status) = match event {
            Event::RmrBind { cookie, status, .. } => (cookie, status),
            Event::Dto(dto) => (dto.cookie, dto.status),
            _ => return Ok(()),
        };
        let index = (cookie & 0xff) as usize;
        let bind = matches!(event, Event::RmrBind { .. });
        if self.pairs[index].posted.iter().any(|item| item.cookie == cookie) {
            while let Some(item) = self.pairs[index].posted.pop_front() {
                if item.cookie == cookie {
                    break;
                }
                if !item.suppressed {
                    let rule = if item.bind { "bind-completion" } else { "completion-order" };
                    return violation(rule, format!("{cookie:#x} came before {item:?}"));
                }
            }
        } else if self.pairs[index].era == 0 {
            return violation("bind-completion", format!("{cookie:#x} came twice"));
        }
        if bind && status == DtoStatus::Success {
            // Earlier contexts of the window are dead now.
            for window in &mut self.windows {
                if let Some(at) = window.ranges.iter().position(|range| range.bind == cookie) {
                    window.ranges.drain(..at);
                    self.last_close = format!("completion of bind {cookie:#x}");
                }
            }
            self.expose()?;
        }
        Ok(())
    }

    /// Drives both sides for a while.
    pub(super) fn pass(&mut self, span: Duration) -> Check {
        let end = self.ias.now() + span;
        let mut leap = Duration::from_micros(1);
        while self.ias.now() < end {
            self.ias.turn(leap);
            leap = (leap * 2).min(Duration::from_micros(500));
        }
        self.reap(A, usize::MAX)
    }

    /// Connects a pair anew if it is not connected.
    pub(super) fn mend(&mut self, pair: usize) -> Check {
        let states = self.states(pair);
        if states == [EpState::Connected; 2] {
            return Ok(());
        }
        self.hold(false);
        let now = self.ias.now();
        self.note(|| format!("pair {pair} is {states:?}: connects anew"));
        for side in [A, B] {
            let ep = self.pairs[pair].eps[side];
            let state = self.states(pair)[side];
            self.steps += 1;
            match state {
                EpState::Unconnected => continue,
                EpState::Disconnected => {}
                _ => {
                    let _ = self.ias[side].ep_disconnect(now, ep, CloseFlag::Abrupt);
                }
            }
            if side == A {
                let _ = self.ias.a.ep_reset(ep);
            } else if self.rng.percent(50) {
                self.reap(B, usize::MAX)?;
                self.reset_b(pair)?;
            } else {
                self.reset_b(pair)?;
            }
        }
        if self.states(pair) != [EpState::Unconnected; 2] {
            return Ok(());
        }
        if self.charged > 60 {
            self.reap(B, usize::MAX)?;
        }
        let (now, to) = (self.ias.now(), self.ias.b.address());
        let timeout = Duration::from_secs(2);
        let [ep, own] = self.pairs[pair].eps;
        self.steps += 1;
        let asked = self.ias.a.ep_connect(
            now,
            ep,
            to,
            self.qualifier,
            timeout,
            &[pair as u8],
            Qos::BestEffort,
        );
        if asked.is_err() {
            // Too many connections in timewait: time has to pass.
            return self.pass(Duration::from_millis(300));
        }
        let mut leap = Duration::from_micros(1);
        for _ in 0..200 {
            self.ias.turn(leap);
            leap = (leap * 2).min(Duration::from_millis(20));
            while let Ok(event) = self.ias.b.evd_dequeue(self.requests) {
                let Some(cr) = event.request() else { continue };
                let of = self.ias.b.cr_query(cr).map(|param| param.private_data[0]);
                let now = self.ias.now();
                if of != Ok(pair as u8) || self.states(pair)[B] != EpState::Unconnected {
                    let _ = self.ias.b.cr_reject(now, cr, b"");
                    continue;
                }
                // From now on peers may reach what the Endpoint leads to.
                self.pairs[pair].open = true;
                self.expose()?;
                let done = self.ias.b.cr_accept(now, cr, Some(own), b"");
                if done.is_err() {
                    self.pairs[pair].open = false;
                    self.expose()?;
                }
            }
            let states = self.states(pair);
            if states == [EpState::Connected; 2] || states[A] == EpState::Disconnected {
                break;
            }
        }
        self.reap(A, usize::MAX)
    }

    fn states(&self, pair: usize) -> [EpState; 2] {
        [A, B].map(|side| {
            let ep = self.pairs[pair].eps[side];
            self.ias[side].ep_query(ep).unwrap().state
        })
    }

    /// Every bind of side B that is due has completed.
    pub(super) fn collect(&mut self) -> Check {
        let now = self.ias.now();
        for pair in 0..self.pairs.len() {
            let ep = self.pairs[pair].eps[B];
            self.steps += 1;
            let _ = self.ias.b.ep_disconnect(now, ep, CloseFlag::Abrupt);
        }
        self.pass(Duration::from_millis(20))?;
        self.reap(B, usize::MAX)?;
        for pair in &self.pairs {
            if let Some(item) = pair.posted.iter().find(|item| !item.suppressed) {
                let rule = if item.bind { "bind-completion" } else { "lost-completion" };
                return violation(rule, format!("never came: {item:?}"));
            }
        }
        self.check()
    }
}
