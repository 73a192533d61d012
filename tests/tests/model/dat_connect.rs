//! Connections at DAT level over the driver and the model: what is said, what is lost, what ends,
//! and who may end it.
//!
//! Long because it is a list: many short tests over one harness, and one binary less to link.
//!
//! Length: one test per rule of connecting, on one harness.
#![expect(
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    clippy::needless_range_loop,
    clippy::panic,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "test code: a panic here is a failed test with a line number"
)]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use dat_core::{
    AsyncEvent, CloseFlag, DatSubtype, DatType, DtoOperation, DtoStatus, Ep, EpModify, EpState,
    EvdFlags, Event, PspFlag, Qos,
};
use dat_tests::pair::Stage;
use dat_tests::play::line::{attribute, attribute_id, mad, packet};
use dat_tests::play::{LIMIT, NONE, Play, QUALIFIER, Scene, contents};
use mlx5_model::wire::impair::{Fault, Rates};

const LONG: Duration = Duration::from_secs(300);
const SECOND: Duration = Duration::from_secs(1);

/// Ends the connection of the first Endpoints in order.
fn part(play: &mut Play<'_>) {
    play.disconnect(0, CloseFlag::Abrupt);
    play.ended();
}

fn reset(play: &mut Play<'_>) {
    for side in 0..2 {
        let ep = play.sides[side].ep;
        play.pair.ias[side].ep_reset(ep).unwrap();
        assert_eq!(play.state(side), EpState::Unconnected);
    }
}

fn accept(play: &mut Play<'_>, cr: dat_core::Cr, ep: Option<Ep>, private: &[u8]) {
    let now = play.now();
    play.pair.ias[1].cr_accept(now, cr, ep, private).unwrap();
}

fn padded(bytes: &[u8], len: usize) -> Vec<u8> {
    let mut all = bytes.to_vec();
    all.resize(len, 0);
    all
}

#[test]
fn private_data_of_every_length_both_ways() {
    Scene::default().play(|play| {
        for (n, (asked, said)) in
            [(0, 0), (1, 196), (55, 1), (56, 195), (56, 196)].into_iter().enumerate()
        {
            let (hello, welcome) = (contents(n as u32, asked), contents(n as u32 + 50, said));
            let (a, b) = (play.sides[0].ep, play.sides[1].ep);
            play.ask(a, &hello, LIMIT);
            let cr = play.request();
            let heard = play.pair.ias[1].cr_query(cr).unwrap();
            assert_eq!(heard.private_data, padded(&hello, 56));
            assert_eq!(heard.remote, play.address(0));
            accept(play, cr, Some(b), &welcome);
            assert_eq!(play.connection(0), Event::Established(a));
            assert_eq!(play.connection(1), Event::Established(b));
            assert_eq!(play.pair.ias[0].ep_private_data(a).unwrap(), padded(&welcome, 196));
            assert!(play.pair.ias[1].ep_private_data(b).unwrap().is_empty());
            play.traffic(n as u32);
            part(play);
            reset(play);
        }
    });
}

#[test]
fn too_much_private_data_is_refused_and_changes_nothing() {
    Scene::default().play(|play| {
        let (a, b, to, now) = (play.sides[0].ep, play.sides[1].ep, play.address(1), play.now());
        let long = [7; 200];
        let got = play.pair.ias[0].ep_connect(
            now,
            a,
            to,
            QUALIFIER,
            SECOND,
            &long[..57],
            Qos::BestEffort,
        );
        assert_eq!(got.unwrap_err().ret().ty(), DatType::InvalidParameter);
        assert_eq!(play.state(0), EpState::Unconnected);
        play.ask(a, &long[..56], LIMIT);
        let (cr, now) = (play.request(), play.now());
        let got = play.pair.ias[1].cr_accept(now, cr, Some(b), &long[..197]);
        assert_eq!(got.unwrap_err().ret().ty(), DatType::InvalidParameter);
        let got = play.pair.ias[1].cr_reject(now, cr, &long[..149]);
        assert_eq!(got.unwrap_err().ret().ty(), DatType::InvalidParameter);
        assert_eq!(
            (play.state(0), play.state(1)),
            (EpState::ActiveConnectionPending, EpState::Unconnected)
        );
        accept(play, cr, Some(b), &long[..196]);
        assert_eq!(play.connection(0), Event::Established(a));
        assert_eq!(play.connection(1), Event::Established(b));
    });
}

