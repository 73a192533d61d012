//! Orders of destruction, and whole connections inside one device.

use super::super::qp::path;
use super::{CQ_DBR, DATA, QP_DBR, QP_PAGE, Rig, SQ_PAGE, control, pointer};
use crate::ifc::mkey::mkc;
use crate::ifc::qp::{ads, qp_in, qpc};
use crate::ifc::vport::{roce_addr_layout as layout, set_roce_address_in};

#[test]
fn an_object_with_references_stays() {
    let mut port = super::ethernet::port();
    let (cqn, tis, sqn, pd, eqn, td) =
        (port.cqn, port.tis, port.sqn, port.rig.pd, port.rig.eqn, port.rig.td);
    let uar = port.rig.uar;
    for (opcode, number) in
        [(0x401, cqn), (0x914, tis), (0x801, pd), (0x302, eqn), (0x817, td), (0x803, uar)]
    {
        assert_eq!(port.rig.short(opcode, number).unwrap_err().status, 9, "{opcode:#x}");
    }
    port.rig.short(0x906, sqn).unwrap();
    port.rig.short(0x914, tis).unwrap();
}

#[test]
fn a_queue_pair_holds_and_lets_go() {
    let mut rig = Rig::new();
    let cqn = rig.cq(5);
    let qpn = rig.qp(cqn);
    let pd = rig.pd;
    assert_eq!(rig.short(0x401, cqn).unwrap_err().status, 9);
    assert_eq!(rig.short(0x801, pd).unwrap_err().status, 9);
    rig.short(0x501, qpn).unwrap();
    rig.short(0x401, cqn).unwrap();
    rig.short(0x801, pd).unwrap();
}

#[test]
fn queues_share_one_number_space() {
    let mut rig = Rig::new();
    let cqn = rig.cq(5);
    let numbers = [rig.qp(cqn), rig.sq(cqn, None), rig.rq(cqn), rig.qp(cqn)];
    for (i, a) in numbers.iter().enumerate() {
        assert!(!numbers[..i].contains(a));
    }
}

/// Where the second queue pair of a pair lies.
pub(super) const OTHER_PAGE: u64 = SQ_PAGE;
pub(super) const OTHER_DBR: u64 = QP_DBR + 0x100;

/// Two queue pairs of one device, connected to each other over its own MAC.
pub(super) fn pair() -> (Rig, u32, u32) {
    let mut rig = Rig::new();
    let cqn = rig.cq(5);
    let (a, b) = connect(&mut rig, cqn, |_| {});
    (rig, a, b)
}

/// The same on a CQ, with an edit of both contexts.
pub(super) fn connect(rig: &mut Rig, cqn: u32, edit: impl Fn(&mut [u8])) -> (u32, u32) {
    let mac = rig.hca.vport.mac;
    let mut input = vec![0; 48];
    let to = set_roce_address_in::roce_address.bytes_mut(&mut input);
    layout::source_mac_47_32.set(to, u32::from(u16::from_be_bytes([mac[0], mac[1]])));
    layout::source_mac_31_0.set(to, u32::from_be_bytes([mac[2], mac[3], mac[4], mac[5]]));
    layout::roce_version.set(to, 2);
    let gid = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 168, 7, 1];
    to[..16].copy_from_slice(&gid);
    rig.run(0x761, &input).unwrap();
    let mut input = rig.qp_input(cqn);
    edit(qp_in::qpc.bytes_mut(&mut input));
    let a = rig.run(0x500, &input).unwrap();
    qpc::dbr_addr.set64(qp_in::qpc.bytes_mut(&mut input), OTHER_DBR);
    super::put_page(&mut input, qp_in::pas, OTHER_PAGE);
    let b = rig.run(0x500, &input).unwrap();
    for (own, peer) in [(a, b), (b, a)] {
        let all = [(qpc::rwe, 1), (qpc::rre, 1), (qpc::rae, 1), (path(ads::vhca_port_num), 1)];
        rig.modify(0x502, own, 0, &all).unwrap();
        let mut input = vec![0; 272];
        input[8..12].copy_from_slice(&own.to_be_bytes());
        let context = qp_in::qpc.bytes_mut(&mut input);
        for (field, value) in [
            (qpc::mtu, 3),
            (qpc::log_msg_max, 30),
            (qpc::remote_qpn, peer),
            (path(ads::hop_limit), 64),
            (path(ads::udp_sport), 0xc001),
            (path(ads::rmac_47_32), u32::from(u16::from_be_bytes([mac[0], mac[1]]))),
            (path(ads::rmac_31_0), u32::from_be_bytes([mac[2], mac[3], mac[4], mac[5]])),
        ] {
            field.set(context, value);
        }
        path(ads::rgid_rip).bytes_mut(context).copy_from_slice(&gid);
        rig.run(0x503, &input).unwrap();
        let rts = [(qpc::retry_count, 7), (path(ads::ack_timeout), 14)];
        rig.modify(0x504, own, 0, &rts).unwrap();
    }
    (a, b)
}

