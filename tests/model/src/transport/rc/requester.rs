//! The requester's sending half: fetch, order, fences, window, timers.
//!
//! Entries run in the order of the queue. One that fails locally waits until all before it have
//! ended, so that completions stay in order; nothing behind it is sent.
//! The receiving half is in [`super::answers`].

use std::collections::VecDeque;

use super::super::host::{BadWqe, Syndrome};
use super::super::host::{
    Fence, Host, Nanos, Operation, Payload, QpAttr, QpKind, SendCompletion, SendWqe, Tally,
};
use super::super::packetize::Draft;
use super::super::timing::{Pace, ack_timeout};
use super::super::{Fatal, psn};
use super::flight::{Flight, Shape};

/// The peer must be able to tell new from old: no more than half of all PSNs in flight.
const MAX_SPAN: u32 = 1 << 23;

/// At least every so many packets one asks for an acknowledgement.
const ACK_INTERVAL: u32 = 32;

/// The requester of one connection.
#[derive(Debug, Default)]
pub(crate) struct Requester {
    /// PSN for the next entry that is fetched.
    pub(super) next_psn: u32,
    /// Oldest PSN without acknowledgement.
    pub(super) una: u32,
    /// PSN after the highest ever sent.
    pub(super) high: u32,
    /// Entries fetched and not completed, oldest first.
    pub(super) flights: VecDeque<Flight>,
    /// Retransmissions left before giving up.
    pub(super) retries: u8,
    /// RNR retransmissions left.
    pub(super) rnr_retries: u8,
    /// A go-back has begun and nothing has moved since: further hints are of the same loss.
    pub(super) recovering: bool,
    /// When to give up waiting for an answer.
    pub(super) ack_deadline: Option<Nanos>,
    /// Nothing is sent before this: the peer was not ready to receive.
    pub(super) rnr_until: Option<Nanos>,
    /// The port's share.
    pace: Pace,
}

impl Requester {
    /// Enters RTS.
    pub(crate) fn start(&mut self, attr: &QpAttr) {
        let psn = attr.sq_psn & psn::MASK;
        *self = Self {
            next_psn: psn,
            una: psn,
            high: psn,
            retries: attr.retry_count,
            rnr_retries: attr.rnr_retry,
            ..Self::default()
        };
    }

    pub(crate) fn next_psn(&self) -> u32 {
        self.next_psn
    }

    /// When [`on_timer`](Self::on_timer) has something to do.
    pub(crate) fn deadline(&self) -> Option<Nanos> {
        let timer = self.rnr_until.or(self.ack_deadline);
        let unsent = self.flights.iter().any(|f| f.failed.is_none() && !f.is_sent());
        let pace = self.pace.resume().filter(|_| unsent && self.rnr_until.is_none());
        timer.into_iter().chain(pace).min()
    }

    /// Gives up all entries, oldest first.
    pub(crate) fn flush(&mut self) -> Vec<SendWqe> {
        self.ack_deadline = None;
        self.rnr_until = None;
        self.flights.drain(..).map(|f| f.wqe).collect()
    }

    /// Sends all that may be sent now, and completes what has ended.
    pub(crate) fn pump(
        &mut self,
        attr: &QpAttr,
        next_index: &mut u16,
        host: &mut dyn Host,
    ) -> Result<(), Fatal> {
        self.pace.look();
        while self.rnr_until.is_none() {
            let at = match self.flights.iter().position(|f| f.failed.is_some() || !f.is_sent()) {
                Some(at) => at,
                None if self.fetch(attr, next_index, host) => continue,
                None => break,
            };
            if !self.step(at, attr, host) {
                break;
            }
        }
        self.run_late_work(attr, host);
        if self.ack_deadline.is_none() {
            self.arm(attr, host);
        }
        self.retire(attr, host)
    }

    /// Takes one more entry from the queue.
    fn fetch(&mut self, attr: &QpAttr, next_index: &mut u16, host: &mut dyn Host) -> bool {
        let index = *next_index;
        let (flight, bbs) = match host.fetch_send(attr.qpn, index) {
            None => return false,
            Some(Ok(wqe)) => {
                let bbs = wqe.bbs;
                (Flight::new(wqe, attr, self.next_psn), bbs)
            }
            Some(Err(BadWqe { syndrome, bbs, opcode })) => {
                (Flight::broken(index, opcode, syndrome, self.next_psn), bbs)
            }
        };
        *next_index = index.wrapping_add(bbs.max(1));
        self.next_psn = flight.end_psn();
        self.flights.push_back(flight);
        true
    }

