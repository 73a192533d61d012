//! Public Service Points: dat_psp_*(3).

mod create;
mod create_any;
mod free;
mod query;

pub use query::PspParam;

use crate::Ia;
use crate::dat_return::{DatReturn, DatSubtype, DatType};
use crate::flags::PspFlag;
use crate::handle::{Evd, Psp};
use crate::provider::Provider;

/// What the control half knows of one PSP.
#[derive(Debug)]
pub(crate) struct PspControl {
    pub(crate) port: u16,
    pub(crate) evd: Evd,
    pub(crate) flag: PspFlag,
}

impl<P: Provider> Ia<'_, P> {
    pub(crate) fn psp(&self, psp: Psp) -> Result<&PspControl, DatReturn> {
        self.psps.get(psp.0).ok_or(DatReturn::new(
            DatType::InvalidHandle,
            DatSubtype::InvalidHandlePsp,
        ))
    }

    /// The PSP that listens on `port`.
    pub(crate) fn listener(&self, port: u16) -> Option<Psp> {
        self.psps.find(|control| control.port == port).map(Psp)
    }
}
