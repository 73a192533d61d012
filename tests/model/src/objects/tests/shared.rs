//! Objects that queue pairs share: receive queues of all kinds, multicast groups, counters.

use super::{CQ_DBR, DATA, Rig, put_page};
use crate::ifc::Field;
use crate::ifc::counters::{query_q_counter_in, query_q_counter_out};
use crate::ifc::qp::{ads, mcg_in, qp_in, qpc};
use crate::ifc::wq::{rmp_bitmask, rmp_in, rmpc, srq_in, srqc, wq, xrc_srq_in, xrc_srqc};
use crate::objects::device::Device;
use crate::objects::qp::path;
use crate::transport::host::{Host, RecvCompletion, RemoteFault, Syndrome, Tally};

const RING: u64 = super::BASE + 0x6000;
const DBR: u64 = super::DBR + 0x100;

/// CREATE_XRC_SRQ in a domain of its own; number and domain.
fn xrc_srq(rig: &mut Rig, cqn: u32) -> (u32, u32) {
    let xrcd = rig.hca.ids.xrcd.take().unwrap();
    let mut input = vec![0; 280];
    let context = xrc_srq_in::xrc_srq_context_entry.bytes_mut(&mut input);
    for (field, value) in [
        (xrc_srqc::log_xrc_srq_size, 2),
        (xrc_srqc::log_rq_stride, 1),
        (xrc_srqc::pd, rig.pd),
        (xrc_srqc::cqn, cqn),
        (xrc_srqc::xrcd, xrcd),
        (xrc_srqc::user_index, 0x4321),
    ] {
        field.set(context, value);
    }
    srqc::dbr_addr.set64(context, DBR);
    put_page(&mut input, xrc_srq_in::pas, RING);
    (rig.run(0x705, &input).unwrap(), xrcd)
}

/// CREATE_QP with changes to its context.
fn qp_with(rig: &mut Rig, cqn: u32, fields: &[(Field, u32)]) -> u32 {
    let mut input = rig.qp_input(cqn);
    let context = qp_in::qpc.bytes_mut(&mut input);
    for (field, value) in fields {
        field.set(context, *value);
    }
    rig.run(0x500, &input).unwrap()
}

#[test]
fn a_memory_pool_is_armed_and_asked() {
    let mut rig = Rig::new();
    let number = rig.rmp(DBR, RING);
    let mut input = vec![0; 272];
    input[8..12].copy_from_slice(&(1 << 28 | number).to_be_bytes());
    rmp_bitmask::lwm.set(rmp_in::modify_bitmask.bytes_mut(&mut input), 1);
    let context = rmp_in::rmpc.bytes_mut(&mut input);
    rmpc::state.set(context, 1);
    wq::lwm.set(rmpc::wq.bytes_mut(context), 3);
    rig.run(0x90d, &input).unwrap();
    let mut output = vec![0; 512];
    let mut ask = vec![0; 16];
    ask[8..12].copy_from_slice(&number.to_be_bytes());
    rig.query(0x90f, &ask, &mut output).unwrap();
    let inner = rmpc::wq.bytes(rmp_in::rmpc.bytes(&output)).to_vec();
    assert_eq!((wq::lwm.get(&inner), wq::log_wq_sz.get(&inner)), (3, 2), "as armed, as made");
    assert_eq!(rig.short(0x706, number).unwrap_err().status, 5, "it is no XRC SRQ");
    rig.short(0x90e, number).unwrap();
}

#[test]
fn an_srq_of_the_old_interface_is_none_of_the_new() {
    let mut rig = Rig::new();
    let mut input = vec![0; 280];
    let context = srq_in::srq_context_entry.bytes_mut(&mut input);
    srqc::log_srq_size.set(context, 2);
    srqc::log_rq_stride.set(context, 1);
    srqc::pd.set(context, rig.pd);
    srqc::dbr_addr.set64(context, DBR);
    put_page(&mut input, srq_in::pas, RING);
    rig.hca.cmd.issi = 1;
    assert_eq!(rig.run(0x700, &input).unwrap_err().status, 2);
    rig.hca.cmd.issi = 0;
    let number = rig.run(0x700, &input).unwrap();
    let mut ask = vec![0; 16];
    ask[8..12].copy_from_slice(&number.to_be_bytes());
    let mut output = vec![0; 512];
    rig.query(0x702, &ask, &mut output).unwrap();
    let context = srq_in::srq_context_entry.bytes(&output);
    assert_eq!(srqc::log_rq_stride.get(context), 1);
    rig.short(0x701, number).unwrap();
}

