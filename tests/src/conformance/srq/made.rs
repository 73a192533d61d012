//! Create, query, resize and free.

use dat_core::{
    DatSubtype, DatType, DtoOperation, EpModify, EpState, EvdFlags, LmrTriplet, MemPriv, SrqState,
};

use super::super::{A, Adapters, B, NONE, Side, refused};
use super::{attr, member, queue};

/// A new queue is empty, and what it was made for.
pub fn a_new_queue_is_empty(ias: &mut Adapters<'_, impl Side>) {
    let pz = ias.a.pz_create().unwrap();
    let srq = ias.a.srq_create(pz, &attr(10)).unwrap();
    let param = ias.a.srq_query(srq).unwrap();
    assert_eq!((param.state, param.pz), (SrqState::Operational, pz));
    assert_eq!((SrqState::Error as u32, param.state as u32), (0, 1));
    assert!(param.attr.max_recv_dtos >= 10 && param.attr.max_recv_iov >= 2);
    assert_eq!(param.attr.low_watermark, 0);
    assert_eq!((param.available, param.outstanding), (Some(0), 0));
}

/// Queues of no use, or of too much.
pub fn sizes_that_cannot_be_are_refused(ias: &mut Adapters<'_, impl Side>) {
    let pz = ias.a.pz_create().unwrap();
    let (ia, _) = ias.a.query();
    let most = u16::try_from(ia.max_recv_per_srq).unwrap();
    let iov = u8::try_from(ia.max_iov_segments_per_dto).unwrap();
    let mut all = [attr(4); 5];
    all[0].max_recv_dtos = 0;
    all[1].max_recv_iov = 0;
    all[2].max_recv_dtos = most + 1;
    all[3].max_recv_iov = iov + 1;
    all[4].low_watermark = 5;
    for attr in &all {
        let made = ias.a.srq_create(pz, attr);
        refused(made, DatType::InvalidParameter, DatSubtype::InvalidArg3);
    }
    ias.a.srq_create(pz, &attr(most)).unwrap();
}

/// The adapter says how many there are.
pub fn there_are_as_many_as_the_adapter_says(ias: &mut Adapters<'_, impl Side>) {
    let pz = ias.a.pz_create().unwrap();
    let (ia, provider) = ias.a.query();
    assert!(provider.srq_supported && ia.max_srqs > 0 && ia.max_ep_per_srq > 0);
    for _ in 0..ia.max_srqs {
        ias.a.srq_create(pz, &attr(2)).unwrap();
    }
    let made = ias.a.srq_create(pz, &attr(2));
    refused(made, DatType::InsufficientResources, DatSubtype::ResourceSrq);
}

/// A queue holds its zone.
pub fn fault_34_a_queue_holds_its_zone(ias: &mut Adapters<'_, impl Side>) {
    let pz = ias.a.pz_create().unwrap();
    let srq = ias.a.srq_create(pz, &attr(4)).unwrap();
    refused(ias.a.pz_free(pz), DatType::InvalidState, DatSubtype::InvalidStatePzInUse);
    ias.a.srq_resize(srq, 7).unwrap();
    let param = ias.a.srq_query(srq).unwrap();
    assert_eq!((param.attr.max_recv_dtos, param.available), (7, Some(0)));
    ias.a.srq_free(srq).unwrap();
    ias.a.pz_free(pz).unwrap();
}

/// A freed queue, and a zone that is gone.
pub fn freed_handles_are_invalid(ias: &mut Adapters<'_, impl Side>) {
    let pz = ias.a.pz_create().unwrap();
    let srq = ias.a.srq_create(pz, &attr(4)).unwrap();
    ias.a.srq_free(srq).unwrap();
    ias.a.pz_free(pz).unwrap();
    let made = ias.a.srq_create(pz, &attr(4));
    refused(made, DatType::InvalidHandle, DatSubtype::InvalidHandlePz);
    let suggested = ias.a.ep_attr_default();
    let ia = &mut ias.a.ia;
    let rets: [dat_core::DatReturn; 6] = [
        ia.srq_query(srq).unwrap_err().into(),
        ia.srq_free(srq).unwrap_err().into(),
        ia.srq_resize(srq, 8).unwrap_err().into(),
        ia.srq_set_lw(srq, 1).unwrap_err().into(),
        ia.srq_post_recv(srq, &[], 1).unwrap_err(),
        ia.ep_create_with_srq(None, None, None, None, srq, &suggested).unwrap_err().into(),
    ];
    for ret in rets {
        assert_eq!(
            (ret.ty(), ret.subtype()),
            (DatType::InvalidHandle, DatSubtype::InvalidHandleSrq)
        );
    }
}

