//! Hosts, a switch and time.
//!
//! Each host is the whole driver over a device model of its own. Nothing runs in parallel and
//! nothing reads a clock: hosts are driven in their order, then time goes on to whatever is next.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex};

use dat_core::{Cno, Ep, Evd, EvdWait, Ia, Instant, LmrParam, Pz, Srq, Storage};
use dat_tests::host::inproc::{self, Slot};
use dat_tests::pair::Driver;
use dat_tests::session::Line;
use mlx5_model::host::Nanos;
use mlx5_model::wire::Wire;
use mlx5_model::wire::impair::{Fault as Frame, Rates};
use mlx5_model::wire::switch;
use mlx5_model::{CommandHook, Config as Card, Hca, Verdict};

use crate::aim::Losses;
use crate::faults::{Fault, Kind, What};
use crate::memory::Memory;
use crate::oracle::{
    Conn, Datagram, End, Link, Phase, Pieces, Target, Violation, Waiting, violation,
};
use crate::script::{GRANTS, Op, PIECES, Shape, Step, WORDS, Wake};
use crate::strike::Search;
use crate::trace::Trace;

/// Storage of an adapter: 12 Endpoints, 40 Event Dispatchers, 64 LMRs, 64 DTOs each way.
pub type Room<'s> = Storage<Driver<'s>, 12, 40, 64, 64>;
/// The service point of every host.
pub const QUALIFIER: u64 = 4711;
/// Q_Key of datagrams.
pub const QKEY: u32 = 0x0123_4567;
/// Bytes between pieces of memory, which nothing may touch.
pub const GAP: usize = 64;
/// Receives of a Shared Receive Queue, and of datagrams, that a host keeps posted.
pub const SHARED: usize = 24;
/// Nearly as many as a ring holds: what is not given back yet is met again soon.
pub const NEARLY_FULL: usize = 58;
/// Pieces of memory for them: completions of an Endpoint that is reset are lost, with their pieces.
pub const PLACES: usize = 120;
/// Bytes of such a receive.
pub const SHARED_LEN: usize = 1024;
/// The header of a RoCEv2 packet at most.
pub(crate) const HEADERS: u16 = 114;

/// Commands of a host that are answered otherwise.
#[derive(Clone, Debug, Default)]
pub struct Commands(Arc<Mutex<VecDeque<Verdict>>>);

impl Commands {
    pub(crate) fn with<T>(&self, f: impl FnOnce(&mut VecDeque<Verdict>) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }
}

impl CommandHook for Commands {
    fn command(&mut self, _: u64, _: u16, _: &[u8]) -> Verdict {
        self.with(VecDeque::pop_front).unwrap_or(Verdict::Run)
    }
}

/// What the events of an Event Dispatcher are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// An end of a link; whether all of its events come there.
    End(usize, usize, bool),
    /// All ends of the host; whether all of their events come there.
    Ends(bool),
    /// Connection requests.
    Requests,
    /// Datagrams.
    Datagrams,
    /// Asynchronous errors.
    Asynchronous,
}

/// Datagrams of a host.
#[derive(Debug)]
pub struct Datagrams {
    /// The Endpoint.
    pub ep: Ep,
    /// Receives and requests.
    pub evds: [Evd; 2],
    /// Its queue pair.
    pub qpn: u32,
    /// Receives posted: cookie and piece.
    pub receives: VecDeque<(u64, usize)>,
    /// Sends under way.
    pub sends: VecDeque<(u64, usize)>,
    /// Free pieces of both.
    pub pieces: [Pieces; 2],
}

/// What an open adapter has.
pub struct Adapter<'s> {
    /// The adapter.
    pub ia: Ia<'s, Driver<'s>>,
    /// The memory of its consumers.
    pub mem: Memory<'s>,
    /// Its zone.
    pub pz: Pz,
    /// The registration of all of the memory for the host's own requests.
    pub lmr: LmrParam,
    /// Connection requests.
    pub cr: Evd,
    /// Its Shared Receive Queue.
    pub srq: Option<Srq>,
    /// What is posted to it: cookie and piece.
    pub shared: BTreeMap<u64, usize>,
    /// Free pieces of it.
    pub pieces: Pieces,
    /// Its datagrams.
    pub datagrams: Datagrams,
    /// Connection requests to be answered later.
    pub waiting: Vec<Waiting>,
    /// The latest contexts that it gave to peers.
    pub keys: VecDeque<u32>,
    /// What all of its Event Dispatchers trigger.
    pub cno: Option<Cno>,
    /// The wait that is under way.
    pub wait: Option<(EvdWait, Stream)>,
    /// Contents of the memory as they should be; what peers reach is checked elsewhere.
    pub image: Vec<u8>,
}

