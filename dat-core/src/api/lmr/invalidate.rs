//! dat_lmr_invalidate, of kDAPL: the end of a fast registration as a queued request.

use core::sync::atomic::Ordering;

use crate::data::key_edit::KeyEdit;
use crate::data::shared::lmr::{EDIT, OPEN, zone};
use crate::engine::Ia;
use crate::provider::Provider;
use crate::types::dat_return::{DatReturn, DatSubtype, DatType, Error};
use crate::types::flags::CompletionFlags;
use crate::types::handle::{Ep, Lmr};

impl<P: Provider> Ia<'_, P> {
    /// Posts the end of the registration that [`Ia::lmr_fmr`] made. Local posts are refused its
    /// context at once, peers when it has completed, as
    /// [`DtoOperation::LmrInvalidate`](crate::DtoOperation::LmrInvalidate). Requests posted behind
    /// it start after it.
    ///
    /// Endpoint and errors as for [`Ia::lmr_fmr`]; `INVALID_STATE`/`LMR_FREE` if the LMR is not
    /// open, `LMR_IN_USE` while RMRs are bound to it, or its registration is under way on
    /// another Endpoint, whose requests are in no order with these. If it does not
    /// succeed, peers may still reach the memory: post it again on another Endpoint, or free the
    /// LMR.
    #[doc(alias = "dat_lmr_invalidate")]
    pub fn lmr_invalidate(
        &mut self,
        lmr: Lmr,
        ep: Ep,
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<(), Error> {
        let slot = lmr.0.index();
        let control = self.objects.lmrs.live(lmr)?;
        let (key, pz, editor) = (control.rkey, control.pz, control.editor);
        let argument = DatReturn::new(DatType::InvalidParameter, DatSubtype::InvalidArg1);
        if control.pages == 0 {
            return Err(argument.into());
        }
        let shared = self.data.shared;
        let Some(region) = shared.lmrs.get(slot as usize) else {
            return Err(argument.into());
        };
        let bound = region.bound.load(Ordering::Acquire);
        let elsewhere = bound >= EDIT && editor != Some(ep);
        let state = if bound & OPEN == 0 {
            Some(DatSubtype::InvalidStateLmrFree)
        } else if bound & (OPEN - 1) != 0 || elsewhere {
            Some(DatSubtype::InvalidStateLmrInUse)
        } else {
            None
        };
        if let Some(subtype) = state {
            return Err(Error::new(DatType::InvalidState, subtype));
        }
        let (poster, shared, near) = self.posting(ep)?;
        let zone = zone(pz.0.index());
        let edit = KeyEdit::Invalidate(key);
        let new = poster.edit(shared, &near, (slot, zone), edit, cookie, flags, |_| {
            region.vacate();
        })?;
        if let Some(control) = self.objects.lmrs.get_mut(lmr.0) {
            control.editor = Some(ep);
            control.rkey = new.unwrap_or(control.rkey);
        }
        Ok(())
    }
}
