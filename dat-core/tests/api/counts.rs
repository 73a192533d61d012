//! How many events an Event Dispatcher has: what dat_evd_wait(3) gives as `nmore`, and what a
//! threshold goes by. Completions that have no event, events that have no completion, and events of
//! other kinds are counted as the consumer will get them.

#![expect(clippy::unwrap_used, reason = "a test")]

use core::task::Poll;
use core::time::Duration;

use crate::pair::*;
use dat_core::*;

const SUPPRESS: CompletionFlags = CompletionFlags::SUPPRESS;

/// Takes what there is one by one; before each, the count must be what is left.
fn counted(side: &mut Side, evd: Evd, events: u32) {
    for left in (1..=events).rev() {
        assert_eq!(side.ia.evd_more(evd).unwrap(), left);
        assert!(side.next(evd).is_some());
    }
    assert_eq!(side.ia.evd_more(evd).unwrap(), 0);
    assert_eq!(side.next(evd), None);
}

#[test]
fn suppressed_successes_are_not_counted() {
    let mut p = Pair::connected();
    for cookie in 0..6 {
        p.b.post_recv(cookie).unwrap();
    }
    for (cookie, flags) in
        [FLAGS, SUPPRESS, FLAGS, SUPPRESS, SUPPRESS, FLAGS].into_iter().enumerate()
    {
        p.a.send(cookie as u64, flags).unwrap();
    }
    let (requests, receives) = (p.a.request, p.b.recv);
    counted(&mut p.a, requests, 3);
    counted(&mut p.b, receives, 6);
}

#[test]
fn flushed_requests_are_counted_once() {
    for merge in Merge::ALL {
        let mut p = Pair::connected_as(merge, None);
        for cookie in 0..3 {
            p.a.post_recv(cookie).unwrap();
        }
        // Two that succeed and are not dequeued, and three that are flushed; one of each is
        // suppressed.
        for cookie in 0..2 {
            p.b.post_recv(cookie).unwrap();
        }
        p.a.send(10, FLAGS).unwrap();
        p.a.send(11, SUPPRESS).unwrap();
        p.fabric.hold(true);
        p.a.send(12, FLAGS).unwrap();
        p.a.send(13, SUPPRESS).unwrap();
        p.a.send(14, FLAGS).unwrap();
        p.a.ia.ep_disconnect(p.now, p.a.ep, CloseFlag::Abrupt).unwrap();
        p.fabric.hold(false);
        // The success, the three that are flushed (what fails is never silent), and the receives.
        let of = |evd: Evd| {
            let requests = if evd == p.a.request { 4 } else { 0 };
            let receives = if evd == p.a.recv { 3 } else { 0 };
            requests + receives + u32::from(evd == p.a.conn)
        };
        let mut evds = vec![p.a.recv, p.a.request, p.a.conn];
        evds.dedup();
        let expected: Vec<(Evd, u32)> = evds.into_iter().map(|evd| (evd, of(evd))).collect();
        let mut seen = Vec::new();
        for (evd, events) in expected {
            if !seen.contains(&evd) {
                counted(&mut p.a, evd, events);
                seen.push(evd);
            }
        }
    }
}

/// Waits with a threshold: nothing before there are so many, the first of them then.
/// A post after the end is flushed by software, and has no completion; a post before it has one or
/// not.
#[test]
fn posts_after_the_end_are_counted_once() {
    for (before, after) in [(0, 1), (0, 2), (3, 0), (3, 1), (3, 2)] {
        let mut p = Pair::connected();
        let (requests, receives) = (p.a.request, p.a.recv);
        p.fabric.hold(true);
        for cookie in 0..before {
            p.a.post_recv(cookie).unwrap();
            p.a.send(cookie, FLAGS).unwrap();
        }
        p.a.ia.ep_disconnect(p.now, p.a.ep, CloseFlag::Abrupt).unwrap();
        p.run_until_idle();
        for cookie in 0..after {
            p.a.post_recv(cookie).unwrap();
            p.a.send(cookie, FLAGS).unwrap();
        }
        let all = u32::try_from(before + after).unwrap();
        for evd in [requests, receives] {
            counted(&mut p.a, evd, all);
        }
    }
}

