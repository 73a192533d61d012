//! Ends of requests: their events, and what they mean to the RMR or LMR that they were about.

use core::sync::atomic::Ordering;

use crate::data::shared::Shared;
use crate::data::shared::ep::EpShared;
use crate::data::shared::lmr::{EDIT, OPEN};
use crate::data::shared::request::{Completes, Request};
use crate::types::event::{DtoEvent, DtoOperation, DtoStatus, Event, IbDtoEvent};
use crate::types::handle::Rmr;

/// The event of a request that is done with, if it has one.
pub(crate) fn finish(
    shared: &Shared<'_>,
    index: u32,
    ep: &EpShared,
    Request { cookie, len, tag }: Request,
    status: DtoStatus,
) -> Option<Event> {
    let success = status == DtoStatus::Success;
    let handle = ep.request.handle();
    let dto = |operation, status, len| {
        Event::Dto(DtoEvent { ep: handle, cookie, status, len, operation })
    };
    // What a request on a key failed of, if not with the connection.
    let failed_of = |reason| {
        if success || status == DtoStatus::ErrFlushed { status } else { reason }
    };
    let bytes = if success { len } else { 0 };
    let event = match tag.op().completes() {
        Completes::Dto(operation) => dto(operation, status, bytes),
        Completes::Extended(operation) => {
            let event = IbDtoEvent::new(handle, cookie, status, bytes, operation);
            Event::IbDto(event)
        }
        Completes::Register => {
            register_done(shared, len, success);
            dto(DtoOperation::LmrFmr, failed_of(DtoStatus::ErrLocalMmError), 0)
        }
        Completes::Invalidate => {
            invalidate_done(shared, len, success);
            dto(DtoOperation::LmrInvalidate, failed_of(DtoStatus::ErrLocalMmError), 0)
        }
        Completes::Bind => Event::RmrBind {
            rmr: bind_done(shared, index, ep, len)?,
            cookie,
            status: failed_of(DtoStatus::RmrOperationFailed),
        },
    };
    let silent = success && tag.is_suppressed();
    (!silent).then_some(event)
}

/// Accounts for the end of a suppressed request, which has no event.
pub(crate) fn complete_suppressed(
    shared: &Shared<'_>,
    index: u32,
    ep: &EpShared,
    request: Request,
    success: bool,
) {
    let slot = request.len;
    match request.tag.op().completes() {
        Completes::Bind => {
            let _ = bind_done(shared, index, ep, slot);
        }
        Completes::Register => register_done(shared, slot, success),
        Completes::Invalidate => invalidate_done(shared, slot, success),
        Completes::Dto(_) | Completes::Extended(_) => {}
    }
}

/// Counts a bind as completed. The RMR that it was of, freed since or not; none if there is no such
/// bind.
#[inline]
pub(super) fn bind_done(shared: &Shared<'_>, index: u32, ep: &EpShared, slot: u32) -> Option<Rmr> {
    let window = shared.rmrs.get(slot as usize)?;
    window.binds.fetch_sub(1, Ordering::AcqRel);
    let (rmr, freed) = window.named()?;
    if freed {
        // With the last of them the slot is free.
        shared.work.push(index, &ep.slow.work);
    }
    Some(rmr)
}

/// Counts a fast registration of the LMR in that slot as completed.
fn register_done(shared: &Shared<'_>, slot: u32, success: bool) {
    let Some(lmr) = shared.lmrs.get(slot as usize) else {
        return;
    };
    if !success {
        // What it was to open is not, as far as local posts are concerned; peers may be able to
        // tell more.
        lmr.vacate();
    }
    lmr.bound.fetch_sub(EDIT, Ordering::AcqRel);
}

/// Counts the end of one as completed.
fn invalidate_done(shared: &Shared<'_>, slot: u32, success: bool) {
    let Some(lmr) = shared.lmrs.get(slot as usize) else {
        return;
    };
    if success {
        lmr.bound.fetch_and(!OPEN, Ordering::AcqRel);
    }
    lmr.bound.fetch_sub(EDIT, Ordering::AcqRel);
}
