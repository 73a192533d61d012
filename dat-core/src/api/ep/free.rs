//! dat_ep_free(3).

use heapless::Vec;

use crate::engine::{Ia, queue_pair};
use crate::objects::ep::PROVIDER_CONTROL;
use crate::provider::Provider;
use crate::types::bounds::{STEPS, next_batch};
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
        let mut one = [(ep, None)];
        self.ep_free_some(now, &mut one);
        let [(_, freed)] = one;
        freed.unwrap_or(Ok(()))
    }

    /// Frees several Endpoints as [`Ia::ep_free`](Self::ep_free) does, with the commands of several
    /// on their way to the device at the same time. What became of each stands behind it; one that
    /// is refused changes nothing, and nothing of the others.
    pub fn ep_free_each(&mut self, now: Instant, mut all: &mut [(Ep, Option<Result<(), Error>>)]) {
        while !all.is_empty() {
            self.ep_free_some(now, next_batch(&mut all));
        }
    }

    /// Frees up to [`STEPS`] Endpoints, all different.
    fn ep_free_some(&mut self, now: Instant, all: &mut [(Ep, Option<Result<(), Error>>)]) {
        let mut eps = Vec::<_, STEPS>::new();
        for (ep, freed) in &mut *all {
            match self.may_free(*ep) {
                Ok(()) => {
                    *freed = None;
                    let _ = eps.push(*ep);
                }
                Err(error) => *freed = Some(Err(error)),
            }
        }
        if eps.is_empty() {
            return;
        }
        let mut removed = self.ep_remove_each(now, &eps).into_iter();
        for (_, freed) in all.iter_mut().filter(|(_, freed)| freed.is_none()) {
            *freed = removed.next();
        }
        self.transmit(now);
    }

    /// Whether the consumer may free an Endpoint. Its windows are renewed then.
    fn may_free(&mut self, ep: Ep) -> Result<(), Error> {
        self.objects.admit(ep, EpOp::Free)?;
        if self.objects.poster_is_out(&self.data, ep) || !self.reapers_idle(ep.0.index()) {
            return Err(PROVIDER_CONTROL.into());
        }
        // While its queue pair exists, so that a refusal changes nothing.
        self.objects.renew_windows(&mut self.hca, ep)
    }

    /// Frees an Endpoint in whatever state.
    pub(crate) fn ep_remove(&mut self, now: Instant, ep: Ep) -> Result<(), Error> {
        self.ep_remove_each(now, &[ep]).pop().unwrap_or(Ok(()))
    }

    /// Frees up to [`STEPS`] Endpoints, all different, in whatever state. Returns what became of
    /// each.
    pub(crate) fn ep_remove_each(
        &mut self,
        now: Instant,
        eps: &[Ep],
    ) -> Vec<Result<(), Error>, STEPS> {
        let mut stops = Vec::<_, STEPS>::new();
        for &ep in eps {
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
                let _ = stops.push((qp, line));
            }
        }
        // Before what has completed is taken out.
        queue_pair::stop(&mut self.hca, &stops);
        for ep in eps {
            self.drop_outstanding(ep.0.index());
        }
        let destroyed = self.destroy_qps(eps);
        for &ep in eps {
            self.ep_over(ep);
        }
        destroyed
    }

    /// The queue pair of an Endpoint is gone: lets go of all that the Endpoint held.
    fn ep_over(&mut self, ep: Ep) {
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
