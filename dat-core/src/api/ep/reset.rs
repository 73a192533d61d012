//! dat_ep_reset(3).

use crate::engine::Ia;
use crate::engine::queue_pair::first_step;
use crate::objects::ep::PROVIDER_CONTROL;
use crate::provider::{Provider, QpStep, Service};
use crate::types::dat_return::Error;
use crate::types::ep_state::{EpOp, Outcome};
use crate::types::handle::Ep;

impl<P: Provider> Ia<'_, P> {
    /// Makes a DISCONNECTED Endpoint UNCONNECTED again.
    ///
    /// Completions not yet dequeued are dropped; who wants them posts a marker each way first and
    /// dequeues until both are back. In UNCONNECTED there is no effect. `INVALID_STATE` in any
    /// other state, while the posting half is out, and while a reaping half is out that still
    /// has completions of it.
    #[doc(alias = "dat_ep_reset")]
    pub fn ep_reset(&mut self, ep: Ep) -> Result<(), Error> {
        if let Outcome::Stay = self.objects.admit(ep, EpOp::Reset)? {
            return Ok(());
        }
        let slot = ep.0.index();
        let control = self.objects.eps.live(ep)?;
        let (qp, service) = (control.qp, control.service);
        if let Some(qp) = qp {
            self.poster(ep)?;
            if !self.reapers_idle(slot) {
                return Err(PROVIDER_CONTROL.into());
            }
            let Some(shared) = self.data.shared.ep(slot) else {
                return Ok(());
            };
            self.objects.renew_windows(&mut self.hca, ep)?;
            if let Err(fault) = self.hca.qp_modify(qp, &first_step(service)) {
                // For the next attempt: the device may have refused the step to Reset when the
                // connection ended.
                let _ = self.hca.qp_modify(qp, &QpStep::Reset);
                return Err(fault.into());
            }
            self.drop_outstanding(slot);
            self.data.rewind_slots(shared);
            if let Some(poster) = self.data.posters.get_mut(slot as usize).and_then(Option::as_mut)
            {
                self.hca.qp_restart(qp, &mut poster.sq, &mut poster.rq);
                poster.rewind();
            }
        }
        let turn = self.objects.turn;
        let taken = self
            .data
            .shared
            .ep(slot)
            .map_or(0, |line| line.receive.taken.load(core::sync::atomic::Ordering::Acquire));
        self.objects.release_events(ep);
        if service != Service::Connected {
            // It is connected from here on. If there is no slot, its end follows the rule of any
            // other event.
            let _ = self.objects.reserve_events(ep);
        }
        self.connections.end_questions(&self.objects, ep, true);
        self.connections.keep_answer(&mut self.objects, ep, None);
        let control = self.objects.eps.live_mut(ep)?;
        control.forget_done();
        control.born = turn;
        control.cause = None;
        control.refusal = None;
        control.remote = None;
        control.remote_port = 0;
        control.local_port = 0;
        control.active = false;
        // Nothing is held any more.
        control.arrived = taken;
        self.apply(ep, EpOp::Reset);
        Ok(())
    }
}
