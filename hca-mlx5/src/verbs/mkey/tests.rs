//! Commands of memory keys and memory windows.
#![expect(clippy::cast_possible_truncation, reason = "the numbers are small")]

use dat_core::provider::{Access, FaultKind, Random, Region};

use crate::device::cmd::mailbox::Tail;
use crate::device::page_list::Place;
use crate::platform::Lend;

use crate::data::scripted::{ARENA_ADDR, ARENA_IOVA, ARENA_LEN, ENTROPY, NOWHERE, Scripted};
use crate::prm::cmd::Opcode;
use crate::prm::mkey::Mkey;
use crate::verbs::{mkey, window};

#[test]
fn region_command() {
    let p = Scripted::<false>::new();
    let mut device = p.device();
    let byte = Random::new(ENTROPY).next_byte();
    let region = Region { addr: ARENA_ADDR + 0x1234, len: 0x100 };
    let access = Access::LOCAL_READ | Access::REMOTE_WRITE | Access::LOCAL_WRITE;
    let key = mkey::create(&mut device, 0x77, region, region.addr, access).unwrap();
    assert_eq!(key.0 & 0xff, byte.into(), "the low byte is random");
    let command = p.of(Opcode::CreateMkey).remove(0);
    assert_eq!(command.input.len(), 0x110 + 16);
    assert_eq!(command.word(0x10), 0x0000_2d00, "rw lw lr, MTT");
    assert_eq!(command.word(0x14), 0xffff_ff00 | u32::from(byte));
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
        (Access::REMOTE_ATOMIC, 1 << 14),
    ];
    let region = Region { addr: ARENA_ADDR, len: 64 };
    for set in 0..32_usize {
        let chosen = bits.iter().enumerate().filter(|(i, _)| set >> i & 1 == 1).map(|(_, b)| b);
        let access: Access = chosen.clone().map(|b| b.0).collect();
        mkey::create(&mut device, 1, region, region.addr, access).unwrap();
        let command = p.of(Opcode::CreateMkey).pop().unwrap();
        assert_eq!(command.word(0x10) & 0x7c00, chosen.map(|b| b.1).sum::<u32>());
    }
}

/// Only what the device can, and only where it was asked for; never of a fast registration.
#[test]
fn a_relaxed_order_is_for_devices_that_have_it() {
    let p = Scripted::<false>::new();
    let mut device = p.device();
    let region = Region { addr: ARENA_ADDR, len: 64 };
    let rights = Access::LOCAL_READ | Access::LOCAL_WRITE;
    for caps in 0..8_u32 {
        let general = &mut device.caps.general;
        general.set_relaxed_ordering_write(caps & 1 != 0);
        general.set_relaxed_ordering_read(caps & 2 != 0);
        general.set_relaxed_ordering_read_pci_enabled(caps & 4 != 0);
        for asked in [false, true] {
            let access = if asked { rights | Access::RELAXED_ORDERING } else { rights };
            mkey::create(&mut device, 1, region, region.addr, access).unwrap();
            let command = p.of(Opcode::CreateMkey).pop().unwrap();
            let write = command.bits(0x10, 18, 18) != 0;
            let read = command.bits(0x48, 6, 6) != 0;
            assert_eq!((write, read), (asked && caps & 1 != 0, asked && caps & 6 != 0), "{caps}");
        }
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
        let region = Region { addr, len };
        let fault = mkey::create(&mut device, 1, region, addr, Access::all()).unwrap_err();
        assert_eq!((fault.kind, fault.operation), (FaultKind::BadParameter, "CREATE_MKEY"));
    }
    assert!(p.of(Opcode::CreateMkey).is_empty());
    let whole = Region { addr: ARENA_ADDR, len: ARENA_LEN as u64 };
    mkey::create(&mut device, 1, whole, 0, Access::all()).unwrap();
}

/// A host that has lent all but the last byte of its address space, and sees it at half of it, but
/// for one page.
struct Lender;

impl Lend for Lender {
    fn lent(&self, region: Region) -> Option<u64> {
        let end = region.addr.checked_add(region.len)?;
        let iova = if region.addr == 0x9000 { u64::MAX - 10 } else { region.addr / 2 };
        (end < u64::MAX).then_some(iova)
    }
    fn write(&self, _: u64, _: &[u8]) -> bool {
        false
    }
    fn shared(&self, _: &[u8; 40]) -> Option<Region> {
        None
    }
}

