//! The driver on `vfio-host` over vfio-user sockets: the whole way of a real device but the kernel,
//! without privilege and without QEMU. The model serves in a thread of the test, over real sockets,
//! shared memory and eventfds, in real time.
#![expect(
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    clippy::large_stack_arrays,
    clippy::panic,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "test code: a panic here is a failed test with a line number"
)]

mod data;
mod fork;
mod lent;
mod named;
mod order;
mod owned;
mod reopen;
mod rig;
mod trouble;
mod waits;
