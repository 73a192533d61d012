//! Commands of shared receive queues, field by field.

use dat_core::provider::{FaultKind, Pd, Segment, SharedRecvQueue as _};

use super::*;
use crate::data::scripted::{ARENA_IOVA, Scripted};

fn device(p: &Scripted<false>) -> Device<'_, Scripted<false>> {
    let mut device = p.device();
    device.caps.general.set_log_max_srq_sz(15);
    device
}

fn init(receives: u16, segments: u8) -> SharedRqInit {
    SharedRqInit { pd: Pd(0x77), receives, segments }
}

/// A message: its head, and bytes of the context and its `wq` part at their offsets.
fn message(op: Opcode, len: usize, parts: &[(usize, &[u8])]) -> std::vec::Vec<u8> {
    let mut golden = std::vec![0; len];
    golden[..2].copy_from_slice(&op.code().to_be_bytes());
    for (at, bytes) in parts {
        golden[*at..at + bytes.len()].copy_from_slice(bytes);
    }
    golden
}

#[test]
fn create_states_the_whole_shape() {
    for (receives, segments, log_slots, log_stride) in
        [(100, 3, 7, 6), (1, 0, 1, 5), (127, 1, 7, 5), (128, 7, 8, 7), (3, 10, 2, 8)]
    {
        let p = Scripted::<false>::new();
        let mut device = device(&p);
        let (object, mut end) = create(&mut device, &init(receives, segments)).unwrap();
        let ring = (1_usize << (log_slots + log_stride)).max(PAGE);
        assert_eq!(object.memory.len, ring + memory::LINE);
        let start = ARENA_IOVA + object.memory.offset as u64;
        assert_eq!(start % 4096, 0);
        let command = p.of(Opcode::CreateRmp).remove(0);
        let log_page = 12 + (command.input[WQ + 0x22] & 0x1f);
        let place = start & ((1 << log_page) - 1);
        assert!(place + ring as u64 <= 1 << log_page, "the least page that holds it");
        let offset = u8::try_from(place >> (log_page - 6)).unwrap();
        let golden = message(
            Opcode::CreateRmp,
            SQ_PAGES + 8,
            &[
                // Ready; linked.
                (SQ_CONTEXT, &[0, 0x10, 0, 0]),
                (WQ, &[0, 0, 0, 0]),
                (WQ + 0x04, &[0, offset, 0, 0]),
                (WQ + 0x08, &[0, 0, 0, 0x77]),
                (WQ + 0x10, &(start + ring as u64).to_be_bytes()),
                (WQ + 0x20, &[0, log_stride, log_page - 12, log_slots]),
                (SQ_PAGES, &(start - place).to_be_bytes()),
            ],
        );
        assert_eq!(command.input, golden);
        assert_eq!(end.recv(&[Segment { addr: 1, len: 2, lkey: 3 }]), 0);
        assert_eq!(p.bytes(object.memory.offset + 16, 8), [0, 0, 0, 2, 0, 0, 0, 3]);
        assert_eq!(p.bytes(object.memory.offset + ring, 4), [0, 0, 0, 1]);
    }
}

#[test]
fn limits_are_those_of_the_device() {
    let p = Scripted::<false>::new();
    let mut device = device(&p);
    for (log, most) in [(0, 0), (4, 15), (15, 32_767), (16, 32_767)] {
        device.caps.general.set_log_max_srq_sz(log);
        assert_eq!(most_receives(&device), most);
    }
    device.caps.general.set_log_max_srq_sz(4);
    create(&mut device, &init(15, MAX_SEGMENTS)).unwrap();
    let held = p.held();
    for bad in [init(16, 1), init(1, MAX_SEGMENTS + 1)] {
        let fault = create(&mut device, &bad).map(drop).unwrap_err();
        assert_eq!(fault.kind, FaultKind::BadParameter);
    }
    assert_eq!((p.of(Opcode::CreateRmp).len(), p.held()), (1, held));
}

#[test]
fn a_limit_is_armed_as_linux_does_it() {
    let p = Scripted::<false>::new();
    let mut device = device(&p);
    arm(&mut device, 0x99, 0x0102).unwrap();
    let golden = message(
        Opcode::ModifyRmp,
        SQ_PAGES,
        &[
            (8, &[0x10, 0, 0, 0x99]),
            (0x17, &[1]),
            (SQ_CONTEXT, &[0, 0x10, 0, 0]),
            (WQ + 0x04, &[0, 0, 1, 2]),
        ],
    );
    assert_eq!(p.of(Opcode::ModifyRmp)[0].input, golden);
    p.refuse(Opcode::ModifyRmp, 3, 0);
    assert_eq!(arm(&mut device, 0x99, 0).unwrap_err().number, 0x99);
}

#[test]
fn memory_goes_back_when_the_device_lets_go_of_it() {
    let p = Scripted::<false>::new();
    let mut device = device(&p);
    let held = p.held();
    p.refuse(Opcode::CreateRmp, 8, 0);
    assert_eq!(create(&mut device, &init(8, 1)).map(drop).unwrap_err().number, 0);
    assert_eq!(p.held(), held);
    p.refusals.borrow_mut().clear();
    let (object, _end) = create(&mut device, &init(8, 1)).unwrap();
    p.refuse(Opcode::DestroyRmp, 6, 0);
    let fault = destroy(&mut device, &object).unwrap_err();
    assert_eq!((fault.number, p.held()), (object.srqn, held + object.memory.len));
    assert!(device.disowned.is_empty());
    assert!(end(&mut device, &object).is_err());
    assert_eq!(device.disowned.last(), Some(&object.memory));
    p.refusals.borrow_mut().clear();
    end(&mut device, &object).unwrap();
    assert_eq!(p.held(), held);
    assert!(p.of(Opcode::DestroyRmp).iter().all(|command| command.word(8) == object.srqn));
}
