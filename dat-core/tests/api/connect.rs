//! Establishing connections: both sides, every outcome.

use core::time::Duration;

use crate::pair::*;
use dat_core::cm::Reason;
use dat_core::testing::Verdict;
use dat_core::*;

const MS: Duration = Duration::from_millis(1);

#[test]
fn private_data_travels_both_ways() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    p.ask(b"from the active side").unwrap();
    assert_eq!(p.a.state(), EpState::ActiveConnectionPending);
    p.run_until_idle();
    let cr = p.request().unwrap();
    let param = p.b.ia.cr_query(cr).unwrap();
    assert_eq!(param.remote, addr(0));
    assert_eq!(param.local_ep, None);
    assert!(param.private_data.starts_with(b"from the active side\0"));
    assert_eq!(param.private_data.len(), MAX_CONNECT_PRIVATE);
    let port = param.remote_port;
    p.b.ia.cr_accept(p.now, cr, Some(p.b.ep), &[7; MAX_ACCEPT_PRIVATE]).unwrap();
    assert_eq!(p.b.state(), EpState::CompletionPending);
    assert_eq!(p.b.ia.cr_query(cr).unwrap_err().ret().subtype(), DatSubtype::InvalidHandleCr);
    p.run_until_idle();
    assert_eq!(p.a.drain(p.a.conn), [Event::Established(p.a.ep)]);
    assert_eq!(p.b.drain(p.b.conn), [Event::Established(p.b.ep)]);
    assert_eq!(p.a.ia.ep_private_data(p.a.ep).unwrap(), [7; MAX_ACCEPT_PRIVATE]);
    assert_eq!(p.b.ia.ep_private_data(p.b.ep).unwrap(), b"");
    let (a, b) = (p.a.ia.ep_query(p.a.ep).unwrap(), p.b.ia.ep_query(p.b.ep).unwrap());
    assert_eq!((a.remote, u64::from(a.remote_port)), (Some(addr(1)), PORT));
    assert_eq!((b.remote, u64::from(b.local_port)), (Some(addr(0)), PORT));
    assert_eq!((a.local_port, b.remote_port), (port, port));
}

#[test]
fn a_rejection_by_the_consumer_is_a_peer_rejection_with_its_data() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    p.a.post_recv(5).unwrap();
    p.ask(b"").unwrap();
    p.run_until_idle();
    let cr = p.request().unwrap();
    p.b.ia.cr_reject(p.now, cr, b"no").unwrap();
    p.run_until_idle();
    assert_eq!(p.a.drain(p.a.conn), [Event::PeerRejected(p.a.ep)]);
    assert!(p.a.ia.ep_private_data(p.a.ep).unwrap().starts_with(b"no\0"));
    assert_eq!(p.a.dtos(p.a.recv), [(5, DtoStatus::ErrFlushed)]);
    assert_eq!(p.a.state(), EpState::Disconnected);
    assert!(p.b.ia.cr_reject(p.now, cr, b"").is_err());
}

#[test]
fn a_rejection_without_data_is_a_peer_rejection_too() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    p.ask(b"").unwrap();
    p.run_until_idle();
    let cr = p.request().unwrap();
    p.b.ia.cr_reject(p.now, cr, b"").unwrap();
    p.run_until_idle();
    assert_eq!(p.a.drain(p.a.conn), [Event::PeerRejected(p.a.ep)]);
}

#[test]
fn nobody_listening_is_a_non_peer_rejection() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    let wait = Duration::from_secs(1);
    p.a.ia.ep_connect(p.now, p.a.ep, addr(1), 9, wait, b"", Qos::BestEffort).unwrap();
    p.run_until_idle();
    assert_eq!(p.a.drain(p.a.conn), [Event::NonPeerRejected(p.a.ep)]);
    let reason = p.a.ia.ep_reject_reason(p.a.ep).unwrap();
    assert_eq!(reason, Some(Reason::INVALID_SERVICE_ID));
    p.a.ia.ep_reset(p.a.ep).unwrap();
    assert_eq!(p.a.ia.ep_reject_reason(p.a.ep).unwrap(), None);
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

