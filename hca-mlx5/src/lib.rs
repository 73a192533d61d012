//! A no_std driver for NVIDIA mlx5 HCAs.
#![no_std]

#[cfg(test)]
extern crate std;

pub mod cmd;
pub(crate) mod cq;
pub mod device;
pub mod dma;
pub mod eq;
pub(crate) mod gsi;
pub(crate) mod health;
pub mod mem;
pub mod mmio;
pub mod platform;
pub mod prm;
pub(crate) mod qp;
pub mod queue;
