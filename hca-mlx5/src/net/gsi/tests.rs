//! QP1: what is made, what is sent, what is taken in and what is not.
//!
//! Length: one queue pair, and what each completion does to it.
#![expect(clippy::cast_possible_truncation, reason = "the numbers are small")]

use core::net::{IpAddr, Ipv4Addr};
use dat_core::provider::{Class, FaultKind, NextHop};
use std::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::data::scripted::{Op, Scripted};
use crate::prm::cmd::Opcode;

const PATH: Path = Path {
    remote: IpAddr::V4(Ipv4Addr::new(192, 168, 7, 2)),
    next_hop: NextHop::Mac([2, 0, 0, 0, 0, 2]),
    source_index: 0,
    hop_limit: 64,
    class: Class { traffic_class: 0, priority: 0 },
    flow_label: 0x3c52a,
};

/// Bytes of a receive: the buffer, and what takes the rest of a packet that is no MAD.
const STRIDE: usize = 32;

/// The 40 bytes before a datagram from `from` over IPv4; the first 20 hold garbage.
fn v4(from: [u8; 4]) -> [u8; 40] {
    sealed(|grh| grh[32..36].copy_from_slice(&from))
}

/// One from nobody, edited; with the right checksum.
fn sealed(edit: impl FnOnce(&mut [u8; 40])) -> [u8; 40] {
    let mut grh = [0x6b; 40];
    let header: [u8; 20] = [0x45, 0, 1, 52, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 2, 10, 0, 0, 1];
    grh[20..].copy_from_slice(&header);
    edit(&mut grh);
    let mut sum: u32 = grh[20..].chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum();
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    grh[30..32].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    grh
}

fn v6(from: [u8; 16], next_header: u8) -> [u8; 40] {
    let mut grh = [0; 40];
    grh[0] = 0x60;
    grh[6] = next_header;
    grh[7] = 64;
    grh[8..24].copy_from_slice(&from);
    grh
}

/// The device delivers a datagram into the receive of `token`.
fn deliver(p: &Scripted<false>, token: u16, grh: &[u8; 40], mad: u8, len: u32) {
    let receive = p.qp_rings(0).0 + STRIDE * usize::from(token & (RECEIVES - 1));
    let pointer = p.bytes(receive, 16);
    let addr = u64::from_be_bytes(pointer[8..].try_into().unwrap());
    let at = usize::try_from(addr).unwrap();
    p.put(at, grh);
    p.put(at + 40, &[mad; 256]);
    complete(p, 1, RECEIVES, token, 2, len);
}

/// The device completes something on the `nth` completion queue, of `entries` entries.
fn complete(p: &Scripted<false>, nth: usize, entries: u16, token: u16, opcode: u8, len: u32) {
    let mut cqe = [0; 64];
    cqe[0x2c..0x30].copy_from_slice(&len.to_be_bytes());
    cqe[0x37] = if opcode > 12 { 4 } else { 0 };
    cqe[0x3c..0x3e].copy_from_slice(&token.to_be_bytes());
    let index = if nth == 0 { token / 2 } else { token };
    cqe[0x3f] = opcode << 4 | u8::from(index & entries != 0);
    p.put(p.cq_ring(nth) + 64 * usize::from(index & (entries - 1)), &cqe);
}

fn up(p: &Scripted<false>) -> (Device<'_, Scripted<false>>, Gsi<'_, Scripted<false>>) {
    let mut device = p.device();
    let gsi = Gsi::create(&mut device).unwrap();
    (device, gsi)
}

#[test]
fn made_in_order_and_undone_in_reverse() {
    let p = Scripted::<false>::new();
    let mut device = p.device();
    let held = p.held();
    let gsi = Gsi::create(&mut device).unwrap();
    gsi.destroy(&mut device).unwrap();
    let ops: Vec<Opcode> = p.commands.borrow().iter().map(|c| c.op).collect();
    let golden = [
        Opcode::AllocPd,
        Opcode::CreateMkey,
        Opcode::CreateCq,
        Opcode::CreateCq,
        Opcode::CreateQp,
        Opcode::Rst2InitQp,
        Opcode::Init2RtrQp,
        Opcode::Rtr2RtsQp,
        Opcode::ToRstQp,
        Opcode::DestroyQp,
        Opcode::DestroyCq,
        Opcode::DestroyCq,
        Opcode::DestroyMkey,
        Opcode::DeallocPd,
    ];
    assert_eq!(ops, golden);
    assert_eq!(p.held(), held);
}

