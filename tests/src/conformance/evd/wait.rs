//! dat_evd_wait(3), dat_evd_set_unwaitable(3), dat_evd_clear_unwaitable(3).

use std::task::Poll;
use std::time::Duration;

use dat_core::{
    CloseFlag, CompletionFlags, DatReturn, DatSubtype, DatType, DtoOperation, DtoStatus, EvdFlags,
    EvdState, Event, MemPriv,
};

use super::super::{A, Adapters, B, LIMIT, NONE, Side, refused};
use super::{MOMENT, NOW, begin, drained, look, pair, post, soft, wait};

const WAITER: (DatType, DatSubtype) = (DatType::InvalidState, DatSubtype::InvalidStateEvdWaiter);
const TIMEOUT: DatReturn = DatReturn::of(DatType::TimeoutExpired);
const UNWAITABLE: DatReturn =
    DatReturn::new(DatType::InvalidState, DatSubtype::InvalidStateEvdUnwaitable);

/// A threshold of 0.
pub fn wait_threshold_of_zero(ias: &mut Adapters<'_, impl Side>) {
    let evd = soft(ias, 4);
    let now = ias.now();
    let begun = ias.a.evd_wait(now, evd, NOW, 0);
    refused(begun, DatType::InvalidParameter, DatSubtype::InvalidArg3);
    assert_eq!(ias.look(A, evd), None);
}

/// More than the queue holds, and just as many.
pub fn wait_threshold_beyond_the_length(ias: &mut Adapters<'_, impl Side>) {
    let evd = soft(ias, 4);
    let now = ias.now();
    let begun = ias.a.evd_wait(now, evd, NOW, 5);
    refused(begun, DatType::InvalidParameter, DatSubtype::InvalidArg3);
    post(ias, evd, 0..4);
    assert_eq!(wait(ias, evd, NOW, 4), Ok(Event::Software(0)));
    assert_eq!(ias.a.evd_more(evd), Ok(3));
}

/// A poll: at once, and with what is there.
pub fn wait_with_no_time(ias: &mut Adapters<'_, impl Side>) {
    let evd = soft(ias, 4);
    let mut first = begin(ias, evd, NOW, 1);
    assert_eq!(look(ias, &mut first), Poll::Ready(Err(TIMEOUT)));
    post(ias, evd, 0..1);
    let mut second = begin(ias, evd, NOW, 1);
    let found = look(ias, &mut second);
    assert_eq!(found, Poll::Ready(Ok(Event::Software(0))));
}

/// Not before its time, nothing taken, and the rest counted.
pub fn wait_that_runs_out(ias: &mut Adapters<'_, impl Side>) {
    let evd = soft(ias, 4);
    post(ias, evd, 0..2);
    let start = ias.now();
    assert_eq!(wait(ias, evd, MOMENT, 3), Err(TIMEOUT));
    assert!(ias.now().since(start) >= MOMENT);
    assert_eq!(ias.a.evd_more(evd), Ok(2));
    assert_eq!(drained(ias, evd), [0, 1]);
}

/// A wait expires when its time is over, not before and not long after, whether events lie there or
/// not.
pub fn wait_expires_at_its_timeout(ias: &mut Adapters<'_, impl Side>) {
    let evd = soft(ias, 4);
    for (millis, events) in [(10, 0), (150, 1), (2500, 2)] {
        post(ias, evd, 0..events);
        let (start, span) = (ias.now(), Duration::from_millis(millis));
        let mut under = begin(ias, evd, span, 3);
        assert_eq!(under.until().since(start), span + under.until().since(start + span));
        let found = wait_more(ias, &mut under);
        let took = ias.now().since(start);
        assert_eq!(found, Err(TIMEOUT));
        let slack = ias.slack();
        assert!(took >= span && took <= span + slack, "{span:?}: {took:?}");
        assert_eq!(drained(ias, evd).len() as u64, events);
    }
}

/// `nmore` is at least the threshold less one.
pub fn wait_takes_the_first_and_counts_the_rest(ias: &mut Adapters<'_, impl Side>) {
    let evd = soft(ias, 8);
    let mut under = begin(ias, evd, LIMIT, 3);
    for pointer in 0..3 {
        assert_eq!(look(ias, &mut under), Poll::Pending);
        post(ias, evd, pointer..pointer + 1);
    }
    let found = look(ias, &mut under);
    assert_eq!(found, Poll::Ready(Ok(Event::Software(0))));
    assert_eq!(ias.a.evd_more(evd), Ok(2));
    post(ias, evd, 3..6);
    assert_eq!(wait(ias, evd, NOW, 1), Ok(Event::Software(1)));
    assert_eq!(ias.a.evd_more(evd), Ok(4));
    assert_eq!(drained(ias, evd), [2, 3, 4, 5]);
}

