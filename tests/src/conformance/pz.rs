//! Cases of dat_pz_*(3).

use dat_core::{CloseFlag, DatSubtype, DatType, DtoOperation, EvdFlags, MemPriv, Pz};

use super::{A, Adapters, B, Side, refused};

const STALE: (DatType, DatSubtype) = (DatType::InvalidHandle, DatSubtype::InvalidHandlePz);
const IN_USE: (DatType, DatSubtype) = (DatType::InvalidState, DatSubtype::InvalidStatePzInUse);

/// Makes a zone and frees it.
fn freed(ias: &mut Adapters<'_, impl Side>) -> Pz {
    let pz = ias.a.pz_create().unwrap();
    ias.a.pz_free(pz).unwrap();
    pz
}

/// A zone is made, is there, and is freed.
pub fn a_zone_is_made_and_freed(ias: &mut Adapters<'_, impl Side>) {
    let pz = ias.a.pz_create().unwrap();
    ias.a.pz_query(pz).unwrap();
    ias.a.pz_free(pz).unwrap();
    ias.a.close(CloseFlag::Graceful).unwrap();
}

/// Two zones have different handles.
pub fn zones_differ(ias: &mut Adapters<'_, impl Side>) {
    let [one, other] = [(); 2].map(|()| ias.a.pz_create().unwrap());
    assert_ne!(one, other);
    assert_ne!(ias.a.pz_query(one).unwrap(), ias.a.pz_query(other).unwrap());
}

/// A full table is INSUFFICIENT_RESOURCES, and has room again when a zone is freed.
pub fn a_full_table_has_room_again(ias: &mut Adapters<'_, impl Side>) {
    let most = ias.a.query().0.max_pzs;
    let pzs: Vec<Pz> = (0..most).map(|_| ias.a.pz_create().unwrap()).collect();
    let subtype = DatSubtype::ResourceProtectionDomain;
    refused(ias.a.pz_create(), DatType::InsufficientResources, subtype);
    ias.a.pz_free(pzs[1]).unwrap();
    let again = ias.a.pz_create().unwrap();
    assert!(!pzs.contains(&again));
    for pz in pzs.iter().filter(|pz| **pz != pzs[1]).chain([&again]) {
        ias.a.pz_free(*pz).unwrap();
    }
}

/// A freed zone cannot be asked about.
pub fn query_of_a_freed_zone(ias: &mut Adapters<'_, impl Side>) {
    let pz = freed(ias);
    refused(ias.a.pz_query(pz), STALE.0, STALE.1);
}

/// Nor freed again.
pub fn free_of_a_freed_zone(ias: &mut Adapters<'_, impl Side>) {
    let pz = freed(ias);
    refused(ias.a.pz_free(pz), STALE.0, STALE.1);
    // Also when its slot is in use again.
    let next = ias.a.pz_create().unwrap();
    refused(ias.a.pz_free(pz), STALE.0, STALE.1);
    ias.a.pz_query(next).unwrap();
}

/// Nothing can be made in a freed zone: no Endpoint, LMR or RMR.
pub fn nothing_is_made_in_a_freed_zone(ias: &mut Adapters<'_, impl Side>) {
    let pz = freed(ias);
    let evd = ias.a.evd_create(8, EvdFlags::DTO).unwrap();
    let ep = ias.a.ep_create(Some(pz), Some(evd), Some(evd), None, None);
    refused(ep, STALE.0, STALE.1);
    let region = ias.a.side.memory(64);
    refused(ias.a.lmr_create(pz, region, MemPriv::ALL), STALE.0, STALE.1);
    refused(ias.a.rmr_create(pz), STALE.0, STALE.1);
    // The Event Dispatcher was not taken.
    ias.a.evd_free(evd).unwrap();
}

