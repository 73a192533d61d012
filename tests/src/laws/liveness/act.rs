//! The calls of a random program.

use std::time::Duration;

use dat_core::{CloseFlag, Cr, EpState, EvdFlags, Qos};

use super::state::{Connection, Kind, Program, RING, Request};
use crate::conformance::Side;
use crate::laws::{Check, violation};

impl<S: Side> Program<'_, '_, S> {
    /// Runs a random program of `length` steps, then its ending.
    pub(super) fn random(&mut self, length: u64, done: &mut u64) -> Check {
        let ends = 1 + self.rng.below(6);
        self.set_up(ends);
        while *done < length {
            *done += 1;
            self.act()?;
        }
        self.finish()
    }

    /// One call, or a few that belong together.
    fn act(&mut self) -> Check {
        let side = self.rng.below(2);
        if self.sides[side].appetite > 0 {
            let appetite = self.sides[side].appetite;
            if self.rng.percent(appetite) {
                let queue = self.rng.below(self.sides[side].queues.len());
                return if self.rng.percent(10) {
                    self.drain(side, queue)
                } else {
                    self.dequeue(side, queue).map(drop)
                };
            }
        }
        if !self.sides[side].requests.is_empty() && self.rng.percent(60) {
            return self.answer(side);
        }
        match self.rng.below(100) {
            0..12 => {
                let leap = self.rng.of(&[1, 10, 100, 2_000]);
                self.turn(Duration::from_micros(leap));
                Ok(())
            }
            12..14 => self.pause(),
            36..40 => {
                let now = self.ias.now();
                self.steps += 1;
                self.ias[side].ia.advance(now);
                Ok(())
            }
            14..22 => {
                let listen = self.sides[side].listen;
                self.dequeue(side, listen).map(drop)
            }
            22..24 => self.resize(side),
            24..26 => self.post_software(side),
            26..28 => self.notification(side),
            28..30 => self.rmr(side),
            30..34 => self.shared_recv(side),
            34 => self.drain_async(side),
            35 => self.make_another(side),
            _ => {
                let alive = self.alive(side);
                if alive.is_empty() {
                    return self.make_another(side);
                }
                let end = self.rng.of(&alive);
                self.act_on(side, end)
            }
        }
    }

    /// Both adapters do what is due, and time passes.
    pub(super) fn turn(&mut self, leap: Duration) {
        self.steps += 2;
        self.ias.turn(leap);
    }

    /// Lets a while pass.
    fn pause(&mut self) -> Check {
        let mut leap = Duration::from_micros(5);
        for _ in 0..20 {
            self.turn(leap);
            leap = (leap * 2).min(Duration::from_millis(20));
        }
        Ok(())
    }

    fn act_on(&mut self, side: usize, end: usize) -> Check {
        let chance = self.rng.below(100);
        match self.state(side, end) {
            EpState::Unconnected => match chance {
                0..45 => self.post_recv(side, end, false),
                45..95 => self.connect(side, end),
                _ => self.free(side, end),
            },
            EpState::Connected => match chance {
                0..35 => self.post_recv(side, end, false),
                35..88 => self.post_request(side, end, false),
                88..91 => self.disconnect(side, end, CloseFlag::Graceful),
                91..93 => self.disconnect(side, end, CloseFlag::Abrupt),
                93..95 => self.disconnect_peers(side, end),
                95..97 => self.disconnect_all(side),
                97 => self.free(side, end),
                _ => {
                    self.turn(Duration::from_micros(20));
                    Ok(())
                }
            },
            EpState::DisconnectPending => match chance {
                0..30 => self.post_recv(side, end, false),
                30..35 => self.disconnect(side, end, CloseFlag::Abrupt),
                35..40 => self.disconnect(side, end, CloseFlag::Graceful),
                40..43 => self.free(side, end),
                _ => {
                    self.turn(Duration::from_micros(50));
                    Ok(())
                }
            },
            EpState::Disconnected => match chance {
                0..15 => self.post_request(side, end, true),
                15..30 => self.post_recv(side, end, true),
                30..36 => self.disconnect(side, end, CloseFlag::Abrupt),
                36..85 => self.reset(side, end),
                85..90 => self.free(side, end),
                _ => {
                    let queue = self.sides[side].ends[end].conn;
                    self.dequeue(side, queue).map(drop)
                }
            },
            _ => match chance {
                0..30 => self.post_recv(side, end, false),
                30..32 => self.disconnect(side, end, CloseFlag::Abrupt),
                32..34 => self.free(side, end),
                _ => {
                    self.turn(Duration::from_micros(20));
                    Ok(())
                }
            },
        }
    }

