//! Harness of the integration tests: hosts for the driver, and what the demo and the benchmarks
//! share.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::large_stack_arrays,
    clippy::wildcard_enum_match_arm,
    reason = "test code: a panic here is a failed test with a line number"
)]

pub mod attack;
pub mod bench;
pub mod bringup;
pub mod bytes;
pub mod conformance;
pub mod demo;
pub mod faults;
pub mod guest;
pub mod host;
pub mod interop;
pub mod laws;
pub mod pair;
pub mod reasons;
pub mod scale;
pub mod session;
pub mod soak;
