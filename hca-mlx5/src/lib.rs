//! A no_std driver for NVIDIA mlx5 HCAs (ConnectX-4 and later, BlueField), without a heap and
//! without a kernel.
//!
//! Below it stands [`platform::Platform`], the one trait a host implements; above it `dat_core`'s
//! provider seam. Inside:
//! * [`prm`] - what the device's memory looks like: layouts, numbers, names. Data only.
//! * [`cmd`] - one command at a time, with mailboxes, a deadline and the device's own words when it
//!   refuses.
//! * [`device`] - bring-up, teardown, events, health, the firmware's pages, the port.
//! * [`entries`], [`queue`], [`mem`] - the data path, and memory as the device sees it.
//! * [`eth`], [`neigh`] - raw Ethernet and neighbour discovery on it.
//! * [`provider`] - all of it as one value, [`Mlx5`], that implements the seam.
//! * [`mmio`], [`dma`] - registers and memory of a real machine, for platforms to embed. All
//!   `unsafe` of the crate is there.
//!
//! The life of a device is `Device::open`, any number of `Device::exec` (by the code that makes
//! queues and keys) and `Device::service` (by the host, when an interrupt fires or whenever it
//! likes), then `Device::close`. Nothing here waits without a deadline, and nothing the device says
//! is believed further than its bits reach.
#![no_std]

#[cfg(test)]
extern crate std;

mod boot;
pub mod cmd;
mod counters;
mod cq;
pub mod device;
pub mod dma;
pub mod entries;
pub mod eq;
pub mod eth;
mod gid;
mod gsi;
mod health;
mod keys;
pub mod mem;
pub mod mmio;
pub mod neigh;
mod network;
mod pages;
pub mod platform;
mod port;
pub mod prm;
pub mod provider;
mod qp;
pub mod queue;
#[cfg(test)]
mod scripted;
mod srq;
mod table;
mod teardown;
mod uar;
mod words;

pub use device::{Config, Device};
pub use provider::Mlx5;
