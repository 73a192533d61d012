//! Terminal connection events and dat_ep_reset(3): in which order they come, and that none is lost.

use std::time::Duration;

use dat_core::{
    CloseFlag, DatSubtype, DatType, DtoOperation, DtoStatus, Ep, EpState, Evd, EvdFlags, Event,
    MemPriv, Qos,
};

use super::super::evd::MOMENT;
use super::super::{A, Adapters, B, End, LIMIT, NONE, Side, refused};

/// Waits until the Endpoint is in that state, without a dequeue.
#[track_caller]
fn until_state(ias: &mut Adapters<'_, impl Side>, end: &End, state: EpState) {
    ias.until(|ias| (ias.state(end) == state).then_some(()));
}

/// Connects without a dequeue on the side that asks.
#[track_caller]
fn connect_undequeued(ias: &mut Adapters<'_, impl Side>, from: &End, to: &End) {
    let point = ias.listen(to.side);
    ias.ask(from, point.qualifier, LIMIT, b"");
    let cr = ias.request(&point);
    let now = ias.now();
    ias[to.side].cr_accept(now, cr, Some(to.ep), b"").unwrap();
    assert_eq!(ias.event(to.side, to.conn), Event::Established(to.ep));
    until_state(ias, from, EpState::Connected);
    ias[point.side].psp_free(point.psp).unwrap();
    ias[point.side].evd_free(point.evd).unwrap();
}

/// All that is queued.
fn all(ias: &mut Adapters<'_, impl Side>, side: usize, evd: Evd) -> Vec<Event> {
    std::iter::from_fn(|| ias.look(side, evd)).collect()
}

/// An Endpoint of side A with one Event Dispatcher for everything that another has as well.
fn beside(ias: &mut Adapters<'_, impl Side>, other: &End) -> End {
    let (pz, evd) = (Some(other.pz), Some(other.conn));
    let ep = ias[other.side].ep_create(pz, evd, evd, evd, None).unwrap();
    End { ep, ..*other }
}

/// Another Endpoint of the same Event Dispatcher never stops: the event of the one that ended comes
/// all the same.
pub fn a_disconnected_event_does_not_wait_for_other_endpoints(ias: &mut Adapters<'_, impl Side>) {
    let ended = ias.merged_end(A);
    let busy = beside(ias, &ended);
    let peers = [ias.end(B), ias.end(B)];
    ias.connect(&ended, &peers[0]);
    ias.connect(&busy, &peers[1]);
    ias.a.ep_post_recv(ended.ep, &[], 7, NONE).unwrap();
    let evd = busy.conn;
    let mut posted = 0;
    let mut taken = 0;
    let mut flushed = false;
    // More than what the queue can hold when the connection ends.
    for round in 0..500 {
        if round == 20 {
            ias.disconnect(&ended, CloseFlag::Abrupt);
        }
        while posted < taken + 8 {
            ias.b.ep_post_recv(peers[1].ep, &[], posted, NONE).unwrap();
            ias.a.ep_post_send(busy.ep, &[], posted, NONE).unwrap();
            posted += 1;
        }
        // There is always something to dequeue before the next one.
        ias.until(|ias| (ias.a.evd_more(evd).unwrap() >= 3).then_some(()));
        while ias.look(B, peers[1].recv).is_some() {}
        match ias.look(A, evd) {
            Some(Event::Dto(dto)) if dto.ep == busy.ep => {
                assert_eq!((dto.cookie, dto.status), (taken, DtoStatus::Success));
                taken += 1;
            }
            Some(Event::Dto(dto)) => {
                assert_eq!((dto.cookie, dto.status), (7, DtoStatus::ErrFlushed));
                flushed = true;
            }
            other => {
                assert_eq!(other, Some(Event::Disconnected(ended.ep)));
                assert!(flushed, "the receive comes first");
                ias.event(B, peers[0].conn);
                return;
            }
        }
    }
    panic!("{taken} completions of another Endpoint came, and no Disconnected");
}

