//! Broken connections at DAT level: how each is reported, and that every posted request comes back,
//! followed by one terminal event.
#![expect(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::type_complexity,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "test code: a panic here is a failed test with a line number"
)]

use std::time::Duration;

use dat_core::{
    AsyncEvent, CloseFlag, DtoOperation, DtoStatus, Ep, EpState, EvdFlags, Event, FaultKind,
    RmrTriplet,
};
use dat_tests::host::inproc::enable;
use dat_tests::pair::{Room, Stage};
use dat_tests::session::{NONE, Session, Setup, ending};
use dat_tests::soak::unplug;
use mlx5_model::faults::{Log, Script, When};
use mlx5_model::{Event as DeviceEvent, Status, event as kind};

const SECOND: Duration = Duration::from_secs(1);

/// Returns all events of an Event Dispatcher up to the end of the connection of `ep`: completions,
/// and the end.
#[track_caller]
fn to_the_end(session: &mut Session<'_>, side: usize, ep: Ep) -> (Vec<(u64, DtoStatus)>, Event) {
    let evd = session.sides[side].request;
    let mut said = Vec::new();
    loop {
        match session.event(side, evd) {
            event @ (Event::Dto(_) | Event::RmrBind { .. }) => said.push(ending(&event)),
            end @ (Event::Broken(e) | Event::Disconnected(e)) if e == ep => return (said, end),
            other => panic!("{other:?}"),
        }
    }
}

fn merged() -> Setup {
    Setup { merged: true, ..Setup::default() }
}

fn is_end(event: &Event, ep: Ep) -> bool {
    matches!(event, Event::Broken(e) | Event::Disconnected(e) if *e == ep)
}

/// The requests among completions, and the receives; the cookies of receives begin at 1000.
fn by_queue(said: &[(u64, DtoStatus)]) -> (Vec<(u64, DtoStatus)>, Vec<(u64, DtoStatus)>) {
    said.iter().partition(|(cookie, _)| *cookie < 1000)
}

#[test]
fn an_access_outside_with_work_outstanding_on_both_sides() {
    // What is flushed of one queue may complete before what failed in the other.
    let cases = ["cqe-order=at-once", "cqe-order=late"].map(|facts| [(0, facts), (1, facts)]);
    for (culprit, facts) in cases.into_iter().flatten() {
        Setup { stage: Stage::of(facts), ..merged() }.connected(|session| {
            let (me, peer) = (culprit, 1 - culprit);
            for side in 0..2 {
                (0..20).for_each(|n| session.recv(side, 0, 64, 1000 + n));
            }
            (0..5).for_each(|n| session.write(me, 0, 3000, n));
            (5..8).for_each(|n| session.send(me, 0, 64, n));
            let outside = RmrTriplet {
                addr: session.far(peer, 0, 0).addr + (64 << 10) - 1,
                ..session.far(peer, 0, 2)
            };
            session.write_to(me, 0, 2, outside, 8);
            (9..12).for_each(|n| session.write(me, 0, 3000, n));
            (12..15).for_each(|n| session.send(me, 0, 64, n));
            session.read(me, 0, 100, 15);
            let (mine, yours) = (session.sides[me].ep, session.sides[peer].ep);
            let (said, end) = to_the_end(session, me, mine);
            // Where completions come late, the peer's end may come first.
            assert!(
                end == Event::Broken(mine) || facts.ends_with("late") && is_end(&end, mine),
                "{end:?}"
            );
            let (requests, receives) = by_queue(&said);
            let wanted = |n| match n {
                0..=7 => DtoStatus::Success,
                8 => DtoStatus::ErrRemoteAccess,
                _ => DtoStatus::ErrFlushed,
            };
            assert_eq!(requests, (0..16).map(|n| (n, wanted(n))).collect::<Vec<_>>());
            assert_eq!(
                receives,
                (1000..1020).map(|n| (n, DtoStatus::ErrFlushed)).collect::<Vec<_>>()
            );
            let (said, end) = to_the_end(session, peer, yours);
            assert!(is_end(&end, yours), "{end:?}");
            let wanted = |n| {
                if n < 1003 { DtoStatus::Success } else { DtoStatus::ErrFlushed }
            };
            assert_eq!(said, (1000..1020).map(|n| (n, wanted(n))).collect::<Vec<_>>());
            session.expect_no_event(2 * SECOND);
            assert_eq!(
                (session.state(0), session.state(1)),
                (EpState::Disconnected, EpState::Disconnected)
            );
            let cause = session.pair.ias[me].ep_cause(mine).unwrap().unwrap();
            let words = cause.to_string();
            let qpn = session.pair.ias[me].ep_query(mine).unwrap().qp.unwrap().number;
            assert!(words.contains(&format!("{qpn:#x}")), "{words}");
            // The device's own code, remote access error, and above it what the vendor adds.
            assert_eq!(cause.syndrome & 0xff, 0x13, "{cause:?}");
            assert!(cause.syndrome >> 8 != 0, "{cause:?}");
            assert!(words.contains("the peer refused access"), "{words}");
        });
    }
}

