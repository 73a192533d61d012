//! Tests of the objects over a plain memory, command by command and store by store.

mod blueflame;
mod compress;
mod cq;
mod ethernet;
mod facts;
mod flow;
mod ib;
mod in_cqe;
mod keys;
mod moderation;
mod offloads;
mod orders;
mod qp;
mod relaxed;
mod scale;
mod shared;
mod umem;
mod umr;
mod wqe;

use super::*;
use crate::cmd::Refusal;
use crate::cmd::table::find;
use crate::config::Config;
use crate::hca::Hca;
use crate::host::{DmaError, HostMemory};
use crate::ifc::Field;
use crate::ifc::cmd::head_out;
use crate::ifc::eq::{create_eq_in, eqc};
use crate::ifc::{cq as cq_ifc, mkey as mkey_ifc, qp as qp_ifc, wq as wq_ifc};
use crate::wire::Wire;
use std::sync::{Arc, Mutex};

/// First bus address of the memory, and its size.
pub(super) const BASE: u64 = 0x10_0000;
pub(super) const SIZE: usize = 0x10_0000;

/// Pages handed to the parts of a rig.
pub(super) const EQ_PAGE: u64 = BASE;
pub(super) const CQ_PAGE: u64 = BASE + 0x1000;
pub(super) const QP_PAGE: u64 = BASE + 0x2000;
pub(super) const SQ_PAGE: u64 = BASE + 0x4000;
pub(super) const RQ_PAGE: u64 = BASE + 0x5000;
pub(super) const DBR: u64 = BASE + 0x8000;
pub(super) const CQ_DBR: u64 = DBR;
pub(super) const QP_DBR: u64 = DBR + 0x40;
pub(super) const SQ_DBR: u64 = DBR + 0x80;
pub(super) const RQ_DBR: u64 = DBR + 0xc0;
pub(super) const DATA: u64 = BASE + 0x1_0000;

#[derive(Clone)]
struct Memory(Arc<Mutex<Vec<u8>>>);

impl HostMemory for Memory {
    fn read(&mut self, iova: u64, buf: &mut [u8]) -> Result<(), DmaError> {
        let memory = self.0.lock().unwrap();
        let at = iova.wrapping_sub(BASE) as usize;
        let end = at.checked_add(buf.len()).ok_or(DmaError::Refused(iova))?;
        buf.copy_from_slice(memory.get(at..end).ok_or(DmaError::Refused(iova))?);
        Ok(())
    }

    fn write(&mut self, iova: u64, buf: &[u8]) -> Result<(), DmaError> {
        let mut memory = self.0.lock().unwrap();
        let at = iova.wrapping_sub(BASE) as usize;
        let end = at.checked_add(buf.len()).ok_or(DmaError::Refused(iova))?;
        memory.get_mut(at..end).ok_or(DmaError::Refused(iova))?.copy_from_slice(buf);
        Ok(())
    }
}

type Frames = Arc<Mutex<VecDeque<Vec<u8>>>>;

/// A wire whose two directions the test holds.
struct TestWire {
    sent: Frames,
    coming: Frames,
}

impl Wire for TestWire {
    fn send(&mut self, frame: &[u8]) {
        self.sent.lock().unwrap().push_back(frame.to_vec());
    }

    fn recv(&mut self) -> Option<Vec<u8>> {
        self.coming.lock().unwrap().pop_front()
    }
}

/// A device with UAR, PD, TD and one EQ.
pub(super) struct Rig {
    pub(super) hca: Hca,
    memory: Memory,
    pub(super) sent: Frames,
    pub(super) coming: Frames,
    pub(super) uar: u32,
    pub(super) pd: u32,
    pub(super) td: u32,
    pub(super) eqn: u32,
}

impl Rig {
    pub(super) fn new() -> Self {
        Self::with_facts("")
    }

    pub(super) fn with_facts(facts: &str) -> Self {
        Self::with(Config { facts: facts.parse().unwrap(), ..Config::default() })
    }

