//! UNCONNECTED, RESERVED, and the two ways to have a request pending.

use dat_core::{
    CloseFlag, DatSubtype, DatType, DtoOperation, Ep, EpModify, EpState, Evd, EvdFlags, Event,
    LmrTriplet, MemPriv, PspFlag, Qos, RmrTriplet, Rsp,
};

use super::super::{A, Adapters, B, End, LIMIT, NONE, Side, refused};
use super::{next_request, reserve};

const STATE: DatType = DatType::InvalidState;

/// Everything that an Endpoint in such a state refuses, with the state's own subtype.
fn refuses_all(ias: &mut Adapters<'_, impl Side>, end: &End, subtype: DatSubtype) {
    let (now, to) = (ias.now(), ias[1 - end.side].address());
    let ia = &mut ias[end.side].ia;
    let asked = ia.ep_connect(now, end.ep, to, 7, LIMIT, b"", Qos::BestEffort);
    refused(asked, STATE, subtype);
    for flag in [CloseFlag::Abrupt, CloseFlag::Graceful] {
        refused(ia.ep_disconnect(now, end.ep, flag), STATE, subtype);
    }
    refused(ia.ep_reset(end.ep), STATE, subtype);
    refused(ia.ep_free(now, end.ep), STATE, subtype);
    refused(ia.ep_post_send(end.ep, &[], 1, NONE), STATE, subtype);
}

/// Requests need a connection.
pub fn requests_are_refused_without_a_connection(ias: &mut Adapters<'_, impl Side>) {
    let end = ias.end(A);
    let mem = ias.mem(A, end.pz, 64, MemPriv::ALL);
    let rmr = ias.a.rmr_create(end.pz).unwrap();
    let (seg, far) = (mem.seg(0, 8), RmrTriplet::default());
    let no = DatSubtype::InvalidStateEpUnconnected;
    let (ia, ep) = (&mut ias.a.ia, end.ep);
    refused(ia.ep_post_send(ep, &[seg], 1, NONE), STATE, no);
    refused(ia.ep_post_rdma_write(ep, &[seg], 1, &far, NONE), STATE, no);
    refused(ia.ep_post_rdma_read(ep, &[seg], 1, &far, NONE), STATE, no);
    let some = Some(1);
    let posted = ia.ep_post_send_with_invalidate(ep, &[seg], 1, NONE, some);
    refused(posted, STATE, no);
    let bound = ia.rmr_bind(rmr, &seg, MemPriv::REMOTE_READ, ep, 1, NONE);
    refused(bound, STATE, no);
    assert!(ia.ep_get_status(ep).unwrap().request_idle);
}

/// Receives may be posted before there is a connection; they wait for it.
pub fn receives_wait_for_the_connection(ias: &mut Adapters<'_, impl Side>) {
    let (from, to) = (ias.end(A), ias.end(B));
    let (source, sink) = (ias.mem(A, from.pz, 8, MemPriv::ALL), ias.mem(B, to.pz, 8, MemPriv::ALL));
    ias.recv(&to, &sink, 0, 8, 1);
    // A reset of what is quiescent already leaves them alone.
    ias.b.ep_reset(to.ep).unwrap();
    assert_eq!(ias.look(B, to.recv), None);
    ias.connect(&from, &to);
    ias.fill(&source, 0, b"early on");
    ias.send(&from, &source, 0, 8, 2);
    assert_eq!(ias.done(&to, DtoOperation::Receive, 1), 8);
    assert_eq!(ias.bytes(&sink, 0, 8), b"early on");
}

/// There is nothing to disconnect.
pub fn an_unconnected_endpoint_cannot_be_disconnected(ias: &mut Adapters<'_, impl Side>) {
    let end = ias.end(A);
    let now = ias.now();
    for flag in [CloseFlag::Abrupt, CloseFlag::Graceful] {
        let ended = ias.a.ep_disconnect(now, end.ep, flag);
        refused(ended, STATE, DatSubtype::InvalidStateEpUnconnected);
    }
    assert_eq!(ias.look(A, end.conn), None);
}

/// It can be freed with receives posted.
pub fn an_unconnected_endpoint_can_be_freed(ias: &mut Adapters<'_, impl Side>) {
    let end = ias.end(A);
    ias.a.ep_post_recv(end.ep, &[], 1, NONE).unwrap();
    let now = ias.now();
    ias.a.ep_free(now, end.ep).unwrap();
    for evd in [end.recv, end.request, end.conn] {
        ias.a.evd_free(evd).unwrap();
    }
    ias.a.pz_free(end.pz).unwrap();
}

