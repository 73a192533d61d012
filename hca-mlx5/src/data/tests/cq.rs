//! Decoding, ownership, nonsense, arming.
//!
//! Length: one queue, and each way to take an entry of it.
#![expect(clippy::cast_possible_truncation, reason = "the numbers are small")]

use std::vec;
use std::vec::Vec;

use dat_core::provider::{
    Arrived, Completion, CompletionQueue, Direction, Extra, NetworkHeader, Polled, Status,
};
use proptest::prelude::*;

use super::{Record, Ring};
use crate::data::cq::{self, Cq};
use crate::data::scripted::{Op, Scripted};
use crate::prm::cqe;

const RING: usize = 0x3000;
const RECORD: usize = 0x880;
const UAR: usize = 0x10000;
const LOG: u8 = 2;

fn cq<const WC: bool>(platform: &Scripted<WC>) -> Cq<'_, Scripted<WC>> {
    let ring = Ring::new(RING, LOG);
    cq::clear(platform, &ring);
    platform.take();
    let mut cq = Cq::new(platform, ring, Record(RECORD), UAR).unwrap();
    cq.set_cqn(0x33);
    cq
}

/// An entry: user index, byte count, opcode of the WQE, counter, opcode, low nibble of the last
/// byte.
fn entry(index: u32, len: u32, sop: u8, counter: u16, opcode: u8, low: u8) -> [u8; 64] {
    let mut bytes = [0; 64];
    bytes[0x20..0x24].copy_from_slice(&index.to_be_bytes());
    bytes[0x2c..0x30].copy_from_slice(&len.to_be_bytes());
    bytes[0x38..0x3c].copy_from_slice(&(u32::from(sop) << 24 | 0x4d).to_be_bytes());
    bytes[0x3c..0x3e].copy_from_slice(&counter.to_be_bytes());
    bytes[0x3e] = 0xa7;
    bytes[0x3f] = opcode << 4 | low;
    bytes
}

/// The last twelve bytes of an error entry of a real card.
fn raw(tail: [u8; 12]) -> [u8; 64] {
    let mut bytes = [0; 64];
    bytes[0x34..].copy_from_slice(&tail);
    bytes
}

fn poll_one(bytes: [u8; 64]) -> (Option<Completion>, u32) {
    let p = Scripted::<false>::new();
    let mut q = cq(&p);
    // Real entries come from any lap; put the wanted one where its owner bit is current.
    if bytes[0x3f] & 1 == 1 {
        for slot in 0..4 {
            p.put(RING + 64 * slot, &entry(0, 0, 8, 0, 0, 0));
            assert!(q.poll().is_some());
        }
    }
    p.put(RING, &bytes);
    (q.poll(), q.skipped())
}

#[test]
fn a_cleared_ring_is_empty() {
    let p = Scripted::<false>::new();
    let mut q = cq(&p);
    assert_eq!(q.poll(), None);
    assert_eq!(p.bytes(RING + 0x3c, 4), [0, 0, 0, 0xf1]);
    assert_eq!(p.bytes(RING + 0xfc, 4), [0, 0, 0, 0xf1]);
}

#[test]
fn an_empty_poll_costs_one_load() {
    let p = Scripted::<false>::new();
    let mut q = cq(&p);
    p.log_loads(true);
    assert_eq!(q.poll(), None);
    assert_eq!(p.take(), [Op::Load(RING + 0x3c, 4)]);
}

#[test]
fn requester_success() {
    let (completion, _) = poll_one(entry(0x00ab_cdef, 77, 8, 0x1234, 0, 0));
    let golden = Completion {
        index: 0x00ab_cdef,
        len: 0,
        token: 0x1234,
        direction: Direction::Send,
        status: Status::Success,
        syndrome: 0,
        vendor: 0,
        extra: Extra::default(),
    };
    assert_eq!(completion, Some(golden));
}

#[test]
fn only_receives_have_a_length() {
    for sop in [0x08, 0x0a, 0x10, 0x25, 0x00] {
        assert_eq!(poll_one(entry(1, 77, sop, 0, 0, 0)).0.unwrap().len, 0);
    }
    assert_eq!(poll_one(entry(1, 77, 0, 0, 2, 0)).0.unwrap().len, 77);
}

#[test]
fn responder_kinds() {
    for opcode in 1..=4 {
        let completion = poll_one(entry(7, 512, 0, 3, opcode, 2)).0.unwrap();
        assert_eq!(
            (completion.direction, completion.len, completion.token),
            (Direction::Recv, 512, 3)
        );
        assert_eq!(completion.status, Status::Success);
    }
}

