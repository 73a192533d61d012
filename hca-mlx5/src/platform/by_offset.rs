//! Entries and registers over the by-offset accessors of [`Platform`], for any platform.

use super::entries::{Entries, Register, halves, inside, mask};
use super::{Platform, Span};

/// A register over the by-offset accessors, for any platform.
#[derive(Debug)]
pub struct RegisterByOffset<'p, P> {
    platform: &'p P,
    offset: usize,
    half: usize,
}

impl<'p, P: Platform> RegisterByOffset<'p, P> {
    /// [`Platform::register`].
    #[must_use]
    pub fn new(platform: &'p P, offset: usize, half: usize) -> Option<Self> {
        halves(offset, half, platform.bar_len()).then_some(Self { platform, offset, half })
    }
}

impl<P: Platform> Register for RegisterByOffset<'_, P> {
    fn write64(&self, value: u64) {
        self.platform.write64(self.offset, value);
    }
    fn write_block(&self, block: &[u64; 8]) {
        self.platform.write_block(self.offset, block);
    }
    fn turn(&mut self) {
        self.offset ^= self.half;
    }
}

/// Entries over the by-offset accessors, for any platform. For memory that may be reached directly
/// there is [`crate::platform::dma::RawEntries`].
#[derive(Debug)]
pub struct ByOffset<'p, P, const LEN: usize> {
    platform: &'p P,
    offset: usize,
    mask: u32,
}

impl<P, const LEN: usize> Clone for ByOffset<'_, P, LEN> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P, const LEN: usize> Copy for ByOffset<'_, P, LEN> {}

impl<'p, P: Platform, const LEN: usize> ByOffset<'p, P, LEN> {
    /// [`Platform::entries`].
    #[must_use]
    pub fn new(platform: &'p P, span: Span) -> Option<Self> {
        Some(Self { platform, offset: span.offset, mask: mask::<LEN>(span, platform.arena_len())? })
    }

    const fn place(&self, index: u32, at: usize) -> usize {
        let entry = ((index & self.mask) as usize).wrapping_mul(LEN);
        self.offset.wrapping_add(entry).wrapping_add(at)
    }
}

impl<P: Platform, const LEN: usize> Entries for ByOffset<'_, P, LEN> {
    fn load32<const AT: usize>(&self, index: u32) -> u32 {
        const { assert!(inside(AT, 4, 4, LEN)) }
        self.platform.load32(self.place(index, AT))
    }
    fn load_words<const N: usize, const AT: usize>(&self, index: u32) -> [u64; N] {
        const { assert!(inside(AT, 8 * N, 8, LEN)) }
        self.platform.load_words(self.place(index, AT))
    }
    fn store32<const AT: usize>(&self, index: u32, value: u32) {
        const { assert!(inside(AT, 4, 4, LEN)) }
        self.platform.store32(self.place(index, AT), value);
    }
    fn store_words<const N: usize, const AT: usize>(&self, index: u32, words: &[u64; N]) {
        const { assert!(inside(AT, 8 * N, 8, LEN)) }
        self.platform.store_words(self.place(index, AT), words);
    }
    fn word(&self, index: u64) -> Option<u64> {
        let index = u32::try_from(index).ok()?;
        (index <= self.mask).then(|| {
            let [word] = self.platform.load_words(self.place(index, 0));
            word
        })
    }
}
