//! A stand-in for the device: the benchmark writes completions where the device would.
//!
//! Where the rings are is learnt as a device learns it, from the CREATE_CQ and CREATE_QP commands
//! that go by while the model is still there. Offsets are those of the commands' published layouts,
//! written out here a third time, so that a benchmark depends on no notation of ours.

use std::sync::Mutex;

use hca_mlx5::cmd::dump::{Direction, Dump, Observer};
use hca_mlx5::dma::Memory;
use hca_mlx5::platform::Dma;
use hca_mlx5::prm::cmd::Opcode;

use super::host::BenchHost;
use crate::host::inproc::lock;

/// A ring in the arena.
#[derive(Clone, Copy, Debug)]
pub struct Ring {
    /// Number of the queue.
    pub number: u32,
    /// Arena offset of its first entry.
    pub offset: usize,
    /// log2 of its entries (completion queue) or 64-byte blocks (send queue).
    pub log_size: u32,
    /// Tag of its completions: the user index of a queue pair, 0 of a completion queue.
    pub user_index: u32,
}

/// Remembers the rings of every queue made.
#[derive(Debug, Default)]
pub struct Registrar {
    pending: Mutex<Option<(u64, Ring)>>,
    cqs: Mutex<Vec<(u64, Ring)>>,
    sqs: Mutex<Vec<(u64, Ring)>>,
}

fn word(message: &[u8], at: usize) -> u32 {
    message.get(at..at + 4).map_or(0, |b| u32::from_be_bytes([b[0], b[1], b[2], b[3]]))
}

fn page(message: &[u8]) -> u64 {
    u64::from(word(message, 0x110)) << 32 | u64::from(word(message, 0x114))
}

impl Observer for Registrar {
    fn command(&self, dump: &Dump<'_>) {
        let message = dump.message;
        let input = dump.direction == Direction::Input;
        if dump.opcode == Opcode::CreateCq && input {
            let start = u64::from(word(message, 0x18) >> 6 & 0x3f)
                << (6 + (word(message, 0x28) >> 24 & 31));
            let log_size = word(message, 0x1c) >> 24 & 31;
            let ring = Ring { number: 0, offset: 0, log_size, user_index: 0 };
            *lock(&self.pending) = Some((page(message) + start, ring));
        } else if dump.opcode == Opcode::CreateQp && input {
            let qpc = 0x18;
            let sizes = word(message, qpc + 8);
            // The receive queue comes first in the buffer, the send queue right behind it.
            let receives = match word(message, qpc + 0xac) >> 24 & 7 {
                3 => 0,
                _ => 1_u64 << ((sizes >> 19 & 15) + (sizes >> 16 & 7) + 4),
            };
            let page_size = 12 + (word(message, qpc + 0x14) >> 24 & 31);
            let start = u64::from(word(message, qpc + 0x90) >> 6 & 0x3f) << (page_size - 6);
            let ring = Ring {
                number: 0,
                offset: 0,
                log_size: sizes >> 11 & 15,
                user_index: word(message, qpc + 0x10) & 0xff_ffff,
            };
            *lock(&self.pending) = Some((page(message) + start + receives, ring));
        } else if let (false, Some((at, mut ring))) = (input, *lock(&self.pending)) {
            ring.number = word(message, 8) & 0xff_ffff;
            if dump.opcode == Opcode::CreateCq {
                lock(&self.cqs).push((at, ring));
            } else if dump.opcode == Opcode::CreateQp {
                lock(&self.sqs).push((at, ring));
            }
        }
    }
}

impl Registrar {
    /// The newest completion queue.
    #[must_use]
    pub fn newest_cq(&self, host: &BenchHost) -> Ring {
        let (at, ring) = *lock(&self.cqs).last().expect("a completion queue has been made");
        Ring { offset: host.offset(at), ..ring }
    }

    /// The send queue of every queue pair, the oldest first.
    #[must_use]
    pub fn sqs(&self, host: &BenchHost) -> Vec<Ring> {
        let ring = |&(at, ring): &(u64, Ring)| Ring { offset: host.offset(at), ..ring };
        lock(&self.sqs).iter().map(ring).collect()
    }

