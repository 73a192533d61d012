//! Giving and taking, by events and at teardown, with a firmware that is slow, greedy or wrong.

use super::*;
use crate::data::work;
use crate::device::Config;
use crate::device::scripted::{PAGES, Reply, Scripted, config};
use crate::platform::Clock;
use crate::prm::eq::EventType;
use crate::prm::init_seg;
use dat_core::Instant;

fn open(platform: &Scripted) -> Device<'_, Scripted> {
    Device::open(platform, &config()).unwrap()
}

fn batches(platform: &Scripted, op: PageOp) -> std::vec::Vec<u32> {
    let commands = platform.commands(Opcode::ManagePages);
    let mine = commands.iter().filter(|command| command.op_mod == op as u16);
    mine.map(|command| ManagePagesIn::read(&command.input, 0).input_num_entries()).collect()
}

#[test]
fn pages_for_bring_up_are_given_in_batches() {
    let platform = Scripted::new();
    let device = open(&platform);
    assert_eq!(batches(&platform, PageOp::Give), [6, 512, 512, 76]);
    assert_eq!(device.firmware_pages(), 1106);
    assert_eq!(platform.given.borrow().len(), 1106);
}

#[test]
fn a_negative_need_is_nothing_to_do() {
    let platform = Scripted::new();
    platform.tiny.borrow_mut().needs = [(1, -1), (2, i32::MIN), (3, -7)].into_iter().collect();
    assert_eq!(open(&platform).firmware_pages(), 0);
    assert!(platform.commands(Opcode::ManagePages).is_empty());
}

#[test]
fn all_come_back_at_the_end_even_in_drops() {
    let platform = Scripted::new();
    let mut device = open(&platform);
    platform.tiny.borrow_mut().takes = [0, 0, 3, 0, 512, 1, 0].into_iter().collect();
    device.close().unwrap();
    assert!(platform.given.borrow().is_empty());
    assert_eq!(device.firmware_pages(), 0);
    assert_eq!(batches(&platform, PageOp::Take), [512, 512, 512, 512, 512, 512, 512, 512, 78]);
}

#[test]
fn a_firmware_that_keeps_them_is_given_five_seconds() {
    let platform = Scripted::new();
    let mut device = open(&platform);
    platform.tiny.borrow_mut().takes =
        core::iter::once(100).chain(core::iter::repeat_n(0, 100_000)).collect();
    let before = platform.now();
    let fault = device.close().unwrap_err();
    assert_eq!((fault.kind, fault.number), (FaultKind::Timeout, 1006));
    let waited = platform.now() - before;
    assert!((5_000_000_000..5_100_000_000).contains(&waited), "{waited}");
    assert_eq!(
        platform.given.borrow().len(),
        1006,
        "what the device holds is not handed out again"
    );
}

#[test]
fn a_firmware_that_lets_go_of_one_at_a_time_is_given_two_minutes() {
    let platform = Scripted::new();
    let mut device = open(&platform);
    // Never five seconds without a page, and never more than one.
    platform.tiny.borrow_mut().takes =
        (0..60_u32 * 4_000).map(|n| u32::from(n % 4_000 == 0).try_into().unwrap()).collect();
    let before = platform.now();
    let fault = device.close().unwrap_err();
    assert_eq!(fault.kind, FaultKind::Timeout);
    let waited = platform.now() - before;
    // And five seconds for each of two batches.
    assert!((130_000_000_000..131_000_000_000).contains(&waited), "{waited}");
}

#[test]
fn pages_it_never_had_are_nonsense_and_not_counted() {
    let platform = Scripted::new();
    let mut device = open(&platform);
    let mut answer = std::vec![0; 32];
    answer[0x0b] = 2;
    answer[0x10..0x18].copy_from_slice(&0xdead_b000u64.to_be_bytes());
    platform.script(move |command| {
        if command.op == Opcode::ManagePages {
            Reply::Answer(answer.clone())
        } else {
            Reply::Normal
        }
    });
    let fault = device.close().unwrap_err();
    assert_eq!(fault.kind, FaultKind::Nonsense);
    assert_eq!(device.firmware_pages(), 1106);
}

#[test]
fn more_than_was_asked_is_nonsense() {
    let platform = Scripted::new();
    let mut device = open(&platform);
    platform.script(|command| {
        let answer = std::vec![0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff];
        if command.op == Opcode::ManagePages { Reply::Answer(answer) } else { Reply::Normal }
    });
    assert_eq!(device.close().unwrap_err().kind, FaultKind::Nonsense);
}

#[test]
fn a_request_is_answered_from_service_and_not_before() {
    let platform = Scripted::new();
    let mut device = open(&platform);
    platform.ask_pages(7, 600);
    assert_eq!(device.firmware_pages(), 1106);
    device.service(Instant::ZERO, |_| {});
    assert_eq!(device.firmware_pages(), 1706);
    assert_eq!(batches(&platform, PageOp::Give)[4..], [512, 88]);
    assert_eq!(device.next_event(), None, "nobody else's business");
}

