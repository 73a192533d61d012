//! dat_ep_disconnect(3).

use super::{EpOp, EpState, Outcome};
use crate::Ia;
use crate::dat_return::Error;
use crate::flags::CloseFlag;
use crate::handle::Ep;
use crate::ia::late::Drains;
use crate::provider::{Direction, Provider};
use crate::time::Instant;

impl<P: Provider> Ia<'_, P> {
    /// Ends a connection, or an attempt at one.
    ///
    /// Abrupt: at once; what is outstanding comes back flushed, or as it ended. Graceful: DISCONNECT_PENDING until the
    /// posted requests have finished, then the same. On states other than CONNECTED both mean the same. DISCONNECTED: no
    /// effect. `INVALID_STATE` in UNCONNECTED, RESERVED, PASSIVE and TENTATIVE_CONNECTION_PENDING.
    ///
    /// A graceful disconnect sees completions that the consumer has not dequeued, as long as the reaping half is here; it
    /// needs the posting half to follow requests that complete in silence. If that one is out and the newest requests are
    /// suppressed, the drain ends after it has come back.
    #[doc(alias = "dat_ep_disconnect")]
    pub fn ep_disconnect(&mut self, now: Instant, ep: Ep, flag: CloseFlag) -> Result<(), Error> {
        let op = match flag {
            CloseFlag::Abrupt => EpOp::DisconnectAbrupt,
            CloseFlag::Graceful => EpOp::DisconnectGraceful,
        };
        match self.admit(ep, op)? {
            Outcome::Go {
                next: EpState::DisconnectPending,
                ..
            } => {
                self.apply(ep, op);
                self.end_questions(ep, false);
                let consumed = self.shared.ep(ep.0.index()).map_or(0, |shared| {
                    shared
                        .request
                        .consumed
                        .load(core::sync::atomic::Ordering::Acquire)
                });
                let control = self.ep_mut(ep)?;
                control.completed = consumed;
                control.drain_posted = false;
                self.late.drains = Some(Drains {
                    step: |ia, now, ep| ia.drain_step(now, ep),
                });
                self.watch(ep);
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
    fn drain_step(&mut self, now: Instant, ep: Ep) {
        let shared = self.shared;
        let Ok(control) = self.ep(ep) else { return };
        let request_evd = control.request_evd;
        if !control.drain_posted
            && let Ok((poster, shared, near)) = self.posting(ep)
        {
            poster.drain(shared, &near);
            if let Ok(control) = self.ep_mut(ep) {
                control.drain_posted = true;
            }
        }
        if let Some(evd) = request_evd {
            self.absorb(evd);
        }
        let Some(line) = shared.ep(ep.0.index()) else {
            return;
        };
        let posted = line.posted(Direction::Send);
        let consumed = line
            .request
            .consumed
            .load(core::sync::atomic::Ordering::Acquire);
        let Ok(control) = self.ep(ep) else { return };
        let ahead = control.completed.wrapping_sub(consumed);
        let window = posted.wrapping_sub(consumed);
        // `completed` either lies within what is outstanding or has been overtaken by the consumer. A request that ends in
        // silence never raises it, so it reaches the end only if the newest request was seen to complete.
        if window == 0 || ahead == window {
            self.drop_connection(now, ep);
            self.apply(ep, EpOp::Drained);
        }
    }
}
