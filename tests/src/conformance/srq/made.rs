//! Making, asking, resizing and freeing.

use dat_core::{
    DatSubtype, DatType, DtoOperation, EpModify, EpState, EvdFlags, LmrTriplet, MemPriv, SrqState,
};

use super::super::{A, B, Bed, NONE, Side, refused};
use super::{attr, member, queue};

/// A new queue is empty, and what it was made for.
pub fn a_new_queue_is_empty(bed: &mut Bed<'_, impl Side>) {
    let pz = bed.a.pz_create().unwrap();
    let srq = bed.a.srq_create(pz, &attr(10)).unwrap();
    let param = bed.a.srq_query(srq).unwrap();
    assert_eq!((param.state, param.pz), (SrqState::Operational, pz));
    assert_eq!((SrqState::Error as u32, param.state as u32), (0, 1));
    assert!(param.attr.max_recv_dtos >= 10 && param.attr.max_recv_iov >= 2);
    assert_eq!(param.attr.low_watermark, 0);
    assert_eq!((param.available, param.outstanding), (Some(0), 0));
}

/// Queues of no use, or of too much.
pub fn sizes_that_cannot_be_are_refused(bed: &mut Bed<'_, impl Side>) {
    let pz = bed.a.pz_create().unwrap();
    let (ia, _) = bed.a.query();
    let most = u16::try_from(ia.max_recv_per_srq).unwrap();
    let iov = u8::try_from(ia.max_iov_segments_per_dto).unwrap();
    let mut all = [attr(4); 5];
    all[0].max_recv_dtos = 0;
    all[1].max_recv_iov = 0;
    all[2].max_recv_dtos = most + 1;
    all[3].max_recv_iov = iov + 1;
    all[4].low_watermark = 5;
    for attr in &all {
        let made = bed.a.srq_create(pz, attr);
        refused(made, DatType::InvalidParameter, DatSubtype::InvalidArg3);
    }
    bed.a.srq_create(pz, &attr(most)).unwrap();
}

/// The adapter says how many there are.
pub fn there_are_as_many_as_the_adapter_says(bed: &mut Bed<'_, impl Side>) {
    let pz = bed.a.pz_create().unwrap();
    let (ia, provider) = bed.a.query();
    assert!(provider.srq_supported && ia.max_srqs > 0 && ia.max_ep_per_srq > 0);
    for _ in 0..ia.max_srqs {
        bed.a.srq_create(pz, &attr(2)).unwrap();
    }
    let made = bed.a.srq_create(pz, &attr(2));
    refused(made, DatType::InsufficientResources, DatSubtype::ResourceSrq);
}

/// A queue holds its zone.
pub fn fault_34_a_queue_holds_its_zone(bed: &mut Bed<'_, impl Side>) {
    let pz = bed.a.pz_create().unwrap();
    let srq = bed.a.srq_create(pz, &attr(4)).unwrap();
    refused(bed.a.pz_free(pz), DatType::InvalidState, DatSubtype::InvalidStatePzInUse);
    bed.a.srq_resize(srq, 7).unwrap();
    let param = bed.a.srq_query(srq).unwrap();
    assert_eq!((param.attr.max_recv_dtos, param.available), (7, Some(0)));
    bed.a.srq_free(srq).unwrap();
    bed.a.pz_free(pz).unwrap();
}

