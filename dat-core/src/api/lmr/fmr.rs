//! dat_lmr_fmr, of kDAPL: fast registration as a queued request.

use core::sync::atomic::Ordering;

use crate::data::key_edit::KeyEdit;
use crate::data::shared::lmr::{GENERAL, OPEN, zone};
use crate::engine::Ia;
use crate::engine::control::lmr::{check_privileges, context};
use crate::objects::lmr::PhysicalPages;
use crate::provider::{Provider, Region, Registration};
use crate::types::dat_return::{DatReturn, DatSubtype, DatType, Error};
use crate::types::flags::{CompletionFlags, MemPriv, VaType};
use crate::types::handle::{Ep, Lmr};

/// `lmr_context` and `rmr_context` that a fast registration makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contexts {
    /// What local triplets carry.
    pub lmr_context: u32,
    /// What a peer's triplets carry; 0 without a remote privilege.
    pub rmr_context: u32,
}

impl<P: Provider> Ia<'_, P> {
    /// Posts the registration of pages in an LMR of [`Ia::lmr_allocate`], and returns its new
    /// contexts. Requests posted behind it start after it, so they may use them; it completes
    /// as [`DtoOperation::LmrFmr`](crate::DtoOperation::LmrFmr), with `ERR_LOCAL_MM_ERROR` if
    /// the device refuses it.
    ///
    /// Endpoint: CONNECTED, or DISCONNECTED, where it is flushed. `INVALID_STATE`/`LMR_IN_USE`
    /// while the LMR is open, or a request on it is under way; `MODEL_NOT_SUPPORTED` if the
    /// Endpoint's request Event Dispatcher was made without
    /// [`EvdFlags::RMR_BIND`](crate::EvdFlags::RMR_BIND); `INVALID_PARAMETER` for an LMR
    /// that is not of [`Ia::lmr_allocate`], and pages as for [`Ia::lmr_kcreate`];
    /// `LENGTH_ERROR`; `PROTECTION_VIOLATION` if Endpoint and LMR are of different zones;
    /// privileges as for [`Ia::lmr_create`]; the rest as for [`crate::EpPoster::post_send`].
    #[doc(alias = "dat_lmr_fmr")]
    #[expect(clippy::too_many_arguments, reason = "those of the call")]
    pub fn lmr_fmr(
        &mut self,
        lmr: Lmr,
        memory: PhysicalPages<'_>,
        privileges: MemPriv,
        va_type: VaType,
        ep: Ep,
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<Contexts, Error> {
        let argument = |subtype| DatReturn::new(DatType::InvalidParameter, subtype);
        let slot = lmr.0.index();
        let control = self.objects.lmrs.live(lmr)?;
        let (mr, old_key, pz, turn) =
            (control.mr, control.rkey, control.pz, control.turn.wrapping_add(1));
        if control.pages == 0 {
            return Err(argument(DatSubtype::InvalidArg1).into());
        }
        let shared = self.data.shared;
        let Some(region_shared) = shared.lmrs.get(slot as usize) else {
            return Err(argument(DatSubtype::InvalidArg1).into());
        };
        if region_shared.bound.load(Ordering::Acquire) != 0 {
            return Err(Error::new(DatType::InvalidState, DatSubtype::InvalidStateLmrInUse));
        }
        if memory.len == 0 {
            return Err(Error::new(DatType::LengthError, DatSubtype::None));
        }
        let most = usize::try_from(control.pages).unwrap_or(usize::MAX);
        let region = memory
            .region()
            .filter(|_| memory.pages.len() <= most)
            .ok_or(argument(DatSubtype::InvalidArg3))?;
        check_privileges(privileges, self.hca.limits().registered_atomics)?;
        self.objects.eps.live(ep)?;
        // Nobody looks at the list before a request names it.
        let pages = self.hca.mr_pages(mr, memory.pages, memory.log_page)?;
        let start = va_type.start(region.addr);
        let (poster, shared, near) = self.posting(ep)?;
        let edit = KeyEdit::Register(Registration {
            old_key,
            new_key: old_key,
            start,
            len: region.len,
            access: privileges.access(),
            pages,
        });
        let zone = zone(pz.0.index());
        let new = context(slot, turn);
        let named = Region { addr: start, len: region.len };
        let key = poster.edit(shared, &near, (slot, zone), edit, cookie, flags, |key| {
            region_shared.bound.fetch_or(OPEN, Ordering::AcqRel);
            region_shared.occupy(new, zone | GENERAL, privileges, named, key);
        })?;
        if let Some(control) = self.objects.lmrs.get_mut(lmr.0) {
            control.editor = Some(ep);
            if let Some(key) = key {
                control.rkey = key;
                control.context = new;
                control.turn = turn;
                control.va_type = va_type;
                control.privileges = privileges;
                control.region = region;
            }
        }
        let remote = privileges.intersects(MemPriv::REMOTE | MemPriv::REMOTE_ATOMIC);
        Ok(Contexts { lmr_context: new, rmr_context: key.filter(|_| remote).unwrap_or(0) })
    }
}
