//! Completion queues: ring, owner bit, overrun, arm.

use super::super::cqe::{Cqe, CqeOpcode};
use super::super::device::Device;
use super::{BASE, CQ_DBR, Rig, cq_arm};
use crate::ifc::cq::{cqc, query_cq_out};
use crate::transport::host::Syndrome;

fn post(rig: &mut Rig, cqn: u32, cqe: &Cqe) {
    Device::of(&mut rig.hca).complete(0, cqn, cqe);
}

fn plain(n: u16) -> Cqe {
    Cqe { wqe_counter: n, ..Cqe::new(CqeOpcode::Requester, 0x48) }
}

fn arm(rig: &mut Rig, cqn: u32, word: u32) {
    rig.poke32(CQ_DBR + 4, word);
    cq_arm(&mut rig.hca, rig.uar, word, cqn);
}

#[test]
fn owner_bit_flips_each_lap() {
    let mut rig = Rig::new();
    let cqn = rig.cq(2);
    for n in 0..12u16 {
        rig.poke32(CQ_DBR, u32::from(n));
        post(&mut rig, cqn, &plain(n));
        let cqe = rig.cqe(u64::from(n % 4));
        assert_eq!(cqe[0x3f] & 1, ((n / 4) & 1) as u8, "entry {n}");
        assert_eq!(cqe[0x3c..0x3e], n.to_be_bytes());
    }
}

#[test]
fn an_error_entry_has_the_layout_of_real_dumps() {
    let mut rig = Rig::new();
    let cqn = rig.cq(2);
    let mut cqe = Cqe::new(CqeOpcode::RequesterError, 0x0361b3);
    cqe.error = Some(Syndrome::RemoteAccess);
    cqe.wqe_opcode = 8;
    cqe.wqe_counter = 0x1ea1;
    cqe.byte_cnt = 77;
    post(&mut rig, cqn, &cqe);
    let bytes = rig.cqe(0);
    assert!(bytes[..0x34].iter().all(|&b| b == 0));
    assert_eq!(bytes[0x34..0x3e], [0, 0, 0x88, 0x13, 8, 3, 0x61, 0xb3, 0x1e, 0xa1]);
    assert_ne!(bytes[0x3e], 0);
    assert_eq!(bytes[0x3f] >> 4, 13);
}

#[test]
fn overrun_kills_the_queue_and_its_users() {
    let mut rig = Rig::new();
    let cqn = rig.cq(1);
    let qpn = rig.qp(cqn);
    super::qp::to_rts(&mut rig, qpn);
    for n in 0..3 {
        post(&mut rig, cqn, &plain(n));
    }
    super::super::traffic::fail_doomed(&mut rig.hca);
    assert_eq!(rig.events(), [4, 5], "CQ error, then WQ catastrophic");
    let eqe = rig.peek(BASE, 64);
    assert_eq!(eqe[0x20..0x24], cqn.to_be_bytes());
    assert_eq!(eqe[0x2b], 1);
    let mut output = vec![0; 272];
    let mut input = vec![0; 16];
    input[8..12].copy_from_slice(&cqn.to_be_bytes());
    rig.query(0x402, &input, &mut output).unwrap();
    assert_eq!(cqc::status.get(query_cq_out::cqc.bytes(&output)), 9);
    assert_eq!(super::qp::state(&mut rig, qpn), 6);
}

#[test]
fn the_record_makes_room() {
    let mut rig = Rig::new();
    let cqn = rig.cq(1);
    for n in 0..100u16 {
        rig.poke32(CQ_DBR, u32::from(n) & 0xff_ffff);
        post(&mut rig, cqn, &plain(n));
    }
    assert!(rig.events().is_empty());
}

#[test]
fn ignored_overrun_overwrites() {
    let mut rig = Rig::new();
    let cqn = rig.cq_with(1, |c| cqc::oi.set(c, 1)).unwrap();
    for n in 0..5 {
        post(&mut rig, cqn, &plain(n));
    }
    assert_eq!(rig.cqe(0)[0x3d], 4);
    assert!(rig.events().is_empty());
}

