//! dat_ep_create_with_srq(3).

use crate::engine::Ia;
use crate::engine::control::ep::EpCreate;
use crate::engine::queue_pair::max_iov;
use crate::provider::{Provider, Service};
use crate::types::dat_return::Error;
use crate::types::ep_attr::EpAttr;
use crate::types::handle::{Ep, Evd, Pz, Srq};

impl<P: Provider> Ia<'_, P> {
    /// Makes an Endpoint that takes its receives from a Shared Receive Queue, for as long as it
    /// exists.
    ///
    /// The zone is that of its requests and of what peers do; that of the queue may be another.
    /// `max_recv_iov` means nothing. No receives can be posted to it (`MODEL_NOT_SUPPORTED`),
    /// and none are flushed but those in which a message was arriving. It needs a receive Event
    /// Dispatcher to be configured. Errors as for [`Ia::ep_create`](Self::ep_create), and
    /// `INVALID_HANDLE`/`SRQ`.
    #[doc(alias = "dat_ep_create_with_srq")]
    pub fn ep_create_with_srq(
        &mut self,
        pz: Option<Pz>,
        recv_evd: Option<Evd>,
        request_evd: Option<Evd>,
        connect_evd: Option<Evd>,
        srq: Srq,
        attr: &EpAttr,
    ) -> Result<Ep, Error> {
        self.objects.srqs.live(srq)?;
        let attr = Some(EpAttr {
            max_recv_iov: attr.max_recv_iov.clamp(1, max_iov(self.hca.limits())),
            ..*attr
        });
        let create = EpCreate { pz, recv_evd, request_evd, connect_evd, attr };
        self.ep_make(create, Some(srq), Service::Connected)
    }
}
