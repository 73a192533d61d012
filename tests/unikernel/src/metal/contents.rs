//! The contents of operations: bytes computed from the test's seed and the operation's number, as
//! in the `dat` command.

use hca_mlx5::dma::Buffer;
use hca_mlx5::platform::Platform;

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Mixes a word as splitmix64 does: each bit of the result depends on all of the argument.
pub(crate) fn mixed(word: u64) -> u64 {
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

/// Returns the words of operation `number`, each with its offset and its number of valid bytes.
fn words(seed: u64, number: u64, len: u32) -> impl Iterator<Item = (usize, [u8; 8], usize)> {
    let start = mixed(seed ^ number.wrapping_mul(GOLDEN));
    (0..u64::from(len.div_ceil(8))).map(move |index| {
        let word = mixed(start.wrapping_add(index.wrapping_mul(GOLDEN))).to_le_bytes();
        let at = usize::try_from(index * 8).unwrap_or(usize::MAX);
        (at, word, 8.min(len as usize - at))
    })
}

/// Writes the contents of operation `number` at `at`.
pub(crate) fn fill<P: Platform>(to: &Buffer<'_, P>, at: usize, len: u32, seed: u64, number: u64) {
    for (offset, word, count) in words(seed, number, len) {
        to.copy_in(at + offset, word.get(..count).unwrap_or(&word));
    }
}

/// Returns where the bytes at `at` first differ from the contents of operation `number`.
pub(crate) fn differ<P: Platform>(
    of: &Buffer<'_, P>,
    at: usize,
    len: u32,
    seed: u64,
    number: u64,
) -> Option<usize> {
    words(seed, number, len).find_map(|(offset, word, count)| {
        let mut found = [0; 8];
        of.copy_out(at + offset, found.get_mut(..count)?);
        let wrong = found.iter().zip(&word).take(count).position(|(a, b)| a != b);
        wrong.map(|byte| offset + byte)
    })
}

#[cfg(test)]
mod tests {
    use super::words;

    #[test]
    fn words_cover_the_length_and_nothing_more() {
        let lens: Vec<_> = words(7, 3, 77).map(|(at, _, count)| (at, count)).collect();
        assert_eq!((lens.len(), lens[0], lens[9]), (10, (0, 8), (72, 5)));
        assert_eq!(words(7, 3, 8).count(), 1);
        assert_ne!(words(7, 3, 8).next(), words(7, 4, 8).next());
        assert_ne!(words(7, 3, 8).next(), words(8, 3, 8).next());
    }

    #[test]
    fn the_first_word_is_that_of_the_dat_command() {
        // Seed 0, operation 0: both mixings of 0 are 0. Seed 1, operation 0: splitmix64's mixing of
        // 1, twice.
        assert_eq!(words(0, 0, 8).next().unwrap().1, [0; 8]);
        let twice = super::mixed(super::mixed(1)).to_le_bytes();
        assert_eq!(words(1, 0, 8).next().unwrap().1, twice);
        assert_eq!(super::mixed(1), 0x5692_161d_100b_05e5);
    }
}