/// An Endpoint is connected again and again, and nothing is dequeued meanwhile: its events are
/// those of its connections, in order.
pub fn events_of_successive_connections_come_in_order(ias: &mut Adapters<'_, impl Side>) {
    for by in [A, B] {
        let [from, to] = ias.merged();
        let ends = [from, to];
        for _ in 0..3 {
            ias.a.ep_post_recv(from.ep, &[], 1, NONE).unwrap();
            ias.a.ep_post_recv(from.ep, &[], 2, NONE).unwrap();
            ias.b.ep_post_send(to.ep, &[], 3, NONE).unwrap();
            ias.done(&to, DtoOperation::Send, 3);
            ias.disconnect(&ends[by], CloseFlag::Abrupt);
            assert_eq!(ias.event(B, to.conn), Event::Disconnected(to.ep));
            until_state(ias, &from, EpState::Disconnected);
            for end in ends {
                ias[end.side].ep_reset(end.ep).unwrap();
            }
            connect_undequeued(ias, &from, &to);
        }
        ias.a.ep_post_recv(from.ep, &[], 30, NONE).unwrap();
        ias.b.ep_post_send(to.ep, &[], 3, NONE).unwrap();
        ias.done(&to, DtoOperation::Send, 3);
        ias.pass(MOMENT);
        let events = all(ias, A, from.conn);
        let [d, e] = [Event::Disconnected(from.ep), Event::Established(from.ep)];
        let of_connections = events.iter().filter(|event| [d, e].contains(event));
        assert!(of_connections.eq(&[d, e, d, e, d, e]), "{events:?}");
        // Completions of the last connection come behind the end of the one before.
        let at = |wanted: &dyn Fn(&Event) -> bool| events.iter().rposition(wanted).unwrap();
        let received = at(&|event| matches!(event, Event::Dto(dto) if dto.cookie == 30));
        assert!(at(&|event| *event == d) < received, "{events:?}");
    }
}

/// Fills an Event Dispatcher of side A with software events.
fn fill(ias: &mut Adapters<'_, impl Side>, evd: Evd) {
    let qlen = ias.a.evd_query(evd).unwrap().qlen;
    for pointer in 0..u64::from(qlen) {
        ias.a.evd_post_se(evd, pointer).unwrap();
    }
}

/// All that it was filled with comes in order, and that event of another stream, wherever.
#[track_caller]
fn full_and(ias: &mut Adapters<'_, impl Side>, evd: Evd, terminal: Event) {
    let qlen = ias.a.evd_query(evd).unwrap().qlen;
    let mut events: Vec<Event> = (0..=qlen).map(|_| ias.event(A, evd)).collect();
    events.retain(|event| *event != terminal);
    let software: Vec<Event> = (0..u64::from(qlen)).map(Event::Software).collect();
    assert_eq!(events, software);
}

/// The connect Event Dispatcher is full of other events when a connection, or an attempt, ends: the
/// event comes as soon as there is space, and nothing overflows.
pub fn a_full_evd_loses_no_terminal_event(ias: &mut Adapters<'_, impl Side>) {
    let asynchronous = ias.a.async_evd();
    for way in 0..4 {
        let like = ias.end(A);
        let flags = EvdFlags::CONNECTION | EvdFlags::SOFTWARE;
        let conn = ias.a.evd_create(2, flags).unwrap();
        let (pz, recv, request) = (Some(like.pz), Some(like.recv), Some(like.request));
        let ep = ias.a.ep_create(pz, recv, request, Some(conn), None);
        let end = End { conn, ep: ep.unwrap(), ..like };
        let event = match way {
            0 | 1 => {
                let peer = ias.end(B);
                ias.connect(&end, &peer);
                fill(ias, conn);
                let by = if way == 0 { &peer } else { &end };
                ias.disconnect(by, CloseFlag::Abrupt);
                assert_eq!(ias.event(B, peer.conn), Event::Disconnected(peer.ep));
                Event::Disconnected(end.ep)
            }
            2 => {
                fill(ias, conn);
                let qualifier = ias.free_qualifier();
                ias.ask(&end, qualifier, LIMIT, b"");
                Event::NonPeerRejected(end.ep)
            }
            _ => {
                fill(ias, conn);
                let point = ias.listen(B);
                ias.ask(&end, point.qualifier, MOMENT, b"");
                Event::TimedOut(end.ep)
            }
        };
        until_state(ias, &end, EpState::Disconnected);
        ias.pass(MOMENT);
        full_and(ias, conn, event);
        ias.expect_no_event(MOMENT, &[(A, conn), (A, asynchronous)]);
        let now = ias.now();
        ias.a.ep_free(now, end.ep).unwrap();
        ias.a.ep_free(now, like.ep).unwrap();
        for evd in [like.recv, like.request, like.conn, conn] {
            ias.a.evd_free(evd).unwrap();
        }
    }
}

