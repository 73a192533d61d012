//! Completions that nobody has dequeued, as the control side sees them: how many it takes into a
//! ring, what it does about failures, and how many entries its own requests may take.

#![expect(clippy::unwrap_used, reason = "a test")]

use crate::pair::*;
use dat_core::*;

const NOBODY: Result<Evd, DatReturn> = Err(DatReturn::QUEUE_EMPTY);

/// A connected pair whose first Endpoint has a request Event Dispatcher of `qlen` events.
fn narrow(qlen: u32) -> Pair {
    let mut p = Pair::unconnected(Merge::Apart, None);
    let flags = EvdFlags::DTO | EvdFlags::SOFTWARE;
    let mut attr = p.a.ia.ep_attr_default();
    attr.max_request_dtos = qlen.try_into().unwrap();
    p.a.request = p.a.ia.evd_create(qlen, flags).unwrap();
    p.a.ep =
        p.a.ia
            .ep_create(Some(p.a.pz), Some(p.a.recv), Some(p.a.request), Some(p.a.conn), Some(&attr))
            .unwrap();
    p.connect();
    p
}

fn write(p: &mut Pair, cookie: u64, flags: CompletionFlags) -> Result<(), DatReturn> {
    let (iov, far) = ([p.a.seg(0, 1)], p.b.far(0, 1));
    p.a.ia.ep_post_rdma_write(p.a.ep, &iov, cookie, &far, flags)
}

/// A pair whose first side has so many completions that nobody has dequeued, on one Event
/// Dispatcher of 64 events that a CNO listens to; the CNO was triggered for them.
fn heaped(completions: u64) -> (Pair, Cno) {
    let mut p = Pair::connected_as(Merge::RecvRequest, None);
    let cno = p.a.ia.cno_create(None).unwrap();
    p.a.ia.evd_modify_cno(p.a.request, Some(cno)).unwrap();
    p.run_until_idle();
    for cookie in 0..completions {
        if cookie < 24 {
            write(&mut p, cookie, FLAGS).unwrap();
        } else {
            p.a.post_recv(cookie).unwrap();
            p.b.send(cookie, FLAGS).unwrap();
        }
    }
    p.run_until_idle();
    assert_eq!(p.a.ia.cno_trigger(cno), Ok(p.a.request));
    (p, cno)
}

/// Completions take half of the ring at the most, and the other half stays for events that have no
/// other place.
#[test]
fn completions_take_half_of_a_ring() {
    for (completions, room) in [(1, 63), (31, 33), (32, 32), (33, 32), (40, 32)] {
        let (mut p, _) = heaped(completions);
        let evd = p.a.request;
        let accepted = (0..99).take_while(|&n| p.a.ia.evd_post_se(evd, n).is_ok());
        assert_eq!(accepted.count(), room, "{completions} completions");
        assert_eq!(p.a.drain(evd).len() as u64, completions + room as u64);
    }
}

/// A ring that has taken all completions does not trigger until one more comes; completions beyond
/// its length count until they are taken.
#[test]
fn a_ring_that_has_taken_all_is_idle() {
    for (completions, idle) in [(1, true), (31, true), (32, true), (33, false)] {
        let (mut p, cno) = heaped(completions);
        p.run_until_idle();
        let found = p.a.ia.cno_trigger(cno);
        assert_eq!(found == NOBODY, idle, "{completions} completions");
        p.a.drain(p.a.request);
        p.run_until_idle();
        let _ = p.a.ia.cno_trigger(cno);
        p.a.post_recv(99).unwrap();
        p.b.send(99, FLAGS).unwrap();
        p.run_until_idle();
        assert_eq!(p.a.ia.cno_trigger(cno), Ok(p.a.request));
    }
}

/// A failure breaks the connection though nobody dequeues the completion that tells of it.
#[test]
fn a_failure_that_is_only_seen_breaks_the_connection() {
    let mut p = narrow(8);
    let (iov, mut far) = ([p.a.seg(0, 1)], p.b.far(0, 1));
    far.context ^= 0x55;
    p.a.ia.ep_post_rdma_write(p.a.ep, &iov, 1, &far, FLAGS).unwrap();
    p.a.ia.ep_get_status(p.a.ep).unwrap();
    p.run_until_idle();
    assert_eq!(p.a.next(p.a.conn), Some(Event::Broken(p.a.ep)));
    // The completion says more than the device's word that the queue pair is in error.
    let cause = p.a.ia.ep_cause(p.a.ep).unwrap().unwrap();
    assert!(cause.to_string().contains("refused access"), "{cause}");
    assert_eq!(p.a.dtos(p.a.request), [(1, DtoStatus::ErrRemoteAccess)]);
}

