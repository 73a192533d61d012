//! The end of established connections.

use core::time::Duration;

use dat_core::cm::wire::{DrepRepr, DreqRepr, Message};
use dat_core::cm::{Cause, CmError, CmEvent, ConnId, code_time};

use crate::pair::*;

fn end(conn: ConnId, cause: Cause) -> Option<CmEvent> {
    Some(CmEvent::Disconnected { conn, cause })
}

#[test]
fn the_active_side_ends_it() {
    let (mut pair, a, b) = Pair::established();
    pair.nodes[A].cm.disconnect(pair.now, a).unwrap();
    pair.exchange();
    assert_eq!(pair.kinds()[3..], [Kind::Dreq, Kind::Drep]);
    assert_eq!((pair.last(A, a), pair.last(B, b)), (end(a, Cause::Local), end(b, Cause::Remote)));
}

#[test]
fn the_passive_side_ends_it() {
    let (mut pair, a, b) = Pair::established();
    pair.nodes[B].cm.disconnect(pair.now, b).unwrap();
    pair.exchange();
    assert_eq!(pair.kinds()[3..], [Kind::Dreq, Kind::Drep]);
    assert_eq!((pair.last(A, a), pair.last(B, b)), (end(a, Cause::Remote), end(b, Cause::Local)));
}

#[test]
fn both_end_it_at_once() {
    let (mut pair, a, b) = Pair::established();
    pair.nodes[A].cm.disconnect(pair.now, a).unwrap();
    pair.nodes[B].cm.disconnect(pair.now, b).unwrap();
    pair.exhaust();
    assert_eq!((pair.sent(Kind::Dreq).len(), pair.sent(Kind::Drep).len()), (2, 2));
    assert_eq!((pair.last(A, a), pair.last(B, b)), (end(a, Cause::Remote), end(b, Cause::Remote)));
    assert_eq!((pair.events_of(A, a).len(), pair.events_of(B, b).len()), (2, 3));
    pair.no_leaks(8);
}

#[test]
fn both_end_it_at_once_and_each_message_gets_lost() {
    for what in [Kind::Dreq, Kind::Drep] {
        for lost in 1..=2 {
            let (mut pair, a, b) = Pair::established();
            pair.lose(what, lost);
            pair.nodes[A].cm.disconnect(pair.now, a).unwrap();
            pair.nodes[B].cm.disconnect(pair.now, b).unwrap();
            pair.exhaust();
            assert_eq!(
                (pair.events_of(A, a).len(), pair.events_of(B, b).len()),
                (2, 3),
                "{what:?} {lost}"
            );
            pair.no_leaks(8);
        }
    }
}

#[test]
fn a_dreq_carries_the_receivers_queue_pair_and_a_transaction_of_its_own() {
    let (mut pair, a, b) = Pair::established();
    pair.nodes[A].cm.disconnect(pair.now, a).unwrap();
    pair.exchange();
    let (transaction, Message::Dreq(dreq)) = Message::parse(&pair.log[3].mad).unwrap() else {
        panic!()
    };
    assert_eq!((dreq.local_id, dreq.remote_id), (a.comm_id(), b.comm_id()));
    assert_eq!(dreq.remote_qpn, pair.reply().terms.remote_qpn);
    assert_ne!(transaction, Message::parse(&pair.log[0].mad).unwrap().0);
    let (echoed, Message::Drep(drep)) = Message::parse(&pair.log[4].mad).unwrap() else { panic!() };
    assert_eq!((echoed, drep.local_id, drep.remote_id), (transaction, b.comm_id(), a.comm_id()));
}

#[test]
fn disconnecting_twice_is_once() {
    let (mut pair, a, b) = Pair::established();
    pair.nodes[A].cm.disconnect(pair.now, a).unwrap();
    pair.nodes[A].cm.disconnect(pair.now, a).unwrap();
    pair.exchange();
    assert_eq!(pair.sent(Kind::Dreq).len(), 1);
    assert_eq!(pair.events_of(B, b).len(), 3);
    assert_eq!(pair.nodes[A].cm.disconnect(pair.now, a), Err(CmError::Unknown(a)));
}

