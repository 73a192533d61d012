//! Takes every event of a host, and says whether it may be.
//!
//! Length: each kind of event with its rules; apart they would not be checked by one look.

use std::collections::VecDeque;

use dat_core::cm::Reason;
use dat_core::{
    AsyncEvent, Cr, DatReturn, DtoOperation, DtoStatus, Ep, Event, FaultKind, IbOperation,
};
use dat_tests::laws::connection_of;
use mlx5_model::host::Nanos;

use crate::faults::{MS, S};
use crate::oracle::{Check, Kind, Phase, Posted, Violation, Waiting, violation};
use crate::script::{Request, Via};
use crate::world::{GAP, SHARED_LEN, Sim, Stream, Timer};

/// Why a connection does not come about that the peer rejected.
const REJECTED: &str = "a rejection";
/// Within this time no connection ends for want of messages of its peer.
const AT_ONCE: Nanos = 100 * MS;
/// Why a connection ends that its consumer ended at once.
pub(crate) const DISCONNECT: &str = "a disconnect";
/// A graceful disconnect waits for so long without progress.
const PATIENCE: Nanos = 30 * S;

/// A completion, of DAT or of the extensions.
struct Done {
    cookie: u64,
    status: DtoStatus,
    len: usize,
    operation: Operation,
}

/// What it says that it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Dat(DtoOperation),
    Ib(IbOperation),
    Bind,
}

impl Kind {
    /// The operation that its success names; of receives there are several.
    fn operation(self) -> Operation {
        match self {
            Self::Send => Operation::Dat(DtoOperation::Send),
            Self::Write => Operation::Dat(DtoOperation::RdmaWrite),
            Self::Read => Operation::Dat(DtoOperation::RdmaRead),
            Self::Receive => Operation::Dat(DtoOperation::Receive),
            Self::Immediate => Operation::Ib(IbOperation::RdmaWriteImmed),
            Self::Add => Operation::Ib(IbOperation::FetchAdd),
            Self::Swap => Operation::Ib(IbOperation::CmpSwap),
            Self::Bind(_) => Operation::Bind,
        }
    }
}

