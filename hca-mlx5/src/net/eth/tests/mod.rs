//! The port on a device that knows just enough: what it says in commands, what it undoes, how its
//! rings turn over. Long, because each golden message stands here whole.
//!
//! Length: one test per rule of the port, on one test device.

mod nic;

use core::task::Poll;
use std::vec;
use std::vec::Vec;

use dat_core::Instant;
use dat_core::provider::{FaultKind, Net};

use super::*;
use crate::device::Identity;
use crate::net::neigh::Mac;
use crate::net::neigh::Neighbours;
use crate::platform::Dma;
use nic::{IOVA, Nic};

const MAC: Mac = [0x02, 0x11, 0x22, 0x33, 0x44, 0x55];
const GROUPS: [Mac; 3] =
    [[0xff; 6], [0x33, 0x33, 0, 0, 0, 1], [0x33, 0x33, 0xff, 0xaa, 0xbb, 0xcc]];
const CONFIG: Config<'_> =
    Config { pd: 0x21, lkey: 0x4455_6677, reserved: true, groups: &GROUPS, vlan: None };

/// Order in which a port without VLAN is made on a function that is no switch owner.
const MADE: [Opcode; 17] = [
    Opcode::CreateCq,
    Opcode::AllocTransportDomain,
    Opcode::CreateTis,
    Opcode::CreateRq,
    Opcode::CreateSq,
    Opcode::CreateTir,
    Opcode::ModifyRq,
    Opcode::ModifySq,
    Opcode::CreateFlowTable,
    Opcode::CreateFlowGroup,
    Opcode::SetFlowTableEntry,
    Opcode::SetFlowTableEntry,
    Opcode::SetFlowTableEntry,
    Opcode::SetFlowTableEntry,
    Opcode::SetFlowTableRoot,
    Opcode::ModifyNicVportContext,
    Opcode::ModifyNicVportContext,
];

fn be(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn frame(n: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| u8::try_from((i * 7 + n * 31) % 251).unwrap()).collect()
}

/// A port that is up.
fn create<'p>(device: &mut Device<'p, Nic>, config: &Config<'_>) -> Result<Port<'p, Nic>, Fault> {
    let mut port = Port::new(device.platform());
    port.open(device, config)?;
    Ok(port)
}

fn receive(port: &mut Port<'_, Nic>) -> Option<Vec<u8>> {
    let mut to = [0; FRAME_MAX];
    port.recv(&mut to, &mut 64).map(|len| to[..len].to_vec())
}

// ---- making and undoing ----

#[test]
fn made_in_order_and_undone_in_reverse() {
    let nic = Nic::new();
    let mut device = nic.device(false);
    let before = nic.spans();
    let mut port = create(&mut device, &CONFIG).unwrap();
    assert_eq!(nic.opcodes(), MADE);
    assert_eq!(nic.spans(), before + 2);
    port.close(&mut device).unwrap();
    assert_eq!(
        nic.opcodes(),
        [
            Opcode::ModifyNicVportContext,
            Opcode::ModifyNicVportContext,
            Opcode::DeleteFlowTableEntry,
            Opcode::DeleteFlowTableEntry,
            Opcode::DeleteFlowTableEntry,
            Opcode::DeleteFlowTableEntry,
            Opcode::DestroyFlowGroup,
            Opcode::DestroyFlowTable,
            Opcode::DestroyTir,
            Opcode::DestroySq,
            Opcode::DestroyRq,
            Opcode::DestroyTis,
            Opcode::DeallocTransportDomain,
            Opcode::DestroyCq,
        ]
    );
    assert_eq!((nic.objects(), nic.spans()), (vec![], before));
}

#[test]
fn a_refusal_at_any_step_leaves_nothing_behind() {
    // The address lists that end the sequence may be refused.
    for (step, op) in MADE.iter().take(15).enumerate() {
        let nic = Nic::new();
        let mut device = nic.device(false);
        let before = nic.spans();
        nic.refuse_nth.set(Some(step));
        let fault = create(&mut device, &CONFIG).unwrap_err();
        assert_eq!(fault.status, 5, "{fault}");
        assert_eq!(fault.operation, op.name());
        assert_eq!((nic.objects(), nic.spans()), (vec![], before), "{fault}");
    }
}

