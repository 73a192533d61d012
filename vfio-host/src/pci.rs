//! Configuration space: a copy of its bytes, and the registers in it.
//!
//! The host of the device supplies the bytes; `pci-driver` reads registers and walks capabilities
//! in the copy. Writes go to the host itself: a copy has no effect on the device.

use std::io;

use pci_driver::config::PciConfig;
use pci_driver::config::caps::{MsiXCapability, PciExpressCapability};
use pci_driver::regions::{BackedByPciSubregion, PciMemoryRegion};

/// Length of the first registers, which hold the vendor and device IDs.
pub(crate) const ID: usize = 4;
/// Offset of the command register, the only register that hosts write.
pub(crate) const COMMAND: u64 = 0x04;
/// Bits of the command register: memory decoding and bus mastering.
pub(crate) const MEMORY_SPACE: u16 = 1 << 1;
pub(crate) const BUS_MASTER: u16 = 1 << 2;
/// Length of configuration space with its extended part.
pub const EXTENDED: usize = 4096;

/// A copy of a function's configuration space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigSpace {
    bytes: Vec<u8>,
}

/// The PCI Express capability.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Express {
    /// The function supports function level reset.
    pub function_reset: bool,
}

impl ConfigSpace {
    /// Wraps the bytes as they were read, 256 or 4096 of them.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Self {
        Self { bytes }
    }

    /// Returns the bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn read<T>(&self, what: impl FnOnce(PciConfig<'_>) -> io::Result<T>) -> Option<T> {
        let region = PciMemoryRegion::new(&self.bytes);
        what(PciConfig::backed_by(&region)).ok()
    }

    /// Returns vendor and device ID; `None` if they read as all ones, as of a removed device.
    #[must_use]
    pub fn id(&self) -> Option<(u16, u16)> {
        let id = self.read(|c| Ok((c.vendor_id().read()?, c.device_id().read()?)))?;
        (id.0 != u16::MAX).then_some(id)
    }

    /// Returns the subsystem's vendor and device ID.
    #[must_use]
    pub fn subsystem(&self) -> Option<(u16, u16)> {
        self.read(|c| Ok((c.subsystem_vendor_id().read()?, c.subsystem_id().read()?)))
    }

    /// Returns the revision of the device.
    #[must_use]
    pub fn revision(&self) -> Option<u8> {
        self.read(|c| c.revision_id().read())
    }

    /// Returns class, subclass and programming interface. (Not by `pci-driver`, which returns the
    /// three in reverse order.)
    #[must_use]
    pub fn class(&self) -> Option<(u8, u8, u8)> {
        let bytes = self.bytes.get(0x09..0x0c)?;
        let [interface, subclass, class] = bytes.try_into().ok()?;
        Some((class, subclass, interface))
    }

    /// Returns whether bus mastering is on.
    #[must_use]
    pub fn bus_master(&self) -> bool {
        self.read(|c| c.command().bus_master_enable().read()) == Some(true)
    }

    /// Returns whether the function has MSI-X.
    #[must_use]
    pub fn msix(&self) -> bool {
        let found = self.read(|c| {
            let caps = c.capabilities()?;
            Ok(caps.of_type::<MsiXCapability<'_>>()?.next().is_some())
        });
        found == Some(true)
    }

    /// Returns the PCI Express capability, if there is one.
    #[must_use]
    pub fn express(&self) -> Option<Express> {
        self.read(|c| {
            let caps = c.capabilities()?;
            let express = caps.of_type::<PciExpressCapability<'_>>()?.next();
            let reset = express.map(|express| {
                let device = express.device_capabilities();
                device.function_level_reset_capability().read()
            });
            reset.transpose()
        })
        .flatten()
        .map(|function_reset| Express { function_reset })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A function with power management, MSI-X and PCI Express, the last with or without function
    /// level reset.
    fn function(reset: bool) -> ConfigSpace {
        let mut bytes = vec![0; EXTENDED];
        let mut put = |at: usize, these: &[u8]| bytes[at..at + these.len()].copy_from_slice(these);
        put(0x00, &[0xb3, 0x15, 0x19, 0x10, 0x06, 0x00, 0x10, 0x00]);
        put(0x08, &[0x02, 0x00, 0x00, 0x02]);
        put(0x2c, &[0xb3, 0x15, 0x08, 0x00]);
        put(0x34, &[0x40]);
        put(0x40, &[0x01, 0x48]);
        put(0x48, &[0x11, 0x60, 0x3f, 0x80]);
        put(0x60, &[0x10, 0x00, 0x02, 0x00, 0, 0, 0, u8::from(reset) << 4]);
        ConfigSpace::new(bytes)
    }

    #[test]
    fn registers_and_capabilities_are_read() {
        let config = function(true);
        assert_eq!(config.id(), Some((0x15b3, 0x1019)));
        assert_eq!(config.subsystem(), Some((0x15b3, 8)));
        assert_eq!(config.revision(), Some(2));
        assert_eq!(config.class(), Some((2, 0, 0)));
        assert!(config.bus_master() && config.msix());
        assert_eq!(config.express(), Some(Express { function_reset: true }));
        let other = function(false).express();
        assert_eq!(other, Some(Express { function_reset: false }));
    }

    #[test]
    fn a_device_that_is_gone_has_no_identity() {
        let config = ConfigSpace::new(vec![0xff; EXTENDED]);
        assert_eq!(config.id(), None);
        assert_eq!(config.express(), None);
        assert_eq!(ConfigSpace::new(Vec::new()).id(), None);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
            let config = ConfigSpace::new(bytes);
            let _ = (config.id(), config.subsystem(), config.revision(), config.class());
            let _ = (config.bus_master(), config.msix(), config.express());
        }
    }
}
