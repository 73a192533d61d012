//! Queue pairs by command: CREATE_QP, DESTROY_QP, QUERY_QP and the transitions.

use super::qp::{Qp, Receives, path};
use super::qp_state;
use super::rmp::Kind;
use super::traffic;
use super::umem::{self, Place, Uses};
use crate::caps::kind;
use crate::cmd::{Refusal, Status};
use crate::config::{LinkLayer, Personality};
use crate::hca::Hca;
use crate::ifc::Field;
use crate::ifc::caps::{cmd_hca_cap, roce_cap};
use crate::ifc::cmd::{head_in, head_out};
use crate::ifc::qp::{ads, qp_in, qpc, query_qp_out};
use crate::subnet::port::{GUIDS, P_KEYS};
use crate::transport::Engine;
use crate::transport::host::{QpKind, QpState};
use crate::wire::ib::lid;

/// `opt_param_mask` bits that name what the device never modifies are refused with this.
const SYNDROME_MASK: u32 = 0x50_0120;
/// Numbers that real firmware gave for an unknown QPN (2RST, 2ERR) and for destroying one.
const SYNDROME_NO_QP: u32 = 0x7e_a02d;
const SYNDROME_DESTROY: u32 = 0x25_b161;

/// Refuses a time format that the capability does not have: 0 has free running (0) only, 1 real
/// time (2) only, 2 both; where the field is known, 1 is the default.
pub(crate) fn check_ts_format(cap: u32, format: u32) -> Result<(), Refusal> {
    let known = match cap {
        0 => format == 0,
        1 => matches!(format, 1 | 2),
        _ => format < 3,
    };
    if known { Ok(()) } else { Err(Status::BadParam.because(0x50_001a)) }
}

/// Refuses payload in completions where no driver asks for it: of a service other than RC and UC,
/// and in another form than the one that fills the CQ's entries, 32 bytes of 64 or 64 of 128.
fn check_cqe_forms(
    hca: &Hca,
    kind: QpKind,
    receives: Receives,
    context: &[u8],
) -> Result<(), Refusal> {
    let fits = |code: u32, cqn: Field, [narrow, wide]: [u32; 2]| {
        let stride = hca.objects.cqs.get(&cqn.get(context)).map(|cq| cq.stride);
        code == 0 || stride.is_none_or(|stride| code == if stride == 64 { narrow } else { wide })
    };
    let (response, request) = (qpc::cs_res.get(context), qpc::cs_req.get(context));
    if (response, request) == (0, 0) {
        return Ok(());
    }
    let has = hca.caps.general(cmd_hca_cap::sctr_data_cqe) != 0;
    let receiving = receives == Receives::None || fits(response, qpc::cqn_rcv, [1, 2]);
    let known = response <= 2 && matches!(request, 0 | 0x11 | 0x22);
    let fits = known && receiving && fits(request, qpc::cqn_snd, [0x11, 0x22]);
    if has && fits && matches!(kind, QpKind::Rc | QpKind::Uc) {
        Ok(())
    } else {
        Err(Status::BadParam.because(0x50_001b))
    }
}

