//! CONNECTED, DISCONNECT_PENDING, DISCONNECTED: traffic, its end, and what comes after.

use core::time::Duration;

use dat_core::cm::QpTerms;
use dat_core::provider::Mtu;
use dat_core::{
    AsyncEvent, CloseFlag, DatSubtype, DatType, DtoOperation, DtoStatus, EpState, EvdFlags, Event,
    MemPriv, Qos, RmrTriplet,
};

use super::super::{A, B, Bed, End, LIMIT, NONE, Side, refused};
use super::flushed;

const STATE: DatType = DatType::InvalidState;
const QOS: Qos = Qos::BestEffort;

/// Every kind of request works on a connection.
pub fn a_connection_carries_everything(bed: &mut Bed<'_, impl Side>) {
    let [from, to] = bed.connected();
    let (source, sink) =
        (bed.mem(A, from.pz, 64, MemPriv::ALL), bed.mem(B, to.pz, 64, MemPriv::ALL));
    bed.recv(&to, &sink, 0, 16, 1);
    bed.fill(&source, 0, b"by send by write");
    bed.send(&from, &source, 0, 7, 2);
    bed.done(&from, DtoOperation::Send, 2);
    assert_eq!(bed.done(&to, DtoOperation::Receive, 1), 7);
    let (seg, far) = (source.seg(8, 8), sink.far(32, 8));
    bed.a.ep_post_rdma_write(from.ep, &[seg], 3, &far, NONE).unwrap();
    assert_eq!(bed.done(&from, DtoOperation::RdmaWrite, 3), 8);
    let seg = source.seg(40, 8);
    bed.a.ep_post_rdma_read(from.ep, &[seg], 4, &far, NONE).unwrap();
    assert_eq!(bed.done(&from, DtoOperation::RdmaRead, 4), 8);
    assert_eq!(bed.bytes(&source, 40, 8), b"by write");
    assert_eq!(bed.bytes(&sink, 0, 7), b"by send");
    let rmr = bed.b.rmr_create(to.pz).unwrap();
    let range = sink.seg(0, 8);
    bed.b.rmr_bind(rmr, &range, MemPriv::REMOTE_READ, to.ep, 5, NONE).unwrap();
    let event = bed.event(B, to.request);
    assert!(matches!(event, Event::RmrBind { cookie: 5, .. }));
}

/// A request that fails takes the connection with it: its own completion first, then the flushed
/// ones, then the event.
pub fn a_failed_request_breaks_the_connection(bed: &mut Bed<'_, impl Side>) {
    let [from, to] = bed.merged();
    let source = bed.mem(A, from.pz, 64, MemPriv::ALL);
    let nowhere = RmrTriplet { addr: 0x1000, len: 8, context: 0xffff_ff00 };
    bed.a.ep_post_recv(from.ep, &[], 1, NONE).unwrap();
    let seg = source.seg(0, 8);
    bed.a.ep_post_rdma_write(from.ep, &[seg], 2, &nowhere, NONE).unwrap();
    bed.a.ep_post_send(from.ep, &[seg], 3, NONE).unwrap();
    let dto = bed.dto(A, from.request);
    assert_eq!((dto.cookie, dto.status), (2, DtoStatus::ErrRemoteAccess));
    let mut rest = [bed.dto(A, from.request), bed.dto(A, from.request)];
    rest.sort_by_key(|dto| dto.cookie);
    let rest = rest.map(|dto| (dto.cookie, dto.status));
    let flushed = DtoStatus::ErrFlushed;
    assert_eq!(rest, [(1, flushed), (3, flushed)]);
    bed.broken(A, from.conn, from.ep);
    assert_eq!(bed.state(&from), EpState::Disconnected);
    assert!(bed.a.ep_cause(from.ep).unwrap().is_some());
    bed.quiet(Duration::from_millis(50), &[(A, from.conn)]);
    let _ = to;
}

