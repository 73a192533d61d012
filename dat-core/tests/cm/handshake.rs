//! Connections that nothing goes wrong with.

use core::time::Duration;

use dat_core::cm::wire::Message;
use dat_core::cm::{AcceptParams, CmError, CmEvent, Reason, ServiceId, ack_timeout, code_time};
use dat_core::provider::Mtu;

use crate::pair::*;

#[test]
fn three_messages_establish() {
    let (pair, a, b) = Pair::established();
    assert_eq!(pair.kinds(), [Kind::Req, Kind::Rep, Kind::Rtu]);
    assert_eq!(pair.events_of(A, a).len(), 1);
    assert_eq!(pair.events_of(B, b).len(), 2);
}

#[test]
fn an_established_connection_is_at_rest() {
    let (mut pair, ..) = Pair::established();
    pair.exhaust();
    assert_eq!(pair.log.len(), 3);
    assert_eq!([A, B].map(|who| pair.nodes[who].cm.next_deadline()), [None, None]);
}

#[test]
fn each_side_sends_the_psn_that_the_other_expects() {
    let (pair, a, b) = Pair::established();
    let (request, reply) = (pair.request().terms, pair.reply().terms);
    assert_eq!(request.sq_psn, reply.rq_psn);
    assert_eq!(request.rq_psn, reply.sq_psn);
    assert_eq!(pair.nodes[A].cm.starting_psn(a), Some(reply.rq_psn));
    assert_eq!(pair.nodes[B].cm.starting_psn(b), Some(request.rq_psn));
    let Message::Req(req) = pair.log[0].message() else { panic!() };
    let Message::Rep(rep) = pair.log[1].message() else { panic!() };
    assert_eq!((req.starting_psn, rep.starting_psn), (reply.rq_psn, request.rq_psn));
}

#[test]
fn queue_pair_values_cross_over() {
    let (pair, _, b) = Pair::established();
    let request = pair.request().terms;
    assert_eq!(request.remote_qpn, QPN_A);
    assert_eq!((request.responder_resources, request.initiator_depth), (3, 4));
    assert_eq!((request.retry_count, request.rnr_retry, request.ack_timeout), (6, 5, 17));
    assert_eq!(request.mtu, Mtu::B1024);
    let reply = pair.reply();
    let index = u32::try_from(b.index()).unwrap();
    assert_eq!(reply.terms.remote_qpn, QPN_B + index);
    // B answers 2 reads and wants to have 4; A wanted 3 and answers 4.
    assert_eq!((reply.terms.responder_resources, reply.terms.initiator_depth), (4, 2));
    assert_eq!((reply.terms.retry_count, reply.terms.rnr_retry), (6, 7));
    assert_eq!(reply.terms.ack_timeout, ack_timeout(15, 16));
    assert_eq!(reply.terms.mtu, Mtu::B1024);
}

#[test]
fn a_reply_never_gets_more_reads_than_were_asked_for() {
    let mut pair = Pair::new();
    let mut params = pair.params(QPN_A);
    (params.responder_resources, params.initiator_depth) = (9, 1);
    pair.nodes[A].cm.connect(pair.now, &params).unwrap();
    pair.exchange();
    let terms = pair.reply().terms;
    assert_eq!((terms.responder_resources, terms.initiator_depth), (4, 1));
}

#[test]
fn a_request_says_who_asks_for_what() {
    let (pair, ..) = Pair::established();
    let request = pair.request();
    assert_eq!((request.remote, request.local), (v4(1), v4(2)));
    assert_eq!((request.service.port(), request.remote_port), (Some(PORT), 41564));
    assert_eq!((request.flow_label, request.terms.class, request.hop_limit), (0x3c52a, CLASS, 64));
}

#[test]
fn both_sides_send_in_the_class_of_the_request() {
    let (pair, a, b) = Pair::established();
    assert_eq!((pair.request().terms.class, pair.reply().terms.class), (CLASS, CLASS));
    assert_eq!(
        [(A, a), (B, b)].map(|(side, conn)| pair.nodes[side].cm.class(conn)),
        [Some(CLASS); 2]
    );
}

