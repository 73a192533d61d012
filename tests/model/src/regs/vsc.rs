//! The vendor-specific capability: a gateway from configuration space to the card's own registers,
//! for tools and for a driver whose card no longer answers.
//!
//! Words of the capability, from its start: 0x04 control (bits 15:0 the space, 28 its size is
//! known, 31:29 not zero when there is such a space), 0x08 a counter that is new at every read,
//! 0x0c a semaphore that is taken, when free, by writing such a number, 0x10 address (bit 31
//! flag), 0x14 data. An address written with its flag set stores the data there and clears the
//! flag; with the flag clear the data are fetched and the flag is set. Right after the choice of a
//! space the address reads as its size. Linux lib/pci_vsc.c.
//!
//! Spaces: 3 commands of tools and boot code (`icmd`); 7 the registers to be dumped, of which this
//! card shows its initialization segment; 0xa semaphores, which a second taker does not get.

use super::icmd::Commands;
use crate::hca::Hca;
use std::collections::BTreeMap;

/// Bytes of the capability.
pub(super) const BYTES: u16 = 0x18;

pub(super) const CONTROL: usize = 0x04;
const COUNTER: usize = 0x08;
const SEMAPHORE: usize = 0x0c;
const ADDRESS: usize = 0x10;
const DATA: usize = 0x14;

const COMMANDS: u16 = 3;
const SCAN: u16 = 7;
const SEMAPHORES: u16 = 0xa;
const FLAG: u32 = 1 << 31;
/// Address bits of a word.
const ADDRESS_BITS: u32 = 0x3fff_ffff;
/// Bytes of the space to be dumped.
const SCAN_BYTES: u32 = 0x2000;

/// State of the gateway.
#[derive(Debug, Default)]
pub(super) struct Gateway {
    space: u16,
    counter: u32,
    semaphore: u32,
    address: u32,
    data: u32,
    pub(super) semaphores: BTreeMap<u32, u32>,
    pub(super) commands: Commands,
}

impl Gateway {
    fn exists(&self) -> bool {
        matches!(self.space, COMMANDS | SCAN | SEMAPHORES)
    }
}

impl Hca {
    /// The capability's word at `at`.
    pub(super) fn gateway_read(&mut self, at: usize) -> u32 {
        let gateway = &mut self.pci.gateway;
        match at {
            CONTROL => {
                let status = u32::from(gateway.exists()) << 29;
                let sized = u32::from(gateway.space == SCAN) << 28;
                status | sized | u32::from(gateway.space)
            }
            COUNTER => {
                gateway.counter = gateway.counter.wrapping_add(1).max(1);
                gateway.counter
            }
            SEMAPHORE => gateway.semaphore,
            ADDRESS => gateway.address,
            DATA => gateway.data,
            _ => 0,
        }
    }

    /// A store to the capability's word at `at`.
    pub(super) fn gateway_write(&mut self, at: usize, word: u32) {
        let gateway = &mut self.pci.gateway;
        match at {
            CONTROL => {
                gateway.space = word as u16;
                gateway.address = match gateway.space {
                    SCAN => SCAN_BYTES,
                    _ => 0,
                };
            }
            // Taken when free, given back by zero.
            SEMAPHORE if gateway.semaphore == 0 || word == 0 => gateway.semaphore = word,
            DATA => gateway.data = word,
            ADDRESS if word & FLAG != 0 => {
                let address = word & ADDRESS_BITS;
                if gateway.space == SEMAPHORES {
                    let held = gateway.semaphores.entry(address).or_default();
                    if *held == 0 || gateway.data == 0 {
                        *held = gateway.data;
                    }
                }
                gateway.address = address;
                if gateway.space == COMMANDS {
                    let data = gateway.data;
                    self.icmd_write(address, data);
                }
            }
            ADDRESS => {
                let address = word & ADDRESS_BITS;
                let (data, next) = match gateway.space {
                    SEMAPHORES => {
                        let held = gateway.semaphores.get(&address);
                        (held.copied().unwrap_or(0), address)
                    }
                    COMMANDS => (gateway.commands.word(address), address),
                    // The address of the next register to be dumped.
                    SCAN => (self.iseg_word(u64::from(address)), address + 4),
                    _ => (0, address),
                };
                self.pci.gateway.data = data;
                self.pci.gateway.address = next | FLAG;
            }
            _ => {}
        }
    }
}