#[test]
fn a_failure_anywhere_leaves_nothing_behind() {
    for op in [
        Opcode::AllocPd,
        Opcode::CreateMkey,
        Opcode::CreateCq,
        Opcode::CreateQp,
        Opcode::Rst2InitQp,
        Opcode::Init2RtrQp,
        Opcode::Rtr2RtsQp,
    ] {
        let p = Scripted::<false>::new();
        let mut device = p.device();
        let held = p.held();
        p.refuse(op, 3, 0);
        assert_eq!(Gsi::create(&mut device).unwrap_err().operation, op.name());
        assert_eq!(p.held(), held, "{op:?}");
        let count = |op| p.of(op).len();
        let made = |op| count(op).saturating_sub(usize::from(op_refused(&p, op)));
        assert_eq!(made(Opcode::CreateCq), count(Opcode::DestroyCq));
        assert_eq!(made(Opcode::CreateQp), count(Opcode::DestroyQp));
        assert_eq!(made(Opcode::CreateMkey), count(Opcode::DestroyMkey));
        assert_eq!(made(Opcode::AllocPd), count(Opcode::DeallocPd));
    }
}

fn op_refused(p: &Scripted<false>, op: Opcode) -> bool {
    p.refusals.borrow().contains_key(&op.code())
}

#[test]
fn receives_are_posted_and_an_event_is_asked_for() {
    let p = Scripted::<false>::new();
    let (_device, _gsi) = up(&p);
    let (receive, _) = p.qp_rings(0);
    for slot in 0..usize::from(RECEIVES) {
        assert_eq!(p.bytes(receive + STRIDE * slot, 4), 296_u32.to_be_bytes());
    }
    assert_eq!(arms(&p), 1);
    let qp = p.of(Opcode::CreateQp).remove(0);
    let context = |at: usize, high, low| qp.bits(0x18 + at, high, low);
    assert_eq!((context(0x00, 23, 16), context(0x10, 23, 0)), (8, 0x00ff_ffff));
    assert_eq!(1 << context(0x08, 22, 19), u32::from(RECEIVES));
    assert_eq!(1 << context(0x08, 18, 16), 2, "units of a receive");
    let entries = |nth| 1 << p.of(Opcode::CreateCq).remove(nth).bits(0x10 + 0x0c, 28, 24);
    assert_eq!([0, 1].map(entries), [u32::from(SENDS), u32::from(RECEIVES)]);
}

#[test]
fn a_datagram_goes_to_the_peers_qp1() {
    let p = Scripted::<false>::new();
    let (_device, mut gsi) = up(&p);
    gsi.send(&PATH, &[0x5c; 256]).unwrap();
    let (_, send) = p.qp_rings(0);
    let wqe = p.bytes(send, 128);
    let [.., a, b, c] = p.of(Opcode::Rst2InitQp)[0].word(8).to_be_bytes();
    assert_eq!(wqe[..16], [0, 0, 0, 10, a, b, c, 5, 0, 0, 0, 8, 0, 0, 0, 0]);
    assert_eq!(wqe[16..20], [0x80, 1, 0, 0]);
    assert_eq!(wqe[24..32], [0x80, 0, 0, 1, 0, 0, 0xc5, 0x25]);
    assert_eq!(wqe[36..44], [2, 0, 0, 0, 0, 2, ECT_0, 64]);
    assert_eq!(wqe[44..48], [0x40, 0x03, 0xc5, 0x2a]);
    assert_eq!(wqe[48..64], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 168, 7, 2]);
    assert_eq!(wqe[64..68], [0, 0, 1, 0]);
    assert_eq!(wqe[80..], [0; 48]);
    let addr = u64::from_be_bytes(wqe[72..80].try_into().unwrap());
    // Behind the receives, which end on a multiple of 8.
    assert_eq!(addr % 8, 0);
    assert_eq!(p.bytes(addr as usize, 256), [0x5c; 256]);
}

