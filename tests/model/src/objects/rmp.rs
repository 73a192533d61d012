//! Shared receive queues: receive memory pools, XRC SRQs, and the SRQs of ISSI 0.
//!
//! A linked-list pool begins each entry with a next segment; software links free entries and counts
//! them in the doorbell record, the device follows the links. The limit event fires once per
//! arming. An XRC SRQ has a CQ and a domain of its own; the others complete to the CQ of the QP.
//!
//! Not here: tag matching (XRQ). PRM: RMP, XRC SRQ and SRQ contexts.

use super::umem::Uses;
use super::wq::{Shape, Side, Wq};
use super::wqe;
use crate::bus::Bus;
use crate::cmd::{Refusal, Status};
use crate::hca::Hca;
use crate::ifc::cmd::{head_in, head_out};
use crate::ifc::wq::{rmp_bitmask, rmp_in, rmpc, srq_in, srqc, wq as wq_ifc, xrc_srq_in, xrc_srqc};
use crate::ifc::wqe::wqe_srq_next;
use crate::transport::host::{RecvWqe, Syndrome};
use crate::watch::Seen;

/// "Report by number" in a user index.
pub(crate) const NO_USER_INDEX: u32 = 0xff_ffff;

/// Which of the three kinds a queue is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Receive memory pool.
    Rmp,
    /// XRC SRQ.
    Xrc {
        /// Where its receives complete.
        cqn: u32,
        /// Its domain.
        xrcd: u32,
        /// The index that its completions name.
        user_index: u32,
    },
    /// SRQ of ISSI 0.
    Srq,
}

/// One shared receive queue.
#[derive(Debug)]
pub(crate) struct Rmp {
    /// Its kind.
    pub(crate) kind: Kind,
    /// The ring.
    pub(crate) wq: Wq,
    /// The context as the driver gave it.
    context: Vec<u8>,
    /// Slot of the next entry of a linked list.
    next: u16,
    /// Low water mark; 0 when not armed.
    limit: u16,
}

/// Takes the number and every reference of a queue that is in order.
fn insert(hca: &mut Hca, rmp: Rmp, output: &mut [u8]) -> Result<(), Refusal> {
    let number = hca.objects.srq_numbers.take()?;
    hca.ids.pd.hold(rmp.wq.pd)?;
    rmp.wq.uses.hold(&mut hca.objects.umem_numbers)?;
    if let Kind::Xrc { cqn, xrcd, .. } = rmp.kind {
        hca.objects.cq_numbers.hold(cqn)?;
        hca.ids.xrcd.hold(xrcd)?;
    }
    hca.objects.rmps.insert(number, rmp);
    head_out::number.set(output, number);
    Ok(())
}

/// CREATE_RMP.
pub(crate) fn create(hca: &mut Hca, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    let context = rmp_in::rmpc.bytes(input);
    if rmpc::state.get(context) != 1 {
        return Err(Status::BadParam.because(0x90_c001));
    }
    let wq = Wq::new(hca, rmpc::wq.bytes(context), rmp_in::pas.tail(input), Side::Receive)?;
    let limit = wq_ifc::lwm.get(rmpc::wq.bytes(context)) as u16;
    let context = context.to_vec();
    let rmp = Rmp { kind: Kind::Rmp, wq, context, next: 0, limit };
    insert(hca, rmp, output)
}

/// The ring of an SRQ or XRC SRQ context: both have its numbers in the same places.
fn ring(hca: &Hca, context: &[u8], pas: &[u8]) -> Result<Wq, Refusal> {
    if srqc::wq_signature.is_set(context) || xrc_srqc::dbr_umem_valid.is_set(context) {
        return Err(Status::BadParam.because(0x70_0001));
    }
    let shape = Shape {
        kind: 0,
        pd: srqc::pd.get(context),
        log_size: srqc::log_srq_size.get(context),
        log_stride: srqc::log_rq_stride.get(context) + 4,
        log_page_size: srqc::log_page_size.get(context),
        page_offset: srqc::page_offset.get(context),
        dbr: srqc::dbr_addr.get64(context),
        uses: Uses::default(),
        umem_offset: 0,
    };
    Wq::of_shape(hca, shape, pas, Side::Receive)
}

