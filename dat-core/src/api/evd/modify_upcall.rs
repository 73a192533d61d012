//! dat_evd_modify_upcall(3), of kDAPL.

use crate::engine::{Ia, Upcall};
use crate::provider::Provider;
use crate::types::dat_return::{DatSubtype, DatType, Error};
use crate::types::flags::UpcallPolicy;
use crate::types::handle::Evd;

/// `DAT_UPCALL_FLAG`: for which events a change holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum UpcallFlag {
    /// Those that arrive from now on: what is queued already makes no upcall until another event
    /// arrives.
    InvocNew = 0,
    /// Those that are queued already too.
    InvocAny = 1,
}

/// An Event Dispatcher has either upcalls or a CNO and waits.
pub(crate) const NOT_BOTH: Error = Error::new(DatType::ModelNotSupported, DatSubtype::None);

impl<P: Provider> Ia<'_, P> {
    /// Changes the policy of upcalls, and whom they call unless that is `None`.
    ///
    /// `MODEL_NOT_SUPPORTED` for an Event Dispatcher that was not made by [`Ia::evd_kcreate`];
    /// `INVALID_STATE`/`EVD_IN_USE` for a teardown from within an upcall, which cannot return
    /// before itself.
    #[doc(alias = "dat_evd_modify_upcall")]
    pub fn evd_modify_upcall(
        &mut self,
        evd: Evd,
        policy: UpcallPolicy,
        upcall: Option<Upcall<P>>,
        flag: UpcallFlag,
    ) -> Result<(), Error> {
        let Some(upcalls) = &self.events.evds.live_mut(evd)?.upcalls else {
            return Err(NOT_BOTH);
        };
        if policy == UpcallPolicy::Teardown && upcalls.inside {
            return Err(Error::new(DatType::InvalidState, DatSubtype::InvalidStateEvdInUse));
        }
        if flag == UpcallFlag::InvocNew {
            self.overlook(evd);
        }
        if let Some(upcalls) = &mut self.events.evds.live_mut(evd)?.upcalls {
            upcalls.policy = policy;
            upcalls.pending = flag == UpcallFlag::InvocAny;
        }
        if let Some(called) = self.upcalls.get_mut(evd.0.index() as usize) {
            *called = upcall.or(*called);
        }
        self.events.look_at(evd);
        self.events.worked = true;
        Ok(())
    }
}