/// A freed queue, and a zone that is gone.
pub fn freed_handles_are_invalid(bed: &mut Bed<'_, impl Side>) {
    let pz = bed.a.pz_create().unwrap();
    let srq = bed.a.srq_create(pz, &attr(4)).unwrap();
    bed.a.srq_free(srq).unwrap();
    bed.a.pz_free(pz).unwrap();
    let made = bed.a.srq_create(pz, &attr(4));
    refused(made, DatType::InvalidHandle, DatSubtype::InvalidHandlePz);
    let suggested = bed.a.ep_attr_default();
    let ia = &mut bed.a.ia;
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
pub fn a_queue_in_use_is_not_freed(bed: &mut Bed<'_, impl Side>) {
    let (srq, _) = queue(bed, A, 4);
    let (one, two) = (member(bed, A, srq), member(bed, A, srq));
    let in_use = DatSubtype::InvalidStateSrqInUse;
    refused(bed.a.srq_free(srq), DatType::InvalidState, in_use);
    let now = bed.now();
    bed.a.ep_free(now, one.ep).unwrap();
    refused(bed.a.srq_free(srq), DatType::InvalidState, in_use);
    bed.a.ep_free(now, two.ep).unwrap();
    bed.a.srq_post_recv(srq, &[], 1).unwrap();
    // What is posted goes with it.
    bed.a.srq_free(srq).unwrap();
}

/// Receives are checked like those of an Endpoint, against the queue's zone.
pub fn receives_are_checked(bed: &mut Bed<'_, impl Side>) {
    let (srq, mem) = queue(bed, A, 4);
    let other = bed.a.pz_create().unwrap();
    let foreign = bed.mem(A, other, 64, MemPriv::ALL);
    let zone = bed.a.srq_query(srq).unwrap().pz;
    let locked = bed.mem(A, zone, 64, MemPriv::LOCAL_READ);
    let (ia, seg) = (&mut bed.a.ia, mem.seg(0, 8));
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
pub fn a_full_queue_takes_no_more(bed: &mut Bed<'_, impl Side>) {
    let (srq, mem) = queue(bed, A, 3);
    for cookie in 0..3 {
        bed.a.srq_post_recv(srq, &[mem.seg(0, 8)], cookie).unwrap();
    }
    let posted = bed.a.srq_post_recv(srq, &[mem.seg(0, 8)], 3);
    let full = DatType::InsufficientResources;
    refused(posted, full, DatSubtype::ResourceCredits);
    bed.a.srq_resize(srq, 4).unwrap();
    bed.a.srq_post_recv(srq, &[mem.seg(0, 8)], 3).unwrap();
    assert_eq!(bed.a.srq_query(srq).unwrap().outstanding, 4);
}

/// It does not become smaller than what is in it, or than its low watermark.
pub fn resize_loses_nothing(bed: &mut Bed<'_, impl Side>) {
    let (srq, mem) = queue(bed, A, 8);
    for cookie in 0..4 {
        bed.a.srq_post_recv(srq, &[mem.seg(0, 8)], cookie).unwrap();
    }
    let state = DatType::InvalidState;
    let resized = bed.a.srq_resize(srq, 3);
    refused(resized, state, DatSubtype::InvalidStateSrqInUse);
    let resized = bed.a.srq_resize(srq, 0);
    refused(resized, DatType::InvalidParameter, DatSubtype::InvalidArg2);
    let most = u16::try_from(bed.a.query().0.max_recv_per_srq).unwrap();
    let resized = bed.a.srq_resize(srq, most + 1);
    refused(resized, DatType::InsufficientResources, DatSubtype::ResourceSrq);
    assert_eq!(bed.a.srq_query(srq).unwrap().attr.max_recv_dtos, 8);
    bed.a.srq_resize(srq, 4).unwrap();
    assert_eq!(bed.a.srq_query(srq).unwrap().attr.max_recv_dtos, 4);
}

/// The low watermark is a lower bound of the size.
pub fn resize_stays_above_the_low_watermark(bed: &mut Bed<'_, impl Side>) {
    let (srq, _) = queue(bed, A, 8);
    bed.a.srq_set_lw(srq, 5).unwrap();
    let resized = bed.a.srq_resize(srq, 4);
    refused(resized, DatType::InvalidState, DatSubtype::InvalidStateSrqOperational);
    bed.a.srq_resize(srq, 5).unwrap();
}

/// The Endpoint knows its queue, and keeps it through a reset.
pub fn an_endpoint_knows_its_queue(bed: &mut Bed<'_, impl Side>) {
    let (srq, _) = queue(bed, A, 4);
    let end = member(bed, A, srq);
    assert_eq!(bed.state(&end), EpState::Unconnected);
    assert_eq!(bed.a.ep_query(end.ep).unwrap().srq, Some(srq));
    bed.a.ep_reset(end.ep).unwrap();
    let attr = bed.a.ep_query(end.ep).unwrap().attr;
    let change = EpModify { attr: Some(attr), ..EpModify::default() };
    bed.a.ep_modify(end.ep, &change).unwrap();
    assert_eq!(bed.a.ep_query(end.ep).unwrap().srq, Some(srq));
}

/// No receives of its own.
pub fn an_endpoint_with_a_queue_takes_no_receives(bed: &mut Bed<'_, impl Side>) {
    let (srq, _) = queue(bed, A, 4);
    let end = member(bed, A, srq);
    let posted = bed.a.ep_post_recv(end.ep, &[], 1, NONE);
    refused(posted, DatType::ModelNotSupported, DatSubtype::None);
}

/// Its receives need somewhere to complete to.
pub fn an_endpoint_with_a_queue_needs_a_receive_evd(bed: &mut Bed<'_, impl Side>) {
    let (srq, _) = queue(bed, A, 4);
    let evd = bed.a.evd_create(8, EvdFlags::DTO | EvdFlags::CONNECTION).unwrap();
    let pz = bed.a.pz_create().unwrap();
    let mut attr = bed.a.ep_attr_default();
    attr.max_recv_dtos = 0;
    let some = Some(evd);
    let ep = bed.a.ep_create_with_srq(Some(pz), None, some, some, srq, &attr).unwrap();
    let state = bed.a.ep_query(ep).unwrap().state;
    assert_eq!(state, EpState::UnconfiguredUnconnected);
    let change =
        EpModify { recv_evd: some, attr: Some(bed.a.ep_attr_default()), ..EpModify::default() };
    bed.a.ep_modify(ep, &change).unwrap();
    let state = bed.a.ep_query(ep).unwrap().state;
    assert_eq!(state, EpState::Unconnected);
}

/// The posting half can be elsewhere.
pub fn the_posting_half_can_be_taken_out(bed: &mut Bed<'_, impl Side>) {
    let (srq, mem) = queue(bed, B, 4);
    let (from, to) = (bed.end(A), member(bed, B, srq));
    let mut half = bed.b.srq_take_poster(srq).unwrap();
    assert_eq!(half.srq(), srq);
    half.post_recv(&[mem.seg(0, 8)], 5).unwrap();
    assert!(bed.b.srq_post_recv(srq, &[], 6).is_err());
    assert!(bed.b.srq_take_poster(srq).is_err());
    bed.connect(&from, &to);
    bed.a.ep_post_send(from.ep, &[], 1, NONE).unwrap();
    bed.done(&to, DtoOperation::Receive, 5);
    bed.b.srq_return_poster(half).unwrap();
    bed.b.srq_post_recv(srq, &[], 6).unwrap();
}
