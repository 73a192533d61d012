//! Page lists over scattered memory, and the commands of keys.

use std::vec::Vec;

use dat_core::provider::{Access, FaultKind, Region};
use proptest::prelude::*;

use super::pages::{MAX_PAGES, PageList};
use super::{mkey, window};
use crate::platform::Span;
use crate::prm::cmd::Opcode;
use crate::prm::mkey::Mkey;
use crate::queue::scripted::{ARENA_ADDR, ARENA_IOVA, ARENA_LEN, Scripted};

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
    assert_eq!(fault.kind(), FaultKind::BadParameter);
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
    assert_eq!(fault.kind(), FaultKind::Resources);
    assert_eq!(
        PageList::new(&p, span(0, 0), ARENA_ADDR, MAX_PAGES).unwrap_err().kind(),
        FaultKind::BadParameter
    );
    let beyond =
        PageList::new(&p, span(ARENA_LEN - 1, 2), ARENA_ADDR + ARENA_LEN as u64 - 1, MAX_PAGES);
    assert_eq!(beyond.unwrap_err().kind(), FaultKind::BadParameter);
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

#[test]
fn region_command() {
    let p = Scripted::<false>::new();
    let mut device = p.device();
    p.chance.borrow_mut().push_back(0xc3);
    let region = Region { addr: ARENA_ADDR + 0x1234, len: 0x100 };
    let access = Access::LOCAL_READ | Access::REMOTE_WRITE | Access::LOCAL_WRITE;
    let key = mkey::create(&mut device, 0x77, region, access).unwrap();
    assert_eq!(key.0 & 0xff, 0xc3, "the low byte is chance");
    let command = p.of(Opcode::CreateMkey).remove(0);
    assert_eq!(command.input.len(), 0x110 + 16);
    assert_eq!(command.word(0x10), 0x0000_2d00, "rw lw lr, MTT");
    assert_eq!(command.word(0x14), 0xffff_ffc3);
    assert_eq!(command.word(0x1c), 0x77);
    assert_eq!((command.wide(0x20), command.wide(0x28)), (ARENA_ADDR + 0x1234, 0x100));
    assert_eq!((command.word(0x44), command.word(0x60)), (1, 1));
    assert_eq!(command.bits(0x48, 5, 0), 12);
    assert_eq!(command.wide(0x110), ARENA_IOVA + 0x1000);
    mkey::destroy(&mut device, key).unwrap();
    assert_eq!(p.of(Opcode::DestroyMkey)[0].word(8), key.index());
}

#[test]
fn rights_are_just_those_asked_for() {
    let p = Scripted::<false>::new();
    let mut device = p.device();
    let bits = [
        (Access::LOCAL_READ, 1 << 10),
        (Access::LOCAL_WRITE, 1 << 11),
        (Access::REMOTE_READ, 1 << 12),
        (Access::REMOTE_WRITE, 1 << 13),
    ];
    let region = Region { addr: ARENA_ADDR, len: 64 };
    for set in 0..16_usize {
        let chosen = bits.iter().enumerate().filter(|(i, _)| set >> i & 1 == 1).map(|(_, b)| b);
        let access: Access = chosen.clone().map(|b| b.0).collect();
        mkey::create(&mut device, 1, region, access).unwrap();
        let command = p.of(Opcode::CreateMkey).pop().unwrap();
        assert_eq!(command.word(0x10) & 0xfc00, chosen.map(|b| b.1).sum::<u32>());
    }
}

#[test]
fn only_the_arena_can_be_registered() {
    let p = Scripted::<false>::new();
    let mut device = p.device();
    let end = ARENA_ADDR + ARENA_LEN as u64;
    for (addr, len) in [
        (ARENA_ADDR - 1, 2),
        (end - 1, 2),
        (end, 1),
        (0, 64),
        (u64::MAX, 1),
        (u64::MAX - 10, u64::MAX),
        (ARENA_ADDR, 0),
        (ARENA_ADDR, 1 << 31),
        (ARENA_ADDR, u64::MAX),
    ] {
        let fault = mkey::create(&mut device, 1, Region { addr, len }, Access::all()).unwrap_err();
        assert_eq!(fault.kind(), FaultKind::BadParameter);
    }
    assert!(p.of(Opcode::CreateMkey).is_empty());
    let whole = Region { addr: ARENA_ADDR, len: ARENA_LEN as u64 };
    mkey::create(&mut device, 1, whole, Access::all()).unwrap();
}

