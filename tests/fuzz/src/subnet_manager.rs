//! Management datagrams into the built-in subnet manager: from the own port's agent, from the other
//! end of the cable and by QP1, with time between them, true answers among them.
//!
//! It has a deadline unless it was disabled, repeats itself within bounds, answers nobody but the
//! two ports, and says what it dropped.

use std::time::Duration;

use arbitrary::{Arbitrary, Unstructured};
use dat_core::Instant;
use hca_mlx5::net::ib::sm::{Config, Destination, Interface, Side, Source, State, SubnetManager};

use crate::input::{Patch, patch, steps};

/// Datagrams that wait to be sent, at most: answers and a request.
const MOST: usize = 9;
const OWN: u64 = 0x0002_c903_0000_0011;
const PEER: u64 = 0x0002_c903_0000_0022;

#[derive(Debug, Arbitrary)]
enum Step<'a> {
    Any {
        own: bool,
        general: bool,
        bytes: &'a [u8],
    },
    /// The last request is answered, with changes.
    Answer {
        patches: [Option<Patch>; 3],
    },
    /// All requests are answered as they should, so many.
    Obey {
        count: u8,
    },
    Smp {
        own: bool,
        lid: u8,
        class: bool,
        method: u8,
        attribute: u8,
        modifier: u8,
        patches: [Option<Patch>; 3],
    },
    Sa {
        lid: u8,
        method: u8,
        attribute: u8,
        mask: u32,
        patches: [Option<Patch>; 4],
    },
    Pass {
        millis: u16,
    },
    Link {
        up: bool,
    },
}

struct World {
    manager: SubnetManager,
    now: Instant,
    /// The last request of the manager, and PortInfo of both ports.
    last: Option<(Side, [u8; 256])>,
    ports: [[u8; 64]; 2],
    sent: u32,
}

/// Runs the target.
pub fn run(data: &[u8]) {
    let config = Config { port: 1, priority: 0, first_tid: 0x1100 };
    let mut port = [0; 64];
    // Width, speed, state, MTU and lanes, as PortInfo has them (IBTA volume 1, 14.2.5.6).
    for (at, byte) in [(30, 2), (31, 2), (32, 0x12), (35, 0x41), (36, 0x40), (37, 0x40), (41, 5)] {
        port[at] = byte;
    }
    let manager = SubnetManager::new(config);
    let mut world = World { manager, now: Instant::ZERO, last: None, ports: [port; 2], sent: 0 };
    world.manager.link_changed(world.now, true);
    for step in steps(&mut Unstructured::new(data), 96) {
        world.step(step);
        world.look();
    }
    // Nobody answers any more: it repeats itself, slowly.
    let (end, before) = (world.now + Duration::from_secs(120), world.sent);
    for _ in 0..10_000 {
        let Some(due) = world.manager.next_deadline().filter(|due| *due <= end) else { break };
        world.now = world.now.max(due);
        world.manager.advance(world.now);
        world.look();
    }
    assert!(world.manager.next_deadline().is_none_or(|due| due > end), "it never rests");
    assert!(world.sent - before <= 300, "{} datagrams in two minutes", world.sent - before);
}

impl World {
    fn source(&self, interface: Interface, side: Side, lid: u16) -> Source {
        Source { interface, side, lid, qpn: 1 }
    }

