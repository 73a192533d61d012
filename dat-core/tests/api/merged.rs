//! Several Endpoints whose streams all share one Event Dispatcher: what one of them does to its
//! events leaves those of the others as they are.

#![expect(clippy::unwrap_used, clippy::wildcard_enum_match_arm, reason = "a test")]

use crate::pair::*;
use dat_core::testing::Fabric;
use dat_core::*;

use DtoStatus::ErrFlushed;

/// Two connected pairs of Endpoints, those of each side on one Event Dispatcher; the second is the
/// pair's own.
fn two() -> (Pair, [[Ep; 2]; 2]) {
    let mut p = Pair::connected_as(Merge::All, None);
    let firsts = [p.a.ep, p.b.ep];
    for side in [&mut p.a, &mut p.b] {
        let evd = Some(side.conn);
        let ep = side.ia.ep_create(Some(side.pz), evd, evd, evd, None);
        side.ep = ep.unwrap();
    }
    p.connect();
    let eps = [[firsts[0], p.a.ep], [firsts[1], p.b.ep]];
    (p, eps)
}

/// Both Endpoints of the first side have ended, and nothing of that is dequeued, but for the first
/// few events.
fn ended(dequeued: usize) -> (Pair, [[Ep; 2]; 2], Vec<Event>) {
    let (mut p, eps) = two();
    for (n, ep) in eps[0].into_iter().enumerate() {
        p.a.ep = ep;
        for cookie in 0..3 {
            p.a.post_recv(10 * n as u64 + cookie).unwrap();
        }
    }
    for ep in eps[0] {
        p.a.ia.ep_disconnect(p.now, ep, CloseFlag::Abrupt).unwrap();
    }
    p.run_until_idle();
    p.b.drain(p.b.conn);
    let mut seen = Vec::new();
    for _ in 0..dequeued {
        seen.push(p.a.next(p.a.conn).unwrap());
    }
    (p, eps, seen)
}

fn flushed(event: &Event, ep: Ep) -> Option<u64> {
    match event {
        Event::Dto(dto) if dto.ep == ep => {
            assert_eq!(dto.status, ErrFlushed);
            Some(dto.cookie)
        }
        _ => None,
    }
}

/// The events of the Endpoint that was left alone: its receives, flushed in order, and then its
/// end, each once.
fn whole(seen: &[Event], ep: Ep) {
    let at = |event: Event| {
        let times = seen.iter().filter(|seen| **seen == event).count();
        assert_eq!(times, 1, "it comes once");
        seen.iter().position(|seen| *seen == event)
    };
    let cookies: Vec<u64> = seen.iter().filter_map(|event| flushed(event, ep)).collect();
    assert_eq!(cookies, [10, 11, 12]);
    let last = seen.iter().rposition(|event| flushed(event, ep).is_some());
    assert!(last < at(Event::Disconnected(ep)));
}

/// The ended Endpoint is reset and connects again before anything more is dequeued at its side.
fn again(p: &mut Pair, ep: Ep, peer: Ep) {
    p.a.ia.ep_reset(ep).unwrap();
    p.b.ia.ep_reset(peer).unwrap();
    (p.a.ep, p.b.ep) = (ep, peer);
    p.ask(b"").unwrap();
    p.run_until_idle();
    let cr = p.request().unwrap();
    p.b.ia.cr_accept(p.now, cr, Some(peer), b"").unwrap();
    p.run_until_idle();
}

#[test]
fn a_reset_drops_its_own_completions_and_keeps_every_end() {
    for dequeued in 0..=8 {
        let (mut p, eps, mut seen) = ended(dequeued);
        let [[first, second], [peer, _]] = eps;
        let before = seen.clone();
        again(&mut p, first, peer);
        seen.extend(p.a.drain(p.a.conn));
        whole(&seen, second);
        let place = |event| seen.iter().position(|seen| *seen == event).expect("it comes");
        assert!(place(Event::Disconnected(first)) < place(Event::Established(first)));
        let ends = seen.iter().filter(|event| **event == Event::Disconnected(first));
        assert_eq!(ends.count(), 1);
        // Events not dequeued before the reset are gone.
        let kept = |seen: &[Event]| seen.iter().filter_map(|event| flushed(event, first)).count();
        assert_eq!(kept(&seen), kept(&before), "{dequeued} dequeued");
        assert_eq!(p.a.ia.evd_more(p.a.conn).unwrap(), 0);
        // And the new connection ends as any does.
        p.a.ia.ep_disconnect(p.now, first, CloseFlag::Abrupt).unwrap();
        assert_eq!(p.a.drain(p.a.conn), [Event::Disconnected(first)]);
    }
}

