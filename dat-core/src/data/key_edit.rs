//! Posting of edits of an LMR's key: fast registration and local invalidate. One general way,
//! beside the straight ones.

use core::sync::atomic::Ordering;

use crate::data::checks::admit;
use crate::data::general::{FULL, NOT_SERVED, PARAMETER};
use crate::data::poster::{Poster, kick};
use crate::data::shared::lmr::EDIT;
use crate::data::shared::request::{Op, Request};
use crate::data::shared::{Near, Shared};
use crate::provider::{Bind, PostFlags, Provider, Registration, SendQueue};
use crate::types::completion::Direction;
use crate::types::dat_return::{DatReturn, DatSubtype, DatType};
use crate::types::ep_state::{EpOp, REQUEST_OPEN};
use crate::types::flags::CompletionFlags;
use crate::types::random::next_key;

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
        let state = admit(near.ep, EpOp::PostRequest)?;
        if self.limits.datagram {
            return Err(NOT_SERVED);
        }
        let (op, old_key, bad_flags) = match edit {
            KeyEdit::Register(made) => (Op::Register, made.old_key, DatSubtype::InvalidArg9),
            KeyEdit::Invalidate(key) => (Op::Invalidate, key, DatSubtype::InvalidArg4),
        };
        if flags.intersects(self.limits.barred_request()) {
            return Err(DatReturn::new(PARAMETER, bad_flags));
        }
        if zone != self.limits.zone {
            return Err(DatReturn::of(DatType::ProtectionViolation));
        }
        let lmr = shared.lmrs.get(slot as usize).ok_or(FULL)?;
        self.credit(near.ep)?;
        let sequence = near.ep.poster.requests.load(Ordering::Relaxed);
        let (tag, post_flags) = self.how_aside(op, flags, false);
        let post_flags = post_flags.difference(PostFlags::SOLICITED);
        lmr.bound.fetch_add(EDIT, Ordering::AcqRel);
        let len = slot;
        let request = Request { cookie, len, tag };
        if !self.publish(near.ep, near.requests, sequence, request) {
            lmr.bound.fetch_sub(EDIT, Ordering::AcqRel);
            return Err(FULL);
        }
        if state.is_disconnected() {
            kick(shared, u32::from(self.ep), near.ep, Direction::Send);
            return Ok(None);
        }
        let new_key = next_key(old_key, self.random.next());
        apply(new_key);
        match edit {
            KeyEdit::Register(made) => {
                self.sq.register(&Registration { new_key, ..made }, post_flags)
            }
            KeyEdit::Invalidate(_) => {
                let close = Bind { old_rkey: old_key, new_rkey: new_key, ..Bind::default() };
                self.sq.bind(&close, post_flags)
            }
        };
        self.recheck(shared, near.ep, REQUEST_OPEN, Direction::Send);
        Ok(Some(new_key))
    }
}
