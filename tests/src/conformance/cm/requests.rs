//! Connection Requests.

use core::time::Duration;

use dat_core::{
    CloseFlag, Cr, DatSubtype, DatType, EpState, EvdFlags, Event, MAX_ACCEPT_PRIVATE,
    MAX_REJECT_PRIVATE, PspFlag,
};

use super::super::ep::next_request;
use super::super::{A, B, Bed, End, LIMIT, Point, Side, refused};

const HANDLE: DatType = DatType::InvalidHandle;

/// A client that has asked, and what of it has arrived.
fn asked(bed: &mut Bed<'_, impl Side>) -> (End, Point, Cr) {
    let (client, point) = (bed.end(A), bed.listen(B));
    bed.ask(&client, point.qualifier, LIMIT, b"who goes there");
    let cr = bed.request(&point);
    (client, point, cr)
}

/// A handle of a request is of no use any more.
fn used_up(bed: &mut Bed<'_, impl Side>, cr: Cr) {
    let gone = DatSubtype::InvalidHandleCr;
    let now = bed.now();
    let ia = &mut bed.b.ia;
    refused(ia.cr_query(cr), HANDLE, gone);
    refused(ia.cr_accept(now, cr, None, b""), HANDLE, gone);
    refused(ia.cr_reject(now, cr, b""), HANDLE, gone);
    refused(ia.cr_handoff(now, cr, 7), HANDLE, gone);
}

/// Who asks, and with what words.
pub fn cr_query_tells_who_asks(bed: &mut Bed<'_, impl Side>) {
    let (client, _, cr) = asked(bed);
    let port = bed.a.ep_query(client.ep).unwrap().local_port;
    let from = bed.a.address();
    let param = bed.b.cr_query(cr).unwrap();
    assert_eq!((param.remote, param.remote_port), (from, port));
    assert_eq!(&param.private_data[..14], b"who goes there");
    assert_eq!(param.local_ep, None);
}

/// Accepted, a request is used up.
pub fn an_accepted_request_is_used_up(bed: &mut Bed<'_, impl Side>) {
    let (client, _, cr) = asked(bed);
    let (server, now) = (bed.end(B), bed.now());
    bed.b.cr_accept(now, cr, Some(server.ep), b"").unwrap();
    used_up(bed, cr);
    assert_eq!(bed.event(A, client.conn), Event::Established(client.ep));
}

/// A request without an Endpoint of its own needs one.
pub fn accept_needs_an_endpoint(bed: &mut Bed<'_, impl Side>) {
    let (_, _, cr) = asked(bed);
    let (server, dead, now) = (bed.end(B), bed.end(B), bed.now());
    bed.b.ep_free(now, dead.ep).unwrap();
    for ep in [None, Some(dead.ep)] {
        let accepted = bed.b.cr_accept(now, cr, ep, b"");
        refused(accepted, HANDLE, DatSubtype::InvalidHandleEp);
    }
    bed.b.cr_accept(now, cr, Some(server.ep), b"").unwrap();
}

/// A refused accept has all bits of its code, and leaves Endpoint and request as they were.
pub fn fault_27_a_refused_accept_changes_nothing(bed: &mut Bed<'_, impl Side>) {
    let (client, _, cr) = asked(bed);
    let (server, now) = (bed.end(B), bed.now());
    let long = [7; MAX_ACCEPT_PRIVATE + 1];
    let accepted = bed.b.cr_accept(now, cr, Some(server.ep), &long);
    refused(accepted, DatType::InvalidParameter, DatSubtype::InvalidArg3);
    let [_, busy] = bed.connected();
    let accepted = bed.b.cr_accept(now, cr, Some(busy.ep), b"");
    refused(accepted, DatType::InvalidState, DatSubtype::InvalidStateEpConnected);
    assert_eq!(bed.state(&server), EpState::Unconnected);
    assert_eq!(bed.state(&busy), EpState::Connected);
    bed.b.cr_accept(now, cr, Some(server.ep), &long[1..]).unwrap();
    assert_eq!(bed.event(A, client.conn), Event::Established(client.ep));
    let data = bed.a.ep_private_data(client.ep).unwrap();
    assert_eq!(data, &long[1..]);
}

