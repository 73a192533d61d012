//! What both sides of a transaction test know of it, and whether this side can do it.

use std::net::IpAddr;

use super::super::super::failure::Failure;
use super::hub::Hub;
use super::wire::{Op, Order, Transaction, Transfer};
use crate::Host;

/// Receives, and requests, besides those of operations: where memory is, ready, done.
const NOTES: u16 = 3;
/// Bytes of memory that all operations of a test may have.
const MEMORY: u64 = 24 << 20;

/// A transaction test.
#[derive(Clone, Debug)]
pub(super) struct Terms {
    /// Its operations, those that verify included.
    pub(super) ops: Vec<Op>,
    /// How often all are done.
    pub(super) iterations: u32,
    /// Threads on either side.
    pub(super) threads: u32,
    /// Connections of each.
    pub(super) eps: u32,
    /// Contents are verified.
    pub(super) validate: bool,
    /// Completions are polled for.
    pub(super) poll: bool,
    /// An RSP for each connection, instead of a PSP.
    pub(super) rsp: bool,
    /// Port of the first connection.
    pub(super) first_port: u32,
    /// How the other side reads keys and addresses.
    pub(super) order: Order,
    /// Who it is.
    pub(super) peer: IpAddr,
    server: bool,
}

/// Who is on the other side of a test, and where it begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Whom {
    /// This is the server.
    pub(super) server: bool,
    /// Who is on the other side.
    pub(super) peer: IpAddr,
    /// Its byte order.
    pub(super) order: Order,
    /// Port of the first connection.
    pub(super) first_port: u32,
}

impl Terms {
    pub(super) fn new(command: &Transaction, whom: Whom) -> Self {
        Self {
            ops: command.ops.clone(),
            iterations: command.iterations,
            threads: command.threads,
            eps: command.eps,
            validate: command.validate,
            poll: command.poll,
            rsp: command.rsp && whom.server,
            first_port: whom.first_port,
            order: whom.order,
            peer: whom.peer,
            server: whom.server,
        }
    }

    pub(super) fn is_server(&self) -> bool {
        self.server
    }

    /// Whether this side does an operation.
    pub(super) fn ours(&self, op: &Op) -> bool {
        op.by_server == self.server
    }

    /// Requests, and receives, that an Endpoint needs at a time.
    pub(super) fn depth(&self) -> u16 {
        let ops = u16::try_from(self.ops.len()).unwrap_or(u16::MAX);
        ops.saturating_add(NOTES)
    }

    /// Most segments of an operation.
    pub(super) fn segments(&self) -> u8 {
        let most = self.ops.iter().map(|op| op.segments).max().unwrap_or(1);
        u8::try_from(most).unwrap_or(u8::MAX)
    }

    /// Bytes of an operation.
    pub(super) fn bytes(&self, op: usize) -> usize {
        let op = self.ops.get(op);
        op.map_or(0, |op| op.size as usize * op.segments as usize)
    }

    /// Operations that a verified test compares: all but the three that keep the sides apart
    /// meanwhile.
    pub(super) fn compared(&self) -> usize {
        self.ops.len().saturating_sub(3)
    }
}

/// Whether this side can carry out a command. Nothing of it is believed before.
pub(super) fn check<H: Host>(
    hub: &Hub<'_, '_, '_, H>,
    command: &Transaction,
) -> Result<(), Failure> {
    let Transaction { threads, eps, iterations, validate, ref ops, .. } = *command;
    super::ops::check(ops).map_err(|failure| Failure { usage: false, ..failure })?;
    if threads == 0 || eps == 0 || iterations == 0 {
        return Err(Failure::new(format!(
            "a test of {iterations} iterations with {threads} threads and {eps} connections each does nothing"
        ))
        .remedy("give -i, -t and -w at least 1"));
    }
    let barriers = || {
        let sends = ops.iter().rev().take(3);
        let who = sends.map(|op| (op.transfer == Transfer::Send).then_some(op.by_server));
        who.eq([Some(true), Some(false), Some(true)])
    };
    if validate && !barriers() {
        return Err(Failure::new(
            "a verified test does not end with a message of the server, one of the client and one of the server",
        )
        .remedy("is it dapltest?"));
    }
    let (room, attr) = (hub.room(), hub.nic(|nic| nic.query().0));
    let connections = threads.checked_mul(eps).filter(|count| *count <= room);
    let Some(connections) = connections else {
        return Err(Failure::new(format!(
            "-t {threads} -w {eps} are {threads} times {eps} connections; this adapter has room for {room} more Endpoints"
        ))
        .remedy("give a smaller -t or -w, or wait for the end of the tests that are under way"));
    };
    let most = attr
        .max_iov_segments_per_dto
        .min(attr.max_iov_segments_per_rdma_read)
        .min(attr.max_iov_segments_per_rdma_write);
    let bytes = |op: &Op| u64::from(op.size).next_multiple_of(256) * u64::from(op.segments);
    for op in ops {
        if op.size == 0 || op.segments == 0 || op.segments > most {
            return Err(Failure::new(format!(
                "an operation of {} segments of {} bytes is not possible here: {most} segments are",
                op.segments, op.size
            ))
            .remedy("give other numbers of bytes and segments behind SR, RR or RW"));
        }
    }
    let each = ops.iter().fold(0, |sum: u64, op| sum.saturating_add(bytes(op)));
    let all = each.saturating_mul(connections.into());
    if all > MEMORY {
        return Err(Failure::new(format!(
            "the operations of all connections have {all} bytes of memory; {MEMORY} are there"
        ))
        .remedy(
            "give fewer connections (-t, -w), or fewer bytes or segments behind SR, RR and RW",
        ));
    }
    Ok(())
}
