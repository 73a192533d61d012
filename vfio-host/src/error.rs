//! What went wrong before there was an adapter: the object, the cause in words, and the remedy.
//!
//! Once an adapter is open, failures are `dat_core`'s: a `DatReturn`, and a `Fault` with the
//! device's own account.

use std::fmt;

/// What sort of failure, for programs.
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
    /// Other members of the device's IOMMU group are in the kernel's hands.
    Group,
    /// The user may not open the device.
    Permission,
    /// Somebody else has the device open.
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

/// An error that says what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    kind: Kind,
    object: String,
    cause: String,
    remedy: String,
}

impl Error {
    /// The object, the cause, and what to do about it.
    pub fn new(
        kind: Kind,
        object: impl Into<String>,
        cause: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self { kind, object: object.into(), cause: cause.into(), remedy: remedy.into() }
    }

    /// What sort of failure.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// What failed.
    #[must_use]
    pub fn object(&self) -> &str {
        &self.object
    }

    /// Why.
    #[must_use]
    pub fn cause(&self) -> &str {
        &self.cause
    }

    /// What to do about it.
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
