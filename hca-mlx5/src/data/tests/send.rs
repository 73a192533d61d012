//! WQE bytes, order, doorbells, rings.
//!
//! Length: one test for each kind of work request, and the bytes it must have.
#![expect(clippy::cast_possible_truncation, reason = "the numbers are small")]

use std::vec;
use std::vec::Vec;

use dat_core::provider::{
    Access, Atomic, Bind, Class, Destination, NextHop, Pages, Path, PostFlags, Registration,
    RmrTriplet, Scope, Segment, SendQueue, WorkRequest,
};
use proptest::prelude::*;

use super::{Record, Ring};
use crate::data::scripted::{ARENA_ADDR, ARENA_LEN, Op, Scripted};
use crate::data::send::{Doorbell, INLINE_SEND, MAX_SEGMENTS, Sq, Umr, WIDEST, Width};
use crate::platform::Blocks;
use crate::prm::caps::GeneralCap;

const RING: usize = 0x1000;
const RECORD: usize = 0x800;
const REGISTER: usize = 0x10800;
const QPN: u32 = 0x4d;
const DATA: usize = 0x4000;
const UMR: Umr = Umr { fence: crate::prm::wqe::FENCE_SMALL, page_size: true, atomics: true };
const SIGNALED: PostFlags = PostFlags::SIGNALED;

fn sq<const WC: bool>(platform: &Scripted<WC>, log_slots: u8, half: usize) -> Sq<'_, Scripted<WC>> {
    let (half, blocks) = if WC { (half, Blocks::Combined) } else { (0, Blocks::Words) };
    ringing(platform, log_slots, Doorbell { register: REGISTER, half, blocks })
}

fn ringing<const WC: bool>(
    platform: &Scripted<WC>,
    log_slots: u8,
    doorbell: Doorbell,
) -> Sq<'_, Scripted<WC>> {
    let mut sq =
        Sq::new(platform, Ring::new(RING, log_slots), Record(RECORD), doorbell, Width(WIDEST), UMR)
            .unwrap();
    sq.set_qpn(QPN);
    sq
}

fn arena(offset: usize, len: u32) -> Segment {
    Segment { addr: ARENA_ADDR + offset as u64, len, lkey: 0x1122_3344 }
}

/// Memory the driver cannot read, so never inline.
fn far(len: u32) -> Segment {
    Segment { addr: 0x5555_0000_1000, len, lkey: 0x1122_3344 }
}

const PEER: RmrTriplet =
    RmrTriplet { addr: 0x0102_0304_0506_0708, len: u32::MAX, context: 0xaabb_ccdd };

#[rustfmt::skip]
const CTRL_WRITE: [u8; 16] = [0, 0, 0, 8, 0, 0, 0x4d, 3, 0, 0, 0, 8, 0, 0, 0, 0];
#[rustfmt::skip]
const RADDR: [u8; 16] = [1, 2, 3, 4, 5, 6, 7, 8, 0xaa, 0xbb, 0xcc, 0xdd, 0, 0, 0, 0];

fn pad(parts: &[&[u8]]) -> Vec<u8> {
    let mut bytes = parts.concat();
    bytes.resize(bytes.len().next_multiple_of(64), 0);
    bytes
}

#[test]
fn inline_write_of_eight_bytes() {
    let p = Scripted::<false>::new();
    p.put(DATA, b"abcdefghZZZZZZZZ");
    let token = sq(&p, 4, 0).post(WorkRequest::Write(&PEER), &[arena(DATA, 8)], SIGNALED);
    assert_eq!(token, 0);
    let inline = b"\x80\0\0\x08abcdefgh\0\0\0\0";
    assert_eq!(p.bytes(RING, 64), pad(&[&CTRL_WRITE, &RADDR, inline]));
}

#[test]
fn inline_writes_of_every_length_and_alignment_carry_just_the_payload() {
    let payload: Vec<u8> = (1..=64).collect();
    for len in 1..=28_u32 {
        for skew in 0..8 {
            let p = Scripted::<false>::new();
            p.put(DATA, &payload);
            sq(&p, 4, 0).post(WorkRequest::Write(&PEER), &[arena(DATA + skew, len)], SIGNALED);
            let wqe = p.bytes(RING, 64);
            let ds = 2 + (4 + len).div_ceil(16);
            let mut ctrl = CTRL_WRITE;
            ctrl[7] = ds as u8;
            assert_eq!(wqe[..32], [ctrl, RADDR].concat(), "length {len}");
            assert_eq!(wqe[32..36], (0x8000_0000 | len).to_be_bytes());
            assert_eq!(wqe[36..36 + len as usize], payload[skew..skew + len as usize]);
            assert!(wqe[36 + len as usize..].iter().all(|&b| b == 0), "length {len} skew {skew}");
        }
    }
}

#[test]
fn inline_sends_of_every_length_carry_just_the_payload() {
    let payload: Vec<u8> = (1..=64).collect();
    for len in 1..=INLINE_SEND {
        let p = Scripted::<false>::new();
        p.put(DATA, &payload);
        sq(&p, 4, 0).post(WorkRequest::Send, &[arena(DATA + 3, len)], SIGNALED);
        let wqe = p.bytes(RING, 64);
        let ds = 1 + (4 + len).div_ceil(16) as u8;
        assert_eq!(wqe[..16], [0, 0, 0, 10, 0, 0, 0x4d, ds, 0, 0, 0, 8, 0, 0, 0, 0]);
        assert_eq!(wqe[16..20], (0x8000_0000 | len).to_be_bytes());
        assert_eq!(wqe[20..20 + len as usize], payload[3..3 + len as usize]);
        assert!(wqe[20 + len as usize..].iter().all(|&b| b == 0));
    }
}

