//! The posting half of an Endpoint.
//!
//! The table has a row for each opcode, a [`Rule`]. [`Poster::post`] is the fast path: one segment,
//! an Endpoint that is open, a free slot. It costs one branch on the Endpoint's state and flags, one
//! on what the LMR table says, then the provider's call. All else goes to
//! [`post_slow`](crate::data::validate), which reads the same row, takes any number of segments and
//! finds the reason of a refusal.
//!
//! A request is written to its slot, with the token it is going to have, *before* the provider sees
//! it: its completion may be reaped by another thread before the provider's call returns.
//!
//! Length: the table stands beside the fast path that reads it.

use core::fmt;
use core::mem::{self, offset_of};
use core::sync::atomic::Ordering;

use crate::data::shared::ep::{EpShared, queue_id};
use crate::data::shared::request::{Op, Request, RequestSlot, Run, Tag};
use crate::data::shared::{Near, Shared};
use crate::provider::{Atomic, PostFlags, Provider, Segment, SendQueue, WorkRequest};
use crate::types::atomic::{AtomicU64, published};
use crate::types::completion::Direction;
use crate::types::counters::EpCounter;
use crate::types::dat_return::{DatReturn, DatSubtype};
use crate::types::ep_state::{EpState, REQUEST_OPEN};
use crate::types::flags::{CompletionFlags, MemPriv};
use crate::types::handle::Ep;
use crate::types::triplet::LmrTriplet;

/// Most segments of one DTO.
pub const MAX_SEGMENTS: usize = 16;

/// What a poster is made for, as far as the fast path of requests reads it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Core {
    /// The Protection Zone, as LMRs carry it.
    pub(crate) zone: u64,
    /// Flags that a request does not carry on the fast path: all that it may not carry, UNSIGNALLED,
    /// and BARRIER_FENCE. A receive carries none there.
    pub(crate) aside: CompletionFlags,
    pub(crate) max_rdma: u32,
    pub(crate) max_message: u32,
    pub(crate) requests: u16,
    pub(crate) request_mask: u16,
}

/// The rest of what a poster is made for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) receives: u16,
    pub(crate) recv_mask: u16,
    pub(crate) request_segments: u8,
    pub(crate) recv_segments: u8,
    pub(crate) read_segments: u8,
    pub(crate) write_segments: u8,
    /// Most bytes of a receive: the adapter's, as the Endpoint's longest message binds what it
    /// sends.
    pub(crate) max_receive: u32,
    /// Most suppressed requests in a row.
    pub(crate) silent: Run,
    /// A request may be UNSIGNALLED.
    pub(crate) unsignalled_request: bool,
    /// A receive may.
    pub(crate) unsignalled_recv: bool,
    /// It is for datagrams, of at most `max_rdma` bytes.
    pub(crate) datagram: bool,
    /// A request may change keys: otherwise the send queue has no room for such ones.
    pub(crate) binds: bool,
    pub(crate) atomics: bool,
    /// Its receives come from a Shared Receive Queue.
    pub(crate) shared: bool,
}

impl Limits {
    /// Flags that a request may not carry.
    const fn barred_request(&self, core: &Core) -> CompletionFlags {
        let mut barred = core.aside;
        if self.unsignalled_request {
            barred = barred.difference(CompletionFlags::UNSIGNALLED);
        }
        if self.datagram { barred } else { barred.difference(CompletionFlags::BARRIER_FENCE) }
    }

    /// Flags that a receive may not carry.
    const fn barred_recv(&self, _: &Core) -> CompletionFlags {
        let all = CompletionFlags::from_bits_retain(u32::MAX);
        if self.unsignalled_recv { all.difference(CompletionFlags::UNSIGNALLED) } else { all }
    }
}

/// How long the far end of a request must be, beside its segments.
#[derive(Clone, Copy)]
pub(super) enum FarEnd {
    /// The request names none.
    Unnamed,
    /// As long or longer.
    Covers,
    /// As long, or shorter: then the rest of the segments stays as it is.
    Fills,
    /// The operand of an atomic, which is aligned; the segment too.
    Operand,
}

