//! Firmware pages.

/// Pages given by the driver.
#[derive(Debug, Default)]
pub(crate) struct Pages {}
