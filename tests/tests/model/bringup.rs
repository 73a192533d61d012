//! Bring-up and teardown on the model: every kind of card, all pages given and taken, many times.
#![expect(clippy::unwrap_used, reason = "test code: a panic here is a failed test")]

use std::time::Duration;

use dat_core::provider::{FaultKind, Notice, Provider};
use dat_tests::bringup::{Driver, Rig, Step, Taken, journey, light, net, patience, usual};
use dat_tests::host::inproc::Memory;
use hca_mlx5::eq::Event;
use hca_mlx5::{Config, Device};
use mlx5_model::Config as Card;

fn round(rig: &Rig, config: &Config<'_>) {
    let before = rig.taken();
    journey(&rig.slot, config).unwrap();
    assert_eq!(rig.taken(), before);
    assert_eq!(rig.slot.hca().pages_owned(), 0);
}

#[test]
fn a_physical_function_of_the_big_profile_comes_up_and_goes_down() {
    let rig = Rig::new(Card::default());
    let device = Device::open(&rig.slot, &usual()).unwrap();
    // Tens of MiB for the firmware: 6 boot pages and 4,232 more at the recorded card's log_max_qp.
    assert!(device.firmware_pages() > 4000, "{}", device.firmware_pages());
    assert_eq!(rig.taken().pages, device.firmware_pages() as usize);
    assert_eq!(rig.slot.hca().pages_owned(), device.firmware_pages());
    assert_eq!(device.identity().mac, Card::default().mac);
    assert_eq!(device.identity().firmware, (14, 12, 1220));
    assert_eq!(device.identity().frame_size, 4096 + 114);
    let caps = device.caps();
    assert!(caps.general.roce() && caps.general.log_max_qp() == 14);
    assert_eq!(caps.general_max.log_max_qp(), 23);
    assert_eq!(caps.roce.r_roce_dest_udp_port(), 4791);
    assert_eq!(caps.atomic.atomic_operations(), 3);
    assert_eq!(caps.ethernet.wqe_inline_mode(), 1);
    assert!(caps.flow_nic_receive.ft_support());
    let mut device = device;
    device.close().unwrap();
    assert_eq!(rig.taken(), Taken { arena: 0, pages: 0 });
    rig.content();
}

#[test]
fn everything_is_made_and_destroyed_on_the_big_profile() {
    let rig = Rig::new(Card::default());
    round(&rig, &usual());
    rig.content();
}

#[test]
fn everything_is_made_and_destroyed_on_the_small_profile() {
    let rig = Rig::new(Card::small());
    round(&rig, &usual());
    rig.content();
}

#[test]
fn the_small_profile_says_what_it_has() {
    let rig = Rig::new(Card::small());
    let mut device = Device::open(&rig.slot, &usual()).unwrap();
    let caps = &device.caps().general;
    assert_eq!((caps.log_max_qp_sz(), caps.num_ports(), caps.port_type()), (12, 1, 1));
    device.close().unwrap();
}

#[test]
fn a_virtual_function_comes_up_without_what_only_the_physical_one_may() {
    let rig = Rig::new(Card { init_pages: Some(40), ..Card::vf() });
    let before = rig.taken();
    let mut device = Device::open(&rig.slot, &usual()).unwrap();
    assert!(!device.identity().mac_given && device.identity().mac[0] & 3 == 2);
    assert_ne!(device.identity().node_guid, 0, "a GUID is made up");
    assert_eq!(rig.slot.hca().pages_owned(), device.firmware_pages());
    device.close().unwrap();
    assert_eq!(rig.taken(), before);
}

#[test]
fn memory_windows_follow_the_capability() {
    for umr in [true, false] {
        let rig = Rig::new(Card { umr, ..light() });
        let mut driver = Driver::open(&rig.slot, &patience()).unwrap();
        assert_eq!(driver.limits().windows, umr);
        driver.close().unwrap();
        round(&rig, &patience());
    }
}