/// Posts one WQE of at most a block on the first queue pair and lets the device run.
pub(super) fn post(rig: &mut Rig, qpn: u32, index: u16, opcode: u8, imm: u32, body: &[Vec<u8>]) {
    let body = body.concat();
    let mut wqe = control(opcode, index, qpn, 1 + (body.len() / 16) as u8, imm);
    wqe.extend(body);
    rig.poke(QP_PAGE + 256 + u64::from(index % 4) * 64, &wqe);
    rig.poke32(QP_DBR + 4, u32::from(index) + 1);
    rig.ring(qpn);
    rig.hca.step(0);
}

pub(super) fn raddr(va: u64, rkey: u32) -> Vec<u8> {
    [va.to_be_bytes().to_vec(), rkey.to_be_bytes().to_vec(), vec![0; 4]].concat()
}

#[test]
fn rdma_write_and_read_through_the_transport() {
    let (mut rig, a, _) = pair();
    let key = rig.key(|_| {}).unwrap();
    rig.poke(DATA, b"sixteen bytes ok");
    let local = |at: u64| pointer(16, key, at);
    post(&mut rig, a, 0, 8, 0, &[raddr(DATA + 0x100, key), local(DATA)]);
    assert_eq!(rig.peek(DATA + 0x100, 16), b"sixteen bytes ok");
    post(&mut rig, a, 1, 0x10, 0, &[raddr(DATA + 0x100, key), local(DATA + 0x200)]);
    assert_eq!(rig.peek(DATA + 0x200, 16), b"sixteen bytes ok");
    for n in 0..2 {
        let cqe = rig.cqe(n);
        assert_eq!((cqe[0x3f] >> 4, u64::from(cqe[0x3d])), (0, n));
    }
}

#[test]
fn send_meets_receive() {
    let (mut rig, a, b) = pair();
    let key = rig.key(|_| {}).unwrap();
    rig.poke(DATA, b"hello");
    rig.poke(OTHER_PAGE, &pointer(64, key, DATA + 0x400));
    rig.poke32(OTHER_DBR, 1);
    post(&mut rig, a, 0, 0x0b, 0xabcd, &[pointer(5, key, DATA)]);
    assert_eq!(rig.peek(DATA + 0x400, 5), b"hello");
    let cqes: Vec<Vec<u8>> = (0..2).map(|n| rig.cqe(n)).collect();
    let receive = cqes.iter().find(|c| c[0x39..0x3c] == b.to_be_bytes()[1..]).unwrap();
    assert_eq!(receive[0x3f] >> 4, 3);
    assert_eq!(receive[0x24..0x28], 0xabcdu32.to_be_bytes());
    assert_eq!(receive[0x2c..0x30], 5u32.to_be_bytes());
}

#[test]
fn a_refused_rkey_fails_both_ends() {
    let (mut rig, a, b) = pair();
    let key = rig.key(|c| mkc::rw.set(c, 0)).unwrap();
    post(&mut rig, a, 0, 8, 0, &[raddr(DATA, key), pointer(16, key, DATA)]);
    let cqe = rig.cqe(0);
    assert_eq!((cqe[0x3f] >> 4, cqe[0x37], cqe[0x36]), (13, 0x13, 0x88), "{cqe:02x?}");
    assert_eq!(rig.events(), [0x11], "access error on the responder");
    for qpn in [a, b] {
        assert_eq!(super::qp::state(&mut rig, qpn), 6);
    }
}

#[test]
fn a_bad_local_key_is_a_local_protection_error() {
    let (mut rig, a, _) = pair();
    let key = rig.key(|_| {}).unwrap();
    post(&mut rig, a, 0, 8, 0, &[raddr(DATA, key), pointer(16, key ^ 1, DATA)]);
    let cqe = rig.cqe(0);
    assert_eq!((cqe[0x3f] >> 4, cqe[0x37]), (13, 4));
}

