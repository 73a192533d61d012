//! An Event Dispatcher with a listener, and no other, has its completions taken in and the device
//! asked to announce the next, and a wait that has to look again is woken.

#![expect(clippy::unwrap_used, reason = "a test")]

use core::time::Duration;

use crate::pair::*;
use dat_core::provider::{Cq, Notice};
use dat_core::*;

const NOBODY: Result<Evd, DatReturn> = Err(DatReturn::QUEUE_EMPTY);
const WAITER: DatReturn = DatReturn::new(DatType::InvalidState, DatSubtype::InvalidStateEvdWaiter);

/// Two connected sides; the second has receives.
fn fed(attr: Option<&EpAttr>) -> Pair {
    let mut p = Pair::connected_as(Merge::Apart, attr);
    for cookie in 0..16 {
        p.b.post_recv(cookie).unwrap();
    }
    p
}

/// A CNO that listens to `evd` of the first side.
fn listen(p: &mut Pair, evd: Evd) -> Cno {
    let cno = p.a.ia.cno_create(None).unwrap();
    p.a.ia.evd_modify_cno(evd, Some(cno)).unwrap();
    p.run_until_idle();
    cno
}

#[test]
fn nobody_looks_at_what_nobody_listens_to() {
    let mut p = fed(None);
    let (request, conn) = (p.a.request, p.a.conn);
    listen(&mut p, conn);
    p.a.ia.evd_disable(request).unwrap();
    p.a.ia.evd_enable(request).unwrap();
    for cookie in 0..2 {
        p.a.send(cookie, FLAGS).unwrap();
        assert!(!p.a.ia.advance(p.now).work);
        assert!(!p.a.ia.evd_take_notice(request));
    }
}

#[test]
fn the_device_announces_each_completion_to_a_listener() {
    let mut p = fed(None);
    let evd = p.a.request;
    listen(&mut p, evd);
    for cookie in 0..3 {
        p.a.send(cookie, FLAGS).unwrap();
        p.run_until_idle();
        assert!(p.a.ia.evd_take_notice(evd), "{cookie}");
        assert!(!p.a.ia.evd_take_notice(evd));
    }
}

#[test]
fn the_device_announces_what_is_solicited_where_only_that_counts() {
    let p = Pair::unconnected(Merge::Apart, None);
    let mut attr = p.a.ia.ep_attr_default();
    attr.recv_completion_flags = CompletionFlags::SOLICITED_WAIT;
    let mut p = Pair::connected_as(Merge::Apart, Some(&attr));
    let evd = p.a.recv;
    for cookie in 0..4 {
        p.a.post_recv(cookie).unwrap();
    }
    let cno = listen(&mut p, evd);
    p.b.send(1, FLAGS).unwrap();
    p.run_until_idle();
    assert!(!p.a.ia.evd_take_notice(evd));
    assert_eq!(p.a.ia.cno_trigger(cno), NOBODY);
    p.b.send(2, CompletionFlags::SOLICITED_WAIT).unwrap();
    p.run_until_idle();
    assert!(p.a.ia.evd_take_notice(evd));
    assert_eq!(p.a.ia.cno_trigger(cno), Ok(evd));
}

#[test]
fn a_reaper_on_another_thread_arms_for_itself() {
    let mut p = fed(None);
    let evd = p.a.request;
    p.run_until_idle();
    let mut reaper = p.a.ia.evd_take_reaper(evd).unwrap();
    p.a.send(1, FLAGS).unwrap();
    p.run_until_idle();
    assert!(!p.a.ia.evd_take_notice(evd));
    reaper.arm(false);
    p.run_until_idle();
    assert!(p.a.ia.evd_take_notice(evd));
    // By handle it cannot be armed meanwhile.
    assert_eq!(p.a.ia.evd_arm(evd, false), Err(WAITER));
    assert_eq!(p.a.ia.evd_more(evd), Err(WAITER));
    assert!(reaper.dequeue().is_ok());
    p.a.ia.evd_return_reaper(reaper).unwrap();
    assert_eq!(p.a.ia.evd_arm(evd, false), Ok(()));
}

/// More than half of the ring is queued: what comes then is not looked at, so that all of it
/// counts.
#[test]
fn a_completion_without_room_in_the_ring_triggers_all_the_same() {
    let mut p = Pair::connected_as(Merge::RecvRequest, None);
    let evd = p.a.request;
    let cno = listen(&mut p, evd);
    for cookie in 0..20 {
        p.a.post_recv(100 + cookie).unwrap();
        p.b.post_recv(cookie).unwrap();
        p.a.send(cookie, FLAGS).unwrap();
        p.b.send(cookie, FLAGS).unwrap();
        p.run_until_idle();
        assert_eq!(p.a.ia.cno_trigger(cno), Ok(evd), "{cookie}");
    }
    assert_eq!(p.a.dtos(evd).len(), 40);
}

