//! Connection Requests.

use core::time::Duration;

use dat_core::{
    CloseFlag, Cr, DatSubtype, DatType, EpState, EvdFlags, Event, MAX_ACCEPT_PRIVATE,
    MAX_REJECT_PRIVATE, PspFlag,
};

use super::super::ep::next_request;
use super::super::{A, Adapters, B, End, LIMIT, Point, Side, refused};

const HANDLE: DatType = DatType::InvalidHandle;

/// A client that has sent a request, and the request that has arrived.
fn asked(ias: &mut Adapters<'_, impl Side>) -> (End, Point, Cr) {
    let (client, point) = (ias.end(A), ias.listen(B));
    ias.ask(&client, point.qualifier, LIMIT, b"who goes there");
    let cr = ias.request(&point);
    (client, point, cr)
}

/// Asserts that the handle of a request is stale.
fn used_up(ias: &mut Adapters<'_, impl Side>, cr: Cr) {
    let gone = DatSubtype::InvalidHandleCr;
    let now = ias.now();
    let ia = &mut ias.b.ia;
    refused(ia.cr_query(cr), HANDLE, gone);
    refused(ia.cr_accept(now, cr, None, b""), HANDLE, gone);
    refused(ia.cr_reject(now, cr, b""), HANDLE, gone);
    refused(ia.cr_handoff(now, cr, 7), HANDLE, gone);
}

/// It returns the address of the asking side, and its private data.
pub fn cr_query_tells_who_asks(ias: &mut Adapters<'_, impl Side>) {
    let (client, _, cr) = asked(ias);
    let port = ias.a.ep_query(client.ep).unwrap().local_port;
    let from = ias.a.address();
    let param = ias.b.cr_query(cr).unwrap();
    assert_eq!((param.remote, param.remote_port), (from, port));
    assert_eq!(&param.private_data[..14], b"who goes there");
    assert_eq!(param.local_ep, None);
}

/// Accepted, a request is used up.
pub fn an_accepted_request_is_used_up(ias: &mut Adapters<'_, impl Side>) {
    let (client, _, cr) = asked(ias);
    let (server, now) = (ias.end(B), ias.now());
    ias.b.cr_accept(now, cr, Some(server.ep), b"").unwrap();
    used_up(ias, cr);
    assert_eq!(ias.event(A, client.conn), Event::Established(client.ep));
}

/// A request without an Endpoint of its own needs one.
pub fn accept_needs_an_endpoint(ias: &mut Adapters<'_, impl Side>) {
    let (_, _, cr) = asked(ias);
    let (server, dead, now) = (ias.end(B), ias.end(B), ias.now());
    ias.b.ep_free(now, dead.ep).unwrap();
    for ep in [None, Some(dead.ep)] {
        let accepted = ias.b.cr_accept(now, cr, ep, b"");
        refused(accepted, HANDLE, DatSubtype::InvalidHandleEp);
    }
    ias.b.cr_accept(now, cr, Some(server.ep), b"").unwrap();
}

/// A refused accept has all bits of its code, and leaves Endpoint and request as they were.
pub fn fault_27_a_refused_accept_changes_nothing(ias: &mut Adapters<'_, impl Side>) {
    let (client, _, cr) = asked(ias);
    let (server, now) = (ias.end(B), ias.now());
    let long = [7; MAX_ACCEPT_PRIVATE + 1];
    let accepted = ias.b.cr_accept(now, cr, Some(server.ep), &long);
    refused(accepted, DatType::InvalidParameter, DatSubtype::InvalidArg3);
    let [_, busy] = ias.connected();
    let accepted = ias.b.cr_accept(now, cr, Some(busy.ep), b"");
    refused(accepted, DatType::InvalidState, DatSubtype::InvalidStateEpConnected);
    assert_eq!(ias.state(&server), EpState::Unconnected);
    assert_eq!(ias.state(&busy), EpState::Connected);
    ias.b.cr_accept(now, cr, Some(server.ep), &long[1..]).unwrap();
    assert_eq!(ias.event(A, client.conn), Event::Established(client.ep));
    let data = ias.a.ep_private_data(client.ep).unwrap();
    assert_eq!(data, &long[1..]);
}

