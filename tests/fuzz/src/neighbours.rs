//! ARP and Neighbor Discovery: any frames, and forged ones, between questions of the driver.
//!
//! Nothing but stations' MACs is ever given as an answer, a fixed neighbour keeps its MAC, and a
//! station falls silent when nobody asks it anything.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::task::Poll;
use std::time::Duration;

use arbitrary::{Arbitrary, Unstructured};
use dat_core::Instant;
use dat_core::provider::Net;
use dat_tests::attack::{Nd, arp, nd};
use hca_mlx5::net::neigh::Neighbours;

use crate::input::{Patch, patch, steps};

const OWN: [u8; 6] = [2, 0, 0, 0, 0, 0x0a];
const FIXED: [u8; 6] = [2, 0, 0, 0, 0, 0x99];

#[derive(Clone, Copy, Debug, Arbitrary)]
struct Setting {
    ipv6: bool,
    prefix: u8,
    host: u8,
    gateway: Option<u8>,
    vlan: Option<u16>,
    fixed: Option<u8>,
}

#[derive(Debug, Arbitrary)]
enum Step<'a> {
    Any(&'a [u8]),
    Arp {
        operation: u8,
        from: u8,
        to: u8,
        mac: u8,
        patches: [Option<Patch>; 2],
    },
    Nd {
        kind: u8,
        flags: u8,
        from: u8,
        to: u8,
        target: u8,
        mac: Option<u8>,
        patches: [Option<Patch>; 2],
    },
    /// What it has sent last, back with the addresses of the link layer changed.
    Echo {
        patches: [Option<Patch>; 2],
    },
    Resolve {
        addr: u8,
        asker: bool,
    },
    Pass {
        millis: u16,
    },
    LinkUp,
}

/// Runs the target.
pub fn run(data: &[u8]) {
    let mut bytes = Unstructured::new(data);
    let Ok(setting) = bytes.arbitrary::<Setting>() else { return };
    let Ok(station) = Neighbours::new(OWN, &setting.net(), Instant::ZERO) else { return };
    let mut world = World { setting, station, now: Instant::ZERO, last: Vec::new(), fixed: None };
    world.fix();
    steps(&mut bytes, 64).for_each(|step| world.step(step));
    world.end();
}

impl Setting {
    fn addr(&self, n: u8) -> IpAddr {
        match (self.ipv6, n & 0xc0) {
            (false, 0xc0) => IpAddr::from([10, 1, 0, n]),
            (false, _) => IpAddr::from([192, 168, 7, n]),
            (true, 0xc0) => IpAddr::from([0xfe80, 0, 0, 0, 0, 0, 0, u16::from(n)]),
            (true, 0x80) => IpAddr::from([0x2001, 0xdb8, 9, 0, 0, 0, 0, u16::from(n)]),
            (true, _) => IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(n)]),
        }
    }

    fn net(&self) -> Net {
        let gateway = self.gateway.map(|n| self.addr(n));
        Net { addr: self.addr(self.host), prefix: self.prefix, gateway, vlan: self.vlan }
    }
}

fn v4(addr: IpAddr) -> Ipv4Addr {
    match addr {
        IpAddr::V4(addr) => addr,
        IpAddr::V6(_) => Ipv4Addr::new(192, 168, 7, 2),
    }
}

fn v6(addr: IpAddr) -> Ipv6Addr {
    match addr {
        IpAddr::V4(addr) => addr.to_ipv6_mapped(),
        IpAddr::V6(addr) => addr,
    }
}

struct World {
    setting: Setting,
    station: Neighbours<8>,
    now: Instant,
    last: Vec<u8>,
    fixed: Option<IpAddr>,
}

impl World {
    fn fix(&mut self) {
        let addr = self.setting.fixed.map(|n| self.setting.addr(n));
        self.fixed = addr.filter(|addr| self.station.fix(*addr, FIXED).is_ok());
    }

    fn step(&mut self, step: Step<'_>) {
        let now = self.now;
        match step {
            Step::Any(frame) => self.station.receive(frame, now),
            Step::Arp { operation, from, to, mac, patches } => {
                let [from, to] = [from, to].map(|n| v4(self.setting.addr(n)));
                let mac = [2, 0x66, 0, 0, 0, mac];
                let frame = arp([mac, OWN], operation.into(), (mac, from), ([0; 6], to));
                self.forged(frame, &patches);
            }
            Step::Nd { kind, flags, from, to, target, mac, patches } => {
                let [from, to, target] = [from, to, target].map(|n| v6(self.setting.addr(n)));
                let kind = if kind & 1 == 0 { 135 } else { 136 };
                let mut message = Nd::new(kind, flags, from, to, target);
                if let Some(mac) = mac {
                    message = message.with_mac([2, 0x66, 0, 0, 0, mac]);
                }
                self.forged(nd([[2, 0x66, 0, 0, 0, 1], OWN], &message), &patches);
            }
            Step::Echo { patches } => {
                let mut frame = self.last.clone();
                if let Some(macs) = frame.first_chunk_mut::<12>() {
                    macs.rotate_left(6);
                }
                patch(&mut frame, &patches);
                self.station.receive(&frame, now);
            }
            Step::Resolve { addr, asker } => self.resolve(self.setting.addr(addr), asker),
            Step::Pass { millis } => self.now = now + Duration::from_millis(millis.into()),
            Step::LinkUp => self.station.link_up(now),
        }
        self.send();
    }

    /// A forged frame, in the VLAN of the station if it is in one.
    fn forged(&mut self, mut frame: Vec<u8>, patches: &[Option<Patch>]) {
        if let Some(vlan) = self.setting.vlan {
            let [high, low] = vlan.to_be_bytes();
            frame.splice(12..12, [0x81, 0, high, low]);
        }
        patch(&mut frame, patches);
        self.station.receive(&frame, self.now);
    }

    fn resolve(&mut self, addr: IpAddr, asker: bool) {
        let found = if asker {
            self.station.resolve_asker(addr, self.now)
        } else {
            self.station.resolve(addr, self.now)
        };
        if let Poll::Ready(Ok(mac)) = found {
            assert!(mac[0] & 1 == 0 && mac != [0; 6], "{addr} is at {mac:x?}");
            assert!(self.fixed != Some(addr) || mac == FIXED, "{addr} is at {mac:x?}");
        }
    }

    fn send(&mut self) {
        for _ in 0..64 {
            let Some(frame) = self.station.transmit(self.now) else { return };
            assert_eq!(frame.get(6..12), Some(&OWN[..]), "the source of a frame");
            self.last = frame.to_vec();
        }
        panic!("the station never stops sending");
    }

    /// Nobody asks any more: what is under way ends.
    fn end(&mut self) {
        let _ = (self.station.counters(), self.station.own(), self.station.groups());
        for _ in 0..1000 {
            let Some(deadline) = self.station.next_deadline() else { return };
            self.now = self.now.max(deadline);
            self.send();
        }
        panic!("the station never falls silent");
    }
}
