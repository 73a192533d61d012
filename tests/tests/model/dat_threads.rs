//! A poster and a reaper in two threads over the model: one posts, one reaps, a third lets time
//! pass and is the peer.
#![expect(
    clippy::cast_possible_truncation,
    reason = "test code: a panic here is a failed test with a line number"
)]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use dat_core::{
    CompletionFlags, DatType, DtoEvent, DtoOperation, DtoStatus, Event, LmrTriplet, RmrTriplet,
};
use dat_tests::host::inproc::Slot;
use dat_tests::session::{NONE, Setup, contents, pattern};

const OPERATIONS: u64 = 10_000;
/// Slots of memory that messages use in turn.
const PLACES: u64 = 32;
const SIZE: usize = 96;

/// Kind of the n-th operation: three kinds in turn.
fn kind(n: u64) -> DtoOperation {
    match n % 3 {
        0 => DtoOperation::Send,
        1 => DtoOperation::RdmaWrite,
        _ => DtoOperation::RdmaRead,
    }
}

/// Every fifth is silent, but never a read: its bytes are looked at when its event comes.
fn suppressed(n: u64) -> bool {
    n % 5 == 1 && kind(n) != DtoOperation::RdmaRead && n + 1 < OPERATIONS
}

fn is_sync<T: Sync>(_: &T) {}

