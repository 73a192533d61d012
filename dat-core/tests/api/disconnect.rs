//! Ending connections: abrupt, graceful, crossing, broken; reset and free.
//!
//! Length: one test per kind of end of a connection, on one harness.

#![expect(clippy::unwrap_used, clippy::wildcard_enum_match_arm, reason = "a test")]

use crate::pair::*;
use dat_core::*;

use DtoStatus::{ErrFlushed, Success};

fn disconnect(p: &mut Pair, flag: CloseFlag) {
    p.a.ia.ep_disconnect(p.now, p.a.ep, flag).unwrap();
}

#[test]
fn an_abrupt_disconnect_flushes_in_order_and_tells_both_once() {
    let mut p = Pair::connected();
    for cookie in 0..4 {
        p.a.post_recv(100 + cookie).unwrap();
        p.b.post_recv(200 + cookie).unwrap();
    }
    p.fabric.hold(true);
    for cookie in 0..4 {
        p.a.send(cookie, FLAGS).unwrap();
    }
    disconnect(&mut p, CloseFlag::Abrupt);
    assert_eq!(p.a.state(), EpState::Disconnected);
    p.run_until_idle();
    p.fabric.hold(false);
    p.run_until_idle();
    assert_eq!(p.a.dtos(p.a.request), [0, 1, 2, 3].map(|c| (c, ErrFlushed)));
    assert_eq!(p.a.dtos(p.a.recv), [100, 101, 102, 103].map(|c| (c, ErrFlushed)));
    assert_eq!(p.b.dtos(p.b.recv), [200, 201, 202, 203].map(|c| (c, ErrFlushed)));
    assert_eq!(p.a.drain(p.a.conn), [Event::Disconnected(p.a.ep)]);
    assert_eq!(p.b.drain(p.b.conn), [Event::Disconnected(p.b.ep)]);
    let status = p.a.ia.ep_get_status(p.a.ep).unwrap();
    assert!(status.recv_idle && status.request_idle);
}

#[test]
fn idle_means_nothing_outstanding() {
    let mut p = Pair::connected();
    let idle = |side: &mut Side| {
        let status = side.ia.ep_get_status(side.ep).unwrap();
        (status.recv_idle, status.request_idle)
    };
    assert_eq!(idle(&mut p.a), (true, true));
    p.a.post_recv(1).unwrap();
    assert_eq!(idle(&mut p.a), (false, true));
    p.a.send(2, FLAGS).unwrap();
    assert_eq!(idle(&mut p.a), (false, false));
    p.b.post_recv(3).unwrap();
    assert_eq!(p.a.dtos(p.a.request), [(2, Success)]);
    assert_eq!(idle(&mut p.a), (false, true));
    assert_eq!(p.b.dtos(p.b.recv), [(3, Success)]);
    assert_eq!(idle(&mut p.b), (true, true));
}

#[test]
fn successes_come_before_flushes_before_the_end_on_a_merged_dispatcher() {
    let mut p = Pair::connected_as(Merge::All, None);
    p.b.post_recv(50).unwrap();
    p.b.post_recv(51).unwrap();
    p.a.post_recv(60).unwrap();
    p.a.send(1, FLAGS).unwrap();
    p.fabric.hold(true);
    p.a.send(2, FLAGS).unwrap();
    p.a.send(3, FLAGS).unwrap();
    disconnect(&mut p, CloseFlag::Abrupt);
    p.run_until_idle();
    let events = p.a.drain(p.a.conn);
    let dto = |event: &Event| match event {
        Event::Dto(dto) => Some((dto.cookie, dto.status)),
        _ => None,
    };
    assert_eq!(dto(&events[0]), Some((1, Success)));
    let mut flushed: Vec<_> = events[1..events.len() - 1].iter().filter_map(dto).collect();
    flushed.sort_by_key(|entry| entry.0);
    assert_eq!(flushed, [2, 3, 60].map(|c| (c, ErrFlushed)));
    assert_eq!(events.last(), Some(&Event::Disconnected(p.a.ep)));
    assert_eq!(events.len(), 5);
    let events = p.b.drain(p.b.conn);
    assert_eq!(
        events.iter().filter_map(dto).collect::<Vec<_>>(),
        [(50, Success), (51, ErrFlushed)]
    );
    assert_eq!(events.last(), Some(&Event::Disconnected(p.b.ep)));
}

