//! A no_std driver for NVIDIA mlx5 HCAs.
#![no_std]

#[cfg(test)]
extern crate std;

mod boot;
pub mod cmd;
pub mod device;
pub mod dma;
pub mod eq;
mod health;
pub mod mmio;
mod pages;
pub mod platform;
mod port;
pub mod prm;
#[cfg(test)]
mod scripted;
mod teardown;

pub use device::{Config, Device};
