//! dat_lmr_kcreate, of kDAPL.

use crate::api::lmr::query::LmrParam;
use crate::engine::Ia;
use crate::engine::control::lmr::Wanted;
use crate::objects::lmr::{MemType, PhysicalPages};
use crate::provider::{Backing, Provider};
use crate::types::dat_return::{DatSubtype, DatType, Error};
use crate::types::flags::{MemPriv, VaType};
use crate::types::handle::Pz;

impl<P: Provider> Ia<'_, P> {
    /// Registers pages by their device addresses. Triplets name the first byte by the address of
    /// the first page and the others as if all followed it, or by 0 if the LMR is zero-based.
    ///
    /// Errors as for [`Ia::lmr_create_from`]; `INVALID_PARAMETER` also for pages that are not
    /// whole, too many or too few for the length, or not in memory that the platform gives to
    /// the device.
    #[doc(alias = "dat_lmr_kcreate")]
    pub fn lmr_kcreate(
        &mut self,
        pz: Pz,
        memory: PhysicalPages<'_>,
        privileges: MemPriv,
        va_type: VaType,
    ) -> Result<LmrParam, Error> {
        self.objects.pzs.live(pz)?;
        if memory.len == 0 {
            return Err(Error::new(DatType::LengthError, DatSubtype::None));
        }
        let region = memory
            .region()
            .filter(|region| region.len <= self.hca.limits().max_region)
            .ok_or(Error::new(DatType::InvalidParameter, DatSubtype::InvalidArg3))?;
        let wanted =
            Wanted { pz, mem_type: MemType::Physical, va_type, region, privileges, pages: 0 };
        let backing =
            Backing::Pages { pages: memory.pages, log_page: memory.log_page, len: memory.len };
        self.lmr_enter(&wanted, |provider, pd| {
            provider.mr_map(pd, backing, va_type.start(region.addr), privileges.access())
        })
    }
}
