//! Faults, as wrappers around what a device touches: commands, memory, BAR, time.
//!
//! The device itself has one hook point per kind and no fault options. What goes wrong is arranged
//! here, and a test takes what it needs:
//!
//! - [`Script`] answers, delays, loses or silences chosen commands;
//! - [`Log`] records every command, to compare with another driver's;
//! - [`Refusing`] is host memory behind an IOMMU that says no to chosen ranges;
//! - [`Faulty`] stands between a driver and the BAR, and lets things happen at chosen times.
//!
//! Bytes the device writes are changed by [`crate::Hca::set_mangle`]. A lost command event is
//! [`crate::Verdict::NoEvent`]: swallowing the entry's bytes would leave a hole in the ring, which no
//! hardware does.

mod bar;
mod command;
mod memory;

pub use bar::{Device, Faulty, Happening, Trouble};
pub use command::{Log, Record, Script, When};
pub use memory::{Refusals, Refusing};
