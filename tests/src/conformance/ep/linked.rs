//! CONNECTED, DISCONNECT_PENDING, DISCONNECTED: traffic, its end, and what comes after.

use core::time::Duration;

use dat_core::cm::QpTerms;
use dat_core::provider::{Class, Mtu};
use dat_core::{
    AsyncEvent, CloseFlag, DatSubtype, DatType, DtoOperation, DtoStatus, EpState, EvdFlags, Event,
    MemPriv, Qos, RmrTriplet,
};

use super::super::{A, Adapters, B, End, LIMIT, NONE, Side, refused};
use super::flushed;

const STATE: DatType = DatType::InvalidState;
const QOS: Qos = Qos::BestEffort;

/// Every kind of request works on a connection.
pub fn a_connection_carries_everything(ias: &mut Adapters<'_, impl Side>) {
    let [from, to] = ias.connected();
    let (source, sink) =
        (ias.mem(A, from.pz, 64, MemPriv::ALL), ias.mem(B, to.pz, 64, MemPriv::ALL));
    ias.recv(&to, &sink, 0, 16, 1);
    ias.fill(&source, 0, b"by send by write");
    ias.send(&from, &source, 0, 7, 2);
    ias.done(&from, DtoOperation::Send, 2);
    assert_eq!(ias.done(&to, DtoOperation::Receive, 1), 7);
    let (seg, far) = (source.seg(8, 8), sink.far(32, 8));
    ias.a.ep_post_rdma_write(from.ep, &[seg], 3, &far, NONE).unwrap();
    assert_eq!(ias.done(&from, DtoOperation::RdmaWrite, 3), 8);
    let seg = source.seg(40, 8);
    ias.a.ep_post_rdma_read(from.ep, &[seg], 4, &far, NONE).unwrap();
    assert_eq!(ias.done(&from, DtoOperation::RdmaRead, 4), 8);
    assert_eq!(ias.bytes(&source, 40, 8), b"by write");
    assert_eq!(ias.bytes(&sink, 0, 7), b"by send");
    let rmr = ias.b.rmr_create(to.pz).unwrap();
    let range = sink.seg(0, 8);
    ias.b.rmr_bind(rmr, &range, MemPriv::REMOTE_READ, to.ep, 5, NONE).unwrap();
    let event = ias.event(B, to.request);
    assert!(matches!(event, Event::RmrBind { cookie: 5, .. }));
}

/// A request that fails takes the connection with it: its own completion first, then the flushed
/// ones, then the event.
pub fn a_failed_request_breaks_the_connection(ias: &mut Adapters<'_, impl Side>) {
    let [from, to] = ias.merged();
    let source = ias.mem(A, from.pz, 64, MemPriv::ALL);
    let nowhere = RmrTriplet { addr: 0x1000, len: 8, context: 0xffff_ff00 };
    ias.a.ep_post_recv(from.ep, &[], 1, NONE).unwrap();
    let seg = source.seg(0, 8);
    ias.a.ep_post_rdma_write(from.ep, &[seg], 2, &nowhere, NONE).unwrap();
    ias.a.ep_post_send(from.ep, &[seg], 3, NONE).unwrap();
    let dto = ias.dto(A, from.request);
    assert_eq!((dto.cookie, dto.status), (2, DtoStatus::ErrRemoteAccess));
    let mut rest = [ias.dto(A, from.request), ias.dto(A, from.request)];
    rest.sort_by_key(|dto| dto.cookie);
    let rest = rest.map(|dto| (dto.cookie, dto.status));
    let flushed = DtoStatus::ErrFlushed;
    assert_eq!(rest, [(1, flushed), (3, flushed)]);
    ias.broken(A, from.conn, from.ep);
    assert_eq!(ias.state(&from), EpState::Disconnected);
    assert!(ias.a.ep_cause(from.ep).unwrap().is_some());
    ias.expect_no_event(Duration::from_millis(50), &[(A, from.conn)]);
    let _ = to;
}

