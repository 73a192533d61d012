//! Transport of commands: entries, mailboxes, slots, latency, events.

use crate::rig::{CMD, CMDQ, IN_BOXES, OUT_BOXES, Rig, cmd, quick};
use mlx5_model::Config;
use proptest::prelude::*;

/// Delivery status of a capability query after `change` spoiled something.
fn spoiled(change: impl Fn(&mut Rig)) -> u8 {
    let mut rig = Rig::quick();
    rig.enable();
    let set = cmd(0x109, 0, 4112);
    rig.post(0, &set, 4112);
    change(&mut rig);
    rig.ring(1);
    assert!(rig.wait(0, 1_000_000_000));
    rig.answer(0, 16).delivery
}

#[test]
fn delivery_statuses() {
    assert_eq!(spoiled(|_| ()), 0);
    assert_eq!(spoiled(|rig| rig.poke(0, 0x3c, 99)), 2, "token of the entry");
    assert_eq!(spoiled(|rig| rig.ram.put(IN_BOXES + 1024 + 0x23d, &[0])), 2, "token of a block");
    assert_eq!(spoiled(|rig| rig.ram.put(OUT_BOXES + 0x23d, &[0])), 2, "token of an output block");
    assert_eq!(spoiled(|rig| rig.ram.put(IN_BOXES + 1024 + 0x23b, &[7])), 3, "block number");
    assert_eq!(spoiled(|rig| rig.poke(0, 0x0e, 2)), 5, "input mailbox at 512");
    assert_eq!(spoiled(|rig| rig.poke(0, 0x36, 2)), 4, "output mailbox at 512");
    assert_eq!(spoiled(|rig| rig.ram.put(CMDQ + 8, &[0; 8])), 5, "no input mailbox");
    assert_eq!(spoiled(|rig| rig.ram.put(IN_BOXES + 0x230, &[0; 8])), 5, "chain too short");
    assert_eq!(spoiled(|rig| rig.ram.put(CMDQ + 4, &[0, 0, 0, 4])), 7, "input length");
    assert_eq!(spoiled(|rig| rig.ram.put(CMDQ + 4, &[0xff; 4])), 7, "absurd input length");
    assert_eq!(spoiled(|rig| rig.ram.put(CMDQ + 0x38, &[0, 0, 0, 4])), 8, "output length");
    assert_eq!(spoiled(|rig| rig.poke(0, 0, 6)), 0x10, "type");
}

#[test]
fn blocks_packed_at_their_own_size_are_refused() {
    let at = (IN_BOXES + 0x240).to_be_bytes();
    assert_eq!(spoiled(|rig| rig.ram.put(IN_BOXES + 0x230, &at)), 5);
}

#[test]
fn signatures_do_not_matter_until_asked_for() {
    assert_eq!(spoiled(|rig| rig.poke(0, 0x3d, 0x5a)), 0);
    let mut rig = Rig::quick();
    rig.enable();
    let mut set = cmd(0x109, 0, 4112);
    let current = rig.ok(&cmd(0x100, 1, 16), 4112).out;
    set[16..].copy_from_slice(&current[16..]);
    set[16 + 0x42] |= 0xc0;
    rig.ok(&set, 16);
    assert_eq!(rig.exec(&cmd(0x80d, 0, 16), 16).delivery, 1);
    rig.post(0, &cmd(0x80d, 0, 16), 16);
    let mut entry = [0; 64];
    rig.ram.get(CMDQ, &mut entry);
    rig.poke(0, 0x3d, !entry.iter().fold(0, |acc, byte| acc ^ byte));
    rig.ring(1);
    rig.wait(0, 1_000_000_000);
    assert_eq!(rig.answer(0, 16).delivery, 0);
}

#[test]
fn token_zero_and_spare_length_are_fine() {
    let mut rig = Rig::quick();
    rig.enable();
    rig.token = 255;
    rig.post(0, &cmd(0x107, 1, 2000), 2000);
    rig.ring(1);
    rig.wait(0, 1_000_000_000);
    assert_eq!(rig.answer(0, 16).delivery, 0);
    rig.post(0, &cmd(0x107, 1, 16), 16);
    rig.poke(0, 0x3c, 0);
    rig.ring(1);
    rig.wait(0, 1_000_000_000);
    assert_eq!(rig.answer(0, 16).delivery, 0);
    assert_eq!(rig.hca.complaints(), [""; 0]);
}

