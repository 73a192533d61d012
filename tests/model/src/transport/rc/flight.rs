//! A send queue entry on its way: which packets it has, how far they got.

use super::super::host::{Fence, Operation, Payload, QpAttr, QpKind, SendWqe, Syndrome, Trailer};
use super::super::host::{InCqe, RemoteAddress, segments_len};
use super::super::psn;
use crate::wire::frame::{AtomicEth, Extended, Reth};
use crate::wire::opcode::Opcode;

/// Longest message of the transport.
const MAX_MESSAGE: u64 = 1 << 31;

/// How an entry travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Runs inside the device.
    Local,
    /// Packets out, one acknowledgement back: SEND, WRITE.
    Push,
    /// One request out, data back: READ, atomics.
    Pull,
}

/// An entry between fetch and completion.
#[derive(Debug)]
pub(crate) struct Flight {
    pub(crate) wqe: SendWqe,
    pub(crate) shape: Shape,
    pub(crate) first_psn: u32,
    /// PSNs it takes: its packets, or those of the response. None for local work.
    pub(crate) packets: u32,
    pub(crate) len: u32,
    /// Packets sent (Push), or 1 for a request sent (Pull) or work begun (Local).
    pub(crate) sent: u32,
    /// Response packets received (Pull).
    pub(crate) received: u32,
    /// What it brought, if it stays for the completion (Pull).
    pub(crate) in_cqe: Option<InCqe>,
    pub(crate) done: bool,
    /// It will end with this as soon as it is the oldest.
    pub(crate) failed: Option<Syndrome>,
}

impl Flight {
    /// Checks and measures an entry; what is wrong with it shows in `failed`.
    pub(crate) fn new(wqe: SendWqe, attr: &QpAttr, first_psn: u32) -> Self {
        let (shape, len) = match &wqe.operation {
            Operation::Nop | Operation::Umr(_) | Operation::LocalInvalidate(_) => (Shape::Local, 0),
            Operation::Send { data, .. } | Operation::Write { data, .. } => {
                (Shape::Push, data.len())
            }
            Operation::Read { into, .. } => (Shape::Pull, segments_len(into)),
            Operation::CompareSwap { .. } | Operation::FetchAdd { .. } => (Shape::Pull, 8),
        };
        let limit = MAX_MESSAGE.min(1 << attr.log_msg_max.min(31));
        let room = match &wqe.operation {
            Operation::CompareSwap { into, .. } | Operation::FetchAdd { into, .. } => {
                segments_len(into) >= 8
            }
            Operation::Nop
            | Operation::Umr(_)
            | Operation::LocalInvalidate(_)
            | Operation::Send { .. }
            | Operation::Write { .. }
            | Operation::Read { .. } => true,
        };
        let failed = if len > limit || !room {
            Some(Syndrome::LocalLength)
        } else if (shape != Shape::Local && attr.kind == QpKind::RegUmr)
            || (shape == Shape::Pull && attr.kind == QpKind::Uc)
            || (shape == Shape::Pull && attr.max_rd_atomic == 0)
        {
            Some(Syndrome::LocalQpOperation)
        } else {
            None
        };
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        let packets = match shape {
            Shape::Local => 0,
            Shape::Push | Shape::Pull if failed.is_some() => 0,
            Shape::Push => psn::packets(len, attr.mtu),
            Shape::Pull if matches!(wqe.operation, Operation::Read { .. }) => {
                psn::packets(len, attr.mtu)
            }
            Shape::Pull => 1,
        };
        Self {
            wqe,
            shape,
            first_psn,
            packets,
            len,
            sent: 0,
            received: 0,
            in_cqe: None,
            done: false,
            failed,
        }
    }

    /// An entry that could not even be parsed.
    pub(crate) fn broken(index: u16, opcode: u8, syndrome: Syndrome, first_psn: u32) -> Self {
        let wqe = SendWqe {
            index,
            bbs: 1,
            opcode,
            signaled: true,
            fence: Fence::None,
            solicited: false,
            operation: Operation::Nop,
            av: None,
            xrc_srqn: None,
        };
        Self {
            wqe,
            shape: Shape::Local,
            first_psn,
            packets: 0,
            len: 0,
            sent: 0,
            received: 0,
            in_cqe: None,
            done: false,
            failed: Some(syndrome),
        }
    }

    /// Keeps what it brought for its completion, if it has one with room. Nobody would see it in
    /// the completion of an unsignalled entry, which does not come.
    pub(crate) fn keep(&mut self, bytes: &[u8], most: u8) -> bool {
        self.in_cqe = InCqe::of(bytes, most).filter(|_| self.wqe.signaled);
        self.in_cqe.is_some()
    }

    /// Whether nothing is left to send or start.
    pub(crate) fn is_sent(&self) -> bool {
        match self.shape {
            Shape::Push => self.sent >= self.packets,
            Shape::Pull | Shape::Local => self.sent > 0 || self.done,
        }
    }

    /// A READ or atomic still waiting for data.
    pub(crate) fn is_open_pull(&self) -> bool {
        self.shape == Shape::Pull && !self.done
    }

    /// The PSN after its last.
    pub(crate) fn end_psn(&self) -> u32 {
        psn::add(self.first_psn, self.packets)
    }

