//! Traffic through a shared queue.

use core::time::Duration;

use dat_core::{
    AsyncEvent, CloseFlag, DatSubtype, DatType, DtoOperation, DtoStatus, EpState, Event, MemPriv,
};

use super::super::{A, B, Bed, End, NONE, Side, refused};
use super::{attr, member, queue};

/// A receive of the queue takes a message, and its event names the Endpoint.
pub fn fault_22_events_name_the_endpoint(bed: &mut Bed<'_, impl Side>) {
    let (srq, sink) = queue(bed, B, 4);
    let (from, to) = (bed.end(A), member(bed, B, srq));
    bed.connect(&from, &to);
    bed.b.srq_post_recv(srq, &[sink.seg(0, 16)], 7).unwrap();
    let source = bed.mem(A, from.pz, 16, MemPriv::ALL);
    bed.fill(&source, 0, b"shared by all");
    bed.send(&from, &source, 0, 13, 1);
    let Event::Dto(dto) = bed.event(B, to.recv) else { panic!() };
    assert_eq!((dto.ep, dto.cookie, dto.len, dto.operation), (to.ep, 7, 13, DtoOperation::Receive));
    assert_eq!(bed.bytes(&sink, 0, 13), b"shared by all");
    bed.done(&from, DtoOperation::Send, 1);
}

/// Two connections into one queue.
fn two(bed: &mut Bed<'_, impl Side>, receives: u16) -> (dat_core::Srq, [End; 2], [End; 2]) {
    let (srq, sink) = queue(bed, B, receives);
    for cookie in 0..u64::from(receives) {
        let seg = sink.seg(cookie as usize * 16, 16);
        bed.b.srq_post_recv(srq, &[seg], cookie).unwrap();
    }
    let from = [bed.merged_end(A), bed.merged_end(A)];
    let to = [member(bed, B, srq), member(bed, B, srq)];
    for (from, to) in from.iter().zip(&to) {
        bed.connect(from, to);
    }
    (srq, from, to)
}

/// Any of its Endpoints takes the next receive; each message arrives at the Endpoint it was sent
/// to.
pub fn fault_16_several_endpoints_share_a_queue(bed: &mut Bed<'_, impl Side>) {
    let (srq, from, to) = two(bed, 8);
    let mut seen = Vec::new();
    for round in 0..4 {
        let n = round % 2;
        bed.a.ep_post_send(from[n].ep, &[], 1, NONE).unwrap();
        let dto = bed.dto(B, to[n].recv);
        assert_eq!((dto.ep, dto.status), (to[n].ep, DtoStatus::Success));
        seen.push(dto.cookie);
        assert_eq!(bed.look(B, to[1 - n].recv), None);
    }
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), 4, "each receive completes once");
    assert_eq!(bed.b.srq_query(srq).unwrap().outstanding, 4);
}

/// The messages of one connection complete in the order in which they were sent.
pub fn messages_of_a_connection_stay_in_order(bed: &mut Bed<'_, impl Side>) {
    let (_, from, to) = two(bed, 8);
    let source = bed.mem(A, from[0].pz, 16, MemPriv::ALL);
    for len in 1..6 {
        bed.send(&from[0], &source, 0, len, len as u64);
    }
    for len in 1..6 {
        assert_eq!(bed.dto(B, to[0].recv).len, len);
    }
}

/// The slots of receives come back, however often: more messages than the queue has slots.
pub fn slots_are_used_again(bed: &mut Bed<'_, impl Side>) {
    let (srq, from, to) = two(bed, 3);
    for n in 0..20 {
        let which = n as usize % 2;
        bed.a.ep_post_send(from[which].ep, &[], n, NONE).unwrap();
        let dto = bed.dto(B, to[which].recv);
        assert!(dto.status == DtoStatus::Success && dto.cookie < 200);
        bed.b.srq_post_recv(srq, &[], 100 + n).unwrap();
        assert_eq!(bed.b.srq_query(srq).unwrap().outstanding, 3);
    }
}

/// A message waits until there is a receive for it, as at an Endpoint of its own.
pub fn an_empty_queue_makes_messages_wait(bed: &mut Bed<'_, impl Side>) {
    let (srq, sink) = queue(bed, B, 4);
    let (from, to) = (bed.end(A), member(bed, B, srq));
    bed.connect(&from, &to);
    bed.a.ep_post_send(from.ep, &[], 1, NONE).unwrap();
    bed.quiet(Duration::from_millis(20), &[(A, from.request), (B, to.recv)]);
    bed.b.srq_post_recv(srq, &[sink.seg(0, 8)], 2).unwrap();
    bed.done(&to, DtoOperation::Receive, 2);
    bed.done(&from, DtoOperation::Send, 1);
}

