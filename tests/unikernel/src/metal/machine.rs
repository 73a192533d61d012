//! The machine as the driver's platform: registers and memory at their physical addresses, used by
//! the driver alone.
//!
//! The arena and the pages for the firmware are statics; the device sees them at the addresses the
//! CPU does, since no IOMMU is switched on. `tests/unikernel/examples/embedder.rs` says what each
//! method is for.

use core::cell::UnsafeCell;
use core::ptr::NonNull;

use hca_mlx5::dma::Memory;
use hca_mlx5::mmio::{self, MappedBar};
use hca_mlx5::platform::{self, Bar, Blocks, Dma, Fence, RawArena, Reach, Span, arena_words};

use crate::clock::Clock;
use crate::entropy::Entropy;
use crate::interrupts::Interrupts;
use crate::reserve::{PAGE, Reserve};

/// Bytes of the arena: enough for the largest test of the `dat` command and the driver's queues.
const ARENA: usize = 16 << 20;
/// Pages for the firmware: 32 MiB. A ConnectX-4 asks for half of that.
const FIRMWARE: usize = 8192;
/// Longest sleep of a bounded wait: an interrupt ends it early, and cards are known to lose some.
const NAP: u64 = 1_000_000;

#[repr(C, align(4096))]
struct Pages<const N: usize>(UnsafeCell<[u8; N]>);

// SAFETY: only the arena and the device touch the bytes, through raw pointers.
unsafe impl<const N: usize> Sync for Pages<N> {}

#[cfg_attr(dat_image, unsafe(link_section = ".arena"))]
static MEMORY: Pages<ARENA> = Pages(UnsafeCell::new([0; ARENA]));
#[cfg_attr(dat_image, unsafe(link_section = ".arena"))]
static RESERVE: Pages<{ FIRMWARE * PAGE }> = Pages(UnsafeCell::new([0; FIRMWARE * PAGE]));

/// In which the arena keeps what is free.
struct Words(UnsafeCell<[u64; arena_words(ARENA)]>);

// SAFETY: the one arena has them.
unsafe impl Sync for Words {}

static FREE: Words = Words(UnsafeCell::new([0; arena_words(ARENA)]));

/// The host of the driver.
#[derive(Debug)]
pub(crate) struct Machine {
    bar: MappedBar,
    arena: RawArena<&'static mut [u64]>,
    reserve: Reserve<{ FIRMWARE / 64 }>,
    pub(crate) clock: Clock,
    pub(crate) entropy: Entropy,
    /// None: the image polls.
    pub(crate) interrupts: Option<Interrupts>,
}

impl Machine {
    /// The machine, with BAR 0 of the HCA mapped. Made once: there is one arena.
    pub(crate) fn new(
        bar: MappedBar,
        clock: Clock,
        entropy: Entropy,
        interrupts: Option<Interrupts>,
    ) -> Option<Self> {
        let memory = NonNull::new(MEMORY.0.get())?;
        // SAFETY: a static that is used only here, and the machine is made once.
        let words = unsafe { &mut *FREE.0.get() };
        Some(Self {
            bar,
            // SAFETY: a static that is used only here.
            arena: RawArena::new(unsafe { Memory::new(memory.cast(), ARENA) }, words),
            reserve: Reserve::new(RESERVE.0.get().expose_provenance() as u64),
            clock,
            entropy,
            interrupts,
        })
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

impl Bar for Machine {
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

impl Dma for Machine {
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
        memory.iova(memory.addr(), offset)
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

impl platform::Clock for Machine {
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
