//! dat_evd_create(3), dat_evd_query(3), and which streams an Event Dispatcher takes.

use std::net::SocketAddr;

use dat_core::{
    Comm, CompletionFlags, DatSubtype, DatType, EpAttr, Evd, EvdFlags, EvdState, PspFlag,
    UpcallFlag, UpcallPolicy,
};

use super::super::{A, Bed, NONE, Side, refused};
use super::{NOW, soft};

/// A length of 0.
pub fn create_of_length_zero(bed: &mut Bed<'_, impl Side>) {
    let made = bed.a.evd_create(0, EvdFlags::SOFTWARE);
    refused(made, DatType::InvalidParameter, DatSubtype::InvalidArg2);
}

/// Longer than the adapter says it can be.
pub fn create_beyond_the_adapter(bed: &mut Bed<'_, impl Side>) {
    let (ia, _) = bed.a.query();
    for (flags, most) in
        [(EvdFlags::DTO, ia.max_evd_qlen), (EvdFlags::SOFTWARE, ia.max_software_evd_qlen)]
    {
        let made = bed.a.evd_create(most + 1, flags);
        refused(made, DatType::InsufficientResources, DatSubtype::ResourceTevd);
    }
    let most = ia.max_software_evd_qlen;
    let evd = bed.a.evd_create(most, EvdFlags::SOFTWARE).unwrap();
    assert_eq!(bed.a.evd_query(evd).unwrap().qlen, most);
}

/// More than the adapter says there can be.
pub fn create_beyond_the_table(bed: &mut Bed<'_, impl Side>) {
    let (ia, _) = bed.a.query();
    // The async one is there.
    let evds: Vec<Evd> = (1..ia.max_evds).map(|_| soft(bed, 1)).collect();
    let made = bed.a.evd_create(1, EvdFlags::SOFTWARE);
    refused(made, DatType::InsufficientResources, DatSubtype::ResourceTevd);
    bed.a.evd_free(evds[0]).unwrap();
    soft(bed, 1);
}

/// No stream, and a bit that is none.
pub fn create_of_no_stream_or_an_unknown_one(bed: &mut Bed<'_, impl Side>) {
    for flags in [EvdFlags::empty(), EvdFlags::from_bits_retain(0x8001)] {
        let made = bed.a.evd_create(4, flags);
        refused(made, DatType::InvalidParameter, DatSubtype::InvalidArg4);
    }
}

/// Attached from the beginning.
pub fn create_with_a_cno(bed: &mut Bed<'_, impl Side>) {
    let cno = bed.a.cno_create(None).unwrap();
    let evd = bed.a.evd_create_with_cno(4, Some(cno), EvdFlags::SOFTWARE).unwrap();
    assert_eq!(bed.a.evd_query(evd).unwrap().cno, Some(cno));
    assert_eq!(bed.a.cno_query(cno).unwrap().evds, 1);
    bed.a.evd_free(evd).unwrap();
    bed.a.cno_free(cno).unwrap();
    let made = bed.a.evd_create_with_cno(4, Some(cno), EvdFlags::SOFTWARE);
    refused(made, DatType::InvalidHandle, DatSubtype::InvalidHandleCno);
}

/// What it is at first.
pub fn a_new_one_is_enabled_waitable_and_empty(bed: &mut Bed<'_, impl Side>) {
    let evd = soft(bed, 4);
    let state = bed.a.evd_query(evd).unwrap().state;
    assert!(state.contains(EvdState::ENABLED | EvdState::WAITABLE));
    assert!(!state.intersects(EvdState::DISABLED | EvdState::UNWAITABLE));
    assert_eq!(bed.look(A, evd), None);
    assert_eq!(bed.a.evd_more(evd), Ok(0));
}

/// `DAT_EVD_DEFAULT_FLAG`.
pub fn default_is_every_stream_but_software(bed: &mut Bed<'_, impl Side>) {
    assert_eq!(EvdFlags::DEFAULT.bits(), 0x1f0);
    let evd = bed.a.evd_create(8, EvdFlags::DEFAULT).unwrap();
    assert_eq!(bed.a.evd_query(evd).unwrap().flags, EvdFlags::DEFAULT);
    let pz = bed.a.pz_create().unwrap();
    let (pz, evd) = (Some(pz), Some(evd));
    bed.a.ep_create(pz, evd, evd, evd, None).unwrap();
    let posted = bed.a.evd_post_se(evd.unwrap(), 1);
    refused(posted, DatType::InvalidParameter, DatSubtype::InvalidArg1);
}

