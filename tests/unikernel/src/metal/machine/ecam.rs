//! Configuration space that is mapped (ECAM).

use hca_mlx5::mmio::MappedBar;

use crate::pci::{Address, Config};

/// Configuration space of segment 0, a megabyte for each bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ecam {
    /// Address of bus 0, whether or not it is among those below.
    pub(crate) base: u64,
    /// The first bus.
    pub(crate) first: u8,
    /// The last.
    pub(crate) last: u8,
}

/// Configuration space that is mapped.
#[derive(Debug)]
pub(crate) struct Mapped {
    /// The whole segment, from bus 0 on.
    pub(crate) window: MappedBar,
    pub(crate) buses: Ecam,
}

impl Mapped {
    fn place(&self, at: Address, offset: u16) -> usize {
        if !(self.buses.first..=self.buses.last).contains(&at.bus) {
            return usize::MAX;
        }
        usize::from(at.bus) << 20
            | usize::from(at.device) << 15
            | usize::from(at.function) << 12
            | usize::from(offset & 0xffc)
    }
}

impl Config for Mapped {
    fn read(&self, at: Address, offset: u16) -> u32 {
        self.window.read32(self.place(at, offset))
    }
    fn write(&self, at: Address, offset: u16, value: u32) {
        self.window.write32(self.place(at, offset), value);
    }
}