#[test]
fn a_free_keeps_the_events_of_others() {
    for dequeued in 0..=8 {
        let (mut p, [[first, second], _], mut seen) = ended(dequeued);
        p.a.ia.ep_free(p.now, first).unwrap();
        seen.extend(p.a.drain(p.a.conn));
        whole(&seen, second);
        let ends = seen.iter().filter(|event| **event == Event::Disconnected(first));
        assert!(ends.count() <= 1);
    }
}

/// A free leaves the end of a connection in front of the beginning of the next, also when another
/// Endpoint has taken the slot of the freed one, and has ended on another Event Dispatcher.
#[test]
fn a_free_keeps_the_events_of_successive_connections_in_order() {
    for dequeued in 0..=8 {
        let (mut p, [[first, second], [peer, _]], mut seen) = ended(dequeued);
        again(&mut p, first, peer);
        p.a.ia.ep_free(p.now, first).unwrap();
        p.run_until_idle();
        p.b.ia.ep_reset(peer).unwrap();
        p.b.drain(p.b.conn);
        let evd =
            core::mem::replace(&mut p.a.conn, p.a.ia.evd_create(16, EvdFlags::DEFAULT).unwrap());
        let all = Some(p.a.conn);
        p.a.ep = p.a.ia.ep_create(Some(p.a.pz), all, all, all, None).unwrap();
        p.connect();
        p.a.post_recv(20).unwrap();
        p.a.post_recv(21).unwrap();
        p.a.ia.ep_disconnect(p.now, p.a.ep, CloseFlag::Abrupt).unwrap();
        p.run_until_idle();
        let flush = p.a.next(p.a.conn).unwrap();
        assert_eq!(flushed(&flush, p.a.ep), Some(20));
        seen.extend(p.a.drain(evd));
        whole(&seen, second);
        let at = |event| seen.iter().position(|seen| *seen == event);
        let (end, next) = (Event::Disconnected(first), Event::Established(first));
        assert!(at(end).unwrap() < at(next).unwrap(), "{dequeued} dequeued");
        let rest = p.a.drain(p.a.conn);
        assert_eq!(flushed(&rest[0], p.a.ep), Some(21));
        assert_eq!(rest[1..], [Event::Disconnected(p.a.ep)]);
    }
}

/// Slots of events that were never dequeued are given back when their Event Dispatcher goes: there
/// are as many connections as ever.
#[test]
fn an_event_dispatcher_that_goes_takes_no_slot_with_it() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    for round in 0..100 {
        for side in [&mut p.a, &mut p.b] {
            let conn = side.ia.evd_create(4, EvdFlags::CONNECTION).unwrap();
            let ep = side.ia.ep_create(
                Some(side.pz),
                Some(side.recv),
                Some(side.request),
                Some(conn),
                None,
            );
            (side.ep, side.conn) = (ep.unwrap(), conn);
        }
        p.ask(b"").unwrap();
        p.run_until_idle();
        let cr = p.request().unwrap();
        p.b.ia.cr_accept(p.now, cr, Some(p.b.ep), b"").unwrap();
        p.run_until_idle();
        assert_eq!(p.a.state(), EpState::Connected, "round {round}");
        for side in [&mut p.a, &mut p.b] {
            side.ia.ep_free(p.now, side.ep).unwrap();
            side.ia.evd_free(side.conn).unwrap();
        }
        p.run_until_idle();
        p.pass(core::time::Duration::from_secs(60));
    }
}

