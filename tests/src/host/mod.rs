//! Hosts the driver runs on in tests.

pub mod inproc;
pub mod views;
pub mod watched;
