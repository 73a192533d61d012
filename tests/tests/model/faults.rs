//! Faults of the device, as far as they reach the driver without DAT above it: events lost,
//! invented, mangled; registers that say the firmware died; random bytes in answers, events and
//! completions. The driver never panics, never waits without end, and reports the faults that it
//! can detect.
//!
//! Length: one test per rule of the fault menu, on one harness.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "test code: a panic here is a failed test"
)]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use dat_core::provider::{Fault, FaultKind, Notice, Provider};
use dat_tests::bringup::{Driver, Rig, Taken, journey, light, net, patience, usual};
use dat_tests::host::inproc::{Slot, enable};
use dat_tests::host::watched::Watched;
use hca_mlx5::eq::{Event as Reported, QpEvent};
use hca_mlx5::{Config, Device};
use mlx5_model::faults::When;
use mlx5_model::{Config as Card, Event, Mangle, Status, Verdict, Wrote, event};
use proptest::prelude::*;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

const NOTHING: Taken = Taken { arena: 0, pages: 0 };
const HEALTH_COUNTER: usize = 0x1010;
const COMMAND_DOORBELL: usize = 0x18;

fn up<'p>(rig: &'p Rig) -> Driver<'p, Slot> {
    let mut driver = Driver::open(&rig.slot, &patience()).unwrap();
    driver.set_net(&net(), rig.now()).unwrap();
    driver
}

fn notices<P: hca_mlx5::platform::Platform>(driver: &mut Driver<'_, P>) -> Vec<Notice> {
    std::iter::from_fn(|| driver.notice()).collect()
}

/// The device's event queues, in the order the driver makes them.
const COMMANDS: u8 = 0x10;
const ASYNC: u8 = 0x11;
const PAGES: u8 = 0x12;
const COMPLETION: u8 = 0x13;

// ---- command events ----

#[test]
fn lost_command_events_are_not_missed() {
    let rig = Rig::light();
    rig.script(|first, script| script.on(When::From(first), Verdict::NoEvent));
    journey(&rig.slot, &patience()).unwrap();
    assert_eq!(rig.taken(), NOTHING);
}

#[test]
fn ghost_command_events_end_no_command() {
    let rig = Rig::light();
    let mut driver = up(&rig);
    for slots in [1, 1 << 31, u32::MAX, 0] {
        rig.slot.hca().inject_event(None, &Event::new(event::COMMAND, 0).with(0, slots));
    }
    // A slow command with an invented event in the middle of it.
    rig.script(|first, script| script.on(When::From(first), Verdict::Late(20_000_000)));
    let start = rig.now();
    driver.service(rig.now());
    driver.pd_create().unwrap();
    assert!(rig.now() - start >= Duration::from_millis(20));
    assert!(notices(&mut driver).is_empty());
    rig.hook(None);
    driver.close().unwrap();
    assert_eq!(rig.taken(), NOTHING);
}

#[test]
fn commands_without_number_between_two_services_overrun_no_queue() {
    for hardware_like in [false, true] {
        let rig = Rig::new(Card { hardware_like, ..light() });
        let mut driver = Driver::open(&rig.slot, &usual()).unwrap();
        let (all, rest) = if hardware_like { (300, 7) } else { (3000, 3) };
        for n in 0..all {
            // Neither twice the same event nor one for a slot that is free is a reason to stop; nor
            // is one lost.
            match n % rest {
                0 => rig.slot.hca().inject_event(None, &Event::new(event::COMMAND, 0).with(0, 1)),
                1 => rig
                    .slot
                    .hca()
                    .inject_event(None, &Event::new(event::COMMAND, 0).with(0, u32::MAX)),
                _ => rig.script(|first, script| script.on(When::Nth(first), Verdict::NoEvent)),
            }
            let pd = driver.pd_create().unwrap();
            driver.pd_destroy(pd).unwrap();
        }
        driver.close().unwrap();
        assert_eq!(rig.taken(), NOTHING);
        rig.content();
    }
}

