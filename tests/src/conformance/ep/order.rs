//! Terminal connection events and dat_ep_reset(3): in which order they come, and that none is lost.

use std::time::Duration;

use dat_core::{
    CloseFlag, DatSubtype, DatType, DtoOperation, DtoStatus, Ep, EpState, Evd, EvdFlags, Event,
    MemPriv, Qos,
};

use super::super::evd::MOMENT;
use super::super::{A, B, Bed, End, LIMIT, NONE, Side, refused};

/// Waits until the Endpoint is in that state, without a dequeue.
#[track_caller]
fn until_state(bed: &mut Bed<'_, impl Side>, end: &End, state: EpState) {
    bed.until(|bed| (bed.state(end) == state).then_some(()));
}

/// Connects without a dequeue on the side that asks.
#[track_caller]
fn connect_undequeued(bed: &mut Bed<'_, impl Side>, from: &End, to: &End) {
    let point = bed.listen(to.side);
    bed.ask(from, point.qualifier, LIMIT, b"");
    let cr = bed.request(&point);
    let now = bed.now();
    bed[to.side].cr_accept(now, cr, Some(to.ep), b"").unwrap();
    assert_eq!(bed.event(to.side, to.conn), Event::Established(to.ep));
    until_state(bed, from, EpState::Connected);
    bed[point.side].psp_free(point.psp).unwrap();
    bed[point.side].evd_free(point.evd).unwrap();
}

/// All that is queued.
fn all(bed: &mut Bed<'_, impl Side>, side: usize, evd: Evd) -> Vec<Event> {
    std::iter::from_fn(|| bed.look(side, evd)).collect()
}

/// An Endpoint of side A with one Event Dispatcher for everything that another has as well.
fn beside(bed: &mut Bed<'_, impl Side>, other: &End) -> End {
    let (pz, evd) = (Some(other.pz), Some(other.conn));
    let ep = bed[other.side].ep_create(pz, evd, evd, evd, None).unwrap();
    End { ep, ..*other }
}

/// Another Endpoint of the same Event Dispatcher never stops: the event of the one that ended comes
/// all the same.
pub fn a_disconnected_event_does_not_wait_for_other_endpoints(bed: &mut Bed<'_, impl Side>) {
    let ended = bed.merged_end(A);
    let busy = beside(bed, &ended);
    let peers = [bed.end(B), bed.end(B)];
    bed.connect(&ended, &peers[0]);
    bed.connect(&busy, &peers[1]);
    bed.a.ep_post_recv(ended.ep, &[], 7, NONE).unwrap();
    let evd = busy.conn;
    let mut posted = 0;
    let mut taken = 0;
    let mut flushed = false;
    // More than what the queue can hold when the connection ends.
    for round in 0..500 {
        if round == 20 {
            bed.disconnect(&ended, CloseFlag::Abrupt);
        }
        while posted < taken + 8 {
            bed.b.ep_post_recv(peers[1].ep, &[], posted, NONE).unwrap();
            bed.a.ep_post_send(busy.ep, &[], posted, NONE).unwrap();
            posted += 1;
        }
        // There is always something to dequeue before the next one.
        bed.until(|bed| (bed.a.evd_more(evd).unwrap() >= 3).then_some(()));
        while bed.look(B, peers[1].recv).is_some() {}
        match bed.look(A, evd) {
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
                bed.event(B, peers[0].conn);
                return;
            }
        }
    }
    panic!("{taken} completions of another Endpoint came, and no Disconnected");
}