#[test]
fn a_collapsed_queue_uses_one_slot() {
    let mut rig = Rig::new();
    let edit = |c: &mut [u8]| {
        cqc::cc.set(c, 1);
        cqc::oi.set(c, 1);
    };
    let cqn = rig.cq_with(2, edit).unwrap();
    for n in 0..3 {
        post(&mut rig, cqn, &plain(n));
    }
    assert_eq!(rig.cqe(0)[0x3d], 2);
    assert_eq!(rig.cqe(1)[0x3f], 0xf1);
}

#[test]
fn of_128_byte_entries_the_second_half_counts() {
    let mut rig = Rig::new();
    let cqn = rig.cq_with(1, |c| cqc::cqe_sz.set(c, 1)).unwrap();
    post(&mut rig, cqn, &plain(9));
    assert_eq!(rig.cqe(0)[0x3f], 0xf1);
    assert_eq!(rig.cqe(1)[0x3d], 9);
}

#[test]
fn an_unwritable_ring_is_an_access_violation() {
    let mut rig = Rig::new();
    let mut input = vec![0; 280];
    let context = crate::ifc::cq::create_cq_in::cqc.bytes_mut(&mut input);
    cqc::uar_page.set(context, rig.uar);
    cqc::c_eqn_or_apu_element.set(context, rig.eqn);
    cqc::dbr_addr.set64(context, CQ_DBR);
    super::put_page(&mut input, crate::ifc::cq::create_cq_in::pas, 0xdead_0000);
    let cqn = rig.run(0x400, &input).unwrap();
    post(&mut rig, cqn, &plain(0));
    assert_eq!(rig.events(), [4]);
    assert_eq!(rig.peek(BASE, 64)[0x2b], 2);
}

#[test]
fn no_event_before_the_arm_and_one_after() {
    let mut rig = Rig::new();
    let cqn = rig.cq(4);
    post(&mut rig, cqn, &plain(0));
    assert!(rig.events().is_empty());
    arm(&mut rig, cqn, 1);
    assert!(rig.events().is_empty(), "the entry before the index does not count");
    post(&mut rig, cqn, &plain(1));
    post(&mut rig, cqn, &plain(2));
    assert_eq!(rig.events(), [0]);
    assert_eq!(rig.peek(BASE + 0x38, 4), cqn.to_be_bytes());
}

#[test]
fn an_arm_behind_the_producer_fires_at_once() {
    let mut rig = Rig::new();
    let cqn = rig.cq(4);
    post(&mut rig, cqn, &plain(0));
    post(&mut rig, cqn, &plain(1));
    arm(&mut rig, cqn, 1);
    assert_eq!(rig.events(), [0]);
}

#[test]
fn the_sequence_number_must_change_after_an_event() {
    let mut rig = Rig::new();
    let cqn = rig.cq(4);
    arm(&mut rig, cqn, 0);
    post(&mut rig, cqn, &plain(0));
    assert_eq!(rig.events().len(), 1);
    arm(&mut rig, cqn, 0);
    assert_eq!(rig.events().len(), 1);
    assert!(!rig.complained("sequence number"), "the event was not read yet");
    let read = rig.eqn << 24 | 1;
    let uar = rig.uar;
    rig.hca.eqs.doorbell(&mut rig.hca.bus, uar, read, false);
    arm(&mut rig, cqn, 0);
    assert_eq!(rig.events().len(), 1);
    assert!(rig.complained("sequence number"));
    arm(&mut rig, cqn, 1 << 28);
    assert_eq!(rig.events().len(), 2);
}

