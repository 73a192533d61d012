//! Queue pairs: transitions, what they merge, rings and records.

use super::super::qp::path;
use super::{BASE, CQ_PAGE, QP_DBR, QP_PAGE, Rig, control, pointer};
use crate::config::Config;
use crate::ifc::Field;
use crate::ifc::qp::{ads, qp_in, qpc, query_qp_out};
use crate::ifc::vport::{roce_addr_layout as layout, set_roce_address_in};

const INIT: &[(Field, u32)] = &[(qpc::pm_state, 3), (path(ads::vhca_port_num), 1), (qpc::rwe, 1)];
const RTR: &[(Field, u32)] = &[
    (qpc::mtu, 3),
    (qpc::log_msg_max, 30),
    (qpc::remote_qpn, 0x77),
    (qpc::next_rcv_psn, 0x123),
    (qpc::min_rnr_nak, 12),
    (path(ads::hop_limit), 64),
    (path(ads::udp_sport), 0xc001),
    (path(ads::rmac_31_0), 5),
    (path(ads::rgid_rip), 6),
];
const RTS: &[(Field, u32)] =
    &[(qpc::next_send_psn, 0x456), (qpc::retry_count, 5), (path(ads::ack_timeout), 14)];

/// Puts an address into the table, as SET_ROCE_ADDRESS does.
fn address(rig: &mut Rig) {
    let mut input = vec![0; 48];
    let to = set_roce_address_in::roce_address.bytes_mut(&mut input);
    layout::source_mac_31_0.set(to, 1);
    layout::roce_version.set(to, 2);
    to[10..12].copy_from_slice(&[0xff, 0xff]);
    to[12..16].copy_from_slice(&[192, 168, 7, 1]);
    rig.run(0x761, &input).unwrap();
}

/// Takes a new queue pair to RTS.
pub(super) fn to_rts(rig: &mut Rig, qpn: u32) {
    address(rig);
    rig.modify(0x502, qpn, 0, INIT).unwrap();
    rig.modify(0x503, qpn, 0, RTR).unwrap();
    rig.modify(0x504, qpn, 0, RTS).unwrap();
}

fn context(rig: &mut Rig, qpn: u32) -> Vec<u8> {
    let mut output = vec![0; 272];
    let mut input = vec![0; 16];
    input[8..12].copy_from_slice(&qpn.to_be_bytes());
    rig.query(0x50b, &input, &mut output).unwrap();
    query_qp_out::qpc.bytes(&output).to_vec()
}

/// The state QUERY_QP tells.
pub(super) fn state(rig: &mut Rig, qpn: u32) -> u32 {
    qpc::state.get(&context(rig, qpn))
}

fn rig() -> (Rig, u32) {
    let mut rig = Rig::new();
    let cqn = rig.cq(5);
    let qpn = rig.qp(cqn);
    (rig, qpn)
}

#[test]
fn where_no_capability_says_the_default_time_is_one() {
    for (config, formats) in
        [(Config::default(), [true, false, false]), (Config::infiniband(), [true, true, false])]
    {
        let mut rig = Rig::with(config);
        let cqn = rig.cq(5);
        for (format, taken) in (0..).zip(formats) {
            let mut input = rig.qp_input(cqn);
            qpc::ts_format.set(qp_in::qpc.bytes_mut(&mut input), format);
            assert_eq!(rig.run(0x500, &input).is_ok(), taken, "{format}");
        }
    }
}

#[test]
fn every_transition_from_every_state() {
    const OPCODES: [u16; 8] = [0x502, 0x50e, 0x503, 0x504, 0x505, 0x506, 0x507, 0x50a];
    // Rows: from RST, INIT, RTR, RTS, ERR; columns: the state each opcode leads to.
    const TABLE: [[Option<u32>; 8]; 5] = [
        [Some(1), None, None, None, None, None, Some(6), Some(0)],
        [None, Some(1), Some(2), None, None, None, Some(6), Some(0)],
        [None, None, None, Some(3), None, None, Some(6), Some(0)],
        [None, None, None, None, Some(3), None, Some(6), Some(0)],
        [None, None, None, None, None, None, Some(6), Some(0)],
    ];
    for (from, row) in TABLE.iter().enumerate() {
        for (opcode, want) in OPCODES.iter().zip(row) {
            let (mut rig, qpn) = rig();
            address(&mut rig);
            let way: &[(u16, &[(Field, u32)])] = &[(0x502, INIT), (0x503, RTR), (0x504, RTS)];
            for (opcode, fields) in way.iter().take(from.min(3)) {
                rig.modify(*opcode, qpn, 0, fields).unwrap();
            }
            if from == 4 {
                rig.short(0x507, qpn).unwrap();
            }
            let fields = match opcode {
                0x502 => INIT,
                0x503 => RTR,
                0x504 => RTS,
                _ => &[],
            };
            let got = rig.modify(*opcode, qpn, 0, fields);
            match want {
                Some(to) => {
                    got.unwrap();
                    assert_eq!(state(&mut rig, qpn), *to, "{opcode:#x} from {from}");
                }
                None => assert_eq!(got.unwrap_err().status, 0x10, "{opcode:#x} from {from}"),
            }
        }
    }
}