/// A receive that fails does the same on its side.
pub fn a_failed_receive_breaks_the_connection(bed: &mut Bed<'_, impl Side>) {
    let [from, to] = bed.connected();
    let (source, sink) =
        (bed.mem(A, from.pz, 64, MemPriv::ALL), bed.mem(B, to.pz, 64, MemPriv::ALL));
    bed.recv(&to, &sink, 0, 8, 1);
    bed.recv(&to, &sink, 8, 8, 2);
    bed.send(&from, &source, 0, 9, 3);
    let dto = bed.dto(B, to.recv);
    assert_eq!((dto.cookie, dto.status), (1, DtoStatus::ErrLocalLength));
    flushed(bed, &to, to.recv, 2);
    bed.broken(B, to.conn, to.ep);
    let dto = bed.dto(A, from.request);
    assert_eq!((dto.cookie, dto.status), (3, DtoStatus::ErrRemoteResponder));
    bed.broken(A, from.conn, from.ep);
}

/// A peer that answers nothing, for the fabric's own idea of a connection.
fn to_nobody<S: Side>(bed: &mut Bed<'_, S>) -> End {
    let end = bed.end(A);
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
    };
    let (now, to) = (bed.now(), bed.b.address());
    bed.a.ep_connect_direct(now, end.ep, to, &terms, LIMIT).unwrap();
    assert_eq!(bed.event(A, end.conn), Event::Established(end.ep));
    end
}

/// The transport gives up.
pub fn a_transport_failure_breaks_the_connection(bed: &mut Bed<'_, impl Side>) {
    let end = to_nobody(bed);
    bed.a.ep_post_recv(end.ep, &[], 1, NONE).unwrap();
    bed.a.ep_post_send(end.ep, &[], 2, NONE).unwrap();
    let dto = bed.dto(A, end.request);
    assert_eq!((dto.cookie, dto.status), (2, DtoStatus::ErrTransport));
    bed.broken(A, end.conn, end.ep);
    flushed(bed, &end, end.recv, 1);
}

/// The peer ends it: what is posted comes back, and one event.
pub fn the_peers_disconnect_ends_the_connection(bed: &mut Bed<'_, impl Side>) {
    let [from, to] = bed.connected();
    bed.b.ep_post_recv(to.ep, &[], 1, NONE).unwrap();
    bed.b.ep_post_recv(to.ep, &[], 2, NONE).unwrap();
    bed.disconnect(&from, CloseFlag::Abrupt);
    assert_eq!(bed.event(B, to.conn), Event::Disconnected(to.ep));
    assert_eq!(bed.state(&to), EpState::Disconnected);
    flushed(bed, &to, to.recv, 1);
    flushed(bed, &to, to.recv, 2);
    // Who asked for it hears the same.
    assert_eq!(bed.event(A, from.conn), Event::Disconnected(from.ep));
    bed.quiet(Duration::from_millis(50), &[(A, from.conn), (B, to.conn)]);
}

/// An abrupt end: what is outstanding comes back in order, then the event, on one Event Dispatcher.
pub fn an_abrupt_disconnect_flushes_first(bed: &mut Bed<'_, impl Side>) {
    let [from, to] = bed.merged();
    // The peer has no receive for them.
    for cookie in 1..4 {
        bed.a.ep_post_send(from.ep, &[], cookie, NONE).unwrap();
    }
    bed.disconnect(&from, CloseFlag::Abrupt);
    for cookie in 1..4 {
        flushed(bed, &from, from.request, cookie);
    }
    assert_eq!(bed.event(A, from.conn), Event::Disconnected(from.ep));
    bed.event(B, to.conn);
}

/// A connection of two merged Endpoints, and a send that waits for the peer's receive, with a
/// graceful disconnect behind it.
fn draining(bed: &mut Bed<'_, impl Side>) -> [End; 2] {
    let ends = bed.merged();
    bed.a.ep_post_send(ends[A].ep, &[], 1, NONE).unwrap();
    bed.disconnect(&ends[A], CloseFlag::Graceful);
    assert_eq!(bed.state(&ends[A]), EpState::DisconnectPending);
    ends
}

/// Requests may finish; then the connection ends like any other.
pub fn fault_19_a_graceful_disconnect_waits_for_requests(bed: &mut Bed<'_, impl Side>) {
    let [from, to] = draining(bed);
    bed.quiet(Duration::from_millis(50), &[(A, from.conn), (B, to.conn)]);
    assert_eq!(bed.state(&from), EpState::DisconnectPending);
    bed.b.ep_post_recv(to.ep, &[], 2, NONE).unwrap();
    bed.done(&to, DtoOperation::Receive, 2);
    bed.done(&from, DtoOperation::Send, 1);
    assert_eq!(bed.event(A, from.conn), Event::Disconnected(from.ep));
    assert_eq!(bed.state(&from), EpState::Disconnected);
    assert_eq!(bed.event(B, to.conn), Event::Disconnected(to.ep));
}

