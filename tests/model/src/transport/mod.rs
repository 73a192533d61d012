//! The transport: RC, XRC, UC, UD and GSI engines between work requests and RoCE frames.
//!
//! One [`Engine`] stands in each QP object. It is sans-IO: work, packets and time come in by
//! calls, everything else goes out by [`Host`]. It knows nothing of WQE and CQE layouts,
//! memory keys or commands. Nothing a peer sends or a driver posts makes it panic or loop
//! without end. Not here: RD, automatic path migration, end-to-end credits,
//! congestion control. Reference: IBTA volume 1, chapter 9; annexes A14 (XRC), A17 (RoCE v2).

mod datagram;
pub mod host;
pub mod packet;
mod packetize;
mod psn;
mod rc;
mod timing;
mod unreliable;

use datagram::DatagramEngine;
use host::{Host, Nanos, Path, QpAttr, QpKind, QpState, SendCompletion, Syndrome};
use rc::requester::Requester;
use rc::responder::Responder;
use unreliable::UnreliableResponder;

use crate::wire::opcode::Service;
use packet::{Layers, Packet};

/// Entries a flush takes from a queue at most: no queue of 16-bit counters has more.
const FLUSH_LIMIT: u32 = 1 << 16;

/// A fatal error of the QP, whose own completion has been made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fatal;

/// The transport engine of one QP.
#[derive(Debug, Default)]
pub struct Engine {
    attr: QpAttr,
    /// Next WQEBB of the send queue nobody has fetched yet.
    next_index: u16,
    requester: Requester,
    responder: Responder,
    unreliable: UnreliableResponder,
    datagram: DatagramEngine,
    /// In error, and the queues are not flushed yet.
    flush_due: bool,
}

impl Engine {
    /// An engine in RESET.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The state it is in, which after an error differs from what was configured.
    #[must_use]
    pub fn state(&self) -> QpState {
        self.attr.state
    }

    /// The next WQEBB the engine will fetch: the hardware send counter of the QP context.
    #[must_use]
    pub fn send_index(&self) -> u16 {
        self.next_index
    }

    /// The next PSN the requester will use.
    #[must_use]
    pub fn send_psn(&self) -> u32 {
        match self.attr.kind {
            QpKind::Rc | QpKind::Uc | QpKind::XrcInitiator | QpKind::XrcTarget | QpKind::RegUmr => {
                self.requester.next_psn()
            }
            QpKind::Ud | QpKind::Gsi | QpKind::Smi => self.datagram.next_psn(),
        }
    }

    /// The PSN the responder expects.
    #[must_use]
    pub fn receive_psn(&self) -> u32 {
        match self.attr.kind {
            QpKind::Uc => self.unreliable.expected_psn(),
            QpKind::Rc
            | QpKind::XrcInitiator
            | QpKind::XrcTarget
            | QpKind::RegUmr
            | QpKind::Ud
            | QpKind::Gsi
            | QpKind::Smi => self.responder.expected_psn(),
        }
    }

    /// Takes over the attributes after a transition. Entering RTR starts the responder at
    /// `rq_psn`, entering RTS the requester at `sq_psn`; RESET is [`reset`](Self::reset); ERR
    /// flushes at the next call that brings a host ([`to_error`](Self::to_error) does it at once).
    pub fn configure(&mut self, attr: &QpAttr) {
        let old = self.attr.state;
        if attr.state == QpState::Reset {
            self.reset();
        }
        self.attr = *attr;
        self.attr.mtu = attr.mtu.clamp(256, 4096);
        let receiving = |s| matches!(s, QpState::Rtr | QpState::Rts | QpState::Sqer);
        let sending = |s| matches!(s, QpState::Rts | QpState::Sqer);
        if receiving(attr.state) && !receiving(old) {
            self.responder.start(attr.rq_psn);
            self.unreliable.start(attr.rq_psn);
        }
        if sending(attr.state) && !sending(old) {
            self.requester.start(attr);
            self.datagram.start(attr.sq_psn);
        }
        if attr.state == QpState::Err && old != QpState::Err {
            self.flush_due = true;
        }
    }

    /// Forgets everything: queues empty without completions, counters 0.
    pub fn reset(&mut self) {
        *self = Self::default();
    }

