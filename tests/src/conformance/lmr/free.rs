//! The end of a region.

use dat_core::{
    CompletionFlags, DatSubtype as Sub, DatType as Ty, DtoStatus, EpState, Event, LmrTriplet,
    MemPriv,
};

use crate::conformance::reach::{Try, pattern};
use crate::conformance::{A, Adapters, B, NONE, Side, refused};

/// While an RMR is bound to it: `INVALID_STATE`, LMR_IN_USE, and all works on. When the RMR is
/// unbound or freed it can go.
pub fn free_is_refused_while_an_rmr_is_bound(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = ias.armed();
    let lmr = mems[B].lmr.lmr;
    let rmr = ias.b.rmr_create(ends[B].pz).unwrap();
    let far = ias.bind(&ends[B], rmr, &mems[B].seg(0, 64), MemPriv::REMOTE_WRITE);
    refused(ias.b.lmr_free(lmr), Ty::InvalidState, Sub::InvalidStateLmrInUse);
    assert!(ias.allowed(&ends, Try::Write, mems[A].seg(0, 64), far));
    ias.bind(&ends[B], rmr, &LmrTriplet::default(), MemPriv::empty());
    ias.b.lmr_free(lmr).unwrap();
}

/// A local post that names a freed LMR is refused: its context is unknown.
pub fn a_freed_region_is_closed_to_local_posts(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = ias.armed();
    ias.a.lmr_free(mems[A].lmr.lmr).unwrap();
    let (ep, segment) = (ends[A].ep, [mems[A].seg(0, 64)]);
    refused(
        ias.a.ep_post_send(ep, &segment, 1, NONE),
        Ty::PrivilegesViolation,
        Sub::PrivilegesRead,
    );
    refused(
        ias.a.ep_post_recv(ep, &segment, 1, NONE),
        Ty::PrivilegesViolation,
        Sub::PrivilegesWrite,
    );
    assert_eq!(ias.state(&ends[A]), EpState::Connected);
}

/// A peer that uses the `rmr_context` of a freed LMR gets REMOTE_ACCESS, and the connection breaks
/// on both sides.
pub fn a_freed_region_is_closed_to_peers(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = ias.armed();
    let far = mems[B].far(0, 64);
    ias.b.lmr_free(mems[B].lmr.lmr).unwrap();
    let status = ias.reach(&ends[A], Try::Write, mems[A].seg(0, 64), far);
    assert_eq!(status, DtoStatus::ErrRemoteAccess);
    for end in &ends {
        let event = ias.event(end.side, end.conn);
        assert!(
            matches!(event, Event::Broken(ep) | Event::Disconnected(ep) if ep == end.ep),
            "{event:?}"
        );
        assert_eq!(ias.state(end), EpState::Disconnected);
    }
    assert_eq!(ias.bytes(&mems[B], 0, 64), pattern(B, 8192)[..64]);
}

/// Use of a freed handle, a second free too, is `INVALID_HANDLE`, LMR.
pub fn a_freed_handle_is_stale(ias: &mut Adapters<'_, impl Side>) {
    let pz = ias.a.pz_create().unwrap();
    let mem = ias.mem(A, pz, 64, MemPriv::ALL);
    ias.a.lmr_free(mem.lmr.lmr).unwrap();
    for _ in 0..2 {
        refused(ias.a.lmr_free(mem.lmr.lmr), Ty::InvalidHandle, Sub::InvalidHandleLmr);
        refused(ias.a.lmr_query(mem.lmr.lmr), Ty::InvalidHandle, Sub::InvalidHandleLmr);
        // Nor does it name what comes after it.
        ias.a.lmr_create(pz, mem.lmr.region, MemPriv::ALL).unwrap();
    }
}

/// A zone cannot go while a region is in it.
pub fn a_zone_is_held_by_its_regions(ias: &mut Adapters<'_, impl Side>) {
    let pz = ias.a.pz_create().unwrap();
    let mem = ias.mem(A, pz, 64, MemPriv::ALL);
    refused(ias.a.pz_free(pz), Ty::InvalidState, Sub::InvalidStatePzInUse);
    ias.a.lmr_free(mem.lmr.lmr).unwrap();
    ias.a.pz_free(pz).unwrap();
}

/// Free takes the registration, not the memory: the bytes are there, and can be registered again.
pub fn free_leaves_the_memory_as_it_is(ias: &mut Adapters<'_, impl Side>) {
    let pz = ias.a.pz_create().unwrap();
    let mem = ias.mem(A, pz, 256, MemPriv::ALL);
    ias.fill(&mem, 0, &pattern(A, 256));
    ias.a.lmr_free(mem.lmr.lmr).unwrap();
    assert_eq!(ias.bytes(&mem, 0, 256), pattern(A, 256));
    ias.a.lmr_create(pz, mem.lmr.region, MemPriv::ALL).unwrap();
}

/// The contexts of a region are no others' after it, even if that has its slot.
pub fn keys_of_one_slot_differ(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = ias.armed();
    let far = mems[B].far(0, 64);
    ias.b.lmr_free(mems[B].lmr.lmr).unwrap();
    let region = mems[B].lmr.region;
    let again = ias.b.lmr_create(ends[B].pz, region, MemPriv::ALL).unwrap();
    assert_ne!(again.lmr_context, mems[B].lmr.lmr_context);
    // The low byte is random; it may repeat, and then the two cannot be distinguished.
    if again.rmr_context != far.context {
        assert!(!ias.allowed(&ends, Try::Write, mems[A].seg(0, 64), far));
        assert_eq!(ias.bytes(&mems[B], 0, 64), pattern(B, 8192)[..64]);
    }
    let segment = [mems[B].seg(0, 64)];
    let posted = ias.b.ep_post_recv(ends[B].ep, &segment, 1, CompletionFlags::empty());
    refused(posted, Ty::PrivilegesViolation, Sub::PrivilegesWrite);
}
