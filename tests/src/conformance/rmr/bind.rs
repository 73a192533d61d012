//! Binds and unbinds.

use dat_core::{
    CloseFlag, CompletionFlags, DatSubtype as Sub, DatType as Ty, DtoOperation, DtoStatus,
    EpModify, EpState, EvdFlags, Event, LmrTriplet, MemPriv, Memory, PhysicalPages, Rmr,
    RmrTriplet, VaType,
};

use crate::conformance::reach::{Try, pattern};
use crate::conformance::{A, Adapters, B, NONE, Side, refused};

const NOTHING: LmrTriplet = LmrTriplet { addr: u64::MAX, len: 0, context: u32::MAX };

/// A bound range is open to the peer for what the bind grants, and for nothing else.
pub fn a_bind_opens_its_range(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = ias.armed();
    let rmr = ias.b.rmr_create(ends[B].pz).unwrap();
    let local = mems[A].seg(0, 64);
    for rights in [MemPriv::empty(), MemPriv::REMOTE_READ, MemPriv::REMOTE_WRITE, MemPriv::REMOTE] {
        let far = ias.bind(&ends[B], rmr, &mems[B].seg(64, 64), rights);
        for (what, right) in
            [(Try::Read, MemPriv::REMOTE_READ), (Try::Write, MemPriv::REMOTE_WRITE)]
        {
            let before = ias.bytes(&mems[B], 0, 8192);
            let allowed = ias.allowed(&ends, what, local, far);
            assert_eq!(allowed, rights.contains(right), "{what:?} with {rights:?}");
            if !allowed {
                assert_eq!(ias.bytes(&mems[B], 0, 8192), before);
            }
        }
    }
}

/// Not before its first byte, not behind its last, not around either.
pub fn a_bind_opens_not_a_byte_more(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = ias.armed();
    let rmr = ias.b.rmr_create(ends[B].pz).unwrap();
    let far = ias.bind(&ends[B], rmr, &mems[B].seg(100, 50), MemPriv::REMOTE);
    for (offset, len, open) in [
        (0_i64, 50, true),
        (49, 1, true),
        (-1, 1, false),
        (50, 1, false),
        (49, 2, false),
        (-1, 52, false),
    ] {
        let to = RmrTriplet { addr: far.addr.wrapping_add_signed(offset), len, ..far };
        let local = mems[A].seg(0, len as usize);
        let allowed = ias.allowed(&ends, Try::Write, local, to);
        assert_eq!(allowed, open, "{offset}+{len}");
    }
    assert_eq!(ias.bytes(&mems[B], 99, 1), pattern(B, 8192)[99..100]);
    assert_eq!(ias.bytes(&mems[B], 150, 1), pattern(B, 8192)[150..151]);
}

/// A bind takes a cookie, which comes back with its completion, and the context comes at once.
pub fn a_bind_is_a_request(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = ias.armed();
    let rmr = ias.b.rmr_create(ends[B].pz).unwrap();
    let (ep, range) = (ends[B].ep, mems[B].seg(0, 64));
    for cookie in [0, 1, 1, u64::MAX] {
        let context = ias.b.rmr_bind(rmr, &range, MemPriv::REMOTE, ep, cookie, NONE);
        let context = context.unwrap();
        assert_eq!(ias.b.rmr_query(rmr).unwrap().rmr_context, context);
        ias.bound(&ends[B], rmr, cookie);
    }
}

/// Its event is an RMR_BIND completion, 0x01001, on the request Event Dispatcher, in order with
/// other requests.
pub fn a_bind_completes_where_requests_do(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = ias.armed();
    let rmr = ias.b.rmr_create(ends[B].pz).unwrap();
    let (ep, range) = (ends[B].ep, mems[B].seg(0, 64));
    ias.recv(&ends[A], &mems[A], 0, 64, 9);
    ias.recv(&ends[A], &mems[A], 0, 64, 9);
    ias.send(&ends[B], &mems[B], 0, 64, 1);
    ias.b.rmr_bind(rmr, &range, MemPriv::REMOTE, ep, 2, NONE).unwrap();
    ias.send(&ends[B], &mems[B], 0, 64, 3);
    ias.done(&ends[B], DtoOperation::Send, 1);
    let event = ias.event(B, ends[B].request);
    assert_eq!(event.number(), 0x0_1001);
    assert!(matches!(event, Event::RmrBind { cookie: 2, .. }));
    ias.done(&ends[B], DtoOperation::Send, 3);
    assert_eq!(ias.look(B, ends[B].recv), None);
}

