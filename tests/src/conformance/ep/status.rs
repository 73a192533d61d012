//! dat_ep_get_status(3), dat_ep_recv_query(3) and dat_ep_set_watermark(3): what is outstanding,
//! dequeued or not.

use dat_core::{
    AsyncEvent, CloseFlag, CompletionFlags, DtoOperation, DtoStatus, EpState, EvdFlags, Event,
    MemPriv,
};

use super::super::evd::MOMENT;
use super::super::{A, Adapters, B, End, LIMIT, NONE, Side};
use super::{next_request, reserve};

const SUPPRESS: CompletionFlags = CompletionFlags::SUPPRESS;

fn recv_idle(ias: &mut Adapters<'_, impl Side>, end: &End) -> bool {
    ias[end.side].ep_get_status(end.ep).unwrap().recv_idle
}

fn request_idle(ias: &mut Adapters<'_, impl Side>, end: &End) -> bool {
    ias[end.side].ep_get_status(end.ep).unwrap().request_idle
}

/// Waits until no request is outstanding.
#[track_caller]
fn until_request_idle(ias: &mut Adapters<'_, impl Side>, end: &End) {
    ias.until(|ias| request_idle(ias, end).then_some(()));
}

/// Waits until no receive is outstanding.
#[track_caller]
fn until_recv_idle(ias: &mut Adapters<'_, impl Side>, end: &End) {
    ias.until(|ias| recv_idle(ias, end).then_some(()));
}

/// Receives that the Endpoint holds, which its provider counts.
fn allocated(ias: &mut Adapters<'_, impl Side>, end: &End) -> u32 {
    let info = ias[end.side].ep_recv_query(end.ep).unwrap();
    assert!(info.bufs_alloc_span >= info.nbufs_allocated, "{info:?}");
    info.nbufs_allocated.unwrap()
}

/// A DTO is outstanding until it has completed; a completion that was not dequeued makes no
/// difference.
pub fn idle_flags_do_not_wait_for_a_dequeue(ias: &mut Adapters<'_, impl Side>) {
    let [from, to] = ias.connected();
    assert!(request_idle(ias, &from) && recv_idle(ias, &to));
    ias.a.ep_post_send(from.ep, &[], 0, NONE).unwrap();
    // The peer has no receive for it.
    ias.pass(MOMENT);
    assert!(!request_idle(ias, &from) && recv_idle(ias, &from));
    for cookie in 0..3 {
        ias.b.ep_post_recv(to.ep, &[], cookie, NONE).unwrap();
    }
    until_request_idle(ias, &from);
    ias.pass(MOMENT);
    assert!(!recv_idle(ias, &to) && request_idle(ias, &to));
    for cookie in 1..3 {
        ias.a.ep_post_send(from.ep, &[], cookie, NONE).unwrap();
    }
    until_request_idle(ias, &from);
    until_recv_idle(ias, &to);
    for cookie in 0..3 {
        ias.done(&from, DtoOperation::Send, cookie);
        ias.done(&to, DtoOperation::Receive, cookie);
    }
    assert!(request_idle(ias, &from) && recv_idle(ias, &to));
}

/// A request of any kind is outstanding when it was posted, and idle again when it has completed
/// without an event.
pub fn request_idle_counts_suppressed_requests(ias: &mut Adapters<'_, impl Side>) {
    let [from, to] = ias.connected();
    let mems = [(A, from.pz), (B, to.pz)].map(|(side, pz)| ias.mem(side, pz, 64, MemPriv::ALL));
    let rmr = ias.a.rmr_create(from.pz).unwrap();
    let (ep, seg, far) = (from.ep, mems[A].seg(0, 8), mems[B].far(0, 8));
    for round in 0..4 {
        let ia = &mut ias.a.ia;
        // The peer has no receive for it: what comes behind it waits.
        ia.ep_post_send(ep, &[], 0, SUPPRESS).unwrap();
        match round {
            0 => {}
            1 => ia.ep_post_rdma_write(ep, &[seg], 1, &far, SUPPRESS).unwrap(),
            2 => ia.ep_post_rdma_read(ep, &[seg], 1, &far, SUPPRESS).unwrap(),
            _ => {
                let bound = ia.rmr_bind(rmr, &seg, MemPriv::REMOTE_READ, ep, 1, SUPPRESS);
                bound.unwrap();
            }
        }
        ias.pass(MOMENT);
        assert!(!request_idle(ias, &from), "{round}");
        ias.b.ep_post_recv(to.ep, &[], round, NONE).unwrap();
        until_request_idle(ias, &from);
        ias.expect_no_event(MOMENT, &[(A, from.request)]);
    }
}