#[test]
fn disconnecting_while_the_end_waits_to_be_taken_is_no_error() {
    let (mut pair, a, b) = Pair::established();
    pair.nodes[A].cm.disconnect(pair.now, a).unwrap();
    let dreq = pair.nodes[A].cm.poll_transmit(pair.now).unwrap();
    let node = &mut pair.nodes[B];
    node.cm.input(pair.now, v4(1), &dreq.mad);
    assert_eq!(node.cm.disconnect(pair.now, b), Ok(()));
    assert_eq!(node.cm.poll_event(), end(b, Cause::Remote));
    assert_eq!(node.cm.disconnect(pair.now, b), Err(CmError::Unknown(b)));
}

#[test]
fn after_the_end_the_id_is_void() {
    let (mut pair, a, _) = Pair::established();
    pair.nodes[A].cm.disconnect(pair.now, a).unwrap();
    pair.exchange();
    let (now, cm) = (pair.now, &mut pair.nodes[A].cm);
    assert_eq!(cm.ready(now, a), Err(CmError::Unknown(a)));
    assert_eq!(cm.accept(now, a, &Pair::accept_params()), Err(CmError::Unknown(a)));
    assert_eq!(cm.starting_psn(a), None);
    cm.abort(now, a);
    cm.data_arrived(now, a);
    pair.exhaust();
    assert_eq!(pair.log.len(), 5);
}

#[test]
fn a_dreq_in_timewait_is_answered_again() {
    let (mut pair, a, b) = Pair::established();
    pair.nodes[A].cm.disconnect(pair.now, a).unwrap();
    pair.exchange();
    let dreq = pair.sent(Kind::Dreq)[0].mad;
    pair.inject(B, v4(1), &dreq);
    assert_eq!(pair.sent(Kind::Drep).len(), 2);
    assert_eq!(pair.events_of(B, b).len(), 3);
    assert_eq!(pair.sent(Kind::Drep)[0].mad, pair.sent(Kind::Drep)[1].mad);
}

#[test]
fn a_dreq_for_nobody_is_answered_from_itself() {
    let mut pair = Pair::new();
    let dreq = DreqRepr { local_id: 5, remote_id: 6, remote_qpn: 7, private_data: [1; 220] };
    pair.inject(B, v4(1), &dreq.emit(0xabcd));
    let answer = DrepRepr { local_id: 6, remote_id: 5, private_data: [0; 224] };
    assert_eq!(pair.log[0].mad, answer.emit(0xabcd));
    assert_eq!(pair.nodes[B].cm.counters().unknown, 1);
    pair.no_leaks(8);
}

#[test]
fn a_dreq_for_another_queue_pair_is_ignored() {
    let (mut pair, a, b) = Pair::established();
    let (local_id, remote_id) = (a.comm_id(), b.comm_id());
    let dreq = DreqRepr { local_id, remote_id, remote_qpn: 0x999, private_data: [0; 220] };
    pair.inject(B, v4(1), &dreq.emit(1));
    assert_eq!((pair.log.len(), pair.events_of(B, b).len()), (3, 2));
    assert_eq!(pair.nodes[B].cm.counters().foreign, 1);
}

#[test]
fn a_drep_that_nobody_waits_for_is_dropped() {
    let (mut pair, a, b) = Pair::established();
    let drep = DrepRepr { local_id: a.comm_id(), remote_id: b.comm_id(), private_data: [0; 224] };
    pair.inject(B, v4(1), &drep.emit(1));
    assert_eq!((pair.events_of(B, b).len(), pair.nodes[B].cm.counters().unexpected), (2, 1));
    let drep = DrepRepr { remote_id: 1, ..drep };
    pair.inject(B, v4(1), &drep.emit(1));
    assert_eq!((pair.log.len(), pair.nodes[B].cm.counters().unknown), (3, 1));
}

