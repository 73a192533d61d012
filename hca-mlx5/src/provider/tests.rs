//! The provider against a device that answers every command: tables, handles, events, teardown.
//!
//! Length: each object of the provider on one scripted device, and what is refused of it.

mod keys;
mod landing;

use core::net::{Ipv4Addr, Ipv6Addr};
use dat_core::provider::{Class, FaultKind};
use std::format;
use std::vec::Vec;

use dat_core::provider::{
    Bind, CompletionQueue as _, Mtu, PostFlags, RecvQueue as _, Segment, SendQueue as _,
    WorkRequest,
};

use super::*;
use crate::data::scripted::{ARENA_ADDR, ARENA_LEN, Op, Scripted, UAR};
use crate::platform::Dma as _;
use crate::prm::cmd::Opcode;

type Hca<'p, const WC: bool> = Mlx5<'p, Scripted<WC>, 4, 4, 8>;

fn open<const WC: bool>(p: &Scripted<WC>) -> Hca<'_, WC> {
    Mlx5::over(p.device(), &Config::default()).unwrap()
}

fn init(pd: Pd, cq: seam::Cq) -> QpInit {
    QpInit {
        service: seam::Service::Connected,
        pd,
        send_cq: cq,
        recv_cq: cq,
        requests: 8,
        receives: 8,
        request_segments: 2,
        receive_segments: 1,
        binds: true,
        index: 7,
        shared: None,
    }
}

const NET: Net = Net::new(IpAddr::V4(Ipv4Addr::new(192, 168, 7, 1)), 24);
const REGION: Region = Region { addr: ARENA_ADDR, len: 4096 };
/// A page of the arena.
const PAGES: Backing<'_> =
    Backing::Pages { pages: &[crate::data::scripted::ARENA_IOVA], log_page: 12, len: 4096 };
const NOW: Instant = Instant::from_nanos(1_000_000_000);

#[test]
fn limits_are_the_devices_and_the_tables() {
    let p = Scripted::<false>::new();
    let hca = open(&p);
    let limits = hca.limits();
    assert_eq!((limits.max_qp, limits.max_cq, limits.max_mkey), (4, 4, 8));
    assert_eq!((limits.max_cqe, limits.max_qp_requests, limits.max_reads), (1 << 21, 10_922, 16));
    assert_eq!((limits.max_message, limits.max_segments), (1 << 30, 10));
    assert_eq!((limits.mtu, limits.firmware), (Mtu::B1024, (14, 12, 1220)));
    assert!(limits.windows && !limits.atomics);
    assert_eq!((limits.max_region, limits.max_pd), (mkey::MAX_REGION, 4));
    assert_eq!((limits.node_guid, limits.hardware), (0x1234, (0, 0)));
    assert_eq!((limits.max_shared, limits.max_shared_receives), (1, 0));
    // What the device has less of than the tables.
    let p = Scripted::<false>::new();
    let mut device = p.device();
    let general = &mut device.caps.general;
    general.set_log_max_qp(1);
    general.set_log_max_qp_sz(10);
    general.set_log_max_cq(1);
    general.set_log_max_cq_sz(10);
    general.set_log_max_mkey(2);
    general.set_log_max_pd(0);
    general.set_log_max_msg(20);
    general.set_log_max_ra_req_qp(3);
    general.set_log_max_srq(2);
    general.set_log_max_srq_sz(4);
    general.set_local_ca_ack_delay(15);
    let hca: Hca<'_, false> = Mlx5::over(device, &Config::default()).unwrap();
    let limits = hca.limits();
    assert_eq!((limits.max_qp, limits.max_cq, limits.max_mkey, limits.max_pd), (2, 2, 4, 1));
    assert_eq!((limits.max_cqe, limits.max_qp_requests, limits.max_reads), (512, 341, 8));
    assert_eq!((limits.max_message, limits.ack_delay), (1 << 20, 15));
    assert_eq!((limits.max_shared, limits.max_shared_receives), (4, 15));
    // Each queue that can be armed has room for an event; three are the driver's own.
    let p = Scripted::<false>::new();
    let config = Config { log_completion_events: 2, ..Config::default() };
    let hca: Hca<'_, false> = Mlx5::over(p.device(), &config).unwrap();
    assert_eq!(hca.limits().max_cq, 1);
}

#[test]
fn completions_are_compressed_if_asked_for_and_the_device_can() {
    for (asked, can) in [(false, false), (false, true), (true, false), (true, true)] {
        let p = Scripted::<false>::new();
        let mut device = p.device();
        device.config.compress_completions = asked;
        device.caps.general.set_cqe_compression(can);
        let config = Config::default();
        let mut hca: Hca<'_, false> = Mlx5::over(device, &config).unwrap();
        let _queue = hca.cq_create(16).unwrap();
        assert_eq!(hca.compresses_completions(), asked && can);
        let bits: Vec<_> = p.of(Opcode::CreateCq).iter().map(|c| c.bits(0x10, 14, 14)).collect();
        assert_eq!(bits, [0, 0, u32::from(asked && can)], "QP1's are not");
    }
}

#[test]
fn every_object_from_creation_to_destruction() {
    let p = Scripted::<false>::new();
    let mut hca = open(&p);
    let held = p.held();
    let pd = hca.pd_create().unwrap();
    let (cq, end) = hca.cq_create(16).unwrap();
    let mr = hca.mr_create(pd, REGION, Access::all()).unwrap();
    let mw = hca.mw_create(pd).unwrap();
    let NewQp { qp, mut sq, mut rq } = hca.qp_create(&init(pd, cq)).unwrap();
    assert_eq!(mr.lkey, mr.rkey);
    hca.qp_modify(qp, &QpStep::Init { access: Access::empty() }).unwrap();
    assert_eq!(rq.recv(&[Segment { addr: ARENA_ADDR, len: 64, lkey: mr.lkey }]), 0);
    assert_eq!(sq.post(WorkRequest::Send, &[], PostFlags::SIGNALED), 0);
    hca.qp_modify(qp, &QpStep::Reset).unwrap();
    hca.qp_restart(qp, &mut sq, &mut rq);
    assert_eq!(sq.post(WorkRequest::Send, &[], PostFlags::SIGNALED), 0);
    hca.qp_destroy(qp, sq, rq).unwrap();
    hca.mw_destroy(mw).unwrap();
    hca.mr_destroy(mr).unwrap();
    hca.cq_destroy(cq, end).unwrap();
    hca.pd_destroy(pd).unwrap();
    assert_eq!(p.held(), held);
}