/// The end of a connection that waits for what was raised before it holds what stands behind it:
/// the beginning of another connection still comes before what is flushed of it.
#[test]
fn a_beginning_behind_an_end_that_waits_comes_before_its_flushes() {
    let mut p = Pair::connected_as(Merge::All, None);
    let evd = p.a.conn;
    p.a.ia.evd_post_se(evd, 7).unwrap();
    let first = p.a.ep;
    p.a.ia.ep_disconnect(p.now, first, CloseFlag::Abrupt).unwrap();
    p.run_until_idle();
    for side in [&mut p.a, &mut p.b] {
        let all = Some(side.conn);
        side.ep = side.ia.ep_create(Some(side.pz), all, all, all, None).unwrap();
    }
    p.ask(b"").unwrap();
    p.run_until_idle();
    let cr = p.request().unwrap();
    p.b.ia.cr_accept(p.now, cr, Some(p.b.ep), b"").unwrap();
    p.run_until_idle();
    p.a.post_recv(10).unwrap();
    let second = p.a.ep;
    p.a.ia.ep_disconnect(p.now, second, CloseFlag::Abrupt).unwrap();
    p.run_until_idle();
    let seen = p.a.drain(evd);
    let at = |event: Event| seen.iter().position(|seen| *seen == event).unwrap();
    let flush = seen.iter().position(|event| flushed(event, second) == Some(10));
    assert_eq!((seen.len(), at(Event::Software(7))), (5, 0));
    assert!(at(Event::Disconnected(first)) > 0);
    assert!(Some(at(Event::Established(second))) < flush);
    assert!(flush < Some(at(Event::Disconnected(second))));
}

/// A reset takes the completions of its Endpoint out from between those of another, whose end still
/// comes behind its own.
#[test]
fn a_reset_moves_no_end_before_its_completions() {
    let (mut p, [[first, second], _]) = two();
    let evd = p.a.conn;
    let (iov, far) = ([p.a.seg(0, 1)], p.b.far(0, 1));
    for cookie in 0..3 {
        p.a.ia.ep_post_rdma_write(first, &iov, cookie, &far, FLAGS).unwrap();
    }
    p.a.ia.ep_disconnect(p.now, first, CloseFlag::Abrupt).unwrap();
    p.run_until_idle();
    let cookie = |event: Event| match event {
        Event::Dto(dto) if dto.status == DtoStatus::Success => Some((dto.ep, dto.cookie)),
        _ => None,
    };
    assert_eq!(p.a.next(evd).and_then(cookie), Some((first, 0)));
    for n in 5..7 {
        p.a.ia.ep_post_rdma_write(second, &iov, n, &far, FLAGS).unwrap();
    }
    p.a.ia.ep_disconnect(p.now, second, CloseFlag::Abrupt).unwrap();
    p.run_until_idle();
    p.a.ia.ep_reset(second).unwrap();
    let seen = p.a.drain(evd);
    let of_first: Vec<Event> =
        seen.into_iter().filter(|event| *event != Event::Disconnected(second)).collect();
    assert_eq!(of_first.len(), 3);
    assert_eq!(cookie(of_first[0]), Some((first, 1)));
    assert_eq!(cookie(of_first[1]), Some((first, 2)));
    assert_eq!(of_first[2], Event::Disconnected(first));
}

/// The end of a connection waits for completions of another Endpoint, and its own Endpoint is
/// connected anew meanwhile, while the reaper is on another thread.
#[test]
fn an_end_that_waits_comes_before_the_beginning_of_the_next_connection() {
    let (mut p, [[first, second], [peer, _]]) = two();
    let (iov, far) = ([p.a.seg(0, 1)], p.b.far(0, 1));
    for cookie in 0..3 {
        p.a.ia.ep_post_rdma_write(second, &iov, cookie, &far, FLAGS).unwrap();
    }
    let mut reaper = p.a.ia.evd_take_reaper(p.a.conn).unwrap();
    p.a.ia.ep_disconnect(p.now, first, CloseFlag::Abrupt).unwrap();
    p.run_until_idle();
    p.b.drain(p.b.conn);
    let mut seen = vec![reaper.dequeue().unwrap()];
    again(&mut p, first, peer);
    seen.extend(core::iter::from_fn(|| reaper.dequeue().ok()));
    let written = |event: &Event| matches!(event, Event::Dto(dto) if dto.ep == second);
    assert_eq!(seen.iter().filter(|event| written(event)).count(), 3);
    seen.retain(|event| !written(event));
    assert_eq!(seen, [Event::Disconnected(first), Event::Established(first)]);
    p.a.ia.evd_return_reaper(reaper).unwrap();
    p.a.ia.ep_disconnect(p.now, first, CloseFlag::Abrupt).unwrap();
    assert_eq!(p.a.drain(p.a.conn), [Event::Disconnected(first)]);
}

