//! Completion queues by command: CREATE_CQ, DESTROY_CQ, QUERY_CQ, MODIFY_CQ.

use super::compress::{Compression, MiniFormat};
use super::cq::{Armed, Cq};
use super::device::Device;
use super::moderation::{self, Moderation};
use super::umem::{self, Place, Uses};
use crate::cmd::{Refusal, Status};
use crate::hca::Hca;
use crate::host::Nanos;
use crate::ifc::caps::cmd_hca_cap as caps;
use crate::ifc::cmd::{head_in, head_out};
use crate::ifc::cq::{cqc, create_cq_in, query_cq_out};

/// MODIFY_CQ field_select with op_mod 0: period, count, overrun, period mode.
const MODIFY_PERIOD: u32 = 1;
const MODIFY_COUNT: u32 = 2;
const MODIFY_OVERRUN: u32 = 4;
const MODIFY_MODE: u32 = 0x10;
const MODIFY_KNOWN: u32 = 0x17;
/// And with op_mod 1: size, page offset, page size.
const RESIZE_SIZE: u32 = 1;
const RESIZE_KNOWN: u32 = 7;
/// Unit of `cqe_compression_timeout`, which no public text names.
const TIMEOUT_UNIT: Nanos = 1000;

/// CREATE_CQ.
pub(crate) fn create(hca: &mut Hca, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    let context = create_cq_in::cqc.bytes(input);
    let log_size = cqc::log_cq_size.get(context);
    if log_size > 22 {
        return Err(Status::BadParam.because(0x40_0010));
    }
    let stride = stride_of(context)?;
    let compression = compression_of(hca, context)?;
    moderation::check(hca, context)?;
    let moderation = Moderation::new(context, &hca.config.facts);
    let uar = cqc::uar_page.get(context);
    if !hca.ids.uar.contains(uar) {
        return Err(Status::BadResource.because(0x40_0013));
    }
    let uses = Uses {
        ring: umem::named(create_cq_in::cq_umem_valid, create_cq_in::cq_umem_id, input),
        record: umem::named(cqc::dbr_umem_valid, cqc::dbr_umem_id, context),
    };
    let askew = Status::BadParam.because(0x40_0014);
    let dbr = umem::record(hca, uses.record, cqc::dbr_addr.get64(context), 8, askew)?;
    let short = Status::BadInputLength.because(0x40_0015);
    let ring = place(input).ring(hca, stride << log_size, umem::WRITE, short)?;
    let eqn = cqc::c_eqn_or_apu_element.get(context) & 0xff;
    let context = context.to_vec();
    hca.eqs.hold(eqn)?;
    let cqn = hca.objects.cq_numbers.take().inspect_err(|_| hca.eqs.release(eqn))?;
    hca.ids.uar.hold(uar)?;
    uses.hold(&mut hca.objects.umem_numbers)?;
    hca.objects.cqs.insert(
        cqn,
        Cq {
            cqn,
            eqn,
            uar,
            log_size,
            stride,
            collapsed: cqc::cc.is_set(&context),
            oi: cqc::oi.is_set(&context),
            dbr,
            ring,
            uses,
            compression,
            moderation,
            producer: 0,
            consumer: 0,
            last_solicited: 0,
            last_notified: 0,
            armed: Armed::No,
            fired_sn: None,
            event_at: 0,
            sn: 0,
            fault: None,
            context,
        },
    );
    head_out::number.set(output, cqn);
    Ok(())
}

/// Where a command says that the entries are.
fn place(input: &[u8]) -> Place<'_> {
    let context = create_cq_in::cqc.bytes(input);
    let umem = umem::named(create_cq_in::cq_umem_valid, create_cq_in::cq_umem_id, input);
    Place {
        umem: umem.map(|number| (number, create_cq_in::cq_umem_offset.get64(input))),
        list: create_cq_in::pas.tail(input),
        log_page_size: cqc::log_page_size.get(context),
        page_offset: cqc::page_offset.get(context),
    }
}

/// DESTROY_CQ: refused while a queue uses it.
pub(crate) fn destroy(hca: &mut Hca, input: &[u8], _output: &mut [u8]) -> Result<(), Refusal> {
    let cqn = head_in::number.get(input) & 0xff_ffff;
    hca.objects.cq_numbers.free(cqn)?;
    if let Some(cq) = hca.objects.cqs.remove(&cqn) {
        hca.eqs.release(cq.eqn);
        hca.ids.uar.release(cq.uar);
        cq.uses.release(&mut hca.objects.umem_numbers);
    }
    Device::of(hca).reschedule_cq(cqn);
    Ok(())
}

/// QUERY_CQ.
pub(crate) fn query(hca: &mut Hca, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    let cqn = head_in::number.get(input) & 0xff_ffff;
    let cq = hca.objects.cqs.get(&cqn).ok_or(Status::BadResource.because(0x40_2001))?;
    let context = query_cq_out::cqc.bytes_mut(output);
    let n = context.len().min(cq.context.len());
    context[..n].copy_from_slice(&cq.context[..n]);
    cqc::status.set(context, cq.status_code());
    cqc::st.set(context, cq.state_code());
    cqc::last_notified_index.set(context, cq.last_notified);
    cqc::last_solicit_index.set(context, cq.last_solicited);
    cqc::consumer_counter.set(context, cq.consumer);
    cqc::producer_counter.set(context, cq.producer);
    Ok(())
}