#[test]
fn completions_come_back_by_index() {
    let p = Scripted::<false>::new();
    let mut hca = open(&p);
    let pd = hca.pd_create().unwrap();
    let (cq, mut end) = hca.cq_create(16).unwrap();
    let NewQp { mut sq, .. } = hca.qp_create(&init(pd, cq)).unwrap();
    let bind =
        Bind { old_rkey: 1, new_rkey: 2, lkey: 3, addr: 4, start: 4, len: 5, ..Bind::default() };
    sq.post(WorkRequest::Bind(&bind), &[], PostFlags::empty());
    let token = sq.post(WorkRequest::Send, &[], PostFlags::SIGNALED);
    let mut cqe = [0; 64];
    let index = p.of(Opcode::CreateQp)[1].bits(0x18 + 0x10, 23, 0);
    cqe[0x20..0x24].copy_from_slice(&index.to_be_bytes());
    cqe[0x3c..0x3e].copy_from_slice(&token.to_be_bytes());
    p.put(p.cq_ring(2), &cqe);
    let completion = end.poll().unwrap();
    assert_eq!((completion.index, completion.token), (7, 3));
}

#[test]
fn unknown_objects_are_refused_without_a_command() {
    let p = Scripted::<false>::new();
    let mut hca = open(&p);
    let pd = hca.pd_create().unwrap();
    let (cq, _end) = hca.cq_create(1).unwrap();
    let (_other, mut other_end) = hca.cq_create(1).unwrap();
    let mr = hca.mr_create(pd, REGION, Access::all()).unwrap();
    let mw = hca.mw_create(pd).unwrap();
    let before = p.commands.borrow().len();
    let faults = [
        hca.pd_destroy(Pd(0x999)).unwrap_err(),
        hca.mr_create(Pd(0x999), REGION, Access::all()).unwrap_err(),
        hca.mw_create(Pd(0x999)).unwrap_err(),
        hca.mw_create_for_qp(Pd(0x999)).unwrap_err(),
        hca.mw_renew(mw).unwrap_err(),
        hca.mr_reserved(Pd(0x999)).unwrap_err(),
        hca.mr_allocate(Pd(0x999), 1).unwrap_err(),
        hca.mr_map(Pd(0x999), PAGES, 0, Access::all()).unwrap_err(),
        hca.mr_pages(mr, &[], 12).unwrap_err(),
        hca.cq_resize(cq, &mut other_end, 64).unwrap_err(),
        hca.cq_resize(seam::Cq(0x999), &mut other_end, 64).unwrap_err(),
        hca.shared_create(&shared_init(Pd(0x999))).unwrap_err(),
        hca.shared_arm(SharedRq(0x999), 1).unwrap_err(),
        hca.qp_create(&QpInit { shared: Some(SharedRq(0x999)), ..init(pd, cq) }).unwrap_err(),
        hca.qp_create(&QpInit { recv_cq: seam::Cq(0x999), ..init(pd, cq) }).unwrap_err(),
        hca.mr_destroy(Mr { lkey: mr.lkey ^ 1, rkey: mr.rkey }).unwrap_err(),
        hca.mr_destroy(Mr { lkey: mw.rkey, rkey: mw.rkey }).unwrap_err(),
        hca.mw_destroy(Mw { rkey: mr.rkey }).unwrap_err(),
        hca.cq_destroy(cq, other_end).unwrap_err(),
        hca.qp_create(&init(Pd(0x999), cq)).unwrap_err(),
        hca.qp_create(&init(pd, seam::Cq(0x999))).unwrap_err(),
        hca.qp_modify(Qp { number: 0x999 }, &QpStep::Error).unwrap_err(),
    ];
    for fault in faults {
        assert_eq!(fault.kind, FaultKind::BadParameter, "{fault}");
        assert!(!fault.object.is_empty());
    }
    assert_eq!(p.commands.borrow().len(), before);
}

#[test]
fn an_object_in_use_is_not_destroyed() {
    let p = Scripted::<false>::new();
    let mut hca = open(&p);
    let pd = hca.pd_create().unwrap();
    let (cq, end) = hca.cq_create(1).unwrap();
    let NewQp { qp, sq, rq } = hca.qp_create(&init(pd, cq)).unwrap();
    assert_eq!(hca.cq_destroy(cq, end).unwrap_err().kind, FaultKind::BadState);
    assert_eq!(hca.pd_destroy(pd).unwrap_err().kind, FaultKind::BadState);
    hca.qp_destroy(qp, sq, rq).unwrap();
    hca.mw_create(pd).unwrap();
    assert_eq!(hca.pd_destroy(pd).unwrap_err().kind, FaultKind::BadState);
}

/// With shared receive queues.
fn sharing(p: &Scripted<false>) -> Hca<'_, false> {
    let mut device = p.device();
    device.caps.general.set_log_max_srq(4);
    device.caps.general.set_log_max_srq_sz(15);
    Mlx5::over(device, &Config::default()).unwrap()
}

fn shared_init(pd: Pd) -> SharedRqInit {
    SharedRqInit { pd, receives: 8, segments: 1 }
}

