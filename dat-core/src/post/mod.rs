//! The posting half of an Endpoint.
//!
//! A post takes one of two ways. The straight one serves a single segment of an Endpoint that is open and has a free
//! slot: one branch on everything the entry guard looks at, one on what the LMR table says, then the provider's call.
//! Whatever does not fit goes to [`general`], which does the same with any number of segments and finds the reason of a
//! refusal.
//!
//! A request is written to its slot, with the token it is going to have, *before* the provider sees it: its completion may
//! be reaped by another thread before the provider's call returns.

mod bind;
mod general;
mod rdma_read;
mod rdma_write;
mod rdma_writes;
mod recv;
mod send;
mod split;

pub(crate) use bind::{Binding, release};
pub use rdma_writes::{RdmaWrite, Refused};

use core::fmt;
use core::sync::atomic::Ordering;

use crate::dat_return::DatReturn;
use crate::flags::{CompletionFlags, MemPriv};
use crate::handle::Ep;
use crate::provider::{Direction, PostFlags, Provider, Segment, SendQueue};
use crate::random::Random;
use crate::shared::ep::{EpShared, Info, Op, REQUEST_OPEN};
use crate::shared::lmr;
use crate::shared::{Near, Shared};
use crate::triplet::LmrTriplet;

/// Most segments of one DTO.
pub const MAX_SEGMENTS: usize = 16;

/// What a poster is made for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) requests: u16,
    pub(crate) receives: u16,
    pub(crate) request_mask: u16,
    pub(crate) recv_mask: u16,
    pub(crate) request_segments: u8,
    pub(crate) recv_segments: u8,
    pub(crate) read_segments: u8,
    pub(crate) write_segments: u8,
    pub(crate) max_message: u32,
    pub(crate) max_rdma: u32,
    /// The Protection Zone, as LMRs carry it.
    pub(crate) zone: u32,
    /// Flags that a request may carry.
    pub(crate) legal_request: u16,
    /// Flags that a receive may carry.
    pub(crate) legal_recv: u16,
}

/// The posting ends of one queue pair and their counters.
pub(crate) struct Poster<P: Provider> {
    pub(crate) sq: P::Sq,
    pub(crate) rq: P::Rq,
    /// Slot of the Endpoint.
    ep: u16,
    /// Suppressed requests since the last that the device completes.
    quiet: u16,
    /// Requests posted.
    requests: u32,
    /// At this count the queue may be full: what was consumed when last looked at, plus the depth.
    request_limit: u32,
    receives: u32,
    recv_limit: u32,
    limits: Limits,
    random: Random,
}

impl<P: Provider> fmt::Debug for Poster<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Poster")
            .field("ep", &self.ep)
            .field("requests", &self.requests)
            .field("receives", &self.receives)
            .finish_non_exhaustive()
    }
}

impl<P: Provider> Poster<P> {
    pub(crate) fn new(ep: u16, sq: P::Sq, rq: P::Rq, limits: Limits, random: Random) -> Self {
        let mut poster = Self {
            sq,
            rq,
            ep,
            requests: 0,
            request_limit: 0,
            receives: 0,
            recv_limit: 0,
            quiet: 0,
            limits,
            random,
        };
        poster.rewind();
        poster
    }

    /// Starts over, with the queue pair.
    pub(crate) fn rewind(&mut self) {
        self.requests = 0;
        self.receives = 0;
        self.quiet = 0;
        self.request_limit = u32::from(self.limits.requests);
        self.recv_limit = u32::from(self.limits.receives);
    }

    /// The entry guard of a request and its one segment; `None` sends the post the general way.
    #[inline(always)]
    fn straight(
        &mut self,
        near: &Near<'_>,
        segments: &[LmrTriplet],
        flags: CompletionFlags,
        most: u32,
        need: MemPriv,
    ) -> Option<Segment> {
        let [triplet] = segments else { return None };
        if !self.admits(near, flags) {
            return None;
        }
        self.segment(near, triplet, most, need)
    }

    /// Whether the Endpoint is open for requests, the flags are legal, and a slot is free.
    #[inline(always)]
    fn admits(&mut self, near: &Near<'_>, flags: CompletionFlags) -> bool {
        near.ep.poster.state.load(Ordering::Acquire) & REQUEST_OPEN != 0
            && flags.bits() & !u32::from(self.limits.legal_request) == 0
            && (self.requests != self.request_limit || self.refill(near.ep))
    }

    /// Whether looking again at what has been consumed shows a free request slot.
    #[inline(never)]
    fn refill(&mut self, ep: &EpShared) -> bool {
        let consumed = ep.request.consumed.load(Ordering::Acquire);
        self.request_limit = consumed.wrapping_add(u32::from(self.limits.requests));
        self.requests != self.request_limit
    }

    /// A segment of 1 to `most` bytes against its LMR.
    #[inline(always)]
    fn segment(
        &self,
        near: &Near<'_>,
        triplet: &LmrTriplet,
        most: u32,
        need: MemPriv,
    ) -> Option<Segment> {
        if triplet.len.wrapping_sub(1) >= most {
            return None;
        }
        let lmr = lmr::find(near.lmrs, triplet.context)?;
        let lkey = lmr.lkey_for(triplet, self.limits.zone, need)?;
        Some(Segment {
            addr: triplet.addr,
            len: triplet.len,
            lkey,
        })
    }

