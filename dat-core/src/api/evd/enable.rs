//! dat_evd_enable(3).

use crate::engine::Ia;
use crate::provider::Provider;
use crate::types::dat_return::Error;
use crate::types::handle::Evd;

impl<P: Provider> Ia<'_, P> {
    /// Events that arrive from now on trigger the CNO; what arrived before does not. Nothing else
    /// changes.
    #[doc(alias = "dat_evd_enable")]
    pub fn evd_enable(&mut self, evd: Evd) -> Result<(), Error> {
        if !self.events.evds.live_mut(evd)?.enabled {
            self.overlook(evd);
            self.events.evds.live_mut(evd)?.enabled = true;
        }
        Ok(())
    }
}
