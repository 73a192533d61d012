//! Relaxed ordering: the key's bits, and what memory shows before a completion.

use super::orders::{pair, raddr};
use super::{DATA, QP_DBR, QP_PAGE, Rig, control, pointer};
use crate::config::Config;
use crate::ifc::mkey::{mkc, query_mkey_out};
use crate::relaxed::Order;

const LEN: usize = 1024;
const TO: u64 = DATA + 0x800;

fn relaxed(context: &mut [u8]) {
    mkc::relaxed_ordering_write.set(context, 1);
}

#[test]
fn the_bits_need_their_capabilities_and_are_shown() {
    for (name, field, caps) in [
        ("relaxed_ordering_write", mkc::relaxed_ordering_write, [0, 1]),
        ("relaxed_ordering_read", mkc::relaxed_ordering_read, [1, 0]),
    ] {
        let general_caps =
            ["relaxed_ordering_write", "relaxed_ordering_read"].into_iter().zip(caps).collect();
        let mut rig = Rig::with(Config { general_caps, ..Config::default() });
        let refused = rig.key(|c| field.set(c, 1)).unwrap_err();
        assert_eq!(refused.status, 3, "{name}");
        let mut rig = Rig::new();
        let key = rig.key(|c| field.set(c, 1)).unwrap();
        let mut output = vec![0; 304];
        let mut input = vec![0; 16];
        input[8..12].copy_from_slice(&(key >> 8).to_be_bytes());
        rig.query(0x201, &input, &mut output).unwrap();
        let context = query_mkey_out::memory_key_mkey_entry.bytes(&output);
        let bits = [mkc::relaxed_ordering_write, mkc::relaxed_ordering_read];
        assert_eq!(bits.map(|bit| bit.is_set(context)), bits.map(|bit| bit == field), "{name}");
    }
}

/// A connected pair, and an RDMA WRITE of 1 KiB with a completion or without.
fn write(seed: u64, edit: impl FnOnce(&mut [u8]), signaled: bool) -> Rig {
    write_in(seed, Order::Scattered, edit, signaled)
}

fn write_in(seed: u64, order: Order, edit: impl FnOnce(&mut [u8]), signaled: bool) -> Rig {
    use rand::SeedableRng;
    let (mut rig, a, _) = pair();
    rig.hca.bus.relaxed.order = order;
    rig.hca.bus.rng = rand::rngs::SmallRng::seed_from_u64(seed);
    let (from, to) = (rig.key(|_| {}).unwrap(), rig.key(edit).unwrap());
    rig.poke(DATA, &[0x77; LEN]);
    let mut wqe = control(8, 0, a, 3, 0);
    wqe[11] = if signaled { 8 } else { 0 };
    wqe.extend(raddr(TO, to));
    wqe.extend(pointer(LEN as u32, from, DATA));
    rig.poke(QP_PAGE + 256, &wqe);
    rig.poke32(QP_DBR + 4, 1);
    rig.ring(a);
    rig
}

/// Whether the first byte and the last are there.
fn ends(rig: &mut Rig) -> (bool, bool) {
    let bytes = rig.peek(TO, LEN);
    (bytes[0] == 0x77, bytes[LEN - 1] == 0x77)
}

#[test]
fn the_last_byte_may_be_there_before_the_first() {
    let mut overtaken = 0;
    for seed in 0..32 {
        let mut rig = write(seed, relaxed, false);
        let due = rig.hca.step(0);
        let (first, last) = ends(&mut rig);
        assert!(last, "the last piece comes at once");
        overtaken += u32::from(!first);
        if rig.peek(TO, LEN) != [0x77; LEN] {
            let due = due.unwrap();
            rig.hca.step(due);
        }
        assert_eq!(rig.peek(TO, LEN), [0x77; LEN], "after a while all of it");
    }
    assert!((1..32).contains(&overtaken), "{overtaken}");
}

/// The open fact `relaxed-writes`.
#[test]
fn the_order_may_be_the_worst_or_none() {
    for (facts, first) in [("relaxed-writes=last-first", false), ("relaxed-writes=in-order", true)]
    {
        let order = Order::of(&facts.parse().unwrap());
        for seed in 0..8 {
            let mut rig = write_in(seed, order, relaxed, false);
            rig.hca.step(0);
            assert_eq!(ends(&mut rig), (first, true), "{facts}");
            rig.hca.flr();
            assert_eq!(rig.hca.bus.relaxed.order, order, "after a reset");
        }
    }
}

#[test]
fn a_completion_comes_after_all_of_the_payload() {
    for seed in 0..32 {
        let mut rig = write(seed, relaxed, true);
        rig.hca.step(0);
        assert_eq!(rig.cqe(0)[0x3f], 0);
        assert_eq!(rig.peek(TO, LEN), [0x77; LEN]);
    }
}

#[test]
fn a_read_of_the_bar_pushes_the_payload() {
    for seed in 0..32 {
        let mut rig = write(seed, relaxed, false);
        rig.hca.step(0);
        rig.hca.bar_read(0, &mut [0; 4]);
        assert_eq!(rig.peek(TO, LEN), [0x77; LEN]);
    }
}

#[test]
fn without_the_bit_of_the_key_or_of_the_function_nothing_is_overtaken() {
    for seed in 0..32 {
        let mut rig = write(seed, |_| {}, false);
        rig.hca.step(0);
        assert_eq!(rig.peek(TO, LEN), [0x77; LEN]);
        let mut rig = write(seed, relaxed, false);
        rig.hca.bus.relaxed.enabled = false;
        rig.hca.step(0);
        assert_eq!(rig.peek(TO, LEN), [0x77; LEN]);
    }
}

#[test]
fn a_window_is_as_relaxed_as_the_key_below() {
    use super::super::mkey::Access;
    let mut rig = Rig::new();
    let below = rig.key(relaxed).unwrap();
    let window = rig
        .key(|c| {
            mkc::access_mode_1_0.set(c, 2);
            mkc::len.set64(c, 0x100);
        })
        .unwrap();
    let key = rig.hca.objects.tpt.get_mut(window >> 8).unwrap();
    key.translation = vec![0x100 << 32 | u64::from(below), DATA];
    let access = Access { key: window, va: DATA, len: 8, rights: 0, pd: rig.pd, qpn: 9 };
    let runs = rig.hca.objects.tpt.resolve(&access).unwrap();
    assert!(runs[0].relaxed);
}

/// An address space ends: a page that a guest puts across its end is refused, relaxed or not.
#[test]
fn a_page_across_the_end_of_addresses_is_refused() {
    for relaxed in [0, 1] {
        let (mut rig, a, _) = pair();
        let from = rig.key(|_| {}).unwrap();
        let top = |context: &mut [u8]| {
            mkc::relaxed_ordering_write.set(context, relaxed);
            mkc::log_page_size.set(context, 13);
            mkc::start_addr.set64(context, 0);
            mkc::len.set64(context, 0x2000);
        };
        let to = rig.key_on(!0xfff, top).unwrap();
        let mut wqe = control(8, 0, a, 3, 0);
        wqe.extend(raddr(0xe00, to));
        wqe.extend(pointer(LEN as u32, from, DATA));
        rig.poke(QP_PAGE + 256, &wqe);
        rig.poke32(QP_DBR + 4, 1);
        rig.ring(a);
        rig.hca.step(0);
        assert_eq!(rig.cqe(0)[0x3f] >> 4, 13, "the requester's error");
        assert_eq!(rig.cqe(0)[0x37], 0x13, "remote access");
    }
}