/// CREATE_XRC_SRQ.
pub(crate) fn create_xrc(hca: &mut Hca, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    let context = xrc_srq_in::xrc_srq_context_entry.bytes(input);
    // No public layout says where the number of the umem stands.
    if xrc_srq_in::xrc_srq_umem_valid.is_set(input) {
        return Err(Status::BadParam.because(0x70_5003));
    }
    let wq = ring(hca, context, xrc_srq_in::pas.tail(input))?;
    let kind = Kind::Xrc {
        cqn: xrc_srqc::cqn.get(context),
        xrcd: xrc_srqc::xrcd.get(context),
        user_index: xrc_srqc::user_index.get(context),
    };
    if !hca.ids.xrcd.contains(xrc_srqc::xrcd.get(context)) {
        return Err(Status::BadResource.because(0x70_5001));
    }
    if !hca.objects.cqs.contains_key(&xrc_srqc::cqn.get(context)) {
        return Err(Status::BadResource.because(0x70_5002));
    }
    let rmp = Rmp {
        kind,
        wq,
        limit: xrc_srqc::lwm.get(context) as u16,
        context: context.to_vec(),
        next: 0,
    };
    insert(hca, rmp, output)
}

/// CREATE_SRQ: of the interface before ISSI 1 only.
pub(crate) fn create_srq(hca: &mut Hca, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    if hca.cmd.issi != 0 {
        return Err(Status::BadOp.because(0x70_0002));
    }
    let context = srq_in::srq_context_entry.bytes(input);
    let wq = ring(hca, context, srq_in::pas.tail(input))?;
    let rmp = Rmp {
        kind: Kind::Srq,
        wq,
        limit: srqc::lwm.get(context) as u16,
        context: context.to_vec(),
        next: 0,
    };
    insert(hca, rmp, output)
}

/// The command pairs of the three kinds work on their own kind only.
fn is_of(opcode: u32, kind: Kind) -> bool {
    match kind {
        Kind::Rmp => matches!(opcode, 0x90c..=0x90f | 0x703),
        Kind::Xrc { .. } => matches!(opcode, 0x705..=0x708),
        Kind::Srq => matches!(opcode, 0x700..=0x703),
    }
}

/// The number a command names, if it is of the command's kind.
fn named(hca: &Hca, input: &[u8]) -> Result<u32, Refusal> {
    let number = head_in::number.get(input) & 0xff_ffff;
    let opcode = head_in::opcode.get(input);
    match hca.objects.rmps.get(&number) {
        Some(rmp) if is_of(opcode, rmp.kind) => Ok(number),
        Some(_) | None => Err(Status::BadResource.because(0x70_3001)),
    }
}

/// DESTROY_RMP, DESTROY_XRC_SRQ, DESTROY_SRQ: refused while a QP uses it.
pub(crate) fn destroy(hca: &mut Hca, input: &[u8], _output: &mut [u8]) -> Result<(), Refusal> {
    let number = named(hca, input)?;
    hca.objects.srq_numbers.free(number)?;
    if let Some(rmp) = hca.objects.rmps.remove(&number) {
        hca.ids.pd.release(rmp.wq.pd);
        rmp.wq.uses.release(&mut hca.objects.umem_numbers);
        if let Kind::Xrc { cqn, xrcd, .. } = rmp.kind {
            hca.objects.cq_numbers.release(cqn);
            hca.ids.xrcd.release(xrcd);
        }
    }
    Ok(())
}

/// QUERY_RMP, QUERY_XRC_SRQ, QUERY_SRQ.
pub(crate) fn query(hca: &mut Hca, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    let number = named(hca, input)?;
    let Some(rmp) = hca.objects.rmps.get(&number) else {
        return Ok(());
    };
    let (at, len) = match rmp.kind {
        Kind::Rmp => (rmp_in::rmpc.byte(), rmpc::BYTES),
        Kind::Xrc { .. } | Kind::Srq => (srq_in::srq_context_entry.byte(), srqc::BYTES),
    };
    let Some(to) = output.get_mut(at..at + len) else {
        return Ok(());
    };
    to.copy_from_slice(&rmp.context);
    let limit = u32::from(rmp.limit);
    if rmp.kind == Kind::Rmp {
        let inner = rmpc::wq.bytes_mut(to);
        wq_ifc::lwm.set(inner, limit);
        wq_ifc::hw_counter.set(inner, u32::from(rmp.wq.head));
        wq_ifc::sw_counter.set(inner, u32::from(rmp.wq.producer));
    } else {
        srqc::lwm.set(to, limit);
        let left = rmp.wq.producer.wrapping_sub(rmp.wq.head);
        srqc::wqe_cnt.set(to, u32::from(left));
    }
    Ok(())
}