#[test]
fn every_slow_command_wakes_by_the_vector_of_commands_and_by_no_other() {
    let rig = Rig::light();
    let config = Config { command_vector: 3, page_vector: 2, ..patience() };
    let mut driver = Driver::open(&rig.slot, &config).unwrap();
    rig.slot.hca().interrupts();
    // For one that is there at once nobody sleeps.
    let pd = driver.pd_create().unwrap();
    driver.pd_destroy(pd).unwrap();
    assert!(rig.slot.hca().interrupts().is_empty());
    rig.script(|first, script| script.on(When::From(first), Verdict::Late(1_000_000)));
    for _ in 0..200 {
        let pd = driver.pd_create().unwrap();
        assert_eq!(rig.slot.hca().interrupts(), [3]);
        driver.pd_destroy(pd).unwrap();
        assert_eq!(rig.slot.hca().interrupts(), [3]);
    }
    // A page request of the firmware has its own vector; giving pages takes a command.
    rig.slot.hca().request_pages(5);
    assert_eq!(rig.slot.hca().interrupts(), [2]);
    driver.service(rig.now());
    assert_eq!(rig.slot.hca().interrupts(), [3]);
    driver.close().unwrap();
    rig.content();
}

#[test]
fn a_burst_of_events_that_nobody_reads_holds_up_no_page_request() {
    let rig = Rig::light();
    let mut device = Device::open(&rig.slot, &patience()).unwrap();
    let held = device.firmware_pages();
    for n in 0..200 {
        let event = Event::queue(event::COMM_ESTABLISHED, 0, n);
        rig.slot.hca().inject_event(None, &event);
    }
    for round in 1..=10 {
        rig.slot.hca().request_pages(7);
        device.service(rig.now(), |_| {});
        assert_eq!(device.firmware_pages(), held + 7 * round);
    }
    device.close().unwrap();
    rig.content();
}

// ---- events nobody expects ----

#[test]
fn every_type_of_event_on_every_queue_does_no_harm() {
    let rig = Rig::light();
    let mut driver = up(&rig);
    for eqn in [COMMANDS, ASYNC, PAGES, COMPLETION] {
        for kind in 0..=u8::MAX {
            // A page request of zero pages is one too; positive ones have their own tests.
            let event = Event { kind, sub: kind ^ 0x55, data: [0; 28] };
            rig.slot.hca().inject_event(Some(eqn), &event);
            if kind % 32 == 31 {
                driver.service(rig.now());
                notices(&mut driver);
            }
        }
    }
    driver.service(rig.now());
    driver.pd_create().unwrap();
    driver.close().unwrap();
    assert_eq!(rig.taken(), NOTHING);
    rig.content();
}

#[test]
fn events_of_queues_that_do_not_exist_are_not_reported() {
    let rig = Rig::light();
    let mut driver = up(&rig);
    for number in [0, 0x7777, 0xff_ffff] {
        let mut hca = rig.slot.hca();
        hca.inject_event(Some(COMPLETION), &Event::completion(number));
        hca.inject_event(Some(ASYNC), &Event::cq_error(number, 1));
        hca.inject_event(Some(ASYNC), &Event::queue(event::WQ_CATASTROPHIC, 0, number));
        hca.inject_event(Some(ASYNC), &Event::queue(event::COMM_ESTABLISHED, 0, number));
    }
    driver.service(rig.now());
    assert!(notices(&mut driver).is_empty());
    driver.close().unwrap();
}

#[test]
fn events_are_decoded_each_to_its_meaning() {
    let rig = Rig::light();
    let mut device = Device::open(&rig.slot, &patience()).unwrap();
    let queue = |kind| Event::queue(kind, 0, 0x4d);
    let qp = |what| Reported::Qp { qpn: 0x4d, what };
    let table = [
        (queue(event::COMM_ESTABLISHED), qp(QpEvent::Established)),
        (queue(event::SQ_DRAINED), qp(QpEvent::Drained)),
        (queue(event::LAST_WQE_REACHED), qp(QpEvent::LastWqe)),
        (queue(event::WQ_CATASTROPHIC), qp(QpEvent::Catastrophic)),
        (queue(event::WQ_INVALID_REQUEST), qp(QpEvent::InvalidRequest)),
        (queue(event::WQ_ACCESS_ERROR), qp(QpEvent::AccessError)),
        (Event::cq_error(0x401, 2), Reported::CqError { cqn: 0x401, syndrome: 2 }),
        (Event::completion(0x402), Reported::Completion { cqn: 0x402 }),
    ];
    for (sent, _) in &table {
        rig.slot.hca().inject_event(Some(ASYNC), sent);
    }
    device.service(rig.now(), |_| {});
    for (_, reported) in table {
        assert_eq!(device.next_event(), Some(reported));
    }
    assert_eq!(device.next_event(), None);
    device.close().unwrap();
}

