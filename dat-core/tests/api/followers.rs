//! Requests of dat-core's own behind suppressed ones, when they fail, come too late, or end binds.

#![expect(clippy::unwrap_used, reason = "a test")]

use crate::pair::*;
use dat_core::provider::{Completion, Cq, Direction, Extra, Status};
use dat_core::*;

use DtoStatus::{ErrFlushed, Success};

fn write(p: &mut Pair, cookie: u64, flags: CompletionFlags) {
    let (iov, far) = ([p.a.seg(0, 1)], p.b.far(0, 1));
    p.a.ia.ep_post_rdma_write(p.a.ep, &iov, cookie, &far, flags).unwrap();
}

/// A completion of the first side's request queue.
fn forge(p: &Pair, token: u16, status: Status) {
    let qp = p.a.ia.ep_query(p.a.ep).unwrap().qp.unwrap();
    let completion = Completion {
        index: p.fabric.index(0, qp).unwrap(),
        len: 0,
        token,
        direction: Direction::Send,
        status,
        syndrome: 0,
        vendor: 0,
        extra: Extra::default(),
    };
    p.fabric.forge(0, Cq(1), completion);
}

/// Those before one that failed have ends of their own.
#[test]
fn a_follower_that_fails_takes_nobody_with_it() {
    let mut p = Pair::connected();
    p.fabric.hold(true);
    write(&mut p, 7, SUPPRESS);
    write(&mut p, 8, SUPPRESS);
    assert!(!p.a.ia.ep_get_status(p.a.ep).unwrap().request_idle);
    forge(&p, 2, Status::Flushed);
    assert_eq!(p.a.next(p.a.request), None);
    p.run_until_idle();
    assert_eq!(p.a.state(), EpState::Disconnected);
    assert_eq!(p.a.dtos(p.a.request), [(7, ErrFlushed), (8, ErrFlushed)]);
}

/// A device reports a request before the one of dat-core's own that was posted earlier.
#[test]
fn a_follower_that_comes_too_late_changes_nothing() {
    let mut p = Pair::connected();
    p.fabric.hold(true);
    write(&mut p, 7, SUPPRESS);
    p.a.ia.ep_get_status(p.a.ep).unwrap();
    write(&mut p, 8, FLAGS);
    forge(&p, 2, Status::Success);
    assert_eq!(p.a.dtos(p.a.request), [(8, Success)]);
    forge(&p, 1, Status::Success);
    assert_eq!(p.a.next(p.a.request), None);
    assert_eq!(p.a.ia.evd_dropped(p.a.request), Ok((0, 0)));
    // The next look has its own.
    write(&mut p, 9, SUPPRESS);
    p.a.ia.ep_get_status(p.a.ep).unwrap();
    forge(&p, 4, Status::Success);
    assert!(p.a.ia.ep_get_status(p.a.ep).unwrap().request_idle);
}

/// A suppressed bind ends with the request behind it, each once: its window is then freed without
/// anybody being waited for.
#[test]
fn suppressed_binds_end_with_the_request_behind_them() {
    for (binds, ended) in [(1, 0), (2, 0), (3, 0), (1, 1), (2, 1), (3, 1)] {
        let mut p = Pair::connected();
        let lmr = p.a.seg(0, 64);
        let rmrs: Vec<Rmr> = (0..binds).map(|_| p.a.ia.rmr_create(p.a.pz).unwrap()).collect();
        for &rmr in &rmrs {
            p.a.ia.rmr_bind(rmr, &lmr, MemPriv::REMOTE, p.a.ep, 5, SUPPRESS).unwrap();
        }
        if ended == 0 {
            p.a.ia.ep_get_status(p.a.ep).unwrap();
            p.run_until_idle();
            assert!(p.a.ia.ep_get_status(p.a.ep).unwrap().request_idle);
        } else {
            write(&mut p, 9, FLAGS);
            assert_eq!(p.a.dtos(p.a.request), [(9, Success)]);
        }
        // Nothing of them is outstanding any more, so a device that answers nothing more is not
        // asked.
        p.fabric.hold(true);
        for rmr in rmrs {
            p.a.ia.rmr_free(rmr).unwrap();
        }
        assert_eq!(p.a.state(), EpState::Connected);
        assert_eq!(p.a.drain(p.a.request), []);
    }
}

/// However often the status is asked for, one request of dat-core's own is under way at a time: the
/// send queue has room for no more.
#[test]
fn one_follower_is_under_way_at_a_time() {
    let mut p = Pair::connected();
    let dtos = p.a.ia.ep_query(p.a.ep).unwrap().attr.max_request_dtos;
    p.fabric.hold(true);
    for cookie in 0..u64::from(dtos) {
        write(&mut p, cookie, SUPPRESS);
        assert!(!p.a.ia.ep_get_status(p.a.ep).unwrap().request_idle);
    }
    p.fabric.hold(false);
    p.run_until_idle();
    for _ in 0..2 {
        p.a.ia.ep_get_status(p.a.ep).unwrap();
    }
    assert!(p.a.ia.ep_get_status(p.a.ep).unwrap().request_idle);
}

