//! Traffic through a shared queue.

use core::time::Duration;

use dat_core::{
    AsyncEvent, CloseFlag, DatSubtype, DatType, DtoOperation, DtoStatus, EpState, Event, MemPriv,
};

use super::super::{A, Adapters, B, End, NONE, Side, refused};
use super::{attr, member, queue};

/// A receive of the queue takes a message, and its event names the Endpoint.
pub fn fault_22_events_name_the_endpoint(ias: &mut Adapters<'_, impl Side>) {
    let (srq, sink) = queue(ias, B, 4);
    let (from, to) = (ias.end(A), member(ias, B, srq));
    ias.connect(&from, &to);
    ias.b.srq_post_recv(srq, &[sink.seg(0, 16)], 7).unwrap();
    let source = ias.mem(A, from.pz, 16, MemPriv::ALL);
    ias.fill(&source, 0, b"shared by all");
    ias.send(&from, &source, 0, 13, 1);
    let Event::Dto(dto) = ias.event(B, to.recv) else { panic!() };
    assert_eq!((dto.ep, dto.cookie, dto.len, dto.operation), (to.ep, 7, 13, DtoOperation::Receive));
    assert_eq!(ias.bytes(&sink, 0, 13), b"shared by all");
    ias.done(&from, DtoOperation::Send, 1);
}

/// Two connections into one queue.
fn two(ias: &mut Adapters<'_, impl Side>, receives: u16) -> (dat_core::Srq, [End; 2], [End; 2]) {
    let (srq, sink) = queue(ias, B, receives);
    for cookie in 0..u64::from(receives) {
        let seg = sink.seg(cookie as usize * 16, 16);
        ias.b.srq_post_recv(srq, &[seg], cookie).unwrap();
    }
    let from = [ias.merged_end(A), ias.merged_end(A)];
    let to = [member(ias, B, srq), member(ias, B, srq)];
    for (from, to) in from.iter().zip(&to) {
        ias.connect(from, to);
    }
    (srq, from, to)
}

/// Any of its Endpoints takes the next receive; each message arrives at the Endpoint it was sent
/// to.
pub fn fault_16_several_endpoints_share_a_queue(ias: &mut Adapters<'_, impl Side>) {
    let (srq, from, to) = two(ias, 8);
    let mut seen = Vec::new();
    for round in 0..4 {
        let n = round % 2;
        ias.a.ep_post_send(from[n].ep, &[], 1, NONE).unwrap();
        let dto = ias.dto(B, to[n].recv);
        assert_eq!((dto.ep, dto.status), (to[n].ep, DtoStatus::Success));
        seen.push(dto.cookie);
        assert_eq!(ias.look(B, to[1 - n].recv), None);
    }
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), 4, "each receive completes once");
    assert_eq!(ias.b.srq_query(srq).unwrap().outstanding, 4);
}

/// The messages of one connection complete in the order in which they were sent.
pub fn messages_of_a_connection_stay_in_order(ias: &mut Adapters<'_, impl Side>) {
    let (_, from, to) = two(ias, 8);
    let source = ias.mem(A, from[0].pz, 16, MemPriv::ALL);
    for len in 1..6 {
        ias.send(&from[0], &source, 0, len, len as u64);
    }
    for len in 1..6 {
        assert_eq!(ias.dto(B, to[0].recv).len, len);
    }
}

/// The slots of receives come back, however often: more messages than the queue has slots.
pub fn slots_are_used_again(ias: &mut Adapters<'_, impl Side>) {
    let (srq, from, to) = two(ias, 3);
    for n in 0..20 {
        let which = n as usize % 2;
        ias.a.ep_post_send(from[which].ep, &[], n, NONE).unwrap();
        let dto = ias.dto(B, to[which].recv);
        assert!(dto.status == DtoStatus::Success && dto.cookie < 200);
        ias.b.srq_post_recv(srq, &[], 100 + n).unwrap();
        assert_eq!(ias.b.srq_query(srq).unwrap().outstanding, 3);
    }
}

/// A message waits until there is a receive for it, as at an Endpoint of its own.
pub fn an_empty_queue_makes_messages_wait(ias: &mut Adapters<'_, impl Side>) {
    let (srq, sink) = queue(ias, B, 4);
    let (from, to) = (ias.end(A), member(ias, B, srq));
    ias.connect(&from, &to);
    ias.a.ep_post_send(from.ep, &[], 1, NONE).unwrap();
    ias.expect_no_event(Duration::from_millis(20), &[(A, from.request), (B, to.recv)]);
    ias.b.srq_post_recv(srq, &[sink.seg(0, 8)], 2).unwrap();
    ias.done(&to, DtoOperation::Receive, 2);
    ias.done(&from, DtoOperation::Send, 1);
}

