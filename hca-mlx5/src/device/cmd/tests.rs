//! Commands against a scripted device: what goes out, what comes back, what never does.

use core::time::Duration;
use dat_core::provider::FaultKind;
use std::boxed::Box;
use std::string::{String, ToString};
use std::vec;
use std::vec::Vec;

use super::*;
use crate::device::scripted::{IOVA, Recorder, Reply, Scripted, TICK};
use crate::platform::Clock;
use crate::prm::error::delivery_status;

fn queue(platform: &Scripted) -> CommandQueue<'_, Scripted> {
    CommandQueue::new(platform, Some(Duration::from_millis(50)), None).unwrap()
}

fn exec(
    queue: &mut CommandQueue<'_, Scripted>,
    op: Opcode,
    op_mod: u16,
    number: u32,
    input: &mut [u8],
    output: &mut [u8],
) -> Result<(), Fault> {
    let flight = queue.send(op, op_mod, number, input, &(), output)?;
    while !queue.poll(&flight)? {
        queue.relax(&flight);
    }
    queue.finish(&flight, output)
}

fn nop(queue: &mut CommandQueue<'_, Scripted>) -> Result<(), Fault> {
    exec(queue, Opcode::DeallocUar, 0, 9, &mut [0; 16], &mut [0; 16])
}

#[test]
fn the_page_is_written_high_word_first_and_the_geometry_survives() {
    let platform = Scripted::new();
    let _queue = queue(&platform);
    assert_eq!(platform.get(init_seg::CMDQ_ADDR_H), 7);
    assert_eq!(platform.get(init_seg::CMDQ_ADDR_L_SZ) & 0xff, 0x56);
    assert_eq!(
        platform.get(init_seg::CMDQ_ADDR_L_SZ) & 0xffff_f000,
        u32::try_from(IOVA & 0xffff_f000).unwrap()
    );
}

#[test]
fn a_short_command_travels_in_its_entry() {
    let platform = Scripted::with(|_| {
        Reply::Answer(vec![0, 0, 0, 0, 0, 0, 0, 0, 0, 0x12, 0x34, 0x56, 9, 9, 9, 9])
    });
    let mut queue = queue(&platform);
    let mut input = [0; 16];
    input[12..].copy_from_slice(&[1, 2, 3, 4]);
    let mut output = [0xff; 16];
    exec(&mut queue, Opcode::AllocPd, 3, 0, &mut input, &mut output).unwrap();
    assert_eq!(OutputHead(output).number(), 0x12_3456);
    assert_eq!(output[12..], [9, 9, 9, 9]);
    let log = platform.log.borrow();
    assert_eq!(log[0].input, [8, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 1, 2, 3, 4]);
    assert_eq!((log[0].entry.input_length(), log[0].entry.output_length()), (16, 16));
    assert_eq!((log[0].entry.input_mailbox(), log[0].entry.output_mailbox()), (0, 0));
}

#[test]
fn the_entry_signature_is_the_one_of_a_real_card_s_trace() {
    // ENABLE_HCA as Linux sent it to a ConnectX-4: token 1, signature 0xfd.
    let mut entry = CommandEntry::new();
    entry.set_kind(TRANSPORT_PCI);
    entry.set_input_length(16);
    entry.set_output_length(16);
    entry.set_command_input_inline(0x0104_0000 << 96);
    entry.set_token(1);
    entry.set_ownership(true);
    assert_eq!(signature(&entry.0), 0xfd);
}

#[test]
fn long_messages_cross_block_boundaries_whole() {
    let answer: Vec<u8> =
        core::iter::repeat_n(0u8, 8).chain((8..1100u32).map(|n| n.to_le_bytes()[0])).collect();
    let reply = answer.clone();
    let platform = Scripted::with(move |_| Reply::Answer(reply.clone()));
    let mut queue = queue(&platform);
    let mut input: Vec<u8> = (0..16 + 2 * 512 + 1).map(|n: usize| n.to_le_bytes()[0]).collect();
    let sent = input.clone();
    let mut output = vec![0; 1100];
    exec(&mut queue, Opcode::Nop, 0, 0, &mut input, &mut output).unwrap();
    assert_eq!(output, answer);
    let log = platform.log.borrow();
    assert_eq!(log[0].input[8..], sent[8..]);
    assert_eq!((log[0].in_blocks.len(), log[0].out_blocks.len()), (3, 3));
}

