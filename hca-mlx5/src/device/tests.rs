//! A device at work: events, health, counters, addresses.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::time::Duration;

use dat_core::provider::FaultKind;

use super::*;
use crate::device::eq::QpEvent;
use crate::device::scripted::{ASYNC, COMMANDS, COMPLETIONS, PAGES, Reply, Scripted, config};
use crate::platform::Clock;
use crate::prm;
use crate::prm::eq::{EventType, UAR_EQ_ARM};
use crate::prm::init_seg;
use crate::prm::roce::{ROCE_ADDRESS, RoceAddress, RoceAddressIn};

fn open(platform: &Scripted) -> Device<'_, Scripted> {
    Device::open(platform, &config()).unwrap()
}

fn now(platform: &Scripted) -> Instant {
    Instant::from_nanos(platform.now())
}

fn number(number: u32) -> [u8; 28] {
    let mut data = [0; 28];
    prm::put(&mut data, 0x18, &number.to_be_bytes());
    data
}

#[test]
fn events_of_both_queues_come_out_and_both_are_armed_again() {
    let platform = Scripted::new();
    let mut device = open(&platform);
    platform.event(ASYNC, EventType::CommunicationEstablished, 0, &number(5));
    platform.event(COMPLETIONS, EventType::Completion, 0, &number(6));
    device.service(now(&platform), |_| {});
    assert_eq!(device.next_event(), Some(Event::Qp { qpn: 5, what: QpEvent::Established }));
    assert_eq!(device.next_event(), Some(Event::Completion { cqn: 6 }));
    assert_eq!(device.next_event(), None);
    assert_eq!(platform.rung(UAR_EQ_ARM)[3..], [0x0400_0001, 0x0600_0001]);
}

#[test]
fn a_flood_is_read_in_bounded_portions_and_nothing_lost() {
    let platform = Scripted::new();
    let mut device = open(&platform);
    for cqn in 0..200 {
        platform.event(COMPLETIONS, EventType::Completion, 0, &number(cqn));
    }
    let mut seen = std::vec::Vec::new();
    for _ in 0..10 {
        device.service(now(&platform), |_| {});
        assert!(device.events.len() <= 64);
        while let Some(Event::Completion { cqn }) = device.next_event() {
            seen.push(cqn);
        }
    }
    assert_eq!(seen, (0..200).collect::<std::vec::Vec<_>>());
}

#[test]
fn what_is_left_of_a_flood_is_due_at_once() {
    let platform = Scripted::new();
    let mut device = open(&platform);
    for cqn in 0..200 {
        platform.event(COMPLETIONS, EventType::Completion, 0, &number(cqn));
    }
    let mut seen = 0;
    for _ in 0..10 {
        device.service(now(&platform), |_| {});
        while device.next_event().is_some() {
            seen += 1;
        }
        assert_eq!(device.next_deadline() == Instant::ZERO, seen < 200, "{seen} read");
    }
    assert_eq!(seen, 200);
}

#[test]
fn a_consumer_that_does_not_read_loses_nothing_either() {
    let platform = Scripted::new();
    let mut device = open(&platform);
    for cqn in 0..150 {
        platform.event(COMPLETIONS, EventType::Completion, 0, &number(cqn));
        device.service(now(&platform), |_| {});
    }
    let mut expected = 0;
    for _ in 0..4 {
        while let Some(event) = device.next_event() {
            assert_eq!(event, Event::Completion { cqn: expected });
            expected += 1;
        }
        device.service(now(&platform), |_| {});
    }
    assert_eq!(expected, 150);
}

#[test]
fn a_user_who_reads_no_events_holds_up_no_page_request() {
    let platform = Scripted::new();
    let mut device = open(&platform);
    let held = device.firmware_pages();
    for qpn in 0..200 {
        platform.event(ASYNC, EventType::CommunicationEstablished, 0, &number(qpn));
    }
    device.service(now(&platform), |_| {});
    assert!(device.events.len() + 1 >= EVENTS, "no more is taken");
    for round in 1..=20 {
        platform.event(PAGES, EventType::PageRequest, 0, &[0, 0, 0, 7, 0, 0, 0, 3]);
        device.service(now(&platform), |_| {});
        assert_eq!(device.firmware_pages(), held + 3 * round);
    }
}

