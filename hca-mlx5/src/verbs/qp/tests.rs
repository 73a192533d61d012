//! Queue pair commands, field by field.

use core::net::{IpAddr, Ipv4Addr};
use dat_core::provider::{Class, FaultKind, LidHop};

use dat_core::provider::{PostFlags, RecvQueue as _, Segment, SendQueue as _, WorkRequest};

use super::*;
use crate::data::scripted::{ARENA_IOVA, Command, Scripted, UAR};
use crate::platform::Blocks;

fn spec() -> QpSpec {
    QpSpec {
        service: Service::Connected { index: 0x123 },
        pd: 0x77,
        send_cq: Cqn(0x31),
        recv_cq: Cqn(0x32),
        requests: 10,
        receives: 20,
        request_segments: 4,
        receive_segments: 3,
        binds: true,
        uar: Uar { number: 2, offset: UAR },
        doorbell: Doorbell::shared(UAR, Blocks::Words),
        shared: None,
        inline: false,
    }
}

/// The whole message of a transition: its head, and dwords of the context at their offsets.
fn message(op: Opcode, qpn: u32, context: &[(usize, u32)]) -> std::vec::Vec<u8> {
    let mut golden = std::vec![0; TRANSITION];
    golden[..2].copy_from_slice(&op.code().to_be_bytes());
    golden[8..12].copy_from_slice(&qpn.to_be_bytes());
    for (at, word) in context {
        golden[CONTEXT_AT + at..CONTEXT_AT + at + 4].copy_from_slice(&word.to_be_bytes());
    }
    golden
}

/// A dword of the context.
fn bits(command: &Command, at: usize, high: u32, low: u32) -> u32 {
    command.bits(CONTEXT_AT + at, high, low)
}

const PATH: Path = Path {
    remote: IpAddr::V4(Ipv4Addr::new(192, 168, 7, 2)),
    next_hop: NextHop::Mac([0x24, 0x8a, 7, 1, 2, 3]),
    source_index: 5,
    hop_limit: 64,
    class: Class { traffic_class: 0x6a, priority: 3 },
    flow_label: 0x3c52a,
};

#[test]
fn a_path_in_a_subnet_goes_by_lid_and_has_a_global_header_only_across_subnets() {
    let gid: std::net::Ipv6Addr = "fe80::200:ff:fe00:2".parse().unwrap();
    let hop = LidHop { lid: 0x1234, path_bits: 3, rate: 7, pkey_index: 0 };
    for (hop_limit, pkey_index) in [(0, 0), (1, 2), (64, 0)] {
        let p = Scripted::<false>::new();
        let mut device = p.device();
        let path = Path {
            remote: gid.into(),
            next_hop: NextHop::Lid(LidHop { pkey_index, ..hop }),
            hop_limit,
            class: Class { traffic_class: 0x6a, priority: 11 },
            ..PATH
        };
        let rtr = QpStep::Rtr {
            path,
            remote_qpn: 0x99,
            rq_psn: 0,
            mtu: Mtu::B4096,
            responder_resources: 1,
            min_rnr_timer: 12,
        };
        step(&mut device, Qpn(0x4d), &rtr).unwrap();
        let command = p.of(Opcode::Init2RtrQp).remove(0);
        let at = PRIMARY_PATH_AT;
        assert_eq!(bits(&command, at, 15, 0), u32::from(pkey_index));
        let grh = u32::from(hop_limit > 1);
        assert_eq!(bits(&command, at + 4, 23, 23), grh, "hop limit {hop_limit}");
        assert_eq!(bits(&command, at + 4, 22, 16), 3);
        assert_eq!(bits(&command, at + 4, 15, 0), 0x1234);
        assert_eq!(bits(&command, at + 8, 11, 8), 7, "static rate");
        assert_eq!(bits(&command, at + 0x24, 27, 24), 11, "service level");
        assert_eq!(bits(&command, at + 0x24, 15, 0), 0, "no MAC");
        assert_eq!(bits(&command, at + 0x20, 15, 0), 0, "no UDP port");
        let mask = if pkey_index == 0 { 0 } else { 1 << 4 };
        assert_eq!(command.word(0x10), mask, "the P_Key is another than in Init");
        let words = crate::data::address_vector::address(&path, 1, 0x55, 0x1111).words();
        let bytes: std::vec::Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        assert_eq!(bytes[8..16], [0x80, 0, 0, 0x55, 0x7b, 3, 0x12, 0x34]);
        assert_eq!(bytes[0x1c] >> 6 & 1, u8::from(hop_limit > 1));
        assert_eq!(bytes[0x20..], gid.octets());
    }
}

