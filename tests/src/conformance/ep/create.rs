//! Creation, query and validity of handles.

use dat_core::{
    CloseFlag, CompletionFlags, DatSubtype, DatType, DtoOperation, EpModify, EpState, EvdFlags,
    MemPriv, Qos,
};

use super::super::{A, Adapters, B, LIMIT, NONE, Side, refused};

/// A new Endpoint is quiescent and is what it was made from.
pub fn a_new_endpoint_is_unconnected(ias: &mut Adapters<'_, impl Side>) {
    let end = ias.end_with(A, false, |attr| attr.max_recv_dtos = 7);
    let param = ias.a.ep_query(end.ep).unwrap();
    assert_eq!(param.state, EpState::Unconnected);
    assert_eq!(
        (param.pz, param.recv_evd, param.request_evd, param.connect_evd),
        (Some(end.pz), Some(end.recv), Some(end.request), Some(end.conn))
    );
    assert_eq!((param.srq, param.remote, param.remote_port), (None, None, 0));
    assert_eq!(param.attr.max_recv_dtos, 7);
    assert_eq!(ias.look(A, end.conn), None);
}

/// Without attributes an Endpoint has what the adapter suggests.
pub fn fault_25_attributes_are_optional(ias: &mut Adapters<'_, impl Side>) {
    let evd = ias.a.evd_create(64, EvdFlags::DTO | EvdFlags::CONNECTION).unwrap();
    let pz = ias.a.pz_create().unwrap();
    let (suggested, some) = (ias.a.ep_attr_default(), Some(evd));
    let ep = ias.a.ep_create(Some(pz), some, some, some, None).unwrap();
    assert_eq!(ias.a.ep_query(ep).unwrap().attr, suggested);
    // fault 25: the attributes are not looked at where there are none.
    let bare = ias.a.ep_create(None, None, None, None, None).unwrap();
    let attr = ias.a.ep_query(bare).unwrap().attr;
    assert_eq!((attr.max_recv_dtos, attr.max_request_dtos), (0, 0));
}

/// Each handle is checked, and that its Event Dispatcher takes the stream.
pub fn wrong_handles_are_refused(ias: &mut Adapters<'_, impl Side>) {
    let end = ias.end(A);
    let (cr, gone) = (ias.a.evd_create(8, EvdFlags::CR).unwrap(), ias.a.pz_create().unwrap());
    ias.a.pz_free(gone).unwrap();
    let (dto, conn, pz) = (Some(end.recv), Some(end.conn), Some(end.pz));
    let ia = &mut ias.a.ia;
    let invalid = DatType::InvalidHandle;
    let made = ia.ep_create(Some(gone), dto, dto, conn, None);
    refused(made, invalid, DatSubtype::InvalidHandlePz);
    let made = ia.ep_create(pz, Some(cr), dto, conn, None);
    refused(made, invalid, DatSubtype::InvalidHandleEvdRecv);
    let made = ia.ep_create(pz, dto, conn, conn, None);
    refused(made, invalid, DatSubtype::InvalidHandleEvdRequest);
    let made = ia.ep_create(pz, dto, dto, dto, None);
    refused(made, invalid, DatSubtype::InvalidHandleEvdConn);
    // None of them took anything.
    ia.evd_free(cr).unwrap();
}

/// Attributes that contradict the Event Dispatchers, or exceed the adapter.
pub fn attributes_that_cannot_be_are_refused(ias: &mut Adapters<'_, impl Side>) {
    let end = ias.end(A);
    let (dto, conn, pz) = (Some(end.recv), Some(end.conn), Some(end.pz));
    let good = ias.a.ep_attr_default();
    let (ia_attr, _) = ias.a.query();
    let too_many = u8::try_from(ia_attr.max_iov_segments_per_dto + 1).unwrap();
    let too_deep = u16::try_from(ia_attr.max_dto_per_ep + 1).unwrap();
    let mut all = vec![good; 16];
    all[0].max_recv_dtos = 0;
    all[1].max_recv_iov = 0;
    all[2].max_recv_dtos = too_deep;
    all[3].max_request_dtos = too_deep;
    all[4].max_request_iov = too_many;
    all[5].max_rdma_read_iov = too_many;
    all[6].recv_completion_flags = CompletionFlags::SUPPRESS;
    all[7].max_rdma_read_in = u8::try_from(ia_attr.max_rdma_read_per_ep_in + 1).unwrap();
    all[8].max_rdma_read_out = u8::try_from(ia_attr.max_rdma_read_per_ep_out + 1).unwrap();
    all[9].max_request_dtos = 0;
    all[10].max_request_iov = 0;
    all[11].max_recv_iov = too_many;
    all[12].max_rdma_write_iov = too_many;
    all[13].max_message_size = u32::MAX;
    all[14].max_rdma_size = u32::MAX;
    all[15].request_completion_flags = CompletionFlags::DEFER;
    for (n, attr) in all.iter().enumerate() {
        let made = ias.a.ep_create(pz, dto, dto, conn, Some(attr));
        let ret: dat_core::DatReturn = made.unwrap_err().into();
        assert_eq!(
            (ret.ty(), ret.subtype()),
            (DatType::InvalidParameter, DatSubtype::InvalidArg6),
            "attribute {n}"
        );
    }
    let made = ias.a.ep_create(pz, None, dto, conn, Some(&good));
    refused(made, DatType::InvalidParameter, DatSubtype::InvalidArg6);
    let mut dear = good;
    dear.qos = Qos::Premium;
    let made = ias.a.ep_create(pz, dto, dto, conn, Some(&dear));
    refused(made, DatType::ModelNotSupported, DatSubtype::None);
}