#[test]
fn subscribed_events_arrive_without_being_put_into_a_queue_by_hand() {
    // The device filters by the mask that the driver sent with CREATE_EQ.
    for kind in [
        event::COMM_ESTABLISHED,
        event::SQ_DRAINED,
        event::CQ_ERROR,
        event::WQ_CATASTROPHIC,
        event::WQ_INVALID_REQUEST,
        event::WQ_ACCESS_ERROR,
        event::LAST_WQE_REACHED,
    ] {
        let rig = Rig::light();
        let mut device = Device::open(&rig.slot, &patience()).unwrap();
        rig.slot.hca().inject_event(None, &Event::queue(kind, 0, 5));
        device.service(rig.now(), |_| {});
        assert!(device.next_event().is_some(), "{kind:#x}");
        device.close().unwrap();
    }
}

#[test]
fn a_flood_of_events_loses_none_that_fits_the_queue() {
    let rig = Rig::light();
    let mut device = Device::open(&rig.slot, &patience()).unwrap();
    let mut count = 0;
    for burst in 0..40 {
        for n in 0..200 {
            let event = Event::queue(event::COMM_ESTABLISHED, 0, burst * 200 + n);
            rig.slot.hca().inject_event(None, &event);
        }
        for _ in 0..8 {
            device.service(rig.now(), |_| {});
            while let Some(event) = device.next_event() {
                assert_eq!(event, Reported::Qp { qpn: count, what: QpEvent::Established });
                count += 1;
            }
        }
    }
    assert_eq!(count, 8000);
    device.close().unwrap();
    rig.content();
}

#[test]
fn a_user_who_reads_no_events_still_learns_of_the_loss() {
    let rig = Rig::light();
    let mut device = Device::open(&rig.slot, &patience()).unwrap();
    for n in 0..200 {
        rig.slot.hca().inject_event(None, &Event::queue(event::COMM_ESTABLISHED, 0, n));
    }
    for _ in 0..10 {
        device.service(rig.now(), |_| {});
    }
    rig.slot.hca().die(1);
    rig.pass(Duration::from_secs(2));
    device.service(rig.now(), |_| {});
    let events: Vec<Reported> = std::iter::from_fn(|| device.next_event()).collect();
    assert!(matches!(events.last(), Some(Reported::Dead(_))), "{:?}", events.last());
    device.close().unwrap_err();
}

#[test]
fn interrupts_without_events_and_service_without_interrupts_are_nothing() {
    let rig = Rig::light();
    let mut driver = up(&rig);
    rig.slot.hca().interrupts();
    for _ in 0..1000 {
        driver.service(rig.now());
    }
    assert!(notices(&mut driver).is_empty());
    // Not read to the end, not armed again: no storm.
    assert!(rig.slot.hca().interrupts().len() <= 2);
    driver.close().unwrap();
}

#[test]
fn a_broken_ethernet_port_is_made_anew_as_soon_as_the_deadline_says() {
    const CREATE_SQ: u16 = 0x904;
    let rig = Rig::light();
    let mut driver = up(&rig);
    let remote = "192.168.7.9".parse().unwrap();
    // Every completion is one in error.
    rig.slot.hca().set_mangle(Some(Box::new(|wrote, _, bytes| {
        if wrote == Wrote::Cqe {
            if let Some(last) = bytes.last_mut() {
                *last = 0xd0 | (*last & 1);
            }
        }
        true
    })));
    let _ = driver.resolve(remote, rig.now());
    rig.pass(Duration::from_millis(1));
    driver.service(rig.now());
    assert!(
        driver.next_deadline().unwrap() <= rig.now(),
        "it is broken, and may be made anew at once"
    );
    rig.slot.hca().set_mangle(None);
    // The first attempt is refused: a second later comes the next.
    rig.script(|_, script| script.refuse(When::OpcodeNth(CREATE_SQ, 0), Status::NoResources));
    rig.pass(Duration::from_millis(1));
    let attempt = rig.now();
    driver.service(attempt);
    assert!(driver.next_deadline().unwrap() > attempt, "no storm");
    let next = attempt + Duration::from_secs(1);
    while rig.now() < next {
        let due = driver.next_deadline().unwrap();
        assert!(due <= next, "the second attempt is not slept through");
        rig.pass((due - rig.now()).max(Duration::from_nanos(1)));
        driver.service(rig.now());
    }
    assert!(driver.next_deadline().unwrap() > rig.now(), "whole again");
    driver.close().unwrap();
    assert_eq!(rig.taken(), NOTHING);
}

