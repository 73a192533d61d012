//! Data transfer at DAT level, over the driver and the model: every kind, size, MTU and segment
//! list, contents verified.
//!
//! Length: one test per rule of transfers, on one harness.
#![expect(
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    clippy::needless_range_loop,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "test code: a panic here is a failed test with a line number"
)]

use std::time::Duration;

use dat_core::provider::Moderation;
use dat_core::{
    CompletionFlags, DtoEvent, DtoOperation, DtoStatus, EpModify, EvdFlags, Event, LmrTriplet,
    RmrTriplet,
};
use dat_tests::pair::Stage;
use dat_tests::session::{NONE, Session, Setup, contents, ending};
use proptest::prelude::*;

const MEBI: usize = 1 << 20;

fn stage(mtu: u16) -> Setup {
    Setup {
        stage: Stage { mtu: Some(mtu), seed: mtu.into(), ..Stage::default() },
        ..Setup::default()
    }
}

/// One message of `len` bytes each way and by each operation, at odd addresses, with the bytes
/// around it looked at.
fn every_kind(session: &mut Session<'_>, len: usize, n: u32) {
    let (from, to) = (0x101, 0x8003);
    for side in [0, 1] {
        let cookie = u64::from(n) << 1 | side as u64;
        let n = n * 2 + side as u32;
        let guard = 16;
        let around = |session: &Session<'_>, side: usize| {
            [session.look(side, to - guard, guard), session.look(side, to + len, guard)]
        };

        session.fill(side, from, len, 3 * n);
        let before = around(session, 1 - side);
        session.recv(1 - side, to, len + guard, cookie);
        session.send(side, from, len, cookie);
        session.requested(side, DtoOperation::Send, cookie);
        assert_eq!(session.received(1 - side, cookie) as usize, len);
        session.check(1 - side, to, len, 3 * n);
        assert_eq!(around(session, 1 - side), before);

        session.fill(side, from, len, 3 * n + 1);
        let far = session.far(1 - side, to, len);
        session.write_to(side, from, len, far, cookie);
        session.requested(side, DtoOperation::RdmaWrite, cookie);
        session.check(1 - side, to, len, 3 * n + 1);
        assert_eq!(around(session, 1 - side), before);

        session.fill(1 - side, from, len, 3 * n + 2);
        let before = around(session, side);
        let far = session.far(1 - side, from, len);
        session.read_from(side, to, len, far, cookie);
        assert_eq!(session.requested(side, DtoOperation::RdmaRead, cookie) as usize, len);
        session.check(side, to, len, 3 * n + 2);
        assert_eq!(around(session, side), before);
    }
}

fn sizes_around(setup: &Setup) {
    let mtu = usize::from(setup.stage.mtu.unwrap());
    let sizes = [0, 1, 7, 8, 9, 63, 64, 65, mtu - 1, mtu, mtu + 1, 2 * mtu, 3 * mtu + 5];
    setup.connected(|session| {
        for (n, &len) in sizes.iter().enumerate() {
            every_kind(session, len, n as u32);
        }
    });
}

#[test]
fn sizes_at_mtu_256() {
    sizes_around(&stage(256));
}

#[test]
fn sizes_at_mtu_512() {
    sizes_around(&stage(512));
}

#[test]
fn sizes_at_mtu_1024() {
    sizes_around(&stage(1024));
}

#[test]
fn sizes_at_mtu_2048() {
    sizes_around(&stage(2048));
}

#[test]
fn sizes_at_mtu_4096() {
    sizes_around(&stage(4096));
}

#[test]
fn sizes_over_ipv6() {
    let mut setup = stage(1024);
    setup.stage.ipv6 = true;
    sizes_around(&setup);
}

#[test]
fn sizes_in_a_vlan() {
    let mut setup = stage(4096);
    setup.stage.vlan = Some(77);
    sizes_around(&setup);
}

#[test]
fn sizes_over_ipv6_in_a_vlan() {
    let mut setup = stage(2048);
    (setup.stage.ipv6, setup.stage.vlan) = (true, Some(4094));
    sizes_around(&setup);
}

#[test]
fn the_smaller_mtu_of_the_two_counts() {
    let setup = stage(1024);
    setup.connected(|session| {
        session.lines[0].record();
        session.fill(0, 0, 5000, 1);
        session.write(0, 0, 5000, 1);
        session.requested(0, DtoOperation::RdmaWrite, 1);
        let longest = session.lines[0].recorded().iter().map(Vec::len).max().unwrap();
        assert!((1024..1024 + 114).contains(&longest), "{longest}");
    });
}