impl Sim<'_> {
    /// Takes all events of a host, but for those that it does not look at.
    pub fn reap(&mut self, host: usize) -> Check {
        self.end_wire_faults()?;
        self.awake(host)?;
        self.answer(host)?;
        for n in 0..self.hosts[host].streams.len() {
            let (evd, stream) = self.hosts[host].streams[n];
            if self.hosts[host].neglected == Some(evd) {
                continue;
            }
            while let Some(event) = self.next(host, evd)? {
                self.take(host, stream, event)?;
            }
        }
        Ok(())
    }

    /// An event of a host.
    pub(crate) fn take(&mut self, host: usize, stream: Stream, event: Event) -> Check {
        match stream {
            Stream::End(l, side, merged) => self.event(l, side, event, merged),
            Stream::Ends(merged) => match self.end_of(host, &event) {
                Some((l, side)) => self.event(l, side, event, merged),
                None => violation("unknown-completion", format!("h{host}: of no end: {event:?}")),
            },
            Stream::Requests => match event {
                Event::ConnectionRequest { cr, .. } => self.requested(host, cr),
                other => violation("event", format!("h{host}: {other:?}")),
            },
            Stream::Datagrams => self.datagram_event(host, event),
            Stream::Asynchronous => self.asynchronous(host, event),
        }
    }

    /// The end that an event is of, among all ends of a host.
    fn end_of(&self, host: usize, event: &Event) -> Option<(usize, usize)> {
        let ep = match event {
            Event::Dto(dto) => Some(dto.ep),
            Event::IbDto(dto) => Some(dto.ep),
            other => connection_of(other),
        };
        self.hosts[host].ends.iter().copied().find(|&(l, side)| {
            let end = &self.links[l].ends[side];
            match (ep, event) {
                (Some(ep), _) => {
                    let begins = connection_of(event).is_some() && !event.is_terminal();
                    end.ep == Some(ep)
                        || end.freed.contains(&ep)
                        || begins && end.gone.contains(&ep)
                }
                (None, Event::RmrBind { cookie, .. }) => {
                    end.requests.iter().any(|item| item.cookie == *cookie)
                }
                (None, _) => false,
            }
        })
    }

    fn next(&mut self, host: usize, evd: dat_core::Evd) -> Result<Option<Event>, Violation> {
        let Some(adapter) = &mut self.hosts[host].adapter else { return Ok(None) };
        match adapter.ia.evd_dequeue(evd) {
            Ok(event) => Ok(Some(event)),
            Err(DatReturn::QUEUE_EMPTY) => Ok(None),
            Err(error) => violation("dequeue", format!("h{host}: {error}")),
        }
    }

    fn event(&mut self, l: usize, side: usize, event: Event, merged: bool) -> Check {
        let host = self.links[l].ends[side].host;
        let done = match event {
            Event::Dto(dto) => Done {
                cookie: dto.cookie,
                status: dto.status,
                len: dto.len as usize,
                operation: Operation::Dat(dto.operation),
            },
            Event::IbDto(dto) => Done {
                cookie: dto.cookie,
                status: dto.status(),
                len: dto.len as usize,
                operation: Operation::Ib(dto.operation),
            },
            Event::RmrBind { cookie, status, .. } => {
                Done { cookie, status, len: 0, operation: Operation::Bind }
            }
            _ => return self.connection_event(l, side, event, merged),
        };
        self.say(
            host,
            format_args!(
                "link {l}: completion {} {:?} {:?}, {} bytes",
                done.cookie, done.operation, done.status, done.len
            ),
        );
        let receive = matches!(
            done.operation,
            Operation::Dat(DtoOperation::Receive | DtoOperation::ReceiveWithInvalidate)
                | Operation::Ib(IbOperation::RecvRdmaWriteImmed | IbOperation::RecvMsgImmed)
        );
        // A device that is given up may still receive.
        let over = merged && self.links[l].ends[side].phase == Phase::Down && !self.ill(host);
        if receive && over {
            let late = self.links[l].ends[side].receives.front().is_some_and(|item| item.late);
            if !late {
                return violation(
                    "terminal-order",
                    format!("h{host} link {l}: the event came before receive {}", done.cookie),
                );
            }
        }
        if receive { self.received(l, side, &done) } else { self.requested_done(l, side, &done) }
    }

    // ---- requests ----

    fn requested_done(&mut self, l: usize, side: usize, done: &Done) -> Check {
        let host = self.links[l].ends[side].host;
        let what = format_args!("h{host} link {l}: {} {:?}", done.cookie, done.status).to_string();
        if !self.links[l].ends[side].requests.iter().any(|item| item.cookie == done.cookie) {
            return violation("unknown-completion", format!("{what} came twice, or was never due"));
        }
        loop {
            let Some(item) = self.links[l].ends[side].requests.pop_front() else {
                return violation("unknown-completion", what);
            };
            self.give_back(l, side, &item);
            if item.cookie != done.cookie {
                if !item.suppressed || item.late {
                    return violation("completion-order", format!("{what} came before {item:?}"));
                }
                // A failure is always reported: it has succeeded.
                self.carried_out(l, side, &item, &what)?;
                continue;
            }
            if done.status == DtoStatus::Success {
                return self.success(l, side, &item, done, &what);
            }
            return self.failure(l, side, &item, done, &what);
        }
    }

    /// A request has been carried out: what it was to bring is there.
    pub fn carried_out(&mut self, l: usize, side: usize, item: &Posted, what: &str) -> Check {
        let link = &mut self.links[l];
        link.ends[1 - side].target.done(item.cookie);
        if let Some(conn) = link.ends[side].conn {
            if matches!(item.kind, Kind::Send | Kind::Immediate) {
                let messages = &mut link.conns[conn].messages[side];
                if let Some(message) = messages.iter_mut().find(|m| m.cookie == item.cookie) {
                    message.acknowledged = true;
                }
            }
        }
        if let Kind::Bind(slot) = item.kind {
            if let Some(grant) = &mut self.links[l].ends[side].grants[slot] {
                if grant.cookie == item.cookie {
                    grant.ready = true;
                    let before = grant.before.take();
                    before.into_iter().for_each(|key| self.links[l].ends[side].closed(key));
                }
            }
        }
        if let Some(slot) = item.slot {
            if matches!(item.kind, Kind::Read | Kind::Add | Kind::Swap) {
                let end = &self.links[l].ends[side];
                let (host, at) = (end.host, end.base[2] + slot * end.stride);
                if item.brings.is_empty() {
                    self.adopt(host, at, item.len);
                    return Ok(());
                }
                let mut brings = item.brings.clone();
                if item.kind == Kind::Read {
                    if let Some(adapter) = &self.hosts[host].adapter {
                        let mut actual = vec![0; brings.len()];
                        adapter.mem.copy_out(at, &mut actual);
                        let target = &self.links[l].ends[1 - side].target;
                        for (n, byte) in actual.into_iter().enumerate() {
                            if byte != brings[n] && target.overtakes(item.cookie, item.at + n, byte)
                            {
                                brings[n] = byte;
                            }
                        }
                    }
                }
                return self.arrived(host, at, &brings, what);
            }
        }
        Ok(())
    }

    fn success(&mut self, l: usize, side: usize, item: &Posted, done: &Done, what: &str) -> Check {
        if item.doomed {
            return violation("refused", format!("{what}: it must not succeed: {item:?}"));
        }
        if item.late {
            return violation("late", format!("{what}: posted after the end: {item:?}"));
        }
        if item.kind.operation() != done.operation {
            return violation("operation", format!("{what}: {:?} of {item:?}", done.operation));
        }
        if done.operation != Operation::Bind && done.len != item.len {
            return violation("length", format!("{what}: {} bytes of {item:?}", done.len));
        }
        self.carried_out(l, side, item, what)
    }

    /// Bytes have arrived in a host's memory, as the CPU sees it.
    fn arrived(&mut self, host: usize, at: usize, bytes: &[u8], what: &str) -> Check {
        let Some(adapter) = &mut self.hosts[host].adapter else { return Ok(()) };
        let mut actual = vec![0; bytes.len()];
        adapter.mem.copy_out(at, &mut actual);
        adapter.image[at..at + bytes.len()].copy_from_slice(bytes);
        match (0..bytes.len()).find(|&n| actual[n] != bytes[n]) {
            None => Ok(()),
            Some(n) => violation(
                "bytes",
                format!(
                    "{what}: byte {n} of {} is {:#04x}, not {:#04x}",
                    bytes.len(),
                    actual[n],
                    bytes[n]
                ),
            ),
        }
    }

    /// Whether an end may have sought its peer's address in vain: the wire of one of them was at
    /// fault, and the host has reached the peer on no link since.
    fn sought_in_vain(&self, l: usize, side: usize) -> bool {
        let [host, peer] = [side, 1 - side].map(|side| self.links[l].ends[side].host);
        let reached = self.links.iter().flat_map(|link| {
            let is_near =
                |near: &usize| (link.ends[*near].host, link.ends[1 - near].host) == (host, peer);
            let near = (0..2).find(is_near);
            near.into_iter().flat_map(|near| link.conns.iter().filter_map(move |c| c.begun[near]))
        });
        let rough = self.hosts[host].rough.max(self.hosts[peer].rough);
        rough > reached.max().unwrap_or(0)
    }

    /// Whether what an end posted may fail.
    pub(crate) fn excused(&self, l: usize, side: usize) -> bool {
        let end = &self.links[l].ends[side];
        let excuse = end.conn.and_then(|conn| self.links[l].conns[conn].excuse);
        // A message that came late, or not at all, leaves a connection that one side still knows.
        let adapter = self.hosts[end.host].adapter.as_ref();
        let reason = adapter.zip(end.ep).map(|(adapter, ep)| adapter.ia.ep_reject_reason(ep));
        let reason = reason.and_then(|reason| reason.ok()?);
        let stale = reason == Some(Reason::STALE);
        // Connections that ended take up slots until no packet of theirs can come any more.
        let full = reason == Some(Reason::NO_RESOURCES);
        let mut hosts = self.shape.links[l].hosts.iter();
        let unordered = hosts.any(|host| self.hosts[*host].unordered);
        // An address that was sought in vain ends an attempt to connect, and flushes its receives.
        let vain = end.phase == Phase::Connecting && self.sought_in_vain(l, side);
        excuse.is_some() || self.ill(end.host) || full || stale && unordered || vain
    }

    /// Messages of an end that have not been received.
    fn undelivered(&self, l: usize, side: usize) -> usize {
        let conn = self.links[l].ends[side].conn.map(|conn| &self.links[l].conns[conn]);
        conn.map_or(0, |conn| conn.messages[side].len())
    }

    /// Whether no frame between the ends of a link was lost or late, and no device is at fault.
    pub(crate) fn wire_is_sound(&self, l: usize) -> bool {
        let mut hosts = self.shape.links[l].hosts.iter();
        hosts.all(|host| !self.hosts[*host].unordered && !self.ill(*host))
    }

    /// When each end began to leave the connection, the near one first.
    fn leaving(&self, l: usize, side: usize) -> [Option<Nanos>; 2] {
        let conn = self.links[l].ends[side].conn;
        let leaving = conn.map_or([None; 2], |conn| self.links[l].conns[conn].leaving);
        [leaving[side], leaving[1 - side]]
    }

    /// Something of a side has failed, and with it the connection.
    fn has_failed(&mut self, l: usize, side: usize) {
        if let Some(conn) = self.links[l].ends[side].conn {
            self.links[l].conns[conn].failed[side] = true;
        }
    }

    fn failure(&mut self, l: usize, side: usize, item: &Posted, done: &Done, what: &str) -> Check {
        let end = &self.links[l].ends[side];
        let (host, base, stride) = (end.host, end.base, end.stride);
        self.has_failed(l, side);
        let [left, peer_left] = self.leaving(l, side);
        if !item.late && peer_left.is_none() && !self.excused(l, side) {
            match left {
                None => return violation("failed", format!("{what}: without a reason: {item:?}")),
                // What an end has asked for before it leaves completes; receives do not.
                Some(since) if item.kind != Kind::Receive && self.now() < since + PATIENCE => {
                    return violation("drain", format!("{what}: the Endpoint leaves: {item:?}"));
                }
                // Nothing but a message without a receive takes longer.
                Some(_) if item.kind == Kind::Write && self.undelivered(l, side) == 0 => {
                    if self.wire_is_sound(l) {
                        return violation("drain", format!("{what}: nothing hinders: {item:?}"));
                    }
                }
                Some(_) => {}
            }
        }
        if item.late && done.status != DtoStatus::ErrFlushed {
            return violation("late", format!("{what}: posted after the end: {item:?}"));
        }
        if let Some(slot) = item.slot {
            let at = match item.kind {
                Kind::Receive => base[1],
                Kind::Read | Kind::Add | Kind::Swap => base[2],
                _ => return Ok(()),
            };
            self.adopt(host, at + slot * stride, stride);
        }
        Ok(())
    }

    // ---- receives ----

    fn received(&mut self, l: usize, side: usize, done: &Done) -> Check {
        let host = self.links[l].ends[side].host;
        let what = format_args!("h{host} link {l}: {} {:?}", done.cookie, done.status).to_string();
        let (item, at) = if self.shape.links[l].shared[side] {
            let base = self.hosts[host].base[0];
            let Some(adapter) = self.adapter(host) else { return Ok(()) };
            let Some(slot) = adapter.shared.remove(&done.cookie) else {
                return violation("unknown-completion", format!("{what}: of the shared queue"));
            };
            adapter.pieces.give(slot);
            let at = base + slot * (SHARED_LEN + GAP);
            if done.status != DtoStatus::Success {
                self.adopt(host, at, SHARED_LEN);
            }
            (None, at)
        } else {
            let end = &mut self.links[l].ends[side];
            match end.receives.pop_front() {
                Some(item) if item.cookie == done.cookie => {
                    let at = end.base[1] + item.slot.unwrap_or(0) * end.stride;
                    self.give_back(l, side, &item);
                    (Some(item), at)
                }
                Some(item) => {
                    return violation("completion-order", format!("{what} came before {item:?}"));
                }
                None => return violation("unknown-completion", what),
            }
        };
        if done.status != DtoStatus::Success {
            let late = item.as_ref().is_some_and(|item| item.late);
            let left = self.leaving(l, side) != [None; 2];
            if !late && !left && !self.excused(l, side) {
                return violation("failed", format!("{what}: without a reason"));
            }
            if let Some(item) = &item {
                return self.failure(l, side, item, done, &what);
            }
            self.has_failed(l, side);
            return self.post_shared(host);
        }
        if item.as_ref().is_some_and(|item| item.late) {
            return violation("late", format!("{what}: posted after the end"));
        }
        self.message(l, side, done, at, &what)?;
        match item {
            None => self.post_shared(host),
            Some(_) => self.top_up(l, side),
        }
    }

    /// The next message of the peer is what was received.
    fn message(&mut self, l: usize, side: usize, done: &Done, at: usize, what: &str) -> Check {
        let host = self.links[l].ends[side].host;
        let Some(conn) = self.links[l].ends[side].conn else {
            return violation("message", format!("{what}: without a connection"));
        };
        let Some(message) = self.links[l].conns[conn].messages[1 - side].pop_front() else {
            return violation("message", format!("{what}: nobody sent it"));
        };
        let (operation, len) = match message.immediate {
            Some((_, len)) => (Operation::Ib(IbOperation::RecvRdmaWriteImmed), len),
            None => (Operation::Dat(DtoOperation::Receive), message.bytes.len()),
        };
        if message.too_long || operation != done.operation || len != done.len {
            return violation(
                "message",
                format!("{what}: {:?} of {} bytes is not {message:?}", done.operation, done.len),
            );
        }
        if let Some((immediate, _)) = message.immediate {
            let evd = self.links[l].ends[side].evds.map(|evds| evds[0]);
            if let (Some(evd), Some(adapter)) = (evd, self.adapter(host)) {
                let extra = adapter.ia.evd_extension(evd);
                if extra.map(|extra| extra.immediate) != Ok(immediate) {
                    return violation("immediate", format!("{what}: {extra:?} of {message:?}"));
                }
            }
        }
        // What was bound before this was sent is open by now.
        for grant in self.links[l].ends[1 - side].grants.iter_mut().flatten() {
            grant.shown |= grant.cookie < message.cookie;
        }
        self.arrived(host, at, &message.bytes, what)
    }

    /// All receives of an end have come back: no message that was acknowledged is missing.
    pub fn delivered(&mut self, l: usize, side: usize) -> Check {
        let end = &self.links[l].ends[side];
        let (host, Some(conn)) = (end.host, end.conn) else { return Ok(()) };
        if self.ill(host) || self.shape.links[l].shared[side] || !end.receives.is_empty() {
            return Ok(());
        }
        let messages: &VecDeque<_> = &self.links[l].conns[conn].messages[1 - side];
        match messages.iter().find(|message| message.acknowledged) {
            Some(message) => violation(
                "lost-message",
                format!("h{host} link {l}: acknowledged and not received: {message:?}"),
            ),
            None => Ok(()),
        }
    }

    // ---- connections ----

    fn requested(&mut self, host: usize, cr: Cr) -> Check {
        let Some(adapter) = &self.hosts[host].adapter else { return Ok(()) };
        let Ok(param) = adapter.ia.cr_query(cr) else { return Ok(()) };
        let word = |n: usize| {
            let mut bytes = [0; 4];
            bytes.copy_from_slice(&param.private_data[4 * n..4 * n + 4]);
            u32::from_le_bytes(bytes) as usize
        };
        let (l, conn, from) = (word(0), word(1), word(2));
        let known = self
            .links
            .get_mut(l)
            .filter(|link| from < 2 && link.ends[1 - from].host == host && conn < link.conns.len());
        let Some(link) = known else {
            return violation("request", format!("h{host}: of link {l}, connection {conn}"));
        };
        let known = &mut link.conns[conn];
        if std::mem::replace(&mut known.requested, true)
            && known.excuse.is_none()
            && known.leaving == [None; 2]
        {
            return violation("request", format!("h{host} link {l}: connection {conn} twice"));
        }
        // Most are answered at once, some so late that the peer asks again.
        let dice = (self.shape.seed ^ (l * 131 + conn * 7919) as u64).wrapping_mul(0x9e37_79b9);
        let hesitates = self.shape.program.hesitates();
        let later = match (dice >> 13) % 32 {
            _ if !hesitates => 0,
            0..4 => 50_000,
            4..8 => 5 * MS,
            8 | 9 => 10 * S,
            _ => 0,
        };
        let dice = dice >> 19;
        let likes = if later < S { dice % 24 != 0 } else { dice % 4 == 0 };
        let accepts = likes || !hesitates || self.calm;
        let due = self.now() + later;
        let Some(adapter) = self.adapter(host) else { return Ok(()) };
        adapter.waiting.push(Waiting { due, cr, link: l, conn, accepts });
        self.say(host, format_args!("link {l}: request of connection {conn}"));
        self.answer(host)
    }

    /// Answers the requests that are due.
    pub(crate) fn answer(&mut self, host: usize) -> Check {
        let now = self.now();
        loop {
            let Some(adapter) = &mut self.hosts[host].adapter else { return Ok(()) };
            let due = |waiting: &Waiting| waiting.due <= now;
            let Some(n) = adapter.waiting.iter().position(due) else { break };
            let waiting = adapter.waiting.remove(n);
            self.answer_one(host, waiting)?;
        }
        let Some(adapter) = &self.hosts[host].adapter else { return Ok(()) };
        if let Some(due) = adapter.waiting.iter().map(|waiting| waiting.due).min() {
            self.hosts[host].due = self.hosts[host].due.min(due);
        }
        Ok(())
    }

    fn answer_one(&mut self, host: usize, waiting: Waiting) -> Check {
        let Waiting { cr, link: l, conn, accepts, .. } = waiting;
        let side = usize::from(self.links[l].ends[0].host != host);
        let ready = accepts && self.ready(l, side)?;
        let now = self.instant();
        let ep = self.links[l].ends[side].ep.filter(|_| ready);
        let Some(adapter) = self.adapter(host) else { return Ok(()) };
        let (what, done) = match ep {
            Some(ep) => ("cr_accept", adapter.ia.cr_accept(now, cr, Some(ep), b"")),
            None => ("cr_reject", adapter.ia.cr_reject(now, cr, b"")),
        };
        self.calls += 1;
        self.say(host, format_args!("link {l}: {what} of connection {conn}: {}", done.is_ok()));
        if let Err(error) = done {
            // The peer may have given up meanwhile.
            if self.links[l].conns[conn].excuse.is_none() {
                return violation("call", format!("h{host} link {l}: {what}: {error}"));
            }
            // It is still there.
            if let (Some(_), Some(adapter)) = (ep, self.adapter(host)) {
                let _ = adapter.ia.cr_reject(now, cr, b"");
            }
        } else if ready {
            let end = &mut self.links[l].ends[side];
            (end.phase, end.conn) = (Phase::Accepting, Some(conn));
            // What an earlier acceptance of the same request posted has ended with it.
            let conn = &mut self.links[l].conns[conn];
            conn.messages[side].clear();
            (conn.begun[side], conn.leaving[side]) = (None, None);
            (conn.failed[side], conn.doomed) = (false, false);
            return Ok(());
        }
        self.links[l].conns[conn].rejected = true;
        self.links[l].conns[conn].excuse.get_or_insert(REJECTED);
        // An end that was left behind lets the next one through.
        let end = &self.links[l].ends[side];
        if !ready && end.phase == Phase::Up && end.conn < Some(conn) {
            return self.disconnect(l, side, false);
        }
        Ok(())
    }

    fn connection_event(&mut self, l: usize, side: usize, event: Event, merged: bool) -> Check {
        let (host, phase) = (self.links[l].ends[side].host, self.links[l].ends[side].phase);
        let cause = self.cause(host, &event);
        self.say(host, format_args!("link {l}: {event:?}{cause}"));
        let what = format!("h{host} link {l}, {phase:?}: {event:?}{cause}");
        let Some(ep) = connection_of(&event) else { return violation("event", what) };
        let end = &mut self.links[l].ends[side];
        if let Some(n) = end.freed.iter().position(|freed| *freed == ep) {
            if event.is_terminal() {
                end.freed.remove(n);
            }
            return Ok(());
        }
        let end = &self.links[l].ends[side];
        if end.gone.contains(&ep) && !event.is_terminal() {
            return Ok(());
        }
        if end.ep != Some(ep) {
            return violation("connection-event", what);
        }
        let now = self.now();
        if !event.is_terminal() {
            if !matches!(phase, Phase::Connecting | Phase::Accepting | Phase::Ending) {
                return violation("connection-event", what);
            }
            if let Some(conn) = end.conn {
                self.links[l].conns[conn].begun[side] = Some(now);
            }
            if phase != Phase::Ending {
                self.links[l].ends[side].phase = Phase::Up;
            }
            self.fresh(l, side)?;
            self.top_up(l, side)?;
            return self.hurry(l, side);
        }
        let Some(conn) = end.conn.filter(|_| phase.is_open()) else {
            return violation("connection-event", what);
        };
        // The failure of a search is reported when the address is wanted next, however late.
        let vain = matches!(event, Event::Unreachable(_)) && self.sought_in_vain(l, side);
        if self.leaving(l, side) == [None; 2] && !self.excused(l, side) && !vain {
            return violation("broken", format!("{what}: without a reason"));
        }
        // An event of an earlier connection that comes late lets the peer begin, and what it posts
        // reaches this end before that is ready.
        let link = &self.links[l];
        let early =
            link.conns[conn].begun[1 - side].is_some() && !self.is_prompt(link.ends[1 - side].host);
        if phase == Phase::Connecting && self.fault(host, ep) && !self.ill(host) && !early {
            return violation("connection-event", format!("{what}: it had not begun"));
        }
        let known = &self.links[l].conns[conn];
        let ended = matches!(known.excuse, None | Some(DISCONNECT));
        let begun = known.begun[1 - side].is_some_and(|begun| now < begun + AT_ONCE);
        if phase == Phase::Accepting && begun && ended && !self.ill(host) {
            return violation("connection-event", format!("{what}: it had begun at the peer"));
        }
        if matches!(event, Event::PeerRejected(_)) && !self.links[l].conns[conn].rejected {
            return violation("rejected", format!("{what}: the peer did not reject"));
        }
        let late = matches!(event, Event::TimedOut(_) | Event::Unreachable(_));
        if late && self.links[l].conns[conn].excuse == Some(REJECTED) && self.wire_is_sound(l) {
            return violation("rejected", format!("{what}: the peer rejected"));
        }
        let end = &self.links[l].ends[side];
        let due = |item: &&Posted| !item.suppressed && !item.late;
        let requests = end.requests.iter().find(due);
        let left = requests.or(end.receives.iter().find(due));
        if let Some(item) = left.filter(|_| merged) {
            return violation("terminal-order", format!("{what}: before {item:?}"));
        }
        self.links[l].ends[side].phase = Phase::Down;
        if self.shape.resets {
            self.at(self.now(), Timer::Reset(l, side));
        }
        Ok(())
    }

    /// A connection has begun; an end that wanted it only for a moment ends it.
    fn hurry(&mut self, l: usize, side: usize) -> Check {
        let end = &self.links[l].ends[side];
        let hasty = end.conn.and_then(|conn| self.links[l].conns[conn].hasty);
        let Some((_, count)) = hasty.filter(|(by, _)| *by == side && !self.calm) else {
            return Ok(());
        };
        for n in 0..count {
            let write = Request::Write { at: 8 * n, len: 8, via: Via::Whole };
            let request = if n & 1 == 0 { write } else { Request::Send { len: 8 } };
            // A graceful disconnect rings for the last.
            self.post(l, side, &request, 0, n + 1 == count)?;
        }
        self.disconnect(l, side, count != 0)
    }

    /// Whether an Endpoint's adapter names a fault of a request or of the queue pair.
    fn fault(&self, host: usize, ep: Ep) -> bool {
        let adapter = self.hosts[host].adapter.as_ref();
        let cause = adapter.and_then(|adapter| adapter.ia.ep_cause(ep).ok().flatten());
        cause.is_some_and(|fault| fault.kind != FaultKind::Unreachable)
    }

    /// Why a connection ended, as far as its adapter knows.
    fn cause(&self, host: usize, event: &Event) -> String {
        let adapter = self.hosts[host].adapter.as_ref();
        let (Some(adapter), Some(ep), true) = (adapter, connection_of(event), event.is_terminal())
        else {
            return String::new();
        };
        match (adapter.ia.ep_reject_reason(ep), adapter.ia.ep_cause(ep)) {
            (Ok(Some(reason)), _) => format!(", {reason:?}"),
            (_, Ok(Some(fault))) => format!(", {fault}"),
            _ => String::new(),
        }
    }

    /// A connection begins: what earlier ones have left behind is what it is.
    fn fresh(&mut self, l: usize, side: usize) -> Check {
        // The peer's memory, which this end will reach: of the earlier connection nothing is under
        // way any more.
        self.check_target(l, 1 - side)?;
        let end = &self.links[l].ends[1 - side];
        if end.target.maybe.is_empty() {
            return Ok(());
        }
        let bytes = self.device_bytes(end.host, end.base[3], end.target.certain.len());
        self.links[l].ends[1 - side].target.adopt(&bytes);
        Ok(())
    }

    /// What the peer of an end reaches holds what it may hold.
    pub fn check_target(&mut self, l: usize, side: usize) -> Check {
        let end = &self.links[l].ends[side];
        if self.hosts[end.host].adapter.is_none() {
            return Ok(());
        }
        let bytes = self.device_bytes(end.host, end.base[3], end.target.certain.len());
        match end.target.wrong(&bytes) {
            None => Ok(()),
            Some(at) => violation(
                "memory",
                format!(
                    "h{} link {l}: byte {at} that its peer reaches is {:#04x}, not {:#04x}",
                    end.host, bytes[at], end.target.certain[at]
                ),
            ),
        }
    }

    /// All that was posted at a host whose device is lost has come back.
    pub fn flushed(&mut self, host: usize) -> Check {
        self.hosts[host].neglected = None;
        self.reap(host)?;
        for &(l, side) in &self.hosts[host].ends {
            let end = &self.links[l].ends[side];
            let due = |item: &&Posted| !item.suppressed;
            let left = end.requests.iter().find(due).or(end.receives.front());
            let idle = matches!(end.phase, Phase::None | Phase::Idle);
            if let Some(item) = left.filter(|_| !idle) {
                return violation("lost-device", format!("h{host} link {l}: left: {item:?}"));
            }
            if end.phase.is_open() {
                return violation("lost-device", format!("h{host} link {l}: {:?}", end.phase));
            }
        }
        Ok(())
    }

    // ---- the rest ----

    /// Whether an Endpoint takes, or took, receives from the Shared Receive Queue of its host.
    fn shares(&self, host: usize, ep: Ep) -> bool {
        self.hosts[host].ends.iter().any(|&(l, side)| {
            let end = &self.links[l].ends[side];
            let its = end.ep == Some(ep) || end.gone.contains(&ep) || end.freed.contains(&ep);
            its && self.shape.links[l].shared[side]
        })
    }

    fn asynchronous(&mut self, host: usize, event: Event) -> Check {
        self.say(host, format_args!("{event:?}"));
        let ill = self.hosts[host].sick || self.hosts[host].flaky;
        match event {
            Event::Async(AsyncEvent::IaCatastrophic) if ill => {
                if !self.hosts[host].lost {
                    self.lose(host);
                }
                Ok(())
            }
            // An Endpoint that takes from a Shared Receive Queue became DISCONNECTED.
            Event::Async(AsyncEvent::EpBroken(ep)) if self.shares(host, ep) => Ok(()),
            Event::Async(_) if ill => Ok(()),
            other => violation("asynchronous", format!("h{host}: {other:?}")),
        }
    }
}