#[test]
fn create_states_the_whole_shape() {
    let p = Scripted::<false>::new();
    let mut device = p.device();
    let (object, ..) = create(&mut device, &spec()).unwrap();
    let command = p.of(Opcode::CreateQp).remove(0);
    assert_eq!(command.input.len(), 272 + 8);
    assert_eq!(bits(&command, 0x00, 23, 16), 0, "service");
    assert_eq!(bits(&command, 0x00, 12, 11), 3, "migrated");
    assert_eq!(bits(&command, 0x04, 23, 0), 0x77);
    assert_eq!(bits(&command, 0x08, 22, 19), 5, "32 receives");
    assert_eq!(bits(&command, 0x08, 18, 16), 2, "of 64 bytes");
    assert_eq!(bits(&command, 0x08, 14, 11), 5, "32 blocks for 10 of 3");
    assert_eq!(bits(&command, 0x0c, 23, 0), 2);
    assert_eq!(bits(&command, 0x10, 23, 0), 0x123);
    assert_eq!(bits(&command, 0x7c, 23, 0), 0x31);
    assert_eq!(bits(&command, 0x9c, 23, 0), 0x32);
    assert_eq!(bits(&command, 0x90, 11, 6), 0);
    assert_eq!(
        (command.word(0x08), command.word(0x10)),
        (0, 0),
        "no number, no optional parameter"
    );
    assert_eq!(bits(&command, 0xac, 26, 24), 0, "a receive queue of its own");
    assert_eq!(object.memory().len, 32 * 64 + 32 * 64 + 64);
    let start = ARENA_IOVA + object.memory().offset as u64;
    assert_eq!(command.wide(0x110), start);
    assert_eq!(command.wide(CONTEXT_AT + 0xa0), start + 4096, "the record follows the rings");
}

#[test]
fn each_service_has_its_type_and_its_user_index() {
    for (service, st, index) in [
        (Service::Connected { index: 0x123 }, 0, 0x123),
        (Service::Datagram { index: 0x456 }, 2, 0x456),
        (Service::Gsi, 8, 0x00ff_ffff),
        (Service::Smi, 7, 0x00ff_ffff),
    ] {
        let p = Scripted::<false>::new();
        let mut device = p.device();
        create(&mut device, &QpSpec { service, ..spec() }).unwrap();
        let command = p.of(Opcode::CreateQp).remove(0);
        assert_eq!((bits(&command, 0x00, 23, 16), bits(&command, 0x10, 23, 0)), (st, index));
    }
}

#[test]
fn with_a_shared_receive_queue_there_is_none_of_its_own() {
    let p = Scripted::<false>::new();
    let mut device = p.device();
    let (object, mut sq, _) =
        create(&mut device, &QpSpec { shared: Some(0x99), ..spec() }).unwrap();
    let command = p.of(Opcode::CreateQp).remove(0);
    assert_eq!(command.word(CONTEXT_AT + 0xac), 1 << 24 | 0x99);
    assert_eq!(bits(&command, 0x08, 22, 16), 0, "no receive ring");
    assert_eq!(object.memory().len, 32 * 64 + 64);
    // The send ring begins at once.
    sq.post(WorkRequest::Send, &[], PostFlags::SIGNALED);
    assert_eq!(p.bytes(object.memory().offset, 4), [0, 0, 0, 10]);
    assert_eq!(p.bytes(object.memory().offset + 32 * 64 + 4, 4), [0, 0, 0, 1]);
}

#[test]
fn the_greatest_attributes_are_taken() {
    let p = Scripted::<false>::sized(1 << 23);
    let mut device = p.device();
    for spec in [
        QpSpec { requests: 10_922, ..spec() },
        QpSpec { receives: 32_768, receive_segments: 1, ..spec() },
        QpSpec { request_segments: MAX_SEGMENTS, receive_segments: MAX_SEGMENTS, ..spec() },
    ] {
        create(&mut device, &spec).unwrap();
    }
    let last = p.of(Opcode::CreateQp).remove(2);
    assert_eq!(bits(&last, 0x08, 18, 16), 4, "ten segments in a slot of 256 bytes");
    for receives in [0, 1] {
        let one = QpSpec { receives, receive_segments: MAX_SEGMENTS, ..spec() };
        create(&mut device, &one).unwrap();
        assert_eq!(bits(&p.of(Opcode::CreateQp).pop().unwrap(), 0x08, 22, 19), 0, "one receive");
    }
    device.caps.general.set_log_max_qp_sz(5);
    create(&mut device, &spec()).unwrap();
    device.caps.general.set_log_max_qp_sz(4);
    for small in [QpSpec { receives: 1, ..spec() }, QpSpec { requests: 1, ..spec() }] {
        assert!(create(&mut device, &small).is_err());
    }
}

