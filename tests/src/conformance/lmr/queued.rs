//! kDAPL: fast registration and local invalidate, as queued requests.

use dat_core::{
    CloseFlag, CompletionFlags, Contexts, DatSubtype as Sub, DatType as Ty, DtoOperation,
    DtoStatus, EpState, Error, Lmr, LmrTriplet, MemPriv, PhysicalPages, RmrTriplet, VaType,
};

use crate::conformance::reach::{Try, pattern};
use crate::conformance::{A, Adapters, B, End, Mem, NONE, Side, refused};

/// Posts the registration of the whole of `mem`, zero-based.
fn register(
    ias: &mut Adapters<'_, impl Side>,
    end: &End,
    lmr: Lmr,
    mem: &Mem,
    flags: CompletionFlags,
) -> Result<Contexts, Error> {
    let party = &mut ias[end.side];
    let pages = party.side.pages(mem.lmr.region);
    let memory = PhysicalPages { pages: &pages, log_page: 12, len: mem.lmr.region.len };
    party.ia.lmr_fmr(lmr, memory, MemPriv::ALL, VaType::Zb, end.ep, 11, flags)
}

#[track_caller]
fn registered(ias: &mut Adapters<'_, impl Side>, end: &End, lmr: Lmr, mem: &Mem) -> Contexts {
    let contexts = register(ias, end, lmr, mem, NONE).unwrap();
    ias.done(end, DtoOperation::LmrFmr, 11);
    contexts
}

#[track_caller]
fn invalidated(ias: &mut Adapters<'_, impl Side>, end: &End, lmr: Lmr) {
    ias[end.side].lmr_invalidate(lmr, end.ep, 12, NONE).unwrap();
    ias.done(end, DtoOperation::LmrInvalidate, 12);
}

const fn far(contexts: Contexts, addr: u64) -> RmrTriplet {
    RmrTriplet { addr, len: 64, context: contexts.rmr_context }
}

/// An allocated region has no memory: no contexts, nothing bound, until a request registers some.
pub fn an_allocated_region_opens_nothing(ias: &mut Adapters<'_, impl Side>) {
    let pz = ias.a.pz_create().unwrap();
    let lmr = ias.a.lmr_allocate(pz, 8).unwrap();
    let made = ias.a.lmr_query(lmr).unwrap();
    assert_eq!((made.state.fmr_support, made.state.bound), (true, false));
    assert_eq!((made.rmr_context, made.region.len), (0, 0));
    let segment = LmrTriplet { addr: 0, len: 1, context: made.lmr_context };
    refused(ias.a.lmr_sync_rdma_read(&[segment]), Ty::InvalidParameter, Sub::InvalidArg2);
    refused(ias.a.pz_free(pz), Ty::InvalidState, Sub::InvalidStatePzInUse);
    refused(ias.a.lmr_allocate(pz, 0), Ty::InvalidParameter, Sub::InvalidArg3);
    ias.a.lmr_free(lmr).unwrap();
    ias.a.pz_free(pz).unwrap();
}

/// A registration opens its pages to both sides, the invalidation closes them again; both complete
/// as DTOs.
pub fn a_registration_opens_and_an_invalidation_closes(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = ias.armed();
    let lmr = ias.b.lmr_allocate(ends[B].pz, 4).unwrap();
    for round in 0..3 {
        let contexts = registered(ias, &ends[B], lmr, &mems[B]);
        let made = ias.b.lmr_query(lmr).unwrap();
        assert!(made.state.bound);
        assert_eq!((made.va_type, made.privileges), (VaType::Zb, MemPriv::ALL));
        assert_eq!(made.lmr_context, contexts.lmr_context);
        assert_eq!(made.rmr_context, contexts.rmr_context);
        let local = mems[A].seg(64 * round, 64);
        assert!(ias.allowed(&ends, Try::Write, local, far(contexts, 4064)));
        assert_eq!(ias.bytes(&mems[B], 4064, 64), pattern(A, 8192)[64 * round..64 * round + 64]);
        invalidated(ias, &ends[B], lmr);
        assert!(!ias.b.lmr_query(lmr).unwrap().state.bound);
        let segment = [LmrTriplet { addr: 0, len: 64, context: contexts.lmr_context }];
        let posted = ias.b.ep_post_recv(ends[B].ep, &segment, 1, NONE);
        refused(posted, Ty::PrivilegesViolation, Sub::PrivilegesWrite);
        assert!(!ias.allowed(&ends, Try::Write, local, far(contexts, 0)));
        assert_eq!(ias.bytes(&mems[B], 0, 64), pattern(B, 8192)[..64]);
    }
}

