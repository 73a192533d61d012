//! Event Dispatchers: dat_evd_*(3).

pub(crate) mod clear_unwaitable;
pub(crate) mod create;
pub(crate) mod dequeue;
pub(crate) mod disable;
pub(crate) mod enable;
pub(crate) mod free;
pub(crate) mod kcreate;
pub(crate) mod moderate;
pub(crate) mod modify_cno;
pub(crate) mod modify_upcall;
pub(crate) mod post_se;
pub(crate) mod query;
pub(crate) mod resize;
pub(crate) mod set_unwaitable;
pub(crate) mod wait;
