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
use super::{A, B, Bed, LIMIT, NONE, Side, refused};

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
fn plain<S: Side>(bed: &mut Bed<'_, S>) -> Cno {
    bed.a.cno_create(None).unwrap()
}

/// An Event Dispatcher for software events on that CNO.
fn on<S: Side>(bed: &mut Bed<'_, S>, cno: Cno) -> Evd {
    let evd = soft(bed, 8);
    bed.a.evd_modify_cno(evd, Some(cno)).unwrap();
    evd
}

fn start<S: Side>(bed: &mut Bed<'_, S>, cno: Cno, timeout: Duration) -> CnoWait {
    let now = bed.now();
    bed.a.cno_wait(now, cno, timeout).unwrap()
}

fn peek<S: Side>(bed: &mut Bed<'_, S>, wait: &mut CnoWait) -> Poll<Result<Option<Evd>, DatReturn>> {
    let now = bed.now();
    bed.a.cno_waited(now, wait)
}

/// Waits, driving both sides.
fn wait<S: Side>(
    bed: &mut Bed<'_, S>,
    cno: Cno,
    timeout: Duration,
) -> Result<Option<Evd>, DatReturn> {
    let mut wait = start(bed, cno, timeout);
    loop {
        if let Poll::Ready(found) = peek(bed, &mut wait) {
            return found;
        }
        bed.turn(Duration::from_micros(100));
    }
}

/// Drives until it is triggered.
fn triggered<S: Side>(bed: &mut Bed<'_, S>, cno: Cno) -> Evd {
    bed.until(|bed| bed.a.cno_trigger(cno).ok())
}

/// At first: nothing attached, nobody waiting, not triggered.
pub fn a_new_one_has_nothing(bed: &mut Bed<'_, impl Side>) {
    for (given, proxy) in [(None, Proxy::None), (agent(1), Proxy::Agent)] {
        let cno = bed.a.cno_create(given).unwrap();
        let param = bed.a.cno_query(cno).unwrap();
        assert_eq!((param.proxy, param.evds), (proxy, 0));
        assert!(param.waiters == 0 && !param.triggered);
        bed.a.cno_free(cno).unwrap();
    }
    bed.pass(MOMENT);
    assert!(calls().is_empty());
}

/// As many as Event Dispatchers, and not one more.
pub fn create_beyond_the_table(bed: &mut Bed<'_, impl Side>) {
    let (ia, _) = bed.a.query();
    let all: Vec<Cno> = (0..ia.max_evds).map(|_| plain(bed)).collect();
    let made = bed.a.cno_create(None);
    refused(made, DatType::InsufficientResources, DatSubtype::ResourceMemory);
    bed.a.cno_free(all[0]).unwrap();
    plain(bed);
}

/// Every call with the handle of one that is gone.
pub fn a_freed_one_is_a_stale_handle(bed: &mut Bed<'_, impl Side>) {
    let cno = plain(bed);
    bed.a.cno_free(cno).unwrap();
    plain(bed);
    let now = bed.now();
    let (ty, of) = (DatType::InvalidHandle, DatSubtype::InvalidHandleCno);
    refused(bed.a.cno_query(cno), ty, of);
    refused(bed.a.cno_wait(now, cno, NOW), ty, of);
    refused(bed.a.cno_trigger(cno), ty, of);
    refused(bed.a.cno_modify_agent(cno, None), ty, of);
    refused(bed.a.cno_free(cno), ty, of);
}

