//! Public Service Points: dat_psp_*(3).

pub(crate) mod create;
pub(crate) mod create_any;
pub(crate) mod free;
pub(crate) mod query;
