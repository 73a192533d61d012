//! Posting of edits of an LMR's key: fast registration and local invalidate.

use core::sync::atomic::Ordering;

use crate::data::poster::{INVALIDATE, Poster, REGISTER, kick};
use crate::data::shared::lmr::EDIT;
use crate::data::shared::{Near, Shared};
use crate::data::validate::FULL;
use crate::provider::{Bind, Provider, Registration, SendQueue, WorkRequest};
use crate::types::completion::Direction;
use crate::types::dat_return::{DatReturn, DatType};
use crate::types::ep_state::EpOp;
use crate::types::flags::CompletionFlags;

/// What is posted.
#[derive(Clone, Copy)]
pub(crate) enum KeyEdit {
    /// Opens it; the new key is chosen here.
    Register(Registration),
    /// Closes the key.
    Invalidate(u32),
}

impl<P: Provider> Poster<P> {
    /// Posts an edit of the LMR in that slot and zone, and returns its new key; none if the edit is
    /// flushed at once. `apply` is called with the new key before the device may see the
    /// request.
    #[expect(clippy::too_many_arguments, reason = "those of the two calls")]
    pub(crate) fn edit(
        &mut self,
        shared: &Shared<'_>,
        near: &Near<'_>,
        (slot, zone): (u32, u64),
        edit: KeyEdit,
        cookie: u64,
        flags: CompletionFlags,
        apply: impl FnOnce(u32),
    ) -> Result<Option<u32>, DatReturn> {
        let (rule, old_key) = match edit {
            KeyEdit::Register(made) => (&REGISTER, made.old_key),
            KeyEdit::Invalidate(key) => (&INVALIDATE, key),
        };
        let state = self.admit(near.ep, EpOp::PostRequest, rule, flags)?;
        if zone != self.core.zone {
            return Err(DatReturn::of(DatType::ProtectionViolation));
        }
        let lmr = shared.lmrs.get(slot as usize).ok_or(FULL)?;
        self.take_credit(near.ep)?;
        lmr.bound.fetch_add(EDIT, Ordering::AcqRel);
        let enqueued = self.enqueue(near, rule, (cookie, slot), flags, false);
        let post_flags = enqueued.inspect_err(|_| {
            lmr.bound.fetch_sub(EDIT, Ordering::AcqRel);
        })?;
        if state.is_disconnected() {
            kick(shared, self.ep, near.ep, Direction::Send);
            return Ok(None);
        }
        let new_key = shared.order.after(old_key);
        apply(new_key);
        match edit {
            KeyEdit::Register(made) => {
                let made = Registration { new_key, ..made };
                self.sq.post(WorkRequest::Register(&made), &[], post_flags)
            }
            KeyEdit::Invalidate(_) => {
                let close = Bind { old_rkey: old_key, new_rkey: new_key, ..Bind::default() };
                self.sq.post(WorkRequest::Bind(&close), &[], post_flags)
            }
        };
        self.recheck(shared, near.ep, Direction::Send);
        Ok(Some(new_key))
    }
}
