//! The messages: recorded bytes of stacks that are not ours, and properties over all bytes and all
//! messages.
//!
//! Length: recorded messages are long, and one generator makes all of them.

use core::net::IpAddr;

use dat_core::Instant;
use dat_core::cm::wire::{
    About, Ari, Drep, DrepRepr, Dreq, DreqRepr, Header, IpHeader, Message, Mra, MraRepr, Reason,
    Rej, RejRepr, Rep, RepRepr, Req, ReqRepr, Rtu, RtuRepr, ServiceId, SidrRepRepr, SidrReqRepr,
    SidrStatus, WireError,
};
use dat_core::cm::{Cause, Cm, CmEvent, ConnId, ConnectParams};
use dat_core::provider::{Class, Mtu};
use proptest::prelude::*;

use crate::pair::{A, GUIDS, cm, v4, v6};

// Recorded between Linux' Soft-RoCE (rping over rdma_cm) and itself, then between it and a stack of
// its own making. Trailing zeros are left out.

/// REQ of rxe.
const RXE_REQ: &str = "\
    010702030000000000000002301bbb14001000000000000014bb1b30000000000000000001061c06505400ff\
    fe12340100000000000000000000110100000001000000a010b315a7ffff37f0ffffffff0000000000000000\
    0000ffff0a09000100000000000000000000ffff0a0900023c52a00000400098000000000000000000000000\
    00000000000000000000000000000000000000000000000000000000000000000040a25c0000000000000000\
    000000000a0900010000000000000000000000000a090002";

/// REP of rxe.
const RXE_REP: &str = "\
    010702030000000000000002301bbb1400130000000000008f8b116314bb1b30000000000000110000000000\
    acb46300010178e0505400fffe123402";

/// RTU of rxe.
const RXE_RTU: &str = "\
    010702030000000000000002301bbb14001400000000000014bb1b308f8b1163";

/// DREQ of rxe.
const RXE_DREQ: &str = "\
    010702030000000000000002301bbb14001500000000000014bb1b308f8b1163000011";

/// DREP of rxe.
const RXE_DREP: &str = "\
    010702030000000000000002301bbb1400160000000000008f8b116314bb1b30";

/// REQ of rxe to another stack.
const OTHER_REQ: &str = "\
    01070203000000000000000216348e3e00100000000000003e8e3416000000000000000001061c06505400ff\
    fe12340100000000000000000000110100000001000000a00c3382a7ffff37f0ffffffff0000000000000000\
    0000ffff0a09000100000000000000000000ffff0a0900022ea1b00000400098000000000000000000000000\
    000000000000000000000000000000000000000000000000000000000000000000409b4b0000000000000000\
    000000000a0900010000000000000000000000000a090002";

/// REP of the other stack.
const OTHER_REP: &str = "\
    01070203000000000000000216348e3e0013000000000000abcd00013e8e3416000000000012340000000000\
    fffffe00010178e05254000099000002";

/// RTU of rxe.
const OTHER_RTU: &str = "\
    01070203000000000000000216348e3e00140000000000003e8e3416abcd0001";

/// DREQ of rxe.
const OTHER_DREQ: &str = "\
    01070203000000000000000216348e3e00150000000000003e8e3416abcd0001001234";

/// DREP of the other stack.
const OTHER_DREP: &str = "\
    01070203000000000000000216348e3e0016000000000000abcd00013e8e3416";

/// REQ of rxe to a closed port.
const CLOSED_REQ: &str = "\
    01070203000000000000000216348e3f00100000000000003f8e341600000000000000000106115c505400ff\
    fe12340100000000000000000000120100000001000000a07fac96a7ffff37f0ffffffff0000000000000000\
    0000ffff0a09000100000000000000000000ffff0a090002b08ac00000400098000000000000000000000000\
    00000000000000000000000000000000000000000000000000000000000000000040deb00000000000000000\
    000000000a0900010000000000000000000000000a090002";