    /// One step of the entry at `at`, the first that has anything left to send. False: it must
    /// wait.
    fn step(&mut self, at: usize, attr: &QpAttr, host: &mut dyn Host) -> bool {
        let Some(flight) = self.flights.get(at) else {
            return false;
        };
        if flight.failed.is_some() {
            return false;
        }
        let (fence, shape) = (flight.wqe.fence, flight.shape);
        let invalidates = matches!(flight.wqe.operation, Operation::LocalInvalidate(_));
        if flight.sent == 0 && fence != Fence::None {
            self.run_late_work(attr, host);
        }
        let open = |f: &Flight| match fence {
            // Key edits have just been run.
            Fence::None | Fence::InitiatorSmall => false,
            Fence::Fence | Fence::SmallAndFence => f.is_open_pull(),
            Fence::Strong => !f.done,
        };
        // A key that earlier work may still need is not taken away from it.
        let waits = |f: &Flight| open(f) || (invalidates && !f.done);
        if self.flights.iter().take(at).any(waits) {
            return false;
        }
        match shape {
            Shape::Local => self.run_local(at, attr, host),
            Shape::Push => self.send_push(at, attr, host),
            Shape::Pull => self.send_pull(at, attr, host),
        }
    }

    fn run_local(&mut self, at: usize, attr: &QpAttr, host: &mut dyn Host) -> bool {
        let Some(flight) = self.flights.get_mut(at) else {
            return false;
        };
        flight.sent = 1;
        if !(attr.lazy_umr && matches!(flight.wqe.operation, Operation::Umr(_))) {
            execute(flight, attr, host);
        }
        flight.failed.is_none()
    }

    /// Runs the key edits that were put off, in order.
    fn run_late_work(&mut self, attr: &QpAttr, host: &mut dyn Host) {
        for flight in &mut self.flights {
            if flight.failed.is_some() {
                break;
            }
            if flight.shape == Shape::Local && flight.sent > 0 && !flight.done {
                execute(flight, attr, host);
            }
        }
    }

    /// Whether `count` PSNs from `psn` on may be in flight.
    fn in_window(&self, at: usize, psn: u32, count: u32, attr: &QpAttr) -> bool {
        let ahead = psn::distance(self.una, psn);
        // Response packets of READs cost the peer's time, not our window.
        let responses: u32 = self
            .flights
            .iter()
            .take(at)
            .filter(|f| f.is_open_pull())
            .map(|f| (f.packets - f.received).saturating_sub(1))
            .fold(0, u32::saturating_add);
        ahead.saturating_sub(responses) < attr.window.max(1)
            && (ahead == 0 || ahead.saturating_add(count) < MAX_SPAN)
    }

    fn send_push(&mut self, at: usize, attr: &QpAttr, host: &mut dyn Host) -> bool {
        let Some((psn, _)) = self.flights.get(at).map(Flight::next_span) else {
            return false;
        };
        if !self.in_window(at, psn, 1, attr) {
            return false;
        }
        if !self.pace.admit(host.now(), attr.mtu) {
            return false;
        }
        let full = !self.in_window(at, psn::add(psn, 1), 1, attr);
        let Some(flight) = self.flights.get_mut(at) else {
            return false;
        };
        let Some((opcode, ext, part)) = flight.next_push(attr.mtu) else {
            return false;
        };
        let mut payload = vec![0; part.len as usize];
        let fetched = match part.data {
            Payload::Segments(_) if part.len == 0 => Ok(()),
            Payload::Segments(list) => host.gather(attr.qpn, list, part.offset, &mut payload),
            Payload::Inline(bytes) => {
                let start = part.offset as usize;
                match bytes.get(start..start.saturating_add(payload.len())) {
                    Some(piece) => {
                        payload.copy_from_slice(piece);
                        Ok(())
                    }
                    None => Err(Syndrome::LocalLength),
                }
            }
        };
        if let Err(syndrome) = fetched {
            flight.failed = Some(syndrome);
            return false;
        }
        let last = flight.sent + 1 == flight.packets;
        let immediate = ext.imm.is_some();
        let is_send = matches!(flight.wqe.operation, Operation::Send { .. });
        let draft = Draft {
            solicited: flight.wqe.solicited && last && (is_send || immediate),
            ack_req: attr.kind != QpKind::Uc
                && (last || full || psn % ACK_INTERVAL == ACK_INTERVAL - 1),
            ext,
            payload,
            ..Draft::new(opcode, psn)
        };
        flight.sent += 1;
        // Nobody answers on an unreliable connection: what has left is done.
        flight.done = attr.kind == QpKind::Uc && last;
        self.send(draft, attr, host);
        self.note_sent(psn::add(psn, 1));
        if attr.kind == QpKind::Uc {
            self.una = self.high;
        }
        true
    }

    fn send_pull(&mut self, at: usize, attr: &QpAttr, host: &mut dyn Host) -> bool {
        let running = self.flights.iter().take(at).filter(|f| f.is_open_pull()).count();
        if running >= usize::from(attr.max_rd_atomic) {
            return false;
        }
        let Some((psn, count)) = self.flights.get(at).map(Flight::next_span) else {
            return false;
        };
        if !self.in_window(at, psn, count, attr) || !self.pace.admit(host.now(), attr.mtu) {
            return false;
        }
        let Some(flight) = self.flights.get_mut(at) else {
            return false;
        };
        let Some((opcode, ext)) = flight.next_pull(attr.mtu) else {
            return false;
        };
        flight.sent = 1;
        let draft = Draft { ack_req: true, ext, ..Draft::new(opcode, psn) };
        self.send(draft, attr, host);
        self.note_sent(psn::add(psn, count));
        true
    }

