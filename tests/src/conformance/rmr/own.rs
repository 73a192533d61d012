//! Scopes: RMRs of a zone, and RMRs of one Endpoint at a time.

use dat_core::provider::Arrived;
use dat_core::{
    CloseFlag, DatSubtype as Sub, DatType as Ty, DtoOperation, DtoStatus, EpState, Event,
    LmrTriplet, MemPriv, RmrScope, RmrTriplet, VaType,
};

use crate::conformance::reach::{Try, pattern};
use crate::conformance::{A, Adapters, B, End, Mem, NONE, Side, refused};

/// Another pair of Endpoints, of which the one on side B is in the zone of `end`.
#[track_caller]
fn beside(ias: &mut Adapters<'_, impl Side>, end: &End) -> ([End; 2], Mem) {
    let here = ias.end(A);
    let there = ias.end(B);
    let conn = there.conn;
    ias.b.ep_free(ias.a.side.now(), there.ep).unwrap();
    let (recv, request) = (there.recv, there.request);
    let ep = ias.b.ep_create(Some(end.pz), Some(recv), Some(request), Some(conn), None);
    let there = End { pz: end.pz, ep: ep.unwrap(), ..there };
    ias.connect(&here, &there);
    let mem = ias.mem(A, here.pz, 64, MemPriv::ALL);
    ([here, there], mem)
}

/// One of `dat_rmr_create` opens its range to the peers of all Endpoints of its zone, whichever it
/// was bound on.
pub fn a_window_serves_every_endpoint_of_its_zone(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = ias.armed();
    let (others, mem) = beside(ias, &ends[B]);
    let rmr = ias.b.rmr_create(ends[B].pz).unwrap();
    let range = mems[B].seg(0, 64);
    for on in [&ends[B], &others[B]] {
        let far = ias.bind(on, rmr, &range, MemPriv::REMOTE);
        assert!(ias.allowed(&ends, Try::Write, mems[A].seg(0, 64), far));
        assert!(ias.allowed(&others, Try::Read, mem.seg(0, 64), far));
    }
    assert_eq!(ias.bytes(&mem, 0, 64), pattern(A, 8192)[..64]);
}

/// A peer that comes through an Endpoint of another zone gets REMOTE_ACCESS, and its connection
/// breaks.
pub fn a_window_is_closed_to_other_zones(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = ias.armed();
    let others = ias.connected();
    let mem = ias.mem(A, others[A].pz, 64, MemPriv::ALL);
    let rmr = ias.b.rmr_create(ends[B].pz).unwrap();
    let far = ias.bind(&ends[B], rmr, &mems[B].seg(0, 64), MemPriv::REMOTE);
    assert!(!ias.allowed(&others, Try::Write, mem.seg(0, 64), far));
    assert_eq!(ias.bytes(&mems[B], 0, 64), pattern(B, 8192)[..64]);
    assert!(ias.allowed(&ends, Try::Write, mems[A].seg(0, 64), far));
}

/// It stays bound when the connection it was bound on ends.
pub fn a_window_outlives_the_connection(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = ias.armed();
    let rmr = ias.b.rmr_create(ends[B].pz).unwrap();
    let far = ias.bind(&ends[B], rmr, &mems[B].seg(0, 64), MemPriv::REMOTE);
    ias.disconnect(&ends[A], CloseFlag::Graceful);
    ias.mend(&ends);
    assert!(ias.b.rmr_query(rmr).unwrap().bound.is_some());
    assert!(ias.allowed(&ends, Try::Write, mems[A].seg(0, 64), far));
}

/// One of `dat_rmr_create_for_ep` opens its range to the peer of the Endpoint it is bound on, and
/// to nobody else.
pub fn an_own_rmr_serves_one_endpoint(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = ias.armed();
    let (others, mem) = beside(ias, &ends[B]);
    let rmr = ias.b.rmr_create_for_ep(ends[B].pz).unwrap();
    let far = ias.bind(&ends[B], rmr, &mems[B].seg(0, 64), MemPriv::REMOTE);
    assert_eq!(ias.b.rmr_query(rmr).unwrap().scope, RmrScope::Ep);
    assert!(ias.allowed(&ends, Try::Write, mems[A].seg(0, 64), far));
    ias.fill(&mems[B], 0, &pattern(B, 64));
    assert!(!ias.allowed(&others, Try::Write, mem.seg(0, 64), far));
    assert!(!ias.allowed(&others, Try::Read, mem.seg(0, 64), far));
    assert_eq!(ias.bytes(&mems[B], 0, 64), pattern(B, 64));
    assert!(ias.allowed(&ends, Try::Read, mems[A].seg(0, 64), far));
}