#[test]
fn a_datagram_has_the_class_of_its_path_and_says_that_a_switch_may_mark_it() {
    for (given, sent) in [(0x68, 0x6a), (0x69, 0x69), (0x6b, 0x6b)] {
        let p = Scripted::<false>::new();
        let (_device, mut gsi) = up(&p);
        let class = Class { traffic_class: given, priority: 5 };
        gsi.send(&Path { class, ..PATH }, &[0; 256]).unwrap();
        let wqe = p.bytes(p.qp_rings(0).1, 64);
        assert_eq!((wqe[28], wqe[42]), (5 << 1, sent));
    }
}

#[test]
fn sends_in_flight_are_bounded_and_come_back() {
    let p = Scripted::<false>::new();
    let (_device, mut gsi) = up(&p);
    for _ in 0..SENDS {
        gsi.send(&PATH, &[0; 256]).unwrap();
    }
    assert_eq!(gsi.send(&PATH, &[0; 256]).unwrap_err().kind, FaultKind::Resources);
    complete(&p, 0, SENDS, 0, 0, 0);
    gsi.send(&PATH, &[0; 256]).unwrap();
    assert_eq!(gsi.send(&PATH, &[0; 256]).unwrap_err().kind, FaultKind::Resources);
}

#[test]
fn a_datagram_over_ipv4_arrives() {
    let p = Scripted::<false>::new();
    let (_device, mut gsi) = up(&p);
    deliver(&p, 0, &v4([192, 168, 7, 9]), 0x11, 296);
    let mad = gsi.recv().unwrap();
    assert_eq!((mad.from, mad.mad), (IpAddr::from([192, 168, 7, 9]), [0x11; 256]));
    assert!(gsi.recv().is_none());
}

#[test]
fn a_datagram_over_ipv6_arrives() {
    let p = Scripted::<false>::new();
    let (_device, mut gsi) = up(&p);
    let from = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xfe, 1, 2, 3];
    deliver(&p, 0, &v6(from, 17), 0x22, 296);
    assert_eq!(gsi.recv().unwrap().from, IpAddr::from(from));
}

#[test]
fn receives_go_round_the_ring() {
    let p = Scripted::<false>::new();
    let (mut device, mut gsi) = up(&p);
    for token in 0..3 * RECEIVES + 4 {
        gsi.service(&mut device, Instant::ZERO).unwrap();
        deliver(&p, token, &v4([10, 0, 0, 2]), token as u8, 296);
        assert_eq!(gsi.recv().unwrap().mad[0], token as u8);
    }
}

#[test]
fn a_packet_that_is_no_mad_is_dropped_and_counted() {
    let p = Scripted::<false>::new();
    let (_device, mut gsi) = up(&p);
    let good = v4([10, 0, 0, 2]);
    let mut options = good;
    options[20] = 0x4f;
    let mut bad_sum = good;
    bad_sum[31] ^= 1;
    bad_sum[0] = 0x40;
    let tcp = sealed(|grh| grh[29] = 6);
    let version = sealed(|grh| grh[20] = 0x55);
    let mut version_v6 = v6([1; 16], 17);
    version_v6[0] = 0x70;
    let cases = [
        (good, 295),
        (good, 297),
        (good, 40),
        (good, 0),
        (good, u32::MAX),
        (options, 296),
        (bad_sum, 296),
        (tcp, 296),
        (version, 296),
        (version_v6, 296),
        (v4([224, 0, 0, 1]), 296),
        (v4([0, 0, 0, 0]), 296),
        (v4([255, 255, 255, 255]), 296),
        (v6([0; 16], 17), 296),
        (v6([0xff; 16], 17), 296),
        (v6([1; 16], 0x1b), 296),
        ([0; 40], 296),
    ];
    for (token, (grh, len)) in cases.iter().enumerate() {
        deliver(&p, token as u16, grh, 0, *len);
    }
    deliver(&p, cases.len() as u16, &good, 0x77, 296);
    assert_eq!(gsi.recv().unwrap().mad[0], 0x77, "what is good comes through");
    assert_eq!(gsi.malformed() as usize, cases.len());
}

