//! Service points.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};

use dat_core::{Comm, DatSubtype, DatType, Ep, EpState, EvdFlags, Event, PspFlag};

use super::super::ep::next_request;
use super::super::{A, Adapters, B, End, LIMIT, NONE, Side, refused};

const HANDLE: DatType = DatType::InvalidHandle;

/// A service point is what it was made for.
pub fn psp_query_tells_what_it_is(ias: &mut Adapters<'_, impl Side>) {
    let evd = ias.a.evd_create(8, EvdFlags::CR).unwrap();
    for (qualifier, flag) in [(1, PspFlag::Consumer), (65535, PspFlag::Provider)] {
        let psp = ias.a.psp_create(qualifier, evd, flag).unwrap();
        let param = ias.a.psp_query(psp).unwrap();
        assert_eq!((param.conn_qual, param.evd, param.flag), (qualifier, evd, flag));
    }
}

/// Its Event Dispatcher must take requests, and its qualifier be a port.
pub fn psp_create_checks_its_arguments(ias: &mut Adapters<'_, impl Side>) {
    let dto = ias.a.evd_create(8, EvdFlags::DTO).unwrap();
    let evd = ias.a.evd_create(8, EvdFlags::CR).unwrap();
    let made = ias.a.psp_create(7, dto, PspFlag::Consumer);
    refused(made, HANDLE, DatSubtype::InvalidHandleEvdCr);
    let made = ias.a.psp_create_any(dto, PspFlag::Consumer);
    refused(made, HANDLE, DatSubtype::InvalidHandleEvdCr);
    for qualifier in [0, 65536, u64::MAX] {
        let made = ias.a.psp_create(qualifier, evd, PspFlag::Consumer);
        refused(made, DatType::InvalidParameter, DatSubtype::InvalidArg2);
    }
    ias.a.evd_free(dto).unwrap();
}

/// A qualifier has one listener, of whatever kind.
pub fn a_qualifier_is_used_once(ias: &mut Adapters<'_, impl Side>) {
    let evd = ias.a.evd_create(8, EvdFlags::CR).unwrap();
    let (end, own) = (ias.end(A), ias.a.address());
    let psp = ias.a.psp_create(700, evd, PspFlag::Consumer).unwrap();
    let rsp = ias.a.rsp_create(701, Some(end.ep), evd).unwrap();
    let tcp = Comm::tcp(false);
    let csp = ias.a.csp_create(tcp, SocketAddr::new(own, 702), evd).unwrap();
    let other = ias.end(A);
    for qualifier in 700..703_u16 {
        let made = ias.a.psp_create(qualifier.into(), evd, PspFlag::Consumer);
        refused(made, DatType::ConnQualInUse, DatSubtype::None);
        let made = ias.a.rsp_create(qualifier.into(), Some(other.ep), evd);
        refused(made, DatType::ConnQualInUse, DatSubtype::None);
        let made = ias.a.csp_create(tcp, SocketAddr::new(own, qualifier), evd);
        refused(made, DatType::PortInUse, DatSubtype::None);
    }
    assert_eq!(ias.state(&other), EpState::Unconnected);
    // Free again, they can be taken.
    let now = ias.now();
    ias.a.psp_free(psp).unwrap();
    ias.a.rsp_free(now, rsp).unwrap();
    ias.a.csp_free(csp).unwrap();
    for qualifier in 700..703 {
        ias.a.psp_create(qualifier, evd, PspFlag::Consumer).unwrap();
    }
}

/// A qualifier of the provider's choice, and another each time.
pub fn create_any_finds_a_free_qualifier(ias: &mut Adapters<'_, impl Side>) {
    let evd = ias.b.evd_create(8, EvdFlags::CR).unwrap();
    let (one, first) = ias.b.psp_create_any(evd, PspFlag::Consumer).unwrap();
    let (_, second) = ias.b.psp_create_any(evd, PspFlag::Consumer).unwrap();
    assert_ne!(first, second);
    assert_eq!(ias.b.psp_query(one).unwrap().conn_qual, first);
    let client = ias.end(A);
    ias.ask(&client, first, LIMIT, b"");
    let Event::ConnectionRequest { psp, conn_qual, .. } = ias.event(B, evd) else { panic!() };
    assert_eq!((psp, conn_qual), (one, first));
}

