//! The InfiniBand extensions over the driver and the model: atomics, immediates, datagrams.
#![expect(
    clippy::cast_possible_truncation,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "test code: a panic here is a failed test with a line number"
)]

use std::time::Duration;

use dat_core::provider::{Arrived, Destination};
use dat_core::{
    CloseFlag, DtoStatus, Ep, Event, GRH_LEN, IbDtoEvent, IbOperation, MemPriv, sender,
};
use dat_tests::pair::Stage;
use dat_tests::play::{NONE, Play, Scene, far};

const QKEY: u32 = 0x0123_4567;
const RIGHTS: MemPriv = MemPriv::ALL.union(MemPriv::REMOTE_ATOMIC);
const LIMIT: Duration = Duration::from_secs(5);

#[track_caller]
fn extended(event: Event) -> IbDtoEvent {
    match event {
        Event::IbDto(event) => event,
        other => panic!("{other:?}"),
    }
}

/// The next completion of a request, or of a receive.
#[track_caller]
fn done(play: &mut Play<'_>, side: usize, recv: bool) -> IbDtoEvent {
    let own = &play.sides[side];
    let evd = if recv { own.recv } else { own.request };
    let event = play.pair.wait(side, evd, LIMIT);
    extended(event.expect("a completion"))
}

fn put(play: &Play<'_>, side: usize, at: usize, word: u64) {
    play.sides[side].mem.copy_in(at, &word.to_ne_bytes());
    play.fence(side);
}

fn get(play: &Play<'_>, side: usize, at: usize) -> u64 {
    u64::from_ne_bytes(play.look(side, at, 8).try_into().unwrap())
}

#[test]
fn atomics_answer_in_the_order_of_the_host() {
    Scene::default().connected(|play| {
        let lmr = play.register(1, RIGHTS);
        let there = far(&lmr, 64, 8);
        put(play, 1, 64, 0x0123_4567_89ab_cdef);
        for n in 0..3 {
            let (ep, here) = (play.sides[0].ep, play.seg(0, 256, 8));
            play.pair.ias[0].ep_post_fetch_add(ep, 0x1_0000_0001, &here, n, &there, NONE).unwrap();
            let event = done(play, 0, false);
            assert_eq!((event.status(), event.cookie, event.len), (DtoStatus::Success, n, 8));
            assert_eq!(event.operation, IbOperation::FetchAdd);
            let before = 0x0123_4567_89ab_cdef + n * 0x1_0000_0001;
            assert_eq!(get(play, 0, 256), before);
            assert_eq!(get(play, 1, 64), before + 0x1_0000_0001);
        }
        let now = get(play, 1, 64);
        for (compare, after) in [(now + 1, now), (now, 42)] {
            let (ep, here) = (play.sides[0].ep, play.seg(0, 264, 8));
            play.pair.ias[0].ep_post_cmp_swap(ep, compare, 42, &here, 9, &there, NONE).unwrap();
            let event = done(play, 0, false);
            assert_eq!(
                (event.status(), event.operation),
                (DtoStatus::Success, IbOperation::CmpSwap)
            );
            assert_eq!((get(play, 0, 264), get(play, 1, 64)), (now, after));
        }
        // Many at once, more than may be under way: each is carried out once, and they answer in
        // order.
        put(play, 1, 64, 0);
        for n in 0..40 {
            let (ep, here) = (play.sides[0].ep, play.seg(0, 512 + 8 * n, 8));
            play.pair.ias[0].ep_post_fetch_add(ep, 1, &here, n as u64, &there, NONE).unwrap();
        }
        for n in 0..40 {
            assert_eq!(done(play, 0, false).cookie, n);
        }
        for n in 0..40 {
            assert_eq!(get(play, 0, 512 + 8 * n as usize), n);
        }
        assert_eq!(get(play, 1, 64), 40);
    });
}

#[test]
fn atomics_survive_a_wire_that_loses() {
    let mut scene = Scene::seed(3);
    scene.stage.rates.drop = 100;
    scene.connected(|play| {
        let lmr = play.register(1, RIGHTS);
        let there = far(&lmr, 0, 8);
        for n in 0..100 {
            let (ep, here) = (play.sides[0].ep, play.seg(0, 256, 8));
            play.pair.ias[0].ep_post_fetch_add(ep, 1, &here, n, &there, NONE).unwrap();
            assert_eq!(done(play, 0, false).status(), DtoStatus::Success);
            assert_eq!(get(play, 0, 256), n);
        }
    });
}

