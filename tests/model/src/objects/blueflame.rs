//! BlueFlame: work requests that come through the doorbell register itself.
//!
//! A register is two buffers of half its size, which software uses in turn. Stores of whole 64-byte
//! blocks that begin at a buffer's first byte and follow each other bring a WQE; the device executes
//! it from there, without a fetch, if it is the next of its queue and the only one posted. Whatever
//! comes in another form is a doorbell. PRM: BlueFlame; Linux `core/wc.c` relies on it.

use super::buffer;
use super::wqe::{Control, MAX_WQEBBS, WQEBB};
use crate::bus::Bus;
use crate::table::{Set, Table};

/// A send WQE as far as its blocks have come.
#[derive(Debug)]
pub(crate) struct Pushed {
    control: Control,
    bytes: Vec<u8>,
}

impl Pushed {
    /// What a store to the first byte of a buffer of `room` bytes begins; none if it is only a
    /// doorbell.
    pub(super) fn begin(stored: &[u8], room: usize) -> Option<Self> {
        let control = Control::parse(stored.first_chunk()?);
        let bbs = control.bbs();
        let fits = control.ds != 0 && bbs <= MAX_WQEBBS && usize::from(bbs) * WQEBB <= room;
        let blocks = fits && stored.len() % WQEBB == 0;
        blocks.then(|| Self { control, bytes: stored.to_vec() })
    }

    /// Adds a store at byte `at` of the buffer, if it continues the earlier ones.
    pub(super) fn extend(&mut self, at: usize, stored: &[u8]) -> bool {
        let continues = at == self.bytes.len() && stored.len() % WQEBB == 0;
        if continues {
            self.bytes.extend_from_slice(stored);
        }
        continues
    }

    /// Number of the queue.
    pub(super) const fn queue(&self) -> u32 {
        self.control.qpn
    }

    /// Whether all blocks have come.
    pub(super) fn is_whole(&self) -> bool {
        self.bytes.len() >= usize::from(self.control.bbs()) * WQEBB
    }

    /// Whether it is the WQE at `index`, and all of the `posted` blocks.
    pub(super) fn is_next(&self, index: u16, posted: u16) -> bool {
        self.control.index == index && self.control.bbs() == posted
    }

    /// Takes the WQE to execute it, and compares it with the ring, which `peek` reads from the
    /// WQE's slot on. That is no access of the device's.
    pub(super) fn take(
        self,
        bus: &mut Bus,
        service: &str,
        peek: impl FnOnce(&mut Bus, buffer::Reader, &mut [u8]) -> Result<(), ()>,
    ) -> (Control, Vec<u8>) {
        let Self { control, mut bytes } = self;
        bytes.truncate(usize::from(control.ds) * 16);
        bus.stats.bf_wqes += 1;
        let mut ring = vec![0; bytes.len()];
        let seen = peek(bus, buffer::peek, &mut ring);
        let differs = bytes.iter().zip(&ring).position(|(came, holds)| came != holds);
        if let (Ok(()), Some(at)) = (seen, differs) {
            bus.stats.bf_differs += 1;
            bus.complain(format!(
                "{service} {:#x}: WQE {:#x} came through BlueFlame with {:#04x} in byte {at}, its \
                 ring has {:#04x} there",
                control.qpn, control.index, bytes[at], ring[at]
            ));
        }
        (control, bytes)
    }
}

/// The last WQE that came through a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Last {
    queue: u32,
    /// Index of the WQE after it.
    next: u16,
    /// Address of the buffer.
    buffer: u64,
}

/// State of the BlueFlame registers; addresses are offsets in BAR0.
#[derive(Debug, Default)]
pub(crate) struct Registers {
    /// WQEs of which the first blocks have come, by the address of their buffer.
    begun: Table<u64, Pushed>,
    /// Their queues, each with the address of the buffer.
    queues: Set<(u32, u64)>,
    /// By the address of the register; none where a plain doorbell came last.
    last: Table<u64, Last>,
}

impl Registers {
    /// Keeps a WQE whose other blocks have not come.
    pub(super) fn keep(&mut self, buffer: u64, begun: Pushed) {
        self.queues.insert((begun.queue(), buffer));
        self.begun.insert(buffer, begun);
    }

    /// The WQE that has begun in a buffer, for a store there.
    pub(super) fn begun_in(&mut self, buffer: u64) -> Option<Pushed> {
        if self.begun.is_empty() {
            return None;
        }
        let begun = self.begun.remove(&buffer)?;
        self.queues.remove(&(begun.queue(), buffer));
        Some(begun)
    }

    /// Gives up a WQE that has begun, if there is one, of that queue or of any: says of which.
    pub(super) fn give_up(&mut self, queue: Option<u32>) -> Option<u32> {
        let buffer = match queue {
            Some(queue) => self.queues.range((queue, 0)..=(queue, u64::MAX)).next()?.1,
            None => self.begun.range(..).next()?.0,
        };
        self.begun_in(buffer).map(|begun| begun.queue())
    }

    /// Notes a doorbell to a register of buffers of `size` bytes, with a WQE or without. Says
    /// whether a queue brings two WQEs in a row to one buffer: the CPU may still hold the first in
    /// the same write-combining line.
    pub(super) fn repeats(&mut self, buffer: u64, size: u64, pushed: Option<&Pushed>) -> bool {
        let register = buffer & !size;
        let Some(Pushed { control, .. }) = pushed else {
            self.last.remove(&register);
            return false;
        };
        let next = control.index.wrapping_add(control.bbs());
        let last = self.last.insert(register, Last { queue: control.qpn, next, buffer });
        last == Some(Last { queue: control.qpn, next: control.index, buffer })
    }
}
