//! The InfiniBand extensions over the loop provider: atomics, immediates, datagrams.
#![expect(clippy::panic, clippy::unwrap_used, clippy::wildcard_enum_match_arm, reason = "tests")]

use core::task::Poll;

use crate::pair::*;
use dat_core::provider::{Arrived, Destination};
use dat_core::testing::Fabric;
use dat_core::*;

const QKEY: u32 = 0x1111_1111;
const RIGHTS: MemPriv = MemPriv::ALL.union(MemPriv::REMOTE_ATOMIC);

fn model() -> DatReturn {
    DatReturn::of(DatType::ModelNotSupported)
}

/// The whole memory of `b` once more, with the right to atomics.
fn atomics(p: &mut Pair) -> LmrParam {
    p.b.ia.lmr_create(p.b.pz, p.fabric.region(1), RIGHTS).unwrap()
}

fn far(lmr: &LmrParam, at: u64, len: u32) -> RmrTriplet {
    RmrTriplet { addr: lmr.region.addr + at, len, context: lmr.rmr_context }
}

fn word(p: &Pair, addr: u64) -> u64 {
    let mut bytes = [0; 8];
    assert!(p.fabric.read(addr, &mut bytes));
    u64::from_ne_bytes(bytes)
}

fn extended(event: Option<Event>) -> IbDtoEvent {
    let Some(Event::IbDto(event)) = event else { panic!("{event:?}") };
    assert_eq!(Event::IbDto(event).number(), 0x4_0000);
    event
}

#[test]
fn atomics_answer_with_what_was_there() {
    let mut p = Pair::connected();
    let lmr = atomics(&mut p);
    let (there, here) = (far(&lmr, 64, 8), p.a.seg(128, 8));
    p.fabric.write(there.addr, &u64::MAX.to_ne_bytes());
    let ep = p.a.ep;
    p.a.ia.ep_post_fetch_add(ep, 3, &here, 1, &there, FLAGS).unwrap();
    p.run_until_idle();
    let event = extended(p.a.next(p.a.request));
    assert_eq!((event.cookie, event.status(), event.len), (1, DtoStatus::Success, 8));
    assert_eq!((event.ep, event.operation), (ep, IbOperation::FetchAdd));
    assert_eq!((word(&p, here.addr), word(&p, there.addr)), (u64::MAX, 2));
    for (compare, after) in [(1, 2), (2, 77)] {
        p.a.ia.ep_post_cmp_swap(ep, compare, 77, &here, 2, &there, FLAGS).unwrap();
        p.run_until_idle();
        let event = extended(p.a.next(p.a.request));
        assert_eq!(event.operation, IbOperation::CmpSwap);
        assert_eq!((word(&p, here.addr), word(&p, there.addr)), (2, after));
    }
    // A suppressed one is silent, and the next completion comes in its place.
    p.a.ia.ep_post_fetch_add(ep, 1, &here, 3, &there, SUPPRESS).unwrap();
    p.a.send(4, SUPPRESS).unwrap();
    p.b.post_recv(5).unwrap();
    p.b.post_recv(6).unwrap();
    p.a.send(7, FLAGS).unwrap();
    p.run_until_idle();
    assert_eq!(p.a.dtos(p.a.request), [(7, DtoStatus::Success)]);
    assert_eq!(word(&p, there.addr), 78);
}

#[test]
fn an_atomic_without_the_right_breaks_the_connection() {
    let mut p = Pair::connected();
    let (there, here) = (p.b.far(64, 8), p.a.seg(128, 8));
    p.a.ia.ep_post_fetch_add(p.a.ep, 3, &here, 1, &there, FLAGS).unwrap();
    p.a.ia.ep_post_fetch_add(p.a.ep, 3, &here, 2, &there, FLAGS).unwrap();
    p.run_until_idle();
    let ends = p.a.drain(p.a.request);
    let ends: Vec<_> = ends.into_iter().map(|event| extended(Some(event))).collect();
    assert_eq!(ends[0].status(), DtoStatus::ErrRemoteAccess);
    assert_eq!((ends[1].status(), ends[1].len), (DtoStatus::ErrFlushed, 0));
    assert_eq!(p.a.drain(p.a.conn), [Event::Broken(p.a.ep)]);
    // A post from now on comes back flushed, as the event that it would have had.
    p.a.ia.ep_post_cmp_swap(p.a.ep, 0, 0, &here, 9, &there, FLAGS).unwrap();
    let event = extended(p.a.next(p.a.request));
    assert_eq!(event.operation, IbOperation::CmpSwap);
    assert_eq!((event.cookie, event.status()), (9, DtoStatus::ErrFlushed));
}