/// Reads of both sides are limited to what both can do.
pub fn accept_settles_the_number_of_reads(bed: &mut Bed<'_, impl Side>) {
    let client = bed.end_with(A, false, |attr| {
        (attr.max_rdma_read_in, attr.max_rdma_read_out) = (1, 2);
    });
    let server = bed.end(B);
    bed.connect(&client, &server);
    // The Endpoint's own attributes stay what its consumer asked for.
    let attr = bed.a.ep_query(client.ep).unwrap().attr;
    assert_eq!((attr.max_rdma_read_in, attr.max_rdma_read_out), (1, 2));
    let suggested = bed.b.ep_attr_default();
    assert_eq!(bed.b.ep_query(server.ep).unwrap().attr, suggested);
}

/// Rejected, a request is used up, and its words go along.
pub fn a_rejected_request_is_used_up(bed: &mut Bed<'_, impl Side>) {
    let (client, _, cr) = asked(bed);
    let now = bed.now();
    let data = [9; MAX_REJECT_PRIVATE];
    bed.b.cr_reject(now, cr, &data).unwrap();
    used_up(bed, cr);
    assert_eq!(bed.event(A, client.conn), Event::PeerRejected(client.ep));
    assert_eq!(bed.a.ep_private_data(client.ep).unwrap(), data);
}

/// Too many words are refused, and the request waits on.
pub fn reject_refuses_too_much_private_data(bed: &mut Bed<'_, impl Side>) {
    let (client, _, cr) = asked(bed);
    let now = bed.now();
    let long = [9; MAX_REJECT_PRIVATE + 1];
    let rejected = bed.b.cr_reject(now, cr, &long);
    refused(rejected, DatType::InvalidParameter, DatSubtype::InvalidArg2);
    assert_eq!(bed.state(&client), EpState::ActiveConnectionPending);
    bed.b.cr_reject(now, cr, b"").unwrap();
}

/// Who asked has gone: the request can still be answered, for nothing.
pub fn a_request_outlives_its_client(bed: &mut Bed<'_, impl Side>) {
    let (client, _, cr) = asked(bed);
    bed.disconnect(&client, CloseFlag::Abrupt);
    bed.event(A, client.conn);
    bed.pass(Duration::from_millis(20));
    assert_eq!(bed.b.cr_query(cr).unwrap().remote, bed.a.address());
    let now = bed.now();
    bed.b.cr_reject(now, cr, b"").unwrap();
    used_up(bed, cr);
}

/// Handed to another service point, a request arrives there like a new one.
pub fn handoff_presents_the_request_elsewhere(bed: &mut Bed<'_, impl Side>) {
    let (client, _, cr) = asked(bed);
    let (other, server) = (bed.listen(B), bed.end(B));
    let now = bed.now();
    bed.b.cr_handoff(now, cr, other.qualifier).unwrap();
    used_up(bed, cr);
    let Event::ConnectionRequest { psp, cr, conn_qual } = bed.event(B, other.evd) else { panic!() };
    assert_eq!((psp, conn_qual), (other.psp, other.qualifier));
    let param = bed.b.cr_query(cr).unwrap();
    assert_eq!(param.remote, bed.a.address());
    assert_eq!(&param.private_data[..14], b"who goes there");
    bed.b.cr_accept(now, cr, Some(server.ep), b"").unwrap();
    assert_eq!(bed.event(A, client.conn), Event::Established(client.ep));
    assert_eq!(bed.event(B, server.conn), Event::Established(server.ep));
}

/// Nobody else listens there.
pub fn handoff_needs_another_listener(bed: &mut Bed<'_, impl Side>) {
    let (client, point, cr) = asked(bed);
    let (nobody, now) = (bed.free_qualifier(), bed.now());
    for qualifier in [nobody, point.qualifier, 0, 65536] {
        let handed = bed.b.cr_handoff(now, cr, qualifier);
        refused(handed, DatType::InvalidParameter, DatSubtype::InvalidArg2);
    }
    let server = bed.end(B);
    bed.b.cr_accept(now, cr, Some(server.ep), b"").unwrap();
    assert_eq!(bed.event(A, client.conn), Event::Established(client.ep));
}

