//! A run as a list of steps, all drawn from the seed before the first is taken: a step that is left
//! out changes no other, so a run can be cut down, and the numbers of the steps that are left name
//! it.
#![expect(missing_docs, reason = "the variants of steps say what their numbers are")]

use std::fmt;

use dat_tests::laws::rng::Rng;
use dat_tests::session::line::attribute;
use mlx5_model::host::Nanos;
use mlx5_model::{Facts, OpenFact};

use crate::faults::{self, CATALOGUE, Fault, Kind, MS, S, US, What};
use crate::weights::{Draw, Program};
use crate::world::{NEARLY_FULL, SHARED};

/// Regions of an Endpoint's memory that its peer reaches, each as long as a message.
pub const PIECES: usize = 8;
/// Words that its peer adds to and swaps.
pub const WORDS: usize = 8;
/// Windows and registrations that an Endpoint may have given to its peer.
pub const GRANTS: usize = 3;

/// Ends of links at a host at most.
const MOST_ENDS: usize = 8;

/// How a host learns that there is something to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// It looks all the time.
    Polls,
    /// It waits for one of its Event Dispatchers, and arms the others.
    Waits,
    /// It waits for a CNO that all of its Event Dispatchers trigger.
    Cno,
}

/// What the Endpoints of a host share an Event Dispatcher for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Common {
    /// Each has its own.
    Nothing,
    /// Completions.
    Transfers,
    /// Completions and connection events.
    All,
}

/// What does not change during a run.
#[derive(Clone, Debug)]
pub struct Shape {
    /// The number that everything comes from.
    pub seed: u64,
    /// Hosts.
    pub hosts: usize,
    /// Pairs of Endpoints.
    pub links: Vec<Link>,
    /// Facts of each host's device.
    pub facts: Vec<Facts>,
    /// How each host is woken.
    pub wakes: Vec<Wake>,
    /// What all Endpoints of that host share one Event Dispatcher for.
    pub common: Vec<Common>,
    /// The memory of that host's consumers is lent, not of the arena.
    pub lent: Vec<bool>,
    /// The device of that host goes on while its driver runs.
    pub beside: Vec<bool>,
    /// The device of that host takes its time, and gives pages back as it likes.
    pub slow: Option<usize>,
    /// Path MTU.
    pub mtu: Option<u16>,
    /// IPv6 addresses.
    pub ipv6: bool,
    /// Kinds of fault that happen.
    pub faults: Vec<Kind>,
    /// Receives that each host keeps in its Shared Receive Queue.
    pub pool: Vec<usize>,
    /// Consumers reset an Endpoint as soon as they learn that its connection has ended.
    pub resets: bool,
    /// What the steps are about.
    pub program: Program,
}

/// A pair of Endpoints at two hosts.
#[derive(Clone, Debug)]
pub struct Link {
    /// The host of each end.
    pub hosts: [usize; 2],
    /// One Event Dispatcher for all streams of that end.
    pub merged: [bool; 2],
    /// That end takes receives from the Shared Receive Queue of its host.
    pub shared: [bool; 2],
    /// Bytes of a message at most.
    pub longest: usize,
    /// Requests, and receives, outstanding at most.
    pub depth: usize,
    /// Receives that each end keeps posted without being asked.
    pub keep: [usize; 2],
    /// RDMA reads that each end answers, and has outstanding, at most.
    pub reads: [[u8; 2]; 2],
}

/// How a request reaches the peer's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// By the registration of all of it.
    Whole,
    /// By what the peer granted.
    Grant(usize),
}

/// A request.
#[derive(Clone, Copy, Debug)]
pub enum Request {
    /// A message.
    Send { len: usize },
    /// An RDMA write with immediate.
    Immediate { at: usize, len: usize },
    /// An RDMA write.
    Write { at: usize, len: usize, via: Via },
    /// An RDMA read.
    Read { at: usize, len: usize, via: Via },
    /// A fetch and add.
    Add { word: usize, by: u64 },
    /// A compare and swap; the comparison holds or not.
    Swap { word: usize, holds: bool },
    /// An RDMA read, and a message behind it, fenced, of what the read brings.
    Echo { at: usize, len: usize },
    /// An RDMA read, and a write behind it, fenced, to where the read reads.
    Replace { at: usize, len: usize },
    /// A message that is longer than the peer's receives.
    TooLong,
    /// A write beyond the memory that the peer registered.
    Outside { len: usize },
    /// A write through a key that was never given, or was taken back.
    Forged { bits: u8, stale: bool },
}

