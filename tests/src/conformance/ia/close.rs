//! dat_ia_close(3): graceful and abrupt.

use dat_core::{CloseFlag, DatSubtype, DatType, EpState, EvdFlags, Event, MemPriv, PspFlag, Qos};

use crate::conformance::{A, B, Bed, LIMIT, NONE, Side, refused};

const IN_USE: (DatType, DatSubtype) = (DatType::InvalidState, DatSubtype::InvalidStateIaInUse);
const CLOSED: (DatType, DatSubtype) = (DatType::InvalidHandle, DatSubtype::InvalidHandleIa);

/// Refuses a graceful close.
#[track_caller]
fn in_use(bed: &mut Bed<'_, impl Side>) {
    let closed = bed.a.close(CloseFlag::Graceful);
    refused(closed, IN_USE.0, IN_USE.1);
}

/// Graceful close of an adapter that has nothing but its async Event Dispatcher.
pub fn graceful_close_of_an_empty_adapter(bed: &mut Bed<'_, impl Side>) {
    let end = bed.end(A);
    let mem = bed.mem(A, end.pz, 64, MemPriv::ALL);
    let now = bed.now();
    bed.a.ep_free(now, end.ep).unwrap();
    bed.a.lmr_free(mem.lmr.lmr).unwrap();
    for evd in [end.recv, end.request, end.conn] {
        bed.a.evd_free(evd).unwrap();
    }
    bed.a.pz_free(end.pz).unwrap();
    bed.a.close(CloseFlag::Graceful).unwrap();
    bed.a.reopen();
    bed.connected();
}

/// Graceful close while a zone is left.
pub fn graceful_close_with_a_zone(bed: &mut Bed<'_, impl Side>) {
    let pz = bed.a.pz_create().unwrap();
    in_use(bed);
    bed.a.pz_free(pz).unwrap();
    bed.a.close(CloseFlag::Graceful).unwrap();
}

/// Graceful close while an Event Dispatcher is left.
pub fn graceful_close_with_an_evd(bed: &mut Bed<'_, impl Side>) {
    let evd = bed.a.evd_create(4, EvdFlags::SOFTWARE).unwrap();
    bed.a.evd_post_se(evd, 5).unwrap();
    in_use(bed);
    assert_eq!(bed.look(A, evd), Some(Event::Software(5)));
    bed.a.evd_free(evd).unwrap();
    bed.a.close(CloseFlag::Graceful).unwrap();
}

/// Graceful close while an Endpoint is left, connected: it stays connected.
pub fn graceful_close_with_an_endpoint(bed: &mut Bed<'_, impl Side>) {
    let [a, b] = bed.connected();
    in_use(bed);
    assert_eq!((bed.state(&a), bed.state(&b)), (EpState::Connected, EpState::Connected));
    let mem = bed.mem(A, a.pz, 64, MemPriv::ALL);
    let to = bed.mem(B, b.pz, 64, MemPriv::ALL);
    bed.recv(&b, &to, 0, 64, 1);
    bed.send(&a, &mem, 0, 64, 2);
    bed.done(&b, dat_core::DtoOperation::Receive, 1);
}

/// Graceful close while an LMR or an RMR is left.
pub fn graceful_close_with_memory(bed: &mut Bed<'_, impl Side>) {
    let pz = bed.a.pz_create().unwrap();
    let mem = bed.mem(A, pz, 64, MemPriv::ALL);
    in_use(bed);
    bed.a.lmr_query(mem.lmr.lmr).unwrap();
    let rmr = bed.a.rmr_create(pz).unwrap();
    bed.a.lmr_free(mem.lmr.lmr).unwrap();
    in_use(bed);
    bed.a.rmr_query(rmr).unwrap();
    bed.a.rmr_free(rmr).unwrap();
    bed.a.pz_free(pz).unwrap();
    bed.a.close(CloseFlag::Graceful).unwrap();
}

/// Graceful close while a service point or a request is left: both stay.
pub fn graceful_close_with_a_service_point(bed: &mut Bed<'_, impl Side>) {
    let point = bed.listen(A);
    in_use(bed);
    let end = bed.end(B);
    bed.ask(&end, point.qualifier, LIMIT, b"x");
    let cr = bed.request(&point);
    bed.a.psp_free(point.psp).unwrap();
    in_use(bed);
    bed.a.cr_query(cr).unwrap();
}

/// Abrupt close frees whatever there is, in use or not.
pub fn abrupt_close_frees_everything(bed: &mut Bed<'_, impl Side>) {
    let [a, _] = bed.connected();
    let mem = bed.mem(A, a.pz, 4096, MemPriv::ALL);
    let rmr = bed.a.rmr_create(a.pz).unwrap();
    let triplet = mem.seg(0, 64);
    let ep = a.ep;
    let rights = MemPriv::REMOTE_READ;
    bed.a.rmr_bind(rmr, &triplet, rights, ep, 3, NONE).unwrap();
    bed.event(A, a.request);
    bed.recv(&a, &mem, 0, 64, 1);
    let point = bed.listen(A);
    bed.a.close(CloseFlag::Abrupt).unwrap();
    bed.a.reopen();
    // All slots are free again, as is the qualifier.
    let evd = bed.a.evd_create(4, EvdFlags::CR).unwrap();
    bed.a.psp_create(point.qualifier, evd, PspFlag::Consumer).unwrap();
    bed.connected();
}