#[test]
fn short_output_is_cut_and_complained_of() {
    let mut rig = Rig::quick();
    rig.enable();
    let answer = rig.ok(&cmd(0x100, 1, 16), 16 + 512);
    assert_eq!(answer.out.len(), 528);
    assert!(rig.complained_of("QUERY_HCA_CAP: output of 528 bytes"));
}

#[test]
fn unknown_opcode_and_short_input() {
    let mut rig = Rig::quick();
    rig.enable();
    assert_eq!(rig.status(&cmd(0xdead, 0, 16), 16).0, 2);
    assert_eq!(rig.status(&cmd(0x109, 0, 64), 16).0, 0x50);
}

#[test]
fn a_command_of_a_user_context_is_refused_where_there_is_none() {
    let mut rig = Rig::quick();
    rig.enable();
    let mut input = cmd(0x107, 1, 16);
    assert_eq!(rig.status(&input, 16).0, 0);
    input[3] = 1;
    assert_eq!(rig.status(&input, 16), (3, 0x76_555f));
}

#[test]
fn slots_are_independent_and_all_bits_count() {
    let mut rig = Rig::quick();
    rig.enable();
    for slot in [1, 5, 31] {
        rig.post(slot, &cmd(0x10a, 0, 16), 112);
    }
    rig.ring(1 << 1 | 1 << 5 | 1 << 31);
    rig.step();
    for slot in [1, 5, 31] {
        assert!(!rig.owned(slot));
        assert_eq!(rig.answer(slot, 112).word(0x6c), 2);
    }
}

#[test]
fn a_slot_software_owns_is_left_alone() {
    let mut rig = Rig::quick();
    rig.enable();
    rig.post(0, &cmd(0x80d, 0, 16), 16);
    rig.poke(0, 0x3f, 0);
    let before = rig.hca.stats().dma_writes;
    rig.ring(1);
    rig.step();
    assert_eq!(rig.hca.stats().dma_writes, before);
    assert!(rig.complained_of("while software owns it"));
}

#[test]
fn ringing_a_slot_under_way_is_complained_of() {
    let mut rig = Rig::new(Config { command_latency: 1000, ..quick() });
    rig.enable();
    rig.post(0, &cmd(0x80d, 0, 16), 16);
    rig.ring(1);
    rig.step();
    rig.ring(1);
    assert!(rig.complained_of("slot 0 rung while the device owns it"));
}

#[test]
fn doorbell_before_the_page_is_ignored() {
    let mut rig = Rig::quick();
    rig.ring(u32::MAX);
    rig.step();
    assert_eq!(rig.hca.stats().dma_reads, 0);
    assert!(rig.complained_of("before the command page"));
}

/// Three commands at once, then one after the other.
#[test]
fn commands_that_begin_beside_others_are_counted() {
    let mut rig = Rig::new(Config { command_latency: 5000, ..quick() });
    rig.set_page();
    for vectors in [&[7][..], &[1, 2, 4]] {
        for slot in 0..3 {
            rig.post(slot, &cmd(0x104, 0, 16), 16);
        }
        for vector in vectors {
            rig.ring(*vector);
            rig.step();
            rig.now += 5000;
            rig.step();
        }
        assert_eq!(rig.hca.stats().commands_beside.get(&0x104), Some(&2));
    }
    assert_eq!(rig.hca.stats().commands.get(&0x104), Some(&6));
}

#[test]
fn latency_is_kept_to_the_nanosecond() {
    let mut rig = Rig::new(Config { command_latency: 5000, ..quick() });
    rig.set_page();
    rig.post(0, &cmd(0x104, 0, 16), 16);
    rig.ring(1);
    let due = rig.hca.step(rig.now);
    assert_eq!(due, Some(rig.now + 5000));
    rig.now += 4999;
    rig.step();
    assert!(rig.owned(0));
    rig.now += 1;
    rig.step();
    assert!(!rig.owned(0));
}

#[test]
fn hardware_like_slots_overtake_each_other() {
    let mut rig = Rig::new(Config { hardware_like: true, seed: 3, ..quick() });
    rig.enable();
    let mut overtaken = false;
    for _ in 0..20 {
        rig.post(0, &cmd(0x80d, 0, 16), 16);
        rig.post(1, &cmd(0x80d, 0, 16), 16);
        rig.ring(3);
        rig.wait(1, 1_000_000_000);
        overtaken |= rig.owned(0);
        rig.wait(0, 1_000_000_000);
    }
    assert!(overtaken);
}