    /// Whether `psn` is one of its own.
    pub(crate) fn holds(&self, psn: u32) -> bool {
        psn::distance(self.first_psn, psn) < self.packets
    }

    /// The PSN and number of sequence numbers of its next packet.
    pub(crate) fn next_span(&self) -> (u32, u32) {
        match self.shape {
            Shape::Push => (psn::add(self.first_psn, self.sent), 1),
            Shape::Pull => (psn::add(self.first_psn, self.received), self.packets - self.received),
            Shape::Local => (self.first_psn, 0),
        }
    }

    /// Sets transmission back so that everything from `psn` on goes out again. `psn` lies in
    /// this entry or before it.
    pub(crate) fn rewind(&mut self, to: u32) {
        if self.done {
            return;
        }
        match self.shape {
            Shape::Local => {}
            Shape::Pull => self.sent = 0,
            Shape::Push => {
                let kept = if self.holds(to) { psn::distance(self.first_psn, to) } else { 0 };
                self.sent = self.sent.min(kept);
            }
        }
    }

    /// Opcode, extended headers and payload range of the next packet of a SEND or WRITE.
    pub(crate) fn next_push(&self, mtu: u32) -> Option<(Opcode, Extended, PayloadPart<'_>)> {
        let first = self.sent == 0;
        let last = self.sent + 1 == self.packets;
        let offset = self.sent.checked_mul(mtu)?;
        let len = self.len.checked_sub(offset)?.min(mtu);
        let mut ext = Extended { xrc_srqn: self.wqe.xrc_srqn, ..Extended::default() };
        let (opcode, data) = match &self.wqe.operation {
            Operation::Send { trailer, data } => {
                if last {
                    match *trailer {
                        Trailer::None => {}
                        Trailer::Imm(imm) => ext.imm = Some(imm),
                        Trailer::Invalidate(rkey) => ext.ieth = Some(rkey),
                    }
                }
                (send_opcode(first, last, *trailer), data)
            }
            Operation::Write { remote, imm, data } => {
                if first {
                    ext.reth = Some(Reth { va: remote.va, rkey: remote.rkey, len: self.len });
                }
                if last {
                    ext.imm = *imm;
                }
                (write_opcode(first, last, imm.is_some()), data)
            }
            Operation::Nop
            | Operation::Read { .. }
            | Operation::CompareSwap { .. }
            | Operation::FetchAdd { .. }
            | Operation::Umr(_)
            | Operation::LocalInvalidate(_) => return None,
        };
        Some((opcode, ext, PayloadPart { data, offset, len }))
    }

    /// Opcode and extended headers of the request of a READ (or what is left of it) or atomic.
    pub(crate) fn next_pull(&self, mtu: u32) -> Option<(Opcode, Extended)> {
        let mut ext = Extended { xrc_srqn: self.wqe.xrc_srqn, ..Extended::default() };
        let atomic = |at: &RemoteAddress, swap_add, compare| AtomicEth {
            va: at.va,
            rkey: at.rkey,
            swap_add,
            compare,
        };
        let opcode = match &self.wqe.operation {
            Operation::Read { remote, .. } => {
                let done = self.received.checked_mul(mtu)?;
                ext.reth = Some(Reth {
                    va: remote.va.wrapping_add(done.into()),
                    rkey: remote.rkey,
                    len: self.len.checked_sub(done)?,
                });
                Opcode::ReadRequest
            }
            Operation::CompareSwap { remote, swap, compare, .. } => {
                ext.atomic = Some(atomic(remote, *swap, *compare));
                Opcode::CompareSwap
            }
            Operation::FetchAdd { remote, add, .. } => {
                ext.atomic = Some(atomic(remote, *add, 0));
                Opcode::FetchAdd
            }
            Operation::Nop
            | Operation::Send { .. }
            | Operation::Write { .. }
            | Operation::Umr(_)
            | Operation::LocalInvalidate(_) => return None,
        };
        Some((opcode, ext))
    }
}

/// A piece of a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PayloadPart<'a> {
    pub(crate) data: &'a Payload,
    pub(crate) offset: u32,
    pub(crate) len: u32,
}

fn send_opcode(first: bool, last: bool, trailer: Trailer) -> Opcode {
    match (first, last, trailer) {
        (true, false, _) => Opcode::SendFirst,
        (false, false, _) => Opcode::SendMiddle,
        (true, true, Trailer::None) => Opcode::SendOnly,
        (true, true, Trailer::Imm(_)) => Opcode::SendOnlyImm,
        (true, true, Trailer::Invalidate(_)) => Opcode::SendOnlyInval,
        (false, true, Trailer::None) => Opcode::SendLast,
        (false, true, Trailer::Imm(_)) => Opcode::SendLastImm,
        (false, true, Trailer::Invalidate(_)) => Opcode::SendLastInval,
    }
}

fn write_opcode(first: bool, last: bool, imm: bool) -> Opcode {
    match (first, last, imm) {
        (true, false, _) => Opcode::WriteFirst,
        (false, false, _) => Opcode::WriteMiddle,
        (true, true, false) => Opcode::WriteOnly,
        (true, true, true) => Opcode::WriteOnlyImm,
        (false, true, false) => Opcode::WriteLast,
        (false, true, true) => Opcode::WriteLastImm,
    }
}
