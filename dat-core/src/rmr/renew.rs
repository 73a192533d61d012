//! What becomes of an Endpoint's own RMRs without a request of its consumer: the end of the
//! Endpoint's queue pair, and a message of its peer.

use core::sync::atomic::Ordering;

use crate::Ia;
use crate::dat_return::Error;
use crate::handle::{Ep, Rmr};
use crate::post::release;
use crate::provider::Provider;
use crate::shared::Shared;
use crate::shared::lmr::NO_CONTEXT;

impl<P: Provider> Ia<'_, P> {
    /// Unbinds every RMR that belongs to an Endpoint whose queue pair is at its end. Each gets
    /// another window under another key: the queue pair's number may be given out again, and
    /// whoever has it then must not find the range open.
    pub(crate) fn renew_windows(&mut self, ep: Ep) -> Result<(), Error> {
        let shared = self.data.shared;
        for (slot, window) in (0_u32..).zip(shared.rmrs) {
            if window.ep.load(Ordering::Relaxed) != ep.raw() {
                continue;
            }
            let Some(handle) = self.objects.rmrs.handle_at(slot) else {
                continue;
            };
            // A window that is gone already may have completions that still name its RMR.
            let Some(control) = self.objects.rmrs.get_mut(handle).filter(|control| !control.freed)
            else {
                continue;
            };
            let new = self.hca.mw_renew(control.mw)?;
            control.mw = new;
            shared.keys.leave(slot);
            window.rkey.store(new.rkey, Ordering::Relaxed);
            shared.keys.enter(slot);
            window.ep.store(0, Ordering::Relaxed);
            unbound(&shared, &Rmr(handle));
        }
        Ok(())
    }
}

/// Notes that an RMR is bound to nothing.
pub(super) fn unbound(shared: &Shared<'_>, rmr: &Rmr) {
    if let Some(window) = shared.rmrs.get(rmr.0.index() as usize) {
        let context = window.lmr_context.swap(NO_CONTEXT, Ordering::SeqCst);
        window.len.store(0, Ordering::Relaxed);
        release(shared, context);
    }
}

/// Notes that a message of a peer has closed the window of that key, and says whose it was. `None`
/// if no RMR has that key, or not any more.
pub(crate) fn invalidated(shared: &Shared<'_>, rkey: u32) -> Option<Rmr> {
    let rmr = shared.keys.find(rkey)?.owner()?;
    unbound(shared, &rmr);
    Some(rmr)
}