#[test]
fn ten_thousand_operations_by_two_threads() {
    Setup::default().connected(|session| {
        is_sync::<Slot>(session.pair.slots[0]);
        let place = |n: u64| (n % PLACES) as usize * SIZE;
        // Side 1: 0x0000 received here, 0x4000 written here, 0x8000 read from here. Side 0: 0x0000
        // sources, 0x8000 sinks.
        for n in 0..PLACES {
            session.fill(1, 0x8000 + place(n), SIZE, 1_000_000 + n as u32);
            session.recv(1, place(n), SIZE, n);
        }
        let (ep, evd) = (session.sides[0].ep, session.sides[0].request);
        let mut poster = session.pair.ias[0].ep_take_poster(ep).unwrap();
        let mut reaper = session.pair.ias[0].evd_take_reaper(evd).unwrap();
        let (done, stop) = (AtomicU64::new(0), AtomicBool::new(false));
        let (lmr, peer) = (session.sides[0].lmr, session.sides[1].lmr);
        let (slot, base) = (session.pair.slots[0], session.sides[0].mem.addr());
        let deadline = Instant::now() + Duration::from_secs(60);
        let late = || Instant::now() > deadline || stop.load(Ordering::Relaxed);
        let write = |at: usize, bytes: &[u8]| {
            use hca_mlx5::platform::Platform;
            slot.write_bytes((base - slot.arena_addr()) as usize + at, bytes);
        };
        let read = |at: usize, bytes: &mut [u8]| {
            use hca_mlx5::platform::Platform;
            slot.read_bytes((base - slot.arena_addr()) as usize + at, bytes);
        };
        let (poster, reaper) = std::thread::scope(|threads| {
            let posting = threads.spawn(|| {
                for n in 0..OPERATIONS {
                    // A slot is used again when its last request is known to have completed.
                    while n >= done.load(Ordering::Acquire) + PLACES - 1 {
                        assert!(!late(), "operation {n} is not posted in time");
                        std::thread::yield_now();
                    }
                    let flags = if suppressed(n) { CompletionFlags::SUPPRESS } else { NONE };
                    let own = |at: usize| {
                        [LmrTriplet {
                            addr: lmr.region.addr + at as u64,
                            len: SIZE as u32,
                            context: lmr.lmr_context,
                        }]
                    };
                    let far = |at: usize| RmrTriplet {
                        addr: peer.region.addr + at as u64,
                        len: SIZE as u32,
                        context: peer.rmr_context,
                    };
                    write(place(n), &contents(n as u32, SIZE));
                    loop {
                        let posted = match kind(n) {
                            DtoOperation::Send => poster.post_send(&own(place(n)), n, flags),
                            DtoOperation::RdmaWrite => poster.post_rdma_write(
                                &own(place(n)),
                                n,
                                &far(0x4000 + place(n)),
                                flags,
                            ),
                            DtoOperation::RdmaRead
                            | DtoOperation::Receive
                            | DtoOperation::ReceiveWithInvalidate
                            | DtoOperation::BindMw
                            | DtoOperation::LmrFmr
                            | DtoOperation::LmrInvalidate => poster.post_rdma_read(
                                &own(0x8000 + place(n)),
                                n,
                                &far(0x8000 + place(n)),
                                flags,
                            ),
                        };
                        match posted {
                            Ok(()) => break,
                            Err(full) => assert_eq!(full.ty(), DatType::InsufficientResources),
                        }
                        assert!(!late(), "operation {n} is not posted in time");
                        std::thread::yield_now();
                    }
                }
                poster
            });
            let reaping = threads.spawn(|| {
                let mut next = 0;
                while next < OPERATIONS {
                    while suppressed(next) {
                        next += 1;
                    }
                    match reaper.dequeue() {
                        Ok(Event::Dto(DtoEvent {
                            cookie,
                            status: DtoStatus::Success,
                            operation,
                            len,
                            ..
                        })) => {
                            assert_eq!((cookie, operation, len as usize), (next, kind(next), SIZE));
                            if operation == DtoOperation::RdmaRead {
                                let mut bytes = [0; SIZE];
                                read(0x8000 + place(next), &mut bytes);
                                let id = 1_000_000 + (next % PLACES) as u32;
                                assert!(
                                    (0..SIZE).all(|i| bytes[i..=i] == [pattern(id, i)]),
                                    "read {next}"
                                );
                            }
                            next += 1;
                            done.store(next, Ordering::Release);
                        }
                        Ok(other) => panic!("after {next}: {other:?}"),
                        Err(_) => {
                            assert!(!late(), "operation {next} is not reaped in time");
                            std::thread::yield_now();
                        }
                    }
                }
                reaper
            });
            // The peer takes each message, checks it, and posts the receive again; and time passes.
            let mut sent = (0..OPERATIONS).filter(|&n| kind(n) == DtoOperation::Send);
            let mut cookie = 0;
            let mut expected = sent.next();
            while !(posting.is_finished() && reaping.is_finished() && expected.is_none()) {
                if late()
                    || posting.is_finished()
                        && reaping.is_finished()
                        && done.load(Ordering::Acquire) < OPERATIONS
                {
                    stop.store(true, Ordering::Relaxed);
                    break;
                }
                session.pair.turn_by(2_000);
                while let Ok(event) = session.pair.ias[1].evd_dequeue(session.sides[1].recv) {
                    let Event::Dto(DtoEvent { cookie: c, status: DtoStatus::Success, len, .. }) =
                        event
                    else {
                        stop.store(true, Ordering::Relaxed);
                        panic!("{event:?}");
                    };
                    let n = expected.unwrap();
                    assert_eq!((c, len as usize), (cookie % PLACES, SIZE));
                    session.check(1, place(c), SIZE, n as u32);
                    session.recv(1, place(c), SIZE, c);
                    (cookie, expected) = (cookie + 1, sent.next());
                }
            }
            (posting.join().unwrap(), reaping.join().unwrap())
        });
        session.pair.ias[0].ep_return_poster(poster).unwrap();
        session.pair.ias[0].evd_return_reaper(reaper).unwrap();
        // The last write into each slot has arrived.
        for n in
            (OPERATIONS - 3 * PLACES..OPERATIONS).filter(|&n| kind(n) == DtoOperation::RdmaWrite)
        {
            let last = (n + PLACES..OPERATIONS)
                .step_by(PLACES as usize)
                .all(|m| kind(m) != DtoOperation::RdmaWrite);
            if last {
                session.check(1, 0x4000 + place(n), SIZE, n as u32);
            }
        }
        session.write(0, 0, 64, 5);
        session.requested(0, DtoOperation::RdmaWrite, 5);
    });
}
