//! What is done to an Endpoint without the device: its state, the list of those that wait, and the
//! slots for its connection events.

use core::sync::atomic::Ordering;

use crate::cm::event::Reply;
use crate::data::DataPath;
use crate::data::shared::ep::EpShared;
use crate::data::shared::stack::END;
use crate::objects::ep::EpControl;
use crate::objects::ep::Phase;
use crate::objects::table::Kind;
use crate::objects::{Events, Objects};
use crate::provider::{Provider, Qp, Service, SharedRq};
use crate::types::dat_return::{DatReturn, DatSubtype, DatType, Error};
use crate::types::ep_state::{EpOp, EpState, Outcome, Signal, outcome};
use crate::types::event::AsyncEvent;
use crate::types::handle::{Ep, Evd, Handle, Srq};
use crate::types::time::Instant;

impl Objects<'_> {
    /// The state of a living Endpoint.
    #[inline(never)]
    pub(crate) fn state_of(&self, ep: Ep) -> Result<EpState, DatReturn> {
        self.eps.live(ep)?;
        Ok(self.shared.ep(ep.0.index()).map_or(EpState::Disconnected, EpShared::state))
    }

    /// Asks the table. `Ok` carries the outcome of an allowed call.
    pub(crate) fn admit(&self, ep: Ep, op: EpOp) -> Result<Outcome, DatReturn> {
        match outcome(self.state_of(ep)?, op) {
            Outcome::Refuse(ret) => Err(ret),
            allowed @ (Outcome::Go { .. } | Outcome::Stay | Outcome::Gone | Outcome::Ignore) => {
                Ok(allowed)
            }
        }
    }

    /// Sets the state: every change of it comes here.
    pub(crate) fn enter(&mut self, ep: Ep, state: EpState) {
        let datagrams = self.eps.live(ep).is_ok_and(EpControl::is_for_datagrams);
        let word = if datagrams { state.datagram_word() } else { state.word() };
        if let Some(shared) = self.shared.ep(ep.0.index()) {
            shared.poster.state.store(word, Ordering::SeqCst);
        }
    }

    /// Puts an Endpoint on the list that [`Ia::advance`](crate::Ia::advance) walks.
    pub(crate) fn watch(&mut self, ep: Ep) {
        let head = self.active;
        if let Some(control) = self.eps.get_mut(ep.0)
            && !control.listed
        {
            control.listed = true;
            control.next = head;
            self.active = ep.0.index();
        }
    }

    /// Takes an Endpoint off the list that [`Ia::advance`](crate::Ia::advance) walks.
    pub(crate) fn unwatch(&mut self, ep: Ep) {
        let slot = ep.0.index();
        let mut index = core::mem::replace(&mut self.active, END);
        while index != END {
            let Some(handle) = self.eps.handle_at(index) else {
                return;
            };
            let Some(control) = self.eps.get_mut(handle) else {
                return;
            };
            let next = control.next;
            if index != slot {
                control.next = self.active;
                self.active = index;
            }
            index = next;
        }
    }

    /// The next of the consumers' own deadlines.
    pub(crate) fn soonest(&self) -> Option<Instant> {
        let mut soonest = Instant::NEVER;
        let mut index = self.active;
        while let Some(control) = self.eps.handle_at(index).and_then(|ep| self.eps.get(ep)) {
            soonest = control.deadline.min(soonest);
            index = control.next;
        }
        (soonest != Instant::NEVER).then_some(soonest)
    }

    /// The Endpoint of a queue pair that a device event names. One made or reset since the last
    /// batch of events is not meant: they are of its earlier generation, or of another of that
    /// number.
    pub(crate) fn ep_of(&self, qp: Qp) -> Option<Ep> {
        let turn = self.turn;
        self.eps.find(|control| control.qp == Some(qp) && control.born != turn).map(Ep)
    }

    /// Takes back the slots that an Endpoint reserved and did not use.
    pub(crate) fn return_events(&mut self, ep: Ep) {
        let pool = self.shared.connection;
        if let Ok(control) = self.eps.live_mut(ep) {
            while let Some(id) = control.reserved.pop() {
                pool.give_back(id);
            }
        }
    }

    /// The connection is past, by a reset or because the Endpoint goes: its events wait for no
    /// completions any more.
    pub(crate) fn release_events(&mut self, ep: Ep) {
        let pool = self.shared.connection;
        if let Ok(control) = self.eps.live_mut(ep) {
            while let Some(id) = control.sent.pop() {
                pool.mark_past(id, ep);
            }
        }
    }

    /// Whether an Endpoint for datagrams may ask for a service point.
    pub(crate) fn admit_look_up(&self, ep: Ep) -> Result<(), Error> {
        let state = self.state_of(ep)?;
        if state == EpState::Connected { Ok(()) } else { Err(state.refusal().into()) }
    }

    pub(crate) fn of_datagrams(&self, ep: Ep) -> Result<(), Error> {
        match self.eps.live(ep)?.service {
            Service::Datagram { .. } => Ok(()),
            Service::Connected => Err(DatReturn::of(DatType::ModelNotSupported).into()),
        }
    }

    pub(crate) fn srq_of(&self, queue: SharedRq) -> Option<Srq> {
        self.srqs.find(|control| control.queue == queue).map(Srq)
    }

    /// Reserves the slots that the events of a connection need, so that none of them can be lost.
    /// `INSUFFICIENT_RESOURCES` if events of earlier connections have taken all: the consumer
    /// has to dequeue some.
    pub(crate) fn reserve_events(&mut self, ep: Ep) -> Result<(), Error> {
        let full = Error::new(DatType::InsufficientResources, DatSubtype::ResourceTevd);
        let (pool, free) = (self.shared.connection, &mut self.free_events);
        let control = self.eps.get_mut(ep.0).ok_or(EpControl::STALE)?;
        while !control.reserved.is_full() {
            if *free == END {
                *free = pool.take_free();
            }
            let slot = pool.get(*free).ok_or(full)?;
            let _ = control.reserved.push(*free);
            *free = slot.link.next();
        }
        Ok(())
    }

    /// Sends a connection event to its Event Dispatcher. One that ends a connection always finds
    /// room, in a slot that was reserved for it; any other overflows where the Event Dispatcher
    /// has as many events as it was made for.
    pub(crate) fn signal(&mut self, events: &mut Events<'_>, ep: Ep, signal: Signal) {
        let Some(evd) = self.eps.get(ep.0).and_then(|control| control.connect_evd) else {
            return;
        };
        let shared = self.shared;
        let (Some(limits), Some(line)) = (events.evds.get(evd.0), shared.evd(evd.0.index())) else {
            return;
        };
        let room = signal.is_end() || line.queued() < limits.ring.max(limits.qlen);
        let slot = self.eps.get_mut(ep.0).filter(|_| room).and_then(|control| {
            let id = control.reserved.pop()?;
            let _ = control.sent.push(id);
            Some(id)
        });
        let Some(id) = slot else {
            events.overflowed(evd);
            return;
        };
        shared.connection.send(id, line, evd.0.index(), ep, signal);
        events.put_event(evd, true);
    }

    /// Entries of the completion queue that followers have or may take.
    pub(crate) fn own_entries(&self, evd: Evd) -> u32 {
        let of = |(handle, control): (Handle, &EpControl)| match self.shared.ep(handle.index()) {
            Some(line) if control.request_evd == Some(evd) => line.poster.follower.count(),
            _ => 0,
        };
        self.eps.iter().map(of).fold(0, u32::saturating_add)
    }

    pub(crate) fn poster_is_out<P: Provider>(&self, data: &DataPath<'_, P>, ep: Ep) -> bool {
        self.eps.get(ep.0).is_some_and(|control| control.qp.is_some())
            && data.posters.get(ep.0.index() as usize).is_none_or(Option::is_none)
    }

    /// The peer replied. The Endpoint is watched from the start, and goes on when
    /// [`Ia::advance`](crate::Ia::advance) comes to it.
    pub(crate) fn replied(&mut self, ep: Ep, reply: Reply) {
        if let Ok(control) = self.eps.live_mut(ep) {
            control.phase = Phase::Replied(reply);
        }
    }

    /// Whether a completion queue has an entry for another follower.
    pub(crate) fn has_entry(&self, events: &Events<'_>, evd: Evd) -> bool {
        let own = self.own_entries(evd);
        events.evds.get(evd.0).is_some_and(|control| own < control.qlen)
    }

    /// Reports that the device gave a Shared Receive Queue up.
    pub(crate) fn srq_failed(&mut self, events: &mut Events<'_>, queue: SharedRq) {
        let Some(srq) = self.srq_of(queue) else {
            return;
        };
        if let Ok(control) = self.srqs.live_mut(srq) {
            control.failed = true;
        }
        events.report(AsyncEvent::SrqBroken(srq));
    }

    /// Reports once that fewer receives are left than the low watermark.
    pub(crate) fn srq_low(&mut self, events: &mut Events<'_>, srq: Srq) {
        if self.srqs.live_mut(srq).is_ok_and(|c| !core::mem::replace(&mut c.reported, true)) {
            events.report(AsyncEvent::SrqLowWatermark(srq));
        }
    }
}
