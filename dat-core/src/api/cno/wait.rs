//! dat_cno_wait(3), in three calls of which none waits.

use core::task::Poll;
use core::time::Duration;

use crate::engine::Ia;
use crate::provider::Provider;
use crate::types::dat_return::{DatReturn, Error};
use crate::types::handle::{Cno, Evd};
use crate::types::time::Instant;

/// A wait for a CNO that has begun. [`Ia::cno_waited`] ends it when there is something to tell,
/// [`Ia::cno_wait_end`] in any case.
#[derive(Debug)]
#[must_use = "the CNO cannot be freed until the wait has ended"]
pub struct CnoWait {
    cno: Cno,
    until: Instant,
    generation: u32,
    over: bool,
}

impl<P: Provider> Ia<'_, P> {
    /// Begins to wait until the CNO is triggered, for `timeout` at the most; [`Duration::MAX`] is
    /// without end. Any number of waits may be under way.
    #[doc(alias = "dat_cno_wait")]
    pub fn cno_wait(
        &mut self,
        now: Instant,
        cno: Cno,
        timeout: Duration,
    ) -> Result<CnoWait, Error> {
        let control = self.events.cnos.live_mut(cno)?;
        control.waiters += 1;
        Ok(CnoWait { cno, until: now + timeout, generation: control.generation, over: false })
    }

    /// Whether the wait is over: with the Event Dispatcher that triggered the CNO, which is
    /// untriggered again; with none if the last Event Dispatcher was detached or the adapter
    /// closed; or with `QUEUE_EMPTY` when the time is over.
    pub fn cno_waited(
        &mut self,
        now: Instant,
        wait: &mut CnoWait,
    ) -> Poll<Result<Option<Evd>, DatReturn>> {
        let closed = self.lifecycle.closed;
        let hint = if wait.over { Ok(None) } else { self.events.take_hint(wait.cno) };
        let found = match hint.and_then(|hint| Ok((hint, self.events.cnos.live(wait.cno)?))) {
            Ok((hint, control)) if !wait.over => match hint {
                Some(evd) => Ok(Some(evd)),
                None if control.generation != wait.generation => Ok(None),
                None if wait.until <= now => Err(DatReturn::QUEUE_EMPTY),
                None => return Poll::Pending,
            },
            Ok(_) => Err(DatReturn::QUEUE_EMPTY),
            Err(_) if closed => Ok(None),
            Err(stale) => Err(stale),
        };
        self.cno_wait_end(wait);
        Poll::Ready(found)
    }

    /// Ends a wait without a result.
    pub fn cno_wait_end(&mut self, wait: &mut CnoWait) {
        if !core::mem::replace(&mut wait.over, true) {
            if let Ok(control) = self.events.cnos.live_mut(wait.cno) {
                control.waiters = control.waiters.saturating_sub(1);
            }
        }
    }
}

impl CnoWait {
    /// The CNO.
    #[must_use]
    pub fn cno(&self) -> Cno {
        self.cno
    }

    /// When it is over at the latest.
    #[must_use]
    pub fn until(&self) -> Instant {
        self.until
    }
}
