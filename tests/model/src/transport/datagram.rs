//! Datagrams: UD queue pairs and QP1.
//!
//! One work request is one packet; nothing is acknowledged, and what cannot be received is
//! dropped. The receiver gets 40 bytes before the payload: the IPv6 header, or 20 zero bytes and
//! the IPv4 header. Reference: IBTA volume 1, 9.8.3 and annex A17.4.

use super::host::segments_len;
use super::host::{Datagram, DatagramSource, Received, SendCompletion, SendWqe, Syndrome, Trailer};
use super::host::{
    Host, Layer3, Operation, Payload, QpAttr, QpKind, RecvCompletion, RecvKind, RecvWqe, Tally,
};
use super::packet::{Layers, Packet};
use super::packetize::Draft;
use super::{Fatal, psn};
use crate::wire::frame::Deth;
use crate::wire::opcode::Opcode;

/// The bytes before the payload in a receive buffer.
const GRH_LEN: u32 = 40;
/// The number of the general services QP.
const GSI_QPN: u32 = 1;
/// Entries one doorbell runs at most: no queue of 16-bit counters has more.
const SEND_LIMIT: u32 = 1 << 16;

/// The engine of one datagram QP.
#[derive(Debug, Default)]
pub(super) struct DatagramEngine {
    next_psn: u32,
    /// A receive that was too short for the packet it was taken for: it serves the next one.
    spare: Option<RecvWqe>,
}

impl DatagramEngine {
    /// Enters RTS.
    pub(super) fn start(&mut self, psn: u32) {
        self.next_psn = psn & psn::MASK;
    }

    pub(super) fn next_psn(&self) -> u32 {
        self.next_psn
    }

    /// Gives back the receive it holds.
    pub(super) fn flush(&mut self) -> Option<RecvWqe> {
        self.spare.take()
    }

    /// Sends all that is posted. On an error the entry has completed with it.
    pub(super) fn send(
        &mut self,
        attr: &QpAttr,
        next_index: &mut u16,
        host: &mut dyn Host,
    ) -> Result<(), Fatal> {
        for _ in 0..SEND_LIMIT {
            let index = *next_index;
            let Some(fetched) = host.fetch_send(attr.qpn, index) else {
                break;
            };
            let (bbs, opcode, signaled, result) = match fetched {
                Ok(wqe) => (wqe.bbs, wqe.opcode, wqe.signaled, self.send_one(&wqe, attr, host)),
                Err(bad) => (bad.bbs, bad.opcode, true, Err(bad.syndrome)),
            };
            *next_index = index.wrapping_add(bbs.max(1));
            let byte_len = result.unwrap_or(0);
            let result = result.map(|_| ());
            if signaled || result.is_err() {
                let completion = SendCompletion { index, opcode, byte_len, in_cqe: None, result };
                host.complete_send(attr.qpn, completion);
            }
            result.map_err(|_| Fatal)?;
        }
        Ok(())
    }

    fn send_one(
        &mut self,
        wqe: &SendWqe,
        attr: &QpAttr,
        host: &mut dyn Host,
    ) -> Result<u32, Syndrome> {
        let (trailer, data) = match &wqe.operation {
            Operation::Send { trailer, data } => (*trailer, data),
            Operation::Nop => return Ok(0),
            Operation::Write { .. }
            | Operation::Read { .. }
            | Operation::CompareSwap { .. }
            | Operation::FetchAdd { .. }
            | Operation::Umr(_)
            | Operation::LocalInvalidate(_) => return Err(Syndrome::LocalQpOperation),
        };
        let imm = match trailer {
            Trailer::None => None,
            Trailer::Imm(imm) => Some(imm),
            Trailer::Invalidate(_) => return Err(Syndrome::LocalQpOperation),
        };
        let Some(Datagram { path, qpn, qkey }) = wqe.av else {
            return Err(Syndrome::LocalQpOperation);
        };
        let len = u32::try_from(data.len()).map_err(|_| Syndrome::LocalLength)?;
        if len > attr.mtu {
            return Err(Syndrome::LocalLength);
        }
        let payload = match data {
            Payload::Inline(bytes) => bytes.clone(),
            Payload::Segments(list) => {
                let mut bytes = vec![0; len as usize];
                if len > 0 {
                    host.gather(attr.qpn, list, 0, &mut bytes)?;
                }
                bytes
            }
        };
        let opcode = if imm.is_some() { Opcode::UdSendOnlyImm } else { Opcode::UdSendOnly };
        let mut draft =
            Draft { solicited: wqe.solicited, payload, ..Draft::new(opcode, self.next_psn) };
        // A Q_Key with the top bit set is the QP's to give, not the work request's.
        let qkey = if qkey >> 31 == 1 { attr.qkey } else { qkey };
        draft.ext.imm = imm;
        draft.ext.deth = Some(Deth { qkey, src_qp: wire_qpn(attr) });
        draft.send_to(attr, &path, qpn, host);
        self.next_psn = psn::add(self.next_psn, 1);
        Ok(len)
    }