#[test]
fn a_message_of_a_whole_number_of_blocks_takes_no_block_more() {
    let platform = Scripted::new();
    let mut queue = queue(&platform);
    exec(&mut queue, Opcode::Nop, 0, 0, &mut [0; 16 + 512], &mut [0; 16 + 1024]).unwrap();
    let log = platform.log.borrow();
    assert_eq!((log[0].in_blocks.len(), log[0].out_blocks.len()), (1, 2));
}

#[test]
fn the_longest_message_goes_and_a_longer_one_does_not() {
    let platform = Scripted::new();
    let mut queue = queue(&platform);
    let (mut input, mut output) = (vec![1; MAX_MESSAGE], vec![0; MAX_MESSAGE]);
    exec(&mut queue, Opcode::Nop, 0, 0, &mut input, &mut output).unwrap();
    let mut input = vec![1; MAX_MESSAGE + 1];
    let fault = exec(&mut queue, Opcode::Nop, 0, 0, &mut input, &mut output).unwrap_err();
    assert_eq!(fault.kind, FaultKind::BadParameter);
}

/// A tail of so many times 16 bytes, which are 16-bit numbers.
struct Counted(usize);

impl Tail for Counted {
    fn len(&self) -> usize {
        16 * self.0
    }
    fn write(&self, at: usize, to: &mut [u8]) {
        let left = self.len() - at;
        for (number, pair) in (at / 2..(at + left) / 2)
            .zip(to.chunks_exact_mut(2).filter_map(<[_]>::first_chunk_mut::<2>))
        {
            *pair = u16::try_from(number).unwrap().to_be_bytes();
        }
    }
}

/// The last message sent that was no short one.
#[derive(Default)]
struct Whole(spin::Mutex<Vec<u8>>);

impl Observer for Whole {
    fn command(&self, dump: &Dump<'_>) {
        let bytes: Vec<u8> = dump.bytes().collect();
        if dump.direction == Direction::Input && bytes.len() > HEAD {
            *self.0.lock() = bytes;
        }
    }
}

#[test]
fn a_tail_follows_its_head_in_mailboxes_of_any_number() {
    let (platform, whole) = (Scripted::new(), Whole::default());
    let mut queue = CommandQueue::new(&platform, None, Some(&whole)).unwrap();
    let held = platform.held();
    for (head, tail, blocks) in [(16, 1, 1), (0x110, 16, 1), (0x110, 17, 2), (0x110, 2000, 63)] {
        let tail = Counted(tail);
        let longest = queue.lengthen(head + tail.len());
        assert!(longest >= head + tail.len(), "{longest}");
        let mut input = vec![0xee; head];
        let flight = queue.send(Opcode::Nop, 0, 0, &mut input, &tail, &[0; 16]).unwrap();
        // Others can be on their way, as the firmware may ask for pages.
        nop(&mut queue).unwrap();
        while !queue.poll(&flight).unwrap() {
            queue.relax(&flight);
        }
        queue.finish(&flight, &mut [0; 16]).unwrap();
        let command = platform.commands(Opcode::Nop).pop().unwrap();
        assert_eq!((command.input.len(), command.in_blocks.len()), (head + tail.len(), blocks));
        assert!(command.input[..head] == input);
        let mut golden = vec![0; tail.len()];
        tail.write(0, &mut golden);
        assert!(command.input[head..] == golden && *whole.0.lock() == command.input);
        queue.shorten();
        assert_eq!(platform.held(), held);
    }
    // Without memory for it, and beyond what there may be at all.
    for tail in [2000, 50_000] {
        let sent = queue.send(Opcode::Nop, 0, 0, &mut [0; 16], &Counted(tail), &[0; 16]);
        assert!(sent.is_err());
    }
}