#[test]
fn what_was_lent_can_be_registered_too() {
    let p = Scripted::<false>::new();
    let mut device = p.device();
    device.config.lender = Some(&Lender);
    let at = |addr, len| mkey::place(&device, Region { addr, len });
    for len in [1, mkey::MAX_REGION] {
        let lent = Place::Lent { iova: 0x4000, len: len as usize };
        assert_eq!(at(0x8000, len), Ok(lent));
    }
    assert!(at(0x8000, mkey::MAX_REGION + 1).is_err());
    assert!(at(u64::MAX - 1, 1).is_err(), "not lent");
    assert!(at(0x9000, 8).is_ok() && at(0x9000, 11).is_err(), "beyond the last address");
    // What is both is of the arena.
    assert!(matches!(at(ARENA_ADDR, 64), Ok(Place::Arena(_))));
    mkey::create(&mut device, 7, Region { addr: 0x8000, len: 4096 }, 0x8000, Access::LOCAL_READ)
        .unwrap();
    assert_eq!(p.of(Opcode::CreateMkey)[0].wide(0x110), 0x4000);
}

#[test]
fn a_key_that_the_device_keeps_is_named() {
    let p = Scripted::<false>::new();
    let mut device = p.device();
    let region = Region { addr: ARENA_ADDR, len: 64 };
    let key = mkey::create(&mut device, 1, region, 0, Access::all()).unwrap();
    p.refuse(Opcode::DestroyMkey, 6, 0);
    p.refuse(Opcode::CreateMkey, 6, 0);
    let fault = mkey::destroy(&mut device, key).unwrap_err();
    assert_eq!((fault.object, fault.number), ("MKEY", key.index()));
    let fault = mkey::create(&mut device, 1, region, 0, Access::all()).unwrap_err();
    assert_eq!((fault.operation, fault.number), ("CREATE_MKEY", 0));
}

#[test]
fn a_key_over_pages_has_them_in_order() {
    let p = Scripted::<false>::new();
    let mut device = p.device();
    let wanted = mkey::Wanted { pd: 0x77, start: 0x10, len: 0x2100, access: Access::LOCAL_READ };
    for count in [1, 2, 3_u64] {
        let pages: std::vec::Vec<u64> = (1..=count).map(|n| n << 40).collect();
        mkey::over_pages(&mut device, &wanted, &pages, 16).unwrap();
        let command = p.of(Opcode::CreateMkey).pop().unwrap();
        let octowords = (count as u32).div_ceil(2);
        assert_eq!(command.input.len(), 0x110 + 16 * octowords as usize);
        assert_eq!((command.word(0x44), command.word(0x60)), (octowords, octowords));
        assert_eq!((command.word(0x1c), command.word(0x48) & 0x3f), (0x77, 16));
        assert_eq!((command.wide(0x20), command.wide(0x28)), (0x10, 0x2100));
        for (n, page) in pages.iter().enumerate() {
            assert_eq!(command.wide(0x110 + 8 * n), *page);
        }
        if count & 1 == 1 {
            assert_eq!(command.wide(0x110 + 8 * pages.len()), 0, "padded");
        }
    }
}

#[test]
fn window_command() {
    let p = Scripted::<false>::new();
    let mut device = p.device();
    let byte = Random::new(ENTROPY).next_byte();
    let key = window::create(&mut device, 0x77, false).unwrap();
    assert_eq!(key.0 & 0xff, byte.into());
    let command = p.of(Opcode::CreateMkey).remove(0);
    assert_eq!(command.input.len(), 0x110);
    assert_eq!(command.word(0x10), 0x4000_8600, "free, umr_en, lr, KLM");
    assert_eq!(command.word(0x14), 0xffff_ff00 | u32::from(byte));
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
    assert_eq!((command.wide(0x20), command.wide(0x28)), (0, 0), "nothing yet");
}

#[test]
fn a_key_over_keys_is_of_klm_translation() {
    /// As many entries.
    struct Entries(usize);
    impl Tail for Entries {
        fn len(&self) -> usize {
            16 * self.0
        }
        fn write(&self, at: usize, to: &mut [u8]) {
            let left = 16 * self.0 - at;
            to[..left].fill(0xab);
        }
    }
    let p = Scripted::<false>::new();
    let mut device = p.device();
    let wanted = mkey::Wanted {
        pd: 0x77,
        start: 0,
        len: 0x5000,
        access: Access::LOCAL_READ | Access::LOCAL_WRITE | Access::REMOTE_WRITE,
    };
    let beneath = Access::LOCAL_READ | Access::LOCAL_WRITE;
    assert_eq!(wanted.beneath(), beneath, "nothing remote below");
    mkey::over_keys(&mut device, &wanted, &Entries(8)).unwrap();
    let command = p.of(Opcode::CreateMkey).remove(0);
    assert_eq!(command.input.len(), 0x110 + 8 * 16);
    assert_eq!(command.word(0x10), 0x0000_2e00, "rw lw lr, KLM");
    assert_eq!((command.word(0x44), command.word(0x60)), (8, 8));
    assert_eq!((command.wide(0x20), command.wide(0x28)), (0, 0x5000), "zero-based");
    assert_eq!(command.input[0x100..0x110], [0; 16]);
    assert_eq!(command.input[0x110..], [0xab; 128]);
}

