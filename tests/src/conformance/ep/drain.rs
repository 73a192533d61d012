//! dat_ep_disconnect(3), graceful: requests complete first, whatever the consumer has dequeued.

use std::time::Duration;

use dat_core::{CloseFlag, CompletionFlags, DtoOperation, EpState, EvdFlags, Event, MemPriv};

use super::super::evd::MOMENT;
use super::super::{A, Adapters, B, End, NONE, Side};
use super::flushed;

const SUPPRESS: CompletionFlags = CompletionFlags::SUPPRESS;
/// How long a graceful disconnect waits for requests that make no progress.
const PATIENCE: Duration = Duration::from_secs(30);

/// Several requests wait for the peer, and a bind behind them: the connection is there until each
/// has completed.
pub fn a_graceful_disconnect_completes_every_request(ias: &mut Adapters<'_, impl Side>) {
    let [from, to] = ias.merged();
    let mem = ias.mem(A, from.pz, 64, MemPriv::ALL);
    let rmr = ias.a.rmr_create(from.pz).unwrap();
    for cookie in 1..5 {
        ias.a.ep_post_send(from.ep, &[], cookie, NONE).unwrap();
    }
    let range = mem.seg(0, 8);
    ias.a.rmr_bind(rmr, &range, MemPriv::REMOTE_READ, from.ep, 5, NONE).unwrap();
    ias.disconnect(&from, CloseFlag::Graceful);
    for cookie in 1..5 {
        ias.expect_no_event(MOMENT, &[(A, from.conn), (B, to.conn)]);
        assert_eq!(ias.state(&from), EpState::DisconnectPending);
        ias.b.ep_post_recv(to.ep, &[], cookie, NONE).unwrap();
        ias.done(&to, DtoOperation::Receive, cookie);
        if cookie % 2 == 1 {
            // Its completion is there, and not dequeued: the requests behind it are still waited
            // for.
            ias.pass(MOMENT);
            assert_eq!(ias.state(&from), EpState::DisconnectPending);
        }
        ias.done(&from, DtoOperation::Send, cookie);
    }
    ias.bound(&from, rmr, 5);
    assert_eq!(ias.event(A, from.conn), Event::Disconnected(from.ep));
    assert_eq!(ias.event(B, to.conn), Event::Disconnected(to.ep));
}

/// The last request is a bind: it completes with success before the connection ends.
pub fn a_graceful_disconnect_completes_the_last_bind(ias: &mut Adapters<'_, impl Side>) {
    for (flags, binds) in [(NONE, 1), (NONE, 3), (SUPPRESS, 1), (SUPPRESS, 3)] {
        let [from, to] = ias.merged();
        let mem = ias.mem(A, from.pz, 64, MemPriv::ALL);
        let create = |_| ias.a.rmr_create(from.pz).unwrap();
        let rmrs: Vec<_> = (0..binds).map(create).collect();
        for (cookie, &rmr) in (0..).zip(&rmrs) {
            let range = mem.seg(8, 16);
            ias.a.rmr_bind(rmr, &range, MemPriv::REMOTE_WRITE, from.ep, cookie, flags).unwrap();
        }
        ias.disconnect(&from, CloseFlag::Graceful);
        if flags == NONE {
            for (cookie, &rmr) in (0..).zip(&rmrs) {
                ias.bound(&from, rmr, cookie);
            }
        }
        assert_eq!(ias.event(A, from.conn), Event::Disconnected(from.ep));
        assert_eq!(ias.event(B, to.conn), Event::Disconnected(to.ep));
        for rmr in rmrs {
            let bound = ias.a.rmr_query(rmr).unwrap().bound;
            assert_eq!(bound, Some(mem.seg(8, 16)));
        }
    }
}

/// Suppressed requests are waited for like all others.
pub fn a_graceful_disconnect_completes_suppressed_requests(ias: &mut Adapters<'_, impl Side>) {
    let [from, to] = ias.merged();
    let mem = ias.mem(A, from.pz, 64, MemPriv::ALL);
    let rmr = ias.a.rmr_create(from.pz).unwrap();
    for cookie in 0..3 {
        let posted = ias.a.ep_post_send(from.ep, &[], cookie, SUPPRESS);
        posted.unwrap();
    }
    let range = mem.seg(0, 8);
    ias.a.rmr_bind(rmr, &range, MemPriv::REMOTE_READ, from.ep, 3, SUPPRESS).unwrap();
    ias.disconnect(&from, CloseFlag::Graceful);
    for cookie in 0..3 {
        ias.expect_no_event(MOMENT, &[(A, from.conn), (B, to.conn)]);
        assert_eq!(ias.state(&from), EpState::DisconnectPending);
        ias.b.ep_post_recv(to.ep, &[], cookie, NONE).unwrap();
        ias.done(&to, DtoOperation::Receive, cookie);
    }
    assert_eq!(ias.event(A, from.conn), Event::Disconnected(from.ep));
    assert_eq!(ias.event(B, to.conn), Event::Disconnected(to.ep));
}

