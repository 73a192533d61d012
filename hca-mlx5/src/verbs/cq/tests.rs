//! Completion queue commands, field by field.
#![expect(clippy::cast_possible_truncation, reason = "the numbers are small")]

use dat_core::provider::{CompletionQueue as _, FaultKind, Moderation};

use super::*;
use crate::data::scripted::{ARENA_IOVA, Scripted, UAR};
use crate::device::eq::EventQueue;
use crate::prm::cqe;

/// A device that resizes completion queues.
fn device(p: &Scripted<false>) -> Device<'_, Scripted<false>> {
    let mut device = p.device();
    device.caps.general.set_cq_resize(true);
    device
}

/// Offset of the ring that a command names.
fn ring(p: &Scripted<false>, op: Opcode, nth: usize) -> usize {
    let command = p.of(op).remove(nth);
    let unit = 64 << command.bits(CONTEXT_AT + 0x18, 28, 24);
    let page = usize::try_from(command.wide(memory::PAGES_AT) - ARENA_IOVA).unwrap();
    page + command.bits(CONTEXT_AT + 0x08, 11, 6) as usize * unit
}

/// The device writes an entry; `lap` is its owner bit.
fn write(p: &Scripted<false>, at: usize, opcode: u8, token: u16, lap: bool) {
    let mut bytes = [0; CQE];
    bytes[0x3c..0x3e].copy_from_slice(&token.to_be_bytes());
    bytes[0x3f] = opcode << 4 | u8::from(lap);
    p.put(at, &bytes);
}

#[test]
fn create_states_the_whole_shape() {
    let p = Scripted::<false>::new();
    let mut device = p.device();
    for _ in 0..3 {
        let queue = EventQueue::create(&mut device, 6, 0, 0).unwrap();
        assert!(device.event_queues.push(queue).is_ok());
    }
    let (object, end) = create(&mut device, 100, false).unwrap();
    assert_eq!((end.slots(), end.cqn()), (128, object.cqn.0));
    let command = p.of(Opcode::CreateCq).remove(0);
    let start = ARENA_IOVA + object.home.offset as u64;
    let mut golden = std::vec![0; 0x110 + 8];
    golden[..2].copy_from_slice(&Opcode::CreateCq.code().to_be_bytes());
    // 128 entries, doorbell page 2, the least page that the ring lies in.
    golden[0x1c..0x20].copy_from_slice(&[7, 0, 0, 2]);
    let log_page = 12 + command.input[0x28];
    let place = start & ((1 << log_page) - 1);
    assert!(place + 8192 <= 1 << log_page);
    golden[0x18..0x1c].copy_from_slice(&((place >> (log_page - 12)) as u32).to_be_bytes());
    golden[0x27] = device.event_queues[device::COMPLETION_EVENTS].number();
    golden[0x28] = log_page - 12;
    golden[0x48..0x50].copy_from_slice(&(start + 8192).to_be_bytes());
    golden[0x110..].copy_from_slice(&(start - place).to_be_bytes());
    assert_eq!(command.input, golden);
    assert_eq!(object.home.len, 8192 + memory::LINE);
}

#[test]
fn compression_is_one_bit() {
    let p = Scripted::<false>::new();
    let mut device = p.device();
    for (nth, compressed) in [false, true].into_iter().enumerate() {
        let (object, _) = create(&mut device, 8, compressed).unwrap();
        // Of the first dword, entries of 64 bytes and mini CQEs of format 0 are zeros.
        let golden = [0, 0, u8::from(compressed) << 6, 0];
        assert_eq!(p.of(Opcode::CreateCq)[nth].input[0x10..0x14], golden, "{}", object.cqn.0);
    }
}

#[test]
fn moderation_is_period_and_count_and_nothing_else() {
    let p = Scripted::<false>::new();
    let mut device = p.device();
    let (object, _) = create(&mut device, 8, false).unwrap();
    let moderation = Moderation { completions: 0x1234, period: 0xabc };
    let refused = moderate(&mut device, object.cqn, moderation).unwrap_err();
    assert_eq!((refused.kind, refused.number), (FaultKind::Unsupported, object.cqn.0));
    assert!(p.of(Opcode::ModifyCq).is_empty());
    device.caps.general.set_cq_moderation(true);
    moderate(&mut device, object.cqn, moderation).unwrap();
    let mut golden = std::vec![0; 0x110];
    golden[..2].copy_from_slice(&Opcode::ModifyCq.code().to_be_bytes());
    golden[8..12].copy_from_slice(&object.cqn.0.to_be_bytes());
    golden[15] = 3;
    golden[0x20..0x24].copy_from_slice(&[0x0a, 0xbc, 0x12, 0x34]);
    assert_eq!(p.of(Opcode::ModifyCq).remove(0).input, golden);
}