/// Requests posted behind a registration start after it, so they may use it at once; those behind
/// an invalidation find it done.
pub fn a_registration_is_there_for_what_is_posted_behind_it(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = ias.armed();
    let lmr = ias.a.lmr_allocate(ends[A].pz, 4).unwrap();
    ias.recv(&ends[B], &mems[B], 0, 100, 1);
    let contexts = register(ias, &ends[A], lmr, &mems[A], CompletionFlags::SUPPRESS).unwrap();
    let segment = [LmrTriplet { addr: 4050, len: 100, context: contexts.lmr_context }];
    let fence = CompletionFlags::LMR_INVALIDATE_FENCE;
    ias.a.ep_post_send(ends[A].ep, &segment, 2, fence).unwrap();
    ias.a.lmr_invalidate(lmr, ends[A].ep, 12, fence).unwrap();
    // The registration was to succeed in silence.
    ias.done(&ends[A], DtoOperation::Send, 2);
    ias.done(&ends[A], DtoOperation::LmrInvalidate, 12);
    assert_eq!(ias.done(&ends[B], DtoOperation::Receive, 1), 100);
    assert_eq!(ias.bytes(&mems[B], 0, 100), pattern(A, 8192)[4050..4150]);
}

/// More pages than were allocated for, none, pages that are not whole, and an LMR of another kind
/// are `INVALID_PARAMETER`.
pub fn a_registration_of_more_pages_than_allocated_is_refused(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = ias.armed();
    let pz = ends[B].pz;
    let small = ias.b.lmr_allocate(pz, 1).unwrap();
    refused(register(ias, &ends[B], small, &mems[B], NONE), Ty::InvalidParameter, Sub::InvalidArg3);
    refused(
        register(ias, &ends[B], mems[B].lmr.lmr, &mems[B], NONE),
        Ty::InvalidParameter,
        Sub::InvalidArg1,
    );
    let invalid = ias.b.lmr_invalidate(mems[B].lmr.lmr, ends[B].ep, 1, NONE);
    refused(invalid, Ty::InvalidParameter, Sub::InvalidArg1);
    let pages = ias.b.side.pages(mems[B].lmr.region);
    let nothing = PhysicalPages { pages: &pages[..1], log_page: 12, len: 0 };
    let ep = ends[B].ep;
    let made = ias.b.lmr_fmr(small, nothing, MemPriv::ALL, VaType::Va, ep, 1, NONE);
    refused(made, Ty::LengthError, Sub::None);
    let one = PhysicalPages { len: 4096, ..nothing };
    let rights = MemPriv::REMOTE_WRITE;
    let made = ias.b.lmr_fmr(small, one, rights, VaType::Va, ep, 1, NONE);
    refused(made, Ty::PrivilegesViolation, Sub::PrivilegesWrite);
    assert!(!ias.b.lmr_query(small).unwrap().state.bound);
}

/// While it is open it cannot be registered anew; while a request on it is under way it cannot be
/// freed, nor be invalidated on another Endpoint, whose requests are in no order with it.
pub fn one_registration_at_a_time(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = ias.armed();
    let lmr = ias.b.lmr_allocate(ends[B].pz, 4).unwrap();
    register(ias, &ends[B], lmr, &mems[B], NONE).unwrap();
    // Its completion has not been dequeued.
    refused(ias.b.lmr_free(lmr), Ty::InvalidState, Sub::InvalidStateLmrInUse);
    let End { pz, recv, request, conn, .. } = ends[B];
    let evds = [recv, request, conn].map(Some);
    let another = ias.b.ep_create(Some(pz), evds[0], evds[1], evds[2], None);
    refused(
        ias.b.lmr_invalidate(lmr, another.unwrap(), 1, NONE),
        Ty::InvalidState,
        Sub::InvalidStateLmrInUse,
    );
    ias.done(&ends[B], DtoOperation::LmrFmr, 11);
    refused(
        register(ias, &ends[B], lmr, &mems[B], NONE),
        Ty::InvalidState,
        Sub::InvalidStateLmrInUse,
    );
    invalidated(ias, &ends[B], lmr);
    registered(ias, &ends[B], lmr, &mems[B]);
    // An open one can be freed, and is closed then.
    ias.b.lmr_free(lmr).unwrap();
}

