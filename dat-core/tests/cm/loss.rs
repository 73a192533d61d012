//! Lost messages, and peers that never answer.

use core::time::Duration;

use dat_core::cm::{Cause, CmEvent, Reason, code_time};

use crate::pair::*;

const RESPONSE: Duration = code_time(20);

fn request_interval() -> Duration {
    dat_core::cm::Config::new(0).request_interval()
}

/// Loses the first `count` of `what` and expects the connection to come up all the same; returns
/// the pair.
fn survives(what: Kind, count: usize) -> Pair {
    let mut pair = Pair::new();
    pair.lose(what, count);
    let a = pair.connect(QPN_A);
    pair.exhaust();
    let b = pair.request().conn;
    assert_eq!(pair.nodes[A].ready, [a]);
    assert_eq!(pair.events_of(A, a).len(), 1);
    assert_eq!(pair.events_of(B, b)[1..], [CmEvent::Established { conn: b }]);
    pair
}

#[test]
fn a_lost_req_is_sent_again_unchanged() {
    let pair = survives(Kind::Req, 1);
    let sent = pair.sent(Kind::Req);
    assert_eq!(sent.len(), 2);
    assert_eq!(sent[0].mad, sent[1].mad);
    assert_eq!(sent[1].at - sent[0].at, request_interval());
    assert_eq!(pair.nodes[A].cm.counters().retransmitted, 1);
}

#[test]
fn a_lost_rep_is_sent_again_unchanged() {
    let pair = survives(Kind::Rep, 1);
    let sent = pair.sent(Kind::Rep);
    assert_eq!(sent.len(), 2);
    assert_eq!(sent[0].mad, sent[1].mad);
    // All sixteen fit in the longest time of a half-open connection.
    assert_eq!(sent[1].at - sent[0].at, RESPONSE / 4);
}

#[test]
fn a_lost_rtu_is_repeated_for_the_repeated_rep() {
    let pair = survives(Kind::Rtu, 1);
    assert_eq!(pair.kinds(), [Kind::Req, Kind::Rep, Kind::Rtu, Kind::Rep, Kind::Rtu]);
}

#[test]
fn any_number_of_losses_below_the_retries_is_survived() {
    for what in [Kind::Req, Kind::Rep, Kind::Rtu] {
        for count in [2, 7, 14, 15] {
            survives(what, count);
        }
    }
}

#[test]
fn no_answer_to_any_req_is_unreachable() {
    let mut pair = Pair::new();
    pair.lose(Kind::Req, 1000);
    let a = pair.connect(QPN_A);
    pair.run(request_interval() * 16 - Duration::from_millis(1));
    assert_eq!((pair.sent(Kind::Req).len(), pair.events_of(A, a).len()), (16, 0));
    pair.run(Duration::from_millis(2));
    assert_eq!(pair.events_of(A, a), [CmEvent::Unreachable { conn: a }]);
    pair.exhaust();
    assert_eq!((pair.sent(Kind::Req).len(), pair.sent(Kind::Rej).len()), (16, 1));
    pair.no_leaks(8);
}

#[test]
fn giving_up_is_sent_to_a_peer_that_answers_too_late() {
    let mut pair = Pair::new();
    pair.nodes[B].consumer = Consumer::Silent;
    // Every MRA gets lost too, so B seems dead.
    pair.lose(Kind::Mra, 1000);
    let a = pair.connect(QPN_A);
    pair.exhaust();
    let b = pair.request().conn;
    assert_eq!(pair.last(A, a), Some(CmEvent::Unreachable { conn: a }));
    assert_eq!(pair.last(B, b), Some(CmEvent::Rejected { conn: b, reason: Reason::TIMEOUT }));
    pair.no_leaks(8);
}

#[test]
fn no_rep_gets_through() {
    let mut pair = Pair::new();
    pair.lose(Kind::Rep, 1000);
    let a = pair.connect(QPN_A);
    pair.exhaust();
    let b = pair.request().conn;
    assert_eq!(pair.sent(Kind::Rep).len(), 16);
    assert_eq!(pair.last(B, b), Some(CmEvent::Unreachable { conn: b }));
    assert_eq!(pair.events_of(A, a), [CmEvent::Rejected { conn: a, reason: Reason::TIMEOUT }]);
    pair.no_leaks(8);
}

