//! State of the consumers of an episode.

use std::collections::VecDeque;

use dat_core::{Cno, Cr, Ep, EpState, Evd, EvdFlags, LmrParam, Pz, Rmr, Srq};

use crate::conformance::{Adapters, Side};
use crate::laws::rng::Rng;

/// Ring entries of the storage for events other than completions.
pub(super) const RING: usize = 16;
/// Bytes of registered memory on each side.
pub(super) const MEMORY: usize = 4096;

/// An Event Dispatcher.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) evd: Evd,
    pub(super) qlen: usize,
    pub(super) flags: EvdFlags,
    /// Completions that may still come or wait in it.
    pub(super) charged: usize,
    /// Of these, completions of Endpoints that were reset or freed: they may have been dropped.
    pub(super) dropped: usize,
    /// Software events in it.
    pub(super) software: VecDeque<u64>,
    /// Connections whose events may wait in it while their Endpoint is freed or connected anew.
    pub(super) stale: usize,
    /// Its events other than completions may have exceeded its length once: then all but terminal
    /// events may overflow.
    pub(super) crowded: bool,
}

/// A posted request or receive whose completion has not been dequeued.
#[derive(Clone, Copy, Debug)]
pub(super) struct Posted {
    pub(super) cookie: u64,
    /// Index of the connection it belongs to; `None` for a receive posted before the next
    /// connection begins.
    pub(super) connection: Option<usize>,
    /// Completes without an event if it succeeds.
    pub(super) suppressed: bool,
    /// Posted in DISCONNECTED: flushed after the terminal event.
    pub(super) late: bool,
    /// The Endpoint was reset or freed: its completion may have been dropped.
    pub(super) dropped: bool,
    pub(super) kind: Kind,
}

/// Kind of a posted request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Send,
    Rdma,
    Bind { freed: bool },
    Recv,
}

/// One connection of one Endpoint, from `ep_connect` or `cr_accept` to its terminal event.
#[derive(Clone, Debug)]
pub(super) struct Connection {
    pub(super) end: usize,
    /// The other end: index in the connections of the other side.
    pub(super) peer: Option<usize>,
    /// Its state was seen to be CONNECTED, so Established has been generated.
    pub(super) connected: bool,
    /// Something ended it, or will.
    pub(super) over: bool,
    /// Its state was seen to be DISCONNECTED, so the terminal event has been generated.
    pub(super) ended: bool,
    /// The Endpoint was freed before the connection ended: no terminal event is due.
    pub(super) freed: bool,
    pub(super) established_seen: bool,
    pub(super) terminal_seen: bool,
    /// Flushed completions seen before Established on a merged Event Dispatcher.
    pub(super) early: usize,
    /// Counted in [`Queue::stale`].
    pub(super) stale: bool,
}

/// An Endpoint, alive or freed.
#[derive(Debug)]
pub(super) struct End {
    pub(super) ep: Ep,
    /// Indices of its queues.
    pub(super) recv: usize,
    pub(super) request: usize,
    pub(super) conn: usize,
    pub(super) srq: Option<usize>,
    pub(super) requests: VecDeque<Posted>,
    pub(super) receives: VecDeque<Posted>,
    /// Connections whose terminal event has not been dequeued, in order.
    pub(super) open: VecDeque<usize>,
    /// Connections so far.
    pub(super) connections: usize,
    /// The connection that its state is about.
    pub(super) current: Option<usize>,
    pub(super) freed: bool,
    pub(super) unsignalled: bool,
}

/// A Shared Receive Queue.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) srq: Srq,
    pub(super) posted: Vec<u64>,
}

/// A connection request that waits for an answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) cr: Cr,
    /// The connection of the other side that asks.
    pub(super) from: usize,
}

/// One side.
#[derive(Debug)]
pub(super) struct Consumer {
    pub(super) pz: Pz,
    pub(super) lmr: LmrParam,
    pub(super) queues: Vec<Queue>,
    pub(super) ends: Vec<End>,
    pub(super) connections: Vec<Connection>,
    pub(super) shared: Vec<Shared>,
    pub(super) rmrs: Vec<Rmr>,
    pub(super) requests: Vec<Request>,
    pub(super) qualifier: u64,
    /// Queue of connection requests.
    pub(super) listen: usize,
    pub(super) cno: Option<Cno>,
    /// Chance in 100 that the program dequeues at a step.
    pub(super) appetite: usize,
    pub(super) unsignalled: bool,
}

/// A program and what its consumers know.
pub(super) struct Program<'w, 's, S: Side> {
    pub(super) ias: &'w mut Adapters<'s, S>,
    pub(super) rng: Rng,
    pub(super) sides: Vec<Consumer>,
    pub(super) steps: u64,
    pub(super) cookie: u64,
    pub(super) verbose: bool,
}

