//! Sessions of compressed entries: their bytes, every reader, and titles that cannot be.
#![expect(clippy::cast_possible_truncation, reason = "the numbers are small")]

use std::vec::Vec;

use dat_core::provider::{Arrived, CompletionQueue, Direction, Polled};
use proptest::prelude::*;

use super::{Record, Ring};
use crate::data::cq::{self, Cq};
use crate::data::scripted::{Op, Scripted};
use crate::prm::cqe;

const RING: usize = 0x3000;
const OTHER: usize = 0x5000;
const RECORD: usize = 0x880;
const UAR: usize = 0x10000;
const LOG: u8 = 4;
const SLOTS: u32 = 1 << LOG;

fn ring() -> Ring {
    Ring::new(RING, LOG)
}

/// A queue whose consumer index is `start`, with all before it read.
fn cq(platform: &Scripted<false>, start: u32) -> Cq<'_, Scripted<false>> {
    cq::clear(platform, &ring());
    for index in start.saturating_sub(SLOTS)..start {
        put(platform, index, &plain(cqe::REQUESTER, 0, 0));
    }
    let mut cq = Cq::new(platform, ring(), Record(RECORD), UAR).unwrap();
    cq.start_at(start.into());
    cq.set_cqn(0x33);
    cq.set_compressed();
    cq
}

fn at(index: u32) -> usize {
    ring().slot(index, 6)
}

/// Writes an entry with the owner bit of its lap.
fn put(platform: &Scripted<false>, index: u32, entry: &[u8; 64]) {
    let mut entry = *entry;
    entry[0x3f] |= u8::from(ring().lap(index));
    platform.put(at(index), &entry);
}

/// An entry of queue pair 7, number 0x4d, as cards write it.
fn plain(opcode: u8, counter: u16, len: u32) -> [u8; 64] {
    let mut bytes = [0; 64];
    bytes[0x18..0x1c].copy_from_slice(&[0x02, 0, 0x4e, 0x21]);
    bytes[0x20..0x24].copy_from_slice(&[0, 0, 0, 7]);
    bytes[0x24..0x28].copy_from_slice(&[0xca, 0xfe, 0, 1]);
    bytes[0x2c..0x30].copy_from_slice(&len.to_be_bytes());
    bytes[0x38..0x3c].copy_from_slice(&[0, 0, 0, 0x4d]);
    bytes[0x3c..0x3e].copy_from_slice(&counter.to_be_bytes());
    bytes[0x3e] = 0xa7;
    bytes[0x3f] = opcode << 4 | 2;
    bytes
}

fn title(opcode: u8, counter: u16, count: u32) -> [u8; 64] {
    let mut bytes = plain(opcode, counter, count);
    bytes[0x3f] |= 3 << 2;
    bytes
}

/// Writes a session from `index` on as the device does, the title last; `mini` gives the two dwords
/// of each.
fn session(platform: &Scripted<false>, index: u32, title: &[u8; 64], minis: &[[u32; 2]]) {
    for (nth, array) in minis.chunks(8).enumerate() {
        // What is left of an array looks like an entry of the next lap.
        let slot = index + (8 * nth as u32).max(1);
        let mut bytes = [0x20 | u8::from(!ring().lap(slot)); 64];
        for (place, dword) in bytes.chunks_exact_mut(4).zip(array.as_flattened()) {
            place.copy_from_slice(&dword.to_be_bytes());
        }
        platform.put(at(slot), &bytes);
    }
    put(platform, index, title);
}

/// A session of receives whose lengths are 100 and up, with hashes that look like entries.
fn receives(platform: &Scripted<false>, index: u32, counter: u16, count: u32) {
    let minis: Vec<_> = (0..count).map(|nth| [0x2020_2021, 100 + nth]).collect();
    session(platform, index, &title(cqe::RESPONDER_SEND_IMM, counter, count), &minis);
}

