//! Raw queues by command: SQ and RQ, each create, modify, destroy, query.

use super::cq_users::Kind;
use super::device::Device;
use super::qp_cmd::{check_record, check_ts_format};
use super::rq_sq::{Rq, Sq, WqState};
use super::wq::{Side, Wq};
use crate::cmd::{Refusal, Status};
use crate::hca::Hca;
use crate::ifc::caps::cmd_hca_cap as cap;
use crate::ifc::cmd::{head_in, head_out};
use crate::ifc::wq::{rq_in, rqc, sq_in, sqc, wq};

/// CREATE_SQ.
pub(crate) fn create_sq(hca: &mut Hca, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    let context = sq_in::sqc.bytes(input).to_vec();
    if sqc::state.get(&context) != 0 || sqc::hairpin.is_set(&context) {
        return Err(Status::BadParam.because(0x90_4001));
    }
    check_ts_format(hca.caps.general(cap::sq_ts_format), sqc::ts_format.get(&context))?;
    let wq_context = sqc::wq.bytes(&context);
    let wq = Wq::new(hca, wq_context, sq_in::pas.tail(input), Side::Send)?;
    let uar = wq::uar_page.get(wq_context);
    if !hca.ids.uar.contains(uar) {
        return Err(Status::BadResource.because(0x90_4002));
    }
    let cqn = sqc::cqn.get(&context);
    let tis = match sqc::tis_lst_sz.get(&context) {
        0 => None,
        1 => Some(sqc::tis_num_0.get(&context)),
        _ => return Err(Status::BadParam.because(0x90_4003)),
    };
    if tis.is_some_and(|n| !hca.objects.tiss.contains_key(&n)) {
        return Err(Status::BadResource.because(0x90_4004));
    }
    if !hca.objects.cqs.contains_key(&cqn) {
        return Err(Status::BadResource.because(0x90_4005));
    }
    let sqn = hca.objects.queue_numbers.take()?;
    hca.objects.cq_numbers.hold(cqn)?;
    if let Some(tis) = tis {
        hca.objects.tis_numbers.hold(tis)?;
    }
    hca.ids.pd.hold(wq.pd)?;
    hca.ids.uar.hold(uar)?;
    wq.uses.hold(&mut hca.objects.umem_numbers)?;
    check_record(hca, "SQ", sqn, wq.dbr);
    let sq = Sq {
        state: WqState::Rst,
        cqn,
        uar,
        tis,
        user_index: sqc::user_index.get(&context),
        rlky: sqc::rlky.is_set(&context),
        reg_umr: sqc::reg_umr.is_set(&context),
        min_inline: sqc::min_wqe_inline_mode.get(&context),
        wq,
        context,
    };
    hca.objects.cq_users.add(cqn, Kind::Sq, sqn);
    hca.objects.sqs.insert(sqn, sq);
    head_out::number.set(output, sqn);
    Ok(())
}

/// Returns the state that bits 31 to 28 of the number word and the context ask for, checked against
/// the present state.
fn next_state(input: &[u8], present: WqState, wanted: u32) -> Result<WqState, Refusal> {
    let from = WqState::from_code(head_in::number.get(input) >> 28)
        .ok_or(Status::BadParam.because(0x90_5001))?;
    if from != present {
        return Err(Status::BadResourceState.because(0x90_5002));
    }
    let to = WqState::from_code(wanted).ok_or(Status::BadParam.because(0x90_5003))?;
    match (from, to) {
        // An error is left by reset only.
        (WqState::Err, WqState::Rdy) => Err(Status::BadResourceState.because(0x90_5004)),
        _ => Ok(to),
    }
}

/// MODIFY_SQ.
pub(crate) fn modify_sq(hca: &mut Hca, input: &[u8], _output: &mut [u8]) -> Result<(), Refusal> {
    let sqn = head_in::number.get(input) & 0xff_ffff;
    let sq = hca.objects.sqs.get_mut(&sqn).ok_or(Status::BadResource.because(0x90_5005))?;
    let to = next_state(input, sq.state, sqc::state.get(sq_in::sqc.bytes(input)))?;
    sq.state = to;
    match to {
        WqState::Rst => sq.wq.reset(),
        WqState::Rdy => {}
        WqState::Err => Device::of(hca).fail_sq(sqn),
    }
    Ok(())
}

/// DESTROY_SQ, from any state.
pub(crate) fn destroy_sq(hca: &mut Hca, input: &[u8], _output: &mut [u8]) -> Result<(), Refusal> {
    let sqn = head_in::number.get(input) & 0xff_ffff;
    let objects = &mut hca.objects;
    if !objects.sqs.contains_key(&sqn) {
        return Err(Status::BadResource.because(0x90_6001));
    }
    objects.queue_numbers.free(sqn)?;
    if let Some(sq) = objects.sqs.remove(&sqn) {
        objects.cq_users.remove(sq.cqn, Kind::Sq, sqn);
        objects.cq_numbers.release(sq.cqn);
        sq.wq.uses.release(&mut objects.umem_numbers);
        if let Some(tis) = sq.tis {
            objects.tis_numbers.release(tis);
        }
        hca.ids.pd.release(sq.wq.pd);
        hca.ids.uar.release(sq.uar);
    }
    Ok(())
}

