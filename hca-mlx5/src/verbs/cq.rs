//! Completion queues as objects of the device: their memory, CREATE_CQ, MODIFY_CQ, DESTROY_CQ.
//!
//! PRM "CREATE_CQ", "MODIFY_CQ". Entries of 64 bytes, overrun checked; compressed
//! if asked for. The completion event queue gets an event for each that was asked for, unless they
//! are moderated. The ring's entries are marked
//! empty before the command, so that nothing old can look like a completion. The reaping end is
//! `data::cq`.
//!
//! A queue that is given another size gets another ring, and keeps its number, its doorbell record,
//! and with it the memory that it was made with. The device ends the old ring with an entry that
//! says so; what stands before that, the reaping end carries over.

use dat_core::fault;
use dat_core::provider::{Fault, Moderation};

use crate::data::Cq;
use crate::data::cq::{clear, copying, event_read};
use crate::data::ring::{Record, Ring};
use crate::device::{self, Device};
use crate::platform::{Platform, Reach, Span};
use crate::prm;
use crate::prm::At;
use crate::prm::cmd::Opcode;
use crate::prm::cmd::OutputHead;
use crate::prm::cq::{
    CONTEXT_AT, CqContext, Cqn, NUMBER_AT, RESIZE, SELECT_AT, SELECT_MODERATION, SELECT_RING,
};
use crate::prm::cqe::CQE;
use crate::prm::object;
use crate::verbs::memory;
use crate::verbs::memory::Pages;

/// A completion queue and the memory that is its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CqObject {
    /// Its number.
    pub(crate) cqn: Cqn,
    /// Memory that it was made with: a ring, and the doorbell record behind it.
    home: Span,
    record: Record,
    /// The ring it has now, if that is another.
    moved: Option<Span>,
}

impl CqObject {
    /// An event of it has been read.
    pub(crate) fn event_read<P: Platform>(&self, platform: &P) {
        event_read(platform, self.record);
    }

    /// The copy of payload that its reaping end is in the midst of, if it is.
    pub(crate) fn copy_begun<P: Platform>(&self, platform: &P) -> Option<u32> {
        copying(platform, self.record, |word| word.begun()).flatten()
    }

    /// Whether that copy is over.
    pub(crate) fn copy_over<P: Platform>(&self, platform: &P, begun: u32) -> bool {
        copying(platform, self.record, |word| word.over(begun)).unwrap_or(true)
    }

    /// Its memory: the ring it has now, and what lies behind.
    pub(crate) fn memory(&self) -> Span {
        self.moved.unwrap_or(self.home)
    }
}

/// Makes a completion queue of at least `entries` entries, which the device may compress if
/// `compressed`.
pub(crate) fn create<'p, P: Platform>(
    device: &mut Device<'p, P>,
    entries: u32,
    compressed: bool,
) -> Result<(CqObject, Cq<'p, P>), Fault> {
    let log = log_of(device, entries).map_err(|fault| fault.during(Opcode::CreateCq.name()))?;
    let platform = device.platform();
    let len = CQE << log;
    let memory = memory::take(platform, len, Reach::ReadWrite)?;
    let made = submit(device, memory, len, log, compressed);
    if let Err(fault) = &made {
        device::give_up(device, memory, fault);
    }
    made
}

/// log2 of the ring for that many entries, if the device has such rings.
fn log_of<P: Platform>(device: &Device<'_, P>, entries: u32) -> Result<u8, Fault> {
    let limit = device.caps().general.log_max_cq_sz().min(22);
    if entries > 1 << limit {
        return Err(fault!(
            BadParameter,
            "",
            "more entries than the device allows in one completion queue",
            "ask for no more than the limits say"
        ));
    }
    let log = entries.max(1).next_power_of_two().trailing_zeros();
    Ok(u8::try_from(log).unwrap_or(limit))
}

fn submit<'p, P: Platform>(
    device: &mut Device<'p, P>,
    memory: Span,
    len: usize,
    log: u8,
    compressed: bool,
) -> Result<(CqObject, Cq<'p, P>), Fault> {
    let platform = device.platform();
    let ring = Ring::new(memory.offset, log);
    let record = Record(memory.offset.wrapping_add(len));
    clear(platform, &ring);
    let mut input = memory::MESSAGE;
    let offset = memory.offset;
    let pages = Pages::of(platform, Span { offset, len }, &mut input)?;
    let mut context = CqContext(At::<_, CONTEXT_AT>(&mut input));
    // Mini CQEs of format 0, with a hash: the one that every card has.
    context.set_cqe_comp_en(compressed);
    context.set_page_offset(pages.offset);
    context.set_log_cq_size(log);
    context.set_uar_page(device.uar().number);
    context.set_c_eqn_or_apu_element(device.completion_eqn().into());
    context.set_log_page_size(pages.log_size);
    context.set_dbr_addr(memory::record_address(platform, record)?);

    let mut end = Cq::new(platform, ring, record, device.uar().offset).ok_or(memory::unseen())?;

    let cqn = device.make(Opcode::CreateCq, pages.cut(&mut input))?;
    end.set_cqn(cqn);
    if compressed {
        end.set_compressed();
    }
    Ok((CqObject { cqn: Cqn(cqn), home: memory, record, moved: None }, end))
}

