//! dat_cr_accept(3) of a `DAT_IB_UD_CONNECTION_REQUEST_EVENT`: the InfiniBand extension.

use super::{CrControl, RequestData};
use crate::Ia;
use crate::cm::{Reason, Request};
use crate::dat_return::{DatReturn, DatSubtype, DatType, Error};
use crate::ep::{EpState, STALE};
use crate::event::Event;
use crate::flags::PspFlag;
use crate::handle::{Cr, Ep};
use crate::ia::Owner;
use crate::provider::{Provider, Service};
use crate::psp::Listener;
use crate::time::Instant;

/// Bytes of private data in `cr_accept` and `cr_reject` of a request for datagrams: the field of the SIDR_REP.
pub const MAX_UD_REPLY_PRIVATE: usize = 136;

impl CrControl {
    /// It asks for the queue pair of a service, and for no connection.
    pub(super) const fn looks_up(&self) -> bool {
        self.request.service.udp_port().is_some()
    }
}

impl<P: Provider> Ia<'_, P> {
    /// A peer asks which queue pair takes datagrams for a service point.
    pub(crate) fn looked_up(&mut self, now: Instant, request: &Request) {
        let port = request.service.udp_port();
        let listener = match port.and_then(|port| self.listener(port)) {
            Some(Listener::Psp(psp)) => self.psp(psp).ok().map(|control| (psp, control)),
            // Reserved and common service points are for connections.
            Some(Listener::Rsp(_) | Listener::Csp(_)) | None => None,
        };
        let refusal = match &listener {
            None => Some(Reason::INVALID_SERVICE_ID),
            // The Endpoints that the provider makes are for connections.
            Some((_, it)) if it.flag == PspFlag::Provider => Some(Reason::NO_QP),
            Some((_, it)) if !self.has_room(it.evd) || self.crs.is_full() => {
                Some(Reason::NO_RESOURCES)
            }
            Some(_) => None,
        };
        let (Some((psp, listener)), None) = (listener, refusal) else {
            let reason = refusal.unwrap_or(Reason::NO_RESOURCES);
            if self.cm.reject(now, request.conn, reason, &[], &[]).is_err() {
                self.cm.abort(now, request.conn);
            }
            return;
        };
        let (evd, conn_qual) = (listener.evd, u64::from(listener.port));
        let private = self.cm.private_data(request.conn);
        let control = CrControl {
            conn: Some(request.conn),
            request: *request,
            private: RequestData::from_slice(private).unwrap_or_default(),
            local_ep: None,
            provided: false,
            listener: Listener::Psp(psp),
        };
        if let Some(cr) = self.crs.insert(control).map(Cr) {
            self.own(request.conn, Owner::Cr(cr));
            let event = Event::UdConnectionRequest { psp, cr, conn_qual };
            self.notify(Some(evd), event);
        }
    }

    /// Tells the peer the Endpoint's queue pair and Q_Key, and its connect Event Dispatcher that it was told. The Endpoint stays as
    /// it is, and may be told to many.
    pub(crate) fn accept_look_up(
        &mut self,
        now: Instant,
        cr: Cr,
        ep: Option<Ep>,
        private_data: &[u8],
    ) -> Result<(), Error> {
        let conn = self.cr(cr)?.conn;
        let ep = ep.ok_or(STALE)?;
        let control = self.ep(ep)?;
        let (Service::Datagram { qkey }, Some(qp)) = (control.service, control.qp) else {
            return Err(STALE.into());
        };
        let connect_evd = control.connect_evd;
        let state = self.state_of(ep)?;
        if state != EpState::Connected {
            return Err(DatReturn::new(DatType::InvalidState, state.subtype()).into());
        }
        if private_data.len() > MAX_UD_REPLY_PRIVATE {
            return Err(Error::new(
                DatType::InvalidParameter,
                DatSubtype::InvalidArg3,
            ));
        }
        self.crs.remove(cr.0);
        if let Some(conn) = conn {
            self.disown(conn);
            let answered = self
                .cm
                .sidr_accept(now, conn, qp.number, qkey, private_data);
            if answered.is_err() {
                self.cm.abort(now, conn);
            }
        }
        self.notify(connect_evd, Event::UdAccepted(ep));
        self.worked = true;
        self.transmit(now);
        Ok(())
    }
}
