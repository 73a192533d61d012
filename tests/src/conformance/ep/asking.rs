//! ACTIVE_CONNECTION_PENDING and COMPLETION_PENDING: what comes of an attempt.

use core::time::Duration;

use dat_core::cm::Reason;
use dat_core::{
    CloseFlag, ConnectFlag, DatSubtype, DatType, DtoStatus, EpState, EvdFlags, Event,
    MAX_CONNECT_PRIVATE, PspFlag, Qos,
};

use super::super::{A, Adapters, B, End, LIMIT, NONE, Side, refused};
use super::flushed;

const QOS: Qos = Qos::BestEffort;

/// An Endpoint with a receive posted, which any failure brings back.
fn with_receive(ias: &mut Adapters<'_, impl Side>, side: usize) -> End {
    let end = ias.end(side);
    ias[side].ep_post_recv(end.ep, &[], 77, NONE).unwrap();
    end
}

/// The attempt fails with that event; the receive comes back, and the reason of the failure stays
/// to be asked for.
fn fails(ias: &mut Adapters<'_, impl Side>, end: &End, event: Event) {
    assert_eq!(ias.event(end.side, end.conn), event);
    assert_eq!(ias.state(end), EpState::Disconnected);
    flushed(ias, end, end.recv, 77);
    assert_eq!(ias.look(end.side, end.conn), None);
}

/// An attempt begins, and nothing is said of it yet.
pub fn connect_starts_an_attempt(ias: &mut Adapters<'_, impl Side>) {
    let (client, point) = (ias.end(A), ias.listen(B));
    ias.ask(&client, point.qualifier, LIMIT, b"");
    assert_eq!(ias.state(&client), EpState::ActiveConnectionPending);
    assert_eq!(ias.look(A, client.conn), None);
    let param = ias.a.ep_query(client.ep).unwrap();
    assert_eq!(param.remote, Some(ias.b.address()));
    assert_eq!(u64::from(param.remote_port), point.qualifier);
    assert_ne!(param.local_port, 0);
}

/// Requests that the network cannot serve are refused at once.
pub fn connect_refuses_what_it_cannot_do(ias: &mut Adapters<'_, impl Side>) {
    let (client, now, to) = (ias.end(A), ias.now(), ias.b.address());
    let (ia, ep, model) = (&mut ias.a.ia, client.ep, DatType::ModelNotSupported);
    for qos in [Qos::HighThroughput, Qos::LowLatency, Qos::Economy, Qos::Premium] {
        let asked = ia.ep_connect(now, ep, to, 7, LIMIT, b"", qos);
        refused(asked, model, DatSubtype::None);
    }
    let flag = ConnectFlag::Multipath;
    let asked = ia.ep_connect_flag(now, ep, to, 7, LIMIT, b"", QOS, flag);
    refused(asked, model, DatSubtype::None);
    assert_eq!(ias.state(&client), EpState::Unconnected);
}

/// Addresses that are none.
pub fn connect_refuses_bad_addresses(ias: &mut Adapters<'_, impl Side>) {
    let (client, now) = (ias.end(A), ias.now());
    let (ia, ep, address) = (&mut ias.a.ia, client.ep, DatType::InvalidAddress);
    for (to, subtype) in [
        ("0.0.0.0", DatSubtype::AddressMalformed),
        ("224.0.0.1", DatSubtype::AddressMalformed),
        ("fd00::1", DatSubtype::AddressUnsupported),
    ] {
        let asked = ia.ep_connect(now, ep, to.parse().unwrap(), 7, LIMIT, b"", QOS);
        refused(asked, address, subtype);
    }
    assert_eq!(ias.state(&client), EpState::Unconnected);
}

/// Numbers that cannot be.
pub fn connect_refuses_bad_numbers(ias: &mut Adapters<'_, impl Side>) {
    let (client, now, to) = (ias.end(A), ias.now(), ias.b.address());
    let (ia, ep, parameter) = (&mut ias.a.ia, client.ep, DatType::InvalidParameter);
    for qualifier in [0, 65536, u64::MAX] {
        let asked = ia.ep_connect(now, ep, to, qualifier, LIMIT, b"", QOS);
        refused(asked, parameter, DatSubtype::InvalidArg3);
    }
    let asked = ia.ep_connect(now, ep, to, 7, Duration::ZERO, b"", QOS);
    refused(asked, parameter, DatSubtype::InvalidArg4);
    assert_eq!(ias.state(&client), EpState::Unconnected);
}