#[test]
fn several_requests_are_answered_in_order() {
    let platform = Scripted::new();
    let mut device = open(&platform);
    for count in [1, 2, -3, 4] {
        platform.ask_pages(7, count);
    }
    device.service(Instant::ZERO, |_| {});
    assert_eq!(batches(&platform, PageOp::Give)[4..], [1, 2, 4]);
    assert_eq!(batches(&platform, PageOp::Take), [3]);
    assert_eq!(device.firmware_pages(), 1110);
}

#[test]
fn an_impossible_offer_takes_no_more_than_was_given() {
    let platform = Scripted::new();
    let mut device = open(&platform);
    platform.ask_pages(7, i32::MIN);
    device.service(Instant::ZERO, |_| {});
    assert_eq!(device.firmware_pages(), 0);
    assert!(platform.given.borrow().is_empty());
}

/// Each page comes within the time that a teardown waits for one, so that all of one request would
/// take minutes, and there are many of them.
#[test]
fn offers_that_are_not_kept_hold_one_service_up_for_five_seconds() {
    let platform = Scripted::new();
    let mut device = open(&platform);
    platform.tiny.borrow_mut().takes =
        (0..60_u32 * 4_000).map(|n| u32::from(n % 4_000 == 0).try_into().unwrap()).collect();
    for _ in 0..3 {
        platform.ask_pages(7, -500);
    }
    for left in [2, 1, 0] {
        let before = platform.now();
        device.service(Instant::from_nanos(platform.now()), |_| {});
        let waited = platform.now() - before;
        assert!((4_900_000_000..5_200_000_000).contains(&waited), "{waited}");
        assert_eq!(device.requests.len(), left);
        assert_eq!(device.next_deadline() == Instant::ZERO, left > 0, "{left} wait");
    }
    assert_eq!(device.firmware_pages() as usize, platform.given.borrow().len());
}

#[test]
fn a_request_beyond_the_budget_is_refused_and_answered() {
    let platform = Scripted::new();
    let mut device = Device::open(&platform, &Config { page_budget: 1200, ..config() }).unwrap();
    platform.ask_pages(7, i32::MAX);
    platform.ask_pages(7, 95);
    platform.ask_pages(7, 94);
    device.service(Instant::ZERO, |_| {});
    assert_eq!(batches(&platform, PageOp::CannotGive), [0, 0]);
    assert_eq!(device.firmware_pages(), 1200);
}

#[test]
fn an_empty_reserve_is_refused_and_the_part_given_back() {
    let platform = Scripted::new();
    let mut device = open(&platform);
    platform.reserve.set(700);
    platform.ask_pages(7, 800);
    device.service(Instant::ZERO, |_| {});
    assert_eq!(batches(&platform, PageOp::CannotGive), [0]);
    // The first batch is the firmware's already; what was left of the reserve is whole.
    assert_eq!((device.firmware_pages(), platform.reserve.get()), (1618, 188));
}

#[test]
fn another_function_s_request_is_refused() {
    let platform = Scripted::with(|command| {
        if command.op == Opcode::ManagePages && command.op_mod == 0 {
            assert_eq!(ManagePagesIn::read(&command.input, 0).function_id(), 8);
            return Reply::Answer(std::vec![]);
        }
        Reply::Normal
    });
    let mut device = open(&platform);
    platform.ask_pages(8, 10);
    platform.ask_pages(8, -10);
    device.service(Instant::ZERO, |_| {});
    assert_eq!(batches(&platform, PageOp::CannotGive), [0]);
    assert_eq!(device.firmware_pages(), 1106);
}

/// The answer names the function as the question did: a DPU's embedded CPU has a number of its own.
#[test]
fn an_embedded_cpu_is_answered_as_one() {
    for embedded in [false, true] {
        let platform = Scripted::with(|command| {
            if command.op == Opcode::ManagePages && command.op_mod == PageOp::CannotGive as u16 {
                return Reply::Answer(std::vec![]);
            }
            Reply::Normal
        });
        let mut device = open(&platform);
        let mut data = [0; 8];
        data[0] = u8::from(embedded) << 7;
        data[2..4].copy_from_slice(&8_u16.to_be_bytes());
        data[4..].copy_from_slice(&10_i32.to_be_bytes());
        platform.event(PAGES, EventType::PageRequest, 0, &data);
        device.service(Instant::ZERO, |_| {});
        let commands = platform.commands(Opcode::ManagePages);
        let refused: std::vec::Vec<bool> = commands
            .iter()
            .filter(|command| command.op_mod == PageOp::CannotGive as u16)
            .map(|command| ManagePagesIn::read(&command.input, 0).embedded_cpu_function())
            .collect();
        assert_eq!(refused, [embedded]);
    }
}

