//! dat_ep_post_send_with_invalidate (2.0).

use crate::data::poster::EpPoster;
use crate::engine::Ia;
use crate::provider::{Provider, WorkRequest};
use crate::types::dat_return::DatReturn;
use crate::types::flags::CompletionFlags;
use crate::types::handle::Ep;
use crate::types::triplet::LmrTriplet;

impl<P: Provider> EpPoster<'_, P> {
    /// Sends the segments, and closes the peer's RMR of that context: when the peer's receive
    /// completes, its operation is `ReceiveWithInvalidate` and the context opens nothing any
    /// more. The peer must allow it: the RMR is bound, and one of `dat_rmr_create_for_ep` on
    /// this connection; else its receive fails and the connection breaks. Without a context it is
    /// [`EpPoster::post_send`].
    ///
    /// Endpoint and errors as for [`EpPoster::post_send`].
    #[doc(alias = "dat_ep_post_send_with_invalidate")]
    pub fn post_send_with_invalidate(
        &mut self,
        segments: &[LmrTriplet],
        cookie: u64,
        flags: CompletionFlags,
        rmr_context: Option<u32>,
    ) -> Result<(), DatReturn> {
        let Some(context) = rmr_context else {
            return self.post_send(segments, cookie, flags);
        };
        let work = WorkRequest::SendInvalidate(context);
        self.poster.post_slow(&self.shared, work, segments, cookie, flags)
    }
}

impl<P: Provider> Ia<'_, P> {
    /// As [`EpPoster::post_send_with_invalidate`], by handle.
    #[inline(never)]
    #[doc(alias = "dat_ep_post_send_with_invalidate")]
    pub fn ep_post_send_with_invalidate(
        &mut self,
        ep: Ep,
        segments: &[LmrTriplet],
        cookie: u64,
        flags: CompletionFlags,
        rmr_context: Option<u32>,
    ) -> Result<(), DatReturn> {
        let Some(context) = rmr_context else {
            return self.ep_post_send(ep, segments, cookie, flags);
        };
        let work = || WorkRequest::SendInvalidate(context);
        self.post(ep, work, segments, cookie, flags)
    }
}
