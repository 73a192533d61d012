//! Handles, references, limits, service points, software and asynchronous events, RMRs, and a
//! device that lies.
//!
//! Length: one test per rule of the objects, on one harness.

#![expect(clippy::unwrap_used, reason = "a test")]

use crate::pair::*;
use dat_core::provider::{Completion, Cq, Direction, Extra, NO_MORE_WORDS, Notice, Region, Status};
use dat_core::*;

use DatSubtype as S;
use DatType as T;

fn code<X: core::fmt::Debug>(result: Result<X, Error>) -> (DatType, DatSubtype) {
    let ret = result.unwrap_err().ret();
    assert_eq!(ret.raw() >> 30, 2, "class bit");
    (ret.ty(), ret.subtype())
}

#[test]
fn objects_in_use_are_not_freed_and_unused_ones_are() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    let psp = p.a.ia.psp_create(1, p.a.cr, PspFlag::Consumer).unwrap();
    let rmr = p.a.ia.rmr_create(p.a.pz).unwrap();
    let used = (T::InvalidState, S::InvalidStateEvdInUse);
    for evd in [p.a.recv, p.a.request, p.a.conn, p.a.cr, p.a.ia.async_evd()] {
        assert_eq!(code(p.a.ia.evd_free(evd)), used);
    }
    assert_eq!(
        code(p.a.ia.close(p.now, CloseFlag::Graceful)),
        (T::InvalidState, S::InvalidStateIaInUse)
    );
    let pz_used = (T::InvalidState, S::InvalidStatePzInUse);
    p.a.ia.ep_free(p.now, p.a.ep).unwrap();
    assert_eq!(code(p.a.ia.pz_free(p.a.pz)), pz_used);
    p.a.ia.lmr_free(p.a.lmr.lmr).unwrap();
    assert_eq!(code(p.a.ia.pz_free(p.a.pz)), pz_used);
    p.a.ia.rmr_free(rmr).unwrap();
    p.a.ia.pz_free(p.a.pz).unwrap();
    p.a.ia.psp_free(psp).unwrap();
    for evd in [p.a.recv, p.a.request, p.a.conn, p.a.cr] {
        p.a.ia.evd_free(evd).unwrap();
    }
    p.a.ia.close(p.now, CloseFlag::Graceful).unwrap();
    assert_eq!(p.fabric.alive(0), (0, 0, 0, 0));
}

#[test]
fn an_abrupt_close_frees_everything_and_tells_the_peer() {
    let mut p = Pair::connected();
    p.a.post_recv(1).unwrap();
    p.a.ia.rmr_create(p.a.pz).unwrap();
    p.a.ia.close(p.now, CloseFlag::Abrupt).unwrap();
    assert_eq!(p.fabric.alive(0), (0, 0, 0, 0));
    p.b.ia.advance(p.now);
    assert_eq!(p.b.drain(p.b.conn), [Event::Disconnected(p.b.ep)]);
}

#[test]
fn stale_handles_stay_stale_when_their_slot_is_used_again() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    let ia = &mut p.a.ia;
    let pz = ia.pz_create().unwrap();
    ia.pz_free(pz).unwrap();
    let again = ia.pz_create().unwrap();
    assert_ne!(pz, again);
    let no_pz = (T::InvalidHandle, S::InvalidHandlePz);
    assert_eq!(code(ia.pz_free(pz)), no_pz);
    assert_eq!(code(ia.pz_query(pz)), no_pz);
    assert_eq!(code(ia.rmr_create(pz)), no_pz);
    assert_eq!(code(ia.lmr_create(pz, p.a.lmr.region, MemPriv::ALL)), no_pz);
    assert_eq!(code(ia.ep_create(Some(pz), None, None, None, None)), no_pz);
    ia.lmr_free(p.a.lmr.lmr).unwrap();
    assert_eq!(code(ia.lmr_free(p.a.lmr.lmr)), (T::InvalidHandle, S::InvalidHandleLmr));
    let rmr = ia.rmr_create(p.a.pz).unwrap();
    ia.rmr_free(rmr).unwrap();
    assert_eq!(code(ia.rmr_free(rmr)), (T::InvalidHandle, S::InvalidHandleRmr));
    let evd = ia.evd_create(4, EvdFlags::SOFTWARE).unwrap();
    ia.evd_free(evd).unwrap();
    assert_eq!(code(ia.evd_free(evd)).0, T::InvalidHandle);
    assert_eq!(code(ia.evd_post_se(evd, 1)).0, T::InvalidHandle);
    assert_eq!(ia.evd_dequeue(evd).unwrap_err().ty(), T::InvalidHandle);
    assert_eq!(
        code(ia.psp_create(3, evd, PspFlag::Consumer)),
        (T::InvalidHandle, S::InvalidHandleEvdCr)
    );
}