#[test]
fn impossible_requests_are_refused() {
    let mut p = Pair::connected();
    let lmr = atomics(&mut p);
    let (good, here) = (far(&lmr, 64, 8), p.a.seg(128, 8));
    let ep = p.a.ep;
    let mut post = |here: LmrTriplet, there: RmrTriplet, flags| {
        p.a.ia.ep_post_fetch_add(ep, 1, &here, 0, &there, flags)
    };
    let length = DatReturn::of(DatType::LengthError);
    for len in [0, 4, 16] {
        assert_eq!(post(LmrTriplet { len, ..here }, good, FLAGS), Err(length));
        assert_eq!(post(here, RmrTriplet { len, ..good }, FLAGS), Err(length));
    }
    let bad = |subtype| Err(DatReturn::new(DatType::InvalidParameter, subtype));
    let odd = RmrTriplet { addr: good.addr + 4, ..good };
    assert_eq!(post(here, odd, FLAGS), bad(DatSubtype::InvalidArg5));
    let unknown = CompletionFlags::from_bits_retain(0x1000);
    assert_eq!(post(here, good, unknown), bad(DatSubtype::InvalidArg6));
    let unknown_lmr = LmrTriplet { context: 0xffff, ..here };
    assert_eq!(
        post(unknown_lmr, good, FLAGS),
        Err(DatReturn::new(DatType::PrivilegesViolation, DatSubtype::PrivilegesRdmaRead))
    );
    assert!(post(here, good, FLAGS).is_ok());
    let only = p.a.ia.lmr_create(p.a.pz, p.fabric.region(0), MemPriv::REMOTE_ATOMIC);
    assert_eq!(only.unwrap_err().ret().ty(), DatType::PrivilegesViolation);
    // Datagrams are not for a connection.
    let to = Destination { path: path(&mut p), qpn: 1, qkey: 2 };
    assert_eq!(p.a.ia.ep_post_send_ud(ep, &[here], &to, None, 0, FLAGS), Err(model()));
    let mut p = Pair::unconnected(Merge::Apart, None);
    let (ep, here) = (p.a.ep, p.a.seg(0, 8));
    let early = p.a.ia.ep_post_rdma_write_immed(ep, &[here], 0, &p.b.far(0, 8), 1, FLAGS);
    assert_eq!(early.unwrap_err().ty(), DatType::InvalidState);
}

