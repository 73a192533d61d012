//! Cases of the InfiniBand extensions: atomics, immediates, datagrams.
//!
//! Length: three small groups that share their few words for events and addresses. ([`service`] has
//! those of service points.)

mod service;

pub use service::*;

use std::time::Duration;

use dat_core::provider::{Arrived, Destination};
use dat_core::{
    CloseFlag, CompletionFlags, DatReturn, DatSubtype, DatType, DtoOperation, DtoStatus, Ep,
    EpState, Evd, Event, GRH_LEN, IbDtoEvent, IbOperation, LmrTriplet, LookUp, MemPriv, RmrTriplet,
};

use super::adapters::owner;
use super::{A, Adapters, B, End, Mem, NONE, Side, refused};

const RIGHTS: MemPriv = MemPriv::ALL.union(MemPriv::REMOTE_ATOMIC);
const QKEY: u32 = 0x0102_0304;
const BAD: DatType = DatType::InvalidParameter;

/// Two connected Endpoints, and memory of each with all rights, that to atomics included.
#[track_caller]
fn rig(ias: &mut Adapters<'_, impl Side>) -> ([End; 2], [Mem; 2]) {
    let ends = ias.connected();
    let mems = [A, B].map(|side| ias.mem(side, ends[side].pz, 4096, RIGHTS));
    (ends, mems)
}

/// The next event, which has to be of the extensions.
#[track_caller]
fn extended(ias: &mut Adapters<'_, impl Side>, side: usize, evd: Evd) -> IbDtoEvent {
    match ias.event(side, evd) {
        Event::IbDto(event) => event,
        other => panic!("side {side}: {other:?}"),
    }
}

/// The next completion of a request: that operation, and a success.
#[track_caller]
fn done(ias: &mut Adapters<'_, impl Side>, end: &End, operation: IbOperation, cookie: u64) -> u32 {
    let event = extended(ias, end.side, end.request);
    assert_eq!(Event::IbDto(event).number(), 0x4_0000);
    assert_eq!((event.ep, event.operation), (end.ep, operation));
    assert_eq!((event.cookie, event.status()), (cookie, DtoStatus::Success));
    event.len
}

fn put(ias: &Adapters<'_, impl Side>, mem: &Mem, at: usize, word: u64) {
    ias.fill(mem, at, &word.to_ne_bytes());
}

#[track_caller]
fn get(ias: &Adapters<'_, impl Side>, mem: &Mem, at: usize) -> u64 {
    u64::from_ne_bytes(ias.bytes(mem, at, 8).try_into().unwrap())
}

/// Adds modulo 2^64 and answers with what was there, both in the order of the host.
pub fn fetch_and_add_answers_with_what_was_there(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = rig(ias);
    put(ias, &mems[B], 64, u64::MAX - 1);
    for (before, after) in [(u64::MAX - 1, 3), (3, 8), (8, 13)] {
        let (here, far) = (mems[A].seg(128, 8), mems[B].far(64, 8));
        ias.a.ep_post_fetch_add(ends[A].ep, 5, &here, 7, &far, NONE).unwrap();
        assert_eq!(done(ias, &ends[A], IbOperation::FetchAdd, 7), 8);
        assert_eq!((get(ias, &mems[A], 128), get(ias, &mems[B], 64)), (before, after));
    }
}

/// Swaps if it finds what it compares with; answers with what was there in either case.
pub fn compare_and_swap_swaps_what_it_expects(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = rig(ias);
    put(ias, &mems[B], 64, 10);
    for (compare, swap, before, after) in [(11, 99, 10, 10), (10, 20, 10, 20), (20, 0, 20, 0)] {
        let (here, far) = (mems[A].seg(128, 8), mems[B].far(64, 8));
        ias.a.ep_post_cmp_swap(ends[A].ep, compare, swap, &here, 7, &far, NONE).unwrap();
        assert_eq!(done(ias, &ends[A], IbOperation::CmpSwap, 7), 8);
        assert_eq!((get(ias, &mems[A], 128), get(ias, &mems[B], 64)), (before, after));
    }
}

