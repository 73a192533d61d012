//! The platform seam: everything the driver asks of the machine it runs on.
//!
//! An embedder implements three traits, which together are a [`Platform`]: [`Bar`], the registers
//! of the device; [`Dma`], the memory that the device may reach; [`Clock`], the time. On a machine
//! with a mapped BAR and ordinary memory nearly every method is one line over
//! [`mmio::MappedBar`], [`RawArena`] and [`mmio::fence`]. What is only a value, such as random
//! numbers or how whole work requests reach doorbell pages, stands in
//! [`Config`](crate::Config). Before an embedder hands the platform to the driver it has found the
//! function, sized and mapped BAR 0, reset the function and switched bus mastering on; the driver
//! never sees configuration space. There is no interrupt method: the host calls the driver's
//! `service` when a vector fires, or whenever it likes.
//!
//! Memory. The platform owns *one arena*: a span of host memory that the device may reach, seen by
//! the CPU at the address of its [`dma::Memory`] and by the device wherever [`Dma::iova`] says. The
//! driver addresses it by offset, or through [`dma::Entries`], which are checked once when a queue
//! is made. Neither ever lends a Rust reference into memory that the device may write. Queues,
//! doorbell records, mailboxes and consumer buffers all come from [`Dma::alloc`]. Firmware pages
//! are a reserve of their own, so that running out of either can be distinguished; the driver never
//! reads or writes those.
//!
//! A host may also lend memory of its consumer's to the device ([`Lend`]). The driver registers
//! such memory and puts nothing of its own there; it never reads or writes it, so the device
//! gathers whatever travels from there.
//!
//! What the driver does not give back: after a command without an answer, the memory that the
//! device may still write to. It is the host's again once the host has reset the function and
//! dropped the driver; a platform over [`RawArena`] then calls its `reclaim`.
//!
//! Order. [`Dma::fence`] has one kind for each use. [`mmio::fence`] maps them to the instructions
//! of the machine; the in-process model uses them as the only points at which stores become
//! visible, so that a missing one fails every time.

mod arena;
mod buddy;
pub mod dma;
pub mod mmio;
mod span;

use core::fmt;

use dat_core::provider::Region;

use self::dma::{Memory, Probe};

pub use arena::{RawArena, arena_words};
pub use span::Span;

/// BAR 0: the registers of the device.
pub trait Bar {
    /// Length of BAR 0 in bytes.
    fn bar_len(&self) -> usize;
    /// One 32-bit load at `offset`, in memory order (device registers are big-endian; the driver
    /// converts). All ones if the device is gone or `offset` is outside the BAR.
    fn read32(&self, offset: usize) -> u32;
    /// One 32-bit store. Dropped outside the BAR, as with all stores here.
    fn write32(&self, offset: usize, value: u32);
    /// One 64-bit store that reaches the device as one transaction.
    fn write64(&self, offset: usize, value: u64);
    /// One 64-byte block, in the way that `Config::blocks` says. Combined: the device sees the eight
    /// words in order but may see them as one burst or as several. Whole: it sees one store. Not
    /// called for words. `how` is a constant at each call, for an inline method to cost no branch.
    fn write_block(&self, offset: usize, block: &[u64; 8], how: Blocks);
}

/// Memory that the device may reach.
pub trait Dma {
    /// Sees what the driver loads and stores: `()`, nobody, but on hosts of tests.
    type Probe: Probe;
    /// The arena, for loads and stores.
    fn memory(&self) -> &Memory<Self::Probe>;
    /// Takes `len` zeroed bytes aligned to `align` (a power of two) out of the arena, for the
    /// device to reach as `reach` says. A host that cannot keep the device from writing ignores
    /// `reach`.
    fn alloc(&self, len: usize, align: usize, reach: Reach) -> Option<Span>;
    /// Gives a span back, exactly as it was taken.
    fn free(&self, span: Span);
    /// Device address of the byte at `offset`, and how many bytes from there are contiguous for the
    /// device. None outside the arena.
    fn iova(&self, offset: usize) -> Option<(u64, usize)>;
    /// Orders loads and stores: [`mmio::fence`] over ordinary, coherent memory.
    fn fence(&self, fence: Fence);
    /// Takes up to `to.len()` 4 KiB pages out of the firmware's reserve and writes their device
    /// addresses. Returns how many there were.
    fn pages_take(&self, to: &mut [u64]) -> usize;
    /// Takes pages back from the device, by the addresses given out. Returns how many of them it
    /// knew.
    fn pages_return(&self, pages: &[u64]) -> usize;
}

/// Time.
pub trait Clock {
    /// Nanoseconds since a start of the host's choosing; never goes back.
    fn now(&self) -> u64;
    /// Called in every bounded wait: the host may yield, sleep a little, or (the model) let time
    /// pass.
    fn relax(&self);
    /// Called instead for the first 20 us in which a command is waited for: its answer is near, and
    /// the host better spins than sleeps. Not to yield to others: they may keep the CPU for long.
    fn pause(&self) {
        self.relax();
    }
}

/// The host of the driver. All methods take `&self`: the control half and the data halves of the
/// driver use it side by side, possibly from several threads (then the implementation is `Sync`).
pub trait Platform: Bar + Dma + Clock {}

impl<T: Bar + Dma + Clock> Platform for T {}

/// A host that lends memory outside the arena to the device, by `Config::lender`.
pub trait Lend {
    /// Device address of the first byte of `region`, which the device sees in one piece. None if
    /// the host has not lent all of it. The address holds until the host takes the memory back,
    /// which it does only when no registration covers it any more.
    fn lent(&self, region: Region) -> Option<u64>;
    /// Stores bytes at `addr` as the device would. False if the host has not lent all of that to be
    /// written. Only asked for with
    /// [`Config::inline_receives`](crate::Config::inline_receives).
    fn write(&self, addr: u64, bytes: &[u8]) -> bool;
    /// The piece of memory, of the arena or lent, that the host shares with other processes under
    /// that name, if there is one.
    fn shared(&self, name: &[u8; 40]) -> Option<Region>;
}

/// How a block of 64 bytes, a whole work request, reaches a doorbell page.
///
/// The device executes a request that comes with its doorbell (BlueFlame) without fetching it from
/// memory. It has to come in one piece.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Blocks {
    /// In eight stores, each by itself: only the doorbell is written.
    #[default]
    Words,
    /// In eight stores that the CPU gathers: the pages are mapped write-combining.
    Combined,
    /// In one store, however the pages are mapped: MOVDIR64B.
    Whole,
}

/// What the device may do with memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reach {
    /// Read it.
    Read,
    /// Read and write it.
    ReadWrite,
}

impl fmt::Display for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "r-",
            Self::ReadWrite => "rw",
        })
    }
}

/// What a fence orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fence {
    /// Before a doorbell record: all earlier stores to the arena are visible to the device before
    /// any later store to the arena.
    BeforeRecord,
    /// Before a doorbell: all earlier stores to the arena are visible to the device before any
    /// later store to the BAR, however that is mapped, or to a doorbell record.
    BeforeDoorbell,
    /// The same before a doorbell whose page is not mapped write-combining: no more than that
    /// needs.
    BeforeUncached,
    /// After seeing ownership pass to software: no later load of the arena happens before the load
    /// that saw it.
    AfterOwnership,
    /// After a doorbell: earlier stores to the BAR, write-combined ones too, have left the CPU.
    AfterDoorbell,
}
