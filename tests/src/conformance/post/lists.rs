//! Lists under one doorbell.

use dat_core::{
    CompletionFlags, DatSubtype, DatType, DtoOperation, MemPriv, Message, Piece, Rdma, Refused,
    RmrBind, Stretch,
};

use super::super::{A, Adapters, B, NONE, Side};
use super::moves::pattern;
use super::{Mem, idle, rig};

/// `ep_post_recvs`: filled in order, dequeued in one call; the first that is refused ends the list.
pub fn a_list_of_receives_is_filled_in_order(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = rig(ias);
    let only_read = ias.mem(B, ends[B].pz, 64, MemPriv::LOCAL_READ);
    let bytes = pattern(80);
    ias.fill(&mems[A], 0, &bytes);
    let mut list: Vec<Message> =
        (0..10).map(|n| Message { cookie: n as u64, local: mems[B].seg(8 * n, 8) }).collect();
    ias.b.ep_post_recvs(ends[B].ep, &list, NONE).unwrap();
    for n in 0..10 {
        ias.a.ep_post_send(ends[A].ep, &[mems[A].seg(8 * n, 8)], n as u64, NONE).unwrap();
        assert_eq!(ias.done(&ends[A], DtoOperation::Send, n as u64), 8);
    }
    for cookie in 0..10 {
        assert_eq!(ias.done(&ends[B], DtoOperation::Receive, cookie), 8);
    }
    assert_eq!(ias.bytes(&mems[B], 0, 80), bytes);
    list[4].local = only_read.seg(0, 8);
    let refused = ias.b.ep_post_recvs(ends[B].ep, &list, NONE).unwrap_err();
    assert_eq!(refused.posted, 4);
}

/// `ep_post_rdma_writes`: in order, each with its completion; the first that is refused ends the
/// list.
pub fn a_list_of_writes_is_posted_in_order(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = rig(ias);
    let only_write = ias.mem(A, ends[A].pz, 64, MemPriv::LOCAL_WRITE);
    let bytes = pattern(80);
    ias.fill(&mems[A], 0, &bytes);
    let mut list: Vec<Rdma> = (0..10)
        .map(|n| Rdma {
            cookie: n as u64,
            local: mems[A].seg(8 * n, 8),
            remote: mems[B].far(8 * n, 8),
        })
        .collect();
    ias.a.ep_post_rdma_writes(ends[A].ep, &list, NONE).unwrap();
    for cookie in 0..10 {
        assert_eq!(ias.done(&ends[A], DtoOperation::RdmaWrite, cookie), 8);
    }
    assert_eq!(ias.bytes(&mems[B], 0, 80), bytes);
    list[4].local = only_write.seg(0, 8);
    let refused = ias.a.ep_post_rdma_writes(ends[A].ep, &list, NONE).unwrap_err();
    assert_eq!(refused.posted, 4);
    for cookie in 0..4 {
        assert_eq!(ias.done(&ends[A], DtoOperation::RdmaWrite, cookie), 8);
    }
    idle(ias, &ends[A]);
}

/// `ep_post_rdma_pieces`: as `ep_post_rdma_writes`; a piece that lies outside of an end is refused.
pub fn a_list_of_pieces_stays_in_its_stretch(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = rig(ias);
    let bytes = pattern(160);
    ias.fill(&mems[A], 0, &bytes);
    // Of lengths that a request carries inline in either way, and by reference.
    for len in [8, 12, 40] {
        let (local, remote) = (mems[A].seg(0, 4 * len), mems[B].far(0, 4 * len));
        let stretch = Stretch { local, remote, len: len as u32 };
        let piece = |n: usize| {
            let [from, to] = [n, 3 - n].map(|n| (n * len) as u32);
            Piece { cookie: n as u64, from, to }
        };
        let mut list: Vec<Piece> = (0..4).map(piece).collect();
        ias.a.ep_post_rdma_pieces(ends[A].ep, &stretch, &list, NONE).unwrap();
        for cookie in 0..4 {
            assert_eq!(ias.done(&ends[A], DtoOperation::RdmaWrite, cookie), len as u32);
        }
        for n in 0..4 {
            let written = ias.bytes(&mems[B], (3 - n) * len, len);
            assert_eq!(written, bytes[n * len..][..len], "{n} of {len}");
        }
        for (from, to, why) in [(1, 0, DatType::InvalidParameter), (0, 1, DatType::LengthError)] {
            let beyond = 3 * len as u32;
            list[2] = Piece { cookie: 9, from: beyond + from, to: beyond + to };
            let refused = ias.a.ep_post_rdma_pieces(ends[A].ep, &stretch, &list, NONE);
            let Refused { posted, ret } = refused.unwrap_err();
            assert_eq!((posted, ret.ty()), (2, why));
            for cookie in 0..2 {
                ias.done(&ends[A], DtoOperation::RdmaWrite, cookie);
            }
        }
        let long = Stretch { len: 4 * len as u32 + 1, ..stretch };
        let refused = ias.a.ep_post_rdma_pieces(ends[A].ep, &long, &list, NONE).unwrap_err();
        assert_eq!((refused.posted, refused.ret.subtype()), (0, DatSubtype::InvalidArg3));
    }
    idle(ias, &ends[A]);
}

