//! Queue pairs as objects of the device: their memory, CREATE_QP, state transitions, DESTROY_QP.
//!
//! PRM "CREATE_QP", "QP state machine". Each step is one command that carries the fields of that
//! transition and an optional parameter mask of 0: required fields are taken without being named.
//! On InfiniBand the path of the step to ready-to-receive is the peer's LID, and its GID where packets
//! cross subnets. On RoCE the path of the step to ready-to-receive is the peer's MAC and address, the entry of the
//! own address table, the hop limit and the UDP source port; the device invents none of them. The
//! posting ends are `data::send` and `data::recv`.

use dat_core::fault;
use dat_core::provider::{Access, Class, Fault, Mtu, NextHop, Path, QpStep};

use crate::data::address_vector::{crosses_subnets, udp_sport};
use crate::data::ring::{Record, Ring};
use crate::data::send::{Doorbell, MAX_SEGMENTS, Umr, WIDEST, Width};
use crate::data::{Rq, Sq};
use crate::device::{self, Begun, Device, Uar, optional};
use crate::platform::{Platform, Reach, Span};
use crate::prm::At;
use crate::prm::caps::timestamps;
use crate::prm::cmd::{InputHead, Opcode};
use crate::prm::cq::Cqn;
use crate::prm::gid::Gid;
use crate::prm::mad::GSI_QKEY;
use crate::prm::qp::{
    ATOMIC_IB, AddressPath, CONTEXT_AT, IN_CQE_32, INDEX_IS_QPN, LOG_ACK_REQ_FREQ, LOG_DATAGRAM,
    LOG_MSG_MAX, OPTIONAL_AT, OPTIONAL_P_KEY_INDEX, PM_MIGRATED, PRIMARY_PATH_AT, QUERY_OUT,
    QpContext, Qpn, RQ_SHARED, ST_GSI, ST_RC, ST_SMI, ST_UD, STATE_ERR, TRANSITION,
};
use crate::verbs::memory;
use crate::verbs::memory::Pages;

/// The port of a function with one port.
const PORT: u8 = 1;
/// Largest message of a QP1, log2: one MAD.
const LOG_MAD: u8 = 8;
/// log2 of the longest ring, in slots: what the context's four bits hold.
const LOG_LONGEST: u8 = 15;
/// log2 of a unit of a WQE, the least receive slot.
const LOG_UNIT: u8 = 4;
/// log2 of a block of the send queue.
const LOG_WQEBB: u8 = 6;

/// Service of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Service {
    /// Reliable connected; the number comes back in every completion.
    Connected {
        /// The user index.
        index: u32,
    },
    /// Datagrams; the number comes back in every completion.
    Datagram {
        /// The user index.
        index: u32,
    },
    /// The general services interface.
    Gsi,
    /// The subnet management interface.
    Smi,
}

/// Attributes of a queue pair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QpSpec {
    pub(crate) service: Service,
    pub(crate) pd: u32,
    pub(crate) send_cq: Cqn,
    pub(crate) recv_cq: Cqn,
    pub(crate) requests: u16,
    pub(crate) receives: u16,
    pub(crate) request_segments: u8,
    pub(crate) receive_segments: u8,
    /// Its requests may change keys.
    pub(crate) binds: bool,
    pub(crate) uar: Uar,
    pub(crate) doorbell: Doorbell,
    /// Number of the shared receive queue, if it has no receive queue of its own.
    pub(crate) shared: Option<u32>,
    /// Short messages come in their completions.
    pub(crate) inline: bool,
}

/// A queue pair and the memory that is its own, in few bytes: there are as many as Endpoints.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QpObject {
    /// Its number.
    pub(crate) qpn: Qpn,
    /// Where its memory begins in the arena, and its length, in blocks.
    memory: [u32; 2],
    /// log2 of the slots of the ring of its receives, and of the bytes of one.
    receives: [u8; 2],
    /// It was reset, and has taken no step since.
    pub(crate) is_reset: bool,
}

