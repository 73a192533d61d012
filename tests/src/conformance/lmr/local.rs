//! Checks of local segments at the post.

use dat_core::{
    DatReturn, DatSubtype as Sub, DatType as Ty, DtoOperation, EpState, LmrTriplet, MemPriv,
    RmrTriplet,
};

use crate::conformance::reach::pattern;
use crate::conformance::{A, Adapters, B, End, NONE, Side, refused};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Post {
    Send,
    Recv,
    Read,
    Write,
}

const POSTS: [Post; 4] = [Post::Send, Post::Recv, Post::Read, Post::Write];

fn post(
    ias: &mut Adapters<'_, impl Side>,
    end: &End,
    what: Post,
    segments: &[LmrTriplet],
) -> Result<(), DatReturn> {
    let len = segments.iter().fold(0_u32, |sum, segment| sum.saturating_add(segment.len));
    let far = RmrTriplet { addr: 0, len, context: 0 };
    let (ia, ep) = (&mut ias[end.side].ia, end.ep);
    match what {
        Post::Send => ia.ep_post_send(ep, segments, 1, NONE),
        Post::Recv => ia.ep_post_recv(ep, segments, 1, NONE),
        Post::Read => ia.ep_post_rdma_read(ep, segments, 1, &far, NONE),
        Post::Write => ia.ep_post_rdma_write(ep, segments, 1, &far, NONE),
    }
}

/// A segment that does not lie in its LMR is `INVALID_PARAMETER` at the post, and the connection
/// stays.
pub fn fault_30_segments_are_checked_when_posted(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = ias.armed();
    let inside = mems[A].seg(0, 64);
    let base = inside.addr;
    for (addr, len) in [
        (base - 1, 1),
        (base + 8192, 1),
        (base + 8191, 2),
        (base, 8193),
        (0, 64),
        (u64::MAX, 1),
        (u64::MAX - 8, 64),
        (base, u32::MAX),
    ] {
        let outside = LmrTriplet { addr, len, ..inside };
        for what in POSTS {
            for list in [&[outside][..], &[inside, outside][..]] {
                let posted = post(ias, &ends[A], what, list);
                // A length beyond any message may be refused for its length as well.
                let ret = posted.expect_err("outside");
                assert!(
                    ret.ty() == Ty::InvalidParameter && ret.subtype() == Sub::InvalidArg3
                        || ret.ty() == Ty::LengthError && len == u32::MAX,
                    "{what:?} {addr:#x}+{len}: {ret}"
                );
            }
        }
    }
    assert_eq!(ias.state(&ends[A]), EpState::Connected);
    let whole = LmrTriplet { len: 8192, ..inside };
    post(ias, &ends[A], Post::Recv, &[whole]).unwrap();
}

/// More segments than the Endpoint has are `INVALID_PARAMETER`, with their class; so are flags that
/// do not exist.
pub fn fault_08_too_many_segments_are_refused(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = ias.armed();
    let most = usize::from(ias.a.ep_attr_default().max_request_iov);
    let one = mems[A].seg(0, 4);
    for what in POSTS {
        for count in [most + 1, 100] {
            let posted = post(ias, &ends[A], what, &vec![one; count]);
            refused(posted, Ty::InvalidParameter, Sub::InvalidArg2);
        }
    }
    let odd = dat_core::CompletionFlags::from_bits_retain(0x40);
    let posted = ias.a.ep_post_recv(ends[A].ep, &[one], 1, odd);
    refused(posted, Ty::InvalidParameter, Sub::InvalidArg5);
    post(ias, &ends[A], Post::Recv, &vec![one; most]).unwrap();
}

/// A segment of another zone than the Endpoint's is `PROTECTION_VIOLATION`, with the subtype of the
/// operation.
pub fn a_segment_of_another_zone_is_refused(ias: &mut Adapters<'_, impl Side>) {
    let ends = ias.connected();
    let pz = ias.a.pz_create().unwrap();
    let mem = ias.mem(A, pz, 64, MemPriv::ALL);
    for (what, subtype) in [
        (Post::Send, Sub::ProtectionRead),
        (Post::Recv, Sub::ProtectionWrite),
        (Post::Read, Sub::ProtectionRdmaRead),
        (Post::Write, Sub::ProtectionRdmaWrite),
    ] {
        let posted = post(ias, &ends[A], what, &[mem.seg(0, 64)]);
        refused(posted, Ty::ProtectionViolation, subtype);
    }
    assert_eq!(ias.state(&ends[A]), EpState::Connected);
}

/// A missing local privilege, or a context that no LMR has, is `PRIVILEGES_VIOLATION`, with the
/// subtype of the operation.
pub fn a_segment_without_the_privilege_is_refused(ias: &mut Adapters<'_, impl Side>) {
    let ends = ias.connected();
    let read = ias.mem(A, ends[A].pz, 64, MemPriv::LOCAL_READ);
    let none = ias.mem(A, ends[A].pz, 64, MemPriv::empty());
    let unknown = LmrTriplet { context: 0x1234_5678, ..read.seg(0, 64) };
    for (what, subtype) in [
        (Post::Send, Sub::PrivilegesRead),
        (Post::Recv, Sub::PrivilegesWrite),
        (Post::Read, Sub::PrivilegesRdmaRead),
        (Post::Write, Sub::PrivilegesRdmaWrite),
    ] {
        for segment in [none.seg(0, 64), unknown] {
            let posted = post(ias, &ends[A], what, &[segment]);
            refused(posted, Ty::PrivilegesViolation, subtype);
        }
    }
    for (what, subtype) in
        [(Post::Recv, Sub::PrivilegesWrite), (Post::Read, Sub::PrivilegesRdmaRead)]
    {
        let posted = post(ias, &ends[A], what, &[read.seg(0, 64)]);
        refused(posted, Ty::PrivilegesViolation, subtype);
    }
}

