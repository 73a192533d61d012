//! Overflow: events that find no room.

use dat_core::{
    AnyHandle, AsyncEvent, CloseFlag, DatSubtype, DatType, EpState, Evd, EvdFlags, Event, PspFlag,
};

use super::super::{A, B, Bed, End, LIMIT, Side, refused};
use super::{MOMENT, NOW, drained, post};

/// An Endpoint of side A whose connect Event Dispatcher is full of one software event.
fn choked<S: Side>(bed: &mut Bed<'_, S>) -> End {
    let end = bed.end(A);
    let flags = EvdFlags::CONNECTION | EvdFlags::SOFTWARE;
    let conn = bed.a.evd_create(1, flags).unwrap();
    let (pz, recv, request) = (Some(end.pz), Some(end.recv), Some(end.request));
    let ep = bed.a.ep_create(pz, recv, request, Some(conn), None).unwrap();
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
    let Event::Async(about) = event else { panic!("{event:?}") };
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

/// One Event Dispatcher for everything, longer than the places that the storage has for what is no
/// completion: requests come, and connections of all Endpoints come and go, before anybody looks.
/// Every event is there, each Endpoint's in its order.
pub fn no_connection_event_is_lost_within_the_length(bed: &mut Bed<'_, impl Side>) {
    let places = bed.a.query().0.max_software_evd_qlen;
    let flags = EvdFlags::DTO | EvdFlags::RMR_BIND | EvdFlags::CONNECTION | EvdFlags::CR;
    let one = [A, B].map(|side| {
        let ia = &mut bed[side].ia;
        let evd = ia.evd_create(places + 48, flags).unwrap();
        (ia.pz_create().unwrap(), evd)
    });
    let end = |bed: &mut Bed<'_, _>, side: usize| {
        let (pz, evd) = one[side];
        let all = Some(evd);
        let ep = bed[side].ep_create(Some(pz), all, all, all, None);
        End { side, pz, recv: evd, request: evd, conn: evd, ep: ep.unwrap() }
    };
    let asked = bed.free_qualifier();
    let evd = one[A].1;
    bed.a.psp_create(asked, evd, PspFlag::Consumer).unwrap();
    let requests = 5;
    for _ in 0..requests {
        let asking = end(bed, B);
        bed.ask(&asking, asked, LIMIT, b"");
    }
    let point = bed.listen(B);
    let ends = [(); 8].map(|()| end(bed, A));
    for client in &ends {
        bed.ask(client, point.qualifier, LIMIT, b"");
        let cr = bed.request(&point);
        let (server, now) = (end(bed, B), bed.now());
        bed.b.cr_accept(now, cr, Some(server.ep), b"").unwrap();
        assert_eq!(bed.event(B, server.conn), Event::Established(server.ep));
        bed.until(|bed| (bed.state(client) == EpState::Connected).then_some(()));
        bed.disconnect(client, CloseFlag::Abrupt);
        assert_eq!(bed.event(B, server.conn), Event::Disconnected(server.ep));
        let now = bed.now();
        bed.b.ep_free(now, server.ep).unwrap();
    }
    assert!(requests + 2 * ends.len() > places as usize);
    bed.pass(MOMENT);
    let mut seen = [0; 8];
    let mut waiting = 0;
    for _ in 0..requests + 2 * ends.len() {
        match bed.event(A, evd) {
            Event::ConnectionRequest { .. } => waiting += 1,
            Event::Established(ep) => {
                let at = ends.iter().position(|end| end.ep == ep).unwrap();
                assert_eq!(seen[at], 0);
                seen[at] = 1;
            }
            Event::Disconnected(ep) => {
                let at = ends.iter().position(|end| end.ep == ep).unwrap();
                assert_eq!(seen[at], 1);
                seen[at] = 2;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((waiting, seen), (requests, [2; 8]));
    let asynchronous = bed.a.async_evd();
    bed.quiet(MOMENT, &[(A, evd), (A, asynchronous)]);
}

/// Whatever other streams it takes, as many software events as the length says find room; a length
/// that cannot be is refused when it is made, not when it is used.
pub fn software_events_have_the_whole_length(bed: &mut Bed<'_, impl Side>) {
    let most = bed.a.query().0.max_software_evd_qlen;
    let all = EvdFlags::DEFAULT - EvdFlags::ASYNC;
    for flags in [EvdFlags::SOFTWARE, EvdFlags::SOFTWARE | all] {
        let long = bed.a.evd_create(most + 1, flags).map_err(|e| e.ret());
        let full = DatType::InsufficientResources;
        refused(long, full, DatSubtype::ResourceTevd);
        let evd = bed.a.evd_create(most, flags).unwrap();
        post(bed, evd, 0..u64::from(most));
        let one_more = bed.a.evd_post_se(evd, 0);
        refused(one_more, DatType::QueueFull, DatSubtype::None);
        let longer = bed.a.evd_resize(evd, most + 1).map_err(|e| e.ret());
        refused(longer, full, DatSubtype::ResourceTevd);
        assert_eq!(drained(bed, evd).len(), most as usize);
    }
}