#[test]
fn a_loss_found_by_a_command_is_reported_at_once_and_then_nothing_is_due() {
    let rig = Rig::light();
    let mut driver = up(&rig);
    let _ = driver.resolve("192.168.7.9".parse().unwrap(), rig.now());
    rig.slot.hca().die(8);
    rig.script(|first, script| script.on(When::From(first), Verdict::Mute));
    driver.pd_create().unwrap_err();
    assert!(driver.next_deadline().unwrap() <= rig.now());
    driver.service(rig.now());
    assert!(lost(&mut driver).is_some());
    // Not even the question to a neighbour, which cannot be repeated any more.
    assert_eq!(driver.next_deadline(), Some(dat_core::Instant::NEVER));
    driver.close().unwrap_err();
}

// ---- the firmware's health ----

fn lost(driver: &mut Driver<'_, impl hca_mlx5::platform::Platform>) -> Option<Fault> {
    notices(driver).into_iter().find_map(|notice| {
        let Notice::Catastrophic(fault) = notice else {
            return None;
        };
        Some(fault)
    })
}

#[test]
fn each_health_syndrome_is_reported_by_its_name_within_two_seconds() {
    for syndrome in [1, 7, 8, 9, 0xa, 0xb, 0xc, 0xd, 0xe, 0xf, 0x12, 0x77] {
        let rig = Rig::light();
        let mut driver = up(&rig);
        rig.slot.hca().die(syndrome);
        rig.pass(Duration::from_secs(2));
        driver.service(rig.now());
        let fault = lost(&mut driver).expect("a lost device is reported");
        assert_eq!((fault.kind, fault.syndrome), (FaultKind::Gone, u32::from(syndrome)));
        assert!(!fault.cause.is_empty());
        let start = rig.now();
        assert_eq!(driver.pd_create().unwrap_err().kind, FaultKind::Gone);
        driver.close().unwrap_err();
        assert_eq!(rig.now(), start, "nothing waits for a dead firmware");
        assert!(rig.taken().pages > 0, "its pages stay its own");
    }
}

#[test]
fn a_reset_from_outside_is_reported_within_two_seconds() {
    // After the reset no command page is set, or another owner's.
    for (page, cause) in
        [(None, "disabled its interface"), (Some(0x1000_0000u32), "has been reset")]
    {
        let rig = Rig::light();
        let mut driver = up(&rig);
        rig.slot.hca().flr();
        // A host that resets a function restores its configuration.
        enable(&mut rig.slot.hca());
        if let Some(page) = page {
            rig.slot.hca().bar_write(0x14, &page.to_be_bytes());
        }
        // A host comes when the driver asks it to.
        let end = rig.now() + Duration::from_secs(2);
        while rig.now() < end {
            rig.pass(Duration::from_millis(100));
            driver.service(rig.now());
        }
        let fault = lost(&mut driver).expect("a lost device is reported");
        assert!(fault.cause.contains(cause), "{fault}");
        assert_eq!(driver.pd_create().unwrap_err().kind, FaultKind::Gone);
        driver.close().unwrap_err();
    }
}

#[test]
fn a_firmware_that_dies_in_a_command_ends_the_wait_at_once() {
    let rig = Rig::light();
    let mut driver = up(&rig);
    rig.script(|first, script| script.on(When::From(first), Verdict::Mute));
    rig.slot.hca().die(8);
    let start = rig.now();
    let fault = driver.pd_create().unwrap_err();
    assert_eq!((fault.kind, fault.operation, fault.syndrome), (FaultKind::Gone, "ALLOC_PD", 8));
    assert!(rig.now() - start < Duration::from_millis(5));
}

#[test]
fn a_reset_while_a_command_is_under_way_ends_its_wait_within_two_seconds() {
    let rig = Rig::light();
    let watched = Watched::new(&rig.slot);
    // Its commands have a minute.
    let mut driver = Driver::open(&watched, &usual()).unwrap();
    watched.stores(|offset| {
        if offset == COMMAND_DOORBELL {
            rig.slot.hca().flr();
            enable(&mut rig.slot.hca());
        }
        true
    });
    let start = rig.now();
    let fault = driver.pd_create().unwrap_err();
    assert_eq!((fault.kind, fault.operation), (FaultKind::Gone, "ALLOC_PD"));
    assert!(fault.cause.contains("disabled its interface"), "{fault}");
    assert!(rig.now() - start < Duration::from_secs(2));
    driver.close().unwrap_err();
}

