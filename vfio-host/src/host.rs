//! What hosts have beyond the driver's platform: interrupts as file descriptors, reset, configuration space, the list of maps.
//!
//! [`Host`] is implemented by [`crate::vfio::Vfio`] and [`crate::user::VfioUser`]. A program that takes either is generic over
//! it, so that the data path stays a mapped register and raw memory where it can be.

use std::fmt;

use hca_mlx5::platform::Platform;

use crate::error::Error;
use crate::pci::ConfigSpace;
use crate::wakeups::Wakeups;

/// How much memory the device gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Bytes of the arena: queues, mailboxes and the consumer's buffers. Locked at once.
    pub arena: usize,
    /// Bytes of the arena that the device may only read: work queues, doorbell records of queue pairs, and buffers that are only
    /// sent from. When they are used up, such memory comes from the rest.
    pub read_only: usize,
    /// Bytes the firmware may hold at the most. Locked as it asks for them.
    pub firmware: usize,
}

impl Default for Options {
    /// 16 MiB, of which the device may not write 4, and up to 128 MiB for the firmware.
    fn default() -> Self {
        Self {
            arena: 16 << 20,
            read_only: 4 << 20,
            firmware: 128 << 20,
        }
    }
}

/// What the device may do with memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reach {
    /// Read it.
    Read,
    /// Read and write it.
    ReadWrite,
}

impl fmt::Display for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "r-",
            Self::ReadWrite => "rw",
        })
    }
}

/// One entry of the IOMMU, as this host asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Device address of its first byte.
    pub iova: u64,
    /// Length in bytes.
    pub len: u64,
    /// What the device may do there.
    pub reach: Reach,
    /// What it is for: `"arena"` or `"firmware"`.
    pub purpose: &'static str,
    /// It consists of huge pages for certain; the kernel may have joined small ones.
    pub huge: bool,
}

/// Something happened to the device itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The machine's owner wants the device back: close it soon.
    RemovalRequested,
    /// The bus reported an error that the device does not recover from by itself.
    BusError,
    /// The device or its server is gone: every register reads all ones.
    Gone(Error),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RemovalRequested => f.write_str(
                "the device is to be removed from this program; close the adapter, its owner waits for it",
            ),
            Self::BusError => f.write_str(
                "the bus reported an uncorrectable error of the device; close the adapter and open it anew",
            ),
            Self::Gone(error) => error.fmt(f),
        }
    }
}

/// A host of one device. Bus mastering is on, the device has been reset, its interrupts are wired to file descriptors.
/// Dropping it takes all of that back: the device is silenced and reset before its memory goes.
pub trait Host: Platform + Sync {
    /// The device's name in messages.
    fn name(&self) -> &str;

    /// How many interrupt vectors are wired; at least 1. [`crate::Nic::open`] deals them out: asynchronous events have the
    /// first, completions the second, commands the third, and who has none of his own shares the first.
    fn vectors(&self) -> u16;

    /// Where interrupts, deadlines and trouble make themselves felt.
    fn wakeups(&self) -> &Wakeups;

    /// A copy of configuration space as it is now.
    fn config_space(&self) -> Result<ConfigSpace, Error>;

    /// Resets the function, under a driver that may still live: what that had in the device is gone, so from here on it finds
    /// all registers reading ones, as of a device that was pulled. [`Host::renew`] makes the device usable again.
    fn reset(&self) -> Result<(), Error>;

    /// Makes the host as new for another driver: resets the function, takes all memory back, switches bus mastering on. By
    /// exclusive reference, so that no driver lives.
    fn renew(&mut self) -> Result<(), Error>;

    /// What is wrong with the device, if something is.
    fn trouble(&self) -> Option<Trouble>;

    /// Why the firmware last got fewer pages than it asked for.
    fn shortage(&self) -> Option<Error>;

    /// Everything that is mapped for the device.
    fn maps(&self) -> Vec<Mapping>;
}
