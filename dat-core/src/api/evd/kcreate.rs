//! dat_evd_kcreate(3), of kDAPL: an Event Dispatcher that makes upcalls instead of being waited
//! for.

use crate::engine::Ia;
use crate::objects::evd::Upcalls;
use crate::provider::Provider;
use crate::types::dat_return::Error;
use crate::types::flags::EvdFlags;
use crate::types::handle::Evd;
use crate::{Upcall, UpcallPolicy};

impl<P: Provider> Ia<'_, P> {
    /// Makes an Event Dispatcher that calls `upcall` with each of its events; without one, when one
    /// has been given by [`Ia::evd_modify_upcall`]. It can be dequeued from as any other.
    /// Errors as for [`Ia::evd_create`].
    #[doc(alias = "dat_evd_kcreate")]
    pub fn evd_kcreate(
        &mut self,
        min_qlen: u32,
        policy: UpcallPolicy,
        upcall: Option<Upcall<P>>,
        flags: EvdFlags,
    ) -> Result<Evd, Error> {
        let upcalls = Upcalls { policy, pending: false, inside: false };
        let evd = self.evd_make(min_qlen, flags, Some(upcalls))?;
        self.events.look_at(evd);
        if let Some(called) = self.upcalls.get_mut(evd.0.index() as usize) {
            *called = upcall;
        }
        Ok(evd)
    }
}
