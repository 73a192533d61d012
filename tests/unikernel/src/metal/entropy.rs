//! Random numbers: from the generator of the machine if it has one, otherwise from the jitter of its
//! counter.
//!
//! The second kind is weak: an observer of the machine could narrow it down. The image prints which
//! one it uses.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::contents::mixed;
use crate::machine;

/// Rounds of jitter that go into a number.
const ROUNDS: u32 = 64;

/// A source of numbers.
#[derive(Debug)]
pub(crate) struct Entropy {
    /// The name of the machine's generator, if there is one.
    generator: Option<&'static str>,
    pool: AtomicU64,
}

impl Entropy {
    /// Looks for the machine's generator.
    pub(crate) fn new() -> Self {
        let generator = machine::generator();
        Self { generator, pool: AtomicU64::new(machine::ticks()) }
    }

    /// Returns the name of the source.
    pub(crate) fn source(&self) -> &'static str {
        let weak = "jitter of the counter: fit for tests, not for hostile networks";
        self.generator.unwrap_or(weak)
    }

    /// Returns 32 random bytes, unless the generator is there and gives nothing.
    pub(crate) fn seed(&self) -> Option<[u8; 32]> {
        let mut bytes = [0; 32];
        for word in bytes.chunks_exact_mut(8) {
            if self.generator.is_some() {
                machine::random()?;
            }
            word.copy_from_slice(&self.next().to_le_bytes());
        }
        Some(bytes)
    }

    /// Returns 64 random bits.
    pub(crate) fn next(&self) -> u64 {
        let mut pool = self.pool.load(Ordering::Relaxed);
        for _ in 0..ROUNDS {
            pool = mix(pool ^ machine::ticks());
            core::hint::spin_loop();
        }
        // Mixed with the other kind, not replaced: no single source is trusted alone.
        if let Some(number) = self.generator.and_then(|_| machine::random()) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_differ_and_use_all_bits() {
        for generator in [false, true] {
            let mut entropy = Entropy::new();
            entropy.generator = entropy.generator.filter(|_| generator);
            let numbers: Vec<_> = (0..64).map(|_| entropy.next()).collect();
            assert_eq!(numbers.iter().fold(0, |a, b| a | b), u64::MAX);
            assert_eq!(numbers.iter().fold(u64::MAX, |a, b| a & b), 0);
            assert!(numbers.windows(2).all(|pair| pair[0] != pair[1]));
        }
    }
}