#[test]
fn the_event_is_asked_for_again_only_after_one_came() {
    let p = Scripted::<false>::new();
    let (_device, mut gsi) = up(&p);
    p.take();
    assert!(gsi.recv().is_none());
    assert_eq!(arms(&p), 0);
    deliver(&p, 0, &v4([10, 0, 0, 2]), 0, 296);
    gsi.event();
    assert!(gsi.recv().is_some());
    assert_eq!(arms(&p), 0, "not before the queue is empty");
    assert!(gsi.recv().is_none());
    assert_eq!(arms(&p), 1);
}

#[test]
fn after_a_failure_it_starts_anew() {
    let p = Scripted::<false>::new();
    let (mut device, mut gsi) = up(&p);
    gsi.send(&PATH, &[0; 256]).unwrap();
    complete(&p, 0, SENDS, 0, 13, 0);
    assert_eq!(gsi.send(&PATH, &[0; 256]).unwrap_err().operation, "QP1");
    gsi.service(&mut device, Instant::ZERO).unwrap();
    assert_eq!(p.of(Opcode::ToRstQp).len(), 1);
    assert_eq!(p.of(Opcode::Rtr2RtsQp).len(), 2);
    let (receive, send) = p.qp_rings(0);
    let record = send + 2 * 64 * usize::from(SENDS);
    assert_eq!(p.bytes(record, 4), u32::from(RECEIVES).to_be_bytes());
    assert_eq!(p.bytes(record + 4, 4), [0; 4]);
    gsi.send(&PATH, &[0; 256]).unwrap();
    assert_eq!(p.bytes(record + 4, 4), [0, 0, 0, 2]);
    assert_eq!(p.bytes(receive, 4), 296_u32.to_be_bytes());
    // All places are free, and receives are counted from the first again.
    for _ in 1..SENDS {
        gsi.send(&PATH, &[0; 256]).unwrap();
    }
    assert_eq!(gsi.send(&PATH, &[0; 256]).unwrap_err().kind, FaultKind::Resources);
    deliver(&p, 0, &v4([192, 168, 7, 2]), 0x5a, 296);
    assert!(gsi.recv().is_some());
}

#[test]
fn a_receive_out_of_turn_starts_it_anew() {
    let p = Scripted::<false>::new();
    let (mut device, mut gsi) = up(&p);
    let mut cqe = [0; 64];
    cqe[0x3d] = 9;
    cqe[0x3f] = 0x20;
    p.put(p.cq_ring(1), &cqe);
    assert!(gsi.recv().is_none());
    gsi.service(&mut device, Instant::ZERO).unwrap();
    assert_eq!(p.of(Opcode::ToRstQp).len(), 1);
}

/// From now on the device writes completions of that kind into the `nth` queue as fast as they are
/// taken, and a driver that takes more than `most` in one call fails the test.
fn endless(p: &Scripted<false>, queues: &'static [(usize, u16)], opcode: u8, most: u32) {
    let rings: Vec<_> = queues.iter().map(|&(nth, entries)| (p.cq_ring(nth), entries)).collect();
    let mut taken = std::vec![0_u32; rings.len()];
    p.look(move |offset, value| {
        for ((ring, entries), taken) in rings.iter().zip(&mut taken) {
            let at = offset.wrapping_sub(*ring);
            if at < 64 * usize::from(*entries) && at % 64 == 0x3c {
                let lap = (*taken / u32::from(*entries)) & 1;
                assert!(*taken < most, "the driver takes completions without end");
                *taken += 1;
                return (u32::from(opcode) << 4 | lap).to_be();
            }
        }
        value
    });
}

fn arms(p: &Scripted<false>) -> usize {
    p.take().into_iter().filter(|op| matches!(op, Op::Write64(0x2020, _))).count()
}

#[test]
fn completions_without_end_hold_up_no_restart() {
    let p = Scripted::<false>::new();
    let (mut device, mut gsi) = up(&p);
    gsi.fail(fault!(BadState, "QP1", "it failed"));
    endless(&p, &[(0, SENDS), (1, RECEIVES)], 0, 4 * u32::from(RECEIVES));
    gsi.service(&mut device, Instant::ZERO).unwrap();
}