#[test]
fn handles_of_another_adapter_are_refused() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    assert_eq!(code(p.b.ia.ep_query(p.a.ep)), (T::InvalidHandle, S::InvalidHandleEp));
    assert_eq!(code(p.b.ia.lmr_query(p.a.lmr.lmr)), (T::InvalidHandle, S::InvalidHandleLmr));
    assert_eq!(code(p.b.ia.evd_query(p.a.recv)).0, T::InvalidHandle);
    assert_eq!(code(p.b.ia.pz_query(p.a.pz)).0, T::InvalidHandle);
    assert_eq!(Ep::from_raw(p.a.ep.raw()), p.a.ep);
    let noise = Ep::from_raw(0xdead_beef_ffff_ffff);
    assert_eq!(code(p.a.ia.ep_get_status(noise)), (T::InvalidHandle, S::InvalidHandleEp));
}

#[test]
fn streams_need_their_flags() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    let (pz, d, c) = (Some(p.a.pz), Some(p.a.recv), Some(p.a.conn));
    let ia = &mut p.a.ia;
    let bad = |subtype| (T::InvalidHandle, subtype);
    assert_eq!(code(ia.ep_create(pz, c, d, c, None)), bad(S::InvalidHandleEvdRecv));
    assert_eq!(code(ia.ep_create(pz, d, c, c, None)), bad(S::InvalidHandleEvdRequest));
    assert_eq!(code(ia.ep_create(pz, d, d, d, None)), bad(S::InvalidHandleEvdConn));
    assert_eq!(code(ia.psp_create(8, p.a.recv, PspFlag::Consumer)), bad(S::InvalidHandleEvdCr));
}

#[test]
fn attributes_beyond_the_adapter_or_against_the_streams() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    let good = p.a.ia.ep_attr_default();
    let (pz, d, c) = (Some(p.a.pz), Some(p.a.recv), Some(p.a.conn));
    let changes: [fn(&mut EpAttr); 10] = [
        |attr| attr.max_recv_dtos = 33,
        |attr| attr.max_request_dtos = 33,
        |attr| attr.max_recv_dtos = 0,
        |attr| attr.max_request_dtos = 0,
        |attr| attr.max_recv_iov = 0,
        |attr| attr.max_request_iov = 5,
        |attr| attr.max_rdma_read_out = 17,
        |attr| attr.max_message_size = u32::MAX,
        |attr| attr.recv_completion_flags = CompletionFlags::SUPPRESS,
        |attr| attr.request_completion_flags = CompletionFlags::DEFER,
    ];
    for change in changes {
        let mut attr = good;
        change(&mut attr);
        let result = p.a.ia.ep_create(pz, d, d, c, Some(&attr));
        assert_eq!(code(result), (T::InvalidParameter, S::InvalidArg6), "{attr:?}");
    }
    let mut attr = good;
    attr.qos = Qos::LowLatency;
    assert_eq!(code(p.a.ia.ep_create(pz, d, d, c, Some(&attr))).0, T::ModelNotSupported);
    assert_eq!(code(p.a.ia.ep_create(pz, None, d, c, Some(&good))).0, T::InvalidParameter);
}

