//! dat_evd_free(3).

use crate::engine::Ia;
use crate::provider::Provider;
use crate::types::dat_return::{DatSubtype, DatType, Error};
use crate::types::handle::{Cr, Evd};

impl<P: Provider> Ia<'_, P> {
    /// Frees an Event Dispatcher; events still queued are lost. [`Ia::evd_requests`] names the
    /// requests among them: they stay, and so do the peers' hopes, until somebody turns them
    /// away.
    ///
    /// `INVALID_STATE` while a stream is attached, while somebody waits or has the reaper, and for
    /// the async Event Dispatcher, which goes with the Interface Adapter. The last one of a CNO
    /// releases that CNO's waiters.
    #[doc(alias = "dat_evd_free")]
    pub fn evd_free(&mut self, evd: Evd) -> Result<(), Error> {
        let control = self.events.evd(evd, DatSubtype::InvalidHandle1)?;
        if !control.streams.is_empty() || evd == self.events.async_evd {
            return Err(Error::new(DatType::InvalidState, DatSubtype::InvalidStateEvdInUse));
        }
        self.reaper(evd)?;
        self.evd_remove(evd)
    }

    /// The requests whose events are queued there, each to `see`. `INVALID_HANDLE`; `INVALID_STATE`
    /// while somebody has the reaper.
    pub fn evd_requests(&self, evd: Evd, see: impl FnMut(Cr)) -> Result<(), Error> {
        self.events.evd(evd, DatSubtype::InvalidHandle1)?;
        let index = evd.0.index();
        let reaper = self.data.reapers.get(index as usize).and_then(Option::as_ref);
        let (Some(reaper), Some(ring)) = (reaper, self.data.shared.evd(index)) else {
            return Err(Error::new(DatType::InvalidState, DatSubtype::InvalidStateEvdInUse));
        };
        reaper.requests(&self.data.shared, ring, see);
        Ok(())
    }

    pub(crate) fn evd_remove(&mut self, evd: Evd) -> Result<(), Error> {
        let (cq, cno) = match self.events.evds.get(evd.0) {
            Some(control) => (control.cq, control.cno),
            None => (None, None),
        };
        let (shared, index) = (self.data.shared, evd.0.index());
        let reaper = self.data.reapers.get_mut(index as usize).and_then(Option::take);
        let end = reaper.and_then(|mut reaper| {
            if let Some(ring) = shared.evd(index) {
                reaper.give_back_events(&shared, ring);
            }
            reaper.cq
        });
        self.events.evds.remove(evd.0);
        self.events.cno_detach(cno);
        match (cq, end) {
            (Some(cq), Some(end)) => Ok(self.hca.cq_destroy(cq, end)?),
            _ => Ok(()),
        }
    }
}
