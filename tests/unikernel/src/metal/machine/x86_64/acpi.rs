//! The three ACPI facts that this image needs: the address of configuration space, a timer of known
//! speed, and how to switch off.
//!
//! RSDP -> XSDT or RSDT -> MCFG (ECAM) and FADT (timer, power) -> DSDT (the sleep type of S5, found
//! by its name; there is no interpreter here). Tables with a wrong length or checksum are skipped.

use super::super::ecam::Ecam;
use super::memory::Memory;
use super::ports;

/// The facts found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Acpi {
    /// The mapped configuration space.
    pub(crate) ecam: Option<Ecam>,
    /// The power management timer.
    pub(crate) timer: Option<Timer>,
    /// How to switch the machine off.
    pub(crate) power: Option<Power>,
}

/// The timer that runs at [`Timer::HERTZ`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timer(u16);

impl Timer {
    /// Its speed on every machine.
    pub(crate) const HERTZ: u64 = 3_579_545;

    /// Returns its count, of which at least 24 bits are valid.
    pub(crate) fn count(self) -> u32 {
        ports::read32(self.0) & 0xff_ffff
    }
}

/// The ports of the sleep registers, and what to write there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Power {
    control: [u16; 2],
    sleep: [u8; 2],
    /// Port and value that hand the machine to ACPI, if it is not already.
    enable: Option<(u16, u8)>,
}

impl Power {
    /// Switches the machine off. Returns only if that failed.
    pub(crate) fn off(&self) {
        let [first, _] = self.control;
        if let Some((port, value)) = self.enable {
            if ports::read16(first) & 1 == 0 {
                ports::write8(port, value);
            }
        }
        for (port, sleep) in self.control.into_iter().zip(self.sleep) {
            if port != 0 {
                ports::write16(port, u16::from(sleep & 7) << 10 | 1 << 13);
            }
        }
    }
}

/// A table with a valid header.
#[derive(Clone, Copy)]
struct Table {
    at: u64,
    len: u64,
}

/// Bytes of the header of a table.
const HEADING: u64 = 36;
/// Longest table that is accepted.
const LONGEST: u64 = 4 << 20;

impl Acpi {
    /// Reads the tables from the root pointer at `rsdp`; if that is 0, searches the BIOS area for
    /// it.
    pub(crate) fn read(memory: &impl Memory, rsdp: u64) -> Self {
        let mut found = Self::default();
        let Some(rsdp) = root(memory, rsdp) else {
            return found;
        };
        let list = |name, at: Option<u64>, width| {
            let table = table(memory, at.filter(|at| *at != 0)?, name)?;
            Some((table, width))
        };
        let extended = memory.byte(rsdp + 15).is_some_and(|revision| revision >= 2);
        let xsdt = extended.then(|| list(*b"XSDT", memory.read64(rsdp + 24), 8)).flatten();
        let rsdt = || list(*b"RSDT", memory.read32(rsdp + 16).map(u64::from), 4);
        let Some((tables, width)) = xsdt.or_else(rsdt) else {
            return found;
        };
        for entry in (tables.at + HEADING..tables.at + tables.len).step_by(width) {
            let at = match width {
                8 => memory.read64(entry),
                _ => memory.read32(entry).map(u64::from),
            };
            let Some(at) = at else { continue };
            if let Some(table) = table(memory, at, *b"MCFG") {
                found.ecam = found.ecam.or_else(|| ecam(memory, table));
            }
            if let Some(table) = table(memory, at, *b"FACP") {
                found.timer = timer(memory, table);
                found.power = power(memory, table);
            }
        }
        found
    }
}

fn root(memory: &impl Memory, rsdp: u64) -> Option<u64> {
    let good = |at: &u64| {
        memory.bytes(*at) == Some(*b"RSD PTR ")
            && sum(memory, Table { at: *at, len: 20 }) == Some(0)
    };
    if rsdp != 0 {
        return Some(rsdp).filter(good);
    }
    (0xe_0000..0x10_0000).step_by(16).find(good)
}

fn sum(memory: &impl Memory, table: Table) -> Option<u8> {
    (table.at..table.at.checked_add(table.len)?)
        .try_fold(0u8, |sum, at| Some(sum.wrapping_add(memory.byte(at)?)))
}

fn table(memory: &impl Memory, at: u64, name: [u8; 4]) -> Option<Table> {
    if memory.bytes(at)? != name {
        return None;
    }
    let len = u64::from(memory.read32(at + 4)?);
    let table = Table { at, len };
    ((HEADING..=LONGEST).contains(&len) && sum(memory, table)? == 0).then_some(table)
}

fn ecam(memory: &impl Memory, table: Table) -> Option<Ecam> {
    (table.at + 44..(table.at + table.len).saturating_sub(15)).step_by(16).find_map(|entry| {
        let [first, last] = memory.bytes(entry + 10)?;
        let base = memory.read64(entry)?;
        (memory.read16(entry + 8)? == 0 && base != 0 && first <= last).then_some(Ecam {
            base,
            first,
            last,
        })
    })
}