    /// The provider's flags. A suppressed request is signalled nevertheless when it takes the last slot, or after half a
    /// queue of suppressed ones: their slots come back only with a completion.
    #[inline(always)]
    fn post_flags(&mut self, flags: CompletionFlags) -> PostFlags {
        let bits = flags.bits();
        let mut quiet = bits & 1;
        if quiet != 0 {
            self.quiet += 1;
            let last = self.requests.wrapping_add(1) == self.request_limit;
            if last || self.quiet > self.limits.requests / 2 {
                quiet = 0;
                self.quiet = 0;
            }
        } else {
            self.quiet = 0;
        }
        let word = (quiet ^ 1) | bits & 2 | bits >> 1 & 4 | bits >> 5 & 8;
        PostFlags::from_bits_truncate(word.to_le_bytes()[0])
    }

    /// Publishes the request that is about to be posted. False if there is no slot for it, which cannot be.
    #[inline(always)]
    fn publish(
        &mut self,
        near: &Near<'_>,
        cookie: u64,
        op: Op,
        len: u32,
        suppressed: bool,
    ) -> bool {
        let index = self.requests & u32::from(self.limits.request_mask);
        let Some(slot) = near.requests.get(index as usize) else {
            return false;
        };
        let info = Info::new(op, len, suppressed, self.sq.next_token());
        slot.cookie.store(cookie, Ordering::Relaxed);
        // ORDER: the cookie precedes the token that a reaper on another thread compares.
        slot.info.store(info.word(), Ordering::Release);
        self.requests = self.requests.wrapping_add(1);
        // ORDER: the slot precedes the count that makes it outstanding, for a reaper that flushes.
        near.ep
            .poster
            .requests
            .store(self.requests, Ordering::Release);
        true
    }

    /// Looks, after a post, whether the Endpoint is still open.
    #[inline(always)]
    fn recheck(&self, shared: &Shared<'_>, near: &Near<'_>, open: u32, direction: Direction) {
        if near.ep.poster.state.load(Ordering::Acquire) & open == 0 {
            self.closed_meanwhile(shared, near.ep, direction);
        }
    }

    /// The Endpoint left CONNECTED while a request was being posted: whoever closed it may have missed the request.
    #[cold]
    #[inline(never)]
    fn closed_meanwhile(&self, shared: &Shared<'_>, ep: &EpShared, direction: Direction) {
        if crate::ep::table::EpState::of(ep).is_disconnected() {
            kick(shared, u32::from(self.ep), ep, direction);
        }
    }

    /// Rings the doorbell for requests posted with [`CompletionFlags::DEFER`].
    #[inline]
    pub(crate) fn ring(&mut self, near: &Near<'_>) {
        if near.ep.poster.state.load(Ordering::Acquire) & REQUEST_OPEN != 0 {
            self.sq.ring();
        }
    }
}

/// Tells the Event Dispatcher of that direction to flush what is outstanding.
pub(crate) fn kick(shared: &Shared<'_>, index: u32, ep: &EpShared, direction: Direction) {
    let line = ep.line(direction);
    if let Some(evd) = shared.evd(line.evd.load(Ordering::Relaxed)) {
        let id = index << 1 | u32::from(direction == Direction::Recv);
        evd.producer.flush.push(id, &line.flush);
    }
}

/// The posting half of an Endpoint, as a value of its own: a thread that owns it posts without a lock.
///
/// From [`Ia::ep_take_poster`](crate::Ia::ep_take_poster), and back by
/// [`Ia::ep_return_poster`](crate::Ia::ep_return_poster); the Endpoint can be neither reset nor freed meanwhile.
pub struct EpPoster<'s, P: Provider> {
    pub(crate) ep: Ep,
    pub(crate) poster: Poster<P>,
    pub(crate) shared: Shared<'s>,
    pub(crate) near: Near<'s>,
}

impl<P: Provider> fmt::Debug for EpPoster<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EpPoster")
            .field("ep", &self.ep)
            .finish_non_exhaustive()
    }
}

impl<P: Provider> EpPoster<'_, P> {
    /// The Endpoint it posts to.
    #[must_use]
    pub fn ep(&self) -> Ep {
        self.ep
    }

    /// Rings the doorbell for requests posted with [`CompletionFlags::DEFER`].
    #[inline]
    pub fn ring(&mut self) {
        self.poster.ring(&self.near);
    }
}

impl<'s, P: Provider> crate::Ia<'s, P> {
    /// The posting half of an Endpoint, where it is here, with what it looks at.
    #[inline]
    pub(crate) fn posting(
        &mut self,
        ep: Ep,
    ) -> Result<(&mut Poster<P>, Shared<'s>, Near<'s>), DatReturn> {
        let shared = self.shared;
        let poster = self.poster(ep)?;
        let near = shared.near(ep.0.index).ok_or(crate::ep::STALE)?;
        Ok((poster, shared, near))
    }

    /// Rings the doorbell for requests posted with [`CompletionFlags::DEFER`].
    pub fn ep_ring(&mut self, ep: Ep) -> Result<(), DatReturn> {
        let (poster, _, near) = self.posting(ep)?;
        poster.ring(&near);
        Ok(())
    }
}