/// The zone of another adapter is unknown.
pub fn the_zone_of_another_adapter_is_refused(ias: &mut Adapters<'_, impl Side>) {
    let pz = ias.a.pz_create().unwrap();
    refused(ias.b.pz_query(pz), STALE.0, STALE.1);
    refused(ias.b.pz_free(pz), STALE.0, STALE.1);
    let region = ias.b.side.memory(64);
    refused(ias.b.lmr_create(pz, region, MemPriv::ALL), STALE.0, STALE.1);
    ias.a.pz_query(pz).unwrap();
}

/// A zone with an Endpoint in it is in use.
pub fn a_zone_with_an_endpoint_is_in_use(ias: &mut Adapters<'_, impl Side>) {
    let end = ias.end(A);
    refused(ias.a.pz_free(end.pz), IN_USE.0, IN_USE.1);
    let now = ias.now();
    ias.a.ep_free(now, end.ep).unwrap();
    ias.a.pz_free(end.pz).unwrap();
}

/// A zone with an LMR in it is in use.
pub fn a_zone_with_an_lmr_is_in_use(ias: &mut Adapters<'_, impl Side>) {
    let pz = ias.a.pz_create().unwrap();
    let mem = ias.mem(A, pz, 64, MemPriv::ALL);
    refused(ias.a.pz_free(pz), IN_USE.0, IN_USE.1);
    ias.a.lmr_free(mem.lmr.lmr).unwrap();
    ias.a.pz_free(pz).unwrap();
}

/// A zone with an RMR in it is in use.
pub fn a_zone_with_an_rmr_is_in_use(ias: &mut Adapters<'_, impl Side>) {
    let pz = ias.a.pz_create().unwrap();
    let rmr = ias.a.rmr_create(pz).unwrap();
    refused(ias.a.pz_free(pz), IN_USE.0, IN_USE.1);
    ias.a.rmr_free(rmr).unwrap();
    ias.a.pz_free(pz).unwrap();
}

/// Every user counts: a zone is free when the last one has gone.
pub fn a_zone_is_in_use_until_its_last_user_goes(ias: &mut Adapters<'_, impl Side>) {
    let pz = ias.a.pz_create().unwrap();
    let mem = [(); 3].map(|()| ias.mem(A, pz, 64, MemPriv::ALL));
    for mem in mem {
        refused(ias.a.pz_free(pz), IN_USE.0, IN_USE.1);
        ias.a.lmr_free(mem.lmr.lmr).unwrap();
    }
    ias.a.pz_free(pz).unwrap();
}

/// A refused free changes nothing: a connection through the zone goes on.
pub fn a_refused_free_of_a_zone_changes_nothing(ias: &mut Adapters<'_, impl Side>) {
    let [a, b] = ias.connected();
    let near = ias.mem(A, a.pz, 64, MemPriv::ALL);
    let far = ias.mem(B, b.pz, 64, MemPriv::ALL);
    refused(ias.a.pz_free(a.pz), IN_USE.0, IN_USE.1);
    refused(ias.b.pz_free(b.pz), IN_USE.0, IN_USE.1);
    ias.recv(&b, &far, 0, 64, 1);
    ias.send(&a, &near, 0, 32, 2);
    assert_eq!(ias.done(&b, DtoOperation::Receive, 1), 32);
    assert_eq!(ias.done(&a, DtoOperation::Send, 2), 32);
    ias.mem(A, a.pz, 64, MemPriv::ALL);
}

/// A call that failed holds no zone.
pub fn a_failed_call_holds_no_zone(ias: &mut Adapters<'_, impl Side>) {
    let pz = ias.a.pz_create().unwrap();
    let evd = ias.a.evd_create(8, EvdFlags::SOFTWARE).unwrap();
    assert!(ias.a.ep_create(Some(pz), Some(evd), None, None, None).is_err());
    let mut region = ias.a.side.memory(64);
    region.len = 0;
    assert!(ias.a.lmr_create(pz, region, MemPriv::ALL).is_err());
    ias.a.pz_free(pz).unwrap();
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