/// While it is bound on one Endpoint, a bind on another is `INVALID_STATE`; when it is unbound it
/// may move.
pub fn an_own_rmr_moves_when_it_is_unbound(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = ias.armed();
    let (others, mem) = beside(ias, &ends[B]);
    let rmr = ias.b.rmr_create_for_ep(ends[B].pz).unwrap();
    let range = mems[B].seg(0, 64);
    ias.bind(&ends[B], rmr, &range, MemPriv::REMOTE);
    for range in [range, LmrTriplet::default()] {
        let bound = ias.b.rmr_bind(rmr, &range, MemPriv::REMOTE, others[B].ep, 1, NONE);
        refused(bound, Ty::InvalidState, Sub::None);
    }
    ias.bind(&ends[B], rmr, &LmrTriplet::default(), MemPriv::empty());
    let far = ias.bind(&others[B], rmr, &range, MemPriv::REMOTE);
    assert!(ias.allowed(&others, Try::Read, mem.seg(0, 64), far));
    assert!(!ias.allowed(&ends, Try::Read, mems[A].seg(0, 64), far));
}

/// It can be bound anew while it is bound, under another context, and zero-based.
pub fn an_own_rmr_is_bound_anew(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = ias.armed();
    let rmr = ias.b.rmr_create_for_ep(ends[B].pz).unwrap();
    let mut old = None;
    for round in 0..4 {
        let va_type = if round % 2 == 0 { VaType::Va } else { VaType::Zb };
        let range = mems[B].seg(64 * round, 64);
        let far = ias.bind_as(&ends[B], rmr, &range, MemPriv::REMOTE, va_type);
        if let Some(old) = old.replace(far) {
            assert_ne!(old.context & 0xff, far.context & 0xff);
            assert!(!ias.allowed(&ends, Try::Write, mems[A].seg(0, 64), old));
            // The connection that this broke took the bind with it.
            assert_eq!(ias.b.rmr_query(rmr).unwrap().bound, None);
            old_again(ias, &ends[B], rmr, &range, va_type);
        } else {
            assert!(ias.allowed(&ends, Try::Write, mems[A].seg(0, 64), far));
        }
    }
}

/// Binds twice in a row on the same connection.
#[track_caller]
fn old_again(
    ias: &mut Adapters<'_, impl Side>,
    end: &End,
    rmr: dat_core::Rmr,
    range: &LmrTriplet,
    va_type: VaType,
) {
    let one = ias.bind_as(end, rmr, range, MemPriv::REMOTE, va_type);
    let two = ias.bind_as(end, rmr, range, MemPriv::REMOTE, va_type);
    assert_ne!(one.context & 0xff, two.context & 0xff);
}

/// Reset and free of the Endpoint unbind it: its context is dead, the region is free of it, and it
/// may be bound on another.
pub fn an_own_rmr_ends_with_its_endpoint(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = ias.armed();
    let rmr = ias.b.rmr_create_for_ep(ends[B].pz).unwrap();
    let range = mems[B].seg(0, 64);
    let old = ias.bind(&ends[B], rmr, &range, MemPriv::REMOTE);
    ias.disconnect(&ends[A], CloseFlag::Graceful);
    ias.mend(&ends);
    assert_eq!(ias.b.rmr_query(rmr).unwrap().bound, None);
    assert!(!ias.allowed(&ends, Try::Write, mems[A].seg(0, 64), old));
    let (others, _) = beside(ias, &ends[B]);
    let old = ias.bind(&others[B], rmr, &range, MemPriv::REMOTE);
    let now = ias.now();
    ias.b.ep_free(now, others[B].ep).unwrap();
    ias.until(|ias| (ias.state(&others[A]) == EpState::Disconnected).then_some(()));
    assert_eq!(ias.b.rmr_query(rmr).unwrap().bound, None);
    assert!(!ias.allowed(&ends, Try::Write, mems[A].seg(0, 64), old));
    assert_eq!(ias.bytes(&mems[B], 0, 64), pattern(B, 8192)[..64]);
    ias.b.lmr_free(mems[B].lmr.lmr).unwrap();
}

