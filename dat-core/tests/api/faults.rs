//! Failures of the device, of the network and of a peer that takes nothing, as the loop provider has
//! them on demand. The conformance suite has the rules of what works.
#![expect(clippy::unwrap_used, reason = "a test")]

use core::time::Duration;

use crate::pair::*;
use dat_core::provider::{Completion, Cq, Direction, Extra, Notice, Status};
use dat_core::testing::Verdict;
use dat_core::*;

use DatSubtype as S;
use DatType as T;
use DtoStatus::ErrFlushed;

const MS: Duration = Duration::from_millis(1);

fn code<X: core::fmt::Debug>(result: Result<X, Error>) -> (DatType, DatSubtype) {
    let ret = result.unwrap_err().ret();
    (ret.ty(), ret.subtype())
}

#[test]
fn a_datagram_that_finds_no_room_goes_out_as_soon_as_there_is_some() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    p.fabric.crowd(true);
    p.ask(b"").unwrap();
    p.run_until_idle();
    assert!(p.request().is_none());
    let next = p.a.ia.advance(p.now).deadline.unwrap();
    assert!(next <= p.now + MS, "{next:?}");
    p.fabric.crowd(false);
    p.now = next;
    p.run_until_idle();
    assert!(p.request().is_some());
    // With room, it is in no hurry any more.
    assert!(p.a.ia.advance(p.now).deadline.unwrap() > p.now + 100 * MS);
}

/// That says nothing of the peer, who may well be there.
#[test]
fn an_address_that_the_device_cannot_resolve_is_a_non_peer_rejection() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    p.fabric.unresolved(Some(addr(1)));
    p.ask(b"").unwrap();
    p.run_until_idle();
    assert_eq!(p.a.drain(p.a.conn), [Event::NonPeerRejected(p.a.ep)]);
    assert_eq!(p.a.state(), EpState::Disconnected);
}

#[test]
fn a_silent_network_times_out_when_the_consumer_says_so() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    p.fabric.silent(true);
    p.ask(b"").unwrap();
    p.run_until_idle();
    assert_eq!(p.a.state(), EpState::ActiveConnectionPending);
    let deadline = p.a.ia.advance(p.now).deadline.unwrap();
    assert_eq!(deadline, p.now + Duration::from_secs(5));
    p.now = deadline;
    p.run_until_idle();
    assert_eq!(p.a.drain(p.a.conn), [Event::TimedOut(p.a.ep)]);
    assert_eq!(p.a.state(), EpState::Disconnected);
}

#[test]
fn resolution_that_comes_late_still_connects() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    p.fabric.silent(true);
    p.ask(b"").unwrap();
    p.run_until_idle();
    p.fabric.silent(false);
    p.run_until_idle();
    let cr = p.request().unwrap();
    p.fabric.silent(true);
    p.b.ia.cr_accept(p.now, cr, Some(p.b.ep), b"late").unwrap();
    p.run_until_idle();
    assert_eq!(p.b.state(), EpState::CompletionPending);
    p.fabric.silent(false);
    p.run_until_idle();
    assert_eq!(p.a.drain(p.a.conn), [Event::Established(p.a.ep)]);
    assert_eq!(p.b.drain(p.b.conn), [Event::Established(p.b.ep)]);
    assert!(p.a.ia.ep_private_data(p.a.ep).unwrap().starts_with(b"late"));
}

#[test]
fn requests_that_nobody_answers_end_unreachable() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    p.fabric.filter(|_| Verdict::Lose);
    let long = Duration::from_secs(1000);
    p.a.ia.ep_connect(p.now, p.a.ep, addr(1), PORT, long, b"", Qos::BestEffort).unwrap();
    p.pass(Duration::from_secs(500));
    assert_eq!(p.a.drain(p.a.conn), [Event::Unreachable(p.a.ep)]);
    let counters = [IaCounter::CmReqTx, IaCounter::CmErrReqRetry];
    let counted = counters.map(|counter| p.a.ia.ia_query_counter(counter, false).unwrap());
    assert_eq!(counted, [16, 15]);
}