    /// The send doorbell rang, or the send queue may run again.
    pub fn on_doorbell(&mut self, host: &mut dyn Host) {
        self.flush_if_due(host);
        let result = match (self.attr.state, self.attr.kind) {
            (QpState::Rts, QpKind::Rc | QpKind::XrcInitiator | QpKind::RegUmr) => {
                self.requester.pump(&self.attr, &mut self.next_index, host)
            }
            (QpState::Rts, QpKind::Uc) => {
                let sent = self.requester.pump(&self.attr, &mut self.next_index, host);
                if sent.is_err() {
                    self.send_queue_error(host);
                }
                Ok(())
            }
            // It has no send queue.
            (QpState::Rts, QpKind::XrcTarget) => Ok(()),
            (QpState::Rts, QpKind::Ud | QpKind::Gsi | QpKind::Smi) => {
                if self.datagram.send(&self.attr, &mut self.next_index, host).is_err() {
                    self.send_queue_error(host);
                }
                Ok(())
            }
            (QpState::Err | QpState::Sqer, _) => {
                self.flush_send(host);
                Ok(())
            }
            (QpState::Reset | QpState::Init | QpState::Rtr, _) => Ok(()),
        };
        self.fail_if_fatal(result, host);
    }

    /// Receives were posted: the device calls this when it has polled the receive doorbell
    /// record. It matters in ERR only, where they are flushed.
    pub fn on_receive_posted(&mut self, host: &mut dyn Host) {
        self.flush_if_due(host);
        if self.attr.state == QpState::Err {
            self.flush_receive(host);
        }
    }

    /// A packet for this QP arrived.
    pub fn on_packet(&mut self, host: &mut dyn Host, packet: &Packet) {
        self.flush_if_due(host);
        if !self.is_of_partition(host, packet) {
            return host.p_key_violation();
        }
        let (state, kind) = (self.attr.state, self.attr.kind);
        let response = packet.bth.opcode.is_response();
        let receiving = matches!(state, QpState::Rtr | QpState::Rts | QpState::Sqer);
        let connected = |service| packet.bth.service == service && self.is_from_peer(host, packet);
        let result = match kind {
            QpKind::Rc | QpKind::XrcInitiator | QpKind::XrcTarget
                if !connected(if kind == QpKind::Rc { Service::Rc } else { Service::Xrc }) =>
            {
                Ok(())
            }
            QpKind::Rc | QpKind::XrcInitiator if response => {
                if state != QpState::Rts {
                    return;
                }
                self.requester
                    .on_response(&self.attr, host, packet)
                    .and_then(|()| self.requester.pump(&self.attr, &mut self.next_index, host))
            }
            QpKind::Rc | QpKind::XrcTarget if receiving && !response => {
                self.responder.on_request(&self.attr, host, packet)
            }
            QpKind::Uc if receiving && connected(Service::Uc) => {
                self.unreliable.on_request(&self.attr, host, packet)
            }
            QpKind::Ud | QpKind::Gsi | QpKind::Smi
                if receiving && packet.bth.service == Service::Ud =>
            {
                self.datagram.receive(&self.attr, host, packet)
            }
            QpKind::Rc
            | QpKind::Uc
            | QpKind::XrcInitiator
            | QpKind::XrcTarget
            | QpKind::Ud
            | QpKind::Gsi
            | QpKind::Smi
            | QpKind::RegUmr => Ok(()),
        };
        self.fail_if_fatal(result, host);
    }

    /// The time of [`next_deadline`](Self::next_deadline) has come. Calling early does no harm.
    pub fn on_timer(&mut self, host: &mut dyn Host) {
        self.flush_if_due(host);
        if matches!(self.attr.kind, QpKind::Ud | QpKind::Gsi | QpKind::Smi) {
            return;
        }
        if matches!(self.attr.state, QpState::Rtr | QpState::Rts) {
            let result = self.responder.drain(&self.attr, host);
            self.fail_if_fatal(result, host);
        }
        if self.attr.state == QpState::Rts {
            let result = self
                .requester
                .on_timer(&self.attr, host)
                .and_then(|()| self.requester.pump(&self.attr, &mut self.next_index, host));
            if result.is_err() && self.attr.kind == QpKind::Uc {
                self.send_queue_error(host);
                return;
            }
            self.fail_if_fatal(result, host);
        }
    }