/// Range, privileges and zone are checked as for any other, and free is allowed while it is bound.
pub fn an_own_rmr_keeps_the_rules_of_binds(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = ias.armed();
    let rmr = ias.b.rmr_create_for_ep(ends[B].pz).unwrap();
    let (ep, range) = (ends[B].ep, mems[B].seg(0, 64));
    let outside = LmrTriplet { len: 8193, ..range };
    let bound = ias.b.rmr_bind(rmr, &outside, MemPriv::REMOTE, ep, 1, NONE);
    refused(bound, Ty::InvalidParameter, Sub::InvalidArg3);
    let none = ias.mem(B, ends[B].pz, 64, MemPriv::empty());
    let bound = ias.b.rmr_bind(rmr, &none.seg(0, 64), MemPriv::REMOTE_READ, ep, 1, NONE);
    refused(bound, Ty::PrivilegesViolation, Sub::PrivilegesRdmaRead);
    let far = ias.bind(&ends[B], rmr, &range, MemPriv::REMOTE);
    refused(ias.b.lmr_free(mems[B].lmr.lmr), Ty::InvalidState, Sub::InvalidStateLmrInUse);
    ias.b.rmr_free(rmr).unwrap();
    assert!(!ias.allowed(&ends, Try::Write, mems[A].seg(0, 64), far));
    ias.b.lmr_free(mems[B].lmr.lmr).unwrap();
}

/// The peer closes it with a send: the receive says so and names the context, which is dead from
/// then on; the region is free of it, and it may be bound anew. The connection goes on.
pub fn a_peer_closes_an_own_rmr_with_a_send(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = ias.armed();
    let rmr = ias.b.rmr_create_for_ep(ends[B].pz).unwrap();
    let range = mems[B].seg(0, 64);
    for round in 0..3 {
        let far = ias.bind(&ends[B], rmr, &range, MemPriv::REMOTE);
        assert!(ias.allowed(&ends, Try::Read, mems[A].seg(4096, 64), far));
        ias.recv(&ends[B], &mems[B], 4096, 64, round);
        let close = Some(far.context);
        ias.a
            .ep_post_send_with_invalidate(ends[A].ep, &[mems[A].seg(0, 9)], 7, NONE, close)
            .unwrap();
        let dto = ias.dto(B, ends[B].recv);
        assert_eq!(
            (dto.ep, dto.cookie, dto.status, dto.len),
            (ends[B].ep, round, DtoStatus::Success, 9)
        );
        assert_eq!(dto.operation, DtoOperation::ReceiveWithInvalidate);
        let extension = ias.b.evd_extension(ends[B].recv).unwrap();
        assert_eq!((extension.arrived, extension.immediate), (Arrived::Invalidation, far.context));
        ias.done(&ends[A], DtoOperation::Send, 7);
        assert_eq!(ias.bytes(&mems[B], 4096, 9), pattern(A, 9));
        assert_eq!(ias.b.rmr_query(rmr).unwrap().bound, None);
        assert_eq!(ias.state(&ends[A]), EpState::Connected);
        // This breaks the connection, and it is made anew.
        assert!(!ias.allowed(&ends, Try::Write, mems[A].seg(0, 64), far));
    }
    assert_eq!(ias.bytes(&mems[B], 0, 64), pattern(B, 8192)[..64]);
    ias.b.lmr_free(mems[B].lmr.lmr).unwrap();
}

/// An unbind that comes back flushed has unbound nothing: the RMR stays with its Endpoint until
/// that is reset, and a bind on another one is refused before it can break a connection.
pub fn an_own_rmr_whose_unbind_was_flushed_stays(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = ias.armed();
    let rmr = ias.b.rmr_create_for_ep(ends[B].pz).unwrap();
    let (others, mem) = beside(ias, &ends[B]);
    let range = mems[B].seg(0, 64);
    ias.bind(&ends[B], rmr, &range, MemPriv::REMOTE);
    let far = mems[A].far(0, 8);
    let wrong = RmrTriplet { context: far.context ^ 0xff, ..far };
    let (ep, other) = (ends[B].ep, others[B].ep);
    ias.b.ep_post_rdma_write(ep, &[mems[B].seg(0, 8)], 1, &wrong, NONE).unwrap();
    let nothing = LmrTriplet::default();
    let unbound = ias.b.rmr_bind(rmr, &nothing, MemPriv::empty(), ep, 2, NONE);
    unbound.unwrap();
    assert_eq!(ias.dto(B, ends[B].request).status, DtoStatus::ErrRemoteAccess);
    let flushed = Event::RmrBind { rmr, cookie: 2, status: DtoStatus::ErrFlushed };
    assert_eq!(ias.event(B, ends[B].request), flushed);
    for _ in 0..2 {
        let bound = ias.b.rmr_bind(rmr, &range, MemPriv::REMOTE, other, 3, NONE);
        refused(bound, Ty::InvalidState, Sub::None);
        // The first time no event has reported the break yet.
        ias.until(|ias| (ias.state(&ends[B]) == EpState::Disconnected).then_some(()));
    }
    assert_eq!(ias.state(&others[B]), EpState::Connected);
    ias.mend(&ends);
    let far = ias.bind(&others[B], rmr, &range, MemPriv::REMOTE);
    assert!(ias.allowed(&others, Try::Write, mem.seg(0, 64), far));
}
