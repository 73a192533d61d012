//! What may be changed, and when.

use dat_core::{
    CloseFlag, CompletionFlags, DatSubtype, DatType, DtoOperation, DtoStatus, EpModify, EpState,
    EvdFlags, Event, MemPriv,
};

use super::super::{A, B, Bed, End, LIMIT, NONE, Side, refused};
use super::{next_request, reserve};

/// An Endpoint that is not connected takes other attributes.
pub fn attributes_change_before_the_connection(bed: &mut Bed<'_, impl Side>) {
    let end = bed.end(A);
    let mut attr = bed.a.ep_attr_default();
    attr.max_recv_dtos = 5;
    attr.max_message_size = 100;
    let change = EpModify { attr: Some(attr), ..EpModify::default() };
    bed.a.ep_modify(end.ep, &change).unwrap();
    assert_eq!(bed.a.ep_query(end.ep).unwrap().attr, attr);
    let mem = bed.mem(A, end.pz, 200, MemPriv::ALL);
    bed.a.ep_post_recv(end.ep, &[mem.seg(0, 150)], 1, NONE).unwrap();
    let peer = bed.end(B);
    bed.connect(&end, &peer);
    let long = bed.a.ep_post_send(end.ep, &[mem.seg(0, 101)], 2, NONE);
    refused(long, DatType::LengthError, DatSubtype::None);
    // What it sends is short; what it receives is as long as its receives.
    let source = bed.mem(B, peer.pz, 200, MemPriv::ALL);
    bed.send(&peer, &source, 0, 150, 3);
    let dto = bed.dto(A, end.recv);
    assert_eq!((dto.cookie, dto.status, dto.len), (1, DtoStatus::Success, 150));
}

/// Other Event Dispatchers take over, and the old ones are free.
pub fn event_dispatchers_change_before_the_connection(bed: &mut Bed<'_, impl Side>) {
    let mut end = bed.end(A);
    let dto = EvdFlags::DTO | EvdFlags::CONNECTION;
    let evd = bed.a.evd_create(64, dto).unwrap();
    let change = EpModify {
        recv_evd: Some(evd),
        request_evd: Some(evd),
        connect_evd: Some(evd),
        ..EpModify::default()
    };
    bed.a.ep_modify(end.ep, &change).unwrap();
    for old in [end.recv, end.request, end.conn] {
        bed.a.evd_free(old).unwrap();
    }
    (end.recv, end.request, end.conn) = (evd, evd, evd);
    let peer = bed.end(B);
    bed.b.ep_post_recv(peer.ep, &[], 1, NONE).unwrap();
    bed.connect(&end, &peer);
    bed.a.ep_post_send(end.ep, &[], 2, NONE).unwrap();
    bed.done(&end, DtoOperation::Send, 2);
}

/// What is posted stays posted.
pub fn receives_stay_posted(bed: &mut Bed<'_, impl Side>) {
    let (from, mut to) = (bed.end(A), bed.end(B));
    let source = bed.mem(A, from.pz, 16, MemPriv::ALL);
    let sink = bed.mem(B, to.pz, 64, MemPriv::ALL);
    let two = [sink.seg(0, 8), sink.seg(32, 8)];
    bed.b.ep_post_recv(to.ep, &two, 11, NONE).unwrap();
    bed.recv(&to, &sink, 16, 16, 12);
    to.recv = bed.b.evd_create(64, EvdFlags::DTO).unwrap();
    let change = EpModify { recv_evd: Some(to.recv), ..EpModify::default() };
    bed.b.ep_modify(to.ep, &change).unwrap();
    assert!(!bed.b.ep_get_status(to.ep).unwrap().recv_idle);
    bed.connect(&from, &to);
    bed.fill(&source, 0, b"first and second");
    bed.send(&from, &source, 0, 16, 1);
    bed.send(&from, &source, 6, 10, 2);
    assert_eq!(bed.done(&to, DtoOperation::Receive, 11), 16);
    assert_eq!(bed.done(&to, DtoOperation::Receive, 12), 10);
    assert_eq!(bed.bytes(&sink, 0, 8), b"first an");
    assert_eq!(bed.bytes(&sink, 32, 8), b"d second");
    assert_eq!(bed.bytes(&sink, 16, 10), b"and second");
}

