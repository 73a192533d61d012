//! How often a dequeue looks at the completion queue, and what it makes of completions that come
//! twice or too early: what the usual case costs, and what the device cannot make it believe.

#![expect(clippy::unwrap_used, reason = "a test")]

use crate::pair::*;
use dat_core::provider::{Arrived, Completion, Cq, Direction, Extra, Status};
use dat_core::*;

use DtoStatus::{ErrFlushed, Success};

const SUPPRESS: CompletionFlags = CompletionFlags::SUPPRESS;

/// Suppressed by their bits in `silent`, otherwise announced: one-byte writes, the cookie counted
/// from 0.
fn writes(p: &mut Pair, count: u64, silent: u64) {
    let (iov, far) = ([p.a.seg(0, 1)], p.b.far(0, 1));
    for cookie in 0..count {
        let flags = if silent >> cookie & 1 == 1 { SUPPRESS } else { FLAGS };
        p.a.ia.ep_post_rdma_write(p.a.ep, &iov, cookie, &far, flags).unwrap();
    }
}

fn one_by_one(side: &mut Side, evd: Evd, cookies: core::ops::Range<u64>) {
    for cookie in cookies {
        let Some(Event::Dto(dto)) = side.next(evd) else {
            unreachable!("no completion");
        };
        assert_eq!((dto.cookie, dto.status), (cookie, Success));
    }
}

fn burst(side: &mut Side, evd: Evd, most: usize) -> Vec<u64> {
    let mut cookies = Vec::new();
    let take = |event| {
        if let Event::Dto(dto) = event {
            cookies.push(dto.cookie);
        }
    };
    let count = side.ia.evd_dequeue_each(evd, most, take).unwrap();
    assert_eq!(count, cookies.len());
    cookies
}

/// A success of the first side's Endpoint.
fn forged(p: &Pair, direction: Direction, token: u16) -> Completion {
    let qp = p.a.ia.ep_query(p.a.ep).unwrap().qp.unwrap();
    Completion {
        index: p.fabric.index(0, qp).unwrap(),
        len: 1,
        token,
        direction,
        status: Status::Success,
        syndrome: 0,
        vendor: 0,
        extra: Extra::default(),
    }
}

#[test]
fn a_plain_completion_is_looked_at_once() {
    let mut p = Pair::connected_as(Merge::RecvRequest, None);
    for cookie in 0..8 {
        p.b.post_recv(cookie).unwrap();
    }
    // Events of another kind, dequeued, cost nothing afterwards.
    for number in 0..3 {
        p.a.ia.evd_post_se(p.a.request, number).unwrap();
    }
    assert_eq!(p.a.drain(p.a.request).len(), 3);
    for cookie in 0..8 {
        p.a.send(cookie, FLAGS).unwrap();
    }
    let _ = p.fabric.looks();
    let (requests, receives) = (p.a.request, p.b.recv);
    one_by_one(&mut p.a, requests, 0..8);
    assert_eq!(p.fabric.looks(), [8, 0, 0, 0]);
    one_by_one(&mut p.b, receives, 0..8);
    assert_eq!(p.fabric.looks(), [8, 0, 0, 0]);
    // The end of a row of suppressed requests asks once more what it was that came.
    writes(&mut p, 4, 0b0111);
    one_by_one(&mut p.a, requests, 3..4);
    assert_eq!(p.fabric.looks(), [1, 0, 1, 0]);
    // And an empty queue is looked at once.
    assert_eq!(p.a.next(requests), None);
    assert_eq!(p.fabric.looks(), [1, 0, 0, 0]);
}

/// The end of a row gives back the slots of all of it, row after row.
#[test]
fn rows_of_suppressed_requests_end_one_after_another() {
    let mut p = Pair::connected();
    let requests = p.a.request;
    for _ in 0..20 {
        writes(&mut p, 4, 0b0111);
        one_by_one(&mut p.a, requests, 3..4);
    }
    writes(&mut p, 32, 0);
    one_by_one(&mut p.a, requests, 0..32);
    assert_eq!(p.a.ia.evd_dropped(requests), Ok((0, 0)));
}

