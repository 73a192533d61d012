//! Impaired wires at DAT level: with frames lost, duplicated, reordered or corrupted, the
//! consumers' bytes are right and in order.
#![expect(
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    clippy::needless_range_loop,
    reason = "test code: a panic here is a failed test with a line number"
)]

use std::time::Duration;

use dat_core::{CloseFlag, DtoOperation, DtoStatus, Event, SrqAttr};
use dat_tests::pair::Stage;
use dat_tests::session::line::packet;
use dat_tests::session::{NONE, Session, Setup};
use dat_tests::soak::lossy;
use mlx5_model::Stats;
use mlx5_model::wire::impair::{Fault, Rates};
use mlx5_model::wire::opcode::Opcode;
use proptest::prelude::*;

/// Requests of one round and one side. They go three a slice of memory: send, write, read.
const SLICES: usize = 6;
const SLICE: usize = 0x1000;

/// Both sides send, write and read at once, with several in flight, and everything is checked.
fn storm(session: &mut Session<'_>, rounds: u32, lengths: &[usize]) {
    let base = |kind: usize| kind * SLICES * SLICE;
    let len_of =
        |round: u32, n: usize| lengths[(round as usize * 7 + n) % lengths.len()].min(SLICE);
    for round in 0..rounds {
        for side in 0..2 {
            for n in 0..SLICES {
                session.recv(side, base(0) + n * SLICE, SLICE, n as u64);
            }
        }
        // Memory: received here, written here by the peer, read by the peer, read from the peer,
        // source of the peer's data.
        for side in 0..2_usize {
            for n in 0..SLICES {
                let (at, len) = (n * SLICE, len_of(round, n));
                let id = (round * 2 + side as u32) * 100 + n as u32;
                session.fill(side, base(4) + at, len, id);
                session.fill(1 - side, base(2) + at, len, id + 50);
                session.send(side, base(4) + at, len, n as u64);
                let to = session.far(1 - side, base(1) + at, len);
                session.write_to(side, base(4) + at, len, to, n as u64 + 100);
                let from = session.far(1 - side, base(2) + at, len);
                session.read_from(side, base(3) + at, len, from, n as u64 + 200);
            }
        }
        for side in 0..2 {
            for n in 0..SLICES {
                let (at, len) = (n * SLICE, len_of(round, n));
                let id = (round * 2 + side as u32) * 100 + n as u32;
                session.requested(side, DtoOperation::Send, n as u64);
                session.requested(side, DtoOperation::RdmaWrite, n as u64 + 100);
                assert_eq!(
                    session.requested(side, DtoOperation::RdmaRead, n as u64 + 200) as usize,
                    len
                );
                assert_eq!(session.received(1 - side, n as u64) as usize, len);
                session.check(1 - side, base(0) + at, len, id);
                session.check(1 - side, base(1) + at, len, id);
                session.check(side, base(3) + at, len, id + 50);
            }
        }
    }
}

fn setup(mtu: u16, seed: u64) -> Setup {
    let stage = Stage { mtu: Some(mtu), seed, ..Stage::default() };
    Setup { stage, bytes: 5 * SLICES * SLICE, ..Setup::default() }
}

const LENGTHS: [usize; 7] = [4096, 1, 256, 1000, 0, 2049, 64];

fn through(setup: &Setup, rates: Rates, rounds: u32) {
    setup.connected(|session| {
        session.lines.iter().for_each(|line| line.rates(rates));
        storm(session, rounds, &LENGTHS);
        for line in &session.lines {
            let struck = line.struck();
            for (rate, count) in [
                (rates.drop, struck.drop),
                (rates.duplicate, struck.duplicate),
                (rates.corrupt, struck.corrupt),
                (rates.reorder, struck.reorder),
                (rates.pkey, struck.pkey),
            ] {
                assert_eq!(rate == 0, count == 0, "{struck:?}");
            }
        }
        let again: u64 =
            session.pair.slots.iter().map(|slot| slot.hca().stats().retransmissions).sum();
        let counted = |count: fn(&Stats) -> u64| -> u64 {
            let slots = session.pair.slots.iter();
            slots.map(|slot| count(slot.hca().stats())).sum()
        };
        let wrong = counted(|stats| stats.frames_wrong_pkey);
        let others = counted(|stats| stats.frames_malformed) - wrong;
        assert_eq!(rates.pkey == 0, wrong == 0, "{wrong} dropped");
        assert_eq!(rates.corrupt == 0, others == 0, "{others} dropped");
        let lossy = rates.drop + rates.corrupt + rates.pkey != 0;
        assert!(again != 0 || !lossy, "nothing was sent again");
        // It is still the same connection, over a good wire.
        session.lines.iter().for_each(|line| line.rates(Rates::default()));
        storm(session, 1, &LENGTHS);
        session.expect_no_event(Duration::from_millis(5));
    });
}

