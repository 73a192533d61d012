//! CQE compression: the bytes of a session, what ends one, and a reader as drivers have it.

use super::super::cqe::{Cqe, CqeOpcode};
use super::super::device::Device;
use super::super::traffic::{fail_doomed, write_completions};
use super::{CQ_DBR, CQ_PAGE, Rig, cq_arm};
use crate::config::Config;
use crate::ifc::cq::cqc;
use crate::transport::host::Syndrome;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

const HASH: u32 = 0;
const CHECKSUM: u32 = 1;

fn receive(n: u16) -> Cqe {
    Cqe {
        user_index: 0x1234,
        wqe_counter: n,
        byte_cnt: 0x100 + u32::from(n),
        check_sum: 0x4000u16.wrapping_add(n),
        rss_hash: 0xabcd_0000 + u32::from(n),
        ..Cqe::new(CqeOpcode::RespSend, 0x48)
    }
}

fn post(rig: &mut Rig, cqn: u32, cqe: &Cqe) {
    Device::of(&mut rig.hca).complete(0x48, cqn, cqe);
}

fn compressed(context: &mut [u8], format: u32) {
    cqc::cqe_comp_en.set(context, 1);
    cqc::mini_cqe_res_format.set(context, format);
}

/// A device that compresses whatever it can, and a CQ of `1 << log` entries.
fn rig(log: u32, format: u32) -> (Rig, u32) {
    let mut rig = Rig::with_facts("cqe-compression=always");
    let cqn = rig.cq_with(log, |c| compressed(c, format)).unwrap();
    (rig, cqn)
}

fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Format and owner of an entry.
fn kind(rig: &mut Rig, slot: u64) -> (u8, u8) {
    let last = rig.cqe(slot)[0x3f];
    (last >> 2 & 3, last & 1)
}

#[test]
fn a_session_is_a_title_and_arrays_in_the_slots_of_its_completions() {
    for format in [HASH, CHECKSUM] {
        let (mut rig, cqn) = rig(5, format);
        (0..10).for_each(|n| post(&mut rig, cqn, &receive(n)));
        assert_eq!(rig.cqe(0)[0x3f], 0xf1, "held back");
        write_completions(&mut rig.hca);
        let title = rig.cqe(0);
        assert_eq!(title[0x3f], 0x2c, "a send, format 3, first lap");
        assert_eq!(be32(&title, 0x2c), 10, "completions in the session");
        assert_eq!(be32(&title, 0x20), 0x1234);
        assert_eq!(be32(&title, 0x38), 0x48);
        assert_eq!(title[0x3c..0x3e], [0, 0], "the first one's counter");
        let arrays = [rig.cqe(1), rig.cqe(8)].concat();
        for (n, mini) in (0..10).zip(arrays.chunks(8)) {
            let head = if format == HASH { 0xabcd_0000 + n } else { (0x4000 + n) << 16 };
            let head = if format == HASH { head } else { head | be32(mini, 0) & 0xffff };
            assert_eq!([be32(mini, 0), be32(mini, 4)], [head, 0x100 + n], "{n}");
        }
        for hole in [2, 3, 4, 5, 6, 7, 9, 10] {
            assert_eq!(rig.cqe(hole), [0xf1; 64], "slot {hole} is not written");
        }
        post(&mut rig, cqn, &receive(10));
        write_completions(&mut rig.hca);
        let next = rig.cqe(10);
        assert_eq!((next[0x3f], next[0x3d]), (0x20, 10), "one alone is not compressed");
        assert_eq!(rig.hca.stats().cqes_compressed, 10);
        assert_eq!(rig.hca.stats().cqes, 11);
    }
}

#[test]
fn a_session_goes_round_the_end_of_the_ring() {
    let (mut rig, cqn) = rig(4, CHECKSUM);
    for n in 0..13 {
        post(&mut rig, cqn, &Cqe { opcode: CqeOpcode::Requester, ..receive(n) });
    }
    rig.poke32(CQ_DBR, 13);
    (0..12).for_each(|n| post(&mut rig, cqn, &receive(n)));
    write_completions(&mut rig.hca);
    assert_eq!(kind(&mut rig, 13), (3, 0), "the title is of the first lap");
    assert_eq!(be32(&rig.cqe(14), 4), 0x100);
    let second = rig.cqe(5);
    assert_eq!([be32(&second, 4), be32(&second, 12)], [0x108, 0x109], "slot 21 of 16");
    assert_eq!(second[0x3f] & 1, 0, "what is left of an array looks like the lap after its own");
    post(&mut rig, cqn, &Cqe { opcode: CqeOpcode::Requester, ..receive(0) });
    assert_eq!(kind(&mut rig, 9), (0, 1), "the next entry is of the second lap");
}