#[test]
fn without_room_in_the_arena_nothing_is_asked_of_the_device() {
    let nic = Nic::new();
    let mut device = nic.device(false);
    while nic.alloc(4096, 4096, Reach::ReadWrite).is_some() {}
    let fault = create(&mut device, &CONFIG).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Resources);
    assert_eq!(nic.opcodes(), []);
}

#[test]
fn memory_of_a_queue_that_may_yet_become_active_is_not_given_back() {
    let nic = Nic::new();
    let mut device = nic.device(false);
    let before = nic.spans();
    nic.silent.set(Some(Opcode::CreateRq));
    let fault = create(&mut device, &CONFIG).unwrap_err();
    assert_eq!((fault.kind, fault.operation), (FaultKind::Timeout, "CREATE_RQ"));
    // Nothing more is asked of a device that hangs: the completion queue stays, and its memory too.
    assert_eq!(nic.objects().len(), 3);
    assert_eq!(nic.spans(), before + 2);
    assert_eq!(device.disowned.len(), 2, "both go with the teardown");
    // A device that answers nonsense may have made the queue too.
    let nic = Nic::new();
    let mut device = nic.device(false);
    let before = nic.spans();
    nic.garbled.set(Some(Opcode::CreateRq));
    let fault = create(&mut device, &CONFIG).unwrap_err();
    assert_eq!((fault.kind, fault.operation), (FaultKind::Nonsense, "CREATE_RQ"));
    assert_eq!((nic.spans(), device.disowned.len()), (before + 1, 1));
}

#[test]
fn memory_of_a_queue_that_would_not_go_is_not_given_back() {
    for op in [Opcode::DestroyRq, Opcode::DestroySq] {
        let nic = Nic::new();
        let mut device = nic.device(false);
        let before = nic.spans();
        let mut port = create(&mut device, &CONFIG).unwrap();
        nic.refuse.borrow_mut().insert(op.code(), 6);
        let fault = port.close(&mut device).unwrap_err();
        assert_eq!(fault.operation, op.name());
        assert_eq!(nic.objects().len(), 1, "the rest is gone");
        assert_eq!((nic.spans(), device.disowned.len()), (before + 1, 1));
    }
}

#[test]
fn refused_address_lists_are_no_failure() {
    let nic = Nic::new();
    let mut device = nic.device(true);
    for op in [Opcode::ModifyNicVportContext, Opcode::SetL2TableEntry] {
        nic.refuse.borrow_mut().insert(op.code(), 3);
    }
    let mut port = create(&mut device, &CONFIG).unwrap();
    nic.opcodes();
    port.close(&mut device).unwrap();
    let undone = nic.opcodes();
    assert_eq!(undone[0], Opcode::DeleteFlowTableEntry, "what was refused is not undone");
}

#[test]
fn an_address_list_that_is_not_answered_is_a_failure() {
    for op in [Opcode::ModifyNicVportContext, Opcode::SetL2TableEntry] {
        let nic = Nic::new();
        let mut device = nic.device(true);
        nic.silent.set(Some(op));
        let fault = create(&mut device, &CONFIG).unwrap_err();
        assert_eq!((fault.kind, fault.operation), (FaultKind::Timeout, op.name()));
        assert_eq!(fault.number, 0);
    }
}

#[test]
fn a_port_works_while_it_is_up_and_has_not_failed() {
    let nic = Nic::new();
    let mut device = nic.device(false);
    let mut port = Port::new(&nic);
    let down = |port: &mut Port<'_, Nic>| {
        assert!(!port.works());
        assert!(!port.owns(0) && !port.owns(0x103) && !port.owns(0x104));
        assert!(port.send(&frame(0, 60)).unwrap_err().cause.contains("down"));
        assert_eq!(receive(port), None);
    };
    down(&mut port);
    port.open(&mut device, &CONFIG).unwrap();
    assert!(port.works());
    port.close(&mut device).unwrap();
    down(&mut port);
    // A failure lasts until it is opened anew.
    port.open(&mut device, &CONFIG).unwrap();
    port.fail(fault!(BadState, "Ethernet port", "it failed"));
    assert!(!port.works());
    port.close(&mut device).unwrap();
    port.open(&mut device, &CONFIG).unwrap();
    assert!(port.works());
    port.send(&frame(0, 60)).unwrap();
}

