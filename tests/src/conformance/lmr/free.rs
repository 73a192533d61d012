//! The end of a region.

use dat_core::{
    CompletionFlags, DatSubtype as Sub, DatType as Ty, DtoStatus, EpState, Event, LmrTriplet,
    MemPriv,
};

use crate::conformance::reach::{Try, pattern};
use crate::conformance::{A, B, Bed, NONE, Side, refused};

/// While an RMR is bound to it: `INVALID_STATE`, LMR_IN_USE, and all works on. When the RMR is
/// unbound or freed it can go.
pub fn free_is_refused_while_an_rmr_is_bound(bed: &mut Bed<'_, impl Side>) {
    let (ends, mems) = bed.armed();
    let lmr = mems[B].lmr.lmr;
    let rmr = bed.b.rmr_create(ends[B].pz).unwrap();
    let far = bed.bind(&ends[B], rmr, &mems[B].seg(0, 64), MemPriv::REMOTE_WRITE);
    refused(bed.b.lmr_free(lmr), Ty::InvalidState, Sub::InvalidStateLmrInUse);
    assert!(bed.allowed(&ends, Try::Write, mems[A].seg(0, 64), far));
    bed.bind(&ends[B], rmr, &LmrTriplet::default(), MemPriv::empty());
    bed.b.lmr_free(lmr).unwrap();
}

/// A local post that names a freed LMR is refused: its context is unknown.
pub fn a_freed_region_is_closed_to_local_posts(bed: &mut Bed<'_, impl Side>) {
    let (ends, mems) = bed.armed();
    bed.a.lmr_free(mems[A].lmr.lmr).unwrap();
    let (ep, segment) = (ends[A].ep, [mems[A].seg(0, 64)]);
    refused(
        bed.a.ep_post_send(ep, &segment, 1, NONE),
        Ty::PrivilegesViolation,
        Sub::PrivilegesRead,
    );
    refused(
        bed.a.ep_post_recv(ep, &segment, 1, NONE),
        Ty::PrivilegesViolation,
        Sub::PrivilegesWrite,
    );
    assert_eq!(bed.state(&ends[A]), EpState::Connected);
}

/// A peer that uses the `rmr_context` of a freed LMR gets REMOTE_ACCESS, and the connection breaks
/// on both sides.
pub fn a_freed_region_is_closed_to_peers(bed: &mut Bed<'_, impl Side>) {
    let (ends, mems) = bed.armed();
    let far = mems[B].far(0, 64);
    bed.b.lmr_free(mems[B].lmr.lmr).unwrap();
    let status = bed.reach(&ends[A], Try::Write, mems[A].seg(0, 64), far);
    assert_eq!(status, DtoStatus::ErrRemoteAccess);
    for end in &ends {
        let event = bed.event(end.side, end.conn);
        assert!(
            matches!(event, Event::Broken(ep) | Event::Disconnected(ep) if ep == end.ep),
            "{event:?}"
        );
        assert_eq!(bed.state(end), EpState::Disconnected);
    }
    assert_eq!(bed.bytes(&mems[B], 0, 64), pattern(B, 8192)[..64]);
}

/// Use of a freed handle, a second free too, is `INVALID_HANDLE`, LMR.
pub fn a_freed_handle_is_stale(bed: &mut Bed<'_, impl Side>) {
    let pz = bed.a.pz_create().unwrap();
    let mem = bed.mem(A, pz, 64, MemPriv::ALL);
    bed.a.lmr_free(mem.lmr.lmr).unwrap();
    for _ in 0..2 {
        refused(bed.a.lmr_free(mem.lmr.lmr), Ty::InvalidHandle, Sub::InvalidHandleLmr);
        refused(bed.a.lmr_query(mem.lmr.lmr), Ty::InvalidHandle, Sub::InvalidHandleLmr);
        // Nor does it name what comes after it.
        bed.a.lmr_create(pz, mem.lmr.region, MemPriv::ALL).unwrap();
    }
}

/// A zone cannot go while a region is in it.
pub fn a_zone_is_held_by_its_regions(bed: &mut Bed<'_, impl Side>) {
    let pz = bed.a.pz_create().unwrap();
    let mem = bed.mem(A, pz, 64, MemPriv::ALL);
    refused(bed.a.pz_free(pz), Ty::InvalidState, Sub::InvalidStatePzInUse);
    bed.a.lmr_free(mem.lmr.lmr).unwrap();
    bed.a.pz_free(pz).unwrap();
}

/// Free takes the registration, not the memory: the bytes are there, and can be registered again.
pub fn free_leaves_the_memory_as_it_is(bed: &mut Bed<'_, impl Side>) {
    let pz = bed.a.pz_create().unwrap();
    let mem = bed.mem(A, pz, 256, MemPriv::ALL);
    bed.fill(&mem, 0, &pattern(A, 256));
    bed.a.lmr_free(mem.lmr.lmr).unwrap();
    assert_eq!(bed.bytes(&mem, 0, 256), pattern(A, 256));
    bed.a.lmr_create(pz, mem.lmr.region, MemPriv::ALL).unwrap();
}

/// The contexts of a region are no others' after it, even if that has its place.
pub fn keys_of_one_slot_differ(bed: &mut Bed<'_, impl Side>) {
    let (ends, mems) = bed.armed();
    let far = mems[B].far(0, 64);
    bed.b.lmr_free(mems[B].lmr.lmr).unwrap();
    let region = mems[B].lmr.region;
    let again = bed.b.lmr_create(ends[B].pz, region, MemPriv::ALL).unwrap();
    assert_ne!(again.lmr_context, mems[B].lmr.lmr_context);
    // The low byte is drawn; a draw may repeat, and then nothing tells the two apart.
    if again.rmr_context != far.context {
        assert!(!bed.allowed(&ends, Try::Write, mems[A].seg(0, 64), far));
        assert_eq!(bed.bytes(&mems[B], 0, 64), pattern(B, 8192)[..64]);
    }
    let segment = [mems[B].seg(0, 64)];
    let posted = bed.b.ep_post_recv(ends[B].ep, &segment, 1, CompletionFlags::empty());
    refused(posted, Ty::PrivilegesViolation, Sub::PrivilegesWrite);
}