/// An Endpoint is connected again and again, and nothing is dequeued meanwhile: its events are
/// those of its connections, in order.
pub fn events_of_successive_connections_come_in_order(bed: &mut Bed<'_, impl Side>) {
    for by in [A, B] {
        let [from, to] = bed.merged();
        let ends = [from, to];
        for _ in 0..3 {
            bed.a.ep_post_recv(from.ep, &[], 1, NONE).unwrap();
            bed.a.ep_post_recv(from.ep, &[], 2, NONE).unwrap();
            bed.b.ep_post_send(to.ep, &[], 3, NONE).unwrap();
            bed.done(&to, DtoOperation::Send, 3);
            bed.disconnect(&ends[by], CloseFlag::Abrupt);
            assert_eq!(bed.event(B, to.conn), Event::Disconnected(to.ep));
            until_state(bed, &from, EpState::Disconnected);
            for end in ends {
                bed[end.side].ep_reset(end.ep).unwrap();
            }
            connect_undequeued(bed, &from, &to);
        }
        bed.a.ep_post_recv(from.ep, &[], 30, NONE).unwrap();
        bed.b.ep_post_send(to.ep, &[], 3, NONE).unwrap();
        bed.done(&to, DtoOperation::Send, 3);
        bed.pass(MOMENT);
        let events = all(bed, A, from.conn);
        let [d, e] = [Event::Disconnected(from.ep), Event::Established(from.ep)];
        let of_connections = events.iter().filter(|event| [d, e].contains(event));
        assert!(of_connections.eq(&[d, e, d, e, d, e]), "{events:?}");
        // What completed on the last connection comes behind the end of the one before.
        let at = |wanted: &dyn Fn(&Event) -> bool| events.iter().rposition(wanted).unwrap();
        let received = at(&|event| matches!(event, Event::Dto(dto) if dto.cookie == 30));
        assert!(at(&|event| *event == d) < received, "{events:?}");
    }
}

/// Fills an Event Dispatcher of side A with software events.
fn fill(bed: &mut Bed<'_, impl Side>, evd: Evd) {
    let qlen = bed.a.evd_query(evd).unwrap().qlen;
    for pointer in 0..u64::from(qlen) {
        bed.a.evd_post_se(evd, pointer).unwrap();
    }
}

/// All that it was filled with comes in order, and that event of another stream, wherever.
#[track_caller]
fn full_and(bed: &mut Bed<'_, impl Side>, evd: Evd, terminal: Event) {
    let qlen = bed.a.evd_query(evd).unwrap().qlen;
    let mut events: Vec<Event> = (0..=qlen).map(|_| bed.event(A, evd)).collect();
    events.retain(|event| *event != terminal);
    let software: Vec<Event> = (0..u64::from(qlen)).map(Event::Software).collect();
    assert_eq!(events, software);
}

/// The connect Event Dispatcher is full of other events when a connection, or an attempt, ends: the
/// event comes as soon as there is space, and nothing overflows.
pub fn a_full_evd_loses_no_terminal_event(bed: &mut Bed<'_, impl Side>) {
    let asynchronous = bed.a.async_evd();
    for way in 0..4 {
        let like = bed.end(A);
        let flags = EvdFlags::CONNECTION | EvdFlags::SOFTWARE;
        let conn = bed.a.evd_create(2, flags).unwrap();
        let (pz, recv, request) = (Some(like.pz), Some(like.recv), Some(like.request));
        let ep = bed.a.ep_create(pz, recv, request, Some(conn), None);
        let end = End { conn, ep: ep.unwrap(), ..like };
        let event = match way {
            0 | 1 => {
                let peer = bed.end(B);
                bed.connect(&end, &peer);
                fill(bed, conn);
                let by = if way == 0 { &peer } else { &end };
                bed.disconnect(by, CloseFlag::Abrupt);
                assert_eq!(bed.event(B, peer.conn), Event::Disconnected(peer.ep));
                Event::Disconnected(end.ep)
            }
            2 => {
                fill(bed, conn);
                let qualifier = bed.free_qualifier();
                bed.ask(&end, qualifier, LIMIT, b"");
                Event::NonPeerRejected(end.ep)
            }
            _ => {
                fill(bed, conn);
                let point = bed.listen(B);
                bed.ask(&end, point.qualifier, MOMENT, b"");
                Event::TimedOut(end.ep)
            }
        };
        until_state(bed, &end, EpState::Disconnected);
        bed.pass(MOMENT);
        full_and(bed, conn, event);
        bed.quiet(MOMENT, &[(A, conn), (A, asynchronous)]);
        let now = bed.now();
        bed.a.ep_free(now, end.ep).unwrap();
        bed.a.ep_free(now, like.ep).unwrap();
        for evd in [like.recv, like.request, like.conn, conn] {
            bed.a.evd_free(evd).unwrap();
        }
    }
}

