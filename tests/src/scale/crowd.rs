//! Two Interface Adapters with many objects of each kind.
//!
//! Everything is leaked, as on the stage of the benchmarks: a process measures once.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use dat_core::provider::Net;
use dat_core::{
    Cno, DatReturn, Ep, EpAttr, Evd, EvdFlags, Event, Ia, Instant, Lmr, MemPriv, Parts, Psp,
    PspFlag, Pz, Qos, Rmr, Sizes, Supply,
};
use hca_mlx5::cmd::dump::Observer;
use hca_mlx5::dma::Buffer;
use hca_mlx5::platform::{Blocks, Clock};
use hca_mlx5::{Config, Mlx5};
use mlx5_model::wire::switch::{self, Port};
use mlx5_model::{Config as Card, Hca};

use crate::bench::host::BenchHost;
use crate::host::inproc::World;

/// Endpoints and other objects of the measured calls themselves: few, because what is spent on
/// room for objects shall be spent on that of the crowd.
const SPARE: usize = 32;
/// The greatest crowd, of Endpoints and of others.
pub const MOST: usize = (1 << QPS_LOG) - SPARE;
const QPS_LOG: u32 = 17;
const QPS: usize = 1 << QPS_LOG;
/// Completion queues, and twice that of keys: regions and windows.
const CQS: usize = 1 << 15;
const KEYS: usize = 2 * CQS;
/// Neighbours that are kept.
const NEIGHBOURS: usize = 1 << 11;
/// The benchmarks' host.
pub type Host = BenchHost;
/// The driver on it, with tables that are long enough.
pub type Driver = Mlx5<'static, Host, QPS, CQS, KEYS, NEIGHBOURS>;
/// One adapter.
pub type Adapter = Ia<'static, Driver>;

/// Most connections that are made at a time.
const BATCH: usize = 32;
/// Turns until an event must have come, and until it mostly has.
const PATIENCE: usize = 20_000;
const SOON: usize = 200;
/// Time for a connection.
pub(super) const LIMIT: Duration = Duration::from_secs(30);
/// The service point of side 1.
pub const QUALIFIER: u64 = 4711;
/// Where the service points of the crowd begin.
const QUALIFIERS: u64 = 10_000;
/// Bytes of each side's buffer.
pub const MEMORY: usize = 1 << 16;
/// DTOs of one direction of an Endpoint of the crowd.
pub const DTOS: u16 = 4;
/// Bytes of arena: for the driver itself, and for each object.
const ARENA: [usize; 2] = [64 << 20, 32 << 10];

/// How many there are.
#[derive(Clone, Copy, Debug)]
pub struct Counts {
    /// Connected Endpoints of each side.
    pub eps: usize,
    /// Objects of each other kind, of each side.
    pub objects: usize,
    /// Room for so many more Event Dispatchers.
    pub listened: usize,
    /// Room for so many DTOs of one direction of an Endpoint.
    pub dtos: u16,
}

/// The address of a side.
#[must_use]
pub fn address(side: usize) -> IpAddr {
    Ipv4Addr::new(192, 168, 7, 1 + side as u8).into()
}

/// What one side has.
#[derive(Debug)]
pub struct Objects {
    /// Zone of everything that is used.
    pub pz: Pz,
    /// Address, context and key of the memory.
    pub memory: (u64, u32, u32),
    /// Completions of the crowd.
    pub dto: Evd,
    /// Connection events of the crowd and of those beside it.
    pub conn: Evd,
    /// Requests for connections.
    pub cr: Evd,
    /// The crowd.
    pub eps: Vec<Ep>,
    /// The others of the crowd.
    pub others: Others,
}

/// Objects that are only there.
#[derive(Debug, Default)]
pub struct Others {
    /// Zones.
    pub pzs: Vec<Pz>,
    /// Event Dispatchers.
    pub evds: Vec<Evd>,
    /// CNOs.
    pub cnos: Vec<Cno>,
    /// Regions.
    pub lmrs: Vec<Lmr>,
    /// Windows.
    pub rmrs: Vec<Rmr>,
    /// Public service points.
    pub psps: Vec<Psp>,
}