#[test]
fn without_the_reserved_key_none_is_named() {
    let nic = Nic::new();
    let mut device = nic.device(false);
    let _port = create(&mut device, &Config { reserved: false, ..CONFIG }).unwrap();
    for op in [Opcode::CreateRq, Opcode::CreateSq] {
        assert_eq!(nic.input(op, 0)[0x20] & 0x80, 0, "{op:?}");
    }
}

#[test]
fn steering_is_undone_by_whole_messages() {
    let nic = Nic::new();
    let mut device = nic.device(false);
    let mut port = create(&mut device, &CONFIG).unwrap();
    port.close(&mut device).unwrap();
    for (op, group) in [(Opcode::DestroyFlowGroup, 0x107_u32), (Opcode::DestroyFlowTable, 0)] {
        let mut golden = vec![0; 64];
        golden[..2].copy_from_slice(&op.code().to_be_bytes());
        golden[0x14..0x18].copy_from_slice(&0x106_u32.to_be_bytes());
        golden[0x18..0x1c].copy_from_slice(&group.to_be_bytes());
        assert_eq!(nic.input(op, 0), golden);
    }
    // The address lists are empty again, the multicast one first.
    for (nth, list) in [(2, 0x0100_0000), (3, 0)] {
        let input = nic.input(Opcode::ModifyNicVportContext, nth);
        assert_eq!((input.len(), be(&input, 0x0c), be(&input, 0x1f0)), (512, 4, list));
    }
}

#[test]
fn the_owner_of_the_switch_enters_its_mac() {
    let nic = Nic::new();
    let mut device = nic.device(true);
    let mut port = create(&mut device, &CONFIG).unwrap();
    let input = nic.input(Opcode::SetL2TableEntry, 0);
    assert_eq!(input.len(), 64);
    assert_eq!(input[0x14..0x18], [0; 4]);
    assert_eq!(input[0x20..0x28], [0, 0, 0x02, 0x11, 0x22, 0x33, 0x44, 0x55]);
    port.close(&mut device).unwrap();
    assert_eq!(nic.objects(), []);
}

#[test]
fn an_entry_of_the_switch_that_stays_is_named() {
    let nic = Nic::new();
    let mut device = nic.device(true);
    let mut port = create(&mut device, &CONFIG).unwrap();
    let op = Opcode::DeleteL2TableEntry;
    nic.refuse.borrow_mut().insert(op.code(), 3);
    let fault = port.close(&mut device).unwrap_err();
    assert_eq!((fault.operation, fault.number), (op.name(), 0));
}

// ---- golden messages ----

#[test]
fn golden_send_queue() {
    let nic = Nic::new();
    let mut device = nic.device(false);
    let _port = create(&mut device, &CONFIG).unwrap();
    let tis = be(&nic.input(Opcode::CreateSq, 0), 0x4c);
    let cqn = be(&nic.input(Opcode::CreateSq, 0), 0x28);
    assert_eq!((cqn, tis), (0x100, 0x102));
    let input = nic.input(Opcode::CreateSq, 0);
    assert_eq!(input.len(), 280);
    let mut golden = vec![0; 280];
    golden[..2].copy_from_slice(&[0x09, 0x04]);
    // rlky, flush_in_error_en, inline mode 1
    golden[0x20] = 0x91;
    golden[0x28..0x2c].copy_from_slice(&[0, 0, 0x01, 0x00]);
    // tis_lst_sz 1
    golden[0x40..0x44].copy_from_slice(&[0, 1, 0, 0]);
    golden[0x4c..0x50].copy_from_slice(&[0, 0, 0x01, 0x02]);
    // cyclic, pd, uar, record, stride 64, 16 blocks
    golden[0x50] = 0x10;
    golden[0x58..0x5c].copy_from_slice(&[0, 0, 0, 0x21]);
    golden[0x5c..0x60].copy_from_slice(&device.uar().number.to_be_bytes());
    let pages: [u8; 8] = input[0x110..0x118].try_into().unwrap();
    let page = u64::from_be_bytes(pages);
    assert!(page % 4096 == 0 && page > IOVA);
    golden[0x60..0x68].copy_from_slice(&(page + 0x840).to_be_bytes());
    golden[0x70..0x74].copy_from_slice(&[0, 6, 0, 4]);
    golden[0x110..].copy_from_slice(&pages);
    assert_eq!(input, golden);

    let modify = nic.input(Opcode::ModifySq, 0);
    assert_eq!(modify.len(), 272);
    assert_eq!(be(&modify, 8), 0x104, "state 0 and the number");
    assert_eq!(be(&modify, 0x20), 0x0010_0000, "state 1");
    assert!(modify[0x24..].iter().all(|byte| *byte == 0));
}

