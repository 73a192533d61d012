//! dat_rmr_free(3).

use core::sync::atomic::Ordering;

use crate::engine::Ia;
use crate::provider::Provider;
use crate::types::dat_return::Error;
use crate::types::handle::{Ep, Handle, Rmr};

impl<P: Provider> Ia<'_, P> {
    /// Frees an RMR. When the call returns its window is gone, bound or not: peers are refused, its
    /// LMR may be freed, and its Protection Zone is not in use by it.
    ///
    /// A bind that the device has not carried out is waited for, for the provider's limit; requests
    /// before it may take their time. While the reaping half of that Endpoint's request Event
    /// Dispatcher is out, it has come to its end when its completion has been dequeued. If it
    /// does not come to its end, or the device refuses to give the window up, the connection of the
    /// Endpoint that it was posted on is BROKEN, so that it never takes effect. The completion
    /// of a bind is the consumer's as ever, and names the freed RMR; the RMR's slot in the
    /// storage is not used again before it has been dequeued. `INVALID_HANDLE`/`RMR` for an RMR
    /// that has been freed already.
    #[doc(alias = "dat_rmr_free")]
    pub fn rmr_free(&mut self, rmr: Rmr) -> Result<(), Error> {
        self.objects.rmrs.live(rmr)?;
        let Some(window) = self.data.shared.rmrs.get(rmr.0.index() as usize) else {
            return Ok(());
        };
        window.retire(rmr);
        self.await_binds(rmr);
        let mw = window.newest();
        if self.hca.mw_destroy(mw).is_err() {
            // A device may refuse while the key is in use.
            self.break_binder(Ep(Handle::from_raw(window.binder.load(Ordering::Relaxed))));
            if let Err(fault) = self.hca.mw_destroy(mw) {
                window.occupy(rmr);
                return Err(fault.into());
            }
        }
        self.objects.rmr_gone(rmr);
        Ok(())
    }
}
