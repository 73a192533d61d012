//! Creation, query and the end of an RMR.

use dat_core::{
    CompletionFlags, DatSubtype as Sub, DatType as Ty, DtoStatus, EpState, Event, LmrTriplet,
    MemPriv, PhysicalPages, Pz, Rmr, RmrScope, VaType,
};

use crate::conformance::reach::{Try, pattern};
use crate::conformance::{A, Adapters, B, End, NONE, Side, refused};

/// `dat_rmr_create` works wherever the attributes say that there are RMRs.
pub fn fault_02_windows_exist(ias: &mut Adapters<'_, impl Side>) {
    assert!(ias.a.query().0.max_rmrs > 0);
    assert_eq!(ias.a.query().1.rmr_scope_supported, 2);
    let pz = ias.a.pz_create().unwrap();
    let one = ias.a.rmr_create(pz).unwrap();
    let two = ias.a.rmr_create(pz).unwrap();
    assert_ne!(one, two);
    for rmr in [one, two] {
        ias.a.rmr_free(rmr).unwrap();
    }
}

/// Query of a new one: its zone, bound to nothing, no privileges, the scope it was made with.
pub fn a_new_rmr_is_bound_to_nothing(ias: &mut Adapters<'_, impl Side>) {
    let pz = ias.a.pz_create().unwrap();
    let rmr = ias.a.rmr_create(pz).unwrap();
    let own = ias.a.rmr_create_for_ep(pz).unwrap();
    for (rmr, scope) in [(rmr, RmrScope::Pz), (own, RmrScope::Ep)] {
        let param = ias.a.rmr_query(rmr).unwrap();
        assert_eq!((param.pz, param.bound, param.scope), (pz, None, scope));
        assert!(param.privileges.is_empty());
    }
}

/// A zone that is freed or of another adapter is `INVALID_HANDLE`, PZ.
pub fn zones_of_others_are_refused(ias: &mut Adapters<'_, impl Side>) {
    let theirs = ias.b.pz_create().unwrap();
    let pz = ias.a.pz_create().unwrap();
    ias.a.pz_free(pz).unwrap();
    for bad in [pz, theirs, Pz::from_raw(0)] {
        let (ty, subtype) = (Ty::InvalidHandle, Sub::InvalidHandlePz);
        refused(ias.a.rmr_create(bad), ty, subtype);
        refused(ias.a.rmr_create_for_ep(bad), ty, subtype);
    }
}

/// There are as many as the attributes say; one more is `INSUFFICIENT_RESOURCES`.
pub fn as_many_windows_as_there_is_room_for(ias: &mut Adapters<'_, impl Side>) {
    let most = ias.a.query().0.max_rmrs;
    let pz = ias.a.pz_create().unwrap();
    let mut all = Vec::new();
    for _ in 0..most {
        all.push(ias.a.rmr_create(pz).unwrap());
    }
    refused(ias.a.rmr_create(pz), Ty::InsufficientResources, Sub::ResourceMemoryRegion);
    ias.a.rmr_free(all[0]).unwrap();
    ias.a.rmr_create_for_ep(pz).unwrap();
}

/// A zone cannot go while an RMR is in it.
pub fn a_zone_is_held_by_its_rmrs(ias: &mut Adapters<'_, impl Side>) {
    let pz = ias.a.pz_create().unwrap();
    for own in [false, true] {
        let rmr =
            if own { ias.a.rmr_create_for_ep(pz).unwrap() } else { ias.a.rmr_create(pz).unwrap() };
        refused(ias.a.pz_free(pz), Ty::InvalidState, Sub::InvalidStatePzInUse);
        ias.a.rmr_free(rmr).unwrap();
    }
    ias.a.pz_free(pz).unwrap();
}

/// Query tells the range, the privileges, the context, the scope and the type of addresses of the
/// newest bind.
pub fn query_tells_what_is_bound(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = ias.armed();
    let rmr = ias.b.rmr_create(ends[B].pz).unwrap();
    for (range, rights, va_type) in [
        (mems[B].seg(64, 100), MemPriv::REMOTE_READ, VaType::Va),
        (mems[B].seg(0, 8192), MemPriv::REMOTE, VaType::Zb),
        (mems[B].seg(1, 1), MemPriv::REMOTE_WRITE, VaType::Va),
    ] {
        let far = ias.bind_as(&ends[B], rmr, &range, rights, va_type);
        let param = ias.b.rmr_query(rmr).unwrap();
        assert_eq!((param.pz, param.scope), (ends[B].pz, RmrScope::Pz));
        assert_eq!((param.bound, param.va_type), (Some(range), va_type));
        assert_eq!((param.privileges, param.rmr_context), (rights, far.context));
    }
    ias.bind(&ends[B], rmr, &LmrTriplet::default(), MemPriv::empty());
    assert_eq!(ias.b.rmr_query(rmr).unwrap().bound, None);
    refused(ias.b.rmr_query(Rmr::from_raw(0)), Ty::InvalidHandle, Sub::InvalidHandleRmr);
}

