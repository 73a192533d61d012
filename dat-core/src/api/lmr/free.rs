//! dat_lmr_free(3).

use core::sync::atomic::Ordering;

use crate::api::several::Job;
use crate::data::shared::lmr::OPEN;
use crate::engine::Ia;
use crate::objects::lmr::{LmrControl, MemType};
use crate::objects::table::Kind;
use crate::provider::{Mr, Provider};
use crate::types::dat_return::{DatSubtype, DatType, Error};
use crate::types::fault::Fault;
use crate::types::handle::Lmr;

impl<P: Provider> Ia<'_, P> {
    /// Ends a registration; when it returns, the device no longer touches the memory. A DTO that
    /// still names it fails.
    ///
    /// `INVALID_STATE`/`LMR_IN_USE` while an RMR is bound to it, or a fast registration or
    /// invalidation of it is under way; `RESERVED_LMR` for the reserved one, which goes with
    /// its zone.
    #[doc(alias = "dat_lmr_free")]
    pub fn lmr_free(&mut self, lmr: Lmr) -> Result<(), Error> {
        self.control_one(self.lifecycle.clock, Job::LmrFree(lmr)).map(drop)
    }

    /// Whether the consumer may free an LMR.
    pub(in crate::api) fn may_free_lmr(&self, lmr: Lmr) -> Result<(), Error> {
        if self.objects.lmrs.live(lmr)?.mem_type == MemType::Ia {
            return Err(Error::new(DatType::ReservedLmr, DatSubtype::None));
        }
        Ok(())
    }

    /// Ends a registration of any kind.
    pub(crate) fn lmr_remove(&mut self, lmr: Lmr) -> Result<(), Error> {
        self.control_one(self.lifecycle.clock, Job::LmrRemove(lmr)).map(drop)
    }

    /// Takes an LMR from the posters, unless it is in use. Returns its key, and what has to be put
    /// back if it stays.
    pub(in crate::api) fn lmr_vacate(&self, lmr: Lmr) -> Result<(Mr, u64), Error> {
        let control = self.objects.lmrs.live(lmr)?;
        let mr = Mr { rkey: control.rkey, ..control.mr };
        let Some(shared) = self.data.shared.lmrs.get(lmr.0.index() as usize) else {
            return Err(LmrControl::STALE.into());
        };
        let in_use = || shared.bound.load(Ordering::SeqCst) & !OPEN != 0;
        let refusal = Error::new(DatType::InvalidState, DatSubtype::InvalidStateLmrInUse);
        if in_use() {
            return Err(refusal);
        }
        let identity = shared.vacate();
        // A bind on another thread may have found it before it was vacated.
        if in_use() {
            shared.restore(identity);
            return Err(refusal);
        }
        Ok((mr, identity))
    }

    /// The key of an LMR is destroyed, or stays.
    pub(in crate::api) fn lmr_over(
        &mut self,
        lmr: Lmr,
        identity: u64,
        destroyed: Result<(), Fault>,
    ) -> Result<(), Error> {
        let control = self.objects.lmrs.live(lmr)?;
        let (pz, reserved) = (control.pz, control.mem_type == MemType::Ia);
        if let Some(shared) = self.data.shared.lmrs.get(lmr.0.index() as usize) {
            if let Err(fault) = destroyed {
                shared.restore(identity);
                return Err(fault.into());
            }
            // The next LMR here begins with a key of its own.
            shared.bound.fetch_and(!OPEN, Ordering::AcqRel);
        }
        self.objects.lmrs.remove(lmr.0);
        if !reserved {
            self.objects.pzs.release(Some(pz));
        }
        Ok(())
    }
}
