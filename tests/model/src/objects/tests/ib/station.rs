//! One device with its queue pairs and one completion queue.

use super::*;
use crate::ifc::cqe::cqe as cqe_layout;
use crate::ifc::qp::{ads, mcg_in, qp_in, qpc};
use crate::ifc::wqe::wqe_av;
use crate::objects::qp::path;
use crate::subnet::port::Port;

/// Entries of the completion queue, by their logarithm.
const LOG_CQ: u32 = 6;
/// Blocks of a send ring.
const BLOCKS: u16 = 32;
/// The reserved key: physical addresses.
const LKEY: u32 = crate::function::RESERVED_LKEY;
/// Q_Key of every datagram queue pair here.
pub(in super::super) const Q_KEY: u32 = 0x1234;

/// What a receive ended with.
#[derive(Clone, Debug)]
pub(in super::super) struct Got {
    pub(in super::super) qpn: u32,
    pub(in super::super) opcode: u32,
    pub(in super::super) syndrome: u8,
    pub(in super::super) len: u32,
    pub(in super::super) bytes: Vec<u8>,
    pub(in super::super) src_qp: u32,
    pub(in super::super) slid: u32,
    pub(in super::super) sl: u32,
    pub(in super::super) has_grh: bool,
    pub(in super::super) path_bits: u32,
    pub(in super::super) p_key: u32,
}

pub(in super::super) struct Station {
    pub(in super::super) rig: Rig,
    cqn: u32,
    consumed: u32,
    qps: Vec<u32>,
    sent: Posted,
    posted: Posted,
    taken: Posted,
    smi: Option<u32>,
    events: usize,
    waiting: Vec<Got>,
}

impl Station {
    pub(super) fn new(config: Config) -> Self {
        let mut rig = Rig::with(config);
        let cqn = rig.cq(LOG_CQ);
        Self {
            rig,
            cqn,
            consumed: 0,
            qps: Vec::new(),
            sent: Posted::new(),
            posted: Posted::new(),
            taken: Posted::new(),
            smi: None,
            events: 0,
            waiting: Vec::new(),
        }
    }

    pub(in super::super) fn port(&self) -> &Port {
        self.rig.hca.ib.as_ref().unwrap().port()
    }

    fn index(&self, qpn: u32) -> u64 {
        self.qps.iter().position(|own| *own == qpn).unwrap() as u64
    }

    fn ring(&self, qpn: u32) -> u64 {
        BASE + 0x2_0000 + self.index(qpn) * 0x1000
    }

    fn record(&self, qpn: u32) -> u64 {
        BASE + 0x9000 + self.index(qpn) * 0x40
    }

    /// Where a queue pair's data lies: 16 receives of 1 KiB, then what it sends.
    pub(in super::super) fn data(&self, qpn: u32) -> u64 {
        BASE + 0x4_0000 + self.index(qpn) * 0x8000
    }

    /// A queue pair of a service type, in RESET.
    pub(in super::super) fn create(&mut self, service: u32) -> Result<u32, Refusal> {
        let mut input = self.rig.qp_input(self.cqn);
        let (ring, record) = {
            let n = self.qps.len() as u64;
            (BASE + 0x2_0000 + n * 0x1000, BASE + 0x9000 + n * 0x40)
        };
        let context = qp_in::qpc.bytes_mut(&mut input);
        qpc::st.set(context, service);
        qpc::log_sq_size.set(context, 5);
        qpc::dbr_addr.set64(context, record);
        put_page(&mut input, qp_in::pas, ring);
        let qpn = self.rig.run(0x500, &input)?;
        self.qps.push(qpn);
        Ok(qpn)
    }

    /// A datagram queue pair in RTS.
    pub(in super::super) fn datagrams(&mut self, service: u32, q_key: u32, p_key: u32) -> u32 {
        let qpn = self.create(service).unwrap();
        let init = [
            (path(ads::vhca_port_num), 1),
            (path(ads::pkey_index), p_key),
            (qpc::q_key, q_key),
            (qpc::pm_state, 3),
            (qpc::mtu, 5),
        ];
        self.rig.modify(0x502, qpn, 0, &init).unwrap();
        self.rig.modify(0x503, qpn, 0, &[(qpc::mtu, 5)]).unwrap();
        self.rig.modify(0x504, qpn, 0, &[]).unwrap();
        qpn
    }

