//! Event Dispatchers: dat_evd_*(3).
//!
//! One Event Dispatcher takes any mix of streams. Completions come straight from its completion
//! queue; all other events come through a ring that the control half fills. The rules of order are
//! the reaper's, see [`EvdReaper`].
//!
//! What wakes somebody (a wait, a CNO, an upcall) is found by looking, in `count` and `arrival`;
//! nothing of it is on the way of an event that is merely dequeued.

mod absorb;
mod arrival;
mod chain;
mod clear_unwaitable;
mod count;
mod create;
mod dequeue;
mod disable;
mod enable;
mod finish;
mod follow;
mod free;
mod kcreate;
mod modify_cno;
mod modify_upcall;
mod post_se;
mod query;
mod reaper;
mod resize;
mod set_unwaitable;
mod wait;

pub use kcreate::{Upcall, UpcallPolicy};
pub use modify_upcall::UpcallFlag;
pub use query::EvdParam;
pub use reaper::EvdReaper;
pub use wait::EvdWait;

pub(crate) use absorb::{known, look_through};
pub(crate) use finish::untold;
pub(crate) use kcreate::Upcalls;
pub(crate) use reaper::Reaper;

use crate::counters::EvdTally;
use crate::dat_return::{DatReturn, DatSubtype, DatType};
use crate::flags::EvdFlags;
use crate::handle::{Cno, Evd};
use crate::ia::Ia;
use crate::provider::{Cq, Provider};
use crate::shared::Shared;
use crate::shared::evd::{DEAD, EvdShared};

/// What the control half knows of one Event Dispatcher.
#[derive(Debug)]
pub(crate) struct EvdControl<P: Provider> {
    pub(crate) flags: EvdFlags,
    /// Events the consumer may count on.
    pub(crate) qlen: u32,
    /// Events the ring takes.
    pub(crate) ring: u32,
    pub(crate) cq: Option<Cq>,
    /// Streams attached: directions and connections of Endpoints, service points.
    pub(crate) streams: u32,
    /// The device announced completions, and the consumer has not asked.
    pub(crate) notified: bool,
    /// The same, and who listens has not been told.
    pub(crate) announced: bool,
    pub(crate) cno: Option<Cno>,
    /// Arrivals trigger the CNO.
    pub(crate) enabled: bool,
    pub(crate) unwaitable: bool,
    /// Instead of a CNO and waits: kDAPL.
    pub(crate) upcalls: Option<Upcalls<P>>,
    pub(crate) tally: EvdTally,
}

impl<'s, P: Provider> Ia<'s, P> {
    /// The reaping half of `evd`, if it is here and the consumer may use it, with what it looks at.
    /// A reaper remembers whose it is: so one compare tells whether the handle is stale.
    #[inline]
    pub(crate) fn reaping(
        &mut self,
        evd: Evd,
    ) -> Result<(&mut Reaper<P>, &Shared<'s>, &'s EvdShared), DatReturn> {
        let index = evd.0.index();
        let reaper = self.data.reapers.get_mut(index as usize);
        match (reaper.and_then(Option::as_mut), self.data.shared.evd(index)) {
            (Some(reaper), Some(ring)) if reaper.evd == evd && ring.barred() == 0 => {
                Ok((reaper, &self.data.shared, ring))
            }
            (_, ring) => {
                let lives = self.events.evds.get(evd.0).is_some();
                Err(no_reaper(lives, ring.map_or(0, EvdShared::barred)))
            }
        }
    }

    /// The reaper of `evd`, if it is here and the consumer may use it.
    pub(crate) fn reaper(&mut self, evd: Evd) -> Result<&mut Reaper<P>, DatReturn> {
        self.reaping(evd).map(|(reaper, ..)| reaper)
    }

    /// The reaper of `evd`, if it is here.
    pub(crate) fn reaper_here(&mut self, evd: Evd) -> Result<&mut Reaper<P>, DatReturn> {
        let index = evd.0.index();
        let reaper = self.data.reapers.get_mut(index as usize);
        match reaper.and_then(Option::as_mut) {
            Some(reaper) if reaper.evd == evd => Ok(reaper),
            _ => Err(no_reaper(self.events.evds.get(evd.0).is_some(), 0)),
        }
    }
}

/// Why there is no reaper of an Event Dispatcher for the consumer.
#[cold]
#[inline(never)]
fn no_reaper(lives: bool, barred: u32) -> DatReturn {
    if !lives {
        DatReturn::new(DatType::InvalidHandle, DatSubtype::InvalidHandle1)
    } else if barred & DEAD == 0 {
        DatReturn::new(DatType::InvalidState, DatSubtype::InvalidStateEvdWaiter)
    } else {
        DatReturn::new(DatType::InvalidState, DatSubtype::InvalidStateEvdAsync)
    }
}
