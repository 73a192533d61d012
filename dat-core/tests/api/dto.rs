//! Posting and completing: every DTO, every refusal, every flag.

#![expect(clippy::wildcard_enum_match_arm, reason = "a test")]

use crate::pair::*;
use dat_core::*;

use DtoStatus::Success;

fn of(ty: DatType, subtype: DatSubtype) -> DatReturn {
    DatReturn::new(ty, subtype)
}

#[test]
fn a_send_arrives_with_its_length_and_cookies() {
    let mut p = Pair::connected();
    let seg = p.a.seg(0, 11);
    p.fabric.write(seg.addr, b"hello there");
    p.b.post_recv(0xffff_ffff_0000_0001).unwrap();
    p.a.ia.ep_post_send(p.a.ep, &[seg], u64::MAX, FLAGS).unwrap();
    let (len, status) = (11, Success);
    let (ep, operation) = (p.b.ep, DtoOperation::Receive);
    let cookie = 0xffff_ffff_0000_0001;
    let recv = DtoEvent { ep, cookie, status, len, operation };
    assert_eq!(p.b.drain(p.b.recv), [Event::Dto(recv)]);
    let (ep, operation) = (p.a.ep, DtoOperation::Send);
    let sent = DtoEvent { ep, cookie: u64::MAX, status, len, operation };
    assert_eq!(p.a.drain(p.a.request), [Event::Dto(sent)]);
    let mut bytes = [0; 11];
    p.fabric.read(p.b.seg(1024, 0).addr, &mut bytes);
    assert_eq!(&bytes, b"hello there");
}