/// Both sides.
pub struct Crowd {
    /// Time and the cards in it.
    pub world: Arc<World>,
    /// Where the cards are.
    pub hosts: [&'static Host; 2],
    /// The adapters.
    pub ias: [Adapter; 2],
    /// What they have.
    pub of: [Objects; 2],
    /// A port of somebody else.
    pub other: Port,
}

impl std::fmt::Debug for Crowd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Crowd").field("hosts", &self.hosts).finish_non_exhaustive()
    }
}

/// Memory that stays until the process ends.
pub(super) struct Leak;

impl Supply<'static> for Leak {
    fn slice<T>(&mut self, len: usize, new: fn() -> T) -> &'static mut [T] {
        (0..len).map(|_| new()).collect::<Vec<_>>().leak()
    }
}

fn sizes(counts: Counts) -> Sizes {
    let eps = (counts.eps.max(counts.objects) + SPARE) as u32;
    let others = (counts.objects + SPARE) as u32;
    let evds = others + counts.listened as u32;
    Sizes { eps, evds, lmrs: others, dtos: counts.dtos.into(), events: 64, srqs: 8 }
}

/// Attributes of every Endpoint here.
#[must_use]
pub fn attr(ia: &Adapter) -> EpAttr {
    let mut attr = ia.ep_attr_default();
    (attr.max_request_dtos, attr.max_recv_dtos) = (DTOS, DTOS);
    attr
}

/// Plugs the card of a side in, with memory for so many objects.
pub(super) fn plug(world: &Arc<World>, side: usize, port: Port, objects: usize) -> &'static Host {
    let mut card = Card::default();
    card.seed = card.seed.wrapping_add(side as u64);
    card.mac[5] = card.mac[5].wrapping_add(side as u8);
    card.general_caps.push(("log_max_qp", QPS_LOG));
    let build = |memory| Hca::new(card, memory, Box::new(port));
    let arena = ARENA[0] + ARENA[1] * objects;
    Box::leak(Box::new(Host::plug_with(world, side as u64, arena, build)))
}

/// Opens the adapter of a side.
pub(super) fn open(
    host: &'static Host,
    side: usize,
    sizes: &Sizes,
    observer: Option<&'static (dyn Observer + Sync)>,
) -> Adapter {
    let config = Config {
        entropy: host.entropy(),
        blocks: Blocks::Combined,
        lender: Some(host),
        log_completion_events: 16,
        observer,
        ..Config::default()
    };
    let driver = Driver::open(host, &config).unwrap();
    let net = Net::new(address(side), 16);
    let parts = Parts::supplied(&mut Leak, sizes).unwrap();
    Ia::open(driver, parts, net, Instant::from_nanos(host.now()), host.entropy()).unwrap()
}

impl Crowd {
    /// Makes it, the Endpoints last.
    ///
    /// # Panics
    /// If a call is refused, or a connection does not come about.
    #[must_use]
    pub fn new(counts: Counts, observer: Option<&'static (dyn Observer + Sync)>) -> Self {
        let world = World::new();
        let mut ports = switch::switch(3).into_iter();
        let objects = counts.eps + counts.objects;
        let hosts = [0, 1].map(|side| plug(&world, side, ports.next().unwrap(), objects));
        let mut ias = [0, 1].map(|side| {
            let observer = observer.filter(|_| side == 0);
            open(hosts[side], side, &sizes(counts), observer)
        });
        let of = [0, 1].map(|side| Objects::new(&mut ias[side], hosts[side], counts));
        let mut crowd = Self { world, hosts, ias, of, other: ports.next().unwrap() };
        let eps = [0, 1].map(|side| crowd.make(side, counts.eps));
        for (ours, theirs) in eps[0].chunks(BATCH).zip(eps[1].chunks(BATCH)) {
            crowd.connect(ours, theirs);
        }
        let [ours, theirs] = eps;
        (crowd.of[0].eps, crowd.of[1].eps) = (ours, theirs);
        crowd
    }

    /// Makes Endpoints.
    pub fn make(&mut self, side: usize, count: usize) -> Vec<Ep> {
        let (ia, of) = (&mut self.ias[side], &self.of[side]);
        let attr = attr(ia);
        let (zone, dto, conn) = (Some(of.pz), Some(of.dto), Some(of.conn));
        (0..count).map(|_| ia.ep_create(zone, dto, dto, conn, Some(&attr)).unwrap()).collect()
    }