#[test]
fn a_full_backlog_is_a_non_peer_rejection() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    for _ in 0..3 {
        p.ask(b"").unwrap();
        p.run_until_idle();
        if p.a.state() == EpState::Disconnected {
            break;
        }
        p.a.ia.ep_disconnect(p.now, p.a.ep, CloseFlag::Abrupt).unwrap();
        p.a.ia.ep_reset(p.a.ep).unwrap();
        p.a.drain(p.a.conn);
    }
    assert_eq!(p.a.drain(p.a.conn), [Event::NonPeerRejected(p.a.ep)]);
    assert_eq!(p.b.drain(p.b.cr).len(), 2);
}

#[test]
fn an_address_without_a_host_is_unreachable() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    p.a.post_recv(1).unwrap();
    let wait = Duration::from_secs(1);
    p.a.ia.ep_connect(p.now, p.a.ep, addr(9), PORT, wait, b"", Qos::BestEffort).unwrap();
    p.run_until_idle();
    assert_eq!(p.a.drain(p.a.conn), [Event::Unreachable(p.a.ep)]);
    assert_eq!(p.a.dtos(p.a.recv), [(1, DtoStatus::ErrFlushed)]);
}

/// That says nothing of the peer, which may be reachable.
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
    for (first, again) in
        [(IaCounter::CmReqRx, IaCounter::CmErrReqDup), (IaCounter::CmRtuRx, IaCounter::CmErrRtuDup)]
    {
        let both = [first, again].map(|counter| count(&mut p.b.ia, counter));
        assert_eq!(both[0], both[1] + 1, "{first:?}");
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
fn an_aborted_connect_is_disconnected_once_and_the_request_dies() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    p.a.post_recv(3).unwrap();
    p.ask(b"").unwrap();
    p.run_until_idle();
    p.a.ia.ep_disconnect(p.now, p.a.ep, CloseFlag::Graceful).unwrap();
    assert_eq!(p.a.drain(p.a.conn), [Event::Disconnected(p.a.ep)]);
    assert_eq!(p.a.dtos(p.a.recv), [(3, DtoStatus::ErrFlushed)]);
    p.run_until_idle();
    let cr = p.request().unwrap();
    p.b.ia.cr_accept(p.now, cr, Some(p.b.ep), b"").unwrap();
    p.run_until_idle();
    assert_eq!(p.b.drain(p.b.conn), [Event::AcceptCompletionError(p.b.ep)]);
}

#[test]
fn an_accept_that_is_withdrawn_is_disconnected() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    p.ask(b"").unwrap();
    p.run_until_idle();
    let cr = p.request().unwrap();
    p.b.ia.cr_accept(p.now, cr, Some(p.b.ep), b"").unwrap();
    p.b.ia.ep_disconnect(p.now, p.b.ep, CloseFlag::Abrupt).unwrap();
    assert_eq!(p.b.drain(p.b.conn), [Event::Disconnected(p.b.ep)]);
    p.run_until_idle();
    let a = p.a.drain(p.a.conn);
    assert!(a.iter().filter(|event| event.is_terminal()).count() == 1, "{a:?}");
    assert_eq!(p.a.state(), EpState::Disconnected);
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
    p.fabric.raise(1, provider::Notice::Established(qp));
    p.run_until_idle();
    assert_eq!(p.b.drain(p.b.conn), [Event::Established(p.b.ep)]);
    assert_eq!(p.b.dtos(p.b.recv), [(1, DtoStatus::Success)]);
}

