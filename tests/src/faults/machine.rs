//! A host with every seam where a fault can strike, and the count of what struck.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use mlx5_model::faults::{Refusals, Refusing};
use mlx5_model::host::{DmaError, HostMemory, Nanos};
use mlx5_model::wire::{ModelClock, switch};
use mlx5_model::{Config as Card, Hca};

use super::what::Pick;
use crate::bringup::light;
use crate::host::inproc::{Member, Memory, Slot, World, lock};
use crate::session::Line;

/// Memory of each host: a cell needs little.
const MEMORY: Memory = Memory { arena: 512, firmware: 1024 };

/// When a fault strikes, and how often it has.
#[derive(Clone, Debug, Default)]
pub struct Trap(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    armed: AtomicBool,
    seen: AtomicU64,
    struck: AtomicU64,
    at: AtomicU64,
}

const ORDER: Ordering = Ordering::Relaxed;

impl Trap {
    /// From now on.
    pub fn arm(&self) {
        self.0.armed.store(true, ORDER);
    }

    /// No more.
    pub fn disarm(&self) {
        self.0.armed.store(false, ORDER);
    }

    /// One of its kind is there; whether it is struck.
    #[must_use]
    pub fn strikes(&self, pick: Pick, now: Nanos) -> bool {
        if !self.0.armed.load(ORDER) {
            return false;
        }
        let seen = self.0.seen.fetch_add(1, ORDER);
        let hit = seen >= pick.from && seen - pick.from < pick.count;
        if hit && self.0.struck.fetch_add(1, ORDER) == 0 {
            self.0.at.store(now, ORDER);
        }
        hit
    }

    /// Whether it has struck, and the first time.
    #[must_use]
    pub fn struck(&self) -> Option<Nanos> {
        (self.0.struck.load(ORDER) != 0).then(|| self.0.at.load(ORDER))
    }
}

/// One host, with its card.
#[derive(Debug)]
pub struct Machine {
    /// The card and its memory.
    pub slot: Slot,
    /// Its plug.
    pub line: Line,
    /// Accesses that its IOMMU refuses.
    pub refusals: Refusals,
}

/// The host's memory as a value that a wrapper can hold.
struct Owned(Box<dyn HostMemory + Send>);

impl HostMemory for Owned {
    fn read(&mut self, iova: u64, buf: &mut [u8]) -> Result<(), DmaError> {
        self.0.read(iova, buf)
    }

    fn write(&mut self, iova: u64, buf: &[u8]) -> Result<(), DmaError> {
        self.0.write(iova, buf)
    }
}

/// What is done to the machines at a time.
type Act = Box<dyn FnOnce(&[Machine; 2]) + Send>;

/// Does something at a time, also while a driver waits.
pub struct Later {
    act: Mutex<Option<(Nanos, Act)>>,
    machines: Weak<[Machine; 2]>,
}

impl std::fmt::Debug for Later {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Later").finish_non_exhaustive()
    }
}

impl Later {
    /// Takes part in the time of a world.
    #[must_use]
    pub fn join(world: &World, machines: &Arc<[Machine; 2]>) -> Arc<Self> {
        let later = Self { act: Mutex::new(None), machines: Arc::downgrade(machines) };
        let later = Arc::new(later);
        world.join(Arc::<Self>::clone(&later));
        later
    }

    /// From then on `act` is due; `None` takes it away.
    pub fn set(&self, act: Option<(Nanos, Act)>) {
        *lock(&self.act) = act;
    }
}

impl Member for Later {
    fn drain_stores(&self) {}

    fn step(&self, now: Nanos) -> Option<Nanos> {
        let due = lock(&self.act).take_if(|(at, _)| *at <= now);
        if let (Some((_, act)), Some(machines)) = (due, self.machines.upgrade()) {
            act(&machines);
        }
        lock(&self.act).as_ref().map(|(at, _)| *at)
    }
}

/// Two machines on a switch.
#[must_use]
pub fn plug() -> (Arc<World>, Arc<[Machine; 2]>) {
    let world = World::with_clock(&ModelClock::default());
    let mut ports = switch::switch(2).into_iter();
    let machines = [0, 1].map(|side| {
        let seed = 7 + side as u64;
        let port = ports.next().unwrap();
        let line = Line::new(Box::new(port), world.clock(), seed, Default::default());
        let mut card = Card { seed, ..light() };
        card.mac[5] = card.mac[5].wrapping_add(side as u8);
        let refusals = Refusals::default();
        let (plug, refusing) = (line.clone(), refusals.clone());
        let slot = Slot::plug(&world, MEMORY, seed, |memory| {
            let memory = Refusing::new(Owned(memory), refusing);
            Hca::new(card, Box::new(memory), Box::new(plug))
        });
        Machine { slot, line, refusals }
    });
    (world, Arc::new(machines))
}