/// The REJ it got.
const CLOSED_REJ: &str = "\
    01070203000000000000000216348e3f0012000000000000000000003f8e341600000008";

fn mad(hex: &str) -> [u8; 256] {
    let mut mad = [0; 256];
    for (byte, at) in mad.iter_mut().zip((0..hex.len()).step_by(2)) {
        *byte = u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    }
    mad
}

fn message(hex: &str) -> (u64, Message) {
    Message::parse(&mad(hex)).unwrap()
}

#[test]
fn recorded_messages_are_written_again_byte_by_byte() {
    for hex in [
        RXE_REQ, RXE_REP, RXE_RTU, RXE_DREQ, RXE_DREP, OTHER_REQ, OTHER_REP, OTHER_RTU, OTHER_DREQ,
        OTHER_DREP, CLOSED_REQ, CLOSED_REJ,
    ] {
        let (transaction, message) = message(hex);
        assert_eq!(message.emit(transaction), mad(hex), "{message:?}");
    }
}

#[test]
fn the_recorded_req() {
    let (transaction, Message::Req(req)) = message(RXE_REQ) else { panic!() };
    assert_eq!(transaction, 0x0000_0002_301b_bb14);
    assert_eq!(req.local_id, 0x14bb_1b30);
    assert_eq!(req.service, ServiceId::tcp(7174));
    assert_eq!(req.guid, 0x5054_00ff_fe12_3401);
    assert_eq!((req.qpn, req.starting_psn), (0x11, 0x10_b315));
    assert_eq!((req.responder_resources, req.initiator_depth), (1, 1));
    assert_eq!((req.remote_response_timeout, req.local_response_timeout), (20, 20));
    assert_eq!((req.max_retries, req.retry_count, req.rnr_retry), (15, 7, 7));
    assert_eq!((req.ack_timeout, req.mtu, req.p_key), (19, Mtu::B1024, 0xffff));
    assert_eq!((req.local, req.remote), (v4(1), v4(2)));
    assert_eq!((req.flow_label, req.traffic_class, req.hop_limit, req.sl), (0x3c52a, 0, 64, 0));
    let header = IpHeader::parse(req.private_data.first_chunk().unwrap()).unwrap();
    assert_eq!(Some(header), IpHeader::new(0xa25c, v4(1), v4(2)));
    assert_eq!(req.private_data[36..], [0; 56]);
}

#[test]
fn the_recorded_rep() {
    let (_, Message::Rep(rep)) = message(RXE_REP) else { panic!() };
    assert_eq!((rep.local_id, rep.remote_id), (0x8f8b_1163, 0x14bb_1b30));
    assert_eq!((rep.qpn, rep.starting_psn), (0x11, 0xac_b463));
    assert_eq!((rep.responder_resources, rep.initiator_depth), (1, 1));
    assert_eq!((rep.target_ack_delay, rep.rnr_retry), (15, 7));
    assert_eq!((rep.flow_control, rep.srq, rep.guid), (false, false, 0x5054_00ff_fe12_3402));
}

#[test]
fn the_recorded_rest() {
    let (_, Message::Rtu(rtu)) = message(RXE_RTU) else { panic!() };
    assert_eq!((rtu.local_id, rtu.remote_id), (0x14bb_1b30, 0x8f8b_1163));
    let (_, Message::Dreq(dreq)) = message(OTHER_DREQ) else { panic!() };
    assert_eq!(
        (dreq.local_id, dreq.remote_id, dreq.remote_qpn),
        (0x3e8e_3416, 0xabcd_0001, 0x1234)
    );
    let (_, Message::Drep(drep)) = message(RXE_DREP) else { panic!() };
    assert_eq!((drep.local_id, drep.remote_id), (0x8f8b_1163, 0x14bb_1b30));
    let (_, Message::Rej(rej)) = message(CLOSED_REJ) else { panic!() };
    assert_eq!((rej.local_id, rej.remote_id), (0, 0x3f8e_3416));
    assert_eq!((rej.about, rej.reason), (About::Req, Reason::INVALID_SERVICE_ID));
}

