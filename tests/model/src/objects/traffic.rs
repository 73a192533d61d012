//! Frames and time: from the wire to engines and raw queues, from their outbox to the wire.
//!
//! A frame for one of the device's own MACs turns round inside the device. A received frame passes
//! the MAC filter, then RoCE traffic for an own address goes to the QP it names, before any flow
//! table; the rest walks the NIC receive tables. An engine is taken out of its QP while it runs.

use super::device::{Device, ip_of_entry};
use super::ethernet::Headers;
use super::qp::Receives;
use super::tir_tis::Dispatch;
use crate::hca::Hca;
use crate::host::Nanos;
use crate::transport::Engine;
use crate::transport::host::{Host, QpState};
use crate::wire::frame::{Demux, Packet, demux};

/// Frames moved in one step; what is left waits for the next, which is then due at once.
const MOST_FRAMES: usize = 4096;
/// Queue pair 1 on the wire.
const GSI_QPN: u32 = 1;

/// Runs a QP's engine, then whatever its run left to do.
pub(crate) fn with_engine(hca: &mut Hca, qpn: u32, run: impl FnOnce(&mut Engine, &mut dyn Host)) {
    let Some(mut engine) = hca
        .objects
        .qps
        .get_mut(&qpn)
        .and_then(|qp| qp.engine.take())
    else {
        return;
    };
    run(&mut engine, &mut Device::of(hca));
    if let Some(qp) = hca.objects.qps.get_mut(&qpn) {
        qp.engine = Some(engine);
    }
    settle(hca);
}

/// Takes the queues that lost their CQ to error.
pub(crate) fn settle(hca: &mut Hca) {
    while let Some(number) = hca.objects.doomed.pop() {
        if hca.objects.qps.contains_key(&number) {
            fail(hca, number);
        } else {
            Device::of(hca).fail_sq(number);
            Device::of(hca).fail_rq(number);
        }
    }
}

/// Takes a QP to error because of something outside its engine, with a catastrophic event.
fn fail(hca: &mut Hca, qpn: u32) {
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
    device.event(qpn, crate::transport::host::QpEvent::Catastrophic);
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
    let attr = qp.attr();
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
    for qpn in hca.objects.qps.keys().copied().collect::<Vec<_>>() {
        let Some(qp) = hca.objects.qps.get(&qpn) else {
            continue;
        };
        let due = qp
            .engine
            .as_ref()
            .and_then(Engine::next_deadline)
            .is_some_and(|t| t <= now);
        let flushing = qp.state == QpState::Err && qp.receives == Receives::Own;
        if due {
            with_engine(hca, qpn, |engine, device| engine.on_timer(device));
        }
        if flushing {
            with_engine(hca, qpn, |engine, device| engine.on_receive_posted(device));
        }
    }
    let mut moved = 0;
    while moved < MOST_FRAMES {
        if let Some(frame) = hca.objects.outbox.pop_front() {
            if is_own_mac(hca, &frame) {
                received(hca, &frame);
            } else {
                hca.wire.send(&frame);
            }
            hca.bus.stats.frames_out += 1;
        } else if let Some(frame) = hca.wire.recv() {
            received(hca, &frame);
        } else {
            break;
        }
        moved += 1;
    }
    if moved == MOST_FRAMES {
        return Some(now);
    }
    hca.objects
        .qps
        .values()
        .filter_map(|qp| qp.engine.as_ref().and_then(Engine::next_deadline))
        .min()
}

/// Whether a frame is for one of the MACs the device answers to.
fn is_own_mac(hca: &Hca, frame: &[u8]) -> bool {
    let Some(mac) = frame.first_chunk::<6>() else {
        return false;
    };
    mac[0] & 1 == 0
        && (*mac == hca.vport.mac
            || hca.objects.l2.values().any(|own| own == mac)
            || hca.roce.iter().any(|(_, entry)| entry.mac == *mac))
}

/// A frame from the wire, or from the device itself.
fn received(hca: &mut Hca, frame: &[u8]) {
    hca.bus.stats.frames_in += 1;
    let Some(to) = frame.first_chunk::<6>() else {
        return;
    };
    if !is_own_mac(hca, frame) && !hca.vport.accepts(to) {
        return;
    }
    let sorted = if hca.vport.roce_enabled {
        demux(frame, |ip| {
            hca.roce
                .iter()
                .any(|(_, entry)| entry.v2 && ip_of_entry(entry) == *ip)
        })
    } else {
        Demux::Ethernet
    };
    match sorted {
        Demux::Roce(packet) => to_qp(hca, &packet),
        Demux::Drop(_) => {}
        Demux::Ethernet => to_tables(hca, frame),
    }
}

fn to_qp(hca: &mut Hca, packet: &Packet) {
    let named = packet.bth.dest_qp;
    let qpn = if named == GSI_QPN {
        // QP 1 exists only on the wire: it is the one GSI QP that receives.
        let gsi = |qp: &&super::qp::Qp| {
            qp.kind == crate::transport::host::QpKind::Gsi && qp.state != QpState::Reset
        };
        match hca.objects.qps.values().find(gsi) {
            Some(qp) => qp.qpn,
            None => return,
        }
    } else {
        named
    };
    with_engine(hca, qpn, |engine, device| engine.on_packet(device, packet));
}

fn to_tables(hca: &mut Hca, frame: &[u8]) {
    let Some(headers) = Headers::of(frame) else {
        return;
    };
    let set = headers.match_set(frame);
    for (tirn, tag) in hca.objects.steering.walk(0, &set) {
        let rqn = match hca.objects.tirs.get(&tirn).map(|tir| tir.dispatch) {
            Some(Dispatch::Direct(rqn)) => Some(rqn),
            // Spread by a hash of its own, not by Toeplitz: a driver may not depend on which queue.
            Some(Dispatch::Indirect(rqtn)) => hca.objects.rqts.get(&rqtn).and_then(|rqt| {
                let hash = crc32fast::hash(set.get(0x10..).unwrap_or(&[])) as usize;
                rqt.queues.get(hash % rqt.queues.len().max(1)).copied()
            }),
            None => None,
        };
        if let Some(rqn) = rqn {
            Device::of(hca).receive_into(rqn, tag, frame);
        }
    }
    settle(hca);
}
