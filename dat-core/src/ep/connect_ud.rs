//! dat_ep_connect(3) of an Endpoint for datagrams: `DAT_IB_UD_CONNECTION_EVENT_ESTABLISHED` of the
//! InfiniBand extension.
//!
//! Nothing is connected: the service point is asked which queue pair serves it and with which
//! Q_Key, and from then on datagrams can be sent there. The Endpoint stays CONNECTED all the time,
//! to everybody, and may ask for many service points at once. Each question has a slot of the
//! connection manager, in which its deadline runs and in which its answer is kept; the adapter's
//! table of owners has the way there.

use super::{NOT_READY, Phase};
use crate::cm::{ConnId, Reason};
use crate::dat_return::Error;
use crate::handle::Ep;
use crate::ia::{Ia, Owner};
use crate::provider::{Destination, Provider};

/// Bytes of private data in `ep_connect` of an Endpoint for datagrams: what the SIDR_REQ has
/// besides the addresses.
pub const MAX_CONNECT_UD_PRIVATE: usize = 180;

/// Names one question of an Endpoint for datagrams, in the event of its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LookUp(pub(crate) ConnId);

impl LookUp {
    /// As an event carries it, and whoever keeps it as a word.
    #[must_use]
    pub const fn raw(self) -> u64 {
        self.0.comm_id() as u64
    }

    /// Of that word. One that no event carried names nothing.
    #[must_use]
    pub const fn from_raw(raw: u64) -> Self {
        Self(ConnId::of((raw & 0xffff_ffff) as u32))
    }
}

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
        let kept = self.connections.cm.sidr_kept(of.0);
        let (Some(reply), Owner::LookUp(owner, _)) =
            (kept, self.connections.owner(&self.objects, of.0))
        else {
            return Err(NOT_READY.into());
        };
        if owner != ep {
            return Err(NOT_READY.into());
        }
        Ok(UdAnswer {
            address: self.connections.address(&reply),
            private_data: self.connections.cm.private_data(of.0),
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
