//! A keyed hash for tables whose keys a peer chooses: who does not know the key cannot find keys
//! that come into one list.

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
#[must_use]
pub fn siphash<const N: usize>([key0, key1]: [u64; 2], words: [u64; N]) -> u64 {
    let mut state = [
        key0 ^ 0x736f_6d65_7073_6575,
        key1 ^ 0x646f_7261_6e64_6f6d,
        key0 ^ 0x6c79_6765_6e65_7261,
        key1 ^ 0x7465_6462_7974_6573,
    ];
    let mut add = |word| {
        let [a, b, c, d] = state;
        let [a, b, c, d] = round([a, b, c, d ^ word]);
        state = [a ^ word, b, c, d];
    };
    words.into_iter().for_each(&mut add);
    // The length, in the top byte.
    add((N as u64) << 59);
    let [a, b, c, d] = state;
    let [a, b, c, d] = round(round(round([a, b, c ^ 0xff, d])));
    a ^ b ^ c ^ d
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::hash::{DefaultHasher, Hasher as _};

    use super::*;

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
}