#[test]
fn golden_receive_queue() {
    let nic = Nic::new();
    let mut device = nic.device(false);
    let _port = create(&mut device, &CONFIG).unwrap();
    let input = nic.input(Opcode::CreateRq, 0);
    assert_eq!(input.len(), 280);
    // rlky, no VLAN stripping, flush_in_error_en
    assert_eq!(be(&input, 0x20), 0x9004_0000);
    assert_eq!(be(&input, 0x28), 0x100);
    assert_eq!(be(&input, 0x50), 0x1000_0000);
    assert_eq!(be(&input, 0x58), 0x21);
    assert_eq!(be(&input, 0x5c), 0, "no doorbell page");
    assert_eq!(be(&input, 0x70), 0x0006_0006);
    let sq = nic.input(Opcode::CreateSq, 0);
    assert_eq!(be(&input, 0x64) + 0x40, be(&sq, 0x64), "each record has its cache line");
    assert_eq!(be(&nic.input(Opcode::ModifyRq, 0), 0x20), 0x0010_0000);
}

#[test]
fn golden_transport_interfaces() {
    let nic = Nic::new();
    let mut device = nic.device(false);
    let _port = create(&mut device, &CONFIG).unwrap();
    let tis = nic.input(Opcode::CreateTis, 0);
    assert_eq!((tis.len(), be(&tis, 0x44)), (192, 0x101));
    let tir = nic.input(Opcode::CreateTir, 0);
    assert_eq!(tir.len(), 272);
    assert_eq!((be(&tir, 0x24), be(&tir, 0x3c), be(&tir, 0x44)), (0, 0x103, 0x101));
}

#[test]
fn golden_steering() {
    let nic = Nic::new();
    let mut device = nic.device(false);
    let _port = create(&mut device, &Config { vlan: Some(0xabc), ..CONFIG }).unwrap();
    let table = nic.input(Opcode::CreateFlowTable, 0);
    assert_eq!((table.len(), be(&table, 0x10), be(&table, 0x18)), (64, 0, 3));
    let group = nic.input(Opcode::CreateFlowGroup, 0);
    assert_eq!(group.len(), 1024);
    assert_eq!((be(&group, 0x14), be(&group, 0x1c), be(&group, 0x24)), (0x106, 0, 7));
    assert_eq!(group[0x3f], 1);
    let mut mask = vec![0; 1024 - 0x40];
    mask[8..14].fill(0xff);
    assert_eq!(group[0x40..], mask);
    let macs = [MAC, GROUPS[0], GROUPS[1], GROUPS[2]];
    for (index, mac) in macs.iter().enumerate() {
        let entry = nic.input(Opcode::SetFlowTableEntry, index);
        assert_eq!(entry.len(), 840);
        assert_eq!((be(&entry, 0x14), be(&entry, 0x20)), (0x106, u32::try_from(index).unwrap()));
        assert_eq!((be(&entry, 0x44), be(&entry, 0x4c), be(&entry, 0x50)), (0x107, 4, 1));
        assert_eq!(entry[0x88..0x8e], *mac);
        assert_eq!(be(&entry, 0x340), 0x0200_0105);
    }
    let root = nic.input(Opcode::SetFlowTableRoot, 0);
    assert_eq!((root.len(), be(&root, 0x10), be(&root, 0x14)), (64, 0, 0x106));
    let own = nic.input(Opcode::ModifyNicVportContext, 0);
    assert_eq!((own.len(), be(&own, 0x0c), be(&own, 0x1f0)), (520, 4, 0x0000_0001));
    assert_eq!(own[0x200..], [0, 0, 0x02, 0x11, 0x22, 0x33, 0x44, 0x55]);
    let groups = nic.input(Opcode::ModifyNicVportContext, 1);
    assert_eq!((groups.len(), be(&groups, 0x1f0)), (536, 0x0100_0003));
    assert_eq!(groups[0x208..0x210], [0, 0, 0x33, 0x33, 0, 0, 0, 1]);
    let vlan = nic.input(Opcode::ModifyNicVportContext, 2);
    assert_eq!((vlan.len(), be(&vlan, 0x1f0)), (520, 0x0200_0001));
    assert_eq!(vlan[0x200..], [0, 0, 0x0a, 0xbc, 0, 0, 0, 0]);
}

