//! Event queues: the ring, its decoding, its doorbells.

use dat_core::provider::Fault;

/// One decoded event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// An armed completion queue has entries.
    Completion {
        /// The queue.
        cqn: u32,
    },
    /// Something happened to a queue pair (or a send or receive queue of its own; the numbers share one space).
    Qp {
        /// Its number.
        qpn: u32,
        /// What.
        what: QpEvent,
    },
    /// A completion queue failed.
    CqError {
        /// The queue.
        cqn: u32,
        /// 1 overrun, 2 access violation.
        syndrome: u8,
    },
    /// The port went up or down.
    Port {
        /// Its number, from 1.
        port: u8,
        /// The hint of the event; the truth is in the port registers.
        up: bool,
    },
    /// The device is lost.
    Dead(Fault),
}

/// What happened to a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QpEvent {
    /// First packet of the peer arrived in RTR.
    Established,
    /// The send queue is drained.
    Drained,
    /// The last receive of a queue in error was consumed.
    LastWqe,
    /// A work queue failed in the device.
    Catastrophic,
    /// The peer sent a request that is invalid here.
    InvalidRequest,
    /// The peer sent a request that the keys do not allow.
    AccessError,
}
