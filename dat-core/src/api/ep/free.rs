//! dat_ep_free(3).

use crate::engine::{Ia, queue_pair};
use crate::objects::ep::PROVIDER_CONTROL;
use crate::provider::Provider;
use crate::types::dat_return::Error;
use crate::types::ep_state::{EpOp, EpState};
use crate::types::handle::Ep;
use crate::types::time::Instant;

impl<P: Provider> Ia<'_, P> {
    /// Frees an Endpoint. A connection ends abruptly, an attempt at one is aborted; completions not
    /// yet dequeued are lost.
    ///
    /// `INVALID_STATE` in RESERVED, PASSIVE and TENTATIVE_CONNECTION_PENDING, while the posting
    /// half is out, and while a reaping half is out that still has completions of it.
    #[doc(alias = "dat_ep_free")]
    pub fn ep_free(&mut self, now: Instant, ep: Ep) -> Result<(), Error> {
        self.objects.admit(ep, EpOp::Free)?;
        if self.objects.poster_is_out(&self.data, ep) || !self.reapers_idle(ep.0.index()) {
            return Err(PROVIDER_CONTROL.into());
        }
        // While its queue pair exists, so that a refusal changes nothing.
        self.objects.renew_windows(&mut self.hca, ep)?;
        let freed = self.ep_remove(now, ep);
        self.transmit(now);
        freed
    }

    /// Frees an Endpoint in whatever state.
    pub(crate) fn ep_remove(&mut self, now: Instant, ep: Ep) -> Result<(), Error> {
        self.drop_connection(now, ep);
        self.connections.end_questions(&self.objects, ep, true);
        self.objects.set_deadline(ep, Instant::NEVER);
        self.objects.release_events(ep);
        self.connections.keep_answer(&mut self.objects, ep, None);
        // Disconnected, it is reset already.
        let ended = self.objects.state_of(ep) == Ok(EpState::Disconnected);
        if let Some(qp) =
            self.objects.eps.live(ep).ok().filter(|_| !ended).and_then(|control| control.qp)
            && let Some(line) = self.data.shared.ep(ep.0.index())
        {
            // Before what has completed is taken out.
            queue_pair::stop(&mut self.hca, qp, line);
        }
        self.drop_outstanding(ep.0.index());
        let destroyed = self.destroy_qp(ep);
        if let Some(shared) = self.data.shared.ep(ep.0.index()) {
            let shut = EpState::UnconfiguredUnconnected.word();
            shared.poster.state.store(shut, core::sync::atomic::Ordering::Release);
            self.data.rewind(shared);
        }
        if let Ok(control) = self.objects.eps.live(ep) {
            let (srq, pz) = (control.srq, control.pz);
            let streams = control.streams();
            self.objects.return_events(ep);
            if let Some(srq) = srq {
                self.objects.leave_srq(srq, ep);
            }
            self.objects.eps.remove(ep.0);
            self.objects.pzs.release(pz);
            self.events.detach(&streams);
        }
        destroyed
    }
}
