//! dat_evd_disable(3).

use crate::engine::Ia;
use crate::provider::Provider;
use crate::types::dat_return::Error;
use crate::types::handle::Evd;

impl<P: Provider> Ia<'_, P> {
    /// Events that arrive from now on do not trigger the CNO. They are queued, and waits are
    /// served, as before.
    #[doc(alias = "dat_evd_disable")]
    pub fn evd_disable(&mut self, evd: Evd) -> Result<(), Error> {
        self.look_in(evd);
        self.events.evds.live_mut(evd)?.enabled = false;
        Ok(())
    }
}
