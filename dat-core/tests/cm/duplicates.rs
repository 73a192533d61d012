//! Every message again, in every state.

use core::time::Duration;

use dat_core::cm::wire::DreqRepr;
use dat_core::cm::{Cause, CmEvent, ConnId, Reason};

use crate::pair::*;

/// A connection from request to end in steps, each ended by the test; `between` is called after
/// each.
fn exchanges(between: impl Fn(&mut Pair)) -> (Pair, ConnId, ConnId) {
    let mut pair = Pair::new();
    pair.nodes[A].consumer = Consumer::Silent;
    pair.nodes[B].consumer = Consumer::Silent;
    let a = pair.connect(QPN_A);
    pair.exchange();
    between(&mut pair);
    let b = pair.request().conn;
    pair.nodes[B].cm.accept(pair.now, b, &Pair::accept_params()).unwrap();
    pair.exchange();
    between(&mut pair);
    pair.nodes[A].cm.ready(pair.now, a).unwrap();
    pair.exchange();
    between(&mut pair);
    pair.nodes[A].cm.disconnect(pair.now, a).unwrap();
    pair.exchange();
    between(&mut pair);
    (pair, a, b)
}

fn whole_exchange(pair: &Pair, a: ConnId, b: ConnId) {
    assert!(matches!(
        pair.events_of(A, a)[..],
        [CmEvent::Reply(_), CmEvent::Disconnected { cause: Cause::Local, .. }]
    ));
    assert!(matches!(
        pair.events_of(B, b)[..],
        [
            CmEvent::Request(_),
            CmEvent::Established { .. },
            CmEvent::Disconnected { cause: Cause::Remote, .. }
        ]
    ));
    assert_eq!((pair.nodes[A].events.len(), pair.nodes[B].events.len()), (2, 3));
}

fn replay(pair: &mut Pair, which: impl Fn(Kind) -> bool) {
    let past: Vec<_> = pair.log.iter().filter(|sent| which(sent.kind())).copied().collect();
    for sent in past {
        let from = pair.nodes[sent.by].address;
        pair.inject(1 - sent.by, from, &sent.mad);
    }
    pair.exchange();
}

#[test]
fn each_kind_again_in_every_later_state() {
    for what in [Kind::Req, Kind::Rep, Kind::Rtu, Kind::Dreq, Kind::Drep] {
        let (pair, a, b) = exchanges(|pair| replay(pair, |kind| kind == what));
        whole_exchange(&pair, a, b);
    }
}

#[test]
fn all_that_was_ever_said_again_in_every_state() {
    let (mut pair, a, b) = exchanges(|pair| {
        replay(pair, |_| true);
        replay(pair, |_| true);
    });
    whole_exchange(&pair, a, b);
    pair.exhaust();
    pair.no_leaks(8);
}

#[test]
fn a_link_that_delivers_everything_twice() {
    for later in [0, 1, 5_000, 20_000] {
        let mut pair = Pair::new();
        pair.link(move |_| Fate::Twice(Duration::from_millis(later)));
        let a = pair.connect(QPN_A);
        pair.run(Duration::from_millis(50));
        pair.nodes[A].cm.disconnect(pair.now, a).unwrap();
        // Within timewait nothing old is taken for new.
        pair.run(Duration::from_millis(400));
        let b = pair.request().conn;
        whole_exchange(&pair, a, b);
    }
}

/// Kinds sent in answer when `which` is replayed in the state after `steps` steps.
fn answers(steps: usize, which: Kind) -> Vec<Kind> {
    let seen = core::cell::RefCell::new((0, vec![]));
    exchanges(|pair| {
        let mut seen = seen.borrow_mut();
        seen.0 += 1;
        if seen.0 == steps {
            let before = pair.log.len();
            replay(pair, |kind| kind == which);
            seen.1 = pair.kinds()[before..].to_vec();
        }
    });
    seen.into_inner().1
}

#[test]
fn a_req_again_while_the_consumer_thinks_is_answered_by_an_mra() {
    assert_eq!(answers(1, Kind::Req), [Kind::Mra]);
}

#[test]
fn a_req_again_after_the_rep_is_left_to_the_reps_timer() {
    assert_eq!(answers(2, Kind::Req), []);
    assert_eq!(answers(3, Kind::Req), []);
}

#[test]
fn a_req_again_in_timewait_is_stale() {
    assert_eq!(answers(4, Kind::Req), [Kind::Rej]);
}

#[test]
fn a_rep_again_while_the_queue_pair_comes_up_is_answered_by_an_mra() {
    assert_eq!(answers(2, Kind::Rep), [Kind::Mra]);
}

#[test]
fn a_rep_again_when_established_gets_the_rtu_again() {
    assert_eq!(answers(3, Kind::Rep), [Kind::Rtu]);
}

#[test]
fn a_rep_again_in_timewait_gets_nothing() {
    assert_eq!(answers(4, Kind::Rep), []);
}

#[test]
fn an_rtu_again_gets_nothing() {
    assert_eq!(answers(3, Kind::Rtu), []);
    assert_eq!(answers(4, Kind::Rtu), []);
}

#[test]
fn a_dreq_again_gets_a_drep_and_a_drep_nothing() {
    assert_eq!(answers(4, Kind::Dreq), [Kind::Drep]);
    assert_eq!(answers(4, Kind::Drep), []);
}

#[test]
fn duplicates_are_counted() {
    let (pair, ..) = exchanges(|pair| replay(pair, |kind| kind == Kind::Req));
    assert_eq!(pair.nodes[B].cm.counters().duplicates, 4);
}

#[test]
fn a_rep_that_is_rejected_again_counts_once() {
    let mut pair = Pair::new();
    pair.nodes[A].consumer = Consumer::Silent;
    let a = pair.connect(QPN_A);
    pair.exchange();
    pair.nodes[A].cm.reject(pair.now, a, Reason::CONSUMER, &[], b"").unwrap();
    pair.exchange();
    replay(&mut pair, |kind| kind == Kind::Rep);
    assert_eq!(pair.nodes[A].cm.counters().duplicates, 1);
    assert_eq!(pair.sent(Kind::Rej).len(), 2);
}

#[test]
fn every_message_that_leaves_is_counted_once() {
    let (mut pair, ..) = Pair::established();
    let sent = |pair: &Pair| [A, B].map(|who| pair.nodes[who].cm.counters().sent);
    assert_eq!(sent(&pair), [2, 1]);
    // The answer to a message of no connection counts as well.
    let unknown = DreqRepr { local_id: 7, remote_id: 9, remote_qpn: QPN_B, private_data: [0; 220] };
    pair.inject(B, v4(1), &unknown.emit(1));
    assert_eq!(pair.sent(Kind::Drep).len(), 1);
    assert_eq!(sent(&pair), [2, 2]);
}

/// A REQ that is due again when the REP comes is not sent any more.
#[test]
fn a_reply_takes_back_the_request_that_is_due_again() {
    let mut pair = Pair::new();
    pair.nodes[A].consumer = Consumer::Silent;
    let a = pair.connect(QPN_A);
    pair.lose(Kind::Rep, 1);
    pair.exchange();
    let rep = pair.sent(Kind::Rep)[0].mad;
    let cm = &mut pair.nodes[A].cm;
    let due = cm.next_deadline().unwrap();
    cm.advance(due);
    cm.input(due, v4(2), &rep);
    assert_eq!(cm.poll_transmit(due), None);
    assert!(matches!(cm.poll_event(), Some(CmEvent::Reply(reply)) if reply.conn == a));
}
