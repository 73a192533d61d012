//! dat_evd_set_unwaitable(3).

use crate::Ia;
use crate::dat_return::{DatSubtype, DatType, Error};
use crate::handle::Evd;
use crate::provider::Provider;

impl<P: Provider> Ia<'_, P> {
    /// Nobody can wait from now on, and who waits gets `INVALID_STATE`/`EVD_UNWAITABLE` at the next
    /// look. Events arrive, can be dequeued and trigger the CNO as before.
    #[doc(alias = "dat_evd_set_unwaitable")]
    pub fn evd_set_unwaitable(&mut self, evd: Evd) -> Result<(), Error> {
        self.evd_mut(evd)?.unwaitable = true;
        self.events.worked = true;
        Ok(())
    }

    pub(super) fn evd_mut(&mut self, evd: Evd) -> Result<&mut super::EvdControl<P>, Error> {
        self.events
            .evds
            .get_mut(evd.0)
            .ok_or(Error::new(DatType::InvalidHandle, DatSubtype::InvalidHandle1))
    }
}
