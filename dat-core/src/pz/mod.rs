//! Protection Zones: dat_pz_*(3).

mod create;
mod free;
mod query;

use crate::Ia;
use crate::dat_return::{DatReturn, DatSubtype, DatType};
use crate::handle::Pz;
use crate::provider::{Pd, Provider};

/// What the control half knows of one Protection Zone.
#[derive(Debug)]
pub(crate) struct PzControl {
    pub(crate) pd: Pd,
    /// Endpoints, LMRs, RMRs and SRQs in it.
    pub(crate) users: u32,
}

impl<P: Provider> Ia<'_, P> {
    pub(crate) fn pz(&self, pz: Pz) -> Result<&PzControl, DatReturn> {
        self.objects
            .pzs
            .get(pz.0)
            .ok_or(DatReturn::new(DatType::InvalidHandle, DatSubtype::InvalidHandlePz))
    }

    pub(crate) fn hold(&mut self, pz: Option<Pz>) {
        if let Some(control) = pz.and_then(|pz| self.objects.pzs.get_mut(pz.0)) {
            control.users += 1;
        }
    }

    pub(crate) fn release(&mut self, pz: Option<Pz>) {
        if let Some(control) = pz.and_then(|pz| self.objects.pzs.get_mut(pz.0)) {
            control.users = control.users.saturating_sub(1);
        }
    }
}
