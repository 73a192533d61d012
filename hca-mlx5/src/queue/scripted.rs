//! A platform for tests: an arena in memory, a BAR that only records, and a log of what crossed it in which order.

use core::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::vec;
use std::vec::Vec;

use crate::platform::{Platform, Span};

/// Where the CPU sees the arena.
pub(crate) const ARENA_ADDR: u64 = 0x7f00_0000_0000;
/// Where the device sees it, unless a test scatters it.
pub(crate) const ARENA_IOVA: u64 = 0x1_0000_0000;
/// Its length.
pub(crate) const ARENA_LEN: usize = 1 << 18;

/// One thing that crossed the seam.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    /// Bytes stored to the arena.
    Store(usize, Vec<u8>),
    /// `before_doorbell`.
    BeforeDoorbell,
    /// `after_ownership`.
    AfterOwnership,
    /// `after_mmio`.
    AfterMmio,
    /// A 64-bit store to the BAR.
    Write64(usize, [u8; 8]),
    /// A block store to the BAR.
    Block(usize, Vec<u8>),
    /// A load from the arena.
    Load(usize, usize),
}

/// The platform. `WC` is [`Platform::WRITE_COMBINING`].
#[derive(Debug)]
pub(crate) struct Scripted<const WC: bool> {
    arena: RefCell<Vec<u8>>,
    next: Cell<usize>,
    pub(crate) log: RefCell<Vec<Op>>,
    pub(crate) loads: Cell<bool>,
    /// Runs of the arena: (offset, iova), each to the next one's offset. Empty: one run.
    pub(crate) runs: RefCell<Vec<(usize, u64)>>,
    pub(crate) chance: RefCell<VecDeque<u64>>,
}

impl<const WC: bool> Scripted<WC> {
    pub(crate) fn new() -> Self {
        Self {
            arena: RefCell::new(vec![0; ARENA_LEN]),
            next: Cell::new(0),
            log: RefCell::new(Vec::new()),
            loads: Cell::new(false),
            runs: RefCell::new(Vec::new()),
            chance: RefCell::new(VecDeque::new()),
        }
    }

    /// The log since the last call.
    pub(crate) fn take(&self) -> Vec<Op> {
        core::mem::take(&mut self.log.borrow_mut())
    }

    /// Bytes of the arena.
    pub(crate) fn bytes(&self, offset: usize, len: usize) -> Vec<u8> {
        self.arena.borrow()[offset..offset + len].to_vec()
    }

    /// Writes the arena as the device or the consumer would: not logged.
    pub(crate) fn put(&self, offset: usize, bytes: &[u8]) {
        self.arena.borrow_mut()[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    fn store(&self, offset: usize, bytes: &[u8]) {
        if let Some(to) = self
            .arena
            .borrow_mut()
            .get_mut(offset..)
            .and_then(|a| a.get_mut(..bytes.len()))
        {
            to.copy_from_slice(bytes);
            self.log
                .borrow_mut()
                .push(Op::Store(offset, bytes.to_vec()));
        }
    }

    fn load<const N: usize>(&self, offset: usize) -> [u8; N] {
        if self.loads.get() {
            self.log.borrow_mut().push(Op::Load(offset, N));
        }
        let arena = self.arena.borrow();
        arena
            .get(offset..)
            .and_then(|a| a.first_chunk())
            .copied()
            .unwrap_or([0; N])
    }
}

impl<const WC: bool> Platform for Scripted<WC> {
    fn bar_len(&self) -> usize {
        1 << 20
    }
    fn read32(&self, _: usize) -> u32 {
        u32::MAX
    }
    fn write32(&self, _: usize, _: u32) {}
    fn write64(&self, offset: usize, value: u64) {
        self.log
            .borrow_mut()
            .push(Op::Write64(offset, value.to_ne_bytes()));
    }
    fn write_block(&self, offset: usize, block: &[u64; 8]) {
        let bytes = block.iter().flat_map(|w| w.to_ne_bytes()).collect();
        self.log.borrow_mut().push(Op::Block(offset, bytes));
    }
    const WRITE_COMBINING: bool = WC;

    fn arena_len(&self) -> usize {
        ARENA_LEN
    }
    fn arena_addr(&self) -> u64 {
        ARENA_ADDR
    }
    fn alloc(&self, len: usize, align: usize) -> Option<Span> {
        let offset = self.next.get().next_multiple_of(align);
        if offset + len > ARENA_LEN {
            return None;
        }
        self.next.set(offset + len);
        Some(Span { offset, len })
    }
    fn free(&self, _: Span) {}
    fn iova(&self, offset: usize) -> Option<(u64, usize)> {
        if offset >= ARENA_LEN {
            return None;
        }
        let runs = self.runs.borrow();
        if runs.is_empty() {
            return Some((ARENA_IOVA + offset as u64, ARENA_LEN - offset));
        }
        let at = runs.iter().rposition(|&(start, _)| start <= offset)?;
        let end = runs.get(at + 1).map_or(ARENA_LEN, |run| run.0);
        Some((runs[at].1 + (offset - runs[at].0) as u64, end - offset))
    }

    fn load32(&self, offset: usize) -> u32 {
        u32::from_ne_bytes(self.load(offset))
    }
    fn load_words<const N: usize>(&self, offset: usize) -> [u64; N] {
        assert_eq!(offset % 8, 0, "load_words needs alignment");
        core::array::from_fn(|i| u64::from_ne_bytes(self.load(offset + 8 * i)))
    }
    fn store32(&self, offset: usize, value: u32) {
        self.store(offset, &value.to_ne_bytes());
    }
    fn store_words<const N: usize>(&self, offset: usize, words: &[u64; N]) {
        assert_eq!(offset % 8, 0, "store_words needs alignment");
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_ne_bytes()).collect();
        self.store(offset, &bytes);
    }
    fn read_bytes(&self, offset: usize, to: &mut [u8]) {
        to.copy_from_slice(&self.bytes(offset, to.len()));
    }
    fn write_bytes(&self, offset: usize, from: &[u8]) {
        self.store(offset, from);
    }

    fn pages_take(&self, _: &mut [u64]) -> usize {
        0
    }
    fn pages_return(&self, _: &[u64]) -> usize {
        0
    }

    fn before_doorbell(&self) {
        self.log.borrow_mut().push(Op::BeforeDoorbell);
    }
    fn after_ownership(&self) {
        self.log.borrow_mut().push(Op::AfterOwnership);
    }
    fn after_mmio(&self) {
        self.log.borrow_mut().push(Op::AfterMmio);
    }

    fn now(&self) -> u64 {
        0
    }
    fn relax(&self) {}
    fn entropy(&self) -> u64 {
        self.chance.borrow_mut().pop_front().unwrap_or(0x5a)
    }
}