#[test]
fn every_way_to_merge_keeps_the_order_of_each_stream() {
    for merge in Merge::ALL {
        let mut p = Pair::connected_as(merge, None);
        for cookie in 0..3 {
            p.b.post_recv(10 + cookie).unwrap();
            p.a.post_recv(20 + cookie).unwrap();
        }
        for cookie in 0..2 {
            p.a.send(cookie, FLAGS).unwrap();
        }
        p.fabric.hold(true);
        p.a.send(2, FLAGS).unwrap();
        disconnect(&mut p, CloseFlag::Abrupt);
        p.run_until_idle();
        let mut evds = vec![p.a.conn];
        for evd in [p.a.request, p.a.recv] {
            if !evds.contains(&evd) {
                evds.push(evd);
            }
        }
        let mut events = vec![];
        for &evd in &evds {
            let of_one = p.a.drain(evd);
            if evd == p.a.conn {
                assert_eq!(of_one.last(), Some(&Event::Disconnected(p.a.ep)), "{merge:?}");
            }
            events.extend(of_one);
        }
        let of = |recv: bool| {
            let keep = move |event: &Event| match event {
                Event::Dto(dto) if (dto.operation == DtoOperation::Receive) == recv => {
                    Some((dto.cookie, dto.status))
                }
                _ => None,
            };
            events.iter().filter_map(keep).collect::<Vec<_>>()
        };
        assert_eq!(of(false), [(0, Success), (1, Success), (2, ErrFlushed)], "{merge:?}");
        assert_eq!(of(true), [20, 21, 22].map(|c| (c, ErrFlushed)), "{merge:?}");
        assert_eq!(events.iter().filter(|event| event.is_terminal()).count(), 1, "{merge:?}");
    }
}

#[test]
fn a_graceful_disconnect_waits_for_the_requests_but_not_for_the_consumer() {
    let mut p = Pair::connected();
    p.a.send(1, FLAGS).unwrap();
    p.a.send(2, FLAGS).unwrap();
    p.a.post_recv(9).unwrap();
    disconnect(&mut p, CloseFlag::Graceful);
    p.run_until_idle();
    assert_eq!(p.a.state(), EpState::DisconnectPending);
    assert_eq!((p.a.drain(p.a.conn), p.b.drain(p.b.conn)), (vec![], vec![]));
    let pending = DatReturn::new(DatType::InvalidState, DatSubtype::InvalidStateEpDiscPending);
    assert_eq!(p.a.send(3, FLAGS), Err(pending));
    p.a.post_recv(10).unwrap();
    disconnect(&mut p, CloseFlag::Graceful);
    p.b.post_recv(5).unwrap();
    p.b.post_recv(6).unwrap();
    p.run_until_idle();
    assert_eq!(p.a.drain(p.a.conn), [Event::Disconnected(p.a.ep)]);
    assert_eq!(p.b.drain(p.b.conn), [Event::Disconnected(p.b.ep)]);
    assert_eq!(p.a.dtos(p.a.request), [(1, Success), (2, Success)]);
    assert_eq!(p.a.dtos(p.a.recv), [(9, ErrFlushed), (10, ErrFlushed)]);
    assert_eq!(p.b.dtos(p.b.recv), [(5, Success), (6, Success)]);
}

