//! Extension: a list of receives.

use core::borrow::Borrow;
use core::sync::atomic::Ordering;

use crate::data::list::{Message, Refused};
use crate::data::poster::{EpPoster, Poster, RECV};
use crate::data::shared::{Near, Shared};
use crate::provider::{Provider, RecvQueue, Segment};
use crate::types::atomic::AtomicU64;
use crate::types::completion::Direction;
use crate::types::counters::EpCounter;
use crate::types::ep_state::RECV_OPEN;
use crate::types::flags::CompletionFlags;
use crate::types::triplet::LmrTriplet;

impl<P: Provider> Poster<P> {
    #[inline(always)]
    pub(crate) fn post_recvs<'s>(
        &mut self,
        shared: &Shared<'s>,
        near: &Near<'s>,
        receives: &&[AtomicU64],
        list: &[impl Borrow<Message>],
        flags: CompletionFlags,
    ) -> Result<(), Refused> {
        let mut posted = 0;
        while let Some(left) = list.get(posted..) {
            let Some(count) = self.fast_recvs(shared, near, receives, left, flags) else { break };
            posted += count;
        }
        if posted != list.len() {
            return self.recvs_slow(shared, near, receives, list, posted, flags);
        }
        self.recheck(shared, near.ep, Direction::Recv);
        Ok(())
    }

    /// Posts the receives at the front of the list that are of one LMR, take slots in a row and can
    /// take the fast path, and returns how many: at least one.
    #[inline(always)]
    fn fast_recvs<'s>(
        &mut self,
        shared: &Shared<'s>,
        near: &Near<'s>,
        receives: &&[AtomicU64],
        list: &[impl Borrow<Message>],
        flags: CompletionFlags,
    ) -> Option<usize> {
        let context = list.first()?.borrow().local.context;
        let first = near.ep.poster.receives.load(Ordering::Relaxed);
        let mut room = self.recv_limit.wrapping_sub(first) as usize;
        if room < list.len() && self.refill_unmarked(near.ep) {
            room = self.recv_limit.wrapping_sub(first) as usize;
        }
        if near.ep.poster.state.load(Ordering::Acquire) & RECV_OPEN == 0 || !flags.is_empty() {
            return None;
        }
        let range = near.range(shared, context, self.core.zone, RECV.need)?;
        let mask = u32::from(self.limits.recv_mask);
        let at = (first & mask) as usize;
        let slots = receives.get(at..(at + room).min(mask as usize + 1))?;
        let most = (RECV.longest)(&self.limits, &self.core);
        let (mut count, mut bytes, mut longest) = (0_u32, 0, self.longest);
        for (slot, receive) in slots.iter().zip(list) {
            let Message { cookie, local } = *receive.borrow();
            if local.len.wrapping_sub(1) >= most
                || local.context != context
                || range.lkey_for(&local).is_none()
            {
                break;
            }
            slot.store(cookie, Ordering::Relaxed);
            longest = longest.max(local.len);
            bytes += u64::from(local.len);
            count += 1;
        }
        let run = list.get(..count as usize).filter(|run| !run.is_empty())?;
        self.outlast(near.ep, longest);
        // ORDER: cookies and length precede the count that makes the receives outstanding.
        near.ep.poster.receives.store(first.wrapping_add(count), Ordering::Release);
        near.ep.count_all(EpCounter::PostRecv, count.into(), bytes);
        self.rq.recv_each(run.iter().map(|receive| {
            let receive: &Message = receive.borrow();
            let LmrTriplet { addr, len, .. } = receive.local;
            Segment { addr, len, lkey: range.lkey }
        }));
        Some(run.len())
    }

    /// Posts the list from `next` on, one by one.
    #[cold]
    #[inline(never)]
    fn recvs_slow<'s>(
        &mut self,
        shared: &Shared<'s>,
        near: &Near<'s>,
        receives: &&[AtomicU64],
        list: &[impl Borrow<Message>],
        next: usize,
        flags: CompletionFlags,
    ) -> Result<(), Refused> {
        for (posted, receive) in list.iter().map(Borrow::borrow).enumerate().skip(next) {
            self.post_recv(shared, near, receives, &[receive.local], receive.cookie, flags)
                .map_err(|ret| Refused { posted, ret })?;
        }
        self.recheck(shared, near.ep, Direction::Recv);
        Ok(())
    }
}

impl<P: Provider> EpPoster<'_, P> {
    /// Posts receives in order; the flags are those of each. Extension.
    ///
    /// The first that is refused ends it: those before it are posted, it and those behind it are
    /// not. Endpoint and errors as for [`EpPoster::post_recv`].
    #[inline(always)]
    pub fn post_recvs(
        &mut self,
        list: &[impl Borrow<Message>],
        flags: CompletionFlags,
    ) -> Result<(), Refused> {
        self.poster.post_recvs(&self.shared, &self.near, &self.receives, list, flags)
    }
}
