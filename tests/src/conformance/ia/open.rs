//! dat_ia_open(3): the Event Dispatcher of asynchronous errors in its variants.

use dat_core::{
    AnyHandle, AsyncEvd, AsyncEvent, CloseFlag, DatSubtype, DatType, Evd, EvdFlags, Event,
};

use crate::conformance::{A, Adapters, B, End, LIMIT, Side, refused};

/// An Endpoint of side A whose connection events go to an Event Dispatcher of one event, which it
/// has, and its peer.
fn narrow(ias: &mut Adapters<'_, impl Side>) -> [End; 2] {
    let mut ends = [ias.end(A), ias.end(B)];
    let a = &mut ias.a.ia;
    let flags = EvdFlags::CONNECTION | EvdFlags::SOFTWARE;
    let conn = a.evd_create(1, flags).unwrap();
    a.evd_post_se(conn, 1).unwrap();
    a.ep_free(dat_core::Instant::ZERO, ends[A].ep).unwrap();
    let (pz, recv, request) = (ends[A].pz, ends[A].recv, ends[A].request);
    let ep = a.ep_create(Some(pz), Some(recv), Some(request), Some(conn), None);
    ends[A] = End { conn, ep: ep.unwrap(), ..ends[A] };
    ends
}

/// Has an event lost for want of room on side A: the Event Dispatcher that was full.
fn overflow(ias: &mut Adapters<'_, impl Side>) -> Evd {
    let [a, b] = narrow(ias);
    let point = ias.listen(B);
    ias.ask(&a, point.qualifier, LIMIT, b"");
    let cr = ias.request(&point);
    let now = ias.now();
    ias.b.cr_accept(now, cr, Some(b.ep), b"").unwrap();
    ias.event(B, b.conn);
    // ESTABLISHED of side A finds no room; the end of the connection always does.
    ias.disconnect(&b, CloseFlag::Abrupt);
    ias.event(B, b.conn);
    ias.until(|ias| (ias.state(&a) == dat_core::EpState::Disconnected).then_some(()));
    a.conn
}

/// With no handle, the provider makes an Event Dispatcher of at least the length asked for, for
/// asynchronous events.
pub fn open_makes_an_async_evd(ias: &mut Adapters<'_, impl Side>) {
    ias.a.close(CloseFlag::Graceful).unwrap();
    ias.a.reopen_with(AsyncEvd::New(5)).unwrap();
    let param = ias.a.evd_query(ias.a.async_evd()).unwrap();
    assert!(param.qlen >= 5);
    assert_eq!(param.flags, EvdFlags::ASYNC);
    assert_eq!(ias.look(A, ias.a.async_evd()), None);
}

/// The Event Dispatcher that the provider made gets errors, and is freed with the adapter.
pub fn the_async_evd_receives_errors(ias: &mut Adapters<'_, impl Side>) {
    let full = overflow(ias);
    let asynchronous = ias.a.async_evd();
    assert_eq!(ias.event(A, asynchronous), Event::Async(AsyncEvent::EvdOverflow(full)));
    ias.a.close(CloseFlag::Abrupt).unwrap();
    ias.a.reopen();
    assert_ne!(ias.a.async_evd(), asynchronous);
    refused(ias.a.evd_query(asynchronous), DatType::InvalidHandle, DatSubtype::InvalidHandle1);
}

/// An async Event Dispatcher of no length is refused.
pub fn an_async_evd_of_no_length_is_refused(ias: &mut Adapters<'_, impl Side>) {
    ias.a.close(CloseFlag::Graceful).unwrap();
    let opened = ias.a.reopen_with(AsyncEvd::New(0));
    refused(opened, DatType::InvalidParameter, DatSubtype::InvalidArg2);
    // Nothing was taken: the same HCA can be opened.
    ias.a.reopen();
    ias.connected();
}

/// So is one that is longer than there is room for.
pub fn an_async_evd_too_long_is_refused(ias: &mut Adapters<'_, impl Side>) {
    let most = ias.a.query().0.max_software_evd_qlen;
    ias.a.close(CloseFlag::Graceful).unwrap();
    let opened = ias.a.reopen_with(AsyncEvd::New(most + 1));
    refused(opened, DatType::InsufficientResources, DatSubtype::ResourceTevd);
    ias.a.reopen_with(AsyncEvd::New(most)).unwrap();
    ias.connected();
}