#[test]
fn longer_or_unreadable_payload_goes_by_pointer() {
    let p = Scripted::<false>::new();
    let mut q = sq(&p, 4, 0);
    q.post(WorkRequest::Write(&PEER), &[arena(DATA, 29)], SIGNALED);
    q.post(WorkRequest::Write(&PEER), &[far(8)], SIGNALED);
    q.post(WorkRequest::Send, &[arena(DATA, 45)], SIGNALED);
    let pointer = |wqe: usize, at: usize| p.bytes(RING + 64 * wqe + at, 16);
    assert_eq!(
        pointer(0, 32),
        [&[0, 0, 0, 29, 0x11, 0x22, 0x33, 0x44, 0, 0][..], &[0x7f, 0, 0, 0, 0x40, 0]].concat()
    );
    assert_eq!(pointer(1, 32)[..8], [0, 0, 0, 8, 0x11, 0x22, 0x33, 0x44]);
    assert_eq!(pointer(2, 16)[..4], [0, 0, 0, 45]);
}

/// What the driver cannot read is gathered by the device, however short.
#[test]
fn short_payload_elsewhere_goes_by_pointer() {
    let data = [0, 0, 0, 5, 0x11, 0x22, 0x33, 0x44, 0, 0, 0x55, 0x55, 0, 0, 0x10, 0];
    let p = Scripted::<false>::new();
    let mut q = sq(&p, 4, 0);
    q.post(WorkRequest::Send, &[far(5)], SIGNALED);
    q.post(WorkRequest::Write(&PEER), &[far(5)], SIGNALED);
    let send = [0, 0, 0, 10, 0, 0, 0x4d, 2, 0, 0, 0, 8, 0, 0, 0, 0];
    assert_eq!(p.bytes(RING, 64), pad(&[&send, &data]));
    let write = [0, 0, 1, 8, 0, 0, 0x4d, 3, 0, 0, 0, 8, 0, 0, 0, 0];
    assert_eq!(p.bytes(RING + 64, 64), pad(&[&write, &RADDR, &data]));
}

#[test]
fn datagrams_carry_the_way_to_their_peer() {
    let path = Path {
        remote: "192.168.7.2".parse().unwrap(),
        next_hop: NextHop::Mac([2, 0, 0, 0, 0, 2]),
        source_index: 3,
        hop_limit: 64,
        class: Class { traffic_class: 9, priority: 5 },
        flow_label: 0x3c52a,
    };
    let to = Destination { path, qpn: 0x99, qkey: 0x0102_0304 };
    #[rustfmt::skip]
    let av = [
        1, 2, 3, 4, 0, 0, 0, 0, 0x80, 0, 0, 0x99, 10, 0, 0xc5, 0x25,
        0, 0, 0, 0, 2, 0, 0, 0, 0, 2, 9, 64, 0x40, 0x33, 0xc5, 0x2a,
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 168, 7, 2,
    ];
    let data = [0, 0, 0, 5, 0x11, 0x22, 0x33, 0x44, 0, 0, 0x55, 0x55, 0, 0, 0x10, 0];
    for (immediate, opcode, bytes) in [(None, 10, [0; 4]), (Some(0x0506_0708), 11, [5, 6, 7, 8])] {
        let p = Scripted::<false>::new();
        sq(&p, 4, 0).post(WorkRequest::SendUd(&to, immediate), &[far(5)], SIGNALED);
        let head = [0, 0, 0, opcode, 0, 0, 0x4d, 5, 0, 0, 0, 8];
        assert_eq!(p.bytes(RING, 128), pad(&[&head, &bytes, &av, &data]));
    }
}

#[test]
fn the_end_of_the_arena_is_not_read_past() {
    let p = Scripted::<false>::new();
    let mut q = sq(&p, 4, 0);
    for back in [1, 8, 63, 64, 65] {
        q.post(WorkRequest::Write(&PEER), &[arena(ARENA_LEN - back, 1)], SIGNALED);
    }
    let kind = |wqe: usize| p.bytes(RING + 64 * wqe + 32, 1)[0];
    assert_eq!([0, 1, 2, 3, 4].map(kind), [0, 0, 0, 0x80, 0x80]);
}

#[test]
fn write_by_pointer() {
    let p = Scripted::<false>::new();
    sq(&p, 4, 0).post(WorkRequest::Write(&PEER), &[far(0x100)], SIGNALED);
    #[rustfmt::skip]
    let data = [0, 0, 1, 0, 0x11, 0x22, 0x33, 0x44, 0, 0, 0x55, 0x55, 0, 0, 0x10, 0];
    assert_eq!(p.bytes(RING, 64), pad(&[&CTRL_WRITE, &RADDR, &data]));
}

#[test]
fn read_is_never_inline() {
    let p = Scripted::<false>::new();
    sq(&p, 4, 0).post(WorkRequest::Read(&PEER), &[arena(DATA, 8)], SIGNALED);
    let wqe = p.bytes(RING, 64);
    let mut ctrl = CTRL_WRITE;
    ctrl[3] = 0x10;
    assert_eq!(wqe[..32], [ctrl, RADDR].concat());
    assert_eq!(wqe[32..36], [0, 0, 0, 8]);
}

#[test]
fn send_by_pointer() {
    let p = Scripted::<false>::new();
    sq(&p, 4, 0).post(WorkRequest::Send, &[far(0x1000)], SIGNALED);
    #[rustfmt::skip]
    let golden = [
        0, 0, 0, 0x0a, 0, 0, 0, 0x4d - 0x4d, 0, 0, 0, 8, 0, 0, 0, 0,
        0, 0, 0x10, 0, 0x11, 0x22, 0x33, 0x44, 0, 0, 0x55, 0x55, 0, 0, 0x10, 0,
    ];
    let mut golden = golden;
    golden[6] = 0x4d;
    golden[7] = 2;
    assert_eq!(p.bytes(RING, 64), pad(&[&golden]));
}

#[test]
fn an_empty_message_has_no_data_segment() {
    let p = Scripted::<false>::new();
    let mut q = sq(&p, 4, 0);
    q.post(WorkRequest::Send, &[], SIGNALED);
    q.post(WorkRequest::Write(&PEER), &[], SIGNALED);
    assert_eq!(p.bytes(RING, 8), [0, 0, 0, 0x0a, 0, 0, 0x4d, 1]);
    assert_eq!(p.bytes(RING + 64, 8), [0, 0, 1, 8, 0, 0, 0x4d, 2]);
    assert!(p.bytes(RING + 96, 32).iter().all(|&b| b == 0));
}

