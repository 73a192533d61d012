//! The machine that the device is plugged into, as the device uses it.

/// Why a DMA access failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DmaError {
    /// No mapping there, or not with that right: what an IOMMU answers.
    #[error("DMA to {0:#x} refused by the IOMMU")]
    Refused(u64),
    /// Bus mastering is off.
    #[error("DMA while bus mastering is off")]
    BusMasterOff,
}

/// Host memory as the device reaches it, by bus address. An access may span pages.
pub trait HostMemory {
    /// Fills `buf` from `iova`.
    fn read(&mut self, iova: u64, buf: &mut [u8]) -> Result<(), DmaError>;
    /// Writes `buf` to `iova`. Nobody sees its last byte before all others, nor before any earlier
    /// write: programs poll the last byte of a message.
    fn write(&mut self, iova: u64, buf: &[u8]) -> Result<(), DmaError>;
}

/// Model time, in nanoseconds.
pub type Nanos = u64;