/// A Reserved Service Point reserves its Endpoint, until it is freed.
pub fn a_reserved_service_point_reserves(ias: &mut Adapters<'_, impl Side>) {
    let end = ias.end(A);
    let (rsp, evd, _) = reserve(ias, &end);
    assert_eq!(ias.state(&end), EpState::Reserved);
    let now = ias.now();
    ias.a.rsp_free(now, rsp).unwrap();
    assert_eq!(ias.state(&end), EpState::Unconnected);
    ias.a.evd_free(evd).unwrap();
    let peer = ias.end(B);
    ias.connect(&end, &peer);
}

/// Only its request is for it.
pub fn a_reserved_endpoint_refuses_everything_else(ias: &mut Adapters<'_, impl Side>) {
    let end = ias.end(B);
    reserve(ias, &end);
    let reserved = DatSubtype::InvalidStateEpReserved;
    refuses_all(ias, &end, reserved);
    let (point, client) = (ias.listen(B), ias.end(A));
    ias.ask(&client, point.qualifier, LIMIT, b"");
    let cr = ias.request(&point);
    let now = ias.now();
    let accepted = ias.b.cr_accept(now, cr, Some(end.ep), b"");
    refused(accepted, STATE, reserved);
    let evd = ias.b.evd_create(8, EvdFlags::CR).unwrap();
    let qualifier = ias.free_qualifier();
    let again = ias.b.rsp_create(qualifier, Some(end.ep), evd);
    refused(again, STATE, reserved);
    assert_eq!(ias.state(&end), EpState::Reserved);
    // But receives are taken in any state.
    ias.b.ep_post_recv(end.ep, &[], 1, NONE).unwrap();
}

/// Client and server of one Reserved Service Point, with its request.
fn pending(ias: &mut Adapters<'_, impl Side>) -> (End, End, Rsp, Evd, dat_core::Cr) {
    let (client, server) = (ias.end(A), ias.end(B));
    let (rsp, evd, qualifier) = reserve(ias, &server);
    ias.ask(&client, qualifier, LIMIT, b"dear server");
    let Event::ReservedRequest { rsp: from, cr, conn_qual } = ias.event(B, evd) else {
        panic!("no request")
    };
    assert_eq!((from, conn_qual), (rsp, qualifier));
    (client, server, rsp, evd, cr)
}

/// A request takes the Endpoint from RESERVED to PASSIVE_CONNECTION_PENDING, and names it.
pub fn a_request_finds_the_reserved_endpoint(ias: &mut Adapters<'_, impl Side>) {
    let (client, server, _, _, cr) = pending(ias);
    assert_eq!(ias.state(&server), EpState::PassiveConnectionPending);
    let param = ias.b.cr_query(cr).unwrap();
    assert_eq!(param.local_ep, Some(server.ep));
    assert_eq!(&param.private_data[..11], b"dear server");
    let param = ias.b.ep_query(server.ep).unwrap();
    assert_eq!(param.remote, Some(ias.a.address()));
    assert_eq!(param.remote_port, ias.a.ep_query(client.ep).unwrap().local_port);
}

/// Accepted without naming an Endpoint, it is connected.
pub fn a_reserved_endpoint_is_accepted(ias: &mut Adapters<'_, impl Side>) {
    let (client, server, rsp, evd, cr) = pending(ias);
    let now = ias.now();
    ias.b.cr_accept(now, cr, None, b"welcome").unwrap();
    for end in [&client, &server] {
        assert_eq!(ias.event(end.side, end.conn), Event::Established(end.ep));
    }
    // The service point is there until it is freed, and the connection does not mind.
    assert_eq!(ias.b.rsp_query(rsp).unwrap().ep, server.ep);
    ias.b.rsp_free(now, rsp).unwrap();
    ias.b.evd_free(evd).unwrap();
    assert_eq!(ias.state(&server), EpState::Connected);
}

