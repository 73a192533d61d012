//! dat_ia_close(3).

use super::Ia;
use crate::dat_return::{DatSubtype, DatType, Error};
use crate::flags::CloseFlag;
use crate::handle::{Ep, Evd, Lmr, Pz, Srq};
use crate::provider::Provider;
use crate::time::Instant;

impl<P: Provider> Ia<'_, P> {
    /// Closes the adapter and the device beneath.
    ///
    /// Graceful: `INVALID_STATE`/`IA_IN_USE` if anything is left besides the async Event
    /// Dispatcher; the adapter stays open then. Abrupt: frees everything, connections end
    /// abruptly; halves that are out become useless, whoever waits for an Event Dispatcher gets
    /// `ABORT`, whoever waits for a CNO (its agent too) is told of none. The first failure of the
    /// device is returned after all has been tried. `INVALID_HANDLE` if it is closed already:
    /// every handle is stale then, and nothing can be made.
    #[doc(alias = "dat_ia_close")]
    pub fn close(&mut self, now: Instant, flag: CloseFlag) -> Result<(), Error> {
        self.alive()?;
        let asynchronous = u32::from(self.evds.get(self.async_evd.0).is_some());
        let left = self.eps.len()
            + self.psps.len()
            + self.crs.len()
            + self.rsps.len()
            + self.csps.len()
            + self.srqs.len()
            + self.lmrs.len()
            + self.pzs.len()
            + self.cnos.len()
            + self.evds.len().saturating_sub(asynchronous);
        if flag == CloseFlag::Graceful && left != 0 {
            return Err(Error::new(DatType::InvalidState, DatSubtype::InvalidStateIaInUse));
        }
        let out = self.halves_are_out();
        let vacated = self.vacate(now);
        let closed = self.provider.close().map_err(Error::from);
        // What hangs on a half that is out cannot be destroyed: it goes with the device.
        if out { closed } else { vacated.and(closed) }
    }

    fn halves_are_out(&self) -> bool {
        let posters = self.eps.iter().any(|(ep, control)| {
            let poster = self.posters.get(ep.index() as usize);
            control.qp.is_some() && poster.is_some_and(Option::is_none)
        });
        let srqs = self.srqs.iter().any(|(srq, _)| {
            let poster = self.srq_posters.get(srq.index() as usize);
            poster.is_some_and(Option::is_none)
        });
        posters || srqs || self.evds.iter().any(|(evd, _)| self.reaper_is_out(evd))
    }

    /// As an abrupt [`Ia::close`], but the device stays up: gives it back for another adapter.
    pub fn leave(mut self, now: Instant) -> Result<P, Error> {
        self.vacate(now)?;
        Ok(self.provider)
    }

    /// Frees everything that is left. The first failure is returned after all has been tried.
    fn vacate(&mut self, now: Instant) -> Result<(), Error> {
        let mut first = Ok(());
        while let Some(ep) = self.eps.first() {
            first = first.and(self.ep_remove(now, Ep(ep)));
        }
        while let Some(cr) = self.crs.first() {
            if let Some(conn) = self.crs.get(cr).and_then(|control| control.conn) {
                self.cm.abort(now, conn);
            }
            self.crs.remove(cr);
        }
        // Peers hear of it if the device still carries anything.
        self.transmit(now);
        while let Some(psp) = self.psps.first() {
            self.psps.remove(psp);
        }
        while let Some(rsp) = self.rsps.first() {
            self.rsps.remove(rsp);
        }
        while let Some(csp) = self.csps.first() {
            self.csps.remove(csp);
        }
        while let Some(srq) = self.srqs.first() {
            first = first.and(self.srq_free(Srq(srq)));
            // Its posting half may be out: what the device kept goes with the device.
            self.srqs.remove(srq);
        }
        first = first.and(self.rmr_over());
        while let Some(lmr) = self.lmrs.first() {
            if let Some(slot) = self.shared.lmrs.get(lmr.index() as usize) {
                slot.bound.store(0, core::sync::atomic::Ordering::SeqCst);
            }
            first = first.and(self.lmr_remove(Lmr(lmr)));
            // What the device kept goes with the device.
            self.lmrs.remove(lmr);
        }
        while let Some(evd) = self.evds.first() {
            first = first.and(self.evd_remove(Evd(evd)));
        }
        while let Some(pz) = self.pzs.first() {
            if let Some(control) = self.pzs.get_mut(pz) {
                control.users = 0;
            }
            first = first.and(self.pz_free(Pz(pz)));
            self.pzs.remove(pz);
        }
        self.closed = true;
        self.cno_over();
        first
    }
}
