//! dat_ep_free(3).

use crate::api::several::Job;
use crate::engine::Ia;
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
        self.control_one(now, Job::EpFree(ep)).map(drop)
    }

    /// Whether the consumer may free an Endpoint. Its windows are renewed then.
    pub(in crate::api) fn may_free(&mut self, ep: Ep) -> Result<(), Error> {
        self.objects.admit(ep, EpOp::Free)?;
        if self.objects.poster_is_out(&self.data, ep) || !self.reapers_idle(ep.0.index()) {
            return Err(PROVIDER_CONTROL.into());
        }
        // While its queue pair exists, so that a refusal changes nothing.
        self.objects.renew_windows(&mut self.hca, ep)
    }

    /// Frees an Endpoint in whatever state.
    pub(crate) fn ep_remove(&mut self, now: Instant, ep: Ep) -> Result<(), Error> {
        self.control_one(now, Job::EpRemove(ep)).map(drop)
    }

    /// Ends all that an Endpoint has with others. Whether its queue pair has to be reset.
    pub(in crate::api) fn ep_leave(&mut self, now: Instant, ep: Ep) -> bool {
        self.drop_connection(now, ep);
        self.connections.end_questions(&self.objects, ep, true);
        self.objects.set_deadline(ep, Instant::NEVER);
        self.objects.release_events(ep);
        self.connections.keep_answer(&mut self.objects, ep, None);
        // Disconnected, it is reset already.
        self.objects.state_of(ep) != Ok(EpState::Disconnected)
    }

    /// The queue pair of an Endpoint is gone: lets go of all that the Endpoint held.
    pub(in crate::api) fn ep_over(&mut self, ep: Ep) {
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
    }
}