#[test]
fn a_consumer_s_rejection_with_its_data() {
    Scene::default().play(|play| {
        let ep = play.sides[0].ep;
        for len in [0, 1, 148] {
            let words = contents(9, len);
            play.recv(0, 0, 64, 5);
            play.ask(ep, b"may I", LIMIT);
            let (cr, now) = (play.request(), play.now());
            play.pair.ias[1].cr_reject(now, cr, &words).unwrap();
            assert_eq!(play.connection(0), Event::PeerRejected(ep));
            assert_eq!(play.pair.ias[0].ep_private_data(ep).unwrap(), padded(&words, 148));
            assert_eq!(play.receives(0, 1), [(5, DtoStatus::ErrFlushed)]);
            assert_eq!(play.state(0), EpState::Disconnected);
            let stale = play.pair.ias[1].cr_reject(now, cr, &words).unwrap_err().ret();
            assert_eq!(stale.subtype(), DatSubtype::InvalidHandleCr);
            reset(play);
        }
        play.connect();
        play.traffic(1);
    });
}

#[test]
fn nobody_listens() {
    Scene::default().play(|play| {
        let (ep, to, now) = (play.sides[0].ep, play.address(1), play.now());
        play.recv(0, 0, 64, 5);
        play.pair.ias[0]
            .ep_connect(now, ep, to, QUALIFIER + 1, LIMIT, b"", Qos::BestEffort)
            .unwrap();
        assert_eq!(play.connection(0), Event::NonPeerRejected(ep));
        assert_eq!(play.receives(0, 1), [(5, DtoStatus::ErrFlushed)]);
        assert_eq!(play.state(0), EpState::Disconnected);
        play.quiet(SECOND);
    });
}

#[test]
fn nobody_listens_any_more() {
    Scene::default().play(|play| {
        let ep = play.sides[0].ep;
        let psp = play.sides[1].psp.take().unwrap();
        play.pair.ias[1].psp_free(psp).unwrap();
        play.ask(ep, b"", LIMIT);
        assert_eq!(play.connection(0), Event::NonPeerRejected(ep));
    });
}

#[test]
fn a_full_backlog_turns_requests_away_and_an_empty_one_takes_them() {
    Scene::default().play(|play| {
        let evd = play.pair.ias[1].evd_create(2, EvdFlags::CR).unwrap();
        play.pair.ias[1].psp_create(99, evd, PspFlag::Consumer).unwrap();
        let eps = [play.sides[0].ep, play.endpoint(0), play.endpoint(0), play.endpoint(0)];
        let to = play.address(1);
        let ask = |play: &mut Play<'_>, ep| {
            let now = play.now();
            play.pair.ias[0].ep_connect(now, ep, to, 99, LIMIT, b"", Qos::BestEffort).unwrap();
            play.pass(Duration::from_millis(50));
        };
        for &ep in &eps[..3] {
            ask(play, ep);
        }
        assert_eq!(play.connection(0), Event::NonPeerRejected(eps[2]));
        play.event(1, evd);
        ask(play, eps[3]);
        play.event(1, evd);
        play.event(1, evd);
        play.quiet(Duration::from_millis(10));
        assert_eq!(
            play.pair.ias[0].ep_query(eps[3]).unwrap().state,
            EpState::ActiveConnectionPending
        );
    });
}

