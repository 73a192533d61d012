//! Judges every event that a consumer dequeues.

use dat_core::{AsyncEvent, DatReturn, DtoOperation, DtoStatus, Ep, Event};

use super::state::{Kind, Posted, Program};
use crate::conformance::Side;
use crate::laws::{Check, Violation, connection_of, violation};

/// The end index in cookies of receives of a Shared Receive Queue.
pub(super) const SHARED: u64 = 0xff;

impl<S: Side> Program<'_, '_, S> {
    /// Dequeues one event; whether there was one.
    pub(super) fn dequeue(&mut self, side: usize, queue: usize) -> Result<bool, Violation> {
        let evd = self.sides[side].queues[queue].evd;
        match self.ias[side].evd_dequeue(evd) {
            Ok(event) => {
                self.steps += 1;
                self.judge(side, queue, event)?;
                Ok(true)
            }
            Err(DatReturn::QUEUE_EMPTY) => {
                self.empty(side, queue);
                Ok(false)
            }
            Err(other) => violation("dequeue", format!("side {side}, {evd:?}: {other}")),
        }
    }

    /// Dequeues everything that a queue has.
    pub(super) fn drain(&mut self, side: usize, queue: usize) -> Check {
        while self.dequeue(side, queue)? {}
        Ok(())
    }

    /// A queue was seen empty: what was dropped will not come any more.
    pub(super) fn empty(&mut self, side: usize, queue: usize) {
        let consumer = &mut self.sides[side];
        let known = &mut consumer.queues[queue];
        if known.dropped == 0 {
            return;
        }
        known.charged -= known.dropped;
        known.dropped = 0;
        for end in &mut consumer.ends {
            if end.request == queue {
                end.requests.retain(|item| !item.dropped);
            }
            if end.recv == queue {
                end.receives.retain(|item| !item.dropped);
            }
        }
    }

    /// Judges one event.
    pub(super) fn judge(&mut self, side: usize, queue: usize, event: Event) -> Check {
        self.note(|| format!("{side}: queue {queue}: {event:?}"));
        match event {
            Event::Dto(dto) => {
                let recv = matches!(
                    dto.operation,
                    DtoOperation::Receive | DtoOperation::ReceiveWithInvalidate
                );
                if recv && dto.cookie & 0xff == SHARED {
                    return self.shared_completion(side, queue, dto.ep, dto.cookie, dto.status);
                }
                self.completion(side, queue, Some(dto.ep), dto.cookie, recv, dto.status)
            }
            Event::RmrBind { cookie, status, .. } => {
                self.completion(side, queue, None, cookie, false, status)
            }
            Event::ConnectionRequest { cr, .. } => self.requested(side, cr),
            Event::Software(number) => {
                let first = self.sides[side].queues[queue].software.pop_front();
                if first == Some(number) {
                    return Ok(());
                }
                violation("software", format!("side {side}: {number}, not {first:?}"))
            }
            Event::Established(ep) => self.established(side, queue, ep),
            Event::Async(AsyncEvent::EvdOverflow(evd)) => {
                let mut queues = self.sides[side].queues.iter();
                if queues.any(|queue| queue.evd == evd && queue.crowded) {
                    return Ok(());
                }
                violation("overflow", format!("side {side}: overflow of {evd:?}"))
            }
            Event::Async(_) => Ok(()),
            other => match connection_of(&other) {
                Some(ep) => self.terminal(side, queue, ep, other),
                None => violation("event", format!("side {side}: {other:?}")),
            },
        }
    }

    /// A completion of an Endpoint's own request or receive.
    fn completion(
        &mut self,
        side: usize,
        queue: usize,
        ep: Option<Ep>,
        cookie: u64,
        recv: bool,
        status: DtoStatus,
    ) -> Check {
        let consumer = &mut self.sides[side];
        let index = (cookie & 0xff) as usize;
        let what = format_args!("side {side}, end {index}: {cookie:#x} {status:?}").to_string();
        let Some(end) = consumer.ends.get_mut(index) else {
            return violation("unknown-completion", what);
        };
        let (at, posted) =
            if recv { (end.recv, &mut end.receives) } else { (end.request, &mut end.requests) };
        if at != queue || ep.is_some_and(|ep| ep != end.ep) {
            return violation(
                "unknown-completion",
                format!("{what} of {ep:?} on queue {queue}, not of {:?} on {at}", end.ep),
            );
        }
        if !posted.iter().any(|item| item.cookie == cookie) {
            return violation("unknown-completion", format!("{what} came twice, or was never due"));
        }
        let item = loop {
            let Some(item) = posted.pop_front() else {
                return violation("unknown-completion", what);
            };
            consumer.queues[queue].charged -= 1;
            if item.dropped {
                consumer.queues[queue].dropped -= 1;
            }
            if item.cookie == cookie {
                break item;
            }
            if !item.suppressed && !item.dropped {
                return violation(skipped(item), format!("{what} came before {item:?}"));
            }
        };
        let Some(index) = item.connection else {
            return Ok(());
        };
        if end.conn != queue {
            return Ok(());
        }
        let connection = &mut consumer.connections[index];
        if connection.terminal_seen && !item.late {
            return violation(
                "terminal-order",
                format!("{what} came after the terminal event of its connection"),
            );
        }
        // A message of the peer may overtake the end of the handshake: no page says that it comes
        // behind ESTABLISHED.
        if !connection.established_seen && !recv {
            connection.early += 1;
            if status == DtoStatus::Success && !consumer.queues[queue].crowded {
                return violation("established-order", format!("{what} came before Established"));
            }
        }
        Ok(())
    }

