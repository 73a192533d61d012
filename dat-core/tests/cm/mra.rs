//! Slow consumers, and the MRA that asks for patience.

use core::time::Duration;

use dat_core::cm::wire::{About, Message, MraRepr};
use dat_core::cm::{CmEvent, Reason, code_time};

use crate::pair::*;

#[test]
fn a_slow_accept_is_waited_for() {
    let mut pair = Pair::new();
    pair.nodes[B].consumer = Consumer::Silent;
    let a = pair.connect(QPN_A);
    pair.run(Duration::from_secs(40));
    // One retransmission; its MRA bought more than a minute.
    assert_eq!(pair.kinds(), [Kind::Req, Kind::Req, Kind::Mra]);
    let Message::Mra(mra) = pair.log[2].message() else { panic!() };
    assert_eq!((mra.about, mra.service_timeout, mra.remote_id), (About::Req, 24, a.comm_id()));
    let b = pair.request().conn;
    pair.nodes[B].cm.accept(pair.now, b, &Pair::accept_params()).unwrap();
    pair.exchange();
    assert_eq!(pair.nodes[A].ready, [a]);
    assert_eq!(pair.last(B, b), Some(CmEvent::Established { conn: b }));
}

#[test]
fn a_slow_queue_pair_is_waited_for() {
    let mut pair = Pair::new();
    pair.nodes[A].consumer = Consumer::Silent;
    let a = pair.connect(QPN_A);
    pair.run(Duration::from_secs(40));
    assert_eq!(pair.kinds(), [Kind::Req, Kind::Rep, Kind::Rep, Kind::Mra]);
    let Message::Mra(mra) = pair.log[3].message() else { panic!() };
    assert_eq!(mra.about, About::Rep);
    pair.nodes[A].cm.ready(pair.now, a).unwrap();
    pair.exchange();
    let b = pair.request().conn;
    assert_eq!(pair.last(B, b), Some(CmEvent::Established { conn: b }));
}

#[test]
fn patience_has_an_end() {
    let mut pair = Pair::new();
    pair.nodes[B].consumer = Consumer::Silent;
    let a = pair.connect(QPN_A);
    let span = code_time(24) + dat_core::cm::Config::new(0).request_interval() * 17;
    pair.run(span + Duration::from_secs(1));
    assert_eq!(pair.last(A, a), Some(CmEvent::Unreachable { conn: a }));
    let b = pair.request().conn;
    assert_eq!(pair.last(B, b), Some(CmEvent::Rejected { conn: b, reason: Reason::TIMEOUT }));
    pair.exhaust();
    pair.no_leaks(8);
}

/// An answer to the REQ of A.
fn mra(pair: &Pair, about: About, service_timeout: u8) -> [u8; 256] {
    let req = pair.sent(Kind::Req)[0];
    let Message::Req(asked) = req.message() else { panic!() };
    let (local_id, remote_id) = (77, asked.local_id);
    MraRepr { local_id, remote_id, about, service_timeout, private_data: [0; 222] }
        .emit(req.transaction())
}

#[test]
fn no_more_time_is_granted_than_the_configuration_says() {
    let mut pair = Pair::new();
    pair.lose(Kind::Req, 1000);
    pair.connect(QPN_A);
    pair.turn();
    let mra = mra(&pair, About::Req, 31);
    pair.inject(A, v4(2), &mra);
    pair.run(code_time(24) + Duration::from_secs(5));
    assert_eq!(pair.sent(Kind::Req).len(), 2);
}

#[test]
fn only_the_first_mra_counts() {
    let mut pair = Pair::new();
    pair.lose(Kind::Req, 1000);
    let a = pair.connect(QPN_A);
    pair.turn();
    for _ in 0..40 {
        pair.run(Duration::from_secs(10));
        let mra = mra(&pair, About::Req, 24);
        pair.inject(A, v4(2), &mra);
    }
    assert_eq!(pair.last(A, a), Some(CmEvent::Unreachable { conn: a }));
}

#[test]
fn an_mra_of_another_message_is_ignored() {
    let mut pair = Pair::new();
    pair.lose(Kind::Req, 1);
    let a = pair.connect(QPN_A);
    pair.turn();
    for about in [About::Rep, About::Other] {
        let mra = mra(&pair, about, 24);
        pair.inject(A, v4(2), &mra);
    }
    assert_eq!(pair.nodes[A].cm.counters().unexpected, 2);
    pair.run(Duration::from_secs(6));
    assert_eq!(pair.nodes[A].ready, [a]);
}

#[test]
fn an_mra_that_the_rep_overtook_is_ignored() {
    let (mut pair, a, _) = Pair::established();
    let before = pair.log.len();
    let Message::Rep(rep) = pair.log[1].message() else { panic!() };
    let late = MraRepr {
        local_id: rep.local_id,
        remote_id: a.comm_id(),
        about: About::Req,
        service_timeout: 24,
        private_data: [0; 222],
    };
    pair.inject(A, v4(2), &late.emit(0));
    pair.exhaust();
    assert_eq!((pair.log.len(), pair.events_of(A, a).len()), (before, 1));
}

#[test]
fn after_an_mra_a_rej_names_the_passive_id() {
    let mut pair = Pair::new();
    pair.nodes[B].consumer = Consumer::Silent;
    let a = pair.connect(QPN_A);
    pair.run(Duration::from_secs(10));
    let b = pair.request().conn;
    pair.nodes[B].cm.reject(pair.now, b, Reason::CONSUMER, &[], &[]).unwrap();
    pair.exchange();
    let Message::Rej(rej) = pair.sent(Kind::Rej)[0].message() else { panic!() };
    assert_eq!((rej.local_id, rej.remote_id), (b.comm_id(), a.comm_id()));
    assert_eq!(pair.last(A, a), Some(CmEvent::Rejected { conn: a, reason: Reason::CONSUMER }));
}