#[test]
fn a_graceful_disconnect_follows_requests_that_complete_in_silence() {
    let mut p = Pair::connected();
    for cookie in 0..3 {
        p.a.send(cookie, SUPPRESS).unwrap();
    }
    disconnect(&mut p, CloseFlag::Graceful);
    p.run_until_idle();
    assert_eq!(p.a.state(), EpState::DisconnectPending);
    for cookie in 0..3 {
        p.b.post_recv(cookie).unwrap();
    }
    p.run_until_idle();
    assert_eq!(p.a.drain(p.a.conn), [Event::Disconnected(p.a.ep)]);
    assert_eq!(p.a.drain(p.a.request), []);
    assert_eq!(p.b.dtos(p.b.recv), [0, 1, 2].map(|c| (c, Success)));
}

#[test]
fn a_graceful_disconnect_of_an_idle_endpoint_is_immediate() {
    let mut p = Pair::connected();
    disconnect(&mut p, CloseFlag::Graceful);
    assert_eq!(p.a.state(), EpState::Disconnected);
    p.run_until_idle();
    assert_eq!(p.b.drain(p.b.conn), [Event::Disconnected(p.b.ep)]);
}

#[test]
fn an_abrupt_disconnect_cuts_a_graceful_one_short() {
    let mut p = Pair::connected();
    p.a.send(1, FLAGS).unwrap();
    disconnect(&mut p, CloseFlag::Graceful);
    disconnect(&mut p, CloseFlag::Abrupt);
    p.run_until_idle();
    assert_eq!(p.a.drain(p.a.conn), [Event::Disconnected(p.a.ep)]);
    assert_eq!(p.a.dtos(p.a.request), [(1, ErrFlushed)]);
}

#[test]
fn a_request_that_fails_while_draining_ends_in_one_disconnected() {
    let mut p = Pair::connected();
    p.fabric.hold(true);
    let (seg, mut far) = (p.a.seg(0, 8), p.b.far(0, 8));
    far.context ^= 1;
    p.a.ia.ep_post_rdma_write(p.a.ep, &[seg], 1, &far, FLAGS).unwrap();
    p.a.send(2, FLAGS).unwrap();
    disconnect(&mut p, CloseFlag::Graceful);
    p.fabric.hold(false);
    p.run_until_idle();
    assert_eq!(p.a.drain(p.a.conn), [Event::Disconnected(p.a.ep)]);
    assert_eq!(p.a.dtos(p.a.request), [(1, DtoStatus::ErrRemoteAccess), (2, ErrFlushed)]);
}

#[test]
fn crossing_disconnects_give_each_side_one_event() {
    for flag in [CloseFlag::Abrupt, CloseFlag::Graceful] {
        let mut p = Pair::connected();
        p.a.post_recv(1).unwrap();
        p.a.ia.ep_disconnect(p.now, p.a.ep, CloseFlag::Abrupt).unwrap();
        p.b.ia.ep_disconnect(p.now, p.b.ep, flag).unwrap();
        p.run_until_idle();
        assert_eq!(p.a.drain(p.a.conn), [Event::Disconnected(p.a.ep)]);
        assert_eq!(p.b.drain(p.b.conn), [Event::Disconnected(p.b.ep)]);
        assert_eq!(p.a.dtos(p.a.recv), [(1, ErrFlushed)]);
    }
}

#[test]
fn the_peer_disconnecting_during_a_drain_ends_it() {
    let mut p = Pair::connected();
    p.a.send(1, FLAGS).unwrap();
    disconnect(&mut p, CloseFlag::Graceful);
    p.b.ia.ep_disconnect(p.now, p.b.ep, CloseFlag::Abrupt).unwrap();
    p.run_until_idle();
    assert_eq!(p.a.drain(p.a.conn), [Event::Disconnected(p.a.ep)]);
    assert_eq!(p.b.drain(p.b.conn), [Event::Disconnected(p.b.ep)]);
    assert_eq!(p.a.dtos(p.a.request).len(), 1);
}