#[test]
fn a_service_level_beyond_a_priority_s_three_bits_is_cut() {
    let mut pair = Pair::new();
    pair.nodes[B].consumer = Consumer::Silent;
    pair.connect(QPN_A);
    let mut mad = pair.nodes[A].cm.poll_transmit(pair.now).unwrap().mad;
    mad[24 + 94] |= 0xf0;
    pair.inject(B, v4(1), &mad);
    pair.turn();
    assert_eq!(pair.request().terms.class.priority, 7);
}

#[test]
fn over_ipv6_too() {
    let mut pair = Pair::with(2, 2, [v6(1), v6(2)]);
    pair.connect(QPN_A);
    pair.exchange();
    assert_eq!((pair.request().remote, pair.request().local), (v6(1), v6(2)));
    assert_eq!(pair.nodes[A].ready.len(), 1);
}

#[test]
fn an_ipv4_address_in_ipv6_form_is_the_same_address() {
    let mut pair = Pair::new();
    pair.connect(QPN_A);
    pair.turn();
    let mapped = match v4(1) {
        core::net::IpAddr::V4(v4) => v4.to_ipv6_mapped().into(),
        v6 => v6,
    };
    let mad = pair.log[0].mad;
    pair.inject(B, mapped, &mad);
    assert_eq!(pair.request().remote, v4(1));
}

#[test]
fn private_data_arrives_padded() {
    let mut pair = Pair::new();
    pair.nodes[B].consumer = Consumer::Silent;
    let a = pair.connect(QPN_A);
    pair.exchange();
    let b = pair.request().conn;
    let at_b = pair.nodes[B].cm.private_data(b);
    assert_eq!((at_b.len(), &at_b[..6]), (56, &b"hello\0"[..]));
    let (now, params) = (pair.now, Pair::accept_params());
    pair.nodes[B].cm.prepare_reply(b, b"welcome").unwrap();
    assert!(pair.nodes[B].cm.private_data(b).is_empty());
    pair.nodes[B].cm.accept(now, b, &params).unwrap();
    assert!(pair.nodes[B].cm.private_data(b).is_empty());
    pair.exchange();
    let at_a = pair.nodes[A].cm.private_data(a);
    assert_eq!((at_a.len(), &at_a[..8]), (196, &b"welcome\0"[..]));
}

#[test]
fn private_data_of_full_length() {
    let mut pair = Pair::new();
    pair.nodes[B].consumer = Consumer::Silent;
    let mut params = pair.params(QPN_A);
    params.private_data = &[0xa5; 56];
    let a = pair.nodes[A].cm.connect(pair.now, &params).unwrap();
    pair.exchange();
    let b = pair.request().conn;
    assert_eq!(pair.nodes[B].cm.private_data(b), [0xa5; 56]);
    let cm = &mut pair.nodes[B].cm;
    cm.prepare_reply(b, &[0x5a; 196]).unwrap();
    cm.accept(pair.now, b, &Pair::accept_params()).unwrap();
    pair.exchange();
    assert_eq!(pair.nodes[A].cm.private_data(a), [0x5a; 196]);
}

#[test]
fn private_data_too_long_is_refused_and_changes_nothing() {
    let mut pair = Pair::new();
    pair.nodes[B].consumer = Consumer::Silent;
    let mut params = pair.params(QPN_A);
    params.private_data = &[0; 57];
    let refused = pair.nodes[A].cm.connect(pair.now, &params);
    assert_eq!(refused, Err(CmError::TooLong { given: 57, most: 56 }));
    pair.no_leaks(8);
    pair.connect(QPN_A);
    pair.exchange();
    let b = pair.request().conn;
    let (now, cm) = (pair.now, &mut pair.nodes[B].cm);
    assert_eq!(cm.prepare_reply(b, &[0; 197]), Err(CmError::TooLong { given: 197, most: 196 }));
    let long = cm.reject(now, b, Reason::CONSUMER, &[], &[0; 149]);
    assert_eq!(long, Err(CmError::TooLong { given: 149, most: 148 }));
    let long = cm.reject(now, b, Reason::CONSUMER, &[0; 73], &[]);
    assert_eq!(long, Err(CmError::TooLong { given: 73, most: 72 }));
    cm.accept(now, b, &Pair::accept_params()).unwrap();
    pair.exchange();
    assert_eq!(pair.nodes[A].ready.len(), 1);
}