#[test]
fn an_xrc_receive_is_of_the_srq_and_completes_to_its_queue() {
    let mut rig = Rig::new();
    let cqn = rig.cq(5);
    let (srqn, xrcd) = xrc_srq(&mut rig, cqn);
    let target = [
        (qpc::st, 3),
        (qpc::no_sq, 1),
        (qpc::rq_type, 1),
        (qpc::srqn_rmpn_xrqn, srqn),
        (qpc::xrcd, xrcd),
        (qpc::uar_page, 0),
    ];
    let qpn = qp_with(&mut rig, cqn, &target);
    for (opcode, number) in [(0x80f, xrcd), (0x401, cqn)] {
        assert_eq!(rig.short(opcode, number).unwrap_err().status, 9);
    }
    let mut entry = vec![0; 32];
    entry[3] = 1;
    entry[16..].copy_from_slice(&super::pointer(64, 0x900, DATA));
    rig.poke(RING, &entry);
    rig.poke32(DBR, 1);
    let mut device = Device::of(&mut rig.hca);
    assert_eq!(device.pool_check(qpn, srqn), Ok(()));
    assert_eq!(device.pool_check(qpn, srqn + 1), Err(RemoteFault::Access));
    let wqe = device.take_recv(qpn, Some(srqn)).unwrap().unwrap();
    assert_eq!((wqe.index, wqe.pool), (0, Some(srqn)));
    let completion =
        RecvCompletion { index: wqe.index, pool: wqe.pool, result: Err(Syndrome::LocalLength) };
    device.complete_recv(qpn, completion);
    let cqe = rig.cqe(0);
    assert_eq!(cqe[0x20..0x24], 0x4321u32.to_be_bytes(), "the SRQ's index");
    assert_eq!(cqe[0x39..0x3c], qpn.to_be_bytes()[1..], "the QP's number");
    rig.short(0x501, qpn).unwrap();
    rig.short(0x706, srqn).unwrap();
    rig.short(0x80f, xrcd).unwrap();
}

#[test]
fn a_group_takes_datagram_queue_pairs_once_and_keeps_them() {
    let mut rig = Rig::new();
    let cqn = rig.cq(5);
    let ud = qp_with(&mut rig, cqn, &[(qpc::st, 2)]);
    let rc = rig.qp(cqn);
    let attach = |qpn: u32, last: u8| {
        let mut input = vec![0; 32];
        mcg_in::qpn.set(&mut input, qpn);
        let gid = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 1, 1, last];
        mcg_in::multicast_gid.bytes_mut(&mut input).copy_from_slice(&gid);
        input
    };
    assert_eq!(rig.run(0x806, &attach(rc, 1)).unwrap_err().status, 5);
    rig.run(0x806, &attach(ud, 1)).unwrap();
    assert_eq!(rig.run(0x806, &attach(ud, 1)).unwrap_err().status, 9);
    assert_eq!(rig.run(0x807, &attach(ud, 2)).unwrap_err().status, 5);
    assert_eq!(rig.short(0x501, ud).unwrap_err().status, 9, "still attached");
    rig.run(0x807, &attach(ud, 1)).unwrap();
    rig.short(0x501, ud).unwrap();
}

#[test]
fn counters_are_of_the_set_a_queue_pair_names() {
    let mut rig = Rig::new();
    let cqn = rig.cq(5);
    rig.poke32(CQ_DBR, 0);
    let set = rig.run(0x771, &[0; 16]).unwrap();
    let qpn = rig.qp(cqn);
    let fields = [(qpc::counter_set_id, set), (path(ads::vhca_port_num), 1)];
    rig.modify(0x502, qpn, 0, &fields).unwrap();
    let mut device = Device::of(&mut rig.hca);
    device.count(qpn, Tally::OutOfSequence);
    device.count(qpn, Tally::OutOfSequence);
    let completion = RecvCompletion { index: 0, pool: None, result: Err(Syndrome::Flushed) };
    device.complete_recv(qpn, completion);
    let mut ask = vec![0; 32];
    query_q_counter_in::counter_set_id.set(&mut ask, set);
    query_q_counter_in::clear.set(&mut ask, 1);
    for expected in [[2, 1, 1, 0], [0, 0, 0, 0]] {
        let mut output = vec![0; 256];
        rig.query(0x773, &ask, &mut output).unwrap();
        let got = [
            query_q_counter_out::out_of_sequence,
            query_q_counter_out::resp_cqe_error,
            query_q_counter_out::resp_cqe_flush_error,
            query_q_counter_out::duplicate_request,
        ]
        .map(|counter| counter.get(&output));
        assert_eq!(got, expected);
    }
}

#[test]
fn a_queue_that_only_edits_keys_has_no_domain() {
    let mut rig = Rig::new();
    let cqn = rig.cq(5);
    let umr = [(qpc::st, 0xc), (qpc::rq_type, 3), (qpc::pd, 0)];
    let qpn = qp_with(&mut rig, cqn, &umr);
    rig.short(0x501, qpn).unwrap();
    let mut input = rig.qp_input(cqn);
    qpc::pd.set(qp_in::qpc.bytes_mut(&mut input), 0);
    assert_eq!(rig.run(0x500, &input).unwrap_err().status, 5, "others need one");
}

/// Its completions would go to a CQ that the queue pair has not named, in a form of another.
#[test]
fn a_shared_queue_of_xrc_is_for_xrc_only() {
    let mut rig = Rig::new();
    let cqn = rig.cq(5);
    let (srqn, _) = xrc_srq(&mut rig, cqn);
    let mut input = rig.qp_input(cqn);
    let context = qp_in::qpc.bytes_mut(&mut input);
    qpc::rq_type.set(context, 1);
    qpc::srqn_rmpn_xrqn.set(context, srqn);
    assert_eq!(rig.run(0x500, &input).unwrap_err().status, 5);
}