/// Each side's number of reads becomes the lesser of both limits.
pub fn accept_negotiates_the_number_of_reads(ias: &mut Adapters<'_, impl Side>) {
    let client = ias.end_with(A, false, |attr| {
        (attr.max_rdma_read_in, attr.max_rdma_read_out) = (1, 2);
    });
    let server = ias.end(B);
    ias.connect(&client, &server);
    // The Endpoint's own attributes stay what its consumer asked for.
    let attr = ias.a.ep_query(client.ep).unwrap().attr;
    assert_eq!((attr.max_rdma_read_in, attr.max_rdma_read_out), (1, 2));
    let suggested = ias.b.ep_attr_default();
    assert_eq!(ias.b.ep_query(server.ep).unwrap().attr, suggested);
}

/// A rejected request is used up, and the rejection carries its private data.
pub fn a_rejected_request_is_used_up(ias: &mut Adapters<'_, impl Side>) {
    let (client, _, cr) = asked(ias);
    let now = ias.now();
    let data = [9; MAX_REJECT_PRIVATE];
    ias.b.cr_reject(now, cr, &data).unwrap();
    used_up(ias, cr);
    assert_eq!(ias.event(A, client.conn), Event::PeerRejected(client.ep));
    assert_eq!(ias.a.ep_private_data(client.ep).unwrap(), data);
}

/// Too much private data is refused, and the request stays.
pub fn reject_refuses_too_much_private_data(ias: &mut Adapters<'_, impl Side>) {
    let (client, _, cr) = asked(ias);
    let now = ias.now();
    let long = [9; MAX_REJECT_PRIVATE + 1];
    let rejected = ias.b.cr_reject(now, cr, &long);
    refused(rejected, DatType::InvalidParameter, DatSubtype::InvalidArg2);
    assert_eq!(ias.state(&client), EpState::ActiveConnectionPending);
    ias.b.cr_reject(now, cr, b"").unwrap();
}

/// The asking side has gone: the request can still be answered, for nothing.
pub fn a_request_outlives_its_client(ias: &mut Adapters<'_, impl Side>) {
    let (client, _, cr) = asked(ias);
    ias.disconnect(&client, CloseFlag::Abrupt);
    ias.event(A, client.conn);
    ias.pass(Duration::from_millis(20));
    assert_eq!(ias.b.cr_query(cr).unwrap().remote, ias.a.address());
    let now = ias.now();
    ias.b.cr_reject(now, cr, b"").unwrap();
    used_up(ias, cr);
}

/// Handed to another service point, a request arrives there like a new one.
pub fn handoff_presents_the_request_elsewhere(ias: &mut Adapters<'_, impl Side>) {
    let (client, _, cr) = asked(ias);
    let (other, server) = (ias.listen(B), ias.end(B));
    let now = ias.now();
    ias.b.cr_handoff(now, cr, other.qualifier).unwrap();
    used_up(ias, cr);
    let Event::ConnectionRequest { psp, cr, conn_qual } = ias.event(B, other.evd) else { panic!() };
    assert_eq!((psp, conn_qual), (other.psp, other.qualifier));
    let param = ias.b.cr_query(cr).unwrap();
    assert_eq!(param.remote, ias.a.address());
    assert_eq!(&param.private_data[..14], b"who goes there");
    ias.b.cr_accept(now, cr, Some(server.ep), b"").unwrap();
    assert_eq!(ias.event(A, client.conn), Event::Established(client.ep));
    assert_eq!(ias.event(B, server.conn), Event::Established(server.ep));
}

/// Nobody else listens there.
pub fn handoff_needs_another_listener(ias: &mut Adapters<'_, impl Side>) {
    let (client, point, cr) = asked(ias);
    let (nobody, now) = (ias.free_qualifier(), ias.now());
    for qualifier in [nobody, point.qualifier, 0, 65536] {
        let handed = ias.b.cr_handoff(now, cr, qualifier);
        refused(handed, DatType::InvalidParameter, DatSubtype::InvalidArg2);
    }
    let server = ias.end(B);
    ias.b.cr_accept(now, cr, Some(server.ep), b"").unwrap();
    assert_eq!(ias.event(A, client.conn), Event::Established(client.ep));
}