/// Of an idle connection there is nothing to wait for.
pub fn a_graceful_disconnect_of_an_idle_connection_is_immediate(bed: &mut Bed<'_, impl Side>) {
    let [from, to] = bed.connected();
    bed.a.ep_post_recv(from.ep, &[], 1, NONE).unwrap();
    bed.disconnect(&from, CloseFlag::Graceful);
    assert_eq!(bed.event(A, from.conn), Event::Disconnected(from.ep));
    // Receives are not waited for.
    flushed(bed, &from, from.recv, 1);
    bed.event(B, to.conn);
}

/// Asking again changes nothing.
pub fn fault_18_a_second_graceful_disconnect_does_nothing(bed: &mut Bed<'_, impl Side>) {
    let [from, to] = draining(bed);
    bed.disconnect(&from, CloseFlag::Graceful);
    assert_eq!(bed.state(&from), EpState::DisconnectPending);
    bed.b.ep_post_recv(to.ep, &[], 2, NONE).unwrap();
    bed.done(&from, DtoOperation::Send, 1);
    assert_eq!(bed.event(A, from.conn), Event::Disconnected(from.ep));
    bed.quiet(Duration::from_millis(50), &[(A, from.conn)]);
}

/// An abrupt one ends the waiting.
pub fn an_abrupt_disconnect_ends_the_drain(bed: &mut Bed<'_, impl Side>) {
    let [from, to] = draining(bed);
    bed.disconnect(&from, CloseFlag::Abrupt);
    flushed(bed, &from, from.request, 1);
    assert_eq!(bed.event(A, from.conn), Event::Disconnected(from.ep));
    bed.event(B, to.conn);
    bed.quiet(Duration::from_millis(50), &[(A, from.conn)]);
}

/// No new requests while it drains; receives as ever.
pub fn a_draining_endpoint_takes_no_requests(bed: &mut Bed<'_, impl Side>) {
    let [from, _] = draining(bed);
    let draining = DatSubtype::InvalidStateEpDiscPending;
    let mem = bed.mem(A, from.pz, 8, MemPriv::ALL);
    let (ia, ep, seg, far) = (&mut bed.a.ia, from.ep, mem.seg(0, 8), RmrTriplet::default());
    refused(ia.ep_post_send(ep, &[], 9, NONE), STATE, draining);
    refused(ia.ep_post_rdma_write(ep, &[seg], 9, &far, NONE), STATE, draining);
    refused(ia.ep_post_rdma_read(ep, &[seg], 9, &far, NONE), STATE, draining);
    let rmr = ia.rmr_create(from.pz).unwrap();
    let bound = ia.rmr_bind(rmr, &seg, MemPriv::REMOTE_READ, ep, 9, NONE);
    refused(bound, STATE, draining);
    ia.ep_post_recv(ep, &[], 7, NONE).unwrap();
    bed.disconnect(&from, CloseFlag::Abrupt);
    let mut back = [bed.dto(A, from.recv), bed.dto(A, from.recv)].map(|dto| dto.cookie);
    back.sort_unstable();
    assert_eq!(back, [1, 7]);
}

/// What fails while it drains ends in the one event, which is no other than that of the disconnect.
pub fn a_failure_while_draining_ends_in_disconnected(bed: &mut Bed<'_, impl Side>) {
    let [from, to] = bed.merged();
    let (source, sink) =
        (bed.mem(A, from.pz, 16, MemPriv::ALL), bed.mem(B, to.pz, 16, MemPriv::ALL));
    bed.send(&from, &source, 0, 16, 1);
    bed.disconnect(&from, CloseFlag::Graceful);
    bed.recv(&to, &sink, 0, 8, 2);
    let dto = bed.dto(A, from.request);
    assert_eq!((dto.cookie, dto.status), (1, DtoStatus::ErrRemoteResponder));
    assert_eq!(bed.event(A, from.conn), Event::Disconnected(from.ep));
    bed.quiet(Duration::from_millis(50), &[(A, from.conn)]);
}

