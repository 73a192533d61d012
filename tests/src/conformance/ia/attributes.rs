//! dat_ia_query(3): every attribute is set, and limits are where the attributes say.

use dat_core::{
    AttrValue, CompletionFlags, DatSubtype, DatType, Ep, EpAttr, Error, EvdFlags, LmrTriplet,
    MemPriv, Qos,
};

use crate::conformance::{A, Adapters, B, LIMIT, NONE, Side, refused};

const FULL: DatType = DatType::InsufficientResources;

/// Makes things until one is refused; how many were made, and the refusal.
fn until_refused<T>(mut make: impl FnMut() -> Result<T, Error>) -> (u32, DatType) {
    for made in 0..100_000 {
        if let Err(error) = make() {
            return (made, error.ret().ty());
        }
    }
    panic!("no end of them");
}

/// The adapter and its maker have names of a length that C consumers have room for, and so has the
/// provider.
pub fn adapter_vendor_and_provider_have_names(ias: &mut Adapters<'_, impl Side>) {
    let (ia, provider) = ias.a.query();
    for name in [ia.adapter_name, ia.vendor_name, provider.provider_name] {
        assert!(!name.is_empty() && name.len() < 256, "{name:?}");
    }
}

/// Versions of device, firmware, provider and DAT, which is 2.0.
pub fn versions_are_reported(ias: &mut Adapters<'_, impl Side>) {
    let (ia, provider) = ias.a.query();
    assert_ne!(ia.firmware_version, (0, 0));
    assert_ne!(provider.provider_version, (0, 0));
    assert_eq!(provider.dapl_version, (2, 0));
}

/// The address of the adapter is the one that peers connect to.
pub fn the_address_is_the_one_that_peers_use(ias: &mut Adapters<'_, impl Side>) {
    let (ia, _) = ias.b.query();
    assert_eq!(ia.ia_address, ias.b.address());
    let point = ias.listen(B);
    let end = ias.end(A);
    let now = ias.now();
    let qos = Qos::BestEffort;
    ias.a.ep_connect(now, end.ep, ia.ia_address, point.qualifier, LIMIT, b"", qos).unwrap();
    ias.request(&point);
}

/// The answer does not change while nothing else does, nor with the objects that are made.
pub fn a_second_query_says_the_same(ias: &mut Adapters<'_, impl Side>) {
    let first = ias.a.query();
    ias.connected();
    assert_eq!(ias.a.query(), first);
}

/// So many Endpoints and not one more.
pub fn max_eps_is_where_endpoints_end(ias: &mut Adapters<'_, impl Side>) {
    let most = ias.a.query().0.max_eps;
    let ia = &mut ias.a.ia;
    let pz = ia.pz_create().unwrap();
    let evd = ia.evd_create(64, EvdFlags::DTO | EvdFlags::CONNECTION).unwrap();
    let evd = Some(evd);
    let made = until_refused(|| ia.ep_create(Some(pz), evd, evd, evd, None));
    assert_eq!(made, (most, FULL));
}

/// So many Event Dispatchers, the async one included, and not one more.
pub fn max_evds_is_where_event_dispatchers_end(ias: &mut Adapters<'_, impl Side>) {
    let most = ias.a.query().0.max_evds;
    let ia = &mut ias.a.ia;
    let made = until_refused(|| ia.evd_create(1, EvdFlags::SOFTWARE));
    assert_eq!(made, (most - 1, FULL));
}

/// So many zones and not one more.
pub fn max_pzs_is_where_zones_end(ias: &mut Adapters<'_, impl Side>) {
    let most = ias.a.query().0.max_pzs;
    let made = until_refused(|| ias.a.pz_create());
    assert_eq!(made, (most, FULL));
}

/// So many LMRs and not one more.
pub fn max_lmrs_is_where_registrations_end(ias: &mut Adapters<'_, impl Side>) {
    let most = ias.a.query().0.max_lmrs;
    let pz = ias.a.pz_create().unwrap();
    let region = ias.a.side.memory(64);
    let made = until_refused(|| ias.a.lmr_create(pz, region, MemPriv::ALL));
    assert_eq!(made, (most, FULL));
}

