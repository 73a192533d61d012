//! The [`Host`] trait, which extends the driver's platform: interrupts as file descriptors, reset,
//! configuration space, the list of maps, lent memory.
//!
//! [`crate::vfio::Vfio`] and [`crate::user::VfioUser`] implement [`Host`]. A program that takes
//! either is generic over it, so that under VFIO the data path is mapped registers and raw memory.

use std::fmt;
use std::time::Duration;

use dat_core::provider::Region;
use hca_mlx5::Config;
use hca_mlx5::platform::{Blocks, Lend, Platform};

pub use hca_mlx5::platform::Reach;

use crate::error::Error;
use crate::pci::ConfigSpace;
use crate::wakeups::Wakeups;

/// The kernel's interface to the IOMMU, for a function that is bound to vfio-pci.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Interface {
    /// iommufd where the kernel has it and this process may use it, otherwise type 1.
    #[default]
    Auto,
    /// The container of an IOMMU group: `/dev/vfio/vfio` and `/dev/vfio/GROUP`.
    Type1,
    /// iommufd: `/dev/iommu` and `/dev/vfio/devices/vfioN` (Linux 6.6).
    Iommufd,
    /// No IOMMU. Opening fails and says why.
    None,
}

impl Interface {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Auto, Self::Type1, Self::Iommufd, Self::None];

    /// Returns its word on command lines.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Type1 => "type1",
            Self::Iommufd => "iommufd",
            Self::None => "none",
        }
    }
}

/// The memory sizes of a host, and the patience with a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Bytes of the arena: queues, mailboxes and buffers of [`Nic::buffer`](crate::Nic::buffer).
    /// Locked at once.
    pub arena: usize,
    /// Bytes of the arena that the device may only read: work queues, doorbell records of queue
    /// pairs, and buffers that are only sent from. When they are used up, such memory comes
    /// from the rest.
    pub read_only: usize,
    /// Upper limit of the bytes that the firmware may hold. Locked as it asks for them.
    pub firmware: usize,
    /// Longest wait for the reply to one request of a vfio-user server, from 1 ms to an hour. A
    /// server that needs longer counts as gone.
    pub reply_limit: Duration,
    /// The interface to the IOMMU.
    pub interface: Interface,
}

impl Default for Options {
    /// 16 MiB, of which the device may not write 4, up to 128 MiB for the firmware, and 5 s.
    fn default() -> Self {
        let reply_limit = Duration::from_secs(5);
        Self {
            arena: 16 << 20,
            read_only: 4 << 20,
            firmware: 128 << 20,
            reply_limit,
            interface: Interface::Auto,
        }
    }
}

/// One entry of the IOMMU, as this host asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Device address of its first byte.
    pub iova: u64,
    /// Length in bytes.
    pub len: u64,
    /// The device's access rights.
    pub reach: Reach,
    /// Its purpose: `"arena"`, `"firmware"` or `"process"` (lent memory).
    pub purpose: &'static str,
    /// Whether it was allocated as huge pages. The kernel may use huge pages even if false.
    pub huge: bool,
}

/// A condition of the device itself that ends its use.
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

impl std::error::Error for Trouble {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Gone(error) => error.source(),
            Self::RemovalRequested | Self::BusError => None,
        }
    }
}

/// A host of one device. Bus mastering is on, the device has been reset, its interrupts are wired
/// to file descriptors. Dropping it undoes all of that: it stops bus mastering and resets the
/// device before it unmaps memory.
pub trait Host: Platform<Probe: Sync> + Lend + Sync {
    /// Returns the device's name in messages.
    fn name(&self) -> &str;

    /// 32 unpredictable bytes. Without them no adapter opens.
    fn entropy(&self) -> Result<[u8; 32], Error>;

    /// `wanted` with what the driver has to know of this host: vectors, random numbers, who lends
    /// memory, how blocks reach doorbell pages.
    fn config<'p>(&'p self, wanted: &Config<'p>) -> Result<Config<'p>, Error>
    where
        Self: Sized,
    {
        let shared = |vector: u16| if vector < self.vectors() { vector } else { 0 };
        Ok(Config {
            async_vector: 0,
            page_vector: 0,
            completion_vector: shared(1),
            command_vector: shared(2),
            entropy: self.entropy()?,
            blocks: self.blocks(),
            lender: Some(self),
            ..*wanted
        })
    }

    /// How whole work requests reach doorbell pages. Neither kind of host maps those
    /// write-combining.
    fn blocks(&self) -> Blocks;

    /// Returns the number of wired interrupt vectors, at least 1. [`crate::Nic::open`] assigns
    /// them: the first to asynchronous events, the second to completions, the third to
    /// commands. Without a vector of their own, completions and commands share the first.
    fn vectors(&self) -> u16;

    /// Returns the file descriptors by which interrupts, deadlines and trouble end a sleep.
    fn wakeups(&self) -> &Wakeups;

    /// Reads a copy of configuration space.
    fn config_space(&self) -> Result<ConfigSpace, Error>;

