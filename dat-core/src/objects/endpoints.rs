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
use crate::types::bounds::VISITS;
use crate::types::dat_return::{DatReturn, DatSubtype, DatType, Error};
use crate::types::deadlines;
use crate::types::ep_state::{BIND_OPEN, EpOp, EpState, Outcome, REQUEST_OPEN, Signal, outcome};
use crate::types::event::AsyncEvent;
use crate::types::handle::{Ep, Srq};
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
        let control = self.eps.live(ep);
        let datagrams = control.is_ok_and(EpControl::is_for_datagrams);
        let binds = control.is_ok_and(|control| control.binds);
        let mut word = if datagrams { state.datagram_word() } else { state.word() };
        if binds && word & REQUEST_OPEN != 0 {
            word |= BIND_OPEN;
        }
        if let Some(shared) = self.shared.ep(ep.0.index()) {
            shared.poster.state.store(word, Ordering::SeqCst);
        }
    }

    /// [`Ia::advance`](crate::Ia::advance) visits the Endpoint.
    pub(crate) fn watch(&mut self, ep: Ep) {
        self.eps.enqueue(ep.0);
    }

    /// [`Ia::advance`](crate::Ia::advance) visits the Endpoint when that time has come, and not at
    /// the time that was set before.
    pub(crate) fn set_deadline(&mut self, ep: Ep, deadline: Instant) {
        let index = ep.0.index() as usize;
        if let Some(timer) = self.timers.get_mut(index) {
            timer.deadline = deadline;
            deadlines::note(self.timers, index);
        }
    }

    /// An Endpoint whose time has come, which is over then.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<Ep> {
        while self.soonest().is_some_and(|soonest| soonest <= now) {
            let index = deadlines::due(self.timers);
            self.timers.get_mut(index)?.deadline = Instant::NEVER;
            deadlines::note(self.timers, index);
            let ep = u32::try_from(index).ok().and_then(|index| self.eps.handle_at(index));
            if ep.is_some() {
                return ep.map(Ep);
            }
        }
        None
    }

    /// More Endpoints want a visit than an advance makes.
    pub(crate) fn is_crowded(&self) -> bool {
        self.eps.queued() as usize > VISITS
    }

    /// When an Endpoint has to be visited next.
    pub(crate) fn soonest(&self) -> Option<Instant> {
        let soonest = deadlines::earliest(self.timers);
        (soonest != Instant::NEVER).then_some(soonest)
    }

    /// The Endpoint of a queue pair that a device event names. One made or reset since the last
    /// batch of events is not meant: they are of its earlier generation, or of another of that
    /// number.
    pub(crate) fn ep_of(&self, qp: Qp) -> Option<Ep> {
        let turn = self.turn;
        let is = |control: &EpControl| control.qp == Some(qp) && control.born != turn;
        self.eps.numbered(qp.number, is).map(Ep)
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

    /// The Endpoint has another queue pair, or none; filed by its number.
    pub(crate) fn set_qp(&mut self, ep: Ep, qp: Option<Qp>) {
        self.eps.file(ep.0, qp.map(|qp| qp.number));
        if let Some(control) = self.eps.get_mut(ep.0) {
            control.qp = qp;
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
        self.srqs.numbered(queue.0, |control| control.queue == queue).map(Srq)
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
            control.reserved.push(*free);
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
            control.sent.push(id);
            Some(id)
        });
        let Some(id) = slot else {
            events.overflowed(evd);
            return;
        };
        shared.connection.send(id, line, evd.0.index(), ep, signal);
        events.put_event(evd, true);
    }

    pub(crate) fn poster_is_out<P: Provider>(&self, data: &DataPath<'_, P>, ep: Ep) -> bool {
        self.eps.get(ep.0).is_some_and(|control| control.qp.is_some())
            && data.posters.get(ep.0.index() as usize).is_none_or(Option::is_none)
    }

    /// The peer replied. The Endpoint goes on when [`Ia::advance`](crate::Ia::advance) visits it.
    pub(crate) fn replied(&mut self, ep: Ep, reply: Reply) {
        if let Ok(control) = self.eps.live_mut(ep) {
            control.phase = Phase::Replied(reply);
        }
        self.watch(ep);
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