    /// A datagram arrived.
    pub(super) fn receive(
        &mut self,
        attr: &QpAttr,
        host: &mut dyn Host,
        packet: &Packet,
    ) -> Result<(), Fatal> {
        let Some(deth) = packet.ext.deth else {
            return Ok(());
        };
        let len = u32::try_from(packet.payload.len()).unwrap_or(u32::MAX);
        // Subnet management packets have no Q_Key.
        if deth.qkey != attr.qkey && attr.kind != QpKind::Smi {
            host.q_key_violation();
            return Ok(());
        }
        if len > attr.mtu {
            return Ok(());
        }
        let wqe = match self.spare.take().map(Ok).or_else(|| host.take_recv(attr.qpn, None)) {
            None => {
                host.count(attr.qpn, Tally::OutOfBuffer);
                return Ok(());
            }
            Some(Ok(wqe)) => wqe,
            Some(Err((index, syndrome))) => return fail((index, None), syndrome, attr, host),
        };
        let byte_len = GRH_LEN + len;
        if segments_len(&wqe.segments) < byte_len.into() {
            self.spare = Some(wqe);
            return Ok(());
        }
        let mut message = Vec::with_capacity(byte_len as usize);
        message.extend_from_slice(&packet.grh.unwrap_or([0; GRH_LEN as usize]));
        message.extend_from_slice(&packet.payload);
        let skip = match &packet.layers {
            Layers::Roce(net) if net.layer3() == Layer3::Ipv4 => host.untouched().min(GRH_LEN),
            _ if packet.grh.is_none() => GRH_LEN,
            Layers::Roce(_) | Layers::Ib { .. } => 0,
        };
        let written = message.get(skip as usize..).unwrap_or(&[]);
        if let Err(syndrome) = host.scatter_receive(attr.qpn, &wqe, skip, written) {
            return fail((wqe.index, wqe.pool), syndrome, attr, host);
        }
        let source =
            DatagramSource { qpn: deth.src_qp, pkey: packet.bth.pkey, layers: packet.layers };
        let received = Received {
            kind: packet.ext.imm.map_or(RecvKind::Send, RecvKind::SendImm),
            byte_len,
            solicited: packet.bth.solicited,
            congested: packet.congested(),
            source: Some(source),
            in_cqe: None,
        };
        let completion = RecvCompletion { index: wqe.index, pool: wqe.pool, result: Ok(received) };
        host.complete_recv(attr.qpn, completion);
        Ok(())
    }
}

/// The number others know this QP by.
fn wire_qpn(attr: &QpAttr) -> u32 {
    match attr.kind {
        QpKind::Gsi => GSI_QPN,
        QpKind::Smi => 0,
        QpKind::Ud
        | QpKind::Rc
        | QpKind::Uc
        | QpKind::XrcInitiator
        | QpKind::XrcTarget
        | QpKind::RegUmr => attr.qpn,
    }
}

fn fail(
    (index, pool): (u16, Option<u32>),
    syndrome: Syndrome,
    attr: &QpAttr,
    host: &mut dyn Host,
) -> Result<(), Fatal> {
    host.complete_recv(attr.qpn, RecvCompletion { index, pool, result: Err(syndrome) });
    Err(Fatal)
}
