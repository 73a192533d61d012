//! The `dat` command end to end: processes of it, each with an HCA of a model server, and what they
//! say to their user. The same of `interop`, which runs programs of rdma-core for the matrix.
//!
//! No QEMU, no privilege: the devices are behind vfio-user sockets. (`list`, `doctor` and `bind`
//! are tested in vfio-host, over machines that are folders.)
#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod compat;
mod foreign;
#[path = "../../../vfio-host/dat/tests/command/golden.rs"]
mod golden;
mod hostile;
mod hw_test;
mod interop;
mod perftest;
mod stage;
mod traffic;
mod trouble;
mod watch;