#[test]
fn a_queue_has_the_least_power_of_two_and_no_more_than_the_device_allows() {
    let p = Scripted::<false>::new();
    let mut device = p.device();
    for (entries, slots) in [(0, 1), (1, 1), (2, 2), (3, 4), (64, 64), (65, 128)] {
        assert_eq!(create(&mut device, entries, false).unwrap().1.slots(), slots);
    }
    device.caps.general.set_log_max_cq_sz(6);
    assert_eq!(create(&mut device, 64, false).unwrap().1.slots(), 64);
    device.caps.general.set_log_max_cq_sz(31);
    assert_eq!(log_of(&device, 1 << 22), Ok(22));
    for (log, entries) in [(6, 65), (31, (1 << 22) + 1), (31, u32::MAX)] {
        device.caps.general.set_log_max_cq_sz(log);
        let fault = create(&mut device, entries, false).map(drop).unwrap_err();
        assert_eq!((fault.kind, fault.operation), (FaultKind::BadParameter, "CREATE_CQ"));
    }
}

#[test]
fn a_refused_create_gives_its_memory_back() {
    let p = Scripted::<false>::new();
    let mut device = p.device();
    let held = p.held();
    p.refuse(Opcode::CreateCq, 8, 0);
    let fault = create(&mut device, 4, false).map(drop).unwrap_err();
    assert_eq!((fault.status, fault.number), (8, 0));
    assert_eq!(p.held(), held);
}

#[test]
fn resize_names_the_other_ring_and_nothing_else() {
    for (entries, log) in [(9, 4), (200, 8)] {
        let p = Scripted::<false>::new();
        let mut device = device(&p);
        let (mut object, mut end) = create(&mut device, 4, false).unwrap();
        write(&p, ring(&p, Opcode::CreateCq, 0), cqe::RESIZED, 0, false);
        resize(&mut device, &mut object, &mut end, entries).unwrap();
        assert_eq!(end.slots(), 1 << log);
        let command = p.of(Opcode::ModifyCq).remove(0);
        let at = object.moved.unwrap().offset;
        assert_eq!(ring(&p, Opcode::ModifyCq, 0), at);
        let start = ARENA_IOVA + at as u64;
        let log_page = 12 + command.input[0x28];
        let place = start & ((1 << log_page) - 1);
        let bytes = CQE << log;
        assert!(place + bytes as u64 <= 1 << log_page, "the least page that holds it");
        let mut golden = std::vec![0; 0x110 + 8];
        golden[..2].copy_from_slice(&Opcode::ModifyCq.code().to_be_bytes());
        golden[7] = 1;
        golden[8..12].copy_from_slice(&object.cqn.0.to_be_bytes());
        golden[15] = 7;
        golden[0x18..0x1c].copy_from_slice(&((place >> (log_page - 12)) as u32).to_be_bytes());
        golden[0x1c] = log;
        golden[0x28] = log_page - 12;
        golden[0x110..].copy_from_slice(&(start - place).to_be_bytes());
        assert_eq!(command.input, golden);
    }
}

/// As often as it is resized, it has its first memory and at most one ring more; the first is used
/// again where it is long enough.
#[test]
fn rings_that_are_left_go_back_to_the_arena() {
    let p = Scripted::<false>::new();
    let mut device = device(&p);
    let held = p.held();
    let (mut object, mut end) = create(&mut device, 8, false).unwrap();
    let home = p.held();
    let mut at = ring(&p, Opcode::CreateCq, 0);
    let line = memory::LINE;
    let moves = [(64, 64 * 64 + line), (4, 0), (8, 8 * 64 + line), (16, 16 * 64 + line)];
    for (n, (entries, more)) in moves.into_iter().enumerate() {
        let index = n as u32;
        write(
            &p,
            at + 64 * (index & (end.slots() - 1)) as usize,
            cqe::RESIZED,
            0,
            index & end.slots() != 0,
        );
        // One that the device refuses changes nothing.
        p.refuse(Opcode::ModifyCq, 5, 0);
        let before = p.held();
        assert!(resize(&mut device, &mut object, &mut end, entries).is_err());
        assert_eq!(p.held(), before);
        p.refusals.borrow_mut().clear();
        resize(&mut device, &mut object, &mut end, entries).unwrap();
        assert_eq!((end.slots(), p.held()), (entries, home + more), "move {n}");
        at = ring(&p, Opcode::ModifyCq, 2 * n + 1);
        assert_eq!(at == object.home.offset, more == 0, "move {n}");
    }
    destroy(&mut device, &object).unwrap();
    assert_eq!(p.held(), held);
}