    /// When [`on_timer`](Self::on_timer) wants to be called; a time in the past means at once.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Nanos> {
        if self.flush_due {
            return Some(0);
        }
        self.responder.deadline().into_iter().chain(self.requester.deadline()).min()
    }

    /// Moves the QP to ERR, as a 2ERR command does: both queues are flushed in order, a message
    /// half received first. [`Host::qp_error`] is not called: the caller knows. An engine in RESET
    /// knows not even its QP's number: [`configure`](Self::configure) it to ERR first.
    pub fn to_error(&mut self, host: &mut dyn Host) {
        if self.attr.state != QpState::Reset {
            self.attr.state = QpState::Err;
            self.flush_due = true;
            self.flush_if_due(host);
        }
    }

    /// Packets of a connection must come from the address of the peer, to the address of this side
    /// (IBTA volume 1, 9.6.1.5; annex A17.4).
    fn is_from_peer(&self, host: &dyn Host, packet: &Packet) -> bool {
        match (&self.attr.path, &packet.layers) {
            (Path::Roce(path), Layers::Roce(net)) => {
                net.src == path.dst
                    && host
                        .roce_address(path.source_index)
                        .is_some_and(|own| own.ip == net.dst && own.v1 == net.v1)
            }
            (Path::Ib(path), Layers::Ib { lrh, grh }) => {
                let own = host.ib_source(path);
                let has_gids = match (path.global, grh, own) {
                    (None, None, _) => true,
                    (Some(global), Some(grh), Some(own)) => {
                        (grh.sgid, grh.dgid) == (global.dgid, own.sgid)
                    }
                    _ => false,
                };
                lrh.slid == path.dlid && own.is_some_and(|own| own.slid == lrh.dlid) && has_gids
            }
            (Path::Roce(_), Layers::Ib { .. }) | (Path::Ib(_), Layers::Roce(_)) => false,
        }
    }

    /// The QP's P_Key must name the packet's partition, and one of the two a full member. QP1 takes
    /// those of the whole table, which the port has looked at; a RoCE port has one key only.
    fn is_of_partition(&self, host: &dyn Host, packet: &Packet) -> bool {
        let is_special = matches!(self.attr.kind, QpKind::Gsi | QpKind::Smi);
        if is_special || matches!(packet.layers, Layers::Roce(_)) {
            return true;
        }
        let (own, key) = (host.p_key(self.attr.pkey_index), packet.bth.pkey);
        (own ^ key) & 0x7fff == 0 && (own | key) & 0x8000 != 0
    }

    /// Takes the QP to ERR and flushes it after a fatal error.
    fn fail_if_fatal(&mut self, result: Result<(), Fatal>, host: &mut dyn Host) {
        if result == Err(Fatal) && self.attr.state != QpState::Err {
            self.attr.state = QpState::Err;
            host.qp_error(self.attr.qpn, QpState::Err);
            self.flush_due = true;
            self.flush_if_due(host);
        }
    }

    /// A send error of an unconnected QP stops the send queue, not the receive queue.
    fn send_queue_error(&mut self, host: &mut dyn Host) {
        self.attr.state = QpState::Sqer;
        host.qp_error(self.attr.qpn, QpState::Sqer);
        self.flush_send(host);
    }

    fn flush_if_due(&mut self, host: &mut dyn Host) {
        if std::mem::take(&mut self.flush_due) {
            self.flush_send(host);
            self.flush_receive(host);
            if self.attr.srq {
                host.event(self.attr.qpn, host::QpEvent::LastWqeReached);
            }
        }
    }

    /// Completes all send queue entries with "flushed", signalled or not.
    fn flush_send(&mut self, host: &mut dyn Host) {
        let qpn = self.attr.qpn;
        for wqe in self.requester.flush() {
            complete_flushed(host, qpn, wqe.index, wqe.opcode);
        }
        for _ in 0..FLUSH_LIMIT {
            let index = self.next_index;
            let (bbs, opcode) = match host.fetch_send(qpn, index) {
                None => break,
                Some(Ok(wqe)) => (wqe.bbs, wqe.opcode),
                Some(Err(bad)) => (bad.bbs, bad.opcode),
            };
            self.next_index = index.wrapping_add(bbs.max(1));
            complete_flushed(host, qpn, index, opcode);
        }
    }

    /// Completes all receives of the QP's own queue with "flushed".
    fn flush_receive(&mut self, host: &mut dyn Host) {
        let qpn = self.attr.qpn;
        let done = |host: &mut dyn Host, index, pool| {
            let result = Err(Syndrome::Flushed);
            let completion = host::RecvCompletion { index, pool, result };
            host.complete_recv(qpn, completion);
        };
        for held in [self.responder.flush(), self.unreliable.flush(), self.datagram.flush()]
            .into_iter()
            .flatten()
        {
            done(host, held.index, held.pool);
        }
        if self.attr.srq {
            return;
        }
        for _ in 0..FLUSH_LIMIT {
            match host.take_recv(qpn, None) {
                None => break,
                Some(Ok(wqe)) => done(host, wqe.index, wqe.pool),
                Some(Err((index, _))) => done(host, index, None),
            }
        }
    }
}

fn complete_flushed(host: &mut dyn Host, qpn: u32, index: u16, opcode: u8) {
    let result = Err(Syndrome::Flushed);
    host.complete_send(qpn, SendCompletion { index, opcode, byte_len: 0, in_cqe: None, result });
}

#[cfg(test)]
mod tests;
