//! The pages for the HCA's firmware: a bitmap of those that it holds.

use core::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a device page.
pub(crate) const PAGE: usize = 4096;

/// A run of `64 * WORDS` pages.
#[derive(Debug)]
pub(crate) struct Reserve<const WORDS: usize> {
    first: u64,
    held: [AtomicU64; WORDS],
}

impl<const WORDS: usize> Reserve<WORDS> {
    /// Makes a reserve of free pages from address `first`.
    pub(crate) const fn new(first: u64) -> Self {
        Self { first, held: [const { AtomicU64::new(0) }; WORDS] }
    }

    /// Returns the number of held pages.
    pub(crate) fn held(&self) -> u32 {
        let ones = |word: &AtomicU64| word.load(Ordering::Relaxed).count_ones();
        self.held.iter().map(ones).sum()
    }

    /// Allocates pages, as many as fit into `to` and are free. Returns how many.
    pub(crate) fn take(&self, to: &mut [u64]) -> usize {
        let mut places = to.iter_mut();
        let mut done = 0;
        for (base, held) in (self.first..).step_by(64 * PAGE).zip(&self.held) {
            let mut bits = held.load(Ordering::Relaxed);
            while bits != u64::MAX {
                let Some(place) = places.next() else {
                    held.store(bits, Ordering::Relaxed);
                    return done;
                };
                let bit = bits.trailing_ones();
                *place = base + u64::from(bit) * PAGE as u64;
                bits |= 1 << bit;
                done += 1;
            }
            held.store(bits, Ordering::Relaxed);
        }
        done
    }

    /// Frees pages. Returns how many of them were held.
    pub(crate) fn give(&self, pages: &[u64]) -> usize {
        let known = |page: &&u64| {
            let offset = page.checked_sub(self.first)?;
            let index = usize::try_from(offset).ok()? / PAGE;
            let bit = 1 << (index % 64);
            let held = self.held.get(index / 64)?;
            let out = offset % (PAGE as u64) == 0 && held.load(Ordering::Relaxed) & bit != 0;
            out.then(|| held.fetch_and(!bit, Ordering::Relaxed))
        };
        pages.iter().filter(|page| known(page).is_some()).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_is_allocated_once_and_again_after_a_free() {
        let reserve = Reserve::<2>::new(0x10_0000);
        let mut pages = [0; 200];
        assert_eq!((reserve.take(&mut pages[..70]), reserve.take(&mut pages[70..])), (70, 58));
        assert_eq!((reserve.held(), reserve.take(&mut [0])), (128, 0));
        assert!(
            pages[..128]
                .iter()
                .eq((0..128).map(|n| 0x10_0000 + 4096 * n).collect::<Vec<_>>().iter())
        );

        let back = [pages[3], pages[100], pages[3], 0x10_0001, 0xf_f000, 0x18_0000, 0, u64::MAX];
        assert_eq!(reserve.give(&back), 2, "duplicate, misaligned and foreign pages are ignored");
        assert_eq!(reserve.take(&mut pages), 2);
        assert_eq!(pages[..2], [0x10_3000, 0x16_4000]);
    }
}
