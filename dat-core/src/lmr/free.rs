//! dat_lmr_free(3).

use core::sync::atomic::Ordering;

use crate::Ia;
use crate::dat_return::{DatSubtype, DatType, Error};
use crate::handle::Lmr;
use crate::provider::Provider;

impl<P: Provider> Ia<'_, P> {
    /// Ends a registration; when it returns, the device no longer touches the memory. A DTO that still names it fails.
    ///
    /// `INVALID_STATE`/`LMR_IN_USE` while an RMR is bound to it.
    #[doc(alias = "dat_lmr_free")]
    pub fn lmr_free(&mut self, lmr: Lmr) -> Result<(), Error> {
        let control = self.lmr(lmr)?;
        let (mr, pz) = (control.mr, control.pz);
        let Some(shared) = self.shared.lmrs.get(lmr.0.index() as usize) else {
            return Ok(());
        };
        if shared.bound.load(Ordering::Acquire) != 0 {
            return Err(Error::new(
                DatType::InvalidState,
                DatSubtype::InvalidStateLmrInUse,
            ));
        }
        let identity = shared.vacate();
        if let Err(fault) = self.provider.mr_destroy(mr) {
            shared.restore(identity);
            return Err(fault.into());
        }
        self.lmrs.remove(lmr.0);
        self.release(Some(pz));
        Ok(())
    }
}