#[test]
fn the_upper_byte_of_the_index_word_is_not_the_index() {
    assert_eq!(poll_one(entry(0xff00_0005, 0, 8, 0, 0, 0)).0.unwrap().index, 5);
}

#[test]
fn real_card_bad_umr() {
    let tail = [0x0f, 0, 0x78, 0x06, 0x25, 0, 0, 0x58, 0, 0xda, 0xac, 0xd2];
    let completion = poll_one(raw(tail)).0.unwrap();
    assert_eq!(completion.status, Status::WindowBind);
    assert_eq!((completion.syndrome, completion.vendor), (0x06, 0x78));
    assert_eq!((completion.token, completion.direction), (0x00da, Direction::Send));
}

#[test]
fn real_card_iommu_refusal() {
    let tail = [0xa9, 0, 0x56, 0x04, 0, 0, 1, 0xe9, 0, 0x54, 0xe8, 0xe2];
    let completion = poll_one(raw(tail)).0.unwrap();
    assert_eq!(completion.status, Status::LocalProtection);
    assert_eq!((completion.syndrome, completion.vendor), (0x04, 0x56));
    assert_eq!((completion.token, completion.direction), (0x0054, Direction::Recv));
}

#[test]
fn real_card_remote_access() {
    let tail = [0, 0, 0x88, 0x13, 8, 3, 0x61, 0xb3, 0x1e, 0xa1, 0x42, 0xd3];
    let completion = poll_one(raw(tail)).0.unwrap();
    assert_eq!(completion.status, Status::RemoteAccess);
    assert_eq!((completion.vendor, completion.token), (0x88, 0x1ea1));
    let tail = [0, 0, 0x88, 0x13, 0x10, 1, 0x2a, 0xbe, 0x0d, 0xd0, 0xc1, 0xd3];
    assert_eq!(poll_one(raw(tail)).0.unwrap().token, 0x0dd0);
}

#[test]
fn real_card_local_protection() {
    let tail = [0x93, 0, 0x52, 0x04, 0x0a, 0, 0x19, 0xa1, 0xc0, 0x92, 0x1c, 0xd2];
    let completion = poll_one(raw(tail)).0.unwrap();
    assert_eq!(completion.status, Status::LocalProtection);
    assert_eq!((completion.vendor, completion.token), (0x52, 0xc092));
}

#[test]
fn every_syndrome_has_its_meaning() {
    let known = [
        (0x01, Status::LocalLength),
        (0x02, Status::LocalQpOperation),
        (0x04, Status::LocalProtection),
        (0x05, Status::Flushed),
        (0x06, Status::WindowBind),
        (0x10, Status::BadResponse),
        (0x11, Status::LocalAccess),
        (0x12, Status::RemoteInvalidRequest),
        (0x13, Status::RemoteAccess),
        (0x14, Status::RemoteOperation),
        (0x15, Status::TransportRetry),
        (0x16, Status::RnrRetry),
        (0x22, Status::RemoteAborted),
    ];
    for byte in 0..=255 {
        let meant = known.iter().find(|k| k.0 == byte).map_or(Status::Other, |k| k.1);
        assert_eq!(cqe::status(byte), meant);
    }
}

#[test]
fn ownership_fence_stands_between_owner_and_contents() {
    let p = Scripted::<false>::new();
    let mut q = cq(&p);
    p.put(RING, &entry(1, 0, 8, 0, 0, 0));
    p.log_loads(true);
    q.poll().unwrap();
    let log = p.take();
    assert_eq!(log[..2], [Op::Load(RING + 0x3c, 4), Op::AfterOwnership]);
    assert!(log[2..].iter().all(|op| matches!(op, Op::Load(..) | Op::Store(..))));
    assert_eq!(log.last(), Some(&Op::Store(RECORD, vec![0, 0, 0, 1])));
}

#[test]
fn laps_alternate_ownership() {
    let p = Scripted::<false>::new();
    let mut q = cq(&p);
    for turn in 0..20_u16 {
        let low = u8::from(turn & 4 != 0);
        let slot = RING + 64 * (usize::from(turn) & 3);
        p.put(slot, &entry(1, 0, 8, turn, 0, low ^ 1));
        assert_eq!(q.poll(), None, "the entry of the lap before");
        p.put(slot, &entry(1, 0, 8, turn, 0, low));
        assert_eq!(q.poll().unwrap().token, turn);
    }
    assert_eq!(p.bytes(RECORD, 4), [0, 0, 0, 20]);
}

