//! dat_ep_connect(3) of an Endpoint for datagrams: `DAT_IB_UD_CONNECTION_EVENT_ESTABLISHED` of the
//! InfiniBand extension.
//!
//! Nothing is connected: the service point is asked which queue pair serves it and with which
//! Q_Key, and from then on datagrams can be sent there. The Endpoint stays CONNECTED all the time,
//! to everybody, and may ask for many service points at once. Each question has a slot of the
//! connection manager, in which its deadline runs and in which its answer is kept; the adapter's
//! table of owners has the way there.

use crate::cm::params::ConnId;
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
        let kept = self.connections.cm.sidr_kept(ConnId::of(of.0));
        let (Some(reply), Owner::LookUp(owner, _)) =
            (kept, self.connections.owner(&self.objects, ConnId::of(of.0)))
        else {
            return Err(NOT_READY.into());
        };
        if owner != ep {
            return Err(NOT_READY.into());
        }
        Ok(UdAnswer {
            address: self.connections.address(&reply),
            private_data: self.connections.cm.private_data(ConnId::of(of.0)),
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
