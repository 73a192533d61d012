//! The catalogue.

mod device;
mod health;
mod host;
mod pci;
mod queues;
mod wire;

use super::what::Row;

pub use pci::reset_before;

/// Faults of one kind.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    /// Its name.
    pub name: &'static str,
    /// What it is about.
    pub is: &'static str,
    /// Its faults.
    pub rows: &'static [Row],
}

/// All of them.
pub const GROUPS: &[Group] =
    &[device::GROUP, queues::GROUP, pci::GROUP, health::GROUP, wire::GROUP, host::GROUP];
