//! Cases of the counters: dat_query_counters, dat_print_counters, dat_start_counters,
//! dat_stop_counters.
//!
//! Length: three levels of counters that share their few words.

use std::time::Duration;

use dat_core::{
    CloseFlag, CompletionFlags, CounterType, DatSubtype, DatType, DtoOperation, DtoStatus,
    EpCounter, Evd, EvdCounter, EvdFlags, Event, IaCounter, MemPriv, PspFlag, RmrTriplet,
};

use super::{A, Adapters, B, End, LIMIT, Mem, NONE, Side, refused};

#[track_caller]
fn ia(ias: &mut Adapters<'_, impl Side>, side: usize, counter: IaCounter) -> u64 {
    ias[side].ia_query_counter(counter, false).unwrap()
}

#[track_caller]
fn ep(ias: &mut Adapters<'_, impl Side>, end: &End, counter: EpCounter) -> u64 {
    ias[end.side].ep_query_counter(end.ep, counter, false).unwrap()
}

#[track_caller]
fn evd(ias: &mut Adapters<'_, impl Side>, side: usize, evd: Evd, counter: EvdCounter) -> u64 {
    ias[side].evd_query_counter(evd, counter, false).unwrap()
}

#[track_caller]
fn rig(ias: &mut Adapters<'_, impl Side>) -> ([End; 2], [Mem; 2]) {
    let ends = ias.connected();
    let rights = MemPriv::ALL | MemPriv::REMOTE_ATOMIC;
    let mems = [A, B].map(|side| ias.mem(side, ends[side].pz, 4096, rights));
    (ends, mems)
}

/// 85, 24 and 10, with the header's names.
pub fn there_are_as_many_as_the_header_has(ias: &mut Adapters<'_, impl Side>) {
    let end = ias.end(A);
    assert_eq!(ias.a.ia_query_counters(false).unwrap().len(), 85);
    assert_eq!(ias.a.ep_query_counters(end.ep, false).unwrap(), [0; 24]);
    assert_eq!(ias.a.evd_query_counters(end.recv, false).unwrap().len(), 10);
    for (at, name) in
        [(0, "PZ_CREATE"), (26, "CM_LISTEN"), (67, "LNK_ERR_RCV"), (84, "DIAG_ERR_SQ_TREE")]
    {
        assert_eq!(IaCounter::ALL[at].name(), name);
    }
    assert_eq!(
        (EpCounter::ALL[0].name(), EpCounter::ALL[23].name()),
        ("CONNECT", "RECV_RDMA_IMM_DATA")
    );
    assert_eq!((EvdCounter::ALL[0].name(), EvdCounter::ALL[9].name()), ("WAIT", "DTO_CALLBACK"));
}

/// Every kind of object: made and freed; what was refused does not count.
pub fn objects_are_counted_as_they_come_and_go(ias: &mut Adapters<'_, impl Side>) {
    let before = ias.a.ia_query_counters(false).unwrap();
    let end = ias.end(A);
    let mem = ias.mem(A, end.pz, 64, MemPriv::ALL);
    let rmr = ias.a.rmr_create(end.pz).unwrap();
    let point = ias.listen(A);
    let cr = ias.a.evd_create(8, EvdFlags::CR).unwrap();
    let (any, _) = ias.a.psp_create_any(cr, PspFlag::Consumer).unwrap();
    assert!(ias.a.pz_free(end.pz).is_err());
    let made = ias.a.ia_query_counters(false).unwrap();
    ias.a.rmr_free(rmr).unwrap();
    ias.a.lmr_free(mem.lmr.lmr).unwrap();
    let now = ias.now();
    ias.a.ep_free(now, end.ep).unwrap();
    ias.a.psp_free(point.psp).unwrap();
    ias.a.psp_free(any).unwrap();
    for evd in [end.recv, end.request, end.conn, point.evd, cr] {
        ias.a.evd_free(evd).unwrap();
    }
    ias.a.pz_free(end.pz).unwrap();
    let freed = ias.a.ia_query_counters(false).unwrap();
    for (create, free, count) in [
        (IaCounter::PzCreate, Some(IaCounter::PzFree), 1),
        (IaCounter::LmrCreate, Some(IaCounter::LmrFree), 1),
        (IaCounter::RmrCreate, Some(IaCounter::RmrFree), 1),
        (IaCounter::EpCreate, Some(IaCounter::EpFree), 1),
        (IaCounter::EvdCreate, Some(IaCounter::EvdFree), 5),
        (IaCounter::PspCreate, None, 1),
        (IaCounter::PspCreateAny, None, 1),
        (IaCounter::CmListen, None, 2),
    ] {
        let at = create as usize;
        assert_eq!(made[at] - before[at], count, "{}", create.name());
        if let Some(free) = free {
            let at = free as usize;
            assert_eq!(
                (made[at] - before[at], freed[at] - made[at]),
                (0, count),
                "{}",
                free.name()
            );
        }
    }
    let at = IaCounter::PspFree as usize;
    assert_eq!(freed[at] - made[at], 2);
}

