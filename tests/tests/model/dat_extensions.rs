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
    CloseFlag, DtoStatus, Ep, Event, GRH_LEN, IbDtoEvent, IbOperation, LmrTriplet, MemPriv,
};
use dat_tests::host::chosen::path_mtu;
use dat_tests::pair::Stage;
use dat_tests::session::{NONE, Session, Setup, far};

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
fn done(session: &mut Session<'_>, side: usize, recv: bool) -> IbDtoEvent {
    let own = &session.sides[side];
    let evd = if recv { own.recv } else { own.request };
    let event = session.pair.wait(side, evd, LIMIT);
    extended(event.expect("a completion"))
}

fn put(session: &Session<'_>, side: usize, at: usize, word: u64) {
    session.sides[side].mem.copy_in(at, &word.to_ne_bytes());
    session.fence(side);
}

fn get(session: &Session<'_>, side: usize, at: usize) -> u64 {
    u64::from_ne_bytes(session.look(side, at, 8).try_into().unwrap())
}

#[test]
fn atomics_answer_in_the_order_of_the_host() {
    Setup::default().connected(|session| {
        let lmr = session.register(1, RIGHTS);
        let there = far(&lmr, 64, 8);
        put(session, 1, 64, 0x0123_4567_89ab_cdef);
        for n in 0..3 {
            let (ep, here) = (session.sides[0].ep, session.seg(0, 256, 8));
            session.pair.ias[0]
                .ep_post_fetch_add(ep, 0x1_0000_0001, &here, n, &there, NONE)
                .unwrap();
            let event = done(session, 0, false);
            assert_eq!((event.status(), event.cookie, event.len), (DtoStatus::Success, n, 8));
            assert_eq!(event.operation, IbOperation::FetchAdd);
            let before = 0x0123_4567_89ab_cdef + n * 0x1_0000_0001;
            assert_eq!(get(session, 0, 256), before);
            assert_eq!(get(session, 1, 64), before + 0x1_0000_0001);
        }
        let now = get(session, 1, 64);
        for (compare, after) in [(now + 1, now), (now, 42)] {
            let (ep, here) = (session.sides[0].ep, session.seg(0, 264, 8));
            session.pair.ias[0].ep_post_cmp_swap(ep, compare, 42, &here, 9, &there, NONE).unwrap();
            let event = done(session, 0, false);
            assert_eq!(
                (event.status(), event.operation),
                (DtoStatus::Success, IbOperation::CmpSwap)
            );
            assert_eq!((get(session, 0, 264), get(session, 1, 64)), (now, after));
        }
        // Many at once, more than may be under way: each is carried out once, and they answer in
        // order.
        put(session, 1, 64, 0);
        for n in 0..40 {
            let (ep, here) = (session.sides[0].ep, session.seg(0, 512 + 8 * n, 8));
            session.pair.ias[0].ep_post_fetch_add(ep, 1, &here, n as u64, &there, NONE).unwrap();
        }
        for n in 0..40 {
            assert_eq!(done(session, 0, false).cookie, n);
        }
        for n in 0..40 {
            assert_eq!(get(session, 0, 512 + 8 * n as usize), n);
        }
        assert_eq!(get(session, 1, 64), 40);
    });
}

#[test]
fn atomics_survive_a_wire_that_loses() {
    let mut setup = Setup::seed(3);
    setup.stage.rates.drop = 100;
    setup.connected(|session| {
        let lmr = session.register(1, RIGHTS);
        let there = far(&lmr, 0, 8);
        for n in 0..100 {
            let (ep, here) = (session.sides[0].ep, session.seg(0, 256, 8));
            session.pair.ias[0].ep_post_fetch_add(ep, 1, &here, n, &there, NONE).unwrap();
            assert_eq!(done(session, 0, false).status(), DtoStatus::Success);
            assert_eq!(get(session, 0, 256), n);
        }
    });
}

#[test]
fn an_atomic_without_the_right_is_refused_by_the_peer() {
    Setup::default().connected(|session| {
        let (ep, here, there) =
            (session.sides[0].ep, session.seg(0, 256, 8), session.far(1, 64, 8));
        put(session, 1, 64, 5);
        session.pair.ias[0].ep_post_fetch_add(ep, 1, &here, 1, &there, NONE).unwrap();
        assert_eq!(done(session, 0, false).status(), DtoStatus::ErrRemoteAccess);
        assert_eq!(get(session, 1, 64), 5);
        session.ended();
    });
}