    fn send(&self, draft: Draft, attr: &QpAttr, host: &mut dyn Host) {
        if psn::distance(self.una, draft.psn) < psn::distance(self.una, self.high) {
            host.retransmitted();
        }
        draft.send(attr, host);
    }

    fn note_sent(&mut self, end: u32) {
        if psn::distance(self.una, end) > psn::distance(self.una, self.high) {
            self.high = end;
        }
    }

    /// Starts the ACK timer anew if anything is unanswered, else stops it.
    pub(super) fn arm(&mut self, attr: &QpAttr, host: &dyn Host) {
        self.ack_deadline = if self.una == self.high || self.rnr_until.is_some() {
            None
        } else {
            ack_timeout(attr.ack_timeout).map(|t| host.now().saturating_add(t))
        };
    }

    /// Everything up to `to` is known to have arrived: the counters begin anew.
    pub(super) fn progress(&mut self, to: u32, attr: &QpAttr, host: &dyn Host) {
        if self.una != to {
            self.una = to;
            self.retries = attr.retry_count;
            self.rnr_retries = attr.rnr_retry;
            self.recovering = false;
        }
        self.arm(attr, host);
    }

    /// Goes back to `to`, if the retry counter allows it.
    pub(super) fn go_back(&mut self, to: u32, attr: &QpAttr, host: &dyn Host) {
        if self.retries == 0 {
            self.fail_at(to, Syndrome::TransportRetryExceeded);
            return;
        }
        self.retries -= 1;
        self.recovering = true;
        self.rewind(to);
        self.arm(attr, host);
    }

    pub(super) fn rewind(&mut self, to: u32) {
        let base = self.una;
        for flight in &mut self.flights {
            let reaches = psn::distance(base, flight.end_psn()) > psn::distance(base, to);
            if reaches {
                flight.rewind(to);
            }
        }
    }

    /// Lets the entry that holds `psn` (or the oldest open one) end with `syndrome`.
    pub(super) fn fail_at(&mut self, psn: u32, syndrome: Syndrome) {
        let by_psn = self.flights.iter().position(|f| !f.done && f.holds(psn));
        let at = by_psn.or_else(|| self.flights.iter().position(|f| !f.done && f.packets > 0));
        if let Some(flight) = at.and_then(|at| self.flights.get_mut(at)) {
            flight.failed = Some(syndrome);
        }
    }

    /// A deadline has come.
    pub(crate) fn on_timer(&mut self, attr: &QpAttr, host: &mut dyn Host) -> Result<(), Fatal> {
        let now = host.now();
        if let Some(until) = self.rnr_until {
            if now >= until {
                self.rnr_until = None;
                self.arm(attr, host);
            }
        } else if self.ack_deadline.is_some_and(|t| now >= t) {
            self.ack_deadline = None;
            host.count(attr.qpn, Tally::LocalAckTimeoutErr);
            self.go_back(self.una, attr, host);
        }
        self.retire(attr, host)
    }

    /// Completes what has ended, in order.
    pub(super) fn retire(&mut self, attr: &QpAttr, host: &mut dyn Host) -> Result<(), Fatal> {
        while let Some(flight) = self.flights.front() {
            let (index, opcode, byte_len) = (flight.wqe.index, flight.wqe.opcode, flight.len);
            let in_cqe = flight.in_cqe;
            let completion = |result| SendCompletion { index, opcode, byte_len, in_cqe, result };
            if let Some(syndrome) = flight.failed {
                host.complete_send(attr.qpn, completion(Err(syndrome)));
                self.flights.pop_front();
                return Err(Fatal);
            }
            if !flight.done {
                break;
            }
            if flight.wqe.signaled {
                host.complete_send(attr.qpn, completion(Ok(())));
            }
            self.flights.pop_front();
        }
        Ok(())
    }
}

/// Runs local work.
fn execute(flight: &mut Flight, attr: &QpAttr, host: &mut dyn Host) {
    let result = match &flight.wqe.operation {
        Operation::Umr(umr) => host.umr(attr.qpn, umr),
        Operation::LocalInvalidate(key) => host.local_invalidate(attr.qpn, *key),
        Operation::Nop
        | Operation::Send { .. }
        | Operation::Write { .. }
        | Operation::Read { .. }
        | Operation::CompareSwap { .. }
        | Operation::FetchAdd { .. } => Ok(()),
    };
    match result {
        Ok(()) => flight.done = true,
        Err(syndrome) => flight.failed = Some(syndrome),
    }
}