#[test]
fn mailboxes_of_a_long_message_are_lost_with_its_command() {
    let platform = Scripted::with(|_| Reply::Never);
    let mut queue = queue(&platform);
    let held = platform.held();
    let tail = Counted(2000);
    queue.lengthen(16 + tail.len());
    let flight = queue.send(Opcode::Nop, 0, 0, &mut [0; 16], &tail, &[0; 16]).unwrap();
    while queue.poll(&flight).is_ok_and(|done| !done) {
        queue.relax(&flight);
    }
    queue.shorten();
    assert_eq!(platform.held() - held, 63 * 1024);
    queue.release();
    assert!(platform.held() > 63 * 1024, "the device may still read it");
}

#[test]
fn a_message_without_a_head_is_refused_here() {
    let platform = Scripted::new();
    let mut queue = queue(&platform);
    for (input, output) in [(0, 16), (15, 16), (16, 15)] {
        let fault = exec(&mut queue, Opcode::Nop, 0, 0, &mut vec![0; input], &mut vec![0; output])
            .unwrap_err();
        assert_eq!(fault.kind, FaultKind::BadParameter);
    }
    assert!(platform.log.borrow().is_empty());
}

#[test]
fn stale_answers_do_not_show_in_later_ones() {
    let platform = Scripted::with(|command| {
        Reply::Answer(if command.op_mod == 0 {
            core::iter::repeat_n(0, 8).chain([7; 600]).collect()
        } else {
            vec![]
        })
    });
    let mut queue = queue(&platform);
    exec(&mut queue, Opcode::Nop, 0, 0, &mut [0; 16], &mut [0; 608]).unwrap();
    let mut output = [5; 608];
    exec(&mut queue, Opcode::Nop, 1, 0, &mut [0; 16], &mut output).unwrap();
    assert_eq!(output, [0; 608]);
}

#[test]
fn tokens_change_and_are_never_zero() {
    let platform = Scripted::new();
    let mut queue = queue(&platform);
    for _ in 0..600 {
        nop(&mut queue).unwrap();
    }
    let log = platform.log.borrow();
    for pair in log.windows(2) {
        assert_ne!(pair[0].entry.token(), pair[1].entry.token());
        assert_ne!(pair[0].entry.token(), 0);
    }
}

#[test]
fn another_command_s_token_in_the_answer_is_nonsense() {
    let platform = Scripted::with(|_| Reply::WrongToken);
    let fault = nop(&mut queue(&platform)).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Nonsense);
    assert!(fault.cause.contains("token"), "{fault}");
}

#[test]
fn each_delivery_error_has_its_words() {
    assert_eq!(delivery_status(9), "not delivered: reserved fields not clear");
    assert_eq!(delivery_status(0x10), "not delivered: bad descriptor type");
    assert_eq!(delivery_status(0x11), "not delivered: unknown delivery status");
    for code in [1, 2, 3, 4, 5, 6, 7, 8, 9, 0x10, 0x7f] {
        let platform = Scripted::with(move |_| Reply::Delivery(code));
        let mut queue = queue(&platform);
        let fault = nop(&mut queue).unwrap_err();
        assert_eq!((fault.kind, fault.cause), (FaultKind::Nonsense, delivery_status(code)));
        assert_eq!((fault.object, fault.number), ("UAR", 9));
        platform.script(|_| Reply::Normal);
        nop(&mut queue).unwrap();
    }
}