impl std::fmt::Debug for Adapter<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Adapter").field("datagrams", &self.datagrams).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Host<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Host").field("ends", &self.ends).finish_non_exhaustive()
    }
}

/// A host.
pub struct Host<'s> {
    /// The device and its memory.
    pub slot: &'s Slot,
    /// Its plug.
    pub line: Line,
    /// Frames that it loses.
    pub losses: Losses,
    /// Its commands.
    pub commands: Commands,
    /// What is open.
    pub adapter: Option<Adapter<'s>>,
    /// Ends of links.
    pub ends: Vec<(usize, usize)>,
    /// Its Event Dispatchers.
    pub streams: Vec<(Evd, Stream)>,
    /// How often it has waited.
    pub turn: usize,
    /// It sleeps, and since then its device has written something that it has not seen.
    pub unseen: Option<Nanos>,
    /// Since when there is an event that nothing has announced.
    pub left: Option<Nanos>,
    /// Bytes of memory.
    pub size: usize,
    /// Where the memory of the Shared Receive Queue and of datagrams begins.
    pub base: [usize; 3],
    /// It does nothing until then.
    pub paused: Nanos,
    /// The Event Dispatcher that it does not look at for a while.
    pub neglected: Option<Evd>,
    /// A frame of its search for neighbours was lost, or will be.
    pub unanswered: bool,
    /// It does not post the receives again that it takes from its Shared Receive Queue.
    pub holds: bool,
    /// When its adapter wants to be called.
    pub due: Nanos,
    /// Something was called since.
    pub dirty: bool,
    /// Its device was reset or died.
    pub sick: bool,
    /// Its adapter knows.
    pub lost: bool,
    /// A command of it was refused: calls may fail.
    pub flaky: bool,
    /// Frames of it were lost, late or overtaken.
    pub unordered: bool,
    /// Frames of it are lost in masses, or its link is down, until then; 0 if they never were.
    pub rough: Nanos,
    /// When frames of it are to be treated well again.
    pub rates_end: Option<Nanos>,
    /// When its cable is to be in again.
    pub cable_in: Option<Nanos>,
}

/// What happens by itself at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timer {
    /// Frames of a host are treated well again.
    Calm(usize),
    /// The cable is in again.
    Plug(usize),
    /// A host looks at all of its Event Dispatchers again.
    Attend(usize),
    /// The consumer resets an Endpoint whose connection has ended.
    Reset(usize, usize),
    /// The consumer closes an adapter whose device is lost.
    Recover(usize),
}

/// The world.
pub struct Sim<'s> {
    /// What does not change.
    pub shape: &'s Shape,
    /// Time.
    pub time: Arc<inproc::World>,
    /// Hosts.
    pub hosts: Vec<Host<'s>>,
    /// Links.
    pub links: Vec<Link>,
    /// The story.
    pub trace: Trace,
    /// Calls so far.
    pub calls: u64,
    /// The last cookie.
    pub cookie: u64,
    /// Datagrams, the latest.
    pub sent: VecDeque<Datagram>,
    /// Frames may have been doubled.
    pub doubled: bool,
    /// Faults are over.
    pub calm: bool,
    pub(crate) timers: Vec<(Nanos, Timer)>,
    pub(crate) rooms: std::slice::IterMut<'s, Room<'s>>,
}

impl std::fmt::Debug for Sim<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sim").field("shape", self.shape).finish_non_exhaustive()
    }
}

/// How many adapters a run may open.
#[must_use]
pub fn openings(shape: &Shape, steps: &[Step]) -> usize {
    let opens = |step: &&Step| {
        let Op::Fault(Fault { what, .. }) = &step.op else { return false };
        matches!(
            what,
            What::Reset
                | What::Death(_)
                | What::Reopen
                | What::RefusedCommand(_)
                | What::MutedCommand(_)
        )
    };
    2 * shape.hosts + 2 * steps.iter().filter(opens).count()
}

/// Wraps the plug of each device.
pub type Tap<'a> = &'a mut dyn FnMut(Box<dyn Wire + Send>, &inproc::World) -> Box<dyn Wire + Send>;

