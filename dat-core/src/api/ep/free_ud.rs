//! dat_ib_ud_ah_free and dat_ib_ud_cm_free: giving back what a connection of datagrams leaves with
//! the consumer.
//!
//! The first is a check here, and nothing to undo: an address handle is a value. Of the exchange
//! that found it the connection manager keeps the answer.

use crate::engine::Ia;
use crate::provider::{Destination, Provider};
use crate::types::dat_return::{DatSubtype, DatType, Error};
use crate::types::event::LookUp;
use crate::types::handle::Ep;

impl<P: Provider> Ia<'_, P> {
    /// Gives an address handle back, which dies with it.
    ///
    /// `MODEL_NOT_SUPPORTED` for an Endpoint of connections; `INVALID_STATE` while requests are
    /// outstanding, any of which may use it.
    #[doc(alias = "dat_ib_ud_ah_free")]
    pub fn ud_ah_free(&mut self, ep: Ep, _address: Destination) -> Result<(), Error> {
        self.objects.of_datagrams(ep)?;
        if self.ep_get_status(ep)?.request_idle {
            Ok(())
        } else {
            let connected = DatSubtype::InvalidStateEpConnected;
            Err(Error::new(DatType::InvalidState, connected))
        }
    }

    /// Gives back what is left of the exchange that found an address: its answer.
    /// `MODEL_NOT_SUPPORTED` for an Endpoint of connections; no effect if that answer is not
    /// there any more.
    #[doc(alias = "dat_ib_ud_cm_free")]
    pub fn ud_cm_free(&mut self, ep: Ep, of: LookUp) -> Result<(), Error> {
        self.objects.of_datagrams(ep)?;
        if self.ep_ud_answer(ep, of).is_ok() {
            if let Some(conn) = self.connections.cm.conn_of(of.0) {
                self.connections.cm.sidr_end(conn);
            }
        }
        Ok(())
    }
}