impl QpObject {
    /// That of so much memory; none if a block of it has a greater number than an object holds.
    fn new(memory: Span, receives: [u8; 2]) -> Option<Self> {
        let blocks = |bytes: usize| u32::try_from(bytes.div_ceil(1 << LOG_WQEBB)).ok();
        let memory = [blocks(memory.offset)?, blocks(memory.len)?];
        Some(Self { qpn: Qpn(0), memory, receives, is_reset: false })
    }

    /// Its memory.
    pub(crate) fn memory(&self) -> Span {
        let [offset, len] = self.memory.map(|blocks| (blocks as usize) << LOG_WQEBB);
        Span { offset, len }
    }

    /// Ring of its receives, and log2 of the bytes of a slot.
    pub(crate) fn receives(&self) -> (Ring, u8) {
        let [log_slots, log_stride] = self.receives;
        (Ring::new(self.memory().offset, log_slots), log_stride)
    }
}

impl QpSpec {
    /// Returns the width of its widest request.
    const fn width(&self) -> Width {
        match self.service {
            _ if self.binds => Width(WIDEST),
            Service::Connected { .. } => Width::connected(self.request_segments),
            Service::Datagram { .. } | Service::Gsi | Service::Smi => {
                Width::datagram(self.request_segments)
            }
        }
    }
}

/// Logarithms of the shape.
#[derive(Debug)]
struct Shape {
    /// It has a receive queue of its own.
    receives: bool,
    log_sq: u8,
    log_rq: u8,
    /// log2 of a receive slot in bytes.
    log_stride: u8,
}

impl Shape {
    fn of<P: Platform>(device: &Device<'_, P>, spec: &QpSpec) -> Result<Self, Fault> {
        let limit = device.caps().general.log_max_qp_sz().min(LOG_LONGEST);
        if spec.request_segments > MAX_SEGMENTS || spec.receive_segments > MAX_SEGMENTS {
            return Err(fault!(
                BadParameter,
                "CREATE_QP",
                "more segments than a request can have",
                "ask for no more than the limits say",
            ));
        }
        let log = |slots: u32| u8::try_from(slots.trailing_zeros()).unwrap_or(u8::MAX);
        let log_sq = log(spec.width().blocks_of(spec.requests));
        let units = u32::from(spec.receive_segments.max(1)).next_power_of_two();
        let log_stride = log(units).saturating_add(LOG_UNIT);
        // The send queue follows the receive queue and starts on a block.
        let log_rq = log(u32::from(spec.receives.max(1)).next_power_of_two())
            .max(LOG_WQEBB.saturating_sub(log_stride));
        if log_sq > limit || log_rq > limit {
            return Err(fault!(
                BadParameter,
                "CREATE_QP",
                "more requests or receives than the device allows in one queue pair",
                "ask for no more than the limits say",
            ));
        }
        Ok(Self { receives: spec.shared.is_none(), log_sq, log_rq, log_stride })
    }

    /// Bytes of the receive ring, which comes first.
    fn receive_len(&self) -> usize {
        if self.receives { 1 << (self.log_rq + self.log_stride) } else { 0 }
    }

    /// Bytes of both.
    fn len(&self) -> usize {
        self.receive_len() + (1 << (self.log_sq + LOG_WQEBB))
    }
}

/// A queue pair that the device is being asked for.
#[derive(Debug)]
pub(crate) struct Creation<'p, P: Platform> {
    shape: Shape,
    /// Without its number.
    object: QpObject,
    sq: Sq<'p, P>,
    rq: Rq<'p, P>,
    begun: Option<Begun>,
}

/// Makes a queue pair, in Reset.
pub(crate) fn create<'p, P: Platform>(
    device: &mut Device<'p, P>,
    spec: &QpSpec,
) -> Result<(QpObject, Sq<'p, P>, Rq<'p, P>), Fault> {
    let creation = begin_create(device, spec)?;
    finish_create(device, spec, creation)
}

