//! Cases of dat_cno_*(3).

mod agents;

pub use agents::*;

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Poll, Wake};
use std::time::Duration;

use dat_core::{
    Agent, CloseFlag, Cno, CnoWait, CompletionFlags, DatReturn, DatSubtype, DatType, DtoOperation,
    Evd, EvdFlags, Event, MemPriv, Proxy,
};

use super::evd::{MOMENT, NOW, begin, pair, post, soft};
use super::{A, Adapters, B, LIMIT, NONE, Side, refused};

const NOBODY: DatReturn = DatReturn::QUEUE_EMPTY;

thread_local! {
    static CALLS: RefCell<Vec<(u64, Option<Evd>)>> = const { RefCell::new(Vec::new()) };
}

/// The calls of agents since the last time.
fn calls() -> Vec<(u64, Option<Evd>)> {
    CALLS.with(RefCell::take)
}

fn note(instance: u64, evd: Option<Evd>) {
    CALLS.with(|calls| calls.borrow_mut().push((instance, evd)));
}

fn agent(instance: u64) -> Option<Agent> {
    Some(Agent::Function { instance, function: note })
}

/// A CNO without an agent.
fn plain<S: Side>(ias: &mut Adapters<'_, S>) -> Cno {
    ias.a.cno_create(None).unwrap()
}

/// An Event Dispatcher for software events on that CNO.
fn on<S: Side>(ias: &mut Adapters<'_, S>, cno: Cno) -> Evd {
    let evd = soft(ias, 8);
    ias.a.evd_modify_cno(evd, Some(cno)).unwrap();
    evd
}

fn start<S: Side>(ias: &mut Adapters<'_, S>, cno: Cno, timeout: Duration) -> CnoWait {
    let now = ias.now();
    ias.a.cno_wait(now, cno, timeout).unwrap()
}

fn peek<S: Side>(
    ias: &mut Adapters<'_, S>,
    wait: &mut CnoWait,
) -> Poll<Result<Option<Evd>, DatReturn>> {
    let now = ias.now();
    ias.a.cno_waited(now, wait)
}

/// Waits, driving both sides.
fn wait<S: Side>(
    ias: &mut Adapters<'_, S>,
    cno: Cno,
    timeout: Duration,
) -> Result<Option<Evd>, DatReturn> {
    let mut wait = start(ias, cno, timeout);
    loop {
        if let Poll::Ready(found) = peek(ias, &mut wait) {
            return found;
        }
        ias.turn(Duration::from_micros(100));
    }
}

/// Drives until it is triggered.
fn triggered<S: Side>(ias: &mut Adapters<'_, S>, cno: Cno) -> Evd {
    ias.until(|ias| ias.a.cno_trigger(cno).ok())
}

/// At first: nothing attached, nobody waiting, not triggered.
pub fn a_new_one_has_nothing(ias: &mut Adapters<'_, impl Side>) {
    for (given, proxy) in [(None, Proxy::None), (agent(1), Proxy::Agent)] {
        let cno = ias.a.cno_create(given).unwrap();
        let param = ias.a.cno_query(cno).unwrap();
        assert_eq!((param.proxy, param.evds), (proxy, 0));
        assert!(param.waiters == 0 && !param.triggered);
        ias.a.cno_free(cno).unwrap();
    }
    ias.pass(MOMENT);
    assert!(calls().is_empty());
}

/// As many as Event Dispatchers, and not one more.
pub fn create_beyond_the_table(ias: &mut Adapters<'_, impl Side>) {
    let (ia, _) = ias.a.query();
    let all: Vec<Cno> = (0..ia.max_evds).map(|_| plain(ias)).collect();
    let made = ias.a.cno_create(None);
    refused(made, DatType::InsufficientResources, DatSubtype::ResourceMemory);
    ias.a.cno_free(all[0]).unwrap();
    plain(ias);
}

/// Every call with the handle of one that is gone.
pub fn a_freed_one_is_a_stale_handle(ias: &mut Adapters<'_, impl Side>) {
    let cno = plain(ias);
    ias.a.cno_free(cno).unwrap();
    plain(ias);
    let now = ias.now();
    let (ty, of) = (DatType::InvalidHandle, DatSubtype::InvalidHandleCno);
    refused(ias.a.cno_query(cno), ty, of);
    refused(ias.a.cno_wait(now, cno, NOW), ty, of);
    refused(ias.a.cno_trigger(cno), ty, of);
    refused(ias.a.cno_modify_agent(cno, None), ty, of);
    refused(ias.a.cno_free(cno), ty, of);
}

