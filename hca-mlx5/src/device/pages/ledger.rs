//! The count of the pages that the firmware holds.

/// How many pages the firmware holds.
#[derive(Debug)]
pub(crate) struct Ledger {
    pub(super) given: u32,
    pub(super) budget: u32,
    pub(super) function_id: u16,
    /// The function is that of a DPU's own CPU.
    pub(super) embedded_cpu: bool,
}

impl Ledger {
    /// Nothing given yet, `budget` pages at most.
    pub(crate) fn new(budget: u32, embedded_cpu: bool) -> Self {
        Self { given: 0, budget, function_id: 0, embedded_cpu }
    }

    /// How many pages the firmware holds.
    pub(crate) fn given(&self) -> u32 {
        self.given
    }
}
