//! A device model of an NVIDIA mlx5 HCA.
#![forbid(unsafe_code)]

pub mod host;
pub mod transport;
pub mod wire;
