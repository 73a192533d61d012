//! Slots of freed RMRs, which come back when the last completion of a bind has been dequeued.

use core::sync::atomic::Ordering;

use crate::data::shared::window::{give_to, unbound};
use crate::objects::Objects;
use crate::provider::Provider;
use crate::types::dat_return::Error;
use crate::types::handle::{Ep, Rmr};

impl Objects<'_> {
    /// Unbinds every RMR that belongs to an Endpoint whose queue pair is at its end. Each gets
    /// another window under another key: the queue pair's number may be given out again, and
    /// whoever has it then must not find the range open.
    pub(crate) fn renew_windows<P: Provider>(&mut self, hca: &mut P, ep: Ep) -> Result<(), Error> {
        let shared = self.shared;
        let windows = shared.ep(ep.0.index()).map(|line| &line.slow.windows);
        for (slot, window) in (0_u32..).zip(shared.rmrs) {
            if windows.is_none_or(|windows| windows.load(Ordering::Relaxed) == 0) {
                break;
            }
            if window.holder() != ep.raw() {
                continue;
            }
            let Some(handle) = self.rmrs.handle_at(slot) else {
                continue;
            };
            // A window that is gone already may have completions that still name its RMR.
            if self.rmrs.get(handle).is_none_or(|control| control.freed) {
                continue;
            }
            let new = hca.mw_renew(window.newest())?;
            shared.keys.leave(slot);
            window.set_window(new, shared.order);
            shared.keys.enter(slot);
            give_to(&shared, window, 0);
            unbound(&shared, &Rmr(handle));
        }
        Ok(())
    }

    /// The window is gone: lets go of all that the RMR held.
    pub(crate) fn rmr_gone(&mut self, rmr: Rmr) {
        let shared = self.shared;
        shared.keys.leave(rmr.0.index());
        unbound(&shared, &rmr);
        let pz = self.rmrs.get(rmr.0).map(|control| control.pz);
        self.pzs.release(pz);
        if let Some(control) = self.rmrs.get_mut(rmr.0) {
            control.freed = true;
        }
        if let Some(window) = shared.rmrs.get(rmr.0.index() as usize) {
            give_to(&shared, window, 0);
        }
        self.rmrs.enqueue(rmr.0);
        self.rmr_retire();
    }

    /// The adapter closes: destroys all windows.
    pub(crate) fn rmr_over<P: Provider>(&mut self, hca: &mut P) -> Result<(), Error> {
        let mut first = Ok(());
        while let Some(rmr) = self.rmrs.first() {
            let is_live = self.rmrs.get(rmr).is_some_and(|control| !control.freed);
            if let Some(window) = self.shared.rmrs.get(rmr.index() as usize) {
                if is_live {
                    let destroyed = hca.mw_destroy(window.newest());
                    first = first.and(destroyed.map_err(Error::from));
                }
                window.vacate();
            }
            self.rmrs.remove(rmr);
        }
        first
    }

    /// Gives back the slots of freed RMRs whose last completion has been dequeued.
    pub(crate) fn rmr_retire(&mut self) {
        for _ in 0..self.rmrs.queued() {
            let Some(rmr) = self.rmrs.dequeue() else { return };
            let window = self.shared.rmrs.get(rmr.index() as usize);
            if window.is_none_or(|window| window.binds.load(Ordering::SeqCst) == 0) {
                self.rmrs.remove(rmr);
            } else {
                self.rmrs.enqueue(rmr);
            }
        }
    }
}
