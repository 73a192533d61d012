//! Shared Receive Queues: dat_srq_*(3).

pub(crate) mod create;
pub(crate) mod free;
pub(crate) mod post_recv;
pub(crate) mod query;
pub(crate) mod resize;
pub(crate) mod set_lw;