/// `ep_post_sends`: each takes a receive, in order; the first that is refused ends the list.
pub fn a_list_of_sends_is_posted_in_order(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = rig(ias);
    let only_write = ias.mem(A, ends[A].pz, 64, MemPriv::LOCAL_WRITE);
    let bytes = pattern(80);
    ias.fill(&mems[A], 0, &bytes);
    let message = |mem: &Mem, n: usize| Message { cookie: n as u64, local: mem.seg(8 * n, 8) };
    let receives: Vec<Message> = (0..10).map(|n| message(&mems[B], n)).collect();
    let mut list: Vec<Message> = (0..10).map(|n| message(&mems[A], n)).collect();
    ias.b.ep_post_recvs(ends[B].ep, &receives, NONE).unwrap();
    list[6].local = only_write.seg(0, 8);
    let refused = ias.a.ep_post_sends(ends[A].ep, &list, NONE).unwrap_err();
    assert_eq!(refused.posted, 6);
    ias.a.ep_post_sends(ends[A].ep, &list[..0], NONE).unwrap();
    list[6].local = mems[A].seg(48, 8);
    ias.a.ep_post_sends(ends[A].ep, &list[6..], CompletionFlags::DEFER).unwrap();
    for cookie in 0..6 {
        assert_eq!(ias.done(&ends[A], DtoOperation::Send, cookie), 8);
        assert_eq!(ias.done(&ends[B], DtoOperation::Receive, cookie), 8);
    }
    ias.a.ep_ring(ends[A].ep).unwrap();
    for cookie in 6..10 {
        assert_eq!(ias.done(&ends[A], DtoOperation::Send, cookie), 8);
        assert_eq!(ias.done(&ends[B], DtoOperation::Receive, cookie), 8);
    }
    assert_eq!(ias.bytes(&mems[B], 0, 80), bytes);
}

/// `ep_post_rdma_reads`, likewise.
pub fn a_list_of_reads_is_posted_in_order(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = rig(ias);
    let bytes = pattern(80);
    ias.fill(&mems[B], 0, &bytes);
    let mut list: Vec<Rdma> = (0..10)
        .map(|n| Rdma {
            cookie: n as u64,
            local: mems[A].seg(8 * n, 8),
            remote: mems[B].far(8 * n, 8),
        })
        .collect();
    ias.a.ep_post_rdma_reads(ends[A].ep, &list, NONE).unwrap();
    for cookie in 0..10 {
        assert_eq!(ias.done(&ends[A], DtoOperation::RdmaRead, cookie), 8);
    }
    assert_eq!(ias.bytes(&mems[A], 0, 80), bytes);
    list[4].remote.len = 9;
    let Refused { posted, ret } = ias.a.ep_post_rdma_reads(ends[A].ep, &list, NONE).unwrap_err();
    assert_eq!((posted, ret.ty()), (4, DatType::LengthError));
    for cookie in 0..4 {
        assert_eq!(ias.done(&ends[A], DtoOperation::RdmaRead, cookie), 8);
    }
    idle(ias, &ends[A]);
}

/// `rmr_binds`: each returns its context and completes; the first that is refused ends the list.
pub fn a_list_of_binds_is_posted_in_order(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = rig(ias);
    let only_read = ias.mem(B, ends[B].pz, 64, MemPriv::LOCAL_READ);
    let rmrs: Vec<_> = (0..4).map(|_| ias.b.rmr_create(ends[B].pz).unwrap()).collect();
    let bind = |n: usize| RmrBind {
        cookie: n as u64,
        rmr: rmrs[n],
        range: mems[B].seg(64 * n, 64),
        privileges: MemPriv::REMOTE_WRITE,
        context: 0,
    };
    let mut list: Vec<RmrBind> = (0..4).map(bind).collect();
    list[3].range = only_read.seg(0, 64);
    let refused = ias.b.rmr_binds(ends[B].ep, &mut list, NONE).unwrap_err();
    assert_eq!(refused.posted, 3);
    assert_eq!(list[3].context, 0);
    for one in &list[..3] {
        assert_eq!(ias.b.rmr_query(one.rmr).unwrap().rmr_context, one.context);
        ias.bound(&ends[B], one.rmr, one.cookie);
    }
    for (n, one) in list[..3].iter().enumerate() {
        let far = dat_core::RmrTriplet { context: one.context, ..mems[B].far(64 * n, 64) };
        ias.a.ep_post_rdma_write(ends[A].ep, &[mems[A].seg(0, 64)], 7, &far, NONE).unwrap();
        assert_eq!(ias.done(&ends[A], DtoOperation::RdmaWrite, 7), 64);
    }
}
