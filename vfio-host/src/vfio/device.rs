//! The file of an open function: configuration space, reset, regions and interrupts. Both of the
//! kernel's interfaces to the IOMMU give the same file.

use std::io;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use vfio_bindings::bindings::vfio::{
    VFIO_IRQ_SET_ACTION_TRIGGER, VFIO_IRQ_SET_DATA_EVENTFD, VFIO_IRQ_SET_DATA_NONE,
    VFIO_PCI_CONFIG_REGION_INDEX, vfio_region_info,
};
use vfio_ioctls::VfioDevice;

use super::ioctl;
use crate::error::{Error, Kind};
use crate::events;
use crate::pci::{self, ConfigSpace};

/// Longest wait for a device after its reset.
const BACK: Duration = Duration::from_secs(10);
/// Time between two polls of that wait.
const LOOK: Duration = Duration::from_millis(10);

/// The device's file.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) fd: OwnedFd,
    config: u64,
    _held: Held,
    name: String,
}

/// The device as `vfio-ioctls` holds it; `None` under iommufd.
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

impl Device {
    /// Makes the device of its file.
    pub(super) fn new(fd: OwnedFd, held: Option<VfioDevice>, name: String) -> Result<Self, Error> {
        let mut device = Self { fd, config: 0, _held: Held(held), name };
        device.config = device.region(VFIO_PCI_CONFIG_REGION_INDEX)?.offset;
        Ok(device)
    }

    /// Returns place, length and properties of a region.
    pub(super) fn region(&self, index: u32) -> Result<vfio_region_info, Error> {
        ioctl::region_info(&self.fd, index)
            .map_err(|error| self.refused("describe a region of the function", &error))
    }

    /// Returns the number of interrupts of a kind.
    pub(super) fn interrupts(&self, index: u32) -> u32 {
        ioctl::irq_count(&self.fd, index).unwrap_or(0)
    }

    fn refused(&self, what: &str, error: &io::Error) -> Error {
        let (kind, remedy) = match error.raw_os_error() {
            Some(libc::ENODEV | libc::EIO) => (Kind::Gone, "the device was removed, or is dead"),
            _ => (Kind::Refused, "see the kernel's log (dmesg)"),
        };
        let cause = format!("the kernel refused to {what}: {error}");
        Error::new(kind, &self.name, cause, remedy).because_of(error)
    }

    /// Reads a copy of configuration space.
    pub(super) fn config_space(&self) -> Result<ConfigSpace, Error> {
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
    pub(super) fn command(&self, on: u16, off: u16) -> Result<(), Error> {
        let at = self.config.saturating_add(pci::COMMAND);
        let mut bytes = [0; 2];
        let done = rustix::io::pread(&self.fd, &mut bytes, at).and_then(|_| {
            let command = u16::from_le_bytes(bytes) & !off | on;
            rustix::io::pwrite(&self.fd, &command.to_le_bytes(), at)
        });
        done.map(drop).map_err(|errno| self.refused("write the command register", &errno.into()))
    }

    /// Resets the function and waits until it answers again.
    pub(super) fn reset(&self) -> Result<(), Error> {
        events::reset(&self.name);
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

    /// Wires `fds` to the first interrupts of a kind.
    pub(super) fn wire(&self, index: u32, fds: &[OwnedFd]) -> Result<(), Error> {
        let flags = VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER;
        ioctl::set_irqs(&self.fd, flags, index, fds)
            .map_err(|error| self.refused("wire interrupts", &error))
    }

    /// Disables all interrupts of a kind.
    pub(super) fn unwire(&self, index: u32) {
        let flags = VFIO_IRQ_SET_DATA_NONE | VFIO_IRQ_SET_ACTION_TRIGGER;
        // Errors are ignored during teardown: a removed device has no interrupts any more.
        let _ = ioctl::set_irqs(&self.fd, flags, index, &[]);
    }
}