/// A service point holds its Event Dispatcher; freed, it is known no more.
pub fn service_points_hold_their_evds(ias: &mut Adapters<'_, impl Side>) {
    let evd = ias.a.evd_create(8, EvdFlags::CR).unwrap();
    let (end, own) = (ias.end(A), ias.a.address());
    let in_use = |ias: &mut Adapters<'_, _>| {
        refused(ias.a.evd_free(evd), DatType::InvalidState, DatSubtype::InvalidStateEvdInUse);
    };
    let now = ias.now();
    let psp = ias.a.psp_create(700, evd, PspFlag::Consumer).unwrap();
    in_use(ias);
    ias.a.psp_free(psp).unwrap();
    let rsp = ias.a.rsp_create(700, Some(end.ep), evd).unwrap();
    in_use(ias);
    ias.a.rsp_free(now, rsp).unwrap();
    let address = SocketAddr::new(own, 700);
    let csp = ias.a.csp_create(Comm::tcp(false), address, evd).unwrap();
    in_use(ias);
    ias.a.csp_free(csp).unwrap();
    ias.a.evd_free(evd).unwrap();
    refused(ias.a.psp_query(psp), HANDLE, DatSubtype::InvalidHandlePsp);
    refused(ias.a.psp_free(psp), HANDLE, DatSubtype::InvalidHandlePsp);
    refused(ias.a.rsp_query(rsp), HANDLE, DatSubtype::InvalidHandleRsp);
    let freed = ias.a.rsp_free(now, rsp);
    refused(freed, HANDLE, DatSubtype::InvalidHandleRsp);
    refused(ias.a.csp_query(csp), HANDLE, DatSubtype::InvalidHandleCsp);
    refused(ias.a.csp_free(csp), HANDLE, DatSubtype::InvalidHandleCsp);
}

/// Requests keep coming to a PSP, one after another.
pub fn a_psp_takes_any_number_of_requests(ias: &mut Adapters<'_, impl Side>) {
    let point = ias.listen(B);
    for _ in 0..3 {
        let client = ias.merged_end(A);
        ias.ask(&client, point.qualifier, LIMIT, b"");
        let cr = ias.request(&point);
        assert_eq!(ias.b.cr_query(cr).unwrap().local_ep, None);
        let now = ias.now();
        ias.b.cr_reject(now, cr, b"").unwrap();
        ias.event(A, client.conn);
    }
}

/// Nobody listens any more; what has arrived stays as it is.
pub fn a_freed_psp_leaves_its_requests(ias: &mut Adapters<'_, impl Side>) {
    let (point, client, server) = (ias.listen(B), ias.end(A), ias.end(B));
    ias.ask(&client, point.qualifier, LIMIT, b"");
    let cr = ias.request(&point);
    ias.b.psp_free(point.psp).unwrap();
    let late = ias.end(A);
    ias.ask(&late, point.qualifier, LIMIT, b"");
    assert_eq!(ias.event(A, late.conn), Event::NonPeerRejected(late.ep));
    let now = ias.now();
    ias.b.cr_accept(now, cr, Some(server.ep), b"").unwrap();
    assert_eq!(ias.event(A, client.conn), Event::Established(client.ep));
}

