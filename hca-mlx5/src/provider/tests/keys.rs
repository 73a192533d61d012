//! Keys of regions and windows: how many there are, what each opens, and that all of them go.

use super::*;
use crate::data::scripted::Command;
use crate::platform::{Lend, Reach};

#[test]
fn a_region_goes_with_all_the_keys_beneath_it() {
    let p = Scripted::<false>::new();
    let mut hca = open(&p);
    let pd = hca.pd_create().unwrap();
    let region = Region { addr: ARENA_ADDR + 0x1234, len: 0x1_0000 };
    let map = |hca: &mut Hca<'_, false>| {
        hca.mr_map(pd, Backing::Host(region), 0, Access::LOCAL_READ | Access::REMOTE_READ)
    };
    let before = p.of(Opcode::CreateMkey).len();
    let mr = map(&mut hca).unwrap();
    let made = p.of(Opcode::CreateMkey)[before..].to_vec();
    assert_eq!(made.len(), 2, "one part, and the key over it");
    // The part has local rights, and begins where the memory begins in its page.
    assert_eq!((made[0].word(0x10) & 0x7c00, made[1].word(0x10) & 0x7c00), (0x400, 0x1400));
    assert_eq!((made[0].wide(0x20) & 0xfff, made[0].wide(0x28)), (0x234, 0x1_0000));
    assert_eq!((made[1].wide(0x20), made[1].wide(0x28)), (0, 0x1_0000));
    assert_eq!((made[1].word(0x110), made[1].wide(0x118)), (0x1_0000, made[0].wide(0x20)));
    assert_eq!(hca.keys.room(), 6);
    let below = made[1].word(0x114);
    assert!(hca.mr_destroy(Mr { lkey: below, rkey: below }).is_err(), "nobody's to destroy");
    hca.mr_destroy(mr).unwrap();
    let destroyed: Vec<u32> = p.of(Opcode::DestroyMkey).iter().map(|c| c.word(8)).collect();
    assert_eq!(destroyed, [mr.lkey >> 8, below >> 8], "first the one that opens it");
    assert_eq!(hca.keys.room(), 8);
    // If either is refused, none is left.
    for refused in [0, 1] {
        p.refuse(Opcode::CreateMkey, 6, p.of(Opcode::CreateMkey).len() + refused);
        assert_eq!(map(&mut hca).unwrap_err().status, 6);
        assert_eq!(p.of(Opcode::DestroyMkey).len(), 2 + refused);
        p.refusals.borrow_mut().clear();
        assert_eq!(hca.keys.room(), 8);
    }
    // There must be room for all of it.
    for _ in 0..7 {
        hca.mw_create(pd).unwrap();
    }
    assert_eq!(map(&mut hca).unwrap_err().kind, FaultKind::Resources);
}

/// Lends a tebibyte from its first address on, at device addresses so far away.
struct Far(u64);

impl Lend for Far {
    fn lent(&self, region: Region) -> Option<u64> {
        region.addr.checked_add(self.0)
    }
    fn write(&self, _: u64, _: &[u8]) -> bool {
        false
    }
    fn shared(&self, _: &[u8; 40]) -> Option<Region> {
        None
    }
}

const GIB: u64 = 1 << 30;
const RIGHTS: Access = Access::LOCAL_READ.union(Access::REMOTE_READ);

/// The commands by which such a region of lent memory is registered, and those by which it goes.
fn registered(far: u64, region: Region, start: u64) -> (Vec<Command>, usize) {
    let p = Scripted::<false>::new();
    let lender = Far(far);
    let mut device = p.device();
    device.config.lender = Some(&lender);
    let mut hca = Mlx5::<_, 4, 4, 600>::over(device, &Config::default()).unwrap();
    let pd = hca.pd_create().unwrap();
    let (before, held) = (p.of(Opcode::CreateMkey).len(), p.held());
    let mr = hca.mr_map(pd, Backing::Host(region), start, RIGHTS).unwrap();
    let made = p.of(Opcode::CreateMkey)[before..].to_vec();
    hca.mr_destroy(mr).unwrap();
    assert_eq!((hca.keys.room(), p.held()), (600, held));
    hca.pd_destroy(pd).unwrap();
    (made, p.of(Opcode::DestroyMkey).len())
}

