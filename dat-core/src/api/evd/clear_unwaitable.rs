//! dat_evd_clear_unwaitable(3).

use crate::engine::Ia;
use crate::provider::Provider;
use crate::types::dat_return::Error;
use crate::types::handle::Evd;

impl<P: Provider> Ia<'_, P> {
    /// It can be waited for again.
    #[doc(alias = "dat_evd_clear_unwaitable")]
    pub fn evd_clear_unwaitable(&mut self, evd: Evd) -> Result<(), Error> {
        self.events.evds.live_mut(evd)?.unwaitable = false;
        Ok(())
    }
}
