//! Programs of others against one another and against the driver: stock Linux, and DAT programs over
//! the provider.

pub(crate) mod dat;
pub(crate) mod linux;
