//! Payload in completions: the bytes of such an entry, where they go, and what they do not enter.
#![expect(clippy::cast_possible_truncation, reason = "the numbers are small")]

use std::sync::Mutex;
use std::vec;
use std::vec::Vec;

use dat_core::provider::{
    Arrived, Completion, CompletionQueue, Direction, Polled, RecvQueue, Region, Segment, Status,
};
use proptest::prelude::*;

use super::{Record, Ring};
use crate::data::cq::{self, Cq};
use crate::data::inline::{Landing, Object, Opened, Queue, bytes};
use crate::data::recv::Rq;
use crate::data::scripted::{ARENA_ADDR, Op, Scripted};
use crate::platform::Lend;
use crate::prm::cqe;

const RING: usize = 0x3000;
const RECORD: usize = 0x880;
const UAR: usize = 0x10000;
const RECEIVES: usize = 0x5000;
const DIRECTORIES: usize = 0x6000;
const OBJECTS: [usize; 2] = [4, 8];
const DATA: usize = 0x9000;
const PD: u32 = 0x21;
const QPN: u32 = 0x4d;
const KEY: u32 = 0x1234_5678;
const LENT: u32 = 0x1234_5701;
const LENT_ADDR: u64 = 0x8000_0000;
const SAYS: &[u8; 32] = b"thirty-two bytes of some message";

/// Sixteen receives of four segments at most.
fn queue() -> Queue {
    Queue { ring: Ring::new(RECEIVES, 4), log_stride: 6, index: 7, pd: PD }
}

/// What a host was asked to store in lent memory.
#[derive(Default)]
struct Lender(Mutex<Vec<(u64, Vec<u8>)>>);

impl Lend for Lender {
    fn lent(&self, _: Region) -> Option<u64> {
        None
    }
    fn write(&self, addr: u64, bytes: &[u8]) -> bool {
        self.0.lock().unwrap().push((addr, bytes.to_vec()));
        addr < LENT_ADDR + 0x100
    }
    fn shared(&self, _: &[u8; 40]) -> Option<Region> {
        None
    }
}

fn opened(lkey: u32, addr: u64, start: u64) -> Opened {
    Opened { lkey, pd: PD, start, len: 0x200, writable: true, addr }
}

/// A queue of completions, a queue of receives, and a region of 512 bytes of the arena and of lent
/// memory each, whose first bytes segments name by 0x100.
fn rig<'p>(
    p: &'p Scripted<false>,
    lender: &'p Lender,
) -> (Cq<'p, Scripted<false>>, Rq<'p, Scripted<false>>, Landing<'p, Scripted<false>>) {
    let ring = Ring::new(RING, 2);
    cq::clear(p, &ring);
    let mut cq = Cq::new(p, ring, Record(RECORD), UAR).unwrap();
    let landing = Landing::new(p, Some(lender), DIRECTORIES, OBJECTS).unwrap();
    cq.set_landing(landing);
    let rq = Rq::new(p, Ring::new(RECEIVES, 4), 6, Record(RECORD + 0x40)).unwrap();
    landing.enter_queue(QPN, &queue());
    landing.enter_key(&opened(KEY, ARENA_ADDR + DATA as u64, 0x100));
    landing.enter_key(&opened(LENT, LENT_ADDR, 0x100));
    (cq, rq, landing)
}

const fn segment(addr: u64, len: u32) -> Segment {
    Segment { addr, len, lkey: KEY }
}

/// An entry of a short message, as the device writes it, on the first lap.
fn entry(counter: u16, len: u32) -> [u8; 64] {
    let mut bytes = [0; 64];
    bytes[..32].copy_from_slice(SAYS);
    bytes[0x20..0x24].copy_from_slice(&[0, 0, 0, 7]);
    bytes[0x24..0x28].copy_from_slice(&[0xca, 0xfe, 0, 1]);
    bytes[0x2c..0x30].copy_from_slice(&len.to_be_bytes());
    bytes[0x38..0x3c].copy_from_slice(&QPN.to_be_bytes());
    bytes[0x3c..0x3e].copy_from_slice(&counter.to_be_bytes());
    bytes[0x3e] = 0xa7;
    bytes[0x3f] = cqe::RESPONDER_SEND_IMM << 4 | cqe::INLINE_32 << 2;
    bytes
}