#[test]
fn a_move_to_error_flushes_both_queues_in_order() {
    let (mut rig, _, b) = pair();
    let key = rig.key(|_| {}).unwrap();
    for n in 0..3u64 {
        rig.poke(OTHER_PAGE + n * 16, &pointer(64, key, DATA));
    }
    rig.poke32(OTHER_DBR, 3);
    rig.short(0x507, b).unwrap();
    for n in 0..3 {
        let cqe = rig.cqe(n);
        assert_eq!((cqe[0x3f] >> 4, cqe[0x37], u64::from(cqe[0x3d])), (14, 5, n));
    }
    // Later posts are flushed as well.
    rig.poke32(CQ_DBR, 3);
    rig.poke32(OTHER_DBR, 4);
    rig.hca.step(1);
    assert_eq!(rig.cqe(3)[0x37], 5);
}

#[test]
fn a_move_to_reset_flushes_nothing() {
    let (mut rig, _, b) = pair();
    rig.poke32(OTHER_DBR, 3);
    rig.short(0x50a, b).unwrap();
    rig.hca.step(0);
    assert_eq!(rig.hca.bus.stats.cqes, 0);
    assert_eq!(super::qp::state(&mut rig, b), 0);
}

#[test]
fn an_iommu_refusal_is_a_local_protection_error() {
    let (mut rig, a, _) = pair();
    let key = rig.key(|c| mkc::len.set64(c, 0x1000)).unwrap();
    let far = rig
        .key(|c| {
            mkc::access_mode_1_0.set(c, 0);
            mkc::length64.set(c, 1);
        })
        .unwrap();
    let from = pointer(16, far, 0xdead_0000);
    post(&mut rig, a, 0, 8, 0, &[raddr(DATA, key), from]);
    assert_eq!(rig.cqe(0)[0x37], 4);
}

#[test]
fn a_shared_receive_queue_follows_its_links_and_tells_its_limit() {
    let mut rig = Rig::new();
    let srqn = rig.rmp(OTHER_DBR, OTHER_PAGE);
    // The list runs 0, 2, 1.
    for (slot, next) in [(0u64, 2u16), (2, 1), (1, 3)] {
        let mut entry = vec![0; 32];
        entry[2..4].copy_from_slice(&next.to_be_bytes());
        entry[16..].copy_from_slice(&pointer(64, 0x900, DATA + slot));
        rig.poke(OTHER_PAGE + slot * 32, &entry);
    }
    rig.poke32(OTHER_DBR, 3);
    let cqn = rig.cq(5);
    let mut input = rig.qp_input(cqn);
    let context = qp_in::qpc.bytes_mut(&mut input);
    qpc::rq_type.set(context, 1);
    qpc::srqn_rmpn_xrqn.set(context, srqn);
    let qpn = rig.run(0x500, &input).unwrap();
    assert_eq!(rig.short(0x90e, srqn).unwrap_err().status, 9, "a queue pair uses it");
    let mut arm = vec![0; 16];
    arm[8..12].copy_from_slice(&srqn.to_be_bytes());
    arm[15] = 2;
    rig.run(0x703, &arm).unwrap();
    let mut device = super::super::device::Device::of(&mut rig.hca);
    let taken: Vec<(u16, u64)> = (0..3)
        .map(|_| crate::transport::host::Host::take_recv(&mut device, qpn, None).unwrap().unwrap())
        .map(|wqe| (wqe.index, wqe.segments[0].addr - DATA))
        .collect();
    assert_eq!(taken, [(0, 0), (2, 2), (1, 1)]);
    assert!(crate::transport::host::Host::take_recv(&mut device, qpn, None).is_none());
    assert_eq!(rig.events(), [0x14], "the limit is reported once");
    rig.short(0x501, qpn).unwrap();
    rig.short(0x90e, srqn).unwrap();
}

#[test]
fn a_key_moved_by_a_kernel_edit_lets_its_first_domain_go() {
    let mut rig = Rig::new();
    let key = rig.key(|_| {}).unwrap();
    if let Some(key) = rig.hca.objects.tpt.get_mut(key >> 8) {
        key.pd += 1;
    }
    rig.short(0x202, key >> 8).unwrap();
    let pd = rig.pd;
    rig.short(0x801, pd).unwrap();
}