/// Plugs a device into each slot of the world. `tap` wraps the plug of each.
pub fn plug(shape: &Shape, tap: Tap<'_>) -> (Arc<inproc::World>, Vec<(Slot, Line, Commands)>) {
    let time = inproc::World::new();
    let ports = switch::switch(shape.hosts);
    let slots = ports.into_iter().enumerate().map(|(n, port)| {
        let seed = shape.seed.wrapping_mul(16).wrapping_add(n as u64);
        let wire = tap(Box::new(port), &time);
        let line = Line::new(wire, time.clock(), seed, Rates::default());
        let mut card =
            Card { init_pages: Some(40), facts: shape.facts[n].clone(), seed, ..Card::default() };
        card.hardware_like = shape.slow == Some(n);
        card.mac[5] = card.mac[5].wrapping_add(n as u8);
        let memory = inproc::Memory { arena: 2048, firmware: 4096 };
        let commands = Commands::default();
        let (plug, hook) = (line.clone(), commands.clone());
        let slot = Slot::plug(&time, memory, seed, |memory| {
            let mut hca = Hca::new(card, memory, Box::new(plug));
            hca.set_command_hook(Some(Box::new(hook)));
            hca
        });
        (slot, line, commands)
    });
    let slots = slots.collect();
    (time, slots)
}

/// The losses of a plug. Where announcements are lost, peers have to search for each other.
fn losses(line: &Line, faults: &[Kind]) -> Losses {
    if faults.contains(&Kind::Neighbours) {
        line.rule(0, u32::MAX, Frame::Drop, |frame| Search::Announces.is(frame));
    }
    let losses = Losses::default();
    let aimed = losses.clone();
    line.rule(0, u32::MAX, Frame::Drop, move |frame| aimed.strikes(frame));
    losses
}

