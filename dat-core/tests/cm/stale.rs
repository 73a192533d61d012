//! Connections that one side has lost: it asks again with the same queue pair.

use core::time::Duration;

use dat_core::cm::wire::Message;
use dat_core::cm::{Cause, CmEvent, Reason};

use crate::pair::*;

/// A forgets everything, as if it had been started anew, and connects with the same queue pair.
fn reboot_and_reconnect(pair: &mut Pair) -> dat_core::cm::ConnId {
    pair.nodes[A].cm = cm(8, GUIDS[A], 0xb007);
    pair.connect(QPN_A)
}

#[test]
fn an_established_connection_is_found_stale() {
    let (mut pair, _, b) = Pair::established();
    let new = reboot_and_reconnect(&mut pair);
    pair.exchange();
    let reason = Reason::STALE;
    assert_eq!(pair.events_of(A, new), [CmEvent::Rejected { conn: new, reason }]);
    assert_eq!(pair.last(B, b), Some(CmEvent::Disconnected { conn: b, cause: Cause::Stale }));
    assert_eq!(pair.nodes[B].cm.counters().stale, 1);
    // The old one is disconnected in good order: A answers for an ID that it does not know.
    assert_eq!(pair.kinds()[3..].iter().filter(|kind| **kind == Kind::Dreq).count(), 1);
    assert_eq!(pair.kinds()[3..].iter().filter(|kind| **kind == Kind::Drep).count(), 1);
    // And the next try succeeds.
    let again = pair.connect(QPN_A);
    pair.exchange();
    assert!(pair.nodes[A].ready.contains(&again));
    assert_eq!(pair.events_of(B, b).len(), 3);
}

#[test]
fn a_request_that_waits_is_found_stale() {
    let mut pair = Pair::new();
    pair.nodes[B].consumer = Consumer::Silent;
    pair.connect(QPN_A);
    pair.exchange();
    let b = pair.request().conn;
    let new = reboot_and_reconnect(&mut pair);
    pair.exchange();
    let reason = Reason::STALE;
    assert_eq!(pair.last(B, b), Some(CmEvent::Rejected { conn: b, reason }));
    assert_eq!(pair.last(A, new), Some(CmEvent::Rejected { conn: new, reason }));
}

#[test]
fn a_request_nobody_has_seen_yet_vanishes_when_stale() {
    let mut pair = Pair::new();
    let now = pair.now;
    pair.connect(QPN_A);
    let first = pair.nodes[A].cm.poll_transmit(now).unwrap();
    reboot_and_reconnect(&mut pair);
    let second = pair.nodes[A].cm.poll_transmit(now).unwrap();
    let node = &mut pair.nodes[B].cm;
    node.input(now, v4(1), &first.mad);
    node.input(now, v4(1), &second.mad);
    assert_eq!(node.poll_event(), None);
}

#[test]
fn an_accepted_request_is_found_stale() {
    let mut pair = Pair::new();
    pair.lose(Kind::Rep, 1);
    pair.connect(QPN_A);
    pair.exchange();
    let b = pair.request().conn;
    reboot_and_reconnect(&mut pair);
    pair.exchange();
    let reason = Reason::STALE;
    assert_eq!(pair.last(B, b), Some(CmEvent::Rejected { conn: b, reason }));
    assert_eq!(pair.sent(Kind::Rep).len(), 1);
}

#[test]
fn a_queue_pair_in_timewait_may_connect_again() {
    let (mut pair, a, _) = Pair::established();
    for _ in 0..20 {
        let old = *pair.nodes[A].ready.last().unwrap();
        pair.nodes[A].cm.disconnect(pair.now, old).unwrap();
        pair.exchange();
        let new = pair.connect(QPN_A);
        pair.exchange();
        assert_eq!(pair.nodes[A].ready.last(), Some(&new));
        assert_ne!(new, a);
    }
    assert_eq!(pair.nodes[B].cm.counters().stale, 0);
}

