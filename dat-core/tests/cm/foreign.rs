//! Datagrams from the wrong place, with the wrong names, or of no sense.

use core::net::IpAddr;

use dat_core::cm::wire::{DreqRepr, Message, RejRepr, Req, RtuRepr};
use dat_core::cm::{CmEvent, ConnId, Reason};
use proptest::prelude::*;

use crate::pair::*;

/// Every message of a whole connection, for replay.
fn past(reject: bool) -> Vec<Sent> {
    let mut pair = Pair::new();
    if reject {
        pair.nodes[B].consumer = Consumer::Unwilling(Reason::CONSUMER);
    }
    let a = pair.connect(QPN_A);
    pair.exchange();
    if !reject {
        pair.nodes[A].cm.disconnect(pair.now, a).unwrap();
        pair.exchange();
    }
    pair.log
}

#[test]
fn from_another_address_nothing_counts() {
    // The seeds are the same, so the recorded messages would fit exactly.
    let all: Vec<_> = past(false).into_iter().chain(past(true)).collect();
    let mut pair = Pair::new();
    pair.nodes[A].consumer = Consumer::Silent;
    pair.nodes[B].consumer = Consumer::Silent;
    let spoof = |pair: &mut Pair| {
        let (log, events) = (pair.log.len(), [A, B].map(|who| pair.nodes[who].events.len()));
        for sent in &all {
            pair.inject(1 - sent.by, v4(66), &sent.mad);
        }
        assert_eq!([A, B].map(|who| pair.nodes[who].events.len()), events);
        // All answers went to the spoofing address, not to the peer.
        let new: Vec<_> = pair.kinds()[log..].to_vec();
        assert!(new.iter().all(|kind| matches!(kind, Kind::Rej | Kind::Drep)), "{new:?}");
    };
    let a = pair.connect(QPN_A);
    pair.turn();
    spoof(&mut pair);
    pair.exchange();
    spoof(&mut pair);
    let b = pair.request().conn;
    pair.nodes[B].cm.accept(pair.now, b, &Pair::accept_params()).unwrap();
    pair.turn();
    spoof(&mut pair);
    pair.exchange();
    spoof(&mut pair);
    pair.nodes[A].cm.ready(pair.now, a).unwrap();
    pair.exchange();
    spoof(&mut pair);
    pair.nodes[A].cm.disconnect(pair.now, a).unwrap();
    pair.turn();
    spoof(&mut pair);
    pair.exchange();
    spoof(&mut pair);
    assert!(pair.nodes[A].cm.counters().foreign > 20);
    assert!(matches!(pair.last(A, a), Some(CmEvent::Disconnected { .. })));
    assert!(matches!(pair.last(B, b), Some(CmEvent::Disconnected { .. })));
}

#[test]
fn a_req_must_come_from_the_address_it_names() {
    let mut pair = Pair::new();
    pair.connect(QPN_A);
    let req = pair.nodes[A].cm.poll_transmit(pair.now).unwrap();
    pair.inject(B, v4(66), &req.mad);
    assert_eq!(pair.nodes[B].events.len(), 0);
    let Message::Rej(rej) = pair.log[0].message() else { panic!() };
    assert_eq!(rej.reason, Reason::INVALID_GID);
    assert_eq!(pair.nodes[B].cm.counters().foreign, 1);
}

#[test]
fn a_wrong_peer_id_is_foreign() {
    let (mut pair, a, b) = Pair::established();
    let wrong = a.comm_id() ^ 1;
    let remote_id = b.comm_id();
    pair.inject(B, v4(1), &RtuRepr { local_id: wrong, remote_id, private_data: [0; 224] }.emit(0));
    let dreq = DreqRepr { local_id: wrong, remote_id, remote_qpn: QPN_B, private_data: [0; 220] };
    pair.inject(B, v4(1), &dreq.emit(0));
    assert_eq!((pair.events_of(B, b).len(), pair.log.len()), (2, 3));
    let counters = pair.nodes[B].cm.counters();
    assert_eq!((counters.foreign, counters.wrong_id), (2, 2));
}

#[test]
fn the_id_of_an_earlier_connection_in_the_slot_is_unknown() {
    let (mut pair, a, old) = Pair::established();
    pair.nodes[A].cm.disconnect(pair.now, a).unwrap();
    pair.exhaust();
    let a = pair.connect(QPN_A);
    pair.exchange();
    let Some(CmEvent::Established { conn: b }) = pair.nodes[B].events.last().copied() else {
        panic!()
    };
    assert_eq!(ConnId::index(b), ConnId::index(old));
    let stale = old.comm_id();
    let dreq = DreqRepr {
        local_id: a.comm_id(),
        remote_id: stale,
        remote_qpn: QPN_B,
        private_data: [0; 220],
    };
    pair.inject(B, v4(1), &dreq.emit(0));
    assert_eq!(pair.events_of(B, b).len(), 2);
    assert_eq!(pair.nodes[B].cm.counters().unknown, 1);
}

#[test]
fn refused_reqs_are_answered_with_their_reason() {
    type Change = fn(&mut Req<&mut [u8; 256]>);
    let spoil: [(Change, Reason); 5] = [
        (|req| req.set_transport(1), Reason::INVALID_TRANSPORT),
        (|req| req.set_mtu(9), Reason::INVALID_MTU),
        (|req| req.set_qpn(0), Reason::NO_QP),
        (|req| req.set_local_gid(1), Reason::INVALID_GID),
        // The IP CM header claims a version that does not exist.
        (|req| req.set_private_data(&[0xff; 92]), Reason::UNSUPPORTED),
    ];
    for (change, reason) in spoil {
        let mut pair = Pair::new();
        let a = pair.connect(QPN_A);
        let mut req = pair.nodes[A].cm.poll_transmit(pair.now).unwrap().mad;
        change(&mut Req::new_unchecked(&mut req));
        pair.inject(B, v4(1), &req);
        pair.exchange();
        assert_eq!(pair.events_of(A, a), [CmEvent::Rejected { conn: a, reason }]);
        assert_eq!(pair.nodes[B].cm.counters().malformed, 1);
        assert_eq!(pair.nodes[B].events, []);
    }
}

