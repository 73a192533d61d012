//! Configuration space, and the setup of one function.
//!
//! [`Config`] reads and writes it, as the machine has it. [`find`] walks the buses that firmware has
//! numbered; where there is no firmware, `number` numbers them before.
//! [`Function`] prepares the function for the driver: place BAR 0, reset, memory decoding and bus
//! mastering on.

use heapless::Vec;

/// The address of a function.
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

/// Reads and writes 32 bits of configuration space; `offset` is a multiple of 4. Absent functions
/// read as all ones.
pub(crate) trait Config {
    fn read(&self, at: Address, offset: u16) -> u32;
    fn write(&self, at: Address, offset: u16, value: u32);
}

/// Bridges between the root and a function, at most.
const DEPTH: usize = 8;

#[cfg(any(test, target_os = "none"))]
pub(crate) use number::number;

/// A function, and the bridges above it, the root's first.
#[derive(Debug)]
pub(crate) struct Function<'c, C> {
    config: &'c C,
    pub(crate) at: Address,
    bridges: Vec<Address, DEPTH>,
}

/// A BAR: its address and length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bar {
    pub(crate) base: u64,
    pub(crate) len: u64,
}

/// Returns the functions of a bus.
fn functions<C: Config>(config: &C, bus: u8) -> impl Iterator<Item = Address> + '_ {
    (0..32).flat_map(move |device| {
        let first = Address { bus, device, function: 0 };
        let count = match is_there(config, first) {
            false => 0,
            true if config.read(first, 0x0c) >> 16 & 0x80 == 0 => 1,
            true => 8,
        };
        let all = (0..count).map(move |function| Address { function, ..first });
        all.filter(|at| is_there(config, *at))
    })
}

/// Returns whether a function is there. On some machines an address without configuration space
/// reads as 0.
fn is_there<C: Config>(config: &C, at: Address) -> bool {
    !matches!(config.read(at, 0), 0 | u32::MAX)
}

/// Returns the bus behind a function, if that is a bridge.
fn behind<C: Config>(config: &C, at: Address) -> Option<u8> {
    let [_, _, kind, _] = config.read(at, 0x0c).to_le_bytes();
    let [_, secondary, _, _] = config.read(at, 0x18).to_le_bytes();
    (kind & 0x7f == 1).then_some(secondary)
}

/// Returns the `nth` function, in the order of the buses from `first` on, whose ID `wanted` accepts (vendor in the
/// lower 16 bits, device in the upper).
pub(crate) fn find<C: Config>(
    config: &C,
    first: u8,
    mut nth: usize,
    wanted: impl Fn(u32) -> bool,
) -> Option<Function<'_, C>> {
    // Buses still to search, each with the bridges above it.
    let mut buses: Vec<(u8, Vec<Address, DEPTH>), 32> = Vec::new();
    buses.push((first, Vec::new())).ok()?;
    while let Some((bus, bridges)) = buses.pop() {
        for at in functions(config, bus) {
            if wanted(config.read(at, 0)) {
                if nth == 0 {
                    return Some(Function { config, at, bridges });
                }
                nth -= 1;
            }
            if let Some(secondary) = behind(config, at).filter(|secondary| *secondary > bus) {
                let mut path = bridges.clone();
                if path.push(at).is_ok() {
                    // Buses behind too many bridges are not searched.
                    let _ = buses.push((secondary, path));
                }
            }
        }
    }
    None
}