/// A call of a consumer, or a few that belong together.
#[derive(Clone, Debug)]
pub enum Op {
    /// The end asks its peer for a connection, if it has none; with this limit. As soon as there is
    /// one, it posts so many requests and ends it.
    Connect { link: usize, side: usize, limit: Nanos, hasty: Option<usize> },
    /// It ends its connection.
    Disconnect { link: usize, side: usize, graceful: bool },
    /// It frees its Endpoint.
    Free { link: usize, side: usize },
    /// It posts receives.
    Receive { link: usize, side: usize, count: usize },
    /// It posts a request so many times.
    Post { link: usize, side: usize, request: Request, count: usize, flags: u8 },
    /// It binds a window, or registers a range, for its peer.
    Grant { link: usize, side: usize, slot: usize, window: bool, at: usize, len: usize },
    /// It takes that back.
    Revoke { link: usize, side: usize, slot: usize },
    /// It asks whether its Endpoint is idle.
    Status { link: usize, side: usize },
    /// It makes one of its Event Dispatchers so many times as long as it was at first.
    Resize { link: usize, side: usize, which: usize, times: u32 },
    /// A host sends a datagram.
    Datagram { from: usize, to: usize, len: usize, immediate: bool },
    /// Nothing but time passes.
    Wait,
    /// Something goes wrong.
    Fault(Fault),
}

/// One step: time passes, then something is done.
#[derive(Clone, Debug)]
pub struct Step {
    /// Its number in the script as drawn.
    pub number: usize,
    /// Time before it.
    pub gap: Nanos,
    /// What is done.
    pub op: Op,
}

/// A run.
#[derive(Clone, Debug)]
pub struct Script {
    /// What does not change.
    pub shape: Shape,
    /// Its steps.
    pub steps: Vec<Step>,
}

/// Facts that a device may differ in. What takes seconds of virtual time at every bring-up, and
/// what has no RoCE at all, is left to `cargo xtask switches`.
const FACTS: [OpenFact; 18] = [
    OpenFact::EqCreated,
    OpenFact::Shortage,
    OpenFact::PageEvent,
    OpenFact::GrhChecksum,
    OpenFact::GrhUpper,
    OpenFact::CqeL3Type,
    OpenFact::UmrEntryBits,
    OpenFact::UmrFence,
    OpenFact::QueueWrites,
    OpenFact::CacheLine,
    OpenFact::InlineMode,
    OpenFact::BfSize,
    OpenFact::AckDelay,
    OpenFact::EqeOrder,
    OpenFact::CommandOrder,
    OpenFact::CqeOrder,
    OpenFact::KeyIndex,
    OpenFact::HostEndianness,
];

/// Facts that came later. They are drawn from a generator of their own, so that the seeds of
/// planted bugs and of reports mean what they meant.
const LATER: [OpenFact; 1] = [OpenFact::BfData];

/// Facts of which one device has only one, the first before the second.
///
/// Something has to say which header stands before a datagram. A firmware that lacks pages has to
/// ask for them before it gives up a command.
const PAIRS: [(OpenFact, OpenFact); 2] =
    [(OpenFact::GrhChecksum, OpenFact::CqeL3Type), (OpenFact::Shortage, OpenFact::PageEvent)];