#[test]
fn window_command() {
    let p = Scripted::<false>::new();
    let mut device = p.device();
    p.chance.borrow_mut().push_back(0x99);
    let key = window::create(&mut device, 0x77, false).unwrap();
    assert_eq!(key.0 & 0xff, 0x99);
    let command = p.of(Opcode::CreateMkey).remove(0);
    assert_eq!(command.input.len(), 0x110);
    assert_eq!(command.word(0x10), 0x4000_8600, "free, umr_en, lr, KLM");
    assert_eq!(command.word(0x14), 0xffff_ff99);
    assert_eq!((command.word(0x1c), command.word(0x44)), (0x77, 4));
}

#[test]
fn window_of_type_2_command() {
    let p = Scripted::<false>::new();
    let mut device = p.device();
    window::create(&mut device, 0x77, true).unwrap();
    let command = p.of(Opcode::CreateMkey).remove(0);
    assert_eq!(command.word(0x10), 0x4000_8600, "as of type 1");
    assert_eq!(command.word(0x1c), 1 << 24 | 0x77, "a peer may close it");
}

#[test]
fn allocated_key_command() {
    let p = Scripted::<false>::new();
    let mut device = p.device();
    mkey::allocate(&mut device, 0x77, 9).unwrap();
    let command = p.of(Opcode::CreateMkey).remove(0);
    assert_eq!(command.input.len(), 0x110);
    assert_eq!(command.word(0x10), 0x4000_8100, "free, umr_en, MTT, no rights");
    assert_eq!((command.word(0x44), command.word(0x60)), (8, 0), "room for 16, none there");
    assert_eq!(command.word(0x48) & 0x3f, 12);
}

#[test]
fn a_key_over_keys_has_an_entry_for_each() {
    let p = Scripted::<false>::new();
    let mut device = p.device();
    let mut chain = mkey::Chain::new();
    for part in 0..5_u32 {
        let addr = ARENA_ADDR + u64::from(part) * 0x1000;
        assert!(chain.push(0x1000, Mkey(0x100 + part), addr));
    }
    let wanted = mkey::Wanted {
        pd: 0x77,
        start: 0,
        len: 0x5000,
        access: Access::LOCAL_READ | Access::LOCAL_WRITE | Access::REMOTE_WRITE,
    };
    let beneath = Access::LOCAL_READ | Access::LOCAL_WRITE;
    assert_eq!(wanted.beneath(), beneath, "nothing remote below");
    chain.create(&mut device, &wanted).unwrap();
    let command = p.of(Opcode::CreateMkey).remove(0);
    assert_eq!(command.input.len(), 0x110 + 8 * 16, "whole granules of four");
    assert_eq!(command.word(0x10), 0x0000_2e00, "rw lw lr, KLM");
    assert_eq!((command.word(0x44), command.word(0x60)), (8, 8));
    assert_eq!((command.word(0x20), command.word(0x24)), (0, 0), "zero-based");
    assert_eq!((command.word(0x110), command.word(0x114)), (0x1000, 0x100));
    assert_eq!((command.word(0x150), command.word(0x154)), (0x1000, 0x104));
    assert_eq!(command.word(0x160), 0);
}

#[test]
fn pages_are_the_arena_s_or_nobody_s() {
    let p = Scripted::<false>::new();
    let last = ARENA_IOVA + ARENA_LEN as u64;
    assert!(mkey::owns(&p, &[ARENA_IOVA, last - 4096], 12));
    for page in [ARENA_IOVA - 4096, last, last - 2048, u64::MAX - 4095, 0] {
        assert!(!mkey::owns(&p, &[ARENA_IOVA, page], 12), "{page:#x}");
    }
    assert!(!mkey::owns(&p, &[ARENA_IOVA], 63));
    assert!(!mkey::owns(&p, &[ARENA_IOVA], 64));
}

#[test]
fn physical_key_command() {
    let p = Scripted::<false>::new();
    let mut device = p.device();
    mkey::physical(&mut device, 0x77).unwrap();
    let command = p.of(Opcode::CreateMkey).remove(0);
    assert_eq!(command.word(0x10), 0x0000_0c00, "lw lr, no translation, nothing remote");
    assert_eq!(command.word(0x1c), 0x8000_0077, "length64");
}

#[test]
fn keys_are_index_and_variant() {
    let key = Mkey::new(0x00ab_cdef, 0x42);
    assert_eq!((key.0, key.index()), (0xabcd_ef42, 0x00ab_cdef));
}

proptest! {
    /// However the arena is scattered, a list either translates every byte to where the platform says it is, or is
    /// refused.
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
            crate::platform::Platform::iova(&p, offset).unwrap().0
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
            let truth = crate::platform::Platform::iova(&p, offset + byte).unwrap().0;
            prop_assert_eq!(page + at % size, truth);
        }
    }
}
