//! Refusals of a post, and that a refusal changes nothing.

use dat_core::{
    CloseFlag, CompletionFlags, DatReturn, DatSubtype, DatType, DtoOperation, LmrTriplet, MemPriv,
    RmrTriplet,
};

use super::super::{A, Adapters, B, NONE, Side, refused};
use super::{Dto, crosses, idle, memory, rig};

const BAD: DatType = DatType::InvalidParameter;

/// One segment more than the Endpoint was made for is one too many, for each of the four.
pub fn too_many_segments_are_refused(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = rig(ias);
    let param = ias.a.ep_query(ends[A].ep).unwrap().attr;
    let far = mems[B].far(0, 64);
    for (dto, most) in [
        (Dto::Send, param.max_request_iov),
        (Dto::Recv, param.max_recv_iov),
        (Dto::Write, param.max_rdma_write_iov),
        (Dto::Read, param.max_rdma_read_iov),
    ] {
        let iov = vec![mems[A].seg(0, 1); usize::from(most) + 1];
        let ret = dto.post(ias, &ends[A], &iov, 1, &far, NONE);
        refused(ret, BAD, DatSubtype::InvalidArg2);
    }
    idle(ias, &ends[A]);
    crosses(ias, &ends, &mems);
}

/// A byte before, a byte behind, and a range that wraps: each is outside.
pub fn segments_outside_their_lmr_are_refused(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = rig(ias);
    let good = mems[A].seg(0, 64);
    let len = mems[A].lmr.region.len as u32;
    let outside = [
        LmrTriplet { addr: good.addr - 1, ..good },
        LmrTriplet { addr: good.addr + u64::from(len) - 63, ..good },
        LmrTriplet { len: len + 1, ..good },
        LmrTriplet { addr: u64::MAX - 31, ..good },
    ];
    for dto in Dto::ALL {
        for segment in outside {
            let far = mems[B].far(0, segment.len as usize);
            let alone = dto.post(ias, &ends[A], &[segment], 1, &far, NONE);
            refused(alone, BAD, DatSubtype::InvalidArg3);
            let far = mems[B].far(0, segment.len as usize + 64);
            let behind = dto.post(ias, &ends[A], &[good, segment], 1, &far, NONE);
            refused(behind, BAD, DatSubtype::InvalidArg3);
        }
    }
    idle(ias, &ends[A]);
    crosses(ias, &ends, &mems);
}

/// The subtypes of a missing right and of a foreign zone.
fn subtypes(dto: Dto) -> (DatSubtype, DatSubtype) {
    match dto {
        Dto::Send => (DatSubtype::PrivilegesRead, DatSubtype::ProtectionRead),
        Dto::Recv => (DatSubtype::PrivilegesWrite, DatSubtype::ProtectionWrite),
        Dto::Write => (DatSubtype::PrivilegesRdmaWrite, DatSubtype::ProtectionRdmaWrite),
        Dto::Read => (DatSubtype::PrivilegesRdmaRead, DatSubtype::ProtectionRdmaRead),
    }
}

/// A context that was never given, and one whose LMR was freed.
pub fn unknown_contexts_are_refused(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = rig(ias);
    let freed = ias.mem(A, ends[A].pz, 64, MemPriv::ALL);
    ias.a.lmr_free(freed.lmr.lmr).unwrap();
    let unknown = LmrTriplet { context: u32::MAX, ..mems[A].seg(0, 64) };
    for dto in Dto::ALL {
        for segment in [unknown, freed.seg(0, 64)] {
            let ret = dto.post(ias, &ends[A], &[segment], 1, &mems[B].far(0, 64), NONE);
            refused(ret, DatType::PrivilegesViolation, subtypes(dto).0);
        }
    }
    idle(ias, &ends[A]);
    crosses(ias, &ends, &mems);
}