/// Reserved and common service points, and Shared Receive Queues.
pub fn rsps_and_srqs_are_counted(ias: &mut Adapters<'_, impl Side>) {
    let end = ias.end(A);
    let cr = ias.a.evd_create(8, EvdFlags::CR).unwrap();
    let before = ias.a.ia_query_counters(false).unwrap();
    let counted = |ias: &mut Adapters<'_, _>, counter: IaCounter| {
        ia(ias, A, counter) - before[counter as usize]
    };
    let qualifier = ias.free_qualifier();
    let rsp = ias.a.rsp_create(qualifier, Some(end.ep), cr).unwrap();
    assert!(ias.a.rsp_create(qualifier, Some(end.ep), cr).is_err());
    let attr = dat_core::SrqAttr { max_recv_dtos: 4, max_recv_iov: 1, low_watermark: 0 };
    let srq = ias.a.srq_create(end.pz, &attr).unwrap();
    let other = ias.a.srq_create(end.pz, &attr).unwrap();
    for (counter, count) in [
        (IaCounter::RspCreate, 1),
        (IaCounter::RspFree, 0),
        (IaCounter::CmListen, 1),
        (IaCounter::PspCreate, 0),
        (IaCounter::SrqCreate, 2),
        (IaCounter::SrqFree, 0),
    ] {
        assert_eq!(counted(ias, counter), count, "{}", counter.name());
    }
    let now = ias.now();
    ias.a.rsp_free(now, rsp).unwrap();
    ias.a.srq_free(srq).unwrap();
    ias.a.srq_free(other).unwrap();
    for (counter, count) in
        [(IaCounter::RspCreate, 1), (IaCounter::RspFree, 1), (IaCounter::SrqFree, 2)]
    {
        assert_eq!(counted(ias, counter), count, "{}", counter.name());
    }
}

/// Both sides of a connection, message by message.
pub fn connection_messages_are_counted_by_kind(ias: &mut Adapters<'_, impl Side>) {
    let ends = ias.connected();
    ias.disconnect(&ends[A], CloseFlag::Abrupt);
    for end in &ends {
        assert_eq!(ias.event(end.side, end.conn), Event::Disconnected(end.ep));
    }
    ias.until(|ias| (ia(ias, A, IaCounter::CmDrepRx) > 0).then_some(()));
    for (side, counter) in [
        (A, IaCounter::CmReqTx),
        (B, IaCounter::CmReqRx),
        (B, IaCounter::CmRepTx),
        (A, IaCounter::CmRepRx),
        (A, IaCounter::CmRtuTx),
        (A, IaCounter::CmActiveEst),
        (B, IaCounter::CmPassiveEst),
        (B, IaCounter::SpCr),
        (B, IaCounter::SpCrAccepted),
        (A, IaCounter::CmDreqTx),
        (B, IaCounter::CmDreqRx),
        (B, IaCounter::CmDrepTx),
        (A, IaCounter::CmDrepRx),
    ] {
        let counted = ia(ias, side, counter);
        // A hurried side may repeat a message before the answer has come.
        let again = ias.hurried && counted > 1;
        assert!(counted == 1 || again, "side {side}: {} {counted}", counter.name());
    }
    for counter in [IaCounter::CmPassiveEst, IaCounter::SpCr, IaCounter::CmReqRx, IaCounter::CmErr]
    {
        assert_eq!(ia(ias, A, counter), 0, "{}", counter.name());
    }
}