#[test]
fn a_session_becomes_plain_entries_in_its_slots() {
    for start in [0, 3, 7, 9, 16, 30] {
        for count in 2..=SLOTS {
            let p = Scripted::<false>::new();
            let mut q = cq(&p, start);
            receives(&p, start, 0xfff8, count);
            p.take();
            assert_eq!(q.poll_plain(), Polled::Other);
            assert_eq!(p.take(), [], "the fast path leaves it alone");
            let first = q.poll().unwrap();
            for nth in 0..count {
                let mut golden =
                    plain(cqe::RESPONDER_SEND_IMM, 0xfff8_u16.wrapping_add(nth as u16), 100 + nth);
                golden[0x3f] |= u8::from(ring().lap(start + nth));
                assert_eq!(p.bytes(at(start + nth), 64), golden, "{nth} of {count} from {start}");
            }
            let rest: Vec<_> = (1..count).map(|_| q.poll().unwrap()).collect();
            for (nth, found) in (0..).zip(core::iter::once(&first).chain(&rest)) {
                assert_eq!((found.index, found.direction), (7, Direction::Recv));
                assert_eq!(found.token, 0xfff8_u16.wrapping_add(nth));
                assert_eq!(found.len, 100 + u32::from(nth));
                assert_eq!(found.extra.arrived, Arrived::Immediate);
                assert_eq!((found.extra.immediate, found.extra.solicited), (0xcafe_0001, true));
                assert_eq!(found.extra.source_qpn, 0x4e21);
            }
            assert_eq!(q.last(), rest.last().copied());
            assert_eq!((q.taken(), q.skipped()), (u64::from(start + count), 0));
            assert_eq!(p.bytes(RECORD, 4), (start + count).to_be_bytes());
            // Nothing that the device left in the slots looks new, on this lap and the next.
            for _ in 0..2 * SLOTS {
                assert_eq!((q.poll(), q.waiting()), (None, 0));
                let next = q.taken() as u32;
                put(&p, next, &plain(cqe::RESPONDER_SEND, 9, 1));
                assert_eq!(q.poll_plain(), Polled::Received(7, 9, 1));
            }
        }
    }
}

#[test]
fn requests_have_counters_and_opcodes_of_their_own() {
    let p = Scripted::<false>::new();
    let mut q = cq(&p, 0);
    let minis = [[0x0004_0a00, 0], [0x0009_1000, 64], [0xfffe_0800, 0]];
    session(&p, 0, &title(cqe::REQUESTER, 4, 3), &minis);
    let mut tokens = Vec::new();
    q.poll_sent(7, &[0; 8], |_, _| panic!("a title is no success of a request"));
    while let Some(found) = q.poll() {
        assert_eq!((found.index, found.direction, found.len), (7, Direction::Send, 0));
        tokens.push(found.token);
    }
    assert_eq!(tokens, [4, 9, 0xfffe]);
    let opcodes = [0, 1, 2].map(|index| p.bytes(at(index) + 0x38, 4));
    assert_eq!(opcodes, [[0x0a, 0, 0, 0x4d], [0x10, 0, 0, 0x4d], [0x08, 0, 0, 0x4d]]);
}

/// The rest of a session is there for the fast paths.
#[test]
fn what_was_written_out_takes_the_fast_paths() {
    let p = Scripted::<false>::new();
    let mut q = cq(&p, 14);
    let minis: Vec<_> = (0..5).map(|nth| [0, nth]).collect();
    session(&p, 14, &title(cqe::RESPONDER_SEND, 20, 5), &minis);
    q.poll_received(7, 20, 16, |_| panic!("a title is no success of a receive"));
    assert_eq!(q.poll().map(|found| (found.token, found.len)), Some((20, 0)));
    assert_eq!(q.poll_plain(), Polled::Received(7, 21, 1));
    let mut seen = Vec::new();
    q.poll_received(7, 22, 16, |len| {
        seen.push(len);
        true
    });
    assert_eq!(seen, [2, 3, 4]);
    assert_eq!((q.taken(), q.poll_plain()), (19, Polled::Empty));
}

