//! What making and freeing an LMR does before and behind its command.

use core::sync::atomic::Ordering;

use crate::data::shared::lmr;
use crate::data::shared::lmr::{CONTEXT_BITS, GENERAL, OPEN};
use crate::engine::Ia;
use crate::objects::lmr::{LmrControl, MemType, Memory};
use crate::objects::table::Kind;
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

/// An LMR has got its key, or none.
pub(crate) fn lmr_finish<P: Provider>(
    ia: &mut Ia<'_, P>,
    lmr: Lmr,
    made: Result<Mr, Fault>,
) -> Result<(), Error> {
    let mr = match made {
        Ok(mr) => mr,
        Err(fault) => {
            ia.objects.lmrs.undo(lmr.0);
            return Err(fault.into());
        }
    };
    let control = ia.objects.lmrs.live_mut(lmr)?;
    control.mr = mr;
    control.rkey = mr.rkey;
    let LmrControl { pz, mem_type, va_type, region, privileges, context, pages, .. } = *control;
    if let Some(shared) = ia.data.shared.lmrs.get(lmr.0.index() as usize) {
        if pages == 0 {
            let zone = lmr::zone(pz.0.index());
            let own = mem_type.is_of_host() && va_type == VaType::Va;
            let zone = if own { zone } else { zone | GENERAL };
            let named = Region { addr: va_type.start(region.addr), len: region.len };
            shared.occupy(context, zone, privileges, named, mr.lkey);
            // The next request is often of the newest LMR.
            ia.data.last_lmr = shared;
        }
    }
    ia.objects.pzs.hold(Some(pz));
    Ok(())
}

/// Takes a slot for an LMR that gets its key later.
pub(crate) fn lmr_reserve<P: Provider>(
    ia: &mut Ia<'_, P>,
    wanted: &Wanted,
) -> Result<(Lmr, Pd), Error> {
    let pd = ia.objects.pzs.live(wanted.pz)?.pd;
    check_privileges(wanted.privileges, ia.hca.limits().atomics)?;
    let handle: Handle = ia.objects.lmrs.vacant().ok_or(FULL)?;
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
    let lmr = ia.objects.lmrs.insert(control).map(Lmr).ok_or(FULL)?;
    Ok((lmr, pd))
}

/// Checks what an LMR is to be made of.
fn lmr_wanted<P: Provider>(ia: &Ia<'_, P>, create: &LmrCreate<'_>) -> Result<Wanted, Error> {
    let LmrCreate { pz, memory, privileges, va_type } = *create;
    ia.objects.pzs.live(pz)?;
    let (mem_type, region) = match memory {
        Memory::Virtual(region) => (MemType::Virtual, region),
        Memory::Lmr(lmr) => {
            let below = ia.objects.lmrs.live(lmr)?;
            if !below.mem_type.is_of_host() {
                return Err(Error::new(DatType::ModelNotSupported, DatSubtype::None));
            }
            (MemType::Lmr, below.region)
        }
        Memory::SharedVirtual(region, name) => {
            let piece = ia.hca.shared_memory(name);
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
    if region.addr.checked_add(region.len).is_none() || region.len > ia.hca.limits().max_region {
        return Err(Error::new(DatType::InvalidParameter, DatSubtype::InvalidArg4));
    }
    Ok(Wanted { pz, mem_type, va_type, region, privileges, pages: 0 })
}

/// Checks what an LMR is to be made of, and takes a slot for it. Returns what its key is made of.
pub(crate) fn lmr_reserve_from<P: Provider>(
    ia: &mut Ia<'_, P>,
    create: &LmrCreate<'_>,
) -> Result<(Lmr, MrInit), Error> {
    let wanted = lmr_wanted(ia, create)?;
    let (lmr, pd) = lmr_reserve(ia, &wanted)?;
    let Wanted { region, privileges, va_type, .. } = wanted;
    let (start, access) = (va_type.start(region.addr), privileges.access());
    Ok((lmr, MrInit { pd, region, start, access }))
}

/// Whether those privileges can be given, and go together.
pub(crate) fn check_privileges(privileges: MemPriv, atomics: bool) -> Result<(), DatReturn> {
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

/// The key of an LMR is destroyed, or stays.
pub(crate) fn lmr_over<P: Provider>(
    ia: &mut Ia<'_, P>,
    lmr: Lmr,
    identity: u64,
    destroyed: Result<(), Fault>,
) -> Result<(), Error> {
    let control = ia.objects.lmrs.live(lmr)?;
    let (pz, reserved) = (control.pz, control.mem_type == MemType::Ia);
    if let Some(shared) = ia.data.shared.lmrs.get(lmr.0.index() as usize) {
        if let Err(fault) = destroyed {
            shared.restore(identity);
            return Err(fault.into());
        }
        // The next LMR here begins with a key of its own.
        shared.bound.fetch_and(!OPEN, Ordering::AcqRel);
    }
    ia.objects.lmrs.remove(lmr.0);
    if !reserved {
        ia.objects.pzs.release(Some(pz));
    }
    Ok(())
}

/// Takes an LMR from the posters, unless it is in use. Returns its key, and what has to be put
/// back if it stays.
pub(crate) fn lmr_vacate<P: Provider>(ia: &Ia<'_, P>, lmr: Lmr) -> Result<(Mr, u64), Error> {
    let control = ia.objects.lmrs.live(lmr)?;
    let mr = Mr { rkey: control.rkey, ..control.mr };
    let Some(shared) = ia.data.shared.lmrs.get(lmr.0.index() as usize) else {
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

/// Whether the consumer may free an LMR.
pub(crate) fn may_free_lmr<P: Provider>(ia: &Ia<'_, P>, lmr: Lmr) -> Result<(), Error> {
    if ia.objects.lmrs.live(lmr)?.mem_type == MemType::Ia {
        return Err(Error::new(DatType::ReservedLmr, DatSubtype::None));
    }
    Ok(())
}