#[test]
fn nonsense_is_skipped_and_counted() {
    let p = Scripted::<false>::new();
    let mut q = cq(&p);
    p.put(RING, &entry(1, 0, 8, 0, 9, 0));
    p.put(RING + 64, &entry(1, 0, 8, 1, 0, 0xc));
    p.put(RING + 128, &entry(1, 0, 8, 2, 0, 0));
    assert_eq!(q.poll().unwrap().token, 2);
    assert_eq!(q.skipped(), 2);
    assert_eq!(p.bytes(RECORD, 4), [0, 0, 0, 3], "skipped entries are given back");
}

#[test]
fn kinds_no_queue_pair_causes() {
    for opcode in [5, 6, 7, 8, 9, 10, 11, 12] {
        assert_eq!(poll_one(entry(1, 0, 0, 0, opcode, 0)), (None, 1));
    }
    for format in 1..4 {
        for opcode in [0, 2] {
            assert_eq!(poll_one(entry(1, 0, 0, 0, opcode, format << 2)), (None, 1));
        }
    }
}

#[test]
fn a_flood_of_nonsense_does_not_hold_the_caller() {
    let p = Scripted::<false>::new();
    let ring = Ring::new(RING, 0);
    cq::clear(&p, &ring);
    let mut q = Cq::new(&p, ring, Record(RECORD), UAR).unwrap();
    p.put(RING, &entry(1, 0, 8, 0, 9, 0));
    assert_eq!((q.poll(), q.skipped()), (None, 1));
}

#[test]
fn arm_writes_record_fence_register() {
    let p = Scripted::<false>::new();
    let mut q = cq(&p);
    p.put(RING, &entry(1, 0, 8, 0, 0, 0));
    q.poll();
    p.take();
    q.arm(false);
    let golden = [
        Op::Store(RECORD + 4, vec![0, 0, 0, 1]),
        Op::BeforeDoorbell,
        Op::Write64(UAR + 0x20, [0, 0, 0, 1, 0, 0, 0, 0x33]),
        Op::AfterMmio,
    ];
    assert_eq!(p.take(), golden);
}

/// A device ignores a request with the number of its last event, so that one event of a queue at
/// most is on its way. The numbers are those of the events that were read.
#[test]
fn a_request_has_another_number_when_an_event_was_read() {
    let p = Scripted::<true>::new();
    let mut q = cq(&p);
    let words: Vec<Vec<u8>> = (0..5)
        .map(|_| {
            q.arm(false);
            assert_eq!(p.take().last(), Some(&Op::AfterMmio));
            let word = p.bytes(RECORD + 4, 1);
            cq::event_read(&p, Record(RECORD));
            word
        })
        .collect();
    assert_eq!(words, [[0x00], [0x10], [0x20], [0x30], [0x00]]);
    q.arm(true);
    assert_eq!(p.bytes(RECORD + 4, 4), [0x11, 0, 0, 0]);
    p.take();
    // Something comes, and is not taken: its event, of which nobody knows, is on its way.
    p.put(RING, &entry(1, 0, 8, 0, 0, 0));
    for _ in 0..5 {
        q.arm(false);
        assert_eq!(p.bytes(RECORD + 4, 4), [0x10, 0, 0, 0]);
    }
}

/// What was asked for had its event when something has come, also if that was taken since.
#[test]
fn after_each_completion_an_event_can_be_asked_for() {
    let p = Scripted::<false>::new();
    let mut q = cq(&p);
    for n in 0..10_u32 {
        p.take();
        q.arm(false);
        let rang = p.take().iter().any(|op| matches!(op, Op::Write64(..)));
        assert!(rang, "{n}");
        let low = u8::from(n & 4 != 0);
        p.put(RING + 64 * (n & 3) as usize, &entry(1, 0, 8, 0, 0, low));
        assert!(q.poll().is_some());
    }
}