/// Abrupt close ends connections: the peer hears of it once.
pub fn abrupt_close_disconnects_the_peer(bed: &mut Bed<'_, impl Side>) {
    let [_, b] = bed.connected();
    let mem = bed.mem(B, b.pz, 64, MemPriv::ALL);
    bed.recv(&b, &mem, 0, 64, 9);
    bed.a.close(CloseFlag::Abrupt).unwrap();
    assert_eq!(bed.event(B, b.conn), Event::Disconnected(b.ep));
    assert_eq!(bed.state(&b), EpState::Disconnected);
    assert_eq!(bed.dto(B, b.recv).status, dat_core::DtoStatus::ErrFlushed);
}

/// Abrupt close aborts what is being established.
pub fn abrupt_close_aborts_connecting(bed: &mut Bed<'_, impl Side>) {
    let point = bed.listen(B);
    let end = bed.end(A);
    bed.ask(&end, point.qualifier, LIMIT, b"");
    let cr = bed.request(&point);
    bed.a.close(CloseFlag::Abrupt).unwrap();
    // The request is still there to be answered; nobody is left to hear the answer.
    let other = bed.end(B);
    let now = bed.now();
    match bed.b.cr_accept(now, cr, Some(other.ep), b"") {
        Ok(()) => {
            let ended = bed.event(B, other.conn);
            assert_eq!(ended, Event::AcceptCompletionError(other.ep));
        }
        Err(error) => assert_eq!(error.ret().ty(), DatType::InvalidHandle),
    }
}

/// Every handle of a closed adapter is stale, and nothing can be made on it.
pub fn a_closed_adapter_makes_nothing(bed: &mut Bed<'_, impl Side>) {
    let end = bed.end(A);
    bed.a.close(CloseFlag::Abrupt).unwrap();
    refused(bed.a.pz_create(), CLOSED.0, CLOSED.1);
    refused(bed.a.evd_create(4, EvdFlags::DTO), CLOSED.0, CLOSED.1);
    let ep = bed.a.ep_create(None, None, None, None, None);
    refused(ep, CLOSED.0, CLOSED.1);
    refused(bed.a.pz_free(end.pz), DatType::InvalidHandle, DatSubtype::InvalidHandlePz);
    refused(bed.a.ep_get_status(end.ep), DatType::InvalidHandle, DatSubtype::InvalidHandleEp);
    refused(bed.a.evd_dequeue(end.recv), DatType::InvalidHandle, DatSubtype::InvalidHandle1);
}

/// Closing a closed adapter is a call with a bad handle, gracefully or abruptly.
pub fn closing_twice_is_refused(bed: &mut Bed<'_, impl Side>) {
    bed.a.close(CloseFlag::Graceful).unwrap();
    refused(bed.a.close(CloseFlag::Graceful), CLOSED.0, CLOSED.1);
    refused(bed.a.close(CloseFlag::Abrupt), CLOSED.0, CLOSED.1);
}

/// A peer that reads the memory of a closed adapter is refused, and its connection is over.
pub fn memory_of_a_closed_adapter_is_out_of_reach(bed: &mut Bed<'_, impl Side>) {
    let [a, b] = bed.connected();
    let far = bed.mem(A, a.pz, 64, MemPriv::ALL);
    let near = bed.mem(B, b.pz, 64, MemPriv::ALL);
    bed.fill(&far, 0, &[7; 64]);
    bed.a.close(CloseFlag::Abrupt).unwrap();
    let (seg, from) = ([near.seg(0, 64)], far.far(0, 64));
    match bed.b.ep_post_rdma_read(b.ep, &seg, 4, &from, NONE) {
        Ok(()) => assert_ne!(bed.dto(B, b.request).status, dat_core::DtoStatus::Success),
        Err(ret) => assert_eq!(ret.ty(), DatType::InvalidState),
    }
    assert_eq!(bed.bytes(&near, 0, 64), [0; 64]);
}

/// A posting half that is out when its adapter closes is useless, and does no harm.
pub fn a_half_that_is_out_outlives_its_adapter_harmlessly(bed: &mut Bed<'_, impl Side>) {
    let [a, b] = bed.connected();
    let mem = bed.mem(A, a.pz, 64, MemPriv::ALL);
    let mut half = bed.a.ep_take_poster(a.ep).unwrap();
    bed.untidy = true;
    bed.a.close(CloseFlag::Abrupt).unwrap();
    let posted = half.post_send(&[mem.seg(0, 64)], 1, NONE);
    assert!(posted.is_err(), "a post on a closed adapter");
    assert_eq!(bed.event(B, b.conn), Event::Disconnected(b.ep));
}

/// An adapter opened again serves its peer as the first one did.
pub fn an_adapter_opened_again_connects_again(bed: &mut Bed<'_, impl Side>) {
    for _ in 0..3 {
        let [_, b] = bed.connected();
        bed.a.close(CloseFlag::Abrupt).unwrap();
        assert_eq!(bed.event(B, b.conn), Event::Disconnected(b.ep));
        let now = bed.now();
        bed.b.ep_free(now, b.ep).unwrap();
        for evd in [b.recv, b.request, b.conn] {
            bed.b.evd_free(evd).unwrap();
        }
        bed.a.reopen();
    }
    let [a, _] = bed.connected();
    assert_eq!(bed.state(&a), EpState::Connected);
    let (to, qos) = (bed.b.address(), Qos::BestEffort);
    let now = bed.now();
    let again = bed.a.ep_connect(now, a.ep, to, 1, LIMIT, b"", qos);
    refused(again, DatType::InvalidState, DatSubtype::InvalidStateEpConnected);
}
