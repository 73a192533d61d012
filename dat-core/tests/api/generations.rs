//! Connections of one Endpoint, one after another: what its end, its reset and queries of its
//! status leave behind.

#![expect(clippy::unwrap_used, reason = "a test")]

use core::time::Duration;

use crate::pair::*;
use dat_core::cm::wire::Message;
use dat_core::provider::Qp;
use dat_core::testing::Verdict;
use dat_core::*;

use DtoStatus::{ErrFlushed, Success};

fn disconnect(p: &mut Pair) {
    p.a.ia.ep_disconnect(p.now, p.a.ep, CloseFlag::Abrupt).unwrap();
    p.run_until_idle();
}

/// Resets both sides, whose connection has ended.
fn reset(p: &mut Pair) {
    for side in [&mut p.a, &mut p.b] {
        side.ia.ep_reset(side.ep).unwrap();
        side.drain(side.conn);
    }
}

/// A status that says idle lets the slots of suppressed requests go.
#[test]
fn suppressed_requests_cost_no_slots_where_somebody_asks_for_the_status() {
    let p = Pair::unconnected(Merge::Apart, None);
    let mut attr = p.a.ia.ep_attr_default();
    attr.max_request_dtos = 8;
    let mut p = Pair::connected_as(Merge::Apart, Some(&attr));
    for round in 0..12 {
        for cookie in 0..3 {
            p.b.post_recv(cookie).unwrap();
            assert_eq!(p.a.send(cookie, SUPPRESS), Ok(()), "{round}");
        }
        // Earlier completions are known in the same call.
        assert!(p.a.ia.ep_get_status(p.a.ep).unwrap().request_idle);
        p.b.drain(p.b.recv);
    }
    assert_eq!(p.a.drain(p.a.request), []);
}

#[test]
fn one_suppressed_request_is_followed() {
    let mut p = Pair::connected();
    p.a.send(1, SUPPRESS).unwrap();
    assert!(!p.a.ia.ep_get_status(p.a.ep).unwrap().request_idle);
    p.b.post_recv(1).unwrap();
    assert!(p.a.ia.ep_get_status(p.a.ep).unwrap().request_idle);
}

/// Nothing is posted on a queue pair that is out of service: the next connection would carry it
/// out.
#[test]
fn the_status_of_a_disconnected_endpoint_leaves_its_queue_pair_alone() {
    let mut p = Pair::connected();
    p.b.post_recv(1).unwrap();
    p.a.send(1, FLAGS).unwrap();
    p.b.post_recv(2).unwrap();
    p.a.send(2, SUPPRESS).unwrap();
    p.b.post_recv(3).unwrap();
    p.a.send(3, FLAGS).unwrap();
    p.b.post_recv(4).unwrap();
    p.a.send(4, SUPPRESS).unwrap();
    assert_eq!(p.a.dtos(p.a.request), [(1, Success), (3, Success)]);
    disconnect(&mut p);
    assert_eq!(p.a.dtos(p.a.request), [(4, ErrFlushed)]);
    assert!(p.a.ia.ep_get_status(p.a.ep).unwrap().request_idle);
    reset(&mut p);
    p.connect();
    p.b.post_recv(5).unwrap();
    p.a.send(5, FLAGS).unwrap();
    assert_eq!(p.a.dtos(p.a.request), [(5, Success)]);
    assert_eq!(p.a.ia.evd_dropped(p.a.request).unwrap(), (0, 0));
}

/// Each change that replaces the queue pair uses the next index, so that all are used before one
/// comes again; a reset replaces none.
#[test]
fn each_new_queue_pair_of_an_endpoint_uses_the_next_index() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    let index = |p: &Pair| {
        let Qp { number } = p.a.ia.ep_query(p.a.ep).unwrap().qp.unwrap();
        p.fabric.index(0, Qp { number }).unwrap()
    };
    let first = index(&p);
    let mut attr = p.a.ia.ep_query(p.a.ep).unwrap().attr;
    for round in 1..=4 {
        attr.max_recv_dtos -= 1;
        let attr = Some(attr);
        let change = EpModify { attr, ..EpModify::default() };
        p.a.ia.ep_modify(p.a.ep, &change).unwrap();
        p.connect();
        p.a.post_recv(1).unwrap();
        disconnect(&mut p);
        reset(&mut p);
        // The storage has room for 8 Endpoints, whose slots are the low bits.
        assert_eq!(index(&p), first + 8 * round);
    }
}