/// A consumer's rejection is one kind, a qualifier without a listener another.
pub fn rejections_are_counted_by_who_rejects(ias: &mut Adapters<'_, impl Side>) {
    let end = ias.end(A);
    let point = ias.listen(B);
    ias.ask(&end, point.qualifier, LIMIT, b"");
    let cr = ias.request(&point);
    let now = ias.now();
    ias.b.cr_reject(now, cr, b"").unwrap();
    assert_eq!(ias.event(A, end.conn), Event::PeerRejected(end.ep));
    assert_eq!(ia(ias, B, IaCounter::CmUserRejTx), 1);
    assert_eq!(ia(ias, A, IaCounter::CmUserRejRx), 1);
    assert_eq!(ia(ias, B, IaCounter::SpCrRejected), 1);
    let other = ias.end(A);
    let nobody = ias.free_qualifier();
    ias.ask(&other, nobody, LIMIT, b"");
    assert_eq!(ias.event(A, other.conn), Event::NonPeerRejected(other.ep));
    assert_eq!(ia(ias, B, IaCounter::CmErrRejTx), 1);
    assert_eq!(ia(ias, A, IaCounter::CmErrRejRx), 1);
    assert_eq!(ia(ias, A, IaCounter::CmErrRefused), 1);
    assert_eq!(ia(ias, A, IaCounter::CmUserRejRx), 1);
}

/// Each post and its bytes, each arrival and its bytes; what is refused does not count.
pub fn dtos_are_counted_with_their_bytes(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = rig(ias);
    let [a, b] = ends;
    for n in 0..3 {
        ias.recv(&b, &mems[B], 0, 100, n);
        ias.send(&a, &mems[A], 0, 10, n);
        ias.done(&b, DtoOperation::Receive, n);
        ias.done(&a, DtoOperation::Send, n);
    }
    let two = [mems[A].seg(0, 20), mems[A].seg(40, 30)];
    let far = mems[B].far(0, 50);
    ias.a.ep_post_rdma_write(a.ep, &two, 1, &far, NONE).unwrap();
    ias.done(&a, DtoOperation::RdmaWrite, 1);
    ias.a.ep_post_rdma_read(a.ep, &[mems[A].seg(0, 40)], 1, &mems[B].far(0, 40), NONE).unwrap();
    ias.done(&a, DtoOperation::RdmaRead, 1);
    let long = [mems[A].seg(0, 4096), mems[A].seg(0, 1)];
    assert!(ias.a.ep_post_rdma_write(a.ep, &long, 1, &far, NONE).is_err());
    for (end, counter, count, bytes) in [
        (&a, EpCounter::PostSend, 3, 30),
        (&b, EpCounter::PostRecv, 3, 300),
        (&b, EpCounter::Recv, 3, 30),
        (&a, EpCounter::PostWrite, 1, 50),
        (&a, EpCounter::PostRead, 1, 40),
        (&b, EpCounter::PostSend, 0, 0),
        (&a, EpCounter::Recv, 0, 0),
    ] {
        let all = ias[end.side].ep_query_counters(end.ep, false).unwrap();
        let at = counter as usize;
        assert_eq!((all[at], all[at + 1]), (count, bytes), "{}", counter.name());
    }
    // Suppressed ones, and those of a list, count as any.
    let list =
        [dat_core::Rdma { cookie: 1, local: mems[A].seg(0, 8), remote: mems[B].far(0, 8) }; 5];
    ias.a.ep_post_rdma_writes(a.ep, &list, CompletionFlags::SUPPRESS).unwrap();
    ias.a.ep_post_rdma_writes(a.ep, &list, NONE).unwrap();
    for _ in 0..5 {
        ias.done(&a, DtoOperation::RdmaWrite, 1);
    }
    assert_eq!(ep(ias, &a, EpCounter::PostWrite), 11);
    assert_eq!(ep(ias, &a, EpCounter::PostWriteData), 50 + 80);
}