#[test]
fn command_events_cost_the_user_nothing() {
    let platform = Scripted::new();
    let mut device = open(&platform);
    for _ in 0..1000 {
        platform.event(COMMANDS, EventType::Command, 0, &[0, 0, 0, 1]);
        device.alloc_pd().unwrap();
    }
    device.service(now(&platform), |_| {});
    assert_eq!(device.next_event(), None);
}

#[test]
fn unknown_events_pass_unseen() {
    let platform = Scripted::new();
    let mut device = open(&platform);
    for event_type in [0x06, 0x22, 0x55, 0xff] {
        let mut entry = [0x77; 64];
        entry[1] = event_type;
        platform.raw_event(ASYNC, entry);
    }
    platform.event(ASYNC, EventType::PortModule, 1, &[0xff; 28]);
    platform.event(ASYNC, EventType::PortChange, 1, &[0, 0, 0, 0, 0, 0, 0, 0, 0x10]);
    device.service(now(&platform), |_| {});
    assert_eq!(device.next_event(), Some(Event::Port { port: 1, up: false }));
    assert_eq!(device.next_event(), None);
}

#[test]
fn a_counter_that_stands_still_is_a_warning_after_eight_looks() {
    let platform = Scripted::new();
    let mut device = open(&platform);
    platform.beating.set(false);
    platform.set(init_seg::HEALTH_COUNTER, 77);
    for second in 0..9 {
        assert_eq!(device.next_event(), None, "second {second}");
        platform.advance(1_000_000_000);
        device.service(now(&platform), |_| {});
    }
    let Some(Event::Warning(fault)) = device.next_event() else { panic!("not reported") };
    assert!(fault.cause.contains("counter"), "{fault}");
    platform.advance(1_000_000_000);
    device.service(now(&platform), |_| {});
    assert_eq!(device.next_event(), None, "reported once");
    assert!(device.alloc_pd().is_ok(), "a firmware that answers is alive");
}

#[test]
fn a_counter_that_pauses_for_six_seconds_is_alive() {
    let platform = Scripted::new();
    let mut device = open(&platform);
    for round in 1..5 {
        platform.beating.set(false);
        platform.set(init_seg::HEALTH_COUNTER, round);
        for _ in 0..7 {
            platform.advance(1_000_000_000);
            device.service(now(&platform), |_| {});
        }
        platform.beating.set(true);
        platform.advance(1_000_000_000);
        device.service(now(&platform), |_| {});
    }
    assert_eq!(device.next_event(), None);
}

#[test]
fn between_its_ticks_health_costs_nothing() {
    let platform = Scripted::new();
    let mut device = open(&platform);
    platform.gone.set(true);
    device.service(now(&platform), |_| {});
    assert_eq!(device.next_event(), None);
    assert_eq!(device.next_deadline() - now(&platform), Duration::from_secs(1));
    platform.advance(1_000_000_000);
    device.service(now(&platform), |_| {});
    assert!(matches!(device.next_event(), Some(Event::Dead(_))));
}

#[test]
fn signs_of_death_in_the_registers() {
    for (offset, value, words) in [
        (init_seg::CMDQ_ADDR_L_SZ, 1 << 8 | 0x56, "disabled"),
        (init_seg::CMDQ_ADDR_L_SZ, 7 << 8 | 0x56, "reset"),
    ] {
        let platform = Scripted::new();
        let mut device = open(&platform);
        platform.set(offset, value);
        platform.advance(1_000_000_000);
        device.service(now(&platform), |_| {});
        let Some(Event::Dead(fault)) = device.next_event() else { panic!("{words}") };
        assert!(fault.cause.contains(words), "{fault}");
    }
}

