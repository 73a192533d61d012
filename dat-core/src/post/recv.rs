//! dat_ep_post_recv(3).

use core::sync::atomic::Ordering;

use super::general::Work;
use super::{EpPoster, Poster};
use crate::Ia;
use crate::counters::EpCounter;
use crate::dat_return::DatReturn;
use crate::flags::{CompletionFlags, MemPriv};
use crate::handle::Ep;
use crate::provider::{Direction, Provider, RecvQueue, Segment};
use crate::shared::ep::{EpShared, RECV_OPEN};
use crate::shared::request::Op;
use crate::shared::{Near, Shared};
use crate::triplet::LmrTriplet;

impl<P: Provider> Poster<P> {
    #[inline(always)]
    pub(crate) fn post_recv(
        &mut self,
        shared: &Shared<'_>,
        near: &Near<'_>,
        segments: &[LmrTriplet],
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        if let Some(segment) = self.straight_recv(near, segments, flags) {
            self.publish_recv(near, cookie, segment.len);
            self.rq.recv(&[segment]);
            self.recheck(shared, near, RECV_OPEN, Direction::Recv);
            return Ok(());
        }
        self.general(shared, near, Work::Recv, segments, cookie, flags)
    }

    #[inline(always)]
    fn straight_recv(
        &mut self,
        near: &Near<'_>,
        segments: &[LmrTriplet],
        flags: CompletionFlags,
    ) -> Option<Segment> {
        let [triplet] = segments else { return None };
        if near.ep.poster.state.load(Ordering::Acquire) & RECV_OPEN == 0
            || flags.intersects(self.limits.aside_recv)
            || self.receives == self.recv_limit && !self.refill_recv(near.ep)
        {
            return None;
        }
        self.segment(near, triplet, Op::Send, MemPriv::LOCAL_WRITE)
    }

    /// Whether looking again at what has been consumed shows a free receive slot.
    #[inline(never)]
    pub(super) fn refill_recv(&mut self, ep: &EpShared) -> bool {
        let consumed = ep.receive.consumed.load(Ordering::Acquire);
        self.recv_limit = consumed.wrapping_add(u32::from(self.limits.receives));
        self.receives != self.recv_limit
    }

    /// Publishes a receive that is about to be posted. Its token is its sequence.
    #[inline(always)]
    pub(super) fn publish_recv(&mut self, near: &Near<'_>, cookie: u64, len: u32) {
        near.ep.tally.count(EpCounter::PostRecv, len);
        let index = self.receives & u32::from(self.limits.recv_mask);
        if let Some(slot) = near.receives.get(index as usize) {
            slot.store(cookie, Ordering::Relaxed);
        }
        self.receives = self.receives.wrapping_add(1);
        // ORDER: the cookie precedes the count that makes the receive outstanding.
        near.ep
            .poster
            .receives
            .store(self.receives, Ordering::Release);
    }
}

impl<P: Provider> EpPoster<'_, P> {
    /// Posts a receive into the segments, filled in order; none takes a message of no bytes.
    ///
    /// Endpoint: any state; in DISCONNECTED it is flushed at once. Errors as for [`EpPoster::post_send`].
    #[doc(alias = "dat_ep_post_recv")]
    #[inline(always)]
    pub fn post_recv(
        &mut self,
        segments: &[LmrTriplet],
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        self.poster
            .post_recv(&self.shared, &self.near, segments, cookie, flags)
    }
}

impl<P: Provider> Ia<'_, P> {
    /// As [`EpPoster::post_recv`], by handle.
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