/// The device may report the failure of a queue pair when that has been reset and connected anew.
#[test]
fn a_late_event_of_a_connection_leaves_the_next_alone() {
    merged().connected(|session| {
        let ep = session.sides[0].ep;
        let qpn = session.pair.ias[0].ep_query(ep).unwrap().qp.unwrap().number;
        for what in [kind::WQ_CATASTROPHIC, kind::WQ_INVALID_REQUEST, kind::WQ_ACCESS_ERROR] {
            session.pair.slots[0].hca().inject_event(None, &DeviceEvent::queue(what, 0, qpn));
            session.expect_no_event(SECOND);
            session.traffic(what.into());
        }
    });
}

#[test]
fn posts_after_the_break_come_back_in_order() {
    merged().connected(|session| {
        let wrong = RmrTriplet { context: 0, ..session.far(1, 0, 8) };
        session.write_to(0, 0, 8, wrong, 0);
        let ep = session.sides[0].ep;
        to_the_end(session, 0, ep);
        for round in 0..10 {
            for n in 0..10 {
                session.write(0, 0, 8, n);
                session.recv(0, 0, 8, 1000 + n);
            }
            let evd = session.sides[0].request;
            let said: Vec<_> = (0..20).map(|_| ending(&session.event(0, evd))).collect();
            let (requests, receives) = by_queue(&said);
            assert_eq!(
                requests,
                (0..10).map(|n| (n, DtoStatus::ErrFlushed)).collect::<Vec<_>>(),
                "{round}"
            );
            assert_eq!(
                receives,
                (1000..1010).map(|n| (n, DtoStatus::ErrFlushed)).collect::<Vec<_>>()
            );
        }
        session.ends_once();
    });
}

trait EndsOnce {
    fn ends_once(&mut self);
}

impl EndsOnce for Session<'_> {
    fn ends_once(&mut self) {
        let (evd, ep) = (self.sides[1].conn, self.sides[1].ep);
        let end = self.event(1, evd);
        assert!(matches!(end, Event::Broken(e) | Event::Disconnected(e) if e == ep));
        self.expect_no_event(SECOND);
    }
}

#[test]
fn one_broken_connection_leaves_the_others_alone() {
    Setup::default().connected(|session| {
        let (a, b) = (session.endpoint(0), session.endpoint(1));
        session.connect_eps(a, b);
        let wrong = RmrTriplet { context: 0, ..session.far(1, 0, 8) };
        let own = [session.seg(0, 0, 8)];
        session.pair.ias[0].ep_post_rdma_write(a, &own, 77, &wrong, NONE).unwrap();
        session.traffic_around(77);
        assert_eq!(session.connection(0), Event::Broken(a));
        let end = session.connection(1);
        assert!(matches!(end, Event::Broken(e) | Event::Disconnected(e) if e == b));
        session.traffic(5);
        assert_eq!(session.state(0), EpState::Connected);
    });
}