    /// Model time.
    #[must_use]
    pub fn now(&self) -> Instant {
        Instant::from_nanos(self.world.now())
    }

    /// The devices do what is due.
    pub fn pass(&self) {
        for _ in 0..4 {
            self.world.turn_by(1_000);
        }
    }

    /// Devices and adapters do what is due.
    pub fn turn(&mut self) {
        let now = self.now();
        for ia in &mut self.ias {
            let _ = ia.advance(now);
        }
        self.pass();
    }

    /// Both sides do what is due until neither has anything left.
    pub fn finish_work(&mut self) {
        let mut idle = 0;
        while idle < 3 {
            let now = self.now();
            let worked = self.ias.iter_mut().fold(false, |any, ia| ia.advance(now).work | any);
            idle = if worked { 0 } else { idle + 1 };
            self.pass();
        }
    }

    /// Waits for the next event.
    ///
    /// # Panics
    /// If none comes.
    pub fn wait(&mut self, side: usize, evd: Evd) -> Event {
        for turn in 0..PATIENCE {
            match self.ias[side].evd_dequeue(evd) {
                Ok(event) => return event,
                Err(DatReturn::QUEUE_EMPTY) => self.turn(),
                Err(refused) => unreachable!("side {side}: {refused:?}"),
            }
            if turn > SOON {
                // A datagram was lost: it is repeated when time has passed.
                self.world.turn();
            }
        }
        unreachable!("side {side}: no event after {PATIENCE} turns");
    }

    /// Connects Endpoints of side 0 with as many of side 1.
    ///
    /// # Panics
    /// If that does not succeed.
    pub fn connect(&mut self, ours: &[Ep], theirs: &[Ep]) {
        let now = self.now();
        for &ep in ours {
            let private = b"";
            let to = address(1);
            self.ias[0]
                .ep_connect(now, ep, to, QUALIFIER, LIMIT, private, Qos::BestEffort)
                .unwrap();
        }
        let cr = self.of[1].cr;
        for &ep in theirs {
            let Event::ConnectionRequest { cr, .. } = self.wait(1, cr) else {
                unreachable!("something other than a connection request");
            };
            let now = self.now();
            self.ias[1].cr_accept(now, cr, Some(ep), b"").unwrap();
        }
        for side in [0, 1] {
            let conn = self.of[side].conn;
            for _ in ours {
                let event = self.wait(side, conn);
                assert!(matches!(event, Event::Established(_)), "{event:?}");
            }
        }
    }
}

impl Objects {
    fn new(ia: &mut Adapter, host: &'static Host, counts: Counts) -> Self {
        let buffer = Box::leak(Box::new(Buffer::zeroed(host, MEMORY).unwrap()));
        let pz = ia.pz_create().unwrap();
        let region = buffer.region();
        let lmr = ia.lmr_create(pz, region, MemPriv::ALL).unwrap();
        // Four requests and four receives of each, and room for the measured ones.
        let entries = (2 * usize::from(DTOS) * (counts.eps + SPARE)) as u32;
        let dto = ia.evd_create(entries, EvdFlags::DTO | EvdFlags::RMR_BIND).unwrap();
        let conn = ia.evd_create(64, EvdFlags::CONNECTION).unwrap();
        let cr = ia.evd_create(64, EvdFlags::CR).unwrap();
        ia.psp_create(QUALIFIER, cr, PspFlag::Consumer).unwrap();
        let mut others = Others::default();
        for number in 0..counts.objects {
            others.pzs.push(ia.pz_create().unwrap());
            others.evds.push(ia.evd_create(1, EvdFlags::DTO).unwrap());
            others.cnos.push(ia.cno_create(None).unwrap());
            others.lmrs.push(ia.lmr_create(pz, region, MemPriv::ALL).unwrap().lmr);
            others.rmrs.push(ia.rmr_create(pz).unwrap());
            let psp = ia.psp_create(QUALIFIERS + number as u64, cr, PspFlag::Consumer);
            others.psps.push(psp.unwrap());
        }
        let memory = (buffer.addr(), lmr.lmr_context, lmr.rmr_context);
        Self { pz, memory, dto, conn, cr, eps: Vec::new(), others }
    }
}
