//! DTOs that fail, and what becomes of those behind them.

use std::time::Duration;

use dat_core::cm::QpTerms;
use dat_core::provider::Mtu;
use dat_core::{
    CloseFlag, DtoEvent, DtoOperation, DtoStatus, EpState, Evd, Event, MemPriv, RmrTriplet,
};

use super::super::{A, B, Bed, End, LIMIT, NONE, Side};
use super::{Dto, crosses, memory, posted, rig};

/// The next event is the end of that DTO.
#[track_caller]
fn ended(
    bed: &mut Bed<'_, impl Side>,
    side: usize,
    evd: Evd,
    cookie: u64,
    status: DtoStatus,
) -> DtoEvent {
    let dto = bed.dto(side, evd);
    assert_eq!((dto.cookie, dto.status), (cookie, status));
    dto
}

/// The connection broke, at this side.
#[track_caller]
fn broken(bed: &mut Bed<'_, impl Side>, end: &End) {
    bed.broken(end.side, end.conn, end.ep);
    assert_eq!(bed.state(end), EpState::Disconnected);
}

/// ERR_LOCAL_LENGTH at the receiver, ERR_REMOTE_RESPONDER at the sender, and the connection is
/// gone.
pub fn a_message_too_long_for_its_receive_fails_on_both_sides(bed: &mut Bed<'_, impl Side>) {
    let (ends, mems) = rig(bed);
    bed.recv(&ends[B], &mems[B], 0, 63, 1);
    bed.send(&ends[A], &mems[A], 0, 64, 2);
    ended(bed, B, ends[B].recv, 1, DtoStatus::ErrLocalLength);
    ended(bed, A, ends[A].request, 2, DtoStatus::ErrRemoteResponder);
    broken(bed, &ends[B]);
    broken(bed, &ends[A]);
}

/// `lmr_free` succeeds while a receive names the memory; the message that would take it is
/// ERR_LOCAL_PROTECTION.
pub fn memory_freed_under_a_receive_fails_it(bed: &mut Bed<'_, impl Side>) {
    let (ends, mems) = rig(bed);
    let doomed = bed.mem(B, ends[B].pz, 64, MemPriv::ALL);
    bed.recv(&ends[B], &doomed, 0, 64, 1);
    bed.b.lmr_free(doomed.lmr.lmr).unwrap();
    bed.fill(&mems[A], 0, &[7; 64]);
    bed.send(&ends[A], &mems[A], 0, 64, 2);
    ended(bed, B, ends[B].recv, 1, DtoStatus::ErrLocalProtection);
    ended(bed, A, ends[A].request, 2, DtoStatus::ErrRemoteResponder);
    broken(bed, &ends[B]);
    assert_eq!(bed.bytes(&doomed, 0, 64), [0; 64]);
}

/// ERR_REMOTE_ACCESS, the connection breaks on both sides, and not a byte moves.
fn denied(bed: &mut Bed<'_, impl Side>, dto: Dto) {
    for n in 0..4 {
        let ends = bed.connected();
        let rights = if n == 3 { MemPriv::LOCAL_READ | MemPriv::LOCAL_WRITE } else { MemPriv::ALL };
        let mems = [bed.mem(A, ends[A].pz, 64, MemPriv::ALL), bed.mem(B, ends[B].pz, 64, rights)];
        bed.fill(&mems[A], 0, &[1; 64]);
        bed.fill(&mems[B], 0, &[2; 64]);
        let good = mems[B].far(0, 64);
        let far = match n {
            // Another key.
            0 => RmrTriplet { context: good.context ^ 0x5a, ..good },
            // A byte beyond.
            1 => RmrTriplet { addr: good.addr + 1, ..good },
            // A byte before.
            2 => RmrTriplet { addr: good.addr - 1, ..good },
            // No remote privilege was asked for, so there is no context either.
            _ => good,
        };
        posted(dto, bed, &ends[A], &[mems[A].seg(0, 64)], 5, &far);
        let event = ended(bed, A, ends[A].request, 5, DtoStatus::ErrRemoteAccess);
        assert_ne!(event.operation, DtoOperation::Send);
        broken(bed, &ends[A]);
        broken(bed, &ends[B]);
        assert_eq!(bed.bytes(&mems[A], 0, 64), [1; 64]);
        assert_eq!(bed.bytes(&mems[B], 0, 64), [2; 64]);
        for side in [A, B] {
            let now = bed.now();
            bed[side].ep_free(now, ends[side].ep).unwrap();
            bed[side].lmr_free(mems[side].lmr.lmr).unwrap();
        }
    }
}

/// See [`denied`].
pub fn a_write_without_a_key_is_refused_by_the_peer(bed: &mut Bed<'_, impl Side>) {
    denied(bed, Dto::Write);
}

/// See [`denied`].
pub fn a_read_without_a_key_is_refused_by_the_peer(bed: &mut Bed<'_, impl Side>) {
    denied(bed, Dto::Read);
}