/// The query follows what happens.
pub fn query_tells_every_field(bed: &mut Bed<'_, impl Side>) {
    let cno = plain(bed);
    let [one, _two] = [on(bed, cno), on(bed, cno)];
    assert_eq!(bed.a.cno_query(cno).unwrap().evds, 2);
    let mut waits = [start(bed, cno, LIMIT), start(bed, cno, LIMIT)];
    assert_eq!(bed.a.cno_query(cno).unwrap().waiters, 2);
    post(bed, one, 0..1);
    assert!(bed.a.cno_query(cno).unwrap().triggered);
    for wait in &mut waits {
        bed.a.cno_wait_end(wait);
    }
    assert_eq!(bed.a.cno_query(cno).unwrap().waiters, 0);
    bed.a.cno_modify_agent(cno, agent(1)).unwrap();
    assert_eq!(bed.a.cno_query(cno).unwrap().proxy, Proxy::Agent);
    bed.a.cno_modify_agent(cno, None).unwrap();
    assert_eq!(bed.a.cno_query(cno).unwrap().proxy, Proxy::None);
    let with_fd = bed.a.cno_fd_create().unwrap();
    assert_eq!(bed.a.cno_query(with_fd).unwrap().proxy, Proxy::Fd);
}

/// The event that came while nobody waited, and the one that comes during the wait.
pub fn a_wait_gives_who_triggered(bed: &mut Bed<'_, impl Side>) {
    let cno = plain(bed);
    let [one, two] = [on(bed, cno), on(bed, cno)];
    post(bed, two, 0..1);
    assert_eq!(wait(bed, cno, LIMIT), Ok(Some(two)));
    let mut under = start(bed, cno, LIMIT);
    assert_eq!(peek(bed, &mut under), Poll::Pending);
    post(bed, one, 0..1);
    assert_eq!(peek(bed, &mut under), Poll::Ready(Ok(Some(one))));
    assert_eq!(bed.look(A, one), Some(Event::Software(0)));
    assert_eq!(bed.look(A, two), Some(Event::Software(0)));
}

/// A trigger is taken by one wait, whether the event is dequeued or not.
pub fn a_wait_untriggers(bed: &mut Bed<'_, impl Side>) {
    let cno = plain(bed);
    let evd = on(bed, cno);
    post(bed, evd, 0..1);
    assert_eq!(wait(bed, cno, NOW), Ok(Some(evd)));
    assert!(!bed.a.cno_query(cno).unwrap().triggered);
    assert_eq!(wait(bed, cno, MOMENT), Err(NOBODY));
    post(bed, evd, 1..2);
    assert_eq!(wait(bed, cno, NOW), Ok(Some(evd)));
}

/// While it is triggered further events change nothing: the first is the hint.
pub fn triggers_are_merged(bed: &mut Bed<'_, impl Side>) {
    let cno = plain(bed);
    let [one, two] = [on(bed, cno), on(bed, cno)];
    post(bed, one, 0..2);
    post(bed, two, 0..2);
    assert_eq!(wait(bed, cno, NOW), Ok(Some(one)));
    assert_eq!(wait(bed, cno, NOW), Err(NOBODY));
    // Who was woken looks at all.
    for evd in [one, two] {
        assert_eq!(bed.look(A, evd), Some(Event::Software(0)));
        assert_eq!(bed.look(A, evd), Some(Event::Software(1)));
    }
}

/// Not before its time, with the class of an error, and with no Event Dispatcher.
pub fn a_wait_that_runs_out(bed: &mut Bed<'_, impl Side>) {
    let cno = plain(bed);
    on(bed, cno);
    let start = bed.now();
    let found = wait(bed, cno, MOMENT);
    assert!(bed.now().since(start) >= MOMENT);
    refused(found, DatType::QueueEmpty, DatSubtype::None);
    assert_eq!(wait(bed, cno, NOW), Err(NOBODY));
    assert_eq!(bed.a.cno_query(cno).unwrap().waiters, 0);
}