#[test]
fn a_service_outside_the_ip_cm_has_all_92_bytes() {
    let mut pair = Pair::new();
    pair.nodes[B].consumer = Consumer::Silent;
    let mut params = pair.params(QPN_A);
    params.service = ServiceId(0x1234_5678_9abc_def0);
    params.private_data = &[7; 92];
    pair.nodes[A].cm.connect(pair.now, &params).unwrap();
    pair.exchange();
    let request = pair.request();
    assert_eq!((request.service.port(), request.remote_port), (None, 0));
    assert_eq!(pair.nodes[B].private, [7; 92]);
}

#[test]
fn parameters_out_of_range_are_refused() {
    let mut pair = Pair::new();
    let good = pair.params(QPN_A);
    let mut cases = vec![good; 5];
    cases[0].local = v6(1);
    cases[1].qpn = 1;
    cases[2].qpn = 1 << 24;
    cases[3].retry_count = 8;
    cases[4].rnr_retry = 8;
    for params in &cases {
        let refused = pair.nodes[A].cm.connect(pair.now, params);
        assert!(matches!(refused, Err(CmError::Parameter(_))), "{params:?}");
    }
    pair.no_leaks(8);
}

#[test]
fn the_first_and_the_last_queue_pair_number_connect() {
    for qpn in [2, (1 << 24) - 1] {
        let mut pair = Pair::new();
        pair.nodes[B].consumer = Consumer::Silent;
        let a = pair.connect(qpn);
        pair.exchange();
        let request = pair.request();
        assert_eq!(request.terms.remote_qpn, qpn);
        let params = AcceptParams { qpn, ..Pair::accept_params() };
        let accepted = pair.nodes[B].cm.accept(pair.now, request.conn, &params);
        assert_eq!(accepted, Ok(()));
        pair.exchange();
        assert_eq!(pair.reply().terms.remote_qpn, qpn);
        assert_eq!(pair.nodes[A].ready, [a]);
    }
}

#[test]
fn accept_refuses_what_the_request_does_not_offer() {
    let mut pair = Pair::new();
    pair.nodes[B].consumer = Consumer::Silent;
    pair.connect(QPN_A);
    pair.exchange();
    let b = pair.request().conn;
    let mut cases = [Pair::accept_params(); 3];
    cases[0].initiator_depth = 5;
    cases[1].qpn = 0;
    cases[2].rnr_retry = 8;
    for params in &cases {
        let refused = pair.nodes[B].cm.accept(pair.now, b, params);
        assert!(matches!(refused, Err(CmError::Parameter(_))), "{params:?}");
    }
    pair.nodes[B].cm.accept(pair.now, b, &Pair::accept_params()).unwrap();
    pair.exchange();
    assert_eq!(pair.last(B, b), Some(CmEvent::Established { conn: b }));
}