/// The query follows what happens.
pub fn query_tells_every_field(ias: &mut Adapters<'_, impl Side>) {
    let cno = plain(ias);
    let [one, _two] = [on(ias, cno), on(ias, cno)];
    assert_eq!(ias.a.cno_query(cno).unwrap().evds, 2);
    let mut waits = [start(ias, cno, LIMIT), start(ias, cno, LIMIT)];
    assert_eq!(ias.a.cno_query(cno).unwrap().waiters, 2);
    post(ias, one, 0..1);
    assert!(ias.a.cno_query(cno).unwrap().triggered);
    for wait in &mut waits {
        ias.a.cno_wait_end(wait);
    }
    assert_eq!(ias.a.cno_query(cno).unwrap().waiters, 0);
    ias.a.cno_modify_agent(cno, agent(1)).unwrap();
    assert_eq!(ias.a.cno_query(cno).unwrap().proxy, Proxy::Agent);
    ias.a.cno_modify_agent(cno, None).unwrap();
    assert_eq!(ias.a.cno_query(cno).unwrap().proxy, Proxy::None);
    let with_fd = ias.a.cno_fd_create().unwrap();
    assert_eq!(ias.a.cno_query(with_fd).unwrap().proxy, Proxy::Fd);
}

/// The event that came while nobody waited, and the one that comes during the wait.
pub fn a_wait_gives_who_triggered(ias: &mut Adapters<'_, impl Side>) {
    let cno = plain(ias);
    let [one, two] = [on(ias, cno), on(ias, cno)];
    post(ias, two, 0..1);
    assert_eq!(wait(ias, cno, LIMIT), Ok(Some(two)));
    let mut under = start(ias, cno, LIMIT);
    assert_eq!(peek(ias, &mut under), Poll::Pending);
    post(ias, one, 0..1);
    assert_eq!(peek(ias, &mut under), Poll::Ready(Ok(Some(one))));
    assert_eq!(ias.look(A, one), Some(Event::Software(0)));
    assert_eq!(ias.look(A, two), Some(Event::Software(0)));
}

/// A trigger is taken by one wait, whether the event is dequeued or not.
pub fn a_wait_untriggers(ias: &mut Adapters<'_, impl Side>) {
    let cno = plain(ias);
    let evd = on(ias, cno);
    post(ias, evd, 0..1);
    assert_eq!(wait(ias, cno, NOW), Ok(Some(evd)));
    assert!(!ias.a.cno_query(cno).unwrap().triggered);
    assert_eq!(wait(ias, cno, MOMENT), Err(NOBODY));
    post(ias, evd, 1..2);
    assert_eq!(wait(ias, cno, NOW), Ok(Some(evd)));
}

/// While it is triggered further events change nothing: the first is the hint.
pub fn triggers_are_merged(ias: &mut Adapters<'_, impl Side>) {
    let cno = plain(ias);
    let [one, two] = [on(ias, cno), on(ias, cno)];
    post(ias, one, 0..2);
    post(ias, two, 0..2);
    assert_eq!(wait(ias, cno, NOW), Ok(Some(one)));
    assert_eq!(wait(ias, cno, NOW), Err(NOBODY));
    // A woken waiter looks at both.
    for evd in [one, two] {
        assert_eq!(ias.look(A, evd), Some(Event::Software(0)));
        assert_eq!(ias.look(A, evd), Some(Event::Software(1)));
    }
}

/// Not before its time, with the class of an error, and with no Event Dispatcher.
pub fn a_wait_that_runs_out(ias: &mut Adapters<'_, impl Side>) {
    let cno = plain(ias);
    on(ias, cno);
    let start = ias.now();
    let found = wait(ias, cno, MOMENT);
    assert!(ias.now().since(start) >= MOMENT);
    refused(found, DatType::QueueEmpty, DatSubtype::None);
    assert_eq!(wait(ias, cno, NOW), Err(NOBODY));
    assert_eq!(ias.a.cno_query(cno).unwrap().waiters, 0);
}

