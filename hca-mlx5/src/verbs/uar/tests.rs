//! Registers of queue pairs: one each where whole blocks are written, one for all elsewhere.

use dat_core::provider::FaultKind;
use std::vec::Vec;

use super::*;
use crate::data::scripted::{Scripted, UAR};
use crate::platform::Blocks;
use crate::prm::cmd::Opcode;

const SHARED: (Uar, Doorbell, Option<Register>) = (
    Uar { number: 2, offset: UAR },
    Doorbell { register: UAR + 0x800, half: 0, blocks: Blocks::Combined },
    None,
);

#[test]
fn each_queue_pair_has_a_register_of_four_in_a_page() {
    let p = Scripted::<true>::new();
    let mut device = p.device();
    let mut doorbells = Doorbells::default();
    let mut registers = Vec::new();
    for n in 0..6 {
        let (uar, doorbell, register) = doorbells.take(&mut device).unwrap();
        let at = doorbell.register - uar.offset;
        assert_eq!((at, doorbell.half), (0x800 + 0x200 * (n % 4), 0x100));
        assert_eq!(doorbell.blocks, Blocks::Combined);
        assert_eq!(p.of(Opcode::AllocUar).len(), 1 + n / 4);
        assert_ne!(uar, device.uar());
        registers.push((uar, doorbell, register));
    }
    // What comes back is given out again, before any page is taken.
    for given in [4, 1] {
        doorbells.give(registers[given].2);
    }
    assert_eq!(doorbells.take(&mut device).unwrap(), registers[1]);
    assert_eq!(doorbells.take(&mut device).unwrap(), registers[4]);
    doorbells.give(None);
    assert_eq!(p.of(Opcode::AllocUar).len(), 2);
    doorbells.close(&mut device);
    let freed: Vec<u32> = p.of(Opcode::DeallocUar).iter().map(|c| c.word(8)).collect();
    assert_eq!(freed, [registers[4].0.number, registers[0].0.number]);
}

#[test]
fn registers_of_other_sizes_are_four_at_most() {
    for (log_size, registers) in [(7, 4), (8, 4), (9, 4), (10, 2), (11, 1)] {
        let p = Scripted::<true>::new();
        let mut device = p.device();
        device.caps.general.set_log_bf_reg_size(log_size);
        let mut doorbells = Doorbells::default();
        let size = 1 << log_size;
        for n in 0..registers {
            let (uar, doorbell, _) = doorbells.take(&mut device).unwrap();
            assert_eq!(doorbell.register, uar.offset + 0x800 + size * n);
            assert_eq!((doorbell.half, p.of(Opcode::AllocUar).len()), (size / 2, 1));
        }
        doorbells.take(&mut device).unwrap();
        assert_eq!(p.of(Opcode::AllocUar).len(), 2);
    }
}

#[test]
fn without_blueflame_all_share_the_driver_s_register() {
    let take = |edit: fn(&mut Device<'_, Scripted<true>>)| {
        let p = Scripted::<true>::new();
        let mut device = p.device();
        edit(&mut device);
        let taken = Doorbells::default().take(&mut device).unwrap();
        assert!(p.of(Opcode::AllocUar).is_empty());
        taken
    };
    assert_eq!(take(|device| device.caps.general.set_bf(false)), SHARED);
    assert_eq!(take(|device| device.caps.general.set_log_bf_reg_size(6)), SHARED);
    assert_eq!(take(|device| device.caps.general.set_log_bf_reg_size(12)), SHARED);
    let (uar, doorbell, register) = take(|device| device.config.blocks = Blocks::Words);
    assert_eq!((uar, register), (SHARED.0, None));
    assert_eq!(doorbell, Doorbell { blocks: Blocks::Words, ..SHARED.1 });
}

#[test]
fn a_device_without_more_pages_shares_its_register() {
    let p = Scripted::<true>::new();
    let mut device = p.device();
    let mut doorbells = Doorbells::default();
    for _ in 0..4 {
        assert!(doorbells.take(&mut device).unwrap().2.is_some());
    }
    p.refuse(Opcode::AllocUar, 8, 0);
    assert_eq!(doorbells.take(&mut device).unwrap(), SHARED);
    // A device that is lost has no register at all.
    device.queue.kill(dat_core::fault!(Gone, "test", "pulled"));
    assert_eq!(doorbells.take(&mut device).unwrap_err().kind, FaultKind::Gone);
}

#[test]
fn so_many_pages_are_taken_and_no_more() {
    let p = Scripted::<true>::new();
    let mut device = p.device();
    device.caps.general.set_log_bf_reg_size(11);
    let mut doorbells = Doorbells::default();
    for _ in 0..PAGES {
        assert!(doorbells.take(&mut device).unwrap().2.is_some());
    }
    assert_eq!(doorbells.take(&mut device).unwrap(), SHARED);
    assert_eq!(p.of(Opcode::AllocUar).len(), PAGES);
}
