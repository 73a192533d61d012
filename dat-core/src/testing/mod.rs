//! The loop provider: two HCAs that are nothing but memory.
//!
//! It implements [`crate::provider`] so that the state machines above the seam can be tested
//! without a device, a wire or a clock, and so that the seam itself has two implementors. Both
//! ports live in one [`Fabric`]; a request is carried out in the call that posts it, unless the
//! test holds the fabric or the receiver is not ready.
//!
//! What it keeps of an HCA: keys with ranges, rights and protection domains; windows with a new key
//! at each bind; the queue pair states; completions in posting order; flushes in the error state.
//! What it leaves out: packets, timers, retries and loss. Those belong to the device model.
//!
//! Only with feature `testing`. Everything is fixed in size; a fabric is about a quarter of a
//! megabyte.

#![expect(
    clippy::cast_possible_truncation,
    clippy::large_stack_arrays,
    reason = "tables of a few dozen entries; a fabric is made for tests and placed by them"
)]

mod exec;
mod extended;
pub(crate) mod fabric;
pub(crate) mod hca;
mod keys;
#[cfg(loom)]
mod modelled;
mod shared;
#[cfg(test)]
mod tests;

pub use crate::testing::fabric::Fabric;
pub use crate::testing::fabric::Verdict;
pub use crate::testing::hca::LoopCq;
pub use crate::testing::hca::LoopHca;
pub use crate::testing::hca::LoopRq;
pub use crate::testing::hca::LoopSq;
pub use crate::testing::shared::LoopShared;

/// Requests, and receives, outstanding on one queue pair.
pub const REQUESTS: usize = 32;
/// Segments of one request or receive.
pub const SEGMENTS: usize = 4;
/// Number of the first queue pair: 0 and 1 mean something on a fabric.
const FIRST_QPN: u32 = 0x100;
/// Queue pairs of one port.
pub const QPS: usize = 16;
/// Completion queues of one port.
pub const CQS: usize = 16;
/// Entries of one completion queue.
pub const CQES: usize = 128;
/// Shared receive queues of one port.
pub const SHARED: usize = 4;
/// Outstanding receives of one shared receive queue.
pub const SHARED_RECEIVES: usize = 64;
/// Memory keys of one port.
pub const KEYS: usize = 64;
/// Bytes of consumer memory of one port.
pub const MEMORY: usize = 32 * 1024;
