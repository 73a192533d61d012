//! dat_lmr_allocate, of kDAPL.

use crate::engine::Ia;
use crate::engine::control::lmr::Wanted;
use crate::objects::lmr::MemType;
use crate::provider::{Provider, Region};
use crate::types::dat_return::{DatSubtype, DatType, Error};
use crate::types::flags::{MemPriv, VaType};
use crate::types::handle::{Lmr, Pz};

impl<P: Provider> Ia<'_, P> {
    /// Makes an LMR that opens nothing until [`Ia::lmr_fmr`] says what: up to `pages` pages at a
    /// time.
    ///
    /// `INVALID_HANDLE`, `INVALID_PARAMETER` for no pages, `INSUFFICIENT_RESOURCES`,
    /// `MODEL_NOT_SUPPORTED` if the adapter has no such requests. The scope is the Protection
    /// Zone.
    #[doc(alias = "dat_lmr_allocate")]
    pub fn lmr_allocate(&mut self, pz: Pz, pages: u32) -> Result<Lmr, Error> {
        self.objects.pzs.live(pz)?;
        if pages == 0 {
            return Err(Error::new(DatType::InvalidParameter, DatSubtype::InvalidArg3));
        }
        let wanted = Wanted {
            pz,
            mem_type: MemType::Physical,
            va_type: VaType::Va,
            region: Region::default(),
            privileges: MemPriv::empty(),
            pages,
        };
        let made = self.lmr_enter(&wanted, |provider, pd| provider.mr_allocate(pd, pages))?;
        Ok(made.lmr)
    }
}
