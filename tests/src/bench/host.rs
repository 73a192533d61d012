//! The host of the benchmarks: ordinary memory on both sides, and a device that can be taken away.
//!
//! Attached, the BAR is the model's and everything works: that is how two Interface Adapters come
//! up and connect. Detached, the BAR is a page of RAM and nobody answers: then the benchmark itself
//! writes completions where the device would have written them, and what is counted is the driver
//! alone.
#![expect(
    unsafe_code,
    reason = "memory for a device, even an emulated one, is reached through raw pointers"
)]

use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use dat_core::provider::Region;
use hca_mlx5::dma::Memory;
use hca_mlx5::mmio::{self, MappedBar};
use hca_mlx5::platform::{
    Bar, Blocks, Clock, Dma, Fence, Lend, RawArena, Reach, Span, arena_words,
};
use mlx5_model::Hca;
use mlx5_model::host::{DmaError, HostMemory, Nanos};

use crate::host::inproc::{Member, World, enable, lock};

/// Device address of the arena's first byte.
const IOVA: u64 = 0x10_0000_0000;
/// Device address of the firmware reserve.
const FIRMWARE: u64 = 0x80_0000_0000;
/// Address of lent memory: nothing is there, and it is never read.
pub const LENT: u64 = 0x7f00_0000_1000;
/// And its length.
pub const LENT_LEN: u64 = 0x1000;
/// Address of more lent memory, of which only the last 12 bits are those of its device address.
pub const LENT_PAGES: u64 = 0x7e00_0000_1000;
/// Its device address.
const PAGES_IOVA: u64 = 0x20_0000_2000;
/// And its length.
pub const LENT_PAGES_LEN: u64 = 1 << 30;
/// Bytes behind the arena, each page of which the device has somewhere else.
const SCATTERED_LEN: usize = 1 << 30;
/// Device address of the last of those pages; the others follow in descending order, with a gap
/// behind each.
const SCATTERED_IOVA: u64 = 0x40_0000_0000;
/// Bytes of arena.
const ARENA: usize = 32 << 20;
/// BAR bytes that are there when the device is away; all doorbell pages lie in them.
const AWAY: usize = 32 << 20;

/// Zeroed pages that never move and are never freed: a benchmark's process is short. Those that are
/// not touched cost nothing.
fn pages(bytes: usize) -> NonNull<u8> {
    let memory: &'static mut [u8] = vec![0; bytes + 4096].leak();
    let skipped = memory.as_ptr().align_offset(4096);
    NonNull::from(&mut memory[skipped..]).cast()
}

/// The way into the model.
///
/// Where a driver is counted with its device, callgrind toggles at [`outside`](model::outside) as it does at the
/// measured function, and so leaves out what is behind it.
pub mod model {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::time::Instant;

    /// The measured function runs.
    static MEASURED: AtomicBool = AtomicBool::new(false);
    /// Nanoseconds spent behind [`outside`].
    static SPENT: AtomicU64 = AtomicU64::new(0);

    /// Says that the measured function begins or ends: elsewhere a toggle would switch counting on.
    pub fn measure(begins: bool) {
        MEASURED.store(begins, Ordering::Relaxed);
    }

    /// Nanoseconds that measured functions have spent in the model.
    pub fn spent() -> u64 {
        SPENT.load(Ordering::Relaxed)
    }

    /// What is not counted.
    #[inline(never)]
    pub fn outside(op: &mut dyn FnMut()) {
        let start = Instant::now();
        op();
        SPENT.fetch_add(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
    }

    pub(super) fn enter(mut op: impl FnMut()) {
        if MEASURED.load(Ordering::Relaxed) { outside(&mut op) } else { op() }
    }
}

/// The device's access to the memory; nothing is allocated through it. Of the firmware's own pages
/// there is what was written to them, by its address.
struct Shared(Memory, HashMap<u64, Vec<u8>>);

impl HostMemory for Shared {
    fn read(&mut self, iova: u64, buf: &mut [u8]) -> Result<(), DmaError> {
        if iova >= FIRMWARE {
            buf.fill(0);
            if let Some(written) = self.1.get(&iova) {
                buf.iter_mut().zip(written).for_each(|(to, from)| *to = *from);
            }
            return Ok(());
        }
        let at = iova.checked_sub(IOVA).ok_or(DmaError::Refused(iova))?;
        self.0.read_bytes(at as usize, buf);
        Ok(())
    }

    fn write(&mut self, iova: u64, buf: &[u8]) -> Result<(), DmaError> {
        if iova >= FIRMWARE {
            self.1.insert(iova, buf.to_vec());
            return Ok(());
        }
        let at = iova.checked_sub(IOVA).ok_or(DmaError::Refused(iova))?;
        self.0.write_bytes(at as usize, buf);
        Ok(())
    }
}

struct Plugged(Arc<Mutex<Hca>>);

impl Member for Plugged {
    fn drain_stores(&self) {}

