//! After an end or a refusal nothing is left that is reported, waited for or mistaken for another.
#![expect(clippy::unwrap_used, reason = "a test")]

use core::cell::RefCell;
use core::task::Poll;
use core::time::Duration;

use crate::pair::*;
use dat_core::provider::{Completion, Cq, Direction, Extra, FaultKind, Notice, Status};
use dat_core::testing::Fabric;
use dat_core::*;

const SECOND: Duration = Duration::from_secs(1);

thread_local! {
    static CALLS: RefCell<Vec<Option<Evd>>> = const { RefCell::new(Vec::new()) };
}

fn tell(_: u64, evd: Option<Evd>) {
    CALLS.with_borrow_mut(|calls| calls.push(evd));
}

fn code<X: core::fmt::Debug>(result: Result<X, Error>) -> (DatType, DatSubtype) {
    let ret = result.unwrap_err().ret();
    (ret.ty(), ret.subtype())
}

fn completion(index: u32, token: u16, status: Status) -> Completion {
    Completion {
        index,
        len: 0,
        token,
        direction: Direction::Recv,
        status,
        syndrome: 0,
        vendor: 0,
        extra: Extra::default(),
    }
}

/// The index that the device completes the first side's receives under.
fn index(p: &Pair) -> u32 {
    let qp = p.a.ia.ep_query(p.a.ep).unwrap().qp.unwrap();
    p.fabric.index(0, qp).unwrap()
}

#[test]
fn an_agent_is_not_called_for_a_freed_event_dispatcher() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    let agent = Agent::Function { instance: 0, function: tell };
    let cno = p.a.ia.cno_create(Some(agent)).unwrap();
    let [gone, stays] = [(); 2].map(|()| {
        let evd = p.a.ia.evd_create(4, EvdFlags::SOFTWARE).unwrap();
        p.a.ia.evd_modify_cno(evd, Some(cno)).unwrap();
        evd
    });
    p.a.ia.evd_post_se(gone, 1).unwrap();
    assert_eq!(p.a.drain(gone), [Event::Software(1)]);
    p.a.ia.evd_free(gone).unwrap();
    p.run_until_idle();
    assert_eq!(CALLS.take(), []);
    p.a.ia.evd_post_se(stays, 2).unwrap();
    p.run_until_idle();
    assert_eq!(CALLS.take(), [Some(stays)]);
}

#[test]
fn an_agent_is_called_for_what_arrives_after_it_was_given() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    let agent = Agent::Function { instance: 0, function: tell };
    let cno = p.a.ia.cno_create(Some(agent.clone())).unwrap();
    let evd = p.a.ia.evd_create(4, EvdFlags::SOFTWARE).unwrap();
    p.a.ia.evd_modify_cno(evd, Some(cno)).unwrap();
    p.a.ia.evd_post_se(evd, 1).unwrap();
    p.a.ia.cno_modify_agent(cno, Some(agent)).unwrap();
    p.run_until_idle();
    assert_eq!(CALLS.take(), []);
    p.a.ia.evd_post_se(evd, 2).unwrap();
    p.run_until_idle();
    assert_eq!(CALLS.take(), [Some(evd)]);
}

/// What arrived before an Event Dispatcher moves to another CNO triggers the one it leaves.
#[test]
fn a_completion_triggers_the_cno_of_its_time() {
    let mut p = Pair::connected();
    let [old, new] = [(); 2].map(|()| p.a.ia.cno_create(None).unwrap());
    let evd = p.a.request;
    p.b.post_recv(1).unwrap();
    p.a.ia.evd_modify_cno(evd, Some(old)).unwrap();
    p.run_until_idle();
    p.a.send(1, FLAGS).unwrap();
    p.a.ia.evd_modify_cno(evd, Some(new)).unwrap();
    p.run_until_idle();
    assert_eq!(p.a.ia.cno_trigger(new), Err(DatReturn::QUEUE_EMPTY));
    assert_eq!(p.a.ia.cno_trigger(old), Ok(evd));
}

#[test]
fn a_wait_that_outlives_its_cno_has_a_stale_handle() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    let cno = p.a.ia.cno_create(None).unwrap();
    let mut wait = p.a.ia.cno_wait(p.now, cno, SECOND).unwrap();
    p.a.ia.cno_wait_end(&mut wait);
    p.a.ia.cno_free(cno).unwrap();
    let stale = DatReturn::new(DatType::InvalidHandle, DatSubtype::InvalidHandleCno);
    assert_eq!(p.a.ia.cno_waited(p.now, &mut wait), Poll::Ready(Err(stale)));
}