/// Completions count as well as what software makes.
pub fn wait_for_completions_by_threshold(ias: &mut Adapters<'_, impl Side>) {
    let [from, to] = ias.connected();
    let mem = ias.mem(A, from.pz, 64, MemPriv::ALL);
    let there = ias.mem(B, to.pz, 64, MemPriv::ALL);
    let mut under = begin(ias, from.request, LIMIT, 4);
    for cookie in 0..4 {
        ias.pass(Duration::from_micros(200));
        assert_eq!(look(ias, &mut under), Poll::Pending);
        ias.recv(&to, &there, 0, 8, cookie);
        ias.send(&from, &mem, 0, 8, cookie);
    }
    let first = ias.until(|ias| match look(ias, &mut under) {
        Poll::Ready(found) => Some(found),
        Poll::Pending => None,
    });
    let Ok(Event::Dto(dto)) = first else { panic!("{first:?}") };
    assert_eq!((dto.cookie, ias.a.evd_more(from.request)), (0, Ok(3)));
    for cookie in 1..4 {
        ias.done(&from, DtoOperation::Send, cookie);
    }
}

/// `DAT_TIMEOUT_INFINITE`.
pub fn wait_without_end(ias: &mut Adapters<'_, impl Side>) {
    let evd = soft(ias, 4);
    let mut under = begin(ias, evd, Duration::MAX, 1);
    ias.pass(MOMENT);
    assert_eq!(look(ias, &mut under), Poll::Pending);
    post(ias, evd, 0..1);
    assert_eq!(wait_more(ias, &mut under), Ok(Event::Software(0)));
}

fn wait_more<S: Side>(
    ias: &mut Adapters<'_, S>,
    under: &mut dat_core::EvdWait,
) -> Result<Event, DatReturn> {
    ias.until(|ias| match look(ias, under) {
        Poll::Ready(found) => Some(found),
        Poll::Pending => None,
    })
}

/// One at a time; the second changes nothing for the first.
pub fn a_second_waiter(ias: &mut Adapters<'_, impl Side>) {
    let evd = soft(ias, 4);
    let mut under = begin(ias, evd, LIMIT, 1);
    let now = ias.now();
    refused(ias.a.evd_wait(now, evd, NOW, 1), WAITER.0, WAITER.1);
    refused(ias.a.evd_take_reaper(evd), WAITER.0, WAITER.1);
    post(ias, evd, 0..1);
    assert_eq!(wait_more(ias, &mut under), Ok(Event::Software(0)));
    assert_eq!(wait(ias, evd, NOW, 1), Err(TIMEOUT));
}

/// No waits, but everything else; until it is cleared.
pub fn waits_on_an_unwaitable_one(ias: &mut Adapters<'_, impl Side>) {
    let cno = ias.a.cno_create(None).unwrap();
    let evd = soft(ias, 4);
    ias.a.evd_modify_cno(evd, Some(cno)).unwrap();
    ias.a.evd_set_unwaitable(evd).unwrap();
    ias.a.evd_set_unwaitable(evd).unwrap();
    post(ias, evd, 0..2);
    assert_eq!(wait(ias, evd, LIMIT, 1), Err(UNWAITABLE));
    assert_eq!(ias.a.cno_trigger(cno), Ok(evd));
    assert_eq!(ias.look(A, evd), Some(Event::Software(0)));
    ias.a.evd_clear_unwaitable(evd).unwrap();
    ias.a.evd_clear_unwaitable(evd).unwrap();
    let state = ias.a.evd_query(evd).unwrap().state;
    assert!(state.contains(EvdState::WAITABLE));
    assert_eq!(wait(ias, evd, NOW, 1), Ok(Event::Software(1)));
}

/// A waiter that waits already wakes.
pub fn set_unwaitable_wakes_the_waiter(ias: &mut Adapters<'_, impl Side>) {
    let evd = soft(ias, 4);
    let mut under = begin(ias, evd, LIMIT, 2);
    post(ias, evd, 0..1);
    assert_eq!(look(ias, &mut under), Poll::Pending);
    ias.a.evd_set_unwaitable(evd).unwrap();
    assert_eq!(look(ias, &mut under), Poll::Ready(Err(UNWAITABLE)));
    assert_eq!(drained(ias, evd), [0]);
}