/// Takes memory for a queue pair and asks the device for it, without a wait.
pub(crate) fn begin_create<'p, P: Platform>(
    device: &mut Device<'p, P>,
    spec: &QpSpec,
) -> Result<Creation<'p, P>, Fault> {
    let shape = Shape::of(device, spec)?;
    let memory = memory::take(device.platform(), shape.len(), Reach::Read)?;
    let begun = submit(device, spec, shape, memory);
    if let Err(fault) = &begun {
        device::give_up(device, memory, fault);
    }
    begun
}

/// Waits for the device's answer; asks anew if there was no room for the command, or not enough
/// pages.
pub(crate) fn finish_create<'p, P: Platform>(
    device: &mut Device<'p, P>,
    spec: &QpSpec,
    creation: Creation<'p, P>,
) -> Result<(QpObject, Sq<'p, P>, Rq<'p, P>), Fault> {
    let Creation { shape, object, mut sq, rq, begun } = creation;
    let memory = object.memory();
    let answered = begun.and_then(|begun| device.complete(&begun));
    let made = answered.unwrap_or_else(|| {
        let (mut input, pages) = creation_message(device, spec, &shape, memory)?;
        device.make(Opcode::CreateQp, pages.cut(&mut input))
    });
    match made {
        Ok(qpn) => {
            sq.set_qpn(qpn);
            Ok((QpObject { qpn: Qpn(qpn), ..object }, sq, rq))
        }
        Err(fault) => {
            device::give_up(device, memory, &fault);
            Err(fault)
        }
    }
}

fn submit<'p, P: Platform>(
    device: &mut Device<'p, P>,
    spec: &QpSpec,
    shape: Shape,
    memory: Span,
) -> Result<Creation<'p, P>, Fault> {
    let platform = device.platform();
    let record = record(&shape, memory);
    // Without a receive queue its end has nothing to do; it lies on a block of the send queue that
    // it never touches.
    let (log_rq, log_stride) =
        if shape.receives { (shape.log_rq, shape.log_stride) } else { (0, LOG_UNIT) };
    let object = QpObject::new(memory, [log_rq, log_stride]).ok_or(memory::unseen())?;
    let (receive, _) = object.receives();
    let send = Ring::new(memory.offset.wrapping_add(shape.receive_len()), shape.log_sq);
    let umr = Umr::of(&device.caps().general);
    let sq =
        Sq::new(platform, send, record, spec.doorbell, spec.width(), umr).ok_or(memory::unseen())?;
    let rq = Rq::new(platform, receive, log_stride, record).ok_or(memory::unseen())?;
    let (mut input, pages) = creation_message(device, spec, &shape, memory)?;
    let begun = device.begin(Opcode::CreateQp, 0, pages.cut(&mut input), &())?;
    Ok(Creation { shape, object, sq, rq, begun })
}

/// The doorbell record, behind the rings.
fn record(shape: &Shape, memory: Span) -> Record {
    Record(memory.offset.wrapping_add(shape.len()))
}

