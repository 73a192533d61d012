//! Bad wires at DAT level: whatever is lost, doubled, reordered or corrupted, the consumers' bytes
//! are right and in order.
#![expect(
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    clippy::needless_range_loop,
    reason = "test code: a panic here is a failed test with a line number"
)]

use std::time::Duration;

use dat_core::{CloseFlag, DtoOperation, DtoStatus, Event};
use dat_tests::pair::Stage;
use dat_tests::play::line::packet;
use dat_tests::play::{Play, Scene};
use mlx5_model::Stats;
use mlx5_model::wire::impair::{Fault, Rates};
use proptest::prelude::*;

/// Requests of one round and one side. They go three a slice of memory: send, write, read.
const SLICES: usize = 6;
const SLICE: usize = 0x1000;

/// Both sides send, write and read at once, with several in flight, and everything is checked.
fn storm(play: &mut Play<'_>, rounds: u32, lengths: &[usize]) {
    let base = |kind: usize| kind * SLICES * SLICE;
    let len_of =
        |round: u32, n: usize| lengths[(round as usize * 7 + n) % lengths.len()].min(SLICE);
    for round in 0..rounds {
        for side in 0..2 {
            for n in 0..SLICES {
                play.recv(side, base(0) + n * SLICE, SLICE, n as u64);
            }
        }
        // Memory: received here, written here by the peer, read by the peer, read from the peer,
        // source of the peer's data.
        for side in 0..2_usize {
            for n in 0..SLICES {
                let (at, len) = (n * SLICE, len_of(round, n));
                let id = (round * 2 + side as u32) * 100 + n as u32;
                play.fill(side, base(4) + at, len, id);
                play.fill(1 - side, base(2) + at, len, id + 50);
                play.send(side, base(4) + at, len, n as u64);
                let to = play.far(1 - side, base(1) + at, len);
                play.write_to(side, base(4) + at, len, to, n as u64 + 100);
                let from = play.far(1 - side, base(2) + at, len);
                play.read_from(side, base(3) + at, len, from, n as u64 + 200);
            }
        }
        for side in 0..2 {
            for n in 0..SLICES {
                let (at, len) = (n * SLICE, len_of(round, n));
                let id = (round * 2 + side as u32) * 100 + n as u32;
                play.requested(side, DtoOperation::Send, n as u64);
                play.requested(side, DtoOperation::RdmaWrite, n as u64 + 100);
                assert_eq!(
                    play.requested(side, DtoOperation::RdmaRead, n as u64 + 200) as usize,
                    len
                );
                assert_eq!(play.received(1 - side, n as u64) as usize, len);
                play.check(1 - side, base(0) + at, len, id);
                play.check(1 - side, base(1) + at, len, id);
                play.check(side, base(3) + at, len, id + 50);
            }
        }
    }
}

fn scene(mtu: u16, seed: u64) -> Scene {
    let stage = Stage { mtu: Some(mtu), seed, ..Stage::default() };
    Scene { stage, bytes: 5 * SLICES * SLICE, ..Scene::default() }
}

const LENGTHS: [usize; 7] = [4096, 1, 256, 1000, 0, 2049, 64];

