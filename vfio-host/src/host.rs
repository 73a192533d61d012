//! What hosts have beyond the driver's platform: interrupts as file descriptors, reset,
//! configuration space, the list of maps.
//!
//! [`Host`] is implemented by [`crate::vfio::Vfio`] and [`crate::user::VfioUser`]. A program that
//! takes either is generic over it, so that the data path stays a mapped register and raw memory
//! where it can be.

use std::fmt;

use dat_core::provider::Region;
use hca_mlx5::Config;
use hca_mlx5::platform::{Lend, Platform};

pub use hca_mlx5::platform::Reach;

use crate::error::Error;
use crate::pci::ConfigSpace;
use crate::wakeups::Wakeups;

/// How much memory the device gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Bytes of the arena: queues, mailboxes and buffers of [`Nic::buffer`](crate::Nic::buffer).
    /// Locked at once.
    pub arena: usize,
    /// Bytes of the arena that the device may only read: work queues, doorbell records of queue
    /// pairs, and buffers that are only sent from. When they are used up, such memory comes
    /// from the rest.
    pub read_only: usize,
    /// Bytes the firmware may hold at the most. Locked as it asks for them.
    pub firmware: usize,
}

impl Default for Options {
    /// 16 MiB, of which the device may not write 4, and up to 128 MiB for the firmware.
    fn default() -> Self {
        Self { arena: 16 << 20, read_only: 4 << 20, firmware: 128 << 20 }
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
    /// What it is for: `"arena"`, `"firmware"` or `"process"`, which is memory that was lent.
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

/// A host of one device. Bus mastering is on, the device has been reset, its interrupts are wired
/// to file descriptors. Dropping it takes all of that back: the device is silenced and reset before
/// its memory goes.
pub trait Host: Platform + Lend + Sync {
    /// The device's name in messages.
    fn name(&self) -> &str;

    /// 64 unpredictable bits.
    fn entropy(&self) -> u64;

    /// `wanted` with what the driver has to know of this host: vectors, random numbers, who lends
    /// memory. Both kinds of host reach doorbell pages uncached.
    fn config<'p>(&'p self, wanted: &Config<'p>) -> Config<'p>
    where
        Self: Sized,
    {
        let shared = |vector: u16| if vector < self.vectors() { vector } else { 0 };
        Config {
            async_vector: 0,
            page_vector: 0,
            completion_vector: shared(1),
            command_vector: shared(2),
            entropy: self.entropy().max(1),
            write_combining: false,
            lender: Some(self),
            ..*wanted
        }
    }

    /// How many interrupt vectors are wired; at least 1. [`crate::Nic::open`] deals them out:
    /// asynchronous events have the first, completions the second, commands the third, and who
    /// has none of his own shares the first.
    fn vectors(&self) -> u16;

    /// Where interrupts, deadlines and trouble make themselves felt.
    fn wakeups(&self) -> &Wakeups;

    /// A copy of configuration space as it is now.
    fn config_space(&self) -> Result<ConfigSpace, Error>;

    /// Resets the function, under a driver that may still live: what that had in the device is
    /// gone, so from here on it finds all registers reading ones, as of a device that was
    /// pulled. [`Host::renew`] makes the device usable again.
    fn reset(&self) -> Result<(), Error>;

    /// Makes the host as new for another driver: resets the function, takes all memory back,
    /// switches bus mastering on. By exclusive reference, so that no driver lives.
    fn renew(&mut self) -> Result<(), Error>;

    /// What is wrong with the device, if something is.
    fn trouble(&self) -> Option<Trouble>;

    /// Why the firmware last got fewer pages than it asked for.
    fn shortage(&self) -> Option<Error>;

    /// Everything that is mapped for the device.
    fn maps(&self) -> Vec<Mapping>;

    /// Lends memory of the process to the device: `len` bytes at `addr`, wherever they are, of the
    /// heap, of a stack or static. After it a region inside can be registered as one of the
    /// arena is ([`Ia::lmr_create`](dat_core::Ia::lmr_create)). The device is given whole
    /// pages, those that the bytes touch, for itself to read or also to write; what of them is
    /// not registered no peer can reach.
    ///
    /// What is lent twice is taken back twice; other ranges may overlap it. Memory of the arena is
    /// the device's anyway, and nothing is done for it. Errors name the range, and leave it as
    /// it was.
    ///
    /// [`Vfio`](crate::vfio::Vfio) has the kernel lock the pages, and map them as one entry of the
    /// IOMMU. Nothing else changes for the process.
    ///
    /// [`VfioUser`](crate::user::VfioUser) puts pages in their place that the server can map too,
    /// with the same contents, and at the end pages of the process alone, again with the same
    /// contents. It takes memory that is the process's own: of the heap, stacks, data segments,
    /// private mappings; and memory that is shared with others by a file that can be found;
    /// neither code nor huge pages of the process's own. In the moment in which pages are
    /// exchanged, other threads may read them, and a thread that writes to one waits, where the
    /// kernel helps with it (`userfaultfd`, for memory without a file of its own, Linux
    /// 5.7). Where it does not - a data segment, a container that forbids the call - what another
    /// thread writes to these pages in that moment may be lost. Taking back loses nothing in
    /// any case. While it is lent, a child after a `fork` shares these pages with its parent;
    /// one that only executes another program is none the worse for it.
    ///
    /// # Safety
    /// Until it has been taken back, by [`Host::take_back`], [`Host::renew`] or the host's end, the
    /// pages stay mapped as they are, and the program expects that the device writes to what is
    /// registered for that.
    #[expect(unsafe_code, reason = "what memory is lent is the caller's affair")]
    unsafe fn lend(&self, addr: u64, len: u64, reach: Reach) -> Result<(), Error>;

    /// Takes back what [`Host::lend`] was called with, byte for byte. Only when no registration
    /// lies in it any more: when this returns, the device cannot reach it, unless it was lent
    /// more often or as a part of other memory. What was not lent is left alone.
    fn take_back(&self, addr: u64, len: u64);

    /// Lends memory that the process shares with others by a mapping of its own, under the name
    /// that they agree upon: the 40 bytes of a `DAT_LMR_COOKIE`. After it a region inside can
    /// be registered as [`Memory::SharedVirtual`](dat_core::Memory::SharedVirtual) of that
    /// name, the latest if several have it. Memory that is the process's alone is refused.
    /// [`Host::take_back`] ends it and the name with it.
    ///
    /// # Safety
    /// As of [`Host::lend`].
    #[expect(unsafe_code, reason = "what memory is lent is the caller's affair")]
    unsafe fn lend_shared(&self, name: &[u8; 40], addr: u64, len: u64) -> Result<(), Error>;

    /// Maps memory that all processes of this user share which give the same name, lends it, and
    /// says where it is: zeroed by the first of them, who also says how long it is; gone with
    /// the last. To be registered as in [`Host::lend_shared`], or like any other memory.
    fn share(&self, name: &[u8; 40], len: u64) -> Result<Region, Error>;

    /// Ends one [`Host::share`], by what that returned. The same promise as of [`Host::take_back`];
    /// the memory is unmapped.
    fn unshare(&self, region: Region);
}