#[test]
fn golden_ethernet_wqe() {
    let nic = Nic::new();
    let mut device = nic.device(false);
    let mut port = create(&mut device, &CONFIG).unwrap();
    let bytes = frame(0, 64);
    port.send(&bytes).unwrap();
    let wqe = nic.wqes.borrow()[0].clone();
    #[rustfmt::skip]
    let mut golden = vec![
        // SEND, index 0, SQ 0x104, 4 units; always a CQE
        0, 0, 0, 0x0a,  0, 0x01, 0x04, 4,  0, 0, 0, 8,  0, 0, 0, 0,
        // no offloads, 18 bytes of header
        0, 0, 0, 0,  0, 0, 0, 0,  0, 0, 0, 0,  0, 18,
    ];
    golden.extend(&bytes[..18]);
    golden.extend([0, 0, 0, 46, 0x44, 0x55, 0x66, 0x77]);
    assert_eq!(wqe[..56], golden);
    let address = u64::from_be_bytes(wqe[56..].try_into().unwrap());
    assert_eq!((address - IOVA) % 4096, 18, "behind the inlined header in the first buffer");
    assert_eq!(nic.sent.borrow_mut().pop_front().unwrap(), bytes);
}

// ---- sending ----

#[test]
fn frames_leave_in_order_while_the_ring_turns_over() {
    for inline in [InlineMode::None, InlineMode::L2, InlineMode::Ip, InlineMode::TcpUdp] {
        let nic = Nic::new();
        nic.wants(inline);
        let mut device = nic.device(false);
        let mut port = create(&mut device, &CONFIG).unwrap();
        for n in 0..200 {
            let bytes = frame(n, 90 + n % 150);
            port.send(&bytes).unwrap();
            assert_eq!(nic.sent.borrow_mut().pop_front().unwrap(), bytes, "{inline:?} {n}");
            assert_eq!(receive(&mut port), None);
        }
        assert_eq!(port.counters().sent, 200);
        assert_eq!(port.fault(), None);
    }
}

#[test]
fn counters_of_sixteen_bits_turn_over() {
    for inline in [InlineMode::L2, InlineMode::Ip] {
        let nic = Nic::new();
        nic.wants(inline);
        let mut device = nic.device(false);
        let mut port = create(&mut device, &CONFIG).unwrap();
        let bytes = frame(1, 100);
        for n in 0..70_000 {
            port.send(&bytes).unwrap();
            assert!(nic.deliver(&bytes));
            assert_eq!(receive(&mut port).as_ref(), Some(&bytes), "{n}");
            nic.sent.borrow_mut().clear();
            nic.wqes.borrow_mut().clear();
        }
        receive(&mut port);
        assert_eq!(port.fault(), None);
        assert_eq!((port.counters().sent, port.counters().received), (70_000, 70_000));
    }
}