#[test]
fn every_packet_in_a_vlan_is_tagged() {
    let mut setup = stage(4096);
    setup.stage.vlan = Some(77);
    setup.run(|session| {
        session.lines[0].record();
        session.connect();
        session.traffic(1);
        let sent = session.lines[0].recorded();
        assert!(sent.len() > 5);
        for frame in sent {
            assert_eq!(&frame[12..16], &[0x81, 0x00, 0x00, 77], "{frame:02x?}");
        }
    });
}

#[test]
fn messages_of_a_mebibyte() {
    for mtu in [256, 4096] {
        let setup = Setup { bytes: 2 * MEBI, ..stage(mtu) };
        setup.connected(|session| {
            for side in [0, 1] {
                let n = side as u32 * 4;
                session.fill(side, 0, MEBI, n);
                session.recv(1 - side, MEBI, MEBI, 1);
                session.send(side, 0, MEBI, 2);
                session.requested(side, DtoOperation::Send, 2);
                assert_eq!(session.received(1 - side, 1) as usize, MEBI);
                session.check(1 - side, MEBI, MEBI, n);

                session.fill(side, 0, MEBI, n + 1);
                let far = session.far(1 - side, MEBI, MEBI);
                session.write_to(side, 0, MEBI, far, 3);
                session.requested(side, DtoOperation::RdmaWrite, 3);
                session.check(1 - side, MEBI, MEBI, n + 1);

                session.fill(1 - side, 0, MEBI, n + 2);
                let far = session.far(1 - side, 0, MEBI);
                session.read_from(side, MEBI, MEBI, far, 4);
                assert_eq!(session.requested(side, DtoOperation::RdmaRead, 4) as usize, MEBI);
                session.check(side, MEBI, MEBI, n + 2);
            }
        });
    }
}

/// Segments of one DTO that the adapter takes; a test below says so.
const MAX_SEGMENTS: usize = 10;

/// An Endpoint that takes as many segments as the adapter does.
fn many_segments() -> Setup {
    Setup {
        tweak: |attr| {
            let most = MAX_SEGMENTS as u8;
            (attr.max_recv_iov, attr.max_request_iov) = (most, most);
            (attr.max_rdma_read_iov, attr.max_rdma_write_iov) = (most, most);
        },
        ..stage(512)
    }
}

/// Offsets of segments of those lengths in a side's memory from `at` on, with holes between them.
fn scattered(
    session: &Session<'_>,
    side: usize,
    at: usize,
    lengths: &[usize],
) -> (Vec<LmrTriplet>, Vec<(usize, usize)>) {
    let mut next = at;
    let mut places = Vec::new();
    for &len in lengths {
        places.push((next, len));
        next += len + 13;
    }
    (places.iter().map(|&(at, len)| session.seg(side, at, len)).collect(), places)
}

fn gathered(session: &Session<'_>, side: usize, places: &[(usize, usize)]) -> Vec<u8> {
    places.iter().flat_map(|&(at, len)| session.look(side, at, len)).collect()
}

/// Gathers at one side, scatters at the other, by every operation.
fn lists(session: &mut Session<'_>, from: &[usize], to: &[usize], n: u32) {
    let len: usize = from.iter().sum();
    let room: usize = to.iter().sum();
    let (own, places) = scattered(session, 0, 0x40, from);
    let (theirs, their_places) = scattered(session, 1, 0x8001, to);
    for (i, &(at, part)) in places.iter().enumerate() {
        session.fill(0, at, part, n + i as u32);
    }
    let sent = gathered(session, 0, &places);
    let (a, b) = (session.sides[0].ep, session.sides[1].ep);
    session.pair.ias[1].ep_post_recv(b, &theirs, 1, NONE).unwrap();
    session.pair.ias[0].ep_post_send(a, &own, 2, NONE).unwrap();
    session.requested(0, DtoOperation::Send, 2);
    assert_eq!(session.received(1, 1) as usize, len);
    assert_eq!(gathered(session, 1, &their_places)[..len], sent);
    assert!(room >= len);

    let far = session.far(1, 0x100, len);
    session.pair.ias[0].ep_post_rdma_write(a, &own, 3, &far, NONE).unwrap();
    session.requested(0, DtoOperation::RdmaWrite, 3);
    assert_eq!(session.look(1, 0x100, len), sent);

    // And back: the other side reads what lies in one piece here, into its pieces.
    session.fill(0, 0x40, room, n + 99);
    let far = session.far(0, 0x40, room);
    session.pair.ias[1].ep_post_rdma_read(b, &theirs, 4, &far, NONE).unwrap();
    assert_eq!(session.requested(1, DtoOperation::RdmaRead, 4) as usize, room);
    assert_eq!(gathered(session, 1, &their_places), contents(n + 99, room));
}

