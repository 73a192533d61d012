//! dat_pz_free(3).

use crate::engine::Ia;
use crate::provider::Provider;
use crate::types::dat_return::{DatSubtype, DatType, Error};
use crate::types::handle::Pz;

impl<P: Provider> Ia<'_, P> {
    /// Frees a Protection Zone. `INVALID_STATE`/`PZ_IN_USE` while an Endpoint, LMR, RMR or SRQ is
    /// in it.
    #[doc(alias = "dat_pz_free")]
    pub fn pz_free(&mut self, pz: Pz) -> Result<(), Error> {
        let control = self.objects.pzs.live(pz)?;
        if control.users != 0 {
            return Err(Error::new(DatType::InvalidState, DatSubtype::InvalidStatePzInUse));
        }
        let pd = control.pd;
        if let Some(lmr) = self.objects.lmrs.reserved(pz) {
            self.lmr_remove(lmr)?;
        }
        self.hca.pd_destroy(pd)?;
        self.objects.pzs.remove(pz.0);
        Ok(())
    }
}
