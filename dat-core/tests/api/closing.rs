//! An Endpoint that is taken out of service, as other threads and Endpoints see it: its poster and reaper are
//! used between the steps.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use crate::pair::*;
use dat_core::testing::{Fabric, LoopHca};
use dat_core::*;

use DtoStatus::ErrFlushed;

type Halves =
    (EpPoster<'static, LoopHca<'static>>, EvdReaper<'static, LoopHca<'static>>, LmrTriplet);

thread_local! {
    static FABRIC: RefCell<Option<&'static Fabric>> = const { RefCell::new(None) };
    static HALVES: RefCell<Option<Halves>> = const { RefCell::new(None) };
    static SEEN: RefCell<Vec<Result<Event, DatReturn>>> = const { RefCell::new(Vec::new()) };
}

/// The device may still complete what it has begun until the queue pair is reset: so nothing is
/// flushed before, and what is posted meanwhile is flushed behind it.
#[test]
fn nothing_is_flushed_before_the_device_has_stopped() {
    let mut p = Pair::connected_as(Merge::RecvRequest, None);
    for cookie in 0..2 {
        p.a.post_recv(cookie).unwrap();
    }
    p.fabric.hold(true);
    p.a.send(30, FLAGS).unwrap();
    let (ep, evd) = (p.a.ep, p.a.recv);
    let halves =
        (p.a.ia.ep_take_poster(ep).unwrap(), p.a.ia.evd_take_reaper(evd).unwrap(), p.a.seg(0, 8));
    HALVES.set(Some(halves));
    p.fabric.watch(|operation| {
        if operation == "qp_modify" {
            HALVES.with_borrow_mut(|halves| {
                let (poster, reaper, seg) = halves.as_mut().unwrap();
                let cookie = SEEN.with_borrow(Vec::len) as u64;
                poster.post_recv(&[*seg], 10 + cookie, FLAGS).unwrap();
                poster.post_send(&[*seg], 20 + cookie, FLAGS).unwrap();
                SEEN.with_borrow_mut(|seen| seen.push(reaper.dequeue()));
            });
        }
    });
    p.a.ia.ep_disconnect(p.now, ep, CloseFlag::Abrupt).unwrap();
    p.fabric.watch(|_| ());
    // Before the step to Error there was nothing; then the device has flushed, once.
    let seen = SEEN.take();
    assert_eq!((seen.len(), seen[0]), (2, Err(DatReturn::QUEUE_EMPTY)));
    let (poster, reaper, _) = HALVES.take().unwrap();
    p.a.ia.ep_return_poster(poster).unwrap();
    p.a.ia.evd_return_reaper(reaper).unwrap();
    p.run_until_idle();
    let mut flushed = p.a.dtos(evd);
    for event in seen {
        if let Ok(Event::Dto(dto)) = event {
            flushed.push((dto.cookie, dto.status));
        }
    }
    flushed.sort_by_key(|(cookie, _)| *cookie);
    let all = [0, 1, 10, 11, 20, 21, 30].map(|cookie| (cookie, ErrFlushed));
    assert_eq!(flushed, all);
}

/// Completions while an Endpoint is freed leave nothing in the queue: the device is stopped first.
#[test]
fn a_free_stops_the_device_before_it_takes_completions_out() {
    let mut p = Pair::connected();
    p.fabric.hold(true);
    let (iov, far) = ([p.a.seg(0, 1)], p.b.far(0, 1));
    for cookie in 0..4 {
        p.a.ia.ep_post_rdma_write(p.a.ep, &iov, cookie, &far, FLAGS).unwrap();
    }
    FABRIC.set(Some(p.fabric));
    p.fabric.watch(|operation| {
        if operation == "qp_destroy" {
            FABRIC.with_borrow(|fabric| fabric.unwrap().hold(false));
        }
    });
    p.a.ia.ep_free(p.now, p.a.ep).unwrap();
    assert_eq!(p.a.drain(p.a.request), []);
    assert_eq!(p.a.ia.evd_dropped(p.a.request), Ok((0, 0)));
}

thread_local! {
    static STEPS: Cell<u32> = const { Cell::new(0) };
}

/// The queue pair of an Endpoint in service is stopped before it goes, by reset, and by error before
/// that if a request is outstanding; that of one that has ended is stopped already.
#[test]
fn a_free_stops_what_is_not_stopped_yet() {
    for (ended, busy, steps) in
        [(false, false, 1), (false, true, 2), (true, false, 0), (true, true, 0)]
    {
        let mut p = Pair::connected();
        if busy {
            p.fabric.hold(true);
            p.a.send(1, FLAGS).unwrap();
        }
        if ended {
            p.a.ia.ep_disconnect(p.now, p.a.ep, CloseFlag::Abrupt).unwrap();
        }
        p.fabric.watch(|operation| {
            STEPS.set(STEPS.get() + u32::from(operation == "qp_modify"));
        });
        p.a.ia.ep_free(p.now, p.a.ep).unwrap();
        assert_eq!(STEPS.take(), steps, "ended: {ended}, busy: {busy}");
    }
}

#[test]
fn a_request_without_an_answer_is_refused_when_the_adapter_closes() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    p.ask(b"").unwrap();
    p.run_until_idle();
    p.b.ia.close(p.now, CloseFlag::Abrupt).unwrap();
    p.a.ia.advance(p.now);
    assert_eq!(p.a.drain(p.a.conn), [Event::NonPeerRejected(p.a.ep)]);
}

#[test]
fn an_adapter_closes_with_the_poster_of_a_shared_receive_queue_out() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    let attr = SrqAttr { max_recv_dtos: 16, max_recv_iov: 1, low_watermark: 0 };
    let srq = p.a.ia.srq_create(p.a.pz, &attr).unwrap();
    let _out = p.a.ia.srq_take_poster(srq).unwrap();
    p.a.ia.close(p.now, CloseFlag::Abrupt).unwrap();
    assert_eq!(p.a.ia.srq_query(srq).unwrap_err().ret().ty(), DatType::InvalidHandle);
}

#[test]
fn a_poster_tells_when_what_it_posts_is_flushed() {
    let mut p = Pair::connected();
    let poster = p.a.ia.ep_take_poster(p.a.ep).unwrap();
    assert!(!poster.is_flushing());
    p.a.ia.ep_disconnect(p.now, p.a.ep, CloseFlag::Abrupt).unwrap();
    assert!(poster.is_flushing());
}

/// What came first is reported first, in one look at both: a connection that was made, and then the
/// end of another.
#[test]
fn a_connection_is_reported_before_the_end_of_another_that_came_later() {
    let mut p = Pair::connected();
    let second = |side: &mut Side| {
        let (recv, request) = (Some(side.recv), Some(side.request));
        side.ia.ep_create(Some(side.pz), recv, request, Some(side.conn), None).unwrap()
    };
    let [a, b] = [second(&mut p.a), second(&mut p.b)];
    let limit = Duration::from_secs(5);
    p.a.ia.ep_connect(p.now, a, addr(1), PORT, limit, b"", Qos::BestEffort).unwrap();
    p.run_until_idle();
    let cr = p.request().unwrap();
    p.b.ia.cr_accept(p.now, cr, Some(b), b"").unwrap();
    while p.b.ia.advance(p.now).work {}
    while p.a.ia.advance(p.now).work {}
    p.a.ia.ep_disconnect(p.now, p.a.ep, CloseFlag::Abrupt).unwrap();
    while p.a.ia.advance(p.now).work {}
    while p.b.ia.advance(p.now).work {}
    assert_eq!(p.b.drain(p.b.conn), [Event::Established(b), Event::Disconnected(p.b.ep)]);
}
