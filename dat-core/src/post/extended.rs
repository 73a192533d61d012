//! Posting of what the InfiniBand extensions add: one general way for all of it, beside the straight ways of the others.

use core::sync::atomic::Ordering;

use super::general::{FULL, LENGTH, NOT_SERVED, PARAMETER, Segments, Work, admit, check};
use super::{Poster, far, is_barred, kick};
use crate::Ia;
use crate::counters::EpCounter;
use crate::dat_return::{DatReturn, DatSubtype, DatType};
use crate::ep::table::EpOp;
use crate::flags::CompletionFlags;
use crate::handle::Ep;
use crate::provider::{Atomic, Destination, Direction, PostFlags, Provider, Segment, SendQueue};
use crate::shared::ep::{Op, REQUEST_OPEN};
use crate::shared::{Near, Shared};
use crate::triplet::{LmrTriplet, RmrTriplet};

/// Bytes of the operand of an atomic.
const OPERAND: u32 = 8;
/// Greatest QPN.
const MOST_24: u32 = 0xff_ffff;

/// What is posted.
#[derive(Clone, Copy)]
pub(super) enum Extended<'a> {
    Atomic(Atomic, &'a RmrTriplet),
    WriteImmed(&'a RmrTriplet, u32),
    SendUd(&'a Destination, Option<u32>),
    SendInvalidate(u32),
}

impl Extended<'_> {
    const fn op(self) -> Op {
        match self {
            Self::Atomic(Atomic::FetchAdd(_), _) => Op::FetchAdd,
            Self::Atomic(Atomic::CmpSwap { .. }, _) => Op::CmpSwap,
            Self::WriteImmed(..) => Op::WriteImmed,
            Self::SendUd(..) | Self::SendInvalidate(_) => Op::Send,
        }
    }

    /// Subtypes of bad flags and of a bad far end: their places among the arguments.
    const fn places(self) -> (DatSubtype, DatSubtype) {
        match self {
            Self::Atomic(Atomic::FetchAdd(_), _) => {
                (DatSubtype::InvalidArg6, DatSubtype::InvalidArg5)
            }
            Self::Atomic(Atomic::CmpSwap { .. }, _) => {
                (DatSubtype::InvalidArg7, DatSubtype::InvalidArg6)
            }
            Self::WriteImmed(..) => (DatSubtype::InvalidArg6, DatSubtype::InvalidArg4),
            Self::SendUd(..) => (DatSubtype::InvalidArg6, DatSubtype::InvalidArg3),
            Self::SendInvalidate(_) => (DatSubtype::InvalidArg5, DatSubtype::InvalidArg7),
        }
    }
}

impl<P: Provider> Poster<P> {
    /// Posts any of them, or says why not.
    #[inline(never)]
    pub(super) fn extended(
        &mut self,
        shared: &Shared<'_>,
        near: &Near<'_>,
        work: Extended<'_>,
        segments: &[LmrTriplet],
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        let state = admit(near.ep, EpOp::PostRequest)?;
        let limits = self.limits;
        let (bad_flags, bad_far) = work.places();
        let (like, most, served) = match work {
            Extended::Atomic(_, remote) => (Work::Read(remote), 1, limits.atomics),
            Extended::WriteImmed(remote, _) => (Work::Write(remote), limits.write_segments, true),
            Extended::SendUd(..) | Extended::SendInvalidate(_) => {
                (Work::Send, limits.request_segments, true)
            }
        };
        let longest = if matches!(work, Extended::SendInvalidate(_)) {
            limits.max_message
        } else {
            limits.max_rdma
        };
        if !served || limits.datagram != matches!(work, Extended::SendUd(..)) {
            return Err(NOT_SERVED);
        }
        if is_barred(flags, limits.barred_request) {
            return Err(DatReturn::new(PARAMETER, bad_flags));
        }
        if segments.len() > usize::from(most) {
            return Err(DatReturn::new(PARAMETER, DatSubtype::InvalidArg2));
        }
        let mut list = Segments::new();
        let (total, _) = check(shared, limits.zone, like, segments, &mut list)?;
        let len = u32::try_from(total).map_err(|_| LENGTH)?;
        if len > longest {
            return Err(LENGTH);
        }
        match work {
            Extended::Atomic(_, remote) => {
                if len != OPERAND || remote.len != OPERAND {
                    return Err(LENGTH);
                }
                if remote.addr % u64::from(OPERAND) != 0 {
                    return Err(DatReturn::new(PARAMETER, bad_far));
                }
            }
            Extended::WriteImmed(remote, _) if remote.len < len => return Err(LENGTH),
            Extended::SendUd(to, _) if to.qpn > MOST_24 => {
                return Err(DatReturn::new(
                    DatType::InvalidAddress,
                    DatSubtype::AddressMalformed,
                ));
            }
            Extended::WriteImmed(..) | Extended::SendUd(..) | Extended::SendInvalidate(_) => {}
        }
        self.credit(near.ep)?;
        let sequence = near.ep.poster.requests.load(Ordering::Relaxed);
        // The device completes every one of them: they are not for the rows of suppressed ones.
        let (info, post_flags) = self.how_aside(work.op(), len, flags, false);
        if !self.publish(near.ep, near.requests, sequence, cookie, info.special()) {
            return Err(FULL);
        }
        let tally = &near.ep.tally;
        match work {
            Extended::Atomic(Atomic::FetchAdd(_), _) => tally.count_one(EpCounter::PostFetchAdd),
            Extended::Atomic(Atomic::CmpSwap { .. }, _) => tally.count_one(EpCounter::PostCmpSwap),
            Extended::WriteImmed(..) => tally.count(EpCounter::PostWriteImm, len),
            Extended::SendUd(..) => tally.count(EpCounter::PostSendUd, len),
            Extended::SendInvalidate(_) => tally.count(EpCounter::PostSend, len),
        }
        if state.is_disconnected() {
            kick(shared, u32::from(self.ep), near.ep, Direction::Send);
        } else {
            self.give(work, &list, post_flags);
            self.recheck(shared, near, REQUEST_OPEN, Direction::Send);
        }
        Ok(())
    }

    fn give(&mut self, work: Extended<'_>, list: &[Segment], flags: PostFlags) {
        match work {
            Extended::Atomic(atomic, remote) => {
                let quiet = flags.difference(PostFlags::SOLICITED);
                let into = list.first().copied().unwrap_or_default();
                self.sq.atomic(into, far(remote), atomic, quiet)
            }
            Extended::WriteImmed(remote, immediate) => {
                self.sq
                    .rdma_write_immed(list, far(remote), immediate, flags)
            }
            Extended::SendUd(to, immediate) => self.sq.send_ud(list, to, immediate, flags),
            Extended::SendInvalidate(rkey) => self.sq.send_invalidate(list, rkey, flags),
        };
    }
}

impl<P: Provider> Ia<'_, P> {
    /// Posts any of them by handle.
    pub(super) fn post_extended(
        &mut self,
        ep: Ep,
        work: Extended<'_>,
        segments: &[LmrTriplet],
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        let (poster, shared, near) = self.posting(ep)?;
        poster.extended(&shared, &near, work, segments, cookie, flags)
    }
}
