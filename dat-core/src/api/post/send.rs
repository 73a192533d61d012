//! dat_ep_post_send(3).

use crate::data::poster::EpPoster;
use crate::engine::Ia;
use crate::provider::{Provider, WorkRequest};
use crate::types::dat_return::DatReturn;
use crate::types::flags::CompletionFlags;
use crate::types::handle::Ep;
use crate::types::triplet::LmrTriplet;

impl<P: Provider> EpPoster<'_, P> {
    /// Posts a send of the segments in order; none is a message of no bytes.
    ///
    /// Endpoint: CONNECTED, or DISCONNECTED, where it is accepted and flushed at once. Errors:
    /// `INVALID_STATE`, `INSUFFICIENT_RESOURCES` (all slots outstanding), `INVALID_PARAMETER`
    /// (too many segments, a segment outside its LMR, flags), `PROTECTION_VIOLATION` (zones),
    /// `PRIVILEGES_VIOLATION` (context or privilege), `LENGTH_ERROR`. A refused post
    /// changes nothing.
    #[doc(alias = "dat_ep_post_send")]
    #[inline(always)]
    pub fn post_send(
        &mut self,
        segments: &[LmrTriplet],
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        self.poster.post(&self.shared, &self.near, || WorkRequest::Send, segments, cookie, flags)
    }
}

impl<P: Provider> Ia<'_, P> {
    /// As [`EpPoster::post_send`], by handle.
    #[inline(never)]
    #[doc(alias = "dat_ep_post_send")]
    pub fn ep_post_send(
        &mut self,
        ep: Ep,
        segments: &[LmrTriplet],
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        self.post(ep, || WorkRequest::Send, segments, cookie, flags)
    }
}