/// A close does so, too.
pub fn close_aborts_the_waiter(ias: &mut Adapters<'_, impl Side>) {
    let evd = soft(ias, 4);
    let mut under = begin(ias, evd, LIMIT, 1);
    ias.a.close(CloseFlag::Abrupt).unwrap();
    let abort = DatReturn::of(DatType::Abort);
    assert_eq!(look(ias, &mut under), Poll::Ready(Err(abort)));
}

/// Events below the threshold do not make it longer; a refused wait leaves nothing behind.
pub fn fault_23_the_time_of_a_wait_runs_once(ias: &mut Adapters<'_, impl Side>) {
    let evd = soft(ias, 8);
    let now = ias.now();
    refused(ias.a.evd_wait(now, evd, NOW, 9), DatType::InvalidParameter, DatSubtype::InvalidArg3);
    let span = Duration::from_millis(100);
    let mut under = begin(ias, evd, span, 8);
    assert_eq!(under.until().since(now), span + under.until().since(now + span));
    let start = ias.now();
    let mut pointer = 0;
    let found = loop {
        if let Poll::Ready(found) = look(ias, &mut under) {
            break found;
        }
        if pointer < 5 {
            post(ias, evd, pointer..pointer + 1);
            pointer += 1;
        }
        ias.pass(Duration::from_millis(3));
    };
    assert_eq!(found, Err(TIMEOUT));
    assert!(ias.now().since(start) < span * 2);
    assert_eq!(drained(ias, evd), [0, 1, 2, 3, 4]);
}

/// More than one, where the consumer or the peer decides which completions notify.
pub fn fault_24_thresholds_are_for_those_who_do_not_decide(ias: &mut Adapters<'_, impl Side>) {
    for (flags, subtype) in [
        (CompletionFlags::UNSIGNALLED, DatSubtype::InvalidStateEvdConfigNotify),
        (CompletionFlags::SOLICITED_WAIT, DatSubtype::InvalidStateEvdConfigSolicited),
    ] {
        let end = ias.end_with(A, false, |attr| attr.recv_completion_flags = flags);
        let now = ias.now();
        let begun = ias.a.evd_wait(now, end.recv, NOW, 2);
        refused(begun, DatType::InvalidState, subtype);
        assert_eq!(wait(ias, end.recv, NOW, 1), Err(TIMEOUT));
        assert_eq!(wait(ias, end.request, NOW, 2), Err(TIMEOUT));
    }
}

/// It is queued, and comes first when a signalled one wakes.
pub fn fault_31_an_unsignalled_completion_wakes_nobody(ias: &mut Adapters<'_, impl Side>) {
    let unsignalled = CompletionFlags::UNSIGNALLED;
    let [from, to] = pair(ias, NONE, unsignalled);
    let mem = ias.mem(A, from.pz, 64, MemPriv::ALL);
    let there = ias.mem(B, to.pz, 64, MemPriv::ALL);
    let mut under = begin(ias, from.request, LIMIT, 1);
    assert_eq!(look(ias, &mut under), Poll::Pending);
    ias.recv(&to, &there, 0, 8, 1);
    let seg = [mem.seg(0, 8)];
    ias.a.ep_post_send(from.ep, &seg, 1, unsignalled).unwrap();
    ias.done(&to, DtoOperation::Receive, 1);
    ias.pass(MOMENT);
    assert_eq!(look(ias, &mut under), Poll::Pending);
    assert_eq!(ias.a.evd_more(from.request), Ok(1));
    ias.recv(&to, &there, 0, 8, 2);
    ias.send(&from, &mem, 0, 8, 2);
    let Ok(Event::Dto(first)) = wait_more(ias, &mut under) else { panic!("no completion") };
    assert_eq!((first.cookie, first.status), (1, DtoStatus::Success));
    ias.done(&from, DtoOperation::Send, 2);
    // Where the Endpoint was not made for it, the flag is refused.
    let posted = ias.b.ep_post_send(to.ep, &[there.seg(0, 8)], 3, unsignalled);
    refused(posted, DatType::InvalidParameter, DatSubtype::InvalidArg5);
}