/// Invalidating what is not open is `INVALID_STATE`, LMR_FREE; while an RMR is bound to it,
/// LMR_IN_USE.
pub fn states_of_an_allocated_region(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = ias.armed();
    let (pz, ep) = (ends[B].pz, ends[B].ep);
    let lmr = ias.b.lmr_allocate(pz, 4).unwrap();
    refused(ias.b.lmr_invalidate(lmr, ep, 1, NONE), Ty::InvalidState, Sub::InvalidStateLmrFree);
    let contexts = registered(ias, &ends[B], lmr, &mems[B]);
    let rmr = ias.b.rmr_create(pz).unwrap();
    let range = LmrTriplet { addr: 4000, len: 200, context: contexts.lmr_context };
    let window = ias.bind(&ends[B], rmr, &range, MemPriv::REMOTE_WRITE);
    refused(ias.b.lmr_invalidate(lmr, ep, 1, NONE), Ty::InvalidState, Sub::InvalidStateLmrInUse);
    let to = RmrTriplet { len: 64, ..window };
    assert!(ias.allowed(&ends, Try::Write, mems[A].seg(0, 64), to));
    assert_eq!(ias.bytes(&mems[B], 4000, 64), pattern(A, 8192)[..64]);
    ias.b.rmr_free(rmr).unwrap();
    invalidated(ias, &ends[B], lmr);
}

/// Both calls follow the states of requests: refused without a connection, flushed in DISCONNECTED,
/// where they change nothing.
pub fn edits_are_refused_and_flushed_as_other_requests(ias: &mut Adapters<'_, impl Side>) {
    let end = ias.end(A);
    let mem = ias.mem(A, end.pz, 8192, MemPriv::ALL);
    let lmr = ias.a.lmr_allocate(end.pz, 4).unwrap();
    refused(register(ias, &end, lmr, &mem, NONE), Ty::InvalidState, Sub::InvalidStateEpUnconnected);
    let there = ias.end(B);
    ias.connect(&end, &there);
    ias.disconnect(&end, CloseFlag::Abrupt);
    ias.until(|ias| (ias.state(&end) == EpState::Disconnected).then_some(()));
    register(ias, &end, lmr, &mem, NONE).unwrap();
    let dto = ias.dto(A, end.request);
    assert_eq!((dto.operation, dto.cookie), (DtoOperation::LmrFmr, 11));
    assert_eq!(dto.status, DtoStatus::ErrFlushed);
    assert!(!ias.a.lmr_query(lmr).unwrap().state.bound);
    ias.a.lmr_free(lmr).unwrap();
}

/// Endpoint and region have to be of one zone; flags that are not of requests are refused.
pub fn edits_keep_the_rules_of_zones_and_flags(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = ias.armed();
    let other = ias.b.pz_create().unwrap();
    let lmr = ias.b.lmr_allocate(other, 4).unwrap();
    refused(register(ias, &ends[B], lmr, &mems[B], NONE), Ty::ProtectionViolation, Sub::None);
    let lmr = ias.b.lmr_allocate(ends[B].pz, 4).unwrap();
    refused(
        register(ias, &ends[B], lmr, &mems[B], CompletionFlags::EVD_THRESHOLD),
        Ty::InvalidParameter,
        Sub::InvalidArg9,
    );
    registered(ias, &ends[B], lmr, &mems[B]);
    let flags = CompletionFlags::EVD_THRESHOLD;
    refused(
        ias.b.lmr_invalidate(lmr, ends[B].ep, 1, flags),
        Ty::InvalidParameter,
        Sub::InvalidArg4,
    );
    assert!(ias.b.lmr_query(lmr).unwrap().state.bound);
}

/// Each registration has contexts of its own; those before it are dead.
pub fn contexts_of_registrations_differ(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = ias.armed();
    let lmr = ias.b.lmr_allocate(ends[B].pz, 4).unwrap();
    let mut old: Vec<Contexts> = Vec::new();
    for _ in 0..5 {
        let new = registered(ias, &ends[B], lmr, &mems[B]);
        assert!(old.iter().all(|old| old.lmr_context != new.lmr_context));
        if let Some(last) = old.last() {
            assert_ne!(last.rmr_context, new.rmr_context);
            assert!(!ias.allowed(&ends, Try::Write, mems[A].seg(0, 64), far(*last, 0)));
        }
        old.push(new);
        invalidated(ias, &ends[B], lmr);
    }
    assert_eq!(ias.bytes(&mems[B], 0, 64), pattern(B, 8192)[..64]);
}
