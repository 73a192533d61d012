//! All interleavings of the threads that share an Interface Adapter, tried by loom.
//!
//! One thread posts, one reaps, one has the [`Ia`](dat_core::Ia). The device is the loop provider:
//! it carries a request out in the call that posts it, so whatever is tried here is of dat-core.
//! loom makes the shared words behave as the memory model allows, stale values included. Only
//! `cargo xtask loom` compiles this; elsewhere it is empty.
#![cfg(loom)]
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::wildcard_enum_match_arm,
    reason = "test code: a panic here is a failed test with a line number"
)]

mod control;
mod data;
mod waits;
mod world;
