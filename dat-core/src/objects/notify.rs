//! Delivery of events that the control half makes: into the ring of an Event Dispatcher, and to
//! its CNO or upcalls.

use core::sync::atomic::Ordering;

use crate::data::DataPath;
use crate::data::poster::kick;
use crate::data::shared::evd::{DEAD, EvdShared};
use crate::objects::Events;
use crate::objects::evd::EvdControl;
use crate::provider::{Cq, Provider};
use crate::types::completion::Direction;
use crate::types::dat_return::{DatReturn, DatSubtype, DatType, Error};
use crate::types::event::{AsyncEvent, Event};
use crate::types::flags::EvdFlags;
use crate::types::handle::{Ep, Evd, Handle};

impl<'s> Events<'s> {
    /// The Event Dispatcher of a completion queue.
    pub(crate) fn evd_of(&self, cq: Cq) -> Option<Evd> {
        self.evds.numbered(cq.0, |control| control.cq == Some(cq)).map(Evd)
    }

    /// Whether a completion queue has an entry for another follower.
    pub(crate) fn has_entry(&self, evd: Evd) -> bool {
        let own = self.ring(evd).map_or(0, EvdShared::followers);
        self.evds.get(evd.0).is_some_and(|control| own < control.qlen)
    }

    /// Puts both directions of an Endpoint on the flush stacks of their Event Dispatchers.
    pub(crate) fn flush(&mut self, ep: Ep) {
        let shared = self.shared;
        let Some(line) = shared.ep(ep.0.index()) else {
            return;
        };
        for direction in [Direction::Send, Direction::Recv] {
            if line.outstanding(direction) != 0 {
                self.worked |= kick(&shared, ep.0.index(), line, direction);
            }
        }
    }

    /// What the halves share of that Event Dispatcher, if it exists.
    pub(crate) fn ring(&self, evd: Evd) -> Option<&'s EvdShared> {
        self.evds.get(evd.0)?;
        self.shared.evd(evd.0.index())
    }

    /// The Event Dispatcher, or `INVALID_HANDLE` with the subtype of its role.
    pub(crate) fn evd(&self, evd: Evd, subtype: DatSubtype) -> Result<&EvdControl, DatReturn> {
        self.evds.get(evd.0).ok_or(DatReturn::new(DatType::InvalidHandle, subtype))
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

    /// Whether an Endpoint whose requests complete there may post binds: only where their
    /// completions are expected.
    pub(crate) fn takes_binds(&self, evd: Option<Evd>) -> bool {
        let control = evd.and_then(|evd| self.evds.get(evd.0));
        control.is_some_and(|control| control.flags.contains(EvdFlags::RMR_BIND))
    }

    /// Whether the ring of `evd` takes another event.
    pub(crate) fn has_room(&self, evd: Evd) -> bool {
        match (self.evds.get(evd.0), self.shared.evd(evd.0.index())) {
            (Some(control), Some(shared)) => shared.queued() < control.ring,
            _ => false,
        }
    }

    /// Puts an event into the ring; false if it is full.
    pub(crate) fn put(&mut self, evd: Evd, words: [u64; 3]) -> bool {
        let shared = self.shared;
        let Some(control) = self.evds.get(evd.0) else {
            return false;
        };
        let Some(ring) = shared.evd(evd.0.index()) else {
            return false;
        };
        if ring.queued() >= control.ring {
            return false;
        }
        let tail = ring.producer.tail.load(Ordering::Relaxed);
        let Some(slot) = shared.event(evd.0.index(), tail) else {
            return false;
        };
        slot.store(words);
        // ORDER: the words precede the count that makes them visible.
        ring.producer.tail.store(tail.wrapping_add(1), Ordering::Release);
        ring.changed();
        true
    }

    /// Delivers an event. One that finds no room is lost, and the async Event Dispatcher reports
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
    pub(super) fn put_event(&mut self, evd: Evd, connection: bool) {
        self.worked = true;
        self.arrived(evd);
        if connection {
            if let Some(control) = self.evds.get_mut(evd.0) {
                control.tally.connections = control.tally.connections.wrapping_add(1);
            }
        }
    }

    /// An event found no room and is lost: says so on the async Event Dispatcher.
    pub(super) fn overflowed(&mut self, evd: Evd) {
        let overflow = Event::Async(AsyncEvent::EvdOverflow(evd));
        if self.put(self.async_evd, overflow.encode()) {
            self.put_event(self.async_evd, false);
        } else if let Some(ring) = self.ring(self.async_evd) {
            // The last place to complain is full: that is the end of asynchronous reports.
            ring.bar(DEAD);
        }
    }

    /// An event has come that notifies, if anybody listens.
    pub(crate) fn arrived(&mut self, evd: Evd) {
        let barred = self.ring(evd).is_none_or(|ring| ring.barred() != 0);
        let Some(control) = self.evds.get_mut(evd.0) else {
            return;
        };
        // One with a waiter triggers no CNO.
        let cno = control.cno.filter(|_| control.enabled && !barred);
        if let Some(upcalls) = &mut control.upcalls {
            upcalls.pending = true;
            self.evds.enqueue(evd.0);
        }
        if let Some(cno) = cno {
            self.trigger(cno, evd);
        }
    }

    /// [`Ia::advance`](crate::Ia::advance) looks for arrivals there, if anybody listens.
    pub(crate) fn look_at(&mut self, evd: Evd) {
        if self.listened(evd) {
            self.evds.enqueue(evd.0);
        }
    }

    /// The same, of the Event Dispatcher in that slot.
    pub(crate) fn look_at_slot(&mut self, slot: u32) {
        if let Some(evd) = self.evds.handle_at(slot) {
            self.look_at(Evd(evd));
        }
    }

    pub(crate) fn inside(&mut self, evd: Evd, inside: bool) {
        if let Some(upcalls) = self.evds.get_mut(evd.0).and_then(|c| c.upcalls.as_mut()) {
            upcalls.inside = inside;
        }
    }

    pub(crate) fn listened(&self, evd: Evd) -> bool {
        self.evds
            .get(evd.0)
            .is_some_and(|control| control.cno.is_some() || control.upcalls.is_some())
    }

    /// Whether the reaper of that slot is in another thread's hands.
    pub(crate) fn reaper_is_out<P: Provider>(&self, data: &DataPath<'_, P>, evd: Handle) -> bool {
        self.evds.get(evd).is_some()
            && data.reapers.get(evd.index() as usize).is_none_or(Option::is_none)
    }

    /// Raises an asynchronous event.
    pub(crate) fn report(&mut self, event: AsyncEvent) {
        self.notify(Some(self.async_evd), Event::Async(event));
    }
}