#[test]
fn small_queue_pairs_lie_inside_a_page_and_say_where() {
    let p = Scripted::<false>::new();
    let mut device = p.device();
    let small = QpSpec { requests: 1, receives: 1, receive_segments: 1, ..spec() };
    let (first, ..) = create(&mut device, &small).unwrap();
    let (second, ..) = create(&mut device, &small).unwrap();
    // A receive ring of at least a block, so that the send ring starts on one.
    assert_eq!(first.memory().len, 64 + 4 * 64 + 64);
    let commands = p.of(Opcode::CreateQp);
    for (command, object) in commands.iter().zip([first, second]) {
        assert_eq!(bits(command, 0x08, 22, 19), 2, "four receives of 16 bytes");
        let start = ARENA_IOVA + object.memory().offset as u64;
        assert_eq!(u64::from(bits(command, 0x90, 11, 6)) * 64, start % 4096);
        assert_eq!(command.wide(0x110), start & !0xfff);
    }
}

#[test]
fn the_ends_are_where_the_device_looks() {
    let p = Scripted::<false>::new();
    let mut device = p.device();
    let (object, mut sq, mut rq) = create(&mut device, &spec()).unwrap();
    sq.post(WorkRequest::Send, &[], PostFlags::SIGNALED);
    rq.recv(&[Segment { addr: 1, len: 2, lkey: 3 }]);
    let at = object.memory().offset;
    assert_eq!(p.bytes(at, 8), [0, 0, 0, 2, 0, 0, 0, 3]);
    let [.., a, b, c] = object.qpn.0.to_be_bytes();
    assert_eq!(p.bytes(at + 2048, 8), [0, 0, 0, 10, a, b, c, 1]);
    assert_eq!(p.bytes(at + 4096, 8), [0, 0, 0, 1, 0, 0, 0, 1]);
}

#[test]
fn impossible_attributes_are_refused_before_any_command() {
    let p = Scripted::<false>::new();
    let mut device = p.device();
    // A context's field holds no more than 15.
    device.caps.general.set_log_max_qp_sz(20);
    let held = p.held();
    for bad in [
        QpSpec { requests: 11_000, ..spec() },
        QpSpec { receives: 40_000, ..spec() },
        QpSpec { request_segments: 11, ..spec() },
        QpSpec { receive_segments: 11, ..spec() },
        QpSpec { receive_segments: 255, ..spec() },
    ] {
        let fault = create(&mut device, &bad).map(drop).unwrap_err();
        assert_eq!(fault.kind, FaultKind::BadParameter);
    }
    assert_eq!((p.of(Opcode::CreateQp).len(), p.held()), (0, held));
}

#[test]
fn a_refused_create_gives_its_memory_back_and_a_lost_one_keeps_it() {
    let p = Scripted::<false>::new();
    let mut device = p.device();
    let held = p.held();
    p.refuse(Opcode::CreateQp, 8, 0);
    let fault = create(&mut device, &spec()).map(drop).unwrap_err();
    assert_eq!((fault.kind, fault.status, fault.syndrome), (FaultKind::Resources, 8, 0x00ab_cdef));
    assert_eq!((fault.number, p.held()), (0, held));
    device.queue.kill(dat_core::fault!(Gone, "test", "pulled"));
    assert_eq!(create(&mut device, &spec()).map(drop).unwrap_err().kind, FaultKind::Gone);
    assert!(p.held() > held, "the device may still come to use it");
}