/// The same of receives.
pub fn an_unsignalled_receive_wakes_nobody(ias: &mut Adapters<'_, impl Side>) {
    let unsignalled = CompletionFlags::UNSIGNALLED;
    let [to, from] = pair(ias, unsignalled, NONE);
    let there = ias.mem(A, to.pz, 64, MemPriv::ALL);
    let mem = ias.mem(B, from.pz, 64, MemPriv::ALL);
    let mut under = begin(ias, to.recv, LIMIT, 1);
    assert_eq!(look(ias, &mut under), Poll::Pending);
    let seg = [there.seg(0, 8)];
    ias.a.ep_post_recv(to.ep, &seg, 1, unsignalled).unwrap();
    ias.recv(&to, &there, 0, 8, 2);
    ias.send(&from, &mem, 0, 8, 1);
    ias.done(&from, DtoOperation::Send, 1);
    ias.pass(MOMENT);
    assert_eq!(look(ias, &mut under), Poll::Pending);
    ias.send(&from, &mem, 0, 8, 2);
    let Ok(Event::Dto(first)) = wait_more(ias, &mut under) else { panic!("no completion") };
    assert_eq!(first.cookie, 1);
    ias.done(&to, DtoOperation::Receive, 2);
}

/// Receives that all notify and requests that say so themselves, on one Event Dispatcher: a
/// completion of the first wakes, one of the others only if it asks to. And what the peer decides
/// beside what nobody does.
pub fn each_stream_of_a_shared_evd_notifies_by_its_own_flags(ias: &mut Adapters<'_, impl Side>) {
    let (unsignalled, solicited) = (CompletionFlags::UNSIGNALLED, CompletionFlags::SOLICITED_WAIT);
    for (recv, request, flags) in [(NONE, unsignalled, unsignalled), (solicited, NONE, NONE)] {
        let from = ias.end_with(A, true, |attr| {
            attr.recv_completion_flags = recv;
            attr.request_completion_flags = request;
        });
        assert_eq!(from.recv, from.request);
        let to = ias.end(B);
        ias.connect(&from, &to);
        let mem = ias.mem(A, from.pz, 64, MemPriv::ALL);
        let there = ias.mem(B, to.pz, 64, MemPriv::ALL);
        let mut under = begin(ias, from.recv, LIMIT, 1);
        assert_eq!(look(ias, &mut under), Poll::Pending);
        ias.recv(&to, &there, 0, 8, 1);
        ias.recv(&from, &mem, 8, 8, 2);
        let seg = [mem.seg(0, 8)];
        ias.a.ep_post_send(from.ep, &seg, 1, flags).unwrap();
        ias.done(&to, DtoOperation::Receive, 1);
        if flags == unsignalled {
            ias.pass(MOMENT);
            assert_eq!(look(ias, &mut under), Poll::Pending);
            ias.send(&to, &there, 0, 8, 3);
        }
        let Ok(Event::Dto(first)) = wait_more(ias, &mut under) else { panic!("no completion") };
        assert_eq!((first.cookie, first.operation), (1, DtoOperation::Send));
        if flags == unsignalled {
            ias.done(&from, DtoOperation::Receive, 2);
        }
    }
}

/// The same of as many as an Endpoint takes, over several turns of its queue, signalled ones among
/// them.
pub fn any_number_of_unsignalled_receives_wake_nobody(ias: &mut Adapters<'_, impl Side>) {
    let unsignalled = CompletionFlags::UNSIGNALLED;
    let [to, from] = pair(ias, unsignalled, NONE);
    let there = ias.mem(A, to.pz, 64, MemPriv::ALL);
    let mem = ias.mem(B, from.pz, 64, MemPriv::ALL);
    let most = u64::from(ias.a.ep_query(to.ep).unwrap().attr.max_recv_dtos);
    assert!(most > 16);
    let seg = [there.seg(0, 8)];
    for turn in 0..3 {
        // One in the midst wakes, another one in each turn.
        let signalled = most / 2 + turn;
        for cookie in 0..most {
            let flags = if cookie == signalled { NONE } else { unsignalled };
            ias.a.ep_post_recv(to.ep, &seg, cookie, flags).unwrap();
        }
        let mut under = begin(ias, to.recv, LIMIT, 1);
        assert_eq!(look(ias, &mut under), Poll::Pending);
        for cookie in 0..signalled {
            ias.send(&from, &mem, 0, 8, cookie);
            ias.done(&from, DtoOperation::Send, cookie);
        }
        ias.pass(MOMENT);
        assert_eq!(look(ias, &mut under), Poll::Pending, "turn {turn}");
        for cookie in signalled..most {
            ias.send(&from, &mem, 0, 8, cookie);
            ias.done(&from, DtoOperation::Send, cookie);
        }
        let Ok(Event::Dto(first)) = wait_more(ias, &mut under) else { panic!("no completion") };
        assert_eq!(first.cookie, 0);
        for cookie in 1..most {
            ias.done(&to, DtoOperation::Receive, cookie);
        }
    }
}

