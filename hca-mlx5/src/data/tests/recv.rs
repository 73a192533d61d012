//! Receive lists and their counter.

use std::vec;
use std::vec::Vec;

use dat_core::provider::{RecvQueue, Segment};
use proptest::prelude::*;

use super::{Record, Ring};
use crate::data::recv::Rq;
use crate::data::scripted::{Op, Scripted};

const RING: usize = 0x2000;
const RECORD: usize = 0x840;
const ONE: Segment = Segment { addr: 0x7f00_0000_1000, len: 0x200, lkey: 0x0a0b_0c0d };
const ONE_BYTES: [u8; 16] = [0, 0, 2, 0, 0x0a, 0x0b, 0x0c, 0x0d, 0, 0, 0x7f, 0, 0, 0, 0x10, 0];
const END: [u8; 16] = [0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];

fn rq(platform: &Scripted<false>, log_slots: u8, log_stride: u8) -> Rq<'_, Scripted<false>> {
    Rq::new(platform, Ring::new(RING, log_slots), log_stride, Record(RECORD)).unwrap()
}

#[test]
fn one_segment_fills_the_narrow_slot() {
    let p = Scripted::new();
    assert_eq!(rq(&p, 2, 4).recv(&[ONE]), 0);
    let golden = [
        Op::Store(RING, ONE_BYTES.to_vec()),
        Op::BeforeDoorbell,
        Op::Store(RECORD, vec![0, 0, 0, 1]),
    ];
    assert_eq!(p.take(), golden);
}

#[test]
fn short_lists_end_with_the_terminating_key() {
    let p = Scripted::new();
    let mut q = rq(&p, 2, 6);
    q.recv(&[ONE]);
    q.recv(&[ONE; 3]);
    q.recv(&[ONE; 4]);
    assert_eq!(p.bytes(RING, 32), [ONE_BYTES, END].concat());
    assert_eq!(p.bytes(RING + 64, 64), [ONE_BYTES, ONE_BYTES, ONE_BYTES, END].concat());
    assert_eq!(p.bytes(RING + 128, 64), [ONE_BYTES; 4].concat());
}

/// Where no list was longer, what ends a list of one is there from the start.
#[test]
fn a_list_of_receives_is_shown_at_once_and_each_ends() {
    let p = Scripted::new();
    let mut q = rq(&p, 1, 5);
    p.take();
    q.recv_each([ONE; 2].into_iter());
    let golden = [
        Op::Store(RING, ONE_BYTES.to_vec()),
        Op::Store(RING + 32, ONE_BYTES.to_vec()),
        Op::BeforeDoorbell,
        Op::Store(RECORD, vec![0, 0, 0, 2]),
    ];
    assert_eq!(p.take(), golden);
    assert_eq!(p.bytes(RING, 64), [ONE_BYTES, END, ONE_BYTES, END].concat());
    q.recv(&[ONE; 2]);
    q.recv_each([ONE; 2].into_iter());
    assert_eq!(p.bytes(RING, 64), [ONE_BYTES, END, ONE_BYTES, END].concat());
}

#[test]
fn an_empty_receive_is_a_terminator() {
    let p = Scripted::new();
    let mut q = rq(&p, 2, 4);
    q.recv(&[]);
    assert_eq!(p.bytes(RING, 16), END);
}

#[test]
fn a_slot_used_before_shows_nothing_of_it() {
    let p = Scripted::new();
    let mut q = rq(&p, 0, 6);
    q.recv(&[ONE; 4]);
    q.recv(&[ONE]);
    assert_eq!(p.bytes(RING, 32), [ONE_BYTES, END].concat());
}

#[test]
fn segments_beyond_the_slot_stay_out_of_the_next() {
    let p = Scripted::new();
    let mut q = rq(&p, 2, 5);
    let others = p.bytes(RING + 32, 96);
    q.recv(&[ONE; 7]);
    assert_eq!(p.bytes(RING, 32), [ONE_BYTES; 2].concat());
    assert_eq!(p.bytes(RING + 32, 96), others);
}

#[test]
fn tokens_count_by_one_and_start_over() {
    let p = Scripted::new();
    let mut q = rq(&p, 1, 4);
    let tokens: Vec<u16> = (0..5).map(|_| q.recv(&[ONE])).collect();
    assert_eq!(tokens, [0, 1, 2, 3, 4]);
    q.restart();
    assert_eq!(p.bytes(RECORD, 4), [0; 4]);
    assert_eq!(q.recv(&[ONE]), 0);
    assert_eq!(p.bytes(RECORD, 4), [0, 0, 0, 1]);
}

#[test]
fn the_counter_wraps_at_sixteen_bits() {
    let p = Scripted::new();
    let mut q = rq(&p, 1, 4);
    for _ in 0..0xffff {
        q.recv(&[ONE]);
    }
    assert_eq!(q.recv(&[ONE]), 0xffff);
    assert_eq!(p.bytes(RECORD, 4), [0; 4]);
}

proptest! {
    /// Any list in any slot shape stores inside its slot only.
    #[test]
    fn stores_stay_in_the_slot(log_stride in 4..8_u8, lists in prop::collection::vec(0..12_usize, 1..20)) {
        let p = Scripted::new();
        let mut q = rq(&p, 2, log_stride);
        for (i, n) in lists.into_iter().enumerate() {
            p.take();
            q.recv(&vec![ONE; n]);
            let slot = RING + ((i & 3) << log_stride);
            for op in p.take() {
                if let Op::Store(at, bytes) = op {
                    let inside = at >= slot && at + bytes.len() <= slot + (1 << log_stride);
                    prop_assert!(inside || at == RECORD);
                }
            }
        }
    }
}

#[test]
fn a_posted_list_reads_as_it_was_written() {
    let p = Scripted::new();
    let mut q = rq(&p, 1, 6);
    let list: Vec<Segment> =
        (1..=4).map(|n| Segment { addr: 9 << 40 | n, len: 7, lkey: 3 }).collect();
    for len in [0, 1, 3, 4, 2] {
        let token = q.recv(&list[..len]);
        let mut read = Vec::new();
        q.posted(token, |segment| read.push(segment));
        assert_eq!(read, list[..len]);
    }
    // The receive before is still there.
    let mut read = Vec::new();
    q.posted(3, |segment| read.push(segment));
    assert_eq!(read, list);
}
