//! Posts by the handle of an Endpoint, on its posting half where that is here.

use core::borrow::Borrow;

use crate::data::recv_list::Receive;
use crate::data::write_list::{RdmaWrite, Refused};
use crate::engine::Ia;
use crate::provider::{Provider, WorkRequest};
use crate::types::dat_return::DatReturn;
use crate::types::flags::CompletionFlags;
use crate::types::handle::Ep;
use crate::types::triplet::LmrTriplet;

impl<P: Provider> Ia<'_, P> {
    /// Posts a request by handle: each call is a body of its own, without what its kind has not.
    #[inline(always)]
    pub(super) fn post<'w>(
        &mut self,
        ep: Ep,
        work: impl Fn() -> WorkRequest<'w>,
        segments: &[LmrTriplet],
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        let (poster, shared, near) = self.posting(ep)?;
        poster.post(shared, &near, work, segments, cookie, flags)
    }

    /// Rings the doorbell for requests posted with [`CompletionFlags::DEFER`].
    pub fn ep_ring(&mut self, ep: Ep) -> Result<(), DatReturn> {
        let (poster, _, near) = self.posting(ep)?;
        poster.ring(&near);
        Ok(())
    }

    /// As [`EpPoster::post_rdma_writes`](crate::EpPoster::post_rdma_writes), by handle.
    #[inline(never)]
    pub fn ep_post_rdma_writes(
        &mut self,
        ep: Ep,
        list: &[impl Borrow<RdmaWrite>],
        flags: CompletionFlags,
    ) -> Result<(), Refused> {
        let (poster, shared, near) = self.posting(ep).map_err(|ret| Refused { posted: 0, ret })?;
        poster.post_rdma_writes(shared, &near, list, flags)
    }

    /// As [`EpPoster::post_recvs`](crate::EpPoster::post_recvs), by handle.
    #[inline(never)]
    pub fn ep_post_recvs(
        &mut self,
        ep: Ep,
        list: &[impl Borrow<Receive>],
        flags: CompletionFlags,
    ) -> Result<(), Refused> {
        let (poster, shared, near) = self.posting(ep).map_err(|ret| Refused { posted: 0, ret })?;
        poster.post_recvs(shared, &near, list, flags)
    }

    /// As [`EpPoster::post_recv`](crate::EpPoster::post_recv), by handle.
    #[inline(never)]
    #[doc(alias = "dat_ep_post_recv")]
    pub fn ep_post_recv(
        &mut self,
        ep: Ep,
        segments: &[LmrTriplet],
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        let (poster, shared, near) = self.posting(ep)?;
        poster.post_recv(shared, &near, segments, cookie, flags)
    }
}
