//! dat_evd_enable(3).

use crate::dat_return::Error;
use crate::handle::Evd;
use crate::ia::Ia;
use crate::provider::Provider;

impl<P: Provider> Ia<'_, P> {
    /// Events that arrive from now on trigger the CNO; what arrived before does not. Nothing else
    /// changes.
    #[doc(alias = "dat_evd_enable")]
    pub fn evd_enable(&mut self, evd: Evd) -> Result<(), Error> {
        if !self.events.evd_mut(evd)?.enabled {
            self.overlook(evd);
            self.events.evd_mut(evd)?.enabled = true;
        }
        Ok(())
    }
}