#[test]
fn where_addresses_agree_modulo_1_gib_an_entry_covers_as_much() {
    let region = Region { addr: 0x7f00_4000_3123, len: 64 * GIB };
    let (made, gone) = registered(0x101 * GIB, region, region.addr);
    assert_eq!((made.len(), gone), (1, 1));
    // RR and LR, MTT, pages of 1 GiB; 65 of them, as it begins inside the first.
    assert_eq!((made[0].word(0x10), made[0].word(0x48) & 0x3f), (0x1500, 30));
    assert_eq!((made[0].input.len(), made[0].word(0x60)), (0x110 + 16 * 33, 33));
    for entry in 0..65 {
        assert_eq!(
            made[0].wide(0x110 + 8 * entry),
            0x7f00_4000_0000 + (0x101 + entry as u64) * GIB
        );
    }
    assert_eq!(made[0].wide(0x110 + 8 * 65), 0, "padded");
    assert_eq!((made[0].wide(0x20), made[0].wide(0x28)), (region.addr, region.len));
}

#[test]
fn where_they_agree_modulo_4_kib_only_a_key_names_them_otherwise() {
    // A gibibyte: one key, and the key over it.
    let region = Region { addr: 0x7f00_4000_1000, len: GIB };
    let far = 0x20_0000_1000;
    let (made, gone) = registered(far, region, region.addr);
    assert_eq!((made.len(), gone), (2, 2));
    let iova = region.addr + far;
    assert_eq!((made[0].word(0x10), made[0].word(0x48) & 0x3f), (0x0500, 31));
    assert_eq!((made[0].wide(0x20), made[0].wide(0x28)), (iova % (2 * GIB), GIB));
    assert_eq!(made[0].wide(0x110), iova & !(2 * GIB - 1));
    assert_eq!((made[0].word(0x44), made[1].word(0x44)), (1, 4));
    assert_eq!(
        (made[1].word(0x10), made[1].wide(0x20), made[1].wide(0x28)),
        (0x1600, region.addr, GIB)
    );
    assert_eq!((made[1].word(0x110), made[1].wide(0x118)), (1 << 30, iova % (2 * GIB)));
    assert_eq!(made[1].wide(0x120), 0, "and no other");
    // 64 GiB: 33 keys of at most 2 GiB less 4 KiB, named one behind the other, and the key over them.
    for (len, start) in [(64 * GIB, 0x7f00_4000_1000), (GIB << 10, 0)] {
        let (made, gone) = registered(far, Region { len, ..region }, start);
        let parts = usize::try_from(len.div_ceil(mkey::MAX_SPAN)).unwrap();
        assert_eq!((made.len(), gone), (parts + 1, parts + 1));
        let (below, over) = made.split_at(parts);
        let over = &over[0];
        assert_eq!((over.wide(0x20), over.wide(0x28)), (start, len));
        let listed = parts.next_multiple_of(4);
        assert_eq!(over.input.len(), 0x110 + 16 * listed);
        assert_eq!(
            (over.word(0x44), over.word(0x60)),
            (u32::try_from(listed).unwrap(), u32::try_from(listed).unwrap())
        );
        let mut at = iova % (2 * GIB);
        // They are made in descending order.
        for (number, part) in below.iter().rev().enumerate() {
            let [first, second] = [0, 8].map(|half| over.wide(0x110 + 16 * number + half));
            assert_eq!((first >> 32, second), (part.wide(0x28), part.wide(0x20)));
            assert_eq!(first & 0xff, u64::from(part.word(0x14) & 0xff), "its key");
            assert_eq!(part.wide(0x20), at);
            let page = 1 << (part.word(0x48) & 0x3f);
            assert_eq!(part.wide(0x110) + part.wide(0x20) % page, iova + (at - iova % (2 * GIB)));
            assert!(part.wide(0x28) <= mkey::MAX_SPAN && part.input.len() <= 0x120);
            at += part.wide(0x28);
        }
        assert_eq!(at, iova % (2 * GIB) + len);
    }
}

/// A device that takes few entries, or a table of few keys, or a region longer than either allows.
#[test]
fn a_region_beyond_a_limit_is_refused_before_any_command() {
    let lender = Far(0x1000);
    for (log, len, kind) in [
        (4, 64 * GIB, FaultKind::Resources),
        (16, 64 * GIB, FaultKind::Resources),
        (16, mkey::MAX_REGION + 1, FaultKind::BadParameter),
    ] {
        let p = Scripted::<false>::new();
        let mut device = p.device();
        device.config.lender = Some(&lender);
        device.caps.general.set_log_max_klm_list_size(log);
        let mut hca = Mlx5::<_, 4, 4, 8>::over(device, &Config::default()).unwrap();
        let pd = hca.pd_create().unwrap();
        let before = p.of(Opcode::CreateMkey).len();
        let fault = hca.mr_create(pd, Region { addr: 0x2000, len }, RIGHTS).unwrap_err();
        assert_eq!(fault.kind, kind, "{fault}");
        assert!(log != 4 || (fault.object, fault.number) == ("memory keys", 33), "{fault}");
        assert_eq!(p.of(Opcode::CreateMkey).len(), before);
    }
}

