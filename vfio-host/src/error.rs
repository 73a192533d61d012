//! Errors of a host: the object, the cause and the remedy.
//!
//! Once an adapter is open, failures are `dat_core`'s: a `DatReturn`, and a `Fault` with the
//! device's own account. Each of them, and [`WaitError`](crate::WaitError), becomes an [`Error`] by
//! `?`, so that a program has one type to return. [`source`](std::error::Error::source) leads to
//! what an error came from: the kernel's errno, the call of DAT, what the device said. The text of
//! an error ends with that of its source.

use std::error::Error as Source;
use std::fmt;
use std::io;
use std::net::AddrParseError;
use std::sync::Arc;

use dat_core::{DatReturn, DtoStatus, Returned};

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
    /// A call of DAT was refused, or a request failed.
    Call,
}

/// An error with its object, cause and remedy.
#[derive(Clone, Debug)]
pub struct Error {
    kind: Kind,
    object: String,
    cause: String,
    remedy: String,
    /// Shared, because errors are cloned.
    source: Option<Arc<dyn Source + Send + Sync>>,
}

/// Errors are equal by what they say.
impl PartialEq for Error {
    fn eq(&self, other: &Self) -> bool {
        let said = |error: &Self| {
            let Self { kind, object, cause, remedy, source: _ } = error;
            (*kind, [object, cause, remedy].map(String::clone))
        };
        said(self) == said(other)
    }
}

impl Eq for Error {}

impl Error {
    /// Makes an error of a kind from its object, cause and remedy.
    pub fn new(
        kind: Kind,
        object: impl Into<String>,
        cause: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        let (object, cause, remedy) = (object.into(), cause.into(), remedy.into());
        Self { kind, object, cause, remedy, source: None }
    }

    /// Names the error that this one came from.
    #[must_use]
    pub fn because(self, source: impl Source + Send + Sync + 'static) -> Self {
        Self { source: Some(Arc::new(source)), ..self }
    }

    /// Makes an error of an event, or of anything else, that a program did not expect.
    pub fn unexpected(what: impl fmt::Debug) -> Self {
        Self::new(Kind::Call, "", format!("this was not expected: {what:?}"), "")
    }

    /// Names the error of the kernel, which cannot be cloned itself, that this one came from.
    pub(crate) fn because_of(self, error: &io::Error) -> Self {
        let code = error.raw_os_error().map(io::Error::from_raw_os_error);
        self.because(code.unwrap_or_else(|| error.kind().into()))
    }

    /// Makes an error of a call of DAT.
    fn call(source: impl Source + Send + Sync + 'static) -> Self {
        Self::new(Kind::Call, "", source.to_string(), "").because(source)
    }

    /// Returns the kind of the error.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the name of the object that failed; empty for a call of DAT.
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
        if !self.object.is_empty() {
            write!(f, "{}: ", self.object)?;
        }
        f.write_str(&self.cause)?;
        if !self.remedy.is_empty() {
            write!(f, "; {}", self.remedy)?;
        }
        Ok(())
    }
}

impl Source for Error {
    fn source(&self) -> Option<&(dyn Source + 'static)> {
        self.source.as_ref().map(|source| &**source as _)
    }
}

impl From<dat_core::Error> for Error {
    fn from(error: dat_core::Error) -> Self {
        Self::call(error)
    }
}

impl From<AddrParseError> for Error {
    fn from(error: AddrParseError) -> Self {
        Self::new(Kind::Address, "network address", error.to_string(), "").because(error)
    }
}

impl From<DatReturn> for Error {
    fn from(ret: DatReturn) -> Self {
        Self::call(ret)
    }
}

impl From<DtoStatus> for Error {
    fn from(status: DtoStatus) -> Self {
        Self::call(status)
    }
}

impl<B> From<Returned<B>> for Error {
    fn from(returned: Returned<B>) -> Self {
        returned.ret.into()
    }
}