/// An Endpoint that is reset keeps no place for events of a connection that nobody has asked for.
#[test]
fn a_reset_reserves_nothing_for_a_connection_to_come() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    let [recv, request, conn] = [p.a.recv, p.a.request, p.a.conn].map(Some);
    let other = p.a.ia.ep_create(Some(p.a.pz), recv, request, conn, None).unwrap();
    let second = Duration::from_secs(1);
    // Of 32 places 29 have events that nobody dequeues, one was reserved and not used.
    for _ in 0..29 {
        p.a.ia.ep_connect(p.now, p.a.ep, addr(7), PORT, second, b"", Qos::BestEffort).unwrap();
        assert_eq!(p.a.state(), EpState::Disconnected);
        p.a.ia.ep_reset(p.a.ep).unwrap();
    }
    p.a.ep = other;
    assert_eq!(p.ask(b""), Ok(()));
    assert_eq!(p.a.drain(p.a.conn).len(), 29);
}

/// The deadline of an attempt ends with it.
#[test]
fn an_earlier_attempt_leaves_no_deadline() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    // `b` tries to connect, in vain, and then waits for `a`.
    let second = Duration::from_secs(1);
    p.b.ia.ep_connect(p.now, p.b.ep, addr(7), PORT, second, b"", Qos::BestEffort).unwrap();
    p.b.ia.ep_reset(p.b.ep).unwrap();
    p.b.drain(p.b.conn);
    p.now = p.now + Duration::from_secs(2);
    p.ask(b"").unwrap();
    p.run_until_idle();
    let cr = p.request().unwrap();
    p.fabric.silent(true);
    p.b.ia.cr_accept(p.now, cr, Some(p.b.ep), b"").unwrap();
    assert_eq!(p.b.state(), EpState::CompletionPending);
    let next = p.b.ia.advance(p.now);
    assert!(next.deadline.is_none_or(|at| at > p.now), "{next:?}");
    p.fabric.silent(false);
    p.run_until_idle();
    assert_eq!(p.b.drain(p.b.conn), [Event::Established(p.b.ep)]);
}

/// The end of a connection that has been reset waits for no completions of others.
#[test]
fn the_end_of_a_connection_that_was_reset_comes_before_what_completed_since() {
    let mut p = Pair::connected_as(Merge::All, None);
    let firsts = [p.a.ep, p.b.ep];
    for side in [&mut p.a, &mut p.b] {
        let evd = Some(side.conn);
        let ep = side.ia.ep_create(Some(side.pz), evd, evd, evd, None);
        side.ep = ep.unwrap();
    }
    p.connect();
    p.a.ia.ep_disconnect(p.now, firsts[0], CloseFlag::Abrupt).unwrap();
    p.run_until_idle();
    p.b.post_recv(1).unwrap();
    p.a.send(2, FLAGS).unwrap();
    p.a.ia.ep_reset(firsts[0]).unwrap();
    assert_eq!(p.a.next(p.a.conn), Some(Event::Disconnected(firsts[0])));
    assert_eq!(p.a.dtos(p.a.conn), [(2, Success)]);
}

/// A post of another thread after the end is flushed; the adapter's thread learns of it when the
/// poster comes back.
#[test]
fn a_poster_that_comes_back_after_the_end_is_work() {
    let mut p = Pair::connected();
    let mut poster = p.a.ia.ep_take_poster(p.a.ep).unwrap();
    disconnect(&mut p);
    assert!(!p.a.ia.advance(p.now).work);
    let seg = p.a.seg(1024, 64);
    poster.post_recv(&[seg], 1, FLAGS).unwrap();
    p.a.ia.ep_return_poster(poster).unwrap();
    assert!(p.a.ia.advance(p.now).work);
    assert_eq!(p.a.dtos(p.a.recv), [(1, ErrFlushed)]);
}

/// A graceful disconnect has its whole patience, whatever became of the one before the reset.
#[test]
fn a_graceful_disconnect_inherits_nothing_from_an_earlier_one() {
    let mut p = Pair::connected();
    for _ in 0..2 {
        p.a.send(1, FLAGS).unwrap();
        p.a.ia.ep_disconnect(p.now, p.a.ep, CloseFlag::Graceful).unwrap();
        p.pass(Duration::from_secs(29));
        assert_eq!(p.a.state(), EpState::DisconnectPending);
        p.pass(Duration::from_secs(2));
        assert_eq!(p.a.state(), EpState::Disconnected);
        assert_eq!(p.a.dtos(p.a.request), [(1, ErrFlushed)]);
        reset(&mut p);
        p.connect();
    }
}

