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

use core::fmt;
use core::task::Waker;

use crate::objects::table::Kind;
use crate::types::dat_return::{DatReturn, DatSubtype, DatType};
use crate::types::handle::{Cno, Evd};

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
    /// The Event Dispatcher that triggered it.
    pub(crate) hint: Option<Evd>,
    /// The argument of the agent's call at the next advance.
    pub(crate) due: Option<Option<Evd>>,
    /// Counts how often all Event Dispatchers were detached: a wait of an earlier count is over.
    pub(crate) generation: u32,
}

impl Kind for CnoControl {
    type Handle = Cno;
    const STALE: DatReturn = DatReturn::new(DatType::InvalidHandle, DatSubtype::InvalidHandleCno);
}
