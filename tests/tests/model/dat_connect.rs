//! Connections at DAT level over the driver and the model: messages, losses, ends, and which side
//! may end them.
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
use dat_tests::session::line::{attribute, attribute_id, mad, packet};
use dat_tests::session::{LIMIT, NONE, QUALIFIER, Session, Setup, contents};
use mlx5_model::Verdict;
use mlx5_model::wire::impair::{Fault, Rates};

const LONG: Duration = Duration::from_secs(300);
const SECOND: Duration = Duration::from_secs(1);

/// Ends the connection of the first Endpoints in order.
fn part(session: &mut Session<'_>) {
    session.disconnect(0, CloseFlag::Abrupt);
    session.ended();
}

fn reset(session: &mut Session<'_>) {
    for side in 0..2 {
        let ep = session.sides[side].ep;
        session.pair.ias[side].ep_reset(ep).unwrap();
        assert_eq!(session.state(side), EpState::Unconnected);
    }
}

fn accept(session: &mut Session<'_>, cr: dat_core::Cr, ep: Option<Ep>, private: &[u8]) {
    let now = session.now();
    session.pair.ias[1].cr_accept(now, cr, ep, private).unwrap();
}

fn padded(bytes: &[u8], len: usize) -> Vec<u8> {
    let mut all = bytes.to_vec();
    all.resize(len, 0);
    all
}

/// Commands that take a queue pair to ready-to-receive, and to ready-to-send.
const STEPS: [u16; 2] = [0x503, 0x504];

/// Answers those late.
struct Slow(u64);

impl mlx5_model::CommandHook for Slow {
    fn command(&mut self, _nth: u64, opcode: u16, _input: &[u8]) -> Verdict {
        if STEPS.contains(&opcode) { Verdict::Late(self.0) } else { Verdict::Run }
    }
}

/// Eight peers reply at once, and each of the sixteen steps takes the device 10 ms: first steps are
/// on their way together, and so are last ones. The replies may come in two parts.
#[test]
fn queue_pairs_take_their_steps_at_the_same_time() {
    Setup::default().run(|session| {
        let pairs: Vec<_> = (0..8).map(|_| [session.endpoint(0), session.endpoint(1)]).collect();
        let slow = Box::new(Slow(10_000_000));
        session.pair.slots[0].hca().set_command_hook(Some(slow));
        for [a, _] in &pairs {
            session.ask(*a, b"", LIMIT);
        }
        let requests: Vec<_> = pairs.iter().map(|_| session.request()).collect();
        for (cr, [_, b]) in requests.into_iter().zip(&pairs) {
            accept(session, cr, Some(*b), b"");
        }
        let before = session.now();
        let mut made: Vec<_> = pairs.iter().map(|_| session.connection(0)).collect();
        let took = session.now().since(before);
        assert!((20..60).contains(&took.as_millis()), "{took:?}");
        // In which order they asked does not matter.
        made.sort_by_key(|event| format!("{event:?}"));
        let mut expected: Vec<_> = pairs.iter().map(|[a, _]| Event::Established(*a)).collect();
        expected.sort_by_key(|event| format!("{event:?}"));
        assert_eq!(made, expected);
        session.pair.slots[0].hca().set_command_hook(None);
        let other: Vec<_> = pairs.iter().map(|_| session.connection(1)).collect();
        for [_, b] in &pairs {
            assert_eq!(other.iter().filter(|event| **event == Event::Established(*b)).count(), 1);
        }
        session.expect_no_event(SECOND);
    });
}

#[test]
fn private_data_of_every_length_both_ways() {
    Setup::default().run(|session| {
        for (n, (asked, said)) in
            [(0, 0), (1, 196), (55, 1), (56, 195), (56, 196)].into_iter().enumerate()
        {
            let (hello, welcome) = (contents(n as u32, asked), contents(n as u32 + 50, said));
            let (a, b) = (session.sides[0].ep, session.sides[1].ep);
            session.ask(a, &hello, LIMIT);
            let cr = session.request();
            let request = session.pair.ias[1].cr_query(cr).unwrap();
            assert_eq!(request.private_data, padded(&hello, 56));
            assert_eq!(request.remote, session.address(0));
            accept(session, cr, Some(b), &welcome);
            assert_eq!(session.connection(0), Event::Established(a));
            assert_eq!(session.connection(1), Event::Established(b));
            assert_eq!(session.pair.ias[0].ep_private_data(a).unwrap(), padded(&welcome, 196));
            assert!(session.pair.ias[1].ep_private_data(b).unwrap().is_empty());
            session.traffic(n as u32);
            part(session);
            reset(session);
        }
    });
}