#[test]
fn a_slot_that_is_not_written_looks_valid_in_the_next_lap() {
    let (mut rig, cqn) = rig(3, CHECKSUM);
    for n in 0..8 {
        post(&mut rig, cqn, &Cqe { opcode: CqeOpcode::Requester, ..receive(n) });
    }
    rig.poke32(CQ_DBR, 8);
    (0..8).for_each(|n| post(&mut rig, cqn, &receive(n)));
    write_completions(&mut rig.hca);
    // Of the third lap, whose owner bit is 0, nothing is written yet.
    for hole in 2..8 {
        assert_eq!(kind(&mut rig, hole), (0, 0), "slot {hole}");
    }
}

#[test]
fn an_unlike_completion_ends_a_session() {
    let like = receive(3);
    let unlike = [
        Cqe { opcode: CqeOpcode::Requester, ..like },
        Cqe { opcode: CqeOpcode::RespSendImm, ..like },
        Cqe { immediate: 1, ..like },
        Cqe { user_index: 1, ..like },
        Cqe { flags_rqpn: 1, ..like },
        Cqe { hds_ip_ext: 1, ..like },
        Cqe { l4_l3_hdr_type: 1, ..like },
        Cqe { vlan: 1, ..like },
        Cqe { solicited: true, ..like },
        Cqe { wqe_counter: 4, ..like },
        Cqe { opcode: CqeOpcode::ResponderError, error: Some(Syndrome::Flushed), ..like },
    ];
    for other in unlike {
        let (mut rig, cqn) = rig(4, CHECKSUM);
        (0..3).for_each(|n| post(&mut rig, cqn, &receive(n)));
        post(&mut rig, cqn, &other);
        assert_eq!(kind(&mut rig, 0), (3, 0), "{other:?}");
        assert_eq!(be32(&rig.cqe(0), 0x2c), 3);
        write_completions(&mut rig.hca);
        let entry = rig.cqe(3);
        assert_eq!(entry[0x3f] >> 4, other.opcode as u8);
        assert_eq!(entry[0x3d], other.wqe_counter as u8);
    }
    // The time, and what the format has instead of the other, are lost.
    let (mut rig, cqn) = rig(4, HASH);
    post(&mut rig, cqn, &receive(0));
    post(&mut rig, cqn, &Cqe { timestamp: 99, check_sum: 1, rss_hash: 2, ..receive(1) });
    write_completions(&mut rig.hca);
    assert_eq!(be32(&rig.cqe(0), 0x2c), 2);
}

#[test]
fn queues_do_not_mix() {
    let (mut rig, cqn) = rig(4, HASH);
    Device::of(&mut rig.hca).complete(1, cqn, &receive(0));
    Device::of(&mut rig.hca).complete(2, cqn, &receive(1));
    write_completions(&mut rig.hca);
    assert_eq!([kind(&mut rig, 0), kind(&mut rig, 1)], [(0, 0); 2]);
}

#[test]
fn number_and_time_end_a_session() {
    let (mut rig, cqn) = rig(5, HASH);
    (0..16).for_each(|n| post(&mut rig, cqn, &receive(n)));
    assert_eq!(be32(&rig.cqe(0), 0x2c), 16, "cqe_compression_max_num");
    post(&mut rig, cqn, &receive(16));
    post(&mut rig, cqn, &receive(17));
    assert_eq!(rig.hca.step(100), Some(8000), "cqe_compression_timeout");
    assert_eq!(kind(&mut rig, 16), (0, 1), "not yet");
    rig.hca.step(8000);
    assert_eq!(kind(&mut rig, 16), (3, 0));
}

#[test]
fn an_arm_ends_a_session_and_an_armed_queue_begins_none_that_lasts() {
    let (mut rig, cqn) = rig(4, HASH);
    let uar = rig.uar;
    (0..3).for_each(|n| post(&mut rig, cqn, &receive(n)));
    rig.poke32(CQ_DBR + 4, 0);
    cq_arm(&mut rig.hca, uar, 0, cqn);
    assert_eq!(kind(&mut rig, 0), (3, 0));
    assert_eq!(rig.events(), [0]);
    rig.poke32(CQ_DBR + 4, 1 << 28 | 3);
    cq_arm(&mut rig.hca, uar, 1 << 28 | 3, cqn);
    post(&mut rig, cqn, &receive(3));
    assert_eq!(kind(&mut rig, 3), (0, 0), "written with its event");
    assert_eq!(rig.events(), [0, 0]);
}

