//! Programs of others against one another and against the driver: stock Linux, and DAT programs over
//! the provider.

pub(crate) mod dat;
mod judge;
pub(crate) mod linux;
pub(crate) mod mpi;
mod outcome;
mod program;