/// Refused without a connection, with the state as subtype; accepted and flushed in DISCONNECTED,
/// where it changes nothing.
pub fn fault_32_binds_follow_the_states_of_requests(ias: &mut Adapters<'_, impl Side>) {
    let end = ias.end(B);
    let mem = ias.mem(B, end.pz, 64, MemPriv::ALL);
    let rmr = ias.b.rmr_create(end.pz).unwrap();
    let range = mem.seg(0, 64);
    refused(
        ias.b.rmr_bind(rmr, &range, MemPriv::REMOTE, end.ep, 1, NONE),
        Ty::InvalidState,
        Sub::InvalidStateEpUnconnected,
    );
    assert_eq!(ias.b.rmr_query(rmr).unwrap().bound, None);
    let other = ias.end(A);
    ias.connect(&other, &end);
    ias.disconnect(&end, CloseFlag::Abrupt);
    ias.until(|ias| (ias.state(&end) == EpState::Disconnected).then_some(()));
    for len in [64, 0] {
        let range = LmrTriplet { len, ..range };
        ias.b.rmr_bind(rmr, &range, MemPriv::REMOTE, end.ep, 7, NONE).unwrap();
        assert_eq!(
            ias.event(B, end.request),
            Event::RmrBind { rmr, cookie: 7, status: DtoStatus::ErrFlushed }
        );
        assert_eq!(ias.b.rmr_query(rmr).unwrap().bound, None);
    }
    ias.b.lmr_free(mem.lmr.lmr).unwrap();
}

/// SUPPRESS: no event of a success. BARRIER_FENCE: allowed. UNSIGNALLED: only if the Endpoint says
/// so. Others: `INVALID_PARAMETER`.
pub fn fault_31_flags_of_a_bind(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = ias.armed();
    let rmr = ias.b.rmr_create(ends[B].pz).unwrap();
    let (ep, range) = (ends[B].ep, mems[B].seg(0, 64));
    for bad in [
        CompletionFlags::UNSIGNALLED,
        CompletionFlags::EVD_THRESHOLD,
        CompletionFlags::from_bits_retain(0x40),
        CompletionFlags::from_bits_retain(1 << 31),
    ] {
        let bound = ias.b.rmr_bind(rmr, &range, MemPriv::REMOTE, ep, 1, bad);
        refused(bound, Ty::InvalidParameter, Sub::InvalidArg8);
    }
    // Binds and unbinds alike.
    let suppress = CompletionFlags::SUPPRESS;
    for range in [range, NOTHING] {
        ias.b.rmr_bind(rmr, &range, MemPriv::REMOTE, ep, 1, suppress).unwrap();
    }
    let fence = CompletionFlags::BARRIER_FENCE;
    ias.b.rmr_bind(rmr, &range, MemPriv::REMOTE, ep, 2, fence).unwrap();
    ias.bound(&ends[B], rmr, 2);
    let flag = CompletionFlags::UNSIGNALLED;
    let loud =
        [A, B].map(|side| ias.end_with(side, false, |attr| attr.request_completion_flags = flag));
    ias.connect(&loud[A], &loud[B]);
    let rmr = ias.b.rmr_create(loud[B].pz).unwrap();
    let mem = ias.mem(B, loud[B].pz, 64, MemPriv::ALL);
    let bound = ias.b.rmr_bind(rmr, &mem.seg(0, 64), MemPriv::REMOTE, loud[B].ep, 3, flag);
    bound.unwrap();
    ias.bound(&loud[B], rmr, 3);
}

/// A bind takes a request slot: when all are taken it is `INSUFFICIENT_RESOURCES`, and nothing
/// changes.
pub fn binds_take_slots(ias: &mut Adapters<'_, impl Side>) {
    let ends = [A, B].map(|side| ias.end_with(side, false, |attr| attr.max_request_dtos = 4));
    ias.connect(&ends[A], &ends[B]);
    let mem = ias.mem(B, ends[B].pz, 64, MemPriv::ALL);
    let rmr = ias.b.rmr_create(ends[B].pz).unwrap();
    let (ep, range) = (ends[B].ep, mem.seg(0, 64));
    let mut last = 0;
    for cookie in 0..4 {
        let bound = ias.b.rmr_bind(rmr, &range, MemPriv::REMOTE, ep, cookie, NONE);
        last = bound.unwrap();
    }
    refused(
        ias.b.rmr_bind(rmr, &range, MemPriv::REMOTE, ep, 4, NONE),
        Ty::InsufficientResources,
        Sub::ResourceCredits,
    );
    assert_eq!(ias.b.rmr_query(rmr).unwrap().rmr_context, last);
    for cookie in 0..4 {
        ias.bound(&ends[B], rmr, cookie);
    }
    ias.bind(&ends[B], rmr, &range, MemPriv::REMOTE);
}