/// So many RMRs and not one more.
pub fn max_rmrs_is_where_windows_end(ias: &mut Adapters<'_, impl Side>) {
    let most = ias.a.query().0.max_rmrs;
    let pz = ias.a.pz_create().unwrap();
    let made = until_refused(|| ias.a.rmr_create(pz));
    assert_eq!(made, (most, FULL));
}

/// An Event Dispatcher has no more entries than the longest.
pub fn max_evd_qlen_is_the_longest_event_dispatcher(ias: &mut Adapters<'_, impl Side>) {
    let most = ias.a.query().0.max_evd_qlen;
    assert!(most >= 64);
    let long = ias.a.evd_create(most + 1, EvdFlags::DTO);
    refused(long, FULL, DatSubtype::ResourceTevd);
    let evd = ias.a.evd_create(64, EvdFlags::DTO).unwrap();
    assert!(ias.a.evd_query(evd).unwrap().qlen <= most);
}

/// One without completions has its own longest.
pub fn max_software_evd_qlen_is_the_longest_without_completions(ias: &mut Adapters<'_, impl Side>) {
    let most = ias.a.query().0.max_software_evd_qlen;
    let long = ias.a.evd_create(most + 1, EvdFlags::SOFTWARE);
    refused(long, FULL, DatSubtype::ResourceTevd);
    let evd = ias.a.evd_create(most, EvdFlags::SOFTWARE).unwrap();
    for n in 0..most {
        ias.a.evd_post_se(evd, n.into()).unwrap();
    }
    refused(ias.a.evd_post_se(evd, 0), DatType::QueueFull, DatSubtype::None);
}

/// Makes an Endpoint with other attributes; refused ones are INVALID_PARAMETER of the attributes.
fn endpoint(
    ias: &mut Adapters<'_, impl Side>,
    tweak: impl FnOnce(&mut EpAttr),
) -> Result<Ep, Error> {
    let ia = &mut ias.a.ia;
    let pz = ia.pz_create().unwrap();
    let flags = EvdFlags::DTO | EvdFlags::CONNECTION;
    let evd = ia.evd_create(64, flags).unwrap();
    let mut attr = ia.ep_attr_default();
    tweak(&mut attr);
    let made = ia.ep_create(Some(pz), Some(evd), Some(evd), Some(evd), Some(&attr));
    if let Ok(ep) = made {
        assert_eq!(ia.ep_query(ep).unwrap().attr, attr);
    } else {
        ia.evd_free(evd).unwrap();
        ia.pz_free(pz).unwrap();
    }
    made
}

/// An attribute at its limit is granted, beyond it refused.
fn limit(ias: &mut Adapters<'_, impl Side>, set: impl Fn(&mut EpAttr, bool)) {
    endpoint(ias, |attr| set(attr, false)).unwrap();
    let beyond = endpoint(ias, |attr| set(attr, true));
    refused(beyond, DatType::InvalidParameter, DatSubtype::InvalidArg6);
}

/// DTOs of an Endpoint, in each direction.
pub fn max_dto_per_ep_is_the_most_of_each_direction(ias: &mut Adapters<'_, impl Side>) {
    let most = u16::try_from(ias.a.query().0.max_dto_per_ep).unwrap();
    limit(ias, |attr, beyond| attr.max_recv_dtos = most + u16::from(beyond));
    limit(ias, |attr, beyond| attr.max_request_dtos = most + u16::from(beyond));
}

/// An Endpoint made for the most receives takes as many, and refuses the next.
pub fn an_endpoint_takes_as_many_receives_as_it_was_made_for(ias: &mut Adapters<'_, impl Side>) {
    let most = u16::try_from(ias.a.query().0.max_dto_per_ep).unwrap();
    let end = ias.end_with(A, false, |attr| attr.max_recv_dtos = most);
    let mem = ias.mem(A, end.pz, 64, MemPriv::ALL);
    for cookie in 0..most.into() {
        ias.recv(&end, &mem, 0, 8, cookie);
    }
    let ret = ias.a.ep_post_recv(end.ep, &[mem.seg(0, 8)], 0, NONE);
    assert_eq!(ret.map_err(|ret| ret.ty()), Err(FULL));
}

