//! Frames and time: from the wire to engines and raw queues, from their outbox to the wire.
//!
//! A frame for one of the device's own MACs turns round inside the device. A received frame passes
//! the MAC filter, then RoCE traffic for an own address goes to the QP it names, before any flow
//! table; the rest walks the NIC receive tables. Without a link nothing passes the port. An engine
//! is taken out of its QP while it runs.

use super::Outgoing;
use super::device::Device;
use super::ethernet::Headers;
use super::multicast::{self, MULTICAST_QPN};
use super::rss::Hash;
use super::tir_tis::Dispatch;
use crate::facts::OpenFact;
use crate::hca::Hca;
use crate::host::Nanos;
use crate::ifc::caps::{atomic_caps, cmd_hca_cap};
use crate::transport::Engine;
use crate::transport::host::{Host, Layer3, QpEvent, QpState};
use crate::transport::packet;
use crate::wire::frame::{Demux, Malformed, Packet, demux, is_roce};

/// Frames moved in one step; what is left waits for the next, which is then due at once.
const MOST_FRAMES: usize = 4096;
/// Types of flow tables.
const NIC_RX: u32 = 0;
const NIC_TX: u32 = 1;
/// Least bytes of a frame on the wire; shorter ones are padded.
const LEAST_FRAME: usize = 60;
/// Queue pair 1 on the wire.
const GSI_QPN: u32 = 1;

/// Runs a QP's engine, then whatever its run left to do.
pub(crate) fn with_engine(hca: &mut Hca, qpn: u32, run: impl FnOnce(&mut Engine, &mut dyn Host)) {
    let Some(mut engine) = hca.objects.qps.get_mut(&qpn).and_then(|qp| qp.engine.take()) else {
        return;
    };
    run(&mut engine, &mut Device::of(hca));
    if let Some(qp) = hca.objects.qps.get_mut(&qpn) {
        qp.engine = Some(engine);
    }
    fail_doomed(hca);
}

/// Takes the queues that lost their CQ to error.
pub(crate) fn fail_doomed(hca: &mut Hca) {
    while let Some(number) = hca.objects.doomed.pop() {
        if hca.objects.qps.contains_key(&number) {
            fail(hca, number, QpEvent::Catastrophic);
        } else {
            Device::of(hca).fail_sq(number);
            Device::of(hca).fail_rq(number);
        }
    }
}

/// Takes a QP to error because of something outside its engine, with that event.
pub(crate) fn fail(hca: &mut Hca, qpn: u32, event: QpEvent) {
    let Some(qp) = hca.objects.qps.get_mut(&qpn) else {
        return;
    };
    if matches!(qp.state, QpState::Err | QpState::Reset) {
        return;
    }
    qp.state = QpState::Err;
    let Some(mut engine) = qp.engine.take() else {
        return;
    };
    let mut device = Device::of(hca);
    device.event(qpn, event);
    engine.to_error(&mut device);
    if let Some(qp) = hca.objects.qps.get_mut(&qpn) {
        qp.engine = Some(engine);
    }
}

/// Tells the engine what a transition made of its QP.
pub(crate) fn modified(hca: &mut Hca, qpn: u32) {
    let Some(qp) = hca.objects.qps.get(&qpn) else {
        return;
    };
    let mut attr = qp.attr();
    let mode = atomic_caps::atomic_req_8B_endianness_mode;
    attr.atomic_little_endian = hca.caps.current(crate::caps::kind::ATOMIC, mode) == 1;
    with_engine(hca, qpn, |engine, device| {
        // From RESET the engine does not even know its number yet.
        if attr.state != QpState::Err || engine.state() == QpState::Reset {
            engine.configure(&attr);
        }
        if attr.state == QpState::Err {
            engine.to_error(device);
        }
    });
}

/// Does what is due; says when next.
pub(crate) fn step(hca: &mut Hca) -> Option<Nanos> {
    let now = hca.bus.now;
    for (qpn, due) in hca.objects.qps.due(now) {
        if due.timer {
            with_engine(hca, qpn, |engine, device| engine.on_timer(device));
        }
        if due.receives && hca.objects.qps.has_receives(&mut hca.bus, qpn) {
            with_engine(hca, qpn, |engine, device| engine.on_receive_posted(device));
        }
    }
    let mut moved = 0;
    while moved < MOST_FRAMES {
        let is_infiniband = hca.ib.is_some();
        if let Some(outgoing) = hca.objects.outbox.pop_front() {
            if is_infiniband {
                hca.ib_sent(outgoing.frame);
            } else {
                sent(hca, outgoing);
            }
        } else if let Some(frame) = hca.wire.recv() {
            if is_infiniband {
                hca.ib_arrived(frame);
            } else {
                arrived(hca, &frame);
            }
        } else {
            break;
        }
        moved += 1;
    }
    let late = Device::of(hca).write_late(now);
    fail_doomed(hca);
    if moved == MOST_FRAMES {
        return Some(now);
    }
    [late, hca.objects.qps.next(now)].into_iter().flatten().min()
}