#[test]
fn one_to_all_segments() {
    many_segments().connected(|session| {
        assert_eq!(session.pair.ias[0].query().0.max_iov_segments_per_dto as usize, MAX_SEGMENTS);
        for count in 1..=MAX_SEGMENTS {
            let from: Vec<_> = (0..count).map(|i| 1 + (i * 97 + count * 31) % 700).collect();
            let mut to: Vec<_> = (0..count).map(|i| 1 + (i * 57 + count * 11) % 500).collect();
            to[count - 1] += from.iter().sum::<usize>();
            lists(session, &from, &to, count as u32 * 200);
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn any_lists_of_segments(
        runs in prop::collection::vec(
            (prop::collection::vec(0_usize..900, 1..=MAX_SEGMENTS), prop::collection::vec(0_usize..900, 0..MAX_SEGMENTS)),
            1..8,
        )
    ) {
        many_segments().connected(|session| {
            for (n, (from, mut to)) in runs.into_iter().enumerate() {
                to.push(from.iter().sum());
                lists(session, &from, &to, n as u32 * 1000);
            }
        });
    }
}

#[test]
fn a_message_without_segments_and_a_receive_without_any() {
    Setup::default().connected(|session| {
        let (a, b) = (session.sides[0].ep, session.sides[1].ep);
        for _ in 0..3 {
            session.pair.ias[1].ep_post_recv(b, &[], 1, NONE).unwrap();
            session.pair.ias[0].ep_post_send(a, &[], 2, NONE).unwrap();
            session.requested(0, DtoOperation::Send, 2);
            assert_eq!(session.received(1, 1), 0);
            // The address and the key of a segment of no bytes mean nothing.
            let odd = [LmrTriplet { addr: 3, len: 0, context: 5 }];
            let far = RmrTriplet { addr: 7, len: 0, context: 9 };
            session.pair.ias[0].ep_post_rdma_write(a, &odd, 3, &far, NONE).unwrap();
            session.requested(0, DtoOperation::RdmaWrite, 3);
            session.pair.ias[0].ep_post_rdma_read(a, &odd, 4, &far, NONE).unwrap();
            assert_eq!(session.requested(0, DtoOperation::RdmaRead, 4), 0);
        }
    });
}

#[test]
fn a_short_message_leaves_the_rest_of_its_receive_alone() {
    Setup::default().connected(|session| {
        session.fill(0, 0, 100, 1);
        session.fill(1, 0, 8192, 2);
        session.recv(1, 0, 8192, 1);
        session.send(0, 0, 100, 2);
        assert_eq!(session.received(1, 1), 100);
        session.check(1, 0, 100, 1);
        assert_eq!(session.look(1, 100, 8092), contents(2, 8192)[100..]);
    });
}

#[test]
fn one_byte_written_changes_one_byte() {
    Setup::default().connected(|session| {
        session.fill(1, 0, 0x4000, 7);
        session.fill(0, 0, 1, 8);
        for at in [0, 1, 4095, 4096, 0x3fff] {
            let mut expected = session.all(1);
            expected[at] = contents(8, 1)[0];
            let far = session.far(1, at, 1);
            session.write_to(0, 0, 1, far, 1);
            session.requested(0, DtoOperation::RdmaWrite, 1);
            assert_eq!(session.all(1), expected);
        }
    });
}

#[test]
fn requests_of_all_kinds_complete_in_the_order_of_their_posts() {
    Setup::default().connected(|session| {
        for round in 0..8_u64 {
            for cookie in 0..15 {
                session.recv(1, 0x8000, 4000, cookie);
            }
            for cookie in 0..45 {
                let len = [10, 5000, 0, 300][(cookie as usize + round as usize) % 4];
                match cookie % 3 {
                    0 => session.send(0, 0, len.min(4000), cookie),
                    1 => session.write(0, 0x2000, len, cookie),
                    _ => session.read(0, 0x4000, len, cookie),
                }
            }
            let said: Vec<_> = (0..45).map(|cookie| (cookie, DtoStatus::Success)).collect();
            assert_eq!(session.requests(0, 45), said);
            assert_eq!(session.receives(1, 15), said[..15]);
        }
    });
}

#[test]
fn suppressed_requests_are_silent_and_done_when_a_later_one_is() {
    Setup::default().connected(|session| {
        let (ep, far) = (session.sides[0].ep, session.far(1, 0, 64));
        for round in 0..50_u64 {
            for n in 0..9 {
                session.fill(0, 64 * n, 64, n as u32 + round as u32);
                let own = [session.seg(0, 64 * n, 64)];
                let to = RmrTriplet { addr: far.addr + 64 * n as u64, ..far };
                session.pair.ias[0]
                    .ep_post_rdma_write(ep, &own, 1000, &to, CompletionFlags::SUPPRESS)
                    .unwrap();
            }
            session.write(0, 64 * 9, 64, round);
            session.requested(0, DtoOperation::RdmaWrite, round);
            assert!(session.pair.ias[0].ep_get_status(ep).unwrap().request_idle);
            for n in 0..9 {
                session.check(1, 64 * n, 64, n as u32 + round as u32);
            }
        }
        session.expect_no_event(Duration::from_millis(5));
    });
}

#[test]
fn an_error_of_a_suppressed_request_is_reported() {
    Setup::default().connected(|session| {
        let (ep, own) = (session.sides[0].ep, [session.seg(0, 0, 8)]);
        let far =
            RmrTriplet { context: session.sides[1].lmr.rmr_context ^ 1, ..session.far(1, 0, 8) };
        session.pair.ias[0]
            .ep_post_rdma_write(ep, &own, 5, &far, CompletionFlags::SUPPRESS)
            .unwrap();
        assert_eq!(session.requests(0, 1), [(5, DtoStatus::ErrRemoteAccess)]);
        session.ended();
    });
}

#[test]
fn deferred_requests_leave_with_the_ring() {
    Setup::default().connected(|session| {
        let (ep, own, far) = (session.sides[0].ep, [session.seg(0, 0, 64)], session.far(1, 0, 64));
        session.fill(0, 0, 64, 3);
        for cookie in 0..5 {
            session.pair.ias[0]
                .ep_post_rdma_write(ep, &own, cookie, &far, CompletionFlags::DEFER)
                .unwrap();
        }
        session.expect_no_event(Duration::from_millis(20));
        assert_eq!(session.look(1, 0, 64), vec![0; 64]);
        session.pair.ias[0].ep_ring(ep).unwrap();
        assert_eq!(
            session.requests(0, 5),
            [0, 1, 2, 3, 4].map(|cookie| (cookie, DtoStatus::Success))
        );
        session.check(1, 0, 64, 3);
    });
}

#[test]
fn a_fenced_send_carries_what_the_read_before_it_brought() {
    Setup::default().connected(|session| {
        let ep = session.sides[0].ep;
        for n in 0..10 {
            session.fill(1, 0, 9000, n);
            session.recv(1, 0x8000, 9000, 1);
            session.read(0, 0, 9000, 2);
            let own = [session.seg(0, 0, 9000)];
            session.pair.ias[0].ep_post_send(ep, &own, 3, CompletionFlags::BARRIER_FENCE).unwrap();
            assert_eq!(session.requests(0, 2), [(2, DtoStatus::Success), (3, DtoStatus::Success)]);
            session.received(1, 1);
            session.check(1, 0x8000, 9000, n);
        }
    });
}

#[test]
fn a_short_fenced_request_carries_what_the_read_before_it_brought() {
    Setup::default().connected(|session| {
        let (ep, fence) = (session.sides[0].ep, CompletionFlags::BARRIER_FENCE);
        for (n, len) in (0..).zip([8, 12, 28, 44, 8, 27]) {
            session.fill(1, 0, len, n);
            session.recv(1, 0x8000, len, 1);
            session.read(0, 0, len, 2);
            let (own, far) = ([session.seg(0, 0, len)], session.far(1, 0x9000, len));
            session.pair.ias[0].ep_post_send(ep, &own, 3, fence).unwrap();
            assert_eq!(session.requests(0, 2), [(2, DtoStatus::Success), (3, DtoStatus::Success)]);
            session.received(1, 1);
            session.check(1, 0x8000, len, n);
            session.fill(1, 0, len, n + 100);
            session.read(0, 0, len, 4);
            session.pair.ias[0].ep_post_rdma_write(ep, &own, 5, &far, fence).unwrap();
            assert_eq!(session.requests(0, 2), [(4, DtoStatus::Success), (5, DtoStatus::Success)]);
            session.check(1, 0x9000, len, n + 100);
        }
    });
}

/// The device goes on while the driver runs: a message may come while its dispatcher is resized.
#[test]
fn what_comes_during_a_resize_triggers_the_cno() {
    Setup::default().connected(|session| {
        session.pair.slots[1].run_beside(1);
        let evd = session.sides[1].recv;
        let cno = session.pair.ias[1].cno_create(None).unwrap();
        session.pair.ias[1].evd_modify_cno(evd, Some(cno)).unwrap();
        for n in 0..300 {
            session.recv(1, 0, 64, n);
            session.send(0, 0x100, 64, n);
            // The message is on its way, or at the device.
            (0..n % 4).for_each(|_| session.pair.world.turn_by(1_000));
            session.pair.ias[1].evd_resize(evd, 64 << (n & 1)).unwrap();
            (0..50).for_each(|_| session.pair.turn());
            session.pair.ias[1].cno_trigger(cno).unwrap_or_else(|e| panic!("message {n}: {e:?}"));
            assert_eq!(session.requests(0, 1), [(n, DtoStatus::Success)]);
            assert_eq!(session.receives(1, 1), [(n, DtoStatus::Success)]);
        }
        session.pair.ias[1].evd_modify_cno(evd, None).unwrap();
        session.pair.ias[1].cno_free(cno).unwrap();
    });
}

#[test]
fn a_message_too_long_for_its_receive() {
    Setup::default().connected(|session| {
        session.recv(1, 0, 99, 1);
        session.recv(1, 0, 99, 2);
        session.send(0, 0x4000, 100, 3);
        session.send(0, 0x4000, 10, 4);
        assert_eq!(
            session.receives(1, 2),
            [(1, DtoStatus::ErrLocalLength), (2, DtoStatus::ErrFlushed)]
        );
        assert_eq!(
            session.requests(0, 2),
            [(3, DtoStatus::ErrRemoteResponder), (4, DtoStatus::ErrFlushed)]
        );
        session.ended();
    });
}

#[test]
fn a_message_of_many_packets_too_long_for_its_receive_writes_nothing_behind_it() {
    stage(256).connected(|session| {
        session.fill(1, 0, 8192, 1);
        session.recv(1, 0, 1000, 1);
        session.send(0, 0x4000, 5000, 3);
        assert_eq!(session.receives(1, 1), [(1, DtoStatus::ErrLocalLength)]);
        assert_eq!(session.requests(0, 1), [(3, DtoStatus::ErrRemoteResponder)]);
        assert_eq!(session.look(1, 1000, 7192), contents(1, 8192)[1000..]);
        session.ended();
    });
}

#[test]
fn small_queues_go_round_thousands_of_times() {
    let setup =
        Setup { tweak: |attr| (attr.max_recv_dtos, attr.max_request_dtos) = (3, 5), ..stage(256) };
    setup.connected(|session| {
        for n in 0..3000_u64 {
            for cookie in 0..3 {
                session.recv(1, 0x8000 + 64 * cookie as usize, 64, 3 * n + cookie);
            }
            for cookie in 0..3 {
                session.fill(0, 64 * cookie as usize, 64, (3 * n + cookie) as u32);
                session.send(0, 64 * cookie as usize, 64, 3 * n + cookie);
            }
            for cookie in 0..3 {
                session.requested(0, DtoOperation::Send, 3 * n + cookie);
                session.received(1, 3 * n + cookie);
                session.check(1, 0x8000 + 64 * cookie as usize, 64, (3 * n + cookie) as u32);
            }
        }
    });
}

#[test]
fn more_requests_than_sixteen_bits_count() {
    Setup::default().connected(|session| {
        let (ep, own) = (session.sides[0].ep, [session.seg(0, 0, 4)]);
        let far = session.far(1, 0, 4);
        let (mut posted, mut done) = (0_u64, 0_u64);
        while done < 70_000 {
            while posted < 70_000 && posted - done < 60 {
                let flags = if posted % 4 == 3 { NONE } else { CompletionFlags::SUPPRESS };
                session.pair.ias[0].ep_post_rdma_write(ep, &own, posted, &far, flags).unwrap();
                posted += 1;
            }
            session.requested(0, DtoOperation::RdmaWrite, done | 3);
            done = (done | 3) + 1;
        }
        session.traffic(1);
    });
}

#[test]
fn packet_sequence_numbers_go_round() {
    // Each connection starts at a random number: connect until one starts near the end.
    let setup = Setup { bytes: MEBI, ..stage(256) };
    setup.run(|session| {
        let near = 0xff_0000;
        let start = loop {
            session.lines[0].record();
            session.connect();
            session.write(0, 0, 1, 1);
            session.requested(0, DtoOperation::RdmaWrite, 1);
            let sent = session.lines[0].recorded();
            let psn = sent
                .iter()
                .filter_map(|f| dat_tests::session::line::packet(f))
                .filter(|p| p.ext.reth.is_some());
            let psn = psn.map(|p| p.bth.psn).next().unwrap();
            if psn >= near {
                break psn;
            }
            session.disconnect(0, dat_core::CloseFlag::Abrupt);
            session.ended();
            for side in 0..2 {
                let ep = session.sides[side].ep;
                session.pair.ias[side].ep_reset(ep).unwrap();
            }
        };
        let (mut left, mut n) = (0x100_0000 - start, 0);
        while left > 0 {
            session.lines[0].record();
            session.fill(0, 0, MEBI, n);
            session.write(0, 0, MEBI, n.into());
            session.requested(0, DtoOperation::RdmaWrite, n.into());
            session.check(1, 0, MEBI, n);
            left = left.saturating_sub(session.lines[0].recorded().len() as u32);
            n += 1;
        }
        session.lines[0].record();
        session.traffic(9);
        let sent = session.lines[0].recorded();
        let last = sent
            .iter()
            .filter_map(|f| dat_tests::session::line::packet(f))
            .map(|p| p.bth.psn)
            .max()
            .unwrap();
        assert!(last < near, "{last:#x}: it did not go round");
    });
}

#[test]
fn many_endpoints_complete_on_one_dispatcher() {
    Setup { merged: true, ..Setup::default() }.run(|session| {
        let mut eps = vec![(session.sides[0].ep, session.sides[1].ep)];
        eps.extend((0..7).map(|_| (session.endpoint(0), session.endpoint(1))));
        for &(a, b) in &eps {
            session.connect_eps(a, b);
        }
        for round in 0..6_u32 {
            for (i, &(a, b)) in eps.iter().enumerate() {
                let (at, n) = (0x400 * i, 100 * round + i as u32);
                session.fill(0, at, 0x400, n);
                let (own, theirs) = ([session.seg(0, at, 0x400)], [session.seg(1, at, 0x400)]);
                session.pair.ias[1].ep_post_recv(b, &theirs, n.into(), NONE).unwrap();
                session.pair.ias[0].ep_post_send(a, &own, n.into(), NONE).unwrap();
                let far = session.far(1, 0x8000 + at, 0x400);
                session.pair.ias[0]
                    .ep_post_rdma_write(a, &own, u64::from(n) + 1000, &far, NONE)
                    .unwrap();
            }
            let mut said = [vec![], vec![]];
            for _ in 0..eps.len() {
                for (side, times) in [(0, 2), (1, 1)] {
                    for _ in 0..times {
                        let evd = session.sides[side].request;
                        match session.event(side, evd) {
                            Event::Dto(DtoEvent {
                                ep, cookie, status: DtoStatus::Success, ..
                            }) => {
                                said[side].push((ep, cookie));
                            }
                            other => panic!("{other:?}"),
                        }
                    }
                }
            }
            for (i, &(a, b)) in eps.iter().enumerate() {
                let n = u64::from(100 * round) + i as u64;
                let of = |side: usize, ep| {
                    said[side].iter().filter(|s| s.0 == ep).map(|s| s.1).collect::<Vec<_>>()
                };
                assert_eq!(of(0, a), [n, n + 1000]);
                assert_eq!(of(1, b), [n]);
                session.check(1, 0x400 * i, 0x400, n as u32);
                session.check(1, 0x8000 + 0x400 * i, 0x400, n as u32);
            }
        }
    });
}

#[test]
fn sends_wait_for_receives_that_are_late() {
    Setup::default().connected(|session| {
        for n in 0..4 {
            session.fill(0, 0x1000 * n, 0x1000, n as u32);
            session.send(0, 0x1000 * n, 0x1000, n as u64);
        }
        session.expect_no_event(Duration::from_millis(300));
        for n in 0..4 {
            session.recv(1, 0x1000 * n, 0x1000, n as u64);
            session.pass(Duration::from_millis(10));
        }
        for n in 0..4 {
            session.requested(0, DtoOperation::Send, n as u64);
            session.received(1, n as u64);
            session.check(1, 0x1000 * n, 0x1000, n as u32);
        }
        session.traffic(3);
    });
}

#[test]
fn late_receives_under_loss() {
    let setup = Setup::seed(11);
    setup.connected(|session| {
        let rates = mlx5_model::wire::impair::Rates { drop: 100, ..Default::default() };
        session.lines.iter().for_each(|line| line.rates(rates));
        for n in 0..40_u32 {
            session.fill(0, 0, 9000, n);
            session.send(0, 0, 9000, n.into());
            session.pass(Duration::from_millis(n.into()));
            session.recv(1, 0, 9000, n.into());
            session.requested(0, DtoOperation::Send, n.into());
            session.received(1, n.into());
            session.check(1, 0, 9000, n);
        }
    });
}

#[test]
fn more_reads_than_either_side_has_room_for() {
    for (out, into) in [(1, 1), (4, 1), (1, 4), (2, 3), (4, 4)] {
        let setup = Setup::default();
        setup.run(|session| {
            // Both ends are made anew with depths of their own.
            let mut made = [0, 1].map(|side| {
                let (ia, own) = (&mut session.pair.ias[side], &session.sides[side]);
                let mut attr = ia.ep_attr_default();
                (attr.max_rdma_read_out, attr.max_rdma_read_in) = (out, into);
                ia.ep_create(
                    Some(own.pz),
                    Some(own.recv),
                    Some(own.request),
                    Some(own.conn),
                    Some(&attr),
                )
                .unwrap()
            });
            for side in 0..2 {
                std::mem::swap(&mut session.sides[side].ep, &mut made[side]);
            }
            session.connect();
            for side in 0..2 {
                session.fill(1 - side, 0, 0x8000, side as u32);
                for n in 0..32 {
                    let far = session.far(1 - side, 0x400 * n, 0x400);
                    session.read_from(side, 0x8000 + 0x400 * n, 0x400, far, n as u64);
                }
            }
            for side in 0..2 {
                for n in 0..32 {
                    assert_eq!(session.requested(side, DtoOperation::RdmaRead, n), 0x400);
                }
                session.check(side, 0x8000, 0x8000, side as u32);
            }
        });
    }
}

#[test]
fn an_armed_dispatcher_is_notified_of_the_next_completion_once() {
    Setup::default().connected(|session| {
        let evd = session.sides[1].recv;
        let notices = |session: &mut Session<'_>| {
            session.pass(Duration::from_millis(5));
            u32::from(session.pair.ias[1].evd_take_notice(evd))
        };
        for cookie in 0..4 {
            session.recv(1, 0, 64, cookie);
        }
        assert_eq!(notices(session), 0);
        session.pair.ias[1].evd_arm(evd, false).unwrap();
        assert_eq!(notices(session), 0);
        session.send(0, 0, 64, 0);
        assert_eq!(notices(session), 1);
        session.send(0, 0, 64, 1);
        assert_eq!(notices(session), 0, "it was not armed again");
        // Only a solicited message counts now; the earlier one is not.
        for cookie in 0..2 {
            session.received(1, cookie);
        }
        session.pair.ias[1].evd_arm(evd, true).unwrap();
        session.send(0, 0, 64, 2);
        assert_eq!(notices(session), 0);
        let (ep, own) = (session.sides[0].ep, [session.seg(0, 0, 64)]);
        session.pair.ias[0].ep_post_send(ep, &own, 3, CompletionFlags::SOLICITED_WAIT).unwrap();
        assert_eq!(notices(session), 1);
        assert_eq!(session.requests(0, 4).len(), 4);
        assert_eq!(session.receives(1, 2), [(2, DtoStatus::Success), (3, DtoStatus::Success)]);
    });
}

/// The device tells of many at once, and of fewer when the period since the last time is over: of
/// the first after a pause at once, or another period later.
#[test]
fn a_moderated_dispatcher_is_notified_of_many_at_once() {
    for (fact, after_a_pause) in [("running", 0), ("whole", 1)] {
        let stage = Stage::of(&format!("cq-period-start={fact}"));
        Setup { stage, ..Setup::default() }.connected(|session| {
            let evd = session.sides[1].recv;
            let moderate = |session: &mut Session<'_>, moderation| {
                session.pair.ias[1].evd_moderate(evd, moderation).unwrap();
            };
            // When it tells of so many messages: in the first part of a period, or in its last.
            let notice = |session: &mut Session<'_>, messages: u64| {
                session.pair.ias[1].evd_arm(evd, false).unwrap();
                for cookie in 0..messages {
                    session.recv(1, 0, 64, cookie);
                    session.send(0, 0, 64, cookie);
                }
                let part = [1500, 3500].into_iter().position(|micros| {
                    session.pass(Duration::from_micros(micros));
                    session.pair.ias[1].evd_take_notice(evd)
                });
                for cookie in 0..messages {
                    assert_eq!(session.received(1, cookie), 64);
                }
                part.unwrap()
            };
            moderate(session, Moderation { completions: 4, period: 4000 });
            session.pass(Duration::from_millis(5));
            assert_eq!(notice(session, 1), after_a_pause);
            assert_eq!(notice(session, 1), 1, "soon after");
            assert_eq!(notice(session, 4), 0, "many");
            moderate(session, Moderation::default());
            assert_eq!([1, 1].map(|messages| notice(session, messages)), [0, 0], "each");
        });
    }
}

