//! Raw Ethernet queues at work: the SQ that builds frames from work requests, the RQ that takes
//! them.
//!
//! An SQ in RDY runs from doorbell to doorbell record; an error completes the failing request with
//! its syndrome, takes the queue to ERR and flushes the rest. An RQ reads its record when a frame
//! needs a buffer; without one the frame is dropped and counted. Not here: multi-packet WQEs,
//! striding receive queues.

use super::Outgoing;
use super::blueflame::Pushed;
use super::cqe::{Cqe, CqeOpcode};
use super::device::{Device, Owner};
use super::ethernet::{EthSegment, Headers};
use super::lso;
use super::rss::Hash;
use super::wq::Wq;
use super::wqe::{self, Control, MAX_WQEBBS};
use crate::bus::Bus;
use crate::eq::{Event, kind};
use crate::ifc::counters::query_q_counter_out;
use crate::transport::host::{Payload, Syndrome, UmrWqe};
use crate::watch::{Seen, Sends};

const NOP: u8 = 0x00;
const SEND: u8 = 0x0a;
const LSO: u8 = 0x0e;
const UMR: u8 = 0x25;
const VLAN: [u8; 2] = [0x81, 0x00];
/// Most payload of a large send, as the capability `max_lso_cap` 18 says.
const MOST_LARGE: u64 = 1 << 18;

/// State of a raw queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WqState {
    /// Reset.
    Rst,
    /// Ready.
    Rdy,
    /// Error.
    Err,
}

impl WqState {
    /// From the context's number.
    pub(crate) const fn from_code(code: u32) -> Option<Self> {
        match code {
            0 => Some(Self::Rst),
            1 => Some(Self::Rdy),
            3 => Some(Self::Err),
            _ => None,
        }
    }

    /// The context's number.
    pub(crate) const fn code(self) -> u32 {
        match self {
            Self::Rst => 0,
            Self::Rdy => 1,
            Self::Err => 3,
        }
    }
}

/// A raw send queue.
#[derive(Debug)]
pub(crate) struct Sq {
    pub(crate) state: WqState,
    pub(crate) cqn: u32,
    pub(crate) uar: u32,
    /// TIS, if it sends at all (a queue for internal work has none).
    pub(crate) tis: Option<u32>,
    pub(crate) user_index: u32,
    pub(crate) rlky: bool,
    /// UMRs may be posted on it.
    pub(crate) reg_umr: bool,
    /// Which headers must be in the work request: 0 none, 1 layer 2, 2 IP, 3 TCP/UDP.
    pub(crate) min_inline: u32,
    pub(crate) wq: Wq,
    pub(crate) context: Vec<u8>,
}

/// A raw receive queue.
#[derive(Debug)]
pub(crate) struct Rq {
    pub(crate) state: WqState,
    pub(crate) cqn: u32,
    pub(crate) user_index: u32,
    pub(crate) rlky: bool,
    /// VLAN tags stay in the frame.
    pub(crate) keep_vlan: bool,
    /// Queue counters that count for it; 0 is none.
    pub(crate) counters: u32,
    pub(crate) wq: Wq,
    pub(crate) context: Vec<u8>,
}

impl Sq {
    /// Fetches the WQE at `index` from the ring, of which `posted` blocks are posted. A queue in
    /// error only looks at what it flushes.
    fn fetch(
        &self,
        bus: &mut Bus,
        sqn: u32,
        index: u16,
        posted: u16,
    ) -> (Control, Result<Vec<u8>, Syndrome>) {
        let mut head = [0; 16];
        let read = self.wq.read(bus, index, &mut head);
        let control = Control::parse(&head);
        if self.state == WqState::Err {
            return (control, Err(Syndrome::Flushed));
        }
        if read.is_err() {
            return (control, Err(Syndrome::LocalQpOperation));
        }
        let wrong = control.ds == 0
            || control.bbs() > posted
            || control.bbs() > MAX_WQEBBS
            || control.index != index
            || control.qpn != sqn;
        if wrong {
            bus.complain(format!(
                "SQ {sqn:#x}: WQE at {index:#x} does not fit its slot (control {head:02x?})"
            ));
            return (control, Err(Syndrome::LocalQpOperation));
        }
        let mut bytes = vec![0; usize::from(control.ds) * 16];
        let read = self.wq.read(bus, index, &mut bytes);
        (control, read.map(|()| bytes).map_err(|()| Syndrome::LocalQpOperation))
    }
}