#[test]
fn the_recorded_req_is_a_request() {
    let mut cm = cm(1, 1, 1);
    cm.input(Instant::ZERO, v4(1), &mad(RXE_REQ));
    let Some(CmEvent::Request(request)) = cm.poll_event() else { panic!() };
    assert_eq!((request.service.port(), request.remote_port), (Some(7174), 0xa25c));
    assert_eq!((request.terms.sq_psn, request.terms.remote_qpn), (0x10_b315, 0x11));
    assert_eq!(cm.private_data(request.conn), [0; 56]);
}

/// The connection that rping asked for, asked for by us.
fn as_rping_asks(cm: &mut Cm<'_>) -> ConnId {
    let params = ConnectParams {
        remote: v4(2),
        local: v4(1),
        service: ServiceId::tcp(7174),
        source_port: 0xa25c,
        qpn: 0x11,
        responder_resources: 1,
        initiator_depth: 1,
        retry_count: 7,
        rnr_retry: 7,
        mtu: Mtu::B1024,
        ack_timeout: 19,
        flow_label: 0x3c52a,
        class: Class::default(),
        hop_limit: 64,
        private_data: &[],
    };
    cm.connect(Instant::ZERO, &params).unwrap()
}

#[test]
fn our_req_is_rpings_byte_by_byte_but_for_what_is_random() {
    let mut cm = cm(1, GUIDS[A], 1);
    let conn = as_rping_asks(&mut cm);
    let mut ours = cm.poll_transmit(Instant::ZERO).unwrap().mad;
    let mut theirs = mad(RXE_REQ);
    assert_eq!(Req::new_unchecked(&ours).local_id(), conn.comm_id());
    for req in [&mut ours, &mut theirs] {
        // The transaction ID.
        req[8..16].fill(0);
        let mut req = Req::new_unchecked(req);
        req.set_local_id(0);
        req.set_starting_psn(0);
    }
    assert_eq!(ours, theirs);
}

#[test]
fn recorded_answers_carry_a_connection_of_ours() {
    let mut cm = cm(1, GUIDS[A], 1);
    let conn = as_rping_asks(&mut cm);
    let ours = cm.poll_transmit(Instant::ZERO).unwrap().mad[8..16].to_vec();
    // Linux repeats the transaction of the REQ in all that follows.
    for recorded in [RXE_REP, RXE_RTU, RXE_DREP] {
        assert_eq!(mad(recorded)[8..16], mad(RXE_REQ)[8..16]);
    }
    let mut rep = mad(RXE_REP);
    Rep::new_unchecked(&mut rep).set_remote_id(conn.comm_id());
    rep[8..16].copy_from_slice(&ours);
    cm.input(Instant::ZERO, v4(2), &rep);
    let Some(CmEvent::Reply(reply)) = cm.poll_event() else { panic!() };
    assert_eq!((reply.terms.remote_qpn, reply.terms.sq_psn), (0x11, 0xac_b463));
    assert_eq!((reply.terms.responder_resources, reply.terms.initiator_depth), (1, 1));
    cm.ready(Instant::ZERO, conn).unwrap();
    let mut rtu = mad(RXE_RTU);
    Rtu::new_unchecked(&mut rtu).set_local_id(conn.comm_id());
    rtu[8..16].copy_from_slice(&ours);
    assert_eq!(cm.poll_transmit(Instant::ZERO).unwrap().mad, rtu);
    cm.disconnect(Instant::ZERO, conn).unwrap();
    let mut dreq = mad(RXE_DREQ);
    Dreq::new_unchecked(&mut dreq).set_local_id(conn.comm_id());
    let ours = cm.poll_transmit(Instant::ZERO).unwrap().mad;
    assert_eq!((&ours[..8], &ours[16..]), (&dreq[..8], &dreq[16..]));
    let mut drep = mad(RXE_DREP);
    Drep::new_unchecked(&mut drep).set_remote_id(conn.comm_id());
    drep[8..16].copy_from_slice(&ours[8..16]);
    cm.input(Instant::ZERO, v4(2), &drep);
    let end = CmEvent::Disconnected { conn, cause: Cause::Local };
    assert_eq!((cm.poll_event(), cm.poll_event()), (Some(end), None));
}

