//! kDAPL: for which events an Event Dispatcher makes upcalls, how many in one drive, and what the
//! drive reports.

#![expect(clippy::unwrap_used, clippy::wildcard_enum_match_arm, reason = "a test")]

use core::cell::{Cell, RefCell};

use crate::pair::*;
use dat_core::provider::Provider;
use dat_core::*;

thread_local! {
    static COOKIES: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
    static CALLS: Cell<u32> = const { Cell::new(0) };
}

/// Notes the cookie of a DTO, or the pointer of a software event.
fn note<P: Provider>(_: &mut Ia<'_, P>, _: u64, event: Event, _: bool) {
    let noted = match event {
        Event::Dto(dto) => dto.cookie,
        Event::Software(pointer) => pointer,
        _ => u64::MAX,
    };
    COOKIES.with_borrow_mut(|seen| seen.push(noted));
}

/// Posts another event to the Event Dispatcher that the instance names.
fn again<P: Provider>(ia: &mut Ia<'_, P>, instance: u64, _: Event, _: bool) {
    CALLS.set(CALLS.get() + 1);
    ia.evd_post_se(Evd::from_raw(instance), 0).unwrap();
}

fn noted() -> Vec<u64> {
    COOKIES.take()
}

fn noting<P: Provider>() -> Option<Upcall<P>> {
    Some(Upcall { instance: 0, function: note })
}

/// A connected pair whose requests complete to an Event Dispatcher that makes upcalls.
fn called(flags: CompletionFlags) -> Pair {
    let mut p = Pair::unconnected(Merge::Apart, None);
    let policy = UpcallPolicy::SingleInstance;
    let streams = EvdFlags::DTO | EvdFlags::RMR_BIND;
    p.a.request = p.a.ia.evd_kcreate(32, policy, noting(), streams).unwrap();
    let mut attr = p.a.ia.ep_attr_default();
    attr.request_completion_flags = flags;
    let [recv, request, conn] = [p.a.recv, p.a.request, p.a.conn].map(Some);
    p.a.ep = p.a.ia.ep_create(Some(p.a.pz), recv, request, conn, Some(&attr)).unwrap();
    p.connect();
    for cookie in 0..8 {
        p.b.post_recv(cookie).unwrap();
    }
    p
}

#[test]
fn completions_make_upcalls() {
    let mut p = called(CompletionFlags::EVD_THRESHOLD);
    p.run_until_idle();
    p.a.send(1, FLAGS).unwrap();
    p.a.send(2, FLAGS).unwrap();
    assert!(p.a.ia.advance(p.now).work);
    assert_eq!(noted(), [1, 2]);
    assert_eq!(p.a.drain(p.a.request), []);
}

#[test]
fn an_unsignalled_completion_makes_no_upcall_before_one_that_notifies() {
    let mut p = called(CompletionFlags::UNSIGNALLED);
    p.a.send(1, FLAGS).unwrap();
    p.run_until_idle();
    assert_eq!(noted(), [1]);
    p.a.send(2, CompletionFlags::UNSIGNALLED).unwrap();
    p.run_until_idle();
    assert_eq!(noted(), []);
    p.a.send(3, FLAGS).unwrap();
    p.run_until_idle();
    assert_eq!(noted(), [2, 3]);
}

#[test]
fn an_upcall_is_work_that_the_drive_reports() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    let policy = UpcallPolicy::SingleInstance;
    let evd = p.a.ia.evd_kcreate(4, policy, noting(), EvdFlags::SOFTWARE).unwrap();
    p.run_until_idle();
    assert!(!p.a.ia.advance(p.now).work);
    p.a.ia.evd_post_se(evd, 7).unwrap();
    assert!(p.a.ia.advance(p.now).work);
    assert_eq!(noted(), [7]);
    assert!(!p.a.ia.advance(p.now).work);
}

/// A completion of the device that nobody has looked at is queued as any other.
#[test]
fn an_upcall_for_new_events_only_is_not_made_for_queued_ones() {
    for (flag, expected) in [(UpcallFlag::InvocNew, vec![]), (UpcallFlag::InvocAny, vec![1])] {
        let mut p = called(CompletionFlags::empty());
        p.run_until_idle();
        p.a.send(1, FLAGS).unwrap();
        let policy = UpcallPolicy::SingleInstance;
        p.a.ia.evd_modify_upcall(p.a.request, policy, noting(), flag).unwrap();
        p.run_until_idle();
        assert_eq!(noted(), expected, "{flag:?}");
        p.a.send(2, FLAGS).unwrap();
        p.run_until_idle();
        let all = [expected, noted()].concat();
        assert_eq!(all, [1, 2], "{flag:?}");
    }
}

/// Upcalls that bring about further events do not keep the drive for ever.
#[test]
fn one_drive_makes_256_upcalls_at_the_most() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    let policy = UpcallPolicy::SingleInstance;
    let evd = p.a.ia.evd_kcreate(4, policy, None, EvdFlags::SOFTWARE).unwrap();
    let upcall = Upcall { instance: evd.raw(), function: again };
    let flag = UpcallFlag::InvocAny;
    p.a.ia.evd_modify_upcall(evd, policy, Some(upcall), flag).unwrap();
    p.a.ia.evd_post_se(evd, 1).unwrap();
    for drives in 1..=3 {
        p.a.ia.advance(p.now);
        assert_eq!(CALLS.get(), 256 * drives);
    }
}

/// The adapter's first Event Dispatcher is one like any other.
#[test]
fn the_first_event_dispatcher_of_an_adapter_makes_upcalls() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    let other = p.a.ia.evd_create(4, EvdFlags::ASYNC).unwrap();
    p.a.ia.set_async_evd(other).unwrap();
    // It takes the place of the one that was made with the adapter.
    let policy = UpcallPolicy::SingleInstance;
    let evd = p.a.ia.evd_kcreate(4, policy, noting(), EvdFlags::SOFTWARE).unwrap();
    p.a.ia.evd_post_se(evd, 3).unwrap();
    p.a.ia.advance(p.now);
    assert_eq!(noted(), [3]);
}
