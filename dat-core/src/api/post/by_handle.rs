//! Posts by the handle of an Endpoint, on its posting half where that is here.

use core::borrow::Borrow;

use crate::data::list::{Message, Rdma, Refused, RmrBind};
use crate::data::write_list::{General, Piece, Stretch};
use crate::engine::Ia;
use crate::provider::{Provider, WorkRequest};
use crate::types::dat_return::DatReturn;
use crate::types::flags::CompletionFlags;
use crate::types::handle::Ep;
use crate::types::triplet::LmrTriplet;

/// None of a list was posted.
const fn none(ret: DatReturn) -> Refused {
    Refused { posted: 0, ret }
}

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
        let last = self.data.last_lmr;
        let (poster, shared, near) = self.posting(ep)?;
        near.last.set(last);
        let posted = poster.post(shared, &near, work, segments, cookie, flags);
        self.data.last_lmr = near.last.get();
        posted
    }

    /// Rings the doorbell for requests posted with [`CompletionFlags::DEFER`].
    pub fn ep_ring(&mut self, ep: Ep) -> Result<(), DatReturn> {
        let (poster, _, near) = self.posting(ep)?;
        poster.ring(&near);
        Ok(())
    }

    /// As [`EpPoster::post_rdma_writes`](crate::EpPoster::post_rdma_writes), by handle.
    #[inline(never)]
    pub fn ep_post_rdma_writes<B: Borrow<Rdma>>(
        &mut self,
        ep: Ep,
        list: &[B],
        flags: CompletionFlags,
    ) -> Result<(), Refused> {
        let (poster, shared, near) = self.posting(ep).map_err(none)?;
        poster.post_rdma_writes(shared, &near, General::LIST, list, flags)
    }

    /// As [`EpPoster::post_rdma_pieces`](crate::EpPoster::post_rdma_pieces), by handle.
    #[inline(never)]
    pub fn ep_post_rdma_pieces(
        &mut self,
        ep: Ep,
        stretch: &Stretch,
        list: &[Piece],
        flags: CompletionFlags,
    ) -> Result<(), Refused> {
        let (poster, shared, near) = self.posting(ep).map_err(none)?;
        poster.post_rdma_writes(shared, &near, *stretch, list, flags)
    }

    /// As [`EpPoster::post_rdma_reads`](crate::EpPoster::post_rdma_reads), by handle.
    #[inline(never)]
    pub fn ep_post_rdma_reads(
        &mut self,
        ep: Ep,
        list: &[impl Borrow<Rdma>],
        flags: CompletionFlags,
    ) -> Result<(), Refused> {
        let (poster, shared, near) = self.posting(ep).map_err(none)?;
        poster.post_rdma_reads(shared, &near, list, flags)
    }

    /// As [`EpPoster::post_sends`](crate::EpPoster::post_sends), by handle.
    #[inline(never)]
    pub fn ep_post_sends(
        &mut self,
        ep: Ep,
        list: &[impl Borrow<Message>],
        flags: CompletionFlags,
    ) -> Result<(), Refused> {
        let (poster, shared, near) = self.posting(ep).map_err(none)?;
        poster.post_sends(shared, &near, list, flags)
    }

    /// As [`EpPoster::rmr_binds`](crate::EpPoster::rmr_binds), by handle.
    #[inline(never)]
    pub fn rmr_binds(
        &mut self,
        ep: Ep,
        list: &mut [RmrBind],
        flags: CompletionFlags,
    ) -> Result<(), Refused> {
        let (poster, shared, near) = self.posting(ep).map_err(none)?;
        poster.rmr_binds(shared, &near, list, flags)
    }

    /// As [`EpPoster::post_recvs`](crate::EpPoster::post_recvs), by handle.
    #[inline(never)]
    pub fn ep_post_recvs(
        &mut self,
        ep: Ep,
        list: &[impl Borrow<Message>],
        flags: CompletionFlags,
    ) -> Result<(), Refused> {
        let (poster, shared, near) = self.posting(ep).map_err(none)?;
        poster.post_recvs(shared, &near, &shared.receives_from(ep.0.index()), list, flags)
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
        let receives = shared.receives_from(ep.0.index());
        poster.post_recv(shared, &near, &receives, segments, cookie, flags)
    }
}
