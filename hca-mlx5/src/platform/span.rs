//! Pieces of the arena.

/// A piece of the arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Offset of its first byte in the arena.
    pub offset: usize,
    /// Length in bytes.
    pub len: usize,
}
