//! The posts of a random program.

use dat_core::{CompletionFlags, LmrTriplet, MemPriv, RmrTriplet};

use super::check::SHARED;
use super::state::{Kind, MEMORY, Posted, Program};
use crate::conformance::{NONE, Side};
use crate::laws::Check;

impl<S: Side> Program<'_, '_, S> {
    fn segment(&mut self, side: usize, most: usize) -> LmrTriplet {
        let lmr = &self.sides[side].lmr;
        let len = self.rng.below(most + 1);
        LmrTriplet {
            addr: lmr.region.addr + self.rng.below(MEMORY - len.max(8)) as u64,
            len: len as u32,
            context: lmr.lmr_context,
        }
    }

    fn remote(&mut self, side: usize, len: u32) -> RmrTriplet {
        let lmr = &self.sides[1 - side].lmr;
        let wrong = self.rng.below(400) == 0;
        RmrTriplet {
            addr: lmr.region.addr + self.rng.below(MEMORY - len as usize) as u64,
            len,
            context: lmr.rmr_context ^ u32::from(wrong),
        }
    }

    /// Notes what was posted.
    fn posted(
        &mut self,
        side: usize,
        end: usize,
        cookie: u64,
        flags: CompletionFlags,
        how: (Kind, bool),
    ) {
        let (kind, late) = how;
        let consumer = &mut self.sides[side];
        let known = &mut consumer.ends[end];
        let item = Posted {
            cookie,
            connection: known.current,
            suppressed: flags.contains(CompletionFlags::SUPPRESS),
            late,
            dropped: false,
            kind,
        };
        let queue = if kind == Kind::Recv {
            known.receives.push_back(item);
            known.recv
        } else {
            known.requests.push_back(item);
            known.request
        };
        consumer.queues[queue].charged += 1;
    }

    pub(super) fn post_recv(&mut self, side: usize, end: usize, late: bool) -> Check {
        let known = &self.sides[side].ends[end];
        let (ep, queue) = (known.ep, known.recv);
        if known.srq.is_some() {
            return self.shared_recv(side);
        }
        if !self.fits(side, queue) {
            return Ok(());
        }
        let len = if self.rng.percent(2) { 0 } else { 64 };
        let mut segment = self.segment(side, 0);
        segment.addr = self.sides[side].lmr.region.addr;
        segment.len = len;
        let cookie = self.next_cookie(end);
        self.steps += 1;
        let done = self.ias[side].ep_post_recv(ep, &[segment], cookie, NONE);
        self.note(|| format!("{side}: end {end} recv {cookie:#x}: {done:?}"));
        if done.is_ok() {
            self.posted(side, end, cookie, NONE, (Kind::Recv, late));
        }
        Ok(())
    }

    pub(super) fn shared_recv(&mut self, side: usize) -> Check {
        let consumer = &self.sides[side];
        let Some(shared) = consumer.shared.first() else {
            return Ok(());
        };
        let srq = shared.srq;
        let users: Vec<usize> = consumer
            .ends
            .iter()
            .filter(|end| !end.freed && end.srq.is_some())
            .map(|end| end.recv)
            .collect();
        if !users.iter().all(|&queue| self.fits(side, queue)) {
            return Ok(());
        }
        let mut segment = self.segment(side, 0);
        segment.addr = self.sides[side].lmr.region.addr;
        segment.len = 64;
        self.cookie += 1;
        let cookie = self.cookie << 8 | SHARED;
        self.steps += 1;
        let done = self.ias[side].srq_post_recv(srq, &[segment], cookie);
        if done.is_ok() {
            self.sides[side].shared[0].posted.push(cookie);
        }
        Ok(())
    }

    fn flags(&mut self, side: usize, end: usize) -> CompletionFlags {
        let mut flags = NONE;
        if self.rng.percent(30) {
            flags |= CompletionFlags::SUPPRESS;
        }
        if self.rng.percent(10) {
            flags |= CompletionFlags::SOLICITED_WAIT;
        }
        if self.rng.percent(10) {
            flags |= CompletionFlags::BARRIER_FENCE;
        }
        if self.sides[side].ends[end].unsignalled && self.rng.percent(50) {
            flags |= CompletionFlags::UNSIGNALLED;
        }
        flags
    }

    pub(super) fn post_request(&mut self, side: usize, end: usize, late: bool) -> Check {
        let known = &self.sides[side].ends[end];
        let (ep, queue) = (known.ep, known.request);
        if !self.fits(side, queue) {
            return Ok(());
        }
        let mut flags = self.flags(side, end);
        let cookie = self.next_cookie(end);
        let chance = self.rng.below(100);
        self.steps += 1;
        let (kind, done) = if chance < 45 {
            let segment = self.segment(side, 64);
            let done = self.ias[side].ep_post_send(ep, &[segment], cookie, flags);
            (Kind::Send, done)
        } else if chance < 85 || self.sides[side].rmrs.is_empty() {
            let segment = self.segment(side, 64);
            let far = self.remote(side, segment.len);
            flags -= CompletionFlags::SOLICITED_WAIT;
            let ia = &mut self.ias[side].ia;
            let done = if chance < 70 {
                ia.ep_post_rdma_write(ep, &[segment], cookie, &far, flags)
            } else {
                ia.ep_post_rdma_read(ep, &[segment], cookie, &far, flags)
            };
            (Kind::Rdma, done)
        } else {
            let at = self.rng.below(self.sides[side].rmrs.len());
            let rmr = self.sides[side].rmrs[at];
            let segment = self.segment(side, 64);
            flags -= CompletionFlags::SOLICITED_WAIT;
            let rights = MemPriv::REMOTE_READ | MemPriv::REMOTE_WRITE;
            let done = self.ias[side].rmr_bind(rmr, &segment, rights, ep, cookie, flags);
            (Kind::Bind { freed: false }, done.map(drop))
        };
        self.note(|| format!("{side}: end {end} {kind:?} {cookie:#x} {flags:?}: {done:?}"));
        if done.is_ok() {
            self.posted(side, end, cookie, flags, (kind, late));
        }
        Ok(())
    }

    /// Posts a write that waits for nothing.
    pub(super) fn post_write(&mut self, side: usize, end: usize) -> Check {
        let known = &self.sides[side].ends[end];
        let (ep, queue) = (known.ep, known.request);
        if !self.fits(side, queue) {
            return Ok(());
        }
        let lmr = &self.sides[1 - side].lmr;
        let far = RmrTriplet { addr: lmr.region.addr, len: 8, context: lmr.rmr_context };
        let mut segment = self.segment(side, 0);
        segment.len = 8;
        let cookie = self.next_cookie(end);
        self.steps += 1;
        let done = self.ias[side].ep_post_rdma_write(ep, &[segment], cookie, &far, NONE);
        self.note(|| format!("{side}: end {end} write {cookie:#x}: {done:?}"));
        if done.is_ok() {
            self.posted(side, end, cookie, NONE, (Kind::Rdma, false));
        }
        Ok(())
    }
}