#[test]
fn atomics_carry_their_operands_behind_the_far_end() {
    let segment = [0, 0, 0, 8, 0x11, 0x22, 0x33, 0x44, 0, 0, 0x55, 0x55, 0, 0, 0x10, 0];
    let (add, swap, compare) = (0x0102_0304_0506_0708_u64, 0x1112_1314_1516_1718_u64, 0x99_u64);
    for (atomic, opcode, operands) in [
        (Atomic::FetchAdd(add), 0x12, [add, 0]),
        (Atomic::CmpSwap { compare, swap }, 0x11, [swap, compare]),
    ] {
        let p = Scripted::<false>::new();
        sq(&p, 4, 0).post(WorkRequest::Atomic(atomic, &PEER), &[far(8)], SIGNALED);
        let mut ctrl = CTRL_WRITE;
        (ctrl[3], ctrl[7]) = (opcode, 4);
        let operands = operands.map(u64::to_be_bytes).concat();
        assert_eq!(p.bytes(RING, 64), [&ctrl[..], &RADDR, &operands, &segment].concat());
    }
}

#[test]
fn immediates_and_keys_to_close_go_in_the_control_segment() {
    let p = Scripted::<false>::new();
    let mut q = sq(&p, 4, 0);
    q.post(WorkRequest::WriteImmed(&PEER, 0x0102_0304), &[far(8)], SIGNALED);
    q.post(WorkRequest::SendInvalidate(0x0506_0708), &[far(8)], SIGNALED);
    let data = [0, 0, 0, 8, 0x11, 0x22, 0x33, 0x44, 0, 0, 0x55, 0x55, 0, 0, 0x10, 0];
    let write = [0, 0, 0, 9, 0, 0, 0x4d, 3, 0, 0, 0, 8, 1, 2, 3, 4];
    assert_eq!(p.bytes(RING, 64), pad(&[&write, &RADDR, &data]));
    let send = [0, 0, 1, 1, 0, 0, 0x4d, 2, 0, 0, 0, 8, 5, 6, 7, 8];
    assert_eq!(p.bytes(RING + 64, 64), pad(&[&send, &data]));
}

#[test]
fn segment_lists_fill_blocks_in_order() {
    let p = Scripted::<false>::new();
    let mut q = sq(&p, 4, 0);
    let list: Vec<Segment> =
        (0..10).map(|i| Segment { addr: 0x1000 * (i + 1), len: 100, lkey: i as u32 }).collect();
    assert_eq!(q.post(WorkRequest::Write(&PEER), &list, SIGNALED), 0);
    let wqe = p.bytes(RING, 192);
    let mut ctrl = CTRL_WRITE;
    ctrl[7] = 12;
    assert_eq!(wqe[..32], [ctrl, RADDR].concat());
    for i in 0..10_usize {
        let segment = &wqe[32 + 16 * i..48 + 16 * i];
        assert_eq!(segment[..4], [0, 0, 0, 100]);
        assert_eq!(segment[7], i as u8);
        assert_eq!(segment[8..], (0x1000 * (i as u64 + 1)).to_be_bytes());
    }
    assert_eq!(q.post(WorkRequest::Send, &list[..3], SIGNALED), 3, "twelve units are three blocks");
    assert_eq!(q.post(WorkRequest::Send, &list[..4], SIGNALED), 4, "four units are one");
    assert_eq!(q.post(WorkRequest::Send, &[], SIGNALED), 6, "five units are two");
    // What is left of the last block is zero, and reads of several segments are reads.
    assert_eq!(p.bytes(RING + 64 * 5 + 16, 48), [0; 48]);
    q.post(WorkRequest::Read(&PEER), &list[..2], SIGNALED);
    let mut ctrl = CTRL_WRITE;
    (ctrl[2], ctrl[3], ctrl[7]) = (7, 0x10, 4);
    assert_eq!(p.bytes(RING + 64 * 7, 32), [ctrl, RADDR].concat());
}

#[test]
fn segments_beyond_the_limit_never_leave_the_request() {
    let p = Scripted::<false>::new();
    let mut q = sq(&p, 4, 0);
    q.post(WorkRequest::Write(&PEER), &vec![far(1); 40], SIGNALED);
    assert_eq!(q.post(WorkRequest::Send, &[], SIGNALED), 3);
    assert_eq!(p.bytes(RING + 7, 1), [2 + MAX_SEGMENTS]);
}

#[test]
fn flags_become_the_control_byte() {
    let flags = [
        (PostFlags::empty(), 0),
        (PostFlags::SIGNALED, 0x08),
        (PostFlags::SOLICITED, 0x02),
        (PostFlags::FENCE, 0x80),
        (PostFlags::SIGNALED | PostFlags::SOLICITED | PostFlags::FENCE, 0x8a),
    ];
    for (flags, byte) in flags {
        let p = Scripted::<false>::new();
        sq(&p, 4, 0).post(WorkRequest::Send, &[far(100)], flags);
        assert_eq!(p.bytes(RING + 8, 4), [0, 0, 0, byte]);
    }
}

const BIND: Bind = Bind {
    old_rkey: 0x0012_3405,
    new_rkey: 0x0012_3477,
    lkey: 0x0099_8811,
    addr: 0x7f00_0000_2000,
    start: 0x7f00_0000_2000,
    len: 0x1800,
    access: Access::REMOTE_READ.union(Access::REMOTE_WRITE),
    scope: Scope::Domain,
};