/// The reset of an Endpoint leaves the end of another before what a third has flushed since.
#[test]
fn a_reset_leaves_the_order_of_others() {
    let (mut p, [[first, second], _]) = two();
    for side in [&mut p.a, &mut p.b] {
        let evd = Some(side.conn);
        side.ep = side.ia.ep_create(Some(side.pz), evd, evd, evd, None).unwrap();
    }
    p.connect();
    let third = p.a.ep;
    p.a.ia.ep_disconnect(p.now, third, CloseFlag::Abrupt).unwrap();
    assert_eq!(p.a.drain(p.a.conn), [Event::Disconnected(third)]);
    let (iov, far) = ([p.a.seg(0, 1)], p.b.far(0, 1));
    for cookie in 0..2 {
        p.a.ia.ep_post_rdma_write(second, &iov, cookie, &far, FLAGS).unwrap();
    }
    p.a.ia.ep_disconnect(p.now, first, CloseFlag::Abrupt).unwrap();
    assert!(matches!(p.a.next(p.a.conn), Some(Event::Dto(dto)) if dto.cookie == 0));
    p.a.ia.ep_disconnect(p.now, second, CloseFlag::Abrupt).unwrap();
    p.a.ia.ep_post_recv(second, &iov, 10, FLAGS).unwrap();
    assert!(matches!(p.a.next(p.a.conn), Some(Event::Dto(dto)) if dto.cookie == 1));
    p.a.ia.ep_reset(third).unwrap();
    let seen = p.a.drain(p.a.conn);
    assert_eq!((seen.len(), seen[0]), (3, Event::Disconnected(first)));
    assert_eq!(flushed(&seen[1], second), Some(10));
    assert_eq!(seen[2], Event::Disconnected(second));
}

/// An Endpoint is freed while its end waits, and its Event Dispatcher after it: the ends of the next
/// Endpoint in its slot wait for their completions, whichever slots their events have.
#[test]
fn an_end_that_went_with_its_endpoint_is_not_taken_for_a_later_one() {
    for before in 0..6 {
        let fabric: &'static Fabric = Box::leak(Box::new(Fabric::new()));
        let a = Side::on(open_of::<1>(fabric, 0), fabric, 0, Merge::All, None);
        let mut b = Side::new(fabric, 1, Merge::All, None);
        b.ia.psp_create(PORT, b.cr, PspFlag::Consumer).unwrap();
        let mut p = Pair { fabric, a, b, now: Instant::from_nanos(1) };
        // Connects, writes twice and ends; the first write is dequeued.
        let ended = |p: &mut Pair| {
            p.connect();
            let (iov, far) = ([p.a.seg(0, 1)], p.b.far(0, 1));
            for cookie in 0..2 {
                p.a.ia.ep_post_rdma_write(p.a.ep, &iov, cookie, &far, FLAGS).unwrap();
            }
            p.a.ia.ep_disconnect(p.now, p.a.ep, CloseFlag::Abrupt).unwrap();
            p.run_until_idle();
            p.b.drain(p.b.conn);
            p.b.ia.ep_reset(p.b.ep).unwrap();
            assert!(matches!(p.a.next(p.a.conn), Some(Event::Dto(dto)) if dto.cookie == 0));
        };
        for _ in 0..before {
            ended(&mut p);
            assert_eq!(p.a.drain(p.a.conn).len(), 2);
            p.a.ia.ep_reset(p.a.ep).unwrap();
        }
        ended(&mut p);
        p.a.ia.ep_free(p.now, p.a.ep).unwrap();
        p.a.ia.evd_free(p.a.conn).unwrap();
        p.a.conn = p.a.ia.evd_create(64, EvdFlags::DEFAULT & !EvdFlags::ASYNC).unwrap();
        let all = Some(p.a.conn);
        p.a.ep = p.a.ia.ep_create(Some(p.a.pz), all, all, all, None).unwrap();
        ended(&mut p);
        let seen = p.a.drain(p.a.conn);
        assert!(matches!(seen[0], Event::Dto(dto) if dto.cookie == 1), "{before} before");
        assert_eq!(seen[1..], [Event::Disconnected(p.a.ep)]);
    }
}