/// Each bind makes another context; the one before is dead when the bind has completed.
pub fn each_bind_has_another_context(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = ias.armed();
    let rmr = ias.b.rmr_create(ends[B].pz).unwrap();
    let mut last = ias.bind(&ends[B], rmr, &mems[B].seg(0, 64), MemPriv::REMOTE);
    for _ in 0..4 {
        let new = ias.bind(&ends[B], rmr, &mems[B].seg(0, 64), MemPriv::REMOTE);
        assert_ne!(new.context & 0xff, last.context & 0xff);
        assert!(!ias.allowed(&ends, Try::Write, mems[A].seg(0, 64), last));
        assert_eq!(ias.bytes(&mems[B], 0, 64), pattern(B, 8192)[..64]);
        last = new;
    }
    assert!(ias.allowed(&ends, Try::Write, mems[A].seg(0, 64), last));
}

/// Requests posted behind a bind start after it: its context can be sent right behind it, and is
/// good when it arrives.
pub fn a_bind_comes_before_what_is_posted_behind_it(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = ias.armed();
    let rmr = ias.b.rmr_create(ends[B].pz).unwrap();
    for round in 0..5 {
        ias.recv(&ends[A], &mems[A], 4096, 4, 1);
        let range = mems[B].seg(64 * round, 64);
        let suppress = CompletionFlags::SUPPRESS;
        let bound = ias.b.rmr_bind(rmr, &range, MemPriv::REMOTE, ends[B].ep, 2, suppress);
        ias.fill(&mems[B], 8000, &bound.unwrap().to_be_bytes());
        ias.send(&ends[B], &mems[B], 8000, 4, 3);
        ias.done(&ends[A], DtoOperation::Receive, 1);
        let sent = ias.bytes(&mems[A], 4096, 4);
        let to = RmrTriplet {
            addr: range.addr,
            len: 64,
            context: u32::from_be_bytes([sent[0], sent[1], sent[2], sent[3]]),
        };
        assert!(ias.allowed(&ends, Try::Write, mems[A].seg(0, 64), to));
        ias.done(&ends[B], DtoOperation::Send, 3);
    }
}

/// Local privileges in a bind mean nothing.
pub fn remote_privileges_count_and_no_others(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = ias.armed();
    let rmr = ias.b.rmr_create(ends[B].pz).unwrap();
    let local = MemPriv::LOCAL_READ | MemPriv::LOCAL_WRITE;
    let far = ias.bind(&ends[B], rmr, &mems[B].seg(0, 64), local);
    assert!(!ias.allowed(&ends, Try::Read, mems[A].seg(0, 64), far));
    let far = ias.bind(&ends[B], rmr, &mems[B].seg(0, 64), local | MemPriv::REMOTE_READ);
    assert!(ias.allowed(&ends, Try::Read, mems[A].seg(0, 64), far));
    assert!(!ias.allowed(&ends, Try::Write, mems[A].seg(0, 64), far));
}

/// REMOTE_READ needs the region's LOCAL_READ, REMOTE_WRITE its LOCAL_WRITE: else
/// `PRIVILEGES_VIOLATION`. The region's own remote privileges are not asked for.
pub fn privileges_need_their_local_ones(ias: &mut Adapters<'_, impl Side>) {
    let ends = ias.connected();
    let (pz, ep) = (ends[B].pz, ends[B].ep);
    let rmr = ias.b.rmr_create(pz).unwrap();
    for (has, wants, subtype) in [
        (MemPriv::LOCAL_READ, MemPriv::REMOTE_WRITE, Sub::PrivilegesRdmaWrite),
        (MemPriv::LOCAL_READ, MemPriv::REMOTE, Sub::PrivilegesRdmaWrite),
        (MemPriv::LOCAL_WRITE, MemPriv::REMOTE_READ, Sub::PrivilegesRdmaRead),
        (MemPriv::empty(), MemPriv::REMOTE_READ, Sub::PrivilegesRdmaRead),
    ] {
        let mem = ias.mem(B, pz, 64, has);
        let bound = ias.b.rmr_bind(rmr, &mem.seg(0, 64), wants, ep, 1, NONE);
        refused(bound, Ty::PrivilegesViolation, subtype);
    }
    assert_eq!(ias.b.rmr_query(rmr).unwrap().bound, None);
    let local = MemPriv::LOCAL_READ | MemPriv::LOCAL_WRITE;
    let there = ias.mem(B, pz, 64, local);
    let here = ias.mem(A, ends[A].pz, 64, MemPriv::ALL);
    let far = ias.bind(&ends[B], rmr, &there.seg(0, 64), MemPriv::REMOTE);
    assert!(ias.allowed(&ends, Try::Write, here.seg(0, 64), far));
    assert!(ias.allowed(&ends, Try::Read, here.seg(0, 64), far));
}

