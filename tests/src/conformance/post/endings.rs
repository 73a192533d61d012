//! DTOs that fail, and what becomes of those behind them.

use std::time::Duration;

use dat_core::cm::QpTerms;
use dat_core::provider::{Class, Mtu};
use dat_core::{
    CloseFlag, DtoEvent, DtoOperation, DtoStatus, EpState, Evd, Event, MemPriv, RmrTriplet,
};

use super::super::{A, Adapters, B, End, LIMIT, NONE, Side};
use super::{Dto, crosses, memory, posted, rig};

/// The next event is the end of that DTO.
#[track_caller]
fn ended(
    ias: &mut Adapters<'_, impl Side>,
    side: usize,
    evd: Evd,
    cookie: u64,
    status: DtoStatus,
) -> DtoEvent {
    let dto = ias.dto(side, evd);
    assert_eq!((dto.cookie, dto.status), (cookie, status));
    dto
}

/// The connection broke, at this side.
#[track_caller]
fn broken(ias: &mut Adapters<'_, impl Side>, end: &End) {
    ias.broken(end.side, end.conn, end.ep);
    assert_eq!(ias.state(end), EpState::Disconnected);
}

/// ERR_LOCAL_LENGTH at the receiver, ERR_REMOTE_RESPONDER at the sender, and the connection is
/// gone.
pub fn a_message_too_long_for_its_receive_fails_on_both_sides(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = rig(ias);
    ias.recv(&ends[B], &mems[B], 0, 63, 1);
    ias.send(&ends[A], &mems[A], 0, 64, 2);
    ended(ias, B, ends[B].recv, 1, DtoStatus::ErrLocalLength);
    ended(ias, A, ends[A].request, 2, DtoStatus::ErrRemoteResponder);
    broken(ias, &ends[B]);
    broken(ias, &ends[A]);
}

/// `lmr_free` succeeds while a receive names the memory; the message that would take it is
/// ERR_LOCAL_PROTECTION.
pub fn memory_freed_under_a_receive_fails_it(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = rig(ias);
    let doomed = ias.mem(B, ends[B].pz, 64, MemPriv::ALL);
    ias.recv(&ends[B], &doomed, 0, 64, 1);
    ias.b.lmr_free(doomed.lmr.lmr).unwrap();
    ias.fill(&mems[A], 0, &[7; 64]);
    ias.send(&ends[A], &mems[A], 0, 64, 2);
    ended(ias, B, ends[B].recv, 1, DtoStatus::ErrLocalProtection);
    ended(ias, A, ends[A].request, 2, DtoStatus::ErrRemoteResponder);
    broken(ias, &ends[B]);
    assert_eq!(ias.bytes(&doomed, 0, 64), [0; 64]);
}

/// ERR_REMOTE_ACCESS, the connection breaks on both sides, and not a byte moves.
fn denied(ias: &mut Adapters<'_, impl Side>, dto: Dto) {
    for n in 0..4 {
        let ends = ias.connected();
        let rights = if n == 3 { MemPriv::LOCAL_READ | MemPriv::LOCAL_WRITE } else { MemPriv::ALL };
        let mems = [ias.mem(A, ends[A].pz, 64, MemPriv::ALL), ias.mem(B, ends[B].pz, 64, rights)];
        ias.fill(&mems[A], 0, &[1; 64]);
        ias.fill(&mems[B], 0, &[2; 64]);
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
        posted(dto, ias, &ends[A], &[mems[A].seg(0, 64)], 5, &far);
        let event = ended(ias, A, ends[A].request, 5, DtoStatus::ErrRemoteAccess);
        assert_ne!(event.operation, DtoOperation::Send);
        broken(ias, &ends[A]);
        broken(ias, &ends[B]);
        assert_eq!(ias.bytes(&mems[A], 0, 64), [1; 64]);
        assert_eq!(ias.bytes(&mems[B], 0, 64), [2; 64]);
        for side in [A, B] {
            let now = ias.now();
            ias[side].ep_free(now, ends[side].ep).unwrap();
            ias[side].lmr_free(mems[side].lmr.lmr).unwrap();
        }
    }
}

/// See [`denied`].
pub fn a_write_without_a_key_is_refused_by_the_peer(ias: &mut Adapters<'_, impl Side>) {
    denied(ias, Dto::Write);
}

/// See [`denied`].
pub fn a_read_without_a_key_is_refused_by_the_peer(ias: &mut Adapters<'_, impl Side>) {
    denied(ias, Dto::Read);
}

