//! A peer's packets into a queue pair of the model, between work requests and time-outs: of every
//! service, in every order, with numbers that are right often enough to get deep.
//!
//! Each work request completes once and in order, and no packet is answered without end.

use arbitrary::{Arbitrary, Unstructured};
use mlx5_model::transport::host::{Datagram, Operation, QpAttr, QpKind, QpState, UmrWqe};
use mlx5_model::wire::frame::{Aeth, AtomicEth, Deth, Packet, Reth};
use mlx5_model::wire::opcode::{Opcode, Service};

use crate::input::{Patch, patch, seal, steps};

#[path = "../../model/src/transport/tests/mock.rs"]
#[expect(dead_code, reason = "the tests of the model use all of it")]
mod mock;

use mock::{NO_ATOMIC, Peer, RKEY, VA, fetch_add, read_into, send, send_from, write_from};

#[derive(Clone, Copy, Debug, Arbitrary)]
struct Setting {
    kind: u8,
    receiving_only: bool,
    lazy_umr: bool,
    reads: u8,
    retries: u8,
}

#[derive(Clone, Copy, Debug, Arbitrary)]
struct Numbers {
    opcode: u8,
    /// Which number of the engine the PSN is near to, and how near.
    base: u8,
    near: i8,
    va: u8,
    rkey: u8,
    len: u32,
    syndrome: u8,
    msn: u8,
    payload: u16,
    ack: bool,
}

#[derive(Debug, Arbitrary)]
enum Step {
    Post {
        operation: u8,
        len: u16,
    },
    Receive {
        len: u16,
    },
    Pass {
        millis: u16,
    },
    /// A packet, whose bytes are then changed.
    Packet(Numbers, [Option<Patch>; 2]),
    Doorbell,
    /// From ready-to-receive to ready-to-send.
    Ready,
}

/// Runs the target.
pub fn run(data: &[u8]) {
    let mut bytes = Unstructured::new(data);
    let Ok(setting) = bytes.arbitrary::<Setting>() else { return };
    let mut world = World::new(setting);
    steps(&mut bytes, 80).for_each(|step| world.step(step));
    world.end();
}

struct World {
    peer: Peer,
    posted: Vec<u16>,
    receives: Vec<u16>,
}

impl World {
    fn new(setting: Setting) -> Self {
        let kinds = [
            QpKind::Rc,
            QpKind::Rc,
            QpKind::Uc,
            QpKind::Ud,
            QpKind::Gsi,
            QpKind::XrcInitiator,
            QpKind::XrcTarget,
        ];
        let peer = Peer::with(1, |attr| {
            attr.kind = kinds[usize::from(setting.kind) % kinds.len()];
            attr.state = if setting.receiving_only { QpState::Rtr } else { QpState::Rts };
            attr.mtu = 256;
            attr.lazy_umr = setting.lazy_umr;
            attr.max_dest_rd_atomic = (setting.reads & 7).into();
            (attr.retry_count, attr.rnr_retry) = (setting.retries & 7, setting.retries >> 4 & 7);
        });
        Self { peer, posted: Vec::new(), receives: Vec::new() }
    }