trait Around {
    fn traffic_around(&mut self, bad: u64);
}

impl Around for Session<'_> {
    /// Writes on the first Endpoint that succeed while the request `bad` of another one fails.
    fn traffic_around(&mut self, bad: u64) {
        (0..10).for_each(|n| self.write(0, 0x1000, 500, n));
        let mut said = self.requests(0, 11);
        let at = said.iter().position(|s| s.0 == bad).unwrap();
        assert_eq!(said.remove(at), (bad, DtoStatus::ErrRemoteAccess));
        assert_eq!(said, (0..10).map(|n| (n, DtoStatus::Success)).collect::<Vec<_>>());
    }
}

#[test]
fn a_graceful_disconnect_whose_requests_fail_ends_once() {
    merged().connected(|session| {
        (0..5).for_each(|n| session.write(0, 0, 64, n));
        let wrong = RmrTriplet { context: 0, ..session.far(1, 0, 8) };
        session.write_to(0, 0, 8, wrong, 5);
        (6..9).for_each(|n| session.write(0, 0, 64, n));
        session.recv(0, 0, 64, 1000);
        session.disconnect(0, CloseFlag::Graceful);
        let ep = session.sides[0].ep;
        let (said, _) = to_the_end(session, 0, ep);
        let (requests, receives) = by_queue(&said);
        let wanted = |n| match n {
            0..=4 => DtoStatus::Success,
            5 => DtoStatus::ErrRemoteAccess,
            _ => DtoStatus::ErrFlushed,
        };
        assert_eq!(requests, (0..9).map(|n| (n, wanted(n))).collect::<Vec<_>>());
        assert_eq!(receives, [(1000, DtoStatus::ErrFlushed)]);
        session.ends_once();
    });
}

#[test]
fn a_graceful_disconnect_from_a_peer_that_is_gone_ends() {
    merged().connected(|session| {
        session.lines[1].cut(true);
        (0..5).for_each(|n| session.write(0, 0, 64, n));
        session.disconnect(0, CloseFlag::Graceful);
        let ep = session.sides[0].ep;
        let (said, _) = to_the_end(session, 0, ep);
        assert_eq!(said[0], (0, DtoStatus::ErrTransport));
        assert_eq!(said[1..], [1, 2, 3, 4].map(|n| (n, DtoStatus::ErrFlushed)));
        let post = session.pair.ias[0].ep_get_status(ep).unwrap();
        assert!(post.request_idle && post.recv_idle);
    });
}

#[test]
fn an_abrupt_disconnect_returns_everything_before_its_event() {
    for seed in 0..8 {
        let stage = Stage { seed, ..Stage::default() };
        Setup { stage, ..merged() }.connected(|session| {
            for side in 0..2 {
                (0..30).for_each(|n| session.recv(side, 0, 64, 1000 + n));
                (0..30).for_each(|n| session.write(side, 0, 4000, n));
            }
            session.pass(Duration::from_micros(seed * 7));
            session.disconnect(0, CloseFlag::Abrupt);
            for side in 0..2 {
                let ep = session.sides[side].ep;
                let (said, end) = to_the_end(session, side, ep);
                // The peer's requests may have run into the queue pair that is gone.
                assert!(
                    end == Event::Disconnected(ep) || side == 1 && end == Event::Broken(ep),
                    "{end:?}"
                );
                let (requests, receives) = by_queue(&said);
                assert_eq!(
                    requests.iter().map(|s| s.0).collect::<Vec<_>>(),
                    (0..30).collect::<Vec<_>>()
                );
                let done = requests.iter().take_while(|s| s.1 == DtoStatus::Success).count();
                assert!(requests[done..].iter().all(|s| s.1 != DtoStatus::Success), "{requests:?}");
                assert_eq!(
                    receives,
                    (1000..1030).map(|n| (n, DtoStatus::ErrFlushed)).collect::<Vec<_>>()
                );
            }
            session.expect_no_event(SECOND);
        });
    }
}

