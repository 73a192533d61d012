//! dat_ep_post_send(3).

use super::general::Work;
use super::{EpPoster, Poster};
use crate::Ia;
use crate::dat_return::DatReturn;
use crate::flags::{CompletionFlags, MemPriv};
use crate::handle::Ep;
use crate::provider::{Direction, Provider, SendQueue};
use crate::shared::ep::{Op, REQUEST_OPEN};
use crate::shared::{Near, Shared};
use crate::triplet::LmrTriplet;

impl<P: Provider> Poster<P> {
    #[inline(always)]
    pub(crate) fn post_send(
        &mut self,
        shared: &Shared<'_>,
        near: &Near<'_>,
        segments: &[LmrTriplet],
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        let (most, need) = (self.limits.max_message, MemPriv::LOCAL_READ);
        if let Some(segment) = self.straight(near, segments, flags, most, need) {
            let suppressed = flags.contains(CompletionFlags::SUPPRESS);
            let post_flags = self.post_flags(flags);
            if self.publish(near, cookie, Op::Send, segment.len, suppressed) {
                self.sq.send(&[segment], post_flags);
                self.recheck(shared, near, REQUEST_OPEN, Direction::Send);
                return Ok(());
            }
        }
        self.general(shared, near, Work::Send, segments, cookie, flags)
    }
}

impl<P: Provider> EpPoster<'_, P> {
    /// Posts a send of the segments in order; none is a message of no bytes.
    ///
    /// Endpoint: CONNECTED, or DISCONNECTED, where it is accepted and flushed at once. Errors: `INVALID_STATE`,
    /// `INSUFFICIENT_RESOURCES` (all slots outstanding), `INVALID_PARAMETER` (too many segments, a segment outside its LMR,
    /// flags), `PROTECTION_VIOLATION` (zones), `PRIVILEGES_VIOLATION` (context or privilege), `LENGTH_ERROR`. A refused post
    /// changes nothing.
    #[doc(alias = "dat_ep_post_send")]
    #[inline(always)]
    pub fn post_send(
        &mut self,
        segments: &[LmrTriplet],
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        self.poster
            .post_send(&self.shared, &self.near, segments, cookie, flags)
    }
}

impl<P: Provider> Ia<'_, P> {
    /// As [`EpPoster::post_send`], by handle.
    #[doc(alias = "dat_ep_post_send")]
    #[inline(never)]
    pub fn ep_post_send(
        &mut self,
        ep: Ep,
        segments: &[LmrTriplet],
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        let (poster, shared, near) = self.posting(ep)?;
        poster.post_send(&shared, &near, segments, cookie, flags)
    }
}
