//! Public Service Points: dat_psp_*(3).

mod create;
mod create_any;
mod free;
mod query;

pub use query::PspParam;

use crate::dat_return::{DatReturn, DatSubtype, DatType};
use crate::flags::PspFlag;
use crate::handle::{Csp, Evd, Psp, Rsp};
use crate::table::Kind;

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

impl Kind for PspControl {
    type Handle = Psp;
    const STALE: DatReturn = DatReturn::new(DatType::InvalidHandle, DatSubtype::InvalidHandlePsp);
}
