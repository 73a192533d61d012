//! Protection Zones: dat_pz_*(3).

use crate::objects::table::{Kind, Table};
use crate::provider::Pd;
use crate::types::dat_return::{DatReturn, DatSubtype, DatType};
use crate::types::handle::Pz;

/// What the control half knows of one Protection Zone.
#[derive(Debug)]
pub(crate) struct PzControl {
    pub(crate) pd: Pd,
    /// Endpoints, LMRs, RMRs and SRQs in it.
    pub(crate) users: u32,
}

impl Kind for PzControl {
    type Handle = Pz;
    const STALE: DatReturn = DatReturn::new(DatType::InvalidHandle, DatSubtype::InvalidHandlePz);
}

impl Table<'_, PzControl> {
    pub(crate) fn hold(&mut self, pz: Option<Pz>) {
        if let Some(control) = pz.and_then(|pz| self.get_mut(pz.0)) {
            control.users += 1;
        }
    }

    pub(crate) fn release(&mut self, pz: Option<Pz>) {
        if let Some(control) = pz.and_then(|pz| self.get_mut(pz.0)) {
            control.users = control.users.saturating_sub(1);
        }
    }
}