/// A device distinguishes requests by two bits, and ignores one with those of its last event.
#[test]
fn a_message_is_notified_after_any_number_of_waits_for_solicited_ones() {
    Setup::default().connected(|session| {
        let evd = session.sides[1].recv;
        let arm = |session: &mut Session<'_>, solicited| {
            session.pair.ias[1].evd_arm(evd, solicited).unwrap();
        };
        let noticed = |session: &mut Session<'_>| {
            session.pass(Duration::from_millis(5));
            session.pair.ias[1].evd_take_notice(evd)
        };
        for waits in 0..9 {
            arm(session, false);
            for cookie in 0..=waits {
                session.recv(1, 0, 64, cookie);
                session.send(0, 0, 64, cookie);
                // The first is what was asked for; of the others a word too many does no harm.
                assert!(noticed(session) || cookie > 0);
                session.received(1, cookie);
                if cookie < waits {
                    arm(session, true);
                }
            }
            arm(session, false);
            session.recv(1, 0, 64, waits + 1);
            session.send(0, 0, 64, waits + 1);
            assert!(noticed(session), "after {waits} waits");
            session.received(1, waits + 1);
            let all = usize::try_from(waits).unwrap() + 2;
            assert_eq!(session.requests(0, all).len(), all);
        }
    });
}

