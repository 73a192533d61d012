//! Events: their types, and their entries in an event queue.

use crate::ifc::eq::eqe;

/// Event types, as the EQE's type byte and the mask bit say them.
#[expect(missing_docs, reason = "the names are the PRM's")]
pub mod kind {
    pub const COMPLETION: u8 = 0x00;
    pub const PATH_MIGRATED: u8 = 0x01;
    pub const COMM_ESTABLISHED: u8 = 0x02;
    pub const SQ_DRAINED: u8 = 0x03;
    pub const CQ_ERROR: u8 = 0x04;
    pub const WQ_CATASTROPHIC: u8 = 0x05;
    pub const PATH_MIGRATION_FAILED: u8 = 0x07;
    pub const INTERNAL_ERROR: u8 = 0x08;
    pub const PORT_CHANGE: u8 = 0x09;
    pub const COMMAND: u8 = 0x0a;
    pub const PAGE_REQUEST: u8 = 0x0b;
    pub const NIC_VPORT_CHANGE: u8 = 0x0d;
    pub const WQ_INVALID_REQUEST: u8 = 0x10;
    pub const WQ_ACCESS_ERROR: u8 = 0x11;
    pub const SRQ_CATASTROPHIC: u8 = 0x12;
    pub const LAST_WQE_REACHED: u8 = 0x13;
    pub const SRQ_LIMIT: u8 = 0x14;
    pub const PORT_MODULE: u8 = 0x16;
    pub const GENERAL: u8 = 0x22;
}

/// One event before it has a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Type byte.
    pub kind: u8,
    /// Sub-type byte.
    pub sub: u8,
    /// Data, byte 0x20 of the entry on.
    pub data: [u8; 28],
}

impl Event {
    /// An event with its data all zero.
    pub const fn new(kind: u8, sub: u8) -> Self {
        Self { kind, sub, data: [0; 28] }
    }

    /// The same with a big-endian word of data at `offset`.
    #[must_use]
    pub fn with(mut self, offset: usize, word: u32) -> Self {
        if let Some(to) = self.data.get_mut(offset..offset + 4) {
            to.copy_from_slice(&word.to_be_bytes());
        }
        self
    }

    /// Completion on a CQ.
    pub fn completion(cqn: u32) -> Self {
        Self::new(kind::COMPLETION, 0).with(0x18, cqn)
    }

    /// A CQ that fell: 1 overrun, 2 access violation.
    pub fn cq_error(cqn: u32, syndrome: u8) -> Self {
        let mut event = Self::new(kind::CQ_ERROR, 0).with(0, cqn);
        event.data[0x0b] = syndrome;
        event
    }

    /// Something about a work queue: `queue` 0 QP, 1 RQ, 2 SQ.
    pub fn queue(kind: u8, queue: u8, number: u32) -> Self {
        let mut event = Self::new(kind, 0).with(0x18, number);
        event.data[0x14] = queue;
        event
    }

    /// The entry, owner bit zero.
    pub(super) fn bytes(&self) -> [u8; 64] {
        let mut out = [0; 64];
        eqe::event_type.set(&mut out, u32::from(self.kind));
        eqe::event_sub_type.set(&mut out, u32::from(self.sub));
        eqe::event_data.bytes_mut(&mut out).copy_from_slice(&self.data);
        out
    }
}