/// The counts of the manual page's example.
pub fn query_counts_available_and_outstanding(ias: &mut Adapters<'_, impl Side>) {
    let (srq, sink) = queue(ias, B, 10);
    let (from, to) = (ias.end(A), member(ias, B, srq));
    ias.connect(&from, &to);
    for cookie in 0..3 {
        ias.b.srq_post_recv(srq, &[sink.seg(0, 8)], cookie).unwrap();
    }
    let counts = |ias: &mut Adapters<'_, _>| {
        let param = ias.b.srq_query(srq).unwrap();
        (param.available, param.outstanding)
    };
    assert_eq!(counts(ias), (Some(3), 3));
    ias.a.ep_post_send(from.ep, &[], 1, NONE).unwrap();
    ias.done(&from, DtoOperation::Send, 1);
    // A card that compresses completions holds them back for microseconds.
    ias.pass(Duration::from_millis(1));
    assert_eq!(counts(ias), (Some(2), 3));
    // The receive that the Endpoint took has completed. The provider may not know yet.
    let completed = |ias: &mut Adapters<'_, _>| {
        let info = ias.b.ep_recv_query(to.ep).unwrap();
        let none = info.nbufs_allocated == Some(0) && info.bufs_alloc_span == Some(0);
        none.then_some(())
    };
    ias.until(completed);
    ias.dto(B, to.recv);
    assert_eq!(counts(ias), (Some(2), 2));
    ias.until(completed);
}

/// Fewer receives than the low watermark raise one event.
pub fn the_low_watermark_tells_once(ias: &mut Adapters<'_, impl Side>) {
    let (srq, from, to) = two(ias, 4);
    let asynchronous = ias.b.async_evd();
    ias.b.srq_set_lw(srq, 3).unwrap();
    let low = Event::Async(AsyncEvent::SrqLowWatermark(srq));
    // By the header, 0 is a queue that failed.
    assert_eq!(AsyncEvent::SrqLowWatermark(srq).reason(), 2);
    assert_eq!(AsyncEvent::SrqBroken(srq).reason(), 0);
    ias.a.ep_post_send(from[0].ep, &[], 1, NONE).unwrap();
    ias.dto(B, to[0].recv);
    ias.expect_no_event(Duration::from_millis(5), &[(B, asynchronous)]);
    ias.a.ep_post_send(from[1].ep, &[], 1, NONE).unwrap();
    ias.dto(B, to[1].recv);
    assert_eq!(ias.event(B, asynchronous), low);
    ias.a.ep_post_send(from[1].ep, &[], 2, NONE).unwrap();
    ias.dto(B, to[1].recv);
    ias.expect_no_event(Duration::from_millis(5), &[(B, asynchronous)]);
    assert_eq!(ias.b.srq_query(srq).unwrap().attr.low_watermark, 3);
    // Set again, it tells again: at once, as fewer are there already.
    ias.b.srq_set_lw(srq, 2).unwrap();
    assert_eq!(ias.event(B, asynchronous), low);
}

/// A low watermark cannot be above the size; 0 asks for nothing.
pub fn the_low_watermark_has_bounds(ias: &mut Adapters<'_, impl Side>) {
    let (srq, _) = queue(ias, A, 4);
    let asynchronous = ias.a.async_evd();
    let set = ias.a.srq_set_lw(srq, 5);
    refused(set, DatType::InvalidParameter, DatSubtype::InvalidArg2);
    ias.a.srq_set_lw(srq, 0).unwrap();
    ias.expect_no_event(Duration::from_millis(5), &[(A, asynchronous)]);
    ias.a.srq_set_lw(srq, 1).unwrap();
    let low = Event::Async(AsyncEvent::SrqLowWatermark(srq));
    assert_eq!(ias.event(A, asynchronous), low);
}

