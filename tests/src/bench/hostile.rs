//! What a hostile frame costs the side that it arrives at: frames of each kind, from random
//! addresses, while many connections are open.
//!
//! The model puts a block of frames into memory, then it is held, and what is counted is the
//! driver's calls of `advance` until all are handled.

use std::net::{IpAddr, Ipv4Addr};

use dat_core::{Event, Instant};
use mlx5_model::wire::Wire as _;

use super::stage::{QUALIFIER, Rig, address};
use crate::attack::mad::Req;
use crate::attack::{Cm, EVIL, Mad, arp, datagram, station};

/// The side attacked.
const SIDE: usize = 1;
/// Connections that are open.
const OPEN: usize = 48;
/// Frames of one block: fewer than any receive queue holds.
pub const BLOCK: usize = 32;
/// Requests that wait until it is known whether their peer is there.
pub const WAITING: u64 = 16;

/// A frame of a kind; the number makes it a new one.
pub type Forge = fn(u32) -> Vec<u8>;

/// Every bit of the number, mixed.
const fn id(n: u32) -> u32 {
    n.wrapping_mul(0x9e37_79b1)
}

/// An address where nobody is, of the network.
fn nobody(n: u32) -> IpAddr {
    Ipv4Addr::new(192, 168, 7, 64 + (n % 180) as u8).into()
}

/// The attacker's own address, whose neighbour is known.
fn attacker() -> IpAddr {
    Ipv4Addr::new(192, 168, 7, 63).into()
}

fn from(source: IpAddr, mad: &[u8]) -> Vec<u8> {
    datagram([EVIL, station(SIDE)], [source, address(SIDE as u8)], mad)
}

fn request(n: u32, source: IpAddr, port: u16) -> Vec<u8> {
    from(source, &Req::new(n, port, [source, address(SIDE as u8)]).mad().0)
}

fn between(n: u32, kind: Cm) -> Mad {
    Mad::between(kind, u64::from(n), [id(n), !id(n)])
}

/// A request for a service.
pub fn req(n: u32) -> Vec<u8> {
    request(n, nobody(n), QUALIFIER as u16)
}

/// The same, of somebody who is there.
pub fn req_service(n: u32) -> Vec<u8> {
    request(n, attacker(), QUALIFIER as u16)
}

/// A request for a port where nobody listens, of somebody who is there.
pub fn req_port(n: u32) -> Vec<u8> {
    request(n, attacker(), 99)
}

/// A request in the peer's name.
pub fn req_peer(n: u32) -> Vec<u8> {
    let source = address(0);
    let mut req = Req::new(n, 99, [source, address(SIDE as u8)]);
    req.guid = 0;
    from(source, &req.mad().0)
}

/// A receipt acknowledgement.
pub fn mra(n: u32) -> Vec<u8> {
    from(address(0), &between(n, Cm::Mra).0)
}

/// A rejection.
pub fn rej(n: u32) -> Vec<u8> {
    from(address(0), &between(n, Cm::Rej).0)
}

/// A rejection of a peer that gave up.
pub fn rej_timeout(n: u32) -> Vec<u8> {
    from(address(0), &Mad::rej(n.into(), [id(n), 0], 0, 4, &[2; 8]).0)
}

/// A reply.
pub fn rep(n: u32) -> Vec<u8> {
    from(nobody(n), &Mad::rep(n.into(), [id(n), !id(n)], 0x123, n, n.into()).0)
}

/// A ready-to-use message.
pub fn rtu(n: u32) -> Vec<u8> {
    from(nobody(n), &between(n, Cm::Rtu).0)
}

/// A disconnect request.
pub fn dreq(n: u32) -> Vec<u8> {
    from(nobody(n), &between(n, Cm::Dreq).0)
}

/// A disconnect reply.
pub fn drep(n: u32) -> Vec<u8> {
    from(address(0), &between(n, Cm::Drep).0)
}

/// A look-up of a service.
pub fn sidr_req(n: u32) -> Vec<u8> {
    let addrs = [nobody(n), address(SIDE as u8)];
    from(addrs[0], &Mad::sidr_req(n.into(), id(n), QUALIFIER as u16, addrs).0)
}

