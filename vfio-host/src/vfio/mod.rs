//! The host of a function bound to vfio-pci, behind the machine's IOMMU.
//!
//! `vfio-ioctls` manages the kernel's container, group and device. What it does not support (access
//! rights of a mapping, the IOMMU's ranges, the error of a reset) uses the file descriptors
//! directly (`ioctl.rs`). The BAR is mapped and the arena is ordinary memory, so the data path
//! makes no system call.
//!
//! Setup runs in the order open, reset, memory, registers, interrupts, bus mastering; teardown runs
//! in reverse, so all DMA in flight ends before the first page is unmapped.

mod info;
mod ioctl;
mod refusal;

use std::io;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use dat_core::provider::Region;
use hca_mlx5::platform::Bar;
use vfio_bindings::bindings::vfio::{
    VFIO_IRQ_SET_ACTION_TRIGGER, VFIO_IRQ_SET_DATA_EVENTFD, VFIO_IRQ_SET_DATA_NONE,
    VFIO_PCI_BAR0_REGION_INDEX, VFIO_PCI_CONFIG_REGION_INDEX, VFIO_PCI_ERR_IRQ_INDEX,
    VFIO_PCI_MSIX_IRQ_INDEX, VFIO_PCI_REQ_IRQ_INDEX, VFIO_REGION_INFO_FLAG_MMAP,
};
use vfio_ioctls::{VfioContainer, VfioDevice};

use self::info::IommuInfo;
use self::refusal::Limits;
use crate::address::PciAddress;
use crate::error::{Error, Kind};
use crate::host::{Host, Mapping, Options, Reach, Trouble};
use crate::iova;
use crate::machine::Machine;
use crate::map::{Pages, Promised, Registers};
use crate::memory::{Area, Iommu, Memory, Piece, host_over_memory, platform_over_memory};
use crate::pci::{self, ConfigSpace};
use crate::sysfs::Sysfs;
use crate::wakeups::{VECTORS, Wakeups};

/// Longest wait for a device after its reset.
const BACK: Duration = Duration::from_secs(10);
/// Time between two polls of that wait.
const LOOK: Duration = Duration::from_millis(10);

/// An open function.
#[derive(Debug)]
pub struct Vfio {
    // In drop order: the kernel releases a group only when nothing of its device is open or
    // mapped.
    bar: Registers,
    device: Device,
    iommu: Container,
    memory: Memory,
    machine: Machine,
    wakeups: Wakeups,
    /// The function was reset while a driver used it.
    severed: AtomicBool,
    /// The process that opened it.
    owner: u32,
    name: String,
}

/// The device's file.
#[derive(Debug)]
struct Device {
    fd: OwnedFd,
    config: u64,
    _held: Held,
    name: String,
}

/// The device as `vfio-ioctls` holds it.
struct Held(Option<VfioDevice>);

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("VfioDevice")
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // Dropping it looks the group up once more, and panics if the kernel has removed the device
        // since its file was closed. In that case dropping the container releases the group.
        let device = self.0.take();
        let _ = catch_unwind(AssertUnwindSafe(|| drop(device)));
    }
}

/// The container, with the IOMMU behind it.
struct Container {
    container: Arc<VfioContainer>,
    locked: AtomicU64,
    /// Upper limit of the bytes that will be locked.
    wanted: u64,
}

impl std::fmt::Debug for Container {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Container").field("locked", &self.locked).finish_non_exhaustive()
    }
}

impl Container {
    fn info(&self) -> io::Result<IommuInfo> {
        ioctl::iommu_info(&*self.container).map(|bytes| IommuInfo::parse(&bytes))
    }
}

impl Iommu for Container {
    fn map(&self, area: &Area<'_>) -> Result<(), Error> {
        let mapped = ioctl::map_dma(&*self.container, &area.mapping, area.addr);
        mapped.map_err(|error| {
            let limits = Limits::now(self.locked.load(Ordering::Relaxed), self.wanted);
            refusal::map(&error, &area.mapping, limits)
        })?;
        self.locked.fetch_add(area.mapping.len, Ordering::Relaxed);
        Ok(())
    }

