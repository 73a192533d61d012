//! dat_ia_close(3).

use super::Ia;
use crate::dat_return::{DatSubtype, DatType, Error};
use crate::flags::CloseFlag;
use crate::handle::{Ep, Evd, Lmr, Pz, Rmr};
use crate::provider::Provider;
use crate::time::Instant;

impl<P: Provider> Ia<'_, P> {
    /// Closes the adapter and the device beneath.
    ///
    /// Graceful: `INVALID_STATE`/`IA_IN_USE` if anything is left besides the async Event Dispatcher; the adapter stays open
    /// then. Abrupt: frees everything, connections end abruptly; halves that are out become useless. The first failure of
    /// the device is returned after all has been tried.
    #[doc(alias = "dat_ia_close")]
    pub fn close(&mut self, now: Instant, flag: CloseFlag) -> Result<(), Error> {
        let left = self.eps.len()
            + self.psps.len()
            + self.crs.len()
            + self.rmrs.len()
            + self.lmrs.len()
            + self.pzs.len()
            + self.evds.len().saturating_sub(1);
        if flag == CloseFlag::Graceful && left != 0 {
            return Err(Error::new(
                DatType::InvalidState,
                DatSubtype::InvalidStateIaInUse,
            ));
        }
        let mut first = Ok(());
        while let Some(ep) = self.eps.find(|_| true) {
            first = first.and(self.ep_remove(now, Ep(ep)));
        }
        while let Some(cr) = self.crs.find(|_| true) {
            if let Some(conn) = self.crs.get(cr).and_then(|control| control.conn) {
                self.disown(conn);
                self.cm.abort(now, conn);
            }
            self.crs.remove(cr);
        }
        // Peers hear of it if the device still carries anything.
        self.transmit(now);
        while let Some(psp) = self.psps.find(|_| true) {
            self.psps.remove(psp);
        }
        while let Some(rmr) = self.rmrs.find(|_| true) {
            if let Some(control) = self.rmrs.remove(rmr) {
                first = first.and(self.provider.mw_destroy(control.mw).map_err(Error::from));
            }
            if let Some(slot) = self.shared.rmrs.get(Rmr(rmr).0.index() as usize) {
                slot.vacate();
            }
        }
        while let Some(lmr) = self.lmrs.find(|_| true) {
            if let Some(slot) = self.shared.lmrs.get(lmr.index() as usize) {
                slot.bound.store(0, core::sync::atomic::Ordering::SeqCst);
            }
            first = first.and(self.lmr_free(Lmr(lmr)));
            // What the device kept goes with the device.
            self.lmrs.remove(lmr);
        }
        while let Some(evd) = self.evds.find(|_| true) {
            first = first.and(self.evd_remove(Evd(evd)));
        }
        while let Some(pz) = self.pzs.find(|_| true) {
            if let Some(control) = self.pzs.get_mut(pz) {
                control.users = 0;
            }
            first = first.and(self.pz_free(Pz(pz)));
            self.pzs.remove(pz);
        }
        self.retiring = 0;
        first.and(self.provider.close().map_err(Error::from))
    }
}
