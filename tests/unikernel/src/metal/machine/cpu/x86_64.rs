//! The time stamp counter and RDRAND.

use core::arch::asm;
use core::arch::x86_64::{__cpuid, _rdtsc};

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
    // SAFETY: every x86-64 has it, and it changes nothing. The newest Rust knows that.
    #[allow(unused_unsafe, reason = "it is unsafe in Rust 1.85")]
    let features = unsafe { __cpuid(1) };
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
