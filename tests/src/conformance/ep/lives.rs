//! One life of an Endpoint after another: what breaks it is of the life it happens in, and says
//! why.

use core::time::Duration;

use dat_core::cm::QpTerms;
use dat_core::provider::Mtu;
use dat_core::{DtoStatus, EpState, Event, MemPriv, RmrTriplet};

use super::super::{A, B, Bed, End, LIMIT, Mem, NONE, Side};

/// Connects both ends without a connection manager, and drives neither.
fn join(bed: &mut Bed<'_, impl Side>, ends: &[End; 2]) {
    for end in ends {
        let far = &ends[1 - end.side];
        let qp = bed[far.side].ep_query(far.ep).unwrap().qp.unwrap();
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
        };
        let (now, to) = (bed.now(), bed[far.side].address());
        bed[end.side].ep_connect_direct(now, end.ep, to, &terms, LIMIT).unwrap();
    }
    for end in ends {
        let event = bed.event(end.side, end.conn);
        assert_eq!(event, Event::Established(end.ep));
    }
}

/// A write that the peer has to refuse.
fn trespass(bed: &mut Bed<'_, impl Side>, end: &End, from: &Mem) {
    let nowhere = RmrTriplet { addr: 0x1000, len: 8, context: 0xffff_ff00 };
    bed[end.side].ep_post_rdma_write(end.ep, &[from.seg(0, 8)], 2, &nowhere, NONE).unwrap();
}

/// The Endpoint is reset and connected by hand with nothing driven in between, again and again;
/// each break is heard.
pub fn a_break_right_after_a_reset_is_heard(bed: &mut Bed<'_, impl Side>) {
    let ends = [bed.end(A), bed.end(B)];
    let mem = bed.mem(A, ends[A].pz, 64, MemPriv::ALL);
    for _ in 0..3 {
        join(bed, &ends);
        trespass(bed, &ends[A], &mem);
        assert_eq!(bed.dto(A, ends[A].request).status, DtoStatus::ErrRemoteAccess);
        for end in &ends {
            bed.broken(end.side, end.conn, end.ep);
            assert_eq!(bed.state(end), EpState::Disconnected);
            bed[end.side].ep_reset(end.ep).unwrap();
        }
    }
}

/// The same of an Endpoint that accepts: the peer, driven alone, breaks the connection before this
/// side looks up again.
pub fn a_break_right_after_an_accept_is_heard(bed: &mut Bed<'_, impl Side>) {
    let [client, server] = bed.connected();
    let mem = bed.mem(A, client.pz, 64, MemPriv::ALL);
    trespass(bed, &client, &mem);
    bed.dto(A, client.request);
    for end in [&client, &server] {
        bed.broken(end.side, end.conn, end.ep);
    }
    bed.a.ep_reset(client.ep).unwrap();
    let point = bed.listen(B);
    bed.ask(&client, point.qualifier, LIMIT, b"");
    let cr = bed.request(&point);
    bed.b.ep_reset(server.ep).unwrap();
    let now = bed.now();
    bed.b.cr_accept(now, cr, Some(server.ep), b"").unwrap();
    let end = bed.now() + LIMIT;
    let mut asked = false;
    loop {
        let now = bed.now();
        assert!(now < end, "the peer alone did not get that far");
        bed.a.ia.advance(now);
        bed.a.side.pass(Duration::from_micros(5));
        if !asked && bed.look(A, client.conn).is_some() {
            asked = true;
            trespass(bed, &client, &mem);
        }
        if asked && bed.look(A, client.request).is_some() {
            break;
        }
    }
    // It was connected when it broke, or not yet.
    let first = bed.event(B, server.conn);
    match first {
        Event::Established(_) => bed.broken(B, server.conn, server.ep),
        Event::AcceptCompletionError(_) => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(bed.state(&server), EpState::Disconnected);
}

/// Why a connection broke can be asked, in words that name the queue pair, what failed and what to
/// do; until the reset.
pub fn the_cause_of_a_break_is_told_in_words(bed: &mut Bed<'_, impl Side>) {
    let ends = bed.connected();
    let mem = bed.mem(A, ends[A].pz, 64, MemPriv::ALL);
    for end in &ends {
        assert_eq!(bed[end.side].ep_cause(end.ep).unwrap(), None);
    }
    trespass(bed, &ends[A], &mem);
    bed.dto(A, ends[A].request);
    for end in &ends {
        bed.broken(end.side, end.conn, end.ep);
    }
    let words = [0, 1].map(|side| {
        let cause = bed[side].ep_cause(ends[side].ep).unwrap();
        cause.map_or_else(String::new, |cause| cause.to_string())
    });
    let qp = bed.a.ep_query(ends[A].ep).unwrap().qp.unwrap();
    for part in [
        format!("QP {:#x}", qp.number),
        "a request".into(),
        "the peer refused access to its memory".into(),
        "ep_reset".into(),
    ] {
        assert!(words[A].contains(&part), "{part}: {}", words[A]);
    }
    // The other side has the device's word, or the peer's first.
    let peer_first = bed.hurried && words[B].is_empty();
    assert!(peer_first || words[B].contains("QP"), "{}", words[B]);
    for end in &ends {
        bed[end.side].ep_reset(end.ep).unwrap();
        assert_eq!(bed[end.side].ep_cause(end.ep).unwrap(), None);
    }
}
