//! Foreign hosts on the wire and devices that lie: contents stay right, no foreign host ends a
//! connection, nothing is counted twice.
//!
//! Length: one test per rule of hostile peers and devices, on one harness.
#![expect(
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    clippy::needless_range_loop,
    clippy::panic,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "test code: a panic here is a failed test with a line number"
)]

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dat_core::{CloseFlag, DtoOperation, DtoStatus, EpState, Evd, Event, IbOperation, Qos};
use dat_tests::pair::Stage;
use dat_tests::session::line::{attribute, attribute_id, mad, packet};
use dat_tests::session::{LIMIT, QUALIFIER, Session, Setup};
use dat_tests::soak::entries;
use mlx5_model::Wrote;
use mlx5_model::wire::frame::Packet;
use proptest::prelude::*;

const SECOND: Duration = Duration::from_secs(1);
const OTHER_HOST: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 168, 7, 66));

/// Connects, and keeps the packets that each side sent meanwhile.
fn overheard(session: &mut Session<'_>) -> [Vec<Packet>; 2] {
    session.lines.iter().for_each(dat_tests::session::Line::record);
    session.connect();
    [0, 1].map(|side| {
        session.lines[side].recorded().iter().filter_map(|frame| packet(frame)).collect()
    })
}

fn message(said: &[Packet], id: u16) -> Packet {
    let found = said.iter().find(|p| p.payload.len() == 256 && attribute_id(&p.payload) == id);
    found.unwrap_or_else(|| panic!("no message {id:#x}")).clone()
}

/// A separate request from another host of the network, for the same service.
fn foreign_request(req: &Packet, id: u32, host: u8) -> Packet {
    let mut forged = req.clone();
    let (from, to) = ([192, 168, 7, 1], [192, 168, 7, host]);
    for at in 0..forged.payload.len() - 4 {
        if forged.payload[at..at + 4] == from {
            forged.payload[at..at + 4].copy_from_slice(&to);
        }
    }
    forged.payload[24..28].copy_from_slice(&id.to_be_bytes());
    forged.net.src = IpAddr::V4(Ipv4Addr::from(to));
    forged
}

/// The message as it would end the connection at the receiver of `rep`.
fn disconnect_request(rep: &Packet, qpn: u32) -> Packet {
    let mut forged = rep.clone();
    forged.payload[17] = attribute::DREQ as u8;
    forged.payload[32..].fill(0);
    forged.payload[32..35].copy_from_slice(&qpn.to_be_bytes()[1..]);
    forged
}

fn qpn(session: &Session<'_>, side: usize) -> u32 {
    session.pair.ias[side].ep_query(session.sides[side].ep).unwrap().qp.unwrap().number
}

#[test]
fn nobody_but_the_peer_ends_a_connection() {
    Setup::default().run(|session| {
        let said = overheard(session);
        let rep = message(&said[1], attribute::REP);
        let own = qpn(session, 0);
        let good = disconnect_request(&rep, own);
        let mut forged = vec![disconnect_request(&rep, own ^ 1), disconnect_request(&rep, 0)];
        for id in [
            attribute::DREQ,
            attribute::REJ,
            attribute::REP,
            attribute::RTU,
            attribute::DREP,
            attribute::MRA,
        ] {
            let mut foreign = good.clone();
            foreign.net.src = OTHER_HOST;
            foreign.payload[17] = id as u8;
            forged.push(foreign);
        }
        for at in [24, 27, 28, 31] {
            let mut wrong = good.clone();
            wrong.payload[at] ^= 0x10;
            forged.push(wrong);
        }
        for (n, frame) in forged.iter().enumerate() {
            session.lines[0].inject(frame.build());
            session.expect_no_event(Duration::from_millis(20));
            assert_eq!(session.state(0), EpState::Connected, "forgery {n}");
            session.traffic(n as u32);
        }
        // The same bytes from the peer do end it, so the forgeries above were well made.
        session.lines[0].inject(good.build());
        let ep = session.sides[0].ep;
        assert_eq!(session.connection(0), Event::Disconnected(ep));
    });
}

