//! Two Interface Adapters over two emulated HCAs, connected, with posters and reapers taken out.
//!
//! Everything is leaked: a benchmark's process is short, and `'static` values can go to any thread.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use dat_core::provider::{Net, Region};
use dat_core::{
    Ep, EpPoster, Evd, EvdFlags, EvdReaper, Event, Ia, Instant, LmrTriplet, MemPriv, PspFlag, Pz,
    Qos, Rmr, RmrTriplet, Storage,
};
use hca_mlx5::cmd::dump::Observer;
use hca_mlx5::dma::Buffer;
use hca_mlx5::platform::{Blocks, Clock};
use hca_mlx5::{Config, Mlx5};
use mlx5_model::wire::switch::{self, Port};
use mlx5_model::{Config as Card, Hca};

use super::host::{BenchHost, LENT, LENT_LEN};
use super::puppet::{Puppet, Registrar, Ring};
use crate::host::inproc::World;

/// The driver on the benchmarks' host.
pub type Driver = Mlx5<'static, BenchHost>;
/// Storage of one side.
pub type Room = Storage<Driver, 60, 32, 64, 256>;

const LIMIT: Duration = Duration::from_secs(10);
/// The service point of side 1.
pub const QUALIFIER: u64 = 4711;
/// Completions that one queue takes.
pub const DEPTH: u32 = 1024;
/// Bytes of each side's buffer.
const MEMORY: usize = 1 << 16;

/// The address of a side.
#[must_use]
pub fn address(side: u8) -> IpAddr {
    Ipv4Addr::new(192, 168, 7, 1 + side).into()
}

static BLOCKS: OnceLock<Blocks> = OnceLock::new();

/// How blocks reach the doorbell pages of every rig: write-combining, unless [`set_blocks`] said
/// otherwise.
#[must_use]
pub fn blocks() -> Blocks {
    *BLOCKS.get_or_init(|| Blocks::Combined)
}

/// Says how, before the first rig.
///
/// # Panics
/// If it has been said, or used, before.
pub fn set_blocks(how: Blocks) {
    BLOCKS.set(how).unwrap();
}

/// Both sides.
pub struct Rig {
    /// Time and the cards in it.
    pub world: Arc<World>,
    /// Where the cards are.
    pub hosts: [&'static BenchHost; 2],
    /// The adapters.
    pub ias: [Ia<'static, Driver>; 2],
    /// Protection Zone, memory and key of each side.
    memory: [(Pz, u64, u32, u32); 2],
    /// Context and key of memory that was lent, of side 0.
    lent: (u32, u32),
    registrar: &'static Registrar,
    /// Where requests come at side 1.
    pub cr: Evd,
    /// A port of somebody else.
    pub attacker: Port,
}

impl std::fmt::Debug for Rig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rig").field("hosts", &self.hosts).finish_non_exhaustive()
    }
}

/// One connected Endpoint of side 0: its handles, its poster and reapers, and the puppets that
/// complete what it posts.
pub struct Lane {
    /// The Endpoint.
    pub ep: Ep,
    /// Its peer, on side 1.
    pub peer: Ep,
    /// Where its requests complete.
    pub request_evd: Evd,
    /// Where its receives complete.
    pub receive_evd: Evd,
    /// Where its connection events go.
    pub conn_evd: Evd,
    /// Poster.
    pub poster: EpPoster<'static, Driver>,
    /// Reaping half of requests.
    pub requests: EvdReaper<'static, Driver>,
    /// Reaping half of receives.
    pub receives: EvdReaper<'static, Driver>,
    /// Completes requests.
    pub sent: Puppet<'static>,
    /// Completes receives.
    pub got: Puppet<'static>,
    /// The queue pair.
    pub qp: Ring,
    /// 8 bytes of local memory.
    pub word: [LmrTriplet; 1],
    /// 8 bytes of memory that was lent.
    pub lent: [LmrTriplet; 1],
    /// 256 bytes of local memory.
    pub piece: [LmrTriplet; 1],
    /// Memory of the peer.
    pub far: RmrTriplet,
    /// Key of the memory that was lent, as the device knows it.
    pub lent_lkey: u32,
    /// Key of the local memory, as the device knows it.
    pub lkey: u32,
    /// An RMR of the Endpoint's zone.
    pub rmr: Rmr,
    /// 0 as long as every event was the one expected.
    pub wrong: u64,
}

impl std::fmt::Debug for Lane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lane")
            .field("ep", &self.ep)
            .field("wrong", &self.wrong)
            .finish_non_exhaustive()
    }
}

