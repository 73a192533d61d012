//! The model in process: the driver's platform over a device model in the same thread, under
//! virtual time.
//!
//! A [`World`] holds the models and the clock. A [`Slot`] is one model with its memory, and is the
//! [`Platform`](hca_mlx5::platform::Platform) of one driver. Time passes only in [`World::turn`] and in the driver's bounded
//! waits ([`Clock::relax`]), so a run is the same every time and a minute of retries costs
//! nothing.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dat_core::provider::Region;
use hca_mlx5::Config;
use hca_mlx5::platform::{Bar, Blocks, Clock, Dma, Fence, Lend, Reach, Span};
use mlx5_model::Hca;
use mlx5_model::host::{HostMemory, Nanos};
use mlx5_model::wire::ModelClock;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::chosen::with_options;
use super::free::Free;
use super::notes;
use super::views::{Shared, Views};

/// CPU address of an arena. Not the address of any real memory: nothing may dereference it.
pub const ARENA: u64 = 0x5000_0000_0000;
/// Length of BAR 0.
pub const BAR: usize = 32 << 20;
/// The clock goes on by at least this much in a wait.
const TICK: Nanos = 1_000;
/// And by at most this much in one turn, so that no member sleeps through its deadline.
const LEAP: Nanos = 1_000_000;

/// The command register in configuration space.
const COMMAND: usize = 4;

/// Locks, whatever happened to another holder: a poisoned test has failed already.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Switches memory decoding and bus mastering on, as a host does before it hands a function to its
/// driver.
pub fn enable(hca: &mut Hca) {
    hca.config_write(COMMAND, &[0x06, 0x00]);
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World").field("now", &self.now()).finish_non_exhaustive()
    }
}

/// A device for which time passes.
pub trait Member: Send + Sync {
    /// Makes some of the host's unfenced stores visible, as time would.
    fn drain_stores(&self);
    /// Does what is due at `now`; when it wants to be called again.
    fn step(&self, now: Nanos) -> Option<Nanos>;
}

/// Models that share a clock.
#[derive(Default)]
pub struct World {
    clock: ModelClock,
    members: Mutex<Vec<Arc<dyn Member>>>,
}

impl World {
    /// An empty world at time zero.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// An empty world whose time is that of `clock`.
    #[must_use]
    pub fn with_clock(clock: &ModelClock) -> Arc<Self> {
        Arc::new(Self { clock: clock.clone(), ..Self::default() })
    }

    /// Lets `member` take part.
    pub fn join(&self, member: Arc<dyn Member>) {
        lock(&self.members).push(member);
    }

    /// The clock, for wires and taps.
    #[must_use]
    pub fn clock(&self) -> ModelClock {
        self.clock.clone()
    }

    /// Model time.
    pub fn now(&self) -> Nanos {
        self.clock.now()
    }

    /// Lets every model do what is due, then moves the clock: to the next deadline of any model,
    /// but by one tick at least and one leap at most.
    pub fn turn(&self) {
        self.turn_by(LEAP);
    }

    /// As [`World::turn`], with a shorter leap.
    pub fn turn_by(&self, leap: Nanos) {
        let members = lock(&self.members);
        let now = self.now();
        members.iter().for_each(|member| member.drain_stores());
        let next = members.iter().filter_map(|member| member.step(now)).min();
        let next = next.unwrap_or(now + leap).clamp(now + TICK.min(leap), now + leap);
        self.clock.set(next);
    }
}

/// A model and its memory.
struct Plugged {
    hca: Arc<Mutex<Hca>>,
    views: Arc<Mutex<Views>>,
    leaves: Arc<Mutex<Option<Nanos>>>,
}

impl Member for Plugged {
    fn drain_stores(&self) {
        lock(&self.views).drain_one();
    }

    fn step(&self, now: Nanos) -> Option<Nanos> {
        let mut leaves = lock(&self.leaves);
        let mut hca = lock(&self.hca);
        if leaves.take_if(|at| *at <= now).is_some() {
            hca.config_write(COMMAND, &[0, 0]);
        }
        hca.step(now).into_iter().chain(*leaves).min()
    }
}

/// How much memory a slot has.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// Pages of the arena.
    pub arena: usize,
    /// Pages of the firmware reserve.
    pub firmware: usize,
}

