//! The shell of the device, driven by a small driver of its own that knows the interface by bytes
//! and nothing of the model's layouts.
#![expect(
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    reason = "a test that goes out of bounds should fail"
)]

mod bringup;
mod caps;
mod cards;
mod commands;
mod eq;
mod facts;
mod faults;
mod layouts;
mod pages;
mod pci;
mod port;
mod replay;
mod rig;
mod vsc;
