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
mod consistency;
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

use crate::Ia;
use crate::counters::EvdTally;
use crate::dat_return::{DatReturn, DatSubtype, DatType, Error};
use crate::event::{AsyncEvent, Event};
use crate::flags::EvdFlags;
use crate::handle::{Cno, Evd, Handle};
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
    /// What the halves share of that Event Dispatcher, if it lives.
    pub(crate) fn ring(&self, evd: Evd) -> Option<&'s EvdShared> {
        self.events.evds.get(evd.0)?;
        self.data.shared.evd(evd.0.index())
    }

    /// The Event Dispatcher, or `INVALID_HANDLE` with the subtype of its role.
    pub(crate) fn evd(&self, evd: Evd, subtype: DatSubtype) -> Result<&EvdControl<P>, DatReturn> {
        self.events.evds.get(evd.0).ok_or(DatReturn::new(DatType::InvalidHandle, subtype))
    }

    /// An Event Dispatcher for a stream: must live and take that stream.
    pub(crate) fn evd_for(
        &self,
        evd: Evd,
        stream: EvdFlags,
        subtype: DatSubtype,
    ) -> Result<(), Error> {
        if self.evd(evd, subtype)?.flags.contains(stream) {
            Ok(())
        } else {
            Err(Error::new(DatType::InvalidHandle, subtype))
        }
    }

    pub(crate) fn attach(&mut self, evd: Option<Evd>) {
        if let Some(control) = evd.and_then(|evd| self.events.evds.get_mut(evd.0)) {
            control.streams += 1;
        }
    }

    pub(crate) fn detach(&mut self, evd: Option<Evd>) {
        if let Some(control) = evd.and_then(|evd| self.events.evds.get_mut(evd.0)) {
            control.streams = control.streams.saturating_sub(1);
        }
    }

    /// Whether the ring of `evd` takes another event.
    pub(crate) fn has_room(&self, evd: Evd) -> bool {
        match (self.events.evds.get(evd.0), self.data.shared.evd(evd.0.index())) {
            (Some(control), Some(shared)) => shared.queued() < control.ring,
            _ => false,
        }
    }

    /// Puts an event into the ring; false if it is full.
    pub(crate) fn put(&mut self, evd: Evd, words: [u64; 3]) -> bool {
        let shared = self.data.shared;
        let Some(control) = self.events.evds.get(evd.0) else {
            return false;
        };
        let Some(ring) = shared.evd(evd.0.index()) else {
            return false;
        };
        if ring.queued() >= control.ring {
            return false;
        }
        let tail = ring.producer.tail.load(core::sync::atomic::Ordering::Relaxed);
        let Some(slot) = reaper::slot(&shared, evd.0.index(), tail) else {
            return false;
        };
        slot.store(words);
        // ORDER: the words precede the count that makes them visible.
        ring.producer.tail.store(tail.wrapping_add(1), core::sync::atomic::Ordering::Release);
        ring.changed();
        true
    }

    /// Delivers an event. One that finds no room is lost, and the async Event Dispatcher hears of
    /// it.
    pub(crate) fn notify(&mut self, evd: Option<Evd>, event: Event) {
        let Some(evd) = evd else { return };
        if self.put(evd, event.encode()) {
            self.put_event(evd, event.is_connection());
        } else {
            self.overflowed(evd);
        }
    }

    /// An event is there for the consumer.
    pub(crate) fn put_event(&mut self, evd: Evd, connection: bool) {
        self.events.worked = true;
        self.arrived(evd);
        if connection && let Some(control) = self.events.evds.get_mut(evd.0) {
            control.tally.connections = control.tally.connections.wrapping_add(1);
        }
    }

    /// An event found no room and is lost: says so on the async Event Dispatcher.
    pub(crate) fn overflowed(&mut self, evd: Evd) {
        let overflow = Event::Async(AsyncEvent::EvdOverflow(evd));
        if self.put(self.events.async_evd, overflow.encode()) {
            self.put_event(self.events.async_evd, false);
        } else if let Some(ring) = self.ring(self.events.async_evd) {
            // The last place to complain is full: that is the end of asynchronous reports.
            ring.bar(DEAD);
        }
    }

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

    /// Whether the reaper of that slot is in another thread's hands.
    pub(crate) fn reaper_is_out(&self, evd: Handle) -> bool {
        self.events.evds.get(evd).is_some()
            && self.data.reapers.get(evd.index() as usize).is_none_or(Option::is_none)
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
