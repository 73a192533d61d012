//! Random numbers: from the CPU's generator if it has one, otherwise from the jitter of its time
//! stamp counter.
//!
//! The second kind is weak: an observer of the machine could narrow it down. The image prints which
//! one it uses.

use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::clock;
use crate::contents::mixed;
use crate::paging::cpuid;

/// Rounds of jitter that go into a number.
const ROUNDS: u32 = 64;

/// A source of numbers.
#[derive(Debug)]
pub(crate) struct Entropy {
    instruction: bool,
    pool: AtomicU64,
}

impl Entropy {
    /// Detects the CPU's generator.
    pub(crate) fn new() -> Self {
        Self {
            instruction: cpuid(1).ecx & 1 << 30 != 0 && rdrand().is_some(),
            pool: AtomicU64::new(clock::ticks()),
        }
    }

    /// Returns the name of the source.
    pub(crate) fn source(&self) -> &'static str {
        if self.instruction {
            "RDRAND"
        } else {
            "jitter of the time stamp counter: fit for tests, not for hostile networks"
        }
    }

    /// Returns 32 random bytes, unless the CPU's generator is there and gives nothing.
    pub(crate) fn seed(&self) -> Option<[u8; 32]> {
        let mut bytes = [0; 32];
        for word in bytes.chunks_exact_mut(8) {
            if self.instruction {
                rdrand()?;
            }
            word.copy_from_slice(&self.next().to_le_bytes());
        }
        Some(bytes)
    }

    /// Returns 64 random bits.
    pub(crate) fn next(&self) -> u64 {
        let mut pool = self.pool.load(Ordering::Relaxed);
        for _ in 0..ROUNDS {
            pool = mix(pool ^ clock::ticks());
            core::hint::spin_loop();
        }
        // Mixed with the other kind, not replaced: no single source is trusted alone.
        if let Some(number) = self.instruction.then(rdrand).flatten() {
            pool = mix(pool ^ number);
        }
        self.pool.store(pool, Ordering::Relaxed);
        mix(pool)
    }
}

fn mix(word: u64) -> u64 {
    // 0 would stay 0.
    mixed(word.wrapping_add(0x9e37_79b9_7f4a_7c15))
}

/// Reads the CPU's generator. It may be empty for a moment, so this tries ten times.
fn rdrand() -> Option<u64> {
    (0..10).find_map(|_| {
        let (number, good): (u64, u8);
        // SAFETY: the caller has seen that the CPU knows the instruction.
        unsafe {
            asm!("rdrand {}", "setc {}", out(reg) number, out(reg_byte) good, options(nomem, nostack));
        }
        (good != 0).then_some(number)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_differ_and_use_all_bits() {
        for instruction in [false, true] {
            let mut entropy = Entropy::new();
            entropy.instruction &= instruction;
            let numbers: Vec<_> = (0..64).map(|_| entropy.next()).collect();
            assert_eq!(numbers.iter().fold(0, |a, b| a | b), u64::MAX);
            assert_eq!(numbers.iter().fold(u64::MAX, |a, b| a & b), 0);
            assert!(numbers.windows(2).all(|pair| pair[0] != pair[1]));
        }
    }
}
