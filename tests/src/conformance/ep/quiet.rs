//! UNCONNECTED, RESERVED, and the two ways to have a request pending.

use dat_core::{
    CloseFlag, DatSubtype, DatType, DtoOperation, Ep, EpModify, EpState, Evd, EvdFlags, Event,
    LmrTriplet, MemPriv, PspFlag, Qos, RmrTriplet, Rsp,
};

use super::super::{A, B, Bed, End, LIMIT, NONE, Side, refused};
use super::{next_request, reserve};

const STATE: DatType = DatType::InvalidState;

/// Everything that an Endpoint in such a state refuses, with the state's own subtype.
fn refuses_all(bed: &mut Bed<'_, impl Side>, end: &End, subtype: DatSubtype) {
    let (now, to) = (bed.now(), bed[1 - end.side].address());
    let ia = &mut bed[end.side].ia;
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
pub fn requests_are_refused_without_a_connection(bed: &mut Bed<'_, impl Side>) {
    let end = bed.end(A);
    let mem = bed.mem(A, end.pz, 64, MemPriv::ALL);
    let rmr = bed.a.rmr_create(end.pz).unwrap();
    let (seg, far) = (mem.seg(0, 8), RmrTriplet::default());
    let no = DatSubtype::InvalidStateEpUnconnected;
    let (ia, ep) = (&mut bed.a.ia, end.ep);
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
pub fn receives_wait_for_the_connection(bed: &mut Bed<'_, impl Side>) {
    let (from, to) = (bed.end(A), bed.end(B));
    let (source, sink) = (bed.mem(A, from.pz, 8, MemPriv::ALL), bed.mem(B, to.pz, 8, MemPriv::ALL));
    bed.recv(&to, &sink, 0, 8, 1);
    // A reset of what is quiescent already leaves them alone.
    bed.b.ep_reset(to.ep).unwrap();
    assert_eq!(bed.look(B, to.recv), None);
    bed.connect(&from, &to);
    bed.fill(&source, 0, b"early on");
    bed.send(&from, &source, 0, 8, 2);
    assert_eq!(bed.done(&to, DtoOperation::Receive, 1), 8);
    assert_eq!(bed.bytes(&sink, 0, 8), b"early on");
}

/// There is nothing to disconnect.
pub fn an_unconnected_endpoint_cannot_be_disconnected(bed: &mut Bed<'_, impl Side>) {
    let end = bed.end(A);
    let now = bed.now();
    for flag in [CloseFlag::Abrupt, CloseFlag::Graceful] {
        let ended = bed.a.ep_disconnect(now, end.ep, flag);
        refused(ended, STATE, DatSubtype::InvalidStateEpUnconnected);
    }
    assert_eq!(bed.look(A, end.conn), None);
}

/// It can be freed with receives posted.
pub fn an_unconnected_endpoint_can_be_freed(bed: &mut Bed<'_, impl Side>) {
    let end = bed.end(A);
    bed.a.ep_post_recv(end.ep, &[], 1, NONE).unwrap();
    let now = bed.now();
    bed.a.ep_free(now, end.ep).unwrap();
    for evd in [end.recv, end.request, end.conn] {
        bed.a.evd_free(evd).unwrap();
    }
    bed.a.pz_free(end.pz).unwrap();
}

/// A Reserved Service Point reserves its Endpoint, until it is freed.
pub fn a_reserved_service_point_reserves(bed: &mut Bed<'_, impl Side>) {
    let end = bed.end(A);
    let (rsp, evd, _) = reserve(bed, &end);
    assert_eq!(bed.state(&end), EpState::Reserved);
    let now = bed.now();
    bed.a.rsp_free(now, rsp).unwrap();
    assert_eq!(bed.state(&end), EpState::Unconnected);
    bed.a.evd_free(evd).unwrap();
    let peer = bed.end(B);
    bed.connect(&end, &peer);
}

/// Only its request is for it.
pub fn a_reserved_endpoint_refuses_everything_else(bed: &mut Bed<'_, impl Side>) {
    let end = bed.end(B);
    reserve(bed, &end);
    let reserved = DatSubtype::InvalidStateEpReserved;
    refuses_all(bed, &end, reserved);
    let (point, client) = (bed.listen(B), bed.end(A));
    bed.ask(&client, point.qualifier, LIMIT, b"");
    let cr = bed.request(&point);
    let now = bed.now();
    let accepted = bed.b.cr_accept(now, cr, Some(end.ep), b"");
    refused(accepted, STATE, reserved);
    let evd = bed.b.evd_create(8, EvdFlags::CR).unwrap();
    let qualifier = bed.free_qualifier();
    let again = bed.b.rsp_create(qualifier, Some(end.ep), evd);
    refused(again, STATE, reserved);
    assert_eq!(bed.state(&end), EpState::Reserved);
    // But receives are taken in any state.
    bed.b.ep_post_recv(end.ep, &[], 1, NONE).unwrap();
}

/// Client and server of one Reserved Service Point, with its request.
fn pending(bed: &mut Bed<'_, impl Side>) -> (End, End, Rsp, Evd, dat_core::Cr) {
    let (client, server) = (bed.end(A), bed.end(B));
    let (rsp, evd, qualifier) = reserve(bed, &server);
    bed.ask(&client, qualifier, LIMIT, b"dear server");
    let Event::ReservedRequest { rsp: from, cr, conn_qual } = bed.event(B, evd) else {
        panic!("no request")
    };
    assert_eq!((from, conn_qual), (rsp, qualifier));
    (client, server, rsp, evd, cr)
}

/// A request takes the Endpoint from RESERVED to PASSIVE_CONNECTION_PENDING, and names it.
pub fn a_request_finds_the_reserved_endpoint(bed: &mut Bed<'_, impl Side>) {
    let (client, server, _, _, cr) = pending(bed);
    assert_eq!(bed.state(&server), EpState::PassiveConnectionPending);
    let param = bed.b.cr_query(cr).unwrap();
    assert_eq!(param.local_ep, Some(server.ep));
    assert_eq!(&param.private_data[..11], b"dear server");
    let param = bed.b.ep_query(server.ep).unwrap();
    assert_eq!(param.remote, Some(bed.a.address()));
    assert_eq!(param.remote_port, bed.a.ep_query(client.ep).unwrap().local_port);
}

/// Accepted without naming an Endpoint, it is connected.
pub fn a_reserved_endpoint_is_accepted(bed: &mut Bed<'_, impl Side>) {
    let (client, server, rsp, evd, cr) = pending(bed);
    let now = bed.now();
    bed.b.cr_accept(now, cr, None, b"welcome").unwrap();
    for end in [&client, &server] {
        assert_eq!(bed.event(end.side, end.conn), Event::Established(end.ep));
    }
    // The service point is there until it is freed, and the connection does not mind.
    assert_eq!(bed.b.rsp_query(rsp).unwrap().ep, server.ep);
    bed.b.rsp_free(now, rsp).unwrap();
    bed.b.evd_free(evd).unwrap();
    assert_eq!(bed.state(&server), EpState::Connected);
}

/// The request has its Endpoint: no other may be named.
pub fn a_pending_request_takes_no_other_endpoint(bed: &mut Bed<'_, impl Side>) {
    let (_, server, _, _, cr) = pending(bed);
    let other = bed.end(B);
    let now = bed.now();
    for ep in [server.ep, other.ep] {
        let accepted = bed.b.cr_accept(now, cr, Some(ep), b"");
        refused(accepted, DatType::InvalidHandle, DatSubtype::InvalidHandleEp);
    }
    assert_eq!(bed.state(&server), EpState::PassiveConnectionPending);
    assert_eq!(bed.state(&other), EpState::Unconnected);
    bed.b.cr_accept(now, cr, None, b"").unwrap();
}

/// Rejected, the Endpoint can be used for something else.
pub fn a_rejected_endpoint_is_unconnected(bed: &mut Bed<'_, impl Side>) {
    let (client, server, _, _, cr) = pending(bed);
    let now = bed.now();
    bed.b.cr_reject(now, cr, b"").unwrap();
    assert_eq!(bed.state(&server), EpState::Unconnected);
    assert_eq!(bed.event(A, client.conn), Event::PeerRejected(client.ep));
    let again = bed.end(A);
    bed.connect(&again, &server);
}

/// The end of the service point leaves the request alone.
pub fn a_freed_rsp_leaves_its_request(bed: &mut Bed<'_, impl Side>) {
    let (client, server, rsp, evd, cr) = pending(bed);
    let now = bed.now();
    bed.b.rsp_free(now, rsp).unwrap();
    bed.b.evd_free(evd).unwrap();
    assert_eq!(bed.state(&server), EpState::PassiveConnectionPending);
    bed.b.cr_accept(now, cr, None, b"").unwrap();
    assert_eq!(bed.event(A, client.conn), Event::Established(client.ep));
}

/// The request must be answered first.
pub fn a_pending_endpoint_refuses_everything_else(bed: &mut Bed<'_, impl Side>) {
    let (_, server, _, _, cr) = pending(bed);
    let passive = DatSubtype::InvalidStateEpPassConnPending;
    refuses_all(bed, &server, passive);
    bed.b.ep_post_recv(server.ep, &[], 1, NONE).unwrap();
    let now = bed.now();
    bed.b.cr_accept(now, cr, None, b"").unwrap();
    bed.event(B, server.conn);
}

/// A request with the Endpoint that its PSP made for it.
fn tentative(bed: &mut Bed<'_, impl Side>) -> (End, dat_core::Cr, Ep) {
    let client = bed.end(A);
    let evd = bed.b.evd_create(8, EvdFlags::CR).unwrap();
    let qualifier = bed.free_qualifier();
    bed.b.psp_create(qualifier, evd, PspFlag::Provider).unwrap();
    bed.ask(&client, qualifier, LIMIT, b"");
    let cr = next_request(bed, B, evd);
    let ep = bed.b.cr_query(cr).unwrap().local_ep.unwrap();
    (client, cr, ep)
}

/// Zone and Event Dispatchers for an Endpoint of the provider's.
fn furnish(bed: &mut Bed<'_, impl Side>, ep: Ep) -> End {
    let like = bed.end(B);
    let change = EpModify {
        pz: Some(like.pz),
        recv_evd: Some(like.recv),
        request_evd: Some(like.request),
        connect_evd: Some(like.conn),
        attr: Some(bed.b.ep_attr_default()),
    };
    bed.b.ep_modify(ep, &change).unwrap();
    End { ep, ..like }
}

/// The Endpoint of a provider's making has nothing until it is given something, and then it is used
/// like any other.
pub fn fault_37_a_provided_endpoint_can_be_furnished_and_used(bed: &mut Bed<'_, impl Side>) {
    let (client, cr, ep) = tentative(bed);
    let param = bed.b.ep_query(ep).unwrap();
    assert_eq!(param.state, EpState::UnconfiguredTentative);
    assert_eq!((param.pz, param.recv_evd, param.connect_evd), (None, None, None));
    let now = bed.now();
    let accepted = bed.b.cr_accept(now, cr, None, b"");
    refused(accepted, STATE, DatSubtype::InvalidStateEpUnconfTentative);
    let server = furnish(bed, ep);
    assert_eq!(bed.state(&server), EpState::TentativeConnectionPending);
    bed.b.ep_post_recv(ep, &[], 1, NONE).unwrap();
    bed.b.cr_accept(now, cr, None, b"").unwrap();
    assert_eq!(bed.event(A, client.conn), Event::Established(client.ep));
    assert_eq!(bed.event(B, server.conn), Event::Established(ep));
    bed.a.ep_post_send(client.ep, &[], 2, NONE).unwrap();
    bed.done(&server, DtoOperation::Receive, 1);
}

/// Rejected, it goes back to its provider.
pub fn a_rejected_tentative_endpoint_is_gone(bed: &mut Bed<'_, impl Side>) {
    let (client, cr, ep) = tentative(bed);
    let server = furnish(bed, ep);
    let now = bed.now();
    bed.b.cr_reject(now, cr, b"").unwrap();
    assert_eq!(bed.event(A, client.conn), Event::PeerRejected(client.ep));
    refused(bed.b.ep_query(ep), DatType::InvalidHandle, DatSubtype::InvalidHandleEp);
    // And holds nothing that it was given.
    assert!(bed.b.evd_free(server.recv).is_err(), "its likeness does");
}

/// It is its provider's until the request is answered.
pub fn a_tentative_endpoint_refuses_everything_else(bed: &mut Bed<'_, impl Side>) {
    let (_, cr, ep) = tentative(bed);
    let server = furnish(bed, ep);
    refuses_all(bed, &server, DatSubtype::InvalidStateEpTentConnPending);
    let now = bed.now();
    let accepted = bed.b.cr_accept(now, cr, Some(ep), b"");
    refused(accepted, DatType::InvalidHandle, DatSubtype::InvalidHandleEp);
    bed.b.cr_accept(now, cr, None, b"").unwrap();
}

/// A Reserved Service Point without an Endpoint has one made, which is furnished like a tentative
/// one.
pub fn fault_36_an_rsp_makes_its_endpoint(bed: &mut Bed<'_, impl Side>) {
    let evd = bed.b.evd_create(8, EvdFlags::CR).unwrap();
    let qualifier = bed.free_qualifier();
    let rsp = bed.b.rsp_create(qualifier, None, evd).unwrap();
    let ep = bed.b.rsp_query(rsp).unwrap().ep;
    let state = |bed: &Bed<'_, _>| bed.b.ep_query(ep).unwrap().state;
    assert_eq!(state(bed), EpState::UnconfiguredReserved);
    let client = bed.end(A);
    bed.ask(&client, qualifier, LIMIT, b"");
    let cr = next_request(bed, B, evd);
    assert_eq!(state(bed), EpState::UnconfiguredPassive);
    let now = bed.now();
    let accepted = bed.b.cr_accept(now, cr, None, b"");
    refused(accepted, STATE, DatSubtype::InvalidStateEpUnconfPassive);
    let server = furnish(bed, ep);
    assert_eq!(bed.state(&server), EpState::PassiveConnectionPending);
    bed.b.cr_accept(now, cr, None, b"").unwrap();
    assert_eq!(bed.event(B, server.conn), Event::Established(ep));
}

/// Given up before its request came, the service point takes the Endpoint that it made with it.
pub fn an_rsp_takes_its_own_endpoint_with_it(bed: &mut Bed<'_, impl Side>) {
    let evd = bed.b.evd_create(8, EvdFlags::CR).unwrap();
    let qualifier = bed.free_qualifier();
    let rsp = bed.b.rsp_create(qualifier, None, evd).unwrap();
    let ep = bed.b.rsp_query(rsp).unwrap().ep;
    let now = bed.now();
    refused(bed.b.ep_free(now, ep), STATE, DatSubtype::InvalidStateEpUnconfReserved);
    bed.b.rsp_free(now, rsp).unwrap();
    refused(bed.b.ep_query(ep), DatType::InvalidHandle, DatSubtype::InvalidHandleEp);
    bed.b.evd_free(evd).unwrap();
}

/// A post that is refused leaves no trace: the same post works later.
pub fn a_refused_post_changes_nothing(bed: &mut Bed<'_, impl Side>) {
    let [from, to] = bed.connected();
    let nowhere = LmrTriplet { addr: 0, len: 8, context: 0xdead_beef };
    let posted = bed.a.ep_post_send(from.ep, &[nowhere], 1, NONE);
    refused(posted, DatType::PrivilegesViolation, DatSubtype::PrivilegesRead);
    assert!(bed.a.ep_get_status(from.ep).unwrap().request_idle);
    bed.b.ep_post_recv(to.ep, &[], 2, NONE).unwrap();
    bed.a.ep_post_send(from.ep, &[], 3, NONE).unwrap();
    bed.done(&from, DtoOperation::Send, 3);
}
