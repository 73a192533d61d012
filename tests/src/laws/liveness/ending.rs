//! The end of a program: the consumer of each side does one thing only, and everything that was
//! accepted ends.

use std::task::Poll;
use std::time::Duration;

use dat_core::{CloseFlag, DatReturn, DatType, EpState, EvdFlags};

use super::check::skipped;
use super::state::{Kind, Posted, Program};
use crate::conformance::{A, B, Side};
use crate::laws::{Check, violation};

/// Everything accepted has ended after this time. A graceful disconnect that makes no progress may
/// be ended by the implementation after 30 s, connects end after 5 s at most, and peers answer at
/// once.
pub(super) const DEADLINE: Duration = Duration::from_secs(75);
/// Longest step of time while nothing happens.
const LEAP: Duration = Duration::from_millis(50);

/// Behaviour of a consumer after the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// Dequeues its connection Event Dispatchers.
    Connections,
    /// Waits for its connection Event Dispatchers by `evd_wait`.
    Waits,
    /// Drives the adapter, and looks once in the end.
    Advances,
    /// Dequeues everything.
    Everything,
}

impl<S: Side> Program<'_, '_, S> {
    /// Ends the program and checks the law.
    pub(super) fn finish(&mut self) -> Check {
        if self.rng.percent(60) {
            for side in [A, B] {
                if self.rng.percent(60) {
                    self.disconnect_all(side)?;
                }
            }
        }
        let endings = [
            Ending::Connections,
            Ending::Connections,
            Ending::Waits,
            Ending::Advances,
            Ending::Advances,
            Ending::Everything,
        ];
        let endings = [A, B].map(|_| self.rng.of(&endings));
        self.note(|| format!("ending: {endings:?}"));
        self.await_endings(endings)?;
        for side in [A, B] {
            if endings[side] != Ending::Everything {
                self.idle(side, "idle-undequeued")?;
            }
        }
        self.await_endings([Ending::Everything; 2])?;
        self.complete()
    }

    /// Connection queues of a side, alive or with events of freed Endpoints.
    fn connection_queues(&self, side: usize) -> Vec<usize> {
        let queues = self.sides[side].queues.iter().enumerate();
        queues
            .filter(|(_, queue)| queue.flags.contains(EvdFlags::CONNECTION))
            .map(|(index, _)| index)
            .collect()
    }

    /// Runs until everything due has ended, or the deadline has passed.
    fn await_endings(&mut self, endings: [Ending; 2]) -> Check {
        let start = self.ias.now();
        let mut leap = Duration::from_nanos(500);
        // Everything that has been posted gets some time in any case.
        let least = start + Duration::from_millis(20);
        loop {
            let before = self.open_connections();
            self.ias.turn(leap);
            leap = (leap * 2).min(LEAP);
            for side in [A, B] {
                self.drain_async(side)?;
                match endings[side] {
                    Ending::Advances => {}
                    Ending::Connections => {
                        for queue in self.connection_queues(side) {
                            self.drain(side, queue)?;
                        }
                    }
                    Ending::Waits => {
                        for queue in self.connection_queues(side) {
                            self.wait(side, queue, Duration::ZERO)?;
                        }
                    }
                    Ending::Everything => {
                        for queue in 0..self.sides[side].queues.len() {
                            self.drain(side, queue)?;
                        }
                        self.sides[side].requests.clear();
                    }
                }
            }
            if self.open_connections() != before {
                leap = Duration::from_micros(1);
            }
            let now = self.ias.now();
            if now < least {
                continue;
            }
            let missing = [A, B].into_iter().find_map(|side| {
                let missing = self.missing(side, endings[side] == Ending::Advances)?;
                Some((side, missing))
            });
            match missing {
                None => break,
                Some((side, index)) if now.since(start) > DEADLINE => {
                    return self.tell_missing(side, index, endings[side]);
                }
                Some(_) => {}
            }
        }
        for side in [A, B] {
            if endings[side] == Ending::Advances {
                // One look, without another call of the progress engine.
                for queue in 0..self.sides[side].queues.len() {
                    self.drain(side, queue)?;
                }
                if let Some(index) = self.missing(side, false) {
                    return self.tell_missing(side, index, endings[side]);
                }
            }
        }
        Ok(())
    }

    /// Connections whose terminal event has not been dequeued.
    fn open_connections(&self) -> usize {
        let open = |side: usize| -> usize {
            let ends = self.sides[side].ends.iter();
            ends.map(|end| end.open.len()).sum()
        };
        open(A) + open(B)
    }

    /// Whether the connection is to end, and its events are due.
    fn due(&self, side: usize, index: usize) -> bool {
        let connection = &self.sides[side].connections[index];
        let peer_over = connection.peer.is_some_and(|peer| {
            let far = &self.sides[1 - side].connections[peer];
            far.over || far.freed
        });
        !connection.freed && (connection.over || peer_over)
    }

    /// A connection whose end is due and missing: by its events, or by its state alone.
    fn missing(&mut self, side: usize, by_state: bool) -> Option<usize> {
        for end in 0..self.sides[side].ends.len() {
            for at in 0..self.sides[side].ends[end].open.len() {
                let index = self.sides[side].ends[end].open[at];
                let known = &self.sides[side].ends[end];
                let current = !known.freed && known.current == Some(index);
                let state = current.then(|| self.state(side, end));
                let pending = matches!(
                    state,
                    Some(EpState::ActiveConnectionPending | EpState::CompletionPending)
                );
                let connection = &self.sides[side].connections[index];
                if connection.freed {
                    continue;
                }
                let crowded = self.sides[side].queues[self.sides[side].ends[end].conn].crowded;
                let established = connection.connected && !connection.established_seen && !crowded;
                let missing = if by_state {
                    pending
                        || self.due(side, index)
                            && state.is_some_and(|state| state != EpState::Disconnected)
                } else {
                    pending || established || self.due(side, index)
                };
                if missing {
                    return Some(index);
                }
            }
        }
        None
    }