/// What an opcode is checked against.
pub(crate) struct Rule {
    pub(crate) op: Op,
    /// It has a fast path, and may be suppressed. The device completes every other request.
    fast: bool,
    /// It may fire the peer's solicited notification.
    solicited: bool,
    /// Counts one of so many bytes.
    pub(super) count: fn(&EpShared, u32),
    /// What the local memory must grant, and the subtypes of its two refusals.
    pub(super) need: MemPriv,
    pub(super) privileges: DatSubtype,
    pub(super) protection: DatSubtype,
    /// Subtypes of bad flags, and of a far end that is not aligned: their positions among the
    /// arguments.
    pub(super) flags: DatSubtype,
    pub(super) far: DatSubtype,
    pub(super) far_end: FarEnd,
    /// Whether the queue pair serves it at all.
    pub(super) served: fn(&Limits) -> bool,
    /// Flags that it may not carry.
    pub(super) barred: fn(&Limits, &Core) -> CompletionFlags,
    /// Most segments, and most bytes.
    pub(super) segments: fn(&Limits) -> u8,
    pub(super) longest: fn(&Limits, &Core) -> u32,
}

pub(super) const SEND: Rule = Rule {
    op: Op::Send,
    fast: true,
    solicited: true,
    count: |ep, len| ep.count(EpCounter::PostSend, len),
    need: MemPriv::LOCAL_READ,
    privileges: DatSubtype::PrivilegesRead,
    protection: DatSubtype::ProtectionRead,
    flags: DatSubtype::InvalidArg5,
    far: DatSubtype::None,
    far_end: FarEnd::Unnamed,
    served: |limits| !limits.datagram,
    barred: Limits::barred_request,
    segments: |limits| limits.request_segments,
    longest: |_, core| core.max_message,
};

const SEND_INVALIDATE: Rule = Rule { fast: false, ..SEND };

const SEND_UD: Rule = Rule {
    op: Op::SendUd,
    fast: false,
    count: |ep, len| ep.count(EpCounter::PostSendUd, len),
    flags: DatSubtype::InvalidArg6,
    served: |limits| limits.datagram,
    longest: |_, core| core.max_rdma,
    ..SEND
};

pub(super) const WRITE: Rule = Rule {
    op: Op::RdmaWrite,
    solicited: false,
    count: |ep, len| ep.count(EpCounter::PostWrite, len),
    privileges: DatSubtype::PrivilegesRdmaWrite,
    protection: DatSubtype::ProtectionRdmaWrite,
    flags: DatSubtype::InvalidArg6,
    far_end: FarEnd::Covers,
    segments: |limits| limits.write_segments,
    longest: |_, core| core.max_rdma,
    ..SEND
};

const WRITE_IMMED: Rule = Rule {
    op: Op::WriteImmed,
    fast: false,
    solicited: true,
    count: |ep, len| ep.count(EpCounter::PostWriteImm, len),
    ..WRITE
};

const READ: Rule = Rule {
    op: Op::RdmaRead,
    count: |ep, len| ep.count(EpCounter::PostRead, len),
    need: MemPriv::LOCAL_WRITE,
    privileges: DatSubtype::PrivilegesRdmaRead,
    protection: DatSubtype::ProtectionRdmaRead,
    far_end: FarEnd::Fills,
    segments: |limits| limits.read_segments,
    ..WRITE
};

// Bytes of atomics are not counted: each has as many.
const FETCH_ADD: Rule = Rule {
    op: Op::FetchAdd,
    fast: false,
    count: |ep, _| ep.count_one(EpCounter::PostFetchAdd),
    far: DatSubtype::InvalidArg5,
    far_end: FarEnd::Operand,
    served: |limits| limits.atomics && !limits.datagram,
    segments: |_| 1,
    ..READ
};

const CMP_SWAP: Rule = Rule {
    op: Op::CmpSwap,
    count: |ep, _| ep.count_one(EpCounter::PostCmpSwap),
    flags: DatSubtype::InvalidArg7,
    far: DatSubtype::InvalidArg6,
    ..FETCH_ADD
};

// These three have no segments: what they do to which memory is checked in `bind` and `key_edit`.
pub(super) const BIND: Rule = Rule {
    op: Op::Bind,
    fast: false,
    solicited: false,
    count: |_, _| {},
    flags: DatSubtype::InvalidArg8,
    served: |limits| limits.binds && !limits.datagram,
    segments: |_| 0,
    ..SEND
};

pub(super) const REGISTER: Rule = Rule { op: Op::Register, flags: DatSubtype::InvalidArg9, ..BIND };

pub(super) const INVALIDATE: Rule =
    Rule { op: Op::Invalidate, flags: DatSubtype::InvalidArg4, ..BIND };