impl<'w, 's, S: Side> Program<'w, 's, S> {
    pub(super) fn new(ias: &'w mut Adapters<'s, S>, rng: Rng, verbose: bool) -> Self {
        Self { ias, rng, sides: Vec::new(), steps: 0, cookie: 0, verbose }
    }

    /// Prints a line of the program.
    pub(super) fn note(&self, text: impl FnOnce() -> String) {
        if self.verbose {
            let now = self.ias.now().as_nanos();
            eprintln!("{:6} {now:>14} {}", self.steps, text());
        }
    }

    /// State of an Endpoint; what it says of the connection is noted.
    pub(super) fn state(&mut self, side: usize, end: usize) -> EpState {
        let consumer = &mut self.sides[side];
        let known = &consumer.ends[end];
        if known.freed {
            return EpState::Disconnected;
        }
        let state = self.ias[side].ep_get_status(known.ep).unwrap().state;
        if let Some(current) = known.current {
            let connection = &mut consumer.connections[current];
            match state {
                EpState::Connected | EpState::DisconnectPending => connection.connected = true,
                EpState::Disconnected => {
                    connection.over = true;
                    connection.ended = true;
                }
                _ => {}
            }
        }
        state
    }

    /// A cookie that names the Endpoint.
    pub(super) fn next_cookie(&mut self, end: usize) -> u64 {
        self.cookie += 1;
        self.cookie << 8 | end as u64
    }

    /// Live Endpoints of a side.
    pub(super) fn alive(&self, side: usize) -> Vec<usize> {
        let ends = self.sides[side].ends.iter().enumerate();
        ends.filter(|(_, end)| !end.freed).map(|(index, _)| index).collect()
    }

    /// Receives of Shared Receive Queues that may complete on a queue.
    fn shared_charge(&self, side: usize, queue: usize) -> usize {
        let consumer = &self.sides[side];
        let uses = |index: usize| {
            consumer
                .ends
                .iter()
                .any(|end| !end.freed && end.srq == Some(index) && end.recv == queue)
        };
        let each = consumer.shared.iter().enumerate();
        each.filter(|(index, _)| uses(*index)).map(|(_, shared)| shared.posted.len()).sum()
    }

    /// Entries of the ring that connection events, connection requests and software events may
    /// take.
    pub(super) fn ring_charge(&self, side: usize, queue: usize) -> usize {
        let consumer = &self.sides[side];
        let known = &consumer.queues[queue];
        let live = consumer.ends.iter();
        let live = live.filter(|end| !end.freed && end.conn == queue).count();
        let requests = if consumer.listen == queue { 6 } else { 0 };
        2 * (known.stale + live) + known.software.len() + requests
    }

    /// Whether another completion fits into a queue, with all that the length has to hold.
    pub(super) fn fits(&self, side: usize, queue: usize) -> bool {
        let known = &self.sides[side].queues[queue];
        let mut charge = known.charged + self.shared_charge(side, queue);
        if known.stale > 0 {
            charge += self.ring_charge(side, queue);
        }
        charge < known.qlen
    }

    /// Whether the events of `more` connections may wait behind those of the Endpoint's next ones.
    pub(super) fn fits_stale(&self, side: usize, queue: usize, more: usize) -> bool {
        let known = &self.sides[side].queues[queue];
        let ring = self.ring_charge(side, queue) + 2 * more;
        let all = ring + known.charged + self.shared_charge(side, queue);
        ring <= RING && all <= known.qlen
    }

    /// Notes whether the events of a queue can exceed its length.
    pub(super) fn note_crowd(&mut self, side: usize, queue: usize) {
        let charge = self.ring_charge(side, queue);
        let known = &mut self.sides[side].queues[queue];
        known.crowded |= charge > known.qlen.min(RING);
    }

    /// Marks the connections of an Endpoint whose events have not been dequeued.
    pub(super) fn mark_stale(&mut self, side: usize, end: usize) {
        let consumer = &mut self.sides[side];
        let queue = consumer.ends[end].conn;
        for &index in &consumer.ends[end].open {
            let connection = &mut consumer.connections[index];
            if !connection.stale {
                connection.stale = true;
                consumer.queues[queue].stale += 1;
            }
        }
    }

    /// The Endpoint was reset or freed: completions not dequeued may be gone.
    pub(super) fn drop_posted(&mut self, side: usize, end: usize) {
        let consumer = &mut self.sides[side];
        let known = &mut consumer.ends[end];
        for (queue, posted) in
            [(known.request, &mut known.requests), (known.recv, &mut known.receives)]
        {
            for item in posted.iter_mut().filter(|item| !item.dropped) {
                item.dropped = true;
                consumer.queues[queue].dropped += 1;
            }
        }
    }
}
