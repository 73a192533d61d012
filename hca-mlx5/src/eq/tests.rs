//! The ring, its passes, its doorbells, and what entries mean.

use super::*;
use crate::device::Config;
use crate::scripted::Scripted;
use proptest::prelude::*;

const ASYNC: u8 = 3;

/// A device with a small completion event queue (number 4) and the asynchronous one (number 3).
fn device(platform: &Scripted) -> Device<'_, Scripted> {
    Device::open(
        platform,
        &Config {
            log_completion_events: 6,
            ..Config::default()
        },
    )
    .unwrap()
}

fn queue<'a>(device: &'a mut Device<'_, Scripted>) -> &'a mut EventQueue {
    device.completion_events.as_mut().unwrap()
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
    assert_eq!(commands.len(), 2);
    let context = EqContext::read(&commands[0].input, EQ_CONTEXT);
    assert_eq!(
        (
            context.log_eq_size(),
            context.uar_page(),
            context.intr(),
            context.oi()
        ),
        (8, 2, 0, false)
    );
    let mask = CreateEqIn::read(&commands[0].input, 0).event_bitmask();
    assert_eq!(
        mask,
        1 << 2
            | 1 << 3
            | 1 << 4
            | 1 << 5
            | 1 << 8
            | 1 << 9
            | 1 << 0xb
            | 1 << 0x10
            | 1 << 0x11
            | 1 << 0x13
    );
    assert_eq!(
        commands[0].input.len(),
        0x110 + 4 * 8,
        "256 entries are four pages"
    );
    let first = u64::from_be_bytes(prm::take(&commands[0].input, 0x110));
    let second = u64::from_be_bytes(prm::take(&commands[0].input, 0x118));
    assert_eq!(second - first, 4096);
    for entry in 0..256 {
        let bytes: [u8; 64] = platform.dma(first + 64 * entry);
        assert_eq!((bytes[0x3f], bytes[1]), (1, 0));
    }
    let context = EqContext::read(&commands[1].input, EQ_CONTEXT);
    assert_eq!((context.log_eq_size(), context.intr()), (6, 1));
    assert_eq!(CreateEqIn::read(&commands[1].input, 0).event_bitmask(), 0);
}

#[test]
fn both_are_armed_at_the_end_of_bring_up() {
    let platform = Scripted::new();
    let _device = device(&platform);
    assert_eq!(platform.rung(UAR_EQ_ARM), [0x0300_0000, 0x0400_0000]);
}

#[test]
fn an_empty_queue_has_nothing_and_costs_no_doorbell() {
    let platform = Scripted::new();
    let mut device = device(&platform);
    assert_eq!(queue(&mut device).next(&platform), None);
    queue(&mut device).arm(&platform);
    assert_eq!(platform.rung(UAR_EQ_ARM).len(), 2, "still armed");
    assert!(platform.rung(UAR_EQ_UPDATE).is_empty());
}

#[test]
fn entries_come_in_order_through_many_passes() {
    let platform = Scripted::new();
    let mut device = device(&platform);
    for cqn in 0..1000 {
        platform.event(4, EventType::Completion, 0, &completion(cqn));
        assert_eq!(
            queue(&mut device).next(&platform),
            Some(Decoded::Event(Event::Completion { cqn }))
        );
        assert_eq!(queue(&mut device).next(&platform), None);
    }
    // A quarter of the ring at a time, so that it can never fill behind the reader.
    let told = platform.rung(UAR_EQ_UPDATE);
    assert_eq!(told.len(), 1000 / 16);
    assert_eq!(told[..3], [0x0400_0010, 0x0400_0020, 0x0400_0030]);
}

