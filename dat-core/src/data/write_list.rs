//! Extension: lists of RDMA writes under one doorbell.

use core::borrow::Borrow;
use core::marker::PhantomData;
use core::sync::atomic::Ordering;

use crate::data::list::{Rdma, Refused};
use crate::data::poster::{EpPoster, Poster, WRITE};
use crate::data::shared::lmr::Range;
use crate::data::shared::request::{Request, Run};
use crate::data::shared::{Near, Shared};
use crate::data::validate::{LENGTH, PARAMETER};
use crate::provider::{Provider, Segment, SendQueue, WorkRequest};
use crate::types::completion::Direction;
use crate::types::counters::EpCounter;
use crate::types::dat_return::{DatReturn, DatSubtype};
use crate::types::ep_state::REQUEST_OPEN;
use crate::types::flags::CompletionFlags;
use crate::types::triplet::{LmrTriplet, RmrTriplet};

/// Where the writes of a list come from and go to, checked once for all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stretch {
    /// What they may write.
    pub local: LmrTriplet,
    /// Where they may write to.
    pub remote: RmrTriplet,
    /// The bytes of each.
    pub len: u32,
}

/// One write of a list within a [`Stretch`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Piece {
    /// What its event carries.
    pub cookie: u64,
    /// Its first byte, from the beginning of the local end.
    pub from: u32,
    /// Where that goes, from the beginning of the far end.
    pub to: u32,
}

/// What the elements of a list of writes say, and what is the same for all of them.
pub(crate) trait Writes: Copy {
    type Element;
    /// The context of the LMR that those at the front are of.
    fn context(&self, list: &[Self::Element]) -> Option<u32>;
    /// Whether what is the same for all of them is right, for writes of so many bytes at most.
    fn opens(&self, range: &Range, longest: u32) -> bool;
    /// The cookie and the bytes of one that is right.
    fn admits(&self, range: &Range, longest: u32, one: &Self::Element) -> Option<(u64, u32)>;
    /// The bytes of each, if they are of one length.
    fn len(&self) -> Option<u32>;
    /// What the device is asked to do.
    fn work(&self, lkey: u32, one: &Self::Element) -> (Segment, RmrTriplet);
    /// One as a write by itself, or why it is none.
    fn single(&self, one: &Self::Element) -> Result<Rdma, DatReturn>;
}

/// Each says all.
#[derive(Debug)]
pub(crate) struct General<B>(PhantomData<fn(B)>);

impl<B> General<B> {
    pub(crate) const LIST: Self = Self(PhantomData);
}

impl<B> Clone for General<B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B> Copy for General<B> {}

impl<B: Borrow<Rdma>> Writes for General<B> {
    type Element = B;

    #[inline(always)]
    fn context(&self, list: &[B]) -> Option<u32> {
        Some(list.first()?.borrow().local.context)
    }

    #[inline(always)]
    fn opens(&self, _: &Range, _: u32) -> bool {
        true
    }

    #[inline(always)]
    fn admits(&self, range: &Range, longest: u32, one: &B) -> Option<(u64, u32)> {
        let Rdma { cookie, local, remote } = *one.borrow();
        let fits = local.len.wrapping_sub(1) < longest
            && remote.len >= local.len
            && local.context == range.context
            && range.lkey_for(&local).is_some();
        fits.then_some((cookie, local.len))
    }

    #[inline(always)]
    fn len(&self) -> Option<u32> {
        None
    }

    #[inline(always)]
    fn work(&self, lkey: u32, one: &B) -> (Segment, RmrTriplet) {
        let &Rdma { local: LmrTriplet { addr, len, .. }, remote, .. } = one.borrow();
        (Segment { addr, len, lkey }, remote)
    }

    fn single(&self, one: &B) -> Result<Rdma, DatReturn> {
        Ok(*one.borrow())
    }
}

impl Stretch {
    /// The greatest offsets that a piece may have. None if either end is shorter than one.
    #[inline(always)]
    fn most(&self) -> Option<(u32, u32)> {
        let &Self { local, remote, len } = self;
        Some((local.len.checked_sub(len)?, remote.len.checked_sub(len)?))
    }
}

impl Writes for Stretch {
    type Element = Piece;

    #[inline(always)]
    fn context(&self, _: &[Piece]) -> Option<u32> {
        Some(self.local.context)
    }

    #[inline(always)]
    fn opens(&self, range: &Range, longest: u32) -> bool {
        // An end that is longer than a piece has a byte or more.
        self.len.wrapping_sub(1) < longest
            && self.most().is_some()
            && range.lkey_for(&self.local).is_some()
    }

    #[inline(always)]
    fn admits(&self, _: &Range, _: u32, one: &Piece) -> Option<(u64, u32)> {
        let (from, to) = self.most()?;
        (one.from <= from && one.to <= to).then_some((one.cookie, self.len))
    }

    #[inline(always)]
    fn len(&self) -> Option<u32> {
        Some(self.len)
    }

    #[inline(always)]
    fn work(&self, lkey: u32, one: &Piece) -> (Segment, RmrTriplet) {
        let &Self { local, remote, len } = self;
        let addr = local.addr.wrapping_add(one.from.into());
        let to = remote.addr.wrapping_add(one.to.into());
        (Segment { addr, len, lkey }, RmrTriplet { addr: to, len, ..remote })
    }

    fn single(&self, one: &Piece) -> Result<Rdma, DatReturn> {
        match self.most() {
            Some((from, to)) if one.from <= from && one.to <= to => {
                let (Segment { addr, len, .. }, remote) = self.work(0, one);
                let local = LmrTriplet { addr, len, ..self.local };
                Ok(Rdma { cookie: one.cookie, local, remote })
            }
            Some((from, _)) if one.from > from => Err(OUTSIDE),
            None if self.local.len < self.len => Err(OUTSIDE),
            Some(_) | None => Err(LENGTH),
        }
    }
}

