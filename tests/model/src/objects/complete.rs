//! Completions of the device's queues: at once or late, and what follows from each.

use super::cq::{Cq, CqFault, Posted};
use super::cqe::Cqe;
use super::device::Device;
use crate::eq::Event;
use crate::facts::OpenFact;
use crate::host::Nanos;
use crate::regs::ticks;
use rand::Rng;
use std::collections::BTreeSet;

impl Device<'_> {
    /// The user index of a completion, where completions have one.
    pub(crate) fn user_index_of(&self, index: u32) -> u32 {
        if self.user_index { index } else { 0 }
    }

    /// Completes a work request of a queue, at once or later.
    pub(crate) fn complete(&mut self, number: u32, cqn: u32, cqe: &Cqe) {
        match self.facts.value(OpenFact::CqeOrder) {
            None => self.write_completion(number, cqn, cqe),
            Some(most) => {
                let after = self.bus.rng.random_range(0..most);
                self.objects.late.put(self.bus.now + after, number, cqn, cqe);
            }
        }
    }

    /// Writes the completions due by a time; says when the next is.
    pub(crate) fn write_late(&mut self, until: Nanos) -> Option<Nanos> {
        for (number, cqn, cqe) in self.objects.late.take(until) {
            self.write_completion(number, cqn, &cqe);
        }
        let timed = self.serve_timed(until);
        [self.objects.late.next(), timed].into_iter().flatten().min()
    }

    /// Ends the sessions of compressed completions that are due by a time, and raises the events
    /// whose time has come; says when the next is due.
    fn serve_timed(&mut self, until: Nanos) -> Option<Nanos> {
        let sessions = self.objects.sessions.due(until);
        let events = self.objects.held_events.due(self.bus.now);
        let due: BTreeSet<u32> = sessions.chain(events).collect();
        for cqn in due {
            let session = self.objects.cqs.get(&cqn).and_then(Cq::session_due);
            if session.is_some_and(|due| due <= until) {
                self.end_session(cqn);
            }
            self.raise(cqn);
        }
        [self.objects.sessions.next(), self.objects.held_events.next()].into_iter().flatten().min()
    }

    /// Takes note of what became due of a CQ at another time than before, or not at all: for
    /// after every change of one.
    pub(crate) fn reschedule_cq(&mut self, cqn: u32) {
        let cq = self.objects.cqs.get(&cqn);
        self.objects.sessions.set(cqn, cq.and_then(Cq::session_due));
        self.objects.held_events.set(cqn, cq.and_then(Cq::event_due));
    }

    /// Raises the event of a CQ that waits, if moderation lets it. What the CQ holds back is
    /// written before.
    pub(crate) fn raise(&mut self, cqn: u32) {
        let now = self.bus.now;
        if self.objects.cqs.get_mut(&cqn).is_some_and(|cq| cq.raise(now)) {
            self.end_session(cqn);
            self.announce(cqn);
        }
        self.reschedule_cq(cqn);
    }

    /// Posts the completion event of a CQ.
    pub(crate) fn announce(&mut self, cqn: u32) {
        if let Some(cq) = self.objects.cqs.get_mut(&cqn) {
            cq.event_at = self.eqs.position(cq.eqn);
            self.eqs.post(self.bus, cq.eqn, &Event::completion(cqn));
        }
    }

    /// Ends the session of compressed completions of a CQ, if it has one.
    pub(crate) fn end_session(&mut self, cqn: u32) {
        if let Some(cq) = self.objects.cqs.get_mut(&cqn) {
            if let Err(fault) = cq.end_session(self.bus) {
                self.lost(cqn, fault);
            }
        }
        self.reschedule_cq(cqn);
    }

    /// Writes a completion and whatever follows from it.
    fn write_completion(&mut self, number: u32, cqn: u32, cqe: &Cqe) {
        let Some(cq) = self.objects.cqs.get_mut(&cqn) else {
            return;
        };
        // Nanoseconds everywhere in the model, ticks of the device's clock for the driver.
        let cqe = &Cqe { timestamp: ticks(cqe.timestamp), ..*cqe };
        let posted = cq.post(self.bus, number, cqe);
        self.reschedule_cq(cqn);
        match posted {
            Posted::Silent | Posted::Dead => {}
            Posted::Event => self.announce(cqn),
            Posted::Fault(fault) => self.lost(cqn, fault),
        }
    }

    /// A CQ went to error.
    fn lost(&mut self, cqn: u32, fault: CqFault) {
        self.bus.complain(format!("CQ {cqn:#x}: {fault:?}, an entry is lost"));
        self.eqs.raise(self.bus, &Event::cq_error(cqn, fault as u8));
        self.objects.doom_users_of(cqn);
    }
}