/// A wait expires when its time is over: not before, and not long after.
pub fn a_wait_expires_at_its_timeout(ias: &mut Adapters<'_, impl Side>) {
    let cno = plain(ias);
    on(ias, cno);
    for millis in [10, 150, 2500] {
        let (begun, span) = (ias.now(), Duration::from_millis(millis));
        let mut under = start(ias, cno, span);
        let found = ias.until(|ias| match peek(ias, &mut under) {
            Poll::Ready(found) => Some(found),
            Poll::Pending => None,
        });
        let took = ias.now().since(begun);
        assert_eq!(found, Err(NOBODY));
        let slack = ias.slack();
        assert!(took >= span && took <= span + slack, "{span:?}: {took:?}");
    }
}

/// `DAT_TIMEOUT_INFINITE`.
pub fn a_wait_without_end(ias: &mut Adapters<'_, impl Side>) {
    let cno = plain(ias);
    let evd = on(ias, cno);
    let mut under = start(ias, cno, Duration::MAX);
    ias.pass(MOMENT);
    assert_eq!(peek(ias, &mut under), Poll::Pending);
    post(ias, evd, 0..1);
    assert_eq!(peek(ias, &mut under), Poll::Ready(Ok(Some(evd))));
}

/// While a wait for an Event Dispatcher is under way, its events do not trigger the CNO.
pub fn a_waiter_preempts_the_cno(ias: &mut Adapters<'_, impl Side>) {
    let cno = plain(ias);
    let evd = on(ias, cno);
    let mut under = begin(ias, evd, LIMIT, 2);
    post(ias, evd, 0..1);
    ias.pass(MOMENT);
    assert_eq!(ias.a.cno_trigger(cno), Err(NOBODY));
    ias.a.evd_wait_end(&mut under);
    post(ias, evd, 1..2);
    assert_eq!(ias.a.cno_trigger(cno), Ok(evd));
}

/// Connection requests, connection events and completions.
pub fn every_stream_triggers(ias: &mut Adapters<'_, impl Side>) {
    let cno = plain(ias);
    let point = ias.listen(A);
    ias.a.evd_modify_cno(point.evd, Some(cno)).unwrap();
    let [to, from] = [ias.end(A), ias.end(B)];
    for evd in [to.recv, to.request, to.conn] {
        ias.a.evd_modify_cno(evd, Some(cno)).unwrap();
    }
    ias.ask(&from, point.qualifier, LIMIT, b"");
    assert_eq!(triggered(ias, cno), point.evd);
    let cr = ias.request(&point);
    let now = ias.now();
    ias.a.cr_accept(now, cr, Some(to.ep), b"").unwrap();
    assert_eq!(triggered(ias, cno), to.conn);
    assert_eq!(ias.event(A, to.conn), Event::Established(to.ep));
    assert_eq!(ias.event(B, from.conn), Event::Established(from.ep));
    let there = ias.mem(A, to.pz, 64, MemPriv::ALL);
    let mem = ias.mem(B, from.pz, 64, MemPriv::ALL);
    for cookie in 0..3 {
        ias.recv(&to, &there, 0, 8, cookie);
        ias.send(&from, &mem, 0, 8, cookie);
        assert_eq!(triggered(ias, cno), to.recv);
        ias.done(&to, DtoOperation::Receive, cookie);
        ias.recv(&from, &mem, 0, 8, cookie);
        ias.send(&to, &there, 0, 8, cookie);
        assert_eq!(triggered(ias, cno), to.request);
        ias.done(&to, DtoOperation::Send, cookie);
    }
}

/// Events that come while earlier ones are still queued trigger as well.
pub fn completions_behind_others_trigger(ias: &mut Adapters<'_, impl Side>) {
    let cno = plain(ias);
    let [to, from] = ias.connected();
    ias.a.evd_modify_cno(to.recv, Some(cno)).unwrap();
    let there = ias.mem(A, to.pz, 64, MemPriv::ALL);
    let mem = ias.mem(B, from.pz, 64, MemPriv::ALL);
    for cookie in 0..4 {
        ias.recv(&to, &there, 0, 8, cookie);
        ias.send(&from, &mem, 0, 8, cookie);
        assert_eq!(triggered(ias, cno), to.recv);
        ias.pass(MOMENT);
        assert_eq!(ias.a.cno_trigger(cno), Err(NOBODY));
    }
    for cookie in 0..4 {
        ias.done(&to, DtoOperation::Receive, cookie);
    }
}

