//! dat_evd_create(3), dat_evd_query(3), and which streams an Event Dispatcher takes.

use dat_core::{
    CompletionFlags, DatSubtype, DatType, EpAttr, Evd, EvdFlags, EvdState, PspFlag, UpcallFlag,
    UpcallPolicy,
};

use super::super::{A, Adapters, NONE, Side, refused};
use super::{NOW, soft};

/// A length of 0.
pub fn create_of_length_zero(ias: &mut Adapters<'_, impl Side>) {
    let made = ias.a.evd_create(0, EvdFlags::SOFTWARE);
    refused(made, DatType::InvalidParameter, DatSubtype::InvalidArg2);
}

/// Longer than the adapter says it can be.
pub fn create_beyond_the_adapter(ias: &mut Adapters<'_, impl Side>) {
    let (ia, _) = ias.a.query();
    for (flags, most) in
        [(EvdFlags::DTO, ia.max_evd_qlen), (EvdFlags::SOFTWARE, ia.max_software_evd_qlen)]
    {
        let made = ias.a.evd_create(most + 1, flags);
        refused(made, DatType::InsufficientResources, DatSubtype::ResourceTevd);
    }
    let most = ia.max_software_evd_qlen;
    let evd = ias.a.evd_create(most, EvdFlags::SOFTWARE).unwrap();
    assert_eq!(ias.a.evd_query(evd).unwrap().qlen, most);
}

/// More than the adapter says there can be.
pub fn create_beyond_the_table(ias: &mut Adapters<'_, impl Side>) {
    let (ia, _) = ias.a.query();
    // The async one is there.
    let evds: Vec<Evd> = (1..ia.max_evds).map(|_| soft(ias, 1)).collect();
    let made = ias.a.evd_create(1, EvdFlags::SOFTWARE);
    refused(made, DatType::InsufficientResources, DatSubtype::ResourceTevd);
    ias.a.evd_free(evds[0]).unwrap();
    soft(ias, 1);
}

/// No stream, and a bit that is none.
pub fn create_of_no_stream_or_an_unknown_one(ias: &mut Adapters<'_, impl Side>) {
    for flags in [EvdFlags::empty(), EvdFlags::from_bits_retain(0x8001)] {
        let made = ias.a.evd_create(4, flags);
        refused(made, DatType::InvalidParameter, DatSubtype::InvalidArg4);
    }
}

/// Attached from the beginning.
pub fn create_with_a_cno(ias: &mut Adapters<'_, impl Side>) {
    let cno = ias.a.cno_create(None).unwrap();
    let evd = ias.a.evd_create_with_cno(4, Some(cno), EvdFlags::SOFTWARE).unwrap();
    assert_eq!(ias.a.evd_query(evd).unwrap().cno, Some(cno));
    assert_eq!(ias.a.cno_query(cno).unwrap().evds, 1);
    ias.a.evd_free(evd).unwrap();
    ias.a.cno_free(cno).unwrap();
    let made = ias.a.evd_create_with_cno(4, Some(cno), EvdFlags::SOFTWARE);
    refused(made, DatType::InvalidHandle, DatSubtype::InvalidHandleCno);
}

/// State of a new one.
pub fn a_new_one_is_enabled_waitable_and_empty(ias: &mut Adapters<'_, impl Side>) {
    let evd = soft(ias, 4);
    let state = ias.a.evd_query(evd).unwrap().state;
    assert!(state.contains(EvdState::ENABLED | EvdState::WAITABLE));
    assert!(!state.intersects(EvdState::DISABLED | EvdState::UNWAITABLE));
    assert_eq!(ias.look(A, evd), None);
    assert_eq!(ias.a.evd_more(evd), Ok(0));
}

