//! The driver's platform on every machine: its registers, memory that the machine has set aside,
//! and its clock.
//!
//! `tests/unikernel/examples/embedder.rs` says what each method is for.

use core::ptr::NonNull;

use hca_mlx5::dma::Memory;
use hca_mlx5::mmio;
use hca_mlx5::platform::{self, Bar, Blocks, Dma, Fence, RawArena, Reach, Span, arena_words};

use crate::clock::Clock;
use crate::entropy::Entropy;
use crate::machine::{Interrupts, Registers};
use crate::reserve::{PAGE, Reserve};

/// Bytes of the arena: enough for the largest test of the `dat` command and the driver's queues.
pub(crate) const ARENA: usize = 16 << 20;
/// Bytes of the pages for the firmware: a ConnectX-4 asks for half of that.
pub(crate) const FIRMWARE: usize = 32 << 20;
/// Longest sleep of a bounded wait: an interrupt ends it early, and cards are known to lose some.
const NAP: u64 = 1_000_000;

/// Words in which the arena keeps what is free.
const WORDS: usize = arena_words(ARENA);

/// Memory that the machine sets aside for the device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lent {
    /// Where the CPU sees it.
    pub(crate) cpu: NonNull<u8>,
    /// Where the device does.
    pub(crate) device: u64,
}

// SAFETY: it is memory that only the arena, the reserve and the device touch, by raw pointers.
unsafe impl Send for Lent {}
// SAFETY: as above.
unsafe impl Sync for Lent {}

/// The host of the driver.
#[derive(Debug)]
pub(crate) struct Host {
    bar: Registers,
    /// The device address of the arena.
    device: u64,
    arena: RawArena<&'static mut [u64; WORDS]>,
    reserve: Reserve<{ FIRMWARE / PAGE / 64 }>,
    pub(crate) clock: Clock,
    pub(crate) entropy: Entropy,
    /// None: the image polls.
    pub(crate) interrupts: Option<Interrupts>,
}

impl Host {
    /// Makes the host of the registers and of the memory.
    ///
    /// # Safety
    /// `arena` has [`ARENA`] bytes and `firmware` [`FIRMWARE`], aligned to pages, of which nothing
    /// else makes use as long as the host exists.
    pub(crate) unsafe fn new(
        bar: Registers,
        [arena, firmware]: [Lent; 2],
        words: &'static mut [u64; WORDS],
        clock: Clock,
        entropy: Entropy,
        interrupts: Option<Interrupts>,
    ) -> Self {
        Self {
            bar,
            device: arena.device,
            // SAFETY: the caller's promise.
            arena: RawArena::new(unsafe { Memory::new(arena.cpu, ARENA) }, words),
            reserve: Reserve::new(firmware.device),
            clock,
            entropy,
            interrupts,
        }
    }

    /// Sleeps until an interrupt, for at most `nanos`; without interrupts, only pauses for a
    /// moment.
    pub(crate) fn rest(&self, nanos: u64) {
        match &self.interrupts {
            Some(interrupts) => interrupts.sleep(nanos),
            None => core::hint::spin_loop(),
        }
    }

    /// Returns the number of pages that the firmware holds.
    pub(crate) fn held(&self) -> u32 {
        self.reserve.held()
    }

    /// Returns the number of allocated bytes of the arena.
    pub(crate) fn used(&self) -> usize {
        ARENA - self.arena.available()
    }
}

impl Bar for Host {
    fn bar_len(&self) -> usize {
        self.bar.len()
    }
    fn read32(&self, offset: usize) -> u32 {
        self.bar.read32(offset)
    }
    fn write32(&self, offset: usize, value: u32) {
        self.bar.write32(offset, value);
    }
    fn write64(&self, offset: usize, value: u64) {
        self.bar.write64(offset, value);
    }
    #[inline]
    fn write_block(&self, offset: usize, block: &[u64; 8], how: Blocks) {
        self.bar.write_block(offset, block, how);
    }
}

impl Dma for Host {
    type Probe = ();

    fn memory(&self) -> &Memory {
        self.arena.memory()
    }
    fn alloc(&self, len: usize, align: usize, _: Reach) -> Option<Span> {
        self.arena.alloc(len, align)
    }
    fn free(&self, span: Span) {
        self.arena.free(span);
    }
    fn iova(&self, offset: usize) -> Option<(u64, usize)> {
        let memory = self.arena.memory();
        memory.iova(self.device, offset)
    }
    fn fence(&self, fence: Fence) {
        mmio::fence(fence);
    }
    fn pages_take(&self, to: &mut [u64]) -> usize {
        self.reserve.take(to)
    }
    fn pages_return(&self, pages: &[u64]) -> usize {
        self.reserve.give(pages)
    }
}

impl platform::Clock for Host {
    fn now(&self) -> u64 {
        self.clock.now()
    }
    fn relax(&self) {
        self.rest(NAP);
    }
    fn pause(&self) {
        core::hint::spin_loop();
    }
}
