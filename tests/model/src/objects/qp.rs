//! Queue pairs: rings, doorbell records, and what the transport reads of the context.
//!
//! The context is kept as the driver's own 232 bytes, into which a transition merges its fields
//! (`qp_state.rs`); QUERY_QP gives them back. The engine that speaks the wire stands in the object
//! and is taken out while it runs. PRM: queue pair context, work queue layout.

use super::blueflame::Pushed;
use super::buffer;
use super::umem::Uses;
use super::wqe::{self, Control, MAX_WQEBBS, WQEBB};
use crate::bus::Bus;
use crate::config::LinkLayer;
use crate::ifc::Field;
use crate::ifc::qp::{ads, qpc};
use crate::queue_memory::QueueMemory;
use crate::transport::Engine;
use crate::transport::host::{
    BadWqe, GlobalPath, IbPath, Path, QpAttr, QpKind, QpState, RecvWqe, RocePath, SendWqe, Syndrome,
};
use crate::watch::{Seen, Sends};

/// Which receive queue a QP has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Receives {
    /// Its own, in front of its send queue.
    Own,
    /// A shared one.
    Shared(u32),
    /// None.
    None,
}

/// One queue pair.
#[derive(Debug)]
pub(crate) struct Qp {
    /// Number.
    pub(crate) qpn: u32,
    /// Service.
    pub(crate) kind: QpKind,
    /// What its port speaks.
    pub(crate) link: LinkLayer,
    /// State.
    pub(crate) state: QpState,
    /// The context, current fields merged in.
    pub(crate) context: Vec<u8>,
    /// Both rings: receive queue first.
    pub(crate) ring: QueueMemory,
    /// Bytes of the receive ring.
    pub(crate) rq_bytes: u64,
    /// Where receives come from.
    pub(crate) receives: Receives,
    /// Bus address of the doorbell record.
    pub(crate) dbr: u64,
    /// The umems of rings and record.
    pub(crate) uses: Uses,
    /// A send doorbell rang since the record was read last.
    pub(crate) rung: bool,
    /// What came with the doorbell under way, for the first request that it makes the QP fetch.
    pub(crate) pushed: Option<Pushed>,
    /// Send WQEBBs posted, as the record said last.
    pub(crate) sq_producer: u16,
    /// Receive WQEs posted, as the record said last.
    pub(crate) rq_producer: u16,
    /// Next receive WQE to take.
    pub(crate) rq_head: u16,
    /// Its transport engine; taken out while it runs.
    pub(crate) engine: Option<Engine>,
}

/// A field of the primary path within the QP context.
pub(crate) const fn path(field: Field) -> Field {
    field.within(qpc::primary_address_path)
}

impl Qp {
    /// A field of the context.
    pub(crate) fn get(&self, field: Field) -> u32 {
        field.get(&self.context)
    }

    /// Basic blocks of the send ring; 0 without a send queue.
    pub(crate) fn sq_size(&self) -> u32 {
        if qpc::no_sq.is_set(&self.context) { 0 } else { 1 << self.get(qpc::log_sq_size) }
    }

    /// CQ of the send queue, if it has one.
    pub(crate) fn cqn_snd(&self) -> Option<u32> {
        (self.sq_size() != 0).then(|| self.get(qpc::cqn_snd))
    }

    /// CQ of the receive queue, if it has one.
    pub(crate) fn cqn_rcv(&self) -> Option<u32> {
        (self.receives != Receives::None).then(|| self.get(qpc::cqn_rcv))
    }

    /// Whether payload may stand in its completions.
    pub(crate) fn scatters_to_cqe(&self) -> bool {
        self.get(qpc::cs_res) | self.get(qpc::cs_req) != 0
    }

    /// Forgets everything posted, as a reset does.
    pub(crate) fn reset(&mut self) {
        self.rung = false;
        self.sq_producer = 0;
        self.rq_producer = 0;
        self.rq_head = 0;
    }

