//! kDAPL: pages by device address, the reserved region, hints.

use dat_core::{
    DatSubtype as Sub, DatType as Ty, DtoOperation, LmrTriplet, MemOptimize, MemPriv, MemType,
    PhysicalPages, RmrTriplet, VaType,
};

use crate::conformance::reach::{Try, pattern};
use crate::conformance::{A, Adapters, B, NONE, Side, refused};

/// Pages are registered by their device addresses, and named by them or by offsets.
pub fn pages_by_device_address(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = ias.armed();
    let pages = ias.b.side.pages(mems[B].lmr.region);
    for va_type in [VaType::Va, VaType::Zb] {
        let memory = PhysicalPages { pages: &pages, log_page: 12, len: 8000 };
        let made = ias.b.lmr_kcreate(ends[B].pz, memory, MemPriv::ALL, va_type).unwrap();
        assert_eq!((made.mem_type, made.va_type), (MemType::Physical, va_type));
        assert_eq!((made.region.addr, made.region.len), (pages[0], 8000));
        let base = if va_type == VaType::Va { pages[0] } else { 0 };
        assert_eq!(made.base(), base);
        let far = |at: u64| RmrTriplet { addr: base + at, len: 64, context: made.rmr_context };
        ias.fill(&mems[B], 0, &pattern(B, 8192));
        assert!(ias.allowed(&ends, Try::Write, mems[A].seg(0, 64), far(4064)));
        assert_eq!(ias.bytes(&mems[B], 4064, 64), pattern(A, 8192)[..64]);
        assert!(!ias.allowed(&ends, Try::Write, mems[A].seg(0, 64), far(7937)));
        let segment = LmrTriplet { addr: base + 100, len: 16, context: made.lmr_context };
        ias.recv(&ends[A], &mems[A], 4096, 16, 1);
        ias.b.ep_post_send(ends[B].ep, &[segment], 2, NONE).unwrap();
        ias.done(&ends[B], DtoOperation::Send, 2);
        ias.done(&ends[A], DtoOperation::Receive, 1);
        assert_eq!(ias.bytes(&mems[A], 4096, 16), pattern(B, 8192)[100..116]);
    }
}

/// They need not follow each other: the region runs through them in the order of the list.
pub fn pages_out_of_order_are_one_region(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = ias.armed();
    let mut pages = ias.b.side.pages(mems[B].lmr.region);
    pages.reverse();
    let memory = PhysicalPages { pages: &pages, log_page: 12, len: 8192 };
    let pz = ends[B].pz;
    let made = ias.b.lmr_kcreate(pz, memory, MemPriv::ALL, VaType::Zb).unwrap();
    let far = RmrTriplet { addr: 4096 - 32, len: 64, context: made.rmr_context };
    assert!(ias.allowed(&ends, Try::Write, mems[A].seg(0, 64), far));
    let sent = pattern(A, 8192);
    assert_eq!(ias.bytes(&mems[B], 8192 - 32, 32), sent[..32]);
    assert_eq!(ias.bytes(&mems[B], 0, 32), sent[32..64]);
}

/// Pages that are not whole, not as many as the length needs, or not of memory of the platform, are
/// `INVALID_PARAMETER`.
pub fn pages_have_to_be_whole(ias: &mut Adapters<'_, impl Side>) {
    let pz = ias.a.pz_create().unwrap();
    let region = ias.a.side.memory(8192);
    let pages = ias.a.side.pages(region);
    let odd = [pages[0] + 8, pages[1]];
    let wild = [pages[0], 0xffff_ffff_f000];
    for (pages, log_page, len) in [
        (&odd[..], 12, 8192),
        (&pages[..], 12, 4096),
        (&pages[..], 12, 8193),
        (&pages[..], 11, 4096),
        (&pages[..], 64, 8192),
        (&wild[..], 12, 8192),
        (&[], 12, 8192),
    ] {
        let memory = PhysicalPages { pages, log_page, len };
        let made = ias.a.lmr_kcreate(pz, memory, MemPriv::ALL, VaType::Va);
        let error = made.expect_err("pages that are not whole");
        assert_eq!(dat_core::DatReturn::from(error).ty(), Ty::InvalidParameter);
    }
    let memory = PhysicalPages { pages: &pages, log_page: 12, len: 0 };
    let made = ias.a.lmr_kcreate(pz, memory, MemPriv::ALL, VaType::Va);
    refused(made, Ty::LengthError, Sub::None);
    ias.a.pz_free(pz).unwrap();
}