    // ---- connections ----

    /// A new connection of an Endpoint begins.
    fn begin(&mut self, side: usize, end: usize, peer: Option<usize>) -> usize {
        self.mark_stale(side, end);
        let queue = self.sides[side].ends[end].conn;
        self.note_crowd(side, queue);
        let consumer = &mut self.sides[side];
        let index = consumer.connections.len();
        consumer.connections.push(Connection {
            end,
            peer,
            connected: false,
            over: false,
            ended: false,
            freed: false,
            established_seen: false,
            terminal_seen: false,
            early: 0,
            stale: false,
        });
        let known = &mut consumer.ends[end];
        known.current = Some(index);
        known.connections += 1;
        known.open.push_back(index);
        for item in known.receives.iter_mut().filter(|item| !item.dropped) {
            item.connection.get_or_insert(index);
        }
        index
    }

    /// Whether the events of an Endpoint's earlier connections may wait behind a new one.
    fn may_begin(&self, side: usize, end: usize) -> bool {
        let known = &self.sides[side].ends[end];
        known.open.is_empty() || self.fits_stale(side, known.conn, known.open.len())
    }

    pub(super) fn connect(&mut self, side: usize, end: usize) -> Check {
        if !self.may_begin(side, end) {
            let queue = self.sides[side].ends[end].conn;
            return self.dequeue(side, queue).map(drop);
        }
        let (now, to) = (self.ias.now(), self.ias[1 - side].address());
        let qualifier = if self.rng.percent(97) { self.sides[1 - side].qualifier } else { 9 };
        let timeout = Duration::from_millis(self.rng.of(&[2, 500, 5_000]));
        let next = self.sides[side].connections.len() as u32;
        let ep = self.sides[side].ends[end].ep;
        self.steps += 1;
        let asked = self.ias[side].ep_connect(
            now,
            ep,
            to,
            qualifier,
            timeout,
            &next.to_le_bytes(),
            Qos::BestEffort,
        );
        self.note(|| format!("{side}: connect end {end} as {next}: {asked:?}"));
        if asked.is_ok() {
            let index = self.begin(side, end, None);
            assert_eq!(index, next as usize);
        }
        Ok(())
    }

    /// A connection request has arrived.
    pub(super) fn requested(&mut self, side: usize, cr: Cr) -> Check {
        let Ok(param) = self.ias[side].cr_query(cr) else {
            return Ok(());
        };
        let mut index = [0; 4];
        index.copy_from_slice(&param.private_data[..4]);
        let from = u32::from_le_bytes(index) as usize;
        self.sides[side].requests.push(Request { cr, from });
        Ok(())
    }

    /// Accepts or rejects a connection request.
    pub(super) fn answer(&mut self, side: usize) -> Check {
        let count = self.sides[side].requests.len();
        let at = self.rng.below(count);
        let request = self.sides[side].requests[at];
        let idle: Vec<usize> = self
            .alive(side)
            .into_iter()
            .filter(|&end| {
                self.state(side, end) == EpState::Unconnected && self.may_begin(side, end)
            })
            .collect();
        let now = self.ias.now();
        self.steps += 1;
        if idle.is_empty() || self.rng.percent(4) {
            if idle.is_empty() && self.rng.percent(80) {
                return self.make_another(side);
            }
            let done = self.ias[side].cr_reject(now, request.cr, b"");
            self.note(|| format!("{side}: reject of {}: {done:?}", request.from));
            self.sides[side].requests.swap_remove(at);
            return Ok(());
        }
        let end = self.rng.of(&idle);
        let ep = self.sides[side].ends[end].ep;
        let done = self.ias[side].cr_accept(now, request.cr, Some(ep), b"");
        self.note(|| format!("{side}: end {end} accepts {}: {done:?}", request.from));
        self.sides[side].requests.swap_remove(at);
        if done.is_ok() {
            let index = self.begin(side, end, Some(request.from));
            self.sides[1 - side].connections[request.from].peer = Some(index);
            // A peer that had gone before was no connection to wait for.
            self.state(side, end);
        }
        Ok(())
    }