#[test]
fn an_immediate_takes_a_receive() {
    Setup::default().connected(|session| {
        for (n, len) in [0, 8, 28, 300, 9000].into_iter().enumerate() {
            let immediate = 0xdead_be00 | n as u32;
            session.fill(0, 0, len, n as u32);
            session.recv(1, 0x8000, 64, 7);
            let (ep, here, there) =
                (session.sides[0].ep, session.seg(0, 0, len), session.far(1, 0x4000, len));
            session.pair.ias[0]
                .ep_post_rdma_write_immed(ep, &[here], 3, &there, immediate, NONE)
                .unwrap();
            let event = done(session, 1, true);
            let evd = session.sides[1].recv;
            let extension = session.pair.ias[1].evd_extension(evd).unwrap();
            assert_eq!((event.cookie, event.len as usize), (7, len));
            assert_eq!(event.operation, IbOperation::RecvRdmaWriteImmed);
            assert_eq!(
                (extension.arrived, extension.immediate),
                (Arrived::WriteImmediate, immediate)
            );
            session.check(1, 0x4000, len, n as u32);
            let event = done(session, 0, false);
            assert_eq!((event.cookie, event.operation), (3, IbOperation::RdmaWriteImmed));
        }
    });
}

/// An Endpoint for datagrams on each side.
fn datagrams(session: &mut Session<'_>) -> [Ep; 2] {
    [0, 1].map(|side| {
        let own = &session.sides[side];
        session.pair.ias[side]
            .ep_create_ud(own.pz, own.recv, own.request, Some(own.conn), None, QKEY)
            .unwrap()
    })
}

fn to(session: &mut Session<'_>, side: usize, ep: Ep, qkey: u32) -> Destination {
    let qpn = session.pair.ias[side].ep_query(ep).unwrap().qp.unwrap().number;
    let remote = session.address(side);
    let found = session.pair.until(LIMIT, |pair| {
        let now = pair.now();
        match pair.ias[1 - side].ud_address(now, remote, qpn, qkey) {
            core::task::Poll::Ready(found) => Some(found),
            core::task::Poll::Pending => None,
        }
    });
    found.expect("an answer").unwrap()
}

/// Posts a receive of side 1, out of the host's store buffer: what comes before is lost.
fn post_receive(session: &mut Session<'_>, ep: Ep, there: LmrTriplet, cookie: u64) {
    session.pair.ias[1].ep_post_recv(ep, &[there], cookie, NONE).unwrap();
    session.fence(1);
}

fn talk(setup: &Setup) {
    setup.run(|session| {
        let [a, b] = datagrams(session);
        let address = to(session, 1, b, QKEY);
        let qpn = session.pair.ias[0].ep_query(a).unwrap().qp.unwrap().number;
        let mtu = usize::from(setup.stage.mtu.unwrap_or(4096)).min(path_mtu());
        for (n, len) in [0, 1, 44, 300, mtu].into_iter().enumerate() {
            for immediate in [None, Some(0x1122_3344)] {
                session.fill(0, 0x100, len, n as u32);
                let there = session.seg(1, 0x4000, mtu + GRH_LEN);
                post_receive(session, b, there, 7);
                let pieces = [
                    session.seg(0, 0x100, len / 3),
                    session.seg(0, 0x100 + len / 3, len - len / 3),
                ];
                session.pair.ias[0]
                    .ep_post_send_ud(a, &pieces, &address, immediate, 3, NONE)
                    .unwrap();
                let event = done(session, 0, false);
                assert_eq!((event.cookie, event.operation), (3, IbOperation::SendUd));
                assert_eq!(event.status(), DtoStatus::Success);
                let event = done(session, 1, true);
                let evd = session.sides[1].recv;
                let extension = session.pair.ias[1].evd_extension(evd).unwrap();
                assert_eq!((event.ep, event.len as usize), (b, GRH_LEN + len));
                assert_eq!(
                    (extension.source_qpn, extension.immediate),
                    (qpn, immediate.unwrap_or(0))
                );
                let operation = match immediate {
                    None => IbOperation::RecvMsgUd,
                    Some(_) => IbOperation::RecvMsgUdImmed,
                };
                assert_eq!(event.operation, operation);
                session.check(1, 0x4000 + GRH_LEN, len, n as u32);
                let header = session.look(1, 0x4000, GRH_LEN);
                let from = extension.network.sender(header.first_chunk().unwrap());
                assert_eq!(from, Some(session.address(0)));
            }
        }
        // The fast path looks first where poster and reaper are taken out.
        let there = session.seg(1, 0x4000, mtu + GRH_LEN);
        post_receive(session, b, there, 8);
        let here = session.seg(0, 0, 16);
        let mut poster = session.pair.ias[0].ep_take_poster(a).unwrap();
        let evd = session.sides[1].recv;
        let mut reaper = session.pair.ias[1].evd_take_reaper(evd).unwrap();
        poster.post_send_ud(&[here], &address, None, 4, NONE).unwrap();
        let event = session.pair.until(LIMIT, |_| reaper.dequeue().ok());
        let event = extended(event.unwrap());
        assert_eq!((event.cookie, event.operation), (8, IbOperation::RecvMsgUd));
        assert_eq!(reaper.extension().source_qpn, qpn);
        session.pair.ias[0].ep_return_poster(poster).unwrap();
        session.pair.ias[1].evd_return_reaper(reaper).unwrap();
        assert_eq!(done(session, 0, false).cookie, 4);
        // A datagram with another Q_Key is dropped.
        post_receive(session, b, there, 9);
        let wrong_key = to(session, 1, b, QKEY + 1);
        session.pair.ias[0].ep_post_send_ud(a, &[here], &wrong_key, None, 5, NONE).unwrap();
        assert_eq!(done(session, 0, false).status(), DtoStatus::Success);
        session.pass(Duration::from_millis(5));
        assert!(session.pair.ias[1].evd_dequeue(evd).is_err());
        // After an end and a reset it is open again.
        let now = session.now();
        session.pair.ias[1].ep_disconnect(now, b, CloseFlag::Graceful).unwrap();
        let flushed = session.pair.wait(1, evd, LIMIT);
        assert!(matches!(flushed, Some(Event::Dto(dto)) if dto.status == DtoStatus::ErrFlushed));
        session.pair.ias[1].ep_reset(b).unwrap();
        post_receive(session, b, there, 10);
        session.pair.ias[0].ep_post_send_ud(a, &[here], &address, None, 6, NONE).unwrap();
        assert_eq!(done(session, 1, true).cookie, 10);
        assert_eq!(done(session, 0, false).cookie, 6);
        for (side, ep) in [(0, a), (1, b)] {
            let now = session.now();
            session.pair.ias[side].ep_free(now, ep).unwrap();
        }
    });
}