#[test]
fn short_frames_are_padded_beyond_what_is_inlined() {
    for (inline, padded) in [(InlineMode::L2, 60), (InlineMode::Ip, 68), (InlineMode::TcpUdp, 84)] {
        let nic = Nic::new();
        nic.wants(inline);
        let mut device = nic.device(false);
        let mut port = create(&mut device, &CONFIG).unwrap();
        // The buffer's former content must not leak into the padding.
        for _ in 0..16 {
            port.send(&[0xee; 200]).unwrap();
        }
        receive(&mut port);
        port.send(&[0x11; 42]).unwrap();
        let sent = nic.sent.borrow_mut().pop_back().unwrap();
        assert_eq!(sent.len(), padded);
        assert_eq!(sent[..42], [0x11; 42]);
        assert!(sent[42..].iter().all(|byte| *byte == 0));
    }
}

#[test]
fn a_full_ring_refuses_until_something_is_confirmed() {
    let nic = Nic::new();
    let mut device = nic.device(false);
    let mut port = create(&mut device, &CONFIG).unwrap();
    nic.withhold.set(true);
    for n in 0..16 {
        port.send(&frame(n, 60)).unwrap();
    }
    assert_eq!(port.send(&frame(16, 60)).unwrap_err().kind, FaultKind::Resources);
    assert_eq!(nic.sent.borrow().len(), 16);
    nic.release(1);
    assert_eq!(receive(&mut port), None);
    port.send(&frame(16, 60)).unwrap();
    assert_eq!(port.send(&frame(17, 60)).unwrap_err().kind, FaultKind::Resources);
}

/// Each frame on its way has a buffer of its own, of one page.
#[test]
fn buffers_of_frames_are_apart() {
    let nic = Nic::new();
    let mut device = nic.device(false);
    let mut port = create(&mut device, &CONFIG).unwrap();
    for n in 0..50 {
        port.send(&frame(n, FRAME_MAX)).unwrap();
        receive(&mut port);
    }
    let address = |wqe: &Vec<u8>| u64::from_be_bytes(wqe[56..64].try_into().unwrap()) - 18;
    let addresses: Vec<u64> = nic.wqes.borrow().iter().map(address).collect();
    let first = addresses[0];
    assert_eq!(first % 4096, 0);
    for (n, address) in (0..).zip(addresses) {
        assert_eq!(address, first + n % 16 * 256);
    }
}

#[test]
fn frames_of_impossible_length_are_refused() {
    let nic = Nic::new();
    let mut device = nic.device(false);
    let mut port = create(&mut device, &CONFIG).unwrap();
    for len in [0, 13, FRAME_MAX + 1, 5000] {
        assert_eq!(port.send(&vec![0; len]).unwrap_err().kind, FaultKind::BadParameter, "{len}");
    }
    port.send(&[0; 14]).unwrap();
    port.send(&[0; FRAME_MAX]).unwrap();
    assert_eq!(nic.sent.borrow()[1].len(), FRAME_MAX);
}

#[test]
fn stores_fences_and_doorbell_come_in_the_one_right_order() {
    let nic = Nic::new();
    let mut device = nic.device(false);
    let mut port = create(&mut device, &CONFIG).unwrap();
    nic.order.0.borrow_mut().clear();
    port.send(&frame(0, 60)).unwrap();
    // frame, WQE, fence, record, fence, doorbell, and out with it
    assert_eq!(*nic.order.0.borrow(), "ssfrfda");
}

// ---- receiving ----

#[test]
fn frames_arrive_in_order_while_the_ring_turns_over() {
    let nic = Nic::new();
    let mut device = nic.device(false);
    let mut port = create(&mut device, &CONFIG).unwrap();
    let mut n = 0;
    for batch in [1, 64, 3, 17, 64, 64, 5] {
        for i in 0..batch {
            assert!(nic.deliver(&frame(n + i, 60 + (n + i) % 196)));
        }
        for _ in 0..batch {
            assert_eq!(receive(&mut port), Some(frame(n, 60 + n % 196)), "{n}");
            n += 1;
        }
        assert_eq!(receive(&mut port), None);
    }
    assert_eq!(port.counters().received, u32::try_from(n).unwrap());
}