#[test]
fn a_full_ring_ends_a_session_before_it_is_an_overrun() {
    let (mut rig, cqn) = rig(2, HASH);
    (0..5).for_each(|n| post(&mut rig, cqn, &receive(n)));
    fail_doomed(&mut rig.hca);
    assert_eq!(be32(&rig.cqe(0), 0x2c), 4);
    assert_eq!(rig.events(), [4], "CQ error");
}

#[test]
fn contexts_that_cannot_be() {
    type Edit = fn(&mut [u8]);
    let refused: [Edit; 7] = [
        |c| cqc::mini_cqe_res_format.set(c, 1),
        |c| cqc::cqe_compression_layout.set(c, 1),
        |c| compressed(c, 2),
        |c| compressed(c, 3),
        |c| {
            compressed(c, 0);
            cqc::cqe_sz.set(c, 1);
        },
        |c| {
            compressed(c, 0);
            cqc::cc.set(c, 1);
        },
        |c| {
            compressed(c, 0);
            cqc::cqe_compression_layout.set(c, 1);
        },
    ];
    for edit in refused {
        assert_eq!(Rig::new().cq_with(3, edit).unwrap_err().status, 3);
    }
    let general_caps = vec![("cqe_compression", 0)];
    let mut old = Rig::with(Config { general_caps, ..Config::default() });
    assert_eq!(old.cq_with(3, |c| compressed(c, 0)).unwrap_err().status, 3);
}

/// Reads a ring as stock drivers do: whole sessions, whose slots it then gives the owner bit of
/// their lap.
fn consume(rig: &mut Rig, log: u32, index: &mut u32) -> Vec<(u16, u32)> {
    let mut got = Vec::new();
    let slot = |index: u32| u64::from(index % (1 << log));
    let owner = |index: u32| (index >> log & 1) as u8;
    loop {
        let entry = rig.cqe(slot(*index));
        let last = entry[0x3f];
        if last & 1 != owner(*index) || last >> 4 == 15 {
            break;
        }
        let counter = u16::from_be_bytes([entry[0x3c], entry[0x3d]]);
        let count = be32(&entry, 0x2c);
        if last >> 2 & 3 != 3 {
            got.push((counter, count));
            *index += 1;
            continue;
        }
        let mut array = Vec::new();
        for n in 0..count {
            if n % 8 == 0 {
                array = rig.cqe(slot(*index + n.max(1)));
            }
            got.push((counter.wrapping_add(n as u16), be32(&array, (n % 8 * 8 + 4) as usize)));
        }
        for consumed in *index..*index + count {
            rig.poke(CQ_PAGE + slot(consumed) * 64 + 0x3f, &[0x20 | owner(consumed)]);
        }
        *index += count;
    }
    rig.poke32(CQ_DBR, *index & 0xff_ffff);
    got
}

#[test]
fn a_reader_finds_every_completion_in_order() {
    for seed in 0..64 {
        let mut rig = Rig::with(Config { seed, ..Config::default() });
        let mut rng = SmallRng::seed_from_u64(seed);
        let log = 3 + (seed % 4) as u32;
        let cqn = rig.cq_with(log, |c| compressed(c, (seed % 2) as u32)).unwrap();
        let (mut index, mut posted, mut read) = (0, Vec::new(), Vec::new());
        let mut counter = 0xfff0u16;
        for now in 0..400 {
            let room = (1 << log) - (posted.len() - read.len()) as u32;
            for _ in 0..rng.random_range(0..=room.min(20)) {
                let opcode = match rng.random_range(0..12) {
                    0 => CqeOpcode::Requester,
                    1 => CqeOpcode::RespSendInv,
                    _ => CqeOpcode::RespSend,
                };
                let cqe = Cqe { opcode, ..receive(counter) };
                post(&mut rig, cqn, &cqe);
                posted.push((counter, cqe.byte_cnt));
                counter = counter.wrapping_add(1);
            }
            rig.hca.step(now * rng.random_range(1..5000));
            read.extend(consume(&mut rig, log, &mut index));
            assert_eq!(read, posted[..read.len()], "seed {seed}");
        }
        write_completions(&mut rig.hca);
        read.extend(consume(&mut rig, log, &mut index));
        assert_eq!(read, posted, "seed {seed}");
        let compressed = rig.hca.stats().cqes_compressed;
        assert!(compressed > 0 && compressed < rig.hca.stats().cqes, "by chance");
    }
}
