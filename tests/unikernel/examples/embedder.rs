//! A complete implementation of [`Platform`] by an embedder, over ordinary memory.
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
use hca_mlx5::dma::RawArena;
use hca_mlx5::mmio::MappedBar;
use hca_mlx5::platform::Platform;
use hca_mlx5::{Config, Mlx5};

const MIB: usize = 1 << 20;

/// Memory that the device may access: a static here, huge pages or a reserved range elsewhere.
#[repr(C, align(4096))]
struct Memory(UnsafeCell<[u8; MIB]>);

// SAFETY: only the arena, the BAR and the device touch the bytes, through raw pointers.
unsafe impl Sync for Memory {}

/// Queues, doorbell records and the consumers' buffers are allocated from the arena.
static ARENA: Memory = Memory(UnsafeCell::new([0; MIB]));
/// Pages for the firmware: 16 to 32 MiB for a real card, less with a smaller `Config::log_max_qp`.
static FIRMWARE: Memory = Memory(UnsafeCell::new([0; MIB]));
static BAR: Memory = Memory(UnsafeCell::new([0xff; MIB]));

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
            // SAFETY: in a real host, the mapping of BAR 0. This static is aligned and used only
            // here.
            bar: unsafe { MappedBar::new(NonNull::from(&BAR).cast(), MIB) },
            // SAFETY: a page-aligned static that is used only here.
            arena: unsafe { RawArena::new(NonNull::from(&ARENA).cast(), MIB) },
            given: AtomicUsize::new(0),
            start: Instant::now(),
        }
    }
}

impl Platform for Host {
    /// True only if the doorbell pages are mapped write-combining.
    const WRITE_COMBINING: bool = false;

    // Registers: bar_len, read32, write32, write64, write_block, register, as `MappedBar` has them.
    // A host whose registers are not mapped writes these out.
    hca_mlx5::forward_bar!(bar);
    // The arena: arena_len, arena_addr, alloc, free, load32, load_words, store32, store_words,
    // read_bytes, write_bytes, entries, as `RawArena` has them. A host with an allocator of its
    // own: `forward_arena!(except alloc, free: arena)`.
    hca_mlx5::forward_arena!(arena);
    // Order: before_doorbell, before_record, after_ownership, after_mmio, as coherent memory needs
    // them on this CPU.
    hca_mlx5::forward_order!();

    /// Returns the device address of the arena at `offset`, and how many contiguous bytes follow:
    /// here the CPU's address, behind an IOMMU the IOVA.
    fn iova(&self, offset: usize) -> Option<(u64, usize)> {
        self.arena.iova(self.arena.addr(), offset)
    }

    // Pages for the firmware: each is used once here. A host that opens the device again needs a
    // free list.
    fn pages_take(&self, to: &mut [u64]) -> usize {
        let base = FIRMWARE.0.get().expose_provenance();
        let first = self.given.load(Ordering::Relaxed);
        let count = to.len().min(MIB / 4096 - first);
        for (place, page) in to.iter_mut().zip(first..first + count) {
            *place = (base + page * 4096) as u64;
        }
        self.given.store(first + count, Ordering::Relaxed);
        count
    }
    fn pages_return(&self, pages: &[u64]) -> usize {
        pages.len()
    }

    /// Returns monotonic time in nanoseconds: in firmware, a calibrated counter.
    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
    /// Called in every bounded wait: firmware would halt until an interrupt, or do nothing.
    fn relax(&self) {
        std::thread::sleep(Duration::from_micros(100));
    }
    /// Returns random bits for keys and sequence numbers: in firmware, from a hardware generator.
    fn entropy(&self) -> u64 {
        use std::hash::{BuildHasher, RandomState};
        RandomState::new().hash_one(self.now())
    }
}

/// Tries to bring up the missing device.
fn open(limit: Duration) -> Result<(), Fault> {
    static HOST: LazyLock<Host> = LazyLock::new(Host::new);
    let config = Config { init_timeout: limit, ..Config::default() };
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
fn bring_up_without_a_device_times_out_with_an_error() {
    let start = Instant::now();
    let fault = open(Duration::from_millis(50)).unwrap_err().to_string();
    assert!(start.elapsed() < Duration::from_secs(5));
    assert!(fault.contains("all ones"), "{fault}");
}