/// ARM_RQ with op_mod 1, ARM_XRC_SRQ: arms the limit event of a shared queue.
pub(crate) fn arm(hca: &mut Hca, input: &[u8], _output: &mut [u8]) -> Result<(), Refusal> {
    if head_in::op_mod.get(input) > 1 {
        return Err(Status::BadParam.because(0x70_3002));
    }
    let number = named(hca, input)?;
    set_limit(hca, number, head_in::word_c.get(input) as u16);
    Ok(())
}

/// MODIFY_RMP: the low water mark, which arms the limit event; the state stays "ready".
pub(crate) fn modify(hca: &mut Hca, input: &[u8], _output: &mut [u8]) -> Result<(), Refusal> {
    let number = named(hca, input)?;
    let context = rmp_in::rmpc.bytes(input);
    // The state it is in stands above the number, the one it goes to in the context.
    let from = head_in::number.get(input) >> 28;
    if from != 1 || rmpc::state.get(context) != 1 {
        return Err(Status::BadParam.because(0x90_d001));
    }
    if rmp_bitmask::lwm.is_set(rmp_in::modify_bitmask.bytes(input)) {
        let limit = wq_ifc::lwm.get(rmpc::wq.bytes(context)) as u16;
        set_limit(hca, number, limit);
    }
    Ok(())
}

/// Arms the limit event. A queue that is below it already tells at the next receive it gives out.
fn set_limit(hca: &mut Hca, number: u32, limit: u16) {
    if let Some(rmp) = hca.objects.rmps.get_mut(&number) {
        rmp.limit = limit;
    }
}

impl Rmp {
    /// Returns `srqn_or_user_index` of a completion if the queue itself names it.
    pub(crate) fn completion_index(&self, number: u32) -> u32 {
        match self.kind {
            Kind::Xrc { user_index, .. } if user_index != NO_USER_INDEX => user_index,
            Kind::Xrc { .. } | Kind::Rmp | Kind::Srq => number,
        }
    }
}

/// A receive, or the slot of one that cannot be read.
type Taken = Result<RecvWqe, (u16, Syndrome)>;

impl Rmp {
    /// Takes the next receive; the flag says that the limit event is due.
    pub(crate) fn take(&mut self, bus: &mut Bus) -> (Option<Taken>, bool) {
        let wq = &mut self.wq;
        if wq.head == wq.producer {
            if let Err(complaint) = wq.refresh(bus) {
                bus.complain(format!("shared receive queue: {complaint}"));
                return (None, false);
            }
        }
        if wq.head == wq.producer {
            return (None, false);
        }
        let linked = wq.kind == 0;
        let slot = if linked { self.next } else { wq.head & (wq.size() - 1) as u16 };
        let mut entry = vec![0; 1 << wq.log_stride];
        let read = wq.read(bus, slot, &mut entry);
        if read.is_ok() {
            bus.show(&Seen::Shared { linked, bytes: &entry });
        }
        let taken = match read {
            Err(()) => Err((slot, Syndrome::LocalProtection)),
            Ok(()) if linked => {
                self.next =
                    wqe_srq_next::next_wqe_index.get(&entry) as u16 & (wq.size() - 1) as u16;
                Ok(wqe::parse_recv(slot, entry.get(16..).unwrap_or(&[])))
            }
            Ok(()) => Ok(wqe::parse_recv(slot, &entry)),
        };
        wq.head = wq.head.wrapping_add(1);
        let left = wq.producer.wrapping_sub(wq.head);
        let due = self.limit != 0 && left < self.limit;
        if due {
            self.limit = 0;
        }
        (Some(taken), due)
    }
}