/// The Endpoint is freed, or reset, before its terminal event was dequeued from an Event Dispatcher
/// that is full: it comes.
pub fn neither_free_nor_reset_loses_a_terminal_event(ias: &mut Adapters<'_, impl Side>) {
    for (free, merged) in [(false, false), (true, false), (false, true), (true, true)] {
        let dto = if merged { EvdFlags::DTO | EvdFlags::RMR_BIND } else { EvdFlags::empty() };
        let pz = ias.a.pz_create().unwrap();
        let flags = EvdFlags::CONNECTION | EvdFlags::SOFTWARE | dto;
        let conn = ias.a.evd_create(16, flags).unwrap();
        let other = (!merged).then(|| ias.a.evd_create(64, EvdFlags::DTO).unwrap());
        let recv = other.unwrap_or(conn);
        let ep = ias.a.ep_create(Some(pz), Some(recv), Some(recv), Some(conn), None);
        let end = End { side: A, pz, recv, request: recv, conn, ep: ep.unwrap() };
        let peer = ias.end(B);
        ias.connect(&end, &peer);
        fill(ias, conn);
        ias.disconnect(&end, CloseFlag::Abrupt);
        assert_eq!(ias.event(B, peer.conn), Event::Disconnected(peer.ep));
        until_state(ias, &end, EpState::Disconnected);
        let now = ias.now();
        if free {
            ias.a.ep_free(now, end.ep).unwrap();
        } else {
            ias.a.ep_reset(end.ep).unwrap();
        }
        ias.pass(MOMENT);
        full_and(ias, conn, Event::Disconnected(end.ep));
        ias.expect_no_event(MOMENT, &[(A, conn)]);
        if !free {
            ias.a.ep_free(now, end.ep).unwrap();
        }
        ias.b.ep_free(now, peer.ep).unwrap();
        for evd in [Some(conn), other].into_iter().flatten() {
            ias.a.evd_free(evd).unwrap();
        }
        for evd in [peer.recv, peer.request, peer.conn] {
            ias.b.evd_free(evd).unwrap();
        }
    }
}

/// More connections come and go on one Event Dispatcher than the adapter has space for in what is
/// no completion; their Endpoints are reset or freed before anybody looks. Every event comes, each
/// Endpoint's in its order.
pub fn connection_events_outlive_their_endpoints(ias: &mut Adapters<'_, impl Side>) {
    let first = ias.merged_end(A);
    let mut ends = vec![first];
    while ends.len() < 6 {
        let end = beside(ias, &first);
        ends.push(end);
    }
    let mut expected: Vec<(Ep, Vec<Event>)> = ends.iter().map(|end| (end.ep, Vec::new())).collect();
    for round in 0..2 {
        for (end, (_, expected)) in ends.iter().zip(&mut expected) {
            let peer = ias.merged_end(B);
            connect_undequeued(ias, end, &peer);
            ias.disconnect(&peer, CloseFlag::Abrupt);
            assert_eq!(ias.event(B, peer.conn), Event::Disconnected(peer.ep));
            until_state(ias, end, EpState::Disconnected);
            expected.extend([Event::Established(end.ep), Event::Disconnected(end.ep)]);
            let now = ias.now();
            ias.b.ep_free(now, peer.ep).unwrap();
            ias.b.evd_free(peer.conn).unwrap();
            ias.b.pz_free(peer.pz).unwrap();
            if round == 0 {
                ias.a.ep_reset(end.ep).unwrap();
            } else {
                ias.a.ep_free(now, end.ep).unwrap();
            }
        }
    }
    let count: usize = expected.iter().map(|(_, expected)| expected.len()).sum();
    assert!(count > ias.a.query().0.max_software_evd_qlen as usize);
    let mut came: Vec<(Ep, Vec<Event>)> = ends.iter().map(|end| (end.ep, Vec::new())).collect();
    for _ in 0..count {
        let event = ias.event(A, first.conn);
        let (Event::Established(ep) | Event::Disconnected(ep)) = event else { panic!("{event:?}") };
        let of_ep = came.iter_mut().find(|(known, _)| *known == ep);
        of_ep.unwrap().1.push(event);
    }
    assert_eq!(came, expected);
    ias.expect_no_event(MOMENT, &[(A, first.conn)]);
}

