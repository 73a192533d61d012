//! dat_csp_query (2.0).

use core::net::SocketAddr;

use crate::engine::Ia;
use crate::provider::Provider;
use crate::types::dat_return::Error;
use crate::types::flags::Comm;
use crate::types::handle::{Csp, Evd};

/// `DAT_CSP_PARAM`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CspParam {
    /// How peers speak.
    pub comm: Comm,
    /// What it listens on.
    pub address: SocketAddr,
    /// Where requests arrive.
    pub evd: Evd,
}

impl<P: Provider> Ia<'_, P> {
    /// What the CSP is.
    #[doc(alias = "dat_csp_query")]
    pub fn csp_query(&self, csp: Csp) -> Result<CspParam, Error> {
        let control = self.objects.csps.live(csp)?;
        Ok(CspParam { comm: control.comm, address: control.address, evd: control.evd })
    }
}