#[test]
fn nobody_but_the_peer_answers_a_request() {
    Setup::default().run(|session| {
        // An earlier connection gives a sample of an answer.
        let said = overheard(session);
        let (rep, req) = (message(&said[1], attribute::REP), message(&said[0], attribute::REQ));
        session.disconnect(0, CloseFlag::Abrupt);
        session.ended();
        for side in 0..2 {
            let ep = session.sides[side].ep;
            session.pair.ias[side].ep_reset(ep).unwrap();
        }
        let (a, b) = (session.sides[0].ep, session.sides[1].ep);
        session.lines[0].record();
        session.ask(a, b"hello", LIMIT);
        let cr = session.request();
        let asked: Vec<_> = session.lines[0].recorded().iter().filter_map(|f| packet(f)).collect();
        let new_req = message(&asked, attribute::REQ);
        assert_ne!(new_req.payload[24..28], req.payload[24..28], "communication IDs differ");
        for id in [attribute::REP, attribute::REJ, attribute::MRA] {
            // With the right ID from another host, and with wrong IDs from the peer.
            let mut foreign = rep.clone();
            foreign.payload[17] = id as u8;
            foreign.payload[28..32].copy_from_slice(&new_req.payload[24..28]);
            foreign.net.src = OTHER_HOST;
            let mut stale = rep.clone();
            stale.payload[17] = id as u8;
            for forged in [foreign, stale] {
                session.lines[0].inject(forged.build());
                session.expect_no_event(Duration::from_millis(20));
                assert_eq!(session.state(0), EpState::ActiveConnectionPending, "{id:#x}");
            }
        }
        let now = session.now();
        session.pair.ias[1].cr_accept(now, cr, Some(b), b"").unwrap();
        assert_eq!(session.connection(0), Event::Established(a));
        assert_eq!(session.connection(1), Event::Established(b));
        session.traffic(1);
    });
}

#[test]
fn a_flood_of_requests_from_nowhere_reaches_nobody_and_passes() {
    Setup::default().run(|session| {
        let said = overheard(session);
        let req = message(&said[0], attribute::REQ);
        for n in 0..500_u32 {
            let forged = foreign_request(&req, 0x5000_0000 + n, 100 + (n % 50) as u8);
            session.lines[1].inject(forged.build());
            if n % 50 == 0 {
                session.traffic(n);
            }
        }
        session.pass(SECOND);
        assert_eq!((session.state(0), session.state(1)), (EpState::Connected, EpState::Connected));
        session.traffic(1);
        session.pass(Duration::from_secs(10));
        let evd = session.sides[1].cr;
        assert!(session.pair.ias[1].evd_dequeue(evd).is_err(), "nobody is at their addresses");
        let counters = session.pair.ias[1].cm_counters();
        assert_eq!(counters.unreachable + counters.gave_way, 500);
        let (a, b) = (session.endpoint(0), session.endpoint(1));
        session.connect_eps(a, b);
        session.traffic(2);
    });
}

#[test]
fn answers_to_peers_that_do_not_exist_delay_no_connection() {
    Setup::default().run(|session| {
        let said = overheard(session);
        let req = message(&said[0], attribute::REQ);
        for n in 0..100_u32 {
            let mut forged = foreign_request(&req, 0x5000_0000 + n, 100 + n as u8);
            // To a port without a listener: each is answered at once, to an address that does not
            // exist.
            forged.payload[39] ^= 0x40;
            session.lines[1].inject(forged.build());
            if n % 10 == 9 {
                session.pass(Duration::from_millis(2));
            }
        }
        let evd = session.sides[1].cr;
        assert!(
            session.pair.ias[1].evd_dequeue(evd).is_err(),
            "a request for another port came through"
        );
        session.traffic(1);
        session.pass(Duration::from_secs(10));
        let counters = session.pair.ias[1].cm_counters();
        assert_eq!(counters.unreachable + counters.gave_way, 100);
        let (a, b) = (session.endpoint(0), session.endpoint(1));
        session.connect_eps(a, b);
    });
}

