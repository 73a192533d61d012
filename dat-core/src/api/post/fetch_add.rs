//! dat_ib_post_fetch_and_add: the InfiniBand extension.

use crate::data::poster::EpPoster;
use crate::engine::Ia;
use crate::provider::{Atomic, Provider, WorkRequest};
use crate::types::dat_return::DatReturn;
use crate::types::flags::CompletionFlags;
use crate::types::handle::Ep;
use crate::types::triplet::{LmrTriplet, RmrTriplet};

impl<P: Provider> EpPoster<'_, P> {
    /// Adds `add` to the 8 bytes at `remote`, modulo 2^64, and puts what was there before into
    /// `local`, in the order of the host: nobody else's atomic comes between.
    ///
    /// The far end lies in an LMR with [`MemPriv::REMOTE_ATOMIC`](crate::MemPriv::REMOTE_ATOMIC),
    /// at a multiple of 8. It counts as an RDMA read among what this side may have outstanding;
    /// its completion is an [`Event::IbDto`](crate::Event::IbDto). Endpoint and errors as for
    /// [`EpPoster::post_rdma_read`], `LENGTH_ERROR` unless both sides are 8 bytes,
    /// `INVALID_PARAMETER` for the alignment, and `MODEL_NOT_SUPPORTED` where the adapter has no
    /// atomics.
    #[doc(alias = "dat_ib_post_fetch_and_add")]
    pub fn post_fetch_add(
        &mut self,
        add: u64,
        local: &LmrTriplet,
        cookie: u64,
        remote: &RmrTriplet,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        let work = WorkRequest::Atomic(Atomic::FetchAdd(add), remote);
        self.poster.post_slow(&self.shared, work, core::slice::from_ref(local), cookie, flags)
    }
}

impl<P: Provider> Ia<'_, P> {
    /// As [`EpPoster::post_fetch_add`], by handle.
    #[inline(never)]
    #[doc(alias = "dat_ib_post_fetch_and_add")]
    pub fn ep_post_fetch_add(
        &mut self,
        ep: Ep,
        add: u64,
        local: &LmrTriplet,
        cookie: u64,
        remote: &RmrTriplet,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        let work = || WorkRequest::Atomic(Atomic::FetchAdd(add), remote);
        self.post(ep, work, core::slice::from_ref(local), cookie, flags)
    }
}
