//! Page lists over scattered memory.

use std::vec::Vec;

use dat_core::provider::FaultKind;
use proptest::prelude::*;

use super::{MAX_PAGES, PageList};
use crate::data::scripted::{ARENA_ADDR, ARENA_IOVA, ARENA_LEN, NOWHERE, Scripted};
use crate::platform::Span;

fn span(offset: usize, len: usize) -> Span {
    Span { offset, len }
}

fn list(p: &Scripted<false>, offset: usize, len: usize) -> PageList {
    PageList::new(p, span(offset, len), ARENA_ADDR + offset as u64, MAX_PAGES).unwrap()
}

#[test]
fn contiguous_memory_is_one_page_of_the_least_size() {
    let p = Scripted::<false>::new();
    for (offset, len, log) in
        [(0, 1, 12), (0, 4096, 12), (0, 4097, 13), (0x1ff0, 0x20, 14), (0, 1 << 18, 18)]
    {
        let list = list(&p, offset, len);
        assert_eq!((list.count, list.log_page), (1, log), "{offset:#x}+{len:#x}");
        assert_eq!(list.page(&p, 0).unwrap() + list.start, ARENA_IOVA + offset as u64);
    }
}

#[test]
fn scattered_memory_is_many() {
    let p = Scripted::<false>::new();
    *p.runs.borrow_mut() =
        [(0, 0x10_0000), (0x1000, 0x30_0000), (0x2000, 0x50_0000), (0x4000, 0x20_0000)].to_vec();
    let list = list(&p, 0x800, 0x3000);
    assert_eq!((list.log_page, list.start), (12, 0x800));
    let pages: Vec<u64> = (0..list.count).filter_map(|i| list.page(&p, i)).collect();
    assert_eq!(pages, [0x10_0000, 0x30_0000, 0x50_0000, 0x50_1000]);
}

#[test]
fn neighbouring_runs_merge() {
    let p = Scripted::<false>::new();
    *p.runs.borrow_mut() = [(0, 0x10_0000), (0x1000, 0x10_1000), (0x2000, 0x10_2000)].to_vec();
    assert_eq!(list(&p, 0, 0x4000).count, 1);
}

#[test]
fn memory_that_sits_unlike_in_its_pages_is_refused() {
    let p = Scripted::<false>::new();
    *p.runs.borrow_mut() = [(0, 0x10_0800)].to_vec();
    let fault = PageList::new(&p, span(0, 64), ARENA_ADDR, MAX_PAGES).unwrap_err();
    assert_eq!(fault.kind, FaultKind::BadParameter);
    assert!(PageList::queue(&p, span(0, 64)).is_ok(), "a queue has no address of its own");
}

#[test]
fn too_many_pages_are_refused() {
    let p = Scripted::<false>::new();
    // Every second page of the device's: nothing merges.
    let pages = ARENA_LEN / 4096;
    *p.runs.borrow_mut() = (0..pages).map(|i| (i * 4096, 0x100_0000 + i as u64 * 8192)).collect();
    let whole = span(0, ARENA_LEN);
    assert_eq!(PageList::new(&p, whole, ARENA_ADDR, pages).unwrap().count, pages);
    let fault = PageList::new(&p, whole, ARENA_ADDR, pages - 1).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Resources);
    assert_eq!(
        PageList::new(&p, span(0, 0), ARENA_ADDR, MAX_PAGES).unwrap_err().kind,
        FaultKind::BadParameter
    );
    let beyond =
        PageList::new(&p, span(ARENA_LEN - 1, 2), ARENA_ADDR + ARENA_LEN as u64 - 1, MAX_PAGES);
    assert_eq!(beyond.unwrap_err().kind, FaultKind::BadParameter);
}

