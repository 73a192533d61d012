//! What differs from machine to machine, a folder each. An image is built for one of them.
//!
//! | item of each | is |
//! |---|---|
//! | `Console` | takes text |
//! | `COUNTER`, `ticks` | a counter that never stops, and its name |
//! | `generator`, `random` | a source of random numbers: its name, if there is one, and 64 bits |
//! | `Registers` | registers of a function |
//! | `Interrupts` | sends the HCA's interrupts to this CPU, and sleeps until one comes |
//!
//! A machine starts in its own way, makes a `Bus` and memory for the device, and calls
//! `program::run`.

#[cfg(target_os = "uefi")]
mod uefi;
#[cfg(target_os = "uefi")]
pub(crate) use uefi::*;

#[cfg(all(target_arch = "x86_64", not(target_os = "uefi")))]
mod x86_64;
#[cfg(all(target_arch = "x86_64", not(target_os = "uefi")))]
pub(crate) use x86_64::*;

#[cfg(all(target_arch = "aarch64", not(target_os = "uefi")))]
mod aarch64;
#[cfg(all(target_arch = "aarch64", not(target_os = "uefi")))]
pub(crate) use aarch64::*;

#[cfg(target_arch = "riscv64")]
mod riscv64;
#[cfg(target_arch = "riscv64")]
pub(crate) use riscv64::*;

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod cpu;
#[cfg(not(target_os = "uefi"))]
mod ecam;
#[cfg(not(target_os = "uefi"))]
mod reserved;
#[cfg(target_os = "none")]
mod tree;
