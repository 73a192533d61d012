//! The atomics that threads share.
//!
//! They are core's. 32-bit CPUs without 64-bit atomics (Cortex-M, RV32) get the emulation of the
//! portable-atomic crate, a lock of a few instructions. With `--cfg loom` they are loom's, which
//! tries all interleavings (`cargo xtask loom`).

#[cfg(all(not(loom), target_has_atomic = "64"))]
pub(crate) use core::sync::atomic::AtomicU64;
#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicBool, AtomicU32};
#[cfg(not(target_has_atomic = "64"))]
pub(crate) use portable_atomic::AtomicU64;

#[cfg(loom)]
pub(crate) use crate::types::modelled::{AtomicBool, AtomicU32, AtomicU64};

/// Stands between what a poster publishes and its look at the state of its Endpoint.
#[inline(always)]
pub(crate) fn published() {
    // ORDER: whoever ends an Endpoint stores the state, has the device answer a command, and then
    // looks at what was published. A store leaves its CPU sooner than a device answers, so no
    // instruction is needed. loom has no such time: a pair of fences stands for it.
    #[cfg(loom)]
    loom::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
}

/// Stands where the device has answered a command; see [`published`].
#[cfg(any(test, feature = "testing"))]
pub(crate) fn command_answered() {
    #[cfg(loom)]
    loom::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
}
