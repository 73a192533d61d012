//! Nodes and cables, and the frames between them.

use std::collections::{BTreeMap, VecDeque};

use super::agent::Source;
use super::node::Node;
use super::port::{Port, State};
use super::route::{self, Step};
use super::smp::Smp;
use crate::host::Nanos;
use crate::ifc::subnet::{port_info, smp as layout};
use crate::wire::ib::lid::{self, Kind, PERMISSIVE};
use crate::wire::ib::{BadLink, Malformed, Packet, VL_MANAGEMENT, link, packet};

/// Frames that wait at a port before more are dropped.
const INBOX_DEPTH: usize = 1 << 12;
/// Links that a frame passes before it is dropped, in place of the switch lifetime (IBTA volume
/// 1, 18.2.5.4): tables may lead in a circle.
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

/// Why a frame was dropped. Names as in PortRcvErrorDetails and PortXmitDiscardDetails (IBTA volume
/// 1, 16.1.4) where these have one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// Wrong on the link.
    Link(BadLink),
    /// Wrong at its destination.
    Malformed(Malformed),
    /// The port does not send or receive this in its state.
    Inactive,
    /// To LID 0.
    LidZero,
    /// To the permissive LID, but no subnet management packet.
    PermissiveLid,
    /// To a LID that is not the port's.
    NotMine,
    /// To a LID without a port in the forwarding table.
    DlidMapping,
    /// Its service level has no virtual lane at the output port.
    VlMapping,
    /// The output port is the one by which it came.
    Looping,
    /// Passed too many links.
    Lifetime,
    /// Longer than the next port takes.
    NeighborMtu,
    /// Of a partition that the port is not in.
    PKey,
    /// On the management lane, but no subnet management packet.
    NotSubnetManagement,
    /// For queue pair 0, but not on the management lane.
    QpZero,
    /// Its directed route does not fit.
    Route,
    /// The agent does not answer it: a wrong M_Key, or a method without an answer.
    NotAnswered,
    /// Too many frames wait at the port.
    InboxFull,
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

    /// Checks the partition of a frame where a switch port enforces it (IBTA volume 1, 18.2.4.2.1).
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

    /// A frame on the management lane reaches a node on its way, or its destination.
    fn deliver_smp(&mut self, end: End, frame: &[u8]) -> Result<(), Cause> {
        let packet = Packet::parse(frame).map_err(Cause::Malformed)?;
        let mut smp = Smp(*packet.subnet_mad().ok_or(Cause::NotSubnetManagement)?);
        if !smp.is_of_class() {
            return Err(Cause::NotSubnetManagement);
        }
        let (slid, dlid) = (packet.lrh.slid, packet.lrh.dlid);
        if dlid != PERMISSIVE && !self.management(end).has_lid(dlid) {
            return Err(Cause::NotMine);
        }
        let is_switch = self.node(end.node).is_switch();
        let step = match smp.is_directed() {
            // Only the maker of a packet has the hop pointer 0, or the LID routed what was before.
            true if dlid == PERMISSIVE
                && !smp.returns()
                && smp.get(layout::hop_pointer) == 0
                && smp.get(layout::hop_count) != 0 =>
            {
                Step::Discard
            }
            true => route::step(&mut smp, is_switch, end.port),
            false => Step::Here,
        };
        self.follow(end, Source { port: end.port, slid }, smp, step, dlid);
        Ok(())
    }

    /// Does what a directed route says next. `dlid` is the destination LID that the packet had.
    fn follow(&mut self, at: End, source: Source, smp: Smp, step: Step, dlid: u16) {
        match step {
            Step::Discard => self.drop(at, Cause::Route),
            Step::Port(exit) => {
                let out = End { port: exit, ..at };
                if self.port(out).is_some() && exit != 0 {
                    let frame = Packet::management(PERMISSIVE, PERMISSIVE, &smp.0).build();
                    self.transmit(out, frame, 0);
                } else {
                    self.drop(at, Cause::Route);
                }
            }
            Step::Lid(lid) => {
                let slid = self.management(at).lid();
                self.send_by_lid(at, smp, lid, slid);
            }
            Step::Here => self.take_smp(at, source, smp, dlid),
        }
    }

    /// Gives an SMP to the manager or to the agent of a node.
    fn take_smp(&mut self, at: End, source: Source, smp: Smp, dlid: u16) {
        let node = &mut self.nodes[at.node.0];
        let is_switch = node.is_switch();
        let own = End { port: node.management_port(at.port), ..at };
        if node.is_for_manager(&smp, at.port) {
            let frame = Packet::management(dlid, source.slid, &smp.0).build();
            if let Err(why) = self.put_in_inbox(own, frame) {
                self.drop(own, why);
            }
            return;
        }
        // What a channel adapter's manager asks of its own port came by no other.
        let port = if source.port == 0 { own.port } else { source.port };
        let Some(mut answer) = node.answer(&smp, Source { port, ..source }) else {
            return self.drop(own, Cause::NotAnswered);
        };
        while let Some(number) = self.nodes[at.node.0].retrain.pop_first() {
            self.train(End { port: number, ..at });
        }
        let is_directed_to_here =
            answer.is_directed() && answer.get(layout::dr_dlid) == u32::from(PERMISSIVE);
        if is_directed_to_here {
            let step = route::step(&mut answer, is_switch, 0);
            self.follow(at, Source { port: 0, slid: PERMISSIVE }, answer, step, PERMISSIVE);
        } else {
            // The part by LID: back to where the request came from (IBTA volume 1, 14.2.2.3).
            self.send_by_lid(at, answer, source.slid, dlid);
        }
    }

    /// Sends an SMP to a LID: by the port of a channel adapter, as the tables of a switch say, or to
    /// the node itself.
    fn send_by_lid(&mut self, from: End, smp: Smp, dlid: u16, slid: u16) {
        let own = self.management(from);
        if own.has_lid(dlid) {
            let is_for_manager = self.node(from.node).is_for_manager(&smp, from.port);
            if smp.is_directed() || is_for_manager {
                let mut smp = smp;
                let is_switch = self.node(from.node).is_switch();
                let step = match smp.is_directed() {
                    true => route::step(&mut smp, is_switch, 0),
                    false => Step::Here,
                };
                return self.follow(from, Source { port: 0, slid }, smp, step, dlid);
            }
            return self.take_smp(from, Source { port: 0, slid }, smp, dlid);
        }
        let exit = match self.node(from.node).is_switch() {
            true => self.node(from.node).exits(dlid, 0).map(|exits| exits.first().copied()),
            false => Ok(Some(from.port)),
        };
        match exit {
            Ok(Some(port)) if lid::kind(dlid) == Kind::Unicast => {
                let frame = Packet::management(dlid, slid, &smp.0).build();
                self.transmit(End { port, ..from }, frame, 0);
            }
            Ok(_) => self.drop(from, Cause::DlidMapping),
            Err(why) => self.drop(from, why),
        }
    }
}

/// The virtual lane of a frame.
fn lane_of(frame: &[u8]) -> u8 {
    frame.first().map_or(0, |byte| byte >> 4)
}