/// The consumer looks at its connect Event Dispatcher alone: completions that lie undequeued hold
/// nothing up, however many.
pub fn a_graceful_disconnect_needs_no_dequeue(ias: &mut Adapters<'_, impl Side>) {
    // Of the requests, every `each`-th has an event.
    for each in [1, 3, 16] {
        let [from, to] = ias.connected();
        let event = |cookie: u64| (cookie + 1) % each == 0;
        for cookie in 0..12 {
            ias.b.ep_post_recv(to.ep, &[], cookie, NONE).unwrap();
        }
        for cookie in 0..16 {
            let flags = if event(cookie) { NONE } else { SUPPRESS };
            let posted = ias.a.ep_post_send(from.ep, &[], cookie, flags);
            posted.unwrap();
        }
        for cookie in 0..12 {
            ias.done(&to, DtoOperation::Receive, cookie);
        }
        ias.disconnect(&from, CloseFlag::Graceful);
        ias.expect_no_event(MOMENT, &[(A, from.conn)]);
        assert_eq!(ias.state(&from), EpState::DisconnectPending);
        for cookie in 12..16 {
            ias.b.ep_post_recv(to.ep, &[], cookie, NONE).unwrap();
        }
        assert_eq!(ias.event(A, from.conn), Event::Disconnected(from.ep));
        for cookie in 12..16 {
            ias.done(&to, DtoOperation::Receive, cookie);
        }
        for cookie in (0..16).filter(|&cookie| event(cookie)) {
            ias.done(&from, DtoOperation::Send, cookie);
        }
        assert_eq!(ias.look(A, from.request), None);
        let now = ias.now();
        for end in [&from, &to] {
            ias[end.side].ep_free(now, end.ep).unwrap();
            for evd in [end.recv, end.request, end.conn] {
                ias[end.side].evd_free(evd).unwrap();
            }
        }
    }
}

/// An Endpoint on the DTO Event Dispatcher of another, with a connect Event Dispatcher of its own.
fn beside(ias: &mut Adapters<'_, impl Side>, other: &End) -> End {
    let conn = ias[other.side].evd_create(8, EvdFlags::CONNECTION).unwrap();
    let (pz, dto) = (Some(other.pz), Some(other.request));
    let ep = ias[other.side].ep_create(pz, dto, dto, Some(conn), None);
    End { recv: other.request, conn, ep: ep.unwrap(), ..*other }
}

/// The end of another Endpoint lies undequeued on the Event Dispatcher that both share: it holds
/// nothing up.
pub fn a_graceful_disconnect_does_not_wait_for_events_of_others(ias: &mut Adapters<'_, impl Side>) {
    let (first, peer) = (ias.merged_end(A), ias.end(B));
    let second = beside(ias, &first);
    let far = ias.end(B);
    ias.connect(&first, &peer);
    ias.connect(&second, &far);
    ias.disconnect(&peer, CloseFlag::Abrupt);
    ias.until(|ias| (ias.state(&first) == EpState::Disconnected).then_some(()));
    for cookie in 0..3 {
        ias.a.ep_post_send(second.ep, &[], cookie, NONE).unwrap();
    }
    ias.disconnect(&second, CloseFlag::Graceful);
    ias.expect_no_event(MOMENT, &[(A, second.conn)]);
    for cookie in 0..3 {
        ias.b.ep_post_recv(far.ep, &[], cookie, NONE).unwrap();
    }
    assert_eq!(ias.event(A, second.conn), Event::Disconnected(second.ep));
    assert_eq!(ias.event(B, far.conn), Event::Disconnected(far.ep));
    let mut ended = false;
    let mut sent = 0;
    for _ in 0..4 {
        match ias.event(A, first.conn) {
            Event::Disconnected(ep) if ep == first.ep && !ended => ended = true,
            Event::Dto(dto) if dto.ep == second.ep && dto.cookie == sent => sent += 1,
            other => panic!("{other:?}"),
        }
    }
    assert!(ended && sent == 3);
}