/// The counts of the manual page's example.
pub fn query_counts_available_and_outstanding(bed: &mut Bed<'_, impl Side>) {
    let (srq, sink) = queue(bed, B, 10);
    let (from, to) = (bed.end(A), member(bed, B, srq));
    bed.connect(&from, &to);
    for cookie in 0..3 {
        bed.b.srq_post_recv(srq, &[sink.seg(0, 8)], cookie).unwrap();
    }
    let counts = |bed: &mut Bed<'_, _>| {
        let param = bed.b.srq_query(srq).unwrap();
        (param.available, param.outstanding)
    };
    assert_eq!(counts(bed), (Some(3), 3));
    bed.a.ep_post_send(from.ep, &[], 1, NONE).unwrap();
    bed.done(&from, DtoOperation::Send, 1);
    assert_eq!(counts(bed), (Some(2), 3));
    // The receive that the Endpoint took has completed. The provider may not know yet.
    let completed = |bed: &mut Bed<'_, _>| {
        let info = bed.b.ep_recv_query(to.ep).unwrap();
        let none = info.nbufs_allocated == Some(0) && info.bufs_alloc_span == Some(0);
        none.then_some(())
    };
    bed.until(completed);
    bed.dto(B, to.recv);
    assert_eq!(counts(bed), (Some(2), 2));
    bed.until(completed);
}

/// Fewer receives than the low watermark are told of, once.
pub fn the_low_watermark_tells_once(bed: &mut Bed<'_, impl Side>) {
    let (srq, from, to) = two(bed, 4);
    let asynchronous = bed.b.async_evd();
    bed.b.srq_set_lw(srq, 3).unwrap();
    let low = Event::Async(AsyncEvent::SrqLowWatermark(srq));
    // By the header, 0 is a queue that failed.
    assert_eq!(AsyncEvent::SrqLowWatermark(srq).reason(), 2);
    assert_eq!(AsyncEvent::SrqBroken(srq).reason(), 0);
    bed.a.ep_post_send(from[0].ep, &[], 1, NONE).unwrap();
    bed.dto(B, to[0].recv);
    bed.quiet(Duration::from_millis(5), &[(B, asynchronous)]);
    bed.a.ep_post_send(from[1].ep, &[], 1, NONE).unwrap();
    bed.dto(B, to[1].recv);
    assert_eq!(bed.event(B, asynchronous), low);
    bed.a.ep_post_send(from[1].ep, &[], 2, NONE).unwrap();
    bed.dto(B, to[1].recv);
    bed.quiet(Duration::from_millis(5), &[(B, asynchronous)]);
    assert_eq!(bed.b.srq_query(srq).unwrap().attr.low_watermark, 3);
    // Set again, it tells again: at once, as fewer are there already.
    bed.b.srq_set_lw(srq, 2).unwrap();
    assert_eq!(bed.event(B, asynchronous), low);
}

/// A low watermark cannot be above the size; 0 asks for nothing.
pub fn the_low_watermark_has_bounds(bed: &mut Bed<'_, impl Side>) {
    let (srq, _) = queue(bed, A, 4);
    let asynchronous = bed.a.async_evd();
    let set = bed.a.srq_set_lw(srq, 5);
    refused(set, DatType::InvalidParameter, DatSubtype::InvalidArg2);
    bed.a.srq_set_lw(srq, 0).unwrap();
    bed.quiet(Duration::from_millis(5), &[(A, asynchronous)]);
    bed.a.srq_set_lw(srq, 1).unwrap();
    let low = Event::Async(AsyncEvent::SrqLowWatermark(srq));
    assert_eq!(bed.event(A, asynchronous), low);
}