/// Connects with little patience, and without anybody who would tell the other side of an end.
fn impatient(bed: &mut Bed<'_, impl Side>) -> [End; 2] {
    let ends = [bed.end(A), bed.end(B)];
    for end in &ends {
        let peer = &ends[1 - end.side];
        let qp = bed[peer.side].ep_query(peer.ep).unwrap().qp;
        let terms = QpTerms {
            remote_qpn: qp.unwrap().number,
            sq_psn: 10 + end.side as u32,
            rq_psn: 11 - end.side as u32,
            mtu: Mtu::B1024,
            responder_resources: 1,
            initiator_depth: 1,
            retry_count: 1,
            rnr_retry: 1,
            ack_timeout: 10,
        };
        let (now, remote) = (bed.now(), bed[peer.side].address());
        bed[end.side].ep_connect_direct(now, end.ep, remote, &terms, LIMIT).unwrap();
    }
    for end in &ends {
        assert_eq!(bed.event(end.side, end.conn), Event::Established(end.ep));
    }
    ends
}

/// ERR_TRANSPORT: nobody acknowledges.
pub fn a_peer_that_is_gone_ends_the_retries(bed: &mut Bed<'_, impl Side>) {
    let ends = impatient(bed);
    let mems = memory(bed, &ends);
    let now = bed.now();
    bed.b.ep_free(now, ends[B].ep).unwrap();
    bed.send(&ends[A], &mems[A], 0, 64, 2);
    ended(bed, A, ends[A].request, 2, DtoStatus::ErrTransport);
    broken(bed, &ends[A]);
}

/// ERR_RECEIVER_NOT_READY: the peer is there and has no receive.
pub fn a_peer_without_receives_ends_the_patience(bed: &mut Bed<'_, impl Side>) {
    let ends = impatient(bed);
    let mems = memory(bed, &ends);
    bed.send(&ends[A], &mems[A], 0, 64, 2);
    ended(bed, A, ends[A].request, 2, DtoStatus::ErrReceiverNotReady);
    broken(bed, &ends[A]);
}

/// After the first failure every later request of the direction is flushed, in order, then the
/// connection is reported broken.
pub fn what_follows_a_failure_is_flushed_in_order(bed: &mut Bed<'_, impl Side>) {
    for merged in [false, true] {
        let ends = if merged { bed.merged() } else { bed.connected() };
        let mems = memory(bed, &ends);
        bed.recv(&ends[A], &mems[A], 0, 8, 100);
        bed.recv(&ends[A], &mems[A], 0, 8, 101);
        let (iov, far) = ([mems[A].seg(0, 8)], mems[B].far(0, 8));
        let nowhere = RmrTriplet { context: far.context ^ 0xff, ..far };
        // Under one doorbell, so that what follows is there when the failure comes.
        let defer = dat_core::CompletionFlags::DEFER;
        for (cookie, far) in [(0, far), (1, nowhere), (2, far), (3, far)] {
            Dto::Write.post(bed, &ends[A], &iov, cookie, &far, defer).unwrap();
        }
        bed.a.ep_ring(ends[A].ep).unwrap();
        bed.done(&ends[A], DtoOperation::RdmaWrite, 0);
        let (request, recv) = (ends[A].request, ends[A].recv);
        ended(bed, A, request, 1, DtoStatus::ErrRemoteAccess);
        if merged {
            let mut rest: Vec<_> = (0..4).map(|_| bed.dto(A, request)).collect();
            rest.sort_by_key(|dto| dto.operation == DtoOperation::Receive);
            let rest: Vec<_> = rest.iter().map(|dto| (dto.cookie, dto.status)).collect();
            let flushed = DtoStatus::ErrFlushed;
            assert_eq!(rest, [(2, flushed), (3, flushed), (100, flushed), (101, flushed)]);
        } else {
            for cookie in [2, 3] {
                ended(bed, A, request, cookie, DtoStatus::ErrFlushed);
            }
            for cookie in [100, 101] {
                ended(bed, A, recv, cookie, DtoStatus::ErrFlushed);
            }
        }
        broken(bed, &ends[A]);
        for end in &ends {
            let now = bed.now();
            bed[end.side].ep_free(now, end.ep).unwrap();
            bed[end.side].lmr_free(mems[end.side].lmr.lmr).unwrap();
        }
    }
}

/// Receives that nobody took come back flushed, on both sides, in the order of their posts.
pub fn a_disconnect_flushes_receives_in_order(bed: &mut Bed<'_, impl Side>) {
    for flag in [CloseFlag::Abrupt, CloseFlag::Graceful] {
        let (ends, mems) = rig(bed);
        for end in &ends {
            for cookie in 0..5 {
                bed.recv(end, &mems[end.side], 0, 8, cookie);
            }
        }
        bed.disconnect(&ends[A], flag);
        for end in &ends {
            for cookie in 0..5 {
                let dto = ended(bed, end.side, end.recv, cookie, DtoStatus::ErrFlushed);
                assert_eq!(dto.operation, DtoOperation::Receive);
            }
            let event = bed.event(end.side, end.conn);
            assert_eq!(event, Event::Disconnected(end.ep));
        }
        for end in &ends {
            let now = bed.now();
            bed[end.side].ep_free(now, end.ep).unwrap();
            bed[end.side].lmr_free(mems[end.side].lmr.lmr).unwrap();
        }
    }
}

