//! Completions of an earlier generation of their queue pair: they mean nothing, to nobody.

#![expect(clippy::unwrap_used, reason = "a test")]

use crate::pair::*;
use dat_core::provider::{Completion, Cq, Direction, Extra, Status};
use dat_core::*;

/// Puts a receive of the first side's Endpoint into its queue, as of the generation before.
fn forge_stale(p: &Pair, status: Status) {
    let qp = p.a.ia.ep_query(p.a.ep).unwrap().qp.unwrap();
    let completion = Completion {
        index: p.fabric.index(0, qp).unwrap() ^ 0x80_0000,
        len: 0,
        token: 0,
        direction: Direction::Recv,
        status,
        syndrome: 0,
        vendor: 0,
        extra: Extra::default(),
    };
    p.fabric.forge(0, Cq(0), completion);
}

#[test]
fn it_is_no_event() {
    let mut p = Pair::connected();
    p.a.post_recv(1).unwrap();
    forge_stale(&p, Status::Success);
    assert_eq!(p.a.ia.evd_more(p.a.recv), Ok(0));
    assert_eq!(p.a.next(p.a.recv), None);
    assert_eq!(p.a.ia.evd_dropped(p.a.recv), Ok((1, 0)));
}

#[test]
fn it_stands_for_nothing_that_will_be_flushed() {
    let mut p = Pair::connected();
    p.a.ia.ep_disconnect(p.now, p.a.ep, CloseFlag::Abrupt).unwrap();
    for cookie in 0..2 {
        p.a.post_recv(cookie).unwrap();
    }
    forge_stale(&p, Status::Success);
    assert_eq!(p.a.ia.evd_more(p.a.recv), Ok(2));
    assert_eq!(p.a.dtos(p.a.recv), [0, 1].map(|cookie| (cookie, DtoStatus::ErrFlushed)));
}

#[test]
fn it_breaks_no_connection() {
    let mut p = Pair::connected();
    p.a.post_recv(1).unwrap();
    forge_stale(&p, Status::LocalLength);
    assert!(!p.a.ia.ep_get_status(p.a.ep).unwrap().recv_idle);
    p.run_until_idle();
    assert_eq!(p.a.state(), EpState::Connected);
    assert_eq!(p.a.drain(p.a.conn), []);
}

/// Behind it the queue is empty, which is looked at once.
#[test]
fn it_costs_one_look_more() {
    let mut p = Pair::connected();
    forge_stale(&p, Status::Success);
    let _ = p.fabric.looks();
    assert_eq!(p.a.next(p.a.recv), None);
    assert_eq!(p.fabric.looks(), [1, 0, 1, 1]);
}
