//! The posting half of an Endpoint.
//!
//! A post takes one of two ways. The straight one serves a single segment of an Endpoint that is open and has a free
//! slot: one branch on everything the entry guard looks at, one on what the LMR table says, then the provider's call.
//! Whatever does not fit goes to [`general`], which does the same with any number of segments and finds the reason of a
//! refusal.
//!
//! A request is written to its slot *before* the provider sees it, because its completion may be reaped by another
//! thread before the provider's call returns; the token, known only afterwards, is added then. A reaper that meets a
//! token it does not know looks whether the newest slot still lacks one, and waits.

mod general;
mod rdma_read;
mod rdma_write;
mod recv;
mod send;
mod split;

pub(crate) use general::release;

use core::fmt;
use core::sync::atomic::Ordering;

use crate::dat_return::DatReturn;
use crate::flags::{CompletionFlags, MemPriv};
use crate::handle::Ep;
use crate::provider::{Direction, PostFlags, Provider, Segment, SendQueue};
use crate::random::Random;
use crate::shared::Shared;
use crate::shared::ep::{EpShared, Info, REQUEST_OPEN, RequestSlot};
use crate::shared::lmr;
use crate::triplet::LmrTriplet;

/// Most segments of one DTO.
pub const MAX_SEGMENTS: usize = 16;

/// What a poster is made for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) requests: u32,
    pub(crate) receives: u32,
    pub(crate) request_mask: u32,
    pub(crate) recv_mask: u32,
    pub(crate) token_mask: u32,
    pub(crate) request_segments: usize,
    pub(crate) recv_segments: usize,
    pub(crate) read_segments: usize,
    pub(crate) write_segments: usize,
    pub(crate) max_message: u32,
    pub(crate) max_rdma: u32,
    pub(crate) pz: u32,
    /// Flags that a request may not carry.
    pub(crate) illegal_request: u32,
    /// Flags that a receive may not carry.
    pub(crate) illegal_recv: u32,
}

/// The posting ends of one queue pair and their counters.
pub(crate) struct Poster<P: Provider> {
    pub(crate) sq: P::Sq,
    pub(crate) rq: P::Rq,
    ep: u32,
    /// Requests posted.
    requests: u32,
    /// At this count the queue may be full: what was consumed when last looked at, plus the depth.
    request_limit: u32,
    receives: u32,
    recv_limit: u32,
    /// Suppressed requests since the last that the device completes.
    quiet: u32,
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

/// A slot being filled: from [`Poster::begin`] to [`Poster::commit`].
struct Filling<'s> {
    slot: &'s RequestSlot,
    info: Info,
}

impl<P: Provider> Poster<P> {
    pub(crate) fn new(ep: u32, sq: P::Sq, rq: P::Rq, limits: Limits, random: Random) -> Self {
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
        self.request_limit = self.limits.requests;
        self.recv_limit = self.limits.receives;
    }

    /// The entry guard and the one segment; `None` sends the post the general way.
    #[inline(always)]
    fn straight<'s>(
        &self,
        shared: &Shared<'s>,
        segments: &[LmrTriplet],
        flags: CompletionFlags,
        most: u32,
        need: MemPriv,
    ) -> Option<(&'s EpShared, Segment)> {
        let [triplet] = segments else { return None };
        let ep = shared.ep(self.ep)?;
        let shut = !ep.poster.state.load(Ordering::Acquire) & REQUEST_OPEN;
        let illegal = flags.bits() & self.limits.illegal_request;
        let full = u32::from(self.requests == self.request_limit);
        let odd = u32::from(triplet.len.wrapping_sub(1) >= most);
        if shut | illegal | full | odd != 0 {
            return None;
        }
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

    /// Publishes a request that is about to be posted.
    #[inline(always)]
    fn begin<'s>(
        &self,
        shared: &Shared<'s>,
        ep: &EpShared,
        cookie: u64,
        info: Info,
    ) -> Option<Filling<'s>> {
        let first = shared.first_slot(self.ep);
        let slot = shared.request(first, self.requests, self.limits.request_mask)?;
        slot.cookie.store(cookie, Ordering::Relaxed);
        slot.info.store(info.word(), Ordering::Relaxed);
        // ORDER: the slot precedes the count that makes it outstanding, for a reaper that flushes.
        ep.poster
            .requests
            .store(self.requests.wrapping_add(1), Ordering::Release);
        Some(Filling { slot, info })
    }

    /// Names the request that has been posted, and looks whether the Endpoint is still open.
    #[inline(always)]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the map keeps the low half of the sequence"
    )]
    fn commit(&mut self, shared: &Shared<'_>, ep: &EpShared, filling: &Filling<'_>, token: u16) {
        let first = shared.first_token(self.ep);
        if let Some(entry) = shared.token(first, token, self.limits.token_mask) {
            entry.store(self.requests as u16, Ordering::Relaxed);
        }
        // ORDER: cookie and map entry precede the token that a reaper on another thread compares.
        filling
            .slot
            .info
            .store(filling.info.with_token(token).word(), Ordering::Release);
        self.requests = self.requests.wrapping_add(1);
        if ep.poster.state.load(Ordering::Acquire) & REQUEST_OPEN == 0 {
            self.closed_meanwhile(shared, ep, Direction::Send);
        }
    }

    /// The Endpoint left CONNECTED while a request was being posted: whoever closed it may have missed the request.
    #[cold]
    #[inline(never)]
    fn closed_meanwhile(&self, shared: &Shared<'_>, ep: &EpShared, direction: Direction) {
        if crate::ep::table::EpState::of(ep).is_disconnected() {
            kick(shared, self.ep, ep, direction);
        }
    }

    /// Rings the doorbell for requests posted with [`CompletionFlags::DEFER`].
    #[inline]
    pub(crate) fn ring(&mut self, shared: &Shared<'_>) {
        if let Some(ep) = shared.ep(self.ep)
            && ep.poster.state.load(Ordering::Acquire) & REQUEST_OPEN != 0
        {
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
        self.poster.ring(&self.shared);
    }
}

impl<P: Provider> crate::Ia<'_, P> {
    /// Rings the doorbell for requests posted with [`CompletionFlags::DEFER`].
    pub fn ep_ring(&mut self, ep: Ep) -> Result<(), DatReturn> {
        let shared = self.shared;
        self.poster(ep)?.ring(&shared);
        Ok(())
    }
}
