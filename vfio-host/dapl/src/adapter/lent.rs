//! Memory of the consumer's that the device may reach: what is registered is lent to it for as
//! long.
#![expect(unsafe_code, reason = "the device is given memory that the consumer has said is there")]

use dat_core::provider::Region;
use dat_core::{DatReturn, DatSubtype, DatType, Error};
use vfio_host::error::Kind;
use vfio_host::{Host, Reach};

use super::Open;
use crate::abi::code;
use crate::log::{Level, say};
use crate::variant::Variant;

impl<V: Variant> Open<V> {
    /// Lends memory to the device. `INVALID_PARAMETER` of what is no memory of the process, or none
    /// that can be lent; `INSUFFICIENT_RESOURCES`.
    pub(crate) fn lend(&mut self, region: Region, reach: Reach) -> Result<(), Error> {
        // SAFETY: dat_lmr_create(3) asks of the consumer that the memory is there until the LMR is
        // freed, and is the device's to write to where its privileges say so.
        let lent = unsafe { self.nic().host().lend(region.addr, region.len, reach) };
        lent.map_err(|error| refused(&error, code::bad_arg(3)))
    }

    /// Lends memory that is shared under that name. `INVALID_STATE` of memory that is the process's
    /// alone; other errors as of [`Open::lend`].
    pub(crate) fn lend_shared(&mut self, region: Region, name: &[u8; 40]) -> Result<(), Error> {
        // SAFETY: as of `lend`.
        let lent = unsafe { self.nic().host().lend_shared(name, region.addr, region.len) };
        lent.map_err(|error| refused(&error, DatReturn::of(DatType::InvalidState)))
    }

    /// Takes back what was lent, when nothing that is registered lies in it for the sake of that
    /// any more.
    pub(crate) fn take_back(&mut self, region: Region) {
        self.nic().host().take_back(region.addr, region.len);
    }
}

/// What a consumer is told of memory that cannot be lent: `unsupported`, if it is of the wrong
/// kind.
fn refused(error: &vfio_host::Error, unsupported: DatReturn) -> Error {
    say(Level::Warn, format_args!("dat_lmr_create: {error}"));
    let full = DatType::InsufficientResources;
    match error.kind() {
        Kind::Unsupported => unsupported,
        Kind::Refused | Kind::Address | Kind::NotFound => code::bad_arg(3),
        Kind::Memlock | Kind::Memory => DatReturn::new(full, DatSubtype::ResourceMemory),
        Kind::NoIommu
        | Kind::NotBound
        | Kind::Group
        | Kind::Permission
        | Kind::Busy
        | Kind::DmaEntries
        | Kind::Iova
        | Kind::Gone
        | Kind::Device => DatReturn::new(full, DatSubtype::ResourceMemoryRegion),
    }
    .into()
}