/// A receive that fails does the same on its side.
pub fn a_failed_receive_breaks_the_connection(ias: &mut Adapters<'_, impl Side>) {
    let [from, to] = ias.connected();
    let (source, sink) =
        (ias.mem(A, from.pz, 64, MemPriv::ALL), ias.mem(B, to.pz, 64, MemPriv::ALL));
    ias.recv(&to, &sink, 0, 8, 1);
    ias.recv(&to, &sink, 8, 8, 2);
    ias.send(&from, &source, 0, 9, 3);
    let dto = ias.dto(B, to.recv);
    assert_eq!((dto.cookie, dto.status), (1, DtoStatus::ErrLocalLength));
    flushed(ias, &to, to.recv, 2);
    ias.broken(B, to.conn, to.ep);
    let dto = ias.dto(A, from.request);
    assert_eq!((dto.cookie, dto.status), (3, DtoStatus::ErrRemoteResponder));
    ias.broken(A, from.conn, from.ep);
}

/// A peer that answers nothing, for the fabric's own idea of a connection.
fn to_nobody<S: Side>(ias: &mut Adapters<'_, S>) -> End {
    let end = ias.end(A);
    let terms = QpTerms {
        remote_qpn: 0xf0_0f00,
        rq_psn: 1,
        sq_psn: 1,
        mtu: Mtu::B1024,
        responder_resources: 1,
        initiator_depth: 1,
        retry_count: 1,
        rnr_retry: 1,
        ack_timeout: 10,
        class: Class::default(),
    };
    let (now, to) = (ias.now(), ias.b.address());
    ias.a.ep_connect_direct(now, end.ep, to, &terms, LIMIT).unwrap();
    assert_eq!(ias.event(A, end.conn), Event::Established(end.ep));
    end
}

/// The transport gives up.
pub fn a_transport_failure_breaks_the_connection(ias: &mut Adapters<'_, impl Side>) {
    let end = to_nobody(ias);
    ias.a.ep_post_recv(end.ep, &[], 1, NONE).unwrap();
    ias.a.ep_post_send(end.ep, &[], 2, NONE).unwrap();
    let dto = ias.dto(A, end.request);
    assert_eq!((dto.cookie, dto.status), (2, DtoStatus::ErrTransport));
    ias.broken(A, end.conn, end.ep);
    flushed(ias, &end, end.recv, 1);
}

/// The peer ends it: what is posted comes back, and one event.
pub fn the_peers_disconnect_ends_the_connection(ias: &mut Adapters<'_, impl Side>) {
    let [from, to] = ias.connected();
    ias.b.ep_post_recv(to.ep, &[], 1, NONE).unwrap();
    ias.b.ep_post_recv(to.ep, &[], 2, NONE).unwrap();
    ias.disconnect(&from, CloseFlag::Abrupt);
    assert_eq!(ias.event(B, to.conn), Event::Disconnected(to.ep));
    assert_eq!(ias.state(&to), EpState::Disconnected);
    flushed(ias, &to, to.recv, 1);
    flushed(ias, &to, to.recv, 2);
    // The side that disconnected gets the same event.
    assert_eq!(ias.event(A, from.conn), Event::Disconnected(from.ep));
    ias.expect_no_event(Duration::from_millis(50), &[(A, from.conn), (B, to.conn)]);
}

/// An abrupt end: what is outstanding comes back in order, then the event, on one Event Dispatcher.
pub fn an_abrupt_disconnect_flushes_first(ias: &mut Adapters<'_, impl Side>) {
    let [from, to] = ias.merged();
    // The peer has no receive for them.
    for cookie in 1..4 {
        ias.a.ep_post_send(from.ep, &[], cookie, NONE).unwrap();
    }
    ias.disconnect(&from, CloseFlag::Abrupt);
    for cookie in 1..4 {
        flushed(ias, &from, from.request, cookie);
    }
    assert_eq!(ias.event(A, from.conn), Event::Disconnected(from.ep));
    ias.event(B, to.conn);
}

/// A connection of two merged Endpoints, and a send that waits for the peer's receive, with a
/// graceful disconnect behind it.
fn draining(ias: &mut Adapters<'_, impl Side>) -> [End; 2] {
    let ends = ias.merged();
    ias.a.ep_post_send(ends[A].ep, &[], 1, NONE).unwrap();
    ias.disconnect(&ends[A], CloseFlag::Graceful);
    assert_eq!(ias.state(&ends[A]), EpState::DisconnectPending);
    ends
}