/// The request has its Endpoint: no other may be named.
pub fn a_pending_request_takes_no_other_endpoint(ias: &mut Adapters<'_, impl Side>) {
    let (_, server, _, _, cr) = pending(ias);
    let other = ias.end(B);
    let now = ias.now();
    for ep in [server.ep, other.ep] {
        let accepted = ias.b.cr_accept(now, cr, Some(ep), b"");
        refused(accepted, DatType::InvalidHandle, DatSubtype::InvalidHandleEp);
    }
    assert_eq!(ias.state(&server), EpState::PassiveConnectionPending);
    assert_eq!(ias.state(&other), EpState::Unconnected);
    ias.b.cr_accept(now, cr, None, b"").unwrap();
}

/// Rejected, the Endpoint can be used for something else.
pub fn a_rejected_endpoint_is_unconnected(ias: &mut Adapters<'_, impl Side>) {
    let (client, server, _, _, cr) = pending(ias);
    let now = ias.now();
    ias.b.cr_reject(now, cr, b"").unwrap();
    assert_eq!(ias.state(&server), EpState::Unconnected);
    assert_eq!(ias.event(A, client.conn), Event::PeerRejected(client.ep));
    let again = ias.end(A);
    ias.connect(&again, &server);
}

/// The end of the service point leaves the request alone.
pub fn a_freed_rsp_leaves_its_request(ias: &mut Adapters<'_, impl Side>) {
    let (client, server, rsp, evd, cr) = pending(ias);
    let now = ias.now();
    ias.b.rsp_free(now, rsp).unwrap();
    ias.b.evd_free(evd).unwrap();
    assert_eq!(ias.state(&server), EpState::PassiveConnectionPending);
    ias.b.cr_accept(now, cr, None, b"").unwrap();
    assert_eq!(ias.event(A, client.conn), Event::Established(client.ep));
}

/// The request must be answered first.
pub fn a_pending_endpoint_refuses_everything_else(ias: &mut Adapters<'_, impl Side>) {
    let (_, server, _, _, cr) = pending(ias);
    let passive = DatSubtype::InvalidStateEpPassConnPending;
    refuses_all(ias, &server, passive);
    ias.b.ep_post_recv(server.ep, &[], 1, NONE).unwrap();
    let now = ias.now();
    ias.b.cr_accept(now, cr, None, b"").unwrap();
    ias.event(B, server.conn);
}

/// A request with the Endpoint that its PSP made for it.
fn tentative(ias: &mut Adapters<'_, impl Side>) -> (End, dat_core::Cr, Ep) {
    let client = ias.end(A);
    let evd = ias.b.evd_create(8, EvdFlags::CR).unwrap();
    let qualifier = ias.free_qualifier();
    ias.b.psp_create(qualifier, evd, PspFlag::Provider).unwrap();
    ias.ask(&client, qualifier, LIMIT, b"");
    let cr = next_request(ias, B, evd);
    let ep = ias.b.cr_query(cr).unwrap().local_ep.unwrap();
    (client, cr, ep)
}

/// Zone and Event Dispatchers for an Endpoint of the provider's.
fn furnish(ias: &mut Adapters<'_, impl Side>, ep: Ep) -> End {
    let like = ias.end(B);
    let change = EpModify {
        pz: Some(like.pz),
        recv_evd: Some(like.recv),
        request_evd: Some(like.request),
        connect_evd: Some(like.conn),
        attr: Some(ias.b.ep_attr_default()),
    };
    ias.b.ep_modify(ep, &change).unwrap();
    End { ep, ..like }
}

/// The Endpoint of a provider's making has nothing until it is given something, and then it is used
/// like any other.
pub fn fault_37_a_provided_endpoint_can_be_furnished_and_used(ias: &mut Adapters<'_, impl Side>) {
    let (client, cr, ep) = tentative(ias);
    let param = ias.b.ep_query(ep).unwrap();
    assert_eq!(param.state, EpState::UnconfiguredTentative);
    assert_eq!((param.pz, param.recv_evd, param.connect_evd), (None, None, None));
    let now = ias.now();
    let accepted = ias.b.cr_accept(now, cr, None, b"");
    refused(accepted, STATE, DatSubtype::InvalidStateEpUnconfTentative);
    let server = furnish(ias, ep);
    assert_eq!(ias.state(&server), EpState::TentativeConnectionPending);
    ias.b.ep_post_recv(ep, &[], 1, NONE).unwrap();
    ias.b.cr_accept(now, cr, None, b"").unwrap();
    assert_eq!(ias.event(A, client.conn), Event::Established(client.ep));
    assert_eq!(ias.event(B, server.conn), Event::Established(ep));
    ias.a.ep_post_send(client.ep, &[], 2, NONE).unwrap();
    ias.done(&server, DtoOperation::Receive, 1);
}