/// A completion queue has room for as many events as its Event Dispatcher was made for, whatever
/// lies in it of dat-core's own.
#[test]
fn followers_leave_the_consumer_its_entries() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    let request = p.a.ia.evd_create(4, EvdFlags::DTO).unwrap();
    let (recv, conn) = (p.a.recv, p.a.conn);
    p.a.ia.ep_free(p.now, p.a.ep).unwrap();
    p.a.ep = p.a.ia.ep_create(Some(p.a.pz), Some(recv), Some(request), Some(conn), None).unwrap();
    p.connect();
    // Each has completed, and its completion lies there: some time none is posted any more.
    for cookie in 0..8 {
        write(&mut p, cookie, SUPPRESS);
        p.a.ia.ep_get_status(p.a.ep).unwrap();
        p.run_until_idle();
    }
    for cookie in 10..14 {
        write(&mut p, cookie, FLAGS);
    }
    p.run_until_idle();
    assert_eq!(p.a.drain(p.a.ia.async_evd()), []);
    assert_eq!(p.a.state(), EpState::Connected);
    let ended: Vec<_> = (10..14).map(|cookie| (cookie, Success)).collect();
    assert_eq!(p.a.dtos(request), ended);
}

/// Each bind is counted once, however it ends: the slot of its RMR is free again when it has been
/// freed and all has been dequeued.
#[test]
fn binds_leave_their_rmrs_free_for_others() {
    for way in 0..4 {
        let mut p = Pair::connected();
        for round in 0..20 {
            let rmr = p.a.ia.rmr_create(p.a.pz).unwrap();
            let lmr = p.a.seg(0, 64);
            let bind = |p: &mut Pair, flags| {
                p.a.ia.rmr_bind(rmr, &lmr, MemPriv::REMOTE, p.a.ep, 5, flags).unwrap();
            };
            bind(&mut p, SUPPRESS);
            match way {
                0 => write(&mut p, 1, FLAGS),
                1 => bind(&mut p, FLAGS),
                2 => {
                    write(&mut p, 1, SUPPRESS);
                    p.a.ia.ep_get_status(p.a.ep).unwrap();
                }
                _ => {
                    bind(&mut p, SUPPRESS);
                    p.a.ia.ep_get_status(p.a.ep).unwrap();
                }
            }
            p.run_until_idle();
            p.a.ia.rmr_free(rmr).unwrap();
            let events = p.a.drain(p.a.request).len();
            assert_eq!(events, usize::from(way < 2), "way {way}, round {round}");
            p.run_until_idle();
        }
    }
}

/// Requests that a follower ended give back their slots: they match nothing until posted again.
#[test]
fn slots_that_a_follower_ended_match_nothing() {
    let mut p = Pair::connected();
    for cookie in 0..32 {
        write(&mut p, cookie, SUPPRESS);
    }
    while !p.a.ia.ep_get_status(p.a.ep).unwrap().request_idle {
        p.run_until_idle();
    }
    assert_eq!(p.a.drain(p.a.request), []);
    // Each slot comes to be the next in its turn.
    for turn in 0..32 {
        for token in 0..32 {
            forge(&p, token, Status::Success);
            assert_eq!(p.a.next(p.a.request), None, "turn {turn}, token {token}");
        }
        write(&mut p, turn, FLAGS);
        assert_eq!(p.a.dtos(p.a.request), [(turn, Success)]);
    }
    assert_eq!(p.a.ia.evd_dropped(p.a.request), Ok((0, 32 * 32)));
}

/// The device leaves out the completion of a suppressed bind: the next that it reports ends the
/// bind too.
#[test]
fn a_bind_that_is_passed_over_is_counted() {
    for followed in [false, true] {
        let mut p = Pair::connected();
        let rmr = p.a.ia.rmr_create(p.a.pz).unwrap();
        let lmr = p.a.seg(0, 64);
        p.fabric.hold(true);
        p.a.ia.rmr_bind(rmr, &lmr, MemPriv::REMOTE, p.a.ep, 5, SUPPRESS).unwrap();
        write(&mut p, 7, if followed { SUPPRESS } else { FLAGS });
        if followed {
            assert!(!p.a.ia.ep_get_status(p.a.ep).unwrap().request_idle);
        }
        assert_eq!(p.a.ia.rmr_binder(rmr).unwrap(), Some(p.a.ep));
        forge(&p, if followed { 2 } else { 1 }, Status::Success);
        let seen = p.a.dtos(p.a.request);
        assert_eq!(seen.len(), usize::from(!followed));
        assert_eq!(p.a.ia.rmr_binder(rmr).unwrap(), None);
    }
}