#[test]
fn a_duplicated_network_connects_once() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    p.fabric.filter(|_| Verdict::Duplicate);
    p.connect();
    assert_eq!(p.b.drain(p.b.cr), []);
    assert_eq!((p.a.drain(p.a.conn), p.b.drain(p.b.conn)), (vec![], vec![]));
    let count = |ia: &mut LoopIa, counter| ia.ia_query_counter(counter, false).unwrap();
    assert_eq!(count(&mut p.a.ia, IaCounter::CmErrRepDup), 1);
    for (received, again) in
        [(IaCounter::CmReqRx, IaCounter::CmErrReqDup), (IaCounter::CmRtuRx, IaCounter::CmErrRtuDup)]
    {
        let both = [received, again].map(|counter| count(&mut p.b.ia, counter));
        assert_eq!(both[0], both[1] + 1, "{received:?}");
        assert_ne!(both[1], 0, "{again:?}");
    }
}

#[test]
fn an_answer_after_the_timeout_tears_the_peer_down() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    p.ask(b"").unwrap();
    p.run_until_idle();
    let cr = p.request().unwrap();
    p.now = p.now + Duration::from_secs(6);
    p.a.ia.advance(p.now);
    assert_eq!(p.a.drain(p.a.conn), [Event::TimedOut(p.a.ep)]);
    p.b.ia.cr_accept(p.now, cr, Some(p.b.ep), b"").unwrap();
    p.run_until_idle();
    assert_eq!(p.b.drain(p.b.conn), [Event::AcceptCompletionError(p.b.ep)]);
    assert_eq!(p.b.state(), EpState::Disconnected);
    assert_eq!(p.a.drain(p.a.conn), []);
}

#[test]
fn the_first_packet_establishes_when_the_rtu_is_lost() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    p.ask(b"").unwrap();
    p.run_until_idle();
    let cr = p.request().unwrap();
    p.b.post_recv(1).unwrap();
    p.fabric.filter(|mad| if mad[17] == 0x14 { Verdict::Lose } else { Verdict::Deliver });
    p.b.ia.cr_accept(p.now, cr, Some(p.b.ep), b"").unwrap();
    p.run_until_idle();
    assert_eq!(p.a.drain(p.a.conn), [Event::Established(p.a.ep)]);
    assert_eq!(p.b.state(), EpState::CompletionPending);
    let qp = p.b.ia.ep_query(p.b.ep).unwrap().qp.unwrap();
    p.a.send(1, FLAGS).unwrap();
    p.fabric.raise(1, Notice::Established(qp));
    p.run_until_idle();
    assert_eq!(p.b.drain(p.b.conn), [Event::Established(p.b.ep)]);
    assert_eq!(p.b.dtos(p.b.recv), [(1, DtoStatus::Success)]);
}

#[test]
fn the_device_failing_at_the_last_step_is_reported_to_both() {
    for step in 0..2 {
        let mut p = Pair::unconnected(Merge::Apart, None);
        p.ask(b"").unwrap();
        p.run_until_idle();
        let cr = p.request().unwrap();
        p.fabric.fail_nth(Some(step));
        p.b.ia.cr_accept(p.now, cr, Some(p.b.ep), b"").unwrap();
        p.run_until_idle();
        assert_eq!(p.b.drain(p.b.conn), [Event::AcceptCompletionError(p.b.ep)]);
        let a = p.a.drain(p.a.conn);
        assert!(matches!(a[..], [Event::NonPeerRejected(_) | Event::PeerRejected(_)]), "{a:?}");
    }
}

#[test]
fn the_device_refusing_a_reset_leaves_the_endpoint_disconnected() {
    for undelivered in [false, true] {
        let mut p = Pair::connected();
        if undelivered {
            p.a.post_recv(1).unwrap();
        }
        p.a.ia.ep_disconnect(p.now, p.a.ep, CloseFlag::Abrupt).unwrap();
        p.run_until_idle();
        p.fabric.fail_nth(Some(0));
        let error = p.a.ia.ep_reset(p.a.ep).unwrap_err();
        assert!(error.fault().is_some());
        assert_eq!(p.a.state(), EpState::Disconnected);
        p.a.ia.ep_reset(p.a.ep).unwrap();
        assert_eq!(p.a.state(), EpState::Unconnected);
    }
}