#[test]
fn replays_of_an_earlier_connection() {
    Setup::default().run(|session| {
        session.lines.iter().for_each(dat_tests::session::Line::record);
        session.connect();
        session.traffic(1);
        session.disconnect(0, CloseFlag::Abrupt);
        session.ended();
        session.pass(SECOND);
        let old = [0, 1].map(|side| session.lines[side].recorded());
        for side in 0..2 {
            let ep = session.sides[side].ep;
            session.pair.ias[side].ep_reset(ep).unwrap();
        }
        session.connect();
        session.traffic(2);
        let before = [session.all(0), session.all(1)];
        for (side, frames) in old.iter().enumerate() {
            for frame in frames {
                // Data of the earlier connection, and its answers, ends and acknowledgements.
                if mad(frame).is_none_or(|m| attribute_id(&m) != attribute::REQ) {
                    session.lines[1 - side].inject(frame.clone());
                }
            }
        }
        session.pass(SECOND);
        assert!(before == [session.all(0), session.all(1)], "a replay changed memory");
        assert_eq!((session.state(0), session.state(1)), (EpState::Connected, EpState::Connected));
        session.traffic(3);
        session.expect_no_event(SECOND);
    });
}

/// A frame from another host.
#[derive(Clone, Debug)]
enum Stray {
    /// Bytes behind an Ethernet header, to a side's own address or to all.
    Bytes(Vec<u8>, bool, u16),
    /// A recorded frame, cut short.
    Short(usize, usize),
    /// A recorded frame, some bytes changed, checksums wrong.
    Broken(usize, Vec<(usize, u8)>),
    /// A message of connection management from another host, some bytes changed.
    Message(usize, Vec<(usize, u8)>),
    /// A datagram to QP1 of another length.
    Odd(usize, Vec<u8>),
    /// A packet to a queue pair that does not exist, or has another type.
    Lost(usize, u32),
}

fn stray() -> impl Strategy<Value = Stray> {
    let changes = || prop::collection::vec((any::<usize>(), any::<u8>()), 1..6);
    let kinds = prop::sample::select(vec![0x0800_u16, 0x0806, 0x86dd, 0x8100, 0x88cc, 0x0000]);
    prop_oneof![
        (prop::collection::vec(any::<u8>(), 0..300), any::<bool>(), kinds)
            .prop_map(|(b, all, k)| Stray::Bytes(b, all, k)),
        (any::<usize>(), any::<usize>()).prop_map(|(n, len)| Stray::Short(n, len)),
        (any::<usize>(), changes()).prop_map(|(n, c)| Stray::Broken(n, c)),
        (any::<usize>(), changes()).prop_map(|(n, c)| Stray::Message(n, c)),
        (any::<usize>(), prop::collection::vec(any::<u8>(), 0..600))
            .prop_map(|(n, b)| Stray::Odd(n, b)),
        (any::<usize>(), any::<u32>()).prop_map(|(n, q)| Stray::Lost(n, q)),
    ]
}

