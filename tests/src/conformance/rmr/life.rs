//! Creation, query and the end of an RMR.

use dat_core::{
    CompletionFlags, DatSubtype as Sub, DatType as Ty, DtoStatus, EpState, Event, LmrTriplet,
    MemPriv, PhysicalPages, Pz, Rmr, RmrScope, VaType,
};

use crate::conformance::reach::{Try, pattern};
use crate::conformance::{A, B, Bed, End, NONE, Side, refused};

/// `dat_rmr_create` works wherever the attributes say that there are RMRs.
pub fn fault_02_windows_exist(bed: &mut Bed<'_, impl Side>) {
    assert!(bed.a.query().0.max_rmrs > 0);
    assert_eq!(bed.a.query().1.rmr_scope_supported, 2);
    let pz = bed.a.pz_create().unwrap();
    let one = bed.a.rmr_create(pz).unwrap();
    let two = bed.a.rmr_create(pz).unwrap();
    assert_ne!(one, two);
    for rmr in [one, two] {
        bed.a.rmr_free(rmr).unwrap();
    }
}

/// Query of a new one: its zone, bound to nothing, no privileges, the scope it was made with.
pub fn a_new_rmr_is_bound_to_nothing(bed: &mut Bed<'_, impl Side>) {
    let pz = bed.a.pz_create().unwrap();
    let rmr = bed.a.rmr_create(pz).unwrap();
    let own = bed.a.rmr_create_for_ep(pz).unwrap();
    for (rmr, scope) in [(rmr, RmrScope::Pz), (own, RmrScope::Ep)] {
        let param = bed.a.rmr_query(rmr).unwrap();
        assert_eq!((param.pz, param.bound, param.scope), (pz, None, scope));
        assert!(param.privileges.is_empty());
    }
}

/// A zone that is freed or of another adapter is `INVALID_HANDLE`, PZ.
pub fn zones_of_others_are_refused(bed: &mut Bed<'_, impl Side>) {
    let theirs = bed.b.pz_create().unwrap();
    let pz = bed.a.pz_create().unwrap();
    bed.a.pz_free(pz).unwrap();
    for bad in [pz, theirs, Pz::from_raw(0)] {
        let (ty, subtype) = (Ty::InvalidHandle, Sub::InvalidHandlePz);
        refused(bed.a.rmr_create(bad), ty, subtype);
        refused(bed.a.rmr_create_for_ep(bad), ty, subtype);
    }
}

/// There are as many as the attributes say; one more is `INSUFFICIENT_RESOURCES`.
pub fn as_many_windows_as_there_is_room_for(bed: &mut Bed<'_, impl Side>) {
    let most = bed.a.query().0.max_rmrs;
    let pz = bed.a.pz_create().unwrap();
    let mut all = Vec::new();
    for _ in 0..most {
        all.push(bed.a.rmr_create(pz).unwrap());
    }
    refused(bed.a.rmr_create(pz), Ty::InsufficientResources, Sub::ResourceMemoryRegion);
    bed.a.rmr_free(all[0]).unwrap();
    bed.a.rmr_create_for_ep(pz).unwrap();
}

/// A zone cannot go while an RMR is in it.
pub fn a_zone_is_held_by_its_rmrs(bed: &mut Bed<'_, impl Side>) {
    let pz = bed.a.pz_create().unwrap();
    for own in [false, true] {
        let rmr =
            if own { bed.a.rmr_create_for_ep(pz).unwrap() } else { bed.a.rmr_create(pz).unwrap() };
        refused(bed.a.pz_free(pz), Ty::InvalidState, Sub::InvalidStatePzInUse);
        bed.a.rmr_free(rmr).unwrap();
    }
    bed.a.pz_free(pz).unwrap();
}

/// Query tells the range, the privileges, the context, the scope and the type of addresses of the
/// newest bind.
pub fn query_tells_what_is_bound(bed: &mut Bed<'_, impl Side>) {
    let (ends, mems) = bed.armed();
    let rmr = bed.b.rmr_create(ends[B].pz).unwrap();
    for (range, rights, va_type) in [
        (mems[B].seg(64, 100), MemPriv::REMOTE_READ, VaType::Va),
        (mems[B].seg(0, 8192), MemPriv::REMOTE, VaType::Zb),
        (mems[B].seg(1, 1), MemPriv::REMOTE_WRITE, VaType::Va),
    ] {
        let far = bed.bind_as(&ends[B], rmr, &range, rights, va_type);
        let param = bed.b.rmr_query(rmr).unwrap();
        assert_eq!((param.pz, param.scope), (ends[B].pz, RmrScope::Pz));
        assert_eq!((param.bound, param.va_type), (Some(range), va_type));
        assert_eq!((param.privileges, param.rmr_context), (rights, far.context));
    }
    bed.bind(&ends[B], rmr, &LmrTriplet::default(), MemPriv::empty());
    assert_eq!(bed.b.rmr_query(rmr).unwrap().bound, None);
    refused(bed.b.rmr_query(Rmr::from_raw(0)), Ty::InvalidHandle, Sub::InvalidHandleRmr);
}

