//! Linked receives: the chain, the counter, and slots that come back in any order.

use std::vec;
use std::vec::Vec;

use dat_core::provider::{Segment, SharedRecvQueue};
use proptest::prelude::*;

use super::{Record, Ring};
use crate::data::scripted::{Op, Scripted};
use crate::data::shared::Shared;

const RING: usize = 0x2000;
const RECORD: usize = 0x840;
const ONE: Segment = Segment { addr: 0x7f00_0000_1000, len: 0x200, lkey: 0x0a0b_0c0d };
const ONE_BYTES: [u8; 16] = [0, 0, 2, 0, 0x0a, 0x0b, 0x0c, 0x0d, 0, 0, 0x7f, 0, 0, 0, 0x10, 0];
const END: [u8; 16] = [0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];

fn queue(platform: &Scripted<false>) -> Shared<'_, Scripted<false>> {
    Shared::new(platform, Ring::new(RING, 2), 6, Record(RECORD)).unwrap()
}

/// The link of a slot.
fn next(platform: &Scripted<false>, slot: u16) -> u16 {
    let bytes = platform.bytes(RING + 64 * usize::from(slot), 16);
    assert!(bytes[..2] == [0; 2] && bytes[4..] == [0; 12]);
    u16::from_be_bytes([bytes[2], bytes[3]])
}

#[test]
fn a_new_queue_is_one_chain() {
    let p = Scripted::new();
    let q = queue(&p);
    assert_eq!([0, 1, 2, 3].map(|slot| next(&p, slot)), [1, 2, 3, 0]);
    assert_eq!(q.next_token(), 0);
}

#[test]
fn a_receive_is_its_list_behind_the_link_then_the_counter() {
    let p = Scripted::new();
    let mut q = queue(&p);
    p.take();
    assert_eq!(q.recv(&[ONE]), 0);
    let golden = [
        Op::Store(RING + 16, ONE_BYTES.to_vec()),
        Op::Store(RING + 32, END.to_vec()),
        Op::BeforeDoorbell,
        Op::Store(RECORD, vec![0, 0, 0, 1]),
    ];
    assert_eq!(p.take(), golden);
    q.recv(&[ONE; 3]);
    let whole = p.bytes(RING + 64 + 16, 48);
    assert_eq!(whole, [ONE_BYTES; 3].concat());
    assert_eq!(next(&p, 1), 2);
}

proptest! {
    /// A device that follows the links from slot 0 sees each receive in the order of posting, in
    /// whichever order receives came back.
    #[test]
    fn the_device_finds_receives_in_posting_order(steps in prop::collection::vec((any::<bool>(), 0..3_usize), 1..200)) {
        let p = Scripted::new();
        let mut q = queue(&p);
        let (mut out, mut device) = (Vec::new(), 0);
        for (post, which) in steps {
            // One slot is always free.
            if post && out.len() < 3 {
                prop_assert_eq!(q.next_token(), device);
                prop_assert!(!out.contains(&device));
                out.push(q.recv(&[]));
                device = next(&p, device);
            } else if !out.is_empty() {
                let token = out.remove(which % out.len());
                q.release(token);
            }
        }
    }
}

#[test]
fn a_list_as_long_as_the_slot_touches_no_other() {
    for len in [3, 7] {
        let p = Scripted::new();
        let mut q = queue(&p);
        for token in 0..3 {
            assert_eq!(q.recv(&vec![ONE; len]), token);
        }
        assert_eq!([0, 1, 2, 3].map(|slot| next(&p, slot)), [1, 2, 3, 0], "{len}");
        assert_eq!(p.bytes(RING + 64 * 2 + 16, 48), [ONE_BYTES; 3].concat());
        assert_eq!(p.bytes(RING + 64 * 3 + 16, 48), [0; 48]);
    }
}