#[test]
fn each_status_comes_back_with_its_syndrome() {
    for code in (1..=0x10).chain([0x30, 0x40, 0x50, 0x51, 0xff]) {
        let platform = Scripted::with(move |_| Reply::Status(code, 0xab_cdef));
        let mut queue = queue(&platform);
        let fault = nop(&mut queue).unwrap_err();
        assert_eq!(
            (fault.status, fault.syndrome, fault.operation),
            (code, 0xab_cdef, "DEALLOC_UAR")
        );
        platform.script(|_| Reply::Normal);
        nop(&mut queue).unwrap();
        assert_eq!(platform.log.borrow()[1].slot, 0, "a refused command gives its slot back");
    }
}

#[test]
fn a_late_answer_within_the_deadline_is_waited_for() {
    let platform = Scripted::with(|_| Reply::Later(40, Box::new(Reply::Answer(vec![0; 16]))));
    let before = platform.now();
    nop(&mut queue(&platform)).unwrap();
    assert_eq!(platform.now() - before, 40 * TICK);
}

#[test]
fn no_answer_is_a_timeout_at_the_deadline() {
    let platform = Scripted::with(|_| Reply::Never);
    let before = platform.now();
    let fault = nop(&mut queue(&platform)).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Timeout);
    assert_eq!(platform.now() - before, 50 * TICK);
}

#[test]
fn a_timeout_of_the_first_command_speaks_of_memory() {
    let platform = Scripted::with(|_| Reply::Never);
    let fault = exec(&mut queue(&platform), Opcode::EnableHca, 0, 0, &mut [0; 16], &mut [0; 16])
        .unwrap_err();
    assert!(fault.to_string().contains("IOMMU"), "{fault}");
}

#[test]
fn a_host_that_slept_past_the_deadline_still_sees_the_answer() {
    let platform = Scripted::with(|_| Reply::Later(1, Box::new(Reply::Answer(vec![0; 16]))));
    let mut queue = CommandQueue::new(&platform, Some(Duration::from_nanos(1)), None).unwrap();
    nop(&mut queue).unwrap();
}

#[test]
fn a_lost_slot_and_its_mailboxes_are_never_used_again() {
    let platform =
        Scripted::with(|command| if command.slot < 3 { Reply::Never } else { Reply::Normal });
    let mut queue = queue(&platform);
    for _ in 0..3 {
        let fault =
            exec(&mut queue, Opcode::Nop, 0, 0, &mut [0; 1040], &mut [0; 1040]).unwrap_err();
        assert_eq!(fault.kind, FaultKind::Timeout);
    }
    for _ in 0..50 {
        exec(&mut queue, Opcode::Nop, 0, 0, &mut [0; 1040], &mut [0; 1040]).unwrap();
    }
    let log = platform.log.borrow();
    let (lost, fine) = log.split_at(3);
    let lost_blocks: Vec<u64> =
        lost.iter().flat_map(|c| c.in_blocks.iter().chain(&c.out_blocks)).copied().collect();
    assert_eq!(lost_blocks.len(), 12);
    for command in fine {
        assert_eq!(command.slot, 3);
        assert!(
            !command
                .in_blocks
                .iter()
                .chain(&command.out_blocks)
                .any(|block| lost_blocks.contains(block))
        );
    }
}

#[test]
fn a_reply_after_the_deadline_disturbs_nobody() {
    let platform = Scripted::with(|command| match command.slot {
        0 => Reply::Later(60, Box::new(Reply::Answer(vec![0xee; 600]))),
        _ => Reply::Later(
            20,
            Box::new(Reply::Answer(core::iter::repeat_n(0, 8).chain([3; 592]).collect())),
        ),
    });
    let mut queue = queue(&platform);
    exec(&mut queue, Opcode::Nop, 0, 0, &mut [0; 16], &mut [0; 600]).unwrap_err();
    let mut output = [0; 600];
    exec(&mut queue, Opcode::Nop, 0, 0, &mut [0; 16], &mut output).unwrap();
    assert_eq!(output[8..], [3; 592]);
}