/// Those of the extensions have counters of their own.
pub fn extended_dtos_have_their_own_counters(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = rig(ias);
    let (here, far) = (mems[A].seg(0, 8), mems[B].far(0, 8));
    ias.a.ep_post_fetch_add(ends[A].ep, 1, &here, 1, &far, NONE).unwrap();
    ias.a.ep_post_cmp_swap(ends[A].ep, 1, 2, &here, 1, &far, NONE).unwrap();
    ias.recv(&ends[B], &mems[B], 64, 64, 1);
    ias.a.ep_post_rdma_write_immed(ends[A].ep, &[here], 1, &mems[B].far(128, 8), 7, NONE).unwrap();
    ias.event(B, ends[B].recv);
    for _ in 0..3 {
        ias.event(A, ends[A].request);
    }
    for (end, counter, count) in [
        (&ends[A], EpCounter::PostFetchAdd, 1),
        (&ends[A], EpCounter::PostCmpSwap, 1),
        (&ends[A], EpCounter::PostWriteImm, 1),
        (&ends[A], EpCounter::PostWriteImmData, 8),
        (&ends[B], EpCounter::RecvRdmaImm, 1),
        (&ends[B], EpCounter::RecvRdmaImmData, 8),
        (&ends[A], EpCounter::PostWrite, 0),
        (&ends[B], EpCounter::Recv, 0),
    ] {
        assert_eq!(ep(ias, end, counter), count, "{}", counter.name());
    }
}

/// Connects and disconnects, over a reset; a new Endpoint starts at 0 in whichever slot.
pub fn an_endpoints_counters_last_as_long_as_it(ias: &mut Adapters<'_, impl Side>) {
    let ends = ias.connected();
    ias.disconnect(&ends[A], CloseFlag::Abrupt);
    for end in &ends {
        assert_eq!(ias.event(end.side, end.conn), Event::Disconnected(end.ep));
        ias[end.side].ep_reset(end.ep).unwrap();
    }
    ias.connect(&ends[A], &ends[B]);
    assert_eq!(ep(ias, &ends[A], EpCounter::Connect), 2);
    assert_eq!(ep(ias, &ends[A], EpCounter::Disconnect), 1);
    assert_eq!(ep(ias, &ends[B], EpCounter::Connect), 0);
    let now = ias.now();
    ias.a.ep_free(now, ends[A].ep).unwrap();
    let gone = ias.a.ep_query_counters(ends[A].ep, false).map_err(|error| error.ret());
    refused(gone, DatType::InvalidHandle, DatSubtype::InvalidHandleEp);
    let new = ias.end(A);
    assert_eq!(ias.a.ep_query_counters(new.ep, true).unwrap(), [0; 24]);
}

/// Flushed and failed messages did not arrive.
pub fn only_what_arrives_well_counts_as_received(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = rig(ias);
    for cookie in 0..2 {
        ias.recv(&ends[B], &mems[B], 0, 8, cookie);
    }
    ias.send(&ends[A], &mems[A], 0, 9, 1);
    assert_eq!(ias.dto(B, ends[B].recv).status, DtoStatus::ErrLocalLength);
    assert_eq!(ias.dto(B, ends[B].recv).status, DtoStatus::ErrFlushed);
    assert_eq!(ep(ias, &ends[B], EpCounter::PostRecv), 2);
    assert_eq!(ep(ias, &ends[B], EpCounter::Recv), 0);
    assert_eq!(ep(ias, &ends[B], EpCounter::RecvData), 0);
}

/// Dequeues, found and not; looks at the completion queue; connection events.
pub fn an_event_dispatcher_counts_its_dequeues(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = rig(ias);
    let [recv, conn] = [ends[B].recv, ends[B].conn];
    ias.b.evd_query_counters(recv, true).unwrap();
    for n in 0..4 {
        ias.recv(&ends[B], &mems[B], 0, 8, n);
        ias.send(&ends[A], &mems[A], 0, 8, n);
        ias.done(&ends[B], DtoOperation::Receive, n);
    }
    for _ in 0..3 {
        assert_eq!(ias.look(B, recv), None);
    }
    let all = ias.b.evd_query_counters(recv, false).unwrap();
    let of = |counter: EvdCounter| all[counter as usize];
    assert_eq!(of(EvdCounter::DequeueFound), 4);
    assert!(of(EvdCounter::DequeueNotFound) >= 3);
    assert_eq!(
        of(EvdCounter::Dequeue),
        of(EvdCounter::DequeueFound) + of(EvdCounter::DequeueNotFound)
    );
    assert_eq!(of(EvdCounter::DequeuePollFound), 4);
    assert_eq!(evd(ias, B, conn, EvdCounter::ConnCallback), 1);
    assert_eq!(evd(ias, B, conn, EvdCounter::DequeueFound), 1);
    assert_eq!(evd(ias, B, conn, EvdCounter::DequeuePoll), 0);
    // Flushes are events, and no completions of the queue; a suppressed success is one, and no
    // event.
    ias.recv(&ends[B], &mems[B], 0, 8, 9);
    ias.disconnect(&ends[B], CloseFlag::Abrupt);
    ias.event(B, conn);
    assert_eq!(ias.dto(B, recv).status, DtoStatus::ErrFlushed);
    assert_eq!(evd(ias, B, recv, EvdCounter::DequeueFound), 5);
    assert_eq!(evd(ias, B, conn, EvdCounter::ConnCallback), 2);
}

