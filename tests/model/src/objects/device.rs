//! The device as an engine or a raw queue sees it: memory under protection, completions, events.
//!
//! [`Device`] borrows the parts of the [`Hca`] that a running queue may touch, and is the `Host`
//! of the transport's engines. A frame only goes to the outbox; a queue that must fall because its
//! CQ fell only goes to the list of doomed ones: neither calls back into an engine.
//!
//! Length: it is one implementation of `Host`, in the order of the trait.

use super::cqe::{Cqe, CqeOpcode};
use super::mkey::{ANY_PD, ANY_QPN, ATOMIC, Access as KeyAccess, Denied, LR, LW, RR, RW, Run};
use super::qp::{Qp, Receives};
use super::rmp::{Kind, NO_USER_INDEX};
use super::{Objects, Outgoing};
use crate::bus::{Bus, Wrote};
use crate::counters;
use crate::eq::{Event, EventQueues, kind};
use crate::facts::{Facts, OpenFact};
use crate::function::RESERVED_LKEY;
use crate::hca::Hca;
use crate::host::{DmaError, Nanos};
use crate::ib::{IbPort, PORT};
use crate::ifc::caps::cmd_hca_cap;
use crate::ifc::counters::query_q_counter_out;
use crate::ifc::qp::qpc;
use crate::roce::RoceTable;
use crate::transport::host::{
    Access, BadWqe, DataSegment, Host, IbPath, IbSource, Layer3, QpEvent, QpKind, QpState,
    RecvCompletion, RecvKind, RecvWqe, RemoteAddress, RemoteFault, RoceAddress, SendCompletion,
    SendWqe, Syndrome, Tally, UmrWqe,
};
use crate::transport::packet::Layers;
use crate::wire::frame::DEFAULT_PKEY;
use crate::wire::ib::lid;

/// The parts of the device a running queue may touch.
pub(crate) struct Device<'a> {
    pub(crate) bus: &'a mut Bus,
    pub(crate) objects: &'a mut Objects,
    pub(crate) eqs: &'a mut EventQueues,
    roce: &'a RoceTable,
    ib: Option<&'a mut IbPort>,
    pub(super) umr: bool,
    /// A UMR may change relaxed ordering of writes, and of reads.
    pub(super) relaxed_umr: (bool, bool),
    pub(super) facts: &'a Facts,
    /// Inline mode that the device asks of every raw send.
    pub(crate) min_inline: u32,
    /// Completions have a user index.
    pub(super) user_index: bool,
}

/// On whose behalf local memory is touched.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owner {
    /// Number of the queue.
    pub(crate) qpn: u32,
    /// Its protection domain.
    pub(crate) pd: u32,
    /// It may use the reserved local key.
    pub(crate) rlky: bool,
}

impl<'a> Device<'a> {
    /// Borrows it from the whole.
    pub(crate) fn of(hca: &'a mut Hca) -> Self {
        let min_inline = match hca.config.facts.value(OpenFact::InlineMode) {
            None | Some(2) => 0,
            Some(0) => 1,
            Some(_) => hca.vport.min_inline(),
        };
        let relaxed_umr = (
            hca.caps.general(cmd_hca_cap::relaxed_ordering_write_umr) != 0,
            hca.caps.general(cmd_hca_cap::relaxed_ordering_read_umr) != 0,
        );
        let user_index = hca.caps.general(cmd_hca_cap::cqe_version) != 0;
        Self {
            bus: &mut hca.bus,
            objects: &mut hca.objects,
            eqs: &mut hca.eqs,
            roce: &hca.roce,
            ib: hca.ib.as_mut(),
            umr: hca.config.umr,
            relaxed_umr,
            facts: &hca.config.facts,
            min_inline,
            user_index,
        }
    }

    /// The bus addresses of a piece of local memory.
    fn local(&self, owner: Owner, segment: &DataSegment, rights: u8) -> Result<Vec<Run>, Denied> {
        let len = u64::from(segment.len);
        if segment.lkey == RESERVED_LKEY {
            if !owner.rlky {
                return Err(Denied::Rights);
            }
            return Ok(vec![Run { iova: segment.addr, len, relaxed: false }]);
        }
        self.objects.tpt.resolve(&KeyAccess {
            key: segment.lkey,
            va: segment.addr,
            len,
            rights,
            pd: owner.pd,
            qpn: owner.qpn,
        })
    }

