//! Data transfer at DAT level, over the driver and the model: every kind, size, MTU and segment
//! list, contents verified.
//!
//! Long because it is a list: many short tests over one harness, and one binary less to link.
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

use dat_core::{CompletionFlags, DtoEvent, DtoOperation, DtoStatus, Event, LmrTriplet, RmrTriplet};
use dat_tests::pair::Stage;
use dat_tests::play::{NONE, Play, Scene, contents, ending};
use proptest::prelude::*;

const MEBI: usize = 1 << 20;

fn stage(mtu: u16) -> Scene {
    Scene {
        stage: Stage { mtu: Some(mtu), seed: mtu.into(), ..Stage::default() },
        ..Scene::default()
    }
}

/// One message of `len` bytes each way and by each operation, at odd addresses, with the bytes
/// around it looked at.
fn every_kind(play: &mut Play<'_>, len: usize, n: u32) {
    let (from, to) = (0x101, 0x8003);
    for side in [0, 1] {
        let cookie = u64::from(n) << 1 | side as u64;
        let n = n * 2 + side as u32;
        let guard = 16;
        let around = |play: &Play<'_>, side: usize| {
            [play.look(side, to - guard, guard), play.look(side, to + len, guard)]
        };

        play.fill(side, from, len, 3 * n);
        let before = around(play, 1 - side);
        play.recv(1 - side, to, len + guard, cookie);
        play.send(side, from, len, cookie);
        play.requested(side, DtoOperation::Send, cookie);
        assert_eq!(play.received(1 - side, cookie) as usize, len);
        play.check(1 - side, to, len, 3 * n);
        assert_eq!(around(play, 1 - side), before);

        play.fill(side, from, len, 3 * n + 1);
        let far = play.far(1 - side, to, len);
        play.write_to(side, from, len, far, cookie);
        play.requested(side, DtoOperation::RdmaWrite, cookie);
        play.check(1 - side, to, len, 3 * n + 1);
        assert_eq!(around(play, 1 - side), before);

        play.fill(1 - side, from, len, 3 * n + 2);
        let before = around(play, side);
        let far = play.far(1 - side, from, len);
        play.read_from(side, to, len, far, cookie);
        assert_eq!(play.requested(side, DtoOperation::RdmaRead, cookie) as usize, len);
        play.check(side, to, len, 3 * n + 2);
        assert_eq!(around(play, side), before);
    }
}

