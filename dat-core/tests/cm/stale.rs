//! Connections that one side has lost: it asks again with the same queue pair.

use core::time::Duration;

use dat_core::cm::wire::{About, Ari, DrepRepr, Message, RejRepr, Req};
use dat_core::cm::{Cause, CmEvent, Reason};

use crate::pair::*;

/// A forgets everything, as if it had been started anew, and connects with the same queue pair.
fn reboot_and_reconnect(pair: &mut Pair) -> dat_core::cm::ConnId {
    pair.nodes[A].cm = cm(8, GUIDS[A], 0xb007);
    pair.connect(QPN_A)
}

/// More than the time after which a request that was refused as stale is repeated.
const REPEATED: Duration = Duration::from_secs(1);

#[test]
fn an_established_connection_is_found_stale() {
    let (mut pair, _, b) = Pair::established();
    let new = reboot_and_reconnect(&mut pair);
    pair.exchange();
    assert_eq!(pair.events_of(A, new), []);
    assert_eq!(pair.last(B, b), Some(CmEvent::Disconnected { conn: b, cause: Cause::Stale }));
    assert_eq!(pair.nodes[B].cm.counters().stale, 1);
    // The old one is disconnected in good order: A answers for an ID that it does not know.
    assert_eq!(pair.kinds()[3..].iter().filter(|kind| **kind == Kind::Dreq).count(), 1);
    assert_eq!(pair.kinds()[3..].iter().filter(|kind| **kind == Kind::Drep).count(), 1);
    // And the same request succeeds when it is repeated.
    pair.run(REPEATED);
    assert_eq!(pair.nodes[A].ready, [pair.nodes[A].ready[0], new]);
    assert_eq!(pair.sent(Kind::Req).len(), 3);
    assert_eq!(pair.events_of(B, b).len(), 3);
}

/// A peer that never lets go of the old connection: its refusal is reported after all repeats.
#[test]
fn a_request_that_stays_stale_is_rejected_in_the_end() {
    let mut pair = Pair::new();
    let (new, reason) = (pair.connect(QPN_A), Reason::STALE);
    let rej = RejRepr {
        local_id: 0,
        remote_id: new.comm_id(),
        about: About::Req,
        reason,
        ari: Ari::EMPTY,
        private_data: [0; 148],
    };
    pair.link(|_| Fate::Lose);
    for requests in 1..=16 {
        assert_eq!(pair.events_of(A, new), []);
        pair.run(REPEATED);
        let sent = pair.sent(Kind::Req);
        assert_eq!(sent.len(), requests);
        // A refusal that comes twice counts once.
        pair.inject(A, v4(2), &rej.emit(sent[0].transaction()));
        pair.inject(A, v4(2), &rej.emit(sent[0].transaction()));
    }
    assert_eq!(pair.events_of(A, new), [CmEvent::Rejected { conn: new, reason }]);
    pair.exhaust();
    pair.no_leaks(8);
}

/// Of a connection that is there, anybody on the link can say that its peer has lost it.
#[test]
fn a_forged_request_makes_no_connection_stale() {
    for by in [A, B] {
        let (mut pair, a, b) = Pair::established();
        let (victim, conn) = [(A, a), (B, b)][by];
        let before = pair.nodes[victim].events.len();
        for n in 0..20 {
            let mut params = pair.params([QPN_B, QPN_A][by]);
            (params.local, params.remote) =
                (pair.nodes[1 - victim].address, pair.nodes[victim].address);
            let mut forger = cm(1, GUIDS[1 - victim], 100 + n);
            forger.connect(pair.now, &params).unwrap();
            let req = forger.poll_transmit(pair.now).unwrap();
            pair.inject(victim, params.local, &req.mad);
            pair.run(Duration::from_secs(1));
        }
        let counters = pair.nodes[victim].cm.counters();
        assert_eq!((counters.stale, counters.received > 20), (20, true));
        pair.run(Duration::from_secs(600));
        assert_eq!(pair.nodes[victim].events.len(), before);
        // Nothing more is asked, and the end is as usual.
        assert_eq!(pair.nodes[victim].cm.next_deadline(), None);
        pair.nodes[victim].cm.disconnect(pair.now, conn).unwrap();
        pair.exhaust();
        pair.no_leaks(8);
    }
}