#[test]
fn a_resize_to_the_same_length_is_no_command_and_to_any_other_is() {
    let p = Scripted::<false>::new();
    let mut device = device(&p);
    let (mut object, mut end) = create(&mut device, 8, false).unwrap();
    for entries in [5, 8] {
        resize(&mut device, &mut object, &mut end, entries).unwrap();
    }
    assert!(p.of(Opcode::ModifyCq).is_empty());
    p.refuse(Opcode::ModifyCq, 5, 0);
    let held = p.held();
    for entries in [0, 4, 9, 16] {
        let fault = resize(&mut device, &mut object, &mut end, entries).unwrap_err();
        assert_eq!((fault.number, fault.status), (object.cqn.0, 5));
        assert_eq!((end.slots(), p.held()), (8, held), "it stays as it was");
    }
}

#[test]
fn a_ring_is_no_shorter_than_what_waits() {
    let p = Scripted::<false>::new();
    let mut device = device(&p);
    let (mut object, mut end) = create(&mut device, 16, false).unwrap();
    let at = ring(&p, Opcode::CreateCq, 0);
    for token in 0..2 {
        write(&p, at + 64 * usize::from(token), cqe::REQUESTER, 10 + token, false);
    }
    write(&p, at + 64 * 2, cqe::RESIZED, 0, false);
    // Three that were written, and one more.
    resize(&mut device, &mut object, &mut end, 1).unwrap();
    assert_eq!(end.slots(), 4);
    let tokens = [end.poll(), end.poll()].map(|polled| polled.map(|c| c.token));
    assert_eq!(tokens, [Some(10), Some(11)]);
    assert_eq!(end.poll(), None);
}

#[test]
fn what_cannot_be_resized_says_so() {
    let p = Scripted::<false>::new();
    let mut device = p.device();
    let (mut object, mut end) = create(&mut device, 8, false).unwrap();
    let fault = resize(&mut device, &mut object, &mut end, 16).unwrap_err();
    assert_eq!((fault.kind, fault.number), (FaultKind::Unsupported, object.cqn.0));
    device.caps.general.set_cq_resize(true);
    let fault = resize(&mut device, &mut object, &mut end, 1 << 30).unwrap_err();
    assert_eq!((fault.kind, fault.number), (FaultKind::BadParameter, object.cqn.0));
    assert!(p.of(Opcode::ModifyCq).is_empty());
    // A device that takes the command and does not end the old ring.
    let fault = resize(&mut device, &mut object, &mut end, 16).unwrap_err();
    assert_eq!((fault.kind, fault.number), (FaultKind::Nonsense, object.cqn.0));
    assert!(device.disowned.is_empty(), "the first ring goes with the queue");
    // Nor the second one, which it may still write.
    let held = p.held();
    let fault = resize(&mut device, &mut object, &mut end, 32).unwrap_err();
    assert_eq!((fault.kind, fault.number), (FaultKind::Nonsense, object.cqn.0));
    assert_eq!(device.disowned.len(), 1);
    assert!(p.held() > held);
}

#[test]
fn a_queue_that_the_device_keeps_is_freed_at_the_teardown() {
    for moved in [false, true] {
        let p = Scripted::<false>::new();
        let mut device = device(&p);
        let (mut object, mut end) = create(&mut device, 4, false).unwrap();
        if moved {
            write(&p, ring(&p, Opcode::CreateCq, 0), cqe::RESIZED, 0, false);
            resize(&mut device, &mut object, &mut end, 16).unwrap();
        }
        let held = p.held();
        p.refuse(Opcode::DestroyCq, 6, 0);
        let fault = super::end(&mut device, &object).unwrap_err();
        assert_eq!((fault.number, fault.status), (object.cqn.0, 6));
        assert_eq!(p.of(Opcode::DestroyCq)[0].word(8), object.cqn.0);
        assert_eq!((p.held(), device.disowned.len()), (held, 1 + usize::from(moved)));
    }
}

#[test]
fn it_arms_in_the_page_of_the_driver() {
    let p = Scripted::<false>::new();
    let mut device = p.device();
    let (_, mut end) = create(&mut device, 4, false).unwrap();
    p.take();
    end.arm(false);
    let rang = |op: &crate::data::scripted::Op| matches!(op, crate::data::scripted::Op::Write64(at, _) if *at == UAR + 0x20);
    assert!(p.take().iter().any(rang));
}
