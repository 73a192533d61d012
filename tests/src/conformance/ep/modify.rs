//! Attributes that may be changed, and in which states.

use dat_core::{
    CloseFlag, CompletionFlags, DatSubtype, DatType, DtoOperation, DtoStatus, EpModify, EpState,
    EvdFlags, Event, MemPriv,
};

use super::super::{A, Adapters, B, End, LIMIT, NONE, Side, refused};
use super::{next_request, reserve};

/// An Endpoint that is not connected takes other attributes.
pub fn attributes_change_before_the_connection(ias: &mut Adapters<'_, impl Side>) {
    let end = ias.end(A);
    let mut attr = ias.a.ep_attr_default();
    attr.max_recv_dtos = 5;
    attr.max_message_size = 100;
    let change = EpModify { attr: Some(attr), ..EpModify::default() };
    ias.a.ep_modify(end.ep, &change).unwrap();
    assert_eq!(ias.a.ep_query(end.ep).unwrap().attr, attr);
    let mem = ias.mem(A, end.pz, 200, MemPriv::ALL);
    ias.a.ep_post_recv(end.ep, &[mem.seg(0, 150)], 1, NONE).unwrap();
    let peer = ias.end(B);
    ias.connect(&end, &peer);
    let long = ias.a.ep_post_send(end.ep, &[mem.seg(0, 101)], 2, NONE);
    refused(long, DatType::LengthError, DatSubtype::None);
    // Its sends are short; its receives take more.
    let source = ias.mem(B, peer.pz, 200, MemPriv::ALL);
    ias.send(&peer, &source, 0, 150, 3);
    let dto = ias.dto(A, end.recv);
    assert_eq!((dto.cookie, dto.status, dto.len), (1, DtoStatus::Success, 150));
}

/// Other Event Dispatchers take over, and the old ones are free.
pub fn event_dispatchers_change_before_the_connection(ias: &mut Adapters<'_, impl Side>) {
    let mut end = ias.end(A);
    let dto = EvdFlags::DTO | EvdFlags::CONNECTION;
    let evd = ias.a.evd_create(64, dto).unwrap();
    let change = EpModify {
        recv_evd: Some(evd),
        request_evd: Some(evd),
        connect_evd: Some(evd),
        ..EpModify::default()
    };
    ias.a.ep_modify(end.ep, &change).unwrap();
    for old in [end.recv, end.request, end.conn] {
        ias.a.evd_free(old).unwrap();
    }
    (end.recv, end.request, end.conn) = (evd, evd, evd);
    let peer = ias.end(B);
    ias.b.ep_post_recv(peer.ep, &[], 1, NONE).unwrap();
    ias.connect(&end, &peer);
    ias.a.ep_post_send(end.ep, &[], 2, NONE).unwrap();
    ias.done(&end, DtoOperation::Send, 2);
}

/// Posted receives stay posted.
pub fn receives_stay_posted(ias: &mut Adapters<'_, impl Side>) {
    let (from, mut to) = (ias.end(A), ias.end(B));
    let source = ias.mem(A, from.pz, 16, MemPriv::ALL);
    let sink = ias.mem(B, to.pz, 64, MemPriv::ALL);
    let two = [sink.seg(0, 8), sink.seg(32, 8)];
    ias.b.ep_post_recv(to.ep, &two, 11, NONE).unwrap();
    ias.recv(&to, &sink, 16, 16, 12);
    to.recv = ias.b.evd_create(64, EvdFlags::DTO).unwrap();
    let change = EpModify { recv_evd: Some(to.recv), ..EpModify::default() };
    ias.b.ep_modify(to.ep, &change).unwrap();
    assert!(!ias.b.ep_get_status(to.ep).unwrap().recv_idle);
    ias.connect(&from, &to);
    ias.fill(&source, 0, b"first and second");
    ias.send(&from, &source, 0, 16, 1);
    ias.send(&from, &source, 6, 10, 2);
    assert_eq!(ias.done(&to, DtoOperation::Receive, 11), 16);
    assert_eq!(ias.done(&to, DtoOperation::Receive, 12), 10);
    assert_eq!(ias.bytes(&sink, 0, 8), b"first an");
    assert_eq!(ias.bytes(&sink, 32, 8), b"d second");
    assert_eq!(ias.bytes(&sink, 16, 10), b"and second");
}