    /// The newest queue pair's send queue.
    #[must_use]
    pub fn newest_sq(&self, host: &BenchHost) -> Ring {
        let (at, ring) = *lock(&self.sqs).last().expect("a queue pair has been made");
        Ring { offset: host.offset(at), ..ring }
    }
}

/// Writes completions of one queue pair into one completion queue.
#[derive(Debug)]
pub struct Puppet<'h> {
    memory: &'h Memory,
    cq: Ring,
    qp: Ring,
    /// Completions written into the queue since it was made.
    written: u32,
    /// Block of the next request to complete.
    block: u16,
    /// Receive to complete next.
    receive: u16,
}

/// Content of a completion.
#[derive(Clone, Copy, Debug)]
pub enum Said {
    /// A request of this WQE opcode, this many blocks long, succeeded.
    Request(u8, u16),
    /// A message of this many bytes was received.
    Received(u32),
}

impl<'h> Puppet<'h> {
    /// A puppet that knows where the driver stands: `written` completions so far, next send block,
    /// next receive.
    #[must_use]
    pub fn new(
        host: &'h BenchHost,
        cq: Ring,
        qp: Ring,
        written: u32,
        block: u16,
        receive: u16,
    ) -> Self {
        Self { memory: host.memory(), cq, qp, written, block, receive }
    }

    /// Writes `n` completions ahead.
    pub fn say(&mut self, said: Said, n: usize) {
        for _ in 0..n {
            let slot = self.written & ((1 << self.cq.log_size) - 1);
            let at = self.cq.offset + slot as usize * 64;
            let owner = (self.written >> self.cq.log_size) & 1;
            let (opcode, wqe_opcode, counter, len) = match said {
                Said::Request(opcode, blocks) => {
                    let counter = self.block;
                    self.block = self.block.wrapping_add(blocks);
                    (0, opcode, counter, 0)
                }
                Said::Received(len) => {
                    let counter = self.receive;
                    self.receive = self.receive.wrapping_add(1);
                    (2, 0, counter, len)
                }
            };
            self.memory.store32(at + 0x20, self.qp.user_index.to_be());
            self.memory.store32(at + 0x2c, len.to_be());
            self.memory.store32(at + 0x38, (u32::from(wqe_opcode) << 24 | self.qp.number).to_be());
            let last = u32::from(counter) << 16 | opcode << 4 | owner;
            self.memory.store32(at + 0x3c, last.to_be());
            self.written = self.written.wrapping_add(1);
        }
    }

    /// Writes any bytes as the next entry, with the owner bit of its lap. An opcode that says that
    /// the entry is empty becomes 1, a receive's.
    pub fn write(&mut self, mut entry: [u8; 64]) {
        let at = self.cq.offset + (self.written as usize & ((1 << self.cq.log_size) - 1)) * 64;
        entry[63] = entry[63] & !1 | (self.written >> self.cq.log_size & 1) as u8;
        if entry[63] >> 4 == 0xf {
            entry[63] &= 0x1f;
        }
        self.memory.write_bytes(at, &entry);
        self.written = self.written.wrapping_add(1);
    }

    /// Turns to another queue pair of the same completion queue.
    pub fn turn_to(&mut self, qp: Ring, block: u16) {
        (self.qp, self.block) = (qp, block);
    }

    /// Its completion queue.
    #[must_use]
    pub const fn ring(&self) -> Ring {
        self.cq
    }

    /// Writes `n` completions ahead, each of the last of `every` requests of one block.
    pub fn say_every(&mut self, said: Said, every: usize, n: usize) {
        for _ in 0..n {
            self.block = self.block.wrapping_add(every as u16 - 1);
            self.say(said, 1);
        }
    }

    /// Index of the block that the next request to complete starts at.
    #[must_use]
    pub fn next_block(&self) -> u16 {
        self.block
    }

    /// The 64-byte block of the send queue that `index` falls on.
    #[must_use]
    pub fn block(&self, index: u16) -> [u8; 64] {
        let mask = (1_usize << self.qp.log_size) - 1;
        let mut bytes = [0; 64];
        self.memory.read_bytes(self.qp.offset + (usize::from(index) & mask) * 64, &mut bytes);
        bytes
    }
}
