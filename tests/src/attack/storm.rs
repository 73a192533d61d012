//! A random attacker beside two honest peers: mutated messages of connection management, ARP and
//! Neighbor Discovery, packets of connections, garbage and floods, from a seed.
//!
//! The attacker is on the link and blind: it spoofs every address and knows the standards, the
//! service, the adapters and the queue pair numbers, but not what the honest peers say. It answers
//! no question of theirs, so it does not race the right answer. Meanwhile they keep a connection
//! with traffic, contents checked, and make others, and the time that takes is bounded.

use std::cell::Cell;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use dat_core::EpState;
use mlx5_model::wire::frame::{Aeth, AtomicEth, Reth};
use mlx5_model::wire::opcode::Opcode;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::honest::{self, LOOK};
use super::mad::{BODY, Req};
use super::{Cm, EVIL, Mad, Nd, arp, datagram, nd, roce, station};
use crate::pair::Stage;
use crate::session::line::mad;
use crate::session::{Line, QUALIFIER, Session, Setup};

/// Frames of one episode, which has a seed of its own.
pub const EPISODE: u64 = 100_000;
/// Frames a second of model time, to each side.
const RATE: u64 = 50_000;
/// What looking at intervals adds to a round of traffic, which waits for twelve events.
pub const SEEN: Duration = Duration::from_micros(6);
/// Connections that give the time without an attack.
const BEFORE: usize = 20;

/// What an episode measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Frames of the attacker.
    pub frames: u64,
    /// Honest connections made.
    pub connections: usize,
    /// Rounds of traffic.
    pub rounds: u32,
    /// The slowest connection without an attack, and the 99th percentile under it.
    pub connect: [Duration; 2],
    /// The same of a round of traffic.
    pub traffic: [Duration; 2],
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { frames, connections, rounds, connect, traffic } = self;
        write!(
            f,
            "{frames} hostile frames; {connections} connections, 99 % within {:?} ({:?} without); \
             {rounds} rounds of traffic, 99 % within {:?} ({:?} without)",
            connect[1], connect[0], traffic[1], traffic[0]
        )
    }
}

/// What the attacker knows, and its dice.
struct Attacker {
    rng: SmallRng,
    addrs: [IpAddr; 2],
    qpns: [u32; 2],
    guids: [u64; 2],
    /// A kind of frame that it sends several of.
    repeat: Option<(u32, u32)>,
}

impl Attacker {
    fn ids(&mut self) -> [u32; 2] {
        // Small numbers, and what looks like an index with a tag: the forms that IDs tend to have.
        [(); 2].map(|()| match self.rng.random_range(0..4_u32) {
            0 => self.rng.random_range(0..64),
            1 => self.rng.random::<u32>() & 0xffff_001f,
            _ => self.rng.random(),
        })
    }

    /// An address to speak from, to this side: of its peer, or of anybody.
    fn source(&mut self, side: usize) -> IpAddr {
        let n: u32 = self.rng.random();
        match (self.rng.random_range(0..3_u32), self.addrs[0]) {
            (0, _) => self.addrs[1 - side],
            (1, IpAddr::V4(_)) => Ipv4Addr::new(192, 168, 7, 64 + (n % 180) as u8).into(),
            (1, IpAddr::V6(v6)) => Ipv6Addr::from_bits(v6.to_bits() ^ u128::from(n)).into(),
            (_, IpAddr::V4(_)) => Ipv4Addr::from(n).into(),
            (_, IpAddr::V6(_)) => Ipv6Addr::from_bits(u128::from(n) << 64 | 7 << 125).into(),
        }
    }

