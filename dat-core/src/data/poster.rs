//! The posting half of an Endpoint.
//!
//! A post takes one of two ways. The straight one serves a single segment of an Endpoint that is
//! open and has a free slot: one branch on everything the entry guard looks at, one on what the LMR
//! table says, then the provider's call. Whatever does not fit goes to
//! [`general`](crate::data::general), which does the same with any number of segments and finds the
//! reason of a refusal.
//!
//! A request is written to its slot, with the token it is going to have, *before* the provider sees
//! it: its completion may be reaped by another thread before the provider's call returns.

use core::fmt;
use core::sync::atomic::Ordering;

use crate::data::general::Work;
use crate::data::shared::ep::{EpShared, queue_id};
use crate::data::shared::request::{Op, Request, RequestSlot, Run, Tag};
use crate::data::shared::{Near, Shared, lmr};
use crate::provider::{PostFlags, Provider, Remote, Segment, SendQueue};
use crate::types::completion::Direction;
use crate::types::counters::EpCounter;
use crate::types::dat_return::DatReturn;
use crate::types::ep_state::{EpState, REQUEST_OPEN};
use crate::types::flags::{CompletionFlags, MemPriv};
use crate::types::handle::Ep;
use crate::types::random::{Bytes, Random};
use crate::types::triplet::{LmrTriplet, RmrTriplet};

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
    /// Most bytes of a receive: the adapter's, as the Endpoint's longest message binds what it
    /// sends.
    pub(crate) max_receive: u32,
    /// Most suppressed requests in a row.
    pub(crate) quiet: Run,
    /// The Protection Zone, as LMRs carry it.
    pub(crate) zone: u64,
    /// Flags that a request does not carry on the straight way: all that it may not carry, and
    /// UNSIGNALLED. A receive carries none there.
    pub(crate) aside: CompletionFlags,
    /// A request may be UNSIGNALLED.
    pub(crate) unsignalled_request: bool,
    /// A receive may.
    pub(crate) unsignalled_recv: bool,
    /// It is for datagrams, of at most `max_rdma` bytes.
    pub(crate) datagram: bool,
    pub(crate) atomics: bool,
    /// Its receives come from a Shared Receive Queue.
    pub(crate) shared: bool,
}

impl Limits {
    /// Flags that a request may not carry.
    pub(super) const fn barred_request(&self) -> CompletionFlags {
        if self.unsignalled_request {
            self.aside.difference(CompletionFlags::UNSIGNALLED)
        } else {
            self.aside
        }
    }

    /// Flags that a receive may not carry.
    pub(super) const fn barred_recv(&self) -> CompletionFlags {
        let all = CompletionFlags::from_bits_retain(u32::MAX);
        if self.unsignalled_recv { all.difference(CompletionFlags::UNSIGNALLED) } else { all }
    }
}

/// The posting ends of one queue pair and their counters.
pub(crate) struct Poster<P: Provider> {
    pub(crate) sq: P::Sq,
    pub(crate) rq: P::Rq,
    /// Slot of the Endpoint.
    pub(super) ep: u16,
    /// Suppressed requests since the last that the device completes; all of them DTOs, as it
    /// completes every bind.
    pub(super) quiet: Run,
    /// At this count the queue may be full: what was consumed when last looked at, plus the depth.
    pub(super) request_limit: u32,
    pub(super) receives: u32,
    pub(super) recv_limit: u32,
    /// Bytes of the longest receive posted so far.
    pub(super) longest: u32,
    pub(super) limits: Limits,
    pub(super) random: Bytes,
}

