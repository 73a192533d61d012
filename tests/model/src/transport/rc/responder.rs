//! The responder: checks in the order of IBTA, executes, answers.
//!
//! A peer's error is answered with a NAK and, if fatal, ends the QP once the answer is out. Where
//! Linux Soft-RoCE differs from IBTA (NAK 0x60 after an RNR NAK, 0x63 for a message longer than its
//! buffer), this follows IBTA.
//! Reference: IBTA volume 1, 9.7.4 (validation), 9.7.5 (responses), 9.9 (errors).

use super::super::host::{
    Access, Host, Nanos, QpAttr, QpEvent, QpState, RecvCompletion, RecvKind, RecvWqe, Tally,
};
use super::super::host::{InCqe, Received, RemoteAddress, RemoteFault, Syndrome, segments_len};
use super::super::packet::Packet;
use super::super::{Fatal, psn};
use super::replies::{ACK, NAK_ACCESS, NAK_INVALID_REQUEST, NAK_OPERATION, NAK_RNR, NAK_SEQUENCE};
use super::replies::{Replies, nak_of};
use crate::wire::frame::{AtomicEth, Reth};
use crate::wire::opcode::Opcode;

/// Longest message of the transport.
const MAX_MESSAGE: u32 = 1 << 31;

/// A message of several packets, half received.
#[derive(Debug)]
enum Message {
    Send { offset: u32 },
    Write { reth: Reth, offset: u32 },
}

/// Kind of a request packet, by its position in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    Send { first: bool, last: bool },
    Write { first: bool, last: bool },
    Read,
    Atomic,
}

fn classify(opcode: Opcode) -> Option<Request> {
    use Opcode as O;
    Some(match opcode {
        O::SendFirst => Request::Send { first: true, last: false },
        O::SendMiddle => Request::Send { first: false, last: false },
        O::SendLast | O::SendLastImm | O::SendLastInval => {
            Request::Send { first: false, last: true }
        }
        O::SendOnly | O::SendOnlyImm | O::SendOnlyInval => {
            Request::Send { first: true, last: true }
        }
        O::WriteFirst => Request::Write { first: true, last: false },
        O::WriteMiddle => Request::Write { first: false, last: false },
        O::WriteLast | O::WriteLastImm => Request::Write { first: false, last: true },
        O::WriteOnly | O::WriteOnlyImm => Request::Write { first: true, last: true },
        O::ReadRequest => Request::Read,
        O::CompareSwap | O::FetchAdd => Request::Atomic,
        O::ReadFirst
        | O::ReadMiddle
        | O::ReadLast
        | O::ReadOnly
        | O::Ack
        | O::AtomicAck
        | O::UdSendOnly
        | O::UdSendOnlyImm => return None,
    })
}

/// Why a request is not executed.
enum Refusal {
    /// No receive work request: come again.
    NotReady,
    /// NAK and the end of the QP. A receive in use ends with the syndrome.
    Fatal { nak: u8, receive: Syndrome },
    /// The request is acknowledged, but the QP ends all the same.
    Silent { receive: Syndrome },
}

impl Refusal {
    const INVALID: Self =
        Self::Fatal { nak: NAK_INVALID_REQUEST, receive: Syndrome::RemoteInvalidRequest };

    fn of(fault: RemoteFault) -> Self {
        let receive = match fault {
            RemoteFault::Access => Syndrome::RemoteAccess,
            RemoteFault::Operation => Syndrome::LocalQpOperation,
        };
        Self::Fatal { nak: nak_of(fault), receive }
    }
}

/// The responder of one connection.
#[derive(Debug, Default)]
pub(crate) struct Responder {
    expected: u32,
    msn: u32,
    /// Newest PSN of a SEND or WRITE: what duplicates of those are answered with.
    newest_push: u32,
    /// A gap has been reported and not been closed.
    gap_reported: bool,
    /// The expected packet was turned away for want of a receive.
    not_ready: bool,
    established: bool,
    message: Option<Message>,
    /// The receive work request in use, or taken and not used yet.
    receive: Option<RecvWqe>,
    replies: Replies,
    /// It will end with this once its last words are out.
    dying: Option<QpEvent>,
}