#[test]
fn disconnecting_twice_is_no_event() {
    let mut p = Pair::connected();
    disconnect(&mut p, CloseFlag::Abrupt);
    p.run_until_idle();
    p.a.drain(p.a.conn);
    for flag in [CloseFlag::Abrupt, CloseFlag::Graceful] {
        disconnect(&mut p, flag);
        p.run_until_idle();
        assert_eq!(p.a.drain(p.a.conn), []);
    }
}

#[test]
fn a_failed_request_breaks_the_connection_after_its_own_event() {
    for merge in Merge::ALL {
        let mut p = Pair::connected_as(merge, None);
        p.b.post_recv(70).unwrap();
        p.fabric.hold(true);
        let (seg, mut far) = (p.a.seg(0, 8), p.b.far(0, 8));
        far.context ^= 1;
        p.a.ia.ep_post_rdma_write(p.a.ep, &[seg], 1, &far, SUPPRESS).unwrap();
        p.a.send(2, SUPPRESS).unwrap();
        p.fabric.hold(false);
        let mut dtos = p.a.dtos(p.a.request);
        p.run_until_idle();
        dtos.extend(p.a.dtos(p.a.request));
        assert_eq!(dtos, [(1, DtoStatus::ErrRemoteAccess), (2, ErrFlushed)], "{merge:?}");
        assert_eq!(p.a.state(), EpState::Disconnected);
        if p.a.request != p.a.conn {
            assert_eq!(p.a.drain(p.a.conn), [Event::Broken(p.a.ep)], "{merge:?}");
        }
        assert!(p.a.ia.ep_cause(p.a.ep).unwrap().is_some());
        let b = p.b.drain(p.b.conn);
        assert!(matches!(b.last(), Some(Event::Broken(_) | Event::Disconnected(_))), "{b:?}");
    }
}

#[test]
fn a_message_too_long_for_its_receive_breaks_both_sides() {
    let mut p = Pair::connected();
    let seg = p.b.seg(0, 4);
    p.b.ia.ep_post_recv(p.b.ep, &[seg], 1, FLAGS).unwrap();
    p.a.send(2, FLAGS).unwrap();
    p.run_until_idle();
    assert_eq!(p.b.dtos(p.b.recv), [(1, DtoStatus::ErrLocalLength)]);
    assert_eq!(p.a.dtos(p.a.request), [(2, DtoStatus::ErrRemoteResponder)]);
    p.run_until_idle();
    assert_eq!(p.b.drain(p.b.conn), [Event::Broken(p.b.ep)]);
    assert_eq!(p.a.drain(p.a.conn), [Event::Broken(p.a.ep)]);
}

#[test]
fn posts_in_disconnected_are_accepted_and_flushed_in_order() {
    let mut p = Pair::connected();
    disconnect(&mut p, CloseFlag::Abrupt);
    let (seg, far) = (p.a.seg(0, 8), p.b.far(0, 8));
    p.a.send(1, FLAGS).unwrap();
    p.a.ia.ep_post_rdma_write(p.a.ep, &[seg], 2, &far, SUPPRESS).unwrap();
    p.a.ia.ep_post_rdma_read(p.a.ep, &[seg], 3, &far, FLAGS).unwrap();
    p.a.post_recv(4).unwrap();
    p.a.post_recv(5).unwrap();
    assert_eq!(p.a.dtos(p.a.request), [1, 2, 3].map(|c| (c, ErrFlushed)));
    assert_eq!(p.a.dtos(p.a.recv), [4, 5].map(|c| (c, ErrFlushed)));
    for round in 0..100 {
        p.a.send(round, FLAGS).unwrap();
        assert_eq!(p.a.dtos(p.a.request), [(round, ErrFlushed)]);
    }
    for cookie in 0..32 {
        p.a.send(cookie, FLAGS).unwrap();
    }
    assert_eq!(p.a.send(99, FLAGS).unwrap_err().ty(), DatType::InsufficientResources);
    assert_eq!(p.a.dtos(p.a.request).len(), 32);
}