#[test]
fn calls_in_the_wrong_state_are_refused() {
    let mut pair = Pair::new();
    pair.nodes[A].consumer = Consumer::Silent;
    pair.nodes[B].consumer = Consumer::Silent;
    let a = pair.connect(QPN_A);
    let is_state = |result: Result<(), CmError>| matches!(result, Err(CmError::State(..)));
    let now = pair.now;
    let params = Pair::accept_params();
    // REQ sent.
    let cm = &mut pair.nodes[A].cm;
    assert!(is_state(cm.accept(now, a, &params)));
    assert!(is_state(cm.reject(now, a, Reason::CONSUMER, &[], &[])));
    assert!(is_state(cm.ready(now, a)));
    assert!(is_state(cm.disconnect(now, a)));
    pair.exchange();
    // REQ received.
    let b = pair.request().conn;
    let cm = &mut pair.nodes[B].cm;
    assert!(is_state(cm.ready(now, b)));
    assert!(is_state(cm.disconnect(now, b)));
    cm.accept(now, b, &params).unwrap();
    // REP sent.
    assert!(is_state(cm.accept(now, b, &params)));
    assert!(is_state(cm.reject(now, b, Reason::CONSUMER, &[], &[])));
    assert!(is_state(cm.ready(now, b)));
    assert!(is_state(cm.disconnect(now, b)));
    pair.exchange();
    // REP received.
    let cm = &mut pair.nodes[A].cm;
    assert!(is_state(cm.accept(now, a, &params)));
    assert!(is_state(cm.disconnect(now, a)));
    cm.ready(now, a).unwrap();
    // Established.
    assert!(is_state(cm.ready(now, a)));
    assert!(is_state(cm.accept(now, a, &params)));
    assert!(is_state(cm.reject(now, a, Reason::CONSUMER, &[], &[])));
    pair.exchange();
    assert_eq!(pair.last(B, b), Some(CmEvent::Established { conn: b }));
}

#[test]
fn errors_say_what_to_do() {
    let (mut pair, a, _) = Pair::established();
    let error = pair.nodes[A].cm.ready(pair.now, a).unwrap_err();
    let text = format!("{error}");
    assert_eq!(
        text,
        format!("connection {:#010x} is established: the call does not apply", a.comm_id())
    );
    assert!(format!("{}", CmError::NoSlot).contains("longer slice"));
    assert!(format!("{}", CmError::TooLong { given: 57, most: 56 }).contains("56 at most"));
}

#[test]
fn the_first_packet_establishes_the_passive_side_once() {
    let mut pair = Pair::new();
    pair.link(|sent| {
        if sent.kind() == Kind::Rtu { Fate::Late(Duration::from_millis(50)) } else { Fate::Deliver }
    });
    pair.connect(QPN_A);
    pair.run(Duration::from_millis(10));
    let b = pair.request().conn;
    assert_eq!(pair.events_of(B, b).len(), 1);
    pair.nodes[B].cm.data_arrived(pair.now, b);
    pair.turn();
    assert_eq!(pair.events_of(B, b)[1..], [CmEvent::Established { conn: b }]);
    pair.exhaust();
    pair.nodes[B].cm.data_arrived(pair.now, b);
    pair.turn();
    assert_eq!(pair.events_of(B, b).len(), 2);
    assert_eq!(pair.sent(Kind::Rep).len(), 1);
}

#[test]
fn a_packet_before_the_reply_establishes_nothing() {
    let mut pair = Pair::new();
    pair.nodes[B].consumer = Consumer::Silent;
    let a = pair.connect(QPN_A);
    pair.nodes[A].cm.data_arrived(pair.now, a);
    pair.exchange();
    let b = pair.request().conn;
    pair.nodes[B].cm.data_arrived(pair.now, b);
    pair.exchange();
    assert_eq!((pair.events_of(A, a).len(), pair.events_of(B, b).len()), (0, 1));
}

#[test]
fn ids_and_psns_are_random() {
    let mut ids = vec![];
    let mut psns = vec![];
    for seed in 0..4 {
        let mut cm = cm(16, GUIDS[A], seed);
        let params = Pair::new().params(QPN_A);
        for _ in 0..16 {
            let conn = cm.connect(dat_core::Instant::ZERO, &params).unwrap();
            ids.push(conn.comm_id());
            psns.push(cm.starting_psn(conn).unwrap());
        }
    }
    psns.sort_unstable();
    psns.dedup();
    assert!(psns.len() > 62);
    ids.sort_unstable();
    ids.dedup();
    assert!(ids.len() > 60);
}