/// DISCONNECTED takes every post and flushes it at once, in order: a marker that comes back says
/// that all before it has.
pub fn posts_on_a_disconnected_endpoint_are_flushed(bed: &mut Bed<'_, impl Side>) {
    let (ends, mems) = rig(bed);
    bed.disconnect(&ends[A], CloseFlag::Abrupt);
    assert_eq!(bed.event(A, ends[A].conn), Event::Disconnected(ends[A].ep));
    let (iov, far) = ([mems[A].seg(0, 8)], mems[B].far(0, 8));
    for cookie in 0..3 {
        for dto in Dto::ALL {
            posted(dto, bed, &ends[A], &iov, 10 * cookie + dto as u64, &far);
        }
    }
    for cookie in 0..3 {
        for dto in [Dto::Send, Dto::Write, Dto::Read] {
            let expected = 10 * cookie + dto as u64;
            ended(bed, A, ends[A].request, expected, DtoStatus::ErrFlushed);
        }
        let expected = 10 * cookie + Dto::Recv as u64;
        ended(bed, A, ends[A].recv, expected, DtoStatus::ErrFlushed);
    }
    // A suppressed one is flushed as loudly: it did not succeed.
    let silent = dat_core::CompletionFlags::SUPPRESS;
    Dto::Send.post(bed, &ends[A], &iov, 99, &far, silent).unwrap();
    ended(bed, A, ends[A].request, 99, DtoStatus::ErrFlushed);
}

/// DISCONNECT_PENDING: a receive is legal in every state, and goes the way of the others.
pub fn receives_posted_while_draining_are_flushed(bed: &mut Bed<'_, impl Side>) {
    let (ends, mems) = rig(bed);
    bed.send(&ends[A], &mems[A], 0, 8, 1);
    bed.disconnect(&ends[A], CloseFlag::Graceful);
    assert_eq!(bed.state(&ends[A]), EpState::DisconnectPending);
    bed.recv(&ends[A], &mems[A], 0, 8, 2);
    bed.recv(&ends[B], &mems[B], 0, 8, 3);
    assert_eq!(bed.done(&ends[A], DtoOperation::Send, 1), 8);
    ended(bed, A, ends[A].recv, 2, DtoStatus::ErrFlushed);
    assert_eq!(bed.event(A, ends[A].conn), Event::Disconnected(ends[A].ep));
}

/// On one Event Dispatcher for everything the disconnect is the last word: successes, then flushes,
/// then the end.
pub fn successes_come_before_the_end_of_a_merged_dispatcher(bed: &mut Bed<'_, impl Side>) {
    let ends = bed.merged();
    let mems = memory(bed, &ends);
    for cookie in 0..3 {
        bed.recv(&ends[B], &mems[B], 0, 8, cookie);
    }
    for cookie in 0..2 {
        bed.send(&ends[A], &mems[A], 0, 8, cookie);
    }
    bed.disconnect(&ends[A], CloseFlag::Graceful);
    let evd = ends[B].conn;
    for cookie in 0..2 {
        ended(bed, B, evd, cookie, DtoStatus::Success);
    }
    ended(bed, B, evd, 2, DtoStatus::ErrFlushed);
    assert_eq!(bed.event(B, evd), Event::Disconnected(ends[B].ep));
    for cookie in 0..2 {
        ended(bed, A, ends[A].conn, cookie, DtoStatus::Success);
    }
    assert_eq!(bed.event(A, ends[A].conn), Event::Disconnected(ends[A].ep));
    bed.quiet(Duration::from_millis(5), &[(A, ends[A].conn), (B, evd)]);
}

/// Completions that nobody dequeued before a reset are of another life: they never come, and the
/// new life starts clean.
pub fn nothing_of_before_a_reset_comes_after_it(bed: &mut Bed<'_, impl Side>) {
    let (ends, mems) = rig(bed);
    for cookie in 0..4 {
        bed.recv(&ends[A], &mems[A], 0, 16, cookie);
        bed.recv(&ends[B], &mems[B], 0, 16, cookie);
        bed.send(&ends[A], &mems[A], 0, 16, cookie);
    }
    bed.pass(Duration::from_millis(5));
    bed.disconnect(&ends[A], CloseFlag::Abrupt);
    for end in &ends {
        assert_eq!(bed.event(end.side, end.conn), Event::Disconnected(end.ep));
        bed[end.side].ep_reset(end.ep).unwrap();
        assert_eq!(bed.state(end), EpState::Unconnected);
        super::idle(bed, end);
    }
    bed.quiet(
        Duration::from_millis(5),
        &[(A, ends[A].recv), (A, ends[A].request), (B, ends[B].recv)],
    );
    bed.connect(&ends[A], &ends[B]);
    crosses(bed, &ends, &mems);
    let _ = NONE;
}
