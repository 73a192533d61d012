//! Which completions trigger a CNO: those that come while it listens, whoever has looked at them
//! meanwhile.

#![expect(clippy::unwrap_used, reason = "a test")]

use crate::pair::*;
use dat_core::*;

const NOBODY: Result<Evd, DatReturn> = Err(DatReturn::QUEUE_EMPTY);

/// Two connected sides; a CNO listens to the requests of the first.
fn listened() -> (Pair, Cno, Evd) {
    let mut p = Pair::connected();
    for cookie in 0..8 {
        p.b.post_recv(cookie).unwrap();
    }
    let (cno, evd) = (p.a.ia.cno_create(None).unwrap(), p.a.request);
    p.a.ia.evd_modify_cno(evd, Some(cno)).unwrap();
    (p, cno, evd)
}

#[test]
fn a_completion_while_disabled_does_not_trigger_when_enabled() {
    let (mut p, cno, evd) = listened();
    p.a.ia.evd_disable(evd).unwrap();
    p.a.send(1, FLAGS).unwrap();
    // Nobody looked between the completion and this.
    p.a.ia.evd_enable(evd).unwrap();
    p.run_until_idle();
    assert_eq!(p.a.ia.cno_trigger(cno), NOBODY);
    p.a.send(2, FLAGS).unwrap();
    p.run_until_idle();
    assert_eq!(p.a.ia.cno_trigger(cno), Ok(evd));
    assert_eq!(p.a.dtos(evd).len(), 2);
}

#[test]
fn a_completion_while_enabled_triggers_though_it_is_disabled_then() {
    let (mut p, cno, evd) = listened();
    p.a.send(1, FLAGS).unwrap();
    p.a.ia.evd_disable(evd).unwrap();
    assert_eq!(p.a.ia.cno_trigger(cno), Ok(evd));
    // Disabled twice is disabled once: this one came too late.
    p.a.send(2, FLAGS).unwrap();
    p.a.ia.evd_disable(evd).unwrap();
    p.run_until_idle();
    assert_eq!(p.a.ia.cno_trigger(cno), NOBODY);
    assert_eq!(p.a.dtos(evd).len(), 2);
}

#[test]
fn enabling_what_is_enabled_overlooks_nothing() {
    let (mut p, cno, evd) = listened();
    p.a.send(1, FLAGS).unwrap();
    p.a.ia.evd_enable(evd).unwrap();
    p.run_until_idle();
    assert_eq!(p.a.ia.cno_trigger(cno), Ok(evd));
}

#[test]
fn a_completion_without_an_event_triggers_nothing() {
    let (mut p, cno, evd) = listened();
    p.a.send(1, CompletionFlags::SUPPRESS).unwrap();
    p.run_until_idle();
    assert_eq!(p.a.ia.cno_trigger(cno), NOBODY);
    // Flushed requests notify, suppressed or not.
    p.fabric.hold(true);
    p.a.send(2, CompletionFlags::SUPPRESS).unwrap();
    p.a.ia.ep_disconnect(p.now, p.a.ep, CloseFlag::Abrupt).unwrap();
    p.fabric.hold(false);
    p.run_until_idle();
    assert_eq!(p.a.ia.cno_trigger(cno), Ok(evd));
    assert_eq!(p.a.dtos(evd), [(2, DtoStatus::ErrFlushed)]);
}

/// More than a look takes in: the rest triggers as well, and each is delivered once, in order.
#[test]
fn more_than_half_a_ring_triggers_and_is_complete() {
    let (mut p, cno, evd) = listened();
    let mut sent = Vec::new();
    for round in 0..8_u64 {
        for cookie in round * 8..round * 8 + 8 {
            p.a.send(cookie, FLAGS).unwrap();
            sent.push((cookie, DtoStatus::Success));
        }
        for cookie in 0..8 {
            p.b.post_recv(cookie).unwrap();
        }
        p.run_until_idle();
        p.b.dtos(p.b.recv);
        assert_eq!(p.a.ia.cno_trigger(cno), Ok(evd), "round {round}");
        if round % 4 == 3 {
            assert_eq!(p.a.dtos(evd), core::mem::take(&mut sent));
        }
    }
}

/// One that goes takes nothing from the others.
#[test]
fn every_event_dispatcher_with_a_cno_tells_for_itself() {
    let (mut p, cno, evd) = listened();
    let soft = p.a.ia.evd_create(4, EvdFlags::SOFTWARE).unwrap();
    p.a.ia.evd_modify_cno(soft, Some(cno)).unwrap();
    p.a.ia.evd_post_se(soft, 1).unwrap();
    assert_eq!(p.a.ia.cno_trigger(cno), Ok(soft));
    p.a.ia.evd_free(soft).unwrap();
    p.a.send(1, FLAGS).unwrap();
    p.run_until_idle();
    assert_eq!(p.a.ia.cno_trigger(cno), Ok(evd));
}

/// Receives of a connection that is over are flushed where they are posted. Whoever takes their
/// queue over, an Endpoint that goes or a dequeue that leaves some of them, the CNO learns of what
/// is left.
#[test]
fn what_is_flushed_triggers_whoever_has_seen_it_first() {
    let mut p = Pair::connected();
    let (cno, evd) = (p.a.ia.cno_create(None).unwrap(), p.a.recv);
    p.a.ia.evd_modify_cno(evd, Some(cno)).unwrap();
    let some = Some(evd);
    let other = p.a.ia.ep_create(Some(p.a.pz), some, Some(p.a.request), Some(p.a.conn), None);
    p.a.ia.ep_disconnect(p.now, p.a.ep, CloseFlag::Abrupt).unwrap();
    p.run_until_idle();
    assert_eq!((p.a.ia.cno_trigger(cno), p.a.dtos(evd)), (NOBODY, Vec::new()));

    let flushed = |cookies: [u64; 2]| cookies.map(|cookie| (cookie, DtoStatus::ErrFlushed));
    let both = |p: &mut Pair, cookies: [u64; 2]| {
        cookies.iter().for_each(|&cookie| p.a.post_recv(cookie).unwrap());
    };
    both(&mut p, [0, 1]);
    p.a.ia.ep_free(p.now, other.unwrap()).unwrap();
    p.run_until_idle();
    assert_eq!(p.a.ia.cno_trigger(cno), Ok(evd));
    assert_eq!(p.a.dtos(evd), flushed([0, 1]));

    both(&mut p, [2, 3]);
    assert!(p.a.next(evd).is_some());
    p.run_until_idle();
    assert_eq!(p.a.ia.cno_trigger(cno), Ok(evd));
    assert_eq!(p.a.dtos(evd), flushed([2, 3])[1..]);

    both(&mut p, [4, 5]);
    assert_eq!(p.a.dtos(evd), flushed([4, 5]));
    p.run_until_idle();
    assert_eq!(p.a.ia.cno_trigger(cno), NOBODY);
}