/// The Endpoint is freed, or reset, before its terminal event was dequeued from an Event Dispatcher
/// that is full: it comes.
pub fn neither_free_nor_reset_loses_a_terminal_event(bed: &mut Bed<'_, impl Side>) {
    for (free, merged) in [(false, false), (true, false), (false, true), (true, true)] {
        let dto = if merged { EvdFlags::DTO | EvdFlags::RMR_BIND } else { EvdFlags::empty() };
        let pz = bed.a.pz_create().unwrap();
        let flags = EvdFlags::CONNECTION | EvdFlags::SOFTWARE | dto;
        let conn = bed.a.evd_create(16, flags).unwrap();
        let other = (!merged).then(|| bed.a.evd_create(64, EvdFlags::DTO).unwrap());
        let recv = other.unwrap_or(conn);
        let ep = bed.a.ep_create(Some(pz), Some(recv), Some(recv), Some(conn), None);
        let end = End { side: A, pz, recv, request: recv, conn, ep: ep.unwrap() };
        let peer = bed.end(B);
        bed.connect(&end, &peer);
        fill(bed, conn);
        bed.disconnect(&end, CloseFlag::Abrupt);
        assert_eq!(bed.event(B, peer.conn), Event::Disconnected(peer.ep));
        until_state(bed, &end, EpState::Disconnected);
        let now = bed.now();
        if free {
            bed.a.ep_free(now, end.ep).unwrap();
        } else {
            bed.a.ep_reset(end.ep).unwrap();
        }
        bed.pass(MOMENT);
        full_and(bed, conn, Event::Disconnected(end.ep));
        bed.quiet(MOMENT, &[(A, conn)]);
        if !free {
            bed.a.ep_free(now, end.ep).unwrap();
        }
        bed.b.ep_free(now, peer.ep).unwrap();
        for evd in [Some(conn), other].into_iter().flatten() {
            bed.a.evd_free(evd).unwrap();
        }
        for evd in [peer.recv, peer.request, peer.conn] {
            bed.b.evd_free(evd).unwrap();
        }
    }
}

/// More connections come and go on one Event Dispatcher than the adapter has space for in what is
/// no completion; their Endpoints are reset or freed before anybody looks. Every event comes, each
/// Endpoint's in its order.
pub fn connection_events_outlive_their_endpoints(bed: &mut Bed<'_, impl Side>) {
    let first = bed.merged_end(A);
    let mut ends = vec![first];
    while ends.len() < 6 {
        let end = beside(bed, &first);
        ends.push(end);
    }
    let mut expected: Vec<(Ep, Vec<Event>)> = ends.iter().map(|end| (end.ep, Vec::new())).collect();
    for round in 0..2 {
        for (end, (_, expected)) in ends.iter().zip(&mut expected) {
            let peer = bed.merged_end(B);
            connect_undequeued(bed, end, &peer);
            bed.disconnect(&peer, CloseFlag::Abrupt);
            assert_eq!(bed.event(B, peer.conn), Event::Disconnected(peer.ep));
            until_state(bed, end, EpState::Disconnected);
            expected.extend([Event::Established(end.ep), Event::Disconnected(end.ep)]);
            let now = bed.now();
            bed.b.ep_free(now, peer.ep).unwrap();
            bed.b.evd_free(peer.conn).unwrap();
            bed.b.pz_free(peer.pz).unwrap();
            if round == 0 {
                bed.a.ep_reset(end.ep).unwrap();
            } else {
                bed.a.ep_free(now, end.ep).unwrap();
            }
        }
    }
    let count: usize = expected.iter().map(|(_, expected)| expected.len()).sum();
    assert!(count > bed.a.query().0.max_software_evd_qlen as usize);
    let mut came: Vec<(Ep, Vec<Event>)> = ends.iter().map(|end| (end.ep, Vec::new())).collect();
    for _ in 0..count {
        let event = bed.event(A, first.conn);
        let (Event::Established(ep) | Event::Disconnected(ep)) = event else { panic!("{event:?}") };
        let of_ep = came.iter_mut().find(|(known, _)| *known == ep);
        of_ep.unwrap().1.push(event);
    }
    assert_eq!(came, expected);
    bed.quiet(MOMENT, &[(A, first.conn)]);
}

