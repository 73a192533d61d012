//! RDMA writes of many Endpoints in turn, and their completions, while the device is away.

use std::hint::black_box;
use std::time::Instant;

use dat_core::{CompletionFlags, DtoEvent, EpPoster, EvdReaper, Event, LmrTriplet, RmrTriplet};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;

use super::crowd::{Counts, Crowd, DTOS, Driver};
use crate::bench::measure::time;
use crate::bench::puppet::{Puppet, Registrar, Ring, Said};

const NONE: CompletionFlags = CompletionFlags::empty();
const WRITE: Said = Said::Request(0x08, 1);
/// Writes of a block: so many that what is touched once a block does not count.
pub const BLOCK: usize = 4096;
/// Endpoints made before those that write: as many as get doorbell registers of their own. Those are
/// no memory, but callgrind takes them for cache lines.
const OTHERS: usize = 256;

/// An Endpoint, and where its send queue stands.
struct Lane {
    poster: EpPoster<'static, Driver>,
    ring: Ring,
    block: u16,
}

/// Posters of all Endpoints of a crowd, and the order in which they write.
pub struct Writes {
    _crowd: Crowd,
    lanes: Vec<Lane>,
    order: Vec<u16>,
    /// How far in the order the completions are written, and how far the requests.
    at: [usize; 2],
    reaper: EvdReaper<'static, Driver>,
    puppet: Puppet<'static>,
    word: [LmrTriplet; 1],
    far: RmrTriplet,
    wrong: u64,
}

impl std::fmt::Debug for Writes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writes").field("lanes", &self.lanes.len()).finish_non_exhaustive()
    }
}

impl Writes {
    /// So many Endpoints, which write in the order in which they were made, or at random.
    ///
    /// # Panics
    /// If their number is 0, or more than 65,536.
    #[must_use]
    pub fn new(eps: usize) -> Self {
        let registrar: &'static Registrar = Box::leak(Box::default());
        let counts = Counts { eps: OTHERS + eps, objects: 0, listened: 0, dtos: DTOS };
        let mut crowd = Crowd::new(counts, Some(registrar));
        let host = crowd.hosts[0];
        let rings = registrar.sqs(host);
        let cq = registrar.newest_cq(host);
        host.detach(true);
        let (ia, of) = (&mut crowd.ias[0], &crowd.of[0]);
        let lanes: Vec<Lane> = rings[rings.len() - eps..]
            .iter()
            .zip(&of.eps[OTHERS..])
            .map(|(&ring, &ep)| Lane { poster: ia.ep_take_poster(ep).unwrap(), ring, block: 0 })
            .collect();
        let reaper = ia.evd_take_reaper(of.dto).unwrap();
        let (addr, context, _) = of.memory;
        let (far, _, rkey) = crowd.of[1].memory;
        Self {
            order: (0..eps).map(|lane| u16::try_from(lane).unwrap()).collect(),
            at: [0; 2],
            reaper,
            puppet: Puppet::new(host, cq, lanes[0].ring, 0, 0, 0),
            word: [LmrTriplet { addr, len: 8, context }],
            far: RmrTriplet { addr: far + 4096, len: 4096, context: rkey },
            wrong: 0,
            lanes,
            _crowd: crowd,
        }
    }

    /// From now on they write in a random order, the same every run.
    pub fn shuffle(&mut self) {
        self.order.shuffle(&mut SmallRng::seed_from_u64(1));
    }

    /// The next Endpoint in turn.
    fn next(&mut self, which: usize) -> usize {
        let lane = self.order[self.at[which]];
        self.at[which] = (self.at[which] + 1) % self.order.len();
        lane.into()
    }

    /// Writes the completions of a block ahead.
    fn complete(&mut self) {
        for _ in 0..BLOCK {
            let lane = self.next(0);
            let Lane { ring, block, .. } = &mut self.lanes[lane];
            self.puppet.turn_to(*ring, *block);
            self.puppet.say(WRITE, 1);
            *block = block.wrapping_add(1);
        }
    }

    /// Nanoseconds of one write and its event.
    ///
    /// # Panics
    /// If an event was not the expected one.
    pub fn time(&mut self, blocks: usize) -> f64 {
        let time = time(self, blocks, BLOCK, Self::complete, block, |_| ());
        assert_eq!(self.wrong, 0, "a wrong event");
        time
    }
}

/// Cache lines of an Endpoint that a write and its completion touch.
const LINES: usize = 8;

/// Nanoseconds of one load whose address the load before it brings, at random from as many cache
/// lines as the writes of so many Endpoints touch: what a miss costs on this machine.
///
/// # Panics
/// If there are no Endpoints.
#[must_use]
pub fn miss(eps: usize) -> f64 {
    const LOADS: usize = 1 << 20;
    let mut order: Vec<usize> = (0..eps * LINES).collect();
    order.shuffle(&mut SmallRng::seed_from_u64(2));
    let mut lines = vec![[0_usize; 8]; order.len()];
    for (at, from) in order.iter().enumerate() {
        lines[*from][0] = order[(at + 1) % order.len()];
    }
    let walk = |from| (0..LOADS).fold(from, |at: usize, _| lines[at][0]);
    let warm = walk(0);
    let start = Instant::now();
    black_box(walk(warm));
    start.elapsed().as_nanos() as f64 / LOADS as f64
}

/// A block of writes, and their events.
#[inline(never)]
pub fn block(writes: &mut Writes) {
    for cookie in 0..BLOCK as u64 {
        let lane = writes.next(1);
        let (word, far) = (black_box(&writes.word), black_box(&writes.far));
        let posted = writes.lanes[lane].poster.post_rdma_write(word, cookie, far, NONE);
        let right = match writes.reaper.dequeue() {
            Ok(Event::Dto(DtoEvent { cookie: done, .. })) => done == cookie,
            _ => false,
        };
        writes.wrong += u64::from(posted.is_err() || !right);
    }
}
