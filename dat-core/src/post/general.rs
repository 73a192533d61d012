//! The way of a post that is not straight: several segments or none, a refusal, a full queue, a closed Endpoint.

use core::sync::atomic::Ordering;

use heapless::Vec;

use super::{MAX_SEGMENTS, Poster, far, is_barred, kick};
use crate::Ia;
use crate::counters::EpCounter;
use crate::dat_return::{DatReturn, DatSubtype, DatType};
use crate::ep::table::{EpOp, EpState, Outcome, outcome};
use crate::flags::{CompletionFlags, MemPriv};
use crate::handle::Ep;
use crate::provider::{Direction, PostFlags, Provider, RecvQueue, Remote, Segment, SendQueue};
use crate::shared::ep::{EpShared, Info, Op, RECV_OPEN, REQUEST_OPEN, Run};
use crate::shared::lmr::{self, Refusal};
use crate::shared::{Near, Shared};
use crate::triplet::{LmrTriplet, RmrTriplet};

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
    pub(super) const fn fits(self, len: u32) -> bool {
        match self {
            Self::Write(remote) => remote.len >= len,
            Self::Read(remote) => remote.len == len,
            Self::Send | Self::Recv => true,
        }
    }

    /// What the local memory must grant, and the subtypes of its two refusals.
    const fn rights(self) -> (MemPriv, DatSubtype, DatSubtype) {
        match self {
            Self::Send => (
                MemPriv::LOCAL_READ,
                DatSubtype::PrivilegesRead,
                DatSubtype::ProtectionRead,
            ),
            Self::Recv => (
                MemPriv::LOCAL_WRITE,
                DatSubtype::PrivilegesWrite,
                DatSubtype::ProtectionWrite,
            ),
            Self::Write(_) => (
                MemPriv::LOCAL_READ,
                DatSubtype::PrivilegesRdmaWrite,
                DatSubtype::ProtectionRdmaWrite,
            ),
            Self::Read(_) => (
                MemPriv::LOCAL_WRITE,
                DatSubtype::PrivilegesRdmaRead,
                DatSubtype::ProtectionRdmaRead,
            ),
        }
    }
}

pub(super) const PARAMETER: DatType = DatType::InvalidParameter;
pub(crate) const FULL: DatReturn =
    DatReturn::new(DatType::InsufficientResources, DatSubtype::ResourceCredits);
/// The Endpoint is of the other service.
pub(super) const NOT_SERVED: DatReturn = DatReturn::of(DatType::ModelNotSupported);
pub(super) const LENGTH: DatReturn = DatReturn::of(DatType::LengthError);

pub(crate) type Segments = Vec<Segment, MAX_SEGMENTS>;

impl<P: Provider> Poster<P> {
    /// Posts anything, or says why not.
    #[cold]
    #[inline(never)]
    pub(super) fn general(
        &mut self,
        shared: &Shared<'_>,
        near: &Near<'_>,
        work: Work<'_>,
        segments: &[LmrTriplet],
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        let limits = &self.limits;
        let (counter, direction, op, most, max_len, barred, flags_arg) = match work {
            Work::Send => (
                EpCounter::PostSend,
                EpOp::PostRequest,
                Op::Send,
                limits.request_segments,
                limits.max_message,
                limits.barred_request,
                DatSubtype::InvalidArg5,
            ),
            Work::Write(_) => (
                EpCounter::PostWrite,
                EpOp::PostRequest,
                Op::RdmaWrite,
                limits.write_segments,
                limits.max_rdma,
                limits.barred_request,
                DatSubtype::InvalidArg6,
            ),
            Work::Read(_) => (
                EpCounter::PostRead,
                EpOp::PostRequest,
                Op::RdmaRead,
                limits.read_segments,
                limits.max_rdma,
                limits.barred_request,
                DatSubtype::InvalidArg6,
            ),
            Work::Recv => (
                EpCounter::PostRecv,
                EpOp::PostRecv,
                Op::Send,
                limits.recv_segments,
                limits.max_message,
                limits.barred_recv,
                DatSubtype::InvalidArg5,
            ),
        };
        let (ep, state) = (near.ep, admit(near.ep, direction)?);
        if limits.datagram && direction == EpOp::PostRequest {
            return Err(NOT_SERVED);
        }
        if is_barred(flags, barred) {
            return Err(DatReturn::new(PARAMETER, flags_arg));
        }
        if segments.len() > usize::from(most) {
            return Err(DatReturn::new(PARAMETER, DatSubtype::InvalidArg2));
        }
        let mut list = Segments::new();
        let (total, own) = check(shared, limits.zone, work, segments, &mut list)?;
        if total > u64::from(max_len) {
            return Err(LENGTH);
        }
        let mut len = u32::try_from(total).map_err(|_| LENGTH)?;
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
            if limits.shared {
                return Err(NOT_SERVED);
            }
            return self.receive(shared, near, state, &list, (cookie, len), flags);
        }
        self.credit(ep)?;
        let sequence = ep.poster.requests.load(Ordering::Relaxed);
        let quiet = flags.contains(CompletionFlags::SUPPRESS) && self.is_quiet(sequence);
        let (info, post_flags) = self.how_aside(op, len, flags, quiet);
        if !self.publish(near.ep, near.requests, sequence, cookie, info) {
            return Err(FULL);
        }
        ep.tally.count(counter, len);
        if own || state.is_disconnected() {
            self.hand_over_late(shared, near, work, &list, post_flags);
        } else {
            self.gather(work, &list, post_flags);
            self.recheck(shared, near, REQUEST_OPEN, Direction::Send);
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
        if !self.refill_recv(ep) {
            return Err(FULL);
        }
        if flags.contains(CompletionFlags::UNSIGNALLED) {
            self.quieten_recv(ep);
        }
        self.publish_recv(near, cookie, len);
        if state.is_disconnected() {
            kick(shared, u32::from(self.ep), ep, Direction::Recv);
        } else {
            self.rq.recv(list);
            self.recheck(shared, near, RECV_OPEN, Direction::Recv);
        }
        Ok(())
    }

