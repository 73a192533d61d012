//! Arrivals: what triggers a CNO, and what upcalls are made for.
//!
//! An event that the control half makes tells of itself when it is put into the ring. Completions
//! and flushes do not pass through the control half; so for an Event Dispatcher that somebody
//! listens to it takes them in, and asks the device to announce the next. Then it looks again when
//! the device has announced some, when a queue was put on the stack of those to flush, and when the
//! device may have been asked for something else meanwhile: no advance looks where nothing came. An
//! Event Dispatcher whose reaper is with another thread is that thread's: it arms by itself, and
//! here only the device's announcement counts.

use crate::engine::Ia;
use crate::provider::Provider;
use crate::types::bounds::LOOKS;
use crate::types::dat_return::DatReturn;
use crate::types::flags::{CompletionFlags, UpcallPolicy};
use crate::types::handle::Evd;

/// Upcalls made for one Event Dispatcher in one advance.
const BUDGET: usize = 256;

impl<P: Provider> Ia<'_, P> {
    /// Looks for arrivals, and tells agents and upcalls.
    pub(super) fn arrivals(&mut self) {
        let shared = self.data.shared;
        let mut slot = shared.arrivals.take();
        while let Some(ring) = shared.evd(slot) {
            let next = ring.producer.arrival.next();
            ring.producer.arrival.release();
            self.events.look_at_slot(slot);
            slot = next;
        }
        let queued = usize::try_from(self.events.evds.queued()).unwrap_or(usize::MAX);
        for _ in 0..queued.min(LOOKS) {
            let Some(evd) = self.events.evds.dequeue().map(Evd) else { break };
            self.look_in(evd);
            self.call_up(evd);
        }
        self.events.worked |= queued > LOOKS;
        self.events.call_agents();
    }

    /// Reports what has come until now to whom it concerns now.
    pub(crate) fn look_in(&mut self, evd: Evd) {
        if self.events.listened(evd) && self.take_in(evd) {
            self.events.arrived(evd);
        }
    }

    /// What has come until now concerns nobody.
    pub(crate) fn overlook(&mut self, evd: Evd) {
        if self.events.listened(evd) {
            self.take_in(evd);
        }
    }

    /// Takes in what has come from the device and from posters since the last time. Whether any of
    /// it notifies.
    fn take_in(&mut self, evd: Evd) -> bool {
        let Some(control) = self.events.evds.get_mut(evd.0) else {
            return false;
        };
        let announced = core::mem::take(&mut control.announced);
        if self.events.reaper_is_out(&self.data, evd.0) {
            return announced;
        }
        let taken = self.absorb(evd);
        let solicited = self.events.completion_type(evd) == CompletionFlags::SOLICITED_WAIT;
        let shared = self.data.shared;
        let mut notifies = taken.notifying;
        if !taken.all {
            self.events.look_at(evd);
        }
        if let (Ok(reaper), Some(ring)) = (self.reaper_here(evd), shared.evd(evd.0.index())) {
            reaper.adopt(&shared, ring);
            notifies |= reaper.take_unreported();
            if taken.all {
                reaper.arm(solicited);
            } else {
                // More than fits: nobody can tell what is among it.
                notifies = true;
            }
        }
        notifies
    }

    /// Makes the upcalls for what has come.
    fn call_up(&mut self, evd: Evd) {
        for _ in 0..BUDGET {
            let Some(upcalls) = self.events.evds.get_mut(evd.0).and_then(|c| c.upcalls.as_mut())
            else {
                return;
            };
            let disabled = matches!(upcalls.policy, UpcallPolicy::Disable | UpcallPolicy::Teardown);
            if !upcalls.pending || upcalls.inside || disabled {
                return;
            }
            let upcall = self.upcalls.get(evd.0.index() as usize).copied().flatten();
            let Some(upcall) = upcall else { return };
            let event = match self.evd_dequeue(evd) {
                Ok(event) => event,
                Err(DatReturn::QUEUE_EMPTY) => {
                    if let Some(upcalls) =
                        self.events.evds.get_mut(evd.0).and_then(|c| c.upcalls.as_mut())
                    {
                        upcalls.pending = false;
                    }
                    return;
                }
                Err(_) => return,
            };
            self.events.worked = true;
            let more = self.evd_count(evd).events != 0;
            self.events.inside(evd, true);
            (upcall.function)(self, upcall.instance, event, more);
            self.events.inside(evd, false);
        }
        self.events.look_at(evd);
    }
}
