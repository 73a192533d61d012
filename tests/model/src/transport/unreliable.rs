//! The responder of an unreliable connection: SEND and WRITE without answers.
//!
//! A gap in the sequence loses the message it falls into, and whatever cannot be received is
//! dropped; the next first packet begins anew. A receive taken for a message that was lost serves
//! the next one. Only a failure of this side's own memory ends the QP. Reference: IBTA volume 1,
//! 9.8.2.

use super::host::{
    Access, Host, InCqe, QpAttr, QpEvent, QpState, Received, RecvCompletion, RecvKind, RecvWqe,
    RemoteAddress, Syndrome, Tally, segments_len,
};
use super::packet::Packet;
use super::{Fatal, psn};
use crate::wire::frame::Reth;
use crate::wire::opcode::Opcode;

/// A message begun and not ended.
#[derive(Debug)]
enum Message {
    Send { offset: u32 },
    Write { reth: Reth, offset: u32 },
}

/// The responder of one unreliable connection.
#[derive(Debug, Default)]
pub(super) struct UnreliableResponder {
    expected: u32,
    established: bool,
    message: Option<Message>,
    /// The receive in use, or left over from a message that was lost.
    receive: Option<RecvWqe>,
}

/// Why a message goes no further.
enum Lost {
    /// The peer's doing, or nobody's: the rest of it is dropped.
    Dropped,
    /// This side's memory: the receive ends with this, and the QP with it.
    Local(Syndrome),
}

impl UnreliableResponder {
    /// Enters RTR.
    pub(super) fn start(&mut self, psn: u32) {
        *self = Self { expected: psn & psn::MASK, ..Self::default() };
    }

    pub(super) fn expected_psn(&self) -> u32 {
        self.expected
    }

    /// Gives back the receive it holds.
    pub(super) fn flush(&mut self) -> Option<RecvWqe> {
        self.message = None;
        self.receive.take()
    }

    /// A request arrived.
    pub(super) fn on_request(
        &mut self,
        attr: &QpAttr,
        host: &mut dyn Host,
        packet: &Packet,
    ) -> Result<(), Fatal> {
        use Opcode as O;
        let (is_send, first, last) = match packet.bth.opcode {
            O::SendFirst => (true, true, false),
            O::SendMiddle => (true, false, false),
            O::SendLast | O::SendLastImm => (true, false, true),
            O::SendOnly | O::SendOnlyImm => (true, true, true),
            O::WriteFirst => (false, true, false),
            O::WriteMiddle => (false, false, false),
            O::WriteLast | O::WriteLastImm => (false, false, true),
            O::WriteOnly | O::WriteOnlyImm => (false, true, true),
            O::ReadRequest
            | O::ReadFirst
            | O::ReadMiddle
            | O::ReadLast
            | O::ReadOnly
            | O::Ack
            | O::AtomicAck
            | O::CompareSwap
            | O::FetchAdd
            | O::SendLastInval
            | O::SendOnlyInval
            | O::UdSendOnly
            | O::UdSendOnlyImm => return Ok(()),
        };
        if attr.state == QpState::Rtr && !self.established {
            self.established = true;
            host.event(attr.qpn, QpEvent::CommunicationEstablished);
        }
        if packet.bth.psn != self.expected {
            host.count(attr.qpn, Tally::OutOfSequence);
            self.message = None;
        }
        self.expected = psn::add(packet.bth.psn, 1);
        let continues = match (&self.message, first) {
            (_, true) => {
                // A message that breaks off for a new one is lost.
                self.message = None;
                true
            }
            (Some(Message::Send { .. }), false) => is_send,
            (Some(Message::Write { .. }), false) => !is_send,
            (None, false) => false,
        };
        let len = u32::try_from(packet.payload.len()).unwrap_or(u32::MAX);
        let fits = if last { len <= attr.mtu } else { len == attr.mtu };
        let outcome = if !continues || !fits {
            Err(Lost::Dropped)
        } else if is_send {
            self.send(last, len, attr, host, packet)
        } else {
            self.write(last, len, attr, host, packet)
        };
        match outcome {
            Ok(()) => Ok(()),
            Err(Lost::Dropped) => {
                self.message = None;
                Ok(())
            }
            Err(Lost::Local(syndrome)) => {
                self.message = None;
                self.end(attr, host, Err(syndrome));
                Err(Fatal)
            }
        }
    }

