//! Why a subcommand gave up: the cause, and what to do about it.

use std::fmt;

use dat_core::Fault;
use vfio_host::Trouble;

/// A failure as the user reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// The arguments are wrong: exit code 2 instead of 1.
    pub(crate) usage: bool,
    /// What failed and why, naming the object.
    pub(crate) cause: String,
    /// What to do about it; empty if nothing is known.
    pub(crate) remedy: String,
}

impl Failure {
    /// Something failed.
    pub(crate) fn new(cause: impl Into<String>) -> Self {
        Self { usage: false, cause: cause.into(), remedy: String::new() }
    }

    /// The arguments contradict each other or the machine.
    pub(crate) fn usage(cause: impl Into<String>) -> Self {
        Self { usage: true, ..Self::new(cause) }
    }

    /// Adds what to do about it.
    #[must_use]
    pub(crate) fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = remedy.into();
        self
    }

    /// What the device said, about `object`.
    pub(crate) fn fault(object: &str, fault: Fault) -> Self {
        let (text, advice) = (fault.to_string(), fault.advice());
        let ends = text.strip_suffix(advice);
        let silent = ends.and_then(|text| text.strip_suffix("; "));
        Self::new(format!("{object}: {}", silent.unwrap_or(&text))).remedy(advice)
    }

    /// The exit code.
    pub(crate) fn code(&self) -> u8 {
        if self.usage { 2 } else { 1 }
    }
}

impl From<vfio_host::Error> for Failure {
    fn from(error: vfio_host::Error) -> Self {
        Self::new(format!("{}: {}", error.object(), error.cause())).remedy(error.remedy())
    }
}

impl From<Trouble> for Failure {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Gone(error) => error.into(),
            Trouble::RemovalRequested | Trouble::BusError => Self::new(trouble.to_string()),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.cause)?;
        if !self.remedy.is_empty() {
            write!(f, "\n  help: {}", self.remedy)?;
        }
        Ok(())
    }
}
