//! What making and freeing an Endpoint does before and behind its commands.

use core::sync::atomic::Ordering;

use crate::engine::Ia;
use crate::engine::queue_pair::{Made, Makings, Wanted};
use crate::objects::ep::{EpControl, PROVIDER_CONTROL};
use crate::objects::streams::ep_streams;
use crate::provider::{Provider, Service};
use crate::types::dat_return::{DatSubtype, DatType, Error};
use crate::types::ep_attr::EpAttr;
use crate::types::ep_state::{EpOp, EpState};
use crate::types::handle::{Ep, Evd, Pz, Srq};
use crate::types::time::Instant;

/// There is no room for another Endpoint.
pub(crate) const FULL: Error = Error::new(DatType::InsufficientResources, DatSubtype::ResourceTep);

/// What [`Control::EpCreate`](crate::Control::EpCreate) makes an Endpoint of: the arguments of
/// [`Ia::ep_create`].
#[derive(Clone, Copy, Debug, Default)]
pub struct EpCreate {
    /// Its Protection Zone.
    pub pz: Option<Pz>,
    /// Where receives complete.
    pub recv_evd: Option<Evd>,
    /// Where requests complete.
    pub request_evd: Option<Evd>,
    /// Where connection events go.
    pub connect_evd: Option<Evd>,
    /// Attributes; none for those of the adapter.
    pub attr: Option<EpAttr>,
}

/// Checks what an Endpoint is to be made of, and takes a slot for it.
pub(crate) fn ep_enter<P: Provider>(
    ia: &mut Ia<'_, P>,
    create: &EpCreate,
    srq: Option<Srq>,
    service: Service,
) -> Result<(Ep, Wanted), Error> {
    let EpCreate { pz, recv_evd, request_evd, connect_evd, ref attr } = *create;
    ia.alive()?;
    ia.ep_streams(pz, recv_evd, request_evd, connect_evd)?;
    let attr = ia.checked_attr(attr.as_ref(), recv_evd.is_some(), request_evd.is_some())?;
    let streams = ep_streams([recv_evd, request_evd, connect_evd], &attr);
    if ia.objects.eps.is_full() {
        return Err(FULL);
    }
    let generation = ia.random.next_u32();
    let mut control = EpControl::new(attr);
    control.service = service;
    control.binds = ia.events.takes_binds(request_evd);
    control.pz = pz;
    control.recv_evd = recv_evd;
    control.request_evd = request_evd;
    control.connect_evd = connect_evd;
    control.srq = srq;
    control.generation = generation;
    control.born = ia.objects.turn;
    let ep = ia.objects.eps.insert(control).map(Ep).ok_or(FULL)?;
    ia.objects.pzs.hold(pz);
    ia.events.attach(&streams);
    let makings = Makings { pz, recv_evd, request_evd, srq, attr, service };
    Ok((ep, Wanted { slot: ep.0.index(), generation, makings }))
}

/// The queue pair of an Endpoint is there, if it has one.
pub(crate) fn ep_begin<P: Provider>(
    ia: &mut Ia<'_, P>,
    ep: Ep,
    makings: &Makings,
    made: Option<Made<P>>,
) {
    let slot = ep.0.index();
    ia.objects.set_qp(ep, made.as_ref().map(|made| made.qp));
    if let Some(shared) = ia.data.shared.ep(slot) {
        shared.request.handle.store(ep.0.raw(), Ordering::Relaxed);
        shared.receive.handle.store(ep.0.raw(), Ordering::Relaxed);
        shared.clear_counters();
    }
    let state = match made {
        Some(made) => {
            ia.install_qp(slot, makings, made);
            EpState::Unconnected
        }
        None => EpState::UnconfiguredUnconnected,
    };
    ia.objects.enter(ep, state);
    if let Some(srq) = makings.srq {
        ia.objects.join_srq(srq, ep);
    }
}

/// An Endpoint gets no queue pair: undoes what was done for it.
pub(crate) fn ep_undo<P: Provider>(ia: &mut Ia<'_, P>, ep: Ep) {
    let Ok(control) = ia.objects.eps.live(ep) else { return };
    let (pz, streams) = (control.pz, control.streams());
    ia.objects.eps.undo(ep.0);
    ia.objects.pzs.release(pz);
    ia.events.detach(&streams);
}

/// Whether the consumer may free an Endpoint. Its windows are renewed then.
pub(crate) fn may_free<P: Provider>(ia: &mut Ia<'_, P>, ep: Ep) -> Result<(), Error> {
    ia.objects.admit(ep, EpOp::Free)?;
    if ia.objects.poster_is_out(&ia.data, ep) || !ia.reapers_idle(ep.0.index()) {
        return Err(PROVIDER_CONTROL.into());
    }
    // While its queue pair exists, so that a refusal changes nothing.
    ia.objects.renew_windows(&mut ia.hca, ep)
}

/// Ends all that an Endpoint has with others. Whether its queue pair has to be reset.
pub(crate) fn ep_leave<P: Provider>(ia: &mut Ia<'_, P>, now: Instant, ep: Ep) -> bool {
    ia.drop_connection(now, ep);
    ia.connections.end_questions(&ia.objects, ep, true);
    ia.objects.set_deadline(ep, Instant::NEVER);
    ia.objects.release_events(ep);
    ia.connections.keep_answer(&mut ia.objects, ep, None);
    // Disconnected, it is reset already.
    ia.objects.state_of(ep) != Ok(EpState::Disconnected)
}

/// The queue pair of an Endpoint is gone: lets go of all that the Endpoint held.
pub(crate) fn ep_over<P: Provider>(ia: &mut Ia<'_, P>, ep: Ep) {
    if let Some(shared) = ia.data.shared.ep(ep.0.index()) {
        let shut = EpState::UnconfiguredUnconnected.word();
        shared.poster.state.store(shut, Ordering::Release);
        ia.data.rewind(shared);
    }
    if let Ok(control) = ia.objects.eps.live(ep) {
        let (srq, pz) = (control.srq, control.pz);
        let streams = control.streams();
        ia.objects.return_events(ep);
        if let Some(srq) = srq {
            ia.objects.leave_srq(srq, ep);
        }
        ia.objects.eps.remove(ep.0);
        ia.objects.pzs.release(pz);
        ia.events.detach(&streams);
    }
}
