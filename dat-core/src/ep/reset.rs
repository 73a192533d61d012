//! dat_ep_reset(3).

use super::queue_pair::{Makings, first_step};
use super::{EpOp, Outcome, PROVIDER_CONTROL};
use crate::Ia;
use crate::dat_return::Error;
use crate::handle::Ep;
use crate::provider::{Direction, Provider, Service};

impl<P: Provider> Ia<'_, P> {
    /// Makes a DISCONNECTED Endpoint UNCONNECTED again.
    ///
    /// Completions not yet dequeued are dropped; who wants them posts a marker each way first and dequeues until both are
    /// back. In UNCONNECTED there is no effect. `INVALID_STATE` in any other state, while the posting half is out, and
    /// while a reaping half is out that still has completions of it.
    #[doc(alias = "dat_ep_reset")]
    pub fn ep_reset(&mut self, ep: Ep) -> Result<(), Error> {
        if let Outcome::Stay = self.admit(ep, EpOp::Reset)? {
            return Ok(());
        }
        let slot = ep.0.index();
        let control = self.ep(ep)?;
        let makings = Makings {
            pz: control.pz,
            recv_evd: control.recv_evd,
            request_evd: control.request_evd,
            srq: control.srq,
            attr: control.attr,
            service: control.service,
        };
        let (qp, life) = (control.qp, control.life);
        if let Some(qp) = qp {
            self.poster(ep)?;
            if !self.reapers_quiet(slot) {
                return Err(PROVIDER_CONTROL.into());
            }
            let Some(shared) = self.shared.ep(slot) else {
                return Ok(());
            };
            self.renew_windows(ep)?;
            let undelivered = [Direction::Send, Direction::Recv]
                .iter()
                .any(|&direction| shared.outstanding(direction) != 0);
            if undelivered {
                // Their completions may still lie in a completion queue under the present index: only another queue pair
                // with another index tells them from what comes.
                let life = life.wrapping_add(1);
                let made = self.make_qp(slot, life, &makings)?;
                let qp = made.as_ref().map(|made| made.qp);
                self.drop_outstanding(slot);
                let destroyed = self.destroy_qp(ep);
                if let Some(made) = made {
                    self.install_qp(slot, &makings, made);
                }
                let control = self.ep_mut(ep)?;
                control.qp = qp;
                control.life = life;
                destroyed?;
            } else {
                self.provider.qp_modify(qp, &first_step(makings.service))?;
                self.drop_outstanding(slot);
                self.rewind_slots(shared);
                if let Some(poster) = self.posters.get_mut(slot as usize).and_then(Option::as_mut) {
                    self.provider.qp_restart(qp, &mut poster.sq, &mut poster.rq);
                    poster.rewind();
                }
            }
        }
        let turn = self.turn;
        let taken = self.shared.ep(slot).map_or(0, |line| {
            line.receive
                .taken
                .load(core::sync::atomic::Ordering::Acquire)
        });
        self.release_events(ep);
        if makings.service != Service::Connected {
            // It is connected from here on. If there is no slot, its end follows the rule of any other event.
            let _ = self.reserve_events(ep);
        }
        self.end_questions(ep, true);
        self.keep_answer(ep, None);
        let control = self.ep_mut(ep)?;
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
