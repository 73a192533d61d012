//! From the connection manager's events to Endpoints and Connection Requests.

use crate::cm::event::{CmEvent, Request};
use crate::cm::params::ConnId;
use crate::cm::wire::reason::Reason;
use crate::engine::Ia;
use crate::engine::connections::Owner;
use crate::objects::asker::{RequestData, UdAsker};
use crate::objects::cr::CrControl;
use crate::objects::psp::Listener;
use crate::provider::Provider;
use crate::types::activity::Activity;
use crate::types::bounds::CM_EVENTS;
use crate::types::dat_return::Error;
use crate::types::ep_state::{EpOp, EpState};
use crate::types::event::Event;
use crate::types::flags::PspFlag;
use crate::types::handle::{Cr, Ep};
use crate::types::time::Instant;

impl<P: Provider> Ia<'_, P> {
    /// Carries out what the connection manager has to tell.
    pub(super) fn connection_events(&mut self, now: Instant) {
        for _ in 0..CM_EVENTS {
            let Some(event) = self.connections.cm.poll_event() else {
                return;
            };
            self.events.worked = true;
            match event {
                CmEvent::Request(request) => self.requested(now, &request),
                CmEvent::Reply(reply) => match self.connections.owner(&self.objects, reply.conn) {
                    Owner::Ep(ep) => self.objects.replied(ep, reply),
                    // Aborted meanwhile: the peer must not stay half connected.
                    Owner::Nobody | Owner::Cr(_) | Owner::LookUp(..) => {
                        self.connections.cm.abort(now, reply.conn)
                    }
                },
                CmEvent::Established { conn } => {
                    if let Owner::Ep(ep) = self.connections.owner(&self.objects, conn) {
                        if self.connections.ready.is_full() {
                            self.accepted(now);
                        }
                        let _ = self.connections.ready.push(ep);
                    }
                }
                CmEvent::Rejected { conn, reason } => {
                    let op = if reason == Reason::CONSUMER {
                        EpOp::PeerRejected
                    } else {
                        EpOp::NonPeerRejected
                    };
                    self.ended(now, conn, op, Some(reason));
                }
                CmEvent::Unreachable { conn } => self.ended(now, conn, EpOp::Unreachable, None),
                CmEvent::Disconnected { conn, .. } => {
                    self.ended(now, conn, EpOp::PeerDisconnected, None);
                }
                CmEvent::SidrRequest(request) => self.looked_up(now, &request),
                CmEvent::SidrReply(reply) => self.found(&reply),
            }
        }
    }

    /// A connection is no more; a rejection has a reason, and private data. Those that were made
    /// before are reported before.
    fn ended(&mut self, now: Instant, conn: ConnId, op: EpOp, refusal: Option<Reason>) {
        self.accepted(now);
        match self.connections.owner(&self.objects, conn) {
            Owner::Nobody => {}
            Owner::LookUp(ep, ..) => self.unanswered(ep),
            Owner::Cr(cr) => {
                if let Some(control) = self.objects.crs.get_mut(cr.0) {
                    control.conn = None;
                }
            }
            Owner::Ep(ep) => {
                if let Some(control) = self.objects.eps.get_mut(ep.0) {
                    control.conn = None;
                    if refusal.is_some() {
                        control.refusal = refusal;
                        self.connections.keep_answer(&mut self.objects, ep, Some(conn));
                    }
                }
                self.apply(ep, op);
            }
        }
    }

    /// A peer asks for a connection, and was admitted when its request came.
    fn requested(&mut self, now: Instant, request: &Request) {
        let listener = self.objects.listener_of(request.service);
        let presented =
            listener.and_then(|listener| self.present(listener, request, Some(request.conn)));
        self.hca.report(|| {
            let (remote, port) = (request.remote, request.service.port().unwrap_or_default());
            match presented {
                Ok(_) => Activity::Requested { remote, port },
                Err(reason) => {
                    let reason = reason.text().unwrap_or_default();
                    Activity::Refused { remote, port, reason }
                }
            }
        });
        self.presented(now, request, presented);
    }

    /// A request has come to a service point, with the private data of its message, or the peer gets
    /// the reason why not.
    pub(super) fn presented(
        &mut self,
        now: Instant,
        request: &Request,
        presented: Result<Cr, Reason>,
    ) {
        match presented {
            Ok(cr) => {
                if let Some(control) = self.objects.crs.get_mut(cr.0) {
                    // It is new, and no message has more than there is room for.
                    let private = self.connections.cm.private_data(request.conn);
                    let _ = control.private.extend_from_slice(private);
                    if control.looks_up() {
                        control.asker = UdAsker::cut(&mut control.private);
                    }
                }
            }
            Err(reason) => {
                if self.connections.cm.reject(now, request.conn, reason, &[], &[]).is_err() {
                    self.connections.cm.abort(now, request.conn);
                }
            }
        }
    }

    /// Brings a request to a service point, or says why that is not to be. The private data is the
    /// caller's to add.
    pub(crate) fn present(
        &mut self,
        listener: Listener,
        request: &Request,
        conn: Option<ConnId>,
    ) -> Result<Cr, Reason> {
        let full = Reason::NO_RESOURCES;
        let nobody = Reason::INVALID_SERVICE_ID;
        let evd = self.objects.requests_of(listener)?;
        if !self.events.has_room(evd) || self.objects.crs.is_full() {
            return Err(full);
        }
        let needs_ep = |psp| {
            let psp = self.objects.psps.live(psp);
            psp.is_ok_and(|psp| psp.flag == PspFlag::Provider)
        };
        let (local_ep, provided) = match listener {
            Listener::Psp(psp) if needs_ep(psp) => {
                let state = EpState::UnconfiguredTentative;
                let ep = self.provided_ep(state, Some(request));
                (Some(ep.map_err(|_| full)?), true)
            }
            Listener::Psp(_) | Listener::Csp(_) => (None, false),
            Listener::Rsp(rsp) => {
                let rsp = self.objects.rsps.get_mut(rsp.0).ok_or(nobody)?;
                rsp.used = true;
                let (ep, provided) = (rsp.ep, rsp.provided);
                self.apply(ep, EpOp::RequestArrived);
                if let Ok(control) = self.objects.eps.live_mut(ep) {
                    control.note(request);
                }
                (Some(ep), provided)
            }
        };
        let control = CrControl {
            conn,
            request: *request,
            private: RequestData::new(),
            asker: None,
            local_ep,
            provided,
            listener,
        };
        let cr = self.objects.crs.insert(control).map(Cr).ok_or(full)?;
        if let Some(conn) = conn {
            self.connections.own(conn, Owner::Cr(cr));
        }
        let event = match listener {
            Listener::Psp(psp) => Event::ConnectionRequest {
                psp,
                cr,
                conn_qual: self.objects.psps.live(psp).map_or(0, |psp| psp.port.into()),
            },
            Listener::Rsp(rsp) => Event::ReservedRequest {
                rsp,
                cr,
                conn_qual: self.objects.rsps.live(rsp).map_or(0, |rsp| rsp.port.into()),
            },
            Listener::Csp(csp) => Event::CommonRequest {
                csp,
                cr,
                conn_qual: self.objects.csps.live(csp).map_or(0, |csp| csp.address.port().into()),
            },
        };
        self.events.notify(Some(evd), event);
        Ok(cr)
    }

    /// An Endpoint of the provider's: no zone, no Event Dispatchers, attributes that suit the
    /// request, if there is one already.
    pub(crate) fn provided_ep(
        &mut self,
        state: EpState,
        request: Option<&Request>,
    ) -> Result<Ep, Error> {
        let mut attr = self.ep_attr_default();
        attr.max_recv_dtos = 0;
        attr.max_request_dtos = 0;
        if let Some(Request { terms, .. }) = request {
            attr.max_rdma_read_in = attr.max_rdma_read_in.min(terms.responder_resources);
            attr.max_rdma_read_out = attr.max_rdma_read_out.min(terms.initiator_depth);
        }
        let ep = self.ep_create(None, None, None, None, Some(&attr))?;
        if let (Some(request), Ok(control)) = (request, self.objects.eps.live_mut(ep)) {
            control.note(request);
        }
        self.objects.enter(ep, state);
        Ok(ep)
    }
}