#[test]
fn required_fields_need_no_mask() {
    let (mut rig, qpn) = rig();
    to_rts(&mut rig, qpn);
    let context = context(&mut rig, qpn);
    for (field, value) in INIT.iter().chain(RTR).chain(RTS) {
        assert_eq!(field.get(&context), *value, "{field:?}");
    }
}

#[test]
fn optional_fields_need_their_bit() {
    let (mut rig, qpn) = rig();
    to_rts(&mut rig, qpn);
    let new = [(qpc::rre, 1), (qpc::rwe, 0), (qpc::min_rnr_nak, 1), (qpc::mtu, 5)];
    rig.modify(0x505, qpn, 0, &new).unwrap();
    let before = context(&mut rig, qpn);
    assert_eq!((qpc::rre.get(&before), qpc::rwe.get(&before)), (0, 1));
    rig.modify(0x505, qpn, 1 << 1 | 1 << 6, &new).unwrap();
    let after = context(&mut rig, qpn);
    assert_eq!((qpc::rre.get(&after), qpc::rwe.get(&after)), (1, 1));
    assert_eq!((qpc::min_rnr_nak.get(&after), qpc::mtu.get(&after)), (1, 3));
}

#[test]
fn foreign_mask_bits_are_refused() {
    let (mut rig, qpn) = rig();
    to_rts(&mut rig, qpn);
    assert_eq!(rig.modify(0x505, qpn, 1 << 13, &[]).unwrap_err().status, 3);
}

#[test]
fn rtr_needs_an_address() {
    for missing in
        [path(ads::hop_limit), path(ads::rmac_31_0), path(ads::rgid_rip), qpc::mtu, qpc::remote_qpn]
    {
        let (mut rig, qpn) = rig();
        address(&mut rig);
        rig.modify(0x502, qpn, 0, INIT).unwrap();
        let fields: Vec<_> = RTR.iter().copied().filter(|(f, _)| *f != missing).collect();
        assert_eq!(rig.modify(0x503, qpn, 0, &fields).unwrap_err().status, 3, "{missing:?}");
        assert_eq!(state(&mut rig, qpn), 1, "a refused transition changes nothing");
    }
    let (mut rig, qpn) = rig();
    rig.modify(0x502, qpn, 0, INIT).unwrap();
    assert_eq!(rig.modify(0x503, qpn, 0, RTR).unwrap_err().status, 3, "no source address");
}

#[test]
fn unknown_queue_pairs() {
    let (mut rig, _) = rig();
    assert_eq!(rig.short(0x50a, 0x9999).unwrap_err().status, 9);
    assert_eq!(rig.short(0x501, 0x9999).unwrap_err().status, 9);
    assert_eq!(rig.short(0x50b, 0x9999).unwrap_err().status, 5);
}

#[test]
fn creations_that_cannot_be() {
    let mut rig = Rig::new();
    let cqn = rig.cq(5);
    for (field, value, status) in [
        (qpc::st, 6, 3),
        (qpc::pd, 0x77, 5),
        (qpc::uar_page, 0x77, 5),
        (qpc::cqn_snd, 0x77, 5),
        (qpc::cqn_rcv, 0x77, 5),
        (qpc::rq_type, 2, 3),
        (qpc::log_sq_size, 12, 0x50),
    ] {
        let mut input = rig.qp_input(cqn);
        field.set(qp_in::qpc.bytes_mut(&mut input), value);
        assert_eq!(rig.run(0x500, &input).unwrap_err().status, status, "{field:?}");
    }
    rig.short(0x401, cqn).expect("refused creations hold no reference");
}

#[test]
fn a_record_with_garbage_is_reported() {
    let mut rig = Rig::new();
    let cqn = rig.cq(5);
    rig.poke32(QP_DBR, 7);
    rig.qp(cqn);
    assert!(rig.complained("not zero"));
}

/// Writes a NOP into the send ring.
fn nop(rig: &mut Rig, qpn: u32, index: u16) {
    let slot = u64::from(index % 4);
    rig.poke(QP_PAGE + 256 + slot * 64, &control(0, index, qpn, 1, 0));
}

#[test]
fn the_record_says_how_far() {
    let (mut rig, qpn) = rig();
    to_rts(&mut rig, qpn);
    nop(&mut rig, qpn, 0);
    nop(&mut rig, qpn, 1);
    rig.ring(qpn);
    assert_eq!(rig.hca.bus.stats.cqes, 0, "a doorbell without record update does nothing");
    rig.poke32(QP_DBR + 4, 2);
    assert_eq!(rig.hca.bus.stats.cqes, 0, "nor does a record without doorbell");
    rig.ring(qpn);
    assert_eq!(rig.hca.bus.stats.cqes, 2);
    assert_eq!(rig.cqe(1)[0x3d], 1);
}

