//! Moves posters and reapers between the `Ia` and the gates of their handles.
//!
//! A call on the data path that finds a gate shut runs under the adapter's lock and opens the gate.
//! Calls that need a poster or reaper in the `Ia` recall it: [`Open::recall`], [`Open::recall_ep`].
//! Some gates stay shut for a while: those of an Endpoint that drains, and that of an Event
//! Dispatcher with a waiter or a CNO. Data path calls then run under the adapter's lock.

use dat_core::{DatSubtype, DatType, Ep, EpState, Error, Evd};

use super::Open;
use crate::gate::{Occupied, gates_may_open};
use crate::log::{Level, say};
use crate::object::{Kind, Name, Object};
use crate::variant::{DataQueue, Variant};

impl<V: Variant> Open<V> {
    /// Returns the poster or reaper of an object to the `Ia`, if its gate is open. `INVALID_STATE`
    /// if a thread stays inside the gate; then the object is unchanged.
    pub(crate) fn recall(&mut self, object: &'static Object<V>) -> Result<(), Error> {
        let queue = object.queue.recall(V::LOCKED).map_err(|Occupied| {
            say(
                Level::Error,
                format_args!(
                    "{object:?}: a thread stays inside a post or dequeue, so the object cannot be changed or freed; \
                    end or continue that thread, then try again"
                ),
            );
            Error::new(DatType::InvalidState, DatSubtype::None)
        })?;
        let nic = self.nic();
        // Cannot fail: each came from this `Ia`, and its object has not been freed.
        match queue {
            Some(DataQueue::Ep(queue)) => drop(nic.ep_return_poster(queue)),
            Some(DataQueue::Evd(queue)) => drop(nic.evd_return_reaper(queue)),
            Some(DataQueue::Srq(queue)) => drop(nic.srq_return_poster(queue)),
            None => {}
        }
        Ok(())
    }

    /// Recalls that of a `dat_core` handle, if there is one.
    pub(crate) fn recall_named<N: Name>(&mut self, name: Option<N>) -> Result<(), Error> {
        match name.and_then(|name| self.adapter.object_of(name)) {
            Some(object) => self.recall(object),
            None => Ok(()),
        }
    }

    /// Recalls the poster of an Endpoint, the reapers of its Event Dispatchers and the poster of
    /// its Shared Receive Queue.
    pub(crate) fn recall_ep(&mut self, ep: Ep) -> Result<(), Error> {
        self.recall_named(Some(ep))?;
        if let Ok(param) = self.nic().ep_query(ep) {
            self.recall_named(param.recv_evd)?;
            self.recall_named(param.request_evd)?;
            self.recall_named(param.connect_evd)?;
            self.recall_named(param.srq)?;
        }
        Ok(())
    }

    /// Records that an Endpoint drains: the gates that it needs stay shut until it has.
    pub(crate) fn drains(&mut self, ep: Ep) {
        self.drains.push(ep);
    }

    /// Opens the gate of an object, unless its poster or reaper has to stay in the `Ia`.
    pub(crate) fn open_gate(&mut self, object: &'static Object<V>) {
        if !gates_may_open(V::LOCKED) || object.queue.is_open() {
            return;
        }
        let queue = match object.kind() {
            Kind::Ep => object.name().ok().and_then(|ep| self.poster(ep)),
            Kind::Evd => object.name().ok().and_then(|evd| self.reaper(evd)),
            Kind::Srq => object
                .name()
                .ok()
                .and_then(|srq| self.nic().srq_take_poster(srq).ok().map(DataQueue::Srq)),
            Kind::Freed
            | Kind::Ia
            | Kind::Pz
            | Kind::Cno
            | Kind::Psp
            | Kind::Rsp
            | Kind::Csp
            | Kind::Cr
            | Kind::Lmr
            | Kind::Rmr => None,
        };
        if let Some(queue) = queue {
            object.queue.open(queue);
        }
    }

    fn poster(&mut self, ep: Ep) -> Option<DataQueue<V>> {
        let state = self.nic().ep_query(ep).ok()?.state;
        // Posts in these states are flushed at once, and the adapter must be driven to wake
        // waiters.
        if matches!(state, EpState::DisconnectPending | EpState::Disconnected) {
            return None;
        }
        self.nic().ep_take_poster(ep).ok().map(DataQueue::Ep)
    }

    fn reaper(&mut self, evd: Evd) -> Option<DataQueue<V>> {
        let param = self.nic().evd_query(evd).ok()?;
        if param.cno.is_some() || param.waiter || self.is_drained_through(evd) {
            return None;
        }
        self.nic().evd_take_reaper(evd).ok().map(DataQueue::Evd)
    }

    fn is_drained_through(&mut self, evd: Evd) -> bool {
        for place in 0..self.drains.len() {
            let ep = self.drains.get(place).copied();
            let param = ep.and_then(|ep| self.nic().ep_query(ep).ok());
            if param.is_some_and(|param| param.request_evd == Some(evd)) {
                return true;
            }
        }
        false
    }
}
