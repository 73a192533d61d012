//! Lends the consumer's memory to the device for as long as it is registered.
#![expect(unsafe_code, reason = "lends memory for which the consumer guarantees")]

use dat_core::provider::Region;
use dat_core::{DatReturn, DatSubtype, DatType, Error};
use vfio_host::error::Kind;
use vfio_host::{Host, Reach};

use super::Open;
use crate::abi::code;
use crate::log::{Level, say};
use crate::variant::Variant;

impl<V: Variant> Open<V> {
    /// Lends memory to the device. `INVALID_PARAMETER` if the process has no memory there, or it
    /// cannot be lent; `INSUFFICIENT_RESOURCES`.
    pub(crate) fn lend(&mut self, region: Region, reach: Reach) -> Result<(), Error> {
        // SAFETY: dat_lmr_create(3) requires of the consumer that the memory stays mapped until the
        // LMR is freed, and that the device may write to it as its privileges allow.
        let lent = unsafe { self.nic().host().lend(region.addr, region.len, reach) };
        lent.map_err(|error| refused(&error, code::bad_arg(3)))
    }

    /// Lends memory that is shared under a name. `INVALID_STATE` for private memory; other errors
    /// as for [`Open::lend`].
    pub(crate) fn lend_shared(&mut self, region: Region, name: &[u8; 40]) -> Result<(), Error> {
        // SAFETY: as for `lend`.
        let lent = unsafe { self.nic().host().lend_shared(name, region.addr, region.len) };
        lent.map_err(|error| refused(&error, DatReturn::of(DatType::InvalidState)))
    }

    /// Takes lent memory back. The registration that it was lent for must have ended.
    pub(crate) fn take_back(&mut self, region: Region) {
        self.nic().host().take_back(region.addr, region.len);
    }
}

/// Returns the error for memory that cannot be lent: `unsupported` if it is of the wrong kind.
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
        | Kind::Device
        | Kind::Call => DatReturn::new(full, DatSubtype::ResourceMemoryRegion),
    }
    .into()
}