#[test]
fn markers_tell_when_everything_is_back() {
    let mut p = Pair::connected();
    for cookie in 0..5 {
        p.a.post_recv(cookie).unwrap();
    }
    disconnect(&mut p, CloseFlag::Abrupt);
    p.a.post_recv(1000).unwrap();
    p.a.send(1001, FLAGS).unwrap();
    let recv = p.a.dtos(p.a.recv);
    assert_eq!(recv, [0, 1, 2, 3, 4, 1000].map(|c| (c, ErrFlushed)));
    assert_eq!(p.a.dtos(p.a.request), [(1001, ErrFlushed)]);
    p.a.ia.ep_reset(p.a.ep).unwrap();
    assert_eq!(p.a.drain(p.a.recv), []);
}

#[test]
fn reset_makes_an_endpoint_that_connects_again() {
    let mut p = Pair::connected();
    for round in 0..20 {
        // Every other time with completions that nobody dequeued.
        p.b.post_recv(round).unwrap();
        p.a.post_recv(round).unwrap();
        p.a.send(round, FLAGS).unwrap();
        if round % 2 == 0 {
            assert_eq!(p.a.dtos(p.a.request), [(round, Success)]);
        }
        disconnect(&mut p, if round % 3 == 0 { CloseFlag::Graceful } else { CloseFlag::Abrupt });
        p.run_until_idle();
        for side in [&mut p.a, &mut p.b] {
            assert_eq!(side.drain(side.conn), [Event::Disconnected(side.ep)]);
            if round % 2 == 0 {
                side.drain(side.recv);
                side.drain(side.request);
            }
            side.ia.ep_reset(side.ep).unwrap();
            assert_eq!(side.state(), EpState::Unconnected);
            assert_eq!(side.ia.ep_private_data(side.ep).unwrap(), b"");
            assert_eq!(side.drain(side.recv), [], "round {round}");
            assert_eq!(side.drain(side.request), []);
            let status = side.ia.ep_get_status(side.ep).unwrap();
            assert!(status.recv_idle && status.request_idle);
        }
        p.connect();
    }
}

#[test]
fn a_reset_of_an_unconnected_endpoint_keeps_its_receives() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    p.b.post_recv(8).unwrap();
    p.b.ia.ep_reset(p.b.ep).unwrap();
    p.connect();
    p.a.send(1, FLAGS).unwrap();
    assert_eq!(p.b.dtos(p.b.recv), [(8, Success)]);
}

