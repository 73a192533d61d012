//! dat_srq_post_recv(3), and the posting half of a Shared Receive Queue.

use core::fmt;
use core::sync::atomic::Ordering;

use crate::data::poster::RECV;
use crate::data::shared::{Shared, lmr};
use crate::data::validate::{FULL, Segments, check_segments};
use crate::provider::{Provider, SharedRecvQueue};
use crate::types::dat_return::DatReturn;
use crate::types::handle::{Pz, Srq};
use crate::types::triplet::LmrTriplet;

/// The posting end of one Shared Receive Queue.
pub(crate) struct SrqEnd<P: Provider> {
    pub(crate) rq: P::Shared,
    /// Slot of the queue.
    srq: u32,
    /// The Protection Zone, as LMRs carry it.
    zone: u64,
    segments: u8,
    /// Most bytes of a receive: the adapter's.
    longest: u32,
}

impl<P: Provider> fmt::Debug for SrqEnd<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SrqEnd").field("srq", &self.srq).finish_non_exhaustive()
    }
}

impl<P: Provider> SrqEnd<P> {
    pub(crate) fn new(srq: u32, rq: P::Shared, pz: Pz, segments: u8, longest: u32) -> Self {
        Self { rq, srq, zone: lmr::zone(pz.0.index()), segments, longest }
    }

    pub(crate) fn post_recv(
        &mut self,
        shared: &Shared<'_>,
        segments: &[LmrTriplet],
        cookie: u64,
    ) -> Result<(), DatReturn> {
        let mut list = Segments::new();
        let most = (self.segments, self.longest);
        let (len, _) = check_segments(shared, self.zone, &RECV, most, segments, &mut list)?;
        let line = shared.srqs.get(self.srq as usize).ok_or(FULL)?;
        if line.outstanding() >= line.most.load(Ordering::Relaxed) {
            return Err(FULL);
        }
        self.recover(shared);
        let token = self.rq.next_token();
        let slot = shared.srq_slot(self.srq, token).ok_or(FULL)?;
        slot.cookie.store(cookie, Ordering::Relaxed);
        slot.len.store(len, Ordering::Relaxed);
        let posted = line.posted.load(Ordering::Relaxed).wrapping_add(1);
        line.posted.store(posted, Ordering::Release);
        // ORDER: cookie and length precede the release of the slot that a reaper looks at first,
        // and both the receive itself.
        slot.link.release();
        self.rq.recv(&list);
        Ok(())
    }

    /// Takes back the slots of receives that are done with.
    fn recover(&mut self, shared: &Shared<'_>) {
        let Some(line) = shared.srqs.get(self.srq as usize) else {
            return;
        };
        let mut token = line.free.take();
        while let Ok(named) = u16::try_from(token) {
            let Some(slot) = shared.srq_slot(self.srq, named) else { break };
            // Its link stays held: nothing is posted there.
            token = slot.link.next();
            self.rq.release(named);
        }
    }
}

/// The posting half of a Shared Receive Queue, as a value of its own: a thread that owns it posts
/// without a lock.
///
/// From [`Ia::srq_take_poster`](crate::Ia::srq_take_poster), and back by
/// [`Ia::srq_return_poster`](crate::Ia::srq_return_poster); the queue cannot be freed meanwhile.
pub struct SrqPoster<'s, P: Provider> {
    pub(crate) srq: Srq,
    pub(crate) end: SrqEnd<P>,
    pub(crate) shared: Shared<'s>,
}

impl<P: Provider> fmt::Debug for SrqPoster<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SrqPoster").field("srq", &self.srq).finish_non_exhaustive()
    }
}

impl<P: Provider> SrqPoster<'_, P> {
    /// The queue it posts to.
    #[must_use]
    pub fn srq(&self) -> Srq {
        self.srq
    }

    /// Posts a receive that any Endpoint of the queue may take; no segments take a message of no
    /// bytes.
    ///
    /// `INSUFFICIENT_RESOURCES` (all slots outstanding), `INVALID_PARAMETER` (too many segments, a
    /// segment outside its LMR), `PROTECTION_VIOLATION` (zones: that of the queue counts),
    /// `PRIVILEGES_VIOLATION` (context, or no local write), `LENGTH_ERROR` (longer than any
    /// message of the adapter). A refused post changes nothing.
    #[doc(alias = "dat_srq_post_recv")]
    pub fn post_recv(&mut self, segments: &[LmrTriplet], cookie: u64) -> Result<(), DatReturn> {
        self.end.post_recv(&self.shared, segments, cookie)
    }
}
