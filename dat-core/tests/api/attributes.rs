//! Attributes of the adapter, and refusals of its registrations of pages.

use crate::pair::*;
use dat_core::provider::{Class, Classes};
use dat_core::testing::{Fabric, LoopHca};
use dat_core::*;

#[test]
fn the_provider_tells_its_versions_and_what_it_takes() {
    let p = Pair::unconnected(Merge::Apart, None);
    let (ia, provider) = p.a.ia.query();
    assert_eq!((ia.extension_supported, ia.extension_version), (1, 209));
    assert_eq!(provider.provider_version, (0, 1));
    assert_eq!(provider.dapl_version, (2, 0));
    assert_eq!(provider.lmr_mem_types_supported, 0x53);
    let private = (
        provider.max_private_data_size,
        provider.max_accept_private_data_size,
        provider.max_reject_private_data_size,
    );
    assert_eq!(private, (56, 196, 148));
    let none = (
        provider.iov_ownership,
        provider.dat_qos_supported,
        provider.pz_support,
        provider.ha_loadbalancing,
    );
    assert_eq!(none, (0, 0, 0, 0));
    assert_eq!((provider.ep_creator, provider.rmr_scope_supported), (1, 2));
    let shared = (
        provider.srq_watermarks_supported,
        provider.srq_info_supported,
        provider.ep_recv_info_supported,
    );
    assert_eq!(shared, (7, 3, 3));
}

#[test]
fn a_quality_of_service_with_a_class_is_supported() {
    let fabric: &'static Fabric = Box::leak(Box::new(Fabric::new()));
    let mut classes = Classes::default();
    for qos in Qos::ALL {
        classes.set(qos, Class { traffic_class: qos as u8, priority: 7 });
    }
    classes.low_latency = None;
    fabric.classes(classes);
    let mut side = Side::new(fabric, 0, Merge::Apart, None);
    assert_eq!(side.ia.query().1.dat_qos_supported, 1 | 4 | 8);
    for qos in Qos::ALL {
        let attr = EpAttr { qos, ..side.ia.ep_attr_default() };
        let zone = Some(side.pz);
        let made = side.ia.ep_create(zone, Some(side.recv), Some(side.request), None, Some(&attr));
        let answer = made.map(|ep| side.ia.ep_query(ep).unwrap().attr.qos);
        match qos {
            Qos::LowLatency => {
                let model = DatReturn::of(DatType::ModelNotSupported);
                assert_eq!(answer.unwrap_err().ret(), model);
            }
            Qos::BestEffort | Qos::HighThroughput | Qos::Economy | Qos::Premium => {
                assert_eq!(answer.unwrap(), qos);
            }
        }
    }
}

#[test]
fn a_port_without_atomics_and_datagrams_has_no_extensions() {
    let fabric: &'static Fabric = Box::leak(Box::new(Fabric::new()));
    fabric.extensions(false);
    let ia: LoopIa = open(fabric, 0);
    let (attr, _) = ia.query();
    assert_eq!((attr.extension_supported, attr.extension_version), (0, 0));
}

#[test]
fn an_adapter_without_extensions_refuses_each() {
    let model = DatReturn::of(DatType::ModelNotSupported);
    let fabric: &'static Fabric = Box::leak(Box::new(Fabric::new()));
    fabric.extensions(false);
    let mut side = Side::new(fabric, 0, Merge::Apart, None);
    let lmr = side.ia.lmr_create(side.pz, fabric.region(0), MemPriv::ALL | MemPriv::REMOTE_ATOMIC);
    assert_eq!(lmr.unwrap_err().ret(), model);
    let ud = side.ia.ep_create_ud(side.pz, side.recv, side.request, None, None, 1);
    assert_eq!(ud.unwrap_err().ret(), model);
    let mut p = Pair {
        fabric,
        a: side,
        b: Side::new(fabric, 1, Merge::Apart, None),
        now: Instant::from_nanos(1),
    };
    p.b.ia.psp_create(PORT, p.b.cr, PspFlag::Consumer).unwrap();
    p.connect();
    let (ep, here, there) = (p.a.ep, p.a.seg(0, 8), p.b.far(64, 8));
    let add = p.a.ia.ep_post_fetch_add(ep, 1, &here, 1, &there, FLAGS);
    assert_eq!(add, Err(model));
}

