//! The device's side of the PCI link: DMA, interrupts, time, and the books kept about them.
//!
//! One value of its own beside the device's state, so that code holding a queue's context can still
//! reach memory, count and complain.

use crate::host::{DmaError, HostMemory, Nanos};
use crate::regs::Msix;
use crate::relaxed::{self, Order, Relaxed};
use crate::stats::Stats;
use crate::watch::{Observer, Seen};
use rand::Rng;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use std::collections::BTreeSet;

/// Kinds of DMA writes; a fault hook sees each before it leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Wrote {
    /// Output bytes or status byte of a command entry.
    CommandEntry,
    /// An output mailbox block.
    Mailbox,
    /// An event queue entry.
    Eqe,
    /// A completion queue entry.
    Cqe,
    /// Payload of a message or frame.
    Payload,
    /// Anything else.
    Other,
}

/// Sees, and may change, what the device writes to memory. `false` swallows the write.
pub type Mangle = Box<dyn FnMut(Wrote, u64, &mut Vec<u8>) -> bool + Send>;

/// Memory, interrupts, clock, chance, statistics and complaints.
pub(crate) struct Bus {
    memory: Box<dyn HostMemory + Send>,
    /// Entries of work queues are written back as they are read.
    pub(crate) writes_queues: bool,
    /// Bus Master Enable of the command register.
    pub(crate) master: bool,
    /// Payload that later writes may overtake.
    pub(crate) relaxed: Relaxed,
    /// Model time of the step under way.
    pub(crate) now: Nanos,
    /// All of the device's chance: latencies, first numbers.
    pub(crate) rng: SmallRng,
    /// The books.
    pub(crate) stats: Stats,
    complaints: Vec<String>,
    pub(crate) msix: Msix,
    vectors: BTreeSet<u16>,
    mangle: Option<Mangle>,
    observers: Vec<Box<dyn Observer>>,
}

impl core::fmt::Debug for Bus {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Bus").field("now", &self.now).field("master", &self.master).finish()
    }
}

/// Complaints kept; a driver that is wrong in a loop must not eat the machine's memory.
const MOST_COMPLAINTS: usize = 1000;

impl Bus {
    pub(crate) fn new(memory: Box<dyn HostMemory + Send>, rng: SmallRng, msix: Msix) -> Self {
        Self {
            memory,
            writes_queues: false,
            master: false,
            relaxed: Relaxed::new(Order::Scattered),
            now: 0,
            rng,
            stats: Stats::default(),
            complaints: Vec::new(),
            msix,
            vectors: BTreeSet::new(),
            mangle: None,
            observers: Vec::new(),
        }
    }

    /// DMA read. It pushes every posted write before it.
    pub(crate) fn read(&mut self, iova: u64, buf: &mut [u8]) -> Result<(), DmaError> {
        self.push_relaxed();
        if !self.master {
            return Err(DmaError::BusMasterOff);
        }
        self.stats.dma_reads += 1;
        self.stats.dma_read_bytes += buf.len() as u64;
        self.memory.read(iova, buf)
    }

    /// DMA write, strictly ordered: everything written before is in memory first.
    pub(crate) fn write(&mut self, kind: Wrote, iova: u64, buf: &[u8]) -> Result<(), DmaError> {
        self.push_relaxed();
        self.put(kind, iova, buf)
    }

    /// DMA write of payload with relaxed ordering: piece by piece from the end, and some pieces
    /// only when something pushes them. The last piece is written at once, so that memory which
    /// cannot be written is found out.
    pub(crate) fn write_relaxed(&mut self, iova: u64, buf: &[u8]) -> Result<(), DmaError> {
        let order = self.relaxed.order;
        if !self.relaxed.enabled || order == Order::Kept {
            return self.write(Wrote::Payload, iova, buf);
        }
        for (nth, piece) in relaxed::pieces(iova, buf.len()).into_iter().rev().enumerate() {
            let at = iova + piece.start as u64;
            let bytes = &buf[piece];
            if nth > 0 && (order == Order::LastFirst || self.rng.random_bool(0.5)) {
                self.relaxed.hold(self.now, at, bytes);
            } else {
                self.put(Wrote::Payload, at, bytes)?;
            }
        }
        Ok(())
    }

