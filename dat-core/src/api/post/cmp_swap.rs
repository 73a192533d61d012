//! dat_ib_post_cmp_and_swap: the InfiniBand extension.

use crate::data::poster::EpPoster;
use crate::engine::Ia;
use crate::provider::{Atomic, Provider, WorkRequest};
use crate::types::dat_return::DatReturn;
use crate::types::flags::CompletionFlags;
use crate::types::handle::Ep;
use crate::types::triplet::{LmrTriplet, RmrTriplet};

impl<P: Provider> EpPoster<'_, P> {
    /// Puts `swap` into the 8 bytes at `remote` if they are `compare`, and what was there before
    /// into `local` in either case.
    ///
    /// All else as for [`EpPoster::post_fetch_add`].
    #[doc(alias = "dat_ib_post_cmp_and_swap")]
    pub fn post_cmp_swap(
        &mut self,
        compare: u64,
        swap: u64,
        local: &LmrTriplet,
        cookie: u64,
        remote: &RmrTriplet,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        let work = WorkRequest::Atomic(Atomic::CmpSwap { compare, swap }, remote);
        self.poster.post_slow(&self.shared, work, core::slice::from_ref(local), cookie, flags)
    }
}

impl<P: Provider> Ia<'_, P> {
    /// As [`EpPoster::post_cmp_swap`], by handle.
    #[inline(never)]
    #[doc(alias = "dat_ib_post_cmp_and_swap")]
    #[expect(clippy::too_many_arguments, reason = "the arguments of the extension")]
    pub fn ep_post_cmp_swap(
        &mut self,
        ep: Ep,
        compare: u64,
        swap: u64,
        local: &LmrTriplet,
        cookie: u64,
        remote: &RmrTriplet,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        let work = || WorkRequest::Atomic(Atomic::CmpSwap { compare, swap }, remote);
        self.post(ep, work, core::slice::from_ref(local), cookie, flags)
    }
}