/// A wait expires when its time is over: not before, and not long after.
pub fn a_wait_expires_at_its_timeout(bed: &mut Bed<'_, impl Side>) {
    let cno = plain(bed);
    on(bed, cno);
    for millis in [10, 150, 2500] {
        let (begun, span) = (bed.now(), Duration::from_millis(millis));
        let mut under = start(bed, cno, span);
        let found = bed.until(|bed| match peek(bed, &mut under) {
            Poll::Ready(found) => Some(found),
            Poll::Pending => None,
        });
        let took = bed.now().since(begun);
        assert_eq!(found, Err(NOBODY));
        let slack = bed.slack();
        assert!(took >= span && took <= span + slack, "{span:?}: {took:?}");
    }
}

/// `DAT_TIMEOUT_INFINITE`.
pub fn a_wait_without_end(bed: &mut Bed<'_, impl Side>) {
    let cno = plain(bed);
    let evd = on(bed, cno);
    let mut under = start(bed, cno, Duration::MAX);
    bed.pass(MOMENT);
    assert_eq!(peek(bed, &mut under), Poll::Pending);
    post(bed, evd, 0..1);
    assert_eq!(peek(bed, &mut under), Poll::Ready(Ok(Some(evd))));
}

/// Who waits for an Event Dispatcher has it to himself.
pub fn a_waiter_preempts_the_cno(bed: &mut Bed<'_, impl Side>) {
    let cno = plain(bed);
    let evd = on(bed, cno);
    let mut under = begin(bed, evd, LIMIT, 2);
    post(bed, evd, 0..1);
    bed.pass(MOMENT);
    assert_eq!(bed.a.cno_trigger(cno), Err(NOBODY));
    bed.a.evd_wait_end(&mut under);
    post(bed, evd, 1..2);
    assert_eq!(bed.a.cno_trigger(cno), Ok(evd));
}

/// Connection requests, connection events and completions.
pub fn every_stream_triggers(bed: &mut Bed<'_, impl Side>) {
    let cno = plain(bed);
    let point = bed.listen(A);
    bed.a.evd_modify_cno(point.evd, Some(cno)).unwrap();
    let [to, from] = [bed.end(A), bed.end(B)];
    for evd in [to.recv, to.request, to.conn] {
        bed.a.evd_modify_cno(evd, Some(cno)).unwrap();
    }
    bed.ask(&from, point.qualifier, LIMIT, b"");
    assert_eq!(triggered(bed, cno), point.evd);
    let cr = bed.request(&point);
    let now = bed.now();
    bed.a.cr_accept(now, cr, Some(to.ep), b"").unwrap();
    assert_eq!(triggered(bed, cno), to.conn);
    assert_eq!(bed.event(A, to.conn), Event::Established(to.ep));
    assert_eq!(bed.event(B, from.conn), Event::Established(from.ep));
    let there = bed.mem(A, to.pz, 64, MemPriv::ALL);
    let mem = bed.mem(B, from.pz, 64, MemPriv::ALL);
    for cookie in 0..3 {
        bed.recv(&to, &there, 0, 8, cookie);
        bed.send(&from, &mem, 0, 8, cookie);
        assert_eq!(triggered(bed, cno), to.recv);
        bed.done(&to, DtoOperation::Receive, cookie);
        bed.recv(&from, &mem, 0, 8, cookie);
        bed.send(&to, &there, 0, 8, cookie);
        assert_eq!(triggered(bed, cno), to.request);
        bed.done(&to, DtoOperation::Send, cookie);
    }
}

/// What comes while earlier events still lie there triggers as well.
pub fn completions_behind_others_trigger(bed: &mut Bed<'_, impl Side>) {
    let cno = plain(bed);
    let [to, from] = bed.connected();
    bed.a.evd_modify_cno(to.recv, Some(cno)).unwrap();
    let there = bed.mem(A, to.pz, 64, MemPriv::ALL);
    let mem = bed.mem(B, from.pz, 64, MemPriv::ALL);
    for cookie in 0..4 {
        bed.recv(&to, &there, 0, 8, cookie);
        bed.send(&from, &mem, 0, 8, cookie);
        assert_eq!(triggered(bed, cno), to.recv);
        bed.pass(MOMENT);
        assert_eq!(bed.a.cno_trigger(cno), Err(NOBODY));
    }
    for cookie in 0..4 {
        bed.done(&to, DtoOperation::Receive, cookie);
    }
}

