//! Nodes and cables, and the frames between them.

use std::collections::{BTreeMap, VecDeque};

use super::agent::Source;
use super::cause::Cause;
use super::node::Node;
use super::port::{Port, State};
use super::route::{self, Step};
use super::smp::Smp;
use crate::host::Nanos;
use crate::ifc::subnet::port_info;
use crate::wire::ib::lid::{self, Kind, PERMISSIVE};
use crate::wire::ib::{Packet, VL_MANAGEMENT, link, packet};

mod smi;

/// Frames that wait at a port before more are dropped.
const INBOX_DEPTH: usize = 1 << 12;
/// Links that a frame passes before it is dropped, in place of the lifetime limit of switches:
/// tables may lead in a circle.
const MOST_LINKS: u8 = 64;

/// A node of a fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeId(usize);

/// A port of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct End {
    /// The node.
    pub node: NodeId,
    /// The port's number.
    pub port: u8,
}

struct Flight {
    to: End,
    frame: Vec<u8>,
    links: u8,
}

/// Nodes, joined by cables.
#[derive(Default)]
pub struct Fabric {
    nodes: Vec<Node>,
    cables: BTreeMap<End, End>,
    inboxes: BTreeMap<End, VecDeque<Vec<u8>>>,
    drops: BTreeMap<(End, Cause), u64>,
    flights: VecDeque<Flight>,
    recorded: Option<Vec<Vec<u8>>>,
}

impl std::fmt::Debug for Fabric {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fabric").field("cables", &self.cables).field("drops", &self.drops).finish()
    }
}

impl Fabric {
    /// Adds a node.
    pub fn add(&mut self, node: Node) -> NodeId {
        self.nodes.push(node);
        NodeId(self.nodes.len() - 1)
    }

