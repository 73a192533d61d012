//! The device's side of the PCI link: DMA, interrupts, time, and the books kept about them.
//!
//! One value of its own beside the device's state, so that code holding a queue's context can still
//! reach memory, count and complain.

use crate::host::{DmaError, HostMemory, Nanos};
use crate::stats::Stats;
use rand::rngs::SmallRng;
use std::collections::BTreeSet;

/// What a DMA write carries; a fault hook sees it before it leaves.
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
pub struct Bus {
    memory: Box<dyn HostMemory + Send>,
    /// Bus Master Enable of the command register.
    pub(crate) master: bool,
    /// Model time of the step under way.
    pub(crate) now: Nanos,
    /// All of the device's chance: latencies, first numbers.
    pub(crate) rng: SmallRng,
    /// The books.
    pub(crate) stats: Stats,
    complaints: Vec<String>,
    vectors: BTreeSet<u16>,
    mangle: Option<Mangle>,
}

impl core::fmt::Debug for Bus {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Bus")
            .field("now", &self.now)
            .field("master", &self.master)
            .finish()
    }
}

/// Complaints kept; a driver that is wrong in a loop must not eat the machine's memory.
const MOST_COMPLAINTS: usize = 1000;

impl Bus {
    pub(crate) fn new(memory: Box<dyn HostMemory + Send>, rng: SmallRng) -> Self {
        Self {
            memory,
            master: false,
            now: 0,
            rng,
            stats: Stats::default(),
            complaints: Vec::new(),
            vectors: BTreeSet::new(),
            mangle: None,
        }
    }

    /// DMA read.
    pub(crate) fn read(&mut self, iova: u64, buf: &mut [u8]) -> Result<(), DmaError> {
        if !self.master {
            return Err(DmaError::BusMasterOff);
        }
        self.stats.dma_reads += 1;
        self.stats.dma_read_bytes += buf.len() as u64;
        self.memory.read(iova, buf)
    }

    /// DMA write.
    pub(crate) fn write(&mut self, kind: Wrote, iova: u64, buf: &[u8]) -> Result<(), DmaError> {
        if !self.master {
            return Err(DmaError::BusMasterOff);
        }
        self.stats.dma_writes += 1;
        self.stats.dma_write_bytes += buf.len() as u64;
        match &mut self.mangle {
            None => self.memory.write(iova, buf),
            Some(mangle) => {
                let mut copy = buf.to_vec();
                if mangle(kind, iova, &mut copy) {
                    self.memory.write(iova, &copy)
                } else {
                    Ok(())
                }
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

    /// Raises an MSI-X vector; the caller has looked at the mask.
    pub(crate) fn interrupt(&mut self, vector: u16) {
        self.stats.interrupts += 1;
        self.vectors.insert(vector);
    }

    pub(crate) fn take_interrupts(&mut self) -> Vec<u16> {
        core::mem::take(&mut self.vectors).into_iter().collect()
    }

    pub(crate) fn set_mangle(&mut self, mangle: Option<Mangle>) {
        self.mangle = mangle;
    }
}