/// Segments of a DTO, a read and a write.
pub fn max_iov_segments_are_the_most_of_each_operation(ias: &mut Adapters<'_, impl Side>) {
    let ia = ias.a.query().0;
    let narrow = |most: u32| u8::try_from(most).unwrap();
    let dto = narrow(ia.max_iov_segments_per_dto);
    let read = narrow(ia.max_iov_segments_per_rdma_read);
    let write = narrow(ia.max_iov_segments_per_rdma_write);
    limit(ias, |attr, beyond| attr.max_recv_iov = dto + u8::from(beyond));
    limit(ias, |attr, beyond| attr.max_request_iov = dto + u8::from(beyond));
    limit(ias, |attr, beyond| attr.max_rdma_read_iov = read + u8::from(beyond));
    limit(ias, |attr, beyond| attr.max_rdma_write_iov = write + u8::from(beyond));
}

/// Reads of an Endpoint, incoming and outgoing.
pub fn max_rdma_reads_are_the_most_of_an_endpoint(ias: &mut Adapters<'_, impl Side>) {
    let ia = ias.a.query().0;
    let into = u8::try_from(ia.max_rdma_read_per_ep_in).unwrap();
    let out = u8::try_from(ia.max_rdma_read_per_ep_out).unwrap();
    limit(ias, |attr, beyond| attr.max_rdma_read_in = into + u8::from(beyond));
    limit(ias, |attr, beyond| attr.max_rdma_read_out = out + u8::from(beyond));
}

/// Reads of all Endpoints together: where each one's are guaranteed, they are enough for all.
pub fn guaranteed_reads_are_enough_for_all_endpoints(ias: &mut Adapters<'_, impl Side>) {
    let ia = ias.a.query().0;
    if ia.max_rdma_read_per_ep_in_guaranteed {
        assert!(ia.max_rdma_read_in >= ia.max_eps * ia.max_rdma_read_per_ep_in);
    }
    if ia.max_rdma_read_per_ep_out_guaranteed {
        assert!(ia.max_rdma_read_out >= ia.max_eps * ia.max_rdma_read_per_ep_out);
    }
    assert!(ia.max_rdma_read_in >= ia.max_rdma_read_per_ep_in);
    assert!(ia.max_rdma_read_out >= ia.max_rdma_read_per_ep_out);
}

/// Bytes of a message.
pub fn max_message_size_is_the_most_of_an_endpoint(ias: &mut Adapters<'_, impl Side>) {
    let most = u32::try_from(ias.a.query().0.max_message_size).unwrap();
    limit(ias, |attr, beyond| attr.max_message_size = most + u32::from(beyond));
}

/// Bytes of an RDMA operation.
pub fn max_rdma_size_is_the_most_of_an_endpoint(ias: &mut Adapters<'_, impl Side>) {
    let most = u32::try_from(ias.a.query().0.max_rdma_size).unwrap();
    limit(ias, |attr, beyond| attr.max_rdma_size = most + u32::from(beyond));
}

/// Bytes of an LMR.
pub fn max_lmr_block_size_is_the_most_of_a_registration(ias: &mut Adapters<'_, impl Side>) {
    let most = ias.a.query().0.max_lmr_block_size;
    let pz = ias.a.pz_create().unwrap();
    let mut region = ias.a.side.memory(4096);
    assert!(most >= region.len);
    region.len = most.saturating_add(1);
    let made = ias.a.lmr_create(pz, region, MemPriv::LOCAL_READ);
    assert_eq!(made.map_err(|error| error.ret().ty()), Err(DatType::InvalidParameter));
}

/// Addresses that LMRs and RMRs reach include all memory there is.
pub fn the_highest_addresses_include_the_consumers_memory(ias: &mut Adapters<'_, impl Side>) {
    let ia = ias.a.query().0;
    let region = ias.a.side.memory(64);
    let last = region.addr + region.len - 1;
    assert!(ia.max_lmr_virtual_address >= last);
    assert!(ia.max_rmrs == 0 || ia.max_rmr_target_address >= last);
}

