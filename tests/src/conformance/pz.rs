//! Cases of dat_pz_*(3).

use dat_core::{CloseFlag, DatSubtype, DatType, DtoOperation, EvdFlags, MemPriv, Pz};

use super::{A, B, Bed, Side, refused};

const STALE: (DatType, DatSubtype) = (DatType::InvalidHandle, DatSubtype::InvalidHandlePz);
const IN_USE: (DatType, DatSubtype) = (DatType::InvalidState, DatSubtype::InvalidStatePzInUse);

/// Makes a zone and frees it.
fn freed(bed: &mut Bed<'_, impl Side>) -> Pz {
    let pz = bed.a.pz_create().unwrap();
    bed.a.pz_free(pz).unwrap();
    pz
}

/// A zone is made, is there, and is freed.
pub fn a_zone_is_made_and_freed(bed: &mut Bed<'_, impl Side>) {
    let pz = bed.a.pz_create().unwrap();
    bed.a.pz_query(pz).unwrap();
    bed.a.pz_free(pz).unwrap();
    bed.a.close(CloseFlag::Graceful).unwrap();
}

/// Zones are told apart.
pub fn zones_differ(bed: &mut Bed<'_, impl Side>) {
    let [one, other] = [(); 2].map(|()| bed.a.pz_create().unwrap());
    assert_ne!(one, other);
    assert_ne!(bed.a.pz_query(one).unwrap(), bed.a.pz_query(other).unwrap());
}

/// A full table is INSUFFICIENT_RESOURCES, and has room again when a zone is freed.
pub fn a_full_table_has_room_again(bed: &mut Bed<'_, impl Side>) {
    let most = bed.a.query().0.max_pzs;
    let pzs: Vec<Pz> = (0..most).map(|_| bed.a.pz_create().unwrap()).collect();
    let subtype = DatSubtype::ResourceProtectionDomain;
    refused(bed.a.pz_create(), DatType::InsufficientResources, subtype);
    bed.a.pz_free(pzs[1]).unwrap();
    let again = bed.a.pz_create().unwrap();
    assert!(!pzs.contains(&again));
    for pz in pzs.iter().filter(|pz| **pz != pzs[1]).chain([&again]) {
        bed.a.pz_free(*pz).unwrap();
    }
}

/// A freed zone cannot be asked about.
pub fn query_of_a_freed_zone(bed: &mut Bed<'_, impl Side>) {
    let pz = freed(bed);
    refused(bed.a.pz_query(pz), STALE.0, STALE.1);
}

/// Nor freed again.
pub fn free_of_a_freed_zone(bed: &mut Bed<'_, impl Side>) {
    let pz = freed(bed);
    refused(bed.a.pz_free(pz), STALE.0, STALE.1);
    // Also when another zone lives in its place.
    let next = bed.a.pz_create().unwrap();
    refused(bed.a.pz_free(pz), STALE.0, STALE.1);
    bed.a.pz_query(next).unwrap();
}

/// Nothing can be made in a freed zone: no Endpoint, LMR or RMR.
pub fn nothing_is_made_in_a_freed_zone(bed: &mut Bed<'_, impl Side>) {
    let pz = freed(bed);
    let evd = bed.a.evd_create(8, EvdFlags::DTO).unwrap();
    let ep = bed.a.ep_create(Some(pz), Some(evd), Some(evd), None, None);
    refused(ep, STALE.0, STALE.1);
    let region = bed.a.side.memory(64);
    refused(bed.a.lmr_create(pz, region, MemPriv::ALL), STALE.0, STALE.1);
    refused(bed.a.rmr_create(pz), STALE.0, STALE.1);
    // The Event Dispatcher was not taken.
    bed.a.evd_free(evd).unwrap();
}

/// The zone of another adapter is a stranger.
pub fn the_zone_of_another_adapter_is_refused(bed: &mut Bed<'_, impl Side>) {
    let pz = bed.a.pz_create().unwrap();
    refused(bed.b.pz_query(pz), STALE.0, STALE.1);
    refused(bed.b.pz_free(pz), STALE.0, STALE.1);
    let region = bed.b.side.memory(64);
    refused(bed.b.lmr_create(pz, region, MemPriv::ALL), STALE.0, STALE.1);
    bed.a.pz_query(pz).unwrap();
}