    fn tell_missing(&mut self, side: usize, index: usize, ending: Ending) -> Check {
        let connection = self.sides[side].connections[index].clone();
        let end = connection.end;
        let known = &self.sides[side].ends[end];
        let current = !known.freed && known.current == Some(index);
        let what = format!("side {side}, end {end}, connection {index}, {ending:?}");
        if current {
            let state = self.state(side, end);
            let known = &self.sides[side].ends[end];
            if state != EpState::Disconnected && state != EpState::Connected {
                let sends = known.requests.iter().filter(|item| item.kind == Kind::Send);
                let rule = if sends.count() > 0 { "stuck-send" } else { "stuck" };
                return violation(rule, format!("{what}: {state:?} after {DEADLINE:?}"));
            }
            if state == EpState::Connected && self.due(side, index) {
                let Some(peer) = connection.peer else {
                    return violation("stuck", what);
                };
                let far = &self.sides[1 - side].connections[peer];
                let far_end = &self.sides[1 - side].ends[far.end];
                if !far.ended && !far_end.freed && far_end.current == Some(peer) {
                    // The peer's own disconnect is the one that does not end.
                    return self.tell_missing(1 - side, peer, ending);
                }
                return violation("peer-stuck", format!("{what}: the peer's end did not arrive"));
            }
        }
        let crowded = self.sides[side].queues[self.sides[side].ends[end].conn].crowded;
        let rule = if connection.connected && !connection.established_seen && !crowded {
            "lost-established"
        } else if current {
            "lost-terminal"
        } else if self.sides[side].ends[end].freed {
            "lost-terminal-freed"
        } else {
            "lost-terminal-reset"
        };
        violation(rule, format!("{what}: no event, its state says that it is due"))
    }

    /// Waits for a queue once, until `timeout`.
    pub(super) fn wait(&mut self, side: usize, queue: usize, timeout: Duration) -> Check {
        let evd = self.sides[side].queues[queue].evd;
        loop {
            let now = self.ias.now();
            let mut wait = match self.ias[side].evd_wait(now, evd, timeout, 1) {
                Ok(wait) => wait,
                Err(error) => return violation("wait", format!("side {side}: {error}")),
            };
            let found = self.ias[side].evd_waited(now, &mut wait);
            self.ias[side].evd_wait_end(&mut wait);
            match found {
                Poll::Ready(Ok(event)) => {
                    self.steps += 2;
                    self.judge(side, queue, event)?;
                }
                Poll::Ready(Err(DatReturn::QUEUE_EMPTY)) | Poll::Pending => return Ok(()),
                Poll::Ready(Err(error)) if error.ty() == DatType::TimeoutExpired => {
                    return Ok(());
                }
                Poll::Ready(Err(error)) => {
                    return violation("wait", format!("side {side}: {error}"));
                }
            }
        }
    }

    /// Everything posted has come back, and what is idle says so.
    fn complete(&mut self) -> Check {
        for side in [A, B] {
            for end in self.alive(side) {
                if self.state(side, end) != EpState::Disconnected {
                    continue;
                }
                let known = &self.sides[side].ends[end];
                let due = |item: &&Posted| !item.suppressed && !item.dropped;
                let lost = known.requests.iter().chain(&known.receives).find(due);
                if let Some(&item) = lost {
                    let rule = match skipped(item) {
                        "completion-order" => "lost-completion",
                        rule => rule,
                    };
                    return violation(rule, format!("side {side}, end {end}: {item:?}"));
                }
            }
            self.idle(side, "idle")?;
        }
        if self.rng.percent(50) {
            return Ok(());
        }
        for side in [A, B] {
            for end in self.alive(side) {
                if self.rng.percent(50) && self.state(side, end) == EpState::Connected {
                    self.disconnect(side, end, CloseFlag::Abrupt)?;
                }
                self.free(side, end)?;
            }
        }
        self.await_endings([Ending::Everything; 2])
    }

    /// Endpoints without outstanding requests or receives say so.
    fn idle(&mut self, side: usize, rule: &'static str) -> Check {
        for end in self.alive(side) {
            let state = self.state(side, end);
            let known = &self.sides[side].ends[end];
            let waiting = |item: &Posted| !item.dropped && (item.kind == Kind::Send);
            // A send may wait for a receive of the peer, and everything else waits behind it. The
            // request that follows suppressed ones waits as well, and has the entry of
            // the completion queue that is there for such requests.
            let mut neighbours =
                self.sides[side].ends.iter().filter(|other| other.request == known.request);
            let blocked = neighbours.any(|other| other.requests.iter().any(waiting));
            let (requests, receives) = match state {
                EpState::Disconnected => (true, true),
                EpState::Connected => (!blocked, known.receives.is_empty()),
                EpState::Unconnected => (true, known.receives.iter().all(|item| item.dropped)),
                _ => (false, false),
            };
            let ep = known.ep;
            let mut status = self.ias[side].ep_get_status(ep).unwrap();
            for _ in 0..100 {
                if status.request_idle || !requests {
                    break;
                }
                // The end of suppressed requests shows a moment after the first call.
                self.turn(Duration::from_micros(10));
                status = self.ias[side].ep_get_status(ep).unwrap();
            }
            let known = &self.sides[side].ends[end];
            if requests && !status.request_idle
                || receives && !status.recv_idle && known.srq.is_none()
            {
                let tail = known.requests.back();
                return violation(
                    rule,
                    format!("side {side}, end {end}: {status:?}, last request {tail:?}"),
                );
            }
        }
        Ok(())
    }
}
