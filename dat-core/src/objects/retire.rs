//! Slots of freed RMRs, which come back when the last completion of a bind has been dequeued.

use core::sync::atomic::Ordering;

use crate::data::shared::lmr::RmrShared;
use crate::objects::Objects;
use crate::objects::rmr::RmrControl;
use crate::types::handle::Handle;

impl Objects<'_> {
    /// Gives back the slots of freed RMRs whose last completion has been dequeued.
    pub(crate) fn rmr_retire(&mut self) {
        let shared = self.shared;
        let idle = |window: &RmrShared| window.binds.load(Ordering::SeqCst) == 0;
        let done = |(handle, control): (Handle, &RmrControl)| {
            let window = shared.rmrs.get(handle.index() as usize);
            (control.freed && window.is_some_and(idle)).then_some(handle)
        };
        loop {
            let found = self.rmrs.iter().find_map(done);
            let Some(rmr) = found else { return };
            self.rmrs.remove(rmr);
        }
    }
}
