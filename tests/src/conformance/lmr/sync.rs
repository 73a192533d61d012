//! dat_lmr_sync_rdma_read(3) and dat_lmr_sync_rdma_write(3).

use std::time::Duration;

use dat_core::{DatSubtype as Sub, DatType as Ty, DtoStatus, Event, LmrTriplet, MemPriv};

use crate::conformance::reach::{Try, pattern};
use crate::conformance::{A, Adapters, B, End, LIMIT, NONE, Side, refused};

/// The segments of one call may be of several regions and zones, need no privilege, and may be
/// none.
pub fn sync_takes_segments_of_any_zone(ias: &mut Adapters<'_, impl Side>) {
    let zones = [0; 2].map(|_| ias.a.pz_create().unwrap());
    let one = ias.mem(A, zones[0], 64, MemPriv::ALL);
    let two = ias.mem(A, zones[1], 64, MemPriv::empty());
    let segments = [one.seg(0, 64), two.seg(8, 8), LmrTriplet::default()];
    for list in [&segments[..], &[]] {
        ias.a.lmr_sync_rdma_read(list).unwrap();
        ias.a.lmr_sync_rdma_write(list).unwrap();
    }
}

/// A segment that does not lie in its region is `INVALID_PARAMETER`, wherever it stands in the
/// list.
pub fn sync_refuses_what_is_outside(ias: &mut Adapters<'_, impl Side>) {
    let pz = ias.a.pz_create().unwrap();
    let mem = ias.mem(A, pz, 64, MemPriv::ALL);
    let good = mem.seg(0, 64);
    for (addr, len) in [(good.addr - 1, 8), (good.addr + 60, 8), (0, 1), (good.addr, 65)] {
        let list = [good, LmrTriplet { addr, len, ..good }];
        let (ty, subtype) = (Ty::InvalidParameter, Sub::InvalidArg2);
        refused(ias.a.lmr_sync_rdma_read(&list), ty, subtype);
        refused(ias.a.lmr_sync_rdma_write(&list), ty, subtype);
    }
}

/// A context that no region has, or has no more, is `INVALID_PARAMETER`.
pub fn sync_refuses_unknown_contexts(ias: &mut Adapters<'_, impl Side>) {
    let pz = ias.a.pz_create().unwrap();
    let mem = ias.mem(A, pz, 64, MemPriv::ALL);
    let good = mem.seg(0, 64);
    ias.a.lmr_free(mem.lmr.lmr).unwrap();
    for context in [good.context, 0, u32::MAX] {
        let list = [LmrTriplet { context, ..good }];
        let (ty, subtype) = (Ty::InvalidParameter, Sub::InvalidArg2);
        refused(ias.a.lmr_sync_rdma_read(&list), ty, subtype);
        refused(ias.a.lmr_sync_rdma_write(&list), ty, subtype);
    }
}

/// Waits for the success of an access of side A. Side B is not driven meanwhile: what its driver
/// does might be a fence.
#[track_caller]
fn completed(ias: &mut Adapters<'_, impl Side>, from: &End, cookie: u64) {
    let end = ias.now() + LIMIT;
    loop {
        let now = ias.now();
        assert!(now < end, "the access did not complete");
        ias.a.ia.advance(now);
        if let Some(event) = ias.look(A, from.request) {
            let Event::Dto(dto) = event else { panic!() };
            assert_eq!((dto.cookie, dto.status), (cookie, DtoStatus::Success));
            return;
        }
        ias.a.side.pass(Duration::from_micros(5));
    }
}

/// Returns the counts of side B's provider.
fn syncs(ias: &Adapters<'_, impl Side>) -> [u32; 2] {
    ias.b.side.syncs().unwrap_or_default()
}

/// Each call asks for its own direction: stores that no fence has followed are there for a peer
/// that reads after the first, and what a peer has written is there for loads without a fence after
/// the second.
pub fn each_sync_call_serves_its_own_direction(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = ias.armed();
    let (from, region) = (ends[A], mems[B].lmr.region);
    let counted = u32::from(ias.b.side.syncs().is_some());
    let [reads, writes] = syncs(ias);
    let fresh: Vec<u8> = (0..64).rev().collect();
    for at in [0, 16, 32, 48] {
        ias.b.side.store_unfenced(region.addr + at as u64, &fresh[at..at + 16]);
    }
    ias.b.lmr_sync_rdma_read(&[mems[B].seg(0, 64)]).unwrap();
    assert_eq!(syncs(ias), [reads + counted, writes]);
    let (local, far) = (mems[A].seg(0, 64), mems[B].far(0, 64));
    ias.a.ep_post_rdma_read(from.ep, &[local], 1, &far, NONE).unwrap();
    completed(ias, &from, 1);
    assert_eq!(ias.bytes(&mems[A], 0, 64), fresh);
    let local = mems[A].seg(64, 64);
    ias.a.ep_post_rdma_write(from.ep, &[local], 2, &far, NONE).unwrap();
    completed(ias, &from, 2);
    ias.b.lmr_sync_rdma_write(&[mems[B].seg(0, 64)]).unwrap();
    assert_eq!(syncs(ias), [reads + counted, writes + counted]);
    let there = ias.b.side.load_unfenced(region.addr, 64);
    assert_eq!(there, pattern(A, 8192)[64..128]);
}

/// After the call a peer reads what was stored before it, and the CPU sees what a peer had written
/// before it.
pub fn sync_makes_both_directions_visible(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = ias.armed();
    let fresh: Vec<u8> = (0..64).rev().collect();
    ias.fill(&mems[B], 0, &fresh);
    ias.b.lmr_sync_rdma_read(&[mems[B].seg(0, 64)]).unwrap();
    assert!(ias.allowed(&ends, Try::Read, mems[A].seg(0, 64), mems[B].far(0, 64)));
    assert_eq!(ias.bytes(&mems[A], 0, 64), fresh);
    assert!(ias.allowed(&ends, Try::Write, mems[A].seg(64, 64), mems[B].far(0, 64)));
    ias.b.lmr_sync_rdma_write(&[mems[B].seg(0, 64)]).unwrap();
    assert_eq!(ias.bytes(&mems[B], 0, 64), pattern(A, 8192)[64..128]);
}