/// A resize to a shorter queue keeps the position up to which completions have been looked at.
#[test]
fn an_unsignalled_completion_triggers_nothing_after_a_resize() {
    let p = Pair::unconnected(Merge::Apart, None);
    let mut attr = p.a.ia.ep_attr_default();
    attr.request_completion_flags = CompletionFlags::UNSIGNALLED;
    let mut p = fed(Some(&attr));
    let evd = p.a.request;
    let cno = listen(&mut p, evd);
    p.a.ia.evd_resize(evd, 1).unwrap();
    p.a.send(1, CompletionFlags::UNSIGNALLED).unwrap();
    p.run_until_idle();
    assert_eq!(p.a.ia.cno_trigger(cno), NOBODY);
    p.a.send(2, FLAGS).unwrap();
    p.run_until_idle();
    assert_eq!(p.a.ia.cno_trigger(cno), Ok(evd));
}

#[test]
fn a_completion_before_a_resize_triggers() {
    let mut p = fed(None);
    let evd = p.a.request;
    let cno = listen(&mut p, evd);
    p.a.send(1, FLAGS).unwrap();
    p.a.ia.evd_resize(evd, 32).unwrap();
    assert_eq!(p.a.ia.cno_trigger(cno), Ok(evd));
    assert_eq!(p.a.dtos(evd), [(1, DtoStatus::Success)]);
}

/// Completions of an Endpoint that was reset are no events, but they lie in the device's queue.
#[test]
fn a_resize_makes_room_in_the_queue_that_it_leaves() {
    let mut p = fed(None);
    let evd = p.a.request;
    for cookie in 0..16 {
        p.a.send(cookie, FLAGS).unwrap();
    }
    p.a.ia.ep_disconnect(p.now, p.a.ep, CloseFlag::Abrupt).unwrap();
    p.a.ia.ep_reset(p.a.ep).unwrap();
    assert_eq!(p.a.ia.evd_more(evd), Ok(0));
    p.a.ia.evd_resize(evd, 4).unwrap();
    assert_eq!(p.a.ia.evd_query(evd).unwrap().qlen, 4);
    assert_eq!(p.a.drain(evd), []);
}

#[test]
fn asynchronous_events_are_work_and_no_connection_events() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    let evd = p.a.ia.async_evd();
    p.run_until_idle();
    p.fabric.raise(0, Notice::CqError(Cq(0)));
    assert!(p.a.ia.advance(p.now).work);
    assert_eq!(p.a.drain(evd).len(), 1);
    let counters = p.a.ia.evd_query_counters(evd, false).unwrap();
    assert_eq!(counters[8], 0);
    // The same of one that a host passes on.
    let taker = p.a.ia.evd_create(1, EvdFlags::ASYNC).unwrap();
    let cno = listen(&mut p, taker);
    assert!(!p.a.ia.advance(p.now).work);
    p.a.ia.evd_pass_on(taker, AsyncEvent::EpBroken(p.a.ep));
    assert_eq!(p.a.ia.cno_trigger(cno), Ok(taker));
    assert!(p.a.ia.advance(p.now).work);
    let none = p.a.ia.evd_create(1, EvdFlags::ASYNC).unwrap();
    assert!(!p.a.ia.advance(p.now).work);
    p.a.ia.evd_pass_on(none, AsyncEvent::EpBroken(p.a.ep));
    assert!(p.a.ia.advance(p.now).work);
}

#[test]
fn a_waiter_looks_again_when_waits_are_forbidden() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    p.run_until_idle();
    assert!(!p.a.ia.advance(p.now).work);
    p.a.ia.evd_set_unwaitable(p.a.request).unwrap();
    assert!(p.a.ia.advance(p.now).work);
    assert!(!p.a.ia.advance(p.now).work);
}

