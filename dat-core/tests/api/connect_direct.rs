//! Connecting with terms that were carried by other means.
#![expect(clippy::unwrap_used, reason = "tests")]

use core::cell::Cell;
use core::net::IpAddr;
use core::time::Duration;

use crate::pair::*;
use dat_core::cm::QpTerms;
use dat_core::provider::{Class, Mtu};
use dat_core::*;

const SECOND: Duration = Duration::from_secs(1);

fn terms(side: &Side, psns: (u32, u32)) -> QpTerms {
    QpTerms {
        remote_qpn: side.ia.ep_query(side.ep).unwrap().qp.unwrap().number,
        sq_psn: psns.0,
        rq_psn: psns.1,
        mtu: Mtu::B1024,
        responder_resources: 1,
        initiator_depth: 1,
        retry_count: 7,
        rnr_retry: 7,
        ack_timeout: 14,
        class: Class::default(),
    }
}

fn direct(side: &mut Side, now: Instant, remote: IpAddr, terms: &QpTerms) -> Result<(), Error> {
    side.ia.ep_connect_direct(now, side.ep, remote, terms, SECOND)
}

/// Both sides connect to each other.
fn joined() -> Pair {
    let mut p = Pair::unconnected(Merge::Apart, None);
    let (to_a, to_b) = (terms(&p.a, (7, 9)), terms(&p.b, (9, 7)));
    direct(&mut p.a, p.now, addr(1), &to_b).unwrap();
    direct(&mut p.b, p.now, addr(0), &to_a).unwrap();
    p.run_until_idle();
    for side in [&mut p.a, &mut p.b] {
        assert_eq!(side.drain(side.conn), [Event::Established(side.ep)]);
        assert_eq!(side.state(), EpState::Connected);
    }
    p
}

#[test]
fn data_flow_and_no_datagram_is_needed() {
    let mut p = joined();
    p.b.post_recv(3).unwrap();
    p.a.send(4, FLAGS).unwrap();
    p.run_until_idle();
    assert_eq!(p.b.dtos(p.b.recv), [(3, DtoStatus::Success)]);
    assert_eq!(p.a.dtos(p.a.request), [(4, DtoStatus::Success)]);
    let asked = p.b.ia.ep_query(p.b.ep).unwrap();
    assert_eq!(asked.remote, Some(addr(0)));
}

#[test]
fn a_disconnect_is_this_sides_own_and_a_reset_makes_it_usable() {
    let mut p = joined();
    p.a.post_recv(1).unwrap();
    p.a.ia.ep_disconnect(p.now, p.a.ep, CloseFlag::Graceful).unwrap();
    p.run_until_idle();
    assert_eq!(p.a.drain(p.a.conn), [Event::Disconnected(p.a.ep)]);
    assert_eq!(p.a.dtos(p.a.recv), [(1, DtoStatus::ErrFlushed)]);
    assert_eq!(p.b.drain(p.b.conn), []);
    assert_eq!(p.b.state(), EpState::Connected);
    p.b.ia.ep_disconnect(p.now, p.b.ep, CloseFlag::Abrupt).unwrap();
    p.run_until_idle();
    for side in [&mut p.a, &mut p.b] {
        side.drain(side.conn);
        side.ia.ep_reset(side.ep).unwrap();
    }
    // An ordinary connect still works.
    p.connect();
}

#[test]
fn nobody_at_that_address_and_a_queue_pair_that_is_not_ready() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    let to_b = terms(&p.b, (1, 2));
    p.a.post_recv(5).unwrap();
    direct(&mut p.a, p.now, addr(9), &to_b).unwrap();
    p.run_until_idle();
    assert_eq!(p.a.drain(p.a.conn), [Event::Unreachable(p.a.ep)]);
    assert_eq!(p.a.dtos(p.a.recv), [(5, DtoStatus::ErrFlushed)]);
    p.a.ia.ep_reset(p.a.ep).unwrap();
    // The peer's queue pair has not been connected: only operations tell.
    direct(&mut p.a, p.now, addr(1), &to_b).unwrap();
    p.run_until_idle();
    assert_eq!(p.a.drain(p.a.conn), [Event::Established(p.a.ep)]);
}

#[test]
fn impossible_terms_change_nothing() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    let good = terms(&p.b, (1, 2));
    let spoil = |spoil: fn(&mut QpTerms)| {
        let mut terms = good;
        spoil(&mut terms);
        terms
    };
    for bad in [
        spoil(|t| t.remote_qpn = 1 << 24),
        spoil(|t| t.rq_psn = 1 << 24),
        spoil(|t| t.sq_psn = u32::MAX),
        spoil(|t| t.mtu = Mtu::B2048),
        spoil(|t| t.retry_count = 8),
        spoil(|t| t.rnr_retry = 8),
        spoil(|t| t.class.priority = 8),
        spoil(|t| t.ack_timeout = 32),
        spoil(|t| t.responder_resources = 255),
        spoil(|t| t.initiator_depth = 255),
    ] {
        let error = direct(&mut p.a, p.now, addr(1), &bad).unwrap_err();
        assert_eq!(error.ret().subtype(), DatSubtype::InvalidArg3, "{bad:?}");
    }
    for (remote, subtype) in [
        ("0.0.0.0", DatSubtype::AddressMalformed),
        ("224.0.0.1", DatSubtype::AddressMalformed),
        ("fd00::1", DatSubtype::AddressUnsupported),
    ] {
        let error = direct(&mut p.a, p.now, remote.parse().unwrap(), &good).unwrap_err();
        assert_eq!(error.ret().subtype(), subtype, "{remote}");
    }
    let never = p.a.ia.ep_connect_direct(p.now, p.a.ep, addr(1), &good, Duration::ZERO);
    assert_eq!(never.unwrap_err().ret().subtype(), DatSubtype::InvalidArg4);
    assert_eq!(p.a.state(), EpState::Unconnected);
    p.connect();
    let error = direct(&mut p.a, p.now, addr(1), &good).unwrap_err();
    assert_eq!(error.ret().ty(), DatType::InvalidState);
}

