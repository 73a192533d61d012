//! Overflow: events that find no room.

use dat_core::{
    AnyHandle, AsyncEvent, CloseFlag, DatSubtype, DatType, EpState, Evd, EvdFlags, Event, PspFlag,
};

use super::super::{A, Adapters, B, End, LIMIT, Side, refused};
use super::{MOMENT, NOW, drained, post};

/// An Endpoint of side A whose connect Event Dispatcher is full of one software event.
fn choked<S: Side>(ias: &mut Adapters<'_, S>) -> End {
    let end = ias.end(A);
    let flags = EvdFlags::CONNECTION | EvdFlags::SOFTWARE;
    let conn = ias.a.evd_create(1, flags).unwrap();
    let (pz, recv, request) = (Some(end.pz), Some(end.recv), Some(end.request));
    let ep = ias.a.ep_create(pz, recv, request, Some(conn), None).unwrap();
    post(ias, conn, 7..8);
    End { conn, ep, ..end }
}

/// Connects it, which is one event that does not fit.
fn overflow<S: Side>(ias: &mut Adapters<'_, S>, from: &End) -> End {
    let to = ias.end(B);
    let point = ias.listen(B);
    ias.ask(from, point.qualifier, LIMIT, b"");
    let cr = ias.request(&point);
    let now = ias.now();
    ias.b.cr_accept(now, cr, Some(to.ep), b"").unwrap();
    assert_eq!(ias.event(B, to.conn), Event::Established(to.ep));
    ias.until(|ias| (ias.state(from) == EpState::Connected).then_some(()));
    to
}

/// One asynchronous event, with the handle of the one that overflowed and the reason of its kind.
pub fn fault_44_an_overflow_names_its_dispatcher(ias: &mut Adapters<'_, impl Side>) {
    let end = choked(ias);
    overflow(ias, &end);
    let events = ias.a.async_evd();
    let event = ias.event(A, events);
    let Event::Async(about) = event else { panic!("{event:?}") };
    assert_eq!(about, AsyncEvent::EvdOverflow(end.conn));
    assert_eq!(event.number(), 0x8001);
    let names = (about.handle(), about.reason());
    assert_eq!(names, (AnyHandle::Evd(end.conn), 0));
    ias.expect_no_event(MOMENT, &[(A, events)]);
    assert_eq!(AsyncEvent::EpBroken(end.ep).handle(), AnyHandle::Ep(end.ep));
}

/// The event is lost; what was queued is not, and the Endpoint and the Event Dispatcher work on.
pub fn an_overflow_harms_nothing_else(ias: &mut Adapters<'_, impl Side>) {
    let end = choked(ias);
    overflow(ias, &end);
    assert_eq!(drained(ias, end.conn), [7]);
    ias.disconnect(&end, CloseFlag::Abrupt);
    assert_eq!(ias.event(A, end.conn), Event::Disconnected(end.ep));
    post(ias, end.conn, 8..9);
    assert_eq!(drained(ias, end.conn), [8]);
}

/// The asynchronous Event Dispatcher itself is full.
pub fn an_overflowing_async_dispatcher_is_dead(ias: &mut Adapters<'_, impl Side>) {
    let flags = EvdFlags::ASYNC | EvdFlags::SOFTWARE;
    let events: Evd = ias.a.evd_create(1, flags).unwrap();
    ias.a.set_async_evd(events).unwrap();
    let end = choked(ias);
    post(ias, events, 0..1);
    overflow(ias, &end);
    let (ty, subtype) = (DatType::InvalidState, DatSubtype::InvalidStateEvdAsync);
    let now = ias.now();
    refused(ias.a.evd_wait(now, events, NOW, 1), ty, subtype);
    refused(ias.a.evd_dequeue(events), ty, subtype);
    assert_eq!(drained(ias, end.conn), [7]);
}

/// One Event Dispatcher for everything, longer than the places that the storage has for what is no
/// completion: requests come, and connections of all Endpoints come and go, before anybody looks.
/// Every event is there, each Endpoint's in its order.
pub fn no_connection_event_is_lost_within_the_length(ias: &mut Adapters<'_, impl Side>) {
    let places = ias.a.query().0.max_software_evd_qlen;
    let flags = EvdFlags::DTO | EvdFlags::RMR_BIND | EvdFlags::CONNECTION | EvdFlags::CR;
    let one = [A, B].map(|side| {
        let ia = &mut ias[side].ia;
        let evd = ia.evd_create(places + 48, flags).unwrap();
        (ia.pz_create().unwrap(), evd)
    });
    let end = |ias: &mut Adapters<'_, _>, side: usize| {
        let (pz, evd) = one[side];
        let all = Some(evd);
        let ep = ias[side].ep_create(Some(pz), all, all, all, None);
        End { side, pz, recv: evd, request: evd, conn: evd, ep: ep.unwrap() }
    };
    let asked = ias.free_qualifier();
    let evd = one[A].1;
    ias.a.psp_create(asked, evd, PspFlag::Consumer).unwrap();
    let requests = 5;
    for _ in 0..requests {
        let asking = end(ias, B);
        ias.ask(&asking, asked, LIMIT, b"");
    }
    let point = ias.listen(B);
    let ends = [(); 8].map(|()| end(ias, A));
    for client in &ends {
        ias.ask(client, point.qualifier, LIMIT, b"");
        let cr = ias.request(&point);
        let (server, now) = (end(ias, B), ias.now());
        ias.b.cr_accept(now, cr, Some(server.ep), b"").unwrap();
        assert_eq!(ias.event(B, server.conn), Event::Established(server.ep));
        ias.until(|ias| (ias.state(client) == EpState::Connected).then_some(()));
        ias.disconnect(client, CloseFlag::Abrupt);
        assert_eq!(ias.event(B, server.conn), Event::Disconnected(server.ep));
        let now = ias.now();
        ias.b.ep_free(now, server.ep).unwrap();
    }
    assert!(requests + 2 * ends.len() > places as usize);
    ias.pass(MOMENT);
    let mut seen = [0; 8];
    let mut waiting = 0;
    for _ in 0..requests + 2 * ends.len() {
        match ias.event(A, evd) {
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
    let asynchronous = ias.a.async_evd();
    ias.expect_no_event(MOMENT, &[(A, evd), (A, asynchronous)]);
}

/// Whatever other streams it takes, it has room for as many software events as its length says; an
/// impossible length is refused when it is made, not when it is used.
pub fn software_events_have_the_whole_length(ias: &mut Adapters<'_, impl Side>) {
    let most = ias.a.query().0.max_software_evd_qlen;
    let all = EvdFlags::DEFAULT - EvdFlags::ASYNC;
    for flags in [EvdFlags::SOFTWARE, EvdFlags::SOFTWARE | all] {
        let long = ias.a.evd_create(most + 1, flags).map_err(|e| e.ret());
        let full = DatType::InsufficientResources;
        refused(long, full, DatSubtype::ResourceTevd);
        let evd = ias.a.evd_create(most, flags).unwrap();
        post(ias, evd, 0..u64::from(most));
        let one_more = ias.a.evd_post_se(evd, 0);
        refused(one_more, DatType::QueueFull, DatSubtype::None);
        let longer = ias.a.evd_resize(evd, most + 1).map_err(|e| e.ret());
        refused(longer, full, DatSubtype::ResourceTevd);
        assert_eq!(drained(ias, evd).len(), most as usize);
    }
}
