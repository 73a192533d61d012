//! dat_ia_close(3): graceful and abrupt.

use dat_core::{CloseFlag, DatSubtype, DatType, EpState, EvdFlags, Event, MemPriv, PspFlag, Qos};

use crate::conformance::{A, Adapters, B, LIMIT, NONE, Side, refused};

const IN_USE: (DatType, DatSubtype) = (DatType::InvalidState, DatSubtype::InvalidStateIaInUse);
const CLOSED: (DatType, DatSubtype) = (DatType::InvalidHandle, DatSubtype::InvalidHandleIa);

/// Refuses a graceful close.
#[track_caller]
fn in_use(ias: &mut Adapters<'_, impl Side>) {
    let closed = ias.a.close(CloseFlag::Graceful);
    refused(closed, IN_USE.0, IN_USE.1);
}

/// Graceful close of an adapter that has nothing but its async Event Dispatcher.
pub fn graceful_close_of_an_empty_adapter(ias: &mut Adapters<'_, impl Side>) {
    let end = ias.end(A);
    let mem = ias.mem(A, end.pz, 64, MemPriv::ALL);
    let now = ias.now();
    ias.a.ep_free(now, end.ep).unwrap();
    ias.a.lmr_free(mem.lmr.lmr).unwrap();
    for evd in [end.recv, end.request, end.conn] {
        ias.a.evd_free(evd).unwrap();
    }
    ias.a.pz_free(end.pz).unwrap();
    ias.a.close(CloseFlag::Graceful).unwrap();
    ias.a.reopen();
    ias.connected();
}

/// Graceful close while a zone is left.
pub fn graceful_close_with_a_zone(ias: &mut Adapters<'_, impl Side>) {
    let pz = ias.a.pz_create().unwrap();
    in_use(ias);
    ias.a.pz_free(pz).unwrap();
    ias.a.close(CloseFlag::Graceful).unwrap();
}

/// Graceful close while an Event Dispatcher is left.
pub fn graceful_close_with_an_evd(ias: &mut Adapters<'_, impl Side>) {
    let evd = ias.a.evd_create(4, EvdFlags::SOFTWARE).unwrap();
    ias.a.evd_post_se(evd, 5).unwrap();
    in_use(ias);
    assert_eq!(ias.look(A, evd), Some(Event::Software(5)));
    ias.a.evd_free(evd).unwrap();
    ias.a.close(CloseFlag::Graceful).unwrap();
}

/// Graceful close while an Endpoint is left, connected: it stays connected.
pub fn graceful_close_with_an_endpoint(ias: &mut Adapters<'_, impl Side>) {
    let [a, b] = ias.connected();
    in_use(ias);
    assert_eq!((ias.state(&a), ias.state(&b)), (EpState::Connected, EpState::Connected));
    let mem = ias.mem(A, a.pz, 64, MemPriv::ALL);
    let to = ias.mem(B, b.pz, 64, MemPriv::ALL);
    ias.recv(&b, &to, 0, 64, 1);
    ias.send(&a, &mem, 0, 64, 2);
    ias.done(&b, dat_core::DtoOperation::Receive, 1);
}

/// Graceful close while an LMR or an RMR is left.
pub fn graceful_close_with_memory(ias: &mut Adapters<'_, impl Side>) {
    let pz = ias.a.pz_create().unwrap();
    let mem = ias.mem(A, pz, 64, MemPriv::ALL);
    in_use(ias);
    ias.a.lmr_query(mem.lmr.lmr).unwrap();
    let rmr = ias.a.rmr_create(pz).unwrap();
    ias.a.lmr_free(mem.lmr.lmr).unwrap();
    in_use(ias);
    ias.a.rmr_query(rmr).unwrap();
    ias.a.rmr_free(rmr).unwrap();
    ias.a.pz_free(pz).unwrap();
    ias.a.close(CloseFlag::Graceful).unwrap();
}

/// Graceful close while a service point or a request is left: both stay.
pub fn graceful_close_with_a_service_point(ias: &mut Adapters<'_, impl Side>) {
    let point = ias.listen(A);
    in_use(ias);
    let end = ias.end(B);
    ias.ask(&end, point.qualifier, LIMIT, b"x");
    let cr = ias.request(&point);
    ias.a.psp_free(point.psp).unwrap();
    in_use(ias);
    ias.a.cr_query(cr).unwrap();
}

/// Abrupt close frees whatever there is, in use or not.
pub fn abrupt_close_frees_everything(ias: &mut Adapters<'_, impl Side>) {
    let [a, _] = ias.connected();
    let mem = ias.mem(A, a.pz, 4096, MemPriv::ALL);
    let rmr = ias.a.rmr_create(a.pz).unwrap();
    let triplet = mem.seg(0, 64);
    let ep = a.ep;
    let rights = MemPriv::REMOTE_READ;
    ias.a.rmr_bind(rmr, &triplet, rights, ep, 3, NONE).unwrap();
    ias.event(A, a.request);
    ias.recv(&a, &mem, 0, 64, 1);
    let point = ias.listen(A);
    ias.a.close(CloseFlag::Abrupt).unwrap();
    ias.a.reopen();
    // All slots are free again, as is the qualifier.
    let evd = ias.a.evd_create(4, EvdFlags::CR).unwrap();
    ias.a.psp_create(point.qualifier, evd, PspFlag::Consumer).unwrap();
    ias.connected();
}

