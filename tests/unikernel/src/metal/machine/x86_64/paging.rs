//! The page tables, as far as devices need them: registers uncached, and addresses above the 4 GiB
//! of the boot code.
//!
//! Everything is mapped where it is, in pages of 2 MiB.

use core::arch::asm;
use core::arch::x86_64::CpuidResult;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// One table.
#[repr(C, align(4096))]
struct Table([AtomicU64; 512]);

impl Table {
    const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; 512])
    }

    fn entry(&self, address: u64, level: u32) -> Option<&AtomicU64> {
        self.0.get(usize::try_from(address >> (12 + 9 * (level - 1)) & 511).ok()?)
    }
}

/// Tables for what the boot code did not map: a BAR takes one or two, several gigabytes a few more.
static TABLES: [Table; 8] = [const { Table::new() }; 8];
static USED: AtomicUsize = AtomicUsize::new(0);

/// Present and writable.
const PRESENT: u64 = 3;
/// Write-through and cache disable: uncached, whatever the MTRRs say.
const UNCACHED: u64 = 0x18;
/// The entry maps 2 MiB.
const LARGE: u64 = 0x80;
const PAGE: u64 = 2 << 20;
/// The bits of an entry that are an address.
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

unsafe extern "C" {
    /// The table of the highest level, from the boot code.
    #[link_name = "level4"]
    static LEVEL4: Table;
}

/// Maps `len` bytes of registers from `base` on. Returns false if no tables are left, or the
/// addresses are out of range.
pub(crate) fn map_uncached(base: u64, len: u64) -> bool {
    let Some(end) = base.checked_add(len).filter(|end| *end <= 1 << 47) else {
        return false;
    };
    // SAFETY: the boot code defines it with that alignment and length; its entries are accessed
    // only here.
    let top = unsafe { &LEVEL4 };
    let start = base & !(PAGE - 1);
    for address in (start..end).step_by(2 << 20) {
        let mut table = top;
        for level in [4, 3] {
            let Some(next) = table.entry(address, level).and_then(below) else {
                return false;
            };
            table = next;
        }
        let Some(entry) = table.entry(address, 2) else {
            return false;
        };
        entry.store(address | LARGE | UNCACHED | PRESENT, Ordering::Relaxed);
    }
    // SAFETY: the same tables again. Existing mappings are unchanged.
    unsafe {
        asm!("mov {r}, cr3", "mov cr3, {r}", r = out(reg) _, options(nostack, preserves_flags))
    };
    true
}

/// Returns the table that `entry` points to; allocates one if it points to none.
fn below(entry: &AtomicU64) -> Option<&'static Table> {
    let value = entry.load(Ordering::Relaxed);
    if value & 1 == 0 {
        let table = TABLES.get(USED.fetch_add(1, Ordering::Relaxed))?;
        let address = core::ptr::from_ref(table).expose_provenance() as u64;
        entry.store(address | PRESENT, Ordering::Relaxed);
        return Some(table);
    }
    let table = core::ptr::with_exposed_provenance(usize::try_from(value & ADDRESS).ok()?);
    // SAFETY: an entry of level 4 or 3 that is present points to a table of the boot code or to one
    // of ours, all static.
    Some(unsafe { &*table })
}

/// Returns the number of bits of a physical address on this CPU.
pub(crate) fn address_bits() -> u32 {
    if cpuid(0x8000_0000).eax < 0x8000_0008 {
        return 36;
    }
    cpuid(0x8000_0008).eax & 0xff
}

/// Returns a leaf of CPUID.
pub(crate) fn cpuid(leaf: u32) -> CpuidResult {
    // It is safe to call since Rust 1.94, and as a pointer unsafe in every version.
    let cpuid: unsafe fn(u32) -> CpuidResult = core::arch::x86_64::__cpuid;
    // SAFETY: every x86-64 CPU has the instruction.
    unsafe { cpuid(leaf) }
}
