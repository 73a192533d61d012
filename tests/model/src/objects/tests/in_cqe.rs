//! Payload in completions: both forms, what is scattered all the same, and the refusals.

use super::orders::{OTHER_DBR, OTHER_PAGE, connect, post, raddr};
use super::{CQ_PAGE, DATA, QP_DBR, QP_PAGE, RQ_DBR, RQ_PAGE, Rig, control, pointer};
use crate::config::Config;
use crate::ifc::cq::cqc;
use crate::ifc::qp::qpc;

const SEND: u8 = 0x0a;
const WRITE_IMM: u8 = 0x09;
const READ: u8 = 0x10;
const FETCH_ADD: u8 = 0x12;
const TO: u64 = DATA + 0x800;

fn narrow(context: &mut [u8]) {
    qpc::cs_res.set(context, 1);
    qpc::cs_req.set(context, 0x11);
}

fn wide(context: &mut [u8]) {
    qpc::cs_res.set(context, 2);
    qpc::cs_req.set(context, 0x22);
}

/// A connected pair, a key over `DATA`, and text there.
struct Two {
    rig: Rig,
    a: u32,
    key: u32,
    posted: u16,
}

impl Two {
    fn new(entry: u32, edit: fn(&mut [u8])) -> Self {
        let mut rig = Rig::new();
        let cqn = rig.cq_with(4, |c| cqc::cqe_sz.set(c, entry)).unwrap();
        Self::on(rig, cqn, edit)
    }

    fn on(mut rig: Rig, cqn: u32, edit: fn(&mut [u8])) -> Self {
        let (a, _) = connect(&mut rig, cqn, edit);
        let key = rig.key(|_| {}).unwrap();
        rig.poke(DATA, &text(0x400));
        Self { rig, a, key, posted: 0 }
    }

    /// Posts a receive of 64 bytes at `TO` on the second queue pair.
    fn receive(&mut self, nth: u16) {
        let at = OTHER_PAGE + u64::from(nth) * 16;
        self.rig.poke(at, &pointer(64, self.key, TO));
        self.rig.poke32(OTHER_DBR, u32::from(nth) + 1);
    }

    fn post(&mut self, opcode: u8, body: &[Vec<u8>]) {
        post(&mut self.rig, self.a, self.posted, opcode, 0x55, body);
        self.posted += 1;
    }

    fn send(&mut self, len: u32) {
        let from = if len == 0 { Vec::new() } else { pointer(len, self.key, DATA) };
        self.post(SEND, &[from]);
    }

    fn untouched(&mut self) {
        assert_eq!(self.rig.peek(TO, 64), [0; 64], "memory is not written");
    }
}

fn text(len: usize) -> Vec<u8> {
    (0..len).map(|n| n as u8 ^ 0x5c).collect()
}

/// Opcode and format of an entry.
fn kind(cqe: &[u8]) -> (u8, u8) {
    (cqe[0x3f] >> 4, cqe[0x3f] >> 2 & 3)
}

#[test]
fn a_short_receive_stands_in_the_first_half_of_its_completion() {
    for len in [1, 20, 32] {
        let mut two = Two::new(0, narrow);
        two.receive(0);
        two.send(len);
        let cqe = two.rig.cqe(0);
        assert_eq!(kind(&cqe), (2, 1), "a send, 32-byte form");
        assert_eq!(cqe[..len as usize], text(len as usize));
        assert!(cqe[len as usize..32].iter().all(|&b| b == 0xc5), "the rest is nothing");
        assert_eq!(cqe[0x2c..0x30], len.to_be_bytes());
        assert_eq!(cqe[0x20..0x24], 0x1234u32.to_be_bytes(), "the second half is as ever");
        two.untouched();
        assert_eq!(kind(&two.rig.cqe(1)), (0, 0), "the sender's completion is plain");
    }
}

#[test]
fn longer_and_empty_receives_are_as_ever() {
    let mut two = Two::new(0, narrow);
    for (nth, len) in [(0, 33), (1, 0)] {
        two.receive(nth);
        two.send(len);
        assert_eq!(kind(&two.rig.cqe(u64::from(nth) * 2)), (2, 0), "{len} bytes");
    }
    assert_eq!(two.rig.peek(TO, 33), text(33));
}