/// Atomics and datagrams are announced as the InfiniBand extensions of the version whose numbers
/// are used.
pub fn extensions_are_announced_with_their_version(ias: &mut Adapters<'_, impl Side>) {
    let ia = ias.a.query().0;
    assert_eq!((ia.extension_supported, ia.extension_version), (1, 209));
    let [a, b] = ias.connected();
    let near = ias.mem(A, a.pz, 64, MemPriv::ALL);
    let far = ias.mem(B, b.pz, 64, MemPriv::all());
    let (into, at) = (near.seg(0, 8), far.far(0, 8));
    ias.a.ep_post_fetch_add(a.ep, 1, &into, 5, &at, NONE).unwrap();
    assert!(matches!(ias.event(A, a.request), dat_core::Event::IbDto(_)));
}

/// Attributes of transport and vendor are lists, which may be empty.
pub fn transport_and_vendor_attributes_are_lists(ias: &mut Adapters<'_, impl Side>) {
    let ia = ias.a.query().0;
    for attr in ia.transport_attr.iter().chain(ia.vendor_attr) {
        assert!(!attr.name.is_empty());
    }
}

// ---- the provider's ----

/// Memory of type VIRTUAL is announced, and it works.
pub fn virtual_memory_is_supported(ias: &mut Adapters<'_, impl Side>) {
    let provider = ias.a.query().1;
    assert_ne!(provider.lmr_mem_types_supported & 1, 0);
    let pz = ias.a.pz_create().unwrap();
    ias.mem(A, pz, 64, MemPriv::ALL);
}

/// Segment lists are the consumer's again when a post returns: what becomes of the list changes
/// nothing.
pub fn segment_lists_are_the_consumers_when_a_post_returns(ias: &mut Adapters<'_, impl Side>) {
    assert_eq!(ias.a.query().1.iov_ownership, 0);
    let [a, b] = ias.connected();
    let near = ias.mem(A, a.pz, 64, MemPriv::ALL);
    let far = ias.mem(B, b.pz, 64, MemPriv::ALL);
    ias.fill(&near, 0, &[0x5a; 64]);
    let mut list = [near.seg(0, 64)];
    // Nobody receives yet, so the list is read now or never.
    ias.a.ep_post_send(a.ep, &list, 1, NONE).unwrap();
    list.fill(LmrTriplet::default());
    ias.recv(&b, &far, 0, 64, 2);
    assert_eq!(ias.done(&b, dat_core::DtoOperation::Receive, 2), 64);
    assert_eq!(ias.bytes(&far, 0, 64), [0x5a; 64]);
    assert_eq!(list[0].len, 0);
}

/// Quality of service: best effort is what there is, and any other is refused.
pub fn only_the_announced_quality_of_service_is_granted(ias: &mut Adapters<'_, impl Side>) {
    assert_eq!(ias.a.query().1.dat_qos_supported, Qos::BestEffort as u32);
    let point = ias.listen(B);
    let end = ias.end(A);
    let to = ias.b.address();
    for qos in [Qos::HighThroughput, Qos::LowLatency, Qos::Economy, Qos::Premium] {
        let now = ias.now();
        let asked = ias.a.ep_connect(now, end.ep, to, point.qualifier, LIMIT, b"", qos);
        refused(asked, DatType::ModelNotSupported, DatSubtype::None);
        let made = endpoint(ias, |attr| attr.qos = qos);
        refused(made, DatType::ModelNotSupported, DatSubtype::None);
    }
    ias.ask(&end, point.qualifier, LIMIT, b"");
}

