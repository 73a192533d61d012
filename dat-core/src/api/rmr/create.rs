//! dat_rmr_create(3).

use core::sync::atomic::Ordering;

use crate::data::shared::lmr::NO_CONTEXT;
use crate::data::shared::window::give_to;
use crate::engine::Ia;
use crate::objects::rmr::RmrControl;
use crate::provider::{Mw, Pd, Provider};
use crate::types::dat_return::{DatSubtype, DatType, Error};
use crate::types::fault::Fault;
use crate::types::handle::{Pz, Rmr};

impl<P: Provider> Ia<'_, P> {
    /// Makes an RMR, bound to nothing.
    ///
    /// `INVALID_HANDLE`, `INSUFFICIENT_RESOURCES`, or `MODEL_NOT_SUPPORTED` if the adapter has no
    /// memory windows.
    #[doc(alias = "dat_rmr_create")]
    pub fn rmr_create(&mut self, pz: Pz) -> Result<Rmr, Error> {
        self.rmr_enter(pz, 0, P::mw_create)
    }

    /// Enters an RMR over the window that `make` gets for it.
    pub(super) fn rmr_enter(
        &mut self,
        pz: Pz,
        mark: u32,
        make: fn(&mut P, Pd) -> Result<Mw, Fault>,
    ) -> Result<Rmr, Error> {
        let pd = self.objects.pzs.live(pz)?.pd;
        let full = Error::new(DatType::InsufficientResources, DatSubtype::ResourceMemoryRegion);
        if self.objects.rmrs.is_full() {
            return Err(full);
        }
        let mw = make(&mut self.hca, pd)?;
        let control = RmrControl { pz, freed: false };
        let rmr = self.objects.rmrs.insert(control).map(Rmr).ok_or(full)?;
        if let Some(shared) = self.data.shared.rmrs.get(rmr.0.index() as usize) {
            shared.pz.store(pz.0.index() | mark, Ordering::Relaxed);
            shared.set_window(mw, self.data.shared.order);
            shared.lmr_context.store(NO_CONTEXT, Ordering::Relaxed);
            shared.len.store(0, Ordering::Relaxed);
            shared.privileges.store(0, Ordering::Relaxed);
            shared.binds.store(0, Ordering::Relaxed);
            shared.binder.store(0, Ordering::Relaxed);
            give_to(&self.data.shared, shared, 0);
            shared.occupy(rmr);
            self.data.shared.keys.enter(rmr.0.index());
        }
        self.objects.pzs.hold(Some(pz));
        Ok(rmr)
    }
}