#[test]
fn an_armed_queue_is_armed_again_only_after_an_event() {
    let p = Scripted::<false>::new();
    let mut q = cq(&p);
    q.arm(false);
    assert!(!p.take().is_empty());
    q.arm(false);
    assert_eq!(p.take(), []);
    q.arm(true);
    assert_eq!(p.bytes(RECORD + 4, 4), [0x01, 0, 0, 0]);
    p.take();
    // An event has been read, or something has come, whether it has been taken or not.
    cq::event_read(&p, Record(RECORD));
    p.put(RING, &entry(1, 0, 8, 0, 0, 0));
    q.arm(false);
    assert_eq!(p.bytes(RECORD + 4, 4), [0x10, 0, 0, 0]);
    assert!(q.poll().is_some());
    q.arm(false);
    assert_eq!(p.bytes(RECORD + 4, 4), [0x10, 0, 0, 1]);
    p.take();
    q.arm(false);
    assert_eq!(p.take(), []);
}

/// However often it goes on in another ring between two requests, and whether something comes in
/// between or not: what comes then has its event, and the next can be asked for.
#[test]
fn after_any_moves_an_event_can_be_asked_for() {
    const OTHER: usize = 0x4000;
    for comes in [true, false] {
        let p = Scripted::<false>::new();
        let mut q = cq(&p);
        let (mut index, mut here, mut there) = (0_u32, RING, OTHER);
        let put = |ring: usize, index: u32, opcode: u8| {
            let bytes = entry(7, 64, 8, 0, opcode, u8::from(index & 4 != 0));
            p.put(ring + 64 * (index & 3) as usize, &bytes);
        };
        let rings = |q: &mut Cq<'_, Scripted<false>>| {
            p.take();
            q.arm(false);
            p.take().iter().any(|op| matches!(op, Op::Write64(..)))
        };
        for n in 0..6 {
            let rang = rings(&mut q);
            assert!(rang || !comes, "{n}");
            if comes {
                put(here, index, cqe::REQUESTER);
                assert!(q.poll().is_some());
                index += 1;
            }
            put(here, index, cqe::RESIZED);
            let ring = Ring::new(there, LOG);
            q.clear_ahead(&ring);
            assert!(q.move_to(&ring));
            index += 1;
            (here, there) = (there, here);
        }
        for n in 0..6 {
            // Even if nobody asks before the first.
            let rang = n == 0 && !comes || rings(&mut q);
            assert!(rang, "{n}");
            put(here, index, cqe::REQUESTER);
            assert!(q.poll().is_some());
            index += 1;
        }
    }
}

proptest! {
    /// Nothing the device can put into an entry panics, and whatever is returned came from a kind that exists.
    #[test]
    fn any_entry_is_survived(bytes in prop::collection::vec(any::<u8>(), 256)) {
        let p = Scripted::<false>::new();
        let mut q = cq(&p);
        p.put(RING, &bytes);
        for _ in 0..8 {
            if let Some(completion) = q.poll() {
                prop_assert!(completion.index <= 0x00ff_ffff);
                let good = completion.status == Status::Success;
                prop_assert!(!good || (completion.syndrome, completion.vendor) == (0, 0));
            }
        }
        let ci = p.bytes(RECORD, 4);
        prop_assert!(u32::from_be_bytes([ci[0], ci[1], ci[2], ci[3]]) <= 8);
    }
}