#[test]
fn as_many_reads_as_the_adapter_has_can_be() {
    for read_in in [true, false] {
        let mut p = Pair::unconnected(Merge::Apart, None);
        let most = u8::try_from(p.a.ia.query().0.max_rdma_read_per_ep_in).unwrap();
        let mut terms = terms(&p.b, (1, 2));
        if read_in {
            terms.responder_resources = most;
        } else {
            terms.initiator_depth = most;
        }
        direct(&mut p.a, p.now, addr(1), &terms).unwrap();
        p.run_until_idle();
        assert_eq!(p.a.state(), EpState::Connected);
    }
}

/// An Endpoint that connected through a service point once, and directly since, is no pattern for
/// another connection to that point.
#[test]
fn a_direct_connection_cannot_be_connected_alike() {
    let mut p = Pair::connected();
    p.a.ia.ep_disconnect(p.now, p.a.ep, CloseFlag::Abrupt).unwrap();
    p.run_until_idle();
    for side in [&mut p.a, &mut p.b] {
        side.ia.ep_reset(side.ep).unwrap();
    }
    let to_b = terms(&p.b, (9, 7));
    direct(&mut p.a, p.now, addr(1), &to_b).unwrap();
    assert_eq!(p.a.state(), EpState::Connected);
    let [recv, request, conn] = [p.a.recv, p.a.request, p.a.conn].map(Some);
    let other = p.a.ia.ep_create(Some(p.a.pz), recv, request, conn, None).unwrap();
    let refused =
        p.a.ia.ep_dup_connect(p.now, other, p.a.ep, SECOND, b"", Qos::BestEffort).unwrap_err();
    assert_eq!(refused.ret(), DatReturn::new(DatType::InvalidParameter, DatSubtype::InvalidArg2));
}

thread_local! {
    static STEPS: Cell<u32> = const { Cell::new(0) };
}

/// What was asked for before the disconnect is not done when the path is known at last.
#[test]
fn a_disconnect_ends_what_waits_for_a_path() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    p.fabric.silent(true);
    let to_b = terms(&p.b, (1, 2));
    direct(&mut p.a, p.now, addr(1), &to_b).unwrap();
    p.a.ia.ep_disconnect(p.now, p.a.ep, CloseFlag::Abrupt).unwrap();
    p.fabric.silent(false);
    p.fabric.watch(|operation| STEPS.set(STEPS.get() + u32::from(operation == "qp_modify")));
    p.run_until_idle();
    assert_eq!((STEPS.get(), p.a.state()), (0, EpState::Disconnected));
    assert_eq!(p.a.drain(p.a.conn), [Event::Disconnected(p.a.ep)]);
}

#[test]
fn the_greatest_numbers_of_their_fields_can_be() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    let most = 0xff_ffff;
    let terms = QpTerms { remote_qpn: most, ack_timeout: 31, ..terms(&p.b, (most, most)) };
    direct(&mut p.a, p.now, addr(1), &terms).unwrap();
    assert_eq!(p.a.drain(p.a.conn), [Event::Established(p.a.ep)]);
}

#[test]
fn without_an_event_dispatcher_for_the_outcome_nothing_is_connected() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    let to_b = terms(&p.b, (1, 2));
    let (recv, request) = (Some(p.a.recv), Some(p.a.request));
    p.a.ep = p.a.ia.ep_create(Some(p.a.pz), recv, request, None, None).unwrap();
    let refused = direct(&mut p.a, p.now, addr(1), &to_b).unwrap_err();
    let not_ready = DatReturn::new(DatType::InvalidState, DatSubtype::InvalidStateEpNotReady);
    assert_eq!(refused.ret(), not_ready);
    assert_eq!(p.a.state(), EpState::Unconnected);
}

#[test]
fn a_path_is_waited_for_until_the_time_is_over() {
    for comes in [true, false] {
        let mut p = Pair::unconnected(Merge::Apart, None);
        p.fabric.silent(true);
        let to_b = terms(&p.b, (1, 2));
        direct(&mut p.a, p.now, addr(1), &to_b).unwrap();
        p.run_until_idle();
        assert_eq!(p.a.state(), EpState::ActiveConnectionPending);
        assert_eq!(p.a.ia.advance(p.now).deadline, Some(p.now + SECOND));
        if comes {
            p.fabric.silent(false);
        } else {
            p.now = p.now + SECOND;
        }
        p.run_until_idle();
        let outcome = if comes { Event::Established(p.a.ep) } else { Event::TimedOut(p.a.ep) };
        assert_eq!(p.a.drain(p.a.conn), [outcome]);
    }
}
