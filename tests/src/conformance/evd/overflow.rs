//! Overflow: events that find no room.

use dat_core::{
    AnyHandle, AsyncEvent, CloseFlag, DatSubtype, DatType, EpState, Evd, EvdFlags, Event,
};

use super::super::{A, B, Bed, End, LIMIT, Side, refused};
use super::{MOMENT, NOW, drained, post};

/// An Endpoint of side A whose connect Event Dispatcher is full of one software event.
fn choked<S: Side>(bed: &mut Bed<'_, S>) -> End {
    let end = bed.end(A);
    let flags = EvdFlags::CONNECTION | EvdFlags::SOFTWARE;
    let conn = bed.a.evd_create(1, flags).unwrap();
    let (pz, recv, request) = (Some(end.pz), Some(end.recv), Some(end.request));
    let ep = bed
        .a
        .ep_create(pz, recv, request, Some(conn), None)
        .unwrap();
    post(bed, conn, 7..8);
    End { conn, ep, ..end }
}

/// Connects it, which is one event that does not fit.
fn overflow<S: Side>(bed: &mut Bed<'_, S>, from: &End) -> End {
    let to = bed.end(B);
    let point = bed.listen(B);
    bed.ask(from, point.qualifier, LIMIT, b"");
    let cr = bed.request(&point);
    let now = bed.now();
    bed.b.cr_accept(now, cr, Some(to.ep), b"").unwrap();
    assert_eq!(bed.event(B, to.conn), Event::Established(to.ep));
    bed.until(|bed| (bed.state(from) == EpState::Connected).then_some(()));
    to
}

/// One asynchronous event, with the handle of the one that overflowed and the reason of its kind.
pub fn fault_44_an_overflow_names_its_dispatcher(bed: &mut Bed<'_, impl Side>) {
    let end = choked(bed);
    overflow(bed, &end);
    let events = bed.a.async_evd();
    let event = bed.event(A, events);
    let Event::Async(about) = event else {
        panic!("{event:?}")
    };
    assert_eq!(about, AsyncEvent::EvdOverflow(end.conn));
    assert_eq!(event.number(), 0x8001);
    let names = (about.handle(), about.reason());
    assert_eq!(names, (AnyHandle::Evd(end.conn), 0));
    bed.quiet(MOMENT, &[(A, events)]);
    assert_eq!(AsyncEvent::EpBroken(end.ep).handle(), AnyHandle::Ep(end.ep));
}

/// The event is lost; what was queued is not, and the Endpoint and the Event Dispatcher work on.
pub fn an_overflow_harms_nothing_else(bed: &mut Bed<'_, impl Side>) {
    let end = choked(bed);
    overflow(bed, &end);
    assert_eq!(drained(bed, end.conn), [7]);
    bed.disconnect(&end, CloseFlag::Abrupt);
    assert_eq!(bed.event(A, end.conn), Event::Disconnected(end.ep));
    post(bed, end.conn, 8..9);
    assert_eq!(drained(bed, end.conn), [8]);
}

/// The last place to complain is full.
pub fn an_overflowing_async_dispatcher_is_dead(bed: &mut Bed<'_, impl Side>) {
    let flags = EvdFlags::ASYNC | EvdFlags::SOFTWARE;
    let events: Evd = bed.a.evd_create(1, flags).unwrap();
    bed.a.set_async_evd(events).unwrap();
    let end = choked(bed);
    post(bed, events, 0..1);
    overflow(bed, &end);
    let (ty, subtype) = (DatType::InvalidState, DatSubtype::InvalidStateEvdAsync);
    let now = bed.now();
    refused(bed.a.evd_wait(now, events, NOW, 1), ty, subtype);
    refused(bed.a.evd_dequeue(events), ty, subtype);
    assert_eq!(drained(bed, end.conn), [7]);
}
