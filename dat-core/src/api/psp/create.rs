//! dat_psp_create(3).

use crate::engine::Ia;
use crate::engine::establish::port;
use crate::objects::psp::PspControl;
use crate::objects::streams::Stream;
use crate::provider::Provider;
use crate::types::dat_return::{DatSubtype, DatType, Error};
use crate::types::flags::{EvdFlags, PspFlag};
use crate::types::handle::{Evd, Psp};

impl<P: Provider> Ia<'_, P> {
    /// Listens on `conn_qual`, a TCP-style port. Requests arrive on `evd`; when that is full they
    /// are turned away.
    ///
    /// With [`PspFlag::Provider`] each request comes with an Endpoint of its own,
    /// UNCONFIGURED_TENTATIVE until [`Ia::ep_modify`](Self::ep_modify) has given it zone and
    /// Event Dispatchers.
    ///
    /// `INVALID_HANDLE`/`EVD_CR`; `INVALID_PARAMETER` for a qualifier of 0 or above 65535;
    /// `CONN_QUAL_IN_USE`, by whatever kind of service point;
    /// `INSUFFICIENT_RESOURCES`.
    #[doc(alias = "dat_psp_create")]
    pub fn psp_create(&mut self, conn_qual: u64, evd: Evd, flag: PspFlag) -> Result<Psp, Error> {
        self.events.evd_for(evd, EvdFlags::CR, DatSubtype::InvalidHandleEvdCr)?;
        let port = port(conn_qual)
            .ok_or(Error::new(DatType::InvalidParameter, DatSubtype::InvalidArg2))?;
        if self.objects.listener(port).is_some() {
            return Err(Error::new(DatType::ConnQualInUse, DatSubtype::None));
        }
        let psp = self
            .objects
            .psps
            .insert(PspControl { port, evd, flag })
            .map(Psp)
            .ok_or(Error::new(DatType::InsufficientResources, DatSubtype::ResourceMemory))?;
        self.objects.psps.file(psp.0, Some(port.into()));
        self.events.attach(&[(Some(evd), Stream::Connection)]);
        Ok(psp)
    }
}
