//! What guests are made of: packages of a distribution, kernels and their modules, programs, and the
//! archive that a guest boots from.

pub(crate) mod archive;
pub(crate) mod hpcc;
pub(crate) mod iommufd;
pub(crate) mod machine;
pub(crate) mod modules;
pub(crate) mod mpi;
pub mod notations;
pub mod packages;
pub mod programs;
pub mod roots;
pub(crate) mod scapy;
pub mod sources;
pub(crate) mod stock;
pub mod toolchain;
pub mod valgrind;
mod vmlinux;
