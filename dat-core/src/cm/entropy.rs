//! Unpredictable numbers from a seed: SipHash-2-4 of a counter, keyed with the seed.
//!
//! PSNs and comm IDs go over the wire, so one that has been seen must not tell the next. A keyed
//! hash gives that with 16 bytes of entropy taken once.

#[derive(Clone)]
pub(super) struct Entropy {
    key: [u64; 2],
    counter: u64,
}

impl Entropy {
    pub(super) const fn new(key: [u64; 2]) -> Self {
        Self { key, counter: 0 }
    }

    pub(super) fn next(&mut self) -> u64 {
        self.counter = self.counter.wrapping_add(1);
        siphash(self.key, self.counter)
    }

    /// The next 24 bits.
    pub(super) fn next_psn(&mut self) -> u32 {
        self.next_u32() >> 8
    }

    /// The next 32 bits.
    pub(super) fn next_u32(&mut self) -> u32 {
        let [a, b, c, d, ..] = self.next().to_be_bytes();
        u32::from_be_bytes([a, b, c, d])
    }
}

// The key stays out of logs.
impl core::fmt::Debug for Entropy {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Entropy")
    }
}

fn round([mut a, mut b, mut c, mut d]: [u64; 4]) -> [u64; 4] {
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

/// So many rounds; unrolled in line they would be the longest function of many a control path.
#[inline(never)]
fn rounds(mut state: [u64; 4], count: u32) -> [u64; 4] {
    for _ in 0..count {
        state = round(state);
    }
    state
}

/// SipHash-2-4 of the eight bytes of `word`, least significant first.
fn siphash([key0, key1]: [u64; 2], word: u64) -> u64 {
    let mut state = [
        key0 ^ 0x736f_6d65_7073_6575,
        key1 ^ 0x646f_7261_6e64_6f6d,
        key0 ^ 0x6c79_6765_6e65_7261,
        key1 ^ 0x7465_6462_7974_6573,
    ];
    // The message, then its length in the top byte.
    for word in [word, 8 << 56] {
        let [a, b, c, d] = state;
        let [a, b, c, d] = rounds([a, b, c, d ^ word], 2);
        state = [a ^ word, b, c, d];
    }
    let [a, b, c, d] = state;
    let [a, b, c, d] = rounds([a, b, c ^ 0xff, d], 4);
    a ^ b ^ c ^ d
}

#[cfg(test)]
mod tests {
    use super::Entropy;
    use super::siphash;

    #[test]
    fn the_published_vector() {
        let key = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908];
        assert_eq!(siphash(key, 0x0706_0504_0302_0100), 0x93f5_f579_9a93_2462);
    }

    #[test]
    fn no_number_twice_and_no_seed_alike() {
        let mut one = Entropy::new([1, 2]);
        let mut other = Entropy::new([1, 3]);
        let mut seen: [u64; 64] =
            core::array::from_fn(|i| if i < 32 { one.next() } else { other.next() });
        seen.sort_unstable();
        assert!(seen.windows(2).all(|pair| pair[0] != pair[1]));
    }

    #[test]
    fn a_psn_has_24_bits() {
        let mut entropy = Entropy::new([0, 0]);
        let all = (0..1000)
            .map(|_| entropy.next_psn())
            .fold((0, u32::MAX), |(or, and), psn| (or | psn, and & psn));
        assert_eq!(all, (0xff_ffff, 0));
    }
}
