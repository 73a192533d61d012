//! dat_rsp_create(3).

use crate::engine::Ia;
use crate::engine::establish::port;
use crate::objects::rsp::RspControl;
use crate::objects::streams::Stream;
use crate::provider::Provider;
use crate::types::dat_return::{DatSubtype, DatType, Error};
use crate::types::ep_state::{EpOp, EpState};
use crate::types::flags::EvdFlags;
use crate::types::handle::{Ep, Evd, Rsp};

impl<P: Provider> Ia<'_, P> {
    /// Listens on `conn_qual` for one request, which only `ep` can take; it is RESERVED until then.
    /// Without an Endpoint one is made, unconfigured: [`Ia::rsp_query`] names it.
    ///
    /// `INVALID_HANDLE` (`EVD_CR`, `EP`); `INVALID_PARAMETER` for a qualifier of 0 or above 65535;
    /// `CONN_QUAL_IN_USE`, by whatever kind of service point; `INVALID_STATE` unless the
    /// Endpoint is UNCONNECTED; `INSUFFICIENT_RESOURCES`.
    #[doc(alias = "dat_rsp_create")]
    pub fn rsp_create(&mut self, conn_qual: u64, ep: Option<Ep>, evd: Evd) -> Result<Rsp, Error> {
        self.events.evd_for(evd, EvdFlags::CR, DatSubtype::InvalidHandleEvdCr)?;
        if let Some(ep) = ep {
            self.objects.eps.live(ep)?;
        }
        let port = port(conn_qual)
            .ok_or(Error::new(DatType::InvalidParameter, DatSubtype::InvalidArg2))?;
        if self.objects.listener(port).is_some() {
            return Err(Error::new(DatType::ConnQualInUse, DatSubtype::None));
        }
        if let Some(ep) = ep {
            self.objects.admit(ep, EpOp::RspCreate)?;
        }
        let full = Error::new(DatType::InsufficientResources, DatSubtype::ResourceMemory);
        if self.objects.rsps.is_full() {
            return Err(full);
        }
        let provided = ep.is_none();
        let ep = match ep {
            Some(ep) => {
                self.apply(ep, EpOp::RspCreate);
                ep
            }
            None => self.provided_ep(EpState::UnconfiguredReserved, None)?,
        };
        let control = RspControl { port, evd, ep, provided, used: false };
        let rsp = self.objects.rsps.insert(control).map(Rsp).ok_or(full)?;
        self.objects.rsps.file(rsp.0, Some(port.into()));
        self.events.attach(&[(Some(evd), Stream::Connection)]);
        Ok(rsp)
    }
}
