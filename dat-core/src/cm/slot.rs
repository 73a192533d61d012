//! One connection's place in the table.

/// Room for one connection. An array of these is all the memory a [`Cm`](super::Cm) uses.
#[derive(Clone, Debug)]
pub struct Slot {}

impl Slot {
    /// An empty slot.
    #[must_use]
    pub const fn new() -> Self {
        Self {}
    }
}

impl Default for Slot {
    fn default() -> Self {
        Self::new()
    }
}
