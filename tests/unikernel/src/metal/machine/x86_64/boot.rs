//! The PVH start information of the loader: command line, ACPI root pointer and memory map.
//!
//! The layout is Xen's `hvm_start_info`, version 1; every loader of PVH images fills it.

use super::memory::Memory;

const MAGIC: u32 = 0x336e_c578;
/// Largest number of memory map entries that are read.
const MAP_ENTRIES: u64 = 128;
/// A map entry of ordinary memory.
const RAM: u32 = 1;

/// Bytes of a command line.
pub(crate) const COMMAND_LINE: usize = 512;

/// The start information.
#[derive(Debug)]
pub(crate) struct StartInfo {
    line: [u8; COMMAND_LINE],
    len: usize,
    /// Address of the ACPI root pointer, 0 if the loader knows none.
    pub(crate) rsdp: u64,
    /// End of the highest RAM entry of the memory map.
    pub(crate) ram_end: u64,
}

impl StartInfo {
    /// Reads it; `None` if there is no such block at `at`.
    pub(crate) fn read(memory: &impl Memory, at: u64) -> Option<Self> {
        if memory.read32(at)? != MAGIC {
            return None;
        }
        let mut info =
            Self { line: [0; COMMAND_LINE], len: 0, rsdp: memory.read64(at + 32)?, ram_end: 0 };
        let line = memory.read64(at + 24)?;
        if line != 0 {
            for (place, at) in info.line.iter_mut().zip(line..) {
                *place = memory.byte(at)?;
                if *place == 0 {
                    break;
                }
                info.len += 1;
            }
        }
        // The memory map came with version 1.
        if memory.read32(at + 4)? >= 1 {
            let map = memory.read64(at + 40)?;
            let entries = u64::from(memory.read32(at + 48)?).min(MAP_ENTRIES);
            for entry in (0..entries).map(|index| map + 24 * index) {
                if memory.read32(entry + 16)? == RAM {
                    let end = memory.read64(entry)?.checked_add(memory.read64(entry + 8)?)?;
                    info.ram_end = info.ram_end.max(end);
                }
            }
        }
        Some(info)
    }

    /// The command line; empty if it is not UTF-8.
    pub(crate) fn command_line(&self) -> &str {
        self.line
            .get(..self.len)
            .and_then(|line| core::str::from_utf8(line).ok())
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::super::memory::tests::Bytes;
    use super::*;

    #[test]
    fn command_line_root_pointer_and_the_end_of_memory() {
        let mut bytes = Bytes::new(0x1000);
        bytes.put32(0x100, MAGIC);
        bytes.put32(0x104, 1);
        bytes.put64(0x118, 0x400);
        bytes.put64(0x120, 0xf_5260);
        bytes.put64(0x128, 0x200);
        bytes.put32(0x130, 3);
        bytes.put(0x400, b"role=listen ip=10.0.0.1\0rest");
        // Reserved memory above all does not count, as the hole for big BARs is one of those.
        for (index, (at, size, kind)) in
            [(0, 0x9_fc00, 1), (0x10_0000, 0xff0_0000, 1), (0xfd_0000_0000, 0x3_0000_0000, 2)]
                .into_iter()
                .enumerate()
        {
            bytes.put64(0x200 + 24 * index, at);
            bytes.put64(0x208 + 24 * index, size);
            bytes.put32(0x210 + 24 * index, kind);
        }
        let info = StartInfo::read(&bytes, 0x100).unwrap();
        assert_eq!(info.command_line(), "role=listen ip=10.0.0.1");
        assert_eq!((info.rsdp, info.ram_end), (0xf_5260, 0x1000_0000));
        assert!(StartInfo::read(&bytes, 0x104).is_none());
    }

    #[test]
    fn an_endless_command_line_is_cut_and_a_map_outside_memory_is_no_start_information() {
        let mut bytes = Bytes::new(0x1000);
        bytes.put32(0, MAGIC);
        bytes.put64(24, 0x400);
        bytes.put(0x400, &[b'a'; 0xc00]);
        assert_eq!(StartInfo::read(&bytes, 0).unwrap().command_line().len(), COMMAND_LINE);
        bytes.put32(4, 1);
        bytes.put64(40, 0xfff);
        bytes.put32(48, u32::MAX);
        assert!(StartInfo::read(&bytes, 0).is_none());
    }
}