/// A service point that was freed with a live connection is gone: its qualifier is free, and can be
/// taken again.
pub fn fault_38_a_freed_psp_is_gone(ias: &mut Adapters<'_, impl Side>) {
    let (point, client, server) = (ias.listen(B), ias.end(A), ias.end(B));
    ias.ask(&client, point.qualifier, LIMIT, b"");
    let cr = ias.request(&point);
    let now = ias.now();
    ias.b.cr_accept(now, cr, Some(server.ep), b"").unwrap();
    ias.event(A, client.conn);
    ias.b.psp_free(point.psp).unwrap();
    ias.b.evd_free(point.evd).unwrap();
    let evd = ias.b.evd_create(8, EvdFlags::CR).unwrap();
    let again = ias.b.psp_create(point.qualifier, evd, PspFlag::Consumer).unwrap();
    assert_ne!(again, point.psp);
    let second = ias.end(A);
    ias.ask(&second, point.qualifier, LIMIT, b"");
    let Event::ConnectionRequest { psp, .. } = ias.event(B, evd) else { panic!() };
    assert_eq!(psp, again);
    assert_eq!(ias.state(&server), EpState::Connected);
}

/// An RSP is what it was made for.
pub fn rsp_query_tells_what_it_is(ias: &mut Adapters<'_, impl Side>) {
    let (end, evd) = (ias.end(A), ias.a.evd_create(8, EvdFlags::CR).unwrap());
    let rsp = ias.a.rsp_create(4000, Some(end.ep), evd).unwrap();
    let param = ias.a.rsp_query(rsp).unwrap();
    assert_eq!((param.conn_qual, param.evd, param.ep), (4000, evd, end.ep));
}

/// Wrong arguments are refused.
pub fn rsp_create_checks_its_arguments(ias: &mut Adapters<'_, impl Side>) {
    let (end, evd) = (ias.end(A), ias.a.evd_create(8, EvdFlags::CR).unwrap());
    let made = ias.a.rsp_create(7, Some(end.ep), end.recv);
    refused(made, HANDLE, DatSubtype::InvalidHandleEvdCr);
    let made = ias.a.rsp_create(7, Some(Ep::from_raw(1)), evd);
    refused(made, HANDLE, DatSubtype::InvalidHandleEp);
    for qualifier in [0, 65536] {
        let made = ias.a.rsp_create(qualifier, Some(end.ep), evd);
        refused(made, DatType::InvalidParameter, DatSubtype::InvalidArg2);
    }
    assert_eq!(ias.state(&end), EpState::Unconnected);
}

/// One request, and no other.
pub fn an_rsp_takes_one_request(ias: &mut Adapters<'_, impl Side>) {
    let (server, evd) = (ias.end(B), ias.b.evd_create(8, EvdFlags::CR).unwrap());
    let qualifier = ias.free_qualifier();
    ias.b.rsp_create(qualifier, Some(server.ep), evd).unwrap();
    let (first, second) = (ias.merged_end(A), ias.merged_end(A));
    ias.ask(&first, qualifier, LIMIT, b"");
    let cr = next_request(ias, B, evd);
    ias.ask(&second, qualifier, LIMIT, b"");
    let refusal = Event::NonPeerRejected(second.ep);
    assert_eq!(ias.event(A, second.conn), refusal);
    // Nor after it was turned away.
    let now = ias.now();
    ias.b.cr_reject(now, cr, b"").unwrap();
    assert_eq!(ias.event(A, first.conn), Event::PeerRejected(first.ep));
    ias.a.ep_reset(second.ep).unwrap();
    ias.ask(&second, qualifier, LIMIT, b"");
    assert_eq!(ias.event(A, second.conn), refusal);
}

/// The address of a Common Service Point of side B.
fn common(ias: &mut Adapters<'_, impl Side>) -> (SocketAddr, dat_core::Csp, dat_core::Evd) {
    let evd = ias.b.evd_create(8, EvdFlags::CR).unwrap();
    let port = u16::try_from(ias.free_qualifier()).unwrap();
    let address = SocketAddr::new(ias.b.address(), port);
    let csp = ias.b.csp_create(Comm::tcp(false), address, evd).unwrap();
    (address, csp, evd)
}

/// A Common Service Point is what it was made for.
pub fn csp_query_tells_what_it_is(ias: &mut Adapters<'_, impl Side>) {
    let (address, csp, evd) = common(ias);
    let param = ias.b.csp_query(csp).unwrap();
    assert_eq!((param.comm, param.address, param.evd), (Comm::tcp(false), address, evd));
}

