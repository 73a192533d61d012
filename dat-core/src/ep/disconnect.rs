//! dat_ep_disconnect(3).

use core::time::Duration;

use super::{EpOp, EpState, Outcome};
use crate::dat_return::Error;
use crate::flags::CloseFlag;
use crate::handle::Ep;
use crate::ia::Ia;
use crate::provider::{Direction, Provider};
use crate::time::Instant;

/// A graceful disconnect ends as an abrupt one when no request has completed for so long: a peer
/// without receives may keep the device retrying without end.
const PATIENCE: Duration = Duration::from_secs(30);
/// Until the completions of one are looked through again. Nobody arms their queue: it is the
/// consumer's.
const INTERVAL: Duration = Duration::from_millis(1);

/// How far a graceful disconnect has come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Drain {
    /// Requests that had not completed when it was looked at last.
    left: u32,
    /// When it ends if no more of them complete.
    until: Instant,
}

impl Drain {
    /// None is under way.
    pub(crate) const NONE: Self = Self { left: 0, until: Instant::NEVER };
}

impl<P: Provider> Ia<'_, P> {
    /// Ends a connection, or an attempt at one.
    ///
    /// Abrupt: at once; what is outstanding comes back flushed, or as it ended. Graceful:
    /// DISCONNECT_PENDING until the posted requests have completed, dequeued or not, then the
    /// same; without any completion for 30 s it ends as if it were abrupt. On states other than
    /// CONNECTED both mean the same. DISCONNECTED: no effect. `INVALID_STATE` in UNCONNECTED,
    /// RESERVED, PASSIVE and TENTATIVE_CONNECTION_PENDING.
    ///
    /// A graceful disconnect sees completions that the consumer has not dequeued, as long as the
    /// reaping half is here; it needs the posting half to follow requests that complete without
    /// a completion. If that one is out and the newest requests are suppressed, they count as
    /// not completed until it has come back.
    #[doc(alias = "dat_ep_disconnect")]
    pub fn ep_disconnect(&mut self, now: Instant, ep: Ep, flag: CloseFlag) -> Result<(), Error> {
        let op = match flag {
            CloseFlag::Abrupt => EpOp::DisconnectAbrupt,
            CloseFlag::Graceful => EpOp::DisconnectGraceful,
        };
        match self.objects.admit(ep, op)? {
            Outcome::Go { next: EpState::DisconnectPending, .. } => {
                self.apply(ep, op);
                self.objects.watch(ep);
                self.drain_step(now, ep);
            }
            Outcome::Go { .. } => {
                self.drop_connection(now, ep);
                self.apply(ep, op);
            }
            Outcome::Stay | Outcome::Gone | Outcome::Ignore | Outcome::Refuse(_) => {}
        }
        self.transmit(now);
        Ok(())
    }

    /// Looks whether the last request of a graceful disconnect has completed.
    pub(crate) fn drain_step(&mut self, now: Instant, ep: Ep) {
        if let Ok(poster) = self.poster(ep) {
            poster.ring_deferred();
        }
        self.follow_suppressed(ep);
        let left = self.unfinished(ep, Direction::Send);
        let Ok(control) = self.objects.eps.live_mut(ep) else { return };
        if left != control.drain.left {
            control.drain.left = left;
            control.drain.until = now + PATIENCE;
        }
        control.deadline = control.drain.until.min(now + INTERVAL);
        if left == 0 || control.drain.until <= now {
            self.drop_connection(now, ep);
            self.apply(ep, EpOp::Drained);
        }
    }
}