/// A bound RMR can be freed: when the call returns, its context is dead, and a peer that uses it
/// gets REMOTE_ACCESS and a broken connection.
pub fn fault_33_bound_rmrs_can_be_freed(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = ias.armed();
    let rmr = ias.b.rmr_create(ends[B].pz).unwrap();
    let far = ias.bind(&ends[B], rmr, &mems[B].seg(0, 64), MemPriv::REMOTE);
    assert!(ias.allowed(&ends, Try::Read, mems[A].seg(4096, 64), far));
    ias.b.rmr_free(rmr).unwrap();
    let status = ias.reach(&ends[A], Try::Write, mems[A].seg(0, 64), far);
    assert_eq!(status, DtoStatus::ErrRemoteAccess);
    for end in &ends {
        let event = ias.event(end.side, end.conn);
        assert!(matches!(event, Event::Broken(_) | Event::Disconnected(_)));
        assert_eq!(ias.state(end), EpState::Disconnected);
    }
    assert_eq!(ias.bytes(&mems[B], 0, 64), pattern(B, 8192)[..64]);
    refused(ias.b.rmr_free(rmr), Ty::InvalidHandle, Sub::InvalidHandleRmr);
    refused(ias.b.rmr_query(rmr), Ty::InvalidHandle, Sub::InvalidHandleRmr);
}

/// The region beneath a freed RMR can go, and so can the zone.
pub fn free_of_a_bound_rmr_lets_its_region_go(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = ias.armed();
    for own in [false, true] {
        let pz = ends[B].pz;
        let rmr =
            if own { ias.b.rmr_create_for_ep(pz).unwrap() } else { ias.b.rmr_create(pz).unwrap() };
        let region = mems[B].lmr.region;
        let lmr = ias.b.lmr_create(pz, region, MemPriv::ALL).unwrap();
        let range = LmrTriplet { context: lmr.lmr_context, ..mems[B].seg(0, 64) };
        ias.bind(&ends[B], rmr, &range, MemPriv::REMOTE);
        ias.b.rmr_free(rmr).unwrap();
        ias.b.lmr_free(lmr.lmr).unwrap();
    }
}

/// The bind is over a region whose registration the device does not have yet: it fails there, after
/// it was queued. (The model refuses a window over a key that is not in use; no manual
/// of a card says whether that looks as early.)
pub fn a_bind_that_fails_after_it_was_queued_breaks_the_connection(
    ias: &mut Adapters<'_, impl Side>,
) {
    ias.refusing = true;
    let ends = ias.connected();
    let there = ias.end(B);
    let later = ias.b.ep_create(
        Some(ends[B].pz),
        Some(there.recv),
        Some(there.request),
        Some(there.conn),
        None,
    );
    let here = ias.end(A);
    let later = End { pz: ends[B].pz, ep: later.unwrap(), ..there };
    ias.connect(&here, &later);
    let lmr = ias.b.lmr_allocate(ends[B].pz, 1).unwrap();
    let mem = ias.mem(B, ends[B].pz, 4096, MemPriv::ALL);
    let pages = ias.b.side.pages(mem.lmr.region);
    let memory = PhysicalPages { pages: &pages, log_page: 12, len: 4096 };
    let (rights, va, defer) = (MemPriv::ALL, VaType::Zb, CompletionFlags::DEFER);
    let contexts = ias.b.lmr_fmr(lmr, memory, rights, va, later.ep, 1, defer).unwrap();
    let range = LmrTriplet { addr: 0, len: 64, context: contexts.lmr_context };
    let rmr = ias.b.rmr_create(ends[B].pz).unwrap();
    let (ep, receive) = (ends[B].ep, mem.seg(0, 8));
    ias.b.ep_post_recv(ep, &[receive], 4, NONE).unwrap();
    ias.b.rmr_bind(rmr, &range, MemPriv::REMOTE, ep, 5, NONE).unwrap();
    ias.b.ep_post_send(ep, &[receive], 6, NONE).unwrap();
    assert_eq!(
        ias.event(B, ends[B].request),
        Event::RmrBind { rmr, cookie: 5, status: DtoStatus::RmrOperationFailed }
    );
    for (evd, cookie) in [(ends[B].request, 6), (ends[B].recv, 4)] {
        let dto = ias.dto(B, evd);
        assert_eq!((dto.cookie, dto.status), (cookie, DtoStatus::ErrFlushed));
    }
    ias.broken(B, ends[B].conn, ep);
    assert_eq!(ias.state(&ends[B]), EpState::Disconnected);
    assert!(ias.b.ep_cause(ep).unwrap().is_some());
}
