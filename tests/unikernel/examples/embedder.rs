//! What an embedder writes: the whole of a [`Platform`](hca_mlx5::platform::Platform), over
//! ordinary memory.
//!
//! Copy it, and replace what the comments say. The host here has everything but a device: its "BAR
//! 0" is a piece of memory in which nobody answers, so bring-up ends, in words, when its time is
//! over. `cargo run -p dat-unikernel --example embedder` shows that.
//!
//! What an embedder has done before it makes the platform: found the function on the bus, reset it
//! (FLR), sized and mapped BAR 0 uncached, switched memory space and bus mastering on.
#![expect(unsafe_code, reason = "raw memory becomes safe in Host::new")]
#![expect(clippy::print_stdout, reason = "an example talks")]

use std::cell::UnsafeCell;
use std::ptr::NonNull;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use dat_core::Fault;
use hca_mlx5::dma::Memory;
use hca_mlx5::mmio::{self, MappedBar};
use hca_mlx5::platform::{Bar, Clock, Dma, Fence, RawArena, Reach, Span};
use hca_mlx5::{Config, Mlx5};

const MIB: usize = 1 << 20;

/// Memory that the device may reach: a static here, huge pages or a reserved range elsewhere.
#[repr(C, align(4096))]
struct Pages(UnsafeCell<[u8; MIB]>);

// SAFETY: only the arena, the BAR and the device touch the bytes, through raw pointers.
unsafe impl Sync for Pages {}

/// Queues, doorbell records and the consumers' buffers come out of the arena.
static ARENA: Pages = Pages(UnsafeCell::new([0; MIB]));
/// Pages for the firmware: 16 to 32 MiB for a real card, less with a smaller `Config::log_max_qp`.
static FIRMWARE: Pages = Pages(UnsafeCell::new([0; MIB]));
static BAR: Pages = Pages(UnsafeCell::new([0xff; MIB]));

struct Host {
    bar: MappedBar,
    arena: RawArena,
    /// Pages given to the firmware so far.
    given: AtomicUsize,
    start: Instant,
}

impl Host {
    /// Made once: there is one arena.
    fn new() -> Self {
        Self {
            // SAFETY: in a real host, the mapping of BAR 0. This one is aligned, lives for ever,
            // and nobody else uses it.
            bar: unsafe { MappedBar::new(NonNull::from(&BAR).cast(), MIB) },
            // SAFETY: page aligned, lives for ever, and nobody else uses it.
            arena: RawArena::new(unsafe { Memory::new(NonNull::from(&ARENA).cast(), MIB) }),
            given: AtomicUsize::new(0),
            start: Instant::now(),
        }
    }
}

/// Registers, as [`MappedBar`] has them. A host whose registers are not mapped writes these out.
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
    fn write_block(&self, offset: usize, block: &[u64; 8]) {
        self.bar.write_block(offset, block);
    }
}

impl Dma for Host {
    type Probe = ();

    // The arena, as `RawArena` has it. A host with an allocator of its own writes `alloc` and
    // `free` out, over a `Memory`.
    fn memory(&self) -> &Memory {
        self.arena.memory()
    }
    fn alloc(&self, len: usize, align: usize, _: Reach) -> Option<Span> {
        self.arena.alloc(len, align)
    }
    fn free(&self, span: Span) {
        self.arena.free(span);
    }
    /// Where the device sees the arena, and how far it goes on: here at the CPU's address. Behind
    /// an IOMMU: at its IOVA.
    fn iova(&self, offset: usize) -> Option<(u64, usize)> {
        let memory = self.arena.memory();
        memory.iova(memory.addr(), offset)
    }
    /// As coherent memory needs it on this CPU.
    fn fence(&self, fence: Fence) {
        mmio::fence(fence);
    }
    // Pages for the firmware: taken once and never reused here; a host that opens the device again
    // keeps a list.
    fn pages_take(&self, to: &mut [u64]) -> usize {
        let base = FIRMWARE.0.get().expose_provenance();
        let first = self.given.load(Ordering::Relaxed);
        let count = to.len().min(MIB / 4096 - first);
        for (page, number) in to.iter_mut().zip(first..first + count) {
            *page = (base + number * 4096) as u64;
        }
        self.given.store(first + count, Ordering::Relaxed);
        count
    }
    fn pages_return(&self, pages: &[u64]) -> usize {
        pages.len()
    }
}

impl Clock for Host {
    /// Nanoseconds that never go back: a calibrated counter in firmware.
    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
    /// In every bounded wait: firmware would halt until an interrupt, or do nothing.
    fn relax(&self) {
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// A random number: from a hardware generator in firmware.
fn entropy() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0)
}

/// Brings up the device that is not there.
fn open(limit: Duration) -> Result<(), Fault> {
    static HOST: LazyLock<Host> = LazyLock::new(Host::new);
    // Keys and the like follow from `entropy`. `write_combining` would be true if the doorbell pages
    // were mapped so.
    let config = Config { entropy: entropy(), init_timeout: limit, ..Config::default() };
    // Tables for 16 queue pairs, 16 completion queues and 64 memory keys. With a device, `Ia::open`
    // comes next.
    Mlx5::<Host, 16, 16, 64>::open(&HOST, &config).map(drop)
}

fn main() {
    match open(Duration::from_secs(1)) {
        Ok(()) => println!("up"),
        Err(fault) => println!("{fault}"),
    }
}

#[test]
fn without_a_device_bring_up_ends_in_time_and_in_words() {
    let start = Instant::now();
    let fault = open(Duration::from_millis(50)).unwrap_err().to_string();
    assert!(start.elapsed() < Duration::from_secs(5));
    assert!(fault.contains("all ones"), "{fault}");
}