/// A connection is ended while requests are in progress: once one of them has failed, none behind
/// it succeeds. The same of receives.
pub fn after_a_failed_completion_none_of_its_direction_succeeds(bed: &mut Bed<'_, impl Side>) {
    for by in [A, B] {
        let [from, to] = bed.connected();
        for cookie in 0..10 {
            bed.a.ep_post_send(from.ep, &[], cookie, NONE).unwrap();
        }
        // Some of them are in progress when it ends.
        for cookie in 0..6 {
            bed.b.ep_post_recv(to.ep, &[], cookie, NONE).unwrap();
        }
        bed.pass(Duration::from_micros(3));
        let end = [&from, &to][by];
        bed.disconnect(end, CloseFlag::Abrupt);
        for (end, evd, count) in [(&from, from.request, 10), (&to, to.recv, 6)] {
            let mut failed = false;
            for cookie in 0..count {
                let dto = bed.dto(end.side, evd);
                assert_eq!(dto.cookie, cookie);
                let success = dto.status == DtoStatus::Success;
                assert!(!(success && failed), "{cookie}: {:?}", dto.status);
                failed |= !success;
            }
            // There were more sends than receives.
            assert!(failed || end.side == B);
        }
        let other = [&to, &from][by];
        assert_eq!(bed.event(by, end.conn), Event::Disconnected(end.ep));
        // The peer's transport may see it before the peer's connection manager does.
        let event = bed.event(other.side, other.conn);
        let ends = [Event::Disconnected(other.ep), Event::Broken(other.ep)];
        assert!(ends.contains(&event), "{event:?}");
    }
}