#[test]
fn frames_of_another_partition_are_dropped_and_nothing_else_happens() {
    for seed in 0..3 {
        through(&setup(1024, 90 + seed), Rates { pkey: 100, ..Rates::default() }, 4);
    }
}

#[test]
fn losses() {
    for (n, drop) in [10, 50, 100, 150].into_iter().enumerate() {
        through(&setup([256, 512, 1024, 4096][n], n as u64), Rates { drop, ..Rates::default() }, 8);
    }
}

#[test]
fn duplicates() {
    for (n, duplicate) in [20, 150, 500].into_iter().enumerate() {
        through(&setup(256 << n, 10 + n as u64), Rates { duplicate, ..Rates::default() }, 8);
    }
}

#[test]
fn reordering() {
    for (n, reorder) in [20, 80, 150].into_iter().enumerate() {
        through(&setup(256 << n, 20 + n as u64), Rates { reorder, ..Rates::default() }, 8);
    }
}

#[test]
fn corruption() {
    for (n, corrupt) in [20, 80, 150].into_iter().enumerate() {
        through(&setup(256 << n, 30 + n as u64), Rates { corrupt, ..Rates::default() }, 8);
    }
}

#[test]
fn everything_at_once() {
    for seed in 0..6 {
        let mut setup = setup(1024, 40 + seed);
        (setup.stage.ipv6, setup.stage.vlan) = (seed % 2 == 1, (seed % 3 == 0).then_some(9));
        through(
            &setup,
            Rates { drop: 40, duplicate: 40, corrupt: 40, reorder: 40, ..Rates::default() },
            8,
        );
    }
}

