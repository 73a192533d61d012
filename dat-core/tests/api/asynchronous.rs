//! Asynchronous errors: each kind, with what it is about and why.
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "test code: a panic here is a failed test with a line number"
)]

use crate::pair::{Merge, Pair};
use dat_core::provider::{Completion, Direction, Extra, Fault, FaultKind, Notice, Status};
use dat_core::*;

/// Drives side A and gives all asynchronous events it has.
fn raised(pair: &mut Pair) -> Vec<AsyncEvent> {
    pair.run_until_idle();
    let evd = pair.a.ia.async_evd();
    let next = || match pair.a.ia.evd_dequeue(evd) {
        Ok(Event::Async(event)) => Some(event),
        Ok(other) => unreachable!("{other:?}"),
        Err(_) => None,
    };
    std::iter::from_fn(next).collect()
}

fn fault(kind: FaultKind) -> Fault {
    match kind {
        FaultKind::Timeout => {
            dat_core::fault!(Timeout, "test", "the device does not answer")
        }
        _ => dat_core::fault!(Gone, "test", "the device is gone"),
    }
}

/// Number, handle and reason of each.
fn descriptions(events: &[AsyncEvent]) -> Vec<(u32, AnyHandle, u32)> {
    let of = |event: &AsyncEvent| (Event::Async(*event).number(), event.handle(), event.reason());
    events.iter().map(of).collect()
}

#[test]
fn a_lost_device_is_a_catastrophe_of_the_adapter() {
    let mut pair = Pair::unconnected(Merge::Apart, None);
    pair.fabric.raise(0, Notice::Catastrophic(fault(FaultKind::Gone)));
    assert_eq!(descriptions(&raised(&mut pair)), [(0x8002, AnyHandle::Ia, 0)]);
    assert!(pair.a.ia.lost().is_some());
}

#[test]
fn a_device_that_falls_silent_is_reported_as_a_timeout_first() {
    let mut pair = Pair::unconnected(Merge::Apart, None);
    pair.fabric.raise(0, Notice::Catastrophic(fault(FaultKind::Timeout)));
    let expected = [(0x8004, AnyHandle::Ia, 1), (0x8002, AnyHandle::Ia, 0)];
    assert_eq!(descriptions(&raised(&mut pair)), expected);
}

#[test]
fn an_endpoint_that_breaks_without_a_connection_is_reported() {
    let mut pair = Pair::unconnected(Merge::Apart, None);
    pair.run_until_idle();
    let qp = provider::Qp { number: 0x100 };
    pair.fabric.raise(0, Notice::QpError(qp, fault(FaultKind::Gone)));
    let about = AnyHandle::Ep(pair.a.ep);
    assert_eq!(descriptions(&raised(&mut pair)), [(0x8003, about, 0)]);
}

#[test]
fn a_completion_queue_that_fails_is_reported_as_its_dispatcher() {
    let mut pair = Pair::unconnected(Merge::Apart, None);
    pair.fabric.raise(0, Notice::CqError(provider::Cq(0)));
    let about = AnyHandle::Evd(pair.a.recv);
    assert_eq!(descriptions(&raised(&mut pair)), [(0x8001, about, 0)]);
}

#[test]
fn a_completion_of_nothing_is_an_internal_error() {
    let mut pair = Pair::connected();
    let qp = provider::Qp { number: 0x100 };
    let index = pair.fabric.index(0, qp).unwrap();
    let completion = Completion {
        index,
        len: 0,
        token: 999,
        direction: Direction::Send,
        status: Status::Success,
        syndrome: 0,
        vendor: 0,
        extra: Extra::default(),
    };
    pair.fabric.forge(0, provider::Cq(1), completion);
    assert!(pair.a.ia.evd_dequeue(pair.a.request).is_err());
    assert_eq!(descriptions(&raised(&mut pair)), [(0x8005, AnyHandle::Ia, 1)]);
    assert_eq!(pair.a.ia.evd_dequeue(pair.a.conn), Ok(Event::Broken(pair.a.ep)));
    assert_eq!(pair.a.ia.ia_query_counter(IaCounter::CmErrReset, false).unwrap(), 1);
}
