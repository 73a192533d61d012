//! dat_lmr_sync_rdma_read(3) and dat_lmr_sync_rdma_write(3).

use dat_core::{DatSubtype as Sub, DatType as Ty, LmrTriplet, MemPriv};

use crate::conformance::reach::{Try, pattern};
use crate::conformance::{A, B, Bed, Side, refused};

/// The segments of one call may be of several regions and zones, need no privilege, and may be none.
pub fn sync_takes_segments_of_any_zone(bed: &mut Bed<'_, impl Side>) {
    let zones = [0; 2].map(|_| bed.a.pz_create().unwrap());
    let one = bed.mem(A, zones[0], 64, MemPriv::ALL);
    let two = bed.mem(A, zones[1], 64, MemPriv::empty());
    let segments = [one.seg(0, 64), two.seg(8, 8), LmrTriplet::default()];
    for list in [&segments[..], &[]] {
        bed.a.lmr_sync_rdma_read(list).unwrap();
        bed.a.lmr_sync_rdma_write(list).unwrap();
    }
}

/// A segment that does not lie in its region is `INVALID_PARAMETER`, wherever it stands in the list.
pub fn sync_refuses_what_is_outside(bed: &mut Bed<'_, impl Side>) {
    let pz = bed.a.pz_create().unwrap();
    let mem = bed.mem(A, pz, 64, MemPriv::ALL);
    let good = mem.seg(0, 64);
    for (addr, len) in [
        (good.addr - 1, 8),
        (good.addr + 60, 8),
        (0, 1),
        (good.addr, 65),
    ] {
        let list = [good, LmrTriplet { addr, len, ..good }];
        let (ty, subtype) = (Ty::InvalidParameter, Sub::InvalidArg2);
        refused(bed.a.lmr_sync_rdma_read(&list), ty, subtype);
        refused(bed.a.lmr_sync_rdma_write(&list), ty, subtype);
    }
}

/// A context that no region has, or has no more, is `INVALID_PARAMETER`.
pub fn sync_refuses_unknown_contexts(bed: &mut Bed<'_, impl Side>) {
    let pz = bed.a.pz_create().unwrap();
    let mem = bed.mem(A, pz, 64, MemPriv::ALL);
    let good = mem.seg(0, 64);
    bed.a.lmr_free(mem.lmr.lmr).unwrap();
    for context in [good.context, 0, u32::MAX] {
        let list = [LmrTriplet { context, ..good }];
        let (ty, subtype) = (Ty::InvalidParameter, Sub::InvalidArg2);
        refused(bed.a.lmr_sync_rdma_read(&list), ty, subtype);
        refused(bed.a.lmr_sync_rdma_write(&list), ty, subtype);
    }
}

/// After the call a peer reads what was stored before it, and the CPU sees what a peer had written before it.
pub fn sync_makes_both_directions_visible(bed: &mut Bed<'_, impl Side>) {
    let (ends, mems) = bed.armed();
    let fresh: Vec<u8> = (0..64).rev().collect();
    bed.fill(&mems[B], 0, &fresh);
    bed.b.lmr_sync_rdma_read(&[mems[B].seg(0, 64)]).unwrap();
    assert!(bed.allowed(&ends, Try::Read, mems[A].seg(0, 64), mems[B].far(0, 64)));
    assert_eq!(bed.bytes(&mems[A], 0, 64), fresh);
    assert!(bed.allowed(&ends, Try::Write, mems[A].seg(64, 64), mems[B].far(0, 64)));
    bed.b.lmr_sync_rdma_write(&[mems[B].seg(0, 64)]).unwrap();
    assert_eq!(bed.bytes(&mems[B], 0, 64), pattern(A, 8192)[64..128]);
}