fn build(stray: &Stray, side: usize, frames: &[Vec<u8>], qpns: &[u32]) -> Option<Vec<u8>> {
    let pick = |n: usize| &frames[n % frames.len()];
    let messages: Vec<_> = frames.iter().filter(|f| mad(f).is_some()).collect();
    let message = |n: usize| {
        let mut p = packet(messages[n % messages.len()]).unwrap();
        p.net.src = OTHER_HOST;
        p
    };
    Some(match stray {
        Stray::Bytes(bytes, all, kind) => {
            let mut frame =
                if *all { vec![0xff; 6] } else { vec![2, 0xc9, 3, 0, 0, 1 + side as u8] };
            frame.extend([2, 9, 9, 9, 9, 9]);
            frame.extend(kind.to_be_bytes());
            frame.extend(bytes);
            frame
        }
        Stray::Short(n, len) => {
            let frame = pick(*n);
            frame[..len % frame.len()].to_vec()
        }
        Stray::Broken(n, changes) => {
            let mut frame = pick(*n).clone();
            let len = frame.len();
            changes.iter().for_each(|(at, to)| frame[at % len] ^= to);
            packet(&frame).is_none().then_some(frame)?
        }
        Stray::Message(n, changes) => {
            let mut p = message(*n);
            changes.iter().for_each(|(at, to)| p.payload[at % 256] = *to);
            p.build()
        }
        Stray::Odd(n, bytes) => {
            let mut p = message(*n);
            p.payload.clone_from(bytes);
            p.build()
        }
        Stray::Lost(n, to) => {
            let mut p = packet(pick(*n))?;
            p.net.src = OTHER_HOST;
            p.bth.dest_qp = to & 0xff_ffff;
            (!qpns.contains(&p.bth.dest_qp)).then(|| p.build())?
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn strays_of_all_kinds_between_traffic(
        seed in 0_u64..4,
        runs in prop::collection::vec((prop::collection::vec(stray(), 1..30), 0_usize..2), 1..6),
    ) {
        let stage = Stage { seed, ..Stage::default() };
        Setup { stage, ..Setup::default() }.run(|session| {
            session.lines.iter().for_each(dat_tests::session::Line::record);
            session.connect();
            session.traffic(0);
            let frames = [0, 1].map(|side| session.lines[side].recorded());
            let qpns = [qpn(session, 0), qpn(session, 1)];
            for (round, (strays, side)) in runs.iter().enumerate() {
                for stray in strays {
                    if let Some(frame) = build(stray, *side, &frames[1 - side], &qpns) {
                        session.lines[*side].inject(frame);
                    }
                }
                session.traffic(round as u32 + 1);
                assert_eq!((session.state(0), session.state(1)), (EpState::Connected, EpState::Connected));
            }
        });
    }
}

#[test]
fn another_host_that_claims_the_peer_s_address_does_not_get_its_traffic() {
    Setup::default().connected(|session| {
        session.traffic(1);
        let IpAddr::V4(peer) = session.address(1) else { panic!() };
        let IpAddr::V4(own) = session.address(0) else { panic!() };
        for operation in [1_u8, 2] {
            let mut frame =
                vec![2, 0xc9, 3, 0, 0, 1, 2, 9, 9, 9, 9, 9, 8, 6, 0, 1, 8, 0, 6, 4, 0, operation];
            frame.extend([2, 9, 9, 9, 9, 9]);
            frame.extend(peer.octets());
            frame.extend([2, 0xc9, 3, 0, 0, 1]);
            frame.extend(own.octets());
            frame.resize(60, 0);
            session.lines[0].inject(frame);
        }
        session.pass(Duration::from_millis(50));
        // An existing connection stays with its peer.
        session.lines[0].record();
        session.traffic(2);
        let data = session.lines[0].recorded();
        assert!(data.iter().filter_map(|f| packet(f)).all(|p| p.net.dmac == [2, 0xc9, 3, 0, 0, 2]));
    });
}

// ---- devices that lie ----

/// Outstanding requests, and the results that they may have.
#[derive(Default)]
struct Ledger {
    open: BTreeMap<u64, (DtoOperation, usize)>,
    broken: bool,
}

impl Ledger {
    /// Takes the events; panics at a cookie that was never given or has come back already, and at a
    /// length beyond the buffer.
    fn take(&mut self, event: &Event) {
        match event {
            Event::Dto(dto) => {
                let Some((operation, len)) = self.open.remove(&dto.cookie) else {
                    panic!("{dto:?} is not outstanding");
                };
                assert_eq!(dto.operation, operation, "{dto:?}");
                if dto.status == DtoStatus::Success {
                    assert!(dto.len as usize <= len, "{dto:?} of {len} bytes");
                }
            }
            // A lie may make a message one with an immediate, or an RDMA write that came with one,
            // whose bytes lie elsewhere.
            Event::IbDto(dto) => {
                let Some((operation, len)) = self.open.remove(&dto.cookie) else {
                    panic!("{dto:?} is not outstanding");
                };
                assert_eq!(operation, DtoOperation::Receive, "{dto:?}");
                match dto.operation {
                    IbOperation::RecvMsgImmed => assert!(dto.len as usize <= len, "{dto:?}"),
                    other => assert_eq!(other, IbOperation::RecvRdmaWriteImmed),
                }
            }
            Event::Broken(_) | Event::Disconnected(_) => {
                assert!(!self.broken, "a second end");
                self.broken = true;
            }
            Event::Async(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

fn drain(session: &mut Session<'_>, ledgers: &mut [Ledger; 2]) {
    for side in 0..2 {
        let own = &session.sides[side];
        let evds: [Evd; 4] = [own.recv, own.request, own.conn, session.pair.ias[side].async_evd()];
        for evd in evds {
            while let Ok(event) = session.pair.ias[side].evd_dequeue(evd) {
                ledgers[side].take(&event);
            }
            let _ = session.pair.ias[side].evd_arm(evd, false);
        }
    }
}

/// A change to one write of the device.
#[derive(Clone, Debug)]
struct Lie {
    nth: u32,
    changes: Vec<(usize, u8)>,
    swallow: bool,
}

fn lies() -> impl Strategy<Value = Vec<Lie>> {
    let lie = (
        0_u32..60,
        prop::collection::vec((0_usize..64, any::<u8>()), 1..5),
        prop::bool::weighted(0.1),
    );
    prop::collection::vec(
        lie.prop_map(|(nth, changes, swallow)| Lie { nth, changes, swallow }),
        1..4,
    )
}

fn lied_to(kind: Wrote, lies: Vec<Lie>) {
    // The length of a receive is held against the longest message of its Endpoint, not against its
    // own segments.
    Setup { tweak: |attr| attr.max_message_size = 400, ..Setup::default() }.connected(|session| {
        // The model may complain about a driver that believed the lie, and a queue that is not read
        // may overflow.
        session.forgive = true;
        let mut ledgers = [Ledger::default(), Ledger::default()];
        drain(session, &mut ledgers);
        let writes = Arc::new(Mutex::new(0_u32));
        let count = Arc::clone(&writes);
        session.pair.slots[0].hca().set_mangle(Some(Box::new(move |wrote, _, bytes| {
            if wrote != kind {
                return true;
            }
            let mut count = count.lock().unwrap();
            let nth = *count;
            *count += 1;
            let mut keep = true;
            for lie in lies.iter().filter(|lie| lie.nth == nth) {
                for &(at, value) in &lie.changes {
                    if let Some(byte) = bytes.get_mut(at) {
                        *byte = value;
                    }
                }
                keep &= !lie.swallow;
            }
            keep
        })));
        let mut cookie = 0;
        for round in 0..16_usize {
            for side in 0..2 {
                let ep = session.sides[side].ep;
                for n in 0..2 {
                    let own = [session.seg(side, 0x1000 * n, 300)];
                    let there = session.far(1 - side, 0x4000, 300);
                    let room = [session.seg(side, 0x8000 + 0x1000 * n, 400)];
                    let flags = dat_tests::session::NONE;
                    let ia = &mut session.pair.ias[side];
                    let posts = [
                        (ia.ep_post_recv(ep, &room, cookie, flags), DtoOperation::Receive, 400),
                        (ia.ep_post_send(ep, &own, cookie + 1, flags), DtoOperation::Send, 300),
                        (
                            ia.ep_post_rdma_write(ep, &own, cookie + 2, &there, flags),
                            DtoOperation::RdmaWrite,
                            300,
                        ),
                        (
                            ia.ep_post_rdma_read(ep, &own, cookie + 3, &there, flags),
                            DtoOperation::RdmaRead,
                            300,
                        ),
                    ];
                    for (i, (post, operation, len)) in posts.into_iter().enumerate() {
                        if post.is_ok() {
                            ledgers[side].open.insert(cookie + i as u64, (operation, len));
                        }
                    }
                    cookie += 4;
                }
            }
            session.pass(Duration::from_micros(300 + 50 * (round as u64 % 3)));
            drain(session, &mut ledgers);
        }
        session.pass(Duration::from_millis(100));
        drain(session, &mut ledgers);
        assert!(
            *writes.lock().unwrap() > 10 || kind != Wrote::Cqe,
            "the device wrote too little to lie in"
        );
        session.pair.slots[0].hca().set_mangle(None);
        // Whatever the device wrote or withheld, the end brings back all outstanding requests,
        // once.
        for side in 0..2 {
            let (ep, now) = (session.sides[side].ep, session.now());
            let _ = session.pair.ias[side].ep_disconnect(now, ep, CloseFlag::Abrupt);
        }
        session.pass(SECOND);
        drain(session, &mut ledgers);
        for (side, ledger) in ledgers.iter().enumerate() {
            assert!(ledger.open.is_empty(), "side {side}: {:?} never came back", ledger.open);
            assert!(
                ledger.broken || session.pair.ias[side].lost().is_some(),
                "side {side}: no end"
            );
        }
        session.lost = [session.pair.ias[0].lost().is_some(), session.pair.ias[1].lost().is_some()];
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn completions_that_lie(lies in lies()) {
        lied_to(Wrote::Cqe, lies);
    }

    #[test]
    fn events_that_lie(lies in lies()) {
        lied_to(Wrote::Eqe, lies);
    }
}

#[test]
fn a_device_that_lies_all_the_time() {
    for byte in 0..64 {
        let lies = (0..60)
            .map(|nth| Lie { nth, changes: vec![(byte, 0xa5 ^ nth as u8)], swallow: false })
            .collect();
        lied_to(Wrote::Cqe, lies);
    }
}

/// A short form of `cargo xtask soak --entries`.
#[test]
fn entries_of_all_kinds_reach_no_other_endpoint() {
    let report = entries::run(200_000, 1);
    eprintln!("{report}");
    assert!(report.succeeded > 10_000 && report.failed > 1_000, "{report}");
    assert!(report.events > 5_000 && report.broken > 10, "{report}");
}

#[test]
fn an_address_that_only_a_liar_answers_for() {
    // A request to a host that does not exist, and frames that pretend to be answers to it.
    Setup::default().run(|session| {
        let (ep, now) = (session.sides[0].ep, session.now());
        session.pair.ias[0]
            .ep_connect(now, ep, OTHER_HOST, QUALIFIER, LIMIT, b"", Qos::BestEffort)
            .unwrap();
        for bad in [0xff_u8, 0x01, 0x00] {
            // A group address and an empty one belong to no host.
            let mut frame =
                vec![2, 0xc9, 3, 0, 0, 1, 2, 9, 9, 9, 9, 9, 8, 6, 0, 1, 8, 0, 6, 4, 0, 2];
            frame.extend(if bad == 0 { [0; 6] } else { [bad, 0xff, 0xff, 0xff, 0xff, 0xff] });
            frame.extend([192, 168, 7, 66, 2, 0xc9, 3, 0, 0, 1, 192, 168, 7, 1]);
            frame.resize(60, 0);
            session.lines[0].inject(frame);
        }
        assert_eq!(session.connection(0), Event::Unreachable(ep));
    });
}
