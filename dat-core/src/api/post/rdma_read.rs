//! dat_ep_post_rdma_read(3).

use crate::data::poster::EpPoster;
use crate::engine::Ia;
use crate::provider::{Provider, WorkRequest};
use crate::types::dat_return::DatReturn;
use crate::types::flags::CompletionFlags;
use crate::types::handle::Ep;
use crate::types::triplet::{LmrTriplet, RmrTriplet};

impl<P: Provider> EpPoster<'_, P> {
    /// Posts an RDMA read of `remote` into the segments, which must have room for it.
    ///
    /// Endpoint and errors as for [`EpPoster::post_send`].
    #[doc(alias = "dat_ep_post_rdma_read")]
    #[inline(always)]
    pub fn post_rdma_read(
        &mut self,
        segments: &[LmrTriplet],
        cookie: u64,
        remote: &RmrTriplet,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        let work = || WorkRequest::Read(remote);
        self.poster.post(&self.shared, &self.near, work, segments, cookie, flags)
    }
}

impl<P: Provider> Ia<'_, P> {
    /// As [`EpPoster::post_rdma_read`], by handle.
    #[inline(never)]
    #[doc(alias = "dat_ep_post_rdma_read")]
    pub fn ep_post_rdma_read(
        &mut self,
        ep: Ep,
        segments: &[LmrTriplet],
        cookie: u64,
        remote: &RmrTriplet,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        self.post(ep, || WorkRequest::Read(remote), segments, cookie, flags)
    }
}