/// As many receives as the low watermark are not below it: neither when it is set, nor when one is
/// taken, nor when others were posted.
pub fn as_many_receives_as_the_low_watermark_are_enough(bed: &mut Bed<'_, impl Side>) {
    let (srq, from, to) = two(bed, 4);
    let asynchronous = bed.b.async_evd();
    let low = Event::Async(AsyncEvent::SrqLowWatermark(srq));
    for left in [4, 3, 2] {
        bed.b.srq_set_lw(srq, left).unwrap();
        bed.quiet(Duration::from_millis(5), &[(B, asynchronous)]);
        bed.a.ep_post_send(from[0].ep, &[], 1, NONE).unwrap();
        bed.dto(B, to[0].recv);
        assert_eq!(bed.event(B, asynchronous), low);
    }
    // One is left. A watermark of 1 is reached by it, and passed by the last.
    bed.b.srq_set_lw(srq, 1).unwrap();
    bed.quiet(Duration::from_millis(5), &[(B, asynchronous)]);
    bed.a.ep_post_send(from[0].ep, &[], 1, NONE).unwrap();
    bed.dto(B, to[0].recv);
    assert_eq!(bed.event(B, asynchronous), low);
    bed.quiet(Duration::from_millis(5), &[(B, asynchronous)]);
}

/// A queue made with a low watermark tells at once, being empty; one without does not.
pub fn a_queue_made_with_a_low_watermark_tells(bed: &mut Bed<'_, impl Side>) {
    let pz = bed.a.pz_create().unwrap();
    let asynchronous = bed.a.async_evd();
    bed.a.srq_create(pz, &attr(4)).unwrap();
    bed.quiet(Duration::from_millis(5), &[(A, asynchronous)]);
    let mut low = attr(4);
    low.low_watermark = 1;
    let srq = bed.a.srq_create(pz, &low).unwrap();
    let low = Event::Async(AsyncEvent::SrqLowWatermark(srq));
    assert_eq!(bed.event(A, asynchronous), low);
}

/// The end of a connection leaves the queue's receives where they are.
pub fn a_disconnect_flushes_nothing_of_the_queue(bed: &mut Bed<'_, impl Side>) {
    let (srq, from, to) = two(bed, 4);
    bed.disconnect(&from[0], CloseFlag::Abrupt);
    assert_eq!(bed.event(B, to[0].conn), Event::Disconnected(to[0].ep));
    bed.quiet(Duration::from_millis(20), &[(B, to[0].recv)]);
    assert_eq!(bed.b.srq_query(srq).unwrap().outstanding, 4);
    // The other Endpoint takes them.
    for _ in 0..4 {
        bed.a.ep_post_send(from[1].ep, &[], 1, NONE).unwrap();
        let dto = bed.dto(B, to[1].recv);
        assert_eq!(dto.status, DtoStatus::Success);
    }
}

/// The end of an Endpoint with a queue is an asynchronous event too, one for each life, whoever
/// ends it; of the peer's, which has receives of its own, there is none.
pub fn an_endpoint_says_once_that_it_takes_nothing_more(bed: &mut Bed<'_, impl Side>) {
    let (_, from, to) = two(bed, 4);
    let [here, there] = [A, B].map(|side| bed[side].async_evd());
    let ended = |n: usize| Event::Async(AsyncEvent::EpBroken(to[n].ep));
    bed.quiet(Duration::from_millis(10), &[(B, there)]);
    bed.disconnect(&from[0], CloseFlag::Abrupt);
    assert_eq!(bed.event(B, there), ended(0));
    assert_eq!(bed.event(B, to[0].conn), Event::Disconnected(to[0].ep));
    bed.event(A, from[0].conn);
    bed.disconnect(&to[1], CloseFlag::Graceful);
    assert_eq!(bed.event(B, there), ended(1));
    // Ended already.
    bed.disconnect(&to[1], CloseFlag::Abrupt);
    bed.quiet(Duration::from_millis(20), &[(A, here), (B, there)]);
    for end in [&from[0], &to[0]] {
        bed[end.side].ep_reset(end.ep).unwrap();
    }
    bed.connect(&from[0], &to[0]);
    // What breaks it is told of once as well.
    let source = bed.mem(A, from[0].pz, 64, MemPriv::ALL);
    bed.send(&from[0], &source, 0, 17, 1);
    assert_eq!(bed.dto(B, to[0].recv).status, DtoStatus::ErrLocalLength);
    assert_eq!(bed.event(B, there), ended(0));
    bed.broken(B, to[0].conn, to[0].ep);
    bed.quiet(Duration::from_millis(20), &[(A, here), (B, there)]);
}