#[test]
fn no_rtu_gets_through() {
    let mut pair = Pair::new();
    pair.lose(Kind::Rtu, 1000);
    let a = pair.connect(QPN_A);
    pair.exhaust();
    let b = pair.request().conn;
    assert_eq!(pair.last(B, b), Some(CmEvent::Unreachable { conn: b }));
    let cause = Cause::Rejected(Reason::TIMEOUT);
    assert_eq!(pair.last(A, a), Some(CmEvent::Disconnected { conn: a, cause }));
    pair.no_leaks(8);
}

#[test]
fn a_lost_dreq_is_sent_again() {
    let (mut pair, a, b) = Pair::established();
    pair.lose(Kind::Dreq, 1);
    pair.nodes[A].cm.disconnect(pair.now, a).unwrap();
    pair.exhaust();
    let sent = pair.sent(Kind::Dreq);
    assert_eq!(sent.len(), 2);
    assert_eq!(sent[0].mad, sent[1].mad);
    assert_eq!(pair.last(A, a), Some(CmEvent::Disconnected { conn: a, cause: Cause::Local }));
    assert_eq!(pair.last(B, b), Some(CmEvent::Disconnected { conn: b, cause: Cause::Remote }));
    pair.no_leaks(8);
}

#[test]
fn a_lost_drep_is_repeated_even_when_the_connection_is_forgotten() {
    for lost in 1..16 {
        let (mut pair, a, b) = Pair::established();
        pair.lose(Kind::Drep, lost);
        pair.nodes[A].cm.disconnect(pair.now, a).unwrap();
        pair.exhaust();
        assert_eq!(pair.sent(Kind::Drep).len(), lost + 1);
        assert_eq!(pair.last(A, a), Some(CmEvent::Disconnected { conn: a, cause: Cause::Local }));
        assert_eq!(pair.events_of(B, b).len(), 3);
        pair.no_leaks(8);
    }
}

#[test]
fn a_peer_that_never_answers_a_dreq_is_let_go() {
    let (mut pair, a, b) = Pair::established();
    pair.lose(Kind::Dreq, 16);
    pair.nodes[A].cm.disconnect(pair.now, a).unwrap();
    pair.exhaust();
    assert_eq!(pair.sent(Kind::Dreq).len(), 16);
    assert_eq!(pair.last(A, a), Some(CmEvent::Disconnected { conn: a, cause: Cause::Unanswered }));
    assert_eq!(pair.nodes[A].cm.vacant_slots(), 8);
    // B knows nothing yet. When it ends the connection itself, the unknown ID is answered.
    assert_eq!(pair.events_of(B, b).len(), 2);
    pair.nodes[B].cm.disconnect(pair.now, b).unwrap();
    pair.exchange();
    assert_eq!(pair.last(B, b), Some(CmEvent::Disconnected { conn: b, cause: Cause::Local }));
}

#[test]
fn a_dreq_stands_for_the_lost_rtu() {
    let mut pair = Pair::new();
    pair.lose(Kind::Rtu, 1);
    let a = pair.connect(QPN_A);
    pair.exchange();
    let b = pair.request().conn;
    assert_eq!(pair.events_of(B, b).len(), 1);
    pair.nodes[A].cm.disconnect(pair.now, a).unwrap();
    pair.exchange();
    let end = CmEvent::Disconnected { conn: b, cause: Cause::Remote };
    assert_eq!(pair.events_of(B, b)[1..], [CmEvent::Established { conn: b }, end]);
    assert_eq!(pair.last(A, a), Some(CmEvent::Disconnected { conn: a, cause: Cause::Local }));
}