/// All 63 mixes of the six streams.
pub fn fault_06_every_mix_of_streams_is_taken(bed: &mut Bed<'_, impl Side>) {
    let streams = [
        EvdFlags::SOFTWARE,
        EvdFlags::CR,
        EvdFlags::DTO,
        EvdFlags::CONNECTION,
        EvdFlags::RMR_BIND,
        EvdFlags::ASYNC,
    ];
    for mix in 1..1_usize << streams.len() {
        let chosen = (0..streams.len()).filter(|at| mix >> at & 1 != 0);
        let flags = chosen.fold(EvdFlags::empty(), |all, at| all | streams[at]);
        let evd = bed.a.evd_create(4, flags).unwrap();
        assert_eq!(bed.a.evd_query(evd).unwrap().flags, flags);
        bed.a.evd_free(evd).unwrap();
    }
    let (_, provider) = bed.a.query();
    assert_eq!(provider.evd_stream_merging_supported, [[true; 6]; 6]);
}

/// Each stream to an Event Dispatcher that takes all others.
pub fn streams_go_where_they_are_taken(bed: &mut Bed<'_, impl Side>) {
    let all = EvdFlags::DEFAULT | EvdFlags::SOFTWARE;
    let pz = Some(bed.a.pz_create().unwrap());
    let some = Some(bed.a.evd_create(4, all - EvdFlags::DTO).unwrap());
    let ty = DatType::InvalidHandle;
    let ep = bed.a.ep_create(pz, some, None, None, None);
    refused(ep, ty, DatSubtype::InvalidHandleEvdRecv);
    let ep = bed.a.ep_create(pz, None, some, None, None);
    refused(ep, ty, DatSubtype::InvalidHandleEvdRequest);
    let some = Some(bed.a.evd_create(4, all - EvdFlags::CONNECTION).unwrap());
    let ep = bed.a.ep_create(pz, None, None, some, None);
    refused(ep, ty, DatSubtype::InvalidHandleEvdConn);
    let some = bed.a.evd_create(4, all - EvdFlags::CR).unwrap();
    let psp = bed.a.psp_create(4242, some, PspFlag::Consumer);
    refused(psp, ty, DatSubtype::InvalidHandleEvdCr);
}

/// Everything that can be asked.
pub fn query_tells_every_field(bed: &mut Bed<'_, impl Side>) {
    let cno = bed.a.cno_create(None).unwrap();
    let evd = soft(bed, 5);
    let flags = |bed: &mut Bed<'_, _>| bed.a.evd_query(evd).unwrap();
    let param = flags(bed);
    assert!(param.qlen >= 5);
    assert_eq!((param.cno, param.flags), (None, EvdFlags::SOFTWARE));
    assert!(!param.waiter && param.policy.is_none());
    bed.a.evd_modify_cno(evd, Some(cno)).unwrap();
    assert_eq!(flags(bed).cno, Some(cno));
    bed.a.evd_disable(evd).unwrap();
    assert!(flags(bed).state.contains(EvdState::DISABLED));
    bed.a.evd_enable(evd).unwrap();
    assert!(flags(bed).state.contains(EvdState::ENABLED));
    bed.a.evd_set_unwaitable(evd).unwrap();
    assert!(flags(bed).state.contains(EvdState::UNWAITABLE));
    bed.a.evd_clear_unwaitable(evd).unwrap();
    assert!(flags(bed).state.contains(EvdState::WAITABLE));
    bed.a.evd_resize(evd, 3).unwrap();
    assert!(flags(bed).qlen >= 3);
    let mut wait = super::begin(bed, evd, NOW, 1);
    assert!(flags(bed).waiter);
    bed.a.evd_wait_end(&mut wait);
    assert!(!flags(bed).waiter);
}

/// The configuration: a substate that the Endpoints on it decide.
pub fn query_tells_who_decides_what_notifies(bed: &mut Bed<'_, impl Side>) {
    for (flags, config) in [
        (CompletionFlags::EVD_THRESHOLD, EvdState::CONFIG_THRESHOLD),
        (CompletionFlags::SOLICITED_WAIT, EvdState::CONFIG_SOLICITED),
        (CompletionFlags::UNSIGNALLED, EvdState::CONFIG_NOTIFY),
    ] {
        let end = bed.end_with(A, false, |attr| attr.recv_completion_flags = flags);
        let substate = |evd| bed.a.evd_query(evd).unwrap().state & EvdState::CONFIG_THRESHOLD;
        assert_eq!(substate(end.recv), config);
        assert_eq!(substate(end.request), EvdState::CONFIG_THRESHOLD);
    }
}

