//! The ring, its passes, its doorbells, and what entries mean.

use super::*;
use crate::device::scripted::{ASYNC, COMMANDS, COMPLETIONS, PAGES, Reply, Scripted, config};
use crate::device::{Config, Device};
use crate::platform::Clock;
use crate::prm;
use crate::prm::cmd::Opcode;
use crate::prm::eq::{CreateEqIn, EQ_CONTEXT, EqContext};
use proptest::prelude::*;

/// A device with a small completion event queue.
fn device(platform: &Scripted) -> Device<'_, Scripted> {
    Device::open(platform, &Config { log_completion_events: 6, ..config() }).unwrap()
}

fn queue<'a>(device: &'a mut Device<'_, Scripted>) -> &'a mut EventQueue {
    &mut device.event_queues[crate::device::COMPLETION_EVENTS]
}

fn completion(cqn: u32) -> [u8; 28] {
    let mut data = [0; 28];
    prm::put(&mut data, 0x18, &cqn.to_be_bytes());
    data
}

#[test]
fn it_is_made_with_old_entries_its_pages_and_its_events() {
    let platform = Scripted::new();
    let _device = device(&platform);
    let commands = platform.commands(Opcode::CreateEq);
    let kinds: std::vec::Vec<_> = commands
        .iter()
        .map(|command| {
            let context = EqContext::read(&command.input, EQ_CONTEXT);
            let mask = CreateEqIn::read(&command.input, 0).event_bitmask();
            (context.log_eq_size(), context.intr(), mask)
        })
        .collect();
    let asynchronous = [2, 3, 4, 5, 8, 9, 0x10, 0x11, 0x12, 0x13, 0x14]
        .iter()
        .fold(0, |mask, event| mask | 1 << event);
    assert_eq!(
        kinds,
        [(6, 0, 1 << 0xa), (8, 0, asynchronous), (6, 0, 1 << 0xb), (6, 1, 0)],
        "commands, asynchronous events, pages, completions"
    );
    let command = &commands[1];
    let context = EqContext::read(&command.input, EQ_CONTEXT);
    assert_eq!((context.uar_page(), context.oi()), (2, false));
    assert_eq!(command.input.len(), 0x110 + 4 * 8, "256 entries are four pages");
    let first = u64::from_be_bytes(prm::take(&command.input, 0x110));
    let second = u64::from_be_bytes(prm::take(&command.input, 0x118));
    assert_eq!(second - first, 4096);
    for entry in 0..256 {
        let bytes: [u8; 64] = platform.dma(first + 64 * entry);
        assert_eq!((bytes[0x3f], bytes[1]), (1, 0));
    }
}

#[test]
fn all_but_that_of_commands_are_armed_at_the_end_of_bring_up() {
    let platform = Scripted::new();
    let _device = device(&platform);
    assert_eq!(platform.rung(UAR_EQ_ARM), [0x0400_0000, 0x0500_0000, 0x0600_0000]);
}

#[test]
fn an_empty_queue_has_nothing_and_costs_no_doorbell() {
    let platform = Scripted::new();
    let mut device = device(&platform);
    assert_eq!(queue(&mut device).next(&platform), None);
    queue(&mut device).arm(&platform);
    assert_eq!(platform.rung(UAR_EQ_ARM).len(), 3, "still armed");
    assert!(platform.rung(UAR_EQ_UPDATE).is_empty());
}

#[test]
fn entries_come_in_order_through_many_passes() {
    let platform = Scripted::new();
    let mut device = device(&platform);
    for cqn in 0..1000 {
        platform.event(COMPLETIONS, EventType::Completion, 0, &completion(cqn));
        assert_eq!(
            queue(&mut device).next(&platform),
            Some(Decoded::Event(Event::Completion { cqn }))
        );
        assert_eq!(queue(&mut device).next(&platform), None);
    }
    // A quarter of the ring at a time, so that it can never fill behind the reader.
    let written = platform.rung(UAR_EQ_UPDATE);
    assert_eq!(written.len(), 1000 / 16);
    assert_eq!(written[..3], [0x0600_0010, 0x0600_0020, 0x0600_0030]);
}

#[test]
fn a_full_ring_is_read_to_the_last_entry() {
    let platform = Scripted::new();
    let mut device = device(&platform);
    for round in 0..3 {
        for n in 0..64 {
            platform.event(COMPLETIONS, EventType::Completion, 0, &completion(round * 64 + n));
        }
        for n in 0..64 {
            let cqn = round * 64 + n;
            assert_eq!(
                queue(&mut device).next(&platform),
                Some(Decoded::Event(Event::Completion { cqn }))
            );
        }
        assert_eq!(queue(&mut device).next(&platform), None);
    }
}