#[test]
fn too_much_private_data_is_refused_and_changes_nothing() {
    Setup::default().run(|session| {
        let (a, b, to, now) =
            (session.sides[0].ep, session.sides[1].ep, session.address(1), session.now());
        let long = [7; 200];
        let got = session.pair.ias[0].ep_connect(
            now,
            a,
            to,
            QUALIFIER,
            SECOND,
            &long[..57],
            Qos::BestEffort,
        );
        assert_eq!(got.unwrap_err().ret().ty(), DatType::InvalidParameter);
        assert_eq!(session.state(0), EpState::Unconnected);
        session.ask(a, &long[..56], LIMIT);
        let (cr, now) = (session.request(), session.now());
        let got = session.pair.ias[1].cr_accept(now, cr, Some(b), &long[..197]);
        assert_eq!(got.unwrap_err().ret().ty(), DatType::InvalidParameter);
        let got = session.pair.ias[1].cr_reject(now, cr, &long[..149]);
        assert_eq!(got.unwrap_err().ret().ty(), DatType::InvalidParameter);
        assert_eq!(
            (session.state(0), session.state(1)),
            (EpState::ActiveConnectionPending, EpState::Unconnected)
        );
        accept(session, cr, Some(b), &long[..196]);
        assert_eq!(session.connection(0), Event::Established(a));
        assert_eq!(session.connection(1), Event::Established(b));
    });
}

#[test]
fn a_consumer_s_rejection_with_its_data() {
    Setup::default().run(|session| {
        let ep = session.sides[0].ep;
        for len in [0, 1, 148] {
            let words = contents(9, len);
            session.recv(0, 0, 64, 5);
            session.ask(ep, b"may I", LIMIT);
            let (cr, now) = (session.request(), session.now());
            session.pair.ias[1].cr_reject(now, cr, &words).unwrap();
            assert_eq!(session.connection(0), Event::PeerRejected(ep));
            assert_eq!(session.pair.ias[0].ep_private_data(ep).unwrap(), padded(&words, 148));
            assert_eq!(session.receives(0, 1), [(5, DtoStatus::ErrFlushed)]);
            assert_eq!(session.state(0), EpState::Disconnected);
            let stale = session.pair.ias[1].cr_reject(now, cr, &words).unwrap_err().ret();
            assert_eq!(stale.subtype(), DatSubtype::InvalidHandleCr);
            reset(session);
        }
        session.connect();
        session.traffic(1);
    });
}

#[test]
fn nobody_listens() {
    Setup::default().run(|session| {
        let (ep, to, now) = (session.sides[0].ep, session.address(1), session.now());
        session.recv(0, 0, 64, 5);
        session.pair.ias[0]
            .ep_connect(now, ep, to, QUALIFIER + 1, LIMIT, b"", Qos::BestEffort)
            .unwrap();
        assert_eq!(session.connection(0), Event::NonPeerRejected(ep));
        assert_eq!(session.receives(0, 1), [(5, DtoStatus::ErrFlushed)]);
        assert_eq!(session.state(0), EpState::Disconnected);
        session.expect_no_event(SECOND);
    });
}

#[test]
fn nobody_listens_any_more() {
    Setup::default().run(|session| {
        let ep = session.sides[0].ep;
        let psp = session.sides[1].psp.take().unwrap();
        session.pair.ias[1].psp_free(psp).unwrap();
        session.ask(ep, b"", LIMIT);
        assert_eq!(session.connection(0), Event::NonPeerRejected(ep));
    });
}

