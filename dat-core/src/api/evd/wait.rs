//! dat_evd_wait(3), in three calls of which none waits.
//!
//! A host begins a wait, looks whether it is over, sleeps until something may have changed, and
//! looks again. Threads share an adapter by its halves: the one that waits has the [`Ia`], others
//! post with an [`EpPoster`](crate::EpPoster) or reap with an [`EvdReaper`](crate::EvdReaper). Who
//! sleeps elsewhere with a reaper is woken by the agent of a CNO.

use core::task::Poll;
use core::time::Duration;

use crate::data::count::Count;
use crate::data::shared::evd::WAITED;
use crate::engine::Ia;
use crate::provider::Provider;
use crate::types::dat_return::{DatReturn, DatSubtype, DatType, Error};
use crate::types::event::Event;
use crate::types::flags::CompletionFlags;
use crate::types::handle::Evd;
use crate::types::time::Instant;

/// A wait for an Event Dispatcher that has begun. [`Ia::evd_waited`] ends it when there is
/// something to tell, [`Ia::evd_wait_end`] in any case.
#[derive(Debug)]
#[must_use = "nobody else can take events until the wait has ended"]
pub struct EvdWait {
    evd: Evd,
    threshold: u32,
    until: Instant,
    /// Nobody has looked yet: what is there already counts, whether it notifies or not.
    fresh: bool,
    over: bool,
}

const TIMEOUT: DatReturn = DatReturn::of(DatType::TimeoutExpired);
const ABORT: DatReturn = DatReturn::of(DatType::Abort);
pub(crate) const UNWAITABLE: DatReturn =
    DatReturn::new(DatType::InvalidState, DatSubtype::InvalidStateEvdUnwaitable);

impl<P: Provider> Ia<'_, P> {
    /// Begins to wait until `evd` has `threshold` events, for `timeout` at the most;
    /// [`Duration::MAX`] is without end. Until the wait has ended the Event Dispatcher is the
    /// waiter's: nobody else takes events, and no CNO is triggered.
    ///
    /// `INVALID_PARAMETER` for a threshold of 0 or beyond the length; `INVALID_STATE` with
    /// `EVD_WAITER` if there is a waiter or the reaper is out, with `EVD_UNWAITABLE`, and with
    /// the configuration if the threshold is not 1 and the consumer decides for each completion
    /// whether it notifies.
    #[doc(alias = "dat_evd_wait")]
    pub fn evd_wait(
        &mut self,
        now: Instant,
        evd: Evd,
        timeout: Duration,
        threshold: u32,
    ) -> Result<EvdWait, Error> {
        let control = self.events.evd(evd, DatSubtype::InvalidHandle1)?;
        if threshold == 0 || threshold > control.qlen {
            return Err(Error::new(DatType::InvalidParameter, DatSubtype::InvalidArg3));
        }
        if control.unwaitable {
            return Err(UNWAITABLE.into());
        }
        if threshold > 1 {
            let subtype = match self.events.completion_type(evd) {
                CompletionFlags::UNSIGNALLED => DatSubtype::InvalidStateEvdConfigNotify,
                CompletionFlags::SOLICITED_WAIT => DatSubtype::InvalidStateEvdConfigSolicited,
                _ => DatSubtype::None,
            };
            if subtype != DatSubtype::None {
                return Err(Error::new(DatType::InvalidState, subtype));
            }
        }
        let (_, _, ring, _) = self.reaping(evd)?;
        ring.bar(WAITED);
        if let Some(control) = self.events.evds.get_mut(evd.0) {
            let [waits, _] = &mut control.tally.waits;
            *waits = waits.wrapping_add(1);
        }
        Ok(EvdWait { evd, threshold, until: now + timeout, fresh: true, over: false })
    }

    /// Whether the wait is over: with the first event, when there are as many as the threshold says
    /// and one that notifies; with `TIMEOUT_EXPIRED` when the time is over before, which takes
    /// no event; with `INVALID_STATE`/`EVD_UNWAITABLE` when the Event Dispatcher has become so;
    /// with `ABORT` when the adapter was closed. [`Ia::evd_more`] tells how many are left.
    pub fn evd_waited(
        &mut self,
        now: Instant,
        wait: &mut EvdWait,
    ) -> Poll<Result<Event, DatReturn>> {
        let found = self.evd_look(now, wait);
        let first = core::mem::take(&mut wait.fresh);
        if found.is_ready() {
            self.evd_wait_end(wait);
        } else if first {
            if let Some(control) = self.events.evds.get_mut(wait.evd.0) {
                let [_, slept] = &mut control.tally.waits;
                *slept = slept.wrapping_add(1);
            }
        }
        found
    }

    fn evd_look(&mut self, now: Instant, wait: &EvdWait) -> Poll<Result<Event, DatReturn>> {
        let evd = wait.evd;
        let control = match self.events.evd(evd, DatSubtype::InvalidHandle1) {
            Ok(control) if !wait.over => control,
            Ok(_) => return Poll::Ready(Err(TIMEOUT)),
            Err(_) if self.lifecycle.closed => return Poll::Ready(Err(ABORT)),
            Err(stale) => return Poll::Ready(Err(stale)),
        };
        if control.unwaitable {
            return Poll::Ready(Err(UNWAITABLE));
        }
        let late = wait.until <= now;
        let not_yet = if late { Poll::Ready(Err(TIMEOUT)) } else { Poll::Pending };
        let any = wait.fresh || late;
        // The usual first look is for one event of any kind: it is there or it is not.
        if wait.threshold > 1 || !any {
            let count = self.evd_count(evd);
            if count.events < wait.threshold || count.notifying == 0 {
                self.drop_silent(evd);
                return not_yet;
            }
        }
        let shared = self.data.shared;
        let event = match (self.reaper_here(evd), shared.evd(evd.0.index())) {
            (Ok(reaper), Some(ring)) => reaper.dequeue(&shared, ring, &mut { shared.no_ep }),
            (Err(ret), _) => Err(ret),
            (Ok(_), None) => Err(DatReturn::QUEUE_EMPTY),
        };
        match event {
            Err(DatReturn::QUEUE_EMPTY) => not_yet,
            event => Poll::Ready(event),
        }
    }

    /// Ends a wait without a result.
    pub fn evd_wait_end(&mut self, wait: &mut EvdWait) {
        if !core::mem::replace(&mut wait.over, true) {
            if let (Some(ring), Some(control)) =
                (self.events.ring(wait.evd), self.events.evds.get_mut(wait.evd.0))
            {
                ring.unbar(WAITED);
                control.asked = None;
                self.events.look_at(wait.evd);
            }
        }
    }

    /// How many events there are, which takes none: `nmore` of dat_evd_wait(3), after a wait that
    /// gave an event or ran out of time. `INVALID_STATE`/`EVD_WAITER` while the reaper is out.
    pub fn evd_more(&mut self, evd: Evd) -> Result<u32, DatReturn> {
        self.reaper_here(evd)?;
        Ok(self.evd_count(evd).events)
    }

    /// The events that are here now.
    pub(crate) fn evd_count(&mut self, evd: Evd) -> Count {
        let shared = self.data.shared;
        match (self.reaper_here(evd), shared.evd(evd.0.index())) {
            (Ok(reaper), Some(ring)) => reaper.count(&shared, ring),
            _ => Count::default(),
        }
    }
}

impl EvdWait {
    /// The Event Dispatcher.
    #[must_use]
    pub fn evd(&self) -> Evd {
        self.evd
    }

    /// When it is over at the latest.
    #[must_use]
    pub fn until(&self) -> Instant {
        self.until
    }
}
