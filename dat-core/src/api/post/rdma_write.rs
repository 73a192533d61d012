//! dat_ep_post_rdma_write(3).

use crate::data::poster::EpPoster;
use crate::engine::Ia;
use crate::provider::{Provider, WorkRequest};
use crate::types::dat_return::DatReturn;
use crate::types::flags::CompletionFlags;
use crate::types::handle::Ep;
use crate::types::triplet::{LmrTriplet, RmrTriplet};

impl<P: Provider> EpPoster<'_, P> {
    /// Posts an RDMA write of the segments to `remote`, which must have room for them.
    ///
    /// Endpoint and errors as for [`EpPoster::post_send`].
    #[doc(alias = "dat_ep_post_rdma_write")]
    #[inline(always)]
    pub fn post_rdma_write(
        &mut self,
        segments: &[LmrTriplet],
        cookie: u64,
        remote: &RmrTriplet,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        let work = || WorkRequest::Write(remote);
        self.poster.post(&self.shared, &self.near, work, segments, cookie, flags)
    }
}

impl<P: Provider> Ia<'_, P> {
    /// As [`EpPoster::post_rdma_write`], by handle.
    #[inline(never)]
    #[doc(alias = "dat_ep_post_rdma_write")]
    pub fn ep_post_rdma_write(
        &mut self,
        ep: Ep,
        segments: &[LmrTriplet],
        cookie: u64,
        remote: &RmrTriplet,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        self.post(ep, || WorkRequest::Write(remote), segments, cookie, flags)
    }
}