#[test]
fn a_shared_queue_in_use_is_not_destroyed() {
    let p = Scripted::<false>::new();
    let mut hca = sharing(&p);
    let pd = hca.pd_create().unwrap();
    let (cq, _end) = hca.cq_create(16).unwrap();
    let (queue, end) = hca.shared_create(&shared_init(pd)).unwrap();
    let shared = Some(queue);
    let NewQp { qp, sq, rq } = hca.qp_create(&QpInit { shared, ..init(pd, cq) }).unwrap();
    // In the place of the end, which a refused call takes with it.
    let (other, spare) = hca.shared_create(&shared_init(pd)).unwrap();
    let fault = hca.shared_destroy(queue, spare).unwrap_err();
    assert_eq!(fault.kind, FaultKind::BadState);
    hca.qp_destroy(qp, sq, rq).unwrap();
    hca.shared_destroy(queue, end).unwrap();
    assert_ne!(other, queue);
}

/// Every command and all memory that the device sees, with each object in use: the host's addresses
/// are only where a region is named by them.
#[test]
fn the_device_sees_no_address_of_the_host() {
    let p = Scripted::<false>::new();
    let mut hca = open(&p);
    hca.set_net(&NET, NOW).unwrap();
    let pd = hca.pd_create().unwrap();
    let (cq, _end) = hca.cq_create(16).unwrap();
    // Named by addresses that do not fit its pages: a key over keys.
    let region = Region { addr: ARENA_ADDR + 0x1234, len: 0x1_0000 };
    let mr = hca.mr_map(pd, Backing::Host(region), 0, Access::all()).unwrap();
    let mw = hca.mw_create(pd).unwrap();
    let fast = hca.mr_allocate(pd, 4).unwrap();
    let (page, _) = p.iova(0).unwrap();
    let pages = hca.mr_pages(fast, &[page], 12).unwrap();
    let NewQp { qp, mut sq, mut rq } = hca.qp_create(&init(pd, cq)).unwrap();
    hca.qp_modify(qp, &QpStep::Init { access: Access::empty() }).unwrap();
    let segment = Segment { addr: 0x40, len: 64, lkey: mr.lkey };
    assert_eq!(rq.recv(&[segment]), 0);
    let bind = Bind {
        old_rkey: mw.rkey,
        new_rkey: mw.rkey + 1,
        lkey: mr.lkey,
        addr: 0x40,
        start: 0,
        len: 64,
        ..Bind::default()
    };
    sq.post(WorkRequest::Bind(&bind), &[], PostFlags::SIGNALED);
    let made = seam::Registration {
        old_key: fast.rkey,
        new_key: fast.rkey + 1,
        start: 0,
        len: 64,
        access: Access::REMOTE_READ,
        pages,
    };
    sq.post(WorkRequest::Register(&made), &[], PostFlags::SIGNALED);
    sq.post(WorkRequest::Send, &[segment], PostFlags::SIGNALED);

    let stack = core::ptr::from_ref(&hca).expose_provenance() as u64 >> 24;
    let is_host = |word: u64| {
        (ARENA_ADDR..ARENA_ADDR + ARENA_LEN as u64).contains(&word) || word >> 24 == stack
    };
    let clean = |what: &str, bytes: &[u8]| {
        for (at, word) in bytes.windows(8).enumerate() {
            let word: [u8; 8] = word.try_into().unwrap();
            for word in [u64::from_be_bytes(word), u64::from_le_bytes(word)] {
                assert!(!is_host(word), "{what}, byte {at:#x}: {word:#x}");
            }
        }
    };
    for command in p.commands.borrow().iter() {
        clean(&format!("{:?}", command.op), &command.input);
    }
    clean("the arena", &p.bytes(0, ARENA_LEN));
    // The scan finds what is there: the same with a region under the host's own addresses.
    hca.mr_create(pd, REGION, Access::all()).unwrap();
    let last = p.of(Opcode::CreateMkey).pop().unwrap();
    assert!(
        last.input.windows(8).any(|word| is_host(u64::from_be_bytes(word.try_into().unwrap())))
    );
}

/// A key that is not made leaves nothing of the list that it would have had.
#[test]
fn a_region_that_is_refused_leaks_nothing() {
    let p = Scripted::<false>::new();
    let mut hca = open(&p);
    let pd = hca.pd_create().unwrap();
    let held = p.held();
    p.refuse(Opcode::CreateMkey, 6, 0);
    assert!(hca.mr_allocate(pd, 4).is_err());
    assert_eq!(p.held(), held);
    p.refusals.borrow_mut().clear();
    let mr = hca.mr_allocate(pd, 4).unwrap();
    hca.mr_destroy(mr).unwrap();
    assert_eq!(p.held(), held);
}

/// The device ends the old ring with an entry of its own, for which there must be room.
#[test]
fn a_full_completion_queue_is_not_resized() {
    let p = Scripted::<false>::new();
    let mut device = p.device();
    device.caps.general.set_cq_resize(true);
    let mut hca: Hca<'_, false> = Mlx5::over(device, &Config::default()).unwrap();
    let (cq, mut end) = hca.cq_create(2).unwrap();
    let (ring, slots) = (p.cq_ring(2), end.slots() as usize);
    // Entries of nothing in particular, the device's owner bit of the first lap.
    for slot in 0..slots {
        p.put(ring + 64 * slot, &[0; 64]);
    }
    assert_eq!(end.waiting() as usize, slots);
    let fault = hca.cq_resize(cq, &mut end, 64).unwrap_err();
    assert_eq!(fault.kind, FaultKind::BadState);
    assert!(p.of(Opcode::ModifyCq).is_empty());
}

/// A queue of shared receives reports that it runs low, and that it failed.
#[test]
fn events_of_shared_queues_become_notices() {
    let p = Scripted::<false>::new();
    let mut hca = sharing(&p);
    let pd = hca.pd_create().unwrap();
    assert_eq!(hca.limits().max_shared_receives, 32_767);
    let (queue, _end) = hca.shared_create(&shared_init(pd)).unwrap();
    for (srqn, limit) in [(queue.0, true), (queue.0, false), (0x999, true)] {
        let _ = hca.device.events.push_back(Event::Shared { srqn, limit });
    }
    hca.collect(NOW);
    let notices: Vec<_> = core::iter::from_fn(|| hca.notice()).collect();
    assert_eq!(notices.len(), 2);
    assert!(matches!(notices[0], Notice::SharedLimit(q) if q == queue));
    assert!(matches!(notices[1], Notice::SharedError(q) if q == queue));
}