#[test]
fn bring_up_without_enough_pages_says_how_many() {
    let platform = Scripted::new();
    let fault = Device::open(&platform, &Config { page_budget: 1000, ..config() }).unwrap_err();
    assert_eq!((fault.kind, fault.object, fault.number), (FaultKind::Resources, "pages", 1100));
    assert!(fault.advice.contains("budget"));
    assert!(platform.given.borrow().is_empty());
}

#[test]
fn a_refused_batch_stays_with_the_platform() {
    let platform = Scripted::with(|command| {
        if command.op == Opcode::ManagePages && command.input.len() > 100 {
            Reply::Status(8, 1)
        } else {
            Reply::Normal
        }
    });
    Device::open(&platform, &config()).unwrap_err();
    assert!(platform.given.borrow().is_empty());
    // It is answered all the same: a firmware that waits for pages refuses whatever needs some.
    assert_eq!(batches(&platform, PageOp::CannotGive), [0]);
}

#[test]
fn a_create_refused_for_lack_of_pages_is_tried_again_after_feeding() {
    let mut hungry = true;
    let platform = Scripted::new();
    let mut device = open(&platform);
    platform.script(move |command| {
        let refused = command.op == Opcode::AllocPd && core::mem::take(&mut hungry);
        if refused { Reply::Status(0x0f, 0) } else { Reply::Normal }
    });
    platform.ask_pages(7, 20);
    device.alloc_pd().unwrap();
    assert_eq!(device.firmware_pages(), 1126);
    assert_eq!(platform.commands(Opcode::AllocPd).len(), 2);
}

/// It may find that it needs more than it asked for first. A firmware that always asks for more
/// gets an end.
#[test]
fn a_create_is_tried_again_after_each_feeding_a_few_times() {
    for (refusals, tries) in [(2, 3), (usize::MAX, 1 + work::FEEDS)] {
        let platform = Scripted::new();
        let mut device = open(&platform);
        let mut left = refusals;
        platform.script(move |command| {
            if command.op != Opcode::AllocPd || left == 0 {
                return Reply::Normal;
            }
            left -= 1;
            Reply::Hungry(20)
        });
        assert_eq!(device.alloc_pd().is_ok(), refusals == 2);
        assert_eq!(platform.commands(Opcode::AllocPd).len(), tries);
    }
}

#[test]
fn without_a_request_it_is_not_tried_again() {
    let platform = Scripted::new();
    let mut device = open(&platform);
    platform.script(|_| Reply::Status(0x0f, 0));
    assert_eq!(device.alloc_pd().unwrap_err().kind, FaultKind::Resources);
    assert_eq!(platform.commands(Opcode::AllocPd).len(), 1);
}

#[test]
fn the_function_is_named_as_the_firmware_sees_it() {
    let platform = Scripted::with(|command| {
        if command.op != Opcode::QueryPages {
            return Reply::Normal;
        }
        let mut answer = QueryPagesOut::new();
        answer.set_function_id(7);
        answer.set_num_pages(u32::from(command.op_mod == Need::Boot as u16) * 6);
        Reply::Answer(answer.0.to_vec())
    });
    platform.set(init_seg::INITIALIZING, 1 << 23);
    open(&platform).close().unwrap();
    let sent = platform.commands(Opcode::ManagePages);
    assert_eq!(sent.len(), 2);
    for command in sent {
        let head = ManagePagesIn::read(&command.input, 0);
        assert_eq!((head.function_id(), head.embedded_cpu_function()), (7, true));
    }
}

#[test]
fn an_answer_of_no_pages_that_is_refused_is_a_failure() {
    let platform = Scripted::with(|command| {
        let none = command.op == Opcode::ManagePages && command.op_mod == PageOp::CannotGive as u16;
        if none { Reply::Status(3, 1) } else { Reply::Normal }
    });
    let tight = Config { page_budget: 5, ..config() };
    let fault = Device::open(&platform, &tight).unwrap_err();
    assert_eq!((fault.operation, fault.status, fault.number), ("MANAGE_PAGES", 3, 0));
}

/// The firmware may hold a command back until it has the pages that it asks for.
#[test]
fn pages_are_given_while_a_command_waits() {
    let platform = Scripted::with(|command| {
        let normal = std::boxed::Box::new(Reply::Normal);
        if command.op == Opcode::AllocPd { Reply::Later(3, normal) } else { *normal }
    });
    let mut device = open(&platform);
    let (held, sent) = (device.firmware_pages(), platform.opcodes().len());
    platform.ask_pages(7, 10);
    device.alloc_pd().unwrap();
    assert_eq!(device.firmware_pages(), held + 10);
    assert_eq!(platform.opcodes()[sent..], [Opcode::AllocPd, Opcode::ManagePages]);
    let slots: std::vec::Vec<u32> = platform.log.borrow()[sent..].iter().map(|c| c.slot).collect();
    assert_ne!(slots[0], slots[1], "the command that waits keeps its slot");
}