#[test]
fn malformed_datagrams_without_end_hold_up_no_call_and_an_event_is_asked_for() {
    let p = Scripted::<false>::new();
    let (mut device, mut gsi) = up(&p);
    gsi.service(&mut device, Instant::ZERO).unwrap();
    // Each reports 0 bytes, in turn.
    let ring = p.cq_ring(1);
    let mut taken = 0_u32;
    p.look(move |offset, value| {
        let at = offset.wrapping_sub(ring);
        if at >= 64 * usize::from(RECEIVES) || at % 64 != 0x3c {
            return value;
        }
        let entry = taken << 16 | 2 << 4 | (taken / u32::from(RECEIVES)) & 1;
        taken += 1;
        assert!(taken <= 2 * u32::from(work::DATAGRAMS), "the driver takes them without end");
        entry.to_be()
    });
    gsi.event();
    p.take();
    for _ in 0..4 {
        assert!(gsi.recv().is_none());
    }
    assert_eq!(gsi.malformed(), work::DATAGRAMS.into());
    assert_eq!(arms(&p), 1);
    assert_eq!(gsi.next_deadline(), Some(Instant::ZERO), "there is more");
}

#[test]
fn entries_of_no_kind_without_end_hold_up_no_call() {
    let p = Scripted::<false>::new();
    let (mut device, mut gsi) = up(&p);
    endless(&p, &[(0, SENDS), (1, RECEIVES)], 9, 3 * u32::from(work::DATAGRAMS));
    gsi.service(&mut device, Instant::ZERO).unwrap();
    for _ in 0..4 {
        assert!(gsi.recv().is_none());
    }
}

#[test]
fn events_find_it_by_its_numbers() {
    let p = Scripted::<false>::new();
    let (_device, gsi) = up(&p);
    let qp = p.of(Opcode::CreateQp).remove(0);
    let cqs = [0x7c, 0x9c].map(|at| qp.bits(0x18 + at, 23, 0));
    let qpn = p.of(Opcode::Rst2InitQp)[0].word(8);
    for number in 0..0x100 {
        assert_eq!(gsi.cq(number).is_some(), cqs.contains(&number));
        assert_eq!(gsi.owns_qp(number), number == qpn);
    }
}

#[test]
fn what_the_device_keeps_is_named_and_freed_at_the_teardown() {
    let p = Scripted::<false>::new();
    let (mut device, gsi) = up(&p);
    p.refuse(Opcode::DestroyMkey, 6, 0);
    let fault = gsi.destroy(&mut device).unwrap_err();
    assert_eq!(fault.operation, "DESTROY_MKEY");
    assert_eq!(device.disowned.len(), 1, "the buffers");
    assert_eq!(p.of(Opcode::DeallocPd).len(), 1, "the rest is gone");
}

/// Buffers are apart from each other and from the memory of what is too long, and the key has all
/// of them.
#[test]
fn buffers_are_apart() {
    let p = Scripted::<false>::new();
    let (_device, mut gsi) = up(&p);
    let (receive, send) = p.qp_rings(0);
    let mut pieces = Vec::new();
    let mut piece = |at: usize| {
        let pointer = p.bytes(at, 16);
        let len = u32::from_be_bytes(pointer[..4].try_into().unwrap());
        pieces.push((u64::from_be_bytes(pointer[8..].try_into().unwrap()), u64::from(len)));
    };
    for slot in 0..usize::from(RECEIVES) {
        piece(receive + STRIDE * slot);
    }
    piece(receive + 16);
    for n in 0..SENDS {
        gsi.send(&PATH, &[n as u8; 256]).unwrap();
        piece(send + 128 * usize::from(n) + 64);
    }
    for (n, (at, len)) in (0_u8..).zip(&pieces[usize::from(RECEIVES) + 1..]) {
        assert_eq!(p.bytes(*at as usize, *len as usize), [n; 256], "still there");
    }
    assert!(pieces.iter().all(|(at, _)| at % 64 == 0), "on a cache line");
    pieces.sort_unstable();
    assert!(pieces.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0));
    let key = p.of(Opcode::CreateMkey).remove(0);
    let (start, len) = (key.wide(0x20), key.wide(0x28));
    let (last, rest) = *pieces.last().unwrap();
    assert_eq!((pieces[0].0, last + rest), (start, start + len));
    assert_eq!(p.live.borrow().get(&(start as usize)), Some(&(len as usize)));
}

