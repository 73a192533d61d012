//! A no_std driver for NVIDIA mlx5 HCAs (ConnectX-4 and later, BlueField), without a heap and
//! without a kernel.
//!
//! Below it stands [`platform::Platform`], three small traits that a host implements; above it
//! `dat_core`'s provider seam, which [`Mlx5`] implements. What a host has to say besides is in
//! [`Config`]. The modules are floors: each imports only from those below it.
//! * [`provider`] - all of the driver as one value, [`Mlx5`].
//! * [`net`] - raw Ethernet, neighbour discovery, the RoCE addresses of the port, and QP1.
//! * [`verbs`] - queue pairs, completion queues, shared receive queues, memory keys and windows:
//!   create, modify and destroy.
//! * [`device`] - commands, bring-up, event queues, health, pages for the firmware, the port, and
//!   teardown.
//! * [`data`] - the data path: send, receive and completion queues, and their doorbells.
//! * [`prm`] - what the device's memory looks like: layouts, numbers, names. Data only.
//! * [`platform`] - what the driver needs of the host, and registers and memory of a real machine
//!   ([`mmio`], [`dma`]) for hosts to embed. All `unsafe` code of the crate is there.
//!
//! A device is opened by `Device::open` and closed by `Device::close`. In between, `Device::exec`
//! runs commands for the code that makes queues and keys, and the host calls `Device::service` when
//! an interrupt fires, or at any time. Nothing here waits without a deadline, or trusts a number of
//! the device beyond the width of its field.
#![no_std]

#[cfg(test)]
extern crate std;

pub mod data;
pub mod device;
pub mod net;
pub mod platform;
pub mod prm;
pub mod provider;
pub mod verbs;

pub use device::{Config, Congestion, Device, IbPort, PortState, cmd, eq};
pub use platform::{dma, mmio};
pub use provider::Mlx5;