fn take(p: &Scripted<false>, cq: &mut Cq<'_, Scripted<false>>, bytes: &[u8; 64]) -> Completion {
    let slot = cq.taken() as usize & 3;
    let mut bytes = *bytes;
    bytes[0x3f] |= u8::from(cq.taken() & 4 != 0);
    p.put(RING + 64 * slot, &bytes);
    assert_eq!(cq.poll_plain(), Polled::Other);
    cq.poll().unwrap()
}

#[test]
fn a_message_goes_where_its_receive_says() {
    for len in 0..=32_usize {
        let (p, lender) = (Scripted::<false>::new(), Lender::default());
        let (mut cq, mut rq, _) = rig(&p, &lender);
        rq.recv(&[segment(0x103, 64)]);
        let found = take(&p, &mut cq, &entry(0, len as u32));
        let golden = [&SAYS[..len], &[0; 32][len..]].concat();
        assert_eq!(p.bytes(DATA, 3), [0; 3]);
        assert_eq!(p.bytes(DATA + 3, 32), golden);
        assert_eq!((found.len, found.token, found.status), (len as u32, 0, Status::Success));
        assert_eq!((found.index, found.direction), (7, Direction::Recv));
        assert_eq!((found.extra.arrived, found.extra.immediate), (Arrived::Immediate, 0xcafe_0001));
        assert_eq!((cq.taken(), cq.skipped(), cq.last()), (1, 0, Some(found)));
        assert!(lender.0.lock().unwrap().is_empty());
    }
}

/// The receives of a ring are found on every lap of it.
#[test]
fn a_list_is_filled_in_order() {
    let (p, lender) = (Scripted::<false>::new(), Lender::default());
    let (mut cq, mut rq, _) = rig(&p, &lender);
    for token in 0..40_u16 {
        p.put(DATA, &[0; 0x200]);
        rq.recv(&[segment(0x100, 5), segment(0x110, 1), segment(0x120, 20), segment(0x2f0, 16)]);
        let found = take(&p, &mut cq, &entry(token, 32));
        assert_eq!((found.token, found.status), (token, Status::Success));
        for (at, part) in [(0, 0..5), (0x10, 5..6), (0x20, 6..26), (0x1f0, 26..32)] {
            let bytes = p.bytes(DATA + at, part.len() + 1);
            assert_eq!(bytes, [&SAYS[part], &[0]].concat(), "{token}");
        }
    }
}

#[test]
fn lent_memory_is_the_hosts_to_store() {
    let (p, lender) = (Scripted::<false>::new(), Lender::default());
    let (mut cq, mut rq, _) = rig(&p, &lender);
    let lent = |addr, len| Segment { addr, len, lkey: LENT };
    rq.recv(&[lent(0x110, 4), segment(0x100, 4), lent(0x180, 40)]);
    rq.recv(&[lent(0x201, 40)]);
    assert_eq!(take(&p, &mut cq, &entry(0, 10)).status, Status::Success);
    let stored = [(LENT_ADDR + 0x10, SAYS[..4].to_vec()), (LENT_ADDR + 0x80, SAYS[8..10].to_vec())];
    assert_eq!(*lender.0.lock().unwrap(), stored);
    assert_eq!(p.bytes(DATA, 5), [&SAYS[4..8], &[0]].concat());
    // The host has not lent that.
    assert_eq!(take(&p, &mut cq, &entry(1, 32)).status, Status::LocalProtection);
}

