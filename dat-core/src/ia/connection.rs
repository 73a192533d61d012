//! From the connection manager's events to Endpoints and Connection Requests.

use super::{Ia, Owner};
use crate::cm::{CmEvent, ConnId, Reason, Request};
use crate::cr::{CrControl, RequestData};
use crate::ep::{EpControl, EpOp, EpState, Phase, PrivateData};
use crate::event::Event;
use crate::flags::PspFlag;
use crate::handle::{Cr, Ep};
use crate::provider::Provider;
use crate::time::Instant;

/// Events taken in one go.
const BUDGET: usize = 256;

impl<P: Provider> Ia<'_, P> {
    /// Carries out what the connection manager has to tell.
    pub(crate) fn connection_events(&mut self, now: Instant) {
        for _ in 0..BUDGET {
            let Some(event) = self.cm.poll_event() else {
                return;
            };
            self.worked = true;
            match event {
                CmEvent::Request(request) => self.requested(now, &request),
                CmEvent::Reply(reply) => match self.owner(reply.conn) {
                    Owner::Ep(ep) => self.replied(now, ep, reply),
                    // Aborted meanwhile: the peer must not stay half connected.
                    Owner::Nobody | Owner::Cr(_) => self.cm.abort(now, reply.conn),
                },
                CmEvent::Established { conn } => {
                    if let Owner::Ep(ep) = self.owner(conn) {
                        self.accepted(now, ep);
                    }
                }
                CmEvent::Rejected { conn, reason } => {
                    let op = if reason == Reason::CONSUMER {
                        EpOp::PeerRejected
                    } else {
                        EpOp::NonPeerRejected
                    };
                    self.ended(conn, op, Some(reason));
                }
                CmEvent::Unreachable { conn } => self.ended(conn, EpOp::Unreachable, None),
                CmEvent::Disconnected { conn, .. } => {
                    self.ended(conn, EpOp::PeerDisconnected, None);
                }
                CmEvent::SidrRequest(request) => self.looked_up(now, &request),
                CmEvent::SidrReply(reply) => {
                    if let Owner::Ep(ep) = self.owner(reply.conn) {
                        self.found(ep, &reply);
                    }
                    self.disown(reply.conn);
                }
            }
        }
    }

    /// A connection is no more; a rejection has a reason, and private data.
    fn ended(&mut self, conn: ConnId, op: EpOp, refusal: Option<Reason>) {
        match self.owner(conn) {
            Owner::Nobody => {}
            Owner::Cr(cr) => {
                if let Some(control) = self.crs.get_mut(cr.0) {
                    control.conn = None;
                }
            }
            Owner::Ep(ep) => {
                let data = if refusal.is_some() {
                    PrivateData::from_slice(self.cm.private_data(conn)).unwrap_or_default()
                } else {
                    PrivateData::new()
                };
                if let Ok(control) = self.ep_mut(ep) {
                    control.conn = None;
                    if refusal.is_some() {
                        control.refusal = refusal;
                        control.private = data;
                    }
                }
                if self.ep(ep).is_ok_and(EpControl::looks_up) {
                    self.look_up_ends(ep, Phase::None, Event::UdError(ep));
                } else {
                    self.apply(ep, op);
                }
            }
        }
        self.disown(conn);
    }

    /// A peer asks for a connection.
    fn requested(&mut self, now: Instant, request: &Request) {
        let refuse = |ia: &mut Self, reason| {
            if ia.cm.reject(now, request.conn, reason, &[], &[]).is_err() {
                ia.cm.abort(now, request.conn);
            }
        };
        let Some(psp) = request.service.port().and_then(|port| self.listener(port)) else {
            refuse(self, Reason::INVALID_SERVICE_ID);
            return;
        };
        if request.terms.mtu > self.provider.limits().mtu {
            // The peer would send packets of that size: a smaller MTU on this side alone refuses its first long message.
            refuse(self, Reason::INVALID_MTU);
            return;
        }
        let Ok(listener) = self.psp(psp) else { return };
        let (evd, flag, conn_qual) = (listener.evd, listener.flag, u64::from(listener.port));
        let needs_ep = flag == PspFlag::Provider;
        if !self.has_room(evd) || self.crs.is_full() || (needs_ep && self.eps.is_full()) {
            refuse(self, Reason::NO_RESOURCES);
            return;
        }
        let local_ep = if needs_ep {
            self.tentative_ep(request)
        } else {
            None
        };
        let control = CrControl {
            conn: Some(request.conn),
            request: *request,
            private: RequestData::from_slice(self.cm.private_data(request.conn))
                .unwrap_or_default(),
            local_ep,
        };
        if let Some(cr) = self.crs.insert(control).map(Cr) {
            self.own(request.conn, Owner::Cr(cr));
            self.notify(Some(evd), Event::ConnectionRequest { psp, cr, conn_qual });
        }
    }

    /// An Endpoint for a request of a PROVIDER service point: no zone, no Event Dispatchers, attributes that suit.
    fn tentative_ep(&mut self, request: &Request) -> Option<Ep> {
        let mut attr = self.ep_attr_default();
        attr.max_rdma_read_in = attr.max_rdma_read_in.min(request.terms.responder_resources);
        attr.max_rdma_read_out = attr.max_rdma_read_out.min(request.terms.initiator_depth);
        attr.max_recv_dtos = 0;
        attr.max_request_dtos = 0;
        let ep = self.ep_create(None, None, None, None, Some(&attr)).ok()?;
        if let Ok(control) = self.ep_mut(ep) {
            control.remote = Some(request.remote);
            control.remote_port = request.remote_port;
            control.local_port = request.service.port().unwrap_or(0);
        }
        self.enter(ep, EpState::TentativeConnectionPending);
        Some(ep)
    }
}
