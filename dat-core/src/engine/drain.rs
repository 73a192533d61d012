//! Graceful disconnect: the connection ends when all requests have completed.

use core::time::Duration;

use crate::engine::Ia;
use crate::provider::Provider;
use crate::types::completion::Direction;
use crate::types::ep_state::EpOp;
use crate::types::handle::Ep;
use crate::types::time::Instant;

/// Until the completions of one are looked through again. Nobody arms their queue: it is the
/// consumer's.
const INTERVAL: Duration = Duration::from_millis(1);

/// A graceful disconnect ends as an abrupt one when no request has completed for so long: a peer
/// without receives may keep the device retrying without end.
const PATIENCE: Duration = Duration::from_secs(30);

impl<P: Provider> Ia<'_, P> {
    /// Looks whether the last request of a graceful disconnect has completed.
    pub(crate) fn drain_step(&mut self, now: Instant, ep: Ep) {
        if let Ok(poster) = self.poster(ep) {
            poster.ring_deferred();
        }
        let left = self.objects.unfinished(&mut self.data, ep, Direction::Send);
        self.follow_suppressed(ep, left);
        let left = self.objects.unfinished(&mut self.data, ep, Direction::Send);
        let Ok(control) = self.objects.eps.live_mut(ep) else { return };
        if left != control.drain.left {
            control.drain.left = left;
            control.drain.until = now + PATIENCE;
        }
        let until = control.drain.until;
        self.objects.set_deadline(ep, until.min(now + INTERVAL));
        if left == 0 || until <= now {
            self.drop_connection(now, ep);
            self.apply(ep, EpOp::Drained);
        }
    }
}