#[test]
fn a_host_that_does_not_exist() {
    for ipv6 in [false, true] {
        let scene = Scene { stage: Stage { ipv6, ..Stage::default() }, ..Scene::default() };
        scene.play(|play| {
            let (ep, now) = (play.sides[0].ep, play.now());
            let nobody = if ipv6 {
                IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 7, 0, 0, 0, 99))
            } else {
                IpAddr::V4(Ipv4Addr::new(192, 168, 7, 99))
            };
            play.recv(0, 0, 64, 5);
            play.pair.ias[0]
                .ep_connect(now, ep, nobody, QUALIFIER, LONG, b"", Qos::BestEffort)
                .unwrap();
            assert_eq!(play.connection(0), Event::Unreachable(ep));
            assert!(play.now().since(now) < Duration::from_secs(30), "{:?}", play.now().since(now));
            assert_eq!(play.receives(0, 1), [(5, DtoStatus::ErrFlushed)]);
            assert_eq!(play.state(0), EpState::Disconnected);
            reset(play);
            play.connect();
        });
    }
}

#[test]
fn a_host_off_the_network_without_a_gateway() {
    Scene::default().play(|play| {
        let (ep, now) = (play.sides[0].ep, play.now());
        let far = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
        match play.pair.ias[0].ep_connect(now, ep, far, QUALIFIER, LIMIT, b"", Qos::BestEffort) {
            Ok(()) => assert_eq!(play.connection(0), Event::Unreachable(ep)),
            Err(error) => assert_eq!(error.ret().ty(), DatType::InvalidAddress),
        }
    });
}

#[test]
fn the_consumer_s_own_patience_ends_to_the_point() {
    Scene::default().play(|play| {
        let ep = play.sides[0].ep;
        play.recv(0, 0, 64, 5);
        for patience in [1, 70, 500, 9000] {
            let patience = Duration::from_millis(patience);
            let start = play.now();
            play.ask(ep, b"", patience);
            assert_eq!(play.connection(0), Event::TimedOut(ep));
            let took = play.now().since(start);
            assert!(
                took >= patience && took < patience + Duration::from_millis(5),
                "{took:?} for {patience:?}"
            );
            assert_eq!(play.state(0), EpState::Disconnected);
            reset(play);
        }
        // The peer has seen requests come and go; accepting one that is gone says so.
        let b = play.sides[1].ep;
        let cr = play.request();
        accept(play, cr, Some(b), b"");
        assert_eq!(play.connection(1), Event::AcceptCompletionError(b));
        play.pass(SECOND);
        assert_eq!(play.state(0), EpState::Unconnected);
    });
}

#[test]
fn each_message_lost_once_and_thrice() {
    for times in [1, 3] {
        for (side, id) in [
            (0, attribute::REQ),
            (1, attribute::REP),
            (0, attribute::RTU),
            (0, attribute::DREQ),
            (1, attribute::DREP),
        ] {
            Scene::seed(id.into()).play(|play| {
                play.lines[side].rule_mad(0, times, Fault::Drop, id);
                play.connect();
                play.traffic(1);
                part(play);
                play.pass(LONG);
                assert_eq!(u64::from(times), play.lines[side].struck().drop, "message {id:#x}");
                reset(play);
                play.connect();
                play.traffic(2);
            });
        }
    }
}

#[test]
fn each_message_doubled_delayed_or_overtaken() {
    for fault in [
        Fault::Duplicate,
        Fault::Delay(3_000_000_000),
        Fault::Delay(20_000_000_000),
        Fault::Overtaken(1),
    ] {
        for (side, id) in [
            (0, attribute::REQ),
            (1, attribute::REP),
            (0, attribute::RTU),
            (0, attribute::DREQ),
            (1, attribute::DREP),
        ] {
            if (id, fault) == (attribute::REQ, Fault::Delay(20_000_000_000)) {
                // So late that it is a request of its own: for its sender has asked again, and been
                // served, long ago.
                continue;
            }
            Scene::seed(id.into()).play(|play| {
                play.lines[side].rule_mad(0, 1, fault, id);
                play.connect();
                play.traffic(1);
                part(play);
                play.quiet(Duration::from_secs(30));
                reset(play);
                play.connect();
                play.traffic(2);
            });
        }
    }
}