/// Connects with short timeouts, and without a message that would report an end to the other side.
fn impatient(ias: &mut Adapters<'_, impl Side>) -> [End; 2] {
    let ends = [ias.end(A), ias.end(B)];
    for end in &ends {
        let peer = &ends[1 - end.side];
        let qp = ias[peer.side].ep_query(peer.ep).unwrap().qp;
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
            class: Class::default(),
        };
        let (now, remote) = (ias.now(), ias[peer.side].address());
        ias[end.side].ep_connect_direct(now, end.ep, remote, &terms, LIMIT).unwrap();
    }
    for end in &ends {
        assert_eq!(ias.event(end.side, end.conn), Event::Established(end.ep));
    }
    ends
}

/// ERR_TRANSPORT: nobody acknowledges.
pub fn a_peer_that_is_gone_ends_the_retries(ias: &mut Adapters<'_, impl Side>) {
    let ends = impatient(ias);
    let mems = memory(ias, &ends);
    let now = ias.now();
    ias.b.ep_free(now, ends[B].ep).unwrap();
    ias.send(&ends[A], &mems[A], 0, 64, 2);
    ended(ias, A, ends[A].request, 2, DtoStatus::ErrTransport);
    broken(ias, &ends[A]);
}

/// ERR_RECEIVER_NOT_READY: the peer is there and has no receive.
pub fn a_peer_without_receives_ends_the_patience(ias: &mut Adapters<'_, impl Side>) {
    let ends = impatient(ias);
    let mems = memory(ias, &ends);
    ias.send(&ends[A], &mems[A], 0, 64, 2);
    ended(ias, A, ends[A].request, 2, DtoStatus::ErrReceiverNotReady);
    broken(ias, &ends[A]);
}

/// After the first failure every later request of the direction is flushed, in order, then the
/// connection is reported broken.
pub fn requests_after_a_failure_are_flushed_in_order(ias: &mut Adapters<'_, impl Side>) {
    for merged in [false, true] {
        let ends = if merged { ias.merged() } else { ias.connected() };
        let mems = memory(ias, &ends);
        ias.recv(&ends[A], &mems[A], 0, 8, 100);
        ias.recv(&ends[A], &mems[A], 0, 8, 101);
        let (iov, far) = ([mems[A].seg(0, 8)], mems[B].far(0, 8));
        let nowhere = RmrTriplet { context: far.context ^ 0xff, ..far };
        // Under one doorbell, so that what follows is there when the failure comes.
        let defer = dat_core::CompletionFlags::DEFER;
        for (cookie, far) in [(0, far), (1, nowhere), (2, far), (3, far)] {
            Dto::Write.post(ias, &ends[A], &iov, cookie, &far, defer).unwrap();
        }
        ias.a.ep_ring(ends[A].ep).unwrap();
        ias.done(&ends[A], DtoOperation::RdmaWrite, 0);
        let (request, recv) = (ends[A].request, ends[A].recv);
        ended(ias, A, request, 1, DtoStatus::ErrRemoteAccess);
        if merged {
            let mut rest: Vec<_> = (0..4).map(|_| ias.dto(A, request)).collect();
            rest.sort_by_key(|dto| dto.operation == DtoOperation::Receive);
            let rest: Vec<_> = rest.iter().map(|dto| (dto.cookie, dto.status)).collect();
            let flushed = DtoStatus::ErrFlushed;
            assert_eq!(rest, [(2, flushed), (3, flushed), (100, flushed), (101, flushed)]);
        } else {
            for cookie in [2, 3] {
                ended(ias, A, request, cookie, DtoStatus::ErrFlushed);
            }
            for cookie in [100, 101] {
                ended(ias, A, recv, cookie, DtoStatus::ErrFlushed);
            }
        }
        broken(ias, &ends[A]);
        for end in &ends {
            let now = ias.now();
            ias[end.side].ep_free(now, end.ep).unwrap();
            ias[end.side].lmr_free(mems[end.side].lmr.lmr).unwrap();
        }
    }
}

/// Receives that nobody took come back flushed, on both sides, in the order of their posts.
pub fn a_disconnect_flushes_receives_in_order(ias: &mut Adapters<'_, impl Side>) {
    for flag in [CloseFlag::Abrupt, CloseFlag::Graceful] {
        let (ends, mems) = rig(ias);
        for end in &ends {
            for cookie in 0..5 {
                ias.recv(end, &mems[end.side], 0, 8, cookie);
            }
        }
        ias.disconnect(&ends[A], flag);
        for end in &ends {
            for cookie in 0..5 {
                let dto = ended(ias, end.side, end.recv, cookie, DtoStatus::ErrFlushed);
                assert_eq!(dto.operation, DtoOperation::Receive);
            }
            let event = ias.event(end.side, end.conn);
            assert_eq!(event, Event::Disconnected(end.ep));
        }
        for end in &ends {
            let now = ias.now();
            ias[end.side].ep_free(now, end.ep).unwrap();
            ias[end.side].lmr_free(mems[end.side].lmr.lmr).unwrap();
        }
    }
}