/// Receives of the old zone fail when they are used.
pub fn receives_of_another_zone_fail(bed: &mut Bed<'_, impl Side>) {
    let (from, to) = (bed.end(A), bed.end(B));
    let sink = bed.mem(B, to.pz, 64, MemPriv::ALL);
    bed.recv(&to, &sink, 0, 64, 1);
    let other = bed.b.pz_create().unwrap();
    let change = EpModify { pz: Some(other), ..EpModify::default() };
    bed.b.ep_modify(to.ep, &change).unwrap();
    bed.connect(&from, &to);
    let source = bed.mem(A, from.pz, 8, MemPriv::ALL);
    bed.send(&from, &source, 0, 8, 2);
    let dto = bed.dto(B, to.recv);
    assert_eq!((dto.status, dto.cookie), (DtoStatus::ErrLocalProtection, 1));
    bed.broken(B, to.conn, to.ep);
}

/// Once something reserves the Endpoint its zone stays, and the rest may change.
pub fn the_zone_changes_only_in_quiescence(bed: &mut Bed<'_, impl Side>) {
    let end = bed.end(A);
    let evd = bed.a.evd_create(8, EvdFlags::CR).unwrap();
    let qualifier = bed.free_qualifier();
    bed.a.rsp_create(qualifier, Some(end.ep), evd).unwrap();
    let other = bed.a.pz_create().unwrap();
    let change = EpModify { pz: Some(other), ..EpModify::default() };
    let changed = bed.a.ep_modify(end.ep, &change);
    let reserved = DatSubtype::InvalidStateEpReserved;
    refused(changed, DatType::InvalidState, reserved);
    bed.a.pz_free(other).unwrap();
    let conn = bed.a.evd_create(8, EvdFlags::CONNECTION).unwrap();
    let change = EpModify { connect_evd: Some(conn), ..EpModify::default() };
    bed.a.ep_modify(end.ep, &change).unwrap();
    assert_eq!(bed.state(&end), EpState::Reserved);
    assert_eq!(bed.a.ep_query(end.ep).unwrap().connect_evd, Some(conn));
}

/// How receives complete is settled when the first is posted.
pub fn receive_flags_change_before_receives(bed: &mut Bed<'_, impl Side>) {
    let end = bed.end(A);
    let mut attr = bed.a.ep_attr_default();
    attr.recv_completion_flags = CompletionFlags::SOLICITED_WAIT;
    let change = EpModify { attr: Some(attr), ..EpModify::default() };
    bed.a.ep_modify(end.ep, &change).unwrap();
    bed.a.ep_post_recv(end.ep, &[], 1, NONE).unwrap();
    attr.recv_completion_flags = CompletionFlags::EVD_THRESHOLD;
    let change = EpModify { attr: Some(attr), ..EpModify::default() };
    let changed = bed.a.ep_modify(end.ep, &change);
    refused(changed, DatType::InvalidState, DatSubtype::InvalidStateEpNotReady);
    let kept = bed.a.ep_query(end.ep).unwrap().attr.recv_completion_flags;
    assert_eq!(kept, CompletionFlags::SOLICITED_WAIT);
}

/// There must be room for what is posted.
pub fn receives_need_their_room(bed: &mut Bed<'_, impl Side>) {
    let end = bed.end(A);
    for cookie in 0..3 {
        bed.a.ep_post_recv(end.ep, &[], cookie, NONE).unwrap();
    }
    let mut attr = bed.a.ep_attr_default();
    attr.max_recv_dtos = 2;
    let change = EpModify { attr: Some(attr), ..EpModify::default() };
    let changed = bed.a.ep_modify(end.ep, &change);
    refused(changed, DatType::InvalidParameter, DatSubtype::InvalidArg6);
    assert!(bed.a.ep_query(end.ep).unwrap().attr.max_recv_dtos > 2);
}

/// A connection, an attempt at one and its end leave nothing to change.
pub fn nothing_changes_with_a_connection(bed: &mut Bed<'_, impl Side>) {
    let [end, peer] = bed.connected();
    let change = EpModify { attr: Some(bed.a.ep_attr_default()), ..EpModify::default() };
    let changed = bed.a.ep_modify(end.ep, &change);
    let state = DatType::InvalidState;
    refused(changed, state, DatSubtype::InvalidStateEpConnected);
    bed.disconnect(&end, CloseFlag::Abrupt);
    let changed = bed.a.ep_modify(end.ep, &change);
    refused(changed, state, DatSubtype::InvalidStateEpDisconnected);
    bed.event(B, peer.conn);
    let (asking, point) = (bed.end(A), bed.listen(B));
    bed.ask(&asking, point.qualifier, LIMIT, b"");
    let changed = bed.a.ep_modify(asking.ep, &change);
    refused(changed, state, DatSubtype::InvalidStateEpActConnPending);
}

