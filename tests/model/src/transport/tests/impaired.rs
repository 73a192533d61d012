//! Random traffic over bad wires: everything arrives bit for bit, once, in order.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::link::Link;
use super::mock::*;
use crate::transport::host::*;
use crate::wire::frame::Packet;
use crate::wire::impair::{Fault, Rates};
use crate::wire::opcode::Opcode;

const MESSAGES: usize = 60;
const SLOT: u64 = 1000;

/// Where the results of READs and atomics go; own data stands below.
const RESULTS: u64 = 60_000;
/// Where SENDs and WRITEs of the peer arrive.
const ARRIVALS: u64 = 120_000;
/// Address that the peer's atomics increment.
const COUNTER: u64 = 180_000;

/// Both sides send MESSAGES messages of random kind and length, up to 1000 bytes at an MTU of 256.
fn traffic(seed: u64, rates: Rates, psn: u32) {
    let mut link = Link::new(seed, |a| {
        let start = |qpn: u32| psn.wrapping_add(qpn * 3) & 0xff_ffff;
        (a.sq_psn, a.rq_psn) = (start(a.qpn), start(a.remote_qpn));
        (a.mtu, a.window, a.ack_timeout) = (256, 32, 8);
    });
    for wire in &mut link.wires {
        wire.set_rates(rates);
    }
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut sends: [Vec<(u64, u32)>; 2] = Default::default();
    let mut adds = [0u64; 2];
    let mut plans: [Vec<(u8, u32)>; 2] = Default::default();
    for side in 0..2 {
        rng.fill(&mut link.peers[side].host.memory[..RESULTS as usize]);
        for slot in 0..MESSAGES as u64 {
            let at = slot * SLOT;
            let len = rng.random_range(0..=SLOT as u32);
            let kind = rng.random_range(0..4u8);
            plans[side].push((kind, len));
            let op = match kind {
                0 => {
                    sends[side].push((at, len));
                    link.peers[1 - side].post_recv(ARRIVALS + at, len);
                    send_from(at, len)
                }
                1 => write_from(at, len, ARRIVALS + at),
                2 => read_into(RESULTS + at, len, at),
                _ => {
                    adds[side] += 1;
                    fetch_add(RESULTS + at, COUNTER, 1)
                }
            };
            let fence = if rng.random_range(0..8) == 0 { Fence::Fence } else { Fence::None };
            link.peers[side].queue(op, |w| w.fence = fence);
        }
    }
    link.run(60_000_000_000);
    for side in 0..2 {
        let (me, other) = (&link.peers[side], &link.peers[1 - side]);
        let expected: Vec<_> = (0..MESSAGES as u16).map(|i| (i, Ok(()))).collect();
        assert_eq!(me.send_results(), expected, "seed {seed} side {side}");
        let lens: Vec<_> =
            sends[side].iter().enumerate().map(|(i, (_, len))| (i as u16, Ok(*len))).collect();
        assert_eq!(other.recv_results(), lens, "seed {seed} side {side}");
        let mut seen = 0;
        for (slot, (kind, len)) in plans[side].iter().enumerate() {
            let at = slot * SLOT as usize;
            let span = |base: u64| base as usize + at..base as usize + at + *len as usize;
            match kind {
                0 | 1 => assert!(
                    me.host.memory[span(0)] == other.host.memory[span(ARRIVALS)],
                    "seed {seed} slot {slot}"
                ),
                2 => assert!(
                    me.host.memory[span(RESULTS)] == other.host.memory[span(0)],
                    "seed {seed} slot {slot}"
                ),
                _ => {
                    let result = &me.host.memory[RESULTS as usize + at..][..8];
                    assert_eq!(u64::from_be_bytes(result.try_into().unwrap()), seen);
                    seen += 1;
                }
            }
        }
        let counter = &other.host.memory[COUNTER as usize..][..8];
        assert_eq!(u64::from_le_bytes(counter.try_into().unwrap()), adds[side], "once each");
        assert_eq!(me.engine.state(), QpState::Rts);
    }
    let struck: Vec<_> = link.wires.iter().map(|w| w.struck()).collect();
    if rates != Rates::default() {
        assert!(struck.iter().any(|s| *s != crate::wire::impair::Struck::default()));
    }
}

#[test]
fn clean() {
    for seed in 0..20 {
        traffic(seed, Rates::default(), 1000);
    }
}

#[test]
fn loss() {
    for seed in 0..20 {
        traffic(seed, Rates { drop: 100, ..Rates::default() }, 1000);
    }
}

#[test]
fn duplicates() {
    for seed in 0..20 {
        traffic(seed, Rates { duplicate: 150, ..Rates::default() }, 1000);
    }
}

#[test]
fn other_partitions() {
    for seed in 0..20 {
        traffic(seed, Rates { pkey: 100, ..Rates::default() }, 1000);
    }
}

#[test]
fn reordering() {
    for seed in 0..20 {
        traffic(seed, Rates { reorder: 150, ..Rates::default() }, 1000);
    }
}

#[test]
fn spoiled_bits() {
    for seed in 0..20 {
        traffic(seed, Rates { corrupt: 100, ..Rates::default() }, 1000);
    }
}

#[test]
fn all_at_once_and_over_the_psn_wrap() {
    for seed in 0..40 {
        let rates = Rates { drop: 40, duplicate: 40, corrupt: 20, reorder: 40, pkey: 20 };
        traffic(seed, rates, 0xff_ff00u32.wrapping_sub(0x303));
    }
}

fn opcode(frame: &[u8]) -> Option<Opcode> {
    Packet::parse(frame).ok().map(|p| p.bth.opcode)
}

/// One packet of each kind lost in turn.
#[test]
fn each_kind_of_packet_may_be_lost() {
    for lost in [
        Opcode::SendMiddle,
        Opcode::SendLast,
        Opcode::WriteFirst,
        Opcode::WriteLast,
        Opcode::ReadRequest,
        Opcode::ReadFirst,
        Opcode::ReadMiddle,
        Opcode::ReadLast,
        Opcode::Ack,
        Opcode::FetchAdd,
        Opcode::AtomicAck,
    ] {
        let mut link = Link::new(1, |_| {});
        for wire in &mut link.wires {
            wire.rule(0, 1, Fault::Drop, move |f| opcode(f) == Some(lost));
        }
        link.peers[0].host.memory[..4000].fill(1);
        link.peers[1].host.memory[..4000].fill(2);
        link.peers[1].post_recv(0x4000, 4000);
        link.peers[0].queue(send_from(0, 4000), |_| {});
        link.peers[0].queue(write_from(0, 4000, 0x6000), |_| {});
        link.peers[0].queue(read_into(0x8000, 4000, 0), |_| {});
        link.peers[0].queue(fetch_add(0x7000, 0xa000, 1), |_| {});
        link.run(1_000_000_000);
        let drops: u64 = link.wires.iter().map(|w| w.struck().drop).sum();
        assert_eq!(drops, 1, "{lost:?}");
        let done: Vec<_> = (0..4).map(|i| (i, Ok(()))).collect();
        assert_eq!(link.peers[0].send_results(), done, "{lost:?}");
        assert!(link.peers[0].host.memory[0x8000..0x8000 + 4000].iter().all(|b| *b == 2));
        assert_eq!(link.peers[1].host.memory[0xa000], 1);
    }
}