    fn mad(&mut self, side: usize, from: IpAddr) -> Vec<u8> {
        let ids = self.ids();
        let tid = self.rng.random();
        let kind = Cm::ALL[self.rng.random_range(0..Cm::ALL.len())];
        let addrs = [from, self.addrs[side]];
        let port = if self.rng.random() { QUALIFIER as u16 } else { self.rng.random() };
        let peer = 1 - side;
        let about = self.rng.random_range(0..4_u8);
        let mad = match kind {
            Cm::Req => {
                let mut req = Req::new(self.rng.random(), port, addrs);
                if self.rng.random() {
                    // As if the peer had lost the connection.
                    (req.guid, req.qpn) = (self.guids[peer], self.qpns[peer]);
                }
                (req.response, req.retries) =
                    (self.rng.random_range(0..32), self.rng.random_range(0..16));
                req.mad()
            }
            Cm::Mra => Mad::mra(tid, ids, about, self.rng.random_range(0..32)),
            Cm::Rej => {
                let ids = if self.rng.random() { ids } else { [ids[0], 0] };
                let ari = self.guids[peer].to_be_bytes();
                Mad::rej(tid, ids, about, self.rng.random_range(0..40), &ari)
            }
            Cm::Rep => {
                Mad::rep(tid, ids, self.qpns[peer], self.rng.random::<u32>() >> 8, self.guids[peer])
            }
            Cm::Dreq => Mad::dreq(tid, ids, self.qpns[side]),
            Cm::SidrReq => Mad::sidr_req(tid, ids[0], port, addrs),
            Cm::SidrRep => Mad::sidr_rep(tid, ids[0], self.rng.random(), ids[1], ids[0]),
            Cm::Rtu | Cm::Drep | Cm::Lap | Cm::Apr => Mad::between(kind, tid, ids),
        };
        let mut bytes = mad.0.to_vec();
        if self.rng.random_range(0..4_u32) == 0 {
            for _ in 0..self.rng.random_range(1..4_u32) {
                let low = if self.rng.random() { BODY } else { 0 };
                let at = self.rng.random_range(low..bytes.len());
                bytes[at] = self.rng.random();
            }
        }
        if self.rng.random_range(0..16_u32) == 0 {
            bytes.resize(self.rng.random_range(0..600), 0x5a);
        }
        bytes
    }

    fn neighbour(&mut self, side: usize) -> Vec<u8> {
        let mac = if self.rng.random() { EVIL } else { self.rng.random() };
        let to = if self.rng.random() { station(side) } else { [0xff; 6] };
        let claimed = match self.rng.random_range(0..4_u32) {
            0 => self.addrs[side],
            1 | 2 => self.addrs[1 - side],
            _ => self.source(side),
        };
        match (claimed, self.addrs[side]) {
            (IpAddr::V4(claimed), IpAddr::V4(own)) => {
                let target = if self.rng.random() { own } else { claimed };
                arp([mac, to], self.rng.random_range(0..4), (mac, claimed), (to, target))
            }
            (IpAddr::V6(claimed), IpAddr::V6(own)) => {
                let kind = self.rng.random_range(133..138);
                let target = if kind == 135 { own } else { claimed };
                let mut message = Nd::new(kind, self.rng.random(), claimed, own, target);
                message = message.with_mac(mac);
                if self.rng.random_range(0..4_u32) == 0 {
                    message.hop_limit = self.rng.random();
                    message.spoil = self.rng.random_range(0..2);
                    let at = self.rng.random_range(0..message.options.len());
                    message.options[at] = self.rng.random();
                }
                nd([mac, station(side)], &message)
            }
            _ => Vec::new(),
        }
    }

    /// A packet of a connection: of the peer's address only where it is not one that the device
    /// would take, for that is between the two devices.
    fn packet(&mut self, side: usize, from: IpAddr) -> Vec<u8> {
        let opcode = Opcode::ALL[self.rng.random_range(0..Opcode::ALL.len())];
        let near = self.qpns[side].wrapping_add(self.rng.random_range(0..4));
        let qp = if self.rng.random() { near } else { self.rng.random::<u32>() >> 8 };
        let mut packet =
            roce([EVIL, station(side)], [from, self.addrs[side]], opcode, qp, self.rng.random());
        let has = opcode.headers();
        let (va, rkey) = (self.rng.random(), self.rng.random());
        packet.ext.reth = has.reth.then(|| Reth { va, rkey, len: self.rng.random() });
        packet.ext.atomic = has.atomic.then_some(AtomicEth { va, rkey, swap_add: va, compare: va });
        packet.ext.aeth = has.aeth.then(|| Aeth { syndrome: self.rng.random(), msn: rkey >> 8 });
        packet.ext.atomic_ack = has.atomic_ack.then_some(va);
        packet.ext.imm = has.imm.then_some(rkey);
        packet.ext.ieth = has.ieth.then_some(rkey);
        packet.payload = vec![0x66; self.rng.random_range(0..300)];
        let mut frame = packet.build();
        if from == self.addrs[1 - side] {
            // Spoils the ICRC.
            let last = frame.len() - 1;
            frame[last] ^= 1;
        }
        frame
    }

    fn garbage(&mut self, side: usize) -> Vec<u8> {
        let mut frame = vec![0; self.rng.random_range(0..400)];
        self.rng.fill(&mut frame[..]);
        let kind = [[8, 0], [8, 6], [0x86, 0xdd], [0x81, 0], [0x89, 0x15], [0x88, 0xcc]];
        let kind = kind[self.rng.random_range(0..kind.len())];
        let header = [&station(side)[..], &EVIL, &kind].concat();
        let len = frame.len().min(header.len());
        frame[..len].copy_from_slice(&header[..len]);
        frame
    }