/// The peer gets it although nothing else is called.
#[test]
fn a_rejection_leaves_with_the_call() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    p.ask(b"").unwrap();
    p.run_until_idle();
    let cr = p.request().unwrap();
    p.b.ia.cr_reject(p.now, cr, b"").unwrap();
    p.a.ia.advance(p.now);
    assert_eq!(p.a.drain(p.a.conn), [Event::PeerRejected(p.a.ep)]);
}

#[test]
fn the_endpoint_of_a_rejected_request_has_no_peer() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    let point = 99;
    p.b.ia.rsp_create(point, Some(p.b.ep), p.b.cr).unwrap();
    p.a.ia.ep_connect(p.now, p.a.ep, addr(1), point, SECOND, b"", Qos::BestEffort).unwrap();
    p.run_until_idle();
    let Some(Event::ReservedRequest { cr, .. }) = p.b.next(p.b.cr) else {
        panic!("no request");
    };
    let before = p.b.ia.ep_query(p.b.ep).unwrap();
    assert_eq!((before.remote, before.local_port), (Some(addr(0)), 99), "{before:?}");
    assert!(before.remote_port >= 0xc000);
    p.b.ia.cr_reject(p.now, cr, b"").unwrap();
    let after = p.b.ia.ep_query(p.b.ep).unwrap();
    assert_eq!(after.state, EpState::Unconnected);
    let peer = (after.remote, after.remote_port, after.local_port);
    assert_eq!(peer, (None, 0, 0));
}

#[test]
fn a_request_keeps_its_endpoint_while_receives_are_in_the_hands_of_a_reaper() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    p.b.ia.psp_create(77, p.b.cr, PspFlag::Provider).unwrap();
    p.a.ia.ep_connect(p.now, p.a.ep, addr(1), 77, SECOND, b"", Qos::BestEffort).unwrap();
    p.run_until_idle();
    let Some(Event::ConnectionRequest { cr, .. }) = p.b.next(p.b.cr) else {
        panic!("no request");
    };
    let ep = p.b.ia.cr_query(cr).unwrap().local_ep.unwrap();
    let parts = EpModify {
        pz: Some(p.b.pz),
        recv_evd: Some(p.b.recv),
        request_evd: Some(p.b.request),
        connect_evd: Some(p.b.conn),
        attr: None,
    };
    p.b.ia.ep_modify(ep, &parts).unwrap();
    let seg = p.b.seg(1024, 64);
    p.b.ia.ep_post_recv(ep, &[seg], 1, FLAGS).unwrap();
    p.b.post_recv(2).unwrap();
    let half = p.b.ia.evd_take_reaper(p.b.recv).unwrap();
    let out = (DatType::InvalidState, DatSubtype::InvalidStateEpProviderControl);
    assert_eq!(code(p.b.ia.cr_reject(p.now, cr, b"")), out);
    assert_eq!(code(p.b.ia.ep_free(p.now, p.b.ep)), out);
    assert!(p.b.ia.cr_query(cr).is_ok());
    p.b.ia.evd_return_reaper(half).map_err(drop).unwrap();
    p.b.ia.cr_reject(p.now, cr, b"").unwrap();
    assert_eq!(code(p.b.ia.ep_query(ep)).0, DatType::InvalidHandle);
}

/// The Endpoint is watched for as long as it has watermarks, and has no time to keep any more.
#[test]
fn the_time_to_connect_in_is_over_with_the_connect() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    p.a.ia.ep_set_watermark(p.now, p.a.ep, Some(100), Some(100)).unwrap();
    p.connect();
    p.pass(600 * SECOND);
    assert_eq!(p.a.ia.advance(p.now).deadline, None);
    assert_eq!(p.a.state(), EpState::Connected);
}

#[test]
fn an_endpoint_whose_receives_have_come_back_is_not_rebuilt() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    for cookie in 0..2 {
        p.a.post_recv(cookie).unwrap();
    }
    let mut attr = p.a.ia.ep_query(p.a.ep).unwrap().attr;
    attr.max_recv_dtos -= 1;
    let change = EpModify { attr: Some(attr), ..EpModify::default() };
    p.a.ia.ep_modify(p.a.ep, &change).unwrap();
    p.fabric.forge(0, Cq(0), completion(index(&p), 0, Status::Flushed));
    assert_eq!(p.a.dtos(p.a.recv), [(0, DtoStatus::ErrFlushed)]);
    attr.max_recv_dtos -= 1;
    let change = EpModify { attr: Some(attr), ..EpModify::default() };
    assert_eq!(
        code(p.a.ia.ep_modify(p.a.ep, &change)),
        (DatType::InvalidState, DatSubtype::InvalidStateEpNotReady)
    );
}