#[test]
fn a_card_that_answers_late_and_out_of_step_comes_up_and_goes_down() {
    for seed in 0..12 {
        let card = Card { hardware_like: true, seed, init_time: 300_000_000, ..light() };
        let rig = Rig::new(card);
        let config = Config { init_timeout: Duration::from_secs(2), ..usual() };
        round(&rig, &config);
        rig.content();
    }
}

#[test]
fn a_hardware_like_card_gives_tens_of_mebibytes_back_bit_by_bit() {
    let rig =
        Rig::new(Card { hardware_like: true, seed: 99, init_pages: Some(9000), ..Card::default() });
    let mut device = Device::open(&rig.slot, &usual()).unwrap();
    assert_eq!(rig.taken().pages, 9006);
    device.close().unwrap();
    assert_eq!(rig.taken(), Taken { arena: 0, pages: 0 });
    rig.content();
}

#[test]
fn event_queues_that_are_made_armed_do_no_harm() {
    let rig = Rig::new(Card { facts: "eq-created=armed".parse().unwrap(), ..light() });
    round(&rig, &patience());
    rig.content();
}

#[test]
fn a_hundred_openings_leave_nothing_behind() {
    let rig = Rig::light();
    for _ in 0..100 {
        round(&rig, &patience());
    }
    rig.content();
}

#[test]
fn a_lower_log_max_qp_saves_pages() {
    let pages = |log_max_qp| {
        let rig = Rig::new(Card::default());
        let config = Config { log_max_qp, ..usual() };
        let mut device = Device::open(&rig.slot, &config).unwrap();
        assert_eq!(device.caps().general.log_max_qp(), log_max_qp.min(14));
        let pages = device.firmware_pages();
        device.close().unwrap();
        pages
    };
    assert!(pages(8) < pages(usual().log_max_qp));
    // Never more than the card offers by itself.
    let rig = Rig::new(light());
    let mut device = Device::open(&rig.slot, &Config { log_max_qp: 31, ..usual() }).unwrap();
    assert_eq!(device.caps().general.log_max_qp(), 14);
    device.close().unwrap();
}

#[test]
fn a_reserve_too_small_or_a_budget_too_low_is_reported_and_undone() {
    let memory = Memory { firmware: 20, ..Memory::default() };
    let rig = Rig::with(light(), memory);
    let fault = Device::open(&rig.slot, &patience()).unwrap_err();
    assert_eq!((fault.kind, fault.operation), (FaultKind::Resources, "MANAGE_PAGES"));
    assert!(fault.advice.contains("reserve"), "{fault}");
    assert_eq!(rig.taken(), Taken { arena: 0, pages: 0 });
    assert!(rig.slot.hca().pages_refused());

    let rig = Rig::light();
    let fault = Device::open(&rig.slot, &Config { page_budget: 45, ..patience() }).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Resources);
    assert!(fault.advice.contains("budget"), "{fault}");
    assert_eq!(rig.taken(), Taken { arena: 0, pages: 0 });
}

#[test]
fn an_arena_of_any_size_is_enough_or_is_reported_as_too_small() {
    let mut enough = 0;
    for arena in 1..128 {
        let rig = Rig::with(light(), Memory { arena, firmware: 64 });
        match journey(&rig.slot, &patience()) {
            Ok(()) => enough += 1,
            Err((_, fault)) => {
                assert_eq!(fault.kind, FaultKind::Resources, "{arena} pages: {fault}");
                assert!(fault.cause.contains("arena"), "{arena} pages: {fault}");
            }
        }
        assert_eq!(rig.taken(), Taken { arena: 0, pages: 0 }, "{arena} pages");
    }
    assert!((1..120).contains(&enough), "{enough} sizes were enough");
}

#[test]
fn negative_regular_pages_of_newer_cards_mean_nothing() {
    let rig = Rig::new(Card { regular_pages: -7, ..light() });
    round(&rig, &patience());
}