/// CREATE_QP.
pub(crate) fn create(hca: &mut Hca, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    let context = qp_in::qpc.bytes(input).to_vec();
    let get = |field: Field| field.get(&context);
    let kind = match get(qpc::st) {
        0 => QpKind::Rc,
        1 => QpKind::Uc,
        // Of the two ends of an XRC connection only the initiator sends.
        3 if qpc::no_sq.is_set(&context) => QpKind::XrcTarget,
        3 => QpKind::XrcInitiator,
        2 => QpKind::Ud,
        7 => QpKind::Smi,
        8 => QpKind::Gsi,
        0xc => QpKind::RegUmr,
        _ => return Err(Status::BadParam.because(0x50_0010)),
    };
    // Subnet management is the physical function's.
    let is_manager = hca.ib.is_some() && hca.config.personality == Personality::Pf;
    if kind == QpKind::Smi && !is_manager {
        return Err(Status::BadParam.because(0x50_001d));
    }
    if get(qpc::state) != 0 {
        return Err(Status::BadParam.because(0x50_0011));
    }
    // Where there is no RoCE no capability says: Linux takes free running, rdma-core's tests the
    // default.
    let times = match hca.ib {
        Some(_) if get(qpc::ts_format) < 2 => get(qpc::ts_format),
        _ => hca.caps.current(kind::ROCE, roce_cap::qp_ts_format),
    };
    check_ts_format(times, get(qpc::ts_format))?;
    let pd = get(qpc::pd);
    // A queue that only edits keys is of no domain.
    let domainless = kind == QpKind::RegUmr && pd == 0;
    if !domainless && !hca.ids.pd.contains(pd) {
        return Err(Status::BadResource.because(0x50_0012));
    }
    let uar = get(qpc::uar_page);
    // A target of XRC has no send queue, hence no doorbell.
    if kind != QpKind::XrcTarget && !hca.ids.uar.contains(uar) {
        return Err(Status::BadResource.because(0x50_0013));
    }
    if get(qpc::pm_state) != 3 {
        hca.bus.complain("CREATE_QP: pm_state is not 3 (migrated), as every known driver sets it");
    }
    if kind == QpKind::XrcTarget && !hca.ids.xrcd.contains(get(qpc::xrcd)) {
        return Err(Status::BadResource.because(0x50_0019));
    }
    let receives = match get(qpc::rq_type) {
        // An initiator receives nothing, a target what each request names.
        1 if matches!(kind, QpKind::XrcInitiator | QpKind::XrcTarget) => Receives::None,
        0 => Receives::Own,
        1 => Receives::Shared(get(qpc::srqn_rmpn_xrqn)),
        3 => Receives::None,
        _ => return Err(Status::BadParam.because(0x50_0014)),
    };
    check_cqe_forms(hca, kind, receives, &context)?;
    let uses = Uses {
        ring: umem::named(qp_in::wq_umem_valid, qp_in::wq_umem_id, input),
        record: umem::named(qpc::dbr_umem_valid, qpc::dbr_umem_id, &context),
    };
    let askew = Status::BadParam.because(0x50_0015);
    let dbr = umem::record(hca, uses.record, qpc::dbr_addr.get64(&context), 8, askew)?;
    let rq_bytes = if receives == Receives::Own {
        16u64 << (get(qpc::log_rq_stride) + get(qpc::log_rq_size))
    } else {
        0
    };
    let no_sq = qpc::no_sq.is_set(&context);
    let sq_bytes = if no_sq { 0 } else { 64u64 << get(qpc::log_sq_size) };
    let place = Place {
        umem: uses.ring.map(|number| (number, qp_in::wq_umem_offset.get64(input))),
        list: qp_in::pas.tail(input),
        log_page_size: get(qpc::log_page_size),
        page_offset: get(qpc::page_offset),
    };
    let short = Status::BadInputLength.because(0x50_0016);
    let ring = place.ring(hca, rq_bytes + sq_bytes, umem::READ, short)?;
    let qp = Qp {
        qpn: 0,
        kind,
        link: if hca.ib.is_some() { LinkLayer::InfiniBand } else { LinkLayer::Ethernet },
        state: QpState::Reset,
        context,
        ring,
        rq_bytes,
        receives,
        dbr,
        uses,
        rung: false,
        pushed: None,
        sq_producer: 0,
        rq_producer: 0,
        rq_head: 0,
        engine: Some(Engine::new()),
    };
    for cqn in [qp.cqn_snd(), qp.cqn_rcv()].into_iter().flatten() {
        if !hca.objects.cqs.contains_key(&cqn) {
            return Err(Status::BadResource.because(0x50_0017));
        }
    }
    if let Receives::Shared(srqn) = receives {
        if !hca.objects.rmps.get(&srqn).is_some_and(|rmp| matches!(rmp.kind, Kind::Rmp | Kind::Srq))
        {
            return Err(Status::BadResource.because(0x50_0018));
        }
    }
    // Those of the special services are beyond the limit: iPXE's golan sets it to one queue pair,
    // and on cards it has those of both services besides that one.
    let most = 1usize << hca.caps.general(cmd_hca_cap::log_max_qp).min(24);
    let is_special = matches!(kind, QpKind::Gsi | QpKind::Smi);
    if !is_special && hca.objects.qps.ordinary() >= most {
        return Err(Status::ExceedLimit.because(0x50_001c));
    }
    let qpn = hca.objects.queue_numbers.take()?;
    if !domainless {
        hca.ids.pd.hold(pd)?;
    }
    if kind != QpKind::XrcTarget {
        hca.ids.uar.hold(uar)?;
    }
    uses.hold(&mut hca.objects.umem_numbers)?;
    for cqn in [qp.cqn_snd(), qp.cqn_rcv()].into_iter().flatten() {
        hca.objects.cq_numbers.hold(cqn)?;
    }
    if let Receives::Shared(srqn) = receives {
        hca.objects.srq_numbers.hold(srqn)?;
    }
    if kind == QpKind::XrcTarget {
        hca.ids.xrcd.hold(qp.get(qpc::xrcd))?;
    } else {
        check_record(hca, "QP", qpn, dbr);
    }
    let qp = Qp { qpn, ..qp };
    hca.objects.cq_users.add_qp(&qp);
    hca.objects.qps.insert(qpn, qp);
    head_out::number.set(output, qpn);
    Ok(())
}