impl Responder {
    /// Enters RTR.
    pub(crate) fn start(&mut self, psn: u32) {
        let expected = psn & psn::MASK;
        *self = Self { expected, newest_push: psn::add(expected, psn::MASK), ..Self::default() };
    }

    pub(crate) fn expected_psn(&self) -> u32 {
        self.expected
    }

    /// When [`drain`](Self::drain) has something to send; a time in the past means at once.
    pub(crate) fn deadline(&self) -> Option<Nanos> {
        self.replies.deadline().or(self.dying.map(|_| 0))
    }

    /// Gives up what it holds: the receive in use comes back.
    pub(crate) fn flush(&mut self) -> Option<RecvWqe> {
        self.replies.clear();
        self.dying = None;
        self.message = None;
        self.receive.take()
    }

    /// A request arrived.
    pub(crate) fn on_request(
        &mut self,
        attr: &QpAttr,
        host: &mut dyn Host,
        packet: &Packet,
    ) -> Result<(), Fatal> {
        let Some(request) = classify(packet.bth.opcode) else {
            return Ok(());
        };
        if self.dying.is_some() {
            return self.drain(attr, host);
        }
        if attr.state == QpState::Rtr && !self.established {
            self.established = true;
            host.event(attr.qpn, QpEvent::CommunicationEstablished);
        }
        match psn::place(packet.bth.psn, self.expected) {
            psn::Place::Behind => {
                host.count(attr.qpn, Tally::DuplicateRequest);
                self.on_duplicate(request, attr, packet);
            }
            // One NAK for a gap, or one RNR NAK, is enough for the peer.
            psn::Place::Ahead if self.gap_reported || self.not_ready => {}
            psn::Place::Ahead => {
                self.gap_reported = true;
                host.count(attr.qpn, Tally::OutOfSequence);
                self.replies.verdict(self.expected, NAK_SEQUENCE, self.msn);
            }
            psn::Place::Expected => {
                self.gap_reported = false;
                self.not_ready = false;
                self.on_expected(request, attr, host, packet);
            }
        }
        self.drain(attr, host)
    }

    /// Sends a burst of pending replies. A QP that is ending fails after its last reply.
    pub(crate) fn drain(&mut self, attr: &QpAttr, host: &mut dyn Host) -> Result<(), Fatal> {
        if let Err(fault) = self.replies.drain(attr, host) {
            if self.dying.is_none() {
                self.die(nak_of(fault));
            }
        }
        match self.dying {
            Some(event) if self.replies.is_empty() => {
                self.dying = None;
                host.event(attr.qpn, event);
                Err(Fatal)
            }
            Some(_) | None => Ok(()),
        }
    }

    fn die(&mut self, nak: u8) {
        self.dying = Some(match nak {
            NAK_ACCESS => QpEvent::AccessError,
            NAK_OPERATION => QpEvent::Catastrophic,
            _ => QpEvent::InvalidRequest,
        });
    }

    fn on_duplicate(&mut self, request: Request, attr: &QpAttr, packet: &Packet) {
        let psn = packet.bth.psn;
        match (request, packet.ext.reth) {
            (Request::Read, Some(reth)) => {
                self.replies.replay_read(psn, remote(packet, reth), self.msn, attr)
            }
            (Request::Atomic, _) => self.replies.replay_atomic(psn, self.msn),
            (Request::Send { .. } | Request::Write { .. }, _) => {
                self.replies.verdict(self.newest_push, ACK, self.msn);
            }
            (Request::Read, None) => {}
        }
    }

