//! Reserved Service Points: dat_rsp_*(3).

pub(crate) mod create;
pub(crate) mod free;
pub(crate) mod query;