impl Shape {
    fn draw(seed: u64, rng: &mut Rng) -> Self {
        let program = Program::of(seed);
        let narrow = program != Program::Everything;
        let hosts = if narrow || rng.percent(40) { 2 } else { 2 + rng.below(7) };
        let faults = if narrow {
            vec![rng.of(program.faults())]
        } else {
            let plain = rng.percent(20);
            let faults = CATALOGUE.iter().filter(|(_, chance)| !plain && rng.percent(*chance));
            faults.map(|(kind, _)| *kind).collect()
        };
        // All Endpoints of these hosts take receives from a Shared Receive Queue, if they can.
        let chance = if program == Program::Receives { 100 } else { 25 };
        let pools: Vec<bool> = (0..hosts).map(|_| rng.percent(chance)).collect();
        // A full one uses its ring again soon, one with few receives runs dry and keeps Event
        // Dispatchers short.
        let receives: &[usize] = match program {
            Program::Receives => &[NEARLY_FULL, NEARLY_FULL, SHARED / 4],
            Program::Queues => &[SHARED / 4],
            _ => &[SHARED, SHARED / 4],
        };
        let pool = (0..hosts).map(|_| rng.of(receives)).collect();
        let mut links: Vec<Link> = Vec::new();
        let count = if narrow { rng.of(program.links()) } else { hosts + rng.below(hosts + 1) };
        for n in 0..count {
            let first = n % hosts;
            let second = (first + 1 + rng.below(hosts - 1)) % hosts;
            let ends = |host| links.iter().filter(|link| link.hosts.contains(&host)).count();
            if ends(first).max(ends(second)) >= MOST_ENDS {
                continue;
            }
            let (longest, depth) = rng.of(program.sizes());
            let merged = [(); 2].map(|()| rng.percent(40));
            let shared =
                [first, second].map(|host| longest <= 1024 && (pools[host] || rng.percent(10)));
            let keeps = if narrow { 100 } else { 75 };
            let keep =
                [(); 2].map(|()| if rng.percent(keeps) { 2 + rng.below(depth - 1) } else { 0 });
            let reads = [[4; 2]; 2].map(|most| most.map(|most| rng.of(&[1, 2, most, most])));
            links.push(Link {
                hosts: [first, second],
                merged,
                shared,
                longest,
                depth,
                keep,
                reads,
            });
        }
        let odd = rng.percent(50);
        let mut later = Rng::new(!seed);
        let facts = (0..hosts).map(|_| {
            let mut facts = Facts::default();
            for fact in FACTS.into_iter().chain(LATER) {
                let rng = if LATER.contains(&fact) { &mut later } else { &mut *rng };
                let chance = match (program.facts().contains(&fact), odd) {
                    (true, _) => 60,
                    (false, true) => 25,
                    (false, false) => 0,
                };
                let settings = fact.settings();
                let first = |fact: &OpenFact| facts.setting(*fact) == fact.settings()[0];
                let excluded = PAIRS.iter().any(|(one, other)| *other == fact && !first(one));
                if rng.percent(chance) && !excluded {
                    let setting = settings[1 + rng.below(settings.len() - 1)];
                    // A setting of its own list.
                    let _ = facts.set(fact, setting.name);
                }
            }
            facts
        });
        let facts = facts.collect();
        let mtus = [None, None, Some(1024), Some(256), Some(256)];
        let mtu = rng.of(if program == Program::Transfers { &mtus[2..] } else { &mtus[..4] });
        let ipv6 = rng.percent(25);
        let other = if narrow { Wake::Cno } else { Wake::Polls };
        let wakes = [Wake::Polls, Wake::Waits, Wake::Cno, other];
        let wakes = (0..hosts).map(|_| rng.of(&wakes)).collect();
        let common = [Common::Nothing, Common::Nothing, Common::Transfers, Common::All];
        let common = match program {
            Program::Queues => &[Common::Transfers, Common::Transfers, Common::All][..],
            Program::Receives => &common[..3],
            _ => &common[..],
        };
        let common = (0..hosts).map(|_| rng.of(common)).collect();
        let lent = (0..hosts).map(|_| rng.percent(15)).collect();
        // Its commands may take longer than some hosts wait for one that is never answered.
        let slow =
            rng.percent(if narrow { 20 } else { 10 }) && !faults.contains(&Kind::MutedCommand);
        let slow = slow.then(|| rng.below(hosts));
        let resets = program.resets() && rng.percent(80);
        let beside = (0..hosts).map(|_| rng.percent(if narrow { 80 } else { 60 })).collect();
        Self {
            seed,
            hosts,
            links,
            facts,
            wakes,
            common,
            lent,
            beside,
            slow,
            mtu,
            ipv6,
            faults,
            pool,
            resets,
            program,
        }
    }
}