/// A connection is ended while requests are in progress: once one of them has failed, none behind
/// it succeeds. The same of receives.
pub fn after_a_failed_completion_none_of_its_direction_succeeds(ias: &mut Adapters<'_, impl Side>) {
    for by in [A, B] {
        let [from, to] = ias.connected();
        for cookie in 0..10 {
            ias.a.ep_post_send(from.ep, &[], cookie, NONE).unwrap();
        }
        // Some of them are in progress when it ends.
        for cookie in 0..6 {
            ias.b.ep_post_recv(to.ep, &[], cookie, NONE).unwrap();
        }
        ias.pass(Duration::from_micros(3));
        let end = [&from, &to][by];
        ias.disconnect(end, CloseFlag::Abrupt);
        for (end, evd, count) in [(&from, from.request, 10), (&to, to.recv, 6)] {
            let mut failed = false;
            for cookie in 0..count {
                let dto = ias.dto(end.side, evd);
                assert_eq!(dto.cookie, cookie);
                let success = dto.status == DtoStatus::Success;
                assert!(!(success && failed), "{cookie}: {:?}", dto.status);
                failed |= !success;
            }
            // There were more sends than receives.
            assert!(failed || end.side == B);
        }
        let other = [&to, &from][by];
        assert_eq!(ias.event(by, end.conn), Event::Disconnected(end.ep));
        // The peer's transport may see it before the peer's connection manager does.
        let event = ias.event(other.side, other.conn);
        let ends = [Event::Disconnected(other.ep), Event::Broken(other.ep)];
        assert!(ends.contains(&event), "{event:?}");
    }
}