#[test]
fn a_peer_that_disconnects_before_our_queue_pair_is_ready() {
    // B took a packet for the RTU and disconnects at once; A has not called `ready` yet.
    let mut pair = Pair::new();
    pair.nodes[A].consumer = Consumer::Silent;
    let a = pair.connect(QPN_A);
    pair.exchange();
    let b = pair.request().conn;
    pair.nodes[B].cm.data_arrived(pair.now, b);
    pair.nodes[B].cm.disconnect(pair.now, b).unwrap();
    pair.exchange();
    assert_eq!((pair.last(A, a), pair.last(B, b)), (end(a, Cause::Remote), end(b, Cause::Local)));
    assert_eq!(pair.nodes[A].cm.ready(pair.now, a), Err(CmError::Unknown(a)));
}

#[test]
fn abort_of_an_established_connection_is_kept_up_in_silence() {
    let (mut pair, a, b) = Pair::established();
    pair.lose(Kind::Dreq, 2);
    pair.nodes[A].cm.abort(pair.now, a);
    pair.exhaust();
    assert_eq!(pair.sent(Kind::Dreq).len(), 3);
    assert_eq!((pair.events_of(A, a).len(), pair.last(B, b)), (1, end(b, Cause::Remote)));
    pair.no_leaks(8);
}

#[test]
fn timewait_lasts_as_long_as_the_queue_pair_may_retry() {
    let (mut pair, a, _) = Pair::established();
    pair.nodes[A].cm.disconnect(pair.now, a).unwrap();
    pair.run(Duration::from_millis(10));
    // ACK timeout 17 on both sides: 537 ms.
    pair.run(code_time(17) - Duration::from_millis(11));
    assert_eq!((pair.nodes[A].cm.vacant_slots(), pair.nodes[B].cm.vacant_slots()), (7, 7));
    pair.run(Duration::from_millis(20));
    pair.no_leaks(8);
}

#[test]
fn events_wait_in_order_until_they_are_taken() {
    let mut pair = Pair::new();
    pair.lose(Kind::Rtu, 1);
    let a = pair.connect(QPN_A);
    pair.exchange();
    let b = pair.request().conn;
    // B's caller sleeps while the RTU and the DREQ arrive.
    let rtu = pair.sent(Kind::Rtu)[0].mad;
    pair.nodes[A].cm.disconnect(pair.now, a).unwrap();
    let dreq = pair.nodes[A].cm.poll_transmit(pair.now).unwrap().mad;
    let node = &mut pair.nodes[B].cm;
    node.input(pair.now, v4(1), &rtu);
    node.input(pair.now, v4(1), &dreq);
    assert_eq!(node.poll_event(), Some(CmEvent::Established { conn: b }));
    assert_eq!(node.poll_event(), end(b, Cause::Remote));
    assert_eq!(node.poll_event(), None);
}

/// Linux answers a DREQ in timewait with the transaction of the REQ.
#[test]
fn a_drep_with_the_transaction_of_the_req_is_an_answer() {
    let (mut pair, a, b) = Pair::established();
    pair.lose(Kind::Drep, 1000);
    pair.nodes[A].cm.disconnect(pair.now, a).unwrap();
    pair.exchange();
    let drep = DrepRepr { local_id: b.comm_id(), remote_id: a.comm_id(), private_data: [0; 224] };
    let transaction = pair.sent(Kind::Req)[0].transaction();
    pair.inject(A, v4(2), &drep.emit(transaction ^ 1));
    assert_eq!(pair.events_of(A, a).len(), 1);
    assert_eq!(pair.nodes[A].cm.counters().wrong_transaction, 1);
    pair.inject(A, v4(2), &drep.emit(transaction));
    assert_eq!(pair.last(A, a), end(a, Cause::Local));
}
