//! The built-in subnet manager at its device: QP0, the port's own agent, and its share of QP1.
//!
//! Only where [`Config::subnet_manager`](crate::Config::subnet_manager) asks for it. A function that
//! may not use QP0 has none. What other managers ask of the port's agent then comes by QP0 as well,
//! and is carried out by MAD_IFC, as Linux does it (`ib_mad`, `mlx5_ib_process_mad`).

use dat_core::Instant;
use dat_core::provider::Fault;

use crate::data::work;
use crate::device::{Device, IbPort, PortState};
use crate::net::gsi::{Arrival, Gsi, Kind};
use crate::net::ib::sm::{
    Config, Counters, Destination, Interface, Side, Source, State, SubnetManager,
};
use crate::platform::Platform;
use crate::prm::mad::{GSI_QKEY, MAD_LEN, Mad, MadHeader, PERMISSIVE_LID, class, method};
use crate::prm::smp::{SmpHeader, attribute};
use crate::prm::wqe::Av;
use crate::verbs::cq::CqObject;

/// The port of a function with one port.
const PORT: u8 = 1;
/// Priority: that of a manager that anybody else may be before.
const PRIORITY: u8 = 0;

#[derive(Debug)]
pub(super) struct Manager<'p, P: Platform> {
    sm: SubnetManager,
    smi: Gsi<'p, P>,
    up: bool,
    announced: bool,
    /// The last service left datagrams behind.
    more: bool,
}

impl<'p, P: Platform> Manager<'p, P> {
    /// Makes QP0.
    pub(super) fn create(device: &mut Device<'p, P>) -> Result<Self, Fault> {
        let smi = Gsi::create_of(device, Kind::Subnet)?;
        let first_tid = device.random.next_u64();
        let sm = SubnetManager::new(Config { port: PORT, priority: PRIORITY, first_tid });
        Ok(Self { sm, smi, up: false, announced: false, more: false })
    }

    pub(super) fn destroy(self, device: &mut Device<'p, P>) -> Result<(), Fault> {
        let _ = device.announce_manager(false);
        self.smi.destroy(device)
    }

