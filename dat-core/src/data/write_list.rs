//! Extension: a list of RDMA writes under one doorbell.

use core::borrow::Borrow;
use core::sync::atomic::Ordering;

use crate::data::poster::{EpPoster, Poster, WRITE};
use crate::data::shared::request::{Request, Run};
use crate::data::shared::{Near, Shared, lmr};
use crate::provider::{Provider, Segment, SendQueue, WorkRequest};
use crate::types::completion::Direction;
use crate::types::counters::EpCounter;
use crate::types::dat_return::DatReturn;
use crate::types::flags::CompletionFlags;
use crate::types::triplet::{LmrTriplet, RmrTriplet};

/// One RDMA write of a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct RdmaWrite {
    /// What its event carries.
    pub cookie: u64,
    /// The bytes to write.
    pub local: LmrTriplet,
    /// Where to.
    pub remote: RmrTriplet,
}

/// A list was posted only in part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// How many of the list were posted: all those before the one that was refused.
    pub posted: usize,
    /// Why that one was refused.
    pub ret: DatReturn,
}

impl<P: Provider> Poster<P> {
    #[inline(always)]
    pub(crate) fn post_rdma_writes(
        &mut self,
        shared: &Shared<'_>,
        near: &Near<'_>,
        list: &[impl Borrow<RdmaWrite>],
        flags: CompletionFlags,
    ) -> Result<(), Refused> {
        let posted = self.fast_writes(near, list, flags);
        let result = if posted == list.len() {
            Ok(())
        } else {
            self.writes_slow(shared, near, list, posted, flags)
        };
        if !flags.contains(CompletionFlags::DEFER) {
            self.ring(near);
        }
        self.recheck(shared, near.ep, Direction::Send);
        result
    }

    /// Posts as much of the list as the fast path takes, run by run, and returns how many.
    #[inline(always)]
    fn fast_writes(
        &mut self,
        near: &Near<'_>,
        list: &[impl Borrow<RdmaWrite>],
        flags: CompletionFlags,
    ) -> usize {
        let posted = near.ep.poster.requests.load(Ordering::Relaxed);
        if (self.request_limit.wrapping_sub(posted) as usize) < list.len() {
            let _ = self.refill(near.ep);
        }
        let mut left = list;
        loop {
            let count = self.fast_run(near, left, flags);
            let Some(rest) = count.and_then(|count| left.get(count..)) else {
                break;
            };
            left = rest;
        }
        list.len() - left.len()
    }

    /// Posts the writes at the front of the list that are of one LMR, take slots in a row and can
    /// take the fast path. State and flags are checked once for all; first all are published, then
    /// all built, because each of the two loops fits into registers.
    #[inline(always)]
    fn fast_run(
        &mut self,
        near: &Near<'_>,
        list: &[impl Borrow<RdmaWrite>],
        flags: CompletionFlags,
    ) -> Option<usize> {
        let context = list.first()?.borrow().local.context;
        let first = self.admits(near.ep, flags)?;
        let lmr = lmr::find(near.lmrs, context)?;
        let range = lmr.range(context, self.limits.zone, WRITE.need)?;
        let mask = u32::from(self.limits.request_mask);
        let at = (first & mask) as usize;
        let mut room = self.request_limit.wrapping_sub(first) as usize;
        let run = core::mem::take(&mut self.silent);
        // The one that ends a long row of suppressed ones is a run of its own.
        let suppress = flags.contains(CompletionFlags::SUPPRESS) && run != self.limits.silent;
        if flags.contains(CompletionFlags::SUPPRESS) {
            room = room.min(if suppress { self.limits.silent.beyond(run) } else { 1 });
        }
        let slots = near.requests.get(at..(at + room).min(mask as usize + 1)).unwrap_or_default();
        let most = (WRITE.longest)(&self.limits);
        let (mut tag, post_flags) = self.build_tag(&WRITE, flags, suppress);
        let (mut count, mut bytes) = (0, 0);
        for (slot, write) in slots.iter().zip(list) {
            let RdmaWrite { cookie, local, remote } = *write.borrow();
            if local.len.wrapping_sub(1) >= most
                || remote.len < local.len
                || local.context != context
                || range.lkey_for(&local).is_none()
            {
                break;
            }
            let len = local.len;
            slot.fill(Request { cookie, len, tag }, Ordering::Relaxed);
            tag = tag.next();
            bytes += u64::from(local.len);
            count += 1;
        }
        if count == 0 {
            self.silent = run;
            return None;
        }
        if suppress {
            self.silent = run.and(count);
        } else if run != Run::NONE
            && let [slot, ..] = slots
        {
            slot.set_behind(run);
        }
        // ORDER: the slots precede the count that makes them outstanding, for a reaper that
        // flushes, and the doorbell, without which none of the WQEs starts, for one that
        // compares tokens. So one release serves them all.
        near.ep.poster.requests.store(first.wrapping_add(count), Ordering::Release);
        let tally = &near.ep.tally;
        tally.add(EpCounter::PostWrite as usize, count.into());
        tally.add(EpCounter::PostWriteData as usize, bytes);
        let writes = list.get(..count as usize)?.iter().map(|write| {
            let write: &RdmaWrite = write.borrow();
            let segment =
                Segment { addr: write.local.addr, len: write.local.len, lkey: range.lkey };
            (segment, write.remote)
        });
        self.sq.post_writes(writes, post_flags);
        Some(count as usize)
    }

    /// Posts the list from `next` on, one by one.
    #[cold]
    #[inline(never)]
    fn writes_slow(
        &mut self,
        shared: &Shared<'_>,
        near: &Near<'_>,
        list: &[impl Borrow<RdmaWrite>],
        next: usize,
        flags: CompletionFlags,
    ) -> Result<(), Refused> {
        let flags = flags.union(CompletionFlags::DEFER);
        for (posted, write) in list.iter().map(Borrow::borrow).enumerate().skip(next) {
            let (local, work) = (&[write.local], || WorkRequest::Write(&write.remote));
            self.post(shared, near, work, local, write.cookie, flags)
                .map_err(|ret| Refused { posted, ret })?;
        }
        Ok(())
    }
}

impl<P: Provider> EpPoster<'_, P> {
    /// Posts RDMA writes in order, under one doorbell; the flags are those of each. Extension.
    ///
    /// The first that is refused ends it: those before it are posted, it and those behind it are
    /// not. Endpoint and errors as for [`EpPoster::post_rdma_write`]. An element of the list may
    /// carry more than the write: whatever lends one. With
    /// [`CompletionFlags::DEFER`] the doorbell is left to a later post.
    #[inline(always)]
    pub fn post_rdma_writes(
        &mut self,
        list: &[impl Borrow<RdmaWrite>],
        flags: CompletionFlags,
    ) -> Result<(), Refused> {
        self.poster.post_rdma_writes(&self.shared, &self.near, list, flags)
    }
}