    /// Posts dat-core's own last request of a graceful disconnect, if the newest request would complete in silence.
    /// Either way the doorbell is rung for what was deferred.
    pub(crate) fn drain(&mut self, shared: &Shared<'_>, near: &Near<'_>) {
        // A suppressed request in the last slot is signalled, so there is room whenever there is need.
        if self.quiet == Run::default() || self.credit(near.ep).is_err() {
            self.sq.ring();
            return;
        }
        let info = Info::new(Op::Drain, 0, true, self.sq.next_token());
        let info = self.end_run(info);
        let sequence = near.ep.poster.requests.load(Ordering::Relaxed);
        if !self.publish(near.ep, near.requests, sequence, 0, info) {
            return;
        }
        // A write of no bytes looks at no key, and ends after everything before it.
        let nowhere = Remote { addr: 0, rkey: 0 };
        self.sq.rdma_write(&[], nowhere, PostFlags::SIGNALED);
        self.recheck(shared, near, REQUEST_OPEN, Direction::Send);
    }
}

impl<P: Provider> Ia<'_, P> {
    /// Posts anything by handle: all calls share one copy of the straight way.
    #[inline(never)]
    pub(super) fn post(
        &mut self,
        ep: Ep,
        work: Work<'_>,
        segments: &[LmrTriplet],
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        let (poster, shared, near) = self.posting(ep)?;
        match work {
            Work::Recv => poster.post_recv(&shared, &near, segments, cookie, flags),
            Work::Send | Work::Write(_) | Work::Read(_) => {
                poster.request(&shared, &near, work, segments, cookie, flags)
            }
        }
    }
}

/// Every segment against its LMR, for who is of `owner`'s zone; empty ones drop out. How many bytes they are, and whether the
/// host could read all itself.
pub(crate) fn check(
    shared: &Shared<'_>,
    owner: u32,
    work: Work<'_>,
    segments: &[LmrTriplet],
    list: &mut Segments,
) -> Result<(u64, bool), DatReturn> {
    let (need, privilege, zone) = work.rights();
    let (mut total, mut own) = (0_u64, true);
    for triplet in segments.iter().filter(|triplet| triplet.len != 0) {
        let unknown = DatReturn::new(DatType::PrivilegesViolation, privilege);
        let lmr = lmr::find(shared.lmrs, triplet.context).ok_or(unknown)?;
        let (lkey, of_host) = lmr
            .any(triplet, owner, need)
            .map_err(|refusal| match refusal {
                Refusal::Context | Refusal::Privilege => unknown,
                Refusal::Zone => DatReturn::new(DatType::ProtectionViolation, zone),
                Refusal::Range => DatReturn::new(PARAMETER, DatSubtype::InvalidArg3),
            })?;
        own &= of_host;
        total += u64::from(triplet.len);
        let segment = Segment {
            addr: triplet.addr,
            len: triplet.len,
            lkey,
        };
        if list.push(segment).is_err() {
            return Err(DatReturn::new(PARAMETER, DatSubtype::InvalidArg2));
        }
    }
    Ok((total, own))
}

/// The state, if it admits the post at all.
pub(super) fn admit(ep: &EpShared, op: EpOp) -> Result<EpState, DatReturn> {
    let state = EpState::of(ep);
    match outcome(state, op) {
        Outcome::Refuse(ret) => Err(ret),
        Outcome::Stay | Outcome::Ignore | Outcome::Gone | Outcome::Go { .. } => Ok(state),
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
