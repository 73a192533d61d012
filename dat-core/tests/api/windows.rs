//! Memory windows whose RMRs are freed: what is waited for, what is broken, and what stays usable.

#![expect(clippy::unwrap_used, reason = "a test")]

use crate::pair::*;
use dat_core::provider::{Completion, Cq, Direction, Extra, FaultKind, Status};
use dat_core::*;

use DtoStatus::Success;

/// `b` opens a window at 64..80 of its memory.
fn bind(p: &mut Pair, rmr: Rmr, cookie: u64, flags: CompletionFlags) -> Result<u32, DatReturn> {
    let lmr = p.b.seg(64, 16);
    p.b.ia.rmr_bind(rmr, &lmr, MemPriv::REMOTE, p.b.ep, cookie, flags)
}

#[test]
fn an_rmr_that_could_not_be_freed_can_be_bound() {
    let mut p = Pair::connected();
    let rmr = p.b.ia.rmr_create(p.b.pz).unwrap();
    p.fabric.keep_windows(true);
    assert!(p.b.ia.rmr_free(rmr).is_err());
    p.fabric.keep_windows(false);
    bind(&mut p, rmr, 1, FLAGS).unwrap();
    let event = Event::RmrBind { rmr, cookie: 1, status: Success };
    assert_eq!(p.b.drain(p.b.request), [event]);
}

#[test]
fn an_rmr_freed_while_its_bind_is_deferred_waits_for_the_bind() {
    let mut p = Pair::connected();
    let rmr = p.b.ia.rmr_create(p.b.pz).unwrap();
    bind(&mut p, rmr, 5, CompletionFlags::DEFER).unwrap();
    p.b.ia.rmr_free(rmr).unwrap();
    assert_eq!(p.b.drain(p.b.request), [Event::RmrBind { rmr, cookie: 5, status: Success }]);
    assert_eq!(p.b.state(), EpState::Connected);
}

/// The device refuses to give a window up as long as its key may be in use.
#[test]
fn a_window_that_the_device_keeps_at_first_costs_the_connection() {
    let mut p = Pair::connected();
    let rmr = p.b.ia.rmr_create(p.b.pz).unwrap();
    bind(&mut p, rmr, 5, FLAGS).unwrap();
    let other = p.b.ia.rmr_create(p.b.pz).unwrap();
    p.b.drain(p.b.request);
    let keys = p.fabric.alive(1).1;
    p.fabric.fail_nth(Some(0));
    p.b.ia.rmr_free(rmr).unwrap();
    assert_eq!(p.fabric.alive(1).1, keys - 1);
    p.run_until_idle();
    assert_eq!(p.b.drain(p.b.conn), [Event::Broken(p.b.ep)]);
    // One that is bound by nobody breaks nobody.
    p.fabric.fail_nth(Some(0));
    p.b.ia.rmr_free(other).unwrap();
    assert_eq!(p.fabric.alive(1).1, keys - 2);
}

#[test]
fn a_window_that_the_device_keeps_for_good_stays_an_rmr() {
    let mut p = Pair::connected();
    let rmr = p.b.ia.rmr_create(p.b.pz).unwrap();
    let context = bind(&mut p, rmr, 5, FLAGS).unwrap();
    p.b.drain(p.b.request);
    p.fabric.keep_windows(true);
    let refused = p.b.ia.rmr_free(rmr).unwrap_err();
    assert_eq!(refused.ret().ty(), DatType::InsufficientResources);
    assert!(refused.fault().is_some());
    p.run_until_idle();
    assert_eq!(p.b.drain(p.b.conn), [Event::Broken(p.b.ep)]);
    assert_eq!(p.b.ia.rmr_query(rmr).unwrap().rmr_context, context);
    p.fabric.keep_windows(false);
    p.b.ia.rmr_free(rmr).unwrap();
    assert_eq!(p.b.ia.rmr_free(rmr).unwrap_err().ret().ty(), DatType::InvalidHandle);
}

#[test]
fn a_free_that_has_nothing_to_wait_for_leaves_deferred_requests_alone() {
    let mut p = Pair::connected();
    let rmr = p.b.ia.rmr_create(p.b.pz).unwrap();
    bind(&mut p, rmr, 1, FLAGS).unwrap();
    p.a.post_recv(1).unwrap();
    p.b.send(2, CompletionFlags::DEFER).unwrap();
    p.b.ia.rmr_free(rmr).unwrap();
    assert_eq!(p.a.dtos(p.a.recv), []);
    p.a.post_recv(2).unwrap();
    p.b.send(3, FLAGS).unwrap();
    assert_eq!(p.a.dtos(p.a.recv), [(1, Success), (2, Success)]);
}

/// The peer is notified at once, not when the adapter is driven next.
#[test]
fn a_free_that_breaks_a_connection_tells_the_peer() {
    let mut p = Pair::connected();
    p.run_until_idle();
    p.fabric.hold(true);
    let rmr = p.b.ia.rmr_create(p.b.pz).unwrap();
    bind(&mut p, rmr, 1, FLAGS).unwrap();
    p.b.ia.rmr_free(rmr).unwrap();
    p.a.ia.advance(p.now);
    assert_eq!(p.a.drain(p.a.conn), [Event::Disconnected(p.a.ep)]);
    p.fabric.hold(false);
    p.run_until_idle();
    assert_eq!(p.b.drain(p.b.conn), [Event::Broken(p.b.ep)]);
}

#[test]
fn a_new_rmr_in_the_place_of_a_freed_one_is_bound_to_nothing() {
    let mut p = Pair::connected();
    let rmr = p.b.ia.rmr_create(p.b.pz).unwrap();
    bind(&mut p, rmr, 1, FLAGS).unwrap();
    p.b.drain(p.b.request);
    p.b.ia.rmr_free(rmr).unwrap();
    let other = p.b.ia.rmr_create(p.b.pz).unwrap();
    assert_eq!(p.b.ia.rmr_query(other).unwrap().bound, None);
}

