//! Windows of RMRs without a request of their consumer: binds that must not take effect any more,
//! the end of a queue pair, the end of the adapter.

use core::sync::atomic::Ordering;

use crate::data::DataPath;
use crate::data::reaper::Reaper;
use crate::data::shared::Shared;
use crate::data::shared::ep::Trouble;
use crate::data::shared::request::Op;
use crate::engine::Ia;
use crate::engine::absorb::{known, look_through};
use crate::objects::ep::EpControl;
use crate::objects::table::Table;
use crate::provider::Provider;
use crate::types::completion::Direction;
use crate::types::handle::{Ep, Rmr};

impl<P: Provider> Ia<'_, P> {
    /// Returns when no bind of an RMR can take effect any more: each has been carried out, or its
    /// connection is broken.
    pub(crate) fn await_binds(&mut self, rmr: Rmr) {
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
        let window = shared.rmrs.get(slot as usize)?;
        if window.binds.load(Ordering::SeqCst) == 0 {
            return None;
        }
        look_at_all(reapers, shared, &mut self.objects.eps);
        let eps = &self.objects.eps;
        eps.iter().map(|(handle, _)| Ep(handle)).find(|&ep| is_binding(shared, eps, ep, slot))
    }

    /// Takes an Endpoint out of service whose bind must not take effect.
    pub(crate) fn break_binder(&mut self, ep: Ep) {
        let Ok(control) = self.objects.eps.live(ep) else { return };
        let qp = control.qp.map_or(0, |qp| qp.number);
        let now = self.lifecycle.clock;
        self.broken(now, ep, Trouble::BIND.fault(qp));
        self.transmit(now);
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
