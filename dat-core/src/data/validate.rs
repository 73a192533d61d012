//! The slow path of a post: several segments or none, a request without a fast path, a refusal, a
//! full queue, a closed Endpoint.

use core::sync::atomic::Ordering;

use heapless::Vec;

use crate::data::poster::{FarEnd, MAX_SEGMENTS, Poster, Rule, rule};
use crate::data::shared::ep::EpShared;
use crate::data::shared::lmr::Refusal;
use crate::data::shared::request::{Request, Run};
use crate::data::shared::{Near, Shared, lmr};
use crate::provider::{PostFlags, Provider, Segment, SendQueue, WorkRequest};
use crate::types::completion::Direction;
use crate::types::dat_return::{DatReturn, DatSubtype, DatType};
use crate::types::ep_state::{EpOp, EpState, Outcome, REQUEST_OPEN, outcome};
use crate::types::flags::CompletionFlags;
use crate::types::triplet::{LmrTriplet, RmrTriplet};

/// Bytes of the operand of an atomic.
const OPERAND: u32 = 8;
/// Greatest QPN.
const MOST_24: u32 = 0xff_ffff;

pub(crate) const PARAMETER: DatType = DatType::InvalidParameter;
pub(crate) const FULL: DatReturn =
    DatReturn::new(DatType::InsufficientResources, DatSubtype::ResourceCredits);
/// The Endpoint is of the other service.
const NOT_SERVED: DatReturn = DatReturn::of(DatType::ModelNotSupported);
pub(crate) const LENGTH: DatReturn = DatReturn::of(DatType::LengthError);

pub(crate) type Segments = Vec<Segment, MAX_SEGMENTS>;

impl<P: Provider> Poster<P> {
    /// Posts any request of segments, or says why not.
    #[cold]
    #[inline(never)]
    pub(crate) fn post_slow(
        &mut self,
        shared: &Shared<'_>,
        work: WorkRequest<'_>,
        segments: &[LmrTriplet],
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        // It cannot fail: the poster is that of a slot.
        let Some(near) = &shared.near(self.ep) else { return Err(FULL) };
        let (ep, rule) = (near.ep, rule(&work));
        self.admit(ep, EpOp::PostRequest, rule, flags)?;
        let mut list = Segments::new();
        let (len, readable) = self.validate(shared, rule, segments, &mut list)?;
        let len = check_remote(&work, rule, &mut list, len)?;
        self.take_credit(ep)?;
        let suppress = rule.is_suppressed(flags) && self.may_suppress();
        let mut post_flags = self.enqueue(near, rule, (cookie, len), flags, suppress)?;
        (rule.count)(ep, len);
        // A read that it waits for may be about to write what it sends.
        post_flags.set(PostFlags::GATHER, !readable || post_flags.contains(PostFlags::FENCE));
        self.hand_over(shared, ep, work, &list, post_flags);
        Ok(())
    }

    /// Whether the state, the kind of queue pair and the flags admit a post; the state.
    pub(super) fn admit(
        &self,
        ep: &EpShared,
        op: EpOp,
        rule: &Rule,
        flags: CompletionFlags,
    ) -> Result<EpState, DatReturn> {
        let state = ep.state();
        if let Outcome::Refuse(ret) = outcome(state, op) {
            return Err(ret);
        }
        if !(rule.served)(&self.limits) {
            return Err(NOT_SERVED);
        }
        if flags.intersects((rule.barred)(&self.limits, &self.core)) {
            return Err(DatReturn::new(PARAMETER, rule.flags));
        }
        Ok(state)
    }

    /// Checks number, memory and length of the segments. As [`check_segments`].
    pub(super) fn validate(
        &self,
        shared: &Shared<'_>,
        rule: &Rule,
        segments: &[LmrTriplet],
        list: &mut Segments,
    ) -> Result<(u32, bool), DatReturn> {
        let (limits, core) = self.limits();
        let most = ((rule.segments)(limits), (rule.longest)(limits, core));
        check_segments(shared, core.zone, rule, most, segments, list)
    }

    /// Makes sure of a free request slot.
    pub(super) fn take_credit(&mut self, ep: &EpShared) -> Result<(), DatReturn> {
        if self.refill(ep) { Ok(()) } else { Err(FULL) }
    }

    /// Publishes the next request, for which there is a slot, and returns the provider's flags.
    pub(super) fn enqueue(
        &mut self,
        near: &Near<'_>,
        rule: &Rule,
        (cookie, len): (u64, u32),
        flags: CompletionFlags,
        suppress: bool,
    ) -> Result<PostFlags, DatReturn> {
        let sequence = near.ep.poster.requests.load(Ordering::Relaxed);
        let (mut tag, post_flags) = self.build_tag(rule, flags, suppress);
        if flags.contains(CompletionFlags::UNSIGNALLED) {
            tag = tag.unsignalled();
        }
        let published =
            self.publish(near.ep, near.requests, sequence, Request { cookie, len, tag });
        if published { Ok(post_flags) } else { Err(FULL) }
    }

    /// Rings the doorbell for whatever was deferred, while the queue pair is in service.
    pub(crate) fn ring_deferred(&mut self) {
        self.sq.ring();
    }

