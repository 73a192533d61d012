//! Remote Memory Regions: dat_rmr_*(3).

pub(crate) mod bind;
pub(crate) mod create;
pub(crate) mod create_for_ep;
pub(crate) mod free;
pub(crate) mod query;
