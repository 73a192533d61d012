//! 64-bit atomics, also where the CPU has none.
//!
//! 32-bit CPUs without them (Cortex-M, RV32) get the emulation of the portable-atomic crate, a lock
//! of a few instructions. All others use core's, and nothing of that crate is built.

#[cfg(target_has_atomic = "64")]
pub(crate) use core::sync::atomic::AtomicU64;
#[cfg(not(target_has_atomic = "64"))]
pub(crate) use portable_atomic::AtomicU64;
