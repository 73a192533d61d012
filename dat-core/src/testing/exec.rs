//! Carrying out posted requests, in order, until something is not ready.

use crate::fault;
use crate::provider::Notice;
use crate::provider::Qp;
use crate::testing::fabric::Fabric;
use crate::testing::fabric::Memory;
use crate::testing::fabric::QpSlot;
use crate::testing::fabric::Receive;
use crate::testing::fabric::Request;
use crate::testing::fabric::State;
use crate::testing::fabric::Work;
use crate::testing::keys::Pieces;
use crate::testing::keys::Wish;
use crate::testing::keys::length;
use crate::types::completion::Arrived;
use crate::types::completion::Completion;
use crate::types::completion::Direction;
use crate::types::completion::Extra;
use crate::types::completion::Status;
use crate::types::fault::Fault;
use crate::types::flags::Access;
use crate::types::triplet::RmrTriplet;

/// Places of the transport's counters.
const RQ_RAE: usize = 0;
const RQ_RIRE: usize = 2;
pub(super) const RQ_UDSDPRD: usize = 3;
const SQ_RAE: usize = 4;
const SQ_RIRE: usize = 6;
const SQ_RREE: usize = 7;
const SQ_TREE: usize = 8;

/// What became of the request at the head of a queue.
pub(super) enum Outcome {
    /// Done at this side; the requester's status and length.
    Done(Status, u32),
    /// The peer is not ready: it stays at the head.
    Wait,
}

impl Fabric {
    /// Runs every queue of both ports dry, as far as it goes.
    pub(super) fn run(&self) {
        if self.held.get() {
            return;
        }
        let mut inner = self.inner.borrow_mut();
        let mut progress = true;
        while progress {
            progress = false;
            for port in 0..2 {
                for qp in 0..crate::testing::QPS {
                    while inner.step(port, qp) {
                        progress = true;
                    }
                }
            }
        }
    }
}

impl Memory {
    pub(super) fn qp(&mut self, port: usize, qp: usize) -> Option<&mut QpSlot> {
        self.ports.get_mut(port)?.qps.get_mut(qp)?.as_mut()
    }

    /// Carries out one request; true if it did.
    fn step(&mut self, port: usize, number: usize) -> bool {
        let Some(qp) = self.qp(port, number) else {
            return false;
        };
        if qp.state != State::Rts || qp.sends.len() <= qp.deferred {
            return false;
        }
        let (pd, peer) = (qp.pd, qp.peer);
        let Some(request) = qp.sends.front().cloned() else {
            return false;
        };
        self.solicited = request.solicited;
        let outcome = match (&request.work, peer) {
            (Work::Bind(_) | Work::Register(_), _) => {
                let bound = self.ports.get_mut(port).is_some_and(|port| match &request.work {
                    Work::Bind(bind) => port.bind(pd, number, bind),
                    Work::Register(made) => port.register(pd, made),
                    Work::Send(_)
                    | Work::SendInvalidate(..)
                    | Work::Write(..)
                    | Work::Read(..)
                    | Work::Atomic(..)
                    | Work::WriteImmed(..)
                    | Work::Datagram(..) => false,
                });
                Outcome::Done(if bound { Status::Success } else { Status::WindowBind }, 0)
            }
            (Work::Datagram(list, to, immediate), _) => {
                self.datagram(port, number, list, to, *immediate)
            }
            (_, None) => Outcome::Done(Status::TransportRetry, 0),
            (work, Some(peer)) => self.transfer(port, number, work, peer),
        };
        match outcome {
            Outcome::Wait => false,
            Outcome::Done(status, len) => {
                if let Some(qp) = self.qp(port, number) {
                    qp.sends.pop_front();
                }
                self.finish(port, number, &request, status, len);
                true
            }
        }
    }

    fn finish(&mut self, port: usize, number: usize, request: &Request, status: Status, len: u32) {
        if status == Status::Success && !request.signaled {
            return;
        }
        self.complete(port, number, Direction::Send, request.token, status, len);
        if status != Status::Success {
            self.tally(port, number, status);
            self.fail(port, number, fault!(BadState, "loop", "a request failed"));
        }
    }

    /// Counts a failure at both sides, where the transport counts it.
    fn tally(&mut self, port: usize, number: usize, status: Status) {
        let far = self.qp(port, number).and_then(|qp| qp.peer);
        let (requester, responder) = if status == Status::RemoteAccess {
            (SQ_RAE, Some(RQ_RAE))
        } else if status == Status::RemoteInvalidRequest {
            (SQ_RIRE, Some(RQ_RIRE))
        } else if status == Status::RnrRetry {
            (SQ_RREE, None)
        } else if status == Status::TransportRetry {
            (SQ_TREE, None)
        } else {
            return;
        };
        self.count(port, requester);
        if let (Some((far, _)), Some(responder)) = (far, responder) {
            self.count(far, responder);
        }
    }