/// What the device would not have let in fails, and changes nothing.
#[test]
fn what_no_key_lets_in_fails() {
    type Change = fn(&Landing<'_, Scripted<false>>, u64);
    let changes: [(&str, Segment, Change); 9] = [
        ("ended", segment(0x100, 32), |l, _| assert!(l.remove(Object::Key(KEY)).is_some())),
        ("another key of the index", segment(0x100, 32), |l, arena| {
            let _ = l.remove(Object::Key(KEY));
            l.enter_key(&opened(KEY ^ 1, arena, 0x100));
        }),
        ("no right to write", segment(0x100, 32), |l, arena| {
            let _ = l.remove(Object::Key(KEY));
            l.enter_key(&Opened { writable: false, ..opened(KEY, arena, 0x100) });
        }),
        ("another domain", segment(0x100, 32), |l, arena| {
            let _ = l.remove(Object::Key(KEY));
            l.enter_key(&Opened { pd: PD + 1, ..opened(KEY, arena, 0x100) });
        }),
        ("before the region", segment(0xff, 32), |_, _| {}),
        ("beyond the region", segment(0x2e1, 32), |_, _| {}),
        ("round the end of addresses", segment(u64::MAX - 3, 32), |_, _| {}),
        ("longer than the receive", segment(0x100, 31), |_, _| {}),
        ("of another queue pair", segment(0x100, 32), |l, _| {
            let _ = l.remove(Object::Queue(QPN));
            l.enter_queue(QPN, &Queue { index: 8, ..queue() });
        }),
    ];
    for (what, segment, change) in changes {
        let (p, lender) = (Scripted::<false>::new(), Lender::default());
        let (mut cq, mut rq, landing) = rig(&p, &lender);
        rq.recv(&[segment]);
        change(&landing, ARENA_ADDR + DATA as u64);
        let found = take(&p, &mut cq, &entry(0, 32));
        assert_eq!((found.status, found.token), (Status::LocalProtection, 0), "{what}");
        let fits = what == "longer than the receive";
        let golden = if fits { [&SAYS[..31], &[0; 0x1e1]].concat() } else { vec![0; 0x200] };
        assert_eq!(p.bytes(DATA, 0x200), golden, "{what}");
    }
}

#[test]
fn whoever_only_looks_copies_nothing() {
    let (p, lender) = (Scripted::<false>::new(), Lender::default());
    let (mut cq, mut rq, _) = rig(&p, &lender);
    rq.recv(&[segment(0x100, 32)]);
    p.put(RING, &entry(0, 32));
    let mut seen = Vec::new();
    cq.survey(0, |completion| seen.push((completion.token, completion.len)));
    assert_eq!((seen, cq.written()), (vec![(0, 32)], 1));
    cq.sweep(8, |_, _| panic!("of another"));
    cq.sweep(7, |direction, token| assert_eq!((direction, token), (Direction::Recv, 0)));
    assert_eq!((cq.poll(), p.bytes(DATA, 32)), (None, vec![0; 32]));
}

/// The queue goes on in another ring, and the payload with it.
#[test]
fn payload_is_carried_over() {
    let (p, lender) = (Scripted::<false>::new(), Lender::default());
    let (mut cq, mut rq, _) = rig(&p, &lender);
    rq.recv(&[segment(0x100, 32)]);
    p.put(RING, &entry(0, 32));
    let mut end = [0; 64];
    end[0x3f] = cqe::RESIZED << 4;
    p.put(RING + 64, &end);
    let other = Ring::new(0x4000, 3);
    cq.clear_ahead(&other);
    assert!(cq.move_to(&other));
    assert_eq!(cq.poll().map(|found| found.status), Some(Status::Success));
    assert_eq!(p.bytes(DATA, 32), SAYS);
}

#[test]
fn entries_that_cannot_be_are_nonsense() {
    type Change = fn(&mut [u8; 64]);
    let cases: [(Change, bool); 5] = [
        (|e| e[0x2f] = 33, true),
        (|e| e[0x2c] = 0x80, true),
        (|e| e[0x3f] = cqe::RESPONDER_WRITE_IMM << 4 | 4, true),
        (|e| e[0x3f] = cqe::REQUESTER << 4 | 4, true),
        (|e| e[0x3f] = cqe::RESPONDER_SEND << 4 | 4, false),
    ];
    for (n, (change, nonsense)) in cases.into_iter().enumerate() {
        let (p, lender) = (Scripted::<false>::new(), Lender::default());
        let (mut cq, mut rq, _) = rig(&p, &lender);
        rq.recv(&[segment(0x100, 64)]);
        let mut bytes = entry(0, 32);
        change(&mut bytes);
        p.put(RING, &bytes);
        assert_eq!((cq.poll().is_none(), cq.skipped()), (nonsense, nonsense.into()), "{n}");
        assert_eq!(p.bytes(DATA, 32) == vec![0; 32], nonsense, "{n}");
    }
    // Of 64 bytes: entries of this driver have no room for that. And where it was not asked for.
    for (format, asked) in [(2, true), (cqe::INLINE_32, false)] {
        let (p, lender) = (Scripted::<false>::new(), Lender::default());
        let (mut cq, mut rq, _) = rig(&p, &lender);
        if !asked {
            cq = Cq::new(&p, Ring::new(RING, 2), Record(RECORD), UAR).unwrap();
        }
        rq.recv(&[segment(0x100, 64)]);
        let mut bytes = entry(0, 32);
        bytes[0x3f] = cqe::RESPONDER_SEND << 4 | format << 2;
        p.put(RING, &bytes);
        assert_eq!((cq.poll(), cq.skipped(), p.bytes(DATA, 1)), (None, 1, vec![0]));
    }
}

/// The message is read after the entry is known to be the driver's, and copied before the entry is
/// the device's again.
#[test]
fn the_copy_lies_between_fence_and_index() {
    let (p, lender) = (Scripted::<false>::new(), Lender::default());
    let (mut cq, mut rq, _) = rig(&p, &lender);
    rq.recv(&[segment(0x100, 32)]);
    p.put(RING, &entry(0, 32));
    p.take();
    p.log_loads(true);
    assert!(cq.poll().is_some());
    let log = p.take();
    let at = |op: Op| log.iter().position(|found| *found == op).unwrap();
    let order = [
        at(Op::AfterOwnership),
        at(Op::Load(RING, 32)),
        at(Op::Store(DATA, SAYS.to_vec())),
        at(Op::Store(RECORD, vec![0, 0, 0, 1])),
    ];
    assert!(order.is_sorted(), "{log:?}");
}

#[test]
fn objects_come_and_go_in_a_full_directory() {
    let (p, lender) = (Scripted::<false>::new(), Lender::default());
    let (mut cq, mut rq, landing) = rig(&p, &lender);
    let arena = ARENA_ADDR + DATA as u64;
    let key = |n: u32| (n % 24) << 8 | 0x5a;
    // Eight are in at a time, two of them those of the rig.
    for n in 0..200_u32 {
        landing.enter_key(&opened(key(n), arena, u64::from(n)));
        if n >= 5 {
            assert!(landing.remove(Object::Key(key(n - 5))).is_some());
        }
        p.put(DATA, &[0; 32]);
        let oldest = n.saturating_sub(4);
        for (counter, m) in (oldest..=n).enumerate() {
            let token = rq.recv(&[Segment { addr: u64::from(m), len: 32, lkey: key(m) }]);
            let found = take(&p, &mut cq, &entry(token, 32));
            assert_eq!(found.status, Status::Success, "{n}: {m}, {counter}");
        }
        assert_eq!(p.bytes(DATA, 32), SAYS);
        if n >= 5 {
            let gone = n - 5;
            let token = rq.recv(&[Segment { addr: gone.into(), len: 32, lkey: key(gone) }]);
            assert_eq!(take(&p, &mut cq, &entry(token, 32)).status, Status::LocalProtection);
        }
    }
    assert_eq!(bytes(OBJECTS), 12 * 64);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever stands in the entry, the receive and the directories, which a device without an
    /// IOMMU may write: nothing outside the arena is touched.
    #[test]
    fn any_bytes_are_survived(
        first in prop::collection::vec(any::<u8>(), 64),
        receives in prop::collection::vec(any::<u8>(), 1024),
        directories in prop::collection::vec(any::<u8>(), 12 * 64),
        kept in 0..3_u8,
    ) {
        let (p, lender) = (Scripted::<false>::new(), Lender::default());
        let (mut cq, mut rq, _) = rig(&p, &lender);
        rq.recv(&[segment(0x100, 32)]);
        let mut bytes = entry(0, 32);
        if kept != 0 {
            bytes[..32].copy_from_slice(&first[..32]);
        } else {
            bytes[..0x3f].copy_from_slice(&first[..0x3f]);
        }
        if kept != 1 {
            p.put(RECEIVES, &receives);
        }
        if kept != 2 {
            // The words of state stay, or little would be found.
            for (slot, entry) in directories.chunks(64).enumerate() {
                p.put(DIRECTORIES + 64 * slot + 8, &entry[8..]);
            }
        }
        p.put(RING, &bytes);
        let _ = cq.poll();
        prop_assert!(cq.taken() <= 1);
    }
}
