//! Configuration space, and the way to one function in it.
//!
//! [`Config`] reads and writes it: mapped ([`Mapped`]), or through the ports 0xcf8 and 0xcfc where
//! ACPI names no mapping ([`Ports`], 256 bytes of each function). [`find`] walks the buses that
//! firmware has numbered, [`Function`] does to the function found what a host does before it hands
//! it to the driver: place BAR 0, reset, memory and bus master on.

use hca_mlx5::mmio::MappedBar;
use heapless::Vec;

use crate::acpi::Ecam;
use crate::ports;

/// Where a function is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) bus: u8,
    pub(crate) device: u8,
    pub(crate) function: u8,
}

impl core::fmt::Display for Address {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{:02x}:{:02x}.{}", self.bus, self.device, self.function)
    }
}

/// Reads and writes 32 bits of configuration space; `offset` is a multiple of 4. All ones where
/// nothing is.
pub(crate) trait Config {
    fn read(&self, at: Address, offset: u16) -> u32;
    fn write(&self, at: Address, offset: u16, value: u32);
}

/// Configuration space that is mapped.
#[derive(Debug)]
pub(crate) struct Mapped {
    /// The whole segment, from bus 0 on.
    pub(crate) window: MappedBar,
    pub(crate) buses: Ecam,
}

impl Mapped {
    fn place(&self, at: Address, offset: u16) -> usize {
        if !(self.buses.first..=self.buses.last).contains(&at.bus) {
            return usize::MAX;
        }
        usize::from(at.bus) << 20
            | usize::from(at.device) << 15
            | usize::from(at.function) << 12
            | usize::from(offset & 0xffc)
    }
}

impl Config for Mapped {
    fn read(&self, at: Address, offset: u16) -> u32 {
        self.window.read32(self.place(at, offset))
    }
    fn write(&self, at: Address, offset: u16, value: u32) {
        self.window.write32(self.place(at, offset), value);
    }
}

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

/// Bridges between the root and a function, at most.
const DEPTH: usize = 8;

/// A function, and the bridges on the way to it, the root's first.
#[derive(Debug)]
pub(crate) struct Function<'c, C> {
    config: &'c C,
    pub(crate) at: Address,
    bridges: Vec<Address, DEPTH>,
}

/// A BAR: where it is and how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bar {
    pub(crate) base: u64,
    pub(crate) len: u64,
}

/// The `nth` function, in the order of the buses, that `wanted` (vendor in the lower half, device
/// in the upper) likes.
pub(crate) fn find<C: Config>(
    config: &C,
    mut nth: usize,
    wanted: impl Fn(u32) -> bool,
) -> Option<Function<'_, C>> {
    // What is still to be looked at: a bus, and the bridges to it.
    let mut buses: Vec<(u8, Vec<Address, DEPTH>), 32> = Vec::new();
    buses.push((0, Vec::new())).ok()?;
    while let Some((bus, bridges)) = buses.pop() {
        for device in 0..32 {
            for function in 0..8 {
                let at = Address { bus, device, function };
                let id = config.read(at, 0);
                // 0 is what an address without any configuration space behind it reads as, on some
                // machines.
                if id == u32::MAX || id == 0 {
                    if function == 0 {
                        break;
                    }
                    continue;
                }
                if wanted(id) {
                    if nth == 0 {
                        return Some(Function { config, at, bridges });
                    }
                    nth -= 1;
                }
                let [_, _, kind, _] = config.read(at, 0x0c).to_le_bytes();
                let [_, secondary, _, _] = config.read(at, 0x18).to_le_bytes();
                if kind & 0x7f == 1 && secondary > bus {
                    let mut way = bridges.clone();
                    if way.push(at).is_ok() {
                        // More bridges than there is room for: those behind are not seen.
                        let _ = buses.push((secondary, way));
                    }
                }
                if function == 0 && kind & 0x80 == 0 {
                    break;
                }
            }
        }
    }
    None
}

