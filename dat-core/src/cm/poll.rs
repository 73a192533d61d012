//! What the caller takes out: events, datagrams, deadlines.

use super::{Cause, Cm, CmEvent, Send, Slot, State, Transmit, Verdict};
use crate::time::Instant;

/// Searches the table from `cursor` on, once round; leaves the cursor behind what it found.
fn search<T>(
    slots: &mut [Slot],
    cursor: &mut usize,
    mut take: impl FnMut(&mut Slot) -> Option<T>,
) -> Option<T> {
    let start = (*cursor).min(slots.len());
    let (before, after) = slots.split_at_mut(start);
    let after = after
        .iter_mut()
        .enumerate()
        .map(|(index, slot)| (start + index, slot));
    for (index, slot) in after.chain(before.iter_mut().enumerate()) {
        if let Some(found) = take(slot) {
            *cursor = index + 1;
            return Some(found);
        }
    }
    None
}

impl Cm<'_> {
    /// The next event; call until `None`.
    ///
    /// Events wait in their slots, so none is lost however long they are left. Those of one connection come in order.
    pub fn poll_event(&mut self) -> Option<CmEvent> {
        if !self.events_waiting {
            return None;
        }
        let found = search(self.slots, &mut self.event_cursor, Slot::take_event);
        self.events_waiting = found.is_some();
        found
    }

    /// The next datagram to send from QP1 to QP1; call until `None` after any other call.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Transmit> {
        if let Some(answer) = self.answers.pop_front() {
            self.counters.sent += 1;
            return Some(Transmit {
                to: answer.to,
                mad: answer.emit(),
                conn: None,
            });
        }
        if !self.sends_waiting {
            return None;
        }
        let service_timeout = self.config.service_timeout;
        let found = search(self.slots, &mut self.send_cursor, |slot| {
            let again = slot.again;
            let mad = slot.take_mad(now, service_timeout)?;
            Some((
                again,
                Transmit {
                    to: slot.remote,
                    mad,
                    conn: Some(slot.conn()),
                },
            ))
        });
        self.sends_waiting = found.is_some();
        let (again, transmit) = found?;
        self.counters.sent += 1;
        self.counters.retransmitted += u64::from(again);
        Some(transmit)
    }

    /// When `advance` wants to be called next. It may turn out that nothing was due; `advance` then sets it right.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        (self.earliest != Instant::NEVER).then_some(self.earliest)
    }

    /// Does what is due at `now`: retransmissions, giving up, ends of timewait.
    pub fn advance(&mut self, now: Instant) {
        if now < self.earliest {
            return;
        }
        for index in 0..self.slots.len() {
            self.expire(now, index);
        }
        let deadlines = self.slots.iter().map(|slot| slot.deadline);
        self.earliest = deadlines.min().unwrap_or(Instant::NEVER);
        self.events_waiting = true;
        self.sends_waiting = true;
    }

    fn expire(&mut self, now: Instant, index: usize) {
        let Some(slot) = self.slots.get_mut(index) else {
            return;
        };
        if slot.deadline > now || slot.deadline == Instant::NEVER {
            return;
        }
        match slot.state {
            State::ReqSent | State::RepSent => {
                if !slot.ask_again(now, Send::Stored) {
                    slot.end(Verdict::Unreachable);
                    self.give_up(now, index);
                }
            }
            State::DreqSent => {
                if !slot.ask_again(now, Send::Dreq) {
                    slot.end(Verdict::Disconnected(Cause::Unanswered));
                    self.enter_time_wait(now, index);
                }
            }
            State::SidrSent => {
                if slot.limit <= now || !slot.ask_again(now, Send::Stored) {
                    slot.give_up_look_up();
                }
            }
            State::SidrReady => slot.give_up_look_up(),
            State::Idle
            | State::ReqReceived
            | State::RepReceived
            | State::Established
            | State::TimeWait
            | State::SidrReceived
            | State::SidrAnswered
            | State::SidrKept => slot.rest(State::Idle),
        }
    }
}