#[test]
fn every_table_fills_up_and_gives_back() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    let ia = &mut p.a.ia;
    let full = |result: Result<(), Error>| assert_eq!(code(result).0, T::InsufficientResources);
    for _ in 0..3 {
        let pzs: Vec<_> = core::iter::from_fn(|| ia.pz_create().ok()).collect();
        assert_eq!(pzs.len(), 7);
        full(ia.pz_create().map(drop));
        pzs.into_iter().for_each(|pz| ia.pz_free(pz).unwrap());
        let evds: Vec<_> = core::iter::from_fn(|| ia.evd_create(1, EvdFlags::DTO).ok()).collect();
        assert_eq!(evds.len(), 3);
        full(ia.evd_create(1, EvdFlags::DTO).map(drop));
        evds.into_iter().for_each(|evd| ia.evd_free(evd).unwrap());
        let rmrs: Vec<_> = core::iter::from_fn(|| ia.rmr_create(p.a.pz).ok()).collect();
        assert_eq!(rmrs.len(), 8);
        full(ia.rmr_create(p.a.pz).map(drop));
        rmrs.into_iter().for_each(|rmr| ia.rmr_free(rmr).unwrap());
        let (pz, d) = (Some(p.a.pz), Some(p.a.recv));
        let eps: Vec<_> = core::iter::from_fn(|| ia.ep_create(pz, d, d, None, None).ok()).collect();
        assert_eq!(eps.len(), 7);
        full(ia.ep_create(pz, d, d, None, None).map(drop));
        eps.into_iter().for_each(|ep| ia.ep_free(p.now, ep).unwrap());
    }
    assert_eq!(p.fabric.alive(0), (1, 1, 4 - 2, 1));
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
fn memory_that_cannot_be_registered() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    let (pz, at) = (p.a.pz, p.a.lmr.region.addr);
    let ia = &mut p.a.ia;
    let region = |addr, len| Region { addr, len };
    assert_eq!(code(ia.lmr_create(pz, region(at, 0), MemPriv::ALL)).0, T::LengthError);
    assert_eq!(code(ia.lmr_create(pz, region(u64::MAX, 2), MemPriv::ALL)).0, T::InvalidParameter);
    assert_eq!(code(ia.lmr_create(pz, region(16, 16), MemPriv::ALL)).0, T::InvalidParameter);
    let odd = MemPriv::from_bits_retain(0x80);
    assert_eq!(code(ia.lmr_create(pz, region(at, 8), odd)).0, T::InvalidParameter);
    let remote = MemPriv::REMOTE_WRITE;
    assert_eq!(code(ia.lmr_create(pz, region(at, 8), remote)).0, T::PrivilegesViolation);
    let local = ia.lmr_create(pz, region(at, 8), MemPriv::LOCAL_READ).unwrap();
    assert_eq!(local.rmr_context, 0);
    assert_eq!(ia.lmr_query(local.lmr).unwrap(), local);
}

#[test]
fn software_events_fill_a_dispatcher_without_overflow() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    let evd = p.a.ia.evd_create(3, EvdFlags::SOFTWARE).unwrap();
    for round in 0..5 {
        for i in 0..3 {
            p.a.ia.evd_post_se(evd, round * 10 + i).unwrap();
        }
        assert_eq!(code(p.a.ia.evd_post_se(evd, 9)), (T::QueueFull, S::None));
        let expected = [0, 1, 2].map(|i| Event::Software(round * 10 + i));
        assert_eq!(p.a.drain(evd), expected);
    }
    let asynchronous = p.a.ia.async_evd();
    assert_eq!(p.a.drain(asynchronous), []);
    assert_eq!(code(p.a.ia.evd_post_se(p.a.conn, 1)).0, T::InvalidParameter);
}

#[test]
fn dispatchers_with_impossible_wishes() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    let ia = &mut p.a.ia;
    assert_eq!(code(ia.evd_create(0, EvdFlags::DTO)).0, T::InvalidParameter);
    assert_eq!(code(ia.evd_create(4, EvdFlags::empty())).0, T::InvalidParameter);
    let odd = EvdFlags::from_bits_retain(0x1000);
    assert_eq!(code(ia.evd_create(4, odd)).0, T::InvalidParameter);
    assert_eq!(code(ia.evd_create(65, EvdFlags::CR)).0, T::InsufficientResources);
    assert_eq!(code(ia.evd_create(100_000, EvdFlags::DTO)).0, T::InsufficientResources);
    let evd = ia.evd_create(100, EvdFlags::DEFAULT).unwrap();
    let param = ia.evd_query(evd).unwrap();
    assert_eq!((param.qlen, param.flags), (100, EvdFlags::DEFAULT));
}

#[test]
fn the_end_of_an_attempt_to_connect_always_finds_room() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    let (pz, d) = (Some(p.a.pz), Some(p.a.recv));
    let conn = p.a.ia.evd_create(1, EvdFlags::CONNECTION).unwrap();
    let wait = core::time::Duration::from_secs(1);
    for _ in 0..2 {
        let ep = p.a.ia.ep_create(pz, d, d, Some(conn), None).unwrap();
        p.a.ia.ep_connect(p.now, ep, addr(9), 1, wait, b"", Qos::BestEffort).unwrap();
    }
    p.run_until_idle();
    assert_eq!(p.a.drain(conn).len(), 2);
    let asynchronous = p.a.ia.async_evd();
    assert_eq!(p.a.drain(asynchronous), []);
}

