//! What the BAR and the configuration space show.

/// PCI configuration space.
#[derive(Debug, Default)]
pub(crate) struct ConfigSpace {}

/// Initialization segment and health.
#[derive(Debug, Default)]
pub(crate) struct Registers {}