#[test]
fn regular_pages_are_given() {
    let rig = Rig::new(Card { regular_pages: 9, ..light() });
    let mut device = Device::open(&rig.slot, &patience()).unwrap();
    assert_eq!(device.firmware_pages(), 6 + 40 + 9);
    device.close().unwrap();
    assert_eq!(rig.taken(), Taken { arena: 0, pages: 0 });
}

fn served(rig: &Rig, device: &mut Device<'_, dat_tests::host::inproc::Slot>) {
    rig.pass(Duration::from_millis(1));
    device.service(rig.now(), |_| {});
}

#[test]
fn pages_asked_for_at_run_time_are_given_and_taken_back() {
    let rig = Rig::light();
    let mut device = Device::open(&rig.slot, &patience()).unwrap();
    let base = device.firmware_pages();
    for count in [1, 511, 512, 513, 2000] {
        let held = device.firmware_pages();
        rig.slot.hca().request_pages(count);
        served(&rig, &mut device);
        assert_eq!(device.firmware_pages(), held + count.unsigned_abs());
        assert_eq!(rig.slot.hca().pages_outstanding(), 0);
    }
    rig.slot.hca().request_pages(-3000);
    served(&rig, &mut device);
    assert_eq!(device.firmware_pages(), base + 3537 - 3000);
    assert_eq!(rig.slot.hca().pages_owned(), device.firmware_pages());
    assert_eq!(rig.taken().pages, device.firmware_pages() as usize);
    device.close().unwrap();
    assert_eq!(rig.taken(), Taken { arena: 0, pages: 0 });
    rig.content();
}

#[test]
fn several_page_requests_at_once_are_all_answered() {
    let rig = Rig::light();
    let mut device = Device::open(&rig.slot, &patience()).unwrap();
    let base = device.firmware_pages();
    for _ in 0..20 {
        rig.slot.hca().request_pages(3);
    }
    for _ in 0..4 {
        served(&rig, &mut device);
    }
    assert_eq!(device.firmware_pages(), base + 60);
    device.close().unwrap();
    assert_eq!(rig.taken(), Taken { arena: 0, pages: 0 });
}

#[test]
fn an_impossible_page_request_is_refused_and_the_device_works_on() {
    for count in [i32::MAX, 40_000] {
        let rig = Rig::light();
        let mut device = Device::open(&rig.slot, &patience()).unwrap();
        let held = device.firmware_pages();
        rig.slot.hca().request_pages(count);
        served(&rig, &mut device);
        assert!(rig.slot.hca().pages_refused());
        assert_eq!(device.firmware_pages(), held);
        device.close().unwrap();
        assert_eq!(rig.taken(), Taken { arena: 0, pages: 0 });
    }
}

#[test]
fn the_link_goes_down_and_up_and_the_provider_tells() {
    let rig = Rig::light();
    let mut driver = Driver::open(&rig.slot, &patience()).unwrap();
    driver.set_net(&net(), rig.now()).unwrap();
    for up in [false, true, false, true] {
        rig.slot.hca().set_link(up);
        rig.pass(Duration::from_millis(1));
        driver.service(rig.now());
        let reported: Vec<bool> = std::iter::from_fn(|| driver.notice())
            .filter_map(|notice| {
                let Notice::Link(up) = notice else {
                    return None;
                };
                Some(up)
            })
            .collect();
        assert_eq!(reported, [up]);
    }
    driver.close().unwrap();
}

#[test]
fn a_card_without_link_comes_up_all_the_same() {
    let rig = Rig::new(Card { link_up: false, ..light() });
    round(&rig, &patience());
}

#[test]
fn port_events_are_decoded_for_the_device_s_user() {
    let rig = Rig::light();
    let mut device = Device::open(&rig.slot, &patience()).unwrap();
    rig.slot.hca().set_link(false);
    served(&rig, &mut device);
    assert_eq!(device.next_event(), Some(Event::Port { port: 1, up: false }));
    assert_eq!(device.next_event(), None);
    device.close().unwrap();
}