#[test]
fn a_failed_completion_queue_and_a_broken_idle_endpoint_are_asynchronous_events() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    let evd = p.a.ia.evd_create(4, EvdFlags::DTO).unwrap();
    p.run_until_idle();
    p.fabric.raise(0, Notice::CqError(Cq(2)));
    let qp = p.a.ia.ep_query(p.a.ep).unwrap().qp.unwrap();
    let fault = dat_core::fault!(NO_MORE_WORDS, BadState, "event", "local fault");
    p.fabric.raise(0, Notice::QpError(qp, fault));
    p.run_until_idle();
    let asynchronous = p.a.ia.async_evd();
    let events = p.a.drain(asynchronous);
    let overflow = Event::Async(AsyncEvent::EvdOverflow(evd));
    assert_eq!(events, [overflow, Event::Async(AsyncEvent::EpBroken(p.a.ep))]);
}

#[test]
fn service_points_and_their_qualifiers() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    let ia = &mut p.a.ia;
    let psp = ia.psp_create(65535, p.a.cr, PspFlag::Consumer).unwrap();
    let c = PspFlag::Consumer;
    assert_eq!(code(ia.psp_create(65535, p.a.cr, c)).0, T::ConnQualInUse);
    assert_eq!(code(ia.psp_create(0, p.a.cr, c)).0, T::InvalidParameter);
    assert_eq!(code(ia.psp_create(1 << 32, p.a.cr, c)).0, T::InvalidParameter);
    let (any, qual) = ia.psp_create_any(p.a.cr, c).unwrap();
    let param = ia.psp_query(any).unwrap();
    assert_eq!((param.conn_qual, param.evd, param.flag), (qual, p.a.cr, c));
    assert!((1..=65535).contains(&qual));
    ia.psp_free(psp).unwrap();
    assert_eq!(code(ia.psp_free(psp)), (T::InvalidHandle, S::InvalidHandlePsp));
    ia.psp_create(65535, p.a.cr, c).unwrap();
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
fn the_query_is_filled_in() {
    let p = Pair::unconnected(Merge::Apart, None);
    let (ia, provider) = p.a.ia.query();
    assert_eq!((ia.adapter_name, ia.max_eps, ia.max_dto_per_ep, ia.max_evds), ("loop", 8, 32, 8));
    assert_eq!((ia.max_rmrs, ia.max_lmrs, ia.max_pzs), (8, 8, 8));
    assert_eq!(ia.ia_address, addr(0));
    assert_eq!(provider.max_private_data_size, 56);
    assert!(provider.evd_stream_merging_supported.iter().flatten().all(|&merged| merged));
    assert_eq!(256 % provider.optimal_buffer_alignment, 0);
}

/// `b` opens a window at 64..80 of its memory.
fn bound(p: &mut Pair) -> (Rmr, RmrTriplet) {
    let rmr = p.b.ia.rmr_create(p.b.pz).unwrap();
    let lmr = p.b.seg(64, 16);
    let context = p.b.ia.rmr_bind(rmr, &lmr, MemPriv::REMOTE, p.b.ep, 5, FLAGS).unwrap();
    (rmr, RmrTriplet { addr: lmr.addr, len: 16, context })
}

#[test]
fn a_bind_opens_its_range_under_a_new_context_each_time() {
    let mut p = Pair::connected();
    let (rmr, far) = bound(&mut p);
    let status = DtoStatus::Success;
    assert_eq!(p.b.drain(p.b.request), [Event::RmrBind { rmr, cookie: 5, status }]);
    let iov = [p.a.seg(0, 16)];
    p.a.ia.ep_post_rdma_write(p.a.ep, &iov, 1, &far, FLAGS).unwrap();
    assert_eq!(p.a.dtos(p.a.request), [(1, status)]);
    let param = p.b.ia.rmr_query(rmr).unwrap();
    assert_eq!((param.rmr_context, param.bound), (far.context, Some(p.b.seg(64, 16))));
    assert_eq!(code(p.b.ia.lmr_free(p.b.lmr.lmr)), (T::InvalidState, S::InvalidStateLmrInUse));
    let lmr = p.b.seg(64, 16);
    let again = p.b.ia.rmr_bind(rmr, &lmr, MemPriv::REMOTE, p.b.ep, 6, SUPPRESS).unwrap();
    assert_ne!(again, far.context);
    p.a.ia.ep_post_rdma_write(p.a.ep, &iov, 2, &far, FLAGS).unwrap();
    assert_eq!(p.a.dtos(p.a.request), [(2, DtoStatus::ErrRemoteAccess)]);
}

