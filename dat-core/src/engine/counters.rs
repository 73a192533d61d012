//! Counters of an Interface Adapter.

use core::ops::Range;

use crate::types::counters::IaCounter;

/// All of them.
pub(crate) type All = [u64; IaCounter::COUNT];

/// `DAT_IA_COUNTER_TYPE`: a part of the counters of an Interface Adapter that can be started and
/// stopped by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum CounterType {
    /// Of the connection manager.
    Cm,
    /// Of the link.
    Link,
    /// Of the transport.
    Diag,
}

impl CounterType {
    const ALL: [Self; 3] = [Self::Cm, Self::Link, Self::Diag];

    pub(crate) const fn range(self) -> Range<usize> {
        match self {
            Self::Cm => IaCounter::CmListen as usize..LINK,
            Self::Link => LINK..DIAG,
            Self::Diag => DIAG..IaCounter::COUNT,
        }
    }
}

/// Where those of the link and of the transport begin.
pub(crate) const LINK: usize = IaCounter::LnkErrRcv as usize;
pub(crate) const DIAG: usize = IaCounter::DiagErrRqRae as usize;

/// What an Interface Adapter counts itself, and since when.
#[derive(Debug)]
pub(crate) struct IaTally {
    /// Counted here; nothing where it is derived.
    pub(crate) own: All,
    /// To be taken off; of a type that is stopped, what it shows.
    pub(crate) base: All,
    pub(crate) stopped: [bool; 3],
}

impl IaTally {
    /// Stops the counters of that type, or starts them.
    pub(crate) fn set_stopped(&mut self, of: CounterType, stopped: bool) {
        if let Some(place) = self.stopped.get_mut(of as usize) {
            *place = stopped;
        }
    }

    pub(crate) const fn new() -> Self {
        Self { own: [0; IaCounter::COUNT], base: [0; IaCounter::COUNT], stopped: [false; 3] }
    }

    /// One more.
    pub(crate) fn count(&mut self, counter: IaCounter) {
        if let Some(own) = self.own.get_mut(counter as usize) {
            *own = own.wrapping_add(1);
        }
    }

    fn is_stopped(&self, counter: usize) -> bool {
        let stopped = CounterType::ALL.iter().zip(self.stopped);
        stopped.into_iter().any(|(of, stopped)| stopped && of.range().contains(&counter))
    }

    /// What is shown of what has been counted.
    pub(crate) fn shown(&self, counted: &All) -> All {
        core::array::from_fn(|at| {
            let of = |all: &All| all.get(at).copied().unwrap_or_default();
            if self.is_stopped(at) {
                of(&self.base)
            } else {
                of(counted).wrapping_sub(of(&self.base))
            }
        })
    }

    /// Shows nothing of `range` from now on but what comes.
    pub(crate) fn restart(&mut self, range: Range<usize>, counted: &All) {
        for at in range {
            let stopped = self.is_stopped(at);
            if let (Some(base), Some(counted)) = (self.base.get_mut(at), counted.get(at)) {
                *base = if stopped { 0 } else { *counted };
            }
        }
    }
}