    fn step(&self, now: Nanos) -> Option<Nanos> {
        lock(&self.0).step(now)
    }
}

/// One device slot of the benchmarks.
pub struct BenchHost {
    world: Arc<World>,
    hca: Arc<Mutex<Hca>>,
    arena: RawArena<Vec<u64>>,
    /// What is stored there is only in memory.
    away: &'static MappedBar,
    /// Where doorbells go: `away`, or nowhere while the device is there.
    doorbells: AtomicPtr<MappedBar>,
    pages: AtomicU64,
    pages_back: AtomicU64,
    entropy: AtomicU64,
    /// Bytes of the arena that are handed out.
    taken: AtomicUsize,
    /// Stores that the device has yet to see, while it is held.
    held: Mutex<Option<Vec<Store>>>,
}

/// Where a store went, its bytes and how many of them count.
type Store = (usize, [u8; 64], usize);

impl std::fmt::Debug for BenchHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BenchHost").finish_non_exhaustive()
    }
}

impl BenchHost {
    /// Plugs a model in.
    pub fn plug(
        world: &Arc<World>,
        seed: u64,
        build: impl FnOnce(Box<dyn HostMemory + Send>) -> Hca,
    ) -> Self {
        Self::plug_with(world, seed, ARENA, build)
    }

    /// The same with so many bytes of arena.
    pub fn plug_with(
        world: &Arc<World>,
        seed: u64,
        bytes: usize,
        build: impl FnOnce(Box<dyn HostMemory + Send>) -> Hca,
    ) -> Self {
        let memory = pages(bytes + SCATTERED_LEN);
        // Nothing is handed out of the scattered pages.
        let words = vec![0; arena_words(bytes)];
        // SAFETY: the pages are leaked, so they outlive the arena, and no reference to them is
        // left.
        let arena = RawArena::new(unsafe { Memory::new(memory, bytes + SCATTERED_LEN) }, words);
        // SAFETY: as above; both reach them by volatile accesses only.
        let far = unsafe { Memory::new(memory, bytes) };
        let mut hca = build(Box::new(Shared(far, HashMap::new())));
        enable(&mut hca);
        let hca = Arc::new(Mutex::new(hca));
        world.join(Arc::new(Plugged(Arc::clone(&hca))));
        Self {
            world: Arc::clone(world),
            hca,
            arena,
            // SAFETY: as above; a store there has no effect but to be in memory.
            away: Box::leak(Box::new(unsafe { MappedBar::new(pages(AWAY), AWAY) })),
            doorbells: AtomicPtr::new((&raw const NOWHERE).cast_mut()),
            pages: AtomicU64::new(0),
            pages_back: AtomicU64::new(0),
            entropy: AtomicU64::new(seed),
            taken: AtomicUsize::new(0),
            held: Mutex::new(None),
        }
    }

    /// Holds the device, which then sees no store, or lets it go on with all that it missed: what
    /// is counted meanwhile is the driver alone, and no doorbell is lost.
    pub fn hold(&self, hold: bool) {
        let missed =
            std::mem::replace(&mut *lock(&self.held), hold.then(|| Vec::with_capacity(1 << 12)));
        for (offset, bytes, len) in missed.into_iter().flatten() {
            self.hca().bar_write(offset as u64, &bytes[..len]);
        }
    }

    /// Takes the device away, or puts it back.
    pub fn detach(&self, away: bool) {
        let bar = if away { self.away } else { &NOWHERE };
        self.doorbells.store(std::ptr::from_ref(bar).cast_mut(), Ordering::Relaxed);
    }

