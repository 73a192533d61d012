//! What Endpoints and Shared Receive Queues hold, their watermarks, and what the device says of
//! shared queues.

use core::sync::atomic::Ordering;

use crate::engine::Ia;
use crate::objects::ep::INFINITE;
use crate::provider::{Provider, SharedRq};
use crate::types::completion::Direction;
use crate::types::ep_state::{EpOp, EpState};
use crate::types::event::AsyncEvent;
use crate::types::handle::{Ep, Srq};
use crate::types::time::Instant;

impl<P: Provider> Ia<'_, P> {
    /// The device says that fewer receives are left than it was armed for.
    pub(super) fn srq_limit(&mut self, queue: SharedRq) {
        if let Some(srq) = self.objects.srq_of(queue) {
            self.srq_low(srq);
        }
    }

    /// The device gave a queue up.
    pub(super) fn srq_failed(&mut self, queue: SharedRq) {
        let Some(srq) = self.objects.srq_of(queue) else {
            return;
        };
        if let Ok(control) = self.objects.srqs.live_mut(srq) {
            control.failed = true;
        }
        self.events.report(AsyncEvent::SrqBroken(srq));
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

    /// Receives that adapter and storage allow in one.
    pub(crate) fn max_srq_dtos(&self) -> u16 {
        // The device keeps one slot free.
        let storage = (1_u32 << self.data.shared.dto_shift) - 1;
        let most = self.hca.limits().max_shared_receives;
        u16::try_from(storage).unwrap_or(u16::MAX).min(most)
    }

    /// Fewer receives are left than the low watermark; told once.
    pub(crate) fn srq_low(&mut self, srq: Srq) {
        if self
            .objects
            .srqs
            .live_mut(srq)
            .is_ok_and(|control| !core::mem::replace(&mut control.reported, true))
        {
            self.events.report(AsyncEvent::SrqLowWatermark(srq));
        }
    }

    /// Holds the receives of an Endpoint against its watermarks; whether it has any left to watch.
    pub(crate) fn watermark_step(&mut self, now: Instant, ep: Ep) -> bool {
        let Ok(control) = self.objects.eps.live(ep) else {
            return false;
        };
        let (mut soft, hard) = (control.soft, control.hard);
        if (soft, hard) == (INFINITE, INFINITE) {
            return false;
        }
        let Some(held) = self.held(ep) else {
            return true;
        };
        if held > soft {
            soft = INFINITE;
            if let Ok(control) = self.objects.eps.live_mut(ep) {
                control.soft = soft;
            }
            self.events.report(AsyncEvent::EpSoftHighWatermark(ep));
        }
        let open = matches!(
            self.objects.state_of(ep),
            Ok(EpState::Connected | EpState::DisconnectPending)
        );
        if open && held > hard {
            self.drop_connection(now, ep);
            self.apply(ep, EpOp::Broken);
        }
        (soft, hard) != (INFINITE, INFINITE)
    }
}