/// Completion flags that are announced are taken by a request.
pub fn announced_completion_flags_are_taken(ias: &mut Adapters<'_, impl Side>) {
    let flags = ias.a.query().1.completion_flags_supported;
    let all = CompletionFlags::from_bits_retain(0x0f);
    assert_eq!(flags, all);
    let unsignalled = |attr: &mut EpAttr| {
        attr.request_completion_flags = CompletionFlags::UNSIGNALLED;
    };
    let ends = [ias.end_with(A, false, unsignalled), ias.end(B)];
    ias.connect(&ends[A], &ends[B]);
    let mem = ias.mem(A, ends[A].pz, 64, MemPriv::ALL);
    let to = ias.mem(B, ends[B].pz, 64, MemPriv::ALL);
    for (cookie, flag) in flags.iter().enumerate() {
        ias.recv(&ends[B], &to, 0, 8, cookie as u64);
        ias.a.ep_post_send(ends[A].ep, &[mem.seg(0, 8)], cookie as u64, flag).unwrap();
    }
}

/// Private data of the announced size is taken by every call that takes any, and one byte more is
/// refused.
pub fn private_data_of_the_announced_size_is_taken(ias: &mut Adapters<'_, impl Side>) {
    let provider = ias.a.query().1;
    let size = provider.max_private_data_size as usize;
    assert!(provider.max_accept_private_data_size as usize >= size);
    assert!(provider.max_reject_private_data_size as usize >= size);
    let data: Vec<u8> = (0..size).map(|i| i as u8 | 1).collect();
    let point = ias.listen(B);
    let ends = [ias.end(A), ias.end(B)];
    let (now, to) = (ias.now(), ias.b.address());
    let (qual, qos) = (point.qualifier, Qos::BestEffort);
    let long = vec![1; size + 1];
    let asked = ias.a.ep_connect(now, ends[A].ep, to, qual, LIMIT, &long, qos);
    assert_eq!(asked.map_err(|e| e.ret().ty()), Err(DatType::InvalidParameter));
    ias.ask(&ends[A], qual, LIMIT, &data);
    let cr = ias.request(&point);
    assert_eq!(ias.b.cr_query(cr).unwrap().private_data[..size], data);
    let now = ias.now();
    ias.b.cr_accept(now, cr, Some(ends[B].ep), &data).unwrap();
    ias.event(A, ends[A].conn);
    assert_eq!(ias.a.ep_private_data(ends[A].ep).unwrap()[..size], data);
}

/// A service point makes Endpoints if it is asked to: the announced creator is that.
pub fn endpoints_are_made_if_asked(ias: &mut Adapters<'_, impl Side>) {
    assert_eq!(ias.b.query().1.ep_creator, 1);
    let qualifier = ias.free_qualifier();
    let evd = ias.b.evd_create(4, EvdFlags::CR).unwrap();
    ias.b.psp_create(qualifier, evd, dat_core::PspFlag::Provider).unwrap();
    let end = ias.end(A);
    ias.ask(&end, qualifier, LIMIT, b"");
    let dat_core::Event::ConnectionRequest { cr, .. } = ias.event(B, evd) else {
        panic!("no request")
    };
    assert!(ias.b.cr_query(cr).unwrap().local_ep.is_some());
}

/// Objects of one adapter may be in zones of their own.
pub fn zones_are_objects_of_their_own(ias: &mut Adapters<'_, impl Side>) {
    assert_eq!(ias.a.query().1.pz_support, 0);
    let [one, other] = [(); 2].map(|()| ias.a.pz_create().unwrap());
    assert_ne!(one, other);
    let mem = [one, other].map(|pz| ias.mem(A, pz, 64, MemPriv::ALL));
    assert_ne!(mem[0].lmr.lmr_context, mem[1].lmr.lmr_context);
}

/// The best alignment divides 256.
pub fn the_best_alignment_divides_256(ias: &mut Adapters<'_, impl Side>) {
    let alignment = ias.a.query().1.optimal_buffer_alignment;
    assert!(alignment != 0 && 256 % alignment == 0, "{alignment}");
}

