//! The table: full, empty, used again.

use core::time::Duration;

use dat_core::Instant;
use dat_core::cm::wire::{DreqRepr, Message};
use dat_core::cm::{CmError, CmEvent, Reason};
use dat_core::provider::{Class, NextHop, Path};

use crate::pair::*;

#[test]
fn a_full_table_rejects_requests_without_a_trace() {
    let mut pair = Pair::with(4, 1, [v4(1), v4(2)]);
    let first = pair.connect(QPN_A);
    pair.exchange();
    let second = pair.connect(QPN_A + 1);
    pair.exchange();
    let reason = Reason::NO_RESOURCES;
    assert_eq!(pair.events_of(A, second), [CmEvent::Rejected { conn: second, reason }]);
    assert_eq!(pair.nodes[B].cm.counters().no_slot, 1);
    assert_eq!(pair.nodes[B].events.len(), 2);
    // When the first is over, its slot is given away even before its timewait is.
    pair.nodes[A].cm.disconnect(pair.now, first).unwrap();
    pair.exchange();
    assert_eq!(pair.nodes[B].cm.vacant_slots(), 0);
    let third = pair.connect(QPN_A + 2);
    pair.exchange();
    assert_eq!(pair.nodes[A].ready.last(), Some(&third));
}

#[test]
fn a_full_table_refuses_to_connect() {
    let mut pair = Pair::with(1, 1, [v4(1), v4(2)]);
    pair.connect(QPN_A);
    let params = pair.params(QPN_A + 1);
    assert_eq!(pair.nodes[A].cm.connect(pair.now, &params), Err(CmError::NoSlot));
    let mut none = cm(0, 1, 1);
    assert_eq!(none.connect(Instant::ZERO, &params), Err(CmError::NoSlot));
    assert_eq!((none.poll_event(), none.next_deadline()), (None, None));
    none.advance(Instant::from_nanos(u64::MAX - 1));
}

#[test]
fn a_slot_whose_end_was_not_taken_is_not_given_away() {
    let mut pair = Pair::with(2, 1, [v4(1), v4(2)]);
    let a = pair.connect(QPN_A);
    pair.exchange();
    pair.nodes[A].cm.disconnect(pair.now, a).unwrap();
    let dreq = pair.nodes[A].cm.poll_transmit(pair.now).unwrap();
    let (now, params) = (pair.now, pair.params(QPN_A));
    let node = &mut pair.nodes[B].cm;
    node.input(now, v4(1), &dreq.mad);
    assert_eq!(node.connect(now, &params), Err(CmError::NoSlot));
    assert!(node.poll_transmit(now).is_some());
    assert_eq!(node.connect(now, &params), Err(CmError::NoSlot));
    assert!(node.poll_event().is_some());
    assert!(node.connect(now, &params).is_ok());
}

#[test]
fn of_several_in_timewait_the_oldest_gives_way() {
    let mut pair = Pair::with(2, 8, [v4(1), v4(2)]);
    let both = [pair.connect(QPN_A), pair.connect(QPN_A + 1)];
    pair.exchange();
    for conn in [both[1], both[0]] {
        pair.nodes[A].cm.disconnect(pair.now, conn).unwrap();
        pair.exchange();
    }
    let next = pair.connect(QPN_A + 2);
    assert_eq!(next.index(), both[1].index());
}

#[test]
fn ids_of_a_slot_do_not_come_back_soon() {
    let mut cm = cm(1, 1, 1);
    let params = Pair::new().params(QPN_A);
    let mut seen = vec![];
    for _ in 0..64 {
        let conn = cm.connect(Instant::ZERO, &params).unwrap();
        assert_eq!(conn.index(), 0);
        assert!(!seen.contains(&conn));
        seen.push(conn);
        cm.abort(Instant::ZERO, conn);
        while cm.poll_transmit(Instant::ZERO).is_some() {}
    }
}

#[test]
fn an_old_id_names_nothing_of_the_new_connection() {
    let mut pair = Pair::with(1, 4, [v4(1), v4(2)]);
    let old = pair.connect(QPN_A);
    pair.exchange();
    pair.nodes[A].cm.disconnect(pair.now, old).unwrap();
    pair.exchange();
    let new = pair.connect(QPN_A + 1);
    pair.exchange();
    assert_eq!(new.index(), old.index());
    let (now, cm) = (pair.now, &mut pair.nodes[A].cm);
    assert_eq!(cm.disconnect(now, old), Err(CmError::Unknown(old)));
    assert_eq!((cm.private_data(old).len(), cm.private_data(new).len()), (0, 196));
    assert_eq!(cm.starting_psn(old), None);
    cm.abort(now, old);
    pair.exhaust();
    assert_eq!(pair.events_of(A, new).len(), 1);
    // The new one has not been ended behind its user's back.
    assert_eq!(pair.sent(Kind::Dreq).len(), 1);
    assert_eq!(pair.nodes[A].cm.disconnect(pair.now, new), Ok(()));
}