#[test]
fn send_rings_have_room_for_the_widest_that_may_be_posted() {
    // Requests, segments, and the blocks of a connected queue, of one for datagrams, of one with
    // binds.
    let golden = [
        (0, 1, [1, 1, 1]),
        (1, 1, [2, 2, 4]),
        (5, 2, [8, 16, 16]),
        (85, 10, [256, 256, 256]),
        (86, 7, [512, 512, 512]),
        (127, 2, [128, 256, 512]),
        (128, 2, [256, 256, 512]),
        (128, 4, [256, 256, 512]),
        (128, 5, [256, 512, 512]),
        (10_922, 10, [32_768, 32_768, 32_768]),
    ];
    for (requests, request_segments, blocks) in golden {
        let spec = QpSpec { requests, request_segments, binds: false, ..spec() };
        let datagrams = Service::Datagram { index: 1 };
        let all = [spec, QpSpec { service: datagrams, ..spec }, QpSpec { binds: true, ..spec }];
        assert_eq!(all.map(|spec| spec.width().blocks_of(requests)), blocks, "{requests}");
    }
    let gsi = QpSpec { service: Service::Gsi, request_segments: 1, binds: false, ..spec() };
    assert_eq!(gsi.width(), Width(2));
}

#[test]
fn init_takes_rights_and_port() {
    let p = Scripted::<false>::new();
    let mut device = p.device();
    for (access, rights) in [
        (Access::empty(), 0),
        (Access::REMOTE_WRITE, 0b010),
        (Access::REMOTE_READ, 0b100),
        (Access::all(), 0b110),
    ] {
        step(&mut device, Qpn(0x4d), &QpStep::Init { access }).unwrap();
        let command = p.of(Opcode::Rst2InitQp).pop().unwrap();
        assert_eq!(command.input.len(), 272);
        assert_eq!(command.word(0x08), 0x4d);
        assert_eq!(command.word(0x10), 0, "optional parameter mask");
        assert_eq!(bits(&command, 0x90, 15, 13), rights);
        assert_eq!(bits(&command, 0x00, 12, 11), 3);
        assert_eq!(bits(&command, 0x18 + 0x24, 23, 16), 1, "port");
    }
}

#[test]
fn init_names_the_counter_set_and_atomics_where_there_are_some() {
    let p = Scripted::<false>::new();
    let mut device = p.device();
    device.counter_set = Some(9);
    device.caps.general.set_atomic(true);
    device.caps.atomic.set_atomic_operations(crate::prm::caps::ATOMIC_OPERATIONS);
    device.caps.atomic.set_atomic_size_qp(crate::prm::caps::ATOMIC_8_BYTES);
    device.caps.atomic.set_atomic_req_8b_endianness_mode(crate::prm::caps::ATOMIC_ANSWERS_AS_HOST);
    let general = [(0x00, 3 << 11), (0x0c, 9 << 24), (0x18 + 0x24, 1 << 16)];
    for (access, rights) in [
        (Access::empty(), 0),
        (Access::REMOTE_ATOMIC, 1 << 16 | 1 << 13),
        (Access::all(), 1 << 16 | 7 << 13),
    ] {
        step(&mut device, Qpn(0x4d), &QpStep::Init { access }).unwrap();
        let golden = message(Opcode::Rst2InitQp, 0x4d, &[&general[..], &[(0x90, rights)]].concat());
        assert_eq!(p.of(Opcode::Rst2InitQp).pop().unwrap().input, golden);
    }
    p.refuse(Opcode::Rst2InitQp, 3, 0);
    let fault = step(&mut device, Qpn(0x4d), &QpStep::Init { access: Access::all() }).unwrap_err();
    assert_eq!((fault.object, fault.number), ("QP", 0x4d));
}

#[test]
fn datagrams_go_up_in_three_steps() {
    let p = Scripted::<false>::new();
    let mut device = p.device();
    device.counter_set = Some(9);
    step(&mut device, Qpn(0x4d), &QpStep::Datagram { qkey: 0x0102_0304 }).unwrap();
    let sent: std::vec::Vec<_> = p.commands.borrow().iter().map(|c| c.input.clone()).collect();
    let every = [(0x00, 2 << 16 | 3 << 11), (0x08, 5 << 29 | 12 << 24), (0x18 + 0x24, 1 << 16)];
    let first = [(0x0c, 9 << 24), (0xa8, 0x0102_0304)];
    let golden = [
        message(Opcode::Rst2InitQp, 0x4d, &[&every[..], &first].concat()),
        message(Opcode::Init2RtrQp, 0x4d, &every),
        message(Opcode::Rtr2RtsQp, 0x4d, &every),
    ];
    assert_eq!(sent, golden);
    p.refuse(Opcode::Init2RtrQp, 3, 0);
    let fault = step(&mut device, Qpn(0x4d), &QpStep::Datagram { qkey: 1 }).unwrap_err();
    assert_eq!((fault.operation, fault.number), ("INIT2RTR_QP", 0x4d));
}