/// The most private data is what the provider's attributes say: of the 64 bytes of the manual page
/// 8 carry addresses here.
pub fn fault_15_private_data_has_the_reported_length(ias: &mut Adapters<'_, impl Side>) {
    let most = ias.a.query().1.max_private_data_size as usize;
    assert_eq!(most, MAX_CONNECT_PRIVATE);
    let (client, point) = (ias.end(A), ias.listen(B));
    let data: Vec<u8> = (1..=most as u8).collect();
    ias.ask(&client, point.qualifier, LIMIT, &data);
    let cr = ias.request(&point);
    assert_eq!(ias.b.cr_query(cr).unwrap().private_data[..most], data);
}

/// One byte more is refused at the call, before anything is made.
pub fn fault_29_too_much_private_data_is_refused(ias: &mut Adapters<'_, impl Side>) {
    let (client, now, to) = (ias.end(A), ias.now(), ias.b.address());
    let data = [1; MAX_CONNECT_PRIVATE + 1];
    let asked = ias.a.ep_connect(now, client.ep, to, 7, LIMIT, &data, QOS);
    refused(asked, DatType::InvalidParameter, DatSubtype::InvalidArg5);
    assert_eq!(ias.state(&client), EpState::Unconnected);
    let peer = ias.end(B);
    ias.connect(&client, &peer);
}

/// The peer accepts: both sides get the event, and its private data arrives and stays.
pub fn an_accepted_attempt_is_established(ias: &mut Adapters<'_, impl Side>) {
    let (client, server, point) = (ias.end(A), ias.end(B), ias.listen(B));
    ias.ask(&client, point.qualifier, LIMIT, b"");
    let cr = ias.request(&point);
    let now = ias.now();
    ias.b.cr_accept(now, cr, Some(server.ep), b"yes").unwrap();
    assert_eq!(ias.event(A, client.conn), Event::Established(client.ep));
    assert_eq!(ias.state(&client), EpState::Connected);
    assert_eq!(&ias.a.ep_private_data(client.ep).unwrap()[..3], b"yes");
    ias.disconnect(&client, CloseFlag::Abrupt);
    ias.event(A, client.conn);
    assert_eq!(&ias.a.ep_private_data(client.ep).unwrap()[..3], b"yes");
    ias.a.ep_reset(client.ep).unwrap();
    assert!(ias.a.ep_private_data(client.ep).unwrap().is_empty());
}

/// The peer's consumer rejects, with private data.
pub fn a_rejected_attempt_is_over(ias: &mut Adapters<'_, impl Side>) {
    let (client, point) = (with_receive(ias, A), ias.listen(B));
    ias.ask(&client, point.qualifier, LIMIT, b"");
    let cr = ias.request(&point);
    let now = ias.now();
    ias.b.cr_reject(now, cr, b"not today").unwrap();
    fails(ias, &client, Event::PeerRejected(client.ep));
    let data = ias.a.ep_private_data(client.ep).unwrap();
    assert_eq!(&data[..9], b"not today");
}

/// Without private data it is the peer's rejection all the same.
pub fn fault_41_a_rejection_needs_no_private_data(ias: &mut Adapters<'_, impl Side>) {
    let (client, point) = (with_receive(ias, A), ias.listen(B));
    ias.ask(&client, point.qualifier, LIMIT, b"");
    let cr = ias.request(&point);
    let now = ias.now();
    ias.b.cr_reject(now, cr, b"").unwrap();
    fails(ias, &client, Event::PeerRejected(client.ep));
}

/// Nobody listens.
pub fn nobody_listening_is_no_peers_rejection(ias: &mut Adapters<'_, impl Side>) {
    let client = with_receive(ias, A);
    let qualifier = ias.free_qualifier();
    ias.ask(&client, qualifier, LIMIT, b"");
    fails(ias, &client, Event::NonPeerRejected(client.ep));
    let reason = ias.a.ep_reject_reason(client.ep).unwrap();
    assert_eq!(reason, Some(Reason::INVALID_SERVICE_ID));
    ias.a.ep_reset(client.ep).unwrap();
    assert_eq!(ias.a.ep_reject_reason(client.ep).unwrap(), None);
}

/// The service point's Event Dispatcher is full: that is its backlog.
pub fn a_full_backlog_turns_requests_away(ias: &mut Adapters<'_, impl Side>) {
    let evd = ias.b.evd_create(1, EvdFlags::CR).unwrap();
    let qualifier = ias.free_qualifier();
    ias.b.psp_create(qualifier, evd, PspFlag::Consumer).unwrap();
    let room = ias.b.evd_query(evd).unwrap().qlen as usize;
    let mut clients: Vec<_> = (0..=room).map(|_| ias.merged_end(A)).collect();
    let last = clients.pop().unwrap();
    for client in &clients {
        ias.ask(client, qualifier, LIMIT, b"");
        ias.pass(Duration::from_millis(5));
    }
    ias.a.ep_post_recv(last.ep, &[], 77, NONE).unwrap();
    ias.ask(&last, qualifier, LIMIT, b"");
    flushed(ias, &last, last.recv, 77);
    assert_eq!(ias.event(A, last.conn), Event::NonPeerRejected(last.ep));
    for client in &clients {
        assert_eq!(ias.state(client), EpState::ActiveConnectionPending);
    }
}

