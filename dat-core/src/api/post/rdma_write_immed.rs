//! dat_ib_post_rdma_write_immed: the InfiniBand extension.

use crate::data::poster::EpPoster;
use crate::engine::Ia;
use crate::provider::{Provider, WorkRequest};
use crate::types::dat_return::DatReturn;
use crate::types::flags::CompletionFlags;
use crate::types::handle::Ep;
use crate::types::triplet::{LmrTriplet, RmrTriplet};

impl<P: Provider> EpPoster<'_, P> {
    /// As [`EpPoster::post_rdma_write`], and then takes a receive of the peer, whose event has the
    /// immediate and the length of the write; nothing is put into that receive. The completion
    /// is an [`Event::IbDto`](crate::Event::IbDto), over there too.
    #[doc(alias = "dat_ib_post_rdma_write_immed")]
    pub fn post_rdma_write_immed(
        &mut self,
        segments: &[LmrTriplet],
        cookie: u64,
        remote: &RmrTriplet,
        immediate: u32,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        let work = WorkRequest::WriteImmed(remote, immediate);
        self.poster.post_slow(&self.shared, work, segments, cookie, flags)
    }
}

impl<P: Provider> Ia<'_, P> {
    /// As [`EpPoster::post_rdma_write_immed`], by handle.
    #[inline(never)]
    #[doc(alias = "dat_ib_post_rdma_write_immed")]
    pub fn ep_post_rdma_write_immed(
        &mut self,
        ep: Ep,
        segments: &[LmrTriplet],
        cookie: u64,
        remote: &RmrTriplet,
        immediate: u32,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        let work = || WorkRequest::WriteImmed(remote, immediate);
        self.post(ep, work, segments, cookie, flags)
    }
}