impl Script {
    /// The script of a seed, with so many steps.
    #[must_use]
    pub fn draw(seed: u64, steps: usize) -> Self {
        let mut rng = Rng::new(seed);
        let shape = Shape::draw(seed, &mut rng);
        let weights = shape.program.weights(&mut rng);
        let total: usize = weights.iter().map(|(_, weight)| weight).sum();
        // How closely steps follow each other, and how many of them come at once.
        let pace = rng.of(shape.program.paces());
        let burst = rng.of(&[1, 4, 12]);
        let (mut rest, mut about) = (0, None);
        let mut drawn = Vec::with_capacity(steps + shape.links.len());
        if shape.faults.contains(&Kind::Neighbours) {
            let fault = faults::draw(Kind::Neighbours, &mut rng, shape.hosts);
            drawn.push(Step { number: drawn.len(), gap: 0, op: Op::Fault(fault) });
        }
        let narrow = shape.program != Program::Everything;
        for link in 0..shape.links.len() {
            let side = if narrow { link & 1 } else { rng.below(2) };
            let op = Op::Connect { link, side, limit: 60 * S, hasty: None };
            drawn.push(Step { number: drawn.len(), gap: 5 * US, op });
        }
        let steps = steps / shape.program.share();
        while drawn.len() < steps {
            if rest == 0 {
                rest = 1 + rng.below(burst);
                let stays = shape.program.stays() && rng.percent(75);
                about = stays.then(|| About::draw(&shape, &mut rng));
            }
            rest -= 1;
            let gap = if rest > 0 { 0 } else { 1 + rng.below(2 * pace as usize) as u64 };
            let mut dice = rng.below(total);
            let found = weights.iter().find(|(_, weight)| {
                let hit = dice < *weight;
                dice = dice.saturating_sub(*weight);
                hit
            });
            let Some((draw, _)) = found else { continue };
            let (gap, op) = match draw {
                Draw::Wait => (rng.of(shape.program.waits()), Op::Wait),
                Draw::Fault if shape.faults.is_empty() => continue,
                Draw::Fault => {
                    let kind = rng.of(&shape.faults);
                    (gap, Op::Fault(faults::draw(kind, &mut rng, shape.hosts)))
                }
                draw => {
                    let about = about.unwrap_or_else(|| About::draw(&shape, &mut rng));
                    (gap, shape.op(*draw, about, &mut rng))
                }
            };
            for (n, op) in shape.paired(op, &mut rng).into_iter().enumerate() {
                let gap = if n == 0 { gap } else { 0 };
                drawn.push(Step { number: drawn.len(), gap, op });
            }
        }
        Self { shape, steps: drawn }
    }

    /// The same with only the steps of these numbers.
    #[must_use]
    pub fn only(&self, keep: &[usize]) -> Self {
        let steps = self.steps.iter().filter(|step| keep.binary_search(&step.number).is_ok());
        Self { shape: self.shape.clone(), steps: steps.cloned().collect() }
    }
}

/// What a step is about: an end, and one of its grants.
#[derive(Clone, Copy, Debug)]
struct About {
    link: usize,
    side: usize,
    slot: usize,
}

impl About {
    fn draw(shape: &Shape, rng: &mut Rng) -> Self {
        Self { link: rng.below(shape.links.len()), side: rng.below(2), slot: rng.below(GRANTS) }
    }
}

impl Shape {
    /// A step of a narrow world, often with what makes it hard: chance alone brings the two
    /// together too seldom.
    fn paired(&self, op: Op, rng: &mut Rng) -> Vec<Op> {
        if !rng.percent(self.program.pairs()) {
            return vec![op];
        }
        match op {
            // A window is taken back while its bind is under way, behind a long message.
            Op::Grant { link, side, slot, .. } => {
                let request = Request::Send { len: self.links[link].longest };
                let before = Op::Post { link, side, request, count: 1, flags: 0 };
                vec![before, op, Op::Revoke { link, side, slot }]
            }
            // A long message is under way when a response is repeated.
            Op::Post { link, side, request: Request::Read { .. }, .. } => {
                let request = Request::Send { len: self.links[link].longest };
                vec![op, Op::Post { link, side, request, count: 1, flags: 0 }]
            }
            // One of its own messages is lost.
            Op::Connect { link, side, .. } if self.faults.contains(&Kind::Mads) => {
                let fault = faults::draw(Kind::Mads, rng, self.hosts);
                let sender = match fault.what {
                    What::Mads(attribute::REQ | attribute::RTU, ..) => side,
                    What::Mads(attribute::REP | attribute::REJ, ..) => 1 - side,
                    _ => rng.below(2),
                };
                let host = self.links[link].hosts[sender];
                vec![Op::Fault(Fault { host, ..fault }), op]
            }
            op => vec![op],
        }
    }

