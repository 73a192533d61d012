//! Output for the caller: events, datagrams, deadlines.

use crate::cm::Cm;
use crate::cm::event::{Cause, CmEvent, Transmit};
use crate::cm::lists::Head;
use crate::cm::slot::{Send, State, Verdict};
use crate::cm::wire::header::address;
use crate::types::bounds::DEADLINES;
use crate::types::time::Instant;

impl Cm<'_> {
    /// The next event; call until `None`.
    ///
    /// Events wait in their slots, so none is lost however long they are left. Those of one
    /// connection come in order.
    pub fn poll_event(&mut self) -> Option<CmEvent> {
        while let Some(index) = self.lists.pop(self.slots, Head::Events) {
            let event = self.slots.get_mut(index)?.take_event();
            self.touch(index);
            if event.is_some() {
                return event;
            }
        }
        None
    }

    /// The next datagram to send from QP1 to QP1; call until `None` after any other call.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Transmit> {
        if let Some(answer) = self.answers.pop_front() {
            self.counters.sent += 1;
            return Some(Transmit { to: address(answer.to), mad: answer.emit(), conn: None });
        }
        let service_timeout = self.config.service_timeout;
        while let Some(index) = self.lists.pop(self.slots, Head::Sends) {
            let slot = self.slots.get_mut(index)?;
            let again = slot.again;
            let Some(mad) = slot.take_mad(now, service_timeout) else {
                continue;
            };
            let transmit = Transmit { to: address(slot.remote), mad, conn: Some(slot.conn()) };
            self.touch(index);
            self.counters.sent += 1;
            self.counters.retransmitted += u64::from(again);
            return Some(transmit);
        }
        None
    }

    /// When `advance` wants to be called next. It may turn out that nothing was due; `advance` then
    /// sets it right.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        let earliest = self.earliest();
        (earliest != Instant::NEVER).then_some(earliest)
    }

    /// Does what is due at `now`: retransmissions, giving up, ends of timewait.
    pub fn advance(&mut self, now: Instant) {
        for _ in 0..DEADLINES {
            if self.earliest() > now {
                return;
            }
            self.expire(now, self.due());
        }
    }

    fn expire(&mut self, now: Instant, index: usize) {
        let Some(slot) = self.slots.get_mut(index) else {
            return;
        };
        if slot.deadline > now || slot.deadline == Instant::NEVER {
            return self.note_deadline(index);
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
            State::Established => {
                if slot.asked == 0 {
                    slot.rest(State::Established);
                } else if !slot.ask_again(now, slot.probe()) {
                    // This side has asked nothing that a peer which knows the connection answers.
                    if slot.active {
                        slot.asked = 0;
                        slot.rest(State::Established);
                    } else {
                        slot.end(Verdict::Disconnected(Cause::Stale));
                        slot.queue(Send::Dreq);
                        self.enter_time_wait(now, index);
                    }
                }
            }
            State::SidrSent => {
                if slot.limit <= now || !slot.ask_again(now, Send::Stored) {
                    slot.give_up_look_up();
                }
            }
            State::SidrReady => slot.give_up_look_up(),
            State::Idle
            | State::ReqReady
            | State::ReqReceived
            | State::RepReceived
            | State::TimeWait
            | State::SidrReceived
            | State::SidrAnswered
            | State::SidrKept => slot.rest(State::Idle),
        }
        self.touch(index);
    }
}
