//! dat_lmr_create(3).

use super::{LmrControl, LmrParam};
use crate::Ia;
use crate::dat_return::{DatSubtype, DatType, Error};
use crate::flags::MemPriv;
use crate::handle::{Handle, Lmr, Pz};
use crate::provider::{Provider, Region};
use crate::shared::lmr::{self, CONTEXT_BITS};

/// The `lmr_context` of a handle: slot above, generation below, which is never 0.
pub(super) fn context(handle: Handle) -> u32 {
    let most = (1 << CONTEXT_BITS) - 1;
    handle.index() << CONTEXT_BITS | (handle.generation() % most + 1)
}

impl<P: Provider> Ia<'_, P> {
    /// Registers memory (`DAT_MEM_TYPE_VIRTUAL`), and says what came of it.
    ///
    /// `INVALID_HANDLE`; `LENGTH_ERROR` for no bytes; `INVALID_PARAMETER` for a range that wraps, unknown privileges, or
    /// memory that the platform does not give to the device; `PRIVILEGES_VIOLATION` for REMOTE_WRITE or REMOTE_ATOMIC without
    /// LOCAL_WRITE; `MODEL_NOT_SUPPORTED` for REMOTE_ATOMIC where the adapter has no atomics;
    /// `INSUFFICIENT_RESOURCES`.
    #[doc(alias = "dat_lmr_create")]
    pub fn lmr_create(
        &mut self,
        pz: Pz,
        region: Region,
        privileges: MemPriv,
    ) -> Result<LmrParam, Error> {
        let pd = self.pz(pz)?.pd;
        if region.len == 0 {
            return Err(Error::new(DatType::LengthError, DatSubtype::None));
        }
        if region.addr.checked_add(region.len).is_none()
            || region.len > self.provider.limits().max_region
        {
            return Err(Error::new(
                DatType::InvalidParameter,
                DatSubtype::InvalidArg4,
            ));
        }
        if privileges.contains(MemPriv::REMOTE_ATOMIC) && !self.provider.limits().atomics {
            return Err(Error::new(DatType::ModelNotSupported, DatSubtype::None));
        }
        if !MemPriv::all().contains(privileges) {
            return Err(Error::new(
                DatType::InvalidParameter,
                DatSubtype::InvalidArg6,
            ));
        }
        let changed = MemPriv::REMOTE_WRITE | MemPriv::REMOTE_ATOMIC;
        if privileges.intersects(changed) && !privileges.contains(MemPriv::LOCAL_WRITE) {
            let subtype = DatSubtype::PrivilegesWrite;
            return Err(Error::new(DatType::PrivilegesViolation, subtype));
        }
        let full = Error::new(
            DatType::InsufficientResources,
            DatSubtype::ResourceMemoryRegion,
        );
        let handle = self.lmrs.vacant().ok_or(full)?;
        let mr = self.provider.mr_create(pd, region, privileges.access())?;
        let context = context(handle);
        let control = LmrControl {
            pz,
            mr,
            region,
            privileges,
            context,
        };
        let made = self.lmrs.insert(control).map(Lmr).ok_or(full)?;
        if let Some(shared) = self.shared.lmrs.get(handle.index() as usize) {
            let zone = lmr::zone(pz.0.index());
            shared.occupy(context, zone, privileges, region, mr.lkey);
        }
        self.hold(Some(pz));
        self.lmr_query(made)
    }
}