#[test]
fn full_tables_say_so_and_leak_nothing() {
    let p = Scripted::<false>::new();
    let mut hca = open(&p);
    let pd = hca.pd_create().unwrap();
    let (cq, _end) = hca.cq_create(1).unwrap();
    let mut ends = Vec::new();
    for _ in 0..4 {
        ends.push(hca.qp_create(&init(pd, cq)).unwrap());
    }
    for _ in 0..8 {
        hca.mw_create(pd).unwrap();
    }
    let before = p.commands.borrow().len();
    assert_eq!(hca.qp_create(&init(pd, cq)).unwrap_err().kind, FaultKind::Resources);
    assert_eq!(hca.mw_create(pd).unwrap_err().kind, FaultKind::Resources);
    for fault in [
        hca.mr_create(pd, REGION, Access::all()).unwrap_err(),
        hca.mr_map(pd, PAGES, 0, Access::all()).unwrap_err(),
        hca.mr_reserved(pd).unwrap_err(),
        hca.mr_allocate(pd, 1).unwrap_err(),
        hca.mw_create_for_qp(pd).unwrap_err(),
    ] {
        assert_eq!((fault.kind, fault.object), (FaultKind::Resources, "memory keys"), "{fault}");
    }
    assert_eq!(p.commands.borrow().len(), before);
    for _ in 0..3 {
        hca.cq_create(1).unwrap();
    }
    assert_eq!(hca.cq_create(1).map(drop).unwrap_err().kind, FaultKind::Resources);
}

#[test]
fn what_is_destroyed_is_gone_and_the_rest_is_not() {
    let p = Scripted::<false>::new();
    let mut hca = sharing(&p);
    let pds = [(); 4].map(|()| hca.pd_create().unwrap());
    assert_eq!(hca.pd_create().unwrap_err().kind, FaultKind::Resources);
    hca.pd_destroy(pds[1]).unwrap();
    assert_eq!(hca.pd_destroy(pds[1]).unwrap_err().kind, FaultKind::BadParameter);
    let (queue, end) = hca.shared_create(&shared_init(pds[0])).unwrap();
    assert_eq!(hca.pd_destroy(pds[0]).unwrap_err().kind, FaultKind::BadState);
    hca.shared_arm(queue, 3).unwrap();
    assert_eq!(p.of(Opcode::ModifyRmp)[0].word(8) & 0xff_ffff, queue.0);
    hca.shared_destroy(queue, end).unwrap();
    assert_eq!(p.of(Opcode::DestroyRmp)[0].word(8), queue.0);
    assert!(hca.shared_arm(queue, 3).is_err());
    let (cq, end) = hca.cq_create(4).unwrap();
    let NewQp { qp, sq, rq } = hca.qp_create(&init(pds[2], cq)).unwrap();
    for pd in [pds[0], pds[3]] {
        hca.pd_destroy(pd).unwrap();
    }
    hca.qp_destroy(qp, sq, rq).unwrap();
    assert!(hca.qp_modify(qp, &QpStep::Error).is_err());
    hca.cq_destroy(cq, end).unwrap();
    assert!(hca.qp_create(&init(pds[2], cq)).is_err());
    hca.pd_destroy(pds[2]).unwrap();
    assert!(hca.pds.numbers().next().is_none());
}

#[test]
fn a_queue_pair_is_reset_once_before_it_is_destroyed() {
    let p = Scripted::<false>::new();
    let mut hca = open(&p);
    let pd = hca.pd_create().unwrap();
    let (cq, _end) = hca.cq_create(4).unwrap();
    let first = QpStep::Init { access: Access::all() };
    let ways: [&[QpStep]; 4] =
        [&[], &[QpStep::Reset], &[QpStep::Error, QpStep::Reset], &[QpStep::Reset, first]];
    for (steps, resets) in ways.into_iter().zip([1, 1, 1, 2]) {
        let NewQp { qp, sq, rq } = hca.qp_create(&init(pd, cq)).unwrap();
        let before = p.of(Opcode::ToRstQp).len();
        for step in steps {
            hca.qp_modify(qp, step).unwrap();
        }
        hca.qp_destroy(qp, sq, rq).unwrap();
        assert_eq!(p.of(Opcode::ToRstQp).len() - before, resets);
    }
}

#[test]
fn close_ends_what_is_left_of_every_kind() {
    let p = Scripted::<false>::new();
    let mut hca = sharing(&p);
    let pd = hca.pd_create().unwrap();
    let _queue = hca.shared_create(&shared_init(pd)).unwrap();
    hca.mr_allocate(pd, 4).unwrap();
    let region = Region { addr: ARENA_ADDR + 0x1234, len: 0x1_0000 };
    hca.mr_map(pd, Backing::Host(region), 0, Access::all()).unwrap();
    hca.close().unwrap();
    let count = |op| p.of(op).len();
    assert_eq!(count(Opcode::CreateRmp), count(Opcode::DestroyRmp));
    assert_eq!(count(Opcode::CreateMkey), count(Opcode::DestroyMkey));
    assert_eq!((count(Opcode::AllocQCounter), count(Opcode::DeallocQCounter)), (1, 1));
    assert_eq!(p.held(), 0);
    hca.close().unwrap();
    assert_eq!(count(Opcode::CreateMkey), count(Opcode::DestroyMkey));
}

#[test]
fn a_wait_for_the_device_ends_after_a_second() {
    use crate::platform::Clock as _;
    let p = Scripted::<false>::new();
    let mut hca = open(&p);
    let mut looks = 0;
    let before = p.now();
    assert!(hca.await_device(|| {
        looks += 1;
        looks == 5
    }));
    assert_eq!((looks, p.now() - before), (5, 4_000_000));
    let before = p.now();
    assert!(!hca.await_device(|| false));
    assert_eq!(p.now() - before, 1_000_000_000);
}