/// A flushed request notifies: a wait for all of them ends at once, with the first.
#[test]
fn a_flushed_request_ends_a_wait() {
    let mut p = Pair::connected();
    p.a.ia.ep_disconnect(p.now, p.a.ep, CloseFlag::Abrupt).unwrap();
    p.run_until_idle();
    for cookie in 0..2 {
        p.a.post_recv(cookie).unwrap();
        p.a.send(cookie, FLAGS).unwrap();
    }
    for evd in [p.a.request, p.a.recv] {
        let mut wait = p.a.ia.evd_wait(p.now, evd, Duration::from_secs(1), 2).unwrap();
        let found = p.a.ia.evd_waited(p.now, &mut wait);
        assert!(matches!(found, Poll::Ready(Ok(Event::Dto(_)))), "{found:?}");
        counted(&mut p.a, evd, 1);
    }
}

/// A connected pair whose first side decides for each receive whether its success wakes anybody.
fn deciding() -> Pair {
    let mut p = Pair::unconnected(Merge::Apart, None);
    let mut attr = p.a.ia.ep_attr_default();
    attr.recv_completion_flags = CompletionFlags::UNSIGNALLED;
    p.a.recv = p.a.ia.evd_create(8, EvdFlags::DTO).unwrap();
    let (recv, request, conn) = (p.a.recv, p.a.request, p.a.conn);
    p.a.ep =
        p.a.ia.ep_create(Some(p.a.pz), Some(recv), Some(request), Some(conn), Some(&attr)).unwrap();
    p.connect();
    p
}

/// Whether the arrival of a message of so many bytes ends a wait of the first side.
fn wakes(p: &mut Pair, len: u32) -> bool {
    let (recv, long) = (p.a.recv, Duration::from_secs(1));
    let mut wait = p.a.ia.evd_wait(p.now, recv, long, 1).unwrap();
    assert!(p.a.ia.evd_waited(p.now, &mut wait).is_pending());
    let iov = [p.b.seg(0, len)];
    p.b.ia.ep_post_send(p.b.ep, &iov, 1, FLAGS).unwrap();
    let found = p.a.ia.evd_waited(p.now, &mut wait);
    p.a.ia.evd_wait_end(&mut wait);
    found.is_ready()
}

/// A receive whose success wakes nobody wakes when it fails.
#[test]
fn a_receive_that_fails_notifies_whatever_its_flags() {
    for (len, expected) in [(8, false), (9, true)] {
        let mut p = deciding();
        let iov = [p.a.seg(0, 8)];
        p.a.ia.ep_post_recv(p.a.ep, &iov, 1, CompletionFlags::UNSIGNALLED).unwrap();
        assert_eq!(wakes(&mut p, len), expected, "{len} bytes");
    }
}

/// Receives that a reset drops do not affect the receives that use their slots then.
#[test]
fn a_reset_forgets_which_receives_wake_nobody() {
    let mut p = deciding();
    let unsignalled = CompletionFlags::UNSIGNALLED;
    for cookie in 0..8 {
        let iov = [p.a.seg(0, 8)];
        p.a.ia.ep_post_recv(p.a.ep, &iov, cookie, unsignalled).unwrap();
    }
    for side in [&mut p.a, &mut p.b] {
        let ep = side.ep;
        side.ia.ep_disconnect(p.now, ep, CloseFlag::Abrupt).unwrap();
    }
    p.run_until_idle();
    for side in [&mut p.a, &mut p.b] {
        side.drain(side.conn);
        side.ia.ep_reset(side.ep).unwrap();
    }
    p.connect();
    for cookie in 0..8 {
        p.a.post_recv(cookie).unwrap();
        assert!(wakes(&mut p, 8), "receive {cookie}");
        p.a.drain(p.a.recv);
    }
}