#[test]
fn the_index_wraps_at_65536() {
    let (mut rig, qpn) = rig();
    to_rts(&mut rig, qpn);
    for n in 0..65_540u32 {
        nop(&mut rig, qpn, n as u16);
        rig.poke32(QP_DBR + 4, (n + 1) & 0xffff);
        rig.poke32(super::CQ_DBR, n & 0xff_ffff);
        rig.ring(qpn);
    }
    assert_eq!(rig.hca.bus.stats.cqes, 65_540);
    assert!(rig.hca.complaints().is_empty(), "{:?}", rig.hca.complaints());
}

#[test]
fn wqes_that_do_not_fit_their_slot() {
    type Make = fn(u32) -> Vec<u8>;
    let cases: [(Make, &str); 4] = [
        (|qpn| control(0, 1, qpn, 1, 0), "another index"),
        (|qpn| control(0, 0, qpn + 1, 1, 0), "another QPN"),
        (|qpn| control(0, 0, qpn, 0, 0), "no DS"),
        (|qpn| control(0, 0, qpn, 5, 0), "beyond"),
    ];
    for (wqe, what) in cases {
        let (mut rig, qpn) = rig();
        to_rts(&mut rig, qpn);
        rig.poke(QP_PAGE + 256, &wqe(qpn));
        rig.poke32(QP_DBR + 4, 1);
        rig.ring(qpn);
        assert!(rig.complained(what), "{what}: {:?}", rig.hca.complaints());
        let cqe = rig.cqe(0);
        assert_eq!((cqe[0x3f] >> 4, cqe[0x37]), (13, 2), "{what}");
    }
}

#[test]
fn a_record_far_ahead_is_garbage() {
    let (mut rig, qpn) = rig();
    to_rts(&mut rig, qpn);
    rig.poke32(QP_DBR + 4, 5);
    rig.ring(qpn);
    assert!(rig.complained("ahead"));
}

#[test]
fn a_doorbell_in_rtr_is_not_executed() {
    let (mut rig, qpn) = rig();
    address(&mut rig);
    rig.modify(0x502, qpn, 0, INIT).unwrap();
    rig.modify(0x503, qpn, 0, RTR).unwrap();
    nop(&mut rig, qpn, 0);
    rig.poke32(QP_DBR + 4, 1);
    rig.ring(qpn);
    assert_eq!(rig.hca.bus.stats.cqes, 0);
    assert!(rig.complained("rung in state"));
}

#[test]
fn receives_are_taken_in_order_as_the_record_grows() {
    let (mut rig, qpn) = rig();
    for n in 0..16u32 {
        rig.poke(QP_PAGE + u64::from(n) * 16, &pointer(100 + n, 0x700, BASE));
    }
    let hca = &mut rig.hca;
    let qp = hca.objects.qps.get_mut(&qpn).unwrap();
    assert!(qp.take_recv(&mut hca.bus).is_none());
    rig.poke32(QP_DBR, 2);
    let hca = &mut rig.hca;
    let qp = hca.objects.qps.get_mut(&qpn).unwrap();
    for n in 0..2u16 {
        let wqe = qp.take_recv(&mut hca.bus).unwrap().unwrap();
        assert_eq!((wqe.index, wqe.segments[0].len), (n, 100 + u32::from(n)));
    }
    assert!(qp.take_recv(&mut hca.bus).is_none());
}

#[test]
fn completions_stand_at_the_page_given() {
    let (mut rig, qpn) = rig();
    to_rts(&mut rig, qpn);
    nop(&mut rig, qpn, 0);
    rig.poke32(QP_DBR + 4, 1);
    rig.ring(qpn);
    let cqe = rig.peek(CQ_PAGE, 64);
    assert_eq!(cqe[0x20..0x24], 0x1234u32.to_be_bytes(), "user index");
    assert_eq!(cqe[0x39..0x3c], qpn.to_be_bytes()[1..]);
}

#[test]
fn queues_in_error_are_looked_at_in_turn() {
    let (mut rig, qpn) = rig();
    let cqn = context(&mut rig, qpn);
    let cqn = qpc::cqn_rcv.get(&cqn);
    let all: Vec<u32> = (0..150).map(|_| rig.qp(cqn)).collect();
    assert_eq!(rig.hca.step(1), None, "all are idle");
    for &qpn in &all {
        rig.short(0x507, qpn).unwrap();
    }
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..10 {
        let due = rig.hca.objects.qps.due(2);
        assert_eq!(due.len(), 16);
        assert!(due.values().all(|due| due.receives && !due.timer));
        seen.extend(due.into_keys());
    }
    assert!(seen.iter().eq(&all));
    assert!(rig.hca.step(3).is_some_and(|due| due > 3), "the rest comes later");
    for &qpn in &all {
        rig.short(0x50a, qpn).unwrap();
    }
    assert_eq!(rig.hca.step(4), None);
}