/// Memory of sends and writes must be readable; memory of receives and reads must be writable.
pub fn segments_without_the_right_are_refused(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = rig(ias);
    let only_read = ias.mem(A, ends[A].pz, 64, MemPriv::LOCAL_READ);
    let only_write = ias.mem(A, ends[A].pz, 64, MemPriv::LOCAL_WRITE);
    for (dto, mem) in [
        (Dto::Send, only_write),
        (Dto::Recv, only_read),
        (Dto::Write, only_write),
        (Dto::Read, only_read),
    ] {
        let far = mems[B].far(0, 64);
        let ret = dto.post(ias, &ends[A], &[mem.seg(0, 64)], 1, &far, NONE);
        refused(ret, DatType::PrivilegesViolation, subtypes(dto).0);
    }
    idle(ias, &ends[A]);
    crosses(ias, &ends, &mems);
}

/// An LMR serves the Endpoints of its own zone.
pub fn segments_of_another_zone_are_refused(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = rig(ias);
    let other = ias.a.pz_create().unwrap();
    let foreign = ias.mem(A, other, 64, MemPriv::ALL);
    for dto in Dto::ALL {
        let far = mems[B].far(0, 64);
        let ret = dto.post(ias, &ends[A], &[foreign.seg(0, 64)], 1, &far, NONE);
        refused(ret, DatType::ProtectionViolation, subtypes(dto).1);
    }
    idle(ias, &ends[A]);
    crosses(ias, &ends, &mems);
}

/// A segment of length 0 may have any address and any context.
pub fn segments_of_no_bytes_are_not_looked_at(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = rig(ias);
    let nothing = LmrTriplet { addr: 0xdead_beef, len: 0, context: u32::MAX };
    ias.fill(&mems[A], 0, b"something");
    let iov = [nothing, mems[B].seg(0, 9), nothing];
    ias.b.ep_post_recv(ends[B].ep, &iov, 1, NONE).unwrap();
    let iov = [nothing, mems[A].seg(0, 9), nothing];
    ias.a.ep_post_send(ends[A].ep, &iov, 2, NONE).unwrap();
    assert_eq!(ias.done(&ends[B], DtoOperation::Receive, 1), 9);
    assert_eq!(ias.done(&ends[A], DtoOperation::Send, 2), 9);
    assert_eq!(ias.bytes(&mems[B], 0, 9), b"something");
    let far = mems[B].far(64, 9);
    Dto::Write.post(ias, &ends[A], &iov, 3, &far, NONE).unwrap();
    assert_eq!(ias.done(&ends[A], DtoOperation::RdmaWrite, 3), 9);
    assert_eq!(ias.bytes(&mems[B], 64, 9), b"something");
    let iov = [nothing, mems[A].seg(128, 9)];
    Dto::Read.post(ias, &ends[A], &iov, 4, &far, NONE).unwrap();
    assert_eq!(ias.done(&ends[A], DtoOperation::RdmaRead, 4), 9);
    assert_eq!(ias.bytes(&mems[A], 128, 9), b"something");
}

/// The longest message and the longest RDMA operation are the Endpoint's own, and hold for the sum
/// of the segments.
pub fn messages_beyond_the_endpoints_longest_are_refused(ias: &mut Adapters<'_, impl Side>) {
    let short = |attr: &mut dat_core::EpAttr| {
        attr.max_message_size = 256;
        attr.max_rdma_size = 128;
    };
    let ends = [ias.end_with(A, false, short), ias.end_with(B, false, short)];
    ias.connect(&ends[A], &ends[B]);
    let mems = memory(ias, &ends);
    let far = mems[B].far(0, 4096);
    for (dto, most) in [(Dto::Send, 256), (Dto::Write, 128)] {
        for iov in [vec![mems[A].seg(0, most + 1)], vec![mems[A].seg(0, most), mems[A].seg(0, 1)]] {
            let ret = dto.post(ias, &ends[A], &iov, 1, &far, NONE);
            refused(ret, DatType::LengthError, DatSubtype::None);
        }
    }
    let ret = Dto::Read.post(ias, &ends[A], &[mems[A].seg(0, 129)], 1, &mems[B].far(0, 129), NONE);
    refused(ret, DatType::LengthError, DatSubtype::None);
    idle(ias, &ends[A]);
    ias.recv(&ends[B], &mems[B], 0, 256, 1);
    ias.send(&ends[A], &mems[A], 0, 256, 2);
    assert_eq!(ias.done(&ends[B], DtoOperation::Receive, 1), 256);
    assert_eq!(ias.done(&ends[A], DtoOperation::Send, 2), 256);
}