/// A bind, a read and a write are requests as a send is: each alone is outstanding until it has
/// completed.
pub fn request_idle_counts_requests_of_every_kind(ias: &mut Adapters<'_, impl Side>) {
    let [from, to] = ias.connected();
    let mems = [(A, from.pz), (B, to.pz)].map(|(side, pz)| ias.mem(side, pz, 64, MemPriv::ALL));
    let rmr = ias.a.rmr_create(from.pz).unwrap();
    let (ep, seg, far) = (from.ep, mems[A].seg(0, 8), mems[B].far(0, 8));
    for round in 0..3 {
        let ia = &mut ias.a.ia;
        // The peer has no receive for it: what comes behind it waits.
        ia.ep_post_send(ep, &[], 0, SUPPRESS).unwrap();
        match round {
            0 => ia.ep_post_rdma_write(ep, &[seg], 1, &far, NONE).unwrap(),
            1 => ia.ep_post_rdma_read(ep, &[seg], 1, &far, NONE).unwrap(),
            _ => {
                let bound = ia.rmr_bind(rmr, &seg, MemPriv::REMOTE_READ, ep, 1, NONE);
                bound.unwrap();
            }
        }
        ias.pass(MOMENT);
        assert!(!request_idle(ias, &from), "{round}");
        ias.b.ep_post_recv(to.ep, &[], round, NONE).unwrap();
        until_request_idle(ias, &from);
        let event = ias.event(A, from.request);
        let success = match event {
            Event::Dto(dto) => dto.status == DtoStatus::Success,
            Event::RmrBind { status, .. } => status == DtoStatus::Success,
            _ => false,
        };
        assert!(success, "{event:?}");
    }
}

/// DTOs that the end of a connection flushed have completed: nothing is outstanding, though nothing
/// was dequeued.
pub fn flushed_dtos_are_not_outstanding(ias: &mut Adapters<'_, impl Side>) {
    let [from, to] = ias.connected();
    for cookie in 0..3 {
        ias.a.ep_post_recv(from.ep, &[], cookie, NONE).unwrap();
        ias.a.ep_post_send(from.ep, &[], cookie, NONE).unwrap();
    }
    ias.disconnect(&from, CloseFlag::Abrupt);
    assert_eq!(ias.event(A, from.conn), Event::Disconnected(from.ep));
    ias.event(B, to.conn);
    until_request_idle(ias, &from);
    until_recv_idle(ias, &from);
    assert_eq!(allocated(ias, &from), 0);
    for cookie in 0..3 {
        super::flushed(ias, &from, from.request, cookie);
        super::flushed(ias, &from, from.recv, cookie);
    }
}

/// A receive that has completed is allocated no more, though its completion was not dequeued.
pub fn recv_query_counts_receives_that_have_not_completed(ias: &mut Adapters<'_, impl Side>) {
    let [from, to] = ias.connected();
    for cookie in 0..4 {
        ias.b.ep_post_recv(to.ep, &[], cookie, NONE).unwrap();
    }
    assert_eq!(allocated(ias, &to), 4);
    for left in [3, 2] {
        ias.a.ep_post_send(from.ep, &[], left, NONE).unwrap();
        ias.until(|ias| (u64::from(allocated(ias, &to)) == left).then_some(()));
    }
    for cookie in 0..2 {
        ias.done(&to, DtoOperation::Receive, cookie);
        assert_eq!(allocated(ias, &to), 2);
    }
}