/// How a device is lost.
#[derive(Clone, Copy, Debug)]
enum Loss {
    Firmware(u8),
    OffTheBus,
    Reset,
}

const LOSSES: [Loss; 4] =
    [Loss::Firmware(0x01), Loss::Firmware(0x10), Loss::OffTheBus, Loss::Reset];

fn lose(session: &Session<'_>, side: usize, loss: Loss) {
    let mut hca = session.pair.slots[side].hca();
    match loss {
        Loss::Firmware(syndrome) => hca.die(syndrome),
        Loss::OffTheBus => hca.config_write(4, &[0, 0]),
        Loss::Reset => hca.flr(),
    }
}

#[test]
fn a_device_lost_in_mid_traffic() {
    for loss in LOSSES {
        for side in 0..2 {
            merged().connected(|session| {
                session.traffic_merged();
                session.lost[side] = true;
                session.forgive = true;
                (0..10).for_each(|n| session.recv(side, 0, 64, 1000 + n));
                (0..30).for_each(|n| session.write(side, 0, 4000, n));
                lose(session, side, loss);
                let start = session.now();
                let evd = session.pair.ias[side].async_evd();
                assert_eq!(
                    session.event(side, evd),
                    Event::Async(AsyncEvent::IaCatastrophic),
                    "{loss:?}"
                );
                let took = session.now().since(start);
                assert!(took <= 4 * SECOND, "{loss:?}: {took:?}");
                assert!(session.pair.ias[side].lost().is_some());
                let ep = session.sides[side].ep;
                let (said, end) = to_the_end(session, side, ep);
                assert_eq!(end, Event::Broken(ep));
                let (requests, receives) = by_queue(&said);
                assert_eq!(
                    requests.iter().map(|s| s.0).collect::<Vec<_>>(),
                    (0..30).collect::<Vec<_>>()
                );
                assert_eq!(
                    receives,
                    (1000..1010).map(|n| (n, DtoStatus::ErrFlushed)).collect::<Vec<_>>()
                );
                let words = session.pair.ias[side].ep_cause(ep).unwrap().unwrap();
                assert_eq!(words.kind, FaultKind::Gone, "{words}");
                // Calls still return, in time, and say so.
                let before = session.now();
                let pz = session.pair.ias[side].pz_create();
                assert!(pz.is_err(), "{loss:?}");
                assert!(session.now().since(before) < 60 * SECOND);
                let before = session.now();
                let now = session.now();
                let _ = session.pair.ias[side].close(now, CloseFlag::Abrupt);
                assert!(
                    session.now().since(before) < 120 * SECOND,
                    "{loss:?}: close took {:?}",
                    session.now().since(before)
                );
            });
        }
    }
}

/// A short form of `cargo xtask soak --unplug`.
#[test]
fn a_device_leaves_the_bus_at_any_point_of_traffic() {
    let report = unplug::run(100, 7);
    eprintln!("{report}");
    assert!(report.points == 100 && report.busy > 20, "{report}");
}

trait Merged {
    fn traffic_merged(&mut self);
}

impl Merged for Session<'_> {
    /// Some writes both ways; with one Event Dispatcher for all, completions of both Endpoints may
    /// come in any order.
    fn traffic_merged(&mut self) {
        for side in 0..2 {
            self.fill(side, 0, 4000, 1);
            self.write(side, 0, 4000, 5);
            self.requested(side, DtoOperation::RdmaWrite, 5);
            self.check(1 - side, 0, 4000, 1);
        }
    }
}

