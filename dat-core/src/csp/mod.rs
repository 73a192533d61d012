//! Common Service Points: dat_csp_* (2.0). A service point with the address of a socket.

mod create;
mod free;
mod query;

pub use query::CspParam;

use core::net::SocketAddr;

use crate::Ia;
use crate::dat_return::{DatReturn, DatSubtype, DatType};
use crate::flags::Comm;
use crate::handle::{Csp, Evd};
use crate::provider::Provider;

/// What the control half knows of one CSP.
#[derive(Debug)]
pub(crate) struct CspControl {
    pub(crate) comm: Comm,
    pub(crate) address: SocketAddr,
    pub(crate) evd: Evd,
}

impl<P: Provider> Ia<'_, P> {
    pub(crate) fn csp(&self, csp: Csp) -> Result<&CspControl, DatReturn> {
        self.objects
            .csps
            .get(csp.0)
            .ok_or(DatReturn::new(DatType::InvalidHandle, DatSubtype::InvalidHandleCsp))
    }
}