/// EVD_ASYNC_EXISTS: the adapter has none of its own, whatever handle it tells is out of scope, and
/// all else works.
pub fn an_adapter_without_an_async_evd_works(ias: &mut Adapters<'_, impl Side>) {
    ias.a.close(CloseFlag::Graceful).unwrap();
    ias.a.reopen_with(AsyncEvd::Exists).unwrap();
    let none = ias.a.async_evd();
    let stale = (DatType::InvalidHandle, DatSubtype::InvalidHandle1);
    refused(ias.a.evd_query(none), stale.0, stale.1);
    refused(ias.a.evd_dequeue(none), stale.0, stale.1);
    refused(ias.a.evd_free(none), stale.0, stale.1);
    // Errors are not reported, and do no harm.
    let full = overflow(ias);
    assert_eq!(ias.look(A, full), Some(Event::Software(1)));
    assert!(matches!(ias.look(A, full), Some(Event::Disconnected(_))));
    ias.connected();
    ias.a.close(CloseFlag::Abrupt).unwrap();
}

/// A handle: asynchronous errors go to that Event Dispatcher, with the other streams that it takes.
pub fn an_evd_of_the_consumers_takes_async_events(ias: &mut Adapters<'_, impl Side>) {
    let flags = EvdFlags::ASYNC | EvdFlags::SOFTWARE;
    let own = ias.a.evd_create(8, flags).unwrap();
    let first = ias.a.async_evd();
    ias.a.set_async_evd(own).unwrap();
    assert_eq!(ias.a.async_evd(), own);
    ias.a.evd_post_se(own, 77).unwrap();
    let full = overflow(ias);
    assert_eq!(ias.look(A, own), Some(Event::Software(77)));
    assert_eq!(ias.look(A, own), Some(Event::Async(AsyncEvent::EvdOverflow(full))));
    // The one that the provider made is gone.
    refused(ias.a.evd_query(first), DatType::InvalidHandle, DatSubtype::InvalidHandle1);
}

/// The consumer's async Event Dispatcher is not freed when another one takes its place.
pub fn the_consumers_async_evd_stays_the_consumers(ias: &mut Adapters<'_, impl Side>) {
    let [one, other] = [(); 2].map(|()| ias.a.evd_create(8, EvdFlags::ASYNC).unwrap());
    ias.a.set_async_evd(one).unwrap();
    ias.a.set_async_evd(other).unwrap();
    ias.a.evd_query(one).unwrap();
    ias.a.evd_free(one).unwrap();
    // Of the async one a graceful close does not complain.
    ias.a.close(CloseFlag::Graceful).unwrap();
}

/// A handle that cannot take asynchronous events is refused, and nothing changes.
pub fn an_evd_for_other_streams_is_no_async_evd(ias: &mut Adapters<'_, impl Side>) {
    let first = ias.a.async_evd();
    let of_others = ias.a.evd_create(8, EvdFlags::DTO).unwrap();
    let gone = ias.a.evd_create(8, EvdFlags::ASYNC).unwrap();
    ias.a.evd_free(gone).unwrap();
    let of_peer = ias.b.async_evd();
    for evd in [of_others, gone, of_peer] {
        refused(
            ias.a.set_async_evd(evd),
            DatType::InvalidHandle,
            DatSubtype::InvalidHandleEvdAsync,
        );
    }
    assert_eq!(ias.a.async_evd(), first);
    let full = overflow(ias);
    assert_eq!(ias.look(A, first), Some(Event::Async(AsyncEvent::EvdOverflow(full))));
}

/// The async Event Dispatcher cannot be freed by the consumer.
pub fn the_async_evd_cannot_be_freed(ias: &mut Adapters<'_, impl Side>) {
    let asynchronous = ias.a.async_evd();
    let freed = ias.a.evd_free(asynchronous);
    refused(freed, DatType::InvalidState, DatSubtype::InvalidStateEvdInUse);
    ias.a.evd_query(asynchronous).unwrap();
}

/// Handles of an adapter mean nothing to the next one on the same HCA, nor to another adapter.
pub fn handles_of_one_adapter_are_unknown_to_another(ias: &mut Adapters<'_, impl Side>) {
    let end = ias.end(A);
    let stale = |ia: &mut dat_core::Ia<'_, _>| {
        for handle in [AnyHandle::Pz(end.pz), end.ep.into(), end.recv.into()] {
            let asked = ia.get_handle_type(handle);
            assert_eq!(asked.map_err(|ret| ret.ty()), Err(DatType::InvalidHandle));
        }
    };
    stale(&mut ias.b.ia);
    ias.a.close(CloseFlag::Abrupt).unwrap();
    ias.a.reopen();
    stale(&mut ias.a.ia);
    // The same slots are used again, under other handles.
    let again = ias.end(A);
    assert_ne!((again.pz, again.ep), (end.pz, end.ep));
    stale(&mut ias.a.ia);
}
