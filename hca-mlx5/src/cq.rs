//! Completion queues as objects of the device: their memory, CREATE_CQ, DESTROY_CQ.
//!
//! PRM "CREATE_CQ". Entries of 64 bytes, overrun checked, no moderation, no compression; the completion event queue hears
//! of each. The ring's entries are marked empty before the command, so that nothing old can look like a completion. The
//! reaping end is `queue::cq`.

use dat_core::provider::Fault;

use crate::device::Device;
use crate::mem::pages::PageList;
use crate::platform::{Platform, Span};
use crate::prm::cmd::Opcode;
use crate::prm::cq::{CONTEXT_AT, CqContext, Cqn};
use crate::prm::cqe::CQE;
use crate::queue::cq::clear;
use crate::queue::ring::{Record, Ring};
use crate::queue::{Cq, memory};
use crate::words::fault;

/// A completion queue and the memory that is its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CqObject {
    /// Its number.
    pub(crate) cqn: Cqn,
    memory: Span,
}

/// Makes a completion queue of at least `entries` entries.
pub(crate) fn create<'p, P: Platform>(
    device: &mut Device<'p, P>,
    entries: u32,
) -> Result<(CqObject, Cq<'p, P>), Fault> {
    let limit = device.caps().general.log_max_cq_sz().min(22);
    let log = entries
        .clamp(1, 1 << 30)
        .next_power_of_two()
        .trailing_zeros();
    let log = u8::try_from(log).unwrap_or(u8::MAX);
    if log > limit {
        return Err(fault!(
            BadParameter,
            "",
            "more entries than the device allows in one completion queue",
            "ask for no more than the limits say"
        )
        .during(Opcode::CreateCq.code()));
    }
    let platform = device.platform();
    let len = CQE << log;
    let memory = memory::take(platform, len)?;
    let result = submit(device, memory, len, log);
    result.inspect_err(|fault| memory::give_up(device, memory, fault))
}

fn submit<'p, P: Platform>(
    device: &mut Device<'p, P>,
    memory: Span,
    len: usize,
    log: u8,
) -> Result<(CqObject, Cq<'p, P>), Fault> {
    let platform = device.platform();
    let ring = Ring::new(memory.offset, log);
    let record = Record(memory.offset.wrapping_add(len));
    clear(platform, &ring);
    let list = PageList::queue(
        platform,
        Span {
            offset: memory.offset,
            len,
        },
    )?;
    let (page_offset, log_page_size) = list.queue_geometry();

    let mut context = CqContext::new();
    context.set_page_offset(page_offset);
    context.set_log_cq_size(log);
    context.set_uar_page(device.uar().number);
    context.set_c_eqn_or_apu_element(device.completion_eqn().into());
    context.set_log_page_size(log_page_size);
    context.set_dbr_addr(memory::record_address(platform, record)?);

    let mut end = Cq::new(platform, ring, record, device.uar().offset).ok_or(memory::unseen())?;

    let mut input = memory::MESSAGE;
    context.write(&mut input, CONTEXT_AT);
    let input = memory::with_pages(device.platform(), &mut input, &list);
    let cqn = device.make(Opcode::CreateCq, input)?;
    end.name(cqn);
    Ok((
        CqObject {
            cqn: Cqn(cqn),
            memory,
        },
        end,
    ))
}

/// Destroys it. Its memory goes back to the arena only if the device let go of it.
pub(crate) fn destroy<P: Platform>(device: &mut Device<'_, P>, cq: &CqObject) -> Result<(), Fault> {
    device.end(Opcode::DestroyCq, cq.cqn.0)?;
    device.platform().free(cq.memory);
    Ok(())
}

/// Destroys one that nobody will ask for again: what the device does not let go of now, it does at the teardown.
pub(crate) fn end<P: Platform>(device: &mut Device<'_, P>, cq: &CqObject) -> Result<(), Fault> {
    destroy(device, cq).inspect_err(|_| device.disown(cq.memory))
}