/// A watermark counts the receives that have not completed.
pub fn watermarks_count_receives_that_have_not_completed(ias: &mut Adapters<'_, impl Side>) {
    let [from, to] = ias.connected();
    let (now, asynchronous) = (ias.now(), ias.b.async_evd());
    ias.b.ep_set_watermark(now, to.ep, Some(2), Some(3)).unwrap();
    // Four receives, of which two have completed.
    for cookie in 0..4 {
        if cookie == 2 {
            for cookie in 0..2 {
                ias.a.ep_post_send(from.ep, &[], cookie, NONE).unwrap();
            }
            for cookie in 0..2 {
                ias.done(&from, DtoOperation::Send, cookie);
            }
            ias.pass(MOMENT);
        }
        ias.b.ep_post_recv(to.ep, &[], cookie, NONE).unwrap();
    }
    ias.expect_no_event(MOMENT, &[(B, asynchronous), (B, to.conn)]);
    ias.b.ep_post_recv(to.ep, &[], 4, NONE).unwrap();
    let high = Event::Async(AsyncEvent::EpSoftHighWatermark(to.ep));
    assert_eq!(ias.event(B, asynchronous), high);
    ias.expect_no_event(MOMENT, &[(B, to.conn)]);
    ias.b.ep_post_recv(to.ep, &[], 5, NONE).unwrap();
    ias.broken(B, to.conn, to.ep);
    for cookie in 0..2 {
        ias.done(&to, DtoOperation::Receive, cookie);
    }
    ias.event(A, from.conn);
}

/// As many receives as a watermark says do not exceed it: neither when they are posted nor when it
/// is set.
pub fn as_many_receives_as_a_watermark_do_not_exceed_it(ias: &mut Adapters<'_, impl Side>) {
    let [from, to] = ias.connected();
    let (now, asynchronous) = (ias.now(), ias.b.async_evd());
    let high = Event::Async(AsyncEvent::EpSoftHighWatermark(to.ep));
    for cookie in 0..2 {
        ias.b.ep_post_recv(to.ep, &[], cookie, NONE).unwrap();
    }
    let nothing = [(B, asynchronous), (B, to.conn)];
    ias.b.ep_set_watermark(now, to.ep, Some(2), Some(3)).unwrap();
    ias.expect_no_event(MOMENT, &nothing);
    ias.b.ep_post_recv(to.ep, &[], 2, NONE).unwrap();
    assert_eq!(ias.event(B, asynchronous), high);
    ias.expect_no_event(MOMENT, &nothing);
    ias.b.ep_set_watermark(now, to.ep, Some(3), Some(3)).unwrap();
    ias.expect_no_event(MOMENT, &nothing);
    // The hard one alone is exceeded by one receive more.
    ias.b.ep_set_watermark(now, to.ep, None, Some(3)).unwrap();
    ias.b.ep_post_recv(to.ep, &[], 3, NONE).unwrap();
    ias.broken(B, to.conn, to.ep);
    assert_eq!(ias.look(B, asynchronous), None);
    ias.event(A, from.conn);
    // Set below what there is, the hard one breaks at once.
    let [from, to] = ias.connected();
    ias.b.ep_post_recv(to.ep, &[], 0, NONE).unwrap();
    ias.b.ep_set_watermark(now, to.ep, None, Some(0)).unwrap();
    ias.broken(B, to.conn, to.ep);
    ias.event(A, from.conn);
}

/// Checks state and peer of an Endpoint with both calls that report them.
#[track_caller]
fn is(ias: &mut Adapters<'_, impl Side>, end: &End, state: EpState, peer: bool) {
    assert_eq!(ias.state(end), state);
    let param = ias[end.side].ep_query(end.ep).unwrap();
    assert_eq!(param.state, state);
    assert_eq!(param.local, ias[end.side].address());
    if peer {
        assert_eq!(param.remote, Some(ias[1 - end.side].address()), "{state:?}");
        assert!(param.local_port != 0 && param.remote_port != 0, "{param:?}");
    } else {
        assert_eq!(param.remote, None, "{state:?}");
        assert_eq!((param.local_port, param.remote_port), (0, 0), "{state:?}");
    }
}