/// A short form of `cargo xtask soak --lossy`.
#[test]
fn fifteen_percent_of_each_fault_at_once() {
    let report = lossy::run(1 << 20, 80);
    eprintln!("{report}");
    assert!(report.bytes.iter().all(|bytes| *bytes >= 1 << 20));
    for struck in report.struck {
        let all = [struck.drop, struck.corrupt, struck.reorder, struck.duplicate];
        assert!(all.iter().all(|count| *count > 100), "{struck:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn any_wire(
        seed in any::<u64>(),
        (drop, duplicate, corrupt, reorder) in (0_u32..100, 0_u32..100, 0_u32..50, 0_u32..100),
        mtu in prop::sample::select(vec![256_u16, 512, 1024, 2048, 4096]),
        lengths in prop::collection::vec(0_usize..=SLICE, 1..20),
    ) {
        setup(mtu, seed).connected(|session| {
            session.lines.iter().for_each(|line| line.rates(Rates { drop, duplicate, corrupt, reorder, ..Rates::default() }));
            storm(session, 4, &lengths);
        });
    }
}

#[test]
fn one_fault_at_each_packet_of_each_operation() {
    setup(256, 50).connected(|session| {
        let faults = [
            Fault::Drop,
            Fault::Duplicate,
            Fault::Corrupt,
            Fault::Overtaken(2),
            Fault::Delay(50_000_000),
        ];
        let mut struck = [0_u64; 2];
        for kind in 0..3 {
            for side in 0..2 {
                for fault in faults {
                    for nth in 0..7 {
                        session.lines[side].rule(nth, 1, fault, |frame| {
                            packet(frame).is_some_and(|p| p.bth.dest_qp != 1)
                        });
                        let n = u32::from(session.look(0, 0, 1)[0]) + nth;
                        let cookie = u64::from(nth);
                        match kind {
                            0 => {
                                session.fill(0, 0, 1500, n);
                                session.recv(1, SLICE, SLICE, cookie);
                                session.send(0, 0, 1500, cookie);
                                session.requested(0, DtoOperation::Send, cookie);
                                assert_eq!(session.received(1, cookie), 1500);
                                session.check(1, SLICE, 1500, n);
                            }
                            1 => {
                                session.fill(0, 0, 1500, n);
                                session.write(0, 0, 1500, cookie);
                                session.requested(0, DtoOperation::RdmaWrite, cookie);
                                session.check(1, 0, 1500, n);
                            }
                            _ => {
                                session.fill(1, 0, 1500, n);
                                session.read(0, 0, 1500, cookie);
                                assert_eq!(
                                    session.requested(0, DtoOperation::RdmaRead, cookie),
                                    1500
                                );
                                session.check(0, 0, 1500, n);
                            }
                        }
                        // Delayed and duplicated frames arrive, and do no harm.
                        session.expect_no_event(Duration::from_millis(60));
                    }
                }
            }
        }
        for side in 0..2 {
            let s = session.lines[side].struck();
            struck[side] = s.drop + s.duplicate + s.corrupt + s.reorder + s.delay;
        }
        assert!(struck[0] > 60 && struck[1] > 30, "{struck:?}");
    });
}

#[test]
fn a_link_that_is_down_for_a_while_in_mid_traffic() {
    for lengths in [[4096, 100], [0, 10]] {
        setup(1024, 60).connected(|session| {
            storm(session, 2, &lengths);
            for side in 0..2 {
                session.fill(0, 0, SLICE, side as u32);
                for n in 0..20 {
                    session.write(0, 0, SLICE, n);
                }
                session.pair.slots[side].hca().set_link(false);
                session.pass(Duration::from_millis(100));
                session.pair.slots[side].hca().set_link(true);
                assert_eq!(
                    session.requests(0, 20),
                    (0..20).map(|n| (n, DtoStatus::Success)).collect::<Vec<_>>()
                );
                session.check(1, 0, SLICE, side as u32);
                storm(session, 1, &lengths);
            }
        });
    }
}

#[test]
fn a_plug_out_for_a_while() {
    setup(1024, 61).connected(|session| {
        for side in 0..2 {
            for n in 0..20 {
                session.write(0, 0, SLICE, n);
            }
            session.lines[side].cut(true);
            session.pass(Duration::from_millis(200));
            session.lines[side].cut(false);
            assert_eq!(
                session.requests(0, 20),
                (0..20).map(|n| (n, DtoStatus::Success)).collect::<Vec<_>>()
            );
            storm(session, 2, &LENGTHS);
        }
    });
}

#[test]
fn graceful_disconnects_under_load_and_loss_lose_nothing() {
    for seed in 0..10 {
        setup(512, 70 + seed).connected(|session| {
            let rates =
                Rates { drop: 80, duplicate: 30, corrupt: 30, reorder: 30, ..Rates::default() };
            session.lines.iter().for_each(|line| line.rates(rates));
            for n in 0..12 {
                session.fill(0, n * SLICE, SLICE, n as u32 + 1);
                session.write(0, n * SLICE, SLICE, n as u64);
            }
            session.recv(0, 13 * SLICE, 64, 99);
            session.disconnect(0, CloseFlag::Graceful);
            assert_eq!(
                session.requests(0, 12),
                (0..12).map(|n| (n, DtoStatus::Success)).collect::<Vec<_>>()
            );
            assert_eq!(session.receives(0, 1), [(99, DtoStatus::ErrFlushed)]);
            let [a, b] = session.ended();
            assert_eq!(a, Event::Disconnected(session.sides[0].ep));
            assert_eq!(b, Event::Disconnected(session.sides[1].ep));
            for n in 0..12 {
                session.check(1, n * SLICE, SLICE, n as u32 + 1);
            }
            session.expect_no_event(Duration::from_secs(2));
        });
    }
}

/// Half a message has taken a receive of a Shared Receive Queue when its Endpoint goes. The queue
/// counts one receive less and has a slot for another: a queue pair that is reset without an error
/// before forgets what it has taken.
#[test]
fn half_a_message_does_not_take_a_shared_receive_away_for_ever() {
    let mut setup = setup(256, 20);
    setup.merged = true;
    setup.run(|session| {
        let (pz, evd) = (session.sides[1].pz, session.sides[1].request);
        let attr = SrqAttr { max_recv_dtos: 2, max_recv_iov: 1, low_watermark: 0 };
        let srq = session.pair.ias[1].srq_create(pz, &attr).unwrap();
        let member = |session: &mut Session<'_>| {
            let ia = &mut session.pair.ias[1];
            let attr = ia.ep_attr_default();
            ia.ep_create_with_srq(Some(pz), Some(evd), Some(evd), Some(evd), srq, &attr).unwrap()
        };
        let post = |session: &mut Session<'_>, cookie: u64| {
            let seg = session.seg(1, 0, SLICE);
            session.pair.ias[1].srq_post_recv(srq, &[seg], cookie)
        };
        let (ep, near) = (member(session), session.sides[0].ep);
        session.connect_eps(near, ep);
        (0..2).for_each(|cookie| post(session, cookie).unwrap());
        let last = |frame: &[u8]| packet(frame).is_some_and(|p| p.bth.opcode == Opcode::SendLast);
        session.lines[0].rule(0, u32::MAX, Fault::Drop, last);
        session.send(0, 0, 1024, 7);
        session.pass(Duration::from_millis(1));
        let now = session.now();
        session.pair.ias[1].ep_free(now, ep).unwrap();
        assert_eq!(session.pair.ias[1].srq_query(srq).unwrap().outstanding, 1);
        assert_eq!(session.requests(0, 1), [(7, DtoStatus::ErrFlushed)]);
        assert_eq!(session.connection(0), Event::Disconnected(near));
        let (ep, near) = (member(session), session.endpoint(0));
        session.connect_eps(near, ep);
        post(session, 2).unwrap();
        for cookie in [1, 2] {
            session.pair.ias[0].ep_post_send(near, &[], cookie, NONE).unwrap();
            assert_eq!(session.receives(1, 1), [(cookie, DtoStatus::Success)]);
        }
    });
}