/// Atomics and other requests complete in the order of their posts, each carried out once.
pub fn atomics_keep_their_place_in_the_order(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = rig(ias);
    for n in 0..10 {
        let (here, far) = (mems[A].seg(8 * n as usize, 8), mems[B].far(0, 8));
        ias.a.ep_post_fetch_add(ends[A].ep, 1, &here, n, &far, NONE).unwrap();
        ias.a
            .ep_post_rdma_write(
                ends[A].ep,
                &[mems[A].seg(512, 8)],
                100 + n,
                &mems[B].far(512, 8),
                NONE,
            )
            .unwrap();
    }
    for n in 0..10 {
        done(ias, &ends[A], IbOperation::FetchAdd, n);
        ias.done(&ends[A], DtoOperation::RdmaWrite, 100 + n);
        assert_eq!(get(ias, &mems[A], 8 * n as usize), n);
    }
    assert_eq!(get(ias, &mems[B], 0), 10);
}

/// Posts one of the two atomics.
fn atomic(
    ias: &mut Adapters<'_, impl Side>,
    end: &End,
    swaps: bool,
    here: LmrTriplet,
    far: RmrTriplet,
    flags: CompletionFlags,
) -> Result<(), DatReturn> {
    let ia = &mut ias[end.side].ia;
    if swaps {
        ia.ep_post_cmp_swap(end.ep, 1, 2, &here, 1, &far, flags)
    } else {
        ia.ep_post_fetch_add(end.ep, 1, &here, 1, &far, flags)
    }
}

/// Operands have 8 bytes on both sides, the far one on a multiple of 8; context, right, zone and
/// flags as for a read.
pub fn atomics_that_cannot_be_are_refused(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = rig(ias);
    let only_read = ias.mem(A, ends[A].pz, 64, MemPriv::LOCAL_READ);
    let other = ias.a.pz_create().unwrap();
    let foreign = ias.mem(A, other, 64, RIGHTS);
    let (here, far) = (mems[A].seg(0, 8), mems[B].far(0, 8));
    for (swaps, far_place, flags_place) in [
        (false, DatSubtype::InvalidArg5, DatSubtype::InvalidArg6),
        (true, DatSubtype::InvalidArg6, DatSubtype::InvalidArg7),
    ] {
        for len in [0, 4, 16] {
            let (short, near) = (LmrTriplet { len, ..here }, RmrTriplet { len, ..far });
            let length = DatType::LengthError;
            refused(atomic(ias, &ends[A], swaps, short, far, NONE), length, DatSubtype::None);
            refused(atomic(ias, &ends[A], swaps, here, near, NONE), length, DatSubtype::None);
        }
        let odd = mems[B].far(4, 8);
        refused(atomic(ias, &ends[A], swaps, here, odd, NONE), BAD, far_place);
        let unknown = CompletionFlags::from_bits_retain(0x40);
        refused(atomic(ias, &ends[A], swaps, here, far, unknown), BAD, flags_place);
        let nothing = LmrTriplet { context: u32::MAX, ..here };
        for (segment, ty, subtype) in [
            (nothing, DatType::PrivilegesViolation, DatSubtype::PrivilegesRdmaRead),
            (only_read.seg(0, 8), DatType::PrivilegesViolation, DatSubtype::PrivilegesRdmaRead),
            (foreign.seg(0, 8), DatType::ProtectionViolation, DatSubtype::ProtectionRdmaRead),
            (mems[A].seg(4092, 8), BAD, DatSubtype::InvalidArg3),
        ] {
            refused(atomic(ias, &ends[A], swaps, segment, far, NONE), ty, subtype);
        }
    }
    assert!(ias.a.ep_get_status(ends[A].ep).unwrap().request_idle);
    let idle = ias.end(A);
    let mem = ias.mem(A, idle.pz, 64, RIGHTS);
    refused(
        atomic(ias, &idle, false, mem.seg(0, 8), far, NONE),
        DatType::InvalidState,
        DatSubtype::InvalidStateEpUnconnected,
    );
}

/// Without REMOTE_ATOMIC the peer refuses: ERR_REMOTE_ACCESS, nothing changes, the connection
/// breaks.
pub fn an_atomic_without_the_right_is_refused_by_the_peer(ias: &mut Adapters<'_, impl Side>) {
    for swaps in [false, true] {
        let ends = ias.connected();
        let here = ias.mem(A, ends[A].pz, 64, RIGHTS);
        let there = ias.mem(B, ends[B].pz, 64, MemPriv::ALL);
        put(ias, &there, 0, 1);
        atomic(ias, &ends[A], swaps, here.seg(0, 8), there.far(0, 8), NONE).unwrap();
        let event = extended(ias, A, ends[A].request);
        assert_eq!(event.status(), DtoStatus::ErrRemoteAccess);
        ias.broken(A, ends[A].conn, ends[A].ep);
        assert_eq!(get(ias, &there, 0), 1);
    }
}