/// After both markers have been dequeued a reset loses nothing: every completion has come, and none
/// comes behind.
pub fn markers_make_a_reset_lossless(bed: &mut Bed<'_, impl Side>) {
    let [from, to] = bed.connected();
    let mem = bed.mem(A, from.pz, 64, MemPriv::ALL);
    let rmr = bed.a.rmr_create(from.pz).unwrap();
    let (ep, range) = (from.ep, mem.seg(0, 8));
    for cookie in 0..4 {
        bed.b.ep_post_recv(to.ep, &[], cookie, NONE).unwrap();
        bed.a.ep_post_recv(ep, &[], cookie, NONE).unwrap();
    }
    for cookie in 0..6 {
        bed.a.ep_post_send(ep, &[], cookie, NONE).unwrap();
    }
    let bound = bed.a.rmr_bind(rmr, &range, MemPriv::REMOTE, ep, 6, NONE);
    bound.unwrap();
    bed.pass(MOMENT);
    bed.disconnect(&from, CloseFlag::Abrupt);
    bed.event(A, from.conn);
    // A receive is the marker of one direction, a bind that of the other.
    bed.a.ep_post_recv(ep, &[], 100, NONE).unwrap();
    let marker = bed.a.rmr_bind(rmr, &range, MemPriv::REMOTE, ep, 100, NONE);
    marker.unwrap();
    let mut seen = [Vec::new(), Vec::new()];
    for (evd, seen) in [from.recv, from.request].into_iter().zip(&mut seen) {
        while seen.last() != Some(&100) {
            match bed.event(A, evd) {
                Event::Dto(dto) => seen.push(dto.cookie),
                Event::RmrBind { cookie, .. } => seen.push(cookie),
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(seen[0], [0, 1, 2, 3, 100]);
    assert_eq!(seen[1], [0, 1, 2, 3, 4, 5, 6, 100]);
    bed.a.ep_reset(ep).unwrap();
    bed.quiet(MOMENT, &[(A, from.recv), (A, from.request), (A, from.conn)]);
}

/// What a reset drops takes no room where completions wait: life after life with completions that
/// nobody dequeues, and no queue overruns.
pub fn what_a_reset_drops_takes_no_room(bed: &mut Bed<'_, impl Side>) {
    let [from, to] = [bed.end(A), bed.end(B)];
    for life in 0..12 {
        bed.connect(&from, &to);
        for cookie in 0..16 {
            bed.b.ep_post_recv(to.ep, &[], cookie, NONE).unwrap();
        }
        for cookie in 0..16 {
            bed.a.ep_post_send(from.ep, &[], cookie, NONE).unwrap();
        }
        if life == 11 {
            break;
        }
        for cookie in 0..16 {
            bed.done(&to, DtoOperation::Receive, cookie);
        }
        bed.disconnect(&from, CloseFlag::Abrupt);
        assert_eq!(bed.event(A, from.conn), Event::Disconnected(from.ep));
        bed.event(B, to.conn);
        bed.a.ep_reset(from.ep).unwrap();
        bed.b.ep_reset(to.ep).unwrap();
    }
    for cookie in 0..16 {
        bed.done(&from, DtoOperation::Send, cookie);
    }
    let errors = bed.a.async_evd();
    bed.quiet(MOMENT, &[(A, from.request), (A, errors)]);
    assert_eq!(bed.state(&from), EpState::Connected);
}

/// Neither an Endpoint that waits for the peer's confirmation nor one that drains can be reset.
pub fn reset_is_refused_while_a_connection_comes_or_goes(bed: &mut Bed<'_, impl Side>) {
    let state = DatType::InvalidState;
    let (from, to, point) = (bed.end(A), bed.end(B), bed.listen(B));
    bed.ask(&from, point.qualifier, LIMIT, b"");
    let cr = bed.request(&point);
    let now = bed.now();
    bed.b.cr_accept(now, cr, Some(to.ep), b"").unwrap();
    assert_eq!(bed.state(&to), EpState::CompletionPending);
    let pending = DatSubtype::InvalidStateEpComplPending;
    refused(bed.b.ep_reset(to.ep), state, pending);
    for end in [&from, &to] {
        assert_eq!(bed.event(end.side, end.conn), Event::Established(end.ep));
    }
    bed.a.ep_post_send(from.ep, &[], 1, NONE).unwrap();
    bed.disconnect(&from, CloseFlag::Graceful);
    let pending = DatSubtype::InvalidStateEpDiscPending;
    refused(bed.a.ep_reset(from.ep), state, pending);
    assert_eq!(bed.state(&from), EpState::DisconnectPending);
    bed.b.ep_post_recv(to.ep, &[], 1, NONE).unwrap();
    bed.done(&from, DtoOperation::Send, 1);
    assert_eq!(bed.event(A, from.conn), Event::Disconnected(from.ep));
}

/// An attempt ends when its time is over: not before, and not long after.
pub fn an_attempt_ends_at_its_timeout(bed: &mut Bed<'_, impl Side>) {
    let point = bed.listen(B);
    for millis in [20, 300, 4000] {
        let (client, span) = (bed.end(A), Duration::from_millis(millis));
        let start = bed.now();
        // The request arrives, and nobody answers it.
        bed.ask(&client, point.qualifier, span, b"");
        ends_at(bed, &client, start, span);
        let now = bed.now();
        bed.a.ep_free(now, client.ep).unwrap();
        for evd in [client.recv, client.request, client.conn] {
            bed.a.evd_free(evd).unwrap();
        }
    }
}

/// The same of an attempt that follows a connection.
pub fn a_duplicate_attempt_ends_at_its_timeout(bed: &mut Bed<'_, impl Side>) {
    let (client, server, point) = (bed.end(A), bed.end(B), bed.listen(B));
    bed.ask(&client, point.qualifier, LIMIT, b"");
    let cr = bed.request(&point);
    let now = bed.now();
    bed.b.cr_accept(now, cr, Some(server.ep), b"").unwrap();
    for end in [&client, &server] {
        assert_eq!(bed.event(end.side, end.conn), Event::Established(end.ep));
    }
    for millis in [20, 300, 4000] {
        let (twin, span) = (bed.merged_end(A), Duration::from_millis(millis));
        let (start, qos) = (bed.now(), Qos::BestEffort);
        bed.a.ep_dup_connect(start, twin.ep, client.ep, span, b"", qos).unwrap();
        ends_at(bed, &twin, start, span);
        assert_eq!(bed.state(&client), EpState::Connected);
    }
}

/// The attempt that began at `start` times out after `span`.
#[track_caller]
fn ends_at(bed: &mut Bed<'_, impl Side>, end: &End, start: dat_core::Instant, span: Duration) {
    let event = bed.event(end.side, end.conn);
    let took = bed.now().since(start);
    assert_eq!(event, Event::TimedOut(end.ep));
    let slack = bed.slack();
    assert!(took >= span && took <= span + slack, "{span:?}: {took:?}");
}