impl<'s> Sim<'s> {
    /// Hosts with everything open.
    pub fn new(
        shape: &'s Shape,
        time: &Arc<inproc::World>,
        slots: &'s [(Slot, Line, Commands)],
        rooms: &'s mut [Room<'s>],
        trace: Trace,
    ) -> Result<Self, (Violation, Trace)> {
        let hosts = slots.iter().map(|(slot, line, commands)| Host {
            slot,
            line: line.clone(),
            losses: losses(line, &shape.faults),
            commands: commands.clone(),
            adapter: None,
            ends: Vec::new(),
            streams: Vec::new(),
            turn: 0,
            unseen: None,
            left: None,
            size: 0,
            base: [0; 3],
            paused: 0,
            neglected: None,
            unanswered: false,
            holds: false,
            due: 0,
            dirty: true,
            sick: false,
            lost: false,
            flaky: false,
            unordered: false,
            rough: 0,
            rates_end: None,
            cable_in: None,
        });
        let mut hosts: Vec<Host<'s>> = hosts.collect();
        let links = shape.links.iter().enumerate().map(|(l, link)| {
            let ends = [0, 1].map(|side| {
                let host = link.hosts[side];
                hosts[host].ends.push((l, side));
                let stride = link.longest + GAP;
                let target = PIECES * link.longest + 8 * WORDS;
                let mut size = hosts[host].size;
                let mut region = |len: usize| {
                    let at = size;
                    size += (len + GAP).next_multiple_of(64);
                    at
                };
                let base = [
                    region((link.depth + 1) * stride),
                    region(link.depth * stride),
                    region(link.depth * stride),
                    region(target),
                ];
                hosts[host].size = size;
                End {
                    host,
                    base,
                    stride,
                    ep: None,
                    evds: None,
                    whole: None,
                    phase: Phase::None,
                    conn: None,
                    requests: VecDeque::new(),
                    receives: VecDeque::new(),
                    sources: Pieces::new(link.depth),
                    buffers: Pieces::new(link.depth),
                    target: Target::new(target),
                    grants: vec![None; GRANTS],
                    stale: VecDeque::new(),
                    unbound: Vec::new(),
                    lengths: [0; 3],
                    freed: Vec::new(),
                    gone: VecDeque::new(),
                }
            });
            Link { ends, conns: Vec::new() }
        });
        let links = links.collect();
        for host in &mut hosts {
            let piece = PLACES * (SHARED_LEN + GAP);
            host.base = [0, 1, 2].map(|n| host.size + n * piece);
            host.size += 3 * piece;
        }
        let mut sim = Self {
            shape,
            time: Arc::clone(time),
            hosts,
            links,
            trace,
            calls: 0,
            cookie: 0,
            sent: VecDeque::new(),
            doubled: false,
            calm: false,
            timers: Vec::new(),
            rooms: rooms.iter_mut(),
        };
        for host in 0..shape.hosts {
            if let Err(violation) = sim.open(host) {
                return Err((violation, sim.trace));
            }
        }
        Ok(sim)
    }

    /// Virtual time.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.time.now()
    }

    /// The same, as adapters take it.
    #[must_use]
    pub fn instant(&self) -> Instant {
        Instant::from_nanos(self.time.now())
    }

    /// A line of the story.
    pub fn say(&mut self, host: usize, text: std::fmt::Arguments<'_>) {
        let now = self.time.now();
        self.trace.say(now, Some(host), text);
    }

    /// The address of a host.
    #[must_use]
    pub fn address(&self, host: usize) -> IpAddr {
        let last = 1 + host as u8;
        if self.shape.ipv6 {
            IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 7, 0, 0, 0, last.into()))
        } else {
            IpAddr::V4(Ipv4Addr::new(192, 168, 7, last))
        }
    }

    /// The adapter of a host that has one.
    pub fn adapter(&mut self, host: usize) -> Option<&mut Adapter<'s>> {
        self.hosts[host].dirty = true;
        self.hosts[host].adapter.as_mut()
    }

    /// The same, for a call that gives the progress engine nothing to do.
    pub fn data(&mut self, host: usize) -> Option<&mut Adapter<'s>> {
        self.hosts[host].adapter.as_mut()
    }

    /// What a call gave; a failure needs a device that is at fault.
    pub fn call<T, E: std::fmt::Display>(
        &mut self,
        host: usize,
        what: &str,
        result: Result<T, E>,
    ) -> Result<Option<T>, Violation> {
        self.calls += 1;
        // It looks once more before it sleeps.
        self.hosts[host].dirty |= self.shape.wakes[host] != Wake::Polls;
        match result {
            Ok(value) => Ok(Some(value)),
            Err(error) if self.hosts[host].sick || self.hosts[host].flaky => {
                self.say(host, format_args!("{what}: {error}"));
                Ok(None)
            }
            Err(error) => violation("call", format!("h{host}: {what}: {error}")),
        }
    }

    // ---- excuses ----

    /// Whether a host's device is at fault.
    #[must_use]
    pub fn ill(&self, host: usize) -> bool {
        let known = &self.hosts[host];
        known.sick || known.lost || known.flaky
    }

    /// The connection of an end may break from now on.
    pub fn excuse(&mut self, l: usize, side: usize, why: &'static str) {
        let link = &mut self.links[l];
        if let Some(conn) = link.ends[side].conn {
            link.conns[conn].excuse.get_or_insert(why);
        }
    }

    /// All connections of a host may break.
    pub fn excuse_all(&mut self, host: usize, why: &'static str) {
        for n in 0..self.hosts[host].ends.len() {
            let (l, side) = self.hosts[host].ends[n];
            self.excuse(l, side, why);
            // One that the peer has asked for, and this host has not accepted.
            self.excuse(l, 1 - side, why);
        }
    }

    /// Whether one of the hosts of a link has forgotten a connection with the other, which takes the
    /// first request from the same queue pair number as its end.
    fn is_stale(&self, l: usize) -> bool {
        let hosts = self.shape.links[l].hosts;
        let between =
            self.links.iter().filter(|link| link.ends.iter().all(|end| hosts.contains(&end.host)));
        let mut ends = between.flat_map(|link| [(0, 1), (1, 0)].map(|(a, b)| (link, a, b)));
        ends.any(|(link, a, b)| {
            let (near, far) = (&link.ends[a], &link.ends[b]);
            // A request that waits for its answer is known too, whoever has given up the Endpoint.
            let adapter = self.hosts[near.host].adapter.as_ref();
            let mut waiting = adapter.iter().flat_map(|adapter| &adapter.waiting);
            near.phase.is_open() && (near.conn != far.conn || !far.phase.is_open())
                || waiting.any(|request| {
                    hosts.contains(&self.links[request.link].ends[0].host)
                        && hosts.contains(&self.links[request.link].ends[1].host)
                })
        })
    }

    /// A new connection of a link, with what excuses it already.
    pub fn connection(&mut self, l: usize) -> usize {
        let now = self.now();
        let hosts = self.shape.links[l].hosts.map(|host| &self.hosts[host]);
        let excuse = if hosts.iter().any(|host| host.sick || host.lost || host.flaky) {
            Some("a device at fault")
        } else if hosts.iter().any(|host| host.rough > now) {
            Some("a rough wire")
        } else if self.is_stale(l) {
            Some("a connection that one side has forgotten")
        } else {
            None
        };
        self.links[l].conns.push(Conn { excuse, ..Conn::default() });
        self.links[l].conns.len() - 1
    }
}
