//! Hosts the driver runs on in tests.

pub mod views;
