//! Frames of an InfiniBand port: from the wire to its node and on to queue pairs, and back.
//!
//! The node sorts out what is for the port at all (LID, P_Key table, subnet management); this file
//! which queue pair it is for. A frame for an own LID turns round inside the device.

use super::multicast::{self, MULTICAST_QPN};
use super::traffic::with_engine;
use crate::facts::OpenFact;
use crate::hca::Hca;
use crate::host::Nanos;
use crate::ib::{PORT, pma};
use crate::subnet::Cause;
use crate::subnet::port::CAPABILITY_SM;
use crate::transport::packet::Packet;
use crate::wire::frame::{Bth, Deth, Extended};
use crate::wire::ib::lid::{self, Kind, PERMISSIVE};
use crate::wire::ib::{self, Grh, Lrh, VL_MANAGEMENT, link};

/// Queue pair 1 on the wire, and its Q_Key (IBTA volume 1, 10.2.5 and 3.5.3).
const GSI_QPN: u32 = 1;
const GSI_QKEY: u32 = 0x8001_0000;

impl Hca {
    /// A frame of an own queue pair: round inside the device, or through the port.
    pub(super) fn ib_sent(&mut self, frame: Vec<u8>) {
        self.bus.stats.frames_out += 1;
        let (Some(ib), Ok(lrh)) = (&mut self.ib, link::check(&frame)) else { return };
        self.traffic.vport_out.add_ib(&frame);
        let is_management = lrh.vl == VL_MANAGEMENT;
        let is_own = ib.port().has_lid(lrh.dlid);
        match lid::kind(lrh.dlid) {
            Kind::Reserved => ib.node.drop(PORT, Cause::LidZero),
            Kind::Permissive if !is_management => ib.node.drop(PORT, Cause::PermissiveLid),
            Kind::Unicast if is_own => ib.node.loop_back(PORT, &frame),
            Kind::Multicast if !is_management => {
                // The own members of the group get it, too, if the port carries it.
                let is_sent = ib.is_active();
                ib.node.send(PORT, frame.clone());
                if is_sent {
                    self.ib_deliver(&frame, true);
                }
            }
            Kind::Unicast | Kind::Multicast | Kind::Permissive => ib.node.send(PORT, frame),
        }
        self.pump_ib();
    }

    /// A frame comes out of the cable.
    pub(super) fn ib_arrived(&mut self, frame: Vec<u8>) {
        let leaves_agent = self.config.facts.value(OpenFact::SubnetAgent) == Some(1)
            && self.objects.qps.smi().is_some();
        let is_trained = self.is_trained();
        let Some(ib) = self.ib.as_mut().filter(|_| is_trained) else { return };
        ib.counts.received.add(&frame);
        ib.node.leave_agent_to_software(leaves_agent);
        ib.node.arrive(PORT, frame);
        self.pump_ib();
    }

    /// Moves what the node has for the cable and for the queue pairs.
    pub(crate) fn pump_ib(&mut self) {
        loop {
            self.retrain_ib();
            let Some(ib) = &mut self.ib else { return };
            if let Some((_, frame)) = ib.node.next_frame() {
                ib.counts.sent.add(&frame);
                self.wire.send_owned(frame);
            } else if let Some(frame) = ib.node.receive(PORT) {
                self.ib_deliver(&frame, false);
            } else {
                break;
            }
        }
        self.announce_ib();
    }

    /// Lets the node do what is due; says when next.
    pub(crate) fn step_ib(&mut self) -> Option<Nanos> {
        let now = self.bus.now;
        self.ib.as_mut()?.node.advance(now);
        self.pump_ib();
        self.ib.as_ref()?.node.next_deadline()
    }

    /// What a reset of the function does to the port: no software is there any more. The subnet's
    /// part stays, it is the physical port's.
    pub(crate) fn reset_ib(&mut self) {
        if let Some(ib) = &mut self.ib {
            ib.node.set_capability(PORT, CAPABILITY_SM, false);
            ib.node.leave_agent_to_software(false);
        }
        self.follow_link();
    }

    /// Frames of an InfiniBand port that were dropped, by cause.
    pub fn subnet_drops(&self) -> Vec<(Cause, u64)> {
        let drops = self.ib.iter().flat_map(|ib| ib.node.drops());
        drops.map(|(_, why, count)| (why, count)).collect()
    }

    /// Gives a frame that the node let through to its queue pair; `own`: the device sent it itself.
    fn ib_deliver(&mut self, frame: &[u8], own: bool) {
        let Ok(packet) = ib::Packet::parse(frame) else { return };
        self.bus.stats.frames_in += 1;
        self.traffic.vport_in.add_ib(frame);
        if let Err(why) = self.ib_to_qps(packet, own) {
            if let Some(ib) = &mut self.ib {
                ib.node.drop(PORT, why);
            }
        }
    }

    /// Answers a request to the performance agent as firmware does, unless software is to; whether
    /// it was one.
    fn answer_performance(&mut self, request: &ib::Packet) -> bool {
        let link_down = self.traffic.link_down;
        let is_software = self.config.facts.value(OpenFact::SubnetAgent) == Some(1);
        let (Some(ib), Some(deth)) = (&mut self.ib, request.ext.deth) else { return false };
        let mut mad = request.payload.clone();
        let is_one = deth.qkey == GSI_QKEY && pma::is_request(&mad);
        if is_software || !is_one {
            return false;
        }
        pma::answer(ib, link_down, &mut mad);
        let (lrh, bth) = (request.lrh, request.bth);
        let grh = request.grh.map(|grh| Grh { sgid: grh.dgid, dgid: grh.sgid, ..grh });
        let answer = ib::Packet {
            lrh: Lrh { dlid: lrh.slid, slid: lrh.dlid, vl: ib.port().lane(0, lrh.sl), ..lrh },
            grh,
            bth: Bth { dest_qp: deth.src_qp, psn: 0, ..bth },
            ext: Extended { deth: Some(Deth { qkey: GSI_QKEY, src_qp: GSI_QPN }), ..request.ext },
            payload: mad,
        };
        self.ib_sent(answer.build());
        true
    }

    fn ib_to_qps(&mut self, packet: ib::Packet, own: bool) -> Result<(), Cause> {
        let (dlid, named) = (packet.lrh.dlid, packet.bth.dest_qp);
        let is_group = lid::kind(dlid) == Kind::Multicast;
        if is_group {
            let dgid = packet.grh.ok_or(Cause::NoGroup)?.dgid;
            if named != MULTICAST_QPN || !self.objects.groups.has_gid(&dgid) {
                return Err(Cause::NoGroup);
            }
            multicast::deliver_to(self, &dgid, &packet.into(), own);
            return Ok(());
        }
        if let (Some(grh), Some(ib)) = (&packet.grh, &self.ib) {
            if !ib.port().has_gid(&grh.dgid) {
                return Err(Cause::Gid);
            }
        }
        if named == GSI_QPN && self.answer_performance(&packet) {
            return Ok(());
        }
        let is_management = packet.lrh.vl == VL_MANAGEMENT;
        let qpn = match named {
            0 if is_management || dlid == PERMISSIVE => self.objects.qps.smi(),
            GSI_QPN => self.objects.qps.gsi(),
            named => Some(named).filter(|qpn| self.objects.qps.has_on_wire(qpn)),
        };
        let qpn = qpn.ok_or(Cause::NoQueuePair)?;
        let packet = Packet::from(packet);
        with_engine(self, qpn, |engine, device| engine.on_packet(device, &packet));
        Ok(())
    }
}
