//! Reserved Service Points: dat_rsp_*(3). One request, for one Endpoint.

use crate::objects::table::Kind;
use crate::types::dat_return::{DatReturn, DatSubtype, DatType};
use crate::types::handle::{Ep, Evd, Rsp};

/// What the control half knows of one RSP.
#[derive(Debug)]
pub(crate) struct RspControl {
    pub(crate) port: u16,
    pub(crate) evd: Evd,
    pub(crate) ep: Ep,
    /// The Endpoint was made with it, not by the consumer.
    pub(crate) provided: bool,
    /// Its request has come. It listens no more, and stays until it is freed.
    pub(crate) used: bool,
}

impl Kind for RspControl {
    type Handle = Rsp;
    const STALE: DatReturn = DatReturn::new(DatType::InvalidHandle, DatSubtype::InvalidHandleRsp);
}