    /// Whether the newest request completes without a completion if it succeeds.
    pub(crate) fn ends_silently(&self) -> bool {
        self.silent != Run::NONE
    }

    /// Whether there is room for [`Poster::follow`], with so many requests that have not completed.
    pub(crate) fn has_room_to_follow(
        &self,
        shared: &Shared<'_>,
        ep: &EpShared,
        unfinished: u32,
    ) -> bool {
        // The run stays outstanding until the follower completes, so no more than the others can be
        // posted behind it.
        let (run, requests) = (self.silent.count(), u32::from(self.core.requests));
        let open = ep.poster.state.load(Ordering::Acquire) & REQUEST_OPEN != 0;
        let (since, left) = if open {
            (unfinished.min(run), u16::try_from(requests.saturating_sub(run)).unwrap_or(u16::MAX))
        } else {
            (unfinished, 0)
        };
        let first = ep.posted(Direction::Send).wrapping_sub(since);
        let slot = shared.request(&ep.request, first);
        slot.is_some_and(|slot| self.sq.has_room(slot.tag().token(), left))
    }

    /// Posts a request of dat-core's own behind the suppressed ones: its completion says that they
    /// have completed. It has a slot of its own, [`Follower`](crate::data::shared::ep::Follower),
    /// which has been filled with [`Poster::next_token`].
    pub(crate) fn follow(&mut self) {
        self.silent = Run::NONE;
        // A write of no bytes looks at no key, and ends after everything before it.
        let nowhere = RmrTriplet::default();
        self.sq.post(WorkRequest::Write(&nowhere), &[], PostFlags::SIGNALED);
    }

    /// The token that the next request will have.
    pub(crate) fn next_token(&self) -> u16 {
        self.sq.next_token()
    }
}

/// Checks the far end against the segments, and returns how many bytes move. A read fills no more
/// of the segments than the far end has.
fn check_remote(
    work: &WorkRequest<'_>,
    rule: &Rule,
    list: &mut Segments,
    len: u32,
) -> Result<u32, DatReturn> {
    if let WorkRequest::SendUd(to, _) = work {
        if to.qpn > MOST_24 {
            return Err(DatReturn::new(DatType::InvalidAddress, DatSubtype::AddressMalformed));
        }
    }
    let Some(remote) = work.remote() else {
        return Ok(len);
    };
    match rule.far_end {
        FarEnd::Covers if remote.len < len => Err(LENGTH),
        FarEnd::Fills if remote.len > len => Err(LENGTH),
        FarEnd::Fills => {
            trim(list, remote.len);
            Ok(remote.len)
        }
        FarEnd::Operand if len != OPERAND || remote.len != OPERAND => Err(LENGTH),
        FarEnd::Operand if remote.addr % u64::from(OPERAND) != 0 => {
            Err(DatReturn::new(PARAMETER, rule.far))
        }
        FarEnd::Covers | FarEnd::Operand | FarEnd::Unnamed => Ok(len),
    }
}

/// Checks segments against their LMRs, for a queue of zone `zone` that takes so many segments and
/// bytes at `most`; empty ones drop out. Returns how many bytes they are, and whether the host can
/// read all of them itself.
pub(super) fn check_segments(
    shared: &Shared<'_>,
    zone: u64,
    rule: &Rule,
    (segments_max, longest): (u8, u32),
    segments: &[LmrTriplet],
    list: &mut Segments,
) -> Result<(u32, bool), DatReturn> {
    if segments.len() > usize::from(segments_max) {
        return Err(DatReturn::new(PARAMETER, DatSubtype::InvalidArg2));
    }
    let (mut total, mut readable) = (0_u64, true);
    for triplet in segments.iter().filter(|triplet| triplet.len != 0) {
        let unknown = DatReturn::new(DatType::PrivilegesViolation, rule.privileges);
        let lmr = lmr::find(shared.lmrs, triplet.context).ok_or(unknown)?;
        let (lkey, of_host) =
            lmr.any(triplet, zone, rule.need).map_err(|refusal| match refusal {
                Refusal::Context | Refusal::Privilege => unknown,
                Refusal::Zone => DatReturn::new(DatType::ProtectionViolation, rule.protection),
                Refusal::Range => DatReturn::new(PARAMETER, DatSubtype::InvalidArg3),
            })?;
        readable &= of_host;
        total += u64::from(triplet.len);
        let segment = Segment { addr: triplet.addr, len: triplet.len, lkey };
        if list.push(segment).is_err() {
            return Err(DatReturn::new(PARAMETER, DatSubtype::InvalidArg2));
        }
    }
    match u32::try_from(total) {
        Ok(len) if len <= longest => Ok((len, readable)),
        Ok(_) | Err(_) => Err(LENGTH),
    }
}

/// Shortens a list to `len` bytes; it holds at least as many.
fn trim(list: &mut Segments, len: u32) {
    let mut left = len;
    let mut keep = 0;
    for segment in list.iter_mut() {
        if left == 0 {
            break;
        }
        segment.len = segment.len.min(left);
        left -= segment.len;
        keep += 1;
    }
    list.truncate(keep);
}
