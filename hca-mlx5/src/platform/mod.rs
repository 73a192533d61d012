//! The platform seam: everything the driver asks of the machine it runs on.
//!
//! An embedder implements [`Platform`] once. Of its some thirty short methods, a machine with
//! ordinary memory and a mapped BAR has most for three lines: [`crate::forward_bar`],
//! [`crate::forward_arena`], [`crate::forward_order`]. Before it hands the platform to the driver
//! it has found the function, sized and mapped BAR 0, reset the function and switched bus mastering
//! on; the driver never sees configuration space. There is no interrupt method: the host calls the
//! driver's `service` when a vector fires, or whenever it likes.
//!
//! Memory. The platform owns *one arena*: a span of host memory that the device may reach, seen by
//! the CPU at [`Platform::arena_addr`] and by the device wherever [`Platform::iova`] says. The
//! driver addresses it by offset and only through the accessors here, which take a shared reference
//! and never lend a Rust reference into memory that the device may write. Queues, doorbell records,
//! mailboxes and consumer buffers all come from [`Platform::alloc`]. Firmware pages are a reserve
//! of their own, so that running out of either can be told apart; the driver never reads
//! or writes those.
//!
//! A host may besides *lend* memory of its consumer's to the device, and says where that is by
//! [`Platform::lent`]. The driver registers such memory and puts nothing of its own there; it never
//! reads or writes it, so whatever travels from there the device gathers.
//!
//! What the driver does not give back: after a command without an answer, the memory that the
//! device may still write to. It is the host's again once the host has reset the function and
//! dropped the driver; a platform over [`crate::platform::dma::RawArena`] then calls its `reclaim`.
//!
//! Order. Three fences, named for their use. An implementation over ordinary memory maps them to
//! the instructions of its architecture; the in-process model uses them as the only points at which
//! stores become visible, so that a missing one fails every time.

pub mod by_offset;
pub mod dma;
pub mod entries;
pub mod mmio;
mod span;

use dat_core::provider::Region;

use self::entries::{Entries, Register};

pub use by_offset::{ByOffset, RegisterByOffset};
pub use span::Span;

/// The host of the driver. All methods take `&self`: the control half and the data halves of the
/// driver use it side by side, possibly from several threads (then the implementation is `Sync`).
pub trait Platform {
    // ---- BAR 0 ----

    /// Length of BAR 0 in bytes.
    fn bar_len(&self) -> usize;
    /// One 32-bit load at `offset`, in memory order (device registers are big-endian; the driver
    /// converts). All ones if the device is gone or `offset` is outside the BAR.
    fn read32(&self, offset: usize) -> u32;
    /// One 32-bit store.
    fn write32(&self, offset: usize, value: u32);
    /// One 64-bit store that reaches the device as one transaction.
    fn write64(&self, offset: usize, value: u64);
    /// One 64-byte block, possibly write-combined: the device sees the eight words in order but may
    /// see them as one burst or as several. Only used where [`Platform::WRITE_COMBINING`] is
    /// true.
    fn write_block(&self, offset: usize, block: &[u64; 8]);
    /// The BAR's doorbell pages are mapped write-combining, so BlueFlame pays.
    const WRITE_COMBINING: bool;
    /// A doorbell register: [`crate::platform::mmio::MappedRegister`] over a mapping,
    /// [`RegisterByOffset`] otherwise.
    type Register<'p>: Register
    where
        Self: 'p;
    /// The doorbell register at `offset` and, `half` bytes further (unless that is 0), its other
    /// half, checked once. None unless both are inside the BAR and `offset` is a multiple of 64
    /// without the bits of `half`.
    fn register(&self, offset: usize, half: usize) -> Option<Self::Register<'_>>;

    // ---- the arena ----

