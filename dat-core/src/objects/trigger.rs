//! What triggers a CNO, and its agent.

use crate::objects::Events;
use crate::types::handle::{Cno, Evd};

impl Events<'_> {
    /// An event arrived at `evd`.
    pub(crate) fn trigger(&mut self, cno: Cno, evd: Evd) {
        if let Ok(control) = self.cnos.live_mut(cno) {
            // Completions without room are found at every look, but notify only once: an agent goes
            // when it is called.
            let notifies = control.hint.is_none() || control.agent.is_some();
            control.hint.get_or_insert(evd);
            if control.agent.is_some() {
                control.due.get_or_insert(Some(evd));
            }
            self.worked |= notifies;
        }
    }

    pub(crate) fn cno_attach(&mut self, cno: Option<Cno>) {
        if let Some(Ok(control)) = cno.map(|cno| self.cnos.live_mut(cno)) {
            control.evds += 1;
        }
    }

    /// An Event Dispatcher leaves a CNO. The last one releases its waiters.
    pub(crate) fn cno_detach(&mut self, cno: Option<Cno>) {
        if let Some(Ok(control)) = cno.map(|cno| self.cnos.live_mut(cno)) {
            control.evds = control.evds.saturating_sub(1);
            if control.evds == 0 {
                control.generation = control.generation.wrapping_add(1);
                control.due = Some(None);
            }
            self.worked = true;
        }
    }

    /// Forgets hints at an Event Dispatcher that is gone, also in a CNO that it has left before.
    pub(crate) fn cno_forget(&mut self, gone: Evd) {
        for index in 0..self.cnos.capacity() {
            let handle = self.cnos.handle_at(index);
            if let Some(control) = handle.and_then(|cno| self.cnos.get_mut(cno)) {
                control.hint = control.hint.filter(|evd| *evd != gone);
                control.due = control.due.filter(|evd| *evd != Some(gone));
            }
        }
    }

    /// Calls and removes all agents with no Event Dispatcher: the adapter closes.
    pub(crate) fn cno_over(&mut self) {
        while let Some(cno) = self.cnos.first() {
            let agent = self.cnos.get_mut(cno).and_then(|control| control.agent.take());
            self.cnos.remove(cno);
            if let Some(agent) = agent {
                agent.call(None);
            }
        }
    }

    /// Calls the agents that are due.
    pub(crate) fn call_agents(&mut self) {
        for index in 0..self.cnos.capacity() {
            let Some(control) = self.cnos.handle_at(index).and_then(|c| self.cnos.get_mut(c))
            else {
                continue;
            };
            if let Some(evd) = control.due.take()
                && let Some(agent) = control.agent.take()
            {
                agent.call(evd);
            }
        }
    }
}
