//! Counters of the device: the economy of a driver, seen from the other side.

use crate::cmd::table;
use std::collections::BTreeMap;

/// A command that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Refused {
    /// Its opcode.
    pub opcode: u16,
    /// Its modifier.
    pub op_mod: u16,
    /// The register, of ACCESS_REG; else 0.
    pub register: u16,
    /// Status it got.
    pub status: u8,
    /// Syndrome it got.
    pub syndrome: u32,
}

impl Refused {
    /// The command in words.
    pub fn command(&self) -> String {
        let name = table::find(self.opcode).map_or("unknown command", |row| row.name);
        let Self { opcode, op_mod, register, .. } = *self;
        if register == 0 {
            format!("{name} ({opcode:#x}), op_mod {op_mod:#x}")
        } else {
            format!("{name} ({opcode:#x}), op_mod {op_mod:#x}, register {register:#x}")
        }
    }
}

/// Counters since construction; a reset of the function does not clear them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// BAR reads.
    pub mmio_reads: u64,
    /// BAR stores, a 64-byte block counted once.
    pub mmio_stores: u64,
    /// Bytes stored into BlueFlame registers beyond the 8-byte doorbell.
    pub bf_bytes: u64,
    /// WQEs executed from a BlueFlame buffer instead of the ring.
    pub bf_wqes: u64,
    /// Of these, those whose ring had other bytes at that moment.
    pub bf_differs: u64,
    /// Send doorbells rung.
    pub sq_doorbells: u64,
    /// CQ arm doorbells.
    pub cq_arms: u64,
    /// EQ doorbells, with or without arming.
    pub eq_doorbells: u64,
    /// Writes to the command doorbell.
    pub command_doorbells: u64,
    /// DMA reads the device made.
    pub dma_reads: u64,
    /// Bytes in them.
    pub dma_read_bytes: u64,
    /// DMA writes the device made.
    pub dma_writes: u64,
    /// Bytes in them.
    pub dma_write_bytes: u64,
    /// Completions written.
    pub cqes: u64,
    /// Of these, those written in compressed form.
    pub cqes_compressed: u64,
    /// Events written.
    pub eqes: u64,
    /// MSI-X messages sent.
    pub interrupts: u64,
    /// WQEs executed.
    pub wqes: u64,
    /// Frames sent.
    pub frames_out: u64,
    /// Frames received.
    pub frames_in: u64,
    /// Of these, RoCE frames for this device that were thrown away unanswered: malformed, or for
    /// another partition.
    pub frames_malformed: u64,
    /// And of these, those that were sound but for another partition.
    pub frames_wrong_pkey: u64,
    /// Packets retransmitted.
    pub retransmissions: u64,
    /// Resets of the function.
    pub resets: u64,
    /// Commands executed, by opcode.
    pub commands: BTreeMap<u16, u64>,
    /// Those of them that began while another was under way.
    pub commands_beside: BTreeMap<u16, u64>,
    /// Commands refused, and how often.
    pub refused: BTreeMap<Refused, u64>,
}