impl Default for Rig {
    #[expect(
        clippy::large_stack_arrays,
        reason = "a program's main thread has room for two adapters"
    )]
    fn default() -> Self {
        let world = World::new();
        let mut ports = switch::switch(3).into_iter();
        let hosts = [0_u8, 1].map(|side| {
            let mut card = Card::default();
            card.seed = card.seed.wrapping_add(side.into());
            card.mac[5] = card.mac[5].wrapping_add(side);
            let wire = Box::new(ports.next().unwrap());
            let host = BenchHost::plug(&world, side.into(), |memory| Hca::new(card, memory, wire));
            &*Box::leak(Box::new(host))
        });
        let registrar: &'static Registrar = Box::leak(Box::default());
        let open = |side: u8, observer: Option<&'static (dyn Observer + Sync)>| {
            let host = hosts[usize::from(side)];
            let config = Config {
                entropy: host.entropy(),
                blocks: blocks(),
                lender: Some(host),
                observer,
                ..Config::default()
            };
            let driver = Driver::open(host, &config).unwrap();
            let net = Net::new(address(side), 24);
            let now = Instant::from_nanos(host.now());
            Ia::open(driver, Box::leak(Box::new(Room::new())).parts(), net, now, host.entropy())
                .unwrap()
        };
        let mut ias = [open(0, Some(registrar)), open(1, None)];
        let memory = [0, 1].map(|side| {
            let ia = &mut ias[side];
            let buffer = Box::leak(Box::new(Buffer::zeroed(hosts[side], MEMORY).unwrap()));
            let pz = ia.pz_create().unwrap();
            let lmr = ia.lmr_create(pz, buffer.region(), MemPriv::ALL).unwrap();
            (pz, buffer.addr(), lmr.lmr_context, lmr.rmr_context)
        });
        let region = Region { addr: LENT, len: LENT_LEN };
        let lent = ias[0].lmr_create(memory[0].0, region, MemPriv::ALL).unwrap();
        let cr = ias[1].evd_create(16, EvdFlags::CR).unwrap();
        ias[1].psp_create(QUALIFIER, cr, PspFlag::Consumer).unwrap();
        Self {
            world,
            hosts,
            ias,
            memory,
            lent: (lent.lmr_context, lent.rmr_context),
            registrar,
            cr,
            attacker: ports.next().unwrap(),
        }
    }
}

impl Rig {
    /// Model time.
    #[must_use]
    pub fn now(&self) -> Instant {
        Instant::from_nanos(self.world.now())
    }

    /// Both adapters do what is due, and a little time passes.
    pub fn turn(&mut self) {
        let now = self.now();
        for ia in &mut self.ias {
            let _ = ia.advance(now);
        }
        self.world.turn_by(1_000);
    }

    fn wait(&mut self, side: usize, evd: Evd) -> Event {
        let end = self.now() + LIMIT;
        while self.now() < end {
            if let Ok(event) = self.ias[side].evd_dequeue(evd) {
                return event;
            }
            self.turn();
        }
        unreachable!("side {side}: no event within {LIMIT:?} of model time");
    }

    fn connect(&mut self, [ep, peer]: [Ep; 2], conns: [Evd; 2]) {
        let now = self.now();
        self.ias[0]
            .ep_connect(now, ep, address(1), QUALIFIER, LIMIT, b"", Qos::BestEffort)
            .unwrap();
        let Event::ConnectionRequest { cr, .. } = self.wait(1, self.cr) else {
            unreachable!("something other than a connection request");
        };
        let now = self.now();
        self.ias[1].cr_accept(now, cr, Some(peer), b"").unwrap();
        assert_eq!(self.wait(0, conns[0]), Event::Established(ep));
        assert_eq!(self.wait(1, conns[1]), Event::Established(peer));
    }

    /// Connects so many Endpoints, which do nothing.
    pub fn crowd(&mut self, count: usize) {
        let evds = [0, 1].map(|side| {
            let ia = &mut self.ias[side];
            // Four requests and four receives of each.
            let entries = u32::try_from(8 * count).unwrap();
            let dto = ia.evd_create(entries, EvdFlags::DTO | EvdFlags::RMR_BIND).unwrap();
            (dto, ia.evd_create(16, EvdFlags::CONNECTION).unwrap())
        });
        for _ in 0..count {
            let eps = [0, 1].map(|side| {
                let (dto, conn) = (Some(evds[side].0), Some(evds[side].1));
                let ia = &mut self.ias[side];
                let mut attr = ia.ep_attr_default();
                (attr.max_request_dtos, attr.max_recv_dtos) = (4, 4);
                let zone = Some(self.memory[side].0);
                ia.ep_create(zone, dto, dto, conn, Some(&attr)).unwrap()
            });
            self.connect(eps, evds.map(|(_, conn)| conn));
        }
    }

