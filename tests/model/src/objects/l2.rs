//! MACs that the physical function lets through, by table index.

use crate::table::{Counts, Table};

/// The table.
#[derive(Debug, Default)]
pub(crate) struct L2 {
    entries: Table<u32, [u8; 6]>,
    macs: Counts<[u8; 6]>,
}

impl L2 {
    /// Sets an entry.
    pub(super) fn set(&mut self, index: u32, mac: [u8; 6]) {
        self.delete(index);
        self.entries.insert(index, mac);
        self.macs.add(mac);
    }

    /// Deletes an entry, if there is one.
    pub(super) fn delete(&mut self, index: u32) -> Option<()> {
        let mac = self.entries.remove(&index)?;
        self.macs.remove(mac);
        Some(())
    }

    /// Whether an entry has that MAC.
    pub(super) fn has(&self, mac: &[u8; 6]) -> bool {
        self.macs.has(*mac)
    }
}