/// Linux's rule (`sensor_fw_synd_rfr`): the buffer may speak of another function, long ago.
#[test]
fn a_syndrome_kills_only_with_a_request_for_reset() {
    for (offset, value, words) in [
        (init_seg::HEALTH_WORD, 0x0d << 16, "in error"),
        (init_seg::HEALTH_COUNTER, 0x07 << 24, "core"),
        (init_seg::HEALTH_WORD, 0x10 << 16, "hot"),
    ] {
        for severity in [0, 3 << 24, 1 << 31] {
            let platform = Scripted::new();
            let mut device = open(&platform);
            platform.set(offset, value);
            platform.set(init_seg::HEALTH_SEVERITY, severity);
            platform.advance(1_000_000_000);
            device.service(now(&platform), |_| {});
            let fault = match device.next_event() {
                Some(Event::Dead(fault)) if severity >> 31 == 1 => fault,
                Some(Event::Warning(fault)) if severity >> 31 == 0 => fault,
                other => panic!("{severity:#x}: {other:?}"),
            };
            assert!(fault.cause.contains(words), "{fault}");
            platform.advance(1_000_000_000);
            device.service(now(&platform), |_| {});
            assert_eq!(device.next_event(), None, "reported once");
            assert_eq!(device.alloc_pd().is_ok(), severity >> 31 == 0);
        }
    }
}

/// What an assert of another function left in the buffer stops no bring-up.
#[test]
fn a_device_with_an_old_syndrome_comes_up() {
    let platform = Scripted::new();
    platform.set(init_seg::HEALTH_WORD, 0x01 << 16);
    platform.set(init_seg::HEALTH_COUNTER, 0x01 << 24);
    let mut device = open(&platform);
    assert!(device.alloc_pd().is_ok());
}

#[test]
fn one_odd_look_at_the_command_queue_is_no_reset() {
    for (looks, dead) in [(1, false), (2, true)] {
        let platform = Scripted::new();
        let mut device = open(&platform);
        let home = platform.get(init_seg::CMDQ_ADDR_H);
        platform.set(init_seg::CMDQ_ADDR_H, home ^ 1);
        platform.advance(1_000_000_000);
        for _ in 0..looks {
            device.service(now(&platform), |_| {});
            platform.advance(100_000_000);
        }
        platform.set(init_seg::CMDQ_ADDR_H, home);
        device.service(now(&platform), |_| {});
        assert_eq!(matches!(device.next_event(), Some(Event::Dead(_))), dead);
    }
}

#[test]
fn an_internal_error_event_makes_it_look_at_once() {
    let platform = Scripted::new();
    let mut device = open(&platform);
    platform.event(ASYNC, EventType::InternalError, 0, &[0; 28]);
    device.service(now(&platform), |_| {});
    assert_eq!(device.next_event(), None, "nothing wrong to be seen");
    platform.event(ASYNC, EventType::InternalError, 0, &[0; 28]);
    platform.set(init_seg::HEALTH_WORD, 0x01 << 16);
    platform.set(init_seg::HEALTH_SEVERITY, 1 << 31);
    device.service(now(&platform), |_| {});
    assert!(matches!(device.next_event(), Some(Event::Dead(_))));
}

#[test]
fn a_loss_found_by_a_command_is_reported_by_service() {
    let platform = Scripted::new();
    let mut device = open(&platform);
    platform.script(|_| Reply::Sick(1));
    assert_eq!(device.alloc_pd().unwrap_err().kind, FaultKind::Gone);
    device.service(now(&platform), |_| {});
    assert!(matches!(device.next_event(), Some(Event::Dead(fault)) if fault.syndrome == 1));
}

