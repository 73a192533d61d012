//! Communication IDs: a keyed permutation of the slot of a connection and its generation.
//!
//! A message names its connection by 32 bits, which lead to the slot without a search and tell a
//! peer nothing of the slot, the generation, or the ID of another connection.

/// Bits of a slot's index; the others are its generation.
pub(super) const SLOT_BITS: u32 = 17;
/// After it a slot begins again with generation 0.
pub(super) const LAST_GENERATION: u16 = (1 << (32 - SLOT_BITS)) - 1;
/// Bits of a half of the permutation.
const HALF: u32 = 16;
/// Rounds of a Feistel network. With five or fewer, some of the IDs are enough to distinguish it from
/// chance.
const ROUNDS: usize = 6;
const FORTH: [u8; ROUNDS] = [0, 1, 2, 3, 4, 5];
const BACK: [u8; ROUNDS] = [5, 4, 3, 2, 1, 0];

/// The key of the permutation.
#[derive(Clone, Copy)]
pub(super) struct Ids(pub(super) [u64; 2]);

impl Ids {
    /// The ID of a slot in a generation.
    pub(super) fn id(self, index: u32, generation: u16) -> u32 {
        permuted(self.0, HALF, u32::from(generation) << SLOT_BITS | index, FORTH)
    }

    /// The slot that an ID names, if it names any.
    pub(super) fn index(self, id: u32) -> usize {
        let index = permuted(self.0, HALF, id, BACK) & ((1 << SLOT_BITS) - 1);
        usize::try_from(index).unwrap_or(usize::MAX)
    }
}

// The key stays out of logs.
impl core::fmt::Debug for Ids {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Ids")
    }
}

/// A Feistel network over two halves of `half` bits. In the opposite order the rounds undo what
/// they have done.
// Not in line: it would be the longest part of many a control path.
#[inline(never)]
fn permuted(key: [u64; 2], half: u32, value: u32, order: [u8; ROUNDS]) -> u32 {
    let mask = (1 << half) - 1;
    let (mut left, mut right) = (value >> half & mask, value & mask);
    for round in order {
        let [a, b, c, d, ..] =
            siphash(key, [u64::from(round) << 32 | u64::from(right)]).to_le_bytes();
        (left, right) = (right, left ^ u32::from_le_bytes([a, b, c, d]) & mask);
    }
    right << half | left
}

const fn round([mut a, mut b, mut c, mut d]: [u64; 4]) -> [u64; 4] {
    a = a.wrapping_add(b);
    c = c.wrapping_add(d);
    b = b.rotate_left(13) ^ a;
    d = d.rotate_left(16) ^ c;
    a = a.rotate_left(32).wrapping_add(d);
    c = c.wrapping_add(b);
    b = b.rotate_left(17) ^ c;
    d = d.rotate_left(21) ^ a;
    [a, b, c.rotate_left(32), d]
}

/// SipHash-1-3 of the bytes of `words`, least significant first.
pub(super) fn siphash<const N: usize>([key0, key1]: [u64; 2], words: [u64; N]) -> u64 {
    let mut state = [
        key0 ^ 0x736f_6d65_7073_6575,
        key1 ^ 0x646f_7261_6e64_6f6d,
        key0 ^ 0x6c79_6765_6e65_7261,
        key1 ^ 0x7465_6462_7974_6573,
    ];
    // The message, then its length in the top byte.
    for word in words.into_iter().chain([(N as u64) << 59]) {
        let [a, b, c, d] = state;
        let [a, b, c, d] = round([a, b, c, d ^ word]);
        state = [a ^ word, b, c, d];
    }
    let [a, b, c, d] = state;
    let [a, b, c, d] = round(round(round([a, b, c ^ 0xff, d])));
    a ^ b ^ c ^ d
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::hash::{DefaultHasher, Hasher as _};
    use std::vec::Vec;
    use std::{format, vec};

    use super::*;

    const KEY: [u64; 2] = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908];

    /// The standard library's hasher is SipHash-1-3 with a key of zeros.
    #[test]
    fn it_is_the_standard_librarys() {
        for word in [0, 1, 0x0706_0504_0302_0100, u64::MAX] {
            for words in [[word, !word, 3, 4], [4, word, 2, word]] {
                let mut hasher = DefaultHasher::new();
                words.iter().for_each(|word| hasher.write(&word.to_le_bytes()));
                assert_eq!(siphash([0, 0], words), hasher.finish());
            }
        }
    }

    /// Every ID of every width up to 18 bits: each value has one of its own, and leads back.
    #[test]
    fn it_is_a_permutation_at_every_reduced_width() {
        for half in 1..=9 {
            for key in [KEY, [1, 2], [0, 0]] {
                let mut seen = vec![false; 1 << (2 * half)];
                for value in 0..1 << (2 * half) {
                    let id = permuted(key, half, value, FORTH);
                    assert!(!core::mem::replace(&mut seen[id as usize], true), "{half}: {id}");
                    assert_eq!(permuted(key, half, id, BACK), value);
                }
            }
        }
    }

    /// Which IDs exist is known to nobody: of all guesses at a width just one names a connection
    /// there is, and where it stands depends on the key.
    #[test]
    fn one_guess_in_all_names_a_connection() {
        for half in 2..=6 {
            let mut places = Vec::new();
            for key in 0..64 {
                let ids = (0..1 << (2 * half)).map(|id| permuted([key, !key], half, id, BACK));
                let hits: Vec<_> = ids.enumerate().filter(|(_, value)| *value == 1).collect();
                assert_eq!(hits.len(), 1);
                places.push(hits[0].0);
            }
            places.sort_unstable();
            places.dedup();
            assert!(places.len() > (1 << (2 * half)).min(64) / 3, "{half}: {places:?}");
        }
    }

    #[test]
    fn an_id_leads_to_its_slot() {
        let ids = Ids(KEY);
        for generation in [0, 1, 2, 0x7fff] {
            for index in [0, 1, 2, 0xffff, 0x1_0000, (1 << SLOT_BITS) - 1] {
                assert_eq!(ids.index(ids.id(index, generation)), index as usize);
            }
        }
    }

    /// One bit of the slot or of the generation changes half of the ID.
    #[test]
    fn neighbours_have_nothing_in_common() {
        let ids = Ids(KEY);
        let mut changed = 0;
        for index in 0..1000 {
            changed += (ids.id(index, 5) ^ ids.id(index, 6)).count_ones();
            changed += (ids.id(index, 5) ^ ids.id(index + 1, 5)).count_ones();
        }
        assert!((31_000..33_000).contains(&changed), "{changed} of 64,000 bits");
    }

    #[test]
    fn the_key_stays_out_of_logs() {
        assert_eq!(format!("{:?}", Ids(KEY)), "Ids");
    }
}
