//! Counters: the extension calls that query them.

pub(crate) mod ep;
pub(crate) mod evd;
pub(crate) mod ia;
pub(crate) mod print;