#[test]
fn the_doorbell_carries_24_bits_of_a_free_running_index() {
    let platform = Scripted::new();
    let mut device = device(&platform);
    let queue = queue(&mut device);
    queue.consumer = 0x2ff_ffff;
    queue.arm(&platform);
    assert_eq!(platform.rung(UAR_EQ_ARM).last(), Some(&0x06ff_ffff));
    queue.consumer = 0x300_0000;
    queue.arm(&platform);
    assert_eq!(platform.rung(UAR_EQ_ARM).last(), Some(&0x0600_0000));
}

#[test]
fn it_is_armed_again_only_after_an_entry() {
    let platform = Scripted::new();
    let mut device = device(&platform);
    platform.event(COMPLETIONS, EventType::Completion, 0, &completion(1));
    queue(&mut device).next(&platform).unwrap();
    queue(&mut device).arm(&platform);
    queue(&mut device).arm(&platform);
    assert_eq!(platform.rung(UAR_EQ_ARM)[3..], [0x0600_0001]);
}

fn decoded(event_type: EventType, sub_type: u8, data: &[u8]) -> Decoded {
    let mut head = EqeHead::default();
    head.set_event_type(event_type as u8);
    head.set_event_sub_type(sub_type);
    let mut all = [0; 28];
    prm::put(&mut all, 0, data);
    decode(head, &all)
}

#[test]
fn queue_pair_events_carry_their_number() {
    let mut data = [0; 28];
    prm::put(&mut data, 0x14, &[0, 0, 0, 0, 0xff, 0x12, 0x34, 0x56]);
    for (event_type, what) in [
        (EventType::CommunicationEstablished, QpEvent::Established),
        (EventType::SendQueueDrained, QpEvent::Drained),
        (EventType::LastWqe, QpEvent::LastWqe),
        (EventType::WqCatastrophic, QpEvent::Catastrophic),
        (EventType::WqInvalidRequest, QpEvent::InvalidRequest),
        (EventType::WqAccessError, QpEvent::AccessError),
    ] {
        let event = Event::Qp { qpn: 0x12_3456, what };
        assert_eq!(decoded(event_type, 0, &data), Decoded::Event(event));
    }
}

#[test]
fn a_failed_completion_queue_says_how() {
    let data = [0, 0, 0x12, 0x34, 0, 0, 0, 0, 0, 0, 0, 1];
    assert_eq!(
        decoded(EventType::CqError, 0, &data),
        Decoded::Event(Event::CqError { cqn: 0x1234, syndrome: 1 })
    );
}

#[test]
fn a_port_goes_down_and_up_and_changes_in_its_subnet() {
    let data = [0, 0, 0, 0, 0, 0, 0, 0, 0x10];
    assert_eq!(
        decoded(EventType::PortChange, 1, &data),
        Decoded::Event(Event::Port { port: 1, up: false })
    );
    assert_eq!(
        decoded(EventType::PortChange, 4, &data),
        Decoded::Event(Event::Port { port: 1, up: true })
    );
    let changes = [
        SubnetChange::Initialized,
        SubnetChange::Lid,
        SubnetChange::PKey,
        SubnetChange::Guid,
        SubnetChange::Reregister,
    ];
    for (sub_type, change) in (5..).zip(changes) {
        assert_eq!(
            decoded(EventType::PortChange, sub_type, &data),
            Decoded::Event(Event::Subnet(change))
        );
    }
    assert_eq!(
        decoded(EventType::PortChange, 10, &data),
        Decoded::Other { event_type: 9, sub_type: 10 }
    );
}

#[test]
fn page_requests_keep_their_sign_and_function() {
    for (bytes, count) in
        [([0, 0, 1, 0], 256), ([0xff, 0xff, 0xff, 0xfe], -2), ([0x80, 0, 0, 0], i32::MIN)]
    {
        let mut data = [0x80, 0, 0x12, 0x34, 0, 0, 0, 0];
        data[4..].copy_from_slice(&bytes);
        let request = PageRequest { function_id: 0x1234, embedded_cpu: true, count };
        assert_eq!(decoded(EventType::PageRequest, 0, &data), Decoded::Pages(request));
    }
    let all_free = [0x40, 0, 0, 0, 0xff, 0xff, 0xff, 0xff];
    assert!(matches!(decoded(EventType::PageRequest, 0, &all_free), Decoded::Other { .. }));
}