/// An Endpoint of which something is missing can be made, and used for nothing.
pub fn without_zone_or_evds_it_is_unconfigured(ias: &mut Adapters<'_, impl Side>) {
    let end = ias.end(B);
    let bare = ias.b.ep_create(None, None, None, None, None).unwrap();
    let state = ias.b.ep_query(bare).unwrap().state;
    assert_eq!(state, EpState::UnconfiguredUnconnected);
    let (now, to) = (ias.now(), ias.a.address());
    let unconfigured = DatSubtype::InvalidStateEpUnconfigured;
    let posted = ias.b.ep_post_recv(bare, &[], 1, NONE);
    refused(posted, DatType::InvalidState, unconfigured);
    let posted = ias.b.ep_post_send(bare, &[], 1, NONE);
    refused(posted, DatType::InvalidState, unconfigured);
    let asked = ias.b.ep_connect(now, bare, to, 7, LIMIT, b"", Qos::BestEffort);
    refused(asked, DatType::InvalidState, unconfigured);
    let point = ias.listen(B);
    let client = ias.end(A);
    ias.ask(&client, point.qualifier, LIMIT, b"");
    let cr = ias.request(&point);
    let now = ias.now();
    let accepted = ias.b.cr_accept(now, cr, Some(bare), b"");
    refused(accepted, DatType::InvalidState, unconfigured);
    // The request is as it was.
    ias.b.cr_accept(now, cr, Some(end.ep), b"").unwrap();
    ias.event(A, client.conn);
    ias.b.ep_reset(bare).unwrap();
    ias.b.ep_free(now, bare).unwrap();
}

/// Missing parts can be given later, piece by piece.
pub fn modify_configures_it(ias: &mut Adapters<'_, impl Side>) {
    let mut end = ias.end(A);
    let bare = ias.a.ep_create(None, None, None, None, None).unwrap();
    let pz = EpModify { pz: Some(end.pz), ..EpModify::default() };
    ias.a.ep_modify(bare, &pz).unwrap();
    let state = ias.a.ep_query(bare).unwrap().state;
    assert_eq!(state, EpState::UnconfiguredUnconnected);
    let evds = EpModify {
        recv_evd: Some(end.recv),
        request_evd: Some(end.request),
        connect_evd: Some(end.conn),
        attr: Some(ias.a.ep_attr_default()),
        ..EpModify::default()
    };
    ias.a.ep_modify(bare, &evds).unwrap();
    end.ep = bare;
    assert_eq!(ias.state(&end), EpState::Unconnected);
    let peer = ias.end(B);
    ias.connect(&end, &peer);
}

/// Without a connect Event Dispatcher it cannot be connected.
pub fn without_a_connect_evd_it_is_not_ready(ias: &mut Adapters<'_, impl Side>) {
    let end = ias.end(A);
    let (pz, dto) = (Some(end.pz), Some(end.recv));
    let ep = ias.a.ep_create(pz, dto, dto, None, None).unwrap();
    assert_eq!(ias.a.ep_query(ep).unwrap().state, EpState::Unconnected);
    let (now, to) = (ias.now(), ias.b.address());
    let asked = ias.a.ep_connect(now, ep, to, 7, LIMIT, b"", Qos::BestEffort);
    refused(asked, DatType::InvalidState, DatSubtype::InvalidStateEpNotReady);
    assert_eq!(ias.a.ep_query(ep).unwrap().state, EpState::Unconnected);
}

/// An Endpoint without a receive Event Dispatcher takes no receives, and sends.
pub fn a_sender_needs_no_receives(ias: &mut Adapters<'_, impl Side>) {
    let mut end = ias.end(A);
    let mut attr = ias.a.ep_attr_default();
    attr.max_recv_dtos = 0;
    let (pz, request, conn) = (Some(end.pz), Some(end.request), Some(end.conn));
    end.ep = ias.a.ep_create(pz, None, request, conn, Some(&attr)).unwrap();
    let posted = ias.a.ep_post_recv(end.ep, &[], 1, NONE);
    let full = DatType::InsufficientResources;
    refused(posted, full, DatSubtype::ResourceCredits);
    let peer = ias.end(B);
    ias.b.ep_post_recv(peer.ep, &[], 2, NONE).unwrap();
    ias.connect(&end, &peer);
    ias.a.ep_post_send(end.ep, &[], 3, NONE).unwrap();
    ias.done(&end, DtoOperation::Send, 3);
    assert_eq!(ias.done(&peer, DtoOperation::Receive, 2), 0);
}

