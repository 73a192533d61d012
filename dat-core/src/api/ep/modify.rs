//! dat_ep_modify(3).

use core::sync::atomic::Ordering;

use crate::data::validate::Segments;
use crate::engine::Ia;
use crate::engine::queue_pair::{BAD_ATTR, Makings, Wanted};
use crate::objects::ep::NOT_READY;
use crate::objects::streams::ep_streams;
use crate::provider::{Provider, RecvQueue};
use crate::types::completion::Direction;
use crate::types::dat_return::Error;
use crate::types::ep_attr::EpAttr;
use crate::types::ep_state::EpOp;
use crate::types::handle::{Ep, Evd, Pz};

/// What to change; `None` leaves it.
#[derive(Clone, Copy, Debug, Default)]
pub struct EpModify {
    /// The Protection Zone.
    pub pz: Option<Pz>,
    /// Where receives complete.
    pub recv_evd: Option<Evd>,
    /// Where requests complete.
    pub request_evd: Option<Evd>,
    /// Where connection events go.
    pub connect_evd: Option<Evd>,
    /// Everything else.
    pub attr: Option<EpAttr>,
}

impl<P: Provider> Ia<'_, P> {
    /// Changes what an Endpoint is made from, while it has no connection; what it leaves configured
    /// can be used.
    ///
    /// Endpoint: UNCONNECTED, RESERVED, PASSIVE or TENTATIVE_CONNECTION_PENDING, configured or not,
    /// with its posting half here. The zone may be changed in UNCONNECTED and TENTATIVE only,
    /// or where there was none. Receives that are posted stay posted; those of memory in
    /// another zone than the new one will fail. `INVALID_STATE` also for other receive completion
    /// flags when there are any; `INVALID_PARAMETER` also for fewer or shorter receives than
    /// are posted. Other errors as for [`Ia::ep_create`](Self::ep_create). A refused call
    /// changes nothing.
    #[doc(alias = "dat_ep_modify")]
    pub fn ep_modify(&mut self, ep: Ep, change: &EpModify) -> Result<(), Error> {
        self.objects.admit(ep, EpOp::Modify)?;
        let state = self.objects.state_of(ep)?;
        let control = self.objects.eps.live(ep)?;
        let old = Makings {
            pz: control.pz,
            recv_evd: control.recv_evd,
            request_evd: control.request_evd,
            srq: control.srq,
            attr: control.attr,
            service: control.service,
        };
        let (old_connect, old_qp, generation) =
            (control.connect_evd, control.qp, control.generation);
        let pz = change.pz.or(old.pz);
        let recv_evd = change.recv_evd.or(old.recv_evd);
        let request_evd = change.request_evd.or(old.request_evd);
        let connect_evd = change.connect_evd.or(old_connect);
        self.ep_streams(pz, recv_evd, request_evd, connect_evd)?;
        if pz != old.pz && old.pz.is_some() && !state.is_quiescent() {
            return Err(state.refusal().into());
        }
        let (recv, request) = (recv_evd.is_some(), request_evd.is_some());
        let kept = (recv == old.recv_evd.is_some() && request == old.request_evd.is_some())
            .then_some(&old.attr);
        let attr = self.checked_attr(change.attr.as_ref().or(kept), recv, request)?;
        let streams = ep_streams([recv_evd, request_evd, connect_evd], &attr);
        let old_streams = control.streams();
        let new = Makings { pz, recv_evd, request_evd, srq: old.srq, attr, service: old.service };
        let rebuilt = pz != old.pz
            || recv_evd != old.recv_evd
            || request_evd != old.request_evd
            || attr != old.attr;
        if rebuilt {
            self.rebuild(ep, &old, &new, old_qp.is_some(), generation)?;
        }
        let binds = self.events.takes_binds(request_evd);
        let control = self.objects.eps.live_mut(ep)?;
        control.binds = binds;
        control.pz = pz;
        control.recv_evd = recv_evd;
        control.request_evd = request_evd;
        control.connect_evd = connect_evd;
        control.attr = attr;
        let configured = control.qp.is_some();
        self.objects.pzs.hold(pz);
        self.objects.pzs.release(old.pz);
        self.events.attach(&streams);
        self.events.detach(&old_streams);
        if configured {
            self.apply(ep, EpOp::Modify);
        }
        Ok(())
    }

    /// Puts another queue pair in the place of an Endpoint's, if there is one, with the receives
    /// that are posted.
    fn rebuild(
        &mut self,
        ep: Ep,
        old: &Makings,
        new: &Makings,
        had: bool,
        generation: u32,
    ) -> Result<(), Error> {
        let slot = ep.0.index();
        let Some(line) = self.data.shared.ep(slot) else {
            return Ok(());
        };
        let posted = line.posted(Direction::Recv);
        if had {
            self.poster(ep)?;
        }
        if posted != 0 {
            // In these states none of them can have completed, but by a failure of the queue pair.
            if line.outstanding(Direction::Recv) != posted
                || new.attr.recv_completion_flags != old.attr.recv_completion_flags
            {
                return Err(NOT_READY.into());
            }
            if u32::from(new.attr.max_recv_dtos) < posted
                || new.attr.max_recv_iov < old.attr.max_recv_iov
            {
                return Err(BAD_ATTR);
            }
        }
        let generation = generation.wrapping_add(1);
        let mut made = self.make_qp(Wanted { slot, generation, makings: *new })?;
        if let Some(made) = &mut made {
            if posted != 0 {
                let poster = self.poster(ep)?;
                for token in 0..posted {
                    let mut list = Segments::new();
                    // Receives of one queue are fewer than 32,768.
                    poster.rq.posted(u16::try_from(token).unwrap_or(0), |segment| {
                        let _ = list.push(segment);
                    });
                    made.poster.rq.recv(&list);
                }
            }
        }
        let qp = made.as_ref().map(|made| made.qp);
        self.destroy_qp(ep)?;
        if let Some(made) = made {
            self.install_qp(slot, new, made);
            line.poster.receives.store(posted, Ordering::Release);
        }
        self.objects.set_qp(ep, qp);
        let turn = self.objects.turn;
        let control = self.objects.eps.live_mut(ep)?;
        control.born = turn;
        control.generation = generation;
        control.arrived = 0;
        control.forget_done();
        Ok(())
    }
}
