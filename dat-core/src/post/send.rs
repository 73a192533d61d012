//! dat_ep_post_send(3).

use super::EpPoster;
use super::general::Work;
use crate::Ia;
use crate::dat_return::DatReturn;
use crate::flags::CompletionFlags;
use crate::handle::Ep;
use crate::provider::Provider;
use crate::triplet::LmrTriplet;

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
        self.poster.request(&self.shared, &self.near, Work::Send, segments, cookie, flags)
    }
}

impl<P: Provider> Ia<'_, P> {
    /// As [`EpPoster::post_send`], by handle.
    #[doc(alias = "dat_ep_post_send")]
    pub fn ep_post_send(
        &mut self,
        ep: Ep,
        segments: &[LmrTriplet],
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        self.post(ep, Work::Send, segments, cookie, flags)
    }
}