    fn on_expected(
        &mut self,
        request: Request,
        attr: &QpAttr,
        host: &mut dyn Host,
        packet: &Packet,
    ) {
        let psn = packet.bth.psn;
        let outcome = self
            .check_sequence(request)
            .and_then(|()| check_rights(request, attr))
            .and_then(|()| match request {
                Request::Send { first, last } => self.send(first, last, attr, host, packet),
                Request::Write { first, last } => self.write(first, last, attr, host, packet),
                Request::Read => self.read(attr, host, packet),
                Request::Atomic => self.atomic(attr, host, packet),
            });
        match outcome {
            Ok(()) => {}
            Err(Refusal::NotReady) => {
                self.not_ready = true;
                host.count(attr.qpn, Tally::OutOfBuffer);
                let syndrome = NAK_RNR | attr.min_rnr_nak & 0x1f;
                self.replies.verdict(psn, syndrome, self.msn);
            }
            Err(Refusal::Fatal { nak, receive }) => {
                self.fail_receive(receive, attr, host);
                self.replies.verdict(psn, nak, self.msn);
                self.die(nak);
            }
            Err(Refusal::Silent { receive }) => {
                self.fail_receive(receive, attr, host);
                self.dying = Some(QpEvent::InvalidRequest);
            }
        }
    }

    fn fail_receive(&mut self, syndrome: Syndrome, attr: &QpAttr, host: &mut dyn Host) {
        if let Some(wqe) = self.receive.take() {
            let completion =
                RecvCompletion { index: wqe.index, pool: wqe.pool, result: Err(syndrome) };
            host.complete_recv(attr.qpn, completion);
        }
    }

    /// First or only where nothing is begun, middle or last of the same kind where it is.
    fn check_sequence(&self, request: Request) -> Result<(), Refusal> {
        let fits = match (&self.message, request) {
            (None, Request::Send { first, .. } | Request::Write { first, .. }) => first,
            (None, Request::Read | Request::Atomic) => true,
            (Some(Message::Send { .. }), Request::Send { first, .. }) => !first,
            (Some(Message::Write { .. }), Request::Write { first, .. }) => !first,
            (Some(_), _) => false,
        };
        if fits { Ok(()) } else { Err(Refusal::INVALID) }
    }

    /// Makes sure a receive work request is at hand.
    fn need_receive(
        &mut self,
        attr: &QpAttr,
        host: &mut dyn Host,
        packet: &Packet,
    ) -> Result<(), Refusal> {
        if self.receive.is_some() {
            return Ok(());
        }
        let pool = packet.ext.xrc_srqn;
        if let Some(pool) = pool {
            host.pool_check(attr.qpn, pool).map_err(Refusal::of)?;
        }
        match host.take_recv(attr.qpn, pool) {
            None => Err(Refusal::NotReady),
            Some(Ok(wqe)) => {
                self.receive = Some(wqe);
                Ok(())
            }
            Some(Err((index, receive))) => {
                self.receive = Some(RecvWqe { index, segments: Vec::new(), pool });
                Err(Refusal::Fatal { nak: NAK_OPERATION, receive })
            }
        }
    }

    fn send(
        &mut self,
        first: bool,
        last: bool,
        attr: &QpAttr,
        host: &mut dyn Host,
        packet: &Packet,
    ) -> Result<(), Refusal> {
        if first {
            self.need_receive(attr, host, packet)?;
        }
        let len = check_length(first, last, attr, packet)?;
        let offset = match self.message {
            Some(Message::Send { offset }) => offset,
            Some(Message::Write { .. }) | None => 0,
        };
        let end = offset.checked_add(len).filter(|n| *n <= MAX_MESSAGE);
        let Some((wqe, end)) = self.receive.as_ref().zip(end) else {
            return Err(Refusal::INVALID);
        };
        if u64::from(end) > segments_len(&wqe.segments) {
            let receive = Syndrome::LocalLength;
            return Err(Refusal::Fatal { nak: NAK_INVALID_REQUEST, receive });
        }
        let in_cqe =
            if first && last { InCqe::of(&packet.payload, attr.in_cqe_receive) } else { None };
        if len > 0 && in_cqe.is_none() {
            host.scatter_receive(attr.qpn, wqe, offset, &packet.payload)
                .map_err(|receive| Refusal::Fatal { nak: NAK_OPERATION, receive })?;
        }
        self.message = (!last).then_some(Message::Send { offset: end });
        self.accept(last, packet);
        if !last {
            return Ok(());
        }
        let kind = match (packet.ext.imm, packet.ext.ieth) {
            (Some(imm), _) => RecvKind::SendImm(imm),
            (None, Some(rkey)) => {
                host.remote_invalidate(attr.qpn, rkey)
                    .map_err(|_| Refusal::Silent { receive: Syndrome::RemoteInvalidRequest })?;
                RecvKind::SendInval(rkey)
            }
            (None, None) => RecvKind::Send,
        };
        self.complete((kind, in_cqe), end, attr, host, packet);
        Ok(())
    }