#[test]
fn a_full_ring_is_read_to_the_last_entry() {
    let platform = Scripted::new();
    let mut device = device(&platform);
    for round in 0..3 {
        for n in 0..64 {
            platform.event(4, EventType::Completion, 0, &completion(round * 64 + n));
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
    assert_eq!(platform.rung(UAR_EQ_ARM).last(), Some(&0x04ff_ffff));
    queue.consumer = 0x300_0000;
    queue.arm(&platform);
    assert_eq!(platform.rung(UAR_EQ_ARM).last(), Some(&0x0400_0000));
}

#[test]
fn it_is_armed_again_only_after_an_entry() {
    let platform = Scripted::new();
    let mut device = device(&platform);
    platform.event(4, EventType::Completion, 0, &completion(1));
    queue(&mut device).next(&platform).unwrap();
    queue(&mut device).arm(&platform);
    queue(&mut device).arm(&platform);
    assert_eq!(platform.rung(UAR_EQ_ARM)[2..], [0x0400_0001]);
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
        let event = Event::Qp {
            qpn: 0x12_3456,
            what,
        };
        assert_eq!(decoded(event_type, 0, &data), Decoded::Event(event));
    }
}

#[test]
fn a_failed_completion_queue_says_how() {
    let data = [0, 0, 0x12, 0x34, 0, 0, 0, 0, 0, 0, 0, 1];
    assert_eq!(
        decoded(EventType::CqError, 0, &data),
        Decoded::Event(Event::CqError {
            cqn: 0x1234,
            syndrome: 1
        })
    );
}

#[test]
fn a_port_goes_down_and_up_and_its_other_news_are_of_no_interest() {
    let data = [0, 0, 0, 0, 0, 0, 0, 0, 0x10];
    assert_eq!(
        decoded(EventType::PortChange, 1, &data),
        Decoded::Event(Event::Port { port: 1, up: false })
    );
    assert_eq!(
        decoded(EventType::PortChange, 4, &data),
        Decoded::Event(Event::Port { port: 1, up: true })
    );
    assert_eq!(
        decoded(EventType::PortChange, 6, &data),
        Decoded::Other {
            event_type: 9,
            sub_type: 6
        }
    );
}

#[test]
fn page_requests_keep_their_sign_and_function() {
    for (bytes, count) in [
        ([0, 0, 1, 0], 256),
        ([0xff, 0xff, 0xff, 0xfe], -2),
        ([0x80, 0, 0, 0], i32::MIN),
    ] {
        let mut data = [0x80, 0, 0x12, 0x34, 0, 0, 0, 0];
        data[4..].copy_from_slice(&bytes);
        let request = PageRequest {
            function_id: 0x1234,
            embedded_cpu: true,
            count,
        };
        assert_eq!(
            decoded(EventType::PageRequest, 0, &data),
            Decoded::Pages(request)
        );
    }
    let all_free = [0x40, 0, 0, 0, 0xff, 0xff, 0xff, 0xff];
    assert!(matches!(
        decoded(EventType::PageRequest, 0, &all_free),
        Decoded::Other { .. }
    ));
}

#[test]
fn command_events_name_slots_and_change_nothing() {
    assert_eq!(
        decoded(EventType::Command, 0, &[0x80, 0, 0, 1]),
        Decoded::Command(0x8000_0001)
    );
    let platform = Scripted::new();
    let mut device = device(&platform);
    let commands = platform.log.borrow().len();
    for _ in 0..10 {
        platform.event(ASYNC, EventType::Command, 0, &[0, 0, 0, 1]);
    }
    device.service(dat_core::Instant::ZERO);
    assert_eq!(device.next_event(), None);
    assert_eq!(platform.log.borrow().len(), commands);
    device.exec_number(Opcode::AllocPd, "", 0).unwrap();
}

proptest! {
    #[test]
    fn any_entry_decodes(head: u32, data: [u8; 28]) {
        let numbers_fit = match decode(EqeHead(head), &data) {
            Decoded::Event(Event::Completion { cqn } | Event::CqError { cqn, .. }) => cqn < 1 << 24,
            Decoded::Event(Event::Qp { qpn, .. }) => qpn < 1 << 24,
            Decoded::Event(Event::Port { port, .. }) => port < 16,
            Decoded::Event(Event::Dead(_)) => false,
            Decoded::Command(_) | Decoded::Pages(_) | Decoded::Internal | Decoded::Other { .. } => true,
        };
        prop_assert!(numbers_fit);
    }
}