/// One context for all memory by device address, for local buffers of the zone's Endpoints.
pub fn the_reserved_region_serves_local_buffers(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = ias.armed();
    let reserved = ias.a.ia_reserved_lmr(ends[A].pz).unwrap();
    assert_eq!(ias.a.ia_reserved_lmr(ends[A].pz).unwrap(), reserved);
    assert_eq!((reserved.mem_type, reserved.rmr_context), (MemType::Ia, 0));
    let addr = ias.a.side.pages(mems[A].lmr.region)[0];
    let local = |at: u64| LmrTriplet { addr: addr + at, len: 64, context: reserved.lmr_context };
    assert!(ias.allowed(&ends, Try::Write, local(128), mems[B].far(0, 64)));
    assert_eq!(ias.bytes(&mems[B], 0, 64), pattern(A, 8192)[128..192]);
    assert!(ias.allowed(&ends, Try::Read, local(0), mems[B].far(64, 64)));
    assert_eq!(ias.bytes(&mems[A], 0, 64), pattern(B, 8192)[64..128]);
}

/// It cannot be freed, bound or used in another zone, and it does not hold its zone: it goes with
/// it.
pub fn the_reserved_region_is_not_for_others(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = ias.armed();
    let reserved = ias.a.ia_reserved_lmr(ends[A].pz).unwrap();
    refused(ias.a.lmr_free(reserved.lmr), Ty::ReservedLmr, Sub::None);
    let addr = ias.a.side.pages(mems[A].lmr.region)[0];
    let all = LmrTriplet { addr, len: 64, context: reserved.lmr_context };
    let rmr = ias.a.rmr_create(ends[A].pz).unwrap();
    let bound = ias.a.rmr_bind(rmr, &all, MemPriv::REMOTE_READ, ends[A].ep, 1, NONE);
    refused(bound, Ty::ReservedLmr, Sub::None);
    let other = ias.a.pz_create().unwrap();
    let theirs = ias.a.ia_reserved_lmr(other).unwrap();
    assert_ne!(theirs.lmr_context, reserved.lmr_context);
    let segment = [LmrTriplet { context: theirs.lmr_context, ..all }];
    let posted = ias.a.ep_post_send(ends[A].ep, &segment, 1, NONE);
    refused(posted, Ty::ProtectionViolation, Sub::ProtectionRead);
    ias.a.pz_free(other).unwrap();
    let query = ias.a.lmr_query(theirs.lmr);
    refused(query, Ty::InvalidHandle, Sub::InvalidHandleLmr);
}

/// Hints cover the length, and are exact where that is asked for.
pub fn hints_of_length_and_alignment(ias: &mut Adapters<'_, impl Side>) {
    let most = ias.a.query().0.max_lmr_block_size;
    for mem_type in [MemType::Virtual, MemType::Physical] {
        for optimize in [
            MemOptimize::DontCare,
            MemOptimize::Ia,
            MemOptimize::MinExposure,
            MemOptimize::ExactExposure,
        ] {
            for len in [1, 4096, 5000, most] {
                let hint = ias.a.ia_memtype_hint(mem_type, len, optimize);
                let (preferred, align) = hint.unwrap();
                assert!(preferred >= len && align.is_power_of_two());
            }
        }
    }
    let exact = ias.a.ia_memtype_hint(MemType::Virtual, 5000, MemOptimize::ExactExposure);
    assert_eq!(exact.unwrap(), (5000, 1));
    let best = ias.a.ia_memtype_hint(MemType::Virtual, 5000, MemOptimize::Ia);
    assert_eq!(best.unwrap(), (8192, 8192));
    for (len, ty, subtype) in
        [(0, Ty::LengthError, Sub::None), (most + 1, Ty::InvalidParameter, Sub::InvalidArg3)]
    {
        let hint = ias.a.ia_memtype_hint(MemType::Virtual, len, MemOptimize::DontCare);
        refused(hint, ty, subtype);
    }
}