    pub(super) fn with(config: Config) -> Self {
        let memory = Memory(Arc::new(Mutex::new(vec![0; SIZE])));
        let (sent, coming) = (Frames::default(), Frames::default());
        let wire = TestWire { sent: Arc::clone(&sent), coming: Arc::clone(&coming) };
        let mut hca = Hca::new(config, Box::new(memory.clone()), Box::new(wire));
        hca.bus.master = true;
        hca.vport.roce_enabled = true;
        let uar = hca.ids.uar.take().unwrap();
        let pd = hca.ids.pd.take().unwrap();
        let td = hca.ids.td.take().unwrap();
        let mut rig = Self { hca, memory, sent, coming, uar, pd, td, eqn: 0 };
        let mut input = vec![0; 288];
        let context = create_eq_in::eq_context_entry.bytes_mut(&mut input);
        eqc::log_eq_size.set(context, 5);
        eqc::uar_page.set(context, uar);
        create_eq_in::event_bitmask.bytes_mut(&mut input)[..8]
            .copy_from_slice(&0x1f02beu64.to_be_bytes());
        put_page(&mut input, create_eq_in::pas, EQ_PAGE);
        rig.eqn = rig.run(0x301, &input).unwrap() & 0xff;
        rig
    }

    /// Runs a command; the answer is the number it returns.
    pub(super) fn run(&mut self, opcode: u16, input: &[u8]) -> Result<u32, Refusal> {
        let mut output = vec![0; 512];
        self.query(opcode, input, &mut output)?;
        Ok(head_out::number.get(&output) & 0xff_ffff)
    }