    /// The next frame, for this side.
    fn frame(&mut self, side: usize) -> Vec<u8> {
        let kind = match self.repeat.take() {
            Some((kind, left)) => {
                self.repeat = left.checked_sub(1).map(|left| (kind, left));
                kind
            }
            None => {
                let kind = self.rng.random_range(0..16);
                if self.rng.random_range(0..200_u32) == 0 {
                    self.repeat = Some((kind, self.rng.random_range(10..500)));
                }
                kind
            }
        };
        let from = self.source(side);
        match kind {
            0..=7 => {
                let mad = self.mad(side, from);
                datagram([EVIL, station(side)], [from, self.addrs[side]], &mad)
            }
            8..=10 => self.neighbour(side),
            11..=13 => self.packet(side, from),
            14 => self.garbage(side),
            // A good frame, with one bit changed.
            _ => {
                let mad = self.mad(side, from);
                let mut frame = datagram([EVIL, station(side)], [from, self.addrs[side]], &mad);
                let at = self.rng.random_range(12..frame.len());
                frame[at] ^= 1 << self.rng.random_range(0..8_u32);
                frame
            }
        }
    }
}

/// The value below which 99 of 100 lie.
fn percentile(mut all: Vec<Duration>) -> Duration {
    all.sort_unstable();
    all.get(all.len() * 99 / 100).or(all.last()).copied().unwrap_or_default()
}

/// The GUID in the first message of this kind.
fn guid(sent: &[Vec<u8>], kind: Cm, at: usize) -> u64 {
    let mads = sent.iter().filter_map(|frame| Mad::of(&mad(frame)?));
    let found = mads.filter(|mad| Cm::of(&mad.0) == Some(kind)).map(|mad| mad.word64(at)).next();
    found.unwrap_or_default()
}

/// One round of traffic on the lasting connection; the time it took.
fn traffic(session: &mut Session<'_>, n: u32) -> Duration {
    let start = session.now();
    session.traffic(n);
    session.now().since(start)
}

/// Attacks for so many frames.
///
/// # Panics
/// If an honest peer loses a connection, data or time.
#[must_use]
pub fn episode(seed: u64, frames: u64) -> Report {
    let stage = Stage { seed, ipv6: seed % 3 == 2, even: true, ..Stage::default() };
    Setup { stage, ..Setup::default() }.connected(|session| {
        let mut report = Report::default();
        session.lines.iter().for_each(Line::record);
        for n in 0..BEFORE {
            report.connect[0] = report.connect[0].max(honest::connect(session, &mut |_| {}));
            report.traffic[0] = report.traffic[0].max(traffic(session, n as u32));
        }
        let eps = [session.sides[0].ep, session.sides[1].ep];
        let qpns = [0, 1].map(|side| {
            session.pair.ias[side].ep_query(eps[side]).unwrap().qp.map_or(0, |qp| qp.number)
        });
        let sent = [0, 1].map(|side| session.lines[side].recorded());
        let guids = [guid(&sent[0], Cm::Req, 16), guid(&sent[1], Cm::Rep, 28)];
        let mut attacker = Attacker {
            rng: SmallRng::seed_from_u64(seed),
            addrs: [session.address(0), session.address(1)],
            qpns,
            guids,
            repeat: None,
        };
        let sent = Cell::new(0);
        let mut flood = honest::rate(2 * RATE, |session, n| {
            let side = n as usize % 2;
            session.lines[side].inject(attacker.frame(side));
            sent.set(sent.get() + 1);
        });
        let (mut connects, mut rounds) = (Vec::new(), Vec::new());
        while sent.get() < frames {
            connects.push(honest::connect(session, &mut flood));
            flood(session);
            rounds.push(traffic(session, (BEFORE + rounds.len()) as u32));
            let states = [session.state(0), session.state(1)];
            assert_eq!(states, [EpState::Connected; 2], "the lasting connection");
        }
        report.frames = sent.get();
        (report.connections, report.rounds) = (connects.len(), rounds.len() as u32);
        (report.connect[1], report.traffic[1]) = (percentile(connects), percentile(rounds));
        let ([before, under], [alone, beside]) = (report.connect, report.traffic);
        assert!(under <= before * 3 + LOOK, "{report}");
        assert!(beside <= alone * 21 / 20 + SEEN, "{report}");
        report
    })
}