#[test]
fn private_data_that_is_kept_outlives_its_connection_and_keeps_its_slot() {
    let mut pair = Pair::with(2, 2, [v4(1), v4(2)]);
    let a = pair.connect(QPN_A);
    pair.exchange();
    pair.nodes[A].cm.keep(a);
    pair.nodes[A].cm.disconnect(pair.now, a).unwrap();
    pair.exchange();
    // In timewait, and long after it.
    for _ in 0..2 {
        let other = pair.connect(QPN_A + 1);
        pair.exchange();
        assert_ne!(other.index(), a.index());
        let data = pair.nodes[A].cm.private_data(a);
        assert!(data.starts_with(b"welcome\0"));
        pair.nodes[A].cm.disconnect(pair.now, other).unwrap();
        pair.exhaust();
        assert_eq!(pair.nodes[A].cm.vacant_slots(), 1);
    }
    pair.nodes[A].cm.release(a);
    assert_eq!(pair.nodes[A].cm.vacant_slots(), 2);
}

#[test]
fn a_request_that_is_prepared_waits_for_its_way() {
    let mut pair = Pair::with(1, 1, [v4(1), v4(2)]);
    let (now, params) = (pair.now, pair.params(QPN_A));
    let way = Path {
        remote: v4(2),
        next_hop: NextHop::Mac([2, 0, 0, 0, 0, 2]),
        source_index: 0,
        hop_limit: 9,
        class: Class { traffic_class: 3, priority: 1 },
        flow_label: 0x12345,
    };
    let cm = &mut pair.nodes[A].cm;
    // Given up before anything was sent: the peer gets no message.
    let given_up = cm.prepare(now, &params).unwrap();
    assert_eq!((cm.next_deadline(), cm.vacant_slots()), (None, 0));
    assert_eq!(cm.prepare(now, &params), Err(CmError::NoSlot));
    cm.abort(now, given_up);
    assert!(cm.poll_transmit(now).is_none());
    assert_eq!(cm.vacant_slots(), 1);
    cm.send_prepared_request(now, given_up, &way);
    assert!(cm.poll_transmit(now).is_none());

    let conn = cm.prepare(now, &params).unwrap();
    cm.advance(now + Duration::from_secs(1000));
    assert!(cm.poll_transmit(now).is_none());
    cm.send_prepared_request(now, conn, &way);
    let sent = cm.poll_transmit(now).unwrap();
    let Ok((_, Message::Req(req))) = Message::parse(&sent.mad) else {
        panic!("a REQ");
    };
    assert_eq!((req.flow_label, req.hop_limit), (0x12345, 9));
    // The connection's, not the path's.
    assert_eq!(Class { traffic_class: req.traffic_class, priority: req.sl }, CLASS);
    // It is on its way: another call sends nothing more.
    cm.send_prepared_request(now, conn, &way);
    assert!(cm.poll_transmit(now).is_none());
    assert!(cm.next_deadline().is_some());
}

#[test]
fn thousands_of_connections_in_one_slot() {
    let mut pair = Pair::with(1, 1, [v4(1), v4(2)]);
    for _ in 0..1000 {
        let conn = pair.connect(QPN_A);
        pair.run(Duration::from_millis(5));
        pair.nodes[A].cm.disconnect(pair.now, conn).unwrap();
        pair.run(Duration::from_millis(5));
    }
    assert_eq!(pair.nodes[A].ready.len(), 1000);
    assert_eq!(pair.log.len(), 5000);
}