/// Abrupt close ends connections: the peer gets one event.
pub fn abrupt_close_disconnects_the_peer(ias: &mut Adapters<'_, impl Side>) {
    let [_, b] = ias.connected();
    let mem = ias.mem(B, b.pz, 64, MemPriv::ALL);
    ias.recv(&b, &mem, 0, 64, 9);
    ias.a.close(CloseFlag::Abrupt).unwrap();
    assert_eq!(ias.event(B, b.conn), Event::Disconnected(b.ep));
    assert_eq!(ias.state(&b), EpState::Disconnected);
    assert_eq!(ias.dto(B, b.recv).status, dat_core::DtoStatus::ErrFlushed);
}

/// Abrupt close aborts what is being established.
pub fn abrupt_close_aborts_connecting(ias: &mut Adapters<'_, impl Side>) {
    let point = ias.listen(B);
    let end = ias.end(A);
    ias.ask(&end, point.qualifier, LIMIT, b"");
    let cr = ias.request(&point);
    ias.a.close(CloseFlag::Abrupt).unwrap();
    // The request is still there to be answered; nobody is left to receive the answer.
    let other = ias.end(B);
    let now = ias.now();
    match ias.b.cr_accept(now, cr, Some(other.ep), b"") {
        Ok(()) => {
            let ended = ias.event(B, other.conn);
            assert_eq!(ended, Event::AcceptCompletionError(other.ep));
        }
        Err(error) => assert_eq!(error.ret().ty(), DatType::InvalidHandle),
    }
}

/// Every handle of a closed adapter is stale, and nothing can be made on it.
pub fn a_closed_adapter_makes_nothing(ias: &mut Adapters<'_, impl Side>) {
    let end = ias.end(A);
    ias.a.close(CloseFlag::Abrupt).unwrap();
    refused(ias.a.pz_create(), CLOSED.0, CLOSED.1);
    refused(ias.a.evd_create(4, EvdFlags::DTO), CLOSED.0, CLOSED.1);
    let ep = ias.a.ep_create(None, None, None, None, None);
    refused(ep, CLOSED.0, CLOSED.1);
    refused(ias.a.pz_free(end.pz), DatType::InvalidHandle, DatSubtype::InvalidHandlePz);
    refused(ias.a.ep_get_status(end.ep), DatType::InvalidHandle, DatSubtype::InvalidHandleEp);
    refused(ias.a.evd_dequeue(end.recv), DatType::InvalidHandle, DatSubtype::InvalidHandle1);
}

/// Closing a closed adapter is a call with a bad handle, gracefully or abruptly.
pub fn closing_twice_is_refused(ias: &mut Adapters<'_, impl Side>) {
    ias.a.close(CloseFlag::Graceful).unwrap();
    refused(ias.a.close(CloseFlag::Graceful), CLOSED.0, CLOSED.1);
    refused(ias.a.close(CloseFlag::Abrupt), CLOSED.0, CLOSED.1);
}

/// A peer that reads the memory of a closed adapter is refused, and its connection is over.
pub fn memory_of_a_closed_adapter_is_out_of_reach(ias: &mut Adapters<'_, impl Side>) {
    let [a, b] = ias.connected();
    let far = ias.mem(A, a.pz, 64, MemPriv::ALL);
    let near = ias.mem(B, b.pz, 64, MemPriv::ALL);
    ias.fill(&far, 0, &[7; 64]);
    ias.a.close(CloseFlag::Abrupt).unwrap();
    let (seg, from) = ([near.seg(0, 64)], far.far(0, 64));
    match ias.b.ep_post_rdma_read(b.ep, &seg, 4, &from, NONE) {
        Ok(()) => assert_ne!(ias.dto(B, b.request).status, dat_core::DtoStatus::Success),
        Err(ret) => assert_eq!(ret.ty(), DatType::InvalidState),
    }
    assert_eq!(ias.bytes(&near, 0, 64), [0; 64]);
}

/// A poster that is out when its adapter closes is useless, and does no harm.
pub fn a_poster_that_is_out_outlives_its_adapter_harmlessly(ias: &mut Adapters<'_, impl Side>) {
    let [a, b] = ias.connected();
    let mem = ias.mem(A, a.pz, 64, MemPriv::ALL);
    let mut poster = ias.a.ep_take_poster(a.ep).unwrap();
    ias.untidy = true;
    ias.a.close(CloseFlag::Abrupt).unwrap();
    let posted = poster.post_send(&[mem.seg(0, 64)], 1, NONE);
    assert!(posted.is_err(), "a post on a closed adapter");
    assert_eq!(ias.event(B, b.conn), Event::Disconnected(b.ep));
}

/// An adapter opened again serves its peer as the first one did.
pub fn an_adapter_opened_again_connects_again(ias: &mut Adapters<'_, impl Side>) {
    for _ in 0..3 {
        let [_, b] = ias.connected();
        ias.a.close(CloseFlag::Abrupt).unwrap();
        assert_eq!(ias.event(B, b.conn), Event::Disconnected(b.ep));
        let now = ias.now();
        ias.b.ep_free(now, b.ep).unwrap();
        for evd in [b.recv, b.request, b.conn] {
            ias.b.evd_free(evd).unwrap();
        }
        ias.a.reopen();
    }
    let [a, _] = ias.connected();
    assert_eq!(ias.state(&a), EpState::Connected);
    let (to, qos) = (ias.b.address(), Qos::BestEffort);
    let now = ias.now();
    let again = ias.a.ep_connect(now, a.ep, to, 1, LIMIT, b"", qos);
    refused(again, DatType::InvalidState, DatSubtype::InvalidStateEpConnected);
}