impl Device<'_> {
    /// Runs a send queue up to its doorbell record. A WQE that came through BlueFlame is taken from
    /// there if nothing else is posted.
    pub(crate) fn run_sq(&mut self, sqn: u32, mut pushed: Option<Pushed>) {
        let Some(sq) = self.objects.sqs.get_mut(&sqn) else {
            return;
        };
        if sq.state == WqState::Rst {
            return;
        }
        if let Err(complaint) = sq.wq.refresh(self.bus) {
            self.bus.complain(format!("SQ {sqn:#x}: {complaint}"));
            return;
        }
        let is_pending = |sq: &Sq| sq.wq.head != sq.wq.producer;
        while self.objects.sqs.get(&sqn).is_some_and(is_pending) {
            self.one_send(sqn, pushed.take());
        }
    }

    fn one_send(&mut self, sqn: u32, pushed: Option<Pushed>) {
        let Some(sq) = self.objects.sqs.get(&sqn) else {
            return;
        };
        let index = sq.wq.head;
        let posted = sq.wq.producer.wrapping_sub(index);
        let failed = sq.state == WqState::Err;
        let pushed = pushed.filter(|pushed| !failed && pushed.is_next(index, posted));
        let (control, fetched) = match pushed {
            Some(pushed) => {
                let (control, bytes) = pushed.take(self.bus, "SQ", |bus, reader, out| {
                    sq.wq.read_by(bus, reader, index, out)
                });
                (control, Ok(bytes))
            }
            None => sq.fetch(self.bus, sqn, index, posted),
        };
        let bbs = control.bbs();
        let owner = Owner { qpn: sqn, pd: sq.wq.pd, rlky: sq.rlky };
        let result = fetched.and_then(|bytes| {
            self.bus.show(&Seen::Send { kind: Sends::Frames, bytes: &bytes });
            self.execute(sqn, owner, &control, &bytes)
        });
        self.bus.stats.wqes += 1;
        let Some(sq) = self.objects.sqs.get_mut(&sqn) else {
            return;
        };
        sq.wq.head = index.wrapping_add(bbs.min(posted));
        let (cqn, sq_index) = (sq.cqn, sq.user_index);
        let mut cqe = Cqe::new(CqeOpcode::Requester, sqn);
        cqe.user_index = self.user_index_of(sq_index);
        cqe.wqe_opcode = control.opcode;
        cqe.wqe_counter = index;
        cqe.timestamp = self.bus.now;
        match result {
            Ok(()) if !control.signaled() => return,
            Ok(()) => {}
            Err(syndrome) => {
                if let Some(sq) = self.objects.sqs.get_mut(&sqn) {
                    sq.state = WqState::Err;
                }
                cqe.opcode = CqeOpcode::RequesterError;
                cqe.error = Some(syndrome);
            }
        }
        self.complete(sqn, cqn, &cqe);
    }

    fn execute(
        &mut self,
        sqn: u32,
        owner: Owner,
        control: &Control,
        bytes: &[u8],
    ) -> Result<(), Syndrome> {
        let Some(sq) = self.objects.sqs.get(&sqn) else {
            return Ok(());
        };
        match control.opcode {
            NOP => Ok(()),
            UMR if sq.reg_umr => {
                let wqe = UmrWqe {
                    mkey: control.imm,
                    fence: control.fence,
                    segments: bytes[16..].to_vec(),
                };
                self.umr_for(owner, true, &wqe)
            }
            opcode @ (SEND | LSO) if sq.tis.is_some() => {
                let tis = sq.tis.and_then(|tis| self.objects.tiss.get(&tis));
                let domain = tis.map(|tis| tis.domain);
                let min_inline = sq.min_inline.max(self.min_inline);
                let frames = self.build(owner, &bytes[16..], min_inline, opcode == LSO)?;
                let frames = frames.into_iter();
                self.objects.outbox.extend(frames.map(|frame| Outgoing { frame, domain }));
                Ok(())
            }
            _ => Err(Syndrome::LocalQpOperation),
        }
    }

    /// The frames of a send WQE, from its Ethernet segment on: one, or those of a large send.
    fn build(
        &mut self,
        owner: Owner,
        bytes: &[u8],
        min_inline: u32,
        large: bool,
    ) -> Result<Vec<Vec<u8>>, Syndrome> {
        let segment = EthSegment::parse(bytes).ok_or(Syndrome::LocalQpOperation)?;
        if large != (segment.mss != 0) || (large && segment.vlan.is_some()) {
            return Err(Syndrome::LocalQpOperation);
        }
        let least = match min_inline {
            0 => 0,
            1 => 14,
            2 => 34,
            _ => 42,
        };
        if segment.vlan.is_none() && segment.inline.len() < least {
            self.bus.complain(format!(
                "SQ {:#x}: {} bytes inline, the queue's inline mode asks for {least}",
                owner.qpn,
                segment.inline.len()
            ));
            return Err(Syndrome::LocalLength);
        }
        let rest = bytes.get(segment.data_at..).unwrap_or(&[]);
        let data = wqe::parse_payload(rest)?;
        let payload = match data {
            Payload::Inline(more) => more,
            Payload::Segments(list) => {
                let total: u64 = list.iter().map(|s| u64::from(s.len)).sum();
                if total > if large { MOST_LARGE } else { 0x1_0000 } {
                    return Err(Syndrome::LocalLength);
                }
                let mut more = vec![0; total as usize];
                self.gather_for(owner, &list, 0, &mut more)?;
                more
            }
        };
        let mut frames = if large {
            lso::segments(&segment.inline, &payload, segment.mss)
                .ok_or(Syndrome::LocalQpOperation)?
        } else {
            vec![[segment.inline, payload].concat()]
        };
        for frame in &mut frames {
            if frame.len() < 14 {
                return Err(Syndrome::LocalLength);
            }
            if let Some(tci) = segment.vlan {
                frame.splice(12..12, VLAN.into_iter().chain(tci.to_be_bytes()));
            }
            if let Some(headers) = Headers::of(frame) {
                headers.offload(frame, segment.cs_flags);
            }
        }
        Ok(frames)
    }

    /// Hands a frame to a receive queue; dropped when the queue is not ready or has no buffer.
    pub(crate) fn receive_into(&mut self, rqn: u32, tag: u32, hash: Hash, frame: &[u8]) {
        let Some(rq) = self.objects.rqs.get_mut(&rqn) else {
            return;
        };
        if rq.state != WqState::Rdy {
            return;
        }
        if rq.wq.head == rq.wq.producer {
            if let Err(complaint) = rq.wq.refresh(self.bus) {
                self.bus.complain(format!("RQ {rqn:#x}: {complaint}"));
            }
        }
        if rq.wq.head == rq.wq.producer {
            let counters = rq.counters;
            self.objects.tally(counters, query_q_counter_out::out_of_buffer);
            return;
        }
        let index = rq.wq.head;
        rq.wq.head = index.wrapping_add(1);
        let mut entry = vec![0; 1 << rq.wq.log_stride];
        let read = rq.wq.read(self.bus, index, &mut entry);
        let (cqn, user_index) = (rq.cqn, rq.user_index);
        let owner = Owner { qpn: rqn, pd: rq.wq.pd, rlky: rq.rlky };
        let keep_vlan = rq.keep_vlan;
        // Where another completion names its queue, this one has the tag of the flow.
        let mut cqe = Cqe::new(CqeOpcode::RespSend, tag);
        cqe.user_index = self.user_index_of(user_index);
        cqe.wqe_counter = index;
        cqe.timestamp = self.bus.now;
        cqe.rss_hash = hash.result;
        cqe.rss_kind = hash.kind;
        let mut frame = frame.to_vec();
        if let Some(headers) = Headers::of(&frame) {
            cqe.hds_ip_ext = headers.verdict(&frame);
            cqe.l4_l3_hdr_type = headers.kinds(&frame);
            cqe.check_sum = headers.check_sum(&frame);
            if let Some(tci) = headers.vlan.filter(|_| !keep_vlan) {
                frame.drain(12..16);
                cqe.vlan = tci;
                cqe.l4_l3_hdr_type |= 1;
            }
        }
        cqe.byte_cnt = frame.len() as u32;
        let done = read.map_err(|()| Syndrome::LocalProtection).and_then(|()| {
            self.bus.show(&Seen::Receive { bytes: &entry });
            let segments = wqe::parse_recv(index, &entry).segments;
            self.scatter_for(owner, &segments, 0, &frame)
        });
        if let Err(syndrome) = done {
            cqe.opcode = CqeOpcode::ResponderError;
            cqe.error = Some(syndrome);
            cqe.qpn = rqn;
            self.complete(rqn, cqn, &cqe);
            self.eqs.raise(self.bus, &Event::queue(kind::WQ_CATASTROPHIC, 1, rqn));
            self.fail_rq(rqn);
        } else {
            self.complete(rqn, cqn, &cqe);
        }
    }

    /// Takes a receive queue to error and flushes what is posted.
    pub(crate) fn fail_rq(&mut self, rqn: u32) {
        let Some(rq) = self.objects.rqs.get_mut(&rqn) else {
            return;
        };
        rq.state = WqState::Err;
        if let Err(complaint) = rq.wq.refresh(self.bus) {
            self.bus.complain(format!("RQ {rqn:#x}: {complaint}"));
        }
        let (cqn, user_index) = (rq.cqn, rq.user_index);
        let left = rq.wq.producer.wrapping_sub(rq.wq.head);
        let first = rq.wq.head;
        rq.wq.head = rq.wq.producer;
        for k in 0..left {
            let mut cqe = Cqe::new(CqeOpcode::ResponderError, rqn);
            cqe.user_index = self.user_index_of(user_index);
            cqe.wqe_counter = first.wrapping_add(k);
            cqe.error = Some(Syndrome::Flushed);
            self.complete(rqn, cqn, &cqe);
        }
    }

    /// Takes a send queue to error and flushes what is posted.
    pub(crate) fn fail_sq(&mut self, sqn: u32) {
        if let Some(sq) = self.objects.sqs.get_mut(&sqn) {
            sq.state = WqState::Err;
            self.run_sq(sqn, None);
        }
    }
}