/// The Endpoint of a Reserved Service Point is free again, and that of another takes over.
pub fn handoff_frees_the_reserved_endpoint(ias: &mut Adapters<'_, impl Side>) {
    let evd = ias.b.evd_create(8, EvdFlags::CR).unwrap();
    let (one, two, client) = (ias.end(B), ias.end(B), ias.end(A));
    let (first, second) = (ias.free_qualifier(), ias.free_qualifier());
    ias.b.rsp_create(first, Some(one.ep), evd).unwrap();
    ias.b.rsp_create(second, Some(two.ep), evd).unwrap();
    ias.ask(&client, first, LIMIT, b"");
    let cr = next_request(ias, B, evd);
    let now = ias.now();
    ias.b.cr_handoff(now, cr, second).unwrap();
    assert_eq!(ias.state(&one), EpState::Unconnected);
    assert_eq!(ias.state(&two), EpState::PassiveConnectionPending);
    let cr = next_request(ias, B, evd);
    assert_eq!(ias.b.cr_query(cr).unwrap().local_ep, Some(two.ep));
    ias.b.cr_accept(now, cr, None, b"").unwrap();
    assert_eq!(ias.event(A, client.conn), Event::Established(client.ep));
    // Neither service point takes another.
    let cr_evd = ias.b.evd_create(8, EvdFlags::CR).unwrap();
    let third = ias.free_qualifier();
    ias.b.psp_create(third, cr_evd, PspFlag::Consumer).unwrap();
    let late = ias.end(A);
    ias.ask(&late, third, LIMIT, b"");
    let cr = next_request(ias, B, cr_evd);
    let now = ias.now();
    let handed = ias.b.cr_handoff(now, cr, first);
    refused(handed, DatType::InvalidParameter, DatSubtype::InvalidArg2);
}

/// To a service point that makes Endpoints, and away from one.
pub fn handoff_makes_and_takes_endpoints(ias: &mut Adapters<'_, impl Side>) {
    let (_, _, cr) = asked(ias);
    let evd = ias.b.evd_create(8, EvdFlags::CR).unwrap();
    let maker = ias.free_qualifier();
    ias.b.psp_create(maker, evd, PspFlag::Provider).unwrap();
    let now = ias.now();
    ias.b.cr_handoff(now, cr, maker).unwrap();
    let cr = next_request(ias, B, evd);
    let ep = ias.b.cr_query(cr).unwrap().local_ep.unwrap();
    let state = ias.b.ep_query(ep).unwrap().state;
    assert_eq!(state, EpState::UnconfiguredTentative);
    let plain = ias.listen(B);
    ias.b.cr_handoff(now, cr, plain.qualifier).unwrap();
    refused(ias.b.ep_query(ep), HANDLE, DatSubtype::InvalidHandleEp);
    let cr = ias.request(&plain);
    assert_eq!(ias.b.cr_query(cr).unwrap().local_ep, None);
}

/// A full service point takes nothing over, and the request stays where it is.
pub fn handoff_to_a_full_service_point_is_refused(ias: &mut Adapters<'_, impl Side>) {
    let evd = ias.b.evd_create(1, EvdFlags::CR).unwrap();
    let full = ias.free_qualifier();
    ias.b.psp_create(full, evd, PspFlag::Consumer).unwrap();
    let room = ias.b.evd_query(evd).unwrap().qlen;
    let point = ias.listen(B);
    for _ in 0..room {
        let client = ias.merged_end(A);
        ias.ask(&client, point.qualifier, LIMIT, b"");
        let cr = ias.request(&point);
        let now = ias.now();
        ias.b.cr_handoff(now, cr, full).unwrap();
    }
    let client = ias.merged_end(A);
    ias.ask(&client, point.qualifier, LIMIT, b"last in line");
    let cr = ias.request(&point);
    let now = ias.now();
    let handed = ias.b.cr_handoff(now, cr, full);
    refused(handed, DatType::InsufficientResources, DatSubtype::ResourceMemory);
    let param = ias.b.cr_query(cr).unwrap();
    assert_eq!(&param.private_data[..12], b"last in line");
    ias.b.cr_reject(now, cr, b"").unwrap();
    assert_eq!(ias.event(A, client.conn), Event::PeerRejected(client.ep));
}