#[test]
fn a_port_without_windows_says_so() {
    let fabric: &'static Fabric = Box::leak(Box::new(Fabric::new()));
    fabric.windows(false);
    let mut ia: LoopIa = open(fabric, 0);
    let pz = ia.pz_create().unwrap();
    assert_eq!(ia.rmr_create(pz).unwrap_err().ret().ty(), DatType::ModelNotSupported);
    assert_eq!(ia.lmr_allocate(pz, 1).unwrap_err().ret().ty(), DatType::ModelNotSupported);
    let (attr, provider) = ia.query();
    assert_eq!((attr.max_rmrs, attr.max_rmr_target_address), (0, 0));
    assert_eq!(provider.rmr_scope_supported, 0);
}

#[test]
fn handles_of_different_kinds_differ() {
    let fabric: &'static Fabric = Box::leak(Box::new(Fabric::new()));
    let mut ia: LoopIa = open(fabric, 0);
    let pz = ia.pz_create().unwrap();
    let rmr = ia.rmr_create(pz).unwrap();
    let lmr = ia.lmr_create(pz, fabric.region(0), MemPriv::ALL).unwrap();
    let words = [pz.raw(), rmr.raw(), lmr.lmr.raw(), ia.async_evd().raw()];
    // All are the first of their kind.
    for (at, word) in words.iter().enumerate() {
        assert!(words.iter().skip(at + 1).all(|other| other != word));
    }
}

#[test]
fn pages_are_refused_for_their_zone_first_and_beyond_a_region() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    let spare = p.a.ia.pz_create().unwrap();
    p.a.ia.pz_free(spare).unwrap();
    let most = p.a.ia.query().0.max_lmr_block_size;
    let first = p.fabric.region(0).addr;
    let mut ask = |pz, pages: &[u64], len| {
        let memory = PhysicalPages { pages, log_page: 12, len };
        let refused = p.a.ia.lmr_kcreate(pz, memory, MemPriv::ALL, VaType::Va);
        refused.unwrap_err().ret()
    };
    let zone = DatReturn::new(DatType::InvalidHandle, DatSubtype::InvalidHandlePz);
    assert_eq!(ask(spare, &[], 0).ty(), zone.ty());
    assert_eq!(ask(p.a.pz, &[], 0).ty(), DatType::LengthError);
    // Every page is there; together they are longer than a region may be.
    let pages = vec![first; usize::try_from(most / 4096 + 1).unwrap()];
    let argument = DatReturn::new(DatType::InvalidParameter, DatSubtype::InvalidArg3);
    assert_eq!(ask(p.a.pz, &pages, most + 4096), argument);
}

#[test]
fn a_provided_endpoint_has_no_more_reads_than_the_request_asks_for() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    let mut attr = p.a.ia.ep_attr_default();
    (attr.max_rdma_read_in, attr.max_rdma_read_out) = (2, 3);
    let (recv, request, conn) = (Some(p.a.recv), Some(p.a.request), Some(p.a.conn));
    let ep = p.a.ia.ep_create(Some(p.a.pz), recv, request, conn, Some(&attr));
    let ep = ep.unwrap();
    p.b.ia.psp_create(77, p.b.cr, PspFlag::Provider).unwrap();
    let wait = core::time::Duration::from_secs(1);
    p.a.ia.ep_connect(p.now, ep, addr(1), 77, wait, b"", Qos::BestEffort).unwrap();
    p.run_until_idle();
    let Some(Event::ConnectionRequest { cr, .. }) = p.b.next(p.b.cr) else { unreachable!() };
    let provided = p.b.ia.cr_query(cr).unwrap().local_ep.unwrap();
    let attr = p.b.ia.ep_query(provided).unwrap().attr;
    let mut reads = [attr.max_rdma_read_in, attr.max_rdma_read_out];
    reads.sort_unstable();
    assert_eq!(reads, [2, 3]);
}

