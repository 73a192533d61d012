//! Endpoints for datagrams: `DAT_IB_SERVICE_TYPE_UD` of the InfiniBand extension.
//!
//! One such Endpoint speaks with everybody: it has no connection, is CONNECTED from the start, and
//! DISCONNECTED only after `ep_disconnect` or a failure; a reset opens it again. It is distinguished
//! in two places only: its state word never opens the straight way of requests, and the index of
//! its receives is one that no completion has. So what goes fast pays nothing for it.

use core::net::IpAddr;
use core::task::Poll;

use crate::engine::Ia;
use crate::engine::control::ep::EpCreate;
use crate::engine::establish::check_remote;
use crate::engine::queue_pair::BAD_ATTR;
use crate::provider::{Destination, Provider, Service};
use crate::types::dat_return::{DatSubtype, DatType, Error};
use crate::types::ep_attr::EpAttr;
use crate::types::handle::{Ep, Evd, Pz};
use crate::types::time::Instant;

impl<P: Provider> Ia<'_, P> {
    /// Makes an Endpoint for datagrams, CONNECTED. Peers need its QPN ([`Ia::ep_query`]) and `qkey`
    /// to send to it.
    ///
    /// A receive has to have room for [`GRH_LEN`](crate::GRH_LEN) bytes more than the datagram. Of
    /// the attributes those of RDMA mean nothing, and the longest message is at most the port's
    /// MTU. The connect Event Dispatcher gets its end. Errors as for [`Ia::ep_create`], and
    /// `MODEL_NOT_SUPPORTED` where the adapter has no datagrams.
    pub fn ep_create_ud(
        &mut self,
        pz: Pz,
        recv_evd: Evd,
        request_evd: Evd,
        connect_evd: Option<Evd>,
        attr: Option<&EpAttr>,
        qkey: u32,
    ) -> Result<Ep, Error> {
        let limits = self.hca.limits();
        let (segments, mtu) = (limits.max_datagram_segments, limits.mtu.bytes());
        if segments == 0 {
            return Err(Error::new(DatType::ModelNotSupported, DatSubtype::None));
        }
        let mut suits = self.ep_attr_default();
        suits.max_message_size = mtu;
        suits.max_request_iov = suits.max_request_iov.min(segments);
        let attr = attr.unwrap_or(&suits);
        if attr.max_message_size > mtu || attr.max_request_iov > segments {
            return Err(BAD_ATTR);
        }
        let service = Service::Datagram { qkey };
        let (recv_evd, request_evd) = (Some(recv_evd), Some(request_evd));
        let (pz, attr) = (Some(pz), Some(*attr));
        let create = EpCreate { pz, recv_evd, request_evd, connect_evd, attr };
        let ep = self.ep_make(create, None, service)?;
        if let Err(error) = self.objects.reserve_events(ep) {
            let now = self.lifecycle.clock;
            self.ep_remove(now, ep)?;
            return Err(error);
        }
        Ok(ep)
    }

    /// The address handle of the queue pair `qpn` at `remote`, which takes datagrams with `qkey`.
    /// Pending while the way to it is being found: ask again after [`Ia::advance`].
    pub fn ud_address(
        &mut self,
        now: Instant,
        remote: IpAddr,
        qpn: u32,
        qkey: u32,
    ) -> Poll<Result<Destination, Error>> {
        if let Err(error) = check_remote(&self.net, self.hca.limits().link, remote) {
            return Poll::Ready(Err(error));
        }
        let path = self.hca.resolve(remote, now);
        path.map_ok(|path| Destination { path, qpn, qkey }).map_err(Error::from)
    }
}