/// Unsignalled and suppressed successes do not, failures always do.
pub fn only_what_notifies_triggers(ias: &mut Adapters<'_, impl Side>) {
    let unsignalled = CompletionFlags::UNSIGNALLED;
    let cno = plain(ias);
    let [from, to] = pair(ias, NONE, unsignalled);
    ias.a.evd_modify_cno(from.request, Some(cno)).unwrap();
    let mem = ias.mem(A, from.pz, 64, MemPriv::ALL);
    let there = ias.mem(B, to.pz, 64, MemPriv::ALL);
    let seg = [mem.seg(0, 8)];
    for (cookie, flags) in [(1, unsignalled), (2, CompletionFlags::SUPPRESS)] {
        ias.recv(&to, &there, 0, 8, cookie);
        ias.a.ep_post_send(from.ep, &seg, cookie, flags).unwrap();
        ias.done(&to, DtoOperation::Receive, cookie);
        ias.pass(MOMENT);
        assert_eq!(ias.a.cno_trigger(cno), Err(NOBODY));
    }
    ias.recv(&to, &there, 0, 8, 3);
    ias.send(&from, &mem, 0, 8, 3);
    assert_eq!(triggered(ias, cno), from.request);
    ias.done(&from, DtoOperation::Send, 1);
    ias.done(&from, DtoOperation::Send, 3);
    ias.disconnect(&from, CloseFlag::Abrupt);
    assert_eq!(ias.event(A, from.conn), Event::Disconnected(from.ep));
    ias.pass(MOMENT);
    assert_eq!(ias.a.cno_trigger(cno), Err(NOBODY));
    ias.a.ep_post_send(from.ep, &seg, 4, unsignalled).unwrap();
    assert_eq!(triggered(ias, cno), from.request);
}

/// The peer decides.
pub fn only_solicited_receives_trigger(ias: &mut Adapters<'_, impl Side>) {
    let solicited = CompletionFlags::SOLICITED_WAIT;
    let cno = plain(ias);
    let [to, from] = pair(ias, solicited, NONE);
    ias.a.evd_modify_cno(to.recv, Some(cno)).unwrap();
    let there = ias.mem(A, to.pz, 64, MemPriv::ALL);
    let mem = ias.mem(B, from.pz, 64, MemPriv::ALL);
    let seg = [mem.seg(0, 8)];
    for round in 0..3 {
        ias.recv(&to, &there, 0, 8, round);
        ias.recv(&to, &there, 0, 8, round);
        ias.send(&from, &mem, 0, 8, round);
        ias.done(&from, DtoOperation::Send, round);
        ias.pass(MOMENT);
        assert_eq!(ias.a.cno_trigger(cno), Err(NOBODY));
        ias.b.ep_post_send(from.ep, &seg, round, solicited).unwrap();
        assert_eq!(triggered(ias, cno), to.recv);
        ias.done(&from, DtoOperation::Send, round);
        ias.done(&to, DtoOperation::Receive, round);
        ias.done(&to, DtoOperation::Receive, round);
    }
}

/// Flushed requests trigger, though no completion tells of them.
pub fn flushes_trigger(ias: &mut Adapters<'_, impl Side>) {
    let cno = plain(ias);
    let [to, _] = ias.connected();
    ias.a.evd_modify_cno(to.recv, Some(cno)).unwrap();
    let there = ias.mem(A, to.pz, 64, MemPriv::ALL);
    ias.recv(&to, &there, 0, 8, 1);
    ias.pass(MOMENT);
    assert_eq!(ias.a.cno_trigger(cno), Err(NOBODY));
    ias.disconnect(&to, CloseFlag::Abrupt);
    assert_eq!(triggered(ias, cno), to.recv);
    assert_eq!(ias.dto(A, to.recv).cookie, 1);
}

