//! Attributes of the adapter, and refusals of its registrations of pages.

use crate::pair::*;
use dat_core::testing::Fabric;
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
fn a_port_without_atomics_and_datagrams_has_no_extensions() {
    let fabric: &'static Fabric = Box::leak(Box::new(Fabric::new()));
    fabric.extensions(false);
    let ia: LoopIa = open(fabric, 0);
    let (attr, _) = ia.query();
    assert_eq!((attr.extension_supported, attr.extension_version), (0, 0));
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