#[test]
fn when_all_slots_are_lost_it_says_so_at_once() {
    let platform = Scripted::with(|_| Reply::Never);
    let mut queue = queue(&platform);
    for _ in 0..32 {
        assert_eq!(nop(&mut queue).unwrap_err().kind, FaultKind::Timeout);
    }
    let before = platform.now();
    let fault = nop(&mut queue).unwrap_err();
    assert_eq!((fault.kind, platform.now()), (FaultKind::Resources, before));
    assert_eq!(platform.log.borrow().len(), 32);
}

#[test]
fn when_the_mailboxes_are_lost_short_commands_still_go() {
    let platform =
        Scripted::with(
            |command| {
                if command.input.len() > 16 { Reply::Never } else { Reply::Normal }
            },
        );
    let mut queue = queue(&platform);
    let mut long = vec![0; MAX_MESSAGE];
    let mut output = vec![0; MAX_MESSAGE];
    exec(&mut queue, Opcode::Nop, 0, 0, &mut long, &mut output).unwrap_err();
    let fault = exec(&mut queue, Opcode::Nop, 0, 0, &mut [0; 17], &mut [0; 16]).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Resources);
    nop(&mut queue).unwrap();
}

#[test]
fn a_device_that_leaves_the_bus_ends_the_wait_and_all_later_ones() {
    let platform = Scripted::with(|_| Reply::Vanish);
    let mut queue = queue(&platform);
    let before = platform.now();
    let fault = nop(&mut queue).unwrap_err();
    assert_eq!((fault.kind, fault.operation), (FaultKind::Gone, "DEALLOC_UAR"));
    assert!(fault.cause.contains("all ones"), "{fault}");
    let again = exec(&mut queue, Opcode::AllocPd, 0, 4, &mut [0; 16], &mut [0; 16]).unwrap_err();
    assert_eq!((again.kind, again.operation, again.number), (FaultKind::Gone, "ALLOC_PD", 4));
    assert!(platform.now() - before <= TICK);
    assert_eq!(platform.log.borrow().len(), 1);
}

#[test]
fn a_fatal_syndrome_ends_the_wait_with_its_name() {
    for (synd, words) in [(8, "hardware"), (0x0a, "PCI"), (0x0c, "overran"), (0x77, "unknown")] {
        let platform = Scripted::with(move |_| Reply::Sick(synd));
        let before = platform.now();
        let fault = nop(&mut queue(&platform)).unwrap_err();
        assert_eq!((fault.kind, fault.syndrome), (FaultKind::Gone, u32::from(synd)));
        assert!(fault.cause.contains(words), "{fault}");
        assert!(platform.now() - before <= TICK);
    }
}

#[test]
fn heat_is_a_warning_and_no_reason_to_stop() {
    let platform = Scripted::with(|_| Reply::Later(3, Box::new(Reply::Answer(vec![0; 16]))));
    platform.set(init_seg::HEALTH_COUNTER, 0x10 << 24);
    nop(&mut queue(&platform)).unwrap();
}

#[test]
fn geometry_that_does_not_fit_a_page_is_nonsense() {
    for word in [0x66, 0x58, 0x05, 0xff, 0x50] {
        let platform = Scripted::new();
        platform.set(init_seg::CMDQ_ADDR_L_SZ, word);
        let fault = CommandQueue::new(&platform, None, None).err().unwrap();
        assert_eq!(fault.kind, FaultKind::Nonsense, "{word:#x}");
        assert_eq!(platform.held(), 0);
    }
}

#[test]
fn slots_stand_as_far_apart_as_the_device_says() {
    let platform = Scripted::new();
    platform.set(init_seg::CMDQ_ADDR_L_SZ, 2 << 4 | 10);
    let queue = CommandQueue::new(&platform, None, None).unwrap();
    assert_eq!((queue.entry(1) - queue.entry(0), queue.free), (1024, 0b1111));
}

