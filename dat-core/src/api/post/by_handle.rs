//! Posts by the handle of an Endpoint, on its posting half where that is here.

use crate::data::extended::Extended;
use crate::data::general::Work;
use crate::data::write_list::{RdmaWrite, Refused};
use crate::engine::Ia;
use crate::provider::Provider;
use crate::types::dat_return::DatReturn;
use crate::types::flags::CompletionFlags;
use crate::types::handle::Ep;
use crate::types::triplet::LmrTriplet;

impl<P: Provider> Ia<'_, P> {
    /// Posts any of them by handle.
    pub(super) fn post_extended(
        &mut self,
        ep: Ep,
        work: Extended<'_>,
        segments: &[LmrTriplet],
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        let (poster, shared, near) = self.posting(ep)?;
        poster.extended(shared, &near, work, segments, cookie, flags)
    }

    /// Posts anything by handle: all calls share one copy of the straight way.
    #[inline(never)]
    pub(crate) fn post(
        &mut self,
        ep: Ep,
        work: Work<'_>,
        segments: &[LmrTriplet],
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        let (poster, shared, near) = self.posting(ep)?;
        match work {
            Work::Recv => poster.post_recv(shared, &near, segments, cookie, flags),
            Work::Send | Work::Write(_) | Work::Read(_) => {
                poster.request(shared, &near, work, segments, cookie, flags)
            }
        }
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
        list: &[RdmaWrite],
        flags: CompletionFlags,
    ) -> Result<(), Refused> {
        let (poster, shared, near) = self.posting(ep).map_err(|ret| Refused { posted: 0, ret })?;
        poster.post_rdma_writes(shared, &near, list, flags)
    }

    /// As [`EpPoster::post_recv`](crate::EpPoster::post_recv), by handle.
    #[doc(alias = "dat_ep_post_recv")]
    pub fn ep_post_recv(
        &mut self,
        ep: Ep,
        segments: &[LmrTriplet],
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        self.post(ep, Work::Recv, segments, cookie, flags)
    }
}
