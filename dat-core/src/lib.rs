//! The Direct Access Transport, versions 1.2 and 2.0, without an operating system beneath it.
#![no_std]
#![forbid(unsafe_code)]

pub mod cm;
pub mod provider;
pub mod time;

pub use provider::{Fault, FaultKind};
pub use time::Instant;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
