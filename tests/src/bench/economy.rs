//! Work of the device per operation, counted by the model: no clock, no instruction, no noise.

use dat_core::{CompletionFlags, MemPriv};

use super::loops::BURST;
use super::stage::{Lane, Rig};

/// Operations counted.
const OPS: u64 = 64;

/// Per operation, at the side that posts.
#[derive(Clone, Copy, Debug)]
pub struct Economy {
    /// The case.
    pub name: &'static str,
    /// Stores to device registers; a 64-byte block is one.
    pub mmio_stores: f64,
    /// Bytes written to BlueFlame registers beyond a doorbell's 8.
    pub bf_bytes: f64,
    /// Reads of host memory by the device.
    pub dma_reads: f64,
    /// Writes of host memory by the device.
    pub dma_writes: f64,
    /// Completions.
    pub cqes: f64,
}

type Act = fn(&mut Rig, &mut Lane);

const NONE: CompletionFlags = CompletionFlags::empty();

fn reap(rig: &mut Rig, lane: &mut Lane, mut n: u64, receives: bool) {
    for _ in 0..100_000 {
        if n == 0 {
            return;
        }
        let reaper = if receives { &mut lane.receives } else { &mut lane.requests };
        match reaper.dequeue() {
            Ok(_) => n -= 1,
            Err(_) => rig.turn(),
        }
    }
    assert_eq!(n, 0, "so many events are missing");
}

fn wr8(rig: &mut Rig, lane: &mut Lane) {
    for n in 0..OPS {
        lane.poster.post_rdma_write(&lane.word, n, &lane.far, NONE).unwrap();
        reap(rig, lane, 1, false);
    }
}

fn wr256(rig: &mut Rig, lane: &mut Lane) {
    for n in 0..OPS {
        lane.poster.post_rdma_write(&lane.piece, n, &lane.far, NONE).unwrap();
        reap(rig, lane, 1, false);
    }
}

fn send256(rig: &mut Rig, lane: &mut Lane) {
    for n in 0..OPS {
        rig.peer_receives(lane);
        lane.poster.post_send(&lane.piece, n, NONE).unwrap();
        reap(rig, lane, 1, false);
    }
}

fn recv(rig: &mut Rig, lane: &mut Lane) {
    for n in 0..OPS {
        lane.poster.post_recv(&lane.piece, n, NONE).unwrap();
        rig.peer_sends(lane);
        reap(rig, lane, 1, true);
    }
}

fn burst(rig: &mut Rig, lane: &mut Lane) {
    for _ in 0..OPS / BURST {
        for n in 0..BURST {
            lane.poster.post_rdma_write(&lane.word, n, &lane.far, CompletionFlags::DEFER).unwrap();
        }
        lane.poster.ring();
        reap(rig, lane, BURST, false);
    }
}

fn unsignalled(rig: &mut Rig, lane: &mut Lane) {
    for _ in 0..OPS / BURST {
        for n in 1..BURST {
            let flags = CompletionFlags::DEFER | CompletionFlags::SUPPRESS;
            lane.poster.post_rdma_write(&lane.word, n, &lane.far, flags).unwrap();
        }
        lane.poster.post_rdma_write(&lane.word, 0, &lane.far, NONE).unwrap();
        reap(rig, lane, 1, false);
    }
}

fn bind(rig: &mut Rig, lane: &mut Lane) {
    for n in 0..OPS {
        lane.poster.rmr_bind(lane.rmr, &lane.piece[0], MemPriv::REMOTE_WRITE, n, NONE).unwrap();
        reap(rig, lane, 1, false);
    }
}

const ACTS: [(&str, Act); 7] = [
    ("wr8_rt1", wr8),
    ("wr256_rt1", wr256),
    ("send256_rt1", send256),
    ("recv_rt1", recv),
    ("wr8_b32", burst),
    ("unsig_1of32", unsignalled),
    ("rmr_bind", bind),
];

/// Counts them all.
///
/// # Panics
/// If an operation does not complete.
#[must_use]
pub fn all() -> Vec<Economy> {
    let mut rig = Rig::default();
    let mut lane = rig.lane();
    let stats = |rig: &Rig| rig.hosts[0].hca().stats().clone();
    ACTS.iter()
        .map(|&(name, act)| {
            let before = stats(&rig);
            act(&mut rig, &mut lane);
            let after = stats(&rig);
            let per = |after: u64, before: u64| (after - before) as f64 / OPS as f64;
            Economy {
                name,
                mmio_stores: per(after.mmio_stores, before.mmio_stores),
                bf_bytes: per(after.bf_bytes, before.bf_bytes),
                dma_reads: per(after.dma_reads, before.dma_reads),
                dma_writes: per(after.dma_writes, before.dma_writes),
                cqes: per(after.cqes, before.cqes),
            }
        })
        .collect()
}