#[test]
fn freeing_a_bound_rmr_closes_it_and_lets_its_lmr_go() {
    let mut p = Pair::connected();
    let (rmr, far) = bound(&mut p);
    p.b.drain(p.b.request);
    p.b.ia.rmr_free(rmr).unwrap();
    p.b.ia.lmr_free(p.b.lmr.lmr).unwrap();
    let iov = [p.a.seg(0, 16)];
    p.a.ia.ep_post_rdma_write(p.a.ep, &iov, 1, &far, FLAGS).unwrap();
    assert_eq!(p.a.dtos(p.a.request), [(1, DtoStatus::ErrRemoteAccess)]);
}

#[test]
fn an_unbind_completes_and_releases_the_lmr() {
    let mut p = Pair::connected();
    let (rmr, _) = bound(&mut p);
    let nothing = LmrTriplet::default();
    p.b.ia.rmr_bind(rmr, &nothing, MemPriv::empty(), p.b.ep, 6, FLAGS).unwrap();
    assert_eq!(p.b.drain(p.b.request).len(), 2);
    assert_eq!(p.b.ia.rmr_query(rmr).unwrap().bound, None);
    p.b.ia.lmr_free(p.b.lmr.lmr).unwrap();
}

#[test]
fn an_rmr_freed_before_its_bind_is_dequeued_is_gone_at_once() {
    for dequeue in [true, false] {
        let mut p = Pair::connected();
        let keys = p.fabric.alive(1).1;
        let (rmr, _) = bound(&mut p);
        p.b.ia.rmr_free(rmr).unwrap();
        let stale = (T::InvalidHandle, S::InvalidHandleRmr);
        assert_eq!(code(p.b.ia.rmr_query(rmr)), stale);
        assert_eq!(code(p.b.ia.rmr_free(rmr)), stale);
        assert_eq!(p.fabric.alive(1).1, keys);
        p.b.ia.lmr_free(p.b.lmr.lmr).unwrap();
        if dequeue {
            let [Event::RmrBind { rmr: of, status, .. }] = p.b.drain(p.b.request)[..] else {
                panic!("the completion of the bind is the consumer's");
            };
            assert_eq!((of, status), (rmr, DtoStatus::Success));
        }
        p.run_until_idle();
        assert_eq!(p.b.state(), EpState::Connected);
        p.b.ia.ep_disconnect(p.now, p.b.ep, CloseFlag::Abrupt).unwrap();
        p.b.ia.ep_free(p.now, p.b.ep).unwrap();
        p.b.ia.pz_free(p.b.pz).unwrap();
    }
}

#[test]
fn an_rmr_freed_while_its_bind_cannot_be_carried_out_breaks_the_connection() {
    let mut p = Pair::connected();
    let keys = p.fabric.alive(1).1;
    p.fabric.hold(true);
    let (rmr, _) = bound(&mut p);
    p.b.ia.rmr_free(rmr).unwrap();
    assert_eq!(p.fabric.alive(1).1, keys);
    p.fabric.hold(false);
    p.run_until_idle();
    let [Event::RmrBind { rmr: of, status, .. }] = p.b.drain(p.b.request)[..] else {
        panic!("the completion of the bind is the consumer's");
    };
    assert_eq!((of, status), (rmr, DtoStatus::ErrFlushed));
    assert_eq!(p.b.drain(p.b.conn), [Event::Broken(p.b.ep)]);
    p.b.ia.lmr_free(p.b.lmr.lmr).unwrap();
}

#[test]
fn an_rmr_freed_while_its_bind_is_deferred_waits_for_the_bind() {
    let mut p = Pair::connected();
    let rmr = p.b.ia.rmr_create(p.b.pz).unwrap();
    let lmr = p.b.seg(0, 16);
    p.b.ia.rmr_bind(rmr, &lmr, MemPriv::REMOTE, p.b.ep, 5, CompletionFlags::DEFER).unwrap();
    p.b.ia.rmr_free(rmr).unwrap();
    let status = DtoStatus::Success;
    assert_eq!(p.b.drain(p.b.request), [Event::RmrBind { rmr, cookie: 5, status }]);
    assert_eq!(p.b.state(), EpState::Connected);
}