/// The message of CREATE_QP.
#[inline(always)]
fn creation_message<P: Platform>(
    device: &Device<'_, P>,
    spec: &QpSpec,
    shape: &Shape,
    memory: Span,
) -> Result<(memory::Message, Pages), Fault> {
    let platform = device.platform();
    let ring = Span { offset: memory.offset, len: shape.len() };
    let mut input = memory::MESSAGE;
    let pages = Pages::of(platform, ring, &mut input)?;
    let mut context = QpContext(At::<_, CONTEXT_AT>(&mut input));
    match spec.service {
        Service::Connected { index } => {
            context.set_st(ST_RC);
            context.set_user_index(index);
        }
        Service::Datagram { index } => {
            context.set_st(ST_UD);
            context.set_user_index(index);
        }
        Service::Gsi | Service::Smi => {
            let smi = spec.service == Service::Smi;
            context.set_st(if smi { ST_SMI } else { ST_GSI });
            context.set_user_index(INDEX_IS_QPN);
        }
    }
    context.set_pm_state(PM_MIGRATED);
    context.set_ts_format(timestamps(device.caps().roce.qp_ts_format()));
    context.set_pd(spec.pd);
    if let Some(srqn) = spec.shared {
        context.set_rq_type(RQ_SHARED);
        context.set_srqn_rmpn_xrqn(srqn);
    } else {
        context.set_log_rq_size(shape.log_rq);
        context.set_log_rq_stride(shape.log_stride.saturating_sub(LOG_UNIT));
    }
    context.set_log_sq_size(shape.log_sq);
    context.set_uar_page(spec.uar.number);
    context.set_log_page_size(pages.log_size);
    context.set_page_offset(pages.offset);
    context.set_cqn_snd(spec.send_cq.0);
    context.set_cqn_rcv(spec.recv_cq.0);
    context.set_dbr_addr(memory::record_address(platform, record(shape, memory))?);
    context.set_cs_res(if spec.inline { IN_CQE_32 } else { 0 });
    Ok((input, pages))
}

/// Takes a connected queue pair one step on.
pub(crate) fn step<P: Platform>(
    device: &mut Device<'_, P>,
    qpn: Qpn,
    step: &QpStep,
) -> Result<(), Fault> {
    match (message(device, qpn, step), *step) {
        (Some((op, mut input)), _) => device.run(op, qpn.0, &mut input),
        (None, QpStep::Datagram { qkey }) => {
            start_datagrams(device, qpn, ST_UD, (Mtu::B4096, LOG_DATAGRAM), qkey)
        }
        (None, QpStep::Error) => short(device, Opcode::ToErrQp, qpn),
        (None, _) => reset(device, qpn),
    }
}

/// Begins such a step, to be waited for by [`Device::complete`]; none if it cannot be begun.
pub(crate) fn begin<P: Platform>(
    device: &mut Device<'_, P>,
    qpn: Qpn,
    step: &QpStep,
) -> Result<Option<Begun>, Fault> {
    if let Some((op, mut input)) = message(device, qpn, step) {
        return device.begin(op, qpn.0, &mut input, &());
    }
    let op = match *step {
        QpStep::Error => Opcode::ToErrQp,
        QpStep::Reset => Opcode::ToRstQp,
        // Three commands, one behind the other.
        QpStep::Datagram { .. } | QpStep::Init { .. } | QpStep::Rtr { .. } | QpStep::Rts { .. } => {
            return Ok(None);
        }
    };
    device.begin_end(op, qpn.0)
}

/// The command of a step that is one command with a context.
fn message<P: Platform>(
    device: &Device<'_, P>,
    qpn: Qpn,
    step: &QpStep,
) -> Option<(Opcode, [u8; TRANSITION])> {
    let mut input = transition(qpn, ST_RC);
    let mut context = QpContext(At::<_, CONTEXT_AT>(&mut input));
    let op = match *step {
        QpStep::Datagram { .. } | QpStep::Error | QpStep::Reset => return None,
        QpStep::Init { access } => {
            context.set_counter_set_id(device.counter_set());
            context.set_rre(access.contains(Access::REMOTE_READ));
            context.set_rwe(access.contains(Access::REMOTE_WRITE));
            if access.contains(Access::REMOTE_ATOMIC) && device.caps().has_atomics() {
                context.set_rae(true);
                context.set_atomic_mode(ATOMIC_IB);
            }
            let mut path = AddressPath(At::<_, PATH_AT>(&mut input));
            path.set_vhca_port_num(PORT);
            path.set_pkey_index(device.pkey_index);
            Opcode::Rst2InitQp
        }
        QpStep::Rtr { path, remote_qpn, rq_psn, mtu, responder_resources, min_rnr_timer } => {
            context.set_mtu(mtu.code());
            context.set_log_msg_max(LOG_MSG_MAX.min(device.caps().general.log_max_msg()));
            context.set_remote_qpn(remote_qpn);
            context.set_next_rcv_psn(rq_psn);
            context.set_log_rra_max(log_ceil(responder_resources));
            context.set_min_rnr_nak(min_rnr_timer);
            let sport = udp_sport(path.flow_label, qpn.0, remote_qpn);
            fill(&mut input, &path, sport, device.pkey_index);
            Opcode::Init2RtrQp
        }
        QpStep::Rts { sq_psn, initiator_depth, ack_timeout, retry_count, rnr_retry } => {
            context.set_next_send_psn(sq_psn);
            context.set_log_sra_max(log_ceil(initiator_depth));
            context.set_retry_count(retry_count);
            context.set_rnr_retry(rnr_retry);
            context.set_log_ack_req_freq(LOG_ACK_REQ_FREQ);
            AddressPath(At::<_, PATH_AT>(&mut input)).set_ack_timeout(ack_timeout);
            Opcode::Rtr2RtsQp
        }
    };
    Some((op, input))
}

