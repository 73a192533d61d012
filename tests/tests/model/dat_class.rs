//! Traffic class and priority: in the frames of every connection, on both sides, over both versions
//! of IP; and congestion control as the firmware tells it.
#![expect(
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "test code: a panic here is a failed test with a line number"
)]

use std::time::Duration;

use dat_core::provider::{Class, Classes};
use dat_core::{CloseFlag, DatType, EpAttr, Event, Qos};
use dat_tests::pair::Stage;
use dat_tests::session::line::{attribute, attribute_id, mad, packet};
use dat_tests::session::{LIMIT, NONE, QUALIFIER, Session, Setup};
use hca_mlx5::Congestion;
use mlx5_model::Config as Card;

const ACTIVE: Class = Class { traffic_class: 0x68, priority: 3 };
const PASSIVE: Class = Class { traffic_class: 0x20, priority: 1 };
/// With an ECN field of its own: ECT(1).
const PREMIUM: Class = Class { traffic_class: 0xb9, priority: 5 };
/// ECN field of a packet that a switch may mark: ECT(0), as Linux sends its CM datagrams.
const ECT_0: u8 = 2;

/// Each side has another default; the first has one quality more.
fn setup(ipv6: bool, vlan: Option<u16>) -> Setup {
    let best = |best_effort| Classes { best_effort, ..Classes::default() };
    let classes = [Classes { premium: Some(PREMIUM), ..best(ACTIVE) }, best(PASSIVE)];
    Setup { stage: Stage { ipv6, vlan, classes, ..Stage::default() }, ..Setup::default() }
}

fn every_network() -> impl Iterator<Item = Setup> {
    let vlans = [None, Some(5)];
    [false, true].into_iter().flat_map(move |ipv6| vlans.map(|vlan| setup(ipv6, vlan)))
}

/// Asserts the class of every RoCE packet of both sides since the recording began, and that nothing
/// else has one. Returns the attributes of their MADs.
#[track_caller]
fn check(session: &Session<'_>, class: Class) -> Vec<u16> {
    let mut seen = [0; 2];
    let mut mads = Vec::new();
    for (side, line) in session.lines.iter().enumerate() {
        for frame in line.recorded() {
            let tag = session.pair.stage.vlan.map(|vlan| u16::from(class.priority) << 13 | vlan);
            let Some(packet) = packet(&frame) else {
                // ARP and Neighbor Discovery.
                let word = u16::from_be_bytes([frame[12], frame[13]]);
                let own = u16::from_be_bytes([frame[14], frame[15]]);
                assert_eq!(word == 0x8100, tag.is_some());
                assert!(tag.is_none() || Some(own) == session.pair.stage.vlan, "{own:#x}");
                continue;
            };
            seen[side] += 1;
            let mut tclass = class.traffic_class;
            if let Some(mad) = mad(&frame) {
                mads.push(attribute_id(&mad));
                if tclass & 3 == 0 {
                    tclass |= ECT_0;
                }
            }
            assert_eq!((packet.net.tclass, packet.net.vlan), (tclass, tag), "side {side}");
        }
    }
    assert!(seen[0] > 0 && seen[1] > 0, "{seen:?}");
    mads
}

fn record(session: &Session<'_>) {
    session.lines.iter().for_each(|line| line.record());
}

/// Connects the first Endpoints, moves data and ends the connection.
fn connected_once(session: &mut Session<'_>, qos: Qos) {
    let (a, b) = (session.sides[0].ep, session.sides[1].ep);
    let (now, to) = (session.now(), session.address(1));
    session.pair.ias[0].ep_connect(now, a, to, QUALIFIER, LIMIT, b"", qos).unwrap();
    let (cr, now) = (session.request(), session.now());
    session.pair.ias[1].cr_accept(now, cr, Some(b), b"").unwrap();
    assert_eq!(session.connection(0), Event::Established(a));
    assert_eq!(session.connection(1), Event::Established(b));
    session.traffic(1);
    session.disconnect(1, CloseFlag::Abrupt);
    session.ended();
    session.pass(Duration::from_millis(50));
    for side in 0..2 {
        let ep = session.sides[side].ep;
        session.pair.ias[side].ep_reset(ep).unwrap();
    }
}

