//! Frames of the link into a whole host: ARP, datagrams to QP1, packets to queue pairs and anything
//! else, between what a consumer does. It goes on, and its Endpoint keeps what it posted.

use std::net::IpAddr;

use arbitrary::{Arbitrary, Unstructured};
use dat_tests::attack::mad::Req;
use dat_tests::attack::{Cm, Mad, arp, datagram, roce};
use dat_tests::bringup::absent_peer;
use mlx5_model::wire::Wire as _;
use mlx5_model::wire::frame::{Aeth, AtomicEth, Reth};
use mlx5_model::wire::opcode::Opcode;

use crate::input::{Patch, patch, seal, steps};
use crate::lone::{self, Lone, PEER, PORT};

#[derive(Debug, Arbitrary)]
enum Step<'a> {
    Any(&'a [u8]),
    Arp {
        operation: u8,
        from: u8,
        own: bool,
        patches: [Option<Patch>; 2],
    },
    /// A datagram to QP1 of any length.
    Datagram {
        from: u8,
        payload: &'a [u8],
    },
    Request {
        from: u8,
        number: u8,
        port: bool,
        patches: [Option<Patch>; 2],
    },
    Mad {
        kind: u8,
        from: u8,
        ids: [u8; 2],
        patches: [Option<Patch>; 3],
    },
    Packet {
        opcode: u8,
        near: i8,
        len: u16,
        syndrome: u8,
        patches: [Option<Patch>; 2],
    },
    Post {
        kind: u8,
        len: u16,
        flags: u8,
    },
    Events,
    Turn {
        micros: u16,
    },
    Connect,
}

/// Runs the target.
pub fn run(data: &[u8]) {
    lone::with(data, |lone| {
        let own = lone.ia.provider_mut().device().identity().mac;
        for step in steps(&mut Unstructured::new(data), 64) {
            make(lone, own, step);
            lone.turn(2_000);
        }
        for _ in 0..20 {
            lone.turn(100_000);
            lone.events();
        }
        assert!(lone.ia.lost().is_none(), "{:?}", lone.ia.lost());
    });
}

fn host(n: u8) -> IpAddr {
    if n < 128 { PEER.0 } else { IpAddr::from([192, 168, 7, n]) }
}

fn make(lone: &mut Lone<'_>, own: [u8; 6], step: Step<'_>) {
    let here = IpAddr::from([192, 168, 7, 1]);
    let macs = [PEER.1, own];
    match step {
        Step::Any(frame) => lone.peer.send(frame),
        Step::Arp { operation, from, own: same, patches } => {
            let (IpAddr::V4(from), IpAddr::V4(here)) = (host(from), here) else { return };
            let to = if same { here } else { from };
            let mut frame = arp(macs, operation.into(), (PEER.1, from), ([0; 6], to));
            patch(&mut frame, &patches);
            lone.peer.send(&frame);
        }
        Step::Datagram { from, payload } => {
            lone.peer.send(&datagram(macs, [host(from), here], payload));
        }
        Step::Request { from, number, port, patches } => {
            let addrs = [host(from), here];
            let port = if port { PORT } else { 99 };
            let mut mad = Req::new(number.into(), port, addrs).mad();
            patch(&mut mad.0, &patches);
            lone.peer.send(&datagram(macs, addrs, &mad.0));
        }
        Step::Mad { kind, from, ids, patches } => {
            let kind = Cm::ALL[usize::from(kind) % Cm::ALL.len()];
            let mut mad = Mad::between(kind, 7, ids.map(u32::from));
            patch(&mut mad.0, &patches);
            lone.peer.send(&datagram(macs, [host(from), here], &mad.0));
        }
        Step::Packet { opcode, near, len, syndrome, patches } => {
            let opcode = Opcode::ALL[usize::from(opcode) % Opcode::ALL.len()];
            let qpn = lone.device().qps.last().map_or(0, |qp| qp.number);
            let psn = absent_peer().rq_psn.wrapping_add_signed(near.into());
            let mut packet = roce(macs, [PEER.0, here], opcode, qpn, psn);
            let (va, rkey) = (lone.lmr.region.addr, lone.lmr.rmr_context);
            let headers = opcode.headers();
            packet.ext.reth = headers.reth.then_some(Reth { va, rkey, len: len.into() });
            let atomic = AtomicEth { va, rkey, swap_add: 1, compare: 0 };
            packet.ext.atomic = headers.atomic.then_some(atomic);
            packet.ext.aeth = headers.aeth.then_some(Aeth { syndrome, msn: 1 });
            packet.ext.atomic_ack = headers.atomic_ack.then_some(5);
            packet.ext.imm = headers.imm.then_some(1);
            packet.ext.ieth = headers.ieth.then_some(rkey);
            packet.payload = vec![0xab; usize::from(len) % 1100];
            let mut frame = packet.build();
            patch(&mut frame, &patches);
            seal(&mut frame);
            lone.peer.send(&frame);
        }
        Step::Post { kind, len, flags } => lone.post(kind, len, flags),
        Step::Events => lone.events(),
        Step::Turn { micros } => lone.turn(u64::from(micros) * 1_000 + 1),
        Step::Connect => {
            let _ = lone.ia.ep_reset(lone.ep);
            lone.connect();
        }
    }
}