    fn step(&mut self, step: Step) {
        let peer = &mut self.peer;
        match step {
            Step::Post { operation, len } => {
                let len = u32::from(len) % 5000;
                let av = Datagram { path: peer.attr.path, qpn: 5, qkey: 1 };
                let operation = match operation % 9 {
                    0 => send(&vec![1; len as usize % 900]),
                    1 => write_from(0, len, 0),
                    2 => read_into(0, len, 0),
                    3 => fetch_add(0, 0, 1),
                    4 => Operation::Umr(UmrWqe { mkey: 1, fence: 0, segments: Vec::new() }),
                    5 => Operation::LocalInvalidate(3),
                    6 => Operation::Nop,
                    7 => send_from(0, len),
                    _ => send(&[]),
                };
                let xrc =
                    matches!(peer.attr.kind, QpKind::XrcInitiator | QpKind::XrcTarget).then_some(7);
                self.posted.push(peer.queue(operation, |w| {
                    (w.bbs, w.av, w.xrc_srqn) = (2, Some(av), xrc);
                }));
                peer.ring();
            }
            Step::Receive { len } => {
                self.receives.push(peer.post_recv(0, len.into()));
                peer.engine.on_receive_posted(&mut peer.host);
            }
            Step::Pass { millis } => {
                peer.host.now += u64::from(millis) * 1_000_000;
                peer.engine.on_timer(&mut peer.host);
            }
            Step::Packet(numbers, patches) => {
                let mut frame = numbers.packet(peer).build();
                patch(&mut frame, &patches);
                seal(&mut frame);
                // Through bytes, so that what a parser refuses does not get to the engine.
                if let Ok(packet) = Packet::parse(&frame) {
                    peer.engine.on_packet(&mut peer.host, &packet.into());
                    assert!(peer.take().len() <= 1000, "one packet is answered without end");
                }
            }
            Step::Doorbell => peer.ring(),
            Step::Ready => {
                if peer.engine.state() == QpState::Rtr {
                    peer.engine.configure(&QpAttr { state: QpState::Rts, ..peer.attr });
                }
            }
        }
        peer.host.log.clear();
        peer.host.frames.clear();
    }

    fn end(mut self) {
        let peer = &mut self.peer;
        peer.engine.to_error(&mut peer.host);
        let done: Vec<u16> = peer.host.sent.iter().map(|done| done.index).collect();
        assert_eq!(done, self.posted, "every send completes once, in order");
        let done: Vec<u16> = peer.host.received.iter().map(|done| done.index).collect();
        assert_eq!(done, self.receives, "every receive completes once, in order");
        assert_eq!(peer.engine.next_deadline(), None);
    }
}

impl Numbers {
    fn packet(&self, peer: &Peer) -> Packet {
        let opcode = Opcode::ALL[usize::from(self.opcode) % Opcode::ALL.len()];
        let base = match self.base % 4 {
            0 => peer.engine.send_psn(),
            3 => u32::from(self.base) << 16,
            _ => peer.engine.receive_psn(),
        };
        let psn = base.wrapping_add_signed(self.near.into()) & 0xff_ffff;
        let mut packet = peer.incoming(opcode, psn);
        let headers = opcode.headers();
        let va = [VA, VA, VA + 1, VA + 4096, 0, u64::MAX - 7][usize::from(self.va) % 6];
        let rkey = [RKEY, RKEY, NO_ATOMIC, 0xdead][usize::from(self.rkey) % 4];
        packet.bth.service = match peer.attr.kind {
            QpKind::Uc => Service::Uc,
            QpKind::Ud | QpKind::Gsi | QpKind::Smi => Service::Ud,
            QpKind::XrcInitiator | QpKind::XrcTarget => Service::Xrc,
            QpKind::Rc | QpKind::RegUmr => packet.bth.service,
        };
        packet.ext.xrc_srqn = (packet.bth.service == Service::Xrc).then_some(7);
        packet.ext.reth = headers.reth.then_some(Reth { va, rkey, len: self.len });
        packet.ext.atomic =
            headers.atomic.then_some(AtomicEth { va, rkey, swap_add: 1, compare: 0 });
        let aeth = Aeth { syndrome: self.syndrome, msn: self.msn.into() };
        packet.ext.aeth = headers.aeth.then_some(aeth);
        packet.ext.atomic_ack = headers.atomic_ack.then_some(5);
        packet.ext.deth = headers.deth.then_some(Deth { qkey: 0x1111, src_qp: 3 });
        packet.ext.imm = headers.imm.then_some(1);
        packet.ext.ieth = headers.ieth.then_some(rkey);
        packet.payload = vec![0xab; usize::from(self.payload) % 4200];
        packet.bth.ack_req = self.ack;
        packet
    }
}
