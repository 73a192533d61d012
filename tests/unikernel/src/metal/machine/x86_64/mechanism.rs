//! Configuration space through ports (mechanism #1 of the PCI specification), 256 bytes of each
//! function.

use super::ports;
use crate::pci::{Address, Config};

/// Configuration space through ports.
#[derive(Debug)]
pub(crate) struct Ports;

impl Ports {
    fn select(at: Address, offset: u16) -> bool {
        let word = 1 << 31
            | u32::from(at.bus) << 16
            | u32::from(at.device) << 11
            | u32::from(at.function) << 8
            | u32::from(offset & 0xfc);
        ports::write32(0xcf8, word);
        offset < 256
    }
}

impl Config for Ports {
    fn read(&self, at: Address, offset: u16) -> u32 {
        if Self::select(at, offset) { ports::read32(0xcfc) } else { u32::MAX }
    }
    fn write(&self, at: Address, offset: u16, value: u32) {
        if Self::select(at, offset) {
            ports::write32(0xcfc, value);
        }
    }
}
