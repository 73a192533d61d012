//! What triggers a CNO, and its agent.

use crate::objects::Events;
use crate::types::dat_return::DatReturn;
use crate::types::handle::{Cno, Evd};

impl Events<'_> {
    /// An event arrived at `evd`.
    pub(crate) fn trigger(&mut self, cno: Cno, evd: Evd) {
        if let Ok(control) = self.cnos.live_mut(cno) {
            // A hint at one that was freed counts for nothing, also in a CNO that it left before.
            let exists = |evd: &Evd| self.evds.get(evd.0).is_some();
            control.hint = control.hint.filter(exists);
            control.due = control.due.filter(|evd| evd.as_ref().is_none_or(exists));
            // Completions without room are found at every look, but notify only once: an agent goes
            // when it is called.
            let notifies = control.hint.is_none() || control.agent.is_some();
            control.hint.get_or_insert(evd);
            if control.agent.is_some() {
                control.due.get_or_insert(Some(evd));
                self.cnos.enqueue(cno.0);
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
        let Some(cno) = cno else { return };
        if let Ok(control) = self.cnos.live_mut(cno) {
            control.evds = control.evds.saturating_sub(1);
            if control.evds == 0 {
                control.generation = control.generation.wrapping_add(1);
                control.due = Some(None);
                self.cnos.enqueue(cno.0);
            }
            self.worked = true;
        }
    }

    /// The Event Dispatcher that triggered a CNO, if it was not freed meanwhile; the CNO is triggered
    /// no more.
    pub(crate) fn take_hint(&mut self, cno: Cno) -> Result<Option<Evd>, DatReturn> {
        let hint = self.cnos.live_mut(cno)?.hint.take();
        Ok(hint.filter(|evd| self.exists(*evd)))
    }

    pub(crate) fn exists(&self, evd: Evd) -> bool {
        self.evds.get(evd.0).is_some()
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
        for _ in 0..self.cnos.queued() {
            let Some(control) = self.cnos.dequeue().and_then(|cno| self.cnos.get_mut(cno)) else {
                return;
            };
            let Some(evd) = control.due.take() else { continue };
            if evd.is_none_or(|evd| self.evds.get(evd.0).is_some()) {
                if let Some(agent) = control.agent.take() {
                    agent.call(evd);
                }
            }
        }
    }
}
