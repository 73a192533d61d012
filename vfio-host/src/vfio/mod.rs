//! The host of a function bound to vfio-pci, behind the machine's IOMMU.
//!
//! The kernel has two interfaces to the IOMMU (`domain.rs`). Of the older one, `vfio-ioctls` manages
//! container, group and device. What it does not support (access rights of a mapping, the IOMMU's
//! ranges, the error of a reset), and all of iommufd, uses the file descriptors directly
//! (`ioctl.rs`). The BAR is mapped and the arena is ordinary memory, so the data path makes no
//! system call.
//!
//! Setup runs in the order open, reset, memory, registers, interrupts, bus mastering; teardown runs
//! in reverse, so all DMA in flight ends before the first page is unmapped.

mod device;
mod domain;
mod info;
mod ioctl;
mod refusal;

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use dat_core::provider::Region;
use hca_mlx5::platform::{Bar, Blocks};
use vfio_bindings::bindings::vfio::{
    VFIO_PCI_BAR0_REGION_INDEX, VFIO_PCI_ERR_IRQ_INDEX, VFIO_PCI_MSIX_IRQ_INDEX,
    VFIO_PCI_REQ_IRQ_INDEX, VFIO_REGION_INFO_FLAG_MMAP,
};

use self::device::Device;
use self::domain::Domain;
use crate::address::PciAddress;
use crate::error::{Error, Kind};
use crate::host::{Host, Interface, Mapping, Options, Reach, Trouble};
use crate::iova;
use crate::machine::Machine;
use crate::map::{Pages, Promised, Registers};
use crate::memory::{Memory, host_over_memory, platform_over_memory};
use crate::pci::{self, ConfigSpace};
use crate::sysfs::Sysfs;
use crate::wakeups::{VECTORS, Wakeups};

/// An open function.
#[derive(Debug)]
pub struct Vfio {
    // In drop order: the kernel releases a group only when nothing of its device is open or
    // mapped.
    bar: Registers,
    device: Device,
    iommu: Domain,
    memory: Memory,
    machine: Machine,
    wakeups: Wakeups,
    /// The function was reset while a driver used it.
    severed: AtomicBool,
    /// The process that opened it.
    owner: u32,
    name: String,
}

impl Vfio {
    /// Opens the function at `address`: checks that it is usable, resets it, maps memory and wires
    /// interrupts.
    pub fn open(address: PciAddress, options: &Options) -> Result<Self, Error> {
        let sysfs = Sysfs::default();
        let group = sysfs.check(address, options.interface)?;
        let may = |node: &str| File::options().read(true).write(true).open(node).is_ok();
        let access = sysfs.access(address, group, options.interface, may)?;
        let wanted = options.arena.saturating_add(options.firmware) as u64;
        let (iommu, device) = Domain::open(&sysfs, address, &access, wanted)?;
        let name = address.to_string();
        let failed = |what: &str, error: io::Error| {
            Error::new(
                Kind::Refused,
                &name,
                format!("{what}: {error}"),
                "see the kernel's log (dmesg)",
            )
            .because(error)
        };
        let lacks =
            |what: &str| Error::new(Kind::Unsupported, &name, what, "choose another function");
        let vectors = device.interrupts(VFIO_PCI_MSIX_IRQ_INDEX);
        if vectors == 0 {
            return Err(lacks("the function has no MSI-X"));
        }
        let bar = device.region(VFIO_PCI_BAR0_REGION_INDEX)?;
        if bar.size == 0 || bar.flags & VFIO_REGION_INFO_FLAG_MMAP == 0 {
            return Err(lacks("BAR 0 of the function cannot be mapped"));
        }
        device.reset()?;
        let ranges = iommu.ranges().map_err(|error| failed("cannot query the IOMMU", error))?;
        let memory = Memory::new(options, &ranges, Pages::private, &iommu)?;
        let len = usize::try_from(bar.size).unwrap_or(usize::MAX);
        device.command(pci::MEMORY_SPACE, 0)?;
        let bar = Registers::map(std::os::fd::AsFd::as_fd(&device.fd), bar.offset, len).map_err(
            |error| failed("BAR 0 cannot be mapped as a whole (it can since Linux 4.16)", error),
        )?;
        let wakeups = Wakeups::new(usize::try_from(vectors).unwrap_or(VECTORS))?;
        device.wire(VFIO_PCI_MSIX_IRQ_INDEX, wakeups.vectors())?;
        for (index, report) in
            [(VFIO_PCI_ERR_IRQ_INDEX, wakeups.error()), (VFIO_PCI_REQ_IRQ_INDEX, wakeups.removal())]
        {
            if device.interrupts(index) > 0 {
                device.wire(index, std::slice::from_ref(report))?;
            }
        }
        let host = Self {
            bar,
            device,
            iommu,
            memory,
            machine: Machine::new()?,
            wakeups,
            severed: AtomicBool::new(false),
            owner: std::process::id(),
            name,
        };
        host.device.command(pci::BUS_MASTER, 0)?;
        Ok(host)
    }

    /// Returns the kernel's interface by which it was opened.
    #[must_use]
    pub fn interface(&self) -> Interface {
        self.iommu.interface()
    }

    /// Enables the device after a reset. The kernel restores configuration space and MSI-X; this
    /// sets the command register in case it did not.
    fn enable(&self) -> Result<(), Error> {
        let on = pci::MEMORY_SPACE | pci::BUS_MASTER;
        self.device.command(on, 0)
    }
}

impl Bar for Vfio {
    fn bar_len(&self) -> usize {
        self.bar.registers().len()
    }
    fn read32(&self, offset: usize) -> u32 {
        if self.severed.load(Ordering::Relaxed) {
            return u32::MAX;
        }
        self.bar.registers().read32(offset)
    }
    fn write32(&self, offset: usize, value: u32) {
        self.bar.registers().write32(offset, value);
    }
    fn write64(&self, offset: usize, value: u64) {
        self.bar.registers().write64(offset, value);
    }
    #[inline]
    fn write_block(&self, offset: usize, block: &[u64; 8], how: Blocks) {
        self.bar.registers().write_block(offset, block, how);
    }
}

platform_over_memory!(Vfio);

impl Host for Vfio {
    host_over_memory!();

    fn blocks(&self) -> Blocks {
        self.bar.registers().blocks()
    }
    fn config_space(&self) -> Result<ConfigSpace, Error> {
        self.device.config_space()
    }
    fn reset(&self) -> Result<(), Error> {
        self.severed.store(true, Ordering::Release);
        self.device.reset()
    }
    fn trouble(&self) -> Option<Trouble> {
        self.wakeups.trouble()
    }
}

impl Drop for Vfio {
    fn drop(&mut self) {
        // A child has its parent's descriptors, but not its device.
        if self.owner != std::process::id() {
            return;
        }
        // Bus mastering stops before the memory is unmapped. On a removed device each step fails,
        // and nothing is left to do.
        let _ = self.device.command(0, pci::BUS_MASTER);
        let _ = ioctl::reset(&self.device.fd);
        for index in [VFIO_PCI_MSIX_IRQ_INDEX, VFIO_PCI_ERR_IRQ_INDEX, VFIO_PCI_REQ_IRQ_INDEX] {
            self.device.unwire(index);
        }
        let _ = self.memory.unmap(&self.iommu);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_function_is_named() {
        let address = "ffff:ff:1f.7".parse().unwrap();
        let error = Vfio::open(address, &Options::default()).unwrap_err();
        assert_eq!(error.kind(), Kind::NotFound);
        assert_eq!(error.object(), "ffff:ff:1f.7");
    }
}