/// A zone with an Endpoint in it is in use.
pub fn a_zone_with_an_endpoint_is_in_use(bed: &mut Bed<'_, impl Side>) {
    let end = bed.end(A);
    refused(bed.a.pz_free(end.pz), IN_USE.0, IN_USE.1);
    let now = bed.now();
    bed.a.ep_free(now, end.ep).unwrap();
    bed.a.pz_free(end.pz).unwrap();
}

/// A zone with an LMR in it is in use.
pub fn a_zone_with_an_lmr_is_in_use(bed: &mut Bed<'_, impl Side>) {
    let pz = bed.a.pz_create().unwrap();
    let mem = bed.mem(A, pz, 64, MemPriv::ALL);
    refused(bed.a.pz_free(pz), IN_USE.0, IN_USE.1);
    bed.a.lmr_free(mem.lmr.lmr).unwrap();
    bed.a.pz_free(pz).unwrap();
}

/// A zone with an RMR in it is in use.
pub fn a_zone_with_an_rmr_is_in_use(bed: &mut Bed<'_, impl Side>) {
    let pz = bed.a.pz_create().unwrap();
    let rmr = bed.a.rmr_create(pz).unwrap();
    refused(bed.a.pz_free(pz), IN_USE.0, IN_USE.1);
    bed.a.rmr_free(rmr).unwrap();
    bed.a.pz_free(pz).unwrap();
}

/// Every user counts: a zone is free when the last one has gone.
pub fn a_zone_is_in_use_until_its_last_user_goes(bed: &mut Bed<'_, impl Side>) {
    let pz = bed.a.pz_create().unwrap();
    let mem = [(); 3].map(|()| bed.mem(A, pz, 64, MemPriv::ALL));
    for mem in mem {
        refused(bed.a.pz_free(pz), IN_USE.0, IN_USE.1);
        bed.a.lmr_free(mem.lmr.lmr).unwrap();
    }
    bed.a.pz_free(pz).unwrap();
}

/// A refused free changes nothing: a connection through the zone goes on.
pub fn a_refused_free_of_a_zone_changes_nothing(bed: &mut Bed<'_, impl Side>) {
    let [a, b] = bed.connected();
    let near = bed.mem(A, a.pz, 64, MemPriv::ALL);
    let far = bed.mem(B, b.pz, 64, MemPriv::ALL);
    refused(bed.a.pz_free(a.pz), IN_USE.0, IN_USE.1);
    refused(bed.b.pz_free(b.pz), IN_USE.0, IN_USE.1);
    bed.recv(&b, &far, 0, 64, 1);
    bed.send(&a, &near, 0, 32, 2);
    assert_eq!(bed.done(&b, DtoOperation::Receive, 1), 32);
    assert_eq!(bed.done(&a, DtoOperation::Send, 2), 32);
    bed.mem(A, a.pz, 64, MemPriv::ALL);
}

/// A call that failed holds no zone.
pub fn a_failed_call_holds_no_zone(bed: &mut Bed<'_, impl Side>) {
    let pz = bed.a.pz_create().unwrap();
    let evd = bed.a.evd_create(8, EvdFlags::SOFTWARE).unwrap();
    assert!(bed.a.ep_create(Some(pz), Some(evd), None, None, None).is_err());
    let mut region = bed.a.side.memory(64);
    region.len = 0;
    assert!(bed.a.lmr_create(pz, region, MemPriv::ALL).is_err());
    bed.a.pz_free(pz).unwrap();
}

/// The cases.
#[macro_export]
macro_rules! pz_cases {
    ($with:ident) => {
        $with! { pz:
            a_zone_is_made_and_freed
            zones_differ
            a_full_table_has_room_again
            query_of_a_freed_zone
            free_of_a_freed_zone
            nothing_is_made_in_a_freed_zone
            the_zone_of_another_adapter_is_refused
            a_zone_with_an_endpoint_is_in_use
            a_zone_with_an_lmr_is_in_use
            a_zone_with_an_rmr_is_in_use
            a_zone_is_in_use_until_its_last_user_goes
            a_refused_free_of_a_zone_changes_nothing
            a_failed_call_holds_no_zone
        }
    };
}