/// Unsignalled and suppressed successes do not, failures always do.
pub fn only_what_notifies_triggers(bed: &mut Bed<'_, impl Side>) {
    let quiet = CompletionFlags::UNSIGNALLED;
    let cno = plain(bed);
    let [from, to] = pair(bed, NONE, quiet);
    bed.a.evd_modify_cno(from.request, Some(cno)).unwrap();
    let mem = bed.mem(A, from.pz, 64, MemPriv::ALL);
    let there = bed.mem(B, to.pz, 64, MemPriv::ALL);
    let seg = [mem.seg(0, 8)];
    for (cookie, flags) in [(1, quiet), (2, CompletionFlags::SUPPRESS)] {
        bed.recv(&to, &there, 0, 8, cookie);
        bed.a.ep_post_send(from.ep, &seg, cookie, flags).unwrap();
        bed.done(&to, DtoOperation::Receive, cookie);
        bed.pass(MOMENT);
        assert_eq!(bed.a.cno_trigger(cno), Err(NOBODY));
    }
    bed.recv(&to, &there, 0, 8, 3);
    bed.send(&from, &mem, 0, 8, 3);
    assert_eq!(triggered(bed, cno), from.request);
    bed.done(&from, DtoOperation::Send, 1);
    bed.done(&from, DtoOperation::Send, 3);
    bed.disconnect(&from, CloseFlag::Abrupt);
    assert_eq!(bed.event(A, from.conn), Event::Disconnected(from.ep));
    bed.pass(MOMENT);
    assert_eq!(bed.a.cno_trigger(cno), Err(NOBODY));
    bed.a.ep_post_send(from.ep, &seg, 4, quiet).unwrap();
    assert_eq!(triggered(bed, cno), from.request);
}

/// The peer decides.
pub fn only_solicited_receives_trigger(bed: &mut Bed<'_, impl Side>) {
    let solicited = CompletionFlags::SOLICITED_WAIT;
    let cno = plain(bed);
    let [to, from] = pair(bed, solicited, NONE);
    bed.a.evd_modify_cno(to.recv, Some(cno)).unwrap();
    let there = bed.mem(A, to.pz, 64, MemPriv::ALL);
    let mem = bed.mem(B, from.pz, 64, MemPriv::ALL);
    let seg = [mem.seg(0, 8)];
    for round in 0..3 {
        bed.recv(&to, &there, 0, 8, round);
        bed.recv(&to, &there, 0, 8, round);
        bed.send(&from, &mem, 0, 8, round);
        bed.done(&from, DtoOperation::Send, round);
        bed.pass(MOMENT);
        assert_eq!(bed.a.cno_trigger(cno), Err(NOBODY));
        bed.b.ep_post_send(from.ep, &seg, round, solicited).unwrap();
        assert_eq!(triggered(bed, cno), to.recv);
        bed.done(&from, DtoOperation::Send, round);
        bed.done(&to, DtoOperation::Receive, round);
        bed.done(&to, DtoOperation::Receive, round);
    }
}

/// What comes back flushed triggers, though no completion tells of it.
pub fn flushes_trigger(bed: &mut Bed<'_, impl Side>) {
    let cno = plain(bed);
    let [to, _] = bed.connected();
    bed.a.evd_modify_cno(to.recv, Some(cno)).unwrap();
    let there = bed.mem(A, to.pz, 64, MemPriv::ALL);
    bed.recv(&to, &there, 0, 8, 1);
    bed.pass(MOMENT);
    assert_eq!(bed.a.cno_trigger(cno), Err(NOBODY));
    bed.disconnect(&to, CloseFlag::Abrupt);
    assert_eq!(triggered(bed, cno), to.recv);
    assert_eq!(bed.dto(A, to.recv).cookie, 1);
}

