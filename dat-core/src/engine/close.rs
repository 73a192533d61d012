//! dat_ia_close(3).

use heapless::Vec;

use crate::engine::Ia;
use crate::engine::control::{eps_remove, lmrs_remove};
use crate::provider::Provider;
use crate::types::activity::Activity;
use crate::types::bounds::STEPS;
use crate::types::dat_return::{DatSubtype, DatType, Error};
use crate::types::flags::CloseFlag;
use crate::types::handle::{Ep, Evd, Lmr, Pz, Srq};
use crate::types::time::Instant;

impl<P: Provider> Ia<'_, P> {
    /// Closes the adapter and the device beneath.
    ///
    /// Graceful: `INVALID_STATE`/`IA_IN_USE` if anything is left besides the async Event
    /// Dispatcher; the adapter stays open then. Abrupt: frees everything, connections end
    /// abruptly; posters and reapers that are out become useless. A wait for an Event Dispatcher
    /// returns `ABORT`; a wait for a CNO, and its agent, gets no Event Dispatcher. The first failure
    /// of the device is returned after all has been tried. `INVALID_HANDLE` if it is closed
    /// already: every handle is stale then, and nothing can be made.
    ///
    /// Nothing repeats a lost message after this: [`Ia::disconnect_all`] comes before it.
    #[doc(alias = "dat_ia_close")]
    pub fn close(&mut self, now: Instant, flag: CloseFlag) -> Result<(), Error> {
        self.alive()?;
        let asynchronous = u32::from(self.events.evds.get(self.events.async_evd.0).is_some());
        let left = self.objects.eps.len()
            + self.objects.psps.len()
            + self.objects.crs.len()
            + self.objects.rsps.len()
            + self.objects.csps.len()
            + self.objects.srqs.len()
            + self.objects.lmrs.len()
            + self.objects.pzs.len()
            + self.events.cnos.len()
            + self.events.evds.len().saturating_sub(asynchronous);
        if flag == CloseFlag::Graceful && left != 0 {
            return Err(Error::new(DatType::InvalidState, DatSubtype::InvalidStateIaInUse));
        }
        let out = self.halves_are_out();
        let vacated = self.vacate(now);
        let closed = self.hca.close().map_err(Error::from);
        self.hca.report(|| Activity::Closed);
        // What hangs on a half that is out cannot be destroyed: it goes with the device.
        if out { closed } else { vacated.and(closed) }
    }

    /// Ends all connections, and attempts at one, as an abrupt [`Ia::ep_disconnect`] does.
    ///
    /// Before [`Ia::close`] it lets the peers know, also where the network loses the message: call
    /// it, drive the adapter until [`Ia::cm_ending`] is 0, with a time limit for peers that are
    /// gone, and close the adapter then.
    pub fn disconnect_all(&mut self, now: Instant) {
        for index in 0..self.objects.eps.capacity() {
            if let Some(ep) = self.objects.eps.handle_at(index) {
                // Refused without a connection: nothing is to be ended.
                let _ = self.ep_disconnect(now, Ep(ep), CloseFlag::Abrupt);
            }
        }
    }

    fn halves_are_out(&self) -> bool {
        let posters = self.objects.eps.iter().any(|(ep, control)| {
            let poster = self.data.posters.get(ep.index() as usize);
            control.qp.is_some() && poster.is_some_and(Option::is_none)
        });
        let srqs = self.objects.srqs.iter().any(|(srq, _)| {
            let poster = self.data.srq_posters.get(srq.index() as usize);
            poster.is_some_and(Option::is_none)
        });
        posters
            || srqs
            || self.events.evds.iter().any(|(evd, _)| self.events.reaper_is_out(&self.data, evd))
    }

    /// As an abrupt [`Ia::close`], but the device stays up: gives it back for another adapter.
    pub fn leave(mut self, now: Instant) -> Result<P, Error> {
        self.vacate(now)?;
        Ok(self.hca)
    }

    /// Frees everything that is left. The first failure is returned after all has been tried.
    fn vacate(&mut self, now: Instant) -> Result<(), Error> {
        let mut first = Ok(());
        loop {
            let eps: Vec<Ep, STEPS> = self.objects.eps.few(Ep);
            if eps.is_empty() {
                break;
            }
            first = first.and(eps_remove(self, now, &eps));
        }
        while let Some(cr) = self.objects.crs.first() {
            if let Some(conn) = self.objects.crs.get(cr).and_then(|control| control.conn) {
                self.connections.cm.abort(now, conn);
            }
            self.objects.crs.remove(cr);
        }
        // Peers are notified if the device still carries anything.
        self.transmit(now);
        while let Some(psp) = self.objects.psps.first() {
            self.objects.psps.remove(psp);
        }
        while let Some(rsp) = self.objects.rsps.first() {
            self.objects.rsps.remove(rsp);
        }
        while let Some(csp) = self.objects.csps.first() {
            self.objects.csps.remove(csp);
        }
        while let Some(srq) = self.objects.srqs.first() {
            first = first.and(self.srq_free(Srq(srq)));
            // Its posting half may be out: what the device kept goes with the device.
            self.objects.srqs.remove(srq);
        }
        first = first.and(self.objects.rmr_over(&mut self.hca));
        loop {
            let lmrs: Vec<Lmr, STEPS> = self.objects.lmrs.few(Lmr);
            if lmrs.is_empty() {
                break;
            }
            for lmr in &lmrs {
                if let Some(slot) = self.data.shared.lmrs.get(lmr.0.index() as usize) {
                    slot.bound.store(0, core::sync::atomic::Ordering::SeqCst);
                }
            }
            first = first.and(lmrs_remove(self, &lmrs));
            for lmr in lmrs {
                // What the device kept goes with the device.
                self.objects.lmrs.remove(lmr.0);
            }
        }
        while let Some(evd) = self.events.evds.first() {
            first = first.and(self.evd_remove(Evd(evd)));
        }
        while let Some(pz) = self.objects.pzs.first() {
            if let Some(control) = self.objects.pzs.get_mut(pz) {
                control.users = 0;
            }
            first = first.and(self.pz_free(Pz(pz)));
            self.objects.pzs.remove(pz);
        }
        self.lifecycle.closed = true;
        self.events.cno_over();
        first
    }
}