#[test]
fn each_direction_of_a_sync_has_its_fence() {
    let p = Scripted::<false>::new();
    let hca = open(&p);
    p.take();
    hca.sync(true);
    assert_eq!(p.take(), [Op::BeforeDoorbell]);
    hca.sync(false);
    assert_eq!(p.take(), [Op::AfterOwnership]);
}

#[test]
fn events_of_qp1_stay_inside() {
    let p = Scripted::<false>::new();
    let mut hca = open(&p);
    let gsi = hca.gsi.as_ref().unwrap();
    let cqn = (0..0x1000).rfind(|number| gsi.cq(*number).is_some()).unwrap();
    assert_eq!(hca.malformed_datagrams(), 0);
    // A datagram of no bytes.
    let mut cqe = [0; 64];
    cqe[0x3f] = 2 << 4;
    p.put(p.cq_ring(1), &cqe);
    p.take();
    assert!(hca.translate(Event::Completion { cqn }, NOW).is_none());
    assert!(hca.mad_recv().is_none());
    assert_eq!(sent_and_armed(&p, cqn), (0, 1), "another event is asked for");
    assert_eq!(hca.malformed_datagrams(), 1);
    assert!(hca.translate(Event::CqError { cqn, syndrome: 1 }, NOW).is_none());
    hca.service(NOW);
    assert_eq!(p.of(Opcode::ToRstQp).len(), 1);
}

#[test]
fn refusals_keep_the_objects() {
    let p = Scripted::<false>::new();
    let mut hca = open(&p);
    let pd = hca.pd_create().unwrap();
    let mr = hca.mr_create(pd, REGION, Access::all()).unwrap();
    p.refuse(Opcode::DestroyMkey, 6, 0);
    assert_eq!(hca.mr_destroy(mr).unwrap_err().status, 6);
    p.refusals.borrow_mut().clear();
    hca.mr_destroy(mr).unwrap();
    assert!(hca.mr_destroy(mr).is_err());
}

#[test]
fn close_destroys_what_is_left_in_reverse() {
    let p = Scripted::<false>::new();
    let mut hca = open(&p);
    let pd = hca.pd_create().unwrap();
    let (cq, _end) = hca.cq_create(1).unwrap();
    let _new = hca.qp_create(&init(pd, cq)).unwrap();
    hca.mr_create(pd, REGION, Access::all()).unwrap();
    hca.set_net(&NET, NOW).unwrap();
    hca.close().unwrap();
    let count = |op| p.of(op).len();
    assert_eq!(count(Opcode::CreateQp), count(Opcode::DestroyQp));
    assert_eq!(count(Opcode::CreateCq), count(Opcode::DestroyCq));
    assert_eq!(count(Opcode::CreateMkey), count(Opcode::DestroyMkey));
    assert_eq!(count(Opcode::AllocPd), count(Opcode::DeallocPd));
    assert_eq!(count(Opcode::CreateSq), count(Opcode::DestroySq));
    assert_eq!(count(Opcode::CreateRq), count(Opcode::DestroyRq));
    assert_eq!(p.held(), 0, "all of the arena is free again");
    let ops: Vec<Opcode> = p.commands.borrow().iter().map(|c| c.op).collect();
    let at = |op| ops.iter().rposition(|o| *o == op).unwrap();
    assert!(at(Opcode::DestroyQp) < at(Opcode::TeardownHca));
    assert!(hca.mad_send(&path(), &[0; 256]).is_err());
}

#[test]
fn a_lost_device_is_left_alone() {
    let p = Scripted::<false>::new();
    let mut hca = open(&p);
    hca.set_net(&NET, NOW).unwrap();
    let network = hca.network.as_mut().unwrap();
    network.fail(dat_core::fault!(BadState, "Ethernet port", "it failed"));
    let (held, commands) = (p.held(), p.commands.borrow().len());
    hca.device.queue.kill(dat_core::fault!(Gone, "test", "pulled"));
    assert_eq!(hca.next_deadline(), Some(Instant::ZERO), "it has to be reported");
    for second in 1..5 {
        hca.service(NOW + Duration::from_secs(10 * second));
        assert_eq!((p.held(), p.commands.borrow().len()), (held, commands));
    }
    assert!(matches!(hca.notice(), Some(Notice::Catastrophic(_))));
    assert!(hca.notice().is_none());
    assert_eq!(hca.next_deadline(), Some(Instant::NEVER));
}

#[test]
fn fixed_neighbours_are_known_from_the_start() {
    let mac = [2, 0, 0, 0, 0, 9];
    let peer = path().remote;
    let fixed = [(peer, mac)];
    let p = Scripted::<false>::new();
    let mut device = p.device();
    device.config.neighbours = &fixed;
    let mut hca: Hca<'_, false> = Mlx5::over(device, &Config::default()).unwrap();
    hca.set_net(&NET, NOW).unwrap();
    let Poll::Ready(Ok(path)) = hca.resolve(peer, NOW) else { panic!("pending") };
    assert_eq!((path.remote, path.next_hop), (peer, NextHop::Mac(mac)));
    let p = Scripted::<false>::new();
    let mut device = p.device();
    let wrong = [(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), mac)];
    device.config.neighbours = &wrong;
    let mut hca: Hca<'_, false> = Mlx5::over(device, &Config::default()).unwrap();
    assert_eq!(hca.set_net(&NET, NOW).unwrap_err().kind, FaultKind::BadParameter);
}

/// Offset in the arena of the first receive buffer of the raw Ethernet port.
fn frame_buffer(p: &Scripted<false>) -> usize {
    let at = |address| usize::try_from(address - crate::data::scripted::ARENA_IOVA).unwrap();
    let ring = at(p.of(Opcode::CreateRq).pop().unwrap().wide(0x110));
    at(u64::from_be_bytes(p.bytes(ring + 8, 8).try_into().unwrap()))
}