    /// Reads local memory from `offset` bytes into the segments.
    pub(crate) fn gather_for(
        &mut self,
        owner: Owner,
        from: &[DataSegment],
        offset: u64,
        buf: &mut [u8],
    ) -> Result<(), Syndrome> {
        let pieces = cut(from, offset, buf.len() as u64).ok_or(Syndrome::LocalLength)?;
        let mut done = 0;
        for piece in pieces {
            let runs = self.local(owner, &piece, LR).map_err(|_| Syndrome::LocalProtection)?;
            for run in runs {
                let n = run.len as usize;
                self.bus
                    .read(run.iova, &mut buf[done..done + n])
                    .map_err(|_| Syndrome::LocalProtection)?;
                done += n;
            }
        }
        Ok(())
    }

    /// Writes local memory at `offset` bytes into the segments; all or nothing as far as keys go.
    pub(crate) fn scatter_for(
        &mut self,
        owner: Owner,
        to: &[DataSegment],
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), Syndrome> {
        let pieces = cut(to, offset, bytes.len() as u64).ok_or(Syndrome::LocalLength)?;
        let mut runs = Vec::new();
        for piece in pieces {
            runs.extend(self.local(owner, &piece, LW).map_err(|_| Syndrome::LocalProtection)?);
        }
        self.write_payload(&runs, bytes).map_err(|_| Syndrome::LocalProtection)
    }

    fn write_payload(&mut self, runs: &[Run], bytes: &[u8]) -> Result<(), DmaError> {
        let mut done = 0;
        for run in runs {
            let piece = &bytes[done..done + run.len as usize];
            if run.relaxed {
                self.bus.write_relaxed(run.iova, piece)?;
            } else {
                self.bus.write(Wrote::Payload, run.iova, piece)?;
            }
            done += piece.len();
        }
        Ok(())
    }

    fn owner(&self, qpn: u32) -> Option<Owner> {
        let qp = self.objects.qps.get(&qpn)?;
        let rlky = qpc::rlky.is_set(&qp.context);
        let pd = if qp.kind == QpKind::RegUmr { ANY_PD } else { qp.get(qpc::pd) };
        Some(Owner { qpn, pd, rlky })
    }

    /// Returns the key access that a peer's request asks for.
    fn remote_access(
        &self,
        qpn: u32,
        at: RemoteAddress,
        len: u64,
        access: Access,
    ) -> Result<KeyAccess, RemoteFault> {
        let mut owner = self.owner(qpn).ok_or(RemoteFault::Access)?;
        if let Some(pool) = at.pool {
            self.check_pool(qpn, pool)?;
            owner.pd = self.objects.rmps.get(&pool).map_or(owner.pd, |srq| srq.wq.pd);
        }
        let rights = match access {
            Access::Read => RR,
            Access::Write => RW,
            Access::Atomic => ATOMIC,
        };
        Ok(KeyAccess { key: at.rkey, va: at.va, len, rights, pd: owner.pd, qpn })
    }

    /// The bus addresses of memory a peer wants to touch.
    fn remote(
        &self,
        qpn: u32,
        at: RemoteAddress,
        len: u64,
        access: Access,
    ) -> Result<Vec<Run>, RemoteFault> {
        let access = self.remote_access(qpn, at, len, access)?;
        let runs = self.objects.tpt.resolve(&access);
        runs.map_err(|_| RemoteFault::Access)
    }

    /// A shared queue named by an XRC request must be of the XRC domain of the QP.
    fn check_pool(&self, qpn: u32, pool: u32) -> Result<(), RemoteFault> {
        let domain = self.qp(qpn).map(|qp| qp.get(qpc::xrcd));
        match self.objects.rmps.get(&pool).map(|rmp| rmp.kind) {
            Some(Kind::Xrc { xrcd, .. }) if Some(xrcd) == domain => Ok(()),
            Some(Kind::Xrc { .. } | Kind::Rmp | Kind::Srq) | None => Err(RemoteFault::Access),
        }
    }

    fn qp(&self, qpn: u32) -> Option<&Qp> {
        self.objects.qps.get(&qpn)
    }
}

/// The part of a segment list that `len` bytes from `offset` on cover; none when it ends early.
fn cut(segments: &[DataSegment], offset: u64, len: u64) -> Option<Vec<DataSegment>> {
    let (mut skip, mut left) = (offset, len);
    let mut out = Vec::new();
    for segment in segments {
        if left == 0 {
            break;
        }
        let whole = u64::from(segment.len);
        if skip >= whole {
            skip -= whole;
            continue;
        }
        let n = (whole - skip).min(left);
        out.push(DataSegment {
            len: n as u32,
            lkey: segment.lkey,
            addr: segment.addr.wrapping_add(skip),
        });
        skip = 0;
        left -= n;
    }
    (left == 0).then_some(out)
}

