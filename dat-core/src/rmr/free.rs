//! dat_rmr_free(3).

use core::sync::atomic::Ordering;

use crate::dat_return::Error;
use crate::data::DataPath;
use crate::ep::EpControl;
use crate::evd::{Reaper, known, look_through};
use crate::handle::{Ep, Handle, Rmr};
use crate::ia::Ia;
use crate::provider::{Direction, Provider};
use crate::rmr::renew::unbound;
use crate::shared::Shared;
use crate::shared::ep::Trouble;
use crate::shared::request::Op;
use crate::table::Table;

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
        let mw = self.objects.rmrs.live(rmr)?.mw;
        let Some(window) = self.data.shared.rmrs.get(rmr.0.index() as usize) else {
            return Ok(());
        };
        window.retire(rmr);
        self.await_binds(rmr);
        if self.hca.mw_destroy(mw).is_err() {
            // A device may refuse while the key is in use.
            self.break_binder(Ep(Handle::from_raw(window.binder.load(Ordering::Relaxed))));
            if let Err(fault) = self.hca.mw_destroy(mw) {
                window.occupy(rmr);
                return Err(fault.into());
            }
        }
        self.rmr_gone(rmr);
        Ok(())
    }

    /// Returns when no bind of an RMR can take effect any more: each has been carried out, or its
    /// connection is broken.
    fn await_binds(&mut self, rmr: Rmr) {
        let slot = rmr.0.index();
        while let Some(ep) = self.bound_by(slot) {
            if let Ok(poster) = self.poster(ep) {
                // It may have been posted with DEFER.
                poster.ring_deferred();
            }
            let Self { hca, data: DataPath { reapers, shared, .. }, objects, .. } = self;
            let eps = &mut objects.eps;
            let carried_out = hca.await_device(|| {
                look_at_all(reapers, shared, eps);
                !is_binding(shared, eps, ep, slot)
            });
            if !carried_out {
                self.break_binder(ep);
            }
        }
    }

    /// An Endpoint with a bind of the RMR in that slot that the device has not carried out, as far
    /// as is known.
    fn bound_by(&mut self, slot: u32) -> Option<Ep> {
        let DataPath { reapers, shared, .. } = &mut self.data;
        look_at_all(reapers, shared, &mut self.objects.eps);
        let eps = &self.objects.eps;
        eps.iter().map(|(handle, _)| Ep(handle)).find(|&ep| is_binding(shared, eps, ep, slot))
    }

    /// Takes an Endpoint out of service whose bind must not take effect.
    fn break_binder(&mut self, ep: Ep) {
        let Ok(control) = self.objects.eps.live(ep) else { return };
        let qp = control.qp.map_or(0, |qp| qp.number);
        let now = self.lifecycle.clock;
        self.broken(now, ep, Trouble::BIND.fault(qp));
        self.transmit(now);
    }

    /// The window is gone: lets go of all that the RMR held.
    fn rmr_gone(&mut self, rmr: Rmr) {
        let shared = self.data.shared;
        shared.keys.leave(rmr.0.index());
        unbound(&shared, &rmr);
        let pz = self.objects.rmrs.get(rmr.0).map(|control| control.pz);
        self.objects.pzs.release(pz);
        if let Some(control) = self.objects.rmrs.get_mut(rmr.0) {
            control.freed = true;
        }
        let window = shared.rmrs.get(rmr.0.index() as usize);
        if window.is_none_or(|window| window.binds.load(Ordering::SeqCst) == 0) {
            self.objects.rmrs.remove(rmr.0);
        }
    }

    /// The adapter closes: destroys all windows.
    pub(crate) fn rmr_over(&mut self) -> Result<(), Error> {
        let mut first = Ok(());
        while let Some(rmr) = self.objects.rmrs.first() {
            if let Some(control) = self.objects.rmrs.get(rmr).filter(|control| !control.freed) {
                let destroyed = self.hca.mw_destroy(control.mw);
                first = first.and(destroyed.map_err(Error::from));
            }
            self.objects.rmrs.remove(rmr);
            if let Some(slot) = self.data.shared.rmrs.get(rmr.index() as usize) {
                slot.vacate();
            }
        }
        first
    }
}

/// Looks at the completions of all Event Dispatchers whose reaping halves are here.
fn look_at_all<P: Provider>(
    reapers: &mut [Option<Reaper<P>>],
    shared: &Shared<'_>,
    eps: &mut Table<'_, EpControl>,
) {
    for reaper in reapers.iter_mut().flatten() {
        look_through(reaper, shared, eps);
    }
}

/// Whether an Endpoint has a bind of the RMR in that slot that the device may still carry out.
fn is_binding(shared: &Shared<'_>, eps: &Table<'_, EpControl>, ep: Ep, slot: u32) -> bool {
    let (Some(control), Some(line)) = (eps.get(ep.0), shared.ep(ep.0.index())) else {
        return false;
    };
    if line.is_flushable() {
        return false;
    }
    let consumed = line.request.consumed.load(Ordering::Acquire);
    let outstanding = line.outstanding(Direction::Send);
    let done = known(control.requests_done, consumed, outstanding);
    (done..outstanding).any(|ahead| {
        let request = shared.request(&line.request, consumed.wrapping_add(ahead));
        request.is_some_and(|request| {
            let request = request.read();
            request.tag.op() == Op::Bind && request.len == slot
        })
    })
}