    fn unmap(&self, mapping: &Mapping) -> Result<(), Error> {
        ioctl::unmap_dma(&*self.container, mapping).map_err(|error| {
            Error::new(
                Kind::Refused,
                mapping.purpose,
                format!("the kernel did not unmap it: {error}"),
                "",
            )
        })?;
        self.locked.fetch_sub(mapping.len, Ordering::Relaxed);
        Ok(())
    }

    fn entries_left(&self) -> Option<u32> {
        self.info().ok()?.entries
    }

    /// Returns the pages as one piece: the kernel pins them when they are mapped.
    fn hold(&self, memory: &Promised, _reach: Reach) -> Result<Vec<Piece>, Error> {
        memory.own();
        let pages = memory.pages();
        let len = pages.end - pages.start;
        Ok(vec![Piece { len, file: None }])
    }

    fn let_go(&self, _memory: &Promised) {}
}

impl Device {
    fn refused(&self, what: &str, error: &io::Error) -> Error {
        let (kind, remedy) = match error.raw_os_error() {
            Some(libc::ENODEV | libc::EIO) => (Kind::Gone, "the device was removed, or is dead"),
            _ => (Kind::Refused, "see the kernel's log (dmesg)"),
        };
        let cause = format!("the kernel refused to {what}: {error}");
        Error::new(kind, &self.name, cause, remedy)
    }

    fn config_space(&self) -> Result<ConfigSpace, Error> {
        self.first_of_config(pci::EXTENDED)
    }

    /// Reads the first `len` bytes of configuration space. The kernel reads four bytes at a time
    /// from the function, each a bus transaction.
    fn first_of_config(&self, len: usize) -> Result<ConfigSpace, Error> {
        let mut bytes = vec![0; len];
        let count = rustix::io::pread(&self.fd, &mut bytes, self.config);
        let count =
            count.map_err(|errno| self.refused("read configuration space", &errno.into()))?;
        bytes.truncate(count);
        Ok(ConfigSpace::new(bytes))
    }

    /// Switches bits of the command register on and off.
    fn command(&self, on: u16, off: u16) -> Result<(), Error> {
        let at = self.config.saturating_add(pci::COMMAND);
        let mut bytes = [0; 2];
        let done = rustix::io::pread(&self.fd, &mut bytes, at).and_then(|_| {
            let command = u16::from_le_bytes(bytes) & !off | on;
            rustix::io::pwrite(&self.fd, &command.to_le_bytes(), at)
        });
        done.map(drop).map_err(|errno| self.refused("write the command register", &errno.into()))
    }