#[test]
fn bind_is_the_type_1_wqe_of_the_open_stacks() {
    let p = Scripted::<false>::new();
    sq(&p, 4, 0).post(WorkRequest::Bind(&BIND), &[], SIGNALED);
    #[rustfmt::skip]
    let golden: [u8; 192] = {
        let mut g = [0; 192];
        let head: [u8; 16] = [0, 0, 0, 0x25, 0, 0, 0x4d, 12, 0, 0, 0, 8, 0x00, 0x12, 0x34, 0x05];
        let umr: [u8; 16] = [0x90, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0x20, 0x1c, 0x20, 0x41];
        let key: [u8; 32] = [
            0, 0, 0x30, 0, 0xff, 0xff, 0xff, 0x77, 0, 0, 0, 0, 0, 0, 0, 0,
            0, 0, 0x7f, 0, 0, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0x18, 0,
        ];
        let klm: [u8; 16] = [0, 0, 0x18, 0, 0, 0x99, 0x88, 0x11, 0, 0, 0x7f, 0, 0, 0, 0x20, 0];
        g[..16].copy_from_slice(&head);
        g[16..32].copy_from_slice(&umr);
        g[64..96].copy_from_slice(&key);
        g[128..144].copy_from_slice(&klm);
        g
    };
    assert_eq!(p.bytes(RING, 192), golden);
}

#[test]
fn bind_gives_just_the_rights_asked_for() {
    let rights = [
        (Access::empty(), 0),
        (Access::REMOTE_READ, 0x10),
        (Access::REMOTE_WRITE, 0x20),
        (Access::all(), 0x30),
    ];
    for (access, byte) in rights {
        let p = Scripted::<false>::new();
        sq(&p, 4, 0).post(WorkRequest::Bind(&Bind { access, ..BIND }), &[], SIGNALED);
        assert_eq!(p.bytes(RING + 64, 4), [0, 0, byte, 0]);
    }
}

#[test]
fn a_window_of_type_2_is_bound_to_the_queue_pair_that_binds_it() {
    for (bound, flags) in [(false, 0xb0), (true, 0x90)] {
        let p = Scripted::<false>::new();
        let scope = Scope::QueuePair { bound };
        sq(&p, 4, 0).post(WorkRequest::Bind(&Bind { scope, ..BIND }), &[], SIGNALED);
        // The flags of the open stacks' first bind; what is bound already cannot be asked to be
        // free.
        assert_eq!(p.bytes(RING + 16, 12), [flags, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0]);
        assert_eq!(p.bytes(RING + 28, 4), [0x20, 0x1c, 0x60, 0x41]);
        assert_eq!(p.bytes(RING + 68, 4), [0, 0, 0x4d, 0x77]);
    }
    let p = Scripted::<false>::new();
    let scope = Scope::QueuePair { bound: true };
    let unbind = Bind { len: 0, scope, ..BIND };
    sq(&p, 4, 0).post(WorkRequest::Bind(&unbind), &[], SIGNALED);
    assert_eq!(p.bytes(RING + 28, 4), [0x20, 0, 0x60, 0]);
    assert_eq!(p.bytes(RING + 64, 8), [0x40, 0, 0, 0, 0xff, 0xff, 0xff, 0x77]);
}

#[test]
fn a_window_may_begin_at_another_address_than_its_range() {
    let p = Scripted::<false>::new();
    sq(&p, 4, 0).post(WorkRequest::Bind(&Bind { start: 0, ..BIND }), &[], SIGNALED);
    assert_eq!(p.bytes(RING + 80, 8), [0; 8]);
    assert_eq!(p.bytes(RING + 136, 8), BIND.addr.to_be_bytes());
}

#[test]
fn a_fast_registration_is_the_wqe_of_linux() {
    let p = Scripted::<false>::new();
    let mut q = sq(&p, 4, 0);
    let made = Registration {
        old_key: 0x0012_3405,
        new_key: 0x0012_3477,
        start: 0x1000,
        len: 0x4567,
        access: Access::all(),
        pages: Pages { addr: 0x7f00_0000_2000, lkey: 0x0099_8811, count: 5, log_page: 12 },
    };
    q.post(WorkRequest::Register(&made), &[], SIGNALED);
    #[rustfmt::skip]
    let golden: [u8; 192] = {
        let mut g = [0; 192];
        let head: [u8; 16] = [0, 0, 0, 0x25, 0, 0, 0x4d, 9, 0, 0, 0, 0x28, 0, 0x12, 0x34, 5];
        let umr: [u8; 16] = [0x20, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0x20, 0x3e, 0x20, 0x43];
        let key: [u8; 32] = [
            0, 0, 0x7c, 0, 0xff, 0xff, 0xff, 0x77, 0, 0, 0, 0, 0, 0, 0, 0,
            0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0, 0, 0x45, 0x67,
        ];
        let list: [u8; 16] = [0, 0, 0, 64, 0, 0x99, 0x88, 0x11, 0, 0, 0x7f, 0, 0, 0, 0x20, 0];
        g[..16].copy_from_slice(&head);
        g[16..32].copy_from_slice(&umr);
        g[64..96].copy_from_slice(&key);
        g[123] = 12;
        g[128..144].copy_from_slice(&list);
        g
    };
    assert_eq!(p.bytes(RING, 192), golden);
    // The next request waits for it.
    q.post(WorkRequest::Send, &[far(100)], SIGNALED);
    assert_eq!(p.bytes(RING + 192 + 11, 1), [8 | 1 << 5]);
}

#[test]
fn a_fast_registration_gives_just_the_rights_asked_for() {
    let rights = [
        (Access::LOCAL_READ, 0x04),
        (Access::LOCAL_WRITE, 0x08),
        (Access::REMOTE_READ, 0x10),
        (Access::REMOTE_WRITE, 0x20),
        (Access::REMOTE_ATOMIC, 0x40),
    ];
    for (access, byte) in rights {
        let p = Scripted::<false>::new();
        let pages = Pages { addr: 0, lkey: 1, count: 1, log_page: 12 };
        let made = Registration { old_key: 5, new_key: 6, start: 0, len: 1, access, pages };
        sq(&p, 4, 0).post(WorkRequest::Register(&made), &[], SIGNALED);
        assert_eq!(p.bytes(RING + 64, 4), [0, 0, byte, 0]);
    }
}