/// DISCONNECTED takes every post and flushes it at once, in order: a marker that comes back says
/// that all before it has.
pub fn posts_on_a_disconnected_endpoint_are_flushed(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = rig(ias);
    ias.disconnect(&ends[A], CloseFlag::Abrupt);
    assert_eq!(ias.event(A, ends[A].conn), Event::Disconnected(ends[A].ep));
    let (iov, far) = ([mems[A].seg(0, 8)], mems[B].far(0, 8));
    for cookie in 0..3 {
        for dto in Dto::ALL {
            posted(dto, ias, &ends[A], &iov, 10 * cookie + dto as u64, &far);
        }
    }
    for cookie in 0..3 {
        for dto in [Dto::Send, Dto::Write, Dto::Read] {
            let expected = 10 * cookie + dto as u64;
            ended(ias, A, ends[A].request, expected, DtoStatus::ErrFlushed);
        }
        let expected = 10 * cookie + Dto::Recv as u64;
        ended(ias, A, ends[A].recv, expected, DtoStatus::ErrFlushed);
    }
    // A suppressed one is flushed as loudly: it did not succeed.
    let silent = dat_core::CompletionFlags::SUPPRESS;
    Dto::Send.post(ias, &ends[A], &iov, 99, &far, silent).unwrap();
    ended(ias, A, ends[A].request, 99, DtoStatus::ErrFlushed);
}

/// DISCONNECT_PENDING: a receive is legal in every state, and is flushed with the others.
pub fn receives_posted_while_draining_are_flushed(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = rig(ias);
    ias.send(&ends[A], &mems[A], 0, 8, 1);
    ias.disconnect(&ends[A], CloseFlag::Graceful);
    assert_eq!(ias.state(&ends[A]), EpState::DisconnectPending);
    ias.recv(&ends[A], &mems[A], 0, 8, 2);
    ias.recv(&ends[B], &mems[B], 0, 8, 3);
    assert_eq!(ias.done(&ends[A], DtoOperation::Send, 1), 8);
    ended(ias, A, ends[A].recv, 2, DtoStatus::ErrFlushed);
    assert_eq!(ias.event(A, ends[A].conn), Event::Disconnected(ends[A].ep));
}

/// On one Event Dispatcher for everything the disconnect comes last: successes, then flushes,
/// then the end.
pub fn successes_come_before_the_end_of_a_merged_dispatcher(ias: &mut Adapters<'_, impl Side>) {
    let ends = ias.merged();
    let mems = memory(ias, &ends);
    for cookie in 0..3 {
        ias.recv(&ends[B], &mems[B], 0, 8, cookie);
    }
    for cookie in 0..2 {
        ias.send(&ends[A], &mems[A], 0, 8, cookie);
    }
    ias.disconnect(&ends[A], CloseFlag::Graceful);
    let evd = ends[B].conn;
    for cookie in 0..2 {
        ended(ias, B, evd, cookie, DtoStatus::Success);
    }
    ended(ias, B, evd, 2, DtoStatus::ErrFlushed);
    assert_eq!(ias.event(B, evd), Event::Disconnected(ends[B].ep));
    for cookie in 0..2 {
        ended(ias, A, ends[A].conn, cookie, DtoStatus::Success);
    }
    assert_eq!(ias.event(A, ends[A].conn), Event::Disconnected(ends[A].ep));
    ias.expect_no_event(Duration::from_millis(5), &[(A, ends[A].conn), (B, evd)]);
}

/// Completions that nobody dequeued before a reset never come, and the next connection starts
/// clean.
pub fn nothing_of_before_a_reset_comes_after_it(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = rig(ias);
    for cookie in 0..4 {
        ias.recv(&ends[A], &mems[A], 0, 16, cookie);
        ias.recv(&ends[B], &mems[B], 0, 16, cookie);
        ias.send(&ends[A], &mems[A], 0, 16, cookie);
    }
    ias.pass(Duration::from_millis(5));
    ias.disconnect(&ends[A], CloseFlag::Abrupt);
    for end in &ends {
        assert_eq!(ias.event(end.side, end.conn), Event::Disconnected(end.ep));
        ias[end.side].ep_reset(end.ep).unwrap();
        assert_eq!(ias.state(end), EpState::Unconnected);
        super::idle(ias, end);
    }
    ias.expect_no_event(
        Duration::from_millis(5),
        &[(A, ends[A].recv), (A, ends[A].request), (B, ends[B].recv)],
    );
    ias.connect(&ends[A], &ends[B]);
    crosses(ias, &ends, &mems);
    let _ = NONE;
}