impl<C: Config> Function<'_, C> {
    /// Offset of capability `id`.
    fn capability(&self, id: u8) -> Option<u16> {
        let mut at = self.read(0x34) & 0xfc;
        // No more than fit, so that a ring of them ends.
        for _ in 0..48 {
            let offset = u16::try_from(at).ok().filter(|at| *at >= 0x40)?;
            let [this, next, ..] = self.read(offset).to_le_bytes();
            if this == id {
                return Some(offset);
            }
            at = u32::from(next & 0xfc);
        }
        None
    }

    pub(crate) fn read(&self, offset: u16) -> u32 {
        self.config.read(self.at, offset)
    }

    fn write(&self, offset: u16, value: u32) {
        self.config.write(self.at, offset, value);
    }

    /// Command register: memory and bus master on or off. Writing zeros to the status half clears
    /// nothing.
    fn enable(&self, memory: bool, master: bool) {
        let keep = self.read(4) & 0xfff8;
        self.write(4, keep | u32::from(memory) << 1 | u32::from(master) << 2);
    }

    /// Memory and bus master on, for the function and all bridges before it.
    pub(crate) fn start(&self) {
        for bridge in &self.bridges {
            let command = self.config.read(*bridge, 4) & 0xffff;
            self.config.write(*bridge, 4, command | 6);
        }
        self.enable(true, true);
    }

    /// Bus master off: the function reaches no memory any more.
    pub(crate) fn stop(&self) {
        self.enable(true, false);
    }

    /// Memory BAR `index` (the lower half of a 64-bit one), measured. None if it is not there.
    pub(crate) fn bar(&self, index: u16) -> Option<Bar> {
        let at = 0x10 + 4 * index;
        let low = self.read(at);
        let wide = low & 6 == 4;
        if low & 1 != 0 || wide && index > 4 {
            return None;
        }
        let high = if wide { self.read(at + 4) } else { 0 };
        // While it is all ones it must not answer.
        let command = self.read(4) & 0xffff;
        self.write(4, command & !3);
        self.write(at, u32::MAX);
        let mut mask = u64::from(self.read(at) & !0xf) | !0 << 32;
        self.write(at, low);
        if wide {
            self.write(at + 4, u32::MAX);
            mask = mask & 0xffff_ffff | u64::from(self.read(at + 4)) << 32;
            self.write(at + 4, high);
        }
        self.write(4, command);
        let len = mask.wrapping_neg();
        let base = u64::from(low & !0xf) | u64::from(high) << 32;
        (mask & 0xffff_ffff != 0 || wide && mask >> 32 != 0).then_some(())?;
        len.is_power_of_two().then_some(Bar { base, len })
    }

    /// Puts 64-bit BAR `index` to `base`, and the prefetchable windows of the bridges around it.
    pub(crate) fn place(&self, index: u16, bar: Bar, base: u64) -> Option<Bar> {
        let at = 0x10 + 4 * index;
        if self.read(at) & 0xf != 0xc || !base.is_multiple_of(bar.len.max(1 << 20)) {
            return None;
        }
        let last = base.checked_add(bar.len.max(1 << 20) - 1)?;
        self.enable(false, false);
        let half = |value: u64| u32::try_from(value & 0xffff_ffff).unwrap_or(0);
        self.write(at, half(base));
        self.write(at + 4, half(base >> 32));
        for bridge in &self.bridges {
            // Base and limit: bits 31..20 of each in 15..4, and the upper halves in registers of
            // their own.
            let window = half(base) >> 16 & 0xfff0 | half(last) & 0xfff0_0000;
            self.config.write(*bridge, 0x24, window);
            self.config.write(*bridge, 0x28, half(base >> 32));
            self.config.write(*bridge, 0x2c, half(last >> 32));
        }
        let now = u64::from(self.read(at) & !0xf) | u64::from(self.read(at + 4)) << 32;
        (now == base).then_some(Bar { base, ..bar })
    }

    /// Function level reset. `wait` lets so many milliseconds pass. False if the function has none
    /// or does not come back.
    pub(crate) fn reset(&self, mut wait: impl FnMut(u32)) -> bool {
        let Some(express) = self.capability(0x10) else {
            return false;
        };
        if self.read(express + 4) & 1 << 28 == 0 {
            return false;
        }
        let bars = [0x10, 0x14, 0x18, 0x1c, 0x20, 0x24].map(|at| (at, self.read(at)));
        self.enable(true, false);
        // What is on its way arrives before the reset, which nothing but time can then undo.
        for _ in 0..100 {
            if self.read(express + 8) & 1 << 21 == 0 {
                break;
            }
            wait(1);
        }
        let control = self.read(express + 8) & 0xffff;
        self.write(express + 8, control | 1 << 15);
        // The specification gives it 100 ms; until then, and on some cards long after, it reads as
        // ones.
        wait(100);
        for _ in 0..500 {
            if self.read(0) != u32::MAX {
                for (at, value) in bars {
                    self.write(at, value);
                }
                return true;
            }
            wait(10);
        }
        false
    }

    /// Where the MSI-X table is: BAR, offset, entries.
    pub(crate) fn msix_table(&self) -> Option<(u16, usize, u16)> {
        let at = self.capability(0x11)?;
        let place = self.read(at + 4);
        let bar = u16::try_from(place & 7).ok()?;
        let entries = u16::try_from(self.read(at) >> 16 & 0x7ff).ok()? + 1;
        Some((bar, usize::try_from(place & !7).ok()?, entries))
    }

    /// MSI-X on or off.
    pub(crate) fn msix(&self, on: bool) {
        if let Some(at) = self.capability(0x11) {
            let word = self.read(at) & !(3 << 30);
            self.write(at, word | u32::from(on) << 31);
        }
    }
}

#[cfg(test)]
mod tests;
