//! dat_cr_reject(3).

use super::MAX_UD_REPLY_PRIVATE;
use crate::Ia;
use crate::cm::Reason;
use crate::dat_return::{DatSubtype, DatType, Error};
use crate::ep::{EpOp, Outcome, PROVIDER_CONTROL};
use crate::handle::Cr;
use crate::provider::Provider;
use crate::time::Instant;

/// Bytes of private data in `cr_reject`: the field of the REJ.
pub const MAX_REJECT_PRIVATE: usize = 148;

impl<P: Provider> Ia<'_, P> {
    /// Turns a request away; the peer sees `PeerRejected`. The handle dies, and with it an Endpoint made for the request.
    ///
    /// `INVALID_HANDLE`, `INVALID_PARAMETER` for more than [`MAX_REJECT_PRIVATE`] bytes ([`MAX_UD_REPLY_PRIVATE`] to a request
    /// for datagrams, whose peer sees `UdReject`); `INVALID_STATE` while a half of
    /// such an Endpoint is out, as for [`Ia::ep_free`](Self::ep_free).
    #[doc(alias = "dat_cr_reject")]
    pub fn cr_reject(&mut self, now: Instant, cr: Cr, private_data: &[u8]) -> Result<(), Error> {
        let control = self.cr(cr)?;
        let most = if control.looks_up() {
            MAX_UD_REPLY_PRIVATE
        } else {
            MAX_REJECT_PRIVATE
        };
        if private_data.len() > most {
            return Err(Error::new(
                DatType::InvalidParameter,
                DatSubtype::InvalidArg2,
            ));
        }
        let (conn, local_ep) = (control.conn, control.local_ep);
        if let Some(ep) = local_ep
            && (self.poster_is_out(ep) || !self.reapers_quiet(ep.0.index()))
        {
            return Err(PROVIDER_CONTROL.into());
        }
        self.crs.remove(cr.0);
        if let Some(conn) = conn {
            self.disown(conn);
            if self
                .cm
                .reject(now, conn, Reason::CONSUMER, &[], private_data)
                .is_err()
            {
                self.cm.abort(now, conn);
            }
        }
        if let Some(ep) = local_ep {
            if let Ok(Outcome::Gone) = self.admit(ep, EpOp::Reject) {
                self.ep_remove(now, ep)?;
            } else {
                self.apply(ep, EpOp::Reject);
            }
        }
        self.transmit(now);
        Ok(())
    }
}