#[test]
fn addresses_go_in_as_the_table_wants_them() {
    let platform = Scripted::new();
    let mut device = open(&platform);
    device.set_roce_address(2, Ipv4Addr::new(192, 168, 7, 1).into(), None).unwrap();
    let v6 = Ipv6Addr::new(0xfe80, 0, 0, 0, 1, 2, 3, 4);
    device.set_roce_address(15, v6.into(), Some(100)).unwrap();
    device.clear_roce_address(2).unwrap();
    let sent = platform.commands(Opcode::SetRoceAddress);
    let entry = |n: usize| RoceAddress::read(&sent[n].input, ROCE_ADDRESS);
    assert_eq!(sent[0].input.len(), 48);
    let mut golden = std::vec![0; 48];
    golden[..2].copy_from_slice(&Opcode::SetRoceAddress.code().to_be_bytes());
    golden[8..12].copy_from_slice(&[0, 2, 0, 0]);
    golden[0x2b] = 2;
    assert_eq!(sent[2].input, golden, "an empty entry is the version and nothing else");
    assert_eq!(RoceAddressIn::read(&sent[0].input, 0).roce_address_index(), 2);
    assert_eq!(entry(0).source_l3_address(), 0xffff_c0a8_0701);
    assert_eq!((entry(0).source_mac_47_32(), entry(0).source_mac_31_0()), (0x0002, 0xc9a1_b2c3));
    assert_eq!(
        (entry(0).roce_l3_type(), entry(0).roce_version(), entry(0).vlan_valid()),
        (0, 2, false)
    );
    assert_eq!(entry(1).source_l3_address(), v6.to_bits());
    assert_eq!(
        (entry(1).roce_l3_type(), entry(1).vlan_valid(), entry(1).vlan_id()),
        (1, true, 100)
    );
    assert_eq!(entry(2).source_l3_address(), 0);
    assert_eq!((entry(2).source_mac_31_0(), entry(2).roce_version()), (0, 2));
}

#[test]
fn an_address_names_the_port_where_the_function_has_several() {
    let platform = Scripted::new();
    let mut device = open(&platform);
    device.caps.general.set_num_vhca_ports(2);
    device.clear_roce_address(3).unwrap();
    let sent = &platform.commands(Opcode::SetRoceAddress)[0];
    assert_eq!(sent.input[8..16], [0, 3, 0, 1, 0, 0, 0, 0]);
}

#[test]
fn every_vlan_there_is_may_be_used() {
    let platform = Scripted::new();
    let mut device = open(&platform);
    let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
    for vlan in [1, 4094] {
        device.set_roce_address(0, address.into(), Some(vlan)).unwrap();
    }
    platform.script(|_| Reply::Status(3, 0));
    assert_eq!(device.set_roce_address(5, address.into(), None).unwrap_err().number, 5);
    assert_eq!(device.clear_roce_address(6).unwrap_err().number, 6);
}

#[test]
fn addresses_the_firmware_would_refuse_are_refused_here_in_words() {
    let platform = Scripted::new();
    let mut device = open(&platform);
    let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
    for vlan in [0, 4095, 65535] {
        let fault = device.set_roce_address(0, address.into(), Some(vlan)).unwrap_err();
        assert_eq!((fault.kind, fault.object), (FaultKind::BadParameter, "RoCE address"));
    }
    assert_eq!(device.set_roce_address(16, address.into(), None).unwrap_err().number, 16);
    device.identity.mac = [1, 0, 0, 0, 0, 1];
    assert!(
        device.set_roce_address(0, address.into(), None).unwrap_err().cause.contains("multicast")
    );
    assert!(platform.commands(Opcode::SetRoceAddress).is_empty());
}

#[test]
fn counts_come_in_the_order_of_dat() {
    let platform = Scripted::new();
    let mut device = open(&platform);
    device.caps.general.set_vport_counters(true);
    device.counter_set = Some(9);
    // Each dword of the answer is its own offset.
    platform.script(|command| {
        let len = command.entry.output_length();
        Reply::Answer((0..len).step_by(4).flat_map(u32::to_be_bytes).collect())
    });
    let counters = device.counters().unwrap();
    assert_eq!(counters.diag, [0xac, 0x38, 0xa4, 0x30, 0xa8, 0x50, 0xa0, 0x70, 0xb4]);
    let packets = |at: u64| at << 32 | (at + 4);
    assert_eq!(counters.link, [packets(0x10), 0, 0, packets(0x20), 0, 0, 0, 0, 0]);
    let asked = [Opcode::QueryQCounter, Opcode::QueryVportCounter]
        .map(|op| platform.commands(op).pop().unwrap());
    assert_eq!(asked.each_ref().map(|command| command.input.len()), [32, 32]);
    assert_eq!(asked[0].input[8..], [&[0; 23][..], &[9]].concat(), "the set, and no clearing");
    assert_eq!(asked[1].input[8..], [0; 24]);
    for (op, number) in [(Opcode::QueryQCounter, 9), (Opcode::QueryVportCounter, 0)] {
        platform.script(
            move |command| {
                if command.op == op { Reply::Status(5, 1) } else { Reply::Normal }
            },
        );
        let fault = device.counters().unwrap_err();
        assert_eq!((fault.operation, fault.number), (op.name(), number));
    }
}

