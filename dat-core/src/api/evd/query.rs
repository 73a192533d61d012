//! dat_evd_query(3).

use crate::data::shared::evd::{EvdShared, WAITED};
use crate::engine::Ia;
use crate::objects::evd::EvdControl;
use crate::provider::Provider;
use crate::types::dat_return::{DatSubtype, Error};
use crate::types::flags::{CompletionFlags, EvdFlags, EvdState, UpcallPolicy};
use crate::types::handle::{Cno, Evd};

/// `DAT_EVD_PARAM`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EvdParam {
    /// Events it has room for; at least what was asked.
    pub qlen: u32,
    /// Enabled or not, waitable or not, and who decides which completions notify.
    pub state: EvdState,
    /// Its CNO.
    pub cno: Option<Cno>,
    /// The streams it takes.
    pub flags: EvdFlags,
    /// kDAPL: when it makes upcalls, if it was made for them.
    pub policy: Option<UpcallPolicy>,
    /// Events in its ring now. Completions still in the device's queue are not counted.
    pub queued: u32,
    /// Somebody waits for it.
    pub waiter: bool,
    /// The reaping half is with another thread.
    pub reaper_out: bool,
}

impl<P: Provider> Ia<'_, P> {
    /// What the Event Dispatcher is.
    #[doc(alias = "dat_evd_query")]
    pub fn evd_query(&self, evd: Evd) -> Result<EvdParam, Error> {
        let control = self.events.evd(evd, DatSubtype::InvalidHandle1)?;
        let ring = self.events.ring(evd);
        Ok(EvdParam {
            qlen: control.qlen,
            state: state(control, self.events.completion_type(evd)),
            cno: control.cno,
            flags: control.flags,
            policy: control.upcalls.as_ref().map(|upcalls| upcalls.policy),
            queued: ring.map_or(0, EvdShared::queued),
            waiter: ring.is_some_and(|ring| ring.barred() & WAITED != 0),
            reaper_out: self.events.reaper_is_out(&self.data, evd.0),
        })
    }
}

fn state(control: &EvdControl, completions: CompletionFlags) -> EvdState {
    let enabled = if control.enabled { EvdState::ENABLED } else { EvdState::DISABLED };
    let waitable = if control.unwaitable { EvdState::UNWAITABLE } else { EvdState::WAITABLE };
    let config = match completions {
        CompletionFlags::UNSIGNALLED => EvdState::CONFIG_NOTIFY,
        CompletionFlags::SOLICITED_WAIT => EvdState::CONFIG_SOLICITED,
        _ => EvdState::CONFIG_THRESHOLD,
    };
    enabled | waitable | config
}
