//! Consumer Notification Objects: dat_cno_*(3).

pub(crate) mod create;
pub(crate) mod fd_create;
pub(crate) mod free;
pub(crate) mod modify_agent;
pub(crate) mod query;
pub(crate) mod trigger;
pub(crate) mod wait;