    fn need_receive(&mut self, attr: &QpAttr, host: &mut dyn Host) -> Result<(), Lost> {
        if self.receive.is_some() {
            return Ok(());
        }
        match host.take_recv(attr.qpn, None) {
            Some(Ok(wqe)) => {
                self.receive = Some(wqe);
                Ok(())
            }
            None => {
                host.count(attr.qpn, Tally::OutOfBuffer);
                Err(Lost::Dropped)
            }
            Some(Err((index, syndrome))) => {
                self.receive = Some(RecvWqe { index, segments: Vec::new(), pool: None });
                Err(Lost::Local(syndrome))
            }
        }
    }

    fn send(
        &mut self,
        last: bool,
        len: u32,
        attr: &QpAttr,
        host: &mut dyn Host,
        packet: &Packet,
    ) -> Result<(), Lost> {
        let offset = match self.message {
            Some(Message::Send { offset }) => offset,
            Some(Message::Write { .. }) | None => {
                self.need_receive(attr, host)?;
                0
            }
        };
        let end = offset.checked_add(len).ok_or(Lost::Dropped)?;
        let wqe = self.receive.as_ref().ok_or(Lost::Dropped)?;
        if u64::from(end) > segments_len(&wqe.segments) {
            return Err(Lost::Local(Syndrome::LocalLength));
        }
        let whole = last && offset == 0;
        let in_cqe = whole.then(|| InCqe::of(&packet.payload, attr.in_cqe_receive)).flatten();
        if len > 0 && in_cqe.is_none() {
            host.scatter_receive(attr.qpn, wqe, offset, &packet.payload).map_err(Lost::Local)?;
        }
        self.message = (!last).then_some(Message::Send { offset: end });
        if last {
            let kind = packet.ext.imm.map_or(RecvKind::Send, RecvKind::SendImm);
            let received = Received { in_cqe, ..received(kind, end, packet) };
            self.end(attr, host, Ok(received));
        }
        Ok(())
    }

    fn write(
        &mut self,
        last: bool,
        len: u32,
        attr: &QpAttr,
        host: &mut dyn Host,
        packet: &Packet,
    ) -> Result<(), Lost> {
        if !attr.remote_write {
            return Err(Lost::Dropped);
        }
        let (reth, offset) = match (packet.ext.reth, &self.message) {
            (Some(reth), _) => (reth, 0),
            (None, Some(Message::Write { reth, offset })) => (*reth, *offset),
            (None, _) => return Err(Lost::Dropped),
        };
        let left = reth.len.checked_sub(offset).ok_or(Lost::Dropped)?;
        if if last { len != left } else { len >= left } {
            return Err(Lost::Dropped);
        }
        if packet.ext.imm.is_some() {
            self.need_receive(attr, host)?;
        }
        let at = |va: u64| RemoteAddress { va, rkey: reth.rkey, pool: None };
        if offset == 0 {
            host.count(attr.qpn, Tally::RxWriteRequests);
            if reth.len > 0 {
                host.remote_check(attr.qpn, at(reth.va), reth.len.into(), Access::Write)
                    .map_err(|_| Lost::Dropped)?;
            }
        }
        if len > 0 {
            let to = at(reth.va.wrapping_add(offset.into()));
            host.remote_write(attr.qpn, to, &packet.payload, Access::Write)
                .map_err(|_| Lost::Dropped)?;
        }
        let offset = offset.saturating_add(len);
        self.message = (!last).then_some(Message::Write { reth, offset });
        if let Some(imm) = packet.ext.imm {
            self.end(attr, host, Ok(received(RecvKind::WriteImm(imm), reth.len, packet)));
        }
        Ok(())
    }

    /// Completes the receive in use.
    fn end(&mut self, attr: &QpAttr, host: &mut dyn Host, result: Result<Received, Syndrome>) {
        if let Some(wqe) = self.receive.take() {
            let completion = RecvCompletion { index: wqe.index, pool: wqe.pool, result };
            host.complete_recv(attr.qpn, completion);
        }
    }
}

fn received(kind: RecvKind, byte_len: u32, packet: &Packet) -> Received {
    Received {
        kind,
        byte_len,
        solicited: packet.bth.solicited,
        congested: packet.congested(),
        source: None,
        in_cqe: None,
    }
}