/// What an Endpoint took and nobody dequeued comes back to the queue when the Endpoint is reset or
/// freed.
pub fn a_reset_gives_back_what_was_taken(bed: &mut Bed<'_, impl Side>) {
    let (srq, from, to) = two(bed, 4);
    for n in [0, 1, 0] {
        bed.a.ep_post_send(from[n].ep, &[], 1, NONE).unwrap();
        bed.done(&from[n], DtoOperation::Send, 1);
    }
    // Some of it has been looked at, some has not.
    assert_eq!(bed.b.srq_query(srq).unwrap().available, Some(1));
    bed.a.ep_post_send(from[0].ep, &[], 2, NONE).unwrap();
    bed.done(&from[0], DtoOperation::Send, 2);
    bed.disconnect(&from[0], CloseFlag::Abrupt);
    bed.event(B, to[0].conn);
    bed.b.ep_reset(to[0].ep).unwrap();
    assert_eq!(bed.state(&to[0]), EpState::Unconnected);
    assert_eq!(bed.b.srq_query(srq).unwrap().outstanding, 1);
    let now = bed.now();
    bed.b.ep_free(now, to[1].ep).unwrap();
    assert_eq!(bed.b.srq_query(srq).unwrap().outstanding, 0);
    for cookie in 0..4 {
        bed.b.srq_post_recv(srq, &[], 50 + cookie).unwrap();
    }
    bed.event(A, from[0].conn);
    bed.a.ep_reset(from[0].ep).unwrap();
    bed.connect(&from[0], &to[0]);
    bed.a.ep_post_send(from[0].ep, &[], 3, NONE).unwrap();
    assert!(bed.dto(B, to[0].recv).cookie >= 50);
}

/// A message that does not fit takes its connection with it, and not the others.
pub fn a_failed_receive_breaks_one_connection(bed: &mut Bed<'_, impl Side>) {
    let (srq, from, to) = two(bed, 4);
    let source = bed.mem(A, from[0].pz, 64, MemPriv::ALL);
    bed.send(&from[0], &source, 0, 17, 1);
    let dto = bed.dto(B, to[0].recv);
    assert_eq!((dto.ep, dto.status), (to[0].ep, DtoStatus::ErrLocalLength));
    bed.broken(B, to[0].conn, to[0].ep);
    assert_eq!(bed.b.srq_query(srq).unwrap().outstanding, 3);
    bed.a.ep_post_send(from[1].ep, &[], 2, NONE).unwrap();
    assert_eq!(bed.dto(B, to[1].recv).status, DtoStatus::Success);
    assert_eq!(bed.state(&to[1]), EpState::Connected);
}

/// The queue's zone may be another than the Endpoint's: its receives land in memory that the
/// Endpoint's requests cannot name.
pub fn the_zones_may_differ(bed: &mut Bed<'_, impl Side>) {
    assert!(bed.b.query().1.srq_ep_pz_difference_supported);
    let (srq, sink) = queue(bed, B, 4);
    let (from, to) = (bed.end(A), member(bed, B, srq));
    bed.connect(&from, &to);
    bed.b.srq_post_recv(srq, &[sink.seg(0, 8)], 1).unwrap();
    let source = bed.mem(A, from.pz, 8, MemPriv::ALL);
    bed.send(&from, &source, 0, 8, 2);
    bed.done(&to, DtoOperation::Receive, 1);
    let posted = bed.b.ep_post_send(to.ep, &[sink.seg(0, 8)], 3, NONE);
    refused(posted, DatType::ProtectionViolation, DatSubtype::ProtectionRead);
}

/// What an Endpoint holds of the queue counts against its watermarks.
pub fn watermarks_count_what_an_endpoint_took(bed: &mut Bed<'_, impl Side>) {
    let (_, from, to) = two(bed, 6);
    let (now, asynchronous) = (bed.now(), bed.b.async_evd());
    bed.b.ep_set_watermark(now, to[0].ep, Some(1), Some(2)).unwrap();
    bed.a.ep_post_send(from[0].ep, &[], 1, NONE).unwrap();
    bed.quiet(Duration::from_millis(10), &[(B, asynchronous)]);
    bed.a.ep_post_send(from[0].ep, &[], 2, NONE).unwrap();
    let high = Event::Async(AsyncEvent::EpSoftHighWatermark(to[0].ep));
    assert_eq!(bed.event(B, asynchronous), high);
    // Dequeued, they count no more.
    bed.dto(B, to[0].recv);
    bed.dto(B, to[0].recv);
    for cookie in 3..6 {
        bed.a.ep_post_send(from[0].ep, &[], cookie, NONE).unwrap();
    }
    bed.broken(B, to[0].conn, to[0].ep);
    assert_eq!(bed.state(&to[1]), EpState::Connected);
}
