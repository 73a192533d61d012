//! The user-space host of `hca-mlx5`: a NIC bound to vfio-pci, or one that a vfio-user server
//! offers.
//!
//! ```no_run
//! use std::time::Duration;
//! use vfio_host::{prelude::*, vfio::Vfio};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let host = Vfio::open("0000:3b:00.0".parse()?, &Options::default())?;
//! let mut storage = Box::new(NicStorage::new());
//! let net = "192.168.7.1/24".parse()?;
//! let mut nic = Nic::open(&host, storage.parts(), net, &Config::default())?;
//! let pz = nic.pz_create()?;
//! let evd = nic.evd_create(64, EvdFlags::DTO | EvdFlags::CONNECTION)?;
//! let ep = nic.ep_create(Some(pz), Some(evd), Some(evd), Some(evd), None)?;
//! nic.ep_connect(ep, "192.168.7.2:4711".parse()?, Duration::from_secs(2), b"hello")?;
//! match nic.evd_wait(evd, Duration::from_secs(3), 1)? {
//!     Event::Established(ep) => println!("{:?}", nic.ep_private_data(ep)?),
//!     other => println!("{other:?}"),
//! }
//! # Ok(()) }
//! ```
//!
//! The programs of `docs/book` go on from here, an echo server first.
//!
//! * [`host`] - the trait that both hosts implement on top of `hca_mlx5::platform::Platform`.
//! * [`vfio`], [`user`] - the two hosts. [`open`] picks one by address.
//! * [`nic`] - an adapter with the calls that wait; `aio` - the same calls as futures; [`wait`],
//!   [`wakeups`] - their implementation.
//! * [`owned`] - registered memory in pieces that the program or the device owns.
//! * [`events`] - what adapter and driver do, as events of `tracing`.
//! * [`class`] - traffic classes and priorities, as programs write them.
//! * [`neighbour`] - neighbours with a fixed MAC, as programs write them.
//! * [`status`] - what open adapters are doing, for other processes.
//! * [`pci`] - configuration space; [`sysfs`] - the kernel's view of PCI functions.
//!
//! No opcode, no offset and no constant of the device or of the wire is in this crate. `unsafe` is
//! in `map.rs` (memory and registers), `user/swap.rs` (memory of the process), `vfio/ioctl.rs` (the
//! kernel's calls), one line of `aio.rs`, and the declaration of [`Host::lend`].

pub mod address;
#[cfg(feature = "tokio")]
pub mod aio;
pub mod class;
pub mod error;
pub mod events;
pub mod host;
mod iova;
mod machine;
mod map;
mod memory;
pub mod neighbour;
pub mod nic;
pub mod owned;
pub mod pci;
pub mod status;
pub mod sysfs;
pub mod user;
pub mod vfio;
mod vmas;
pub mod wait;
pub mod wakeups;

/// The names that most programs need.
pub mod prelude {
    pub use dat_core::prelude::*;
    pub use hca_mlx5::Config;

    pub use crate::owned::{Piece, Pool};
    pub use crate::{Address, Error, Host, Nic, NicStorage, Opened, Options, WaitError, open};
}

pub use address::{Address, PciAddress};
pub use error::{Error, Kind};
pub use host::{Host, Interface, Mapping, Options, Reach, Trouble};
pub use neighbour::Neighbour;
pub use nic::{LINGER, Nic, NicStorage, WaitError};

/// A table from names to devices, as in dat_registry_add_provider(3) and dat_ia_open(3): an
/// application opens `"storage"`, its configuration maps that name to a device.
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let storage = dat_core::ProviderInfo { ia_name: "storage", dapl_version: (2, 0), is_thread_safe: false };
/// let mut registry = vfio_host::Registry::<8>::new();
/// registry.add_provider(storage, "0000:3b:00.0".parse()?)?;
/// let host = vfio_host::open(registry.open(&storage)?, &vfio_host::Options::default())?;
/// # Ok(()) }
/// ```
pub type Registry<'n, const N: usize> = dat_core::Registry<'n, Address, N>;

/// A host of either kind. A program matches it once and is generic over [`Host`] from there.
#[derive(Debug)]
pub enum Opened {
    /// A function bound to vfio-pci.
    Vfio(vfio::Vfio),
    /// A device behind a socket.
    User(user::VfioUser),
}

/// Opens the device at `address`: resets it, maps its memory and wires its interrupts. Does not
/// start the driver.
pub fn open(address: &Address, options: &Options) -> Result<Opened, Error> {
    match address {
        Address::Pci(address) => vfio::Vfio::open(*address, options).map(Opened::Vfio),
        Address::User(path) => user::VfioUser::open(path, options).map(Opened::User),
    }
}