impl Default for Memory {
    /// 8 MiB of arena and 128 MiB for the firmware: the hungriest card known asks for 89 MiB.
    fn default() -> Self {
        Self { arena: 2048, firmware: 32768 }
    }
}

/// One model in its slot, which the driver takes for its machine.
pub struct Slot {
    world: Arc<World>,
    hca: Arc<Mutex<Hca>>,
    memory: hca_mlx5::dma::Memory<Shared>,
    views: Arc<Mutex<Views>>,
    free: Mutex<Free>,
    entropy: Mutex<SmallRng>,
    /// Memory shared under a name.
    shared: Mutex<BTreeMap<[u8; 40], Span>>,
    /// Allocations that succeed before one fails.
    failure: Mutex<Option<u64>>,
    /// The device goes on beside the driver, and when.
    beside: Mutex<Option<SmallRng>>,
    /// When the function leaves the bus.
    leaves: Arc<Mutex<Option<Nanos>>>,
    total: usize,
}

impl std::fmt::Debug for Slot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Slot").field("arena", &self.total).finish_non_exhaustive()
    }
}

impl Slot {
    /// Plugs a model into the world. `build` gets its memory.
    pub fn plug(
        world: &Arc<World>,
        memory: Memory,
        seed: u64,
        build: impl FnOnce(Box<dyn HostMemory + Send>) -> Hca,
    ) -> Self {
        let views = Arc::new(Mutex::new(Views::new(memory.arena, memory.firmware)));
        let mut hca = build(Box::new(Shared(Arc::clone(&views))));
        enable(&mut hca);
        notes::watch(&mut hca);
        let hca = Arc::new(Mutex::new(hca));
        let leaves = Arc::default();
        world.join(Arc::new(Plugged {
            hca: Arc::clone(&hca),
            views: Arc::clone(&views),
            leaves: Arc::clone(&leaves),
        }));
        let total = lock(&views).len();
        Self {
            world: Arc::clone(world),
            hca,
            memory: Shared(Arc::clone(&views)).memory(ARENA),
            views,
            free: Mutex::new(Free::new(total)),
            entropy: Mutex::new(SmallRng::seed_from_u64(seed)),
            shared: Mutex::default(),
            failure: Mutex::default(),
            beside: Mutex::default(),
            leaves,
            total,
        }
    }

    /// From now on the world goes on beside the driver: before some of the driver's stores to
    /// registers the devices do what is due, as they do that are not in the same thread.
    pub fn run_beside(&self, seed: u64) {
        *lock(&self.beside) = Some(SmallRng::seed_from_u64(seed));
    }

    /// A store of the driver's to a register.
    fn store(&self, offset: usize, bytes: &[u8]) {
        if lock(&self.beside).as_mut().is_some_and(|rng| rng.random_ratio(1, 4)) {
            self.world.turn_by(TICK);
        }
        self.hca().bar_write(offset as u64, bytes);
    }

    /// The model.
    pub fn hca(&self) -> MutexGuard<'_, Hca> {
        lock(&self.hca)
    }

    /// Its memory.
    pub fn views(&self) -> MutexGuard<'_, Views> {
        lock(&self.views)
    }

    /// Says that a piece of the arena is shared with other processes under a name.
    pub fn share(&self, name: &[u8; 40], span: Span) {
        lock(&self.shared).insert(*name, span);
    }

    /// Lends memory of a program to the device: so many zeroed bytes.
    pub fn lend(&self, len: usize) -> Region {
        lock(&self.views).lent.lend(len)
    }

    /// Lends a piece of which only 8 KiB at each end are there; `shift` is how
    /// far the device's addresses are from agreeing with the CPU's.
    pub fn lend_ends(&self, len: u64, shift: u64) -> Region {
        lock(&self.views).lent.lend_ends(len, shift)
    }

    /// Takes memory back that was lent.
    pub fn take_back(&self, region: Region) {
        lock(&self.views).lent.take_back(region);
    }

    /// The world it is in.
    #[must_use]
    pub fn world(&self) -> &Arc<World> {
        &self.world
    }

    /// Takes all memory back, arena and firmware pages, also what a device that stopped answering
    /// might still have written to. For after a reset of the function, when its driver is gone.
    pub fn reclaim(&self) {
        lock(&self.views).reclaim();
        *lock(&self.free) = Free::new(self.total);
    }

    /// Random bytes, the same every run.
    pub fn entropy(&self) -> [u8; 32] {
        lock(&self.entropy).random()
    }

    /// `wanted` with what the driver has to know of this host.
    #[must_use]
    pub fn config<'p>(&'p self, wanted: Config<'p>) -> Config<'p> {
        let entropy = self.entropy();
        let wanted = with_options(wanted);
        Config { entropy, blocks: Blocks::Combined, lender: Some(self), ..wanted }
    }

    /// The `nth` allocation from now, from 0, fails as if the arena were full.
    pub fn fail_alloc(&self, nth: u64) {
        *lock(&self.failure) = Some(nth);
    }

    /// Whether that allocation is still to come. None fails any more.
    pub fn spare_alloc(&self) -> bool {
        lock(&self.failure).take().is_some()
    }

    /// At that time, even in the midst of a call, the function leaves the bus: registers read as
    /// ones, stores are lost, and it does not reach memory.
    pub fn leave_at(&self, at: Nanos) {
        *lock(&self.leaves) = Some(at);
    }

    /// Arena bytes handed out.
    #[must_use]
    pub fn in_use(&self) -> usize {
        self.total - lock(&self.free).bytes()
    }
}

