//! Extension: how often the device gives notice of completions.

use crate::engine::Ia;
use crate::provider::{Moderation, Provider};
use crate::types::dat_return::{DatSubtype, DatType, Error};
use crate::types::handle::Evd;

impl<P: Provider> Ia<'_, P> {
    /// Says how often the device tells of completions on `evd`, from now on: extension. Fewer
    /// interrupts for a thread that waits, at the price of some microseconds of latency under load;
    /// dequeues find each completion at once, as ever. What [`Moderation::default`] says is how it
    /// begins.
    ///
    /// `INVALID_STATE` for an Event Dispatcher without completions, `INVALID_PARAMETER` for a period
    /// that is too long, `MODEL_NOT_SUPPORTED` if the device cannot.
    pub fn evd_moderate(&mut self, evd: Evd, moderation: Moderation) -> Result<(), Error> {
        let control = self.events.evd(evd, DatSubtype::InvalidHandle1)?;
        let cq = control.cq.ok_or(Error::new(DatType::InvalidState, DatSubtype::None))?;
        if moderation.period > Moderation::LONGEST {
            return Err(Error::new(DatType::InvalidParameter, DatSubtype::InvalidArg2));
        }
        Ok(self.hca.cq_moderate(cq, moderation)?)
    }
}