/// An arena of single pages, `len` bytes of it from 1 MiB on, and `left` bytes to be had.
fn scattered(len: usize, left: usize) -> (Scripted<false>, Region) {
    const FIRST: usize = 1 << 20;
    let p = Scripted::<false>::sized(FIRST + len + left);
    let page = |at: usize| (FIRST + at, 0x40_0000_0000 + 2 * (len - at) as u64);
    let end = FIRST + len;
    let runs = (0..len).step_by(4096).map(page);
    let straight = |at: usize| (at, crate::data::scripted::ARENA_IOVA + at as u64);
    *p.runs.borrow_mut() = [straight(0)].into_iter().chain(runs).chain([straight(end)]).collect();
    (p, Region { addr: ARENA_ADDR + FIRST as u64, len: len as u64 })
}

#[test]
fn a_long_list_of_pages_is_one_message() {
    let (p, region) = scattered(40 << 20, 4096);
    let mut hca = open(&p);
    let pd = hca.pd_create().unwrap();
    let (before, held) = (p.of(Opcode::CreateMkey).len(), p.held());
    let mr = hca.mr_create(pd, region, RIGHTS).unwrap();
    assert_eq!(p.held(), held, "the mailboxes are the arena's again");
    let made = p.of(Opcode::CreateMkey)[before..].to_vec();
    assert_eq!(made.len(), 1);
    let pages = (40 << 20) / 4096;
    assert_eq!(made[0].input.len(), 0x110 + 8 * pages);
    assert_eq!((made[0].word(0x44), made[0].word(0x60)), (5120, 5120));
    assert_eq!((made[0].word(0x10), made[0].word(0x48) & 0x3f), (0x1500, 12));
    for page in 0..pages {
        let golden = 0x40_0000_0000 + 2 * ((40 << 20) - 4096 * page as u64);
        assert_eq!(made[0].wide(0x110 + 8 * page), golden);
    }
    hca.mr_destroy(mr).unwrap();
    // A refusal leaves nothing behind either.
    p.refuse(Opcode::CreateMkey, 6, 0);
    assert_eq!(hca.mr_create(pd, region, RIGHTS).unwrap_err().status, 6);
    assert_eq!((p.held(), hca.keys.room()), (held, 8));
}

#[test]
fn where_there_is_little_memory_lists_are_shorter() {
    // 10,240 pages are a message of 161 blocks.
    for (left, lists) in [(164, 1), (100, 3), (60, 5), (30, 6)] {
        let (p, region) = scattered(40 << 20, left << 10);
        let mut hca = open(&p);
        let pd = hca.pd_create().unwrap();
        // All but the end of the arena is somebody's.
        p.alloc((41 << 20) - p.next.get(), 64, Reach::Read).unwrap();
        let before = p.of(Opcode::CreateMkey).len();
        hca.mr_create(pd, region, RIGHTS).unwrap();
        let made = p.of(Opcode::CreateMkey)[before..].to_vec();
        assert_eq!(made.len(), if lists == 1 { 1 } else { lists + 1 }, "{left} KiB");
        let listed: u64 =
            made.iter().rev().skip(usize::from(lists > 1)).map(|c| c.wide(0x28)).sum();
        assert_eq!(listed, region.len);
    }
}

#[test]
fn a_region_of_pages_has_just_those() {
    let p = Scripted::<false>::sized(4 << 20);
    let mut hca = open(&p);
    let pd = hca.pd_create().unwrap();
    let page = crate::data::scripted::ARENA_IOVA;
    let map = |hca: &mut Hca<'_, false>, pages: &[u64], len| {
        hca.mr_map(pd, Backing::Pages { pages, log_page: 12, len }, 0x40, Access::LOCAL_READ)
    };
    let before = p.of(Opcode::CreateMkey).len();
    let fault = map(&mut hca, &[page, page - 4096], 8192).unwrap_err();
    assert_eq!(fault.kind, FaultKind::BadParameter, "outside the arena");
    let many = std::vec![page; mkey::LONGEST_LIST + 1];
    let held = p.held();
    for (pages, len) in [(&many[..], 8192), (&many[..2], mkey::MAX_REGION + 1)] {
        assert_eq!(map(&mut hca, pages, len).unwrap_err().kind, FaultKind::Resources);
    }
    assert_eq!(p.of(Opcode::CreateMkey).len(), before);
    for (pages, len) in [(&many[1..], 8192), (&many[..2], mkey::MAX_REGION)] {
        map(&mut hca, pages, len).unwrap();
        assert_eq!(p.of(Opcode::CreateMkey).pop().unwrap().input.len(), 0x110 + 8 * pages.len());
    }
    assert_eq!(p.held(), held);
    let made = p.of(Opcode::CreateMkey).pop().unwrap();
    assert_eq!((made.wide(0x20), made.wide(0x28)), (0x40, mkey::MAX_REGION));
    assert_eq!((made.wide(0x110), made.wide(0x118)), (page, page));
}