    pub(super) fn disconnect(&mut self, side: usize, end: usize, flag: CloseFlag) -> Check {
        let state = self.state(side, end);
        let now = self.ias.now();
        let ep = self.sides[side].ends[end].ep;
        self.steps += 1;
        let done = self.ias[side].ep_disconnect(now, ep, flag);
        self.note(|| format!("{side}: disconnect end {end} {flag:?} in {state:?}: {done:?}"));
        let legal = state != EpState::Unconnected;
        if done.is_ok() != legal {
            return violation("disconnect", format!("side {side}, {state:?}: {done:?}"));
        }
        if legal {
            if let Some(current) = self.sides[side].ends[end].current {
                self.sides[side].connections[current].over = true;
            }
        }
        Ok(())
    }

    /// Both ends of a connection at once.
    fn disconnect_peers(&mut self, side: usize, end: usize) -> Check {
        let current = self.sides[side].ends[end].current;
        let peer = current.and_then(|index| self.sides[side].connections[index].peer);
        let flags = [CloseFlag::Abrupt, CloseFlag::Graceful];
        let flag = self.rng.of(&flags);
        self.disconnect(side, end, flag)?;
        let Some(peer) = peer else { return Ok(()) };
        let far = self.sides[1 - side].connections[peer].end;
        if self.sides[1 - side].ends[far].current == Some(peer)
            && !self.sides[1 - side].ends[far].freed
            && self.state(1 - side, far) != EpState::Unconnected
        {
            let flag = self.rng.of(&flags);
            self.disconnect(1 - side, far, flag)?;
        }
        Ok(())
    }

    /// Every connection of a side at once.
    pub(super) fn disconnect_all(&mut self, side: usize) -> Check {
        let graceful = self.rng.percent(70);
        for end in self.alive(side) {
            if self.state(side, end) == EpState::Connected {
                let flag = if graceful { CloseFlag::Graceful } else { CloseFlag::Abrupt };
                self.disconnect(side, end, flag)?;
            }
        }
        Ok(())
    }

    pub(super) fn reset(&mut self, side: usize, end: usize) -> Check {
        let ep = self.sides[side].ends[end].ep;
        self.steps += 1;
        let done = self.ias[side].ep_reset(ep);
        self.note(|| format!("{side}: reset end {end}: {done:?}"));
        if let Err(error) = done {
            return violation("reset", format!("side {side}, end {end}: {error}"));
        }
        self.sides[side].ends[end].current = None;
        self.drop_posted(side, end);
        let state = self.state(side, end);
        if state != EpState::Unconnected {
            return violation("reset", format!("side {side}, end {end}: {state:?}"));
        }
        Ok(())
    }

    pub(super) fn free(&mut self, side: usize, end: usize) -> Check {
        self.state(side, end);
        let known = &self.sides[side].ends[end];
        let open = known.open.len();
        if open > 0 && !self.fits_stale(side, known.conn, open) {
            return Ok(());
        }
        let (now, ep) = (self.ias.now(), known.ep);
        self.steps += 1;
        let done = self.ias[side].ep_free(now, ep);
        self.note(|| format!("{side}: free end {end}: {done:?}"));
        if let Err(error) = done {
            return violation("free", format!("side {side}, end {end}: {error}"));
        }
        let consumer = &mut self.sides[side];
        if let Some(current) = consumer.ends[end].current {
            let connection = &mut consumer.connections[current];
            // In DISCONNECTED its terminal event has been generated; in any other state none is
            // due.
            connection.freed = !connection.ended;
        }
        self.mark_stale(side, end);
        self.drop_posted(side, end);
        self.sides[side].ends[end].freed = true;
        if self.ias[side].ep_get_status(ep).is_ok() {
            return violation("free", format!("side {side}, end {end}: the handle still works"));
        }
        Ok(())
    }

    fn make_another(&mut self, side: usize) -> Check {
        if self.alive(side).len() >= 6 || self.sides[side].ends.len() >= 200 {
            return Ok(());
        }
        let queues: Vec<usize> = (0..self.sides[side].queues.len())
            .filter(|&queue| {
                let flags = self.sides[side].queues[queue].flags;
                flags.contains(EvdFlags::DTO)
            })
            .collect();
        let (recv, request) = (self.rng.of(&queues), self.rng.of(&queues));
        let takes: Vec<usize> = (0..self.sides[side].queues.len())
            .filter(|&queue| {
                let flags = self.sides[side].queues[queue].flags;
                // Its events have places of their own; those of freed Endpoints must go on to fit.
                let room =
                    self.sides[side].queues[queue].stale == 0 || self.fits_stale(side, queue, 1);
                flags.contains(EvdFlags::CONNECTION) && room
            })
            .collect();
        if takes.is_empty() {
            return Ok(());
        }
        let conn = self.rng.of(&takes);
        self.make_end(side, recv, request, conn);
        Ok(())
    }

