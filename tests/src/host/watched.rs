//! A platform whose register reads can be changed, whose register writes and memory can be refused,
//! whose fences can be taken away, and whose waits are limited.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use hca_mlx5::dma::Memory;
use hca_mlx5::platform::{Bar, Blocks, Clock, Dma, Fence as Kind, Reach, Span};

use super::inproc::{Slot, lock};
use super::views::Shared;

/// Changes the result of a register read: takes offset and value, returns the value to give.
type Lens<'s> = Box<dyn FnMut(usize, u32) -> u32 + Send + 's>;
/// Sees a register write, by its offset; whether it reaches the device.
type Gate<'s> = Box<dyn FnMut(usize) -> bool + Send + 's>;
/// Sees a request for memory; whether the host has some.
type Grant<'s> = Box<dyn FnMut(Ask) -> bool + Send + 's>;

/// What the driver asks of its host's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// A piece of the arena.
    Alloc,
    /// The device address of a piece.
    Map,
    /// Pages for the firmware.
    Pages,
}

/// More than this many waits in one test mean that the driver waits for ever.
const PATIENCE: u64 = 20_000_000;

/// A fence that a machine may ignore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Fence {
    /// [`Kind::BeforeDoorbell`], and with it the other fences before something.
    BeforeDoorbell = 1,
    /// [`Kind::AfterOwnership`].
    AfterOwnership = 2,
}

/// The slot, with its registers seen through a lens, and all its fences but one that was taken
/// away.
pub struct Watched<'s> {
    /// The watched slot.
    pub slot: &'s Slot,
    lens: Mutex<Option<Lens<'s>>>,
    gate: Mutex<Option<Gate<'s>>>,
    grant: Mutex<Option<Grant<'s>>>,
    /// The [`Fence`] that does nothing; 0 is none.
    without: AtomicU8,
    waits: AtomicU64,
    reads: AtomicU64,
}

impl std::fmt::Debug for Watched<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watched").field("waits", &self.waits).finish_non_exhaustive()
    }
}

impl<'s> Watched<'s> {
    /// Registers read as they are.
    #[must_use]
    pub fn new(slot: &'s Slot) -> Self {
        Self {
            slot,
            lens: Mutex::new(None),
            gate: Mutex::new(None),
            grant: Mutex::new(None),
            without: AtomicU8::new(0),
            waits: AtomicU64::new(0),
            reads: AtomicU64::new(0),
        }
    }

    /// From now on registers read as `lens` says.
    pub fn look(&self, lens: impl FnMut(usize, u32) -> u32 + Send + 's) {
        *lock(&self.lens) = Some(Box::new(lens));
    }

    /// From now on register writes reach the device if `gate` says so.
    pub fn stores(&self, gate: impl FnMut(usize) -> bool + Send + 's) {
        *lock(&self.gate) = Some(Box::new(gate));
    }

    /// From now on the host has memory if `grant` says so.
    pub fn grants(&self, grant: impl FnMut(Ask) -> bool + Send + 's) {
        *lock(&self.grant) = Some(Box::new(grant));
    }

    /// Registers and memory are as they are again.
    pub fn clear(&self) {
        *lock(&self.lens) = None;
        *lock(&self.gate) = None;
        *lock(&self.grant) = None;
    }

    fn passes(&self, offset: usize) -> bool {
        lock(&self.gate).as_mut().is_none_or(|gate| gate(offset))
    }

    fn granted(&self, ask: Ask) -> bool {
        lock(&self.grant).as_mut().is_none_or(|grant| grant(ask))
    }

    /// From now on this machine ignores this fence; None gives it all of them back.
    pub fn take_away(&self, fence: Option<Fence>) {
        self.without.store(fence.map_or(0, |fence| fence as u8), Ordering::Relaxed);
    }

    fn has(&self, fence: Fence) -> bool {
        self.without.load(Ordering::Relaxed) != fence as u8
    }

    /// Register reads so far.
    #[must_use]
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }
}

impl Bar for Watched<'_> {
    fn bar_len(&self) -> usize {
        self.slot.bar_len()
    }

    fn read32(&self, offset: usize) -> u32 {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let value = u32::from_be(self.slot.read32(offset));
        let seen = match lock(&self.lens).as_mut() {
            Some(lens) => lens(offset, value),
            None => value,
        };
        seen.to_be()
    }

    fn write32(&self, offset: usize, value: u32) {
        if self.passes(offset) {
            self.slot.write32(offset, value);
        }
    }

    fn write64(&self, offset: usize, value: u64) {
        if self.passes(offset) {
            self.slot.write64(offset, value);
        }
    }

    fn write_block(&self, offset: usize, block: &[u64; 8], how: Blocks) {
        if self.passes(offset) {
            self.slot.write_block(offset, block, how);
        }
    }
}

impl Dma for Watched<'_> {
    type Probe = Shared;

    fn memory(&self) -> &Memory<Shared> {
        self.slot.memory()
    }

    fn alloc(&self, len: usize, align: usize, reach: Reach) -> Option<Span> {
        self.granted(Ask::Alloc).then(|| self.slot.alloc(len, align, reach)).flatten()
    }

    fn free(&self, span: Span) {
        self.slot.free(span);
    }

    fn iova(&self, offset: usize) -> Option<(u64, usize)> {
        self.granted(Ask::Map).then(|| self.slot.iova(offset)).flatten()
    }

    fn fence(&self, fence: Kind) {
        let there = match fence {
            Kind::BeforeRecord | Kind::BeforeDoorbell | Kind::BeforeUncached => {
                self.has(Fence::BeforeDoorbell)
            }
            Kind::AfterOwnership => self.has(Fence::AfterOwnership),
            Kind::AfterDoorbell => true,
        };
        if there {
            self.slot.fence(fence);
        }
    }

    fn pages_take(&self, to: &mut [u64]) -> usize {
        if self.granted(Ask::Pages) { self.slot.pages_take(to) } else { 0 }
    }

    fn pages_return(&self, pages: &[u64]) -> usize {
        self.slot.pages_return(pages)
    }
}

impl Clock for Watched<'_> {
    fn now(&self) -> u64 {
        self.slot.now()
    }

    fn relax(&self) {
        let waits = self.waits.fetch_add(1, Ordering::Relaxed);
        assert!(waits < PATIENCE, "the driver waits for ever");
        self.slot.relax();
    }
}
