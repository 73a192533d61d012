//! Posting of what the InfiniBand extensions add: one general way for all of it, beside the
//! straight ways of the others.

use core::sync::atomic::Ordering;

use crate::data::checks;
use crate::data::checks::Kind;
use crate::data::general::{FULL, LENGTH, PARAMETER, Segments};
use crate::data::poster::{Poster, far, kick};
use crate::data::shared::request::Request;
use crate::data::shared::{Near, Shared};
use crate::provider::{Atomic, Destination, PostFlags, Provider, Segment, SendQueue};
use crate::types::completion::Direction;
use crate::types::dat_return::{DatReturn, DatSubtype, DatType};
use crate::types::ep_state::REQUEST_OPEN;
use crate::types::flags::CompletionFlags;
use crate::types::triplet::{LmrTriplet, RmrTriplet};

/// Bytes of the operand of an atomic.
const OPERAND: u32 = 8;
/// Greatest QPN.
const MOST_24: u32 = 0xff_ffff;

/// What is posted.
#[derive(Clone, Copy)]
pub(crate) enum Extended<'a> {
    Atomic(Atomic, &'a RmrTriplet),
    WriteImmed(&'a RmrTriplet, u32),
    SendUd(&'a Destination, Option<u32>),
    SendInvalidate(u32),
}

impl Extended<'_> {
    /// The kind of DTO it is.
    const fn kind(self) -> &'static Kind {
        match self {
            Self::Atomic(Atomic::FetchAdd(_), _) => &checks::FETCH_ADD,
            Self::Atomic(Atomic::CmpSwap { .. }, _) => &checks::CMP_SWAP,
            Self::WriteImmed(..) => &checks::WRITE_IMMED,
            Self::SendUd(..) => &checks::SEND_UD,
            Self::SendInvalidate(_) => &checks::SEND_INVALIDATE,
        }
    }
}

impl<P: Provider> Poster<P> {
    /// Posts any of them, or says why not.
    #[inline(never)]
    pub(crate) fn extended(
        &mut self,
        shared: &Shared<'_>,
        near: &Near<'_>,
        work: Extended<'_>,
        segments: &[LmrTriplet],
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        let kind = work.kind();
        let mut list = Segments::new();
        let (state, len, _) = self.checked(shared, near, kind, segments, flags, &mut list)?;
        match work {
            Extended::Atomic(_, remote) => {
                if len != OPERAND || remote.len != OPERAND {
                    return Err(LENGTH);
                }
                if remote.addr % u64::from(OPERAND) != 0 {
                    return Err(DatReturn::new(PARAMETER, kind.far));
                }
            }
            Extended::WriteImmed(remote, _) if remote.len < len => return Err(LENGTH),
            Extended::SendUd(to, _) if to.qpn > MOST_24 => {
                return Err(DatReturn::new(DatType::InvalidAddress, DatSubtype::AddressMalformed));
            }
            Extended::WriteImmed(..) | Extended::SendUd(..) | Extended::SendInvalidate(_) => {}
        }
        self.credit(near.ep)?;
        let sequence = near.ep.poster.requests.load(Ordering::Relaxed);
        // The device completes every one of them: they are not for the rows of suppressed ones.
        let (tag, post_flags) = self.how_aside(kind.op, flags, false);
        let request = Request { cookie, len, tag };
        if !self.publish(near.ep, near.requests, sequence, request) {
            return Err(FULL);
        }
        let tally = &near.ep.tally;
        match work {
            // Of atomics no bytes are counted: each has as many.
            Extended::Atomic(..) => tally.count_one(kind.counter),
            Extended::WriteImmed(..) | Extended::SendUd(..) | Extended::SendInvalidate(_) => {
                tally.count(kind.counter, len);
            }
        }
        if state.is_disconnected() {
            kick(shared, u32::from(self.ep), near.ep, Direction::Send);
        } else {
            self.give(work, &list, post_flags);
            self.recheck(shared, near.ep, REQUEST_OPEN, Direction::Send);
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
                self.sq.rdma_write_immed(list, far(remote), immediate, flags)
            }
            Extended::SendUd(to, immediate) => self.sq.send_ud(list, to, immediate, flags),
            Extended::SendInvalidate(rkey) => self.sq.send_invalidate(list, rkey, flags),
        };
    }
}