/// Requests may finish; then the connection ends like any other.
pub fn fault_19_a_graceful_disconnect_waits_for_requests(ias: &mut Adapters<'_, impl Side>) {
    let [from, to] = draining(ias);
    ias.expect_no_event(Duration::from_millis(50), &[(A, from.conn), (B, to.conn)]);
    assert_eq!(ias.state(&from), EpState::DisconnectPending);
    ias.b.ep_post_recv(to.ep, &[], 2, NONE).unwrap();
    ias.done(&to, DtoOperation::Receive, 2);
    ias.done(&from, DtoOperation::Send, 1);
    assert_eq!(ias.event(A, from.conn), Event::Disconnected(from.ep));
    assert_eq!(ias.state(&from), EpState::Disconnected);
    assert_eq!(ias.event(B, to.conn), Event::Disconnected(to.ep));
}

/// Of an idle connection there is nothing to wait for.
pub fn a_graceful_disconnect_of_an_idle_connection_is_immediate(ias: &mut Adapters<'_, impl Side>) {
    let [from, to] = ias.connected();
    ias.a.ep_post_recv(from.ep, &[], 1, NONE).unwrap();
    ias.disconnect(&from, CloseFlag::Graceful);
    assert_eq!(ias.event(A, from.conn), Event::Disconnected(from.ep));
    // Receives are not waited for.
    flushed(ias, &from, from.recv, 1);
    ias.event(B, to.conn);
}

/// Asking again changes nothing.
pub fn fault_18_a_second_graceful_disconnect_does_nothing(ias: &mut Adapters<'_, impl Side>) {
    let [from, to] = draining(ias);
    ias.disconnect(&from, CloseFlag::Graceful);
    assert_eq!(ias.state(&from), EpState::DisconnectPending);
    ias.b.ep_post_recv(to.ep, &[], 2, NONE).unwrap();
    ias.done(&from, DtoOperation::Send, 1);
    assert_eq!(ias.event(A, from.conn), Event::Disconnected(from.ep));
    ias.expect_no_event(Duration::from_millis(50), &[(A, from.conn)]);
}

/// An abrupt one ends the waiting.
pub fn an_abrupt_disconnect_ends_the_drain(ias: &mut Adapters<'_, impl Side>) {
    let [from, to] = draining(ias);
    ias.disconnect(&from, CloseFlag::Abrupt);
    flushed(ias, &from, from.request, 1);
    assert_eq!(ias.event(A, from.conn), Event::Disconnected(from.ep));
    ias.event(B, to.conn);
    ias.expect_no_event(Duration::from_millis(50), &[(A, from.conn)]);
}

/// No new requests while it drains; receives as ever.
pub fn a_draining_endpoint_takes_no_requests(ias: &mut Adapters<'_, impl Side>) {
    let [from, _] = draining(ias);
    let draining = DatSubtype::InvalidStateEpDiscPending;
    let mem = ias.mem(A, from.pz, 8, MemPriv::ALL);
    let (ia, ep, seg, far) = (&mut ias.a.ia, from.ep, mem.seg(0, 8), RmrTriplet::default());
    refused(ia.ep_post_send(ep, &[], 9, NONE), STATE, draining);
    refused(ia.ep_post_rdma_write(ep, &[seg], 9, &far, NONE), STATE, draining);
    refused(ia.ep_post_rdma_read(ep, &[seg], 9, &far, NONE), STATE, draining);
    let rmr = ia.rmr_create(from.pz).unwrap();
    let bound = ia.rmr_bind(rmr, &seg, MemPriv::REMOTE_READ, ep, 9, NONE);
    refused(bound, STATE, draining);
    ia.ep_post_recv(ep, &[], 7, NONE).unwrap();
    ias.disconnect(&from, CloseFlag::Abrupt);
    let mut back = [ias.dto(A, from.recv), ias.dto(A, from.recv)].map(|dto| dto.cookie);
    back.sort_unstable();
    assert_eq!(back, [1, 7]);
}

/// A failure during the drain ends in one event, which is that of the disconnect.
pub fn a_failure_while_draining_ends_in_disconnected(ias: &mut Adapters<'_, impl Side>) {
    let [from, to] = ias.merged();
    let (source, sink) =
        (ias.mem(A, from.pz, 16, MemPriv::ALL), ias.mem(B, to.pz, 16, MemPriv::ALL));
    ias.send(&from, &source, 0, 16, 1);
    ias.disconnect(&from, CloseFlag::Graceful);
    ias.recv(&to, &sink, 0, 8, 2);
    let dto = ias.dto(A, from.request);
    assert_eq!((dto.cookie, dto.status), (1, DtoStatus::ErrRemoteResponder));
    assert_eq!(ias.event(A, from.conn), Event::Disconnected(from.ep));
    ias.expect_no_event(Duration::from_millis(50), &[(A, from.conn)]);
}

