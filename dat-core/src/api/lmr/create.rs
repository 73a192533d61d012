//! dat_lmr_create(3).

use crate::api::lmr::query::LmrParam;
use crate::api::several::{Controlled, Job};
use crate::data::shared::lmr;
use crate::data::shared::lmr::{CONTEXT_BITS, GENERAL};
use crate::engine::Ia;
use crate::objects::lmr::{LmrControl, MemType, Memory};
use crate::provider::{Mr, MrInit, Pd, Provider, Region};
use crate::types::dat_return::{DatReturn, DatSubtype, DatType, Error};
use crate::types::fault::Fault;
use crate::types::flags::{MemPriv, VaType};
use crate::types::handle::{Handle, Lmr, Pz};

/// There is no room for another LMR.
pub(crate) const FULL: DatReturn =
    DatReturn::new(DatType::InsufficientResources, DatSubtype::ResourceMemoryRegion);

/// The `lmr_context` of a slot: the slot above, below it the generation, which is never 0.
pub(crate) fn context(slot: u32, generation: u32) -> u32 {
    let most = (1 << CONTEXT_BITS) - 1;
    slot << CONTEXT_BITS | (generation % most + 1)
}

/// What [`Control::LmrCreate`](crate::Control::LmrCreate) makes an LMR of: the arguments of
/// [`Ia::lmr_create_from`].
#[derive(Clone, Copy, Debug)]
pub struct LmrCreate<'a> {
    /// Its Protection Zone.
    pub pz: Pz,
    /// What is registered.
    pub memory: Memory<'a>,
    /// What it allows.
    pub privileges: MemPriv,
    /// How triplets name its first byte.
    pub va_type: VaType,
}

