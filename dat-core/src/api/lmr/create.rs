//! dat_lmr_create(3).

use crate::api::lmr::query::LmrParam;
use crate::engine::Ia;
use crate::engine::control::lmr::{FULL, LmrCreate, Wanted, lmr_finish, lmr_reserve};
use crate::engine::control::{Controlled, Job, control_one};
use crate::objects::lmr::Memory;
use crate::provider::{Mr, Pd, Provider, Region};
use crate::types::dat_return::Error;
use crate::types::fault::Fault;
use crate::types::flags::{MemPriv, VaType};
use crate::types::handle::Pz;

impl<P: Provider> Ia<'_, P> {
    /// Registers memory (`DAT_MEM_TYPE_VIRTUAL`), and says what came of it; see
    /// [`Ia::lmr_create_from`].
    #[doc(alias = "dat_lmr_create")]
    pub fn lmr_create(
        &mut self,
        pz: Pz,
        region: Region,
        privileges: MemPriv,
    ) -> Result<LmrParam, Error> {
        self.lmr_create_from(pz, Memory::Virtual(region), privileges, VaType::Va)
    }

    /// Registers memory of any type, and says what came of it. Triplets name the first byte by its
    /// address, or by 0 if the LMR is zero-based.
    ///
    /// `INVALID_HANDLE`; `LENGTH_ERROR` for no bytes; `INVALID_PARAMETER` for a range that wraps,
    /// unknown privileges, or memory that the platform does not give to the device;
    /// `INVALID_STATE` for shared memory that the host does not share under that name;
    /// `PRIVILEGES_VIOLATION` for REMOTE_WRITE or REMOTE_ATOMIC without LOCAL_WRITE;
    /// `MODEL_NOT_SUPPORTED` for REMOTE_ATOMIC where the adapter has no atomics, and for an LMR
    /// over one that is not of memory of the host; `INSUFFICIENT_RESOURCES`.
    #[doc(alias = "dat_lmr_create")]
    pub fn lmr_create_from(
        &mut self,
        pz: Pz,
        memory: Memory<'_>,
        privileges: MemPriv,
        va_type: VaType,
    ) -> Result<LmrParam, Error> {
        let create = LmrCreate { pz, memory, privileges, va_type };
        match control_one(self, self.lifecycle.clock, Job::LmrCreate(create))? {
            Controlled::Lmr(lmr) => self.lmr_query(lmr),
            Controlled::Ep(_) | Controlled::Freed => Err(FULL.into()),
        }
    }

    /// Enters an LMR under the key that `make` gets for it.
    pub(super) fn lmr_enter(
        &mut self,
        wanted: &Wanted,
        make: impl FnOnce(&mut P, Pd) -> Result<Mr, Fault>,
    ) -> Result<LmrParam, Error> {
        let (lmr, pd) = lmr_reserve(self, wanted)?;
        let made = make(&mut self.hca, pd);
        lmr_finish(self, lmr, made)?;
        self.lmr_query(lmr)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::boxed::Box;

    use super::*;
    use crate::data::shared::lmr;
    use crate::engine::storage::Storage;
    use crate::provider::Net;
    use crate::testing::fabric::Fabric;
    use crate::testing::hca::LoopHca;
    use crate::types::handle::Lmr;
    use crate::types::time::Instant;
    use crate::types::triplet::LmrTriplet;

    /// The device reads what the host cannot.
    #[test]
    fn only_addresses_of_the_host_are_read_by_it() {
        let fabric = Fabric::new();
        let mut storage = Box::new(Storage::<_, 4, 4, 4, 8, 16>::new());
        let net = Net::new([10, 0, 0, 1].into(), 24);
        let hca = LoopHca::new(&fabric, 0);
        let mut ia = Ia::open(hca, storage.parts(), net, Instant::ZERO, [1; 32]).unwrap();
        let (pz, region) = (ia.pz_create().unwrap(), fabric.region(0));
        let below = ia.lmr_create(pz, region, MemPriv::ALL).unwrap().lmr;
        for (memory, va_type, of_host) in [
            (Memory::Virtual(region), VaType::Va, true),
            (Memory::Virtual(region), VaType::Zb, false),
            (Memory::Lmr(below), VaType::Va, true),
        ] {
            let made = ia.lmr_create_from(pz, memory, MemPriv::ALL, va_type).unwrap();
            let addr = va_type.start(region.addr);
            let triplet = LmrTriplet { addr, len: 8, context: made.lmr_context };
            let found = lmr::find(ia.data.shared.lmrs, triplet.context).unwrap();
            let found = found.any(&triplet, lmr::zone(pz.0.index()), MemPriv::LOCAL_READ);
            assert_eq!(found, Ok((made_key(&ia, made.lmr), of_host)));
            ia.lmr_free(made.lmr).unwrap();
        }
    }

    fn made_key(ia: &Ia<'_, LoopHca<'_>>, lmr: Lmr) -> u32 {
        ia.objects.lmrs.live(lmr).unwrap().mr.lkey
    }
}