/// Slots of a session say nothing of their own: no reader may look at one before its title.
#[test]
fn every_reader_writes_sessions_out_first() {
    type Read = fn(&mut Cq<'_, Scripted<false>>) -> u32;
    let readers: [Read; 7] = [
        |q| (0..).take_while(|_| q.poll().is_some()).count() as u32,
        |q| q.waiting(),
        |q| (q.written() - q.taken()) as u32,
        |q| {
            let mut seen = 0;
            q.survey(0, |found| {
                assert_eq!(u32::from(found.token), seen);
                seen += 1;
            });
            seen
        },
        |q| {
            let before = q.taken();
            q.discard();
            (q.taken() - before) as u32
        },
        |q| {
            let mut gone = 0;
            q.sweep(7, |_, _| gone += 1);
            gone
        },
        |q| {
            let other = Ring::new(OTHER, LOG + 1);
            q.clear_ahead(&other);
            assert!(q.move_to(&other));
            (0..).take_while(|_| q.poll().is_some()).count() as u32
        },
    ];
    for (n, read) in readers.iter().enumerate() {
        for start in 0..2 * SLOTS {
            let p = Scripted::<false>::new();
            let mut q = cq(&p, start);
            put(&p, start, &plain(cqe::RESPONDER_SEND, 0, 99 + 11));
            receives(&p, start + 1, 1, 11);
            receives(&p, start + 12, 12, 3);
            put(&p, start + 15, &plain(cqe::RESIZED, 0, 0));
            let all = if n == 0 || n == 3 || n == 5 || n == 6 { 15 } else { 16 };
            let found = read(&mut q);
            assert_eq!(found, all, "reader {n} from {start}");
        }
    }
}

#[test]
fn what_is_written_out_precedes_the_index() {
    let p = Scripted::<false>::new();
    let mut q = cq(&p, 0);
    receives(&p, 0, 0, 9);
    p.take();
    assert!(q.poll().is_some());
    let log = p.take();
    let place = |op: &dyn Fn(&Op) -> bool| log.iter().rposition(op).unwrap();
    let stores = place(&|op| matches!(op, Op::Store(at, _) if *at >= RING));
    let fence = place(&|op| *op == Op::BeforeDoorbell);
    let record = place(&|op| matches!(op, Op::Store(RECORD, _)));
    assert!(log[0] == Op::AfterOwnership && stores < fence && fence < record);
}

#[test]
fn a_title_that_cannot_be_is_nonsense() {
    for count in [0, 1, SLOTS + 1, 1 << 24, u32::MAX] {
        for opcode in [cqe::REQUESTER, cqe::RESPONDER_SEND] {
            let p = Scripted::<false>::new();
            let mut q = cq(&p, 0);
            put(&p, 0, &title(opcode, 0, count));
            assert_eq!(q.waiting(), 1);
            assert_eq!((q.poll(), q.skipped()), (None, 1), "{count}");
        }
    }
    // Behind an entry that waits there is a slot fewer.
    for (count, waiting) in [(SLOTS, 2), (SLOTS - 1, SLOTS)] {
        let p = Scripted::<false>::new();
        let q = cq(&p, 0);
        put(&p, 0, &plain(cqe::REQUESTER, 0, 0));
        receives(&p, 1, 0, count);
        assert_eq!(q.waiting(), waiting);
    }
    for opcode in cqe::RESIZED..=cqe::RESPONDER_ERROR {
        let p = Scripted::<false>::new();
        let mut q = cq(&p, 0);
        put(&p, 0, &title(opcode, 0, 4));
        let failed = opcode >= cqe::REQUESTER_ERROR;
        assert_eq!((q.poll().is_some(), q.skipped()), (failed, u32::from(!failed)));
    }
}

#[test]
fn without_compression_a_title_is_nonsense() {
    let p = Scripted::<false>::new();
    cq::clear(&p, &ring());
    let mut q = Cq::new(&p, ring(), Record(RECORD), UAR).unwrap();
    receives(&p, 0, 0, 2);
    assert_eq!((q.poll(), q.skipped(), q.taken()), (None, 1, 1));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever the device writes, and however the queue is read.
    #[test]
    fn any_ring_is_survived(
        bytes in prop::collection::vec(any::<u8>(), 64 * SLOTS as usize),
        counts in prop::collection::vec(0..20_u8, SLOTS as usize),
        start in 0..2 * SLOTS,
        reads in prop::collection::vec(0..6_u8, 40),
    ) {
        let p = Scripted::<false>::new();
        let mut q = cq(&p, start);
        p.put(RING, &bytes);
        for (slot, count) in counts.into_iter().enumerate() {
            // Many are titles of few.
            if count < 12 {
                let owner = 0x2c | u8::from(ring().lap(start + slot as u32));
                p.put(at(start + slot as u32) + 0x2c, &[0, 0, 0, count]);
                p.put(at(start + slot as u32) + 0x3f, &[owner]);
            }
        }
        for read in reads {
            let before = q.taken();
            match read {
                0 => drop(q.poll()),
                1 => prop_assert!(q.waiting() <= SLOTS),
                2 => {
                    let end = q.survey(0, |_| ());
                    prop_assert!(end <= before + u64::from(SLOTS));
                }
                3 => drop(q.poll_plain()),
                4 => q.sweep(7, |_, _| ()),
                _ => drop(q.last()),
            }
            prop_assert!(q.taken() - before <= u64::from(SLOTS));
        }
    }
}
