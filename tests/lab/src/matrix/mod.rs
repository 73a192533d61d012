//! Programs of others against one another and against the driver: stock Linux, and DAT programs over
//! the provider.

pub(crate) mod dat;
mod judge;
pub(crate) mod linux;
mod outcome;
mod program;