#[test]
fn a_device_that_counts_nothing_is_asked_nothing() {
    let platform = Scripted::new();
    let mut device = open(&platform);
    let sent = platform.log.borrow().len();
    assert_eq!(device.counters().unwrap(), dat_core::provider::HcaCounters::default());
    assert_eq!((platform.log.borrow().len(), device.counter_set()), (sent, 0));
}

#[test]
fn a_counter_set_is_the_driver_s_until_it_is_given_back() {
    let platform = Scripted::new();
    let mut device = open(&platform);
    platform.script(|command| {
        if command.op == Opcode::AllocQCounter {
            Reply::Answer([&[0; 11][..], &[9], &[0; 4]].concat())
        } else {
            Reply::Status(6, 1)
        }
    });
    device.alloc_counters().unwrap();
    assert_eq!(device.counter_set(), 9);
    let alloc = &platform.commands(Opcode::AllocQCounter)[0];
    assert_eq!(alloc.input[8..], [0; 8]);
    let fault = device.dealloc_counters().unwrap_err();
    assert_eq!((fault.operation, fault.number), ("DEALLOC_Q_COUNTER", 9));
    assert_eq!(platform.commands(Opcode::DeallocQCounter)[0].input[8..12], [0, 0, 0, 9]);
    // Once is enough.
    device.dealloc_counters().unwrap();
    assert_eq!(platform.commands(Opcode::DeallocQCounter).len(), 1);
}

#[test]
fn without_a_counter_set_the_driver_works_but_not_without_an_answer() {
    let platform = Scripted::new();
    let mut device = open(&platform);
    platform.script(|_| Reply::Status(8, 0));
    device.alloc_counters().unwrap();
    assert_eq!(device.counter_set, None);
    for (reply, kind) in [(Reply::Never, FaultKind::Timeout), (Reply::Vanish, FaultKind::Gone)] {
        let platform = Scripted::new();
        let mut device = open(&platform);
        platform.script(move |_| reply.clone());
        assert_eq!(device.alloc_counters().unwrap_err().kind, kind);
    }
}

/// Entries that nobody asked for are read in portions too, and the rest is due at once.
#[test]
fn a_flood_of_unknown_events_is_read_in_portions() {
    let platform = Scripted::new();
    let mut device = open(&platform);
    let mut entry = [0x77; 64];
    entry[1] = 0x55;
    for _ in 0..work::EVENTS + 1 {
        platform.raw_event(ASYNC, entry);
    }
    device.service(now(&platform), |_| {});
    assert_eq!(device.next_deadline(), Instant::ZERO);
    device.service(now(&platform), |_| {});
    assert_ne!(device.next_deadline(), Instant::ZERO);
}

#[test]
fn the_port_says_whether_it_is_up() {
    let platform = Scripted::new();
    let mut device = open(&platform);
    assert!(device.port_up().unwrap());
    let asked = &platform.commands(Opcode::QueryVportState)[0];
    assert_eq!(asked.input[8..16], [0; 8], "of the own port");
    platform.script(|_| Reply::Answer(std::vec![0; 16]));
    assert!(!device.port_up().unwrap());
}

#[test]
fn small_objects_come_and_go_by_number() {
    let platform = Scripted::new();
    let mut device = open(&platform);
    let pd = device.alloc_pd().unwrap();
    device.dealloc_pd(pd).unwrap();
    let uar = device.alloc_uar().unwrap();
    assert_eq!(uar.offset, uar.number as usize * 4096);
    device.dealloc_uar(uar).unwrap();
    let freed = &platform.commands(Opcode::DeallocUar)[0];
    assert_eq!(InputHead::read(&freed.input, 0).number(), uar.number);
    let dealloc = &platform.commands(Opcode::DeallocPd)[0];
    assert_eq!(InputHead::read(&dealloc.input, 0).number(), pd);
}