/// Receives of the old zone fail when they are used.
pub fn receives_of_another_zone_fail(ias: &mut Adapters<'_, impl Side>) {
    let (from, to) = (ias.end(A), ias.end(B));
    let sink = ias.mem(B, to.pz, 64, MemPriv::ALL);
    ias.recv(&to, &sink, 0, 64, 1);
    let other = ias.b.pz_create().unwrap();
    let change = EpModify { pz: Some(other), ..EpModify::default() };
    ias.b.ep_modify(to.ep, &change).unwrap();
    ias.connect(&from, &to);
    let source = ias.mem(A, from.pz, 8, MemPriv::ALL);
    ias.send(&from, &source, 0, 8, 2);
    let dto = ias.dto(B, to.recv);
    assert_eq!((dto.status, dto.cookie), (DtoStatus::ErrLocalProtection, 1));
    ias.broken(B, to.conn, to.ep);
}

/// Once something reserves the Endpoint its zone stays, and the rest may change.
pub fn the_zone_changes_only_in_quiescence(ias: &mut Adapters<'_, impl Side>) {
    let end = ias.end(A);
    let evd = ias.a.evd_create(8, EvdFlags::CR).unwrap();
    let qualifier = ias.free_qualifier();
    ias.a.rsp_create(qualifier, Some(end.ep), evd).unwrap();
    let other = ias.a.pz_create().unwrap();
    let change = EpModify { pz: Some(other), ..EpModify::default() };
    let changed = ias.a.ep_modify(end.ep, &change);
    let reserved = DatSubtype::InvalidStateEpReserved;
    refused(changed, DatType::InvalidState, reserved);
    ias.a.pz_free(other).unwrap();
    let conn = ias.a.evd_create(8, EvdFlags::CONNECTION).unwrap();
    let change = EpModify { connect_evd: Some(conn), ..EpModify::default() };
    ias.a.ep_modify(end.ep, &change).unwrap();
    assert_eq!(ias.state(&end), EpState::Reserved);
    assert_eq!(ias.a.ep_query(end.ep).unwrap().connect_evd, Some(conn));
}

/// The completion flags of receives are fixed when the first one is posted.
pub fn receive_flags_change_before_receives(ias: &mut Adapters<'_, impl Side>) {
    let end = ias.end(A);
    let mut attr = ias.a.ep_attr_default();
    attr.recv_completion_flags = CompletionFlags::SOLICITED_WAIT;
    let change = EpModify { attr: Some(attr), ..EpModify::default() };
    ias.a.ep_modify(end.ep, &change).unwrap();
    ias.a.ep_post_recv(end.ep, &[], 1, NONE).unwrap();
    attr.recv_completion_flags = CompletionFlags::EVD_THRESHOLD;
    let change = EpModify { attr: Some(attr), ..EpModify::default() };
    let changed = ias.a.ep_modify(end.ep, &change);
    refused(changed, DatType::InvalidState, DatSubtype::InvalidStateEpNotReady);
    let kept = ias.a.ep_query(end.ep).unwrap().attr.recv_completion_flags;
    assert_eq!(kept, CompletionFlags::SOLICITED_WAIT);
}

/// There must be room for what is posted.
pub fn receives_need_their_room(ias: &mut Adapters<'_, impl Side>) {
    let end = ias.end(A);
    for cookie in 0..3 {
        ias.a.ep_post_recv(end.ep, &[], cookie, NONE).unwrap();
    }
    let mut attr = ias.a.ep_attr_default();
    attr.max_recv_dtos = 2;
    let change = EpModify { attr: Some(attr), ..EpModify::default() };
    let changed = ias.a.ep_modify(end.ep, &change);
    refused(changed, DatType::InvalidParameter, DatSubtype::InvalidArg6);
    assert!(ias.a.ep_query(end.ep).unwrap().attr.max_recv_dtos > 2);
}

