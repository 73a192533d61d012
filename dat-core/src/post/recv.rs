//! dat_ep_post_recv(3).

use core::sync::atomic::Ordering;

use super::general::Work;
use super::{EpPoster, Poster};
use crate::Ia;
use crate::dat_return::DatReturn;
use crate::flags::{CompletionFlags, MemPriv};
use crate::handle::Ep;
use crate::provider::{Direction, Provider, RecvQueue, Segment};
use crate::shared::Shared;
use crate::shared::ep::{EpShared, RECV_OPEN};
use crate::shared::lmr;
use crate::triplet::LmrTriplet;

impl<P: Provider> Poster<P> {
    #[inline]
    pub(crate) fn post_recv(
        &mut self,
        shared: &Shared<'_>,
        segments: &[LmrTriplet],
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        if let Some((ep, segment)) = self.straight_recv(shared, segments, flags) {
            self.publish_recv(shared, ep, cookie);
            self.rq.recv(&[segment]);
            self.recheck_recv(shared, ep);
            return Ok(());
        }
        self.general(shared, Work::Recv, segments, cookie, flags)
    }

    #[inline(always)]
    fn straight_recv<'s>(
        &self,
        shared: &Shared<'s>,
        segments: &[LmrTriplet],
        flags: CompletionFlags,
    ) -> Option<(&'s EpShared, Segment)> {
        let [triplet] = segments else { return None };
        let ep = shared.ep(self.ep)?;
        let shut = !ep.poster.state.load(Ordering::Acquire) & RECV_OPEN;
        let illegal = flags.bits() & self.limits.illegal_recv;
        let full = u32::from(self.receives == self.recv_limit);
        let odd = u32::from(triplet.len.wrapping_sub(1) >= self.limits.max_message);
        if shut | illegal | full | odd != 0 {
            return None;
        }
        let need = MemPriv::LOCAL_WRITE;
        let lkey =
            lmr::find(shared.lmrs, triplet.context)?.lkey_for(triplet, self.limits.pz, need)?;
        Some((
            ep,
            Segment {
                addr: triplet.addr,
                len: triplet.len,
                lkey,
            },
        ))
    }

    /// Publishes a receive that is about to be posted. Its token is its sequence, so nothing is left to be added.
    #[inline(always)]
    pub(super) fn publish_recv(&mut self, shared: &Shared<'_>, ep: &EpShared, cookie: u64) {
        let first = shared.first_slot(self.ep);
        if let Some(slot) = shared.receive(first, self.receives, self.limits.recv_mask) {
            slot.store(cookie, Ordering::Relaxed);
        }
        self.receives = self.receives.wrapping_add(1);
        // ORDER: the cookie precedes the count that makes the receive outstanding.
        ep.poster.receives.store(self.receives, Ordering::Release);
    }

    #[inline(always)]
    pub(super) fn recheck_recv(&self, shared: &Shared<'_>, ep: &EpShared) {
        if ep.poster.state.load(Ordering::Acquire) & RECV_OPEN == 0 {
            self.closed_meanwhile(shared, ep, Direction::Recv);
        }
    }
}

impl<P: Provider> EpPoster<'_, P> {
    /// Posts a receive into the segments, filled in order; none takes a message of no bytes.
    ///
    /// Endpoint: any state; in DISCONNECTED it is flushed at once. Errors as for [`EpPoster::post_send`].
    #[doc(alias = "dat_ep_post_recv")]
    #[inline]
    pub fn post_recv(
        &mut self,
        segments: &[LmrTriplet],
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        self.poster.post_recv(&self.shared, segments, cookie, flags)
    }
}

impl<P: Provider> Ia<'_, P> {
    /// As [`EpPoster::post_recv`], by handle.
    #[doc(alias = "dat_ep_post_recv")]
    #[inline]
    pub fn ep_post_recv(
        &mut self,
        ep: Ep,
        segments: &[LmrTriplet],
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        let shared = self.shared;
        self.poster(ep)?.post_recv(&shared, segments, cookie, flags)
    }
}