#[test]
fn all_buffers_are_posted_from_the_start_and_no_more() {
    let nic = Nic::new();
    let mut device = nic.device(false);
    let mut port = create(&mut device, &CONFIG).unwrap();
    for n in 0..64 {
        assert!(nic.deliver(&frame(n, 60)));
    }
    assert!(!nic.deliver(&frame(64, 60)));
    assert_eq!(receive(&mut port), Some(frame(0, 60)));
    assert!(nic.deliver(&frame(65, 60)));
    assert!(!nic.deliver(&frame(66, 60)));
}

#[test]
fn long_frames_are_dropped_and_do_no_harm() {
    let nic = Nic::new();
    let mut device = nic.device(false);
    let mut port = create(&mut device, &CONFIG).unwrap();
    for len in [FRAME_MAX + 1, 1518, 9_000, 10_000] {
        assert!(nic.deliver(&frame(1, len)));
        assert!(nic.deliver(&frame(2, FRAME_MAX)));
        assert_eq!(receive(&mut port), Some(frame(2, FRAME_MAX)), "{len}");
    }
    assert_eq!((port.counters().long, port.fault()), (4, None));
}

#[test]
fn no_more_completions_are_taken_than_the_caller_allows() {
    let nic = Nic::new();
    let mut device = nic.device(false);
    let mut port = create(&mut device, &CONFIG).unwrap();
    for n in 0..8 {
        // All but the last are too long.
        assert!(nic.deliver(&frame(n, if n < 7 { FRAME_MAX + 1 } else { 60 })));
    }
    let mut to = [0; FRAME_MAX];
    let mut left = 5;
    assert_eq!(port.recv(&mut to, &mut left), None);
    assert_eq!((left, port.counters().long), (0, 5));
    left = 5;
    assert_eq!(port.recv(&mut to, &mut left), Some(60));
    assert_eq!((left, port.counters().long), (2, 7));
}

/// However much room the caller has: a receive buffer holds no more.
#[test]
fn a_frame_longer_than_a_buffer_is_dropped() {
    let nic = Nic::new();
    let mut device = nic.device(false);
    let mut port = create(&mut device, &CONFIG).unwrap();
    for len in [FRAME_MAX, FRAME_MAX + 1, 1000] {
        assert!(nic.deliver(&frame(1, len)));
        let taken = port.recv(&mut [0; 2048], &mut 64);
        assert_eq!(taken, (len == FRAME_MAX).then_some(len));
    }
}

#[test]
fn a_frame_longer_than_the_callers_buffer_is_dropped() {
    let nic = Nic::new();
    let mut device = nic.device(false);
    let mut port = create(&mut device, &CONFIG).unwrap();
    assert!(nic.deliver(&frame(1, 100)));
    assert!(nic.deliver(&frame(2, 60)));
    let mut to = [0; 64];
    assert_eq!(port.recv(&mut to, &mut 64), Some(60));
    assert_eq!(to[..60], frame(2, 60));
}

#[test]
fn completions_of_both_queues_interleave() {
    let nic = Nic::new();
    let mut device = nic.device(false);
    let mut port = create(&mut device, &CONFIG).unwrap();
    for n in 0..10 {
        port.send(&frame(n, 60)).unwrap();
        assert!(nic.deliver(&frame(n, 70)));
    }
    for n in 0..10 {
        assert_eq!(receive(&mut port), Some(frame(n, 70)));
    }
    assert_eq!(port.counters().sent, 10);
}

// ---- trouble ----

#[test]
fn an_error_completion_ends_the_port_and_says_what_the_device_said() {
    for (opcode, object, number) in [(13, "SQ", 0x104), (14, "RQ", 0x103)] {
        let nic = Nic::new();
        let mut device = nic.device(false);
        let mut port = create(&mut device, &CONFIG).unwrap();
        nic.complete(opcode, 0, 0, 4);
        assert_eq!(receive(&mut port), None);
        let fault = port.fault().unwrap();
        assert_eq!((fault.object, fault.number), (object, number));
        assert_eq!((fault.status, fault.syndrome), (4, 0x51));
        assert_eq!(port.send(&frame(0, 60)), Err(fault));
        port.close(&mut device).unwrap();
        assert_eq!(nic.objects(), []);
    }
}