/// A thread that has the reaper asks for the notice itself.
pub fn a_reaper_elsewhere_is_told(bed: &mut Bed<'_, impl Side>) {
    let cno = bed.a.cno_create(agent(9)).unwrap();
    let [to, from] = bed.connected();
    bed.a.evd_modify_cno(to.recv, Some(cno)).unwrap();
    let there = bed.mem(A, to.pz, 64, MemPriv::ALL);
    let mem = bed.mem(B, from.pz, 64, MemPriv::ALL);
    let mut reaper = bed.a.evd_take_reaper(to.recv).unwrap();
    reaper.arm(false);
    bed.recv(&to, &there, 0, 8, 1);
    bed.send(&from, &mem, 0, 8, 1);
    assert_eq!(triggered(bed, cno), to.recv);
    bed.pass(MOMENT);
    assert_eq!(calls(), [(9, Some(to.recv))]);
    assert!(matches!(reaper.dequeue(), Ok(Event::Dto(dto)) if dto.cookie == 1));
    assert!(bed.a.evd_return_reaper(reaper).is_ok());
}

/// Once, with what the consumer gave and the Event Dispatcher, by the drive alone; then it is
/// detached.
pub fn the_agent_is_called_once(bed: &mut Bed<'_, impl Side>) {
    let cno = bed.a.cno_create(agent(7)).unwrap();
    let evd = on(bed, cno);
    post(bed, evd, 0..1);
    assert!(calls().is_empty());
    bed.pass(MOMENT);
    assert_eq!(calls(), [(7, Some(evd))]);
    assert_eq!(bed.a.cno_query(cno).unwrap().proxy, Proxy::None);
    post(bed, evd, 1..2);
    bed.pass(MOMENT);
    assert!(calls().is_empty());
    bed.a.cno_modify_agent(cno, agent(8)).unwrap();
    bed.pass(MOMENT);
    assert!(calls().is_empty());
    // Whether somebody waits besides or not.
    post(bed, evd, 2..3);
    bed.pass(MOMENT);
    assert_eq!(calls(), [(8, Some(evd))]);
    assert_eq!(wait(bed, cno, NOW), Ok(Some(evd)));
}

/// Another, or none, before the first was called.
pub fn a_replaced_agent_is_not_called(bed: &mut Bed<'_, impl Side>) {
    let cno = bed.a.cno_create(agent(1)).unwrap();
    let evd = on(bed, cno);
    bed.a.cno_modify_agent(cno, agent(2)).unwrap();
    post(bed, evd, 0..1);
    bed.pass(MOMENT);
    assert_eq!(calls(), [(2, Some(evd))]);
    bed.a.cno_modify_agent(cno, agent(3)).unwrap();
    bed.a.cno_modify_agent(cno, None).unwrap();
    post(bed, evd, 1..2);
    bed.pass(MOMENT);
    assert!(calls().is_empty());
}

/// An agent that is a waker of the language's own.
pub fn an_agent_may_be_a_waker(bed: &mut Bed<'_, impl Side>) {
    struct Count(AtomicU32);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let count = Arc::new(Count(AtomicU32::new(0)));
    let waker = Agent::Waker(Arc::clone(&count).into());
    let cno = bed.a.cno_create(Some(waker)).unwrap();
    let evd = on(bed, cno);
    post(bed, evd, 0..2);
    bed.pass(MOMENT);
    assert_eq!(count.0.load(Ordering::Relaxed), 1);
}

const IN_USE: (DatType, DatSubtype) = (DatType::InvalidState, DatSubtype::InvalidStateCnoInUse);