/// A probe of each side: what it says, and what its answers do.
#[test]
fn a_probe_ends_nothing_and_has_a_transaction_of_its_own() {
    let (mut pair, a, b) = Pair::established();
    let (sent, mut params) = (pair.log.len(), pair.params(QPN_A));
    params.source_port += 1;
    let mut forger = cm(1, GUIDS[A], 100);
    forger.connect(pair.now, &params).unwrap();
    let req = forger.poll_transmit(pair.now).unwrap();
    pair.inject(B, v4(1), &req.mad);
    let kinds: Vec<_> = pair.kinds()[sent..].to_vec();
    assert_eq!(kinds, [Kind::Rej, Kind::Rep, Kind::Dreq]);
    let Message::Dreq(dreq) = pair.log[sent + 2].message() else { panic!() };
    assert_eq!((dreq.local_id, dreq.remote_id), (b.comm_id(), a.comm_id()));
    assert_eq!(dreq.remote_qpn, 1);
    // An answer to another question does not count.
    let drep = DrepRepr { local_id: a.comm_id(), remote_id: b.comm_id(), private_data: [0; 224] };
    let asked = pair.log[sent + 2].transaction();
    for bit in 0..64 {
        pair.inject(B, v4(1), &drep.emit(asked ^ 1 << bit));
    }
    let of_req = pair.sent(Kind::Req)[0].transaction();
    pair.inject(B, v4(1), &drep.emit(of_req));
    assert_eq!(pair.events_of(B, b).len(), 2);
    assert_eq!(pair.nodes[B].cm.counters().wrong_transaction, 65);
    pair.inject(B, v4(1), &drep.emit(asked));
    assert_eq!(pair.last(B, b), Some(CmEvent::Disconnected { conn: b, cause: Cause::Stale }));
}

/// The answer that a peer gives who knows the connection counts before that of one who answers
/// any DREQ.
#[test]
fn after_an_rtu_no_answer_to_the_probe_counts() {
    let (mut pair, a, b) = Pair::established();
    let mut forger = cm(1, GUIDS[A], 100);
    forger.connect(pair.now, &pair.params(QPN_A)).unwrap();
    let req = forger.poll_transmit(pair.now).unwrap();
    pair.inject(B, v4(1), &req.mad);
    let asked = pair.sent(Kind::Dreq)[0].transaction();
    pair.exchange();
    let drep = DrepRepr { local_id: a.comm_id(), remote_id: b.comm_id(), private_data: [0; 224] };
    for transaction in [asked, 0] {
        pair.inject(B, v4(1), &drep.emit(transaction));
    }
    assert_eq!(pair.events_of(B, b).len(), 2);
    assert_eq!(pair.nodes[B].cm.counters().unexpected, 2);
}

#[test]
fn a_peer_that_is_gone_is_found_out_by_the_side_that_was_asked() {
    let (mut pair, _, b) = Pair::established();
    let mut forger = cm(1, GUIDS[A], 100);
    forger.connect(pair.now, &pair.params(QPN_A)).unwrap();
    let req = forger.poll_transmit(pair.now).unwrap();
    pair.link(|_| Fate::Lose);
    pair.inject(B, v4(1), &req.mad);
    pair.exhaust();
    assert_eq!(pair.last(B, b), Some(CmEvent::Disconnected { conn: b, cause: Cause::Stale }));
    assert_eq!(pair.sent(Kind::Rep).len(), 1 + 16);
}

/// A request is the peer's own, so another one ends it no more than a connection.
#[test]
fn a_request_that_waits_is_found_stale() {
    let mut pair = Pair::new();
    pair.nodes[B].consumer = Consumer::Silent;
    pair.connect(QPN_A);
    pair.exchange();
    let b = pair.request().conn;
    let new = reboot_and_reconnect(&mut pair);
    pair.exchange();
    assert_eq!(pair.events_of(B, b).len(), 1);
    assert_eq!(pair.nodes[B].cm.counters().stale, 1);
    assert_eq!((pair.events_of(A, new), pair.sent(Kind::Rej).len()), (vec![], 1));
    // The answer shows that the peer has lost it, and the next try succeeds.
    pair.nodes[B].cm.accept(pair.now, b, &Pair::accept_params()).unwrap();
    pair.exchange();
    let reason = Reason::INVALID_COMM_ID;
    assert_eq!(pair.last(B, b), Some(CmEvent::Rejected { conn: b, reason }));
    pair.nodes[B].consumer = Consumer::Willing;
    pair.run(REPEATED);
    assert!(pair.nodes[A].ready.contains(&new));
}