fn through(scene: &Scene, rates: Rates, rounds: u32) {
    scene.connected(|play| {
        play.lines.iter().for_each(|line| line.rates(rates));
        storm(play, rounds, &LENGTHS);
        for line in &play.lines {
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
            play.pair.slots.iter().map(|slot| slot.hca().stats().retransmissions).sum();
        let counted = |count: fn(&Stats) -> u64| -> u64 {
            let slots = play.pair.slots.iter();
            slots.map(|slot| count(slot.hca().stats())).sum()
        };
        let wrong = counted(|stats| stats.frames_wrong_pkey);
        let others = counted(|stats| stats.frames_malformed) - wrong;
        assert_eq!(rates.pkey == 0, wrong == 0, "{wrong} dropped");
        assert_eq!(rates.corrupt == 0, others == 0, "{others} dropped");
        let lossy = rates.drop + rates.corrupt + rates.pkey != 0;
        assert!(again != 0 || !lossy, "nothing was sent again");
        // And it is the same connection still, over a good wire.
        play.lines.iter().for_each(|line| line.rates(Rates::default()));
        storm(play, 1, &LENGTHS);
        play.quiet(Duration::from_millis(5));
    });
}

#[test]
fn frames_of_another_partition_are_dropped_and_nothing_else_happens() {
    for seed in 0..3 {
        through(&scene(1024, 90 + seed), Rates { pkey: 100, ..Rates::default() }, 4);
    }
}

#[test]
fn losses() {
    for (n, drop) in [10, 50, 100, 150].into_iter().enumerate() {
        through(&scene([256, 512, 1024, 4096][n], n as u64), Rates { drop, ..Rates::default() }, 8);
    }
}

#[test]
fn duplicates() {
    for (n, duplicate) in [20, 150, 500].into_iter().enumerate() {
        through(&scene(256 << n, 10 + n as u64), Rates { duplicate, ..Rates::default() }, 8);
    }
}

#[test]
fn reordering() {
    for (n, reorder) in [20, 80, 150].into_iter().enumerate() {
        through(&scene(256 << n, 20 + n as u64), Rates { reorder, ..Rates::default() }, 8);
    }
}

#[test]
fn corruption() {
    for (n, corrupt) in [20, 80, 150].into_iter().enumerate() {
        through(&scene(256 << n, 30 + n as u64), Rates { corrupt, ..Rates::default() }, 8);
    }
}

#[test]
fn everything_at_once() {
    for seed in 0..6 {
        let mut scene = scene(1024, 40 + seed);
        (scene.stage.ipv6, scene.stage.vlan) = (seed % 2 == 1, (seed % 3 == 0).then_some(9));
        through(
            &scene,
            Rates { drop: 40, duplicate: 40, corrupt: 40, reorder: 40, ..Rates::default() },
            8,
        );
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
        scene(mtu, seed).connected(|play| {
            play.lines.iter().for_each(|line| line.rates(Rates { drop, duplicate, corrupt, reorder, ..Rates::default() }));
            storm(play, 4, &lengths);
        });
    }
}

#[test]
fn one_fault_at_each_packet_of_each_operation() {
    scene(256, 50).connected(|play| {
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
                        play.lines[side].rule(nth, 1, fault, |frame| {
                            packet(frame).is_some_and(|p| p.bth.dest_qp != 1)
                        });
                        let n = u32::from(play.look(0, 0, 1)[0]) + nth;
                        let cookie = u64::from(nth);
                        match kind {
                            0 => {
                                play.fill(0, 0, 1500, n);
                                play.recv(1, SLICE, SLICE, cookie);
                                play.send(0, 0, 1500, cookie);
                                play.requested(0, DtoOperation::Send, cookie);
                                assert_eq!(play.received(1, cookie), 1500);
                                play.check(1, SLICE, 1500, n);
                            }
                            1 => {
                                play.fill(0, 0, 1500, n);
                                play.write(0, 0, 1500, cookie);
                                play.requested(0, DtoOperation::RdmaWrite, cookie);
                                play.check(1, 0, 1500, n);
                            }
                            _ => {
                                play.fill(1, 0, 1500, n);
                                play.read(0, 0, 1500, cookie);
                                assert_eq!(play.requested(0, DtoOperation::RdmaRead, cookie), 1500);
                                play.check(0, 0, 1500, n);
                            }
                        }
                        // What is held back or was doubled arrives, and hurts nobody.
                        play.quiet(Duration::from_millis(60));
                    }
                }
            }
        }
        for side in 0..2 {
            let s = play.lines[side].struck();
            struck[side] = s.drop + s.duplicate + s.corrupt + s.reorder + s.delay;
        }
        assert!(struck[0] > 60 && struck[1] > 30, "{struck:?}");
    });
}

#[test]
fn a_link_that_is_down_for_a_while_in_mid_traffic() {
    for lengths in [[4096, 100], [0, 10]] {
        scene(1024, 60).connected(|play| {
            storm(play, 2, &lengths);
            for side in 0..2 {
                play.fill(0, 0, SLICE, side as u32);
                for n in 0..20 {
                    play.write(0, 0, SLICE, n);
                }
                play.pair.slots[side].hca().set_link(false);
                play.pass(Duration::from_millis(100));
                play.pair.slots[side].hca().set_link(true);
                assert_eq!(
                    play.requests(0, 20),
                    (0..20).map(|n| (n, DtoStatus::Success)).collect::<Vec<_>>()
                );
                play.check(1, 0, SLICE, side as u32);
                storm(play, 1, &lengths);
            }
        });
    }
}

#[test]
fn a_plug_out_for_a_while() {
    scene(1024, 61).connected(|play| {
        for side in 0..2 {
            for n in 0..20 {
                play.write(0, 0, SLICE, n);
            }
            play.lines[side].cut(true);
            play.pass(Duration::from_millis(200));
            play.lines[side].cut(false);
            assert_eq!(
                play.requests(0, 20),
                (0..20).map(|n| (n, DtoStatus::Success)).collect::<Vec<_>>()
            );
            storm(play, 2, &LENGTHS);
        }
    });
}

#[test]
fn graceful_disconnects_under_load_and_loss_lose_nothing() {
    for seed in 0..10 {
        scene(512, 70 + seed).connected(|play| {
            let rates =
                Rates { drop: 80, duplicate: 30, corrupt: 30, reorder: 30, ..Rates::default() };
            play.lines.iter().for_each(|line| line.rates(rates));
            for n in 0..12 {
                play.fill(0, n * SLICE, SLICE, n as u32 + 1);
                play.write(0, n * SLICE, SLICE, n as u64);
            }
            play.recv(0, 13 * SLICE, 64, 99);
            play.disconnect(0, CloseFlag::Graceful);
            assert_eq!(
                play.requests(0, 12),
                (0..12).map(|n| (n, DtoStatus::Success)).collect::<Vec<_>>()
            );
            assert_eq!(play.receives(0, 1), [(99, DtoStatus::ErrFlushed)]);
            let [a, b] = play.ended();
            assert_eq!(a, Event::Disconnected(play.sides[0].ep));
            assert_eq!(b, Event::Disconnected(play.sides[1].ep));
            for n in 0..12 {
                play.check(1, n * SLICE, SLICE, n as u32 + 1);
            }
            play.quiet(Duration::from_secs(2));
        });
    }
}