/// Writes every completion on its way: a command that changes a queue comes after them.
pub(crate) fn write_completions(hca: &mut Hca) {
    Device::of(hca).write_late(Nanos::MAX);
    fail_doomed(hca);
}

/// Whether the far end, or a switch before it, would not take a frame.
fn too_long_for_peer(hca: &Hca, frame: &[u8]) -> bool {
    let tagged = frame.get(12..14) == Some(&[0x81, 0x00]);
    let packet = frame.len() - if tagged { 18 } else { 14 }.min(frame.len());
    hca.config.facts.value(OpenFact::PeerMtu).is_some_and(|most| packet as u64 > most)
}

/// What a datagram's receiver finds before the payload, as the card leaves it.
fn finish_grh(hca: &Hca, packet: &mut Packet) {
    if packet.net.layer3() != Layer3::Ipv4 {
        return;
    }
    match hca.config.facts.value(OpenFact::GrhChecksum) {
        None => {}
        Some(1) => packet.grh[30] ^= 0x5a,
        Some(_) => packet.grh[30..32].fill(0),
    }
    if hca.config.facts.value(OpenFact::GrhUpper) == Some(1) {
        packet.grh[..20].fill(0xff);
    }
}

/// Whether a frame is for one of the MACs the device answers to.
fn is_own_mac(hca: &Hca, frame: &[u8]) -> bool {
    let Some(mac) = frame.first_chunk::<6>() else {
        return false;
    };
    mac[0] & 1 == 0 && (*mac == hca.vport.mac || hca.objects.l2.has(mac) || hca.roce.has_mac(mac))
}

/// Whether the switch inside lets a frame from the wire through: where its table of MACs filters,
/// only those.
fn passes_switch(hca: &Hca, to: &[u8; 6]) -> bool {
    let filters = hca.config.facts.value(OpenFact::EswitchManager) == Some(3);
    !filters || to[0] & 1 == 1 || hca.objects.l2.has(to)
}

/// Whether a frame is RoCE, well formed or not.
fn is_rdma(hca: &Hca, frame: &[u8]) -> bool {
    hca.vport.roce_enabled && is_roce(frame)
}

/// Whether the NIC transmit tables let a raw queue's frame pass.
fn may_leave(hca: &mut Hca, frame: &[u8]) -> bool {
    let Some(headers) = Headers::of(frame) else {
        return true;
    };
    let set = headers.match_set(frame);
    let objects = &mut hca.objects;
    let octets = frame.len() as u64;
    objects.steering.passes(NIC_TX, &set, &mut objects.flow_counters, octets)
}

/// A frame leaves the vport: round inside the device, or through the port.
fn sent(hca: &mut Hca, outgoing: Outgoing) {
    let Outgoing { mut frame, domain } = outgoing;
    hca.bus.stats.frames_out += 1;
    if domain.is_some() && !may_leave(hca, &frame) {
        hca.traffic.discarded += 1;
        return;
    }
    let rdma = is_rdma(hca, &frame);
    hca.traffic.vport_out.add(&frame, rdma);
    if is_own_mac(hca, &frame) {
        received(hca, &frame, domain);
    } else if hca.link_up() {
        frame.resize(frame.len().max(LEAST_FRAME), 0);
        hca.traffic.port_out.add(&frame);
        let passes = !too_long_for_peer(hca, &frame);
        if frame[0] & 1 == 0 {
            if passes {
                hca.wire.send_owned(frame);
            }
            return;
        }
        if passes {
            hca.wire.send(&frame);
        }
        // Multicast goes to the own members of the group, too.
        if rdma {
            if let Demux::Roce(mut packet) = demux(&frame, |net| hca.objects.groups.has(net.dst)) {
                finish_grh(hca, &mut packet);
                multicast::deliver(hca, *packet, true);
            }
        }
        if !rdma && loops_multicast(hca) {
            received(hca, &frame, domain);
        }
    }
}