#[test]
fn data_establishes_a_connection_whose_rtu_is_late() {
    Scene::default().play(|play| {
        play.lines[0].rule_mad(0, u32::MAX, Fault::Drop, attribute::RTU);
        let (a, b) = (play.sides[0].ep, play.sides[1].ep);
        play.recv(1, 0, 64, 1);
        play.ask(a, b"", LIMIT);
        let cr = play.request();
        accept(play, cr, Some(b), b"");
        assert_eq!(play.connection(0), Event::Established(a));
        let start = play.now();
        play.send(0, 0, 64, 2);
        assert_eq!(play.connection(1), Event::Established(b));
        assert!(play.now().since(start) < SECOND, "{:?}", play.now().since(start));
        play.received(1, 1);
        play.requested(0, DtoOperation::Send, 2);
        play.traffic(1);
    });
}

#[test]
fn requests_that_never_arrive() {
    Scene::default().play(|play| {
        play.lines[0].rule_mad(0, u32::MAX, Fault::Drop, attribute::REQ);
        let ep = play.sides[0].ep;
        play.ask(ep, b"", LONG);
        let evd = play.sides[0].conn;
        assert_eq!(play.event_within(0, evd, LONG), Event::Unreachable(ep));
        assert!(play.lines[0].struck().drop > 2);
    });
}

#[test]
fn replies_that_never_arrive() {
    Scene::default().play(|play| {
        play.lines[1].rule_mad(0, u32::MAX, Fault::Drop, attribute::REP);
        let (a, b) = (play.sides[0].ep, play.sides[1].ep);
        play.recv(1, 0, 64, 5);
        play.ask(a, b"", LONG);
        let cr = play.request();
        accept(play, cr, Some(b), b"");
        for (side, ep) in [(0, a), (1, b)] {
            let evd = play.sides[side].conn;
            let got = play.event_within(side, evd, LONG);
            let wanted = if side == 0 {
                [Event::Unreachable(ep), Event::NonPeerRejected(ep)].contains(&got)
            } else {
                got == Event::AcceptCompletionError(ep)
            };
            assert!(wanted, "side {side}: {got:?}");
            assert_eq!(play.state(side), EpState::Disconnected);
        }
        assert_eq!(play.receives(1, 1), [(5, DtoStatus::ErrFlushed)]);
    });
}

#[test]
fn disconnects_that_are_never_answered() {
    Scene::default().connected(|play| {
        play.lines[1].rule_mad(0, u32::MAX, Fault::Drop, attribute::DREP);
        part(play);
        play.quiet(LONG);
        reset(play);
        play.connect();
        play.traffic(1);
    });
}

#[test]
fn both_sides_disconnect_at_once() {
    for (first, second) in [
        (CloseFlag::Abrupt, CloseFlag::Abrupt),
        (CloseFlag::Graceful, CloseFlag::Graceful),
        (CloseFlag::Graceful, CloseFlag::Abrupt),
    ] {
        Scene { merged: true, ..Scene::default() }.connected(|play| {
            let n = 10;
            for side in 0..2 {
                play.recv(side, 0, 64, 99);
                (0..n).for_each(|cookie| play.write(side, 0, 3000, cookie));
            }
            play.disconnect(0, first);
            play.disconnect(1, second);
            for side in 0..2 {
                let (evd, ep) = (play.sides[side].request, play.sides[side].ep);
                let mut cookies = Vec::new();
                loop {
                    match play.event(side, evd) {
                        Event::Dto(dto) => cookies.push(dto.cookie),
                        Event::Disconnected(e) if e == ep => break,
                        other => panic!("{other:?}"),
                    }
                }
                cookies.retain(|&cookie| cookie != 99);
                assert_eq!(
                    cookies,
                    (0..n).collect::<Vec<_>>(),
                    "each once and in order, before the end"
                );
                assert_eq!(play.state(side), EpState::Disconnected);
            }
            play.quiet(Duration::from_secs(10));
        });
    }
}

