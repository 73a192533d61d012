//! Look-ups of service points for datagrams, on both sides.

use core::net::IpAddr;
use core::task::Poll;

use crate::cm::event::{CmError, Request, SidrReply};
use crate::cm::params::ConnId;
use crate::cm::sidr::SidrParams;
use crate::cm::wire::reason::Reason;
use crate::cm::wire::service::ServiceId;
use crate::engine::Ia;
use crate::engine::connections::Owner;
use crate::engine::establish::ephemeral_port;
use crate::engine::establish::{Ask, port};
use crate::objects::asker::{RequestData, UdAsker};
use crate::objects::cr::{CrControl, MAX_UD_REPLY_PRIVATE};
use crate::objects::ep::{EpControl, Phase};
use crate::objects::psp::Listener;
use crate::objects::table::Kind;
use crate::provider::{Class, Provider, Service};
use crate::types::bounds::VISITS;
use crate::types::counters::IaCounter;
use crate::types::dat_return::{DatReturn, DatSubtype, DatType, Error};
use crate::types::ep_state::EpState;
use crate::types::event::{Event, LookUp};
use crate::types::handle::{Cr, Ep};
use crate::types::time::Instant;

impl<P: Provider> Ia<'_, P> {
    /// Asks for a service point; all that was asked for has been checked.
    pub(crate) fn ask(
        &mut self,
        now: Instant,
        ep: Ep,
        ask: &Ask,
        class: Class,
        private_data: &[u8],
    ) -> Result<(), Error> {
        const FULL: Error = Error::new(DatType::InsufficientResources, DatSubtype::ResourceTep);
        // Every Endpoint for connections still finds a slot for its own.
        if self.connections.cm.asking() >= self.connections.owners.len() / 2 {
            return Err(FULL);
        }
        let control = self.objects.eps.live(ep)?;
        let (Service::Datagram { qkey }, Some(qp)) = (control.service, control.qp) else {
            return Err(EpControl::STALE.into());
        };
        let private_data = &UdAsker { qpn: qp.number, qkey }.field(private_data);
        let remote_port = port(ask.conn_qual).unwrap_or(0);
        let local_port = ephemeral_port(&mut self.random);
        let params = SidrParams {
            remote: ask.remote,
            local: self.net.addr,
            service: ServiceId::udp(remote_port),
            source_port: local_port,
            class,
            private_data,
        };
        let (limit, asker) = (now + ask.timeout, ep.0.index());
        let conn = match self.connections.cm.sidr_prepare(now, &params, limit, asker) {
            Ok(conn) => conn,
            Err(
                CmError::NoSlot
                | CmError::Unknown(_)
                | CmError::State(..)
                | CmError::TooLong { .. }
                | CmError::Parameter(_),
            ) => return Err(FULL),
        };
        self.connections.own(conn, Owner::LookUp(ep, conn));
        self.connections.keep_answer(&mut self.objects, ep, None);
        let control = self.objects.eps.live_mut(ep)?;
        control.refusal = None;
        control.phase = Phase::None;
        control.remote = Some(ask.remote);
        control.remote_port = remote_port;
        control.local_port = local_port;
        control.active = true;
        look_up(self, now, conn, ask.remote);
        self.transmit(now);
        Ok(())
    }

    /// Sends some of the questions whose way has been found.
    pub(super) fn look_ups(&mut self, now: Instant) {
        for _ in 0..VISITS.min(self.connections.cm.resolving()) {
            let Some((conn, remote)) = self.connections.cm.sidr_next() else { return };
            look_up(self, now, conn, remote);
        }
    }

    /// The peer answered a question.
    pub(crate) fn found(&mut self, reply: &SidrReply) {
        let conn = reply.conn;
        let Owner::LookUp(ep, _) = self.connections.owner(&self.objects, conn) else {
            return;
        };
        self.connections.cm.sidr_keep(reply);
        self.connections.keep_answer(&mut self.objects, ep, Some(conn));
        let found = self.connections.address(reply);
        let Ok(control) = self.objects.eps.live_mut(ep) else { return };
        let event = match found {
            Ok(destination) => {
                control.phase = Phase::Found(destination);
                Event::UdEstablished(ep, LookUp(conn.comm_id()))
            }
            Err(reason) => {
                control.phase = Phase::None;
                control.refusal = Some(reason);
                Event::UdReject(ep, LookUp(conn.comm_id()))
            }
        };
        let evd = control.connect_evd;
        if found.is_ok() {
            self.counters.count(IaCounter::CmAhResolved);
        }
        self.events.notify(evd, event);
        self.events.worked = true;
    }

    /// A question has ended without an answer.
    pub(super) fn unanswered(&mut self, ep: Ep) {
        let evd = self.objects.eps.live(ep).ok().and_then(|control| control.connect_evd);
        self.events.notify(evd, Event::UdError(ep));
    }

    /// A peer asks which queue pair takes datagrams for a service point.
    pub(super) fn looked_up(&mut self, now: Instant, request: &Request) {
        let port = request.service.udp_port();
        let listener = port.and_then(|port| self.objects.listener(port));
        let presented = listener.map_or(Err(Reason::INVALID_SERVICE_ID), |listener| {
            self.present_look_up(listener, request, Some(request.conn))
        });
        self.presented(now, request, presented);
    }

    /// Brings a look-up to a service point, or says why that is not to be. The private data is the
    /// caller's to add.
    pub(crate) fn present_look_up(
        &mut self,
        listener: Listener,
        request: &Request,
        conn: Option<ConnId>,
    ) -> Result<Cr, Reason> {
        let psp = self.objects.for_look_ups(listener)?;
        let control = self.objects.psps.live(psp).map_err(|_| Reason::INVALID_SERVICE_ID)?;
        let (evd, conn_qual) = (control.evd, control.port.into());
        if !self.events.has_room(evd) {
            return Err(Reason::NO_RESOURCES);
        }
        let control = CrControl {
            conn,
            request: *request,
            private: RequestData::new(),
            asker: None,
            local_ep: None,
            provided: false,
            listener,
        };
        let cr = self.objects.crs.insert(control).map(Cr);
        let cr = cr.ok_or(Reason::NO_RESOURCES)?;
        if let Some(conn) = conn {
            self.connections.own(conn, Owner::Cr(cr));
        }
        let event = Event::UdConnectionRequest { psp, cr, conn_qual };
        self.events.notify(Some(evd), event);
        Ok(cr)
    }

    /// Tells the peer the Endpoint's queue pair and Q_Key, and its connect Event Dispatcher that this
    /// was sent. The Endpoint stays as it is, and may be sent to many.
    pub(crate) fn accept_look_up(
        &mut self,
        now: Instant,
        cr: Cr,
        ep: Option<Ep>,
        private_data: &[u8],
    ) -> Result<(), Error> {
        let conn = self.objects.crs.live(cr)?.conn;
        let ep = ep.ok_or(EpControl::STALE)?;
        let control = self.objects.eps.live(ep)?;
        let (Service::Datagram { qkey }, Some(qp)) = (control.service, control.qp) else {
            return Err(EpControl::STALE.into());
        };
        let connect_evd = control.connect_evd;
        let state = self.objects.state_of(ep)?;
        if state != EpState::Connected {
            return Err(DatReturn::new(DatType::InvalidState, state.subtype()).into());
        }
        if private_data.len() > MAX_UD_REPLY_PRIVATE {
            return Err(Error::new(DatType::InvalidParameter, DatSubtype::InvalidArg3));
        }
        self.objects.crs.remove(cr.0);
        if let Some(conn) = conn {
            // The private data fits: an error says that the request has ended meanwhile.
            let _ = self.connections.cm.sidr_accept(now, conn, qp.number, qkey, private_data);
        }
        self.events.notify(connect_evd, Event::UdAccepted(ep));
        self.transmit(now);
        Ok(())
    }
}

/// Sends a question if its way has been found.
fn look_up<P: Provider>(ia: &mut Ia<'_, P>, now: Instant, conn: ConnId, remote: IpAddr) {
    match ia.hca.resolve(remote, now) {
        Poll::Pending => {}
        Poll::Ready(Ok(path)) => {
            let subnet = ia.hca.subnet_path(&path);
            ia.connections.cm.sidr_set_path(conn, &path, subnet.as_ref());
            ia.connections.cm.sidr_go(now, conn);
            ia.events.worked = true;
        }
        Poll::Ready(Err(_)) => {
            ia.connections.cm.sidr_end(conn);
            if let Owner::LookUp(ep, _) = ia.connections.owner(&ia.objects, conn) {
                ia.unanswered(ep);
            }
            ia.events.worked = true;
        }
    }
}
