//! dat_ib_post_send_ud: the InfiniBand extension.

use crate::data::poster::EpPoster;
use crate::engine::Ia;
use crate::provider::{Destination, Provider, WorkRequest};
use crate::types::dat_return::DatReturn;
use crate::types::flags::CompletionFlags;
use crate::types::handle::Ep;
use crate::types::triplet::LmrTriplet;

impl<P: Provider> EpPoster<'_, P> {
    /// Sends a datagram of the segments to `to`, an address from [`Ia::ud_address`], with an
    /// immediate if there is one to send.
    ///
    /// It succeeds when it has been sent; whether it arrives, nobody says. Endpoint: one of
    /// [`Ia::ep_create_ud`], else `MODEL_NOT_SUPPORTED`. Errors as for [`EpPoster::post_send`]; a
    /// datagram is no longer than the port's MTU.
    #[doc(alias = "dat_ib_post_send_ud")]
    pub fn post_send_ud(
        &mut self,
        segments: &[LmrTriplet],
        to: &Destination,
        immediate: Option<u32>,
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        let work = WorkRequest::SendUd(to, immediate);
        self.poster.post_slow(&self.shared, work, segments, cookie, flags)
    }
}

impl<P: Provider> Ia<'_, P> {
    /// As [`EpPoster::post_send_ud`], by handle.
    #[inline(never)]
    #[doc(alias = "dat_ib_post_send_ud")]
    pub fn ep_post_send_ud(
        &mut self,
        ep: Ep,
        segments: &[LmrTriplet],
        to: &Destination,
        immediate: Option<u32>,
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        let work = || WorkRequest::SendUd(to, immediate);
        self.post(ep, work, segments, cookie, flags)
    }
}
