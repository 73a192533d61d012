//! dat_cr_query(3).

use core::net::IpAddr;

use crate::engine::Ia;
use crate::objects::asker::UdAsker;
use crate::provider::Provider;
use crate::types::dat_return::Error;
use crate::types::handle::{Cr, Ep};

/// `DAT_CR_PARAM`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrParam<'a> {
    /// Who asks.
    pub remote: IpAddr,
    /// The peer's own port.
    pub remote_port: u16,
    /// What came with the request: the message's whole field, padded with zeros; of a look-up by
    /// this provider what its consumer gave.
    pub private_data: &'a [u8],
    /// It is no request for a connection, but for the queue pair of a service point for datagrams.
    pub looks_up: bool,
    /// Who looks up a service point for datagrams, and can be sent to ([`Ia::ud_address`]): `None`
    /// of a peer of another make, which does not say.
    pub asker: Option<UdAsker>,
    /// The Endpoint that it is for: of its RSP, or made by its PSP.
    pub local_ep: Option<Ep>,
}

impl<P: Provider> Ia<'_, P> {
    /// What the request is. Valid until it is accepted or rejected.
    #[doc(alias = "dat_cr_query")]
    pub fn cr_query(&self, cr: Cr) -> Result<CrParam<'_>, Error> {
        let control = self.objects.crs.live(cr)?;
        Ok(CrParam {
            remote: control.request.remote,
            remote_port: control.request.remote_port,
            private_data: &control.private,
            looks_up: control.looks_up(),
            asker: control.asker,
            local_ep: control.local_ep,
        })
    }
}