    /// The model.
    pub fn hca(&self) -> MutexGuard<'_, Hca> {
        lock(&self.hca)
    }

    /// A gibibyte that the device has in single pages.
    #[must_use]
    pub fn scattered(&self) -> Region {
        let memory = self.arena.memory();
        let start = memory.len() - SCATTERED_LEN;
        Region { addr: memory.addr() + start as u64, len: SCATTERED_LEN as u64 }
    }

    /// Bytes of the arena that are handed out.
    #[must_use]
    pub fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    /// Pages that the firmware holds.
    #[must_use]
    pub fn pages_out(&self) -> u64 {
        self.pages.load(Ordering::Relaxed) - self.pages_back.load(Ordering::Relaxed)
    }

    /// Arena offset of a device address.
    #[must_use]
    pub fn offset(&self, iova: u64) -> usize {
        (iova - IOVA) as usize
    }

    /// Random bytes, the same every run.
    pub fn entropy(&self) -> [u8; 32] {
        let mut bytes = [0; 32];
        for word in bytes.chunks_exact_mut(8) {
            word.copy_from_slice(&self.random().to_le_bytes());
        }
        bytes
    }

    fn random(&self) -> u64 {
        // splitmix64: a benchmark wants numbers that differ, and the same ones every run.
        let mut z = self.entropy.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn present(&self) -> bool {
        self.doorbells().is_empty()
    }

    /// Where doorbells go.
    // One load: the host of a card has its mapping at hand, too.
    #[inline(always)]
    fn doorbells(&self) -> &'static MappedBar {
        // SAFETY: the pointer is to a value that is never freed, and nobody changes it.
        unsafe { &*self.doorbells.load(Ordering::Relaxed) }
    }

    #[cold]
    #[inline(never)]
    fn device_block(&self, offset: usize, block: [u64; 8]) {
        self.device_write(offset, block.map(u64::to_ne_bytes).as_flattened());
    }

    #[cold]
    #[inline(never)]
    fn device_word(&self, offset: usize, value: u64) {
        self.device_write(offset, &value.to_ne_bytes());
    }

    #[cold]
    #[inline(never)]
    fn device_write(&self, offset: usize, bytes: &[u8]) {
        if let Some(held) = &mut *lock(&self.held) {
            let mut store = [0; 64];
            store[..bytes.len()].copy_from_slice(bytes);
            held.push((offset, store, bytes.len()));
            return;
        }
        model::enter(|| self.hca().bar_write(offset as u64, bytes));
    }
}

impl Bar for BenchHost {
    fn bar_len(&self) -> usize {
        32 << 20
    }

    fn read32(&self, offset: usize) -> u32 {
        let mut bytes = [0xff; 4];
        if self.present() {
            model::enter(|| self.hca().bar_read(offset as u64, &mut bytes));
        }
        u32::from_ne_bytes(bytes)
    }

    #[inline]
    fn write32(&self, offset: usize, value: u32) {
        if self.present() {
            self.device_write(offset, &value.to_ne_bytes());
        } else {
            self.away.write32(offset, value);
        }
    }

    #[inline(always)]
    fn write64(&self, offset: usize, value: u64) {
        if !self.doorbells().write64(offset, value) {
            self.device_word(offset, value);
        }
    }

    #[inline(always)]
    fn write_block(&self, offset: usize, block: &[u64; 8], how: Blocks) {
        if !self.doorbells().write_block(offset, block, how) {
            self.device_block(offset, *block);
        }
    }
}

/// A BAR of no length.
// SAFETY: nothing is in it, so nothing is accessed.
static NOWHERE: MappedBar = unsafe { MappedBar::new(NonNull::dangling(), 0) };

impl Lend for BenchHost {
    fn lent(&self, region: Region) -> Option<u64> {
        if (LENT_PAGES..LENT_PAGES + LENT_PAGES_LEN).contains(&region.addr) {
            return Some(region.addr - LENT_PAGES + PAGES_IOVA);
        }
        (LENT..LENT + LENT_LEN).contains(&region.addr).then_some(region.addr)
    }

    fn write(&self, _: u64, _: &[u8]) -> bool {
        false
    }

    fn shared(&self, _: &[u8; 40]) -> Option<Region> {
        None
    }
}

impl Dma for BenchHost {
    type Probe = ();

    #[inline(always)]
    fn memory(&self) -> &Memory {
        self.arena.memory()
    }

    fn alloc(&self, len: usize, align: usize, _: Reach) -> Option<Span> {
        let span = self.arena.alloc(len, align)?;
        self.taken.fetch_add(span.len, Ordering::Relaxed);
        Some(span)
    }

    fn free(&self, span: Span) {
        self.taken.fetch_sub(span.len, Ordering::Relaxed);
        self.arena.free(span);
    }

    fn iova(&self, offset: usize) -> Option<(u64, usize)> {
        let straight = self.memory().len() - SCATTERED_LEN;
        if offset < straight {
            return Some((IOVA + offset as u64, straight - offset));
        }
        let left = self.memory().len().checked_sub(offset).filter(|left| *left > 0)?;
        let within = offset % 4096;
        let behind = (left - 1) / 4096;
        Some((SCATTERED_IOVA + (behind * 8192 + within) as u64, 4096 - within))
    }

    #[inline(always)]
    fn fence(&self, fence: Fence) {
        mmio::fence(fence);
    }

    fn pages_take(&self, to: &mut [u64]) -> usize {
        for place in to.iter_mut() {
            *place = FIRMWARE + (self.pages.fetch_add(1, Ordering::Relaxed) << 12);
        }
        to.len()
    }

    fn pages_return(&self, pages: &[u64]) -> usize {
        self.pages_back.fetch_add(pages.len() as u64, Ordering::Relaxed);
        pages.len()
    }
}

impl Clock for BenchHost {
    fn now(&self) -> u64 {
        self.world.now()
    }

    fn relax(&self) {
        model::enter(|| self.world.turn());
    }
}