    fn write(
        &mut self,
        first: bool,
        last: bool,
        attr: &QpAttr,
        host: &mut dyn Host,
        packet: &Packet,
    ) -> Result<(), Refusal> {
        if packet.ext.imm.is_some() {
            self.need_receive(attr, host, packet)?;
        }
        let len = check_length(first, last, attr, packet)?;
        let (reth, offset) = match (packet.ext.reth, &self.message) {
            (Some(reth), _) => (reth, 0),
            (None, Some(Message::Write { reth, offset })) => (*reth, *offset),
            (None, _) => return Err(Refusal::INVALID),
        };
        // The last packet brings the rest, neither more nor less; the others leave some.
        let left = reth.len.checked_sub(offset).ok_or(Refusal::INVALID)?;
        let fits = if last { len == left } else { len < left };
        if reth.len > MAX_MESSAGE || !fits {
            return Err(Refusal::INVALID);
        }
        let at = RemoteAddress { va: reth.va, rkey: reth.rkey, pool: packet.ext.xrc_srqn };
        if first {
            host.count(attr.qpn, Tally::RxWriteRequests);
        }
        if first && reth.len > 0 {
            host.remote_check(attr.qpn, at, reth.len.into(), Access::Write).map_err(Refusal::of)?;
        }
        if len > 0 {
            let at = RemoteAddress { va: at.va.wrapping_add(offset.into()), ..at };
            host.remote_write(attr.qpn, at, &packet.payload, Access::Write).map_err(Refusal::of)?;
        }
        let offset = offset.saturating_add(len);
        self.message = (!last).then_some(Message::Write { reth, offset });
        self.accept(last, packet);
        if let Some(imm) = packet.ext.imm {
            let kind = RecvKind::WriteImm(imm);
            self.complete((kind, None), reth.len, attr, host, packet);
        }
        Ok(())
    }

    /// Counts a packet of a SEND or WRITE, and acknowledges it if asked to.
    fn accept(&mut self, last: bool, packet: &Packet) {
        self.newest_push = packet.bth.psn;
        self.expected = psn::add(packet.bth.psn, 1);
        if last {
            self.msn = psn::add(self.msn, 1);
        }
        if packet.bth.ack_req {
            self.replies.verdict(packet.bth.psn, ACK, self.msn);
        }
    }

    fn complete(
        &mut self,
        (kind, in_cqe): (RecvKind, Option<InCqe>),
        byte_len: u32,
        attr: &QpAttr,
        host: &mut dyn Host,
        packet: &Packet,
    ) {
        if let Some(wqe) = self.receive.take() {
            let received = Received {
                kind,
                byte_len,
                solicited: packet.bth.solicited,
                congested: packet.congested(),
                source: None,
                in_cqe,
            };
            let completion =
                RecvCompletion { index: wqe.index, pool: wqe.pool, result: Ok(received) };
            host.complete_recv(attr.qpn, completion);
        }
    }

