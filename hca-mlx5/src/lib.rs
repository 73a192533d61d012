//! A no_std driver for NVIDIA mlx5 HCAs.
#![no_std]

pub mod platform;
