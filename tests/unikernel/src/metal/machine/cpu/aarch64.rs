//! The generic timer and RNDR.

use core::arch::asm;

/// The name of the counter.
pub(crate) const COUNTER: &str = "generic timer";

/// Returns the ticks of the generic timer in a second.
pub(crate) fn hertz() -> u64 {
    let hertz;
    // SAFETY: reading the register changes nothing.
    unsafe { asm!("mrs {}, cntfrq_el0", out(reg) hertz, options(nomem, nostack)) };
    hertz
}

/// The generic timer's virtual count.
pub(crate) fn ticks() -> u64 {
    let count;
    // SAFETY: reading the counter changes nothing.
    unsafe { asm!("isb", "mrs {}, cntvct_el0", out(reg) count, options(nomem, nostack)) };
    count
}

/// Returns the name of the CPU's generator, if it has one.
pub(crate) fn generator() -> Option<&'static str> {
    random().map(|_| "RNDR")
}

/// Reads the CPU's generator. It may be empty for a moment, so this tries ten times.
pub(crate) fn random() -> Option<u64> {
    let features: u64;
    // SAFETY: reading the register changes nothing.
    unsafe { asm!("mrs {}, id_aa64isar0_el1", out(reg) features, options(nomem, nostack)) };
    if features >> 60 == 0 {
        return None;
    }
    (0..10).find_map(|_| {
        let (number, empty): (u64, u64);
        // SAFETY: the CPU knows the register RNDR. A read that gives nothing sets the flag Z.
        unsafe {
            asm!("mrs {}, s3_3_c2_c4_0", "cset {}, eq", out(reg) number, out(reg) empty, options(nomem, nostack));
        }
        (empty == 0).then_some(number)
    })
}
