//! The time stamp counter and RDRAND.

use core::arch::asm;
use core::arch::x86_64::{__cpuid, _rdtsc, CpuidResult};

/// The name of the counter.
pub(crate) const COUNTER: &str = "time stamp counter";

/// The time stamp counter.
pub(crate) fn ticks() -> u64 {
    // SAFETY: every x86-64 has it, and reading it changes nothing.
    unsafe { _rdtsc() }
}

/// Returns the name of the CPU's generator, if it has one.
pub(crate) fn generator() -> Option<&'static str> {
    random().map(|_| "RDRAND")
}

/// Reads the CPU's generator. It may be empty for a moment, so this tries ten times.
pub(crate) fn random() -> Option<u64> {
    // It is unsafe in Rust 1.85, and safe in newer ones.
    let cpuid: unsafe fn(u32) -> CpuidResult = __cpuid;
    // SAFETY: every x86-64 has it, and it changes nothing.
    let features = unsafe { cpuid(1) };
    if features.ecx & 1 << 30 == 0 {
        return None;
    }
    (0..10).find_map(|_| {
        let (number, good): (u64, u8);
        // SAFETY: the CPU knows the instruction.
        unsafe {
            asm!("rdrand {}", "setc {}", out(reg) number, out(reg_byte) good, options(nomem, nostack));
        }
        (good != 0).then_some(number)
    })
}