/// While Endpoints take from it a queue stays.
pub fn a_queue_in_use_is_not_freed(ias: &mut Adapters<'_, impl Side>) {
    let (srq, _) = queue(ias, A, 4);
    let (one, two) = (member(ias, A, srq), member(ias, A, srq));
    let in_use = DatSubtype::InvalidStateSrqInUse;
    refused(ias.a.srq_free(srq), DatType::InvalidState, in_use);
    let now = ias.now();
    ias.a.ep_free(now, one.ep).unwrap();
    refused(ias.a.srq_free(srq), DatType::InvalidState, in_use);
    ias.a.ep_free(now, two.ep).unwrap();
    ias.a.srq_post_recv(srq, &[], 1).unwrap();
    // Its posted receives are freed with it.
    ias.a.srq_free(srq).unwrap();
}

/// Receives are checked like those of an Endpoint, against the queue's zone.
pub fn receives_are_checked(ias: &mut Adapters<'_, impl Side>) {
    let (srq, mem) = queue(ias, A, 4);
    let other = ias.a.pz_create().unwrap();
    let foreign = ias.mem(A, other, 64, MemPriv::ALL);
    let zone = ias.a.srq_query(srq).unwrap().pz;
    let locked = ias.mem(A, zone, 64, MemPriv::LOCAL_READ);
    let (ia, seg) = (&mut ias.a.ia, mem.seg(0, 8));
    let posted = ia.srq_post_recv(srq, &[seg; 3], 1);
    let parameter = DatType::InvalidParameter;
    refused(posted, parameter, DatSubtype::InvalidArg2);
    let posted = ia.srq_post_recv(srq, &[foreign.seg(0, 8)], 1);
    let protection = DatType::ProtectionViolation;
    refused(posted, protection, DatSubtype::ProtectionWrite);
    let privileges = DatType::PrivilegesViolation;
    let posted = ia.srq_post_recv(srq, &[locked.seg(0, 8)], 1);
    refused(posted, privileges, DatSubtype::PrivilegesWrite);
    let unknown = LmrTriplet { context: 0xdead_beef, ..seg };
    let posted = ia.srq_post_recv(srq, &[unknown], 1);
    refused(posted, privileges, DatSubtype::PrivilegesWrite);
    let outside = LmrTriplet { addr: seg.addr + 4090, ..seg };
    let posted = ia.srq_post_recv(srq, &[outside], 1);
    refused(posted, parameter, DatSubtype::InvalidArg3);
    assert_eq!(ia.srq_query(srq).unwrap().outstanding, 0);
}

/// As many receives as it was made for, and no more.
pub fn a_full_queue_takes_no_more(ias: &mut Adapters<'_, impl Side>) {
    let (srq, mem) = queue(ias, A, 3);
    for cookie in 0..3 {
        ias.a.srq_post_recv(srq, &[mem.seg(0, 8)], cookie).unwrap();
    }
    let posted = ias.a.srq_post_recv(srq, &[mem.seg(0, 8)], 3);
    let full = DatType::InsufficientResources;
    refused(posted, full, DatSubtype::ResourceCredits);
    ias.a.srq_resize(srq, 4).unwrap();
    ias.a.srq_post_recv(srq, &[mem.seg(0, 8)], 3).unwrap();
    assert_eq!(ias.a.srq_query(srq).unwrap().outstanding, 4);
}

