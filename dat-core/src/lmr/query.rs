//! dat_lmr_query(3).

use crate::Ia;
use crate::dat_return::Error;
use crate::flags::MemPriv;
use crate::handle::{Lmr, Pz};
use crate::provider::{Provider, Region};

/// `DAT_LMR_PARAM`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LmrParam {
    /// The LMR.
    pub lmr: Lmr,
    /// Its Protection Zone.
    pub pz: Pz,
    /// What may be done through it.
    pub privileges: MemPriv,
    /// What local triplets carry.
    pub lmr_context: u32,
    /// What a peer's triplets carry; 0 without a remote privilege.
    pub rmr_context: u32,
    /// The registered range.
    pub region: Region,
}

impl<P: Provider> Ia<'_, P> {
    /// What the LMR is.
    #[doc(alias = "dat_lmr_query")]
    pub fn lmr_query(&self, lmr: Lmr) -> Result<LmrParam, Error> {
        let control = self.lmr(lmr)?;
        let remote = control
            .privileges
            .intersects(MemPriv::REMOTE | MemPriv::REMOTE_ATOMIC);
        Ok(LmrParam {
            lmr,
            pz: control.pz,
            privileges: control.privileges,
            lmr_context: control.context,
            rmr_context: if remote { control.mr.rkey } else { 0 },
            region: control.region,
        })
    }
}