#[test]
fn a_fast_registration_follows_the_capabilities() {
    let registration = |caps: &GeneralCap<[u8; 256]>, flags| {
        let p = Scripted::<false>::new();
        let mut q = sq(&p, 4, 0);
        q.umr = Umr::of(caps);
        let pages = Pages { addr: 0x2000, lkey: 1, count: 1, log_page: 12 };
        let (old_key, new_key, start, len, access) = (1, 2, 0, 4096, Access::all());
        let made = Registration { old_key, new_key, start, len, access, pages };
        q.post(WorkRequest::Register(&made), &[], flags);
        let wqe = p.bytes(RING, 32);
        (wqe[11] >> 5, wqe[28..32].to_vec())
    };
    let fenced = SIGNALED | PostFlags::FENCE;
    for (cap, plain, with_fence) in [(0, 3, 3), (1, 1, 4), (2, 0, 4)] {
        let mut caps = GeneralCap::new();
        caps.set_umr_fence(cap);
        assert_eq!(registration(&caps, SIGNALED).0, plain, "{cap}");
        assert_eq!(registration(&caps, fenced).0, with_fence, "{cap}");
        // So does an invalidation.
        for (flags, fence) in [(SIGNALED, plain), (fenced, with_fence)] {
            let p = Scripted::<false>::new();
            let mut q = sq(&p, 4, 0);
            q.umr = Umr::of(&caps);
            q.post(WorkRequest::Bind(&Bind { len: 0, ..BIND }), &[], flags);
            assert_eq!(p.bytes(RING + 11, 1)[0] >> 5, fence, "{cap}");
        }
    }
    let mut caps = GeneralCap::new();
    assert_eq!(registration(&caps, SIGNALED).1, [0x20, 0x3e, 0x20, 0x43]);
    caps.set_umr_modify_atomic_disabled(true);
    assert_eq!(registration(&caps, SIGNALED).1, [0x20, 0x1e, 0x20, 0x43]);
    caps.set_umr_modify_entity_size_disabled(true);
    assert_eq!(registration(&caps, SIGNALED).1, [0x20, 0x1e, 0x20, 0x41]);
}

#[test]
fn gathered_payload_never_travels_inside() {
    let p = Scripted::<false>::new();
    let near = Segment { addr: ARENA_ADDR, len: 8, lkey: 7 };
    let mut q = sq(&p, 4, 0);
    q.post(WorkRequest::Send, &[near], SIGNALED | PostFlags::GATHER);
    assert_eq!(p.bytes(RING, 16), [0, 0, 0, 10, 0, 0, 0x4d, 2, 0, 0, 0, 8, 0, 0, 0, 0]);
    assert_eq!(p.bytes(RING + 16, 8), [0, 0, 0, 8, 0, 0, 0, 7]);
    q.post(
        WorkRequest::Write(&RmrTriplet { addr: 1, len: 8, context: 2 }),
        &[near],
        SIGNALED | PostFlags::GATHER,
    );
    assert_eq!(p.bytes(RING + 64 + 3, 1), [0x08]);
    assert_eq!(p.bytes(RING + 64 + 32, 8), [0, 0, 0, 8, 0, 0, 0, 7]);
}

#[test]
fn unbind_frees_the_key_in_two_blocks() {
    let p = Scripted::<false>::new();
    let mut q = sq(&p, 4, 0);
    q.post(WorkRequest::Bind(&Bind { len: 0, ..BIND }), &[], SIGNALED);
    let wqe = p.bytes(RING, 128);
    assert_eq!(wqe[..16], [0, 0, 0, 0x25, 0, 0, 0x4d, 8, 0, 0, 0, 0x28, 0, 0x12, 0x34, 5]);
    assert_eq!(wqe[16..32], [0x90, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x20, 0, 0x20, 0]);
    assert!(wqe[32..64].iter().all(|&b| b == 0));
    assert_eq!(wqe[64..72], [0x40, 0, 0, 0, 0xff, 0xff, 0xff, 0x77]);
    assert!(wqe[72..].iter().all(|&b| b == 0));
    assert_eq!(q.post(WorkRequest::Send, &[], SIGNALED), 2);
}

#[test]
fn the_request_after_a_bind_waits_for_it_and_the_next_does_not() {
    let p = Scripted::<false>::new();
    let mut q = sq(&p, 4, 0);
    q.post(WorkRequest::Bind(&BIND), &[], SIGNALED);
    q.post(WorkRequest::Send, &[far(100)], SIGNALED);
    q.post(WorkRequest::Send, &[far(100)], SIGNALED);
    q.post(WorkRequest::Bind(&BIND), &[], SIGNALED);
    q.post(WorkRequest::Send, &[far(100)], SIGNALED | PostFlags::FENCE);
    q.post(WorkRequest::Bind(&BIND), &[], SIGNALED);
    q.post(WorkRequest::Bind(&BIND), &[], SIGNALED);
    let fm = |block: usize| p.bytes(RING + 64 * (block & 15) + 11, 1)[0];
    assert_eq!([0, 3, 4, 5, 8, 9, 12].map(fm), [8, 0x28, 8, 8, 0x88, 8, 0x28]);
}

/// Of each kind, whether it rings or not.
#[test]
fn any_request_after_a_bind_waits_for_it() {
    let unbind = Bind { len: 0, ..BIND };
    let pages = Pages { addr: 0, lkey: 1, count: 1, log_page: 12 };
    let access = Access::LOCAL_READ;
    let made = Registration { old_key: 5, new_key: 6, start: 0, len: 1, access, pages };
    let list = [far(100); 6];
    for first in
        [WorkRequest::Bind(&BIND), WorkRequest::Bind(&unbind), WorkRequest::Register(&made)]
    {
        for (next, segments) in [
            (WorkRequest::Send, 1),
            (WorkRequest::Send, 6),
            (WorkRequest::Write(&PEER), 1),
            (WorkRequest::Read(&PEER), 1),
            (WorkRequest::Bind(&BIND), 0),
            (WorkRequest::Bind(&unbind), 0),
            (WorkRequest::Register(&made), 0),
        ] {
            for flags in [SIGNALED, SIGNALED | PostFlags::DEFER] {
                let p = Scripted::<true>::new();
                let mut q = sq(&p, 4, 0x100);
                q.post(first, &[], SIGNALED);
                let token = q.post(next, &list[..segments], flags);
                let fence = p.bytes(RING + 64 * usize::from(token) + 11, 1);
                assert_eq!(fence, [0x28], "{next:?} after {first:?}, {flags:?}");
            }
        }
    }
}