/// An answer to a look-up.
pub fn sidr_rep(n: u32) -> Vec<u8> {
    from(address(0), &Mad::sidr_rep(n.into(), id(n), 0, n, n).0)
}

/// A datagram of another class.
pub fn class(n: u32) -> Vec<u8> {
    from(nobody(n), &between(n, Cm::Rtu).flip(1, 0x80).0)
}

/// A datagram that is no MAD.
pub fn short(n: u32) -> Vec<u8> {
    from(nobody(n), &[n as u8; 100])
}

/// An ARP request for our address.
pub fn arp_request(n: u32) -> Vec<u8> {
    claim(n, nobody(n), 1)
}

/// An ARP request in the peer's name.
pub fn arp_claim(n: u32) -> Vec<u8> {
    claim(n, address(0), 1)
}

/// An ARP reply that nobody asked for.
pub fn arp_reply(n: u32) -> Vec<u8> {
    claim(n, address(0), 2)
}

fn claim(n: u32, source: IpAddr, operation: u16) -> Vec<u8> {
    let (IpAddr::V4(source), IpAddr::V4(own)) = (source, address(SIDE as u8)) else {
        unreachable!("the stage has IPv4 addresses")
    };
    let mac = [2, 0x66, 0, (n >> 16) as u8, (n >> 8) as u8, n as u8];
    arp([mac, station(SIDE)], operation, (mac, source), ([0; 6], own))
}

/// Bytes.
pub fn bytes(n: u32) -> Vec<u8> {
    let mut frame = vec![n as u8; 200];
    frame[..6].copy_from_slice(&[0xff; 6]);
    frame[6..12].copy_from_slice(&EVIL);
    frame[12..14].copy_from_slice(&[8, 6]);
    frame
}

/// A stage with many connections, attacked.
#[derive(Debug)]
pub struct Attacked {
    /// The stage.
    pub rig: Rig,
    sent: u32,
    /// The time of the block. The model is there at it once, for what is due then.
    now: Instant,
    /// Datagrams of the connection manager, before a block.
    before: u64,
}

impl Default for Attacked {
    fn default() -> Self {
        let mut rig = Rig::default();
        rig.crowd(OPEN);
        Self { now: rig.now(), rig, sent: 0, before: 0 }
    }
}

impl Attacked {
    /// Puts a block of frames into the memory of the side attacked.
    pub fn prepare(&mut self, forge: Forge) {
        let host = self.rig.hosts[SIDE];
        host.hold(false);
        // It is there.
        self.rig.attacker.send(&claim(0, attacker(), 1));
        for _ in 0..4 {
            self.rig.turn();
            self.reject();
        }
        self.now = self.rig.now();
        let _ = self.rig.ias[SIDE].advance(self.now);
        for _ in 0..BLOCK {
            self.rig.attacker.send(&forge(self.sent));
            self.sent = self.sent.wrapping_add(1);
        }
        for _ in 0..4 {
            self.rig.world.turn_by(1_000);
        }
        self.before = self.decided();
        host.hold(true);
    }

    /// The consumer rejects what has come.
    fn reject(&mut self) {
        let now = self.rig.now();
        let (cr, ia) = (self.rig.cr, &mut self.rig.ias[SIDE]);
        while let Ok(event) = ia.evd_dequeue(cr) {
            if let Event::ConnectionRequest { cr, .. } | Event::UdConnectionRequest { cr, .. } =
                event
            {
                let _ = ia.cr_reject(now, cr, b"");
            }
        }
    }

    /// Handles them: the measured part.
    #[inline(always)]
    pub fn handle(&mut self) {
        for _ in 0..16 {
            if !self.rig.ias[SIDE].advance(self.now).work {
                break;
            }
        }
    }

    /// Datagrams of the last block that were decided on, or of the one before that waited.
    #[must_use]
    pub fn handled(&self) -> u64 {
        self.decided() - self.before
    }

    /// Datagrams that the connection manager took or dropped.
    fn decided(&self) -> u64 {
        let counters = self.rig.ias[SIDE].cm_counters();
        counters.received + counters.gave_way + counters.unreachable
    }
}
