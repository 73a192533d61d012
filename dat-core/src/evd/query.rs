//! dat_evd_query(3).

use crate::Ia;
use crate::dat_return::{DatSubtype, Error};
use crate::flags::EvdFlags;
use crate::handle::Evd;
use crate::provider::Provider;

/// `DAT_EVD_PARAM`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EvdParam {
    /// Events it has room for; at least what was asked.
    pub qlen: u32,
    /// The streams it takes.
    pub flags: EvdFlags,
    /// Events in its ring now. Completions still in the device's queue are not counted.
    pub queued: u32,
    /// The reaping half is with another thread.
    pub reaper_out: bool,
}

impl<P: Provider> Ia<'_, P> {
    /// What the Event Dispatcher is.
    #[doc(alias = "dat_evd_query")]
    pub fn evd_query(&self, evd: Evd) -> Result<EvdParam, Error> {
        let control = self.evd(evd, DatSubtype::InvalidHandle1)?;
        Ok(EvdParam {
            qlen: control.qlen,
            flags: control.flags,
            queued: self
                .shared
                .evd(evd.0.index())
                .map_or(0, |shared| shared.queued()),
            reaper_out: self.reaper_is_out(evd.0),
        })
    }
}