#[test]
fn a_peer_that_vanishes() {
    Scene::default().connected(|play| {
        play.traffic(1);
        play.recv(0, 0, 64, 50);
        play.recv(1, 0, 64, 60);
        play.lines.iter().for_each(|line| line.cut(true));
        let start = play.now();
        (0..5).for_each(|cookie| play.write(0, 0, 64, cookie));
        let said = play.requests(0, 5);
        assert_eq!(said[0], (0, DtoStatus::ErrTransport));
        assert_eq!(said[1..], [1, 2, 3, 4].map(|cookie| (cookie, DtoStatus::ErrFlushed)));
        assert!(play.now().since(start) < Duration::from_secs(60));
        let a = play.sides[0].ep;
        assert_eq!(play.connection(0), Event::Broken(a));
        assert_eq!(play.receives(0, 1), [(50, DtoStatus::ErrFlushed)]);
        let cause = play.pair.ias[0].ep_cause(a).unwrap().unwrap();
        let words = format!("{cause}");
        let qpn = play.pair.ias[0].ep_query(a).unwrap().qp.unwrap().number;
        assert!(
            words.contains(&format!("{qpn:#x}")) || words.contains(&qpn.to_string()),
            "{words}"
        );
        // The other side knows nothing until it speaks itself.
        assert_eq!(play.state(1), EpState::Connected);
        play.write(1, 0, 64, 61);
        assert_eq!(play.requests(1, 1), [(61, DtoStatus::ErrTransport)]);
        let b = play.sides[1].ep;
        assert_eq!(play.connection(1), Event::Broken(b));
        assert_eq!(play.receives(1, 1), [(60, DtoStatus::ErrFlushed)]);
        play.lines.iter().for_each(|line| line.cut(false));
        play.pass(LONG);
        reset(play);
        play.connect();
        play.traffic(2);
    });
}

#[test]
fn a_hundred_resets_and_connections_leave_nothing_behind() {
    Scene::default().play(|play| {
        let mut held = None;
        for n in 0..100 {
            play.connect();
            play.traffic(n);
            match n % 3 {
                0 => play.disconnect(0, CloseFlag::Graceful),
                1 => play.disconnect(1, CloseFlag::Graceful),
                _ => play.disconnect(1, CloseFlag::Abrupt),
            }
            play.ended();
            reset(play);
            let now = [0, 1].map(|side| {
                (play.pair.slots[side].in_use(), play.pair.slots[side].views().pages_out())
            });
            assert_eq!(*held.get_or_insert(now), now, "after connection {n}");
        }
    });
}

#[test]
fn completions_of_a_former_life_do_not_come_back() {
    Scene::default().connected(|play| {
        for n in 0..10 {
            (0..20).for_each(|cookie| play.write(0, 0, 64, cookie));
            play.recv(0, 0, 64, 77);
            part(play);
            reset(play);
            play.connect();
            play.write(0, 0, 64, 1000 + n);
            assert_eq!(play.requests(0, 1), [(1000 + n, DtoStatus::Success)]);
            let (evd, recv) = (play.sides[0].request, play.sides[0].recv);
            assert!(play.pair.ias[0].evd_dequeue(evd).is_err());
            assert!(play.pair.ias[0].evd_dequeue(recv).is_err());
        }
    });
}