    /// Length of the arena in bytes.
    fn arena_len(&self) -> usize;
    /// CPU address of the arena's first byte, page aligned: what consumer segments carry.
    fn arena_addr(&self) -> u64;
    /// Takes `len` zeroed bytes aligned to `align` (a power of two) out of the arena.
    fn alloc(&self, len: usize, align: usize) -> Option<Span>;
    /// As [`Platform::alloc`], memory that the device only reads: a host with an IOMMU can keep the
    /// device from writing it.
    fn alloc_read_only(&self, len: usize, align: usize) -> Option<Span> {
        self.alloc(len, align)
    }
    /// Gives a span back, exactly as it was taken.
    fn free(&self, span: Span);
    /// Device address of the byte at `offset`, and how many bytes from there are contiguous for the
    /// device.
    fn iova(&self, offset: usize) -> Option<(u64, usize)>;

    /// 32-bit load in memory order. 0 outside the arena, as with all loads here.
    fn load32(&self, offset: usize) -> u32;
    /// `N` 64-bit loads from consecutive words, in ascending order; `offset` is a multiple of 8.
    fn load_words<const N: usize>(&self, offset: usize) -> [u64; N];
    /// 32-bit store in memory order. Dropped outside the arena, as with all stores here.
    fn store32(&self, offset: usize, value: u32);
    /// `N` 64-bit stores to consecutive words, in ascending order; `offset` is a multiple of 8.
    fn store_words<const N: usize>(&self, offset: usize, words: &[u64; N]);
    /// Copies out of the arena.
    fn read_bytes(&self, offset: usize, to: &mut [u8]);
    /// Copies into the arena.
    fn write_bytes(&self, offset: usize, from: &[u8]);

    /// Entries of `LEN` bytes: [`crate::platform::dma::RawEntries`] over ordinary memory,
    /// [`ByOffset`] otherwise.
    type Entries<'p, const LEN: usize>: Entries
    where
        Self: 'p;
    /// The entries in `span`, checked once. None unless it is inside the arena, starts on a
    /// multiple of `LEN` and holds a power of two of them.
    fn entries<const LEN: usize>(&self, span: Span) -> Option<Self::Entries<'_, LEN>>;

    /// Device address of memory outside the arena that the host has lent to the device: of the
    /// first byte of `region`, which the device sees in one piece. None if the host has not
    /// lent all of it. The address holds until the host takes the memory back, which it does
    /// only when no registration covers it any more.
    fn lent(&self, _region: Region) -> Option<u64> {
        None
    }

    /// The piece of memory, of the arena or lent, that the host shares with other processes under
    /// that name, if there is one.
    fn shared(&self, _name: &[u8; 40]) -> Option<Region> {
        None
    }

    // ---- firmware pages ----

    /// Takes up to `to.len()` 4 KiB pages out of the firmware reserve and writes their device
    /// addresses. Returns how many there were.
    fn pages_take(&self, to: &mut [u64]) -> usize;
    /// Takes pages back from the device, by the addresses given out. Returns how many of them it
    /// knew.
    fn pages_return(&self, pages: &[u64]) -> usize;

    // ---- order ----

    /// Before a doorbell: all earlier stores to the arena are visible to the device before any
    /// later store to the BAR or to a doorbell record.
    fn before_doorbell(&self);
    /// Before a doorbell record: all earlier stores to the arena are visible to the device before
    /// any later store to the arena. Weaker than [`Platform::before_doorbell`], which does as
    /// well.
    fn before_record(&self) {
        self.before_doorbell();
    }
    /// After seeing ownership pass to software: no later load of the arena happens before the load
    /// that saw it.
    fn after_ownership(&self);
    /// After MMIO: earlier stores to the BAR, write-combined ones too, have left the CPU.
    fn after_mmio(&self);

    // ---- time and chance ----

    /// Nanoseconds since a start of the host's choosing; never goes back.
    fn now(&self) -> u64;
    /// Called in every bounded wait: the host may yield, sleep a little, or (the model) let time
    /// pass.
    fn relax(&self);
    /// 64 unpredictable bits.
    fn entropy(&self) -> u64;
}