/// Both sides at once: one event each.
pub fn crossing_disconnects_end_in_one_event_each(ias: &mut Adapters<'_, impl Side>) {
    let [from, to] = draining(ias);
    ias.disconnect(&to, CloseFlag::Abrupt);
    assert_eq!(ias.event(B, to.conn), Event::Disconnected(to.ep));
    // Whether the fabric was quicker to see it than the connection manager is the fabric's affair.
    let dto = ias.dto(A, from.request);
    let ends = [DtoStatus::ErrFlushed, DtoStatus::ErrTransport];
    assert!(dto.cookie == 1 && ends.contains(&dto.status), "{dto:?}");
    assert_eq!(ias.event(A, from.conn), Event::Disconnected(from.ep));
    ias.expect_no_event(Duration::from_millis(50), &[(A, from.conn), (B, to.conn)]);
}

/// A connection is not connected again.
pub fn a_connected_endpoint_refuses_another_connection(ias: &mut Adapters<'_, impl Side>) {
    let [from, to] = ias.connected();
    let connected = DatSubtype::InvalidStateEpConnected;
    let (point, client) = (ias.listen(B), ias.end(A));
    ias.ask(&client, point.qualifier, LIMIT, b"");
    let cr = ias.request(&point);
    let (now, peer) = (ias.now(), ias.b.address());
    let asked = ias.a.ep_connect(now, from.ep, peer, 7, LIMIT, b"", QOS);
    refused(asked, STATE, connected);
    refused(ias.a.ep_reset(from.ep), STATE, connected);
    let accepted = ias.b.cr_accept(now, cr, Some(to.ep), b"");
    refused(accepted, STATE, connected);
    let evd = ias.a.evd_create(8, EvdFlags::CR).unwrap();
    let qualifier = ias.free_qualifier();
    let reserved = ias.a.rsp_create(qualifier, Some(from.ep), evd);
    refused(reserved, STATE, connected);
    ias.a.evd_free(evd).unwrap();
}

/// Freeing a connected Endpoint ends its connection.
pub fn free_ends_a_connection(ias: &mut Adapters<'_, impl Side>) {
    let [from, to] = ias.connected();
    ias.b.ep_post_recv(to.ep, &[], 1, NONE).unwrap();
    ias.a.ep_post_recv(from.ep, &[], 2, NONE).unwrap();
    let now = ias.now();
    ias.a.ep_free(now, from.ep).unwrap();
    ias.a.evd_free(from.conn).unwrap();
    assert_eq!(ias.event(B, to.conn), Event::Disconnected(to.ep));
    flushed(ias, &to, to.recv, 1);
}

/// Nothing is left to disconnect, and that is no error.
pub fn a_disconnected_endpoint_may_be_disconnected_again(ias: &mut Adapters<'_, impl Side>) {
    let [from, to] = ias.connected();
    ias.disconnect(&from, CloseFlag::Abrupt);
    ias.event(A, from.conn);
    ias.event(B, to.conn);
    for flag in [CloseFlag::Abrupt, CloseFlag::Graceful] {
        ias.disconnect(&from, flag);
        ias.disconnect(&to, flag);
    }
    ias.expect_no_event(Duration::from_millis(50), &[(A, from.conn), (B, to.conn)]);
}

/// Markers: what is posted to a disconnected Endpoint comes back flushed behind everything that was
/// there before.
pub fn fault_11_markers_come_back_last(ias: &mut Adapters<'_, impl Side>) {
    let [from, to] = ias.connected();
    let mem = ias.mem(A, from.pz, 8, MemPriv::ALL);
    let rmr = ias.a.rmr_create(from.pz).unwrap();
    ias.a.ep_post_recv(from.ep, &[], 1, NONE).unwrap();
    ias.a.ep_post_send(from.ep, &[], 2, NONE).unwrap();
    ias.disconnect(&from, CloseFlag::Abrupt);
    ias.event(A, from.conn);
    ias.event(B, to.conn);
    let (seg, far) = (mem.seg(0, 8), RmrTriplet { len: 8, ..RmrTriplet::default() });
    let (ia, ep) = (&mut ias.a.ia, from.ep);
    ia.ep_post_recv(ep, &[], 3, NONE).unwrap();
    ia.ep_post_send(ep, &[seg], 4, NONE).unwrap();
    ia.ep_post_rdma_write(ep, &[seg], 5, &far, NONE).unwrap();
    ia.ep_post_rdma_read(ep, &[seg], 6, &far, NONE).unwrap();
    ia.rmr_bind(rmr, &seg, MemPriv::REMOTE_READ, ep, 7, NONE).unwrap();
    for cookie in [1, 3] {
        flushed(ias, &from, from.recv, cookie);
    }
    for cookie in [2, 4, 5, 6] {
        flushed(ias, &from, from.request, cookie);
    }
    let Event::RmrBind { cookie, status, .. } = ias.event(A, from.request) else { panic!() };
    assert_eq!((cookie, status), (7, DtoStatus::ErrFlushed));
}