#[test]
fn armed_for_solicited_only() {
    let mut rig = Rig::new();
    let cqn = rig.cq(4);
    arm(&mut rig, cqn, 1 << 24);
    post(&mut rig, cqn, &plain(0));
    assert!(rig.events().is_empty());
    post(&mut rig, cqn, &Cqe { solicited: true, ..plain(1) });
    assert_eq!(rig.events().len(), 1);
    arm(&mut rig, cqn, (1 << 28) | (1 << 24) | 2);
    post(&mut rig, cqn, &Cqe { error: Some(Syndrome::Flushed), ..plain(2) });
    assert_eq!(rig.events().len(), 2, "errors count as solicited");
}

#[test]
fn doorbells_on_a_foreign_page_do_nothing() {
    let mut rig = Rig::new();
    let cqn = rig.cq(4);
    post(&mut rig, cqn, &plain(0));
    let other = rig.hca.ids.uar.take().unwrap();
    cq_arm(&mut rig.hca, other, 0, cqn);
    cq_arm(&mut rig.hca, other, 0, 0x999);
    assert!(rig.events().is_empty());
    assert!(rig.complained("created with") && rig.complained("none such"));
}

#[test]
fn creations_that_cannot_be() {
    let mut rig = Rig::new();
    assert_eq!(rig.cq_with(2, |c| cqc::uar_page.set(c, 0xfff)).unwrap_err().status, 5);
    assert!(rig.cq_with(2, |c| cqc::c_eqn_or_apu_element.set(c, 99)).is_err());
    assert_eq!(rig.cq_with(2, |c| cqc::dbr_addr.set64(c, 1)).unwrap_err().status, 3);
    assert_eq!(rig.cq_with(9, |_| {}).unwrap_err().status, 0x50, "one page is too short");
}

#[test]
fn a_resize_ends_the_old_ring_and_goes_on_in_the_new() {
    use crate::ifc::cq::{cqc, create_cq_in};
    const NEW: u64 = BASE + 0x6000;
    let mut rig = Rig::new();
    let cqn = rig.cq(2);
    for n in 0..3 {
        post(&mut rig, cqn, &plain(n));
    }
    rig.poke32(CQ_DBR, 2);
    let mut input = vec![0; 280];
    input[8..12].copy_from_slice(&cqn.to_be_bytes());
    input[7] = 1;
    create_cq_in::field_select.set(&mut input, 7);
    super::put_page(&mut input, create_cq_in::pas, NEW);
    assert_eq!(
        rig.run(0x403, &input).unwrap_err().status,
        0x40,
        "one entry and the resize do not fit into one"
    );
    cqc::log_cq_size.set(create_cq_in::cqc.bytes_mut(&mut input), 3);
    rig.run(0x403, &input).unwrap();
    assert_eq!(rig.cqe(3)[0x3f] >> 4, 5, "the old ring ends with a resize entry");
    post(&mut rig, cqn, &plain(9));
    let cqe = rig.peek(NEW + 4 * 64, 64);
    assert_eq!(cqe[0x3c..0x3e], 9u16.to_be_bytes(), "the index runs on");
    assert_eq!(cqe[0x3f] & 1, 0, "the first lap of eight");
}

#[test]
fn a_ring_across_the_end_of_addresses_is_an_access_violation() {
    let mut rig = Rig::new();
    let mut input = vec![0; 280];
    let context = crate::ifc::cq::create_cq_in::cqc.bytes_mut(&mut input);
    cqc::log_cq_size.set(context, 7);
    cqc::log_page_size.set(context, 1);
    cqc::uar_page.set(context, rig.uar);
    cqc::c_eqn_or_apu_element.set(context, rig.eqn);
    cqc::dbr_addr.set64(context, CQ_DBR);
    cqc::page_offset.set(context, 0x20);
    super::put_page(&mut input, crate::ifc::cq::create_cq_in::pas, !0xfff);
    let at = crate::ifc::cq::create_cq_in::pas.byte() + 8;
    input.resize(at + 8, 0);
    let cqn = rig.run(0x400, &input).unwrap();
    post(&mut rig, cqn, &plain(0));
    assert_eq!(rig.events(), [4]);
}