fn path(p: &mut Pair) -> provider::Path {
    match p.a.ia.ud_address(p.now, addr(1), 1, 2) {
        Poll::Ready(Ok(to)) => to.path,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_adapter_without_them_says_so() {
    let fabric: &'static Fabric = Box::leak(Box::new(Fabric::new()));
    fabric.extensions(false);
    let mut side = Side::new(fabric, 0, Merge::Apart, None);
    let lmr = side.ia.lmr_create(side.pz, fabric.region(0), RIGHTS);
    assert_eq!(lmr.unwrap_err().ret(), model());
    let ud = side.ia.ep_create_ud(side.pz, side.recv, side.request, None, None, QKEY);
    assert_eq!(ud.unwrap_err().ret(), model());
    let mut p = Pair {
        fabric,
        a: side,
        b: Side::new(fabric, 1, Merge::Apart, None),
        now: Instant::from_nanos(1),
    };
    p.b.ia.psp_create(PORT, p.b.cr, PspFlag::Consumer).unwrap();
    p.connect();
    let (ep, here, there) = (p.a.ep, p.a.seg(0, 8), p.b.far(64, 8));
    let add = p.a.ia.ep_post_fetch_add(ep, 1, &here, 1, &there, FLAGS);
    assert_eq!(add, Err(model()));
}

#[test]
fn an_immediate_takes_a_receive_after_its_write() {
    for merge in Merge::ALL {
        let mut p = Pair::connected_as(merge, None);
        p.fabric.write(p.a.seg(0, 8).addr, b"immediat");
        let (here, there) = (p.a.seg(0, 8), p.b.far(512, 16));
        let ep = p.a.ep;
        p.a.ia.ep_post_rdma_write_immed(ep, &[here], 1, &there, 0xdead_beef, FLAGS).unwrap();
        p.run_until_idle();
        assert_eq!(p.a.next(p.a.request), None, "no receive is there");
        p.b.post_recv(2).unwrap();
        p.run_until_idle();
        let event = extended(p.a.next(p.a.request));
        assert_eq!((event.cookie, event.operation), (1, IbOperation::RdmaWriteImmed));
        let event = extended(p.b.next(p.b.recv));
        assert_eq!((event.cookie, event.len), (2, 8));
        assert_eq!(event.operation, IbOperation::RecvRdmaWriteImmed);
        let extension = p.b.ia.evd_extension(p.b.recv).unwrap();
        assert_eq!(
            (extension.arrived, extension.immediate),
            (Arrived::WriteImmediate, 0xdead_beef)
        );
        let mut bytes = [0; 8];
        p.fabric.read(there.addr, &mut bytes);
        assert_eq!(&bytes, b"immediat");
    }
}

/// An Endpoint for datagrams on each side.
fn datagrams(p: &mut Pair) -> [Ep; 2] {
    [&mut p.a, &mut p.b].map(|side| {
        let (pz, recv, request, conn) = (side.pz, side.recv, side.request, side.conn);
        let ep = side.ia.ep_create_ud(pz, recv, request, Some(conn), None, QKEY).unwrap();
        assert_eq!(side.ia.ep_query(ep).unwrap().state, EpState::Connected);
        ep
    })
}

fn to(p: &mut Pair, ep: Ep, qkey: u32) -> Destination {
    let qpn = p.b.ia.ep_query(ep).unwrap().qp.unwrap().number;
    match p.a.ia.ud_address(p.now, addr(1), qpn, qkey) {
        Poll::Ready(Ok(to)) => to,
        other => panic!("{other:?}"),
    }
}

#[test]
fn datagrams_tell_who_sent_them() {
    for merge in Merge::ALL {
        let mut p = Pair::unconnected(merge, None);
        let [a, b] = datagrams(&mut p);
        let qpn = p.a.ia.ep_query(a).unwrap().qp.unwrap().number;
        let to = to(&mut p, b, QKEY);
        p.fabric.write(p.a.seg(0, 5).addr, b"hello");
        for immediate in [None, Some(7)] {
            let (here, there) = (p.a.seg(0, 5), p.b.seg(1024, 64));
            p.b.ia.ep_post_recv(b, &[there], 2, FLAGS).unwrap();
            p.a.ia.ep_post_send_ud(a, &[here], &to, immediate, 1, FLAGS).unwrap();
            p.run_until_idle();
            let sent = extended(p.a.next(p.a.request));
            assert_eq!((sent.cookie, sent.operation), (1, IbOperation::SendUd));
            let event = extended(p.b.next(p.b.recv));
            assert_eq!((event.ep, event.cookie, event.len), (b, 2, 45));
            let extension = p.b.ia.evd_extension(p.b.recv).unwrap();
            assert_eq!((extension.source_qpn, extension.immediate), (qpn, immediate.unwrap_or(0)));
            assert_eq!(
                event.operation,
                match immediate {
                    None => IbOperation::RecvMsgUd,
                    Some(_) => IbOperation::RecvMsgUdImmed,
                }
            );
            let mut bytes = [0; 45];
            p.fabric.read(there.addr, &mut bytes);
            assert_eq!(&bytes[40..], b"hello");
            assert_eq!(sender(bytes.first_chunk().unwrap()), Some(addr(0)));
        }
        // By poster and reaper as well, where the fast path comes first.
        let mut reaper = p.b.ia.evd_take_reaper(p.b.recv).unwrap();
        let mut poster = p.a.ia.ep_take_poster(a).unwrap();
        let (here, there) = (p.a.seg(0, 5), p.b.seg(1024, 64));
        p.b.ia.ep_post_recv(b, &[there], 3, FLAGS).unwrap();
        poster.post_send_ud(&[here], &to, Some(9), 4, FLAGS).unwrap();
        assert_eq!(extended(reaper.dequeue().ok()).cookie, 3);
        assert_eq!(reaper.extension().immediate, 9);
        assert_eq!(reaper.extension().source_qpn, qpn);
        p.a.ia.ep_return_poster(poster).unwrap();
        p.b.ia.evd_return_reaper(reaper).unwrap();
    }
}

#[test]
fn an_unreceived_datagram_is_lost_and_its_send_succeeds() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    let [a, b] = datagrams(&mut p);
    let (good, bad) = (to(&mut p, b, QKEY), to(&mut p, b, QKEY + 1));
    let here = p.a.seg(0, 32);
    for (to, room) in [(good, None), (bad, Some(128)), (good, Some(64))] {
        if let Some(room) = room {
            let there = p.b.seg(1024, room);
            p.b.ia.ep_post_recv(b, &[there], 5, FLAGS).unwrap();
        }
        p.a.ia.ep_post_send_ud(a, &[here], &to, None, 1, FLAGS).unwrap();
        p.run_until_idle();
        assert_eq!(extended(p.a.next(p.a.request)).status(), DtoStatus::Success);
        assert_eq!(p.b.next(p.b.recv).is_some(), room == Some(64));
    }
}

#[test]
fn an_endpoint_for_datagrams_ends_and_opens_again() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    let [a, b] = datagrams(&mut p);
    let to = to(&mut p, b, QKEY);
    let (here, there) = (p.a.seg(0, 8), p.b.seg(1024, 64));
    p.b.ia.ep_post_recv(b, &[there], 5, FLAGS).unwrap();
    p.b.ia.ep_disconnect(p.now, b, CloseFlag::Graceful).unwrap();
    p.run_until_idle();
    assert_eq!(p.b.dtos(p.b.recv), [(5, DtoStatus::ErrFlushed)]);
    assert_eq!(p.b.drain(p.b.conn), [Event::Disconnected(b)]);
    p.b.ia.ep_reset(b).unwrap();
    assert_eq!(p.b.ia.ep_query(b).unwrap().state, EpState::Connected);
    p.b.ia.ep_post_recv(b, &[there], 6, FLAGS).unwrap();
    p.a.ia.ep_post_send_ud(a, &[here], &to, None, 1, FLAGS).unwrap();
    p.run_until_idle();
    assert_eq!(extended(p.b.next(p.b.recv)).cookie, 6);
    // It refuses operations that are for connections.
    let remote = p.b.far(0, 8);
    assert_eq!(p.a.ia.ep_post_send(a, &[here], 0, FLAGS), Err(model()));
    assert_eq!(p.a.ia.ep_post_send(a, &[], 0, FLAGS), Err(model()));
    assert_eq!(p.a.ia.ep_post_rdma_write(a, &[here], 0, &remote, FLAGS), Err(model()));
    assert_eq!(p.a.ia.ep_post_rdma_read(a, &[here], 0, &remote, FLAGS), Err(model()));
    assert_eq!(p.a.ia.ep_post_fetch_add(a, 1, &here, 0, &remote, FLAGS), Err(model()));
    // It is no longer than the port's packets.
    let long = p.a.seg(0, 1025);
    assert_eq!(
        p.a.ia.ep_post_send_ud(a, &[long], &to, None, 0, FLAGS),
        Err(DatReturn::of(DatType::LengthError))
    );
    let pieces = [here; 4];
    assert_eq!(
        p.a.ia.ep_post_send_ud(a, &pieces, &to, None, 0, FLAGS),
        Err(DatReturn::new(DatType::InvalidParameter, DatSubtype::InvalidArg2))
    );
    p.a.ia.ep_free(p.now, a).unwrap();
}