impl Host for Device<'_> {
    fn now(&self) -> Nanos {
        self.bus.now
    }

    fn fetch_send(&mut self, qpn: u32, index: u16) -> Option<Result<SendWqe, BadWqe>> {
        self.objects.qps.get_mut(&qpn)?.fetch_send(self.bus, index)
    }

    fn take_recv(
        &mut self,
        qpn: u32,
        pool: Option<u32>,
    ) -> Option<Result<RecvWqe, (u16, Syndrome)>> {
        let qp = self.objects.qps.get_mut(&qpn)?;
        let srqn = match (pool, qp.receives) {
            (Some(srqn), _) | (None, Receives::Shared(srqn)) => srqn,
            (None, Receives::Own | Receives::None) => return qp.take_recv(self.bus),
        };
        let (taken, limit) = self.objects.rmps.get_mut(&srqn)?.take(self.bus);
        if limit {
            // Queue type 1 stands for receive queues, shared ones included.
            self.eqs.raise(self.bus, &Event::queue(kind::SRQ_LIMIT, 1, srqn));
        }
        taken.map(|taken| taken.map(|wqe| RecvWqe { pool: Some(srqn), ..wqe }))
    }

    fn pool_check(&mut self, qpn: u32, pool: u32) -> Result<(), RemoteFault> {
        self.check_pool(qpn, pool)
    }

    fn scatter_receive(
        &mut self,
        qpn: u32,
        to: &RecvWqe,
        offset: u32,
        bytes: &[u8],
    ) -> Result<(), Syndrome> {
        let mut owner = self.owner(qpn).ok_or(Syndrome::LocalQpOperation)?;
        // A shared queue has a protection domain of its own.
        if let Some(rmp) = to.pool.and_then(|pool| self.objects.rmps.get(&pool)) {
            owner.pd = rmp.wq.pd;
        }
        self.scatter_for(owner, &to.segments, u64::from(offset), bytes)
    }

    fn gather(
        &mut self,
        qpn: u32,
        from: &[DataSegment],
        offset: u32,
        buf: &mut [u8],
    ) -> Result<(), Syndrome> {
        let owner = self.owner(qpn).ok_or(Syndrome::LocalQpOperation)?;
        self.gather_for(owner, from, u64::from(offset), buf)
    }

    fn scatter(
        &mut self,
        qpn: u32,
        to: &[DataSegment],
        offset: u32,
        bytes: &[u8],
    ) -> Result<(), Syndrome> {
        let owner = self.owner(qpn).ok_or(Syndrome::LocalQpOperation)?;
        self.scatter_for(owner, to, u64::from(offset), bytes)
    }

    fn remote_check(
        &mut self,
        qpn: u32,
        at: RemoteAddress,
        len: u64,
        access: Access,
    ) -> Result<(), RemoteFault> {
        let access = self.remote_access(qpn, at, len, access)?;
        let allowed = self.objects.tpt.check(&access);
        allowed.map_err(|_| RemoteFault::Access)
    }

    fn remote_read(
        &mut self,
        qpn: u32,
        at: RemoteAddress,
        buf: &mut [u8],
        access: Access,
    ) -> Result<(), RemoteFault> {
        let mut done = 0;
        for run in self.remote(qpn, at, buf.len() as u64, access)? {
            let n = run.len as usize;
            self.bus
                .read(run.iova, &mut buf[done..done + n])
                .map_err(|_| RemoteFault::Operation)?;
            done += n;
        }
        Ok(())
    }

    fn remote_write(
        &mut self,
        qpn: u32,
        at: RemoteAddress,
        bytes: &[u8],
        access: Access,
    ) -> Result<(), RemoteFault> {
        let mut runs = self.remote(qpn, at, bytes.len() as u64, access)?;
        // Nothing passes an atomic operation.
        runs.iter_mut().for_each(|run| run.relaxed &= access != Access::Atomic);
        self.write_payload(&runs, bytes).map_err(|_| RemoteFault::Operation)
    }

    fn remote_invalidate(&mut self, qpn: u32, rkey: u32) -> Result<(), RemoteFault> {
        let owner = self.owner(qpn).ok_or(RemoteFault::Access)?;
        let key = self.objects.tpt.get_mut(rkey >> 8).ok_or(RemoteFault::Access)?;
        let fits = !key.free
            && key.en_rinval
            && u32::from(key.variant) == rkey & 0xff
            && key.pd == owner.pd
            && (key.qpn == ANY_QPN || key.qpn == qpn);
        if !fits {
            return Err(RemoteFault::Access);
        }
        key.free = true;
        Ok(())
    }

    fn umr(&mut self, qpn: u32, wqe: &UmrWqe) -> Result<(), Syndrome> {
        let owner = self.owner(qpn).ok_or(Syndrome::LocalQpOperation)?;
        let privileged = self.qp(qpn).is_some_and(|qp| qp.kind == QpKind::RegUmr);
        self.umr_for(owner, privileged, wqe)
    }

    fn local_invalidate(&mut self, qpn: u32, key: u32) -> Result<(), Syndrome> {
        let owner = self.owner(qpn).ok_or(Syndrome::LocalQpOperation)?;
        let found = self.objects.tpt.get_mut(key >> 8).ok_or(Syndrome::LocalQpOperation)?;
        let fits = !found.free
            && found.umr_en
            && u32::from(found.variant) == key & 0xff
            && found.pd == owner.pd
            && (found.qpn == ANY_QPN || found.qpn == qpn);
        if !fits {
            return Err(Syndrome::LocalQpOperation);
        }
        found.free = true;
        Ok(())
    }

    fn roce_address(&self, index: u16) -> Option<RoceAddress> {
        let entry = self.roce.get(u32::from(index))?;
        Some(RoceAddress { mac: entry.mac, vlan: entry.vlan, ip: entry.ip(), v1: !entry.v2 })
    }

    fn ib_source(&self, path: &IbPath) -> Option<IbSource> {
        let port = self.ib.as_ref()?.port();
        let bits = !(!0 << port.lmc());
        let index = path.global.map_or(0, |global| usize::from(global.source_index));
        Some(IbSource {
            slid: port.lid() | u16::from(path.path_bits) & bits,
            vl: port.lane(0, path.sl),
            sgid: port.gid(index),
        })
    }

    fn p_key(&self, index: u16) -> u16 {
        let own = |ib: &&mut IbPort| ib.port().p_keys.get(usize::from(index)).copied().unwrap_or(0);
        self.ib.as_ref().map_or(DEFAULT_PKEY, own)
    }

    fn p_key_violation(&mut self) {
        if let Some(ib) = &mut self.ib {
            let why = ib.node.count_p_key(PORT);
            ib.node.drop(PORT, why);
        }
    }

    fn q_key_violation(&mut self) {
        if let Some(ib) = &mut self.ib {
            ib.node.count_q_key(PORT);
        }
    }

    fn complete_send(&mut self, qpn: u32, completion: SendCompletion) {
        let Some(qp) = self.qp(qpn) else { return };
        let Some(cqn) = qp.cqn_snd() else { return };
        let mut cqe = Cqe::new(CqeOpcode::Requester, qpn);
        cqe.user_index = self.user_index_of(qp.get(qpc::user_index));
        cqe.wqe_opcode = completion.opcode;
        cqe.wqe_counter = completion.index;
        cqe.byte_cnt = completion.byte_len;
        cqe.timestamp = self.bus.now;
        cqe.in_cqe = completion.in_cqe;
        if let Err(syndrome) = completion.result {
            let set = qp.get(qpc::counter_set_id);
            self.objects.tally(set, query_q_counter_out::req_cqe_error);
            if let Some(counter) = counters::of_requester(syndrome) {
                self.objects.tally(set, counter);
            }
            cqe.opcode = CqeOpcode::RequesterError;
            cqe.error = Some(syndrome);
        }
        self.complete(qpn, cqn, &cqe);
    }

    fn complete_recv(&mut self, qpn: u32, completion: RecvCompletion) {
        let Some(qp) = self.qp(qpn) else { return };
        let pool =
            completion.pool.and_then(|number| Some((number, self.objects.rmps.get(&number)?)));
        let (cqn, user_index) = match (pool, qp.get(qpc::user_index)) {
            (Some((number, srq)), own) => match srq.kind {
                Kind::Xrc { cqn, .. } => (Some(cqn), srq.completion_index(number)),
                Kind::Rmp | Kind::Srq if own == NO_USER_INDEX || !self.user_index => {
                    (qp.cqn_rcv(), number)
                }
                Kind::Rmp | Kind::Srq => (qp.cqn_rcv(), own),
            },
            (None, own) => (qp.cqn_rcv(), self.user_index_of(own)),
        };
        let Some(cqn) = cqn else { return };
        let mut cqe = Cqe::new(CqeOpcode::RespSend, qpn);
        cqe.user_index = user_index;
        cqe.wqe_counter = completion.index;
        cqe.timestamp = self.bus.now;
        let gsi = qp.kind == QpKind::Gsi;
        let set = qp.get(qpc::counter_set_id);
        match completion.result {
            Err(syndrome) => {
                self.objects.tally(set, query_q_counter_out::resp_cqe_error);
                if let Some(counter) = counters::of_responder(syndrome) {
                    self.objects.tally(set, counter);
                }
                cqe.opcode = CqeOpcode::ResponderError;
                cqe.error = Some(syndrome);
            }
            Ok(received) => {
                (cqe.opcode, cqe.immediate) = match received.kind {
                    RecvKind::Send => (CqeOpcode::RespSend, 0),
                    RecvKind::SendImm(imm) => (CqeOpcode::RespSendImm, imm),
                    RecvKind::SendInval(key) => (CqeOpcode::RespSendInv, key),
                    RecvKind::WriteImm(imm) => (CqeOpcode::RespWriteImm, imm),
                };
                cqe.byte_cnt = received.byte_len;
                cqe.in_cqe = received.in_cqe;
                cqe.solicited = received.solicited;
                cqe.congested = received.congested;
                if let Some(source) = received.source {
                    let flags = match &source.layers {
                        // GRH present, UDP present, layer 3 kind.
                        Layers::Roce(net) => {
                            if let Some(tci) = net.vlan {
                                cqe.vlan = tci;
                                cqe.l4_l3_hdr_type = 1;
                            }
                            1 << 28
                                | match net.layer3() {
                                    _ if self.facts.on(OpenFact::CqeL3Type) => 0,
                                    Layer3::Grh => 0,
                                    Layer3::Ipv6 => 1 << 27 | 1 << 24,
                                    Layer3::Ipv4 => 1 << 27 | 2 << 24,
                                }
                        }
                        // GRH present, service level (Linux `handle_responder`).
                        Layers::Ib { lrh, grh } => {
                            cqe.slid = lrh.slid;
                            let lmc = self.ib.as_ref().map_or(0, |ib| ib.port().lmc());
                            if lid::kind(lrh.dlid) == lid::Kind::Unicast {
                                cqe.path_bits = (lrh.dlid & !(!0 << lmc)) as u8;
                            }
                            u32::from(grh.is_some()) << 28 | u32::from(lrh.sl & 0xf) << 24
                        }
                    };
                    cqe.flags_rqpn = flags | (source.qpn & 0xff_ffff);
                    if gsi {
                        cqe.immediate = u32::from(source.pkey);
                    }
                }
            }
        }
        self.complete(qpn, cqn, &cqe);
    }

    fn qp_error(&mut self, qpn: u32, state: QpState) {
        if let Some(qp) = self.objects.qps.get_mut(&qpn) {
            qp.state = state;
        }
    }

    fn event(&mut self, qpn: u32, event: QpEvent) {
        let kind = match event {
            QpEvent::CommunicationEstablished => kind::COMM_ESTABLISHED,
            QpEvent::LastWqeReached => kind::LAST_WQE_REACHED,
            QpEvent::InvalidRequest => kind::WQ_INVALID_REQUEST,
            QpEvent::AccessError => kind::WQ_ACCESS_ERROR,
            QpEvent::Catastrophic => kind::WQ_CATASTROPHIC,
        };
        self.eqs.raise(self.bus, &Event::queue(kind, 0, qpn));
        let set = self.qp(qpn).map(|qp| qp.get(qpc::counter_set_id));
        if let (Some(set), Some(counter)) = (set, counters::of_event(event)) {
            self.objects.tally(set, counter);
        }
    }

    fn untouched(&self) -> u32 {
        if self.facts.value(OpenFact::GrhUpper) == Some(2) { 20 } else { 0 }
    }

    fn transmit(&mut self, frame: Vec<u8>) {
        let domain = None;
        self.objects.outbox.push_back(Outgoing { frame, domain });
    }

    fn retransmitted(&mut self) {
        self.bus.stats.retransmissions += 1;
    }

    fn count(&mut self, qpn: u32, what: Tally) {
        if let Some(set) = self.qp(qpn).map(|qp| qp.get(qpc::counter_set_id)) {
            self.objects.tally(set, counters::of_transport(what));
        }
    }
}

impl Objects {
    /// Marks every queue that completes to a CQ.
    pub(super) fn doom_users_of(&mut self, cqn: u32) {
        self.doomed.extend(self.cq_users.of(cqn));
    }
}
