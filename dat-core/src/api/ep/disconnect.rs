//! dat_ep_disconnect(3).

use crate::engine::Ia;
use crate::provider::Provider;
use crate::types::dat_return::Error;
use crate::types::ep_state::{EpOp, EpState, Outcome};
use crate::types::flags::CloseFlag;
use crate::types::handle::Ep;
use crate::types::time::Instant;

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
}