#[test]
fn a_freed_endpoint_takes_no_completion_for_its_own() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    let old = index(&p);
    p.a.ia.ep_free(p.now, p.a.ep).unwrap();
    for forged in [old, 0] {
        p.fabric.forge(0, Cq(0), completion(forged, 0, Status::Success));
    }
    assert_eq!(p.a.drain(p.a.recv), []);
    assert_eq!(p.a.ia.evd_dropped(p.a.recv), Ok((2, 0)));
}

#[test]
fn consequences_of_the_end_are_not_its_cause() {
    let mut p = Pair::connected();
    p.a.post_recv(1).unwrap();
    p.a.post_recv(2).unwrap();
    let qp = p.a.ia.ep_query(p.a.ep).unwrap().qp.unwrap();
    let fault = dat_core::fault!(BadState, "event", "local fault");
    p.fabric.raise(0, Notice::QpError(qp, fault));
    // It is taken in before the device's own word.
    p.fabric.forge(0, Cq(0), completion(index(&p), 0, Status::Flushed));
    p.run_until_idle();
    assert_eq!(p.a.ia.ep_cause(p.a.ep), Ok(Some(fault)));
    assert!(!p.a.dtos(p.a.recv).is_empty());
    p.run_until_idle();
    assert_eq!(p.a.ia.ep_cause(p.a.ep), Ok(Some(fault)));
}

/// The lengths that receives have are those of this Endpoint, not those of an earlier one in its
/// slot.
#[test]
fn a_message_longer_than_any_receive_of_the_endpoint_is_nonsense() {
    let fabric: &'static Fabric = Box::leak(Box::new(Fabric::new()));
    let a = Side::on(open_of::<1>(fabric, 0), fabric, 0, Merge::Apart, None);
    let b = Side::new(fabric, 1, Merge::Apart, None);
    let mut p = Pair { fabric, a, b, now: Instant::from_nanos(1) };
    p.a.post_recv(1).unwrap();
    p.a.ia.ep_free(p.now, p.a.ep).unwrap();
    let [recv, request, conn] = [p.a.recv, p.a.request, p.a.conn].map(Some);
    p.a.ep = p.a.ia.ep_create(Some(p.a.pz), recv, request, conn, None).unwrap();
    let seg = p.a.seg(0, 8);
    p.a.ia.ep_post_recv(p.a.ep, &[seg], 2, FLAGS).unwrap();
    let long = Completion { len: 9, ..completion(index(&p), 0, Status::Success) };
    p.fabric.forge(0, Cq(0), long);
    assert_eq!(p.a.next(p.a.recv), None);
    assert_eq!(p.a.ia.evd_dropped(p.a.recv), Ok((0, 1)));
}

/// Which operation failed, of what, and with which answers of the device.
#[test]
fn the_cause_of_a_broken_connection_is_the_completion_that_failed() {
    for (direction, operation) in [(Direction::Send, "a request"), (Direction::Recv, "a receive")] {
        let mut p = Pair::connected();
        p.fabric.hold(true);
        p.a.send(1, FLAGS).unwrap();
        p.a.post_recv(1).unwrap();
        let failed = Completion {
            direction,
            syndrome: 0x13,
            vendor: 0x88,
            ..completion(index(&p), 0, Status::RemoteAccess)
        };
        let (cq, evd) = match direction {
            Direction::Send => (1, p.a.request),
            Direction::Recv => (0, p.a.recv),
        };
        p.fabric.forge(0, Cq(cq), failed);
        assert!(p.a.next(evd).is_some());
        p.run_until_idle();
        let cause = p.a.ia.ep_cause(p.a.ep).unwrap().unwrap();
        let qp = p.a.ia.ep_query(p.a.ep).unwrap().qp.unwrap();
        assert_eq!((cause.kind, cause.operation), (FaultKind::BadState, operation));
        assert_eq!((cause.object, cause.number), ("QP", qp.number));
        assert_eq!((cause.status, cause.syndrome), (Status::RemoteAccess as u8, 0x8813));
        assert_eq!(cause.cause, "the peer refused access to its memory");
    }
}