/// The distance of two entries by its code.
fn stride_of(context: &[u8]) -> Result<u64, Refusal> {
    match cqc::cqe_sz.get(context) {
        0 => Ok(64),
        1 | 2 => Ok(128),
        _ => Err(Status::BadParam.because(0x40_0012)),
    }
}

/// Compression as the context asks for it: in entries of 64 bytes that each have a slot, in the
/// basic layout, with the hash (0) or the checksum (1). The other formats are of striding receive
/// queues and of flow tags.
fn compression_of(hca: &Hca, context: &[u8]) -> Result<Option<Compression>, Refusal> {
    let format = cqc::mini_cqe_res_format.get(context);
    let layout = cqc::cqe_compression_layout.get(context);
    let refused = Err(Status::BadParam.because(0x40_0016));
    if !cqc::cqe_comp_en.is_set(context) {
        return if (format, layout) == (0, 0) { Ok(None) } else { refused };
    }
    let has = hca.caps.general(caps::cqe_compression) != 0;
    let plain = cqc::cqe_sz.get(context) == 0 && !cqc::cc.is_set(context) && layout == 0;
    let format = match format {
        0 if has && plain => MiniFormat::Hash,
        1 if has && plain => MiniFormat::Checksum,
        _ => return refused,
    };
    let most = hca.caps.general(caps::cqe_compression_max_num);
    let timeout = u64::from(hca.caps.general(caps::cqe_compression_timeout)) * TIMEOUT_UNIT;
    Ok(Some(Compression::new(format, most, timeout, &hca.config.facts)))
}

/// MODIFY_CQ with op_mod 1: another ring.
fn resize(hca: &mut Hca, input: &[u8]) -> Result<(), Refusal> {
    let cqn = head_in::number.get(input) & 0xff_ffff;
    if hca.caps.general(caps::cq_resize) == 0 {
        return Err(Status::BadOp.because(0x40_3001));
    }
    let select = create_cq_in::field_select.get(input);
    if select & !RESIZE_KNOWN != 0 || select & RESIZE_SIZE == 0 {
        return Err(Status::BadParam.because(0x40_3003));
    }
    let new = create_cq_in::cqc.bytes(input);
    let (log_size, stride) = (cqc::log_cq_size.get(new), stride_of(new)?);
    if log_size > 22 {
        return Err(Status::BadParam.because(0x40_3004));
    }
    let short = Status::BadInputLength.because(0x40_3005);
    let place = place(input);
    let ring = place.ring(hca, stride << log_size, umem::WRITE, short)?;
    let cq = hca.objects.cqs.get_mut(&cqn).ok_or(Status::BadResource.because(0x40_3002))?;
    let filled = cq.compression.is_some() || hca.objects.cq_users.is_filled(cqn);
    if filled && stride != cq.stride {
        return Err(Status::BadParam.because(0x40_3007));
    }
    let resized = cq.resize(&mut hca.bus, ring, log_size, stride);
    Device::of(hca).reschedule_cq(cqn);
    let cq = hca.objects.cqs.get_mut(&cqn).ok_or(Status::BadResource.because(0x40_3002))?;
    if !resized {
        return Err(Status::TooManyCqes.because(0x40_3006));
    }
    for field in [cqc::log_cq_size, cqc::log_page_size, cqc::page_offset, cqc::cqe_sz] {
        field.set(&mut cq.context, field.get(new));
    }
    let old = core::mem::replace(&mut cq.uses.ring, place.umem.map(|(number, _)| number));
    let (old, new) = (Uses { ring: old, record: None }, Uses { record: None, ..cq.uses });
    new.hold(&mut hca.objects.umem_numbers)?;
    old.release(&mut hca.objects.umem_numbers);
    Ok(())
}

/// MODIFY_CQ: moderation and overrun, or a resize (op_mod 1).
pub(crate) fn modify(hca: &mut Hca, input: &[u8], _output: &mut [u8]) -> Result<(), Refusal> {
    let cqn = head_in::number.get(input) & 0xff_ffff;
    match head_in::op_mod.get(input) {
        0 => {}
        1 => return resize(hca, input),
        _ => return Err(Status::BadOp.because(0x40_3001)),
    }
    let cq = hca.objects.cqs.get(&cqn).ok_or(Status::BadResource.because(0x40_3002))?;
    let select = create_cq_in::field_select.get(input);
    let lacks = |bits, cap| select & bits != 0 && hca.caps.general(cap) == 0;
    if select & !MODIFY_KNOWN != 0
        || lacks(MODIFY_PERIOD | MODIFY_COUNT, caps::cq_moderation)
        || lacks(MODIFY_OVERRUN, caps::cq_oi)
        || lacks(MODIFY_MODE, caps::cq_period_mode_modify)
    {
        return Err(Status::BadParam.because(0x40_3008));
    }
    let new = create_cq_in::cqc.bytes(input);
    let mut context = cq.context.clone();
    for (bit, field) in [
        (MODIFY_PERIOD, cqc::cq_period),
        (MODIFY_COUNT, cqc::cq_max_count),
        (MODIFY_OVERRUN, cqc::oi),
        (MODIFY_MODE, cqc::cq_period_mode),
    ] {
        if select & bit != 0 {
            field.set(&mut context, field.get(new));
        }
    }
    moderation::check(hca, &context)?;
    if let Some(cq) = hca.objects.cqs.get_mut(&cqn) {
        cq.oi = cqc::oi.is_set(&context);
        cq.moderation.set(&context);
        cq.context = context;
    }
    // Of an event that waits the time may be over by the new rule.
    Device::of(hca).raise(cqn);
    Ok(())
}