#[test]
fn a_polled_command_still_raises_its_event_once_a_queue_wants_it() {
    let mut rig = Rig::quick();
    rig.init();
    let uar = rig.uar();
    let before = rig.hca.stats().eqes;
    rig.eq(uar, 4, CMD);
    assert_eq!(rig.hca.stats().eqes, before, "not for the CREATE_EQ itself");
    rig.post(2, &cmd(0x80d, 0, 16), 16);
    rig.ring(4);
    rig.step();
    assert!(!rig.owned(2));
    let eqe = rig.eqe(0);
    assert_eq!((eqe[1], eqe[0x3f] & 1), (0x0a, 0));
    assert_eq!(eqe[0x20..0x24], [0, 0, 0, 4], "slot bitmap");
}

#[test]
fn events_of_slots_done_together_are_one() {
    let mut rig = Rig::quick();
    rig.init();
    let uar = rig.uar();
    rig.eq(uar, 4, CMD);
    rig.post(3, &cmd(0x80d, 0, 16), 16);
    rig.post(4, &cmd(0x80d, 0, 16), 16);
    rig.ring(3 << 3);
    rig.step();
    assert_eq!(rig.eqe(0)[0x23], 3 << 3);
    assert_eq!(rig.eqe(1)[0x3f], 1, "untouched");
}

#[test]
fn commands_are_counted_by_opcode() {
    let mut rig = Rig::quick();
    rig.enable();
    rig.query_pages(1);
    rig.query_pages(2);
    assert_eq!(rig.hca.stats().commands[&0x107], 2);
    assert_eq!(rig.hca.stats().command_doorbells, 3);
}

#[test]
fn command_memory_inside_a_firmware_page_is_complained_of() {
    let mut rig = Rig::quick();
    rig.enable();
    rig.ok(&Rig::give_command(0, &[OUT_BOXES]), 16);
    rig.exec(&cmd(0x10a, 0, 16), 112);
    assert!(rig.complained_of("lies in a page given to the firmware"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Arbitrary command entries make the device neither panic nor hang.
    #[test]
    fn garbage_entries(
        entries in prop::collection::vec(any::<[u8; 32]>(), 32),
        opcodes in prop::collection::vec(0x100u16..0xb01, 32),
        op_mod in 0u8..8,
    ) {
        let mut rig = Rig::quick();
        rig.init();
        for (slot, (bytes, opcode)) in (0..).zip(entries.iter().zip(opcodes)) {
            let mut input = cmd(opcode, u16::from(op_mod), 600);
            input[8..40].copy_from_slice(bytes);
            rig.post(slot, &input, 600);
            if bytes[0] < 64 {
                rig.poke(slot, u64::from(bytes[0] % 63), bytes[1]);
            }
        }
        rig.ring(u32::MAX);
        for _ in 0..100 {
            rig.now += 1_000_000;
            rig.step();
        }
    }

    /// The same for every opcode the device knows, with random bytes throughout.
    #[test]
    fn garbage_messages(seed in any::<[u8; 32]>(), opcode in 0x100u16..0xb01) {
        let general_caps = vec![("umem_uid_0", 1)];
        let mut rig = Rig::new(Config { general_caps, ..quick() });
        rig.init();
        let mut input = cmd(opcode, u16::from(seed[0] & 7), 5000);
        for (at, byte) in input.iter_mut().enumerate().skip(8) {
            *byte = seed[at % 32].rotate_left((at / 32) as u32 % 8);
        }
        rig.exec(&input, 5000);
        let mut sparse = cmd(opcode, u16::from(seed[0] & 7), 5000);
        sparse[8..40].copy_from_slice(&seed);
        rig.exec(&sparse, 16);
    }

    /// Stores anywhere in the BAR and in configuration space.
    #[test]
    fn garbage_stores(
        stores in prop::collection::vec((0u64..0x2_0000, any::<[u8; 64]>(), 0usize..65), 64),
    ) {
        let mut rig = Rig::quick();
        rig.init();
        rig.uar();
        for (at, bytes, n) in stores {
            rig.hca.bar_write(at, &bytes[..n]);
            rig.hca.config_write((at & 0xfff) as usize, &bytes[..n.min(4)]);
            rig.enable_bus();
            rig.step();
        }
    }
}
