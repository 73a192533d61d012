//! What adapter, driver and host do, as events of the `tracing` crate (feature `tracing`).
//!
//! ```
//! # #[cfg(feature = "tracing")]
//! let config = hca_mlx5::Config { hook: Some(&vfio_host::events::tracing), ..Default::default() };
//! ```
//!
//! The events have the target `dat`: commands at level DEBUG, connections at INFO, repeated messages
//! and refusals at WARN, a lost connection or device at ERROR. A program that logs otherwise gives
//! a [`Hook`](dat_core::Hook) of its own.

#[cfg(feature = "tracing")]
use dat_core::{Activity, Severity};

/// Target of all events.
#[cfg(feature = "tracing")]
const TARGET: &str = "dat";

/// A [`Hook`](dat_core::Hook) that makes each activity an event.
#[cfg(feature = "tracing")]
pub fn tracing(activity: &Activity) {
    match activity.severity() {
        Severity::Error => tracing::error!(target: TARGET, "{activity}"),
        Severity::Warning => tracing::warn!(target: TARGET, "{activity}"),
        Severity::Info => tracing::info!(target: TARGET, "{activity}"),
        Severity::Debug => tracing::debug!(target: TARGET, "{activity}"),
    }
}

/// Reports that the host resets its function.
#[cfg_attr(
    not(feature = "tracing"),
    expect(unused_variables, reason = "there is nobody to report it to")
)]
pub(crate) fn reset(name: &str) {
    #[cfg(feature = "tracing")]
    tracing::info!(target: TARGET, "{name}: the function is reset");
}