/// REMOTE_ATOMIC changes memory, so it wants LOCAL_WRITE; it is not part of ALL, and makes an
/// rmr_context by itself.
pub fn the_right_to_atomics_is_asked_for(ias: &mut Adapters<'_, impl Side>) {
    let pz = ias.a.pz_create().unwrap();
    assert_eq!((MemPriv::REMOTE_ATOMIC.bits(), MemPriv::ALL.bits()), (0x40, 0x33));
    let region = ias.a.side.memory(64);
    let lmr = ias.a.lmr_create(pz, region, MemPriv::REMOTE_ATOMIC);
    refused(
        lmr.map_err(|error| error.ret()),
        DatType::PrivilegesViolation,
        DatSubtype::PrivilegesWrite,
    );
    let rights = MemPriv::LOCAL_WRITE | MemPriv::REMOTE_ATOMIC;
    let lmr = ias.a.lmr_create(pz, region, rights).unwrap();
    assert_ne!(lmr.rmr_context, 0);
}

/// SUPPRESS: a success has no event and its slot comes back; a failure tells.
pub fn suppressed_atomics_and_immediates_are_silent(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = rig(ias);
    let suppress = CompletionFlags::SUPPRESS;
    let (here, far) = (mems[A].seg(0, 8), mems[B].far(0, 8));
    ias.recv(&ends[B], &mems[B], 64, 8, 1);
    atomic(ias, &ends[A], false, here, far, suppress).unwrap();
    atomic(ias, &ends[A], true, here, far, suppress).unwrap();
    ias.a
        .ep_post_rdma_write_immed(ends[A].ep, &[here], 2, &mems[B].far(128, 8), 3, suppress)
        .unwrap();
    extended(ias, B, ends[B].recv);
    ias.expect_no_event(Duration::from_millis(5), &[(A, ends[A].request)]);
    assert!(ias.a.ep_get_status(ends[A].ep).unwrap().request_idle);
    let wrong = RmrTriplet { context: far.context ^ 0xff, ..far };
    atomic(ias, &ends[A], false, here, wrong, suppress).unwrap();
    let event = extended(ias, A, ends[A].request);
    assert_eq!(event.status(), DtoStatus::ErrRemoteAccess);
}

/// A write with immediate takes a receive of the peer: operation, length of the write, the 32 bits;
/// the receive's own memory is not touched, and the written bytes are there when it completes.
pub fn a_write_with_immediate_takes_a_receive(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = rig(ias);
    for (n, len) in [0_usize, 8, 300, 2000].into_iter().enumerate() {
        let immediate = 0xdead_0000 | n as u32;
        ias.fill(&mems[A], 0, &vec![n as u8 + 1; len]);
        ias.fill(&mems[B], 3000, &[0xee; 64]);
        ias.recv(&ends[B], &mems[B], 3000, 64, 5);
        let far = mems[B].far(0, len);
        let iov = [mems[A].seg(0, len)];
        ias.a.ep_post_rdma_write_immed(ends[A].ep, &iov, 4, &far, immediate, NONE).unwrap();
        let event = extended(ias, B, ends[B].recv);
        assert_eq!((event.ep, event.cookie, event.len as usize), (ends[B].ep, 5, len));
        assert_eq!(event.operation, IbOperation::RecvRdmaWriteImmed);
        let extension = ias.b.evd_extension(ends[B].recv).unwrap();
        assert_eq!((extension.arrived, extension.immediate), (Arrived::WriteImmediate, immediate));
        assert_eq!(ias.bytes(&mems[B], 0, len), vec![n as u8 + 1; len]);
        assert_eq!(ias.bytes(&mems[B], 3000, 64), [0xee; 64]);
        assert_eq!(done(ias, &ends[A], IbOperation::RdmaWriteImmed, 4) as usize, len);
    }
}