/// A completion of an earlier connection is no event, and is not counted.
#[test]
fn stale_completions_are_not_counted() {
    let mut p = Pair::connected();
    let (requests, receives) = (p.a.request, p.a.recv);
    p.a.post_recv(1).unwrap();
    p.b.send(1, FLAGS).unwrap();
    p.b.post_recv(1).unwrap();
    p.a.send(1, FLAGS).unwrap();
    p.a.ia.ep_disconnect(p.now, p.a.ep, CloseFlag::Abrupt).unwrap();
    p.run_until_idle();
    p.b.drain(p.b.conn);
    p.a.drain(p.a.conn);
    p.a.ia.ep_reset(p.a.ep).unwrap();
    counted(&mut p.a, requests, 0);
    counted(&mut p.a, receives, 0);
}

/// An end that has been looked at and waits for what was raised before it is counted all the same.
#[test]
fn an_end_that_waits_is_counted() {
    let mut p = Pair::connected_as(Merge::RecvConn, None);
    let evd = p.a.conn;
    for number in 0..3 {
        p.a.ia.evd_post_se(evd, number).unwrap();
    }
    p.a.ia.ep_disconnect(p.now, p.a.ep, CloseFlag::Abrupt).unwrap();
    p.run_until_idle();
    counted(&mut p.a, evd, 4);
}

/// A suppressed request that fails has an event.
#[test]
fn suppressed_failures_are_counted() {
    let mut p = Pair::connected();
    let (iov, mut far) = ([p.a.seg(0, 1)], p.b.far(0, 1));
    far.context ^= 0x55;
    p.a.ia.ep_post_rdma_write(p.a.ep, &iov, 1, &far, SUPPRESS).unwrap();
    let requests = p.a.request;
    counted(&mut p.a, requests, 1);
}

#[test]
fn a_threshold_goes_by_events() {
    let mut p = Pair::connected();
    let evd = p.a.request;
    let mut wait = p.a.ia.evd_wait(p.now, evd, Duration::from_secs(1), 2).unwrap();
    for cookie in 0..4 {
        p.b.post_recv(cookie).unwrap();
    }
    let looks = [(0, FLAGS, false), (1, SUPPRESS, false), (2, SUPPRESS, false), (3, FLAGS, true)];
    for (cookie, flags, over) in looks {
        p.a.send(cookie, flags).unwrap();
        p.run_until_idle();
        let found = p.a.ia.evd_waited(p.now, &mut wait);
        match found {
            Poll::Pending => assert!(!over, "after {cookie}"),
            Poll::Ready(event) => {
                assert!(over, "after {cookie}: {event:?}");
                assert!(matches!(event, Ok(Event::Dto(DtoEvent { cookie: 0, .. }))));
            }
        }
    }
    assert_eq!(p.a.ia.evd_more(evd).unwrap(), 1);
}

#[test]
fn a_threshold_that_is_not_reached_ends_with_the_time_and_takes_nothing() {
    let mut p = Pair::connected();
    let evd = p.a.request;
    p.b.post_recv(1).unwrap();
    p.a.send(1, FLAGS).unwrap();
    p.run_until_idle();
    let mut wait = p.a.ia.evd_wait(p.now, evd, Duration::from_secs(1), 2).unwrap();
    assert!(p.a.ia.evd_waited(p.now, &mut wait).is_pending());
    p.now = p.now + Duration::from_secs(1);
    let found = p.a.ia.evd_waited(p.now, &mut wait);
    assert_eq!(found, Poll::Ready(Err(DatReturn::of(DatType::TimeoutExpired))));
    counted(&mut p.a, evd, 1);
}