#[test]
fn refused_connects_change_nothing() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    let (ep, now) = (p.a.ep, p.now);
    let before = p.a.ia.ep_query(ep).unwrap();
    let mut code = |remote, qual, wait, data: &[u8], qos| {
        p.a.ia.ep_connect(now, ep, remote, qual, wait, data, qos).unwrap_err().ret()
    };
    let be = Qos::BestEffort;
    let far = addr(1);
    let of = DatReturn::new;
    use DatSubtype as S;
    use DatType as T;
    assert_eq!(code(far, 0, MS, b"", be), of(T::InvalidParameter, S::InvalidArg3));
    assert_eq!(code(far, 65536, MS, b"", be), of(T::InvalidParameter, S::InvalidArg3));
    assert_eq!(code(far, PORT, Duration::ZERO, b"", be), of(T::InvalidParameter, S::InvalidArg4));
    assert_eq!(code(far, PORT, MS, &[0; 57], be), of(T::InvalidParameter, S::InvalidArg5));
    assert_eq!(code(far, PORT, MS, b"", Qos::Premium).ty(), T::ModelNotSupported);
    let any = "0.0.0.0".parse().unwrap();
    assert_eq!(code(any, PORT, MS, b"", be), of(T::InvalidAddress, S::AddressMalformed));
    let other = "fd00::1".parse().unwrap();
    assert_eq!(code(other, PORT, MS, b"", be), of(T::InvalidAddress, S::AddressUnsupported));
    assert_eq!(p.a.ia.ep_query(ep).unwrap(), before);
    assert_eq!(p.a.drain(p.a.conn), []);
}

#[test]
fn an_endpoint_without_its_parts_is_not_ready() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    let not_ready = DatReturn::new(DatType::InvalidState, DatSubtype::InvalidStateEpNotReady);
    let (pz, d, c) = (Some(p.a.pz), Some(p.a.recv), Some(p.a.conn));
    let not_configured =
        DatReturn::new(DatType::InvalidState, DatSubtype::InvalidStateEpUnconfigured);
    for (pz, d, c, state, refusal) in [
        (None, d, c, EpState::UnconfiguredUnconnected, not_configured),
        (pz, None, c, EpState::UnconfiguredUnconnected, not_configured),
        (pz, d, None, EpState::Unconnected, not_ready),
    ] {
        let ep = p.a.ia.ep_create(pz, d, d, c, None).unwrap();
        let wait = Duration::from_secs(1);
        let error = p.a.ia.ep_connect(p.now, ep, addr(1), PORT, wait, b"", Qos::BestEffort);
        assert_eq!(error.unwrap_err().ret(), refusal);
        assert_eq!(p.a.ia.ep_query(ep).unwrap().state, state);
        p.a.ia.ep_free(p.now, ep).unwrap();
    }
}

#[test]
fn a_provider_service_point_brings_its_own_endpoint() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    let psp = p.b.ia.psp_create(77, p.b.cr, PspFlag::Provider).unwrap();
    let wait = Duration::from_secs(1);
    p.a.ia.ep_connect(p.now, p.a.ep, addr(1), 77, wait, b"", Qos::BestEffort).unwrap();
    p.run_until_idle();
    let Some(Event::ConnectionRequest { psp: from, cr, conn_qual: 77 }) = p.b.next(p.b.cr) else {
        panic!()
    };
    assert_eq!(from, psp);
    let ep = p.b.ia.cr_query(cr).unwrap().local_ep.unwrap();
    let param = p.b.ia.ep_query(ep).unwrap();
    assert_eq!((param.state, param.pz), (EpState::UnconfiguredTentative, None));
    let tentative = DatSubtype::InvalidStateEpUnconfTentative;
    for refused in [
        p.b.ia.ep_disconnect(p.now, ep, CloseFlag::Abrupt),
        p.b.ia.ep_reset(ep),
        p.b.ia.ep_free(p.now, ep),
    ] {
        assert_eq!(refused.unwrap_err().ret().subtype(), tentative);
    }
    let handle = DatReturn::new(DatType::InvalidHandle, DatSubtype::InvalidHandleEp);
    assert_eq!(p.b.ia.cr_accept(p.now, cr, Some(p.b.ep), b"").unwrap_err().ret(), handle);
    assert_eq!(p.b.ia.cr_accept(p.now, cr, None, b"").unwrap_err().ret().subtype(), tentative);
    let change = EpModify {
        pz: Some(p.b.pz),
        recv_evd: Some(p.b.recv),
        request_evd: Some(p.b.request),
        connect_evd: Some(p.b.conn),
        attr: None,
    };
    p.b.ia.ep_modify(ep, &change).unwrap();
    p.b.ia.cr_accept(p.now, cr, None, b"").unwrap();
    p.run_until_idle();
    assert_eq!(p.b.drain(p.b.conn), [Event::Established(ep)]);
    assert_eq!(p.a.drain(p.a.conn), [Event::Established(p.a.ep)]);
}