/// Both sides at once: one event each.
pub fn crossing_disconnects_end_in_one_event_each(bed: &mut Bed<'_, impl Side>) {
    let [from, to] = draining(bed);
    bed.disconnect(&to, CloseFlag::Abrupt);
    assert_eq!(bed.event(B, to.conn), Event::Disconnected(to.ep));
    // Whether the fabric was quicker to see it than the connection manager is the fabric's affair.
    let dto = bed.dto(A, from.request);
    let ends = [DtoStatus::ErrFlushed, DtoStatus::ErrTransport];
    assert!(dto.cookie == 1 && ends.contains(&dto.status), "{dto:?}");
    assert_eq!(bed.event(A, from.conn), Event::Disconnected(from.ep));
    bed.quiet(Duration::from_millis(50), &[(A, from.conn), (B, to.conn)]);
}

/// A connection is not connected again.
pub fn a_connected_endpoint_refuses_another_connection(bed: &mut Bed<'_, impl Side>) {
    let [from, to] = bed.connected();
    let connected = DatSubtype::InvalidStateEpConnected;
    let (point, client) = (bed.listen(B), bed.end(A));
    bed.ask(&client, point.qualifier, LIMIT, b"");
    let cr = bed.request(&point);
    let (now, peer) = (bed.now(), bed.b.address());
    let asked = bed.a.ep_connect(now, from.ep, peer, 7, LIMIT, b"", QOS);
    refused(asked, STATE, connected);
    refused(bed.a.ep_reset(from.ep), STATE, connected);
    let accepted = bed.b.cr_accept(now, cr, Some(to.ep), b"");
    refused(accepted, STATE, connected);
    let evd = bed.a.evd_create(8, EvdFlags::CR).unwrap();
    let qualifier = bed.free_qualifier();
    let reserved = bed.a.rsp_create(qualifier, Some(from.ep), evd);
    refused(reserved, STATE, connected);
    bed.a.evd_free(evd).unwrap();
}

/// Freeing a connected Endpoint ends its connection.
pub fn free_ends_a_connection(bed: &mut Bed<'_, impl Side>) {
    let [from, to] = bed.connected();
    bed.b.ep_post_recv(to.ep, &[], 1, NONE).unwrap();
    bed.a.ep_post_recv(from.ep, &[], 2, NONE).unwrap();
    let now = bed.now();
    bed.a.ep_free(now, from.ep).unwrap();
    bed.a.evd_free(from.conn).unwrap();
    assert_eq!(bed.event(B, to.conn), Event::Disconnected(to.ep));
    flushed(bed, &to, to.recv, 1);
}

/// Nothing is left to disconnect, and that is no error.
pub fn a_disconnected_endpoint_may_be_disconnected_again(bed: &mut Bed<'_, impl Side>) {
    let [from, to] = bed.connected();
    bed.disconnect(&from, CloseFlag::Abrupt);
    bed.event(A, from.conn);
    bed.event(B, to.conn);
    for flag in [CloseFlag::Abrupt, CloseFlag::Graceful] {
        bed.disconnect(&from, flag);
        bed.disconnect(&to, flag);
    }
    bed.quiet(Duration::from_millis(50), &[(A, from.conn), (B, to.conn)]);
}

/// Markers: what is posted to a disconnected Endpoint comes back flushed behind everything that was
/// there before.
pub fn fault_11_markers_come_back_last(bed: &mut Bed<'_, impl Side>) {
    let [from, to] = bed.connected();
    let mem = bed.mem(A, from.pz, 8, MemPriv::ALL);
    let rmr = bed.a.rmr_create(from.pz).unwrap();
    bed.a.ep_post_recv(from.ep, &[], 1, NONE).unwrap();
    bed.a.ep_post_send(from.ep, &[], 2, NONE).unwrap();
    bed.disconnect(&from, CloseFlag::Abrupt);
    bed.event(A, from.conn);
    bed.event(B, to.conn);
    let (seg, far) = (mem.seg(0, 8), RmrTriplet { len: 8, ..RmrTriplet::default() });
    let (ia, ep) = (&mut bed.a.ia, from.ep);
    ia.ep_post_recv(ep, &[], 3, NONE).unwrap();
    ia.ep_post_send(ep, &[seg], 4, NONE).unwrap();
    ia.ep_post_rdma_write(ep, &[seg], 5, &far, NONE).unwrap();
    ia.ep_post_rdma_read(ep, &[seg], 6, &far, NONE).unwrap();
    ia.rmr_bind(rmr, &seg, MemPriv::REMOTE_READ, ep, 7, NONE).unwrap();
    for cookie in [1, 3] {
        flushed(bed, &from, from.recv, cookie);
    }
    for cookie in [2, 4, 5, 6] {
        flushed(bed, &from, from.request, cookie);
    }
    let Event::RmrBind { cookie, status, .. } = bed.event(A, from.request) else { panic!() };
    assert_eq!((cookie, status), (7, DtoStatus::ErrFlushed));
}

