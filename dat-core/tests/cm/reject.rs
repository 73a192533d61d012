//! Refusals, by either side, in every state and for every reason.

use core::time::Duration;

use dat_core::cm::wire::{About, Ari, Message, RejRepr};
use dat_core::cm::{Cause, CmEvent, ConnId, Reason};

use crate::pair::*;

fn rejected(conn: ConnId, reason: Reason) -> Option<CmEvent> {
    Some(CmEvent::Rejected { conn, reason })
}

#[test]
fn every_reason_arrives_with_its_private_data() {
    let unknown = [Reason(0), Reason(34), Reason(0xbeef)];
    for reason in Reason::ALL.iter().copied().chain(unknown) {
        let mut pair = Pair::new();
        pair.nodes[B].consumer = Consumer::Unwilling(reason);
        let a = pair.connect(QPN_A);
        pair.exchange();
        // A request that is refused as stale is repeated.
        assert_eq!(pair.events_of(A, a).is_empty(), reason == Reason::STALE);
        for _ in 0..100 {
            if pair.events_of(A, a).is_empty() {
                pair.exchange();
            }
        }
        assert_eq!(pair.events_of(A, a), [rejected(a, reason).unwrap()]);
        let private = pair.nodes[A].cm.private_data(a);
        assert_eq!((private.len(), &private[..8]), (148, &b"go away\0"[..]));
        assert_eq!(pair.nodes[B].events.len(), 1);
        pair.exhaust();
        pair.no_leaks(8);
    }
}

#[test]
fn a_rej_of_a_req_on_the_wire() {
    let mut pair = Pair::new();
    pair.nodes[B].consumer = Consumer::Silent;
    let a = pair.connect(QPN_A);
    pair.exchange();
    let b = pair.request().conn;
    let ari = [5; 72];
    pair.nodes[B].cm.reject(pair.now, b, Reason::INVALID_MTU, &ari, &[9; 148]).unwrap();
    pair.exchange();
    let (transaction, Message::Rej(rej)) = Message::parse(&pair.sent(Kind::Rej)[0].mad).unwrap()
    else {
        panic!()
    };
    assert_eq!(transaction, Message::parse(&pair.log[0].mad).unwrap().0);
    // The active side never learnt of an ID here.
    assert_eq!((rej.local_id, rej.remote_id), (0, a.comm_id()));
    assert_eq!((rej.about, rej.reason), (About::Req, Reason::INVALID_MTU));
    assert_eq!((rej.ari, rej.private_data), (Ari::new(&ari).unwrap(), [9; 148]));
}

#[test]
fn the_active_side_rejects_a_reply() {
    let mut pair = Pair::new();
    pair.nodes[A].consumer = Consumer::Silent;
    let a = pair.connect(QPN_A);
    pair.exchange();
    pair.nodes[A].cm.reject(pair.now, a, Reason::CONSUMER, &[], b"changed my mind").unwrap();
    pair.exchange();
    let b = pair.request().conn;
    assert_eq!(pair.last(B, b), rejected(b, Reason::CONSUMER));
    assert_eq!(&pair.nodes[B].cm.private_data(b)[..15], b"changed my mind");
    let Message::Rej(rej) = pair.sent(Kind::Rej)[0].message() else { panic!() };
    assert_eq!((rej.about, rej.local_id, rej.remote_id), (About::Rep, a.comm_id(), b.comm_id()));
    pair.exhaust();
    pair.no_leaks(8);
}

#[test]
fn abort_after_the_req_tells_the_peer_whose_request_it_was() {
    let mut pair = Pair::new();
    pair.nodes[B].consumer = Consumer::Silent;
    let a = pair.connect(QPN_A);
    pair.exchange();
    pair.nodes[A].cm.abort(pair.now, a);
    pair.exchange();
    let Message::Rej(rej) = pair.sent(Kind::Rej)[0].message() else { panic!() };
    assert_eq!((rej.local_id, rej.remote_id, rej.about), (a.comm_id(), 0, About::Req));
    assert_eq!((rej.reason, rej.ari.guid()), (Reason::TIMEOUT, Some(GUIDS[A])));
    let b = pair.request().conn;
    assert_eq!((pair.events_of(A, a).len(), pair.last(B, b)), (0, rejected(b, Reason::TIMEOUT)));
    pair.exhaust();
    pair.no_leaks(8);
}