/// After both markers have been dequeued a reset loses nothing: every completion has come, and none
/// comes behind.
pub fn markers_make_a_reset_lossless(ias: &mut Adapters<'_, impl Side>) {
    let [from, to] = ias.connected();
    let mem = ias.mem(A, from.pz, 64, MemPriv::ALL);
    let rmr = ias.a.rmr_create(from.pz).unwrap();
    let (ep, range) = (from.ep, mem.seg(0, 8));
    for cookie in 0..4 {
        ias.b.ep_post_recv(to.ep, &[], cookie, NONE).unwrap();
        ias.a.ep_post_recv(ep, &[], cookie, NONE).unwrap();
    }
    for cookie in 0..6 {
        ias.a.ep_post_send(ep, &[], cookie, NONE).unwrap();
    }
    let bound = ias.a.rmr_bind(rmr, &range, MemPriv::REMOTE, ep, 6, NONE);
    bound.unwrap();
    ias.pass(MOMENT);
    ias.disconnect(&from, CloseFlag::Abrupt);
    ias.event(A, from.conn);
    // A receive is the marker of one direction, a bind that of the other.
    ias.a.ep_post_recv(ep, &[], 100, NONE).unwrap();
    let marker = ias.a.rmr_bind(rmr, &range, MemPriv::REMOTE, ep, 100, NONE);
    marker.unwrap();
    let mut seen = [Vec::new(), Vec::new()];
    for (evd, seen) in [from.recv, from.request].into_iter().zip(&mut seen) {
        while seen.last() != Some(&100) {
            match ias.event(A, evd) {
                Event::Dto(dto) => seen.push(dto.cookie),
                Event::RmrBind { cookie, .. } => seen.push(cookie),
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(seen[0], [0, 1, 2, 3, 100]);
    assert_eq!(seen[1], [0, 1, 2, 3, 4, 5, 6, 100]);
    ias.a.ep_reset(ep).unwrap();
    ias.expect_no_event(MOMENT, &[(A, from.recv), (A, from.request), (A, from.conn)]);
}

/// Completions that a reset drops take no room in the queue: connection after connection leaves
/// completions that nobody dequeues, and no queue overruns.
pub fn completions_dropped_by_a_reset_take_no_room(ias: &mut Adapters<'_, impl Side>) {
    let [from, to] = [ias.end(A), ias.end(B)];
    for turn in 0..12 {
        ias.connect(&from, &to);
        for cookie in 0..16 {
            ias.b.ep_post_recv(to.ep, &[], cookie, NONE).unwrap();
        }
        for cookie in 0..16 {
            ias.a.ep_post_send(from.ep, &[], cookie, NONE).unwrap();
        }
        if turn == 11 {
            break;
        }
        for cookie in 0..16 {
            ias.done(&to, DtoOperation::Receive, cookie);
        }
        ias.disconnect(&from, CloseFlag::Abrupt);
        assert_eq!(ias.event(A, from.conn), Event::Disconnected(from.ep));
        ias.event(B, to.conn);
        ias.a.ep_reset(from.ep).unwrap();
        ias.b.ep_reset(to.ep).unwrap();
    }
    for cookie in 0..16 {
        ias.done(&from, DtoOperation::Send, cookie);
    }
    let errors = ias.a.async_evd();
    ias.expect_no_event(MOMENT, &[(A, from.request), (A, errors)]);
    assert_eq!(ias.state(&from), EpState::Connected);
}

/// Neither an Endpoint that waits for the peer's confirmation nor one that drains can be reset.
pub fn reset_is_refused_while_a_connection_comes_or_goes(ias: &mut Adapters<'_, impl Side>) {
    let state = DatType::InvalidState;
    let (from, to, point) = (ias.end(A), ias.end(B), ias.listen(B));
    ias.ask(&from, point.qualifier, LIMIT, b"");
    let cr = ias.request(&point);
    let now = ias.now();
    ias.b.cr_accept(now, cr, Some(to.ep), b"").unwrap();
    assert_eq!(ias.state(&to), EpState::CompletionPending);
    let pending = DatSubtype::InvalidStateEpComplPending;
    refused(ias.b.ep_reset(to.ep), state, pending);
    for end in [&from, &to] {
        assert_eq!(ias.event(end.side, end.conn), Event::Established(end.ep));
    }
    ias.a.ep_post_send(from.ep, &[], 1, NONE).unwrap();
    ias.disconnect(&from, CloseFlag::Graceful);
    let pending = DatSubtype::InvalidStateEpDiscPending;
    refused(ias.a.ep_reset(from.ep), state, pending);
    assert_eq!(ias.state(&from), EpState::DisconnectPending);
    ias.b.ep_post_recv(to.ep, &[], 1, NONE).unwrap();
    ias.done(&from, DtoOperation::Send, 1);
    assert_eq!(ias.event(A, from.conn), Event::Disconnected(from.ep));
}

/// An attempt ends when its time is over: not before, and not long after.
pub fn an_attempt_ends_at_its_timeout(ias: &mut Adapters<'_, impl Side>) {
    let point = ias.listen(B);
    for millis in [20, 300, 4000] {
        let (client, span) = (ias.end(A), Duration::from_millis(millis));
        let start = ias.now();
        // The request arrives, and nobody answers it.
        ias.ask(&client, point.qualifier, span, b"");
        ends_at(ias, &client, start, span);
        let now = ias.now();
        ias.a.ep_free(now, client.ep).unwrap();
        for evd in [client.recv, client.request, client.conn] {
            ias.a.evd_free(evd).unwrap();
        }
    }
}

/// The same of an attempt that follows a connection.
pub fn a_duplicate_attempt_ends_at_its_timeout(ias: &mut Adapters<'_, impl Side>) {
    let (client, server, point) = (ias.end(A), ias.end(B), ias.listen(B));
    ias.ask(&client, point.qualifier, LIMIT, b"");
    let cr = ias.request(&point);
    let now = ias.now();
    ias.b.cr_accept(now, cr, Some(server.ep), b"").unwrap();
    for end in [&client, &server] {
        assert_eq!(ias.event(end.side, end.conn), Event::Established(end.ep));
    }
    for millis in [20, 300, 4000] {
        let (twin, span) = (ias.merged_end(A), Duration::from_millis(millis));
        let (start, qos) = (ias.now(), Qos::BestEffort);
        ias.a.ep_dup_connect(start, twin.ep, client.ep, span, b"", qos).unwrap();
        ends_at(ias, &twin, start, span);
        assert_eq!(ias.state(&client), EpState::Connected);
    }
}

/// The attempt that began at `start` times out after `span`.
#[track_caller]
fn ends_at(ias: &mut Adapters<'_, impl Side>, end: &End, start: dat_core::Instant, span: Duration) {
    let event = ias.event(end.side, end.conn);
    let took = ias.now().since(start);
    assert_eq!(event, Event::TimedOut(end.ep));
    let slack = ias.slack();
    assert!(took >= span && took <= span + slack, "{span:?}: {took:?}");
}
