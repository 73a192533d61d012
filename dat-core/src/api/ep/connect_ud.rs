//! dat_ep_connect(3) of an Endpoint for datagrams: `DAT_IB_UD_CONNECTION_EVENT_ESTABLISHED` of the
//! InfiniBand extension.
//!
//! Nothing is connected: the service point is asked which queue pair serves it and with which
//! Q_Key, and from then on datagrams can be sent there. The Endpoint stays CONNECTED all the time,
//! to everybody, and may ask for many service points at once. Each question has a slot of the
//! connection manager, in which its deadline runs and in which its answer is kept; the adapter's
//! table of owners has the way there.

use crate::cm::wire::reason::Reason;
use crate::engine::Ia;
use crate::engine::connections::Owner;
use crate::objects::ep::{NOT_READY, Phase};
use crate::provider::{Destination, Provider};
use crate::types::dat_return::Error;
use crate::types::event::LookUp;
use crate::types::handle::Ep;

/// The answer to one question of an Endpoint for datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdAnswer<'a> {
    /// Where datagrams can be sent to, or why the service point refused.
    pub address: Result<Destination, Reason>,
    /// What came with it: the message's whole field, padded with zeros.
    pub private_data: &'a [u8],
}

impl<P: Provider> Ia<'_, P> {
    /// The answer to one question: what `UdEstablished` or `UdReject` is about. It is kept until
    /// [`Ia::ud_cm_free`], a reset or a free of the Endpoint; when the connection manager has
    /// no other place left for a connection, an answer makes way. An address is valid for as
    /// long as that queue pair is there.
    ///
    /// `INVALID_STATE`/`EP_NOTREADY` if it is not there any more.
    pub fn ep_ud_answer(&self, ep: Ep, of: LookUp) -> Result<UdAnswer<'_>, Error> {
        self.objects.eps.live(ep)?;
        let cm = &self.connections.cm;
        let Some(reply) = cm.conn_of(of.0).and_then(|conn| cm.sidr_kept(conn)) else {
            return Err(NOT_READY.into());
        };
        let Owner::LookUp(owner, _) = self.connections.owner(&self.objects, reply.conn) else {
            return Err(NOT_READY.into());
        };
        if owner != ep {
            return Err(NOT_READY.into());
        }
        Ok(UdAnswer {
            address: self.connections.address(&reply),
            private_data: cm.private_data(reply.conn),
        })
    }

    /// What an Endpoint for datagrams found last, for those that ask for one service point after
    /// another. Valid until the Endpoint connects again, is reset or freed.
    ///
    /// `INVALID_STATE`/`EP_NOTREADY` if it has found nothing.
    pub fn ep_ud_address(&self, ep: Ep) -> Result<Destination, Error> {
        match self.objects.eps.live(ep)?.phase {
            Phase::Found(destination) => Ok(destination),
            Phase::None
            | Phase::Resolving
            | Phase::Direct(_)
            | Phase::Replied(_)
            | Phase::Accepting { .. }
            | Phase::Accepted(_) => Err(NOT_READY.into()),
        }
    }
}