#[test]
fn an_atomic_without_the_right_is_refused_by_the_peer() {
    Scene::default().connected(|play| {
        let (ep, here, there) = (play.sides[0].ep, play.seg(0, 256, 8), play.far(1, 64, 8));
        put(play, 1, 64, 5);
        play.pair.ias[0].ep_post_fetch_add(ep, 1, &here, 1, &there, NONE).unwrap();
        assert_eq!(done(play, 0, false).status(), DtoStatus::ErrRemoteAccess);
        assert_eq!(get(play, 1, 64), 5);
        play.ended();
    });
}

#[test]
fn an_immediate_takes_a_receive() {
    Scene::default().connected(|play| {
        for (n, len) in [0, 8, 28, 300, 9000].into_iter().enumerate() {
            let immediate = 0xdead_be00 | n as u32;
            play.fill(0, 0, len, n as u32);
            play.recv(1, 0x8000, 64, 7);
            let (ep, here, there) =
                (play.sides[0].ep, play.seg(0, 0, len), play.far(1, 0x4000, len));
            play.pair.ias[0]
                .ep_post_rdma_write_immed(ep, &[here], 3, &there, immediate, NONE)
                .unwrap();
            let event = done(play, 1, true);
            let evd = play.sides[1].recv;
            let told = play.pair.ias[1].evd_extension(evd).unwrap();
            assert_eq!((event.cookie, event.len as usize), (7, len));
            assert_eq!(event.operation, IbOperation::RecvRdmaWriteImmed);
            assert_eq!((told.arrived, told.immediate), (Arrived::WriteImmediate, immediate));
            play.check(1, 0x4000, len, n as u32);
            let event = done(play, 0, false);
            assert_eq!((event.cookie, event.operation), (3, IbOperation::RdmaWriteImmed));
        }
    });
}

/// An Endpoint for datagrams on each side.
fn datagrams(play: &mut Play<'_>) -> [Ep; 2] {
    [0, 1].map(|side| {
        let own = &play.sides[side];
        play.pair.ias[side]
            .ep_create_ud(own.pz, own.recv, own.request, Some(own.conn), None, QKEY)
            .unwrap()
    })
}

fn to(play: &mut Play<'_>, side: usize, ep: Ep, qkey: u32) -> Destination {
    let qpn = play.pair.ias[side].ep_query(ep).unwrap().qp.unwrap().number;
    let remote = play.address(side);
    let found = play.pair.until(LIMIT, |pair| {
        let now = pair.now();
        match pair.ias[1 - side].ud_address(now, remote, qpn, qkey) {
            core::task::Poll::Ready(found) => Some(found),
            core::task::Poll::Pending => None,
        }
    });
    found.expect("an answer").unwrap()
}