#[test]
fn the_recorded_rej_of_a_closed_port_is_a_rejection() {
    let mut cm = cm(1, GUIDS[A], 1);
    let conn = as_rping_asks(&mut cm);
    let mut rej = mad(CLOSED_REJ);
    assert_eq!(rej[8..16], mad(CLOSED_REQ)[8..16]);
    Rej::new_unchecked(&mut rej).set_remote_id(conn.comm_id());
    rej[8..16].copy_from_slice(&cm.poll_transmit(Instant::ZERO).unwrap().mad[8..16]);
    cm.input(Instant::ZERO, v4(2), &rej);
    let reason = Reason::INVALID_SERVICE_ID;
    assert_eq!(cm.poll_event(), Some(CmEvent::Rejected { conn, reason }));
}

#[test]
fn the_recorded_ip_header_of_ipv6() {
    let mut bytes = [0; 36];
    bytes[..4].copy_from_slice(&[0x00, 0x60, 0xb7, 0xfd]);
    for (at, last) in [(4, 1), (20, 2)] {
        bytes[at..at + 4].copy_from_slice(&[0xfd, 0, 0, 9]);
        bytes[at + 15] = last;
    }
    let header = IpHeader::parse(&bytes).unwrap();
    assert_eq!(Some(header), IpHeader::new(0xb7fd, v6(1), v6(2)));
    assert_eq!(header.emit(), bytes);
}

#[test]
fn a_rep_without_id_or_queue_pair_is_none() {
    let good = mad(RXE_REP);
    assert!(Message::parse(&good).is_ok());
    let mut unnamed = good;
    unnamed[24..28].fill(0);
    assert_eq!(Message::parse(&unnamed), Err(WireError::Field));
    for (qpn, result) in [(0, Err(WireError::Field)), (1, Err(WireError::Field)), (2, Ok(()))] {
        let mut rep = good;
        rep[36..39].copy_from_slice(&[0, 0, qpn]);
        assert_eq!(Message::parse(&rep).map(drop), result);
    }
}

#[test]
fn an_ip_header_of_another_version_is_none() {
    let good = IpHeader::new(1, v4(1), v4(2)).unwrap().emit();
    for (at, value) in [(0, 1), (1, 0x50), (1, 0x00), (1, 0xf0)] {
        let mut bad = good;
        bad[at] = value;
        assert_eq!(IpHeader::parse(&bad), Err(WireError::Field));
    }
    assert_eq!(IpHeader::new(1, v4(1), v6(2)), None);
}

#[test]
fn services_are_ports() {
    assert_eq!(ServiceId::tcp(7174), ServiceId(0x0000_0000_0106_1c06));
    for port in [0, 1, 7174, 0xffff] {
        assert_eq!(ServiceId::tcp(port).port(), Some(port));
    }
    for port in [0, 1, 7174, 0xffff] {
        assert_eq!(ServiceId::udp(port).udp_port(), Some(port));
        assert_eq!(ServiceId::tcp(port).udp_port(), None);
    }
    assert_eq!(ServiceId::udp(7174), ServiceId(0x0111_1c06));
    // UDP space, another prefix, and a number that is too long.
    for other in [0x0111_1c06, 0x1c06, 0x1_0000_0106_1c06] {
        assert_eq!(ServiceId(other).port(), None);
    }
}