/// The adapter's first Event Dispatcher is one like any other.
#[test]
fn the_first_event_dispatcher_of_an_adapter_is_listened_to() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    let evd = p.a.ia.evd_create(4, EvdFlags::ASYNC).unwrap();
    p.a.ia.set_async_evd(evd).unwrap();
    // It takes the place of the one that was made with the adapter.
    let streams = EvdFlags::DTO | EvdFlags::RMR_BIND;
    p.a.request = p.a.ia.evd_create(32, streams).unwrap();
    let [recv, request, conn] = [p.a.recv, p.a.request, p.a.conn].map(Some);
    p.a.ep = p.a.ia.ep_create(Some(p.a.pz), recv, request, conn, None).unwrap();
    p.connect();
    p.b.post_recv(1).unwrap();
    let evd = p.a.request;
    let cno = listen(&mut p, evd);
    p.a.send(1, FLAGS).unwrap();
    p.run_until_idle();
    assert_eq!(p.a.ia.cno_trigger(cno), Ok(evd));
    assert_eq!(p.a.dtos(evd), [(1, DtoStatus::Success)]);
}

/// A wait is of one adapter: nothing that another one does with it changes either of them.
#[test]
fn a_wait_of_another_adapter_ends_nothing() {
    let mut p = Pair::connected();
    let second = Duration::from_secs(1);
    let mut of_a = p.a.ia.evd_wait(p.now, p.a.request, second, 1).unwrap();
    let mut of_b = p.b.ia.evd_wait(p.now, p.b.request, second, 1).unwrap();
    let stale = DatReturn::new(DatType::InvalidHandle, DatSubtype::InvalidHandle1);
    let found = p.b.ia.evd_waited(p.now, &mut of_a);
    assert_eq!(found, core::task::Poll::Ready(Err(stale)));
    assert_eq!(p.b.ia.evd_dequeue(p.b.request), Err(WAITER));
    p.b.ia.evd_wait_end(&mut of_b);
    assert_eq!(p.b.ia.evd_dequeue(p.b.request), Err(DatReturn::QUEUE_EMPTY));
}

/// One whose end is that it overflowed stays at its end when the wait for it is over.
#[test]
fn a_wait_does_not_bring_a_dead_event_dispatcher_back() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    let evd = p.a.ia.async_evd();
    let mut wait = p.a.ia.evd_wait(p.now, evd, Duration::from_secs(1), 1).unwrap();
    for _ in 0..20 {
        p.fabric.raise(0, Notice::CqError(Cq(0)));
    }
    p.run_until_idle();
    p.a.ia.evd_wait_end(&mut wait);
    let dead = DatReturn::new(DatType::InvalidState, DatSubtype::InvalidStateEvdAsync);
    assert_eq!(p.a.ia.evd_dequeue(evd), Err(dead));
}

/// An event that is lost elsewhere triggers the CNO of the asynchronous events.
#[test]
fn an_overflow_triggers_the_cno_of_the_asynchronous_events() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    let conn = p.a.ia.evd_create(1, EvdFlags::CONNECTION).unwrap();
    let evd = p.a.ia.async_evd();
    let cno = listen(&mut p, evd);
    let streams = (Some(p.a.recv), Some(p.a.request), Some(conn));
    let (second, mine) = (Duration::from_secs(5), p.b.ep);
    let mut peers = vec![mine];
    let (r, q, c) = (p.b.recv, p.b.request, p.b.conn);
    let other = p.b.ia.ep_create(Some(p.b.pz), Some(r), Some(q), Some(c), None).unwrap();
    peers.push(other);
    for peer in peers {
        let (recv, request, conn) = streams;
        let ep = p.a.ia.ep_create(Some(p.a.pz), recv, request, conn, None).unwrap();
        p.a.ia.ep_connect(p.now, ep, addr(1), PORT, second, b"", Qos::BestEffort).unwrap();
        p.run_until_idle();
        let cr = p.request().unwrap();
        p.b.ia.cr_accept(p.now, cr, Some(peer), b"").unwrap();
        p.run_until_idle();
    }
    assert_eq!(p.a.drain(conn).len(), 1);
    assert_eq!(p.a.ia.cno_trigger(cno), Ok(evd));
    let lost = Event::Async(AsyncEvent::EvdOverflow(conn));
    assert_eq!(p.a.drain(evd), [lost]);
}

/// The end of an Endpoint with nothing outstanding is no event of its completions.
#[test]
fn the_end_of_an_idle_endpoint_triggers_no_cno_of_its_requests() {
    let mut p = Pair::connected();
    let evd = p.a.request;
    let cno = listen(&mut p, evd);
    p.a.ia.ep_disconnect(p.now, p.a.ep, CloseFlag::Abrupt).unwrap();
    p.run_until_idle();
    assert_eq!(p.a.ia.cno_trigger(cno), NOBODY);
}