#[test]
fn a_soft_watermark_that_is_passed_already_is_reported_at_once() {
    let mut p = Pair::connected();
    for cookie in 0..3 {
        p.a.post_recv(cookie).unwrap();
    }
    p.a.ia.ep_set_watermark(p.now, p.a.ep, Some(1), None).unwrap();
    let evd = p.a.ia.async_evd();
    assert_eq!(p.a.drain(evd), [Event::Async(AsyncEvent::EpSoftHighWatermark(p.a.ep))]);
}

#[test]
fn an_endpoint_that_is_reset_has_no_peer() {
    let mut p = Pair::connected();
    p.a.ia.ep_disconnect(p.now, p.a.ep, CloseFlag::Abrupt).unwrap();
    let before = p.a.ia.ep_query(p.a.ep).unwrap();
    assert_eq!((before.remote, u64::from(before.remote_port)), (Some(addr(1)), PORT));
    p.a.ia.ep_reset(p.a.ep).unwrap();
    let after = p.a.ia.ep_query(p.a.ep).unwrap();
    assert_eq!((after.remote, after.remote_port, after.local_port), (None, 0, 0));
}

#[test]
fn an_endpoint_that_is_reset_has_no_cause_and_no_reason_of_its_end() {
    let mut p = Pair::connected();
    let qp = p.a.ia.ep_query(p.a.ep).unwrap().qp.unwrap();
    p.fabric.raise(0, Notice::QpError(qp, dat_core::fault!(BadState, "event", "local fault")));
    p.run_until_idle();
    assert!(p.a.ia.ep_cause(p.a.ep).unwrap().is_some());
    p.a.ia.ep_reset(p.a.ep).unwrap();
    assert_eq!(p.a.ia.ep_cause(p.a.ep).unwrap(), None);
    // A port that nobody listens on.
    p.a.ia.ep_connect(p.now, p.a.ep, addr(1), 99, SECOND, b"", Qos::BestEffort).unwrap();
    p.run_until_idle();
    assert!(p.a.ia.ep_reject_reason(p.a.ep).unwrap().is_some());
    p.a.ia.ep_reset(p.a.ep).unwrap();
    assert_eq!(p.a.ia.ep_reject_reason(p.a.ep).unwrap(), None);
}

/// The peer learns of an end although nothing else is called.
#[test]
fn the_end_of_a_connection_leaves_with_the_call() {
    for freed in [true, false] {
        let mut p = Pair::connected();
        for cookie in 0..3 {
            p.a.post_recv(cookie).unwrap();
        }
        if freed {
            p.a.ia.ep_free(p.now, p.a.ep).unwrap();
        } else {
            p.a.ia.ep_set_watermark(p.now, p.a.ep, None, Some(1)).unwrap();
        }
        p.b.ia.advance(p.now);
        assert_eq!(p.b.drain(p.b.conn), [Event::Disconnected(p.b.ep)]);
    }
}

#[test]
fn receives_that_are_posted_keep_their_attributes() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    p.a.post_recv(1).unwrap();
    let attr = p.a.ia.ep_query(p.a.ep).unwrap().attr;
    let flags = CompletionFlags::SOLICITED_WAIT;
    let not_ready = (DatType::InvalidState, DatSubtype::InvalidStateEpNotReady);
    let argument = (DatType::InvalidParameter, DatSubtype::InvalidArg6);
    for (new, refused) in [
        (EpAttr { recv_completion_flags: flags, ..attr }, not_ready),
        (EpAttr { max_recv_iov: attr.max_recv_iov - 1, ..attr }, argument),
    ] {
        let change = EpModify { attr: Some(new), ..EpModify::default() };
        assert_eq!(code(p.a.ia.ep_modify(p.a.ep, &change)), refused);
        assert_eq!(p.a.ia.ep_query(p.a.ep).unwrap().attr, attr);
    }
}

#[test]
fn a_stale_endpoint_is_refused_before_what_it_is_to_connect_to() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    let [recv, request, conn] = [p.a.recv, p.a.request, p.a.conn].map(Some);
    let stale = p.a.ia.ep_create(Some(p.a.pz), recv, request, conn, None).unwrap();
    p.a.ia.ep_free(p.now, stale).unwrap();
    let refused = (DatType::InvalidHandle, DatSubtype::InvalidHandleEp);
    let nowhere = (addr(1), 0).into();
    assert_eq!(code(p.a.ia.ep_common_connect(p.now, stale, nowhere, SECOND, b"")), refused);
    let alike = p.a.ia.ep_dup_connect(p.now, stale, p.a.ep, SECOND, b"", Qos::BestEffort);
    assert_eq!(code(alike), refused);
}
