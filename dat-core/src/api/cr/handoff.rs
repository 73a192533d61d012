//! dat_cr_handoff(3).

use crate::engine::Ia;
use crate::engine::establish::port;
use crate::provider::Provider;
use crate::types::dat_return::{DatSubtype, DatType, Error};
use crate::types::handle::Cr;
use crate::types::time::Instant;

impl<P: Provider> Ia<'_, P> {
    /// Hands a request to another service point of this adapter, where it arrives as a new one with
    /// the same private data. The handle dies; its Endpoint is free again, or goes if it was
    /// made for it.
    ///
    /// `INVALID_HANDLE`; `INVALID_PARAMETER` for a qualifier that nobody else listens on, and of a
    /// request for datagrams for one that is for connections only: every other than a PSP of
    /// the consumer's; `INSUFFICIENT_RESOURCES` if the other service point takes no more. A
    /// refused call changes nothing.
    #[doc(alias = "dat_cr_handoff")]
    pub fn cr_handoff(&mut self, now: Instant, cr: Cr, conn_qual: u64) -> Result<(), Error> {
        let control = self.objects.crs.live(cr)?;
        let (conn, request, from) = (control.conn, control.request, control.listener);
        let target = port(conn_qual).and_then(|port| self.objects.listener(port));
        let looks_up = control.looks_up();
        let takes = |target| !looks_up || self.objects.for_look_ups(target).is_ok();
        let target = target
            .filter(|target| *target != from && !self.objects.is_spent(*target) && takes(*target))
            .ok_or(Error::new(DatType::InvalidParameter, DatSubtype::InvalidArg2))?;
        self.cr_may_leave(cr)?;
        let new = if looks_up {
            self.present_look_up(target, &request, conn)
        } else {
            self.present(target, &request, conn)
        };
        let full = Error::new(DatType::InsufficientResources, DatSubtype::ResourceMemory);
        let new = new.map_err(|_| full)?;
        let old = self.objects.crs.get_mut(cr.0);
        let said = old.map(|control| (core::mem::take(&mut control.private), control.asker));
        if let (Some(said), Some(control)) = (said, self.objects.crs.get_mut(new.0)) {
            (control.private, control.asker) = said;
        }
        self.cr_leaves(now, cr)
    }
}
