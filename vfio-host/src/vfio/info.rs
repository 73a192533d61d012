//! Properties of the IOMMU: the addresses that it translates, and the number of mappings left.
//!
//! `VFIO_IOMMU_GET_INFO` returns a fixed part, followed by capabilities chained by their offsets.

use std::ops::RangeInclusive;

use vfio_bindings::bindings::vfio::{VFIO_IOMMU_INFO_CAPS, VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE};

/// ID of the capability with the number of mappings left (`VFIO_IOMMU_TYPE1_INFO_DMA_AVAIL`; the
/// bindings define only its structure).
const DMA_AVAIL: u16 = 3;
/// Bytes of a capability's header.
const CAP_HEADER: usize = 8;

/// Properties of the IOMMU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct IommuInfo {
    /// The ranges that it translates, both ends inclusive; empty if not reported.
    pub(crate) ranges: Vec<RangeInclusive<u64>>,
    /// Number of mappings left, if reported.
    pub(crate) entries: Option<u32>,
}

impl IommuInfo {
    /// Parses the buffer that the kernel filled. Truncated capabilities and cycles are ignored.
    pub(crate) fn parse(bytes: &[u8]) -> Self {
        let mut info = Self::default();
        let flags = word(bytes, 4).unwrap_or(0);
        if flags & VFIO_IOMMU_INFO_CAPS == 0 {
            return info;
        }
        let mut at = word(bytes, 16).unwrap_or(0);
        // Capabilities have ascending offsets, so a chain that goes back is malformed.
        let mut last = 0;
        while at > last {
            let Some(cap) = usize::try_from(at).ok().and_then(|at| bytes.get(at..)) else {
                break;
            };
            let (Some(id), Some(next)) = (u16_at(cap, 0), word(cap, 4)) else {
                break;
            };
            if u32::from(id) == VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE {
                info.ranges = ranges(cap);
            } else if id == DMA_AVAIL {
                info.entries = word(cap, CAP_HEADER);
            }
            (last, at) = (at, next);
        }
        info
    }
}

/// Returns the valid ranges of a range capability.
fn ranges(cap: &[u8]) -> Vec<RangeInclusive<u64>> {
    let count = word(cap, CAP_HEADER).unwrap_or(0);
    (0..usize::try_from(count).unwrap_or(0))
        .map_while(|index| {
            let at = index.checked_mul(16)?.checked_add(CAP_HEADER + 8)?;
            Some(long(cap, at)?..=long(cap, at.checked_add(8)?)?)
        })
        .filter(|range| !range.is_empty())
        .collect()
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    /// A migration capability, a range capability and the count, as Linux 6.1 chains them.
    fn linux() -> Vec<u8> {
        let low = |value: u64| u32::try_from(value & 0xffff_ffff).unwrap();
        let mut bytes = words(&[136, 3, 0x1000, 0, 24, 0]);
        bytes.extend(words(&[0x1_0002, 48, 0, 0, 0, 0]));
        bytes.extend(words(&[0x1_0001, 96, 2, 0]));
        for end in [0x1000, 0xfedf_ffff, 0xfef0_0000, 0xffff_ffff_ffffu64] {
            bytes.extend(words(&[low(end), low(end >> 32)]));
        }
        bytes.extend(words(&[0x1_0003, 0, 65_535]));
        bytes
    }

    #[test]
    fn ranges_and_entries_are_found_in_the_chain() {
        if cfg!(target_endian = "little") {
            let info = IommuInfo::parse(&linux());
            assert_eq!(info.ranges, [0x1000..=0xfedf_ffff, 0xfef0_0000..=0xffff_ffff_ffff]);
            assert_eq!(info.entries, Some(65_535));
        }
    }

    #[test]
    fn an_old_kernel_reports_nothing() {
        assert_eq!(IommuInfo::parse(&words(&[16, 1, 0x1000, 0])), IommuInfo::default());
        assert_eq!(IommuInfo::parse(&[]), IommuInfo::default());
    }

    #[test]
    fn a_cyclic_chain_ends() {
        let mut bytes = words(&[40, 2, 0, 0, 24, 0]);
        bytes.extend(words(&[0x1_0003, 24, 9]));
        assert_eq!(IommuInfo::parse(&bytes).entries, Some(9));
    }

    #[test]
    fn truncated_capabilities_are_ignored() {
        for len in 0..linux().len() {
            let info = IommuInfo::parse(&linux()[..len]);
            assert!(info.ranges.len() <= 2);
            assert_eq!(info.entries, None);
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(bytes: Vec<u8>, flags in 2u32..4, offset in 0u32..64) {
            let mut bytes = bytes;
            for (at, value) in [(4, flags), (16, offset)] {
                if let Some(place) = bytes.get_mut(at..at + 4) {
                    place.copy_from_slice(&value.to_ne_bytes());
                }
            }
            for range in IommuInfo::parse(&bytes).ranges {
                prop_assert!(range.start() <= range.end());
            }
        }
    }
}