    pub(super) fn query(
        &mut self,
        opcode: u16,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<(), Refusal> {
        let mut input = input.to_vec();
        input[..2].copy_from_slice(&opcode.to_be_bytes());
        let row = find(opcode).unwrap();
        assert!(input.len() >= row.input, "{} input too short", row.name);
        (row.run)(&mut self.hca, &input, output)
    }

    /// A command that only names an object.
    pub(super) fn short(&mut self, opcode: u16, number: u32) -> Result<u32, Refusal> {
        let mut input = vec![0; 16];
        input[8..12].copy_from_slice(&number.to_be_bytes());
        self.run(opcode, &input)
    }

    pub(super) fn poke(&mut self, iova: u64, bytes: &[u8]) {
        self.memory.write(iova, bytes).unwrap();
    }

    pub(super) fn peek(&mut self, iova: u64, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        self.memory.read(iova, &mut out).unwrap();
        out
    }

    pub(super) fn poke32(&mut self, iova: u64, word: u32) {
        self.poke(iova, &word.to_be_bytes());
    }

    /// A CQ of `1 << log` entries, prefilled as software does.
    pub(super) fn cq(&mut self, log: u32) -> u32 {
        self.cq_with(log, |_| {}).unwrap()
    }

    pub(super) fn cq_with(
        &mut self,
        log: u32,
        edit: impl FnOnce(&mut [u8]),
    ) -> Result<u32, Refusal> {
        use cq_ifc::{cqc, create_cq_in};
        let fill = vec![0xf1; 64 << log.min(6)];
        self.poke(CQ_PAGE, &fill);
        self.poke(CQ_DBR, &[0; 8]);
        let mut input = vec![0; 280];
        let context = create_cq_in::cqc.bytes_mut(&mut input);
        cqc::log_cq_size.set(context, log);
        cqc::uar_page.set(context, self.uar);
        cqc::c_eqn_or_apu_element.set(context, self.eqn);
        cqc::dbr_addr.set64(context, CQ_DBR);
        edit(context);
        put_page(&mut input, create_cq_in::pas, CQ_PAGE);
        self.run(0x400, &input)
    }

    /// The CREATE_QP input of an RC QP with 16 receives of 16 bytes and a send ring of 4 blocks.
    pub(super) fn qp_input(&self, cqn: u32) -> Vec<u8> {
        use qp_ifc::{qp_in, qpc};
        let mut input = vec![0; 280];
        let context = qp_in::qpc.bytes_mut(&mut input);
        for (field, value) in [
            (qpc::pm_state, 3),
            (qpc::pd, self.pd),
            (qpc::uar_page, self.uar),
            (qpc::log_rq_size, 4),
            (qpc::log_rq_stride, 0),
            (qpc::log_sq_size, 2),
            (qpc::cqn_snd, cqn),
            (qpc::cqn_rcv, cqn),
            (qpc::user_index, 0x1234),
            (qpc::rlky, 1),
        ] {
            field.set(context, value);
        }
        qpc::dbr_addr.set64(context, QP_DBR);
        put_page(&mut input, qp_in::pas, QP_PAGE);
        input
    }

    pub(super) fn qp(&mut self, cqn: u32) -> u32 {
        let input = self.qp_input(cqn);
        self.run(0x500, &input).unwrap()
    }

    /// A transition with some fields of the context.
    pub(super) fn modify(
        &mut self,
        opcode: u16,
        qpn: u32,
        mask: u32,
        fields: &[(Field, u32)],
    ) -> Result<u32, Refusal> {
        let mut input = vec![0; 272];
        input[8..12].copy_from_slice(&qpn.to_be_bytes());
        qp_ifc::qp_in::opt_param_mask.set(&mut input, mask);
        let context = qp_ifc::qp_in::qpc.bytes_mut(&mut input);
        for (field, value) in fields {
            field.set(context, *value);
        }
        self.run(opcode, &input)
    }

    /// CREATE_RMP of four linked entries of 32 bytes.
    pub(super) fn rmp(&mut self, dbr: u64, page: u64) -> u32 {
        use crate::ifc::wq::{rmp_in, rmpc, wq};
        let mut input = vec![0; 280];
        let context = rmp_in::rmpc.bytes_mut(&mut input);
        rmpc::state.set(context, 1);
        let inner = rmpc::wq.bytes_mut(context);
        wq::pd.set(inner, self.pd);
        wq::dbr_addr.set64(inner, dbr);
        wq::log_wq_stride.set(inner, 5);
        wq::log_wq_sz.set(inner, 2);
        put_page(&mut input, rmp_in::pas, page);
        self.run(0x90c, &input).unwrap()
    }

    /// An MTT key over one page at `DATA`, or what `edit` makes of it.
    pub(super) fn key(&mut self, edit: impl FnOnce(&mut [u8])) -> Result<u32, Refusal> {
        self.key_on(DATA, edit)
    }

    /// The same over another page.
    pub(super) fn key_on(
        &mut self,
        page: u64,
        edit: impl FnOnce(&mut [u8]),
    ) -> Result<u32, Refusal> {
        use mkey_ifc::{create_mkey_in, mkc};
        let mut input = vec![0; 288];
        create_mkey_in::translations_octword_actual_size.set(&mut input, 1);
        let context = create_mkey_in::memory_key_mkey_entry.bytes_mut(&mut input);
        for (field, value) in [
            (mkc::access_mode_1_0, 1),
            (mkc::umr_en, 1),
            (mkc::lr, 1),
            (mkc::lw, 1),
            (mkc::rr, 1),
            (mkc::rw, 1),
            (mkc::a, 1),
            (mkc::qpn, 0xff_ffff),
            (mkc::mkey_7_0, 0x5a),
            (mkc::pd, self.pd),
            (mkc::translations_octword_size, 1),
            (mkc::log_page_size, 12),
        ] {
            field.set(context, value);
        }
        mkc::start_addr.set64(context, DATA);
        mkc::len.set64(context, 0x1000);
        edit(context);
        put_page(&mut input, create_mkey_in::klm_pas_mtt, page);
        let variant = mkc::mkey_7_0.get(create_mkey_in::memory_key_mkey_entry.bytes(&input));
        Ok((self.run(0x200, &input)? << 8) | variant)
    }

    /// The frames of a raw send queue with `1 << log` blocks.
    pub(super) fn sq(&mut self, cqn: u32, tis: Option<u32>) -> u32 {
        use wq_ifc::{sq_in, sqc, wq};
        let mut input = vec![0; 280];
        let context = sq_in::sqc.bytes_mut(&mut input);
        sqc::rlky.set(context, 1);
        sqc::min_wqe_inline_mode.set(context, 1);
        sqc::cqn.set(context, cqn);
        if let Some(tis) = tis {
            sqc::tis_lst_sz.set(context, 1);
            sqc::tis_num_0.set(context, tis);
        }
        let inner = sqc::wq.bytes_mut(context);
        wq::wq_type.set(inner, 1);
        wq::pd.set(inner, self.pd);
        wq::uar_page.set(inner, self.uar);
        wq::dbr_addr.set64(inner, SQ_DBR);
        wq::log_wq_stride.set(inner, 6);
        wq::log_wq_sz.set(inner, 2);
        put_page(&mut input, sq_in::pas, SQ_PAGE);
        self.run(0x904, &input).unwrap()
    }

    pub(super) fn rq(&mut self, cqn: u32) -> u32 {
        use wq_ifc::{rq_in, rqc, wq};
        let mut input = vec![0; 280];
        let context = rq_in::rqc.bytes_mut(&mut input);
        rqc::rlky.set(context, 1);
        rqc::cqn.set(context, cqn);
        let inner = rqc::wq.bytes_mut(context);
        wq::wq_type.set(inner, 1);
        wq::pd.set(inner, self.pd);
        wq::dbr_addr.set64(inner, RQ_DBR);
        wq::log_wq_stride.set(inner, 4);
        wq::log_wq_sz.set(inner, 3);
        put_page(&mut input, rq_in::pas, RQ_PAGE);
        self.run(0x908, &input).unwrap()
    }

    /// MODIFY_SQ or MODIFY_RQ between two states.
    pub(super) fn ready(
        &mut self,
        opcode: u16,
        number: u32,
        from: u32,
        to: u32,
    ) -> Result<u32, Refusal> {
        let mut input = vec![0; 272];
        input[8..12].copy_from_slice(&((from << 28) | number).to_be_bytes());
        // Both contexts hold the state in the same place.
        wq_ifc::sqc::state.set(wq_ifc::sq_in::sqc.bytes_mut(&mut input), to);
        self.run(opcode, &input)
    }

    /// Rings the send doorbell of a queue.
    pub(super) fn ring(&mut self, number: u32) {
        let mut bytes = [0; 8];
        bytes[4..].copy_from_slice(&(number << 8).to_be_bytes());
        send_doorbell(&mut self.hca, self.uar, 0x800, &bytes);
    }

    pub(super) fn cqe(&mut self, slot: u64) -> Vec<u8> {
        self.peek(CQ_PAGE + slot * 64, 64)
    }

    /// Types of the events written so far.
    pub(super) fn events(&mut self) -> Vec<u8> {
        let eq = self.peek(EQ_PAGE, 64 * 32);
        let count = self.hca.bus.stats.eqes as usize;
        eq.chunks(64).take(count).map(|e| e[1]).collect()
    }

    pub(super) fn complained(&self, of: &str) -> bool {
        self.hca.complaints().iter().any(|c| c.contains(of))
    }
}

pub(super) fn put_page(input: &mut [u8], pas: Field, page: u64) {
    let at = pas.byte();
    input[at..at + 8].copy_from_slice(&page.to_be_bytes());
}

/// A control segment.
pub(super) fn control(opcode: u8, index: u16, qpn: u32, ds: u8, imm: u32) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend((u32::from(index) << 8 | u32::from(opcode)).to_be_bytes());
    out.extend((qpn << 8 | u32::from(ds)).to_be_bytes());
    out.extend([0, 0, 0, 8]);
    out.extend(imm.to_be_bytes());
    out
}

/// A data pointer.
pub(super) fn pointer(len: u32, lkey: u32, addr: u64) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend(len.to_be_bytes());
    out.extend(lkey.to_be_bytes());
    out.extend(addr.to_be_bytes());
    out
}
