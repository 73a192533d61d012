//! Public Service Points: dat_psp_*(3).

use crate::objects::table::Kind;
use crate::types::dat_return::{DatReturn, DatSubtype, DatType};
use crate::types::flags::PspFlag;
use crate::types::handle::{Csp, Evd, Psp, Rsp};

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