/// Both calls report each state of a connection, on the active side and on the passive side; the
/// peer's address and the ports are there in all states from the request to the end of the
/// connection.
pub fn status_and_query_report_each_state(ias: &mut Adapters<'_, impl Side>) {
    use EpState as S;
    let [client, server] = [ias.end(A), ias.end(B)];
    for end in [&client, &server] {
        is(ias, end, S::Unconnected, false);
    }
    let (rsp, evd, qualifier) = reserve(ias, &server);
    is(ias, &server, S::Reserved, false);
    ias.ask(&client, qualifier, LIMIT, b"");
    is(ias, &client, S::ActiveConnectionPending, true);
    let cr = next_request(ias, B, evd);
    is(ias, &server, S::PassiveConnectionPending, true);
    let now = ias.now();
    ias.b.cr_accept(now, cr, None, b"").unwrap();
    is(ias, &server, S::CompletionPending, true);
    for end in [&client, &server] {
        assert_eq!(ias.event(end.side, end.conn), Event::Established(end.ep));
        is(ias, end, S::Connected, true);
    }
    let [active, passive] = [&client, &server].map(|end| ias[end.side].ep_query(end.ep).unwrap());
    assert_eq!(u64::from(active.remote_port), qualifier);
    assert_eq!(passive.remote_port, active.local_port);
    // A send without a receive holds the disconnect up.
    ias.a.ep_post_send(client.ep, &[], 1, NONE).unwrap();
    ias.disconnect(&client, CloseFlag::Graceful);
    is(ias, &client, S::DisconnectPending, true);
    ias.b.ep_post_recv(server.ep, &[], 1, NONE).unwrap();
    for end in [&client, &server] {
        assert_eq!(ias.event(end.side, end.conn), Event::Disconnected(end.ep));
        let param = ias[end.side].ep_query(end.ep).unwrap();
        assert_eq!((ias.state(end), param.state), (S::Disconnected, S::Disconnected));
        ias[end.side].ep_reset(end.ep).unwrap();
        is(ias, end, S::Unconnected, false);
    }
    let now = ias.now();
    ias.b.rsp_free(now, rsp).unwrap();
    ias.b.evd_free(evd).unwrap();
}

/// Zone, Event Dispatchers and attributes are reported as they were given, before, in and after a
/// connection.
pub fn query_reports_zone_evds_and_attributes_in_each_state(ias: &mut Adapters<'_, impl Side>) {
    let end = ias.end_with(A, false, |attr| attr.max_recv_dtos = 7);
    let merged = ias.merged_end(B);
    let made = [&end, &merged].map(|end| ias[end.side].ep_query(end.ep).unwrap());
    assert_eq!(made[A].attr.max_recv_dtos, 7);
    let same = |ias: &mut Adapters<'_, _>| {
        for (end, made) in [&end, &merged].into_iter().zip(&made) {
            let param = ias[end.side].ep_query(end.ep).unwrap();
            assert_eq!((param.pz, param.srq), (Some(end.pz), None));
            let evds = (param.recv_evd, param.request_evd, param.connect_evd);
            assert_eq!(evds, (Some(end.recv), Some(end.request), Some(end.conn)));
            assert_eq!((param.attr, param.datagrams), (made.attr, false));
        }
    };
    same(ias);
    ias.connect(&end, &merged);
    same(ias);
    ias.disconnect(&end, CloseFlag::Graceful);
    for end in [&end, &merged] {
        assert_eq!(ias.event(end.side, end.conn), Event::Disconnected(end.ep));
    }
    same(ias);
    for end in [&end, &merged] {
        ias[end.side].ep_reset(end.ep).unwrap();
    }
    same(ias);
    // Another connect Event Dispatcher is reported at once.
    let conn = ias.a.evd_create(8, EvdFlags::CONNECTION).unwrap();
    let change = dat_core::EpModify { connect_evd: Some(conn), ..dat_core::EpModify::default() };
    ias.a.ep_modify(end.ep, &change).unwrap();
    assert_eq!(ias.a.ep_query(end.ep).unwrap().connect_evd, Some(conn));
}