#[test]
fn both_ways_at_once_to_the_last_slot() {
    stage(1024).connected(|session| {
        let depth = 64;
        for round in 0..10_u32 {
            for side in 0..2 {
                for n in 0..depth {
                    session.recv(side, 0x8000 + 128 * n, 128, n as u64);
                }
            }
            for side in 0..2 {
                for n in 0..depth {
                    session.fill(side, 128 * n, 128, round * 1000 + side as u32 * 100 + n as u32);
                    session.send(side, 128 * n, 128, n as u64);
                }
            }
            for side in 0..2 {
                for n in 0..depth {
                    session.requested(side, DtoOperation::Send, n as u64);
                    session.received(side, n as u64);
                    session.check(
                        side,
                        0x8000 + 128 * n,
                        128,
                        round * 1000 + (1 - side) as u32 * 100 + n as u32,
                    );
                }
            }
        }
    });
}

#[test]
fn completions_of_the_other_queue_do_not_hold_each_other_up() {
    // A receive that never completes, in the same dispatcher as requests that do.
    Setup { merged: true, ..Setup::default() }.connected(|session| {
        session.recv(0, 0, 64, 99);
        for n in 0..200 {
            session.write(0, 0x1000, 64, n);
            let evd = session.sides[0].request;
            assert_eq!(ending(&session.event(0, evd)), (n, DtoStatus::Success));
        }
    });
}