#[test]
fn order_is_wqe_fence_record_fence_register() {
    let p = Scripted::<false>::new();
    let mut q = sq(&p, 4, 0);
    q.post(WorkRequest::Write(&PEER), &[far(100)], SIGNALED);
    let wqe = p.bytes(RING, 48);
    let golden = [
        Op::Store(RING, wqe.clone()),
        Op::BeforeDoorbell,
        Op::Store(RECORD + 4, vec![0, 0, 0, 1]),
        Op::BeforeDoorbell,
        Op::Write64(REGISTER, wqe[..8].try_into().unwrap()),
    ];
    assert_eq!(p.take(), golden);
}

#[test]
fn a_new_queue_has_nothing_to_ring_for() {
    let p = Scripted::<true>::new();
    let mut q = sq(&p, 4, 0x100);
    q.ring();
    assert_eq!((p.take(), q.next_token()), (vec![], 0));
    let shared = Doorbell { register: 0x2800, half: 0, blocks: Blocks::Combined };
    assert_eq!(Doorbell::shared(0x2000, Blocks::Combined), shared);
}

/// An uncached register takes 8 bytes at a time, and needs no fence behind them.
#[test]
fn an_uncached_register_gets_doorbells_only() {
    let p = Scripted::<false>::new();
    let mut q = sq(&p, 4, 0x100);
    q.post(WorkRequest::Bind(&BIND), &[], SIGNALED);
    q.post(WorkRequest::Send, &[far(100)], SIGNALED);
    q.post(WorkRequest::Send, &[far(100)], PostFlags::DEFER);
    q.ring();
    let log = p.take();
    assert!(!log.iter().any(|op| matches!(op, Op::Block(..) | Op::AfterMmio)), "{log:?}");
    let rings = log.iter().filter(|op| matches!(op, Op::Write64(..))).count();
    assert_eq!((rings, p.bytes(RECORD + 4, 4)), (3, vec![0, 0, 0, 5]));
}

/// In eight stores, or in one where the host has that.
#[test]
fn order_through_blueflame_and_its_halves() {
    // One store takes the block from memory, where it is whole.
    order_by(Blocks::Combined, 48, Op::Block);
    order_by(Blocks::Whole, 64, Op::Whole);
}

fn order_by(blocks: Blocks, stored: usize, block: fn(usize, Vec<u8>) -> Op) {
    let p = Scripted::<true>::new();
    let mut q = ringing(&p, 4, Doorbell { register: REGISTER, half: 0x100, blocks });
    for (i, register) in [REGISTER, REGISTER ^ 0x100, REGISTER].into_iter().enumerate() {
        q.post(WorkRequest::Write(&PEER), &[far(100)], SIGNALED);
        let wqe = p.bytes(RING + 64 * i, 64);
        let golden = [
            Op::Store(RING + 64 * i, wqe[..stored].to_vec()),
            Op::BeforeDoorbell,
            Op::Store(RECORD + 4, vec![0, 0, 0, i as u8 + 1]),
            Op::BeforeDoorbell,
            block(register, wqe),
            Op::AfterMmio,
        ];
        assert_eq!(p.take(), golden);
    }
    // Behind one that waits, and behind a bind's fence, which the copy carries as well.
    q.post(WorkRequest::Send, &[far(100)], PostFlags::DEFER);
    q.post(WorkRequest::Bind(&BIND), &[], SIGNALED);
    let rings = |log: &[Op]| log.iter().filter(|op| matches!(op, Op::Write64(..))).count();
    let log = p.take();
    assert_eq!(rings(&log), 1, "{log:?}");
    q.post(WorkRequest::Send, &[far(100)], SIGNALED);
    let log = p.take();
    let wqe = p.bytes(RING + 64 * 7, 64);
    assert_eq!((rings(&log), wqe[11] & 0xe0), (0, UMR.fence));
    assert!(log.contains(&block(REGISTER, wqe)), "{log:?}");
}

#[test]
fn a_shared_register_gets_doorbells_only() {
    let p = Scripted::<true>::new();
    let mut q = sq(&p, 4, 0);
    q.post(WorkRequest::Send, &[far(100)], SIGNALED);
    q.post(WorkRequest::Send, &[far(100)], SIGNALED);
    let mmio: Vec<Op> = p.take().into_iter().filter(|op| !matches!(op, Op::Store(..))).collect();
    let doorbell = |index| {
        [
            Op::BeforeDoorbell,
            Op::BeforeDoorbell,
            Op::Write64(REGISTER, [0, 0, index, 10, 0, 0, 0x4d, 2]),
            Op::AfterMmio,
        ]
    };
    assert_eq!(mmio, [doorbell(0), doorbell(1)].concat());
}