/// Whether multicast frames of the vport's own reach its own receive tables: unless it has been
/// switched off, on a device that can switch it off. One that cannot does not do it.
fn loops_multicast(hca: &Hca) -> bool {
    hca.caps.general(cmd_hca_cap::disable_local_lb_mc) != 0 && !hca.vport.blocks_own_multicast()
}

/// A frame comes in through the port, unless the link is down or it is too long for the port.
fn arrived(hca: &mut Hca, frame: &[u8]) {
    if !hca.link_up() || too_long_for_peer(hca, frame) {
        return;
    }
    if frame.len() + 4 > usize::from(hca.port.mtu) {
        hca.traffic.port_in.too_long += 1;
        return;
    }
    hca.traffic.port_in.add(frame);
    received(hca, frame, None);
}

/// A frame from the wire, or from a queue of the device itself, in a transport domain if it is a
/// raw one.
fn received(hca: &mut Hca, frame: &[u8], from: Option<u32>) {
    hca.bus.stats.frames_in += 1;
    let Some(to) = frame.first_chunk::<6>() else {
        return;
    };
    let rdma = is_rdma(hca, frame);
    // The groups of datagram QPs are no part of the vport's list.
    let grouped = rdma && to[0] & 1 == 1 && !hca.objects.groups.is_empty();
    let passes = from.is_some() || passes_switch(hca, to);
    if !passes || !grouped && !is_own_mac(hca, frame) && !hca.vport.accepts(to) {
        hca.traffic.filtered += 1;
        return;
    }
    hca.traffic.vport_in.add(frame, rdma);
    let sorted = if hca.vport.roce_enabled {
        demux(frame, |net| {
            hca.roce.has_address(net.dst, !net.v1) || hca.objects.groups.has(net.dst)
        })
    } else {
        Demux::Ethernet
    };
    match sorted {
        Demux::Roce(mut packet) if packet.bth.dest_qp == MULTICAST_QPN => {
            finish_grh(hca, &mut packet);
            // Own ones were delivered when they left.
            multicast::deliver(hca, *packet, false);
        }
        Demux::Roce(mut packet) => {
            finish_grh(hca, &mut packet);
            to_qp(hca, &(*packet).into());
        }
        Demux::Drop(why) => {
            hca.bus.stats.frames_malformed += 1;
            if let Malformed::Pkey(_) = why {
                hca.bus.stats.frames_wrong_pkey += 1;
            }
        }
        // Let in for the sake of a group, and then for none of them.
        Demux::Ethernet if !is_own_mac(hca, frame) && !hca.vport.accepts(to) => {
            hca.traffic.filtered += 1;
        }
        Demux::Ethernet => to_tables(hca, frame, from),
    }
}

fn to_qp(hca: &mut Hca, packet: &packet::Packet) {
    let named = packet.bth.dest_qp;
    let qpn = if named == GSI_QPN {
        // QP 1 exists only on the wire: it is the one GSI QP that receives.
        match hca.objects.qps.gsi() {
            Some(qpn) => qpn,
            None => return,
        }
    } else {
        named
    };
    with_engine(hca, qpn, |engine, device| engine.on_packet(device, packet));
}

fn to_tables(hca: &mut Hca, frame: &[u8], from: Option<u32>) {
    let Some(headers) = Headers::of(frame) else {
        return;
    };
    let set = headers.match_set(frame);
    let objects = &mut hca.objects;
    let octets = frame.len() as u64;
    let verdict = objects.steering.walk(NIC_RX, &set, &mut objects.flow_counters, octets);
    for (tirn, tag) in verdict {
        let Some(tir) = hca.objects.tirs.get(&tirn) else {
            continue;
        };
        if from.is_some_and(|domain| tir.turns_away(domain, frame)) {
            continue;
        }
        let (rqn, hash) = match tir.dispatch {
            Dispatch::Direct(rqn) => (Some(rqn), Hash::default()),
            Dispatch::Indirect(rqtn) => {
                let hash = tir.hashing.hash(&headers, frame);
                let rqt = hca.objects.rqts.get(&rqtn);
                (rqt.and_then(|rqt| rqt.pick(hash.result)), hash)
            }
        };
        if let Some(rqn) = rqn {
            Device::of(hca).receive_into(rqn, tag, hash, frame);
        }
    }
    fail_doomed(hca);
}