/// A send ring that is just as long as requests of the most segments need, filled while the peer is
/// away and somebody asks for the status: the device finds each of them when it has to send it again.
#[test]
fn a_full_ring_of_the_widest_is_sent_again_whole() {
    const EACH: usize = 4 * 64;
    for (dtos, wide) in [(8_u16, 0..8_usize), (8, 0..0), (8, 1..8), (8, 2..6), (4, 0..4)] {
        Setup::default().run(|session| {
            let evd = session.pair.ias[0].evd_create(64, EvdFlags::DTO).unwrap();
            let ep = session.sides[0].ep;
            let mut attr = session.pair.ias[0].ep_query(ep).unwrap().attr;
            attr.max_request_dtos = dtos;
            let change =
                EpModify { request_evd: Some(evd), attr: Some(attr), ..EpModify::default() };
            session.pair.ias[0].ep_modify(ep, &change).unwrap();
            session.sides[0].request = evd;
            session.connect();
            let dtos = usize::from(dtos);
            for n in 0..dtos {
                session.fill(0, n * EACH, EACH, n as u32);
            }
            session.lines[1].cut(true);
            for n in 0..dtos {
                let pieces: Vec<_> = if wide.contains(&n) {
                    (0..4).map(|i| session.seg(0, n * EACH + i * 64, 64)).collect()
                } else {
                    vec![session.seg(0, n * EACH, EACH)]
                };
                let flags = if n + 1 == dtos { NONE } else { CompletionFlags::SUPPRESS };
                let far = session.far(1, 0x4000 + n * EACH, EACH);
                let ia = &mut session.pair.ias[0];
                ia.ep_post_rdma_write(ep, &pieces, n as u64, &far, flags).unwrap();
                assert!(!ia.ep_get_status(ep).unwrap().request_idle);
            }
            session.pass(Duration::from_millis(1));
            session.lines[1].cut(false);
            session.requested(0, DtoOperation::RdmaWrite, dtos as u64 - 1);
            for n in 0..dtos {
                session.check(1, 0x4000 + n * EACH, EACH, n as u32);
            }
            assert!(session.pair.ias[0].ep_get_status(ep).unwrap().request_idle);
        });
    }
}
