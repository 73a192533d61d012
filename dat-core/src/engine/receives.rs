//! What Endpoints and Shared Receive Queues hold, their watermarks, and what the device says of
//! shared queues.

use core::sync::atomic::Ordering;

use crate::engine::Ia;
use crate::objects::ep::INFINITE;
use crate::provider::Provider;
use crate::types::completion::Direction;
use crate::types::ep_state::{EpOp, EpState};
use crate::types::event::AsyncEvent;
use crate::types::handle::Ep;
use crate::types::time::Instant;

impl<P: Provider> Ia<'_, P> {
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
            return Some(self.objects.unfinished(&mut self.data, ep, Direction::Recv));
        }
        self.objects.look_through(&mut self.data, evd);
        let arrived = self.objects.eps.live(ep).ok()?.arrived;
        let taken = self.data.shared.ep(ep.0.index())?.receive.taken.load(Ordering::Acquire);
        Some(arrived.wrapping_sub(taken))
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