#[test]
fn only_the_header_of_connection_management_is_taken() {
    let good = mad(RXE_RTU);
    for at in 0..4 {
        let mut bad = good;
        bad[at] ^= 1;
        assert_eq!(Header::new_checked(&bad).err(), Some(WireError::Header));
    }
    let mut bad = good;
    bad[17] = 0x19;
    assert_eq!(Message::parse(&bad), Err(WireError::Attribute(0x19)));
    assert_eq!(Req::new_checked(&good).err(), Some(WireError::Attribute(0x14)));
    // A status and a class-specific word change nothing.
    let mut odd = good;
    odd[4..8].fill(0xff);
    assert_eq!(Message::parse(&odd), Message::parse(&good));
}

#[test]
fn a_req_that_cannot_be_served_says_why() {
    let spoil = |change: fn(&mut Req<&mut [u8; 256]>)| {
        let mut bytes = mad(RXE_REQ);
        change(&mut Req::new_unchecked(&mut bytes));
        match Message::parse(&bytes) {
            Err(WireError::Refuse(reason)) => reason,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(spoil(|req| req.set_transport(1)), Reason::INVALID_TRANSPORT);
    assert_eq!(spoil(|req| req.set_extended_transport(1)), Reason::INVALID_TRANSPORT);
    assert_eq!(spoil(|req| req.set_qpn(1)), Reason::NO_QP);
    assert_eq!(spoil(|req| req.set_local_id(0)), Reason::INVALID_COMM_ID);
    for code in [0, 6, 15] {
        assert!(Mtu::from_code(code).is_none());
    }
    assert_eq!(spoil(|req| req.set_mtu(0)), Reason::INVALID_MTU);
    assert_eq!(spoil(|req| req.set_mtu(6)), Reason::INVALID_MTU);
    assert_eq!(spoil(|req| req.set_remote_gid(1)), Reason::INVALID_GID);
}

#[test]
fn setters_stay_within_their_fields() {
    // Set each field of a view to ones, then zero, on a background of the opposite: all else stays.
    type Set = fn(&mut Req<&mut [u8; 256]>, bool);
    let fields: [Set; 12] = [
        |req, on| req.set_qpn(if on { u32::MAX } else { 0 }),
        |req, on| req.set_remote_response_timeout(if on { 0xff } else { 0 }),
        |req, on| req.set_transport(if on { 0xff } else { 0 }),
        |req, on| req.set_flow_control(on),
        |req, on| req.set_starting_psn(if on { u32::MAX } else { 0 }),
        |req, on| req.set_retry_count(if on { 0xff } else { 0 }),
        |req, on| req.set_mtu(if on { 0xff } else { 0 }),
        |req, on| req.set_rnr_retry(if on { 0xff } else { 0 }),
        |req, on| req.set_flow_label(if on { u32::MAX } else { 0 }),
        |req, on| req.set_packet_rate(if on { 0xff } else { 0 }),
        |req, on| req.set_subnet_local(on),
        |req, on| req.set_ack_timeout(if on { 0xff } else { 0 }),
    ];
    let widths = [24, 5, 2, 1, 24, 3, 4, 3, 20, 6, 1, 5];
    for (set, width) in fields.iter().zip(widths) {
        for on in [true, false] {
            let mut bytes = [if on { 0 } else { 0xff }; 256];
            set(&mut Req::new_unchecked(&mut bytes), on);
            let ones: u32 = bytes.iter().map(|byte| byte.count_ones()).sum();
            assert_eq!(if on { ones } else { 2048 - ones }, width);
        }
    }
}

#[test]
fn reasons_have_their_numbers() {
    assert_eq!(Reason::STALE.0, 10);
    assert_eq!(Reason::CONSUMER.0, 28);
    assert_eq!(Reason::VENDOR_OPTION.0, 35);
    assert_eq!(Reason::ALL.len(), 34);
    assert!(Reason::ALL.iter().all(|reason| reason.text().is_some()));
    assert_eq!(Reason(34).text(), None);
    assert_eq!(Reason(0).text(), None);
    assert_eq!(
        Reason::INVALID_SERVICE_ID.to_string(),
        "nobody listens on that service (CM reason 8)"
    );
    assert_eq!(Reason(999).to_string(), "unknown (CM reason 999)");
}

#[test]
fn an_ari_length_beyond_its_field_is_cut() {
    let mut bytes = mad(CLOSED_REJ);
    Rej::new_unchecked(&mut bytes).set_ari_len(127);
    let Ok((_, Message::Rej(rej))) = Message::parse(&bytes) else { panic!() };
    assert_eq!(rej.ari.as_slice(), [0; 72]);
    assert_eq!(Ari::new(&[0; 73]), None);
    assert_eq!(Ari::new(&[0; 7]).unwrap().guid(), None);
    assert_eq!(Ari::new(&42_u64.to_be_bytes()).unwrap().guid(), Some(42));
}

fn addresses() -> impl Strategy<Value = (IpAddr, IpAddr)> {
    prop_oneof![
        any::<(u32, u32)>().prop_map(|(a, b)| {
            (core::net::Ipv4Addr::from_bits(a).into(), core::net::Ipv4Addr::from_bits(b).into())
        }),
        any::<(u128, u128)>().prop_map(|(a, b)| {
            // Not an IPv4 address in IPv6 form.
            let v6 = |bits: u128| core::net::Ipv6Addr::from_bits(bits | 1 << 127).into();
            (v6(a), v6(b))
        }),
    ]
}

fn bytes<const N: usize>() -> impl Strategy<Value = [u8; N]> {
    proptest::collection::vec(any::<u8>(), N).prop_map(|bytes| bytes.try_into().unwrap())
}

fn about() -> impl Strategy<Value = About> {
    prop_oneof![Just(About::Req), Just(About::Rep), Just(About::Other)]
}

prop_compose! {
    fn req()(
        (local_id, service, guid, qpn, starting_psn) in (1..=u32::MAX, any::<u64>(), any::<u64>(), 2_u32..1 << 24, 0_u32..1 << 24),
        (responder_resources, initiator_depth, p_key, traffic_class, hop_limit) in any::<(u8, u8, u16, u8, u8)>(),
        (remote_response_timeout, local_response_timeout, ack_timeout) in (0_u8..32, 0_u8..32, 0_u8..32),
        (max_retries, sl, retry_count, rnr_retry, mtu) in (0_u8..16, 0_u8..16, 0_u8..8, 0_u8..8, 1_u8..6),
        (flow_control, srq, flow_label) in (any::<bool>(), any::<bool>(), 0_u32..1 << 20),
        (local, remote) in addresses(),
        private_data in bytes(),
    ) -> ReqRepr {
        let (service, mtu) = (ServiceId(service), Mtu::from_code(mtu).unwrap());
        ReqRepr {
            local_id, service, guid, qpn, responder_resources, initiator_depth, remote_response_timeout,
            local_response_timeout, max_retries, starting_psn, retry_count, rnr_retry, ack_timeout, p_key, mtu,
            flow_control, srq, local, remote, flow_label, traffic_class, hop_limit, sl, private_data,
        }
    }
}

prop_compose! {
    fn rep()(
        (local_id, remote_id, qpn, starting_psn, guid) in (1..=u32::MAX, any::<u32>(), 2_u32..1 << 24, 0_u32..1 << 24, any::<u64>()),
        (responder_resources, initiator_depth, target_ack_delay, rnr_retry) in (any::<u8>(), any::<u8>(), 0_u8..32, 0_u8..8),
        (flow_control, srq) in any::<(bool, bool)>(),
        private_data in bytes(),
    ) -> RepRepr {
        RepRepr {
            local_id, remote_id, qpn, starting_psn, responder_resources, initiator_depth, target_ack_delay,
            rnr_retry, flow_control, srq, guid, private_data,
        }
    }
}

fn any_message() -> impl Strategy<Value = Message> {
    let ids = || any::<(u32, u32)>();
    prop_oneof![
        req().prop_map(Message::Req),
        rep().prop_map(Message::Rep),
        (ids(), about(), 0_u8..32, bytes()).prop_map(
            |((local_id, remote_id), about, service_timeout, private_data)| {
                Message::Mra(MraRepr { local_id, remote_id, about, service_timeout, private_data })
            }
        ),
        (1_u32.., any::<(u16, u64)>(), bytes()).prop_map(
            |(request_id, (p_key, service), private_data)| {
                Message::SidrReq(SidrReqRepr {
                    request_id,
                    p_key,
                    service: ServiceId(service),
                    private_data,
                })
            }
        ),
        (1_u32.., any::<(u8, u64, u32)>(), 2_u32..1 << 24, bytes()).prop_map(
            |(request_id, (status, service, q_key), qpn, private_data)| {
                Message::SidrRep(SidrRepRepr {
                    request_id,
                    status: SidrStatus(status),
                    qpn,
                    service: ServiceId(service),
                    q_key,
                    private_data,
                })
            }
        ),
        (ids(), bytes()).prop_map(|((local_id, remote_id), private_data)| Message::Rtu(RtuRepr {
            local_id,
            remote_id,
            private_data
        })),
        (ids(), bytes()).prop_map(|((local_id, remote_id), private_data)| Message::Drep(
            DrepRepr { local_id, remote_id, private_data }
        )),
        (ids(), 0_u32..1 << 24, bytes()).prop_map(
            |((local_id, remote_id), remote_qpn, private_data)| {
                Message::Dreq(DreqRepr { local_id, remote_id, remote_qpn, private_data })
            }
        ),
        (ids(), about(), any::<u16>(), proptest::collection::vec(any::<u8>(), 0..=72), bytes())
            .prop_map(|((local_id, remote_id), about, reason, ari, private_data)| {
                let (reason, ari) = (Reason(reason), Ari::new(&ari).unwrap());
                Message::Rej(RejRepr { local_id, remote_id, about, reason, ari, private_data })
            }),
    ]
}

proptest! {
    #[test]
    fn written_values_are_read_back(message in any_message(), transaction: u64) {
        let bytes = message.emit(transaction);
        prop_assert_eq!(Message::parse(&bytes), Ok((transaction, message)));
    }

    #[test]
    fn read_messages_are_written_alike(message in any_message(), noise in bytes::<232>()) {
        // Noise where fields are: what can be read at all survives being written and read again.
        let mut bytes = message.emit(7);
        for (byte, noise) in bytes[24..].iter_mut().zip(noise) {
            *byte ^= noise;
        }
        if let Ok((transaction, message)) = Message::parse(&bytes) {
            prop_assert_eq!(Message::parse(&message.emit(transaction)), Ok((transaction, message)));
        }
    }

    #[test]
    fn any_bytes_can_be_looked_at(bytes in bytes::<256>(), attribute in 0x0f_u8..0x1c) {
        let mut like = bytes;
        like[..4].copy_from_slice(&[1, 7, 2, 3]);
        like[16..18].copy_from_slice(&[0, attribute]);
        let _ = Message::parse(&bytes);
        let _ = Message::parse(&like);
        let _ = format!("{:?} {:?}", Req::new_unchecked(&bytes).local_gid(), Rep::new_unchecked(&bytes).guid());
        let _ = (Mra::new_unchecked(&bytes).about(), Rtu::new_unchecked(&bytes).private_data());
        let _ = (Rej::new_unchecked(&bytes).ari_len(), Dreq::new_unchecked(&bytes).remote_qpn());
        let _ = Drep::new_unchecked(&bytes).remote_id();
    }

    #[test]
    fn ip_headers_are_read_as_written(port: u16, (source, destination) in addresses()) {
        let header = IpHeader::new(port, source, destination).unwrap();
        prop_assert_eq!(IpHeader::parse(&header.emit()), Ok(header));
        prop_assert_eq!(header.source_port(), port);
    }
}