/// A range that does not lie in its region is `INVALID_PARAMETER`; an unknown context is
/// `PRIVILEGES_VIOLATION`.
pub fn a_range_outside_the_region_is_refused(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = ias.armed();
    let rmr = ias.b.rmr_create(ends[B].pz).unwrap();
    let (ep, good) = (ends[B].ep, mems[B].seg(0, 64));
    for (addr, len) in [
        (good.addr - 1, 64),
        (good.addr + 8129, 64),
        (good.addr, 8193),
        (0, 64),
        (u64::MAX - 3, 64),
    ] {
        let range = LmrTriplet { addr, len, ..good };
        let bound = ias.b.rmr_bind(rmr, &range, MemPriv::REMOTE, ep, 1, NONE);
        refused(bound, Ty::InvalidParameter, Sub::InvalidArg3);
    }
    for context in [0, u32::MAX, good.context ^ 1] {
        let range = LmrTriplet { context, ..good };
        let bound = ias.b.rmr_bind(rmr, &range, MemPriv::REMOTE_READ, ep, 1, NONE);
        refused(bound, Ty::PrivilegesViolation, Sub::PrivilegesRdmaRead);
    }
    ias.bind(&ends[B], rmr, &good, MemPriv::REMOTE);
}

/// Endpoint, region and RMR have to be of one zone: else `PROTECTION_VIOLATION`.
pub fn zones_that_differ_are_refused(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = ias.armed();
    let other = ias.b.pz_create().unwrap();
    let (ep, range) = (ends[B].ep, mems[B].seg(0, 64));
    for own in [false, true] {
        let rmr = if own {
            ias.b.rmr_create_for_ep(other).unwrap()
        } else {
            ias.b.rmr_create(other).unwrap()
        };
        for range in [range, NOTHING] {
            let bound = ias.b.rmr_bind(rmr, &range, MemPriv::REMOTE, ep, 1, NONE);
            refused(bound, Ty::ProtectionViolation, Sub::None);
        }
    }
    let mem = ias.mem(B, other, 64, MemPriv::ALL);
    let rmr = ias.b.rmr_create(ends[B].pz).unwrap();
    let bound = ias.b.rmr_bind(rmr, &mem.seg(0, 64), MemPriv::REMOTE, ep, 1, NONE);
    refused(bound, Ty::ProtectionViolation, Sub::None);
}

/// An RMR that is freed, or was never there, is `INVALID_HANDLE`, RMR; an Endpoint so, EP.
pub fn a_stale_rmr_is_refused(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = ias.armed();
    let (ep, range) = (ends[B].ep, mems[B].seg(0, 64));
    let freed = ias.b.rmr_create(ends[B].pz).unwrap();
    ias.b.rmr_free(freed).unwrap();
    let theirs = ias.a.rmr_create(ends[A].pz).unwrap();
    for bad in [freed, theirs, Rmr::from_raw(0)] {
        let bound = ias.b.rmr_bind(bad, &range, MemPriv::REMOTE, ep, 1, NONE);
        refused(bound, Ty::InvalidHandle, Sub::InvalidHandleRmr);
    }
    let rmr = ias.b.rmr_create(ends[B].pz).unwrap();
    let bound = ias.b.rmr_bind(rmr, &range, MemPriv::REMOTE, ends[A].ep, 1, NONE);
    refused(bound, Ty::InvalidHandle, Sub::InvalidHandleEp);
}