    /// A queue pair of reliable connections in INIT.
    pub(in super::super) fn connection(&mut self) -> u32 {
        self.connection_of(0)
    }

    /// The same of a service type.
    pub(in super::super) fn connection_of(&mut self, service: u32) -> u32 {
        let qpn = self.create(service).unwrap();
        let init =
            [(path(ads::vhca_port_num), 1), (qpc::pm_state, 3), (qpc::rre, 1), (qpc::rwe, 1)];
        self.rig.modify(0x502, qpn, 0, &init).unwrap();
        qpn
    }

    /// Connects it.
    pub(in super::super) fn connect(
        &mut self,
        qpn: u32,
        peer: u32,
        address: &[(Field, u32)],
    ) -> Result<u32, Refusal> {
        let mut fields = vec![(qpc::mtu, 3), (qpc::log_msg_max, 30), (qpc::remote_qpn, peer)];
        fields.extend(address.iter().map(|(field, value)| (path(*field), *value)));
        self.rig.modify(0x503, qpn, 0, &fields)?;
        let fields = [(qpc::retry_count, 1), (qpc::rnr_retry, 1), (path(ads::ack_timeout), 10)];
        self.rig.modify(0x504, qpn, 0, &fields)
    }

    /// Queue pair 0, which it has from the first call on.
    pub(super) fn qp0(&mut self) -> u32 {
        if let Some(qpn) = self.smi {
            return qpn;
        }
        let qpn = self.datagrams(7, 0, 0);
        self.smi = Some(qpn);
        qpn
    }

    /// Posts a receive of 1 KiB, filled with 0xee.
    pub(in super::super) fn receive(&mut self, qpn: u32) {
        let index = *self.posted.entry(qpn).or_default();
        let to = self.data(qpn) + u64::from(index % 16) * 0x400;
        self.rig.poke(to, &[0xee; 0x400]);
        let ring = self.ring(qpn) + u64::from(index % 16) * 16;
        self.rig.poke(ring, &pointer(0x400, LKEY, to));
        self.posted.insert(qpn, index.wrapping_add(1));
        let record = self.record(qpn);
        self.rig.poke32(record, u32::from(index.wrapping_add(1)));
    }

    fn post(&mut self, qpn: u32, opcode: u8, body: &[u8]) {
        let index = *self.sent.entry(qpn).or_default();
        let ds = 1 + body.len() as u8 / 16;
        let mut wqe = control(opcode, index, qpn, ds, 0);
        wqe.extend_from_slice(body);
        let at = self.ring(qpn) + 256 + u64::from(index % BLOCKS) * 64;
        self.rig.poke(at, &wqe);
        let next = index.wrapping_add(u16::from(ds).div_ceil(4));
        self.sent.insert(qpn, next);
        let record = self.record(qpn);
        self.rig.poke32(record + 4, next.into());
        self.rig.ring(qpn);
    }

    fn outgoing(&mut self, qpn: u32, bytes: &[u8]) -> Vec<u8> {
        let from = self.data(qpn) + 0x4000;
        self.rig.poke(from, bytes);
        pointer(bytes.len() as u32, LKEY, from)
    }

    /// Sends a datagram to an address vector of some fields.
    pub(in super::super) fn send_datagram(
        &mut self,
        qpn: u32,
        address: &[(Field, u32)],
        bytes: &[u8],
    ) {
        self.send_global(qpn, address, [0; 16], bytes);
    }

    /// The same with a destination GID.
    pub(in super::super) fn send_global(
        &mut self,
        qpn: u32,
        address: &[(Field, u32)],
        dgid: [u8; 16],
        bytes: &[u8],
    ) {
        let mut body = vec![0; wqe_av::BYTES];
        wqe_av::ext.set(&mut body, 1);
        wqe_av::qkey.set(&mut body, Q_KEY);
        wqe_av::rgid.bytes_mut(&mut body).copy_from_slice(&dgid);
        for (field, value) in address {
            field.set(&mut body, *value);
        }
        let data = self.outgoing(qpn, bytes);
        body.extend_from_slice(&data);
        self.post(qpn, 0x0a, &body);
    }

    /// Sends on a connection.
    pub(in super::super) fn send(&mut self, qpn: u32, bytes: &[u8]) {
        let data = self.outgoing(qpn, bytes);
        self.post(qpn, 0x0a, &data);
    }