/// A write with immediate refuses the same arguments as a write.
pub fn a_write_with_immediate_is_checked_as_a_write(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = rig(ias);
    let most = ias.a.ep_query(ends[A].ep).unwrap().attr.max_rdma_write_iov;
    let mut post = |iov: &[LmrTriplet], far: RmrTriplet, flags| {
        ias.a.ep_post_rdma_write_immed(ends[A].ep, iov, 1, &far, 9, flags)
    };
    let far = mems[B].far(0, 64);
    let many = vec![mems[A].seg(0, 1); usize::from(most) + 1];
    refused(post(&many, far, NONE), BAD, DatSubtype::InvalidArg2);
    let longer = [mems[A].seg(0, 65)];
    refused(post(&longer, far, NONE), DatType::LengthError, DatSubtype::None);
    let outside = [mems[A].seg(4090, 8)];
    refused(post(&outside, far, NONE), BAD, DatSubtype::InvalidArg3);
    let unknown = CompletionFlags::from_bits_retain(0x40);
    refused(post(&[mems[A].seg(0, 8)], far, unknown), BAD, DatSubtype::InvalidArg6);
    let nothing = [LmrTriplet { context: u32::MAX, ..mems[A].seg(0, 8) }];
    refused(
        post(&nothing, far, NONE),
        DatType::PrivilegesViolation,
        DatSubtype::PrivilegesRdmaWrite,
    );
}

/// DISCONNECTED: flushed at once, as the event that it would have had.
pub fn extended_posts_on_a_disconnected_endpoint_are_flushed(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = rig(ias);
    ias.disconnect(&ends[A], CloseFlag::Abrupt);
    assert_eq!(ias.event(A, ends[A].conn), Event::Disconnected(ends[A].ep));
    let (here, far) = (mems[A].seg(0, 8), mems[B].far(0, 8));
    atomic(ias, &ends[A], false, here, far, NONE).unwrap();
    atomic(ias, &ends[A], true, here, far, NONE).unwrap();
    ias.a.ep_post_rdma_write_immed(ends[A].ep, &[here], 1, &far, 3, NONE).unwrap();
    for operation in [IbOperation::FetchAdd, IbOperation::CmpSwap, IbOperation::RdmaWriteImmed] {
        let event = extended(ias, A, ends[A].request);
        assert_eq!((event.operation, event.status()), (operation, DtoStatus::ErrFlushed));
        assert_eq!((event.cookie, event.len), (1, 0));
    }
}

/// An Endpoint for datagrams on each side.
#[track_caller]
fn datagrams(ias: &mut Adapters<'_, impl Side>) -> ([End; 2], [Mem; 2]) {
    let ends = [A, B].map(|side| {
        let mut end = ias.end(side);
        let ia = &mut ias[side].ia;
        let made = ia.ep_create_ud(end.pz, end.recv, end.request, Some(end.conn), None, QKEY);
        end.ep = made.unwrap();
        end
    });
    let mems = [A, B].map(|side| ias.mem(side, ends[side].pz, 4096, MemPriv::ALL));
    (ends, mems)
}

fn qpn(ias: &Adapters<'_, impl Side>, side: usize, ep: Ep) -> u32 {
    ias[side].ep_query(ep).unwrap().qp.unwrap().number
}

/// The address of `end` for the other side.
#[track_caller]
fn address(ias: &mut Adapters<'_, impl Side>, end: &End, qkey: u32) -> Destination {
    let (number, remote, from) =
        (qpn(ias, end.side, end.ep), ias[end.side].address(), 1 - end.side);
    let found = ias.until(|ias| {
        let now = ias.now();
        match ias[from].ud_address(now, remote, number, qkey) {
            core::task::Poll::Ready(found) => Some(found),
            core::task::Poll::Pending => None,
        }
    });
    found.unwrap()
}

/// Made CONNECTED, for anybody, without a connect.
pub fn an_endpoint_for_datagrams_is_open_from_the_start(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = datagrams(ias);
    assert_eq!(ias.state(&ends[A]), EpState::Connected);
    let (here, far) = (mems[A].seg(0, 8), mems[B].far(0, 8));
    let model =
        |ret: Result<(), DatReturn>| refused(ret, DatType::ModelNotSupported, DatSubtype::None);
    model(ias.a.ep_post_send(ends[A].ep, &[here], 1, NONE));
    model(ias.a.ep_post_rdma_write(ends[A].ep, &[here], 1, &far, NONE));
    model(ias.a.ep_post_rdma_read(ends[A].ep, &[here], 1, &far, NONE));
    model(atomic(ias, &ends[A], false, here, far, NONE));
    model(ias.a.ep_post_rdma_write_immed(ends[A].ep, &[here], 1, &far, 1, NONE));
    let to = address(ias, &ends[B], QKEY);
    let connected = ias.connected();
    let mem = ias.mem(A, connected[A].pz, 64, MemPriv::ALL);
    model(ias.a.ep_post_send_ud(connected[A].ep, &[mem.seg(0, 8)], &to, None, 1, NONE));
}