#[test]
fn a_full_backlog_turns_requests_away_and_an_empty_one_takes_them() {
    Setup::default().run(|session| {
        let evd = session.pair.ias[1].evd_create(2, EvdFlags::CR).unwrap();
        session.pair.ias[1].psp_create(99, evd, PspFlag::Consumer).unwrap();
        let eps =
            [session.sides[0].ep, session.endpoint(0), session.endpoint(0), session.endpoint(0)];
        let to = session.address(1);
        let ask = |session: &mut Session<'_>, ep| {
            let now = session.now();
            session.pair.ias[0].ep_connect(now, ep, to, 99, LIMIT, b"", Qos::BestEffort).unwrap();
            session.pass(Duration::from_millis(50));
        };
        for &ep in &eps[..3] {
            ask(session, ep);
        }
        assert_eq!(session.connection(0), Event::NonPeerRejected(eps[2]));
        session.event(1, evd);
        ask(session, eps[3]);
        session.event(1, evd);
        session.event(1, evd);
        session.expect_no_event(Duration::from_millis(10));
        assert_eq!(
            session.pair.ias[0].ep_query(eps[3]).unwrap().state,
            EpState::ActiveConnectionPending
        );
    });
}

#[test]
fn a_host_that_does_not_exist() {
    for ipv6 in [false, true] {
        let setup = Setup { stage: Stage { ipv6, ..Stage::default() }, ..Setup::default() };
        setup.run(|session| {
            let (ep, now) = (session.sides[0].ep, session.now());
            let nobody = if ipv6 {
                IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 7, 0, 0, 0, 99))
            } else {
                IpAddr::V4(Ipv4Addr::new(192, 168, 7, 99))
            };
            session.recv(0, 0, 64, 5);
            session.pair.ias[0]
                .ep_connect(now, ep, nobody, QUALIFIER, LONG, b"", Qos::BestEffort)
                .unwrap();
            assert_eq!(session.connection(0), Event::Unreachable(ep));
            assert!(
                session.now().since(now) < Duration::from_secs(30),
                "{:?}",
                session.now().since(now)
            );
            assert_eq!(session.receives(0, 1), [(5, DtoStatus::ErrFlushed)]);
            assert_eq!(session.state(0), EpState::Disconnected);
            reset(session);
            session.connect();
        });
    }
}

#[test]
fn a_host_off_the_network_without_a_gateway() {
    Setup::default().run(|session| {
        let (ep, now) = (session.sides[0].ep, session.now());
        let far = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
        match session.pair.ias[0].ep_connect(now, ep, far, QUALIFIER, LIMIT, b"", Qos::BestEffort) {
            Ok(()) => assert_eq!(session.connection(0), Event::Unreachable(ep)),
            Err(error) => assert_eq!(error.ret().ty(), DatType::InvalidAddress),
        }
    });
}