    /// Resets the function and waits until it answers again.
    fn reset(&self) -> Result<(), Error> {
        ioctl::reset(&self.fd).map_err(|error| match error.raw_os_error() {
            Some(libc::EINVAL | libc::ENOTTY) => Error::new(
                Kind::Unsupported,
                &self.name,
                "the kernel cannot reset this function alone",
                "see reset_method in its sysfs directory; FLR or a slot of its own is needed",
            ),
            _ => self.refused("reset the function", &error),
        })?;
        let deadline = Instant::now() + BACK;
        while self.first_of_config(pci::ID)?.id().is_none() {
            if Instant::now() > deadline {
                return Err(Error::new(
                    Kind::Gone,
                    &self.name,
                    format!("it did not come back from its reset in {} s", BACK.as_secs()),
                    "power the machine down and up; if it persists, the device is broken",
                ));
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    fn wire(&self, index: u32, fds: &[OwnedFd]) -> Result<(), Error> {
        let flags = VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER;
        ioctl::set_irqs(&self.fd, flags, index, fds)
            .map_err(|error| self.refused("wire interrupts", &error))
    }

    fn unwire(&self, index: u32) {
        let flags = VFIO_IRQ_SET_DATA_NONE | VFIO_IRQ_SET_ACTION_TRIGGER;
        // Errors are ignored during teardown: a removed device has no interrupts any more.
        let _ = ioctl::set_irqs(&self.fd, flags, index, &[]);
    }
}

impl Vfio {
    /// Opens the function at `address`: checks that it is usable, resets it, maps memory and wires
    /// interrupts.
    pub fn open(address: PciAddress, options: &Options) -> Result<Self, Error> {
        let sysfs = Sysfs::default();
        let group = sysfs.check(address)?;
        let container = VfioContainer::new(None).map_err(|error| refusal::container(&error))?;
        let container = Arc::new(container);
        let held = VfioDevice::new(&sysfs.path(address), container.clone(), false)
            .map_err(|error| refusal::device(&error, address, group, &sysfs))?;
        let name = address.to_string();
        let failed = |what: &str, error: io::Error| {
            Error::new(
                Kind::Refused,
                address.to_string(),
                format!("{what}: {error}"),
                "see the kernel's log (dmesg)",
            )
        };
        let config = held.get_region_offset(VFIO_PCI_CONFIG_REGION_INDEX);
        let interrupts = |index| held.get_irq_info(index).map_or(0, |irq| irq.count);
        let vectors = interrupts(VFIO_PCI_MSIX_IRQ_INDEX);
        let reports = [VFIO_PCI_ERR_IRQ_INDEX, VFIO_PCI_REQ_IRQ_INDEX].map(|i| interrupts(i) > 0);
        let bar = (
            held.get_region_offset(VFIO_PCI_BAR0_REGION_INDEX),
            held.get_region_size(VFIO_PCI_BAR0_REGION_INDEX),
            held.get_region_flags(VFIO_PCI_BAR0_REGION_INDEX),
        );
        let fd = ioctl::duplicate(&held).map_err(|error| failed("no file descriptor", error))?;
        let device = Device { fd, config, _held: Held(Some(held)), name: name.clone() };
        let lacks =
            |what: &str| Error::new(Kind::Unsupported, &name, what, "choose another function");
        if vectors == 0 {
            return Err(lacks("the function has no MSI-X"));
        }
        let (bar_at, bar_len, bar_flags) = bar;
        if bar_len == 0 || bar_flags & VFIO_REGION_INFO_FLAG_MMAP == 0 {
            return Err(lacks("BAR 0 of the function cannot be mapped"));
        }
        device.reset()?;
        let iommu = Container {
            container,
            locked: AtomicU64::new(0),
            wanted: options.arena.saturating_add(options.firmware) as u64,
        };
        let info = iommu.info().map_err(|error| failed("cannot query the IOMMU", error))?;
        let ranges = match info.ranges {
            ranges if ranges.is_empty() => vec![iova::DEFAULT_APERTURE],
            ranges => ranges,
        };
        let memory = Memory::new(options, &ranges, Pages::private, &iommu)?;
        let len = usize::try_from(bar_len).unwrap_or(usize::MAX);
        device.command(pci::MEMORY_SPACE, 0)?;
        let bar =
            Registers::map(std::os::fd::AsFd::as_fd(&device.fd), bar_at, len).map_err(|error| {
                failed("BAR 0 cannot be mapped as a whole (it can since Linux 4.16)", error)
            })?;
        let wakeups = Wakeups::new(usize::try_from(vectors).unwrap_or(VECTORS))?;
        device.wire(VFIO_PCI_MSIX_IRQ_INDEX, wakeups.vectors())?;
        let [errors, removals] = reports;
        if errors {
            device.wire(VFIO_PCI_ERR_IRQ_INDEX, std::slice::from_ref(wakeups.error()))?;
        }
        if removals {
            device.wire(VFIO_PCI_REQ_IRQ_INDEX, std::slice::from_ref(wakeups.removal()))?;
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
    fn write_block(&self, offset: usize, block: &[u64; 8]) {
        self.bar.registers().write_block(offset, block);
    }
}

platform_over_memory!(Vfio);

impl Host for Vfio {
    host_over_memory!();

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