#[test]
fn a_counter_that_stands_still_is_a_warning() {
    let rig = Rig::light();
    let watched = Watched::new(&rig.slot);
    let mut driver = Driver::open(&watched, &patience()).unwrap();
    watched.look(|at, value| if at == HEALTH_COUNTER { 42 } else { value });
    let mut warned = Vec::new();
    for second in 1..=20 {
        rig.pass(Duration::from_secs(1));
        driver.service(rig.now());
        for notice in notices(&mut driver) {
            let Notice::Warning(fault) = notice else { panic!("{notice:?}") };
            assert!(fault.cause.contains("counter"), "{fault}");
            warned.push(second);
        }
    }
    assert!(matches!(warned[..], [7..=12]), "{warned:?}: real firmware pauses for up to six");
    driver.pd_create().unwrap();
    driver.close().unwrap();
}

#[test]
fn a_device_that_leaves_the_bus_is_reported() {
    let rig = Rig::light();
    let watched = Watched::new(&rig.slot);
    let mut driver = Driver::open(&watched, &patience()).unwrap();
    watched.look(|_, _| u32::MAX);
    rig.pass(Duration::from_secs(2));
    driver.service(rig.now());
    let fault = lost(&mut driver).expect("reported");
    assert!(fault.cause.contains("all ones"), "{fault}");
    assert_eq!(driver.next_deadline(), Some(dat_core::Instant::NEVER));
    driver.close().unwrap_err();
}

#[test]
fn heat_is_not_death() {
    let rig = Rig::light();
    let watched = Watched::new(&rig.slot);
    let mut driver = Driver::open(&watched, &patience()).unwrap();
    watched.look(|at, value| if at == 0x23c { value | 0x10 << 16 } else { value });
    for _ in 0..5 {
        rig.pass(Duration::from_secs(1));
        driver.service(rig.now());
    }
    assert!(lost(&mut driver).is_none());
    driver.close().unwrap();
}

#[test]
fn an_internal_error_event_is_believed_only_with_the_registers() {
    let rig = Rig::light();
    let mut driver = up(&rig);
    rig.slot.hca().inject_event(Some(ASYNC), &Event::new(event::INTERNAL_ERROR, 0));
    driver.service(rig.now());
    assert!(lost(&mut driver).is_none(), "the registers know nothing of it");
    driver.close().unwrap();
}

// ---- page requests ----

#[test]
fn page_requests_for_other_functions_move_no_page() {
    let rig = Rig::light();
    let mut device = Device::open(&rig.slot, &patience()).unwrap();
    let held = (device.firmware_pages(), rig.taken().pages);
    for (function, count) in [(7, 5), (0x8000_0000, 5), (0x7, u32::MAX), (0xffff, 0x8000_0000)] {
        let event = Event::new(event::PAGE_REQUEST, 0).with(0, function).with(4, count);
        rig.slot.hca().inject_event(Some(ASYNC), &event);
        device.service(rig.now(), |_| {});
        assert_eq!((device.firmware_pages(), rig.taken().pages), held);
    }
    device.close().unwrap();
    assert_eq!(rig.taken(), NOTHING);
}

#[test]
fn pages_asked_back_that_the_firmware_does_not_give_end_in_time() {
    for count in [1, 100, 0x7fff_ffff, 0x8000_0000_u32] {
        let rig = Rig::light();
        let mut device = Device::open(&rig.slot, &patience()).unwrap();
        // It offers pages that it cannot spare: each take returns none.
        let event = Event::new(event::PAGE_REQUEST, 0).with(4, count.wrapping_neg());
        rig.slot.hca().inject_event(Some(ASYNC), &event);
        let start = rig.now();
        device.service(rig.now(), |_| {});
        assert!(rig.now() - start < Duration::from_secs(6));
        assert_eq!(device.firmware_pages(), 46);
        device.close().unwrap();
        assert_eq!(rig.taken(), NOTHING);
    }
}