/// dat_ep_create(3), usage: completion flags of streams that share an Event Dispatcher.
pub fn streams_of_one_evd_agree_on_what_notifies(bed: &mut Bed<'_, impl Side>) {
    let notify = CompletionFlags::UNSIGNALLED;
    let end = bed.end_with(A, false, |attr| attr.recv_completion_flags = notify);
    let default = bed.a.ep_attr_default();
    let attr = |recv, request| EpAttr {
        recv_completion_flags: recv,
        request_completion_flags: request,
        ..default
    };
    let (pz, recv, fresh) = (Some(end.pz), Some(end.recv), Some(end.request));
    let merged = bed.a.evd_create(8, EvdFlags::DEFAULT).unwrap();
    for (recv, request, conn, attr) in [
        // Another Endpoint's receives decide differently, and so do its requests.
        (recv, fresh, None, attr(CompletionFlags::SOLICITED_WAIT, NONE)),
        (fresh, recv, None, attr(NONE, NONE)),
        // The two directions of one Endpoint.
        (Some(merged), Some(merged), None, attr(notify, NONE)),
        // Connection events beside it.
        (Some(merged), None, Some(merged), attr(notify, NONE)),
    ] {
        let attr = EpAttr { max_request_dtos: if request.is_none() { 0 } else { 4 }, ..attr };
        let made = bed.a.ep_create(pz, recv, request, conn, Some(&attr));
        refused(made, DatType::InvalidParameter, DatSubtype::None);
    }
    // Requests beside it, of whatever service point.
    let requests = [0; 3].map(|_| bed.a.evd_create(8, EvdFlags::DEFAULT).unwrap());
    let qualifiers = [0; 3].map(|_| bed.free_qualifier());
    let consumer = PspFlag::Consumer;
    bed.a.psp_create(qualifiers[0], requests[0], consumer).unwrap();
    bed.a.rsp_create(qualifiers[1], None, requests[1]).unwrap();
    let here = SocketAddr::new(bed.a.address(), qualifiers[2] as u16);
    bed.a.csp_create(Comm::tcp(false), here, requests[2]).unwrap();
    for evd in requests {
        let decided = EpAttr { max_request_dtos: 0, ..attr(notify, NONE) };
        let made = bed.a.ep_create(pz, Some(evd), None, None, Some(&decided));
        refused(made, DatType::InvalidParameter, DatSubtype::None);
    }
    let same = attr(notify, notify);
    let made = bed.a.ep_create(pz, recv, recv, None, Some(&same));
    made.unwrap();
}

/// Every call with the handle of one that is gone.
pub fn a_freed_one_is_a_stale_handle(bed: &mut Bed<'_, impl Side>) {
    let evd = soft(bed, 4);
    bed.a.evd_free(evd).unwrap();
    soft(bed, 4);
    let now = bed.now();
    let stale = |ret| refused(ret, DatType::InvalidHandle, DatSubtype::InvalidHandle1);
    let of = |result: Result<(), dat_core::Error>| result.map_err(|error| error.ret());
    stale(bed.a.evd_query(evd).map(drop).map_err(|error| error.ret()));
    stale(bed.a.evd_dequeue(evd).map(drop));
    stale(bed.a.evd_more(evd).map(drop));
    let wait = bed.a.evd_wait(now, evd, NOW, 1).map(drop);
    stale(wait.map_err(|error| error.ret()));
    stale(of(bed.a.evd_enable(evd)));
    stale(of(bed.a.evd_disable(evd)));
    stale(of(bed.a.evd_set_unwaitable(evd)));
    stale(of(bed.a.evd_clear_unwaitable(evd)));
    stale(of(bed.a.evd_resize(evd, 8)));
    stale(of(bed.a.evd_post_se(evd, 1)));
    stale(of(bed.a.evd_modify_cno(evd, None)));
    stale(of(bed.a.evd_free(evd)));
    let (policy, flag) = (UpcallPolicy::Disable, UpcallFlag::InvocAny);
    stale(of(bed.a.evd_modify_upcall(evd, policy, None, flag)));
}
