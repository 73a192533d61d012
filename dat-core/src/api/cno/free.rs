//! dat_cno_free(3).

use crate::engine::Ia;
use crate::provider::Provider;
use crate::types::dat_return::{DatSubtype, DatType, Error};
use crate::types::handle::Cno;

impl<P: Provider> Ia<'_, P> {
    /// Frees a CNO. Its agent, if it still has one, is never called.
    ///
    /// `INVALID_STATE`/`CNO_IN_USE` while an Event Dispatcher is attached or somebody waits.
    #[doc(alias = "dat_cno_free")]
    pub fn cno_free(&mut self, cno: Cno) -> Result<(), Error> {
        let control = self.events.cnos.live(cno)?;
        if control.evds != 0 || control.waiters != 0 {
            return Err(Error::new(DatType::InvalidState, DatSubtype::InvalidStateCnoInUse));
        }
        self.events.cnos.remove(cno.0);
        Ok(())
    }
}