/// The same where an event lies in front of the completions of dat-core's own requests.
#[test]
fn followers_behind_an_event_leave_the_consumer_its_entries() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    let request = p.a.ia.evd_create(4, EvdFlags::DTO).unwrap();
    let (recv, conn) = (p.a.recv, p.a.conn);
    p.a.ep = p.a.ia.ep_create(Some(p.a.pz), Some(recv), Some(request), Some(conn), None).unwrap();
    p.connect();
    write(&mut p, 1, FLAGS);
    for cookie in 2..12 {
        write(&mut p, cookie, SUPPRESS);
        p.a.ia.ep_get_status(p.a.ep).unwrap();
        p.run_until_idle();
    }
    for cookie in 20..23 {
        write(&mut p, cookie, FLAGS);
    }
    p.run_until_idle();
    assert_eq!(p.a.drain(p.a.ia.async_evd()), []);
    // The device needs one more to move to another queue.
    p.a.ia.evd_resize(request, 8).unwrap();
    assert_eq!(p.a.dtos(request), [1, 20, 21, 22].map(|cookie| (cookie, Success)));
}

/// A registration that fails opens nothing for local posts either.
#[test]
fn a_failed_registration_gives_no_context() {
    for (status, ended) in
        [(Status::Success, Success), (Status::LocalProtection, DtoStatus::ErrLocalMmError)]
    {
        let mut p = Pair::connected();
        p.fabric.hold(true);
        let region = p.fabric.region(0);
        let lmr = p.a.ia.lmr_allocate(p.a.pz, 1).unwrap();
        let memory = PhysicalPages { pages: &[region.addr], log_page: 12, len: 4096 };
        let made = p.a.ia.lmr_fmr(lmr, memory, MemPriv::ALL, VaType::Va, p.a.ep, 1, FLAGS).unwrap();
        forge(&p, 0, status);
        assert_eq!(p.a.dtos(p.a.request), [(1, ended)]);
        let triplet = LmrTriplet { addr: region.addr, len: 8, context: made.lmr_context };
        let posted = p.a.ia.ep_post_send(p.a.ep, &[triplet], 2, FLAGS);
        let refused = DatReturn::new(DatType::PrivilegesViolation, DatSubtype::PrivilegesRead);
        assert_eq!(posted, if ended == Success { Ok(()) } else { Err(refused) });
    }
}

#[test]
fn a_failed_follower_takes_no_entry_from_the_length_of_its_dispatcher() {
    for reset in [false, true] {
        let mut p = Pair::unconnected(Merge::Apart, None);
        // One less than a power of two, so that rounding up gives few entries besides.
        let (length, flags) = (15, EvdFlags::DTO | EvdFlags::RMR_BIND);
        p.a.request = p.a.ia.evd_create(length, flags).unwrap();
        let another = |side: &mut Side| {
            let (recv, request, conn) = (Some(side.recv), Some(side.request), Some(side.conn));
            let ep = side.ia.ep_create(Some(side.pz), recv, request, conn, None);
            side.ep = ep.unwrap();
        };
        another(&mut p.a);
        p.connect();
        p.fabric.hold(true);
        let (seg, mut far) = (p.a.seg(0, 8), p.b.far(0, 8));
        far.context ^= 1;
        let write = p.a.ia.ep_post_rdma_write(p.a.ep, &[seg], 1, &far, SUPPRESS);
        write.unwrap();
        assert!(!p.a.ia.ep_get_status(p.a.ep).unwrap().request_idle);
        p.fabric.hold(false);
        p.run_until_idle();
        p.a.drain(p.a.conn);
        p.b.drain(p.b.conn);
        assert_eq!(p.a.state(), EpState::Disconnected);
        if reset {
            p.a.ia.ep_reset(p.a.ep).unwrap();
        }

        another(&mut p.a);
        another(&mut p.b);
        p.connect();
        // With the failed write's there are as many completions as the length says.
        for cookie in 0..14 {
            p.b.post_recv(cookie).unwrap();
        }
        for cookie in 0..12 {
            p.a.send(cookie, FLAGS).unwrap();
        }
        // A suppressed one that has completed gives its entry back to the next.
        for cookie in 12..14 {
            p.a.send(cookie, SUPPRESS).unwrap();
            p.a.ia.ep_get_status(p.a.ep).unwrap();
            p.run_until_idle();
            assert!(p.a.ia.ep_get_status(p.a.ep).unwrap().request_idle);
        }
        for cookie in 14..16 {
            p.b.post_recv(cookie).unwrap();
            p.a.send(cookie, FLAGS).unwrap();
        }
        p.run_until_idle();
        let evd = p.a.ia.async_evd();
        assert_eq!(p.a.drain(evd), [], "reset: {reset}");
        let failed = (1, DtoStatus::ErrRemoteAccess);
        let sent = (0..12).chain(14..16).map(|cookie| (cookie, Success));
        let expected: Vec<_> = (!reset).then_some(failed).into_iter().chain(sent).collect();
        assert_eq!(p.a.dtos(p.a.request), expected);
        assert_eq!(p.a.state(), EpState::Connected);
    }
}
