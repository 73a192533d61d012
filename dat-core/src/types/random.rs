//! Numbers that a peer cannot guess: PSNs, comm IDs, key bytes, first generations.
//!
//! SplitMix64 over the entropy given at open. It is not meant for secrets: these numbers only make
//! stray and forged packets miss.

/// The generator of one Interface Adapter.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) const fn new(entropy: u64) -> Self {
        Self(entropy)
    }

    pub(crate) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    #[inline(never)]
    pub(crate) const fn next_u32(&mut self) -> u32 {
        (self.next() >> 32) as u32
    }
}

/// Random bytes, drawn seven at a time.
#[derive(Clone, Debug)]
pub(crate) struct Bytes {
    source: Random,
    /// What is left of the last draw, below a one that marks its end.
    left: u64,
}

impl Bytes {
    pub(crate) const fn new(source: Random) -> Self {
        Self { source, left: 1 }
    }

    #[inline(always)]
    pub(crate) fn next(&mut self) -> u8 {
        if self.left == 1 {
            self.draw();
        }
        let [byte, ..] = self.left.to_le_bytes();
        self.left >>= 8;
        byte
    }

    #[inline(never)]
    fn draw(&mut self) {
        self.left = self.source.next() >> 8 | 1 << 56;
    }
}

const fn mix(z: u64) -> u64 {
    let z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_byte_never_repeats_its_predecessor() {
        let order = crate::types::key_order::tests::order(3);
        let mut key = 0x1234_5600;
        for _ in 0..10_000 {
            let next = order.after(key);
            assert_ne!(next, key);
            assert_eq!(next >> 8, key >> 8);
            key = next;
        }
    }

    #[test]
    fn bytes_are_spread_and_each_draw_serves_seven() {
        let mut bytes = Bytes::new(Random::new(7));
        let mut seen = [0_u32; 256];
        for _ in 0..25_600 {
            seen[usize::from(bytes.next())] += 1;
        }
        assert!(seen.iter().all(|&n| (50..150).contains(&n)), "{seen:?}");
        let mut source = Random::new(7);
        for _ in 0..25_600_usize.div_ceil(7) {
            source.next();
        }
        assert_eq!(source.next(), bytes.source.next());
    }

    #[test]
    fn two_seeds_two_sequences() {
        let (mut a, mut b) = (Random::new(1), Random::new(2));
        assert_ne!(a.next(), b.next());
        assert_ne!(a.next_u32(), a.next_u32());
    }
}