/// Memory that is only sent from needs LOCAL_READ and no more.
pub fn local_read_is_asked_for_what_is_sent(ias: &mut Adapters<'_, impl Side>) {
    let ends = ias.connected();
    let from = ias.mem(A, ends[A].pz, 64, MemPriv::LOCAL_READ);
    let to = ias.mem(B, ends[B].pz, 64, MemPriv::LOCAL_WRITE);
    ias.fill(&from, 0, &pattern(A, 64));
    ias.recv(&ends[B], &to, 0, 64, 1);
    ias.send(&ends[A], &from, 0, 64, 2);
    ias.done(&ends[A], DtoOperation::Send, 2);
    assert_eq!(ias.done(&ends[B], DtoOperation::Receive, 1), 64);
    assert_eq!(ias.bytes(&to, 0, 64), pattern(A, 64));
}

/// Of a segment of length 0 neither address nor context means anything.
pub fn an_empty_segment_names_nothing(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = ias.armed();
    let nothing = LmrTriplet { addr: u64::MAX, len: 0, context: 0xdead_beef };
    let iov = [nothing, mems[B].seg(0, 8), nothing];
    ias.b.ep_post_recv(ends[B].ep, &iov, 1, NONE).unwrap();
    let iov = [mems[A].seg(0, 4), nothing, mems[A].seg(100, 4)];
    ias.a.ep_post_send(ends[A].ep, &iov, 2, NONE).unwrap();
    ias.done(&ends[A], DtoOperation::Send, 2);
    assert_eq!(ias.done(&ends[B], DtoOperation::Receive, 1), 8);
    let all = pattern(A, 8192);
    assert_eq!(ias.bytes(&mems[B], 0, 8), [&all[..4], &all[100..104]].concat());
}

/// No segments, or empty ones only, are a message of no bytes: for sends and for receives.
pub fn no_segments_are_a_message_of_no_bytes(ias: &mut Adapters<'_, impl Side>) {
    let ends = ias.connected();
    for (to, from) in [(0, 0), (1, 0), (0, 1)] {
        let list = |count| vec![LmrTriplet::default(); count];
        ias.b.ep_post_recv(ends[B].ep, &list(to), 1, NONE).unwrap();
        ias.a.ep_post_send(ends[A].ep, &list(from), 2, NONE).unwrap();
        ias.done(&ends[A], DtoOperation::Send, 2);
        assert_eq!(ias.done(&ends[B], DtoOperation::Receive, 1), 0);
    }
}

/// Segments fill in order; at most one is filled in part, and those behind it stay as they were.
pub fn segments_fill_in_order(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = ias.armed();
    let iov = [mems[B].seg(100, 10), mems[B].seg(0, 10), mems[B].seg(50, 10)];
    ias.b.ep_post_recv(ends[B].ep, &iov, 1, NONE).unwrap();
    ias.send(&ends[A], &mems[A], 0, 15, 2);
    ias.done(&ends[A], DtoOperation::Send, 2);
    assert_eq!(ias.done(&ends[B], DtoOperation::Receive, 1), 15);
    let (sent, old) = (pattern(A, 8192), pattern(B, 8192));
    assert_eq!(ias.bytes(&mems[B], 100, 10), sent[..10]);
    assert_eq!(ias.bytes(&mems[B], 0, 5), sent[10..15]);
    assert_eq!(ias.bytes(&mems[B], 5, 5), old[5..10]);
    assert_eq!(ias.bytes(&mems[B], 50, 10), old[50..60]);
}

/// A write longer than its far end, and a read that brings more than there is room for, are
/// `LENGTH_ERROR`.
pub fn lengths_of_both_ends_are_compared(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = ias.armed();
    let (ep, local) = (ends[A].ep, [mems[A].seg(0, 64)]);
    let short = mems[B].far(0, 63);
    let long = mems[B].far(0, 65);
    let written = ias.a.ep_post_rdma_write(ep, &local, 1, &short, NONE);
    refused(written, Ty::LengthError, Sub::None);
    let read = ias.a.ep_post_rdma_read(ep, &local, 1, &long, NONE);
    refused(read, Ty::LengthError, Sub::None);
    // The other way round there is room.
    ias.a.ep_post_rdma_write(ep, &local, 2, &long, NONE).unwrap();
    assert_eq!(ias.done(&ends[A], DtoOperation::RdmaWrite, 2), 64);
    ias.a.ep_post_rdma_read(ep, &local, 3, &short, NONE).unwrap();
    assert_eq!(ias.done(&ends[A], DtoOperation::RdmaRead, 3), 63);
}