/// Not while it is attached to, and not while somebody waits.
pub fn free_of_one_in_use(bed: &mut Bed<'_, impl Side>) {
    let cno = bed.a.cno_create(agent(1)).unwrap();
    let evd = on(bed, cno);
    refused(bed.a.cno_free(cno), IN_USE.0, IN_USE.1);
    bed.a.evd_modify_cno(evd, None).unwrap();
    let mut under = start(bed, cno, LIMIT);
    refused(bed.a.cno_free(cno), IN_USE.0, IN_USE.1);
    bed.a.cno_wait_end(&mut under);
    bed.a.cno_free(cno).unwrap();
    bed.pass(MOMENT);
    assert!(calls().is_empty());
}

/// By leaving it or by being freed; the last but one changes nothing.
pub fn the_last_to_leave_wakes_the_waiters(bed: &mut Bed<'_, impl Side>) {
    for free in [false, true] {
        let cno = bed.a.cno_create(agent(4)).unwrap();
        let [one, two] = [on(bed, cno), on(bed, cno)];
        let mut waits = [start(bed, cno, LIMIT), start(bed, cno, LIMIT)];
        bed.a.evd_modify_cno(one, None).unwrap();
        for wait in &mut waits {
            assert_eq!(peek(bed, wait), Poll::Pending);
        }
        if free {
            bed.a.evd_free(two).unwrap();
        } else {
            bed.a.evd_modify_cno(two, None).unwrap();
        }
        for wait in &mut waits {
            assert_eq!(peek(bed, wait), Poll::Ready(Ok(None)));
        }
        bed.pass(MOMENT);
        assert_eq!(calls(), [(4, None)]);
        bed.a.cno_free(cno).unwrap();
    }
}

/// Waiters and agents are told of none.
pub fn close_wakes_the_waiters(bed: &mut Bed<'_, impl Side>) {
    let cno = bed.a.cno_create(agent(3)).unwrap();
    on(bed, cno);
    let mut under = start(bed, cno, LIMIT);
    bed.a.close(CloseFlag::Abrupt).unwrap();
    assert_eq!(peek(bed, &mut under), Poll::Ready(Ok(None)));
    assert_eq!(calls(), [(3, None)]);
}

/// It is an object like any other.
pub fn a_graceful_close_minds_it(bed: &mut Bed<'_, impl Side>) {
    let cno = plain(bed);
    let closed = bed.a.close(CloseFlag::Graceful);
    refused(closed, DatType::InvalidState, DatSubtype::InvalidStateIaInUse);
    bed.a.cno_free(cno).unwrap();
    bed.a.close(CloseFlag::Graceful).unwrap();
}

/// dat_cno_trigger(3): who triggered it, once.
pub fn trigger_tells_without_waiting(bed: &mut Bed<'_, impl Side>) {
    let cno = bed.a.cno_fd_create().unwrap();
    let evd = bed.a.evd_create_with_cno(4, Some(cno), EvdFlags::SOFTWARE).unwrap();
    let none = bed.a.cno_trigger(cno);
    refused(none, DatType::QueueEmpty, DatSubtype::None);
    post(bed, evd, 0..2);
    assert_eq!(bed.a.cno_trigger(cno), Ok(evd));
    let none = bed.a.cno_trigger(cno);
    refused(none, DatType::QueueEmpty, DatSubtype::None);
    post(bed, evd, 2..3);
    assert_eq!(wait(bed, cno, NOW), Ok(Some(evd)));
}

/// dat_cno_free(3), usage: how a waiter is released by force.
pub fn a_software_event_releases_a_waiter(bed: &mut Bed<'_, impl Side>) {
    let cno = plain(bed);
    let mut under = start(bed, cno, Duration::MAX);
    let evd = soft(bed, 1);
    bed.a.evd_modify_cno(evd, Some(cno)).unwrap();
    post(bed, evd, 0..1);
    assert_eq!(peek(bed, &mut under), Poll::Ready(Ok(Some(evd))));
    bed.a.evd_free(evd).unwrap();
    bed.a.cno_free(cno).unwrap();
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
            a_reaper_elsewhere_is_told
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
