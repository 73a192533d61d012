//! Numbers that a peer cannot guess: PSNs, communication and transaction IDs, key bytes, ports.
//!
//! ChaCha12 with fast key erasure: each draw makes a new key first, so who reads the state learns
//! nothing of the numbers before. What peers see of one purpose comes from a stream of its own
//! ([`Random::fork`]).

use core::fmt;

use rand_chacha::ChaCha12Core;
use rand_chacha::rand_core::SeedableRng;
use rand_chacha::rand_core::block::BlockRngCore;

/// Words of a draw.
const WORDS: usize = 8;

/// One stream of random numbers.
pub struct Random {
    key: [u8; 32],
    words: [u32; WORDS],
    /// How many of the words have not been given out.
    left: usize,
}

impl Random {
    /// The stream of a seed, which must come from the platform's source of random numbers.
    #[must_use]
    pub const fn new(seed: [u8; 32]) -> Self {
        Self { key: seed, words: [0; WORDS], left: 0 }
    }

    /// Another stream, independent of what this one gives from here on.
    #[must_use]
    pub fn fork(&mut self) -> Self {
        let mut seed = [0; 32];
        for bytes in seed.chunks_exact_mut(4) {
            bytes.copy_from_slice(&self.next_u32().to_le_bytes());
        }
        Self::new(seed)
    }

    /// The next 32 bits.
    #[inline(never)]
    pub fn next_u32(&mut self) -> u32 {
        if self.left == 0 {
            self.draw();
        }
        self.left = self.left.saturating_sub(1);
        self.words.get_mut(self.left).map_or(0, core::mem::take)
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        u64::from(self.next_u32()) << 32 | u64::from(self.next_u32())
    }

    /// The next 8 bits.
    pub fn next_byte(&mut self) -> u8 {
        let [byte, ..] = self.next_u32().to_le_bytes();
        byte
    }

    fn draw(&mut self) {
        let mut drawn = <ChaCha12Core as BlockRngCore>::Results::default();
        ChaCha12Core::from_seed(self.key).generate(&mut drawn);
        let mut drawn = drawn.as_ref().iter();
        for (to, word) in self.key.chunks_exact_mut(4).zip(&mut drawn) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        for (to, word) in self.words.iter_mut().zip(drawn) {
            *to = *word;
        }
        self.left = WORDS;
    }
}

// The state stays out of logs.
impl fmt::Debug for Random {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Random")
    }
}

#[cfg(test)]
pub(crate) mod tests {
    extern crate std;
    use std::format;
    use std::vec::Vec;

    use super::*;

    /// The stream of a small number.
    pub(crate) fn seeded(seed: u8) -> Random {
        Random::new([seed; 32])
    }

    /// The key stream of ChaCha12 under a key of zeros
    /// (draft-strombergson-chacha-test-vectors-00, TC1).
    #[test]
    fn the_published_vector_is_a_key_and_the_first_words() {
        let mut random = Random::new([0; 32]);
        let words: [u32; WORDS] = core::array::from_fn(|_| random.next_u32());
        assert_eq!(random.key[..8], [0x9b, 0xf4, 0x9a, 0x6a, 0x07, 0x55, 0xf9, 0x53]);
        // The last word comes first.
        assert_eq!(words[7].to_le_bytes(), [0x05, 0x64, 0xf8, 0x79]);
    }

    #[test]
    fn a_word_is_gone_once_it_is_given_out_and_each_draw_has_another_key() {
        let mut random = seeded(7);
        let mut keys = Vec::new();
        for _ in 0..3 * WORDS {
            let word = random.next_u32();
            assert!(!random.words.contains(&word));
            keys.push(random.key);
        }
        keys.dedup();
        assert_eq!(keys.len(), 3);
    }

    #[test]
    fn bytes_are_spread() {
        let mut random = seeded(7);
        let mut seen = [0_u32; 256];
        for _ in 0..25_600 {
            seen[usize::from(random.next_byte())] += 1;
        }
        assert!(seen.iter().all(|&n| (50..150).contains(&n)), "{seen:?}");
    }

    #[test]
    fn two_seeds_two_sequences_and_a_fork_has_a_third() {
        let (mut a, mut b) = (seeded(1), seeded(2));
        let mut c = seeded(1).fork();
        let mut all: Vec<u64> =
            (0..32).flat_map(|_| [a.next_u64(), b.next_u64(), c.next_u64()]).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 96);
    }

    #[test]
    fn the_state_stays_out_of_logs() {
        assert_eq!(format!("{:?}", seeded(3)), "Random");
    }
}
