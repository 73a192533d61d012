//! Zero-based addresses.

use dat_core::provider::Region;
use dat_core::{
    DatSubtype as Sub, DatType as Ty, DtoOperation, LmrParam, LmrTriplet, MemPriv, Memory,
    RmrTriplet, VaType,
};

use crate::conformance::reach::{Try, pattern};
use crate::conformance::{A, Adapters, B, End, NONE, Side, refused};

fn zero_based(ias: &mut Adapters<'_, impl Side>, end: &End, region: Region) -> LmrParam {
    let memory = Memory::Virtual(region);
    let pz = end.pz;
    ias[end.side].lmr_create_from(pz, memory, MemPriv::ALL, VaType::Zb).unwrap()
}

const fn seg(lmr: &LmrParam, addr: u64, len: u32) -> LmrTriplet {
    LmrTriplet { addr, len, context: lmr.lmr_context }
}

const fn far(lmr: &LmrParam, addr: u64, len: u32) -> RmrTriplet {
    RmrTriplet { addr, len, context: lmr.rmr_context }
}

/// Triplets of a zero-based region carry offsets from its start, on both sides.
pub fn fault_04_zero_based_addresses(ias: &mut Adapters<'_, impl Side>) {
    assert!(ias.a.query().0.zb_supported);
    let (ends, mems) = ias.armed();
    let here = zero_based(ias, &ends[A], mems[A].lmr.region);
    let there = zero_based(ias, &ends[B], mems[B].lmr.region);
    assert_eq!((there.va_type, there.base()), (VaType::Zb, 0));
    assert_eq!(there.region, mems[B].lmr.region);
    assert!(ias.allowed(&ends, Try::Write, seg(&here, 100, 64), far(&there, 4000, 64)));
    assert_eq!(ias.bytes(&mems[B], 4000, 64), pattern(A, 8192)[100..164]);
    assert!(ias.allowed(&ends, Try::Read, seg(&here, 0, 64), far(&there, 0, 64)));
    assert_eq!(ias.bytes(&mems[A], 0, 64), pattern(B, 8192)[..64]);
    // The address means nothing to it.
    assert!(!ias.allowed(&ends, Try::Read, seg(&here, 0, 64), far(&there, there.region.addr, 64)));
}

/// Offsets reach to the last byte and not beyond.
pub fn zero_based_addresses_end_with_the_region(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = ias.armed();
    let there = zero_based(ias, &ends[B], mems[B].lmr.region);
    let local = mems[A].seg(0, 64);
    assert!(ias.allowed(&ends, Try::Write, local, far(&there, 8192 - 64, 64)));
    assert!(!ias.allowed(&ends, Try::Write, local, far(&there, 8192 - 63, 64)));
    assert!(!ias.allowed(&ends, Try::Write, local, far(&there, u64::MAX - 8, 64)));
    let here = zero_based(ias, &ends[A], mems[A].lmr.region);
    for addr in [8192 - 63, u64::MAX - 8, mems[A].lmr.region.addr] {
        let segment = [seg(&here, addr, 64)];
        let posted = ias.a.ep_post_send(ends[A].ep, &segment, 1, NONE);
        refused(posted, Ty::InvalidParameter, Sub::InvalidArg3);
    }
}

/// It may begin and end anywhere.
pub fn zero_based_region_that_begins_within_a_page(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = ias.armed();
    let region = Region { addr: mems[B].lmr.region.addr + 123, len: 5000 };
    let there = zero_based(ias, &ends[B], region);
    let local = mems[A].seg(0, 64);
    assert!(ias.allowed(&ends, Try::Write, local, far(&there, 0, 64)));
    assert_eq!(ias.bytes(&mems[B], 123, 64), pattern(A, 8192)[..64]);
    assert!(ias.allowed(&ends, Try::Write, local, far(&there, 4936, 64)));
    assert_eq!(ias.bytes(&mems[B], 123 + 4936, 64), pattern(A, 8192)[..64]);
    let beside = pattern(B, 8192);
    assert_eq!(ias.bytes(&mems[B], 0, 123), beside[..123]);
    assert_eq!(ias.bytes(&mems[B], 5123, 64), beside[5123..5187]);
    assert!(!ias.allowed(&ends, Try::Write, local, far(&there, 4937, 64)));
}

/// Short and long sends, receives, writes and reads: what is short travels inside a request
/// elsewhere, and must not here.
pub fn zero_based_memory_serves_every_operation(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = ias.armed();
    let here = zero_based(ias, &ends[A], mems[A].lmr.region);
    let there = zero_based(ias, &ends[B], mems[B].lmr.region);
    let bytes = pattern(A, 8192);
    for len in [1, 8, 20, 44, 300] {
        let (at, end) = (1024, 1024 + len as usize);
        let segment = [seg(&there, 2048, len)];
        ias.b.ep_post_recv(ends[B].ep, &segment, 1, NONE).unwrap();
        let segment = [seg(&here, at as u64, len)];
        ias.a.ep_post_send(ends[A].ep, &segment, 2, NONE).unwrap();
        ias.done(&ends[A], DtoOperation::Send, 2);
        assert_eq!(ias.done(&ends[B], DtoOperation::Receive, 1), len);
        assert_eq!(ias.bytes(&mems[B], 2048, len as usize), bytes[at..end]);
        let to = far(&there, 3000, len);
        assert!(ias.allowed(&ends, Try::Write, seg(&here, at as u64, len), to));
        assert_eq!(ias.bytes(&mems[B], 3000, len as usize), bytes[at..end]);
        assert!(ias.allowed(&ends, Try::Read, seg(&here, 4096, len), far(&there, 3000, len)));
        assert_eq!(ias.bytes(&mems[A], 4096, len as usize), bytes[at..end]);
    }
}