/// Four entries, of which one was taken, two wait, and the device has ended the ring; for each lap,
/// into rings longer and shorter.
#[test]
fn a_ring_that_ends_goes_on_in_another_with_what_waits() {
    const OTHER: usize = 0x4000;
    for (lap, log) in (0..4_u8).flat_map(|lap| [1, 2, 3].map(|log| (lap, log))) {
        let p = Scripted::<false>::new();
        let mut q = cq(&p);
        let own = |index: u32, slots: u32| u8::from(index & slots != 0);
        let put = |ring: usize, index: u32, slots: u32, counter: u16, opcode: u8| {
            let bytes = entry(7, 64, 8, counter, opcode, own(index, slots));
            p.put(ring + 64 * (index & (slots - 1)) as usize, &bytes);
        };
        let first = u32::from(lap) * 4;
        for index in 0..first {
            put(RING, index, 4, 0, cqe::REQUESTER);
            assert!(q.poll().is_some());
        }
        put(RING, first, 4, 100, cqe::REQUESTER);
        assert!(q.poll().is_some());
        let waiting = u16::from(log).min(2);
        for n in 0..waiting {
            put(RING, first + 1 + u32::from(n), 4, 101 + n, cqe::RESPONDER_SEND);
        }
        assert_eq!(q.waiting(), u32::from(waiting));
        let mut seen = Vec::new();
        q.survey(0, |completion| seen.push(completion.token));
        assert_eq!(seen.len(), usize::from(waiting));

        let ring = Ring::new(OTHER, log);
        // As if it had been used before, by this lap.
        p.put(OTHER, &[0; 64 * 8]);
        q.clear_ahead(&ring);
        for index in (first + 2..).take(1 << log) {
            let at = OTHER + 64 * (index & ((1 << log) - 1)) as usize;
            let before = u8::from(index & 1 << log == 0);
            assert_eq!(p.bytes(at + 0x3c, 4), [0, 0, 0, 0xf0 | before], "empty, of the lap before");
        }
        q.arm(false);
        let end = first + 1 + u32::from(waiting);
        put(RING, end, 4, 0, cqe::RESIZED);
        assert!(q.move_to(&ring), "lap {lap}, log {log}");
        assert_eq!(p.bytes(RECORD, 4), (first + 2).to_be_bytes(), "lap {lap}, log {log}");
        // The entry that ended the ring is no completion; and what was asked for there is void.
        assert_eq!(q.taken(), u64::from(first) + 1);
        p.take();
        q.arm(false);
        assert!(!p.take().is_empty());
        for n in 0..waiting {
            let polled = q.poll().unwrap();
            assert_eq!((polled.token, polled.len), (101 + n, 64));
        }
        assert_eq!(q.poll(), None, "lap {lap}, log {log}");
        assert_eq!(q.poll_plain(), Polled::Empty, "lap {lap}, log {log}");
        // The index runs on behind the entry that ended the old ring.
        let slots = 1 << log;
        for n in 0..2 * slots {
            put(OTHER, end + 1 + n, slots, 7, cqe::REQUESTER);
            assert_eq!(q.poll_plain(), Polled::Sent(7, 7), "lap {lap}, log {log}");
        }
        assert_eq!(q.skipped(), 0);
    }
}