/// Streams that are announced to share an Event Dispatcher do, two by two, and each goes with
/// itself.
pub fn streams_merge_as_announced(ias: &mut Adapters<'_, impl Side>) {
    const STREAMS: [EvdFlags; 6] = [
        EvdFlags::SOFTWARE,
        EvdFlags::CR,
        EvdFlags::DTO,
        EvdFlags::CONNECTION,
        EvdFlags::RMR_BIND,
        EvdFlags::ASYNC,
    ];
    let merging = ias.a.query().1.evd_stream_merging_supported;
    for (row, one) in merging.iter().zip(STREAMS) {
        for (may, other) in row.iter().zip(STREAMS) {
            assert!(*may || one != other, "the diagonal is true by definition");
            let made = ias.a.evd_create(4, one | other);
            assert_eq!(made.is_ok(), *may, "{one:?} with {other:?}");
            if let Ok(evd) = made {
                ias.a.evd_free(evd).unwrap();
            }
        }
    }
    let symmetric = (0..6).all(|i| (0..6).all(|j| merging[i][j] == merging[j][i]));
    assert!(symmetric);
}

/// Several paths and fail-over are announced as absent, and the call that asks says so.
pub fn high_availability_is_out(ias: &mut Adapters<'_, impl Side>) {
    let provider = ias.a.query().1;
    assert!(!provider.supports_multipath && !provider.ha_supported);
    assert_eq!(provider.ha_loadbalancing, 0);
    let asked = ias.a.ha_related("another");
    refused(asked, DatType::ModelNotSupported, DatSubtype::None);
}

/// No synchronising calls are needed: a write of a peer is seen without one.
pub fn no_synchronisation_is_needed(ias: &mut Adapters<'_, impl Side>) {
    assert!(!ias.a.query().1.lmr_sync_req);
    let [a, b] = ias.connected();
    let near = ias.mem(A, a.pz, 64, MemPriv::ALL);
    let far = ias.mem(B, b.pz, 64, MemPriv::ALL);
    ias.fill(&near, 0, &[3; 64]);
    let (seg, to) = ([near.seg(0, 64)], far.far(0, 64));
    ias.a.ep_post_rdma_write(a.ep, &seg, 1, &to, NONE).unwrap();
    ias.done(&a, dat_core::DtoOperation::RdmaWrite, 1);
    assert_eq!(ias.bytes(&far, 0, 64), [3; 64]);
}

/// Every DTO that was posted comes back, as announced.
pub fn every_dto_comes_back(ias: &mut Adapters<'_, impl Side>) {
    assert!(ias.a.query().1.dto_async_return_guaranteed);
    let [a, _] = ias.connected();
    let mem = ias.mem(A, a.pz, 64, MemPriv::ALL);
    for cookie in 0..4 {
        ias.recv(&a, &mem, 0, 8, cookie);
        ias.send(&a, &mem, 0, 8, cookie);
    }
    ias.disconnect(&a, dat_core::CloseFlag::Abrupt);
    for cookie in 0..4 {
        assert_eq!(ias.dto(A, a.recv).cookie, cookie);
        assert_eq!(ias.dto(A, a.request).cookie, cookie);
    }
}

/// An RDMA read asks for no remote write privilege on the reader's own memory.
pub fn a_read_needs_no_write_privilege_for_peers(ias: &mut Adapters<'_, impl Side>) {
    assert!(!ias.a.query().1.rdma_write_for_rdma_read_req);
    let [a, b] = ias.connected();
    let near = ias.mem(A, a.pz, 64, MemPriv::LOCAL_READ | MemPriv::LOCAL_WRITE);
    let far = ias.mem(B, b.pz, 64, MemPriv::LOCAL_READ | MemPriv::REMOTE_READ);
    ias.fill(&far, 0, &[9; 64]);
    let (seg, from) = ([near.seg(0, 64)], far.far(0, 64));
    ias.a.ep_post_rdma_read(a.ep, &seg, 1, &from, NONE).unwrap();
    assert_eq!(ias.done(&a, dat_core::DtoOperation::RdmaRead, 1), 64);
    assert_eq!(ias.bytes(&near, 0, 64), [9; 64]);
}