#[test]
fn a_rejected_provider_endpoint_is_gone() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    p.b.ia.psp_create(77, p.b.cr, PspFlag::Provider).unwrap();
    let wait = Duration::from_secs(1);
    p.a.ia.ep_connect(p.now, p.a.ep, addr(1), 77, wait, b"", Qos::BestEffort).unwrap();
    p.run_until_idle();
    let Some(Event::ConnectionRequest { cr, .. }) = p.b.next(p.b.cr) else { panic!() };
    let ep = p.b.ia.cr_query(cr).unwrap().local_ep.unwrap();
    p.b.ia.cr_reject(p.now, cr, b"").unwrap();
    assert_eq!(p.b.ia.ep_query(ep).unwrap_err().ret().ty(), DatType::InvalidHandle);
    p.run_until_idle();
    assert_eq!(p.a.drain(p.a.conn), [Event::PeerRejected(p.a.ep)]);
}

#[test]
fn refused_accepts_leave_the_request() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    p.ask(b"").unwrap();
    p.run_until_idle();
    let cr = p.request().unwrap();
    let handle = DatReturn::new(DatType::InvalidHandle, DatSubtype::InvalidHandleEp);
    assert_eq!(p.b.ia.cr_accept(p.now, cr, None, b"").unwrap_err().ret(), handle);
    let long = [0; MAX_ACCEPT_PRIVATE + 1];
    let error = p.b.ia.cr_accept(p.now, cr, Some(p.b.ep), &long).unwrap_err();
    assert_eq!(error.ret().ty(), DatType::InvalidParameter);
    let error = p.b.ia.cr_reject(p.now, cr, &[0; MAX_REJECT_PRIVATE + 1]).unwrap_err();
    assert_eq!(error.ret().ty(), DatType::InvalidParameter);
    assert_eq!(p.b.state(), EpState::Unconnected);
    p.b.ia.cr_accept(p.now, cr, Some(p.b.ep), b"").unwrap();
    p.run_until_idle();
    assert_eq!(p.b.state(), EpState::Connected);
}

#[test]
fn a_request_outlives_its_service_point() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    let psp = p.b.ia.psp_create(5, p.b.cr, PspFlag::Consumer).unwrap();
    let wait = Duration::from_secs(1);
    p.a.ia.ep_connect(p.now, p.a.ep, addr(1), 5, wait, b"", Qos::BestEffort).unwrap();
    p.run_until_idle();
    p.b.ia.psp_free(psp).unwrap();
    let Some(Event::ConnectionRequest { cr, .. }) = p.b.next(p.b.cr) else { panic!() };
    p.b.ia.cr_accept(p.now, cr, Some(p.b.ep), b"").unwrap();
    p.run_until_idle();
    assert_eq!((p.a.state(), p.b.state()), (EpState::Connected, EpState::Connected));
}

#[test]
fn every_call_that_a_connected_endpoint_refuses() {
    let mut p = Pair::connected();
    let connected = DatReturn::new(DatType::InvalidState, DatSubtype::InvalidStateEpConnected);
    assert_eq!(p.ask(b"").unwrap_err().ret(), connected);
    assert_eq!(p.a.ia.ep_reset(p.a.ep).unwrap_err().ret(), connected);
    let change = EpModify::default();
    assert_eq!(p.a.ia.ep_modify(p.a.ep, &change).unwrap_err().ret(), connected);
    assert_eq!(p.a.state(), EpState::Connected);
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
