//! dat_cr_accept(3) of a `DAT_IB_UD_CONNECTION_REQUEST_EVENT`: the InfiniBand extension.

use super::{CrControl, RequestData};
use crate::cm::{ConnId, Reason, Request};
use crate::dat_return::{DatReturn, DatSubtype, DatType, Error};
use crate::ep::{EpState, STALE};
use crate::event::Event;
use crate::handle::{Cr, Ep};
use crate::ia::{Ia, Owner};
use crate::provider::{Provider, Service};
use crate::psp::Listener;
use crate::time::Instant;

/// Bytes of private data in `cr_accept` and `cr_reject` of a request for datagrams: the field of
/// the SIDR_REP.
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
        let listener = port.and_then(|port| self.objects.listener(port));
        let presented = listener.map_or(Err(Reason::INVALID_SERVICE_ID), |listener| {
            self.present_look_up(listener, request, Some(request.conn))
        });
        self.presented(now, request, presented);
    }

    /// Brings a look-up to a service point, or says why that is not to be. The private data is the
    /// caller's to add.
    pub(super) fn present_look_up(
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

    /// Tells the peer the Endpoint's queue pair and Q_Key, and its connect Event Dispatcher that it
    /// was told. The Endpoint stays as it is, and may be told to many.
    pub(crate) fn accept_look_up(
        &mut self,
        now: Instant,
        cr: Cr,
        ep: Option<Ep>,
        private_data: &[u8],
    ) -> Result<(), Error> {
        let conn = self.objects.crs.live(cr)?.conn;
        let ep = ep.ok_or(STALE)?;
        let control = self.objects.eps.live(ep)?;
        let (Service::Datagram { qkey }, Some(qp)) = (control.service, control.qp) else {
            return Err(STALE.into());
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
            let answered =
                self.connections.cm.sidr_accept(now, conn, qp.number, qkey, private_data);
            if answered.is_err() {
                self.connections.cm.abort(now, conn);
            }
        }
        self.events.notify(connect_evd, Event::UdAccepted(ep));
        self.transmit(now);
        Ok(())
    }
}