impl<P: Provider> fmt::Debug for Poster<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Poster")
            .field("ep", &self.ep)
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
            request_limit: 0,
            receives: 0,
            recv_limit: 0,
            longest: 0,
            quiet: Run::NONE,
            limits,
            random: Bytes::new(random),
        };
        poster.rewind();
        poster
    }

    pub(crate) const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Starts over, with the queue pair.
    pub(crate) fn rewind(&mut self) {
        self.receives = 0;
        self.longest = 0;
        self.quiet = Run::NONE;
        self.request_limit = u32::from(self.limits.requests);
        self.recv_limit = u32::from(self.limits.receives);
    }

    /// Takes over receives that have been posted to the queue already.
    pub(crate) fn adopt(&mut self, ep: &EpShared, receives: u32) {
        self.receives = receives;
        ep.poster.receives.store(receives, Ordering::Release);
    }

    /// Posts a request: the straight way if that serves, else the general one.
    #[inline(always)]
    pub(crate) fn request(
        &mut self,
        shared: &Shared<'_>,
        near: &Near<'_>,
        work: Work<'_>,
        segments: &[LmrTriplet],
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        // Not from the table of the general way: where the kind is known only at run time, a row of
        // it is more to look up.
        let (op, need, counter) = match work {
            Work::Send | Work::Recv => (Op::Send, MemPriv::LOCAL_READ, EpCounter::PostSend),
            Work::Write(_) => (Op::RdmaWrite, MemPriv::LOCAL_READ, EpCounter::PostWrite),
            Work::Read(_) => (Op::RdmaRead, MemPriv::LOCAL_WRITE, EpCounter::PostRead),
        };
        let ep = near.ep;
        if let [triplet] = segments
            && let Some(sequence) = self.admits(ep, flags)
            && let Some(segment) = self.segment(near, triplet, op, need)
            && work.fits(segment.len)
            && let quiet = flags.contains(CompletionFlags::SUPPRESS)
            && (!quiet || self.is_quiet(sequence))
        {
            let (tag, post_flags) = self.how(op, flags, quiet);
            let len = segment.len;
            let request = Request { cookie, len, tag };
            if self.publish(ep, near.requests, sequence, request) {
                ep.tally.count(counter, segment.len);
                if ep.poster.state.load(Ordering::Acquire) & REQUEST_OPEN != 0 {
                    self.hand_over(work, &[segment], post_flags);
                } else {
                    self.hand_over_late(shared, near, work, &[segment], post_flags);
                }
                return Ok(());
            }
        }
        self.general(shared, near, work, segments, cookie, flags)
    }

    /// Gives a published request to the device.
    #[inline(always)]
    fn hand_over(&mut self, work: Work<'_>, segments: &[Segment], flags: PostFlags) {
        let quiet = flags.difference(PostFlags::SOLICITED);
        match work {
            Work::Send | Work::Recv => self.sq.send(segments, flags),
            Work::Write(remote) => self.sq.rdma_write(segments, far(remote), quiet),
            Work::Read(remote) => self.sq.rdma_read(segments, far(remote), quiet),
        };
    }

    /// The Endpoint may have left CONNECTED before the request was published, so that whoever
    /// closed it missed the request: it is flushed if the device gets nothing more.
    #[cold]
    #[inline(never)]
    pub(super) fn hand_over_late(
        &mut self,
        shared: &Shared<'_>,
        near: &Near<'_>,
        work: Work<'_>,
        segments: &[Segment],
        flags: PostFlags,
    ) {
        if near.ep.state().is_disconnected() {
            kick(shared, u32::from(self.ep), near.ep, Direction::Send);
        } else {
            self.hand_over(work, segments, flags);
        }
    }

    /// Whether the Endpoint is open for requests, the flags are legal, and a slot is known to be
    /// free: then the sequence of the request.
    #[inline(always)]
    pub(super) fn admits(&self, ep: &EpShared, flags: CompletionFlags) -> Option<u32> {
        if ep.poster.state.load(Ordering::Acquire) & REQUEST_OPEN == 0
            || flags.intersects(self.limits.aside)
        {
            return None;
        }
        // To look again at what has been consumed is left to the general way, once in as many posts
        // as there are slots.
        let sequence = ep.poster.requests.load(Ordering::Relaxed);
        (sequence != self.request_limit).then_some(sequence)
    }

    /// Whether looking again at what has been consumed shows a free request slot.
    #[inline(never)]
    pub(super) fn refill(&mut self, ep: &EpShared) -> bool {
        let consumed = ep.request.consumed.load(Ordering::Acquire);
        self.request_limit = consumed.wrapping_add(u32::from(self.limits.requests));
        ep.poster.requests.load(Ordering::Relaxed) != self.request_limit
    }

    /// A segment of one byte to as many as that kind may have, against its LMR.
    #[inline(always)]
    pub(super) fn segment(
        &self,
        near: &Near<'_>,
        triplet: &LmrTriplet,
        op: Op,
        need: MemPriv,
    ) -> Option<Segment> {
        let triplet = *triplet;
        let most = match op {
            Op::Send => self.limits.max_message,
            Op::RdmaWrite
            | Op::RdmaRead
            | Op::Bind
            | Op::FetchAdd
            | Op::CmpSwap
            | Op::WriteImmed
            | Op::SendUd
            | Op::Register
            | Op::Invalidate => self.limits.max_rdma,
        };
        if triplet.len.wrapping_sub(1) >= most {
            return None;
        }
        let lmr = lmr::find(near.lmrs, triplet.context)?;
        let lkey = lmr.lkey_for(&triplet, self.limits.zone, need)?;
        Some(Segment { addr: triplet.addr, len: triplet.len, lkey })
    }

    /// Whether a suppressed request may go without a completion: not when it takes the last slot or
    /// ends a long row of suppressed ones, as their slots come back only with a completion. (A
    /// bind never asks: what becomes of its RMR is learnt from its completion.)
    #[inline(always)]
    pub(super) fn is_quiet(&self, sequence: u32) -> bool {
        self.quiet != self.limits.quiet && sequence.wrapping_add(1) != self.request_limit
    }

    /// What the slot of a request says, and the provider's flags.
    #[inline(always)]
    pub(super) fn how(&mut self, op: Op, flags: CompletionFlags, quiet: bool) -> (Tag, PostFlags) {
        let bits = flags.bits();
        let suppressed = flags.contains(CompletionFlags::SUPPRESS);
        let mut tag = Tag::new(op, suppressed, self.sq.next_token());
        if quiet {
            self.quiet = self.quiet.more();
        } else {
            tag = self.end_run(tag);
        }
        let word = u32::from(!quiet) | bits & 2 | bits >> 1 & 4 | bits >> 5 & 8;
        (tag, PostFlags::from_bits_truncate(word.to_le_bytes()[0]))
    }

    /// The same beside the straight way, where a request may be UNSIGNALLED.
    pub(super) fn how_aside(
        &mut self,
        op: Op,
        flags: CompletionFlags,
        quiet: bool,
    ) -> (Tag, PostFlags) {
        let (tag, post_flags) = self.how(op, flags, quiet);
        if flags.contains(CompletionFlags::UNSIGNALLED) {
            (tag.unsignalled(), post_flags)
        } else {
            (tag, post_flags)
        }
    }

    /// The next request is signalled: with it those suppressed before it will complete.
    #[inline(always)]
    fn end_run(&mut self, tag: Tag) -> Tag {
        if self.quiet == Run::NONE {
            return tag;
        }
        tag.behind(core::mem::take(&mut self.quiet))
    }

    /// Publishes the request that is about to be posted. False if there is no slot for it, which
    /// cannot be.
    #[inline(always)]
    pub(super) fn publish(
        &self,
        ep: &EpShared,
        slots: &[RequestSlot],
        sequence: u32,
        request: Request,
    ) -> bool {
        let index = sequence & u32::from(self.limits.request_mask);
        let Some(slot) = slots.get(index as usize) else {
            return false;
        };
        // ORDER: cookie and length precede the token that a reaper on another thread compares.
        slot.fill(request, Ordering::Release);
        let posted = sequence.wrapping_add(1);
        // ORDER: the slot precedes the count that makes it outstanding, for a reaper that flushes.
        ep.poster.requests.store(posted, Ordering::Release);
        true
    }

    /// Looks, after a post, whether the Endpoint is still open.
    #[inline(always)]
    pub(super) fn recheck(
        &self,
        shared: &Shared<'_>,
        ep: &EpShared,
        open: u32,
        direction: Direction,
    ) {
        if ep.poster.state.load(Ordering::Acquire) & open == 0 {
            self.closed_meanwhile(shared, ep, direction);
        }
    }

    /// The Endpoint left CONNECTED while a request was being posted: whoever closed it may have
    /// missed the request.
    #[cold]
    #[inline(never)]
    fn closed_meanwhile(&self, shared: &Shared<'_>, ep: &EpShared, direction: Direction) {
        if ep.state().is_disconnected() {
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

pub(super) const fn far(remote: &RmrTriplet) -> Remote {
    Remote { addr: remote.addr, rkey: remote.context }
}

/// Tells the Event Dispatcher of that direction to flush what is outstanding; whether it had not
/// been told.
pub(crate) fn kick(shared: &Shared<'_>, index: u32, ep: &EpShared, direction: Direction) -> bool {
    let line = ep.line(direction);
    let Some(evd) = shared.evd(line.evd.load(Ordering::Relaxed)) else {
        return false;
    };
    let news = evd.producer.flush.push(queue_id(index, direction), &line.flush);
    if news {
        evd.changed();
    }
    news
}

/// The posting half of an Endpoint, as a value of its own: a thread that owns it posts without a
/// lock.
///
/// From [`Ia::ep_take_poster`](crate::Ia::ep_take_poster), and back by
/// [`Ia::ep_return_poster`](crate::Ia::ep_return_poster); the Endpoint can be neither reset nor
/// freed meanwhile.
pub struct EpPoster<'s, P: Provider> {
    pub(crate) ep: Ep,
    pub(crate) poster: Poster<P>,
    pub(crate) shared: Shared<'s>,
    pub(crate) near: Near<'s>,
}

impl<P: Provider> fmt::Debug for EpPoster<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EpPoster").field("ep", &self.ep).finish_non_exhaustive()
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

    /// The Endpoint is DISCONNECTED: what is posted now comes back flushed, and who waits for that
    /// has to be told by the host.
    #[inline(always)]
    #[must_use]
    pub fn is_flushing(&self) -> bool {
        // Of each post it is asked, so the word is not made a state first.
        EpState::Disconnected.is_of(self.near.ep.poster.state.load(Ordering::Acquire))
    }
}