/// The Endpoint of a Reserved Service Point is free again, and that of another takes over.
pub fn handoff_frees_the_reserved_endpoint(bed: &mut Bed<'_, impl Side>) {
    let evd = bed.b.evd_create(8, EvdFlags::CR).unwrap();
    let (one, two, client) = (bed.end(B), bed.end(B), bed.end(A));
    let (first, second) = (bed.free_qualifier(), bed.free_qualifier());
    bed.b.rsp_create(first, Some(one.ep), evd).unwrap();
    bed.b.rsp_create(second, Some(two.ep), evd).unwrap();
    bed.ask(&client, first, LIMIT, b"");
    let cr = next_request(bed, B, evd);
    let now = bed.now();
    bed.b.cr_handoff(now, cr, second).unwrap();
    assert_eq!(bed.state(&one), EpState::Unconnected);
    assert_eq!(bed.state(&two), EpState::PassiveConnectionPending);
    let cr = next_request(bed, B, evd);
    assert_eq!(bed.b.cr_query(cr).unwrap().local_ep, Some(two.ep));
    bed.b.cr_accept(now, cr, None, b"").unwrap();
    assert_eq!(bed.event(A, client.conn), Event::Established(client.ep));
    // Neither service point takes another.
    let cr_evd = bed.b.evd_create(8, EvdFlags::CR).unwrap();
    let third = bed.free_qualifier();
    bed.b.psp_create(third, cr_evd, PspFlag::Consumer).unwrap();
    let late = bed.end(A);
    bed.ask(&late, third, LIMIT, b"");
    let cr = next_request(bed, B, cr_evd);
    let now = bed.now();
    let handed = bed.b.cr_handoff(now, cr, first);
    refused(handed, DatType::InvalidParameter, DatSubtype::InvalidArg2);
}

/// To a service point that makes Endpoints, and away from one.
pub fn handoff_makes_and_takes_endpoints(bed: &mut Bed<'_, impl Side>) {
    let (_, _, cr) = asked(bed);
    let evd = bed.b.evd_create(8, EvdFlags::CR).unwrap();
    let maker = bed.free_qualifier();
    bed.b.psp_create(maker, evd, PspFlag::Provider).unwrap();
    let now = bed.now();
    bed.b.cr_handoff(now, cr, maker).unwrap();
    let cr = next_request(bed, B, evd);
    let ep = bed.b.cr_query(cr).unwrap().local_ep.unwrap();
    let state = bed.b.ep_query(ep).unwrap().state;
    assert_eq!(state, EpState::UnconfiguredTentative);
    let plain = bed.listen(B);
    bed.b.cr_handoff(now, cr, plain.qualifier).unwrap();
    refused(bed.b.ep_query(ep), HANDLE, DatSubtype::InvalidHandleEp);
    let cr = bed.request(&plain);
    assert_eq!(bed.b.cr_query(cr).unwrap().local_ep, None);
}

/// A full service point takes nothing over, and the request stays where it is.
pub fn handoff_to_a_full_service_point_is_refused(bed: &mut Bed<'_, impl Side>) {
    let evd = bed.b.evd_create(1, EvdFlags::CR).unwrap();
    let full = bed.free_qualifier();
    bed.b.psp_create(full, evd, PspFlag::Consumer).unwrap();
    let room = bed.b.evd_query(evd).unwrap().qlen;
    let point = bed.listen(B);
    for _ in 0..room {
        let client = bed.merged_end(A);
        bed.ask(&client, point.qualifier, LIMIT, b"");
        let cr = bed.request(&point);
        let now = bed.now();
        bed.b.cr_handoff(now, cr, full).unwrap();
    }
    let client = bed.merged_end(A);
    bed.ask(&client, point.qualifier, LIMIT, b"last in line");
    let cr = bed.request(&point);
    let now = bed.now();
    let handed = bed.b.cr_handoff(now, cr, full);
    refused(handed, DatType::InsufficientResources, DatSubtype::ResourceMemory);
    let param = bed.b.cr_query(cr).unwrap();
    assert_eq!(&param.private_data[..12], b"last in line");
    bed.b.cr_reject(now, cr, b"").unwrap();
    assert_eq!(bed.event(A, client.conn), Event::PeerRejected(client.ep));
}