/// As many receives as the low watermark are not below it: neither when it is set, nor when one is
/// taken, nor when others were posted.
pub fn as_many_receives_as_the_low_watermark_are_enough(ias: &mut Adapters<'_, impl Side>) {
    let (srq, from, to) = two(ias, 4);
    let asynchronous = ias.b.async_evd();
    let low = Event::Async(AsyncEvent::SrqLowWatermark(srq));
    for left in [4, 3, 2] {
        ias.b.srq_set_lw(srq, left).unwrap();
        ias.expect_no_event(Duration::from_millis(5), &[(B, asynchronous)]);
        ias.a.ep_post_send(from[0].ep, &[], 1, NONE).unwrap();
        ias.dto(B, to[0].recv);
        assert_eq!(ias.event(B, asynchronous), low);
    }
    // One is left. A watermark of 1 is reached by it, and passed by the last.
    ias.b.srq_set_lw(srq, 1).unwrap();
    ias.expect_no_event(Duration::from_millis(5), &[(B, asynchronous)]);
    ias.a.ep_post_send(from[0].ep, &[], 1, NONE).unwrap();
    ias.dto(B, to[0].recv);
    assert_eq!(ias.event(B, asynchronous), low);
    ias.expect_no_event(Duration::from_millis(5), &[(B, asynchronous)]);
}

/// A queue made with a low watermark tells at once, being empty; one without does not.
pub fn a_queue_made_with_a_low_watermark_tells(ias: &mut Adapters<'_, impl Side>) {
    let pz = ias.a.pz_create().unwrap();
    let asynchronous = ias.a.async_evd();
    ias.a.srq_create(pz, &attr(4)).unwrap();
    ias.expect_no_event(Duration::from_millis(5), &[(A, asynchronous)]);
    let mut low = attr(4);
    low.low_watermark = 1;
    let srq = ias.a.srq_create(pz, &low).unwrap();
    let low = Event::Async(AsyncEvent::SrqLowWatermark(srq));
    assert_eq!(ias.event(A, asynchronous), low);
}

/// The end of a connection leaves the queue's receives where they are.
pub fn a_disconnect_flushes_nothing_of_the_queue(ias: &mut Adapters<'_, impl Side>) {
    let (srq, from, to) = two(ias, 4);
    ias.disconnect(&from[0], CloseFlag::Abrupt);
    assert_eq!(ias.event(B, to[0].conn), Event::Disconnected(to[0].ep));
    ias.expect_no_event(Duration::from_millis(20), &[(B, to[0].recv)]);
    assert_eq!(ias.b.srq_query(srq).unwrap().outstanding, 4);
    // The other Endpoint takes them.
    for _ in 0..4 {
        ias.a.ep_post_send(from[1].ep, &[], 1, NONE).unwrap();
        let dto = ias.dto(B, to[1].recv);
        assert_eq!(dto.status, DtoStatus::Success);
    }
}

/// The end of a connection over a shared queue is an asynchronous event too, one for each
/// connection, whichever side ends it; the peer, with receives of its own, gets none.
pub fn an_endpoint_says_once_that_it_takes_nothing_more(ias: &mut Adapters<'_, impl Side>) {
    let (_, from, to) = two(ias, 4);
    let [here, there] = [A, B].map(|side| ias[side].async_evd());
    let ended = |n: usize| Event::Async(AsyncEvent::EpBroken(to[n].ep));
    ias.expect_no_event(Duration::from_millis(10), &[(B, there)]);
    ias.disconnect(&from[0], CloseFlag::Abrupt);
    assert_eq!(ias.event(B, there), ended(0));
    assert_eq!(ias.event(B, to[0].conn), Event::Disconnected(to[0].ep));
    ias.event(A, from[0].conn);
    ias.disconnect(&to[1], CloseFlag::Graceful);
    assert_eq!(ias.event(B, there), ended(1));
    // Ended already.
    ias.disconnect(&to[1], CloseFlag::Abrupt);
    ias.expect_no_event(Duration::from_millis(20), &[(A, here), (B, there)]);
    for end in [&from[0], &to[0]] {
        ias[end.side].ep_reset(end.ep).unwrap();
    }
    ias.connect(&from[0], &to[0]);
    // A break is reported once as well.
    let source = ias.mem(A, from[0].pz, 64, MemPriv::ALL);
    ias.send(&from[0], &source, 0, 17, 1);
    assert_eq!(ias.dto(B, to[0].recv).status, DtoStatus::ErrLocalLength);
    assert_eq!(ias.event(B, there), ended(0));
    ias.broken(B, to[0].conn, to[0].ep);
    ias.expect_no_event(Duration::from_millis(20), &[(A, here), (B, there)]);
}

