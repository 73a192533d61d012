//! Capabilities: what the card could do (max), and what it is set to (current).

use crate::config::{Config, Profile};
use crate::ifc::Field;

/// The blocks, by type number.
#[derive(Debug)]
pub(crate) struct Caps {
    max: std::collections::BTreeMap<u16, Vec<u8>>,
    current: std::collections::BTreeMap<u16, Vec<u8>>,
}

/// Capability block numbers.
pub(crate) mod kind {
    pub(crate) const GENERAL: u16 = 0;
    pub(crate) const ETHERNET: u16 = 1;
    pub(crate) const ATOMIC: u16 = 3;
    pub(crate) const ROCE: u16 = 4;
    pub(crate) const FLOW_TABLE: u16 = 7;
}

impl Caps {
    pub(crate) fn new(config: &Config) -> Self {
        let _ = (config.umr, Profile::Big);
        Self {
            max: Default::default(),
            current: Default::default(),
        }
    }

    /// A field of the current general block.
    pub(crate) fn general(&self, field: Field) -> u32 {
        self.current(kind::GENERAL, field)
    }

    /// A field of any current block.
    pub(crate) fn current(&self, block: u16, field: Field) -> u32 {
        self.current.get(&block).map_or(0, |b| field.get(b))
    }

    /// A field of any maximum block.
    pub(crate) fn max(&self, block: u16, field: Field) -> u32 {
        self.max.get(&block).map_or(0, |b| field.get(b))
    }
}