/// Side 0 asks side 1's service point, over a wire that loses much.
#[test]
fn a_service_point_says_where_to_send() {
    for (seed, drop) in [(3, 0), (4, 300), (5, 300)] {
        Setup::seed(seed).run(|session| {
            let rates = mlx5_model::wire::impair::Rates { drop, ..Default::default() };
            let [a, b] = datagrams(session);
            session.lines.iter().for_each(|line| line.rates(rates));
            session.ask(a, b"who", 60 * LIMIT);
            let cr_evd = session.sides[1].cr;
            let cr = match session.pair.wait(1, cr_evd, 60 * LIMIT) {
                Some(Event::UdConnectionRequest { cr, .. }) => cr,
                other => panic!("{other:?}"),
            };
            let request = session.pair.ias[1].cr_query(cr).unwrap();
            assert_eq!(request.private_data, b"who");
            let now = session.now();
            session.pair.ias[1].cr_accept(now, cr, Some(b), b"here").unwrap();
            let conn = session.sides[0].conn;
            let found = session.pair.wait(0, conn, 60 * LIMIT);
            assert!(matches!(found, Some(Event::UdEstablished(ep, _)) if ep == a));
            session.lines.iter().for_each(|line| line.rates(Default::default()));
            let address = session.pair.ias[0].ep_ud_address(a).unwrap();
            // Each time a path is asked for, datagrams get a flow of their own.
            let mut known = to(session, 1, b, QKEY);
            known.path.flow_label = address.path.flow_label;
            assert_eq!(address, known);
            session.fill(0, 0x100, 300, 9);
            let (here, there) = (session.seg(0, 0x100, 300), session.seg(1, 0x4000, 300 + GRH_LEN));
            post_receive(session, b, there, 7);
            session.pair.ias[0].ep_post_send_ud(a, &[here], &address, None, 3, NONE).unwrap();
            assert_eq!(done(session, 1, true).cookie, 7);
            session.check(1, 0x4000 + GRH_LEN, 300, 9);
            assert_eq!(done(session, 0, false).cookie, 3);
        });
    }
}

#[test]
fn datagrams_over_ipv4() {
    talk(&Setup::seed(5));
}

#[test]
fn datagrams_over_ipv6_in_a_vlan() {
    talk(&Setup {
        stage: Stage { ipv6: true, vlan: Some(9), mtu: Some(1024), ..Stage::default() },
        ..Setup::default()
    });
}