#[test]
fn a_datagram_without_a_flow_label_has_the_port_of_both_numbers() {
    let p = Scripted::<false>::new();
    let (_device, mut gsi) = up(&p);
    gsi.send(&Path { flow_label: 0, ..PATH }, &[0; 256]).unwrap();
    let (_, send) = p.qp_rings(0);
    assert_eq!(p.bytes(send + 30, 2), [0xc0, 1], "of QP1 and QP1");
}

#[test]
fn a_receive_buffer_is_given_back_at_once() {
    let p = Scripted::<false>::new();
    let (_device, mut gsi) = up(&p);
    let (_, send) = p.qp_rings(0);
    let record = send + 2 * 64 * usize::from(SENDS);
    for token in 0..5_u16 {
        deliver(&p, token, &v4([10, 0, 0, 2]), 0, if token == 3 { 5 } else { 296 });
    }
    while gsi.recv().is_some() {}
    assert_eq!(p.bytes(record, 4), u32::from(RECEIVES + 5).to_be_bytes());
}

#[test]
fn a_failed_receive_starts_it_anew() {
    let p = Scripted::<false>::new();
    let (mut device, mut gsi) = up(&p);
    complete(&p, 1, RECEIVES, 0, 14, 0);
    assert!(gsi.recv().is_none());
    assert_eq!((gsi.malformed(), gsi.next_deadline()), (0, Some(Instant::ZERO)));
    gsi.service(&mut device, Instant::ZERO).unwrap();
    assert_eq!(p.of(Opcode::ToRstQp).len(), 1);
}

#[test]
fn a_failed_send_is_noticed_by_the_service() {
    let p = Scripted::<false>::new();
    let (mut device, mut gsi) = up(&p);
    for _ in 0..3 {
        gsi.service(&mut device, Instant::ZERO).unwrap();
    }
    assert_eq!(p.of(Opcode::ToRstQp).len(), 0, "nothing to mend");
    gsi.send(&PATH, &[0; 256]).unwrap();
    complete(&p, 0, SENDS, 0, 13, 0);
    gsi.service(&mut device, Instant::ZERO).unwrap();
    assert_eq!(p.of(Opcode::ToRstQp).len(), 1);
}

/// What completed before the reset is of the queue pair as it was.
#[test]
fn after_a_restart_earlier_completions_count_for_nothing() {
    let p = Scripted::<false>::new();
    let (mut device, mut gsi) = up(&p);
    deliver(&p, 0, &v4([10, 0, 0, 2]), 1, 296);
    assert!(gsi.recv().is_some());
    deliver(&p, 1, &v4([10, 0, 0, 2]), 2, 296);
    gsi.send(&PATH, &[0; 256]).unwrap();
    gsi.fail(fault!(BadState, "QP1", "it failed"));
    gsi.service(&mut device, Instant::ZERO).unwrap();
    assert_eq!(p.of(Opcode::ToRstQp).len(), 1);
    assert!(gsi.recv().is_none(), "of the time before");
    // Receives count from 0 again; their completions come behind those that were there.
    let mut cqe = [0; 64];
    cqe[0x2c..0x30].copy_from_slice(&296_u32.to_be_bytes());
    cqe[0x3f] = 0x20;
    let at = u64::from_be_bytes(p.bytes(p.qp_rings(0).0 + 8, 8).try_into().unwrap()) as usize;
    p.put(at, &v4([10, 0, 0, 3]));
    p.put(p.cq_ring(1) + 64 * 2, &cqe);
    assert_eq!(gsi.recv().unwrap().from, IpAddr::from([10, 0, 0, 3]));
    assert_eq!(gsi.next_deadline(), None);
}

#[test]
fn completions_of_sends_that_were_not_posted_free_nothing() {
    let p = Scripted::<false>::new();
    let (mut device, mut gsi) = up(&p);
    for n in 0..3 {
        complete(&p, 0, SENDS, 2 * n, 0, 0);
    }
    gsi.service(&mut device, Instant::ZERO).unwrap();
    for _ in 0..SENDS {
        gsi.send(&PATH, &[0; 256]).unwrap();
    }
    assert_eq!(gsi.send(&PATH, &[0; 256]).unwrap_err().kind, FaultKind::Resources);
}