    fn read(&mut self, attr: &QpAttr, host: &mut dyn Host, packet: &Packet) -> Result<(), Refusal> {
        let Some(reth) = packet.ext.reth else {
            return Err(Refusal::INVALID);
        };
        if self.replies.open_reads() >= usize::from(attr.max_dest_rd_atomic)
            || reth.len > MAX_MESSAGE
            || !packet.payload.is_empty()
        {
            return Err(Refusal::INVALID);
        }
        if reth.len > 0 {
            let at = RemoteAddress { va: reth.va, rkey: reth.rkey, pool: packet.ext.xrc_srqn };
            host.remote_check(attr.qpn, at, reth.len.into(), Access::Read).map_err(Refusal::of)?;
        }
        host.count(attr.qpn, Tally::RxReadRequests);
        self.msn = psn::add(self.msn, 1);
        self.expected = psn::add(packet.bth.psn, psn::packets(reth.len, attr.mtu));
        self.replies.read(packet.bth.psn, remote(packet, reth), self.msn, attr);
        Ok(())
    }

    fn atomic(
        &mut self,
        attr: &QpAttr,
        host: &mut dyn Host,
        packet: &Packet,
    ) -> Result<(), Refusal> {
        let Some(operands) = packet.ext.atomic else {
            return Err(Refusal::INVALID);
        };
        if attr.max_dest_rd_atomic == 0 || operands.va % 8 != 0 || !packet.payload.is_empty() {
            return Err(Refusal::INVALID);
        }
        let old = execute_atomic(packet, &operands, attr, host).map_err(Refusal::of)?;
        host.count(attr.qpn, Tally::RxAtomicRequests);
        self.msn = psn::add(self.msn, 1);
        self.expected = psn::add(packet.bth.psn, 1);
        self.replies.atomic(packet.bth.psn, old, self.msn, attr);
        Ok(())
    }
}

/// Returns address and length of a READ.
fn remote(packet: &Packet, reth: Reth) -> (RemoteAddress, u32) {
    let at = RemoteAddress { va: reth.va, rkey: reth.rkey, pool: packet.ext.xrc_srqn };
    (at, reth.len)
}

/// Whether the QP lets its peer do this at all.
fn check_rights(request: Request, attr: &QpAttr) -> Result<(), Refusal> {
    let allowed = match request {
        Request::Send { .. } => true,
        Request::Write { .. } => attr.remote_write,
        Request::Read => attr.remote_read,
        Request::Atomic => attr.remote_atomic,
    };
    if allowed { Ok(()) } else { Err(Refusal::INVALID) }
}

/// Whole packets up to the last, which may not be empty unless it is the only one.
fn check_length(first: bool, last: bool, attr: &QpAttr, packet: &Packet) -> Result<u32, Refusal> {
    let len = u32::try_from(packet.payload.len()).map_err(|_| Refusal::INVALID)?;
    let fits = match (first, last) {
        (_, false) => len == attr.mtu,
        (false, true) => (1..=attr.mtu).contains(&len),
        (true, true) => len <= attr.mtu,
    };
    if fits { Ok(len) } else { Err(Refusal::INVALID) }
}

/// Reads, changes and writes 8 bytes. The host of the device is a little-endian one.
fn execute_atomic(
    packet: &Packet,
    operands: &AtomicEth,
    attr: &QpAttr,
    host: &mut dyn Host,
) -> Result<u64, RemoteFault> {
    let at = RemoteAddress { va: operands.va, rkey: operands.rkey, pool: packet.ext.xrc_srqn };
    let mut bytes = [0; 8];
    host.remote_read(attr.qpn, at, &mut bytes, Access::Atomic)?;
    let old = u64::from_le_bytes(bytes);
    let new = if packet.bth.opcode == Opcode::FetchAdd {
        Some(old.wrapping_add(operands.swap_add))
    } else {
        (old == operands.compare).then_some(operands.swap_add)
    };
    if let Some(new) = new {
        host.remote_write(attr.qpn, at, &new.to_le_bytes(), Access::Atomic)?;
    }
    Ok(old)
}