/// Receives that an Endpoint took and nobody dequeued come back to the queue when the Endpoint is
/// reset or freed.
pub fn a_reset_gives_back_what_was_taken(ias: &mut Adapters<'_, impl Side>) {
    let (srq, from, to) = two(ias, 4);
    for n in [0, 1, 0] {
        ias.a.ep_post_send(from[n].ep, &[], 1, NONE).unwrap();
        ias.done(&from[n], DtoOperation::Send, 1);
    }
    // As above.
    ias.pass(Duration::from_millis(1));
    // Some of it has been looked at, some has not.
    assert_eq!(ias.b.srq_query(srq).unwrap().available, Some(1));
    ias.a.ep_post_send(from[0].ep, &[], 2, NONE).unwrap();
    ias.done(&from[0], DtoOperation::Send, 2);
    ias.disconnect(&from[0], CloseFlag::Abrupt);
    ias.event(B, to[0].conn);
    ias.b.ep_reset(to[0].ep).unwrap();
    assert_eq!(ias.state(&to[0]), EpState::Unconnected);
    assert_eq!(ias.b.srq_query(srq).unwrap().outstanding, 1);
    let now = ias.now();
    ias.b.ep_free(now, to[1].ep).unwrap();
    assert_eq!(ias.b.srq_query(srq).unwrap().outstanding, 0);
    for cookie in 0..4 {
        ias.b.srq_post_recv(srq, &[], 50 + cookie).unwrap();
    }
    ias.event(A, from[0].conn);
    ias.a.ep_reset(from[0].ep).unwrap();
    ias.connect(&from[0], &to[0]);
    ias.a.ep_post_send(from[0].ep, &[], 3, NONE).unwrap();
    assert!(ias.dto(B, to[0].recv).cookie >= 50);
}

/// A message that does not fit takes its connection with it, and not the others.
pub fn a_failed_receive_breaks_one_connection(ias: &mut Adapters<'_, impl Side>) {
    let (srq, from, to) = two(ias, 4);
    let source = ias.mem(A, from[0].pz, 64, MemPriv::ALL);
    ias.send(&from[0], &source, 0, 17, 1);
    let dto = ias.dto(B, to[0].recv);
    assert_eq!((dto.ep, dto.status), (to[0].ep, DtoStatus::ErrLocalLength));
    ias.broken(B, to[0].conn, to[0].ep);
    assert_eq!(ias.b.srq_query(srq).unwrap().outstanding, 3);
    ias.a.ep_post_send(from[1].ep, &[], 2, NONE).unwrap();
    assert_eq!(ias.dto(B, to[1].recv).status, DtoStatus::Success);
    assert_eq!(ias.state(&to[1]), EpState::Connected);
}

/// The queue's zone may be another than the Endpoint's: its receives land in memory that the
/// Endpoint's requests cannot name.
pub fn the_zones_may_differ(ias: &mut Adapters<'_, impl Side>) {
    assert!(ias.b.query().1.srq_ep_pz_difference_supported);
    let (srq, sink) = queue(ias, B, 4);
    let (from, to) = (ias.end(A), member(ias, B, srq));
    ias.connect(&from, &to);
    ias.b.srq_post_recv(srq, &[sink.seg(0, 8)], 1).unwrap();
    let source = ias.mem(A, from.pz, 8, MemPriv::ALL);
    ias.send(&from, &source, 0, 8, 2);
    ias.done(&to, DtoOperation::Receive, 1);
    let posted = ias.b.ep_post_send(to.ep, &[sink.seg(0, 8)], 3, NONE);
    refused(posted, DatType::ProtectionViolation, DatSubtype::ProtectionRead);
}

/// Receives of the queue that an Endpoint holds count against its watermarks.
pub fn watermarks_count_what_an_endpoint_took(ias: &mut Adapters<'_, impl Side>) {
    let (_, from, to) = two(ias, 6);
    let (now, asynchronous) = (ias.now(), ias.b.async_evd());
    ias.b.ep_set_watermark(now, to[0].ep, Some(1), Some(2)).unwrap();
    ias.a.ep_post_send(from[0].ep, &[], 1, NONE).unwrap();
    ias.expect_no_event(Duration::from_millis(10), &[(B, asynchronous)]);
    ias.a.ep_post_send(from[0].ep, &[], 2, NONE).unwrap();
    let high = Event::Async(AsyncEvent::EpSoftHighWatermark(to[0].ep));
    assert_eq!(ias.event(B, asynchronous), high);
    // Dequeued, they count no more.
    ias.dto(B, to[0].recv);
    ias.dto(B, to[0].recv);
    for cookie in 3..6 {
        ias.a.ep_post_send(from[0].ep, &[], cookie, NONE).unwrap();
    }
    ias.broken(B, to[0].conn, to[0].ep);
    assert_eq!(ias.state(&to[1]), EpState::Connected);
}