/// Gives it a ring of at least `entries` entries. What waits in it is carried over.
pub(crate) fn resize<'p, P: Platform>(
    device: &mut Device<'p, P>,
    cq: &mut CqObject,
    end: &mut Cq<'p, P>,
    entries: u32,
) -> Result<(), Fault> {
    let op = Opcode::ModifyCq;
    let about = |fault: Fault| fault.of(object::CQ, cq.cqn.0).during(op.name());
    if !device.caps().general.cq_resize() {
        return Err(about(fault!(
            Unsupported,
            "",
            "this device or its firmware cannot resize completion queues",
            "make the queue as long as it will ever be needed"
        )));
    }
    let waiting = end.waiting();
    if waiting >= end.slots() {
        return Err(about(fault!(
            BadState,
            "",
            "the completion queue is full",
            "take some completions first: the device needs an entry to end the old ring with"
        )));
    }
    let log = log_of(device, entries.max(waiting.saturating_add(1))).map_err(about)?;
    if end.slots() == 1 << log {
        return Ok(());
    }
    let len = CQE << log;
    // Back in the first ring, if that is free and long enough.
    let room_at_home = cq.moved.is_some() && len <= cq.home.len.saturating_sub(memory::LINE);
    let memory = if room_at_home {
        cq.home
    } else {
        memory::take(device.platform(), len, Reach::ReadWrite)?
    };
    let ring = Ring::new(memory.offset, log);
    let moving = command(device, cq.cqn, &ring, len, end);
    if let Err(fault) = moving {
        if !room_at_home {
            device::give_up(device, memory, &fault);
        }
        return Err(fault);
    }
    let old = core::mem::replace(&mut cq.moved, (!room_at_home).then_some(memory));
    let carried = end.move_to(&ring);
    if carried {
        if let Some(old) = old {
            device.platform().free(old);
        }
        Ok(())
    } else {
        // It may still write there.
        if let Some(old) = old {
            device.disown(old);
        }
        Err(about(fault!(Nonsense, "", "the device did not end the old ring", "reset the device")))
    }
}

/// The command that moves the device to another ring; the reaping end must be switched to it
/// afterwards.
fn command<'p, P: Platform>(
    device: &mut Device<'p, P>,
    cqn: Cqn,
    ring: &Ring,
    len: usize,
    end: &Cq<'p, P>,
) -> Result<(), Fault> {
    let platform = device.platform();
    end.clear_ahead(ring);
    let offset = ring.slot(0, 0);
    let mut input = memory::MESSAGE;
    let pages = Pages::of(platform, Span { offset, len }, &mut input)?;
    let mut context = CqContext(At::<_, CONTEXT_AT>(&mut input));
    context.set_page_offset(pages.offset);
    context.set_log_cq_size(u8::try_from(ring.slots().trailing_zeros()).unwrap_or(0));
    context.set_log_page_size(pages.log_size);
    prm::put(&mut input, NUMBER_AT, &cqn.0.to_be_bytes());
    prm::put(&mut input, SELECT_AT, &SELECT_RING.to_be_bytes());
    let input = pages.cut(&mut input);
    let output = &mut OutputHead::new().0;
    device.exec(Opcode::ModifyCq, RESIZE, cqn.0, input, output)
}

/// Says when it tells of its completions. The period counts from the last event (mode 0), so a
/// completion after a pause need not wait.
pub(crate) fn moderate<P: Platform>(
    device: &mut Device<'_, P>,
    cqn: Cqn,
    moderation: Moderation,
) -> Result<(), Fault> {
    let op = Opcode::ModifyCq;
    if !device.caps().general.cq_moderation() {
        return Err(fault!(
            Unsupported,
            op.name(),
            "this device or its firmware tells of each completion",
            "leave its events as they are"
        )
        .of(object::CQ, cqn.0));
    }
    let mut input = [0; memory::PAGES_AT];
    prm::put(&mut input, NUMBER_AT, &cqn.0.to_be_bytes());
    prm::put(&mut input, SELECT_AT, &SELECT_MODERATION.to_be_bytes());
    let mut context = CqContext(At::<_, CONTEXT_AT>(&mut input));
    context.set_cq_period(moderation.period);
    context.set_cq_max_count(moderation.completions);
    device.exec(op, 0, cqn.0, &mut input, &mut OutputHead::new().0)
}

/// Destroys it. Its memory goes back to the arena only if the device let go of it.
pub(crate) fn destroy<P: Platform>(device: &mut Device<'_, P>, cq: &CqObject) -> Result<(), Fault> {
    device.end(Opcode::DestroyCq, cq.cqn.0)?;
    device.platform().free(cq.home);
    if let Some(moved) = cq.moved {
        device.platform().free(moved);
    }
    Ok(())
}

/// Destroys one that nobody will ask for again: what the device does not let go of now, it does at
/// the teardown.
pub(crate) fn end<P: Platform>(device: &mut Device<'_, P>, cq: &CqObject) -> Result<(), Fault> {
    destroy(device, cq).inspect_err(|_| {
        device.disown(cq.home);
        if let Some(moved) = cq.moved {
            device.disown(moved);
        }
    })
}

#[cfg(test)]
mod tests;