/// The remote triplet has to have room for all that is written.
pub fn a_write_longer_than_its_target_is_refused(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = rig(ias);
    let far = mems[B].far(0, 63);
    for iov in [vec![mems[A].seg(0, 64)], vec![mems[A].seg(0, 32), mems[A].seg(64, 32)]] {
        let ret = Dto::Write.post(ias, &ends[A], &iov, 1, &far, NONE);
        refused(ret, DatType::LengthError, DatSubtype::None);
    }
    idle(ias, &ends[A]);
    crosses(ias, &ends, &mems);
}

/// The local segments have to have room for all that is read.
pub fn a_read_longer_than_its_buffer_is_refused(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = rig(ias);
    let far = mems[B].far(0, 65);
    for iov in [vec![mems[A].seg(0, 64)], vec![mems[A].seg(0, 32), mems[A].seg(64, 32)]] {
        let ret = Dto::Read.post(ias, &ends[A], &iov, 1, &far, NONE);
        refused(ret, DatType::LengthError, DatSubtype::None);
    }
    idle(ias, &ends[A]);
    crosses(ias, &ends, &mems);
}

/// UNCONNECTED: receives are taken, requests are not.
pub fn requests_are_refused_before_the_connection(ias: &mut Adapters<'_, impl Side>) {
    let ends = [ias.end(A), ias.end(B)];
    let mems = memory(ias, &ends);
    for dto in Dto::REQUESTS {
        let ret = dto.post(ias, &ends[A], &[mems[A].seg(0, 8)], 1, &mems[B].far(0, 8), NONE);
        refused(ret, DatType::InvalidState, DatSubtype::InvalidStateEpUnconnected);
    }
    idle(ias, &ends[A]);
    ias.connect(&ends[A], &ends[B]);
    crosses(ias, &ends, &mems);
}

/// DISCONNECT_PENDING: what has been posted may finish, nothing is added.
pub fn requests_are_refused_while_a_disconnect_drains(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = rig(ias);
    // Without a receive at the peer the send stays outstanding, and the drain with it.
    ias.send(&ends[A], &mems[A], 0, 8, 1);
    ias.disconnect(&ends[A], CloseFlag::Graceful);
    for dto in Dto::REQUESTS {
        let ret = dto.post(ias, &ends[A], &[mems[A].seg(0, 8)], 2, &mems[B].far(0, 8), NONE);
        refused(ret, DatType::InvalidState, DatSubtype::InvalidStateEpDiscPending);
    }
    ias.recv(&ends[B], &mems[B], 0, 8, 3);
    assert_eq!(ias.done(&ends[A], DtoOperation::Send, 1), 8);
    assert_eq!(ias.done(&ends[B], DtoOperation::Receive, 3), 8);
}

