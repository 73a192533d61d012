//! dat_evd_set_unwaitable(3).

use crate::engine::Ia;
use crate::provider::Provider;
use crate::types::dat_return::Error;
use crate::types::handle::Evd;

impl<P: Provider> Ia<'_, P> {
    /// Nobody can wait from now on, and who waits gets `INVALID_STATE`/`EVD_UNWAITABLE` at the next
    /// look. Events arrive, can be dequeued and trigger the CNO as before.
    #[doc(alias = "dat_evd_set_unwaitable")]
    pub fn evd_set_unwaitable(&mut self, evd: Evd) -> Result<(), Error> {
        self.events.evds.live_mut(evd)?.unwaitable = true;
        self.events.worked = true;
        Ok(())
    }
}