fn sizes_around(scene: &Scene) {
    let mtu = usize::from(scene.stage.mtu.unwrap());
    let sizes = [0, 1, 7, 8, 9, 63, 64, 65, mtu - 1, mtu, mtu + 1, 2 * mtu, 3 * mtu + 5];
    scene.connected(|play| {
        for (n, &len) in sizes.iter().enumerate() {
            every_kind(play, len, n as u32);
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
    let mut scene = stage(1024);
    scene.stage.ipv6 = true;
    sizes_around(&scene);
}

#[test]
fn sizes_in_a_vlan() {
    let mut scene = stage(4096);
    scene.stage.vlan = Some(77);
    sizes_around(&scene);
}

#[test]
fn sizes_over_ipv6_in_a_vlan() {
    let mut scene = stage(2048);
    (scene.stage.ipv6, scene.stage.vlan) = (true, Some(4094));
    sizes_around(&scene);
}

#[test]
fn the_smaller_mtu_of_the_two_counts() {
    let scene = stage(1024);
    scene.connected(|play| {
        play.lines[0].record();
        play.fill(0, 0, 5000, 1);
        play.write(0, 0, 5000, 1);
        play.requested(0, DtoOperation::RdmaWrite, 1);
        let longest = play.lines[0].recorded().iter().map(Vec::len).max().unwrap();
        assert!((1024..1024 + 114).contains(&longest), "{longest}");
    });
}

#[test]
fn every_packet_in_a_vlan_is_tagged() {
    let mut scene = stage(4096);
    scene.stage.vlan = Some(77);
    scene.play(|play| {
        play.lines[0].record();
        play.connect();
        play.traffic(1);
        let sent = play.lines[0].recorded();
        assert!(sent.len() > 5);
        for frame in sent {
            assert_eq!(&frame[12..16], &[0x81, 0x00, 0x00, 77], "{frame:02x?}");
        }
    });
}

#[test]
fn messages_of_a_mebibyte() {
    for mtu in [256, 4096] {
        let scene = Scene { bytes: 2 * MEBI, ..stage(mtu) };
        scene.connected(|play| {
            for side in [0, 1] {
                let n = side as u32 * 4;
                play.fill(side, 0, MEBI, n);
                play.recv(1 - side, MEBI, MEBI, 1);
                play.send(side, 0, MEBI, 2);
                play.requested(side, DtoOperation::Send, 2);
                assert_eq!(play.received(1 - side, 1) as usize, MEBI);
                play.check(1 - side, MEBI, MEBI, n);

                play.fill(side, 0, MEBI, n + 1);
                let far = play.far(1 - side, MEBI, MEBI);
                play.write_to(side, 0, MEBI, far, 3);
                play.requested(side, DtoOperation::RdmaWrite, 3);
                play.check(1 - side, MEBI, MEBI, n + 1);

                play.fill(1 - side, 0, MEBI, n + 2);
                let far = play.far(1 - side, 0, MEBI);
                play.read_from(side, MEBI, MEBI, far, 4);
                assert_eq!(play.requested(side, DtoOperation::RdmaRead, 4) as usize, MEBI);
                play.check(side, MEBI, MEBI, n + 2);
            }
        });
    }
}

/// Segments of one DTO that the adapter takes; a test below says so.
const MAX_SEGMENTS: usize = 10;

/// An Endpoint that takes as many segments as the adapter does.
fn many_segments() -> Scene {
    Scene {
        tweak: |attr| {
            let most = MAX_SEGMENTS as u8;
            (attr.max_recv_iov, attr.max_request_iov) = (most, most);
            (attr.max_rdma_read_iov, attr.max_rdma_write_iov) = (most, most);
        },
        ..stage(512)
    }
}

/// Places of the segments of those lengths in a side's memory from `at` on, with holes between
/// them.
fn scattered(
    play: &Play<'_>,
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
    (places.iter().map(|&(at, len)| play.seg(side, at, len)).collect(), places)
}

fn gathered(play: &Play<'_>, side: usize, places: &[(usize, usize)]) -> Vec<u8> {
    places.iter().flat_map(|&(at, len)| play.look(side, at, len)).collect()
}

/// Gathers at one side, scatters at the other, by every operation.
fn lists(play: &mut Play<'_>, from: &[usize], to: &[usize], n: u32) {
    let len: usize = from.iter().sum();
    let room: usize = to.iter().sum();
    let (own, places) = scattered(play, 0, 0x40, from);
    let (theirs, their_places) = scattered(play, 1, 0x8001, to);
    for (i, &(at, part)) in places.iter().enumerate() {
        play.fill(0, at, part, n + i as u32);
    }
    let sent = gathered(play, 0, &places);
    let (a, b) = (play.sides[0].ep, play.sides[1].ep);
    play.pair.ias[1].ep_post_recv(b, &theirs, 1, NONE).unwrap();
    play.pair.ias[0].ep_post_send(a, &own, 2, NONE).unwrap();
    play.requested(0, DtoOperation::Send, 2);
    assert_eq!(play.received(1, 1) as usize, len);
    assert_eq!(gathered(play, 1, &their_places)[..len], sent);
    assert!(room >= len);

    let far = play.far(1, 0x100, len);
    play.pair.ias[0].ep_post_rdma_write(a, &own, 3, &far, NONE).unwrap();
    play.requested(0, DtoOperation::RdmaWrite, 3);
    assert_eq!(play.look(1, 0x100, len), sent);

    // And back: the other side reads what lies in one piece here, into its pieces.
    play.fill(0, 0x40, room, n + 99);
    let far = play.far(0, 0x40, room);
    play.pair.ias[1].ep_post_rdma_read(b, &theirs, 4, &far, NONE).unwrap();
    assert_eq!(play.requested(1, DtoOperation::RdmaRead, 4) as usize, room);
    assert_eq!(gathered(play, 1, &their_places), contents(n + 99, room));
}

#[test]
fn one_to_all_segments() {
    many_segments().connected(|play| {
        assert_eq!(play.pair.ias[0].query().0.max_iov_segments_per_dto as usize, MAX_SEGMENTS);
        for count in 1..=MAX_SEGMENTS {
            let from: Vec<_> = (0..count).map(|i| 1 + (i * 97 + count * 31) % 700).collect();
            let mut to: Vec<_> = (0..count).map(|i| 1 + (i * 57 + count * 11) % 500).collect();
            to[count - 1] += from.iter().sum::<usize>();
            lists(play, &from, &to, count as u32 * 200);
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
        many_segments().connected(|play| {
            for (n, (from, mut to)) in runs.into_iter().enumerate() {
                to.push(from.iter().sum());
                lists(play, &from, &to, n as u32 * 1000);
            }
        });
    }
}

#[test]
fn a_message_without_segments_and_a_receive_without_any() {
    Scene::default().connected(|play| {
        let (a, b) = (play.sides[0].ep, play.sides[1].ep);
        for _ in 0..3 {
            play.pair.ias[1].ep_post_recv(b, &[], 1, NONE).unwrap();
            play.pair.ias[0].ep_post_send(a, &[], 2, NONE).unwrap();
            play.requested(0, DtoOperation::Send, 2);
            assert_eq!(play.received(1, 1), 0);
            // The address and the key of a segment of no bytes mean nothing.
            let odd = [LmrTriplet { addr: 3, len: 0, context: 5 }];
            let far = RmrTriplet { addr: 7, len: 0, context: 9 };
            play.pair.ias[0].ep_post_rdma_write(a, &odd, 3, &far, NONE).unwrap();
            play.requested(0, DtoOperation::RdmaWrite, 3);
            play.pair.ias[0].ep_post_rdma_read(a, &odd, 4, &far, NONE).unwrap();
            assert_eq!(play.requested(0, DtoOperation::RdmaRead, 4), 0);
        }
    });
}

#[test]
fn a_short_message_leaves_the_rest_of_its_receive_alone() {
    Scene::default().connected(|play| {
        play.fill(0, 0, 100, 1);
        play.fill(1, 0, 8192, 2);
        play.recv(1, 0, 8192, 1);
        play.send(0, 0, 100, 2);
        assert_eq!(play.received(1, 1), 100);
        play.check(1, 0, 100, 1);
        assert_eq!(play.look(1, 100, 8092), contents(2, 8192)[100..]);
    });
}

#[test]
fn one_byte_written_changes_one_byte() {
    Scene::default().connected(|play| {
        play.fill(1, 0, 0x4000, 7);
        play.fill(0, 0, 1, 8);
        for at in [0, 1, 4095, 4096, 0x3fff] {
            let mut expected = play.all(1);
            expected[at] = contents(8, 1)[0];
            let far = play.far(1, at, 1);
            play.write_to(0, 0, 1, far, 1);
            play.requested(0, DtoOperation::RdmaWrite, 1);
            assert_eq!(play.all(1), expected);
        }
    });
}

#[test]
fn requests_of_all_kinds_complete_in_the_order_of_their_posts() {
    Scene::default().connected(|play| {
        for round in 0..8_u64 {
            for cookie in 0..15 {
                play.recv(1, 0x8000, 4000, cookie);
            }
            for cookie in 0..45 {
                let len = [10, 5000, 0, 300][(cookie as usize + round as usize) % 4];
                match cookie % 3 {
                    0 => play.send(0, 0, len.min(4000), cookie),
                    1 => play.write(0, 0x2000, len, cookie),
                    _ => play.read(0, 0x4000, len, cookie),
                }
            }
            let said: Vec<_> = (0..45).map(|cookie| (cookie, DtoStatus::Success)).collect();
            assert_eq!(play.requests(0, 45), said);
            assert_eq!(play.receives(1, 15), said[..15]);
        }
    });
}

#[test]
fn suppressed_requests_are_silent_and_done_when_a_later_one_is() {
    Scene::default().connected(|play| {
        let (ep, far) = (play.sides[0].ep, play.far(1, 0, 64));
        for round in 0..50_u64 {
            for n in 0..9 {
                play.fill(0, 64 * n, 64, n as u32 + round as u32);
                let own = [play.seg(0, 64 * n, 64)];
                let to = RmrTriplet { addr: far.addr + 64 * n as u64, ..far };
                play.pair.ias[0]
                    .ep_post_rdma_write(ep, &own, 1000, &to, CompletionFlags::SUPPRESS)
                    .unwrap();
            }
            play.write(0, 64 * 9, 64, round);
            play.requested(0, DtoOperation::RdmaWrite, round);
            assert!(play.pair.ias[0].ep_get_status(ep).unwrap().request_idle);
            for n in 0..9 {
                play.check(1, 64 * n, 64, n as u32 + round as u32);
            }
        }
        play.quiet(Duration::from_millis(5));
    });
}

#[test]
fn an_error_of_a_suppressed_request_is_told() {
    Scene::default().connected(|play| {
        let (ep, own) = (play.sides[0].ep, [play.seg(0, 0, 8)]);
        let far = RmrTriplet { context: play.sides[1].lmr.rmr_context ^ 1, ..play.far(1, 0, 8) };
        play.pair.ias[0].ep_post_rdma_write(ep, &own, 5, &far, CompletionFlags::SUPPRESS).unwrap();
        assert_eq!(play.requests(0, 1), [(5, DtoStatus::ErrRemoteAccess)]);
        play.ended();
    });
}

#[test]
fn deferred_requests_leave_with_the_ring() {
    Scene::default().connected(|play| {
        let (ep, own, far) = (play.sides[0].ep, [play.seg(0, 0, 64)], play.far(1, 0, 64));
        play.fill(0, 0, 64, 3);
        for cookie in 0..5 {
            play.pair.ias[0]
                .ep_post_rdma_write(ep, &own, cookie, &far, CompletionFlags::DEFER)
                .unwrap();
        }
        play.quiet(Duration::from_millis(20));
        assert_eq!(play.look(1, 0, 64), vec![0; 64]);
        play.pair.ias[0].ep_ring(ep).unwrap();
        assert_eq!(play.requests(0, 5), [0, 1, 2, 3, 4].map(|cookie| (cookie, DtoStatus::Success)));
        play.check(1, 0, 64, 3);
    });
}

#[test]
fn a_fenced_send_carries_what_the_read_before_it_brought() {
    Scene::default().connected(|play| {
        let ep = play.sides[0].ep;
        for n in 0..10 {
            play.fill(1, 0, 9000, n);
            play.recv(1, 0x8000, 9000, 1);
            play.read(0, 0, 9000, 2);
            let own = [play.seg(0, 0, 9000)];
            play.pair.ias[0].ep_post_send(ep, &own, 3, CompletionFlags::BARRIER_FENCE).unwrap();
            assert_eq!(play.requests(0, 2), [(2, DtoStatus::Success), (3, DtoStatus::Success)]);
            play.received(1, 1);
            play.check(1, 0x8000, 9000, n);
        }
    });
}

#[test]
fn a_message_too_long_for_its_receive() {
    Scene::default().connected(|play| {
        play.recv(1, 0, 99, 1);
        play.recv(1, 0, 99, 2);
        play.send(0, 0x4000, 100, 3);
        play.send(0, 0x4000, 10, 4);
        assert_eq!(
            play.receives(1, 2),
            [(1, DtoStatus::ErrLocalLength), (2, DtoStatus::ErrFlushed)]
        );
        assert_eq!(
            play.requests(0, 2),
            [(3, DtoStatus::ErrRemoteResponder), (4, DtoStatus::ErrFlushed)]
        );
        play.ended();
    });
}

#[test]
fn a_message_of_many_packets_too_long_for_its_receive_writes_nothing_behind_it() {
    stage(256).connected(|play| {
        play.fill(1, 0, 8192, 1);
        play.recv(1, 0, 1000, 1);
        play.send(0, 0x4000, 5000, 3);
        assert_eq!(play.receives(1, 1), [(1, DtoStatus::ErrLocalLength)]);
        assert_eq!(play.requests(0, 1), [(3, DtoStatus::ErrRemoteResponder)]);
        assert_eq!(play.look(1, 1000, 7192), contents(1, 8192)[1000..]);
        play.ended();
    });
}

#[test]
fn small_queues_go_round_thousands_of_times() {
    let scene =
        Scene { tweak: |attr| (attr.max_recv_dtos, attr.max_request_dtos) = (3, 5), ..stage(256) };
    scene.connected(|play| {
        for n in 0..3000_u64 {
            for cookie in 0..3 {
                play.recv(1, 0x8000 + 64 * cookie as usize, 64, 3 * n + cookie);
            }
            for cookie in 0..3 {
                play.fill(0, 64 * cookie as usize, 64, (3 * n + cookie) as u32);
                play.send(0, 64 * cookie as usize, 64, 3 * n + cookie);
            }
            for cookie in 0..3 {
                play.requested(0, DtoOperation::Send, 3 * n + cookie);
                play.received(1, 3 * n + cookie);
                play.check(1, 0x8000 + 64 * cookie as usize, 64, (3 * n + cookie) as u32);
            }
        }
    });
}

#[test]
fn more_requests_than_sixteen_bits_count() {
    Scene::default().connected(|play| {
        let (ep, own) = (play.sides[0].ep, [play.seg(0, 0, 4)]);
        let far = play.far(1, 0, 4);
        let (mut posted, mut done) = (0_u64, 0_u64);
        while done < 70_000 {
            while posted < 70_000 && posted - done < 60 {
                let flags = if posted % 4 == 3 { NONE } else { CompletionFlags::SUPPRESS };
                play.pair.ias[0].ep_post_rdma_write(ep, &own, posted, &far, flags).unwrap();
                posted += 1;
            }
            play.requested(0, DtoOperation::RdmaWrite, done | 3);
            done = (done | 3) + 1;
        }
        play.traffic(1);
    });
}

#[test]
fn packet_sequence_numbers_go_round() {
    // Each connection starts at a random number: connect until one starts near the end.
    let scene = Scene { bytes: MEBI, ..stage(256) };
    scene.play(|play| {
        let near = 0xff_0000;
        let start = loop {
            play.lines[0].record();
            play.connect();
            play.write(0, 0, 1, 1);
            play.requested(0, DtoOperation::RdmaWrite, 1);
            let sent = play.lines[0].recorded();
            let psn = sent
                .iter()
                .filter_map(|f| dat_tests::play::line::packet(f))
                .filter(|p| p.ext.reth.is_some());
            let psn = psn.map(|p| p.bth.psn).next().unwrap();
            if psn >= near {
                break psn;
            }
            play.disconnect(0, dat_core::CloseFlag::Abrupt);
            play.ended();
            for side in 0..2 {
                let ep = play.sides[side].ep;
                play.pair.ias[side].ep_reset(ep).unwrap();
            }
        };
        let packets = (MEBI / 256) as u32;
        for n in 0..(0x100_0000 - start) / packets + 2 {
            play.fill(0, 0, MEBI, n);
            play.write(0, 0, MEBI, n.into());
            play.requested(0, DtoOperation::RdmaWrite, n.into());
            play.check(1, 0, MEBI, n);
        }
        play.lines[0].record();
        play.traffic(9);
        let sent = play.lines[0].recorded();
        let last = sent
            .iter()
            .filter_map(|f| dat_tests::play::line::packet(f))
            .map(|p| p.bth.psn)
            .max()
            .unwrap();
        assert!(last < near, "{last:#x}: it did not go round");
    });
}

#[test]
fn many_endpoints_complete_on_one_dispatcher() {
    Scene { merged: true, ..Scene::default() }.play(|play| {
        let mut eps = vec![(play.sides[0].ep, play.sides[1].ep)];
        eps.extend((0..7).map(|_| (play.endpoint(0), play.endpoint(1))));
        for &(a, b) in &eps {
            play.connect_eps(a, b);
        }
        for round in 0..6_u32 {
            for (i, &(a, b)) in eps.iter().enumerate() {
                let (at, n) = (0x400 * i, 100 * round + i as u32);
                play.fill(0, at, 0x400, n);
                let (own, theirs) = ([play.seg(0, at, 0x400)], [play.seg(1, at, 0x400)]);
                play.pair.ias[1].ep_post_recv(b, &theirs, n.into(), NONE).unwrap();
                play.pair.ias[0].ep_post_send(a, &own, n.into(), NONE).unwrap();
                let far = play.far(1, 0x8000 + at, 0x400);
                play.pair.ias[0]
                    .ep_post_rdma_write(a, &own, u64::from(n) + 1000, &far, NONE)
                    .unwrap();
            }
            let mut said = [vec![], vec![]];
            for _ in 0..eps.len() {
                for (side, times) in [(0, 2), (1, 1)] {
                    for _ in 0..times {
                        let evd = play.sides[side].request;
                        match play.event(side, evd) {
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
                play.check(1, 0x400 * i, 0x400, n as u32);
                play.check(1, 0x8000 + 0x400 * i, 0x400, n as u32);
            }
        }
    });
}

#[test]
fn sends_wait_for_receives_that_are_late() {
    Scene::default().connected(|play| {
        for n in 0..4 {
            play.fill(0, 0x1000 * n, 0x1000, n as u32);
            play.send(0, 0x1000 * n, 0x1000, n as u64);
        }
        play.quiet(Duration::from_millis(300));
        for n in 0..4 {
            play.recv(1, 0x1000 * n, 0x1000, n as u64);
            play.pass(Duration::from_millis(10));
        }
        for n in 0..4 {
            play.requested(0, DtoOperation::Send, n as u64);
            play.received(1, n as u64);
            play.check(1, 0x1000 * n, 0x1000, n as u32);
        }
        play.traffic(3);
    });
}

#[test]
fn late_receives_under_loss() {
    let scene = Scene::seed(11);
    scene.connected(|play| {
        let rates = mlx5_model::wire::impair::Rates { drop: 100, ..Default::default() };
        play.lines.iter().for_each(|line| line.rates(rates));
        for n in 0..40_u32 {
            play.fill(0, 0, 9000, n);
            play.send(0, 0, 9000, n.into());
            play.pass(Duration::from_millis(n.into()));
            play.recv(1, 0, 9000, n.into());
            play.requested(0, DtoOperation::Send, n.into());
            play.received(1, n.into());
            play.check(1, 0, 9000, n);
        }
    });
}

#[test]
fn more_reads_than_either_side_has_room_for() {
    for (out, into) in [(1, 1), (4, 1), (1, 4), (2, 3), (4, 4)] {
        let scene = Scene::default();
        scene.play(|play| {
            // Both ends are made anew with depths of their own.
            let mut made = [0, 1].map(|side| {
                let (ia, own) = (&mut play.pair.ias[side], &play.sides[side]);
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
                std::mem::swap(&mut play.sides[side].ep, &mut made[side]);
            }
            play.connect();
            for side in 0..2 {
                play.fill(1 - side, 0, 0x8000, side as u32);
                for n in 0..32 {
                    let far = play.far(1 - side, 0x400 * n, 0x400);
                    play.read_from(side, 0x8000 + 0x400 * n, 0x400, far, n as u64);
                }
            }
            for side in 0..2 {
                for n in 0..32 {
                    assert_eq!(play.requested(side, DtoOperation::RdmaRead, n), 0x400);
                }
                play.check(side, 0x8000, 0x8000, side as u32);
            }
        });
    }
}

#[test]
fn an_armed_dispatcher_is_told_of_the_next_completion_once() {
    Scene::default().connected(|play| {
        let evd = play.sides[1].recv;
        let notices = |play: &mut Play<'_>| {
            play.pass(Duration::from_millis(5));
            u32::from(play.pair.ias[1].evd_take_notice(evd))
        };
        for cookie in 0..4 {
            play.recv(1, 0, 64, cookie);
        }
        assert_eq!(notices(play), 0);
        play.pair.ias[1].evd_arm(evd, false).unwrap();
        assert_eq!(notices(play), 0);
        play.send(0, 0, 64, 0);
        assert_eq!(notices(play), 1);
        play.send(0, 0, 64, 1);
        assert_eq!(notices(play), 0, "it was not armed again");
        // Only a solicited message counts now; what came before is none.
        for cookie in 0..2 {
            play.received(1, cookie);
        }
        play.pair.ias[1].evd_arm(evd, true).unwrap();
        play.send(0, 0, 64, 2);
        assert_eq!(notices(play), 0);
        let (ep, own) = (play.sides[0].ep, [play.seg(0, 0, 64)]);
        play.pair.ias[0].ep_post_send(ep, &own, 3, CompletionFlags::SOLICITED_WAIT).unwrap();
        assert_eq!(notices(play), 1);
        assert_eq!(play.requests(0, 4).len(), 4);
        assert_eq!(play.receives(1, 2), [(2, DtoStatus::Success), (3, DtoStatus::Success)]);
    });
}

/// A device tells requests apart by two bits, and ignores one with those of its last event.
#[test]
fn a_message_is_told_of_after_any_number_of_waits_for_solicited_ones() {
    Scene::default().connected(|play| {
        let evd = play.sides[1].recv;
        let arm = |play: &mut Play<'_>, solicited| {
            play.pair.ias[1].evd_arm(evd, solicited).unwrap();
        };
        let noticed = |play: &mut Play<'_>| {
            play.pass(Duration::from_millis(5));
            play.pair.ias[1].evd_take_notice(evd)
        };
        for waits in 0..9 {
            arm(play, false);
            for cookie in 0..=waits {
                play.recv(1, 0, 64, cookie);
                play.send(0, 0, 64, cookie);
                // The first is what was asked for; of the others a word too many does no harm.
                assert!(noticed(play) || cookie > 0);
                play.received(1, cookie);
                if cookie < waits {
                    arm(play, true);
                }
            }
            arm(play, false);
            play.recv(1, 0, 64, waits + 1);
            play.send(0, 0, 64, waits + 1);
            assert!(noticed(play), "after {waits} waits");
            play.received(1, waits + 1);
            let all = usize::try_from(waits).unwrap() + 2;
            assert_eq!(play.requests(0, all).len(), all);
        }
    });
}

#[test]
fn both_ways_at_once_to_the_last_slot() {
    stage(1024).connected(|play| {
        let depth = 64;
        for round in 0..10_u32 {
            for side in 0..2 {
                for n in 0..depth {
                    play.recv(side, 0x8000 + 128 * n, 128, n as u64);
                }
            }
            for side in 0..2 {
                for n in 0..depth {
                    play.fill(side, 128 * n, 128, round * 1000 + side as u32 * 100 + n as u32);
                    play.send(side, 128 * n, 128, n as u64);
                }
            }
            for side in 0..2 {
                for n in 0..depth {
                    play.requested(side, DtoOperation::Send, n as u64);
                    play.received(side, n as u64);
                    play.check(
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
fn completions_of_the_other_half_do_not_hold_each_other_up() {
    // A receive that never completes, in the same dispatcher as requests that do.
    Scene { merged: true, ..Scene::default() }.connected(|play| {
        play.recv(0, 0, 64, 99);
        for n in 0..200 {
            play.write(0, 0x1000, 64, n);
            let evd = play.sides[0].request;
            assert_eq!(ending(&play.event(0, evd)), (n, DtoStatus::Success));
        }
    });
}
