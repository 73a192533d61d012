//! dat_ep_create(3).

use core::sync::atomic::Ordering;

use crate::engine::Ia;
use crate::engine::queue_pair::Makings;
use crate::objects::ep::EpControl;
use crate::objects::streams::ep_streams;
use crate::provider::{Provider, Service};
use crate::types::dat_return::{DatSubtype, DatType, Error};
use crate::types::ep_attr::EpAttr;
use crate::types::ep_state::EpState;
use crate::types::flags::EvdFlags;
use crate::types::handle::{Ep, Evd, Pz, Srq};

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
        let service = Service::Connected;
        self.ep_make(pz, recv_evd, request_evd, connect_evd, None, attr, service)
    }

    /// Makes an Endpoint of any service.
    #[expect(clippy::too_many_arguments, reason = "the arguments of the manual page")]
    pub(super) fn ep_make(
        &mut self,
        pz: Option<Pz>,
        recv_evd: Option<Evd>,
        request_evd: Option<Evd>,
        connect_evd: Option<Evd>,
        srq: Option<Srq>,
        attr: Option<&EpAttr>,
        service: Service,
    ) -> Result<Ep, Error> {
        self.alive()?;
        self.ep_streams(pz, recv_evd, request_evd, connect_evd)?;
        let attr = self.checked_attr(attr, recv_evd.is_some(), request_evd.is_some())?;
        let streams = ep_streams([recv_evd, request_evd, connect_evd], &attr);
        let full = Error::new(DatType::InsufficientResources, DatSubtype::ResourceTep);
        let handle = self.objects.eps.vacant().ok_or(full)?;
        let makings = Makings { pz, recv_evd, request_evd, srq, attr, service };
        let generation = self.random.next_u32();
        let made = self.make_qp(handle.index(), generation, &makings)?;
        let configured = made.is_some();
        let mut control = EpControl::new(attr);
        control.service = service;
        control.binds = self.events.takes_binds(request_evd);
        control.pz = pz;
        control.recv_evd = recv_evd;
        control.request_evd = request_evd;
        control.connect_evd = connect_evd;
        control.srq = srq;
        control.generation = generation;
        control.born = self.objects.turn;
        let ep = self.objects.eps.insert(control).map(Ep).ok_or(full)?;
        self.objects.set_qp(ep, made.as_ref().map(|made| made.qp));
        if let Some(shared) = self.data.shared.ep(handle.index()) {
            shared.request.handle.store(handle.raw(), Ordering::Relaxed);
            shared.receive.handle.store(handle.raw(), Ordering::Relaxed);
            shared.clear_counters();
        }
        if let Some(made) = made {
            self.install_qp(handle.index(), &makings, made);
        }
        self.objects.enter(
            ep,
            if configured { EpState::Unconnected } else { EpState::UnconfiguredUnconnected },
        );
        if let Some(srq) = srq {
            self.objects.join_srq(srq, ep);
        }
        self.objects.pzs.hold(pz);
        self.events.attach(&streams);
        Ok(ep)
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