/// On an Endpoint that decides for each completion, unsignalled ones do not end a wait that has
/// begun; a failed one does.
#[test]
fn an_unsignalled_completion_ends_no_wait_until_one_that_notifies_comes() {
    let p = Pair::unconnected(Merge::Apart, None);
    let mut attr = p.a.ia.ep_attr_default();
    attr.request_completion_flags = CompletionFlags::UNSIGNALLED;
    let unsignalled = CompletionFlags::UNSIGNALLED;
    let mut p = Pair::connected_as(Merge::Apart, Some(&attr));
    let evd = p.a.request;
    for cookie in 0..6 {
        p.b.post_recv(cookie).unwrap();
    }
    let mut wait = p.a.ia.evd_wait(p.now, evd, Duration::from_secs(1), 1).unwrap();
    assert!(p.a.ia.evd_waited(p.now, &mut wait).is_pending());
    p.a.send(0, unsignalled).unwrap();
    p.run_until_idle();
    assert!(p.a.ia.evd_waited(p.now, &mut wait).is_pending());
    p.a.send(1, FLAGS).unwrap();
    p.run_until_idle();
    let found = p.a.ia.evd_waited(p.now, &mut wait);
    assert!(matches!(found, Poll::Ready(Ok(Event::Dto(DtoEvent { cookie: 0, .. })))));
    assert_eq!(p.a.dtos(evd), [(1, DtoStatus::Success)]);

    // One that was there when the wait began ends it; and so does the end of its time.
    p.a.send(2, unsignalled).unwrap();
    p.run_until_idle();
    let mut wait = p.a.ia.evd_wait(p.now, evd, Duration::from_secs(1), 1).unwrap();
    let found = p.a.ia.evd_waited(p.now, &mut wait);
    assert!(matches!(found, Poll::Ready(Ok(Event::Dto(DtoEvent { cookie: 2, .. })))));
    let mut wait = p.a.ia.evd_wait(p.now, evd, Duration::from_secs(1), 1).unwrap();
    assert!(p.a.ia.evd_waited(p.now, &mut wait).is_pending());
    p.a.send(3, unsignalled).unwrap();
    p.run_until_idle();
    p.now = p.now + Duration::from_secs(1);
    let found = p.a.ia.evd_waited(p.now, &mut wait);
    assert!(matches!(found, Poll::Ready(Ok(Event::Dto(DtoEvent { cookie: 3, .. })))));

    // A failure notifies, whatever it was posted with.
    let mut wait = p.a.ia.evd_wait(p.now, evd, Duration::from_secs(1), 1).unwrap();
    assert!(p.a.ia.evd_waited(p.now, &mut wait).is_pending());
    p.fabric.hold(true);
    p.a.send(4, unsignalled).unwrap();
    p.a.ia.ep_disconnect(p.now, p.a.ep, CloseFlag::Abrupt).unwrap();
    p.fabric.hold(false);
    let found = p.a.ia.evd_waited(p.now, &mut wait);
    assert!(matches!(
        found,
        Poll::Ready(Ok(Event::Dto(DtoEvent { cookie: 4, status: DtoStatus::ErrFlushed, .. })))
    ));
}

/// Who waits is woken only if something is there for him, so he asks once. A completion that has no
/// event uses up what he asked for, and so does one that he took before its notice came.
#[test]
fn what_a_waiter_asked_for_outlasts_notices_that_leave_nothing() {
    let mut p = Pair::connected();
    let evd = p.a.request;
    for cookie in 0..5 {
        p.b.post_recv(cookie).unwrap();
    }
    p.a.ia.evd_arm(evd, false).unwrap();
    p.a.send(0, FLAGS).unwrap();
    assert!(p.a.next(evd).is_some(), "taken before its notice is read");
    let mut wait = p.a.ia.evd_wait(p.now, evd, Duration::from_secs(1), 1).unwrap();
    assert!(p.a.ia.evd_waited(p.now, &mut wait).is_pending());
    p.a.ia.evd_arm(evd, false).unwrap();
    p.run_until_idle();
    for _ in 0..2 {
        p.a.ia.evd_take_notice(evd);
        p.a.send(1, SUPPRESS).unwrap();
        // Posts an empty request behind it.
        p.a.ia.ep_get_status(p.a.ep).unwrap();
        p.run_until_idle();
        assert!(p.a.ia.evd_take_notice(evd));
        assert_eq!(p.a.ia.evd_more(evd), Ok(0));
    }
    p.a.send(2, FLAGS).unwrap();
    p.run_until_idle();
    assert!(p.a.ia.evd_take_notice(evd));
    assert!(p.a.ia.evd_waited(p.now, &mut wait).is_ready());
    // The wait has ended, and what it asked for with it.
    p.a.send(3, FLAGS).unwrap();
    assert!(p.a.next(evd).is_some());
    p.run_until_idle();
    assert!(!p.a.ia.evd_take_notice(evd));
}