/// Frames sent since the last look, and requests for an event of the port's queue.
fn sent_and_armed(p: &Scripted<false>, cqn: u32) -> (usize, usize) {
    let log = p.take();
    let sent = log.iter().filter(|op| matches!(op, Op::Write64(at, _) if *at == UAR + 0x800));
    let armed = log.iter().filter(|op| {
        matches!(op, Op::Write64(at, word) if *at == UAR + 0x20 && word[4..] == cqn.to_be_bytes())
    });
    (sent.count(), armed.count())
}

/// An address resolves with the answer that arrives as a frame, which an event announces.
#[test]
fn an_answer_from_the_wire_resolves_an_address() {
    let p = Scripted::<false>::new();
    let mut hca = open(&p);
    p.take();
    hca.set_net(&NET, NOW).unwrap();
    let network = hca.network.as_ref().unwrap();
    let cqn = (0..0x1000).find(|number| network.cq(*number).is_some()).unwrap();
    assert_eq!(sent_and_armed(&p, cqn), (0, 1));
    hca.service(NOW);
    assert_eq!(sent_and_armed(&p, cqn), (1, 0), "the first announcement; no event came");
    assert!(hca.resolve(path().remote, NOW).is_pending());
    assert_eq!(sent_and_armed(&p, cqn), (1, 0), "the question");
    assert!(matches!(hca.resolve(NET.addr, NOW), Poll::Ready(Ok(_))));
    assert_eq!(sent_and_armed(&p, cqn), (0, 0));

    let mut reply = crate::data::scripted::MAC.to_vec();
    reply.extend([2, 0, 0, 0, 0, 2, 8, 6, 0, 1, 8, 0, 6, 4, 0, 2]);
    reply.extend([2, 0, 0, 0, 0, 2, 192, 168, 7, 2]);
    reply.extend(crate::data::scripted::MAC);
    reply.extend([192, 168, 7, 1]);
    p.put(frame_buffer(&p), &reply);
    let mut cqe = [0; 64];
    cqe[0x2f] = u8::try_from(reply.len()).unwrap();
    cqe[0x3f] = 2 << 4;
    p.put(p.cq_ring(2), &cqe);
    let _ = hca.device.events.push_back(Event::Completion { cqn });
    p.take();
    hca.service(NOW);
    assert_eq!(sent_and_armed(&p, cqn), (0, 1), "another event is asked for");
    assert_eq!(hca.neighbours().unwrap().accepted, 1);
    let Poll::Ready(Ok(way)) = hca.resolve(path().remote, NOW) else { panic!("pending") };
    assert_eq!(way.next_hop, NextHop::Mac([2, 0, 0, 0, 0, 2]));
    hca.service(NOW);
    assert_eq!(sent_and_armed(&p, cqn), (0, 0));
}

#[test]
fn a_link_that_comes_back_is_announced_on() {
    let p = Scripted::<false>::new();
    let mut hca = open(&p);
    hca.set_net(&NET, NOW).unwrap();
    for second in 0..5 {
        hca.service(NOW + Duration::from_secs(second));
    }
    let late = NOW + Duration::from_secs(60);
    p.take();
    hca.service(late);
    assert_eq!(sent_and_armed(&p, 0).0, 0, "all is announced");
    let _ = hca.device.events.push_back(Event::Port { port: 1, up: true });
    hca.service(late);
    assert_eq!(sent_and_armed(&p, 0).0, 1);
    assert!(hca.next_deadline().is_some_and(|due| due <= late + Duration::from_secs(2)));
}

/// Frames without end take a bounded share of each service, and the next is due at once.
#[test]
fn frames_without_end_hold_up_no_service() {
    let p = Scripted::<false>::new();
    let mut hca = open(&p);
    hca.set_net(&NET, NOW).unwrap();
    hca.service(NOW);
    assert_ne!(hca.next_deadline(), Some(Instant::ZERO));
    let ring = p.cq_ring(2);
    let (mut taken, most) = (0_u32, 2 * u32::try_from(crate::data::work::FRAMES).unwrap() + 5);
    p.look(move |offset, value| {
        let at = offset.wrapping_sub(ring);
        if at >= 64 * 128 || at % 64 != 0x3c || taken == most {
            return value;
        }
        let entry = (taken & 0xffff) << 16 | 2 << 4 | (taken / 128) & 1;
        taken += 1;
        entry.to_be()
    });
    for (malformed, due) in [(128, true), (256, true), (261, false)] {
        hca.service(NOW);
        assert_eq!(hca.neighbours().unwrap().malformed, malformed);
        assert_eq!(hca.next_deadline() == Some(Instant::ZERO), due, "{malformed}");
    }
}

#[test]
fn a_failed_port_is_made_anew_once_a_second() {
    let p = Scripted::<false>::sized(1 << 21);
    let mut hca = open(&p);
    hca.set_net(&NET, NOW).unwrap();
    let made = || p.of(Opcode::CreateSq).len();
    let at = |millis| NOW + Duration::from_millis(millis);
    let fail = |hca: &mut Hca<'_, false>| {
        let fault = dat_core::fault!(BadState, "Ethernet port", "it failed");
        hca.network.as_mut().unwrap().fail(fault);
    };
    hca.service(at(0));
    assert_eq!(made(), 1);
    fail(&mut hca);
    hca.service(at(0));
    assert_eq!(made(), 2);
    fail(&mut hca);
    hca.service(at(999));
    assert_eq!(made(), 2);
    assert_eq!(hca.next_deadline(), Some(at(1000)));
    hca.service(at(1000));
    assert_eq!(made(), 3);
    // One that cannot be made is tried again.
    fail(&mut hca);
    p.refuse(Opcode::CreateSq, 3, 0);
    hca.service(at(2000));
    p.refusals.borrow_mut().clear();
    hca.service(at(2500));
    assert_eq!(made(), 4);
    hca.service(at(3000));
    assert_eq!(made(), 5);
    hca.close().unwrap();
    assert_eq!(p.held(), 0);
}