/// It does not become smaller than what is in it, or than its low watermark.
pub fn resize_loses_nothing(ias: &mut Adapters<'_, impl Side>) {
    let (srq, mem) = queue(ias, A, 8);
    for cookie in 0..4 {
        ias.a.srq_post_recv(srq, &[mem.seg(0, 8)], cookie).unwrap();
    }
    let state = DatType::InvalidState;
    let resized = ias.a.srq_resize(srq, 3);
    refused(resized, state, DatSubtype::InvalidStateSrqInUse);
    let resized = ias.a.srq_resize(srq, 0);
    refused(resized, DatType::InvalidParameter, DatSubtype::InvalidArg2);
    let most = u16::try_from(ias.a.query().0.max_recv_per_srq).unwrap();
    let resized = ias.a.srq_resize(srq, most + 1);
    refused(resized, DatType::InsufficientResources, DatSubtype::ResourceSrq);
    assert_eq!(ias.a.srq_query(srq).unwrap().attr.max_recv_dtos, 8);
    ias.a.srq_resize(srq, 4).unwrap();
    assert_eq!(ias.a.srq_query(srq).unwrap().attr.max_recv_dtos, 4);
}

/// The low watermark is a lower bound of the size.
pub fn resize_stays_above_the_low_watermark(ias: &mut Adapters<'_, impl Side>) {
    let (srq, _) = queue(ias, A, 8);
    ias.a.srq_set_lw(srq, 5).unwrap();
    let resized = ias.a.srq_resize(srq, 4);
    refused(resized, DatType::InvalidState, DatSubtype::InvalidStateSrqOperational);
    ias.a.srq_resize(srq, 5).unwrap();
}

/// The Endpoint knows its queue, and keeps it through a reset.
pub fn an_endpoint_knows_its_queue(ias: &mut Adapters<'_, impl Side>) {
    let (srq, _) = queue(ias, A, 4);
    let end = member(ias, A, srq);
    assert_eq!(ias.state(&end), EpState::Unconnected);
    assert_eq!(ias.a.ep_query(end.ep).unwrap().srq, Some(srq));
    ias.a.ep_reset(end.ep).unwrap();
    let attr = ias.a.ep_query(end.ep).unwrap().attr;
    let change = EpModify { attr: Some(attr), ..EpModify::default() };
    ias.a.ep_modify(end.ep, &change).unwrap();
    assert_eq!(ias.a.ep_query(end.ep).unwrap().srq, Some(srq));
}

/// No receives of its own.
pub fn an_endpoint_with_a_queue_takes_no_receives(ias: &mut Adapters<'_, impl Side>) {
    let (srq, _) = queue(ias, A, 4);
    let end = member(ias, A, srq);
    let posted = ias.a.ep_post_recv(end.ep, &[], 1, NONE);
    refused(posted, DatType::ModelNotSupported, DatSubtype::None);
}

/// Its receives need somewhere to complete to.
pub fn an_endpoint_with_a_queue_needs_a_receive_evd(ias: &mut Adapters<'_, impl Side>) {
    let (srq, _) = queue(ias, A, 4);
    let evd = ias.a.evd_create(8, EvdFlags::DTO | EvdFlags::CONNECTION).unwrap();
    let pz = ias.a.pz_create().unwrap();
    let mut attr = ias.a.ep_attr_default();
    attr.max_recv_dtos = 0;
    let some = Some(evd);
    let ep = ias.a.ep_create_with_srq(Some(pz), None, some, some, srq, &attr).unwrap();
    let state = ias.a.ep_query(ep).unwrap().state;
    assert_eq!(state, EpState::UnconfiguredUnconnected);
    let change =
        EpModify { recv_evd: some, attr: Some(ias.a.ep_attr_default()), ..EpModify::default() };
    ias.a.ep_modify(ep, &change).unwrap();
    let state = ias.a.ep_query(ep).unwrap().state;
    assert_eq!(state, EpState::Unconnected);
}

/// The poster can be with another thread.
pub fn the_poster_can_be_taken_out(ias: &mut Adapters<'_, impl Side>) {
    let (srq, mem) = queue(ias, B, 4);
    let (from, to) = (ias.end(A), member(ias, B, srq));
    let mut poster = ias.b.srq_take_poster(srq).unwrap();
    assert_eq!(poster.srq(), srq);
    poster.post_recv(&[mem.seg(0, 8)], 5).unwrap();
    assert!(ias.b.srq_post_recv(srq, &[], 6).is_err());
    assert!(ias.b.srq_take_poster(srq).is_err());
    ias.connect(&from, &to);
    ias.a.ep_post_send(from.ep, &[], 1, NONE).unwrap();
    ias.done(&to, DtoOperation::Receive, 5);
    ias.b.srq_return_poster(poster).unwrap();
    ias.b.srq_post_recv(srq, &[], 6).unwrap();
}