/// The device refuses to give a window up as long as its key may be in use.
#[test]
fn a_window_that_the_device_keeps_at_first_costs_the_connection() {
    let mut p = Pair::connected();
    let (rmr, _) = bound(&mut p);
    let other = p.b.ia.rmr_create(p.b.pz).unwrap();
    p.b.drain(p.b.request);
    let keys = p.fabric.alive(1).1;
    p.fabric.fail_nth(Some(0));
    p.b.ia.rmr_free(rmr).unwrap();
    assert_eq!(p.fabric.alive(1).1, keys - 1);
    p.run_until_idle();
    assert_eq!(p.b.drain(p.b.conn), [Event::Broken(p.b.ep)]);
    // One that is bound by nobody breaks nobody.
    p.fabric.fail_nth(Some(0));
    p.b.ia.rmr_free(other).unwrap();
    assert_eq!(p.fabric.alive(1).1, keys - 2);
}

#[test]
fn a_window_that_the_device_keeps_for_good_stays_an_rmr() {
    let mut p = Pair::connected();
    let (rmr, far) = bound(&mut p);
    p.b.drain(p.b.request);
    p.fabric.keep_windows(true);
    let refused = p.b.ia.rmr_free(rmr).unwrap_err();
    assert_eq!(refused.ret().ty(), T::InsufficientResources);
    assert!(refused.fault().is_some());
    p.run_until_idle();
    assert_eq!(p.b.drain(p.b.conn), [Event::Broken(p.b.ep)]);
    assert_eq!(p.b.ia.rmr_query(rmr).unwrap().rmr_context, far.context);
    p.fabric.keep_windows(false);
    p.b.ia.rmr_free(rmr).unwrap();
    assert_eq!(code(p.b.ia.rmr_free(rmr)).0, T::InvalidHandle);
}

#[test]
fn binds_that_are_refused() {
    let mut p = Pair::connected();
    let other = p.b.ia.pz_create().unwrap();
    let rmr = p.b.ia.rmr_create(p.b.pz).unwrap();
    let foreign = p.b.ia.rmr_create(other).unwrap();
    let region = p.b.lmr.region;
    let read = p.b.ia.lmr_create(p.b.pz, region, MemPriv::LOCAL_READ).unwrap();
    let (good, ep, r) = (p.b.seg(0, 8), p.b.ep, MemPriv::REMOTE);
    let ia = &mut p.b.ia;
    let mut ty = |rmr, lmr: LmrTriplet, privileges, flags| {
        ia.rmr_bind(rmr, &lmr, privileges, ep, 0, flags).unwrap_err().ty()
    };
    assert_eq!(ty(foreign, good, r, FLAGS), T::ProtectionViolation);
    assert_eq!(ty(Rmr::from_raw(7), good, r, FLAGS), T::InvalidHandle);
    let weak = LmrTriplet { context: read.lmr_context, ..good };
    assert_eq!(ty(rmr, weak, MemPriv::REMOTE_WRITE, FLAGS), T::PrivilegesViolation);
    let long = LmrTriplet { len: u32::MAX, ..good };
    assert_eq!(ty(rmr, long, r, FLAGS), T::InvalidParameter);
    let odd = CompletionFlags::from_bits_retain(0x40);
    assert_eq!(ty(rmr, good, r, odd), T::InvalidParameter);
    ia.lmr_free(read.lmr).unwrap();
    ia.ep_disconnect(p.now, ep, CloseFlag::Abrupt).unwrap();
    ia.rmr_bind(rmr, &good, r, ep, 3, FLAGS).unwrap();
    let status = DtoStatus::ErrFlushed;
    assert_eq!(p.b.drain(p.b.request), [Event::RmrBind { rmr, cookie: 3, status }]);
    assert_eq!(p.b.ia.rmr_query(rmr).unwrap().bound, None);
}

#[test]
fn a_port_without_windows_says_so() {
    let fabric: &'static testing::Fabric = Box::leak(Box::new(testing::Fabric::new()));
    fabric.windows(false);
    let mut ia: LoopIa = open(fabric, 0);
    let pz = ia.pz_create().unwrap();
    assert_eq!(code(ia.rmr_create(pz)).0, T::ModelNotSupported);
    assert_eq!(code(ia.lmr_allocate(pz, 1)).0, T::ModelNotSupported);
    assert_eq!(ia.query().0.max_rmrs, 0);
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
            let events = p.a.drain(asynchronous);
            assert_eq!(events, [Event::Async(AsyncEvent::ProviderInternalError)]);
        }
    }
}
