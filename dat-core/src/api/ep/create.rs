//! dat_ep_create(3).

use crate::engine::Ia;
use crate::engine::control::ep::{EpCreate, FULL};
use crate::engine::control::{Controlled, Job, control_one};
use crate::provider::{Provider, Service};
use crate::types::dat_return::{DatSubtype, Error};
use crate::types::ep_attr::EpAttr;
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
        match control_one(self, now, Job::EpCreate(create, srq, service))? {
            Controlled::Ep(ep) => Ok(ep),
            Controlled::Lmr(_) | Controlled::Freed => Err(FULL),
        }
    }

    /// Checks the handles of an Endpoint.
    pub(crate) fn ep_streams(
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