/// While somebody waits, suppressed requests give back what they hold though nobody dequeues.
#[test]
fn suppressed_requests_end_under_a_wait() {
    for sleeps in [true, false] {
        let mut p = Pair::connected();
        let evd = p.a.request;
        let mut wait = p.a.ia.evd_wait(p.now, evd, Duration::from_secs(1), 1).unwrap();
        assert!(p.a.ia.evd_waited(p.now, &mut wait).is_pending());
        if sleeps {
            p.a.ia.evd_arm(evd, false).unwrap();
        }
        for cookie in 0..1000 {
            p.b.post_recv(cookie).unwrap();
            p.a.send(cookie, SUPPRESS).unwrap();
            p.run_until_idle();
            assert!(p.b.next(p.b.recv).is_some());
            if !sleeps {
                assert!(p.a.ia.evd_waited(p.now, &mut wait).is_pending());
            }
        }
    }
}

/// What has come is not enough for him who waits: it is announced once, however often he asks.
#[test]
fn what_is_not_enough_is_announced_once() {
    let mut p = Pair::connected();
    let evd = p.a.request;
    p.b.post_recv(0).unwrap();
    p.b.post_recv(1).unwrap();
    let mut wait = p.a.ia.evd_wait(p.now, evd, Duration::from_secs(1), 2).unwrap();
    p.a.ia.evd_arm(evd, false).unwrap();
    p.a.send(0, FLAGS).unwrap();
    p.run_until_idle();
    assert!(p.a.ia.evd_take_notice(evd));
    for _ in 0..2 {
        assert!(p.a.ia.evd_waited(p.now, &mut wait).is_pending());
        p.a.ia.evd_arm(evd, false).unwrap();
        p.run_until_idle();
        assert!(!p.a.ia.evd_take_notice(evd));
    }
    p.a.send(1, FLAGS).unwrap();
    p.run_until_idle();
    assert!(p.a.ia.evd_take_notice(evd));
    assert!(p.a.ia.evd_waited(p.now, &mut wait).is_ready());
}

/// The requests whose events are in a queue are named, and stay there.
#[test]
fn queued_requests_are_named() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    p.ask(b"").unwrap();
    p.run_until_idle();
    let mut seen = Vec::new();
    p.b.ia.evd_requests(p.b.cr, |cr| seen.push(cr)).unwrap();
    let cr = p.request().unwrap();
    assert_eq!(seen, [cr]);
    seen.clear();
    p.b.ia.evd_requests(p.b.cr, |cr| seen.push(cr)).unwrap();
    assert!(seen.is_empty());
    let stale = p.b.ia.evd_create(4, EvdFlags::CR).unwrap();
    p.b.ia.evd_free(stale).unwrap();
    let refused = p.b.ia.evd_requests(stale, |_| ()).unwrap_err();
    assert_eq!(refused.ret().ty(), DatType::InvalidHandle);
    let held = p.b.ia.evd_take_reaper(p.b.cr).unwrap();
    let refused = p.b.ia.evd_requests(p.b.cr, |_| ()).unwrap_err();
    assert_eq!(refused.ret().ty(), DatType::InvalidState);
    p.b.ia.evd_return_reaper(held).unwrap();
}

/// A host passes the adapter's asynchronous events on to its consumers' own Event Dispatchers.
#[test]
fn asynchronous_events_are_passed_on_to_those_that_take_them() {
    let mut p = Pair::connected();
    let taker = p.a.ia.evd_create(1, EvdFlags::ASYNC).unwrap();
    let what = AsyncEvent::EpBroken(p.a.ep);
    for evd in [taker, taker, p.a.conn] {
        p.a.ia.evd_pass_on(evd, what);
    }
    // One has no room for the second, the other does not take them.
    assert_eq!(p.a.drain(taker), [Event::Async(what)]);
    assert_eq!(p.a.drain(p.a.conn), []);
}
