//! dat-core and hca-mlx5 without an operating system: the image that `cargo xtask nostd` links.
//!
//! With `--cfg dat_image` this is a freestanding static executable with no code except Rust's core
//! and ours; that it links proves that neither std, nor alloc, nor a C library is needed. Without
//! the flag it is an empty program, so that the workspace can be checked as a whole.
#![cfg_attr(dat_image, no_std, no_main)]

#[cfg(dat_image)]
mod image;

#[cfg(not(dat_image))]
fn main() {}