    /// The send WQE at `index`, or none posted there. The record is read only after a doorbell:
    /// the counter in the record then says how far to go, whatever the doorbell named. A WQE that
    /// came through BlueFlame is taken instead if nothing else is posted.
    pub(crate) fn fetch_send(
        &mut self,
        bus: &mut Bus,
        index: u16,
    ) -> Option<Result<SendWqe, BadWqe>> {
        let pushed = self.pushed.take();
        let size = self.sq_size();
        if size == 0 {
            return None;
        }
        if index == self.sq_producer {
            if !core::mem::take(&mut self.rung) {
                return None;
            }
            match bus.read_be32(self.dbr + 4) {
                Ok(word) => self.sq_producer = word as u16,
                Err(_) => return None,
            }
            if index == self.sq_producer {
                return None;
            }
        }
        let posted = self.sq_producer.wrapping_sub(index);
        if u32::from(posted) > size {
            bus.complain(format!(
                "QP {:#x}: doorbell record {:#x} runs {posted} blocks ahead of {index:#x}, \
                 the send queue has {size}",
                self.qpn, self.sq_producer
            ));
            self.sq_producer = index;
            return Some(Err(bad(0, Syndrome::LocalQpOperation)));
        }
        let Some(pushed) = pushed.filter(|pushed| pushed.is_next(index, posted)) else {
            return Some(self.read_send(bus, index, posted));
        };
        let (_, bytes) =
            pushed.take(bus, "QP", |bus, reader, out| self.read_sq(bus, reader, index, out));
        Some(self.parse_send(bus, &bytes))
    }

    fn read_send(&self, bus: &mut Bus, index: u16, posted: u16) -> Result<SendWqe, BadWqe> {
        let mut head = [0; 16];
        self.read_sq(bus, buffer::read, index, &mut head)
            .map_err(|()| bad(0, Syndrome::LocalQpOperation))?;
        let control = Control::parse(&head);
        let bbs = control.bbs();
        let wrong = if control.ds == 0 {
            Some("has no DS")
        } else if bbs > posted || bbs > MAX_WQEBBS {
            Some("has a DS beyond what the doorbell record posted")
        } else if control.index != index {
            Some("carries another index than its slot")
        } else if control.qpn != self.qpn {
            Some("carries another QPN")
        } else {
            None
        };
        if let Some(wrong) = wrong {
            bus.complain(format!(
                "QP {:#x}: send WQE at {index:#x} {wrong} (control {head:02x?})",
                self.qpn
            ));
            let syndrome = Syndrome::LocalQpOperation;
            return Err(BadWqe { syndrome, bbs: bbs.min(posted), opcode: control.opcode });
        }
        let mut bytes = vec![0; usize::from(control.ds) * 16];
        self.read_sq(bus, buffer::read, index, &mut bytes)
            .map_err(|()| bad(control.opcode, Syndrome::LocalQpOperation))?;
        self.parse_send(bus, &bytes)
    }

    fn parse_send(&self, bus: &mut Bus, bytes: &[u8]) -> Result<SendWqe, BadWqe> {
        bus.stats.wqes += 1;
        let kind = match self.kind {
            QpKind::Ud | QpKind::Gsi | QpKind::Smi => Sends::Datagrams,
            QpKind::XrcInitiator => Sends::Xrc,
            QpKind::Rc | QpKind::Uc | QpKind::XrcTarget | QpKind::RegUmr => Sends::Messages,
        };
        bus.show(&Seen::Send { kind, bytes });
        wqe::parse_send(bytes, self.kind, self.link)
    }

    /// Reads the send ring from WQEBB `index` on, wrapping at its end.
    fn read_sq(
        &self,
        bus: &mut Bus,
        reader: buffer::Reader,
        index: u16,
        out: &mut [u8],
    ) -> Result<(), ()> {
        let part = (self.rq_bytes, u64::from(self.sq_size()) * WQEBB as u64);
        let at = u64::from(index) * WQEBB as u64;
        buffer::read_wrapping(bus, reader, &self.ring, part, at, out).map_err(|_| ())
    }

    /// Whether receives are posted in the QP's own queue. The record is read when the known ones
    /// ran out.
    pub(crate) fn has_receives(&mut self, bus: &mut Bus) -> bool {
        if self.rq_head == self.rq_producer {
            let Ok(record) = bus.read_be32(self.dbr) else {
                return false;
            };
            self.rq_producer = record as u16;
        }
        self.rq_head != self.rq_producer
    }

