//! The four variants of the library: for each kind of host, and with or without locked gates.
//!
//! They differ in types only, so that a post needs no run-time check of the kind of device. A
//! handle begins with the dispatch table of its variant, which selects the code.

use dat_core::{EpPoster, EvdReaper, SrqPoster};
use hca_mlx5::Mlx5;
use vfio_host::error::Kind;
use vfio_host::user::VfioUser;
use vfio_host::vfio::Vfio;
use vfio_host::{Address, Error, Host, Opened, Options};

use crate::abi::table::DatProvider;
use crate::adapter::{CQS, KEYS, NEIGHBOURS, QPS};
use crate::object::Objects;
use crate::registry::Providers;

/// The dispatch table.
pub(crate) type Table = DatProvider;
/// The driver of a variant.
pub(crate) type Hca<V> = Mlx5<'static, <V as Variant>::Host, QPS, CQS, KEYS, NEIGHBOURS>;

/// The poster or reaper of an object.
#[derive(Debug)]
pub(crate) enum DataQueue<V: Variant> {
    /// The poster of an Endpoint.
    Ep(EpPoster<'static, Hca<V>>),
    /// The reaper of an Event Dispatcher.
    Evd(EvdReaper<'static, Hca<V>>),
    /// The poster of a Shared Receive Queue.
    Srq(SrqPoster<'static, Hca<V>>),
}

/// One variant of the library.
pub(crate) trait Variant: Sized + std::fmt::Debug + 'static {
    /// The host of its devices.
    type Host: Host + Send + 'static;
    /// Several threads may use one handle at once.
    const LOCKED: bool;
    /// Its dispatch table.
    const TABLE: &'static Table;

    /// Its objects.
    fn objects() -> &'static Objects<Self>;
    /// Its providers: the lines of `dat.conf` that name it.
    fn providers() -> &'static Providers<Self>;
    /// Opens a device of its kind.
    fn open(device: &Address, options: &Options) -> Result<Self::Host, Error>;
}

macro_rules! variants {
    ($($(#[$doc:meta])* $name:ident: $host:ty as $opened:ident, $locked:literal;)*) => {
        $(
            $(#[$doc])*
            #[derive(Debug)]
            pub(crate) struct $name;

            impl Variant for $name {
                type Host = $host;
                const LOCKED: bool = $locked;
                const TABLE: &'static Table = &crate::call::table::<Self>();

                fn objects() -> &'static Objects<Self> {
                    static OBJECTS: Objects<$name> = Objects::new();
                    &OBJECTS
                }
                fn providers() -> &'static Providers<Self> {
                    static PROVIDERS: Providers<$name> = Providers::new();
                    &PROVIDERS
                }
                fn open(device: &Address, options: &Options) -> Result<$host, Error> {
                    if let Opened::$opened(host) = vfio_host::open(device, options)? {
                        return Ok(host);
                    }
                    Err(Error::new(Kind::Address, device.to_string(), "a device of another kind", ""))
                }
            }
        )*
    };
}

variants! {
    /// A function bound to vfio-pci.
    Pci: Vfio as Vfio, false;
    /// The same, for consumers that asked for thread safety.
    PciLocked: Vfio as Vfio, true;
    /// A device behind a socket.
    User: VfioUser as User, false;
    /// The same, for consumers that asked for thread safety.
    UserLocked: VfioUser as User, true;
}