#[test]
fn receives_posted_before_the_connection_take_the_first_messages() {
    Scene::default().play(|play| {
        for n in 0..4 {
            play.recv(1, 0x100 * n, 0x100, n as u64);
        }
        play.connect();
        for n in 0..4 {
            play.fill(0, 0, 0x100, n as u32);
            play.send(0, 0, 0x100, n as u64);
            play.requested(0, DtoOperation::Send, n as u64);
            assert_eq!(play.received(1, n as u64), 0x100);
            play.check(1, 0x100 * n, 0x100, n as u32);
        }
    });
}

#[test]
fn a_service_point_that_makes_the_endpoints() {
    Scene::default().play(|play| {
        let evd = play.sides[1].cr;
        play.pair.ias[1].psp_create(5000, evd, PspFlag::Provider).unwrap();
        for reject in [true, false] {
            let (a, to, now) = (play.sides[0].ep, play.address(1), play.now());
            play.pair.ias[0].ep_connect(now, a, to, 5000, LIMIT, b"x", Qos::BestEffort).unwrap();
            let Event::ConnectionRequest { cr, conn_qual: 5000, .. } = play.event(1, evd) else {
                panic!()
            };
            let b = play.pair.ias[1].cr_query(cr).unwrap().local_ep.unwrap();
            assert_eq!(play.pair.ias[1].ep_query(b).unwrap().state, EpState::UnconfiguredTentative);
            let now = play.now();
            if reject {
                play.pair.ias[1].cr_reject(now, cr, b"").unwrap();
                assert_eq!(play.connection(0), Event::PeerRejected(a));
                assert!(play.pair.ias[1].ep_get_status(b).is_err(), "it went with the request");
                play.pair.ias[0].ep_reset(a).unwrap();
                continue;
            }
            // It lacks everything yet; naming another is refused.
            let other = play.sides[1].ep;
            assert!(play.pair.ias[1].cr_accept(now, cr, None, b"").is_err());
            assert!(play.pair.ias[1].cr_accept(now, cr, Some(other), b"").is_err());
            let own = &play.sides[1];
            let attr = play.pair.ias[1].ep_attr_default();
            let change = EpModify {
                pz: Some(own.pz),
                recv_evd: Some(own.recv),
                request_evd: Some(own.request),
                connect_evd: Some(own.conn),
                attr: Some(attr),
            };
            play.pair.ias[1].ep_modify(b, &change).unwrap();
            accept(play, cr, None, b"y");
            assert_eq!(play.connection(0), Event::Established(a));
            assert_eq!(play.connection(1), Event::Established(b));
            play.sides[1].ep = b;
            play.traffic(1);
        }
    });
}

/// Connects every Endpoint there is at once, over a wire of that quality, and sends something
/// through each.
fn connect_all(seed: u64, rates: Rates) {
    Scene::seed(seed).play(|play| {
        let count = 16;
        let mut eps = [vec![play.sides[0].ep], vec![play.sides[1].ep]];
        for side in 0..2 {
            eps[side].extend((1..count).map(|_| play.endpoint(side)));
        }
        assert!(
            play.pair.ias[0].ep_create(None, None, None, None, None).is_err(),
            "there is room for another"
        );
        play.lines.iter().for_each(|line| line.rates(rates));
        for &ep in &eps[0] {
            play.ask(ep, b"", LONG);
        }
        let mut up = [vec![], vec![]];
        let mut next = 0;
        let done = play.pair.until(LONG, |pair| {
            while let Ok(Event::ConnectionRequest { cr, .. }) =
                pair.ias[1].evd_dequeue(play.sides[1].cr)
            {
                let now = pair.now();
                pair.ias[1].cr_accept(now, cr, Some(eps[1][next]), b"").unwrap();
                next += 1;
            }
            for side in 0..2 {
                while let Ok(event) = pair.ias[side].evd_dequeue(play.sides[side].conn) {
                    let Event::Established(ep) = event else { panic!("side {side}: {event:?}") };
                    up[side].push(ep);
                }
            }
            (up[0].len() == count && up[1].len() == count).then_some(())
        });
        assert!(done.is_some(), "{} and {} of {count} came up", up[0].len(), up[1].len());
        play.lines.iter().for_each(|line| line.rates(Rates::default()));
        // Each message arrives at one Endpoint, and at another each time.
        let mut met = vec![];
        for (n, &a) in eps[0].iter().enumerate() {
            let own = [play.seg(0, 0, 64)];
            play.fill(0, 0, 64, n as u32);
            for &b in &eps[1] {
                let theirs = [play.seg(1, 0, 64)];
                if play.pair.ias[1].ep_get_status(b).unwrap().recv_idle && !met.contains(&b) {
                    play.pair.ias[1].ep_post_recv(b, &theirs, 1, NONE).unwrap();
                }
            }
            play.pair.ias[0].ep_post_send(a, &own, 2, NONE).unwrap();
            play.requested(0, DtoOperation::Send, 2);
            let evd = play.sides[1].recv;
            let Event::Dto(dto) = play.event(1, evd) else { panic!() };
            assert!(!met.contains(&dto.ep));
            met.push(dto.ep);
            play.check(1, 0, 64, n as u32);
        }
    });
}