    /// Takes the next receive of the QP's own queue.
    pub(crate) fn take_recv(&mut self, bus: &mut Bus) -> Option<Result<RecvWqe, (u16, Syndrome)>> {
        if self.receives != Receives::Own {
            return None;
        }
        let size = 1u32 << self.get(qpc::log_rq_size);
        if !self.has_receives(bus) {
            return None;
        }
        let index = self.rq_head;
        let posted = self.rq_producer.wrapping_sub(index);
        if u32::from(posted) > size {
            bus.complain(format!(
                "QP {:#x}: doorbell record posts {posted} receives beyond {index:#x}, \
                 the queue has {size}",
                self.qpn
            ));
            self.rq_producer = index;
            return None;
        }
        self.rq_head = index.wrapping_add(1);
        let stride = 16usize << self.get(qpc::log_rq_stride);
        let slot = u64::from(u32::from(index) & (size - 1)) * stride as u64;
        let mut bytes = vec![0; stride];
        Some(match buffer::read(bus, &self.ring, slot, &mut bytes) {
            Ok(()) => {
                bus.show(&Seen::Receive { bytes: &bytes });
                Ok(wqe::parse_recv(index, &bytes))
            }
            Err(_) => Err((index, Syndrome::LocalProtection)),
        })
    }

    /// The primary path.
    fn path(&self) -> Path {
        let field = |field: Field| self.get(path(field));
        let mut gid = [0; 16];
        gid.copy_from_slice(path(ads::rgid_rip).bytes(&self.context));
        let (tclass, dscp) = (field(ads::tclass) as u8, (field(ads::dscp) << 2) as u8);
        match self.link {
            LinkLayer::Ethernet => {
                let [_, _, high @ ..] = field(ads::rmac_47_32).to_be_bytes();
                let [a, b, c, d] = field(ads::rmac_31_0).to_be_bytes();
                Path::Roce(RocePath {
                    source_index: field(ads::src_addr_index) as u16,
                    dmac: [high[0], high[1], a, b, c, d],
                    dst: wqe::ip_of(gid),
                    hop_limit: field(ads::hop_limit) as u8,
                    tclass: if dscp != 0 { dscp | (tclass & 3) } else { tclass },
                    flow_label: field(ads::flow_label),
                    udp_sport: field(ads::udp_sport) as u16,
                    priority: field(ads::eth_prio) as u8,
                })
            }
            LinkLayer::InfiniBand => Path::Ib(IbPath {
                dlid: field(ads::rlid) as u16,
                path_bits: field(ads::mlid) as u8,
                sl: field(ads::sl) as u8,
                global: path(ads::grh).is_set(&self.context).then_some(GlobalPath {
                    source_index: field(ads::src_addr_index) as u8,
                    dgid: gid,
                    tclass,
                    flow_label: field(ads::flow_label),
                    hop_limit: field(ads::hop_limit) as u8,
                }),
            }),
        }
    }

    /// Returns the attributes that the transport needs.
    pub(crate) fn attr(&self) -> QpAttr {
        QpAttr {
            qpn: self.qpn,
            kind: self.kind,
            state: self.state,
            mtu: match self.get(qpc::mtu) {
                code @ 1..=5 => 128 << code,
                _ => 4096,
            },
            log_msg_max: match self.get(qpc::log_msg_max) as u8 {
                // A datagram QP may leave it out; its messages are bounded by the MTU anyway.
                0 if !matches!(self.kind, QpKind::Rc | QpKind::Uc) => 31,
                log => log,
            },
            remote_qpn: self.get(qpc::remote_qpn),
            rq_psn: self.get(qpc::next_rcv_psn),
            sq_psn: self.get(qpc::next_send_psn),
            path: self.path(),
            pkey_index: self.get(path(ads::pkey_index)) as u16,
            retry_count: self.get(qpc::retry_count) as u8,
            rnr_retry: self.get(qpc::rnr_retry) as u8,
            ack_timeout: self.get(path(ads::ack_timeout)) as u8,
            min_rnr_nak: self.get(qpc::min_rnr_nak) as u8,
            max_rd_atomic: 1 << self.get(qpc::log_sra_max),
            max_dest_rd_atomic: 1 << self.get(qpc::log_rra_max),
            remote_read: qpc::rre.is_set(&self.context),
            remote_write: qpc::rwe.is_set(&self.context),
            remote_atomic: qpc::rae.is_set(&self.context),
            qkey: self.get(qpc::q_key),
            srq: matches!(self.receives, Receives::Shared(_)),
            in_cqe_receive: form(self.get(qpc::cs_res)),
            in_cqe_answer: form(self.get(qpc::cs_req)),
            ..QpAttr::default()
        }
    }
}

/// Bytes of payload in a completion, by the code of `cs_res` or `cs_req`.
const fn form(code: u32) -> u8 {
    match code & 3 {
        1 => 32,
        2 => 64,
        _ => 0,
    }
}

const fn bad(opcode: u8, syndrome: Syndrome) -> BadWqe {
    BadWqe { syndrome, bbs: 1, opcode }
}