impl Bar for Slot {
    fn bar_len(&self) -> usize {
        BAR
    }

    fn read32(&self, offset: usize) -> u32 {
        let mut bytes = [0xff; 4];
        self.hca().bar_read(offset as u64, &mut bytes);
        u32::from_ne_bytes(bytes)
    }

    fn write32(&self, offset: usize, value: u32) {
        self.store(offset, &value.to_ne_bytes());
    }

    fn write64(&self, offset: usize, value: u64) {
        self.store(offset, &value.to_ne_bytes());
    }

    fn write_block(&self, offset: usize, block: &[u64; 8], _: Blocks) {
        let mut bytes = [0; 64];
        for (place, word) in bytes.chunks_exact_mut(8).zip(block) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        self.store(offset, &bytes);
    }
}

impl Lend for Slot {
    fn lent(&self, region: Region) -> Option<u64> {
        lock(&self.views).lent.iova(region)
    }

    fn write(&self, addr: u64, bytes: &[u8]) -> bool {
        let mut views = lock(&self.views);
        let place = views.lent.near(addr, bytes.len());
        place.is_some_and(|place| {
            place.copy_from_slice(bytes);
            true
        })
    }

    fn shared(&self, name: &[u8; 40]) -> Option<Region> {
        let span = lock(&self.shared).get(name).copied()?;
        Some(Region { addr: ARENA + span.offset as u64, len: span.len as u64 })
    }
}

impl Dma for Slot {
    type Probe = Shared;

    fn memory(&self) -> &hca_mlx5::dma::Memory<Shared> {
        &self.memory
    }

    fn alloc(&self, len: usize, align: usize, reach: Reach) -> Option<Span> {
        let len = len.max(1).checked_next_multiple_of(64)?;
        {
            let mut failure = lock(&self.failure);
            if let Some(left) = failure.take() {
                *failure = Some(left.checked_sub(1)?);
            }
        }
        let start = lock(&self.free).take(len, align.max(64))?;
        let span = Span { offset: start, len };
        let mut views = lock(&self.views);
        views.handed_out(span, reach);
        views.clear(start, len);
        Some(span)
    }

    fn free(&self, span: Span) {
        lock(&self.views).given_back(span);
        lock(&self.free).give(span.offset, span.len.max(1).next_multiple_of(64));
    }

    fn iova(&self, offset: usize) -> Option<(u64, usize)> {
        lock(&self.views).iova(offset)
    }

    fn fence(&self, fence: Fence) {
        match fence {
            Fence::BeforeRecord | Fence::BeforeDoorbell | Fence::BeforeUncached => {
                lock(&self.views).release();
            }
            Fence::AfterOwnership => lock(&self.views).acquire(),
            Fence::AfterDoorbell => {}
        }
    }

    fn pages_take(&self, to: &mut [u64]) -> usize {
        lock(&self.views).pages_take(to)
    }

    fn pages_return(&self, pages: &[u64]) -> usize {
        lock(&self.views).pages_return(pages)
    }
}

impl Clock for Slot {
    fn now(&self) -> u64 {
        self.world.now()
    }

    fn relax(&self) {
        self.world.turn();
    }
}