    fn step(&mut self, step: Step<'_>) {
        let before = self.manager.counters();
        let lid = |code: u8| [0, 1, 2, 3, 0xc000, 0xffff, 0xbfff, 9][usize::from(code % 8)];
        let sides = |own: bool| if own { Side::Own } else { Side::Peer };
        match step {
            Step::Any { own, general, bytes } => {
                let interface = if general { Interface::Gsi } else { Interface::Smi };
                self.manager.input(self.now, self.source(interface, sides(own), 1), bytes);
                if bytes.len() != 256 {
                    assert_eq!(self.manager.counters().malformed, before.malformed + 1);
                }
            }
            Step::Answer { patches } => self.answer(&patches),
            Step::Obey { count } => {
                for _ in 0..count % 24 {
                    self.answer(&[]);
                    self.look();
                }
            }
            Step::Smp { own, lid: code, class, method, attribute, modifier, patches } => {
                let mut mad = [0; 256];
                let class = if class { 0x81 } else { 1 };
                let method = [1, 2, 5, 7, 0x81, method][usize::from(method % 6)];
                mad[..4].copy_from_slice(&[1, class, 1, method]);
                mad[6..8].copy_from_slice(&[1, 1]);
                mad[17] = [2, 0x11, 0x15, 0x20, attribute][usize::from(attribute % 5)];
                mad[23] = modifier % 8;
                patch(&mut mad, &patches);
                let source = self.source(Interface::Smi, sides(own), lid(code));
                self.manager.input(self.now, source, &mad);
            }
            Step::Sa { lid: code, method, attribute, mask, patches } => {
                let mut mad = [0; 256];
                let method = [1, 2, 0x12, 0x15, method][usize::from(method % 5)];
                mad[..4].copy_from_slice(&[1, 3, 2, method]);
                mad[17] = [1, 3, 0x35, 0x38, attribute][usize::from(attribute % 5)];
                mad[52..56].copy_from_slice(&mask.to_be_bytes());
                let gids = [OWN, PEER].map(|guid| 0xfe80_u128 << 112 | u128::from(guid));
                let own = usize::from(code & 1);
                if mad[17] == 0x38 {
                    let mgid = 0xff12_601b_ffff_0000_0000_0001_ff00_0000 | u128::from(mask & 63);
                    mad[56..72].copy_from_slice(&mgid.to_be_bytes());
                    mad[72..88].copy_from_slice(&gids[own].to_be_bytes());
                    mad[96..98].fill(0xff);
                    mad[104] = 0x21;
                } else {
                    mad[64..80].copy_from_slice(&gids[1 - own].to_be_bytes());
                    mad[80..96].copy_from_slice(&gids[own].to_be_bytes());
                }
                patch(&mut mad, &patches);
                let source = self.source(Interface::Gsi, Side::Peer, lid(code));
                self.manager.input(self.now, source, &mad);
            }
            Step::Pass { millis } => {
                self.now = self.now + Duration::from_millis(millis.into());
                self.manager.advance(self.now);
            }
            Step::Link { up } => self.manager.link_changed(self.now, up),
        }
        let after = self.manager.counters();
        assert!(
            after.malformed - before.malformed <= 2 && after.traps - before.traps <= 1,
            "{before:?}, {after:?}"
        );
    }

    /// Answers the request that is out, as an agent does.
    fn answer(&mut self, patches: &[Option<Patch>]) {
        let Some((side, mut mad)) = self.last.take() else { return };
        let index = usize::from(side == Side::Peer);
        let is_set = mad[3] == 2;
        mad[3] = 0x81;
        mad[4] = 0x80;
        let what = mad[17];
        let data = &mut mad[64..128];
        match what {
            0x11 => {
                data.fill(0);
                data[2] = 1;
                data[20..28].copy_from_slice(&[OWN, PEER][index].to_be_bytes());
            }
            0x15 => {
                let port = &mut self.ports[index];
                if is_set {
                    let state = port[32] & 15;
                    port.copy_from_slice(data);
                    if port[32] & 15 == 0 {
                        port[32] |= state;
                    }
                }
                data.copy_from_slice(port);
            }
            _ => data.fill(0),
        }
        patch(&mut mad, patches);
        let source = self.source(Interface::Smi, side, 0xffff);
        self.manager.input(self.now, source, &mad);
    }

    /// Takes what it sends.
    fn look(&mut self) {
        let mut mad = [0; 256];
        for sent in 0.. {
            let Some(to) = self.manager.poll_transmit(self.now, &mut mad) else { break };
            assert!(sent < MOST, "it never stops sending");
            self.sent += 1;
            let side = if to == Destination::Agent { Side::Own } else { Side::Peer };
            match to {
                Destination::General { lid, .. } => {
                    assert_eq!(self.manager.state(), State::Master);
                    let ports = [Side::Own, Side::Peer].map(|side| self.manager.lid(side));
                    assert!(ports.contains(&Some(lid)), "an answer to LID {lid}");
                    assert!(mad[3] & 0x80 != 0, "an answer");
                }
                Destination::Management { lid } => assert!((1..0xc000).contains(&lid)),
                Destination::Agent | Destination::Directed if matches!(mad[3], 1 | 2) => {
                    self.last = Some((side, mad));
                }
                Destination::Agent | Destination::Directed => {}
            }
        }
        match self.manager.next_deadline() {
            Some(due) => assert!(due <= self.now + Duration::from_secs(60), "{due:?}"),
            None => assert_eq!(self.manager.state(), State::NotActive),
        }
    }
}
