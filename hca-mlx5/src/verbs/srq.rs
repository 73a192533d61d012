//! Shared receive queues as objects of the device: their memory, CREATE_RMP, the limit,
//! DESTROY_RMP.
//!
//! PRM "Receive memory pool"; the basic SRQ of an interface of ISSI 1 is one. Entries are linked. A
//! pool has no completion queue and no user index: its receives complete where, and under the
//! index, of the queue pair that took them. The limit is armed by MODIFY_RMP as Linux does it, and
//! fires once. The posting end is `data::shared`.

use dat_core::fault;
use dat_core::provider::{Fault, SharedRqInit};

use crate::data::Shared;
use crate::data::ring::{Record, Ring};
use crate::data::send::MAX_SEGMENTS;
use crate::device::{self, Device};
use crate::platform::{Platform, Reach, Span};
use crate::prm::At;
use crate::prm::cmd::Opcode;
use crate::prm::rq::{RMP_LIMIT, RmpContext};
use crate::prm::sq::{
    ModifyQueueIn, QueueState, SQ_CONTEXT, SQ_PAGES, SQ_WQ, WQ_LINKED, WqContext,
};
use crate::prm::wqe;
use crate::verbs::memory;
use crate::verbs::memory::Pages;

/// Bytes of a page.
const PAGE: usize = 4096;
/// log2 of the most entries.
const LOG_LONGEST: u8 = 15;

/// A shared receive queue and the memory that is its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SrqObject {
    /// Its number.
    pub(crate) srqn: u32,
    memory: Span,
}

/// Most receives outstanding: one entry of the ring is always free.
pub(crate) fn most_receives<P: Platform>(device: &Device<'_, P>) -> u16 {
    let log = device.caps().general.log_max_srq_sz().min(LOG_LONGEST);
    (1 << log) - 1
}

/// Makes a shared receive queue.
pub(crate) fn create<'p, P: Platform>(
    device: &mut Device<'p, P>,
    init: &SharedRqInit,
) -> Result<(SrqObject, Shared<'p, P>), Fault> {
    if init.receives > most_receives(device) || init.segments > MAX_SEGMENTS {
        return Err(fault!(
            BadParameter,
            "CREATE_RMP",
            "more receives or segments than the device allows in one shared receive queue",
            "ask for no more than the limits say",
        ));
    }
    let log = |count: u32| u8::try_from(count.next_power_of_two().trailing_zeros()).unwrap_or(0);
    let log_slots = log(u32::from(init.receives) + 1);
    // The link is one unit more.
    let units = u32::from(init.segments.max(1)) + 1;
    let log_stride = log(units) + log(u32::try_from(wqe::UNIT).unwrap_or(0));
    // On a page of its own: a work queue's context has one bit less for a place in a page than the
    // others have.
    let len = (1_usize << (log_slots + log_stride)).max(PAGE);
    let memory = memory::take(device.platform(), len, Reach::Read)?;
    let made = submit(device, init.pd.0, (log_slots, log_stride), memory, len);
    if let Err(fault) = &made {
        device::give_up(device, memory, fault);
    }
    made
}

fn submit<'p, P: Platform>(
    device: &mut Device<'p, P>,
    pd: u32,
    (log_slots, log_stride): (u8, u8),
    memory: Span,
    len: usize,
) -> Result<(SrqObject, Shared<'p, P>), Fault> {
    let platform = device.platform();
    let record = Record(memory.offset.wrapping_add(len));
    let mut input = memory::MESSAGE;
    let offset = memory.offset;
    let pages = Pages::of(platform, Span { offset, len }, &mut input)?;
    ready(&mut input);
    let mut queue = WqContext(At::<_, WQ>(&mut input));
    const { assert!(WQ_LINKED == 0) }
    queue.set_pd(pd);
    queue.set_page_offset(pages.offset);
    queue.set_dbr_addr(memory::record_address(platform, record)?);
    queue.set_log_wq_stride(log_stride);
    queue.set_log_wq_pg_sz(pages.log_size);
    queue.set_log_wq_sz(log_slots);
    let ring = Ring::new(memory.offset, log_slots);
    let end = Shared::new(platform, ring, log_stride, record).ok_or(memory::unseen())?;

    const { assert!(SQ_PAGES == memory::PAGES_AT) }
    let srqn = device.make(Opcode::CreateRmp, pages.cut(&mut input))?;
    Ok((SrqObject { srqn, memory }, end))
}

/// Where the `wq` part stands in the messages.
const WQ: usize = SQ_CONTEXT + SQ_WQ;

/// Puts a pool into the one state it has.
fn ready<const N: usize>(input: &mut [u8; N]) {
    RmpContext(At::<_, SQ_CONTEXT>(input)).set_state(QueueState::Ready as u8);
}

/// Asks for one event when fewer than `limit` receives are left; 0 asks for none.
pub(crate) fn arm<P: Platform>(
    device: &mut Device<'_, P>,
    srqn: u32,
    limit: u16,
) -> Result<(), Fault> {
    let mut input = [0; SQ_PAGES];
    let mut head = ModifyQueueIn(&mut input);
    head.set_queue_state(QueueState::Ready as u8);
    head.set_number(srqn);
    head.set_modify_bitmask(RMP_LIMIT);
    ready(&mut input);
    WqContext(At::<_, WQ>(&mut input)).set_lwm(limit);
    device.run(Opcode::ModifyRmp, srqn, &mut input)
}

/// Destroys it. Its memory goes back to the arena only if the device let go of it.
pub(crate) fn destroy<P: Platform>(
    device: &mut Device<'_, P>,
    srq: &SrqObject,
) -> Result<(), Fault> {
    device.end(Opcode::DestroyRmp, srq.srqn)?;
    device.platform().free(srq.memory);
    Ok(())
}

/// Destroys one that nobody will ask for again: what the device does not let go of now, it does at
/// the teardown.
pub(crate) fn end<P: Platform>(device: &mut Device<'_, P>, srq: &SrqObject) -> Result<(), Fault> {
    destroy(device, srq).inspect_err(|_| device.disown(srq.memory))
}

#[cfg(test)]
mod tests;