/// A connection, an attempt at one and its end leave nothing to change.
pub fn nothing_changes_with_a_connection(ias: &mut Adapters<'_, impl Side>) {
    let [end, peer] = ias.connected();
    let change = EpModify { attr: Some(ias.a.ep_attr_default()), ..EpModify::default() };
    let changed = ias.a.ep_modify(end.ep, &change);
    let state = DatType::InvalidState;
    refused(changed, state, DatSubtype::InvalidStateEpConnected);
    ias.disconnect(&end, CloseFlag::Abrupt);
    let changed = ias.a.ep_modify(end.ep, &change);
    refused(changed, state, DatSubtype::InvalidStateEpDisconnected);
    ias.event(B, peer.conn);
    let (asking, point) = (ias.end(A), ias.listen(B));
    ias.ask(&asking, point.qualifier, LIMIT, b"");
    let changed = ias.a.ep_modify(asking.ep, &change);
    refused(changed, state, DatSubtype::InvalidStateEpActConnPending);
}

/// A refused change changes nothing, not even what would have been right.
pub fn a_refused_change_changes_nothing(ias: &mut Adapters<'_, impl Side>) {
    let end = ias.end(A);
    let before = ias.a.ep_query(end.ep).unwrap();
    let (pz, dto) = (ias.a.pz_create().unwrap(), ias.a.evd_create(8, EvdFlags::DTO).unwrap());
    let change = EpModify {
        pz: Some(pz),
        recv_evd: Some(dto),
        connect_evd: Some(dto),
        ..EpModify::default()
    };
    let changed = ias.a.ep_modify(end.ep, &change);
    refused(changed, DatType::InvalidHandle, DatSubtype::InvalidHandleEvdConn);
    assert_eq!(ias.a.ep_query(end.ep).unwrap(), before);
    ias.a.evd_free(dto).unwrap();
    ias.a.pz_free(pz).unwrap();
}

/// Each group of parameters may be changed in its states, and in no other: what is refused changes
/// nothing.
pub fn attributes_change_in_the_states_of_the_table(ias: &mut Adapters<'_, impl Side>) {
    let [client, server] = [ias.end(A), ias.end(B)];
    let (rsp, evd, qualifier) = reserve(ias, &server);
    // RESERVED takes Event Dispatchers and attributes, and no other zone.
    changes(ias, &server, Ok(()));
    ias.ask(&client, qualifier, LIMIT, b"");
    changes(ias, &client, Err(DatSubtype::InvalidStateEpActConnPending));
    let cr = next_request(ias, B, evd);
    changes(ias, &server, Ok(()));
    let now = ias.now();
    ias.b.cr_accept(now, cr, None, b"").unwrap();
    changes(ias, &server, Err(DatSubtype::InvalidStateEpComplPending));
    for end in [&client, &server] {
        assert_eq!(ias.event(end.side, end.conn), Event::Established(end.ep));
        changes(ias, end, Err(DatSubtype::InvalidStateEpConnected));
    }
    ias.a.ep_post_send(client.ep, &[], 1, NONE).unwrap();
    ias.disconnect(&client, CloseFlag::Graceful);
    changes(ias, &client, Err(DatSubtype::InvalidStateEpDiscPending));
    ias.b.ep_post_recv(server.ep, &[], 1, NONE).unwrap();
    for end in [&client, &server] {
        assert_eq!(ias.event(end.side, end.conn), Event::Disconnected(end.ep));
        changes(ias, end, Err(DatSubtype::InvalidStateEpDisconnected));
    }
    let now = ias.now();
    ias.b.rsp_free(now, rsp).unwrap();
}

/// Tries to change attributes, Event Dispatcher and zone: the first two end as `expected`, the zone
/// is refused in either case.
#[track_caller]
fn changes(ias: &mut Adapters<'_, impl Side>, end: &End, expected: Result<(), DatSubtype>) {
    let ia = &mut ias[end.side].ia;
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
