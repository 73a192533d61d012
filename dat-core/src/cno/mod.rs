//! Consumer Notification Objects: dat_cno_*(3).
//!
//! A CNO gathers the notifications of the Event Dispatchers attached to it. An event that arrives
//! at an enabled one without a waiter triggers it; it stays triggered, with the first Event
//! Dispatcher as a hint, until a wait takes that. Further events meanwhile only call the agent, if
//! there is one: who is woken looks at all Event Dispatchers.
//!
//! Nothing here waits. A wait is begun, looked at and ended; a host sleeps in between. The agent is
//! called by [`Ia::advance`](crate::Ia::advance) and [`Ia::close`](crate::Ia::close), never from
//! within another call of the consumer.

mod create;
mod fd_create;
mod free;
mod modify_agent;
mod query;
mod trigger;
mod wait;

pub use query::{CnoParam, Proxy};
pub use wait::CnoWait;

use core::fmt;
use core::task::Waker;

use crate::Ia;
use crate::dat_return::{DatReturn, DatSubtype, DatType};
use crate::handle::{Cno, Evd};
use crate::provider::Provider;

/// `DAT_OS_WAIT_PROXY_AGENT`: whom a CNO tells, once, that it was triggered.
#[derive(Clone)]
pub enum Agent {
    /// This function is called, with the instance and the Event Dispatcher; with none when the last
    /// one was detached, or the adapter closed.
    Function {
        /// What the consumer wants to have back.
        instance: u64,
        /// What is called.
        function: fn(instance: u64, evd: Option<Evd>),
    },
    /// This is woken.
    Waker(Waker),
}

impl Agent {
    pub(crate) fn call(self, evd: Option<Evd>) {
        match self {
            Self::Function { instance, function } => function(instance, evd),
            Self::Waker(waker) => waker.wake(),
        }
    }
}

impl fmt::Debug for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Function { instance, .. } => write!(f, "Function({instance:#x})"),
            Self::Waker(_) => f.write_str("Waker"),
        }
    }
}

/// What the control half knows of one CNO.
#[derive(Debug)]
pub(crate) struct CnoControl {
    pub(crate) agent: Option<Agent>,
    /// It was made with a descriptor.
    pub(crate) fd: bool,
    /// Event Dispatchers attached.
    pub(crate) evds: u32,
    /// Waits that were begun and have not ended.
    pub(crate) waiters: u32,
    /// Triggered, and by whom.
    pub(crate) hint: Option<Evd>,
    /// What the agent is to be told at the next advance.
    pub(crate) due: Option<Option<Evd>>,
    /// Counts how often all Event Dispatchers were detached: a wait of an earlier count is over.
    pub(crate) life: u32,
}

const STALE: DatReturn = DatReturn::new(DatType::InvalidHandle, DatSubtype::InvalidHandleCno);

impl<P: Provider> Ia<'_, P> {
    pub(crate) fn cno(&self, cno: Cno) -> Result<&CnoControl, DatReturn> {
        self.events.cnos.get(cno.0).ok_or(STALE)
    }

    pub(crate) fn cno_mut(&mut self, cno: Cno) -> Result<&mut CnoControl, DatReturn> {
        self.events.cnos.get_mut(cno.0).ok_or(STALE)
    }

    /// An event arrived at `evd`.
    pub(crate) fn trigger(&mut self, cno: Cno, evd: Evd) {
        if let Ok(control) = self.cno_mut(cno) {
            // Completions that find no room are news at each look: who has been told is not told
            // again.
            let news = control.hint.is_none() || control.agent.is_some() && control.due.is_none();
            control.hint.get_or_insert(evd);
            if control.agent.is_some() {
                control.due.get_or_insert(Some(evd));
            }
            self.events.worked |= news;
        }
    }

    pub(crate) fn cno_attach(&mut self, cno: Option<Cno>) {
        if let Some(Ok(control)) = cno.map(|cno| self.cno_mut(cno)) {
            control.evds += 1;
        }
    }

    /// An Event Dispatcher leaves a CNO. The last one releases its waiters.
    pub(crate) fn cno_detach(&mut self, cno: Option<Cno>) {
        if let Some(Ok(control)) = cno.map(|cno| self.cno_mut(cno)) {
            control.evds = control.evds.saturating_sub(1);
            if control.evds == 0 {
                control.life = control.life.wrapping_add(1);
                control.due = Some(None);
            }
            self.events.worked = true;
        }
    }

    /// An Event Dispatcher is gone: a hint at it, also of a CNO that it has left before, says
    /// nothing any more.
    pub(crate) fn cno_forget(&mut self, gone: Evd) {
        for index in 0..self.events.cnos.capacity() {
            let handle = self.events.cnos.handle_at(index);
            if let Some(control) = handle.and_then(|cno| self.events.cnos.get_mut(cno)) {
                control.hint = control.hint.filter(|evd| *evd != gone);
                control.due = control.due.filter(|evd| *evd != Some(gone));
            }
        }
    }

    /// The adapter closes: agents are told of nobody.
    pub(crate) fn cno_over(&mut self) {
        while let Some(cno) = self.events.cnos.first() {
            let agent = self.events.cnos.get_mut(cno).and_then(|control| control.agent.take());
            self.events.cnos.remove(cno);
            if let Some(agent) = agent {
                agent.call(None);
            }
        }
    }

    /// Tells the agents what they are to be told.
    pub(crate) fn call_agents(&mut self) {
        for index in 0..self.events.cnos.capacity() {
            let Some(control) =
                self.events.cnos.handle_at(index).and_then(|c| self.events.cnos.get_mut(c))
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
