//! Allocation of device addresses for memory.
//!
//! The IOMMU reports which ranges it translates. The window of message-signalled interrupts is not
//! among them on machines that report it, and is excluded here on machines that do not. Memory is
//! placed above 4 GiB if there is space, away from what firmware and bridges place below, and never
//! at 0, which many devices take for "none".

use std::ops::RangeInclusive;

/// Least alignment of ranges: a huge page, so that the IOMMU can use huge pages.
const ALIGN: u64 = 2 << 20;
/// Greatest alignment of ranges: what one entry of a key's page list covers.
const MOST_ALIGN: u64 = 1 << 30;
/// Lowest device address that is used.
const LOWEST: u64 = 1 << 20;
/// Lowest device address that is used while there is space above.
const PREFERRED: u64 = 1 << 32;
/// Addresses where a write is a message-signalled interrupt.
const INTERRUPTS: RangeInclusive<u64> = 0xfee0_0000..=0xfeef_ffff;
/// Assumed when the IOMMU does not report its range: 39 bits are the fewest in use.
pub(crate) const DEFAULT_APERTURE: RangeInclusive<u64> = 0..=(1 << 39) - 1;

/// The free device addresses.
#[derive(Debug)]
pub(crate) struct Space {
    /// In ascending order; none touches the next.
    free: Vec<RangeInclusive<u64>>,
}

impl Space {
    /// Makes a space of all `ranges` (both ends inclusive).
    pub(crate) fn new(ranges: &[RangeInclusive<u64>]) -> Self {
        let mut space = Self { free: Vec::new() };
        for range in ranges.iter().flat_map(around_interrupts) {
            space.put(range);
        }
        space
    }

    /// Allocates `len` bytes on a boundary of huge pages.
    pub(crate) fn take(&mut self, len: u64) -> Option<u64> {
        self.take_like(len, 0, ALIGN)
    }

    /// Allocates `len` bytes whose address agrees with `like` modulo a power of two, so that a page
    /// list needs few entries: the largest that is not longer than the range, between a huge page
    /// and 1 GiB, and for which there is space.
    pub(crate) fn take_agreeing(&mut self, len: u64, like: u64) -> Option<u64> {
        let worth = 1_u64 << len.checked_ilog2()?;
        self.take_like(len, like, worth.clamp(ALIGN, MOST_ALIGN))
    }

    fn take_like(&mut self, len: u64, like: u64, most: u64) -> Option<u64> {
        let logs = ALIGN.ilog2()..=most.ilog2();
        let (index, start) = [PREFERRED, LOWEST].iter().find_map(|lowest| {
            logs.clone().rev().find_map(|log| self.first_fit(len, like, *lowest, 1 << log))
        })?;
        let old = self.free.get(index)?.clone();
        let last = start.checked_add(len.checked_sub(1)?)?;
        let mut rest = Vec::new();
        if *old.start() < start {
            rest.push(*old.start()..=start - 1);
        }
        if last < *old.end() {
            rest.push(last + 1..=*old.end());
        }
        self.free.splice(index..=index, rest);
        Some(start)
    }

    /// Frees an allocated range.
    pub(crate) fn give(&mut self, start: u64, len: u64) {
        if let Some(last) = len.checked_sub(1).and_then(|less| start.checked_add(less)) {
            self.put(start..=last);
        }
    }

    fn put(&mut self, range: RangeInclusive<u64>) {
        let index = self.free.partition_point(|other| other.start() < range.start());
        let (mut start, mut end, mut gone) = (*range.start(), *range.end(), index..index);
        let below = index.checked_sub(1).and_then(|below| self.free.get(below));
        if let Some(below) = below.filter(|below| below.end().checked_add(1) >= Some(start)) {
            (start, end) = (*below.start(), end.max(*below.end()));
            gone.start = index - 1;
        }
        if let Some(above) = self.free.get(index) {
            if end.checked_add(1).is_none_or(|next| next >= *above.start()) {
                end = end.max(*above.end());
                gone.end = index + 1;
            }
        }
        self.free.splice(gone, [start..=end]);
    }