fn timer(memory: &impl Memory, table: Table) -> Option<Timer> {
    let port = memory.read32(table.at + 76)?;
    u16::try_from(port).ok().filter(|port| *port != 0).map(Timer)
}

fn power(memory: &impl Memory, table: Table) -> Option<Power> {
    let port = |offset| u16::try_from(memory.read32(table.at + offset)?).ok();
    let control = [port(64)?, port(68)?];
    if control == [0; 2] {
        return None;
    }
    let wide = (table.len >= 148).then(|| memory.read64(table.at + 140)).flatten();
    let at = match wide {
        Some(at) if at != 0 => at,
        _ => memory.read32(table.at + 40)?.into(),
    };
    let sleep = sleep_type(memory, self::table(memory, at, *b"DSDT")?)?;
    let enable = port(48).zip(memory.byte(table.at + 52));
    Some(Power { control, sleep, enable: enable.filter(|(port, value)| *port != 0 && *value != 0) })
}

/// Returns the first two elements of the package `_S5_`.
fn sleep_type(memory: &impl Memory, table: Table) -> Option<[u8; 2]> {
    let name = (table.at + HEADING..table.at + table.len)
        .find(|at| memory.bytes(*at) == Some(*b"_S5_") && memory.byte(at + 4) == Some(0x12))?;
    // A package: its length in one byte, plus the number of bytes in that byte's upper two bits;
    // then the count.
    let mut at = name + 5;
    at += 2 + u64::from(memory.byte(at)? >> 6);
    let mut element = || {
        let first = memory.byte(at)?;
        at += 1;
        Some(match first {
            // A byte constant; 0 and 1 have opcodes of their own.
            0x0a => {
                at += 1;
                memory.byte(at - 1)?
            }
            small => small & 1,
        })
    };
    Some([element()?, element()?])
}

#[cfg(test)]
mod tests {
    use super::super::memory::tests::Bytes;
    use super::*;

    /// A table with this name at `at`, `len` bytes long; what is inside is put there before.
    fn head(bytes: &mut Bytes, at: usize, name: &[u8; 4], len: usize) {
        bytes.put(at, name);
        bytes.put32(at + 4, u32::try_from(len).unwrap());
        bytes.seal(at, len, at + 9);
    }

    fn machine() -> Bytes {
        let mut bytes = Bytes::new(0x10_0000);
        bytes.put(0xf_5260, b"RSD PTR ");
        bytes.put32(0xf_5270, 0x1000);
        bytes.seal(0xf_5260, 20, 0xf_5268);
        bytes.put32(0x1024, 0x2000);
        bytes.put32(0x1028, 0x3000);
        bytes.put32(0x102c, 0xffff_fff0);
        head(&mut bytes, 0x1000, b"RSDT", 48);
        bytes.put32(0x2028, 0x4000);
        bytes.put32(0x2030, 0xb2);
        bytes.put(0x2034, &[0xf1]);
        bytes.put32(0x2040, 0x604);
        bytes.put32(0x204c, 0x608);
        head(&mut bytes, 0x2000, b"FACP", 244);
        bytes.put64(0x302c, 0xb000_0000);
        bytes.put(0x3036, &[0, 255]);
        head(&mut bytes, 0x3000, b"MCFG", 60);
        bytes.put(0x4100, b"\x08_S5_\x12\x08\x04\x0a\x05\x01\x00\x00");
        head(&mut bytes, 0x4000, b"DSDT", 0x200);
        bytes
    }

    #[test]
    fn ecam_timer_and_power_are_found() {
        let found = Acpi::read(&machine(), 0xf_5260);
        assert_eq!(
            found,
            Acpi {
                ecam: Some(Ecam { base: 0xb000_0000, first: 0, last: 255 }),
                timer: Some(Timer(0x608)),
                power: Some(Power {
                    control: [0x604, 0],
                    sleep: [5, 1],
                    enable: Some((0xb2, 0xf1)),
                }),
            }
        );
        assert_eq!(Acpi::read(&machine(), 0), found, "by searching");
    }

    #[test]
    fn a_wrong_sum_hides_a_table_and_nothing_more() {
        let mut bytes = machine();
        bytes.put(0x3030, &[1]);
        let found = Acpi::read(&bytes, 0);
        assert!(found.ecam.is_none() && found.timer.is_some());
        bytes.put(0xf_5268, &[9, 9]);
        assert_eq!(Acpi::read(&bytes, 0), Acpi::default());
    }

    #[test]
    fn truncated_tables_do_not_panic() {
        for at in 0..64 {
            for value in [0, 0x7f, 0xff] {
                for table in [0xf_5260, 0x1000, 0x2000, 0x3000, 0x4100] {
                    let mut bytes = machine();
                    bytes.put(table + at, &[value]);
                    let _ = Acpi::read(&bytes, 0xf_5260);
                }
            }
        }
    }
}
