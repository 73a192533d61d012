//! The way of a post that is not straight: several segments or none, a refusal, a full queue, a
//! closed Endpoint.

use core::sync::atomic::Ordering;

use heapless::Vec;

use crate::data::checks;
use crate::data::checks::Kind;
use crate::data::poster::{MAX_SEGMENTS, Poster, far, kick};
use crate::data::shared::ep::EpShared;
use crate::data::shared::request::{Request, Run};
use crate::data::shared::{Near, Shared};
use crate::provider::{PostFlags, Provider, RecvQueue, Remote, Segment, SendQueue};
use crate::types::completion::Direction;
use crate::types::dat_return::{DatReturn, DatSubtype, DatType};
use crate::types::ep_state::{EpState, RECV_OPEN, REQUEST_OPEN};
use crate::types::flags::CompletionFlags;
use crate::types::triplet::{LmrTriplet, RmrTriplet};

/// What is posted.
#[derive(Clone, Copy)]
pub(crate) enum Work<'a> {
    Send,
    Write(&'a RmrTriplet),
    Read(&'a RmrTriplet),
    Recv,
}

impl Work<'_> {
    /// Whether one segment of `len` bytes goes to, or is filled from, the far end as it is.
    #[inline(always)]
    pub(crate) const fn fits(self, len: u32) -> bool {
        match self {
            Self::Write(remote) => remote.len >= len,
            Self::Read(remote) => remote.len == len,
            Self::Send | Self::Recv => true,
        }
    }

    /// The kind of DTO it is.
    #[inline]
    pub(crate) const fn kind(self) -> &'static Kind {
        match self {
            Self::Send => &checks::SEND,
            Self::Write(_) => &checks::WRITE,
            Self::Read(_) => &checks::READ,
            Self::Recv => &checks::RECV,
        }
    }
}

pub(crate) const PARAMETER: DatType = DatType::InvalidParameter;
pub(crate) const FULL: DatReturn =
    DatReturn::new(DatType::InsufficientResources, DatSubtype::ResourceCredits);
/// The Endpoint is of the other service.
pub(crate) const NOT_SERVED: DatReturn = DatReturn::of(DatType::ModelNotSupported);
pub(crate) const LENGTH: DatReturn = DatReturn::of(DatType::LengthError);

pub(crate) type Segments = Vec<Segment, MAX_SEGMENTS>;

impl<P: Provider> Poster<P> {
    /// Posts anything, or says why not.
    #[cold]
    #[inline(never)]
    pub(crate) fn general(
        &mut self,
        shared: &Shared<'_>,
        near: &Near<'_>,
        work: Work<'_>,
        segments: &[LmrTriplet],
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        let (ep, kind) = (near.ep, work.kind());
        let mut list = Segments::new();
        let (state, mut len, own) = self.checked(shared, near, kind, segments, flags, &mut list)?;
        match work {
            Work::Write(remote) if remote.len < len => return Err(LENGTH),
            Work::Read(remote) if remote.len > len => return Err(LENGTH),
            Work::Read(remote) => {
                len = remote.len;
                trim(&mut list, len);
            }
            Work::Send | Work::Write(_) | Work::Recv => {}
        }
        if matches!(work, Work::Recv) {
            return self.receive(shared, near, state, &list, (cookie, len), flags);
        }
        self.credit(ep)?;
        let sequence = ep.poster.requests.load(Ordering::Relaxed);
        let quiet = flags.contains(CompletionFlags::SUPPRESS) && self.is_quiet(sequence);
        let (tag, post_flags) = self.how_aside(kind.op, flags, quiet);
        let request = Request { cookie, len, tag };
        if !self.publish(near.ep, near.requests, sequence, request) {
            return Err(FULL);
        }
        ep.tally.count(kind.counter, len);
        if own || state.is_disconnected() {
            self.hand_over_late(shared, near, work, &list, post_flags);
        } else {
            self.gather(work, &list, post_flags);
            self.recheck(shared, near.ep, REQUEST_OPEN, Direction::Send);
        }
        Ok(())
    }

    /// As [`Self::hand_over`], of memory that the host has no addresses of.
    fn gather(&mut self, work: Work<'_>, list: &[Segment], flags: PostFlags) {
        let quiet = flags.difference(PostFlags::SOLICITED);
        match work {
            Work::Send | Work::Recv => self.sq.gather(list, None, flags),
            Work::Write(remote) => self.sq.gather(list, Some(far(remote)), quiet),
            // What is read is scattered by the device in any case.
            Work::Read(remote) => self.sq.rdma_read(list, far(remote), quiet),
        };
    }

    /// A free request slot.
    pub(super) fn credit(&mut self, ep: &EpShared) -> Result<(), DatReturn> {
        if self.refill(ep) { Ok(()) } else { Err(FULL) }
    }

    fn receive(
        &mut self,
        shared: &Shared<'_>,
        near: &Near<'_>,
        state: EpState,
        list: &[Segment],
        (cookie, len): (u64, u32),
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        let ep = near.ep;
        let before = self.recv_limit;
        if !self.refill_recv(ep) {
            return Err(FULL);
        }
        if self.limits.unsignalled_recv {
            // Slots come back without the marks of the receives that they held.
            shared.forget_quiet(ep, before, self.recv_limit.wrapping_sub(before));
        }
        if flags.contains(CompletionFlags::UNSIGNALLED) {
            shared.quieten_receive(ep, self.receives);
        }
        self.publish_recv(ep, near.receives, self.receives, (cookie, len));
        if state.is_disconnected() {
            kick(shared, u32::from(self.ep), ep, Direction::Recv);
        } else {
            self.rq.recv(list);
            self.recheck(shared, near.ep, RECV_OPEN, Direction::Recv);
        }
        Ok(())
    }

    /// Rings the doorbell for whatever was deferred, while the queue pair is in service.
    pub(crate) fn ring_deferred(&mut self) {
        self.sq.ring();
    }

    /// Whether the newest request completes without a completion if it succeeds.
    pub(crate) fn ends_silently(&self) -> bool {
        self.quiet != Run::NONE
    }

    /// Posts a request of dat-core's own behind the suppressed ones: its completion says that they
    /// have completed. It has a slot of its own, [`Follower`](crate::data::shared::ep::Follower),
    /// which has been filled with [`Poster::next_token`].
    pub(crate) fn follow(&mut self) {
        self.quiet = Run::NONE;
        // A write of no bytes looks at no key, and ends after everything before it.
        let nowhere = Remote { addr: 0, rkey: 0 };
        self.sq.rdma_write(&[], nowhere, PostFlags::SIGNALED);
    }

    /// The token that the next request will have.
    pub(crate) fn next_token(&self) -> u16 {
        self.sq.next_token()
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
