//! Duplicated connections.

use core::time::Duration;

use dat_core::{CloseFlag, DatSubtype, DatType, EpState, Event, Qos};

use super::super::{A, B, Bed, End, LIMIT, Point, Side, refused};

const QOS: Qos = Qos::BestEffort;

/// A connection whose service point still listens.
fn linked(bed: &mut Bed<'_, impl Side>) -> (End, End, Point) {
    let (client, server, point) = (bed.end(A), bed.end(B), bed.listen(B));
    bed.ask(&client, point.qualifier, LIMIT, b"");
    let cr = bed.request(&point);
    let now = bed.now();
    bed.b.cr_accept(now, cr, Some(server.ep), b"").unwrap();
    for end in [&client, &server] {
        assert_eq!(bed.event(end.side, end.conn), Event::Established(end.ep));
    }
    (client, server, point)
}

/// Another connection to where one leads already.
pub fn dup_connect_leads_to_the_same_service_point(bed: &mut Bed<'_, impl Side>) {
    let (client, _, point) = linked(bed);
    let (twin, server, now) = (bed.end(A), bed.end(B), bed.now());
    bed.a.ep_dup_connect(now, twin.ep, client.ep, LIMIT, b"again", QOS).unwrap();
    assert_eq!(bed.state(&twin), EpState::ActiveConnectionPending);
    let cr = bed.request(&point);
    assert_eq!(&bed.b.cr_query(cr).unwrap().private_data[..5], b"again");
    let now = bed.now();
    bed.b.cr_accept(now, cr, Some(server.ep), b"").unwrap();
    assert_eq!(bed.event(A, twin.conn), Event::Established(twin.ep));
    let (one, two) = (bed.a.ep_query(client.ep).unwrap(), bed.a.ep_query(twin.ep).unwrap());
    assert_eq!((one.remote, one.remote_port), (two.remote, two.remote_port));
    // A twin can be twinned.
    let third = bed.merged_end(A);
    bed.a.ep_dup_connect(now, third.ep, twin.ep, LIMIT, b"", QOS).unwrap();
    bed.request(&point);
}

/// The one to follow must be connected.
pub fn dup_connect_follows_a_connection(bed: &mut Bed<'_, impl Side>) {
    let (client, server, _) = linked(bed);
    let (twin, idle, now) = (bed.end(A), bed.end(A), bed.now());
    let asked = bed.a.ep_dup_connect(now, twin.ep, idle.ep, LIMIT, b"", QOS);
    refused(asked, DatType::InvalidState, DatSubtype::InvalidStateEpUnconnected);
    bed.disconnect(&client, CloseFlag::Abrupt);
    let asked = bed.a.ep_dup_connect(now, twin.ep, client.ep, LIMIT, b"", QOS);
    refused(asked, DatType::InvalidState, DatSubtype::InvalidStateEpDisconnected);
    bed.a.ep_free(now, idle.ep).unwrap();
    let asked = bed.a.ep_dup_connect(now, twin.ep, idle.ep, LIMIT, b"", QOS);
    refused(asked, DatType::InvalidHandle, DatSubtype::InvalidHandleEp);
    assert_eq!(bed.state(&twin), EpState::Unconnected);
    bed.event(B, server.conn);
}

/// Otherwise it is a connect like any other.
pub fn dup_connect_checks_its_arguments(bed: &mut Bed<'_, impl Side>) {
    let (client, _, _) = linked(bed);
    let (twin, now) = (bed.end(A), bed.now());
    let (ia, dup) = (&mut bed.a.ia, client.ep);
    let parameter = DatType::InvalidParameter;
    let asked = ia.ep_dup_connect(now, twin.ep, dup, Duration::ZERO, b"", QOS);
    refused(asked, parameter, DatSubtype::InvalidArg4);
    let asked = ia.ep_dup_connect(now, twin.ep, dup, LIMIT, &[0; 57], QOS);
    refused(asked, parameter, DatSubtype::InvalidArg5);
    let asked = ia.ep_dup_connect(now, twin.ep, dup, LIMIT, b"", Qos::Premium);
    refused(asked, DatType::ModelNotSupported, DatSubtype::None);
    let asked = ia.ep_dup_connect(now, dup, dup, LIMIT, b"", QOS);
    refused(asked, DatType::InvalidState, DatSubtype::InvalidStateEpConnected);
    assert_eq!(bed.state(&twin), EpState::Unconnected);
}

/// Who was asked knows no service point of the peer: its port there is nothing that listens.
pub fn fault_39_dup_connect_of_an_accepted_endpoint_is_refused(bed: &mut Bed<'_, impl Side>) {
    let (_, server, _) = linked(bed);
    let (twin, now) = (bed.end(B), bed.now());
    let asked = bed.b.ep_dup_connect(now, twin.ep, server.ep, LIMIT, b"", QOS);
    refused(asked, DatType::InvalidParameter, DatSubtype::InvalidArg2);
    assert_eq!(bed.state(&twin), EpState::Unconnected);
}