impl<C: Config> Function<'_, C> {
    /// Returns the offset of capability `id`.
    fn capability(&self, id: u8) -> Option<u16> {
        let mut at = self.read(0x34) & 0xfc;
        // At most as many as fit, so that a cycle ends.
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

    /// Writes the command register: memory decoding and bus mastering on or off. Writing zeros to
    /// the status register clears nothing.
    fn enable(&self, memory: bool, master: bool) {
        let keep = self.read(4) & 0xfff8;
        self.write(4, keep | u32::from(memory) << 1 | u32::from(master) << 2);
    }

    /// Switches memory decoding and bus mastering on, for the function and all bridges above it.
    pub(crate) fn start(&self) {
        for bridge in &self.bridges {
            let command = self.config.read(*bridge, 4) & 0xffff;
            self.config.write(*bridge, 4, command | 6);
        }
        self.enable(true, true);
    }

    /// Switches bus mastering off, after which the function accesses no memory.
    pub(crate) fn stop(&self) {
        self.enable(true, false);
    }

    /// Returns memory BAR `index` (the lower one of a 64-bit BAR) with its length; `None` if
    /// absent.
    pub(crate) fn bar(&self, index: u16) -> Option<Bar> {
        let at = 0x10 + 4 * index;
        let low = self.read(at);
        let wide = low & 6 == 4;
        if low & 1 != 0 || wide && index > 4 {
            return None;
        }
        let high = if wide { self.read(at + 4) } else { 0 };
        // The function must not decode memory while the BAR is all ones.
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

    /// Moves 64-bit BAR `index` to `base`, and sets the prefetchable windows of the bridges around
    /// it.
    pub(crate) fn place(&self, index: u16, bar: Bar, base: u64) -> Option<Bar> {
        let at = 0x10 + 4 * index;
        if self.read(at) & 0xf != 0xc || base % (bar.len.max(1 << 20)) != 0 {
            return None;
        }
        let last = base.checked_add(bar.len.max(1 << 20) - 1)?;
        self.enable(false, false);
        let low = |value: u64| u32::try_from(value & 0xffff_ffff).unwrap_or(0);
        self.write(at, low(base));
        self.write(at + 4, low(base >> 32));
        for bridge in &self.bridges {
            // Base and limit: bits 31..20 of each in 15..4, and bits 63..32 in separate registers.
            let window = low(base) >> 16 & 0xfff0 | low(last) & 0xfff0_0000;
            self.config.write(*bridge, 0x24, window);
            self.config.write(*bridge, 0x28, low(base >> 32));
            self.config.write(*bridge, 0x2c, low(last >> 32));
        }
        let now = u64::from(self.read(at) & !0xf) | u64::from(self.read(at + 4)) << 32;
        (now == base).then_some(Bar { base, ..bar })
    }

    /// Does a function level reset. `wait` waits for some milliseconds. Returns false if the
    /// function has none or does not answer afterwards.
    pub(crate) fn reset(&self, mut wait: impl FnMut(u32)) -> bool {
        let Some(express) = self.capability(0x10) else {
            return false;
        };
        if self.read(express + 4) & 1 << 28 == 0 {
            return false;
        }
        let bars = [0x10, 0x14, 0x18, 0x1c, 0x20, 0x24].map(|at| (at, self.read(at)));
        self.enable(true, false);
        // Requests in flight must complete before the reset.
        for _ in 0..100 {
            if self.read(express + 8) & 1 << 21 == 0 {
                break;
            }
            wait(1);
        }
        let control = self.read(express + 8) & 0xffff;
        self.write(express + 8, control | 1 << 15);
        // The specification allows 100 ms. Until then, and on some cards much longer, it reads as
        // all ones.
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

    /// Returns the location of the MSI-X table: BAR, offset, entries.
    pub(crate) fn msix_table(&self) -> Option<(u16, usize, u16)> {
        let at = self.capability(0x11)?;
        let place = self.read(at + 4);
        let bar = u16::try_from(place & 7).ok()?;
        let entries = u16::try_from(self.read(at) >> 16 & 0x7ff).ok()? + 1;
        Some((bar, usize::try_from(place & !7).ok()?, entries))
    }

    /// Switches MSI-X on or off.
    pub(crate) fn msix(&self, on: bool) {
        if let Some(at) = self.capability(0x11) {
            let word = self.read(at) & !(3 << 30);
            self.write(at, word | u32::from(on) << 31);
        }
    }
}

#[cfg(any(test, target_os = "none"))]
mod number;
#[cfg(test)]
mod tests;