/// Takes a QP1 from Reset to ready-to-send.
pub(crate) fn start_gsi<P: Platform>(device: &mut Device<'_, P>, qpn: Qpn) -> Result<(), Fault> {
    start_datagrams(device, qpn, ST_GSI, (Mtu::B256, LOG_MAD), GSI_QKEY)
}

/// Takes a QP0 from Reset to ready-to-send.
pub(crate) fn start_smi<P: Platform>(device: &mut Device<'_, P>, qpn: Qpn) -> Result<(), Fault> {
    start_datagrams(device, qpn, ST_SMI, (Mtu::B256, LOG_MAD), 0)
}

/// Takes a queue pair of the driver's own for datagrams from Reset to ready-to-send.
pub(crate) fn start_ud<P: Platform>(
    device: &mut Device<'_, P>,
    qpn: Qpn,
    qkey: u32,
) -> Result<(), Fault> {
    start_datagrams(device, qpn, ST_UD, (Mtu::B4096, LOG_DATAGRAM), qkey)
}

/// Takes a queue pair without a peer from Reset to ready-to-send.
fn start_datagrams<P: Platform>(
    device: &mut Device<'_, P>,
    qpn: Qpn,
    service: u8,
    (mtu, log_longest): (Mtu, u8),
    qkey: u32,
) -> Result<(), Fault> {
    // The special queue pairs take the default partition's, those of consumers the port's own.
    let pkey_index = if service == ST_UD { device.pkey_index } else { 0 };
    for op in [Opcode::Rst2InitQp, Opcode::Init2RtrQp, Opcode::Rtr2RtsQp] {
        let mut input = transition(qpn, service);
        let mut path = AddressPath(At::<_, PATH_AT>(&mut input));
        path.set_vhca_port_num(PORT);
        path.set_pkey_index(pkey_index);
        let mut context = QpContext(At::<_, CONTEXT_AT>(&mut input));
        context.set_mtu(mtu.code());
        context.set_log_msg_max(log_longest);
        if op == Opcode::Rst2InitQp {
            context.set_q_key(qkey);
            context.set_counter_set_id(device.counter_set());
        }
        device.run(op, qpn.0, &mut input)?;
    }
    Ok(())
}

/// Takes a queue pair of any kind to Reset.
pub(crate) fn reset<P: Platform>(device: &mut Device<'_, P>, qpn: Qpn) -> Result<(), Fault> {
    short(device, Opcode::ToRstQp, qpn)
}

/// Whether a queue pair is in Error; also if the device does not say.
pub(crate) fn failed<P: Platform>(device: &mut Device<'_, P>, qpn: Qpn) -> bool {
    let mut input = InputHead::new();
    input.set_number(qpn.0);
    let mut output = [0; QUERY_OUT];
    let said = device.exec(Opcode::QueryQp, 0, qpn.0, &mut input.0, &mut output);
    said.is_err() || QpContext(At::<_, CONTEXT_AT>(&output)).state() == STATE_ERR
}