/// After a reset the Endpoint is as new, and no event of before comes.
pub fn reset_makes_it_usable_again(ias: &mut Adapters<'_, impl Side>) {
    let [from, to] = ias.connected();
    ias.a.ep_post_recv(from.ep, &[], 1, NONE).unwrap();
    ias.disconnect(&from, CloseFlag::Abrupt);
    ias.event(A, from.conn);
    ias.event(B, to.conn);
    ias.a.ep_reset(from.ep).unwrap();
    ias.b.ep_reset(to.ep).unwrap();
    assert_eq!(ias.state(&from), EpState::Unconnected);
    assert!(ias.a.ep_get_status(from.ep).unwrap().recv_idle);
    assert_eq!(ias.look(A, from.recv), None);
    ias.b.ep_post_recv(to.ep, &[], 2, NONE).unwrap();
    ias.connect(&from, &to);
    ias.a.ep_post_send(from.ep, &[], 3, NONE).unwrap();
    ias.done(&from, DtoOperation::Send, 3);
    ias.done(&to, DtoOperation::Receive, 2);
}

/// Completions in the queue at a reset belong to the earlier connection: none is taken for one of
/// the next.
pub fn completions_of_an_earlier_connection_are_dropped(ias: &mut Adapters<'_, impl Side>) {
    let [from, to] = ias.connected();
    for cookie in 0..4 {
        ias.b.ep_post_recv(to.ep, &[], cookie, NONE).unwrap();
        ias.a.ep_post_send(from.ep, &[], cookie, NONE).unwrap();
    }
    for cookie in 0..4 {
        ias.done(&to, DtoOperation::Receive, cookie);
    }
    ias.disconnect(&from, CloseFlag::Abrupt);
    ias.event(A, from.conn);
    ias.event(B, to.conn);
    ias.a.ep_reset(from.ep).unwrap();
    ias.b.ep_reset(to.ep).unwrap();
    ias.b.ep_post_recv(to.ep, &[], 20, NONE).unwrap();
    ias.connect(&from, &to);
    ias.a.ep_post_send(from.ep, &[], 10, NONE).unwrap();
    ias.done(&from, DtoOperation::Send, 10);
    ias.done(&to, DtoOperation::Receive, 20);
}

/// It has to be reset before it is used for another connection.
pub fn a_disconnected_endpoint_is_not_connected_again(ias: &mut Adapters<'_, impl Side>) {
    let [from, to] = ias.connected();
    ias.disconnect(&from, CloseFlag::Abrupt);
    ias.event(A, from.conn);
    ias.event(B, to.conn);
    let gone = DatSubtype::InvalidStateEpDisconnected;
    let (now, peer) = (ias.now(), ias.b.address());
    let asked = ias.a.ep_connect(now, from.ep, peer, 7, LIMIT, b"", QOS);
    refused(asked, STATE, gone);
    let (point, client) = (ias.listen(B), ias.end(A));
    ias.ask(&client, point.qualifier, LIMIT, b"");
    let cr = ias.request(&point);
    let now = ias.now();
    let accepted = ias.b.cr_accept(now, cr, Some(to.ep), b"");
    refused(accepted, STATE, gone);
    let qualifier = ias.free_qualifier();
    let reserved = ias.b.rsp_create(qualifier, Some(to.ep), point.evd);
    refused(reserved, STATE, gone);
    // But it may be freed.
    ias.b.ep_free(now, to.ep).unwrap();
}