/// A request of several blocks goes through BlueFlame whole, if half a register holds it.
#[test]
fn wide_requests_go_through_blueflame_where_they_fit() {
    for (how, block) in
        [(Blocks::Combined, Op::Block as fn(usize, Vec<u8>) -> Op), (Blocks::Whole, Op::Whole)]
    {
        for (half, fits) in [(0x100, true), (0x80, false)] {
            let p = Scripted::<true>::new();
            let mut q = ringing(&p, 4, Doorbell { register: REGISTER, half, blocks: how });
            let next = [REGISTER, REGISTER ^ half, REGISTER];
            for (i, register) in next.into_iter().enumerate() {
                q.post(WorkRequest::Bind(&BIND), &[], SIGNALED);
                let at = |n: usize| RING + 64 * (3 * i + n);
                let blocks = || (0..3).map(|n| p.bytes(at(n), 64));
                let mut golden: Vec<Op> =
                    blocks().enumerate().map(|(n, bytes)| Op::Store(at(n), bytes)).collect();
                golden.push(Op::BeforeDoorbell);
                golden.push(Op::Store(RECORD + 4, vec![0, 0, 0, 3 * (i as u8 + 1)]));
                golden.push(Op::BeforeDoorbell);
                if fits {
                    let each = blocks().enumerate();
                    golden.extend(each.map(|(n, bytes)| block(register + 64 * n, bytes)));
                } else {
                    let first = p.bytes(at(0), 8).try_into().unwrap();
                    golden.push(Op::Write64(register, first));
                }
                golden.push(Op::AfterMmio);
                assert_eq!(p.take(), golden, "{how:?}, half of {half:#x}, {i}");
            }
            // Behind one that waits it is rung for as that is.
            q.post(WorkRequest::Send, &[far(100)], PostFlags::DEFER);
            q.post(WorkRequest::Bind(&BIND), &[], SIGNALED);
            let log = p.take();
            let rings = log.iter().filter(|op| matches!(op, Op::Write64(..))).count();
            assert_eq!(rings, 1, "{log:?}");
        }
    }
}

#[test]
fn deferred_requests_share_one_doorbell() {
    let p = Scripted::<true>::new();
    let mut q = sq(&p, 4, 0x100);
    for _ in 0..3 {
        q.post(WorkRequest::Write(&PEER), &[far(100)], PostFlags::DEFER);
    }
    assert!(p.take().iter().all(|op| matches!(op, Op::Store(at, _) if *at >= RING)));
    q.ring();
    let golden = [
        Op::BeforeDoorbell,
        Op::Store(RECORD + 4, vec![0, 0, 0, 3]),
        Op::BeforeDoorbell,
        Op::Write64(REGISTER, [0, 0, 2, 8, 0, 0, 0x4d, 3]),
        Op::AfterMmio,
    ];
    assert_eq!(p.take(), golden);
    q.ring();
    assert_eq!(p.take(), [], "nothing waits any more");
}

#[test]
fn a_post_rings_for_deferred_requests_before_it() {
    let p = Scripted::<true>::new();
    let mut q = sq(&p, 4, 0x100);
    q.post(WorkRequest::Bind(&BIND), &[], PostFlags::DEFER);
    q.post(WorkRequest::Send, &[far(100)], SIGNALED);
    let log = p.take();
    // Not BlueFlame: the device would have to fetch the earlier request anyway.
    assert!(log.contains(&Op::Write64(REGISTER, [0, 0, 3, 10, 0, 0, 0x4d, 2])));
    assert!(log.contains(&Op::Store(RECORD + 4, vec![0, 0, 0, 4])));
    q.ring();
    assert_eq!(p.take(), []);
}

/// The same behind one of a single block.
#[test]
fn a_post_behind_a_deferred_one_of_one_block_is_no_blueflame() {
    let p = Scripted::<true>::new();
    let mut q = sq(&p, 4, 0x100);
    q.post(WorkRequest::Send, &[far(100)], PostFlags::DEFER);
    q.post(WorkRequest::Send, &[far(100)], SIGNALED);
    let log = p.take();
    assert!(log.iter().all(|op| !matches!(op, Op::Block(..))), "{log:?}");
    assert!(log.contains(&Op::Store(RECORD + 4, vec![0, 0, 0, 2])));
    q.post(WorkRequest::Send, &[far(100)], SIGNALED);
    assert!(p.take().iter().any(|op| matches!(op, Op::Block(..))));
}

#[test]
fn a_wide_request_wraps_between_blocks() {
    let p = Scripted::<false>::new();
    let mut q = sq(&p, 2, 0);
    for _ in 0..3 {
        q.post(WorkRequest::Send, &[], SIGNALED);
    }
    assert_eq!(q.post(WorkRequest::Bind(&BIND), &[], SIGNALED), 3);
    assert_eq!(p.bytes(RING + 192, 8), [0, 0, 3, 0x25, 0, 0, 0x4d, 12]);
    assert_eq!(p.bytes(RING, 8), [0, 0, 0x30, 0, 0xff, 0xff, 0xff, 0x77]);
    assert_eq!(p.bytes(RING + 64, 8), [0, 0, 0x18, 0, 0, 0x99, 0x88, 0x11]);
    assert_eq!(p.bytes(RECORD + 4, 4), [0, 0, 0, 6]);
}

#[test]
fn counters_wrap_at_sixteen_bits() {
    let p = Scripted::<false>::new();
    let mut q = sq(&p, 1, 0);
    for _ in 0..0xffff {
        q.post(WorkRequest::Send, &[], PostFlags::DEFER);
    }
    p.take();
    assert_eq!(q.post(WorkRequest::Send, &[], SIGNALED), 0xffff);
    assert_eq!(p.bytes(RECORD + 4, 4), [0, 0, 0, 0]);
    assert_eq!(q.post(WorkRequest::Send, &[], SIGNALED), 0);
    assert_eq!(p.bytes(RING, 8), [0, 0, 0, 10, 0, 0, 0x4d, 1]);
    assert_eq!(p.bytes(RECORD + 4, 4), [0, 0, 0, 1]);
}