/// A receive, of an Endpoint or of a Shared Receive Queue.
pub(super) const RECV: Rule = Rule {
    count: |ep, len| ep.count(EpCounter::PostRecv, len),
    need: MemPriv::LOCAL_WRITE,
    privileges: DatSubtype::PrivilegesWrite,
    protection: DatSubtype::ProtectionWrite,
    served: |limits| !limits.shared,
    barred: Limits::barred_recv,
    segments: |limits| limits.recv_segments,
    longest: |limits, _| limits.max_receive,
    ..SEND
};

/// The row of the table for a request.
#[inline(always)]
pub(super) const fn rule(work: &WorkRequest<'_>) -> &'static Rule {
    match work {
        WorkRequest::Send => &SEND,
        WorkRequest::SendInvalidate(_) => &SEND_INVALIDATE,
        WorkRequest::SendUd(..) => &SEND_UD,
        WorkRequest::Write(_) => &WRITE,
        WorkRequest::WriteImmed(..) => &WRITE_IMMED,
        WorkRequest::Read(_) => &READ,
        WorkRequest::Atomic(Atomic::FetchAdd(_), _) => &FETCH_ADD,
        WorkRequest::Atomic(Atomic::CmpSwap { .. }, _) => &CMP_SWAP,
        WorkRequest::Bind(_) => &BIND,
        WorkRequest::Register(_) => &REGISTER,
    }
}

impl Rule {
    /// Whether a request with these flags may go without a completion of its own, if the queue
    /// allows.
    #[inline(always)]
    pub(super) const fn is_suppressed(&self, flags: CompletionFlags) -> bool {
        self.fast && flags.contains(CompletionFlags::SUPPRESS)
    }

    /// The flags that the provider gets of those that the consumer asked for.
    #[inline(always)]
    pub(super) const fn provider_flags(&self, flags: PostFlags) -> PostFlags {
        if self.solicited { flags } else { flags.difference(PostFlags::SOLICITED) }
    }
}

/// Whether one segment of `len` bytes goes to, or is filled from, the far end as it is.
#[inline(always)]
const fn fits(work: &WorkRequest<'_>, rule: &Rule, len: u32) -> bool {
    match (rule.far_end, work.remote()) {
        (FarEnd::Covers, Some(remote)) => remote.len >= len,
        (FarEnd::Fills | FarEnd::Operand, Some(remote)) => remote.len == len,
        (FarEnd::Unnamed, _) | (_, None) => true,
    }
}

/// The posting ends of one queue pair and their counters.
///
/// Its first half a line and the first line of `sq` are all that the fast path of a request reads
/// and writes here: together with [`Near`] two lines of an [`EpPoster`].
#[repr(C)]
pub(crate) struct Poster<P: Provider> {
    pub(super) core: Core,
    /// At this count the queue may be full: what was consumed when last looked at, plus the depth.
    pub(super) request_limit: u32,
    /// Suppressed requests since the last that the device completes; all of them DTOs, as it
    /// completes every bind.
    pub(super) silent: Run,
    pub(crate) sq: P::Sq,
    pub(crate) rq: P::Rq,
    pub(super) recv_limit: u32,
    /// Bytes of the longest receive posted so far.
    pub(super) longest: u32,
    pub(super) limits: Limits,
    /// Slot of the Endpoint.
    pub(super) ep: u32,
}

#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Core>() == 24 && size_of::<Near<'_>>() == 32);

impl<P: Provider> fmt::Debug for Poster<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Poster").field("ep", &self.ep).finish_non_exhaustive()
    }
}

impl<P: Provider> Poster<P> {
    pub(crate) fn new(ep: u32, sq: P::Sq, rq: P::Rq, core: Core, limits: Limits) -> Self {
        let mut poster = Self {
            core,
            request_limit: 0,
            silent: Run::NONE,
            sq,
            rq,
            recv_limit: 0,
            longest: 0,
            limits,
            ep,
        };
        poster.rewind();
        poster
    }

    pub(crate) const fn limits(&self) -> (&Limits, &Core) {
        (&self.limits, &self.core)
    }

    /// Starts over, with the queue pair.
    pub(crate) fn rewind(&mut self) {
        self.longest = 0;
        self.silent = Run::NONE;
        self.request_limit = u32::from(self.core.requests);
        self.recv_limit = u32::from(self.limits.receives);
    }