/// Rejected, it goes back to its provider.
pub fn a_rejected_tentative_endpoint_is_gone(ias: &mut Adapters<'_, impl Side>) {
    let (client, cr, ep) = tentative(ias);
    let server = furnish(ias, ep);
    let now = ias.now();
    ias.b.cr_reject(now, cr, b"").unwrap();
    assert_eq!(ias.event(A, client.conn), Event::PeerRejected(client.ep));
    refused(ias.b.ep_query(ep), DatType::InvalidHandle, DatSubtype::InvalidHandleEp);
    // And holds nothing that it was given.
    assert!(ias.b.evd_free(server.recv).is_err(), "its likeness does");
}

/// It is its provider's until the request is answered.
pub fn a_tentative_endpoint_refuses_everything_else(ias: &mut Adapters<'_, impl Side>) {
    let (_, cr, ep) = tentative(ias);
    let server = furnish(ias, ep);
    refuses_all(ias, &server, DatSubtype::InvalidStateEpTentConnPending);
    let now = ias.now();
    let accepted = ias.b.cr_accept(now, cr, Some(ep), b"");
    refused(accepted, DatType::InvalidHandle, DatSubtype::InvalidHandleEp);
    ias.b.cr_accept(now, cr, None, b"").unwrap();
}

/// A Reserved Service Point without an Endpoint has one made, which is furnished like a tentative
/// one.
pub fn fault_36_an_rsp_makes_its_endpoint(ias: &mut Adapters<'_, impl Side>) {
    let evd = ias.b.evd_create(8, EvdFlags::CR).unwrap();
    let qualifier = ias.free_qualifier();
    let rsp = ias.b.rsp_create(qualifier, None, evd).unwrap();
    let ep = ias.b.rsp_query(rsp).unwrap().ep;
    let state = |ias: &Adapters<'_, _>| ias.b.ep_query(ep).unwrap().state;
    assert_eq!(state(ias), EpState::UnconfiguredReserved);
    let client = ias.end(A);
    ias.ask(&client, qualifier, LIMIT, b"");
    let cr = next_request(ias, B, evd);
    assert_eq!(state(ias), EpState::UnconfiguredPassive);
    let now = ias.now();
    let accepted = ias.b.cr_accept(now, cr, None, b"");
    refused(accepted, STATE, DatSubtype::InvalidStateEpUnconfPassive);
    let server = furnish(ias, ep);
    assert_eq!(ias.state(&server), EpState::PassiveConnectionPending);
    ias.b.cr_accept(now, cr, None, b"").unwrap();
    assert_eq!(ias.event(B, server.conn), Event::Established(ep));
}

/// Given up before its request came, the service point takes the Endpoint that it made with it.
pub fn an_rsp_takes_its_own_endpoint_with_it(ias: &mut Adapters<'_, impl Side>) {
    let evd = ias.b.evd_create(8, EvdFlags::CR).unwrap();
    let qualifier = ias.free_qualifier();
    let rsp = ias.b.rsp_create(qualifier, None, evd).unwrap();
    let ep = ias.b.rsp_query(rsp).unwrap().ep;
    let now = ias.now();
    refused(ias.b.ep_free(now, ep), STATE, DatSubtype::InvalidStateEpUnconfReserved);
    ias.b.rsp_free(now, rsp).unwrap();
    refused(ias.b.ep_query(ep), DatType::InvalidHandle, DatSubtype::InvalidHandleEp);
    ias.b.evd_free(evd).unwrap();
}

/// A post that is refused leaves no trace: the same post works later.
pub fn a_refused_post_changes_nothing(ias: &mut Adapters<'_, impl Side>) {
    let [from, to] = ias.connected();
    let nowhere = LmrTriplet { addr: 0, len: 8, context: 0xdead_beef };
    let posted = ias.a.ep_post_send(from.ep, &[nowhere], 1, NONE);
    refused(posted, DatType::PrivilegesViolation, DatSubtype::PrivilegesRead);
    assert!(ias.a.ep_get_status(from.ep).unwrap().request_idle);
    ias.b.ep_post_recv(to.ep, &[], 2, NONE).unwrap();
    ias.a.ep_post_send(from.ep, &[], 3, NONE).unwrap();
    ias.done(&from, DtoOperation::Send, 3);
}