    fn op(&self, draw: Draw, about: About, rng: &mut Rng) -> Op {
        let About { link, side, slot } = about;
        let Link { longest, depth, .. } = self.links[link];
        let size = |rng: &mut Rng| match rng.below(8) {
            0 => rng.below(2),
            1..=4 => 1 + rng.below(longest.min(200)),
            5 | 6 => 1 + rng.below(longest),
            _ => longest,
        };
        let len = size(rng);
        let at = rng.below(PIECES * longest - len + 1);
        let via = match rng.below(3 * GRANTS) {
            slot if slot < GRANTS => Via::Grant(slot),
            _ => Via::Whole,
        };
        let flags = if rng.percent(40) { rng.below(8) as u8 } else { 0 };
        // Messages of several senders come between each other.
        let several = self.program != Program::Receives && rng.percent(20);
        let count = if several { 1 + rng.below(depth) } else { 1 };
        let post = |request| Op::Post { link, side, request, count, flags };
        match draw {
            Draw::Send => post(Request::Send { len }),
            Draw::Immediate => post(Request::Immediate { at, len }),
            Draw::Write => post(Request::Write { at, len, via }),
            Draw::Read => post(Request::Read { at, len, via }),
            Draw::Atomic if rng.percent(60) => {
                post(Request::Add { word: rng.below(WORDS), by: rng.next() })
            }
            Draw::Atomic => post(Request::Swap { word: rng.below(WORDS), holds: rng.percent(50) }),
            Draw::Echo => post(Request::Echo { at, len: len.max(1) }),
            Draw::Replace => post(Request::Replace { at, len: len.max(1) }),
            Draw::Bad => {
                let request = match rng.below(6) {
                    0 => Request::TooLong,
                    1 => Request::Outside { len: len.max(1) },
                    _ => Request::Forged { bits: rng.next() as u8, stale: rng.percent(70) },
                };
                Op::Post { link, side, request, count: 1, flags }
            }
            Draw::Receive => Op::Receive { link, side, count },
            Draw::Connect => {
                let limit = if rng.percent(95) { 60 * S } else { rng.of(&[20 * US, 2 * MS]) };
                let hasty = (self.program.hesitates() && rng.percent(25)).then(|| rng.below(4));
                // Two ends that ask for each other refuse each other.
                let narrow = self.program != Program::Everything;
                let side = if narrow { link & 1 } else { side };
                Op::Connect { link, side, limit, hasty }
            }
            Draw::Disconnect => Op::Disconnect { link, side, graceful: rng.percent(70) },
            Draw::Free => Op::Free { link, side },
            Draw::Grant => {
                let window = rng.percent(70);
                Op::Grant { link, side, slot, window, at, len: len.max(1) }
            }
            Draw::Revoke => Op::Revoke { link, side, slot },
            Draw::Status => Op::Status { link, side },
            Draw::Resize => {
                Op::Resize { link, side, which: rng.below(3), times: rng.of(&[1, 1, 1, 2]) }
            }
            Draw::Datagram => {
                let from = rng.below(self.hosts);
                let to = (from + 1 + rng.below(self.hosts - 1)) % self.hosts;
                let (len, immediate) = (rng.below(200), rng.percent(30));
                Op::Datagram { from, to, len, immediate }
            }
            Draw::Wait | Draw::Fault => Op::Wait,
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>5} +{} ns ", self.number, self.gap)?;
        match &self.op {
            Op::Fault(fault) => write!(f, "{fault}"),
            op => write!(f, "{op:?}"),
        }
    }
}