/// `DAT_EVD_DEFAULT_FLAG`.
pub fn default_is_every_stream_but_software(ias: &mut Adapters<'_, impl Side>) {
    assert_eq!(EvdFlags::DEFAULT.bits(), 0x1f0);
    let evd = ias.a.evd_create(8, EvdFlags::DEFAULT).unwrap();
    assert_eq!(ias.a.evd_query(evd).unwrap().flags, EvdFlags::DEFAULT);
    let pz = ias.a.pz_create().unwrap();
    let (pz, evd) = (Some(pz), Some(evd));
    ias.a.ep_create(pz, evd, evd, evd, None).unwrap();
    let posted = ias.a.evd_post_se(evd.unwrap(), 1);
    refused(posted, DatType::InvalidParameter, DatSubtype::InvalidArg1);
}

/// All 63 mixes of the six streams.
pub fn fault_06_every_mix_of_streams_is_taken(ias: &mut Adapters<'_, impl Side>) {
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
        let evd = ias.a.evd_create(4, flags).unwrap();
        assert_eq!(ias.a.evd_query(evd).unwrap().flags, flags);
        ias.a.evd_free(evd).unwrap();
    }
    let (_, provider) = ias.a.query();
    assert_eq!(provider.evd_stream_merging_supported, [[true; 6]; 6]);
}

/// Each stream to an Event Dispatcher that takes all others.
pub fn streams_go_where_they_are_taken(ias: &mut Adapters<'_, impl Side>) {
    let all = EvdFlags::DEFAULT | EvdFlags::SOFTWARE;
    let pz = Some(ias.a.pz_create().unwrap());
    let some = Some(ias.a.evd_create(4, all - EvdFlags::DTO).unwrap());
    let ty = DatType::InvalidHandle;
    let ep = ias.a.ep_create(pz, some, None, None, None);
    refused(ep, ty, DatSubtype::InvalidHandleEvdRecv);
    let ep = ias.a.ep_create(pz, None, some, None, None);
    refused(ep, ty, DatSubtype::InvalidHandleEvdRequest);
    let some = Some(ias.a.evd_create(4, all - EvdFlags::CONNECTION).unwrap());
    let ep = ias.a.ep_create(pz, None, None, some, None);
    refused(ep, ty, DatSubtype::InvalidHandleEvdConn);
    let some = ias.a.evd_create(4, all - EvdFlags::CR).unwrap();
    let psp = ias.a.psp_create(4242, some, PspFlag::Consumer);
    refused(psp, ty, DatSubtype::InvalidHandleEvdCr);
}

/// Every field of the query.
pub fn query_tells_every_field(ias: &mut Adapters<'_, impl Side>) {
    let cno = ias.a.cno_create(None).unwrap();
    let evd = soft(ias, 5);
    let flags = |ias: &mut Adapters<'_, _>| ias.a.evd_query(evd).unwrap();
    let param = flags(ias);
    assert!(param.qlen >= 5);
    assert_eq!((param.cno, param.flags), (None, EvdFlags::SOFTWARE));
    assert!(!param.waiter && param.policy.is_none());
    ias.a.evd_modify_cno(evd, Some(cno)).unwrap();
    assert_eq!(flags(ias).cno, Some(cno));
    ias.a.evd_disable(evd).unwrap();
    assert!(flags(ias).state.contains(EvdState::DISABLED));
    ias.a.evd_enable(evd).unwrap();
    assert!(flags(ias).state.contains(EvdState::ENABLED));
    ias.a.evd_set_unwaitable(evd).unwrap();
    assert!(flags(ias).state.contains(EvdState::UNWAITABLE));
    ias.a.evd_clear_unwaitable(evd).unwrap();
    assert!(flags(ias).state.contains(EvdState::WAITABLE));
    ias.a.evd_resize(evd, 3).unwrap();
    assert!(flags(ias).qlen >= 3);
    let mut wait = super::begin(ias, evd, NOW, 1);
    assert!(flags(ias).waiter);
    ias.a.evd_wait_end(&mut wait);
    assert!(!flags(ias).waiter);
}