#[test]
fn rtr_carries_the_roce_path() {
    let p = Scripted::<false>::new();
    let mut device = p.device();
    let rtr = QpStep::Rtr {
        path: PATH,
        remote_qpn: 0x99,
        rq_psn: 0x00ab_cdef,
        mtu: Mtu::B1024,
        responder_resources: 5,
        min_rnr_timer: 12,
    };
    step(&mut device, Qpn(0x4d), &rtr).unwrap();
    let command = p.of(Opcode::Init2RtrQp).remove(0);
    assert_eq!(command.word(0x10), 0);
    assert_eq!(bits(&command, 0x08, 31, 29), 3);
    assert_eq!(bits(&command, 0x08, 28, 24), 30);
    assert_eq!(bits(&command, 0x14, 23, 0), 0x99);
    assert_eq!(bits(&command, 0x94, 23, 0), 0x00ab_cdef);
    assert_eq!(bits(&command, 0x94, 28, 24), 12);
    assert_eq!(bits(&command, 0x90, 23, 21), 3, "five reads round up to eight");
    let ads = |at: usize, high, low| bits(&command, 0x18 + at, high, low);
    assert_eq!(ads(0x04, 31, 0), 0, "neither GRH bit nor LID");
    assert_eq!((ads(0x08, 23, 16), ads(0x08, 7, 0)), (5, 64));
    assert_eq!((ads(0x0c, 27, 20), ads(0x0c, 19, 0)), (0x6a, 0x3c52a));
    assert_eq!((ads(0x20, 21, 16), ads(0x24, 30, 28), ads(0x24, 27, 24)), (0x6a >> 2, 3, 0));
    assert_eq!(ads(0x20, 15, 0), 0xc525);
    assert_eq!((ads(0x24, 15, 0), ads(0x28, 31, 0)), (0x248a, 0x0701_0203));
    assert_eq!(command.wide(CONTEXT_AT + 0x18 + 0x10), 0);
    assert_eq!(command.wide(CONTEXT_AT + 0x18 + 0x18), 0x0000_ffff_c0a8_0702);
    let golden = message(
        Opcode::Init2RtrQp,
        0x4d,
        &[
            (0x00, 3 << 11),
            (0x08, 3 << 29 | 30 << 24),
            (0x14, 0x99),
            (0x18 + 0x08, 5 << 16 | 64),
            (0x18 + 0x0c, 0x6a << 20 | 0x3c52a),
            (0x18 + 0x18, 0xffff),
            (0x18 + 0x1c, 0xc0a8_0702),
            (0x18 + 0x20, 0x1a << 16 | 0xc525),
            (0x18 + 0x24, 3 << 28 | 1 << 16 | 0x248a),
            (0x18 + 0x28, 0x0701_0203),
            (0x90, 3 << 21),
            (0x94, 12 << 24 | 0x00ab_cdef),
        ],
    );
    assert_eq!(command.input, golden);
    // No longer message than the device has.
    for (log, longest) in [(20, 20), (31, 30)] {
        device.caps.general.set_log_max_msg(log);
        step(&mut device, Qpn(0x4d), &rtr).unwrap();
        assert_eq!(bits(&p.of(Opcode::Init2RtrQp).pop().unwrap(), 0x08, 28, 24), longest);
    }
}

#[test]
fn rts_carries_timers_and_psn() {
    let p = Scripted::<false>::new();
    let mut device = p.device();
    let rts = QpStep::Rts {
        sq_psn: 0x00fe_dcba,
        initiator_depth: 16,
        ack_timeout: 14,
        retry_count: 7,
        rnr_retry: 6,
    };
    step(&mut device, Qpn(0x4d), &rts).unwrap();
    let command = p.of(Opcode::Rtr2RtsQp).remove(0);
    assert_eq!(bits(&command, 0x78, 23, 0), 0x00fe_dcba);
    assert_eq!(bits(&command, 0x70, 31, 28), 8);
    assert_eq!(bits(&command, 0x70, 23, 21), 4);
    assert_eq!((bits(&command, 0x70, 18, 16), bits(&command, 0x70, 15, 13)), (7, 6));
    assert_eq!(bits(&command, 0x18 + 0x08, 31, 27), 14);
    let golden = message(
        Opcode::Rtr2RtsQp,
        0x4d,
        &[
            (0x00, 3 << 11),
            (0x18 + 0x08, 14 << 27),
            (0x70, 8 << 28 | 4 << 21 | 7 << 16 | 6 << 13),
            (0x78, 0x00fe_dcba),
        ],
    );
    assert_eq!(command.input, golden);
}