#[test]
fn memory_is_refused_for_its_zone_first_and_for_its_length_before_its_address() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    let gone = p.a.ia.pz_create().unwrap();
    p.a.ia.pz_free(gone).unwrap();
    let of = |len| provider::Region { len, ..p.fabric.region(0) };
    let mut ask = |pz, memory| {
        p.a.ia.lmr_create_from(pz, memory, MemPriv::ALL, VaType::Va).unwrap_err().ret()
    };
    let stale = DatReturn::new(DatType::InvalidHandle, DatSubtype::InvalidHandlePz);
    assert_eq!(ask(gone, Memory::Virtual(of(0))), stale);
    let length = DatReturn::of(DatType::LengthError);
    assert_eq!(ask(p.a.pz, Memory::Virtual(of(0))), length);
    // Under a name that the host does not share.
    let name = [7; 40];
    assert_eq!(ask(p.a.pz, Memory::SharedVirtual(of(0), &name)), length);
    let unshared = DatReturn::of(DatType::InvalidState);
    assert_eq!(ask(p.a.pz, Memory::SharedVirtual(of(1), &name)), unshared);
    let wraps = provider::Region { addr: u64::MAX, len: 2 };
    let argument = DatReturn::new(DatType::InvalidParameter, DatSubtype::InvalidArg4);
    assert_eq!(ask(p.a.pz, Memory::Virtual(wraps)), argument);
    let most = p.a.ia.query().0.max_lmr_block_size;
    assert_eq!(p.a.ia.lmr_create(p.a.pz, of(most + 1), MemPriv::ALL).unwrap_err().ret(), argument);
    assert!(p.a.ia.lmr_create(p.a.pz, of(most), MemPriv::ALL).is_ok());
    assert_eq!(p.a.ia.lmr_allocate(gone, 0).unwrap_err().ret(), stale);
}

#[test]
fn shared_memory_is_registered_as_far_as_the_host_shares_it() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    let name = [7; 40];
    let all = p.fabric.share(&name);
    let part = |from: u64, len| provider::Region { addr: all.addr.wrapping_add(from), len };
    for (region, shared) in [
        (all, true),
        (part(1, all.len - 1), true),
        (part(all.len - 1, 1), true),
        (part(1, all.len), false),
        (part(0, all.len + 1), false),
        (part(0_u64.wrapping_sub(1), 2), false),
    ] {
        let memory = Memory::SharedVirtual(region, &name);
        let made = p.a.ia.lmr_create_from(p.a.pz, memory, MemPriv::ALL, VaType::Va);
        let made = made.map(|made| made.region).map_err(|error| error.ret());
        let refused = DatReturn::of(DatType::InvalidState);
        assert_eq!(made, if shared { Ok(region) } else { Err(refused) });
    }
}

/// A triplet that names a fast registration which is gone fails, although others have its slot.
#[test]
fn the_next_lmrs_of_a_slot_have_not_the_contexts_of_its_fast_registrations() {
    let mut p = Pair::connected();
    let (pz, region) = (p.a.pz, p.fabric.region(0));
    let lmr = p.a.ia.lmr_allocate(pz, 1).unwrap();
    let memory = PhysicalPages { pages: &[region.addr], log_page: 12, len: 4096 };
    let made = p.a.ia.lmr_fmr(lmr, memory, MemPriv::ALL, VaType::Va, p.a.ep, 1, FLAGS).unwrap();
    assert_eq!(p.a.dtos(p.a.request), [(1, DtoStatus::Success)]);
    p.a.ia.lmr_free(lmr).unwrap();
    let mut again = 0;
    for _ in 0..40 {
        let next = p.a.ia.lmr_create(pz, region, MemPriv::ALL).unwrap();
        again += u32::from(next.lmr_context >> 12 == made.lmr_context >> 12);
        assert_ne!(next.lmr_context, made.lmr_context);
        p.a.ia.lmr_free(next.lmr).unwrap();
    }
    assert!(again > 2, "{again}");
}

#[test]
fn an_adapter_opens_on_few_events() {
    let fabric: &'static Fabric = Box::leak(Box::new(Fabric::new()));
    let storage: &'static mut Storage<_, 2, 2, 2, 8, 8> = Box::leak(Box::new(Storage::new()));
    let net = provider::Net::new(addr(0), 24);
    let hca = LoopHca::new(fabric, 0);
    let ia = Ia::open(hca, storage.parts(), net, Instant::ZERO, [1; 32]).unwrap();
    assert_eq!(ia.query().0.max_software_evd_qlen, 8);
    assert_eq!(ia.evd_query(ia.async_evd()).unwrap().qlen, 8);
}
