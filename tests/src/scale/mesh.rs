//! A mesh: Interface Adapters in one process, each pair of them connected by so many Endpoints, and
//! each Endpoint sends a message to its peer and takes one.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use dat_core::{
    CloseFlag, CompletionFlags, Cr, DatReturn, DtoEvent, DtoOperation, DtoStatus, Ep, Evd,
    EvdFlags, Event, Instant, LmrTriplet, MemPriv, PspFlag, Qos, Sizes,
};
use hca_mlx5::dma::Buffer;
use hca_mlx5::platform::Clock;
use mlx5_model::wire::switch::{self, Port};

use super::crowd::{Adapter, DTOS, Host, LIMIT, QUALIFIER, address, attr, open, plug};
use crate::host::inproc::World;

/// Connections that a node has under way as the active side.
const BATCH: usize = 32;
/// Bytes of a message: who sends it, with which of its Endpoints, and to whom.
const LEN: usize = 16;
/// Endpoint of a peer that is not known to the sender.
const ANY: u32 = u32::MAX;
/// Model time without an event until the mesh is given up.
const PATIENCE: Duration = Duration::from_secs(60);

const NONE: CompletionFlags = CompletionFlags::empty();

/// A node and one of its Endpoints.
type Place = [u32; 2];

/// How far the Endpoints of a node are: connections asked for, requests accepted; connections made,
/// and those of them that this side asked for; messages sent and taken; connections ended.
#[derive(Debug, Default)]
struct Counts {
    asked: usize,
    accepted: usize,
    made: usize,
    answered: usize,
    sent: usize,
    came: usize,
    ended: usize,
}

/// One adapter. Its first Endpoints ask the nodes behind it, the others are asked by those before.
struct Node {
    at: usize,
    active: usize,
    host: &'static Host,
    ia: Box<Adapter>,
    memory: Buffer<'static, Host>,
    context: u32,
    evds: [Evd; 3],
    eps: Vec<Ep>,
    numbers: HashMap<Ep, u32>,
    /// Whom each talks to, as far as this side knows.
    peers: Vec<Place>,
    counts: Counts,
}

/// All of them.
pub struct Mesh {
    world: Arc<World>,
    nodes: Vec<Node>,
    each: usize,
}

impl std::fmt::Debug for Mesh {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mesh").field("nodes", &self.nodes.len()).finish_non_exhaustive()
    }
}

impl Mesh {
    /// So many adapters, and Endpoints for so many connections of each pair.
    ///
    /// # Panics
    /// If a call is refused.
    #[must_use]
    pub fn new(nodes: usize, each: usize) -> Self {
        let world = World::new();
        let ports = switch::switch(nodes);
        let eps = each * (nodes - 1);
        let nodes = (0..).zip(ports).map(|(at, port)| Node::new(&world, at, port, each, eps));
        Self { nodes: nodes.collect(), world, each }
    }

    /// Connections of all.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.nodes.iter().map(|node| node.eps.len()).sum::<usize>() / 2
    }

    /// Connects every pair, and has each Endpoint send a message and take one.
    ///
    /// # Panics
    /// If a connection is not made, or a message is not the one that its peer sent.
    pub fn talk(&mut self) {
        let each = self.each;
        self.until(|node, now| {
            node.ask(each, now);
            let Counts { made, sent, came, .. } = node.counts;
            [made, sent, came] == [node.eps.len(); 3]
        });
    }

    /// Ends every connection from its active side, frees and closes.
    ///
    /// # Panics
    /// If a call is refused, the model complains, or anything is not given back.
    pub fn end(mut self) {
        let mut ended = vec![0; self.nodes.len()];
        self.until(|node, now| {
            let from = ended[node.at];
            let to = (from + BATCH).min(node.active);
            for &ep in &node.eps[from..to] {
                node.ia.ep_disconnect(now, ep, CloseFlag::Graceful).unwrap();
            }
            ended[node.at] = to;
            node.counts.ended == node.eps.len()
        });
        for node in self.nodes {
            node.close();
        }
    }

    /// Goes on until every node says that it is done, with all events taken.
    fn until(&mut self, mut done: impl FnMut(&mut Node, Instant) -> bool) {
        let mut since = self.world.now();
        loop {
            let now = Instant::from_nanos(self.world.now());
            let (mut all, mut worked) = (true, false);
            for node in &mut self.nodes {
                all &= done(node, now);
                worked |= node.ia.advance(now).work;
                while node.next(now) {
                    worked = true;
                }
            }
            if all {
                return;
            }
            if worked {
                since = self.world.now();
                self.world.turn_by(1_000);
            } else {
                self.world.turn();
            }
            let idle = Duration::from_nanos(self.world.now() - since);
            assert!(idle < PATIENCE, "no event in {idle:?}: {:?}", self.nodes);
        }
    }
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} Endpoints, {:?}", self.eps.len(), self.counts)
    }
}

