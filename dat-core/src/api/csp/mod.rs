//! Common Service Points: dat_csp_*(3).

pub(crate) mod create;
pub(crate) mod free;
pub(crate) mod query;