/// A piece does not lie in the local end.
const OUTSIDE: DatReturn = DatReturn::new(PARAMETER, DatSubtype::InvalidArg3);

impl<P: Provider> Poster<P> {
    #[inline(always)]
    pub(crate) fn post_rdma_writes<'s, W: Writes>(
        &mut self,
        shared: &Shared<'s>,
        near: &Near<'s>,
        writes: W,
        list: &[W::Element],
        flags: CompletionFlags,
    ) -> Result<(), Refused> {
        let posted = self.fast_writes(shared, near, writes, list, flags);
        if posted == list.len() {
            if !flags.contains(CompletionFlags::DEFER) {
                self.ring(near);
            }
            self.recheck(shared, near.ep, Direction::Send);
            return Ok(());
        }
        self.writes_slow(shared, near, writes, list, posted, flags)
    }

    /// Posts as much of the list as the fast path takes, run by run, and returns how many.
    #[inline(always)]
    fn fast_writes<'s, W: Writes>(
        &mut self,
        shared: &Shared<'s>,
        near: &Near<'s>,
        writes: W,
        list: &[W::Element],
        flags: CompletionFlags,
    ) -> usize {
        let posted = near.ep.poster.requests.load(Ordering::Relaxed);
        if (self.request_limit.wrapping_sub(posted) as usize) < list.len() {
            let _ = self.refill(near.ep);
        }
        let mut left = list;
        loop {
            let count = self.fast_run(shared, near, writes, left, flags);
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
    fn fast_run<'s, W: Writes>(
        &mut self,
        shared: &Shared<'s>,
        near: &Near<'s>,
        writes: W,
        list: &[W::Element],
        flags: CompletionFlags,
    ) -> Option<usize> {
        let context = writes.context(list)?;
        let first = self.admits::<REQUEST_OPEN>(near.ep, flags)?;
        let range = near.range(shared, context, self.core.zone, WRITE.need)?;
        let most = (WRITE.longest)(&self.limits, &self.core);
        if !writes.opens(&range, most) {
            return None;
        }
        let mask = u32::from(self.core.request_mask);
        let at = (first & mask) as usize;
        let mut room = self.request_limit.wrapping_sub(first) as usize;
        let run = core::mem::take(&mut self.silent);
        // The one that ends a long row of suppressed ones is a run of its own.
        let suppress = flags.contains(CompletionFlags::SUPPRESS) && run != self.limits.silent;
        if flags.contains(CompletionFlags::SUPPRESS) {
            room = room.min(if suppress { self.limits.silent.beyond(run) } else { 1 });
        }
        let slots = near.requests.get(at..(at + room).min(mask as usize + 1)).unwrap_or_default();
        let (mut tag, post_flags) = self.build_tag(&WRITE, flags, suppress);
        let (mut count, mut bytes) = (0, 0);
        for (slot, one) in slots.iter().zip(list) {
            let Some((cookie, len)) = writes.admits(&range, most, one) else {
                break;
            };
            slot.fill(Request { cookie, len, tag }, Ordering::Relaxed);
            tag = tag.next();
            bytes += u64::from(len);
            count += 1;
        }
        if count == 0 {
            self.silent = run;
            return None;
        }
        if suppress {
            self.silent = run.and(count);
        } else if run != Run::NONE {
            if let [slot, ..] = slots {
                slot.set_behind(run);
            }
        }
        // ORDER: the slots precede the count that makes them outstanding, for a reaper that
        // flushes, and the doorbell, without which none of the WQEs starts, for one that
        // compares tokens. So one release serves them all.
        near.ep.poster.requests.store(first.wrapping_add(count), Ordering::Release);
        let each = writes.len().map(|len| u64::from(len) * u64::from(count));
        near.ep.count_all(EpCounter::PostWrite, count.into(), each.unwrap_or(bytes));
        let run = list.get(..count as usize)?;
        let work = run.iter().map(|one| writes.work(range.lkey, one));
        self.sq.post_writes(work, writes.len(), post_flags);
        Some(run.len())
    }

    /// Posts the list from `next` on, one by one.
    #[cold]
    #[inline(never)]
    fn writes_slow<'s, W: Writes>(
        &mut self,
        shared: &Shared<'s>,
        near: &Near<'s>,
        writes: W,
        list: &[W::Element],
        next: usize,
        flags: CompletionFlags,
    ) -> Result<(), Refused> {
        let left = list.iter().skip(next).map(|one| writes.single(one));
        self.post_each(shared, near, left, flags, |poster, one, flags| {
            let Rdma { cookie, local, remote } = one?;
            let work = || WorkRequest::Write(&remote);
            poster.post(shared, near, work, &[local], cookie, flags)
        })
        .map_err(|refused| Refused { posted: next + refused.posted, ..refused })
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
    pub fn post_rdma_writes<B: Borrow<Rdma>>(
        &mut self,
        list: &[B],
        flags: CompletionFlags,
    ) -> Result<(), Refused> {
        self.poster.post_rdma_writes(&self.shared, &self.near, General::LIST, list, flags)
    }

    /// As [`EpPoster::post_rdma_writes`], of writes of one length between two ends that are looked
    /// at once: the least that a write costs. What of a piece lies outside of the local end is
    /// `INVALID_PARAMETER`, outside of the far end `LENGTH_ERROR`.
    #[inline(always)]
    pub fn post_rdma_pieces(
        &mut self,
        stretch: &Stretch,
        list: &[Piece],
        flags: CompletionFlags,
    ) -> Result<(), Refused> {
        self.poster.post_rdma_writes(&self.shared, &self.near, *stretch, list, flags)
    }
}
