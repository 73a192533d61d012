//! A no_std driver for NVIDIA mlx5 HCAs.
#![no_std]

#[cfg(test)]
extern crate std;

mod boot;
pub mod cmd;
mod cq;
pub mod device;
pub mod dma;
pub mod eq;
pub mod eth;
mod gsi;
mod health;
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
mod teardown;
mod uar;

pub use device::{Config, Device};
pub use provider::Mlx5;
