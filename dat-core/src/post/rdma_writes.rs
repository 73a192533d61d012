//! Extension: a list of RDMA writes under one doorbell.

use core::sync::atomic::Ordering;

use super::{EpPoster, Poster};
use crate::Ia;
use crate::dat_return::DatReturn;
use crate::flags::{CompletionFlags, MemPriv};
use crate::handle::Ep;
use crate::provider::{Direction, PostFlags, Provider, Remote, Segment, SendQueue};
use crate::shared::ep::{Info, Op, REQUEST_OPEN};
use crate::shared::lmr::{self, LmrShared};
use crate::shared::{Near, Shared};
use crate::triplet::{LmrTriplet, RmrTriplet};

/// One RDMA write of a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
        list: &[RdmaWrite],
        flags: CompletionFlags,
    ) -> Result<(), Refused> {
        let straight = self.straight_writes(near, list, flags);
        let result = if straight == list.len() {
            Ok(())
        } else {
            self.other_writes(shared, near, list, straight, flags)
        };
        if !flags.contains(CompletionFlags::DEFER) {
            self.ring(near);
        }
        self.recheck(shared, near, REQUEST_OPEN, Direction::Send);
        result
    }

    /// Posts as much of the list as goes the straight way, with the entry guard once for all; how much that was.
    #[inline(always)]
    fn straight_writes(
        &mut self,
        near: &Near<'_>,
        list: &[RdmaWrite],
        flags: CompletionFlags,
    ) -> usize {
        // Which of several suppressed requests is signalled after all is decided one by one.
        if flags.contains(CompletionFlags::SUPPRESS) || !self.admits(near, flags) {
            return 0;
        }
        let mut room = self.request_limit.wrapping_sub(self.requests) as usize;
        if room < list.len() {
            let _ = self.refill(near.ep);
            room = self.request_limit.wrapping_sub(self.requests) as usize;
        }
        let (most, zone) = (self.limits.max_rdma, self.limits.zone);
        let post_flags = self
            .post_flags(flags)
            .difference(PostFlags::SOLICITED)
            .union(PostFlags::DEFER);
        let (first, mut posted) = (self.requests, 0);
        // The LMR of the write before: most often it is that of the next as well.
        let mut known: Option<(u32, &LmrShared)> = None;
        for write in list.iter().take(room) {
            let RdmaWrite {
                cookie,
                local,
                remote,
            } = *write;
            if local.len.wrapping_sub(1) >= most || remote.len < local.len {
                break;
            }
            let lmr = match known {
                Some((context, lmr)) if context == local.context && lmr.is(context) => lmr,
                Some(_) | None => match lmr::find(near.lmrs, local.context) {
                    Some(lmr) if lmr.is(local.context) && lmr.grants(zone, MemPriv::LOCAL_READ) => {
                        lmr
                    }
                    Some(_) | None => break,
                },
            };
            known = Some((local.context, lmr));
            let Some(lkey) = lmr.lkey_within(&local) else {
                break;
            };
            let segment = Segment {
                addr: local.addr,
                len: local.len,
                lkey,
            };
            let place = first.wrapping_add(posted) & u32::from(self.limits.request_mask);
            let Some(slot) = near.requests.get(place as usize) else {
                break;
            };
            let info = Info::new(Op::RdmaWrite, segment.len, false, self.sq.next_token());
            slot.cookie.store(cookie, Ordering::Relaxed);
            // ORDER: the cookie precedes the token that a reaper on another thread compares.
            slot.info.store(info.word(), Ordering::Release);
            let far = Remote {
                addr: remote.addr,
                rkey: remote.context,
            };
            self.sq.rdma_write(&[segment], far, post_flags);
            posted += 1;
        }
        self.requests = first.wrapping_add(posted);
        // ORDER: the slots precede the count that makes them outstanding, for a reaper that flushes. The count may follow
        // the WQEs: none of them starts before the doorbell.
        near.ep
            .poster
            .requests
            .store(self.requests, Ordering::Release);
        posted as usize
    }

    /// Posts the list from `next` on, one by one.
    #[cold]
    #[inline(never)]
    fn other_writes(
        &mut self,
        shared: &Shared<'_>,
        near: &Near<'_>,
        list: &[RdmaWrite],
        next: usize,
        flags: CompletionFlags,
    ) -> Result<(), Refused> {
        let flags = flags.union(CompletionFlags::DEFER);
        for (posted, write) in list.iter().enumerate().skip(next) {
            let (local, remote) = (&[write.local], &write.remote);
            self.post_rdma_write(shared, near, local, write.cookie, remote, flags)
                .map_err(|ret| Refused { posted, ret })?;
        }
        Ok(())
    }
}

impl<P: Provider> EpPoster<'_, P> {
    /// Posts RDMA writes in order, under one doorbell; the flags are those of each. Extension.
    ///
    /// The first that is refused ends it: those before it are posted, it and those behind it are not. Endpoint and
    /// errors as for [`EpPoster::post_rdma_write`]. With [`CompletionFlags::DEFER`] the doorbell is left to a later post.
    #[inline(always)]
    pub fn post_rdma_writes(
        &mut self,
        list: &[RdmaWrite],
        flags: CompletionFlags,
    ) -> Result<(), Refused> {
        self.poster
            .post_rdma_writes(&self.shared, &self.near, list, flags)
    }
}

impl<P: Provider> Ia<'_, P> {
    /// As [`EpPoster::post_rdma_writes`], by handle.
    #[inline(never)]
    pub fn ep_post_rdma_writes(
        &mut self,
        ep: Ep,
        list: &[RdmaWrite],
        flags: CompletionFlags,
    ) -> Result<(), Refused> {
        let (poster, shared, near) = self.posting(ep).map_err(|ret| Refused { posted: 0, ret })?;
        poster.post_rdma_writes(&shared, &near, list, flags)
    }
}