#[test]
fn the_peer_of_a_lost_device_learns_of_it_by_its_own_requests() {
    merged().connected(|session| {
        (session.lost[1], session.forgive) = (true, true);
        lose(session, 1, Loss::Firmware(1));
        (0..3).for_each(|n| session.write(0, 0, 64, n));
        let ep = session.sides[0].ep;
        let (said, end) = to_the_end(session, 0, ep);
        assert_eq!(end, Event::Broken(ep));
        assert_eq!(said[0], (0, DtoStatus::ErrTransport));
        assert!(session.pair.ias[0].lost().is_none());
    });
}

#[test]
fn a_lost_device_works_again_after_reset_and_open() {
    for loss in LOSSES {
        let stage = Stage::default();
        let (world, slots) = stage.plug(&mut |_, wire| wire);
        let mut rooms = [Box::new(Room::new()), Box::new(Room::new()), Box::new(Room::new())];
        let [first, a, b] = &mut rooms;
        let mut ia = stage.open(&slots[0], first, 0, None).unwrap();
        match loss {
            Loss::Firmware(syndrome) => slots[0].hca().die(syndrome),
            Loss::OffTheBus => slots[0].hca().config_write(4, &[0, 0]),
            Loss::Reset => slots[0].hca().flr(),
        }
        let now = dat_core::Instant::from_nanos(world.now());
        let _ = ia.close(now, CloseFlag::Abrupt);
        drop(ia);
        slots[0].hca().flr();
        slots[0].reclaim();
        enable(&mut slots[0].hca());
        let ia = stage.open(&slots[0], a, 0, None);
        let mut ia = ia.unwrap_or_else(|e| panic!("{loss:?}: {e}"));
        let mut other = stage.open(&slots[1], b, 1, None).unwrap();
        for ia in [&mut ia, &mut other] {
            ia.pz_create().unwrap();
            let now = dat_core::Instant::from_nanos(world.now());
            ia.close(now, CloseFlag::Abrupt).unwrap();
        }
    }
}