#[test]
fn a_receive_too_short_for_its_message_fails_all_the_same() {
    let mut two = Two::new(0, narrow);
    two.rig.poke(OTHER_PAGE, &pointer(4, two.key, TO));
    two.rig.poke32(OTHER_DBR, 1);
    two.send(5);
    let cqe = two.rig.cqe(0);
    assert_eq!((kind(&cqe), cqe[0x37]), ((14, 0), 1), "local length");
}

#[test]
fn a_write_with_immediate_writes_memory() {
    let mut two = Two::new(0, narrow);
    two.receive(0);
    let (to, from) = (raddr(DATA + 0x900, two.key), pointer(8, two.key, DATA));
    two.post(WRITE_IMM, &[to, from]);
    assert_eq!(kind(&two.rig.cqe(0)), (1, 0));
    assert_eq!(two.rig.peek(DATA + 0x900, 8), text(8));
}

#[test]
fn the_larger_form_stands_before_the_entry() {
    let mut two = Two::new(1, wide);
    two.receive(0);
    two.send(50);
    let entry = two.rig.peek(CQ_PAGE, 128);
    assert_eq!(entry[..50], text(50));
    assert_eq!(kind(&entry[64..]), (2, 2));
    assert_eq!(entry[64..74], [0; 10], "the entry itself is plain");
    assert_eq!(entry[64 + 0x2c..64 + 0x30], 50u32.to_be_bytes());
    two.untouched();
}

#[test]
fn short_answers_stand_in_the_requester_s_completion() {
    for (entry, edit, form) in [(0, narrow as fn(&mut [u8]), 1), (1, wide, 2)] {
        let mut two = Two::new(entry, edit);
        let key = two.key;
        two.post(READ, &[raddr(DATA, key), pointer(24, key, TO)]);
        let operand = [5u64.to_be_bytes(), [0; 8]].concat();
        two.rig.poke(DATA + 0x900, &7u64.to_le_bytes());
        two.post(FETCH_ADD, &[raddr(DATA + 0x900, key), operand, pointer(8, key, TO)]);
        two.untouched();
        for (nth, payload) in [(0, text(24)), (1, 7u64.to_be_bytes().to_vec())] {
            let size = 64u64 << entry;
            let bytes = two.rig.peek(CQ_PAGE + nth * size, size as usize);
            let cqe = &bytes[bytes.len() - 64..];
            assert_eq!(kind(cqe), (0, form));
            assert_eq!(bytes[..payload.len()], payload);
            assert_eq!(cqe[0x2c..0x30], (payload.len() as u32).to_be_bytes());
        }
        assert_eq!(two.rig.peek(DATA + 0x900, 8), 12u64.to_le_bytes());
        two.post(READ, &[raddr(DATA, key), pointer(65, key, TO)]);
        assert_eq!(two.rig.peek(TO, 65), text(65), "a longer one is scattered");
    }
}

#[test]
fn an_unsignalled_read_is_scattered() {
    let mut two = Two::new(0, narrow);
    let mut wqe = control(READ, 0, two.a, 3, 0);
    wqe[11] = 0;
    wqe.extend(raddr(DATA, two.key));
    wqe.extend(pointer(8, two.key, TO));
    two.rig.poke(QP_PAGE + 256, &wqe);
    two.rig.poke32(QP_DBR + 4, 1);
    two.rig.ring(two.a);
    two.rig.hca.step(0);
    assert_eq!(two.rig.peek(TO, 8), text(8));
    assert_eq!(two.rig.cqe(0)[0x3f], 0xf1);
}

#[test]
fn a_receive_of_an_unreliable_connection() {
    fn unreliable(context: &mut [u8]) {
        qpc::st.set(context, 1);
        qpc::cs_res.set(context, 1);
    }
    let mut two = Two::new(0, unreliable);
    two.receive(0);
    two.send(12);
    let cqes = [two.rig.cqe(0), two.rig.cqe(1)];
    let cqe = cqes.iter().find(|cqe| cqe[0x3f] >> 4 == 2).unwrap();
    assert_eq!((kind(cqe), &cqe[..12]), ((2, 1), text(12).as_slice()));
    two.untouched();
}

