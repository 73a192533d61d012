//! dat_ep_create(3).

use core::sync::atomic::Ordering;

use crate::api::several::{Controlled, Job};
use crate::engine::Ia;
use crate::engine::queue_pair::{Made, Makings, Wanted};
use crate::objects::ep::EpControl;
use crate::objects::streams::{NO_STREAMS, ep_streams};
use crate::provider::{Provider, Service};
use crate::types::dat_return::{DatSubtype, DatType, Error};
use crate::types::ep_attr::EpAttr;
use crate::types::ep_state::EpState;
use crate::types::flags::EvdFlags;
use crate::types::handle::{Ep, Evd, Pz, Srq};

/// There is no room for another Endpoint.
const FULL: Error = Error::new(DatType::InsufficientResources, DatSubtype::ResourceTep);

/// What [`Control::EpCreate`](crate::Control::EpCreate) makes an Endpoint of: the arguments of
/// [`Ia::ep_create`].
#[derive(Clone, Copy, Debug, Default)]
pub struct EpCreate {
    /// Its Protection Zone.
    pub pz: Option<Pz>,
    /// Where receives complete.
    pub recv_evd: Option<Evd>,
    /// Where requests complete.
    pub request_evd: Option<Evd>,
    /// Where connection events go.
    pub connect_evd: Option<Evd>,
    /// Attributes; none for those of the adapter.
    pub attr: Option<EpAttr>,
}

impl<P: Provider> Ia<'_, P> {
    /// Makes an Endpoint, UNCONNECTED.
    ///
    /// Zone and Event Dispatchers may be left out and given later by
    /// [`Ia::ep_modify`](Self::ep_modify); until a zone and one of the two DTO Event
    /// Dispatchers are there, it is UNCONFIGURED_UNCONNECTED, and posting, connecting and accepting
    /// are refused with `INVALID_STATE`/`EP_UNCONFIGURED`. Errors: `INVALID_HANDLE` with the
    /// subtype of the handle, also for an Event Dispatcher that does not take the stream;
    /// `INVALID_PARAMETER` for attributes that contradict the Event Dispatchers or exceed
    /// the adapter; `INSUFFICIENT_RESOURCES`.
    #[doc(alias = "dat_ep_create")]
    pub fn ep_create(
        &mut self,
        pz: Option<Pz>,
        recv_evd: Option<Evd>,
        request_evd: Option<Evd>,
        connect_evd: Option<Evd>,
        attr: Option<&EpAttr>,
    ) -> Result<Ep, Error> {
        let create = EpCreate { pz, recv_evd, request_evd, connect_evd, attr: attr.copied() };
        self.ep_make(create, None, Service::Connected)
    }

    /// Makes an Endpoint of any service.
    pub(super) fn ep_make(
        &mut self,
        create: EpCreate,
        srq: Option<Srq>,
        service: Service,
    ) -> Result<Ep, Error> {
        let now = self.lifecycle.clock;
        match self.control_one(now, Job::EpCreate(create, srq, service))? {
            Controlled::Ep(ep) => Ok(ep),
            Controlled::Lmr(_) | Controlled::Freed => Err(FULL),
        }
    }

    /// Checks what an Endpoint is to be made of, and takes a slot for it.
    pub(in crate::api) fn ep_enter(
        &mut self,
        create: &EpCreate,
        srq: Option<Srq>,
        service: Service,
    ) -> Result<(Ep, Wanted), Error> {
        let EpCreate { pz, recv_evd, request_evd, connect_evd, ref attr } = *create;
        self.alive()?;
        self.ep_streams(pz, recv_evd, request_evd, connect_evd)?;
        let attr = self.checked_attr(attr.as_ref(), recv_evd.is_some(), request_evd.is_some())?;
        let streams = ep_streams([recv_evd, request_evd, connect_evd], &attr);
        self.events.streams_agree(&streams, &NO_STREAMS)?;
        if self.objects.eps.is_full() {
            return Err(FULL);
        }
        let generation = self.random.next_u32();
        let mut control = EpControl::new(attr);
        control.service = service;
        control.pz = pz;
        control.recv_evd = recv_evd;
        control.request_evd = request_evd;
        control.connect_evd = connect_evd;
        control.srq = srq;
        control.generation = generation;
        control.born = self.objects.turn;
        let ep = self.objects.eps.insert(control).map(Ep).ok_or(FULL)?;
        self.objects.pzs.hold(pz);
        self.events.attach(&streams);
        let makings = Makings { pz, recv_evd, request_evd, srq, attr, service };
        Ok((ep, Wanted { slot: ep.0.index(), generation, makings }))
    }

    /// The queue pair of an Endpoint is there, if it has one.
    pub(in crate::api) fn ep_begin(&mut self, ep: Ep, makings: &Makings, made: Option<Made<P>>) {
        let slot = ep.0.index();
        self.objects.set_qp(ep, made.as_ref().map(|made| made.qp));
        if let Some(shared) = self.data.shared.ep(slot) {
            shared.request.handle.store(ep.0.raw(), Ordering::Relaxed);
            shared.receive.handle.store(ep.0.raw(), Ordering::Relaxed);
            shared.clear_counters();
        }
        let state = match made {
            Some(made) => {
                self.install_qp(slot, makings, made);
                EpState::Unconnected
            }
            None => EpState::UnconfiguredUnconnected,
        };
        self.objects.enter(ep, state);
        if let Some(srq) = makings.srq {
            self.objects.join_srq(srq, ep);
        }
    }

    /// An Endpoint gets no queue pair: undoes what was done for it.
    pub(in crate::api) fn ep_undo(&mut self, ep: Ep) {
        let Ok(control) = self.objects.eps.live(ep) else { return };
        let (pz, streams) = (control.pz, control.streams());
        self.objects.eps.undo(ep.0);
        self.objects.pzs.release(pz);
        self.events.detach(&streams);
    }

    /// Checks the handles of an Endpoint.
    pub(super) fn ep_streams(
        &self,
        pz: Option<Pz>,
        recv_evd: Option<Evd>,
        request_evd: Option<Evd>,
        connect_evd: Option<Evd>,
    ) -> Result<(), Error> {
        if let Some(pz) = pz {
            self.objects.pzs.live(pz)?;
        }
        let takes = |evd: Option<Evd>, stream, subtype| {
            evd.map_or(Ok(()), |evd| self.events.evd_for(evd, stream, subtype))
        };
        let dto = EvdFlags::DTO;
        takes(recv_evd, dto, DatSubtype::InvalidHandleEvdRecv)?;
        takes(request_evd, dto, DatSubtype::InvalidHandleEvdRequest)?;
        let connection = EvdFlags::CONNECTION;
        takes(connect_evd, connection, DatSubtype::InvalidHandleEvdConn)
    }
}