/// The configuration: a substate that the Endpoints on it decide.
pub fn query_tells_who_decides_what_notifies(ias: &mut Adapters<'_, impl Side>) {
    for (flags, config) in [
        (CompletionFlags::EVD_THRESHOLD, EvdState::CONFIG_THRESHOLD),
        (CompletionFlags::SOLICITED_WAIT, EvdState::CONFIG_SOLICITED),
        (CompletionFlags::UNSIGNALLED, EvdState::CONFIG_NOTIFY),
    ] {
        let end = ias.end_with(A, false, |attr| attr.recv_completion_flags = flags);
        let substate = |evd| ias.a.evd_query(evd).unwrap().state & EvdState::CONFIG_THRESHOLD;
        assert_eq!(substate(end.recv), config);
        assert_eq!(substate(end.request), EvdState::CONFIG_THRESHOLD);
    }
}

/// dat_ep_create(3), usage, advises against streams of one Event Dispatcher of which different
/// sides decide what notifies; it refuses none, and each completion notifies as its stream says.
pub fn streams_of_one_evd_may_decide_differently(ias: &mut Adapters<'_, impl Side>) {
    let (notify, solicited) = (CompletionFlags::UNSIGNALLED, CompletionFlags::SOLICITED_WAIT);
    let default = ias.a.ep_attr_default();
    let pz = ias.a.pz_create().unwrap();
    for (recv, request, config) in [
        (NONE, notify, EvdState::CONFIG_NOTIFY),
        (notify, NONE, EvdState::CONFIG_NOTIFY),
        (notify, notify, EvdState::CONFIG_NOTIFY),
        (solicited, notify, EvdState::CONFIG_NOTIFY),
        (solicited, NONE, EvdState::CONFIG_THRESHOLD),
        (NONE, NONE, EvdState::CONFIG_THRESHOLD),
    ] {
        // Connection events and requests for connections beside them.
        let evd = ias.a.evd_create(8, EvdFlags::DEFAULT | EvdFlags::CR).unwrap();
        let qualifier = ias.free_qualifier();
        let psp = ias.a.psp_create(qualifier, evd, PspFlag::Consumer).unwrap();
        let attr =
            EpAttr { recv_completion_flags: recv, request_completion_flags: request, ..default };
        let of = Some(evd);
        let first = ias.a.ep_create(Some(pz), of, of, of, Some(&attr)).unwrap();
        let second = ias.a.ep_create(Some(pz), of, of, of, Some(&attr)).unwrap();
        let found = ias.a.evd_query(evd).unwrap().state & EvdState::CONFIG_THRESHOLD;
        assert_eq!(found, config, "{recv:?} {request:?}");
        let now = ias.now();
        for ep in [first, second] {
            ias.a.ep_free(now, ep).unwrap();
        }
        ias.a.psp_free(psp).unwrap();
        ias.a.evd_free(evd).unwrap();
    }
}

/// Every call with the handle of one that is gone.
pub fn a_freed_one_is_a_stale_handle(ias: &mut Adapters<'_, impl Side>) {
    let evd = soft(ias, 4);
    ias.a.evd_free(evd).unwrap();
    soft(ias, 4);
    let now = ias.now();
    let stale = |ret| refused(ret, DatType::InvalidHandle, DatSubtype::InvalidHandle1);
    let of = |result: Result<(), dat_core::Error>| result.map_err(|error| error.ret());
    stale(ias.a.evd_query(evd).map(drop).map_err(|error| error.ret()));
    stale(ias.a.evd_dequeue(evd).map(drop));
    stale(ias.a.evd_more(evd).map(drop));
    let wait = ias.a.evd_wait(now, evd, NOW, 1).map(drop);
    stale(wait.map_err(|error| error.ret()));
    stale(of(ias.a.evd_enable(evd)));
    stale(of(ias.a.evd_disable(evd)));
    stale(of(ias.a.evd_set_unwaitable(evd)));
    stale(of(ias.a.evd_clear_unwaitable(evd)));
    stale(of(ias.a.evd_resize(evd, 8)));
    stale(of(ias.a.evd_post_se(evd, 1)));
    stale(of(ias.a.evd_modify_cno(evd, None)));
    stale(of(ias.a.evd_free(evd)));
    let (policy, flag) = (UpcallPolicy::Disable, UpcallFlag::InvocAny);
    stale(of(ias.a.evd_modify_upcall(evd, policy, None, flag)));
}