/// A datagram arrives behind 40 bytes that name its sender; the event counts them, and tells the
/// sender's QPN and the immediate.
pub fn a_datagram_tells_who_sent_it(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = datagrams(ias);
    let to = address(ias, &ends[B], QKEY);
    let own = qpn(ias, A, ends[A].ep);
    ias.fill(&mems[A], 0, b"hello");
    for immediate in [None, Some(0x1122_3344)] {
        ias.recv(&ends[B], &mems[B], 0, 128, 5);
        ias.a.ep_post_send_ud(ends[A].ep, &[mems[A].seg(0, 5)], &to, immediate, 4, NONE).unwrap();
        assert_eq!(done(ias, &ends[A], IbOperation::SendUd, 4), 5);
        let event = extended(ias, B, ends[B].recv);
        let operation = match immediate {
            None => IbOperation::RecvMsgUd,
            Some(_) => IbOperation::RecvMsgUdImmed,
        };
        assert_eq!((event.operation, event.cookie), (operation, 5));
        assert_eq!(event.len as usize, GRH_LEN + 5);
        let extension = ias.b.evd_extension(ends[B].recv).unwrap();
        assert_eq!((extension.source_qpn, extension.immediate), (own, immediate.unwrap_or(0)));
        let bytes = ias.bytes(&mems[B], 0, GRH_LEN + 5);
        let sender = extension.network.sender(bytes.first_chunk().unwrap());
        assert_eq!(sender.map(|sender| owner(A, sender)), Some(ias.a.address()));
        assert_eq!(&bytes[GRH_LEN..], b"hello");
    }
}

/// A datagram that nobody takes is lost, and was sent all the same: another Q_Key, no receive.
pub fn a_datagram_that_nobody_takes_is_lost(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = datagrams(ias);
    let (good, bad) = (address(ias, &ends[B], QKEY), address(ias, &ends[B], QKEY + 1));
    for (to, receives) in [(bad, true), (good, false)] {
        if receives {
            ias.recv(&ends[B], &mems[B], 0, 128, 5);
        }
        ias.a.ep_post_send_ud(ends[A].ep, &[mems[A].seg(0, 8)], &to, None, 4, NONE).unwrap();
        done(ias, &ends[A], IbOperation::SendUd, 4);
        ias.expect_no_event(Duration::from_millis(5), &[(B, ends[B].recv)]);
        if receives {
            // That one is still there for the next.
            let to = address(ias, &ends[B], QKEY);
            ias.a.ep_post_send_ud(ends[A].ep, &[mems[A].seg(0, 8)], &to, None, 4, NONE).unwrap();
            done(ias, &ends[A], IbOperation::SendUd, 4);
            assert_eq!(extended(ias, B, ends[B].recv).cookie, 5);
        }
    }
}

/// No longer than the port's MTU, no more segments than the Endpoint has, a QPN of 24 bits, no
/// fence.
pub fn datagrams_that_cannot_be_are_refused(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = datagrams(ias);
    let to = address(ias, &ends[B], QKEY);
    let attr = ias.a.ep_query(ends[A].ep).unwrap().attr;
    let mut post = |iov: &[LmrTriplet], to: &Destination, flags| {
        ias.a.ep_post_send_ud(ends[A].ep, iov, to, None, 1, flags)
    };
    let half = mems[A].seg(0, attr.max_message_size as usize / 2 + 1);
    refused(post(&[half, half], &to, NONE), DatType::LengthError, DatSubtype::None);
    let many = vec![mems[A].seg(0, 1); usize::from(attr.max_request_iov) + 1];
    refused(post(&many, &to, NONE), BAD, DatSubtype::InvalidArg2);
    let nobody = Destination { qpn: 1 << 24, ..to };
    refused(
        post(&[mems[A].seg(0, 8)], &nobody, NONE),
        DatType::InvalidAddress,
        DatSubtype::AddressMalformed,
    );
    let fence = CompletionFlags::BARRIER_FENCE;
    refused(post(&[mems[A].seg(0, 8)], &to, fence), BAD, DatSubtype::InvalidArg6);
}