#[test]
fn a_fast_registration_s_list_is_written_where_its_key_reads_it() {
    let p = Scripted::<false>::new();
    let mut hca = open(&p);
    let pd = hca.pd_create().unwrap();
    let held = p.held();
    let mr = hca.mr_allocate(pd, 9).unwrap();
    assert_eq!(p.held(), held + 16 * 8, "room for sixteen");
    let page = crate::data::scripted::ARENA_IOVA;
    let pages: Vec<u64> = (0..17).map(|n| page + 4096 * n).collect();
    let kept = hca.mr_pages(mr, &pages[..16], 12).unwrap();
    let kept = hca.mr_pages(mr, &pages[..9], kept.log_page).unwrap();
    assert_eq!((kept.count, kept.log_page), (9, 12));
    let at = usize::try_from(kept.addr).unwrap();
    // Each readable and writable.
    let mut golden: Vec<u8> = pages[..9].iter().flat_map(|page| (page | 3).to_be_bytes()).collect();
    golden.resize(16 * 8, 0);
    assert_eq!(p.bytes(at, 16 * 8), golden, "whole granules");
    let fault = hca.mr_pages(mr, &pages, 12).unwrap_err();
    assert_eq!((fault.kind, fault.number), (FaultKind::BadParameter, mr.lkey));
    assert!(hca.mr_pages(mr, &[page - 4096], 12).is_err());
    // The key by which the device reads it goes with the region, or is not left behind.
    let made = p.of(Opcode::CreateMkey).len();
    hca.mr_destroy(mr).unwrap();
    assert_eq!((p.of(Opcode::DestroyMkey).len(), p.held()), (2, held));
    p.refuse(Opcode::CreateMkey, 6, made + 1);
    assert!(hca.mr_allocate(pd, 9).is_err());
    assert_eq!((p.of(Opcode::DestroyMkey).len(), p.held()), (3, held));
    assert_eq!(hca.keys.room(), 8);
    let fault = hca.mr_allocate(pd, mkey::MAX_REGISTERED + 1).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Resources);
}

/// The key of the driver's own device addresses, for who owns all memory.
#[test]
fn a_reserved_region_is_one_key_without_translation() {
    let p = Scripted::<false>::new();
    let mut hca = open(&p);
    let pd = hca.pd_create().unwrap();
    let mr = hca.mr_reserved(pd).unwrap();
    assert_eq!(mr.lkey, mr.rkey);
    let command = p.of(Opcode::CreateMkey).pop().unwrap();
    assert_eq!((command.word(0x10), command.word(0x1c)), (0xc00, 1 << 31 | pd.0));
    assert_eq!(hca.pd_destroy(pd).unwrap_err().kind, FaultKind::BadState, "in use");
    hca.mr_destroy(mr).unwrap();
    hca.pd_destroy(pd).unwrap();
}

#[test]
fn a_window_of_type_2_comes_anew_with_another_key() {
    let p = Scripted::<false>::new();
    let mut hca = open(&p);
    let pd = hca.pd_create().unwrap();
    let old = hca.mw_create_for_qp(pd).unwrap();
    // Binds have given it another low byte since.
    let new = hca.mw_renew(Mw { rkey: old.rkey ^ 0x55 }).unwrap();
    assert_ne!(new.rkey >> 8, old.rkey >> 8);
    let made = p.of(Opcode::CreateMkey);
    assert!(made.iter().rev().take(2).all(|command| command.word(0x1c) == 1 << 24 | pd.0));
    assert_eq!(p.of(Opcode::DestroyMkey).pop().unwrap().word(8), old.rkey >> 8);
    assert!(hca.mw_destroy(old).is_err());
    // One that the device does not let go of stays, and no other is left behind.
    p.refuse(Opcode::DestroyMkey, 6, 0);
    assert_eq!(hca.mw_renew(new).unwrap_err().status, 6);
    p.refusals.borrow_mut().clear();
    hca.mw_destroy(new).unwrap();
    hca.pd_destroy(pd).unwrap();
}
