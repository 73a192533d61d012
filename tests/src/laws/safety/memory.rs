//! Memory of side B: which units are exposed, and what they hold.

use super::program::Program;
use crate::conformance::{A, Side};
use crate::laws::{Check, violation};

/// Bytes of a unit.
pub(super) const UNIT: usize = 64;
/// Units of a block; a registration covers one block.
pub(super) const BLOCK: usize = 4;
/// Blocks.
pub(super) const BLOCKS: usize = 4;
/// Units in all.
pub(super) const UNITS: usize = BLOCK * BLOCKS;

/// A bit that public bytes do not have.
const SECRET: u8 = 0x80;

/// Content of a unit while it is not exposed.
fn secret(unit: usize, epoch: u8) -> [u8; UNIT] {
    let mut bytes = [0; UNIT];
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = SECRET | (unit as u8).wrapping_mul(31) ^ epoch.wrapping_add(at as u8) & 0x7f;
    }
    bytes
}

impl<S: Side> Program<'_, '_, S> {
    /// Whether a remote operation may reach a unit.
    fn exposed(&self, unit: usize) -> bool {
        let zone_is_open = |zone: usize| {
            let mut pairs = self.pairs.iter();
            pairs.any(|pair| pair.open && pair.zone == zone)
        };
        let block = unit / BLOCK;
        if self.opening.is_some_and(|(opening, zone)| opening == block && zone_is_open(zone)) {
            return true;
        }
        let region = self.regions[block].as_ref();
        if region.is_some_and(|region| region.remote && zone_is_open(region.zone)) {
            return true;
        }
        self.windows.iter().any(|window| {
            window.ranges.iter().any(|range| {
                let covers = (range.first..range.first + range.units).contains(&unit);
                covers
                    && if window.of_ep {
                        self.pairs[range.pair].open
                    } else {
                        zone_is_open(window.zone)
                    }
            })
        })
    }

    /// Fills units that began or ceased to be exposed since the last call.
    pub(super) fn expose(&mut self) -> Check {
        for unit in 0..UNITS {
            let exposed = self.exposed(unit);
            if exposed == self.units[unit].exposed {
                continue;
            }
            let addr = self.memory + (unit * UNIT) as u64;
            if exposed {
                self.check_unit(unit)?;
                self.ias.b.side.store(addr, &[0x22; UNIT]);
            } else {
                let epoch = self.units[unit].epoch.wrapping_add(1);
                self.units[unit].epoch = epoch;
                self.ias.b.side.store(addr, &secret(unit, epoch));
            }
            self.units[unit].exposed = exposed;
            self.note(|| format!("unit {unit} exposed: {exposed}"));
        }
        Ok(())
    }

    /// Fills all units for the first time.
    pub(super) fn fill(&mut self) {
        for unit in 0..UNITS {
            let addr = self.memory + (unit * UNIT) as u64;
            self.ias.b.side.store(addr, &secret(unit, 0));
        }
    }

    fn check_unit(&self, unit: usize) -> Check {
        let addr = self.memory + (unit * UNIT) as u64;
        let bytes = self.ias.b.side.load(addr, UNIT);
        self.compare(unit, &bytes)
    }

    fn compare(&self, unit: usize, bytes: &[u8]) -> Check {
        let want = secret(unit, self.units[unit].epoch);
        match bytes.iter().zip(&want).position(|(have, want)| have != want) {
            None => Ok(()),
            Some(at) => violation(
                "written",
                format!("byte {at} of unit {unit} is {:#x}, after: {}", bytes[at], self.last_close),
            ),
        }
    }

    /// Checks all memory that is not exposed, and what side A has read.
    pub(super) fn check(&mut self) -> Check {
        let bytes = self.ias.b.side.load(self.memory, UNITS * UNIT);
        for unit in 0..UNITS {
            if !self.units[unit].exposed {
                self.compare(unit, &bytes[unit * UNIT..][..UNIT])?;
            }
        }
        let read = self.ias[A].side.load(self.sink, 2 * UNIT);
        if read.iter().any(|byte| byte & SECRET != 0) {
            return violation(
                "read",
                format!("side A read secret bytes, after: {}", self.last_close),
            );
        }
        Ok(())
    }
}
