//! Connection Requests: dat_cr_*(3).

pub(crate) mod accept;
pub(crate) mod handoff;
pub(crate) mod query;
pub(crate) mod reject;