/// A thread that has the reaper arms the notification itself.
pub fn a_reaper_in_another_thread_triggers(ias: &mut Adapters<'_, impl Side>) {
    let cno = ias.a.cno_create(agent(9)).unwrap();
    let [to, from] = ias.connected();
    ias.a.evd_modify_cno(to.recv, Some(cno)).unwrap();
    let there = ias.mem(A, to.pz, 64, MemPriv::ALL);
    let mem = ias.mem(B, from.pz, 64, MemPriv::ALL);
    let mut reaper = ias.a.evd_take_reaper(to.recv).unwrap();
    reaper.arm(false);
    ias.recv(&to, &there, 0, 8, 1);
    ias.send(&from, &mem, 0, 8, 1);
    assert_eq!(triggered(ias, cno), to.recv);
    ias.pass(MOMENT);
    assert_eq!(calls(), [(9, Some(to.recv))]);
    assert!(matches!(reaper.dequeue(), Ok(Event::Dto(dto)) if dto.cookie == 1));
    assert!(ias.a.evd_return_reaper(reaper).is_ok());
}

/// Once, with what the consumer gave and the Event Dispatcher, by the drive alone; then it is
/// detached.
pub fn the_agent_is_called_once(ias: &mut Adapters<'_, impl Side>) {
    let cno = ias.a.cno_create(agent(7)).unwrap();
    let evd = on(ias, cno);
    post(ias, evd, 0..1);
    assert!(calls().is_empty());
    ias.pass(MOMENT);
    assert_eq!(calls(), [(7, Some(evd))]);
    assert_eq!(ias.a.cno_query(cno).unwrap().proxy, Proxy::None);
    post(ias, evd, 1..2);
    ias.pass(MOMENT);
    assert!(calls().is_empty());
    ias.a.cno_modify_agent(cno, agent(8)).unwrap();
    ias.pass(MOMENT);
    assert!(calls().is_empty());
    // Whether somebody waits besides or not.
    post(ias, evd, 2..3);
    ias.pass(MOMENT);
    assert_eq!(calls(), [(8, Some(evd))]);
    assert_eq!(wait(ias, cno, NOW), Ok(Some(evd)));
}

/// Another, or none, before the first was called.
pub fn a_replaced_agent_is_not_called(ias: &mut Adapters<'_, impl Side>) {
    let cno = ias.a.cno_create(agent(1)).unwrap();
    let evd = on(ias, cno);
    ias.a.cno_modify_agent(cno, agent(2)).unwrap();
    post(ias, evd, 0..1);
    ias.pass(MOMENT);
    assert_eq!(calls(), [(2, Some(evd))]);
    ias.a.cno_modify_agent(cno, agent(3)).unwrap();
    ias.a.cno_modify_agent(cno, None).unwrap();
    post(ias, evd, 1..2);
    ias.pass(MOMENT);
    assert!(calls().is_empty());
}

/// An agent that is a waker of the language's own.
pub fn an_agent_may_be_a_waker(ias: &mut Adapters<'_, impl Side>) {
    struct Count(AtomicU32);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let count = Arc::new(Count(AtomicU32::new(0)));
    let waker = Agent::Waker(Arc::clone(&count).into());
    let cno = ias.a.cno_create(Some(waker)).unwrap();
    let evd = on(ias, cno);
    post(ias, evd, 0..2);
    ias.pass(MOMENT);
    assert_eq!(count.0.load(Ordering::Relaxed), 1);
}

const IN_USE: (DatType, DatSubtype) = (DatType::InvalidState, DatSubtype::InvalidStateCnoInUse);

/// Not while it is attached to, and not while somebody waits.
pub fn free_of_one_in_use(ias: &mut Adapters<'_, impl Side>) {
    let cno = ias.a.cno_create(agent(1)).unwrap();
    let evd = on(ias, cno);
    refused(ias.a.cno_free(cno), IN_USE.0, IN_USE.1);
    ias.a.evd_modify_cno(evd, None).unwrap();
    let mut under = start(ias, cno, LIMIT);
    refused(ias.a.cno_free(cno), IN_USE.0, IN_USE.1);
    ias.a.cno_wait_end(&mut under);
    ias.a.cno_free(cno).unwrap();
    ias.pass(MOMENT);
    assert!(calls().is_empty());
}

