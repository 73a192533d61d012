//! Two engines over two wires, with model time moved to the next thing that is due.

use super::mock::*;
use crate::transport::host::*;
use crate::wire::frame::{Demux, demux};
use crate::wire::impair::{Impaired, OVERTAKE_LIMIT};
use crate::wire::switch::{Port, cable};
use crate::wire::{ModelClock, Wire};

pub(super) struct Link {
    pub(super) peers: [Peer; 2],
    pub(super) wires: [Impaired<Port>; 2],
    pub(super) clock: ModelClock,
    /// Frames a parser refused.
    pub(super) spoiled: u64,
}

impl Link {
    pub(super) fn new(seed: u64, change: impl Fn(&mut QpAttr)) -> Self {
        let clock = ModelClock::default();
        let (a, b) = cable();
        Self {
            peers: [Peer::with(1, &change), Peer::with(2, &change)],
            wires: [
                Impaired::new(a, clock.clone(), seed),
                Impaired::new(b, clock.clone(), seed ^ 0x5555),
            ],
            clock,
            spoiled: 0,
        }
    }

    /// Moves frames until there are none.
    fn run_until_idle(&mut self) {
        loop {
            let mut moved = false;
            for (peer, wire) in self.peers.iter_mut().zip(&mut self.wires) {
                peer.host.now = self.clock.now();
                while let Some(frame) = peer.host.frames.pop_front() {
                    wire.send(&frame);
                    moved = true;
                }
                while let Some(frame) = wire.recv() {
                    moved = true;
                    let own = peer.host.address.ip;
                    match demux(&frame, |net| net.dst == own) {
                        Demux::Roce(p) if p.bth.dest_qp == peer.attr.qpn => {
                            peer.engine.on_packet(&mut peer.host, &(*p).into());
                        }
                        Demux::Roce(_) | Demux::Ethernet | Demux::Drop(_) => self.spoiled += 1,
                    }
                }
            }
            if !moved {
                return;
            }
        }
    }

    /// Runs until nothing is due any more, or for `limit` of model time.
    pub(super) fn run(&mut self, limit: Nanos) {
        let end = self.clock.now() + limit;
        for peer in &mut self.peers {
            peer.ring();
        }
        loop {
            self.run_until_idle();
            // Frames held by the wire come out with time.
            self.clock.advance(OVERTAKE_LIMIT);
            self.run_until_idle();
            let due = self.peers.iter().filter_map(|p| p.engine.next_deadline()).min();
            let Some(due) = due else { return };
            let now = self.clock.now().max(due);
            if now > end {
                return;
            }
            self.clock.set(now);
            for peer in &mut self.peers {
                peer.host.now = now;
                if peer.engine.next_deadline().is_some_and(|t| t <= now) {
                    peer.engine.on_timer(&mut peer.host);
                }
            }
        }
    }
}

#[test]
fn a_clean_link_needs_no_timer() {
    let mut link = Link::new(1, |_| {});
    link.peers[0].host.memory[..3000].fill(3);
    link.peers[1].host.memory[0x8000..0x8800].fill(4);
    link.peers[1].post_recv(0x4000, 4000);
    link.peers[0].queue(send_from(0, 3000), |_| {});
    link.peers[0].queue(write_from(0, 2000, 0x6000), |_| {});
    link.peers[0].queue(read_into(0x5000, 0x800, 0x8000), |_| {});
    link.peers[0].queue(fetch_add(0x7000, 0x9000, 3), |_| {});
    link.run(10_000_000);
    assert_eq!(link.peers[0].send_results(), [(0, Ok(())), (1, Ok(())), (2, Ok(())), (3, Ok(()))]);
    assert_eq!(link.peers[1].recv_results(), [(0, Ok(3000))]);
    let theirs = &link.peers[1].host.memory;
    assert!(theirs[0x4000..0x4000 + 3000].iter().all(|b| *b == 3));
    assert!(theirs[0x6000..0x6000 + 2000].iter().all(|b| *b == 3));
    assert_eq!(theirs[0x9000], 3);
    assert!(link.peers[0].host.memory[0x5000..0x5800].iter().all(|b| *b == 4));
    assert!(link.clock.now() < 1_000_000);
}

#[test]
fn a_cut_wire_ends_in_retry_exceeded() {
    let mut link = Link::new(1, |a| (a.retry_count, a.ack_timeout) = (3, 10));
    link.wires[0].rule(0, u32::MAX, crate::wire::impair::Fault::Drop, |_| true);
    link.peers[0].queue(send(&[1]), |_| {});
    link.peers[0].queue(send(&[2]), |_| {});
    link.run(1_000_000_000);
    assert_eq!(
        link.peers[0].send_results(),
        [(0, Err(Syndrome::TransportRetryExceeded)), (1, Err(Syndrome::Flushed))]
    );
    assert_eq!(link.wires[0].struck().drop, 8, "two packets, four times");
}

#[test]
fn a_slow_receiver_is_waited_for() {
    let mut link = Link::new(1, |_| {});
    for n in 0..4 {
        link.peers[0].queue(send(&[n]), |_| {});
    }
    for n in 0..4 {
        link.run(300_000);
        assert_eq!(link.peers[1].recv_results().len(), n);
        link.peers[1].post_recv(0x100 + n as u64, 1);
    }
    link.run(1_000_000);
    assert_eq!(link.peers[0].send_results().len(), 4);
    assert_eq!(link.peers[1].host.memory[0x100..0x104], [0, 1, 2, 3]);
}
