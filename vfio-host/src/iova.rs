//! Where in the device's address space the memory goes.
//!
//! The IOMMU says which ranges it translates; the window of message-signalled interrupts is not among them on any machine that
//! reports it, and is kept clear of on those that do not. Memory is placed above 4 GiB where there is room, away from
//! everything that firmware and bridges put below; never at 0, which too many devices take for "none".

use std::ops::RangeInclusive;

/// Placement is on boundaries of huge pages, so that the IOMMU can use them.
const ALIGN: u64 = 2 << 20;
/// Nothing is placed below.
const LOWEST: u64 = 1 << 20;
/// Nothing is placed below, if it can be helped.
const PREFERRED: u64 = 1 << 32;
/// Where writes are interrupts.
const INTERRUPTS: RangeInclusive<u64> = 0xfee0_0000..=0xfeef_ffff;
/// What an IOMMU translates that does not say: 39 bits are the fewest in use.
pub(crate) const UNTOLD: RangeInclusive<u64> = 0..=(1 << 39) - 1;

/// Places pieces of the given lengths into `ranges` (both ends inclusive), each on a boundary and none overlapping another.
pub(crate) fn place(ranges: &[RangeInclusive<u64>], lens: &[u64]) -> Option<Vec<u64>> {
    let mut free: Vec<_> = ranges.iter().flat_map(around_interrupts).collect();
    free.sort_by_key(|range| *range.start());
    let mut places = Vec::with_capacity(lens.len());
    for len in lens {
        let (index, start) = [PREFERRED, LOWEST]
            .iter()
            .find_map(|lowest| first_fit(&free, *len, *lowest))?;
        let old = free.get(index)?.clone();
        let end = start.checked_add(*len)?;
        let mut rest = Vec::new();
        if *old.start() < start {
            rest.push(*old.start()..=start - 1);
        }
        if end <= *old.end() {
            rest.push(end..=*old.end());
        }
        free.splice(index..=index, rest);
        places.push(start);
    }
    Some(places)
}

/// The first place for `len` bytes at or above `lowest`: which range, and where in it.
fn first_fit(free: &[RangeInclusive<u64>], len: u64, lowest: u64) -> Option<(usize, u64)> {
    let last = len.checked_sub(1)?;
    free.iter().enumerate().find_map(|(index, range)| {
        let start = (*range.start())
            .max(lowest)
            .checked_next_multiple_of(ALIGN)?;
        (start.checked_add(last)? <= *range.end()).then_some((index, start))
    })
}

/// What of a range lies before and behind the interrupts' window.
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

    /// What a vIOMMU of 48 bits reports.
    const VTD: [RangeInclusive<u64>; 2] = [0x1000..=0xfedf_ffff, 0xfef0_0000..=0xffff_ffff_ffff];

    #[test]
    fn memory_goes_above_four_gigabytes_where_there_is_room() {
        assert_eq!(
            place(&VTD, &[16 << 20, 128 << 20]).unwrap(),
            [1 << 32, (1 << 32) + (16 << 20)]
        );
    }

    #[test]
    fn a_small_aperture_is_used_from_below_but_not_at_zero() {
        assert_eq!(place(&[0..=0xffff_ffff], &[4 << 20]).unwrap(), [2 << 20]);
    }

    #[test]
    fn the_interrupt_window_is_avoided_even_if_nobody_says_so() {
        let gap = 0xfec0_0000..=0xff1f_ffff;
        assert_eq!(
            place(std::slice::from_ref(&gap), &[2 << 20]).unwrap(),
            [0xfec0_0000]
        );
        assert_eq!(
            place(&[gap], &[2 << 20, 2 << 20]).unwrap(),
            [0xfec0_0000, 0xff00_0000]
        );
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        assert_eq!(place(&VTD, &[u64::MAX]), None);
        assert_eq!(place(&VTD, &[0]), None);
        assert_eq!(place(&[], &[4096]), None);
        assert_eq!(place(&[0..=(1 << 20) - 1], &[4096]), None);
        assert!(place(&[0..=u64::MAX], &[1 << 30]).is_some());
    }

    proptest! {
        #[test]
        fn places_are_inside_aligned_and_disjoint(
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