    /// A completion of a receive of a Shared Receive Queue.
    fn shared_completion(
        &mut self,
        side: usize,
        queue: usize,
        ep: Ep,
        cookie: u64,
        status: DtoStatus,
    ) -> Check {
        let consumer = &mut self.sides[side];
        let what = format!("side {side}: shared {cookie:#x} {status:?} of {ep:?}");
        let posted = &mut consumer.shared[0].posted;
        let Some(at) = posted.iter().position(|&other| other == cookie) else {
            return violation("unknown-completion", what);
        };
        posted.swap_remove(at);
        let Some(end) = consumer.ends.iter().find(|end| end.ep == ep) else {
            return violation("unknown-completion", what);
        };
        if end.recv != queue || end.srq.is_none() {
            return violation("unknown-completion", what);
        }
        // Which connection it belongs to is known only of an Endpoint's first.
        if end.conn == queue && end.connections == 1 {
            if let Some(current) = end.current {
                if status == DtoStatus::Success && !consumer.queues[queue].crowded {
                    let connection = &consumer.connections[current];
                    if connection.terminal_seen {
                        return violation(
                            "terminal-order",
                            format!("{what} came after the terminal event"),
                        );
                    }
                }
            }
        }
        Ok(())
    }

    /// The Endpoint of a connection event; its queue must be right.
    fn end_of(&self, side: usize, queue: usize, ep: Ep) -> Result<usize, Violation> {
        let consumer = &self.sides[side];
        let found = consumer.ends.iter().position(|end| end.ep == ep);
        match found.filter(|&index| consumer.ends[index].conn == queue) {
            Some(index) => Ok(index),
            None => violation("connection-order", format!("side {side}: an event of {ep:?}")),
        }
    }

    fn established(&mut self, side: usize, queue: usize, ep: Ep) -> Check {
        let index = self.end_of(side, queue, ep)?;
        let consumer = &mut self.sides[side];
        let Some(&first) = consumer.ends[index].open.front() else {
            return violation(
                "connection-order",
                format!("side {side}, end {index}: Established without a connection"),
            );
        };
        let connection = &mut consumer.connections[first];
        if std::mem::replace(&mut connection.established_seen, true) {
            // A short queue has most likely lost the terminal event.
            let crowded = consumer.queues[queue].crowded;
            return violation(
                if crowded { "lost-terminal" } else { "connection-order" },
                format!(
                    "side {side}, end {index}: Established of the next connection before the \
                     terminal event of connection {first}"
                ),
            );
        }
        if connection.early != 0 {
            return violation(
                "established-order",
                format!("side {side}, end {index}: flushed completions before Established"),
            );
        }
        Ok(())
    }

    fn terminal(&mut self, side: usize, queue: usize, ep: Ep, event: Event) -> Check {
        let index = self.end_of(side, queue, ep)?;
        let consumer = &mut self.sides[side];
        let end = &mut consumer.ends[index];
        let Some(first) = end.open.pop_front() else {
            return violation(
                "terminal-twice",
                format!("side {side}, end {index}: {event:?} without a connection"),
            );
        };
        let connection = &mut consumer.connections[first];
        connection.terminal_seen = true;
        connection.over = true;
        if connection.stale {
            connection.stale = false;
            consumer.queues[queue].stale -= 1;
        }
        if connection.connected && !connection.established_seen && !consumer.queues[queue].crowded {
            return violation(
                "lost-established",
                format!(
                    "side {side}, end {index}: {event:?} of connection {first}, no Established"
                ),
            );
        }
        let merged = [(end.recv, &end.receives, true), (end.request, &end.requests, false)];
        for (_, posted, recv) in merged.into_iter().filter(|(at, ..)| *at == queue) {
            let due = |item: &&Posted| {
                item.connection == Some(first) && !item.late && !item.suppressed && !item.dropped
            };
            if let Some(item) = posted.iter().find(due) {
                let stream = if recv { "receive" } else { "request" };
                return violation(
                    "terminal-order",
                    format!("side {side}, end {index}: {event:?} before {stream} {item:?}"),
                );
            }
        }
        Ok(())
    }

    /// Dequeues asynchronous errors: none but broken Endpoints are due.
    pub(super) fn drain_async(&mut self, side: usize) -> Check {
        let evd = self.ias[side].ia.async_evd();
        while let Ok(event) = self.ias[side].evd_dequeue(evd) {
            self.steps += 1;
            self.judge(side, usize::MAX, event)?;
        }
        Ok(())
    }
}

/// The rule that a skipped completion violates.
pub(super) fn skipped(item: Posted) -> &'static str {
    match item.kind {
        Kind::Bind { freed: true } => "bind-completion",
        Kind::Bind { freed: false } | Kind::Send | Kind::Rdma | Kind::Recv => "completion-order",
    }
}
