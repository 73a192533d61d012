//! dat_lmr_free(3).

use core::sync::atomic::Ordering;

use heapless::Vec;

use crate::data::shared::lmr::OPEN;
use crate::engine::Ia;
use crate::objects::lmr::MemType;
use crate::provider::{Mr, Provider};
use crate::types::bounds::{STEPS, next_batch};
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
        let mut one = [(lmr, None)];
        self.lmr_free_some(&mut one);
        let [(_, freed)] = one;
        freed.unwrap_or(Ok(()))
    }

    /// Ends several registrations as [`Ia::lmr_free`](Self::lmr_free) does, with the commands of
    /// several on their way to the device at the same time. What became of each stands behind it;
    /// one that is refused changes nothing, and nothing of the others.
    pub fn lmr_free_each(&mut self, mut all: &mut [(Lmr, Option<Result<(), Error>>)]) {
        while !all.is_empty() {
            self.lmr_free_some(next_batch(&mut all));
        }
    }

    /// Ends up to [`STEPS`] registrations, all different.
    fn lmr_free_some(&mut self, all: &mut [(Lmr, Option<Result<(), Error>>)]) {
        let mut lmrs = Vec::<_, STEPS>::new();
        for (lmr, freed) in &mut *all {
            match self.objects.lmrs.live(*lmr).map(|control| control.mem_type) {
                Ok(MemType::Ia) => {
                    *freed = Some(Err(Error::new(DatType::ReservedLmr, DatSubtype::None)));
                }
                Ok(_) => {
                    *freed = None;
                    let _ = lmrs.push(*lmr);
                }
                Err(ret) => *freed = Some(Err(ret.into())),
            }
        }
        let mut removed = self.lmr_remove_each(&lmrs).into_iter();
        for (_, freed) in all.iter_mut().filter(|(_, freed)| freed.is_none()) {
            *freed = removed.next();
        }
    }

    /// Ends a registration of any kind.
    pub(crate) fn lmr_remove(&mut self, lmr: Lmr) -> Result<(), Error> {
        self.lmr_remove_each(&[lmr]).pop().unwrap_or(Ok(()))
    }

    /// Ends up to [`STEPS`] registrations of any kind, all different. Returns what became of each.
    pub(crate) fn lmr_remove_each(&mut self, lmrs: &[Lmr]) -> Vec<Result<(), Error>, STEPS> {
        let (mut keys, mut vacated) = (Vec::<_, STEPS>::new(), Vec::<_, STEPS>::new());
        let mut results = Vec::new();
        for (place, lmr) in lmrs.iter().enumerate() {
            let result = match self.lmr_vacate(*lmr) {
                Ok(Some((mr, identity))) => {
                    let _ = keys.push((mr, Ok(())));
                    let _ = vacated.push((place, identity));
                    Ok(())
                }
                Ok(None) => Ok(()),
                Err(error) => Err(error),
            };
            let _ = results.push(result);
        }
        self.hca.mr_destroy_each(&mut keys);
        for ((_, destroyed), (place, identity)) in keys.iter().zip(vacated) {
            if let Some((result, lmr)) = results.get_mut(place).zip(lmrs.get(place)) {
                *result = self.lmr_over(*lmr, identity, *destroyed);
            }
        }
        results
    }

    /// Takes an LMR from the posters, unless it is in use. Returns its key, and what has to be put
    /// back if it stays.
    fn lmr_vacate(&self, lmr: Lmr) -> Result<Option<(Mr, u64)>, Error> {
        let control = self.objects.lmrs.live(lmr)?;
        let mr = Mr { rkey: control.rkey, ..control.mr };
        let Some(shared) = self.data.shared.lmrs.get(lmr.0.index() as usize) else {
            return Ok(None);
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
        Ok(Some((mr, identity)))
    }

    /// The key of an LMR is destroyed, or stays.
    fn lmr_over(
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
