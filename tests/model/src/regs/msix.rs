//! MSI-X: which vectors may leave.
//!
//! A host that owns the bus, as VFIO does, intercepts table and enable bit itself; then every
//! vector leaves at once. With `msix_in_bar` the table in the BAR rules.

/// Offset of the table in BAR0.
pub(crate) const TABLE: u64 = 0x2000;
/// Offset of the pending bits in BAR0.
pub(crate) const PBA: u64 = 0x3000;

/// Table, pending bits and the capability's control bits.
#[derive(Debug)]
pub(crate) struct Msix {
    /// The table rules.
    ruled: bool,
    pub(crate) enabled: bool,
    pub(crate) masked: bool,
    table: Vec<u8>,
    pending: Vec<bool>,
}

impl Msix {
    pub(crate) fn new(vectors: u16, ruled: bool) -> Self {
        let mut table = vec![0; usize::from(vectors) * 16];
        for entry in table.chunks_exact_mut(16) {
            entry[12] = 1;
        }
        let pending = vec![false; usize::from(vectors)];
        Self { ruled, enabled: false, masked: false, table, pending }
    }

    /// A vector wants out: whether it may now; if masked it stays pending.
    pub(crate) fn raise(&mut self, vector: u16) -> bool {
        if !self.ruled {
            return true;
        }
        let open = self.open(usize::from(vector));
        if let Some(pending) = self.pending.get_mut(usize::from(vector)) {
            *pending = self.enabled && !open;
        }
        open
    }

    fn open(&self, vector: usize) -> bool {
        let masked = self.table.get(vector * 16 + 12).is_none_or(|control| control & 1 != 0);
        self.enabled && !self.masked && !masked
    }

    /// Vectors pending that have become open.
    pub(crate) fn release(&mut self) -> Vec<u16> {
        let open: Vec<usize> =
            (0..self.pending.len()).filter(|&v| self.pending[v] && self.open(v)).collect();
        for &v in &open {
            self.pending[v] = false;
        }
        open.into_iter().map(|v| v as u16).collect()
    }

    pub(crate) fn table_byte(&self, at: u64) -> u8 {
        self.table.get(at as usize).copied().unwrap_or(0)
    }

    pub(crate) fn pba_byte(&self, at: u64) -> u8 {
        let first = at as usize * 8;
        (0..8)
            .fold(0, |acc, k| acc | u8::from(self.pending.get(first + k).is_some_and(|p| *p)) << k)
    }

    pub(crate) fn table_write(&mut self, at: u64, bytes: &[u8]) {
        for (at, byte) in (at as usize..).zip(bytes) {
            if let Some(to) = self.table.get_mut(at) {
                *to = *byte;
            }
        }
    }
}
