//! Common Service Points: dat_csp_* (2.0). A service point with the address of a socket.

use core::net::SocketAddr;

use crate::objects::table::Kind;
use crate::types::dat_return::{DatReturn, DatSubtype, DatType};
use crate::types::flags::Comm;
use crate::types::handle::{Csp, Evd};

/// What the control half knows of one CSP.
#[derive(Debug)]
pub(crate) struct CspControl {
    pub(crate) comm: Comm,
    pub(crate) address: SocketAddr,
    pub(crate) evd: Evd,
}

impl Kind for CspControl {
    type Handle = Csp;
    const STALE: DatReturn = DatReturn::new(DatType::InvalidHandle, DatSubtype::InvalidHandleCsp);
}