#[test]
fn a_connection_has_the_class_of_the_side_that_asked() {
    for setup in every_network() {
        setup.run(|session| {
            for (qos, class) in [(Qos::BestEffort, ACTIVE), (Qos::Premium, PREMIUM)] {
                record(session);
                connected_once(session, qos);
                let mads = check(session, class);
                for one in [attribute::REQ, attribute::REP, attribute::RTU, attribute::DREQ] {
                    assert!(mads.contains(&one), "{one:#x} of {mads:x?}");
                }
            }
        });
    }
}

#[test]
fn a_rejection_has_the_class_of_the_request() {
    setup(false, Some(5)).run(|session| {
        record(session);
        let (ep, now, to) = (session.sides[0].ep, session.now(), session.address(1));
        session.pair.ias[0].ep_connect(now, ep, to, QUALIFIER, LIMIT, b"", Qos::Premium).unwrap();
        let (cr, now) = (session.request(), session.now());
        session.pair.ias[1].cr_reject(now, cr, b"").unwrap();
        assert_eq!(session.connection(0), Event::PeerRejected(ep));
        assert!(check(session, PREMIUM).contains(&attribute::REJ));
    });
}

#[test]
fn the_request_says_class_and_service_level() {
    setup(true, None).run(|session| {
        record(session);
        connected_once(session, Qos::Premium);
        let sent = session.lines[0].recorded();
        let request =
            sent.iter().filter_map(|frame| mad(frame)).find(|mad| attribute_id(mad) == 0x10);
        let request = &request.unwrap()[24..];
        assert_eq!((request[92], request[94] >> 4), (PREMIUM.traffic_class, PREMIUM.priority));
    });
}

#[test]
fn the_attribute_of_an_endpoint_counts_where_the_call_has_none() {
    let mut setup = setup(false, None);
    setup.tweak = |attr: &mut EpAttr| attr.qos = Qos::BestEffort;
    setup.run(|session| {
        let mut attr = session.pair.ias[0].ep_attr_default();
        attr.qos = Qos::Premium;
        let own = &session.sides[0];
        let (pz, recv, request, conn) = (own.pz, own.recv, own.request, own.conn);
        let made = session.pair.ias[0].ep_create(
            Some(pz),
            Some(recv),
            Some(request),
            Some(conn),
            Some(&attr),
        );
        let (ep, now, to) = (made.unwrap(), session.now(), session.address(1));
        session.lines[0].record();
        let to = (to, QUALIFIER as u16).into();
        session.pair.ias[0].ep_common_connect(now, ep, to, LIMIT, b"").unwrap();
        let (cr, now) = (session.request(), session.now());
        session.pair.ias[1].cr_reject(now, cr, b"").unwrap();
        assert_eq!(session.connection(0), Event::PeerRejected(ep));
        let sent = session.lines[0].recorded();
        let request = sent.iter().find(|frame| mad(frame).is_some()).unwrap();
        assert_eq!(packet(request).unwrap().net.tclass, PREMIUM.traffic_class);
        session.pair.ias[0].ep_free(now, ep).unwrap();
    });
}

#[test]
fn only_what_has_a_class_is_granted() {
    setup(false, None).run(|session| {
        let premium = Qos::Premium as u32;
        assert_eq!(session.pair.ias[0].query().1.dat_qos_supported, premium);
        assert_eq!(session.pair.ias[1].query().1.dat_qos_supported, 0);
        let (ep, now, to) = (session.sides[0].ep, session.now(), session.address(1));
        for qos in [Qos::HighThroughput, Qos::LowLatency, Qos::Economy] {
            let got = session.pair.ias[0].ep_connect(now, ep, to, QUALIFIER, LIMIT, b"", qos);
            assert_eq!(got.unwrap_err().ret().ty(), DatType::ModelNotSupported);
        }
    });
}