#[test]
fn before_the_first_service_no_more_are_taken_either() {
    let p = Scripted::<false>::new();
    let (_device, mut gsi) = up(&p);
    for token in 0..RECEIVES {
        deliver(&p, token, &v4([10, 0, 0, 2]), 0, 5);
    }
    assert!(gsi.recv().is_none());
    deliver(&p, RECEIVES, &v4([10, 0, 0, 2]), 0, 5);
    assert!(gsi.recv().is_none());
    assert_eq!(gsi.malformed(), u32::from(RECEIVES));
}

/// Anybody can send a datagram of the link's MTU to QP1. A receive that is too short for it fails
/// the queue pair on some devices, and with it all connection management.
#[test]
fn a_receive_has_room_for_the_longest_datagram() {
    let p = Scripted::<false>::new();
    let (_device, _gsi) = up(&p);
    let (receive, _) = p.qp_rings(0);
    let held = p.live.borrow().clone();
    for slot in 0..usize::from(RECEIVES) {
        let list = p.bytes(receive + STRIDE * slot, STRIDE);
        let mut room = 0;
        for pointer in list.chunks(16) {
            let len = u32::from_be_bytes(pointer[..4].try_into().unwrap()) as usize;
            let at = u64::from_be_bytes(pointer[8..].try_into().unwrap()) as usize;
            assert!(held.iter().any(|(start, size)| *start <= at && at + len <= start + size));
            room += len;
        }
        assert!(room >= 40 + 4096, "{room}");
    }
}

#[test]
fn a_datagram_that_is_too_long_is_counted_and_harms_no_other() {
    let p = Scripted::<false>::new();
    let (_device, mut gsi) = up(&p);
    deliver(&p, 0, &v4([10, 0, 0, 2]), 1, 40 + 4096);
    deliver(&p, 1, &v4([10, 0, 0, 3]), 2, 296);
    assert_eq!(gsi.recv().unwrap().mad[0], 2);
    assert_eq!(gsi.malformed(), 1);
}

#[test]
fn a_failed_queue_pair_is_started_anew_when_the_deadline_says_and_not_all_the_time() {
    let p = Scripted::<false>::new();
    let (mut device, mut gsi) = up(&p);
    let now = Instant::from_nanos(77);
    assert_eq!(gsi.next_deadline(), None);
    gsi.fail(fault!(BadState, "QP1", "it failed"));
    assert!(gsi.next_deadline().is_some_and(|due| due <= now));
    gsi.service(&mut device, now).unwrap();
    assert_eq!(gsi.next_deadline(), None);
    // A device that fails it each time costs a few commands each 10 ms.
    for _ in 0..100 {
        gsi.fail(fault!(BadState, "QP1", "it failed again"));
        gsi.service(&mut device, now).unwrap();
    }
    assert_eq!(p.of(Opcode::ToRstQp).len(), 1);
    let due = gsi.next_deadline().unwrap();
    assert_eq!(due.since(now), work::RESTART);
    gsi.service(&mut device, due).unwrap();
    assert_eq!(p.of(Opcode::ToRstQp).len(), 2);
}

proptest! {
    /// Nothing in the header area panics, and a sender is always a host.
    #[test]
    fn any_header_is_survived(grh in prop::array::uniform32(any::<u8>()), tail in any::<u64>(), kind in 0..3) {
        let mut area = [0; 40];
        area[..32].copy_from_slice(&grh);
        area[32..].copy_from_slice(&tail.to_be_bytes());
        match kind {
            0 => area[20] = 0x45,
            1 => area[0] = 0x60,
            _ => {}
        }
        for network in [NetworkHeader::Unsaid, NetworkHeader::V4, NetworkHeader::V6] {
            if let Some(from) = network.sender(&area) {
                prop_assert!(!from.is_unspecified() && !from.is_multicast());
                prop_assert!(network != NetworkHeader::V4 || from.is_ipv4());
                prop_assert!(network != NetworkHeader::V6 || from.is_ipv6());
            }
        }
    }
}
