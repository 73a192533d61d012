//! dat_psp_query(3).

use crate::engine::Ia;
use crate::provider::Provider;
use crate::types::dat_return::Error;
use crate::types::flags::PspFlag;
use crate::types::handle::{Evd, Psp};

/// `DAT_PSP_PARAM`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PspParam {
    /// What it listens on.
    pub conn_qual: u64,
    /// Where requests arrive.
    pub evd: Evd,
    /// Who makes the Endpoint of a request.
    pub flag: PspFlag,
}

impl<P: Provider> Ia<'_, P> {
    /// What the PSP is.
    #[doc(alias = "dat_psp_query")]
    pub fn psp_query(&self, psp: Psp) -> Result<PspParam, Error> {
        let control = self.objects.psps.live(psp)?;
        Ok(PspParam { conn_qual: u64::from(control.port), evd: control.evd, flag: control.flag })
    }
}
