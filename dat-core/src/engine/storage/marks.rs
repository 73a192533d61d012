//! A bit for each receive slot of an Endpoint: how many words that is, the compiler does not divide
//! by itself.

use crate::types::atomic::AtomicU32;

/// So many DTOs, which is a size that queues have: a power of two up to 32,768.
#[derive(Clone, Copy, Debug)]
pub struct Dtos<const N: usize>;

/// A bit for each of so many.
#[diagnostic::on_unimplemented(
    message = "DTOS, the DTOs outstanding of an Endpoint, has to be a power of two up to 32,768"
)]
pub trait Marks {
    /// Words of as many bits, or more.
    type Words;
    /// None of them set.
    const NONE: Self::Words;
    /// The words of one after another.
    fn flat(words: &mut [Self::Words]) -> &mut [AtomicU32];
}

/// Words of so many bits.
pub(crate) const fn words(bits: usize) -> usize {
    bits.div_ceil(u32::BITS as usize)
}

macro_rules! marks {
    ($($n:literal)+) => {$(
        impl Marks for Dtos<$n> {
            type Words = [AtomicU32; words($n)];
            #[expect(
                clippy::declare_interior_mutable_const,
                reason = "what an array is filled with"
            )]
            const NONE: Self::Words = [const { AtomicU32::new(0) }; words($n)];
            fn flat(words: &mut [Self::Words]) -> &mut [AtomicU32] {
                words.as_flattened_mut()
            }
        }
    )+};
}

marks! { 1 2 4 8 16 32 64 128 256 512 1024 2048 4096 8192 16384 32768 }
