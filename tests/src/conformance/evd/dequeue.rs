//! dat_evd_dequeue(3), dat_evd_post_se(3).

use dat_core::{DatSubtype, DatType, DtoOperation, EvdFlags, Event};

use super::super::{A, Adapters, B, Side, refused};
use super::{MOMENT, NOW, begin, drained, post, soft};
use dat_core::MemPriv;

/// An Event Dispatcher without the software stream.
pub fn post_se_needs_its_stream(ias: &mut Adapters<'_, impl Side>) {
    let evd = ias.a.evd_create(4, EvdFlags::CONNECTION).unwrap();
    let posted = ias.a.evd_post_se(evd, 1);
    refused(posted, DatType::InvalidParameter, DatSubtype::InvalidArg1);
    assert_eq!(ias.look(A, evd), None);
}

/// An event that does not fit is refused, and no other event reports it.
pub fn fault_07_a_full_queue_is_no_overflow(ias: &mut Adapters<'_, impl Side>) {
    let evd = soft(ias, 3);
    post(ias, evd, 0..3);
    let posted = ias.a.evd_post_se(evd, 3);
    refused(posted, DatType::QueueFull, DatSubtype::None);
    let events = ias.a.async_evd();
    ias.expect_no_event(MOMENT, &[(A, events)]);
    assert_eq!(drained(ias, evd), [0, 1, 2]);
    post(ias, evd, 4..7);
    assert_eq!(drained(ias, evd), [4, 5, 6]);
}

/// Pointer, number and order.
pub fn software_events_come_as_they_were_posted(ias: &mut Adapters<'_, impl Side>) {
    let evd = soft(ias, 4);
    for pointer in [u64::MAX, 0, 0xdead_beef] {
        ias.a.evd_post_se(evd, pointer).unwrap();
    }
    for pointer in [u64::MAX, 0, 0xdead_beef] {
        let event = ias.look(A, evd).unwrap();
        assert_eq!(event, Event::Software(pointer));
        assert_eq!(event.number(), 0x1_0001);
    }
}

/// Nothing there, and nothing twice.
pub fn dequeue_of_an_empty_one(ias: &mut Adapters<'_, impl Side>) {
    let evd = soft(ias, 4);
    let none = ias.a.evd_dequeue(evd);
    refused(none, DatType::QueueEmpty, DatSubtype::None);
    post(ias, evd, 0..1);
    assert_eq!(ias.look(A, evd), Some(Event::Software(0)));
    let none = ias.a.evd_dequeue(evd);
    refused(none, DatType::QueueEmpty, DatSubtype::None);
}

/// A waiter has the events to itself.
pub fn dequeue_while_somebody_waits(ias: &mut Adapters<'_, impl Side>) {
    let evd = soft(ias, 4);
    let mut wait = begin(ias, evd, MOMENT, 2);
    post(ias, evd, 0..1);
    let none = ias.a.evd_dequeue(evd);
    refused(none, DatType::InvalidState, DatSubtype::InvalidStateEvdWaiter);
    ias.a.evd_wait_end(&mut wait);
    assert_eq!(drained(ias, evd), [0]);
}

/// A reaper in another thread counts as a waiter.
pub fn dequeue_while_a_thread_has_the_reaper(ias: &mut Adapters<'_, impl Side>) {
    let evd = soft(ias, 4);
    let mut reaper = ias.a.evd_take_reaper(evd).unwrap();
    post(ias, evd, 0..1);
    let (ty, subtype) = (DatType::InvalidState, DatSubtype::InvalidStateEvdWaiter);
    refused(ias.a.evd_dequeue(evd), ty, subtype);
    let now = ias.now();
    refused(ias.a.evd_wait(now, evd, NOW, 1), ty, subtype);
    refused(ias.a.evd_take_reaper(evd), ty, subtype);
    assert_eq!(reaper.dequeue(), Ok(Event::Software(0)));
    assert!(ias.a.evd_return_reaper(reaper).is_ok());
    assert_eq!(ias.look(A, evd), None);
}

/// Events of several streams in one queue.
pub fn one_stream_keeps_its_order_among_others(ias: &mut Adapters<'_, impl Side>) {
    let dto = EvdFlags::DTO | EvdFlags::CONNECTION | EvdFlags::SOFTWARE;
    let (from, to) = (ias.end(A), ias.end(B));
    let one = ias.a.evd_create(16, dto).unwrap();
    let (pz, some) = (Some(from.pz), Some(one));
    let ep = ias.a.ep_create(pz, some, some, some, None).unwrap();
    let from = super::End { recv: one, request: one, conn: one, ep, ..from };
    ias.connect(&from, &to);
    let mem = ias.mem(A, from.pz, 64, MemPriv::ALL);
    let there = ias.mem(B, to.pz, 64, MemPriv::ALL);
    for n in 0..4 {
        ias.recv(&to, &there, 0, 8, n);
        ias.send(&from, &mem, 0, 8, n);
        post(ias, one, n..n + 1);
    }
    let (mut sends, mut software) = (Vec::new(), Vec::new());
    while sends.len() + software.len() < 8 {
        match ias.event(A, one) {
            Event::Dto(dto) => {
                assert_eq!(dto.operation, DtoOperation::Send);
                sends.push(dto.cookie);
            }
            Event::Software(pointer) => software.push(pointer),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((sends, software), (vec![0, 1, 2, 3], vec![0, 1, 2, 3]));
}