/// By leaving it or by being freed; the last but one changes nothing.
pub fn the_last_to_leave_wakes_the_waiters(ias: &mut Adapters<'_, impl Side>) {
    for free in [false, true] {
        let cno = ias.a.cno_create(agent(4)).unwrap();
        let [one, two] = [on(ias, cno), on(ias, cno)];
        let mut waits = [start(ias, cno, LIMIT), start(ias, cno, LIMIT)];
        ias.a.evd_modify_cno(one, None).unwrap();
        for wait in &mut waits {
            assert_eq!(peek(ias, wait), Poll::Pending);
        }
        if free {
            ias.a.evd_free(two).unwrap();
        } else {
            ias.a.evd_modify_cno(two, None).unwrap();
        }
        for wait in &mut waits {
            assert_eq!(peek(ias, wait), Poll::Ready(Ok(None)));
        }
        ias.pass(MOMENT);
        assert_eq!(calls(), [(4, None)]);
        ias.a.cno_free(cno).unwrap();
    }
}

/// Waiters wake and agents are called without an Event Dispatcher.
pub fn close_wakes_the_waiters(ias: &mut Adapters<'_, impl Side>) {
    let cno = ias.a.cno_create(agent(3)).unwrap();
    on(ias, cno);
    let mut under = start(ias, cno, LIMIT);
    ias.a.close(CloseFlag::Abrupt).unwrap();
    assert_eq!(peek(ias, &mut under), Poll::Ready(Ok(None)));
    assert_eq!(calls(), [(3, None)]);
}

/// It is an object like any other.
pub fn a_graceful_close_minds_it(ias: &mut Adapters<'_, impl Side>) {
    let cno = plain(ias);
    let closed = ias.a.close(CloseFlag::Graceful);
    refused(closed, DatType::InvalidState, DatSubtype::InvalidStateIaInUse);
    ias.a.cno_free(cno).unwrap();
    ias.a.close(CloseFlag::Graceful).unwrap();
}

/// dat_cno_trigger(3): the Event Dispatcher that triggered it, once.
pub fn trigger_tells_without_waiting(ias: &mut Adapters<'_, impl Side>) {
    let cno = ias.a.cno_fd_create().unwrap();
    let evd = ias.a.evd_create_with_cno(4, Some(cno), EvdFlags::SOFTWARE).unwrap();
    let none = ias.a.cno_trigger(cno);
    refused(none, DatType::QueueEmpty, DatSubtype::None);
    post(ias, evd, 0..2);
    assert_eq!(ias.a.cno_trigger(cno), Ok(evd));
    let none = ias.a.cno_trigger(cno);
    refused(none, DatType::QueueEmpty, DatSubtype::None);
    post(ias, evd, 2..3);
    assert_eq!(wait(ias, cno, NOW), Ok(Some(evd)));
}

/// dat_cno_free(3), usage: how a waiter is released by force.
pub fn a_software_event_releases_a_waiter(ias: &mut Adapters<'_, impl Side>) {
    let cno = plain(ias);
    let mut under = start(ias, cno, Duration::MAX);
    let evd = soft(ias, 1);
    ias.a.evd_modify_cno(evd, Some(cno)).unwrap();
    post(ias, evd, 0..1);
    assert_eq!(peek(ias, &mut under), Poll::Ready(Ok(Some(evd))));
    ias.a.evd_free(evd).unwrap();
    ias.a.cno_free(cno).unwrap();
}

/// The cases.
#[macro_export]
macro_rules! cno_cases {
    ($with:ident) => {
        $with! { cno:
            a_new_one_has_nothing
            create_beyond_the_table
            a_freed_one_is_a_stale_handle
            query_tells_every_field
            a_wait_gives_who_triggered
            a_wait_untriggers
            triggers_are_merged
            a_wait_that_runs_out
            a_wait_expires_at_its_timeout
            a_wait_without_end
            a_waiter_preempts_the_cno
            every_stream_triggers
            completions_behind_others_trigger
            only_what_notifies_triggers
            only_solicited_receives_trigger
            flushes_trigger
            a_reaper_in_another_thread_triggers
            the_agent_is_called_once
            a_replaced_agent_is_not_called
            an_agent_is_called_beside_waiters
            a_waiter_of_an_evd_preempts_the_agent
            an_agent_may_be_a_waker
            free_of_one_in_use
            the_last_to_leave_wakes_the_waiters
            close_wakes_the_waiters
            a_graceful_close_minds_it
            trigger_tells_without_waiting
            a_software_event_releases_a_waiter
        }
    };
}