#[test]
fn the_longest_region_is_the_device_s() {
    let p = Scripted::<false>::new();
    let mut device = p.device();
    for (said, most) in [(0, 40), (31, 31), (39, 39), (41, 40), (64, 40), (127, 40)] {
        device.caps.general.set_log_max_mrw_sz(said);
        assert_eq!(mkey::max_region(device.caps()), 1 << most, "{said}");
    }
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
    // In whichever run of the arena.
    *p.runs.borrow_mut() = [(0, 0x10_0000), (0x2000, 0x80_0000), (0x3000, 0x40_0000)].to_vec();
    assert!(mkey::owns(&p, &[0x10_1000, 0x80_0000, 0x40_0000], 12));
    assert!(!mkey::owns(&p, &[0x80_1000], 12));
    assert!(mkey::owns(&p, &[0x10_0000], 13) && !mkey::owns(&p, &[0x80_0000], 13));
    // Behind what the device does not see there is nothing.
    *p.runs.borrow_mut() = [(0, 0x10_0000), (0x1000, NOWHERE)].to_vec();
    assert!(mkey::owns(&p, &[0x10_0000], 12) && !mkey::owns(&p, &[0x10_1000], 12));
}

#[test]
fn physical_key_command() {
    let p = Scripted::<false>::new();
    let mut device = p.device();
    mkey::physical(&mut device, 0x77).unwrap();
    let command = p.of(Opcode::CreateMkey).remove(0);
    assert_eq!(command.word(0x10), 0x0000_0c00, "lw lr, no translation, nothing remote");
    assert_eq!(command.word(0x1c), 0x8000_0077, "length64");
    assert_eq!(command.word(0x14) >> 8, 0x00ff_ffff, "of any queue pair");
}

#[test]
fn keys_are_index_and_variant() {
    let key = Mkey::new(0x00ab_cdef, 0x42);
    assert_eq!((key.0, key.index()), (0xabcd_ef42, 0x00ab_cdef));
}

/// A device that gives the indexes of destroyed keys out again, with an order of low bytes in which
/// one follows the other.
fn reusing(p: &Scripted<false>) -> crate::device::Device<'_, Scripted<false>> {
    let device = p.device();
    let mut byte = 0_u8;
    device.key_rest.order.fill(|| {
        byte = byte.wrapping_add(1);
        byte
    });
    device
}

#[test]
fn an_index_that_comes_again_has_the_next_key() {
    let p = Scripted::<false>::new();
    let mut device = reusing(&p);
    let make = |device: &mut _| mkey::physical(device, 1).unwrap();
    p.given.borrow_mut().extend([0x60; 3]);
    let mut key = make(&mut device);
    for tries in [2, 1] {
        mkey::destroy(&mut device, key).unwrap();
        p.commands.borrow_mut().clear();
        let next = make(&mut device);
        assert_eq!((next.index(), next.0), (0x60, device.key_rest.order.after(key.0)));
        // The first guess was none; what came of it was destroyed, unused.
        assert_eq!(
            (p.of(Opcode::CreateMkey).len(), p.of(Opcode::DestroyMkey).len()),
            (tries, tries - 1)
        );
        p.given.borrow_mut().extend([0x60; 2]);
        p.given.borrow_mut().truncate(1);
        key = next;
    }
}

#[test]
fn a_firmware_without_an_order_gets_any_key_after_four_tries() {
    let p = Scripted::<false>::new();
    let mut device = reusing(&p);
    p.given.borrow_mut().extend([0x61, 0x62, 0x63, 0x64]);
    let keys = [(); 4].map(|()| mkey::physical(&mut device, 1).unwrap());
    for key in keys {
        mkey::destroy(&mut device, key).unwrap();
    }
    p.commands.borrow_mut().clear();
    // Each time another one than the last that was guessed.
    p.given.borrow_mut().extend([0x62, 0x61, 0x64, 0x63, 0x65]);
    assert_eq!(mkey::physical(&mut device, 1).unwrap().index(), 0x63);
    assert_eq!((p.of(Opcode::CreateMkey).len(), p.of(Opcode::DestroyMkey).len()), (4, 3));
    let destroyed = p.of(Opcode::DestroyMkey);
    assert!(destroyed.iter().map(|command| command.word(8)).eq([0x62, 0x61, 0x64]));
}
