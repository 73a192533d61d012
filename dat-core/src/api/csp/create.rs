//! dat_csp_create (2.0).

use core::net::SocketAddr;

use crate::engine::Ia;
use crate::objects::csp::CspControl;
use crate::objects::streams::Stream;
use crate::provider::{Provider, canonical};
use crate::types::dat_return::{DatSubtype, DatType, Error};
use crate::types::flags::{Comm, EvdFlags};
use crate::types::handle::{Csp, Evd};

impl<P: Provider> Ia<'_, P> {
    /// Listens on `address`, that of this adapter or the unspecified one, for peers that speak
    /// `comm`. The consumer passes an Endpoint to `cr_accept`.
    ///
    /// `COMM_NOT_SUPPORTED` unless it is TCP of the adapter's address family; `INVALID_ADDRESS` for
    /// another address, or port 0; `PORT_IN_USE`, by whatever kind of service point;
    /// `INVALID_HANDLE`/`EVD_CR`; `INSUFFICIENT_RESOURCES`.
    #[doc(alias = "dat_csp_create")]
    pub fn csp_create(&mut self, comm: Comm, address: SocketAddr, evd: Evd) -> Result<Csp, Error> {
        let own = self.net.addr;
        let (tcp, protocol) = (Comm::tcp(own.is_ipv6()), comm.protocol);
        let spoken = Comm { protocol: if protocol == 0 { Comm::TCP } else { protocol }, ..comm };
        if spoken != tcp {
            return Err(Error::new(DatType::CommNotSupported, DatSubtype::None));
        }
        let host = canonical(address.ip());
        if host != own && !host.is_unspecified() || address.port() == 0 {
            return Err(Error::new(DatType::InvalidAddress, DatSubtype::AddressMalformed));
        }
        self.events.evd_for(evd, EvdFlags::CR, DatSubtype::InvalidHandleEvdCr)?;
        if self.objects.listener(address.port()).is_some() {
            return Err(Error::new(DatType::PortInUse, DatSubtype::None));
        }
        let control = CspControl { comm, address, evd };
        let csp = self
            .objects
            .csps
            .insert(control)
            .map(Csp)
            .ok_or(Error::new(DatType::InsufficientResources, DatSubtype::ResourceMemory))?;
        self.objects.csps.file(csp.0, Some(address.port().into()));
        self.events.attach(&[(Some(evd), Stream::Connection)]);
        Ok(csp)
    }
}
