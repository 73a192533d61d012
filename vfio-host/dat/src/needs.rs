//! What opening a device asks of the machine.

use super::traffic::options;

/// Bytes of a huge page.
const HUGE: u64 = 2 << 20;

/// Two pieces of the arena, one for the firmware: with more than that it takes more, with as many
/// it makes do.
const DMA_ENTRIES: u64 = 3;

/// What one open device takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Needs {
    /// Bytes locked at once.
    pub(crate) arena: u64,
    /// Bytes the firmware may ask for besides, at the most.
    pub(crate) firmware: u64,
    /// Entries of the container's DMA table.
    pub(crate) dma_entries: u64,
    /// Huge pages, if there are any.
    pub(crate) huge_pages: u64,
}

impl Default for Needs {
    fn default() -> Self {
        let options = options();
        let bytes = |bytes: usize| u64::try_from(bytes).unwrap_or(u64::MAX);
        let (arena, firmware) = (bytes(options.arena), bytes(options.firmware));
        Self {
            arena,
            firmware,
            dma_entries: DMA_ENTRIES,
            huge_pages: (arena + firmware).div_ceil(HUGE),
        }
    }
}