    /// Finds the first free `len` bytes at or above `lowest` that agree with `like` modulo `align`:
    /// index of the range, and address.
    fn first_fit(&self, len: u64, like: u64, lowest: u64, align: u64) -> Option<(usize, u64)> {
        let last = len.checked_sub(1)?;
        self.free.iter().enumerate().find_map(|(index, range)| {
            let from = (*range.start()).max(lowest);
            let start = from.checked_add(like.wrapping_sub(from) % align)?;
            (start.checked_add(last)? <= *range.end()).then_some((index, start))
        })
    }
}

/// Returns the parts of a range before and after the interrupt window.
fn around_interrupts(range: &RangeInclusive<u64>) -> impl Iterator<Item = RangeInclusive<u64>> {
    let (start, end) = (*range.start(), *range.end());
    let before = start..=end.min(INTERRUPTS.start() - 1);
    let behind = start.max(INTERRUPTS.end() + 1)..=end;
    [before, behind].into_iter().filter(|part| !part.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Places pieces of the given lengths on boundaries, one after another.
    fn place(ranges: &[RangeInclusive<u64>], lens: &[u64]) -> Option<Vec<u64>> {
        let mut space = Space::new(ranges);
        lens.iter().map(|len| space.take(*len)).collect()
    }

    /// The ranges that a 48-bit vIOMMU reports.
    const VTD: [RangeInclusive<u64>; 2] = [0x1000..=0xfedf_ffff, 0xfef0_0000..=0xffff_ffff_ffff];

    #[test]
    fn memory_goes_above_four_gigabytes_if_there_is_space() {
        assert_eq!(place(&VTD, &[16 << 20, 128 << 20]).unwrap(), [1 << 32, (1 << 32) + (16 << 20)]);
    }

    #[test]
    fn addresses_agree_as_far_as_the_length_is_worth_it_and_there_is_space() {
        let like = 0x7f12_3456_7000;
        let agreement = |ranges: &[RangeInclusive<u64>], len| {
            let at = Space::new(ranges).take_agreeing(len, like).unwrap();
            1_u64 << (at ^ like).trailing_zeros()
        };
        for (len, least) in [(4096, 2 << 20), (3 << 20, 2 << 20), (100 << 20, 64 << 20)] {
            assert!(agreement(&VTD, len) >= least, "{len:#x}");
        }
        for len in [1 << 30, (3 << 30) + 4096, 64 << 30] {
            assert!(agreement(&VTD, len) >= 1 << 30, "{len:#x}");
        }
        // A gibibyte fits, but not with the wanted offset in one: 64 MiB of slack are worth 64 MiB.
        let tight = (1_u64 << 32)..=(1 << 32) + (1 << 30) + (64 << 20) - 1;
        assert!(agreement(std::slice::from_ref(&tight), 1 << 30) >= 64 << 20);
        let exact = like..=like + (1 << 30) - 1;
        assert_eq!(Space::new(&[exact]).take_agreeing(1 << 30, like), Some(like));
    }

    proptest! {
        #[test]
        fn what_fits_by_huge_pages_is_never_refused(
            start in 0u64..1 << 36, slack in 0u64..4 << 30, len in 1u64..8 << 30, like: u64,
        ) {
            let range = start..=start + len + slack;
            let mut space = Space::new(std::slice::from_ref(&range));
            let plain = [PREFERRED, LOWEST].iter().find_map(|low| space.first_fit(len, like, *low, ALIGN));
            let taken = space.take_agreeing(len, like);
            prop_assert_eq!(taken.is_some(), plain.is_some());
            if let Some(at) = taken {
                prop_assert!(at % ALIGN == like % ALIGN && range.contains(&at));
                prop_assert!(range.contains(&(at + len - 1)));
            }
        }
    }

    #[test]
    fn a_small_aperture_is_used_from_below_but_not_at_zero() {
        assert_eq!(place(&[0..=0xffff_ffff], &[4 << 20]).unwrap(), [2 << 20]);
    }

    #[test]
    fn the_interrupt_window_is_avoided_even_if_unreported() {
        let gap = 0xfec0_0000..=0xff1f_ffff;
        assert_eq!(place(std::slice::from_ref(&gap), &[2 << 20]).unwrap(), [0xfec0_0000]);
        assert_eq!(place(&[gap], &[2 << 20, 2 << 20]).unwrap(), [0xfec0_0000, 0xff00_0000]);
    }

    #[test]
    fn lengths_that_do_not_fit_are_refused() {
        assert_eq!(place(&VTD, &[u64::MAX]), None);
        assert_eq!(place(&VTD, &[0]), None);
        assert_eq!(place(&[], &[4096]), None);
        assert_eq!(place(&[0..=(1 << 20) - 1], &[4096]), None);
        assert!(place(&[0..=u64::MAX], &[1 << 30]).is_some());
    }

    #[test]
    fn freed_ranges_join_their_neighbours() {
        let mut space = Space::new(&VTD);
        let all = space.free.clone();
        let taken: Vec<_> = (0..4).map(|n| space.take_agreeing(4096, n * 4096).unwrap()).collect();
        assert!(taken.windows(2).all(|pair| pair[0] + 4096 == pair[1]));
        for nth in [1, 3, 0, 2] {
            space.give(taken[nth], 4096);
        }
        assert_eq!(space.free, all);
        let whole = Space::new(&[0..=99, 200..=u64::MAX, 100..=199]);
        assert_eq!(whole.free.len(), 2, "{:?}: split by the interrupt window only", whole.free);
    }

    proptest! {
        #[test]
        fn ranges_have_the_wanted_offset_and_can_all_be_freed(
            steps in proptest::collection::vec((any::<bool>(), 1u64..1 << 22, any::<u64>()), 1..60),
        ) {
            let mut space = Space::new(&VTD);
            let all = space.free.clone();
            let mut held: Vec<(u64, u64)> = Vec::new();
            for (take, len, number) in steps {
                if take || held.is_empty() {
                    let at = space.take_agreeing(len, number).unwrap();
                    prop_assert_eq!(at % ALIGN, number % ALIGN);
                    prop_assert!(held.iter().all(|(other, size)| at + len <= *other || other + size <= at));
                    held.push((at, len));
                } else {
                    let (at, len) = held.swap_remove((number & 0xff) as usize % held.len());
                    space.give(at, len);
                }
            }
            for (at, len) in held {
                space.give(at, len);
            }
            prop_assert_eq!(space.free, all);
        }

        #[test]
        fn ranges_are_inside_aligned_and_disjoint(
            ends in proptest::collection::vec(0u64..1 << 40, 2..12),
            lens in proptest::collection::vec(1u64..64 << 20, 1..6),
        ) {
            let mut ends = ends;
            ends.sort_unstable();
            ends.dedup();
            let ranges: Vec<_> = ends.chunks_exact(2).map(|pair| pair[0]..=pair[1]).collect();
            if let Some(places) = place(&ranges, &lens) {
                let mut taken: Vec<_> = places.iter().zip(&lens).map(|(at, len)| (*at, at + len - 1)).collect();
                taken.sort_unstable();
                for (first, last) in &taken {
                    prop_assert!(first % ALIGN == 0 && *first >= LOWEST);
                    prop_assert!(ranges.iter().any(|range| range.contains(first) && range.contains(last)));
                    prop_assert!(last < INTERRUPTS.start() || first > INTERRUPTS.end());
                }
                prop_assert!(taken.windows(2).all(|pair| pair[0].1 < pair[1].0));
            }
        }
    }
}