fn talk(scene: &Scene) {
    scene.play(|play| {
        let [a, b] = datagrams(play);
        let address = to(play, 1, b, QKEY);
        let qpn = play.pair.ias[0].ep_query(a).unwrap().qp.unwrap().number;
        let mtu = usize::from(scene.stage.mtu.unwrap_or(4096));
        for (n, len) in [0, 1, 44, 300, mtu].into_iter().enumerate() {
            for immediate in [None, Some(0x1122_3344)] {
                play.fill(0, 0x100, len, n as u32);
                let there = play.seg(1, 0x4000, mtu + GRH_LEN);
                play.pair.ias[1].ep_post_recv(b, &[there], 7, NONE).unwrap();
                let pieces =
                    [play.seg(0, 0x100, len / 3), play.seg(0, 0x100 + len / 3, len - len / 3)];
                play.pair.ias[0].ep_post_send_ud(a, &pieces, &address, immediate, 3, NONE).unwrap();
                let event = done(play, 0, false);
                assert_eq!((event.cookie, event.operation), (3, IbOperation::SendUd));
                assert_eq!(event.status(), DtoStatus::Success);
                let event = done(play, 1, true);
                let evd = play.sides[1].recv;
                let told = play.pair.ias[1].evd_extension(evd).unwrap();
                assert_eq!((event.ep, event.len as usize), (b, GRH_LEN + len));
                assert_eq!((told.source_qpn, told.immediate), (qpn, immediate.unwrap_or(0)));
                let operation = match immediate {
                    None => IbOperation::RecvMsgUd,
                    Some(_) => IbOperation::RecvMsgUdImmed,
                };
                assert_eq!(event.operation, operation);
                play.check(1, 0x4000 + GRH_LEN, len, n as u32);
                let header = play.look(1, 0x4000, GRH_LEN);
                let from = sender(header.first_chunk().unwrap());
                assert_eq!(from, Some(play.address(0)));
            }
        }
        // The straight way looks first where the halves are taken.
        let there = play.seg(1, 0x4000, mtu + GRH_LEN);
        play.pair.ias[1].ep_post_recv(b, &[there], 8, NONE).unwrap();
        let here = play.seg(0, 0, 16);
        let mut poster = play.pair.ias[0].ep_take_poster(a).unwrap();
        let evd = play.sides[1].recv;
        let mut reaper = play.pair.ias[1].evd_take_reaper(evd).unwrap();
        poster.post_send_ud(&[here], &address, None, 4, NONE).unwrap();
        let event = play.pair.until(LIMIT, |_| reaper.dequeue().ok());
        let event = extended(event.unwrap());
        assert_eq!((event.cookie, event.operation), (8, IbOperation::RecvMsgUd));
        assert_eq!(reaper.extension().source_qpn, qpn);
        play.pair.ias[0].ep_return_poster(poster).unwrap();
        play.pair.ias[1].evd_return_reaper(reaper).unwrap();
        assert_eq!(done(play, 0, false).cookie, 4);
        // Another Q_Key is for somebody else.
        play.pair.ias[1].ep_post_recv(b, &[there], 9, NONE).unwrap();
        let stranger = to(play, 1, b, QKEY + 1);
        play.pair.ias[0].ep_post_send_ud(a, &[here], &stranger, None, 5, NONE).unwrap();
        assert_eq!(done(play, 0, false).status(), DtoStatus::Success);
        play.pass(Duration::from_millis(5));
        assert!(play.pair.ias[1].evd_dequeue(evd).is_err());
        // After an end and a reset it is open again.
        let now = play.now();
        play.pair.ias[1].ep_disconnect(now, b, CloseFlag::Graceful).unwrap();
        let flushed = play.pair.wait(1, evd, LIMIT);
        assert!(matches!(flushed, Some(Event::Dto(dto)) if dto.status == DtoStatus::ErrFlushed));
        play.pair.ias[1].ep_reset(b).unwrap();
        play.pair.ias[1].ep_post_recv(b, &[there], 10, NONE).unwrap();
        play.pair.ias[0].ep_post_send_ud(a, &[here], &address, None, 6, NONE).unwrap();
        assert_eq!(done(play, 1, true).cookie, 10);
        assert_eq!(done(play, 0, false).cookie, 6);
        for (side, ep) in [(0, a), (1, b)] {
            let now = play.now();
            play.pair.ias[side].ep_free(now, ep).unwrap();
        }
    });
}

/// Side 0 asks side 1's service point, over a wire that loses much.
#[test]
fn a_service_point_says_where_to_send() {
    for (seed, drop) in [(3, 0), (4, 300), (5, 300)] {
        Scene::seed(seed).play(|play| {
            let rates = mlx5_model::wire::impair::Rates { drop, ..Default::default() };
            let [a, b] = datagrams(play);
            play.lines.iter().for_each(|line| line.rates(rates));
            play.ask(a, b"who", 60 * LIMIT);
            let cr_evd = play.sides[1].cr;
            let cr = match play.pair.wait(1, cr_evd, 60 * LIMIT) {
                Some(Event::UdConnectionRequest { cr, .. }) => cr,
                other => panic!("{other:?}"),
            };
            let told = play.pair.ias[1].cr_query(cr).unwrap();
            assert!(told.private_data.starts_with(b"who\0"));
            let now = play.now();
            play.pair.ias[1].cr_accept(now, cr, Some(b), b"here").unwrap();
            let conn = play.sides[0].conn;
            let found = play.pair.wait(0, conn, 60 * LIMIT);
            assert!(matches!(found, Some(Event::UdEstablished(ep, _)) if ep == a));
            play.lines.iter().for_each(|line| line.rates(Default::default()));
            let address = play.pair.ias[0].ep_ud_address(a).unwrap();
            // Each time a way is asked for, datagrams get a flow of their own.
            let mut known = to(play, 1, b, QKEY);
            known.path.flow_label = address.path.flow_label;
            assert_eq!(address, known);
            play.fill(0, 0x100, 300, 9);
            let (here, there) = (play.seg(0, 0x100, 300), play.seg(1, 0x4000, 300 + GRH_LEN));
            play.pair.ias[1].ep_post_recv(b, &[there], 7, NONE).unwrap();
            play.pair.ias[0].ep_post_send_ud(a, &[here], &address, None, 3, NONE).unwrap();
            assert_eq!(done(play, 1, true).cookie, 7);
            play.check(1, 0x4000 + GRH_LEN, 300, 9);
            assert_eq!(done(play, 0, false).cookie, 3);
        });
    }
}

#[test]
fn datagrams_over_ipv4() {
    talk(&Scene::seed(5));
}

#[test]
fn datagrams_over_ipv6_in_a_vlan() {
    talk(&Scene {
        stage: Stage { ipv6: true, vlan: Some(9), mtu: Some(1024), ..Stage::default() },
        ..Scene::default()
    });
}
