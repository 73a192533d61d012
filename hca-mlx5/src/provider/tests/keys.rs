//! Keys of regions and windows: how many there are, what each opens, and that all of them go.

use super::*;

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

#[test]
fn a_region_of_pages_has_just_those() {
    let p = Scripted::<false>::new();
    let mut hca = open(&p);
    let pd = hca.pd_create().unwrap();
    let page = crate::data::scripted::ARENA_IOVA;
    let map = |hca: &mut Hca<'_, false>, pages: &[u64], len| {
        hca.mr_map(pd, Backing::Pages { pages, log_page: 12, len }, 0x40, Access::LOCAL_READ)
    };
    let before = p.of(Opcode::CreateMkey).len();
    let fault = map(&mut hca, &[page, page - 4096], 8192).unwrap_err();
    assert_eq!(fault.kind, FaultKind::BadParameter, "outside the arena");
    let many = std::vec![page; mkey::MAX_PAGES + 1];
    for (pages, len) in [(&many[..], 8192), (&many[1..], mkey::MAX_REGION + 1)] {
        assert_eq!(map(&mut hca, pages, len).unwrap_err().kind, FaultKind::Resources);
    }
    assert_eq!(p.of(Opcode::CreateMkey).len(), before);
    for (pages, len) in [(&many[1..], 8192), (&many[..2], mkey::MAX_REGION)] {
        map(&mut hca, pages, len).unwrap();
    }
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