#[test]
fn a_request_of_the_same_queue_pair_ends_a_disconnect_under_way() {
    let (mut pair, _, b) = Pair::established();
    pair.lose(Kind::Dreq, 1);
    pair.nodes[B].cm.disconnect(pair.now, b).unwrap();
    pair.turn();
    let new = reboot_and_reconnect(&mut pair);
    pair.exchange();
    let end = CmEvent::Disconnected { conn: b, cause: Cause::Local };
    assert_eq!(pair.last(B, b), Some(end));
    assert!(pair.nodes[A].ready.contains(&new));
    assert_eq!(pair.nodes[B].cm.counters().stale, 0);
    // Nothing more is said about the old one.
    let before = pair.kinds().len();
    pair.run(Duration::from_secs(10));
    assert_eq!(pair.kinds().len(), before);
}

#[test]
fn another_address_cannot_make_a_connection_stale() {
    let (mut pair, _, b) = Pair::established();
    let mut spoof = pair.params(QPN_A);
    spoof.local = v4(66);
    let mut spoofer = cm(1, GUIDS[A], 5);
    spoofer.connect(pair.now, &spoof).unwrap();
    let req = spoofer.poll_transmit(pair.now).unwrap();
    pair.inject(B, v4(66), &req.mad);
    // It is a request of its own, to be judged as any other.
    assert_eq!((pair.events_of(B, b).len(), pair.nodes[B].cm.counters().stale), (2, 0));
    assert!(
        matches!(pair.nodes[B].events[2], CmEvent::Request(request) if request.remote == v4(66))
    );
}

#[test]
fn another_queue_pair_of_the_same_adapter_is_no_stale_one() {
    let (mut pair, ..) = Pair::established();
    let second = pair.connect(QPN_A + 1);
    pair.exchange();
    assert_eq!(pair.nodes[A].ready.last(), Some(&second));
}

#[test]
fn a_reply_with_a_queue_pair_in_use_is_stale() {
    // B is started anew and accepts the next connection with the queue pair that A believes
    // connected.
    let (mut pair, a, _) = Pair::established();
    pair.nodes[B].cm = cm(8, GUIDS[B], 0xb007);
    let new = pair.connect(QPN_A + 1);
    pair.exchange();
    let reason = Reason::STALE;
    assert_eq!(pair.last(A, a), Some(CmEvent::Disconnected { conn: a, cause: Cause::Stale }));
    assert_eq!(pair.events_of(A, new), [CmEvent::Rejected { conn: new, reason }]);
    let passive = pair.nodes[B].events.last().copied();
    assert!(matches!(passive, Some(CmEvent::Rejected { reason: Reason::STALE, .. })));
    pair.exhaust();
    pair.no_leaks(8);
}

#[test]
fn a_stale_rej_tells_both_ids_apart() {
    let (mut pair, ..) = Pair::established();
    let new = reboot_and_reconnect(&mut pair);
    pair.exchange();
    let Message::Rej(rej) = pair.sent(Kind::Rej)[0].message() else { panic!() };
    assert_eq!((rej.local_id, rej.remote_id), (0, new.comm_id()));
}

#[test]
fn a_peer_that_starts_anew_may_come_to_an_id_that_it_had() {
    let (mut pair, a, _) = Pair::established();
    pair.nodes[A].cm.disconnect(pair.now, a).unwrap();
    pair.exchange();
    let params = pair.params(QPN_A);
    // Ten bits of an ID are random.
    let anew = (0..100_000).find_map(|seed| {
        let mut cm = cm(4, GUIDS[A], seed);
        let id = cm.connect(pair.now, &params).unwrap();
        (id == a).then_some(cm)
    });
    pair.nodes[A].cm = anew.unwrap();
    pair.nodes[A].ready.clear();
    pair.exchange();
    assert_eq!(pair.nodes[A].ready, [a]);
    assert_eq!(pair.sent(Kind::Rej).len(), 0);
}
