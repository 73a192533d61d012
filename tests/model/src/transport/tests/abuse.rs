//! Random nonsense, well framed: no panic, no endless loop, no unbounded queue, and one
//! completion for each work request in the end.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::mock::*;
use crate::transport::host::*;
use crate::wire::frame::{Aeth, AtomicEth, Deth, Packet, Reth};
use crate::wire::opcode::Opcode;

/// A packet of any opcode whose numbers are plausible often enough to get deep.
fn nonsense(rng: &mut SmallRng, peer: &Peer) -> Packet {
    let opcode = Opcode::ALL[rng.random_range(0..Opcode::ALL.len())];
    let base = match rng.random_range(0..8) {
        0 => rng.random_range(0..1 << 24),
        1..4 => peer.engine.send_psn(),
        _ => peer.engine.receive_psn(),
    };
    let near = [0, 0, 0, 1, 2, 0xff_ffff, 0xff_fffe, 0xff_fffd][rng.random_range(0..8)];
    let mut p = peer.incoming(opcode, (base + near) & 0xff_ffff);
    let h = opcode.headers();
    let va = [VA, VA + 1, VA + 4096, 0, u64::MAX - 7][rng.random_range(0..5)];
    let rkey = [RKEY, RKEY, NO_ATOMIC, 0xdead][rng.random_range(0..4)];
    let len = [0, 4, 256, 300, 5000, 1 << 31, u32::MAX][rng.random_range(0..7)];
    let syndrome = [0x1f, 0, 0x20, 0x21, 0x60, 0x61, 0x62, 0x63, 0x64, 0x7f, 0x80, 0xff];
    p.ext.reth = h.reth.then_some(Reth { va, rkey, len });
    p.ext.atomic = h.atomic.then_some(AtomicEth { va, rkey, swap_add: 1, compare: 0 });
    p.ext.aeth = h
        .aeth
        .then(|| Aeth { syndrome: syndrome[rng.random_range(0..12)], msn: rng.random_range(0..9) });
    p.ext.atomic_ack = h.atomic_ack.then_some(5);
    p.ext.deth = h.deth.then_some(Deth { qkey: 0x1111, src_qp: 3 });
    p.ext.imm = h.imm.then_some(1);
    p.ext.ieth = h.ieth.then_some(rkey);
    let bytes = [0, 0, 4, 7, 256, 256, 256, 257, 4100][rng.random_range(0..9)];
    p.payload = vec![0xab; bytes];
    p.bth.ack_req = rng.random_bool(0.5);
    p
}

fn operation(rng: &mut SmallRng) -> Operation {
    match rng.random_range(0..8) {
        0 => send(&[1; 700]),
        1 => write_from(0, 600, 0),
        2 => read_into(0, 700, 0),
        3 => fetch_add(0, 0, 1),
        4 => Operation::Umr(UmrWqe { mkey: 1, fence: 0, segments: Vec::new() }),
        5 => Operation::LocalInvalidate(3),
        6 => Operation::Nop,
        _ => send(&[]),
    }
}

fn torture(seed: u64, kind: QpKind) {
    let mut rng = SmallRng::seed_from_u64(seed);
    let state = if rng.random_bool(0.2) { QpState::Rtr } else { QpState::Rts };
    let lazy_umr = rng.random_bool(0.5);
    let mut peer = Peer::with(1, |a| {
        (a.kind, a.state, a.mtu, a.lazy_umr) = (kind, state, 256, lazy_umr);
        a.max_dest_rd_atomic = 2;
        (a.retry_count, a.rnr_retry) = (3, 3);
    });
    let mut posted = Vec::new();
    let mut receives = Vec::new();
    for _ in 0..300 {
        match rng.random_range(0..10) {
            0 => {
                let op = operation(&mut rng);
                let av = Datagram { path: peer.attr.path, qpn: 5, qkey: 1 };
                posted.push(peer.queue(op, |w| (w.bbs, w.av) = (2, Some(av))));
                peer.ring();
            }
            1 => receives.push(peer.post_recv(0, 900)),
            2 => {
                peer.host.now += 100_000_000;
                peer.engine.on_timer(&mut peer.host);
            }
            _ => {
                let p = nonsense(&mut rng, &peer);
                assert!(peer.deliver(&p).len() <= 1000);
            }
        }
    }
    peer.engine.to_error(&mut peer.host);
    let done: Vec<u16> = peer.host.sent.iter().map(|c| c.index).collect();
    assert_eq!(done, posted, "seed {seed}: every send completes once, in order");
    let done: Vec<u16> = peer.host.received.iter().map(|c| c.index).collect();
    assert_eq!(done, receives, "seed {seed}: every receive completes once, in order");
    assert_eq!(peer.engine.next_deadline(), None);
}

#[test]
fn reliable_connections_stand_it() {
    for seed in 0..1500 {
        torture(seed, QpKind::Rc);
    }
}

#[test]
fn datagram_queues_stand_it() {
    for seed in 0..300 {
        torture(seed, QpKind::Ud);
        torture(seed, QpKind::Gsi);
    }
}

/// The longest queue a 16-bit counter can tell of, all of it rubbish.
#[test]
fn a_queue_full_of_rubbish() {
    let mut peer = Peer::new(1);
    for index in 0..=u16::MAX {
        peer.host
            .sq
            .insert(index, Err(BadWqe { syndrome: Syndrome::LocalQpOperation, bbs: 0, opcode: 0 }));
    }
    // The tail lies one before the head: 65,535 entries, each said to be 0 WQEBBs long.
    peer.host.sq_tail = u16::MAX;
    peer.engine.on_doorbell(&mut peer.host);
    assert_eq!(peer.host.sent.len(), 65_535);
    assert_eq!(peer.host.sent[0].result, Err(Syndrome::LocalQpOperation));
    assert_eq!(peer.host.sent[65_534].index, 65_534);
}

#[test]
fn attributes_out_of_range() {
    let mut peer = Peer::with(1, |a| {
        (a.mtu, a.window, a.sq_psn, a.rq_psn) = (0, 0, u32::MAX, u32::MAX);
        (a.log_msg_max, a.ack_timeout, a.retry_count) = (255, 255, 255);
        (a.min_rnr_nak, a.remote_qpn) = (255, u32::MAX);
    });
    peer.post(send(&[0; 600]));
    assert_eq!(brief(&peer.take()), [(Opcode::SendFirst, 0xff_ffff, None)]);
    let p = peer.incoming(Opcode::SendOnly, 0xff_ffff);
    assert_eq!(brief(&peer.deliver(&p)), [(Opcode::Ack, 0xff_ffff, Some(0x3f))]);
}