    /// A node.
    #[must_use]
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0]
    }

    /// The same, to change.
    pub fn node_mut(&mut self, id: NodeId) -> &mut Node {
        &mut self.nodes[id.0]
    }

    /// Plugs a cable in at two ports; cables that were there are pulled. The links train.
    pub fn connect(&mut self, a: End, b: End) {
        self.disconnect(a);
        self.disconnect(b);
        self.cables.extend([(a, b), (b, a)]);
        self.train(a);
        self.run();
    }

    /// Pulls the cable at a port.
    pub fn disconnect(&mut self, end: End) {
        if let Some(peer) = self.cables.remove(&end) {
            self.cables.remove(&peer);
            self.train(end);
            self.train(peer);
            self.run();
        }
    }

    /// Lets time pass in every node.
    pub fn advance(&mut self, now: Nanos) {
        for node in &mut self.nodes {
            node.advance(now);
        }
        self.run();
    }

    /// Sends a frame by a port of a node, as its queue pairs would.
    pub fn send(&mut self, from: End, frame: Vec<u8>) {
        if self.port(from).is_some() {
            self.transmit(from, frame, 0);
            self.run();
        }
    }

    /// Sends an SMP by a port of a node, as its subnet manager would: along its route, or to `dlid`.
    pub fn submit(&mut self, from: End, mut smp: Smp, dlid: u16) {
        if self.port(from).is_none() {
            return;
        }
        let source = Source { port: 0, slid: PERMISSIVE };
        if smp.is_directed() {
            let step = route::step(&mut smp, self.node(from.node).is_switch(), 0);
            let is_own_port = self.node(from.node).is_switch() || step == Step::Port(from.port);
            let step = if is_own_port || step == Step::Here { step } else { Step::Discard };
            self.follow(from, source, smp, step, PERMISSIVE);
        } else {
            let slid = self.management(from).lid();
            self.send_by_lid(from, smp, dlid, slid);
        }
        self.run();
    }

    /// The next frame that waits at a port.
    pub fn receive(&mut self, end: End) -> Option<Vec<u8>> {
        self.inboxes.get_mut(&end)?.pop_front()
    }

    /// Frames dropped at a port for one cause.
    #[must_use]
    pub fn dropped(&self, end: End, why: Cause) -> u64 {
        self.drops.get(&(end, why)).copied().unwrap_or(0)
    }

    /// Frames dropped at all ports for all causes.
    #[must_use]
    pub fn all_dropped(&self) -> u64 {
        self.drops.values().sum()
    }

    /// Keeps every frame that passes a cable from now on, until [`Fabric::take_record`].
    pub fn record(&mut self) {
        self.recorded = Some(Vec::new());
    }

    /// The frames since [`Fabric::record`].
    pub fn take_record(&mut self) -> Vec<Vec<u8>> {
        self.recorded.take().unwrap_or_default()
    }

    fn port(&self, end: End) -> Option<&Port> {
        self.nodes.get(end.node.0)?.port(end.port)
    }

    /// The port whose LIDs count for `end`; `end` itself where a node has none such.
    fn management(&self, end: End) -> &Port {
        let node = self.node(end.node);
        let number = node.management_port(end.port);
        &node.ports[&number]
    }

    fn drop(&mut self, end: End, why: Cause) {
        *self.drops.entry((end, why)).or_default() += 1;
    }

    /// Lets both ends of a cable train: the link is up when neither is switched off.
    fn train(&mut self, end: End) {
        let peer = self.cables.get(&end).copied();
        let is_up = [Some(end), peer]
            .into_iter()
            .all(|end| end.and_then(|end| self.port(end)).is_some_and(Port::wants_link));
        for end in [Some(end), peer].into_iter().flatten() {
            if let Some(node) = self.nodes.get_mut(end.node.0) {
                node.set_link(end.port, false);
                if is_up {
                    node.set_link(end.port, true);
                }
            }
        }
    }

    /// Carries frames until none is under way, and sends the traps that are due.
    fn run(&mut self) {
        loop {
            while let Some(Flight { to, frame, links }) = self.flights.pop_front() {
                if let Err(why) = self.arrive(to, frame, links) {
                    self.drop(to, why);
                }
            }
            for index in 0..self.nodes.len() {
                for trap in self.nodes[index].due_traps() {
                    let from = End { node: NodeId(index), port: trap.port };
                    let port = self.management(from);
                    let (slid, dlid) = (port.lid(), port.master_sm_lid());
                    self.send_by_lid(from, trap.smp, dlid, slid);
                }
            }
            if self.flights.is_empty() {
                return;
            }
        }
    }

    /// Puts a frame on the cable of a port, if the port's state lets it.
    fn transmit(&mut self, from: End, frame: Vec<u8>, links: u8) {
        let is_management = lane_of(&frame) == VL_MANAGEMENT;
        let least = if is_management { State::Init } else { State::Active };
        let verdict = match (self.port(from), self.cables.get(&from)) {
            (Some(port), Some(peer)) if port.state() >= least => {
                match is_management || link::fits(&frame, port.neighbor_mtu()) {
                    true => Ok(*peer),
                    false => Err(Cause::NeighborMtu),
                }
            }
            _ => Err(Cause::Inactive),
        };
        match verdict {
            Ok(_) if links >= MOST_LINKS => self.drop(from, Cause::Lifetime),
            Ok(to) => {
                if let Some(recorded) = &mut self.recorded {
                    recorded.push(frame.clone());
                }
                self.flights.push_back(Flight { to, frame, links: links + 1 });
            }
            Err(why) => self.drop(from, why),
        }
    }

    /// A frame comes out of a cable.
    fn arrive(&mut self, end: End, frame: Vec<u8>, links: u8) -> Result<(), Cause> {
        let lrh = link::check(&frame).map_err(Cause::Link)?;
        let state = self.port(end).map_or(State::Down, Port::state);
        let is_management = lrh.vl == VL_MANAGEMENT;
        if state < if is_management { State::Init } else { State::Armed } {
            return Err(Cause::Inactive);
        }
        if !is_management {
            self.nodes[end.node.0].activate(end.port);
        }
        let exits = if !self.node(end.node).is_switch() {
            vec![end.port]
        } else if is_management && lrh.dlid == PERMISSIVE {
            vec![0]
        } else {
            self.node(end.node).exits(lrh.dlid, end.port)?
        };
        if !is_management && self.node(end.node).is_switch() {
            self.enforce(end, &frame, port_info::partition_enforcement_inbound)?;
        }
        for exit in exits {
            let own = self.node(end.node).management_port(end.port);
            if exit != own {
                self.relay(end, exit, frame.clone(), links);
            } else if is_management {
                self.deliver_smp(end, &frame)?;
            } else {
                self.deliver(End { port: own, ..end }, &frame)?;
            }
        }
        Ok(())
    }

    /// Sends a frame on by another port of a switch.
    fn relay(&mut self, from: End, exit: u8, mut frame: Vec<u8>, links: u8) {
        let out = End { port: exit, ..from };
        if lane_of(&frame) != VL_MANAGEMENT {
            let Some(port) = self.port(out) else { return };
            let vl = port.lane(from.port, frame.get(1).map_or(0, |byte| byte >> 4));
            let verdict = match vl < port.lanes() {
                true => self.enforce(out, &frame, port_info::partition_enforcement_outbound),
                false => Err(Cause::VlMapping),
            };
            if let Err(why) = verdict {
                return self.drop(out, why);
            }
            link::set_vl(&mut frame, vl);
        }
        self.transmit(out, frame, links);
    }

    /// Checks the partition of a frame where a switch port enforces it (IBTA volume 1, 18.2.4).
    fn enforce(&mut self, at: End, frame: &[u8], which: crate::ifc::Field) -> Result<(), Cause> {
        let port = self.port(at).filter(|port| port.get(which) != 0);
        let is_foreign =
            port.zip(packet::p_key(frame)).is_some_and(|(port, p_key)| !port.is_member(p_key));
        if is_foreign { Err(self.count_p_key(at)) } else { Ok(()) }
    }

    fn count_p_key(&mut self, at: End) -> Cause {
        if let Some(port) = self.nodes[at.node.0].ports.get_mut(&at.port) {
            port.count(port_info::p_key_violations);
        }
        Cause::PKey
    }

    /// A frame that is no subnet management packet reaches its destination.
    fn deliver(&mut self, end: End, frame: &[u8]) -> Result<(), Cause> {
        let packet = Packet::parse(frame).map_err(Cause::Malformed)?;
        let port = self.port(end).ok_or(Cause::NotMine)?;
        match lid::kind(packet.lrh.dlid) {
            Kind::Reserved => return Err(Cause::LidZero),
            Kind::Permissive => return Err(Cause::PermissiveLid),
            Kind::Unicast if !port.has_lid(packet.lrh.dlid) => return Err(Cause::NotMine),
            Kind::Unicast | Kind::Multicast => {}
        }
        if packet.bth.dest_qp == 0 {
            return Err(Cause::QpZero);
        }
        if !port.is_member(packet.bth.pkey) {
            return Err(self.count_p_key(end));
        }
        self.put_in_inbox(end, frame.to_vec())
    }

    fn put_in_inbox(&mut self, end: End, frame: Vec<u8>) -> Result<(), Cause> {
        let inbox = self.inboxes.entry(end).or_default();
        if inbox.len() >= INBOX_DEPTH {
            return Err(Cause::InboxFull);
        }
        inbox.push_back(frame);
        Ok(())
    }
}

/// The virtual lane of a frame.
fn lane_of(frame: &[u8]) -> u8 {
    frame.first().map_or(0, |byte| byte >> 4)
}
