//! Creation and query.

use dat_core::provider::Region;
use dat_core::{
    DatSubtype as Sub, DatType as Ty, DtoOperation, Lmr, MemPriv, MemType, Memory, Pz, VaType,
};

use crate::conformance::reach::{Try, pattern};
use crate::conformance::{A, Adapters, B, Side, refused};

/// Query tells zone, type, range, privileges and contexts as they were asked for, and the range
/// covers the buffer.
pub fn a_region_is_what_was_asked_for(ias: &mut Adapters<'_, impl Side>) {
    let pz = ias.a.pz_create().unwrap();
    let buffer = ias.a.side.memory(4096);
    let region = Region { addr: buffer.addr + 3, len: 1000 };
    let rights = MemPriv::LOCAL_READ | MemPriv::REMOTE_READ;
    let made = ias.a.lmr_create(pz, region, rights).unwrap();
    assert_eq!(ias.a.lmr_query(made.lmr).unwrap(), made);
    assert_eq!((made.pz, made.privileges), (pz, rights));
    assert_eq!((made.mem_type, made.va_type), (MemType::Virtual, VaType::Va));
    assert!(made.region.addr <= region.addr);
    assert!(made.region.addr + made.region.len >= region.addr + region.len);
    assert_ne!(made.rmr_context, 0);
    assert_eq!((made.state.fmr_support, made.state.bound), (false, false));
    refused(ias.a.lmr_query(Lmr::from_raw(0)), Ty::InvalidHandle, Sub::InvalidHandleLmr);
}

/// The `lmr_context` serves local buffers of DTOs, the `rmr_context` a peer's.
pub fn contexts_work_on_both_sides(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = ias.armed();
    ias.recv(&ends[B], &mems[B], 0, 64, 1);
    ias.send(&ends[A], &mems[A], 128, 64, 2);
    assert_eq!(ias.done(&ends[B], DtoOperation::Receive, 1), 64);
    ias.done(&ends[A], DtoOperation::Send, 2);
    assert_eq!(ias.bytes(&mems[B], 0, 64), pattern(A, 8192)[128..192]);
    assert!(ias.allowed(&ends, Try::Write, mems[A].seg(0, 64), mems[B].far(256, 64)));
    assert_eq!(ias.bytes(&mems[B], 256, 64), pattern(A, 8192)[..64]);
    assert!(ias.allowed(&ends, Try::Read, mems[A].seg(4096, 64), mems[B].far(512, 64)));
    assert_eq!(ias.bytes(&mems[A], 4096, 64), pattern(B, 8192)[512..576]);
}

/// Without a remote privilege no `rmr_context` is made: it is 0.
pub fn no_rmr_context_without_a_remote_privilege(ias: &mut Adapters<'_, impl Side>) {
    let pz = ias.a.pz_create().unwrap();
    let local = MemPriv::LOCAL_READ | MemPriv::LOCAL_WRITE;
    for (rights, there) in [
        (MemPriv::empty(), false),
        (MemPriv::LOCAL_READ, false),
        (local, false),
        (MemPriv::REMOTE_READ, true),
        (local | MemPriv::REMOTE_WRITE, true),
        (MemPriv::ALL, true),
    ] {
        let mem = ias.mem(A, pz, 64, rights);
        assert_eq!(mem.lmr.rmr_context != 0, there, "{rights:?}");
    }
}

/// No bytes are `LENGTH_ERROR`; REMOTE_WRITE without LOCAL_WRITE is `PRIVILEGES_VIOLATION`. Both
/// words have their class.
pub fn fault_05_length_of_zero_and_write_only_privileges(ias: &mut Adapters<'_, impl Side>) {
    let pz = ias.a.pz_create().unwrap();
    let buffer = ias.a.side.memory(64);
    let nothing = Region { len: 0, ..buffer };
    refused(ias.a.lmr_create(pz, nothing, MemPriv::ALL), Ty::LengthError, Sub::None);
    for rights in [MemPriv::REMOTE_WRITE, MemPriv::REMOTE_WRITE | MemPriv::LOCAL_READ] {
        refused(
            ias.a.lmr_create(pz, buffer, rights),
            Ty::PrivilegesViolation,
            Sub::PrivilegesWrite,
        );
    }
    // Nothing of it has stayed.
    ias.a.pz_free(pz).unwrap();
}

