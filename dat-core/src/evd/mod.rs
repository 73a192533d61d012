//! Event Dispatchers: dat_evd_*(3).
//!
//! One Event Dispatcher takes any mix of streams. Completions come straight from its completion queue; all other events
//! come through a ring that the control half fills. The rules of order are the reaper's, see [`EvdReaper`].

mod absorb;
mod create;
mod dequeue;
mod free;
mod post_se;
mod query;
mod reaper;

pub use query::EvdParam;
pub use reaper::EvdReaper;

pub(crate) use reaper::{Reaper, bind_done};

use crate::Ia;
use crate::dat_return::{DatReturn, DatSubtype, DatType, Error};
use crate::event::{AsyncEvent, Event};
use crate::flags::EvdFlags;
use crate::handle::{Evd, Handle};
use crate::provider::{Cq, Provider};
use crate::shared::evd::EvdShared;

/// What the control half knows of one Event Dispatcher.
#[derive(Debug)]
pub(crate) struct EvdControl {
    pub(crate) flags: EvdFlags,
    /// Events the consumer may count on.
    pub(crate) qlen: u32,
    /// Events the ring takes.
    pub(crate) ring: u32,
    pub(crate) cq: Option<Cq>,
    /// Streams attached: directions and connections of Endpoints, service points.
    pub(crate) streams: u32,
    /// Count of the ring after the newest terminal event.
    pub(crate) terminal: u32,
    /// The device announced completions.
    pub(crate) notified: bool,
    /// Its completion queue failed.
    pub(crate) failed: bool,
}

impl<'s, P: Provider> Ia<'s, P> {
    /// What the halves share of that Event Dispatcher.
    #[inline]
    pub(crate) fn ring(&self, evd: Evd) -> Result<&'s EvdShared, DatReturn> {
        let stale = DatReturn::new(DatType::InvalidHandle, DatSubtype::InvalidHandle1);
        self.shared.evd(evd.0.index()).ok_or(stale)
    }

    /// The Event Dispatcher, or `INVALID_HANDLE` with the subtype of its role.
    pub(crate) fn evd(&self, evd: Evd, subtype: DatSubtype) -> Result<&EvdControl, DatReturn> {
        self.evds
            .get(evd.0)
            .ok_or(DatReturn::new(DatType::InvalidHandle, subtype))
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
        if let Some(control) = evd.and_then(|evd| self.evds.get_mut(evd.0)) {
            control.streams += 1;
        }
    }

    pub(crate) fn detach(&mut self, evd: Option<Evd>) {
        if let Some(control) = evd.and_then(|evd| self.evds.get_mut(evd.0)) {
            control.streams = control.streams.saturating_sub(1);
        }
    }

    /// Whether the ring of `evd` takes another event.
    pub(crate) fn has_room(&self, evd: Evd) -> bool {
        match (self.evds.get(evd.0), self.shared.evd(evd.0.index())) {
            (Some(control), Some(shared)) => shared.queued() < control.ring,
            _ => false,
        }
    }

    /// Puts an event into the ring; false if it is full.
    pub(crate) fn put(&mut self, evd: Evd, words: [u64; 3], terminal: bool) -> bool {
        let shared = self.shared;
        let Some(control) = self.evds.get_mut(evd.0) else {
            return false;
        };
        let Some(ring) = shared.evd(evd.0.index()) else {
            return false;
        };
        if ring.queued() >= control.ring {
            return false;
        }
        let tail = ring
            .producer
            .tail
            .load(core::sync::atomic::Ordering::Relaxed);
        let Some(slot) = reaper::slot(&shared, evd.0.index(), tail) else {
            return false;
        };
        slot.store(words);
        // ORDER: the words precede the count that makes them visible.
        ring.producer
            .tail
            .store(tail.wrapping_add(1), core::sync::atomic::Ordering::Release);
        if terminal {
            control.terminal = tail.wrapping_add(1);
        }
        true
    }

    /// Delivers an event. One that finds no room is lost, and the async Event Dispatcher hears of it.
    pub(crate) fn notify(&mut self, evd: Option<Evd>, event: Event) {
        let Some(evd) = evd else { return };
        if self.put(evd, event.encode(), event.is_terminal()) {
            self.worked = true;
            return;
        }
        let overflow = Event::Async(AsyncEvent::EvdOverflow(evd));
        if evd == self.async_evd || !self.put(self.async_evd, overflow.encode(), false) {
            // The last place to complain is full: that is the end of asynchronous reports.
            if let Some(control) = self.evds.get_mut(self.async_evd.0) {
                control.failed = true;
            }
        }
    }

    /// The reaper of `evd`, if it is here.
    pub(crate) fn reaper(&mut self, evd: Evd) -> Result<&mut Reaper<P>, DatReturn> {
        let subtype = DatSubtype::InvalidHandle1;
        let Some(control) = self.evds.get(evd.0) else {
            return Err(DatReturn::new(DatType::InvalidHandle, subtype));
        };
        if control.failed && evd == self.async_evd {
            return Err(DatReturn::new(
                DatType::InvalidState,
                DatSubtype::InvalidStateEvdAsync,
            ));
        }
        match self
            .reapers
            .get_mut(evd.0.index() as usize)
            .and_then(Option::as_mut)
        {
            Some(reaper) => Ok(reaper),
            None => Err(DatReturn::new(
                DatType::InvalidState,
                DatSubtype::InvalidStateEvdWaiter,
            )),
        }
    }

    /// Whether the reaper of that slot is in another thread's hands.
    pub(crate) fn reaper_is_out(&self, evd: Handle) -> bool {
        self.evds.get(evd).is_some()
            && self
                .reapers
                .get(evd.index() as usize)
                .is_none_or(Option::is_none)
    }
}