/// Unknown protocols, wrong addresses and wrong Event Dispatchers are refused.
pub fn csp_create_checks_its_arguments(ias: &mut Adapters<'_, impl Side>) {
    let (own, nobody) = (ias.a.address(), ias.nobody());
    let evd = ias.a.evd_create(8, EvdFlags::CR).unwrap();
    let dto = ias.a.evd_create(8, EvdFlags::DTO).unwrap();
    let (tcp, at) = (Comm::tcp(false), SocketAddr::new(own, 7));
    let mut foreign = [tcp; 3];
    foreign[0].domain = Comm::INET6;
    foreign[1].kind = 2;
    foreign[2].protocol = 17;
    for comm in foreign {
        let made = ias.a.csp_create(comm, at, evd);
        refused(made, DatType::CommNotSupported, DatSubtype::None);
    }
    for wrong in [SocketAddr::new(nobody, 7), SocketAddr::new(own, 0)] {
        let made = ias.a.csp_create(tcp, wrong, evd);
        refused(made, DatType::InvalidAddress, DatSubtype::AddressMalformed);
    }
    let made = ias.a.csp_create(tcp, at, dto);
    refused(made, HANDLE, DatSubtype::InvalidHandleEvdCr);
    let any = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 7);
    let implied = Comm { protocol: 0, ..tcp };
    ias.a.csp_create(implied, any, evd).unwrap();
}

/// The two ends of the 2.0 connection model.
pub fn fault_40_common_connect_reaches_a_csp(ias: &mut Adapters<'_, impl Side>) {
    let (address, csp, evd) = common(ias);
    let (client, server) = (ias.end(A), ias.end(B));
    let now = ias.now();
    ias.a.ep_common_connect(now, client.ep, address, LIMIT, b"in common").unwrap();
    assert_eq!(ias.state(&client), EpState::ActiveConnectionPending);
    let Event::CommonRequest { csp: from, cr, conn_qual } = ias.event(B, evd) else { panic!() };
    assert_eq!((from, conn_qual), (csp, address.port().into()));
    let param = ias.b.cr_query(cr).unwrap();
    assert_eq!(&param.private_data[..9], b"in common");
    let now = ias.now();
    ias.b.cr_accept(now, cr, Some(server.ep), b"").unwrap();
    for end in [&client, &server] {
        assert_eq!(ias.event(end.side, end.conn), Event::Established(end.ep));
    }
    ias.b.csp_free(csp).unwrap();
    let late = ias.end(A);
    let now = ias.now();
    ias.a.ep_common_connect(now, late.ep, address, LIMIT, b"").unwrap();
    assert_eq!(ias.event(A, late.conn), Event::NonPeerRejected(late.ep));
}

/// Its own arguments, and the state of the Endpoint.
pub fn common_connect_checks_its_arguments(ias: &mut Adapters<'_, impl Side>) {
    let (client, now, to) = (ias.end(A), ias.now(), ias.b.address());
    let ia = &mut ias.a.ia;
    let asked = ia.ep_common_connect(now, client.ep, SocketAddr::new(to, 0), LIMIT, b"");
    refused(asked, DatType::InvalidAddress, DatSubtype::AddressMalformed);
    let (at, none) = (SocketAddr::new(to, 7), core::time::Duration::ZERO);
    let asked = ia.ep_common_connect(now, client.ep, at, none, b"");
    refused(asked, DatType::InvalidParameter, DatSubtype::InvalidArg4);
    let asked = ia.ep_common_connect(now, client.ep, at, LIMIT, &[0; 57]);
    refused(asked, DatType::InvalidParameter, DatSubtype::InvalidArg5);
    let bare = ia.ep_create(None, None, None, None, None).unwrap();
    let asked = ia.ep_common_connect(now, bare, at, LIMIT, b"");
    refused(asked, DatType::InvalidState, DatSubtype::InvalidStateEpUnconfigured);
    assert_eq!(ias.state(&client), EpState::Unconnected);
    let _: End = client;
    let _ = NONE;
}
