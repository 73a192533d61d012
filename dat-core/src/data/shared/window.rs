//! What a bind holds of its LMR, and how it lets go.

use core::sync::atomic::Ordering;

use crate::data::shared::lmr::{NO_CONTEXT, RmrShared};
use crate::data::shared::{Shared, lmr};
use crate::types::handle::{Handle, Rmr};

/// Ends an RMR's hold on the LMR of that context, which stays as long as it is held: its slot is
/// enough.
pub(crate) fn release(shared: &Shared<'_>, context: u32) {
    if let Some(old) = lmr::find(shared.lmrs, context) {
        old.bound.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The window belongs to the queue pair of an Endpoint, or to none (0): each Endpoint counts its
/// windows.
pub(crate) fn give_to(shared: &Shared<'_>, window: &RmrShared, ep: u64) {
    let count = |ep: u64| {
        let line = shared.ep(Handle::from_raw(ep).index()).filter(|_| ep != 0);
        line.map(|line| &line.slow.windows)
    };
    let before = window.set_holder(ep);
    if let Some(windows) = count(ep) {
        windows.fetch_add(1, Ordering::Relaxed);
    }
    if let Some(windows) = count(before) {
        windows.fetch_sub(1, Ordering::Relaxed);
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
