//! What a Shared Receive Queue and its Endpoints hold, and what the device tells of it.

use core::sync::atomic::Ordering;

use crate::event::AsyncEvent;
use crate::handle::Ep;
use crate::ia::Ia;
use crate::provider::{Direction, Provider, SharedRq};

impl<P: Provider> Ia<'_, P> {
    /// The device says that fewer receives are left than it was armed for.
    pub(crate) fn srq_limit(&mut self, queue: SharedRq) {
        if let Some(srq) = self.objects.srq_of(queue) {
            self.srq_low(srq);
        }
    }

    /// The device gave a queue up.
    pub(crate) fn srq_failed(&mut self, queue: SharedRq) {
        let Some(srq) = self.objects.srq_of(queue) else {
            return;
        };
        if let Ok(control) = self.objects.srqs.live_mut(srq) {
            control.failed = true;
        }
        let event = AsyncEvent::SrqBroken(srq);
        self.events.report(event);
    }

    /// Receives that an Endpoint holds: of its own queue those that have not completed, of a shared
    /// queue those that it took and that have not been dequeued, as until then the consumer has
    /// one less. `None` if that cannot be known now.
    pub(crate) fn held(&mut self, ep: Ep) -> Option<u32> {
        let control = self.objects.eps.live(ep).ok()?;
        let (shared_queue, recv_evd) = (control.srq.is_some(), control.recv_evd);
        let (Some(_), Some(evd)) = (control.qp, recv_evd) else {
            // What its slot has counted was of the Endpoint before it.
            return Some(0);
        };
        self.reaper_here(evd).ok()?;
        if !shared_queue {
            return Some(self.unfinished(ep, Direction::Recv));
        }
        self.look_through(evd);
        let arrived = self.objects.eps.live(ep).ok()?.arrived;
        let taken = self.data.shared.ep(ep.0.index())?.receive.taken.load(Ordering::Acquire);
        Some(arrived.wrapping_sub(taken))
    }
}