/// The private data of an answer is the consumer's until it resets or frees the Endpoint, however
/// many connections come and go meanwhile.
#[test]
fn private_data_stays_until_the_endpoint_is_reset() {
    let mut p = Pair::connected();
    let data = p.a.ia.ep_private_data(p.a.ep).unwrap().to_vec();
    p.a.ia.ep_disconnect(p.now, p.a.ep, CloseFlag::Abrupt).unwrap();
    p.run_until_idle();
    p.pass(Duration::from_secs(100));
    let (pz, recv, request, conn) = (p.a.pz, p.a.recv, p.a.request, p.a.conn);
    let long = Duration::from_secs(1);
    for _ in 0..20 {
        let other =
            p.a.ia.ep_create(Some(pz), Some(recv), Some(request), Some(conn), None).unwrap();
        let qos = Qos::BestEffort;
        p.a.ia.ep_connect(p.now, other, addr(1), PORT, long, b"", qos).unwrap();
        p.run_until_idle();
        p.a.ia.ep_free(p.now, other).unwrap();
        p.run_until_idle();
    }
    assert_eq!(p.a.ia.ep_private_data(p.a.ep).unwrap(), data);
    p.a.ia.ep_reset(p.a.ep).unwrap();
    assert_eq!(p.a.ia.ep_private_data(p.a.ep).unwrap(), b"");
}

/// Ends of connections that no peer confirms free their slots for new ones.
#[test]
fn an_end_that_nobody_confirms_makes_way() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    let small = open_of::<2>(p.fabric, 0);
    p.a = Side::on(small, p.fabric, 0, Merge::Apart, None);
    p.fabric.filter(|mad| match Message::parse(mad) {
        Ok((_, Message::Dreq(_))) => Verdict::Lose,
        _ => Verdict::Deliver,
    });
    for _ in 0..6 {
        p.connect();
        for side in [&mut p.a, &mut p.b] {
            side.ia.ep_disconnect(p.now, side.ep, CloseFlag::Abrupt).unwrap();
            side.drain(side.conn);
        }
        p.a.ia.ep_reset(p.a.ep).unwrap();
        // The next connection is to another queue pair.
        let (recv, request, conn) = (p.b.recv, p.b.request, p.b.conn);
        p.b.ep =
            p.b.ia.ep_create(Some(p.b.pz), Some(recv), Some(request), Some(conn), None).unwrap();
    }
}

/// Requests that wait and look-ups that nobody answers can have all slots. Then a connection is
/// refused, and nothing has changed.
#[test]
fn a_connection_without_a_slot_is_refused() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    let small = open_of::<2>(p.fabric, 0);
    p.a = Side::on(small, p.fabric, 0, Merge::Apart, None);
    p.a.ia.psp_create(PORT, p.a.cr, PspFlag::Consumer).unwrap();
    p.fabric.filter(|mad| match Message::parse(mad) {
        Ok((_, Message::SidrReq(_))) => Verdict::Lose,
        _ => Verdict::Deliver,
    });
    let (now, long, qos) = (p.now, Duration::from_secs(1000), Qos::BestEffort);
    let (recv, request, conn) = (p.b.recv, p.b.request, p.b.conn);
    let other = p.b.ia.ep_create(Some(p.b.pz), Some(recv), Some(request), Some(conn), None);
    for ep in [p.b.ep, other.unwrap()] {
        p.b.ia.ep_connect(now, ep, addr(0), PORT, long, b"", qos).unwrap();
    }
    p.run_until_idle();
    assert_eq!(p.a.drain(p.a.cr).len(), 2);
    let (recv, request, conn) = (p.a.recv, p.a.request, Some(p.a.conn));
    let asking = p.a.ia.ep_create_ud(p.a.pz, recv, request, conn, None, 5).unwrap();
    for _ in 0..2 {
        p.a.ia.ep_connect(now, asking, addr(1), 9, long, b"", qos).unwrap();
    }
    let refused = p.ask(b"").unwrap_err().ret();
    assert_eq!(refused.ty(), DatType::InsufficientResources);
    assert_eq!(p.a.state(), EpState::Unconnected);
    assert_eq!(p.a.ia.ep_query(p.a.ep).unwrap().remote, None);
    // With the look-ups their slots come back.
    p.a.ia.ep_free(now, asking).unwrap();
    p.ask(b"").unwrap();
}