/// What a new LMR is, but for its key.
pub(crate) struct Wanted {
    pub(crate) pz: Pz,
    pub(crate) mem_type: MemType,
    pub(crate) va_type: VaType,
    pub(crate) region: Region,
    pub(crate) privileges: MemPriv,
    /// Most pages of a fast registration; 0 if it is not for those.
    pub(crate) pages: u32,
}

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
        match self.control_one(self.lifecycle.clock, Job::LmrCreate(create))? {
            Controlled::Lmr(made) => Ok(made),
            Controlled::Ep(_) | Controlled::Freed => Err(FULL.into()),
        }
    }

    /// Checks what an LMR is to be made of, and takes a slot for it. Returns what its key is made of.
    pub(in crate::api) fn lmr_reserve_from(
        &mut self,
        create: &LmrCreate<'_>,
    ) -> Result<(Lmr, MrInit), Error> {
        let wanted = self.lmr_wanted(create)?;
        let (lmr, pd) = self.lmr_reserve(&wanted)?;
        let Wanted { region, privileges, va_type, .. } = wanted;
        let (start, access) = (va_type.start(region.addr), privileges.access());
        Ok((lmr, MrInit { pd, region, start, access }))
    }

    /// Checks what an LMR is to be made of.
    fn lmr_wanted(&self, create: &LmrCreate<'_>) -> Result<Wanted, Error> {
        let LmrCreate { pz, memory, privileges, va_type } = *create;
        self.objects.pzs.live(pz)?;
        let (mem_type, region) = match memory {
            Memory::Virtual(region) => (MemType::Virtual, region),
            Memory::Lmr(lmr) => {
                let below = self.objects.lmrs.live(lmr)?;
                if !below.mem_type.is_of_host() {
                    return Err(Error::new(DatType::ModelNotSupported, DatSubtype::None));
                }
                (MemType::Lmr, below.region)
            }
            Memory::SharedVirtual(region, name) => {
                let piece = self.hca.shared_memory(name);
                let inside = |piece: Region| {
                    let offset = region.addr.checked_sub(piece.addr)?;
                    (offset <= piece.len.checked_sub(region.len)?).then_some(())
                };
                if region.len != 0 && piece.and_then(inside).is_none() {
                    return Err(Error::new(DatType::InvalidState, DatSubtype::None));
                }
                (MemType::SharedVirtual, region)
            }
        };
        if region.len == 0 {
            return Err(Error::new(DatType::LengthError, DatSubtype::None));
        }
        if region.addr.checked_add(region.len).is_none()
            || region.len > self.hca.limits().max_region
        {
            return Err(Error::new(DatType::InvalidParameter, DatSubtype::InvalidArg4));
        }
        Ok(Wanted { pz, mem_type, va_type, region, privileges, pages: 0 })
    }

    /// Enters an LMR under the key that `make` gets for it.
    pub(super) fn lmr_enter(
        &mut self,
        wanted: &Wanted,
        make: impl FnOnce(&mut P, Pd) -> Result<Mr, Fault>,
    ) -> Result<LmrParam, Error> {
        let (lmr, pd) = self.lmr_reserve(wanted)?;
        let made = make(&mut self.hca, pd);
        self.lmr_finish(lmr, made)
    }

    /// Takes a slot for an LMR that gets its key later.
    fn lmr_reserve(&mut self, wanted: &Wanted) -> Result<(Lmr, Pd), Error> {
        let pd = self.objects.pzs.live(wanted.pz)?.pd;
        check_privileges(wanted.privileges, self.hca.limits().atomics)?;
        let handle: Handle = self.objects.lmrs.vacant().ok_or(FULL)?;
        let context = context(handle.index(), handle.generation());
        let Wanted { pz, mem_type, va_type, region, privileges, pages } = *wanted;
        let mr = Mr { lkey: 0, rkey: 0 };
        let control = LmrControl {
            pz,
            mr,
            rkey: mr.rkey,
            mem_type,
            va_type,
            region,
            privileges,
            context,
            pages,
            // Far from those of the next LMRs here.
            turn: handle.generation().wrapping_add(1 << (CONTEXT_BITS - 1)),
            editor: None,
        };
        let lmr = self.objects.lmrs.insert(control).map(Lmr).ok_or(FULL)?;
        Ok((lmr, pd))
    }

    /// An LMR has got its key, or none.
    pub(in crate::api) fn lmr_finish(
        &mut self,
        lmr: Lmr,
        made: Result<Mr, Fault>,
    ) -> Result<LmrParam, Error> {
        let mr = match made {
            Ok(mr) => mr,
            Err(fault) => {
                self.objects.lmrs.undo(lmr.0);
                return Err(fault.into());
            }
        };
        let control = self.objects.lmrs.live_mut(lmr)?;
        control.mr = mr;
        control.rkey = mr.rkey;
        let LmrControl { pz, mem_type, va_type, region, privileges, context, pages, .. } = *control;
        if let Some(shared) = self.data.shared.lmrs.get(lmr.0.index() as usize)
            && pages == 0
        {
            let zone = lmr::zone(pz.0.index());
            let own = mem_type.is_of_host() && va_type == VaType::Va;
            let zone = if own { zone } else { zone | GENERAL };
            let named = Region { addr: va_type.start(region.addr), len: region.len };
            shared.occupy(context, zone, privileges, named, mr.lkey);
            // The next request is often of the newest LMR.
            self.data.last_lmr = shared;
        }
        self.objects.pzs.hold(Some(pz));
        self.lmr_query(lmr)
    }
}

/// Whether those privileges can be given, and go together.
pub(super) fn check_privileges(privileges: MemPriv, atomics: bool) -> Result<(), DatReturn> {
    if privileges.contains(MemPriv::REMOTE_ATOMIC) && !atomics {
        return Err(DatReturn::of(DatType::ModelNotSupported));
    }
    if !MemPriv::all().contains(privileges) {
        let subtype = DatSubtype::InvalidArg6;
        return Err(DatReturn::new(DatType::InvalidParameter, subtype));
    }
    let changed = MemPriv::REMOTE_WRITE | MemPriv::REMOTE_ATOMIC;
    if privileges.intersects(changed) && !privileges.contains(MemPriv::LOCAL_WRITE) {
        let subtype = DatSubtype::PrivilegesWrite;
        return Err(DatReturn::new(DatType::PrivilegesViolation, subtype));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::boxed::Box;

    use super::*;
    use crate::engine::storage::Storage;
    use crate::provider::Net;
    use crate::testing::fabric::Fabric;
    use crate::testing::hca::LoopHca;
    use crate::types::time::Instant;
    use crate::types::triplet::LmrTriplet;

    /// The device reads what the host cannot.
    #[test]
    fn only_addresses_of_the_host_are_read_by_it() {
        let fabric = Fabric::new();
        let mut storage = Box::new(Storage::<_, 4, 4, 4, 8, 16>::new());
        let net = Net { addr: [10, 0, 0, 1].into(), prefix: 24, gateway: None, vlan: None };
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