    /// Connects one more Endpoint, with 128 requests and 128 receives.
    pub fn lane(&mut self) -> Lane {
        let dto = EvdFlags::DTO | EvdFlags::RMR_BIND;
        let [a, b] = &mut self.ias;
        let mut attr = a.ep_attr_default();
        attr.max_request_dtos = 128;
        attr.max_recv_dtos = 128;
        let request_evd = a.evd_create(DEPTH, dto).unwrap();
        let request_cq = self.registrar.newest_cq(self.hosts[0]);
        let receive_evd = a.evd_create(DEPTH, dto).unwrap();
        let receive_cq = self.registrar.newest_cq(self.hosts[0]);
        let conns = [&mut *a, &mut *b].map(|ia| ia.evd_create(16, EvdFlags::CONNECTION).unwrap());
        let peers = b.evd_create(DEPTH, dto).unwrap();
        let (zone_a, zone_b) = (Some(self.memory[0].0), Some(self.memory[1].0));
        let ep = a
            .ep_create(zone_a, Some(receive_evd), Some(request_evd), Some(conns[0]), Some(&attr))
            .unwrap();
        let peer =
            b.ep_create(zone_b, Some(peers), Some(peers), Some(conns[1]), Some(&attr)).unwrap();
        let rmr = a.rmr_create(self.memory[0].0).unwrap();

        self.connect([ep, peer], conns);

        let qp = self.registrar.newest_sq(self.hosts[0]);
        let puppet = |cq| Puppet::new(self.hosts[0], cq, qp, 0, 0, 0);
        let (sent, got) = (puppet(request_cq), puppet(receive_cq));
        let (_, addr, context, lkey) = self.memory[0];
        let (_, far, _, rkey) = self.memory[1];
        let ia = &mut self.ias[0];
        Lane {
            ep,
            peer,
            request_evd,
            receive_evd,
            conn_evd: conns[0],
            poster: ia.ep_take_poster(ep).unwrap(),
            requests: ia.evd_take_reaper(request_evd).unwrap(),
            receives: ia.evd_take_reaper(receive_evd).unwrap(),
            sent,
            got,
            qp,
            word: [LmrTriplet { addr: addr + 64, len: 8, context }],
            lent: [LmrTriplet { addr: LENT + 5, len: 8, context: self.lent.0 }],
            piece: [LmrTriplet { addr: addr + 4096, len: 256, context }],
            far: RmrTriplet { addr: far + 8192, len: 4096, context: rkey },
            lent_lkey: self.lent.1,
            lkey,
            rmr,
            wrong: 0,
        }
    }

    /// One lane, and the device taken away.
    #[must_use]
    pub fn detached() -> (Self, Lane) {
        let mut rig = Self::default();
        let lane = rig.lane();
        rig.detach();
        (rig, lane)
    }

    /// Takes the device away.
    pub fn detach(&self) {
        self.hosts[0].detach(true);
    }

    /// Puts a lane's poster and reapers back, for calls by handle.
    pub fn give_back(&mut self, lane: Lane) -> Handles {
        let ia = &mut self.ias[0];
        ia.ep_return_poster(lane.poster).unwrap();
        ia.evd_return_reaper(lane.requests).unwrap();
        ia.evd_return_reaper(lane.receives).unwrap();
        Handles {
            ep: lane.ep,
            evd: lane.request_evd,
            sent: lane.sent,
            word: lane.word,
            far: lane.far,
            wrong: 0,
        }
    }

    /// The peer sends one message of 64 bytes.
    pub fn peer_sends(&mut self, lane: &Lane) {
        let (_, addr, context, _) = self.memory[1];
        let segment = [LmrTriplet { addr, len: 64, context }];
        self.ias[1]
            .ep_post_send(lane.peer, &segment, 0, dat_core::CompletionFlags::SUPPRESS)
            .unwrap();
    }

    /// The peer posts one receive of 256 bytes.
    pub fn peer_receives(&mut self, lane: &Lane) {
        let (_, addr, context, _) = self.memory[1];
        let segment = [LmrTriplet { addr: addr + 4096, len: 256, context }];
        self.ias[1]
            .ep_post_recv(lane.peer, &segment, 0, dat_core::CompletionFlags::empty())
            .unwrap();
    }
}

/// One connected Endpoint whose poster and reapers are with its adapter.
#[derive(Debug)]
pub struct Handles {
    /// The Endpoint.
    pub ep: Ep,
    /// Where its requests complete.
    pub evd: Evd,
    /// Completes requests.
    pub sent: Puppet<'static>,
    /// 8 bytes of local memory.
    pub word: [LmrTriplet; 1],
    /// Memory of the peer.
    pub far: RmrTriplet,
    /// 0 as long as every event was the one expected.
    pub wrong: u64,
}
