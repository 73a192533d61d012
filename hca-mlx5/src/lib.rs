//! A no_std driver for NVIDIA mlx5 HCAs.
#![no_std]

#[cfg(test)]
extern crate std;

mod boot;
pub mod cmd;
pub(crate) mod cq;
pub mod device;
pub mod dma;
pub mod eq;
pub mod eth;
pub(crate) mod gsi;
mod health;
pub mod mem;
pub mod mmio;
pub mod neigh;
mod pages;
pub mod platform;
mod port;
pub mod prm;
pub(crate) mod qp;
pub mod queue;
mod teardown;

pub use device::{Config, Device};