    /// Frees an RMR, or makes one.
    fn rmr(&mut self, side: usize) -> Check {
        self.steps += 1;
        let count = self.sides[side].rmrs.len();
        if count == 0 || self.rng.percent(50) && count < 4 {
            let pz = self.sides[side].pz;
            let made = if self.rng.percent(50) {
                self.ias[side].rmr_create(pz)
            } else {
                self.ias[side].rmr_create_for_ep(pz)
            };
            self.sides[side].rmrs.extend(made);
            return Ok(());
        }
        let at = self.rng.below(count);
        let rmr = self.sides[side].rmrs.swap_remove(at);
        let done = self.ias[side].rmr_free(rmr);
        self.note(|| format!("{side}: rmr_free {rmr:?}: {done:?}"));
        if let Err(error) = done {
            return violation("free", format!("side {side}, {rmr:?}: {error}"));
        }
        // Which of the binds were of this RMR does not matter: each is due anyway.
        for end in &mut self.sides[side].ends {
            for item in &mut end.requests {
                if matches!(item.kind, Kind::Bind { .. }) {
                    item.kind = Kind::Bind { freed: true };
                }
            }
        }
        Ok(())
    }

    // ---- Event Dispatchers ----

    fn resize(&mut self, side: usize) -> Check {
        let queue = self.rng.below(self.sides[side].queues.len());
        let known = &self.sides[side].queues[queue];
        let (evd, flags, old) = (known.evd, known.flags, known.qlen);
        self.steps += 1;
        if self.rng.percent(40) {
            let Ok(held) = self.ias[side].evd_more(evd) else {
                return Ok(());
            };
            if held > 1 && held as usize <= old {
                let done = self.ias[side].evd_resize(evd, held - 1);
                if done.is_ok() {
                    return violation("resize", format!("side {side}: {held} held, {done:?}"));
                }
            }
            return Ok(());
        }
        let most = if flags.contains(EvdFlags::DTO) && !flags.contains(EvdFlags::SOFTWARE) {
            128
        } else {
            RING
        };
        let shared: usize = self.sides[side].shared.iter().map(|s| s.posted.len()).sum();
        let least = known.charged + shared + self.ring_charge(side, queue) + 1;
        if least > most {
            return Ok(());
        }
        let new = least + self.rng.below(most - least + 1);
        let done = self.ias[side].evd_resize(evd, new as u32);
        self.note(|| format!("{side}: resize queue {queue} from {old} to {new}: {done:?}"));
        if done.is_ok() {
            self.sides[side].queues[queue].qlen = new;
        }
        Ok(())
    }

    fn post_software(&mut self, side: usize) -> Check {
        let queue = self.rng.below(self.sides[side].queues.len());
        let known = &self.sides[side].queues[queue];
        let full = self.ring_charge(side, queue) >= RING.min(known.qlen);
        if !known.flags.contains(EvdFlags::SOFTWARE) || known.stale > 0 && full {
            return Ok(());
        }
        let evd = known.evd;
        self.cookie += 1;
        let number = self.cookie;
        self.steps += 1;
        if self.ias[side].evd_post_se(evd, number).is_ok() {
            self.sides[side].queues[queue].software.push_back(number);
            self.note_crowd(side, queue);
        }
        Ok(())
    }

    /// A wait for a CNO or an Event Dispatcher that is over at once.
    fn notification(&mut self, side: usize) -> Check {
        let now = self.ias.now();
        self.steps += 2;
        if let Some(cno) = self.sides[side].cno {
            if self.rng.percent(50) {
                let mut wait = self.ias[side].cno_wait(now, cno, Duration::ZERO).unwrap();
                let _ = self.ias[side].cno_waited(now, &mut wait);
                self.ias[side].cno_wait_end(&mut wait);
                return Ok(());
            }
        }
        let queue = self.rng.below(self.sides[side].queues.len());
        self.wait(side, queue, Duration::ZERO)
    }
}