/// A request to be woken, and that it was.
pub fn an_event_dispatcher_counts_what_wakes(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = rig(ias);
    let recv = ends[B].recv;
    ias.b.evd_arm(recv, false).unwrap();
    assert_eq!(evd(ias, B, recv, EvdCounter::WaitNotify), 1);
    ias.recv(&ends[B], &mems[B], 0, 8, 1);
    ias.send(&ends[A], &mems[A], 0, 8, 1);
    ias.until(|ias| (evd(ias, B, recv, EvdCounter::DtoCallback) == 1).then_some(()));
}

/// A wait that finds its event at once has not slept; one that has to look twice has, however it
/// ends.
pub fn waits_count_and_those_that_sleep(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = rig(ias);
    let recv = ends[B].recv;
    let counted = |ias: &mut Adapters<'_, _>| {
        [EvdCounter::Wait, EvdCounter::WaitBlocked].map(|counter| evd(ias, B, recv, counter))
    };
    let now = ias.now();
    refused(
        ias.b.evd_wait(now, recv, LIMIT, 0).map_err(|e| e.ret()),
        DatType::InvalidParameter,
        DatSubtype::InvalidArg3,
    );
    assert_eq!(counted(ias), [0, 0]);
    for cookie in 1..3 {
        ias.recv(&ends[B], &mems[B], 0, 8, cookie);
    }
    // Nothing is there yet: this one sleeps.
    let now = ias.now();
    let mut wait = ias.b.evd_wait(now, recv, LIMIT, 1).unwrap();
    assert!(ias.b.evd_waited(now, &mut wait).is_pending());
    assert!(ias.b.evd_waited(now, &mut wait).is_pending());
    ias.send(&ends[A], &mems[A], 0, 8, 1);
    let woken = ias.until(|ias| {
        let now = ias.now();
        match ias.b.evd_waited(now, &mut wait) {
            core::task::Poll::Ready(found) => Some(found),
            core::task::Poll::Pending => None,
        }
    });
    assert!(woken.is_ok());
    assert_eq!(counted(ias), [1, 1]);
    // This one finds its event.
    ias.send(&ends[A], &mems[A], 0, 8, 2);
    ias.until(|ias| (ias.b.evd_more(recv) == Ok(1)).then_some(()));
    let now = ias.now();
    let mut wait = ias.b.evd_wait(now, recv, LIMIT, 1).unwrap();
    assert!(ias.b.evd_waited(now, &mut wait).is_ready());
    assert_eq!(counted(ias), [2, 1]);
    // And one of no time looks once.
    let now = ias.now();
    let mut wait = ias.b.evd_wait(now, recv, Duration::ZERO, 1).unwrap();
    assert!(ias.b.evd_waited(now, &mut wait).is_ready());
    assert_eq!(counted(ias), [3, 1]);
}