/// A chi-square test at one in a million over each byte of 102,400 starting PSNs.
#[test]
fn starting_psns_are_spread() {
    let mut seen = [[0_u32; 256]; 3];
    for seed in 0..200 {
        let mut cm = cm(512, GUIDS[A], seed);
        let params = Pair::new().params(QPN_A);
        for _ in 0..512 {
            let conn = cm.connect(dat_core::Instant::ZERO, &params).unwrap();
            let psn = cm.starting_psn(conn).unwrap();
            for (counts, byte) in seen.iter_mut().zip(psn.to_le_bytes()) {
                counts[usize::from(byte)] += 1;
            }
        }
    }
    for counts in seen {
        let each = 400.0;
        let chi: f64 = counts.iter().map(|&n| (f64::from(n) - each).powi(2) / each).sum();
        assert!(chi < 381.0, "chi-square {chi} of 255 degrees of freedom");
    }
}

#[test]
fn a_node_connects_to_itself() {
    let mut node = cm(4, GUIDS[A], 1);
    let now = dat_core::Instant::ZERO;
    let mut params = Pair::new().params(QPN_A);
    params.remote = params.local;
    let a = node.connect(now, &params).unwrap();
    let shuttle = |node: &mut dat_core::cm::Cm<'_>| {
        while let Some(transmit) = node.poll_transmit(now) {
            node.input(now, transmit.to, &transmit.mad);
        }
    };
    shuttle(&mut node);
    let Some(CmEvent::Request(request)) = node.poll_event() else { panic!() };
    node.accept(now, request.conn, &Pair::accept_params()).unwrap();
    shuttle(&mut node);
    let Some(CmEvent::Reply(reply)) = node.poll_event() else { panic!() };
    assert_eq!(reply.conn, a);
    node.ready(now, a).unwrap();
    shuttle(&mut node);
    assert_eq!(node.poll_event(), Some(CmEvent::Established { conn: request.conn }));
    node.disconnect(now, request.conn).unwrap();
    shuttle(&mut node);
    let mut ends = [node.poll_event().unwrap().conn(), node.poll_event().unwrap().conn()];
    ends.sort_unstable();
    let mut both = [a, request.conn];
    both.sort_unstable();
    assert_eq!((ends, node.poll_event()), (both, None));
}

#[test]
fn fifty_at_once() {
    let mut pair = Pair::with(50, 50, [v4(1), v4(2)]);
    let all: Vec<_> = (0..50).map(|n| pair.connect(100 + n)).collect();
    pair.exchange();
    assert_eq!(pair.nodes[A].ready.len(), 50);
    for conn in all {
        pair.nodes[A].cm.disconnect(pair.now, conn).unwrap();
    }
    pair.exchange();
    assert_eq!(pair.log.len(), 250);
    pair.exhaust();
    pair.no_leaks(50);
}

#[test]
fn times_are_codes() {
    assert_eq!(code_time(0), Duration::from_nanos(4096));
    assert_eq!(code_time(20), Duration::from_nanos(4_294_967_296));
    assert_eq!(code_time(31).as_secs(), 8796);
    let interval = dat_core::cm::Config::new(0).request_interval();
    assert_eq!(interval, code_time(16) * 2 + code_time(20));
}

#[test]
fn the_ack_timeout_covers_packet_lifetime_and_delay() {
    // Equal or neighbouring times double; a much shorter one does not count.
    assert_eq!(ack_timeout(15, 16), 17);
    assert_eq!(ack_timeout(16, 16), 18);
    assert_eq!(ack_timeout(17, 16), 18);
    assert_eq!(ack_timeout(18, 16), 19);
    assert_eq!(ack_timeout(20, 16), 20);
    assert_eq!(ack_timeout(31, 31), 31);
    for delay in 0..=255 {
        for lifetime in 0..=255 {
            assert!(ack_timeout(delay, lifetime) <= 31);
        }
    }
}
