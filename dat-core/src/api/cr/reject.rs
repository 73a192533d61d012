//! dat_cr_reject(3).

use crate::cm::wire::reason::Reason;
use crate::engine::Ia;
use crate::objects::cr::MAX_UD_REPLY_PRIVATE;
use crate::objects::ep::PROVIDER_CONTROL;
use crate::provider::Provider;
use crate::types::counters::IaCounter;
use crate::types::dat_return::{DatSubtype, DatType, Error};
use crate::types::ep_state::EpOp;
use crate::types::handle::Cr;
use crate::types::time::Instant;

/// Bytes of private data in `cr_reject`: the field of the REJ.
pub const MAX_REJECT_PRIVATE: usize = 148;

impl<P: Provider> Ia<'_, P> {
    /// Turns a request away; the peer sees `PeerRejected`. The handle dies, and with it an Endpoint
    /// made for the request.
    ///
    /// `INVALID_HANDLE`, `INVALID_PARAMETER` for more than [`MAX_REJECT_PRIVATE`] bytes
    /// ([`MAX_UD_REPLY_PRIVATE`] to a request for datagrams, whose peer sees `UdReject`);
    /// `INVALID_STATE` while a half of such an Endpoint is out, as for
    /// [`Ia::ep_free`](Self::ep_free).
    #[doc(alias = "dat_cr_reject")]
    pub fn cr_reject(&mut self, now: Instant, cr: Cr, private_data: &[u8]) -> Result<(), Error> {
        let control = self.objects.crs.live(cr)?;
        let most = if control.looks_up() { MAX_UD_REPLY_PRIVATE } else { MAX_REJECT_PRIVATE };
        if private_data.len() > most {
            return Err(Error::new(DatType::InvalidParameter, DatSubtype::InvalidArg2));
        }
        let conn = control.conn;
        self.cr_leaves(now, cr)?;
        self.counters.count(IaCounter::SpCrRejected);
        if let Some(conn) = conn {
            if self.connections.cm.reject(now, conn, Reason::CONSUMER, &[], private_data).is_err() {
                self.connections.cm.abort(now, conn);
            }
        }
        self.transmit(now);
        Ok(())
    }

    /// Refuses while a half of an Endpoint that would go is out.
    pub(super) fn cr_may_leave(&self, cr: Cr) -> Result<(), Error> {
        let control = self.objects.crs.live(cr)?;
        match control.local_ep.filter(|_| control.provided) {
            Some(ep)
                if self.objects.poster_is_out(&self.data, ep)
                    || !self.reapers_idle(ep.0.index()) =>
            {
                Err(PROVIDER_CONTROL.into())
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Ends a request on this side: its Endpoint is UNCONNECTED again, or goes if it was made for
    /// it. Its connection is the caller's. On an error nothing has changed.
    pub(super) fn cr_leaves(&mut self, now: Instant, cr: Cr) -> Result<(), Error> {
        self.cr_may_leave(cr)?;
        let control = self.objects.crs.live(cr)?;
        let (local_ep, provided) = (control.local_ep, control.provided);
        self.objects.crs.remove(cr.0);
        let Some(ep) = local_ep else { return Ok(()) };
        if provided {
            return self.ep_remove(now, ep);
        }
        self.apply(ep, EpOp::Reject);
        if let Ok(control) = self.objects.eps.live_mut(ep) {
            (control.remote, control.remote_port, control.local_port) = (None, 0, 0);
        }
        Ok(())
    }
}