    /// RDMA WRITE (0x08) or READ (0x10).
    pub(in super::super) fn remote(
        &mut self,
        qpn: u32,
        opcode: u8,
        at: u64,
        rkey: u32,
        bytes: &[u8],
    ) {
        let mut body = at.to_be_bytes().to_vec();
        body.extend(rkey.to_be_bytes());
        body.extend([0; 4]);
        let data = self.outgoing(qpn, bytes);
        body.extend_from_slice(&data);
        self.post(qpn, opcode, &body);
    }

    /// Everything completed since the last call.
    pub(in super::super) fn completions(&mut self) -> Vec<Got> {
        let mut out = std::mem::take(&mut self.waiting);
        loop {
            let slot = u64::from(self.consumed % (1 << LOG_CQ));
            let cqe = self.rig.cqe(slot);
            let turn = self.consumed >> LOG_CQ & 1;
            let opcode = cqe_layout::opcode.get(&cqe);
            if opcode == 0xf || cqe_layout::owner.get(&cqe) != turn {
                return out;
            }
            self.consumed += 1;
            self.rig.poke32(CQ_DBR, self.consumed & 0xff_ffff);
            let qpn = cqe_layout::qpn.get(&cqe);
            let len = cqe_layout::byte_cnt.get(&cqe);
            let mut bytes = Vec::new();
            if matches!(opcode, 1..=4) {
                let index = self.taken.entry(qpn).or_default();
                let slot = u64::from(*index % 16);
                *index = index.wrapping_add(1);
                let from = self.data(qpn) + slot * 0x400;
                bytes = self.rig.peek(from, len as usize);
            }
            let flags = cqe_layout::flags_rqpn.get(&cqe);
            out.push(Got {
                qpn,
                opcode,
                syndrome: if opcode >= 13 { cqe[0x37] } else { 0 },
                len,
                bytes,
                src_qp: flags & 0xff_ffff,
                slid: cqe_layout::slid.get(&cqe),
                sl: flags >> 24 & 0xf,
                has_grh: flags >> 28 & 3 != 0,
                path_bits: cqe_layout::ml_path.get(&cqe),
                p_key: cqe_layout::imm_inval_pkey.get(&cqe),
            });
        }
    }

    /// The next receive of a queue pair; what others completed waits.
    pub(in super::super) fn take_received(&mut self, qpn: u32) -> Option<Got> {
        let mut all = self.completions();
        let at = all.iter().position(|got| got.qpn == qpn && matches!(got.opcode, 1..=4));
        let found = at.map(|at| all.remove(at));
        self.waiting = all.into_iter().filter(|got| got.opcode != 0).collect();
        found
    }

    /// MAD_IFC with an op_mod.
    pub(in super::super) fn mad_ifc(
        &mut self,
        mad: &[u8; 256],
        op_mod: u32,
    ) -> Result<[u8; 256], Refusal> {
        let mut input = vec![0; 272];
        input[6..8].copy_from_slice(&(op_mod as u16).to_be_bytes());
        input[11] = 1;
        input[16..].copy_from_slice(mad);
        let mut output = vec![0; 272];
        self.rig.query(0x50d, &input, &mut output)?;
        Ok(output[16..].try_into().unwrap())
    }

    /// ATTACH_TO_MCG.
    pub(in super::super) fn attach(&mut self, qpn: u32, gid: [u8; 16]) -> Result<u32, Refusal> {
        let mut input = vec![0; 32];
        mcg_in::qpn.set(&mut input, qpn);
        mcg_in::multicast_gid.bytes_mut(&mut input).copy_from_slice(&gid);
        self.rig.run(0x806, &input)
    }

    /// Sub types of the PORT_CHANGE events since the last call.
    pub(super) fn changes(&mut self) -> Vec<u8> {
        let eq = self.rig.peek(EQ_PAGE, 64 * 32);
        let count = self.rig.hca.bus.stats.eqes as usize;
        let from = std::mem::replace(&mut self.events, count);
        let entries = (from..count).map(|n| &eq[n % 32 * 64..][..64]);
        entries
            .filter(|e| e[1] == 9)
            .map(|e| {
                assert_eq!(e[0x28] >> 4, 1, "the port");
                e[3]
            })
            .collect()
    }
}
