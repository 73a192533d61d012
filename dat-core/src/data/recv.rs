//! dat_ep_post_recv(3).

use core::sync::atomic::Ordering;

use crate::data::poster::{EpPoster, Poster, RECV, kick};
use crate::data::shared::ep::EpShared;
use crate::data::shared::{Near, Shared};
use crate::data::validate::{FULL, Segments};
use crate::provider::{Provider, RecvQueue, Segment};
use crate::types::atomic::AtomicU64;
use crate::types::completion::Direction;
use crate::types::dat_return::DatReturn;
use crate::types::ep_state::{EpOp, RECV_OPEN};
use crate::types::flags::CompletionFlags;
use crate::types::triplet::LmrTriplet;

impl<P: Provider> Poster<P> {
    #[inline(always)]
    pub(crate) fn post_recv<'s>(
        &mut self,
        shared: &Shared<'s>,
        near: &Near<'s>,
        receives: &&[AtomicU64],
        segments: &[LmrTriplet],
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        // Held here, or it would be looked up again behind every store.
        let ep = near.ep;
        let sequence = ep.poster.receives.load(Ordering::Relaxed);
        if let Some(segment) = self.fast_recv(shared, near, sequence, segments, flags) {
            self.publish_recv(ep, receives, sequence, (cookie, segment.len));
            self.rq.recv(&[segment]);
            self.recheck(shared, ep, Direction::Recv);
            return Ok(());
        }
        self.post_recv_slow(shared, segments, cookie, flags)
    }

    /// The one segment of a receive that can take the fast path.
    #[inline(always)]
    fn fast_recv<'s>(
        &mut self,
        shared: &Shared<'s>,
        near: &Near<'s>,
        sequence: u32,
        segments: &[LmrTriplet],
        flags: CompletionFlags,
    ) -> Option<Segment> {
        let ([triplet], ep) = (segments, near.ep) else { return None };
        if ep.poster.state.load(Ordering::Acquire) & RECV_OPEN == 0
            || !flags.is_empty()
            || sequence == self.recv_limit && !self.refill_unmarked(ep)
        {
            return None;
        }
        self.segment(shared, near, triplet, &RECV)
    }

    /// Posts any receive, or says why not.
    #[cold]
    #[inline(never)]
    fn post_recv_slow(
        &mut self,
        shared: &Shared<'_>,
        segments: &[LmrTriplet],
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        // It cannot fail: the poster is that of a slot.
        let Some(ep) = shared.ep(self.ep) else { return Err(FULL) };
        let state = self.admit(ep, EpOp::PostRecv, &RECV, flags)?;
        let mut list = Segments::new();
        let (len, _) = self.validate(shared, &RECV, segments, &mut list)?;
        let sequence = ep.poster.receives.load(Ordering::Relaxed);
        let before = self.recv_limit;
        if !self.refill_recv(ep) {
            return Err(FULL);
        }
        if self.limits.unsignalled_recv {
            // Slots come back without the marks of the receives that they held.
            shared.forget_silent(ep, before, self.recv_limit.wrapping_sub(before));
        }
        if flags.contains(CompletionFlags::UNSIGNALLED) {
            shared.silence_receive(ep, sequence);
        }
        self.publish_recv(ep, &shared.receives_from(self.ep), sequence, (cookie, len));
        if state.is_disconnected() {
            kick(shared, self.ep, ep, Direction::Recv);
        } else {
            self.rq.recv(&list);
            self.recheck(shared, ep, Direction::Recv);
        }
        Ok(())
    }

    /// Whether looking again at what has been consumed shows a free receive slot.
    #[inline(always)]
    fn refill_recv(&mut self, ep: &EpShared) -> bool {
        let consumed = ep.receive.consumed.load(Ordering::Acquire);
        self.recv_limit = consumed.wrapping_add(u32::from(self.limits.receives));
        ep.poster.receives.load(Ordering::Relaxed) != self.recv_limit
    }

    /// The same on the fast path, which knows nothing of marks: slots that may carry one come back
    /// on the slow path.
    #[inline(never)]
    pub(super) fn refill_unmarked(&mut self, ep: &EpShared) -> bool {
        !self.limits.unsignalled_recv && self.refill_recv(ep)
    }

    /// Receives may be so long from now on.
    #[inline(always)]
    pub(super) fn outlast(&mut self, ep: &EpShared, len: u32) {
        if len > self.longest {
            self.longest = len;
            // Only up: receives that another queue pair has taken over count as well.
            ep.receive.max_len.fetch_max(len, Ordering::Relaxed);
        }
    }

    /// Publishes the receive of that sequence, which is about to be posted, with its cookie and
    /// length. Its token is its sequence.
    #[inline(always)]
    fn publish_recv(
        &mut self,
        ep: &EpShared,
        slots: &&[AtomicU64],
        sequence: u32,
        (cookie, len): (u64, u32),
    ) {
        (RECV.count)(ep, len);
        let index = sequence & u32::from(self.limits.recv_mask);
        if let Some(slot) = slots.get(index as usize) {
            slot.store(cookie, Ordering::Relaxed);
        }
        self.outlast(ep, len);
        // ORDER: cookie and length precede the count that makes the receive outstanding.
        ep.poster.receives.store(sequence.wrapping_add(1), Ordering::Release);
    }
}

impl<P: Provider> EpPoster<'_, P> {
    /// Posts a receive into the segments, filled in order; none takes a message of no bytes.
    ///
    /// Endpoint: any state; in DISCONNECTED it is flushed at once. Errors as for
    /// [`EpPoster::post_send`], but that a receive may be as long as any message of the
    /// adapter: the Endpoint's `max_message_size` is that of what it sends.
    #[doc(alias = "dat_ep_post_recv")]
    #[inline(always)]
    pub fn post_recv(
        &mut self,
        segments: &[LmrTriplet],
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        self.poster.post_recv(&self.shared, &self.near, &self.receives, segments, cookie, flags)
    }
}
