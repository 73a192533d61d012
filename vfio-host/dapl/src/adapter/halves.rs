//! Where the data halves are: out, in their handles, or home, with the control half.
//!
//! They go out with the first call on the data path that finds them home, and come home when a call
//! of the control half needs them: [`Open::home`], [`Open::home_ep`]. Some stay home for a while:
//! those of an Endpoint that drains, and that of an Event Dispatcher that somebody waits for or a
//! CNO listens to. Calls on the data path then go through the control half.

use dat_core::{DatSubtype, DatType, Ep, EpState, Error, Evd};

use super::Open;
use crate::gate::{Occupied, halves_go_out};
use crate::log::{Level, say};
use crate::object::{Kind, Name, Object};
use crate::variant::{Half, Variant};

impl<V: Variant> Open<V> {
    /// Fetches the half of an object home, if it has one and it is out. `INVALID_STATE` if a thread
    /// is inside a call with it and does not come out: the object stays as it is.
    pub(crate) fn home(&mut self, object: &'static Object<V>) -> Result<(), Error> {
        let half = object.half.recall(V::LOCKED).map_err(|Occupied| {
            say(
                Level::Error,
                format_args!(
                    "{object:?}: a thread does not come out of a post or a dequeue on it, so it cannot be changed or freed; \
                     end or continue that thread, then ask again"
                ),
            );
            Error::new(DatType::InvalidState, DatSubtype::None)
        })?;
        let nic = self.nic();
        // Each came from this adapter, and the object it belongs to lives: it is taken back.
        match half {
            Some(Half::Ep(half)) => drop(nic.ep_return_poster(half)),
            Some(Half::Evd(half)) => drop(nic.evd_return_reaper(half)),
            Some(Half::Srq(half)) => drop(nic.srq_return_poster(half)),
            None => {}
        }
        Ok(())
    }

    /// The same by `dat_core`'s name, if there is one.
    pub(crate) fn home_named<N: Name>(&mut self, name: Option<N>) -> Result<(), Error> {
        match name.and_then(|name| self.adapter.object_of(name)) {
            Some(object) => self.home(object),
            None => Ok(()),
        }
    }

    /// Fetches home all that is of an Endpoint: its own half, those of its Event Dispatchers, and
    /// that of its Shared Receive Queue.
    pub(crate) fn home_ep(&mut self, ep: Ep) -> Result<(), Error> {
        self.home_named(Some(ep))?;
        if let Ok(param) = self.nic().ep_query(ep) {
            self.home_named(param.recv_evd)?;
            self.home_named(param.request_evd)?;
            self.home_named(param.connect_evd)?;
            self.home_named(param.srq)?;
        }
        Ok(())
    }

    /// An Endpoint drains: until it has, what it needs for that stays home.
    pub(crate) fn drains(&mut self, ep: Ep) {
        self.drains.push(ep);
    }

    /// Sends the half of an object out, unless something keeps it home.
    pub(crate) fn send_out(&mut self, object: &'static Object<V>) {
        if !halves_go_out(V::LOCKED) || object.half.is_out() {
            return;
        }
        let half = match object.kind() {
            Kind::Ep => object.name().ok().and_then(|ep| self.poster(ep)),
            Kind::Evd => object.name().ok().and_then(|evd| self.reaper(evd)),
            Kind::Srq => object
                .name()
                .ok()
                .and_then(|srq| self.nic().srq_take_poster(srq).ok().map(Half::Srq)),
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
        if let Some(half) = half {
            object.half.send_out(half);
        }
    }

    fn poster(&mut self, ep: Ep) -> Option<Half<V>> {
        let state = self.nic().ep_query(ep).ok()?.state;
        // Where a post is flushed at once, somebody has to be told.
        if matches!(state, EpState::DisconnectPending | EpState::Disconnected) {
            return None;
        }
        self.nic().ep_take_poster(ep).ok().map(Half::Ep)
    }

    fn reaper(&mut self, evd: Evd) -> Option<Half<V>> {
        let param = self.nic().evd_query(evd).ok()?;
        if param.cno.is_some() || param.waiter || self.is_drained_through(evd) {
            return None;
        }
        self.nic().evd_take_reaper(evd).ok().map(Half::Evd)
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