/// As many DTOs as the Endpoint was made for; a slot is free again when its completion has been
/// dequeued.
pub fn a_full_queue_refuses_and_a_dequeue_makes_room(ias: &mut Adapters<'_, impl Side>) {
    let few = |attr: &mut dat_core::EpAttr| {
        attr.max_recv_dtos = 3;
        attr.max_request_dtos = 3;
    };
    let ends = [ias.end_with(A, false, few), ias.end_with(B, false, few)];
    ias.connect(&ends[A], &ends[B]);
    let mems = memory(ias, &ends);
    let full = |ret: Result<(), DatReturn>| {
        refused(ret, DatType::InsufficientResources, DatSubtype::ResourceCredits);
    };
    for cookie in 0..3 {
        ias.recv(&ends[B], &mems[B], 0, 8, cookie);
    }
    let iov = [mems[B].seg(0, 8)];
    full(ias.b.ep_post_recv(ends[B].ep, &iov, 9, NONE));
    for cookie in 0..3 {
        ias.send(&ends[A], &mems[A], 0, 8, cookie);
    }
    for dto in Dto::REQUESTS {
        full(dto.post(ias, &ends[A], &[mems[A].seg(0, 8)], 9, &mems[B].far(0, 8), NONE));
    }
    assert_eq!(ias.done(&ends[A], DtoOperation::Send, 0), 8);
    assert_eq!(ias.done(&ends[B], DtoOperation::Receive, 0), 8);
    ias.recv(&ends[B], &mems[B], 0, 8, 3);
    ias.send(&ends[A], &mems[A], 0, 8, 3);
    for cookie in 1..4 {
        assert_eq!(ias.done(&ends[A], DtoOperation::Send, cookie), 8);
        assert_eq!(ias.done(&ends[B], DtoOperation::Receive, cookie), 8);
    }
}

/// The handle of a freed Endpoint is stale, also when its slot is in use again.
pub fn a_freed_endpoint_takes_nothing(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = rig(ias);
    let now = ias.now();
    ias.a.ep_free(now, ends[A].ep).unwrap();
    let _other = ias.end(A);
    for dto in Dto::ALL {
        let ret = dto.post(ias, &ends[A], &[mems[A].seg(0, 8)], 1, &mems[B].far(0, 8), NONE);
        refused(ret, DatType::InvalidHandle, DatSubtype::InvalidHandleEp);
    }
}

/// Too many segments are INVALID_PARAMETER with its class bit, and a flag that nobody defined is
/// none to be accepted.
pub fn too_many_segments_and_unknown_flags_are_refused_in_full_words(
    ias: &mut Adapters<'_, impl Side>,
) {
    let (ends, mems) = rig(ias);
    let iov = vec![mems[A].seg(0, 1); 100];
    let ret = ias.a.ep_post_recv(ends[A].ep, &iov, 1, NONE);
    refused(ret, BAD, DatSubtype::InvalidArg2);
    let unknown = CompletionFlags::from_bits_retain(0x40);
    for (dto, place) in [
        (Dto::Send, DatSubtype::InvalidArg5),
        (Dto::Recv, DatSubtype::InvalidArg5),
        (Dto::Write, DatSubtype::InvalidArg6),
        (Dto::Read, DatSubtype::InvalidArg6),
    ] {
        let ret = dto.post(ias, &ends[A], &iov[..1], 1, &mems[B].far(0, 1), unknown);
        refused(ret, BAD, place);
    }
    idle(ias, &ends[A]);
    crosses(ias, &ends, &mems);
}

/// A bad segment is refused at once and breaks no connection, wherever in the list it stands.
pub fn segments_are_checked_at_the_post(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = rig(ias);
    let other = ias.a.pz_create().unwrap();
    let foreign = ias.mem(A, other, 64, MemPriv::ALL);
    let only_read = ias.mem(A, ends[A].pz, 64, MemPriv::LOCAL_READ);
    let good = mems[A].seg(0, 8);
    let beyond = mems[A].seg(super::BYTES, 8);
    for at in 0..3 {
        for (bad, ty) in [
            (foreign.seg(0, 8), DatType::ProtectionViolation),
            (only_read.seg(0, 8), DatType::PrivilegesViolation),
            (beyond, DatType::InvalidParameter),
        ] {
            let mut iov = [good; 3];
            iov[at] = bad;
            let ret = ias.a.ep_post_recv(ends[A].ep, &iov, 1, NONE);
            assert_eq!(ret.unwrap_err().ty(), ty);
            let far = RmrTriplet { len: 24, ..mems[B].far(0, 24) };
            let ret = ias.a.ep_post_rdma_read(ends[A].ep, &iov, 1, &far, NONE);
            assert_eq!(ret.unwrap_err().ty(), ty);
        }
    }
    idle(ias, &ends[A]);
    crosses(ias, &ends, &mems);
}