fn path() -> Path {
    Path {
        remote: IpAddr::V4(Ipv4Addr::new(192, 168, 7, 2)),
        next_hop: NextHop::Mac([2, 0, 0, 0, 0, 2]),
        source_index: 0,
        hop_limit: 64,
        class: Class::default(),
        flow_label: 1,
    }
}

fn rtr() -> QpStep {
    QpStep::Rtr {
        path: path(),
        remote_qpn: 1,
        rq_psn: 1,
        mtu: Mtu::B1024,
        responder_resources: 1,
        min_rnr_timer: 12,
    }
}

#[test]
fn nothing_connects_before_the_port_has_an_address() {
    let p = Scripted::<false>::new();
    let mut hca = open(&p);
    let pd = hca.pd_create().unwrap();
    let (cq, _end) = hca.cq_create(1).unwrap();
    let NewQp { qp, .. } = hca.qp_create(&init(pd, cq)).unwrap();
    assert_eq!(hca.qp_modify(qp, &rtr()).unwrap_err().kind, FaultKind::BadState);
    assert!(matches!(hca.resolve(NET.addr, NOW), Poll::Ready(Err(_))));
    hca.set_net(&NET, NOW).unwrap();
    hca.qp_modify(qp, &rtr()).unwrap();
    // Another adapter on the same device gives it anew.
    hca.set_net(&NET, NOW).unwrap();
    let set = p.of(Opcode::SetRoceAddress);
    assert_eq!(set.iter().map(|c| c.wide(0x18) != 0).collect::<Vec<_>>(), [true, false, true]);
    assert_eq!((p.of(Opcode::CreateSq).len(), p.of(Opcode::DestroySq).len()), (2, 1));
}

#[test]
fn the_own_address_resolves_at_once_and_others_after_a_question() {
    let p = Scripted::<false>::new();
    let mut hca = open(&p);
    hca.set_net(&NET, NOW).unwrap();
    let Poll::Ready(Ok(own)) = hca.resolve(NET.addr, NOW) else { panic!("pending") };
    assert_eq!((own.remote, own.source_index, own.hop_limit), (NET.addr, 0, 64));
    assert!((1..=0xf_ffff).contains(&own.flow_label));
    p.take();
    assert!(hca.resolve(path().remote, NOW).is_pending());
    let rang = p.take().iter().any(|op| matches!(op, Op::Write64(..)));
    assert!(rang, "the question is out");
    assert!(hca.next_deadline().is_some());
}

#[test]
fn an_event_that_a_queue_of_the_port_failed_makes_the_port_anew() {
    let p = Scripted::<false>::new();
    let mut hca = open(&p);
    hca.set_net(&NET, NOW).unwrap();
    for attempt in 1..=2 {
        assert_eq!(p.of(Opcode::CreateSq).len(), attempt);
        let event = if attempt == 1 {
            let network = hca.network.as_ref().unwrap();
            let cqn = (0..0x1000).find(|number| network.cq(*number).is_some()).unwrap();
            Event::CqError { cqn, syndrome: 1 }
        } else {
            let network = hca.network.as_ref().unwrap();
            let owned = |number: &u32| network.owns_queue(*number);
            let qpn = (0..0x1000).find(owned).unwrap();
            let what = QpEvent::Catastrophic;
            Event::Qp { qpn, what }
        };
        let now = NOW + Duration::from_secs(2) * u32::try_from(attempt).unwrap();
        assert!(hca.translate(event, now).is_none());
        assert!(hca.next_deadline().unwrap() <= now);
        hca.service(now);
        assert_eq!(p.of(Opcode::CreateSq).len(), attempt + 1);
    }
}

#[test]
fn both_ipv6_addresses_have_their_index() {
    let p = Scripted::<false>::new();
    let mut hca = open(&p);
    let addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);
    let net = Net::new(IpAddr::V6(addr), 64);
    hca.set_net(&net, NOW).unwrap();
    let entries = |from: usize| -> Vec<_> {
        p.of(Opcode::SetRoceAddress)[from..]
            .iter()
            .map(|c| (c.word(8) >> 16, c.wide(0x10)))
            .collect()
    };
    assert_eq!(entries(0), [(0, 0xfd00 << 48), (1, 0xfe80 << 48)]);
    let network = hca.network.as_ref().unwrap();
    let peer = IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 9));
    assert_eq!(network.source_index(peer), 1);
    assert_eq!(network.source_index(IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2))), 0);
    hca.close().unwrap();
    assert_eq!(entries(2), [(1, 0), (0, 0)], "the last first");
}

#[test]
fn a_failed_network_leaves_nothing_behind() {
    for op in [Opcode::SetRoceAddress, Opcode::CreateRq, Opcode::CreateSq, Opcode::CreateTir] {
        let p = Scripted::<false>::new();
        let mut hca = open(&p);
        let held = p.held();
        p.refuse(op, 3, 0);
        assert!(hca.set_net(&NET, NOW).is_err());
        assert_eq!(p.held(), held, "{op:?}");
        p.refusals.borrow_mut().clear();
        hca.set_net(&NET, NOW).unwrap();
    }
}