/// Destroys a queue pair in any state. Its memory goes back to the arena only if the device let go
/// of it.
pub(crate) fn destroy<P: Platform>(device: &mut Device<'_, P>, qp: &QpObject) -> Result<(), Fault> {
    // Through Reset, as every driver known to work on cards does it. Refused where the queue pair
    // is beyond that, which the destroy itself will tell.
    if !qp.is_reset {
        optional(reset(device, qp.qpn))?;
    }
    device.end(Opcode::DestroyQp, qp.qpn.0)?;
    device.platform().free(qp.memory());
    Ok(())
}

/// Destroys a queue pair that nobody will ask for again: what the device does not let go of now, it
/// does at the teardown.
pub(crate) fn end<P: Platform>(device: &mut Device<'_, P>, qp: &QpObject) -> Result<(), Fault> {
    destroy(device, qp).inspect_err(|_| device.disown(qp.memory()))
}

/// A transition that carries nothing.
fn short<P: Platform>(device: &mut Device<'_, P>, op: Opcode, qpn: Qpn) -> Result<(), Fault> {
    device.end(op, qpn.0)
}

/// Where the primary path stands in the message of a transition.
const PATH_AT: usize = CONTEXT_AT + PRIMARY_PATH_AT;

/// The message of a transition, with what all of them have in common.
fn transition(qpn: Qpn, service: u8) -> [u8; TRANSITION] {
    let mut input = [0; TRANSITION];
    InputHead(&mut input).set_number(qpn.0);
    let mut context = QpContext(At::<_, CONTEXT_AT>(&mut input));
    context.set_st(service);
    context.set_pm_state(PM_MIGRATED);
    input
}

/// The path of a packet. On RoCEv2 the GRH bit stays 0: it is InfiniBand's.
fn fill(input: &mut [u8; TRANSITION], path: &Path, udp_sport: u16, own_index: u16) {
    let mut address = AddressPath(At::<_, PATH_AT>(&mut *input));
    address.set_vhca_port_num(PORT);
    address.set_src_addr_index(path.source_index);
    address.set_hop_limit(path.hop_limit);
    let Class { traffic_class, priority } = path.class;
    address.set_tclass(traffic_class);
    address.set_flow_label(path.flow_label);
    address.set_rgid_rip(Gid::from(path.remote).0);
    match path.next_hop {
        NextHop::Mac([a, b, c, d, e, f]) => {
            address.set_dscp(traffic_class >> 2);
            address.set_eth_prio(priority & 7);
            address.set_udp_sport(udp_sport);
            address.set_rmac_47_32(u16::from_be_bytes([a, b]));
            address.set_rmac_31_0(u32::from_be_bytes([c, d, e, f]));
        }
        NextHop::Lid(hop) => {
            address.set_rlid(hop.lid);
            address.set_mlid(hop.path_bits);
            address.set_stat_rate(hop.rate);
            address.set_sl(priority & 15);
            address.set_grh(crosses_subnets(path));
            address.set_pkey_index(hop.pkey_index);
            // The step to Init was taken before the path was known.
            if hop.pkey_index != own_index {
                crate::prm::put(input, OPTIONAL_AT, &OPTIONAL_P_KEY_INDEX.to_be_bytes());
            }
        }
    }
}

/// The smallest power of two not below `count`, as its logarithm; 1 for 0.
const fn log_ceil(count: u8) -> u8 {
    match count {
        0 | 1 => 0,
        2 => 1,
        3..=4 => 2,
        5..=8 => 3,
        9..=16 => 4,
        17..=32 => 5,
        33..=64 => 6,
        65.. => 7,
    }
}

#[cfg(test)]
mod tests;