/// QUERY_SQ.
pub(crate) fn query_sq(hca: &mut Hca, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    let sqn = head_in::number.get(input) & 0xff_ffff;
    let sq = hca.objects.sqs.get(&sqn).ok_or(Status::BadResource.because(0x90_7001))?;
    let context = sq_in::sqc.bytes_mut(output);
    let n = context.len().min(sq.context.len());
    context[..n].copy_from_slice(&sq.context[..n]);
    sqc::state.set(context, sq.state.code());
    let inner = sqc::wq.bytes_mut(context);
    wq::hw_counter.set(inner, u32::from(sq.wq.head));
    wq::sw_counter.set(inner, u32::from(sq.wq.producer));
    Ok(())
}

/// CREATE_RQ.
pub(crate) fn create_rq(hca: &mut Hca, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    let context = rq_in::rqc.bytes(input).to_vec();
    let odd = rqc::state.get(&context) != 0
        || rqc::hairpin.is_set(&context)
        || rqc::mem_rq_type.get(&context) != 0
        || rqc::scatter_fcs.is_set(&context);
    if odd {
        return Err(Status::BadParam.because(0x90_8001));
    }
    check_ts_format(hca.caps.general(cap::rq_ts_format), rqc::ts_format.get(&context))?;
    let wq = Wq::new(hca, rqc::wq.bytes(&context), rq_in::pas.tail(input), Side::Receive)?;
    if wq.kind != 1 {
        return Err(Status::BadParam.because(0x90_8002));
    }
    let cqn = rqc::cqn.get(&context);
    if !hca.objects.cqs.contains_key(&cqn) {
        return Err(Status::BadResource.because(0x90_8003));
    }
    let rqn = hca.objects.queue_numbers.take()?;
    hca.objects.cq_numbers.hold(cqn)?;
    wq.uses.hold(&mut hca.objects.umem_numbers)?;
    if wq.pd != 0 {
        hca.ids.pd.hold(wq.pd)?;
    }
    let rq = Rq {
        state: WqState::Rst,
        cqn,
        user_index: rqc::user_index.get(&context),
        rlky: rqc::rlky.is_set(&context),
        keep_vlan: rqc::vsd.is_set(&context),
        counters: rqc::counter_set_id.get(&context),
        wq,
        context,
    };
    hca.objects.cq_users.add(cqn, Kind::Rq, rqn);
    hca.objects.rqs.insert(rqn, rq);
    head_out::number.set(output, rqn);
    Ok(())
}

/// MODIFY_RQ: state, and what the bitmask names of VLAN stripping (bit 1) and the queue counters
/// (bit 3).
pub(crate) fn modify_rq(hca: &mut Hca, input: &[u8], _output: &mut [u8]) -> Result<(), Refusal> {
    let rqn = head_in::number.get(input) & 0xff_ffff;
    let new = rq_in::rqc.bytes(input);
    let rq = hca.objects.rqs.get_mut(&rqn).ok_or(Status::BadResource.because(0x90_9005))?;
    let to = next_state(input, rq.state, rqc::state.get(new))?;
    let chosen = rq_in::modify_bitmask.get64(input);
    if chosen & 2 != 0 {
        rq.keep_vlan = rqc::vsd.is_set(new);
    }
    if chosen & 8 != 0 {
        rq.counters = rqc::counter_set_id.get(new);
    }
    rq.state = to;
    match to {
        WqState::Rst => rq.wq.reset(),
        WqState::Rdy => {}
        WqState::Err => Device::of(hca).fail_rq(rqn),
    }
    Ok(())
}

/// DESTROY_RQ, from any state; refused while a TIR or an RQT leads to it.
pub(crate) fn destroy_rq(hca: &mut Hca, input: &[u8], _output: &mut [u8]) -> Result<(), Refusal> {
    let rqn = head_in::number.get(input) & 0xff_ffff;
    let objects = &mut hca.objects;
    if !objects.rqs.contains_key(&rqn) {
        return Err(Status::BadResource.because(0x90_a001));
    }
    objects.queue_numbers.free(rqn)?;
    if let Some(rq) = objects.rqs.remove(&rqn) {
        objects.cq_users.remove(rq.cqn, Kind::Rq, rqn);
        objects.cq_numbers.release(rq.cqn);
        rq.wq.uses.release(&mut objects.umem_numbers);
        hca.ids.pd.release(rq.wq.pd);
    }
    Ok(())
}

/// QUERY_RQ.
pub(crate) fn query_rq(hca: &mut Hca, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    let rqn = head_in::number.get(input) & 0xff_ffff;
    let rq = hca.objects.rqs.get(&rqn).ok_or(Status::BadResource.because(0x90_b001))?;
    let context = rq_in::rqc.bytes_mut(output);
    let n = context.len().min(rq.context.len());
    context[..n].copy_from_slice(&rq.context[..n]);
    rqc::state.set(context, rq.state.code());
    let inner = rqc::wq.bytes_mut(context);
    wq::hw_counter.set(inner, u32::from(rq.wq.head));
    wq::sw_counter.set(inner, u32::from(rq.wq.producer));
    Ok(())
}
