//! dat_rsp_query(3).

use crate::engine::Ia;
use crate::provider::Provider;
use crate::types::dat_return::Error;
use crate::types::handle::{Ep, Evd, Rsp};

/// `DAT_RSP_PARAM`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RspParam {
    /// What it listens on.
    pub conn_qual: u64,
    /// Where the request arrives.
    pub evd: Evd,
    /// Whose it is.
    pub ep: Ep,
}

impl<P: Provider> Ia<'_, P> {
    /// What the RSP is.
    #[doc(alias = "dat_rsp_query")]
    pub fn rsp_query(&self, rsp: Rsp) -> Result<RspParam, Error> {
        let control = self.objects.rsps.live(rsp)?;
        Ok(RspParam { conn_qual: u64::from(control.port), evd: control.evd, ep: control.ep })
    }
}
