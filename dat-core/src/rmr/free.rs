//! dat_rmr_free(3).

use core::sync::atomic::Ordering;

use crate::Ia;
use crate::dat_return::Error;
use crate::handle::Rmr;
use crate::post::release;
use crate::provider::Provider;
use crate::shared::lmr::NO_CONTEXT;

impl<P: Provider> Ia<'_, P> {
    /// Frees an RMR. A bound one is unbound first: when the call returns, peers are refused.
    ///
    /// While a bind is still under way the handle dies at once and the window goes when that bind has completed; its
    /// completion is not delivered. The Protection Zone stays in use until then.
    #[doc(alias = "dat_rmr_free")]
    pub fn rmr_free(&mut self, rmr: Rmr) -> Result<(), Error> {
        let control = self.rmr(rmr)?;
        let mw = control.mw;
        let Some(shared) = self.shared.rmrs.get(rmr.0.index() as usize) else {
            return Ok(());
        };
        shared.retire();
        if shared.binds.load(Ordering::SeqCst) != 0 {
            if let Some(control) = self.rmrs.get_mut(rmr.0) {
                control.retiring = true;
            }
            self.retiring += 1;
            return Ok(());
        }
        if let Err(fault) = self.provider.mw_destroy(mw) {
            shared.occupy(rmr);
            return Err(fault.into());
        }
        self.rmr_forget(rmr);
        Ok(())
    }

    /// Destroys the windows whose last bind has completed.
    pub(crate) fn rmr_retire(&mut self) {
        while self.retiring != 0 {
            let shared = self.shared;
            let done = self.rmrs.iter().find_map(|(handle, control)| {
                let slot = shared.rmrs.get(handle.index() as usize)?;
                let idle = slot.binds.load(Ordering::SeqCst) == 0;
                (control.retiring && idle).then_some((Rmr(handle), control.mw))
            });
            let Some((rmr, mw)) = done else { return };
            // Nobody is left to be told; a window that the device keeps stays unreachable, for its key is gone.
            let _ = self.provider.mw_destroy(mw);
            self.rmr_forget(rmr);
            self.retiring -= 1;
        }
    }

    /// The adapter closes: destroys all windows.
    pub(super) fn rmr_over(&mut self) -> Result<(), Error> {
        let mut first = Ok(());
        while let Some(rmr) = self.rmrs.first() {
            if let Some(control) = self.rmrs.get(rmr) {
                let destroyed = self.provider.mw_destroy(control.mw);
                first = first.and(destroyed.map_err(Error::from));
            }
            self.rmrs.remove(rmr);
            if let Some(slot) = self.shared.rmrs.get(rmr.index() as usize) {
                slot.vacate();
            }
        }
        first
    }

    fn rmr_forget(&mut self, rmr: Rmr) {
        let shared = self.shared;
        shared.keys.leave(rmr.0.index());
        if let Some(slot) = shared.rmrs.get(rmr.0.index() as usize) {
            slot.vacate();
            release(&shared, slot.lmr_context.swap(NO_CONTEXT, Ordering::SeqCst));
        }
        let pz = self.rmrs.get(rmr.0).map(|control| control.pz);
        self.rmrs.remove(rmr.0);
        self.release(pz);
    }
}