#[test]
fn all_endpoints_connect_at_once() {
    connect_all(1, Rates::default());
}

#[test]
fn all_endpoints_connect_at_once_over_a_bad_wire() {
    for seed in 0..4 {
        connect_all(
            seed,
            Rates { drop: 100, duplicate: 50, corrupt: 30, reorder: 100, ..Rates::default() },
        );
    }
}

#[test]
fn both_sides_ask_each_other_at_once() {
    Scene::default().play(|play| {
        let (a, b) = (play.sides[0].ep, play.sides[1].ep);
        let (c, d) = (play.endpoint(0), play.endpoint(1));
        for (side, ep) in [(0, a), (1, b)] {
            let (now, to) = (play.now(), play.address(1 - side));
            play.pair.ias[side]
                .ep_connect(now, ep, to, QUALIFIER, LIMIT, b"", Qos::BestEffort)
                .unwrap();
        }
        for (side, ep) in [(1, d), (0, c)] {
            let evd = play.sides[side].cr;
            let Event::ConnectionRequest { cr, .. } = play.event(side, evd) else { panic!() };
            let now = play.now();
            play.pair.ias[side].cr_accept(now, cr, Some(ep), b"").unwrap();
        }
        for (side, eps) in [(0, [a, c]), (1, [b, d])] {
            let mut up = [play.connection(side), play.connection(side)];
            up.sort_by_key(|event| *event != Event::Established(eps[0]));
            assert_eq!(up, eps.map(Event::Established));
        }
    });
}

#[test]
fn an_attempt_given_up_in_each_phase() {
    // Given up by disconnect and by free, before the address is known, while the request is under
    // way, and after it arrived.
    for free in [false, true] {
        for phase in 0..3 {
            Scene::default().play(|play| {
                let a = play.sides[0].ep;
                play.recv(0, 0, 64, 5);
                if phase == 1 {
                    play.lines[0].rule_mad(0, 1, Fault::Drop, attribute::REQ);
                }
                play.ask(a, b"", LIMIT);
                let cr = (phase == 2).then(|| play.request());
                if phase == 1 {
                    play.pass(Duration::from_millis(50));
                }
                let now = play.now();
                if free {
                    play.pair.ias[0].ep_free(now, a).unwrap();
                } else {
                    play.disconnect(0, CloseFlag::Graceful);
                    assert_eq!(play.connection(0), Event::Disconnected(a));
                    assert_eq!(play.receives(0, 1), [(5, DtoStatus::ErrFlushed)]);
                }
                play.pass(Duration::from_millis(50));
                if let Some(cr) = cr {
                    let b = play.sides[1].ep;
                    accept(play, cr, Some(b), b"");
                    assert_eq!(play.connection(1), Event::AcceptCompletionError(b));
                    play.pair.ias[1].ep_reset(b).unwrap();
                }
                play.pass(Duration::from_secs(10));
                let evd = play.sides[1].cr;
                while play.pair.ias[1].evd_dequeue(evd).is_ok() {}
                if free {
                    play.sides[0].ep = play.endpoint(0);
                } else {
                    play.pair.ias[0].ep_reset(a).unwrap();
                }
                play.connect();
                play.traffic(1);
            });
        }
    }
}

