//! Errors of opening a device: the object, the cause and the remedy.
//!
//! Once an adapter is open, failures are `dat_core`'s: a `DatReturn`, and a `Fault` with the
//! device's own account.

use std::fmt;

/// The kind of an error, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The address is malformed.
    Address,
    /// There is no such device or socket.
    NotFound,
    /// The machine, or the device, is not behind an IOMMU.
    NoIommu,
    /// The device is bound to another driver, or to none.
    NotBound,
    /// Other members of the device's IOMMU group are bound to kernel drivers.
    Group,
    /// The user may not open the device.
    Permission,
    /// Another program has the device open.
    Busy,
    /// Less memory may be locked than the device needs.
    Memlock,
    /// The IOMMU takes no more mappings.
    DmaEntries,
    /// No range of device addresses fits.
    Iova,
    /// The machine is out of memory or file descriptors.
    Memory,
    /// The device or its server is gone.
    Gone,
    /// The device, or its server, cannot do what is needed.
    Unsupported,
    /// The driver could not bring the device up.
    Device,
    /// The kernel, or the server, refused a request.
    Refused,
}

/// An error with its object, cause and remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    kind: Kind,
    object: String,
    cause: String,
    remedy: String,
}

impl Error {
    /// Makes an error of a kind from its object, cause and remedy.
    pub fn new(
        kind: Kind,
        object: impl Into<String>,
        cause: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self { kind, object: object.into(), cause: cause.into(), remedy: remedy.into() }
    }

    /// Returns the kind of the error.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the name of the object that failed.
    #[must_use]
    pub fn object(&self) -> &str {
        &self.object
    }

    /// Returns the cause.
    #[must_use]
    pub fn cause(&self) -> &str {
        &self.cause
    }

    /// Returns the remedy; empty if none is known.
    #[must_use]
    pub fn remedy(&self) -> &str {
        &self.remedy
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.object, self.cause)?;
        if !self.remedy.is_empty() {
            write!(f, "; {}", self.remedy)?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}