/// A message of a queue has room for so many.
#[test]
fn a_queue_has_at_most_256_pages() {
    let p = Scripted::<false>::sized(1 << 21);
    *p.runs.borrow_mut() = (0..512).map(|i| (i * 4096, 0x100_0000 + i as u64 * 8192)).collect();
    let list = PageList::queue(&p, span(0, 256 * 4096)).unwrap();
    assert_eq!((list.count, list.log_page), (256, 12));
    assert_eq!(list.page(&p, 255), Some(0x100_0000 + 255 * 8192));
    let fault = PageList::queue(&p, span(0, 256 * 4096 + 1)).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Resources);
}

#[test]
fn memory_that_the_device_sees_none_of_is_refused() {
    let p = Scripted::<false>::new();
    *p.runs.borrow_mut() = [(0, 0x10_0000), (0x1000, NOWHERE), (0x2000, 0x20_0000)].to_vec();
    let fault = PageList::new(&p, span(0, 0x3000), ARENA_ADDR, MAX_PAGES).unwrap_err();
    assert_eq!(fault.kind, FaultKind::BadParameter);
    let fault = PageList::queue(&p, span(0x800, 0x1000)).unwrap_err();
    assert_eq!(fault.kind, FaultKind::BadParameter);
}

#[test]
fn queue_offsets_count_in_64ths_of_a_page() {
    let p = Scripted::<false>::new();
    let small = PageList::queue(&p, span(0x10c0, 0x200)).unwrap();
    assert_eq!(small.queue_geometry(), (3, 0));
    let large = PageList::queue(&p, span(0x3000, 0x9000)).unwrap();
    let (offset, log) = large.queue_geometry();
    let start = large.page(&p, 0).unwrap() + u64::from(offset) * (64 << log);
    assert_eq!((start, log + 12), (ARENA_IOVA + 0x3000, large.log_page));
}

/// From any page on, into any room, each page is where it is by itself.
#[test]
fn pages_are_written_as_they_are() {
    let p = Scripted::<false>::new();
    let runs = [(0, 0x10_0000), (0x3000, 0x10_3000), (0x5000, 0x50_0000), (0x9000, 0x20_0000)];
    *p.runs.borrow_mut() = runs.to_vec();
    let list = list(&p, 0x800, 0xb000);
    assert_eq!(list.count, 12);
    for first in 0..14 {
        for room in 0..14 {
            let mut bytes = [0; 8 * 14];
            list.write(&p, first, &mut bytes[..8 * room]);
            let mut golden = [0; 8 * 14];
            for (entry, index) in golden.chunks_exact_mut(8).take(room).zip(first..12) {
                entry.copy_from_slice(&list.page(&p, index).unwrap().to_be_bytes());
            }
            assert_eq!(bytes, golden, "from {first}, room for {room}");
        }
    }
}

proptest! {
    /// However the arena is scattered, a list either translates every byte to where the platform
    /// says it is, or is refused.
    #[test]
    fn lists_translate_every_byte(
        pages in prop::collection::vec(0..200_u64, 64),
        offset in 0..ARENA_LEN - 1,
        len in 1..0x8000_usize,
        queue in any::<bool>(),
    ) {
        let p = Scripted::<false>::new();
        let runs: Vec<(usize, u64)> =
            pages.iter().enumerate().map(|(i, page)| (i * 4096, 0x40_0000 + page * 4096)).collect();
        *p.runs.borrow_mut() = runs;
        let len = len.min(ARENA_LEN - offset);
        let offset = if queue { offset & !63 } else { offset };
        let base = if queue {
            crate::platform::Dma::iova(&p, offset).unwrap().0
        } else {
            ARENA_ADDR + offset as u64
        };
        let list = if queue {
            PageList::queue(&p, span(offset, len))
        } else {
            PageList::new(&p, span(offset, len), base, MAX_PAGES)
        };
        let list = list.unwrap();
        let size = 1_u64 << list.log_page;
        prop_assert_eq!(base & (size - 1), list.start);
        for byte in [0, len / 3, len / 2, len - 1] {
            let at = list.start + byte as u64;
            let page = list.page(&p, usize::try_from(at / size).unwrap()).unwrap();
            let truth = crate::platform::Dma::iova(&p, offset + byte).unwrap().0;
            prop_assert_eq!(page + at % size, truth);
        }
    }
}