/// Of the index the device knows 24 bits, in the record and in the register.
#[test]
fn the_consumer_index_turns_over_at_24_bits() {
    type Step = fn(&mut Cq<'_, Scripted<false>>);
    let steps: [Step; 7] = [
        |q| assert!(q.poll().is_some()),
        |q| assert_eq!(q.poll_plain(), Polled::Sent(7, 7)),
        |q| assert_eq!(q.poll_sent(7, &[()], |(), _| true), 1),
        |q| q.discard(),
        |q| q.sweep(7, |_, _| {}),
        |q| assert!(!q.move_to(&Ring::new(0x4000, LOG))),
        |q| {
            q.arm(false);
            q.start_at(1);
        },
    ];
    for (n, step) in steps.into_iter().enumerate() {
        for (index, next) in [(0xff_fffe, 0xff_ffff_u32), (0xff_ffff, 0)] {
            let p = Scripted::<false>::new();
            let mut q = cq(&p);
            q.start_at(index);
            if n == 6 {
                step(&mut q);
                let word = u32::try_from(index).unwrap().to_be_bytes();
                assert_eq!(p.bytes(RECORD + 4, 4), word, "arm");
                continue;
            }
            p.put(RING + 64 * (index & 3) as usize, &entry(7, 0, 8, 7, cqe::REQUESTER, 1));
            step(&mut q);
            assert_eq!(p.bytes(RECORD, 4), next.to_be_bytes(), "step {n}");
        }
    }
}

#[test]
fn what_is_carried_over_precedes_the_index() {
    let p = Scripted::<false>::new();
    let mut q = cq(&p);
    let ring = Ring::new(0x4000, 1);
    p.put(RING, &entry(7, 64, 8, 1, cqe::REQUESTER, 0));
    p.put(RING + 64, &entry(7, 64, 8, 1, cqe::RESIZED, 0));
    q.clear_ahead(&ring);
    p.take();
    assert!(q.move_to(&ring));
    let log = p.take();
    let stores = |op: &Op| matches!(op, Op::Store(at, _) if *at >= 0x4000);
    let fence = log.iter().rposition(|op| *op == Op::BeforeDoorbell).unwrap();
    assert!(log.iter().rposition(stores).unwrap() < fence);
    assert_eq!(log.last(), Some(&Op::Store(RECORD, vec![0, 0, 0, 1])));
}

#[test]
fn all_that_was_written_is_discarded() {
    for waiting in 0..=4_usize {
        let p = Scripted::<false>::new();
        let mut q = cq(&p);
        for slot in 0..waiting {
            p.put(RING + 64 * slot, &entry(1, 0, 8, 0, 13, 0));
        }
        q.discard();
        assert_eq!((q.poll(), q.taken()), (None, waiting as u64));
        assert_eq!(p.bytes(RECORD, 4), (waiting as u32).to_be_bytes());
    }
}

#[test]
fn a_plain_poll_takes_successes_and_leaves_the_rest() {
    let p = Scripted::<false>::new();
    let mut q = cq(&p);
    assert_eq!(q.poll_plain(), Polled::Empty);
    p.put(RING, &entry(0xff00_0009, 77, 8, 3, cqe::REQUESTER, 2));
    p.put(RING + 64, &entry(0xff00_0008, 77, 0, 4, cqe::RESPONDER_SEND, 0));
    p.take();
    p.log_loads(true);
    assert_eq!(q.poll_plain(), Polled::Sent(9, 3));
    let golden = [
        Op::Load(RING + 0x3c, 4),
        Op::AfterOwnership,
        Op::Load(RING + 0x20, 4),
        Op::Store(RECORD, vec![0, 0, 0, 1]),
    ];
    assert_eq!(p.take(), golden);
    assert_eq!(q.poll_plain(), Polled::Received(8, 4, 77));
    let golden = [
        Op::Load(RING + 0x7c, 4),
        Op::AfterOwnership,
        Op::Load(RING + 0x60, 4),
        Op::Load(RING + 0x6c, 4),
        Op::Store(RECORD, vec![0, 0, 0, 2]),
    ];
    assert_eq!(p.take(), golden);
    for other in [1, 3, 4, 5, 9, 13, 14] {
        p.put(RING + 128, &entry(9, 0, 0, 0, other, 0));
        assert_eq!(q.poll_plain(), Polled::Other, "{other}");
    }
    p.put(RING + 128, &entry(9, 0, 0, 0, 0, 4));
    assert_eq!(q.poll_plain(), Polled::Other, "of another format");
    assert_eq!(p.bytes(RECORD, 4), [0, 0, 0, 2]);
}

#[test]
fn successes_of_requests_are_taken_in_one_go() {
    let p = Scripted::<false>::new();
    let mut q = cq(&p);
    p.take();
    q.poll_sent(7, &[1], |_, _| panic!("there is none"));
    assert_eq!(p.take(), []);
    // Around the end of the ring, and up to one of another kind.
    q.start_at(2);
    for (at, low) in [(2, 0), (3, 2), (4, 1)] {
        p.put(RING + 64 * (at & 3), &entry(0xff00_0000 | 7, 0, 8, at as u16, 0, low));
    }
    p.put(RING + 64, &entry(7, 5, 0, 9, 2, 1));
    let mut taken = Vec::new();
    for (count, end) in [(2, 4), (1, 5), (0, 5)] {
        let found = q.poll_sent(7, &['a', 'b', 'c'], |slot, token| {
            taken.push((*slot, token));
            true
        });
        assert_eq!(found, count);
        assert_eq!(p.bytes(RECORD, 4), [0, 0, 0, end], "a lap at a time");
    }
    assert_eq!(taken, [('a', 2), ('b', 3), ('a', 4)]);
    let fence = |op: &&Op| **op == Op::AfterOwnership;
    assert_eq!(p.take().iter().filter(fence).count(), 3);
    assert_eq!((q.taken(), q.poll_plain()), (5, Polled::Received(7, 9, 5)));
}

#[test]
fn a_success_that_is_declined_stays() {
    let p = Scripted::<false>::new();
    let mut q = cq(&p);
    for slot in 0..4 {
        p.put(RING + 64 * slot, &entry(7, 0, 8, slot as u16, 0, 0));
    }
    q.poll_sent(8, &[0; 9], |_, _| panic!("of another queue pair"));
    assert_eq!(q.poll_sent(7, &[0; 9], |_, token| token < 2), 2);
    assert_eq!((q.taken(), q.poll_plain()), (2, Polled::Sent(7, 2)));
    assert_eq!(p.bytes(RECORD, 4), [0, 0, 0, 3]);
    // The whole ring is no end: the next lap has another owner bit.
    q.poll_sent(7, &[0; 9], |_, _| true);
    q.poll_sent(7, &[0; 9], |_, _| true);
    assert_eq!((q.taken(), q.poll_plain()), (4, Polled::Empty));
}

/// Indices of completions have 24 bits: a queue of another name has none, whatever its lower bits.
#[test]
fn a_burst_is_of_one_name_whole() {
    let p = Scripted::<false>::new();
    let mut q = cq(&p);
    for (opcode, name) in [(0, 7), (2, 7), (0, 0xff_ffff), (2, 0xff_ffff)] {
        p.put(RING, &entry(name, 5, 0, 0, opcode, 0));
        for upper in [1, 0x80, 0xff] {
            let index = upper << 24 | name;
            assert_eq!(q.poll_sent(index, &[0; 4], |_, _| panic!("{index:#x}")), 0);
            q.poll_received(index, 0, 4, |_| panic!("{index:#x}"));
        }
    }
    assert_eq!(q.taken(), 0);
}

#[test]
fn what_a_receive_says_besides_its_length() {
    let arrivals = [
        (1, Arrived::WriteImmediate, 0x0a0b_0c0d),
        (2, Arrived::Message, 0),
        (3, Arrived::Immediate, 0x0a0b_0c0d),
        (4, Arrived::Invalidation, 0x0a0b_0c0d),
    ];
    for (opcode, arrived, immediate) in arrivals {
        let networks = [0_u8, 1, 2, 3].into_iter().zip([
            NetworkHeader::Unsaid,
            NetworkHeader::V6,
            NetworkHeader::V4,
            NetworkHeader::Unsaid,
        ]);
        for (solicited, (l3_type, network)) in [false, true].into_iter().cycle().zip(networks) {
            let mut bytes = entry(7, 512, 0, 3, opcode, u8::from(solicited) << 1);
            bytes[0x18..0x1c].copy_from_slice(&[0xfc | l3_type, 1, 2, 3]);
            bytes[0x24..0x28].copy_from_slice(&[0xa, 0xb, 0xc, 0xd]);
            let extra = poll_one(bytes).0.unwrap().extra;
            let golden = Extra { arrived, immediate, source_qpn: 0x01_0203, solicited, network };
            assert_eq!(extra, golden);
        }
    }
}

#[test]
fn an_entry_marked_as_empty_is_none_on_any_lap() {
    let p = Scripted::<false>::new();
    let mut q = cq(&p);
    q.arm(false);
    p.take();
    for low in [0, 1] {
        p.put(RING, &entry(1, 0, 8, 0, cqe::INVALID, low));
        assert_eq!((q.poll(), q.waiting(), q.skipped()), (None, 0, 0));
        assert_eq!(q.survey(0, |_| panic!("there is none")), 0);
        q.arm(false);
        assert_eq!(p.take().iter().filter(|op| matches!(op, Op::Write64(..))).count(), 0);
    }
    // So is one of the lap before.
    p.put(RING, &entry(1, 0, 8, 0, cqe::REQUESTER, 1));
    q.arm(false);
    assert_eq!((q.waiting(), p.take()), (0, vec![]));
}

#[test]
fn a_poll_skips_so_many_entries_and_no_more() {
    let p = Scripted::<false>::new();
    let ring = Ring::new(RING, 7);
    cq::clear(&p, &ring);
    let mut q = Cq::new(&p, ring, Record(RECORD), UAR).unwrap();
    for slot in 0..128 {
        p.put(RING + 64 * slot, &entry(1, 0, 8, 0, 9, 0));
    }
    for polls in 1..=2 {
        assert_eq!(q.poll(), None);
        assert_eq!((q.skipped(), q.waiting()), (64 * polls, 128 - 64 * polls));
    }
}

#[test]
fn the_last_completion_can_be_read_again() {
    let p = Scripted::<false>::new();
    let mut q = cq(&p);
    q.start_at(3);
    p.put(RING + 64 * 3, &entry(5, 0, 8, 11, cqe::REQUESTER_ERROR, 0));
    p.put(RING, &entry(5, 0, 8, 12, cqe::REQUESTER, 1));
    let taken = q.poll();
    assert!(taken.is_some_and(|completion| completion.token == 11));
    assert_eq!(q.last(), taken);
}

/// A device that writes each entry for whatever lap is asked for.
#[test]
fn a_survey_ends_after_one_lap_whatever_the_device_writes() {
    let p = Scripted::<false>::new();
    let mut q = cq(&p);
    for slot in 0..4 {
        p.put(RING + 64 * slot, &entry(1, 0, 8, 0, 0, 0));
    }
    q.start_at(2);
    let mut looks = 0_u32;
    p.look(move |offset, value| {
        if offset % 64 != 0x3c {
            return value;
        }
        looks += 1;
        assert!(looks <= 4, "it looks without end");
        u32::from_be(value).wrapping_add(u32::from(looks > 2)).to_be()
    });
    let mut seen = 0;
    assert_eq!(q.survey(0, |_| seen += 1), 6);
    assert_eq!(seen, 4);
}

#[test]
fn a_survey_goes_on_where_it_ended() {
    let p = Scripted::<false>::new();
    let mut q = cq(&p);
    for slot in 0..3_u16 {
        p.put(RING + 64 * usize::from(slot), &entry(1, 0, 8, slot, 0, 0));
    }
    assert!(q.poll().is_some());
    for (from, tokens) in [(0, vec![1, 2]), (1, vec![1, 2]), (2, vec![2]), (3, vec![]), (9, vec![])]
    {
        let mut seen = Vec::new();
        let end = q.survey(from, |completion| seen.push(completion.token));
        assert_eq!(seen, tokens, "from {from}");
        assert!(end >= 3);
    }
    assert_eq!((q.written(), q.taken()), (3, 1));
}

#[test]
fn a_ring_without_an_end_is_said_to_be_none() {
    let p = Scripted::<false>::new();
    let mut q = cq(&p);
    p.put(RING, &entry(7, 0, 8, 1, cqe::REQUESTER, 0));
    let ring = Ring::new(0x4000, 3);
    q.clear_ahead(&ring);
    assert!(!q.move_to(&ring));
}

#[test]
fn a_sweep_takes_one_queue_pair_out_and_keeps_the_rest_in_order() {
    for turn in 0..8_u8 {
        let p = Scripted::<false>::new();
        let mut q = cq(&p);
        // The ring is swept wherever its reader stands, in either lap.
        for at in 0..turn {
            let lap = at >> LOG & 1;
            let place = RING + 64 * usize::from(at & 3);
            p.put(place, &entry(9, 0, 8, u16::from(at), 0, lap));
            assert!(q.poll().is_some());
        }
        for (n, (index, opcode)) in (0_u8..).zip([(5, 2), (7, 0), (5, 13), (7, 2)]) {
            let at = turn + n;
            let lap = at >> LOG & 1;
            let place = RING + 64 * usize::from(at & 3);
            let bytes = entry(index, 0, 8, 100 + u16::from(n), opcode, lap);
            p.put(place, &bytes);
        }
        let mut gone = Vec::new();
        q.sweep(5, |direction, token| gone.push((direction, token)));
        gone.reverse();
        assert_eq!(gone, [(Direction::Recv, 100), (Direction::Send, 102)]);
        let left = [q.poll(), q.poll(), q.poll()].map(|c| c.map(|c| (c.index, c.token)));
        assert_eq!(left, [Some((7, 101)), Some((7, 103)), None], "{turn}");
        assert_eq!(p.bytes(RECORD, 4), [0, 0, 0, turn + 4], "{turn}");
    }
}

#[test]
fn a_sweep_moves_before_it_gives_entries_back() {
    let p = Scripted::<false>::new();
    let mut q = cq(&p);
    p.put(RING, &entry(7, 0, 8, 1, 0, 0));
    p.take();
    let stored = || {
        let mut log = p.take();
        log.retain(|op| *op != Op::AfterOwnership);
        log
    };
    q.sweep(5, |_, _| panic!("none of it"));
    assert_eq!(stored(), [], "nothing to move, nothing to say");
    p.put(RING + 64, &entry(5, 0, 8, 2, 0, 0));
    p.put(RING + 128, &entry(7, 0, 8, 3, 0, 0));
    q.sweep(5, |_, token| assert_eq!(token, 2));
    let moved = entry(7, 0, 8, 1, 0, 0).to_vec();
    let golden =
        [Op::Store(RING + 64, moved), Op::BeforeDoorbell, Op::Store(RECORD, vec![0, 0, 0, 1])];
    assert_eq!(stored(), golden);
}

/// Entries of no queue pair stay, whatever is in their index.
#[test]
fn a_sweep_leaves_what_is_of_no_queue_pair() {
    let p = Scripted::<false>::new();
    let mut q = cq(&p);
    for (slot, opcode) in [(0, 5), (1, 0), (2, 9)] {
        p.put(RING + 64 * slot, &entry(5, 0, 8, slot as u16, opcode, 0));
    }
    let mut gone = Vec::new();
    q.sweep(5, |_, token| gone.push(token));
    assert_eq!((gone, q.waiting()), (vec![1], 2));
}