/// Endpoints that share an Event Dispatcher for DTOs are disconnected one after another, with the
/// completions of all undequeued.
pub fn graceful_disconnects_on_a_shared_evd_all_end(ias: &mut Adapters<'_, impl Side>) {
    for both in [false, true] {
        let mut ends: [Vec<End>; 2] = [A, B].map(|side| vec![ias.end(side)]);
        for list in &mut ends {
            while list.len() < 4 {
                let end = beside(ias, &list[0]);
                list.push(end);
            }
        }
        let pairs: Vec<[End; 2]> = (0..4).map(|i| [ends[A][i], ends[B][i]]).collect();
        for [from, to] in &pairs {
            ias.connect(from, to);
        }
        for end in pairs.iter().flatten() {
            let ia = &mut ias[end.side].ia;
            for cookie in 0..3 {
                ia.ep_post_recv(end.ep, &[], cookie, NONE).unwrap();
            }
        }
        for end in pairs.iter().flatten() {
            let ia = &mut ias[end.side].ia;
            for cookie in 0..3 {
                ia.ep_post_send(end.ep, &[], cookie, NONE).unwrap();
            }
        }
        ias.pass(MOMENT);
        for [from, to] in &pairs {
            ias.disconnect(from, CloseFlag::Graceful);
            if both {
                ias.disconnect(to, CloseFlag::Graceful);
            }
        }
        for end in pairs.iter().flatten() {
            let event = ias.event(end.side, end.conn);
            assert_eq!(event, Event::Disconnected(end.ep));
        }
        // Every request has its completion, in the order of its Endpoint.
        for list in &ends {
            let mut sent = [0; 4];
            while sent != [3; 4] {
                let dto = ias.dto(list[0].side, list[0].request);
                let at = list.iter().position(|end| end.ep == dto.ep).unwrap();
                if dto.operation == DtoOperation::Send {
                    assert_eq!(dto.cookie, sent[at]);
                    sent[at] += 1;
                }
            }
        }
        let now = ias.now();
        for end in pairs.iter().flatten() {
            ias[end.side].ep_free(now, end.ep).unwrap();
            ias[end.side].evd_free(end.conn).unwrap();
        }
        for list in &ends {
            for evd in [list[0].recv, list[0].request] {
                ias[list[0].side].evd_free(evd).unwrap();
            }
        }
    }
}

/// The peer has no receives: the disconnect becomes an abrupt one when no request has completed for
/// a while.
pub fn a_graceful_disconnect_without_progress_becomes_abrupt(ias: &mut Adapters<'_, impl Side>) {
    let [from, to] = ias.merged();
    for cookie in 1..3 {
        ias.a.ep_post_send(from.ep, &[], cookie, NONE).unwrap();
    }
    ias.disconnect(&from, CloseFlag::Graceful);
    ias.expect_no_event(Duration::from_secs(2), &[(A, from.conn), (B, to.conn)]);
    ias.b.ep_post_recv(to.ep, &[], 1, NONE).unwrap();
    ias.done(&from, DtoOperation::Send, 1);
    let (progress, slack) = (ias.now(), Duration::from_secs(1));
    assert_eq!(ias.state(&from), EpState::DisconnectPending);
    ias.until(|ias| {
        let over = ias.now().since(progress) >= PATIENCE / 2;
        over.then_some(())
    });
    assert_eq!(ias.state(&from), EpState::DisconnectPending);
    ias.until(|ias| (ias.state(&from) == EpState::Disconnected).then_some(()));
    let took = ias.now().since(progress);
    assert!(took + slack >= PATIENCE, "{took:?}");
    assert!(took <= PATIENCE + slack + ias.slack(), "{took:?}");
    flushed(ias, &from, from.request, 2);
    assert_eq!(ias.event(A, from.conn), Event::Disconnected(from.ep));
    ias.done(&to, DtoOperation::Receive, 1);
    assert_eq!(ias.event(B, to.conn), Event::Disconnected(to.ep));
}

/// Active or passive, either side may end the connection, gracefully or abruptly.
pub fn either_side_may_disconnect_either_way(ias: &mut Adapters<'_, impl Side>) {
    let [from, to] = [ias.merged_end(A), ias.merged_end(B)];
    for by in [&from, &to] {
        for flag in [CloseFlag::Abrupt, CloseFlag::Graceful] {
            ias.connect(&from, &to);
            ias.disconnect(by, flag);
            for end in [&from, &to] {
                let event = ias.event(end.side, end.conn);
                assert_eq!(event, Event::Disconnected(end.ep));
                assert_eq!(ias.state(end), EpState::Disconnected);
                ias[end.side].ep_reset(end.ep).unwrap();
            }
        }
    }
}
