//! Public Service Points: dat_psp_*(3).

mod create;
mod create_any;
mod free;
mod query;

pub use query::PspParam;

use crate::Ia;
use crate::dat_return::{DatReturn, DatSubtype, DatType};
use crate::flags::PspFlag;
use crate::handle::{Csp, Evd, Psp, Rsp};
use crate::provider::Provider;

/// What the control half knows of one PSP.
#[derive(Debug)]
pub(crate) struct PspControl {
    pub(crate) port: u16,
    pub(crate) evd: Evd,
    pub(crate) flag: PspFlag,
}

/// A service point of any kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listener {
    Psp(Psp),
    Rsp(Rsp),
    Csp(Csp),
}

impl<P: Provider> Ia<'_, P> {
    pub(crate) fn psp(&self, psp: Psp) -> Result<&PspControl, DatReturn> {
        self.objects
            .psps
            .get(psp.0)
            .ok_or(DatReturn::new(DatType::InvalidHandle, DatSubtype::InvalidHandlePsp))
    }

    /// The service point, of whatever kind, that has `port`.
    pub(crate) fn listener(&self, port: u16) -> Option<Listener> {
        let psp = self.objects.psps.find(|control| control.port == port);
        let rsp = || self.objects.rsps.find(|control| control.port == port);
        let csp = || self.objects.csps.find(|control| control.address.port() == port);
        psp.map(|psp| Listener::Psp(Psp(psp)))
            .or_else(|| rsp().map(|rsp| Listener::Rsp(Rsp(rsp))))
            .or_else(|| csp().map(|csp| Listener::Csp(Csp(csp))))
    }
}