/// After a reset the Endpoint is as new, and nothing of before is heard of it.
pub fn reset_makes_it_usable_again(bed: &mut Bed<'_, impl Side>) {
    let [from, to] = bed.connected();
    bed.a.ep_post_recv(from.ep, &[], 1, NONE).unwrap();
    bed.disconnect(&from, CloseFlag::Abrupt);
    bed.event(A, from.conn);
    bed.event(B, to.conn);
    bed.a.ep_reset(from.ep).unwrap();
    bed.b.ep_reset(to.ep).unwrap();
    assert_eq!(bed.state(&from), EpState::Unconnected);
    assert!(bed.a.ep_get_status(from.ep).unwrap().recv_idle);
    assert_eq!(bed.look(A, from.recv), None);
    bed.b.ep_post_recv(to.ep, &[], 2, NONE).unwrap();
    bed.connect(&from, &to);
    bed.a.ep_post_send(from.ep, &[], 3, NONE).unwrap();
    bed.done(&from, DtoOperation::Send, 3);
    bed.done(&to, DtoOperation::Receive, 2);
}

/// Completions that lie there at a reset are those of another life: none is taken for one of the
/// new one.
pub fn completions_of_an_earlier_life_are_dropped(bed: &mut Bed<'_, impl Side>) {
    let [from, to] = bed.connected();
    for cookie in 0..4 {
        bed.b.ep_post_recv(to.ep, &[], cookie, NONE).unwrap();
        bed.a.ep_post_send(from.ep, &[], cookie, NONE).unwrap();
    }
    for cookie in 0..4 {
        bed.done(&to, DtoOperation::Receive, cookie);
    }
    bed.disconnect(&from, CloseFlag::Abrupt);
    bed.event(A, from.conn);
    bed.event(B, to.conn);
    bed.a.ep_reset(from.ep).unwrap();
    bed.b.ep_reset(to.ep).unwrap();
    bed.b.ep_post_recv(to.ep, &[], 20, NONE).unwrap();
    bed.connect(&from, &to);
    bed.a.ep_post_send(from.ep, &[], 10, NONE).unwrap();
    bed.done(&from, DtoOperation::Send, 10);
    bed.done(&to, DtoOperation::Receive, 20);
}

/// It has to be reset before it is used for another connection.
pub fn a_disconnected_endpoint_is_not_connected_again(bed: &mut Bed<'_, impl Side>) {
    let [from, to] = bed.connected();
    bed.disconnect(&from, CloseFlag::Abrupt);
    bed.event(A, from.conn);
    bed.event(B, to.conn);
    let gone = DatSubtype::InvalidStateEpDisconnected;
    let (now, peer) = (bed.now(), bed.b.address());
    let asked = bed.a.ep_connect(now, from.ep, peer, 7, LIMIT, b"", QOS);
    refused(asked, STATE, gone);
    let (point, client) = (bed.listen(B), bed.end(A));
    bed.ask(&client, point.qualifier, LIMIT, b"");
    let cr = bed.request(&point);
    let now = bed.now();
    let accepted = bed.b.cr_accept(now, cr, Some(to.ep), b"");
    refused(accepted, STATE, gone);
    let qualifier = bed.free_qualifier();
    let reserved = bed.b.rsp_create(qualifier, Some(to.ep), point.evd);
    refused(reserved, STATE, gone);
    // But it may be freed.
    bed.b.ep_free(now, to.ep).unwrap();
}

