//! Harness of the integration tests: hosts for the driver, and what the demo and the benchmarks share.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "test code: a panic here is a failed test with a line number"
)]

pub mod bench;
pub mod demo;
pub mod host;
pub mod pair;
pub mod play;
