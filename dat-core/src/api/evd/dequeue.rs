//! dat_evd_dequeue(3), and the splitting off of the reaping half.

use crate::data::reaper::EvdReaper;
use crate::data::shared::evd::WAITED;
use crate::engine::Ia;
use crate::provider::Provider;
use crate::types::completion::Extra;
use crate::types::dat_return::{DatReturn, DatSubtype, DatType, Error};
use crate::types::event::Event;
use crate::types::handle::Evd;

impl<P: Provider> EvdReaper<'_, P> {
    /// The Event Dispatcher it reaps.
    #[must_use]
    pub fn evd(&self) -> Evd {
        self.evd
    }

    /// The next event, or `QUEUE_EMPTY`.
    #[doc(alias = "dat_evd_dequeue")]
    #[inline(always)]
    pub fn dequeue(&mut self) -> Result<Event, DatReturn> {
        self.reaper.dequeue(&self.shared, self.shared_evd, &mut self.last)
    }

    /// Takes up to `most` events, gives each to `take`, and returns how many there were: extension,
    /// a burst of [`EvdReaper::dequeue`], in the same order. A receive may be posted anew by `take`
    /// already. The slots of requests are free again when the call returns, not before: a request
    /// that `take` posts may be refused for want of one.
    #[inline(always)]
    pub fn dequeue_each(&mut self, most: usize, take: impl FnMut(Event)) -> usize {
        self.reaper.dequeue_each::<false>(&self.shared, self.shared_evd, &mut self.last, most, take)
    }

    /// As [`EvdReaper::dequeue_each`], but ends behind the first event that is more than a plain
    /// completion, so that [`EvdReaper::extension`] is of that event: extension.
    #[inline(always)]
    pub fn dequeue_plain(&mut self, most: usize, take: impl FnMut(Event)) -> usize {
        self.reaper.dequeue_each::<true>(&self.shared, self.shared_evd, &mut self.last, most, take)
    }

    /// Stores the next events in `events`, and returns how many: extension, a burst of
    /// [`EvdReaper::dequeue`], in the same order. It ends where `events` does, where there is
    /// nothing more, and behind an event that is more than a plain completion, so that
    /// [`EvdReaper::extension`] is of the last one stored. 0 means that the queue is empty.
    #[inline]
    pub fn dequeue_into(&mut self, events: &mut [Event]) -> usize {
        self.reaper.dequeue_into(&self.shared, self.shared_evd, &mut self.last, events)
    }

    /// Asks the device for a [`Notice::Completion`](crate::provider::Notice::Completion) at the
    /// next completion; at once if one is there already. The notice may be of a completion that has
    /// been dequeued since: who then sleeps on has to ask again. Events that do not come from the
    /// device announce themselves by [`Next::work`](crate::engine::advance::Next::work).
    pub fn arm(&mut self, solicited_only: bool) {
        self.reaper.arm(solicited_only);
    }

    /// `event_extension_data`: what the last receive of the InfiniBand extensions carried besides:
    /// immediate and sender. Of use right after its [`Event::IbDto`] was dequeued.
    #[must_use]
    pub fn extension(&self) -> Extra {
        self.reaper.extra
    }

    /// Completions dropped so far: of an earlier connection of their Endpoint, and invalid ones.
    #[must_use]
    pub fn dropped(&self) -> (u32, u32) {
        (self.reaper.stale, self.reaper.nonsense)
    }
}

impl<'s, P: Provider> Ia<'s, P> {
    /// As [`EvdReaper::dequeue`], by handle. `INVALID_STATE`/`EVD_WAITER` while somebody waits or
    /// has the reaper.
    #[doc(alias = "dat_evd_dequeue")]
    #[inline(never)]
    pub fn evd_dequeue(&mut self, evd: Evd) -> Result<Event, DatReturn> {
        let (reaper, shared, ring, last) = self.reaping(evd)?;
        let found = reaper.dequeue(shared, ring, last);
        reaper.tally.empty = reaper.tally.empty.wrapping_add(found.is_err().into());
        found
    }

    /// As [`EvdReaper::dequeue_each`], by handle.
    #[inline]
    pub fn evd_dequeue_each(
        &mut self,
        evd: Evd,
        most: usize,
        take: impl FnMut(Event),
    ) -> Result<usize, DatReturn> {
        let (reaper, shared, ring, last) = self.reaping(evd)?;
        Ok(reaper.dequeue_each::<false>(shared, ring, last, most, take))
    }

    /// As [`EvdReaper::dequeue_into`], by handle.
    #[inline]
    pub fn evd_dequeue_into(&mut self, evd: Evd, events: &mut [Event]) -> Result<usize, DatReturn> {
        let (reaper, shared, ring, last) = self.reaping(evd)?;
        Ok(reaper.dequeue_into(shared, ring, last, events))
    }

    /// As [`EvdReaper::extension`], by handle.
    pub fn evd_extension(&mut self, evd: Evd) -> Result<Extra, DatReturn> {
        Ok(self.reaper_here(evd)?.extra)
    }

    /// As [`EvdReaper::arm`], by handle. During a wait it holds until the wait ends: a notice that
    /// leaves nothing to take is followed by a request for the next.
    pub fn evd_arm(&mut self, evd: Evd, solicited_only: bool) -> Result<(), DatReturn> {
        self.reaper_here(evd)?.arm(solicited_only);
        self.events.look_at(evd);
        if self.events.ring(evd).is_some_and(|ring| ring.barred() & WAITED != 0) {
            if let Some(control) = self.events.evds.get_mut(evd.0) {
                control.asked = Some(solicited_only);
            }
        }
        Ok(())
    }

    /// Whether the device announced completions since the last call, see [`EvdReaper::arm`].
    pub fn evd_take_notice(&mut self, evd: Evd) -> bool {
        self.events
            .evds
            .get_mut(evd.0)
            .is_some_and(|control| core::mem::take(&mut control.notified))
    }

    /// Completions dropped so far: of an earlier connection of their Endpoint, and invalid ones.
    pub fn evd_dropped(&mut self, evd: Evd) -> Result<(u32, u32), DatReturn> {
        self.reaper_here(evd).map(|reaper| (reaper.stale, reaper.nonsense))
    }

    /// Takes the reaping half out, for another thread. `INVALID_STATE` if it is out already.
    pub fn evd_take_reaper(&mut self, evd: Evd) -> Result<EvdReaper<'s, P>, Error> {
        let (_, &shared, shared_evd, _) = self.reaping(evd)?;
        match self.data.reapers.get_mut(evd.0.index() as usize).and_then(Option::take) {
            Some(reaper) => {
                let last = shared.no_ep;
                Ok(EvdReaper { evd, reaper, shared, shared_evd, last })
            }
            None => Err(Error::new(DatType::InvalidState, DatSubtype::InvalidStateEvdWaiter)),
        }
    }

    /// Puts the reaping half back. One of another Interface Adapter comes back as the error.
    #[expect(
        clippy::result_large_err,
        reason = "the half itself comes back, there is no heap for it"
    )]
    pub fn evd_return_reaper(&mut self, half: EvdReaper<'s, P>) -> Result<(), EvdReaper<'s, P>> {
        let out = self.events.reaper_is_out(&self.data, half.evd.0);
        match self.data.reapers.get_mut(half.evd.0.index() as usize) {
            Some(place) if out => {
                *place = Some(half.reaper);
                self.events.look_at(half.evd);
                Ok(())
            }
            Some(_) | None => Err(half),
        }
    }
}