    /// Resets the function, even while a driver uses it. The driver's device state is lost, so from
    /// then on all its register reads return ones, as for a removed device. [`Host::renew`] makes
    /// the device usable again.
    fn reset(&self) -> Result<(), Error>;

    /// Prepares the host for another driver: resets the function, takes all memory back, switches
    /// bus mastering on. Takes an exclusive reference, so no driver can exist.
    fn renew(&mut self) -> Result<(), Error>;

    /// Returns the trouble of the device, if any.
    fn trouble(&self) -> Option<Trouble>;

    /// Returns the error for which the firmware last got fewer pages than it asked for.
    fn shortage(&self) -> Option<Error>;

    /// Returns how many register stores the server has refused. Nothing waits for a store, so no
    /// call fails.
    fn refused_stores(&self) -> u64 {
        0
    }

    /// Returns all memory that is mapped for the device.
    fn maps(&self) -> Vec<Mapping>;

    /// Lends memory of the process to the device: `len` bytes at `addr`, on the heap, on a stack or
    /// static. Afterwards a region inside can be registered like a region of the arena
    /// ([`Ia::lmr_create`](dat_core::Ia::lmr_create)). The device gets access to the whole pages
    /// that the bytes touch, read-only or read-write. Peers reach registered bytes only.
    ///
    /// A range that was lent twice has to be taken back twice; ranges may overlap. Nothing is done
    /// for memory of the arena, which the device can access already. After an error, which names
    /// the range, the memory is unchanged.
    ///
    /// [`Vfio`](crate::vfio::Vfio) has the kernel lock the pages and map them as one entry of the
    /// IOMMU. Nothing else changes for the process.
    ///
    /// [`VfioUser`](crate::user::VfioUser) replaces the pages by pages with the same contents that
    /// the server can map too, and when they are taken back by private pages, again with the same
    /// contents. It accepts private memory (heap, stacks, data segments, private mappings) and
    /// memory shared by a file that can be found. It refuses code and private huge pages. During
    /// the exchange other threads may read the pages. A thread that writes to one waits, if the
    /// kernel supports it (`userfaultfd`, for memory without a file, Linux 5.7). Otherwise (a data
    /// segment, a container that forbids the call) a concurrent write of another thread may be
    /// lost. Taking back never loses a write; the pages are anonymous memory again, which can be
    /// extended and discarded, if the kernel can protect pages of a file (Linux 5.19). The server may write to all of these pages, even if they
    /// are lent to be read, and to whatever else stands there: lend whole pages to a server that is
    /// not trusted. It cannot make private memory vanish, and reaches none of it afterwards. What
    /// is shared by a file of the program's, or by [`Host::share`], it can truncate.
    ///
    /// With both, a child after a `fork` gets a copy of lent memory as of the fork (Linux 5.9 under
    /// VFIO), which the device does not reach, and none of the arena. It must not use the adapter
    /// or [`Host::share`]'s memory. With [`VfioUser`](crate::user::VfioUser), `fork` returns when
    /// the child has its copies. Meanwhile the device and the other threads do not see each other's
    /// stores to the pages of the stack that `fork` runs on, if these are lent. A `vfork` or `clone` by hand shares the pages; `posix_spawn` and
    /// [`std::process::Command`] do too, until the child executes its program.
    ///
    /// # Safety
    /// Until the memory has been taken back, by [`Host::take_back`], [`Host::renew`] or dropping
    /// the host, its pages must stay mapped unchanged, and the program must expect the device
    /// to write to the regions registered for writing.
    #[expect(unsafe_code, reason = "what memory is lent is the caller's affair")]
    unsafe fn lend(&self, addr: u64, len: u64, reach: Reach) -> Result<(), Error>;

    /// Takes back memory that was lent by [`Host::lend`] with the same arguments. Call it only when
    /// no registration lies in the memory any more. Afterwards the device cannot reach it, unless
    /// it was lent more often, or is part of another range that is lent. Does nothing for memory that was not
    /// lent.
    fn take_back(&self, addr: u64, len: u64);

    /// Lends memory that the process shares with others by a mapping of its own, under a name that
    /// they agree on: the 40 bytes of a `DAT_LMR_COOKIE`. Afterwards a region inside can be
    /// registered as [`Memory::SharedVirtual`](dat_core::Memory::SharedVirtual) of that name; the
    /// latest memory if several have it. Refuses private memory. [`Host::take_back`] ends it and
    /// removes the name.
    ///
    /// # Safety
    /// As for [`Host::lend`].
    #[expect(unsafe_code, reason = "what memory is lent is the caller's affair")]
    unsafe fn lend_shared(&self, name: &[u8; 40], addr: u64, len: u64) -> Result<(), Error>;

    /// Maps memory shared by all processes of this user that pass the same name, lends it and
    /// returns its address. The first process sets the length and gets zeroed memory; the memory is
    /// freed with the last. Register it as in [`Host::lend_shared`], or like any other memory.
    fn share(&self, name: &[u8; 40], len: u64) -> Result<Region, Error>;

    /// Ends one [`Host::share`], by the region that it returned, and unmaps the memory. The same
    /// condition holds as for [`Host::take_back`].
    fn unshare(&self, region: Region);
}