/// A peer may do what the privileges say and nothing else.
pub fn privileges_hold_for_peers(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = ias.armed();
    let local = MemPriv::LOCAL_READ | MemPriv::LOCAL_WRITE;
    for rights in [local | MemPriv::REMOTE_READ, local | MemPriv::REMOTE_WRITE] {
        let there = ias.mem(B, ends[B].pz, 64, rights);
        for (what, right) in
            [(Try::Read, MemPriv::REMOTE_READ), (Try::Write, MemPriv::REMOTE_WRITE)]
        {
            let before = ias.bytes(&there, 0, 64);
            let allowed = ias.allowed(&ends, what, mems[A].seg(0, 64), there.far(0, 64));
            assert_eq!(allowed, rights.contains(right), "{what:?} with {rights:?}");
            if !allowed {
                assert_eq!(ias.bytes(&there, 0, 64), before);
            }
        }
    }
}

/// Bits that are no privileges are refused.
pub fn unknown_privileges_are_refused(ias: &mut Adapters<'_, impl Side>) {
    let pz = ias.a.pz_create().unwrap();
    let buffer = ias.a.side.memory(64);
    let odd = MemPriv::from_bits_retain(0x08);
    refused(ias.a.lmr_create(pz, buffer, odd), Ty::InvalidParameter, Sub::InvalidArg6);
    ias.a.pz_free(pz).unwrap();
}

/// Memory that the platform has not handed out, and ranges without an end, are refused.
pub fn memory_of_nobody_is_refused(ias: &mut Adapters<'_, impl Side>) {
    let pz = ias.a.pz_create().unwrap();
    for (addr, len) in [(8, 64), (u64::MAX - 8, 64), (u64::MAX, u64::MAX)] {
        let made = ias.a.lmr_create(pz, Region { addr, len }, MemPriv::ALL);
        let error = made.expect_err("memory of nobody");
        assert_eq!(dat_core::DatReturn::from(error).ty(), Ty::InvalidParameter);
    }
    ias.a.pz_free(pz).unwrap();
}

/// A zone of another kind, of another adapter or freed is `INVALID_HANDLE`, PZ; so is an LMR, LMR.
pub fn handles_of_others_are_refused(ias: &mut Adapters<'_, impl Side>) {
    let pz = ias.a.pz_create().unwrap();
    let theirs = ias.b.pz_create().unwrap();
    ias.a.pz_free(pz).unwrap();
    let buffer = ias.a.side.memory(64);
    for bad in [pz, theirs, Pz::from_raw(0)] {
        refused(
            ias.a.lmr_create(bad, buffer, MemPriv::ALL),
            Ty::InvalidHandle,
            Sub::InvalidHandlePz,
        );
    }
    let there = ias.mem(B, theirs, 64, MemPriv::ALL);
    let pz = ias.a.pz_create().unwrap();
    let over = Memory::Lmr(there.lmr.lmr);
    refused(
        ias.a.lmr_create_from(pz, over, MemPriv::ALL, VaType::Va),
        Ty::InvalidHandle,
        Sub::InvalidHandleLmr,
    );
}

/// There are as many as the attributes say; one more is `INSUFFICIENT_RESOURCES`, and each that
/// goes makes room for one.
pub fn as_many_as_there_is_room_for(ias: &mut Adapters<'_, impl Side>) {
    let most = ias.a.query().0.max_lmrs;
    let pz = ias.a.pz_create().unwrap();
    let buffer = ias.a.side.memory(64);
    let mut all = Vec::new();
    for _ in 0..most {
        all.push(ias.a.lmr_create(pz, buffer, MemPriv::ALL).unwrap());
    }
    refused(
        ias.a.lmr_create(pz, buffer, MemPriv::ALL),
        Ty::InsufficientResources,
        Sub::ResourceMemoryRegion,
    );
    ias.a.lmr_free(all[0].lmr).unwrap();
    ias.a.lmr_create(pz, buffer, MemPriv::ALL).unwrap();
}

/// Regions may overlap; each has keys and privileges of its own.
pub fn two_regions_over_the_same_memory(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = ias.armed();
    let region = mems[B].lmr.region;
    let read = ias.b.lmr_create(ends[B].pz, region, MemPriv::REMOTE_READ).unwrap();
    assert_ne!(read.rmr_context, mems[B].lmr.rmr_context);
    assert_ne!(read.lmr_context, mems[B].lmr.lmr_context);
    let far = dat_core::RmrTriplet { context: read.rmr_context, ..mems[B].far(0, 64) };
    assert!(ias.allowed(&ends, Try::Read, mems[A].seg(0, 64), far));
    assert!(!ias.allowed(&ends, Try::Write, mems[A].seg(0, 64), far));
    assert!(ias.allowed(&ends, Try::Write, mems[A].seg(0, 64), mems[B].far(0, 64)));
}

