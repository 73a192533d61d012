//! Connections of one Endpoint, with resets between them: a break belongs to the connection in
//! which it happens, and has a cause.

use core::time::Duration;

use dat_core::cm::QpTerms;
use dat_core::provider::{Class, Mtu};
use dat_core::{DtoStatus, EpState, Event, MemPriv, RmrTriplet};

use super::super::{A, Adapters, B, End, LIMIT, Mem, NONE, Side};

/// Connects both ends without a connection manager, and drives neither.
fn join(ias: &mut Adapters<'_, impl Side>, ends: &[End; 2]) {
    for end in ends {
        let far = &ends[1 - end.side];
        let qp = ias[far.side].ep_query(far.ep).unwrap().qp.unwrap();
        let terms = QpTerms {
            remote_qpn: qp.number,
            rq_psn: 7,
            sq_psn: 7,
            mtu: Mtu::B1024,
            responder_resources: 1,
            initiator_depth: 1,
            ack_timeout: 14,
            retry_count: 7,
            rnr_retry: 7,
            class: Class::default(),
        };
        let (now, to) = (ias.now(), ias[far.side].address());
        ias[end.side].ep_connect_direct(now, end.ep, to, &terms, LIMIT).unwrap();
    }
    for end in ends {
        let event = ias.event(end.side, end.conn);
        assert_eq!(event, Event::Established(end.ep));
    }
}

/// A write that the peer has to refuse.
fn trespass(ias: &mut Adapters<'_, impl Side>, end: &End, from: &Mem) {
    let nowhere = RmrTriplet { addr: 0x1000, len: 8, context: 0xffff_ff00 };
    ias[end.side].ep_post_rdma_write(end.ep, &[from.seg(0, 8)], 2, &nowhere, NONE).unwrap();
}

/// The Endpoint is reset and connected by hand with nothing driven in between, again and again;
/// each break is reported.
pub fn a_break_right_after_a_reset_is_reported(ias: &mut Adapters<'_, impl Side>) {
    let ends = [ias.end(A), ias.end(B)];
    let mem = ias.mem(A, ends[A].pz, 64, MemPriv::ALL);
    for _ in 0..3 {
        join(ias, &ends);
        trespass(ias, &ends[A], &mem);
        assert_eq!(ias.dto(A, ends[A].request).status, DtoStatus::ErrRemoteAccess);
        for end in &ends {
            ias.broken(end.side, end.conn, end.ep);
            assert_eq!(ias.state(end), EpState::Disconnected);
            ias[end.side].ep_reset(end.ep).unwrap();
        }
    }
}

/// The same of an Endpoint that accepts: the peer, driven alone once this side has answered, breaks
/// the connection before this side looks up again.
pub fn a_break_right_after_an_accept_is_reported(ias: &mut Adapters<'_, impl Side>) {
    let [client, server] = ias.connected();
    let mem = ias.mem(A, client.pz, 64, MemPriv::ALL);
    trespass(ias, &client, &mem);
    ias.dto(A, client.request);
    for end in [&client, &server] {
        ias.broken(end.side, end.conn, end.ep);
    }
    ias.a.ep_reset(client.ep).unwrap();
    let point = ias.listen(B);
    ias.ask(&client, point.qualifier, LIMIT, b"");
    let cr = ias.request(&point);
    ias.b.ep_reset(server.ep).unwrap();
    let now = ias.now();
    ias.b.cr_accept(now, cr, Some(server.ep), b"").unwrap();
    ias.b.ia.advance(now);
    let end = ias.now() + LIMIT;
    let mut asked = false;
    loop {
        let now = ias.now();
        assert!(now < end, "the peer alone did not get that far");
        ias.a.ia.advance(now);
        ias.a.side.pass(Duration::from_micros(5));
        if !asked && ias.look(A, client.conn).is_some() {
            asked = true;
            trespass(ias, &client, &mem);
        }
        if asked && ias.look(A, client.request).is_some() {
            break;
        }
    }
    // It was connected when it broke, or not yet.
    let first = ias.event(B, server.conn);
    match first {
        Event::Established(_) => ias.broken(B, server.conn, server.ep),
        Event::AcceptCompletionError(_) => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(ias.state(&server), EpState::Disconnected);
}

/// Until the reset, `ep_cause` describes why a connection broke: it names the queue pair, what
/// failed and what to do.
pub fn the_cause_of_a_break_is_described_in_words(ias: &mut Adapters<'_, impl Side>) {
    let ends = ias.connected();
    let mem = ias.mem(A, ends[A].pz, 64, MemPriv::ALL);
    for end in &ends {
        assert_eq!(ias[end.side].ep_cause(end.ep).unwrap(), None);
    }
    trespass(ias, &ends[A], &mem);
    ias.dto(A, ends[A].request);
    for end in &ends {
        ias.broken(end.side, end.conn, end.ep);
    }
    let words = [0, 1].map(|side| {
        let cause = ias[side].ep_cause(ends[side].ep).unwrap();
        cause.map_or_else(String::new, |cause| cause.to_string())
    });
    let qp = ias.a.ep_query(ends[A].ep).unwrap().qp.unwrap();
    for part in [
        format!("QP {:#x}", qp.number),
        "a request".into(),
        "the peer refused access to its memory".into(),
        "ep_reset".into(),
    ] {
        assert!(words[A].contains(&part), "{part}: {}", words[A]);
    }
    // The other side has the device's word, or the peer's first.
    let peer_first = ias.hurried && words[B].is_empty();
    assert!(peer_first || words[B].contains("QP"), "{}", words[B]);
    for end in &ends {
        ias[end.side].ep_reset(end.ep).unwrap();
        assert_eq!(ias[end.side].ep_cause(end.ep).unwrap(), None);
    }
}