#[test]
fn a_lost_device_breaks_everything_once() {
    let mut p = Pair::connected();
    p.a.post_recv(1).unwrap();
    let fault = fault!(Gone, "health", "the device reads all ones");
    for _ in 0..2 {
        p.fabric.raise(0, Notice::Catastrophic(fault));
        p.a.ia.advance(p.now);
    }
    assert_eq!(p.a.drain(p.a.conn), [Event::Broken(p.a.ep)]);
    assert_eq!(p.a.dtos(p.a.recv), [(1, ErrFlushed)]);
    let evd = p.a.ia.async_evd();
    assert_eq!(p.a.drain(evd), [Event::Async(AsyncEvent::IaCatastrophic)]);
    assert_eq!(p.a.ia.lost(), Some(&fault));
}

#[test]
fn a_device_that_does_not_answer_is_a_timeout_and_then_lost() {
    let mut p = Pair::connected();
    let fault = fault!(Timeout, "command", "the device does not answer");
    p.fabric.raise(0, Notice::Catastrophic(fault));
    p.a.ia.advance(p.now);
    let evd = p.a.ia.async_evd();
    let events = [AsyncEvent::TimedOut, AsyncEvent::IaCatastrophic].map(Event::Async);
    assert_eq!(p.a.drain(evd), events);
    assert_eq!(p.a.drain(p.a.conn), [Event::Broken(p.a.ep)]);
}

#[test]
fn a_second_graceful_disconnect_does_not_start_the_patience_anew() {
    let mut p = Pair::connected();
    p.a.send(1, FLAGS).unwrap();
    p.a.ia.ep_disconnect(p.now, p.a.ep, CloseFlag::Graceful).unwrap();
    p.now = p.now + Duration::from_secs(20);
    p.run_until_idle();
    p.a.ia.ep_disconnect(p.now, p.a.ep, CloseFlag::Graceful).unwrap();
    assert_eq!(p.a.state(), EpState::DisconnectPending);
    p.now = p.now + Duration::from_secs(11);
    p.run_until_idle();
    assert_eq!(p.a.state(), EpState::Disconnected);
    assert_eq!(p.a.drain(p.a.conn), [Event::Disconnected(p.a.ep)]);
}

#[test]
fn a_drain_ends_when_its_patience_does() {
    let mut p = Pair::connected();
    for _ in 0..2 {
        p.a.send(1, FLAGS).unwrap();
        p.a.ia.ep_disconnect(p.now, p.a.ep, CloseFlag::Graceful).unwrap();
        let soon = p.now + Duration::from_millis(1);
        // The completions are looked for until then: nobody announces them.
        let next = p.a.ia.advance(p.now).deadline;
        assert!(next.is_some_and(|at| at <= soon), "{next:?}");
        assert_eq!(p.a.state(), EpState::DisconnectPending);
        p.now = p.now + Duration::from_secs(30);
        p.run_until_idle();
        assert_eq!(p.a.drain(p.a.conn), [Event::Disconnected(p.a.ep)]);
        assert_eq!(p.b.drain(p.b.conn), [Event::Disconnected(p.b.ep)]);
        for side in [&mut p.a, &mut p.b] {
            side.ia.ep_reset(side.ep).unwrap();
        }
        p.connect();
    }
}

#[test]
fn a_failing_device_leaves_no_half_made_objects() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    let alive = p.fabric.alive(0);
    let (pz, d) = (Some(p.a.pz), Some(p.a.recv));
    for n in 0..2 {
        p.fabric.fail_nth(Some(n));
        let error = p.a.ia.ep_create(pz, d, d, None, None).unwrap_err();
        assert_eq!((error.ret().ty(), error.fault().is_some()), (T::InsufficientResources, true));
        assert_eq!(p.fabric.alive(0), alive);
    }
    p.fabric.fail_nth(Some(0));
    assert!(p.a.ia.evd_create(4, EvdFlags::DTO).is_err());
    p.fabric.fail_nth(Some(0));
    assert!(p.a.ia.pz_create().is_err());
    p.fabric.fail_nth(Some(0));
    assert!(p.a.ia.rmr_create(p.a.pz).is_err());
    p.fabric.fail_nth(None);
    assert_eq!(p.fabric.alive(0), alive);
    let shown = p.a.ia.ep_create(Some(Pz::from_raw(1)), None, None, None, None).unwrap_err();
    assert!(shown.to_string().contains("handle"), "{shown}");
}