/// Where the request Event Dispatcher takes no completions of binds, there are none: nor of fast
/// registrations, which change keys as well. Another Event Dispatcher decides anew.
pub fn binds_need_a_dispatcher_that_takes_them(ias: &mut Adapters<'_, impl Side>) {
    let mut end = ias.end(B);
    let with = end.request;
    let without = ias.b.evd_create(64, EvdFlags::DTO).unwrap();
    let to = |evd| EpModify { request_evd: Some(evd), ..EpModify::default() };
    ias.b.ep_modify(end.ep, &to(without)).unwrap();
    end.request = without;
    let mem = ias.mem(B, end.pz, 4096, MemPriv::ALL);
    let rmr = ias.b.rmr_create(end.pz).unwrap();
    let lmr = ias.b.lmr_allocate(end.pz, 1).unwrap();
    let pages = ias.b.side.pages(mem.lmr.region);
    let (range, rights) = (mem.seg(0, 64), MemPriv::REMOTE);
    let other = ias.end(A);
    ias.connect(&other, &end);
    for state in [EpState::Connected, EpState::Disconnected] {
        if state == EpState::Disconnected {
            ias.disconnect(&end, CloseFlag::Abrupt);
        }
        ias.until(|ias| (ias.state(&end) == state).then_some(()));
        for range in [range, NOTHING] {
            let bound = ias.b.rmr_bind(rmr, &range, rights, end.ep, 1, NONE);
            refused(bound, Ty::ModelNotSupported, Sub::None);
            let mut poster = ias.b.ep_take_poster(end.ep).unwrap();
            let bound = poster.rmr_bind(rmr, &range, rights, 1, NONE);
            ias.b.ep_return_poster(poster).unwrap();
            refused(bound, Ty::ModelNotSupported, Sub::None);
        }
        let memory = PhysicalPages { pages: &pages, log_page: 12, len: 4096 };
        let made = ias.b.lmr_fmr(lmr, memory, MemPriv::ALL, VaType::Zb, end.ep, 2, NONE);
        refused(made, Ty::ModelNotSupported, Sub::None);
        assert_eq!(ias.b.rmr_query(rmr).unwrap().bound, None);
        assert!(!ias.b.lmr_query(lmr).unwrap().state.bound);
        assert!(ias.b.ep_get_status(end.ep).unwrap().request_idle);
    }
    assert_eq!(ias.event(B, end.conn), Event::Disconnected(end.ep));
    ias.b.ep_reset(end.ep).unwrap();
    ias.b.ep_modify(end.ep, &to(with)).unwrap();
    end.request = with;
    let other = ias.end(A);
    ias.connect(&other, &end);
    ias.bind(&end, rmr, &range, rights);
}

/// Length 0 unbinds, whatever the rest of the triplet: a request that completes, after which
/// nothing is open.
pub fn unbinding_is_a_bind_of_no_bytes(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = ias.armed();
    let rmr = ias.b.rmr_create(ends[B].pz).unwrap();
    let far = ias.bind(&ends[B], rmr, &mems[B].seg(0, 64), MemPriv::REMOTE);
    ias.b.rmr_bind(rmr, &NOTHING, MemPriv::REMOTE, ends[B].ep, 8, NONE).unwrap();
    ias.bound(&ends[B], rmr, 8);
    assert_eq!(ias.b.rmr_query(rmr).unwrap().bound, None);
    assert!(!ias.allowed(&ends, Try::Write, mems[A].seg(0, 64), far));
    assert_eq!(ias.bytes(&mems[B], 0, 64), pattern(B, 8192)[..64]);
    // The region is free of it.
    ias.b.lmr_free(mems[B].lmr.lmr).unwrap();
}

/// A window that is bound to nothing may be unbound.
pub fn unbinding_nothing_is_a_request_too(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = ias.armed();
    for own in [false, true] {
        let pz = ends[B].pz;
        let rmr =
            if own { ias.b.rmr_create_for_ep(pz).unwrap() } else { ias.b.rmr_create(pz).unwrap() };
        for _ in 0..2 {
            ias.bind(&ends[B], rmr, &NOTHING, MemPriv::empty());
        }
        let far = ias.bind(&ends[B], rmr, &mems[B].seg(0, 64), MemPriv::REMOTE);
        assert!(ias.allowed(&ends, Try::Read, mems[A].seg(0, 64), far));
    }
}