/// A bound RMR can be freed: when the call returns, its context is dead, and a peer that uses it
/// gets REMOTE_ACCESS and a broken connection.
pub fn fault_33_bound_rmrs_can_be_freed(bed: &mut Bed<'_, impl Side>) {
    let (ends, mems) = bed.armed();
    let rmr = bed.b.rmr_create(ends[B].pz).unwrap();
    let far = bed.bind(&ends[B], rmr, &mems[B].seg(0, 64), MemPriv::REMOTE);
    assert!(bed.allowed(&ends, Try::Read, mems[A].seg(4096, 64), far));
    bed.b.rmr_free(rmr).unwrap();
    let status = bed.reach(&ends[A], Try::Write, mems[A].seg(0, 64), far);
    assert_eq!(status, DtoStatus::ErrRemoteAccess);
    for end in &ends {
        let event = bed.event(end.side, end.conn);
        assert!(matches!(event, Event::Broken(_) | Event::Disconnected(_)));
        assert_eq!(bed.state(end), EpState::Disconnected);
    }
    assert_eq!(bed.bytes(&mems[B], 0, 64), pattern(B, 8192)[..64]);
    refused(bed.b.rmr_free(rmr), Ty::InvalidHandle, Sub::InvalidHandleRmr);
    refused(bed.b.rmr_query(rmr), Ty::InvalidHandle, Sub::InvalidHandleRmr);
}

/// The region beneath a freed RMR can go, and so can the zone.
pub fn free_of_a_bound_rmr_lets_its_region_go(bed: &mut Bed<'_, impl Side>) {
    let (ends, mems) = bed.armed();
    for own in [false, true] {
        let pz = ends[B].pz;
        let rmr =
            if own { bed.b.rmr_create_for_ep(pz).unwrap() } else { bed.b.rmr_create(pz).unwrap() };
        let region = mems[B].lmr.region;
        let lmr = bed.b.lmr_create(pz, region, MemPriv::ALL).unwrap();
        let range = LmrTriplet { context: lmr.lmr_context, ..mems[B].seg(0, 64) };
        bed.bind(&ends[B], rmr, &range, MemPriv::REMOTE);
        bed.b.rmr_free(rmr).unwrap();
        bed.b.lmr_free(lmr.lmr).unwrap();
    }
}

/// The bind is over a region whose registration the device has not been told of yet: it fails
/// there, after it was queued. (The model refuses a window over a key that is not in use; no manual
/// of a card says whether that looks as early.)
pub fn a_bind_that_fails_after_it_was_queued_breaks_the_connection(bed: &mut Bed<'_, impl Side>) {
    bed.refusing = true;
    let ends = bed.connected();
    let there = bed.end(B);
    let later = bed.b.ep_create(
        Some(ends[B].pz),
        Some(there.recv),
        Some(there.request),
        Some(there.conn),
        None,
    );
    let here = bed.end(A);
    let later = End { pz: ends[B].pz, ep: later.unwrap(), ..there };
    bed.connect(&here, &later);
    let lmr = bed.b.lmr_allocate(ends[B].pz, 1).unwrap();
    let mem = bed.mem(B, ends[B].pz, 4096, MemPriv::ALL);
    let pages = bed.b.side.pages(mem.lmr.region);
    let memory = PhysicalPages { pages: &pages, log_page: 12, len: 4096 };
    let (rights, va, defer) = (MemPriv::ALL, VaType::Zb, CompletionFlags::DEFER);
    let contexts = bed.b.lmr_fmr(lmr, memory, rights, va, later.ep, 1, defer).unwrap();
    let range = LmrTriplet { addr: 0, len: 64, context: contexts.lmr_context };
    let rmr = bed.b.rmr_create(ends[B].pz).unwrap();
    let (ep, receive) = (ends[B].ep, mem.seg(0, 8));
    bed.b.ep_post_recv(ep, &[receive], 4, NONE).unwrap();
    bed.b.rmr_bind(rmr, &range, MemPriv::REMOTE, ep, 5, NONE).unwrap();
    bed.b.ep_post_send(ep, &[receive], 6, NONE).unwrap();
    assert_eq!(
        bed.event(B, ends[B].request),
        Event::RmrBind { rmr, cookie: 5, status: DtoStatus::RmrOperationFailed }
    );
    for (evd, cookie) in [(ends[B].request, 6), (ends[B].recv, 4)] {
        let dto = bed.dto(B, evd);
        assert_eq!((dto.cookie, dto.status), (cookie, DtoStatus::ErrFlushed));
    }
    bed.broken(B, ends[B].conn, ep);
    assert_eq!(bed.state(&ends[B]), EpState::Disconnected);
    assert!(bed.b.ep_cause(ep).unwrap().is_some());
}