#[test]
fn modifying_an_endpoint_makes_it_ready() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    let ep = p.a.ia.ep_create(None, None, None, None, None).unwrap();
    let seg = p.a.seg(0, 8);
    let not_ready = DatReturn::new(T::InvalidState, S::InvalidStateEpUnconfigured);
    assert_eq!(p.a.ia.ep_post_recv(ep, &[seg], 1, FLAGS), Err(not_ready));
    let mut change = EpModify { pz: Some(p.a.pz), ..EpModify::default() };
    p.a.ia.ep_modify(ep, &change).unwrap();
    assert_eq!(p.a.ia.ep_post_recv(ep, &[seg], 1, FLAGS), Err(not_ready));
    change.recv_evd = Some(p.a.recv);
    change.request_evd = Some(p.a.request);
    change.connect_evd = Some(p.a.conn);
    p.fabric.fail_nth(Some(0));
    assert!(p.a.ia.ep_modify(ep, &change).is_err());
    assert_eq!(p.a.ia.ep_query(ep).unwrap().recv_evd, None);
    p.a.ia.ep_modify(ep, &change).unwrap();
    p.a.ia.ep_post_recv(ep, &[seg], 1, FLAGS).unwrap();
    p.a.ia.ep_post_recv(ep, &[seg], 2, FLAGS).unwrap();
    let mut attr = p.a.ia.ep_query(ep).unwrap().attr;
    attr.max_recv_dtos = 1;
    let smaller = EpModify { attr: Some(attr), ..EpModify::default() };
    assert_eq!(code(p.a.ia.ep_modify(ep, &smaller)).0, T::InvalidParameter);
    p.a.ia.ep_free(p.now, ep).unwrap();
    assert_eq!(p.fabric.alive(0).3, 1);
}

#[test]
fn a_failed_completion_queue_and_a_broken_idle_endpoint_are_asynchronous_events() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    let evd = p.a.ia.evd_create(4, EvdFlags::DTO).unwrap();
    p.run_until_idle();
    p.fabric.raise(0, Notice::CqError(Cq(2)));
    let qp = p.a.ia.ep_query(p.a.ep).unwrap().qp.unwrap();
    let fault = fault!(BadState, "event", "local fault");
    p.fabric.raise(0, Notice::QpError(qp, fault));
    p.run_until_idle();
    let asynchronous = p.a.ia.async_evd();
    let events = p.a.drain(asynchronous);
    let overflow = Event::Async(AsyncEvent::EvdOverflow(evd));
    assert_eq!(events, [overflow, Event::Async(AsyncEvent::EpBroken(p.a.ep))]);
}

#[test]
fn completions_that_make_no_sense_break_the_connection_and_nothing_else() {
    let forged = |index, token, direction, len| Completion {
        index,
        len,
        token,
        direction,
        status: Status::Success,
        syndrome: 0,
        vendor: 0,
        extra: Extra::default(),
    };
    for direction in [Direction::Send, Direction::Recv] {
        for token in [0, 1, 5, 31, 0xffff] {
            let mut p = Pair::connected();
            p.fabric.hold(true);
            p.a.send(1, FLAGS).unwrap();
            p.a.post_recv(2).unwrap();
            let qp = p.a.ia.ep_query(p.a.ep).unwrap().qp.unwrap();
            let cqs = [Cq(0), Cq(1)];
            let index = p.fabric.index(0, qp).unwrap();
            for cq in cqs {
                // Twice the same: one may be believable, two are not.
                for _ in 0..2 {
                    p.fabric.forge(0, cq, forged(index, token, direction, 0));
                }
                p.fabric.forge(0, cq, forged(index ^ 0x80_0000, token, direction, 0));
                p.fabric.forge(0, cq, forged(0x7, token, direction, 0));
            }
            p.a.drain(p.a.recv);
            p.a.drain(p.a.request);
            p.run_until_idle();
            assert_eq!(p.a.state(), EpState::Disconnected);
            assert_eq!(p.a.drain(p.a.conn), [Event::Broken(p.a.ep)]);
            let (stale, nonsense) = p.a.ia.evd_dropped(p.a.request).unwrap();
            assert!(stale > 0 && nonsense > 0);
            let asynchronous = p.a.ia.async_evd();
            let raised = p.a.drain(asynchronous);
            assert_eq!(raised, [Event::Async(AsyncEvent::ProviderInternalError)]);
        }
    }
}