#[test]
fn a_reset_under_the_driver_is_noticed_and_the_next_opening_begins_clean() {
    let rig = Rig::light();
    let mut driver = Driver::open(&rig.slot, &patience()).unwrap();
    driver.set_net(&net(), rig.now()).unwrap();
    // Another owner resets the function: every object, page and command is forgotten.
    rig.reset();
    let fault = driver.pd_create().unwrap_err();
    assert!(matches!(fault.kind, FaultKind::Timeout | FaultKind::Gone), "{fault}");
    assert!(driver.close().is_err());
    drop(driver);
    // The same memory is not used again without a reset of the card; a new slot's driver comes up.
    let rig = Rig::light();
    rig.reset();
    round(&rig, &patience());
}

#[test]
fn a_hardware_like_reset_reads_as_ones_for_a_while_and_bring_up_waits() {
    let rig = Rig::new(Card { hardware_like: true, init_time: 200_000_000, ..light() });
    rig.reset();
    let config = Config { init_timeout: Duration::from_secs(2), ..usual() };
    round(&rig, &config);
}

#[test]
fn a_closed_device_refuses_everything_at_once() {
    let rig = Rig::light();
    let mut driver = Driver::open(&rig.slot, &patience()).unwrap();
    driver.close().unwrap();
    let commands = rig.slot.hca().commands();
    let fault = driver.pd_create().unwrap_err();
    assert_eq!((fault.kind, fault.operation), (FaultKind::BadState, "ALLOC_PD"));
    assert_eq!(rig.slot.hca().commands(), commands, "no command was sent");
    let _ = driver.close();
    assert_eq!(rig.taken(), Taken { arena: 0, pages: 0 });
}

/// A light card with one general capability as given.
fn with_cap(name: &'static str, value: u32) -> Rig {
    Rig::new(Card { general_caps: vec![(name, value)], ..light() })
}

#[test]
fn a_function_without_roce_is_refused_with_a_remedy() {
    // Where the capability can be switched, the driver switches it; here there is nothing to
    // switch.
    let card = Card { general_caps: vec![("roce", 0), ("roce_rw_supported", 0)], ..light() };
    let rig = Rig::new(card);
    let (step, fault) = journey(&rig.slot, &patience()).unwrap_err();
    assert_eq!((step, fault.kind), (Step::Open, FaultKind::Unsupported), "{fault}");
    assert!(fault.cause.contains("RoCE") && !fault.advice.is_empty(), "{fault}");
    assert_eq!(rig.taken(), Taken { arena: 0, pages: 0 });
}

#[test]
fn completions_without_the_user_s_index_are_refused_by_the_provider() {
    let rig = with_cap("cqe_version", 0);
    let (step, fault) = journey(&rig.slot, &patience()).unwrap_err();
    assert_eq!((step, fault.kind), (Step::Open, FaultKind::Unsupported), "{fault}");
    assert_eq!(rig.taken(), Taken { arena: 0, pages: 0 });
}

#[test]
fn any_capability_may_be_missing_or_boundless() {
    let fields = hca_mlx5::prm::caps::GeneralCap::FIELDS;
    let mut refused = Vec::new();
    for field in fields {
        let most = (1_u64 << field.width.min(32)) - 1;
        for value in [0, u32::try_from(most).unwrap()] {
            let rig = with_cap(field.name, value);
            if let Err((step, fault)) = journey(&rig.slot, &patience()) {
                assert!(!fault.operation.is_empty() && !fault.cause.is_empty());
                refused.push((field.name, value, step, fault.operation));
            }
            let owned = rig.slot.hca().pages_owned() as usize;
            assert_eq!(rig.taken(), Taken { arena: 0, pages: owned }, "{} = {value}", field.name);
        }
    }
    // Few of them are worth refusing a card for.
    assert!(refused.len() < 40, "{refused:#?}");
}