    pub(super) fn queue_pair(&mut self) -> &mut Gsi<'p, P> {
        &mut self.smi
    }

    pub(super) fn cq(&self, cqn: u32) -> Option<&CqObject> {
        self.smi.cq(cqn)
    }

    pub(super) fn owns_qp(&self, qpn: u32) -> bool {
        self.smi.owns_qp(qpn)
    }

    pub(super) fn state(&self) -> State {
        self.sm.state()
    }

    pub(super) fn counters(&self) -> Counters {
        self.sm.counters()
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let more = self.more.then_some(Instant::ZERO);
        let own = Instant::sooner(self.sm.next_deadline(), self.smi.next_deadline());
        Instant::sooner(more, own)
    }

    /// Takes a question to the subnet administrator that came by QP1.
    pub(super) fn ask(&mut self, arrival: &Arrival, port: &IbPort, now: Instant) {
        let own = arrival.route.slid == port.lid;
        let side = if own { Side::Own } else { Side::Peer };
        self.input(arrival, Interface::Gsi, side, now);
    }

    fn input(&mut self, arrival: &Arrival, interface: Interface, side: Side, now: Instant) {
        let (lid, qpn) = (arrival.route.slid, arrival.route.source_qpn);
        self.sm.input(now, Source { interface, side, lid, qpn }, &arrival.bytes);
    }

    /// Takes datagrams in, does what is due and sends what there is to send. Whether the port may be
    /// another now.
    pub(super) fn service(
        &mut self,
        device: &mut Device<'p, P>,
        gsi: &mut Gsi<'p, P>,
        port: &IbPort,
        now: Instant,
    ) -> bool {
        let up = port.state != PortState::Down;
        if core::mem::replace(&mut self.up, up) != up {
            self.sm.link_changed(now, up);
        }
        if self.announced != self.sm.is_announced() {
            self.announced = !self.announced;
            // A function that may not say so is found by nobody, and finds others.
            let _ = device.announce_manager(self.announced);
        }
        let _ = self.smi.service(device, now);
        let (mut frames, mut commands) = (work::FRAMES, work::AGENT);
        while frames != 0 && commands != 0 {
            let Some(arrival) = self.smi.arrival() else { break };
            frames -= 1;
            commands -= usize::from(self.take(device, &arrival, port, now));
        }
        self.more = frames == 0 || commands == 0;
        if self.sm.next_deadline().is_some_and(|due| due <= now) {
            self.sm.advance(now);
        }
        let (mut mad, mut changed) = ([0; MAD_LEN], false);
        for _ in 0..work::FRAMES {
            let Some(to) = self.sm.poll_transmit(now, &mut mad) else { break };
            let av = match to {
                Destination::Agent => {
                    changed |= MadHeader(&mad).method() == method::SET;
                    // What the agent does not answer is asked again, and then given up.
                    if let Ok(answer) = device.own_agent_mad(&mad, None) {
                        let (interface, side) = (Interface::Smi, Side::Own);
                        let source = Source { interface, side, lid: port.lid, qpn: 0 };
                        self.sm.input(now, source, &answer);
                    }
                    continue;
                }
                Destination::Directed => management(PERMISSIVE_LID),
                Destination::Management { lid } => management(lid),
                Destination::General { lid, qpn } => {
                    let av = Av { qkey: GSI_QKEY, dqpn: qpn, ..management(lid) };
                    let _ = gsi.send_to(&av, &mad);
                    continue;
                }
            };
            let _ = self.smi.send_to(&av, &mad);
        }
        changed
    }

    /// Takes a datagram of QP0: answers, traps and what concerns managers are for the manager, the
    /// rest for the agent. Whether it was a command.
    fn take(
        &mut self,
        device: &mut Device<'p, P>,
        arrival: &Arrival,
        port: &IbPort,
        now: Instant,
    ) -> bool {
        let head = MadHeader(&arrival.bytes);
        if !asks_agent(&arrival.bytes) {
            let own = arrival.route.slid == port.lid && port.lid != 0;
            let side = if own { Side::Own } else { Side::Peer };
            self.input(arrival, Interface::Smi, side, now);
            return false;
        }
        // One that fails has a wrong key.
        let answer = device.own_agent_mad(&arrival.bytes, Some(arrival.route.slid));
        let Some(mut answer) = answer.ok().filter(|_| head.method() != method::TRAP_REPRESS) else {
            return true;
        };
        let lid = if head.mgmt_class() == class::SUBNET_DIRECTED {
            return_along_route(&mut answer);
            PERMISSIVE_LID
        } else {
            arrival.route.slid
        };
        let _ = self.smi.send_to(&management(lid), &answer);
        true
    }
}

/// Whether a datagram is for the port's own agent.
fn asks_agent(mad: &Mad) -> bool {
    let head = MadHeader(mad);
    let is_smp = matches!(head.mgmt_class(), class::SUBNET_LID | class::SUBNET_DIRECTED);
    let is_request = matches!(head.method(), method::GET | method::SET)
        && head.attr_id() != attribute::SM_INFO
        || head.method() == method::TRAP_REPRESS;
    is_smp && is_request
}

/// Sets out the answer to a directed-route packet on its way back: the direction bit, and the hop
/// pointer at the last hop (IBTA volume 1, 14.2.2; Linux `smi_handle_dr_smp_send`).
fn return_along_route(mad: &mut Mad) {
    let mut head = SmpHeader(mad);
    head.set_direction(true);
    let hops = head.hop_cnt();
    head.set_hop_ptr(hops);
}

/// The address vector of a packet to QP0.
fn management(lid: u16) -> Av {
    Av { rlid_udp_sport: lid, ..Av::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_agent_gets_packets_of_subnet_management_only() {
        let mad = |class: u8, method: u8, attribute: u8| {
            let mut mad = [0; MAD_LEN];
            mad[..4].copy_from_slice(&[1, class, 1, method]);
            mad[17] = attribute;
            mad
        };
        for class in [1, 0x81] {
            assert!(asks_agent(&mad(class, 1, 0x15)) && asks_agent(&mad(class, 2, 0x15)));
            assert!(asks_agent(&mad(class, 7, 2)), "TrapRepress");
            assert!(!asks_agent(&mad(class, 1, 0x20)), "SMInfo");
            assert!(!asks_agent(&mad(class, 0x81, 0x15)) && !asks_agent(&mad(class, 5, 2)));
        }
        for class in [0, 3, 4, 6, 7, 9, 0x0a, 0x30] {
            assert!(!asks_agent(&mad(class, 1, 0x15)), "class {class:#x}");
            assert!(!asks_agent(&mad(class, 2, 0x11)), "class {class:#x}");
        }
    }
}
