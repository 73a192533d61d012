//! Numbers that nobody can guess from outside: low bytes of keys, flow labels, the first
//! token of a command.
//!
//! SplitMix64 over `Config::entropy`. It is not meant for secrets: these numbers only make stray
//! and forged messages miss.

/// The generator of one driver.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) const fn new(entropy: u64) -> Self {
        Self(entropy)
    }

    pub(crate) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = self.0;
        let z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// The low byte of the next number.
    pub(crate) const fn next_byte(&mut self) -> u8 {
        let [byte, ..] = self.next().to_le_bytes();
        byte
    }
}