/// A consumer that asks for the status after each suppressed request, and never dequeues, always
/// has room in the queue.
#[test]
fn asking_for_the_status_is_enough_to_go_on_posting() {
    let mut p = narrow(8);
    for cookie in 0..100 {
        write(&mut p, cookie, CompletionFlags::SUPPRESS).unwrap();
        let mut asked = 0;
        while !p.a.ia.ep_get_status(p.a.ep).unwrap().request_idle {
            p.run_until_idle();
            asked += 1;
            assert!(asked < 10, "never idle");
        }
    }
    assert_eq!(p.a.drain(p.a.request), []);
    assert_eq!(p.a.ia.evd_dropped(p.a.request), Ok((0, 0)));
}

/// An entry in front of a silent completion keeps its position and its event.
#[test]
fn asking_for_the_status_takes_no_event() {
    let mut p = narrow(8);
    write(&mut p, 1, CompletionFlags::SUPPRESS).unwrap();
    p.a.ia.ep_get_status(p.a.ep).unwrap();
    write(&mut p, 2, FLAGS).unwrap();
    write(&mut p, 3, CompletionFlags::SUPPRESS).unwrap();
    for _ in 0..3 {
        p.a.ia.ep_get_status(p.a.ep).unwrap();
        p.run_until_idle();
    }
    p.a.ia.evd_post_se(p.a.request, 5).unwrap();
    p.a.ia.ep_get_status(p.a.ep).unwrap();
    assert_eq!(p.a.ia.evd_more(p.a.request), Ok(2));
    assert_eq!(p.a.next(p.a.request), Some(Event::Software(5)));
    assert_eq!(p.a.dtos(p.a.request), [(2, DtoStatus::Success)]);
}

/// Completions that a reset drops take no entry of the queue any more, however often an Endpoint is
/// reset and whichever Endpoints share the queue.
#[test]
fn completions_dropped_by_a_reset_take_no_room() {
    let mut p = narrow(4);
    for round in 0..9 {
        for cookie in 0..4 {
            write(&mut p, cookie, FLAGS).unwrap();
        }
        let (now, a, b) = (p.now, p.a.ep, p.b.ep);
        p.a.ia.ep_disconnect(now, a, CloseFlag::Abrupt).unwrap();
        p.run_until_idle();
        assert_eq!(p.a.drain(p.a.conn), [Event::Disconnected(a)], "round {round}");
        assert_eq!(p.b.drain(p.b.conn), [Event::Disconnected(b)]);
        p.a.ia.ep_reset(a).unwrap();
        p.b.ia.ep_reset(b).unwrap();
        p.connect();
    }
    assert_eq!(p.a.drain(p.a.ia.async_evd()), []);
    assert_eq!(p.a.drain(p.a.request), []);
}

/// Several connections of an Endpoint, each with an event that nobody dequeues and as many status
/// queries as there are suppressed requests: the requests that dat-core posts of its own never take
/// an entry that is not there.
#[test]
fn looks_at_suppressed_requests_never_overflow_the_queue() {
    for qlen in [4, 8] {
        let mut p = narrow(qlen);
        for round in 0..4 {
            write(&mut p, 0, FLAGS).unwrap();
            for cookie in 1..u64::from(qlen) {
                write(&mut p, cookie, CompletionFlags::SUPPRESS).unwrap();
                p.a.ia.ep_get_status(p.a.ep).unwrap();
            }
            let (now, a, b) = (p.now, p.a.ep, p.b.ep);
            p.a.ia.ep_disconnect(now, a, CloseFlag::Abrupt).unwrap();
            p.run_until_idle();
            assert_eq!(p.a.drain(p.a.conn), [Event::Disconnected(a)]);
            assert_eq!(p.b.drain(p.b.conn), [Event::Disconnected(b)]);
            p.a.ia.ep_reset(a).unwrap();
            p.b.ia.ep_reset(b).unwrap();
            p.connect();
            assert!(p.a.ia.evd_query(p.a.request).is_ok(), "round {round}");
        }
        let errors = p.a.ia.async_evd();
        assert_eq!(p.a.drain(errors), [], "queue of {qlen}");
        // And when all that has been taken, there is room as at first.
        assert_eq!(p.a.drain(p.a.request), []);
        write(&mut p, 1, CompletionFlags::SUPPRESS).unwrap();
        p.a.ia.ep_get_status(p.a.ep).unwrap();
        p.run_until_idle();
        assert!(p.a.ia.ep_get_status(p.a.ep).unwrap().request_idle);
    }
}