/// An LMR over an LMR has the same memory under its own zone and privileges.
pub fn fault_03_region_over_a_region(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = ias.armed();
    let below = mems[B].lmr;
    let rights = MemPriv::LOCAL_READ | MemPriv::REMOTE_READ;
    let (pz, other) = (ends[B].pz, ias.b.pz_create().unwrap());
    let over = Memory::Lmr(below.lmr);
    let made = ias.b.lmr_create_from(pz, over, rights, VaType::Va).unwrap();
    assert_eq!((made.mem_type, made.region), (MemType::Lmr, below.region));
    assert_eq!((made.pz, made.privileges), (pz, rights));
    let far = dat_core::RmrTriplet { context: made.rmr_context, ..mems[B].far(64, 64) };
    assert!(ias.allowed(&ends, Try::Read, mems[A].seg(0, 64), far));
    assert_eq!(ias.bytes(&mems[A], 0, 64), pattern(B, 8192)[64..128]);
    assert!(!ias.allowed(&ends, Try::Write, mems[A].seg(0, 64), far));
    // In another zone the connection's requests do not reach it.
    let made = ias.b.lmr_create_from(other, over, MemPriv::ALL, VaType::Va).unwrap();
    let far = dat_core::RmrTriplet { context: made.rmr_context, ..far };
    assert!(!ias.allowed(&ends, Try::Read, mems[A].seg(0, 64), far));
}

/// Either of the two may be freed first.
pub fn a_region_over_a_region_outlives_it(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = ias.armed();
    let over = Memory::Lmr(mems[B].lmr.lmr);
    let pz = ends[B].pz;
    let made = ias.b.lmr_create_from(pz, over, MemPriv::ALL, VaType::Va).unwrap();
    ias.b.lmr_free(mems[B].lmr.lmr).unwrap();
    let far = dat_core::RmrTriplet { context: made.rmr_context, ..mems[B].far(0, 64) };
    assert!(ias.allowed(&ends, Try::Write, mems[A].seg(0, 64), far));
    assert_eq!(ias.bytes(&mems[B], 0, 64), pattern(A, 8192)[..64]);
    refused(
        ias.b.lmr_create_from(pz, over, MemPriv::ALL, VaType::Va),
        Ty::InvalidHandle,
        Sub::InvalidHandleLmr,
    );
}

/// An LMR over one of pages, or over one that registers them by request, is `MODEL_NOT_SUPPORTED`:
/// it has no memory of the host.
pub fn a_region_over_a_region_takes_no_other(ias: &mut Adapters<'_, impl Side>) {
    let pz = ias.a.pz_create().unwrap();
    let lmr = ias.a.lmr_allocate(pz, 4).unwrap();
    refused(
        ias.a.lmr_create_from(pz, Memory::Lmr(lmr), MemPriv::ALL, VaType::Va),
        Ty::ModelNotSupported,
        Sub::None,
    );
}

/// Shared memory of the host is registered by its name, all 40 bytes of it, by any process that
/// shares it.
pub fn shared_memory_by_its_whole_name(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = ias.armed();
    let mut name = [7; 40];
    let piece = ias.b.side.share(&name);
    let pz = ends[B].pz;
    let rights = MemPriv::ALL;
    let shared = Memory::SharedVirtual(piece, &name);
    let one = ias.b.lmr_create_from(pz, shared, rights, VaType::Va).unwrap();
    let two = ias.b.lmr_create_from(pz, shared, rights, VaType::Va).unwrap();
    assert_eq!((one.mem_type, one.region), (MemType::SharedVirtual, piece));
    let far = |context| dat_core::RmrTriplet { addr: piece.addr, len: 64, context };
    let written = ias.allowed(&ends, Try::Write, mems[A].seg(0, 64), far(one.rmr_context));
    let read = ias.allowed(&ends, Try::Read, mems[A].seg(4096, 64), far(two.rmr_context));
    assert!(written && read);
    assert_eq!(ias.bytes(&mems[A], 4096, 64), pattern(A, 8192)[..64]);
    name[39] = 8;
    let other = Memory::SharedVirtual(piece, &name);
    let made = ias.b.lmr_create_from(pz, other, rights, VaType::Va);
    refused(made, Ty::InvalidState, Sub::None);
}

/// Memory that was not created shared is `INVALID_STATE`, under whatever name.
pub fn memory_that_is_not_shared_is_refused(ias: &mut Adapters<'_, impl Side>) {
    let pz = ias.a.pz_create().unwrap();
    let buffer = ias.a.side.memory(64);
    for name in [[0; 40], [7; 40]] {
        let shared = Memory::SharedVirtual(buffer, &name);
        let made = ias.a.lmr_create_from(pz, shared, MemPriv::ALL, VaType::Va);
        refused(made, Ty::InvalidState, Sub::None);
    }
    ias.a.pz_free(pz).unwrap();
}