#[test]
fn a_late_rep_after_an_abort_is_rejected() {
    for pause in [1, 600] {
        // Within the memory of the REJ, and long after.
        let mut pair = Pair::new();
        pair.nodes[B].consumer = Consumer::Silent;
        pair.lose(Kind::Rej, 1);
        let a = pair.connect(QPN_A);
        pair.exchange();
        pair.nodes[A].cm.abort(pair.now, a);
        pair.run(Duration::from_secs(pause));
        let b = pair.request().conn;
        pair.nodes[B].cm.accept(pair.now, b, &Pair::accept_params()).unwrap();
        pair.exchange();
        assert!(matches!(pair.last(B, b), Some(CmEvent::Rejected { .. })), "{pause}");
        assert_eq!(pair.events_of(A, a).len(), 0);
    }
}

#[test]
fn abort_of_a_request_refuses_it_for_want_of_resources() {
    let mut pair = Pair::new();
    pair.nodes[B].consumer = Consumer::Silent;
    let a = pair.connect(QPN_A);
    pair.exchange();
    pair.nodes[B].cm.abort(pair.now, pair.request().conn);
    pair.exchange();
    assert_eq!(pair.last(A, a), rejected(a, Reason::NO_RESOURCES));
}

#[test]
fn abort_of_a_reply() {
    let mut pair = Pair::new();
    pair.nodes[A].consumer = Consumer::Silent;
    let a = pair.connect(QPN_A);
    pair.exchange();
    pair.nodes[A].cm.abort(pair.now, a);
    pair.exchange();
    let b = pair.request().conn;
    assert_eq!(pair.last(B, b), rejected(b, Reason::NO_RESOURCES));
}

#[test]
fn abort_of_an_accepted_request_ends_the_peer_in_any_state() {
    // The peer waits for its queue pair.
    let mut pair = Pair::new();
    pair.nodes[A].consumer = Consumer::Silent;
    let a = pair.connect(QPN_A);
    pair.exchange();
    let b = pair.request().conn;
    pair.nodes[B].cm.abort(pair.now, b);
    pair.exchange();
    assert_eq!(
        (pair.last(A, a), pair.events_of(B, b).len()),
        (rejected(a, Reason::NO_RESOURCES), 1)
    );

    // The peer is established and its RTU got lost.
    let mut pair = Pair::new();
    pair.lose(Kind::Rtu, 1);
    let a = pair.connect(QPN_A);
    pair.exchange();
    let b = pair.request().conn;
    pair.nodes[B].cm.abort(pair.now, b);
    pair.exchange();
    let cause = Cause::Rejected(Reason::NO_RESOURCES);
    assert_eq!(pair.last(A, a), Some(CmEvent::Disconnected { conn: a, cause }));

    // The peer still waits for the REP that got lost.
    let mut pair = Pair::new();
    pair.lose(Kind::Rep, 1);
    let a = pair.connect(QPN_A);
    pair.exchange();
    let b = pair.request().conn;
    pair.nodes[B].cm.abort(pair.now, b);
    pair.exchange();
    assert_eq!(pair.last(A, a), rejected(a, Reason::NO_RESOURCES));
}

#[test]
fn an_rtu_that_crosses_the_abort_is_refused_again() {
    let mut pair = Pair::new();
    let mut first = true;
    pair.link(move |sent| match sent.kind() {
        Kind::Rtu => Fate::Late(Duration::from_millis(20)),
        Kind::Rej if core::mem::take(&mut first) => Fate::Lose,
        _ => Fate::Deliver,
    });
    let a = pair.connect(QPN_A);
    pair.run(Duration::from_millis(10));
    let b = pair.request().conn;
    pair.nodes[B].cm.abort(pair.now, b);
    pair.exchange();
    let cause = Cause::Rejected(Reason::NO_RESOURCES);
    assert_eq!(pair.last(A, a), Some(CmEvent::Disconnected { conn: a, cause }));
}