#[test]
fn a_refusal_for_want_of_pages_is_met_with_pages_and_tried_again() {
    let rig = Rig::light();
    let mut driver = up(&rig);
    let held = driver.device().firmware_pages();
    rig.script(|first, script| script.refuse(When::Nth(first), Status::NoResources));
    rig.slot.hca().request_pages(64);
    driver.pd_create().unwrap();
    assert_eq!(driver.device().firmware_pages(), held + 64);
    // Without a page request behind it, the refusal is reported as it is.
    rig.script(|first, script| script.refuse(When::Nth(first), Status::NoResources));
    assert_eq!(driver.pd_create().unwrap_err().kind, FaultKind::Resources);
    driver.close().unwrap();
    assert_eq!(rig.taken(), NOTHING);
}

// ---- dice ----

/// Flips `flips` bits in every `one_in`th write of the kinds in `kinds`.
fn dice(
    seed: u64,
    kinds: &'static [Wrote],
    one_in: u32,
    flips: usize,
    count: Arc<Mutex<u32>>,
) -> Mangle {
    let mut rng = SmallRng::seed_from_u64(seed);
    Box::new(move |wrote, _, bytes| {
        if kinds.contains(&wrote) && !bytes.is_empty() && rng.random_ratio(1, one_in) {
            *count.lock().unwrap() += 1;
            for _ in 0..flips {
                let at = rng.random_range(0..bytes.len());
                bytes[at] ^= 1 << rng.random_range(0..8);
            }
        }
        true
    })
}

fn thrown(seed: u64, kinds: &'static [Wrote], one_in: u32, flips: usize) {
    let rig = Rig::new(Card { seed, ..light() });
    let count = Arc::new(Mutex::new(0));
    rig.slot.hca().set_mangle(Some(dice(seed, kinds, one_in, flips, Arc::clone(&count))));
    let start = rig.now();
    let watched = Watched::new(&rig.slot);
    // Any result is fine, if it comes in time.
    let _ = journey(&watched, &patience());
    assert!(rig.now() - start < Duration::from_secs(60), "seed {seed}: {:?}", rig.now() - start);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn mangled_answers_neither_panic_nor_hang(seed: u64, one_in in 2..40_u32, flips in 1..9_usize) {
        thrown(seed, &[Wrote::CommandEntry, Wrote::Mailbox], one_in, flips);
    }

    #[test]
    fn mangled_mailboxes_neither_panic_nor_hang(seed: u64, flips in 1..200_usize) {
        thrown(seed, &[Wrote::Mailbox], 1, flips);
    }

    #[test]
    fn mangled_events_neither_panic_nor_hang(seed: u64, words: [u64; 16]) {
        let rig = Rig::new(Card { seed, ..light() });
        let count = Arc::new(Mutex::new(0));
        let mut driver = up(&rig);
        rig.slot.hca().set_mangle(Some(dice(seed, &[Wrote::Eqe], 1, 40, Arc::clone(&count))));
        let start = rig.now();
        for (n, word) in words.iter().enumerate() {
            let [kind, sub, ..] = word.to_le_bytes();
            let mut event = Event::new(kind % 0x20, sub);
            for (at, byte) in event.data.iter_mut().enumerate() {
                *byte = word.rotate_right(at.try_into().unwrap()).to_le_bytes()[0];
            }
            let queues = [COMMANDS, ASYNC, PAGES, COMPLETION];
            rig.slot.hca().inject_event(Some(queues[n % queues.len()]), &event);
            driver.service(rig.now());
            notices(&mut driver);
        }
        prop_assert!(*count.lock().unwrap() >= 16);
        let _ = driver.close();
        // Each page request it may have become has a deadline of its own.
        prop_assert!(rig.now() - start < Duration::from_secs(200), "{:?}", rig.now() - start);
    }

    #[test]
    fn mangled_completions_neither_panic_nor_hang(seed: u64, flips in 1..64_usize) {
        let rig = Rig::new(Card { seed, ..light() });
        let count = Arc::new(Mutex::new(0));
        let mut driver = up(&rig);
        rig.slot.hca().set_mangle(Some(dice(seed, &[Wrote::Cqe], 1, flips, Arc::clone(&count))));
        // Neighbour discovery and a datagram make completions of the driver's own queues.
        for _ in 0..20 {
            let _ = driver.resolve("192.168.7.9".parse().unwrap(), rig.now());
            rig.pass(Duration::from_millis(300));
            driver.service(rig.now());
            while driver.mad_recv().is_some() {}
            notices(&mut driver);
        }
        prop_assert!(*count.lock().unwrap() > 0, "no completion was made");
        rig.slot.hca().set_mangle(None);
        driver.close().unwrap();
        prop_assert_eq!(rig.taken(), NOTHING);
    }
}