/// Nobody has that address.
pub fn an_unknown_host_is_unreachable(ias: &mut Adapters<'_, impl Side>) {
    let client = with_receive(ias, A);
    let (now, nobody) = (ias.now(), ias.nobody());
    ias.a.ep_connect(now, client.ep, nobody, 7, Duration::MAX, b"", QOS).unwrap();
    fails(ias, &client, Event::Unreachable(client.ep));
}

/// The consumer's own patience ends.
pub fn the_consumers_timeout_ends_an_attempt(ias: &mut Adapters<'_, impl Side>) {
    let (client, point) = (with_receive(ias, A), ias.listen(B));
    ias.ask(&client, point.qualifier, Duration::from_millis(50), b"");
    ias.request(&point);
    fails(ias, &client, Event::TimedOut(client.ep));
}

/// A timeout that has nothing more to end does nothing.
pub fn fault_28_a_timeout_spares_a_connection(ias: &mut Adapters<'_, impl Side>) {
    let (client, server, point) = (ias.end(A), ias.end(B), ias.listen(B));
    let patience = Duration::from_millis(500);
    ias.ask(&client, point.qualifier, patience, b"");
    let cr = ias.request(&point);
    let now = ias.now();
    ias.b.cr_accept(now, cr, Some(server.ep), b"").unwrap();
    assert_eq!(ias.event(A, client.conn), Event::Established(client.ep));
    ias.expect_no_event(patience * 2, &[(A, client.conn)]);
    assert_eq!(ias.state(&client), EpState::Connected);
}

/// A disconnect of either kind ends an attempt.
pub fn a_disconnect_ends_an_attempt(ias: &mut Adapters<'_, impl Side>) {
    for flag in [CloseFlag::Abrupt, CloseFlag::Graceful] {
        let (client, point) = (with_receive(ias, A), ias.listen(B));
        ias.ask(&client, point.qualifier, LIMIT, b"");
        ias.request(&point);
        ias.disconnect(&client, flag);
        fails(ias, &client, Event::Disconnected(client.ep));
    }
}

/// An answer after the client has disconnected fails at the server.
pub fn a_late_answer_finds_nobody(ias: &mut Adapters<'_, impl Side>) {
    let (client, server, point) = (ias.end(A), with_receive(ias, B), ias.listen(B));
    ias.ask(&client, point.qualifier, LIMIT, b"");
    let cr = ias.request(&point);
    ias.disconnect(&client, CloseFlag::Abrupt);
    assert_eq!(ias.event(A, client.conn), Event::Disconnected(client.ep));
    let now = ias.now();
    ias.b.cr_accept(now, cr, Some(server.ep), b"").unwrap();
    fails(ias, &server, Event::AcceptCompletionError(server.ep));
    assert_eq!(ias.look(A, client.conn), None);
    assert_eq!(ias.state(&client), EpState::Disconnected);
}

/// A free ends the attempt at once.
pub fn fault_12_free_ends_an_attempt_at_once(ias: &mut Adapters<'_, impl Side>) {
    let client = with_receive(ias, A);
    let (now, nobody) = (ias.now(), ias.nobody());
    ias.a.ep_connect(now, client.ep, nobody, 7, Duration::MAX, b"", QOS).unwrap();
    ias.pass(Duration::from_millis(1));
    let now = ias.now();
    ias.a.ep_free(now, client.ep).unwrap();
    for evd in [client.recv, client.request, client.conn] {
        ias.a.evd_free(evd).unwrap();
    }
}

/// An Endpoint that asks may post receives and wait, and nothing else.
pub fn an_asking_endpoint_refuses_everything_else(ias: &mut Adapters<'_, impl Side>) {
    let (client, point) = (ias.end(A), ias.listen(B));
    ias.ask(&client, point.qualifier, LIMIT, b"");
    let (now, to) = (ias.now(), ias.b.address());
    let (state, asking) = (DatType::InvalidState, DatSubtype::InvalidStateEpActConnPending);
    let ia = &mut ias.a.ia;
    let asked = ia.ep_connect(now, client.ep, to, 7, LIMIT, b"", QOS);
    refused(asked, state, asking);
    refused(ia.ep_reset(client.ep), state, asking);
    refused(ia.ep_post_send(client.ep, &[], 1, NONE), state, asking);
    ia.ep_post_recv(client.ep, &[], 1, NONE).unwrap();
}