/// The adapter's abrupt end takes its connections along.
pub fn closing_the_adapter_ends_connections(ias: &mut Adapters<'_, impl Side>) {
    let [from, to] = ias.connected();
    ias.b.ep_post_recv(to.ep, &[], 1, NONE).unwrap();
    ias.a.close(CloseFlag::Abrupt).unwrap();
    assert_eq!(ias.event(B, to.conn), Event::Disconnected(to.ep));
    flushed(ias, &to, to.recv, 1);
    assert!(ias.a.ep_query(from.ep).is_err());
    ias.a.reopen();
}

/// Many receives flushed at once: each exactly once, in order, and no call waits for any of them.
pub fn fault_20_a_flush_is_no_loop(ias: &mut Adapters<'_, impl Side>) {
    let [from, to] = ias.connected();
    let most = u64::from(ias.a.ep_query(from.ep).unwrap().attr.max_recv_dtos);
    for cookie in 0..most {
        ias.a.ep_post_recv(from.ep, &[], cookie, NONE).unwrap();
    }
    ias.disconnect(&from, CloseFlag::Abrupt);
    assert_eq!(ias.state(&from), EpState::Disconnected);
    for cookie in 0..most {
        flushed(ias, &from, from.recv, cookie);
    }
    ias.event(B, to.conn);
    ias.expect_no_event(Duration::from_millis(10), &[(A, from.recv)]);
}

/// More receives than the soft watermark: one event, until it is set again.
pub fn fault_13_the_soft_watermark_tells_once(ias: &mut Adapters<'_, impl Side>) {
    let [_, to] = ias.connected();
    let asynchronous = ias.b.async_evd();
    let now = ias.now();
    ias.b.ep_set_watermark(now, to.ep, Some(2), None).unwrap();
    for cookie in 0..2 {
        ias.b.ep_post_recv(to.ep, &[], cookie, NONE).unwrap();
    }
    ias.expect_no_event(Duration::from_millis(5), &[(B, asynchronous)]);
    ias.b.ep_post_recv(to.ep, &[], 2, NONE).unwrap();
    let high = Event::Async(AsyncEvent::EpSoftHighWatermark(to.ep));
    assert_eq!(ias.event(B, asynchronous), high);
    assert_eq!(AsyncEvent::EpSoftHighWatermark(to.ep).reason(), 2);
    ias.b.ep_post_recv(to.ep, &[], 3, NONE).unwrap();
    ias.expect_no_event(Duration::from_millis(5), &[(B, asynchronous)]);
    // Set again below what it has, it tells at once.
    ias.b.ep_set_watermark(now, to.ep, Some(1), None).unwrap();
    assert_eq!(ias.event(B, asynchronous), high);
    assert_eq!(ias.state(&to), EpState::Connected);
}

/// More receives than the hard watermark: the connection breaks.
pub fn the_hard_watermark_breaks_the_connection(ias: &mut Adapters<'_, impl Side>) {
    let [from, to] = ias.connected();
    let now = ias.now();
    ias.b.ep_set_watermark(now, to.ep, None, Some(1)).unwrap();
    ias.b.ep_post_recv(to.ep, &[], 0, NONE).unwrap();
    ias.expect_no_event(Duration::from_millis(5), &[(B, to.conn)]);
    ias.b.ep_post_recv(to.ep, &[], 1, NONE).unwrap();
    ias.broken(B, to.conn, to.ep);
    assert_eq!(ias.state(&to), EpState::Disconnected);
    for cookie in 0..2 {
        flushed(ias, &to, to.recv, cookie);
    }
    assert_eq!(ias.event(A, from.conn), Event::Disconnected(from.ep));
}

/// Watermarks may be set in any state, and none is the default.
pub fn watermarks_are_for_any_state(ias: &mut Adapters<'_, impl Side>) {
    let end = ias.end(A);
    let asynchronous = ias.a.async_evd();
    for cookie in 0..4 {
        ias.a.ep_post_recv(end.ep, &[], cookie, NONE).unwrap();
    }
    ias.expect_no_event(Duration::from_millis(5), &[(A, asynchronous)]);
    let now = ias.now();
    // Without a connection there is none to break.
    ias.a.ep_set_watermark(now, end.ep, None, Some(2)).unwrap();
    ias.expect_no_event(Duration::from_millis(5), &[(A, end.conn)]);
    ias.a.ep_set_watermark(now, end.ep, None, None).unwrap();
    let peer = ias.end(B);
    ias.connect(&end, &peer);
    ias.expect_no_event(Duration::from_millis(5), &[(A, end.conn)]);
}