#[test]
fn events_become_notices_of_known_objects() {
    let p = Scripted::<false>::new();
    let mut hca = open(&p);
    let pd = hca.pd_create().unwrap();
    let (cq, _end) = hca.cq_create(1).unwrap();
    let NewQp { qp, .. } = hca.qp_create(&init(pd, cq)).unwrap();
    let qpn = qp.number;
    let lost = dat_core::fault!(Gone, "health", "test");
    // What is no longer in Error is what a reset has mended since.
    assert!(hca.translate(Event::Qp { qpn, what: QpEvent::AccessError }, NOW).is_none());
    p.refuse(Opcode::QueryQp, 4, 0);
    for event in [
        Event::Completion { cqn: cq.0 },
        Event::Completion { cqn: 0x999 },
        Event::CqError { cqn: cq.0, syndrome: 1 },
        Event::CqError { cqn: 0x999, syndrome: 1 },
        Event::Qp { qpn, what: QpEvent::Established },
        Event::Qp { qpn, what: QpEvent::AccessError },
        Event::Qp { qpn, what: QpEvent::Drained },
        Event::Qp { qpn: 0x999, what: QpEvent::AccessError },
        Event::Port { port: 1, up: false },
        Event::Dead(lost),
    ] {
        let _ = hca.device.events.push_back(event);
    }
    hca.collect(NOW);
    let notices: Vec<_> = core::iter::from_fn(|| hca.notice()).collect();
    assert_eq!(notices.len(), 6);
    assert!(matches!(notices[0], Notice::Completion(c) if c == cq));
    assert!(matches!(notices[1], Notice::CqError(c) if c == cq));
    assert!(matches!(notices[2], Notice::Established(q) if q == qp));
    assert!(matches!(notices[3], Notice::QpError(q, f) if q == qp && f.number == qpn));
    // The event said down; the port, asked, is up again.
    assert!(matches!(notices[4], Notice::Link(true)));
    assert!(matches!(notices[5], Notice::Catastrophic(f) if f == lost));
}

#[test]
fn a_flood_of_port_events_costs_one_command_in_each_service() {
    let p = Scripted::<false>::new();
    let mut hca = open(&p);
    for _ in 0..60 {
        let _ = hca.device.events.push_back(Event::Port { port: 1, up: false });
    }
    hca.collect(NOW);
    assert_eq!(p.of(Opcode::QueryVportState).len(), 1);
    assert!(matches!(hca.notice(), Some(Notice::Link(true))));
    assert!(hca.notice().is_none());
}

#[test]
fn failures_of_qp1_stay_inside_and_are_mended() {
    let p = Scripted::<false>::new();
    let mut hca = open(&p);
    let number = p.of(Opcode::Rst2InitQp)[0].word(8);
    let event = Event::Qp { qpn: number, what: QpEvent::Catastrophic };
    let _ = hca.device.events.push_back(event);
    hca.service(NOW);
    assert!(hca.notice().is_none());
    assert_eq!(p.of(Opcode::Rtr2RtsQp).len(), 2);
}

#[test]
fn more_events_than_notices_wait_in_the_device() {
    let p = Scripted::<false>::new();
    let mut hca = open(&p);
    let (cq, _end) = hca.cq_create(1).unwrap();
    let mut seen = 0;
    for _ in 0..3 {
        while hca.device.events.push_back(Event::Completion { cqn: cq.0 }).is_ok() {}
        hca.collect(NOW);
    }
    while hca.notice().is_some() {
        seen += 1;
        hca.collect(NOW);
    }
    assert_eq!(seen, NOTICES + hca.device.events.capacity());
}

#[test]
fn blueflame_registers_are_one_per_queue_pair() {
    let p = Scripted::<true>::new();
    let mut hca = open(&p);
    let pd = hca.pd_create().unwrap();
    let (cq, _end) = hca.cq_create(1).unwrap();
    let mut posted = Vec::new();
    let mut queues = Vec::new();
    // Queue pairs that the device refuses have none.
    p.refuse(Opcode::CreateQp, 6, 0);
    for _ in 0..5 {
        assert!(hca.qp_create(&init(pd, cq)).is_err());
    }
    p.refusals.borrow_mut().clear();
    for _ in 0..4 {
        let mut new = hca.qp_create(&init(pd, cq)).unwrap();
        p.take();
        new.sq.post(WorkRequest::Send, &[], PostFlags::SIGNALED);
        posted.extend(
            p.take()
                .into_iter()
                .filter_map(|op| if let Op::Block(at, _) = op { Some(at & 0xfff) } else { None }),
        );
        queues.push(new);
    }
    assert_eq!(posted, [0x800, 0xa00, 0xc00, 0xe00]);
    assert_eq!(p.of(Opcode::AllocUar).len(), 1);
    let NewQp { qp, sq, rq } = queues.remove(1);
    hca.qp_destroy(qp, sq, rq).unwrap();
    let mut again = hca.qp_create(&init(pd, cq)).unwrap();
    p.take();
    again.sq.post(WorkRequest::Send, &[], PostFlags::SIGNALED);
    assert!(p.take().iter().any(|op| matches!(op, Op::Block(at, _) if at & 0xfff == 0xa00)));
    hca.close().unwrap();
    assert_eq!(p.of(Opcode::DeallocUar).len(), 2, "its own and the driver's");
}

#[test]
fn where_blocks_come_in_words_all_share_one_register() {
    let p = Scripted::<false>::new();
    let mut hca = open(&p);
    let pd = hca.pd_create().unwrap();
    let (cq, _end) = hca.cq_create(1).unwrap();
    for _ in 0..2 {
        let mut new = hca.qp_create(&init(pd, cq)).unwrap();
        p.take();
        new.sq.post(WorkRequest::Send, &[], PostFlags::SIGNALED);
        assert!(p.take().iter().any(|op| matches!(op, Op::Write64(at, _) if *at == UAR + 0x800)));
    }
    assert!(p.of(Opcode::AllocUar).is_empty());
}

#[test]
fn devices_that_cannot_serve_are_refused() {
    let p = Scripted::<false>::new();
    let mut device = p.device();
    device.caps.general.set_cqe_version(0);
    let fault = Hca::over(device, &Config::default()).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Unsupported);
    let mut device = p.device();
    device.caps.general.set_imaicl(false);
    let mut hca = Hca::over(device, &Config::default()).unwrap();
    let pd = hca.pd_create().unwrap();
    assert_eq!(hca.mw_create(pd).unwrap_err().kind, FaultKind::Unsupported);
    for ud in [false, true] {
        let p = Scripted::<false>::new();
        let mut device = p.device();
        device.caps.general.set_ud(ud);
        let hca = Hca::over(device, &Config::default()).unwrap();
        assert_eq!(hca.limits().max_datagram_segments != 0, ud);
    }
}