/// A reset returns the counts and starts over: of all or of one.
pub fn a_reset_starts_over(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = rig(ias);
    let a = ends[A];
    ias.recv(&ends[B], &mems[B], 0, 8, 1);
    ias.send(&a, &mems[A], 0, 8, 1);
    ias.done(&a, DtoOperation::Send, 1);
    let counters = ias.a.ep_query_counters(a.ep, true).unwrap();
    assert_eq!(counters[EpCounter::PostSend as usize], 1);
    assert_eq!(ias.a.ep_query_counters(a.ep, false).unwrap(), [0; 24]);
    assert!(ia(ias, A, IaCounter::PzCreate) > 0);
    assert_eq!(ias.a.ia_query_counter(IaCounter::PzCreate, true).unwrap(), 1);
    assert_eq!(ia(ias, A, IaCounter::PzCreate), 0);
    assert_eq!(ia(ias, A, IaCounter::EpCreate), 1);
    ias.a.ia_query_counters(true).unwrap();
    assert_eq!(ias.a.ia_query_counters(false).unwrap(), [0; 85]);
    assert!(evd(ias, A, a.request, EvdCounter::Dequeue) > 0);
    ias.a.evd_query_counter(a.request, EvdCounter::DequeueFound, true).unwrap();
    assert_eq!(evd(ias, A, a.request, EvdCounter::DequeueFound), 0);
    assert_eq!(evd(ias, A, a.request, EvdCounter::DequeuePollFound), 1);
    ias.a.evd_query_counters(a.request, true).unwrap();
    assert_eq!(ias.a.evd_query_counters(a.request, false).unwrap(), [0; 10]);
}

/// A type of counters that is stopped stands still, and starts from 0.
pub fn counters_of_a_type_start_and_stop(ias: &mut Adapters<'_, impl Side>) {
    let first = ias.connected();
    assert_eq!(ia(ias, A, IaCounter::CmReqTx), 1);
    ias.a.ia_stop_counters(CounterType::Cm).unwrap();
    ias.a.ia_stop_counters(CounterType::Cm).unwrap();
    let _second = ias.connected();
    assert_eq!(ia(ias, A, IaCounter::CmReqTx), 1);
    // Others go on, and the other side does.
    assert_eq!(ia(ias, A, IaCounter::EpCreate), 2);
    assert_eq!(ia(ias, B, IaCounter::CmReqRx), 2);
    ias.a.ia_start_counters(CounterType::Cm).unwrap();
    assert_eq!(ia(ias, A, IaCounter::CmReqTx), 0);
    ias.disconnect(&first[A], CloseFlag::Abrupt);
    ias.event(A, first[A].conn);
    assert_eq!(ia(ias, A, IaCounter::CmDreqTx), 1);
}

/// Each type by its own name, and no other call in its place: what is stopped stands still, what is
/// not goes on.
pub fn fault_42_each_type_of_counters_has_its_own_calls(ias: &mut Adapters<'_, impl Side>) {
    let types = [CounterType::Cm, CounterType::Link, CounterType::Diag];
    let counters = [IaCounter::CmReqTx, IaCounter::LnkErrRcv, IaCounter::DiagErrSqRae];
    for (at, of) in types.into_iter().enumerate() {
        for other in types {
            ias.a.ia_start_counters(other).unwrap();
        }
        connect_and_be_refused(ias);
        assert_eq!(counters.map(|counter| ia(ias, A, counter)), [1, 0, 1]);
        ias.a.ia_stop_counters(of).unwrap();
        connect_and_be_refused(ias);
        let mut counted = [2, 0, 2];
        counted[at] = counted[at].min(1);
        assert_eq!(counters.map(|counter| ia(ias, A, counter)), counted, "{of:?}");
        ias.a.ia_start_counters(of).unwrap();
        counted[at] = 0;
        assert_eq!(counters.map(|counter| ia(ias, A, counter)), counted, "{of:?}");
    }
}

/// One connection more, and one refused access; what was needed for it is gone afterwards.
#[track_caller]
fn connect_and_be_refused(ias: &mut Adapters<'_, impl Side>) {
    let ends = ias.connected();
    let mem = ias.mem(A, ends[A].pz, 64, MemPriv::ALL);
    let wrong = RmrTriplet { addr: 0x1000, len: 8, context: 0xffff_ff00 };
    ias.a.ep_post_rdma_write(ends[A].ep, &[mem.seg(0, 8)], 1, &wrong, NONE).unwrap();
    ias.dto(A, ends[A].request);
    for end in &ends {
        ias.event(end.side, end.conn);
        let now = ias.now();
        ias[end.side].ep_free(now, end.ep).unwrap();
        for evd in [end.recv, end.request, end.conn] {
            ias[end.side].evd_free(evd).unwrap();
        }
    }
    ias.a.lmr_free(mem.lmr.lmr).unwrap();
}

