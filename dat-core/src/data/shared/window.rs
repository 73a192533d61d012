//! What a bind holds of its LMR, and how it lets go.

use core::sync::atomic::Ordering;

use crate::data::shared::lmr::NO_CONTEXT;
use crate::data::shared::{Shared, lmr};
use crate::types::handle::Rmr;

/// Ends an RMR's hold on the LMR of that context, which lives as long as it is held: its slot is
/// enough.
pub(crate) fn release(shared: &Shared<'_>, context: u32) {
    if let Some(old) = lmr::find(shared.lmrs, context) {
        old.bound.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Notes that an RMR is bound to nothing.
pub(crate) fn unbound(shared: &Shared<'_>, rmr: &Rmr) {
    if let Some(window) = shared.rmrs.get(rmr.0.index() as usize) {
        let context = window.lmr_context.swap(NO_CONTEXT, Ordering::SeqCst);
        window.len.store(0, Ordering::Relaxed);
        release(shared, context);
    }
}

/// Notes that a message of a peer has closed the window of that key, and says whose it was. `None`
/// if no RMR has that key, or not any more.
pub(crate) fn invalidated(shared: &Shared<'_>, rkey: u32) -> Option<Rmr> {
    let rmr = shared.keys.find(rkey)?.owner()?;
    unbound(shared, &rmr);
    Some(rmr)
}