#[test]
fn the_device_s_time_limit_counts_only_where_it_takes_part() {
    let platform = Scripted::new();
    platform.set(init_seg::CMD_EXEC_TO, 1 << 29 | 7);
    assert_eq!(CommandQueue::new(&platform, None, None).unwrap().timeout, DEFAULT_TIMEOUT);
    platform.set(init_seg::CMD_Q_INIT_TO, 2000);
    assert_eq!(CommandQueue::new(&platform, None, None).unwrap().timeout, Duration::from_secs(7));
    for (word, limit) in [
        (2 << 29 | 2, 120),
        (3 << 29 | 1, 600),
        (3 << 29 | 0xf_ffff, 600),
        (7 << 29 | 1, 60),
        (0, 60),
    ] {
        platform.set(init_seg::CMD_EXEC_TO, word);
        assert_eq!(
            CommandQueue::new(&platform, None, None).unwrap().timeout,
            Duration::from_secs(limit)
        );
    }
}

#[test]
fn released_memory_is_whole_unless_a_command_was_lost() {
    let platform = Scripted::new();
    let mut all_well = queue(&platform);
    nop(&mut all_well).unwrap();
    all_well.release();
    assert_eq!(platform.held(), 0);
    platform.script(|_| Reply::Never);
    let mut one_lost = queue(&platform);
    nop(&mut one_lost).unwrap_err();
    one_lost.release();
    assert_eq!(platform.held(), 4096 + 64 * 1024);
}

#[test]
fn the_dump_reads_as_mlx5_core_s() {
    let platform = Scripted::new();
    let recorder = Recorder::default();
    let mut queue = CommandQueue::new(&platform, None, Some(&recorder)).unwrap();
    queue.token = 0;
    exec(&mut queue, Opcode::EnableHca, 0, 0, &mut [0; 16], &mut [0; 16]).unwrap();
    let log = recorder.0.lock();
    // Taken from the trace of a real card, but for the name's prefix.
    let input = "dump command ENABLE_HCA(0x104) INPUT\n\
                 000: 07000000 00000010 00000000 00000000\n\
                 010: 01040000 00000000 00000000 00000000\n\
                 020: 00000000 00000000 00000000 00000000\n\
                 030: 00000000 00000000 00000010 01fd0001\n\n";
    let output = input.replace("INPUT", "OUTPUT").replace("01fd0001", "01fd0000");
    assert_eq!(*log, [String::from(input), output]);
}

#[test]
fn the_dump_shows_every_block_at_its_running_offset() {
    let platform = Scripted::new();
    let recorder = Recorder::default();
    let mut queue = CommandQueue::new(&platform, None, Some(&recorder)).unwrap();
    exec(&mut queue, Opcode::Nop, 0, 0, &mut [7; 600], &mut [0; 16]).unwrap();
    let log = recorder.0.lock();
    assert_eq!(log[0].matches("command block:\n").count(), 2);
    for line in [
        "040: 07070707 07070707 07070707 07070707\n",
        "\n280: 07070707",
        "\n4b0: 00000000 00000000 00000001 00",
    ] {
        assert!(log[0].contains(line), "{line} in {}", log[0]);
    }
    assert_eq!(log[1].matches("command block:\n").count(), 0);
}

#[test]
fn the_hook_sees_commands_by_name_and_why_they_failed() {
    let platform = Scripted::with(|command| {
        let enable = command.op == Opcode::EnableHca;
        if enable { Reply::Answer(vec![0; 16]) } else { Reply::Status(9, 0x1234) }
    });
    let seen = spin::Mutex::new(Vec::new());
    let hook = |what: &Activity| seen.lock().push(what.to_string());
    let mut queue = queue(&platform);
    queue.set_hook(Some(&hook));
    exec(&mut queue, Opcode::EnableHca, 0, 0, &mut [0; 16], &mut [0; 16]).unwrap();
    let fault = exec(&mut queue, Opcode::DestroyQp, 0, 0x4d, &mut [0; 16], &mut [0; 16]);
    let fault = fault.unwrap_err();
    assert_eq!(*seen.lock(), ["ENABLE_HCA".to_string(), fault.to_string()]);
}