/// Accepted and not yet confirmed.
fn accepting(ias: &mut Adapters<'_, impl Side>) -> (End, End) {
    let (client, server, point) = (ias.end(A), with_receive(ias, B), ias.listen(B));
    ias.ask(&client, point.qualifier, LIMIT, b"");
    let cr = ias.request(&point);
    let now = ias.now();
    ias.b.cr_accept(now, cr, Some(server.ep), b"").unwrap();
    assert_eq!(ias.state(&server), EpState::CompletionPending);
    refused(ias.b.cr_query(cr), DatType::InvalidHandle, DatSubtype::InvalidHandleCr);
    (client, server)
}

/// The request is used up, the Endpoint waits for the peer, and is connected.
pub fn an_accepted_request_waits_for_the_peer(ias: &mut Adapters<'_, impl Side>) {
    let (client, server) = accepting(ias);
    let posted = ias.b.ep_post_send(server.ep, &[], 1, NONE);
    refused(posted, DatType::InvalidState, DatSubtype::InvalidStateEpComplPending);
    assert_eq!(ias.event(B, server.conn), Event::Established(server.ep));
    assert_eq!(ias.state(&server), EpState::Connected);
    assert!(ias.b.ep_private_data(server.ep).unwrap().is_empty());
    assert_eq!(ias.event(A, client.conn), Event::Established(client.ep));
}

/// The peer is gone before it confirms.
pub fn a_peer_that_goes_fails_the_accept(ias: &mut Adapters<'_, impl Side>) {
    let (client, server) = accepting(ias);
    let now = ias.now();
    ias.a.ep_free(now, client.ep).unwrap();
    fails(ias, &server, Event::AcceptCompletionError(server.ep));
}

/// The acceptor changes its mind.
pub fn a_disconnect_ends_an_accept(ias: &mut Adapters<'_, impl Side>) {
    let (client, server) = accepting(ias);
    ias.disconnect(&server, CloseFlag::Graceful);
    assert_eq!(ias.event(B, server.conn), Event::Disconnected(server.ep));
    flushed(ias, &server, server.recv, 77);
    let event = ias.event(A, client.conn);
    assert!(
        matches!(event, Event::NonPeerRejected(_) | Event::Established(_) | Event::Disconnected(_)),
        "{event:?}"
    );
}

/// A receive that a failed attempt brings back is a completion like any other, in its place.
pub fn fault_09_flushed_receives_are_dto_events(ias: &mut Adapters<'_, impl Side>) {
    let client = with_receive(ias, A);
    ias.a.ep_post_recv(client.ep, &[], 78, NONE).unwrap();
    let qualifier = ias.free_qualifier();
    ias.ask(&client, qualifier, LIMIT, b"");
    ias.event(A, client.conn);
    for cookie in [77, 78] {
        let event = ias.event(A, client.recv);
        assert_eq!(event.number(), 1, "{event:?}");
        let Event::Dto(dto) = event else { panic!() };
        assert_eq!((dto.cookie, dto.status, dto.ep), (cookie, DtoStatus::ErrFlushed, client.ep));
    }
}

/// Pre-posted receives come back whatever ends the attempt.
pub fn fault_10_a_failed_attempt_flushes_receives(ias: &mut Adapters<'_, impl Side>) {
    let client = with_receive(ias, A);
    let (now, nobody) = (ias.now(), ias.nobody());
    let patience = Duration::from_millis(5);
    ias.a.ep_connect(now, client.ep, nobody, 7, patience, b"", QOS).unwrap();
    let event = ias.event(A, client.conn);
    assert!(matches!(event, Event::TimedOut(_) | Event::Unreachable(_)), "{event:?}");
    flushed(ias, &client, client.recv, 77);
}

/// The address of the peer outlives everything that came with its request.
pub fn fault_26_an_endpoint_keeps_its_own_copy_of_the_peer(ias: &mut Adapters<'_, impl Side>) {
    let [client, server] = ias.connected();
    let peer = ias.b.ep_query(server.ep).unwrap().remote;
    assert_eq!(peer, Some(ias.a.address()));
    ias.disconnect(&client, CloseFlag::Abrupt);
    ias.event(B, server.conn);
    assert_eq!(ias.b.ep_query(server.ep).unwrap().remote, peer);
    ias.b.ep_reset(server.ep).unwrap();
    assert_eq!(ias.b.ep_query(server.ep).unwrap().remote, None);
    // It can ask now, although it was asked before.
    let other = ias.end(A);
    ias.connect(&server, &other);
}