#[test]
fn abort_before_anything_was_sent() {
    let mut pair = Pair::new();
    let a = pair.connect(QPN_A);
    pair.nodes[A].cm.abort(pair.now, a);
    pair.exhaust();
    assert_eq!(pair.sent(Kind::Req).len(), 0);
    pair.no_leaks(8);
}

#[test]
fn a_request_that_is_gone_before_it_was_seen_is_never_seen() {
    let mut pair = Pair::new();
    let a = pair.connect(QPN_A);
    let now = pair.now;
    let req = pair.nodes[A].cm.poll_transmit(now).unwrap();
    pair.nodes[A].cm.abort(now, a);
    let rej = pair.nodes[A].cm.poll_transmit(now).unwrap();
    let cm = &mut pair.nodes[B].cm;
    cm.input(now, v4(1), &req.mad);
    cm.input(now, v4(1), &rej.mad);
    assert_eq!(cm.poll_event(), None);
    pair.exhaust();
    pair.no_leaks(8);
}

#[test]
fn a_reply_that_is_void_before_it_was_seen_is_withdrawn() {
    let mut pair = Pair::new();
    pair.nodes[B].consumer = Consumer::Silent;
    let a = pair.connect(QPN_A);
    pair.exchange();
    let (now, b) = (pair.now, pair.request().conn);
    pair.nodes[B].cm.accept(now, b, &Pair::accept_params()).unwrap();
    let rep = pair.nodes[B].cm.poll_transmit(now).unwrap();
    pair.nodes[B].cm.abort(now, b);
    let rej = pair.nodes[B].cm.poll_transmit(now).unwrap();
    let cm = &mut pair.nodes[A].cm;
    cm.input(now, v4(2), &rep.mad);
    cm.input(now, v4(2), &rej.mad);
    assert_eq!(cm.poll_event(), rejected(a, Reason::NO_RESOURCES));
    assert_eq!(cm.poll_event(), None);
}

#[test]
fn a_late_rej_ends_an_established_connection() {
    let (mut pair, a, b) = Pair::established();
    let rej = RejRepr {
        local_id: b.comm_id(),
        remote_id: a.comm_id(),
        about: About::Other,
        reason: Reason::CONSUMER,
        ari: Ari::EMPTY,
        private_data: [3; 148],
    };
    pair.inject(A, v4(2), &rej.emit(1));
    let cause = Cause::Rejected(Reason::CONSUMER);
    assert_eq!(pair.last(A, a), Some(CmEvent::Disconnected { conn: a, cause }));
    assert_eq!(pair.nodes[A].cm.private_data(a), [3; 148]);
    pair.inject(A, v4(2), &rej.emit(1));
    assert_eq!(pair.events_of(A, a).len(), 2);
}

#[test]
fn a_rej_of_a_dreq_is_as_good_as_a_drep() {
    let (mut pair, a, b) = Pair::established();
    pair.lose(Kind::Dreq, 1);
    pair.nodes[A].cm.disconnect(pair.now, a).unwrap();
    pair.turn();
    let rej = RejRepr {
        local_id: b.comm_id(),
        remote_id: a.comm_id(),
        about: About::Other,
        reason: Reason::INVALID_COMM_ID,
        ari: Ari::EMPTY,
        private_data: [0; 148],
    };
    pair.inject(A, v4(2), &rej.emit(1));
    let end = CmEvent::Disconnected { conn: a, cause: Cause::Local };
    assert_eq!(pair.last(A, a), Some(end));
}

#[test]
fn a_rej_for_nobody_is_dropped() {
    let mut pair = Pair::new();
    let ari = Ari::new(&GUIDS[A].to_be_bytes()).unwrap();
    for (remote_id, reason) in [(7, Reason::CONSUMER), (0, Reason::TIMEOUT), (0, Reason::CONSUMER)]
    {
        let private_data = [0; 148];
        let rej = RejRepr { local_id: 5, remote_id, about: About::Req, reason, ari, private_data };
        pair.inject(B, v4(1), &rej.emit(1));
    }
    assert_eq!((pair.log.len(), pair.nodes[B].cm.counters().unknown), (0, 3));
}