/// Objects that an Endpoint is made from cannot be freed before it.
pub fn an_endpoint_holds_its_zone_and_evds(ias: &mut Adapters<'_, impl Side>) {
    let end = ias.end(A);
    let freed = ias.a.pz_free(end.pz);
    refused(freed, DatType::InvalidState, DatSubtype::InvalidStatePzInUse);
    for evd in [end.recv, end.request, end.conn] {
        let freed = ias.a.evd_free(evd);
        refused(freed, DatType::InvalidState, DatSubtype::InvalidStateEvdInUse);
    }
    let now = ias.now();
    ias.a.ep_free(now, end.ep).unwrap();
    for evd in [end.recv, end.request, end.conn] {
        ias.a.evd_free(evd).unwrap();
    }
    ias.a.pz_free(end.pz).unwrap();
}

/// A freed Endpoint is known by no call.
pub fn a_freed_endpoint_is_an_invalid_handle(ias: &mut Adapters<'_, impl Side>) {
    let (dead, end) = (ias.end(A), ias.end(A));
    let (now, to) = (ias.now(), ias.b.address());
    let evd = ias.a.evd_create(8, EvdFlags::CR).unwrap();
    let ia = &mut ias.a.ia;
    ia.ep_free(now, dead.ep).unwrap();
    let (ep, qos) = (dead.ep, Qos::BestEffort);
    let rets: [dat_core::DatReturn; 13] = [
        ia.ep_free(now, ep).unwrap_err().into(),
        ia.ep_query(ep).unwrap_err().into(),
        ia.ep_modify(ep, &EpModify::default()).unwrap_err().into(),
        ia.ep_get_status(ep).unwrap_err().into(),
        ia.ep_connect(now, ep, to, 7, LIMIT, b"", qos).unwrap_err().into(),
        ia.ep_dup_connect(now, ep, end.ep, LIMIT, b"", qos).unwrap_err().into(),
        ia.ep_disconnect(now, ep, CloseFlag::Abrupt).unwrap_err().into(),
        ia.ep_reset(ep).unwrap_err().into(),
        ia.ep_post_recv(ep, &[], 1, NONE).unwrap_err(),
        ia.ep_post_send(ep, &[], 1, NONE).unwrap_err(),
        ia.ep_recv_query(ep).unwrap_err().into(),
        ia.ep_set_watermark(now, ep, None, None).unwrap_err().into(),
        ia.rsp_create(7, Some(ep), evd).unwrap_err().into(),
    ];
    for (n, ret) in rets.into_iter().enumerate() {
        assert_eq!(
            (ret.ty(), ret.subtype()),
            (DatType::InvalidHandle, DatSubtype::InvalidHandleEp),
            "call {n}"
        );
    }
}

/// As many as the adapter says, and no more.
pub fn there_are_as_many_as_the_adapter_says(ias: &mut Adapters<'_, impl Side>) {
    let most = ias.a.query().0.max_eps;
    for _ in 0..most {
        ias.a.ep_create(None, None, None, None, None).unwrap();
    }
    let made = ias.a.ep_create(None, None, None, None, None);
    refused(made, DatType::InsufficientResources, DatSubtype::ResourceTep);
}

/// The idle flags say whether something is outstanding.
pub fn fault_01_idle_means_that_nothing_is_outstanding(ias: &mut Adapters<'_, impl Side>) {
    let [from, to] = ias.connected();
    let mem = ias.mem(B, to.pz, 64, MemPriv::ALL);
    let idle = |ias: &mut Adapters<'_, _>, side: usize, ep| {
        let status = ias[side].ep_get_status(ep).unwrap();
        (status.recv_idle, status.request_idle)
    };
    assert_eq!(idle(ias, A, from.ep), (true, true));
    ias.a.ep_post_send(from.ep, &[], 1, NONE).unwrap();
    assert_eq!(idle(ias, A, from.ep), (true, false));
    ias.recv(&to, &mem, 0, 64, 2);
    ias.recv(&to, &mem, 0, 64, 3);
    assert_eq!(idle(ias, B, to.ep), (false, true));
    ias.done(&from, DtoOperation::Send, 1);
    assert_eq!(idle(ias, A, from.ep), (true, true));
    ias.done(&to, DtoOperation::Receive, 2);
    assert_eq!(idle(ias, B, to.ep), (false, true));
}

/// The receives that an Endpoint has: posted and not completed.
pub fn recv_query_counts_what_is_posted(ias: &mut Adapters<'_, impl Side>) {
    let [from, to] = ias.connected();
    let mem = ias.mem(B, to.pz, 64, MemPriv::ALL);
    for cookie in 0..3 {
        ias.recv(&to, &mem, 0, 64, cookie);
    }
    let info = ias.b.ep_recv_query(to.ep).unwrap();
    assert_eq!((info.nbufs_allocated, info.bufs_alloc_span), (Some(3), Some(3)));
    ias.a.ep_post_send(from.ep, &[], 1, NONE).unwrap();
    ias.done(&to, DtoOperation::Receive, 0);
    let info = ias.b.ep_recv_query(to.ep).unwrap();
    assert_eq!(info.nbufs_allocated, Some(2));
}