/// The adapter's abrupt end takes its connections along.
pub fn closing_the_adapter_ends_connections(bed: &mut Bed<'_, impl Side>) {
    let [from, to] = bed.connected();
    bed.b.ep_post_recv(to.ep, &[], 1, NONE).unwrap();
    bed.a.close(CloseFlag::Abrupt).unwrap();
    assert_eq!(bed.event(B, to.conn), Event::Disconnected(to.ep));
    flushed(bed, &to, to.recv, 1);
    assert!(bed.a.ep_query(from.ep).is_err());
    bed.a.reopen();
}

/// Many receives flushed at once: each exactly once, in order, and no call waits for any of them.
pub fn fault_20_a_flush_is_no_loop(bed: &mut Bed<'_, impl Side>) {
    let [from, to] = bed.connected();
    let most = u64::from(bed.a.ep_query(from.ep).unwrap().attr.max_recv_dtos);
    for cookie in 0..most {
        bed.a.ep_post_recv(from.ep, &[], cookie, NONE).unwrap();
    }
    bed.disconnect(&from, CloseFlag::Abrupt);
    assert_eq!(bed.state(&from), EpState::Disconnected);
    for cookie in 0..most {
        flushed(bed, &from, from.recv, cookie);
    }
    bed.event(B, to.conn);
    bed.quiet(Duration::from_millis(10), &[(A, from.recv)]);
}

/// More receives than the soft watermark: told once, until it is set again.
pub fn fault_13_the_soft_watermark_tells_once(bed: &mut Bed<'_, impl Side>) {
    let [_, to] = bed.connected();
    let asynchronous = bed.b.async_evd();
    let now = bed.now();
    bed.b.ep_set_watermark(now, to.ep, Some(2), None).unwrap();
    for cookie in 0..2 {
        bed.b.ep_post_recv(to.ep, &[], cookie, NONE).unwrap();
    }
    bed.quiet(Duration::from_millis(5), &[(B, asynchronous)]);
    bed.b.ep_post_recv(to.ep, &[], 2, NONE).unwrap();
    let high = Event::Async(AsyncEvent::EpSoftHighWatermark(to.ep));
    assert_eq!(bed.event(B, asynchronous), high);
    assert_eq!(AsyncEvent::EpSoftHighWatermark(to.ep).reason(), 2);
    bed.b.ep_post_recv(to.ep, &[], 3, NONE).unwrap();
    bed.quiet(Duration::from_millis(5), &[(B, asynchronous)]);
    // Set again below what it has, it tells at once.
    bed.b.ep_set_watermark(now, to.ep, Some(1), None).unwrap();
    assert_eq!(bed.event(B, asynchronous), high);
    assert_eq!(bed.state(&to), EpState::Connected);
}

/// More receives than the hard watermark: the connection breaks.
pub fn the_hard_watermark_breaks_the_connection(bed: &mut Bed<'_, impl Side>) {
    let [from, to] = bed.connected();
    let now = bed.now();
    bed.b.ep_set_watermark(now, to.ep, None, Some(1)).unwrap();
    bed.b.ep_post_recv(to.ep, &[], 0, NONE).unwrap();
    bed.quiet(Duration::from_millis(5), &[(B, to.conn)]);
    bed.b.ep_post_recv(to.ep, &[], 1, NONE).unwrap();
    bed.broken(B, to.conn, to.ep);
    assert_eq!(bed.state(&to), EpState::Disconnected);
    for cookie in 0..2 {
        flushed(bed, &to, to.recv, cookie);
    }
    assert_eq!(bed.event(A, from.conn), Event::Disconnected(from.ep));
}

/// Watermarks may be set in any state, and none is the default.
pub fn watermarks_are_for_any_state(bed: &mut Bed<'_, impl Side>) {
    let end = bed.end(A);
    let asynchronous = bed.a.async_evd();
    for cookie in 0..4 {
        bed.a.ep_post_recv(end.ep, &[], cookie, NONE).unwrap();
    }
    bed.quiet(Duration::from_millis(5), &[(A, asynchronous)]);
    let now = bed.now();
    // Without a connection there is none to break.
    bed.a.ep_set_watermark(now, end.ep, None, Some(2)).unwrap();
    bed.quiet(Duration::from_millis(5), &[(A, end.conn)]);
    bed.a.ep_set_watermark(now, end.ep, None, None).unwrap();
    let peer = bed.end(B);
    bed.connect(&end, &peer);
    bed.quiet(Duration::from_millis(5), &[(A, end.conn)]);
}