/// A doorbell record must be zero when its queue is created: real cards read the garbage.
pub(crate) fn check_record(hca: &mut Hca, what: &str, number: u32, dbr: u64) {
    let mut record = [0; 8];
    if hca.bus.read(dbr, &mut record).is_ok() && record != [0; 8] {
        hca.bus.complain(format!(
            "{what} {number:#x} created with a doorbell record that is not zero: {record:02x?}"
        ));
    }
}

/// DESTROY_QP, from any state.
pub(crate) fn destroy(hca: &mut Hca, input: &[u8], _output: &mut [u8]) -> Result<(), Refusal> {
    let qpn = head_in::number.get(input) & 0xff_ffff;
    let objects = &mut hca.objects;
    if !objects.qps.contains_key(&qpn) {
        return Err(Status::BadResourceState.because(SYNDROME_DESTROY));
    }
    if objects.groups.holds(qpn) {
        return Err(Status::BadResourceState.because(SYNDROME_DESTROY));
    }
    objects.queue_numbers.free(qpn)?;
    let Some(qp) = objects.qps.remove(&qpn) else {
        return Ok(());
    };
    objects.cq_users.remove_qp(&qp);
    qp.uses.release(&mut objects.umem_numbers);
    hca.ids.pd.release(qp.get(qpc::pd));
    if qp.kind != QpKind::XrcTarget {
        hca.ids.uar.release(qp.get(qpc::uar_page));
    }
    for cqn in [qp.cqn_snd(), qp.cqn_rcv()].into_iter().flatten() {
        objects.cq_numbers.release(cqn);
    }
    if let Receives::Shared(srqn) = qp.receives {
        objects.srq_numbers.release(srqn);
    }
    if qp.kind == QpKind::XrcTarget {
        hca.ids.xrcd.release(qp.get(qpc::xrcd));
    }
    Ok(())
}

/// QUERY_QP.
pub(crate) fn query(hca: &mut Hca, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    let qpn = head_in::number.get(input) & 0xff_ffff;
    let qp = hca.objects.qps.get(&qpn).ok_or(Status::BadResource.because(0x50_b001))?;
    let context = query_qp_out::qpc.bytes_mut(output);
    let n = context.len().min(qp.context.len());
    context[..n].copy_from_slice(&qp.context[..n]);
    qpc::state.set(context, qp_state::code(qp.state));
    qpc::sw_sq_wqebb_counter.set(context, u32::from(qp.sq_producer));
    qpc::hw_rq_counter.set(context, u32::from(qp.rq_head));
    qpc::sw_rq_counter.set(context, u32::from(qp.rq_producer));
    Ok(())
}

/// Every transition.
pub(crate) fn transition(hca: &mut Hca, input: &[u8], _output: &mut [u8]) -> Result<(), Refusal> {
    let opcode = head_in::opcode.get(input);
    let row = qp_state::find(opcode).ok_or(Status::BadOp.because(0x50_0100))?;
    let qpn = head_in::number.get(input) & 0xff_ffff;
    let Some(qp) = hca.objects.qps.get(&qpn) else {
        return Err(Status::BadResourceState.because(SYNDROME_NO_QP));
    };
    if !row.from.is_empty() && !row.from.contains(&qp.state) {
        return Err(Status::BadQpState.because(0x50_0110));
    }
    let mut context = qp.context.clone();
    if input.len() >= 0x18 + qpc::BYTES {
        let mask = qp_in::opt_param_mask.get(input);
        if mask & !row.mask() != 0 {
            return Err(Status::BadParam.because(SYNDROME_MASK));
        }
        let given = qp_in::qpc.bytes(input);
        for field in [qpc::st, qpc::pd, qpc::cqn_snd, qpc::cqn_rcv] {
            let (given, own) = (field.get(given), field.get(&context));
            // Stock Linux names the domain of its key edits in transitions only.
            let domainless = qp.kind == QpKind::RegUmr && own == 0;
            if given != 0 && given != own && !domainless {
                let text = format!(
                    "QP {qpn:#x}: command {opcode:#x} names type, PD or CQ {given:#x}, \
                     created with {own:#x}; the device keeps what CREATE_QP said"
                );
                hca.bus.complain(text);
            }
        }
        row.merge(mask, given, &mut context);
    }
    check_values(hca, opcode, qpn, &context)?;
    let Some(qp) = hca.objects.qps.get_mut(&qpn) else {
        return Ok(());
    };
    qp.context = context;
    qp.state = row.to;
    if row.to == QpState::Reset {
        qp.reset();
    }
    traffic::modified(hca, qpn);
    Ok(())
}