#[test]
fn the_device_refusing_a_reset_leaves_the_endpoint_disconnected() {
    for undelivered in [false, true] {
        let mut p = Pair::connected();
        if undelivered {
            p.a.post_recv(1).unwrap();
        }
        disconnect(&mut p, CloseFlag::Abrupt);
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
fn freeing_a_connected_endpoint_disconnects_the_peer() {
    let mut p = Pair::connected();
    p.a.post_recv(1).unwrap();
    p.a.send(2, FLAGS).unwrap();
    p.a.ia.ep_free(p.now, p.a.ep).unwrap();
    p.run_until_idle();
    assert_eq!(p.b.drain(p.b.conn), [Event::Disconnected(p.b.ep)]);
    assert_eq!(p.a.drain(p.a.conn), []);
    assert_eq!(p.a.drain(p.a.recv), []);
    assert_eq!(p.a.ia.ep_query(p.a.ep).unwrap_err().ret().subtype(), DatSubtype::InvalidHandleEp);
    assert_eq!(p.a.ia.ep_free(p.now, p.a.ep).unwrap_err().ret().ty(), DatType::InvalidHandle);
}

#[test]
fn freeing_while_connecting_aborts() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    p.ask(b"").unwrap();
    p.run_until_idle();
    p.a.ia.ep_free(p.now, p.a.ep).unwrap();
    p.run_until_idle();
    let cr = p.request().unwrap();
    p.b.ia.cr_accept(p.now, cr, Some(p.b.ep), b"").unwrap();
    p.run_until_idle();
    assert_eq!(p.b.drain(p.b.conn), [Event::AcceptCompletionError(p.b.ep)]);
}

#[test]
fn a_slot_reused_after_free_gets_no_flush_of_its_predecessor() {
    let mut p = Pair::connected();
    p.a.post_recv(1).unwrap();
    p.a.send(2, FLAGS).unwrap();
    disconnect(&mut p, CloseFlag::Abrupt);
    p.a.ia.ep_free(p.now, p.a.ep).unwrap();
    let (pz, r, q, c) = (p.a.pz, p.a.recv, p.a.request, p.a.conn);
    let ep = p.a.ia.ep_create(Some(pz), Some(r), Some(q), Some(c), None).unwrap();
    assert_ne!(ep, p.a.ep);
    p.a.ep = ep;
    p.a.post_recv(3).unwrap();
    assert_eq!((p.a.drain(r), p.a.drain(q)), (vec![], vec![]));
}

#[test]
fn a_lost_device_breaks_everything_once() {
    let mut p = Pair::connected();
    p.a.post_recv(1).unwrap();
    let fault =
        dat_core::fault!(provider::NO_MORE_WORDS, Gone, "health", "the device reads all ones");
    for _ in 0..2 {
        p.fabric.raise(0, provider::Notice::Catastrophic(fault));
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
    let fault =
        dat_core::fault!(provider::NO_MORE_WORDS, Timeout, "command", "the device does not answer");
    p.fabric.raise(0, provider::Notice::Catastrophic(fault));
    p.a.ia.advance(p.now);
    let evd = p.a.ia.async_evd();
    let events = [AsyncEvent::TimedOut, AsyncEvent::IaCatastrophic].map(Event::Async);
    assert_eq!(p.a.drain(evd), events);
    assert_eq!(p.a.drain(p.a.conn), [Event::Broken(p.a.ep)]);
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

#[test]
fn a_second_graceful_disconnect_does_not_start_the_patience_anew() {
    let mut p = Pair::connected();
    p.a.send(1, FLAGS).unwrap();
    disconnect(&mut p, CloseFlag::Graceful);
    p.now = p.now + core::time::Duration::from_secs(20);
    p.run_until_idle();
    disconnect(&mut p, CloseFlag::Graceful);
    assert_eq!(p.a.state(), EpState::DisconnectPending);
    p.now = p.now + core::time::Duration::from_secs(11);
    p.run_until_idle();
    assert_eq!(p.a.state(), EpState::Disconnected);
    assert_eq!(p.a.drain(p.a.conn), [Event::Disconnected(p.a.ep)]);
}

#[test]
fn a_drain_ends_when_its_patience_does() {
    let mut p = Pair::connected();
    for _ in 0..2 {
        p.a.send(1, FLAGS).unwrap();
        disconnect(&mut p, CloseFlag::Graceful);
        let soon = p.now + core::time::Duration::from_millis(1);
        // The completions are looked for until then: nobody announces them.
        let next = p.a.ia.advance(p.now).deadline;
        assert!(next.is_some_and(|at| at <= soon), "{next:?}");
        assert_eq!(p.a.state(), EpState::DisconnectPending);
        p.now = p.now + core::time::Duration::from_secs(30);
        p.run_until_idle();
        assert_eq!(p.a.drain(p.a.conn), [Event::Disconnected(p.a.ep)]);
        assert_eq!(p.b.drain(p.b.conn), [Event::Disconnected(p.b.ep)]);
        for side in [&mut p.a, &mut p.b] {
            side.ia.ep_reset(side.ep).unwrap();
        }
        p.connect();
    }
}