/// A bound RMR can be bound anew: to another range, with other privileges.
pub fn a_rebind_moves_the_window(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = ias.armed();
    let rmr = ias.b.rmr_create(ends[B].pz).unwrap();
    ias.bind(&ends[B], rmr, &mems[B].seg(0, 64), MemPriv::REMOTE_READ);
    let far = ias.bind(&ends[B], rmr, &mems[B].seg(4096, 64), MemPriv::REMOTE_WRITE);
    let local = mems[A].seg(0, 64);
    assert!(ias.allowed(&ends, Try::Write, local, far));
    assert_eq!(ias.bytes(&mems[B], 4096, 64), pattern(A, 8192)[..64]);
    assert!(!ias.allowed(&ends, Try::Read, local, far));
    let old = RmrTriplet { addr: mems[B].seg(0, 0).addr, ..far };
    assert!(!ias.allowed(&ends, Try::Write, local, old));
}

/// The hold on the region passes from the old to the new.
pub fn a_rebind_moves_the_hold_on_the_region(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = ias.armed();
    let other = ias.mem(B, ends[B].pz, 64, MemPriv::ALL);
    let rmr = ias.b.rmr_create(ends[B].pz).unwrap();
    ias.bind(&ends[B], rmr, &mems[B].seg(0, 64), MemPriv::REMOTE);
    ias.bind(&ends[B], rmr, &other.seg(0, 64), MemPriv::REMOTE);
    ias.b.lmr_free(mems[B].lmr.lmr).unwrap();
    refused(ias.b.lmr_free(other.lmr.lmr), Ty::InvalidState, Sub::InvalidStateLmrInUse);
    ias.bind(&ends[B], rmr, &other.seg(0, 32), MemPriv::REMOTE);
    ias.b.rmr_free(rmr).unwrap();
    ias.b.lmr_free(other.lmr.lmr).unwrap();
}

/// A region of any memory can be bound over: zero-based ones, regions over regions, pages.
pub fn a_window_over_every_kind_of_region(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = ias.armed();
    let (pz, whole) = (ends[B].pz, mems[B].lmr.region);
    let pages = ias.b.side.pages(whole);
    let physical = PhysicalPages { pages: &pages, log_page: 12, len: 8192 };
    let (all, va, zb) = (MemPriv::ALL, VaType::Va, VaType::Zb);
    let over = Memory::Lmr(mems[B].lmr.lmr);
    let regions = [
        ias.b.lmr_create_from(pz, Memory::Virtual(whole), all, zb).unwrap(),
        ias.b.lmr_create_from(pz, over, all, va).unwrap(),
        ias.b.lmr_create_from(pz, over, all, zb).unwrap(),
        ias.b.lmr_kcreate(pz, physical, all, va).unwrap(),
        ias.b.lmr_kcreate(pz, physical, all, zb).unwrap(),
    ];
    let rmr = ias.b.rmr_create(pz).unwrap();
    for (round, region) in regions.iter().enumerate() {
        let range =
            LmrTriplet { addr: region.base() + 4000, len: 200, context: region.lmr_context };
        for va_type in [va, zb] {
            let far = ias.bind_as(&ends[B], rmr, &range, MemPriv::REMOTE, va_type);
            let to = RmrTriplet { addr: far.addr + 90, len: 64, ..far };
            let at = 64 * round;
            assert!(ias.allowed(&ends, Try::Write, mems[A].seg(at, 64), to));
            assert_eq!(ias.bytes(&mems[B], 4090, 64), pattern(A, 8192)[at..at + 64]);
        }
    }
}

/// Of a zero-based RMR peers name the first byte by 0.
pub fn a_zero_based_window(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = ias.armed();
    let rmr = ias.b.rmr_create(ends[B].pz).unwrap();
    let range = mems[B].seg(1000, 100);
    let far = ias.bind_as(&ends[B], rmr, &range, MemPriv::REMOTE, VaType::Zb);
    let to = |addr, len| RmrTriplet { addr, len, ..far };
    assert!(ias.allowed(&ends, Try::Write, mems[A].seg(0, 64), to(0, 64)));
    assert_eq!(ias.bytes(&mems[B], 1000, 64), pattern(A, 8192)[..64]);
    assert!(ias.allowed(&ends, Try::Write, mems[A].seg(64, 64), to(36, 64)));
    assert_eq!(ias.bytes(&mems[B], 1036, 64), pattern(A, 8192)[64..128]);
    assert!(!ias.allowed(&ends, Try::Write, mems[A].seg(0, 64), to(37, 64)));
    assert!(!ias.allowed(&ends, Try::Write, mems[A].seg(0, 64), to(range.addr, 64)));
}