/// Records the commands of `make` at side 0; the number that the n-th command of that opcode
/// returned.
fn number_made<T>(
    session: &mut Session<'_>,
    opcode: u16,
    make: impl FnOnce(&mut Session<'_>) -> T,
) -> (u32, T) {
    let log = Log::new(Script::new());
    session.pair.slots[0].hca().set_command_hook(Some(Box::new(log.clone())));
    let made = make(session);
    session.pair.slots[0].hca().set_command_hook(None);
    let record = log.records().into_iter().find(|record| record.opcode == opcode).unwrap();
    let number = u32::from_be_bytes(record.output[8..12].try_into().unwrap()) & 0xff_ffff;
    (number, made)
}

const CREATE_CQ: u16 = 0x400;

#[test]
fn a_failed_completion_queue_is_reported_as_an_overflow_of_its_dispatcher() {
    Setup::default().connected(|session| {
        let (cqn, evd) = number_made(session, CREATE_CQ, |session| {
            session.pair.ias[0].evd_create(64, EvdFlags::DTO).unwrap()
        });
        for syndrome in [1, 2] {
            session.pair.slots[0].hca().inject_event(None, &DeviceEvent::cq_error(cqn, syndrome));
            let events = session.pair.ias[0].async_evd();
            assert_eq!(session.event(0, events), Event::Async(AsyncEvent::EvdOverflow(evd)));
        }
        // An error of a queue that does not exist raises nothing.
        session.pair.slots[0].hca().inject_event(None, &DeviceEvent::cq_error(0xabcdef, 1));
        session.pass(SECOND);
        session.expect_no_event(SECOND);
        session.traffic(1);
        session.pair.ias[0].evd_free(evd).unwrap();
    });
}

#[test]
fn a_dispatcher_that_really_overflows() {
    Setup::default().run(|session| {
        session.forgive = true;
        let (ia, own) = (&mut session.pair.ias[0], &mut session.sides[0]);
        let small = ia.evd_create(2, EvdFlags::DTO).unwrap();
        own.ep =
            ia.ep_create(Some(own.pz), Some(own.recv), Some(small), Some(own.conn), None).unwrap();
        session.connect();
        (0..64).for_each(|n| session.write(0, 0, 64, n));
        let events = session.pair.ias[0].async_evd();
        assert_eq!(session.event(0, events), Event::Async(AsyncEvent::EvdOverflow(small)));
        let (now, ep) = (session.now(), session.sides[0].ep);
        session.pair.ias[0].ep_free(now, ep).unwrap();
        session.pair.ias[0].evd_free(small).unwrap();
    });
}

#[test]
fn a_queue_pair_that_the_device_reports_broken() {
    for what in [kind::WQ_CATASTROPHIC, kind::WQ_INVALID_REQUEST, kind::WQ_ACCESS_ERROR] {
        merged().connected(|session| {
            let ep = session.sides[0].ep;
            let qpn = session.pair.ias[0].ep_query(ep).unwrap().qp.unwrap().number;
            (0..4).for_each(|n| session.recv(0, 0, 64, 1000 + n));
            session.lines[1].cut(true);
            (0..4).for_each(|n| session.write(0, 0, 64, n));
            session.pair.slots[0].hca().fail_queue_pair(qpn, what);
            let (said, end) = to_the_end(session, 0, ep);
            assert_eq!(end, Event::Broken(ep));
            let (requests, receives) = by_queue(&said);
            assert_eq!(requests, (0..4).map(|n| (n, DtoStatus::ErrFlushed)).collect::<Vec<_>>());
            assert_eq!(
                receives,
                (1000..1004).map(|n| (n, DtoStatus::ErrFlushed)).collect::<Vec<_>>()
            );
            let words = session.pair.ias[0].ep_cause(ep).unwrap().unwrap().to_string();
            assert!(words.contains(&format!("{qpn:#x}")), "{words}");
            // An error of a queue pair that does not exist raises nothing.
            session.pair.slots[0].hca().inject_event(None, &DeviceEvent::queue(what, 0, 0xabcdef));
            session.pass(SECOND);
        });
    }
}

#[test]
fn a_connection_that_the_device_refuses_to_make_has_its_cause() {
    const RTR2RTS_QP: u16 = 0x504;
    Setup::default().run(|session| {
        let (a, b) = (session.sides[0].ep, session.sides[1].ep);
        session.ask(a, b"", SECOND);
        let (cr, now) = (session.request(), session.now());
        let script = Script::new().refuse(When::OpcodeNth(RTR2RTS_QP, 0), Status::BadParam);
        session.pair.slots[0].hca().set_command_hook(Some(Box::new(script)));
        session.pair.ias[1].cr_accept(now, cr, Some(b), b"").unwrap();
        assert_eq!(session.connection(0), Event::NonPeerRejected(a));
        let cause = session.pair.ias[0].ep_cause(a).unwrap().unwrap().to_string();
        assert!(cause.contains("RTR2RTS_QP: bad parameter"), "{cause}");
        assert_eq!(session.connection(1), Event::AcceptCompletionError(b));
    });
}

#[test]
fn a_queue_pair_without_a_connection_that_the_device_reports_broken() {
    Setup::default().run(|session| {
        let ep = session.sides[0].ep;
        let qpn = session.pair.ias[0].ep_query(ep).unwrap().qp.unwrap().number;
        // Events in the turn in which a queue pair was made belong to an earlier queue pair of the
        // same number.
        session.pair.turn();
        session.pair.slots[0].hca().fail_queue_pair(qpn, kind::WQ_CATASTROPHIC);
        let evd = session.pair.ias[0].async_evd();
        assert_eq!(session.event(0, evd), Event::Async(AsyncEvent::EpBroken(ep)));
    });
}

#[test]
fn link_events_without_a_cause_do_no_harm() {
    Setup::default().connected(|session| {
        for round in 0..5 {
            for side in 0..2 {
                for up in [false, true, true, false, true] {
                    session.pair.slots[side].hca().set_link(up);
                }
            }
            session.traffic(round);
        }
        session.expect_no_event(SECOND);
    });
}