/// The sender decides.
pub fn only_solicited_receives_wake(ias: &mut Adapters<'_, impl Side>) {
    let solicited = CompletionFlags::SOLICITED_WAIT;
    let [to, from] = pair(ias, solicited, NONE);
    let there = ias.mem(A, to.pz, 64, MemPriv::ALL);
    let mem = ias.mem(B, from.pz, 64, MemPriv::ALL);
    for cookie in 1..4 {
        ias.recv(&to, &there, 0, 8, cookie);
    }
    let mut under = begin(ias, to.recv, LIMIT, 1);
    assert_eq!(look(ias, &mut under), Poll::Pending);
    ias.send(&from, &mem, 0, 8, 1);
    ias.done(&from, DtoOperation::Send, 1);
    ias.pass(MOMENT);
    assert_eq!(look(ias, &mut under), Poll::Pending);
    let seg = [mem.seg(0, 8)];
    ias.b.ep_post_send(from.ep, &seg, 2, solicited).unwrap();
    let Ok(Event::Dto(first)) = wait_more(ias, &mut under) else { panic!("no completion") };
    assert_eq!(first.cookie, 1);
    ias.done(&to, DtoOperation::Receive, 2);
    // A failure always wakes.
    let mut under = begin(ias, to.recv, LIMIT, 1);
    assert_eq!(look(ias, &mut under), Poll::Pending);
    ias.disconnect(&to, CloseFlag::Abrupt);
    let Ok(Event::Dto(flushed)) = wait_more(ias, &mut under) else { panic!("no completion") };
    assert_eq!((flushed.cookie, flushed.status), (3, DtoStatus::ErrFlushed));
}

/// They neither come nor count.
pub fn suppressed_successes_are_no_events(ias: &mut Adapters<'_, impl Side>) {
    let [from, to] = ias.connected();
    let mem = ias.mem(A, from.pz, 64, MemPriv::ALL);
    let there = ias.mem(B, to.pz, 64, MemPriv::ALL);
    let seg = [mem.seg(0, 8)];
    // Enough of them that the adapter has some completed in order to have their slots back.
    for cookie in 0..48 {
        ias.recv(&to, &there, 0, 8, cookie);
        let suppress = CompletionFlags::SUPPRESS;
        ias.until(|ias| {
            let posted = ias.a.ep_post_send(from.ep, &seg, cookie, suppress);
            match posted {
                Ok(()) => Some(()),
                Err(_) => {
                    assert_eq!(ias.look(A, from.request), None);
                    None
                }
            }
        });
        ias.done(&to, DtoOperation::Receive, cookie);
        assert_eq!(ias.a.evd_more(from.request), Ok(0));
    }
    assert_eq!(wait(ias, from.request, MOMENT, 1), Err(TIMEOUT));
    ias.recv(&to, &there, 0, 8, 99);
    ias.send(&from, &mem, 0, 8, 99);
    ias.until(|ias| (ias.a.evd_more(from.request) == Ok(1)).then_some(()));
    ias.done(&from, DtoOperation::Send, 99);
}

/// Flushes at the end of a connection count as much as completions.
pub fn flushes_are_counted(ias: &mut Adapters<'_, impl Side>) {
    let [from, _] = ias.connected();
    let mem = ias.mem(A, from.pz, 64, MemPriv::ALL);
    for cookie in 0..5 {
        ias.recv(&from, &mem, 0, 8, cookie);
    }
    ias.disconnect(&from, CloseFlag::Abrupt);
    let first = wait(ias, from.recv, LIMIT, 5).unwrap();
    let Event::Dto(first) = first else { panic!("{first:?}") };
    assert_eq!((first.cookie, first.status), (0, DtoStatus::ErrFlushed));
    assert_eq!(ias.a.evd_more(from.recv), Ok(4));
    for cookie in 1..5 {
        let dto = ias.dto(A, from.recv);
        assert_eq!((dto.cookie, dto.status), (cookie, DtoStatus::ErrFlushed));
        assert_eq!(ias.a.evd_more(from.recv), Ok(4 - cookie as u32));
    }
}

/// As if it had not been.
pub fn an_ended_wait_leaves_no_trace(ias: &mut Adapters<'_, impl Side>) {
    let evd = ias.a.evd_create(4, EvdFlags::SOFTWARE).unwrap();
    post(ias, evd, 0..1);
    let mut under = begin(ias, evd, LIMIT, 2);
    assert_eq!(look(ias, &mut under), Poll::Pending);
    ias.a.evd_wait_end(&mut under);
    ias.a.evd_wait_end(&mut under);
    assert!(look(ias, &mut under).is_ready());
    assert_eq!(drained(ias, evd), [0]);
    ias.a.evd_free(evd).unwrap();
}