#[test]
fn a_receive_of_a_shared_queue() {
    let mut rig = Rig::new();
    let srqn = rig.rmp(RQ_DBR, RQ_PAGE);
    let cqn = rig.cq(4);
    let (a, _) = connect(&mut rig, cqn, |c| {
        narrow(c);
        qpc::rq_type.set(c, 1);
        qpc::srqn_rmpn_xrqn.set(c, srqn);
    });
    let key = rig.key(|_| {}).unwrap();
    rig.poke(DATA, &text(64));
    rig.poke(RQ_PAGE, &[vec![0; 16], pointer(64, key, TO)].concat());
    rig.poke32(RQ_DBR, 1);
    let wqe = [control(SEND, 0, a, 2, 0), pointer(9, key, DATA)].concat();
    rig.poke(QP_PAGE, &wqe);
    rig.poke32(QP_DBR + 4, 1);
    rig.ring(a);
    rig.hca.step(0);
    let cqe = rig.cqe(0);
    assert_eq!((kind(&cqe), &cqe[..9]), ((2, 1), text(9).as_slice()));
    assert_eq!(rig.peek(TO, 9), [0; 9]);
}

#[test]
fn an_entry_with_payload_is_not_compressed() {
    let mut rig = Rig::with_facts("cqe-compression=always");
    let cqn = rig.cq_with(4, |c| cqc::cqe_comp_en.set(c, 1)).unwrap();
    let mut two = Two::on(rig, cqn, narrow);
    two.receive(0);
    two.send(3);
    assert_eq!(kind(&two.rig.cqe(0)), (2, 1));
}

#[test]
fn forms_that_cannot_be() {
    type Edit = fn(&mut [u8]);
    let refused: [(u32, Edit); 9] = [
        (0, wide),
        (1, narrow),
        (0, |c| qpc::cs_res.set(c, 2)),
        (0, |c| qpc::cs_res.set(c, 3)),
        (0, |c| qpc::cs_req.set(c, 0x22)),
        (0, |c| qpc::cs_req.set(c, 1)),
        (0, |c| {
            narrow(c);
            qpc::st.set(c, 2);
        }),
        (0, |c| {
            narrow(c);
            qpc::st.set(c, 8);
        }),
        (0, |c| {
            narrow(c);
            qpc::st.set(c, 3);
        }),
    ];
    for (nth, (entry, edit)) in refused.into_iter().enumerate() {
        assert_eq!(create(Rig::new(), entry, edit), Some(3), "{nth}");
    }
    let old = || {
        let general_caps = vec![("sctr_data_cqe", 0)];
        Rig::with(Config { general_caps, ..Config::default() })
    };
    assert_eq!(create(old(), 0, narrow), Some(3));
    assert_eq!(create(old(), 0, |_| {}), None);
}

/// The status with which a queue pair is refused on a CQ of that entry size.
fn create(mut rig: Rig, entry: u32, edit: fn(&mut [u8])) -> Option<u8> {
    let cqn = rig.cq_with(3, |c| cqc::cqe_sz.set(c, entry)).unwrap();
    let mut input = rig.qp_input(cqn);
    edit(crate::ifc::qp::qp_in::qpc.bytes_mut(&mut input));
    rig.run(0x500, &input).err().map(|refused| refused.status)
}

#[test]
fn a_resize_keeps_the_room_for_payload() {
    use crate::ifc::cq::create_cq_in;
    for (edit, status) in [(narrow as fn(&mut [u8]), Some(3)), (|_| {}, None)] {
        let mut rig = Rig::new();
        let cqn = rig.cq(2);
        let mut input = rig.qp_input(cqn);
        edit(crate::ifc::qp::qp_in::qpc.bytes_mut(&mut input));
        rig.run(0x500, &input).unwrap();
        let mut input = vec![0; 280];
        input[8..12].copy_from_slice(&cqn.to_be_bytes());
        input[7] = 1;
        create_cq_in::field_select.set(&mut input, 7);
        let context = create_cq_in::cqc.bytes_mut(&mut input);
        cqc::log_cq_size.set(context, 3);
        cqc::cqe_sz.set(context, 1);
        super::put_page(&mut input, create_cq_in::pas, RQ_PAGE);
        assert_eq!(rig.run(0x403, &input).err().map(|refused| refused.status), status);
    }
}