#[test]
fn the_consumer_s_own_patience_ends_to_the_point() {
    Setup::default().run(|session| {
        let ep = session.sides[0].ep;
        session.recv(0, 0, 64, 5);
        for patience in [1, 70, 500, 9000] {
            let patience = Duration::from_millis(patience);
            let start = session.now();
            session.ask(ep, b"", patience);
            assert_eq!(session.connection(0), Event::TimedOut(ep));
            let took = session.now().since(start);
            assert!(
                // A few commands, of two milliseconds on the slowest device.
                took >= patience && took < patience + Duration::from_millis(12),
                "{took:?} for {patience:?}"
            );
            assert_eq!(session.state(0), EpState::Disconnected);
            reset(session);
        }
        // The peer has seen requests come and go; accepting one that is gone says so.
        let b = session.sides[1].ep;
        let cr = session.request();
        accept(session, cr, Some(b), b"");
        assert_eq!(session.connection(1), Event::AcceptCompletionError(b));
        session.pass(SECOND);
        assert_eq!(session.state(0), EpState::Unconnected);
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
            Setup::seed(id.into()).run(|session| {
                session.lines[side].rule_mad(0, times, Fault::Drop, id);
                session.connect();
                session.traffic(1);
                part(session);
                session.pass(LONG);
                assert_eq!(u64::from(times), session.lines[side].struck().drop, "message {id:#x}");
                reset(session);
                session.connect();
                session.traffic(2);
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
                // So late that it counts as a new request: its sender has asked again, and been
                // served, long ago.
                continue;
            }
            Setup::seed(id.into()).run(|session| {
                session.lines[side].rule_mad(0, 1, fault, id);
                session.connect();
                session.traffic(1);
                part(session);
                session.expect_no_event(Duration::from_secs(30));
                reset(session);
                session.connect();
                session.traffic(2);
            });
        }
    }
}

#[test]
fn data_establishes_a_connection_whose_rtu_is_late() {
    Setup::default().run(|session| {
        session.lines[0].rule_mad(0, u32::MAX, Fault::Drop, attribute::RTU);
        let (a, b) = (session.sides[0].ep, session.sides[1].ep);
        session.recv(1, 0, 64, 1);
        session.ask(a, b"", LIMIT);
        let cr = session.request();
        accept(session, cr, Some(b), b"");
        assert_eq!(session.connection(0), Event::Established(a));
        let start = session.now();
        session.send(0, 0, 64, 2);
        assert_eq!(session.connection(1), Event::Established(b));
        assert!(session.now().since(start) < SECOND, "{:?}", session.now().since(start));
        session.received(1, 1);
        session.requested(0, DtoOperation::Send, 2);
        session.traffic(1);
    });
}

#[test]
fn requests_that_never_arrive() {
    Setup::default().run(|session| {
        session.lines[0].rule_mad(0, u32::MAX, Fault::Drop, attribute::REQ);
        let ep = session.sides[0].ep;
        session.ask(ep, b"", LONG);
        let evd = session.sides[0].conn;
        assert_eq!(session.event_within(0, evd, LONG), Event::Unreachable(ep));
        assert!(session.lines[0].struck().drop > 2);
    });
}

#[test]
fn replies_that_never_arrive() {
    Setup::default().run(|session| {
        session.lines[1].rule_mad(0, u32::MAX, Fault::Drop, attribute::REP);
        let (a, b) = (session.sides[0].ep, session.sides[1].ep);
        session.recv(1, 0, 64, 5);
        session.ask(a, b"", LONG);
        let cr = session.request();
        accept(session, cr, Some(b), b"");
        for (side, ep) in [(0, a), (1, b)] {
            let evd = session.sides[side].conn;
            let got = session.event_within(side, evd, LONG);
            let wanted = if side == 0 {
                [Event::Unreachable(ep), Event::NonPeerRejected(ep)].contains(&got)
            } else {
                got == Event::AcceptCompletionError(ep)
            };
            assert!(wanted, "side {side}: {got:?}");
            assert_eq!(session.state(side), EpState::Disconnected);
        }
        assert_eq!(session.receives(1, 1), [(5, DtoStatus::ErrFlushed)]);
    });
}

#[test]
fn disconnects_that_are_never_answered() {
    Setup::default().connected(|session| {
        session.lines[1].rule_mad(0, u32::MAX, Fault::Drop, attribute::DREP);
        part(session);
        session.expect_no_event(LONG);
        reset(session);
        session.connect();
        session.traffic(1);
    });
}

#[test]
fn both_sides_disconnect_at_once() {
    for (first, second) in [
        (CloseFlag::Abrupt, CloseFlag::Abrupt),
        (CloseFlag::Graceful, CloseFlag::Graceful),
        (CloseFlag::Graceful, CloseFlag::Abrupt),
    ] {
        Setup { merged: true, ..Setup::default() }.connected(|session| {
            let n = 10;
            for side in 0..2 {
                session.recv(side, 0, 64, 99);
                (0..n).for_each(|cookie| session.write(side, 0, 3000, cookie));
            }
            session.disconnect(0, first);
            session.disconnect(1, second);
            for side in 0..2 {
                let (evd, ep) = (session.sides[side].request, session.sides[side].ep);
                let mut cookies = Vec::new();
                loop {
                    match session.event(side, evd) {
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
                assert_eq!(session.state(side), EpState::Disconnected);
            }
            session.expect_no_event(Duration::from_secs(10));
        });
    }
}

#[test]
fn a_peer_that_vanishes() {
    Setup::default().connected(|session| {
        session.traffic(1);
        session.recv(0, 0, 64, 50);
        session.recv(1, 0, 64, 60);
        session.lines.iter().for_each(|line| line.cut(true));
        let start = session.now();
        (0..5).for_each(|cookie| session.write(0, 0, 64, cookie));
        let said = session.requests(0, 5);
        assert_eq!(said[0], (0, DtoStatus::ErrTransport));
        assert_eq!(said[1..], [1, 2, 3, 4].map(|cookie| (cookie, DtoStatus::ErrFlushed)));
        assert!(session.now().since(start) < Duration::from_secs(60));
        let a = session.sides[0].ep;
        assert_eq!(session.connection(0), Event::Broken(a));
        assert_eq!(session.receives(0, 1), [(50, DtoStatus::ErrFlushed)]);
        let cause = session.pair.ias[0].ep_cause(a).unwrap().unwrap();
        let words = format!("{cause}");
        let qpn = session.pair.ias[0].ep_query(a).unwrap().qp.unwrap().number;
        assert!(
            words.contains(&format!("{qpn:#x}")) || words.contains(&qpn.to_string()),
            "{words}"
        );
        // The other side notices nothing until it sends.
        assert_eq!(session.state(1), EpState::Connected);
        session.write(1, 0, 64, 61);
        assert_eq!(session.requests(1, 1), [(61, DtoStatus::ErrTransport)]);
        let b = session.sides[1].ep;
        assert_eq!(session.connection(1), Event::Broken(b));
        assert_eq!(session.receives(1, 1), [(60, DtoStatus::ErrFlushed)]);
        session.lines.iter().for_each(|line| line.cut(false));
        session.pass(LONG);
        reset(session);
        session.connect();
        session.traffic(2);
    });
}

#[test]
fn a_hundred_resets_and_connections_leave_nothing_behind() {
    Setup::default().run(|session| {
        let mut held = None;
        for n in 0..100 {
            session.connect();
            session.traffic(n);
            match n % 3 {
                0 => session.disconnect(0, CloseFlag::Graceful),
                1 => session.disconnect(1, CloseFlag::Graceful),
                _ => session.disconnect(1, CloseFlag::Abrupt),
            }
            session.ended();
            reset(session);
            let now = [0, 1].map(|side| {
                (session.pair.slots[side].in_use(), session.pair.slots[side].views().pages_out())
            });
            assert_eq!(*held.get_or_insert(now), now, "after connection {n}");
        }
    });
}

#[test]
fn completions_from_before_a_reset_do_not_come_back() {
    Setup::default().connected(|session| {
        for n in 0..10 {
            (0..20).for_each(|cookie| session.write(0, 0, 64, cookie));
            session.recv(0, 0, 64, 77);
            part(session);
            reset(session);
            session.connect();
            session.write(0, 0, 64, 1000 + n);
            assert_eq!(session.requests(0, 1), [(1000 + n, DtoStatus::Success)]);
            let (evd, recv) = (session.sides[0].request, session.sides[0].recv);
            assert!(session.pair.ias[0].evd_dequeue(evd).is_err());
            assert!(session.pair.ias[0].evd_dequeue(recv).is_err());
        }
    });
}

#[test]
fn receives_posted_before_the_connection_take_the_first_messages() {
    Setup::default().run(|session| {
        for n in 0..4 {
            session.recv(1, 0x100 * n, 0x100, n as u64);
        }
        session.connect();
        for n in 0..4 {
            session.fill(0, 0, 0x100, n as u32);
            session.send(0, 0, 0x100, n as u64);
            session.requested(0, DtoOperation::Send, n as u64);
            assert_eq!(session.received(1, n as u64), 0x100);
            session.check(1, 0x100 * n, 0x100, n as u32);
        }
    });
}

#[test]
fn a_service_point_that_makes_the_endpoints() {
    Setup::default().run(|session| {
        let evd = session.sides[1].cr;
        session.pair.ias[1].psp_create(5000, evd, PspFlag::Provider).unwrap();
        for reject in [true, false] {
            let (a, to, now) = (session.sides[0].ep, session.address(1), session.now());
            session.pair.ias[0].ep_connect(now, a, to, 5000, LIMIT, b"x", Qos::BestEffort).unwrap();
            let Event::ConnectionRequest { cr, conn_qual: 5000, .. } = session.event(1, evd) else {
                panic!()
            };
            let b = session.pair.ias[1].cr_query(cr).unwrap().local_ep.unwrap();
            assert_eq!(
                session.pair.ias[1].ep_query(b).unwrap().state,
                EpState::UnconfiguredTentative
            );
            let now = session.now();
            if reject {
                session.pair.ias[1].cr_reject(now, cr, b"").unwrap();
                assert_eq!(session.connection(0), Event::PeerRejected(a));
                assert!(session.pair.ias[1].ep_get_status(b).is_err(), "it went with the request");
                session.pair.ias[0].ep_reset(a).unwrap();
                continue;
            }
            // It has no parts yet; naming another Endpoint is refused.
            let other = session.sides[1].ep;
            assert!(session.pair.ias[1].cr_accept(now, cr, None, b"").is_err());
            assert!(session.pair.ias[1].cr_accept(now, cr, Some(other), b"").is_err());
            let own = &session.sides[1];
            let attr = session.pair.ias[1].ep_attr_default();
            let change = EpModify {
                pz: Some(own.pz),
                recv_evd: Some(own.recv),
                request_evd: Some(own.request),
                connect_evd: Some(own.conn),
                attr: Some(attr),
            };
            session.pair.ias[1].ep_modify(b, &change).unwrap();
            accept(session, cr, None, b"y");
            assert_eq!(session.connection(0), Event::Established(a));
            assert_eq!(session.connection(1), Event::Established(b));
            session.sides[1].ep = b;
            session.traffic(1);
        }
    });
}

/// Connects all Endpoints at once, over a wire of that quality, and sends something through each.
fn connect_all(seed: u64, rates: Rates) {
    Setup::seed(seed).run(|session| {
        let count = 16;
        let mut eps = [vec![session.sides[0].ep], vec![session.sides[1].ep]];
        for side in 0..2 {
            eps[side].extend((1..count).map(|_| session.endpoint(side)));
        }
        assert!(
            session.pair.ias[0].ep_create(None, None, None, None, None).is_err(),
            "there is room for another"
        );
        session.lines.iter().for_each(|line| line.rates(rates));
        for &ep in &eps[0] {
            session.ask(ep, b"", LONG);
        }
        let mut up = [vec![], vec![]];
        let mut next = 0;
        let done = session.pair.until(LONG, |pair| {
            while let Ok(Event::ConnectionRequest { cr, .. }) =
                pair.ias[1].evd_dequeue(session.sides[1].cr)
            {
                let now = pair.now();
                pair.ias[1].cr_accept(now, cr, Some(eps[1][next]), b"").unwrap();
                next += 1;
            }
            for side in 0..2 {
                while let Ok(event) = pair.ias[side].evd_dequeue(session.sides[side].conn) {
                    let Event::Established(ep) = event else { panic!("side {side}: {event:?}") };
                    up[side].push(ep);
                }
            }
            (up[0].len() == count && up[1].len() == count).then_some(())
        });
        assert!(done.is_some(), "{} and {} of {count} came up", up[0].len(), up[1].len());
        session.lines.iter().for_each(|line| line.rates(Rates::default()));
        // Each message arrives at one Endpoint, and no two at the same.
        let mut met = vec![];
        for (n, &a) in eps[0].iter().enumerate() {
            let own = [session.seg(0, 0, 64)];
            session.fill(0, 0, 64, n as u32);
            for &b in &eps[1] {
                let theirs = [session.seg(1, 0, 64)];
                if session.pair.ias[1].ep_get_status(b).unwrap().recv_idle && !met.contains(&b) {
                    session.pair.ias[1].ep_post_recv(b, &theirs, 1, NONE).unwrap();
                }
            }
            session.pair.ias[0].ep_post_send(a, &own, 2, NONE).unwrap();
            session.requested(0, DtoOperation::Send, 2);
            let evd = session.sides[1].recv;
            let Event::Dto(dto) = session.event(1, evd) else { panic!() };
            assert!(!met.contains(&dto.ep));
            met.push(dto.ep);
            session.check(1, 0, 64, n as u32);
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
    Setup::default().run(|session| {
        let (a, b) = (session.sides[0].ep, session.sides[1].ep);
        let (c, d) = (session.endpoint(0), session.endpoint(1));
        for (side, ep) in [(0, a), (1, b)] {
            let (now, to) = (session.now(), session.address(1 - side));
            session.pair.ias[side]
                .ep_connect(now, ep, to, QUALIFIER, LIMIT, b"", Qos::BestEffort)
                .unwrap();
        }
        for (side, ep) in [(1, d), (0, c)] {
            let evd = session.sides[side].cr;
            let Event::ConnectionRequest { cr, .. } = session.event(side, evd) else { panic!() };
            let now = session.now();
            session.pair.ias[side].cr_accept(now, cr, Some(ep), b"").unwrap();
        }
        for (side, eps) in [(0, [a, c]), (1, [b, d])] {
            let mut up = [session.connection(side), session.connection(side)];
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
            Setup::default().run(|session| {
                let a = session.sides[0].ep;
                session.recv(0, 0, 64, 5);
                if phase == 1 {
                    session.lines[0].rule_mad(0, 1, Fault::Drop, attribute::REQ);
                }
                session.ask(a, b"", LIMIT);
                let cr = (phase == 2).then(|| session.request());
                if phase == 1 {
                    session.pass(Duration::from_millis(50));
                }
                let now = session.now();
                if free {
                    session.pair.ias[0].ep_free(now, a).unwrap();
                } else {
                    session.disconnect(0, CloseFlag::Graceful);
                    assert_eq!(session.connection(0), Event::Disconnected(a));
                    assert_eq!(session.receives(0, 1), [(5, DtoStatus::ErrFlushed)]);
                }
                session.pass(Duration::from_millis(50));
                if let Some(cr) = cr {
                    let b = session.sides[1].ep;
                    accept(session, cr, Some(b), b"");
                    assert_eq!(session.connection(1), Event::AcceptCompletionError(b));
                    session.pair.ias[1].ep_reset(b).unwrap();
                }
                session.pass(Duration::from_secs(10));
                let evd = session.sides[1].cr;
                while session.pair.ias[1].evd_dequeue(evd).is_ok() {}
                if free {
                    session.sides[0].ep = session.endpoint(0);
                } else {
                    session.pair.ias[0].ep_reset(a).unwrap();
                }
                session.connect();
                session.traffic(1);
            });
        }
    }
}

#[test]
fn a_free_of_a_connected_endpoint_ends_the_peer_s_connection() {
    Setup::default().connected(|session| {
        let (a, b, now) = (session.sides[0].ep, session.sides[1].ep, session.now());
        session.pair.ias[0].ep_free(now, a).unwrap();
        assert_eq!(session.connection(1), Event::Disconnected(b));
        assert!(session.pair.ias[0].ep_get_status(a).is_err());
    });
}

#[test]
fn a_close_of_an_adapter_ends_the_peer_s_connections() {
    Setup::default().connected(|session| {
        let (b, now) = (session.sides[1].ep, session.now());
        let left = session.pair.ias[0].close(now, CloseFlag::Graceful).unwrap_err();
        assert_eq!(left.ret().subtype(), DatSubtype::InvalidStateIaInUse);
        session.traffic(1);
        session.pair.ias[0].close(now, CloseFlag::Abrupt).unwrap();
        session.lost[0] = true;
        assert_eq!(session.connection(1), Event::Disconnected(b));
    });
}

#[test]
fn an_address_of_its_own() {
    // Both ends in one adapter: the frames stay inside the device.
    Setup::default().run(|session| {
        let (a, b) = (session.sides[0].ep, session.endpoint(0));
        let (now, to) = (session.now(), session.address(0));
        session.pair.ias[0]
            .ep_connect(now, a, to, QUALIFIER, LIMIT, b"me", Qos::BestEffort)
            .unwrap();
        let evd = session.sides[0].cr;
        let Event::ConnectionRequest { cr, .. } = session.event(0, evd) else { panic!() };
        let now = session.now();
        session.pair.ias[0].cr_accept(now, cr, Some(b), b"").unwrap();
        let mut up = [session.connection(0), session.connection(0)];
        up.sort_by_key(|event| *event != Event::Established(a));
        assert_eq!(up, [a, b].map(Event::Established));
        session.fill(0, 0, 5000, 3);
        let to = session.far(0, 0x4000, 5000);
        session.write_to(0, 0, 5000, to, 1);
        session.requested(0, DtoOperation::RdmaWrite, 1);
        session.check(0, 0x4000, 5000, 3);
    });
}

#[test]
fn async_events_are_none_in_all_this() {
    Setup::default().connected(|session| {
        session.traffic(1);
        part(session);
        for side in 0..2 {
            let evd = session.pair.ias[side].async_evd();
            let got = session.pair.ias[side].evd_dequeue(evd);
            assert!(
                !matches!(got, Ok(Event::Async(AsyncEvent::IaCatastrophic))) && got.is_err(),
                "{got:?}"
            );
        }
    });
}

#[test]
fn messages_on_the_wire_are_those_of_the_book() {
    Setup::default().run(|session| {
        session.lines.iter().for_each(dat_tests::session::Line::record);
        session.connect();
        part(session);
        session.pass(SECOND);
        let said = [0, 1].map(|side| {
            let sent = session.lines[side].recorded();
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