    /// Posts a request, on the fast path if it can. `work` makes it: each cold path gets a request
    /// of its own in memory, so that on the fast path its kind is a constant.
    #[inline(always)]
    pub(crate) fn post<'s, 'w>(
        &mut self,
        shared: &Shared<'s>,
        near: &Near<'s>,
        work: impl Fn() -> WorkRequest<'w>,
        segments: &[LmrTriplet],
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        let (ep, rule) = (near.ep, rule(&work()));
        'fast: {
            let (true, [triplet]) = (rule.fast, segments) else { break 'fast };
            let Some(sequence) = self.admits::<REQUEST_OPEN>(ep, flags) else { break 'fast };
            let Some(segment) = self.segment(shared, near, triplet, rule) else { break 'fast };
            let len = segment.len;
            let suppress = rule.is_suppressed(flags);
            if !fits(&work(), rule, len) || suppress && !self.may_suppress() {
                break 'fast;
            }
            let (tag, post_flags) = self.build_tag(rule, flags, suppress);
            if self.publish(ep, near.requests, sequence, Request { cookie, len, tag }) {
                (rule.count)(ep, len);
                if ep.poster.state.load(Ordering::Acquire) & REQUEST_OPEN != 0 {
                    self.sq.post(work(), &[segment], post_flags);
                } else {
                    self.hand_over(shared, ep, work(), &[segment], post_flags);
                }
                return Ok(());
            }
        }
        self.post_slow(shared, work(), segments, cookie, flags)
    }

    /// Gives a published request to the device, unless the Endpoint has left CONNECTED. Whoever
    /// closed the Endpoint may have missed the request: then its dispatcher flushes it.
    #[cold]
    #[inline(never)]
    pub(super) fn hand_over(
        &mut self,
        shared: &Shared<'_>,
        ep: &EpShared,
        work: WorkRequest<'_>,
        segments: &[Segment],
        flags: PostFlags,
    ) {
        if ep.state().is_disconnected() {
            kick(shared, self.ep, ep, Direction::Send);
        } else {
            self.sq.post(work, segments, flags);
        }
    }

    /// Whether the Endpoint is open for requests of that kind, the flags are legal, and a slot is
    /// known to be free: then the sequence of the request.
    #[inline(always)]
    pub(super) fn admits<const OPEN: u32>(
        &mut self,
        ep: &EpShared,
        flags: CompletionFlags,
    ) -> Option<u32> {
        if ep.poster.state.load(Ordering::Acquire) & OPEN == 0 || flags.intersects(self.core.aside)
        {
            return None;
        }
        let sequence = ep.poster.requests.load(Ordering::Relaxed);
        // Looked at once in as many posts as there are slots. Not left to the slow path, which reads
        // seven lines more: with few slots and many Endpoints each of them is a miss.
        (sequence != self.request_limit || self.refill(ep)).then_some(sequence)
    }

    /// Whether looking again at what has been consumed shows a free request slot.
    #[inline(never)]
    pub(super) fn refill(&mut self, ep: &EpShared) -> bool {
        let consumed = ep.request.consumed.load(Ordering::Acquire);
        self.request_limit = consumed.wrapping_add(u32::from(self.core.requests));
        ep.poster.requests.load(Ordering::Relaxed) != self.request_limit
    }

    /// Checks a segment of one byte or more against its LMR.
    #[inline(always)]
    pub(super) fn segment<'s>(
        &self,
        shared: &Shared<'s>,
        near: &Near<'s>,
        triplet: &LmrTriplet,
        rule: &Rule,
    ) -> Option<Segment> {
        let triplet = *triplet;
        let most = (rule.longest)(&self.limits, &self.core);
        if triplet.len.wrapping_sub(1) >= most {
            return None;
        }
        let range = near.range(shared, triplet.context, self.core.zone, rule.need)?;
        let lkey = range.lkey_for(&triplet)?;
        Some(Segment { addr: triplet.addr, len: triplet.len, lkey })
    }

    /// Whether a suppressed request may go without a completion: not when it ends a long row of
    /// suppressed ones, as their slots come back only with a completion. A row is at most half of
    /// the queue, so a full one has a completion to come. (A bind never asks: what becomes of its
    /// RMR is learnt from its completion.)
    #[inline(always)]
    pub(super) fn may_suppress(&self) -> bool {
        self.silent != self.limits.silent
    }

    /// The tag of the next request, and the provider's flags. With `suppress` it goes without a
    /// completion; without, its completion ends the run of suppressed ones before it.
    #[inline(always)]
    pub(super) fn build_tag(
        &mut self,
        rule: &Rule,
        flags: CompletionFlags,
        suppress: bool,
    ) -> (Tag, PostFlags) {
        let bits = flags.bits();
        let suppressed = flags.contains(CompletionFlags::SUPPRESS);
        let mut tag = Tag::new(rule.op, suppressed, self.sq.next_token());
        if suppress {
            self.silent = self.silent.more();
        } else {
            tag = self.end_run(tag);
        }
        let word = u32::from(!suppress) | bits & 2 | bits >> 1 & 4 | bits >> 5 & 8;
        (tag, rule.provider_flags(PostFlags::from_bits_truncate(word.to_le_bytes()[0])))
    }

    /// The next request is signalled: with it those suppressed before it will complete.
    #[inline(always)]
    fn end_run(&mut self, tag: Tag) -> Tag {
        if self.silent == Run::NONE {
            return tag;
        }
        tag.behind(mem::take(&mut self.silent))
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
        let index = sequence & u32::from(self.core.request_mask);
        let Some(slot) = slots.get(index as usize) else {
            return false;
        };
        // ORDER: cookie and length precede the token that a reaper on another thread compares.
        slot.fill(request, Ordering::Release);
        let posted = sequence.wrapping_add(1);
        // ORDER: the slot precedes the count that makes it outstanding, for a reaper that flushes.
        ep.poster.requests.store(posted, Ordering::Release);
        published();
        true
    }

    /// Looks, after a post, whether the Endpoint has ended meanwhile: whoever ended it may have
    /// missed the request.
    #[inline(always)]
    pub(super) fn recheck(&self, shared: &Shared<'_>, ep: &EpShared, direction: Direction) {
        published();
        if EpState::Disconnected.is_of(ep.poster.state.load(Ordering::Acquire)) {
            kick(shared, self.ep, ep, direction);
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

/// Tells the Event Dispatcher of that direction to flush what is outstanding; whether it was
/// not flushing already.
#[cold]
#[inline(never)]
pub(crate) fn kick(shared: &Shared<'_>, index: u32, ep: &EpShared, direction: Direction) -> bool {
    let line = ep.line(direction);
    let slot = line.evd.load(Ordering::Relaxed);
    let Some(evd) = shared.evd(slot) else {
        return false;
    };
    let fresh = evd.producer.flush.push(queue_id(index, direction), &line.flush);
    if fresh {
        evd.changed();
        // Somebody may listen to it.
        shared.arrivals.push(slot, &evd.producer.arrival);
    }
    fresh
}

/// The posting half of an Endpoint, as a value of its own: a thread that owns it posts without a
/// lock.
///
/// From [`Ia::ep_take_poster`](crate::Ia::ep_take_poster), and back by
/// [`Ia::ep_return_poster`](crate::Ia::ep_return_poster); the Endpoint can be neither reset nor
/// freed meanwhile.
// A line: what the fast path of a request needs of `near` and of `poster` begins and ends with one.
#[repr(C, align(64))]
pub struct EpPoster<'s, P: Provider> {
    pub(crate) near: Near<'s>,
    pub(crate) poster: Poster<P>,
    /// From its first receive slot on.
    pub(crate) receives: &'s [AtomicU64],
    pub(crate) ep: Ep,
    pub(crate) shared: Shared<'s>,
}

impl<P: Provider> EpPoster<'_, P> {
    /// Fails to compile unless `sq` begins with the second line, as far as addresses are of 64 bits
    /// and its own alignment allows.
    pub(crate) const IN_LINES: () = {
        let sq = offset_of!(Self, poster) + offset_of!(Poster<P>, sq);
        let wide = cfg!(target_pointer_width = "64") && align_of::<P::Sq>() <= 32;
        assert!(sq == 64 || !wide);
    };
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

    /// The Endpoint is DISCONNECTED: what is posted now comes back flushed, and the host has to wake
    /// who waits for that.
    #[inline(always)]
    #[must_use]
    pub fn is_flushing(&self) -> bool {
        // Of each post it is asked, so the word is not made a state first.
        EpState::Disconnected.is_of(self.near.ep.poster.state.load(Ordering::Acquire))
    }
}
