//! Duplicated connections.

use core::time::Duration;

use dat_core::{CloseFlag, DatSubtype, DatType, EpState, Event, Qos};

use super::super::{A, Adapters, B, End, LIMIT, Point, Side, refused};

const QOS: Qos = Qos::BestEffort;

/// A connection whose service point still listens.
fn linked(ias: &mut Adapters<'_, impl Side>) -> (End, End, Point) {
    let (client, server, point) = (ias.end(A), ias.end(B), ias.listen(B));
    ias.ask(&client, point.qualifier, LIMIT, b"");
    let cr = ias.request(&point);
    let now = ias.now();
    ias.b.cr_accept(now, cr, Some(server.ep), b"").unwrap();
    for end in [&client, &server] {
        assert_eq!(ias.event(end.side, end.conn), Event::Established(end.ep));
    }
    (client, server, point)
}

/// Another connection to where one leads already.
pub fn dup_connect_leads_to_the_same_service_point(ias: &mut Adapters<'_, impl Side>) {
    let (client, _, point) = linked(ias);
    let (twin, server, now) = (ias.end(A), ias.end(B), ias.now());
    ias.a.ep_dup_connect(now, twin.ep, client.ep, LIMIT, b"again", QOS).unwrap();
    assert_eq!(ias.state(&twin), EpState::ActiveConnectionPending);
    let cr = ias.request(&point);
    assert_eq!(&ias.b.cr_query(cr).unwrap().private_data[..5], b"again");
    let now = ias.now();
    ias.b.cr_accept(now, cr, Some(server.ep), b"").unwrap();
    assert_eq!(ias.event(A, twin.conn), Event::Established(twin.ep));
    let (one, two) = (ias.a.ep_query(client.ep).unwrap(), ias.a.ep_query(twin.ep).unwrap());
    assert_eq!((one.remote, one.remote_port), (two.remote, two.remote_port));
    // A twin can be twinned.
    let third = ias.merged_end(A);
    ias.a.ep_dup_connect(now, third.ep, twin.ep, LIMIT, b"", QOS).unwrap();
    ias.request(&point);
}

/// The one to follow must be connected.
pub fn dup_connect_follows_a_connection(ias: &mut Adapters<'_, impl Side>) {
    let (client, server, _) = linked(ias);
    let (twin, idle, now) = (ias.end(A), ias.end(A), ias.now());
    let asked = ias.a.ep_dup_connect(now, twin.ep, idle.ep, LIMIT, b"", QOS);
    refused(asked, DatType::InvalidState, DatSubtype::InvalidStateEpUnconnected);
    ias.disconnect(&client, CloseFlag::Abrupt);
    let asked = ias.a.ep_dup_connect(now, twin.ep, client.ep, LIMIT, b"", QOS);
    refused(asked, DatType::InvalidState, DatSubtype::InvalidStateEpDisconnected);
    ias.a.ep_free(now, idle.ep).unwrap();
    let asked = ias.a.ep_dup_connect(now, twin.ep, idle.ep, LIMIT, b"", QOS);
    refused(asked, DatType::InvalidHandle, DatSubtype::InvalidHandleEp);
    assert_eq!(ias.state(&twin), EpState::Unconnected);
    ias.event(B, server.conn);
}

/// Otherwise it is a connect like any other.
pub fn dup_connect_checks_its_arguments(ias: &mut Adapters<'_, impl Side>) {
    let (client, _, _) = linked(ias);
    let (twin, now) = (ias.end(A), ias.now());
    let (ia, dup) = (&mut ias.a.ia, client.ep);
    let parameter = DatType::InvalidParameter;
    let asked = ia.ep_dup_connect(now, twin.ep, dup, Duration::ZERO, b"", QOS);
    refused(asked, parameter, DatSubtype::InvalidArg4);
    let asked = ia.ep_dup_connect(now, twin.ep, dup, LIMIT, &[0; 57], QOS);
    refused(asked, parameter, DatSubtype::InvalidArg5);
    let asked = ia.ep_dup_connect(now, twin.ep, dup, LIMIT, b"", Qos::Premium);
    refused(asked, DatType::ModelNotSupported, DatSubtype::None);
    let asked = ia.ep_dup_connect(now, dup, dup, LIMIT, b"", QOS);
    refused(asked, DatType::InvalidState, DatSubtype::InvalidStateEpConnected);
    assert_eq!(ias.state(&twin), EpState::Unconnected);
}

/// The accepting side knows no service point of the peer: nothing listens at its port there.
pub fn fault_39_dup_connect_of_an_accepted_endpoint_is_refused(ias: &mut Adapters<'_, impl Side>) {
    let (_, server, _) = linked(ias);
    let (twin, now) = (ias.end(B), ias.now());
    let asked = ias.b.ep_dup_connect(now, twin.ep, server.ep, LIMIT, b"", QOS);
    refused(asked, DatType::InvalidParameter, DatSubtype::InvalidArg2);
    assert_eq!(ias.state(&twin), EpState::Unconnected);
}