#[test]
fn a_burst_is_looked_at_once() {
    let mut p = Pair::connected();
    for cookie in 0..8 {
        p.b.post_recv(cookie).unwrap();
    }
    for cookie in 0..8 {
        p.a.send(cookie, FLAGS).unwrap();
    }
    let _ = p.fabric.looks();
    let (requests, receives) = (p.a.request, p.b.recv);
    assert_eq!(burst(&mut p.a, requests, 5), [0, 1, 2, 3, 4]);
    assert_eq!(p.fabric.looks(), [1, 1, 0, 0]);
    assert_eq!(burst(&mut p.a, requests, 3), [5, 6, 7]);
    assert_eq!(p.fabric.looks(), [1, 1, 0, 0]);
    assert_eq!(burst(&mut p.b, receives, 8), [0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(p.fabric.looks(), [1, 1, 0, 0]);
}

/// Where a CNO listens, completions lie in the ring already when a software event is raised, and
/// others come after it.
#[test]
fn a_burst_stops_where_something_else_lies_between() {
    let mut p = Pair::connected_as(Merge::RecvRequest, None);
    let cno = p.a.ia.cno_create(None).unwrap();
    p.a.ia.evd_modify_cno(p.a.request, Some(cno)).unwrap();
    p.run_until_idle();
    writes(&mut p, 2, 0);
    p.run_until_idle();
    p.a.ia.evd_post_se(p.a.request, 77).unwrap();
    writes(&mut p, 2, 0);
    let mut seen = Vec::new();
    let take = |event| {
        if let Event::Dto(DtoEvent { cookie: number, .. }) | Event::Software(number) = event {
            seen.push(number);
        }
    };
    let count = p.a.ia.evd_dequeue_each(p.a.request, 99, take).unwrap();
    assert_eq!(seen, [0, 1, 77, 0, 1]);
    assert_eq!(count, 5);
}

/// A bind is a request like any other.
#[test]
fn a_plain_bind_is_looked_at_once() {
    let mut p = Pair::connected();
    let rmr = p.a.ia.rmr_create(p.a.pz).unwrap();
    let lmr = p.a.seg(0, 64);
    for cookie in 0..3 {
        p.a.ia.rmr_bind(rmr, &lmr, MemPriv::REMOTE, p.a.ep, cookie, FLAGS).unwrap();
    }
    let _ = p.fabric.looks();
    for _ in 0..3 {
        let event = p.a.next(p.a.request);
        assert!(matches!(event, Some(Event::RmrBind { .. })), "{event:?}");
    }
    assert_eq!(p.fabric.looks(), [3, 0, 0, 0]);
}

/// A slot that a burst gave back matches nothing until it is posted again, also when it is the next
/// to be used.
#[test]
fn a_slot_given_back_matches_nothing() {
    let mut p = Pair::connected();
    let requests = p.a.request;
    writes(&mut p, 32, 0);
    assert_eq!(burst(&mut p.a, requests, 99).len(), 32);
    writes(&mut p, 1, 0);
    one_by_one(&mut p.a, requests, 0..1);
    for direction in [Direction::Send, Direction::Recv] {
        // The token of the burst's second request, whose slot is the oldest.
        let again = forged(&p, direction, 1);
        p.fabric.forge(0, Cq(1), again);
        assert_eq!(p.a.next(requests), None);
    }
    assert_eq!(p.a.ia.evd_dropped(requests), Ok((0, 2)));
}

/// The same of what was flushed: a device that reports a request of a queue pair that is reset is
/// not believed.
#[test]
fn a_slot_that_was_flushed_matches_nothing() {
    for posted_before in [false, true] {
        let mut p = Pair::connected();
        let requests = p.a.request;
        p.fabric.hold(true);
        if posted_before {
            writes(&mut p, 32, 0);
        }
        p.a.ia.ep_disconnect(p.now, p.a.ep, CloseFlag::Abrupt).unwrap();
        if !posted_before {
            writes(&mut p, 32, 0);
        }
        assert_eq!(p.a.dtos(requests).len(), 32);
        for token in [0, 1, 0xffff] {
            let made_up = forged(&p, Direction::Send, token);
            p.fabric.forge(0, Cq(1), made_up);
            assert_eq!(p.a.next(requests), None, "token {token}");
        }
        assert_eq!(p.a.ia.evd_dropped(requests), Ok((0, 3)));
    }
}

/// When all is flushed, an empty queue is looked at once again.
#[test]
fn an_end_leaves_nothing_to_look_at() {
    let mut p = Pair::connected_as(Merge::All, None);
    p.a.post_recv(1).unwrap();
    p.a.ia.ep_disconnect(p.now, p.a.ep, CloseFlag::Abrupt).unwrap();
    p.run_until_idle();
    assert_eq!(p.a.drain(p.a.conn).len(), 2);
    for _ in 0..2 {
        let _ = p.fabric.looks();
        assert_eq!(p.a.next(p.a.conn), None);
        assert_eq!(p.fabric.looks(), [1, 0, 0, 0]);
    }
}

/// A completion of a queue pair whose index is that of no Endpoint.
#[test]
fn a_completion_of_no_endpoint_is_nonsense() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    let small = open_of::<3>(p.fabric, 0);
    p.a = Side::on(small, p.fabric, 0, Merge::Apart, None);
    let mut nobody = forged(&p, Direction::Send, 0);
    nobody.index |= 3;
    // Its queues stand behind those of the adapter before it.
    p.fabric.forge(0, Cq(3), nobody);
    assert_eq!(p.a.next(p.a.request), None);
    assert_eq!(p.a.ia.evd_dropped(p.a.request), Ok((0, 1)));
}

/// The device reports requests a second time that were dequeued by each path; all
/// slots have been used.
#[test]
fn a_completion_that_comes_twice_is_nonsense() {
    for way in 0..4 {
        for token in [0, 1, 15, 31] {
            let mut p = Pair::connected_as(Merge::RecvRequest, None);
            let requests = p.a.request;
            let silent = if way == 3 { 0x7fff_ffff } else { 0 };
            writes(&mut p, 32, silent);
            match way {
                0 => one_by_one(&mut p.a, requests, 0..32),
                1 => assert_eq!(burst(&mut p.a, requests, 99).len(), 32),
                2 => {
                    // A failed one, or an entry in between, sends each to the slow path.
                    for cookie in 0..32 {
                        p.a.ia.evd_post_se(requests, 1).unwrap();
                        p.a.ia.evd_post_se(requests, 2).unwrap();
                        assert_eq!(p.a.next(requests), Some(Event::Software(1)));
                        assert_eq!(p.a.next(requests), Some(Event::Software(2)));
                        one_by_one(&mut p.a, requests, cookie..cookie + 1);
                    }
                }
                _ => one_by_one(&mut p.a, requests, 31..32),
            }
            let again = forged(&p, Direction::Send, token);
            p.fabric.forge(0, Cq(0), again);
            assert_eq!(p.a.next(requests), None, "way {way}, token {token}");
            assert_eq!(p.a.ia.evd_dropped(requests), Ok((0, 1)));
        }
    }
}

#[test]
fn a_receive_that_is_not_the_oldest_or_was_not_posted_is_nonsense() {
    for (posted, token) in [(0, 0), (1, 1), (2, 1), (2, 2), (2, 0xffff)] {
        let mut p = Pair::connected();
        for cookie in 0..posted {
            p.a.post_recv(cookie).unwrap();
        }
        let early = forged(&p, Direction::Recv, token);
        p.fabric.forge(0, Cq(0), early);
        assert_eq!(p.a.next(p.a.recv), None, "{posted} posted, token {token}");
        assert_eq!(p.a.ia.evd_dropped(p.a.recv), Ok((0, 1)));
    }
}

/// Where all receives have completed, the next is nonsense, whatever its length.
#[test]
fn a_receive_behind_the_last_is_nonsense() {
    let mut p = Pair::connected();
    let recv = p.a.recv;
    for token in [1_u16, 2] {
        let cookie = token.into();
        p.a.post_recv(cookie).unwrap();
        p.b.send(cookie, FLAGS).unwrap();
        assert_eq!(p.a.dtos(recv), [(cookie, Success)]);
        let early = forged(&p, Direction::Recv, token);
        p.fabric.forge(0, Cq(0), early);
        assert_eq!(p.a.next(recv), None);
        assert_eq!(p.a.ia.evd_dropped(recv), Ok((0, token.into())));
    }
}

/// A device that floods the queue takes no more of a caller's time than that, and what lies behind
/// the flood comes with the next call.
#[test]
fn one_dequeue_looks_at_256_completions_at_the_most() {
    let mut p = Pair::connected();
    p.a.post_recv(5).unwrap();
    let mut stale = forged(&p, Direction::Recv, 0);
    stale.index ^= 0x80_0000;
    for _ in 0..256 {
        p.fabric.forge(0, Cq(0), stale);
    }
    p.a.ia.ep_disconnect(p.now, p.a.ep, CloseFlag::Abrupt).unwrap();
    let first = p.a.next(p.a.recv);
    assert_eq!(p.a.ia.evd_dropped(p.a.recv), Ok((256, 0)));
    assert_eq!(first, None);
    assert_eq!(p.a.dtos(p.a.recv), [(5, ErrFlushed)]);
}

/// Only an invalidation names a key; an immediate may be any number, and a receive that failed
/// tells nothing.
#[test]
fn an_immediate_closes_no_window() {
    for (arrived, status) in [
        (Arrived::Message, Status::Success),
        (Arrived::Immediate, Status::Success),
        (Arrived::Invalidation, Status::LocalLength),
    ] {
        let mut p = Pair::connected();
        let rmr = p.a.ia.rmr_create(p.a.pz).unwrap();
        let lmr = p.a.seg(0, 64);
        let context = p.a.ia.rmr_bind(rmr, &lmr, MemPriv::REMOTE, p.a.ep, 5, FLAGS).unwrap();
        assert_eq!(p.a.drain(p.a.request).len(), 1);
        let bound = p.a.ia.rmr_query(rmr).unwrap().bound;
        assert!(bound.is_some());
        p.a.post_recv(1).unwrap();
        let mut invalidation = forged(&p, Direction::Recv, 0);
        invalidation.status = status;
        invalidation.extra.arrived = arrived;
        invalidation.extra.immediate = context;
        p.fabric.forge(0, Cq(0), invalidation);
        assert!(p.a.next(p.a.recv).is_some());
        assert_eq!(p.a.ia.rmr_query(rmr).unwrap().bound, bound, "{arrived:?}");
    }
}

/// A receive posted after the end comes behind the event of the end.
#[test]
fn a_receive_posted_after_the_end_is_flushed_behind_it() {
    let mut p = Pair::connected_as(Merge::All, None);
    p.a.post_recv(1).unwrap();
    p.a.post_recv(2).unwrap();
    p.a.ia.ep_disconnect(p.now, p.a.ep, CloseFlag::Abrupt).unwrap();
    p.run_until_idle();
    let flushed = |event: Option<Event>| match event {
        Some(Event::Dto(dto)) => {
            assert_eq!(dto.status, ErrFlushed);
            Some(dto.cookie)
        }
        _ => None,
    };
    assert_eq!(flushed(p.a.next(p.a.conn)), Some(1));
    p.a.post_recv(3).unwrap();
    assert_eq!(flushed(p.a.next(p.a.conn)), Some(2));
    assert_eq!(p.a.next(p.a.conn), Some(Event::Disconnected(p.a.ep)));
    assert_eq!(flushed(p.a.next(p.a.conn)), Some(3));
    assert_eq!(p.a.next(p.a.conn), None);
}

/// The end of an Endpoint that completes nothing there waits for no completion of another.
#[test]
fn an_end_waits_for_its_own_completions_only() {
    let mut p = Pair::connected_as(Merge::All, None);
    let (first, shared) = (p.a.ep, p.a.conn);
    let apart = [&mut p.a, &mut p.b].map(|side| {
        let evd = side.ia.evd_create(8, EvdFlags::DTO).unwrap();
        let (some, conn) = (Some(evd), Some(side.conn));
        side.ep = side.ia.ep_create(Some(side.pz), some, some, conn, None).unwrap();
        side.ep
    });
    p.connect();
    p.a.ep = first;
    writes(&mut p, 3, 0);
    p.a.ia.ep_disconnect(p.now, apart[0], CloseFlag::Abrupt).unwrap();
    p.run_until_idle();
    assert_eq!(p.a.next(shared), Some(Event::Disconnected(apart[0])));
    one_by_one(&mut p.a, shared, 0..3);
}

/// ESTABLISHED comes first, also before what was raised earlier.
#[test]
fn established_comes_before_earlier_software_events() {
    let mut p = Pair::unconnected(Merge::All, None);
    p.a.ia.evd_post_se(p.a.conn, 7).unwrap();
    p.ask(b"").unwrap();
    p.run_until_idle();
    let cr = p.request().unwrap();
    p.b.ia.cr_accept(p.now, cr, Some(p.b.ep), b"").unwrap();
    p.run_until_idle();
    assert_eq!(p.a.next(p.a.conn), Some(Event::Established(p.a.ep)));
    assert_eq!(p.a.next(p.a.conn), Some(Event::Software(7)));
}