/// Failures that the transport counts, at both ends.
pub fn the_device_counts_what_the_transport_refuses(ias: &mut Adapters<'_, impl Side>) {
    for side in [A, B] {
        ias[side].ia_start_counters(CounterType::Diag).unwrap();
    }
    let (ends, mems) = rig(ias);
    let far = mems[B].far(0, 8);
    let wrong = RmrTriplet { context: far.context ^ 0xff, ..far };
    ias.a.ep_post_rdma_write(ends[A].ep, &[mems[A].seg(0, 8)], 1, &wrong, NONE).unwrap();
    assert_eq!(ias.dto(A, ends[A].request).status, DtoStatus::ErrRemoteAccess);
    assert_eq!(ia(ias, A, IaCounter::DiagErrSqRae), 1);
    assert_eq!(ia(ias, B, IaCounter::DiagErrRqRae), 1);
    assert_eq!(ia(ias, B, IaCounter::DiagErrSqRae), 0);
    for counter in [IaCounter::DiagErrSqTree, IaCounter::LnkErrRcv, IaCounter::MemAlloc] {
        assert_eq!(ia(ias, A, counter), 0, "{}", counter.name());
    }
}

/// A line for each counter that is not 0.
pub fn printed_counters_are_lines_of_names_and_numbers(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = rig(ias);
    ias.recv(&ends[A], &mems[A], 0, 1234, 1);
    let mut text = String::new();
    ias.a.ep_print_counters(ends[A].ep, &mut text, false).unwrap();
    let lines: Vec<Vec<_>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines, [["CONNECT", "1"], ["POST_RECV", "1"], ["POST_RECV_DATA", "1234"]]);
    text.clear();
    ias.a.ia_print_counters(&mut text, true).unwrap();
    assert!(text.lines().any(|line| line.starts_with("EP_CREATE ") && line.ends_with(" 1")));
    text.clear();
    ias.a.ia_print_counters(&mut text, false).unwrap();
    assert_eq!(text, "");
    ias.a.evd_print_counters(ends[A].conn, &mut text, false).unwrap();
    assert!(text.contains("CONN_CALLBACK"));
}

/// Halves: an Endpoint is read while they are out but not reset, an Event Dispatcher is counted by
/// its reaper.
pub fn counters_with_poster_and_reaper_out(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = rig(ias);
    let a = ends[A];
    let mut poster = ias.a.ep_take_poster(a.ep).unwrap();
    ias.recv(&ends[B], &mems[B], 0, 8, 1);
    poster.post_send(&[mems[A].seg(0, 8)], 1, NONE).unwrap();
    assert_eq!(ep(ias, &a, EpCounter::PostSend), 1);
    let ret = ias.a.ep_query_counters(a.ep, true).map_err(|error| error.ret());
    refused(ret, DatType::InvalidState, DatSubtype::InvalidStateEpProviderControl);
    assert_eq!(ep(ias, &a, EpCounter::PostSend), 1);
    ias.a.ep_return_poster(poster).unwrap();
    ias.done(&a, DtoOperation::Send, 1);
    let reaper = ias.a.evd_take_reaper(a.request).unwrap();
    let ret = ias.a.evd_query_counters(a.request, false).map_err(|error| error.ret());
    refused(ret, DatType::InvalidState, DatSubtype::InvalidStateEvdWaiter);
    ias.a.evd_return_reaper(reaper).unwrap();
    assert_eq!(evd(ias, A, a.request, EvdCounter::DequeueFound), 1);
}

/// The cases.
#[macro_export]
macro_rules! counters_cases {
    ($with:ident) => {
        $with! { counters:
            there_are_as_many_as_the_header_has
            objects_are_counted_as_they_come_and_go
            rsps_and_srqs_are_counted
            connection_messages_are_counted_by_kind
            rejections_are_counted_by_who_rejects
            dtos_are_counted_with_their_bytes
            extended_dtos_have_their_own_counters
            an_endpoints_counters_last_as_long_as_it
            only_what_arrives_well_counts_as_received
            an_event_dispatcher_counts_its_dequeues
            an_event_dispatcher_counts_what_wakes
            waits_count_and_those_that_sleep
            a_reset_starts_over
            counters_of_a_type_start_and_stop
            fault_42_each_type_of_counters_has_its_own_calls
            the_device_counts_what_the_transport_refuses
            printed_counters_are_lines_of_names_and_numbers
            counters_with_poster_and_reaper_out
        }
    };
}