    /// One more at a port.
    pub(super) fn count(&mut self, port: usize, counter: usize) {
        let counters = self.ports.get_mut(port).map(|port| &mut port.diag);
        if let Some(count) = counters.and_then(|diag| diag.get_mut(counter)) {
            *count += 1;
        }
    }

    fn transfer(
        &mut self,
        port: usize,
        number: usize,
        work: &Work,
        (far, qpn): (usize, u32),
    ) -> Outcome {
        let Some((pd, patient)) = self.qp(port, number).map(|qp| (qp.pd, qp.patient)) else {
            return Outcome::Wait;
        };
        let remote_qp = (qpn & 0xff) as usize;
        let Some(peer) = self.qp(far, remote_qp) else {
            return Outcome::Done(Status::TransportRetry, 0);
        };
        // The number may belong to another connection by now; a wire would tell by the PSN.
        let ours =
            peer.peer.is_some_and(|(back, qpn)| back == port && (qpn & 0xff) as usize == number);
        if !matches!(peer.state, State::Rtr | State::Rts) || !ours {
            return Outcome::Done(Status::TransportRetry, 0);
        }
        let (far_pd, far_access, first) = (peer.pd, peer.access, !peer.has_received);
        peer.has_received = true;
        if first && peer.state == State::Rtr {
            self.notify(far, Notice::Established(Qp { number: qpn }));
        }
        let takes = matches!(work, Work::Send(_) | Work::SendInvalidate(..) | Work::WriteImmed(..));
        let waits = takes && !self.has_receive(far, remote_qp);
        if waits && patient {
            return Outcome::Wait;
        }
        if waits {
            return Outcome::Done(Status::RnrRetry, 0);
        }
        let local = |access| Wish { pd, qp: number, access };
        let remote_of = |access| Wish { pd: far_pd, qp: remote_qp, access };
        match work {
            Work::Send(list) => {
                let Some(from) = self.open_segments(port, local(Access::LOCAL_READ), list) else {
                    return Outcome::Done(Status::LocalProtection, 0);
                };
                self.deliver(far, remote_qp, &from, Extra::default())
            }
            Work::SendInvalidate(list, rkey) => {
                let Some(from) = self.open_segments(port, local(Access::LOCAL_READ), list) else {
                    return Outcome::Done(Status::LocalProtection, 0);
                };
                let closed = self
                    .ports
                    .get_mut(far)
                    .is_some_and(|port| port.close_window(far_pd, remote_qp, *rkey));
                if !closed {
                    let fault = fault!(BadState, "loop", "a peer closed a window that it may not");
                    self.fail(far, remote_qp, fault);
                    return Outcome::Done(Status::RemoteAccess, 0);
                }
                let extra =
                    Extra { arrived: Arrived::Invalidation, immediate: *rkey, ..Extra::default() };
                self.deliver(far, remote_qp, &from, extra)
            }
            Work::Write(list, remote) => {
                let Some(from) = self.open_segments(port, local(Access::LOCAL_READ), list) else {
                    return Outcome::Done(Status::LocalProtection, 0);
                };
                let len = length(list);
                let right = remote_of(far_access & Access::REMOTE_WRITE);
                let Some(to) = self.open(far, right, *remote, len) else {
                    self.fail(
                        far,
                        remote_qp,
                        fault!(BadState, "loop", "a peer wrote outside what it was given"),
                    );
                    return Outcome::Done(Status::RemoteAccess, 0);
                };
                self.copy(&from, &to, len);
                Outcome::Done(Status::Success, 0)
            }
            Work::Read(list, remote) => {
                let len = length(list);
                let right = remote_of(far_access & Access::REMOTE_READ);
                let Some(from) = self.open(far, right, *remote, len) else {
                    self.fail(
                        far,
                        remote_qp,
                        fault!(BadState, "loop", "a peer read outside what it was given"),
                    );
                    return Outcome::Done(Status::RemoteAccess, 0);
                };
                let Some(to) = self.open_segments(port, local(Access::LOCAL_WRITE), list) else {
                    return Outcome::Done(Status::LocalProtection, 0);
                };
                self.copy(&from, &to, len);
                Outcome::Done(Status::Success, len)
            }
            Work::Atomic(into, remote, atomic) => {
                let right = remote_of(far_access & Access::REMOTE_ATOMIC);
                let Some(at) = self.open(far, right, *remote, 8) else {
                    self.fail(
                        far,
                        remote_qp,
                        fault!(BadState, "loop", "a peer did an atomic outside what it was given"),
                    );
                    return Outcome::Done(Status::RemoteAccess, 0);
                };
                let Some(into) = self.open_segments(port, local(Access::LOCAL_WRITE), into) else {
                    return Outcome::Done(Status::LocalProtection, 0);
                };
                self.atomic(&into, &at, *atomic)
            }
            Work::WriteImmed(list, remote, immediate) => {
                let plain = Work::Write(list.clone(), *remote);
                match self.transfer(port, number, &plain, (far, qpn)) {
                    Outcome::Done(Status::Success, _) => {
                        self.announce(far, remote_qp, length(list), *immediate)
                    }
                    failed @ (Outcome::Done(..) | Outcome::Wait) => failed,
                }
            }
            Work::Bind(_) | Work::Register(_) | Work::Datagram(..) => Outcome::Wait,
        }
    }

