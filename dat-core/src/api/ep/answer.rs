//! What is known of how the connection of an Endpoint began and ended.

use crate::cm::wire::reason::Reason;
use crate::engine::Ia;
use crate::provider::Provider;
use crate::types::dat_return::Error;
use crate::types::fault::Fault;
use crate::types::handle::Ep;

impl<P: Provider> Ia<'_, P> {
    /// Why the connection broke or was not made, in the device's own words. Valid until the Endpoint
    /// is reset or freed.
    pub fn ep_cause(&self, ep: Ep) -> Result<Option<Fault>, Error> {
        Ok(self.objects.eps.live(ep)?.cause)
    }

    /// The reason in the rejection that ended an attempt to connect: what distinguishes, behind
    /// `NonPeerRejected`, a service that nobody listens on from a stale connection or an MTU
    /// that the peer does not have. Valid until the Endpoint is reset or freed.
    pub fn ep_reject_reason(&self, ep: Ep) -> Result<Option<Reason>, Error> {
        Ok(self.objects.eps.live(ep)?.refusal)
    }

    /// Private data that came with the reply or the rejection. Valid until the Endpoint is reset,
    /// freed or connected anew.
    ///
    /// It is the message's whole field, padded with zeros: the wire does not carry its length.
    pub fn ep_private_data(&self, ep: Ep) -> Result<&[u8], Error> {
        let answered = self.objects.eps.live(ep)?.answered;
        Ok(answered.map_or(&[], |conn| self.connections.cm.private_data(conn)))
    }
}