/// Refuses a path that leads nowhere in a subnet: a LID that names no port, a GID that is not in the
/// table.
fn check_ib_path(hca: &mut Hca, qpn: u32, context: &[u8]) -> Result<(), Refusal> {
    let get = |field: Field| path(field).get(context);
    if lid::kind(get(ads::rlid) as u16) != lid::Kind::Unicast {
        return Err(Status::BadParam.because(0x50_0128));
    }
    if get(ads::grh) != 0 && get(ads::src_addr_index) >= GUIDS as u32 {
        return Err(Status::BadParam.because(0x50_0129));
    }
    for (name, field) in [
        ("MAC", ads::rmac_31_0),
        ("UDP source port", ads::udp_sport),
        ("priority", ads::eth_prio),
        ("DSCP", ads::dscp),
    ] {
        if get(field) != 0 {
            hca.bus.complain(format!("QP {qpn:#x}: a path of InfiniBand has no {name}"));
        }
    }
    Ok(())
}

/// Refuses values that the transition may not set.
fn check_values(hca: &mut Hca, opcode: u32, qpn: u32, context: &[u8]) -> Result<(), Refusal> {
    let get = |field: Field| field.get(context);
    // RC, UC and XRC have a peer and a path to it.
    let rc = matches!(get(qpc::st), 0 | 1 | 3);
    match opcode {
        0x502 | 0x50e if get(path(ads::vhca_port_num)) != 1 => {
            return Err(Status::BadParam.because(0x50_0121));
        }
        0x502 | 0x50e if get(path(ads::pkey_index)) >= P_KEYS as u32 => {
            return Err(Status::BadParam.because(0x50_0127));
        }
        0x503 if rc => {
            if !(1..=5).contains(&get(qpc::mtu)) || get(qpc::log_msg_max) > 31 {
                return Err(Status::BadParam.because(0x50_0122));
            }
            if get(qpc::remote_qpn) == 0 {
                return Err(Status::BadParam.because(0x50_0123));
            }
            if hca.ib.is_some() {
                return check_ib_path(hca, qpn, context);
            }
            let mac = (get(path(ads::rmac_47_32)), get(path(ads::rmac_31_0)));
            let gid = path(ads::rgid_rip).bytes(context);
            if mac == (0, 0) || gid.iter().all(|&b| b == 0) || get(path(ads::hop_limit)) == 0 {
                return Err(Status::BadParam.because(0x50_0124));
            }
            let Some(source) = hca.roce.get(get(path(ads::src_addr_index))) else {
                return Err(Status::BadParam.because(0x50_0125));
            };
            if source.v2 && get(path(ads::udp_sport)) < 0xc000 {
                hca.bus.complain(format!(
                    "QP {qpn:#x}: UDP source port {:#x} is outside 0xc000..0xffff",
                    get(path(ads::udp_sport))
                ));
            }
            // Linux sets both, later drivers of the vendor's the DSCP alone.
            let (tclass, dscp) = (get(path(ads::tclass)), get(path(ads::dscp)));
            if source.v2 && tclass != 0 && tclass >> 2 != dscp {
                hca.bus.complain(format!(
                    "QP {qpn:#x}: traffic class {tclass:#x} and DSCP {dscp:#x} differ"
                ));
            }
            if get(path(ads::sl)) != 0 {
                hca.bus.complain(format!(
                    "QP {qpn:#x}: the service level is InfiniBand's; on RoCE it is eth_prio"
                ));
            }
            if get(path(ads::grh)) != 0 {
                hca.bus.complain(format!("QP {qpn:#x}: the grh bit is not set on RoCE"));
            }
        }
        0x504 if rc && get(qpc::log_ack_req_freq) > 8 => {
            return Err(Status::BadParam.because(0x50_0126));
        }
        _ => {}
    }
    Ok(())
}