    /// Where a far end is, if it is open to `wish`; a wish without a right is one that the queue
    /// pair does not have.
    fn open(&self, port: usize, wish: Wish, remote: RmrTriplet, len: u32) -> Option<Pieces> {
        let mut pieces = Pieces::new();
        if wish.access.is_empty() {
            return None;
        }
        if len != 0 {
            let port = self.ports.get(port)?;
            let (key, len) = (remote.context, u64::from(len));
            port.pieces(key, wish, remote.addr, len, &mut pieces)?;
        }
        Some(pieces)
    }

    /// Puts a message into the peer's next receive.
    fn deliver(&mut self, far: usize, number: usize, from: &Pieces, extra: Extra) -> Outcome {
        let Some((receive, pd)) = self.take_receive(far, number) else {
            return Outcome::Wait;
        };
        let len = length(from);
        let Receive { token, segments } = receive;
        if len > length(&segments) {
            self.complete(far, number, Direction::Recv, token, Status::LocalLength, 0);
            self.fail(far, number, fault!(BadState, "loop", "a message did not fit the receive"));
            return Outcome::Done(Status::RemoteInvalidRequest, 0);
        }
        let wish = Wish { pd, qp: number, access: Access::LOCAL_WRITE };
        let Some(to) = self.open_segments(far, wish, &segments) else {
            self.complete(far, number, Direction::Recv, token, Status::LocalProtection, 0);
            self.fail(
                far,
                number,
                fault!(BadState, "loop", "a receive named memory that is not its own"),
            );
            return Outcome::Done(Status::RemoteOperation, 0);
        };
        self.copy(from, &to, len);
        let result = (len, extra);
        self.complete_with(far, number, Direction::Recv, token, Status::Success, result);
        Outcome::Done(Status::Success, 0)
    }

    pub(super) fn complete(
        &mut self,
        port: usize,
        number: usize,
        direction: Direction,
        token: u16,
        status: Status,
        len: u32,
    ) {
        let result = (len, Extra::default());
        self.complete_with(port, number, direction, token, status, result);
    }

    pub(super) fn complete_with(
        &mut self,
        port: usize,
        number: usize,
        direction: Direction,
        token: u16,
        status: Status,
        (len, mut extra): (u32, Extra),
    ) {
        extra.solicited =
            self.solicited && direction == Direction::Recv && status == Status::Success;
        let Some(qp) = self.qp(port, number) else {
            return;
        };
        let cq = match direction {
            Direction::Send => qp.send_cq,
            Direction::Recv => qp.recv_cq,
        };
        let index = qp.index;
        let syndrome = if status == Status::Success { 0 } else { status as u8 };
        let entry = Completion { index, len, token, direction, status, syndrome, vendor: 0, extra };
        let Some(Some(slot)) = self.ports.get_mut(port).and_then(|port| port.cqs.get_mut(cq))
        else {
            return;
        };
        let handle = crate::provider::Cq(cq as u32);
        if slot.entries.len() >= slot.depth || slot.entries.push_back(entry).is_err() {
            self.notify(port, Notice::CqError(handle));
            return;
        }
        if slot.armed.is_some_and(|solicited| !solicited || counts(&entry)) {
            slot.armed = None;
            self.notify(port, Notice::Completion(handle));
        }
    }

    pub(super) fn notify(&mut self, port: usize, notice: Notice) {
        if let Some(port) = self.ports.get_mut(port) {
            let _ = port.notices.push_back(notice);
        }
    }

    /// Takes a queue pair to Error by itself, flushes it and tells the host.
    fn fail(&mut self, port: usize, number: usize, fault: Fault) {
        if self.qp(port, number).is_none_or(|qp| qp.state == State::Error) {
            return;
        }
        self.flush(port, number);
        let qp = Qp { number: crate::testing::FIRST_QPN | number as u32 };
        let fault = fault.of("QP", qp.number);
        self.notify(port, Notice::QpError(qp, fault));
    }

    /// Enters Error and completes all that is posted, in order.
    pub(super) fn flush(&mut self, port: usize, number: usize) {
        if let Some(qp) = self.qp(port, number) {
            qp.state = State::Error;
            qp.deferred = 0;
        }
        while let Some(request) = self.qp(port, number).and_then(|qp| qp.sends.pop_front()) {
            self.complete(port, number, Direction::Send, request.token, Status::Flushed, 0);
        }
        while let Some(receive) = self.qp(port, number).and_then(|qp| qp.recvs.pop_front()) {
            self.complete(port, number, Direction::Recv, receive.token, Status::Flushed, 0);
        }
    }
}

/// Whether it notifies a program that asked for solicited completions only.
pub(super) fn counts(entry: &Completion) -> bool {
    entry.extra.solicited || entry.status != Status::Success
}