    /// Writes what relaxed ordering held back, in any order.
    pub(crate) fn push_relaxed(&mut self) {
        let mut held = self.relaxed.take();
        held.shuffle(&mut self.rng);
        for (iova, bytes) in held {
            // A posted write has no answer: the device never learns that it was refused.
            if self.put(Wrote::Payload, iova, &bytes).is_err() {
                self.complain(format!("payload for {iova:#x} is lost: memory went while it came"));
            }
        }
    }

    fn put(&mut self, kind: Wrote, iova: u64, buf: &[u8]) -> Result<(), DmaError> {
        if !self.master {
            return Err(DmaError::BusMasterOff);
        }
        self.stats.dma_writes += 1;
        self.stats.dma_write_bytes += buf.len() as u64;
        match kind {
            Wrote::Cqe => self.show(&Seen::Completion { bytes: buf }),
            Wrote::Eqe => self.show(&Seen::Event { bytes: buf }),
            Wrote::CommandEntry | Wrote::Mailbox | Wrote::Payload | Wrote::Other => {}
        }
        match &mut self.mangle {
            None => self.memory.write(iova, buf),
            Some(mangle) => {
                let mut copy = buf.to_vec();
                if mangle(kind, iova, &mut copy) { self.memory.write(iova, &copy) } else { Ok(()) }
            }
        }
    }

    /// A big-endian word of host memory.
    pub(crate) fn read_be32(&mut self, iova: u64) -> Result<u32, DmaError> {
        let mut word = [0; 4];
        self.read(iova, &mut word)?;
        Ok(u32::from_be_bytes(word))
    }

    /// Notes what silicon would let pass although it is wrong.
    pub(crate) fn complain(&mut self, what: impl Into<String>) {
        if self.complaints.len() < MOST_COMPLAINTS {
            self.complaints.push(what.into());
        }
    }

    pub(crate) fn complaints(&self) -> &[String] {
        &self.complaints
    }

    /// Raises an MSI-X vector, as far as masks let it.
    pub(crate) fn interrupt(&mut self, vector: u16) {
        self.push_relaxed();
        if self.msix.raise(vector) {
            self.send_message(vector);
        }
    }

    fn send_message(&mut self, vector: u16) {
        self.stats.interrupts += 1;
        self.vectors.insert(vector);
    }

    /// The capability's enable and function mask bits.
    pub(crate) fn set_msix(&mut self, enabled: bool, masked: bool) {
        self.msix.enabled = enabled;
        self.msix.masked = masked;
        self.release_vectors();
    }

    /// A store to the MSI-X table.
    pub(crate) fn write_msix(&mut self, at: u64, bytes: &[u8]) {
        self.msix.table_write(at, bytes);
        self.release_vectors();
    }

    fn release_vectors(&mut self) {
        for vector in self.msix.release() {
            self.send_message(vector);
        }
    }

    /// Memory without the books: what firmware does with its own pages.
    pub(crate) fn memory(&mut self) -> Option<&mut (dyn HostMemory + Send)> {
        self.master.then_some(&mut *self.memory)
    }

    /// Forgets what a reset forgets.
    pub(crate) fn reset(&mut self, msix: Msix) {
        self.master = false;
        self.relaxed = Relaxed::new(self.relaxed.order);
        self.msix = msix;
        self.vectors.clear();
    }

    pub(crate) fn take_interrupts(&mut self) -> Vec<u16> {
        core::mem::take(&mut self.vectors).into_iter().collect()
    }

    /// Adds an observer, from now on.
    pub(crate) fn observe(&mut self, observer: Box<dyn Observer>) {
        self.observers.push(observer);
    }

    /// Shows something to all observers.
    pub(crate) fn show(&mut self, seen: &Seen<'_>) {
        for observer in &mut self.observers {
            observer.saw(seen);
        }
    }

    pub(crate) fn set_mangle(&mut self, mangle: Option<Mangle>) {
        self.mangle = mangle;
    }
}