#[test]
fn completions_out_of_turn_are_nonsense() {
    for (opcode, counter) in [(0, 0), (2, 5), (2, 64)] {
        let nic = Nic::new();
        let mut device = nic.device(false);
        let mut port = create(&mut device, &CONFIG).unwrap();
        nic.complete(opcode, counter, 60, 0);
        assert_eq!(receive(&mut port), None);
        assert_eq!(port.fault().unwrap().kind, FaultKind::Nonsense, "{opcode} {counter}");
    }
}

#[test]
fn a_send_that_completes_out_of_turn_is_nonsense() {
    for (counter, good) in [(0, true), (1, false), (5, false)] {
        let nic = Nic::new();
        let mut device = nic.device(false);
        let mut port = create(&mut device, &CONFIG).unwrap();
        nic.withhold.set(true);
        for n in 0..2 {
            port.send(&frame(n, 60)).unwrap();
        }
        nic.complete(0, counter, 0, 0);
        assert_eq!(receive(&mut port), None);
        assert_eq!((port.works(), port.counters().sent), (good, u32::from(good)), "{counter}");
    }
}

#[test]
fn a_length_without_sense_is_a_long_frame() {
    let nic = Nic::new();
    let mut device = nic.device(false);
    let mut port = create(&mut device, &CONFIG).unwrap();
    nic.complete(2, 0, u32::MAX, 0);
    assert_eq!(receive(&mut port), None);
    assert_eq!((port.counters().long, port.fault()), (1, None));
}

#[test]
fn events_find_their_port() {
    let nic = Nic::new();
    let mut device = nic.device(false);
    let mut port = create(&mut device, &CONFIG).unwrap();
    assert!(port.cq(0x100).is_some() && port.cq(0x101).is_none());
    assert!(port.owns(0x103) && port.owns(0x104) && !port.owns(0x102));
    nic.order.0.borrow_mut().clear();
    port.arm();
    assert_eq!(*nic.order.0.borrow(), "rfda");
}

// ---- with neighbour discovery on top ----

#[test]
fn two_ports_find_each_other() {
    for (addr, peer) in [("10.1.0.1", "10.1.0.2"), ("fd00::1", "fd00::2")] {
        let nics = [Nic::new(), Nic::new()];
        let macs = [MAC, [0x02, 0, 0, 0, 0, 9]];
        let mut stations = Vec::new();
        for ((nic, mac), addr) in nics.iter().zip(macs).zip([addr, peer]) {
            let net = Net { addr: addr.parse().unwrap(), prefix: 16, gateway: None, vlan: Some(7) };
            let neighbours = Neighbours::<8>::new(mac, &net, Instant::ZERO).unwrap();
            nic.identity.set(Identity { mac, ..nic.identity.get() });
            let mut device = nic.device(false);
            let groups = neighbours.groups();
            let config = Config { groups: &groups, vlan: Some(7), ..CONFIG };
            stations.push((neighbours, create(&mut device, &config).unwrap()));
        }
        let peer = peer.parse().unwrap();
        for _ in 0..4 {
            let _ = stations[0].0.resolve(peer, Instant::ZERO);
            for (neighbours, port) in &mut stations {
                while let Some(frame) = neighbours.transmit(Instant::ZERO) {
                    port.send(&frame).unwrap();
                }
            }
            for (from, to) in [(0, 1), (1, 0)] {
                for frame in nics[from].sent.borrow_mut().drain(..) {
                    assert!(nics[to].deliver(&frame));
                }
            }
            for (neighbours, port) in &mut stations {
                while let Some(frame) = receive(port) {
                    neighbours.receive(&frame, Instant::ZERO);
                }
            }
        }
        assert_eq!(stations[0].0.resolve(peer, Instant::ZERO), Poll::Ready(Ok(macs[1])));
    }
}
