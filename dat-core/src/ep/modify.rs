//! dat_ep_modify(3).

use super::queue_pair::Makings;
use super::{EpAttr, EpOp, NOT_READY};
use crate::Ia;
use crate::dat_return::Error;
use crate::handle::{Ep, Evd, Pz};
use crate::provider::{Direction, Provider};

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
    /// Changes what an Endpoint is made from, while it has no connection.
    ///
    /// Endpoint: UNCONNECTED, RESERVED, PASSIVE or TENTATIVE_CONNECTION_PENDING, with its posting half here. Anything but
    /// the connect Event Dispatcher needs another queue pair, which would lose receives that are posted already:
    /// `INVALID_STATE` then. Other errors as for [`Ia::ep_create`](Self::ep_create). A refused call changes nothing.
    #[doc(alias = "dat_ep_modify")]
    pub fn ep_modify(&mut self, ep: Ep, change: &EpModify) -> Result<(), Error> {
        self.admit(ep, EpOp::Modify)?;
        let control = self.ep(ep)?;
        let old = Makings {
            pz: control.pz,
            recv_evd: control.recv_evd,
            request_evd: control.request_evd,
            attr: control.attr,
            service: control.service,
        };
        let (old_connect, old_qp, life) = (control.connect_evd, control.qp, control.life);
        let pz = change.pz.or(old.pz);
        let recv_evd = change.recv_evd.or(old.recv_evd);
        let request_evd = change.request_evd.or(old.request_evd);
        let connect_evd = change.connect_evd.or(old_connect);
        self.ep_streams(pz, recv_evd, request_evd, connect_evd)?;
        let (recv, request) = (recv_evd.is_some(), request_evd.is_some());
        let kept = (recv == old.recv_evd.is_some() && request == old.request_evd.is_some())
            .then_some(&old.attr);
        let attr = self.checked_attr(change.attr.as_ref().or(kept), recv, request)?;
        let new = Makings {
            pz,
            recv_evd,
            request_evd,
            attr,
            service: old.service,
        };
        let rebuilt = pz != old.pz
            || recv_evd != old.recv_evd
            || request_evd != old.request_evd
            || attr != old.attr;
        if rebuilt {
            let slot = ep.0.index();
            let posted = self
                .shared
                .ep(slot)
                .map_or(0, |s| s.outstanding(Direction::Recv));
            if posted != 0 {
                return Err(NOT_READY.into());
            }
            if old_qp.is_some() {
                self.poster(ep)?;
            }
            let life = life.wrapping_add(1);
            let made = self.make_qp(slot, life, &new)?;
            let qp = made.as_ref().map(|made| made.new.qp);
            self.destroy_qp(ep)?;
            if let Some(made) = made {
                self.install_qp(slot, &new, made);
            }
            let turn = self.turn;
            let control = self.ep_mut(ep)?;
            control.born = turn;
            control.qp = qp;
            control.life = life;
        }
        let control = self.ep_mut(ep)?;
        control.pz = pz;
        control.recv_evd = recv_evd;
        control.request_evd = request_evd;
        control.connect_evd = connect_evd;
        control.attr = attr;
        self.hold(pz);
        self.release(old.pz);
        for evd in [recv_evd, request_evd, connect_evd] {
            self.attach(evd);
        }
        for evd in [old.recv_evd, old.request_evd, old_connect] {
            self.detach(evd);
        }
        self.apply(ep, EpOp::Modify);
        Ok(())
    }

    /// Destroys the queue pair of an Endpoint, if it has one.
    pub(super) fn destroy_qp(&mut self, ep: Ep) -> Result<(), Error> {
        let qp = self.ep_mut(ep)?.qp.take();
        self.retire_index(ep.0.index());
        let poster = self
            .posters
            .get_mut(ep.0.index() as usize)
            .and_then(Option::take);
        match (qp, poster) {
            (Some(qp), Some(poster)) => Ok(self.provider.qp_destroy(qp, poster.sq, poster.rq)?),
            _ => Ok(()),
        }
    }
}