#[test]
fn answers_to_unknown_peers_are_bounded() {
    let mut cm = cm(1, 1, 1);
    for local_id in 0..100 {
        let dreq = DreqRepr { local_id, remote_id: 9, remote_qpn: 9, private_data: [0; 220] };
        cm.input(Instant::ZERO, v4(1), &dreq.emit(0));
    }
    assert_eq!(cm.counters().answers_dropped, 68);
    let answers = core::iter::from_fn(|| cm.poll_transmit(Instant::ZERO));
    let ids: Vec<_> = answers
        .map(|answer| match Message::parse(&answer.mad).unwrap().1 {
            Message::Drep(drep) => drep.remote_id,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(ids, (0..32).collect::<Vec<_>>());
}

/// However fast they come, messages of connections that do not exist get few answers; later ones
/// get some again.
#[test]
fn answers_to_messages_of_no_connection_have_a_rate() {
    let mut cm = cm(1, 1, 1);
    let mut answered = [0; 3];
    for (turn, answered) in answered.iter_mut().enumerate() {
        // Two turns in the first tenth of a second, then one in the next.
        let now = Instant::from_nanos([0, 99, 100][turn] * 1_000_000);
        for local_id in 0..200 {
            let dreq = DreqRepr { local_id, remote_id: 9, remote_qpn: 9, private_data: [0; 220] };
            cm.input(now, v4(1), &dreq.emit(0));
            *answered += u32::from(cm.poll_transmit(now).is_some());
        }
    }
    assert_eq!(answered, [64, 0, 64]);
    assert_eq!(cm.counters().answers_dropped, 600 - 128);
}

/// Nothing is kept of a request that the caller does not want; each is answered, and a new one of
/// the same peer may be wanted.
#[test]
fn a_request_that_is_not_wanted_takes_no_slot() {
    let mut pair = Pair::with(1, 1, [v4(1), v4(2)]);
    pair.connect(QPN_A);
    let now = pair.now;
    let req = pair.nodes[A].cm.poll_transmit(now).unwrap();
    let cm = &mut pair.nodes[B].cm;
    for reason in [Reason::INVALID_SERVICE_ID, Reason::INVALID_MTU, Reason::NO_RESOURCES] {
        let asked = std::cell::Cell::new(None);
        cm.input_if(now, v4(1), &req.mad, &|service, mtu| {
            asked.set(Some((service, mtu)));
            Err(reason)
        });
        let Message::Req(sent) = Message::parse(&req.mad).unwrap().1 else { unreachable!() };
        assert_eq!(asked.get(), Some((sent.service, sent.mtu)));
        let answer = cm.poll_transmit(now).unwrap();
        let Message::Rej(rej) = Message::parse(&answer.mad).unwrap().1 else { unreachable!() };
        assert_eq!((rej.remote_id, rej.reason), (sent.local_id, reason));
        assert_eq!((cm.poll_event(), cm.next_deadline(), cm.vacant_slots()), (None, None, 1));
    }
    cm.input_if(now, v4(1), &req.mad, &|_, _| Ok(()));
    assert!(matches!(cm.poll_event(), Some(CmEvent::Request(_))));
    // Now it is a connection, whose request may come again.
    cm.input_if(now, v4(1), &req.mad, &|_, _| Err(Reason::NO_RESOURCES));
    let answer = cm.poll_transmit(now).unwrap();
    assert!(matches!(Message::parse(&answer.mad).unwrap().1, Message::Mra(_)));
}

#[test]
fn every_slot_gets_its_turn() {
    let mut cm = cm(4, 1, 1);
    let params = Pair::new().params(QPN_A);
    let all: Vec<_> = (0..4).map(|_| cm.connect(Instant::ZERO, &params).unwrap()).collect();
    let sent: Vec<_> = core::iter::from_fn(|| cm.poll_transmit(Instant::ZERO)?.conn).collect();
    assert_eq!(sent, all);
}

#[test]
fn a_slot_that_always_has_something_to_send_does_not_hold_up_the_others() {
    let mut cm = cm(4, 1, 1);
    let params = Pair::new().params(QPN_A);
    let all: Vec<_> = (0..4).map(|_| cm.connect(Instant::ZERO, &params).unwrap()).collect();
    assert_eq!(cm.poll_transmit(Instant::ZERO).unwrap().conn, Some(all[0]));
    cm.abort(Instant::ZERO, all[0]);
    assert_eq!(cm.poll_transmit(Instant::ZERO).unwrap().conn, Some(all[1]));
}

#[test]
fn the_deadline_is_the_earliest() {
    let mut cm = cm(4, 1, 1);
    let params = Pair::new().params(QPN_A);
    assert_eq!(cm.next_deadline(), None);
    let interval = dat_core::cm::Config::new(0).request_interval();
    for second in [3, 1, 2] {
        let now = Instant::ZERO + Duration::from_secs(second);
        cm.connect(now, &params).unwrap();
        while cm.poll_transmit(now).is_some() {}
    }
    assert_eq!(cm.next_deadline(), Some(Instant::ZERO + Duration::from_secs(1) + interval));
    cm.advance(Instant::ZERO + Duration::from_secs(1) + interval);
    assert_eq!(cm.next_deadline(), Some(Instant::ZERO + Duration::from_secs(2) + interval));
}