#[test]
fn a_request_nobody_has_seen_yet_stays_when_another_comes() {
    let mut pair = Pair::new();
    let now = pair.now;
    pair.connect(QPN_A);
    let first = pair.nodes[A].cm.poll_transmit(now).unwrap();
    reboot_and_reconnect(&mut pair);
    let second = pair.nodes[A].cm.poll_transmit(now).unwrap();
    let node = &mut pair.nodes[B].cm;
    node.input(now, v4(1), &first.mad);
    node.input(now, v4(1), &second.mad);
    assert!(matches!(node.poll_event(), Some(CmEvent::Request(_))));
    assert_eq!((node.poll_event(), node.counters().stale), (None, 1));
}

#[test]
fn an_accepted_request_is_found_stale() {
    let mut pair = Pair::new();
    pair.lose(Kind::Rep, 1);
    pair.connect(QPN_A);
    pair.exchange();
    let b = pair.request().conn;
    let first = pair.sent(Kind::Req).first().map(Sent::transaction);
    let new = reboot_and_reconnect(&mut pair);
    pair.exchange();
    assert_eq!((pair.events_of(B, b).len(), pair.nodes[B].cm.counters().stale), (1, 1));
    // The REP is repeated, the peer that was started anew does not know it, and its request passes.
    pair.run(Duration::from_secs(6));
    let reason = Reason::INVALID_COMM_ID;
    assert_eq!(pair.last(B, b), Some(CmEvent::Rejected { conn: b, reason }));
    assert_eq!(
        pair.sent(Kind::Rep).iter().filter(|sent| Some(sent.transaction()) == first).count(),
        2
    );
    assert!(pair.nodes[A].ready.contains(&new));
}

/// Requests that look stale put no deadline off.
#[test]
fn stale_requests_make_no_wait_longer() {
    let mut pair = Pair::new();
    pair.lose(Kind::Rtu, 1000);
    pair.connect(QPN_A);
    pair.exchange();
    let b = pair.request().conn;
    pair.link(|_| Fate::Lose);
    for n in 0..200 {
        let mut forger = cm(1, GUIDS[A], 100 + n);
        forger.connect(pair.now, &pair.params(QPN_A)).unwrap();
        let req = forger.poll_transmit(pair.now).unwrap();
        pair.inject(B, v4(1), &req.mad);
        pair.run(Duration::from_secs(1));
    }
    assert_eq!(pair.last(B, b), Some(CmEvent::Unreachable { conn: b }));
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

/// Both sides have left; the answer to this side's DREQ was lost.
#[test]
fn a_reply_of_the_same_queue_pair_ends_a_disconnect_under_way() {
    // With one slot, B has one queue pair.
    let mut pair = Pair::with(8, 1, [v4(1), v4(2)]);
    let a = pair.connect(QPN_A);
    pair.exchange();
    pair.lose(Kind::Drep, 1);
    pair.nodes[A].cm.disconnect(pair.now, a).unwrap();
    pair.turn();
    let new = pair.connect(QPN_A);
    pair.exchange();
    assert_eq!(pair.nodes[A].ready.last(), Some(&new));
    assert_eq!(pair.nodes[A].cm.counters().stale, 0);
    assert_eq!(pair.last(A, a), Some(CmEvent::Disconnected { conn: a, cause: Cause::Local }));
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
    let mut pair = Pair::new();
    let a = pair.connect(QPN_A);
    let mut req = pair.nodes[A].cm.poll_transmit(pair.now).unwrap().mad;
    // What it asks later begins elsewhere.
    let mut first = Req::new_unchecked(&mut req);
    let begins = first.starting_psn() ^ 1;
    first.set_starting_psn(begins);
    pair.inject(B, v4(1), &req);
    pair.exchange();
    pair.nodes[A].cm.disconnect(pair.now, a).unwrap();
    pair.exchange();
    // The same seed gives the same ID.
    pair.nodes[A].cm = cm(8, GUIDS[A], 0x5eed);
    pair.nodes[A].ready.clear();
    assert_eq!(pair.connect(QPN_A), a);
    pair.exchange();
    assert_eq!(pair.nodes[A].ready, [a]);
    assert_eq!(pair.sent(Kind::Rej).len(), 0);
}
