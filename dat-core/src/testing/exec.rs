//! Carrying out posted requests, in order, until something is not ready.

use super::fabric::{Fabric, Memory, QpSlot, Receive, Request, Segments, State, Work};
use super::keys::length;
use super::words::{self, READ};
use crate::fault;
use crate::provider::{
    Access, Completion, Direction, Extra, Fault, Notice, Qp, Remote, Segment, Status,
};

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
                for qp in 0..super::QPS {
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
        let outcome = match (&request.work, peer) {
            (Work::Bind(bind), _) => {
                let bound = self
                    .ports
                    .get_mut(port)
                    .is_some_and(|port| port.bind(pd, bind));
                Outcome::Done(
                    if bound {
                        Status::Success
                    } else {
                        Status::WindowBind
                    },
                    0,
                )
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
            self.fail(
                port,
                number,
                fault!(READ, BadState, "loop", "a request failed"),
            );
        }
    }

    fn transfer(
        &mut self,
        port: usize,
        number: usize,
        work: &Work,
        (far, qpn): (usize, u32),
    ) -> Outcome {
        let Some(pd) = self.qp(port, number).map(|qp| qp.pd) else {
            return Outcome::Wait;
        };
        let remote_qp = (qpn & 0xff) as usize;
        let Some(peer) = self.qp(far, remote_qp) else {
            return Outcome::Done(Status::TransportRetry, 0);
        };
        // The number may belong to another connection by now; a wire would tell by the PSN.
        let ours = peer
            .peer
            .is_some_and(|(back, qpn)| back == port && (qpn & 0xff) as usize == number);
        if !matches!(peer.state, State::Rtr | State::Rts) || !ours {
            return Outcome::Done(Status::TransportRetry, 0);
        }
        let (far_pd, far_access, first) = (peer.pd, peer.access, !peer.heard);
        peer.heard = true;
        if first && peer.state == State::Rtr {
            self.notify(far, Notice::Established(Qp { number: qpn }));
        }
        match work {
            Work::Send(list) => {
                if !self.segments_open(port, pd, list, Access::LOCAL_READ) {
                    return Outcome::Done(Status::LocalProtection, 0);
                }
                self.deliver(far, remote_qp, list)
            }
            Work::Write(list, remote) => {
                if !self.segments_open(port, pd, list, Access::LOCAL_READ) {
                    return Outcome::Done(Status::LocalProtection, 0);
                }
                let len = length(list);
                let right = Access::REMOTE_WRITE;
                if !far_access.contains(right) || !self.open(far, far_pd, *remote, len, right) {
                    self.fail(
                        far,
                        remote_qp,
                        fault!(
                            READ,
                            BadState,
                            "loop",
                            "a peer wrote outside what it was given"
                        ),
                    );
                    return Outcome::Done(Status::RemoteAccess, 0);
                }
                self.copy(list, &flat(*remote, len), len);
                Outcome::Done(Status::Success, 0)
            }
            Work::Read(list, remote) => {
                let len = length(list);
                let right = Access::REMOTE_READ;
                if !far_access.contains(right) || !self.open(far, far_pd, *remote, len, right) {
                    self.fail(
                        far,
                        remote_qp,
                        fault!(
                            READ,
                            BadState,
                            "loop",
                            "a peer read outside what it was given"
                        ),
                    );
                    return Outcome::Done(Status::RemoteAccess, 0);
                }
                if !self.segments_open(port, pd, list, Access::LOCAL_WRITE) {
                    return Outcome::Done(Status::LocalProtection, 0);
                }
                self.copy(&flat(*remote, len), list, len);
                Outcome::Done(Status::Success, len)
            }
            Work::Atomic(into, remote, atomic) => {
                let right = Access::REMOTE_ATOMIC;
                if !far_access.contains(right) || !self.open(far, far_pd, *remote, 8, right) {
                    self.fail(
                        far,
                        remote_qp,
                        fault!(
                            READ,
                            BadState,
                            "loop",
                            "a peer did an atomic outside what it was given"
                        ),
                    );
                    return Outcome::Done(Status::RemoteAccess, 0);
                }
                if !self.segments_open(port, pd, into, Access::LOCAL_WRITE) {
                    return Outcome::Done(Status::LocalProtection, 0);
                }
                self.atomic(into, *remote, *atomic)
            }
            Work::WriteImmed(list, remote, immediate) => {
                let waits = self
                    .qp(far, remote_qp)
                    .is_some_and(|peer| peer.recvs.is_empty());
                if waits {
                    return Outcome::Wait;
                }
                let plain = Work::Write(list.clone(), *remote);
                match self.transfer(port, number, &plain, (far, qpn)) {
                    Outcome::Done(Status::Success, _) => {
                        self.announce(far, remote_qp, length(list), *immediate)
                    }
                    failed @ (Outcome::Done(..) | Outcome::Wait) => failed,
                }
            }
            Work::Bind(_) | Work::Datagram(..) => Outcome::Wait,
        }
    }

    fn open(
        &self,
        port: usize,
        pd: crate::provider::Pd,
        remote: Remote,
        len: u32,
        a: Access,
    ) -> bool {
        len == 0
            || self
                .ports
                .get(port)
                .is_some_and(|port| port.allows(remote.rkey, pd, remote.addr, u64::from(len), a))
    }

    /// Puts a message into the peer's next receive.
    fn deliver(&mut self, far: usize, number: usize, list: &Segments) -> Outcome {
        let Some(peer) = self.qp(far, number) else {
            return Outcome::Wait;
        };
        let pd = peer.pd;
        let Some(receive) = peer.recvs.pop_front() else {
            return Outcome::Wait;
        };
        let len = length(list);
        let Receive { token, segments } = receive;
        if len > length(&segments) {
            self.complete(far, number, Direction::Recv, token, Status::LocalLength, 0);
            self.fail(
                far,
                number,
                fault!(READ, BadState, "loop", "a message did not fit the receive"),
            );
            return Outcome::Done(Status::RemoteInvalidRequest, 0);
        }
        if !self.segments_open(far, pd, &segments, Access::LOCAL_WRITE) {
            self.complete(
                far,
                number,
                Direction::Recv,
                token,
                Status::LocalProtection,
                0,
            );
            self.fail(
                far,
                number,
                fault!(
                    READ,
                    BadState,
                    "loop",
                    "a receive named memory that is not its own"
                ),
            );
            return Outcome::Done(Status::RemoteOperation, 0);
        }
        self.copy(list, &segments, len);
        self.complete(far, number, Direction::Recv, token, Status::Success, len);
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
        let told = (len, Extra::default());
        self.complete_with(port, number, direction, token, status, told);
    }

    pub(super) fn complete_with(
        &mut self,
        port: usize,
        number: usize,
        direction: Direction,
        token: u16,
        status: Status,
        (len, extra): (u32, Extra),
    ) {
        let Some(qp) = self.qp(port, number) else {
            return;
        };
        let cq = match direction {
            Direction::Send => qp.send_cq,
            Direction::Recv => qp.recv_cq,
        };
        let index = qp.index;
        let syndrome = if status == Status::Success {
            0
        } else {
            status as u8
        };
        let entry = Completion {
            index,
            len,
            token,
            direction,
            status,
            syndrome,
            vendor: 0,
            extra,
        };
        let Some(Some(slot)) = self
            .ports
            .get_mut(port)
            .and_then(|port| port.cqs.get_mut(cq))
        else {
            return;
        };
        let handle = crate::provider::Cq(cq as u32);
        if slot.entries.len() >= slot.depth || slot.entries.push_back(entry).is_err() {
            self.notify(port, Notice::CqError(handle));
            return;
        }
        if core::mem::take(&mut slot.armed) {
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
        if self
            .qp(port, number)
            .is_none_or(|qp| qp.state == State::Error)
        {
            return;
        }
        self.flush(port, number);
        let qp = Qp {
            number: super::FIRST_QPN | number as u32,
        };
        let fault = fault.of(words::QP, qp.number);
        self.notify(port, Notice::QpError(qp, fault));
    }

    /// Enters Error and completes all that is posted, in order.
    pub(super) fn flush(&mut self, port: usize, number: usize) {
        if let Some(qp) = self.qp(port, number) {
            qp.state = State::Error;
            qp.deferred = 0;
        }
        while let Some(request) = self.qp(port, number).and_then(|qp| qp.sends.pop_front()) {
            self.complete(
                port,
                number,
                Direction::Send,
                request.token,
                Status::Flushed,
                0,
            );
        }
        while let Some(receive) = self.qp(port, number).and_then(|qp| qp.recvs.pop_front()) {
            self.complete(
                port,
                number,
                Direction::Recv,
                receive.token,
                Status::Flushed,
                0,
            );
        }
    }
}

/// A remote range as a list, for copying.
fn flat(remote: Remote, len: u32) -> Segments {
    let mut list = Segments::new();
    let _ = list.push(Segment {
        addr: remote.addr,
        len,
        lkey: remote.rkey,
    });
    list
}