#[test]
fn a_lost_rej_is_repeated_without_asking_the_consumer_again() {
    let mut pair = Pair::new();
    pair.nodes[B].consumer = Consumer::Unwilling(Reason::CONSUMER);
    pair.lose(Kind::Rej, 3);
    let a = pair.connect(QPN_A);
    pair.exhaust();
    assert_eq!(pair.nodes[B].events.len(), 1);
    assert_eq!(pair.sent(Kind::Rej).len(), 4);
    assert_eq!(pair.events_of(A, a), [CmEvent::Rejected { conn: a, reason: Reason::CONSUMER }]);
    pair.no_leaks(8);
}

#[test]
fn a_lost_rej_of_a_rep_is_repeated() {
    let mut pair = Pair::new();
    pair.nodes[A].consumer = Consumer::Silent;
    pair.lose(Kind::Rej, 1);
    let a = pair.connect(QPN_A);
    pair.exchange();
    pair.nodes[A].cm.reject(pair.now, a, Reason::CONSUMER, &[], b"no").unwrap();
    pair.exhaust();
    let b = pair.request().conn;
    assert_eq!(pair.last(B, b), Some(CmEvent::Rejected { conn: b, reason: Reason::CONSUMER }));
    assert_eq!(pair.sent(Kind::Rep).len(), 2);
    pair.no_leaks(8);
}

#[test]
fn a_peer_that_reboots_leaves_no_half_connection() {
    // A dies after its REQ: B's REP meets a node that knows nothing.
    let mut pair = Pair::new();
    pair.nodes[B].consumer = Consumer::Silent;
    pair.connect(QPN_A);
    pair.exchange();
    pair.nodes[A].cm = cm(8, GUIDS[A], 99);
    let b = pair.request().conn;
    pair.nodes[B].cm.accept(pair.now, b, &Pair::accept_params()).unwrap();
    pair.exchange();
    let reason = Reason::INVALID_COMM_ID;
    assert_eq!(pair.last(B, b), Some(CmEvent::Rejected { conn: b, reason }));
}

#[test]
fn an_rtu_for_a_connection_that_is_gone_is_refused() {
    let mut pair = Pair::new();
    pair.link(|sent| {
        if sent.kind() == Kind::Rtu { Fate::Late(Duration::from_millis(20)) } else { Fate::Deliver }
    });
    let a = pair.connect(QPN_A);
    pair.run(Duration::from_millis(10));
    pair.nodes[B].cm = cm(8, GUIDS[B], 99);
    pair.exchange();
    let cause = Cause::Rejected(Reason::INVALID_COMM_ID);
    assert_eq!(pair.last(A, a), Some(CmEvent::Disconnected { conn: a, cause }));
}

#[test]
fn reordered_retransmissions_do_no_harm() {
    // Every first copy arrives after the second has done its work.
    for what in [Kind::Req, Kind::Rep, Kind::Rtu] {
        let mut pair = Pair::new();
        let mut first = true;
        pair.link(move |sent| {
            if sent.kind() == what && core::mem::take(&mut first) {
                Fate::Late(Duration::from_secs(7))
            } else {
                Fate::Deliver
            }
        });
        let a = pair.connect(QPN_A);
        pair.exhaust();
        let b = pair.request().conn;
        assert_eq!((pair.events_of(A, a).len(), pair.events_of(B, b).len()), (1, 2), "{what:?}");
    }
}

#[test]
fn a_timer_counts_from_when_the_message_left() {
    let mut pair = Pair::new();
    pair.lose(Kind::Req, 1);
    pair.connect(QPN_A);
    // The caller resolves the peer's address for three seconds before it takes the datagram.
    pair.now = pair.now + Duration::from_secs(3);
    pair.exhaust();
    let sent = pair.sent(Kind::Req);
    assert_eq!(sent[1].at - sent[0].at, request_interval());
}

#[test]
fn a_clock_that_jumps_costs_one_retry_at_a_time() {
    let mut pair = Pair::new();
    pair.lose(Kind::Req, 1000);
    let a = pair.connect(QPN_A);
    pair.turn();
    pair.now = pair.now + Duration::from_secs(3600);
    pair.nodes[A].cm.advance(pair.now);
    pair.turn();
    assert_eq!((pair.sent(Kind::Req).len(), pair.events_of(A, a).len()), (2, 0));
}