#[test]
fn command_events_name_slots_and_change_nothing() {
    assert_eq!(decoded(EventType::Command, 0, &[0x80, 0, 0, 1]), Decoded::Command(0x8000_0001));
    let platform = Scripted::new();
    let mut device = device(&platform);
    let commands = platform.log.borrow().len();
    for _ in 0..10 {
        platform.event(ASYNC, EventType::Command, 0, &[0, 0, 0, 1]);
    }
    device.service(dat_core::Instant::ZERO, |_| {});
    assert_eq!(device.next_event(), None);
    assert_eq!(platform.log.borrow().len(), commands);
    device.allocate(Opcode::AllocPd).unwrap();
}

#[test]
fn command_events_are_read_after_every_command_and_armed_before_a_sleep() {
    let platform = Scripted::new();
    let mut device = device(&platform);
    let armed = || {
        let rung = platform.rung(UAR_EQ_ARM).into_iter();
        rung.filter(|word| word >> 24 == u32::from(COMMANDS)).collect::<std::vec::Vec<_>>()
    };
    assert_eq!(armed(), [], "no command of bring-up took long");
    // Two are there when the wait begins: a ghost, and one that carries several slots.
    platform.event(COMMANDS, EventType::Command, 0, &[0, 0, 0, 1]);
    platform.event(COMMANDS, EventType::Command, 0, &[0xff, 0xff, 0xff, 0xff]);
    platform.script(|_| Reply::Later(9, std::boxed::Box::new(Reply::Normal)));
    let before = platform.now();
    device.alloc_pd().unwrap();
    assert_eq!(
        platform.now() - before,
        9 * crate::device::scripted::TICK,
        "none of them ended the wait"
    );
    assert_eq!(armed(), [0x0300_0002], "once: the next one wakes");
    // The next reader reads the entries behind the answer; nobody sleeps.
    platform.event(COMMANDS, EventType::Command, 0, &[0, 0, 0, 1]);
    device.service(dat_core::Instant::ZERO, |_| {});
    platform.script(|_| Reply::Normal);
    device.alloc_pd().unwrap();
    assert_eq!(armed().len(), 1);
    platform.script(|_| Reply::Later(9, std::boxed::Box::new(Reply::Normal)));
    device.alloc_pd().unwrap();
    assert_eq!(armed()[1..], [0x0300_0003]);
}

#[test]
fn a_ring_of_command_events_is_read_in_one_call() {
    let platform = Scripted::new();
    let mut device = device(&platform);
    for round in 1..=5 {
        for _ in 0..64 {
            platform.event(COMMANDS, EventType::Command, 0, &[0, 0, 0, 1]);
        }
        device.alloc_pd().unwrap();
        assert_eq!(platform.rung(UAR_EQ_UPDATE).last(), Some(&(0x0300_0000 + 64 * round)));
    }
}

#[test]
fn commands_are_polled_for_before_their_queue_ends() {
    let platform = Scripted::new();
    let mut device = device(&platform);
    device.close().unwrap();
    let destroyed: std::vec::Vec<u32> = platform
        .commands(Opcode::DestroyEq)
        .iter()
        .map(|command| prm::cmd::InputHead::read(&command.input, 0).number())
        .collect();
    assert_eq!(destroyed, [COMPLETIONS, PAGES, ASYNC, COMMANDS].map(u32::from));
    let rung = platform.rung(UAR_EQ_ARM).len();
    assert_eq!(rung, 3, "nobody rings for a queue that is gone");
}

proptest! {
    #[test]
    fn any_entry_decodes(head: u32, data: [u8; 28]) {
        let numbers_fit = match decode(EqeHead(head), &data) {
            Decoded::Event(Event::Completion { cqn } | Event::CqError { cqn, .. }) => cqn < 1 << 24,
            Decoded::Event(Event::Qp { qpn, .. }) => qpn < 1 << 24,
            Decoded::Event(Event::Shared { srqn, .. }) => srqn < 1 << 24,
            Decoded::Event(Event::Port { port, .. }) => port < 16,
            Decoded::Event(Event::Subnet(_)) => true,
            Decoded::Event(Event::Warning(_) | Event::Dead(_)) => false,
            Decoded::Command(_) | Decoded::Pages(_) | Decoded::Internal | Decoded::Other { .. } => true,
        };
        prop_assert!(numbers_fit);
    }
}
