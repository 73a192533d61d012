//! dat_lmr_free(3).

use crate::engine::Ia;
use crate::engine::control::{Job, control_one};
use crate::provider::Provider;
use crate::types::dat_return::Error;
use crate::types::handle::Lmr;

impl<P: Provider> Ia<'_, P> {
    /// Ends a registration; when it returns, the device no longer touches the memory. A DTO that
    /// still names it fails.
    ///
    /// `INVALID_STATE`/`LMR_IN_USE` while an RMR is bound to it, or a fast registration or
    /// invalidation of it is under way; `RESERVED_LMR` for the reserved one, which goes with
    /// its zone.
    #[doc(alias = "dat_lmr_free")]
    pub fn lmr_free(&mut self, lmr: Lmr) -> Result<(), Error> {
        control_one(self, self.lifecycle.clock, Job::LmrFree(lmr)).map(drop)
    }

    /// Ends a registration of any kind.
    pub(crate) fn lmr_remove(&mut self, lmr: Lmr) -> Result<(), Error> {
        control_one(self, self.lifecycle.clock, Job::LmrRemove(lmr)).map(drop)
    }
}
