//! What each test is, and what of it the arguments ask for.

use std::time::Duration;

use super::super::super::failure::Failure;
use super::super::args::{AtomicKind, PerfTest, Perftest};
use super::super::ends::Makings;

/// Bytes of all memory that is open to the other side, and of all places for what comes in.
pub(super) const MOST: usize = 4 << 20;
/// Sends of a latency test that are not acknowledged yet.
pub(super) const SENDS: u16 = 16;
/// Steps between the places for what comes in.
pub(super) const ALIGN: usize = 64;
/// What an operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Send,
    Write,
    Read,
    Atomic,
}

impl PerfTest {
    pub(super) fn verb(self) -> Verb {
        match self {
            Self::SendBw | Self::SendLat => Verb::Send,
            Self::WriteBw | Self::WriteLat => Verb::Write,
            Self::ReadBw | Self::ReadLat => Verb::Read,
            Self::AtomicBw => Verb::Atomic,
        }
    }

    pub(super) fn bandwidth(self) -> bool {
        match self {
            Self::SendBw | Self::WriteBw | Self::ReadBw | Self::AtomicBw => true,
            Self::SendLat | Self::WriteLat | Self::ReadLat => false,
        }
    }

    /// Its name over there.
    pub(in super::super) fn program(self) -> &'static str {
        match self {
            Self::SendBw => "ib_send_bw",
            Self::SendLat => "ib_send_lat",
            Self::WriteBw => "ib_write_bw",
            Self::WriteLat => "ib_write_lat",
            Self::ReadBw => "ib_read_bw",
            Self::ReadLat => "ib_read_lat",
            Self::AtomicBw => "ib_atomic_bw",
        }
    }

    /// Bytes and number of operations, unless given otherwise.
    fn habits(self) -> (u32, u64) {
        match self {
            Self::SendBw | Self::ReadBw => (0x1_0000, 1000),
            Self::WriteBw => (0x1_0000, 5000),
            Self::SendLat | Self::WriteLat | Self::ReadLat => (2, 1000),
            Self::AtomicBw => (8, 1000),
        }
    }
}

/// What is to be done.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) test: PerfTest,
    pub(super) client: bool,
    pub(super) verb: Verb,
    pub(super) bandwidth: bool,
    pub(super) connections: usize,
    pub(super) size: usize,
    /// Operations on each connection.
    pub(super) iters: u64,
    /// Requests outstanding on each.
    pub(super) depth: u16,
    /// Places of each for what comes in: messages of a peer, or what is read; 0 if there are none.
    pub(super) places: u16,
    pub(super) atomic: AtomicKind,
    pub(super) verify: bool,
    /// How long a server waits for the end of what it does not see.
    pub(super) wait: Duration,
}

impl Plan {
    pub(super) fn new(perftest: &Perftest) -> Result<Self, Failure> {
        let (test, client) = (perftest.test, perftest.client.is_some());
        let (verb, bandwidth) = (test.verb(), test.bandwidth());
        let (size, iters) = test.habits();
        let size = perftest.size.unwrap_or(size);
        if verb == Verb::Atomic && size != 8 {
            return Err(Failure::usage(format!("an atomic has 8 bytes, not {size}")));
        }
        let connections = usize::from(perftest.qp);
        if !bandwidth && connections > 1 {
            return Err(Failure::usage(format!(
                "{} has one connection, as over there",
                test.program()
            )));
        }
        let size = size as usize;
        if size * connections > MOST {
            return Err(Failure::usage("--size times --qp is more than 4M"));
        }
        // As many places as fit, and at least one.
        let fit = MOST / (connections * size.next_multiple_of(ALIGN));
        let fit = u16::try_from(fit).unwrap_or(u16::MAX).max(1);
        let (depth, places) = match (verb, bandwidth, client) {
            (Verb::Send, true, true) | (Verb::Write, true, true) => (perftest.tx_depth, 0),
            (Verb::Send, true, false) => (1, perftest.rx_depth.min(fit)),
            (Verb::Send, false, _) => (SENDS, perftest.rx_depth.min(fit)),
            (Verb::Write, false, _) | (_, _, false) => (1, 0),
            (Verb::Read | Verb::Atomic, true, true) => {
                let depth = perftest.tx_depth.min(fit);
                (depth, depth)
            }
            (Verb::Read | Verb::Atomic, false, true) => (1, 1),
        };
        Ok(Self {
            test,
            client,
            verb,
            bandwidth,
            connections,
            size,
            iters: perftest.iters.unwrap_or(iters),
            depth,
            places,
            atomic: perftest.atomic_type,
            verify: perftest.verify,
            wait: perftest.patience.wait,
        })
    }

    pub(super) fn makings(&self) -> Makings {
        let receives = if self.verb == Verb::Send { self.places } else { 1 };
        Makings { count: self.connections, requests: self.depth, receives: receives.max(1) }
    }

    pub(super) fn all(&self) -> u64 {
        self.iters.saturating_mul(self.connections as u64)
    }
}

/// Bytes of a place for `size` bytes.
pub(super) fn place(size: usize) -> usize {
    size.next_multiple_of(ALIGN)
}
