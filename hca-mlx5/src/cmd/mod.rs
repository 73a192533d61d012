//! The command queue.

/// Longest message, head included.
pub const MAX_MESSAGE: usize = 16 + 32 * 512;