#[test]
fn datagrams_have_the_class_that_the_look_up_asked_for() {
    for setup in every_network() {
        setup.run(|session| {
            let [a, b] = [0, 1].map(|side| {
                let own = &session.sides[side];
                let (pz, recv, request, conn) = (own.pz, own.recv, own.request, own.conn);
                session.pair.ias[side]
                    .ep_create_ud(pz, recv, request, Some(conn), None, 0x0123_4567)
                    .unwrap()
            });
            session.lines[0].record();
            let (now, to) = (session.now(), session.address(1));
            let ias = &mut session.pair.ias;
            ias[0].ep_connect(now, a, to, QUALIFIER, LIMIT, b"", Qos::Premium).unwrap();
            let evd = session.sides[1].cr;
            let cr = match session.event(1, evd) {
                Event::UdConnectionRequest { cr, .. } => cr,
                other => panic!("{other:?}"),
            };
            let now = session.now();
            session.pair.ias[1].cr_accept(now, cr, Some(b), b"").unwrap();
            assert!(matches!(session.connection(0), Event::UdEstablished(..)));
            let address = session.pair.ias[0].ep_ud_address(a).unwrap();
            assert_eq!(address.path.class, PREMIUM);
            let (here, there) = (session.seg(0, 0, 100), session.seg(1, 0x4000, 140));
            session.pair.ias[1].ep_post_recv(b, &[there], 7, NONE).unwrap();
            session.fence(1);
            session.pair.ias[0].ep_post_send_ud(a, &[here], &address, None, 3, NONE).unwrap();
            for (side, evd) in [(1, session.sides[1].recv), (0, session.sides[0].request)] {
                assert!(matches!(session.event(side, evd), Event::IbDto(_)));
            }
            let sent = session.lines[0].recorded();
            let sent: Vec<_> = sent.iter().filter_map(|frame| packet(frame)).collect();
            assert_eq!(sent.len(), 2, "the question and the datagram");
            for packet in sent {
                let tag =
                    session.pair.stage.vlan.map(|vlan| u16::from(PREMIUM.priority) << 13 | vlan);
                assert_eq!((packet.net.tclass, packet.net.vlan), (PREMIUM.traffic_class, tag));
            }
            for (side, ep) in [(0, a), (1, b)] {
                let now = session.now();
                session.pair.ias[side].ep_free(now, ep).unwrap();
            }
        });
    }
}

#[test]
fn a_priority_over_seven_opens_nothing() {
    let mut stage = Stage::default();
    stage.classes[0].economy = Some(Class { traffic_class: 0, priority: 8 });
    let (_, slots) = stage.plug(&mut |_, wire| wire);
    let mut room = Box::new(dat_tests::pair::Room::new());
    let error = stage.open(&slots[0], &mut room, 0, None).unwrap_err();
    assert!(error.to_string().contains("priority of Config::classes is over 7"), "{error}");
}

#[test]
fn congestion_control_is_read_as_the_firmware_has_it() {
    Stage::default().run(|pair| {
        let found = pair.ias[0].provider_mut().congestion().unwrap().unwrap();
        let said = Congestion {
            reacts: 0xff,
            notifies: 0xff,
            cnp_dscp: 48,
            cnp_priority: 6,
            cnp_interval: 4,
        };
        assert_eq!(found, said);
        pair.slots[0].hca().set_congestion_control(0x88, 0x01);
        let found = pair.ias[0].provider_mut().congestion().unwrap().unwrap();
        assert_eq!(found, Congestion { reacts: 0x88, notifies: 0x01, ..said });
    });
    let card = Card { general_caps: vec![("cc_query_allowed", 0)], ..Card::default() };
    let stage = Stage { cards: [card.clone(), card], ..Stage::default() };
    stage.run(|pair| {
        assert_eq!(pair.ias[0].provider_mut().congestion().unwrap(), None);
    });
}