#[test]
fn error_reset_and_destroy_are_short() {
    let p = Scripted::<false>::new();
    let mut device = p.device();
    let held = p.held();
    let (object, ..) = create(&mut device, &spec()).unwrap();
    step(&mut device, object.qpn, &QpStep::Error).unwrap();
    destroy(&mut device, &object).unwrap();
    let short: std::vec::Vec<_> =
        p.commands.borrow()[1..].iter().map(|c| (c.op, c.input.len(), c.word(8))).collect();
    let number = object.qpn.0;
    let golden = [
        (Opcode::ToErrQp, 16, number),
        (Opcode::ToRstQp, 16, number),
        (Opcode::DestroyQp, 16, number),
    ];
    assert_eq!(short, golden);
    assert_eq!(p.held(), held);
}

#[test]
fn a_refused_destroy_keeps_the_memory() {
    let p = Scripted::<false>::new();
    let mut device = p.device();
    let (object, ..) = create(&mut device, &spec()).unwrap();
    let held = p.held();
    p.refuse(Opcode::DestroyQp, 9, 0);
    let fault = destroy(&mut device, &object).unwrap_err();
    assert_eq!((fault.object, fault.number, fault.status), ("QP", object.qpn.0, 9));
    assert_eq!((p.held(), device.disowned.len()), (held, 0));
    // One that nobody asks for again goes with the teardown.
    assert!(end(&mut device, &object).is_err());
    assert_eq!((p.held(), device.disowned.last()), (held, Some(&object.memory())));
    // A queue pair that is beyond a reset is destroyed without.
    p.refusals.borrow_mut().clear();
    p.refuse(Opcode::ToRstQp, 9, 0);
    end(&mut device, &object).unwrap();
    assert_eq!(p.held(), held - object.memory().len);
}

#[test]
fn gsi_goes_up_in_three_steps() {
    let p = Scripted::<false>::new();
    let mut device = p.device();
    start_gsi(&mut device, Qpn(0x50)).unwrap();
    let commands = p.commands.borrow();
    let ops: std::vec::Vec<_> = commands.iter().map(|c| c.op).collect();
    assert_eq!(ops, [Opcode::Rst2InitQp, Opcode::Init2RtrQp, Opcode::Rtr2RtsQp]);
    let init = &commands[0];
    assert_eq!(bits(init, 0x00, 23, 16), 8);
    let keys = commands.iter().map(|c| c.word(CONTEXT_AT + 0xa8));
    assert!(keys.eq([0x8001_0000, 0, 0]), "the key is given once");
    assert_eq!(bits(init, 0x18 + 0x24, 23, 16), 1);
    let every = [(0x00, 8 << 16 | 3 << 11), (0x08, 1 << 29 | 8 << 24), (0x18 + 0x24, 1 << 16)];
    assert_eq!(commands[2].input, message(Opcode::Rtr2RtsQp, 0x50, &every));
}

#[test]
fn udp_ports_are_those_seen_on_the_wire() {
    assert_eq!(udp_sport(0x3c52a, 1, 2), 0xc525);
    assert_eq!(udp_sport(0x663a9, 1, 2), 0xe3b0);
    assert_eq!(udp_sport(0, 0x11, 0x12_3456), udp_sport(0, 0x12_3456, 0x11));
    // The product has more than 40 bits: both folds count.
    assert_eq!(udp_sport(0, 0xff_ffff, 0xff_fffd), 0xff03);
    for label in [0, 1, 0xf_ffff, 0x3fff] {
        assert!(udp_sport(label, 0xff_ffff, 0xff_ffff) >= 0xc000);
    }
}

#[test]
fn logarithms_round_up() {
    for count in 0..=u8::MAX {
        let log = log_ceil(count);
        assert!(1_u32 << log >= u32::from(count).min(128));
        assert!(log == 0 || 1_u32 << (log - 1) < u32::from(count));
    }
}
