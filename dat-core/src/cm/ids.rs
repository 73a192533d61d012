//! Communication IDs: a keyed permutation of the slot of a connection and its generation.
//!
//! A message names its connection by 32 bits, which lead to the slot without a search and tell a
//! peer nothing of the slot, the generation, or the ID of another connection.

/// Bits of a slot's index; the others are its generation.
pub(super) const SLOT_BITS: u32 = 18;
/// After it a slot begins again with generation 0.
pub(super) const LAST_GENERATION: u16 = (1 << (32 - SLOT_BITS)) - 1;
/// Bits of a word of the cipher, half of an ID.
const WORD: u32 = 16;
/// Rounds of Speck32/64. The best attack known gets through 15.
const ROUNDS: usize = 22;

/// The permutation: the block cipher Speck32/64 (Beaulieu and others, 2013), whose block is as long
/// as an ID. It holds the keys of the rounds.
#[derive(Clone, Copy)]
pub(super) struct Ids([u16; ROUNDS]);

impl Ids {
    /// The permutation of a key.
    #[expect(clippy::cast_possible_truncation, reason = "a word of it")]
    pub(super) fn new(key: u64) -> Self {
        let word = |n: u32| (key >> (16 * n)) as u16;
        let (mut key, mut rest) = (word(0), [word(1), word(2), word(3)]);
        let mut keys = [0; ROUNDS];
        for (number, own) in (0..).zip(&mut keys) {
            *own = key;
            let [next, second, third] = rest;
            let last;
            (last, key) = forth(WORD, number, (next, key));
            rest = [second, third, last];
        }
        Self(keys)
    }

    /// The ID of a slot in a generation.
    pub(super) fn id(&self, index: u32, generation: u16) -> u32 {
        self.encrypted(WORD, u32::from(generation) << SLOT_BITS | index)
    }

    /// The slot that an ID names, if it names any.
    pub(super) fn index(&self, id: u32) -> usize {
        let index = self.decrypted(WORD, id) & ((1 << SLOT_BITS) - 1);
        usize::try_from(index).unwrap_or(usize::MAX)
    }

    #[inline(always)]
    fn encrypted(&self, width: u32, value: u32) -> u32 {
        let words =
            self.0.iter().fold(halves(width, value), |words, key| forth(width, *key, words));
        joined(width, words)
    }

    #[inline(always)]
    fn decrypted(&self, width: u32, value: u32) -> u32 {
        let keys = self.0.iter().rev();
        joined(width, keys.fold(halves(width, value), |words, key| back(width, *key, words)))
    }
}

// The keys stay out of logs.
impl core::fmt::Debug for Ids {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Ids")
    }
}

/// The high and the low word of `width` bits.
#[expect(clippy::cast_possible_truncation, reason = "a word of it")]
const fn halves(width: u32, value: u32) -> (u16, u16) {
    (masked(width, (value >> width) as u16), masked(width, value as u16))
}

const fn joined(width: u32, (high, low): (u16, u16)) -> u32 {
    (high as u32) << width | low as u32
}

const fn masked(width: u32, word: u16) -> u16 {
    word & u16::MAX >> (u16::BITS - width)
}

/// Rotates a word of `width` bits to the left.
const fn rotated(width: u32, word: u16, by: u32) -> u16 {
    if width == u16::BITS {
        return word.rotate_left(by);
    }
    masked(width, word << (by % width) | word >> ((width - by % width) % u16::BITS))
}

/// A round of the cipher: the words mixed with a key.
#[inline(always)]
const fn forth(width: u32, key: u16, (high, low): (u16, u16)) -> (u16, u16) {
    let sum = masked(width, rotated(width, high, width - 7 % width).wrapping_add(low));
    let high = sum ^ masked(width, key);
    (high, rotated(width, low, 2) ^ high)
}

/// Undoes [`forth`].
#[inline(always)]
const fn back(width: u32, key: u16, (high, low): (u16, u16)) -> (u16, u16) {
    let low = rotated(width, low ^ high, width - 2 % width);
    let sum = masked(width, high ^ masked(width, key));
    (rotated(width, masked(width, sum.wrapping_sub(low)), 7), low)
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec::Vec;
    use std::{format, vec};

    use super::*;

    const KEY: [u64; 2] = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908];

    /// The test vector of the paper that published the cipher.
    #[test]
    fn it_is_speck() {
        let ids = Ids::new(0x1918_1110_0908_0100);
        assert_eq!(ids.encrypted(WORD, 0x6574_694c), 0xa868_42f2);
        assert_eq!(ids.decrypted(WORD, 0xa868_42f2), 0x6574_694c);
    }

    /// Every ID of every width up to 18 bits: each value has one of its own, and leads back.
    #[test]
    fn it_is_a_permutation_at_every_reduced_width() {
        for width in 1..=9 {
            for key in [KEY[0], KEY[1], 1, 0] {
                let ids = Ids::new(key);
                let mut seen = vec![false; 1 << (2 * width)];
                for value in 0..1 << (2 * width) {
                    let id = ids.encrypted(width, value);
                    assert!(!core::mem::replace(&mut seen[id as usize], true), "{width}: {id}");
                    assert_eq!(ids.decrypted(width, id), value);
                }
            }
        }
    }

    /// Which IDs exist is known to nobody: of all guesses at a width just one names a connection
    /// there is, and where it stands depends on the key.
    #[test]
    fn one_guess_in_all_names_a_connection() {
        for width in 2..=6 {
            let mut places = Vec::new();
            for key in 0..64 {
                let cipher = Ids::new(KEY[0].wrapping_mul(2 * key + 1));
                let ids = (0..1 << (2 * width)).map(|id| cipher.decrypted(width, id));
                let hits: Vec<_> = ids.enumerate().filter(|(_, value)| *value == 1).collect();
                assert_eq!(hits.len(), 1);
                places.push(hits[0].0);
            }
            places.sort_unstable();
            places.dedup();
            assert!(places.len() > (1 << (2 * width)).min(64) / 3, "{width}: {places:?}");
        }
    }

    #[test]
    fn an_id_leads_to_its_slot() {
        let ids = Ids::new(KEY[0]);
        for generation in [0, 1, 2, LAST_GENERATION] {
            for index in [0, 1, 2, 0xffff, 0x1_0000, (1 << SLOT_BITS) - 1] {
                assert_eq!(ids.index(ids.id(index, generation)), index as usize);
            }
        }
    }

    /// One bit of the slot or of the generation changes half of the ID.
    #[test]
    fn neighbours_have_nothing_in_common() {
        let ids = Ids::new(KEY[0]);
        let mut changed = 0;
        for index in 0..1000 {
            changed += (ids.id(index, 5) ^ ids.id(index, 6)).count_ones();
            changed += (ids.id(index, 5) ^ ids.id(index + 1, 5)).count_ones();
        }
        assert!((31_000..33_000).contains(&changed), "{changed} of 64,000 bits");
    }

    #[test]
    fn the_key_stays_out_of_logs() {
        assert_eq!(format!("{:?}", Ids::new(KEY[0])), "Ids");
    }
}