/// Writes in one go are those of single posts: in bytes, and in what they ring for.
#[test]
fn writes_in_one_go_are_those_of_single_posts() {
    let any = [arena(DATA, 8), far(100), arena(DATA + 1, 5), far(8), arena(DATA, 29)];
    let words = [arena(DATA, 8), far(8), arena(DATA + 1, 8), arena(DATA + 8, 8), far(8)];
    let each = [(any, None), (words, None), (words, Some(8))];
    for (n, (mut segments, len)) in each.into_iter().cycle().take(15).enumerate() {
        let bind = n % 2 == 1;
        segments.rotate_left(n / 3);
        let (one, all) = (Scripted::<true>::new(), Scripted::<true>::new());
        let (mut single, mut list) = (sq(&one, 4, 0x100), sq(&all, 4, 0x100));
        for (p, q) in [(&one, &mut single), (&all, &mut list)] {
            p.put(DATA, b"abcdefghijklmnop");
            if bind {
                q.post(WorkRequest::Bind(&BIND), &[], SIGNALED);
            }
            p.take();
        }
        for segment in segments {
            single.post(WorkRequest::Write(&PEER), &[segment], SIGNALED | PostFlags::DEFER);
        }
        list.post_writes(segments.into_iter().map(|segment| (segment, PEER)), len, SIGNALED);
        assert_eq!(all.take(), one.take());
        list.post_writes(core::iter::empty(), len, SIGNALED);
        assert_eq!((list.next_token(), all.take()), (single.next_token(), vec![]));
        for (p, q) in [(&one, &mut single), (&all, &mut list)] {
            q.ring();
            assert!(p.take().iter().any(|op| matches!(op, Op::Write64(..))));
            // Behind it the fast path is free again.
            q.post(WorkRequest::Send, &[far(100)], SIGNALED);
            assert!(p.take().iter().any(|op| matches!(op, Op::Block(..))));
        }
        assert_eq!(all.bytes(RING, 1024), one.bytes(RING, 1024));
        assert_eq!(all.bytes(RECORD, 8), one.bytes(RECORD, 8));
    }
}

#[test]
fn a_post_rings_for_writes_in_one_go_before_it() {
    let p = Scripted::<true>::new();
    let mut q = sq(&p, 4, 0x100);
    q.post_writes([(far(100), PEER)].into_iter(), None, SIGNALED);
    q.post(WorkRequest::Send, &[far(100)], SIGNALED);
    let log = p.take();
    assert!(log.contains(&Op::Write64(REGISTER, [0, 0, 1, 10, 0, 0, 0x4d, 2])), "{log:?}");
    assert!(log.iter().all(|op| !matches!(op, Op::Block(..))));
    q.ring();
    assert_eq!(p.take(), []);
}

#[test]
fn restart_rewinds_everything() {
    let p = Scripted::<true>::new();
    let mut q = sq(&p, 4, 0x100);
    q.post(WorkRequest::Bind(&BIND), &[], PostFlags::DEFER);
    q.post(WorkRequest::Bind(&BIND), &[], SIGNALED);
    q.post(WorkRequest::Bind(&BIND), &[], PostFlags::DEFER);
    q.restart();
    assert_eq!(p.bytes(RECORD + 4, 4), [0; 4]);
    p.take();
    q.ring();
    assert_eq!(p.take(), [], "nothing waits");
    assert_eq!(q.post(WorkRequest::Send, &[far(100)], SIGNALED), 0);
    assert_eq!(p.bytes(RING + 8, 4), [0, 0, 0, 8], "no fence is left");
    assert!(p.take().iter().any(|op| matches!(op, Op::Block(..))), "and the fast path is free");
}

#[derive(Clone, Debug)]
enum Post {
    Send(usize),
    Write(usize),
    Read(usize),
    Inline(u32),
    Bind(u64),
    Ring,
}

fn post() -> impl Strategy<Value = (Post, bool)> {
    let kind = prop_oneof![
        (0..=10_usize).prop_map(Post::Send),
        (0..=10_usize).prop_map(Post::Write),
        (0..=10_usize).prop_map(Post::Read),
        (1..=44_u32).prop_map(Post::Inline),
        (0..3_u64).prop_map(Post::Bind),
        Just(Post::Ring),
    ];
    (kind, any::<bool>())
}

proptest! {
    /// After any sequence of posts tokens advance by the WQE's blocks and no more than the widest, stores
    /// stay inside the ring, the device can walk the ring from WQE to WQE by DS, and the record never
    /// runs ahead of the blocks stored.
    #[test]
    fn any_sequence_keeps_the_ring_walkable(posts in prop::collection::vec(post(), 1..80)) {
        let p = Scripted::<true>::new();
        let log_slots = 4;
        let mut q = sq(&p, log_slots, 0x100);
        let list = [far(64); 10];
        let mut expect = 0_u16;
        for (kind, defer) in posts {
            let flags = if defer { PostFlags::DEFER } else { SIGNALED };
            let (token, blocks) = match kind {
                Post::Send(n) => (q.post(WorkRequest::Send, &list[..n], flags), (1 + n).div_ceil(4)),
                Post::Write(n) => (q.post(WorkRequest::Write(&PEER), &list[..n], flags), (2 + n).div_ceil(4)),
                Post::Read(n) => (q.post(WorkRequest::Read(&PEER), &list[..n], flags), (2 + n).div_ceil(4)),
                Post::Inline(n) => (q.post(WorkRequest::Send, &[arena(DATA, n)], flags), 1),
                Post::Bind(n) => (q.post(WorkRequest::Bind(&Bind { len: n, ..BIND }), &[], flags), if n == 0 { 2 } else { 3 }),
                Post::Ring => {
                    q.ring();
                    let record = p.bytes(RECORD + 4, 4);
                    prop_assert_eq!(u16::from_be_bytes([record[2], record[3]]), expect);
                    continue;
                }
            };
            prop_assert_eq!(token, expect);
            prop_assert!(blocks <= WIDEST as usize);
            let at = RING + 64 * (usize::from(token) & 15);
            let head = p.bytes(at, 8);
            prop_assert_eq!(u16::from_be_bytes([head[1], head[2]]), token);
            prop_assert_eq!(usize::from(head[7]).div_ceil(4), blocks);
            expect = expect.wrapping_add(blocks as u16);
            if !defer {
                let record = p.bytes(RECORD + 4, 4);
                prop_assert_eq!(u16::from_be_bytes([record[2], record[3]]), expect);
            }
        }
        for op in p.take() {
            if let Op::Store(offset, bytes) = op {
                let ring = offset >= RING && offset + bytes.len() <= RING + (64 << log_slots);
                prop_assert!(ring || offset == RECORD + 4, "store at {offset:#x}");
            }
        }
    }
}