/// Disconnect flushes its receives and ends it; a reset opens it again.
pub fn an_endpoint_for_datagrams_ends_and_opens_again(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = datagrams(ias);
    ias.recv(&ends[B], &mems[B], 0, 128, 5);
    ias.disconnect(&ends[B], CloseFlag::Graceful);
    let dto = ias.dto(B, ends[B].recv);
    assert_eq!((dto.cookie, dto.status), (5, DtoStatus::ErrFlushed));
    assert_eq!(ias.event(B, ends[B].conn), Event::Disconnected(ends[B].ep));
    ias.b.ep_reset(ends[B].ep).unwrap();
    assert_eq!(ias.state(&ends[B]), EpState::Connected);
    let to = address(ias, &ends[B], QKEY);
    ias.recv(&ends[B], &mems[B], 0, 128, 6);
    ias.a.ep_post_send_ud(ends[A].ep, &[mems[A].seg(0, 8)], &to, None, 4, NONE).unwrap();
    assert_eq!(extended(ias, B, ends[B].recv).cookie, 6);
}

/// The address handle goes when no send can use it any more.
pub fn address_handles_are_given_back(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = datagrams(ias);
    let to = address(ias, &ends[B], QKEY);
    let held = ias.a.side.hold(true);
    ias.a.ep_post_send_ud(ends[A].ep, &[mems[A].seg(0, 8)], &to, None, 4, NONE).unwrap();
    let early = ias.a.ud_ah_free(ends[A].ep, to).map_err(|error| error.ret());
    ias.a.side.hold(false);
    if held || early.is_err() {
        let connected = DatSubtype::InvalidStateEpConnected;
        refused(early, DatType::InvalidState, connected);
    }
    done(ias, &ends[A], IbOperation::SendUd, 4);
    ias.a.ud_ah_free(ends[A].ep, to).unwrap();
    let of = LookUp::from_raw(0);
    ias.a.ud_cm_free(ends[A].ep, of).unwrap();
    let other = ias.end(A);
    let wrong = ias.a.ud_ah_free(other.ep, to).map_err(|error| error.ret());
    refused(wrong, DatType::ModelNotSupported, DatSubtype::None);
    let wrong = ias.a.ud_cm_free(other.ep, of).map_err(|error| error.ret());
    refused(wrong, DatType::ModelNotSupported, DatSubtype::None);
    let now = ias.now();
    ias.a.ep_free(now, ends[A].ep).unwrap();
    let gone = ias.a.ud_ah_free(ends[A].ep, to).map_err(|error| error.ret());
    refused(gone, DatType::InvalidHandle, DatSubtype::InvalidHandleEp);
}

/// The numbers of the header: operations and the event.
pub fn operations_have_the_numbers_of_the_header(ias: &mut Adapters<'_, impl Side>) {
    let numbers = [
        IbOperation::RdmaWriteImmed,
        IbOperation::RecvRdmaWriteImmed,
        IbOperation::FetchAdd,
        IbOperation::CmpSwap,
        IbOperation::RecvMsgImmed,
        IbOperation::SendUd,
        IbOperation::RecvMsgUd,
        IbOperation::RecvMsgUdImmed,
    ]
    .map(|operation| operation as u8);
    assert_eq!(numbers, [8, 9, 10, 11, 12, 13, 14, 15]);
    let (ends, mems) = rig(ias);
    atomic(ias, &ends[A], false, mems[A].seg(0, 8), mems[B].far(0, 8), NONE).unwrap();
    assert_eq!(ias.event(A, ends[A].request).number(), 0x4_0000);
}

/// The cases.
#[macro_export]
macro_rules! ext_cases {
    ($with:ident) => {
        $with! { ext:
            fetch_and_add_answers_with_what_was_there
            compare_and_swap_swaps_what_it_expects
            atomics_keep_their_place_in_the_order
            atomics_that_cannot_be_are_refused
            an_atomic_without_the_right_is_refused_by_the_peer
            the_right_to_atomics_is_asked_for
            suppressed_atomics_and_immediates_are_silent
            a_write_with_immediate_takes_a_receive
            a_write_with_immediate_is_checked_as_a_write
            extended_posts_on_a_disconnected_endpoint_are_flushed
            an_endpoint_for_datagrams_is_open_from_the_start
            a_datagram_tells_who_sent_it
            a_datagram_that_nobody_takes_is_lost
            datagrams_that_cannot_be_are_refused
            an_endpoint_for_datagrams_ends_and_opens_again
            address_handles_are_given_back
            operations_have_the_numbers_of_the_header
            a_look_up_of_a_service_point_leads_to_its_endpoint
            a_refused_address_has_a_reason
            a_question_is_handed_to_another_service_point
            an_address_that_does_not_come_is_an_error
            many_questions_have_an_answer_each
            questions_and_answers_that_cannot_be_are_refused
            an_endpoint_that_ends_asks_no_more
            a_message_is_measured_by_its_own_receive
        }
    };
}