impl Node {
    fn new(world: &Arc<World>, at: usize, port: Port, each: usize, eps: usize) -> Self {
        let host = plug(world, at, port, eps);
        // A request of every peer at once.
        let requests = (BATCH * eps / each).next_power_of_two() as u32;
        let (dtos, events) = (DTOS.into(), 2 * requests);
        let sizes = Sizes { eps: eps as u32, evds: 4, lmrs: 1, dtos, events, srqs: 1 };
        let mut ia = Box::new(open(host, at, &sizes, None));
        let pz = ia.pz_create().unwrap();
        let memory = Buffer::zeroed(host, 2 * LEN * eps).unwrap();
        let context = ia.lmr_create(pz, memory.region(), MemPriv::ALL).unwrap().lmr_context;
        let dto = ia.evd_create(2 * u32::from(DTOS) * eps as u32, EvdFlags::DTO).unwrap();
        let conn = ia.evd_create(2 * requests, EvdFlags::CONNECTION).unwrap();
        let cr = ia.evd_create(requests, EvdFlags::CR).unwrap();
        ia.psp_create(QUALIFIER, cr, PspFlag::Consumer).unwrap();
        let attr = attr(&ia);
        let make =
            |_| ia.ep_create(Some(pz), Some(dto), Some(dto), Some(conn), Some(&attr)).unwrap();
        let eps: Vec<Ep> = (0..eps).map(make).collect();
        let numbers = (0..).zip(&eps).map(|(number, &ep)| (ep, number)).collect();
        let peers = vec![[ANY; 2]; eps.len()];
        let evds = [dto, conn, cr];
        let (active, counts) = (eps.len() - each * at, Counts::default());
        let mut node =
            Self { at, active, host, ia, memory, context, evds, eps, numbers, peers, counts };
        for number in 0..node.eps.len() {
            let word = node.slot(2 * number + 1);
            node.ia.ep_post_recv(node.eps[number], &[word], number as u64, NONE).unwrap();
        }
        node
    }

    /// One message's room.
    fn slot(&self, index: usize) -> LmrTriplet {
        let addr = self.memory.addr() + (index * LEN) as u64;
        LmrTriplet { addr, len: LEN as u32, context: self.context }
    }

    /// Asks the nodes behind this one for connections, [`BATCH`] at a time.
    fn ask(&mut self, each: usize, now: Instant) {
        while self.counts.asked < self.active && self.counts.asked - self.counts.answered < BATCH {
            let number = self.counts.asked;
            let peer = self.at + 1 + number / each;
            self.peers[number] = [peer as u32, ANY];
            let name = bytes([self.at as u32, number as u32]);
            let (ep, to, qos) = (self.eps[number], address(peer), Qos::BestEffort);
            self.ia.ep_connect(now, ep, to, QUALIFIER, LIMIT, &name, qos).unwrap();
            self.counts.asked += 1;
        }
    }

    /// Accepts a request, with the next Endpoint.
    fn accept(&mut self, cr: Cr, now: Instant) {
        let number = self.active + self.counts.accepted;
        self.peers[number] = words(self.ia.cr_query(cr).unwrap().private_data);
        self.ia.cr_accept(now, cr, Some(self.eps[number]), b"").unwrap();
        self.counts.accepted += 1;
    }

    /// A connection is made: says to the peer who this is, and who it is.
    fn established(&mut self, ep: Ep) {
        let number = self.numbers[&ep] as usize;
        let message = [bytes([self.at as u32, number as u32]), bytes(self.peers[number])];
        let segment = self.slot(2 * number);
        assert_eq!(self.memory.copy_in(2 * number * LEN, message.as_flattened()), LEN);
        self.ia.ep_post_send(ep, &[segment], number as u64, NONE).unwrap();
        self.counts.answered += usize::from(number < self.active);
        self.counts.made += 1;
    }

    /// A message came on an Endpoint: it is from the peer, and names this side.
    fn check(&mut self, number: usize) {
        let mut message = [0; LEN];
        self.memory.copy_out((2 * number + 1) * LEN, &mut message);
        let (from, to) = (words(&message), words(&message[LEN / 2..]));
        let known = |[node, ep]: Place, is: Place| node == is[0] && (ep == ANY || ep == is[1]);
        let own = [self.at as u32, number as u32];
        assert!(known(self.peers[number], from) && known(to, own), "{own:?}: {from:?} {to:?}");
        self.counts.came += 1;
    }

    /// Frees everything, and closes.
    fn close(mut self) {
        let now = Instant::from_nanos(self.host.now());
        self.ia.close(now, CloseFlag::Abrupt).unwrap();
        drop(self.ia);
        self.memory.release();
        assert_eq!(self.host.taken(), 0, "node {}: bytes of the arena not given back", self.at);
        assert_eq!(self.host.pages_out(), 0, "node {}: pages not given back", self.at);
        let complaints = self.host.hca().complaints().to_vec();
        assert!(complaints.is_empty(), "node {}: {complaints:?}", self.at);
    }

    /// Takes one event, if there is one.
    fn next(&mut self, now: Instant) -> bool {
        let dequeued = self.evds.iter().find_map(|&evd| match self.ia.evd_dequeue(evd) {
            Err(DatReturn::QUEUE_EMPTY) => None,
            other => Some(other.unwrap()),
        });
        let Some(event) = dequeued else { return false };
        match event {
            Event::ConnectionRequest { cr, .. } => self.accept(cr, now),
            Event::Established(ep) => self.established(ep),
            Event::Disconnected(_) => self.counts.ended += 1,
            Event::Dto(DtoEvent { cookie, status: DtoStatus::Success, operation, .. }) => {
                if operation == DtoOperation::Receive {
                    self.check(cookie as usize);
                } else {
                    self.counts.sent += 1;
                }
            }
            other => unreachable!("{other:?}"),
        }
        true
    }
}

fn bytes(words: Place) -> [u8; LEN / 2] {
    let mut bytes = [0; LEN / 2];
    for (to, word) in bytes.chunks_exact_mut(4).zip(words) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// The first two words of a message.
fn words(bytes: &[u8]) -> Place {
    let words = bytes.chunks_exact(4).filter_map(<[_]>::first_chunk::<4>);
    let mut words = words.map(|word| u32::from_le_bytes(*word));
    [0; 2].map(|_| words.next().unwrap())
}
