//! A complete platform by an embedder, over ordinary memory.
//!
//! Copy it, and replace the parts that the comments name. The host here has no device: its "BAR 0"
//! is memory that never answers, so bring-up ends with an error after its timeout.
//! `cargo run -p dat-unikernel --example embedder` shows that.
//!
//! Before it makes the platform, an embedder finds the function on the bus, resets it (FLR), sizes
//! BAR 0, maps it uncached, and switches memory decoding and bus mastering on.
#![expect(unsafe_code, reason = "raw memory becomes safe in Host::new")]
#![expect(clippy::print_stdout, reason = "an example prints")]

use std::cell::UnsafeCell;
use std::ptr::NonNull;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use dat_core::Fault;
use hca_mlx5::dma::Memory;
use hca_mlx5::mmio::{self, MappedBar};
use hca_mlx5::platform::{Bar, Blocks, Clock, Dma, Fence, RawArena, Reach, Span, arena_words};
use hca_mlx5::{Config, Mlx5};

const MIB: usize = 1 << 20;

/// Memory that the device may access: a static here, huge pages or a reserved range elsewhere.
#[repr(C, align(4096))]
struct Pages(UnsafeCell<[u8; MIB]>);

// SAFETY: only the arena, the BAR and the device touch the bytes, through raw pointers.
unsafe impl Sync for Pages {}

/// Queues, doorbell records and the consumers' buffers are allocated from the arena.
static ARENA: Pages = Pages(UnsafeCell::new([0; MIB]));
/// Pages for the firmware: 16 to 32 MiB for a real card, less with a smaller `Config::log_max_qp`.
static FIRMWARE: Pages = Pages(UnsafeCell::new([0; MIB]));
static BAR: Pages = Pages(UnsafeCell::new([0xff; MIB]));

struct Host {
    bar: MappedBar,
    arena: RawArena<[u64; arena_words(MIB)]>,
    /// Pages given to the firmware so far.
    given: AtomicUsize,
    start: Instant,
}

impl Host {
    /// Made once: there is one arena.
    fn new() -> Self {
        Self {
            // SAFETY: in a real host, the mapping of BAR 0. This static is aligned and used only
            // here.
            bar: unsafe { MappedBar::new(NonNull::from(&BAR).cast(), MIB) },
            // SAFETY: a page-aligned static that is used only here.
            arena: RawArena::new(
                unsafe { Memory::new(NonNull::from(&ARENA).cast(), MIB) },
                [0; arena_words(MIB)],
            ),
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
    fn write_block(&self, offset: usize, block: &[u64; 8], how: Blocks) {
        self.bar.write_block(offset, block, how);
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
    /// Returns the device address of the arena at `offset`, and how many contiguous bytes follow:
    /// here the CPU's address, behind an IOMMU the IOVA.
    fn iova(&self, offset: usize) -> Option<(u64, usize)> {
        let memory = self.arena.memory();
        memory.iova(memory.addr(), offset)
    }
    /// As coherent memory needs it on this CPU.
    fn fence(&self, fence: Fence) {
        mmio::fence(fence);
    }
    // Pages for the firmware: each is used once here. A host that opens the device again needs a
    // free list.
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
    /// Returns monotonic time in nanoseconds: in firmware, a calibrated counter.
    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
    /// Called in every bounded wait: firmware would halt until an interrupt, or do nothing.
    fn relax(&self) {
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// Returns random bytes for keys and sequence numbers: in firmware, from a hardware generator.
fn entropy() -> [u8; 32] {
    use std::hash::{BuildHasher, RandomState};
    let mut bytes = [0; 32];
    for word in bytes.chunks_exact_mut(8) {
        word.copy_from_slice(&RandomState::new().hash_one(0).to_le_bytes());
    }
    bytes
}

/// Tries to bring up the missing device.
fn open(limit: Duration) -> Result<(), Fault> {
    static HOST: LazyLock<Host> = LazyLock::new(Host::new);
    // Keys and the like follow from `entropy`. `blocks` would say if the doorbell pages were mapped
    // write-combining.
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
fn the_page_shows_this_platform() {
    let (page, source) = (include_str!("../../../docs/embedding.md"), include_str!("embedder.rs"));
    let listing = page.split("```rust\n").find(|block| block.starts_with("struct Host {"));
    let listing = listing.and_then(|block| block.split("```").next()).unwrap();
    let code = |text: &'static str| {
        let is_code = |line: &&str| {
            let line = line.trim();
            !line.is_empty() && !line.starts_with("//")
        };
        text.lines().filter(is_code).collect::<Vec<_>>()
    };
    let source = code(source);
    let first = source.iter().position(|line| *line == "struct Host {").unwrap();
    let listing = code(listing);
    assert_eq!(listing, source[first..first + listing.len()]);
    assert!(listing.contains(&"impl Clock for Host {") && listing.len() > 60);
}

#[test]
fn bring_up_without_a_device_times_out_with_an_error() {
    let start = Instant::now();
    let fault = open(Duration::from_millis(50)).unwrap_err().to_string();
    assert!(start.elapsed() < Duration::from_secs(5));
    assert!(fault.contains("all ones"), "{fault}");
}