/// Reading through an LMR's own context exposes no more than the LMR's remote privileges.
pub fn an_lmr_exposes_what_its_privileges_say(ias: &mut Adapters<'_, impl Side>) {
    assert!(!ias.a.query().1.rdma_read_lmr_rmr_context_exposure);
    let pz = ias.a.pz_create().unwrap();
    let local = MemPriv::LOCAL_READ | MemPriv::LOCAL_WRITE;
    assert_eq!(ias.mem(A, pz, 64, local).lmr.rmr_context, 0);
    let open = ias.mem(A, pz, 64, local | MemPriv::REMOTE_READ);
    assert_ne!(open.lmr.rmr_context, 0);
}

/// Scopes of RMRs: that of a zone is announced wherever there are RMRs.
pub fn windows_of_a_zone_are_announced(ias: &mut Adapters<'_, impl Side>) {
    let (ia, provider) = ias.a.query();
    assert!(ia.max_rmrs != 0);
    assert_ne!(provider.rmr_scope_supported & 2, 0);
}

/// Threads and signals: an adapter belongs to one thread at a time, which the attributes say.
pub fn thread_and_signal_safety_are_reported(ias: &mut Adapters<'_, impl Side>) {
    let provider = ias.a.query().1;
    assert!(!provider.is_thread_safe && !provider.is_signal_safe);
}

/// The names that consumers of other providers look for have values that they understand.
pub fn fault_14_every_attribute_is_set(ias: &mut Adapters<'_, impl Side>) {
    const NAMES: [&str; 15] = [
        "DAT_IB_PROVIDER_NAME",
        "DAT_IB_DEVICE_NAME",
        "DAT_IB_CONNECTIVITY_MODE",
        "DAT_IB_RDMA_READ",
        "DAT_IB_NODE_GUID",
        "DAT_IB_GID",
        "DAT_IB_TRANSPORT_MTU",
        "DAT_IB_PORT_STATUS",
        "DAT_IB_PORT_NUMBER",
        "DAT_EXTENSION_INTERFACE",
        "DAT_IB_FETCH_AND_ADD",
        "DAT_IB_CMP_AND_SWAP",
        "DAT_IB_IMMED_DATA",
        "DAT_IB_UD",
        "DAT_COUNTERS",
    ];
    let (ia, provider) = ias.a.query();
    let attr = provider.provider_specific_attr;
    assert_eq!(attr.map(|attr| attr.name), NAMES);
    let value = |name| attr.iter().find(|a| a.name == name).unwrap().value;
    for attr in attr {
        assert!(!attr.value.to_string().is_empty(), "{}", attr.name);
    }
    // dtest leaves its reads out without this word.
    assert_eq!(value("DAT_IB_RDMA_READ").to_string(), "TRUE");
    assert_eq!(value("DAT_IB_GID"), AttrValue::Gid(ia.ia_address));
    assert_eq!(value("DAT_IB_PORT_STATUS").to_string(), "PORT_ACTIVE");
    assert_eq!(value("DAT_IB_CONNECTIVITY_MODE").to_string(), "DIRECT");
    let mtu = value("DAT_IB_TRANSPORT_MTU").to_string();
    assert!(["256", "512", "1024", "2048", "4096"].contains(&mtu.as_str()));
    // Flags that posts may carry are not left empty, and each stream goes with itself.
    assert!(!provider.completion_flags_supported.is_empty());
    assert!((0..6).all(|i| provider.evd_stream_merging_supported[i][i]));
}

/// On Ethernet a port has no LID: addresses are enough, for the adapter and for both sides of a
/// connection.
pub fn fault_17_connections_need_no_lid(ias: &mut Adapters<'_, impl Side>) {
    let gid = |party: (dat_core::IaAttr, dat_core::ProviderAttr)| {
        let mut named = party.1.provider_specific_attr.into_iter();
        named.find(|attr| attr.name == "DAT_IB_GID").unwrap().value
    };
    for side in [A, B] {
        assert_eq!(gid(ias[side].query()), AttrValue::Gid(ias[side].address()));
    }
    let [a, b] = ias.connected();
    assert_eq!(ias.state(&a), dat_core::EpState::Connected);
    assert_eq!(ias.state(&b), dat_core::EpState::Connected);
}