/// The slots of freed RMRs are given back when their binds have been dequeued, all of them and
/// again and again.
#[test]
fn a_table_of_rmrs_does_not_wear_out() {
    let mut p = Pair::connected();
    let most = p.b.ia.query().0.max_rmrs;
    for _ in 0..3 {
        let rmrs: Vec<Rmr> = (0..most).map(|_| p.b.ia.rmr_create(p.b.pz).unwrap()).collect();
        for &rmr in &rmrs {
            bind(&mut p, rmr, 1, FLAGS).unwrap();
            p.b.ia.rmr_free(rmr).unwrap();
        }
        assert!(p.b.ia.rmr_create(p.b.pz).is_err());
        assert_eq!(p.b.drain(p.b.request).len(), rmrs.len());
        p.run_until_idle();
    }
}

#[test]
fn a_close_tells_that_the_device_kept_a_window() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    p.b.ia.rmr_create(p.b.pz).unwrap();
    p.fabric.keep_windows(true);
    let refused = p.b.ia.close(p.now, CloseFlag::Abrupt).unwrap_err();
    assert_eq!(refused.ret().ty(), DatType::InsufficientResources);
}

/// Nothing can be bound with a posting half that outlives its adapter.
#[test]
fn an_rmr_of_an_adapter_that_was_closed_is_stale() {
    let mut p = Pair::connected();
    let rmr = p.b.ia.rmr_create(p.b.pz).unwrap();
    let mut half = p.b.ia.ep_take_poster(p.b.ep).unwrap();
    let _ = p.b.ia.close(p.now, CloseFlag::Abrupt);
    let lmr = p.b.seg(64, 16);
    let stale = DatReturn::new(DatType::InvalidHandle, DatSubtype::InvalidHandleRmr);
    let bound = half.rmr_bind(rmr, &lmr, MemPriv::REMOTE, 1, FLAGS);
    assert_eq!(bound, Err(stale));
}

fn forged(p: &Pair, token: u16, status: Status) -> Completion {
    let qp = p.b.ia.ep_query(p.b.ep).unwrap().qp.unwrap();
    Completion {
        index: p.fabric.index(1, qp).unwrap(),
        len: 0,
        token,
        direction: Direction::Send,
        status,
        syndrome: 0,
        vendor: 0,
        extra: Extra::default(),
    }
}

/// A bind that fails for any reason reports its failure.
#[test]
fn a_bind_that_fails_says_so() {
    let mut p = Pair::connected();
    let rmr = p.b.ia.rmr_create(p.b.pz).unwrap();
    p.fabric.hold(true);
    bind(&mut p, rmr, 1, FLAGS).unwrap();
    let completion = forged(&p, 0, Status::LocalProtection);
    p.fabric.forge(1, Cq(1), completion);
    let event = Event::RmrBind { rmr, cookie: 1, status: DtoStatus::RmrOperationFailed };
    assert_eq!(p.b.next(p.b.request), Some(event));
}

/// The end of a bind brings no earlier trouble back.
#[test]
fn a_bind_that_is_dequeued_after_a_failure_repeats_no_report() {
    let mut p = Pair::connected();
    let rmr = p.b.ia.rmr_create(p.b.pz).unwrap();
    let completion = forged(&p, 999, Status::Success);
    p.fabric.forge(1, Cq(1), completion);
    p.a.post_recv(1).unwrap();
    p.b.send(1, FLAGS).unwrap();
    bind(&mut p, rmr, 2, FLAGS).unwrap();
    assert!(p.b.next(p.b.request).is_some());
    p.run_until_idle();
    let asynchronous = p.b.ia.async_evd();
    let report = Event::Async(AsyncEvent::ProviderInternalError);
    assert_eq!(p.b.drain(asynchronous), [report]);
    assert_eq!(p.b.drain(p.b.request).len(), 1);
    p.run_until_idle();
    assert_eq!(p.b.drain(asynchronous), []);
}

#[test]
fn an_rmr_has_a_binder_until_its_binds_have_been_dequeued() {
    let mut p = Pair::connected();
    let rmr = p.b.ia.rmr_create(p.b.pz).unwrap();
    assert_eq!(p.b.ia.rmr_binder(rmr).unwrap(), None);
    bind(&mut p, rmr, 1, FLAGS).unwrap();
    bind(&mut p, rmr, 2, FLAGS).unwrap();
    for _ in 0..2 {
        assert_eq!(p.b.ia.rmr_binder(rmr).unwrap(), Some(p.b.ep));
        assert!(p.b.next(p.b.request).is_some());
    }
    assert_eq!(p.b.ia.rmr_binder(rmr).unwrap(), None);
    p.b.ia.rmr_free(rmr).unwrap();
    let stale = DatReturn::new(DatType::InvalidHandle, DatSubtype::InvalidHandleRmr);
    assert_eq!(p.b.ia.rmr_binder(rmr).unwrap_err().ret(), stale);
}

#[test]
fn a_bind_that_outlives_its_rmr_is_the_cause() {
    let mut p = Pair::connected();
    let rmr = p.b.ia.rmr_create(p.b.pz).unwrap();
    p.fabric.hold(true);
    bind(&mut p, rmr, 5, FLAGS).unwrap();
    p.b.ia.rmr_free(rmr).unwrap();
    p.run_until_idle();
    let cause = p.b.ia.ep_cause(p.b.ep).unwrap().unwrap();
    assert_eq!((cause.kind, cause.operation), (FaultKind::Timeout, "a bind"));
}
