//! Hosts the driver runs on in tests.

pub mod chosen;
pub mod free;
pub mod inproc;
mod lent;
mod notes;
pub mod views;
pub mod watched;
