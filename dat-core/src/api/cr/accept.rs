//! dat_cr_accept(3).

use crate::engine::Ia;
use crate::engine::connections::Owner;
use crate::objects::ep::{NOT_READY, Phase};
use crate::provider::Provider;
use crate::types::dat_return::{DatSubtype, DatType, Error};
use crate::types::ep_state::EpOp;
use crate::types::handle::{Cr, Ep};
use crate::types::time::Instant;

/// Bytes of private data in `cr_accept`: the field of the REP.
pub const MAX_ACCEPT_PRIVATE: usize = 196;

impl<P: Provider> Ia<'_, P> {
    /// Accepts a request on an UNCONNECTED Endpoint, or on the one made for it (`None`), which must
    /// be configured by then.
    ///
    /// The next [`Ia::advance`] answers the peer, for all requests accepted before it together. The
    /// outcome is an event: `Established`, or `AcceptCompletionError` if the peer has gone or
    /// the connection does not come about. The request is used up. Errors leave everything as
    /// it was: `INVALID_HANDLE` (`EP` also if one is named that must not be, or none that
    /// must), `INVALID_STATE` (also `EP_NOTREADY`), `INVALID_PARAMETER` for more than
    /// [`MAX_ACCEPT_PRIVATE`] bytes.
    ///
    /// A request of [`Event::UdConnectionRequest`](crate::Event::UdConnectionRequest) is accepted
    /// with a CONNECTED Endpoint for datagrams, which stays as it is and may be given to many:
    /// the peer gets its queue pair and Q_Key, and no event follows. Private data: at most
    /// [`MAX_UD_REPLY_PRIVATE`](crate::MAX_UD_REPLY_PRIVATE) bytes.
    #[doc(alias = "dat_cr_accept")]
    pub fn cr_accept(
        &mut self,
        now: Instant,
        cr: Cr,
        ep: Option<Ep>,
        private_data: &[u8],
    ) -> Result<(), Error> {
        let control = self.objects.crs.live(cr)?;
        if control.looks_up() {
            return self.accept_look_up(now, cr, ep, private_data);
        }
        let own = control.local_ep;
        let wrong = Error::new(DatType::InvalidHandle, DatSubtype::InvalidHandleEp);
        let (ep, op) = match (ep, own) {
            (Some(ep), None) => (ep, EpOp::AcceptNamed),
            (None, Some(ep)) => (ep, EpOp::AcceptOwn),
            (Some(_), Some(_)) | (None, None) => return Err(wrong),
        };
        self.objects.admit(ep, op)?;
        if private_data.len() > MAX_ACCEPT_PRIVATE {
            return Err(Error::new(DatType::InvalidParameter, DatSubtype::InvalidArg3));
        }
        let control = self.objects.eps.live_mut(ep)?;
        if control.qp.is_none() || control.connect_evd.is_none() {
            return Err(NOT_READY.into());
        }
        self.objects.reserve_events(ep)?;
        // Not by way of `self.cr`: both tables at once.
        let (Some(request), Some(control)) =
            (self.objects.crs.get(cr.0), self.objects.eps.get_mut(ep.0))
        else {
            return Err(wrong);
        };
        let (conn, request) = (request.conn, &request.request);
        control.note(request);
        control.active = false;
        control.conn = conn;
        control.phase = Phase::Accepting { terms: request.terms, flow_label: request.flow_label };
        self.objects.crs.remove(cr.0);
        self.apply(ep, op);
        match conn {
            Some(conn) => {
                self.connections.own(conn, Owner::Ep(ep));
                // A request that has ended meanwhile is not answered: its end follows.
                let _ = self.connections.cm.prepare_reply(conn, private_data);
                self.objects.watch(ep);
            }
            // The peer had gone before it was accepted.
            None => self.apply(ep, EpOp::PeerDisconnected),
        }
        self.transmit(now);
        Ok(())
    }
}
