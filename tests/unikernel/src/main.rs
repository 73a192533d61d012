//! dat-core and hca-mlx5 without an operating system: the image that `cargo xtask nostd` links.
//!
//! With `--cfg dat_image` this is a freestanding static executable whose only code besides Rust's
//! core is ours; the link itself proves that neither std, nor alloc, nor a C library is needed.
//! Without the flag it is an empty program, so that the rest of the workspace can be checked in one
//! go.
#![cfg_attr(dat_image, no_std, no_main)]

#[cfg(dat_image)]
mod image;

#[cfg(not(dat_image))]
fn main() {}