#[test]
fn write_and_read_with_several_segments_and_empty_ones() {
    let mut p = Pair::connected();
    p.fabric.write(p.a.seg(0, 0).addr, b"abcdef");
    let nothing = LmrTriplet { addr: 1, len: 0, context: 77 };
    let iov = [p.a.seg(4, 2), nothing, p.a.seg(0, 3)];
    let far = p.b.far(512, 64);
    p.a.ia.ep_post_rdma_write(p.a.ep, &iov, 1, &far, FLAGS).unwrap();
    let mut bytes = [0; 5];
    p.fabric.read(far.addr, &mut bytes);
    assert_eq!(&bytes, b"efabc");
    // A read into more room than there is to read takes only what is there.
    let far = p.b.far(512, 5);
    let iov = [p.a.seg(100, 2), p.a.seg(200, 2), p.a.seg(300, 50)];
    p.a.ia.ep_post_rdma_read(p.a.ep, &iov, 2, &far, FLAGS).unwrap();
    p.fabric.read(p.a.seg(300, 0).addr, &mut bytes);
    assert_eq!(&bytes, b"c\0\0\0\0");
    let events = p.a.drain(p.a.request);
    let lens: Vec<_> = events
        .iter()
        .map(|event| match event {
            Event::Dto(dto) => (dto.cookie, dto.len, dto.operation),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(lens, [(1, 5, DtoOperation::RdmaWrite), (2, 5, DtoOperation::RdmaRead)]);
}

#[test]
fn messages_of_no_bytes() {
    let mut p = Pair::connected();
    p.b.ia.ep_post_recv(p.b.ep, &[], 1, FLAGS).unwrap();
    p.a.ia.ep_post_send(p.a.ep, &[], 2, FLAGS).unwrap();
    assert_eq!(p.b.dtos(p.b.recv), [(1, Success)]);
    assert_eq!(p.a.dtos(p.a.request), [(2, Success)]);
}

#[test]
fn errors_of_local_memory_are_reported_at_the_post() {
    let mut p = Pair::connected();
    let other = p.a.ia.pz_create().unwrap();
    let region = p.a.lmr.region;
    let foreign = p.a.ia.lmr_create(other, region, MemPriv::ALL).unwrap();
    let read = p.a.ia.lmr_create(p.a.pz, region, MemPriv::LOCAL_READ).unwrap();
    let write = p.a.ia.lmr_create(p.a.pz, region, MemPriv::LOCAL_WRITE).unwrap();
    let at = |context| LmrTriplet { addr: region.addr, len: 8, context };
    let far = p.b.far(0, 8);
    let ep = p.a.ep;
    use DatSubtype as S;
    use DatType as T;
    let before = p.a.ia.ep_get_status(ep).unwrap();
    let stale = p.a.lmr.lmr_context ^ 1;
    for (context, ty, base) in [
        (foreign.lmr_context, T::ProtectionViolation, S::ProtectionRead),
        (stale, T::PrivilegesViolation, S::PrivilegesRead),
        (u32::MAX, T::PrivilegesViolation, S::PrivilegesRead),
        (0, T::PrivilegesViolation, S::PrivilegesRead),
    ] {
        let subtype = |n| S::from_number(base.number() + n).unwrap();
        let iov = [at(context)];
        assert_eq!(p.a.ia.ep_post_send(ep, &iov, 0, FLAGS), Err(of(ty, subtype(0))));
        assert_eq!(p.a.ia.ep_post_recv(ep, &iov, 0, FLAGS), Err(of(ty, subtype(1))));
        assert_eq!(p.a.ia.ep_post_rdma_read(ep, &iov, 0, &far, FLAGS), Err(of(ty, subtype(2))));
        assert_eq!(p.a.ia.ep_post_rdma_write(ep, &iov, 0, &far, FLAGS), Err(of(ty, subtype(3))));
    }
    let lacks = |subtype| Err(of(T::PrivilegesViolation, subtype));
    let (r, w) = ([at(read.lmr_context)], [at(write.lmr_context)]);
    assert_eq!(p.a.ia.ep_post_send(ep, &w, 0, FLAGS), lacks(S::PrivilegesRead));
    assert_eq!(p.a.ia.ep_post_recv(ep, &r, 0, FLAGS), lacks(S::PrivilegesWrite));
    assert_eq!(p.a.ia.ep_post_rdma_read(ep, &r, 0, &far, FLAGS), lacks(S::PrivilegesRdmaRead));
    assert_eq!(p.a.ia.ep_post_rdma_write(ep, &w, 0, &far, FLAGS), lacks(S::PrivilegesRdmaWrite));
    for (addr, len) in [
        (region.addr - 1, 8),
        (region.addr + region.len - 7, 8),
        (region.addr + region.len + 1, 1),
        (u64::MAX, 2),
        (0, 8),
    ] {
        let iov = [LmrTriplet { addr, len, context: p.a.lmr.lmr_context }];
        let outside = Err(of(T::InvalidParameter, S::InvalidArg3));
        assert_eq!(p.a.ia.ep_post_send(ep, &iov, 0, FLAGS), outside);
        assert_eq!(p.a.ia.ep_post_recv(ep, &iov, 0, FLAGS), outside);
    }
    assert_eq!(p.a.ia.ep_get_status(ep).unwrap(), before);
    p.run_until_idle();
    assert_eq!((p.a.state(), p.b.state()), (EpState::Connected, EpState::Connected));
}

#[test]
fn the_last_byte_of_an_lmr_is_inside() {
    let mut p = Pair::connected();
    let region = p.a.lmr.region;
    let iov =
        [LmrTriplet { addr: region.addr + region.len - 1, len: 1, context: p.a.lmr.lmr_context }];
    p.b.post_recv(1).unwrap();
    p.a.ia.ep_post_send(p.a.ep, &iov, 0, FLAGS).unwrap();
    assert_eq!(p.a.dtos(p.a.request), [(0, Success)]);
}

#[test]
fn lengths_that_do_not_fit_each_other() {
    let mut p = Pair::connected();
    let length = Err(DatReturn::of(DatType::LengthError));
    let (ep, iov) = (p.a.ep, [p.a.seg(0, 8)]);
    let short = p.b.far(0, 7);
    let long = p.b.far(0, 9);
    assert_eq!(p.a.ia.ep_post_rdma_write(ep, &iov, 0, &short, FLAGS), length);
    assert_eq!(p.a.ia.ep_post_rdma_read(ep, &iov, 0, &long, FLAGS), length);
    p.a.ia.ep_post_rdma_write(ep, &iov, 1, &long, FLAGS).unwrap();
    p.a.ia.ep_post_rdma_read(ep, &iov, 2, &short, FLAGS).unwrap();
    assert_eq!(p.a.dtos(p.a.request), [(1, Success), (2, Success)]);
}

#[test]
fn messages_longer_than_the_endpoint_was_made_for() {
    let fabric = Pair::unconnected(Merge::Apart, None);
    let mut attr = fabric.a.ia.ep_attr_default();
    attr.max_message_size = 16;
    attr.max_rdma_size = 8;
    let mut p = Pair::connected_as(Merge::Apart, Some(&attr));
    let length = Err(DatReturn::of(DatType::LengthError));
    let (ep, far) = (p.a.ep, p.b.far(0, 100));
    let (s17, s9) = ([p.a.seg(0, 17)], [p.a.seg(0, 9)]);
    assert_eq!(p.a.ia.ep_post_send(ep, &s17, 0, FLAGS), length);
    assert_eq!(p.a.ia.ep_post_rdma_write(ep, &s9, 0, &far, FLAGS), length);
    p.a.ia.ep_post_send(ep, &s9, 0, FLAGS).unwrap();
}

#[test]
fn too_many_segments_and_unknown_flags() {
    let mut p = Pair::connected();
    let ep = p.a.ep;
    let five = [p.a.seg(0, 1); 5];
    let far = p.b.far(0, 64);
    let many = Err(of(DatType::InvalidParameter, DatSubtype::InvalidArg2));
    assert_eq!(p.a.ia.ep_post_send(ep, &five, 0, FLAGS), many);
    assert_eq!(p.a.ia.ep_post_recv(ep, &five, 0, FLAGS), many);
    assert_eq!(p.a.ia.ep_post_rdma_read(ep, &five, 0, &far, FLAGS), many);
    assert_eq!(p.a.ia.ep_post_rdma_write(ep, &five, 0, &far, FLAGS), many);
    let one = &five[..1];
    for bits in [0x40, 0x10, 0x04, 0x8000_0000] {
        let flags = CompletionFlags::from_bits_retain(bits);
        let (send, rdma) = (DatSubtype::InvalidArg5, DatSubtype::InvalidArg6);
        let bad = |subtype| Err(of(DatType::InvalidParameter, subtype));
        assert_eq!(p.a.ia.ep_post_send(ep, one, 0, flags), bad(send));
        assert_eq!(p.a.ia.ep_post_recv(ep, one, 0, flags), bad(send));
        assert_eq!(p.a.ia.ep_post_rdma_write(ep, one, 0, &far, flags), bad(rdma));
    }
    assert!(p.a.ia.ep_post_recv(ep, one, 0, SUPPRESS).is_err());
}

#[test]
fn unsignalled_only_where_the_endpoint_has_it() {
    let p = Pair::unconnected(Merge::Apart, None);
    let mut attr = p.a.ia.ep_attr_default();
    attr.request_completion_flags = CompletionFlags::UNSIGNALLED;
    attr.recv_completion_flags = CompletionFlags::UNSIGNALLED;
    let mut p = Pair::connected_as(Merge::Apart, Some(&attr));
    let seg = p.b.seg(0, 8);
    p.b.ia.ep_post_recv(p.b.ep, &[seg], 1, CompletionFlags::UNSIGNALLED).unwrap();
    p.a.send(2, CompletionFlags::UNSIGNALLED).unwrap();
    assert_eq!(p.a.dtos(p.a.request), [(2, Success)]);
    assert_eq!(p.b.dtos(p.b.recv), [(1, Success)]);
}

#[test]
fn full_queues_refuse_and_recover() {
    let mut p = Pair::connected();
    let full = of(DatType::InsufficientResources, DatSubtype::ResourceCredits);
    for round in 0..3 {
        for cookie in 0..32 {
            p.a.send(cookie, FLAGS).unwrap();
        }
        assert_eq!(p.a.send(32, FLAGS), Err(full), "round {round}");
        for cookie in 0..32 {
            p.b.post_recv(cookie).unwrap();
        }
        assert_eq!(p.b.post_recv(32), Err(full));
        assert_eq!(p.a.send(32, FLAGS), Err(full), "completed but not dequeued");
        assert_eq!(p.a.dtos(p.a.request), (0..32).map(|c| (c, Success)).collect::<Vec<_>>());
        assert_eq!(p.b.dtos(p.b.recv).len(), 32);
    }
}

#[test]
fn suppressed_requests_are_silent_and_retire_with_the_next_event() {
    let mut p = Pair::connected();
    for cookie in 0..10 {
        p.b.post_recv(cookie).unwrap();
        p.a.send(cookie, if cookie == 9 { FLAGS } else { SUPPRESS }).unwrap();
    }
    // They have completed, though nobody has dequeued that.
    assert!(p.a.ia.ep_get_status(p.a.ep).unwrap().request_idle);
    assert_eq!(p.a.dtos(p.a.request), [(9, Success)]);
    assert!(p.a.ia.ep_get_status(p.a.ep).unwrap().request_idle);
}

#[test]
fn rows_of_suppressed_requests_of_any_length_and_make_end_with_one_event() {
    let mut p = Pair::connected();
    let far = p.b.far(512, 16);
    let rmr = p.a.ia.rmr_create(p.a.pz).unwrap();
    let (one, two) = ([p.a.seg(0, 8)], [p.a.seg(0, 8), p.a.seg(64, 8)]);
    // Rows longer than half a queue are cut by a completion that has no event.
    for row in 0..=40_u64 {
        for odd in [None, Some(row / 2), Some(0)] {
            let post = |p: &mut Pair, n: u64, flags| {
                let iov = if odd == Some(n) { &two[..] } else { &one[..] };
                p.a.ia.ep_post_rdma_write(p.a.ep, iov, n, &far, flags)
            };
            for n in 0..row {
                if post(&mut p, n, SUPPRESS).is_err() {
                    assert_eq!(p.a.drain(p.a.request), [], "row {row}, {odd:?}");
                    post(&mut p, n, SUPPRESS).unwrap();
                }
            }
            if odd == Some(0) && row % 3 == 0 {
                let (ep, range) = (p.a.ep, &one[0]);
                let _ = p.a.ia.rmr_bind(rmr, range, MemPriv::empty(), ep, 0, SUPPRESS);
            }
            if post(&mut p, row, FLAGS).is_err() {
                assert_eq!(p.a.drain(p.a.request), []);
                post(&mut p, row, FLAGS).unwrap();
            }
            assert_eq!(p.a.dtos(p.a.request), [(row, Success)], "{odd:?}");
            assert!(p.a.ia.ep_get_status(p.a.ep).unwrap().request_idle);
        }
    }
}

#[test]
fn nothing_but_suppressed_requests_never_gets_stuck() {
    let mut p = Pair::connected();
    let far = p.b.far(0, 8);
    let iov = [p.a.seg(0, 8)];
    let mut refused = 0;
    for cookie in 0..1000 {
        if p.a.ia.ep_post_rdma_write(p.a.ep, &iov, cookie, &far, SUPPRESS).is_err() {
            refused += 1;
            assert_eq!(p.a.drain(p.a.request), []);
            p.a.ia.ep_post_rdma_write(p.a.ep, &iov, cookie, &far, SUPPRESS).unwrap();
        }
    }
    assert!(refused > 10);
}

#[test]
fn deferred_requests_start_with_the_next_doorbell() {
    let mut p = Pair::connected();
    for cookie in 0..3 {
        p.b.post_recv(cookie).unwrap();
        p.a.send(cookie, CompletionFlags::DEFER).unwrap();
    }
    assert_eq!(p.a.dtos(p.a.request), []);
    p.a.ia.ep_ring(p.a.ep).unwrap();
    assert_eq!(p.a.dtos(p.a.request).len(), 3);
}

#[test]
fn requests_before_the_connection_are_refused_and_receives_are_not() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    let unconnected = of(DatType::InvalidState, DatSubtype::InvalidStateEpUnconnected);
    assert_eq!(p.a.send(1, FLAGS), Err(unconnected));
    p.a.post_recv(2).unwrap();
    p.ask(b"").unwrap();
    let active = of(DatType::InvalidState, DatSubtype::InvalidStateEpActConnPending);
    assert_eq!(p.a.send(1, FLAGS), Err(active));
    p.a.post_recv(3).unwrap();
    p.run_until_idle();
    let cr = p.request().unwrap();
    p.b.ia.cr_accept(p.now, cr, Some(p.b.ep), b"").unwrap();
    let completing = of(DatType::InvalidState, DatSubtype::InvalidStateEpComplPending);
    assert_eq!(p.b.send(1, FLAGS), Err(completing));
    p.run_until_idle();
    p.b.send(4, FLAGS).unwrap();
    assert_eq!(p.a.dtos(p.a.recv), [(2, Success)]);
}

#[test]
fn sequences_go_round() {
    let mut p = Pair::connected();
    for cookie in 0..70_000 {
        p.b.post_recv(cookie).unwrap();
        p.a.send(cookie, if cookie % 3 == 0 { FLAGS } else { SUPPRESS }).unwrap();
        assert_eq!(p.b.dtos(p.b.recv), [(cookie, Success)]);
        let expected: &[_] = if cookie % 3 == 0 { &[(cookie, Success)] } else { &[] };
        assert_eq!(p.a.dtos(p.a.request), expected);
    }
}

#[test]
fn the_halves_work_apart_from_the_adapter() {
    let mut p = Pair::connected();
    let mut poster = p.a.ia.ep_take_poster(p.a.ep).unwrap();
    let mut reaper = p.a.ia.evd_take_reaper(p.a.request).unwrap();
    let out = of(DatType::InvalidState, DatSubtype::InvalidStateEpProviderControl);
    assert_eq!(p.a.send(1, FLAGS), Err(out));
    assert_eq!(p.a.ia.ep_take_poster(p.a.ep).unwrap_err().ret(), out);
    assert_eq!(p.a.ia.ep_free(p.now, p.a.ep).unwrap_err().ret(), out);
    assert_eq!(p.a.ia.evd_dequeue(p.a.request).unwrap_err().ty(), DatType::InvalidState);
    assert_eq!(p.a.ia.evd_free(p.a.request).unwrap_err().ret().ty(), DatType::InvalidState);
    p.b.post_recv(1).unwrap();
    let iov = [p.a.seg(0, 8)];
    poster.post_send(&iov, 2, FLAGS).unwrap();
    assert!(matches!(reaper.dequeue(), Ok(Event::Dto(DtoEvent { cookie: 2, .. }))));
    poster.post_send(&iov, 3, FLAGS).unwrap();
    p.a.ia.ep_disconnect(p.now, p.a.ep, CloseFlag::Abrupt).unwrap();
    poster.post_send(&iov, 4, FLAGS).unwrap();
    assert_eq!(p.a.ia.ep_reset(p.a.ep).unwrap_err().ret(), out);
    p.a.ia.ep_return_poster(poster).unwrap();
    assert_eq!(p.a.ia.ep_reset(p.a.ep).unwrap_err().ret(), out, "completions with the reaper");
    for cookie in [3, 4] {
        let Ok(Event::Dto(dto)) = reaper.dequeue() else { panic!() };
        assert_eq!((dto.cookie, dto.status), (cookie, DtoStatus::ErrFlushed));
    }
    assert_eq!(reaper.dequeue(), Err(DatReturn::QUEUE_EMPTY));
    p.a.ia.ep_reset(p.a.ep).unwrap();
    p.a.ia.evd_return_reaper(reaper).unwrap();
    assert_eq!(p.a.drain(p.a.request), []);
}

#[test]
fn a_half_of_another_adapter_comes_back() {
    let mut p = Pair::connected();
    let poster = p.a.ia.ep_take_poster(p.a.ep).unwrap();
    let poster = p.b.ia.ep_return_poster(poster).unwrap_err();
    p.a.ia.ep_return_poster(poster).unwrap();
    let reaper = p.a.ia.evd_take_reaper(p.a.conn).unwrap();
    let reaper = p.b.ia.evd_return_reaper(reaper).unwrap_err();
    p.a.ia.evd_return_reaper(reaper).unwrap();
}

#[test]
fn a_drain_waits_for_the_poster_that_is_out() {
    let mut p = Pair::connected();
    let mut poster = p.a.ia.ep_take_poster(p.a.ep).unwrap();
    p.b.post_recv(1).unwrap();
    poster.post_send(&[p.a.seg(0, 8)], 1, SUPPRESS).unwrap();
    p.a.ia.ep_disconnect(p.now, p.a.ep, CloseFlag::Graceful).unwrap();
    p.run_until_idle();
    assert_eq!(p.a.state(), EpState::DisconnectPending);
    p.a.ia.ep_return_poster(poster).unwrap();
    p.run_until_idle();
    assert_eq!(p.a.drain(p.a.conn), [Event::Disconnected(p.a.ep)]);
}