/// A refused change changes nothing, not even what would have been right.
pub fn a_refused_change_changes_nothing(bed: &mut Bed<'_, impl Side>) {
    let end = bed.end(A);
    let before = bed.a.ep_query(end.ep).unwrap();
    let (pz, dto) = (bed.a.pz_create().unwrap(), bed.a.evd_create(8, EvdFlags::DTO).unwrap());
    let change = EpModify {
        pz: Some(pz),
        recv_evd: Some(dto),
        connect_evd: Some(dto),
        ..EpModify::default()
    };
    let changed = bed.a.ep_modify(end.ep, &change);
    refused(changed, DatType::InvalidHandle, DatSubtype::InvalidHandleEvdConn);
    assert_eq!(bed.a.ep_query(end.ep).unwrap(), before);
    bed.a.evd_free(dto).unwrap();
    bed.a.pz_free(pz).unwrap();
}

/// Each group of parameters may be changed in its states, and in no other: what is refused changes
/// nothing.
pub fn attributes_change_in_the_states_of_the_table(bed: &mut Bed<'_, impl Side>) {
    let [client, server] = [bed.end(A), bed.end(B)];
    let (rsp, evd, qualifier) = reserve(bed, &server);
    // RESERVED takes Event Dispatchers and attributes, and no other zone.
    changes(bed, &server, Ok(()));
    bed.ask(&client, qualifier, LIMIT, b"");
    changes(bed, &client, Err(DatSubtype::InvalidStateEpActConnPending));
    let cr = next_request(bed, B, evd);
    changes(bed, &server, Ok(()));
    let now = bed.now();
    bed.b.cr_accept(now, cr, None, b"").unwrap();
    changes(bed, &server, Err(DatSubtype::InvalidStateEpComplPending));
    for end in [&client, &server] {
        assert_eq!(bed.event(end.side, end.conn), Event::Established(end.ep));
        changes(bed, end, Err(DatSubtype::InvalidStateEpConnected));
    }
    bed.a.ep_post_send(client.ep, &[], 1, NONE).unwrap();
    bed.disconnect(&client, CloseFlag::Graceful);
    changes(bed, &client, Err(DatSubtype::InvalidStateEpDiscPending));
    bed.b.ep_post_recv(server.ep, &[], 1, NONE).unwrap();
    for end in [&client, &server] {
        assert_eq!(bed.event(end.side, end.conn), Event::Disconnected(end.ep));
        changes(bed, end, Err(DatSubtype::InvalidStateEpDisconnected));
    }
    let now = bed.now();
    bed.b.rsp_free(now, rsp).unwrap();
}

/// Tries to change attributes, Event Dispatcher and zone: the first two end as `expected`, the zone
/// is refused in either case.
#[track_caller]
fn changes(bed: &mut Bed<'_, impl Side>, end: &End, expected: Result<(), DatSubtype>) {
    let ia = &mut bed[end.side].ia;
    let before = ia.ep_query(end.ep).unwrap();
    let mut attr = before.attr;
    attr.max_recv_dtos -= 1;
    let pz = ia.pz_create().unwrap();
    let given = [
        EpModify { attr: Some(attr), ..EpModify::default() },
        EpModify { connect_evd: Some(end.conn), ..EpModify::default() },
    ];
    for change in &given {
        let changed = ia.ep_modify(end.ep, change);
        match expected {
            Ok(()) => changed.unwrap(),
            Err(subtype) => refused(changed, DatType::InvalidState, subtype),
        }
    }
    let zone = EpModify { pz: Some(pz), ..EpModify::default() };
    assert!(ia.ep_modify(end.ep, &zone).is_err());
    ia.pz_free(pz).unwrap();
    let after = ia.ep_query(end.ep).unwrap();
    assert_eq!((after.state, after.pz), (before.state, before.pz));
    let stands = if expected.is_ok() { attr } else { before.attr };
    assert_eq!(after.attr, stands);
}