#[test]
fn nonsense_is_counted_and_nothing_else() {
    let mut pair = Pair::new();
    pair.inject(B, v4(1), &[0; 256]);
    pair.inject(B, v4(1), &[0xff; 256]);
    let mut lap = RtuRepr { local_id: 1, remote_id: 2, private_data: [0; 224] }.emit(0);
    lap[17] = 0x19;
    pair.inject(B, v4(1), &lap);
    let counters = pair.nodes[B].cm.counters();
    assert_eq!((counters.received, counters.malformed, counters.sent), (3, 3, 0));
    pair.no_leaks(8);
}

#[test]
fn a_rej_for_timeout_needs_the_right_guid_and_address() {
    let mut pair = Pair::new();
    pair.nodes[B].consumer = Consumer::Silent;
    let a = pair.connect(QPN_A);
    pair.exchange();
    pair.lose(Kind::Rej, 1);
    pair.nodes[A].cm.abort(pair.now, a);
    pair.turn();
    let b = pair.request().conn;
    let Message::Rej(good) = pair.sent(Kind::Rej)[0].message() else { panic!() };
    let transaction = pair.sent(Kind::Req)[0].transaction();
    assert_eq!(pair.sent(Kind::Rej)[0].transaction(), transaction);
    let ari = dat_core::cm::Ari::new(&7_u64.to_be_bytes()).unwrap();
    pair.inject(B, v4(1), &RejRepr { ari, ..good }.emit(transaction));
    pair.inject(B, v4(66), &good.emit(transaction));
    pair.inject(B, v4(1), &RejRepr { local_id: 9, ..good }.emit(transaction));
    for bit in 0..64 {
        pair.inject(B, v4(1), &good.emit(transaction ^ 1 << bit));
    }
    assert_eq!(pair.events_of(B, b).len(), 1);
    pair.inject(B, v4(1), &good.emit(transaction));
    assert_eq!(pair.last(B, b), Some(CmEvent::Rejected { conn: b, reason: Reason::TIMEOUT }));
}

#[test]
fn a_peers_times_are_cut() {
    for (claimed, low, high) in [(31, 8, 9), (0, 0, 1)] {
        let mut pair = Pair::new();
        pair.connect(QPN_A);
        let mut req = pair.nodes[A].cm.poll_transmit(pair.now).unwrap().mad;
        Req::new_unchecked(&mut req).set_local_response_timeout(claimed);
        pair.lose(Kind::Rep, 1000);
        pair.inject(B, v4(1), &req);
        pair.run(core::time::Duration::from_secs(9));
        let sent = pair.sent(Kind::Rep);
        let gap = (sent[1].at - sent[0].at).as_secs();
        assert!((low..high).contains(&gap), "{gap}");
        // Even the shortest leaves a millisecond between two.
        assert!((sent[1].at - sent[0].at).as_micros() >= 1000);
        assert!(sent.len() <= 16);
    }
}

/// Bytes near a message that fits the connection of [`Pair::established`].
fn near() -> impl Strategy<Value = (bool, [u8; 256])> {
    let changes = proptest::collection::vec((0_usize..256, any::<u8>()), 0..6);
    (any::<prop::sample::Index>(), changes).prop_map(|(which, changes)| {
        let all: Vec<_> = past(false).into_iter().chain(past(true)).collect();
        let sent = which.get(&all);
        let mut mad = sent.mad;
        for (at, value) in changes {
            mad[at] = value;
        }
        (sent.by == A, mad)
    })
}

proptest! {
    #[test]
    fn no_bytes_break_anything(
        storm in proptest::collection::vec((near(), 0_u8..3, 0_u64..20_000), 1..30),
    ) {
        let (mut pair, ..) = Pair::established();
        for ((from_a, mad), last, pause) in storm {
            let from: IpAddr = v4(last);
            pair.inject(if from_a { B } else { A }, from, &mad);
            pair.run(core::time::Duration::from_millis(pause));
        }
        pair.exhaust();
        // Each connection got at most one end, and nothing after it.
        for who in [A, B] {
            for event in &pair.nodes[who].events {
                let events = pair.events_of(who, event.conn());
                let end = |event: &CmEvent| matches!(event,
                    CmEvent::Rejected { .. } | CmEvent::Unreachable { .. } | CmEvent::Disconnected { .. });
                let first = events.iter().position(end).unwrap_or(events.len());
                prop_assert!(first + 1 >= events.len(), "{:?}", events);
            }
        }
    }
}

#[test]
fn another_host_with_a_peers_guid_and_queue_pair_does_not_block_it() {
    let mut pair = Pair::new();
    let mut params = pair.params(QPN_A);
    params.local = v4(66);
    let mut spoofer = cm(1, GUIDS[A], 5);
    spoofer.connect(pair.now, &params).unwrap();
    let req = spoofer.poll_transmit(pair.now).unwrap();
    pair.inject(B, v4(66), &req.mad);
    let a = pair.connect(QPN_A);
    pair.exchange();
    assert_eq!(pair.nodes[A].ready, [a]);
}