#[test]
fn a_free_of_a_connected_endpoint_ends_the_peer_s_connection() {
    Scene::default().connected(|play| {
        let (a, b, now) = (play.sides[0].ep, play.sides[1].ep, play.now());
        play.pair.ias[0].ep_free(now, a).unwrap();
        assert_eq!(play.connection(1), Event::Disconnected(b));
        assert!(play.pair.ias[0].ep_get_status(a).is_err());
    });
}

#[test]
fn a_close_of_an_adapter_ends_the_peer_s_connections() {
    Scene::default().connected(|play| {
        let (b, now) = (play.sides[1].ep, play.now());
        let left = play.pair.ias[0].close(now, CloseFlag::Graceful).unwrap_err();
        assert_eq!(left.ret().subtype(), DatSubtype::InvalidStateIaInUse);
        play.traffic(1);
        play.pair.ias[0].close(now, CloseFlag::Abrupt).unwrap();
        play.lost[0] = true;
        assert_eq!(play.connection(1), Event::Disconnected(b));
    });
}

#[test]
fn an_address_of_its_own() {
    // Both ends in one adapter: the frames go round inside the device.
    Scene::default().play(|play| {
        let (a, b) = (play.sides[0].ep, play.endpoint(0));
        let (now, to) = (play.now(), play.address(0));
        play.pair.ias[0].ep_connect(now, a, to, QUALIFIER, LIMIT, b"me", Qos::BestEffort).unwrap();
        let evd = play.sides[0].cr;
        let Event::ConnectionRequest { cr, .. } = play.event(0, evd) else { panic!() };
        let now = play.now();
        play.pair.ias[0].cr_accept(now, cr, Some(b), b"").unwrap();
        let mut up = [play.connection(0), play.connection(0)];
        up.sort_by_key(|event| *event != Event::Established(a));
        assert_eq!(up, [a, b].map(Event::Established));
        play.fill(0, 0, 5000, 3);
        let to = play.far(0, 0x4000, 5000);
        play.write_to(0, 0, 5000, to, 1);
        play.requested(0, DtoOperation::RdmaWrite, 1);
        play.check(0, 0x4000, 5000, 3);
    });
}

#[test]
fn async_events_are_none_in_all_this() {
    Scene::default().connected(|play| {
        play.traffic(1);
        part(play);
        for side in 0..2 {
            let evd = play.pair.ias[side].async_evd();
            let got = play.pair.ias[side].evd_dequeue(evd);
            assert!(
                !matches!(got, Ok(Event::Async(AsyncEvent::IaCatastrophic))) && got.is_err(),
                "{got:?}"
            );
        }
    });
}

#[test]
fn messages_on_the_wire_are_those_of_the_book() {
    Scene::default().play(|play| {
        play.lines.iter().for_each(dat_tests::play::Line::record);
        play.connect();
        part(play);
        play.pass(SECOND);
        let said = [0, 1].map(|side| {
            let sent = play.lines[side].recorded();
            let mads: Vec<_> =
                sent.iter().filter_map(|frame| mad(frame)).map(|m| attribute_id(&m)).collect();
            assert!(
                sent.iter()
                    .filter_map(|f| packet(f))
                    .all(|p| p.ext.deth.is_none_or(|d| d.src_qp == 1))
            );
            mads
        });
        assert_eq!(said[0], [attribute::REQ, attribute::RTU, attribute::DREQ]);
        assert_eq!(said[1], [attribute::REP, attribute::DREP]);
    });
}
