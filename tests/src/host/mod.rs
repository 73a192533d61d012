//! Hosts the driver runs on in tests.

pub mod inproc;
mod notes;
pub mod views;
pub mod watched;
